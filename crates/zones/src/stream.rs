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

use crate::frame::{FRAME_HEADER, Frame, FrameId, ZoneHeader};
use crate::memory::{Layout, Segment, SegmentKey};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use crate::volume::{Tenant, VolumeCore, write_all};
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Priority, Result, Tag, ZoneId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Zones that one segment may fail on before the error reaches the caller.
const MAX_ATTEMPTS: u32 = 8;

/// How bytes stand in the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Nothing but the bytes; their number is the engine's business.
    Raw,
    /// In frames, so that the log tells its own size.
    Framed {
        /// Longest frame in bytes, header included; 0: one frame a segment.
        max_frame: u32,
    },
}

/// What a stream is like.
#[derive(Clone, Copy, Debug)]
pub struct StreamSpec {
    /// The engine's number of the file.
    pub file: u64,
    /// Tells this stream's left-behind segments from others of the same file number.
    pub life: u64,
    /// See [`Framing`].
    pub framing: Framing,
    /// Bytes of a segment, and so of a device write.
    pub segment_bytes: usize,
    /// How many segments may wait; an append waits for room beyond that.
    pub segments: usize,
    /// Why it writes.
    pub cause: Cause,
    /// Whether no byte may become durable before those before it, also across zones.
    pub ordered: bool,
}

/// A zone that a stream is to go on in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenZone {
    /// Which.
    pub zone: ZoneId,
    /// Its life.
    pub life: u64,
    /// Its write pointer, in bytes from its start.
    pub at: u64,
    /// Bytes that can be written to it, from its start.
    pub capacity: u64,
}

/// Where a stream begins: nothing for a new file.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamStart {
    /// Logical offset of the next byte.
    pub logical: u64,
    /// The zone that the last bytes stand in, if it has room.
    pub zone: Option<OpenZone>,
    /// Sequence number of the next frame.
    pub sequence: u64,
}

/// A new zone from the placer.
#[derive(Clone, Debug)]
pub struct NewZone {
    /// The zone; empty.
    pub zone: ZoneId,
    /// What to write at its start.
    pub header: ZoneHeader,
}

/// Bytes that are on the drive now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Logical offset of the first byte.
    pub logical: u64,
    /// How many.
    pub len: u64,
    /// In which zone.
    pub zone: ZoneId,
    /// The zone's life.
    pub life: u64,
    /// Where in the zone: the frame's header, or, raw, the first byte.
    pub at: u64,
}

/// The engine's side of a stream. Called with the stream's writing right held, and no other lock of this crate.
pub trait Placer: Send + Sync {
    /// Before the first of some writes: what must be durable earlier is made so here.
    fn before_write(&self) -> Result<()> {
        Ok(())
    }
    /// A zone for the bytes from `logical` on. The engine records it (in memory that survives the process) before it returns.
    fn next_zone(&self, logical: u64) -> Result<NewZone>;
    /// The bytes from `logical` on stand at `at` of the same zone: behind padding (raw streams), or at the start of a stream
    /// that goes on in a zone.
    fn resume(&self, _logical: u64, _zone: ZoneId, _life: u64, _at: u64) -> Result<()> {
        Ok(())
    }
    /// Raw streams: the next write ends in padding; the file's bytes end at `size`. Recorded before that write.
    fn announce(&self, _size: u64) -> Result<()> {
        Ok(())
    }
    /// These bytes are on the drive (not yet durable).
    fn placed(&self, _placed: &Placed, _bytes: &[u8]) {}
}

struct State {
    /// Oldest first; the last one takes appends while `filling`.
    segments: VecDeque<Arc<Segment>>,
    filling: bool,
    /// Logical end of what was appended.
    end: u64,
    /// Logical end of what is on the drive.
    placed: u64,
    /// Somebody holds the right to write.
    writing: bool,
    /// See [`AppendStream::abandon`].
    abandoned: bool,
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
    layout: Layout,
    cause: AtomicU8,
    state: Mutex<State>,
    changed: Condvar,
    io: Mutex<Io>,
    queued: AtomicBool,
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        // Whatever could not be written and was not given up is still promised.
        for segment in &lock(&self.state).segments {
            segment.leave();
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
        let frame = match spec.framing {
            Framing::Raw => 0,
            Framing::Framed { max_frame: 0 } => u32::try_from(spec.segment_bytes).unwrap_or(u32::MAX),
            Framing::Framed { max_frame } => max_frame,
        };
        let zone = |open| Zone { open, fresh: None, back: 0 };
        let core = StreamCore {
            owner: tenant.owner(),
            id: volume.next_stream(),
            layout: Layout { front: block.max(4096), frame },
            cause: AtomicU8::new(spec.cause as u8),
            state: Mutex::new(State {
                segments: VecDeque::new(),
                filling: false,
                end: start.logical,
                placed: start.logical,
                writing: false,
                abandoned: false,
            }),
            changed: Condvar::new(),
            io: Mutex::new(Io {
                zone: start.zone.map(zone),
                sequence: start.sequence,
                padded: start.zone.is_some(),
                done: 0,
                switched: false,
            }),
            queued: AtomicBool::new(false),
            volume,
            placer,
            spec,
        };
        AppendStream { core: Arc::new(core) }
    }

