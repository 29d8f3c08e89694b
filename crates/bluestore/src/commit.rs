//! Group commit: data to zones and a flush of these, metadata to the key-value store, a sync of that, callbacks.
//!
//! What was prepared before a commit begins is one group. A group is *kept* when it outlives the process: its data are in zones, its records in the key-value store. It is
//! *durable* when that was synced. Whoever needs either does it for all, or waits for whoever does. Groups are kept while others are made durable.
//!
//! Whoever syncs a group writes the data of the next one before: one flush covers both. So where groups follow each other, each takes one flush; a group alone that has data takes two.
//! Where the key-value store is on another drive, each drive has its own flush. Nothing is written before then: whoever waits for the sync would wait for data of others, and gain nothing.
//!
//! Records name flushed bytes only: a key-value store may have them in memory that outlives both this process and a drive that lost its power. A zone is given back only after the
//! records that dropped its last blob are durable.

use crate::blob::{BLOCK, Blob, BlobId, Place};
use crate::core::{ALL, Core, Fresh, State};
use crate::data::{Placed, Todo};
use crate::freelist;
use crate::in_place;
use crate::keyvalue::Family;
use crate::layer::Layer;
use crate::lock::lock;
use crate::pack::{Known, PACKED, todo, unreadable};
use crate::right::Taken;
use crate::table::{Sums, Zone, zone_key};
use imbrex_device::{Code, Error, Result, ZoneId};
use imbrex_zones::Ticket;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The right to commit or to sync; given back when dropped.
#[must_use]
struct Leading<'a>(&'a Core, #[expect(dead_code, reason = "it is held")] Taken<'a>);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The group is lost: nothing may become durable behind it.
            self.0.state().failed.get_or_insert(self.0.poisoned());
        }
    }
}

/// Somebody tells; over when dropped.
struct Busy<'a>(&'a Core);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        lock(&self.0.telling).busy = false;
    }
}

/// A group that is being committed.
struct Group {
    number: u64,
    /// Its last transaction.
    version: u64,
    fresh: Vec<Fresh>,
    promised: u64,
    /// Zones as the group's records will have them: those that have changed, and others.
    zones: BTreeMap<u32, Zone>,
    changed: BTreeSet<u32>,
    /// And the sums.
    sums: Sums,
}

impl Group {
    /// So many blocks more live in a zone of which this is known now.
    fn adds(&mut self, zone: u32, now: Zone, blocks: u64) {
        let entry = self.zones.entry(zone).or_insert(now);
        if entry.life != now.life {
            // It was freed and leased again since the group began.
            *entry = now;
        }
        entry.live += blocks;
        self.changed.insert(zone);
    }
}

/// What a group has written for its data.
struct GroupData {
    placed: Vec<Placed>,
    /// There was no room for these.
    left: Vec<Todo>,
    /// The flush that makes the others durable.
    flush: Option<Ticket>,
    /// Records of blobs that earlier groups have deferred, or that move.
    known: Known,
    packs: bool,
    /// Some of what is deferred cannot be read.
    unread: bool,
}

/// A group of which no record names the data yet.
struct Written {
    group: Group,
    data: GroupData,
}

/// Those who wait for a group wait for at most so many bytes of the next one.
const AHEAD: u64 = 8 << 20;

/// What a group does beside its own.
pub(crate) enum Also {
    Nothing,
    /// Blobs that groups up to this one have deferred get places: about so many bytes.
    Pack(u64, u64),
    /// This moves out of one zone, as far as it still stands there.
    Move(Vec<Todo>),
}

impl Core {
    /// Returns when this group outlives the process.
    ///
    /// # Errors
    /// Those of the drive and of the key-value store: nothing of this store becomes durable any more then.
    pub fn keep(&self, group: u64) -> Result<()> {
        let kept = self.keep_quietly(group).and_then(|()| self.settle());
        self.tell();
        kept
    }

    /// Returns when this group is durable.
    ///
    /// # Errors
    /// As [`Core::keep`].
    pub fn commit(&self, group: u64) -> Result<()> {
        let done = self.commit_quietly(group);
        self.tell();
        done
    }

