//! `kv-stock`: the key-value store beside stock LevelDB and RocksDB, in one run, on drives of equal size and mechanics: a random load of 80 GB until the last
//! put returned, gets and scans of the store as it is then, until all compactions are done, then gets and scans again. And random puts into stores that take
//! most of the drive.

use super::child::Running;
use super::hosts::{Disk, kernel_setup, preload, workplace};
use super::kv_store::{self, CACHE, DRIVE, KEY, LONG, MEMTABLE, MIB, PUTS, Store, ZONE, ZONES, there};
use super::result::{Ratio, Row};
use super::rocks::{Pace, version};
use super::{Experiment, Needs, Options, Rule, Run, Stop, checks};
use crate::baseline::{Baseline, Directory, FileSystem};
use imbrex_device::ZoneState;
use imbrex_emulator::time::{Mechanics, Seconds, TimeStats};
use imbrex_emulator::{Counts, Emulator, Observer};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-stock",
    about: "The key-value store beside stock LevelDB and RocksDB, on bluefs and on XFS: one random load, with equal drives and memory",
    paper: "GearDB (FAST 2019), Figures 10 to 13; BlueFS, section 5.8",
    speed: 2.0,
    rows: |_| PLANS.iter().map(|plan| plan.name.to_owned()).collect(),
    extra: |_| PLANS.iter().filter(|plan| plan.extra()).map(|plan| plan.name.to_owned()).collect(),
    needs,
    run,
};

const GIB: u64 = 1 << 30;
const VALUE: u64 = kv_store::VALUE as u64;
/// Gets, and as many scans of [`LONG`] pairs.
const READS: u64 = 256_000;
/// Memory at full size beside [`MEMTABLE`] and [`CACHE`]: what waits to be written. Stock stores have two memtables, and ring has one, with a larger survivor: so
/// the sum is equal.
const SURVIVOR: u64 = 512 * MIB;
/// LevelDB's own part of [`CACHE`] while it loads, its default. bluefs has the rest: LevelDB reads what it compacts block by block.
pub(super) const OWN: u64 = 8 * MIB;
/// Bits of a filter for each key.
pub(super) const BITS: u32 = 10;
/// With this row the others are compared.
const RING: &str = "ring";
const DIAL: &str = "ring, bottom at least 90 %";
/// And those on larger drives with these.
const WIDE: &str = "ring, 600 zones";
const WHOLE: &str = "ring, no limit of space";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// See [`imbrex_kv::Options::bottom`].
    Ring(u32),
    LevelDb,
    RocksDb(Shape),
}

/// How RocksDB compacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// As it comes, but for sizes.
    Leveled,
    /// Puts wait before compactions are behind by more than a few zones.
    Tight,
    Universal,
    /// Levels as they come, but only two of them.
    TwoLevels,
    /// Levels as they come, of keys: values lie in files of their own, and half of these are looked through for values that are gone.
    Blobs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// A drive of [`ZONES`] zones.
    Bluefs,
    /// A drive of so many that none lack. Who takes fewer of them stays where it is faster.
    Wide,
    /// A drive of so many that all of it lies at the outer edge, where it is fastest.
    Unlimited,
    /// A drive of so few that what the load leaves takes nine tenths of it.
    Narrow,
    /// XFS on a conventional drive of the size and mechanics of [`On::Bluefs`].
    Xfs,
}

impl On {
    /// Zones of the drive.
    fn zones(self) -> u32 {
        match self {
            On::Bluefs | On::Xfs => ZONES,
            On::Wide => 600,
            On::Unlimited => 2400,
            On::Narrow => 216,
        }
    }

    /// Bytes of the drive.
    fn capacity(self, scale: u32) -> u64 {
        u64::from(self.zones()) * (ZONE / u64::from(scale))
    }
}

struct Plan {
    name: &'static str,
    store: Side,
    on: On,
    /// Random puts into a store that takes so many percent of all zones, in place of the load.
    full: Option<u64>,
}

impl Plan {
    fn extra(&self) -> bool {
        let other = self.on == On::Wide && matches!(self.store, Side::RocksDb(Shape::Blobs | Shape::Universal));
        self.name == DIAL || matches!(self.on, On::Narrow | On::Unlimited) || other || self.full.is_some()
    }

    /// Keys, and puts.
    fn counts(&self, options: &Options) -> (u64, u64) {
        let puts = puts(options);
        let capacity = u64::from(ZONES) * ZONE / u64::from(options.scale) / (KEY + VALUE);
        self.full
            .map_or((puts, puts), |percent| (if options.short { puts } else { capacity * percent / 100 }, puts / 4))
    }
}

const fn plan(name: &'static str, store: Side, on: On) -> Plan {
    Plan { name, store, on, full: None }
}

const fn overwritten(name: &'static str, store: Side, percent: u64) -> Plan {
    Plan { name, store, on: On::Bluefs, full: Some(percent) }
}

