//! Cleaning: live bytes of zones that are mostly dead move together, so that whole zones become free.
//!
//! Only where files share zones can a zone be partly dead. When empty zones run short, one of these is the *victim*; which, and
//! when, is [`crate::policy::cleaning`]'s. Its pieces are copied to the cleaner's own zone, each behind a header that names its file; then
//! the copies are flushed, the journal says where the bytes are now, the journal is flushed, and only then the victim is free to
//! be reset. Readers that are under way see that the file's map has changed, and read again. Nothing is moved of files that are
//! being written there, or of zones that a deleted but open file still reads. (GearDB §3 and DESIGN §5 on order.) Logs move as well, where
//! nothing else makes a zone free; see [`relog`](crate::clean::relog).
//!
//! Whoever writes a table cleans ahead before it takes room: a few whole pieces, about as many bytes as were written since the
//! last time. So a victim may take several such steps, and between two of them anything may happen to it: what is left of it
//! is looked up anew each time. Whoever finds no zone left cleans whole zones until there is one. Steps are taken one at a time;
//! who finds one under way waits for its end and looks again, and no lock is held while bytes are copied.
//!
//! A crash at any moment leaves the bytes in one place or in both; the journal says which counts.

pub(crate) mod idle_pack;
pub(crate) mod relog;

use crate::file::core::{Core, MetaState};
use crate::kind::FileKind;
use crate::meta::{Extent, Place, Record, Serial};
use crate::policy::WAL_SPARE;
use crate::policy::cleaning::{ahead, least_dead, least_squeezed, low_water};
use crate::policy::pack;
use crate::policy::share::Class;
use crate::sync::lock;
use imbrex_device::{AlignedBuf, Cause, Code, Error, Priority, Result, Tag, ZoneId};
use imbrex_zones::{OpenZone, Urgency, ZoneHeader};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

pub(crate) const TAG: Tag = Tag { cause: Cause::Cleaning, priority: Priority::Normal };

/// Bytes that are moved at a time.
const PIECE: u64 = 1 << 20;

/// What was moved once: it has outlived its neighbours.
const MOVED: Class = Class::Table(6);

/// Records that are logged at a time.
const BATCH: usize = 32;

/// The cleaner, among the files that zones are reserved for.
const CLEANER: Serial = 4;

/// One step. However it ends, it lets go of all zones that it held, and the next one may begin.
pub(crate) struct Step<'a> {
    core: &'a Core,
    /// Zones of logs may be emptied, too.
    logs: bool,
    /// Tables move behind those of any class.
    any_class: bool,
    /// The zone that live bytes are moved to; then it is parked.
    pub(crate) into: Option<OpenZone>,
    /// As what.
    class: Class,
    /// At rest: what may be moved to, and the zones that were moved to before.
    rest: Option<Packing>,
    pub(crate) tag: Tag,
    /// Zones that were filled: pinned until it is recorded what stands there.
    filled: Vec<OpenZone>,
    /// The zone that is cleaned, and those from which bytes are moved besides: pinned until it is recorded that they are not needed.
    victims: Vec<u32>,
}

/// A step while nobody uses the drive, or the last resort of who finds no zone: pieces go where they fit, behind those of others.
struct Packing {
    /// An empty zone may be taken.
    empty: bool,
    /// An unmount does not wait for it. Not where somebody needs the room at once.
    stops: bool,
    /// Logs are moved, and not tables.
    logs: bool,
    others: Vec<(OpenZone, Class)>,
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.leave();
        self.let_go_of_victim();
        lock(&self.core.cleaner).end();
        self.core.cleaned.notify_all();
    }
}

