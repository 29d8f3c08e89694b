//! What is counted of an open drive, whatever kind of drive it is: commands, bytes and failures, by cause.
//!
//! [`Counted`] passes every command on unchanged. It counts what this process did since it opened the drive; the emulator's
//! own counters stand in its image, count everybody, and go on when the process is gone. Counters are atomics of their own, so
//! a set of them that is read while the drive is used is of no single moment.

use imbrex_device::{Cause, Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What can be asked of a drive, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Command {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Explicit opens of zones.
    Open,
    /// Closes of zones.
    Close,
    /// Finishes of zones.
    Finish,
    /// Resets of zones.
    Reset,
}

impl Command {
    /// Every command, in the order of their numbers.
    pub const ALL: [Command; 7] =
        [Command::Read, Command::Write, Command::Flush, Command::Open, Command::Close, Command::Finish, Command::Reset];

    /// The name that metrics print.
    pub fn name(self) -> &'static str {
        match self {
            Command::Read => "read",
            Command::Write => "write",
            Command::Flush => "flush",
            Command::Open => "zone_open",
            Command::Close => "zone_close",
            Command::Finish => "zone_finish",
            Command::Reset => "zone_reset",
        }
    }
}

impl From<ZoneOp> for Command {
    fn from(op: ZoneOp) -> Self {
        match op {
            ZoneOp::Open => Command::Open,
            ZoneOp::Close => Command::Close,
            ZoneOp::Finish => Command::Finish,
            ZoneOp::Reset => Command::Reset,
        }
    }
}

/// Names of what went wrong, for [`Count::failed`].
pub const FAULTS: [&str; 13] = [
    "invalid_input",
    "write_pointer",
    "zone_full",
    "too_many_open",
    "too_many_active",
    "read_only",
    "offline",
    "media",
    "no_space",
    "corrupt",
    "busy",
    "unusable",
    "io",
];

fn fault_number(fault: &Fault) -> usize {
    match fault {
        Fault::InvalidInput(_) => 0,
        Fault::WritePointer { .. } => 1,
        Fault::ZoneFull => 2,
        Fault::TooManyOpen => 3,
        Fault::TooManyActive => 4,
        Fault::ReadOnly => 5,
        Fault::Offline => 6,
        Fault::Media { .. } => 7,
        Fault::NoSpace => 8,
        Fault::Corrupt { .. } => 9,
        Fault::Busy { .. } => 10,
        Fault::Unusable(_) | Fault::Misuse(_) | Fault::Refused(..) => 11,
        Fault::Io(_) => 12,
    }
}

/// The counters of one cause. On cache lines of its own: threads that work for different reasons do not slow each other.
#[derive(Default)]
#[repr(align(128))]
struct OfCause {
    commands: [AtomicU64; Command::ALL.len()],
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    failed: [AtomicU64; FAULTS.len()],
}

/// Everything counted of one open drive.
pub struct Counters(Vec<OfCause>);

/// What was counted of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The cause.
    pub cause: Cause,
    /// Commands that succeeded, in the order of [`Command::ALL`].
    pub commands: [u64; Command::ALL.len()],
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Commands that failed, in the order of [`FAULTS`].
    pub failed: [u64; FAULTS.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Counters(Cause::ALL.iter().map(|_| OfCause::default()).collect())
    }
}

impl Counters {
    /// What was counted so far, every cause in the order of their numbers.
    pub fn read(&self) -> Vec<Count> {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let count = |(cause, of): (&Cause, &OfCause)| Count {
            cause: *cause,
            commands: of.commands.each_ref().map(load),
            bytes_read: load(&of.bytes_read),
            bytes_written: load(&of.bytes_written),
            failed: of.failed.each_ref().map(load),
        };
        Cause::ALL.iter().zip(&self.0).map(count).collect()
    }

