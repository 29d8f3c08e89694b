//! `kv-smrdb`: SMRDB's microbenchmarks on the key-value store: puts in order with values of several sizes, synced every so often; random puts with SMRDB's policy
//! (*SOC* there) and with levels whose tables are bands (*LOC*), with ring, and with stock LevelDB on bluefs; what begins a merge; how large bands are.

use super::chart::{Axis, Chart, Series, Shape};
use super::kv_driven::{Driven, Plan as StockPlan, Side, Spent, Stock, space};
use super::kv_store::{CACHE, DRIVE, KEY, MIB, Plan as Load, Store, VALUE, there};
use super::result::Row;
use super::rocks::Pace;
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop, checks};
use imbrex_emulator::time::Mechanics;
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::policy::{Band, Policy, Sizes};
use imbrex_kv::{MakePolicy, Options as KvOptions};
use imbrex_zones::VolumeOptions;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-smrdb",
    about: "SMRDB's puts on the key-value store, and on stock LevelDB: values of several sizes, syncs, what begins a merge, sizes of bands",
    paper: "SMRDB (SYSTOR 2015), Figures 8 to 13 and 15",
    speed: SPEED,
    rows: |_| plans().into_iter().map(|plan| plan.name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 4 << 30 },
    run,
};

/// Seconds of LevelDB's drive in a second while it loads; nothing else here has a clock of the world's.
const SPEED: f64 = 0.2;
/// Bands, and the memtable, have so many bytes unless a row says otherwise.
const BAND: u64 = 80 * MIB;
/// Bytes that are put in order, and in random order, at full size.
const IN_ORDER: u64 = 10_000_000_000;
const RANDOM: u64 = 11_000_000_000;
const DRIVE_BYTES: u64 = 48 << 30;
/// A row that syncs ends after so many syncs: each is like the others.
const SYNCS: u64 = 2000;
const GETS: u64 = 128_000;
/// Parts of a random load whose rates are told apart.
const WINDOWS: u64 = 50;

#[derive(Clone)]
enum What {
    /// Values of so many bytes, in order, and a sync after so many; 0: never.
    InOrder { value: u64, sync: u64 },
    /// The same, ingested: without a log.
    Ingested { value: u64 },
    /// 16 + 4,096 bytes in random order.
    Random,
    /// The same in the order of the keys.
    Ordered,
}

#[derive(Clone)]
struct Plan {
    name: String,
    /// Of the key-value store; [`LEVELDB`] is the other one.
    policy: &'static str,
    make: Option<MakePolicy>,
    band: u64,
    what: What,
}

/// Stock LevelDB on bluefs, with memtable and tables of a band.
const LEVELDB: &str = "leveldb";

fn plans() -> Vec<Plan> {
    let mut all = Vec::new();
    let plan = |name, policy, what| Plan { name, policy, make: None, band: BAND, what };
    for (value, text) in [(100, "100 B"), (4096, "4 KiB"), (102_400, "100 KiB")] {
        for sync in [1, 10, 100, 1000, 0] {
            let often = if sync == 0 { "never synced".to_owned() } else { format!("synced every {sync}") };
            let name = format!("in order, {text}, {often}");
            all.push(plan(format!("{name}: LevelDB on bluefs"), LEVELDB, What::InOrder { value, sync }));
            all.push(plan(name, "band", What::InOrder { value, sync }));
        }
        all.push(plan(format!("in order, {text}, ingested, no log"), "band", What::Ingested { value }));
    }
    let random = |name: String, policy, make, band| Plan { name, policy, make, band, what: What::Random };
    let sides = [
        ("band", "band (SOC)"),
        ("leveled", "levels of bands (LOC)"),
        ("ring", "ring"),
        (LEVELDB, "LevelDB on bluefs"),
    ];
    all.extend(sides.map(|(policy, text)| random(format!("random: {text}"), policy, None, BAND)));
    all.extend(sides.map(|(policy, text)| plan(format!("in order, 11 GB, then gets: {text}"), policy, What::Ordered)));
    for trigger in [2, 6, 8, 12, 16] {
        let make: MakePolicy = Arc::new(move |sizes: Sizes| {
            let band = Band::new(sizes);
            Box::new(Band { trigger, most: band.most.max(trigger), ..band }) as Box<dyn Policy>
        });
        all.push(random(format!("random: band, merges begin at {trigger} bands"), "band", Some(make), BAND));
    }
    for mib in [20, 40, 160, 320] {
        all.push(random(format!("random: band (SOC), bands of {mib} MiB"), "band", None, mib * MIB));
        all.push(random(format!("random: levels of bands (LOC), bands of {mib} MiB"), "leveled", None, mib * MIB));
    }
    all
}

