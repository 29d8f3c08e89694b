//! A small engine, from which an author of an engine may begin: items of bytes under numbers. An append and a delete are durable when they return. A
//! cleaner moves items out of zones that are mostly dead. A crash at any moment leaves what was promised.
//!
//! It stands on floor 3 alone: a [`Tenant`] for zones, a [`RecordWriter`] for items on their way to them, a [`MetaLog`] in two copies that says where items
//! are, and a [`Committer`] that writes a group while the one before is flushed. What is where:
//!
//! - who appends gives an item its place, in memory, under one lock, and joins the committer;
//! - who leads writes the log and what waits for zones: one write of the log and one flush for everybody. What a zone refuses it puts elsewhere;
//! - the [`Cleaner`] asks what lives in a zone, and has it copied as appends are written ([`Residents`]). A zone is forgotten with the record that took its
//!   last item.

#![allow(dead_code)]

use imbrex_device::{AlignedBuf, Cause, Error, Fault, Result, Tag, Written, Zone, ZoneId, report_all};
use imbrex_zones::clean::{Candidate, Cleaner, Failed, Goal, Residents, Rules, Search, Victim, choose};
use imbrex_zones::log::{Admitted, Batch, MetaLog, Root};
use imbrex_zones::write::{Committer, Join, Lead, RecordOptions, RecordWriter, Written as Group, ZoneGuard};
use imbrex_zones::{Budget, OpenZone, Tenant, Urgency, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

pub const NAME: &str = "tiny";
/// Four zones of the log, one to write to; one more for the cleaner, which is kept free.
pub const BUDGET: Budget = Budget::keeping(0, 1).at_least(6);
const LOG_ZONES: u32 = 4;
const BLOCK: u64 = 4096;
const HEADER: usize = 40;
const MAGIC: &[u8; 8] = b"tinyitem";
const WRITE: Tag = Tag::new(Cause::UserWrite);

/// Where an item is; `len`: of its bytes.
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
    /// Zones that are not forgotten: the life of each, and bytes of items.
    live: BTreeMap<u32, (u64, u64)>,
    /// What is to be logged.
    records: Batch,
    next: u64,
    /// Number of the last decision.
    seq: u64,
    /// The zone that takes the next item, and its life.
    open: Option<(u32, u64)>,
    /// Zones with copies of which the log does not know.
    incoming: BTreeSet<u32>,
}

pub struct Tiny {
    tenant: Tenant,
    zones: Arc<RecordWriter>,
    commits: Committer,
    log: Mutex<MetaLog>,
    state: Mutex<State>,
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

impl Place {
    /// Bytes that it takes.
    fn bytes(&self) -> u64 {
        (HEADER as u64 + self.len).next_multiple_of(BLOCK)
    }

    fn end(&self) -> u64 {
        self.at + self.bytes()
    }
}

impl State {
    /// An item is here now, or (`None`) nowhere, and the log is to say so. The zone where it was is forgotten with that, if it was the last one there.
    fn set(&mut self, tenant: &Tenant, id: u64, place: Option<Place>) {
        let words = place.map_or([id, 0, 0, 0, u64::MAX], |p| [id, p.zone.into(), p.life, p.at, p.len]);
        self.records.push(|to| to.extend(words.into_iter().flat_map(u64::to_le_bytes)));
        self.seq += 1;
        if let Some(old) = self.replace(id, place) {
            self.forget_if_empty(tenant, old.zone);
        }
    }

    /// Nothing more goes to the zone.
    fn close(&mut self, zones: &RecordWriter, zone: u32) {
        self.open.take_if(|(open, _)| *open == zone);
        zones.close(zone);
        self.forget_if_empty(zones.tenant(), zone);
    }

    fn is_open(&self, zone: u32) -> bool {
        self.open.is_some_and(|(open, _)| open == zone)
    }

    fn forget_if_empty(&mut self, tenant: &Tenant, zone: u32) {
        let empty = self.live.get(&zone).is_some_and(|(_, live)| *live == 0);
        if empty && !self.is_open(zone) && !self.incoming.contains(&zone) {
            self.live.remove(&zone);
            tenant.forget(ZoneId(zone), self.seq);
        }
    }

    fn replace(&mut self, id: u64, place: Option<Place>) -> Option<Place> {
        let old = match place {
            Some(place) => {
                let live = self.live.get(&place.zone).map_or(0, |(_, live)| *live);
                self.live.insert(place.zone, (place.life, live + place.bytes()));
                self.items.insert(id, place)
            }
            None => self.items.remove(&id),
        }?;
        self.live.entry(old.zone).and_modify(|(_, live)| *live -= old.bytes());
        Some(old)
    }

