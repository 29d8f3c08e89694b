//! Cleaning: live records of a zone that is mostly dead move to a zone of the cleaner, so that theirs becomes free (SMRSTORE §5.5).
//!
//! Copy, commit, switch: the index is changed when the copies are durable, and the old zone is garbage when the journal says
//! durably where the records are now. Readers find the index changed and look again; those that were reading keep the zone.
//!
//! Invariants: what is moved goes to zones of the cleaner and nowhere else; no more than two of them are open; a zone for it
//! comes from the reserve if need be, of which one is enough, because what is moved from one zone fits into what is left of
//! the cleaner's zone and one more. What a chunk has in one zone stays one run of its bytes.

pub(crate) mod background;

use crate::core::{CLEAN_STEP, Core, State};
use crate::error::{Error, Result};
use crate::format::entry::notes::Mark;
use crate::format::entry::{Entry, GroupEntry, LOST, RecordIndex};
use crate::format::id::{ChunkId, StreamType};
use crate::format::{BLOCK, HEADER, Header, MOVED, ZoneUse, data_blocks, data_length};
use crate::policy::victim::CleaningPolicy;
use crate::zone::DataZone;
use imbrex_device::{Cause, Error as DriveError, Fault, Priority, Tag};
use imbrex_zones::Urgency;
use imbrex_zones::clean::{Candidate, Chosen, Failed, Residents, Search, Victim};
use imbrex_zones::write::PooledBuf;

/// Most zones of the cleaner that are open.
const OPEN: usize = 2;

/// So much of a zone of the cleaner may be lost when it is closed.
const WASTE: u64 = 16;
/// What lives four times as long or longer than what a zone of the cleaner has goes to another one.
const FAR: f64 = 2.0;

/// The first records of a chunk's group, on their way.
pub(crate) struct Move {
    slot: u32,
    id: ChunkId,
    serial: u64,
    stream: StreamType,
    from: u32,
    start: u32,
    records: Vec<RecordIndex>,
    /// How much of what is like it dies ([`Rates::of`](crate::policy::lifetime::Rates::of)).
    rate: f64,
    /// For it, a zone of the cleaner may be closed that has room for fewer blocks than this.
    give_up: u32,
}

/// Records of a [`Move`] that were copied to one zone.
pub(crate) struct Copied {
    slot: u32,
    id: ChunkId,
    serial: u64,
    from: u32,
    to: GroupEntry,
    /// Those of which some could not be read: offset in the chunk, and bytes.
    lost: Vec<(u32, u32)>,
}

impl State {
    /// The cleaner puts records here that the index will know later: until then it does not become garbage.
    fn expect_copies(&mut self, zone: u32) -> u32 {
        self.incoming.insert(zone);
        zone
    }
}

impl Residents for Core {
    type Piece = Move;
    type Copy = Copied;
    type Error = Error;

    fn next_victim(&self, search: &Search<'_>) -> Option<Chosen> {
        let counts = self.tenant.counts();
        let mut state = self.state();
        if !search.dying && self.options.cleaning_policy == CleaningPolicy::Lifetime {
            state.look_on();
        }
        // A zone that dies gives none back for what it costs, and the reserve is there for those that do.
        let open = state.zones.open().filter(|(_, z)| matches!(z.usage, ZoneUse::Cleaner(_)));
        let room = counts.free > counts.reserve
            || open.map(|(_, z)| u64::from(z.room())).sum::<u64>() * BLOCK as u64 > CLEAN_STEP;
        let known = self.writer.known();
        let may =
            |(zone, z): &(&u32, &DataZone)| (room || !z.dead) && z.can_be_cleaned() && known.get(zone) != Some(&true);
        let crumbs = data_blocks(self.limits.most_append);
        let candidate = |(zone, z): (&u32, &DataZone)| Candidate {
            zone: *zone,
            life: z.life,
            live: z.live_blocks.into(),
            capacity: z.worth(crumbs).into(),
            age: state.decisions.last() - z.touched,
            rate: z.rate,
            dying: z.dead,
        };
        search.choose(self.options.cleaning_policy.choose(), state.zones.all().iter().filter(may).map(candidate))
    }

