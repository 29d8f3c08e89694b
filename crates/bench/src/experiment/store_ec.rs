//! `store-ec`: what the drive of one OSD does for random overwrites of an image on a pool with copies, and on erasure-coded pools, whose OSDs keep the old bytes in a rollback object until all have the new
//! ones (BlueStore §5.2, Figure 12). `clone_range` shares the old bytes, as our store does; or they are read and written anew, as a store without copy-on-write has to. On the drive's own clock, from one
//! thread.
//!
//! Transactions are of the shape that `scripts/test-ceph erasure` records of an OSD of Ceph 16.2, whose `clone_range` covers the overwritten block of the shard, and no more.

use super::chart::{Axis, Chart, Shape};
use super::images::{bands, twin};
use super::kv_store::{DRIVE, MIB, Store as Scaled, ZONE};
use super::result::{Figure, Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_bluestore::{CollectionId, Hint, ObjectId, Transaction};
use imbrex_device::Drive;
use imbrex_emulator::Emulator;
use imbrex_emulator::time::{Mechanics, Pace};
use imbrex_store::{Options as StoreOptions, Store};
use imbrex_zones::{Exec, VolumeOptions};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "store-ec",
    about: "Random overwrites of an image on copies and on erasure-coded objects: what one OSD's drive does where the old bytes are shared, and where they are copied",
    paper: "BlueStore (ACM TOS 2020), section 7.3, Figure 12",
    speed: 1.0,
    rows: |_| plans().iter().map(Plan::name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 4 << 30 },
    run,
};

/// 4 TB.
const ZONES: u32 = (4_000_000_000_000 / ZONE) as u32;
/// Bytes of the image that the drive has.
const DATA: u64 = 16 << 30;
/// Overwrites of a row.
const COUNT: u64 = 400 * AT_ONCE;
/// Overwrites that a client has outstanding: they are made durable together.
const AT_ONCE: u64 = 256;
const BLOCK: u64 = 4096;
/// Bytes of an object of the image, of which an erasure-coded pool's OSDs have a shard each.
const OBJECT: u64 = 4 * MIB;
/// Placement groups of the drive: a collection and a log each.
const GROUPS: u32 = 32;
/// Records that the logs of all groups have.
const LOGGED: u64 = 3072;
/// OSDs of the paper's cluster.
const OSDS: f64 = 16.0;
const MEMTABLE: u64 = 64 * MIB;
const CACHE: u64 = 512 * MIB;
/// Snapshot and generation of an object that is no older one, as Ceph numbers them.
const HEAD: (u64, u64) = (u64::MAX - 1, u64::MAX);

#[derive(Clone, Copy, PartialEq)]
struct Pool {
    name: &'static str,
    /// Shards with data, and all: 1 and 3 are copies.
    data: u64,
    shards: u64,
    /// What the paper has for BlueStore over FileStore.
    paper: Option<f64>,
}

const COPIES: Pool = Pool { name: "3 copies", data: 1, shards: 3, paper: None };
const POOLS: [Pool; 3] = [
    COPIES,
    Pool { name: "EC 4+2", data: 4, shards: 6, paper: Some(6.0) },
    Pool { name: "EC 5+1", data: 5, shards: 6, paper: Some(8.0) },
];

/// What becomes of the old bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Old {
    /// They are overwritten.
    Lost,
    Shared,
    /// An OSD with data has read its part of the stripe before, to make the other shards of it.
    SharedAndRead,
    /// Whoever copies has read them, so this is the same with the stripe and without it.
    Copied,
    /// Each copy is durable before the next overwrite begins.
    CopiedFirst,
}

#[derive(Clone, Copy, PartialEq)]
struct Plan {
    pool: Pool,
    old: Old,
    in_place: bool,
}

fn plans() -> Vec<Plan> {
    let mut all = Vec::new();
    for in_place in [false, true] {
        for pool in POOLS {
            let all_old: &[_] = match pool == COPIES {
                true => &[Old::Lost],
                false => &[Old::Shared, Old::SharedAndRead, Old::Copied, Old::CopiedFirst],
            };
            all.extend(all_old.iter().map(|&old| Plan { pool, old, in_place }));
        }
    }
    all
}

impl Plan {
    fn name(&self) -> String {
        let where_ = if self.in_place { "in place" } else { "zones" };
        let how = match self.old {
            Old::Lost => "",
            Old::Shared => ", shared",
            Old::SharedAndRead => ", shared, stripes read",
            Old::Copied => ", copied",
            Old::CopiedFirst => ", each copy durable first",
        };
        format!("{}{how}, {where_}", self.pool.name)
    }

