//! `store-ceph`: an object store on the emulated disk as an OSD of Debian's Ceph has it: of 16.2 with FileStore and with BlueStore, of 18.2 with BlueStore. Ours is beside it, on the same disk and on a host-managed drive with its mechanics.
//! Writes, reads and creates of objects, and requests to block images, in real time. A write counts when it survives a loss of power. And new objects with metadata, beside
//! files on XFS with a database, as Ceph had it between its two stores.
//!
//! Ceph's side is a whole OSD: `scripts/ceph-side` starts it on a served drive, and its clients come over the loopback. Ours is the store alone, in this process, and each
//! transaction does what an OSD asks its store for. So processors tell of different work, and rates can be compared where the drives are busy.

pub(super) mod ceph;
pub(super) mod load;
pub(super) mod ours;
mod served;
mod xfs;

use super::chart::{Axis, Chart, Series, Shape};
use super::hosts::Disk;
use super::result::{Ratio, Row};
use super::{Experiment, Needs, Options, Rule, Run, Stop, checks};
use ceph::Osd;
use imbrex_emulator::Profile;
use load::{Job, Loaded, Moment, Pattern, Requests};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "store-ceph",
    about: "Objects and a block image in an OSD of Ceph 16.2 or 18.2, with FileStore and BlueStore, and in our store, on drives of the same mechanics",
    paper: "BlueStore, figures 3 and 8 to 11",
    speed: 1.0,
    rows: |_| names(|_, _| true),
    extra: |_| names(|what, side| !what.is_usual(side)),
    needs,
    run,
};

const DRIVE: &str = "hgst-hsh721414al";
/// Bytes of each drive: its outer edge.
const CAPACITY: u64 = 64 << 30;
const KIB: u64 = 1024;
const SIZES: [u64; 6] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB];
const AT_ONCE: [usize; 2] = [16, 1];
/// Bytes of new objects, and of the metadata of each: the paper's section 3.1.3.
const NEW: u64 = 512 * KIB;
const METADATA: usize = 500;
/// Requests at an image, and those of the paper's figure 11.
const IMAGE_AT_ONCE: usize = 32;
const DEEP: usize = 256;
/// Bytes of such a request. The longest go first: what random writes have left of the image before a row is in pieces that are no shorter than its own.
const DEEP_SIZES: [u64; 4] = [4096 * KIB, 512 * KIB, 64 * KIB, 4 * KIB];
/// Seconds of the drive that a row of objects takes, creates, and writes into the image.
const SECONDS: f64 = 10.0;
const CREATES_SECONDS: f64 = 40.0;
const IMAGE_SECONDS: f64 = 20.0;
/// Seconds of a window of creates.
const WINDOW: f64 = 5.0;
/// Creates for much longer, as in the paper's figures 4 and 10: how many at once, how many at most, seconds of the wall at most, and those of the drive in a window.
const MANY_AT_ONCE: usize = 128;
const MANY: u64 = 1_000_000;
const MANY_SECONDS: f64 = 300.0;
const MANY_WINDOW: f64 = 10.0;
/// Bytes that a row of objects writes at most, and those of images: all drives are in memory. A deep queue of the longest requests has 1 GiB.
const BYTES: u64 = 384 << 20;
const IMAGE_BYTES: u64 = 1 << 30;
const DEEP_IMAGE_BYTES: u64 = 2 << 30;
/// Of each size, in their order: objects that are read, 16 at once and one at a time. They are fewer than the slowest side writes in a row, so that all sides read as many,
/// those that were written first.
const READ: [[u64; 2]; SIZES.len()] = [[1500, 500], [1500, 500], [1000, 400], [700, 350], [300, 180], [90, 90]];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ceph(Osd),
    Xfs,
    InPlace,
    Zones,
}

impl Side {
    const ALL: [Side; 6] = [
        Side::Ceph(Osd::FileStore),
        Side::Ceph(Osd::Pacific),
        Side::Ceph(Osd::Reef),
        Side::Xfs,
        Side::InPlace,
        Side::Zones,
    ];

