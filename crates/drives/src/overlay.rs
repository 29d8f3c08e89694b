//! A look at a drive that leaves it as it is: writes are kept in memory, over a drive that is only read.
//!
//! A mount repairs what a crash has left, and a look (`imbrex fs ls`, `check`) must not. Instead of a second way to mount,
//! which would have to be kept equal to the first, the drive below is covered: [`Overlay`] is a zoned drive of its own that
//! begins with the zones of the one below, takes every write, reset and finish in memory, and passes on only reads and
//! reports. [`Untouched`] does the same for the survivor: what a dead process left is read, not consumed. So the mount that
//! repairs is the one that looks, step by step, and what it found is what a real one would find.
//!
//! Invariants: nothing is ever written to what is below; a block is served from memory if and only if it was written here
//! after the last reset of its zone; memory is bounded (`limit`), beyond it writes fail with `Unusable`. Zones follow the same
//! rules as any drive's (the emulator's contract is run over this, too).

use imbrex_device::{
    Drive, Error, Fault, Fill, Geometry, Identity, Region, Result, Survivor, SurvivorKey, Tag, Zone, ZoneId, ZoneOp,
    ZoneState, ZonedDevice, report_all, zeroed_region,
};
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of writes that an overlay keeps unless told otherwise: four times what the largest usual survivor holds.
pub const DEFAULT_LIMIT: usize = 256 << 20;

/// A zone as it is seen through the overlay.
struct Seen {
    zone: Zone,
    /// Written, opened or reset here: no longer as it is below.
    touched: bool,
    /// Bytes from its start that are still those of the drive below.
    below: u64,
}

struct State {
    zones: Vec<Seen>,
    /// Blocks written here, by address in blocks.
    blocks: HashMap<u64, Box<[u8]>>,
    /// Implicitly open zones, the one opened first in front.
    implicit: VecDeque<u32>,
    write_cache: bool,
}

/// A drive over a drive. See the module.
pub struct Overlay {
    below: Arc<dyn ZonedDevice>,
    limit: usize,
    state: Mutex<State>,
}

impl Overlay {
    /// Covers a drive; at most `limit` bytes of writes are kept.
    pub fn new(below: Arc<dyn ZonedDevice>, limit: usize) -> Result<Overlay> {
        let size = below.geometry().zone_size;
        let seen = |zone: Zone| Seen { below: zone.wp.unwrap_or(size), touched: false, zone };
        let zones: Vec<Seen> = report_all(below.as_ref())?.into_iter().map(seen).collect();
        let open = |s: &&Seen| s.zone.state == ZoneState::ImplicitlyOpen;
        let implicit = zones.iter().filter(open).map(|s| s.zone.id.0).collect();
        let write_cache = below.write_cache()?;
        let state = Mutex::new(State { zones, blocks: HashMap::new(), implicit, write_cache });
        Ok(Overlay { below, limit, state })
    }

    /// Bytes of writes that it keeps now.
    pub fn kept(&self) -> usize {
        self.lock().blocks.len() * self.geometry().block as usize
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, fault: Fault, at: u64) -> Error {
        Error::new(&self.identity().name, fault).at(self.geometry().zone_of(at), at)
    }

    fn invalid(&self, what: &str, at: u64) -> Error {
        self.error(Fault::InvalidInput(what.into()), at)
    }

    fn check_command(&self, buf: &[u8], at: u64) -> Result<()> {
        let g = self.geometry();
        let (len, block) = (buf.len() as u64, u64::from(g.block));
        if len == 0 || !len.is_multiple_of(block) || !at.is_multiple_of(block) {
            return Err(self.invalid("offset or length is not a positive multiple of the block", at));
        }
        if !(buf.as_ptr() as usize).is_multiple_of(g.mem_align.max(1) as usize) {
            return Err(self.invalid("the buffer is not aligned", at));
        }
        if len > u64::from(g.max_io) || at >= g.size() || len > g.size() - at {
            return Err(self.invalid("a command that is too long or ends behind the drive", at));
        }
        Ok(())
    }

