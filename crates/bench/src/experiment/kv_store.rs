//! `kv`: the key-value store itself on a drive of GearDB's size and mechanics, from one thread, on the drive's own clock. Everything counts: the
//! write-ahead log, metadata, flushes, resets.

use super::chart::{Axis, Chart, Series, Shape};
use super::hosts::Disk;
use super::kv_keys::{Keys, Source};
use super::result::Row;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_device::{AlignedBuf, Cause, Drive, Survivor, ZonedDevice, report_all};
use imbrex_emulator::time::{Mechanics, Model, Pace};
use imbrex_emulator::{Config, Emulator, OpenOptions, Overrides};
use imbrex_kv::{Ingest, Kv, Options as KvOptions};
use imbrex_zones::{Exec, VolumeOptions};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv",
    about: "The key-value store on a drive of GearDB's size: loads, overwrites, deletes, reads and scans, everything counted",
    paper: "GearDB (FAST 2019), Figures 10 to 13; SMRDB (SYSTOR 2015), section 5",
    speed: 1.0,
    rows: |_| PLANS.iter().map(|plan| plan.name.to_owned()).collect(),
    extra: |_| PLANS.iter().filter(|plan| plan.extra).map(|plan| plan.name.to_owned()).collect(),
    needs: |options| Needs { work: 0, memory: u64::from(ZONES + 4) * ZONE / u64::from(options.scale) * 2 + (1 << 30) },
    run,
};

pub(super) const DRIVE: &str = "seagate-st13125nm007";
pub(super) const MIB: u64 = 1 << 20;
pub(super) const ZONE: u64 = 256 * MIB;
/// Zones of the whole drive: labels, metadata, log and tables.
pub(super) const ZONES: u32 = 284;
/// Bytes of a key, and of a value.
pub(super) const KEY: u64 = 16;
pub(super) const VALUE: usize = 4096;
/// At full size.
pub(super) const MEMTABLE: u64 = 256 * MIB;
const TABLE: u64 = 64 * MIB;
pub(super) const CACHE: u64 = 256 * MIB;
pub(super) const PUTS: u64 = 20_000_000;
const GETS: u64 = 1_000_000;
const SCANS: u64 = 50_000;
/// Keys of a scan.
pub(super) const LONG: usize = 100;
/// The part of the rate of puts that follow one another at which puts arrive that are paced.
pub(super) const PART: f64 = 0.8;
/// So many puts are timed together.
const TOGETHER: u64 = 8;
/// So often it is looked how many zones are in use.
pub(super) const LOOK: u64 = 64;

pub(super) struct Plan {
    name: &'static str,
    policy: &'static str,
    /// See [`KvOptions::bottom`].
    bottom: u32,
    load: Load,
    /// Bytes of a value.
    value: usize,
    extra: bool,
    /// After that puts arrive at fixed times, at [this part](PART) of the rate that it had in the slowest quarter.
    paced: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Random keys of as many as there are puts.
    Random,
    InOrder,
    /// The same, ingested.
    Ingested,
    /// Puts of such keys into a store that takes so many percent of all zones.
    Overwrite(u64, Keys),
    /// Half of the keys of such a store are deleted, in random order, and nothing is put.
    Deletes(u64),
}

impl Plan {
    /// A random load with `ring`.
    pub(super) const fn ring(bottom: u32) -> Plan {
        plan("", "ring", bottom, Load::Random, false)
    }

    /// Those whose puts arrive at fixed times.
    pub(super) fn paced() -> impl Iterator<Item = &'static Plan> {
        PLANS.iter().filter(|plan| plan.paced)
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}

const fn plan(name: &'static str, policy: &'static str, bottom: u32, load: Load, extra: bool) -> Plan {
    Plan { name, policy, bottom, load, value: VALUE, extra, paced: false }
}

const fn paced(name: &'static str, load: Load) -> Plan {
    Plan { paced: true, ..plan(name, "ring", 0, load, false) }
}

const fn overwrite(name: &'static str, percent: u64, keys: Keys) -> Plan {
    plan(name, "ring", 0, Load::Overwrite(percent, keys), false)
}

const fn values(name: &'static str, value: usize) -> Plan {
    Plan { value, ..plan(name, "ring", 0, Load::Random, false) }
}

