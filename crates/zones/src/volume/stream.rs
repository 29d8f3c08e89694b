//! Append streams: bytes in, zones out.
//!
//! `append` copies into a segment and returns; full segments are written by the volume's writer thread, or by whoever needs
//! their room. `drain` writes everything, padding the last block; it is never rewritten. The *placer* (an engine) is asked
//! for zones and told where bytes went, always before a reader could look there.
//!
//! Invariants: at most one write of a stream is under way (`writing`); bytes are placed in order; a byte is in a segment until
//! the placer has been told where it is; nothing is dropped on an error, the next attempt goes on where this one stopped.
//!
//! Errors on the way: the zone is reported, what the drive took is believed, and the rest goes to the same zone once more or
//! to another one. Only where no zone takes it does the caller see an error.

mod spec;
mod write;

pub use spec::{Framing, NewZone, OpenZone, Placed, Placer, StreamSpec, StreamStart};

use crate::frame::{FRAME_HEADER, ZoneHeader};
use crate::medium::memory::{Hurry, Segment, SegmentKey};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::volume::active::Holder;
use crate::volume::deferred::{self, Waiting};
use crate::volume::{Tenant, VolumeCore};
use imbrex_device::{Cause, Error, Fault, Priority, Result, Tag, ZoneId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use write::Writing;

struct State {
    /// Oldest first; the last one takes appends while `filling`.
    segments: VecDeque<Arc<Segment>>,
    filling: bool,
    /// Logical end of what was appended.
    end: u64,
    /// Logical end of what is on the drive.
    placed: u64,
    /// Bytes that the open zone takes beyond what is on the drive.
    room: u64,
    /// Somebody holds the right to write.
    writing: bool,
    /// An append asks for a place for bytes that are not in memory yet: what is promised to the stream stays.
    reserving: bool,
    /// See [`AppendStream::abandon`].
    abandoned: bool,
    /// Full segments wait; see [`StreamSpec::deferred`].
    deferred: bool,
}

struct Zone {
    open: OpenZone,
    /// Its header is still to be written.
    fresh: Option<ZoneHeader>,
    /// Distance back to the last frame's header.
    back: u32,
}

struct Io {
    zone: Option<Zone>,
    sequence: u64,
    /// The last write ended in padding (raw), or was another stream's: the placer hears where the next one begins.
    padded: bool,
    /// Payload bytes of the first segment that are placed already.
    done: usize,
    switched: bool,
    /// The zone before died: the drive will not say how far it was written.
    died: bool,
    /// Left after an error with room in it: nobody's, once the engine knows that the bytes go on elsewhere.
    left: Option<ZoneId>,
}

/// Where a byte of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// This many bytes were copied from memory.
    Memory(usize),
    /// On the drive, up to this logical offset.
    Drive(u64),
    /// Nowhere: at or behind the end.
    End,
}

pub(crate) struct StreamCore {
    volume: Arc<VolumeCore>,
    placer: Arc<dyn Placer>,
    spec: StreamSpec,
    owner: u8,
    id: u64,
    /// Bytes of a zone header.
    front: u32,
    cause: AtomicU8,
    state: Mutex<State>,
    changed: Condvar,
    io: Mutex<Io>,
    queued: AtomicBool,
    me: Weak<StreamCore>,
    /// When it wrote last.
    used: AtomicU64,
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        self.volume.deferred.remove(self.id);
        self.volume.others.remove(self.id);
        // Whatever could not be written and was not given up is still promised.
        for segment in &lock(&self.state).segments {
            segment.leave();
        }
        if let Some(active) = self.volume.active_of(self.owner) {
            active.notify();
        }
    }
}

/// Appends to leased zones. One appender at a time is the rule of the files above; readers and syncers may be many.
pub struct AppendStream {
    core: Arc<StreamCore>,
}