const PLANS: &[Plan] = &[
    plan(RING, Side::Ring(0), On::Bluefs),
    plan(DIAL, Side::Ring(90), On::Bluefs),
    plan("LevelDB on bluefs", Side::LevelDb, On::Bluefs),
    plan("RocksDB on bluefs: tight limits", Side::RocksDb(Shape::Tight), On::Bluefs),
    plan("RocksDB on bluefs: as it comes", Side::RocksDb(Shape::Leveled), On::Bluefs),
    plan("RocksDB on bluefs: universal", Side::RocksDb(Shape::Universal), On::Bluefs),
    plan(WIDE, Side::Ring(0), On::Wide),
    plan("RocksDB on bluefs: as it comes, 600 zones", Side::RocksDb(Shape::Leveled), On::Wide),
    plan("RocksDB on bluefs: two levels, 600 zones", Side::RocksDb(Shape::TwoLevels), On::Wide),
    plan("RocksDB on bluefs: blob files, 600 zones", Side::RocksDb(Shape::Blobs), On::Wide),
    plan("RocksDB on bluefs: universal, 600 zones", Side::RocksDb(Shape::Universal), On::Wide),
    plan(WHOLE, Side::Ring(0), On::Unlimited),
    plan("RocksDB on bluefs: as it comes, no limit of space", Side::RocksDb(Shape::Leveled), On::Unlimited),
    plan("RocksDB on bluefs: two levels, no limit of space", Side::RocksDb(Shape::TwoLevels), On::Unlimited),
    plan("RocksDB on bluefs: blob files, no limit of space", Side::RocksDb(Shape::Blobs), On::Unlimited),
    plan("RocksDB on bluefs: universal, no limit of space", Side::RocksDb(Shape::Universal), On::Unlimited),
    plan("ring, 216 zones", Side::Ring(0), On::Narrow),
    plan("LevelDB on bluefs, 216 zones", Side::LevelDb, On::Narrow),
    plan("RocksDB on bluefs: tight limits, 216 zones", Side::RocksDb(Shape::Tight), On::Narrow),
    plan("RocksDB on XFS, equal mechanics: tight limits", Side::RocksDb(Shape::Tight), On::Xfs),
    plan("RocksDB on XFS, equal mechanics: as it comes", Side::RocksDb(Shape::Leveled), On::Xfs),
    plan("LevelDB on XFS, equal mechanics", Side::LevelDb, On::Xfs),
    overwritten("90 % full, overwritten: ring", Side::Ring(0), 90),
    overwritten("90 % full, overwritten: LevelDB on bluefs", Side::LevelDb, 90),
    overwritten("90 % full, overwritten: RocksDB on bluefs, tight limits", Side::RocksDb(Shape::Tight), 90),
    overwritten("85 % full, overwritten: ring", Side::Ring(0), 85),
    overwritten("85 % full, overwritten: LevelDB on bluefs", Side::LevelDb, 85),
    overwritten("85 % full, overwritten: RocksDB on bluefs, tight limits", Side::RocksDb(Shape::Tight), 85),
    overwritten("70 % full, overwritten: ring", Side::Ring(0), 70),
    overwritten("70 % full, overwritten: LevelDB on bluefs", Side::LevelDb, 70),
    overwritten("70 % full, overwritten: RocksDB on bluefs, tight limits", Side::RocksDb(Shape::Tight), 70),
    overwritten("60 % full, overwritten: ring", Side::Ring(0), 60),
    overwritten("60 % full, overwritten: LevelDB on bluefs", Side::LevelDb, 60),
    overwritten("60 % full, overwritten: RocksDB on bluefs, tight limits", Side::RocksDb(Shape::Tight), 60),
];

fn puts(options: &Options) -> u64 {
    if options.short { 3000 } else { (PUTS / u64::from(options.scale)).max(3000) }
}

fn reads(options: &Options) -> u64 {
    if options.short { 100 } else { (READS / u64::from(options.scale)).max(100) }
}

fn needs(options: &Options) -> Needs {
    // So much is taken at most, whatever there is.
    let drive = On::Wide.capacity(options.scale);
    Needs { work: drive * 2 + 256 * MIB, memory: drive * 2 + GIB }
}

/// What a drive has done until a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    counts: Counts,
    kinds: Seconds,
    /// Seconds by its clock.
    elapsed: f64,
    /// Of [`ZONE`] at full size, that are not empty.
    zones: f64,
}

impl Moment {
    fn new(counts: Counts, time: Option<TimeStats>, zones: f64) -> Moment {
        let (kinds, elapsed) = time.map(|time| (time.total, time.elapsed)).unwrap_or_default();
        Moment { counts, kinds, elapsed, zones }
    }

    fn of(drive: &Emulator, zones: u32) -> Moment {
        Moment::new(drive.stats().total, drive.time(), f64::from(zones))
    }

    /// With what was done between two others.
    fn and(mut self, before: &Moment, after: &Moment) -> Moment {
        self.counts.add(&after.counts.since(&before.counts));
        self.kinds.transfer += after.kinds.busy() - before.kinds.busy();
        Moment { zones: after.zones, ..self }
    }

    /// Seconds of the drive since another moment, at full size.
    fn since(&self, other: &Moment, scale: f64) -> f64 {
        (self.kinds.busy() - other.kinds.busy()) * scale
    }
}