    fn residents(&self, victim: &Victim) -> Vec<Move> {
        let (mut moves, mut bytes, from) = (Vec::new(), 0, victim.zone);
        let state = self.state();
        // All in it may have been deleted since, and others write there in a new life.
        let same = state.zones.get(from).filter(|z| z.life == victim.life && z.can_be_cleaned());
        let Some(z) = same.filter(|_| !self.writer.waits(from)) else { return moves };
        let mut slots = z.live.clone();
        // A chunk with two groups here is in the list twice.
        slots.sort_unstable();
        slots.dedup();
        // To give up as much as is won could go on for ever: what was closed early would be the next victim.
        let wins = if z.dead { u32::MAX } else { z.capacity.saturating_sub(1 + z.live_blocks) };
        let give_up = if victim.pressed { wins } else { 0 };
        for (slot, chunk) in slots.into_iter().filter_map(|slot| Some((slot, state.index.chunk(slot)?))) {
            if bytes >= victim.most {
                break;
            }
            for group in chunk.groups().iter().filter(|group| group.zone == from) {
                let mut records = Vec::new();
                for (start, record) in group.spans() {
                    if bytes >= victim.most {
                        break;
                    }
                    bytes += u64::from(data_blocks(record.end - start)) * BLOCK as u64;
                    records.push(record);
                }
                if !records.is_empty() {
                    let (id, serial, stream) = (chunk.id, chunk.serial, chunk.stream);
                    let (start, rate) = (group.start, state.lifetimes.rate(chunk));
                    moves.push(Move { slot, id, serial, stream, from, start, records, rate, give_up });
                }
            }
        }
        moves
    }

    fn copy(&self, one: &Move, copies: &mut Vec<Copied>) -> Result<(), Failed<Error>> {
        let (mut start, first) = (one.start, copies.len());
        for record in &one.records {
            let data = record.end - start;
            let blocks = if record.at == LOST { 0 } else { data_blocks(data) };
            let group = copies[first..].last().map(|copies| &copies.to);
            let to = match group {
                // What is lost stands nowhere, and goes with what is before it.
                Some(group) if blocks == 0 => Some(group.zone),
                _ => self.cleaner_zone(one, group, blocks)?,
            };
            let Some(to) = to else { break };
            let (mut whole, mut at) = (true, LOST);
            if blocks > 0 {
                let (image, all) = self.read_record(one, start, *record).map_err(Failed::Unread)?;
                whole = all;
                let header = self.moved_header(one, start, data, &image);
                let mut state = self.state();
                // It may just have been closed because it takes no writes.
                let Some(there) = state.put(to, image, header, false) else { break };
                at = there;
                if let Some(z) = state.zones.get_mut(to) {
                    z.expects(blocks, one.rate);
                }
            }
            if copies[first..].last().is_none_or(|copies| copies.to.zone != to) {
                let to = GroupEntry { zone: to, start, records: Vec::new() };
                let Move { slot, id, serial, from, .. } = *one;
                copies.push(Copied { slot, id, serial, from, to, lost: Vec::new() });
            }
            if let Some(Copied { to, lost, .. }) = copies.last_mut() {
                to.records.push(RecordIndex { end: record.end, at });
                lost.extend((!whole).then_some((start, data)));
            }
            start = record.end;
        }
        Ok(())
    }

    fn commit(&self) -> Result<()> {
        let target = self.state().assign();
        self.commit(target)
    }

