//! Cleaning: what lives in a zone that is mostly dead moves elsewhere, so that the zone becomes free. [`imbrex_zones::clean`] has the worker; here is what it asks a store.
//!
//! Headers of runs say which blobs a zone had. Their records say what of them still stands there; where headers are damaged, all records are searched. That is read, compared with its checksums, and written with the next group, whose
//! records name the copies. What has changed meanwhile stays as it is, and its copy is dead.

use crate::blob::{BLOCK, Blob, BlobId, Run};
use crate::cleaning::{Reader, Resident};
use crate::core::{Core, is_of_bytes};
use crate::data::{Stream, Todo};
use crate::draft::BLOB_RECORD;
use crate::keyvalue::Family;
use crate::lock::lock;
use crate::parts::joined;
use crate::run::RunPiece;
use crate::table::Zone;
use imbrex_device::{AlignedBuf, Cause, Error, Result, ZoneId};
use imbrex_zones::clean::choose::lifetime;
use imbrex_zones::clean::{Candidate, Chosen, Cleaned, Failed, Goal, Residents, Search, Victim};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Whether enough is dead of a zone: headers of runs and rests at its end are no gain, since the copies have them, too.
fn is_worth_it(live: u64, capacity: u64) -> bool {
    live + capacity / 16 + 2 < capacity
}

/// Zones whose blobs are looked up in one pass: a pass costs the same for any number of them, and memory for the records of each.
const AT_ONCE: usize = 8;
/// Such a part of the changes of counts that may wait is so few that victims are chosen without them: a full store may look for some all the time.
const FEW: usize = 8;
/// Records of a page of a pass over all of them.
const PAGE: usize = 16 << 10;

impl Resident {
    /// Of a blob of this record. `None`: nothing of it stands in this life of the zone.
    fn of(id: BlobId, record: &[u8], (zone, life): (u32, u64)) -> Option<Resident> {
        let blob = Blob::decode(record)?;
        let there = |run: &Run| run.place.is_some_and(|place| (place.zone, place.life) == (zone, life as u32));
        let runs: Vec<Run> = blob.living().filter(there).collect();
        (!runs.is_empty()).then_some(Resident { id, blob, runs })
    }
}

impl Core {
    /// Cleans, as long as there is something to gain, until about so many bytes have moved.
    ///
    /// # Errors
    /// Those of [`Core::keep`], and of a victim where no other gave anything.
    pub fn clean(&self, goal: Goal, most: u64) -> Result<Cleaned> {
        if self.data.unit.is_some() {
            // In place nothing has to move.
            return Ok(Cleaned::default());
        }
        let waiting = self.state().counts.len();
        // What moves changes records. Where these have no room left but for deletions, only deletions go on.
        let records = most.min(self.tenant.volume().least_capacity()) / BLOCK * BLOB_RECORD;
        if !self.kv.has_room(records, 0, true) && (self.kv.make_room().is_err() || !self.kv.has_room(records, 0, true))
        {
            return Ok(Cleaned::default());
        }
        if lock(&self.cleaning).listed.is_empty() && (goal == Goal::Room || waiting > self.options.count_from / FEW) {
            // The next victims are chosen by what is dead.
            self.recount()?;
        }
        let cleaned = self.cleaner.clean(self, goal, most);
        self.tell();
        let cleaned = cleaned?;
        self.collect();
        Ok(cleaned)
    }

    /// Where nobody cleans in the background, whoever writes does before there is no room.
    ///
    /// # Errors
    /// As [`Core::clean`].
    pub fn clean_ahead(&self) -> Result<()> {
        // The system may have had no thread to give.
        let attended = self.maintenance.get().map_or(self.options.attended, |maintenance| maintenance.is_attended());
        if attended || self.data.unit.is_some() || !self.cleaner.is_due() {
            return Ok(());
        }
        match self.clean(Goal::Ahead, self.tenant.volume().least_capacity()) {
            Err(error) => {
                self.tenant.volume().check_poison()?;
                tracing::warn!(%error, "cleaning ahead failed");
                Ok(())
            }
            cleaned => cleaned.map(drop),
        }
    }

    /// Reads what lives of these blobs in a zone, with what is dead between. What cannot be read is left out, and is tried alone later.
    fn read_ahead(&self, zone: u32, residents: &[Resident]) -> BTreeMap<u32, AlignedBuf> {
        let places =
            residents.iter().flat_map(|resident| &resident.runs).filter_map(|run| Some((run.place?.block, run.blocks)));
        let parts = joined(places.map(|(block, blocks)| (block, block + blocks)).collect());
        parts.into_iter().filter_map(|part| Some((part.0, self.read_part(zone, part, Cause::Cleaning)?))).collect()
    }

