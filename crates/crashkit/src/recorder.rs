//! Between a workload and its emulated drive: numbers and hashes every command, stops at every crash point, and injects
//! faults.
//!
//! Crash points are: before each command that changes the drive, at block boundaries inside each write, after each
//! acknowledgement and sync in the workload's log, around each change of the survivor, and the end. Points are numbered
//! whether anybody looks at them or not, so a number means the same moment in every run of one seed.
//!
//! Commands are serialised: what several threads send at once is recorded in the order of arrival, and then the hash is
//! only as repeatable as the threads are.

use crate::drive::Model;
use crate::faults::FaultKind;
use crate::log::Injected;
use crate::plan::mix;
use imbrex_device::{
    Cause, Drive, Error, Fault, Fill, Geometry, HeapSurvivor, Identity, Region, Result, Survivor, SurvivorKey, Tag,
    Zone, ZoneId, ZoneOp, ZonedDevice,
};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A command as the drive got it. Addresses and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Report { from: ZoneId, zones: usize },
    Read { at: u64, len: u64, tag: Tag },
    Write { at: u64, len: u64, crc: u32, tag: Tag },
    Flush { tag: Tag },
    Zone { op: ZoneOp, zone: ZoneId, tag: Tag },
    WriteCache { on: bool },
}

impl Command {
    pub(crate) fn mutates(self) -> bool {
        !matches!(self, Command::Report { .. } | Command::Read { .. })
    }

    fn hash(self, hash: u64) -> u64 {
        // By name: the numbers of causes may change.
        let tagged = |tag: Tag| u64::from(crc32c::crc32c(tag.cause.name().as_bytes())) << 8 | tag.priority as u64;
        let words = match self {
            Command::Report { from, zones } => [0, u64::from(from.0), zones as u64, 0, 0],
            Command::Read { at, len, tag } => [1, at, len, 0, tagged(tag)],
            Command::Write { at, len, crc, tag } => [2, at, len, u64::from(crc), tagged(tag)],
            Command::Flush { tag } => [3, 0, 0, 0, tagged(tag)],
            Command::Zone { op, zone, tag } => [4, u64::from(zone.0), op as u64, 0, tagged(tag)],
            Command::WriteCache { on } => [5, u64::from(on), 0, 0, 0],
        };
        words.into_iter().fold(hash, mix)
    }

    /// What it was sent for; commands that do not say count as the pool's.
    fn cause(self) -> Cause {
        match self {
            Command::Read { tag, .. }
            | Command::Write { tag, .. }
            | Command::Flush { tag }
            | Command::Zone { tag, .. } => tag.cause,
            Command::Report { .. } | Command::WriteCache { .. } => Cause::Pool,
        }
    }

    /// Address and length in bytes, 0 where it has none.
    fn range(self, geometry: &Geometry) -> (u64, u64) {
        match self {
            Command::Read { at, len, .. } | Command::Write { at, len, .. } => (at, len),
            Command::Zone { zone, .. } => (geometry.start(zone), geometry.zone_size),
            _ => (0, 0),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Report { from, zones } => write!(f, "report of {zones} zones from {from}"),
            Command::Read { at, len, tag } => write!(f, "read of {len} bytes at {at} ({:?})", tag.cause),
            Command::Write { at, len, crc, tag } => {
                write!(f, "write of {len} bytes at {at} ({:?}, crc {crc:08x})", tag.cause)
            }
            Command::Flush { tag } => write!(f, "flush ({:?})", tag.cause),
            Command::Zone { op, zone, tag } => write!(f, "{} of zone {zone} ({:?})", op.name(), tag.cause),
            Command::WriteCache { on } => write!(f, "write cache {}", if *on { "on" } else { "off" }),
        }
    }
}

/// A moment at which the machine may die.
pub(crate) struct Moment {
    /// Number of the crash point.
    pub(crate) point: u64,
    /// How many commands had been issued.
    pub(crate) command: u64,
    /// Where in the run it is, for people.
    pub(crate) what: String,
    /// The drive, on its own from here.
    pub(crate) model: Model,
    /// The survivor, on its own from here.
    pub(crate) survivor: HeapSurvivor,
}

/// Who listens to a recorder.
pub(crate) trait Sink: Send {
    /// Whether `take` is to be called for this point: only then is anything copied. `faulted`: a fault was injected before.
    fn wants(&mut self, point: u64, faulted: bool) -> bool;
    /// The moment of a point that was wanted.
    fn take(&mut self, moment: Moment);
}

