//! Reads ahead for who goes through a table, in either direction.

use super::read::Source;
use imbrex_device::Result;
use std::ops::Range;

/// Reads end at a multiple of this from the table's beginning on, which is at one of the drive. So the next one begins where the last one ended, and not in a block
/// of the drive that was read already: for that the head would have to wait a turn.
const ALIGN: u64 = 4096;
/// What is read at once where the block before was read, too; each time twice as much, up to [`MOST`]. Who seeks on a drive that rotates reads as much: it takes 0.4 ms, and
/// 7 to 15 ms to come back for more.
const FIRST: u64 = 64 << 10;
/// See [`FIRST`].
const MOST: u64 = 256 << 10;

/// What was read and not used yet.
#[derive(Default)]
pub(super) struct Ahead {
    from: u64,
    bytes: Vec<u8>,
    next: u64,
}

impl Ahead {
    /// How much to read at once.
    fn grow(&mut self, source: &dyn Source, on: bool) -> u64 {
        self.next = match on {
            true => (self.next * 2).clamp(FIRST, MOST),
            false if source.rotates() => FIRST,
            false => 0,
        };
        self.next
    }

    /// These bytes of the table, whose data ends at `end`. `on`: they go on where others ended, so more will be wanted. Otherwise no more than these are read on a drive that does
    /// not rotate, but for the rest of its last block.
    pub fn read(&mut self, source: &dyn Source, wanted: Range<u64>, end: u64, on: bool) -> Result<Vec<u8>> {
        let behind = self.from + self.bytes.len() as u64;
        if (self.from..=behind).contains(&wanted.start) {
            self.bytes.drain(..(wanted.start - self.from) as usize);
        } else {
            self.bytes.clear();
        }
        self.from = wanted.start;
        let len = wanted.end.saturating_sub(wanted.start) as usize;
        if self.bytes.len() < len {
            let begin = self.from + self.bytes.len() as u64;
            let upto = wanted.end.max(begin + self.grow(source, on)).next_multiple_of(ALIGN).min(end.max(wanted.end));
            match source.read(begin, (upto - begin) as usize) {
                Ok(more) => self.bytes.extend_from_slice(&more),
                Err(_) => return self.read_alone(source, wanted.start, len),
            }
        }
        Ok(self.bytes.get(..len).unwrap_or(&self.bytes).to_vec())
    }

    /// The same for who goes back: more is read of what is before.
    pub fn read_back(&mut self, source: &dyn Source, wanted: Range<u64>, on: bool) -> Result<Vec<u8>> {
        let behind = self.from + self.bytes.len() as u64;
        let len = wanted.end.saturating_sub(wanted.start) as usize;
        if wanted.start < self.from || wanted.end > behind {
            let from = wanted.end.saturating_sub(self.grow(source, on)).min(wanted.start) / ALIGN * ALIGN;
            match source.read(from, (wanted.end - from) as usize) {
                Ok(bytes) => (self.from, self.bytes) = (from, bytes),
                Err(_) => return self.read_alone(source, wanted.start, len),
            }
        }
        let there = self.bytes.get((wanted.start - self.from) as usize..).unwrap_or_default();
        Ok(there.get(..len).unwrap_or(there).to_vec())
    }

