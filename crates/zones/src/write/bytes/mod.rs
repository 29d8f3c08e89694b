//! The writer of bytes: those of one file, raw or in frames. Bytes in, zones out.
//!
//! [`append`](ByteWriter::append) copies into a segment and returns. Whoever has the writer's [`WriteGuard`] writes segments that are sealed, step by step
//! ([`WriteGuard::write`]). What a step needs from the engine it returns as a value: a zone, a record, or who reads. So a writer calls nobody, and holds no lock
//! while its engine works. The last block of a write is padded and never rewritten.
//!
//! Calls of the first block of [`ByteWriter`] work in memory (rule M). The others may wait for the drive (rule D).
//!
//! Invariants:
//! - One guard of a writer is out at a time, and bytes are placed in order.
//! - A byte is in a segment until the engine has been told where it is ([`Step::Placed`]).
//! - Nothing is dropped on an error. The next attempt goes on where this one stopped.
//!
//! Errors on the way: the zone is reported, what the drive took is believed, and the rest goes to the same zone once more or
//! to another one. Only where no zone takes it does the caller see an error.

mod guard;
mod spec;

pub use guard::WriteGuard;
pub use spec::{Framing, NewZone, Placed, PlacedBytes, Rank, Step, Where, WriterSpec, WriterStart};

use super::writers::{LONGEST, Waiting};
use crate::frame::FRAME_HEADER;
use crate::header::ZoneHeader;
use crate::medium::flush::Ticket;
use crate::medium::memory::{Hurry, Segment, SegmentKey};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::volume::active::Holder;
use crate::volume::{OpenZone, Tenant, VolumeCore};
use imbrex_device::{Cause, Error, Fault, Priority, Result, Tag, ZoneId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
struct State {
    /// Oldest first; the last one takes appends while `filling`.
    segments: VecDeque<Arc<Segment>>,
    filling: bool,
    /// Logical end of what was appended.
    end: u64,
    /// Logical end of what is on the drive.
    placed: u64,
    /// Covers its last write.
    written: Option<Ticket>,
    /// Bytes that the open zone takes beyond what is on the drive.
    room: u64,
    /// Somebody has the guard.
    writing: bool,
    /// An append asks for a place for bytes that are not in memory yet: what is reserved for the writer stays.
    reserving: bool,
    /// How that ended.
    reserved: Option<Result<()>>,
    /// See [`ByteWriter::abandon`].
    abandoned: bool,
    /// Full segments wait; see [`WriterSpec::deferred`].
    deferred: bool,
}

struct Zone {
    open: OpenZone,
    /// Its header is still to be written.
    fresh: Option<ZoneHeader>,
    /// Distance back to the last frame's header.
    back: u32,
}

#[derive(Default)]
struct Io {
    zone: Option<Zone>,
    sequence: u64,
    /// The last write ended in padding (raw), or was another writer's: the engine hears where the next one begins.
    padded: bool,
    /// The engine has recorded this size for the write that is about to come.
    announced: Option<u64>,
    /// Payload bytes of the first segment that are placed already.
    done: usize,
    /// Bytes of device writes that the first segment has taken.
    written: u64,
    /// How often a write of the first segment has failed under this guard, since the engine was last told an error.
    attempts: u32,
    /// Up to here the engine has been told where bytes are, and readers have not.
    told: Option<u64>,
    switched: bool,
    /// The zone before died: the drive will not say how far it was written.
    died: bool,
    /// Left after an error with room in it: nobody's, once the engine knows that the bytes go on elsewhere.
    left: Option<ZoneId>,
}

/// What an [append](ByteWriter::append) took, or what it needs before it takes more.
pub enum Took<'a> {
    /// So many bytes.
    Bytes(usize),
    /// So many bytes, and one of its segments is full now.
    Filled(usize),
    /// A place for what may come into memory: the open zone may have no room for it.
    Place(PlaceRequest<'a>),
    /// Memory, which others have: [`ByteWriter::relieved`] says whether some was made free.
    Memory,
    /// All its segments are full: the oldest is to be written, or waited for ([`ByteWriter::guard_or_wait`]).
    Full,
}

/// An append asks its engine to reserve a zone, or room for [`bytes`](PlaceRequest::bytes). The next append goes by the answer.
#[must_use]
pub struct PlaceRequest<'a> {
    writer: &'a ByteWriter,
    bytes: u64,
    deferred: bool,
}

