//! The right to write: segments to zones, step by step, and what happens when a write fails.

use super::{ByteWriter, Io, NewZone, Placed, PlacedBytes, Step, Zone};
use crate::frame::{FRAME_HEADER, Frame, FrameId};
use crate::medium::memory::Segment;
use crate::sync::lock;
use crate::volume::active::ZoneKeeper;
use crate::volume::{OpenZone, write_all};
use imbrex_device::{AlignedBuf, Error, Fault, Priority, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Zones that one segment may fail on before the error reaches the caller.
const MAX_ATTEMPTS: u32 = 8;

/// The right to write a [`ByteWriter`]'s segments; given back when dropped.
#[must_use]
pub struct WriteGuard<'a> {
    writer: &'a ByteWriter,
    /// Taken only to see whether the writer can give up its zone: where it cannot, its end is no news to who waits for one.
    pub(super) quiet: bool,
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        let mut io = lock(&self.writer.io);
        let mut state = lock(&self.writer.state);
        // Also where the engine had no other zone for the bytes.
        (state.room, io.attempts) = (io.room(), 0);
        state.writing = false;
        drop((state, io));
        self.writer.changed.notify_all();
        if let Some(active) = self.writer.volume.active_of(self.writer.owner).filter(|_| !self.quiet) {
            active.notify();
        }
    }
}

impl Io {
    /// Bytes that the open zone takes.
    fn room(&self) -> u64 {
        self.zone.as_ref().map_or(0, |zone| zone.open.capacity.saturating_sub(zone.open.at))
    }
}

/// What a piece of a write came to: a step for the engine, or nothing that it has to know.
type Piece = Option<Step>;