    fn is_coded(&self) -> bool {
        self.pool != COPIES
    }

    /// Bytes of a shard: whole stripes have an object.
    fn shard(&self) -> u64 {
        OBJECT.div_ceil(self.pool.data * BLOCK) * BLOCK
    }
}

struct Side {
    plan: Plan,
    drive: Emulator,
    store: Store,
    random: ChaCha8Rng,
    objects: u64,
    /// Transactions of each group, which number the records of its log and the rollback objects.
    versions: [u64; GROUPS as usize],
    /// Rollback objects that are there.
    kept: Vec<(CollectionId, ObjectId)>,
    written: u64,
}

fn object(number: u64) -> ObjectId {
    let (snap, generation) = HEAD;
    let name = format!("rbd_data.3.10386407c6bc.{number:016x}");
    ObjectId { snap, generation, ..ObjectId::new(1, b"", name.as_bytes()) }
}

fn group(id: &ObjectId) -> CollectionId {
    CollectionId { pool: 1, seed: id.hash % GROUPS }
}

fn log(group: CollectionId) -> ObjectId {
    let (snap, generation) = HEAD;
    ObjectId { snap, generation, hash: group.seed, ..ObjectId::new(1, b"", b"") }
}

fn record(version: u64) -> Vec<u8> {
    format!("0000000037.{version:020}").into_bytes()
}

fn options() -> StoreOptions {
    let metadata =
        imbrex_kv::Options { memtable_bytes: MEMTABLE as usize, cache_bytes: CACHE, ..imbrex_kv::Options::default() };
    let volume =
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 3 * MEMTABLE as usize, ..VolumeOptions::default() };
    StoreOptions { metadata, volume, ..StoreOptions::default() }
}

impl Side {
    /// A store with the drive's part of an image that was written in order.
    fn new(plan: Plan, data: u64, run: &Run) -> Result<Side, Stop> {
        let mut config = Scaled::drive(1, ZONES, ZONE, Mechanics::Real)?;
        if plan.in_place {
            config = twin(&config, 1)?;
        }
        let drive = Emulator::memory_packed(&config).map_err(why)?;
        drive.keep_own_time(Pace::Account).map_err(why)?;
        let mut handle = Drive { device: Arc::new(drive.clone()), survivor: None };
        if plan.in_place {
            handle.device = Arc::new(bands(&drive, ZONE)?);
        }
        Store::format(&handle, Some([7; 16]), false).map_err(why)?;
        let store = Store::open(handle, options()).map_err(why)?;
        let mut all = Transaction::new();
        for seed in 0..GROUPS {
            let group = CollectionId { pool: 1, seed };
            all.create_collection(group, GROUPS.trailing_zeros() as u8).touch(group, &log(group));
        }
        store.commit(all).map_err(why)?;
        let mut side = Side {
            plan,
            drive,
            store,
            random: ChaCha8Rng::seed_from_u64(7),
            objects: data / plan.shard(),
            versions: [0; GROUPS as usize],
            kept: Vec::new(),
            written: 0,
        };
        let bytes = vec![7; plan.shard() as usize];
        for number in 0..side.objects {
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            let (id, mut t) = (object(number), Transaction::new());
            side.about(&mut t, &id);
            t.write(group(&id), &id, 0, &bytes);
            side.logged(&mut t, group(&id));
            side.store.queue(t).map_err(why)?;
            if number % 16 == 0 {
                side.store.sync().map_err(why)?;
            }
        }
        side.settled()?;
        Ok(side)
    }

    /// What an OSD says of an object with each write.
    fn about(&self, t: &mut Transaction, id: &ObjectId) {
        let size = self.plan.shard();
        t.set_attributes(group(id), id, &[(b"_", &[7; 295]), (b"snapset", &[7; 35])]);
        t.hint(group(id), id, Hint { object: size, write: size, ..Hint::default() });
        if self.plan.is_coded() {
            t.set_attributes(group(id), id, &[(b"hinfo_key", &[7; 18])]);
        }
    }

    /// A record in the log of the group, which goes when others are behind it. Returns its number.
    fn logged(&mut self, t: &mut Transaction, group: CollectionId) -> u64 {
        let version = self.versions[group.seed as usize];
        self.versions[group.seed as usize] += 1;
        let (log, key) = (log(group), record(version));
        // That of an erasure-coded object has the attributes that it had before.
        let length = if self.plan.is_coded() { 674 } else { 236 };
        t.omap_set(group, &log, &[(&key, &vec![7; length]), (b"_fastinfo", &[7; 186])]);
        if self.plan.is_coded() {
            t.omap_set(group, &log, &[(b"can_rollback_to", &[7; 12]), (b"rollback_info_trimmed_to", &[7; 12])]);
        }
        if let Some(old) = version.checked_sub(LOGGED / u64::from(GROUPS)) {
            t.omap_remove(group, &log, &[&record(old)]);
        }
        version
    }

