//! The writers of bytes of an engine: the loops over [steps](super::Step), and who is written when.
//!
//! An engine owns its [`Writers`] and calls them. What a writer needs, its [`Writer`] gives: the engine's half, which is called without a lock of this crate, but for
//! [`Writer::idle`]. The volume's threads ask for what is due ([`Background`]).
//!
//! *Deferred* writers keep full segments in memory, because most of what they hold is deleted before anybody needs it on the drive: the
//! write-ahead logs of who does not sync them. Such a log outlives the death of the process in the survivor's memory. A power loss may cost what was
//! never synced. What was appended [`LONGEST`] ago is written whether or not there is room.
//!
//! Whose bytes go when memory is short is [`next_to_write`]: the writer that was made first. Logs become durable in order, so to write
//! of a later one would bring the whole of those before along, and flush them.
//!
//! There may be more writers with bytes in memory than it has units. Then the one whose oldest segment has been there longest is written to
//! its end ([`Writers::relieve`]), and who appends never hears of it.
//!
//! Who finds no zone gets room from those that do not write: such a writer writes what it has in memory, gives its zone back to the engine, to be
//! shared, and lets go of what was reserved for it. It goes on elsewhere when more is appended. So a file that is open and rests holds no zone,
//! as one that is closed does.
//!
//! Writers with a [`Rank`] are in order: before the first write of one, those of its group with a lower number are drained and flushed. Who waits for a writer
//! waits for all of that rank: a file that was cut goes on with another one. A writer whose file is deleted [leaves](Writers::leave_order) the order. Once it was
//! written, a writer waits for nobody: it may have the zone that the one before it needs.
//!
//! Invariant: no lock of this module is held while a writer is asked or written.

use super::bytes::{ByteWriter, PlaceRequest, Rank, Took, WriteGuard};
use crate::sync::{Mutex, lock};
use crate::volume::work::Background;
use crate::volume::{OpenZone, Tenant, VolumeCore};
use imbrex_device::{Priority, Result};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a byte waits at most (and [`LOOK`] more): what Linux has for pages that nobody syncs (`dirty_expire_centisecs`).
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// How often the background looks for what waited so long.
const LOOK: Duration = Duration::from_secs(5);

/// The engine's half of a [`ByteWriter`].
pub trait Writer: Send + Sync + 'static {
    /// The other half.
    fn bytes(&self) -> &ByteWriter;
    /// Has a place reserved for what may come into memory. Called often; one reservation at a time is enough.
    ///
    /// # Errors
    /// `NoSpace`: then nothing is appended that has no place.
    fn reserve(&self, _request: &PlaceRequest<'_>) -> Result<()> {
        Ok(())
    }
    /// Nothing of the writer is in memory: what was reserved for it is not needed any more. Works in memory.
    fn idle(&self) {}
    /// Writes the oldest segment, if it is sealed: sees to each [`Step`](super::Step) of the guard. Returns the bytes written; 0: there was nothing to do.
    ///
    /// # Errors
    /// Those of the steps.
    fn write_front(&self, guard: &mut WriteGuard<'_>, priority: Priority) -> Result<u64>;
    /// The writer loses its zone, which others need more, and will go on elsewhere; all its bytes, up to `end`, are on the drive.
    /// The engine records the end, because the zone's write pointer will not tell any more, and keeps the zone or finishes it. False: not now.
    ///
    /// # Errors
    /// Those of the record.
    fn leave_zone(&self, _zone: &OpenZone, _end: u64) -> Result<bool> {
        Ok(false)
    }
}

/// What a writer has that could be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Number of the writer: later ones have higher numbers.
    pub writer: u64,
    /// Whether it has a full segment.
    pub full: bool,
    /// Whether it has any, full or not.
    pub some: bool,
    /// Whether one of those has waited long enough.
    pub old: bool,
}

/// Why something is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Somebody needs the memory.
    Short,
    /// It has waited long enough.
    Old,
}

/// Policy: whose segments are written next. By order of making.
pub fn next_to_write(waiting: &[Waiting], why: Why) -> Option<u64> {
    let first = |may: &dyn Fn(&&Waiting) -> bool| waiting.iter().filter(may).map(|w| w.writer).min();
    match why {
        // One that is not full costs a padded block; but many of those may be all there is.
        Why::Short => first(&|w| w.full).or_else(|| first(&|w| w.some)),
        Why::Old => {
            // Of the writers before an old one, everything: its own could not be durable without them.
            let last = waiting.iter().filter(|w| w.some && w.old).map(|w| w.writer).max()?;
            first(&|w| w.some && w.writer <= last)
        }
    }
}

