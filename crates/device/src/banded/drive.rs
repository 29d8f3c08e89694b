//! A banded disk's commands.
//!
//! Locks, in this order: a band's for its being set in place, the journal's, and a band's for its way home. These are held while the
//! disk works. Then the staging area's, and a band's for what is known of it, which are held for memory and the live part only. That
//! a band has one command at a time is its `claimed`.

use super::layout::PAGE;
use super::staging::{self, Piece};
use super::stats::Counter;
use super::table::{self, Proof, Record, Word};
use super::{Banded, Journal, Side, Slot, is_conventional, lock};
use crate::kernel::Access;
use crate::{Cause, Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

/// Counters are written after so many flushes.
const FLUSHES_PER_COUNT: u64 = 256;

/// What becomes of a band at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Finish,
    Reset,
    InPlace,
}

struct Claim<'a>(&'a Slot);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(&self.0.side).claimed = false;
    }
}

/// A write in place that is under way.
struct InPlace<'a>(&'a Slot);

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        let mut side = lock(&self.0.side);
        side.in_place = side.in_place.saturating_sub(1);
    }
}

impl Side {
    /// Whether the next batch carries what the last one did not speak of: none of it is in the band yet.
    fn is_carried(&self) -> bool {
        self.ahead.first().is_some_and(|first| first.from <= self.told)
    }
}

impl Banded {
    fn fault(&self, fault: Fault, zone: ZoneId, at: u64) -> Error {
        Error::new(&self.identity.name, fault).at(zone, at)
    }

    /// Counts and words an error that is the host's fault.
    fn violation(&self, fault: Fault, zone: ZoneId, at: u64, tag: Tag) -> Error {
        self.counters.count(tag.cause, Counter::Violations, 1);
        self.fault(fault, zone, at)
    }

    fn invalid(&self, text: String, zone: ZoneId, at: u64, tag: Tag) -> Error {
        self.violation(Fault::InvalidInput(text.into()), zone, at, tag)
    }

    fn slot(&self, zone: ZoneId, at: u64, tag: Tag) -> Result<&Slot> {
        let slot = self.slots.get(zone.0 as usize);
        slot.ok_or_else(|| self.invalid(format!("there is no zone {zone}"), zone, at, tag))
    }