    /// The same; callbacks are told later. A step of the cleaner ends before, since a callback may queue, and whoever queues may have to clean.
    ///
    /// # Errors
    /// As [`Core::keep`].
    pub fn commit_quietly(&self, group: u64) -> Result<()> {
        let leading = self.syncing.take_unless(|| self.reached(group, |state| state.durable));
        match leading {
            Ok(done) => done,
            Err(taken) => {
                let leading = Leading(self, taken);
                let gathers = self.state().kept < group;
                self.delay.wait(gathers);
                self.keep_quietly(group)?;
                let ahead = self.sync_kept()?;
                drop(leading);
                // Whoever waits for these groups has its own error.
                ahead.into_iter().for_each(|(leading, next)| {
                    _ = self.keep_written(next);
                    drop(leading);
                });
                Ok(())
            }
        }
    }

    /// Packs deferred blobs, if there are any, and commits what has gathered. False: there was nothing to do.
    ///
    /// # Errors
    /// As [`Core::keep`].
    pub fn pack(&self) -> Result<bool> {
        let leading = Leading(self, self.committing.take());
        let (deferred, gathered) = {
            let state = self.state();
            (state.sums.deferred, !state.current.is_empty())
        };
        let done =
            if deferred > 0 || gathered { self.commit_one(Also::Pack(u64::MAX, PACKED)).map(drop) } else { Ok(()) };
        drop(leading);
        let kept = self.state().kept;
        // It tells, too.
        let done = done.and_then(|()| self.commit(kept));
        self.tell();
        done.map(|()| gathered || self.state().sums.deferred < deferred)
    }

    fn reached(&self, group: u64, of: impl Fn(&State) -> u64) -> Option<Result<()>> {
        let state = self.state();
        (of(&state) >= group).then_some(Ok(())).or_else(|| state.failed.clone().map(Err))
    }

    fn keep_quietly(&self, group: u64) -> Result<()> {
        loop {
            match self.committing.take_unless(|| self.reached(group, |state| state.kept)) {
                Ok(done) => return done,
                Err(taken) => {
                    let _leading = Leading(self, taken);
                    self.commit_one(Also::Nothing)?;
                }
            }
        }
    }

    /// What is kept is durable. By who has the right to sync. Returns the next group, if its data were written meanwhile, and the right to commit.
    fn sync_kept(&self) -> Result<Option<(Leading<'_>, Written)>> {
        let (kept, version) = {
            let state = self.state();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            (state.kept, state.kept_version)
        };
        let began = Instant::now();
        let ahead = self.write_ahead()?;
        if let Err(error) = self.kv.sync() {
            self.fail(&error, kept);
            return Err(error);
        }
        let (free, callbacks) = {
            let mut state = self.state();
            let state = &mut *state;
            state.durable = kept;
            let told = state.waiting.partition_point(|(group, _)| *group <= kept);
            let callbacks: Vec<_> = state.waiting.drain(..told).flat_map(|(_, callbacks)| callbacks).collect();
            if let Some(space) = &mut state.space {
                space.release(kept);
                state.room.cramped.take_if(|blocks| space.has_room(*blocks));
            }
            (self.forgotten(state), callbacks)
        };
        self.delay.synced(version, began.elapsed(), ahead.is_some());
        self.tenant.free(&free, kept);
        lock(&self.telling).next.extend(callbacks.into_iter().map(|told| (told, Ok(()))));
        Ok(ahead)
    }

    /// Writes the data of the group that gathers, before the flush of the one before: that covers both. `None`: there are none, or too many for those who wait, or somebody else commits, or that flush is another drive's.
    fn write_ahead(&self) -> Result<Option<(Leading<'_>, Written)>> {
        if self.options.elsewhere {
            return Ok(None);
        }
        let Some(taken) = self.committing.try_take() else { return Ok(None) };
        let leading = Leading(self, taken);
        let may = {
            let mut state = self.state();
            let some = !state.fresh.is_empty() && state.room.gathered * BLOCK <= AHEAD;
            some && !state.starved && self.packs(state.sums, &mut state).is_none()
        };
        if !may {
            return Ok(None);
        }
        Ok(Some((leading, self.write_next(Also::Nothing)?)))
    }

