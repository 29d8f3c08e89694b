//! Cleaning: live records of a zone that is mostly dead move to a zone of the cleaner, so that theirs becomes free (SMRSTORE §5.5).
//!
//! Copy, commit, switch: the index is changed when the copies are durable, and the old zone is garbage when the journal says
//! durably where the records are now. Readers find the index changed and look again; those that were reading keep the zone.
//!
//! Invariants: what is moved goes to zones of the cleaner and nowhere else; no more than two of them are open; a zone for it
//! comes from the reserve if need be, of which one is enough, because what is moved from one zone fits into what is left of
//! the cleaner's zone and one more. What a chunk has in one zone stays one run of its bytes.

pub(crate) mod background;

use crate::core::{Core, State, lock};
use crate::error::Result;
use crate::format::entry::notes::Mark;
use crate::format::entry::{Entry, GroupEntry, LOST, RecordIndex};
use crate::format::id::{ChunkId, StreamType};
use crate::format::{BLOCK, HEADER, Header, Kind, MOVED, ZoneUse, data_blocks, data_length};
use crate::policy::throttle;
use crate::policy::victim::{Candidate, CleaningPolicy, victim};
use crate::zone::{DataZone, ZoneState};
use imbrex_device::{Cause, Error as DriveError, Fault, Priority, Tag, ZoneId};
use imbrex_zones::Urgency;
use imbrex_zones::write::PooledBuf;
use std::sync::atomic::Ordering;

/// Most bytes that are copied before they are made durable and the index is switched.
const STEP: u64 = 16 << 20;
/// Most zones of the cleaner that are open.
const OPEN: usize = 2;

/// What is cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// Whatever is most worth it, after zones that take no more writes.
    Any,
    /// Only those.
    Dying,
}

/// So much of a zone of the cleaner may be lost when it is closed.
const WASTE: u64 = 16;
/// So many zones are tried before one of the cleaner is closed with more room.
const MOST_STUCK: usize = 16;
/// What lives four times as long or longer than what a zone of the cleaner has goes to another one.
const FAR: f64 = 2.0;

/// The first records of a chunk's group, on their way.
struct Move {
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
struct Copied {
    slot: u32,
    id: ChunkId,
    serial: u64,
    from: u32,
    to: GroupEntry,
    /// Those of which some could not be read: offset in the chunk, and bytes.
    lost: Vec<(u32, u32)>,
}

/// A zone that is to be cleaned: this life of it and no later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chosen {
    zone: u32,
    life: u64,
}

/// What came of a piece of cleaning.
#[derive(Default)]
struct Moved {
    /// Bytes that stand elsewhere now, framing included.
    bytes: u64,
    /// Why more of the victim could not be read: it is left alone, and others may be cleaned.
    unread: Option<DriveError>,
}

impl State {
    /// The cleaner puts records here that the index will know later: until then it does not become garbage.
    fn expect_copies(&mut self, zone: u32) -> u32 {
        if let Some(z) = self.zones.get_mut(zone) {
            z.incoming = true;
        }
        zone
    }
}

impl Core {
    /// Whether a zone that takes no more writes holds something that can still be read.
    pub(crate) fn has_dying(&self) -> bool {
        self.choose_victim(Victim::Dying, &[]).is_some()
    }

