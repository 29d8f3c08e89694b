//! Cleaning: live bytes of zones that are mostly dead move together, so that whole zones become free.
//!
//! Only where files share zones can a zone be partly dead. When empty zones run short, one of these is the *victim*; which, and
//! when, is [`crate::policy`]'s. Its pieces are copied to the cleaner's own zone, each behind a header that names its file; then
//! the copies are flushed, the journal says where the bytes are now, the journal is flushed, and only then the victim is free to
//! be reset. Readers that are under way see that the file's map has changed, and read again. Nothing is moved of files that are
//! being written there, of logs (frames name their place), or of zones that a deleted but open file still reads. (GearDB §3 and
//! DESIGN §5 on order.)
//!
//! Whoever writes a table cleans ahead before it takes room: a few whole pieces, about as many bytes as were written since the
//! last time. So a victim may take several such steps, and between two of them anything may happen to it: what is left of it
//! is looked up anew each time. Whoever finds no zone left cleans whole zones until there is one.
//!
//! A crash at any moment leaves the bytes in one place or in both; the journal says which counts.

use crate::core::Core;
use crate::error::{Code, Result};
use crate::file::lock;
use crate::fs::WAL_SPARE;
use crate::kind::FileKind;
use crate::meta::{Extent, Meta, Place, Record, Serial};
use crate::policy::{Candidate, ahead, least_dead, low_water, victim};
use crate::share::Class;
use imbrex_device::{AlignedBuf, Cause, Priority, Tag, ZoneId};
use imbrex_zones::{OpenZone, Urgency, ZoneHeader};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

const TAG: Tag = Tag { cause: Cause::Cleaning, priority: Priority::Normal };

/// Bytes that are moved at a time.
const PIECE: u64 = 1 << 20;

/// Hint of what was moved once: it has outlived its neighbours.
const MOVED: u8 = 6;

/// Records that are logged at a time.
const BATCH: usize = 32;

/// The cleaner, among the files that zones are promised to.
const CLEANER: Serial = 4;

/// What the cleaner keeps between two steps.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    /// The zone that live bytes are moved to, during a step; then it is parked.
    into: Option<OpenZone>,
    /// Zones that were filled during a step: pinned until it is recorded what stands there.
    filled: Vec<OpenZone>,
    /// The zone and its life that the last step has not emptied.
    victim: Option<(u32, u64)>,
    /// Zones with bytes that cannot be read: they stay as they are until the next mount.
    unreadable: BTreeSet<u32>,
}

/// Live bytes of a zone, if all that stands there can be moved: closed pieces of tables.
pub(crate) fn live_bytes(meta: &Meta, zone: u32, front: u64, block: u64) -> Option<u64> {
    let mut live = 0;
    for piece in meta.pieces(zone) {
        let inode = meta.inode(piece.serial)?;
        let extent = inode.extents.iter().find(|e| e.logical == piece.logical)?;
        match extent.place {
            Place::Raw { offset, .. } if inode.kind == FileKind::Table && !extent.is_open() => {
                live += front + (offset % block + extent.len).next_multiple_of(block);
            }
            _ => return None,
        }
    }
    Some(live)
}

/// A piece of the victim and its copy.
pub(crate) struct Moved {
    serial: Serial,
    old: Extent,
    new: Extent,
}

