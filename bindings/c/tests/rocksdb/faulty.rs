//! A drive on which one command fails, or all from one on.

use imbrex_device::{Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::Emulator;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Flush,
    ZoneOp,
    /// Everything, from a command that changes something on: the power is gone.
    Power,
}

pub struct Faulty {
    pub drive: Emulator,
    kind: Kind,
    /// Commands of the kind that pass.
    left: AtomicU64,
    hits: AtomicU64,
}

const HEALED: u64 = u64::MAX;

impl Faulty {
    /// The first `skip` commands of the kind pass.
    pub fn new(drive: Emulator, kind: Kind, skip: u64) -> Arc<Faulty> {
        Arc::new(Faulty { drive, kind, left: AtomicU64::new(skip), hits: AtomicU64::new(0) })
    }

    /// No command fails any more. How many did.
    pub fn heal(&self) -> u64 {
        self.left.store(HEALED, Ordering::SeqCst);
        self.hits.load(Ordering::SeqCst)
    }

    /// A command of this kind comes.
    fn comes(&self, kind: Kind) -> Result<()> {
        let counts = kind == self.kind || self.kind == Kind::Power && kind != Kind::Read;
        let power = self.kind == Kind::Power;
        let left = match counts {
            true => self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
                HEALED => None,
                0 => Some(if power { 0 } else { HEALED }),
                left => Some(left - 1),
            }),
            false => Err(if power { self.left.load(Ordering::SeqCst) } else { HEALED }),
        };
        if !matches!(left, Ok(0) | Err(0)) {
            return Ok(());
        }
        self.hits.fetch_add(1, Ordering::SeqCst);
        let fault = match kind {
            Kind::Read => Fault::Media { len: 0 },
            _ => Fault::Io(Arc::new(std::io::Error::other("a command failed"))),
        };
        Err(Error::new(&"faulty".into(), fault))
    }
}

impl ZonedDevice for Faulty {
    fn identity(&self) -> &Identity {
        self.drive.identity()
    }
    fn power_epoch(&self) -> [u8; 16] {
        self.drive.power_epoch()
    }
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.drive.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.comes(Kind::Read)?;
        self.drive.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.comes(Kind::Write)?;
        self.drive.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.comes(Kind::Flush)?;
        self.drive.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.comes(Kind::ZoneOp)?;
        self.drive.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.drive.set_write_cache(on)
    }
}