/// Fills in what a part that reads took of the drive for each of so many operations.
fn reading(row: &mut Row, (what, when): (&str, &str), count: u64, (before, after): (&Moment, &Moment)) {
    let each = |of: u64| of as f64 / count.max(1) as f64;
    let counts = after.counts.since(&before.counts);
    // Reads keep their size, and so mechanics are real: no scale.
    let seconds = after.since(before, 1.0);
    row.figures.extend([
        (format!("{what}s/s, {when}"), count as f64 / seconds.max(1e-9)),
        (format!("reads of the drive a {what}, {when}"), each(counts.reads)),
        (format!("KiB read a {what}, {when}"), each(counts.bytes_read) / 1024.0),
    ]);
}

/// Fills in what the load took: `begun`, the last put returned, all compactions are done.
fn loaded(row: &mut Row, options: &Options, [begun, loaded, settled]: [&Moment; 3], peak: f64) {
    let (scale, user) = (f64::from(options.scale), puts(options) * (KEY + VALUE));
    let zone = ZONE as f64 / scale;
    let live = there(puts(options)) * (KEY + VALUE) as f64;
    let counts = settled.counts.since(&begun.counts);
    row.operations = Some(puts(options));
    row.bytes_user = Some(user);
    row.bytes_drive = Some(counts.bytes_written);
    row.bytes_read = Some(counts.bytes_read);
    row.flushes = Some(counts.flushes);
    row.zone_resets = Some(counts.zone_resets);
    row.device_seconds = Some(settled.kinds.busy() - begun.kinds.busy());
    let written = loaded.counts.bytes_written - begun.counts.bytes_written;
    row.figures.extend(
        [
            (LOADED, loaded.since(begun, scale)),
            (SETTLED, settled.since(begun, scale)),
            ("WA until loaded", written as f64 / user as f64),
            ("zones, peak", peak),
            ("live over peak", live / (peak * zone).max(1.0)),
            ("live over zones, settled", live / (settled.zones * zone).max(1.0)),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    row.space_efficiency = Some(live / (settled.zones * zone).max(1.0));
}

const LOADED: &str = "s at full size, until loaded";
const SETTLED: &str = "s at full size, until settled";
const OVERWRITTEN: &str = "s at full size, overwritten";

fn why(error: impl std::fmt::Display) -> Stop {
    Stop::Failed(error.to_string())
}

/// Memory, for a row.
fn memory(row: &mut Row, text: &str) {
    row.settings.insert("memory at full size".into(), text.into());
}

/// The store itself, from one thread, when it is overwritten.
fn ring_overwritten(run: &Run, plan: &Plan) -> Result<Row, Stop> {
    let options = run.options;
    let (keys, puts) = plan.counts(options);
    let mut store = Store::new(&kv_store::Plan::ring(0), options)?;
    let at = |store: &Store| Moment::of(&store.drive, store.kv.figures().zones.0);
    let stopped = || if run.stopped() { Err(Stop::Interrupted) } else { Ok(()) };
    for n in 0..keys {
        stopped()?;
        store.put_number(n)?;
    }
    store.start();
    let begun = at(&store);
    for n in 0..puts {
        stopped()?;
        run.says(&format!("{}: {} % of the puts", run.doing(), n * 100 / puts));
        store.put_random(keys)?;
    }
    let full = at(&store);
    let mut row = Row { rule: Rule::All.name().into(), ..Row::new("", DRIVE) };
    overwrote(&mut row, plan, options, [&begun, &full], f64::from(store.peak()));
    row.invalid.extend(store.kv.check().map_err(why)?);
    store.tell(&mut row);
    memory(&mut row, RING_MEMORY);
    Ok(row.amplified())
}

/// Fills in what random puts into a full store took.
fn overwrote(row: &mut Row, plan: &Plan, options: &Options, [begun, full]: [&Moment; 2], peak: f64) {
    let (scale, (keys, puts)) = (f64::from(options.scale), plan.counts(options));
    let counts = full.counts.since(&begun.counts);
    row.operations = Some(puts);
    row.bytes_user = Some(puts * (KEY + VALUE));
    row.bytes_drive = Some(counts.bytes_written);
    row.bytes_read = Some(counts.bytes_read);
    row.flushes = Some(counts.flushes);
    row.zone_resets = Some(counts.zone_resets);
    row.device_seconds = Some(full.kinds.busy() - begun.kinds.busy());
    let live = (keys * (KEY + VALUE)) as f64 / (ZONE as f64 / scale);
    row.figures.extend(
        [
            (OVERWRITTEN, full.since(begun, scale)),
            ("puts/s", puts as f64 / full.since(begun, 1.0).max(1e-9)),
            ("zones, at first", begun.zones),
            ("zones, peak", peak),
            ("live over peak", live / peak.max(1.0)),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
}

const RING_MEMORY: &str = "memtable 256 MiB, cache 256 MiB, survivor 768 MiB (for the log, and for the memtable)";

/// The store itself, from one thread.
fn ring(run: &Run, bottom: u32, on: On) -> Result<Row, Stop> {
    let options = run.options;
    let kv = Store::options(&kv_store::Plan::ring(bottom), options);
    let dir = workplace(&options.work)?;
    let image = dir.path().join("drive.img");
    let mut store = Store::new_in(&image, on.zones(), kv.clone(), options.scale)?;
    let (puts, reads) = (puts(options), reads(options));
    store.start();
    let at = |store: &Store| Moment::of(&store.drive, store.kv.figures().zones.0);
    let begun = at(&store);
    for n in 0..puts {
        if n % 1024 == 0 {
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            run.says(&format!("{}: {} % of the puts", run.doing(), n * 100 / puts));
        }
        store.put_random(puts)?;
    }
    let full = at(&store);
    let peak = f64::from(store.peak());
    let mut row = Row { rule: Rule::All.name().into(), ..Row::new("", DRIVE) };
    let both = |store: &mut Store, row: &mut Row, when: &str| -> Result<(), Stop> {
        // So that tables are open.
        store.gets(reads, puts)?;
        let before = at(store);
        store.gets(reads, puts)?;
        let after = at(store);
        reading(row, ("get", when), reads, (&before, &after));
        store.scans(reads, puts, LONG)?;
        reading(row, ("scan", when), reads, (&after, &at(store)));
        row.figures.insert(format!("MiB of filters and top indexes at this scale, {when}"), store.indexes());
        Ok(())
    };
    store = store.again(&image, Mechanics::Real, kv.clone())?;
    both(&mut store, &mut row, "loaded")?;
    store = store.again(&image, Mechanics::Scaled, kv.clone())?;
    let before = at(&store);
    while store.kv.step().map_err(why)? {}
    let after = at(&store);
    // What reading took in between belongs to neither.
    let settled = full.and(&before, &after);
    loaded(&mut row, options, [&begun, &full, &settled], peak);
    store = store.again(&image, Mechanics::Real, kv.clone())?;
    both(&mut store, &mut row, "settled")?;
    store.kv.compact().map_err(why)?;
    both(&mut store, &mut row, "compacted")?;
    row.invalid.extend(store.kv.check().map_err(why)?);
    store.tell(&mut row);
    memory(&mut row, RING_MEMORY);
    Ok(row.amplified())
}

/// Zones that are not empty; where there are none, what the files in `dir` would fill.
fn zones(observer: &Observer, dir: Option<&Path>) -> f64 {
    let config = observer.config();
    let Some(dir) = dir else {
        let used = |state| !matches!(state, ZoneState::Empty | ZoneState::Conventional);
        return observer.zones().iter().filter(|zone| used(zone.state)).count() as f64;
    };
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    bytes as f64 / config.zone_size as f64
}

/// Whether a line is a result. `db_bench` also prints its limits, as `Read rate: 0 ops/second`.
fn is_result(line: &str) -> bool {
    line.ends_with('\n') && line.contains(" ops/sec") && !line.contains("ops/second")
}

/// Why a program failed. `db_bench` tells in the same line how far it came: "... finished 20000 ops".
fn reason(said: &str) -> String {
    let mut parts = said.rsplit('\r').map(str::trim);
    let why = parts.next().unwrap_or_default().trim_end_matches(')');
    let far = parts.find_map(|part| Some(part.split_once("finished ")?.1.split(' ').next()?.to_owned()));
    far.map_or_else(|| why.to_owned(), |far| format!("{why}, after {far} puts or a few more"))
}

/// What a program left behind: a moment at its start, one at each of its lines, and one at its end; and the most zones.
struct Followed {
    moments: Vec<Moment>,
    peak: f64,
    /// Why it failed.
    failed: Option<String>,
}

/// Runs a program, and looks at its drive whenever it says that a part is done.
fn follow(run: &Run, command: &Command, image: &Path, dir: &Path, database: Option<&Path>) -> Result<Followed, Stop> {
    let name = run.doing();
    let mut running = Running::start(command, dir)?;
    let observer = Observer::open(image).map_err(|e| e.to_string())?;
    let look = || {
        let time = observer.time().ok().flatten();
        Moment::new(observer.stats().total, time, zones(&observer, database))
    };
    let (mut moments, mut peak, mut looked) = (vec![look()], 0.0f64, Instant::now());
    let ended = running.wait_each(Duration::from_millis(1), |output| {
        if run.stopped() {
            return Err(Stop::Interrupted);
        }
        // One for each line that is whole.
        let lines = output.split_inclusive('\n').filter(|line| is_result(line));
        for _ in moments.len() - 1..lines.count() {
            moments.push(look());
        }
        if looked.elapsed() >= super::child::POLL {
            looked = Instant::now();
            let now = look();
            peak = peak.max(now.zones);
            run.says(&format!("{name}: {:.0} s of the drive", now.kinds.busy()));
        }
        Ok(())
    });
    let failed = match ended {
        Ok(()) => None,
        Err(Stop::Interrupted) => return Err(Stop::Interrupted),
        Err(Stop::Failed(why)) => Some(reason(&why)),
    };
    moments.push(look());
    let peak = moments.iter().fold(peak, |peak, moment| peak.max(moment.zones));
    Ok(Followed { moments, peak, failed })
}

/// RocksDB's options by their names. `db_bench` has the same names for them. Sizes of memtable and tables are divided already.
pub(super) fn rocks_options(shape: Shape, (memtable, table): (u64, u64), scale: u32) -> Vec<(&'static str, u64)> {
    let scaled = |bytes: u64| (bytes / u64::from(scale)).max(4096);
    let base = if shape == Shape::Tight { 4 * GIB } else { GIB };
    let mut all = vec![
        ("write_buffer_size", memtable),
        ("max_write_buffer_number", 2),
        ("target_file_size_base", table),
        ("compaction_readahead_size", scaled(2 * MIB)),
        ("writable_file_max_buffer_size", scaled(MIB)),
        ("max_background_jobs", 4),
        ("max_bytes_for_level_base", scaled(base)),
    ];
    all.extend(match shape {
        Shape::Leveled | Shape::Universal | Shape::TwoLevels | Shape::Blobs => vec![
            ("soft_pending_compaction_bytes_limit", scaled(64 * GIB)),
            ("hard_pending_compaction_bytes_limit", scaled(256 * GIB)),
        ],
        Shape::Tight => vec![
            ("soft_pending_compaction_bytes_limit", scaled(4 * GIB)),
            ("hard_pending_compaction_bytes_limit", scaled(8 * GIB)),
            ("level0_file_num_compaction_trigger", 4),
            ("level0_slowdown_writes_trigger", 8),
            ("level0_stop_writes_trigger", 12),
        ],
    });
    all
}

/// The flags of `db_bench` beside what it does.
fn rocks(shape: Shape, keys: u64, options: &Options) -> Vec<String> {
    let scaled = |bytes: u64| (bytes / u64::from(options.scale)).max(4096);
    let mut flags = vec![
        ("num", keys),
        ("key_size", KEY),
        ("value_size", VALUE),
        ("seed", 1),
        ("sync", 0),
        ("threads", 1),
        ("cache_size", scaled(CACHE)),
        ("bloom_bits", u64::from(BITS)),
    ];
    // Compactions overshoot by half a per cent.
    flags.extend(rocks_options(shape, (scaled(MEMTABLE), scaled(ZONE) / 100 * 98), options.scale));
    flags.extend(match shape {
        Shape::Leveled | Shape::Tight => Vec::new(),
        Shape::Universal => vec![("compaction_style", 1)],
        // Whatever merges level 0 rewrites all of level 1: so seldom.
        Shape::TwoLevels => vec![
            ("num_levels", 2),
            ("level0_file_num_compaction_trigger", 24),
            ("level0_slowdown_writes_trigger", 36),
            ("level0_stop_writes_trigger", 48),
        ],
        Shape::Blobs => vec![
            ("enable_blob_files", 1),
            ("enable_blob_garbage_collection", 1),
            ("blob_file_size", scaled(ZONE) / 100 * 98),
        ],
    });
    let mut flags: Vec<String> = flags.into_iter().map(|(name, value)| format!("--{name}={value}")).collect();
    if shape == Shape::Blobs {
        flags.push("--blob_garbage_collection_age_cutoff=0.5".into());
    }
    flags.push("--compression_type=none".into());
    flags
}

/// What a stock store's program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Load,
    /// Gets and scans of what the load left, without a compaction.
    Loaded,
    /// The same, with the cache in bluefs.
    LoadedAgain,
    /// All compactions.
    Settle,
    /// Gets and scans, then the same after a full compaction.
    Read,
    /// The last of that, with the cache in bluefs.
    Again,
    /// All keys in order.
    Order,
    /// Random puts of those.
    Over,
}

impl Part {
    fn of_leveldb(self) -> &'static str {
        match self {
            Part::Load => "fill",
            Part::Settle => "idle",
            Part::Read => "gets,gets,scans,compact,gets,gets,scans",
            Part::Loaded | Part::LoadedAgain | Part::Again => "gets,gets,scans",
            Part::Order => "order,idle",
            Part::Over => "over",
        }
    }

    fn of_rocksdb(self) -> &'static str {
        match self {
            Part::Load => "fillrandom",
            Part::Settle => "waitforcompaction",
            // The first gets open tables.
            Part::Read | Part::Again => {
                "waitforcompaction,readrandom,readrandom,seekrandom,compact,readrandom,readrandom,seekrandom"
            }
            Part::Loaded | Part::LoadedAgain => "readrandom,readrandom,seekrandom",
            Part::Order => "fillseq,waitforcompaction",
            Part::Over => "overwrite",
        }
    }

    /// What the store has of the cache, at full size. bluefs has the rest.
    fn own(self, store: Side) -> u64 {
        if matches!(self, Part::Read | Part::Loaded) || store != Side::LevelDb { CACHE } else { OWN }
    }

    /// Places of gets among what [`follow`] saw (the scans come next), and what figures call them.
    fn gets(self) -> &'static [(usize, &'static str)] {
        match self {
            Part::Loaded => &[(1, "loaded")],
            Part::LoadedAgain => &[(1, "loaded, cache in bluefs")],
            Part::Read => &[(1, "settled"), (5, "compacted")],
            Part::Again => &[(1, "compacted, cache in bluefs")],
            Part::Load | Part::Settle | Part::Order | Part::Over => &[],
        }
    }

    /// Whether compactions go on beside it. Then it takes the time that it takes, and sizes and mechanics are divided.
    fn compacts(self) -> bool {
        matches!(self, Part::Load | Part::Settle | Part::Order | Part::Over)
    }
}

