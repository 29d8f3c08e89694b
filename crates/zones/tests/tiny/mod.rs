//! A small engine, from which an author of an engine may begin: items of bytes under numbers. An append and a delete are durable when they return. A
//! cleaner moves items out of zones that are mostly dead. A crash at any moment leaves what was promised.
//!
//! It stands on floor 3 alone: a [`Tenant`] for zones, a [`MetaLog`] in two copies that says where items are, and a [`Committer`] that writes a group while
//! the one before is flushed. What is where:
//!
//! - who appends gives bytes and a number to [`State::waiting`], under one lock, and joins the committer;
//! - who leads writes what waits to the open zone, then the log, and flushes: one write of the log and one flush for everybody;
//! - the cleaner's copies are durable before the log names them, and a zone is forgotten with the record that took its last item.

#![allow(dead_code)]

use imbrex_device::{AlignedBuf, Cause, Error, Fault, Result, Tag, Written, Zone, ZoneId, report_all};
use imbrex_zones::log::{Admitted, Batch, MetaLog, Root};
use imbrex_zones::write::{Committer, Join, Lead, Written as Group};
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
struct Place {
    zone: u32,
    life: u64,
    at: u64,
    len: u64,
}

#[derive(Default)]
struct State {
    items: BTreeMap<u64, Place>,
    /// Zones with items, and how many each has.
    live: BTreeMap<u32, u64>,
    /// Items that are to be written.
    waiting: Vec<(u64, Vec<u8>)>,
    /// What is to be logged.
    records: Batch,
    next: u64,
    /// Number of the last decision.
    seq: u64,
    /// Zones that are written, or have bytes of which nobody knows yet.
    busy: BTreeSet<u32>,
}

/// Where the leader or the cleaner writes, and the zones that it has left since it last [told](State::told) where its bytes are.
#[derive(Default)]
struct Pen {
    open: Option<OpenZone>,
    left: Vec<u32>,
}

pub struct Tiny {
    tenant: Tenant,
    commits: Committer,
    log: Mutex<MetaLog>,
    state: Mutex<State>,
    /// Where the leader writes.
    open: Mutex<Pen>,
    /// Where the cleaner writes; one at a time cleans.
    cleaning: Mutex<Pen>,
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
    fn end(&self) -> u64 {
        self.at + (HEADER as u64 + self.len).next_multiple_of(BLOCK)
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

    /// Whatever stands in the zones that were left is known now.
    fn told(&mut self, tenant: &Tenant, pen: &mut Pen) {
        for zone in pen.left.drain(..) {
            self.busy.remove(&zone);
            self.forget_if_empty(tenant, zone);
        }
    }

    fn forget_if_empty(&mut self, tenant: &Tenant, zone: u32) {
        if self.live.get(&zone).is_none_or(|live| *live == 0) && !self.busy.contains(&zone) {
            self.live.remove(&zone);
            tenant.forget(ZoneId(zone), self.seq);
        }
    }

    fn replace(&mut self, id: u64, place: Option<Place>) -> Option<Place> {
        let old = match place {
            Some(place) => {
                *self.live.entry(place.zone).or_default() += 1;
                self.items.insert(id, place)
            }
            None => self.items.remove(&id),
        }?;
        if let Some(live) = self.live.get_mut(&old.zone) {
            *live -= 1;
        }
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
            let root = Root { copies: 2, zones: zones?, unfinished: false };
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
            state.live.retain(|_, live| *live > 0);
            state.live.keys().try_for_each(|zone| tenant.adopt(ZoneId(*zone)))?;
            tenant.adoption_done();
            log.finish_all_left();
            tenant.recovered()?;
            log.forget_unread();
            log
        };
        let (log, state) = (Mutex::new(log), Mutex::new(state));
        let (open, cleaning) = (Mutex::default(), Mutex::default());
        let tiny = Tiny { commits: Committer::new(volume), tenant, log, state, open, cleaning, damage };
        // What was dropped stays so, whatever is written in its place.
        lost.into_iter().for_each(|id| lock(&tiny.state).set(&tiny.tenant, id, None));
        let seq = lock(&tiny.state).seq;
        tiny.commit(seq)?;
        // Of a zone that is finished the write pointer does not tell any more where its bytes end.
        let zones: Vec<u32> = lock(&tiny.state).live.keys().copied().collect();
        zones.into_iter().try_for_each(|zone| tiny.finish(zone))?;
        Ok(tiny)
    }