/// Those of one engine. See the module.
pub struct Writers<W> {
    volume: Arc<VolumeCore>,
    owner: u8,
    known: Mutex<Known<W>>,
}

struct Known<W> {
    /// By the order in which they were made.
    deferred: BTreeMap<u64, Weak<W>>,
    others: BTreeMap<u64, Weak<W>>,
    /// Those with a rank, of which something may not be durable, and their numbers.
    ranked: BTreeMap<(Rank, u64), Arc<W>>,
    /// Those with a full segment, each once.
    due: VecDeque<Arc<W>>,
    queued: BTreeSet<u64>,
    /// Memory is nearly short.
    relieve: bool,
    /// When it was last looked for what has waited long.
    looked: Duration,
}

impl<W: Writer> Writers<W> {
    /// Of a tenant's engine; from now on the volume's background writes what is due here.
    pub fn new(tenant: &Tenant) -> Arc<Writers<W>> {
        let volume = tenant.volume().core().clone();
        let known = Known {
            deferred: BTreeMap::new(),
            others: BTreeMap::new(),
            ranked: BTreeMap::new(),
            due: VecDeque::new(),
            queued: BTreeSet::new(),
            relieve: false,
            looked: volume.now(),
        };
        let writers = Arc::new(Writers { volume, owner: tenant.owner(), known: Mutex::new(known) });
        let background: Arc<dyn Background> = writers.clone();
        writers.volume.attend(&background);
        writers
    }

    /// One more.
    pub fn add(&self, writer: &Arc<W>) {
        let (id, deferred) = (writer.bytes().id(), writer.bytes().is_deferred());
        let mut known = lock(&self.known);
        known.deferred.retain(|_, writer| writer.strong_count() > 0);
        known.others.retain(|_, writer| writer.strong_count() > 0);
        let list = if deferred { &mut known.deferred } else { &mut known.others };
        list.insert(id, Arc::downgrade(writer));
        if let Some(rank) = writer.bytes().rank() {
            known.ranked.insert((rank, id), writer.clone());
        }
        drop(known);
        self.forget_settled();
        if deferred {
            self.volume.watch_clock();
        }
    }