    fn journal(&self, zone: ZoneId, at: u64) -> Result<MutexGuard<'_, Journal>> {
        self.journal.as_ref().map(lock).ok_or_else(|| self.fault(Fault::ReadOnly, zone, at))
    }

    /// Where a band's byte stands on the disk.
    fn place(&self, at: u64) -> u64 {
        self.layout.data_at + at
    }

    fn check_command(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let geometry = &self.geometry;
        let (block, len) = (u64::from(geometry.block), buf.len() as u64);
        let refuse = |text: String| Err(self.invalid(text, geometry.zone_of(at), at, tag));
        if len == 0 || !len.is_multiple_of(block) {
            return refuse(format!("length {len} is not a positive multiple of the block size {block}"));
        }
        if !at.is_multiple_of(block) {
            return refuse(format!("offset {at} is not a multiple of the block size {block}"));
        }
        if !(buf.as_ptr() as usize).is_multiple_of(geometry.mem_align as usize) {
            return refuse(format!("the buffer is not aligned to {} bytes", geometry.mem_align));
        }
        if len > u64::from(geometry.max_io) {
            return refuse(format!("length {len} is more than the largest command {}", geometry.max_io));
        }
        if at >= geometry.size() || len > geometry.size() - at {
            return refuse(format!("{len} bytes at {at} end behind the drive's {} bytes", geometry.size()));
        }
        Ok(())
    }

    /// Reads one band's part: what was written from the disk or from what is not in the band yet, the rest is zeros. Errors say how much
    /// of the part is good.
    fn read_in_band(&self, buf: &mut [u8], slot: &Slot, offset: u64, at: u64) -> Result<(), Fault> {
        let _bytes = slot.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let block = u64::from(self.layout.block);
        let (word, ahead) = {
            let side = lock(&slot.side);
            let touches = |piece: &&Piece| {
                piece.from * block < offset + buf.len() as u64 && offset < piece.end(&self.layout) * block
            };
            (side.word, side.ahead.iter().filter(touches).cloned().collect::<Vec<_>>())
        };
        let readable = if is_conventional(&word) { self.layout.band } else { word.written * block };
        let stored = readable.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (data, zeros) = buf.split_at_mut(stored);
        zeros.fill(0);
        let mut read = |from: usize, to: usize| match data.get_mut(from..to) {
            Some(data) if !data.is_empty() => {
                self.base.read(data, self.place(at) + from as u64).map_err(|fault| match fault {
                    Fault::Media { len } => Fault::Media { len: from as u64 + len },
                    other => other,
                })
            }
            _ => Ok(()),
        };
        // What is not in the band may be on its way there: nobody reads it there.
        let mut done = 0;
        let place = |block_at: u64| (block_at * block).saturating_sub(offset).min(stored as u64) as usize;
        for piece in &ahead {
            read(done, place(piece.from))?;
            done = done.max(place(piece.end(&self.layout)));
        }
        read(done, stored)?;
        for piece in &ahead {
            let skip = offset.saturating_sub(piece.from * block) as usize;
            if let (Some(bytes), Some(data)) = (piece.bytes.get(skip..), data.get_mut(place(piece.from)..)) {
                data.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
            }
        }
        Ok(())
    }

    /// Tells the live part and memory of a band's new word.
    fn set_word(&self, zone: ZoneId, side: &mut Side, word: Word) -> Result<(), Fault> {
        self.base.put(&table::encode_live(&self.layout, zone.0, word), self.layout.live_word_at(zone.0))?;
        side.word = word;
        Ok(())
    }

    fn claim(&self, zone: ZoneId, at: u64, tag: Tag) -> Result<(Claim<'_>, Word)> {
        let slot = self.slot(zone, at, tag)?;
        let mut side = lock(&slot.side);
        if side.claimed || side.in_place > 0 {
            drop(side);
            return Err(self.invalid("a second command on a zone that has one in flight".into(), zone, at, tag));
        }
        side.claimed = true;
        let word = side.word;
        drop(side);
        Ok((Claim(slot), word))
    }

    /// Keeps operations away from a band while it is written in place.
    fn begin_in_place(&self, zone: ZoneId, at: u64, tag: Tag) -> Result<InPlace<'_>> {
        let slot = self.slot(zone, at, tag)?;
        let is_whole = |word: &Word| word.state == ZoneState::Full && word.written == self.layout.capacity();
        // With whether somebody has claimed the band.
        let is_due = || {
            let side = lock(&slot.side);
            (is_whole(&side.word) && !side.settled, side.claimed)
        };
        if is_due() != (false, false) {
            // Others who come while one of them sets it in place wait until that one's claim is gone.
            let _settling = lock(&slot.settling);
            if is_due().0 {
                // It is full by what was written to it: from here on nothing of that is checked, or on its way.
                let (claim, _) = self.claim(zone, at, tag)?;
                self.change(&claim, zone, Change::InPlace).map_err(|fault| self.fault(fault, zone, at))?;
            }
        }
        let mut side = lock(&slot.side);
        let word = side.word;
        // Whoever fills it meanwhile has not set it in place.
        if side.claimed || !is_whole(&word) || !side.settled {
            drop(side);
            let what =
                format!("a write in place to a zone that is {} or has an operation in flight", word.state.name());
            return Err(self.invalid(what, zone, at, tag));
        }
        side.in_place += 1;
        Ok(InPlace(slot))
    }

    fn write_band(&self, buf: &[u8], zone: ZoneId, offset: u64, at: u64, tag: Tag) -> Result<()> {
        let (claim, word) = self.claim(zone, at, tag)?;
        let wp = word.written * u64::from(self.layout.block);
        let blocks = buf.len() as u64 / u64::from(self.layout.block);
        if word.state == ZoneState::Full {
            return Err(self.violation(Fault::ZoneFull, zone, at, tag));
        }
        if offset != wp {
            return Err(self.violation(Fault::WritePointer { expected: wp, got: offset }, zone, at, tag));
        }
        let written = word.written + blocks;
        let state = match word.state {
            _ if written == self.layout.capacity() => ZoneState::Full,
            ZoneState::ExplicitlyOpen => ZoneState::ExplicitlyOpen,
            _ => ZoneState::ImplicitlyOpen,
        };
        let new = Word { state, written, ..word };
        let fail = |fault| self.fault(fault, zone, at);
        if self.stage(claim.0, zone, new, buf).map_err(fail)? {
            return Ok(());
        }
        self.bring_home(claim.0, true).map_err(fail)?;
        // Before the disk has the bytes nothing has happened, whatever a part of them overwrote: it lies above the pointer.
        self.base.write(buf, self.place(at)).map_err(fail)?;
        let mut side = lock(&claim.0.side);
        self.set_word(zone, &mut side, new).map_err(fail)?;
        side.settled = false;
        side.sum = crc32c::crc32c_append(side.sum, buf);
        drop(side);
        lock(&self.dirty).insert(zone.0);
        Ok(())
    }

    /// Keeps a small write for the next batch, which makes the band's word `new`; `false` where it is none, or there is no room.
    fn stage(&self, slot: &Slot, zone: ZoneId, new: Word, buf: &[u8]) -> Result<bool, Fault> {
        // Held until the band is among the dirty ones: a flush that begins the other half takes all that is in this one.
        let mut staging = lock(&self.staging);
        let mut side = lock(&slot.side);
        let from = side.word.written;
        // Behind bytes that only a checksum vouches for it is one of them.
        let in_band = side.ahead.first().map_or(from, |first| first.from);
        if !staging.takes(&self.layout, buf.len()) || in_band > side.told || side.stuck {
            return Ok(false);
        }
        let piece = Piece { band: zone.0, life: new.life, from, bytes: buf.into() };
        if !staging.put(self.base.as_ref(), &self.layout, &piece, || self.set_word(zone, &mut side, new))? {
            return Ok(false);
        }
        side.sum = crc32c::crc32c_append(side.sum, buf);
        side.ahead.push(piece);
        side.settled = false;
        drop(side);
        lock(&self.dirty).insert(zone.0);
        Ok(true)
    }

    /// Writes into a band what is not in it yet: all of it, or only what batches carry. The caller keeps resets away, and for all of
    /// it writes, too: a small write that comes meanwhile is carried only if what no batch carries yet is still in memory before it.
    fn bring_home(&self, slot: &Slot, all: bool) -> Result<(), Fault> {
        // One at a time: nobody may write over a write that is in flight.
        let _home = lock(&slot.home);
        let pieces: Vec<Piece> = {
            let side = lock(&slot.side);
            side.ahead.iter().filter(|piece| all || piece.end(&self.layout) <= side.told).cloned().collect()
        };
        let Some(last) = pieces.last() else { return Ok(()) };
        let done = staging::bring_home(self.base.as_ref(), &self.layout, &pieces);
        let mut side = lock(&slot.side);
        if let (Err(fault), false) = (&done, side.stuck) {
            let (name, band) = (&self.identity.name, last.band);
            tracing::warn!(
                "{name}: zone {band} does not take what is in the log of the band table, which keeps it: {fault:?}"
            );
        }
        side.stuck = done.is_err();
        if done.is_ok() {
            side.ahead.retain(|piece| piece.from > last.from);
        }
        done
    }

    /// Brings home what is in no band yet, so that nothing is in the log alone, and begins a new one. What a band does not take goes
    /// on in the new log.
    fn roll(&self, journal: &mut Journal) -> Result<(), Fault> {
        let mut again = (Vec::new(), Vec::new());
        if journal.carries() {
            let bands = lock(&self.staging).bands.clone();
            for (band, slot) in bands.iter().filter_map(|band| Some((*band, self.slots.get(*band as usize)?))) {
                if self.bring_home(slot, false).is_err()
                    && let Some(word) = journal.word(band)
                {
                    let side = lock(&slot.side);
                    let pieces = side.ahead.iter().filter(|piece| piece.is_of(&word, &self.layout));
                    staging::carry_on(&self.layout, word, &pieces.cloned().collect::<Vec<_>>(), &mut again);
                }
            }
            journal.sync(self.base.as_ref())?;
            let waits =
                |band: &u32| self.slots.get(*band as usize).is_some_and(|slot| !lock(&slot.side).ahead.is_empty());
            lock(&self.staging).bands.retain(waits);
        }
        journal.roll(self.base.as_ref(), &again)
    }

    /// The record of a band as it is now, and what it carries; what is written from here on is for the next one.
    fn collect(&self, band: u32, trusted: bool, carried: &mut Vec<u8>) -> Option<Record> {
        let slot = self.slots.get(band as usize)?;
        let mut side = lock(&slot.side);
        let proof = match side.is_carried() {
            true => {
                let told = side.told;
                side.ahead
                    .iter()
                    .filter(|piece| piece.from >= told)
                    .for_each(|piece| carried.extend_from_slice(&piece.bytes));
                Proof::Carried
            }
            false if trusted => Proof::Durable,
            false => Proof::Sum(side.sum),
        };
        let record = Record { band, word: side.word, from: side.told, proof };
        side.told = side.word.written;
        side.sum = table::seed(&self.layout, band, side.word.life, side.told);
        Some(record)
    }

    /// Makes everything durable that was acknowledged before the call.
    fn commit(&self, journal: &mut Journal) -> Result<(), Fault> {
        journal.check()?;
        let (turned, bands) = {
            let mut staging = lock(&self.staging);
            let turned = staging.turn(self.base.as_ref(), &self.layout, journal.sequence())?;
            (turned, std::mem::take(&mut *lock(&self.dirty)))
        };
        if bands.is_empty() && !turned {
            return journal.sync(self.base.as_ref());
        }
        let fresh = |band: &u32| {
            self.slots.get(*band as usize).map_or(0, |slot| {
                let side = lock(&slot.side);
                if side.is_carried() { 0 } else { side.word.written - side.told }
            })
        };
        let bytes = bands.iter().map(fresh).sum::<u64>() * u64::from(self.layout.block);
        let (mut records, mut carried) = (Vec::with_capacity(bands.len()), Vec::new());
        let trusted = bytes > self.checked_bytes;
        records.extend(bands.iter().filter_map(|band| self.collect(*band, trusted, &mut carried)));
        if trusted {
            // The records are taken before the sync: they speak of nothing that it does not cover.
            journal.sync(self.base.as_ref())?;
        }
        records.retain(|record| Some(record.word) != journal.word(record.band));
        self.write_batch(journal, &records, &carried)
    }

    /// Writes a batch, durable when this returns; from then on the live part goes with a table that has it.
    fn write_batch(&self, journal: &mut Journal, records: &[Record], carried: &[u8]) -> Result<(), Fault> {
        if !journal.has_room(records.len(), carried.len()) {
            self.roll(journal)?;
        }
        journal.commit(self.base.as_ref(), records, carried)?;
        self.base.put(&table::encode_live_mark(&self.layout, journal.sequence()), self.layout.live_mark_at())
    }

    /// After a failed flush nobody may believe the live part: the next open takes it for a power loss.
    fn give_up(&self, journal: &Journal) {
        if journal.failed()
            && let Err(fault) = self.base.put(&[0; 16], self.layout.live_at())
        {
            tracing::error!("{}: {fault:?}: the live part of the band table stays as it is", self.identity.name);
        }
    }

    fn flush_at(&self, zone: ZoneId, at: u64) -> Result<()> {
        let mut journal = self.journal(zone, at)?;
        let was = journal.failed();
        let done = self.commit(&mut journal);
        if !was {
            self.give_up(&journal);
        }
        done.map_err(|fault| self.fault(fault, zone, at))
    }

    /// Flushes, and leaves nothing for the next open to check.
    pub(super) fn close(&self) -> Result<()> {
        self.save_counters();
        self.flush_at(ZoneId(0), 0)?;
        let mut journal = self.journal(ZoneId(0), 0)?;
        if journal.carries() || !journal.has_room(0, 0) {
            let rolled = self.roll(&mut journal);
            self.give_up(&journal);
            rolled.map_err(|fault| Error::new(&self.identity.name, fault))?;
        }
        journal.confirm(self.base.as_ref()).map_err(|fault| Error::new(&self.identity.name, fault))
    }

    fn save_counters(&self) {
        let page = self.counters.encode(&self.layout.uuid);
        debug_assert_eq!(page.len(), PAGE);
        if let Err(fault) = self.base.put(&page, self.layout.counters_at()) {
            tracing::warn!("{}: counters were not saved: {fault:?}", self.identity.name);
        }
    }

    /// Finish, reset, and setting in place: one record, durable before it is acknowledged.
    fn change(&self, claim: &Claim<'_>, zone: ZoneId, what: Change) -> Result<(), Fault> {
        let reset = what == Change::Reset;
        let Some(journal) = self.journal.as_ref() else { return Err(Fault::ReadOnly) };
        let mut journal = lock(journal);
        journal.check()?;
        let record = if reset {
            lock(&self.dirty).remove(&zone.0);
            let life = lock(&claim.0.side).word.life.checked_add(1);
            let life = life.ok_or_else(|| Fault::InvalidInput("a band that was reset four billion times".into()))?;
            Record { band: zone.0, word: Word::empty(life), from: 0, proof: Proof::Durable }
        } else {
            let settled = self.settle(&mut journal, claim.0, what == Change::InPlace);
            settled.inspect_err(|_| self.give_up(&journal))?;
            lock(&self.dirty).remove(&zone.0);
            let mut side = lock(&claim.0.side);
            let bytes = (side.word.written - side.told) * u64::from(self.layout.block);
            let in_place = what == Change::InPlace;
            let written = if in_place { self.layout.capacity() } else { side.word.written };
            let word =
                Word { state: ZoneState::Full, finished: written < self.layout.capacity(), written, ..side.word };
            // What is written in place from here on no checksum knows.
            let checked = bytes <= self.checked_bytes && !in_place;
            let proof = if checked { Proof::Sum(side.sum) } else { Proof::Durable };
            let record = Record { band: zone.0, word, from: side.told, proof };
            side.told = word.written;
            drop(side);
            if !checked && (bytes > 0 || journal.carries()) {
                journal.sync(self.base.as_ref()).inspect_err(|_| self.give_up(&journal))?;
            }
            record
        };
        let done = self.write_batch(&mut journal, &[record], &[]);
        self.give_up(&journal);
        done?;
        // Whoever reads this moment reads the old life to its end.
        let _bytes = reset.then(|| claim.0.bytes.write().unwrap_or_else(PoisonError::into_inner));
        let mut side = lock(&claim.0.side);
        if reset {
            side.ahead.clear();
            (side.stuck, side.settled) = (false, false);
        }
        side.settled |= what == Change::InPlace;
        side.told = record.word.written;
        side.sum = table::seed(&self.layout, zone.0, record.word.life, side.told);
        self.set_word(zone, &mut side, record.word)
    }

    /// Brings home what is not in a band yet, before a record that does not carry it. Where the band is set in place, nothing that
    /// was staged may ever be written over it again.
    fn settle(&self, journal: &mut Journal, slot: &Slot, in_place: bool) -> Result<(), Fault> {
        if in_place {
            if lock(&self.staging).is_used() {
                self.commit(journal)?;
            }
            lock(&self.staging).forget_flushed(self.base.as_ref(), &self.layout)?;
        }
        self.bring_home(slot, true)
    }

    fn operate(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        let at = self.geometry.start(zone);
        let (claim, word) = self.claim(zone, at, tag)?;
        let fail = |fault| self.fault(fault, zone, at);
        let allowed = match op {
            ZoneOp::Open => word.state != ZoneState::Full,
            ZoneOp::Close => word.state.is_open() || word.state == ZoneState::Closed,
            ZoneOp::Finish | ZoneOp::Reset => true,
        };
        if !allowed {
            return Err(self.invalid(format!("{} of a zone that is {}", op.name(), word.state.name()), zone, at, tag));
        }
        match op {
            ZoneOp::Open | ZoneOp::Close => {
                let state = match op {
                    ZoneOp::Open => ZoneState::ExplicitlyOpen,
                    _ if word.written == 0 => ZoneState::Empty,
                    _ => ZoneState::Closed,
                };
                self.set_word(zone, &mut lock(&claim.0.side), Word { state, ..word }).map_err(fail)
            }
            ZoneOp::Finish => {
                self.change(&claim, zone, Change::Finish).map_err(fail)?;
                self.counters.count(tag.cause, Counter::Finishes, 1);
                Ok(())
            }
            ZoneOp::Reset => {
                self.change(&claim, zone, Change::Reset).map_err(fail)?;
                self.counters.count(tag.cause, Counter::Resets, 1);
                if word.written > 0 {
                    let end = (word.written * u64::from(self.layout.block)).next_multiple_of(PAGE as u64);
                    self.base.discard(self.place(at), end.min(self.layout.band));
                }
                Ok(())
            }
        }
    }
}

