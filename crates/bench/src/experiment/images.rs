//! `images`: reads and writes of a block image on a host-managed drive, beside a conventional disk with the mechanics of that drive, of which as many bytes are used. On the virtual
//! clock: the image is used by one thread, one operation after the other, and the disk has as many at once as a row says, in the order that it likes best.
//!
//! What is scaled: the size of zones, the drive's cache, and the memory of the store. Operations and commands keep their size, and the mechanics are real.

use super::chart::{Axis, Chart, Shape};
use super::hosts::{Disk, conventional_twin};
pub(super) use super::kv_store::DRIVE;
use super::kv_store::{CACHE, MEMTABLE, MIB, Store as Scaled, ZONE, ZONES};
use super::result::{Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_bluestore::{BlueStore, Survives};
use imbrex_device::banded::{Banded, Base, ConventionalZones, Layout};
use imbrex_device::kernel::Access;
use imbrex_device::{Cause, Drive};
use imbrex_emulator::time::{Mechanics, Model, Pace, Ticket, Timeline};
use imbrex_emulator::{Config, Counts, Emulator, Op, Overrides, TraceEntry};
use imbrex_image::{Image, Images};
use imbrex_store::{Options as StoreOptions, Store};
use imbrex_zones::{Exec, VolumeOptions};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "images",
    about: "Random writes, flushes and reads of a block image on a host-managed drive beside a conventional disk of the same mechanics",
    paper: "none",
    speed: 1.0,
    rows: |_| names(|_| true),
    extra: |_| names(What::is_steady),
    needs: |options| Needs { work: 0, memory: bytes(options) + (1 << 30) },
    run,
};

pub(super) const BLOCK: u64 = 4096;
/// A write of the load, and a read in order.
const LONG: u64 = MIB;
/// Commands at a conventional disk, where nothing is flushed.
const DEPTH: usize = 256;
/// Writes before each flush.
const BATCH: u64 = 32;
const READS: u64 = 20_000;
/// Per cent of the drive that are some 80 of the zones that data have: labels, metadata, and what the two keep free take the others.
pub(super) const FULL: u64 = 75;
/// Seconds of the drive that a row of steady overwrites takes, and one of its windows.
const STEADY: f64 = 3600.0;
const WINDOW: f64 = 60.0;
/// One block of so many is written often, and one write of so many goes anywhere.
const HOT: u64 = 5;
/// Memory of `image optimize` at full size.
const OPTIMIZE: u64 = 4 << 30;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Random writes, each flush behind so many; 0: none.
    Write(u64),
    /// The same for [`STEADY`] seconds of the drive.
    Steady(u64),
    /// The same without flushes; four writes in five go to each fifth block of the image ([`HOT`]).
    Skewed,
    /// Random reads, one after the other.
    Read,
    InOrder,
    /// In order, when `image optimize` has been there.
    Optimized,
}

impl What {
    fn is_steady(self) -> bool {
        matches!(self, What::Steady(_) | What::Skewed)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing was written, and the image takes as much of the drive as with [`Before::Full`].
    Empty,
    /// Written in order.
    Loaded(u64),
    /// Written in order, and overwritten at random for as many bytes.
    Random(u64),
    /// As [`Before::Random`], of so many per cent of what the store says is its capacity.
    Capacity(u64),
    /// As [`Before::Empty`], in place on the disk of the same mechanics.
    EmptyInPlace,
    /// As [`Before::Random`], there.
    InPlace(u64),
    /// The same with short overwrites where the old blocks stood.
    AtHome(u64),
}

impl Before {
    fn is_empty(self) -> bool {
        matches!(self, Before::Empty | Before::EmptyInPlace)
    }