    /// Appends `bytes`; returns the logical offset of the first. No I/O unless all segments are full.
    ///
    /// # Errors
    /// Those of the write that had to make room; then only part of `bytes` may have been taken (see [`AppendStream::len`]).
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.core.append(bytes, false)
    }

    /// Appends `bytes` so that they stand in one frame: the frame before is filled up with zero bytes where they would not
    /// fit. Returns the logical offset of the first.
    pub fn append_whole(&self, bytes: &[u8]) -> Result<u64> {
        self.core.append(bytes, true)
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
    fn tag(&self, priority: Priority) -> Tag {
        let cause = Cause::ALL.get(usize::from(self.cause.load(Ordering::Relaxed))).copied().unwrap_or(Cause::Other);
        Tag { cause, priority }
    }

    fn append(self: &Arc<Self>, bytes: &[u8], whole: bool) -> Result<u64> {
        let mut state = lock(&self.state);
        if whole {
            state = self.start_whole(state, bytes.len())?;
        }
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
            if !self.queued.swap(true, Ordering::AcqRel) {
                self.volume.enqueue(self.clone());
            }
        }
        n
    }

    /// Pads so that `n` bytes fit into one frame.
    fn start_whole<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        n: usize,
    ) -> Result<MutexGuard<'a, State>> {
        const ZEROS: [u8; 4096] = [0; 4096];
        loop {
            if !state.filling {
                state = self.claim(state)?;
            }
            let room = state.segments.back().map_or(0, |s| s.frame_room());
            if room >= n {
                return Ok(state);
            }
            let mut pad = room;
            while pad > 0 {
                pad -= self.fill(&mut state, &ZEROS[..pad.min(ZEROS.len())]);
            }
        }
    }

    /// Gets one more segment, or makes room for it. May return without one: look again.
    fn claim<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        if state.abandoned {
            return Err(self.is_abandoned());
        }
        if state.segments.len() < self.spec.segments {
            let key = SegmentKey { owner: self.owner, file: self.spec.file, life: self.spec.life, logical: state.end };
            match self.volume.memory().claim(key, self.layout, self.spec.segment_bytes) {
                Some(segment) => {
                    state.segments.push_back(Arc::new(segment));
                    state.filling = true;
                    return Ok(state);
                }
                None if state.segments.is_empty() => {
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
        Writing { core: self }
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

/// The right to write of one stream.
struct Writing<'a> {
    core: &'a StreamCore,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        lock(&self.core.state).writing = false;
        self.core.changed.notify_all();
    }
}

impl Writing<'_> {
    /// Writes the oldest segment, which must be sealed (or there is nothing to do). Returns the bytes written.
    fn write_front(&self, priority: Priority) -> Result<u64> {
        let core = self.core;
        core.volume.flusher.check()?;
        let segment = {
            let state = lock(&core.state);
            if state.abandoned {
                return if priority == Priority::Background { Ok(0) } else { Err(core.is_abandoned()) };
            }
            let sealed = state.segments.len() > usize::from(state.filling);
            match state.segments.front() {
                Some(segment) if sealed => segment.clone(),
                _ => return Ok(0),
            }
        };
        core.placer.before_write()?;
        let mut io = lock(&core.io);
        let written = match core.layout.frame {
            0 => self.write_raw(&mut io, &segment, priority)?,
            _ => self.write_framed(&mut io, &segment, priority)?,
        };
        io.done = 0;
        drop(io);
        let mut state = lock(&core.state);
        state.segments.pop_front();
        state.placed = segment.end();
        core.changed.notify_all();
        Ok(written)
    }

    /// Makes sure that the open zone takes `need` bytes; with its header, where that is still to be written. Returns the room
    /// behind the write pointer.
    fn zone_for(&self, io: &mut Io, logical: u64, need: u64, priority: Priority) -> Result<u64> {
        let core = self.core;
        for _ in 0..2 {
            if let Some(zone) = &io.zone {
                let front = if zone.fresh.is_some() { u64::from(core.layout.front) } else { 0 };
                let room = zone.open.capacity.saturating_sub(zone.open.at + front);
                if room >= need {
                    return Ok(room);
                }
            }
            if io.zone.take().is_some() {
                io.switched = true;
            }
            if io.switched && core.spec.ordered {
                // What comes must not be durable before what stands in the zone before.
                core.volume.sync(core.tag(priority))?;
            }
            let new = core.placer.next_zone(logical)?;
            let report = core.volume.report_one(new.zone)?;
            let open = OpenZone { zone: new.zone, life: new.header.life, at: 0, capacity: report.capacity };
            io.zone = Some(Zone { open, fresh: Some(new.header), back: 0 });
            io.padded = false;
            io.switched = false;
        }
        Err(core.volume.error(Fault::InvalidInput("a write is larger than a zone".into())))
    }

    /// One device write at the open zone's write pointer.
    fn write(&self, io: &mut Io, bytes: &[u8], priority: Priority) -> Result<u64> {
        let core = self.core;
        let Some(zone) = &mut io.zone else {
            return Err(core.volume.error(Fault::InvalidInput("no zone is open".into())));
        };
        let at = zone.open.at;
        let address = core.volume.geometry.start(zone.open.zone) + at;
        core.volume.in_turn(core.id, priority, bytes.len() as u64, || {
            write_all(core.volume.drive.device.as_ref(), bytes, address, core.tag(priority))
        })?;
        zone.open.at += bytes.len() as u64;
        Ok(at)
    }

    /// After a failed write: believes the drive about what it took. Returns whether the zone may be tried again; otherwise it
    /// is left behind.
    fn recover(&self, io: &mut Io, error: &Error, attempt: u32) -> Result<()> {
        let core = self.core;
        core.volume.flusher.check()?;
        let host_full = matches!(&error.fault, Fault::Io(e) if e.kind() == std::io::ErrorKind::StorageFull);
        if attempt >= MAX_ATTEMPTS || matches!(error.fault, Fault::NoSpace | Fault::InvalidInput(_)) {
            return Err(error.clone());
        }
        let Some(zone) = &mut io.zone else { return Err(error.clone()) };
        let report = core.volume.report_one(zone.open.zone)?;
        let mut torn_header = false;
        tracing::warn!(%error, state = report.state.name(), "a write failed; the zone was asked what it took");
        match report.wp {
            Some(wp) if wp >= zone.open.at => {
                torn_header = zone.fresh.is_some() && wp > 0 && wp < u64::from(core.layout.front);
                if wp > zone.open.at {
                    zone.fresh = None;
                }
                zone.open.at = wp;
            }
            _ => {}
        }
        if host_full {
            return Err(error.clone());
        }
        if torn_header || !report.state.writable() || attempt % 2 == 1 {
            io.zone = None;
            io.switched = true;
        }
        Ok(())
    }

    fn write_framed(&self, io: &mut Io, segment: &Segment, priority: Priority) -> Result<u64> {
        let core = self.core;
        let (frame_bytes, front) = (core.layout.frame as usize, core.layout.front as usize);
        let block = core.volume.geometry.block as usize;
        let payload = frame_bytes - FRAME_HEADER;
        let len = segment.len();
        let (full, rest) = (len / payload, len % payload);
        let tail = if rest > 0 { (FRAME_HEADER + rest).next_multiple_of(block) } else { 0 };
        let total = full * frame_bytes + tail;
        let image = segment.image();
        let mut attempt = 0;
        loop {
            self.zone_for(io, segment.key().logical, total as u64, priority)?;
            let Some(zone) = &io.zone else { continue };
            if io.padded {
                let open = zone.open;
                core.placer.resume(segment.key().logical, open.zone, open.life, open.at)?;
                io.padded = false;
            }
            let Some(zone) = &io.zone else { continue };
            let id = FrameId { file: core.spec.file, life: zone.open.life };
            let at = zone.open.at + if zone.fresh.is_some() { front as u64 } else { 0 };
            let mut back = zone.back;
            let mut frames = Vec::with_capacity(full + 1);
            for i in 0..full + usize::from(rest > 0) {
                let n = if i < full { payload } else { rest };
                let place = front + i * frame_bytes;
                let header = Frame {
                    sequence: io.sequence + i as u64,
                    logical: segment.key().logical + (i * payload) as u64,
                    at: at + (i * frame_bytes) as u64,
                    len: n as u32,
                    back,
                    payload_crc: crc32c::crc32c(image.bytes(place + FRAME_HEADER, n)),
                };
                image.put(place, &header.encode(id));
                back = header.footprint(block as u32) as u32;
                frames.push(header);
            }
            if tail > 0 {
                let used = FRAME_HEADER + rest;
                image.zero(front + full * frame_bytes + used, tail - used);
            }
            let from = match &zone.fresh {
                Some(header) => {
                    image.zero(0, front);
                    let mut block = vec![0; 512];
                    header.encode_into(&mut block);
                    image.put(0, &block);
                    0
                }
                None => front,
            };
            match self.write(io, image.bytes(from, front - from + total), priority) {
                Ok(_) => {
                    io.sequence += frames.len() as u64;
                    if let Some(zone) = &mut io.zone {
                        zone.fresh = None;
                        zone.back = back;
                        for (i, frame) in frames.iter().enumerate() {
                            let placed = Placed {
                                logical: frame.logical,
                                len: u64::from(frame.len),
                                zone: zone.open.zone,
                                life: zone.open.life,
                                at: frame.at,
                            };
                            let start = front + i * frame_bytes + FRAME_HEADER;
                            core.placer.placed(&placed, image.bytes(start, frame.len as usize));
                        }
                    }
                    return Ok(total as u64);
                }
                Err(error) => self.recover(io, &error, attempt)?,
            }
            attempt += 1;
        }
    }

    fn write_raw(&self, io: &mut Io, segment: &Segment, priority: Priority) -> Result<u64> {
        let core = self.core;
        let front = core.layout.front as usize;
        let block = core.volume.geometry.block as usize;
        let len = segment.len();
        let image = segment.image();
        let mut attempt = 0;
        let mut written = 0;
        while io.done < len {
            let logical = segment.key().logical + io.done as u64;
            let room = self.zone_for(io, logical, block as u64, priority)?;
            let left = (len - io.done).next_multiple_of(block);
            let n = usize::try_from(room).unwrap_or(usize::MAX).min(left) / block * block;
            let real = n.min(len - io.done);
            let Some(zone) = &mut io.zone else { continue };
            // Before the new size is announced: until the placer knows that this zone goes on behind padding, the old size
            // is all that tells the padding from the bytes.
            if io.padded {
                core.placer.resume(logical, zone.open.zone, zone.open.life, zone.open.at)?;
                io.padded = false;
            }
            if real < n {
                let padding = front + io.done + real;
                image.zero(padding, n - real);
                core.placer.announce(logical + real as u64)?;
            }
            let mut from = front + io.done;
            if let Some(header) = &zone.fresh {
                let mut bytes = AlignedBuf::zeroed(front);
                header.encode_into(&mut bytes);
                if io.done == 0 {
                    image.put(0, &bytes);
                    from = 0;
                } else if let Err(error) = self.write(io, &bytes, priority) {
                    self.recover(io, &error, attempt)?;
                    attempt += 1;
                    continue;
                } else if let Some(zone) = &mut io.zone {
                    // Now, not with the bytes: should they fail, the next attempt must not write it again.
                    zone.fresh = None;
                }
            }
            let Some(zone) = &io.zone else { continue };
            let (id, life, before) = (zone.open.zone, zone.open.life, zone.open.at);
            let data_at = before + (front + io.done - from) as u64;
            let result = self.write(io, image.bytes(from, front + io.done + n - from), priority);
            let took = match &result {
                Ok(_) => n,
                Err(error) => {
                    self.recover(io, error, attempt)?;
                    attempt += 1;
                    // What the drive took of it, in whole blocks.
                    let after = core.volume.report_one(id)?.wp.unwrap_or(before);
                    usize::try_from(after.saturating_sub(data_at)).unwrap_or(0).min(n)
                }
            };
            if result.is_ok()
                && let Some(zone) = &mut io.zone
            {
                zone.fresh = None;
            }
            if took > 0 {
                let bytes = took.min(real);
                let placed = Placed { logical, len: bytes as u64, zone: id, life, at: data_at };
                core.placer.placed(&placed, image.bytes(front + io.done, bytes));
                io.done += bytes;
                io.padded = took > bytes && io.zone.is_some();
                written += took as u64;
                lock(&core.state).placed = logical + bytes as u64;
            }
        }
        Ok(written)
    }
}
