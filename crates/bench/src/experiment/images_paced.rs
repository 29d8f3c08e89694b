//! `images-paced`: how long reads and writes of a block image take that arrive at fixed times, while the store's own thread cleans, on a drive that keeps real time. The image is made on the drive's clock
//! as in `images`; the store is closed and opened with its threads. The processor's time counts, and what else runs on the machine.

use super::chart::{Axis, Chart, Series, Shape};
use super::images::{BLOCK, Before, DRIVE, FULL, Side, bytes, store_options};
use super::result::{Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_bluestore::{BlueStore, Survives};
use imbrex_device::Drive;
use imbrex_emulator::time::Pace;
use imbrex_image::{Image, Images};
use imbrex_store::Store;
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "images-paced",
    about: "Reads and writes of a block image that arrive at fixed times, in real time and beside the thread that cleans",
    paper: "none",
    speed: 1.0,
    rows: |_| ROWS.iter().map(|(name, _)| (*name).to_owned()).collect(),
    extra: super::NONE,
    needs: |options| Needs { work: 0, memory: 2 * bytes(options) + (1 << 30) },
    run,
};

/// The second is beside the first: one has next to nothing to clean, as it has room.
const ROWS: [(&str, Before); 2] = [
    ("nothing is cleaned: image written in order", Before::Loaded(FULL)),
    ("while it is cleaned: image overwritten at random", Before::Random(FULL)),
];
/// Of what the store takes of one client that waits for nothing.
const PART: f64 = 0.5;
/// Operations from which that is measured.
const SUSTAINED: u64 = 100_000;
/// Requests that a server has under way at once.
const CLIENTS: usize = 32;
/// One operation in so many is a read. A disk does a hundred a second, and ten times as many writes.
const READS: u32 = 20;
/// Seconds that arrivals go on; and what of these is left out, until the store gets used to the rate.
const SECONDS: f64 = 180.0;
const LEFT_OUT: f64 = 0.25;

/// An operation at random.
struct Operation {
    at: u64,
    reads: bool,
}

impl Operation {
    fn any(random: &mut impl Rng, blocks: u64) -> Operation {
        Operation { at: random.random_range(0..blocks) * BLOCK, reads: random.random_ratio(1, READS) }
    }

    fn carry_out(&self, image: &Image, bytes: &mut [u8]) -> Result<(), Stop> {
        match self.reads {
            true => image.read(self.at, bytes).map_err(why),
            false => image.write(self.at, bytes, Survives::Process).map_err(why),
        }
    }
}

/// How long each took after its time, in seconds: reads and writes, ascending.
type Waits = [Vec<f64>; 2];

/// What arrives, how fast the drive's time runs, and who says that it is over.
struct Arrivals<'a> {
    /// Operations a second of the drive.
    rate: f64,
    speed: f64,
    next: AtomicU64,
    stopped: &'a AtomicBool,
}

/// One client of those that take what arrives next, as long as something does.
fn client(image: &Image, blocks: u64, begun: Instant, from: &Arrivals<'_>) -> Result<Waits, Stop> {
    let mut waits = Waits::default();
    let mut bytes = vec![0; BLOCK as usize];
    loop {
        let n = from.next.fetch_add(1, Ordering::Relaxed);
        let arrives = n as f64 / from.rate;
        if arrives > SECONDS || from.stopped.load(Ordering::Relaxed) {
            return Ok(waits);
        }
        let arrives_at = begun + Duration::from_secs_f64(arrives / from.speed);
        std::thread::sleep(arrives_at.saturating_duration_since(Instant::now()));
        // Whoever takes it, it is the same one.
        let mut random = ChaCha8Rng::seed_from_u64(n);
        let operation = Operation::any(&mut random, blocks);
        random.fill(&mut bytes[..]);
        operation.carry_out(image, &mut bytes)?;
        if arrives >= SECONDS * LEFT_OUT {
            waits[usize::from(!operation.reads)].push((Instant::now() - arrives_at).as_secs_f64() * from.speed);
        }
    }
}

/// Returns how many operations there were, too.
fn pace(image: &Image, blocks: u64, from: &Arrivals<'_>) -> Result<(Waits, u64), Stop> {
    let begun = Instant::now();
    let mut all = std::thread::scope(|scope| {
        let clients = [(); CLIENTS].map(|()| scope.spawn(|| client(image, blocks, begun, from)));
        clients.into_iter().try_fold(Waits::default(), |mut all, client| {
            let waits = client.join().map_err(|_| Stop::Failed("a client has panicked".into()))??;
            all.iter_mut().zip(waits).for_each(|(all, waits)| all.extend(waits));
            Ok::<_, Stop>(all)
        })
    })?;
    all.iter_mut().for_each(|waits| waits.sort_by(f64::total_cmp));
    // The numbers behind the last one were each client's last.
    Ok((all, from.next.load(Ordering::Relaxed) - CLIENTS as u64))
}

/// Operations a second of the drive's clock, of one client, with all cleaning that they need.
fn sustained(side: &mut Side, run: &Run) -> Result<f64, Stop> {
    let elapsed = |side: &Side| side.drive.time().map_or(0.0, |time| time.elapsed);
    let (before, mut random) = (elapsed(side), ChaCha8Rng::seed_from_u64(3));
    let mut bytes = vec![0; BLOCK as usize];
    for n in 0..SUSTAINED {
        if n % 1024 == 0 && run.stopped() {
            return Err(Stop::Interrupted);
        }
        random.fill(&mut bytes[..]);
        Operation::any(&mut random, side.size / BLOCK).carry_out(&side.image, &mut bytes)?;
    }
    Ok(SUSTAINED as f64 / (elapsed(side) - before))
}