    fn name(self) -> &'static str {
        match self {
            Side::Ceph(osd) => osd.name(),
            Side::Xfs => "XFS",
            Side::InPlace => "ours in place",
            Side::Zones => "ours on zones",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Objects of so many bytes, so many at once.
    Write(u64, usize),
    Read(u64, usize),
    /// Objects of 4 KiB for longer.
    Creates,
    /// The same for much longer.
    ManyCreates,
    /// Requests of so many bytes to an image, so many at once.
    Image(Pattern, u64, usize),
    /// New objects with metadata, so many at once.
    New(usize),
}

impl What {
    /// In the order in which a side does them; each list on a drive of its own.
    fn drives() -> [Vec<What>; 5] {
        let each = |what: fn(u64, usize) -> What| {
            AT_ONCE.into_iter().flat_map(move |at_once| SIZES.map(|size| what(size, at_once)))
        };
        let deep = |pattern| DEEP_SIZES.map(|size| What::Image(pattern, size, DEEP));
        let image = What::Image(Pattern::Random, 4 * KIB, IMAGE_AT_ONCE);
        let objects = each(What::Write).chain([What::Creates]).chain(each(What::Read)).chain([image]);
        // What is read in order must not have been overwritten.
        let overwritten = [deep(Pattern::Reads), deep(Pattern::Random)].concat();
        let (new, written) = (AT_ONCE.map(What::New).to_vec(), deep(Pattern::Writes).to_vec());
        [objects.collect(), vec![What::ManyCreates], new, overwritten, written]
    }

    fn all() -> Vec<What> {
        What::drives().concat()
    }

    /// Whether the side has that row.
    fn is_of(self, side: Side) -> bool {
        match (self, side) {
            (What::New(_), Side::Ceph(_)) => false,
            (What::New(_), _) => true,
            (_, side) => side != Side::Xfs,
        }
    }

    /// Our side, the other one, and how many times its rate ours is to reach.
    fn goals(self) -> Vec<(Side, Side, f64)> {
        match self {
            // The paper's 80 % for one at a time. Sixteen share their flushes on both sides.
            What::New(at_once) => {
                let goal = if at_once == 1 { 1.8 } else { 1.5 };
                [Side::InPlace, Side::Zones].map(|ours| (ours, Side::Xfs, goal)).to_vec()
            }
            _ => GOALS.to_vec(),
        }
    }

    /// Whether the usual form has that side's row.
    fn is_usual(self, side: Side) -> bool {
        let what = match self {
            What::Write(size, at_once) | What::Read(size, at_once) => {
                matches!((size / KIB, at_once), (4 | 64 | 1024, 16) | (4, 1))
            }
            What::Image(_, _, at_once) => at_once == IMAGE_AT_ONCE,
            What::ManyCreates => false,
            What::Creates | What::New(_) => true,
        };
        what && side != Side::Ceph(Osd::Reef)
    }

    /// Whether it takes more room than others.
    fn is_large(self) -> bool {
        matches!(self, What::ManyCreates | What::Image(_, _, DEEP))
    }

    fn name(self) -> String {
        let size = |size: u64| match size / KIB {
            kib if kib < 1024 => format!("{kib} KiB"),
            kib => format!("{} MiB", kib / 1024),
        };
        match self {
            What::Write(bytes, at_once) => format!("writes of {}, {at_once} at once", size(bytes)),
            What::Read(bytes, at_once) => format!("reads of {}, {at_once} at once", size(bytes)),
            What::Creates => format!("creates of 4 KiB over {CREATES_SECONDS} s, 16 at once"),
            What::ManyCreates => {
                let millions = MANY / 1_000_000;
                format!("creates of 4 KiB, {MANY_AT_ONCE} at once, {millions} million or {MANY_SECONDS} s of the wall")
            }
            What::Image(pattern, bytes, at_once) => {
                format!("image, {} of {}, {at_once} at once", pattern.name(), size(bytes))
            }
            What::New(at_once) => {
                format!("new objects of {} with metadata of {METADATA} bytes, {at_once} at once", size(NEW))
            }
        }
    }