const PLANS: &[Plan] = &[
    plan("random load of 80 GB: ring", "ring", 0, Load::Random, false),
    plan("random load of 80 GB: ring, bottom at least 70 %", "ring", 70, Load::Random, false),
    plan("random load of 80 GB: ring, bottom at least 80 %", "ring", 80, Load::Random, false),
    plan("random load of 80 GB: ring, bottom at least 90 %", "ring", 90, Load::Random, false),
    plan("random load of 80 GB: band", "band", 0, Load::Random, true),
    plan("random load of 80 GB: gear", "gear", 0, Load::Random, true),
    plan("random load of 80 GB: leveled", "leveled", 0, Load::Random, true),
    plan("load of 64 GB in order: ring", "ring", 0, Load::InOrder, false),
    plan("load of 64 GB in order, ingested: ring", "ring", 0, Load::Ingested, false),
    values("random load of 80 GB, values of 100 B: ring", 100),
    values("random load of 80 GB, values of 100 KB: ring", 100_000),
    overwrite("ring, 60 % full, overwritten", 60, Keys::Uniform),
    overwrite("ring, 70 % full, overwritten", 70, Keys::Uniform),
    overwrite("ring, 70 % full, zipf 0.99, overwritten", 70, Keys::Zipf),
    overwrite("ring, 70 % full, moving hot spot, overwritten", 70, Keys::Moving),
    overwrite("ring, 85 % full, overwritten", 85, Keys::Uniform),
    overwrite("ring, 85 % full, zipf 0.99, overwritten", 85, Keys::Zipf),
    overwrite("ring, 85 % full, moving hot spot, overwritten", 85, Keys::Moving),
    overwrite("ring, 92 % full, overwritten", 92, Keys::Uniform),
    plan("ring, 92 % full, half is deleted", "ring", 0, Load::Deletes(92), false),
    paced("random load of 80 GB, paced: ring", Load::Random),
    paced("ring, 70 % full, overwritten, paced", Load::Overwrite(70, Keys::Uniform)),
    paced("ring, 85 % full, overwritten, paced", Load::Overwrite(85, Keys::Uniform)),
];

/// What of the zones in use is live when the last put returned.
const THEN: &str = "live over zones, loaded";

/// What a store has in memory, for a row.
fn memory(kv: &KvOptions) -> String {
    let kib = |bytes: u64| bytes >> 10;
    format!(
        "at this scale memtable {} KiB, cache {} KiB, survivor {} KiB (for the log, and for the memtable)",
        kib(kv.memtable_bytes as u64),
        kib(kv.cache_bytes),
        kib(kv.volume.survivor_bytes as u64)
    )
}

/// So many keys are there after as many random puts, which leave out some.
pub(super) fn there(keys: u64) -> f64 {
    keys as f64 * (1.0 - (-1.0f64).exp())
}

pub(super) fn key(n: u64) -> [u8; KEY as usize] {
    let mut key = [b'0'; KEY as usize];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// A store, and what is measured of it.
pub(super) struct Store {
    pub(super) kv: Kv,
    /// Where puts go that are ingested.
    ingest: Option<Ingest>,
    pub(super) drive: Emulator,
    random: ChaCha8Rng,
    value: Vec<u8>,
    scale: f64,
    /// Its sizes in memory, as rows say them.
    memory: String,
    /// Since the last [`Store::start`]: puts and deletes, how long eight took in seconds at full size, most zones in use, most slices.
    puts: u64,
    waits: Vec<f64>,
    timed: f64,
    peak: u32,
    depth: usize,
}

/// What the drive has done.
#[derive(Clone, Default)]
pub(super) struct At {
    pub(super) seconds: f64,
    pub(super) by_cause: BTreeMap<&'static str, f64>,
    pub(super) counts: imbrex_emulator::Counts,
}

impl At {
    /// Seconds that each cause has had since another moment, where it had some.
    pub(super) fn spent_since(&self, other: &At) -> BTreeMap<&'static str, f64> {
        let spent = |(cause, seconds): (&&'static str, &f64)| {
            let spent = seconds - other.by_cause.get(cause).copied().unwrap_or(0.0);
            (spent > 0.0).then_some((*cause, spent))
        };
        self.by_cause.iter().filter_map(spent).collect()
    }
}

fn why(error: impl std::fmt::Display) -> Stop {
    Stop::Failed(error.to_string())
}