/// What is said of all waits, per cent of which are shorter.
const PERCENTILES: [(f64, &str); 4] = [(50.0, "p50"), (99.0, "p99"), (99.9, "p99.9"), (100.0, "longest")];
const OPERATIONS: [&str; 2] = ["reads", "writes"];
const MOVED: &str = "MB moved";
const P99: [&str; 2] = ["p99 of reads, ms", "p99 of writes, ms"];

fn row(before: Before, rate: f64, run: &Run) -> Result<Row, Stop> {
    let side = Side::new(run.options, before, run)?;
    let (drive, blocks) = (side.drive.clone(), side.size / BLOCK);
    drop(side);
    // A drive keeps one kind of time.
    let (drive, speed) = (drive.fork().map_err(why)?, run.speed(Rule::All));
    drive.keep_own_time(Pace::Real { speed }).map_err(why)?;
    let handle = Drive { device: Arc::new(drive.clone()), survivor: None };
    let store = Store::open(handle, store_options(run.options, Exec::Threads(1))).map_err(why)?;
    let image = Images::open(BlueStore::clone(&store), ()).and_then(|images| images.image("image", false));
    let image = image.map_err(why)?;
    drive.reset_stats();
    let busy = || drive.time().map_or(0.0, |time| time.total.busy());
    let (begun, before, moved) = (Instant::now(), busy(), store.usage().moved);
    let arrivals = Arrivals { rate, speed, next: AtomicU64::new(0), stopped: &run.interrupted };
    let (waits, operations) = pace(&image, blocks, &arrivals)?;
    if run.stopped() {
        return Err(Stop::Interrupted);
    }
    let (wall, seconds, counts) = (begun.elapsed().as_secs_f64(), busy() - before, drive.stats().total);
    let mut row = Row {
        rule: Rule::All.name().into(),
        device_seconds: Some(seconds),
        wall_seconds: Some(wall),
        operations: Some(operations),
        bytes_drive: Some(counts.bytes_written),
        bytes_read: Some(counts.bytes_read),
        ..Row::new("", DRIVE)
    };
    row.figures.insert("operations/s that arrive".into(), rate);
    row.figures.insert("part of the time that the drive is busy".into(), seconds / (wall * speed));
    let time = drive.time();
    for (cause, seconds) in time.iter().flat_map(|time| &time.by_cause) {
        row.figures.insert(format!("seconds of {cause}"), seconds.busy());
    }
    row.figures.insert(MOVED.into(), (store.usage().moved - moved) as f64 / 1e6);
    for (waits, what) in waits.iter().zip(OPERATIONS) {
        for (percent, name) in PERCENTILES {
            let at = (waits.len() as f64 * percent / 100.0).ceil() as usize;
            let wait = waits.get(at.saturating_sub(1)).copied().unwrap_or_default();
            row.figures.insert(format!("{name} of {what}, ms"), wait * 1e3);
        }
    }
    Ok(row)
}

/// How long the slowest of so many took.
fn chart(run: &mut Run) {
    let line = |name: &str, what: &str| {
        let figures = &run.measured(name)?.figures;
        // Of the longest nobody knows how many there would be.
        let known = PERCENTILES.iter().filter(|(percent, _)| *percent < 100.0);
        let point = |(percent, of): &(f64, &str)| {
            Some((100.0 / (100.0 - percent), figures.get(&format!("{of} of {what}, ms"))?.max(1e-3)))
        };
        Some(Series { name: format!("{what}, {name}"), points: known.filter_map(point).collect() })
    };
    let lines = ROWS.iter().flat_map(|(name, _)| OPERATIONS.map(|what| line(name, what))).flatten().collect();
    run.outcome.charts.push(Chart {
        file: "waits".into(),
        title: "Operations that arrive at fixed times: how long the slowest of so many takes".into(),
        x: Axis::log("operations of which one takes as long"),
        y: Axis::log("ms of the drive, a microsecond at least"),
        shape: Shape::Lines(lines),
    });
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("image", format!("of {FULL} % of the drive; one operation in {READS} is a read; {CLIENTS} clients"));
    run.setting(
        "rate",
        format!("{PART} of what one client reaches on the drive's clock, with all cleaning that it needs"),
    );
    run.setting("ms", "of the drive's time, from the moment that an operation was to arrive until it has ended; a write outlives the process then");
    let mut rate = None;
    for (name, before) in ROWS {
        run.row(name, |run| {
            let rate = match rate {
                Some(rate) => rate,
                None => {
                    let mut side = Side::new(run.options, Before::Random(FULL), run)?;
                    *rate.insert(PART * sustained(&mut side, run)?)
                }
            };
            row(before, rate, run)
        })?;
    }
    chart(run);
    let moved = |row: usize| run.measured(ROWS[row].0).and_then(|row| row.figures.get(MOVED).copied());
    // The first fills its room in the end.
    if !matches!((moved(0), moved(1)), (Some(little), Some(moved)) if 20.0 * little < moved) {
        // They tell nothing of cleaning.
        return Ok(());
    }
    for what in P99 {
        let each = run.pairs(ROWS[0].0, ROWS[1].0, |row| row.figures.get(what).copied());
        let ratio = Ratio::of(format!("{what}: nothing is cleaned over while it is cleaned"), &each);
        run.outcome.ratios.extend(ratio.map(|ratio| Ratio { goal: Some(1.0 / 1.5), ..ratio }));
    }
    Ok(())
}