/// Bands are zones of the drive.
fn store(plan: &Plan, mechanics: Mechanics, options: &Options, scale: u32) -> Result<Store, Stop> {
    let zone = plan.band / u64::from(scale);
    let base = Store::options(&Load::ring(0), options);
    let kv = KvOptions {
        policy: Some(plan.policy.to_owned()),
        make_policy: plan.make.clone(),
        memtable_bytes: zone as usize,
        // Levels have tables as large as a band; ring has four in one.
        table_bytes: if plan.policy == "ring" { zone / 4 } else { zone },
        step_bytes: zone,
        cache_bytes: CACHE / u64::from(scale),
        volume: VolumeOptions { survivor_bytes: (3 * zone).max(16 * MIB) as usize, ..base.volume.clone() },
        ..base
    };
    Store::with(Emulator::memory(&drive(plan, mechanics, scale)?).map_err(why)?, None, kv, scale)
}

fn drive(plan: &Plan, mechanics: Mechanics, scale: u32) -> Result<Config, Stop> {
    let zones = u32::try_from(DRIVE_BYTES / plan.band).unwrap_or(u32::MAX);
    Store::drive(scale, zones, plan.band / u64::from(scale), mechanics)
}

/// The store of a row, on a new drive. Of LevelDB all sizes are those of a band, and bluefs divides its commands where mechanics are divided. It keeps pace with its
/// drive where this is given, as a load must: its puts run ahead of compactions, which then merge more at once.
fn side(
    plan: &Plan,
    mechanics: Mechanics,
    options: &Options,
    (scale, pace): (u32, Pace),
) -> Result<Box<dyn Side>, Stop> {
    if plan.policy != LEVELDB {
        return Ok(Box::new(store(plan, mechanics, options, scale)?));
    }
    let zone = plan.band / u64::from(scale);
    let stock = StockPlan {
        store: Stock::LevelDb,
        memtable: zone,
        table: zone / 100 * 98,
        scale,
        io_scale: if mechanics == Mechanics::Real { 1 } else { scale },
        pace,
    };
    Ok(Box::new(Driven::new(&stock, &drive(plan, mechanics, scale)?, options)?))
}

