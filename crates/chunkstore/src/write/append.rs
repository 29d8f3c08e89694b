//! Create, append, seal, delete: what is decided in memory, and which zone a chunk's bytes go to (SMRSTORE §5.1, §5.4).

use crate::core::{Core, State, lock};
use crate::error::{Error, Result};
use crate::format::entry::{ChunkEnd, Entry};
use crate::format::id::{ChunkId, StreamType};
use crate::format::{BLOCK, Header, ZoneUse, data_blocks, put_data, put_header, seal_data};
use crate::index::{CHUNK_COST, Chunk, GROUP_COST, RECORD_COST, cost};
use crate::options::{Append, Durability};
use crate::policy::place::{Ask, Choice, OpenZone, allowance, outgrows, shares};
use crate::zone::{DataZone, Event};
use imbrex_device::{Fault, ZoneId};
use imbrex_zones::Urgency;
use imbrex_zones::clean::Goal;
use imbrex_zones::write::PooledBuf;
use std::sync::atomic::Ordering;

/// Zones that are cleaned, at most, before a write is refused.
const MOST_CLEANED: u32 = 32;

/// Blocks of so many bytes that come in pieces of a mebibyte.
fn blocks_of(len: u32) -> u32 {
    let (pieces, rest) = (len >> 20, len & ((1 << 20) - 1));
    pieces * data_blocks(1 << 20) + if rest > 0 { data_blocks(rest) } else { 0 }
}

impl State {
    /// Changes a chunk's groups, and tells the zones what they hold of it now.
    pub(crate) fn regroup<T>(&mut self, slot: u32, change: impl FnOnce(&mut Chunk) -> T) -> Option<T> {
        let chunk = self.index.chunk_mut(slot)?;
        let groups = |chunk: &Chunk| chunk.groups().iter().map(|g| (g.zone, g.blocks())).collect::<Vec<_>>();
        let (before, cost_before) = (groups(chunk), cost(chunk));
        let result = change(chunk);
        let (after, cost_after) = (groups(chunk), cost(chunk));
        self.work.index_changed(cost_before, cost_after);
        for (zone, blocks) in &after {
            if let Some(z) = self.zones.get_mut(*zone) {
                z.live.push(slot);
                z.live_blocks += blocks;
            }
        }
        for (zone, blocks) in before {
            self.forget_group(zone, slot, blocks);
        }
        Some(result)
    }

    /// A chunk is gone, and with it its name. `None`: there is none of this id.
    pub(crate) fn delete(&mut self, id: ChunkId) -> Option<()> {
        let slot = self.index.find(&id)?;
        self.unbind(slot);
        let chunk = self.index.remove(slot)?;
        self.work.index_changed(cost(&chunk), 0);
        self.decisions.deleted(slot);
        self.losses.remove(&slot);
        self.scrub.forget(id);
        self.change_names(|names| names.forget(id, chunk.serial));
        self.decisions.tell(Entry::Delete { id, serial: chunk.serial });
        self.lifetimes.died(&chunk);
        self.assign();
        for group in chunk.groups() {
            let blocks = group.blocks();
            self.forget_group(group.zone, slot, blocks);
        }
        Some(())
    }

    /// No more records go to this zone.
    pub(crate) fn close_zone(&mut self, zone: u32) {
        let Some(z) = self.zones.get_mut(zone).filter(|z| z.state().is_open()) else { return };
        z.step(Event::Close);
        let entry = Entry::ZoneClosed { zone, life: z.life, tail: z.tail };
        self.writer.close(zone);
        self.decisions.tell(entry);
        self.assign();
        self.count_lifetimes();
        self.look_at(zone);
        self.collect(zone);
    }