/// A stock store's program, without where its files are.
fn program(options: &Options, plan: &Plan, part: Part) -> Result<Command, Stop> {
    let scaled = |bytes: u64| bytes / u64::from(options.scale);
    let (keys, puts) = plan.counts(options);
    let still = matches!(part, Part::Loaded | Part::LoadedAgain);
    if let Side::RocksDb(shape) = plan.store {
        let mut command = Command::new("db_bench");
        command.args(rocks(shape, keys, options)).arg(format!("--benchmarks={}", part.of_rocksdb()));
        if !matches!(part, Part::Load | Part::Order) {
            command.arg("--use_existing_db=1");
        }
        if part == Part::Over {
            command.arg(format!("--writes={puts}"));
        }
        if !part.compacts() {
            command.args([format!("--reads={}", reads(options)), format!("--seek_nexts={LONG}")]);
        }
        if still {
            command.arg("--disable_auto_compactions=1");
        }
        return Ok(command);
    }
    let path = options.build.join("leveldb_bench");
    if !path.exists() {
        let text = format!("{} is not there; `bindings/leveldb/build.sh build tests` makes it", path.display());
        return Err(Stop::Failed(text));
    }
    let mut command = Command::new(path);
    command.args([
        format!("--num={keys}"),
        format!("--reads={}", reads(options)),
        format!("--over={puts}"),
        format!("--still={}", u8::from(still)),
        format!("--write-buffer={}", scaled(MEMTABLE)),
        format!("--file-size={}", scaled(ZONE) / 100 * 98),
        format!("--cache={}", scaled(part.own(plan.store))),
        format!("--filter={BITS}"),
        format!("--parts={}", part.of_leveldb()),
    ]);
    Ok(command)
}

