//! A drive that tells of each command that changes it, before it does.

use imbrex_device::{Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::Emulator;
use std::sync::{Arc, Mutex};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Write,
    Flush,
    Zone,
}

type See = Box<dyn FnMut(usize, Kind) -> Result<()> + Send>;

/// Who sees the commands of both drives. An error is the command's.
#[derive(Default)]
pub struct Watch(Mutex<Option<See>>);

impl Watch {
    pub fn new(see: impl FnMut(usize, Kind) -> Result<()> + Send + 'static) -> Arc<Watch> {
        Arc::new(Watch(Mutex::new(Some(Box::new(see)))))
    }

    fn see(&self, n: usize, kind: Kind) -> Result<()> {
        // Whoever sees a command may use copies of the drives, but not these.
        match self.0.lock().unwrap().as_mut() {
            Some(see) => see(n, kind),
            None => Ok(()),
        }
    }

    /// Nobody sees anything from here on.
    pub fn end(&self) {
        *self.0.lock().unwrap() = None;
    }
}

pub struct Watched {
    pub drive: Emulator,
    pub n: usize,
    pub watch: Arc<Watch>,
}

impl ZonedDevice for Watched {
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
        self.drive.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.watch.see(self.n, Kind::Write)?;
        self.drive.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.watch.see(self.n, Kind::Flush)?;
        self.drive.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.watch.see(self.n, Kind::Zone)?;
        self.drive.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.drive.set_write_cache(on)
    }
}