    /// Reads within one zone that was touched.
    fn read_touched(&self, state: &State, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        let g = self.geometry();
        let block = g.block as usize;
        let id = g.zone_of(at);
        let seen = &state.zones[id.0 as usize];
        let end = at - g.start(id) + buf.len() as u64;
        if !g.reads_above_wp && seen.zone.wp.is_some_and(|wp| end > wp) {
            return Err(self.invalid("a read above the write pointer, which this drive does not allow", at));
        }
        let mut done = 0;
        while done < buf.len() {
            let here = at + done as u64;
            if let Some(bytes) = state.blocks.get(&(here / block as u64)) {
                buf[done..done + block].copy_from_slice(bytes);
                done += block;
                continue;
            }
            // All that follows and was not written here, in one command.
            let mut to = done + block;
            while to < buf.len() && !state.blocks.contains_key(&((at + to as u64) / block as u64)) {
                to += block;
            }
            let piece = &mut buf[done..to];
            let old = seen.below.saturating_sub(here - g.start(id)).min(piece.len() as u64) as usize;
            let (from_below, zeros) = piece.split_at_mut(old);
            if !from_below.is_empty() {
                self.below.read_at(from_below, here, tag)?;
            }
            zeros.fill(0);
            done = to;
        }
        Ok(())
    }

    fn set(state: &mut State, id: ZoneId, to: ZoneState) {
        let seen = &mut state.zones[id.0 as usize];
        if seen.zone.state == to {
            return;
        }
        state.implicit.retain(|zone| *zone != id.0);
        if to == ZoneState::ImplicitlyOpen {
            state.implicit.push_back(id.0);
        }
        seen.zone.state = to;
        seen.touched = true;
    }

    /// Opens a zone, or finds it open; the drive's limits hold here, too.
    fn open(&self, state: &mut State, id: ZoneId, explicit: bool, at: u64) -> Result<()> {
        let zone = state.zones[id.0 as usize].zone;
        if zone.state == ZoneState::ExplicitlyOpen || (zone.state == ZoneState::ImplicitlyOpen && !explicit) {
            return Ok(());
        }
        let count = |of: &dyn Fn(ZoneState) -> bool| state.zones.iter().filter(|s| of(s.zone.state)).count();
        let reached = |limit: Option<NonZeroU32>, n: usize| limit.is_some_and(|limit| n >= limit.get() as usize);
        let g = self.geometry();
        let active = || count(&|s| s.is_open() || s == ZoneState::Closed);
        if zone.state == ZoneState::Empty && g.max_active.is_some() && reached(g.max_active, active()) {
            return Err(self.error(Fault::TooManyActive, at));
        }
        if !zone.state.is_open() && g.max_open.is_some() && reached(g.max_open, count(&|s| s.is_open())) {
            let Some(&oldest) = state.implicit.front() else { return Err(self.error(Fault::TooManyOpen, at)) };
            let closed =
                if state.zones[oldest as usize].zone.wp == Some(0) { ZoneState::Empty } else { ZoneState::Closed };
            Self::set(state, ZoneId(oldest), closed);
        }
        Self::set(state, id, if explicit { ZoneState::ExplicitlyOpen } else { ZoneState::ImplicitlyOpen });
        Ok(())
    }

    /// Whether a write may go where it wants to.
    fn check_write(&self, zone: &Zone, offset: u64, len: u64, at: u64) -> Result<()> {
        if offset + len > self.geometry().zone_size {
            return Err(self.invalid("a write across zones", at));
        }
        match zone.state {
            ZoneState::ReadOnly => return Err(self.error(Fault::ReadOnly, at)),
            ZoneState::Offline => return Err(self.error(Fault::Offline, at)),
            ZoneState::Full => return Err(self.error(Fault::ZoneFull, at)),
            _ => {}
        }
        if let Some(expected) = zone.wp.filter(|wp| *wp != offset) {
            return Err(self.error(Fault::WritePointer { expected, got: offset }, at));
        }
        if offset + len > zone.capacity {
            return Err(self.error(Fault::ZoneFull, at));
        }
        Ok(())
    }