    /// What a record says.
    fn replay(&mut self, record: &[u8]) {
        let words: Vec<u64> = record.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
        let &[id, zone, life, at, len] = &words[..] else { return };
        let _ = self.replace(id, (len != u64::MAX).then_some(Place { zone: zone as u32, life, at, len }));
        self.next = self.next.max(id + 1);
    }
}

impl Tiny {
    pub fn open(volume: &Volume) -> Result<Tiny> {
        let tenant = volume.tenant(NAME)?;
        let clock = Arc::new(|| 0);
        let (mut state, mut damage, mut lost) = (State::default(), Vec::new(), Vec::new());
        let broken = |why: &str| Error::unusable(&volume.name(), why);
        tenant.begin()?;
        let root = tenant.root();
        let log = if root.is_empty() {
            tenant.adoption_done();
            tenant.recovered()?;
            let zones: Result<Vec<u32>> = (0..LOG_ZONES).map(|_| Ok(tenant.take(Urgency::Metadata)?.0)).collect();
            let root = Root { copies: 2, zones: zones?, ..Root::default() };
            let mut log = MetaLog::create(&tenant, &root, clock);
            for _ in 0..2 {
                log.begin_snapshot()?;
                log.finish_snapshot()?;
            }
            tenant.set_root(&root.encode().ok_or_else(|| broken("has its zones in too many places"))?)?;
            log
        } else {
            let root = Root::decode(&root).map_err(broken)?;
            root.check(volume).map_err(|why| broken(&why))?;
            let (mut log, replay) = MetaLog::open(&tenant, &root, clock, None, &mut |_, _| {})?;
            if replay.snapshot.is_none() {
                return Err(broken("has lost both copies of its log"));
            }
            replay.pieces.iter().flat_map(|piece| piece.chunks(40)).for_each(|record| state.replay(record));
            replay.records(&mut |_, record| state.replay(record));
            damage = replay.skipped;
            log.adopt()?;
            // A record may outlive bytes of which nobody was told.
            let zones = report_all(volume.device().as_ref())?;
            for (id, place) in state.items.clone() {
                if !is_there(volume, &zones, id, &place)? {
                    state.replace(id, None);
                    lost.push(id);
                }
            }
            state.live.retain(|_, (_, live)| *live > 0);
            state.live.keys().try_for_each(|zone| tenant.adopt(ZoneId(*zone)))?;
            tenant.adoption_done();
            log.finish_all_left();
            tenant.recovered()?;
            log.forget_unread();
            log
        };
        let size = volume.geometry().zone_size;
        let rules = Rules { below: 0, zone: size, step: size };
        let cleaner = Cleaner::new(&tenant, rules);
        let (log, state) = (Mutex::new(log), Mutex::new(state));
        let options = RecordOptions { gather: 16 << 10, block: BLOCK as usize, zones_at_once: None };
        let zones = Arc::new(RecordWriter::new(&tenant, options));
        let commits = Committer::new(&zones);
        let tiny = Tiny { tenant, zones, commits, log, state, cleaner, damage };
        // What was dropped stays so, whatever is written in its place.
        lost.into_iter().for_each(|id| lock(&tiny.state).set(&tiny.tenant, id, None));
        tiny.commit()?;
        // Of a zone that is finished the write pointer does not tell any more where its bytes end.
        for zone in lock(&tiny.state).live.keys().filter(|_| tiny.tenant.limits_active()) {
            if let Err(error) = tiny.tenant.finish(ZoneId(*zone)) {
                volume.check_poison()?;
                tracing::warn!(%error, "a zone could not be finished");
            }
        }
        Ok(tiny)
    }

    /// Durable when it returns.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let mut s = lock(&self.state);
        let id = s.next;
        s.next += 1;
        drop(s);
        loop {
            if self.put(Urgency::User, bytes, |s, place| s.set(&self.tenant, id, Some(place)), id)? {
                self.commit()?;
                // Else its zone died, and no other one had room for it.
                if lock(&self.state).items.contains_key(&id) {
                    return Ok(id);
                }
            }
            if !self.clean()? {
                return Err(self.no_space());
            }
        }
    }

    /// Does one piece of the volume's background work. False: there was none.
    pub fn step(&self) -> Result<bool> {
        self.tenant.volume().step()
    }

    /// The number that the next item gets.
    pub fn next(&self) -> u64 {
        lock(&self.state).next
    }

    pub fn read(&self, id: u64) -> Result<Option<Vec<u8>>> {
        let place = {
            let s = lock(&self.state);
            let Some(place) = s.items.get(&id).copied() else { return Ok(None) };
            self.tenant.pin(ZoneId(place.zone));
            place
        };
        let bytes = self.read_at(&place);
        self.tenant.unpin(ZoneId(place.zone));
        bytes.map(Some)
    }