/// Counts and hashes only.
pub(crate) struct CountOnly;

impl Sink for CountOnly {
    fn wants(&mut self, _point: u64, _faulted: bool) -> bool {
        false
    }
    fn take(&mut self, _moment: Moment) {}
}

/// A fault that hits one command, counted from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Injection {
    pub(crate) command: u64,
    pub(crate) kind: FaultKind,
    /// Of a torn write: which blocks are kept, as a seed.
    pub(crate) seed: u64,
}

/// What a run was, once it is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) commands: u64,
    pub(crate) points: u64,
    pub(crate) hash: u64,
    /// Hash after each command, where asked for.
    pub(crate) trace: Vec<u64>,
    /// Each command, where asked for.
    pub(crate) list: Vec<Command>,
    /// The first command that was another one than in the run before.
    pub(crate) diverged: Option<(u64, String)>,
    /// The fault that was injected.
    pub(crate) injected: Option<Injected>,
}

struct Inner {
    sink: Box<dyn Sink>,
    tally: Tally,
    expected: Option<Arc<Vec<u64>>>,
    keep_trace: bool,
    injection: Option<Injection>,
    last_sign: Instant,
}

/// The recording device. Shared by the workload, its log and whoever runs it.
pub(crate) struct Recorder {
    model: Model,
    heap: Arc<HeapSurvivor>,
    identity: Identity,
    geometry: Geometry,
    cuts: u32,
    seed: u64,
    inner: Mutex<Inner>,
}

impl Recorder {
    /// Records what happens to `model` from here on. At most `cuts` places inside a write are crash points.
    pub(crate) fn new(model: Model, survivor: HeapSurvivor, cuts: u32, seed: u64, sink: Box<dyn Sink>) -> Arc<Self> {
        Arc::new(Self::unshared(model, survivor, cuts, seed, sink))
    }

    /// The same before it is shared.
    pub(crate) fn unshared(model: Model, survivor: HeapSurvivor, cuts: u32, seed: u64, sink: Box<dyn Sink>) -> Self {
        let (identity, geometry) = (model.device().identity().clone(), model.device().geometry().clone());
        let inner = Inner {
            sink,
            tally: Tally::default(),
            expected: None,
            keep_trace: false,
            injection: None,
            last_sign: Instant::now(),
        };
        Recorder { model, heap: Arc::new(survivor), identity, geometry, cuts, seed, inner: Mutex::new(inner) }
    }

    /// Goes on from the hash of what was run before.
    pub(crate) fn start_from(&self, hash: u64) {
        self.inner().tally.hash = hash;
    }

    /// Keeps every command and the hash after it.
    pub(crate) fn keep_trace(&self) {
        self.inner().keep_trace = true;
    }

    /// Compares with the hashes of an earlier run.
    pub(crate) fn expect(&self, trace: Arc<Vec<u64>>) {
        self.inner().expected = Some(trace);
    }

    /// Makes one command fail.
    pub(crate) fn inject(&self, injection: Injection) {
        self.inner().injection = Some(injection);
    }

    /// The drive to hand to a workload.
    pub(crate) fn drive(self: &Arc<Self>) -> Drive {
        Drive { device: self.clone(), survivor: Some(Arc::new(RecordedSurvivor(self.clone()))) }
    }

    /// The end of the run is the last crash point. Listening ends with it.
    pub(crate) fn finish(&self) -> Tally {
        let mut inner = self.inner();
        self.point(&mut inner, || "the end".into(), None);
        inner.sink = Box::new(CountOnly);
        inner.tally.clone()
    }

    /// The drive and survivor as they are now.
    pub(crate) fn now(&self) -> (Model, HeapSurvivor) {
        let _quiet = self.inner();
        (self.model.fork(), self.heap.snapshot())
    }

    /// Rule violations of the drive so far.
    pub(crate) fn violations(&self) -> u64 {
        self.model.violations()
    }

    /// For how long nothing has happened.
    pub(crate) fn silence(&self) -> Duration {
        // Busy means that it is just doing something (or waiting for room in the queue): no silence.
        self.inner.try_lock().map_or(Duration::ZERO, |inner| inner.last_sign.elapsed())
    }

