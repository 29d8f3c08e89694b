//! Writes to the rings: records to each of them, a snapshot to one.

use super::format::{FRONT, Kind, LogFrame, LogHead, footprint};
use super::{Batch, MetaLog, ONE_COPY, Progress};
use crate::volume::stream::OpenZone;
use imbrex_device::{Cause, Error, Fault, Result, Tag};

impl MetaLog {
    /// A number that no frame and no life of this log had before. No mount gives out one that an earlier mount may have given: of what that wrote
    /// last, not all need have been readable when this one began. Nor is a number given again whose frame could not be written, since the
    /// drive may have it all the same.
    fn next_number(&mut self) -> u64 {
        self.given = (self.given + 1).max(self.volume().mount() << 40 | 1);
        self.given
    }

    /// Writes the records that were appended to all rings. Not a flush.
    ///
    /// # Errors
    /// Where no ring takes them: the next call tries again. Where only one does, that is told in the log, and the other is tried again, unless
    /// it is lost.
    pub fn write(&mut self) -> Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        let base = self.placed;
        for cut in gathered.cut(self.frame as usize - FRONT) {
            self.placed = base + cut.bytes.start as u64;
            if let Err(error) = self.write_records(&gathered.bytes()[cut.bytes], cut.first) {
                // Of a record that is written in part all is written anew: whoever reads it drops the part.
                self.gathered = gathered;
                self.gathered.drop_front(cut.item);
                self.placed = base + cut.item as u64;
                return Err(error);
            }
        }
        self.placed = base + gathered.len() as u64;
        self.kept.clear();
        Ok(())
    }

    /// What this mount could not read counts no more once the next snapshot is whole, or a record is written.
    pub fn forget_unread(&mut self) {
        self.unmarked = Some(self.last);
        self.last = self.next_number();
    }

    fn write_records(&mut self, items: &[u8], first: usize) -> Result<()> {
        // A record that no snapshot precedes needs the frame that it names.
        if let Some(before) = self.unmarked {
            self.put_records(
                LogFrame { kind: Kind::Records, number: self.last, before, first: 0, logical: self.placed },
                &[],
            )?;
            self.unmarked = None;
        }
        let number = self.next_number();
        self.put_records(
            LogFrame { kind: Kind::Records, number, before: self.last, first: first as u32, logical: self.placed },
            items,
        )?;
        self.last = number;
        Ok(())
    }

    /// Writes a frame of records to all rings.
    fn put_records(&mut self, frame: LogFrame, items: &[u8]) -> Result<()> {
        let (mut written, mut failed) = (false, None);
        for ring in self.alive().collect::<Vec<_>>() {
            match self.put(ring, frame, items, Cause::Journal) {
                Ok(_) => written = true,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            _ if !written => return Err(failed.unwrap_or_else(|| self.error(Fault::ReadOnly))),
            Some(error) => tracing::error!(%error, "only one copy of the metadata log could be written"),
            None => {}
        }
        self.grown += footprint(items.len());
        Ok(())
    }

    /// Writes a frame to one ring; where its zone takes no more, to the next one. Returns the order of the zone it is in.
    fn put(&mut self, ring: usize, frame: LogFrame, items: &[u8], cause: Cause) -> Result<u64> {
        let mut last = None;
        for _ in 0..=self.rings[ring].slots().len() {
            let i = match self.rings[ring].takes(footprint(items.len())) {
                Some(i) => i,
                None => self.next_zone(ring)?,
            };
            let slot = self.rings[ring].slots()[i];
            let image = frame.encode(ring as u8, slot.life, slot.tail, items);
            let mut open = OpenZone { zone: slot.zone, life: slot.life, at: slot.tail, capacity: slot.capacity };
            match self.volume().write_sequential(&mut open, &image, Tag::new(cause)) {
                Ok(()) => {
                    self.rings[ring].wrote(i, open.at, frame.kind == Kind::Records);
                    return Ok(slot.order);
                }
                Err(error) => {
                    self.volume().check_poison()?;
                    tracing::warn!(%error, "a zone of the metadata log took no frame; the next one is used");
                    // What it took of the frame is passed over by whoever reads it.
                    self.died(ring, i);
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| self.error(Fault::NoSpace)))
    }

    fn died(&mut self, ring: usize, i: usize) {
        self.rings[ring].died(i);
        if self.rings.len() > 1 && self.rings[ring].tell_lost() {
            tracing::error!("{ONE_COPY}");
        }
    }

    /// Begins the next free zone of a ring.
    fn next_zone(&mut self, ring: usize) -> Result<usize> {
        self.rings[ring].leave();
        self.finish_left(ring);
        // What stands in the next zone never outlives what stands before it: else after a power loss the log has a gap where only its end was
        // not flushed.
        self.volume().sync(Cause::Journal.into())?;
        loop {
            let Some(i) = self.rings[ring].next() else {
                if self.alive().any(|other| other != ring) {
                    tracing::warn!("no zone of a copy of the metadata log is free; the other copy goes on");
                    self.rings[ring].stick();
                }
                return Err(self.error(Fault::NoSpace));
            };
            match self.begin_zone(ring, i) {
                Ok(()) => return Ok(i),
                Err(error) => {
                    self.volume().check_poison()?;
                    tracing::warn!(%error, "a zone of the metadata log could not be begun; the next one is used");
                    self.died(ring, i);
                    self.finish_left(ring);
                }
            }
        }
    }

    fn begin_zone(&mut self, ring: usize, i: usize) -> Result<(), Error> {
        let slot = self.rings[ring].slots()[i];
        if slot.dirty {
            self.tenant.reset(slot.zone)?;
            self.rings[ring].was_reset(i);
        }
        let order = self.rings[ring].begin(i);
        let head = LogHead {
            volume: self.volume().uuid(),
            zone: slot.zone.0,
            tenant: self.tenant.name(),
            owner: self.tenant.owner(),
            copy: ring as u8,
            life: self.next_number(),
            order,
            created: (self.clock)(),
        };
        self.tenant.activate(slot.zone)?;
        let mut open = OpenZone { zone: slot.zone, life: head.life, at: 0, capacity: slot.capacity };
        self.volume().write_sequential(&mut open, &head.encode(), Cause::Journal.into())?;
        self.rings[ring].begun(i, head.life, order, open.at);
        Ok(())
    }

    /// Finishes the zones that are active and that no frame goes to any more: where active zones are limited, the label's share is lost with
    /// one too many. What fails is tried again the next time.
    pub fn finish_all_left(&mut self) {
        (0..self.rings.len()).for_each(|ring| self.finish_left(ring));
    }

    fn finish_left(&mut self, ring: usize) {
        for i in self.rings[ring].left() {
            match self.tenant.finish(self.rings[ring].slots()[i].zone) {
                Ok(()) => self.rings[ring].was_finished(i),
                Err(error) => tracing::warn!(%error, "a zone of the metadata log could not be finished"),
            }
        }
    }

    /// Begins a snapshot; one that is being written is dropped. Its pieces follow one by one, and records may come between them. Whatever a record changes
    /// meanwhile, the snapshot or the record tells, or both do: the caller can replay records over pieces that are newer.
    ///
    /// # Errors
    /// Then there is none, and the one before counts.
    pub fn begin_snapshot(&mut self) -> Result<()> {
        self.abandon_snapshot();
        let number = self.snapshot + 1;
        let frame = LogFrame { kind: Kind::Begin, number, before: self.last, first: 0, logical: self.placed };
        loop {
            let ring = self.ring_of(number);
            if let Some(order) = self.put_snapshot((number, ring), frame, &[])? {
                self.progress = Some(Progress { number, ring, order, frames: 0 });
                return Ok(());
            }
        }
    }

    /// Writes a frame of a snapshot, and returns the order of the zone that it is in. `None`: the ring takes no more, and the other one is to take the
    /// snapshot from its beginning.
    fn put_snapshot(&mut self, (number, ring): (u64, usize), frame: LogFrame, items: &[u8]) -> Result<Option<u64>> {
        match self.put(ring, frame, items, Cause::Checkpoint) {
            Ok(order) => Ok(Some(order)),
            Err(error) => {
                self.rings[ring].drop_useless();
                self.volume().check_poison()?;
                if self.ring_of(number) == ring {
                    return Err(error);
                }
                tracing::warn!(%error, "one copy of the metadata log takes no snapshot; the other one does");
                Ok(None)
            }
        }
    }

    /// The next piece of the snapshot. Where no snapshot is being written any more, nothing: who wants one begins it anew.
    ///
    /// # Errors
    /// Then the snapshot is dropped, and the one before counts. Where only its ring takes no more it is dropped, too, without an error.
    pub fn piece(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(mut progress) = self.progress.take() else { return Ok(()) };
        let mut batch = Batch::default();
        batch.push(|to| to.extend_from_slice(bytes));
        for cut in batch.cut(self.frame as usize - FRONT) {
            let (number, before) = (progress.number, progress.frames);
            let frame = LogFrame { kind: Kind::Pieces, number, before, first: cut.first as u32, logical: self.placed };
            if self.put_snapshot((number, progress.ring), frame, &batch.bytes()[cut.bytes])?.is_none() {
                return Ok(());
            }
            progress.frames += 1;
        }
        self.progress = Some(progress);
        Ok(())
    }

    /// The snapshot has all its pieces: flushes, writes that it is whole, flushes, and resets the zones before it. The caller has written whatever
    /// the pieces speak of. False: no snapshot is being written any more.
    ///
    /// # Errors
    /// As [`MetaLog::piece`].
    pub fn finish_snapshot(&mut self) -> Result<bool> {
        let Some(Progress { number, ring, order, frames }) = self.progress.take() else { return Ok(false) };
        self.volume().sync(Cause::Checkpoint.into())?;
        let frame = LogFrame { kind: Kind::Whole, number, before: frames, first: 0, logical: self.placed };
        if self.put_snapshot((number, ring), frame, &[])?.is_none() {
            return Ok(false);
        }
        self.volume().sync(Cause::Checkpoint.into())?;
        let old = self.rings[ring].release(order);
        self.reset(ring, old);
        for other in (0..self.rings.len()).filter(|other| *other != ring) {
            let old = self.rings[other].unstick();
            self.reset(other, old);
        }
        (self.snapshot, self.grown, self.unmarked) = (number, 0, None);
        tracing::debug!(number, frames, ring, "snapshot written");
        Ok(true)
    }

    fn reset(&mut self, ring: usize, zones: Vec<usize>) {
        for i in zones {
            match self.tenant.reset(self.rings[ring].slots()[i].zone) {
                Ok(()) => self.rings[ring].was_reset(i),
                Err(error) => {
                    tracing::warn!(%error, "a zone of the metadata log could not be reset and is given up");
                    self.died(ring, i);
                }
            }
        }
    }
}