    fn is_in_place(self) -> bool {
        matches!(self, Before::InPlace(_) | Before::AtHome(_) | Before::EmptyInPlace)
    }
}

fn rows() -> Vec<(String, Option<Before>, What)> {
    let image = |before| match before {
        Before::Empty => "image, empty drive".to_owned(),
        Before::Loaded(percent) => format!("image of {percent} % of the drive, written in order"),
        Before::Random(percent) => format!("image of {percent} % of the drive, overwritten at random"),
        Before::Capacity(percent) => format!("image of {percent} % of the capacity, overwritten at random"),
        Before::EmptyInPlace => "image in place, empty disk".to_owned(),
        Before::InPlace(percent) => format!("image in place of {percent} % of the disk, overwritten at random"),
        Before::AtHome(percent) => format!("image in place of {percent} % of the disk, overwritten at home"),
    };
    let (full, in_place, at_home) = (Before::Random(FULL), Before::InPlace(FULL), Before::AtHome(FULL));
    let mut all = Vec::new();
    for (what, name) in [
        (What::Write(0), "writes of 4 KiB"),
        (What::Write(BATCH), "writes of 4 KiB, a flush every 32"),
        (What::Steady(0), "writes of 4 KiB for an hour"),
        (What::Steady(BATCH), "writes of 4 KiB for an hour, a flush every 32"),
        (What::Skewed, "writes of 4 KiB for an hour, four of five to a fifth"),
        (What::Read, "reads of 4 KiB"),
        (What::InOrder, "reads in order"),
        (What::Optimized, "reads in order, optimized"),
    ] {
        if what != What::Optimized && !what.is_steady() {
            all.push((format!("{name}: disk"), None, what));
        }
        let befores: &[Before] = match what {
            What::Write(_) => &[Before::Empty, Before::Random(60), full, Before::EmptyInPlace, in_place, at_home],
            What::Steady(_) => &[Before::Capacity(80), Before::Capacity(90)],
            What::Skewed => &[Before::Capacity(80)],
            What::Read | What::InOrder => &[Before::Loaded(FULL), full, in_place, at_home],
            What::Optimized => &[Before::Random(60), full, in_place, at_home],
        };
        all.extend(befores.iter().map(|before| (format!("{name}: {}", image(*before)), Some(*before), what)));
    }
    all
}

fn names(which: fn(What) -> bool) -> Vec<String> {
    rows().into_iter().filter(|(.., what)| which(*what)).map(|(name, ..)| name).collect()
}

/// The short form is of an eighth of the scale: fewer zones would not have room for the metadata and for what is kept free.
fn scale(options: &Options) -> u32 {
    options.scale * if options.short { 8 } else { 1 }
}

/// Bytes of a zone of the drive.
fn zone(options: &Options) -> u64 {
    ZONE / u64::from(scale(options))
}

/// Bytes of the drive.
pub(super) fn bytes(options: &Options) -> u64 {
    u64::from(ZONES) * zone(options)
}

/// Bytes of an image that takes so much of it.
fn part(options: &Options, percent: u64) -> u64 {
    // Headers of runs, and rests of zones, take more of the short form's small ones.
    let percent = if options.short { percent * 3 / 4 } else { percent };
    bytes(options) * percent / 100 / LONG * LONG
}

/// The drive, and the disk with its mechanics.
fn drives(options: &Options) -> Result<[Config; 2], Stop> {
    let mut drive = Scaled::drive(scale(options), ZONES, zone(options), Mechanics::Real)?;
    // With shorter commands each of a long read costs a seek, where another client has one between them.
    drive.max_io = Disk::named(DRIVE, Rule::Fewer)?.profile.max_io;
    let twin = twin(&drive, scale(options))?;
    Ok([drive, twin])
}

/// The conventional disk with the mechanics, and of the size, of a drive that is scaled so.
pub(super) fn twin(drive: &Config, scale: u32) -> Result<Config, Stop> {
    let over = Overrides {
        capacity: Some(drive.capacity),
        zone_size: Some(drive.zone_size),
        write_cache: Some(true),
        max_io: Some(drive.max_io),
        scale: Some(scale),
        mechanics: Mechanics::Scaled,
        ..Overrides::default()
    };
    let mut twin = Config::new(&conventional_twin(&Disk::named(DRIVE, Rule::Fewer)?.profile), &over);
    twin.model = twin.model.map(|model| Model { mechanics: Mechanics::Real, ..model });
    twin.cache_bytes = drive.cache_bytes;
    Ok(twin)
}

/// A disk that is cut into bands, which are overwritten in place.
pub(super) fn bands(disk: &Emulator, band: u64) -> Result<Banded, Stop> {
    let base = || ConventionalZones::new(Arc::new(disk.clone()), None).map_err(why);
    let plan = Layout::plan(base()?.facts().size, BLOCK as u32, band, None)?;
    Banded::format(&base()?, &plan).map_err(why)?;
    Banded::open(Box::new(base()?), Access::Write).map_err(why)
}

/// Options of a store of so many zones less than a whole drive has.
pub(super) fn store_options(options: &Options, exec: Exec) -> StoreOptions {
    let scale = u64::from(scale(options));
    let metadata = imbrex_kv::Options {
        memtable_bytes: (MEMTABLE / scale) as usize,
        cache_bytes: CACHE / scale,
        ..imbrex_kv::Options::default()
    };
    let survivor_bytes = (3 * MEMTABLE / scale).max(16 * MIB) as usize;
    let volume = VolumeOptions { exec, survivor_bytes, ..VolumeOptions::default() };
    StoreOptions { metadata, volume, ..StoreOptions::default() }
}

/// An image on a drive.
pub(super) struct Side {
    pub(super) drive: Emulator,
    store: Store,
    images: Images,
    pub(super) image: Image,
    random: ChaCha8Rng,
    noise: Vec<u8>,
    /// Bytes of the image.
    pub(super) size: u64,
    writes: u64,
}

impl Side {
    pub(super) fn new(options: &Options, before: Before, run: &Run) -> Result<Side, Stop> {
        let percent = match before {
            Before::Empty | Before::EmptyInPlace => FULL,
            Before::Loaded(percent)
            | Before::Random(percent)
            | Before::Capacity(percent)
            | Before::InPlace(percent)
            | Before::AtHome(percent) => percent,
        };
        let [zoned, disk] = drives(options)?;
        let drive = Emulator::memory(if before.is_in_place() { &disk } else { &zoned }).map_err(why)?;
        drive.keep_own_time(Pace::Account).map_err(why)?;
        let mut handle = Drive { device: Arc::new(drive.clone()), survivor: None };
        if before.is_in_place() {
            handle.device = Arc::new(bands(&drive, disk.zone_size)?);
        }
        Store::format(&handle, Some([7; 16]), false).map_err(why)?;
        let mut how = store_options(options, Exec::Inline);
        how.store.home = matches!(before, Before::AtHome(_));
        let store = Store::open(handle, how).map_err(why)?;
        let size = match before {
            Before::Capacity(percent) => store.usage().capacity * percent / 100 / LONG * LONG,
            _ => part(options, percent),
        };
        let images = Images::open(BlueStore::clone(&store), ()).map_err(why)?;
        images.create("image", size).map_err(why)?;
        let image = images.image("image", false).map_err(why)?;
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut noise = vec![0; 2 * LONG as usize];
        random.fill_bytes(&mut noise);
        let mut side = Side { drive, store, images, image, random, noise, size, writes: 0 };
        if before.is_empty() {
            return Ok(side);
        }
        for at in (0..size).step_by(LONG as usize) {
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            side.write(at, LONG)?;
        }
        side.image.flush().map_err(why)?;
        if let Before::Random(_) | Before::Capacity(_) | Before::InPlace(_) | Before::AtHome(_) = before {
            side.writes(size / BLOCK, 0, false, run)?;
        }
        Ok(side)
    }

