//! Random commands, legal and not, on a kernel device and on an emulated drive of the same geometry: the same outcome of each,
//! the same bytes read, and the same report of all zones after each.
//!
//! `IMBREX_COMMANDS` (default 20000) and `IMBREX_SEED` (default 1) decide what is run; a failure prints the command's number
//! and the last commands. What the two may do differently is the list [`Exception`], with docs/kernel-devices.md saying why for each
//! and [`exceptions`] on which devices; anything else is a failure, and so is an exception that no longer happens.

use crate::{Tally, open, wipe};
use imbrex_device::{
    AlignedBuf, Cause, Error, Fault, Geometry, Tag, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all,
};
use imbrex_emulator::{Config, Emulator};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, VecDeque};

const TAG: Tag = Tag::new(Cause::Check);
/// Blocks of the pool at which data may begin.
const POOL_STARTS: usize = 512;
/// Commands that a failure prints.
const HISTORY: usize = 12;

/// A difference that is allowed. The documentation has a line for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Exception {
    /// To open another zone the drive closes an implicitly open one, and each drive has its own way to choose which.
    AnotherZoneClosed,
    /// The drive closed an implicitly open zone to make room for a zone, and then refused to open that.
    ClosedAndRefused,
    /// The drive closed an implicitly open zone to finish another one, which needs an open zone for a moment.
    ClosedToFinish,
    /// All open zones are explicitly open, or the active limit is reached, so no zone that is not open can be finished.
    FinishRefused,
    /// A zone that was opened and closed with nothing written is closed on ZNS, empty on SMR disks.
    ClosedWithNothingWritten,
    /// The active limit is reached, and the drive closes nothing to open a closed zone again.
    ReopenRefused,
}

/// What each kind of device does in its own way; with enough commands each of these is seen.
fn exceptions(device: &str, geometry: &Geometry) -> &'static [Exception] {
    use Exception::*;
    match device.trim_start_matches("/dev/") {
        name if name.starts_with("nullb") && geometry.max_active.is_some() => {
            &[AnotherZoneClosed, ClosedToFinish, FinishRefused, ReopenRefused]
        }
        name if name.starts_with("nullb") => &[AnotherZoneClosed, ClosedToFinish, FinishRefused],
        // An emulated drive that is served to the kernel.
        name if name.starts_with("ublkb") => &[],
        name if name.starts_with("nvme") => &[ClosedAndRefused, ClosedWithNothingWritten],
        _ => &[AnotherZoneClosed],
    }
}

/// One command. Places and lengths are bytes.
#[derive(Clone, Debug)]
enum Command {
    /// `from`: where in the pool of random bytes the data begins.
    Write {
        at: u64,
        len: usize,
        skew: usize,
        from: usize,
    },
    Read {
        at: u64,
        len: usize,
        skew: usize,
    },
    Op(ZoneOp, ZoneId),
    Flush,
    Cache(bool),
    Report {
        from: ZoneId,
        most: usize,
    },
}

/// What came of it, as far as both sides must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Zones(Vec<Zone>),
    /// What kind of fault with its numbers, and where.
    Failed(String, Option<ZoneId>, u64),
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Sentences differ between the two; everything else of an error is compared.
fn failed(error: Error) -> Outcome {
    let kind = match &error.fault {
        Fault::InvalidInput(_) => "InvalidInput".into(),
        Fault::Io(error) => format!("Io({:?})", error.kind()),
        other => format!("{other:?}"),
    };
    Outcome::Failed(kind, error.zone, error.offset)
}

/// A drive, and the memory that its commands use. Both sides have the same pool.
struct Side<'a> {
    drive: &'a dyn ZonedDevice,
    pool: &'a [u8],
    read: AlignedBuf,
}

impl Side<'_> {
    fn run(&mut self, command: &Command) -> Outcome {
        let drive = self.drive;
        let done = |result: Result<(), Error>| result.map_or_else(failed, |()| Outcome::Done);
        match *command {
            Command::Write { at, len, skew, from } => {
                done(drive.write_at(&self.pool[from + skew..from + skew + len], at, TAG))
            }
            Command::Read { at, len, skew } => done(drive.read_at(&mut self.read[skew..skew + len], at, TAG)),
            Command::Op(op, zone) => done(drive.zone_op(op, zone, TAG)),
            Command::Flush => done(drive.flush(TAG)),
            Command::Cache(on) => done(drive.set_write_cache(on)),
            Command::Report { from, most } => {
                let mut out = vec![Zone::EMPTY; most];
                match drive.report(from, &mut out) {
                    Ok(n) => Outcome::Zones(out[..n].to_vec()),
                    Err(error) => failed(error),
                }
            }
        }
    }
}

/// Makes up commands, knowing the zones as they are.
struct Inventor {
    rng: ChaCha8Rng,
    geometry: Geometry,
    /// The zones that most commands are about.
    favourites: Vec<ZoneId>,
}