    fn switch(&self, done: Vec<Copied>) -> Result<u64> {
        let mut state = self.state();
        // What the journal says of a move must be about records that it knows.
        state.log_index();
        let mut bytes = 0;
        for Copied { slot, id, serial, from, to, lost } in done {
            if state.index.chunk(slot).is_none_or(|chunk| chunk.serial != serial) {
                continue;
            }
            // Unless their zone has died on the way: then they stay where they were.
            if state.zones.get(to.zone).is_none_or(|z| z.dead) || !state.is_durable(&to) {
                continue;
            }
            // What comes next of an open chunk does not follow to a zone of the cleaner.
            if state.index.chunk(slot).and_then(|chunk| chunk.groups().last()).is_some_and(|last| last.zone == from) {
                state.unbind(slot);
            }
            // Decided before the zone may become garbage by it: it is reset only when this is durable.
            state.assign();
            let here = |(start, r): (u32, RecordIndex)| if r.at == LOST { 0 } else { data_blocks(r.end - start) };
            let blocks: u64 = to.spans().map(|span| u64::from(here(span))).sum();
            if state.regroup(slot, |chunk| chunk.move_front(from, &to)).flatten().is_some() {
                bytes += blocks * BLOCK as u64;
                for (offset, len) in lost {
                    let mark = Mark { id, serial, offset, len, zone: to.zone, lost: true };
                    state.scrub.mark(mark);
                    state.decisions.tell(Entry::Lost(mark));
                }
                state.decisions.tell(Entry::Moved { id, serial, from, to });
            }
        }
        Ok(bytes)
    }

    fn settle(&self) {
        let mut state = self.state();
        std::mem::take(&mut state.incoming).into_iter().for_each(|zone| state.collect(zone));
    }

    /// One that is offline is told, and not chosen again.
    fn note_unread(&self, zone: u32, offline: bool) -> bool {
        if offline {
            self.zones_died(&[(zone, true)]);
        }
        offline
    }
}

impl Core {
    /// The zone of the cleaner that takes the next blocks of a chunk; `None`: there is none. It stays the cleaner's until what it gets is switched
    /// to, also if somebody closes it meanwhile.
    fn cleaner_zone(&self, one: &Move, group: Option<&GroupEntry>, blocks: u32) -> Result<Option<u32>> {
        let full = {
            let mut state = self.state();
            let mut open: Vec<(u32, bool, u32)> = state
                .zones
                .open()
                .filter_map(|(zone, z)| match z.usage {
                    ZoneUse::Cleaner(stream) => Some((zone, stream == one.stream, z.room())),
                    _ => None,
                })
                .collect();
            // What is expected to live as long stands together, whatever its kind.
            let far = |zone: u32| state.zones.get(zone).map_or(f64::MAX, |z| (z.rate / one.rate).log2().abs());
            let lifetimes = self.options.cleaning_policy == CleaningPolicy::Lifetime;
            if lifetimes {
                open.sort_by(|(a, ..), (b, ..)| far(*a).total_cmp(&far(*b)));
            }
            let Some(chunk) = state.index.chunk(one.slot) else { return Ok(None) };
            // In a zone where it has something, only what joins it.
            let joins = |zone: u32| {
                if group.is_some_and(|group| group.zone == zone) {
                    return true;
                }
                let end = one.records.last().map_or(one.start, |record| record.end);
                let mut here = chunk.groups().iter().filter(|group| group.zone == zone);
                group.is_none() && here.all(|group| group.end() == one.start || group.start == end)
            };
            let fits = |(zone, _, room): &&(u32, bool, u32)| *room >= blocks && joins(*zone);
            let near = |(zone, same, _): &&(u32, bool, u32)| if lifetimes { far(*zone) <= FAR } else { *same };
            let same = open.iter().filter(near).find(fits);
            // Where few zones are left, kinds of streams share what the cleaner has.
            let counts = self.tenant.counts();
            let scarce = counts.free <= counts.reserve && !open.is_empty();
            let crowded = scarce || open.len() >= self.limits.cleaner_zones.min(OPEN);
            // So much of a zone may be lost.
            let most = (self.limits.zone_bytes / BLOCK as u64 / WASTE) as u32;
            // Rather than with what lives otherwise it goes to a new one in place of one that is full.
            let spent = open.iter().find(|(.., room)| *room < blocks.min(most)).filter(|_| lifetimes && !scarce);
            let any = same.or_else(|| open.iter().find(fits).filter(|_| crowded && spent.is_none()));
            if let Some(zone) = any.map(|(zone, ..)| *zone) {
                return Ok(Some(state.expect_copies(zone)));
            }
            let full = spent.or_else(|| open.iter().min_by_key(|(.., room)| *room)).filter(|_| crowded);
            // Where it would only not join what the chunk has there, it stays where it is until others have filled that zone: to close them
            // for each such piece would take more zones than cleaning frees.
            if full.is_some_and(|(.., room)| *room >= blocks.max(most).max(one.give_up)) && group.is_none() {
                return Ok(None);
            }
            let full = full.map(|(zone, ..)| *zone);
            if let Some(zone) = full {
                state.close_zone(zone);
            }
            full
        };
        if full.is_some() && self.tenant.limits_active() {
            // It counts until the drive knows that it is closed.
            let target = self.state().decisions.last();
            self.commit(target)?;
        }
        let new = self.new_zone(ZoneUse::Cleaner(one.stream), Urgency::Metadata);
        let mut state = self.state();
        match new {
            Ok(new) => {
                let zone = state.begin_zone(new);
                Ok(Some(state.expect_copies(zone)))
            }
            Err(Error::Drive(error)) if matches!(error.fault, Fault::NoSpace) => {
                // Another kind's zone is better than none.
                let fits = |z: &DataZone| matches!(z.usage, ZoneUse::Cleaner(_)) && z.room() >= blocks;
                let other = state.zones.open().find(|(_, z)| fits(z)).map(|(zone, _)| zone);
                let alone = |zone: &u32| {
                    let chunk = state.index.chunk(one.slot);
                    group.is_none() && chunk.is_some_and(|c| c.groups().iter().all(|g| g.zone != *zone))
                };
                Ok(other.filter(alone).map(|zone| state.expect_copies(zone)))
            }
            Err(error) => Err(error),
        }
    }