    fn write(&mut self, at: u64, len: u64) -> Result<(), Stop> {
        let from = self.random.random_range(0..LONG) as usize;
        self.image.write(at, &self.noise[from..from + len as usize], Survives::Process).map_err(why)
    }

    /// Writes at random, each flush behind so many; `skewed`: four writes in five go to [`HOT`] blocks.
    fn writes(&mut self, count: u64, flush: u64, skewed: bool, run: &Run) -> Result<(), Stop> {
        for _ in 0..count {
            if self.writes.is_multiple_of(4096) && run.stopped() {
                return Err(Stop::Interrupted);
            }
            let block = match skewed && !self.random.random_ratio(1, HOT as u32) {
                true => self.random.random_range(0..self.size / BLOCK / HOT) * HOT,
                false => self.random.random_range(0..self.size / BLOCK),
            };
            self.write(block * BLOCK, BLOCK)?;
            self.writes += 1;
            if flush > 0 && self.writes.is_multiple_of(flush) {
                self.image.flush().map_err(why)?;
            }
        }
        Ok(())
    }

    /// Writes for so many seconds of the drive. Returns how many writes there were, and the fewest of a window over those of all on average.
    fn steady(&mut self, what: What, seconds: f64, run: &Run) -> Result<(u64, f64), Stop> {
        let flush = if let What::Steady(flush) = what { flush } else { 0 };
        let elapsed = |side: &Side| side.drive.time().map_or(0.0, |time| time.elapsed);
        let (begun, window) = (elapsed(self), WINDOW.min(seconds / 4.0));
        let (mut count, mut of_window, mut fewest, mut since) = (0, 0_u64, f64::INFINITY, begun);
        let mut now = begun;
        while now - begun < seconds {
            self.writes(BATCH, flush, what == What::Skewed, run)?;
            now = elapsed(self);
            (count, of_window) = (count + BATCH, of_window + BATCH);
            if now - since >= window {
                fewest = fewest.min(of_window as f64 / (now - since));
                (since, of_window) = (now, 0);
            }
        }
        Ok((count, fewest * (now - begun) / count as f64))
    }