impl Inventor {
    fn new(seed: u64, geometry: &Geometry, zones: &[Zone]) -> Inventor {
        let conventional = |zone: &&Zone| zone.state == ZoneState::Conventional;
        // Enough of them to be past every limit at times, few enough that they fill up.
        let limit = geometry.max_active.max(geometry.max_open).map_or(8, |n| n.get() as usize);
        let favourites = zones.iter().filter(conventional).take(2);
        let favourites = favourites.chain(zones.iter().filter(|zone| !conventional(zone)).take(limit + 4));
        Inventor {
            rng: ChaCha8Rng::seed_from_u64(seed),
            geometry: geometry.clone(),
            favourites: favourites.map(|zone| zone.id).collect(),
        }
    }

    fn zone(&mut self) -> ZoneId {
        if self.rng.random_range(0..20) == 0 {
            ZoneId(self.rng.random_range(0..self.geometry.zones))
        } else {
            self.favourites[self.rng.random_range(0..self.favourites.len())]
        }
    }

    /// Mostly short, sometimes as much as a command may carry, now and then a little more.
    fn blocks(&mut self) -> u64 {
        let most = u64::from(self.geometry.max_io / self.geometry.block);
        match self.rng.random_range(0..100) {
            0..60 => self.rng.random_range(1..=8),
            60..85 => self.rng.random_range(1..=64.min(most)),
            85..95 => self.rng.random_range(1..=most),
            95..98 => most,
            _ => most + 1,
        }
    }

    fn next(&mut self, zones: &[Zone]) -> Command {
        match self.rng.random_range(0..100) {
            0..45 => self.write(zones),
            45..65 => self.read(zones),
            65..92 => {
                let op = [ZoneOp::Open, ZoneOp::Close, ZoneOp::Finish, ZoneOp::Reset][self.rng.random_range(0..4)];
                let behind = self.rng.random_range(0..60) == 0;
                Command::Op(op, if behind { ZoneId(self.geometry.zones) } else { self.zone() })
            }
            92..96 => Command::Flush,
            96..97 => Command::Cache(self.rng.random()),
            _ => Command::Report { from: self.zone(), most: self.rng.random_range(0..=zones.len()) },
        }
    }

    fn write(&mut self, zones: &[Zone]) -> Command {
        let (zone, block) = (self.zone(), u64::from(self.geometry.block));
        let now = &zones[zone.0 as usize];
        let blocks = self.blocks();
        let (mut at, mut len, mut skew);
        (len, skew) = (blocks * block, 0);
        match (now.wp, self.rng.random_range(0..100)) {
            // Most keep the rules: at the write pointer, no further than the capacity.
            (Some(wp), 0..75) => {
                at = wp;
                len = len.min(now.capacity - wp).max(block);
            }
            // What is left of a zone, and a block more.
            (Some(wp), 75..82) => (at, len) = (wp, now.capacity - wp + block),
            (Some(wp), 82..90) => at = wp.saturating_sub(self.rng.random_range(0..4) * block),
            (Some(wp), 90..94) => at = wp + self.rng.random_range(0..4) * block,
            _ => at = self.rng.random_range(0..self.geometry.zone_size / block) * block,
        }
        match self.rng.random_range(0..200) {
            0 => at += 1,
            1 => len += 1,
            2 => skew = 1,
            3 => len = 0,
            4 => at = self.geometry.size() - self.geometry.start(zone),
            _ => {}
        }
        let from = self.rng.random_range(0..POOL_STARTS) * self.geometry.block as usize;
        Command::Write { at: self.geometry.start(zone) + at, len: len as usize, skew, from }
    }

    fn read(&mut self, zones: &[Zone]) -> Command {
        let (zone, block) = (self.zone(), u64::from(self.geometry.block));
        // Round the write pointer, or anywhere, across zones too.
        let around = zones[zone.0 as usize].wp.filter(|_| self.rng.random_range(0..3) > 0);
        let at = match around {
            Some(wp) => wp.saturating_sub(self.rng.random_range(0..16) * block),
            None => self.rng.random_range(0..self.geometry.zone_size / block) * block,
        };
        let (mut len, mut skew) = (self.blocks() * block, 0);
        match self.rng.random_range(0..200) {
            0 => len -= 1,
            1 => skew = 1,
            2 => len = 0,
            _ => {}
        }
        Command::Read { at: self.geometry.start(zone) + at, len: len as usize, skew }
    }
}