impl AppendStream {
    /// A stream of the tenant. `volatile`: plain memory would do (a stream that replays what survived already).
    pub fn new(tenant: &Tenant, spec: StreamSpec, start: StreamStart, placer: Arc<dyn Placer>) -> AppendStream {
        let volume = tenant.volume().core().clone();
        let block = volume.geometry.block;
        let zone = |open| Zone { open, fresh: None, back: 0 };
        let core = Arc::new_cyclic(|me: &Weak<StreamCore>| StreamCore {
            me: me.clone(),
            used: AtomicU64::new(0),
            owner: tenant.owner(),
            id: volume.next_stream(),
            front: block.max(4096),
            cause: AtomicU8::new(spec.cause as u8),
            state: Mutex::new(State {
                segments: VecDeque::new(),
                filling: false,
                end: start.logical,
                placed: start.logical,
                room: start.zone.map_or(0, |zone| zone.capacity.saturating_sub(zone.at)),
                writing: false,
                reserving: false,
                abandoned: false,
                deferred: spec.deferred > 0,
            }),
            changed: Condvar::new(),
            io: Mutex::new(Io {
                zone: start.zone.map(zone),
                sequence: start.sequence,
                padded: start.zone.is_some(),
                done: 0,
                switched: false,
                died: false,
                left: None,
            }),
            queued: AtomicBool::new(false),
            volume,
            placer,
            spec,
        });
        if let (Some(active), Some(open)) = (core.volume.active_of(core.owner), start.zone) {
            active.hold(open.zone, core.holder());
        }
        if spec.deferred > 0 {
            core.volume.deferred.add(core.id, &core.me);
            core.volume.watch_clock();
        } else {
            core.volume.others.add(core.id, &core.me);
        }
        AppendStream { core }
    }

    /// From now on full segments are written at once, as those of others.
    pub fn hurry(&self) {
        let mut state = lock(&self.core.state);
        state.deferred = false;
        let full = state.segments.len() > usize::from(state.filling);
        drop(state);
        if full {
            self.core.write_soon();
        }
    }

    /// Nothing more will come soon: what is not full counts as full.
    pub fn seal(&self) {
        let mut state = lock(&self.core.state);
        // One without a byte in it is none.
        if state.filling && state.segments.back().is_some_and(|last| last.is_empty()) {
            state.segments.pop_back();
        }
        state.filling = false;
    }

    /// Whether full segments wait in memory.
    pub fn is_deferred(&self) -> bool {
        lock(&self.core.state).deferred
    }

    /// Appends `bytes`; returns the logical offset of the first. No I/O unless all segments are full.
    ///
    /// # Errors
    /// Those of the write that had to make room; then only part of `bytes` may have been taken (see [`AppendStream::len`]).
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.core.append(bytes)
    }

    /// Logical end, bytes in memory included.
    pub fn len(&self) -> u64 {
        lock(&self.core.state).end
    }

    /// Whether nothing was ever appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Logical end of what is on the drive.
    pub fn placed(&self) -> u64 {
        lock(&self.core.state).placed
    }

    /// Writes everything that was appended before the call. Not a flush.
    pub fn drain(&self, priority: Priority) -> Result<()> {
        self.core.drain(priority)
    }

    /// Copies bytes at logical offset `at` into `out`, as far as they are in memory.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Where {
        self.core.read(at, out)
    }

    /// Ends the stream: waits for a write under way, then drops what is not on the drive. No zone of it is written after
    /// this returns. Appends and drains fail from now on.
    pub fn abandon(&self) {
        self.core.abandon();
    }

    /// Ends the stream like [`AppendStream::abandon`], but what is not on the drive stays for the next mount, as if the
    /// process had died here. For a volume that takes no more writes.
    pub fn leave(&self) {
        for segment in &lock(&self.core.state).segments {
            segment.leave();
        }
        self.core.abandon();
    }

    /// Gives back the zone that the stream writes to, where it has room and all that was appended stands in it. The stream goes
    /// on, if it does, in a zone of its own.
    pub fn give_back(&self) -> Option<OpenZone> {
        let writing = self.core.wait_to_write();
        if !lock(&self.core.state).segments.is_empty() {
            return None;
        }
        self.core.placer.idle();
        let mut io = lock(&self.core.io);
        if io.died || io.zone.as_ref().is_none_or(|zone| zone.fresh.is_some()) {
            return None;
        }
        (io.switched, io.padded) = (true, false);
        // Also one that is full: this stream may live on beside the file's next one, and has nothing more to say of it.
        let open = io.zone.take()?.open;
        drop(io);
        lock(&self.core.state).room = 0;
        drop(writing);
        let has_room = open.at < open.capacity;
        if let Some(active) = self.core.volume.active_of(self.core.owner) {
            // The engine's, until it says that it keeps it.
            if has_room { active.taken(open.zone) } else { active.left_behind(open.zone) }
        }
        has_room.then_some(open)
    }

    /// Whether it was ended.
    pub fn is_abandoned(&self) -> bool {
        lock(&self.core.state).abandoned
    }

    /// From now on writes for another cause.
    pub fn set_cause(&self, cause: Cause) {
        self.core.cause.store(cause as u8, Ordering::Relaxed);
    }
}

