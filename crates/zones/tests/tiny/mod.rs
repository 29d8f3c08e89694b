//! A small engine, from which an author of an engine may begin: items of bytes under numbers. An append and a delete are durable when they return. A
//! cleaner moves items out of zones that are mostly dead. A crash at any moment leaves what was promised.
//!
//! It stands on floor 3 alone: a [`Tenant`] for zones, a [`RecordWriter`] for items on their way to them, a [`MetaLog`] in two copies that says where items
//! are, and a [`Committer`] that writes a group while the one before is flushed. What is where:
//!
//! - who appends gives an item its place, in memory, under one lock, and commits. Where a zone refused the item, it does so again;
//! - who leads a commit writes the log and what waits for zones: one write of the log and one flush for everybody;
//! - the [`Cleaner`] asks what lives in a zone, and has it copied as appends are written ([`Residents`]). A zone is forgotten with the record that took its
//!   last item.

#![allow(dead_code)]

use imbrex_device::{AlignedBuf, Cause, Error, Fault, Result, Tag, Written, Zone, ZoneId, report_all};
use imbrex_zones::clean::{Candidate, Chosen, Cleaner, Failed, Goal, Residents, Rules, Search, Victim, choose};
use imbrex_zones::log::{Batch, MetaLog};
use imbrex_zones::write::{Committer, Lead, RecordOptions, RecordWriter, Written as Group, ZoneGuard};
use imbrex_zones::{Budget, OpenZone, Tenant, Urgency, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub const NAME: &str = "tiny";
/// Four zones of the log, one to write to; one more for the cleaner, which is kept free.
pub const BUDGET: Budget = Budget::keeping(0, 1).at_least(6);
const LOG_ZONES: u32 = 4;
const COPIES: u8 = 2;
const BLOCK: u64 = 4096;
const HEADER: usize = 40;
const MAGIC: &[u8; 8] = b"tinyitem";
const WRITE: Tag = Tag::new(Cause::UserWrite);

/// Where an item is, and how many bytes of the zone it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    zone: u32,
    life: u64,
    at: u64,
    len: u64,
}

#[derive(Default)]
struct State {
    items: BTreeMap<u64, Place>,
    /// The items of each zone.
    of_zones: BTreeSet<(u32, u64)>,
    /// What is to be logged.
    records: Batch,
    /// Number of the last decision.
    seq: u64,
    /// The zone that takes the next item.
    open: Option<OpenZone>,
    /// Zones with copies of which the log does not know.
    incoming: BTreeSet<u32>,
}

pub struct Tiny {
    pub tenant: Tenant,
    zones: Arc<RecordWriter>,
    commits: Committer,
    state: Mutex<State>,
    /// Number of the next item.
    next: AtomicU64,
    cleaner: Cleaner,
    pub damage: Vec<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// An item on the drive: magic, number, life, length, checksum, its bytes, zeros up to the block.
fn image(id: u64, life: u64, bytes: &[u8]) -> AlignedBuf {
    let mut image = AlignedBuf::zeroed((HEADER + bytes.len()).next_multiple_of(BLOCK as usize));
    image[..8].copy_from_slice(MAGIC);
    for (i, word) in [id, life, bytes.len() as u64, crc32c::crc32c(bytes).into()].into_iter().enumerate() {
        image[8 + 8 * i..16 + 8 * i].copy_from_slice(&word.to_le_bytes());
    }
    image[HEADER..HEADER + bytes.len()].copy_from_slice(bytes);
    image
}

/// The bytes of an item; `None`: it does not stand here.
fn bytes_of(found: &[u8], id: u64, life: u64) -> Option<&[u8]> {
    let len = u64::from_le_bytes(*found[24..].first_chunk()?);
    let bytes = found[HEADER..].get(..len as usize)?;
    (*found == image(id, life, bytes)[..]).then_some(bytes)
}

impl Place {
    fn end(&self) -> u64 {
        self.at + self.len
    }
}

/// As the log has it.
fn log(records: &mut Batch, id: u64, place: Option<Place>) {
    let words = place.map_or([id, 0, 0, 0, 0], |p| [id, p.zone.into(), p.life, p.at, p.len]);
    records.push(|to| to.extend(words.into_iter().flat_map(u64::to_le_bytes)));
}

impl State {
    /// An item is here now, or (`None`) nowhere, and the log is to say so. The zone where it was is forgotten with that, if it was the last one there.
    fn set(&mut self, tenant: &Tenant, id: u64, place: Option<Place>) {
        log(&mut self.records, id, place);
        self.seq += 1;
        let old = self.items.remove(&id);
        old.iter().for_each(|old| _ = self.of_zones.remove(&(old.zone, id)));
        place.into_iter().for_each(|place| self.add(id, place));
        old.iter().for_each(|old| self.forget_if_empty(tenant, old.zone));
    }

