//! `kv-smrdb`: SMRDB's microbenchmarks on the key-value store: puts in order with values of several sizes, synced every so often; random puts with SMRDB's policy
//! (*SOC* there) and with levels whose tables are bands (*LOC*), and with ring; what begins a merge; how large bands are.

use super::chart::{Axis, Chart, Series, Shape};
use super::kv_store::{CACHE, DRIVE, KEY, MIB, Plan as Load, Store};
use super::result::Row;
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_emulator::Emulator;
use imbrex_emulator::time::Mechanics;
use imbrex_kv::policy::{Band, Policy, Sizes};
use imbrex_kv::{MakePolicy, Options as KvOptions};
use imbrex_zones::VolumeOptions;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-smrdb",
    about: "SMRDB's puts on the key-value store: values of several sizes, syncs, what begins a merge, sizes of bands",
    paper: "SMRDB (SYSTOR 2015), Figures 8 to 13 and 15",
    speed: 1.0,
    rows: |_| plans().into_iter().map(|plan| plan.name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 4 << 30 },
    run,
};

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
    /// 16 + 4,096 bytes in random order.
    Random,
    /// The same in the order of the keys.
    Ordered,
}

#[derive(Clone)]
struct Plan {
    name: String,
    policy: &'static str,
    make: Option<MakePolicy>,
    band: u64,
    what: What,
}

fn plans() -> Vec<Plan> {
    let mut all = Vec::new();
    for (value, text) in [(100, "100 B"), (4096, "4 KiB"), (102_400, "100 KiB")] {
        for sync in [1, 10, 100, 1000, 0] {
            let often = if sync == 0 { "never synced".to_owned() } else { format!("synced every {sync}") };
            let name = format!("in order, {text}, {often}");
            all.push(Plan { name, policy: "band", make: None, band: BAND, what: What::InOrder { value, sync } });
        }
    }
    let random = |name: String, policy, make, band| Plan { name, policy, make, band, what: What::Random };
    all.extend([
        random("random: band (SOC)".into(), "band", None, BAND),
        random("random: levels of bands (LOC)".into(), "leveled", None, BAND),
        random("random: ring".into(), "ring", None, BAND),
    ]);
    for (policy, text) in [("band", "band (SOC)"), ("leveled", "levels of bands (LOC)"), ("ring", "ring")] {
        let name = format!("in order, 11 GB, then gets: {text}");
        all.push(Plan { name, policy, make: None, band: BAND, what: What::Ordered });
    }
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
    let zones = u32::try_from(DRIVE_BYTES / plan.band).unwrap_or(u32::MAX);
    let drive = Emulator::memory(&Store::drive(scale, zones, zone, mechanics)?).map_err(why)?;
    Store::with(drive, None, kv, scale)
}