/// The emulator that the device shall be like.
fn twin(device: &dyn ZonedDevice) -> Emulator {
    let geometry = device.geometry();
    let zones = report_all(device).unwrap();
    let conventional = zones.iter().take_while(|zone| zone.state == ZoneState::Conventional).count();
    let capacity = zones.get(conventional).map_or(geometry.zone_size, |zone| zone.capacity);
    assert!(
        zones[conventional..].iter().all(|zone| zone.capacity == capacity && zone.state == ZoneState::Empty),
        "an emulated drive has its conventional zones in front, and one capacity"
    );
    let config = Config {
        name: "the emulator".into(),
        capacity: geometry.size(),
        zone_size: geometry.zone_size,
        zone_capacity: capacity,
        conventional: conventional as u32,
        block: geometry.block,
        max_io: geometry.max_io,
        max_open: geometry.max_open.map(|n| n.get()),
        max_active: geometry.max_active.map(|n| n.get()),
        rotational: geometry.rotational,
        reads_cross_zones: geometry.reads_cross_zones,
        reads_above_wp: geometry.reads_above_wp,
        ..Config::tiny()
    };
    let emulator = Emulator::memory(&config).unwrap();
    assert_eq!(emulator.geometry(), geometry);
    emulator
}

/// One command, and all that came of it.
struct Step<'a> {
    command: &'a Command,
    before: &'a [Zone],
    expected: &'a Outcome,
    got: &'a Outcome,
    /// Zones that differ: of the emulator, of the device.
    different: Vec<(Zone, Zone)>,
}

impl Step<'_> {
    /// The exception that this is, if any.
    fn exception(&self) -> Option<Exception> {
        let opens = matches!(self.command, Command::Write { .. } | Command::Op(ZoneOp::Open, _));
        let finish = matches!(self.command, Command::Op(ZoneOp::Finish, _));
        if self.expected == self.got {
            return match (&self.different[..], self.expected) {
                ([a, b], Outcome::Done)
                    if opens && (closed(a) && closed(&swapped(b)) || closed(b) && closed(&swapped(a))) =>
                {
                    Some(Exception::AnotherZoneClosed)
                }
                ([a], Outcome::Done) if finish && closed(a) => Some(Exception::ClosedToFinish),
                ([(a, b)], Outcome::Done)
                    if matches!(self.command, Command::Op(ZoneOp::Close, _))
                        && (a.state, b.state, b.wp) == (ZoneState::Empty, ZoneState::Closed, Some(0)) =>
                {
                    Some(Exception::ClosedWithNothingWritten)
                }
                ([a], _) if opens && closed(a) && refused(self.got) => Some(Exception::ClosedAndRefused),
                _ => None,
            };
        }
        if *self.expected != Outcome::Done || !refused(self.got) {
            return None;
        }
        let Some(was) = self.target().map(|zone| self.before[zone.0 as usize].state) else { return None };
        match was {
            ZoneState::Empty | ZoneState::Closed if finish => Some(Exception::FinishRefused),
            ZoneState::Closed if opens => Some(Exception::ReopenRefused),
            _ => None,
        }
    }

    /// The zone that was to change.
    fn target(&self) -> Option<ZoneId> {
        match (self.got, self.command) {
            (Outcome::Failed(_, zone, _), _) => *zone,
            (_, Command::Op(_, zone)) => Some(*zone),
            _ => None,
        }
    }
}

fn refused(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(fault, ..) if fault == "TooManyOpen" || fault == "TooManyActive")
}

/// The device closed the zone, and the emulator did not.
fn closed((emulated, real): &(Zone, Zone)) -> bool {
    (emulated.state, real.state) == (ZoneState::ImplicitlyOpen, ZoneState::Closed) && emulated.wp == real.wp
}

fn swapped(pair: &(Zone, Zone)) -> (Zone, Zone) {
    (pair.1, pair.0)
}

/// Makes both the same again: zones that only one has open are closed, others that differ are reset.
fn even_out(drives: [&dyn ZonedDevice; 2], different: &[(Zone, Zone)]) {
    for pair in different {
        let op = if closed(pair) || closed(&swapped(pair)) { ZoneOp::Close } else { ZoneOp::Reset };
        drives.iter().for_each(|drive| drive.zone_op(op, pair.0.id, TAG).unwrap());
    }
    assert_eq!(report_all(drives[0]).unwrap(), report_all(drives[1]).unwrap(), "after evening out {different:?}");
}