    /// Different blocks of the image, as object and offset.
    fn choose(&mut self, count: u64) -> Vec<(u64, u64)> {
        let (mut chosen, mut seen) = (Vec::new(), BTreeSet::new());
        while (chosen.len() as u64) < count {
            let block = self.random.random_range(0..self.plan.shard() / BLOCK);
            let at = (self.random.random_range(0..self.objects), block * BLOCK);
            chosen.extend(seen.insert(at).then_some(at));
        }
        chosen
    }

    fn copies(&self) -> bool {
        matches!(self.plan.old, Old::Copied | Old::CopiedFirst)
    }

    /// Old bytes that an OSD reads before it overwrites: to make the other shards of a stripe, or a copy. In the order of the image, for a disk that knows of many reads takes them in that of their places.
    fn read(&mut self, chosen: &[(u64, u64)]) -> Result<BTreeMap<(u64, u64), Vec<u8>>, Stop> {
        let mut wanted = BTreeMap::new();
        for at in chosen {
            let has_data = self.random.random_range(0..self.plan.pool.shards) < self.plan.pool.data;
            if self.copies() || self.plan.old == Old::SharedAndRead && has_data {
                wanted.insert(*at, Vec::new());
            }
        }
        for ((number, offset), bytes) in &mut wanted {
            let id = object(*number);
            *bytes = self.store.read(group(&id), &id, *offset, BLOCK).map_err(why)?;
        }
        Ok(wanted)
    }

    /// An OSD's transaction for the overwrite of a block. `old`: its bytes, where they are copied.
    fn overwrite(&mut self, (number, at): (u64, u64), old: &[u8]) -> Result<Transaction, Stop> {
        let id = object(number);
        let (c, mut t) = (group(&id), Transaction::new());
        self.about(&mut t, &id);
        let version = self.logged(&mut t, c);
        if self.plan.old != Old::Lost {
            let rollback = ObjectId { generation: version, ..id.clone() };
            let mut first = Transaction::new();
            let keeps = if self.plan.old == Old::CopiedFirst { &mut first } else { &mut t };
            keeps.touch(c, &rollback);
            match self.copies() {
                true => keeps.write(c, &rollback, at, old),
                false => keeps.clone_range(c, &id, &rollback, (at, BLOCK, at)),
            };
            if self.plan.old == Old::CopiedFirst {
                self.store.commit(first).map_err(why)?;
            }
            self.kept.push((c, rollback));
        }
        let mut new = vec![self.written as u8; BLOCK as usize];
        self.written += 1;
        new[..8].copy_from_slice(&self.written.to_le_bytes());
        t.write(c, &id, at, &new);
        Ok(t)
    }

    /// Overwrites that are outstanding at once. When all are durable the rollback objects go, with a transaction in each group, which is durable with what follows.
    fn at_once(&mut self, count: u64) -> Result<(), Stop> {
        let chosen = self.choose(count);
        let (old, mut last) = (self.read(&chosen)?, None);
        for at in chosen {
            let t = self.overwrite(at, old.get(&at).map_or(&[], |bytes| bytes))?;
            last = Some(self.store.queue(t).map_err(why)?);
        }
        if let Some(last) = last {
            self.store.wait(last).map_err(why)?;
        }
        self.kept.sort();
        let kept = std::mem::take(&mut self.kept);
        for of_group in kept.chunk_by(|a, b| a.0 == b.0) {
            let (c, mut t) = (of_group[0].0, Transaction::new());
            of_group.iter().for_each(|(_, rollback)| _ = t.remove(c, rollback));
            let pairs: [(&[u8], &[u8]); 3] =
                [(b"_info", &[7; 980]), (b"can_rollback_to", &[7; 12]), (b"rollback_info_trimmed_to", &[7; 12])];
            t.omap_set(c, &log(c), &pairs).omap_remove(c, &log(c), &[b"_fastinfo"]);
            self.store.queue(t).map_err(why)?;
        }
        Ok(())
    }

    /// What waits in the metadata has its place, and all is durable.
    fn settled(&self) -> Result<(), Stop> {
        self.store.sync().map_err(why)?;
        while self.store.pack().map_err(why)? {}
        self.store.sync().map_err(why)
    }

    fn elapsed(&self) -> f64 {
        self.drive.time().map_or(0.0, |time| time.elapsed)
    }