impl StreamCore {
    fn holder(&self) -> Holder {
        Holder::Stream(self.me.clone())
    }

    /// Of two streams, the one that wrote later has the higher number.
    pub(crate) fn last_write(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn owner(&self) -> u8 {
        self.owner
    }

    /// Gives up the zone, which somebody else needs, and what was promised to the stream, if nobody is writing to it; what is in memory is
    /// written first. `may_wait`: also where that has to wait for another stream, or for who writes to this one; only for who holds no
    /// stream's right to write. False: it cannot, or has none with room for `need`.
    pub(crate) fn leave_zone(&self, need: u64, may_wait: bool) -> Result<bool> {
        let mut state = lock(&self.state);
        while may_wait && state.writing {
            state = wait(&self.changed, state);
        }
        if state.writing || state.abandoned || state.reserving {
            return Ok(false);
        }
        if !state.segments.is_empty() && !may_wait && !self.placer.can_write() {
            return Ok(false);
        }
        state.filling = false;
        let target = state.end;
        let mut writing = self.start_writing(state);
        writing.quiet = true;
        while lock(&self.state).placed < target {
            writing.write_front(Priority::Normal)?;
        }
        let mut io = lock(&self.io);
        let mut state = lock(&self.state);
        if !state.segments.is_empty() || state.reserving {
            // More has come meanwhile, which counts on this zone.
            return Ok(false);
        }
        // Nothing is in memory that counts on it, and who appends next asks again.
        self.placer.idle();
        let open = io.zone.as_ref().filter(|zone| zone.fresh.is_none() && !io.died).map(|zone| zone.open);
        let Some(open) = open.filter(|open| open.capacity.saturating_sub(open.at) >= need.max(1)) else {
            return Ok(false);
        };
        let room = std::mem::take(&mut state.room);
        drop(state);
        // The engine's, until it says that it keeps it: then it may be somebody else's.
        if let Some(active) = self.volume.active_of(self.owner) {
            active.taken(open.zone);
        }
        match self.placer.leave_zone(&open, target) {
            Ok(true) => {}
            kept => {
                if let Some(active) = self.volume.active_of(self.owner) {
                    active.hold(open.zone, self.holder());
                }
                lock(&self.state).room = room;
                return kept;
            }
        }
        (io.zone, io.switched, io.padded) = (None, true, false);
        Ok(true)
    }

    pub(crate) fn is_framed(&self) -> bool {
        self.spec.framing == Framing::Framed
    }

    fn tag(&self, priority: Priority) -> Tag {
        let cause = Cause::ALL.get(usize::from(self.cause.load(Ordering::Relaxed))).copied().unwrap_or(Cause::Other);
        Tag { cause, priority }
    }

    fn append(self: &Arc<Self>, bytes: &[u8]) -> Result<u64> {
        let mut state = lock(&self.state);
        let at = state.end;
        let mut rest = bytes;
        while !rest.is_empty() {
            if !state.filling {
                state = self.claim(state)?;
                continue;
            }
            let n = self.fill(&mut state, rest);
            rest = &rest[n..];
        }
        Ok(at)
    }

    /// Puts bytes into the filling segment; seals it when it is full.
    fn fill(self: &Arc<Self>, state: &mut State, bytes: &[u8]) -> usize {
        let Some(segment) = state.segments.back() else { return 0 };
        let n = segment.append(bytes);
        let full = segment.len() == segment.capacity();
        state.end += n as u64;
        if full {
            state.filling = false;
            if !state.deferred {
                self.write_soon();
            } else if self.volume.is_nearly_short() {
                self.volume.relieve_soon();
            }
        }
        n
    }

    /// Full segments are to be written by whoever does background work.
    fn write_soon(&self) {
        if let Some(me) = self.me.upgrade()
            && !self.queued.swap(true, Ordering::AcqRel)
        {
            self.volume.enqueue(me);
        }
    }

    /// What waits here; `now` tells what is old.
    pub(crate) fn waiting(&self, now: Duration) -> Waiting {
        let state = lock(&self.state);
        let full = state.segments.len() > usize::from(state.filling) && !state.abandoned;
        let first = state.segments.front().filter(|first| !first.is_empty() && !state.abandoned);
        let old = first.is_some_and(|first| now.saturating_sub(first.since()) >= deferred::LONGEST);
        Waiting { stream: self.id, full, some: first.is_some(), old }
    }

    /// When the oldest of its segments was claimed, and its number, which counts where the time stands still. `None`: it has no memory.
    pub(crate) fn oldest(&self) -> Option<(Duration, u64)> {
        let state = lock(&self.state);
        let first = state.segments.front().map(|first| first.since());
        // Of one that is just written the memory comes back in a moment, although the stream has it no more.
        Some((first.or(state.writing.then_some(Duration::MAX))?, self.id))
    }

    /// Gets one more segment, or makes room for it. May return without one: look again.
    fn claim<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        if state.abandoned {
            return Err(self.is_abandoned());
        }
        let mut want = self.spec.segment_bytes;
        let mut full = None;
        let mut most = if state.deferred { self.spec.deferred } else { self.spec.segments };
        if state.segments.len() < most && ((state.segments.len() + 1) * want) as u64 > state.room {
            // Not under the lock: the engine may have to make zones free first.
            let deferred = state.deferred;
            state.reserving = true;
            drop(state);
            full = self.placer.reserve((most * want) as u64, deferred).err();
            state = lock(&self.state);
            state.reserving = false;
            if state.abandoned {
                return Err(self.is_abandoned());
            }
            if full.is_some() && state.deferred {
                // There may be room for less.
                state.deferred = false;
                self.write_soon();
                return Ok(state);
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
        }
        if full.is_none() && state.segments.len() < most {
            let key = SegmentKey { owner: self.owner, file: self.spec.file, life: self.spec.life, logical: state.end };
            let hurry = if state.deferred { Hurry::Deferred } else { Hurry::Soon };
            let front = self.front + if self.is_framed() { FRAME_HEADER as u32 } else { 0 };
            match self.volume.memory().claim(key, front, want, hurry) {
                Some(segment) => {
                    state.segments.push_back(Arc::new(segment.claimed_at(self.volume.now())));
                    state.filling = true;
                    return Ok(state);
                }
                // Others may have what is in no hurry, or this one has it itself.
                None if state.deferred || state.segments.is_empty() => {
                    drop(state);
                    let relieved = self.volume.relieve();
                    state = lock(&self.state);
                    let relieved = match relieved {
                        // What another one cannot write is not this one's business, as long as it can go on.
                        Err(_) if state.deferred || !state.segments.is_empty() => false,
                        other => other?,
                    };
                    if relieved || state.deferred || !state.segments.is_empty() {
                        // With nothing to be had from others it goes on as those that are in a hurry.
                        state.deferred &= relieved;
                        return Ok(state);
                    }
                    let what = "too many files are being written at once for the survivor's memory; close some";
                    return Err(self.volume.error(Fault::InvalidInput(what.into())));
                }
                None => {}
            }
        }
        if state.writing {
            return Ok(wait(&self.changed, state));
        }
        let writing = self.start_writing(state);
        writing.write_front(Priority::Normal)?;
        drop(writing);
        Ok(lock(&self.state))
    }

    /// Takes the right to write, which nobody may hold.
    fn start_writing<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Writing<'a> {
        debug_assert!(!state.writing);
        state.writing = true;
        Writing { core: self, quiet: false }
    }

