//! A zone takes no more writes: what it still has in memory goes to a new zone.
//!
//! Invariant: the new zone is nobody else's before all of it stands there. So either all of it finds room, or nothing is moved and the bytes
//! stay where they are.

use crate::core::{CommitGuard, Core, State};
use crate::error::Result;
use crate::format::{BLOCK, Header, MOVED};
use crate::index::Chunk;
use crate::write::take::NewZone;
use imbrex_device::{AlignedBuf, Fault, ZoneId};
use imbrex_zones::Urgency;
use imbrex_zones::ZoneHeader;
use imbrex_zones::write::{Segment, ZoneGuard};
use std::sync::Arc;

/// What became of bytes that wait for a zone that takes no more writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relocated {
    /// Nothing waits for it any more: they have another place, or nobody needs them.
    Moved,
    /// There is no place for them: that is new, and
    Stranded,
    /// that was known.
    StillStranded,
}

/// A record that waits: of the chunk in this slot, and where it stands in memory.
struct Waiting {
    slot: u32,
    header: Header,
    segment: Arc<Segment>,
    from: usize,
}

impl Waiting {
    fn image(&self) -> AlignedBuf {
        AlignedBuf::padded(&self.segment.bytes()[self.from..][..self.header.blocks() as usize * BLOCK], BLOCK)
    }
}

impl State {
    /// Records of chunks that wait for a zone.
    fn waiting(&self, zone_guard: &ZoneGuard) -> Vec<Waiting> {
        let (zone, (written, segments)) = (zone_guard.zone(), zone_guard.waiting());
        let mut waiting = Vec::new();
        for segment in segments {
            // The first one of a zone begins with the zone's header.
            let mut next = if ZoneHeader::decode(segment.bytes()).is_some() { BLOCK } else { 0 };
            while let Ok(header) = Header::decode_anywhere(&segment.bytes()[next..]) {
                let from = next;
                next += header.blocks() as usize * BLOCK;
                if u64::from(header.at + header.blocks()) * BLOCK as u64 <= written {
                    continue;
                }
                let slot = self.index.find(&header.chunk);
                // What the cleaner has just copied is not in the index yet; it stays where it was.
                let here = |c: &Chunk| c.find(header.offset).is_some_and(|f| (f.zone, f.at) == (zone, header.at));
                let same =
                    slot.and_then(|slot| self.index.chunk(slot)).is_some_and(|c| c.serial == header.serial && here(c));
                if let Some(slot) = slot.filter(|_| same) {
                    waiting.push(Waiting { slot, header, segment: segment.clone(), from });
                }
            }
        }
        waiting
    }

    /// Nothing waits for the zone any more, and nothing goes there.
    fn forget_waiting(&mut self, zone_guard: &ZoneGuard) {
        let Some(z) = self.zones.get_mut(zone_guard.zone()) else { return };
        (z.dead, z.stranded) = (true, false);
        z.tail = z.tail.min(((zone_guard.discard() / BLOCK as u64) as u32).max(1));
    }

    /// No zone is there for what waits for this one. Whether that was not known.
    fn strand(&mut self, zone: u32) -> bool {
        self.zones.get_mut(zone).is_some_and(|z| !std::mem::replace(&mut z.stranded, true))
    }
}

impl Core {
    /// See the module.
    ///
    /// # Errors
    /// Not where there is no zone for the bytes: then they stay where they are, and whoever waits for them is told.
    pub(crate) fn relocate(&self, zone_guard: &ZoneGuard, _guard: &CommitGuard) -> Result<Relocated> {
        let zone = zone_guard.zone();
        let usage = {
            let mut state = self.state();
            let Some(usage) = state.zones.get(zone).map(|z| z.usage) else { return Ok(Relocated::Moved) };
            if state.waiting(zone_guard).is_empty() {
                // All of it was deleted.
                state.forget_waiting(zone_guard);
                state.close_zone(zone);
                return Ok(Relocated::Moved);
            }
            usage
        };
        let moved = match self.new_zone(usage, Urgency::Metadata) {
            Err(crate::error::Error::Drive(error))
                if matches!(error.fault, Fault::NoSpace) && self.reset_garbage(true) > 0 =>
            {
                self.new_zone(usage, Urgency::Metadata)
            }
            new => new,
        }
        .and_then(|new| self.move_waiting(new, zone_guard));
        match moved {
            Ok(()) => Ok(Relocated::Moved),
            Err(crate::error::Error::Drive(error)) if matches!(error.fault, Fault::NoSpace) => {
                if !self.state().strand(zone) {
                    return Ok(Relocated::StillStranded);
                }
                tracing::error!(
                    zone,
                    "a zone takes no more writes, and none is free for what waits for it in memory; delete chunks"
                );
                Ok(Relocated::Stranded)
            }
            Err(error) => Err(error),
        }
    }

