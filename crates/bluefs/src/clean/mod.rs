//! Cleaning: live bytes of zones that are mostly dead move together, so that whole zones become free.
//!
//! Only where files share zones can a zone be partly dead. When empty zones run short, one of these is the *victim*; which, and
//! when, is [`crate::policy::cleaning`]'s. The [cleaner](imbrex_zones::clean) of `zones` takes the steps; here stands what bluefs does in
//! each. Its pieces are copied behind headers that name their files, and the copies are flushed. Then the journal says where the bytes are now, and
//! is flushed. Only then the victim is free to be reset. Readers that are under way see that the file's map has changed, and
//! read again. Nothing is moved of files that are being written there, or of zones that a deleted but open file still reads. (GearDB §3 and
//! DESIGN §5 on order.) Logs move as well, where nothing else makes a zone free; see [`relog`](crate::clean::relog).
//!
//! Whoever writes a table cleans ahead before it takes room: a few whole pieces, about as many bytes as were written since the
//! last time. So a victim may take several such steps, and between two of them anything may happen to it: what is left of it
//! is looked up anew each time. Whoever finds no zone left cleans whole zones until there is one.
//!
//! A crash at any moment leaves the bytes in one place or in both; the journal says which counts.

pub(crate) mod idle_pack;
pub(crate) mod relog;

use crate::cleaning::CLEANER;
use crate::file::core::Core;
use crate::kind::FileKind;
use crate::meta::{Extent, Meta, Place, Record, Serial};
use crate::policy::WAL_SPARE;
use crate::policy::cleaning::{ahead, least_dead, least_squeezed, low_water};
use crate::policy::pack;
use crate::policy::share::Class;
use crate::sync::lock;
use imbrex_device::{AlignedBuf, Cause, Code, Error, Priority, Result, Tag, ZoneId};
use imbrex_zones::clean::{Chosen, Cleaned, Failed, Goal, Residents, Search, Victim};
use imbrex_zones::{OpenZone, Urgency, ZoneHeader};
use std::cell::RefCell;
use std::sync::atomic::Ordering;

pub(crate) const TAG: Tag = Tag { cause: Cause::Cleaning, priority: Priority::Normal };

/// Bytes that are moved at a time.
const PIECE: u64 = 1 << 20;

/// What was moved once: it has outlived its neighbours.
const MOVED: Class = Class::Table(6);

/// Records that are logged at a time.
const BATCH: usize = 32;

/// Zones that one request may have to clean before it is told that there is no space.
const MOST_AT_ONCE: usize = 16;

/// What is to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    /// Pieces of so many bytes of a zone with so many dead ones. `logs`: of a zone of logs, too.
    Dead { least: u64, budget: u64, logs: bool },
    /// A zone of tables of which only little is dead, behind tables of any class.
    Squeezed,
    /// A zone of tables, or of `logs`, with at most so many live bytes, into room behind others. `rest`: nobody waits for it.
    Packed { budget: u64, rest: bool, logs: bool },
}

/// What bluefs does in a step of the cleaner.
pub(crate) struct Moving<'a> {
    core: &'a Core,
    wish: Wish,
    pub(crate) step: RefCell<Step>,
}

/// Zones of a step.
#[derive(Default)]
pub(crate) struct Step {
    /// The zone that live bytes are moved to; then it is parked as of this class.
    into: Option<(OpenZone, Class)>,
    /// Packing: zones that were moved to before, and have room.
    others: Vec<(OpenZone, Class)>,
    /// Zones that were filled: pinned until it is recorded what stands there.
    filled: Vec<OpenZone>,
    /// Zones from which bytes of logs are moved beside the victim: pinned until it is recorded that they are not needed.
    victims: Vec<u32>,
    /// Logs are moved.
    framed: bool,
    /// An empty zone may be taken for packing.
    empty: bool,
    /// There is no room for what was to be moved, or somebody wants the drive back.
    over: bool,
    /// Bytes of the victim could not be read.
    unread: bool,
    /// Bytes that were written, headers and padding included.
    written: u64,
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

/// Bytes of the victim and their copy.
pub(crate) struct Moved {
    pub(crate) serial: Serial,
    /// The extents that they are from.
    pub(crate) old: Vec<Extent>,
    pub(crate) new: Extent,
}

impl Residents for Moving<'_> {
    type Piece = Piece;
    type Copy = Moved;
    type Error = Error;