    /// The closed zone that is most worth cleaning. It may be another one's as soon as the state is let go of, so whoever cleans it
    /// [looks again](Core::clean_step).
    fn choose_victim(&self, what: Victim, but: &[u32]) -> Option<Chosen> {
        let counts = self.tenant.counts();
        let mut state = self.state();
        if what == Victim::Any && self.options.cleaning_policy == CleaningPolicy::Lifetime {
            state.look_on();
        }
        // A zone that dies gives none back for what it costs, and the reserve is there for those that do.
        let open = state.zones.open().filter(|(_, z)| matches!(z.usage, ZoneUse::Cleaner(_)));
        let room =
            counts.free > counts.reserve || open.map(|(_, z)| u64::from(z.room())).sum::<u64>() * BLOCK as u64 > STEP;
        let known = self.writer.known();
        let whole = |zone: &u32| known.get(zone) != Some(&true) && !but.contains(zone);
        let closed = state.zones.all().iter().filter(|(zone, z)| z.can_be_cleaned() && whole(zone));
        let crumbs = data_blocks(self.limits.most_append);
        let mut candidates = Vec::new();
        for (zone, z) in closed {
            if z.dead {
                // It can still be read, and who knows for how long.
                if room {
                    return Some(Chosen { zone: *zone, life: z.life });
                }
                continue;
            }
            if what == Victim::Dying {
                continue;
            }
            candidates.push(Candidate {
                zone: *zone,
                live: z.live_blocks,
                capacity: z.worth(crumbs),
                age: state.assigned - z.touched,
                rate: z.rate,
            });
        }
        let zone = victim(self.options.cleaning_policy, &candidates)?;
        state.zones.get(zone).map(|z| Chosen { zone, life: z.life })
    }

    /// Cleans, as long as fewer zones are free than shall be and there is something to gain: moves about `most` bytes. Returns how
    /// many it moved, and whether a zone became free.
    ///
    /// # Errors
    /// A zone that cannot be read is one only where no other one can be cleaned either.
    pub(crate) fn clean(&self, most: u64, what: Victim) -> Result<(u64, bool)> {
        let _cleaning = lock(&self.cleaning);
        let mut moved = 0;
        let mut freed = false;
        let mut unread = None;
        // Zones that cannot be read, and those from which nothing can go to the cleaner's as long as these stand.
        let (mut aside, mut stuck) = (Vec::new(), Vec::new());
        let mut give_up = false;
        while moved < most {
            let but = [&aside[..], &stuck[..]].concat();
            let Some(chosen) = self.choose_victim(what, &but).filter(|_| but.len() < MOST_STUCK) else {
                if stuck.is_empty() || give_up {
                    break;
                }
                // Then one of them is closed early, which costs what is left of it.
                give_up = true;
                stuck.clear();
                continue;
            };
            let step = self.clean_step(chosen, STEP.min(most - moved), give_up)?;
            let Chosen { zone, life } = chosen;
            moved += step.bytes;
            if let Some(error) = step.unread {
                aside.push(zone);
                unread = self.cannot_read(zone, error).or(unread);
                continue;
            }
            let gone = self.state().zones.get(zone).is_none_or(|z| z.life != life || z.state() == ZoneState::Garbage);
            freed |= gone;
            if step.bytes == 0 && !gone {
                stuck.push(zone);
                continue;
            }
            give_up = false;
            self.counters.cleaned.fetch_add(u64::from(gone), Ordering::Relaxed);
        }
        match unread.filter(|_| moved == 0 && !freed) {
            Some(error) => Err(error.into()),
            None => Ok((moved, freed)),
        }
    }

    /// A victim could not be read. One that is offline is told and not chosen again; else that is an error, `Some`.
    fn cannot_read(&self, zone: u32, error: DriveError) -> Option<DriveError> {
        if matches!(error.fault, Fault::Offline) && self.is_offline(zone).unwrap_or(false) {
            self.zones_died(&[(zone, true)]);
            return None;
        }
        tracing::warn!(%error, zone, "a zone cannot be cleaned now; others are");
        Some(error)
    }

