//! `store-ceph`: an object store on the emulated disk as an OSD of Debian's Ceph 16.2 has it, with FileStore and with BlueStore, beside ours on the same disk and on a host-managed drive with its mechanics.
//! Writes, reads and creates of objects, and random writes into a block image, in real time. A write counts when it survives a loss of power.
//!
//! Ceph's side is a whole OSD: `scripts/ceph-side` starts it on a served drive, and its clients come over the loopback. Ours is the store alone, in this process, and each
//! transaction does what an OSD asks its store for. So processors tell of different work, and rates can be compared where the drives are busy.

pub(super) mod ceph;
pub(super) mod load;
pub(super) mod ours;

use super::hosts::Disk;
use super::result::{Ratio, Row};
use super::{Experiment, Needs, Rule, Run, Stop, checks};
use imbrex_emulator::Profile;
use load::{Job, Loaded, Moment};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "store-ceph",
    about: "Objects and a block image in an OSD of Ceph 16.2, with FileStore and BlueStore, and in our store, on drives of the same mechanics",
    paper: "BlueStore, figures 8 to 11",
    speed: 1.0,
    rows: |_| names(|_| true),
    extra: |_| names(|what| !what.is_usual()),
    needs: |_| Needs { work: 5 << 30, memory: 2 << 30 },
    run,
};

const DRIVE: &str = "hgst-hsh721414al";
/// Bytes of each drive: its outer edge.
const CAPACITY: u64 = 64 << 30;
const KIB: u64 = 1024;
const SIZES: [u64; 6] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB];
const AT_ONCE: [usize; 2] = [16, 1];
/// Of the clients of the image.
const IMAGE_AT_ONCE: usize = 32;
/// Seconds of the drive that a row of objects takes, creates, and writes into the image.
const SECONDS: f64 = 10.0;
const CREATES_SECONDS: f64 = 40.0;
const IMAGE_SECONDS: f64 = 20.0;
/// Seconds of a window of creates.
const WINDOW: f64 = 5.0;
/// Bytes that a row of objects writes at most, and those of the image: all drives are in memory.
const BYTES: u64 = 384 << 20;
const IMAGE_BYTES: u64 = 1 << 30;
/// Of each size, in their order: objects that are read, 16 at once and one at a time. They are fewer than the slowest side writes in a row, so that all sides read as many,
/// those that were written first.
const READ: [[u64; 2]; SIZES.len()] = [[1500, 500], [1500, 500], [1000, 400], [700, 350], [300, 180], [90, 90]];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    FileStore,
    BlueStore,
    InPlace,
    Zones,
}

impl Side {
    const ALL: [Side; 4] = [Side::FileStore, Side::BlueStore, Side::InPlace, Side::Zones];

    fn name(self) -> &'static str {
        match self {
            Side::FileStore => "Ceph's FileStore",
            Side::BlueStore => "Ceph's BlueStore",
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
    /// Random writes of 4 KiB.
    Image,
}

impl What {
    /// In the order in which a side does them.
    fn all() -> Vec<What> {
        let each = |what: fn(u64, usize) -> What| {
            AT_ONCE.into_iter().flat_map(move |at_once| SIZES.map(|size| what(size, at_once)))
        };
        each(What::Write).chain([What::Creates]).chain(each(What::Read)).chain([What::Image]).collect()
    }

    /// Whether the usual form has it.
    fn is_usual(self) -> bool {
        match self {
            What::Write(size, at_once) | What::Read(size, at_once) => {
                matches!((size / KIB, at_once), (4 | 64 | 1024, 16) | (4, 1))
            }
            What::Creates | What::Image => true,
        }
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
            What::Image => format!("image, random writes of 4 KiB, {IMAGE_AT_ONCE} at once"),
        }
    }

    fn of(self, side: Side) -> String {
        format!("{}: {}", self.name(), side.name())
    }
}

fn names(which: impl Fn(What) -> bool) -> Vec<String> {
    let whats = What::all().into_iter().filter(|what| which(*what));
    whats.flat_map(|what| Side::ALL.map(|side| what.of(side))).collect()
}

/// How many objects are read at most.
fn read(size: u64, at_once: usize) -> u64 {
    let of = |read: [u64; 2]| AT_ONCE.into_iter().zip(read).find(|(n, _)| *n == at_once).map(|(_, read)| read);
    SIZES.into_iter().zip(READ).find(|(n, _)| *n == size).and_then(|(_, read)| of(read)).unwrap_or(u64::MAX)
}