/// Notes the flags of a program.
fn told(row: &mut Row, what: &str, command: &Command) {
    let words = command.get_args().map(|arg| arg.to_string_lossy());
    row.settings.insert(what.into(), words.filter(|arg| arg.starts_with("--")).collect::<Vec<_>>().join(" "));
}

/// Notes why a program failed, where it did.
fn end(row: &mut Row, followed: &Followed) {
    if let Some(why) = &followed.failed {
        row.settings.insert("ended".into(), why.clone());
        row.flags.push(format!("it did not finish: {why}"));
        row.figures.insert("zones, peak".into(), followed.peak);
    }
}

/// Flags a row whose drive waited for the processor while the store was loaded or overwritten.
fn busy(row: &mut Row, followed: &Followed) {
    if let ([begun, full, _, ..], None) = (followed.moments.as_slice(), &followed.failed) {
        let elapsed = full.elapsed - begun.elapsed;
        row.drive_utilisation = (elapsed > 0.0).then(|| (full.kinds.busy() - begun.kinds.busy()) / elapsed);
        checks::cpu_bound(row);
    }
}

/// A stock store on the kernel's XFS.
fn on_xfs(run: &mut Run, plan: &Plan) -> Result<Row, Stop> {
    let options = run.options;
    let disk = Disk::named(DRIVE, Rule::All)?.twin();
    run.model(&disk.profile);
    let dir = workplace(&options.work)?;
    let mut row = disk.row();
    let mut first = program(options, plan, Part::Load)?;
    // One program does both, since nobody reads.
    first.arg(match plan.store {
        Side::LevelDb => "--parts=fill,idle",
        _ => "--benchmarks=fillrandom,waitforcompaction",
    });
    let page = SURVIVOR + if plan.store == Side::LevelDb { CACHE - OWN } else { 0 };
    let mut setup = kernel_setup(run, &disk, FileSystem::Xfs, Directory::Own, page, dir.path())?;
    let size = u64::from(ZONES) * ZONE / u64::from(options.scale);
    (setup.capacity, setup.conventional) = (Some(size), Some(ZONES));
    let baseline = Baseline::start(&setup).map_err(why)?;
    let database = baseline.dir().join("bench");
    first.arg(format!("--db={}", database.display()));
    told(&mut row, "load", &first);
    let mut command = baseline.command(first.get_program());
    command.args(first.get_args());
    let image = baseline.image().to_owned();
    let followed = follow(run, &command, &image, dir.path(), Some(&database))?;
    if let ([begun, full, .., settled], None) = (followed.moments.as_slice(), &followed.failed) {
        loaded(&mut row, options, [begun, full, settled], followed.peak);
    }
    end(&mut row, &followed);
    let report = baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
    if let Err(why) = report.page_cache {
        row.flags.push(format!("the page cache was not limited: {why}"));
    }
    memory(
        &mut row,
        "two memtables of 256 MiB, cache 256 MiB (with LevelDB all but 8 MiB in the page cache), page cache 512 MiB more",
    );
    Ok(row.amplified())
}