    fn next_victim(&self, search: &Search<'_>) -> Option<Chosen> {
        let mut step = self.step.borrow_mut();
        if step.over {
            return None;
        }
        let core = self.core;
        // Whoever goes on in a zone takes it and pins it under this lock. So nobody does in the one that is chosen here.
        let state = lock(&core.meta);
        let (pinned, given_up) = (core.tenant.pinned(), core.cleaning.given_up());
        let may = |zone: u32| search.may(zone) && !pinned.contains(&zone) && !given_up.contains(&zone);
        // Files that came after a zone's last one are its age: clocks jump, and stand still in tests.
        let next = state.meta.next_serial();
        let zone = core.parked.claim(|parking| {
            let dead = |least: u64, logs: bool| {
                let may = |zone: u32| may(zone) && !parking.is_reserved(zone) && (logs || !parking.has_logs(zone));
                parking.candidates().victim(next, least, may).map(|candidate| candidate.zone)
            };
            match self.wish {
                Wish::Dead { least, logs, .. } => dead(least, logs),
                Wish::Squeezed => {
                    let least = least_squeezed(core.zone_capacity);
                    [4, 2, 1].into_iter().find_map(|n| dead(n * least, false))
                }
                Wish::Packed { budget, rest, logs } => {
                    let partials = parking.partials(logs, may);
                    let pack = pack::next(partials, core.zone_capacity, core.front, budget)?;
                    step.empty = matches!(pack, pack::Pack::Empty(_));
                    (rest || !step.empty).then(|| pack.victim().zone)
                }
            }
        })?;
        Some(Chosen { zone, life: state.meta.zone_life(zone)?, dying: false })
    }

    fn residents(&self, victim: &Victim) -> Vec<Piece> {
        let state = lock(&self.core.meta);
        let (meta, zone) = (&state.meta, victim.zone);
        let movable = meta.movable(zone).filter(|_| meta.zone_life(zone) == Some(victim.life));
        let Some(movable) = movable else { return Vec::new() };
        let mut step = self.step.borrow_mut();
        step.framed = movable.framed;
        if movable.framed {
            let pieces = relog::runs(meta, zone);
            for (other, _) in pieces.iter().flat_map(|piece| &piece.extents).filter_map(|extent| extent.place.zone()) {
                self.core.tenant.pin(ZoneId(other));
                step.victims.push(other);
            }
            return pieces;
        }
        let budget = if let Wish::Dead { budget, .. } = self.wish { budget } else { u64::MAX };
        let pieces = tables(meta, zone, budget);
        if pieces.is_empty() {
            // Of damage only: what is not a table's cannot be moved.
            self.core.cleaning.give_up(zone);
        }
        pieces
    }

    fn is_empty(&self, victim: &Victim) -> bool {
        lock(&self.core.meta).meta.zone_life(victim.zone) != Some(victim.life)
    }

    fn copy(&self, piece: &Piece, copies: &mut Vec<Moved>) -> Result<(), Failed<Error>> {
        let mut step = self.step.borrow_mut();
        if step.over {
            return Ok(());
        }
        let copied = self.copy_piece(&mut step, piece, copies);
        if !matches!(copied, Ok(true)) {
            // What is copied by halves is nobody's.
            copies.retain(|copy| copy.serial != piece.serial);
        }
        match copied {
            Err(error) if error.code() != Code::NoSpace => Err(Failed::Unread(error)),
            copied => {
                // What was copied before stands where it is now: the zones that it filled are not lost.
                step.over = !matches!(copied, Ok(true));
                Ok(())
            }
        }
    }

    fn flush(&self) -> Result<()> {
        self.core.volume.sync(self.tag()).map(drop)
    }

