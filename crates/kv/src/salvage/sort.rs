//! Sorts more changes than memory holds: sorted runs in files of the host, which are merged.

use super::merge::{Change, compare};
use crate::order::Order;
use crate::table::Kind;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of changes in memory.
const MEMORY: usize = 64 << 20;
/// What a change takes beside key and value, about.
const AROUND: usize = size_of::<Change>();
/// Runs that are merged at once.
const AT_ONCE: usize = 64;
/// Bytes of a run that are read at once.
const PIECE: u64 = 64 << 10;
/// Bytes before the key: number, kind, length of the key and of the value.
const HEAD: usize = 8 + 1 + 4 + 4;

/// Makes a file for what memory does not hold. Whoever gives it away need not keep its name.
pub(super) type Scratch<'a> = &'a mut dyn FnMut() -> io::Result<File>;

/// See the module.
pub(super) struct Sorter {
    order: Arc<dyn Order>,
    memory: usize,
    changes: Vec<Change>,
    bytes: usize,
    runs: Runs,
}

#[derive(Default)]
struct Runs {
    file: Option<Arc<File>>,
    end: u64,
    ranges: Vec<Range<u64>>,
}

/// What is sorted: changes in memory, or a run in a file.
pub(super) enum Sorted {
    Memory(std::vec::IntoIter<Change>),
    Run(Run),
}

/// A run that is read.
pub(super) struct Run {
    file: Arc<File>,
    at: u64,
    end: u64,
    piece: (u64, Vec<u8>),
}

impl Sorter {
    pub fn new(order: &Arc<dyn Order>) -> Sorter {
        Sorter::with_memory(order, MEMORY)
    }

    fn with_memory(order: &Arc<dyn Order>, memory: usize) -> Sorter {
        Sorter { order: order.clone(), memory, changes: Vec::new(), bytes: 0, runs: Runs::default() }
    }

    pub fn push(&mut self, change: Change, scratch: Scratch<'_>) -> io::Result<()> {
        self.bytes += AROUND + change.key.len() + change.value.len();
        self.changes.push(change);
        if self.bytes > self.memory { self.spill(scratch) } else { Ok(()) }
    }

    fn sort(&mut self) -> Vec<Change> {
        let mut changes = std::mem::take(&mut self.changes);
        changes.sort_by(|a, b| compare(self.order.as_ref(), a, b));
        self.bytes = 0;
        changes
    }

    fn spill(&mut self, scratch: Scratch<'_>) -> io::Result<()> {
        let changes = self.sort();
        self.runs.write(changes.into_iter().map(Ok), scratch)
    }

    /// All that was pushed, as few sorted parts.
    pub fn finish(mut self, scratch: Scratch<'_>) -> io::Result<Vec<Sorted>> {
        if self.runs.ranges.is_empty() {
            return Ok(vec![Sorted::Memory(self.sort().into_iter())]);
        }
        self.spill(scratch)?;
        while self.runs.ranges.len() > AT_ONCE {
            let mut merged = Runs::default();
            for some in self.runs.ranges.chunks(AT_ONCE) {
                let mut parts = Vec::new();
                for range in some {
                    let mut part = self.runs.run(range);
                    parts.push((part.next()?, part));
                }
                let order = self.order.clone();
                let next = || {
                    let first = |(at, (change, _)): (usize, &(Option<Change>, Sorted))| change.as_ref().map(|_| at);
                    let all = parts.iter().enumerate().filter_map(first);
                    let least = all.min_by(|a, b| match (&parts[*a].0, &parts[*b].0) {
                        (Some(a), Some(b)) => compare(order.as_ref(), a, b),
                        _ => std::cmp::Ordering::Equal,
                    })?;
                    let (change, part) = &mut parts[least];
                    match part.next() {
                        Ok(next) => std::mem::replace(change, next).map(Ok),
                        Err(error) => Some(Err(error)),
                    }
                };
                let mut next = next;
                merged.write(std::iter::from_fn(&mut next), scratch)?;
            }
            self.runs = merged;
        }
        Ok(self.runs.ranges.iter().map(|range| self.runs.run(range)).collect())
    }
}