    fn add(&mut self, id: u64, place: Place) {
        self.items.insert(id, place);
        self.of_zones.insert((place.zone, id));
    }

    /// Nothing more goes to the zone.
    fn close(&mut self, zones: &RecordWriter, zone: u32) {
        self.open.take_if(|open| open.zone.0 == zone);
        zones.close(zone);
        self.forget_if_empty(zones.tenant(), zone);
    }

    fn is_open(&self, zone: u32) -> bool {
        self.open.is_some_and(|open| open.zone.0 == zone)
    }

    fn forget_if_empty(&mut self, tenant: &Tenant, zone: u32) {
        if self.items_in(zone).next().is_none() && !self.is_open(zone) && !self.incoming.contains(&zone) {
            tenant.forget(ZoneId(zone), self.seq);
        }
    }

    /// What a record says.
    fn replay(&mut self, record: &[u8]) {
        let words: Vec<u64> = record.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
        match words[..] {
            [id, _, _, _, 0] => drop(self.items.remove(&id)),
            [id, zone, life, at, len] => drop(self.items.insert(id, Place { zone: zone as u32, life, at, len })),
            _ => {}
        }
    }

    fn items_in(&self, zone: u32) -> impl Iterator<Item = (u64, Place)> {
        self.of_zones.range((zone, 0)..=(zone, u64::MAX)).map(|(_, id)| (*id, self.items[id]))
    }
}

impl Tiny {
    pub fn open(volume: &Volume) -> Result<Tiny> {
        let (tenant, clock) = (volume.tenant(NAME)?, Arc::new(|| 0));
        let (mut state, mut damage, mut lost) = (State::default(), Vec::new(), Vec::new());
        tenant.begin()?;
        let log = if let Some((mut log, replay)) = MetaLog::open(&tenant, clock.clone(), None, &mut |_, _| {})? {
            if replay.snapshot.is_none() {
                return Err(Error::unusable(&volume.name(), "has lost both copies of its log"));
            }
            replay.pieces.iter().for_each(|record| state.replay(record));
            replay.records(&mut |_, record| state.replay(record));
            damage = replay.skipped;
            log.adopt()?;
            // A record may outlive bytes of which nobody was told.
            let zones = report_all(volume.device().as_ref())?;
            for (id, place) in std::mem::take(&mut state.items) {
                if is_there(volume, &zones, id, &place)? {
                    tenant.adopt(ZoneId(place.zone))?;
                    state.add(id, place);
                } else {
                    lost.push(id);
                }
            }
            tenant.adoption_done();
            log.finish_all_left();
            tenant.recovered()?;
            log.forget_unread();
            log
        } else {
            tenant.adoption_done();
            tenant.recovered()?;
            let mut log = MetaLog::create(&tenant, COPIES, LOG_ZONES, Vec::new(), clock)?;
            (0..COPIES).try_for_each(|_| log.write_snapshot(&Batch::default()))?;
            log
        };
        let size = volume.geometry().zone_size;
        let cleaner = Cleaner::new(&tenant, Rules { below: 0, leave: 0, zone: size, step: size });
        let options = RecordOptions { gather: 16 << 10, block: BLOCK as usize, zones_at_once: None };
        let zones = Arc::new(RecordWriter::new(&tenant, options));
        let next = state.items.last_key_value().map_or(0, |(id, _)| id + 1).into();
        let (commits, state) = (Committer::new(&zones, log), Mutex::new(state));
        let tiny = Tiny { tenant, zones, commits, state, next, cleaner, damage };
        // What was dropped stays so, whatever is written in its place.
        lost.into_iter().for_each(|id| lock(&tiny.state).set(&tiny.tenant, id, None));
        tiny.commit()?;
        // Of a zone that is finished the write pointer does not tell any more where its bytes end.
        let left: BTreeSet<u32> = lock(&tiny.state).items.values().map(|place| place.zone).collect();
        left.into_iter().for_each(|zone| tiny.tenant.finish_unused(ZoneId(zone)));
        Ok(tiny)
    }