    pub fn delete(&self, id: u64) -> Result<()> {
        {
            let mut s = lock(&self.state);
            if s.items.contains_key(&id) {
                s.set(&self.tenant, id, None);
            }
        }
        self.commit()
    }

    pub fn ids(&self) -> Vec<u64> {
        lock(&self.state).items.keys().copied().collect()
    }

    /// Moves what lives in the zone with the fewest bytes, so that it becomes free. False: no zone is worth it.
    pub fn clean(&self) -> Result<bool> {
        let cleaned = self.cleaner.clean(self, Goal::Room, 1)?;
        // Until now the victims were pinned.
        self.free(self.commits.durable());
        Ok(cleaned.gained())
    }

    /// Frees what was forgotten up to here, which is durable.
    fn free(&self, durable: u64) {
        let mut gone = self.tenant.forgotten(durable);
        gone.retain(|zone| self.zones.forget(zone.0));
        self.tenant.free(&gone, durable);
    }

    /// Gives an item a place, which is `noted` in the same moment; a commit writes it there. False: no zone has room.
    fn put(&self, how: Urgency, bytes: &[u8], noted: impl FnOnce(&mut State, Place), id: u64) -> Result<bool> {
        loop {
            let mut s = lock(&self.state);
            let open = s.open;
            if let Some((zone, life)) = open
                && let Some(at) = self.zones.push(zone, image(id, life, bytes).into())
            {
                noted(&mut s, Place { zone, life, at, len: bytes.len() as u64 });
                s.seq += 1;
                return Ok(true);
            }
            drop(s);
            let zone = match self.tenant.take(how) {
                Err(error) if matches!(error.fault, Fault::NoSpace) => return Ok(false),
                zone => zone?,
            };
            let capacity = self.tenant.volume().report_at_open()[zone.0 as usize].capacity;
            let mut s = lock(&self.state);
            let too_long = (HEADER + bytes.len()) as u64 > capacity;
            if too_long || s.open != open {
                // Or another thread was faster.
                self.tenant.release(zone);
            } else {
                open.into_iter().for_each(|(full, _)| s.close(&self.zones, full));
                let life = self.tenant.new_life();
                self.zones.open(OpenZone { zone, life, at: 0, capacity });
                s.live.insert(zone.0, (life, 0));
                s.open = Some((zone.0, life));
            }
            if too_long {
                return Err(Error::invalid(&self.tenant.volume().name(), "an item is longer than a zone"));
            }
        }
    }

    fn read_at(&self, place: &Place) -> Result<Vec<u8>> {
        let volume = self.tenant.volume();
        let mut image = AlignedBuf::zeroed(place.bytes() as usize);
        if !self.zones.read(place.zone, place.at, &mut image) {
            let start = volume.geometry().start(ZoneId(place.zone));
            volume.read(&mut image, start + place.at, Cause::UserRead.into())?;
        }
        Ok(image[HEADER..HEADER + place.len as usize].to_vec())
    }

    fn no_space(&self) -> Error {
        Error::new(&self.tenant.volume().name(), Fault::NoSpace)
    }

    fn write_group<'a>(&self, lead: Lead<'a>) -> Result<Group<'a>> {
        let mut log = lock(&self.log);
        loop {
            let (records, size, seq, due) = {
                let mut s = lock(&self.state);
                let size = 48 * (s.items.len() as u64 + 1);
                (std::mem::take(&mut s.records), size, s.seq, self.zones.due())
            };
            self.log(&mut log, records, size)?;
            let refused = lead.write(&mut log, seq, &due)?;
            if refused.is_empty() {
                return Ok(lead.done(seq));
            }
            refused.iter().try_for_each(|zone_guard| self.move_refused(zone_guard))?;
        }
    }

    /// A zone takes no more writes. Its items, of which nobody was told yet, go to another one, or are gone where there is none; the cleaner's copies are not
    /// needed.
    fn move_refused(&self, zone_guard: &ZoneGuard) -> Result<()> {
        let (zone, end) = (zone_guard.zone(), self.zones.written(zone_guard.zone()));
        let items: Vec<(u64, Place)> = {
            let mut s = lock(&self.state);
            s.close(&self.zones, zone);
            let waits = |(_, place): &(&u64, &Place)| place.zone == zone && place.end() > end;
            s.items.iter().filter(waits).map(|(id, place)| (*id, *place)).collect()
        };
        for (id, was) in items {
            // Unless somebody has deleted it meanwhile.
            let set = |s: &mut State, place| {
                if s.items.get(&id) == Some(&was) {
                    s.set(&self.tenant, id, place);
                }
            };
            if !self.put(Urgency::User, &self.read_at(&was)?, |s, place| set(s, Some(place)), id)? {
                set(&mut lock(&self.state), None);
            }
        }
        zone_guard.discard();
        Ok(())
    }

    /// Has the log take records; where it asks for that, behind a snapshot in each copy, of about `size` bytes.
    fn log(&self, log: &mut MetaLog, records: Batch, size: u64) -> Result<()> {
        let mut keep = Some(size);
        loop {
            match log.appender().admit(records.len() as u64, keep) {
                Admitted::Room(room) => {
                    log.appender().append(room, records);
                    return Ok(());
                }
                // Then the records take what room there is.
                Admitted::Snapshot if keep.take().is_some() => {
                    // One in each copy: else the other one still keeps what is older.
                    if self.snapshot(log).and_then(|()| self.snapshot(log)).is_err() {
                        self.tenant.volume().check_poison()?;
                    }
                }
                Admitted::Snapshot => return Err(self.no_space()),
            }
        }
    }

    fn snapshot(&self, log: &mut MetaLog) -> Result<()> {
        loop {
            log.begin_snapshot()?;
            let items: Vec<(u64, Place)> = lock(&self.state).items.iter().map(|(id, place)| (*id, *place)).collect();
            for items in items.chunks(64) {
                let words = items.iter().flat_map(|(id, p)| [*id, p.zone.into(), p.life, p.at, p.len]);
                log.piece(&words.flat_map(u64::to_le_bytes).collect::<Vec<_>>())?;
            }
            if log.finish_snapshot()? {
                return Ok(());
            }
        }
    }
}