    /// Durable when it returns.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let id = {
            let mut s = lock(&self.state);
            s.next += 1;
            s.next - 1
        };
        loop {
            let seq = {
                let mut s = lock(&self.state);
                s.waiting.push((id, bytes.to_vec()));
                s.seq += 1;
                s.seq
            };
            self.commit(seq)?;
            // Else no zone had room for it.
            if lock(&self.state).items.contains_key(&id) {
                return Ok(id);
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
        let seq = {
            let mut s = lock(&self.state);
            if !s.items.contains_key(&id) {
                return Ok(());
            }
            s.set(&self.tenant, id, None);
            s.seq
        };
        self.commit(seq)
    }

    pub fn ids(&self) -> Vec<u64> {
        lock(&self.state).items.keys().copied().collect()
    }

    /// Moves what lives in the zone with the fewest bytes, if they fill at most half of it, so that it becomes free. False: there is none.
    pub fn clean(&self) -> Result<bool> {
        let mut pen = lock(&self.cleaning);
        let half = self.tenant.volume().geometry().zone_size / 2;
        let (victim, items) = {
            let s = lock(&self.state);
            let mut full: BTreeMap<u32, u64> = BTreeMap::new();
            s.items.values().for_each(|p| *full.entry(p.zone).or_default() += p.end() - p.at);
            let may = |(zone, bytes): &(&u32, &u64)| **bytes <= half && !s.busy.contains(zone);
            let Some((victim, _)) = full.iter().filter(may).min_by_key(|(_, bytes)| **bytes) else { return Ok(false) };
            self.tenant.pin(ZoneId(*victim));
            let of = s.items.iter().filter(|(_, place)| place.zone == *victim);
            (*victim, of.map(|(id, place)| (*id, *place)).collect::<Vec<_>>())
        };
        let moved = self.copy(&mut pen, items);
        self.tenant.unpin(ZoneId(victim));
        self.commit(moved?)?;
        Ok(true)
    }

    /// Copies, flushes, and only then says where the items are. Returns the number of what is to be durable.
    fn copy(&self, pen: &mut Pen, items: Vec<(u64, Place)>) -> Result<u64> {
        let mut copies = Vec::new();
        for (id, from) in items {
            copies.push((id, from, self.write(pen, Urgency::Cleaning, id, &self.read_at(&from)?)?));
        }
        self.tenant.volume().sync(Cause::Cleaning.into())?;
        let mut s = lock(&self.state);
        for (id, from, to) in copies {
            // Unless somebody has deleted it meanwhile.
            if s.items.get(&id) == Some(&from) {
                s.set(&self.tenant, id, Some(to));
            }
        }
        s.told(&self.tenant, pen);
        Ok(s.seq)
    }

    /// Writes an item to the zone that is written, or to a new one. Not a flush.
    fn write(&self, pen: &mut Pen, urgency: Urgency, id: u64, bytes: &[u8]) -> Result<Place> {
        let mut tries = 0;
        loop {
            let zone = match pen.open.as_mut() {
                Some(zone) => zone,
                None => pen.open.insert(self.next_zone(urgency)?),
            };
            let place = Place { zone: zone.zone.0, life: zone.life, at: zone.at, len: bytes.len() as u64 };
            if place.end() <= zone.capacity {
                let image = image(id, zone.life, bytes);
                match self.tenant.volume().write_sequential(zone, &image, WRITE) {
                    Ok(()) => return Ok(place),
                    // A volume that takes no more writes, or an item that no zone takes.
                    Err(error) if tries == 3 || self.tenant.volume().check_poison().is_err() => return Err(error),
                    Err(_) => tries += 1,
                }
            } else if place.at == 0 {
                return Err(Error::invalid(&self.tenant.volume().name(), "an item is longer than a zone"));
            }
            // It is full, or nobody knows how full.
            pen.open = None;
            pen.left.push(place.zone);
            self.finish(place.zone)?;
        }
    }

    /// Nobody goes on in the zone: on a drive that limits active zones it is finished, when its bytes are durable.
    fn finish(&self, zone: u32) -> Result<()> {
        if self.tenant.limits_active() {
            self.tenant.volume().sync(WRITE)?;
            if let Err(error) = self.tenant.finish(ZoneId(zone)) {
                self.tenant.volume().check_poison()?;
                tracing::warn!(%error, "a zone could not be finished");
            }
        }
        Ok(())
    }

    fn next_zone(&self, urgency: Urgency) -> Result<OpenZone> {
        let zone = self.tenant.take(urgency)?;
        if let Err(error) = self.tenant.activate(zone) {
            self.tenant.release(zone);
            return Err(error);
        }
        lock(&self.state).busy.insert(zone.0);
        let capacity = self.tenant.volume().report_at_open()[zone.0 as usize].capacity;
        Ok(OpenZone { zone, life: self.tenant.new_life(), at: 0, capacity })
    }

    fn read_at(&self, place: &Place) -> Result<Vec<u8>> {
        let volume = self.tenant.volume();
        let mut image = AlignedBuf::zeroed((place.end() - place.at) as usize);
        let start = volume.geometry().start(ZoneId(place.zone));
        volume.read(&mut image, start + place.at, Cause::UserRead.into())?;
        Ok(image[HEADER..HEADER + place.len as usize].to_vec())
    }

    fn no_space(&self) -> Error {
        Error::new(&self.tenant.volume().name(), Fault::NoSpace)
    }

    fn commit(&self, seq: u64) -> Result<()> {
        loop {
            let group = match self.commits.join(seq) {
                Join::Durable => return Ok(()),
                Join::Written(group) => group,
                Join::Lead(lead) => self.write_group(lead)?,
            };
            let flushed = group.flush(WRITE)?;
            self.tenant.forgot(flushed.seq());
            flushed.tell();
        }
    }

    fn write_group<'a>(&self, lead: Lead<'a>) -> Result<Group<'a>> {
        let (mut log, mut pen) = (lock(&self.log), lock(&self.open));
        let (waiting, seq) = {
            let mut s = lock(&self.state);
            (std::mem::take(&mut s.waiting), s.seq)
        };
        for (id, bytes) in waiting {
            match self.write(&mut pen, Urgency::User, id, &bytes) {
                Ok(place) => lock(&self.state).set(&self.tenant, id, Some(place)),
                // Who appended it finds that it is not there.
                Err(error) if matches!(error.fault, Fault::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        let (records, size) = {
            let mut s = lock(&self.state);
            s.told(&self.tenant, &mut pen);
            (std::mem::take(&mut s.records), 48 * (s.items.len() as u64 + 1))
        };
        let mut keep = Some(size);
        let room = loop {
            match (log.admit(records.len() as u64, keep), keep) {
                (Admitted::Room(room), _) => break room,
                (Admitted::Snapshot, Some(_)) => {
                    // One in each copy: else the other one still keeps what is older.
                    if self.snapshot(&mut log).and_then(|()| self.snapshot(&mut log)).is_err() {
                        self.tenant.volume().check_poison()?;
                    }
                    // Then the records take what room there is.
                    keep = None;
                }
                (Admitted::Snapshot, None) => return Err(self.no_space()),
            }
        };
        log.append(room, records);
        log.write()?;
        lead.logged(seq);
        Ok(lead.done(seq))
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

/// Whether the drive has an item of which the log speaks. One that cannot be read counts, so that whoever reads it hears of it.
fn is_there(volume: &Volume, zones: &[Zone], id: u64, place: &Place) -> Result<bool> {
    let Some(zone) = zones.get(place.zone as usize) else { return Ok(false) };
    match zone.written() {
        Written::To(wp) => return Ok(place.end() <= wp),
        Written::Gone => return Ok(true),
        // Its header tells, and its checksum.
        Written::Untold => {}
    }
    let mut found = AlignedBuf::zeroed((place.end() - place.at) as usize);
    match volume.read(&mut found, volume.geometry().start(zone.id) + place.at, Cause::Recovery.into()) {
        Ok(()) => {}
        Err(Error { fault: Fault::Media { .. }, .. }) => return Ok(true),
        Err(Error { fault: Fault::InvalidInput(_), .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    let bytes = &found[HEADER..HEADER + place.len as usize];
    Ok(found[..] == image(id, place.life, bytes)[..])
}