    fn wait_to_write(&self) -> Writing<'_> {
        let mut state = lock(&self.state);
        while state.writing {
            state = wait(&self.changed, state);
        }
        self.start_writing(state)
    }

    fn abandon(&self) {
        let mut state = lock(&self.state);
        state.abandoned = true;
        while state.writing {
            state = wait(&self.changed, state);
        }
        state.segments.clear();
        state.filling = false;
        self.changed.notify_all();
        drop(state);
        self.placer.idle();
        if let Some(active) = self.volume.active_of(self.owner) {
            let io = lock(&self.io);
            io.zone.iter().map(|zone| zone.open.zone).chain(io.left).for_each(|zone| active.left_behind(zone));
        }
    }

    fn is_abandoned(&self) -> Error {
        self.volume.error(Fault::InvalidInput("the stream was ended".into()))
    }

    fn drain(&self, priority: Priority) -> Result<()> {
        let mut state = lock(&self.state);
        let target = state.end;
        if state.placed >= target {
            return Ok(());
        }
        // The bytes up to the target may still be in the filling segment: seal it, the next append starts another.
        state.filling = false;
        while state.writing {
            state = wait(&self.changed, state);
            if state.placed >= target {
                return Ok(());
            }
        }
        if state.abandoned {
            return Err(self.is_abandoned());
        }
        let writing = self.start_writing(state);
        while lock(&self.state).placed < target {
            writing.write_front(priority)?;
        }
        Ok(())
    }

    /// Writes full segments, up to `bytes` and at least one.
    pub(crate) fn write_ready(self: &Arc<Self>, bytes: u64) -> Result<()> {
        self.queued.store(false, Ordering::Release);
        let writing = self.wait_to_write();
        let mut written = 0;
        while written < bytes && self.has_sealed() {
            match writing.write_front(Priority::Background)? {
                0 => break,
                n => written += n,
            }
        }
        drop(writing);
        if self.has_sealed() && !self.queued.swap(true, Ordering::AcqRel) {
            self.volume.enqueue(self.clone());
        }
        Ok(())
    }

    /// Writes what waits, oldest first: `bytes` or a little more, none that was claimed later than `until`, and what is not full only
    /// where `all` is wanted.
    pub(crate) fn write_waiting(&self, bytes: u64, all: bool, until: Option<Duration>) -> Result<()> {
        let writing = self.wait_to_write();
        let mut written = 0;
        while written < bytes {
            let mut state = lock(&self.state);
            let due = |first: &Arc<Segment>| until.is_none_or(|until| first.since() <= until);
            if !state.segments.front().is_some_and(due) {
                break;
            }
            state.filling &= !(all && state.segments.len() == 1);
            drop(state);
            match writing.write_front(Priority::Background)? {
                0 => break,
                n => written += n,
            }
        }
        Ok(())
    }

    fn has_sealed(&self) -> bool {
        let state = lock(&self.state);
        state.segments.len() > usize::from(state.filling)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Where {
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
}