impl PlaceRequest<'_> {
    /// The most that will be in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether these bytes need not be in memory: where zones are scarce they are rather written soon.
    pub fn is_deferred(&self) -> bool {
        self.deferred
    }

    /// The place is reserved, or why not: then nothing is appended that has no place.
    pub fn answer(self, answer: Result<()>) {
        lock(&self.writer.state).reserved = Some(answer);
    }
}

impl Drop for PlaceRequest<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.writer.state);
        state.reserving = state.reserved.is_some();
    }
}

/// See the module.
pub struct ByteWriter {
    volume: Arc<VolumeCore>,
    spec: WriterSpec,
    owner: u8,
    id: u64,
    /// Bytes of a zone header.
    front: u32,
    cause: AtomicU8,
    state: Mutex<State>,
    changed: Condvar,
    io: Mutex<Io>,
    /// What stands before it in its order is durable.
    settled: AtomicBool,
    /// When it wrote last: later ones have higher numbers. An active zone is the writer's as long as this is there.
    used: Arc<AtomicU64>,
}

impl Drop for ByteWriter {
    fn drop(&mut self) {
        // Whatever could not be written and was not given up is kept for the next mount.
        self.leave_segments();
        // Who is woken finds that the zone has no holder.
        self.used = Arc::default();
        if let Some(active) = self.volume.active_of(self.owner) {
            active.notify();
        }
    }
}

/// Calls that work in memory.
impl ByteWriter {
    /// A writer of the tenant.
    pub fn new(tenant: &Tenant, spec: WriterSpec, start: WriterStart) -> ByteWriter {
        let volume = tenant.volume().core().clone();
        let zone = |open| Zone { open, fresh: None, back: 0 };
        let writer = ByteWriter {
            used: Arc::default(),
            settled: AtomicBool::new(start.zone.is_some()),
            owner: tenant.owner(),
            id: volume.next_writer(),
            front: volume.geometry.block.max(4096),
            cause: AtomicU8::new(spec.cause as u8),
            state: Mutex::new(State {
                end: start.logical,
                placed: start.logical,
                room: start.zone.map_or(0, |zone| zone.capacity.saturating_sub(zone.at)),
                deferred: spec.deferred > 0,
                ..State::default()
            }),
            changed: Condvar::new(),
            io: Mutex::new(Io {
                zone: start.zone.map(zone),
                sequence: start.sequence,
                padded: start.zone.is_some(),
                ..Io::default()
            }),
            volume,
            spec,
        };
        if let (Some(active), Some(open)) = (writer.volume.active_of(writer.owner), start.zone) {
            active.hold(open.zone, writer.holder());
        }
        writer
    }