impl Store {
    pub(super) fn new(plan: &Plan, options: &Options) -> Result<Store, Stop> {
        let drive = Emulator::memory(&Self::config(options)?).map_err(why)?;
        Self::make(plan, options, drive)
    }

    /// A new store in an image, on a drive of so many zones.
    pub(super) fn new_in(image: &Path, zones: u32, kv: KvOptions, scale: u32) -> Result<Store, Stop> {
        let config = Self::drive(scale, zones, ZONE / u64::from(scale), Mechanics::Scaled)?;
        Self::with(Emulator::create(image, &config, false).map_err(why)?, None, kv, scale)
    }

    /// The store of a plan, filled as it wants.
    fn filled(plan: &Plan, options: &Options) -> Result<Store, Stop> {
        let mut store = Store::new(plan, options)?;
        if matches!(plan.load, Load::Overwrite(..)) && !options.short {
            (0..counts(plan, options).0).try_for_each(|n| store.put_number(n))?;
        }
        Ok(store)
    }

    /// A store whose puts are to be paced, and the puts/s that it takes for good: a store at first has free zones, and so it is faster than later. Where the plan is a random
    /// load, a new store.
    pub(super) fn sustained(plan: &Plan, options: &Options, stopped: &dyn Fn() -> bool) -> Result<(Store, f64), Stop> {
        let (mut store, (keys, puts)) = (Store::filled(plan, options)?, counts(plan, options));
        store.start();
        let (slowest, begun) = load(plan, &mut store, (keys, puts), stopped)?;
        let rate = slowest.min((puts / 4) as f64 / (store.busy() - begun).max(1e-9));
        if plan.load == Load::Random {
            store = Store::new(plan, options)?;
        }
        Ok((store, rate))
    }

    /// Bytes of the drive.
    pub(super) fn bytes(options: &Options) -> u64 {
        u64::from(ZONES) * ZONE / u64::from(options.scale)
    }

    pub(super) fn config(options: &Options) -> Result<Config, Stop> {
        Self::drive(options.scale, ZONES, ZONE / u64::from(options.scale), Mechanics::Scaled)
    }

    /// So many zones of so many bytes, which are scaled already. What the mechanics are changes nothing but times.
    pub(super) fn drive(scale: u32, zones: u32, zone: u64, mechanics: Mechanics) -> Result<Config, Stop> {
        let disk = Disk::named(DRIVE, Rule::All)?;
        let over = Overrides {
            capacity: Some(u64::from(zones) * zone),
            zone_size: Some(zone),
            conventional: Some(0),
            write_cache: Some(disk.write_cache),
            scale: Some(scale),
            mechanics: Mechanics::Scaled,
            ..Overrides::default()
        };
        let mut config = Config::new(&disk.profile, &over);
        config.model = config.model.map(|model| Model { mechanics, ..model });
        config.check().map_err(why)?;
        Ok(config)
    }

    fn make(plan: &Plan, options: &Options, drive: Emulator) -> Result<Store, Stop> {
        let store = Self::with(drive, None, Self::options(plan, options), options.scale)?;
        Ok(Store { value: vec![0; plan.value], ..store })
    }

    /// A new store on this drive, of this scale.
    pub(super) fn with(
        drive: Emulator,
        survivor: Option<Arc<dyn Survivor>>,
        kv: KvOptions,
        scale: u32,
    ) -> Result<Store, Stop> {
        drive.keep_own_time(Pace::Account).map_err(why)?;
        let handle = Drive { device: Arc::new(drive.clone()), survivor };
        Kv::format(&handle, Some([7; 16]), false).map_err(why)?;
        let memory = memory(&kv);
        let kv = Kv::open(handle, kv).map_err(why)?;
        Ok(Store {
            kv,
            memory,
            ingest: None,
            drive,
            random: ChaCha8Rng::seed_from_u64(1),
            value: vec![0; VALUE],
            scale: f64::from(scale),
            puts: 0,
            waits: Vec::new(),
            timed: 0.0,
            peak: 0,
            depth: 0,
        })
    }