    fn of(self, side: Side) -> String {
        format!("{}: {}", self.name(), side.name())
    }
}

fn names(which: impl Fn(What, Side) -> bool) -> Vec<String> {
    let rows = What::all().into_iter().flat_map(|what| Side::ALL.map(|side| (what, side)));
    rows.filter(|(what, side)| what.is_of(*side) && which(*what, *side)).map(|(what, side)| what.of(side)).collect()
}

fn needs(options: &Options) -> Needs {
    let extra = names(|what, side| !what.is_usual(side));
    let large = names(|what, _| what.is_large()).iter().any(|name| options.wants(name, &extra));
    match large && !options.short {
        // A deep queue of long requests is in memory, of the clients and of the store.
        true => Needs { work: 7 << 30, memory: 4 << 30 },
        false => Needs { work: 5 << 30, memory: 2 << 30 },
    }
}

/// How many objects are read at most.
fn read(size: u64, at_once: usize) -> u64 {
    let of = |read: [u64; 2]| AT_ONCE.into_iter().zip(read).find(|(n, _)| *n == at_once).map(|(_, read)| read);
    SIZES.into_iter().zip(READ).find(|(n, _)| *n == size).and_then(|(_, read)| of(read)).unwrap_or(u64::MAX)
}

/// Of what a side does not have.
fn no_such<T>() -> Result<T, Stop> {
    Err("this side does not have such rows".into())
}

/// A store on a drive, or on two.
pub(super) trait Host {
    /// Writes or reads objects.
    fn load(&mut self, _: &Run, _: &Job) -> Result<Loaded, Stop> {
        no_such()
    }
    /// Makes objects with metadata.
    fn create(&mut self, _: &Run, _: &Job) -> Result<Loaded, Stop> {
        no_such()
    }
    /// Closes the store and opens it again: nothing is in memory then.
    fn reopen(&mut self, _: &Run) -> Result<(), Stop> {
        no_such()
    }
    /// Makes an image of so many bytes: of zeros, or written in order.
    fn image(&mut self, _: &Run, _name: &str, _bytes: u64, _written: bool) -> Result<(), Stop> {
        no_such()
    }
    /// Has an image read or written. A write counts when it survives a loss of power.
    fn requests(&mut self, _: &Run, _image: &str, _: &Requests) -> Result<Loaded, Stop> {
        no_such()
    }
    /// Has what waits in memory written.
    fn settle(&mut self) -> Result<(), Stop>;
    /// What drive and store have done by now.
    fn now(&self) -> Result<Moment, Stop>;
}

/// A side that runs.
struct Running {
    host: Box<dyn Host>,
    /// Objects that were written, by what their names begin with.
    written: BTreeMap<String, u64>,
    reopened: bool,
    /// Images that there are.
    images: BTreeSet<String>,
}

impl Running {
    fn start(side: Side, run: &Run) -> Result<Running, Stop> {
        let disk = Disk::named(DRIVE, Rule::Fewer)?;
        let host: Box<dyn Host> = match side {
            Side::Ceph(osd) => Box::new(ceph::Ceph::start(run, osd, (&disk.twin(), None), Some(CAPACITY))?),
            Side::Xfs => Box::new(xfs::Xfs::start(run, &disk.twin())?),
            Side::InPlace => Box::new(ours::Ours::start(run, &disk.twin())?),
            Side::Zones => Box::new(ours::Ours::start(run, &disk)?),
        };
        Ok(Running { host, written: BTreeMap::new(), reopened: false, images: BTreeSet::new() })
    }

    fn row(&mut self, run: &mut Run, side: Side, what: What) -> Result<Row, Stop> {
        let (speed, short) = (run.speed(Rule::Fewer), run.options.short);
        let seconds = |seconds: f64| if short { 0.5 } else { seconds / speed };
        let bytes = |bytes: u64| if short { bytes / 48 } else { bytes };
        let prefix = |size: u64, at_once: usize| format!("bench-{size}-{at_once}-{}", run.repeat());
        let (loaded, size, writes) = match what {
            What::Write(size, at_once) => {
                let job = Job {
                    writes: true,
                    size,
                    at_once,
                    seconds: seconds(SECONDS),
                    objects: (bytes(BYTES) / size).max(2),
                    prefix: prefix(size, at_once),
                };
                (self.write(run, &job)?, size, true)
            }
            What::Creates => {
                let job = Job {
                    writes: true,
                    size: 4 * KIB,
                    at_once: AT_ONCE[0],
                    seconds: seconds(CREATES_SECONDS),
                    objects: bytes(BYTES) / (4 * KIB),
                    prefix: format!("create-{}", run.repeat()),
                };
                (self.write(run, &job)?, 4 * KIB, true)
            }
            What::ManyCreates => {
                let job = Job {
                    writes: true,
                    size: 4 * KIB,
                    at_once: MANY_AT_ONCE,
                    seconds: if short { 0.5 } else { MANY_SECONDS },
                    objects: bytes(MANY),
                    prefix: format!("many-{}", run.repeat()),
                };
                (self.write(run, &job)?, 4 * KIB, true)
            }
            What::Read(size, at_once) => {
                let prefix = prefix(size, at_once);
                let objects = self.written.get(&prefix).copied();
                let objects = objects.ok_or("nothing of that size was written; run the row of its writes, too")?;
                let objects = objects.min(read(size, at_once));
                if !std::mem::replace(&mut self.reopened, true) {
                    self.host.settle()?;
                    self.host.reopen(run)?;
                }
                let job = Job { writes: false, size, at_once, seconds: seconds(SECONDS), objects, prefix };
                (self.host.load(run, &job)?, size, false)
            }
            What::Image(pattern, size, at_once) => {
                let (whole, time) =
                    if at_once == DEEP { (DEEP_IMAGE_BYTES, SECONDS) } else { (IMAGE_BYTES, IMAGE_SECONDS) };
                let (written, whole) = (pattern != Pattern::Writes, bytes(whole) >> 22 << 22);
                let image = if written { format!("disk-{at_once}") } else { format!("new-{size}-{}", run.repeat()) };
                if self.images.insert(image.clone()) {
                    self.host.image(run, &image, whole, written)?;
                    self.settled(run)?;
                }
                if pattern == Pattern::Reads {
                    self.host.settle()?;
                    self.host.reopen(run)?;
                }
                let requests = Requests { pattern, size, at_once, seconds: seconds(time), bytes: whole };
                (self.host.requests(run, &image, &requests)?, size, pattern != Pattern::Reads)
            }
            What::New(at_once) => {
                let job = Job {
                    writes: true,
                    size: NEW,
                    at_once,
                    seconds: seconds(SECONDS),
                    objects: bytes(BYTES) / NEW,
                    prefix: format!("new-{at_once}-{}", run.repeat()),
                };
                (self.host.create(run, &job)?, NEW, true)
            }
        };
        let settling = if writes { self.settled(run)? } else { 0.0 };
        let window = match what {
            What::Creates => Some(WINDOW),
            What::ManyCreates => Some(MANY_WINDOW),
            _ => None,
        };
        if what == What::ManyCreates {
            drawn(run, side, load::over_time(&loaded, speed, MANY_WINDOW));
        }
        let mut row = load::row(&loaded, (size, writes), (settling, speed), window);
        checks::cpu_bound(&mut row);
        Ok(row)
    }