    fn row(&mut self, count: u64, run: &Run) -> Result<Row, Stop> {
        self.drive.reset_stats();
        let before = self.elapsed();
        for _ in 0..count / AT_ONCE {
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            self.at_once(AT_ONCE)?;
        }
        self.settled()?;
        let (counts, time) = (self.drive.stats(), self.drive.time());
        let seconds = self.elapsed() - before;
        if self.store.usage().objects != self.objects + u64::from(GROUPS) {
            return Err("other objects are there than those of the image; look into that first".into());
        }
        let each = |total: f64| total / count as f64;
        let mut row = Row {
            rule: Rule::Fewer.name().into(),
            device_seconds: time.as_ref().map(|time| time.total.busy()),
            wall_seconds: Some(seconds),
            operations: Some(count),
            bytes_user: Some(count * BLOCK),
            bytes_drive: Some(counts.total.bytes_written),
            bytes_read: Some(counts.total.bytes_read),
            flushes: Some(counts.total.flushes),
            ..Row::new("", DRIVE)
        };
        let rate = count as f64 / seconds.max(1e-9);
        let figures = &mut row.figures;
        figures.insert(RATE.into(), rate);
        figures.insert(CLIENT.into(), rate * OSDS / self.plan.pool.shards as f64);
        figures.insert(WRITTEN.into(), each(counts.total.bytes_written as f64));
        figures.insert(READ.into(), each(counts.total.bytes_read as f64));
        for (cause, seconds) in time.iter().flat_map(|time| &time.by_cause) {
            figures.insert(format!("ms of {cause}, each"), each(seconds.busy() * 1e3));
        }
        for (cause, counts) in &counts.by_cause {
            figures.insert(format!("bytes of {cause}, each"), each((counts.bytes_written + counts.bytes_read) as f64));
        }
        Ok(row.amplified())
    }
}

const RATE: &str = "transactions/s";
const CLIENT: &str = "writes/s of a client, with 16 such drives";
const WRITTEN: &str = "bytes written, each";
const READ: &str = "bytes read, each";

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("drive", format!("{ZONES} zones of {} MiB; the disk of its size and mechanics in place", ZONE / MIB));
    run.setting("image", format!("{} GiB of it on the drive, in objects of 4 MiB, or shards of these, written in order; {COUNT} overwrites of 4 KiB", DATA >> 30));
    run.setting("at once", format!("{AT_ONCE} overwrites are made durable together; then the rollback objects of each of {GROUPS} groups go in one transaction, durable with what follows"));
    run.setting("memory", format!("memtable {} MiB, cache {} MiB", MEMTABLE / MIB, CACHE / MIB));
    let (data, count) = if run.options.short { (64 * MIB, 2 * AT_ONCE) } else { (DATA, COUNT) };
    let plans = plans();
    for plan in &plans {
        run.row(&plan.name(), |run| Side::new(*plan, data, run)?.row(count, run))?;
    }
    let rate = |row: &Row| row.figures.get(RATE).copied();
    let mut ratios = Vec::new();
    for plan in &plans {
        let (pool, old, in_place) = (plan.pool, plan.old, plan.in_place);
        // What shares is over what copies, and under the pool with copies.
        let pairs: &[(Plan, Plan)] = match old {
            Old::Lost => continue,
            Old::Shared | Old::SharedAndRead => &[(*plan, Plan { pool: COPIES, old: Old::Lost, in_place })],
            _ => &[Old::Shared, Old::SharedAndRead].map(|over| (Plan { pool, old: over, in_place }, *plan)),
        };
        for (over, under) in pairs {
            let (over, under) = (over.name(), under.name());
            let paper = pool.paper.filter(|_| !matches!(old, Old::Shared | Old::SharedAndRead));
            let paper = paper.map(|times| Figure::new(times, "of BlueStore over FileStore", "BlueStore, section 7.3"));
            let ratio = Ratio::of(format!("{over}, over {under}"), &run.pairs(&over, &under, rate));
            ratios.extend(ratio.map(|ratio| Ratio { paper, ..ratio }));
        }
    }
    run.outcome.ratios = ratios;
    let bars = plans.iter().filter_map(|plan| Some((plan.name(), rate(run.measured(&plan.name())?)?, None))).collect();
    run.outcome.charts.push(Chart {
        file: "overwrites".into(),
        title: "Overwrites of 4 KiB, 256 at once, on the drive of one OSD".into(),
        x: Axis::default(),
        y: Axis::even(RATE),
        shape: Shape::Bars(bars),
    });
    Ok(())
}