    /// Nothing becomes durable from here on.
    fn fail(&self, error: &Error, group: u64) {
        tracing::error!(%error, group, "a commit failed; the store takes no more until it is opened anew");
        let callbacks: Vec<_> = {
            let mut state = self.state();
            state.failed.get_or_insert(self.poisoned());
            let gathered = std::mem::take(&mut state.callbacks);
            state.waiting.drain(..).flat_map(|(_, callbacks)| callbacks).chain(gathered).collect()
        };
        lock(&self.telling).next.extend(callbacks.into_iter().map(|told| (told, Err(error.clone()))));
    }

    /// Calls callbacks of groups that have ended, in their order. Nobody has the right to commit meanwhile, so a callback may queue and commit.
    pub fn tell(&self) {
        loop {
            let (told, done) = {
                let mut telling = lock(&self.telling);
                // Whoever tells now goes on with these.
                if telling.busy {
                    return;
                }
                let Some(next) = telling.next.pop_front() else { return };
                telling.busy = true;
                next
            };
            let busy = Busy(self);
            told(done);
            drop(busy);
        }
    }

    /// Nothing becomes durable from here on, for this reason.
    pub fn stop(&self, why: &str) {
        let error = Error::refused(Code::Poisoned, &self.tenant.volume().name(), why);
        self.state().failed.get_or_insert(error);
    }

    fn poisoned(&self) -> Error {
        let name = self.tenant.volume().name();
        Error::refused(Code::Poisoned, &name, "an earlier commit has failed; open the store again")
    }

    /// Moves what stands in one zone elsewhere, with what has gathered. Returns how many blocks have moved. Callbacks are told later, as by [`Core::commit_quietly`].
    ///
    /// # Errors
    /// As [`Core::keep`].
    pub fn move_out(&self, todo: Vec<Todo>) -> Result<u64> {
        let _leading = Leading(self, self.committing.take());
        self.commit_one(Also::Move(todo))
    }

    /// Returns how many blocks have moved.
    fn commit_one(&self, also: Also) -> Result<u64> {
        let written = self.write_next(also)?;
        self.keep_written(written)
    }

    /// Writes the data of what has gathered, which is a group from here on.
    fn write_next(&self, also: Also) -> Result<Written> {
        if let Some(error) = &self.state().failed {
            return Err(error.clone());
        }
        let mut group = self.begin(match &also {
            Also::Move(todo) => todo.first().and_then(|todo| todo.from).map(|from| from.zone),
            _ => None,
        });
        let also = match also {
            Also::Nothing => {
                self.packs(group.sums, &mut self.state()).map_or(Also::Nothing, |(last, most)| Also::Pack(last, most))
            }
            also => also,
        };
        let number = group.number;
        let written = self.write_group(&mut group, also).map(|data| Written { group, data });
        written.inspect_err(|error| self.fail(error, number))
    }

    /// Whether a commit packs what is deferred: up to which group, and about how many bytes.
    fn packs(&self, sums: Sums, state: &mut State) -> Option<(u64, u64)> {
        if self.goes_home() {
            return self.packs_in_place(state);
        }
        let more = (sums.deferred.max(0) as u64).saturating_sub(state.unpackable);
        (more > 0 && more * BLOCK >= self.options.pack_from).then_some((u64::MAX, PACKED))
    }

    /// Flushes the data of a group, and writes the records that name them: it is kept. Returns how many blocks have moved.
    fn keep_written(&self, Written { mut group, data }: Written) -> Result<u64> {
        let kept = self.name_group(&mut group, data);
        kept.inspect_err(|error| self.fail(error, group.number))
    }