impl Core {
    /// Moves pieces of one zone until `budget` bytes are moved or the zone is empty. `least`: dead bytes that make a zone worth
    /// it, unless one is half empty already. False: there is none.
    ///
    /// # Errors
    /// `NoSpace` where even the reserve has no zone to move to.
    fn clean(&self, cleaner: &mut Cleaner, least: u64, budget: u64) -> Result<bool> {
        let block = u64::from(self.volume.geometry().block);
        let Some(zone) = self.choose(cleaner, least, block) else { return Ok(false) };
        let (pieces, all) = {
            let state = lock(&self.meta);
            // Nobody goes on there meanwhile.
            lock(&self.parking).forget(zone);
            let Some(life) = state.meta.zone_life(zone) else { return Ok(true) };
            cleaner.victim = Some((zone, life));
            let find = |p: crate::meta::Piece| {
                let inode = state.meta.inode(p.serial)?;
                let extent = inode.extents.iter().find(|e| e.logical == p.logical)?;
                let name = state.meta.name_of(p.serial).map_or(String::new(), |(_, name)| name.to_string());
                Some((p.serial, *extent, name))
            };
            let mut pieces: Vec<_> = state.meta.pieces(zone).filter_map(find).collect();
            let (mut before, mut last) = (0, None);
            // A file that was reopened stands there in several pieces behind one header: they go together.
            let step = pieces.iter().take_while(|(serial, extent, _)| {
                let begin = before < budget || last == Some(*serial);
                (before, last) = (before + extent.len, Some(*serial));
                begin
            });
            let (step, all) = (step.count(), pieces.len());
            pieces.truncate(step);
            (pieces, step == all)
        };
        let mut moved = Vec::new();
        let mut full = Ok(true);
        for (serial, extent, name) in pieces {
            match self.copy(cleaner, serial, extent, &name, &mut moved) {
                // What was copied stands where it is now: the zones that it filled are not lost.
                Err(error) if error.code() == Code::NoSpace => {
                    moved.retain(|m| m.serial != serial);
                    full = Err(error);
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, zone, "a zone cannot be cleaned");
                    cleaner.unreadable.insert(zone);
                    moved.retain(|m| m.serial != serial);
                    break;
                }
                Ok(()) => {}
            }
        }
        // The copies first, then where they are.
        let done = (|| {
            self.volume.sync(TAG)?;
            moved.chunks(BATCH).try_for_each(|batch| self.log_moved(batch))?;
            // Only a whole zone is of use to anybody.
            if all { self.sync_journal() } else { Ok(()) }
        })();
        self.leave(cleaner);
        done?;
        tracing::debug!(zone, pieces = moved.len(), all, "cleaned");
        full
    }

    /// Bytes that cleaning could free.
    pub(crate) fn cleanable(&self) -> u64 {
        if !self.options.share {
            return 0;
        }
        let block = u64::from(self.volume.geometry().block);
        let state = lock(&self.meta);
        let least = least_dead(self.zone_capacity);
        self.candidates(&state.meta, block).filter(|c| c.dead >= least).map(|c| c.dead).sum()
    }

    /// Every zone that could be cleaned now.
    fn candidates<'a>(&'a self, meta: &'a Meta, block: u64) -> impl Iterator<Item = Candidate> + 'a {
        let busy = self.busy_zones();
        let written = lock(&self.parking).written();
        // Files that came after a zone's last one are its age: clocks jump, and stand still in tests.
        let next = meta.next_serial();
        meta.zones().map(|(zone, _)| zone).filter(move |zone| !busy.contains(zone)).filter_map(move |zone| {
            let live = live_bytes(meta, zone, self.front, block)?;
            let written = written.get(&zone).copied().unwrap_or(self.zone_capacity);
            let youngest = meta.pieces(zone).map(|p| p.serial).max().unwrap_or(next);
            Some(Candidate { zone, live, dead: written.saturating_sub(live), age: next.saturating_sub(youngest) })
        })
    }

    /// The zone that is half empty already, or else a new victim.
    fn choose(&self, cleaner: &mut Cleaner, least: u64, block: u64) -> Option<u32> {
        let state = lock(&self.meta);
        let readable = |zone: u32, cleaner: &Cleaner| !cleaner.unreadable.contains(&zone);
        if let Some((zone, life)) = cleaner.victim.take() {
            let same = state.meta.zone_life(zone) == Some(life) && readable(zone, cleaner);
            if same && live_bytes(&state.meta, zone, self.front, block).is_some() && !self.busy_zones().contains(&zone)
            {
                return Some(zone);
            }
        }
        let candidates = self.candidates(&state.meta, block).filter(|c| readable(c.zone, cleaner));
        victim(candidates, least).map(|c| c.zone)
    }

    /// Copies a piece, in as many stretches as it takes.
    pub(crate) fn copy(
        &self,
        cleaner: &mut Cleaner,
        serial: Serial,
        old: Extent,
        name: &str,
        moved: &mut Vec<Moved>,
    ) -> Result<()> {
        let Place::Raw { zone, life, offset } = old.place else { return Ok(()) };
        let geometry = self.volume.geometry();
        let block = u64::from(geometry.block);
        let from = geometry.start(ZoneId(zone)) + offset;
        let mut done = 0;
        while done < old.len {
            let mut into = self.room(cleaner)?;
            // The copy keeps its distance from block boundaries, so that it is read and written in whole blocks.
            let skip = (from + done) % block;
            let room = into.capacity - into.at - self.front;
            let len = (old.len - done).min(room - skip);
            let header = ZoneHeader {
                volume: self.volume.uuid(),
                owner: self.tenant.owner(),
                kind: FileKind::Table as u8,
                file: serial,
                life: into.life,
                logical: (old.logical + done).saturating_sub(skip),
                created: self.now(),
                zone: into.zone.0,
                mount: self.volume.mount() as u32,
                name: name.to_owned(),
            };
            let mut first = AlignedBuf::zeroed(self.front as usize);
            header.encode_into(&mut first);
            let written = self.write_piece(&mut into, &first, from + done - skip, (skip + len).next_multiple_of(block));
            let at = match written {
                Ok(at) => at,
                Err(error) => {
                    // What the drive took of it belongs to nobody, and how much that is is not known.
                    self.leave_for_good(cleaner);
                    return Err(error);
                }
            };
            cleaner.into = Some(into);
            let place = Place::Raw { zone: into.zone.0, life: into.life, offset: at + skip };
            let old_place = Place::Raw { zone, life, offset: offset + done };
            moved.push(Moved {
                serial,
                old: Extent { logical: old.logical + done, len, place: old_place },
                new: Extent { logical: old.logical + done, len, place },
            });
            done += len;
        }
        Ok(())
    }

    /// Writes a header and `len` bytes from address `from`; returns where in the zone the bytes begin.
    fn write_piece(&self, into: &mut OpenZone, header: &[u8], from: u64, len: u64) -> Result<u64> {
        self.volume.write_sequential(into, header, TAG)?;
        let begin = into.at;
        let mut done = 0;
        while done < len {
            let n = (len - done).min(PIECE);
            let mut buf = AlignedBuf::zeroed(n as usize);
            self.volume.read(&mut buf, from + done, TAG)?;
            self.volume.write_sequential(into, &buf, TAG)?;
            done += n;
        }
        Ok(begin)
    }

    /// The zone that bytes are moved to, with room for a header and more.
    pub(crate) fn room(&self, cleaner: &mut Cleaner) -> Result<OpenZone> {
        let least = self.front + 2 * u64::from(self.volume.geometry().block);
        if let Some(open) = cleaner.into.filter(|open| open.capacity - open.at >= least) {
            return Ok(open);
        }
        self.leave_for_good(cleaner);
        let parked = {
            let _state = lock(&self.meta);
            let taken = {
                let mut parking = lock(&self.parking);
                let taken = parking.take(CLEANER, Class::Table(MOVED), least, false);
                taken.inspect(|open| self.tenant.taken(open.zone))
            };
            // Whatever becomes of what stands there, it is not reset while it is written to.
            taken.inspect(|open| self.pin(open.zone.0))
        };
        let mut open = match parked {
            Some(open) => open,
            None => {
                let zone = self.take_zone(Urgency::Cleaning)?;
                self.pin(zone.0);
                OpenZone { zone, life: self.tenant.new_life(), at: 0, capacity: self.zone_capacity }
            }
        };
        // From here on the step answers for it, whatever fails below.
        cleaner.into = Some(open);
        self.tenant.activate(open.zone)?;
        if parked.is_none() {
            let mut out = [imbrex_device::Zone::EMPTY];
            self.volume.device().report(open.zone, &mut out)?;
            open.capacity = out[0].capacity;
            cleaner.into = Some(open);
        }
        Ok(open)
    }

    /// The step is over, and what was moved is recorded: parks the cleaner's zone, and lets go of all it wrote to.
    pub(crate) fn leave(&self, cleaner: &mut Cleaner) {
        let state = lock(&self.meta);
        if let Some(open) = cleaner.into.take() {
            if state.meta.zone_life(open.zone.0) == Some(open.life) {
                self.keep_zone(open, Class::Table(MOVED));
            }
            cleaner.filled.push(open);
        }
        for open in cleaner.filled.drain(..) {
            // All that stood there before may have been deleted meanwhile; what was moved there keeps the zone.
            if state.meta.zone_life(open.zone.0) == Some(open.life) {
                lock(&self.pins).used_again(open.zone.0);
            }
            // Under the lock: from here on others may give it up. One that an open file without a name holds, too, is that one's.
            let alone = self.is_pinned_once(open.zone.0);
            let freed = self.unpin(&[open.zone.0]);
            // Nothing was ever recorded there: nobody else will give it up.
            if alone && !freed && state.meta.zone_life(open.zone.0) != Some(open.life) {
                self.tenant.release(open.zone);
            }
        }
    }

    /// The cleaner's zone is full, or nobody knows how full.
    fn leave_for_good(&self, cleaner: &mut Cleaner) {
        if let Some(open) = cleaner.into.take() {
            self.tenant.finish(open.zone);
            cleaner.filled.push(open);
        }
    }

    /// Says where moved bytes are now; those that were changed or deleted meanwhile are passed over.
    pub(crate) fn log_moved(&self, batch: &[Moved]) -> Result<()> {
        let mut state = lock(&self.meta);
        let mut records = Vec::new();
        for moved in batch {
            let there = |e: &Extent| {
                let whole = e.logical <= moved.old.logical && moved.old.end() <= e.end();
                whole && e.part(moved.old.logical, moved.old.end()) == Some(moved.old)
            };
            if state.meta.inode(moved.serial).is_some_and(|i| i.extents.iter().any(there)) {
                let Extent { logical, len, place } = moved.new;
                records.push((moved.serial, Record::Remap { serial: moved.serial, logical, len, place }));
            }
        }
        for (serial, record) in records {
            let lsn = self.log(&mut state, "cleaning", &[record])?;
            let Some(file) = self.open_file(&state, serial) else { continue };
            file.state.lsn.fetch_max(lsn, Ordering::AcqRel);
            if let Some(inode) = state.meta.inode(serial) {
                let mut map = file.state.map_mut();
                map.version += 1;
                map.extents = inode.extents.clone();
            }
        }
        Ok(())
    }

    /// Whether files share zones, and zones may be cleaned now: not from within (the cleaner writes no file), and a mount cleans
    /// nothing.
    fn cleans(&self) -> bool {
        self.options.share && !self.recovering.load(Ordering::Acquire)
    }

    /// Zones that are free for users beside `leave` others, and all zones. Those that only wait for the journal are made free
    /// first, where there are not `enough`.
    fn free_zones(&self, leave: u32, enough: u32) -> Result<(u32, u32)> {
        let look = || {
            let counts = self.tenant.counts();
            (counts.free.saturating_sub(counts.reserve + counts.promised + leave), counts.free + counts.leased)
        };
        let (free, zones) = look();
        if free >= enough || lock(&self.pending).is_empty() {
            return Ok((free, zones));
        }
        self.sync_journal()?;
        Ok(look())
    }

    /// Cleans until a zone beside the reserve and `leave` others is free, or nothing more can be freed.
    pub(crate) fn make_room(&self, leave: u32) -> Result<()> {
        if !self.cleans() {
            return Ok(());
        }
        for _ in 0..MOST_AT_ONCE {
            if self.free_zones(leave, 1)?.0 > 0 {
                break;
            }
            match self.clean(&mut lock(&self.cleaner), least_dead(self.zone_capacity), u64::MAX) {
                Ok(true) => {}
                Ok(false) => break,
                // Whoever asks looks elsewhere, too.
                Err(error) if error.code() == Code::NoSpace => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A table is about to take room: cleans as much ahead as the policy asks of its writer. Never fails: whoever then finds no
    /// zone learns why.
    pub(crate) fn clean_ahead(&self) {
        // Another one cleans: that is enough.
        let Ok(mut cleaner) = self.cleaner.try_lock() else { return };
        if !self.cleans() {
            return;
        }
        let written = self.tables_written.swap(0, Ordering::AcqRel);
        let mut step = || {
            let counts = self.tenant.counts();
            let (free, zones) = self.free_zones(WAL_SPARE, low_water(counts.free + counts.leased))?;
            match ahead(free, zones, self.zone_capacity, written) {
                Some(ahead) => self.clean(&mut cleaner, ahead.least, ahead.budget).map(drop),
                None => Ok(()),
            }
        };
        if let Err(error) = step() {
            tracing::debug!(%error, "nothing could be cleaned ahead");
        }
    }
}

/// Zones that one request may have to clean before it is told that there is no space.
const MOST_AT_ONCE: usize = 16;