impl Step<'_> {
    fn let_go_of_victim(&mut self) {
        self.victims.drain(..).for_each(|zone| self.core.tenant.unpin(ZoneId(zone)));
    }

    /// What was moved is recorded, or never will be: parks the zone that was moved to, and lets go of all that was written to.
    fn leave(&mut self) {
        let core = self.core;
        let state = lock(&core.meta);
        let others = self.rest.take().map_or(Vec::new(), |rest| rest.others);
        for (open, class) in self.into.take().map(|open| (open, self.class)).into_iter().chain(others) {
            if state.meta.zone_life(open.zone.0) == Some(open.life) {
                core.parked.park(open, class);
            }
            self.filled.push(open);
        }
        for open in self.filled.drain(..) {
            // All that stood there before may have been deleted meanwhile; what was moved there keeps the zone.
            if state.meta.zone_life(open.zone.0) == Some(open.life) {
                core.tenant.recall(open.zone);
            } else {
                // Perhaps nothing was ever recorded there, and nobody else gives it up.
                core.tenant.forget(open.zone, 0);
            }
            // Under the lock: from here on others may give it up.
            core.tenant.unpin(open.zone);
        }
    }

    /// The zone that was moved to is full, or nobody knows how full.
    pub(crate) fn leave_for_good(&mut self) {
        if let Some(open) = self.into.take() {
            self.core.tenant.finish_unused(open.zone);
            self.filled.push(open);
        }
    }
}

/// Bytes of a file that stand in the victim: extents that follow one another in the file; those of a table one by one.
pub(crate) struct Piece {
    pub(crate) serial: Serial,
    pub(crate) extents: Vec<Extent>,
    /// Of the file.
    pub(crate) name: String,
    /// When the file was created.
    pub(crate) created: u64,
}

/// A victim, what of it is to be moved now, and whether that is all.
type Chosen = (u32, Vec<Piece>, bool);

/// Bytes of the victim and their copy.
pub(crate) struct Moved {
    pub(crate) serial: Serial,
    /// The extents that they are from.
    pub(crate) old: Vec<Extent>,
    pub(crate) new: Extent,
}

