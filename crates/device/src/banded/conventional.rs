//! The conventional zones of a zoned drive as a flat disk: cut into bands they serve as sequential zones.
//!
//! A zoned drive has no page cache beside it, so the live part is in a survivor's region (shared memory), under the drive's
//! power epoch: a power loss makes it another's. There each 16 bytes have two copies and a word that says which one counts, so
//! that a process that dies between any two instructions leaves the old ones or the new ones.

use super::base::{Base, BaseFacts};
use super::lock;
use crate::{
    Cause, Error, Fault, Region, Result, Survivor, SurvivorKey, Tag, Zone, ZoneState, ZonedDevice, report_all,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What the live part is changed by at a time.
const GRAIN: usize = 16;
/// Two copies, the word that chooses, and what keeps the next ones aligned.
const STRIDE: usize = 3 * GRAIN;
const TAG: Tag = Tag::new(Cause::Pool);

/// The conventional zones at the beginning of a drive.
pub struct ConventionalZones {
    device: Arc<dyn ZonedDevice>,
    survivor: Option<Arc<dyn Survivor>>,
    facts: BaseFacts,
    live: Mutex<Option<Live>>,
}

struct Live {
    region: Arc<dyn Region>,
    /// Where on the disk it would be.
    at: u64,
    len: usize,
}

impl ConventionalZones {
    /// Of this drive. Without a survivor the death of the process costs what a power loss costs.
    ///
    /// Errors: `Unusable` where the drive does not begin with conventional zones.
    pub fn new(device: Arc<dyn ZonedDevice>, survivor: Option<Arc<dyn Survivor>>) -> Result<ConventionalZones> {
        let (geometry, identity) = (device.geometry(), device.identity());
        let zones = report_all(device.as_ref())?;
        // Those that died among them keep their places.
        let dead = |zone: &&Zone| matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline);
        let first = zones.iter().take_while(|zone| zone.state == ZoneState::Conventional || dead(zone));
        let conventional = first.count();
        if !zones.iter().take(conventional).any(|zone| zone.state == ZoneState::Conventional) {
            let sentence = "it does not begin with conventional zones, so there is nothing to cut into bands";
            return Err(Error::unusable(&identity.name, sentence));
        }
        let facts = BaseFacts {
            name: identity.name.clone(),
            size: conventional as u64 * geometry.zone_size,
            block: geometry.block,
            max_io: geometry.max_io,
            rotational: geometry.rotational,
            medium: identity.medium,
            boot: device.power_epoch(),
        };
        Ok(ConventionalZones { device, survivor, facts, live: Mutex::new(None) })
    }

    fn key(&self, uuid: &[u8; 16]) -> SurvivorKey {
        SurvivorKey { volume: *uuid, medium: self.facts.medium, power_epoch: self.facts.boot, mount: 0 }
    }

    /// The pieces of a command that neither cross a zone nor are too long: places in the buffer.
    fn pieces(&self, at: u64, len: usize) -> Vec<std::ops::Range<usize>> {
        let (zone, most) = (self.device.geometry().zone_size, self.facts.max_io as usize);
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < len {
            let left = zone - (at + done as u64) % zone;
            let n = (len - done).min(most).min(usize::try_from(left).unwrap_or(usize::MAX));
            pieces.push(done..done + n);
            done += n;
        }
        pieces
    }
}

/// What the bytes of a region say.
fn unpack(region: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    for grain in region.chunks_exact(STRIDE) {
        let second = grain[2 * GRAIN] == 1;
        bytes.extend_from_slice(if second { &grain[GRAIN..2 * GRAIN] } else { &grain[..GRAIN] });
    }
    bytes.resize(len, 0);
    bytes
}