    /// What has gathered is a group from here on, and the next one gathers.
    fn begin(&self, victim: Option<u32>) -> Group {
        let mut state = self.state();
        let number = state.group;
        state.group += 1;
        state.committing = std::mem::take(&mut state.current);
        let callbacks = std::mem::take(&mut state.callbacks);
        if !callbacks.is_empty() {
            state.waiting.push_back((number, callbacks));
        }
        let changed = state.table.take_changed();
        let wanted = state.table.iter().filter(|(zone, z)| z.open || changed.contains(zone) || victim == Some(*zone));
        let zones: BTreeMap<u32, Zone> = wanted.map(|(zone, z)| (zone, *z)).collect();
        Group {
            number,
            version: state.version,
            fresh: std::mem::take(&mut state.fresh),
            promised: std::mem::take(&mut state.room.gathered),
            zones,
            changed,
            sums: state.sums,
        }
    }

    fn write_group(&self, group: &mut Group, also: Also) -> Result<GroupData> {
        let starved = std::mem::take(&mut self.state().starved);
        if starved {
            self.close_idle();
        }
        self.give_zones_back(starved);
        let mut todo = self.fresh_of(group)?;
        let packs = matches!(also, Also::Pack(..));
        let (known, unread) = match also {
            Also::Nothing => (Known::new(), false),
            Also::Pack(last, most) => self.deferred(group.number, (last, most), &mut todo)?,
            Also::Move(moves) => (self.of_kv(moves, &mut todo)?, false),
        };
        let (placed, left) = if todo.is_empty() { Default::default() } else { self.write_data(group.number, todo)? };
        let flush = (!placed.is_empty()).then(|| self.data_written(group.number));
        Ok(GroupData { placed, left, flush, known, packs, unread })
    }

    fn name_group(&self, group: &mut Group, data: GroupData) -> Result<u64> {
        let GroupData { placed, left, flush, known, packs, unread } = data;
        if let Some(flush) = flush {
            self.flush_data(group.number, flush)?;
        }
        let moved;
        let changes = {
            // Nobody has looked at these blobs' records and is about to change them.
            let _preparing = self.prepare();
            let mut state = self.state();
            let state = &mut *state;
            moved = self.place(state, group, &placed, &known)?;
            if packs {
                let lacks_room = left.iter().any(|todo| known.contains_key(&todo.piece.blob));
                state.unpackable = if lacks_room || unread { state.sums.deferred.max(0) as u64 } else { 0 };
                self.packed_in_place(state);
            }
            let cramped = left.iter().map(|todo| 1 << todo.piece.grain).min().filter(|_| state.space.is_some());
            state.room.cramped = cramped.into_iter().chain(state.room.cramped).min();
            defer(state, group, &left, &known);
            if left.iter().any(|todo| todo.from.is_none()) {
                state.deferred.others = Some(group.number);
            }
            for zone in self.data.take_closed() {
                if state.table.close(zone) {
                    let emptied_later = group.zones.get(&zone).is_some_and(|z| z.live > 0);
                    self.tenant.forget(ZoneId(zone), if emptied_later { state.group } else { group.number });
                }
            }
            for (zone, z) in group.zones.iter().filter(|(zone, _)| group.changed.contains(zone)) {
                match z.live {
                    0 => state.committing.delete(Family::Zones, zone_key(*zone)),
                    _ => state.committing.put(Family::Zones, zone_key(*zone), z.encode()),
                }
            }
            if let Some(space) = &mut state.space {
                for key in space.take_changed(group.number) {
                    match space.record(key, group.number) {
                        0 => state.committing.delete(Family::Units, freelist::key(key)),
                        taken => state.committing.put(Family::Units, freelist::key(key), freelist::encode(taken)),
                    }
                }
            }
            if !state.committing.is_empty() {
                state.committing.put(Family::Statistics, ALL.to_vec(), group.sums.encode());
            }
            let mut memory = lock(&self.cleaning);
            if !memory.is_idle() {
                state.committing.keys(Family::Blobs).filter_map(BlobId::of_key).for_each(|id| memory.forget(id));
            }
            drop(memory);
            state.committing.changes()
        };
        if !changes.is_empty() {
            self.kv.write(&changes)?;
            self.cache.forget(&changes);
        }
        self.end(group);
        Ok(moved)
    }