    pub(super) fn options(plan: &Plan, options: &Options) -> KvOptions {
        let scale = u64::from(options.scale);
        let memtable = MEMTABLE / scale;
        KvOptions {
            memtable_bytes: memtable as usize,
            table_bytes: TABLE / scale,
            step_bytes: TABLE / scale,
            cache_bytes: CACHE / scale,
            policy: Some(plan.policy.to_owned()),
            bottom: plan.bottom,
            volume: VolumeOptions {
                exec: Exec::Inline,
                survivor_bytes: (3 * memtable).max(16 * MIB) as usize,
                ..VolumeOptions::default()
            },
            ..KvOptions::default()
        }
    }

    /// Closes a store in an image and opens it again, on a drive with other mechanics.
    pub(super) fn again(self, image: &Path, mechanics: Mechanics, kv: KvOptions) -> Result<Store, Stop> {
        let options = kv;
        let Store { kv, ingest, drive, .. } = self;
        drop((kv, ingest, drive));
        Emulator::change_mechanics(image, mechanics).map_err(why)?;
        let drive = Emulator::open(image, OpenOptions::default()).map_err(why)?;
        drive.keep_own_time(Pace::Account).map_err(why)?;
        let handle = Drive { device: Arc::new(drive.clone()), survivor: None };
        let kv = Kv::open(handle, options).map_err(why)?;
        Ok(Store { kv, ingest: None, drive, ..self })
    }

    pub(super) fn at(&self) -> At {
        let time = self.drive.time();
        let seconds = time.as_ref().map_or(0.0, |time| time.total.busy());
        let by_cause = time.into_iter().flat_map(|time| time.by_cause).map(|(cause, of)| (cause, of.busy())).collect();
        At { seconds, by_cause, counts: self.drive.stats().total }
    }

    pub(super) fn start(&mut self) -> At {
        let now = self.at();
        (self.puts, self.waits, self.timed, self.peak, self.depth) = (0, Vec::new(), now.seconds, 0, 0);
        now
    }

    /// Puts the key of this number.
    pub(super) fn put_number(&mut self, n: u64) -> Result<(), Stop> {
        self.put_key(&key(n))
    }

    /// Puts a random value of so many bytes.
    pub(super) fn put_value(&mut self, key: &[u8], bytes: usize, sync: bool) -> Result<(), Stop> {
        self.value.resize(bytes, 0);
        self.put_as(key, sync)
    }

    /// Deletes a key.
    pub(super) fn delete_key(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.kv.delete(key, false).map_err(why)?;
        self.changed();
        Ok(())
    }

    /// Puts a random value.
    fn put_key(&mut self, key: &[u8]) -> Result<(), Stop> {
        self.put_as(key, false)
    }

    fn put_as(&mut self, key: &[u8], sync: bool) -> Result<(), Stop> {
        self.random.fill(&mut self.value[..]);
        match &mut self.ingest {
            Some(ingest) => ingest.put(key, &self.value),
            None => self.kv.put(key, &self.value, sync),
        }
        .map_err(why)?;
        self.changed();
        Ok(())
    }

    /// Notes a put or a delete.
    fn changed(&mut self) {
        self.puts += 1;
        if self.puts.is_multiple_of(TOGETHER) {
            let now = self.at().seconds;
            self.waits.push((now - std::mem::replace(&mut self.timed, now)) * self.scale);
        }
        if self.puts.is_multiple_of(LOOK) {
            self.look();
        }
    }

    /// Looks how many zones are in use, and slices there are.
    fn look(&mut self) {
        let figures = self.kv.figures();
        self.peak = self.peak.max(figures.zones.0);
        self.depth = self.depth.max(figures.depth);
    }

    /// Fills in what memory the store has, and what indexes and filters take beside that.
    pub(super) fn tell(&self, row: &mut Row) {
        row.settings.insert("memory".into(), self.memory.clone());
        row.figures.insert("MiB of filters and top indexes at this scale".into(), self.indexes());
    }

    /// MiB of filters and top indexes of the tables that were read.
    pub(super) fn indexes(&self) -> f64 {
        self.kv.figures().indexes as f64 / MIB as f64
    }

    /// Puts one of so many keys.
    pub(super) fn put_random(&mut self, keys: u64) -> Result<(), Stop> {
        let n = self.random.random_range(0..keys);
        self.put_number(n)
    }

    /// Most zones in use since it [started](Store::start).
    pub(super) fn peak(&self) -> u32 {
        self.peak
    }