    /// What could not be read may be what nobody asked for.
    fn read_alone(&mut self, source: &dyn Source, at: u64, len: usize) -> Result<Vec<u8>> {
        self.bytes.clear();
        self.next = 0;
        source.read(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::{Code, Error};
    use std::sync::{Arc, Mutex};

    /// Bytes that are their place, of which the last cannot be read from some place on.
    #[derive(Default)]
    struct Bytes {
        len: u64,
        unreadable: Range<u64>,
        rotates: bool,
        reads: Mutex<Vec<(u64, usize)>>,
    }

    fn bytes(len: u64) -> Bytes {
        Bytes { len, ..Bytes::default() }
    }

    impl Source for Bytes {
        fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
            let end = at + len as u64;
            if end > self.len || at < self.unreadable.end && end > self.unreadable.start {
                return Err(Error::refused(Code::InvalidArgument, &self.drive(), "unreadable"));
            }
            self.reads.lock().unwrap().push((at, len));
            Ok((at..at + len as u64).map(|at| (at / 100) as u8).collect())
        }

        fn drive(&self) -> Arc<str> {
            "bytes".into()
        }

        fn rotates(&self) -> bool {
            self.rotates
        }
    }

    const KIB: u64 = 1 << 10;

    fn reads(source: &Bytes) -> Vec<(u64, u64)> {
        std::mem::take(&mut *source.reads.lock().unwrap()).into_iter().map(|(at, len)| (at, len as u64)).collect()
    }

    #[test]
    fn who_goes_on_reads_more_and_nothing_twice() {
        let (source, mut ahead) = (bytes(1 << 20), Ahead::default());
        let block = 12_500;
        for n in 10..40 {
            let wanted = n * block..(n + 1) * block;
            let bytes = ahead.read(&source, wanted.clone(), 1 << 20, n > 10).unwrap();
            assert!(bytes.iter().copied().eq(wanted.map(|at| (at / 100) as u8)), "{n}");
        }
        let reads = reads(&source);
        assert_eq!(reads[0], (125_000, 139_264 - 125_000));
        assert!(reads.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{reads:?}");
        assert_eq!(reads[1..].iter().map(|(_, len)| len / KIB).collect::<Vec<_>>(), [64, 128, 256]);
    }

    #[test]
    fn it_ends_with_the_data_and_begins_anew_elsewhere() {
        let (source, mut ahead) = (bytes(100_000), Ahead::default());
        ahead.read(&source, 70_000..80_000, 99_999, true).unwrap();
        ahead.read(&source, 80_000..99_999, 99_999, true).unwrap();
        ahead.read(&source, 1000..1010, 99_999, false).unwrap();
        ahead.read(&source, 1010..1020, 99_999, false).unwrap();
        assert_eq!(reads(&source), [(70_000, 29_999), (1000, 3096)]);
    }

    #[test]
    fn what_nobody_asked_for_may_be_unreadable() {
        let (source, mut ahead) = (bytes(50_000), Ahead::default());
        assert_eq!(ahead.read(&source, 40_000..50_000, 100_000, true).unwrap().len(), 10_000);
        assert!(ahead.read(&source, 50_000..60_000, 100_000, true).is_err());
    }

    #[test]
    fn who_seeks_on_a_drive_that_rotates_reads_more() {
        let source = Bytes { rotates: true, ..bytes(1 << 20) };
        let mut ahead = Ahead::default();
        ahead.read(&source, 300_000..310_000, 1 << 20, false).unwrap();
        ahead.read(&source, 310_000..320_000, 1 << 20, true).unwrap();
        assert_eq!(reads(&source), [(300_000, 368_640 - 300_000)]);
        ahead.read_back(&source, 600_000..610_000, false).unwrap();
        ahead.read_back(&source, 590_000..600_000, true).unwrap();
        assert_eq!(reads(&source), [(540_672, 610_000 - 540_672)]);
    }

    #[test]
    fn who_goes_back_reads_more_of_what_is_before() {
        let (source, mut ahead) = (bytes(1 << 20), Ahead::default());
        let block = 12_500;
        for n in (0..40).rev() {
            let wanted = n * block..(n + 1) * block;
            let bytes = ahead.read_back(&source, wanted.clone(), n < 39).unwrap();
            assert!(bytes.iter().copied().eq(wanted.map(|at| (at / 100) as u8)), "{n}");
        }
        let reads = reads(&source);
        assert_eq!(reads[0], (487_500 / ALIGN * ALIGN, 500_000 - 487_500 / ALIGN * ALIGN));
        // The beginning of the data is the last.
        assert_eq!((reads.len(), reads[4].0), (5, 0), "{reads:?}");
        assert!(
            reads[1..4]
                .iter()
                .zip([64, 128, 256])
                .all(|((_, len), wanted)| (wanted..wanted + 4).contains(&(len / KIB))),
            "{reads:?}"
        );
        // Forward again, and back, within what is there.
        ahead.read(&source, 25_000..37_500, 1 << 20, true).unwrap();
        ahead.read_back(&source, 25_000..37_500, true).unwrap();
        assert_eq!(super::tests::reads(&source), []);
    }

    #[test]
    fn what_is_before_may_be_unreadable() {
        let source = Bytes { unreadable: 40_000..40_001, ..bytes(100_000) };
        let mut ahead = Ahead::default();
        let wanted = 60_000..70_000u64;
        let bytes = ahead.read_back(&source, wanted.clone(), true).unwrap();
        assert!(bytes.iter().copied().eq(wanted.map(|at| (at / 100) as u8)));
        assert!(ahead.read_back(&source, 35_000..45_000, true).is_err());
    }
}