/// bluefs in an image, and a stock store on it.
struct Bluefs<'a, 'b> {
    run: &'a Run<'b>,
    plan: &'a Plan,
    dir: tempfile::TempDir,
    image: PathBuf,
    switches: String,
}

impl<'a, 'b> Bluefs<'a, 'b> {
    fn new(run: &'a mut Run<'b>, plan: &'a Plan) -> Result<Bluefs<'a, 'b>, Stop> {
        let disk = Disk::named(DRIVE, Rule::All)?;
        run.model(&disk.profile);
        let options = run.options;
        let scale = u64::from(options.scale);
        let dir = workplace(&options.work)?;
        let capacity = plan.on.capacity(options.scale);
        let image = dir.path().join("drive.img");
        let config = disk.config_of(options.scale, Some(capacity), Some(0))?;
        drop(Emulator::create(&image, &config, false).map_err(|e| e.to_string())?);
        let journal = (16 * MIB / scale).max(64 << 10);
        let survivor = (SURVIVOR / scale / 4096 * 4096).max(MIB);
        Ok(Bluefs { run, plan, dir, image, switches: format!("journal={journal}&survivor-size={survivor}") })
    }

    /// Runs a part.
    fn does(&self, row: &mut Row, part: Part) -> Result<Followed, Stop> {
        let (options, store) = (self.run.options, self.plan.store);
        let scale = u64::from(options.scale);
        // Else one thread reads, and nothing else is at work: so service times are added up, as for ring.
        let (mechanics, mut how) = if part.compacts() {
            let pace = Pace::Real(self.run.speed(Rule::All));
            (Mechanics::Scaled, format!("{}&io-scale={scale}", pace.options()))
        } else {
            (Mechanics::Real, Pace::Account.options())
        };
        if matches!(part, Part::Load | Part::Order) {
            how = format!("format=on&{how}");
        }
        Emulator::change_mechanics(&self.image, mechanics).map_err(why)?;
        let mut command = program(options, self.plan, part)?;
        let cache = (CACHE - part.own(store)) / scale;
        let uri = format!("imbrex://{}?{how}&{}&cache={cache}", self.image.display(), self.switches);
        let rocks = matches!(store, Side::RocksDb(_));
        let libraries: &[&str] = if rocks { &["librocksdb_imbrex.so"] } else { &[] };
        command.arg(if rocks { format!("--fs_uri={uri}") } else { format!("--uri={uri}") }).arg("--db=/bench");
        command.env("LD_PRELOAD", preload(&options.build, libraries)?).env("IMBREX_SHM_DIR", self.dir.path());
        told(row, &format!("{part:?}").to_lowercase(), &command);
        let followed = follow(self.run, &command, &self.image, self.dir.path(), None)?;
        end(row, &followed);
        if followed.failed.is_none() {
            for (n, when) in part.gets() {
                for (n, what) in [(*n, "get"), (n + 1, "scan")] {
                    if let (Some(before), Some(after)) = (followed.moments.get(n), followed.moments.get(n + 1)) {
                        reading(row, (what, when), reads(options), (before, after));
                    }
                }
            }
        }
        Ok(followed)
    }
}