    /// Gets random keys of so many, of which some may not be there.
    pub(super) fn gets(&mut self, count: u64, keys: u64) -> Result<(), Stop> {
        for _ in 0..count {
            let n = self.random.random_range(0..keys);
            self.kv.get(&key(n)).map_err(why)?;
        }
        Ok(())
    }

    /// Reads so many pairs from random keys on.
    pub(super) fn scans(&mut self, count: u64, keys: u64, long: usize) -> Result<(), Stop> {
        for _ in 0..count {
            let n = self.random.random_range(0..keys);
            let mut iter = self.kv.iter().map_err(why)?;
            iter.seek(&key(n)).map_err(why)?;
            for _ in 0..long {
                iter.advance().map_err(why)?;
            }
        }
        Ok(())
    }

    /// Reads all pairs in order. Returns how many there are, and the seconds that the drive was busy.
    pub(super) fn scan_all(&mut self) -> Result<(u64, f64), Stop> {
        let before = self.busy();
        let mut iter = self.kv.iter().map_err(why)?;
        iter.seek_to_first().map_err(why)?;
        let mut pairs = 0;
        while iter.get().is_some() {
            pairs += 1;
            iter.advance().map_err(why)?;
        }
        Ok((pairs, self.busy() - before))
    }

    /// Seconds that the drive was busy.
    fn busy(&self) -> f64 {
        self.drive.time().map_or(0.0, |time| time.total.busy())
    }