    /// What waits for this zone goes to a new one, whose life begins now; the other is closed.
    fn move_waiting(&self, new: NewZone, zone_guard: &ZoneGuard) -> Result<()> {
        let zone = zone_guard.zone();
        let mut state = self.state();
        let moves = state.waiting(zone_guard);
        let need: u64 = moves.iter().map(|one| u64::from(one.header.blocks())).sum();
        if need > u64::from(new.capacity.saturating_sub(1)) {
            drop(state);
            self.tenant.release(ZoneId(new.zone));
            return Err(self.error(Fault::NoSpace).into());
        }
        let to = state.begin_zone(new);
        state.forget_waiting(zone_guard);
        for one in moves {
            let (copy, Waiting { slot, header, .. }) = (one.image().into(), one);
            let moved = Header { flags: header.flags & MOVED, ..header };
            let Some(at) = state.put(to, copy, moved, false) else {
                return Err(self.error(Fault::NoSpace).into());
            };
            // The chunk's next bytes follow its last ones.
            let follows = |c: &&Chunk| c.bound && c.groups().last().is_some_and(|g| g.zone == zone);
            let followed = state.index.chunk(slot).filter(follows).is_some();
            let promised = state.promises.get(&slot).copied().unwrap_or(0);
            state.promise(slot, 0);
            state.regroup(slot, |chunk| chunk.relocate(zone, header.offset, to, at));
            state.promise(slot, promised);
            if followed
                && state.index.chunk(slot).filter(follows).is_none()
                && let Some(z) = state.zones.get_mut(to)
            {
                z.writers += 1;
            }
            state.fresh.grown(slot);
        }
        state.close_zone(zone);
        state.decisions.note_landed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ZoneUse;
    use crate::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
    use imbrex_device::Drive;
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, VolumeOptions};
    use std::sync::Arc;

    fn piece(n: u8) -> Vec<u8> {
        (0..30_000u32).map(|i| (i / 256) as u8 ^ n).collect()
    }

    /// Between the choice of the new zone and the move others append as much as fills it.
    #[test]
    fn nobody_fills_the_zone_that_a_dying_ones_bytes_go_to() {
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
        let emulator = Emulator::memory(&config).unwrap();
        let drive = || Drive { device: Arc::new(emulator.clone()), survivor: None };
        ChunkStore::format(&drive(), &FormatOptions::default()).unwrap();
        // Nobody writes before it is asked for.
        let options = || {
            let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
            Options { volume, buffer_bytes: 8 << 20, ..Options::default() }
        };
        let store = ChunkStore::open(drive(), options()).unwrap();
        let how = Append { offset: None, durability: Durability::Buffered };
        let id = ChunkId::of_number;
        let append = |n: u64, i: u8| {
            store.append_with(id(n), &piece(n as u8 * 50 + i), how).unwrap();
        };
        store.create(id(0), StreamType::DATA).unwrap();
        append(0, 0);
        store.sync().unwrap();
        (1..6).for_each(|i| append(0, i));
        let zone = store.places(id(0)).unwrap()[0].zone;

        let core = &store.core;
        let commit = core.commits.lead();
        let zone_guard = core.writer.zone_guard(zone, u64::MAX).unwrap();
        let new = core.new_zone(ZoneUse::Data(StreamType::DATA), Urgency::Metadata).unwrap();
        let to = new.zone;
        emulator.faults().make_read_only(ZoneId(zone)).unwrap();
        for n in 1..4 {
            store.create_with(id(n), StreamType::DATA, Durability::Buffered).unwrap();
            (0..8).for_each(|i| append(n, i));
        }
        core.move_waiting(new, &zone_guard).unwrap();
        drop((zone_guard, commit));
        let places: Vec<u32> = store.places(id(0)).unwrap().iter().map(|place| place.zone).collect();
        assert_eq!(places, [zone, to], "what was written stays, and all that was not goes to one zone");
        store.sync().unwrap();
        let whole = |store: &ChunkStore| {
            for n in 0..4 {
                let all: Vec<u8> = (0..if n == 0 { 6 } else { 8 }).flat_map(|i| piece(n as u8 * 50 + i)).collect();
                let mut found = vec![0; all.len() + 1];
                let len = store.read(id(n), 0, &mut found).unwrap();
                assert!(found[..len] == all, "chunk {n} has {len} bytes");
            }
        };
        whole(&store);
        drop(store);
        whole(&ChunkStore::open(drive(), options()).unwrap());
    }
}
