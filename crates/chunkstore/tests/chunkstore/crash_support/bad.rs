//! A drive of which some cannot be read: blocks, or a whole zone; for good, or until it is said to be over.

use imbrex_device::{
    Cause, Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice,
};
use std::sync::{Arc, Mutex};

/// See the module.
pub struct Bad {
    drive: Arc<dyn ZonedDevice>,
    /// Bytes that cannot be read, from one address up to another. What is reset can be read again.
    blocks: Mutex<Vec<(u64, u64)>>,
    offline: Mutex<Option<ZoneId>>,
}

impl Bad {
    pub fn new(drive: Arc<dyn ZonedDevice>) -> Arc<Bad> {
        Arc::new(Bad { drive, blocks: Mutex::default(), offline: Mutex::default() })
    }

    pub fn lose(&self, from: u64, to: u64) {
        self.blocks.lock().unwrap().push((from, to));
    }

    /// A zone that is offline does not count as active any more.
    pub fn lose_zone(&self, zone: ZoneId) {
        let mut report = [Zone::EMPTY];
        self.drive.report(zone, &mut report).unwrap();
        let state = report[0].state;
        if self.geometry().max_active.is_some() && (state.is_open() || state == ZoneState::Closed) {
            self.drive.zone_op(ZoneOp::Finish, zone, Cause::Other.into()).unwrap();
        }
        *self.offline.lock().unwrap() = Some(zone);
    }

    /// All of it can be read again.
    pub fn heal(&self) {
        self.blocks.lock().unwrap().clear();
        *self.offline.lock().unwrap() = None;
    }

    fn is_offline(&self, zone: ZoneId) -> bool {
        *self.offline.lock().unwrap() == Some(zone)
    }

    fn check(&self, at: u64) -> Result<()> {
        let zone = self.geometry().zone_of(at);
        match self.is_offline(zone) {
            true => Err(Error::new(&self.identity().name, Fault::Offline).at(zone, at)),
            false => Ok(()),
        }
    }
}

impl ZonedDevice for Bad {
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
        let n = self.drive.report(from, out)?;
        for zone in out[..n].iter_mut().filter(|zone| self.is_offline(zone.id)) {
            (zone.state, zone.wp) = (ZoneState::Offline, None);
        }
        Ok(n)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        let end = at + buf.len() as u64;
        let last = self.geometry().zone_of(end.saturating_sub(1));
        self.check(at)?;
        self.check(self.geometry().start(last))?;
        let bad =
            self.blocks.lock().unwrap().iter().filter(|(from, to)| *from < end && at < *to).map(|bad| bad.0).min();
        match bad {
            Some(bad) => {
                let len = bad.saturating_sub(at);
                Err(Error::new(&self.identity().name, Fault::Media { len }).at(self.geometry().zone_of(at), at))
            }
            None => self.drive.read_at(buf, at, tag),
        }
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.check(at)?;
        self.drive.write_at(buf, at, tag)?;
        // What is written anew can be read.
        let end = at + buf.len() as u64;
        let mut blocks = self.blocks.lock().unwrap();
        let cut = |(from, to): &(u64, u64)| [(*from, (*to).min(at)), ((*from).max(end), *to)];
        *blocks = blocks.iter().flat_map(cut).filter(|(from, to)| from < to).collect();
        Ok(())
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.drive.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        let start = self.geometry().start(zone);
        self.check(start)?;
        self.drive.zone_op(op, zone, tag)?;
        if op == ZoneOp::Reset {
            let end = start + self.geometry().zone_size;
            self.blocks.lock().unwrap().retain(|(from, _)| !(start..end).contains(from));
        }
        Ok(())
    }
    fn write_cache(&self) -> Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.drive.set_write_cache(on)
    }
}