    fn switch(&self, copies: Vec<Moved>) -> Result<u64> {
        copies.chunks(BATCH).map(|batch| self.core.log_moved(batch)).sum()
    }

    fn commit(&self) -> Result<()> {
        self.core.sync_journal()
    }

    /// What was moved is recorded, or never will be: parks the zones that were moved to, and lets go of all.
    fn settle(&self) {
        let (core, mut step) = (self.core, self.step.borrow_mut());
        step.victims.drain(..).for_each(|zone| core.tenant.unpin(ZoneId(zone)));
        let state = lock(&core.meta);
        let of_now = |open: &OpenZone| state.meta.zone_life(open.zone.0) == Some(open.life);
        let rooms: Vec<_> = step.into.take().into_iter().chain(std::mem::take(&mut step.others)).collect();
        let filled = step.filled.drain(..).chain(rooms.iter().map(|(open, _)| *open));
        for open in filled {
            // All that stood there before may have been deleted meanwhile; what was moved there keeps the zone.
            if of_now(&open) {
                core.tenant.recall(open.zone);
            } else {
                // Perhaps nothing was ever recorded there, and nobody else gives it up.
                core.tenant.forget(open.zone, 0);
            }
            // Under the lock: from here on others may give it up.
            core.tenant.unpin(open.zone);
        }
        rooms.into_iter().filter(|(open, _)| of_now(open)).for_each(|(open, class)| core.parked.park(open, class));
    }

    /// What cannot be read stays as it is until the next mount. Where something else failed, the victim is as good as before.
    fn note_unread(&self, zone: u32, _: bool) -> bool {
        if std::mem::take(&mut self.step.borrow_mut().unread) {
            self.core.cleaning.give_up(zone);
        }
        true
    }
}

/// Pieces of tables in a zone, of about so many bytes.
fn tables(meta: &Meta, zone: u32, budget: u64) -> Vec<Piece> {
    let find = |p: crate::meta::Piece| {
        let inode = meta.inode(p.serial)?;
        let extent = inode.extents.iter().find(|e| e.logical == p.logical)?;
        let name = meta.name_of(p.serial).map_or(String::new(), |(_, name)| name.to_string());
        let piece = Piece { serial: p.serial, extents: vec![*extent], name, created: inode.created };
        (inode.kind == FileKind::Table).then_some(piece)
    };
    let (mut before, mut last) = (0, None);
    let pieces = meta.pieces(zone).map_while(find).take_while(|piece| {
        // A file that was reopened stands there in several pieces behind one header: they go together.
        let begin = before < budget || last == Some(piece.serial);
        (before, last) = (before + piece.extents.iter().map(|e| e.len).sum::<u64>(), Some(piece.serial));
        begin
    });
    pieces.collect()
}

