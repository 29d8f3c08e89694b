//! Bytes of a table on a drive that may refuse to read some of them.

use crate::sync::{Mutex, lock};
use crate::table::Source;
use imbrex_device::{AlignedBuf, Cause, Result, Tag, ZoneId, ZonedDevice};
use imbrex_zones::volume::read_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const TAG: Tag = Tag::new(Cause::Recovery);

/// See the module. It reads ahead: whoever goes through a table asks for short pieces in order.
pub(super) struct Place {
    device: Arc<dyn ZonedDevice>,
    zone: ZoneId,
    /// Where the table begins, in bytes from the zone's start.
    at: u64,
    len: u64,
    ahead: u64,
    piece: Mutex<(u64, Vec<u8>)>,
    /// Counts what is read.
    read: Arc<AtomicU64>,
}

impl Place {
    pub fn new(
        device: &Arc<dyn ZonedDevice>,
        (zone, at, len): (u32, u64, u64),
        ahead: u64,
        read: &Arc<AtomicU64>,
    ) -> Place {
        let (device, read) = (device.clone(), read.clone());
        Place { device, zone: ZoneId(zone), at, len, ahead, piece: Mutex::default(), read }
    }

    fn load(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let bytes = read_zone(self.device.as_ref(), self.zone, self.at + at, len)?;
        self.read.fetch_add(len, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// Any bytes of a zone.
pub(super) fn read_zone(device: &dyn ZonedDevice, zone: ZoneId, at: u64, len: u64) -> Result<Vec<u8>> {
    let block = u64::from(device.geometry().block);
    let begin = at / block * block;
    let mut buf = AlignedBuf::zeroed(((at + len).next_multiple_of(block) - begin) as usize);
    read_all(device, &mut buf, device.geometry().start(zone) + begin, TAG)?;
    let skip = (at - begin) as usize;
    Ok(buf[skip..skip + len as usize].to_vec())
}

impl Source for Place {
    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut piece = lock(&self.piece);
        let end = at + len as u64;
        if at < piece.0 || end > piece.0 + piece.1.len() as u64 {
            let more = self.ahead.min(self.len.saturating_sub(at)).max(len as u64);
            match self.load(at, more) {
                Ok(bytes) => *piece = (at, bytes),
                // What nobody asked for may be what cannot be read.
                Err(_) if more > len as u64 => return self.load(at, len as u64),
                Err(error) => return Err(error),
            }
        }
        let skip = (at - piece.0) as usize;
        Ok(piece.1[skip..skip + len].to_vec())
    }

    fn drive(&self) -> Arc<str> {
        self.device.identity().name.clone()
    }
}