    /// Copies bytes into memory. Nothing is written unless all segments are full or there is no memory.
    ///
    /// # Errors
    /// Those of the write that had to make room; then only part of `bytes` may have been taken (see [`ByteWriter::len`]).
    pub fn append(&self, writer: &Arc<W>, bytes: &[u8]) -> Result<()> {
        let of = writer.bytes();
        let mut rest = bytes;
        while !rest.is_empty() {
            match of.append(rest)? {
                Took::Bytes(n) => rest = &rest[n..],
                Took::Filled(n) => {
                    rest = &rest[n..];
                    self.filled(writer);
                }
                Took::Place(request) => {
                    let answer = writer.reserve(&request);
                    request.answer(answer);
                }
                Took::Memory => of.relieved(self.relieve())?,
                Took::Full => {
                    if let Some(mut guard) = of.guard_or_wait() {
                        self.write_front(writer, &mut guard, Priority::Normal)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A segment is full, or waits no more.
    fn filled(&self, writer: &Arc<W>) {
        if writer.bytes().is_due() {
            self.write_soon(writer);
        } else if writer.bytes().is_deferred() && self.is_nearly_short() {
            lock(&self.known).relieve = true;
            self.volume.ring();
        }
    }

    /// Full segments are to be written by whoever does background work.
    fn write_soon(&self, writer: &Arc<W>) {
        let mut known = lock(&self.known);
        if known.queued.insert(writer.bytes().id()) {
            known.due.push_back(writer.clone());
            drop(known);
            self.volume.ring();
        }
    }

    /// From now on full segments of this one are written at once, as those of others.
    pub fn hurry(&self, writer: &Arc<W>) {
        writer.bytes().hurry();
        self.filled(writer);
    }

    /// The same of all that are deferred.
    pub fn hurry_all(&self) {
        self.listed(|known| &known.deferred).iter().for_each(|writer| self.hurry(writer));
    }

    /// Nobody waits for the file's writers of this rank any more.
    pub fn leave_order(&self, rank: Rank, file: u64) {
        let mut known = lock(&self.known);
        let of_rank = known.ranked.extract_if((rank, 0)..=(rank, u64::MAX), |_, writer| writer.bytes().file() == file);
        let gone: Vec<_> = of_rank.collect();
        // Let go of without the lock: it may be the last to hold one.
        drop(known);
        drop(gone);
    }

    /// Lets go of what has ended and is durable.
    fn forget_settled(&self) {
        let mut known = lock(&self.known);
        // In this order: of one that nobody else has, nobody else has a lock.
        let settled = |writer: &Arc<W>| Arc::strong_count(writer) == 1 && writer.bytes().is_durable();
        let (gone, ranked): (BTreeMap<_, _>, _) =
            std::mem::take(&mut known.ranked).into_iter().partition(|(_, writer)| settled(writer));
        known.ranked = ranked;
        drop(known);
        drop(gone);
    }

    /// Whether nothing stands before a writer of this rank that is not durable.
    pub fn is_first(&self, rank: Rank) -> bool {
        self.before_rank(rank).is_empty()
    }

    /// What must be durable before the writer's bytes are written, by rank.
    fn before(&self, writer: &W) -> Vec<Arc<W>> {
        writer.bytes().unsettled_rank().map_or(Vec::new(), |rank| self.before_rank(rank))
    }

    fn before_rank(&self, rank: Rank) -> Vec<Arc<W>> {
        let first = Rank { number: 0, ..rank };
        let before: Vec<_> = lock(&self.known).ranked.range((first, 0)..(rank, 0)).map(|(_, w)| w.clone()).collect();
        before.into_iter().filter(|writer| !writer.bytes().is_durable()).collect()
    }

    /// Makes durable what stands before the writer in its order.
    fn settle_before(&self, writer: &W) -> Result<()> {
        let before = self.before(writer);
        for other in &before {
            let (rank, id) = (other.bytes().rank(), other.bytes().id());
            let drained = if other.bytes().is_abandoned() { Ok(()) } else { self.drain(other, Priority::Normal) };
            let waits = || rank.is_some_and(|rank| lock(&self.known).ranked.contains_key(&(rank, id)));
            // It was deleted meanwhile: then nobody has to wait for it.
            drained.or_else(|error| if waits() { Err(error) } else { Ok(()) })?;
        }
        if !self.before(writer).is_empty() {
            self.volume.sync(writer.bytes().tag(Priority::Normal))?;
        }
        writer.bytes().settled();
        if !before.is_empty() {
            drop(before);
            self.forget_settled();
        }
        Ok(())
    }

    fn write_front(&self, writer: &W, guard: &mut WriteGuard<'_>, priority: Priority) -> Result<u64> {
        if writer.bytes().unsettled_rank().is_some() {
            if guard.is_due() {
                self.settle_before(writer)?;
            } else if !writer.bytes().is_abandoned() {
                return Ok(0);
            }
        }
        writer.write_front(guard, priority)
    }

    /// Writes everything that was appended before the call. Not a flush.
    ///
    /// # Errors
    /// Those of the writes; after an [end](ByteWriter::abandon) that it was ended.
    pub fn drain(&self, writer: &W, priority: Priority) -> Result<()> {
        let Some((mut guard, target)) = writer.bytes().guard_to_drain()? else { return Ok(()) };
        while writer.bytes().placed() < target {
            self.write_front(writer, &mut guard, priority)?;
        }
        Ok(())
    }

    /// Writes full segments, up to `bytes` and at least one.
    fn write_ready(&self, writer: &Arc<W>, bytes: u64) -> Result<()> {
        let mut guard = writer.bytes().guard();
        let mut written = 0;
        while written < bytes && guard.is_due() {
            match self.write_front(writer, &mut guard, Priority::Background)? {
                0 => break,
                n => written += n,
            }
        }
        let more = guard.is_due();
        drop(guard);
        if more {
            self.write_soon(writer);
        }
        Ok(())
    }

    /// Writes what waits, oldest first: `bytes` or a little more, none that was claimed later than `until`, and what is not full only
    /// where `all` is wanted.
    fn write_waiting(&self, writer: &W, bytes: u64, all: bool, until: Option<Duration>) -> Result<()> {
        let mut guard = writer.bytes().guard();
        let mut written = 0;
        while written < bytes && writer.bytes().seal_due(all, until) {
            match self.write_front(writer, &mut guard, Priority::Background)? {
                0 => break,
                n => written += n,
            }
        }
        Ok(())
    }

    fn listed(&self, list: impl FnOnce(&Known<W>) -> &BTreeMap<u64, Weak<W>>) -> Vec<Arc<W>> {
        list(&lock(&self.known)).values().filter_map(Weak::upgrade).collect()
    }

    fn next(&self, why: Why, now: Duration) -> Option<(Arc<W>, Waiting)> {
        let writers = self.listed(|known| &known.deferred);
        let waiting: Vec<Waiting> = writers.iter().map(|writer| writer.bytes().waiting(now)).collect();
        let id = next_to_write(&waiting, why)?;
        writers.into_iter().zip(waiting).find(|(_, waiting)| waiting.writer == id)
    }

    /// Has somebody's bytes written, because another writer finds no memory: what waits before all, else those of the writer with the oldest
    /// segment. One that cannot be written is passed over. False: no writer has any memory.
    ///
    /// # Errors
    /// That of the last one, where none can be written.
    pub fn relieve(&self) -> Result<bool> {
        let mut result = self.relieve_deferred();
        if matches!(result, Ok(true)) {
            return result;
        }
        let others = self.listed(|known| &known.others);
        let mut others: Vec<_> =
            others.into_iter().filter_map(|writer| Some((writer.bytes().oldest()?, writer))).collect();
        others.sort_by_key(|(since, _)| *since);
        for (_, writer) in others {
            self.volume.flusher.check()?;
            match self.write_waiting(&writer, self.volume.options.turn_bytes, true, None) {
                Ok(()) => return Ok(true),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Writes a turn's worth of what waits. False: nothing does.
    fn relieve_deferred(&self) -> Result<bool> {
        let Some((writer, waiting)) = self.next(Why::Short, self.volume.now()) else { return Ok(false) };
        self.write_waiting(&writer, self.volume.options.turn_bytes, !waiting.full, None)?;
        Ok(true)
    }

    /// The same, where memory is nearly short.
    fn relieve_some(&self) -> Result<bool> {
        if !std::mem::take(&mut lock(&self.known).relieve) || !self.is_nearly_short() || !self.relieve_deferred()? {
            return Ok(false);
        }
        if self.is_nearly_short() {
            lock(&self.known).relieve = true;
        }
        Ok(true)
    }

    /// The same of what has waited long enough.
    fn write_old(&self) -> Result<bool> {
        let now = self.volume.now();
        let Some((writer, waiting)) = self.next(Why::Old, now) else { return Ok(false) };
        let until = waiting.old.then(|| now.saturating_sub(LONGEST));
        self.write_waiting(&writer, self.volume.options.turn_bytes, true, until)?;
        Ok(true)
    }

    /// Whether so much waits that the background should begin.
    fn is_nearly_short(&self) -> bool {
        let memory = self.volume.memory();
        memory.deferred() > memory.most_deferred() / 16 * 15
    }

    /// All, the one that wrote last at the end.
    fn by_last_write(&self) -> Vec<Arc<W>> {
        let mut all = self.listed(|known| &known.deferred);
        all.extend(self.listed(|known| &known.others));
        all.sort_by_cached_key(|writer| writer.bytes().last_write());
        all
    }

    /// Makes a writer that does not write at the moment give its zone, with room for `need` bytes, to the engine, to be shared. `framed`: one whose bytes stand
    /// in frames, or do not; else any. False: there is none.
    ///
    /// # Errors
    /// Those of a volume that takes no more writes.
    pub fn leave_one(&self, framed: Option<bool>, need: u64) -> Result<bool> {
        // On a drive that limits active zones, those that have one.
        let with_zone = self.volume.active_of(self.owner).map(|active| active.writers());
        let may = |bytes: &ByteWriter| {
            let has_zone = with_zone.as_ref().is_none_or(|with| with.contains(&bytes.id()));
            has_zone && framed.is_none_or(|framed| framed == bytes.is_framed())
        };
        for writer in self.by_last_write() {
            if may(writer.bytes()) && self.leave(&writer, need, false)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes every framed writer that nobody appends to this moment write what it has in memory, and give up its zone, to be shared, and what
    /// was reserved for it: together their bytes need a zone or two. Called without any writer's guard.
    ///
    /// # Errors
    /// Those of a volume that takes no more writes.
    pub fn rest_logs(&self) -> Result<()> {
        for writer in self.by_last_write().into_iter().filter(|writer| writer.bytes().is_framed()) {
            self.leave(&writer, 0, true)?;
        }
        Ok(())
    }

    fn leave(&self, writer: &W, need: u64, may_wait: bool) -> Result<bool> {
        let left = self.give_up_zone(writer, need, may_wait);
        self.volume.flusher.check()?;
        // Its own user will meet that.
        Ok(left.unwrap_or_else(|error| {
            tracing::debug!(%error, "a writer cannot leave its zone");
            false
        }))
    }

    /// Gives up the zone, which somebody else needs, and what was reserved for the writer, if nobody is writing to it; what is in memory is
    /// written first. `may_wait`: also where that has to wait for another writer, or for who writes to this one; only for who holds no
    /// writer's guard. False: it cannot, or has none with room for `need`.
    fn give_up_zone(&self, writer: &W, need: u64, may_wait: bool) -> Result<bool> {
        let can_write = || {
            let can = self.before(writer).is_empty();
            // From here on it waits for nobody: the caller may have the guard of another one.
            if can {
                writer.bytes().settled();
            }
            can
        };
        let Some((mut guard, target)) = writer.bytes().guard_to_leave(may_wait, can_write) else { return Ok(false) };
        while writer.bytes().placed() < target {
            self.write_front(writer, &mut guard, Priority::Normal)?;
        }
        let Some(open) = guard.zone_to_leave(need, || writer.idle()) else { return Ok(false) };
        let left = writer.leave_zone(&open, target);
        guard.left(matches!(left, Ok(true)));
        left
    }
}

impl<W: Writer> Background for Writers<W> {
    fn step(&self, bytes: u64) -> Result<bool> {
        let now = self.volume.now();
        let looks = self.volume.is_threaded() && now >= lock(&self.known).looked + LOOK;
        // However much is due, and not all of it at once: what is due gets its turn in between. Whatever goes wrong here is met by whoever needs these
        // bytes on the drive.
        let wrote_old = looks && matches!(self.write_old(), Ok(true));
        if looks && !wrote_old {
            lock(&self.known).looked = now;
        }
        let due = {
            let mut known = lock(&self.known);
            let due = known.due.pop_front();
            if let Some(writer) = &due {
                known.queued.remove(&writer.bytes().id());
            }
            due
        };
        if let Some(writer) = due {
            // Its bytes stay where they are if that fails; whoever syncs or needs their room meets the error.
            self.write_ready(&writer, bytes)?;
            return Ok(true);
        }
        // Without threads time passes only when somebody says so.
        Ok(wrote_old || self.relieve_some()? || (!self.volume.is_threaded() && self.write_old()?))
    }

    fn until_due(&self) -> Option<Duration> {
        let mut known = lock(&self.known);
        if !known.due.is_empty() || known.relieve {
            return Some(Duration::ZERO);
        }
        known.deferred.retain(|_, writer| writer.strong_count() > 0);
        (!known.deferred.is_empty()).then(|| (known.looked + LOOK).saturating_sub(self.volume.now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_log_goes_first_also_for_the_sake_of_an_old_one_behind_it() {
        let of = |writer, full, old| Waiting { writer, full, some: true, old };
        let none = |writer| Waiting { writer, full: false, some: false, old: true };
        let [short, old] = [Why::Short, Why::Old].map(|why| move |waiting: &[Waiting]| next_to_write(waiting, why));
        assert_eq!((short(&[]), short(&[none(1)]), old(&[none(1)])), (None, None, None));
        assert_eq!(short(&[of(1, false, false), of(2, true, false), of(3, true, false)]), Some(2));
        assert_eq!(short(&[none(1), of(2, false, false), of(3, false, false)]), Some(2), "none is full");
        assert_eq!(old(&[of(1, true, false), of(2, true, false)]), None, "nobody waited long");
        assert_eq!(old(&[of(1, true, false), of(2, true, true), of(3, true, false)]), Some(1));
        assert_eq!(old(&[none(1), of(2, false, true), of(3, true, false)]), Some(2), "also if it is not full");
    }
}