    fn read(&mut self, at: u64, len: u64) -> Result<(), Stop> {
        let mut out = vec![0; len as usize];
        self.image.read(at, &mut out).map_err(why)?;
        match out.iter().any(|byte| *byte != 0) {
            true => Ok(()),
            false => Err("what was written is not there; look into that first".into()),
        }
    }

    /// Returns how many operations there were, of so many bytes, and the fewest of a window over the average.
    fn run(&mut self, what: What, run: &Run) -> Result<(u64, u64, Option<f64>), Stop> {
        match what {
            What::Steady(_) | What::Skewed => {
                let seconds = if run.options.short { 4.0 } else { STEADY };
                let (count, least) = self.steady(what, seconds, run)?;
                Ok((count, BLOCK, Some(least)))
            }
            What::Write(flush) => {
                let count = writes(run.options, flush);
                self.writes(count, flush, false, run)?;
                Ok((count, BLOCK, None))
            }
            What::Read => {
                for _ in 0..reads(run.options) {
                    let at = self.random.random_range(0..self.size / BLOCK) * BLOCK;
                    self.read(at, BLOCK)?;
                }
                Ok((reads(run.options), BLOCK, None))
            }
            What::InOrder | What::Optimized => {
                let count = self.size / 8 / LONG;
                // From the middle of the drive's addresses.
                (0..count).try_for_each(|n| self.read(self.size / 2 + n * LONG, LONG))?;
                Ok((count, LONG, None))
            }
        }
    }