    /// Puts a data record at the end of a zone; `None`: it has no room for it, or takes nothing any more. `fresh`: its slices are
    /// still to be [sealed](seal_data).
    pub(crate) fn put(&mut self, zone: u32, mut image: PooledBuf, mut header: Header, fresh: bool) -> Option<u32> {
        let blocks = (image.len() / BLOCK) as u32;
        let z = self.zones.get_mut(zone).filter(|z| z.room() >= blocks)?;
        let at = z.tail;
        (header.life, header.at) = (z.life, at);
        if fresh {
            seal_data(&mut image, header);
        } else {
            put_header(&mut image, &header);
        }
        let bytes = image.len() as u64;
        self.writer.push(zone, image)?;
        z.step(Event::Activate);
        z.tail += blocks;
        self.work.add(bytes);
        self.fresh.put(zone);
        Some(at)
    }
}

impl Core {
    pub(crate) fn create(&self, id: ChunkId, stream: StreamType, durability: Durability) -> Result<()> {
        if usize::from(stream.number()) >= self.limits.of_streams.len() {
            return Err(Error::NoSuchStream(stream.number()));
        }
        let mut state = self.state();
        if state.index.find(&id).is_some() {
            return Err(Error::Exists(id));
        }
        self.check_index(&state)?;
        let serial = self.next_number();
        state.lifetimes.tick(serial);
        let slot = state.index.insert(Chunk::new(id, serial, stream));
        state.work.index_changed(0, CHUNK_COST);
        state.decisions.tell(Entry::Create { id, serial, stream });
        let target = state.assign();
        state.decisions.created(slot, target);
        drop(state);
        self.settle(target, durability)
    }

    fn check_index(&self, state: &State) -> Result<()> {
        self.check_index_for(state, CHUNK_COST + GROUP_COST + RECORD_COST)
    }

    /// Whether the metazones have room for so many bytes more of checkpoints.
    pub(crate) fn check_index_for(&self, state: &State, more: u64) -> Result<()> {
        let bytes = state.work.index() + more;
        if bytes > self.limits.most_index { Err(Error::IndexFull { bytes }) } else { Ok(()) }
    }

    pub(crate) fn settle(&self, target: u64, durability: Durability) -> Result<()> {
        match durability {
            Durability::Durable => self.commit(target),
            Durability::Buffered => self.relieve(),
        }
    }

    /// Where too much waits in memory, writes it.
    fn relieve(&self) -> Result<()> {
        let full = {
            let state = self.state();
            // So much less than what is kept free in the metazones for checkpoints that these always find their room.
            self.writer.buffered() > self.options.buffer_bytes
                || state.decisions.entries().len() > self.limits.journal_payload / 32
        };
        if full {
            let guard = self.commits.lead();
            // Somebody else may have done it meanwhile.
            if self.writer.buffered() > self.options.buffer_bytes / 2 || !self.state().decisions.entries().is_empty() {
                // Perhaps nobody ever calls anything durable; whoever does flushes this, too.
                drop(self.write_group(guard)?);
            }
        }
        Ok(())
    }

    /// Whether the chunk takes these bytes; its slot.
    fn check_append(&self, state: &State, id: ChunkId, len: usize, how: Append) -> Result<u32> {
        let slot = state.index.find(&id).ok_or(Error::NotFound(id))?;
        let chunk = state.index.chunk(slot).ok_or(Error::NotFound(id))?;
        if let Some(expected) = how.offset.filter(|offset| *offset != u64::from(chunk.len)) {
            return Err(Error::Offset { id, expected, len: chunk.len });
        }
        if chunk.sealed {
            return Err(Error::Sealed { id, len: chunk.len });
        }
        // Who says where it ends knows that nothing was behind.
        if chunk.end != ChunkEnd::Known && how.offset.is_none() {
            return Err(Error::EndLost { id, len: chunk.len });
        }
        let limit = self.limit(chunk.stream);
        if u64::from(chunk.len) + len as u64 > u64::from(limit) {
            return Err(Error::Limit { id, len: chunk.len, more: len as u64, limit });
        }
        if chunk.records() >= self.limits.most_records {
            return Err(Error::TooManyRecords { id, records: chunk.records() });
        }
        self.check_index(state)?;
        Ok(slot)
    }