    /// Durable when it returns.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let volume = self.tenant.volume();
        if (HEADER + bytes.len()) as u64 > volume.least_capacity() {
            return Err(Error::invalid(&volume.name(), "an item is longer than a zone"));
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        loop {
            if self.put(Urgency::User, bytes, |s, place| s.set(&self.tenant, id, Some(place)), id)? {
                self.commit()?;
                // Else its zone died, and it needs another one.
                if lock(&self.state).items.contains_key(&id) {
                    return Ok(id);
                }
            } else if !self.clean()? {
                return Err(Error::new(&volume.name(), Fault::NoSpace));
            }
        }
    }

    /// The number that the next item gets.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    pub fn read(&self, id: u64) -> Result<Option<Vec<u8>>> {
        let s = lock(&self.state);
        let Some(place) = s.items.get(&id).copied() else { return Ok(None) };
        self.tenant.pin(ZoneId(place.zone));
        drop(s);
        let bytes = self.read_at(id, &place);
        self.tenant.unpin(ZoneId(place.zone));
        bytes.map(Some)
    }

    pub fn delete(&self, id: u64) -> Result<()> {
        lock(&self.state).set(&self.tenant, id, None);
        self.commit()
    }

    pub fn ids(&self) -> Vec<u64> {
        lock(&self.state).items.keys().copied().collect()
    }

    /// Moves what lives in the zone with the fewest bytes, so that it becomes free. False: no zone is worth it.
    pub fn clean(&self) -> Result<bool> {
        let cleaned = self.cleaner.clean(self, Goal::Room, 1)?;
        // Until now the victims were pinned: this frees them.
        self.commit()?;
        Ok(cleaned.gained())
    }

    /// Gives an item a place, which is `noted` in the same moment; a commit writes it there. False: no zone has room.
    fn put(&self, how: Urgency, bytes: &[u8], noted: impl FnOnce(&mut State, Place), id: u64) -> Result<bool> {
        loop {
            let mut s = lock(&self.state);
            let full = s.open;
            if let Some(OpenZone { zone: ZoneId(zone), life, .. }) = full {
                let image = image(id, life, bytes);
                let len = image.len() as u64;
                if let Some(at) = self.zones.push(zone, image.into()) {
                    noted(&mut s, Place { zone, life, at, len });
                    s.seq += 1;
                    return Ok(true);
                }
            }
            drop(s);
            // One at a time takes a zone.
            let _lead = self.commits.lead();
            if lock(&self.state).open != full {
                continue;
            }
            let zone = match self.tenant.take(how) {
                Err(error) if matches!(error.fault, Fault::NoSpace) => return Ok(false),
                zone => zone?,
            };
            let (life, capacity) = (self.tenant.new_life(), self.tenant.volume().capacity(zone));
            let next = OpenZone { zone, life, at: 0, capacity };
            let mut s = lock(&self.state);
            full.into_iter().for_each(|full| s.close(&self.zones, full.zone.0));
            self.zones.open(next);
            s.open = Some(next);
        }
    }

    fn read_at(&self, id: u64, place: &Place) -> Result<Vec<u8>> {
        let (volume, zone) = (self.tenant.volume(), ZoneId(place.zone));
        let mut image = AlignedBuf::zeroed(place.len as usize);
        if !self.zones.read(zone.0, place.at, &mut image) {
            volume.read(&mut image, volume.geometry().start(zone) + place.at, Cause::UserRead.into())?;
        }
        let damaged = || Error::corrupt(&volume.name(), "an item").at(zone, place.at);
        bytes_of(&image, id, place.life).map(<[u8]>::to_vec).ok_or_else(damaged)
    }

    fn write_group<'a>(&self, mut lead: Lead<'a>) -> Result<Group<'a>> {
        let needs = || {
            let s = lock(&self.state);
            (s.records.len() as u64, 48 * (s.items.len() as u64 + 1))
        };
        lead.make_room(needs, |lead| {
            let mut all = Batch::default();
            lock(&self.state).items.iter().for_each(|(id, place)| log(&mut all, *id, Some(*place)));
            lead.log().write_snapshot(&all)
        })?;
        loop {
            let (seq, due) = {
                let mut s = lock(&self.state);
                lead.log().appender().append_all(&mut s.records)?;
                (s.seq, self.zones.due())
            };
            let refused = lead.write(seq, &due)?;
            if refused.is_empty() {
                return Ok(lead.done(seq));
            }
            refused.iter().for_each(|zone_guard| self.drop_refused(zone_guard));
        }
    }

    /// A zone takes no more writes. Its items, of which nobody was told yet, are nowhere: who appends one gives it another place. The cleaner's copies are not needed.
    fn drop_refused(&self, zone_guard: &ZoneGuard) {
        let (zone, mut s) = (zone_guard.zone(), lock(&self.state));
        let end = self.zones.written(zone);
        s.close(&self.zones, zone);
        let waiting: Vec<_> = s.items_in(zone).filter(|(_, place)| place.end() > end).collect();
        waiting.into_iter().for_each(|(id, _)| s.set(&self.tenant, id, None));
        zone_guard.discard();
    }
}