impl Runs {
    fn write(&mut self, changes: impl Iterator<Item = io::Result<Change>>, scratch: Scratch<'_>) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.file.insert(Arc::new(scratch()?)).clone(),
        };
        let (begin, mut out) = (self.end, io::BufWriter::with_capacity(PIECE as usize, At(&file, self.end)));
        for change in changes {
            let Change { key, seq, kind, value } = change?;
            out.write_all(&seq.to_le_bytes())?;
            out.write_all(&[kind as u8])?;
            out.write_all(&(key.len() as u32).to_le_bytes())?;
            out.write_all(&(value.len() as u32).to_le_bytes())?;
            out.write_all(&key)?;
            out.write_all(&value)?;
        }
        self.end = out.into_inner().map_err(io::IntoInnerError::into_error)?.1;
        if self.end > begin {
            self.ranges.push(begin..self.end);
        }
        Ok(())
    }

    fn run(&self, range: &Range<u64>) -> Sorted {
        match &self.file {
            Some(file) => Sorted::Run(Run {
                file: file.clone(),
                at: range.start,
                end: range.end,
                piece: (range.start, Vec::new()),
            }),
            None => Sorted::Memory(Vec::new().into_iter()),
        }
    }
}

/// Writes to a place of a file.
struct At<'a>(&'a File, u64);

impl Write for At<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.0.write_at(bytes, self.1)?;
        self.1 += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sorted {
    pub fn next(&mut self) -> io::Result<Option<Change>> {
        match self {
            Sorted::Memory(changes) => Ok(changes.next()),
            Sorted::Run(run) => run.next(),
        }
    }
}

impl Run {
    fn next(&mut self) -> io::Result<Option<Change>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let short = || io::Error::other("a file of sorted pairs is not what was written");
        let head: [u8; HEAD] = self.take(HEAD)?.try_into().map_err(|_| short())?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let seq = u64::from_le_bytes([head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]]);
        let kind = Kind::of(head[8]).ok_or_else(short)?;
        let (key, value) = (self.take(word(9))?, self.take(word(13))?);
        Ok(Some(Change { key, seq, kind, value }))
    }

    fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let end = self.at + len as u64;
        if end > self.end {
            return Err(io::Error::other("a file of sorted pairs is not what was written"));
        }
        if end > self.piece.0 + self.piece.1.len() as u64 {
            let mut piece = vec![0; (self.end - self.at).min(PIECE.max(len as u64)) as usize];
            self.file.read_exact_at(&mut piece, self.at)?;
            self.piece = (self.at, piece);
        }
        let from = (self.at - self.piece.0) as usize;
        self.at = end;
        Ok(self.piece.1[from..from + len].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Bytewise;

    #[test]
    fn what_memory_does_not_hold_comes_back_sorted() {
        let order: Arc<dyn Order> = Arc::new(Bytewise);
        let (mut random, mut files) = (1u64, 0);
        // All in memory; some runs; more runs than are merged at once.
        for (memory, many) in [(1 << 20, 0), (20_000, 1), (400, 2)] {
            let mut scratch = || {
                files += 1;
                tempfile::tempfile()
            };
            let (mut sorter, mut all) = (Sorter::with_memory(&order, memory), Vec::new());
            for seq in 0..1000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let key = format!("{}", (random >> 33) % 300).into_bytes();
                let value = vec![b'v'; (random >> 40) as usize % 200];
                let kind = if random >> 62 == 0 { Kind::Delete } else { Kind::Put };
                let change = Change { key, seq, kind, value };
                all.push(change.clone());
                sorter.push(change, &mut scratch).unwrap();
            }
            all.sort_by(|a, b| compare(&Bytewise, a, b));
            let parts = sorter.finish(&mut scratch).unwrap();
            assert!(parts.len() <= AT_ONCE);
            let mut found = Vec::new();
            for mut part in parts {
                let before = found.len();
                while let Some(change) = part.next().unwrap() {
                    found.push(change);
                }
                assert!(found[before..].is_sorted_by(|a, b| compare(&Bytewise, a, b).is_le()));
            }
            found.sort_by(|a, b| compare(&Bytewise, a, b));
            assert!(found == all);
            assert!(files >= many, "{files}");
            files = 0;
        }
    }

    #[test]
    fn a_disk_that_is_full_is_an_error() {
        let order: Arc<dyn Order> = Arc::new(Bytewise);
        let mut sorter = Sorter::with_memory(&order, 10);
        let change = Change { key: b"k".to_vec(), seq: 1, kind: Kind::Put, value: vec![0; 100] };
        let full = sorter.push(change, &mut || Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
