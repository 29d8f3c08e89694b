//! Records that were appended and not written, in survivor memory: they outlive the process, and not a loss of power.
//!
//! Items have offsets in the stream of all record items of a log, and each frame says at which one it begins. So whoever finds items in memory
//! knows which of them the drive has. Invariant: the first segment of a run begins with an item. All of a run goes when its last item is written.

use super::format::MOST;
use super::items::{Batch, whole};
use super::{Admission, MetaLog, Replay};
use crate::medium::memory::{Hurry, Layout, Segment, SegmentKey};

/// Number of the memory as a file.
const FILE: u64 = u64::from_le_bytes(*b"MLOGkept");
/// Bytes of memory that are asked for at once.
const STEP: usize = 64 << 10;

/// The memory; what is in it when it is dropped stays for the next mount.
#[derive(Default)]
pub(super) struct Kept(Vec<Segment>);

impl Kept {
    /// Everything is written.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.iter().for_each(Segment::leave);
    }
}

impl MetaLog {
    /// [Appends](MetaLog::append) records that survive the death of the process from now on; each item as a whole or not at all. Waits for nothing.
    ///
    /// # Errors
    /// What was handed over, where no memory is left: the caller [writes](MetaLog::write) first.
    pub fn append_kept(&mut self, room: Admission, records: Batch) -> Result<(), (Admission, Batch)> {
        let begin = self.placed + self.gathered.len() as u64;
        let end = begin + records.len() as u64;
        let memory = self.tenant.memory();
        let filled = self.kept.0.iter().find(|segment| segment.len() < segment.capacity()).or(self.kept.0.last());
        // Records that are not kept stand behind them: nothing may follow in memory.
        if filled.is_some_and(|segment| segment.end() != begin) {
            return Err((room, records));
        }
        let behind = |segment: &Segment| segment.key().logical + segment.capacity() as u64;
        loop {
            let logical = self.kept.0.last().map_or(begin, behind);
            if logical >= end {
                break;
            }
            let life = self.volume().mount();
            let key = SegmentKey { owner: self.tenant.owner(), file: FILE, life, logical };
            let want = STEP.max((end - logical) as usize);
            match memory.claim(key, Layout { front: 0, frame: 0 }, want, Hurry::Journal) {
                Some(segment) => self.kept.0.push(segment),
                None => return Err((room, records)),
            }
        }
        let mut rest = records.bytes();
        for segment in &self.kept.0 {
            rest = &rest[segment.append(rest)..];
        }
        self.append(room, records);
        Ok(())
    }

    /// Takes over what a dead process had appended and not written: `replay` hands it out behind the drive's records. The caller writes before its
    /// [`Tenant::recovered`](crate::Tenant::recovered), which forgets the memory.
    ///
    /// True: memory goes on where the drive, which is whole, has not come yet. So the drive was put back to an earlier state
    /// ([`RESTORED`](crate::RESTORED)), and nothing of memory counts.
    pub fn take_left(&mut self, replay: &mut Replay) -> bool {
        let mut left = self.tenant.left_behind();
        left.retain(|segment| segment.key.file == FILE);
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
        (self.placed, self.gathered) = (base + from as u64, items);
        false
    }
}