    fn row(&mut self, what: What, run: &Run) -> Result<Row, Stop> {
        while self.store.pack().map_err(why)? {}
        self.image.flush().map_err(why)?;
        let elapsed = |drive: &Emulator| drive.time().map_or(0.0, |time| time.elapsed);
        let before = elapsed(&self.drive);
        if what == What::Optimized {
            self.images
                .optimize("image", OPTIMIZE / u64::from(scale(run.options)), &mut std::io::sink())
                .map_err(why)?;
        }
        let optimized = elapsed(&self.drive) - before;
        self.drive.reset_stats();
        let (before, moved) = (elapsed(&self.drive), self.store.usage().moved);
        let (count, each, least) = self.run(what, run)?;
        if what.is_steady() || matches!(what, What::Write(_)) {
            self.image.flush().map_err(why)?;
        }
        let seconds = elapsed(&self.drive) - before;
        let (counts, time) = (self.drive.stats(), self.drive.time());
        let mut row = Row::new("", DRIVE);
        row.device_seconds = time.as_ref().map(|time| time.total.busy());
        fill(&mut row, what, (count, each), seconds, counts.total);
        for (cause, seconds) in time.iter().flat_map(|time| &time.by_cause) {
            row.figures.insert(format!("ms of {cause}, each"), seconds.busy() * 1e3 / count as f64);
        }
        for (cause, counts) in &counts.by_cause {
            let bytes = (counts.bytes_written + counts.bytes_read) as f64;
            if bytes > 0.0 {
                row.figures.insert(format!("bytes of {cause}, each"), bytes / count as f64);
            }
        }
        if what == What::Optimized {
            row.figures.insert("seconds to optimize".into(), optimized);
            row.figures.insert("optimized, MB/s".into(), self.size as f64 / 1e6 / optimized.max(1e-9));
        }
        row.figures.insert("bytes moved, each".into(), (self.store.usage().moved - moved) as f64 / count as f64);
        let stored = self.store.usage().stored as f64;
        row.figures.insert("live bytes over the drive's".into(), stored / bytes(run.options) as f64);
        if let Some(least) = least {
            row.figures.insert(format!("least of a window of {WINDOW} s over the mean"), least);
            row.figures
                .insert("bytes written, each byte".into(), counts.total.bytes_written as f64 / (count * each) as f64);
            row.figures.insert("live bytes over the capacity".into(), stored / self.store.usage().capacity as f64);
        }
        Ok(row)
    }
}

fn writes(options: &Options, flush: u64) -> u64 {
    part(options, FULL) / BLOCK / if flush > 0 { 8 } else { 1 }
}

fn reads(options: &Options) -> u64 {
    if options.short { 200 } else { READS }
}

const RATE: &str = "operations/s";
const MB: &str = "MB/s";

fn fill(row: &mut Row, what: What, (count, each): (u64, u64), seconds: f64, counts: Counts) {
    row.rule = Rule::Fewer.name().into();
    row.operations = Some(count);
    row.wall_seconds = Some(seconds);
    row.bytes_user = Some(count * each);
    row.bytes_read = Some(counts.bytes_read);
    row.bytes_drive = Some(counts.bytes_written);
    let rate = count as f64 / seconds.max(1e-9);
    match what {
        What::InOrder | What::Optimized => row.figures.insert(MB.to_owned(), rate * each as f64 / 1e6),
        _ => row.figures.insert(RATE.to_owned(), rate),
    };
}

/// A conventional disk: the line of its time, and what is there.
struct Raw {
    line: Timeline,
    /// Commands that have not ended, as far as is known.
    flying: Vec<Ticket>,
    /// When the others did, as bits of a number that is not negative, which are in its order.
    ended: BinaryHeap<Reverse<u64>>,
    now: f64,
    sent: u64,
}

impl Raw {
    fn send(&mut self, op: Op, offset: u64, len: u64) {
        let cause = if op == Op::Read { Cause::UserRead } else { Cause::UserWrite };
        let (cause, len) = (cause.name(), len as u32);
        let entry =
            TraceEntry { sequence: self.sent, op, cause, priority: "normal", zone: 0, offset, len, result: "ok" };
        self.sent += 1;
        self.flying.push(self.line.submit(&entry, self.now));
    }

    fn collect(&mut self) {
        let (line, ended) = (&mut self.line, &mut self.ended);
        self.flying.retain(|ticket| match line.completion(*ticket) {
            Some(at) => {
                ended.push(Reverse(at.to_bits()));
                false
            }
            None => true,
        });
    }

    /// It is the moment at which one more has ended.
    fn one_ends(&mut self) {
        loop {
            self.collect();
            let until = self.ended.peek().map_or(f64::INFINITY, |first| f64::from_bits(first.0));
            if !self.line.step(until) {
                break;
            }
        }
        if let Some(Reverse(at)) = self.ended.pop() {
            self.now = self.now.max(f64::from_bits(at));
        }
    }