    /// What is to be moved, and the records of its blobs.
    fn of_kv(&self, moves: Vec<Todo>, todo: &mut Vec<Todo>) -> Result<Known> {
        let mut known = Known::new();
        for one in &moves {
            let id = one.piece.blob;
            if known.contains_key(&id) {
                continue;
            }
            // The cleaner has just read it, with many others.
            let listed = lock(&self.cleaning).records.get(&id).and_then(|record| Blob::decode(record));
            if let Some(blob) = listed {
                known.insert(id, blob);
            } else if let Some(blob) = self.record(id).or_else(|error| unreadable(&error, id))? {
                known.insert(id, blob);
            }
        }
        todo.extend(moves);
        Ok(known)
    }

    /// Blobs of the group that live, with their bytes.
    fn fresh_of(&self, group: &Group) -> Result<Vec<Todo>> {
        let state = self.state();
        let mut all = Vec::with_capacity(group.fresh.len());
        for fresh in &group.fresh {
            let Some(Some(record)) = state.committing.get(Family::Blobs, &fresh.blob.key()) else { continue };
            let blob = self.decode(record)?;
            let Some(bytes) = state.bytes.get(&fresh.blob) else { continue };
            all.extend(todo(fresh.blob, &blob, fresh.stream, bytes));
        }
        Ok(all)
    }

    /// Writes the places down: in the group's records, and in what later transactions have made of them. Returns how many blocks have moved.
    fn place(&self, state: &mut State, group: &mut Group, placed: &[Placed], known: &Known) -> Result<u64> {
        let mut all_moved = 0;
        for Placed { todo, place } in placed {
            let (id, first, blocks) = (todo.piece.blob, todo.piece.first, todo.piece.blocks);
            let key = id.key();
            let put = |mut blob: Blob| {
                let live = match todo.from {
                    Some(from) => blob.relocate(first, blocks, from, *place),
                    None => blob.put(first, blocks, *place),
                };
                (blob, live)
            };
            let of = |record: Option<&Vec<u8>>| record.map(|record| self.decode(record)).transpose();
            let then = match state.committing.get(Family::Blobs, &key) {
                Some(record) => of(record)?.map(put),
                None => known.get(&id).cloned().map(put),
            };
            let now = match state.current.get(Family::Blobs, &key) {
                Some(record) => of(record)?.map(put),
                None => then.clone(),
            };
            let deferred = todo.from.is_none() && known.contains_key(&id);
            if let Some((blob, live)) = &then
                && (*live > 0 || todo.from.is_none())
            {
                state.committing.put(Family::Blobs, key.clone(), blob.encode());
                if deferred && blob.deferred().next().is_none() {
                    state.committing.delete(Family::Deferred, key.clone());
                }
            }
            if let (Some((blob, _)), true) = (&now, state.current.get(Family::Blobs, &key).is_some()) {
                if deferred && blob.deferred().next().is_none() {
                    // What has no place is dead by now.
                    state.current.delete(Family::Deferred, key.clone());
                }
                state.current.put(Family::Blobs, key, blob.encode());
            }
            if state.space.is_some() {
                bury(state, group.number, (todo, *place), [&then, &now]);
            }
            let [then, now] = [then, now].map(|blob| blob.map_or(0, |(_, live)| u64::from(live)));
            if let Some(z) = state.table.before(place.zone) {
                group.adds(place.zone, z, then);
            }
            state.table.add(place.zone, now);
            if let Some(from) = todo.from {
                all_moved += now;
                let left = group.zones.get_mut(&from.zone).map(|z| {
                    z.live = z.live.saturating_sub(then);
                    z.live
                });
                group.changed.insert(from.zone);
                if state.table.sub(from.zone, from.life, now) {
                    // What later transactions have taken from it is gone with their group.
                    let last = if left == Some(0) { group.number } else { state.group };
                    self.tenant.forget(ZoneId(from.zone), last);
                }
            }
            if deferred {
                group.sums.deferred -= then as i64;
                state.sums.deferred -= now as i64;
            }
        }
        Ok(all_moved)
    }