impl Live {
    /// Changes what stands in one grain, from `from` on.
    fn change(&self, grain: usize, from: usize, bytes: &[u8]) {
        assert!((grain + 1) * STRIDE <= self.region.len() && from + bytes.len() <= GRAIN, "a grain of the region");
        let base = self.region.base().as_ptr();
        // SAFETY: in bounds by the assertion; regions are aligned and strides are multiples of 8; only accessed as an atomic.
        let choice = unsafe { &*base.add(grain * STRIDE + 2 * GRAIN).cast::<AtomicU64>() };
        let now = choice.load(Ordering::Acquire) & 1;
        let mut whole = [0; GRAIN];
        let (old, new) = (grain * STRIDE + now as usize * GRAIN, grain * STRIDE + (1 - now as usize) * GRAIN);
        // SAFETY: in bounds as above; the caller's lock keeps every other access away.
        unsafe { std::ptr::copy_nonoverlapping(base.add(old), whole.as_mut_ptr(), GRAIN) };
        whole[from..from + bytes.len()].copy_from_slice(bytes);
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(whole.as_ptr(), base.add(new), GRAIN) };
        choice.store(1 - now, Ordering::Release);
    }
}

impl Base for ConventionalZones {
    fn facts(&self) -> &BaseFacts {
        &self.facts
    }

    fn read(&self, buf: &mut [u8], at: u64) -> Result<(), Fault> {
        for piece in self.pieces(at, buf.len()) {
            let (from, at) = (piece.start as u64, at + piece.start as u64);
            self.device.read_at(&mut buf[piece], at, TAG).map_err(|error| match error.fault {
                Fault::Media { len } => Fault::Media { len: from + len },
                other => other,
            })?;
        }
        Ok(())
    }

    fn write(&self, buf: &[u8], at: u64) -> Result<(), Fault> {
        let mut pieces = self.pieces(at, buf.len()).into_iter();
        pieces.try_for_each(|piece| {
            let at = at + piece.start as u64;
            self.device.write_at(&buf[piece], at, TAG).map_err(|error| error.fault)
        })
    }

    fn sync(&self) -> Result<(), Fault> {
        self.device.flush(TAG).map_err(|error| error.fault)?;
        // A drive that is back after its power was gone answers a flush well, although what was in its cache is lost.
        if self.device.power_epoch() == self.facts.boot {
            return Ok(());
        }
        let text = "the drive lost its power while it was open, and with it what was not on the disk yet; open the drive again";
        Err(Fault::Io(Arc::new(std::io::Error::other(text))))
    }

    fn discard(&self, _: u64, _: u64) {}

    fn live(&self, uuid: &[u8; 16], _: u64, len: usize) -> Result<Vec<u8>, Fault> {
        let Some(survivor) = &self.survivor else { return Ok(vec![0; len]) };
        let left = survivor.left_behind(&self.key(uuid)).map_err(|error| error.fault)?;
        Ok(unpack(&left.unwrap_or_default(), len))
    }

    fn start_live(&self, uuid: &[u8; 16], at: u64, len: usize) -> Result<(), Fault> {
        let Some(survivor) = &self.survivor else { return Ok(()) };
        let region = survivor.create(&self.key(uuid), len.div_ceil(GRAIN) * STRIDE).map_err(|error| error.fault)?;
        *lock(&self.live) = Some(Live { region, at, len });
        Ok(())
    }

    fn put(&self, bytes: &[u8], at: u64) -> Result<(), Fault> {
        let live = lock(&self.live);
        let Some(live) = live.as_ref() else { return Ok(()) };
        let outside = || Fault::InvalidInput("outside of the live part".into());
        let from = usize::try_from(at.checked_sub(live.at).ok_or_else(outside)?).map_err(|_| outside())?;
        if from.saturating_add(bytes.len()) > live.len {
            return Err(outside());
        }
        let mut done = 0;
        while done < bytes.len() {
            let (grain, inside) = ((from + done) / GRAIN, (from + done) % GRAIN);
            let n = (bytes.len() - done).min(GRAIN - inside);
            live.change(grain, inside, &bytes[done..done + n]);
            done += n;
        }
        Ok(())
    }
}