    /// Moves a piece of what is live in the zone, about `most` bytes; nothing, where it is not any more what was chosen: all in it may have been
    /// deleted since, and others write there in a new life. From the look at it until the copies are switched to it has a reader, so it stays what
    /// it is. `give_up`: a zone of the cleaner may be closed early for it.
    fn clean_step(&self, chosen: Chosen, most: u64, give_up: bool) -> Result<Moved> {
        let zone = chosen.zone;
        let unread = |error| Ok(Moved { bytes: 0, unread: Some(error) });
        match self.is_offline(zone) {
            Ok(false) => {}
            Ok(true) => return unread(self.error(Fault::Offline).at(ZoneId(zone), 0)),
            Err(error) => return unread(error),
        }
        let mut moves = Vec::new();
        let mut bytes = 0;
        {
            let mut state = self.state();
            let same = state.zones.get_mut(zone).filter(|z| z.life == chosen.life && z.can_be_cleaned());
            let same = same.filter(|_| !self.writer.waits(zone));
            let Some(z) = same else { return Ok(Moved::default()) };
            self.tenant.pin(ZoneId(zone));
            let mut slots = z.live.clone();
            // A chunk with two groups here is in the list twice.
            slots.sort_unstable();
            slots.dedup();
            // To give up as much as is won could go on for ever: what was closed early would be the next victim.
            let wins = |z: &DataZone| if z.dead { u32::MAX } else { z.capacity.saturating_sub(1 + z.live_blocks) };
            let give_up = state.zones.get(zone).filter(|_| give_up).map_or(0, wins);
            for slot in slots {
                let Some(chunk) = state.index.chunk(slot) else { continue };
                for group in chunk.groups().iter().filter(|group| group.zone == zone) {
                    let mut records = Vec::new();
                    for (start, record) in group.spans() {
                        if bytes >= most {
                            break;
                        }
                        bytes += u64::from(data_blocks(record.end - start)) * BLOCK as u64;
                        records.push(record);
                    }
                    if !records.is_empty() {
                        let (id, serial, stream) = (chunk.id, chunk.serial, chunk.stream);
                        let (start, rate) = (group.start, state.lifetimes.rate(chunk));
                        moves.push(Move { slot, id, serial, stream, from: zone, start, records, rate, give_up });
                    }
                }
                if bytes >= most {
                    break;
                }
            }
        }
        let result = self.carry_out(moves);
        self.tenant.unpin(ZoneId(zone));
        result
    }

    fn is_offline(&self, zone: u32) -> Result<bool, DriveError> {
        let mut report = [imbrex_device::Zone::EMPTY];
        self.volume.device().report(ZoneId(zone), &mut report)?;
        Ok(report[0].state == imbrex_device::ZoneState::Offline)
    }

    /// Copies, commits, switches. Until the index knows of the copies, the zones that they are in are not empty, whatever it says.
    fn carry_out(&self, moves: Vec<Move>) -> Result<Moved> {
        let result = self.copy_and_switch(moves);
        let mut state = self.state();
        let held = state.zones.iter_mut().filter(|(_, z)| z.incoming);
        let held: Vec<u32> = held
            .map(|(zone, z)| {
                z.incoming = false;
                zone
            })
            .collect();
        held.into_iter().for_each(|zone| state.collect(zone));
        result
    }

    fn copy_and_switch(&self, moves: Vec<Move>) -> Result<Moved> {
        let (done, unread) = self.copy_all(moves)?;
        if done.is_empty() {
            return Ok(Moved { bytes: 0, unread });
        }
        // What the journal says of a move must be about records that it knows.
        self.commit_told()?;
        // The copies are durable.
        let bytes = self.switch(done)?;
        tracing::debug!(bytes, unread = unread.is_some(), "live bytes moved out of the way of a zone that is cleaned");
        Ok(Moved { bytes, unread })
    }