    /// The workload's log says that something was acknowledged or synced.
    pub(crate) fn promise(&self, event: u64) {
        let mut inner = self.inner();
        inner.last_sign = Instant::now();
        let which = if event & 1 == 1 { "sync" } else { "acknowledgement" };
        self.point(&mut inner, || format!("after the {which} of operation {}", event >> 1), None);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One crash point. `torn`: a write of which only these first bytes have arrived.
    fn point(&self, inner: &mut Inner, what: impl FnOnce() -> String, torn: Option<(&[u8], u64, Tag)>) {
        let point = inner.tally.points;
        inner.tally.points += 1;
        let faulted = inner.tally.injected.is_some();
        if !inner.sink.wants(point, faulted) {
            return;
        }
        let model = self.model.fork();
        if let Some((bytes, at, tag)) = torn {
            // A write that breaks a rule changes nothing, and neither does its beginning.
            let _ = model.device().write_at(bytes, at, tag);
        }
        let survivor = self.heap.snapshot();
        let moment = Moment { point, command: inner.tally.commands, what: what(), model, survivor };
        inner.sink.take(moment);
        inner.last_sign = Instant::now();
    }

    /// Numbers and hashes a command; the fault that is to hit it, if any.
    fn begin(&self, inner: &mut Inner, command: Command) -> Option<Injection> {
        inner.last_sign = Instant::now();
        if command.mutates() {
            self.point(inner, || format!("before the {command}"), None);
        }
        let number = inner.tally.commands;
        let tally = &mut inner.tally;
        tally.commands += 1;
        tally.hash = command.hash(tally.hash);
        if inner.keep_trace {
            tally.trace.push(tally.hash);
            tally.list.push(command);
        }
        if let Some(expected) = &inner.expected
            && tally.diverged.is_none()
            && expected.get(number as usize) != Some(&tally.hash)
        {
            tally.diverged = Some((number, command.to_string()));
        }
        let hit = inner.injection.take_if(|injection| injection.command == number)?;
        let (at, len) = command.range(&self.geometry);
        inner.tally.injected = Some(Injected { kind: hit.kind, at, len, cause: command.cause() });
        Some(hit)
    }

    /// Block boundaries strictly inside a write of `blocks` blocks that are crash points.
    fn cuts(&self, blocks: u64, number: u64) -> Vec<u64> {
        let inside = blocks.saturating_sub(1);
        let most = u64::from(self.cuts);
        if inside <= most {
            return (1..blocks).collect();
        }
        let drawn = |i: u64| match i {
            0 => 1,
            1 => inside,
            _ => 1 + mix(mix(self.seed, number), i) % inside,
        };
        let mut cuts: Vec<u64> = (0..most).map(drawn).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    fn fault(&self, fault: Fault, at: u64) -> Error {
        Error::new(&self.identity.name, fault).at(self.geometry.zone_of(at), at)
    }

    fn io(&self, what: &'static str, at: u64) -> Error {
        self.fault(Fault::Io(Arc::new(std::io::Error::other(what))), at)
    }

    /// What the caller of a command that was hit gets; `None`: the command goes on (to a drive that has changed).
    fn hit(&self, injection: Injection, command: Command, data: &[u8]) -> Option<Error> {
        let (at, len) = command.range(&self.geometry);
        let block = u64::from(self.geometry.block);
        // A number of whole blocks, less than the command has.
        let part = mix(injection.seed, injection.command) % (len / block).max(1) * block;
        Some(match injection.kind {
            FaultKind::ReadMedia => self.fault(Fault::Media { len: part }, at),
            FaultKind::WriteError => self.io("injected: write failed", at),
            FaultKind::TornWrite => {
                if let (Command::Write { tag, .. }, Some(kept)) = (command, data.get(..part as usize))
                    && !kept.is_empty()
                    && let Err(error) = self.model.device().write_at(kept, at, tag)
                {
                    return Some(error);
                }
                self.fault(Fault::Media { len: part }, at)
            }
            FaultKind::FlushError => self.io("injected: flush failed", at),
            FaultKind::ZoneOpError => self.io("injected: zone operation failed", at),
            FaultKind::NoSpace => self.fault(Fault::NoSpace, at),
            FaultKind::ZoneReadOnly | FaultKind::ZoneOffline => {
                self.model.wear_out(self.geometry.zone_of(at), injection.kind == FaultKind::ZoneOffline);
                return None;
            }
            FaultKind::PowerLoss | FaultKind::QuietPowerLoss => {
                self.model.lose_power(injection.kind == FaultKind::PowerLoss, injection.seed);
                return None;
            }
            FaultKind::BitFlip | FaultKind::BadSector => return None,
        })
    }

    /// Damage to what was just written.
    fn damage(&self, injection: Injection, at: u64, len: u64) {
        let place = mix(injection.seed, len);
        match injection.kind {
            FaultKind::BitFlip => self.model.flip_bit(at + place % len.max(1), 1 << (place >> 32 & 7)),
            FaultKind::BadSector => {
                let block = u64::from(self.geometry.block);
                self.model.bad_sector(at + place % (len / block).max(1) * block, block);
            }
            _ => {}
        }
    }
}

impl ZonedDevice for Recorder {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn power_epoch(&self) -> [u8; 16] {
        self.model.device().power_epoch()
    }

    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        let mut inner = self.inner();
        self.begin(&mut inner, Command::Report { from, zones: out.len() });
        self.model.device().report(from, out)
    }

    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        let mut inner = self.inner();
        let command = Command::Read { at, len: buf.len() as u64, tag };
        if let Some(injection) = self.begin(&mut inner, command)
            && let Some(error) = self.hit(injection, command, &[])
        {
            let good = if let Fault::Media { len } = error.fault { len as usize } else { 0 };
            let (good, bad) = buf.split_at_mut(good.min(buf.len()));
            if !good.is_empty() {
                self.model.device().read_at(good, at, tag)?;
            }
            // Whoever looks at the rest takes it for something it is not.
            bad.fill(0xdb);
            return Err(error);
        }
        self.model.device().read_at(buf, at, tag)
    }

    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let mut inner = self.inner();
        let len = buf.len() as u64;
        let command = Command::Write { at, len, crc: crc32c::crc32c(buf), tag };
        let injection = self.begin(&mut inner, command);
        let block = u64::from(self.geometry.block);
        let number = inner.tally.commands;
        for cut in self.cuts(len / block, number) {
            let kept = (cut * block) as usize;
            self.point(
                &mut inner,
                || format!("after {kept} bytes of the {command}"),
                buf.get(..kept).map(|bytes| (bytes, at, tag)),
            );
        }
        if let Some(error) = injection.and_then(|injection| self.hit(injection, command, buf)) {
            return Err(error);
        }
        self.model.device().write_at(buf, at, tag)?;
        if let Some(injection) = injection {
            self.damage(injection, at, len);
        }
        Ok(())
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        let mut inner = self.inner();
        let command = Command::Flush { tag };
        if let Some(error) = self.begin(&mut inner, command).and_then(|injection| self.hit(injection, command, &[])) {
            return Err(error);
        }
        self.model.device().flush(tag)
    }

    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        let mut inner = self.inner();
        let command = Command::Zone { op, zone, tag };
        if let Some(error) = self.begin(&mut inner, command).and_then(|injection| self.hit(injection, command, &[])) {
            return Err(error);
        }
        self.model.device().zone_op(op, zone, tag)
    }

    fn write_cache(&self) -> Result<bool> {
        self.model.device().write_cache()
    }

    fn set_write_cache(&self, on: bool) -> Result<()> {
        let mut inner = self.inner();
        self.begin(&mut inner, Command::WriteCache { on });
        self.model.device().set_write_cache(on)
    }
}

/// The survivor beside a recorded drive: its changes are crash points too.
struct RecordedSurvivor(Arc<Recorder>);

impl RecordedSurvivor {
    fn point(&self, what: &'static str) {
        let mut inner = self.0.inner();
        self.0.point(&mut inner, || what.into(), None);
    }
}

impl Survivor for RecordedSurvivor {
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        // What a workload took for a new mount after the death of its process is one after a power loss: its log would be wrong.
        if self.0.inner().tally.injected.is_some_and(|injected| injected.kind.is_power()) {
            return Err(self.0.io("a run ends with the first mount after the drive's power loss", 0));
        }
        self.0.heap.left_behind(key)
    }

    fn create_filled(&self, key: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>> {
        self.point("before a survivor's region is made");
        let region = self.0.heap.create_filled(key, capacity, fill)?;
        self.point("after a survivor's region was made");
        Ok(region)
    }

    fn discard(&self, volume: &[u8; 16]) -> Result<()> {
        self.point("before the survivor's region is discarded");
        self.0.heap.discard(volume)?;
        self.point("after the survivor's region was discarded");
        Ok(())
    }
}