/// A store on a drive, or on two.
pub(super) trait Host {
    /// Writes or reads objects.
    fn load(&mut self, run: &Run, job: &Job) -> Result<Loaded, Stop>;
    /// Closes the store and opens it again: nothing is in memory then.
    fn reopen(&mut self, run: &Run) -> Result<(), Stop>;
    /// Makes an image of so many bytes, written in order.
    fn image(&mut self, run: &Run, bytes: u64) -> Result<(), Stop>;
    /// Writes 4 KiB at random into it for so many seconds, so many at once.
    fn overwrite(&mut self, run: &Run, seconds: f64, at_once: usize) -> Result<Loaded, Stop>;
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
    imaged: bool,
}

impl Running {
    fn start(side: Side, run: &Run) -> Result<Running, Stop> {
        let disk = Disk::named(DRIVE, Rule::Fewer)?;
        let host: Box<dyn Host> = match side {
            Side::FileStore | Side::BlueStore => {
                Box::new(ceph::Ceph::start(run, side == Side::BlueStore, (&disk.twin(), None), Some(CAPACITY))?)
            }
            Side::InPlace => Box::new(ours::Ours::start(run, &disk.twin())?),
            Side::Zones => Box::new(ours::Ours::start(run, &disk)?),
        };
        Ok(Running { host, written: BTreeMap::new(), reopened: false, imaged: false })
    }

    fn row(&mut self, run: &Run, what: What) -> Result<Row, Stop> {
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
            What::Image => {
                if !std::mem::replace(&mut self.imaged, true) {
                    self.host.image(run, bytes(IMAGE_BYTES) >> 22 << 22)?;
                    self.settled(run)?;
                }
                let seconds = seconds(IMAGE_SECONDS).max(2.0);
                (self.host.overwrite(run, seconds, IMAGE_AT_ONCE)?, 4 * KIB, true)
            }
        };
        let settling = if writes { self.settled(run)? } else { 0.0 };
        let windows = (what == What::Creates).then_some(WINDOW);
        let mut row = load::row(&loaded, (size, writes), (settling, speed), windows);
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
        const QUIET: Duration = Duration::from_secs(1);
        const PATIENCE: Duration = Duration::from_secs(30);
        let begun = Instant::now();
        self.host.settle()?;
        let (mut last, mut written) = (Instant::now(), self.host.now()?.counts.bytes_written);
        while last.elapsed() < QUIET && begun.elapsed() < PATIENCE {
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

/// What our sides are to reach, times the rate of theirs.
const GOALS: [(Side, Side, f64); 4] = [
    (Side::InPlace, Side::FileStore, 1.5),
    (Side::Zones, Side::FileStore, 1.5),
    (Side::InPlace, Side::BlueStore, 1.0),
    (Side::Zones, Side::BlueStore, 1.2),
];

fn ratios(run: &mut Run) {
    let rate = |row: &Row| row.figures.get(load::RATE).copied();
    let (mut ratios, mut fraction) = (Vec::new(), Vec::new());
    for what in What::all() {
        for (ours, theirs, goal) in GOALS {
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
    run.setting("FileStore", "on XFS, with a journal of 1 GiB in the same file system, 1 GiB of page cache");
    run.setting("ours", ours::memory());
    run.setting(
        "an object",
        "bytes; ours with attributes of 250 and 35 bytes, and a record of 180 bytes in one of 8 logs of 3,000 in all, in one transaction",
    );
    run.setting(
        "a row",
        format!("{SECONDS} s of the drive or {} MiB; reads behind a restart, at most {SECONDS} s, each object once, as many on all sides", BYTES >> 20),
    );
    run.setting("a write", "counts when it survives a loss of power; of the image, too (rbd_cache off)");
    Ok(())
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.real_mechanics_at(run.options.speed.unwrap_or(1.0));
    settings(run)?;
    for side in Side::ALL {
        // Begins with the first row that is wanted, and is taken down before the next one.
        let mut running: Option<Result<Running, Stop>> = None;
        for what in What::all() {
            run.row(&what.of(side), |run| {
                let running = running.get_or_insert_with(|| Running::start(side, run));
                match running {
                    Ok(running) => running.row(run, what),
                    Err(why) => Err(why.clone()),
                }
            })?;
        }
    }
    ratios(run);
    Ok(())
}