    pub(crate) fn append(&self, id: ChunkId, bytes: &[u8], how: Append) -> Result<u64> {
        let most = self.limits.most_append;
        let len = match u32::try_from(bytes.len()) {
            Ok(0) => return Err(Error::Empty),
            Ok(len) if len <= most => len,
            _ => return Err(Error::TooLong { len: bytes.len(), most }),
        };
        // What cannot be is not copied first.
        self.check_append(&self.state(), id, bytes.len(), how)?;
        let blocks = data_blocks(len);
        let mut image = self.writer.memory(blocks as usize * BLOCK);
        put_data(&mut image, id, bytes);
        let mut state = self.state();
        let (slot, zone) = loop {
            let slot = self.check_append(&state, id, bytes.len(), how)?;
            if let Some(zone) = self.zone_for(&mut state, slot, blocks) {
                break (slot, zone);
            }
            drop(state);
            self.open_for(id, bytes.len(), blocks, how)?;
            state = self.state();
        };
        let Some(chunk) = state.index.chunk(slot) else { return Err(Error::NotFound(id)) };
        let (offset, serial, stream) = (chunk.len, chunk.serial, chunk.stream.number());
        let sequence = self.next_number();
        let header = Header { data: len, stream, offset, serial, chunk: id, ..Header::of_append(sequence) };
        let Some(at) = state.put(zone, image, header, true) else {
            return Err(self.error(Fault::NoSpace).into());
        };
        let open = state.index.chunk(slot).is_some_and(|chunk| chunk.end != ChunkEnd::Known);
        let new = state.index.chunk_mut(slot).is_some_and(|chunk| chunk.push(zone, len, at));
        if open {
            state.note_losses(slot);
        }
        state.work.index_changed(0, RECORD_COST + if new { GROUP_COST } else { 0 });
        state.fresh.grown(slot);
        state.lifetimes.tick(sequence);
        let all = &mut *state;
        if let Some(chunk) = all.index.chunk(slot) {
            all.lifetimes.grew(chunk, blocks);
        }
        if let Some(z) = state.zones.get_mut(zone) {
            z.live_blocks += blocks;
            if new {
                z.live.push(slot);
            }
        }
        let expected = self.expected(&state, slot).unwrap_or(0);
        state.promise(slot, expected);
        let target = state.assign();
        drop(state);
        self.counters.appends.fetch_add(1, Ordering::Relaxed);
        self.counters.appended.fetch_add(u64::from(len), Ordering::Relaxed);
        match how.durability {
            Durability::Durable => self.make_durable(slot, serial, offset + len, target)?,
            Durability::Buffered => self.settle(target, how.durability)?,
        }
        Ok(u64::from(offset))
    }

    /// Opens a zone for such an append, unless somebody else has just done so.
    fn open_for(&self, id: ChunkId, len: usize, blocks: u32, how: Append) -> Result<()> {
        let _opening = lock(&self.opening);
        for _ in 0..MOST_CLEANED {
            let stream = {
                let mut state = self.state();
                let slot = self.check_append(&state, id, len, how)?;
                if self.zone_for(&mut state, slot, blocks).is_some() {
                    return Ok(());
                }
                state.index.chunk(slot).map_or(StreamType::DATA, |chunk| chunk.stream)
            };
            if self.cleaner.free() > 0 {
                return self.open_zone(ZoneUse::Data(stream)).map(drop);
            }
            // With a zone that is free it may be another one's turn to be closed.
            if !self.make_room()? {
                break;
            }
        }
        Err(self.error(Fault::NoSpace).into())
    }