/// A stock store on bluefs.
fn on_bluefs(run: &mut Run, plan: &Plan) -> Result<Row, Stop> {
    let options = run.options;
    let bluefs = Bluefs::new(run, plan)?;
    let mut row = Disk::named(DRIVE, Rule::All)?.row();
    row.settings.insert("bluefs".into(), bluefs.switches.clone());
    memory(
        &mut row,
        "two memtables of 256 MiB, cache 256 MiB in all, survivor 512 MiB (for the log, and for tables that are written)",
    );
    if plan.full.is_some() {
        if bluefs.does(&mut row, Part::Order)?.failed.is_none() {
            let over = bluefs.does(&mut row, Part::Over)?;
            busy(&mut row, &over);
            match (over.moments.as_slice(), &over.failed) {
                ([begun, full, ..], None) => overwrote(&mut row, plan, options, [begun, full], over.peak),
                ([begun, .., stopped], _) => {
                    let scale = f64::from(options.scale);
                    row.figures.insert("s at full size, until it stopped".into(), stopped.since(begun, scale));
                }
                _ => {}
            }
        }
        return Ok(row.amplified());
    }
    let load = bluefs.does(&mut row, Part::Load)?;
    busy(&mut row, &load);
    let ([begun, full, .., left], None) = (load.moments.as_slice(), &load.failed) else {
        return Ok(row.amplified());
    };
    let rocks = matches!(plan.store, Side::RocksDb(_));
    for part in [Part::Loaded, Part::LoadedAgain, Part::Settle, Part::Read, Part::Again] {
        if matches!(part, Part::LoadedAgain | Part::Again) && rocks {
            continue;
        }
        let followed = bluefs.does(&mut row, part)?;
        if followed.failed.is_some() {
            break;
        }
        if let (Part::Settle, [before, .., after]) = (part, followed.moments.as_slice()) {
            // What reading took in between belongs to neither.
            loaded(&mut row, options, [begun, full, &left.and(before, after)], load.peak.max(followed.peak));
        }
    }
    Ok(row.amplified())
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("each takes minutes, and ring is always the same");
    run.setting("record", "16 + 4,096 bytes, not compressible; puts uniform over as many keys as there are puts");
    run.setting(
        "drive",
        format!("{ZONES} zones of 256 MiB at full size unless a row says otherwise, seconds in which it was busy"),
    );
    run.setting("log", "written; all puts unsynced");
    run.setting("puts", puts(run.options));
    run.setting("gets, and scans of 100 pairs", reads(run.options));
    run.setting("mechanics of gets and scans", "real, since they keep their size");
    run.setting("filters", format!("{BITS} bits a key, and about nine of ring"));
    run.program("db_bench", version());
    for plan in PLANS {
        run.row(plan.name, |run| match (plan.store, plan.on) {
            (Side::Ring(_), _) if plan.full.is_some() => ring_overwritten(run, plan),
            (Side::Ring(bottom), on) => ring(run, bottom, on),
            (_, On::Xfs) => on_xfs(run, plan),
            _ => on_bluefs(run, plan),
        })?;
    }
    ratios(run);
    Ok(())
}