    fn write(&mut self, run: &Run, job: &Job) -> Result<Loaded, Stop> {
        let loaded = self.host.load(run, job)?;
        self.written.insert(job.prefix.clone(), loaded.operations);
        Ok(loaded)
    }

    /// Has what waits written, and waits until the drive rests. Returns how long that took.
    fn settled(&mut self, run: &Run) -> Result<f64, Stop> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let quiet = Duration::from_millis(if run.options.short { 100 } else { 1000 });
        let begun = Instant::now();
        self.host.settle()?;
        let (mut last, mut written) = (Instant::now(), self.host.now()?.counts.bytes_written);
        while last.elapsed() < quiet && begun.elapsed() < PATIENCE {
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(50));
            let now = self.host.now()?.counts.bytes_written;
            if now != written {
                (last, written) = (Instant::now(), now);
            }
        }
        Ok((last - begun).as_secs_f64())
    }
}

/// Adds a line to the chart of creates.
fn drawn(run: &mut Run, side: Side, points: Vec<(f64, f64)>) {
    let name = match run.repeat() {
        0 => side.name().to_owned(),
        repeat => format!("{} (run {})", side.name(), repeat + 1),
    };
    let line = Series { name, points };
    if let Some(Chart { shape: Shape::Lines(lines), .. }) = run.outcome.charts.first_mut() {
        return lines.push(line);
    }
    run.outcome.charts.push(Chart {
        file: "creates".into(),
        title: format!("Creates of 4 KiB, {MANY_AT_ONCE} at once"),
        x: Axis::even("seconds of the drive"),
        y: Axis::even("creates a second"),
        shape: Shape::Lines(vec![line]),
    });
}

/// What our sides are to reach, times the rate of theirs.
const GOALS: [(Side, Side, f64); 6] = [
    (Side::InPlace, Side::Ceph(Osd::FileStore), 1.5),
    (Side::Zones, Side::Ceph(Osd::FileStore), 1.5),
    (Side::InPlace, Side::Ceph(Osd::Pacific), 1.0),
    (Side::Zones, Side::Ceph(Osd::Pacific), 1.2),
    (Side::InPlace, Side::Ceph(Osd::Reef), 1.0),
    (Side::Zones, Side::Ceph(Osd::Reef), 1.2),
];