    /// Puts random keys, so many a second of the drive, each at its time, whether those before are done or not. Returns how long each took in seconds at full size,
    /// ascending, and the part of the time that the drive was busy.
    ///
    /// The store's maintenance thread is played between puts: as long as it has something to do, it does so at once, and the clock goes on by what the drive takes.
    /// A put that comes meanwhile is in memory at once if the store has admitted it before, as it is beside the thread. Otherwise it waits until the drive is done,
    /// and for all that the drive does for it.
    fn pace(
        &mut self,
        (puts, keys): (u64, u64),
        rate: f64,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(Vec<f64>, f64), Stop> {
        let (begun, mut waits) = (self.busy(), Vec::with_capacity(puts as usize));
        // When the drive is done, and when the last put that waited went on: nobody comes before it.
        let (mut now, mut admitted) = (0.0f64, 0.0f64);
        for n in 0..puts {
            if n % 1024 == 0 && stopped() {
                return Err(Stop::Interrupted);
            }
            let arrives = n as f64 / rate;
            while now <= arrives {
                let before = self.busy();
                if !self.kv.tend().map_err(why)? {
                    now = arrives;
                    break;
                }
                now += self.busy() - before;
            }
            let before = self.busy();
            let key = self.random.random_range(0..keys);
            self.put_number(key)?;
            let took = self.busy() - before;
            if took > 0.0 {
                now += took;
                admitted = now;
            }
            waits.push((admitted - arrives).max(0.0) * self.scale);
            if n == puts / 4 && n > 0 {
                // Until here it got used to the rate.
                waits.clear();
            }
        }
        waits.sort_by(f64::total_cmp);
        let busy = self.busy() - begun;
        Ok((waits, busy / now.max(puts as f64 / rate)))
    }

    /// Operations a second of the drive, reads of the drive for one, and KiB that it reads for one.
    fn rate(&mut self, count: u64, one: impl Fn(&mut Store) -> Result<(), Stop>) -> Result<[f64; 3], Stop> {
        let before = self.at();
        (0..count).try_for_each(|_| one(self))?;
        let after = self.at();
        let counts = after.counts.since(&before.counts);
        let each = |of: u64| of as f64 / count.max(1) as f64;
        let rate = count as f64 / (after.seconds - before.seconds).max(1e-9);
        Ok([rate, each(counts.reads), each(counts.bytes_read) / 1024.0])
    }

    /// Reads random keys, and scans from random keys on.
    fn read(&mut self, row: &mut Row, when: &str, keys: u64, short: bool) -> Result<(), Stop> {
        let part = |count: u64| (count as f64 / self.scale) as u64 / if short { 20 } else { 1 } + 1;
        let (gets, scans) = (part(GETS), part(SCANS));
        // So that tables are open.
        self.gets(gets, keys)?;
        let get = self.rate(gets, |store| store.gets(1, keys))?;
        let scan = self.rate(scans, |store| store.scans(1, keys, LONG))?;
        for (what, [rate, reads, kib]) in [("get", get), ("scan", scan)] {
            row.figures.extend([
                (format!("{what}s/s, {when}"), rate / self.scale),
                (format!("reads of the drive a {what}, {when}"), reads),
                (format!("KiB read a {what}, {when}"), kib),
            ]);
        }
        Ok(())
    }
}

/// Seconds that the drive takes for as many bytes from its first zone on, one zone behind the other, in its longest commands.
fn in_order(options: &Options, bytes: u64) -> Result<f64, Stop> {
    let drive = Emulator::memory(&Store::config(options)?).map_err(why)?;
    drive.keep_own_time(Pace::Account).map_err(why)?;
    let geometry = drive.geometry().clone();
    let buf = AlignedBuf::zeroed(geometry.max_io as usize);
    let mut left = bytes.next_multiple_of(u64::from(geometry.block));
    for zone in report_all(&drive).map_err(why)? {
        let (start, mut at) = (geometry.start(zone.id), 0);
        while at < zone.capacity && left > 0 {
            let len = left.min(zone.capacity - at).min(u64::from(geometry.max_io));
            drive.write_at(&buf[..len as usize], start + at, Cause::UserWrite.into()).map_err(why)?;
            (at, left) = (at + len, left - len);
        }
    }
    drive.flush(Cause::UserWrite.into()).map_err(why)?;
    Ok(drive.time().map_or(0.0, |time| time.total.busy()))
}

/// Puts what a row wants. Returns puts a second of the slowest quarter but the last, and when the last one began.
fn load(
    plan: &Plan,
    store: &mut Store,
    (keys, puts): (u64, u64),
    stopped: &dyn Fn() -> bool,
) -> Result<(f64, f64), Stop> {
    if plan.load == Load::Ingested {
        store.ingest = Some(store.kv.ingest().map_err(why)?);
    }
    let skewed = match plan.load {
        Load::Overwrite(_, of) if of != Keys::Uniform => Some(of),
        _ => None,
    };
    let mut skewed = skewed.map(|of| Source::new(of, keys, store.scale as u64));
    let (mut slowest, mut begun) = (f64::INFINITY, store.busy());
    for n in 0..puts {
        if n % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        if n > 0 && n % (puts / 4).max(1) == 0 {
            let now = store.busy();
            slowest = slowest.min((puts / 4) as f64 / (now - std::mem::replace(&mut begun, now)));
        }
        let n = match (&mut skewed, plan.load) {
            (Some(skewed), _) => skewed.next(n),
            (None, Load::InOrder | Load::Ingested) => n,
            _ => store.random.random_range(0..keys),
        };
        store.put_number(n)?;
    }
    if let Some(mut ingest) = store.ingest.take() {
        ingest.finish().map_err(why)?;
    }
    Ok((slowest, begun))
}

/// Percentiles of how long a put takes that arrives at its time, and the figures with them.
pub(super) const PERCENTILES: [(f64, &str); 4] = [
    (50.0, "paced: a put, s, p50"),
    (99.0, "paced: a put, s, p99"),
    (99.9, "paced: a put, s, p99.9"),
    (100.0, "paced: a put, s, longest"),
];

/// Figures of paced puts: so many came a second, the drive was busy for such a part of the time, and they took so many seconds at full size, ascending.
pub(super) fn row_of_paced(figures: &mut BTreeMap<String, f64>, (rate, busy): (f64, f64), waits: &[f64]) {
    let at = |percent: f64| waits.get(((waits.len() as f64 - 1.0) * percent / 100.0) as usize).copied().unwrap_or(0.0);
    figures.insert("paced: puts/s that arrive".into(), rate);
    figures.insert("paced: the drive is busy, %".into(), busy * 100.0);
    figures.extend(PERCENTILES.map(|(percent, name)| (name.to_owned(), at(percent))));
}

/// Keys and puts of a row.
pub(super) fn counts(plan: &Plan, options: &Options) -> (u64, u64) {
    let (scale, record) = (u64::from(options.scale), KEY + plan.value as u64);
    // As many bytes with any value.
    let puts = PUTS * (KEY + VALUE as u64) / record / scale / if options.short { 20 } else { 1 };
    let capacity = u64::from(ZONES) * (ZONE / scale) / record;
    match plan.load {
        Load::Random => (puts, puts),
        Load::InOrder | Load::Ingested => (puts * 4 / 5, puts * 4 / 5),
        Load::Overwrite(percent, _) => (capacity * percent / 100, puts / 4),
        Load::Deletes(percent) => (capacity * percent / 100 / if options.short { 20 } else { 1 }, 0),
    }
}

/// Deletes half of the keys of a store, in random order, and lets it rest.
fn delete(plan: &Plan, options: &Options, stopped: &dyn Fn() -> bool) -> Result<Row, Stop> {
    let mut store = Store::new(plan, options)?;
    let (keys, _) = counts(plan, options);
    (0..keys).try_for_each(|n| store.put_number(n))?;
    while store.kv.step().map_err(why)? {}
    let mut half: Vec<u64> = (0..keys).collect();
    half.shuffle(&mut store.random);
    half.truncate(keys as usize / 2);
    let (begun, full) = (store.start(), store.kv.figures().zones.0);
    for (n, of) in half.iter().enumerate() {
        if n % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        store.delete_key(&key(*of))?;
    }
    let (deleted, after) = (store.at(), store.kv.figures().zones.0);
    while store.kv.step().map_err(why)? {
        store.look();
    }
    let (settled, rest) = (store.at(), store.kv.figures().zones.0);
    let counts = settled.counts.since(&begun.counts);
    let mut row = Row {
        rule: Rule::All.name().into(),
        device_seconds: Some(settled.seconds - begun.seconds),
        operations: Some(half.len() as u64),
        // A delete has no value.
        bytes_user: Some(half.len() as u64 * KEY),
        bytes_drive: Some(counts.bytes_written),
        bytes_read: Some(counts.bytes_read),
        flushes: Some(counts.flushes),
        zone_resets: Some(counts.zone_resets),
        ..Row::new(plan.name, DRIVE)
    }
    .amplified();
    let zone = ZONE as f64 / store.scale;
    let bytes = |pairs: u64| (pairs * (KEY + VALUE as u64)) as f64;
    // What pairs take, without what tables have beside them.
    let taken = bytes(half.len() as u64) / zone;
    let deleting = deleted.seconds - begun.seconds;
    let figures = [
        ("deletes/s", half.len() as f64 / deleting.max(1e-9)),
        ("deleting, s at full size", deleting * store.scale),
        ("settling, s at full size", (settled.seconds - deleted.seconds) * store.scale),
        ("bytes written over those of the deleted pairs", counts.bytes_written as f64 / bytes(half.len() as u64)),
        ("zones, peak", f64::from(store.peak())),
        ("zones in use before", f64::from(full)),
        ("zones in use after the last delete", f64::from(after)),
        ("zones in use, settled", f64::from(rest)),
        ("zones that the deleted pairs took", taken),
        ("zones freed of those, after the last delete, %", (f64::from(full) - f64::from(after)) / taken * 100.0),
        ("zones freed of those, settled, %", (f64::from(full) - f64::from(rest)) / taken * 100.0),
    ];
    row.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    row.space_efficiency = Some(bytes(keys - half.len() as u64) / (f64::from(rest) * zone));
    let (left, _) = store.scan_all()?;
    if left != keys - half.len() as u64 {
        row.invalid.push(format!("{left} keys are left of {keys}, of which {} were deleted", half.len()));
    }
    store.tell(&mut row);
    row.invalid.extend(store.kv.check().map_err(why)?);
    Ok(row)
}

/// Does what a row wants.
fn play(plan: &Plan, options: &Options, stopped: &dyn Fn() -> bool) -> Result<Row, Stop> {
    if matches!(plan.load, Load::Deletes(_)) {
        return delete(plan, options, stopped);
    }
    let record = KEY + plan.value as u64;
    let (keys, puts) = counts(plan, options);
    let (mut store, rate) =
        if plan.paced { Store::sustained(plan, options, stopped)? } else { (Store::filled(plan, options)?, 0.0) };
    let before = store.start();
    let mut arrivals = BTreeMap::new();
    if plan.paced {
        let (waits, busy) = store.pace((puts, keys), PART * rate, stopped)?;
        row_of_paced(&mut arrivals, (PART * rate, busy), &waits);
    } else {
        load(plan, &mut store, (keys, puts), stopped)?;
    }
    let after = store.at();
    let (seconds, figures) = (after.seconds - before.seconds, store.kv.figures());
    let counts = after.counts.since(&before.counts);
    let mut row = Row {
        rule: Rule::All.name().into(),
        device_seconds: Some(seconds),
        operations: Some(puts),
        bytes_user: Some(puts * record),
        bytes_drive: Some(counts.bytes_written),
        bytes_read: Some(counts.bytes_read),
        flushes: Some(counts.flushes),
        zone_resets: Some(counts.zone_resets),
        ..Row::new(plan.name, DRIVE)
    }
    .amplified();
    for (cause, spent) in after.spent_since(&before) {
        row.figures.insert(format!("s at full size, {cause}"), spent * store.scale);
    }
    if plan.load == Load::Ingested {
        let alone = in_order(options, puts * record)?;
        row.figures.insert("part of the drive's rate in order".to_owned(), alone / seconds);
    }
    let zone = ZONE as f64 / store.scale;
    let there = if plan.load == Load::Random { there(keys) } else { keys as f64 };
    let live = there * record as f64;
    store.waits.sort_by(f64::total_cmp);
    let waits = |part: f64| store.waits.get(((store.waits.len() as f64 - 1.0) * part) as usize).copied().unwrap_or(0.0);
    let full = [
        ("s at full size", seconds * store.scale),
        ("puts/s", puts as f64 / seconds),
        ("zones, peak", f64::from(store.peak)),
        ("live over peak", live / (f64::from(store.peak) * zone)),
        (THEN, live / (f64::from(figures.zones.0) * zone)),
        ("slices a key, most", store.depth as f64 - 1.0),
        ("8 puts, s, p99", waits(0.99)),
        ("8 puts, s, p99.9", waits(0.999)),
        ("8 puts, s, longest", waits(1.0)),
        ("partitions", figures.partitions as f64),
    ];
    row.figures.extend(full.map(|(name, value)| (name.to_owned(), value)));
    row.figures.append(&mut arrivals);
    store.read(&mut row, "unsettled", keys, options.short)?;
    let before = store.at().seconds;
    while store.kv.step().map_err(why)? {}
    store.kv.compact().map_err(why)?;
    let settling = (store.at().seconds - before) * store.scale;
    let rest = f64::from(store.kv.figures().zones.0) * zone;
    row.figures.extend([
        ("settling, s at full size".to_owned(), settling),
        ("live over zones, at rest".to_owned(), live / rest),
    ]);
    store.read(&mut row, "settled", keys, options.short)?;
    store.tell(&mut row);
    row.space_efficiency = Some(live / rest);
    row.invalid.extend(store.kv.check().map_err(why)?);
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("one thread on the drive's own clock: it is always the same");
    run.setting("record", "16 + 4,096 bytes unless a row says otherwise, not compressible");
    run.setting("memory at full size", "memtable 256 MiB, cache 256 MiB; tables and steps of 64 MiB");
    run.setting("log", "written; all puts unsynced");
    let names: Vec<String> = PLANS.iter().map(|plan| plan.name.to_owned()).collect();
    let each = Store::bytes(run.options) + (1 << 28);
    let options = run.options.clone();
    run.at_once(&names, each, |at, stopped| Ok((play(&PLANS[at], &options, stopped)?, ())))?;
    dial(run);
    Ok(())
}

/// The rate of a random load against how full the zones in use are, at each setting of the dial.
fn dial(run: &mut Run) {
    let of = |name: &str| -> Vec<(f64, f64)> {
        let loads = PLANS.iter().filter(|plan| plan.policy == "ring" && plan.load == Load::Random);
        let usual = loads.filter(|plan| plan.value == VALUE && !plan.paced);
        let one = |plan: &Plan| {
            let figures = &run.measured(plan.name)?.figures;
            Some((*figures.get(name)?, *figures.get("puts/s")?))
        };
        let mut points: Vec<_> = usual.filter_map(one).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let lines = [("at the peak", "live over peak"), ("when the last put returned", THEN)];
    let lines = lines.map(|(name, figure)| Series { name: name.into(), points: of(figure) });
    run.outcome.charts.push(Chart {
        file: "dial".into(),
        title: "Random load of 80 GB with ring: the bottom at least 0, 70, 80 and 90 % of the zones in use".into(),
        x: Axis::even("live bytes over zones in use"),
        y: Axis::even("puts/s"),
        shape: Shape::Lines(lines.into()),
    });
}