    /// Lists what lives in zones, in their order: headers of runs say which blobs they had, and records what of them still stands there. Zones have many blobs, whose records are read in one
    /// pass. Returns the first one's.
    fn list_zones(&self, zones: &[(u32, u64)]) -> Result<VecDeque<BlobId>> {
        let (mut ids, mut known) = (Vec::new(), BTreeSet::new());
        for (n, (zone, life)) in zones.iter().enumerate() {
            let (mut of, mut seen) = (Vec::new(), BTreeSet::new());
            let read = self.each_run(*zone, *life, Cause::Cleaning, |_, header| {
                // Their copies have them, too.
                header.names.into_iter().for_each(|(number, name)| lock(&self.data.moved_names).set(number, name));
                of.extend(header.pieces.iter().map(|piece| piece.blob).filter(|blob| seen.insert(*blob)));
            });
            match read {
                Err(error) if n == 0 => return Err(error),
                // It is told when it is the victim.
                Err(_) => continue,
                Ok(()) => {}
            }
            known.append(&mut seen);
            ids.push(((*zone, *life), of));
        }
        {
            let mut memory = lock(&self.cleaning);
            memory.listed.clear();
            memory.records.clear();
            memory.begins(Reader::Cleaner);
        }
        let found = self.records(&known).and_then(|mut found| self.recount_of(&mut found).map(|()| found));
        let mut found = match found {
            Ok(found) => found,
            Err(error) => {
                lock(&self.cleaning).ends(Reader::Cleaner);
                return Err(error);
            }
        };
        let listed = ids.into_iter().map(|(of, mut ids)| {
            ids.retain(|id| found.get(id).and_then(|record| Resident::of(*id, record, of)).is_some());
            (of, VecDeque::from(ids))
        });
        let listed: BTreeMap<_, _> = listed.collect();
        let still: BTreeSet<BlobId> = listed.values().flatten().copied().collect();
        found.retain(|id, _| still.contains(id));
        // Records that the key-value store has otherwise by now, or soon.
        let state = self.state();
        let mut memory = lock(&self.cleaning);
        let changed = memory.ends(Reader::Cleaner);
        (memory.listed, memory.records) = (listed, found);
        let layers = [&state.current, &state.committing].into_iter().flat_map(|layer| layer.keys(Family::Blobs));
        layers.filter_map(BlobId::of_key).chain(changed).for_each(|id| memory.forget(id));
        drop(state);
        Ok(zones.first().and_then(|first| memory.listed.remove(first)).unwrap_or_default())
    }

    /// What was listed of a victim; with it those that are likely to be next are listed.
    fn listed(&self, victim: (u32, u64)) -> Result<VecDeque<BlobId>> {
        if let Some(listed) = lock(&self.cleaning).listed.remove(&victim) {
            return Ok(listed);
        }
        let mut others = self.candidates();
        let mut zones = vec![victim];
        while zones.len() < AT_ONCE {
            others.retain(|other| !zones.contains(&(other.zone, other.life)));
            let Some(next) = lifetime(&others) else { break };
            zones.push((next.zone, next.life));
        }
        self.list_zones(&zones)
    }

    /// What was listed of a victim. Where its headers do not tell, records do.
    fn listed_or_found(&self, victim: &Victim) -> Result<VecDeque<BlobId>> {
        let of = (victim.zone, victim.life);
        match self.listed(of) {
            Ok(listed) if !listed.is_empty() || self.is_empty(victim) => Ok(listed),
            Err(error) if !is_of_bytes(&error) => Err(error),
            _ => self.find_residents(of),
        }
    }