fn key(n: u64) -> [u8; KEY as usize] {
    let mut key = [b'0'; KEY as usize];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn in_order(plan: &Plan, value: u64, sync: u64, options: &Options) -> Result<Row, Stop> {
    let mut store = store(plan, Mechanics::Real, options, 1)?;
    let bytes = IN_ORDER / u64::from(options.scale) / if options.short { 50 } else { 1 };
    let puts = bytes / (KEY + value);
    let puts = if sync == 0 { puts } else { puts.min(SYNCS * sync) }.max(1);
    let (mut random, mut bytes) = (ChaCha8Rng::seed_from_u64(1), vec![0; value as usize]);
    let begun = store.start();
    for n in 0..puts {
        random.fill(&mut bytes[..]);
        let synced = sync > 0 && (n + 1) % sync == 0;
        store.kv.put(&key(n), &bytes, synced).map_err(why)?;
    }
    // What waits in memory is written sooner or later.
    store.kv.sync().map_err(why)?;
    let now = store.at();
    let (seconds, counts) = (now.seconds - begun.seconds, now.counts.since(&begun.counts));
    let mut row = Row {
        rule: Rule::Fewer.name().into(),
        device_seconds: Some(seconds),
        operations: Some(puts),
        bytes_user: Some(puts * (KEY + value)),
        bytes_drive: Some(counts.bytes_written),
        flushes: Some(counts.flushes),
        ..Row::new("", DRIVE)
    }
    .amplified();
    row.figures.insert(PUTS.into(), puts as f64 / seconds.max(1e-9));
    row.figures.insert("MB/s".into(), (puts * (KEY + value)) as f64 / 1e6 / seconds.max(1e-9));
    Ok(row)
}

const PUTS: &str = "puts/s";

/// The rate of one part of a load after the other: seconds at full size when it ended, puts a second.
type Rates = Vec<(f64, f64)>;

/// Random puts, or puts in order, and then all pairs in order. With real mechanics random keys are read instead.
fn random(plan: &Plan, options: &Options, stopped: &dyn Fn() -> bool) -> Result<(Row, Rates), Stop> {
    let scale = u64::from(options.scale);
    let record = KEY + super::kv_store::VALUE as u64;
    let puts = RANDOM / record / scale / if options.short { 20 } else { 1 };
    let load = |mechanics| -> Result<(Store, super::kv_store::At, Rates), Stop> {
        let mut store = store(plan, mechanics, options, options.scale)?;
        let (begun, mut rates) = (store.start(), Rates::new());
        let (each, mut told, mut before) = ((puts / WINDOWS).max(1), 0, begun.seconds);
        for n in 0..puts {
            if n % 1024 == 0 && stopped() {
                return Err(Stop::Interrupted);
            }
            if matches!(plan.what, What::Ordered) { store.put_number(n) } else { store.put_random(puts) }?;
            let now = store.at().seconds;
            // A part without a flush takes no time, and belongs to the next.
            if n + 1 - told >= each && now > before {
                rates.push(((now - begun.seconds) * scale as f64, (n + 1 - told) as f64 / (now - before)));
                (told, before) = (n + 1, now);
            }
        }
        Ok((store, begun, rates))
    };
    let (mut store, begun, rates) = load(Mechanics::Scaled)?;
    let now = store.at();
    let (seconds, counts) = (now.seconds - begun.seconds, now.counts.since(&begun.counts));
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
    for (cause, spent) in now.spent_since(&begun) {
        row.figures.insert(format!("s at full size, {cause}"), spent * scale as f64);
    }
    let mut sorted: Vec<f64> = rates.iter().map(|(_, rate)| *rate).collect();
    sorted.sort_by(f64::total_cmp);
    for (name, at) in [("least", 0), ("median", sorted.len() / 2)] {
        let rate = sorted.get(at).copied().unwrap_or(0.0);
        row.figures.insert(format!("puts/s of a fiftieth of the load, {name}"), rate);
    }
    let figures = store.kv.figures();
    let (pairs, scanned) = store.scan_all()?;
    row.invalid.extend(store.kv.check().map_err(why)?);
    drop(store);
    let (mut store, ..) = load(Mechanics::Real)?;
    let gets = (GETS / scale / if options.short { 20 } else { 1 }).max(50);
    // So that tables are open.
    store.gets(gets, puts)?;
    let before = store.start();
    store.gets(gets, puts)?;
    let got = store.at().seconds - before.seconds;
    row.figures.extend(
        [
            ("s at full size", seconds * scale as f64),
            (PUTS, puts as f64 / seconds),
            ("then all in order, MB/s", (pairs * record) as f64 / 1e6 / scanned.max(1e-9)),
            ("then a get, ms, real mechanics", got * 1e3 / gets as f64),
            ("runs that a key is in at most", figures.depth as f64),
            ("zones in use", f64::from(figures.zones.0)),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    Ok((row, rates))
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("one thread on the drive's own clock: it is always the same");
    run.setting(
        "memory at full size, in every row",
        format!("a memtable as large as a band, cache {} MiB, survivor three memtables", CACHE / MIB),
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
    let options = run.options.clone();
    let rates = run.at_once(&names, 1 << 30, |at, stopped| {
        let plan = &plans[at];
        match plan.what {
            What::InOrder { value, sync } => Ok((in_order(plan, value, sync, &options)?, Rates::new())),
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
