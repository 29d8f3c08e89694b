//! Reading ahead of streams: the next window of a table is on its way while the current one is used.
//!
//! A compaction reads several tables side by side, a piece of each in turn. Read one after the other, each piece costs the head a seek and a
//! turn; read as windows of several megabytes, with more than one command at the drive, it stays where it is. So a reader that
//! reads on where it stopped ([`Streams`], pure policy) gets its next window read by threads of their own ([`Ahead`]), into the cache.
//!
//! Invariants:
//! - What is on its way is in `flying`, so no stream reads it a second time; it waits. Reads that are no step of a
//!   stream read for themselves, and wait for nobody. What could not be read is read
//!   again by who needs it, who then meets the error.
//! - A piece holds its file, so that nothing that it reads is given up meanwhile; bytes that were moved or overwritten meanwhile are
//!   not kept.
//! - A window begins when no flush is under way: a drive that is asked to flush writes a piece of its cache and serves a command in turn,
//!   and the head would go to and fro. Nobody waits for more than one flush so.
//! - No lock is held during I/O. The threads end before the file system is unmounted.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Commands that the threads have at the drive at a time.
const THREADS: usize = 4;
/// Streams that one handle keeps apart.
const STREAMS: usize = 8;
/// All windows together take this part of the cache at most.
const PART: u64 = 4;

/// Where a stream is. In pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stream {
    /// Where it will read on.
    next: u64,
    /// Up to where was asked for.
    asked: u64,
    /// How much it had ahead of it the last time; 0: nobody reads here.
    window: u64,
    age: u64,
}

/// Streams of one handle. Pure policy.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
}

impl Streams {
    /// Pages `read` are read now: which to read ahead. `max`: the longest window; a stream begins with the second read in order, or
    /// with one at a file's beginning that is as long as `long`. Also whether this read is a step of a stream.
    pub(crate) fn reads(&mut self, read: Range<u64>, max: u64, long: u64) -> (bool, Option<Range<u64>>) {
        self.clock += 1;
        let age = self.clock;
        let n = read.end.saturating_sub(read.start).max(1);
        let goes_on = |s: &&mut Stream| s.window > 0 && (read.start..=read.end).contains(&s.next);
        let Some(stream) = self.streams.iter_mut().find(goes_on) else {
            let begins = read.start == 0 && n >= long;
            if let Some(oldest) = self.streams.iter_mut().min_by_key(|s| s.age) {
                *oldest = Stream { next: read.end, asked: read.end, window: n, age };
                if begins {
                    oldest.asked = read.end + n.min(max);
                    return (true, Some(read.end..oldest.asked).filter(|pages| !pages.is_empty()));
                }
            }
            return (false, None);
        };
        let moved = read.end > stream.next;
        (stream.next, stream.age) = (read.end, age);
        // Half of it is still there: enough to be used while the rest comes.
        if !moved || stream.asked >= read.end + stream.window.div_ceil(2).min(max.div_ceil(2)) {
            return (true, None);
        }
        stream.window = (stream.window * 2).max(n).min(max);
        let from = stream.asked.max(read.end);
        stream.asked = read.end + stream.window;
        (true, Some(from..stream.asked).filter(|pages| !pages.is_empty()))
    }

    /// Whether somebody reads ahead here, so that also what is in the cache counts as a step of a stream.
    pub(crate) fn is_active(&self) -> bool {
        self.streams.iter().any(|s| s.asked > s.next)
    }

    #[cfg(test)]
    fn windows(&self) -> usize {
        self.streams.iter().filter(|s| s.asked > s.next).count()
    }
}

/// A file whose pages can be read into the cache.
pub(crate) trait Source: Send + Sync {
    /// Its number.
    fn serial(&self) -> u64;
    /// Whether nobody has to read this page any more.
    fn is_in_memory(&self, page: u64) -> bool;
    /// Returns when no flush is under way at its drive.
    fn wait_for_flush(&self);
    /// Reads pages into the cache. Where that fails, or the file changes meanwhile, the pages are missing.
    fn read_pages(&self, pages: Range<u64>);
}

struct Piece {
    file: Arc<dyn Source>,
    pages: Range<u64>,
    /// Whether its window begins with it.
    first: bool,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Piece>,
    /// By file: what waits or is being read.
    flying: HashMap<u64, Vec<Range<u64>>>,
    /// A thread waits for a flush to end: nothing is begun.
    held: bool,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something is to be read, or to stop.
    more: Condvar,
    /// Something was read.
    read: Condvar,
    /// Pieces in `flying`, to be looked at without the lock.
    count: AtomicUsize,
}

/// The threads that read ahead, and what they have to do.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// There are none, and shall be none.
    off: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

impl Ahead {
    /// `on`: whether there may be threads.
    pub(crate) fn new(on: bool) -> Ahead {
        Ahead { shared: Arc::default(), threads: Mutex::default(), off: AtomicBool::new(!on) }
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.off.load(Ordering::Acquire)
    }

    /// The longest window, in bytes, for a cache of so many bytes.
    pub(crate) fn window(&self, readahead: u64, cache: u64) -> u64 {
        let flying = self.shared.count.load(Ordering::Relaxed) as u64;
        // Where many read, each has less ahead.
        readahead.min(cache / PART / (flying / THREADS as u64 + 8))
    }