impl Core {
    /// The right to clean; `None`: somebody has it.
    pub(crate) fn begin_step(&self) -> Option<Step<'_>> {
        let begins = lock(&self.cleaner).begin();
        begins.then(|| Step {
            core: self,
            logs: false,
            any_class: false,
            into: None,
            class: MOVED,
            rest: None,
            tag: TAG,
            filled: Vec::new(),
            victims: Vec::new(),
        })
    }

    /// Waits until the step that is under way is over, or zones have become free otherwise.
    fn wait_for_step(&self) {
        let cleaner = lock(&self.cleaner);
        if cleaner.is_at_work() {
            drop(self.cleaned.wait(cleaner).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Moves pieces of one zone until `budget` bytes are moved or the zone is empty. `least`: dead bytes that make a zone worth
    /// it, unless one is half empty already. False: there is none.
    ///
    /// # Errors
    /// `NoSpace` where even the reserve has no zone to move to.
    fn clean(&self, mut step: Step<'_>, least: u64, budget: u64) -> Result<bool> {
        match self.choose(&mut step, least, budget) {
            Some(chosen) => self.empty(step, chosen),
            None => Ok(false),
        }
    }

    /// Moves what was chosen.
    fn empty(&self, mut step: Step<'_>, (zone, pieces, all): Chosen) -> Result<bool> {
        let mut moved = Vec::new();
        let mut all = all;
        let mut full = Ok(true);
        for piece in pieces {
            let serial = piece.serial;
            match self.copy(&mut step, &piece, &mut moved) {
                // Only at rest. What is copied by halves is nobody's.
                Ok(false) => {
                    moved.retain(|m| m.serial != serial);
                    all = false;
                    break;
                }
                // What was copied stands where it is now: the zones that it filled are not lost.
                Err(error) if error.code() == Code::NoSpace => {
                    moved.retain(|m| m.serial != serial);
                    full = Err(error);
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, zone, "a zone cannot be cleaned");
                    lock(&self.cleaner).give_up(zone);
                    moved.retain(|m| m.serial != serial);
                    break;
                }
                Ok(true) => {}
            }
        }
        // The copies first, then where they are.
        self.volume.sync(step.tag)?;
        moved.chunks(BATCH).try_for_each(|batch| self.log_moved(batch))?;
        step.let_go_of_victim();
        // Only a whole zone is of use to anybody.
        if all {
            self.sync_journal()?;
        }
        tracing::debug!(zone, pieces = moved.len(), all, "cleaned");
        full
    }

    /// Bytes that cleaning could free.
    pub(crate) fn cleanable(&self) -> u64 {
        if !self.options.share {
            return 0;
        }
        let mut not = self.busy_zones();
        not.extend(lock(&self.cleaner).given_up());
        self.parked.look(|parking| {
            let logs = parking.zones_of_logs_to_spare(|zone| !not.contains(&zone)) * (self.zone_capacity - self.front);
            // What is dead between logs is no room for a table before the zone is free.
            not.extend(parking.zones_of_logs());
            let candidates = parking.candidates();
            logs + candidates.dead()
                - not.into_iter().filter_map(|zone| candidates.get(zone)).map(|c| c.dead).sum::<u64>()
        })
    }

    /// A step at rest, as far as `budget` goes. `None`: nothing is worth it; else the live bytes of the zone that was emptied.
    ///
    /// # Errors
    /// Those of the drive; `NoSpace` where something else took the room.
    pub(crate) fn pack_one(&self, budget: u64) -> Result<Option<u64>> {
        let Some(mut step) = self.begin_step() else { return Ok(None) };
        step.tag = TAG.at(Priority::Background);
        self.pack_step(step, budget, true, false)
    }

    /// Before somebody is told that there is no space: live bytes of tables move together, and those of logs, until a zone beside the
    /// reserve and `leave` others is free. A table cannot stand behind logs, nor a log behind tables. True: there is one now.
    pub(crate) fn pack_for_room(&self, leave: u32) -> Result<bool> {
        let (mut steps, mut logs) = (0, true);
        while self.cleans() && steps < MOST_AT_ONCE {
            let Some(step) = self.begin_step() else {
                self.wait_for_step();
                continue;
            };
            steps += 1;
            match self.pack_step(step, u64::MAX, false, logs) {
                Ok(None) if logs => logs = false,
                Ok(None) => return Ok(false),
                Err(error) if error.code() == Code::NoSpace => return Ok(false),
                Err(error) => return Err(error),
                Ok(Some(_)) if self.free_zones(leave, 1)?.0 > 0 => return Ok(true),
                Ok(Some(_)) => {}
            }
        }
        Ok(false)
    }

    /// Where zones are few, and none can be made free: moves one of tables although only a thirty-second of it or more is dead, which then is
    /// room behind what was moved. False: nothing is worth it, or nobody could move it.
    pub(crate) fn squeeze(&self) -> Result<bool> {
        if !self.cleans() || !self.has_few_zones() {
            return Ok(false);
        }
        let Some(mut step) = self.begin_step() else {
            self.wait_for_step();
            return Ok(true);
        };
        step.any_class = true;
        let least = least_squeezed(self.zone_capacity);
        let chosen = [4, 2, 1].into_iter().find_map(|n| self.choose(&mut step, n * least, u64::MAX));
        let Some(chosen) = chosen else { return Ok(false) };
        match self.empty(step, chosen) {
            Err(error) if error.code() == Code::NoSpace => Ok(false),
            other => other,
        }
    }

    /// `rest`: nobody waits for it. `logs`: of those, and not of tables.
    fn pack_step(&self, mut step: Step<'_>, budget: u64, rest: bool, logs: bool) -> Result<Option<u64>> {
        let (live, chosen) = {
            let state = lock(&self.meta);
            let partials = {
                let pinned = self.tenant.pinned();
                let cleaner = lock(&self.cleaner);
                self.parked.look(|parking| {
                    parking.partials(logs, |zone| !cleaner.has_given_up(zone) && !pinned.contains(&zone))
                })
            };
            let Some(pack) = pack::next(partials, self.zone_capacity, self.front, budget) else { return Ok(None) };
            let empty = matches!(pack, pack::Pack::Empty(_));
            if empty && !rest {
                return Ok(None);
            }
            step.rest = Some(Packing { empty, stops: rest, logs, others: Vec::new() });
            let victim = pack.victim();
            (victim.live, self.take_victim(&state, &mut step, victim.zone, u64::MAX))
        };
        match chosen {
            Some(chosen) => self.empty(step, chosen).map(|_| Some(live)),
            None => Ok(None),
        }
    }

    /// The zone that is half empty already, or else a new victim, which is pinned; what of it is to be moved now, and whether that
    /// is all.
    fn choose(&self, step: &mut Step<'_>, least: u64, budget: u64) -> Option<Chosen> {
        let state = lock(&self.meta);
        let meta = &state.meta;
        let zone = {
            let pinned = self.tenant.pinned();
            let mut cleaner = lock(&self.cleaner);
            self.parked.look(|parking| {
                let before = cleaner.take_victim().filter(|(zone, life)| meta.zone_life(*zone) == Some(*life));
                let may = |zone: u32| {
                    let is_free = !cleaner.has_given_up(zone) && !pinned.contains(&zone) && !parking.is_reserved(zone);
                    is_free && (step.logs || !parking.has_logs(zone))
                };
                let before = before.map(|(zone, _)| zone).filter(|zone| meta.movable(*zone).is_some() && may(*zone));
                // Files that came after a zone's last one are its age: clocks jump, and stand still in tests.
                before.or_else(|| Some(parking.candidates().victim(meta.next_serial(), least, may)?.zone))
            })?
        };
        self.take_victim(&state, step, zone, budget)
    }

    fn take_victim(&self, state: &MetaState, step: &mut Step<'_>, zone: u32, budget: u64) -> Option<Chosen> {
        let meta = &state.meta;
        self.tenant.pin(ZoneId(zone));
        step.victims.push(zone);
        // Nobody goes on there meanwhile. Room there may have been reserved since it was looked for.
        if !self.parked.claim(zone) {
            return None;
        }
        lock(&self.cleaner).goes_on_with(zone, meta.zone_life(zone)?);
        if meta.movable(zone).is_some_and(|movable| movable.framed) {
            let pieces = relog::runs(meta, zone);
            step.class = Class::Log;
            for other in pieces.iter().flat_map(|piece| &piece.extents).filter_map(|extent| extent.place.zone()) {
                if !step.victims.contains(&other.0) {
                    self.tenant.pin(ZoneId(other.0));
                    step.victims.push(other.0);
                }
            }
            return Some((zone, pieces, true));
        }
        let find = |p: crate::meta::Piece| {
            let inode = meta.inode(p.serial)?;
            let extent = inode.extents.iter().find(|e| e.logical == p.logical)?;
            let name = meta.name_of(p.serial).map_or(String::new(), |(_, name)| name.to_string());
            let piece = Piece { serial: p.serial, extents: vec![*extent], name, created: inode.created };
            (inode.kind == FileKind::Table).then_some(piece)
        };
        let mut pieces: Vec<Piece> = meta.pieces(zone).map_while(find).collect();
        let (mut before, mut last) = (0, None);
        // A file that was reopened stands there in several pieces behind one header: they go together.
        let now = pieces.iter().take_while(|piece| {
            let begin = before < budget || last == Some(piece.serial);
            (before, last) = (before + piece.extents.iter().map(|e| e.len).sum::<u64>(), Some(piece.serial));
            begin
        });
        let now = now.count();
        pieces.truncate(now);
        let all = meta.pieces(zone).nth(now).is_none();
        if now == 0 {
            // Of damage only: what is not a table's cannot be moved.
            lock(&self.cleaner).give_up(zone);
        }
        Some((zone, pieces, all))
    }

    /// Copies a piece, in as many stretches as it takes. False: somebody wants the drive back before that is done.
    pub(crate) fn copy(&self, step: &mut Step<'_>, piece: &Piece, moved: &mut Vec<Moved>) -> Result<bool> {
        if relog::is_framed(piece) {
            return self.copy_log(step, piece, moved).map(|()| true);
        }
        let Some(&old) = piece.extents.first() else { return Ok(true) };
        let Place::Raw { zone, offset, .. } = old.place else { return Ok(true) };
        let geometry = self.volume.geometry();
        let block = u64::from(geometry.block);
        let from = geometry.start(ZoneId(zone)) + offset;
        let mut done = 0;
        while done < old.len {
            // The copy keeps its distance from block boundaries, so that it is read and written in whole blocks.
            let skip = (from + done) % block;
            let need = self.front + (skip + old.len - done).next_multiple_of(block);
            let mut into = self.room(step, need)?;
            let room = into.capacity - into.at - self.front;
            let len = (old.len - done).min(room - skip);
            let header = ZoneHeader {
                volume: self.volume.uuid(),
                owner: self.tenant.owner(),
                kind: FileKind::Table as u8,
                file: piece.serial,
                life: into.life,
                logical: (old.logical + done).saturating_sub(skip),
                created: self.now(),
                zone: into.zone.0,
                mount: self.volume.mount() as u32,
                name: piece.name.clone(),
            };
            let mut first = AlignedBuf::zeroed(self.front as usize);
            header.encode_into(&mut first);
            let bytes = (from + done - skip, (skip + len).next_multiple_of(block));
            let written = self.write_piece(step, &mut into, &first, bytes);
            let at = match written {
                Ok(Some(at)) => at,
                Ok(None) => {
                    step.into = Some(into);
                    return Ok(false);
                }
                Err(error) => {
                    // What the drive took of it belongs to nobody, and how much that is is not known.
                    step.leave_for_good();
                    return Err(error);
                }
            };
            step.into = Some(into);
            let place = Place::Raw { zone: into.zone.0, life: into.life, offset: at + skip };
            let new = Extent { logical: old.logical + done, len, place };
            moved.push(Moved { serial: piece.serial, old: piece.extents.clone(), new });
            done += len;
        }
        Ok(true)
    }

    /// Writes a header and `len` bytes from address `from`; returns where in the zone the bytes begin. `None`: somebody wants the drive
    /// back before that is done.
    fn write_piece(
        &self,
        step: &Step<'_>,
        into: &mut OpenZone,
        header: &[u8],
        (from, len): (u64, u64),
    ) -> Result<Option<u64>> {
        self.volume.write_sequential(into, header, step.tag)?;
        let begin = into.at;
        let mut done = 0;
        while done < len {
            if step.rest.as_ref().is_some_and(|rest| rest.stops) && self.maintenance.is_over() {
                return Ok(None);
            }
            let n = (len - done).min(PIECE);
            let mut buf = AlignedBuf::zeroed(n as usize);
            self.volume.read(&mut buf, from + done, step.tag)?;
            self.volume.write_sequential(into, &buf, step.tag)?;
            done += n;
        }
        Ok(Some(begin))
    }

    /// At rest: the zone for a piece that takes `need` bytes with its header, from where those stand that were moved to before.
    fn room_at_rest(&self, step: &mut Step<'_>, need: u64) -> Result<OpenZone> {
        let (before, class) = (step.into.take(), step.class);
        let Some(rest) = &mut step.rest else { return Err(self.no_room()) };
        rest.others.extend(before.map(|open| (open, class)));
        let chosen = {
            // Until it is pinned, nobody gives it up.
            let _state = lock(&self.meta);
            let mine = || rest.others.iter().map(|(open, _)| (open.capacity - open.at, open.zone.0));
            let mut of_mine = None;
            let parked = self.parked.take_chosen(|parking| {
                let chosen = pack::destination(mine().chain(parking.rooms(rest.logs)), need, self.zone_capacity)?;
                of_mine = rest.others.iter().position(|(open, _)| open.zone.0 == chosen);
                of_mine.is_none().then_some(chosen)
            });
            match of_mine {
                Some(i) => Some(rest.others.swap_remove(i)),
                None => parked.inspect(|(open, _)| self.tenant.pin(open.zone)),
            }
        };
        let Some((open, class)) = chosen else {
            if !std::mem::take(&mut rest.empty) {
                return Err(self.no_room());
            }
            step.class = MOVED;
            return self.empty_room(step, Urgency::User);
        };
        step.class = class;
        step.into = Some(open);
        self.tenant.activate(open.zone, Some(self))?;
        self.before_frames(class)?;
        Ok(open)
    }

    fn no_room(&self) -> Error {
        Error::refused(Code::NoSpace, &self.volume.name(), "what was to be moved has no room any more")
    }

    /// The zone that bytes are moved to, with room for a header and more; at rest the one that suits `need` bytes best.
    pub(crate) fn room(&self, step: &mut Step<'_>, need: u64) -> Result<OpenZone> {
        if step.rest.is_some() {
            return self.room_at_rest(step, need);
        }
        let least = self.front + 2 * u64::from(self.volume.geometry().block);
        if let Some(open) = step.into.filter(|open| open.capacity - open.at >= least) {
            return Ok(open);
        }
        step.leave_for_good();
        let parked = {
            let _state = lock(&self.meta);
            // Logs of any kind move together: there are few zones.
            let any = step.any_class || step.class == Class::Log;
            // Whatever becomes of what stands there, it is not reset while it is written to.
            self.parked.take(CLEANER, step.class, least, any).inspect(|open| self.tenant.pin(open.zone))
        };
        let Some(open) = parked else { return self.empty_room(step, Urgency::Cleaning) };
        // From here on the step answers for it, whatever fails below.
        step.into = Some(open);
        self.tenant.activate(open.zone, Some(self))?;
        self.before_frames(step.class)?;
        Ok(open)
    }

    /// Before copies of logs stand behind others: where those end is durable, since frames alone would not tell the two apart.
    fn before_frames(&self, class: Class) -> Result<()> {
        if matches!(class, Class::Table(_)) { Ok(()) } else { self.sync_journal() }
    }

    /// An empty zone to move bytes to.
    fn empty_room(&self, step: &mut Step<'_>, urgency: Urgency) -> Result<OpenZone> {
        let zone = self.take_zone(urgency)?;
        self.tenant.pin(zone);
        let mut open = OpenZone { zone, life: self.tenant.new_life(), at: 0, capacity: self.zone_capacity };
        step.into = Some(open);
        self.tenant.activate(open.zone, Some(self))?;
        let mut out = [imbrex_device::Zone::EMPTY];
        self.volume.device().report(open.zone, &mut out)?;
        open.capacity = out[0].capacity;
        step.into = Some(open);
        Ok(open)
    }

    /// Says where moved bytes are now; those that were changed or deleted meanwhile are passed over.
    pub(crate) fn log_moved(&self, batch: &[Moved]) -> Result<()> {
        let mut state = lock(&self.meta);
        let mut records = Vec::new();
        for moved in batch {
            let Some(inode) = state.meta.inode(moved.serial) else { continue };
            let there = |old: Extent| {
                let is_it = |e: &Extent| e.part(old.logical, old.end()) == Some(old);
                inode.extents.iter().any(is_it)
            };
            if moved.old.iter().filter_map(|old| old.part(moved.new.logical, moved.new.end())).all(there) {
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
    pub(crate) fn free_zones(&self, leave: u32, enough: u32) -> Result<(u32, u32)> {
        let look = || {
            let counts = self.tenant.counts();
            (counts.free.saturating_sub(counts.reserve + counts.reservations + leave), counts.free + counts.leased)
        };
        // Looked at first: what is on its way there now is free only later.
        let coming = self.tenant.counts().forgotten > 0;
        let (free, zones) = look();
        if free >= enough || !coming {
            return Ok((free, zones));
        }
        self.sync_journal()?;
        Ok(look())
    }

    /// Cleans until a zone beside the reserve and `leave` others is free, or nothing more can be freed; then the journal is asked
    /// for what it could do without. True: there is one now.
    pub(crate) fn make_room(&self, leave: u32) -> Result<bool> {
        let mut steps = 0;
        while self.free_zones(leave, 1)?.0 == 0 {
            if steps < MOST_AT_ONCE && self.cleans() {
                // What another one makes free may be enough for both.
                let Some(mut step) = self.begin_step() else {
                    self.wait_for_step();
                    continue;
                };
                steps += 1;
                step.logs = true;
                match self.clean(step, least_dead(self.zone_capacity), u64::MAX) {
                    Ok(true) => continue,
                    Ok(false) => {}
                    // Whoever asks looks elsewhere, too.
                    Err(error) if error.code() == Code::NoSpace => {}
                    Err(error) => return Err(error),
                }
                steps = MOST_AT_ONCE;
            }
            if self.recovering.load(Ordering::Acquire) || !self.shrink_journal()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A table is about to take room: cleans as much ahead as the policy asks of its writer. Never fails: whoever then finds no
    /// zone learns why.
    pub(crate) fn clean_ahead(&self) {
        if !self.cleans() {
            return;
        }
        // Another one cleans: that is enough.
        let Some(step) = self.begin_step() else { return };
        let written = self.tables_written.swap(0, Ordering::AcqRel);
        let clean = || {
            let counts = self.tenant.counts();
            let (free, zones) = self.free_zones(WAL_SPARE, low_water(counts.free + counts.leased))?;
            match ahead(free, zones, self.zone_capacity, written) {
                Some(ahead) => self.clean(step, ahead.least, ahead.budget).map(drop),
                None => Ok(()),
            }
        };
        if let Err(error) = clean() {
            tracing::debug!(%error, "nothing could be cleaned ahead");
        }
    }
}

/// Zones that one request may have to clean before it is told that there is no space.
const MOST_AT_ONCE: usize = 16;
