//! The drive: an emulated one under a layer that lets commands fail.
//!
//! Invariant: with nothing armed it is the emulated drive. A command that fails did nothing, but for a torn write, which
//! wrote a beginning; a zone that dies is dead for good.

use imbrex_device::{Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice};
use imbrex_emulator::Emulator;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What happens to a command that is hit. The numbers are those of `bindings/common/faults/faults.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// A read fails with a medium error.
    Read = 0,
    /// A write fails.
    Write = 1,
    /// A write fails after its first half.
    TornWrite = 2,
    /// A flush fails.
    Flush = 3,
    /// Opening, closing, finishing or resetting a zone fails.
    ZoneOp = 4,
    /// A write finds no space.
    NoSpace = 5,
    /// The sequential zone of a write turns read-only before it.
    ReadOnly = 6,
    /// The sequential zone of a write goes offline before it.
    Offline = 7,
    /// A read succeeds, with a bit flipped.
    BitFlip = 8,
}

/// What a command is, as far as faults care.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Read,
    Write { mortal: bool },
    Flush,
    ZoneOp,
}

impl Kind {
    pub(crate) fn of(number: u32) -> Option<Kind> {
        use Kind::*;
        let all = [Read, Write, TornWrite, Flush, ZoneOp, NoSpace, ReadOnly, Offline, BitFlip];
        all.into_iter().find(|kind| *kind as u32 == number)
    }

    fn can_hit(self, command: Command) -> bool {
        match self {
            Kind::Read | Kind::BitFlip => command == Command::Read,
            Kind::Write | Kind::TornWrite | Kind::NoSpace => matches!(command, Command::Write { .. }),
            Kind::ReadOnly | Kind::Offline => command == Command::Write { mortal: true },
            Kind::Flush => command == Command::Flush,
            Kind::ZoneOp => command == Command::ZoneOp,
        }
    }
}

/// Which commands are to fail.
pub(crate) struct Plan(Mutex<Armed>);

struct Armed {
    kind: Option<Kind>,
    skip: u64,
    times: u64,
    hits: u64,
}

impl Plan {
    pub(crate) const fn new() -> Plan {
        Plan(Mutex::new(Armed { kind: None, skip: 0, times: 0, hits: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Armed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn arm(&self, kind: Kind, skip: u64, times: u64) {
        *self.lock() = Armed { kind: Some(kind), skip, times, hits: 0 };
    }

    pub(crate) fn disarm(&self) -> u64 {
        let mut armed = self.lock();
        armed.kind = None;
        armed.hits
    }

    pub(crate) fn hits(&self) -> u64 {
        self.lock().hits
    }

    /// What happens to this command.
    fn hit(&self, command: Command) -> Option<Kind> {
        let mut armed = self.lock();
        let kind = armed.kind.filter(|kind| kind.can_hit(command))?;
        if armed.skip > 0 {
            armed.skip -= 1;
            return None;
        }
        if armed.times == 0 {
            return None;
        }
        armed.times -= 1;
        armed.hits += 1;
        Some(kind)
    }
}

/// A drive that does as the plan says.
pub(crate) struct Faulty {
    below: Arc<Emulator>,
    plan: &'static Plan,
}

impl Faulty {
    pub(crate) fn new(below: Arc<Emulator>, plan: &'static Plan) -> Faulty {
        Faulty { below, plan }
    }

    fn fault(&self, fault: Fault, at: u64) -> Error {
        Error::new(&self.identity().name, fault).at(self.geometry().zone_of(at), at)
    }

    fn failed(&self, what: &str, at: u64) -> Error {
        self.fault(Fault::Io(Arc::new(io::Error::other(format!("injected: {what} failed")))), at)
    }

    /// Sequential zones die, but for the first two, where the labels may stand: a volume lives on with one label zone only
    /// until that is full, which on a drive of this size is soon.
    fn is_mortal(&self, zone: ZoneId) -> bool {
        let mut report = [Zone::EMPTY];
        let known = self.below.report(zone, &mut report).is_ok_and(|n| n == 1);
        known && zone.0 >= 2 && report[0].state != ZoneState::Conventional
    }
}

impl ZonedDevice for Faulty {
    fn identity(&self) -> &Identity {
        self.below.identity()
    }
    fn power_epoch(&self) -> [u8; 16] {
        self.below.power_epoch()
    }

    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }

    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.below.report(from, out)
    }

    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        let hit = self.plan.hit(Command::Read);
        if hit == Some(Kind::Read) {
            return Err(self.fault(Fault::Media { len: 0 }, at));
        }
        self.below.read_at(buf, at, tag)?;
        if hit == Some(Kind::BitFlip) {
            let middle = buf.len() / 2;
            if let Some(byte) = buf.get_mut(middle) {
                *byte ^= 0x10;
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let zone = self.geometry().zone_of(at);
        match self.plan.hit(Command::Write { mortal: self.is_mortal(zone) }) {
            Some(Kind::Write) => return Err(self.failed("a write", at)),
            Some(Kind::NoSpace) => return Err(self.fault(Fault::NoSpace, at)),
            Some(Kind::TornWrite) => {
                let block = self.geometry().block as usize;
                let half = buf.len() / block / 2 * block;
                if let Some(kept) = buf.get(..half).filter(|kept| !kept.is_empty()) {
                    self.below.write_at(kept, at, tag)?;
                }
                return Err(self.fault(Fault::Media { len: half as u64 }, at));
            }
            Some(Kind::ReadOnly) => self.below.faults().make_read_only(zone)?,
            Some(Kind::Offline) => self.below.faults().make_offline(zone)?,
            _ => {}
        }
        self.below.write_at(buf, at, tag)
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        match self.plan.hit(Command::Flush) {
            Some(_) => Err(self.failed("a flush", 0)),
            None => self.below.flush(tag),
        }
    }

    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        match self.plan.hit(Command::ZoneOp) {
            Some(_) => Err(self.failed("a zone operation", self.geometry().start(zone))),
            None => self.below.zone_op(op, zone, tag),
        }
    }

    fn write_cache(&self) -> Result<bool> {
        self.below.write_cache()
    }

    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.below.set_write_cache(on)
    }
}