    /// The zone that the chunk's next bytes go to; `None`: one has to be opened first.
    fn zone_for(&self, state: &mut State, slot: u32, need: u32) -> Option<u32> {
        let chunk = state.index.chunk(slot)?;
        let (stream, bound) = (chunk.stream, chunk.bound);
        let zones: Vec<u32> = chunk.groups().iter().map(|group| group.zone).collect();
        if let Some(zone) = zones.last().filter(|_| bound)
            && let Some(z) = state.zones.get(*zone)
        {
            if z.room() >= need && !(zones.len() == 1 && self.outgrows(state, slot, z)) {
                return Some(*zone);
            }
            // What is left of it is too little for most appends.
            if z.room() < z.capacity / 64 {
                state.close_zone(*zone);
            }
        }
        state.unbind(slot);
        let takes = |usage: ZoneUse| match usage {
            ZoneUse::Data(other) => !self.limits.separate || other == stream,
            _ => false,
        };
        let open = state.zones.open().filter(|(_, z)| !z.dead && takes(z.usage));
        // A zone that the chunk has left it does not come back to: what it has in one zone is one run of its bytes.
        let room = |zone: u32, z: &DataZone| if zones.contains(&zone) { 0 } else { z.room() };
        let promised = |z: &DataZone| u32::try_from(z.promised).unwrap_or(u32::MAX);
        let pool: Vec<_> = open
            .map(|(zone, z)| OpenZone { zone, room: room(zone, z), writers: z.writers, promised: promised(z) })
            .collect();
        let kind = usize::from(stream.number());
        let all = state.zones.open().filter(|(_, z)| matches!(z.usage, ZoneUse::Data(_))).count();
        let expect = self.expected(state, slot);
        // To borrow zones gains nothing where it is not known how long chunks become; it only makes turns shorter.
        let known = state.placing.expected(kind, 1).is_some();
        let most = match (self.limits.separate, known) {
            (true, true) => allowance(pool.len(), self.limits.pools[kind], all, self.limits.shared),
            (true, false) => self.limits.pools[kind],
            (false, _) => self.limits.pool,
        };
        let free = self.cleaner.free() as usize;
        let kind_of_last = if self.limits.separate { kind } else { 0 };
        let ask = Ask { need, expect, capacity: self.zone_blocks() };
        let last = *state.placing.last(kind_of_last);
        match self.options.placement.place(&pool, ask, most, free, last) {
            Choice::Use(zone) => {
                *state.placing.last(kind_of_last) = zone;
                if let Some(z) = state.zones.get_mut(zone) {
                    z.writers += 1;
                }
                if let Some(chunk) = state.index.chunk_mut(slot) {
                    chunk.bound = true;
                }
                Some(zone)
            }
            Choice::Open => {
                if self.limits.separate && self.limits.shared > 0 && all >= self.limits.shared && free > 0 {
                    self.call_back(state);
                }
                None
            }
            Choice::Replace(zone) => {
                state.close_zone(zone);
                None
            }
        }
    }

    /// Blocks of a zone that chunks can have.
    fn zone_blocks(&self) -> u32 {
        (self.limits.zone_bytes / BLOCK as u64) as u32 - 1
    }

    /// Blocks that a chunk is expected to take from now on, if that is known.
    fn expected(&self, state: &State, slot: u32) -> Option<u32> {
        let chunk = state.index.chunk(slot)?;
        let len = state.placing.expected(usize::from(chunk.stream.number()), chunk.len.saturating_add(1))?;
        let blocks = blocks_of(len.saturating_sub(chunk.len));
        // One that fills a zone shall not find that all of them are a block too small.
        Some(blocks.min(self.zone_blocks()))
    }

    /// Whether the chunk, all of which is in this zone so far, [goes on in another one](crate::policy::place::outgrows): only where free zones
    /// are not short, so that nobody is refused room that is there.
    fn outgrows(&self, state: &State, slot: u32, zone: &DataZone) -> bool {
        if !self.limits.separate || self.cleaner.free() < 2 {
            return false;
        }
        let Some(chunk) = state.index.chunk(slot) else { return false };
        let Some(usual) = state.placing.expected(usize::from(chunk.stream.number()), 1) else { return false };
        let Some(expect) = self.expected(state, slot) else { return false };
        if !outgrows(blocks_of(chunk.len), blocks_of(usual), expect, zone.room()) {
            return false;
        }
        let all = state.zones.open().filter(|(_, z)| matches!(z.usage, ZoneUse::Data(_))).count();
        let open = state.zones.open().filter(|(_, z)| z.usage == ZoneUse::Data(chunk.stream)).count();
        let kind = usize::from(chunk.stream.number());
        open < allowance(open, self.limits.pools[kind], all, self.limits.shared)
    }

