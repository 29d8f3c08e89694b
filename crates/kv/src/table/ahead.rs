//! Reads ahead for who goes forward through a table.

use super::read::Source;
use imbrex_device::Result;
use std::ops::Range;

/// Reads end at a multiple of this from the table's beginning on, which is at one of the drive. So the next one begins where the last one ended, and not in a block
/// of the drive that was read already: for that the head would have to wait a turn.
const ALIGN: u64 = 4096;
/// What is read at once where the block before was read, too; each time twice as much, up to [`MOST`].
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
    /// These bytes of the table, whose data ends at `end`. `on`: they go on where others ended, so more will be wanted. Otherwise no more than these are read, but
    /// for the rest of the drive's last block.
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
            self.next = if on { (self.next * 2).clamp(FIRST, MOST) } else { 0 };
            let begin = self.from + self.bytes.len() as u64;
            let upto = wanted.end.max(begin + self.next).next_multiple_of(ALIGN).min(end.max(wanted.end));
            match source.read(begin, (upto - begin) as usize) {
                Ok(more) => self.bytes.extend_from_slice(&more),
                // What cannot be read may be what nobody asked for.
                Err(_) => {
                    self.bytes.clear();
                    self.next = 0;
                    return source.read(wanted.start, len);
                }
            }
        }
        Ok(self.bytes.get(..len).unwrap_or(&self.bytes).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::{Code, Error};
    use std::sync::{Arc, Mutex};

    /// Bytes that are their place, of which the last cannot be read from some place on.
    struct Bytes(u64, Mutex<Vec<(u64, usize)>>);

    impl Source for Bytes {
        fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
            if at + len as u64 > self.0 {
                return Err(Error::refused(Code::InvalidArgument, &self.drive(), "unreadable"));
            }
            self.1.lock().unwrap().push((at, len));
            Ok((at..at + len as u64).map(|at| (at / 100) as u8).collect())
        }

        fn drive(&self) -> Arc<str> {
            "bytes".into()
        }
    }

    const KIB: u64 = 1 << 10;

    fn reads(source: &Bytes) -> Vec<(u64, u64)> {
        std::mem::take(&mut *source.1.lock().unwrap()).into_iter().map(|(at, len)| (at, len as u64)).collect()
    }

    #[test]
    fn who_goes_on_reads_more_and_nothing_twice() {
        let (source, mut ahead) = (Bytes(1 << 20, Mutex::default()), Ahead::default());
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
        let (source, mut ahead) = (Bytes(100_000, Mutex::default()), Ahead::default());
        ahead.read(&source, 70_000..80_000, 99_999, true).unwrap();
        ahead.read(&source, 80_000..99_999, 99_999, true).unwrap();
        ahead.read(&source, 1000..1010, 99_999, false).unwrap();
        ahead.read(&source, 1010..1020, 99_999, false).unwrap();
        assert_eq!(reads(&source), [(70_000, 29_999), (1000, 3096)]);
    }

    #[test]
    fn what_nobody_asked_for_may_be_unreadable() {
        let (source, mut ahead) = (Bytes(50_000, Mutex::default()), Ahead::default());
        assert_eq!(ahead.read(&source, 40_000..50_000, 100_000, true).unwrap().len(), 10_000);
        assert!(ahead.read(&source, 50_000..60_000, 100_000, true).is_err());
    }
}