    /// Appends some of `bytes`, to one segment, or says what it needs for that. One appender at a time is the rule of the files above; readers and
    /// syncers may be many.
    ///
    /// # Errors
    /// `InvalidInput` after an end; `NoSpace` and what else was [answered](PlaceRequest::answer), where the open zone has no room either.
    pub fn append(&self, bytes: &[u8]) -> Result<Took<'_>> {
        let mut state = lock(&self.state);
        if !state.filling
            && let Some(need) = self.claim(&mut state)?
        {
            return Ok(need);
        }
        let Some(segment) = state.segments.back() else { return Ok(Took::Bytes(0)) };
        let n = segment.append(bytes);
        let full = segment.len() == segment.capacity();
        state.end += n as u64;
        state.filling &= !full;
        Ok(if full { Took::Filled(n) } else { Took::Bytes(n) })
    }

    /// Gets one more segment; `Some`: something is needed for that.
    fn claim<'a>(&'a self, state: &mut State) -> Result<Option<Took<'a>>> {
        // Under the lock: until there are bytes, nobody takes back what was reserved for them.
        let answer = state.reserved.take();
        state.reserving = false;
        if state.abandoned {
            return Err(self.is_over());
        }
        let mut want = self.spec.segment_bytes;
        let mut most = if state.deferred { self.spec.deferred } else { self.spec.segments };
        let needs_place = state.segments.len() < most && ((state.segments.len() + 1) * want) as u64 > state.room;
        let mut full = None;
        match answer {
            None if needs_place => {
                state.reserving = true;
                let (bytes, deferred) = ((most * want) as u64, state.deferred);
                return Ok(Some(Took::Place(PlaceRequest { writer: self, bytes, deferred })));
            }
            Some(Err(_)) if state.deferred => {
                // There may be room for less.
                state.deferred = false;
                return Ok(Some(Took::Filled(0)));
            }
            Some(Err(error)) => full = Some(error),
            None | Some(Ok(())) => {}
        }
        most = if state.deferred { self.spec.deferred } else { self.spec.segments };
        if full.is_some() && state.segments.is_empty() {
            // What the open zone still takes, at least.
            let unit = self.volume.memory().unit();
            want = usize::try_from(state.room).unwrap_or(want).min(want) / unit * unit;
            match full.take() {
                Some(error) if want == 0 => return Err(error),
                _ => {}
            }
        }
        if full.is_some() || state.segments.len() >= most {
            return Ok(Some(Took::Full));
        }
        let key = SegmentKey { owner: self.owner, file: self.spec.file, life: self.spec.life, logical: state.end };
        let hurry = if state.deferred { Hurry::Deferred } else { Hurry::Soon };
        let front = self.front + if self.is_framed() { FRAME_HEADER as u32 } else { 0 };
        match self.volume.memory().claim(key, front, want, hurry) {
            Some(segment) => {
                state.segments.push_back(Arc::new(segment.claimed_at(self.volume.now())));
                state.filling = true;
                Ok(None)
            }
            // Others may have what is in no hurry, or this one has it itself.
            None if state.deferred || state.segments.is_empty() => Ok(Some(Took::Memory)),
            None => Ok(Some(Took::Full)),
        }
    }

    /// Memory was made free for an [append](Took::Memory) (true), others have none, or could not write theirs.
    ///
    /// # Errors
    /// Where the append cannot go on without it: that of the others, or that too many write at once.
    pub fn relieved(&self, relieved: Result<bool>) -> Result<()> {
        let mut state = lock(&self.state);
        let goes_on = state.deferred || !state.segments.is_empty();
        let relieved = match relieved {
            // What another one cannot write is not this one's business, as long as it can go on.
            Err(_) if goes_on => false,
            other => other?,
        };
        if relieved || goes_on {
            // With nothing to be had from others it goes on as those that are in a hurry.
            state.deferred &= relieved;
            return Ok(());
        }
        let what = "too many files are being written at once for the survivor's memory; close some";
        Err(self.volume.error(Fault::InvalidInput(what.into())))
    }

    /// From now on full segments are written at once, as those of others.
    pub fn hurry(&self) {
        lock(&self.state).deferred = false;
    }

    /// Nothing more will come soon: what is not full counts as full.
    pub fn seal(&self) {
        let mut state = lock(&self.state);
        // One without a byte in it is none.
        if state.filling && state.segments.back().is_some_and(|last| last.is_empty()) {
            state.segments.pop_back();
        }
        state.filling = false;
    }

    /// Whether full segments wait in memory.
    pub fn is_deferred(&self) -> bool {
        lock(&self.state).deferred
    }

    /// Whether it has a full segment that waits for nobody.
    pub fn is_due(&self) -> bool {
        let state = lock(&self.state);
        !state.deferred && state.is_sealed()
    }

    /// Logical end, bytes in memory included.
    pub fn len(&self) -> u64 {
        lock(&self.state).end
    }

    /// Whether nothing was ever appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Logical end of what is on the drive.
    pub fn placed(&self) -> u64 {
        lock(&self.state).placed
    }

    /// Copies bytes at logical offset `at` into `out`, as far as they are in memory.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Where {
        let state = lock(&self.state);
        if at >= state.end {
            return Where::End;
        }
        if at < state.placed {
            return Where::Drive(state.placed);
        }
        let mut done = 0;
        for segment in &state.segments {
            let here = at + done as u64;
            if done < out.len() && here >= segment.key().logical && here < segment.end() {
                done += segment.read((here - segment.key().logical) as usize, &mut out[done..]);
            }
        }
        Where::Memory(done)
    }

    /// Whether all that was appended, but for what an end dropped, outlives a loss of power.
    pub fn is_durable(&self) -> bool {
        let state = lock(&self.state);
        state.segments.is_empty() && state.written.is_none_or(|written| self.volume.flusher.is_durable(written))
    }

    /// The engine's number of the file.
    pub(super) fn file(&self) -> u64 {
        self.spec.file
    }

    /// See [`WriterSpec::rank`].
    pub(super) fn rank(&self) -> Option<Rank> {
        self.spec.rank
    }

    /// The same, as long as it may have to wait for others.
    pub(super) fn unsettled_rank(&self) -> Option<Rank> {
        self.spec.rank.filter(|_| !self.settled.load(Ordering::Acquire))
    }

    /// What stands before it is durable.
    pub(super) fn settled(&self) {
        self.settled.store(true, Ordering::Release);
    }

    /// Whether it was ended.
    pub fn is_abandoned(&self) -> bool {
        lock(&self.state).abandoned
    }

    /// From now on writes for another cause.
    pub fn set_cause(&self, cause: Cause) {
        self.cause.store(cause as u8, Ordering::Relaxed);
    }

    /// Whether its bytes stand in frames.
    pub fn is_framed(&self) -> bool {
        self.spec.framing == Framing::Framed
    }

    /// Writers of a volume are numbered as they are made.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Of two writers, the one that wrote later has the higher number.
    pub(super) fn last_write(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// What waits here; `now` tells what is old.
    pub(super) fn waiting(&self, now: Duration) -> Waiting {
        let state = lock(&self.state);
        let full = state.is_sealed() && !state.abandoned;
        let first = state.segments.front().filter(|first| !first.is_empty() && !state.abandoned);
        let old = first.is_some_and(|first| now.saturating_sub(first.since()) >= LONGEST);
        Waiting { writer: self.id, full, some: first.is_some(), old }
    }

    /// When the oldest of its segments was claimed, and its number, which counts where the time stands still. `None`: it has no memory.
    pub(super) fn oldest(&self) -> Option<(Duration, u64)> {
        let state = lock(&self.state);
        let first = state.segments.front().map(|first| first.since());
        // Of one that is just written the memory comes back in a moment, although the writer has it no more.
        Some((first.or(state.writing.then_some(Duration::MAX))?, self.id))
    }

    /// Whether a segment is sealed, or none is: the oldest, where it was claimed at `until` or before. `all`: what is not full counts, where it is all there is.
    pub(super) fn seal_due(&self, all: bool, until: Option<Duration>) -> bool {
        let mut state = lock(&self.state);
        let due = |first: &Arc<Segment>| until.is_none_or(|until| first.since() <= until);
        let any = state.segments.front().is_some_and(due);
        state.filling &= !(any && all && state.segments.len() == 1);
        any
    }

    fn holder(&self) -> Holder {
        Holder::Writer(self.id, Arc::downgrade(&self.used))
    }

    pub(super) fn tag(&self, priority: Priority) -> Tag {
        let cause = Cause::ALL.get(usize::from(self.cause.load(Ordering::Relaxed))).copied().unwrap_or(Cause::Other);
        Tag { cause, priority }
    }

    fn leave_segments(&self) {
        lock(&self.state).segments.iter().for_each(|segment| segment.leave());
    }

    fn is_over(&self) -> Error {
        self.volume.error(Fault::InvalidInput("the writer was ended".into()))
    }
}