impl<'a> Moving<'a> {
    pub(crate) fn new(core: &'a Core, wish: Wish) -> Moving<'a> {
        Moving { core, wish, step: RefCell::default() }
    }

    fn tag(&self) -> Tag {
        if self.is_rest() { TAG.at(Priority::Background) } else { TAG }
    }

    fn is_rest(&self) -> bool {
        matches!(self.wish, Wish::Packed { rest: true, .. })
    }

    /// Copies a piece, in as many stretches as it takes. False: somebody wants the drive back before that is done.
    fn copy_piece(&self, step: &mut Step, piece: &Piece, moved: &mut Vec<Moved>) -> Result<bool> {
        if step.framed {
            return self.copy_log(step, piece, moved).map(|()| true);
        }
        let Some(&old) = piece.extents.first() else { return Ok(true) };
        let Place::Raw { zone, offset, .. } = old.place else { return Ok(true) };
        let core = self.core;
        let geometry = core.volume.geometry();
        let block = u64::from(geometry.block);
        let from = geometry.start(ZoneId(zone)) + offset;
        let mut done = 0;
        while done < old.len {
            // The copy keeps its distance from block boundaries, so that it is read and written in whole blocks.
            let skip = (from + done) % block;
            let mut into = self.room(step, core.front + (skip + old.len - done).next_multiple_of(block))?;
            let len = (old.len - done).min(into.capacity - into.at - core.front - skip);
            let logical = (old.logical + done).saturating_sub(skip);
            let front = self.front(piece, FileKind::Table, &into, logical, core.now());
            let bytes = (from + done - skip, (skip + len).next_multiple_of(block));
            let written = self.write_piece(step, &mut into, &front, bytes);
            let Some(at) = self.went_on(step, into, written)? else { return Ok(false) };
            let place = Place::Raw { zone: into.zone.0, life: into.life, offset: at + skip };
            let new = Extent { logical: old.logical + done, len, place };
            moved.push(Moved { serial: piece.serial, old: piece.extents.clone(), new });
            done += len;
        }
        Ok(true)
    }

    /// The block in front of a copy.
    fn front(&self, piece: &Piece, kind: FileKind, into: &OpenZone, logical: u64, created: u64) -> AlignedBuf {
        let core = self.core;
        let (kind, file, name) = (kind as u8, piece.serial, piece.name.clone());
        let header = ZoneHeader { kind, file, logical, created, name, ..core.tenant.header(into.zone, into.life) };
        let mut front = AlignedBuf::zeroed(core.front as usize);
        header.encode_into(&mut front);
        front
    }

    /// Something was written to the zone that bytes are moved to.
    fn went_on<T>(&self, step: &mut Step, into: OpenZone, written: Result<T>) -> Result<T> {
        match (&written, &mut step.into) {
            (Ok(_), Some((open, _))) => {
                step.written += into.at - open.at;
                *open = into;
            }
            // What the drive took of it belongs to nobody, and how much that is is not known.
            _ => self.leave_for_good(step),
        }
        written
    }

    /// The zone that was moved to is full, or nobody knows how full.
    fn leave_for_good(&self, step: &mut Step) {
        if let Some((open, _)) = step.into.take() {
            self.core.tenant.finish_unused(open.zone);
            step.filled.push(open);
        }
    }

    /// Writes a header and `len` bytes from address `from`; returns where in the zone the bytes begin. `None`: somebody wants the drive
    /// back before that is done.
    fn write_piece(
        &self,
        step: &mut Step,
        into: &mut OpenZone,
        header: &[u8],
        (from, len): (u64, u64),
    ) -> Result<Option<u64>> {
        let (volume, tag) = (&self.core.volume, self.tag());
        volume.write_sequential(into, header, tag)?;
        let begin = into.at;
        let mut done = 0;
        while done < len {
            if self.is_rest() && self.core.maintenance.is_over() {
                return Ok(None);
            }
            let n = (len - done).min(PIECE);
            let mut buf = AlignedBuf::zeroed(n as usize);
            volume.read(&mut buf, from + done, tag).inspect_err(|_| step.unread = true)?;
            volume.write_sequential(into, &buf, tag)?;
            done += n;
        }
        Ok(Some(begin))
    }

    /// Packing: the zone for a piece that takes `need` bytes with its header, from where those stand that were moved to before.
    fn room_behind_others(&self, step: &mut Step, need: u64) -> Result<OpenZone> {
        let core = self.core;
        step.others.extend(step.into.take());
        let chosen = {
            // Until it is pinned, nobody gives it up.
            let _state = lock(&core.meta);
            let mine = || step.others.iter().map(|(open, _)| (open.capacity - open.at, open.zone.0));
            let mut of_mine = None;
            let parked = core.parked.take_chosen(|parking| {
                let chosen = pack::destination(mine().chain(parking.rooms(step.framed)), need, core.zone_capacity)?;
                of_mine = step.others.iter().position(|(open, _)| open.zone.0 == chosen);
                of_mine.is_none().then_some(chosen)
            });
            match of_mine {
                Some(i) => Some(step.others.swap_remove(i)),
                None => parked.inspect(|(open, _)| core.tenant.pin(open.zone)),
            }
        };
        match chosen {
            Some((open, class)) => self.goes_on(step, open, class),
            None if std::mem::take(&mut step.empty) => self.empty_room(step, MOVED, Urgency::User),
            None => {
                let what = "what was to be moved has no room any more";
                Err(Error::refused(Code::NoSpace, &core.volume.name(), what))
            }
        }
    }

    /// The zone that bytes are moved to, with room for a header and more; for packing the one that suits `need` bytes best.
    pub(crate) fn room(&self, step: &mut Step, need: u64) -> Result<OpenZone> {
        if let Wish::Packed { .. } = self.wish {
            return self.room_behind_others(step, need);
        }
        let core = self.core;
        let least = core.front + 2 * u64::from(core.volume.geometry().block);
        if let Some((open, _)) = step.into.filter(|(open, _)| open.capacity - open.at >= least) {
            return Ok(open);
        }
        self.leave_for_good(step);
        let class = if step.framed { Class::Log } else { MOVED };
        let parked = {
            let _state = lock(&core.meta);
            // Logs of any kind move together: there are few zones.
            let any = step.framed || matches!(self.wish, Wish::Squeezed);
            // Whatever becomes of what stands there, it is not reset while it is written to.
            core.parked.take(CLEANER, class, least, any).inspect(|open| core.tenant.pin(open.zone))
        };
        match parked {
            Some(open) => self.goes_on(step, open, class),
            None => self.empty_room(step, class, Urgency::Cleaning),
        }
    }

    /// Bytes are moved behind others in this zone, which is pinned.
    fn goes_on(&self, step: &mut Step, open: OpenZone, class: Class) -> Result<OpenZone> {
        // From here on the step answers for it, whatever fails below.
        step.into = Some((open, class));
        self.core.tenant.activate(open.zone, Some(self.core))?;
        // Where logs end is durable before copies of logs stand behind them: frames alone would not tell the two apart.
        if !matches!(class, Class::Table(_)) {
            self.core.sync_journal()?;
        }
        Ok(open)
    }

    /// An empty zone to move bytes to.
    fn empty_room(&self, step: &mut Step, class: Class, urgency: Urgency) -> Result<OpenZone> {
        let core = self.core;
        let zone = core.take_zone(urgency)?;
        core.tenant.pin(zone);
        let mut open = OpenZone { zone, life: core.tenant.new_life(), at: 0, capacity: core.zone_capacity };
        step.into = Some((open, class));
        core.tenant.activate(open.zone, Some(core))?;
        let mut out = [imbrex_device::Zone::EMPTY];
        core.volume.device().report(open.zone, &mut out)?;
        open.capacity = out[0].capacity;
        step.into = Some((open, class));
        Ok(open)
    }
}

/// What came of a step.
struct Outcome {
    cleaned: Cleaned,
    /// Room was missing, or somebody wanted the drive back.
    over: bool,
    /// Bytes that were written for it.
    written: u64,
}

impl Core {
    /// Empties one zone, or moves some pieces of it.
    ///
    /// # Errors
    /// Those of the flush and of the journal.
    fn clean(&self, wish: Wish, goal: Goal) -> Result<Outcome> {
        let moving = Moving::new(self, wish);
        let cleaned = self.cleaning.cleaner().clean(&moving, goal, 1);
        let Step { over, written, .. } = moving.step.into_inner();
        match cleaned {
            // Of the journal, too: whoever asks looks elsewhere.
            Err(error) if error.code() == Code::NoSpace => {
                Ok(Outcome { cleaned: Cleaned::default(), over: true, written })
            }
            cleaned => {
                let cleaned = cleaned?;
                if cleaned.freed > 0 {
                    // The commit has made that durable, and the victim was pinned until after it.
                    self.release_pending();
                } else if !cleaned.gained() {
                    self.volume.check_poison()?;
                }
                Ok(Outcome { cleaned, over, written })
            }
        }
    }