    /// All zones that may be open are, and a kind has not got its share: one that was lent to another is closed.
    fn call_back(&self, state: &mut State) {
        let mut open = vec![0usize; self.limits.pools.len()];
        let zones = || state.zones.open().filter(|(_, z)| matches!(z.usage, ZoneUse::Data(_)));
        for (_, z) in zones() {
            if let Some(n) = open.get_mut(z.kind()) {
                *n += 1;
            }
        }
        let over =
            |z: &DataZone| open.get(z.kind()).zip(self.limits.pools.get(z.kind())).is_some_and(|(n, share)| n > share);
        let lent = zones().filter(|(_, z)| over(z)).min_by_key(|(zone, z)| (z.writers, z.room(), *zone));
        if let Some(zone) = lent.map(|(zone, _)| zone) {
            state.close_zone(zone);
        }
    }

    /// Takes a zone from the volume's pool; where there is none, makes one free.
    fn open_zone(&self, usage: ZoneUse) -> Result<u32> {
        self.reset_garbage(false);
        self.clean_ahead()?;
        self.reset_garbage(false);
        for _ in 0..MOST_CLEANED {
            match self.take_zone(usage, Urgency::User) {
                Err(Error::Drive(error)) if matches!(error.fault, Fault::NoSpace) => {
                    if !self.make_room()? {
                        return Err(error.into());
                    }
                }
                other => return other,
            }
        }
        Err(self.error(Fault::NoSpace).into())
    }

    /// Makes a zone free: of those in which all is deleted, or by cleaning. False: there is nothing to gain.
    fn make_room(&self) -> Result<bool> {
        loop {
            if self.reset_garbage(true) > 0 {
                return Ok(true);
            }
            if self.tenant.counts().forgotten > 0 {
                // What made them garbage may not be durable yet.
                let target = self.state().decisions.last();
                self.commit(target)?;
                if self.reset_garbage(true) > 0 {
                    return Ok(true);
                }
            }
            let done = self.cleaner.clean(self, Goal::Room, self.limits.zone_bytes)?;
            let more = self.reset_garbage(true) > 0 || self.cleaner.free() > 0;
            if more || !done.waited {
                return Ok(more || done.gained());
            }
        }
    }

    pub(crate) fn seal(&self, id: ChunkId, durability: Durability) -> Result<u64> {
        let mut state = self.state();
        let slot = state.index.find(&id).ok_or(Error::NotFound(id))?;
        let zone = state.index.chunk(slot).filter(|c| c.bound).and_then(|c| c.groups().last()).map(|g| g.zone);
        state.unbind(slot);
        let Some(chunk) = state.index.chunk_mut(slot) else { return Err(Error::NotFound(id)) };
        let (len, serial, again) = (chunk.len, chunk.serial, chunk.sealed);
        let kind = usize::from(chunk.stream.number());
        chunk.sealed = true;
        chunk.shrink();
        if !again {
            state.decisions.tell(Entry::Seal { id, serial, len });
            state.assign();
            state.placing.sealed(kind, len);
        }
        let little = match state.placing.expected(kind, 1).map(blocks_of) {
            // No chunk is expected to fit behind it, nor to begin there.
            Some(expected) if !shares(expected, self.zone_blocks()) => expected,
            _ => 0,
        };
        if let Some((zone, z)) = zone.and_then(|zone| state.zones.get(zone).map(|z| (zone, z)))
            && z.writers == 0
            && z.room() < little.max(z.capacity / 64)
        {
            state.close_zone(zone);
        }
        let target = state.decisions.last();
        drop(state);
        match durability {
            Durability::Durable => self.commit_bytes(target, |state| state.strands(slot, serial, len))?,
            Durability::Buffered => self.settle(target, durability)?,
        }
        Ok(u64::from(len))
    }

    pub(crate) fn delete(&self, id: ChunkId, durability: Durability) -> Result<()> {
        let mut state = self.state();
        state.delete(id).ok_or(Error::NotFound(id))?;
        let target = state.decisions.last();
        drop(state);
        self.settle(target, durability)
    }

    /// The device zone of a number.
    pub(crate) fn address(&self, zone: u32) -> u64 {
        self.volume.geometry().start(ZoneId(zone))
    }
}