impl Residents for Tiny {
    /// An item, and where it is.
    type Piece = (u64, Place);
    /// And where its copy is.
    type Copy = (u64, Place, Place);
    type Error = Error;

    /// Zones of which at most half lives: what lives in two fits in one, so an end comes to moving. No zone is known to be dying.
    fn next_victim(&self, search: &Search<'_>) -> Option<Chosen> {
        let (s, mut all) = (lock(&self.state), BTreeMap::new());
        for &Place { zone, life, len, .. } in s.items.values() {
            let capacity = self.tenant.volume().capacity(ZoneId(zone));
            let new = Candidate { zone, life, capacity, ..Candidate::default() };
            all.entry(zone).or_insert(new).live += len;
        }
        let may = |c: &Candidate| c.live <= c.capacity / 2 && !s.is_open(c.zone);
        search.choose(choose::greedy, all.into_values().filter(may))
    }

    fn residents(&self, victim: &Victim) -> Vec<(u64, Place)> {
        lock(&self.state).items_in(victim.zone).filter(|(_, place)| place.life == victim.life).collect()
    }

    fn copy(&self, &(id, from): &(u64, Place), copies: &mut Vec<Self::Copy>) -> Result<(), Failed<Error>> {
        let bytes = self.read_at(id, &from).map_err(Failed::Unread)?;
        let note = |s: &mut State, to: Place| {
            s.incoming.insert(to.zone);
            copies.push((id, from, to));
        };
        self.put(Urgency::Cleaning, &bytes, note, id)?;
        Ok(())
    }

    /// What was decided so far is durable when it returns, and zones that were forgotten are free.
    fn commit(&self) -> Result<()> {
        let seq = lock(&self.state).seq;
        self.commits.commit(seq, WRITE, |lead| self.write_group(lead))?;
        let (gone, durable) = {
            let _opens_none = lock(&self.state);
            self.commits.forgotten()
        };
        self.tenant.free(&gone, durable);
        Ok(())
    }

    fn switch(&self, mut copies: Vec<Self::Copy>) -> Result<u64> {
        let mut s = lock(&self.state);
        // Unless somebody has deleted it meanwhile, or the zone of the copy has died.
        copies.retain(|(id, from, to)| s.items.get(id) == Some(from) && self.zones.durable(to.zone) >= to.end());
        copies.iter().for_each(|(id, _, to)| s.set(&self.tenant, *id, Some(*to)));
        Ok(copies.iter().map(|(_, _, to)| to.len).sum())
    }

    fn settle(&self) {
        let mut s = lock(&self.state);
        std::mem::take(&mut s.incoming).into_iter().for_each(|zone| s.forget_if_empty(&self.tenant, zone));
    }

    /// It is tried again with the next call.
    fn note_unread(&self, _: u32, _: bool) -> bool {
        false
    }
}

/// Whether the drive has an item of which the log speaks. One that cannot be read counts, so that whoever reads it hears of it.
fn is_there(volume: &Volume, zones: &[Zone], id: u64, place: &Place) -> Result<bool> {
    let Some(zone) = zones.get(place.zone as usize) else { return Ok(false) };
    if let Written::To(wp) = zone.written() {
        return Ok(place.end() <= wp);
    }
    // Its header tells, and its checksum.
    let mut found = AlignedBuf::zeroed(place.len as usize);
    match volume.read(&mut found, volume.geometry().start(zone.id) + place.at, Cause::Recovery.into()) {
        Err(Error { fault: Fault::Media { .. } | Fault::Offline, .. }) => Ok(true),
        Err(Error { fault: Fault::InvalidInput(_), .. }) => Ok(false),
        read => read.map(|()| bytes_of(&found, id, place.life).is_some()),
    }
}
