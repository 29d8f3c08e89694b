//! `store-objects`: many objects in an object store on a host-managed drive of 20 TB, on that drive's clock. How steadily they are made, what dividing and listing their collection takes, what a clone
//! writes, and what an opening takes after a kill and after a loss of power. One thread; what is made at once is made durable together.

use super::chart::{Axis, Chart, Shape};
use super::kv_store::{CACHE, DRIVE, MEMTABLE, MIB, Store as Scaled, ZONE};
use super::result::{Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_bluestore::{CollectionId, Hint, ObjectId, Transaction};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::Emulator;
use imbrex_emulator::time::{Mechanics, Pace};
use imbrex_store::{Options as StoreOptions, Store};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;
use std::time::Instant;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "store-objects",
    about: "Objects by the million: making them, dividing and listing collections, clones, and opening the store",
    paper: "BlueStore",
    speed: 1.0,
    rows: |_| ROWS.iter().map(|(name, _)| (*name).to_owned()).collect(),
    extra: super::NONE,
    // Of the short form a 200th is made, on a drive of as many zones.
    needs: |options| Needs { work: 0, memory: if options.short { 2 << 30 } else { 16 << 30 } },
    run,
};

/// 20 TB.
const ZONES: u32 = (20_000_000_000_000 / ZONE) as u32;
/// What a window of steady work is, in seconds of the drive.
const WINDOW: f64 = 10.0;
/// Objects that are made before each opening: some half of what the log of the metadata has at most.
const LOGGED: u64 = 25_000;
const SHORT: usize = 4096;
const LONG: usize = 512 << 10;
/// Objects that fill zones, with a checksum for each 128 KiB, and how many of them there are: a hundredth of what 20 TB have.
const WHOLE: usize = 4 << 20;
const WHOLE_OBJECTS: u64 = 40_000;
const WHOLE_HINT: Hint =
    Hint { object: WHOLE as u64, write: WHOLE as u64, immutable: true, short_lived: false, incompressible: false };

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// So many objects of so many bytes, so many at once.
    Creates(u64, usize, u64),
    /// The collection of all becomes two, and these one again.
    Split,
    List,
    Clone,
    /// After a kill, with the memory that outlives a process, or without it; with long objects as well, or not.
    Opens {
        killed: bool,
        whole: bool,
    },
}

const MILLION: &str = "1,000,000 objects of 4 KiB, 16 at once";
const SPLIT: &str = "a collection of 1,000,000 objects is divided";
const CLONE: &str = "a clone of an object of 4 MiB";
const KILLED: &str = "opening with 4,000,000 objects, killed";
const LOST: &str = "opening with 4,000,000 objects, power lost";
const WHOLE_KILLED: &str = "opening with 40,000 objects of 4 MiB as well, killed";
const WHOLE_LOST: &str = "opening with 40,000 objects of 4 MiB as well, power lost";
const ROWS: &[(&str, What)] = &[
    ("objects of 512 KiB, each durable before the next", What::Creates(500, LONG, 1)),
    ("objects of 512 KiB, 16 at once", What::Creates(4000, LONG, 16)),
    ("objects of 4 KiB, each durable before the next", What::Creates(20_000, SHORT, 1)),
    (MILLION, What::Creates(1_000_000, SHORT, 16)),
    (SPLIT, What::Split),
    ("a collection of 1,000,000 objects is listed", What::List),
    (CLONE, What::Clone),
    (KILLED, What::Opens { killed: true, whole: false }),
    (LOST, What::Opens { killed: false, whole: false }),
    (WHOLE_KILLED, What::Opens { killed: true, whole: true }),
    (WHOLE_LOST, What::Opens { killed: false, whole: true }),
];

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const HALF: CollectionId = CollectionId { pool: 1, seed: 1 };

fn object(number: u64) -> ObjectId {
    ObjectId::new(1, b"", format!("rb.0.1234.{number:016x}").as_bytes())
}

struct Side {
    drive: Emulator,
    survivor: Arc<HeapSurvivor>,
    /// `None`: it could not be opened again.
    store: Option<Store>,
    /// Objects that were made, and how many of them are long ones.
    made: u64,
    whole: u64,
}

fn options() -> StoreOptions {
    let metadata =
        imbrex_kv::Options { memtable_bytes: MEMTABLE as usize, cache_bytes: CACHE, ..imbrex_kv::Options::default() };
    let volume =
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 3 * MEMTABLE as usize, ..VolumeOptions::default() };
    StoreOptions { metadata, volume, ..StoreOptions::default() }
}