    /// The group outlives the process.
    fn end(&self, group: &Group) {
        let mut state = self.state();
        state.committing = Layer::default();
        (state.kept, state.kept_version) = (group.number, group.version);
        state.room.promised = state.room.promised.saturating_sub(group.promised);
        for fresh in &group.fresh {
            state.bytes.remove(&fresh.blob);
        }
        // What is promised no more is everybody's.
        self.give_back(&mut state);
    }

    fn forgotten(&self, state: &mut State) -> Vec<ZoneId> {
        let mut free = self.tenant.forgotten(state.durable);
        free.retain(|zone| self.data.forget(zone.0));
        free.iter().for_each(|zone| state.table.remove(zone.0));
        free
    }

    /// Frees zones whose last reader has gone since the last commit.
    pub fn collect(&self) {
        let (free, durable) = {
            let mut state = self.state();
            (self.forgotten(&mut state), state.durable)
        };
        self.tenant.free(&free, durable);
    }
}

/// Units in which nothing lives of what has got a place in them die: with the group that has it, or with that of the transactions that have taken it since.
fn bury(state: &mut State, group: u64, (todo, place): (&Todo, Place), records: [&Option<(Blob, u32)>; 2]) {
    let Some(space) = &mut state.space else { return };
    for (blob, group) in records.into_iter().zip([group, state.group]) {
        let dead = match blob {
            Some((blob, _)) => blob.dead_units(space.unit(), place, todo.piece.blocks),
            None => vec![in_place::units(space.unit(), place, todo.piece.blocks)],
        };
        dead.into_iter().for_each(|units| space.die(units, group));
    }
}

/// There was no room for these: the key-value store takes their bytes.
fn defer(state: &mut State, group: &mut Group, left: &[Todo], known: &Known) {
    for todo in left.iter().filter(|todo| todo.from.is_none() && !known.contains_key(&todo.piece.blob)) {
        let key = todo.piece.blob.key();
        if state.bytes.remove(&todo.piece.blob).is_none() {
            // Another piece of it.
            continue;
        }
        state.committing.put(Family::Deferred, key.clone(), todo.bytes.to_vec());
        let blocks = |record: Option<&Vec<u8>>| {
            let blob = record.and_then(|record| Blob::decode(record))?;
            Some(blob.deferred().map(|run| i64::from(run.blocks)).sum::<i64>())
        };
        let then = blocks(state.committing.get(Family::Blobs, &key).flatten());
        let now = match state.current.get(Family::Blobs, &key) {
            Some(record) => blocks(record),
            None => then,
        };
        group.sums.deferred += then.unwrap_or(0);
        state.sums.deferred += now.unwrap_or(0);
        if now.unwrap_or(0) == 0 {
            // Nobody needs them any more.
            state.current.delete(Family::Deferred, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_that_was_leased_again_while_a_group_was_written_has_its_new_life() {
        let old = Zone { life: 1, ..Zone::default() };
        let (zones, changed) = (BTreeMap::from([(7, old), (8, Zone { live: 5, ..old })]), BTreeSet::new());
        let mut group =
            Group { number: 1, version: 1, fresh: Vec::new(), promised: 0, zones, changed, sums: Sums::default() };
        for (zone, life) in [(7, 2), (8, 1), (9, 3)] {
            group.adds(zone, Zone { life, ..Zone::default() }, 10);
            group.adds(zone, Zone { life, ..Zone::default() }, 20);
        }
        let known: Vec<_> = group.zones.iter().map(|(zone, z)| (*zone, z.life, z.live)).collect();
        assert_eq!(known, [(7, 2, 30), (8, 1, 35), (9, 3, 30)]);
        assert_eq!(group.changed, BTreeSet::from([7, 8, 9]));
    }
}