fn compare(path: &str, commands: u64, seed: u64) -> BTreeMap<Exception, u64> {
    let device = open(path);
    wipe(&device);
    let emulator = twin(&device);
    let cache = device.write_cache().unwrap();
    zero_conventional(&device);
    // The longest commands are refused for their length; a block more for those that are skewed.
    let geometry = device.geometry();
    let most = geometry.zone_size.max(u64::from(geometry.max_io)) as usize + 3 * geometry.block as usize;
    let mut pool = AlignedBuf::zeroed(most + POOL_STARTS * device.geometry().block as usize);
    ChaCha8Rng::seed_from_u64(seed).fill(&mut pool[..]);
    let mut left = Side { drive: &emulator, pool: &pool, read: AlignedBuf::zeroed(most) };
    let mut right = Side { drive: &device, pool: &pool, read: AlignedBuf::zeroed(most) };
    let mut inventor = Inventor::new(seed, device.geometry(), &report_all(&device).unwrap());
    let mut zones = report_all(&emulator).unwrap();
    let mut seen = BTreeMap::new();
    let mut history = VecDeque::new();
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for number in 0..commands {
        let command = inventor.next(&zones);
        let (expected, got) = (left.run(&command), right.run(&command));
        history.push_back(format!("{number}: {command:?}: {}", brief(&expected)));
        if history.len() > HISTORY {
            history.pop_front();
        }
        let tell = |what: String| -> ! {
            let last: Vec<&str> = history.iter().map(String::as_str).collect();
            panic!("seed {seed}, command {number}: {what}\nthe last commands:\n{}", last.join("\n"))
        };
        *outcomes.entry(kind(&expected)).or_default() += 1;
        if let (Command::Read { len, skew, .. }, Outcome::Done) = (&command, &got)
            && left.read[*skew..skew + len] != right.read[*skew..skew + len]
        {
            tell("the bytes that were read differ".into());
        }
        let (now, real) = (report_all(&emulator).unwrap(), report_all(&device).unwrap());
        let pairs = now.iter().zip(&real).filter(|(a, b)| a != b).map(|(a, b)| (*a, *b));
        let step =
            Step { command: &command, before: &zones, expected: &expected, got: &got, different: pairs.collect() };
        if expected == got && step.different.is_empty() {
            zones = now;
            continue;
        }
        let Some(exception) = step.exception() else {
            let (expected, got) = (brief(&expected), brief(&got));
            let different = &step.different;
            tell(format!("the emulator says {expected}, the device {got}; zones that differ: {different:?}"));
        };
        *seen.entry(exception).or_default() += 1;
        even_out([&emulator, &device], &step.different);
        zones = report_all(&emulator).unwrap();
    }
    all_bytes(&mut left, &mut right);
    device.set_write_cache(cache).unwrap();
    println!("{path}: {commands} commands, seed {seed}, by outcome {outcomes:?}, exceptions {seen:?}");
    assert_eq!(outcomes.values().sum::<u64>(), commands);
    // Random commands that are all refused, or none, compare nothing.
    assert!(outcomes["done"] * 4 > commands && outcomes.len() >= 4, "{outcomes:?}");
    seen
}

/// A device may come with bytes in its conventional zones; an emulated one begins with zeros.
fn zero_conventional(device: &dyn ZonedDevice) {
    let geometry = device.geometry();
    for zone in report_all(device).unwrap().iter().filter(|zone| zone.state == ZoneState::Conventional) {
        let mut at = 0;
        while at < geometry.zone_size {
            let n = u64::from(geometry.max_io).min(geometry.zone_size - at);
            device.write_at(&AlignedBuf::zeroed(n as usize), geometry.start(zone.id) + at, TAG).unwrap();
            at += n;
        }
    }
}

/// Compares everything, in the end.
fn all_bytes(left: &mut Side, right: &mut Side) {
    let geometry = right.drive.geometry().clone();
    let mut at = 0;
    while at < geometry.size() {
        let len = u64::from(geometry.max_io).min(geometry.size() - at) as usize;
        let read = Command::Read { at, len, skew: 0 };
        assert_eq!((left.run(&read), right.run(&read)), (Outcome::Done, Outcome::Done), "at {at}");
        assert!(left.read[..len] == right.read[..len], "the bytes at {at} differ at the end");
        at += len as u64;
    }
}

fn kind(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(fault, ..) => fault.split([' ', '(']).next().unwrap_or_default().to_owned(),
        _ => "done".into(),
    }
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Zones(zones) => format!("{} zones", zones.len()),
        other => format!("{other:?}"),
    }
}

/// Compares the device with its twin.
pub fn run(tally: &mut Tally, path: &str) {
    let (commands, seed) = (setting("IMBREX_COMMANDS", 20_000), setting("IMBREX_SEED", 1));
    tally.test(&format!("{path}: {commands} random commands do the same on an emulator, seed {seed}"), || {
        let seen: Vec<Exception> = compare(path, commands, seed).into_keys().collect();
        let allowed = exceptions(path, open(path).geometry());
        let stray: Vec<_> = seen.iter().filter(|exception| !allowed.contains(exception)).collect();
        assert!(stray.is_empty(), "{stray:?} is not on the list for this device");
        let stale: Vec<_> = allowed.iter().filter(|exception| !seen.contains(exception)).collect();
        assert!(stale.is_empty() || commands < 20_000, "{stale:?} is on the list for this device and did not happen");
    });
}