impl Side {
    fn new() -> Result<Side, Stop> {
        let config = Scaled::drive(1, ZONES, ZONE, Mechanics::Real)?;
        let drive = Emulator::memory_packed(&config).map_err(why)?;
        drive.keep_own_time(Pace::Account).map_err(why)?;
        let survivor = Arc::new(HeapSurvivor::default());
        let handle = Drive { device: Arc::new(drive.clone()), survivor: Some(survivor.clone()) };
        Store::format(&handle, Some([7; 16]), false).map_err(why)?;
        let store = Store::open(handle, options()).map_err(why)?;
        let mut all = Transaction::new();
        all.create_collection(ALL, 0);
        store.commit(all).map_err(why)?;
        Ok(Side { drive, survivor, store: Some(store), made: 0, whole: 0 })
    }

    fn elapsed(&self) -> f64 {
        self.drive.time().map_or(0.0, |time| time.elapsed)
    }

    /// Makes objects as an OSD does: bytes, what it knows of the object, and a record in a log of its collection. Returns how many were made in each window.
    fn create(&mut self, count: u64, bytes: &[u8], at_once: u64, run: &Run) -> Result<Vec<u64>, Stop> {
        let (begun, log) = (self.elapsed(), ObjectId::new(1, b"log", b""));
        let (mut windows, mut done) = (vec![0], 0);
        while done < count {
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            let mut last = None;
            for _ in 0..at_once.min(count - done) {
                let (id, mut one) = (object(self.made), Transaction::new());
                if bytes.len() == WHOLE {
                    one.touch(ALL, &id).hint(ALL, &id, WHOLE_HINT);
                    self.whole += 1;
                }
                one.write(ALL, &id, 0, bytes).set_attributes(ALL, &id, &[(b"_", &[7; 250]), (b"snapset", &[7; 35])]);
                one.omap_set(ALL, &log, &[(&self.made.to_be_bytes(), &[7; 180])]);
                // A log has some thousand records.
                if let Some(old) = self.made.checked_sub(3000) {
                    one.omap_remove(ALL, &log, &[&old.to_be_bytes()]);
                }
                last = Some(self.store()?.queue(one).map_err(why)?);
                self.made += 1;
                done += 1;
            }
            if let Some(ticket) = last {
                self.store()?.wait(ticket).map_err(why)?;
            }
            let window = ((self.elapsed() - begun) / WINDOW) as usize;
            windows.resize(windows.len().max(window + 1), 0);
            windows[window] += at_once;
        }
        // The last one is not over.
        windows.pop();
        Ok(windows)
    }

    fn grow(&mut self, to: u64, run: &Run) -> Result<(), Stop> {
        self.create(to.saturating_sub(self.made), &[7; SHORT], 256, run).map(drop)
    }

    fn list(&self) -> Result<u64, Stop> {
        let (mut count, mut next) = (0, None);
        loop {
            let page = self.store()?.list(ALL, next.as_ref(), 1000).map_err(why)?;
            count += page.all.len() as u64;
            next = page.next;
            if next.is_none() {
                return Ok(count);
            }
        }
    }

    fn does(&self, what: impl FnOnce(&mut Transaction)) -> Result<(), Stop> {
        let mut transaction = Transaction::new();
        what(&mut transaction);
        self.store()?.commit(transaction).map_err(why)
    }

    fn store(&self) -> Result<&Store, Stop> {
        self.store.as_ref().ok_or_else(|| "no store".into())
    }

    /// The process dies, or the drive loses its power as well; and the store is opened again. Returns the seconds of the drive and of the wall.
    fn opens(&mut self, killed: bool, run: &Run) -> Result<(f64, f64), Stop> {
        // What the log has is not chance.
        self.create(LOGGED, &[7; SHORT], 256, run)?;
        let had = self.store()?.usage().objects;
        let kept = if killed { self.survivor.snapshot() } else { HeapSurvivor::default() };
        // What a store does that is closed does not come to the drive.
        self.drive.faults().host_full(true);
        drop(self.store.take());
        self.drive.faults().host_full(false);
        if !killed {
            self.drive.faults().lose_power_by(true, 1).map_err(why)?;
        }
        self.survivor = Arc::new(kept);
        let handle = Drive { device: Arc::new(self.drive.clone()), survivor: Some(self.survivor.clone()) };
        let (before, begun) = (self.elapsed(), Instant::now());
        let store = self.store.insert(Store::open(handle, options()).map_err(why)?);
        let objects = store.usage().objects;
        let took = (self.elapsed() - before, begun.elapsed().as_secs_f64());
        match objects == had {
            true => Ok(took),
            false => Err("other objects are there than those that were durable; look into that first".into()),
        }
    }