/// A figure of a row that was measured.
fn figure(run: &Run, row: &str, name: &str) -> Option<f64> {
    run.measured(row)?.figures.get(name).copied()
}

/// Each stock store against ring: above 1, ring is better.
fn ratios(run: &mut Run) {
    let mut all = Vec::new();
    for plan in PLANS.iter().filter(|plan| !matches!(plan.store, Side::Ring(_))) {
        if plan.full.is_some() {
            let ours = PLANS.iter().find(|ours| ours.full == plan.full && matches!(ours.store, Side::Ring(_)));
            let ours = ours.and_then(|ours| figure(run, ours.name, OVERWRITTEN));
            if let (Some(theirs), Some(ours)) = (figure(run, plan.name, OVERWRITTEN), ours) {
                let ratio = Ratio::of(format!("ring against {}", plan.name), &[theirs / ours]);
                let goal = match (plan.full, plan.store) {
                    (Some(85), Side::RocksDb(_)) => Some(2.0),
                    (Some(90), _) => Some(1.5),
                    _ => None,
                };
                all.extend(ratio.map(|ratio| Ratio { goal, ..ratio }));
            }
            continue;
        }
        let (ours, goal) = match (plan.on, plan.store) {
            (On::Bluefs, _) => (RING, Some(2.0)),
            (On::Xfs, Side::RocksDb(_)) => (RING, Some(2.5)),
            (On::Xfs, _) => (RING, None),
            (on @ (On::Wide | On::Unlimited), store) => {
                let goal = match store {
                    Side::RocksDb(Shape::TwoLevels) => Some(1.0),
                    Side::RocksDb(Shape::Leveled) => Some(1.5),
                    _ => None,
                };
                (if on == On::Wide { WIDE } else { WHOLE }, goal)
            }
            // Where nine tenths of the zones are live.
            (On::Narrow, _) => (DIAL, Some(1.5)),
        };
        for (name, what) in [(LOADED, "until loaded"), (SETTLED, "until settled")] {
            if let (Some(theirs), Some(of_ours)) = (figure(run, plan.name, name), figure(run, ours, name)) {
                let ratio = Ratio::of(format!("{what}: {ours} against {}", plan.name), &[theirs / of_ours]);
                all.extend(ratio.map(|ratio| Ratio { goal, ..ratio }));
            }
        }
        if plan.on != On::Xfs && plan.on != On::Narrow {
            all.extend(reads_of(run, ours, plan));
        }
    }
    run.outcome.ratios = all;
}

/// Gets and scans of a row of ring against those of a stock store.
fn reads_of(run: &Run, ring: &str, plan: &Plan) -> Vec<Ratio> {
    let mut all = Vec::new();
    for (what, least) in [("get", 0.95), ("scan", 0.8)] {
        for (ours, theirs) in
            [("loaded", "loaded"), ("loaded", "settled"), ("settled", "settled"), ("compacted", "compacted")]
        {
            let of = |when: &str| format!("{what}s/s, {when}");
            let better = [of(theirs), of(&format!("{theirs}, cache in bluefs"))];
            let better = better.iter().filter_map(|name| figure(run, plan.name, name)).reduce(f64::max);
            if let (Some(a), Some(b)) = (figure(run, ring, &of(ours)), better) {
                let ratio = Ratio::of(format!("{what}s: {ring} {ours}, against {} {theirs}", plan.name), &[a / b]);
                let goal = Some(if theirs == "compacted" { 1.0 } else { least });
                all.extend(ratio.map(|ratio| Ratio { goal: goal.filter(|_| plan.store == Side::LevelDb), ..ratio }));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_lines_that_are_not_whole_are_no_results() {
        assert!(is_result("readrandom   :      23.790 micros/op 41701 ops/sec 0.002 seconds 100 operations;\n"));
        assert!(is_result("gets 20442 ops/sec, 24.73 us of processor time each\n"));
        assert!(!is_result("Read rate: 0 ops/second\n") && !is_result("gets 20442 ops/sec, 24.73"));
    }

    #[test]
    fn how_far_a_program_came_is_told() {
        let said = "db_bench ended (... finished 100 ops      \r... finished 20000 ops     \rput error: no space left)";
        assert_eq!(reason(said), "put error: no space left, after 20000 puts or a few more");
        assert_eq!(reason("leveldb_bench ended (over: no space left)"), "leveldb_bench ended (over: no space left");
    }

    #[test]
    fn what_moved_and_the_settling_are_told_apart() {
        let at =
            |transfer, zones| Moment { kinds: Seconds { transfer, ..Seconds::default() }, zones, ..Moment::default() };
        let settled = at(10.0, 200.0).and(&at(15.0, 201.0), &at(18.0, 190.0));
        assert_eq!((settled.since(&at(1.0, 0.0), 2.0), settled.zones), (24.0, 190.0));
    }
}