    /// Bytes that cleaning could free.
    pub(crate) fn cleanable(&self) -> u64 {
        if !self.options.policy.shares() {
            return 0;
        }
        let mut not = self.busy_zones();
        not.extend(self.cleaning.given_up());
        self.parked.look(|parking| {
            let logs = parking.zones_of_logs_to_spare(|zone| !not.contains(&zone)) * (self.zone_capacity - self.front);
            // What is dead between logs is no room for a table before the zone is free.
            not.extend(parking.zones_of_logs());
            let candidates = parking.candidates();
            logs + candidates.dead()
                - not.into_iter().filter_map(|zone| candidates.get(zone)).map(|c| c.dead).sum::<u64>()
        })
    }

    /// Before somebody is told that there is no space: live bytes of tables move together, and those of logs, until a zone beside the
    /// reserve and `leave` others is free. A table cannot stand behind logs, nor a log behind tables. True: there is one now.
    pub(crate) fn pack_for_room(&self, leave: u32) -> Result<bool> {
        let (mut steps, mut logs) = (0, true);
        while self.cleans() && steps < MOST_AT_ONCE {
            let Outcome { cleaned: done, over, .. } =
                self.clean(Wish::Packed { budget: u64::MAX, rest: false, logs }, Goal::Room)?;
            match done {
                Cleaned { waited: true, .. } => {}
                _ if over && logs => logs = false,
                _ if over => return Ok(false),
                _ if done.gained() && self.free_zones(leave, 1)?.0 > 0 => return Ok(true),
                _ if done.gained() => steps += 1,
                _ if logs => logs = false,
                _ => return Ok(false),
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
        let done = self.clean(Wish::Squeezed, Goal::Room)?;
        Ok(done.cleaned.gained() && !done.over)
    }

    /// Says where moved bytes are now; those that were changed or deleted meanwhile are passed over.
    /// Returns how many bytes those are that were not.
    pub(crate) fn log_moved(&self, batch: &[Moved]) -> Result<u64> {
        let mut state = lock(&self.meta);
        let (mut records, mut bytes) = (Vec::new(), 0);
        for moved in batch {
            let Some(inode) = state.meta.inode(moved.serial) else { continue };
            let there = |old: Extent| {
                let is_it = |e: &Extent| e.part(old.logical, old.end()) == Some(old);
                inode.extents.iter().any(is_it)
            };
            if moved.old.iter().filter_map(|old| old.part(moved.new.logical, moved.new.end())).all(there) {
                let Extent { logical, len, place } = moved.new;
                bytes += len;
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
        Ok(bytes)
    }

    /// Whether files share zones, and zones may be cleaned now: not from within (the cleaner writes no file), and a mount cleans
    /// nothing.
    fn cleans(&self) -> bool {
        self.options.policy.shares() && !self.recovering.load(Ordering::Acquire)
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
        let wish = Wish::Dead { least: least_dead(self.zone_capacity), budget: u64::MAX, logs: true };
        let mut steps = 0;
        while self.free_zones(leave, 1)?.0 == 0 {
            if steps < MOST_AT_ONCE && self.cleans() {
                let Outcome { cleaned: done, over, .. } = self.clean(wish, Goal::Room)?;
                // What another one makes free may be enough for both.
                if done.waited {
                    continue;
                }
                // Where nothing can be moved any more, whoever asks looks elsewhere, too.
                steps = if done.gained() && !over { steps + 1 } else { MOST_AT_ONCE };
                if steps < MOST_AT_ONCE {
                    continue;
                }
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
        let written = self.cleaning.take_unpaid();
        let clean = || {
            let counts = self.tenant.counts();
            let (free, zones) = self.free_zones(WAL_SPARE, low_water(counts.free + counts.leased))?;
            let Some(ahead) = ahead(free, zones, self.zone_capacity, written) else { return Ok(()) };
            let wish = Wish::Dead { least: ahead.least, budget: ahead.budget, logs: false };
            // Where another one cleans, that is enough, and is paid for later.
            if self.clean(wish, Goal::Rest)?.cleaned.waited {
                self.cleaning.owe(written);
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = clean() {
            tracing::debug!(%error, "nothing could be cleaned ahead");
        }
    }
}
