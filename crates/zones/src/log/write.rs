//! Writes to the rings: records to each of them, a snapshot to one.

use super::format::{FRONT, Kind, LogFrame, LogHead, footprint};
use super::items::Cut;
use super::{BLOCK, Batch, HEADS, MetaLog, ONE_COPY, Progress};
use crate::table::pool::Urgency;
use crate::volume::OpenZone;
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Priority, Result, Tag, ZoneId, ZoneState};
use std::io::ErrorKind;

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
    pub fn write(&mut self, priority: Priority) -> Result<()> {
        self.keep_two();
        let (mut gathered, base) = self.appender.tail().take();
        let cuts = gathered.cut(self.frame as usize - FRONT);
        let tag = Tag::new(Cause::Journal).at(priority);
        let result = self.runs(&cuts).try_for_each(|run| {
            self.placed = base + run[0].bytes.start as u64;
            // Of a record that is written in part all is written anew: whoever reads it drops the part.
            self.write_records(&gathered, run, base, tag).map_err(|error| (error, run[0].item))
        });
        // Written records and the room that they took are told at once: else somebody is admitted to room that is gone.
        let (rooms, copies, frame) = (self.rooms(), self.rings.len() as u64, self.frame);
        let mut tail = self.appender.tail();
        tail.publish(rooms, copies, frame);
        match result {
            Ok(()) => {
                self.placed = base + gathered.len() as u64;
                tail.written();
                Ok(())
            }
            Err((error, item)) => {
                gathered.drop_front(item);
                self.placed = base + item as u64;
                tail.put_back(gathered);
                Err(error)
            }
        }
    }

    /// Cuts as they go to the drive together.
    fn runs<'a>(&self, cuts: &'a [Cut]) -> impl Iterator<Item = &'a [Cut]> + use<'a> {
        cuts.chunks((self.run / self.frame).max(1) as usize)
    }

    /// What this mount could not read counts no more once the next snapshot is whole, or a record is written.
    pub fn forget_unread(&mut self) {
        self.unmarked.get_or_insert(self.last);
        self.last = self.next_number();
    }

    fn write_records(&mut self, items: &Batch, run: &[Cut], base: u64, tag: Tag) -> Result<()> {
        // A record that no snapshot precedes needs the frame that it names.
        self.mark(tag)?;
        let mut last = self.last;
        let mut frame = |cut: &Cut| {
            let (number, before) = (self.next_number(), last);
            last = number;
            let logical = base + cut.bytes.start as u64;
            let frame = LogFrame { kind: Kind::Records, number, before, first: cut.first as u32, logical };
            (frame, &items.bytes()[cut.bytes.clone()])
        };
        let frames: Vec<_> = run.iter().map(&mut frame).collect();
        let result = self.put_records(&frames, tag);
        self.spilled |= result.is_err();
        self.last = if result.is_ok() { last } else { self.last };
        result
    }

    /// Writes the frame of the last number, if it has none.
    fn mark(&mut self, tag: Tag) -> Result<()> {
        if let Some(before) = self.unmarked {
            let frame = LogFrame { kind: Kind::Records, number: self.last, before, first: 0, logical: self.placed };
            self.put_records(&[(frame, &[])], tag)?;
            self.unmarked = None;
        }
        Ok(())
    }

    /// Writes frames of records to all rings.
    fn put_records(&mut self, frames: &[(LogFrame, &[u8])], tag: Tag) -> Result<()> {
        let (mut written, mut failed) = (false, None);
        for ring in self.alive().collect::<Vec<_>>() {
            match self.put(ring, frames, tag) {
                Ok(_) => written = true,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            _ if !written => return Err(failed.unwrap_or_else(|| self.error(Fault::ReadOnly))),
            Some(error) => tracing::error!(%error, "only one copy of the metadata log could be written"),
            None => {}
        }
        self.grown += frames.iter().map(|(_, items)| footprint(items.len())).sum::<u64>();
        Ok(())
    }

    /// Writes frames to one ring; where its zone takes no more, to the next one. Returns the order of the zone that the first one is in.
    fn put(&mut self, ring: usize, mut frames: &[(LogFrame, &[u8])], tag: Tag) -> Result<u64> {
        let (mut first, mut last) = (None, None);
        // Each turn but the last ends with a zone that is full or dead.
        for _ in 0..=2 * self.rings[ring].slots().len() {
            let Some((_, items)) = frames.first() else { break };
            let i = match self.rings[ring].takes(footprint(items.len())) {
                Some(i) => i,
                None => self.next_zone(ring)?,
            };
            let slot = self.rings[ring].slots()[i];
            let (mut n, mut end) = (0, slot.tail);
            while let Some((_, items)) = frames.get(n).filter(|f| end + footprint(f.1.len()) <= slot.capacity) {
                (n, end) = (n + 1, end + footprint(items.len()));
            }
            let mut image = AlignedBuf::zeroed((end - slot.tail) as usize);
            let mut at = 0;
            for (frame, items) in &frames[..n] {
                let to = &mut image[at..at + footprint(items.len()) as usize];
                frame.encode_into(to, ring as u8, slot.life, slot.tail + at as u64, items);
                at += to.len();
            }
            let mut open = OpenZone { zone: slot.zone, life: slot.life, at: slot.tail, capacity: slot.capacity };
            match self.volume().write_sequential(&mut open, &image, tag) {
                Ok(()) => {
                    self.rings[ring].wrote(i, open.at, frames[0].0.kind == Kind::Records);
                    first.get_or_insert(slot.order);
                    frames = &frames[n..];
                }
                Err(error) => {
                    self.volume().check_poison()?;
                    if self.is_host_full(&error, slot.zone, slot.tail)? {
                        return Err(error);
                    }
                    tracing::warn!(%error, "a zone of the metadata log took no frame; the next one is used");
                    // What it took of the frames is passed over by whoever reads it.
                    self.died(ring, i);
                    if self.is_gone(slot.zone) && frames[0].0.kind != Kind::Records {
                        // What it had of the snapshot is gone, too.
                        return Err(error);
                    }
                    last = Some(error);
                }
            }
        }
        match first {
            Some(order) if frames.is_empty() => Ok(order),
            _ => Err(last.unwrap_or_else(|| self.error(Fault::NoSpace))),
        }
    }

    /// Whether a write to a zone failed because the host of an emulated drive has no room, and took nothing: no other zone has room then.
    fn is_host_full(&self, error: &Error, zone: ZoneId, tail: u64) -> Result<bool> {
        let full = matches!(&error.fault, Fault::Io(e) if e.kind() == ErrorKind::StorageFull);
        Ok(full && self.volume().core().report_one(zone)?.wp == Some(tail))
    }

    /// Whether a zone of the only copy can be read no more. Then a snapshot is to tell again what stood there.
    fn is_gone(&self, zone: ZoneId) -> bool {
        let report = self.volume().core().report_one(zone);
        let gone = self.rings.len() == 1 && report.is_ok_and(|report| report.state == ZoneState::Offline);
        if gone {
            self.appender.tail().shake(true);
        }
        gone
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
        // What stands in the next zone never outlives what stands before it: else after a power loss the log has a gap where only its end was
        // not flushed. And of a zone that is finished the write pointer does not tell what a power loss took.
        self.volume().sync(Cause::Journal.into())?;
        self.finish_left(ring);
        let mut grown = false;
        loop {
            let Some(i) = self.rings[ring].next() else {
                // Once: what keeps zones from being begun is no reason to take all that there are.
                if self.rings.len() == 1 && !grown && self.grow(Urgency::Metadata).is_ok() {
                    grown = true;
                    continue;
                }
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
                    if self.is_host_full(&error, self.rings[ring].slots()[i].zone, 0)? {
                        return Err(error);
                    }
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
            copies: self.root.copies,
            zones: self.root.zones.len() as u32,
            life: self.next_number(),
            order,
            created: (self.clock)(),
        };
        self.tenant.make_room_for_log()?;
        let mut open = OpenZone { zone: slot.zone, life: head.life, at: 0, capacity: slot.capacity };
        let mut heads = AlignedBuf::zeroed((HEADS * BLOCK) as usize);
        heads.chunks_mut(BLOCK as usize).for_each(|block| head.encode_into(block));
        self.volume().write_sequential(&mut open, &heads, Cause::Journal.into())?;
        self.rings[ring].begun(i, head.life, order, open.at);
        Ok(())
    }

    /// Finishes the zones that are active and that no frame goes to any more: where active zones are limited, the label's share is lost with
    /// one too many. What fails is tried again the next time.
    pub fn finish_all_left(&mut self) {
        (0..self.rings.len()).for_each(|ring| self.finish_left(ring));
    }

    fn finish_left(&mut self, ring: usize) {
        let mut left = self.rings[ring].left();
        if self.rings.len() == 1 {
            // The zone before the one that is written is reset when the next snapshot is whole. Until then all metadata stands there: nothing touches it.
            let newest = left.iter().copied().max_by_key(|i| self.rings[ring].slots()[*i].order);
            left.retain(|i| Some(*i) != newest);
        }
        for i in left {
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
        let logical = self.placed;
        self.begin(Progress { number: 0, ring: 0, order: 0, frames: 0, logical, knows_all: false })
    }

    /// The same of a snapshot that knows all records appended so far, also those that are not written: when it is whole they need not be. `bytes`:
    /// so many will its frames take at most; where another zone has so much room it begins there, so that the next opening reads nothing else.
    ///
    /// # Errors
    /// As [`MetaLog::begin_snapshot`]. `NoSpace` where it does not fit, before anything is written: the room stays for records.
    pub fn begin_snapshot_of_all(&mut self, bytes: u64) -> Result<()> {
        while !self.fits(bytes) {
            self.grow(Urgency::Metadata)?;
        }
        let logical = self.appender.tail().mark();
        if let [ring] = &mut self.rings[..]
            && ring.next_takes(bytes)
        {
            ring.leave();
        }
        self.begin(Progress { number: 0, ring: 0, order: 0, frames: 0, logical, knows_all: true })
    }

    /// Whether a snapshot of so many bytes of frames has room in a log of one copy.
    pub fn fits(&self, bytes: u64) -> bool {
        self.rooms().iter().any(|room| room.all() >= bytes)
    }

    /// Whether it has room in a zone that is begun for it, so that what is before it is of no use then.
    pub fn fits_apart(&self, bytes: u64) -> bool {
        self.rings.iter().any(|ring| ring.next_takes(bytes))
    }

    fn begin(&mut self, progress: Progress) -> Result<()> {
        self.abandon_snapshot();
        self.keep_two();
        if self.rings.len() == 1 {
            if std::mem::take(&mut self.spilled) {
                // Behind the snapshot nothing of that counts.
                self.forget_unread();
            }
            // Whoever reads of the number looks for the frame.
            self.mark(Cause::Checkpoint.into())?;
        }
        // One that was dropped shares its ring's turn, and not its number: nobody takes its pieces for those of this one.
        let number = if self.begun > self.snapshot { self.begun + self.rings.len() as u64 } else { self.snapshot + 1 };
        self.begun = number;
        let logical = progress.logical;
        let frame = LogFrame { kind: Kind::Begin, number, before: self.last, first: 0, logical };
        loop {
            let ring = self.ring_of(number);
            if let Some(order) = self.put_snapshot((number, ring), &[(frame, &[])])? {
                self.progress = Some(Progress { number, ring, order, ..progress });
                return Ok(());
            }
        }
    }

    /// Writes frames of a snapshot, and returns the order of the zone that the first is in. `None`: the ring takes no more, and the other one is to take the
    /// snapshot from its beginning.
    fn put_snapshot(&mut self, (number, ring): (u64, usize), frames: &[(LogFrame, &[u8])]) -> Result<Option<u64>> {
        let result = self.put(ring, frames, Cause::Checkpoint.into());
        if result.is_err() {
            self.rings[ring].drop_useless();
        }
        self.publish();
        match result {
            Ok(order) => Ok(Some(order)),
            Err(error) => {
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
        let mut batch = Batch::default();
        batch.push(|to| to.extend_from_slice(bytes));
        self.pieces(&batch)
    }

    /// The next pieces, which stand in frames together.
    ///
    /// # Errors
    /// As [`MetaLog::piece`].
    pub fn pieces(&mut self, batch: &Batch) -> Result<()> {
        let Some(mut progress) = self.progress.take() else { return Ok(()) };
        let cuts = batch.cut(self.frame as usize - FRONT);
        for run in self.runs(&cuts) {
            let Progress { number, logical, .. } = progress;
            let frame = |(cut, before): (&Cut, u64)| {
                let frame = LogFrame { kind: Kind::Pieces, number, before, first: cut.first as u32, logical };
                (frame, &batch.bytes()[cut.bytes.clone()])
            };
            let frames: Vec<_> = run.iter().zip(progress.frames..).map(frame).collect();
            if self.put_snapshot((number, progress.ring), &frames)?.is_none() {
                return Ok(());
            }
            progress.frames += run.len() as u64;
        }
        self.progress = Some(progress);
        Ok(())
    }

    /// Writes a whole snapshot of these pieces; one that is dropped on the way is begun anew.
    ///
    /// # Errors
    /// As [`MetaLog::begin_snapshot`].
    pub fn write_snapshot(&mut self, pieces: &Batch) -> Result<()> {
        loop {
            self.begin_snapshot()?;
            self.pieces(pieces)?;
            if self.finish_snapshot()? {
                return Ok(());
            }
        }
    }

    /// The snapshot has all its pieces: flushes, writes that it is whole, flushes, and resets the zones before it. The caller has written whatever
    /// the pieces speak of. False: no snapshot is being written any more.
    ///
    /// # Errors
    /// As [`MetaLog::piece`].
    pub fn finish_snapshot(&mut self) -> Result<bool> {
        let Some(progress) = self.progress.take() else { return Ok(false) };
        let Progress { number, ring, order, frames, logical, knows_all } = progress;
        self.volume().sync(Cause::Checkpoint.into())?;
        let frame = LogFrame { kind: Kind::Whole, number, before: frames, first: 0, logical };
        if self.put_snapshot((number, ring), &[(frame, &[])])?.is_none() {
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
        self.appender.tail().shake(false);
        if knows_all {
            self.appender.tail().drop_told(logical);
            self.placed = self.placed.max(logical);
        }
        self.publish();
        tracing::debug!(number, frames, ring, "snapshot written");
        if self.unnamed > 0 {
            self.unnamed -= 1;
            if self.unnamed == 0 {
                self.set_root(self.root.clone()).inspect_err(|_| self.unnamed = 1)?;
            }
        }
        Ok(true)
    }

    fn reset(&mut self, ring: usize, zones: Vec<usize>) {
        for i in zones {
            match self.tenant.reset(self.rings[ring].slots()[i].zone) {
                Ok(()) => self.rings[ring].was_reset(i),
                Err(error) => {
                    tracing::warn!(%error, "a zone of the metadata log could not be reset and is given up");
                    self.died(ring, i);
                    // Perhaps the drive lost power: then nothing more is acknowledged.
                    if let Err(error) = self.volume().sync(Cause::Journal.into()) {
                        tracing::error!(%error, "nothing more is written");
                    }
                }
            }
        }
    }
}