    fn row(&mut self, what: What, run: &Run) -> Result<Row, Stop> {
        let part = if run.options.short { 200 } else { 1 };
        match what {
            What::Creates(..) => {}
            What::Opens { whole, .. } => {
                self.grow(4_000_000 / part, run)?;
                if whole {
                    self.create((WHOLE_OBJECTS / part).saturating_sub(self.whole), &vec![7; WHOLE], 4, run)?;
                }
            }
            _ => self.grow(1_000_000 / part, run)?,
        }
        self.drive.reset_stats();
        let (before, begun) = (self.elapsed(), Instant::now());
        let mut figures = Vec::new();
        let operations = match what {
            What::Creates(count, bytes, at_once) => {
                let count = (count / part).max(at_once);
                let windows = self.create(count, &vec![7; bytes], at_once, run)?;
                let mean = windows.iter().sum::<u64>() as f64 / windows.len().max(1) as f64;
                let least = windows.iter().min().map_or(0.0, |least| *least as f64);
                figures.push((RATE, count as f64 / (self.elapsed() - before)));
                figures.push((LEAST, least / mean.max(1.0)));
                count
            }
            What::Split => {
                self.does(|t| _ = t.split_collection(ALL, HALF))?;
                figures.push(("seconds to divide", self.elapsed() - before));
                self.does(|t| _ = t.merge_collection(HALF, ALL))?;
                2
            }
            What::List => {
                let count = self.list()?;
                figures.push(("seconds of the drive", self.elapsed() - before));
                figures.push(("objects/s of the wall", count as f64 / begun.elapsed().as_secs_f64()));
                count
            }
            What::Clone => {
                let (from, to) = (ObjectId::new(1, b"", b"from"), ObjectId::new(1, b"", b"to"));
                self.does(|t| _ = t.write(ALL, &from, 0, &vec![7; 4 * MIB as usize]))?;
                self.drive.reset_stats();
                self.does(|t| _ = t.clone_object(ALL, &from, &to))?;
                1
            }
            What::Opens { killed, .. } => {
                let (seconds, wall) = self.opens(killed, run)?;
                figures.extend([("seconds of the drive", seconds), ("seconds of the wall, of one thread", wall)]);
                1
            }
        };
        let counts = self.drive.stats().total;
        let mut row = Row {
            rule: Rule::Fewer.name().into(),
            device_seconds: self.drive.time().map(|time| time.total.busy()),
            wall_seconds: Some(self.elapsed() - before),
            operations: Some(operations),
            bytes_drive: Some(counts.bytes_written),
            bytes_read: Some(counts.bytes_read),
            ..Row::new("", DRIVE)
        };
        figures.push(("objects", self.made as f64));
        figures.push(("of them of 4 MiB", self.whole as f64));
        figures.push((
            "seconds of the wall per 1,000 operations",
            begun.elapsed().as_secs_f64() * 1e3 / operations as f64,
        ));
        row.figures.extend(figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)));
        Ok(row)
    }
}

const LEAST: &str = "least of a window of 10 s over the mean";
const RATE: &str = "objects/s";

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("object", "bytes, attributes of 250 and 35 bytes, and a record of 180 bytes in a log of 3,000");
    run.setting("memory", format!("memtable {} MiB, cache {} MiB", MEMTABLE / MIB, CACHE / MIB));
    let mut side = None;
    for (name, what) in ROWS {
        run.row(name, |run| {
            if side.is_none() {
                side = Some(Side::new()?);
            }
            side.as_mut().map_or_else(|| Err("no drive".into()), |side: &mut Side| side.row(*what, run))
        })?;
    }
    let least = |least: f64| least;
    let within = |goal: f64| move |seconds: f64| goal / seconds.max(1e-3);
    let mut compare = |row: &str, figure: &str, goal: f64, ratio: &dyn Fn(f64) -> f64| {
        let value = run.measured(row).and_then(|row| row.figures.get(figure).copied());
        let of = value.and_then(|value| Ratio::of(format!("{row}: {figure}, against what is wanted"), &[ratio(value)]));
        run.outcome.ratios.extend(of.map(|ratio| Ratio { goal: Some(goal), ..ratio }));
    };
    compare(MILLION, LEAST, 0.5, &least);
    compare(SPLIT, "seconds to divide", 1.0, &within(1.0));
    compare(KILLED, "seconds of the drive", 1.0, &within(10.0));
    for row in [LOST, WHOLE_KILLED, WHOLE_LOST] {
        compare(row, "seconds of the drive", 1.0, &within(10.0));
    }
    let made = |(name, _): &(&str, What)| Some(((*name).to_owned(), *run.measured(name)?.figures.get(RATE)?, None));
    let bars: Vec<_> = ROWS.iter().filter_map(made).collect();
    if bars.is_empty() {
        return Ok(());
    }
    run.outcome.charts.push(Chart {
        file: "made".into(),
        title: "Objects that are made in a second of the drive".into(),
        x: Axis::default(),
        y: Axis::even(RATE),
        shape: Shape::Bars(bars),
    });
    Ok(())
}
