//! The writing half of a stream: segments to zones, and what happens when a write fails.

use super::{Io, OpenZone, Placed, StreamCore, Zone};
use crate::frame::{FRAME_HEADER, Frame, FrameId};
use crate::medium::memory::Segment;
use crate::sync::lock;
use crate::volume::write_all;
use imbrex_device::{AlignedBuf, Error, Fault, Priority, Result};

/// Zones that one segment may fail on before the error reaches the caller.
const MAX_ATTEMPTS: u32 = 8;

/// The right to write of one stream.
pub(super) struct Writing<'a> {
    pub(super) core: &'a StreamCore,
    /// Taken only to see whether the stream can give up its zone: where it cannot, its end is no news to who waits for one.
    pub(super) quiet: bool,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        lock(&self.core.state).writing = false;
        self.core.changed.notify_all();
        if let Some(active) = self.core.volume.active_of(self.core.owner()).filter(|_| !self.quiet) {
            active.notify();
        }
    }
}

impl Writing<'_> {
    /// Writes the oldest segment, which must be sealed (or there is nothing to do). Returns the bytes written.
    pub(super) fn write_front(&self, priority: Priority) -> Result<u64> {
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
        let written = match core.is_framed() {
            false => self.write_raw(&mut io, &segment, priority),
            true => self.write_framed(&mut io, &segment, priority),
        };
        let room = io.zone.as_ref().map_or(0, |zone| zone.open.capacity.saturating_sub(zone.open.at));
        if written.is_ok() {
            io.done = 0;
        }
        drop(io);
        let mut state = lock(&core.state);
        state.room = room;
        let written = written?;
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
                let front = if zone.fresh.is_some() { u64::from(core.front) } else { 0 };
                let room = zone.open.capacity.saturating_sub(zone.open.at + front);
                if room >= need {
                    return Ok(room);
                }
            }
            if let Some(zone) = io.zone.take() {
                io.switched = true;
                if core.is_framed() {
                    // Too little room for what comes. Frames tell where the log ends here.
                    core.volume.finish(core.owner(), zone.open.zone);
                }
            }
            if io.switched && (core.spec.ordered || io.died) {
                // What comes must not be durable before what stands in the zone before; and of a dead zone only the engine's
                // record that the file goes on elsewhere says how much: that must not be durable before the bytes are.
                core.volume.sync(core.tag(priority))?;
            }
            let new = core.placer.next_zone(logical, need)?;
            if let Some(left) = io.left.take() {
                core.volume.finish(core.owner(), left);
            }
            core.volume.activate(core.owner(), new.zone, core.holder())?;
            let report = core.volume.report_one(new.zone)?;
            let open = OpenZone { zone: new.zone, life: new.header.life, at: new.at, capacity: report.capacity };
            io.zone = Some(Zone { open, fresh: Some(new.header), back: 0 });
            io.padded = false;
            (io.switched, io.died) = (false, false);
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
        core.volume.taken.up_to(zone.open.zone, zone.open.at);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        core.used.store(core.volume.writes.fetch_add(1, relaxed), relaxed);
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
        core.volume.look_behind(&report, zone.open.at)?;
        // A dead zone does not tell.
        if let Some(wp) = report.wp {
            let at = zone.open.at;
            torn_header = zone.fresh.is_some() && wp > at && wp < at + u64::from(core.front);
            if wp > at {
                zone.fresh = None;
            }
            zone.open.at = wp;
        }
        if host_full {
            return Err(error.clone());
        }
        io.died |= !report.state.writable();
        if torn_header || !report.state.writable() || attempt % 2 == 1 {
            io.left = io.zone.take().map(|zone| zone.open.zone);
            io.switched = true;
        }
        Ok(())
    }

    fn write_framed(&self, io: &mut Io, segment: &Segment, priority: Priority) -> Result<u64> {
        let core = self.core;
        let (front, block) = (core.front as usize, core.volume.geometry.block as usize);
        let len = segment.len();
        if len == 0 {
            return Ok(0);
        }
        let used = FRAME_HEADER + len;
        let total = used.next_multiple_of(block);
        let image = segment.image();
        let mut attempt = 0;
        loop {
            let logical = segment.key().logical;
            self.zone_for(io, logical, total as u64, priority)?;
            let Some(zone) = &io.zone else { continue };
            if io.padded {
                let open = zone.open;
                core.placer.resume(logical, open.zone, open.life, open.at)?;
                io.padded = false;
            }
            let Some(zone) = &io.zone else { continue };
            let id = FrameId { file: core.spec.file, life: zone.open.life };
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
            match self.write(io, image.bytes(from, front - from + total), priority) {
                Ok(_) => {
                    io.sequence += 1;
                    if let Some(zone) = &mut io.zone {
                        zone.fresh = None;
                        zone.back = total as u32;
                        let OpenZone { zone, life, .. } = zone.open;
                        core.placer.placed(&Placed { logical, len: len as u64, zone, life, at: frame.at }, payload);
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
        let front = core.front as usize;
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