impl ZonedDevice for Banded {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        let slots = self.slots.iter().skip(from.0 as usize);
        let mut n = 0;
        for (zone, slot) in out.iter_mut().zip(slots) {
            let word = lock(&slot.side).word;
            let wp = match word.state {
                ZoneState::Conventional => None,
                ZoneState::Full => Some(self.layout.band),
                _ => Some(word.written * u64::from(self.layout.block)),
            };
            *zone = Zone { id: ZoneId(from.0 + n as u32), state: word.state, capacity: self.layout.band, wp };
            n += 1;
        }
        Ok(n)
    }

    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.check_command(buf, at, tag)?;
        let mut done = 0;
        while done < buf.len() {
            let here = at + done as u64;
            let (zone, offset) = (self.geometry.zone_of(here), here % self.layout.band);
            let n = (buf.len() - done).min((self.layout.band - offset) as usize);
            let slot = self.slot(zone, here, tag)?;
            let part = buf.get_mut(done..done + n).unwrap_or(&mut []);
            self.read_in_band(part, slot, offset, here).map_err(|fault| {
                let fault = match fault {
                    Fault::Media { len } => Fault::Media { len: done as u64 + len },
                    other => other,
                };
                self.fault(fault, zone, at)
            })?;
            done += n;
        }
        self.counters.count(tag.cause, Counter::Reads, 1);
        self.counters.count(tag.cause, Counter::BytesRead, buf.len() as u64);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.check_command(buf, at, tag)?;
        let (zone, offset) = (self.geometry.zone_of(at), at % self.layout.band);
        if self.access != Access::Write {
            return Err(self.fault(Fault::ReadOnly, zone, at));
        }
        if offset + buf.len() as u64 > self.layout.band {
            return Err(self.invalid("a write across zones".into(), zone, at, tag));
        }
        if zone.0 < self.layout.conventional {
            self.base.write(buf, self.place(at)).map_err(|fault| self.fault(fault, zone, at))?;
            self.counters.count(tag.cause, Counter::WritesConventional, 1);
            self.counters.count(tag.cause, Counter::BytesWrittenConventional, buf.len() as u64);
        } else {
            self.write_band(buf, zone, offset, at, tag)?;
        }
        self.counters.count(tag.cause, Counter::Writes, 1);
        self.counters.count(tag.cause, Counter::BytesWritten, buf.len() as u64);
        if !self.cache.load(Ordering::Relaxed) {
            self.flush_at(zone, at)?;
        }
        Ok(())
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        self.flush_at(ZoneId(0), 0).map_err(|error| Error { zone: None, ..error })?;
        self.counters.count(tag.cause, Counter::Flushes, 1);
        if self.flushes.fetch_add(1, Ordering::Relaxed) % FLUSHES_PER_COUNT == FLUSHES_PER_COUNT - 1 {
            self.save_counters();
        }
        Ok(())
    }

    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        let at = if zone.0 < self.layout.bands { self.geometry.start(zone) } else { 0 };
        self.slot(zone, at, tag)?;
        if zone.0 < self.layout.conventional {
            return Err(self.invalid(format!("{} of a conventional zone", op.name()), zone, at, tag));
        }
        if self.access != Access::Write {
            return Err(self.fault(Fault::ReadOnly, zone, at));
        }
        self.operate(op, zone, tag)
    }

    fn overwrites(&self) -> bool {
        true
    }

    fn set_in_place(&self, zone: ZoneId, tag: Tag) -> Result<()> {
        let at = if zone.0 < self.layout.bands { self.geometry.start(zone) } else { 0 };
        self.slot(zone, at, tag)?;
        if zone.0 < self.layout.conventional {
            return Err(self.invalid("a conventional zone, which is written in place anyway".into(), zone, at, tag));
        }
        if self.access != Access::Write {
            return Err(self.fault(Fault::ReadOnly, zone, at));
        }
        let (claim, _) = self.claim(zone, at, tag)?;
        self.change(&claim, zone, Change::InPlace).map_err(|fault| self.fault(fault, zone, at))?;
        self.counters.count(tag.cause, Counter::Finishes, 1);
        Ok(())
    }

    fn write_in_place(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.check_command(buf, at, tag)?;
        let (zone, offset) = (self.geometry.zone_of(at), at % self.layout.band);
        if self.access != Access::Write {
            return Err(self.fault(Fault::ReadOnly, zone, at));
        }
        if offset + buf.len() as u64 > self.layout.band {
            return Err(self.invalid("a write across zones".into(), zone, at, tag));
        }
        let _under_way = self.begin_in_place(zone, at, tag)?;
        self.base.write(buf, self.place(at)).map_err(|fault| self.fault(fault, zone, at))?;
        self.counters.count(tag.cause, Counter::Writes, 1);
        self.counters.count(tag.cause, Counter::BytesWritten, buf.len() as u64);
        if !self.cache.load(Ordering::Relaxed) {
            self.flush_at(zone, at)?;
        }
        Ok(())
    }

    fn write_cache(&self) -> Result<bool> {
        Ok(self.cache.load(Ordering::Relaxed))
    }

    /// As long as the drive is open: with `off`, each write is flushed before it is acknowledged.
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.cache.store(on, Ordering::SeqCst);
        if on || self.access != Access::Write { Ok(()) } else { self.flush(Tag::new(Cause::Other)) }
    }
}
