//! Records that were appended and not written, in survivor memory: they outlive the process, and not a loss of power.
//!
//! Items have offsets in the stream of all record items of a log, and each frame says at which one it begins. So whoever finds items in memory
//! knows which of them the drive has. Invariant: the first segment of a run begins with an item. Segments of records that are being written are
//! sealed: what is appended then stands in others. They go when all of these records are written.

use super::format::MOST;
use super::items::{Batch, whole};
use super::{Admission, Appender, MetaLog, Replay};
use crate::medium::memory::{Hurry, Segment, SegmentKey};

/// Number of the memory as a file: of what a dead process left for the log, and not for the engine.
pub const KEPT: u64 = u64::from_le_bytes(*b"MLOGkept");
/// Bytes of memory that are asked for at once.
const STEP: usize = 64 << 10;

/// The memory; what is in it when it is dropped stays for the next mount.
#[derive(Default)]
pub(super) struct Kept {
    segments: Vec<Segment>,
    /// Those that begin before this place in the stream get no more records.
    sealed: u64,
}

impl Kept {
    /// Records from this place in the stream on stand in other segments.
    pub(super) fn seal(&mut self, at: u64) {
        self.segments.retain(|segment| !segment.is_empty());
        self.sealed = at;
    }

    /// Records before this place are not needed any more; it was sealed there.
    pub(super) fn drop_before(&mut self, at: u64) {
        self.segments.retain(|segment| segment.end() > at);
    }

    fn filling(&self) -> &[Segment] {
        &self.segments[self.segments.partition_point(|segment| segment.key().logical < self.sealed)..]
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.segments.iter().for_each(Segment::leave);
    }
}

impl Appender {
    /// [Appends](Appender::append) records that survive the death of the process from now on; each item as a whole or not at all.
    ///
    /// # Errors
    /// What was handed over, where no memory is left: the caller [writes](MetaLog::write) first.
    pub fn append_kept(&self, room: Admission, records: Batch) -> Result<(), (Admission, Batch)> {
        let mut tail = self.tail();
        let begin = tail.end();
        let end = begin + records.len() as u64;
        let kept = &mut tail.kept;
        // Records that are not kept stand behind them: nothing may follow in memory.
        let last = kept.segments.iter().rfind(|segment| !segment.is_empty());
        if last.is_some_and(|segment| segment.end() != begin) {
            return Err((room, records));
        }
        let behind = |segment: &Segment| segment.key().logical + segment.capacity() as u64;
        loop {
            let logical = kept.filling().last().map_or(begin, behind);
            if logical >= end {
                break;
            }
            let life = self.tenant.volume().mount();
            let key = SegmentKey { owner: self.tenant.owner(), file: KEPT, life, logical };
            let want = STEP.max((end - logical) as usize);
            match self.tenant.memory().claim(key, 0, want, Hurry::Log) {
                Some(segment) => kept.segments.push(segment),
                None => return Err((room, records)),
            }
        }
        let mut rest = records.bytes();
        for segment in kept.filling() {
            rest = &rest[segment.append(rest)..];
        }
        tail.append(room, records);
        Ok(())
    }
}

impl MetaLog {
    /// Takes over what a dead process had appended and not written: `replay` hands it out behind the drive's records. The caller writes before its
    /// [`Tenant::recovered`](crate::Tenant::recovered), which forgets the memory.
    ///
    /// True: memory goes on where the drive, which is whole, has not come yet. So the drive was put back to an earlier state
    /// ([`RESTORED`](crate::RESTORED)), and nothing of memory counts.
    pub fn take_left(&mut self, replay: &mut Replay) -> bool {
        let mut left = self.tenant.left_behind();
        left.retain(|segment| segment.key.file == KEPT);
        let life = left.iter().map(|segment| segment.key.life).max();
        let run: Vec<_> = left.into_iter().filter(|segment| Some(segment.key.life) == life).collect();
        let base = run.first().map_or(self.placed, |first| first.key.logical);
        if base > self.placed && replay.whole && replay.skipped.is_empty() {
            return true;
        }
        let (mut bytes, mut lost) = (Vec::new(), base > MOST);
        for segment in &run {
            lost |= segment.lost > 0 || segment.key.logical != base.saturating_add(bytes.len() as u64);
            if lost {
                break;
            }
            bytes.extend_from_slice(&segment.bytes);
        }
        let (mut from, mut to) = (None, 0);
        while let Some(len) = whole(&bytes[to..]).filter(|len| *len <= bytes.len() - to) {
            if base.saturating_add((to + len) as u64) > self.placed {
                from.get_or_insert(to);
            }
            to += len;
        }
        if lost || base > self.placed {
            replay.whole = false;
            replay
                .skipped
                .push("Records that a dead process left in memory, or those before them, cannot be read.".into());
        }
        let Some(from) = from else { return false };
        let mut items = Batch::default();
        items.join_bytes(&bytes[from..to]);
        self.given = self.given.max(self.last) + 1;
        replay.chain.put(self.given, self.last, 0, items.bytes());
        replay.memory = Some(self.given);
        self.placed = base + from as u64;
        self.appender.tail().begin(self.placed, items);
        false
    }
}