    /// Reads these pages into the cache, soon; pieces of `most` pages. Returns those that were not there.
    pub(crate) fn request(&self, file: &Arc<impl Source + 'static>, pages: Range<u64>, most: u64) -> Vec<Range<u64>> {
        let serial = file.serial();
        let mut state = lock(&self.shared.state);
        if state.stop || !self.start() {
            return Vec::new();
        }
        let mut pieces = Vec::new();
        let mut from = pages.start;
        while from < pages.end {
            let missing = |page: &u64| !file.is_in_memory(*page) && !state.is_flying(serial, *page);
            let end =
                (from..pages.end.min(from + most.max(1))).take_while(missing).last().map_or(from, |last| last + 1);
            if end == from {
                from += 1;
                continue;
            }
            pieces.push(from..end);
            from = end;
        }
        self.shared.count.fetch_add(pieces.len(), Ordering::AcqRel);
        for (i, pages) in pieces.iter().cloned().enumerate() {
            state.flying.entry(serial).or_default().push(pages.clone());
            state.waiting.push_back(Piece { file: file.clone(), pages, first: i == 0 });
        }
        drop(state);
        self.shared.more.notify_all();
        pieces
    }

    /// Whether the page was on its way, and now is not any more: waits for it. For steps of a stream.
    pub(crate) fn waited_for(&self, serial: u64, page: u64) -> bool {
        if self.shared.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut state = lock(&self.shared.state);
        let mut waited = false;
        while state.is_flying(serial, page) {
            waited = true;
            state = wait(&self.shared.read, state);
        }
        waited
    }

    fn start(&self) -> bool {
        if self.off.load(Ordering::Acquire) {
            return false;
        }
        let mut threads = lock(&self.threads);
        while threads.len() < THREADS {
            let shared = self.shared.clone();
            let spawned = std::thread::Builder::new()
                .name(format!("imbrex-read-{}", threads.len()))
                .spawn(move || shared.read_pieces());
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, "no thread to read ahead");
                    break;
                }
            }
        }
        if threads.is_empty() {
            self.off.store(true, Ordering::Release);
        }
        !threads.is_empty()
    }

    /// Ends the threads; what they had not begun is not read.
    pub(crate) fn stop(&self) {
        self.off.store(true, Ordering::Release);
        let left = {
            let mut state = lock(&self.shared.state);
            state.stop = true;
            state.flying.clear();
            std::mem::take(&mut state.waiting)
        };
        self.shared.more.notify_all();
        self.shared.read.notify_all();
        drop(left);
        for thread in lock(&self.threads).drain(..) {
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
    }
}

impl State {
    fn is_flying(&self, serial: u64, page: u64) -> bool {
        self.flying.get(&serial).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&page)))
    }

    fn landed(&mut self, serial: u64, pages: &Range<u64>) {
        let Some(ranges) = self.flying.get_mut(&serial) else { return };
        if let Some(at) = ranges.iter().position(|range| range == pages) {
            ranges.swap_remove(at);
        }
        if ranges.is_empty() {
            self.flying.remove(&serial);
        }
    }
}

impl Shared {
    fn read_pieces(&self) {
        loop {
            let mut state = lock(&self.state);
            let piece = loop {
                if state.stop {
                    return;
                }
                match if state.held { None } else { state.waiting.pop_front() } {
                    Some(piece) => break piece,
                    None => state = wait(&self.more, state),
                }
            };
            state.held = piece.first;
            drop(state);
            if piece.first {
                piece.file.wait_for_flush();
                lock(&self.state).held = false;
                self.more.notify_all();
            }
            let landing = Landing { shared: self, piece: &piece };
            piece.file.read_pages(piece.pages.clone());
            drop(landing);
        }
    }
}

/// A piece that is being read. Whatever becomes of that, nobody waits for it any longer than this lives.
struct Landing<'a> {
    shared: &'a Shared,
    piece: &'a Piece,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        lock(&self.shared.state).landed(self.piece.file.serial(), &self.piece.pages);
        self.shared.count.fetch_sub(1, Ordering::AcqRel);
        self.shared.read.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_more_and_more_ahead_of_it_and_asks_while_half_is_left() {
        let mut s = Streams::default();
        assert_eq!(s.reads(10..12, 64, 8), (false, None), "nobody knows yet");
        assert_eq!(s.reads(12..14, 64, 8), (true, Some(14..18)));
        assert_eq!(s.reads(14..16, 64, 8), (true, None), "half is left");
        assert_eq!(s.reads(16..18, 64, 8), (true, Some(18..26)));
        assert_eq!(s.reads(100..101, 64, 8), (false, None), "a random read beside it");
        assert_eq!(s.reads(18..23, 64, 8), (true, Some(26..39)));
        assert_eq!(s.windows(), 1);
        assert_eq!(s.reads(23..40, 20, 8), (true, Some(40..60)), "no more than the longest");
        assert!(s.is_active());
    }

    #[test]
    fn a_long_read_at_a_files_beginning_is_a_stream_and_reading_again_is_none() {
        let mut s = Streams::default();
        assert_eq!(s.reads(0..8, 64, 8), (true, Some(8..16)));
        assert_eq!(s.reads(0..8, 64, 8), (true, None), "again, up to where it stands: nothing new");
        let mut s = Streams::default();
        assert_eq!(s.reads(0..2, 64, 8), (false, None));
        assert!(!s.is_active());
        assert_eq!(s.reads(50..58, 64, 8), (false, None), "in the middle it may be a large value");
        // More handles' worth of random reads than are kept: the oldest is forgotten.
        (0..STREAMS as u64).for_each(|i| assert_eq!(s.reads(1000 * i + 100..1000 * i + 101, 64, 8), (false, None)));
        assert_eq!(s.reads(58..60, 64, 8), (false, None));
    }
}