    /// Looks for what lives in a zone, in a pass over the records of all blobs: headers of its runs are damaged.
    fn find_residents(&self, of: (u32, u64)) -> Result<VecDeque<BlobId>> {
        tracing::warn!(zone = of.0, "headers of runs are damaged; all records are searched for what the zone has");
        let (mut found, mut next) = (Vec::new(), Some(Vec::new()));
        while let Some(from) = next {
            let (pairs, more) = self.pairs(Family::Blobs, &from, None, PAGE, None)?;
            let ids = pairs.iter().filter_map(|(key, record)| {
                let resident = Resident::of(BlobId::of_key(key)?, record, of)?;
                Some((resident.runs.first()?.place?.block, resident.id))
            });
            found.extend(ids);
            next = more;
        }
        // In the order of the zone, in which they are read.
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    /// What of a blob that was listed still stands in this life of the zone.
    fn resident(&self, id: BlobId, of: (u32, u64)) -> Option<Resident> {
        if let Some(record) = lock(&self.cleaning).records.get(&id) {
            return Resident::of(id, record, of);
        }
        // It has changed since.
        match self.get(Family::Blobs, &id.key()) {
            Ok(record) => Resident::of(id, &record?, of),
            Err(error) => {
                tracing::warn!(%error, %id, "a blob cannot be moved");
                None
            }
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        if self.data.unit.is_some() {
            return Vec::new();
        }
        let unread = lock(&self.cleaning).unread.clone();
        let volume = self.tenant.volume();
        let state = self.state();
        let closed = state.table.iter().filter(|(_, z)| !z.open && z.live > 0);
        let candidate = |(zone, z): (u32, &Zone)| {
            let capacity = volume.capacity(ZoneId(zone)) / BLOCK - 1;
            let may = is_worth_it(z.live, capacity) && !unread.contains(&(zone, z.life));
            let rate = state.table.rate(z, capacity);
            may.then_some(Candidate { zone, life: z.life, live: z.live, capacity, rate, ..Candidate::default() })
        };
        closed.filter_map(candidate).collect()
    }
}

impl Residents for Core {
    type Piece = Resident;
    type Copy = Todo;
    type Error = Error;

    fn next_victim(&self, search: &Search<'_>) -> Option<Chosen> {
        let candidates = self.candidates();
        let (listed, rest): (Vec<_>, Vec<_>) = {
            let memory = lock(&self.cleaning);
            candidates.into_iter().partition(|of| memory.listed.contains_key(&(of.zone, of.life)))
        };
        // A pass was made for these. What it made of counts that waited had them touched just now.
        let listed = search.choose(lifetime, listed.into_iter());
        listed.or_else(|| search.choose(lifetime, rest.into_iter()))
    }

    fn residents(&self, victim: &Victim) -> Vec<Resident> {
        let Victim { zone, life, most, .. } = *victim;
        let mut listed = match self.listed_or_found(victim) {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(%error, zone, "what a zone has cannot be read; it is left as it is");
                self.note_unread(zone, false);
                return Vec::new();
            }
        };
        if listed.is_empty() && !self.is_empty(victim) {
            // Records that cannot be read, or counts that are wrong. Else it would be the next victim, too.
            tracing::warn!(zone, "blocks live in a zone, and no record says whose they are; it is left as it is");
            self.note_unread(zone, false);
        }
        let (mut all, mut bytes) = (Vec::new(), 0);
        while bytes < most {
            let Some(id) = listed.pop_front() else { break };
            let Some(resident) = self.resident(id, (zone, life)) else { continue };
            bytes += resident.runs.iter().map(|run| u64::from(run.blocks) * BLOCK).sum::<u64>();
            all.push(resident);
        }
        let read = self.read_ahead(zone, &all);
        let mut memory = lock(&self.cleaning);
        memory.read = read;
        // Whoever asks again looks at the zone again: what had no room is there still.
        if !listed.is_empty() {
            memory.listed.insert((zone, life), listed);
        }
        all
    }

    fn is_empty(&self, victim: &Victim) -> bool {
        let state = self.state();
        state.table.get(victim.zone).is_none_or(|z| z.life != victim.life || z.live == 0)
    }

    fn copy(&self, piece: &Resident, copies: &mut Vec<Todo>) -> std::result::Result<(), Failed<Error>> {
        let Resident { id, blob, runs } = piece;
        let mut all = AlignedBuf::zeroed(blob.blocks as usize * BLOCK as usize);
        let mut read = Vec::new();
        for run in runs {
            let at = run.first as usize * BLOCK as usize;
            let mut with_others = false;
            if let Some(place) = run.place
                && let Some(bytes) = lock(&self.cleaning).bytes(place, run.blocks)
            {
                if blob.verify(run.first, bytes).is_none() {
                    all[at..at + bytes.len()].copy_from_slice(bytes);
                    read.push(*run);
                    continue;
                }
                with_others = true;
            }
            let wanted = (blob, run.first, run.blocks);
            let alone =
                if with_others { self.fetch_again(wanted) } else { self.fetch_stored(wanted, None, || Ok(None)) };
            // Bytes that are not those that were written are left where they are, as whoever reads them must be told.
            match alone {
                Ok(Some(bytes)) => {
                    all[at..at + bytes.len()].copy_from_slice(&bytes);
                    read.push(*run);
                }
                Ok(None) => {}
                Err(error) if is_of_bytes(&error) => return Err(Failed::Unread(error)),
                Err(error) => return Err(Failed::Other(error)),
            }
        }
        let (bytes, sums) = (Arc::new(all), blob.sums());
        copies.extend(read.into_iter().map(|run| {
            let piece = RunPiece::of_blob(*id, blob, run.first, run.blocks);
            Todo {
                stream: Stream::Moved,
                piece,
                bytes: bytes.clone(),
                sums: sums.clone(),
                from: run.place,
                wanted: None,
            }
        }));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        // The group that has the copies does.
        Ok(())
    }

    fn switch(&self, copies: Vec<Todo>) -> Result<u64> {
        // All of one victim.
        Ok(self.move_out(copies)? * BLOCK)
    }

    fn commit(&self) -> Result<()> {
        let kept = self.state().kept;
        self.commit_quietly(kept)
    }

    fn settle(&self) {
        let mut memory = lock(&self.cleaning);
        memory.read.clear();
        if memory.listed.is_empty() {
            memory.records.clear();
        }
    }

    fn note_unread(&self, zone: u32, _: bool) -> bool {
        let life = self.state().table.get(zone).map(|z| z.life);
        lock(&self.cleaning).unread.extend(life.map(|life| (zone, life)));
        true
    }
}