    /// Puts copies of these records into zones of the cleaner, as far as there is room; and why one could not be read, where it ended at that.
    fn copy_all(&self, moves: Vec<Move>) -> Result<(Vec<Copied>, Option<DriveError>)> {
        let mut done = Vec::new();
        let mut copied = 0;
        let mut unread = None;
        for one in moves {
            if unread.is_some() {
                break;
            }
            let mut start = one.start;
            let mut copies: Option<Copied> = None;
            for record in &one.records {
                let data = record.end - start;
                let blocks = if record.at == LOST { 0 } else { data_blocks(data) };
                let group = copies.as_ref().map(|copies| &copies.to);
                let to = match group {
                    // What is lost stands nowhere, and goes with what is before it.
                    Some(group) if blocks == 0 => Some(group.zone),
                    _ => self.cleaner_zone(&one, group, blocks)?,
                };
                let Some(to) = to else { break };
                let mut whole = true;
                let at = match blocks {
                    0 => LOST,
                    _ => {
                        let image = match self.copy(&one, start, *record) {
                            Ok((image, all)) => {
                                whole = all;
                                image
                            }
                            Err(error) => {
                                // What was copied so far is as good as it was.
                                unread = Some(error);
                                break;
                            }
                        };
                        let header = self.moved_header(&one, start, data, &image);
                        let len = image.len() as u64;
                        // It may just have been closed because it takes no writes.
                        let mut state = self.state();
                        let Some(at) = state.put(to, image, header, false) else { break };
                        if let Some(z) = state.zones.get_mut(to) {
                            z.expects(blocks, one.rate);
                        }
                        copied += len;
                        at
                    }
                };
                if copies.as_ref().is_none_or(|copies| copies.to.zone != to) {
                    done.extend(copies.take());
                }
                let copies = copies.get_or_insert_with(|| Copied {
                    slot: one.slot,
                    id: one.id,
                    serial: one.serial,
                    from: one.from,
                    to: GroupEntry { zone: to, start, records: Vec::new() },
                    lost: Vec::new(),
                });
                copies.to.records.push(RecordIndex { end: record.end, at });
                copies.lost.extend((!whole).then_some((start, data)));
                start = record.end;
            }
            done.extend(copies);
        }
        self.counters.moved.fetch_add(copied, Ordering::Relaxed);
        Ok((done, unread))
    }

    /// From here on the index refers to these copies, which are durable, and the journal says so. Returns their bytes.
    fn switch(&self, done: Vec<Copied>) -> Result<u64> {
        let mut state = self.state();
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
                    state.journal.push(Entry::Lost(mark));
                }
                state.journal.push(Entry::Moved { id, serial, from, to });
            }
        }
        let target = state.assigned;
        drop(state);
        self.commit(target)?;
        Ok(bytes)
    }

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
            let target = self.state().assigned;
            self.commit(target)?;
        }
        let new = self.new_zone(ZoneUse::Cleaner(one.stream), Urgency::Metadata);
        let mut state = self.state();
        match new {
            Ok(new) => {
                let zone = state.begin_zone(new);
                Ok(Some(state.expect_copies(zone)))
            }
            Err(crate::error::Error::Drive(error)) if matches!(error.fault, Fault::NoSpace) => {
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
    fn copy(&self, one: &Move, start: u32, record: RecordIndex) -> Result<(PooledBuf, bool), DriveError> {
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
            ..Header::of_payload(Kind::Data, 0, &[])
        }
    }

    /// Whoever takes a zone while few are free cleans ahead: the fewer there are, the more, twice a zone at most. So cleaning
    /// keeps pace with what is written and no faster. Where it is done in the background, that is told first, and only when it
    /// falls behind those who need zones do it, too.
    pub(crate) fn clean_ahead(&self) -> Result<()> {
        let (free, below) = (self.free_for_users(), self.limits.clean_below);
        if !throttle::is_due(free, below) {
            return Ok(());
        }
        self.maintenance.ring();
        let want = throttle::users_below(below, self.attends_to_one_more());
        if free >= want {
            return Ok(());
        }
        let (free, want) = (u64::from(free), u64::from(want));
        let most = 2 * self.limits.zone_bytes * (want - free) / want.max(1);
        if let Err(error) = self.clean(most, Victim::Any) {
            self.volume.check_poison()?;
            // There are zones that can be taken.
            tracing::warn!(%error, "cleaning ahead failed");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