impl State {
    fn is_sealed(&self) -> bool {
        self.segments.len() > usize::from(self.filling)
    }
}

/// Calls that may wait for the drive, or for who has the guard.
impl ByteWriter {
    fn start_writing<'a>(&'a self, mut state: MutexGuard<'a, State>) -> WriteGuard<'a> {
        debug_assert!(!state.writing);
        state.writing = true;
        WriteGuard::new(self)
    }

    /// The right to write.
    pub fn guard(&self) -> WriteGuard<'_> {
        let mut state = lock(&self.state);
        while state.writing {
            state = wait(&self.changed, state);
        }
        self.start_writing(state)
    }

    /// The right to write, where nobody has it; else `None`, when something has changed.
    pub fn guard_or_wait(&self) -> Option<WriteGuard<'_>> {
        let state = lock(&self.state);
        if state.writing {
            drop(wait(&self.changed, state));
            return None;
        }
        Some(self.start_writing(state))
    }

    /// The right to write all that was appended, and where that ends; what is in memory counts as full from now on. `None`: it is on the drive.
    ///
    /// # Errors
    /// `InvalidInput` after an end.
    pub(super) fn guard_to_drain(&self) -> Result<Option<(WriteGuard<'_>, u64)>> {
        let mut state = lock(&self.state);
        let target = state.end;
        if state.placed >= target {
            return Ok(None);
        }
        // The bytes up to the target may still be in the filling segment: seal it, the next append starts another.
        state.filling = false;
        while state.writing {
            state = wait(&self.changed, state);
            if state.placed >= target {
                return Ok(None);
            }
        }
        if state.abandoned {
            return Err(self.is_over());
        }
        Ok(Some((self.start_writing(state), target)))
    }

    /// The same for who wants its zone, where nobody appends or writes at the moment. `may_wait`: also for who writes. `can_write`: what is in memory can be
    /// written now.
    pub(super) fn guard_to_leave(
        &self,
        may_wait: bool,
        can_write: impl FnOnce() -> bool,
    ) -> Option<(WriteGuard<'_>, u64)> {
        let mut state = lock(&self.state);
        while may_wait && state.writing {
            state = wait(&self.changed, state);
        }
        if state.writing || state.abandoned || state.reserving {
            return None;
        }
        if !state.segments.is_empty() && !may_wait && !can_write() {
            return None;
        }
        state.filling = false;
        let target = state.end;
        let mut guard = self.start_writing(state);
        guard.quiet = true;
        Some((guard, target))
    }

    /// Ends the writer: waits for a write under way, then drops what is not on the drive. No zone of it is written after
    /// this returns. Appends and drains fail from now on.
    pub fn abandon(&self) {
        let mut state = lock(&self.state);
        state.abandoned = true;
        while state.writing {
            state = wait(&self.changed, state);
        }
        state.segments.clear();
        state.filling = false;
        self.changed.notify_all();
        drop(state);
        if let Some(active) = self.volume.active_of(self.owner) {
            let io = lock(&self.io);
            io.zone.iter().map(|zone| zone.open.zone).chain(io.left).for_each(|zone| active.left_behind(zone));
        }
    }

    /// Ends the writer like [`ByteWriter::abandon`], but what is not on the drive stays for the next mount, as if the
    /// process had died here. For a volume that takes no more writes.
    pub fn leave(&self) {
        self.leave_segments();
        self.abandon();
    }

    /// Gives back the zone that it writes to, where it has room and all that was appended stands in it. The writer goes
    /// on, if it does, in a zone of its own. Also whether nothing is in memory, so nothing needs to be reserved for it.
    pub fn give_back(&self) -> (Option<OpenZone>, bool) {
        let guard = self.guard();
        if !lock(&self.state).segments.is_empty() {
            return (None, false);
        }
        let mut io = lock(&self.io);
        if io.died || io.zone.as_ref().is_none_or(|zone| zone.fresh.is_some()) {
            return (None, true);
        }
        (io.switched, io.padded) = (true, false);
        // Also one that is full: this writer may live on beside the file's next one, and has nothing more to say of it.
        let Some(Zone { open, .. }) = io.zone.take() else { return (None, true) };
        drop(io);
        lock(&self.state).room = 0;
        drop(guard);
        let has_room = open.at < open.capacity;
        if let Some(active) = self.volume.active_of(self.owner) {
            // The engine's, until it says that it keeps it.
            if has_room { active.taken(open.zone) } else { active.left_behind(open.zone) }
        }
        (has_room.then_some(open), true)
    }
}