fn ratios(run: &mut Run) {
    let rate = |row: &Row| row.figures.get(load::RATE).copied();
    let (mut ratios, mut fraction) = (Vec::new(), Vec::new());
    for what in What::all() {
        for (ours, theirs, goal) in what.goals() {
            let pairs = run.pairs(&what.of(ours), &what.of(theirs), rate);
            let name = format!("{}: rate {} over that of {}", what.name(), ours.name(), theirs.name());
            let Some(mut ratio) = Ratio::of(name, &pairs) else { continue };
            ratio.goal = Some(goal);
            for side in [ours, theirs] {
                let flags = run.measured(&what.of(side)).map(|row| row.flags.clone()).unwrap_or_default();
                ratio.flags.extend(flags.into_iter().map(|flag| format!("{}: {flag}", side.name())));
            }
            fraction.push(ratio.median >= goal);
            ratios.push(ratio);
        }
    }
    run.outcome.ratios.extend(ratios);
    let reached = fraction.iter().filter(|reached| **reached).count();
    if !fraction.is_empty() {
        run.outcome.notes.push(format!("{reached} of {} ratios reach their goals.", fraction.len()));
    }
}

fn profile() -> Result<Profile, Stop> {
    Ok(Disk::named(DRIVE, Rule::Fewer)?.profile)
}

fn settings(run: &mut Run) -> Result<(), Stop> {
    run.model(&profile()?);
    run.setting("drives", format!("{} GiB, the outer edge of {DRIVE}; a conventional disk of its mechanics for all but the zones; write cache on", CAPACITY >> 30));
    run.setting("Ceph", "one OSD, one monitor, clients in Python or `rbd bench` over the loopback, 8 placement groups, no replicas, no authentication; osd_memory_target 1 GiB");
    run.setting("Ceph 18.2", "the same, with osd_op_queue wpq, as 16.2 has it");
    run.setting("FileStore", "on XFS, with a journal of 1 GiB in the same file system, 1 GiB of page cache");
    run.setting("XFS", format!("files that are written and fsynced, and a LevelDB with synced puts of {METADATA} bytes beside them, by threads of Python; 1 GiB of page cache"));
    run.setting("ours", ours::memory());
    run.setting(
        "an object",
        "bytes; ours with attributes of 250 and 35 bytes, and a record of 180 bytes in one of 8 logs of 3,000 in all, in one transaction",
    );
    run.setting(
        "a new object with metadata",
        format!("ours: bytes and one attribute of {METADATA} bytes, in one transaction"),
    );
    run.setting(
        "a row",
        format!("{SECONDS} s of the drive or {} MiB; reads behind a restart, at most {SECONDS} s, each object once, as many on all sides", BYTES >> 20),
    );
    run.setting("a write", "counts when it survives a loss of power; of an image, too (rbd_cache off)");
    run.setting(
        "an image",
        format!("{} GiB, and {} GiB with {DEEP} at once; written in order before it is read or written at random, and new where it is written in order; read behind a restart", IMAGE_BYTES >> 30, DEEP_IMAGE_BYTES >> 30),
    );
    Ok(())
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.real_mechanics_at(run.options.speed.unwrap_or(1.0));
    settings(run)?;
    // The short form measures nothing, and an OSD takes long to begin: one drive has all rows.
    let drives = if run.options.short { vec![What::all()] } else { What::drives().to_vec() };
    for side in Side::ALL {
        for whats in drives.clone() {
            // Begins with the first row that is wanted, and is taken down before the next one.
            let mut running: Option<Result<Running, Stop>> = None;
            for what in whats.into_iter().filter(|what| what.is_of(side)) {
                run.row(&what.of(side), |run| {
                    let running = running.get_or_insert_with(|| Running::start(side, run));
                    match running {
                        Ok(running) => running.row(run, side, what),
                        Err(why) => Err(why.clone()),
                    }
                })?;
            }
        }
    }
    ratios(run);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_in_order_was_not_overwritten() {
        // Also on a drive that has all rows.
        let all = What::all();
        let place = |of: What| all.iter().position(|what| *what == of).unwrap();
        let read = DEEP_SIZES.map(|size| place(What::Image(Pattern::Reads, size, DEEP)));
        let overwritten = DEEP_SIZES.map(|size| place(What::Image(Pattern::Random, size, DEEP)));
        assert!(read.iter().max() < overwritten.iter().min(), "{read:?} {overwritten:?}");
    }

    #[test]
    fn names_tell_rows_apart() {
        let all = names(|_, _| true);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        let usual = names(What::is_usual);
        assert!(usual.contains(&"image, random writes of 4 KiB, 32 at once: ours on zones".to_owned()), "{usual:?}");
        let not = |words: &str| usual.iter().all(|name| !name.contains(words));
        assert!(not("256 at once") && not("Ceph 18.2"), "{usual:?}");
    }
}