    fn all_end(&mut self) {
        while !self.flying.is_empty() || !self.ended.is_empty() {
            self.one_ends();
        }
    }

    fn outstanding(&self) -> usize {
        self.flying.len() + self.ended.len()
    }
}

/// The same operations on a disk.
fn raw(what: What, run: &Run) -> Result<Row, Stop> {
    let config = &drives(run.options)?[1];
    let line = Timeline::of(config)?;
    let mut raw = Raw { line, flying: Vec::new(), ended: BinaryHeap::new(), now: 0.0, sent: 0 };
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let size = part(run.options, FULL);
    let (count, each, depth) = match what {
        // Many times what its cache takes.
        What::Write(0) => ((16 * config.cache_bytes / BLOCK).max(50_000).min(writes(run.options, 0)), BLOCK, DEPTH),
        What::Write(flush) => (writes(run.options, flush) / 8, BLOCK, flush as usize),
        What::Read => (reads(run.options), BLOCK, 1),
        What::InOrder | What::Optimized => (size / 8 / LONG, LONG, 4),
        What::Steady(_) | What::Skewed => return Err("a disk has no row of its own for this".into()),
    };
    for n in 0..count {
        if n % 1024 == 0 && run.stopped() {
            return Err(Stop::Interrupted);
        }
        let at = match what {
            What::InOrder | What::Optimized => size / 2 + n * LONG,
            _ => random.random_range(0..size / BLOCK) * BLOCK,
        };
        let op = if matches!(what, What::Write(_)) { Op::Write } else { Op::Read };
        if raw.outstanding() >= depth {
            raw.one_ends();
        }
        raw.send(op, at, each);
        if let What::Write(flush @ 1..) = what
            && (n + 1) % flush == 0
        {
            raw.all_end();
            raw.send(Op::Flush, 0, 0);
            raw.all_end();
        }
    }
    raw.all_end();
    if let What::Write(_) = what {
        raw.send(Op::Flush, 0, 0);
        raw.all_end();
    }
    let time = raw.line.stats();
    let mut row = Row::new("", &config.profile);
    row.device_seconds = Some(time.total.busy());
    fill(&mut row, what, (count, each), raw.now / 1e9, Counts::default());
    (row.bytes_read, row.bytes_drive) = (None, None);
    Ok(row)
}

/// Rows against the disk's, and what is wanted.
const WANTED: &[(What, Before, Option<f64>)] = &[
    (What::Write(0), Before::Empty, Some(20.0)),
    (What::Write(0), Before::Random(60), None),
    (What::Write(0), Before::Random(FULL), Some(4.0)),
    (What::Write(BATCH), Before::Empty, Some(5.0)),
    (What::Write(BATCH), Before::Random(60), None),
    (What::Write(BATCH), Before::Random(FULL), Some(4.0)),
    (What::Steady(0), Before::Capacity(80), Some(4.0)),
    (What::Steady(0), Before::Capacity(90), None),
    (What::Steady(BATCH), Before::Capacity(80), Some(4.0)),
    (What::Steady(BATCH), Before::Capacity(90), None),
    (What::Read, Before::Loaded(FULL), None),
    (What::Read, Before::Random(FULL), None),
    (What::InOrder, Before::Loaded(FULL), None),
    (What::InOrder, Before::Random(FULL), None),
    (What::Optimized, Before::Random(60), Some(0.5)),
    (What::Optimized, Before::Random(FULL), Some(0.5)),
    (What::Write(0), Before::EmptyInPlace, None),
    (What::Write(0), Before::InPlace(FULL), None),
    (What::Write(BATCH), Before::EmptyInPlace, None),
    (What::Write(BATCH), Before::InPlace(FULL), None),
    (What::Read, Before::InPlace(FULL), None),
    (What::InOrder, Before::InPlace(FULL), None),
    (What::Optimized, Before::InPlace(FULL), None),
    (What::Write(0), Before::AtHome(FULL), None),
    (What::Write(BATCH), Before::AtHome(FULL), None),
    (What::Read, Before::AtHome(FULL), None),
    (What::InOrder, Before::AtHome(FULL), None),
    (What::Optimized, Before::AtHome(FULL), Some(0.5)),
];

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting("image", format!("of {FULL} % of the drive, if nothing else is said, which are some 80 % of the zones for data; pieces of 4 MiB; nothing can be compressed"));
    run.setting("overwritten at random", "writes of 4 KiB, as many bytes as the image has, before what is measured");
    run.setting("disk", format!("{DEPTH} writes at once, or 32 and a flush when all have ended; one read at once, four in order; as many bytes of it are used"));
    run.setting(
        "memory at full size",
        format!("memtable {} MiB, cache {} MiB; {} MiB to optimize", MEMTABLE / MIB, CACHE / MIB, OPTIMIZE / MIB),
    );
    let all = rows();
    // Rows of one image follow one another, those that change least first.
    let order = [
        None,
        Some(Before::Empty),
        Some(Before::Loaded(FULL)),
        Some(Before::Random(60)),
        Some(Before::Random(FULL)),
        Some(Before::Capacity(80)),
        Some(Before::Capacity(90)),
        Some(Before::EmptyInPlace),
        Some(Before::InPlace(FULL)),
        Some(Before::AtHome(FULL)),
    ];
    let sort = |what: &What| match what {
        What::InOrder => 0,
        What::Read => 1,
        What::Write(n) => 2 + n,
        What::Steady(n) => 3 + BATCH + n,
        What::Skewed => 4 + 2 * BATCH,
        What::Optimized => u64::MAX,
    };
    for before in order {
        let mut side = None;
        let mut rows: Vec<_> = all.iter().filter(|row| row.1 == before).collect();
        rows.sort_by_key(|row| sort(&row.2));
        for (name, before, what) in rows {
            run.row(name, |run| {
                let Some(before) = before else { return raw(*what, run) };
                if side.is_none() || before.is_empty() {
                    drop(side.take());
                    side = Some(Side::new(run.options, *before, run)?);
                }
                side.as_mut().map_or_else(|| Err("no store".into()), |side| side.row(*what, run))
            })?;
        }
    }
    for (what, before, goal) in WANTED {
        let name = |before: Option<Before>, what: What| {
            all.iter().find(|row| row.1 == before && row.2 == what).map(|row| &row.0)
        };
        let theirs = match *what {
            What::Optimized => What::InOrder,
            What::Steady(flush) => What::Write(flush),
            what => what,
        };
        let (Some(ours), Some(disk)) = (name(Some(*before), *what), name(None, theirs)) else { continue };
        let figure = if theirs == What::InOrder { MB } else { RATE };
        let each = run.pairs(ours, disk, |row| row.figures.get(figure).copied());
        let ratio = Ratio::of(format!("{ours} against a disk"), &each);
        run.outcome.ratios.extend(ratio.map(|ratio| Ratio { goal: *goal, ..ratio }));
    }
    for (file, what, figure) in [
        ("writes", What::Write(0), RATE),
        ("flushed", What::Write(BATCH), RATE),
        ("reads", What::Read, RATE),
        ("in-order", What::InOrder, MB),
        ("optimized", What::Optimized, MB),
    ] {
        let named = all.iter().filter(|row| row.2 == what).filter_map(|row| Some((&row.0, row.0.split_once(": ")?)));
        let mut title = "";
        let mut bars = Vec::new();
        for (name, (does, place)) in named {
            if let Some(figure) = run.measured(name).and_then(|row| row.figures.get(figure)) {
                title = does;
                bars.push((place.to_owned(), *figure, None));
            }
        }
        if bars.is_empty() {
            continue;
        }
        run.outcome.charts.push(Chart {
            file: file.into(),
            title: format!("A block image: {title}"),
            x: Axis::default(),
            y: Axis::even(figure),
            shape: Shape::Bars(bars),
        });
    }
    Ok(())
}