fn key(n: u64) -> [u8; KEY as usize] {
    let mut key = [b'0'; KEY as usize];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Bytes that are put in order, and a record of this value.
fn ordered(value: u64, options: &Options) -> (u64, u64) {
    (IN_ORDER / u64::from(options.scale) / if options.short { 50 } else { 1 }, KEY + value)
}

/// The row of puts in order.
fn ordered_row(puts: u64, record: u64, spent: &Spent) -> Row {
    let mut row = Row {
        rule: Rule::Fewer.name().into(),
        device_seconds: Some(spent.seconds),
        operations: Some(puts),
        bytes_user: Some(puts * record),
        bytes_drive: Some(spent.counts.bytes_written),
        flushes: Some(spent.counts.flushes),
        ..Row::new("", DRIVE)
    }
    .amplified();
    row.figures.insert(PUTS.into(), puts as f64 / spent.seconds.max(1e-9));
    row.figures.insert("MB/s".into(), (puts * record) as f64 / 1e6 / spent.seconds.max(1e-9));
    row
}

fn in_order(plan: &Plan, value: u64, sync: u64, options: &Options, stopped: &dyn Fn() -> bool) -> Result<Row, Stop> {
    let mut store = side(plan, Mechanics::Real, options, (1, Pace::Account))?;
    let (bytes, record) = ordered(value, options);
    let puts = bytes / record;
    let puts = if sync == 0 { puts } else { puts.min(SYNCS * sync) }.max(1);
    let begun = store.spent()?;
    for n in 0..puts {
        if n % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        // What waits in memory is written sooner or later.
        let synced = n + 1 == puts || sync > 0 && (n + 1) % sync == 0;
        store.put(&key(n), value as usize, synced)?;
    }
    let mut row = ordered_row(puts, record, &store.spent()?.since(&begun));
    store.fill(&mut row);
    space(&mut row, store.as_ref(), puts * record, plan.band);
    Ok(row)
}

/// Puts in order without a log: the store ingests them.
fn ingested(plan: &Plan, value: u64, options: &Options) -> Result<Row, Stop> {
    let store = store(plan, Mechanics::Real, options, 1)?;
    let (bytes, record) = ordered(value, options);
    let puts = (bytes / record).max(1);
    let (mut random, mut bytes) = (ChaCha8Rng::seed_from_u64(1), vec![0; value as usize]);
    let begun = store.spent()?;
    let mut ingest = store.kv.ingest().map_err(why)?;
    for n in 0..puts {
        random.fill(&mut bytes[..]);
        ingest.put(&key(n), &bytes).map_err(why)?;
    }
    ingest.finish().map_err(why)?;
    drop(ingest);
    let mut row = ordered_row(puts, record, &store.spent()?.since(&begun));
    store.fill(&mut row);
    space(&mut row, &store, puts * record, plan.band);
    Ok(row)
}

const PUTS: &str = "puts/s";

/// The rate of one part of a load after the other: seconds at full size when it ended, puts a second.
type Rates = Vec<(f64, f64)>;

/// Puts what a row wants into a new store. The same keys whatever the store is.
fn load(
    plan: &Plan,
    puts: u64,
    mechanics: Mechanics,
    options: &Options,
    stopped: &dyn Fn() -> bool,
) -> Result<(Box<dyn Side>, Spent, Rates), Stop> {
    // Service times are added up with real mechanics: only gets count there.
    let pace = if mechanics == Mechanics::Real { Pace::Account } else { Pace::Real(options.speed.unwrap_or(SPEED)) };
    let mut store = side(plan, mechanics, options, (options.scale, pace))?;
    let (begun, mut rates, mut keys) = (store.spent()?, Rates::new(), ChaCha8Rng::seed_from_u64(2));
    let (each, mut told, mut before) = ((puts / WINDOWS).max(1), 0, begun.seconds);
    for n in 0..puts {
        if n % 1024 == 0 && stopped() {
            return Err(Stop::Interrupted);
        }
        let of = if matches!(plan.what, What::Ordered) { n } else { keys.random_range(0..puts) };
        store.put(&key(of), VALUE, false)?;
        if n + 1 - told < each {
            continue;
        }
        let now = store.spent()?.seconds;
        // A part without a flush takes no time, and belongs to the next.
        if now > before {
            let scale = f64::from(options.scale);
            rates.push(((now - begun.seconds) * scale, (n + 1 - told) as f64 / (now - before)));
            (told, before) = (n + 1, now);
        }
    }
    let loaded = store.spent()?.since(&begun);
    Ok((store, loaded, rates))
}

/// Random puts, or puts in order, and then all pairs in order. With real mechanics random keys are read instead.
fn random(plan: &Plan, options: &Options, stopped: &dyn Fn() -> bool) -> Result<(Row, Rates), Stop> {
    let scale = u64::from(options.scale);
    let record = KEY + VALUE as u64;
    let puts = RANDOM / record / scale / if options.short { 20 } else { 1 };
    let (mut store, spent, rates) = load(plan, puts, Mechanics::Scaled, options, stopped)?;
    let (seconds, counts) = (spent.seconds, spent.counts);
    let mut row = Row {
        rule: Rule::All.name().into(),
        device_seconds: Some(seconds),
        operations: Some(puts),
        bytes_user: Some(puts * record),
        bytes_drive: Some(counts.bytes_written),
        bytes_read: Some(counts.bytes_read),
        ..Row::new("", DRIVE)
    }
    .amplified();
    for (cause, spent) in &spent.by_cause {
        row.figures.insert(format!("s at full size, {cause}"), spent * scale as f64);
    }
    let mut sorted: Vec<f64> = rates.iter().map(|(_, rate)| *rate).collect();
    sorted.sort_by(f64::total_cmp);
    for (name, at) in [("least", 0), ("median", sorted.len() / 2)] {
        let rate = sorted.get(at).copied().unwrap_or(0.0);
        row.figures.insert(format!("puts/s of a fiftieth of the load, {name}"), rate);
    }
    store.fill(&mut row);
    let pairs = if matches!(plan.what, What::Ordered) { puts } else { there(puts) as u64 };
    space(&mut row, store.as_ref(), pairs * record, plan.band / scale);
    if plan.policy == LEVELDB {
        row.drive_utilisation = Some(spent.seconds / spent.elapsed.max(1e-9));
        checks::cpu_bound(&mut row);
    }
    let loaded = store.spent()?.seconds;
    store.settle()?;
    row.figures.insert("then settling, s at full size".into(), (store.spent()?.seconds - loaded) * scale as f64);
    let before = store.spent()?.user;
    let pairs = store.all()?;
    let scanned = store.spent()?.user - before;
    row.invalid.extend(store.check()?);
    drop(store);
    let (mut store, ..) = load(plan, puts, Mechanics::Real, options, stopped)?;
    let gets = (GETS / scale / if options.short { 20 } else { 1 }).max(50);
    let mut keys = ChaCha8Rng::seed_from_u64(3);
    let mut before = store.spent()?;
    // Twice, so that tables are open.
    for n in 0..2 * gets {
        if n == gets {
            before = store.spent()?;
        }
        store.get(&key(keys.random_range(0..puts)))?;
    }
    let got = store.spent()?.since(&before);
    row.figures.extend(
        [
            ("s at full size", seconds * scale as f64),
            (PUTS, puts as f64 / seconds),
            ("then all in order, MB/s", (pairs * record) as f64 / 1e6 / scanned.max(1e-9)),
            ("then a get, ms, real mechanics", got.user * 1e3 / gets as f64),
            ("then reads of the drive a get", got.user_reads as f64 / gets as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    Ok((row, rates))
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("one thread on the drive's own clock: it is always the same");
    run.setting(
        "memory at full size, in every row",
        format!("a memtable as large as a band, cache {} MiB, survivor three memtables; LevelDB: two memtables and a survivor of two", CACHE / MIB),
    );
    run.setting("log", "written, and counted");
    run.setting(
        "in order",
        format!(
            "nothing is scaled but the number of puts: {} GB / {}, and {SYNCS} syncs at most",
            IN_ORDER / 1_000_000_000,
            run.options.scale
        ),
    );
    run.setting(
        "random",
        "11 GB at full size, everything divided by the scale, unsynced; gets after a second load with real mechanics",
    );
    let plans = plans();
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    let options = Options { speed: Some(run.speed(Rule::All)), ..run.options.clone() };
    let rates = run.at_once(&names, 1 << 30, |at, stopped| {
        let plan = &plans[at];
        match plan.what {
            What::InOrder { value, sync } => Ok((in_order(plan, value, sync, &options, stopped)?, Rates::new())),
            What::Ingested { value } => Ok((ingested(plan, value, &options)?, Rates::new())),
            What::Random | What::Ordered => random(plan, &options, stopped),
        }
    })?;
    let line = |(plan, rates): (&Plan, &Option<Rates>)| {
        let usual = matches!(plan.what, What::Random) && plan.make.is_none() && plan.band == BAND;
        let points = rates.clone().filter(|_| usual)?;
        Some(Series { name: plan.name.clone(), points })
    };
    run.outcome.charts.push(Chart {
        file: "rates".into(),
        title: "Random puts of 4 KiB, one fiftieth after the other".into(),
        x: Axis::even("s at full size"),
        y: Axis::even(PUTS),
        shape: Shape::Lines(plans.iter().zip(&rates).filter_map(line).collect()),
    });
    let bars = |begins: &str| {
        let bar = |name: &String| Some((name.clone(), *run.measured(name)?.figures.get(PUTS)?, None));
        names.iter().filter(|name| name.starts_with(begins)).filter_map(bar).collect::<Vec<_>>()
    };
    let charts = [
        ("random", "Random puts of 4 KiB", bars("random")),
        ("sync", "Puts of 4 KiB in order", bars("in order, 4 KiB")),
    ];
    for (file, title, bars) in charts {
        run.outcome.charts.push(Chart {
            file: file.into(),
            title: title.into(),
            x: Axis::even(""),
            y: Axis::even(PUTS),
            shape: Shape::Bars(bars),
        });
    }
    Ok(())
}
