//! What is to be written to a zone and is not yet: whole records, one behind the other, in few large pieces of memory.
//!
//! Invariants: segments follow each other without gaps from `written` on; one that is sealed does not change any more, so it
//! can be written and read at the same time; bytes stay here until the drive has them.

use crate::format::BLOCK;
use crate::zone::pool::{BufPool, Image};
use std::collections::VecDeque;
use std::sync::Arc;

/// Some records that go to the drive in one write.
pub(crate) struct Segment {
    /// Where it begins, in blocks from the zone's start.
    pub(crate) at: u32,
    image: Image,
    used: usize,
}

impl Segment {
    /// Its bytes, whole blocks.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.image[..self.used]
    }

    /// The block where the next segment begins.
    pub(crate) fn end(&self) -> u32 {
        self.at + (self.used / BLOCK) as u32
    }
}

/// See the module.
pub(crate) struct ZoneBuffer {
    /// Blocks that are on the drive.
    written: u32,
    sealed: VecDeque<Arc<Segment>>,
    filling: Option<Segment>,
}

impl ZoneBuffer {
    /// Of a zone that is written up to this block.
    pub(crate) fn new(written: u32) -> ZoneBuffer {
        ZoneBuffer { written, sealed: VecDeque::new(), filling: None }
    }

    /// Blocks that are on the drive.
    pub(crate) fn written(&self) -> u32 {
        self.written
    }

    /// Whether all is on the drive.
    pub(crate) fn is_empty(&self) -> bool {
        self.sealed.is_empty() && self.filling.is_none()
    }

    /// Adds a record that goes to block `at`, which is where the last one ended. Small ones gather in pieces of `gather` bytes.
    pub(crate) fn push(&mut self, at: u32, record: Image, gather: usize, pool: &Arc<BufPool>) {
        if record.len() * 2 > gather {
            self.seal();
            let used = record.len();
            self.sealed.push_back(Arc::new(Segment { at, image: record, used }));
            return;
        }
        if self.filling.as_ref().is_some_and(|s| s.used + record.len() > s.image.len()) {
            self.seal();
        }
        let segment = self.filling.get_or_insert_with(|| Segment { at, image: pool.take(gather), used: 0 });
        segment.image[segment.used..segment.used + record.len()].copy_from_slice(&record);
        segment.used += record.len();
        debug_assert_eq!(segment.end(), at + (record.len() / BLOCK) as u32);
    }

    fn seal(&mut self) {
        self.sealed.extend(self.filling.take().map(Arc::new));
    }

    /// The first segments that are not on the drive: one, or as many as have `most` bytes. They stay until
    /// [`ZoneBuffer::written_to`].
    pub(crate) fn front(&mut self, most: usize) -> Vec<Arc<Segment>> {
        if self.sealed.is_empty() || most > 0 {
            self.seal();
        }
        let mut bytes = 0;
        let fits = |segment: &&Arc<Segment>| {
            bytes += segment.used;
            bytes <= most
        };
        let n = self.sealed.iter().take_while(fits).count().max(1);
        self.sealed.iter().take(n).cloned().collect()
    }

    /// The drive has everything before this block.
    pub(crate) fn written_to(&mut self, block: u32) {
        while self.sealed.front().is_some_and(|segment| segment.end() <= block) {
            self.sealed.pop_front();
        }
        self.written = block;
    }

    /// Everything that is not on the drive; it is forgotten here.
    pub(crate) fn take(&mut self) -> Vec<Arc<Segment>> {
        self.seal();
        std::mem::take(&mut self.sealed).into()
    }

    /// Copies bytes from `from` on, counted from the zone's start. False: not all of them are here.
    pub(crate) fn read(&self, from: u64, out: &mut [u8]) -> bool {
        let mut done = 0;
        while done < out.len() {
            let here = from + done as u64;
            let start = |segment: &Segment| u64::from(segment.at) * BLOCK as u64;
            let holds = |segment: &&Segment| (start(segment)..start(segment) + segment.used as u64).contains(&here);
            let all = self.sealed.iter().map(Arc::as_ref).chain(&self.filling);
            let Some(segment) = { all }.find(holds) else { return false };
            let skip = (here - start(segment)) as usize;
            let n = (segment.used - skip).min(out.len() - done);
            out[done..done + n].copy_from_slice(&segment.bytes()[skip..skip + n]);
            done += n;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(blocks: usize, fill: u8) -> Image {
        imbrex_device::AlignedBuf::padded(&vec![fill; blocks * BLOCK], BLOCK).into()
    }

    #[test]
    fn small_records_gather_and_all_are_read_until_they_are_written() {
        let pool = Arc::default();
        let mut buffer = ZoneBuffer::new(1);
        for (at, blocks, fill) in [(1, 1, 1), (2, 2, 2), (4, 8, 3), (12, 1, 4), (13, 2, 5), (15, 2, 6)] {
            buffer.push(at, record(blocks, fill), 4 * BLOCK, &pool);
        }
        let at = |buffer: &ZoneBuffer, block: u64, n: usize| {
            let mut out = vec![0; n];
            buffer.read(block * BLOCK as u64 - 3, &mut out).then_some(out)
        };
        assert_eq!(at(&buffer, 4, 6), Some(vec![2, 2, 2, 3, 3, 3]));
        assert_eq!(at(&buffer, 13, 6), Some(vec![4, 4, 4, 5, 5, 5]));
        assert_eq!(at(&buffer, 17, 6), None, "behind the end");
        let mut pieces = Vec::new();
        let together = buffer.front(6 * BLOCK);
        assert_eq!(together.iter().map(|s| (s.at, s.end())).collect::<Vec<_>>(), [(1, 4)], "the next one has eight");
        assert_eq!(buffer.front(16 * BLOCK).len(), 4);
        while let [segment, ..] = &buffer.front(0)[..] {
            pieces.push((segment.at, segment.end()));
            buffer.written_to(segment.end());
        }
        assert_eq!(pieces, [(1, 4), (4, 12), (12, 15), (15, 17)]);
        assert!(buffer.is_empty() && buffer.written() == 17 && at(&buffer, 4, 6).is_none());
    }
}