impl<'a> WriteGuard<'a> {
    pub(super) fn new(writer: &'a ByteWriter) -> WriteGuard<'a> {
        WriteGuard { writer, quiet: false }
    }

    /// Whether a segment is sealed, so that [`WriteGuard::write`] has something to write.
    pub fn is_due(&self) -> bool {
        let state = lock(&self.writer.state);
        state.is_sealed() && !state.abandoned
    }

    /// Goes on with the oldest segment, if it is sealed, until it is on the drive or the engine is needed. Waits for the drive.
    ///
    /// # Errors
    /// Of the drive, where no zone takes the bytes; of a poisoned volume; `InvalidInput` after an end, unless in the background.
    pub fn write(&mut self, priority: Priority) -> Result<Step> {
        let writer = self.writer;
        let mut io = lock(&writer.io);
        if let Some(end) = io.told.take() {
            lock(&writer.state).placed = end;
        }
        writer.volume.flusher.check()?;
        let segment = {
            let state = lock(&writer.state);
            if state.abandoned {
                return if priority == Priority::Background { Ok(Step::Nothing) } else { Err(writer.is_over()) };
            }
            match state.segments.front() {
                Some(segment) if state.is_sealed() => segment.clone(),
                _ => return Ok(Step::Nothing),
            }
        };
        let step = loop {
            if io.done >= segment.len() {
                break Ok(None);
            }
            let step = match writer.is_framed() {
                false => self.write_raw(&mut io, &segment, priority),
                true => self.write_framed(&mut io, &segment, priority),
            };
            match step {
                Ok(None) => {}
                other => break other,
            }
        };
        if let Ok(Some(step)) = step {
            return Ok(step);
        }
        let mut state = lock(&writer.state);
        state.room = io.room();
        io.attempts = 0;
        match step {
            Ok(_) => {
                io.done = 0;
                state.segments.pop_front();
                state.placed = segment.end();
                writer.changed.notify_all();
                Ok(Step::Wrote(std::mem::take(&mut io.written)))
            }
            Err(error) => Err(error),
        }
    }

    /// The zone that was asked for ([`Step::Zone`]). On a drive that limits active zones it waits until one more may be; `keeper` has others give up
    /// theirs.
    ///
    /// # Errors
    /// Those of a report of the zone, and of what has to be written to make room.
    pub fn give(&mut self, new: NewZone, keeper: &dyn ZoneKeeper) -> Result<()> {
        let writer = self.writer;
        if let Some(left) = lock(&writer.io).left.take() {
            writer.volume.finish(writer.owner, left);
        }
        writer.volume.activate(writer.owner, new.zone, writer.holder(), Some(keeper))?;
        let report = writer.volume.report_one(new.zone)?;
        let open = OpenZone { zone: new.zone, life: new.header.life, at: new.at, capacity: report.capacity };
        let mut io = lock(&writer.io);
        io.zone = Some(Zone { open, fresh: Some(new.header), back: 0 });
        (io.padded, io.switched, io.died) = (false, false, false);
        Ok(())
    }

    /// The engine has recorded where the bytes go on ([`Step::Resume`]).
    pub fn resumed(&mut self) {
        lock(&self.writer.io).padded = false;
    }

    /// The engine has recorded the size ([`Step::Announce`]).
    pub fn announced(&mut self, size: u64) {
        lock(&self.writer.io).announced = Some(size);
    }

    /// The zone, where it has `need` bytes of room and nothing is in memory that counts on it; [`WriteGuard::left`] says what becomes of it. `idle` is called
    /// where nothing is in memory, under the writer's lock: what is reserved for the writer is not needed any more.
    pub(in crate::write) fn zone_to_leave(&mut self, need: u64, idle: impl FnOnce()) -> Option<OpenZone> {
        let writer = self.writer;
        let io = lock(&writer.io);
        let mut state = lock(&writer.state);
        if !state.segments.is_empty() || state.reserving {
            // More has come meanwhile, which counts on this zone.
            return None;
        }
        // Who appends next asks again.
        idle();
        let open = io.zone.as_ref().filter(|zone| zone.fresh.is_none() && !io.died).map(|zone| zone.open);
        let open = open.filter(|open| open.capacity.saturating_sub(open.at) >= need.max(1))?;
        state.room = 0;
        drop(state);
        // The engine's, until it says that it keeps it: then it may be somebody else's.
        if let Some(active) = writer.volume.active_of(writer.owner) {
            active.taken(open.zone);
        }
        Some(open)
    }

    /// The engine has the zone now (true), or the writer keeps it.
    pub(in crate::write) fn left(&mut self, left: bool) {
        let writer = self.writer;
        let mut io = lock(&writer.io);
        if left {
            (io.zone, io.switched, io.padded) = (None, true, false);
        } else if let (Some(zone), Some(active)) = (&io.zone, writer.volume.active_of(writer.owner)) {
            active.hold(zone.open.zone, writer.holder());
        }
    }

    /// The room behind the write pointer of the open zone, if that takes `need` bytes; with its header, where that is still to be written. `None`: another
    /// zone is needed.
    fn room(&self, io: &mut Io, need: u64, priority: Priority) -> Result<Option<u64>> {
        let writer = self.writer;
        if let Some(zone) = &io.zone {
            let front = if zone.fresh.is_some() { u64::from(writer.front) } else { 0 };
            let room = zone.open.capacity.saturating_sub(zone.open.at + front);
            if room >= need {
                return Ok(Some(room));
            }
            if zone.fresh.is_some() {
                return Err(writer.volume.error(Fault::InvalidInput("a write is larger than a zone".into())));
            }
        }
        let full = io.zone.take();
        io.switched |= full.is_some();
        if io.switched && (writer.spec.ordered || io.died) {
            // What comes must not be durable before what stands in the zone before; and of a dead zone only the engine's
            // record that the file goes on elsewhere says how much: that must not be durable before the bytes are.
            writer.volume.sync(writer.tag(priority))?;
        }
        if let Some(zone) = full.filter(|_| writer.is_framed()) {
            // Too little room for what comes. Frames tell where the log ends here.
            writer.volume.finish(writer.owner, zone.open.zone);
        }
        Ok(None)
    }

    /// One device write at the open zone's write pointer.
    fn put(&self, io: &mut Io, bytes: &[u8], priority: Priority) -> Result<()> {
        let writer = self.writer;
        let Some(zone) = &mut io.zone else {
            return Err(writer.volume.error(Fault::InvalidInput("no zone is open".into())));
        };
        let address = writer.volume.geometry.start(zone.open.zone) + zone.open.at;
        let written = writer.volume.in_turn(writer.id, priority, bytes.len() as u64, || {
            write_all(writer.volume.drive.device.as_ref(), bytes, address, writer.tag(priority))
        });
        // Also of a write that failed the drive may have taken some.
        lock(&writer.state).written = Some(writer.volume.flusher.ticket());
        written?;
        zone.open.at += bytes.len() as u64;
        zone.fresh = None;
        writer.volume.taken.up_to(zone.open.zone, zone.open.at);
        writer.used.store(writer.volume.next_write(), Ordering::Relaxed);
        Ok(())
    }

    /// After a failed write: believes the drive about what it took. The zone may be tried again, or it is left behind.
    fn recover(&self, io: &mut Io, error: &Error) -> Result<()> {
        let volume = &self.writer.volume;
        volume.flusher.check()?;
        let host_full = matches!(&error.fault, Fault::Io(e) if e.kind() == std::io::ErrorKind::StorageFull);
        if io.attempts >= MAX_ATTEMPTS || matches!(error.fault, Fault::NoSpace | Fault::InvalidInput(_)) {
            return Err(error.clone());
        }
        let Some(zone) = &mut io.zone else { return Err(error.clone()) };
        let report = volume.report_one(zone.open.zone)?;
        let (mut torn_header, mut moved) = (false, false);
        tracing::warn!(%error, state = report.state.name(), "a write failed; the zone was asked what it took");
        volume.look_behind(&report, zone.open.at)?;
        // A dead zone does not tell.
        if let Some(wp) = report.wp {
            let at = zone.open.at;
            moved = wp > at;
            torn_header = zone.fresh.is_some() && moved && wp < at + u64::from(self.writer.front);
            if moved {
                zone.fresh = None;
            }
            zone.open.at = wp;
        }
        io.died |= !report.state.writable();
        if torn_header || !report.state.writable() || (!host_full && io.attempts % 2 == 1) {
            io.left = io.zone.take().map(|zone| zone.open.zone);
            io.switched = true;
        }
        io.attempts += 1;
        match host_full {
            // What it took of this write counts for nothing.
            true => {
                io.padded |= moved && io.zone.is_some();
                Err(error.clone())
            }
            false => Ok(()),
        }
    }

    /// Where the bytes from `logical` on do not stand behind those before them: the engine is to record it first.
    fn resume(io: &Io, logical: u64) -> Piece {
        let zone = io.zone.as_ref().filter(|_| io.padded)?.open;
        Some(Step::Resume { logical, zone })
    }

    fn write_framed(&self, io: &mut Io, segment: &Arc<Segment>, priority: Priority) -> Result<Piece> {
        let writer = self.writer;
        let (front, block) = (writer.front as usize, writer.volume.geometry.block as usize);
        let len = segment.len();
        let used = FRAME_HEADER + len;
        let total = used.next_multiple_of(block);
        let image = segment.image();
        let logical = segment.key().logical;
        let need = total as u64;
        if self.room(io, need, priority)?.is_none() {
            return Ok(Some(Step::Zone { logical, need }));
        }
        if let Some(step) = Self::resume(io, logical) {
            return Ok(Some(step));
        }
        let Some(zone) = &io.zone else { return Ok(None) };
        let id = FrameId { file: writer.spec.file, life: zone.open.life };
        let payload = image.bytes(front + FRAME_HEADER, len);
        let frame = Frame {
            sequence: io.sequence,
            logical,
            at: zone.open.at + if zone.fresh.is_some() { front as u64 } else { 0 },
            len: len as u32,
            back: zone.back,
            payload_crc: crc32c::crc32c(payload),
        };
        image.put(front, &frame.encode(id));
        image.zero(front + used, total - used);
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
        let OpenZone { zone, life, .. } = zone.open;
        if let Err(error) = self.put(io, image.bytes(from, front - from + total), priority) {
            self.recover(io, &error)?;
            return Ok(None);
        }
        io.sequence += 1;
        if let Some(zone) = &mut io.zone {
            zone.back = total as u32;
        }
        let placed = Placed { logical, len: len as u64, zone, life, at: frame.at };
        (io.done, io.written) = (len, io.written + total as u64);
        Ok(Some(Self::placed(io, placed, segment, front + FRAME_HEADER)))
    }

    fn placed(io: &mut Io, placed: Placed, segment: &Arc<Segment>, from: usize) -> Step {
        io.told = Some(placed.logical + placed.len);
        Step::Placed(placed, PlacedBytes { segment: segment.clone(), from, len: placed.len as usize })
    }

    fn write_raw(&self, io: &mut Io, segment: &Arc<Segment>, priority: Priority) -> Result<Piece> {
        let writer = self.writer;
        let front = writer.front as usize;
        let block = writer.volume.geometry.block as usize;
        let len = segment.len();
        let image = segment.image();
        let logical = segment.key().logical + io.done as u64;
        let need = block as u64;
        let Some(room) = self.room(io, need, priority)? else { return Ok(Some(Step::Zone { logical, need })) };
        let left = (len - io.done).next_multiple_of(block);
        let n = usize::try_from(room).unwrap_or(usize::MAX).min(left) / block * block;
        let real = n.min(len - io.done);
        // Before the new size is announced: until the engine has recorded that this zone goes on behind padding, the old size
        // is all that tells the padding from the bytes.
        if let Some(step) = Self::resume(io, logical) {
            return Ok(Some(step));
        }
        if real < n {
            let size = logical + real as u64;
            if io.announced.take() != Some(size) {
                return Ok(Some(Step::Announce { size }));
            }
            image.zero(front + io.done + real, n - real);
        }
        let mut from = front + io.done;
        if let Some(header) = io.zone.as_ref().and_then(|zone| zone.fresh.as_ref()) {
            let mut bytes = AlignedBuf::zeroed(front);
            header.encode_into(&mut bytes);
            if io.done == 0 {
                image.put(0, &bytes);
                from = 0;
            } else if let Err(error) = self.put(io, &bytes, priority) {
                self.recover(io, &error)?;
                return Ok(None);
            }
        }
        let Some(OpenZone { zone: id, life, at: before, .. }) = io.zone.as_ref().map(|zone| zone.open) else {
            return Ok(None);
        };
        let data_at = before + (front + io.done - from) as u64;
        let took = match self.put(io, image.bytes(from, front + io.done + n - from), priority) {
            Ok(()) => n,
            Err(error) => {
                self.recover(io, &error)?;
                // What the drive took of it, in whole blocks.
                let after = writer.volume.report_one(id)?.wp.unwrap_or(before);
                usize::try_from(after.saturating_sub(data_at)).unwrap_or(0).min(n)
            }
        };
        if took == 0 {
            return Ok(None);
        }
        let bytes = took.min(real);
        let placed = Placed { logical, len: bytes as u64, zone: id, life, at: data_at };
        let from = front + io.done;
        io.done += bytes;
        io.padded = took > bytes && io.zone.is_some();
        io.written += took as u64;
        Ok(Some(Self::placed(io, placed, segment, from)))
    }
}