    fn note<T>(&self, command: Command, tag: Tag, bytes: usize, outcome: &Result<T, Error>) {
        let Some(of) = self.0.get(tag.cause as usize) else { return };
        let slot = match outcome {
            Ok(_) => of.commands.get(command as usize),
            Err(error) => of.failed.get(fault_number(&error.fault)),
        };
        slot.map(|n| n.fetch_add(1, Ordering::Relaxed));
        if outcome.is_err() {
            return;
        }
        match command {
            Command::Read => drop(of.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed)),
            Command::Write => drop(of.bytes_written.fetch_add(bytes as u64, Ordering::Relaxed)),
            _ => {}
        }
    }
}

/// A drive whose commands are counted. See the module.
pub struct Counted {
    below: Arc<dyn ZonedDevice>,
    counters: Arc<Counters>,
}

/// Counts what is asked of `device` from now on, through the device that is returned.
pub fn count(device: Arc<dyn ZonedDevice>) -> (Arc<dyn ZonedDevice>, Arc<Counters>) {
    let counters = Arc::new(Counters::default());
    (Arc::new(Counted { below: device, counters: counters.clone() }), counters)
}

impl ZonedDevice for Counted {
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
        let outcome = self.below.read_at(buf, at, tag);
        self.counters.note(Command::Read, tag, buf.len(), &outcome);
        outcome
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let outcome = self.below.write_at(buf, at, tag);
        self.counters.note(Command::Write, tag, buf.len(), &outcome);
        outcome
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        let outcome = self.below.flush(tag);
        self.counters.note(Command::Flush, tag, 0, &outcome);
        outcome
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        let outcome = self.below.zone_op(op, zone, tag);
        self.counters.note(op.into(), tag, 0, &outcome);
        outcome
    }
    fn overwrites(&self) -> bool {
        self.below.overwrites()
    }
    fn set_in_place(&self, zone: ZoneId, tag: Tag) -> Result<()> {
        let outcome = self.below.set_in_place(zone, tag);
        self.counters.note(ZoneOp::Finish.into(), tag, 0, &outcome);
        outcome
    }
    fn write_in_place(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let outcome = self.below.write_in_place(buf, at, tag);
        self.counters.note(Command::Write, tag, buf.len(), &outcome);
        outcome
    }
    fn write_cache(&self) -> Result<bool> {
        self.below.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.below.set_write_cache(on)
    }
    fn busy_seconds(&self) -> Vec<(Cause, &'static str, f64)> {
        self.below.busy_seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::AlignedBuf;
    use imbrex_emulator::{Config, Emulator};

    #[test]
    fn it_counts_what_the_drive_itself_counts() {
        let emulator = Arc::new(Emulator::memory(&Config::tiny()).unwrap());
        let (device, counters) = count(emulator.clone());
        let geometry = device.geometry().clone();
        let zone = ZoneId(geometry.zones - 1);
        let start = geometry.start(zone);
        let mut buf = AlignedBuf::zeroed(2 * geometry.block as usize);
        device.write_at(&buf, start, Cause::Wal.into()).unwrap();
        device.write_at(&buf, start, Cause::Wal.into()).unwrap_err();
        device.read_at(&mut buf, start, Cause::UserRead.into()).unwrap();
        device.flush(Cause::Wal.into()).unwrap();
        device.zone_op(ZoneOp::Reset, zone, Cause::Pool.into()).unwrap();
        let theirs = emulator.stats();
        for ours in counters.read() {
            let theirs = theirs.of(ours.cause);
            let of = |command: Command| ours.commands[command as usize];
            assert_eq!((of(Command::Write), of(Command::Read)), (theirs.writes, theirs.reads), "{:?}", ours.cause);
            assert_eq!((of(Command::Flush), of(Command::Reset)), (theirs.flushes, theirs.zone_resets));
            assert_eq!((ours.bytes_written, ours.bytes_read), (theirs.bytes_written, theirs.bytes_read));
            assert_eq!(ours.failed.iter().sum::<u64>(), theirs.rule_violations);
        }
        let wal = counters.read()[Cause::Wal as usize];
        assert_eq!(wal.failed[FAULTS.iter().position(|f| *f == "write_pointer").unwrap()], 1);
    }
}