    /// A record as it stands on the drive, and whether all of it could be read; else there are zeros, so its slices are as damaged as they were.
    fn read_record(&self, one: &Move, start: u32, record: RecordIndex) -> Result<(PooledBuf, bool), DriveError> {
        let mut image = self.writer.memory(data_blocks(record.end - start) as usize * BLOCK);
        let tag = Tag::new(Cause::Cleaning).at(Priority::Background);
        let address = self.address(one.from) + u64::from(record.at) * BLOCK as u64;
        let read = self.volume.read(&mut image, address, tag);
        let whole = read.is_ok();
        if let Err(error) = read {
            if !matches!(error.fault, Fault::Media { .. }) {
                return Err(error);
            }
            tracing::warn!(%error, "cleaning moves what can be read of a damaged record");
            for (i, block) in image.chunks_mut(BLOCK).enumerate() {
                match self.volume.read(block, address + (i * BLOCK) as u64, tag) {
                    Ok(()) => {}
                    Err(error) if matches!(error.fault, Fault::Media { .. }) => block.fill(0),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((image, whole))
    }

    fn moved_header(&self, one: &Move, start: u32, data: u32, image: &[u8]) -> Header {
        let old = Header::decode_anywhere(&image[..HEADER]).ok();
        Header {
            length: data_length(data as usize).unwrap_or(HEADER) as u32,
            payload_crc: old.map_or(0, |old| old.payload_crc),
            sequence: old.map_or(0, |old| old.sequence),
            data,
            stream: one.stream.number(),
            flags: MOVED,
            offset: start,
            serial: one.serial,
            chunk: one.id,
            ..Header::of_append(0)
        }
    }

    /// Whoever takes a zone while few are free cleans ahead. Where it is done in the background, that is told first.
    pub(crate) fn clean_ahead(&self) -> Result<()> {
        if !self.cleaner.is_due() {
            return Ok(());
        }
        self.maintenance.ring();
        self.cleaner.clean_ahead(self, self.attends_to_one_more())
    }
}

#[cfg(test)]
mod tests;