    fn check_limit(&self, state: &State, more: usize, at: u64) -> Result<()> {
        if (state.blocks.len() * self.geometry().block as usize).saturating_add(more) <= self.limit {
            return Ok(());
        }
        let what = format!("needs more than {} bytes of repairs, which a look keeps in memory; mount it", self.limit);
        Err(self.error(Fault::Unusable(what.into()), at))
    }

    fn forget(&self, state: &mut State, id: ZoneId) {
        let (block, start) = (u64::from(self.geometry().block), self.geometry().start(id));
        let seen = &mut state.zones[id.0 as usize];
        let written = seen.zone.wp.unwrap_or(0);
        seen.below = 0;
        seen.zone.wp = Some(0);
        for block in start / block..(start + written).div_ceil(block) {
            state.blocks.remove(&block);
        }
    }
}

impl ZonedDevice for Overlay {
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
        let state = self.lock();
        let zones = state.zones.get(from.0 as usize..).unwrap_or_default();
        let n = zones.len().min(out.len());
        out.iter_mut().zip(zones).for_each(|(slot, seen)| *slot = seen.zone);
        Ok(n)
    }

    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.check_command(buf, at)?;
        let g = self.geometry();
        let end = at + buf.len() as u64;
        let state = self.lock();
        let zones = g.zone_of(at).0..=g.zone_of(end - 1).0;
        if !zones.clone().any(|zone| state.zones.get(zone as usize).is_some_and(|seen| seen.touched)) {
            drop(state);
            return self.below.read_at(buf, at, tag);
        }
        if zones.end() > zones.start() && !g.reads_cross_zones {
            return Err(self.invalid("a read across zones, which this drive does not allow", at));
        }
        let mut here = at;
        while here < end {
            let to = end.min(g.start(ZoneId(g.zone_of(here).0 + 1)));
            let piece = &mut buf[(here - at) as usize..(to - at) as usize];
            match state.zones.get(g.zone_of(here).0 as usize).is_some_and(|seen| seen.touched) {
                true => self.read_touched(&state, piece, here, tag)?,
                false => self.below.read_at(piece, here, tag)?,
            }
            here = to;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], at: u64, _: Tag) -> Result<()> {
        self.check_command(buf, at)?;
        let g = self.geometry();
        let (id, block) = (g.zone_of(at), g.block as usize);
        let (offset, len) = (at - g.start(id), buf.len() as u64);
        let mut state = self.lock();
        let Some(zone) = state.zones.get(id.0 as usize).map(|seen| seen.zone) else {
            return Err(self.invalid("no such zone", at));
        };
        self.check_write(&zone, offset, len, at)?;
        self.check_limit(&state, buf.len(), at)?;
        if zone.state != ZoneState::Conventional {
            self.open(&mut state, id, false, at)?;
        }
        for (i, bytes) in buf.chunks(block).enumerate() {
            state.blocks.insert(at / block as u64 + i as u64, bytes.into());
        }
        let seen = &mut state.zones[id.0 as usize];
        seen.touched = true;
        if let Some(wp) = &mut seen.zone.wp {
            *wp += len;
            if *wp == seen.zone.capacity {
                Self::set(&mut state, id, ZoneState::Full);
            }
        }
        Ok(())
    }

    fn flush(&self, _: Tag) -> Result<()> {
        Ok(())
    }

    fn zone_op(&self, op: ZoneOp, zone: ZoneId, _: Tag) -> Result<()> {
        let at = self.geometry().start(zone);
        let mut state = self.lock();
        let Some(now) = state.zones.get(zone.0 as usize).map(|seen| seen.zone) else {
            return Err(self.invalid("no such zone", at));
        };
        match (op, now.state) {
            (_, ZoneState::ReadOnly) => return Err(self.error(Fault::ReadOnly, at)),
            (_, ZoneState::Offline) => return Err(self.error(Fault::Offline, at)),
            (_, ZoneState::Conventional) => return Err(self.invalid("an operation on a conventional zone", at)),
            (ZoneOp::Open | ZoneOp::Close, ZoneState::Full) | (ZoneOp::Close, ZoneState::Empty) => {
                return Err(self.invalid("an operation that the zone's state forbids", at));
            }
            (ZoneOp::Open, _) => self.open(&mut state, zone, true, at)?,
            (ZoneOp::Close, _) => {
                let closed = if now.wp == Some(0) { ZoneState::Empty } else { ZoneState::Closed };
                Self::set(&mut state, zone, closed);
            }
            (ZoneOp::Finish, _) => {
                Self::set(&mut state, zone, ZoneState::Full);
                state.zones[zone.0 as usize].zone.wp = Some(now.capacity);
            }
            (ZoneOp::Reset, _) => {
                self.forget(&mut state, zone);
                Self::set(&mut state, zone, ZoneState::Empty);
            }
        }
        Ok(())
    }

    fn overwrites(&self) -> bool {
        self.below.overwrites()
    }

    fn set_in_place(&self, zone: ZoneId, tag: Tag) -> Result<()> {
        if !self.overwrites() {
            return self.below.set_in_place(zone, tag);
        }
        // Where nothing was written zeros are as good as anything.
        self.zone_op(ZoneOp::Finish, zone, tag)
    }

    fn write_in_place(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        if !self.overwrites() {
            return self.below.write_in_place(buf, at, tag);
        }
        self.check_command(buf, at)?;
        let g = self.geometry();
        let (id, block) = (g.zone_of(at), g.block as usize);
        if at - g.start(id) + buf.len() as u64 > g.zone_size {
            return Err(self.invalid("a write across zones", at));
        }
        let mut state = self.lock();
        if state.zones.get(id.0 as usize).is_none_or(|seen| seen.zone.state != ZoneState::Full) {
            return Err(self.invalid("a write in place to a zone that is not full", at));
        }
        self.check_limit(&state, buf.len(), at)?;
        for (i, bytes) in buf.chunks(block).enumerate() {
            state.blocks.insert(at / block as u64 + i as u64, bytes.into());
        }
        state.zones[id.0 as usize].touched = true;
        Ok(())
    }

    fn write_cache(&self) -> Result<bool> {
        Ok(self.lock().write_cache)
    }

    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.lock().write_cache = on;
        Ok(())
    }
}

/// Covers a drive and its survivor: whatever is done to what is returned, both stay as they are.
pub fn cover(drive: Drive) -> Result<Drive> {
    let survivor = drive.survivor.map(|survivor| Arc::new(Untouched(survivor)) as Arc<dyn Survivor>);
    Ok(Drive { device: Arc::new(Overlay::new(drive.device, DEFAULT_LIMIT)?), survivor })
}

/// A survivor that is read and not consumed: regions made over it are plain memory, and what it holds stays.
pub struct Untouched(pub Arc<dyn Survivor>);

impl Survivor for Untouched {
    fn left_behind(&self, key: &SurvivorKey) -> Result<Option<Vec<u8>>> {
        self.0.left_behind(key)
    }
    fn create_filled(&self, _: &SurvivorKey, capacity: usize, fill: &mut Fill<'_>) -> Result<Arc<dyn Region>> {
        let region = zeroed_region(capacity);
        fill(&region)?;
        Ok(region)
    }
    fn discard(&self, _: &[u8; 16]) -> Result<()> {
        Ok(())
    }
    fn keeps(&self) -> bool {
        self.0.keeps()
    }
}