impl Residents for Tiny {
    /// An item, and where it is.
    type Piece = (u64, Place);
    /// And where its copy is.
    type Copy = (u64, Place, Place);
    type Error = Error;

    /// Zones of which at most half lives: what lives in two fits in one, so an end comes to moving. No zone is known to be dying.
    fn next_victim(&self, search: &Search<'_>) -> Option<(u32, u64)> {
        let s = lock(&self.state);
        let of = |(&zone, &(life, live))| {
            let capacity = self.tenant.volume().report_at_open()[zone as usize].capacity;
            Candidate { zone, life, live, capacity, ..Candidate::default() }
        };
        let may = |c: &Candidate| c.live <= c.capacity / 2 && !s.is_open(c.zone);
        search.choose(choose::greedy, s.live.iter().map(of).filter(may))
    }

    fn residents(&self, victim: &Victim) -> Vec<(u64, Place)> {
        let here = |(_, p): &(&u64, &Place)| (p.zone, p.life) == (victim.zone, victim.life);
        lock(&self.state).items.iter().filter(here).map(|(id, place)| (*id, *place)).collect()
    }

    fn copy(&self, &(id, from): &(u64, Place), copies: &mut Vec<Self::Copy>) -> Result<(), Failed<Error>> {
        let bytes = self.read_at(&from).map_err(Failed::Unread)?;
        let note = |s: &mut State, to: Place| {
            s.incoming.insert(to.zone);
            copies.push((id, from, to));
        };
        self.put(Urgency::Cleaning, &bytes, note, id)?;
        Ok(())
    }

    /// What was decided so far is durable when it returns.
    fn commit(&self) -> Result<()> {
        let seq = lock(&self.state).seq;
        loop {
            let group = match self.commits.join(seq) {
                Join::Durable => return Ok(()),
                Join::Written(group) => group,
                Join::Lead(lead) => self.write_group(lead)?,
            };
            let flushed = group.flush(WRITE)?;
            self.free(flushed.seq());
            flushed.tell();
        }
    }

    fn switch(&self, mut copies: Vec<Self::Copy>) -> Result<u64> {
        let mut s = lock(&self.state);
        // Unless somebody has deleted it meanwhile, or the zone of the copy has died.
        copies.retain(|(id, from, to)| s.items.get(id) == Some(from) && self.zones.durable(to.zone) >= to.end());
        copies.iter().for_each(|(id, _, to)| s.set(&self.tenant, *id, Some(*to)));
        Ok(copies.iter().map(|(_, _, to)| to.bytes()).sum())
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
    match zone.written() {
        Written::To(wp) => return Ok(place.end() <= wp),
        Written::Gone => return Ok(true),
        // Its header tells, and its checksum.
        Written::Untold => {}
    }
    let mut found = AlignedBuf::zeroed(place.bytes() as usize);
    match volume.read(&mut found, volume.geometry().start(zone.id) + place.at, Cause::Recovery.into()) {
        Ok(()) => {}
        Err(Error { fault: Fault::Media { .. }, .. }) => return Ok(true),
        Err(Error { fault: Fault::InvalidInput(_), .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    let bytes = &found[HEADER..HEADER + place.len as usize];
    Ok(found[..] == image(id, place.life, bytes)[..])
}
