//! What an open store has done since it was opened, and since it was made. Each counter is exact by itself; two of them may be of different moments.

use super::file::TableFile;
use crate::batch::{Body, Change};
use crate::done::{Done, LEVELS};
use crate::policy::{BOTTOM, Group, HIGHEST};
use crate::space::UNNAMED;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A put that waited for less was not held back: the policy was asked, and it admitted more.
const STALL: Duration = Duration::from_millis(1);

type ByLevel = [AtomicU64; LEVELS];

/// See the module.
#[derive(Default)]
pub(crate) struct Counters {
    /// What openings before this one have noted.
    before: Done,
    puts: AtomicU64,
    deletes: AtomicU64,
    put_bytes: AtomicU64,
    gets: AtomicU64,
    flushed: ByLevel,
    merged: ByLevel,
    steps: AtomicU64,
    stalls: AtomicU64,
    /// Nanoseconds.
    stalled: AtomicU64,
    longest: AtomicU64,
}

impl Counters {
    /// Of a store that has done all this before.
    pub fn after(before: Done) -> Counters {
        Counters { before, ..Counters::default() }
    }

    /// What was done since the store was made, as far as openings before this one have noted it: with a level for each that there can be.
    pub fn since_made(&self) -> Done {
        let (before, now) = (&self.before, self.done(LEVELS - 1));
        let level = |(n, now): (usize, &(u64, u64))| {
            let before = before.written.get(n).copied().unwrap_or_default();
            (before.0.saturating_add(now.0), before.1.saturating_add(now.1))
        };
        Done {
            puts: before.puts.saturating_add(now.puts),
            deletes: before.deletes.saturating_add(now.deletes),
            put_bytes: before.put_bytes.saturating_add(now.put_bytes),
            gets: before.gets.saturating_add(now.gets),
            written: now.written.iter().enumerate().map(level).collect(),
            steps: before.steps.saturating_add(now.steps),
            stalls: before.stalls.saturating_add(now.stalls),
            stalled: before.stalled.saturating_add(now.stalled),
            longest_stall: before.longest_stall.max(now.longest_stall),
        }
    }

    /// The same to be noted on the drive. `timed`: with what waited; where each run of a program is to be the same, no time may count.
    pub fn to_note(&self, timed: bool) -> Done {
        let Done { stalls, stalled, longest_stall, .. } = self.before;
        let all = self.since_made();
        if timed { all } else { Done { stalls, stalled, longest_stall, ..all } }
    }

    /// A batch, or a single change, is in the log.
    pub fn wrote(&self, body: Body<'_>) {
        let (mut puts, mut bytes) = (0, 0);
        for change in body.changes_in(UNNAMED).filter(Change::adds) {
            (puts, bytes) = (puts + 1, bytes + change.key.len() + change.value.len());
        }
        self.puts.fetch_add(puts, Relaxed);
        self.put_bytes.fetch_add(bytes as u64, Relaxed);
        if puts < body.len() as u64 {
            self.deletes.fetch_add(body.len() as u64 - puts, Relaxed);
        }
    }

    /// So many pairs, of so many bytes of keys and values, were ingested.
    pub fn ingested(&self, pairs: u64, bytes: u64) {
        self.puts.fetch_add(pairs, Relaxed);
        self.put_bytes.fetch_add(bytes, Relaxed);
    }

    /// A key is read.
    pub fn get(&self) {
        self.gets.fetch_add(1, Relaxed);
    }

    /// A flush has made these tables.
    pub fn flushed(&self, tables: &[Arc<TableFile>]) {
        add(&self.flushed, tables);
    }

    /// A step of a merge has made these tables.
    pub fn merged(&self, tables: &[Arc<TableFile>]) {
        add(&self.merged, tables);
        self.steps.fetch_add(1, Relaxed);
    }

    /// For who may have to wait.
    pub fn wait(&self) -> Wait<'_> {
        Wait { counters: self, since: None }
    }

    /// What was done so far. The bottom comes behind `levels` levels, or as many as were written to.
    pub fn done(&self, levels: usize) -> Done {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let mut written: Vec<_> = self.flushed.iter().zip(&self.merged).map(|(a, b)| (of(a), of(b))).collect();
        let bottom = written.pop().unwrap_or_default();
        let used = written.iter().rposition(|level| *level != (0, 0)).map_or(0, |last| last + 1);
        written.truncate(levels.max(used));
        written.push(bottom);
        Done {
            puts: of(&self.puts),
            deletes: of(&self.deletes),
            put_bytes: of(&self.put_bytes),
            gets: of(&self.gets),
            written,
            steps: of(&self.steps),
            stalls: of(&self.stalls),
            stalled: Duration::from_nanos(of(&self.stalled)),
            longest_stall: Duration::from_nanos(of(&self.longest)),
        }
    }
}

fn add(counters: &ByLevel, tables: &[Arc<TableFile>]) {
    tables.iter().for_each(|table| {
        counters[place(table.info.group)].fetch_add(table.info.len, Relaxed);
    });
}

/// The bottom comes behind the others.
fn place(group: Group) -> usize {
    if group == BOTTOM { LEVELS - 1 } else { usize::from(group.level.min(HIGHEST)) }
}

/// A write that may have to wait. What it waited counts when it is dropped, also where it fails.
pub(crate) struct Wait<'a> {
    counters: &'a Counters,
    since: Option<Instant>,
}

impl Wait<'_> {
    /// It waits from now on, if it did not before.
    pub fn begins(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn ended(&self, waited: Duration) {
        if waited >= STALL {
            let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            self.counters.stalls.fetch_add(1, Relaxed);
            self.counters.stalled.fetch_add(nanos, Relaxed);
            self.counters.longest.fetch_max(nanos, Relaxed);
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.ended(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;

    #[test]
    fn a_batch_counts_by_what_it_does() {
        let counters = Counters::default();
        let mut batch = Batch::new();
        batch.put(b"key", b"value");
        batch.put(b"k", b"");
        batch.delete(b"key");
        batch.delete_range(Some(b"a"), Some(b"b"));
        counters.wrote(Body::Batch(&batch));
        counters.get();
        let done = counters.done(0);
        assert_eq!((done.puts, done.deletes, done.put_bytes, done.gets), (2, 2, 9, 1));
        assert_eq!(done.amplification(18), Some(2.0));
        assert_eq!(Done::default().amplification(18), None);
    }

    #[test]
    fn only_a_wait_that_is_long_is_a_stall() {
        let counters = Counters::default();
        counters.wait().ended(Duration::from_micros(999));
        assert_eq!(counters.done(0), Counters::default().done(0));
        for milliseconds in [5, 20, 1] {
            counters.wait().ended(Duration::from_millis(milliseconds));
        }
        let done = counters.done(0);
        assert_eq!((done.stalls, done.stalled.as_millis(), done.longest_stall.as_millis()), (3, 26, 20));
        // One that never began to wait says nothing when it goes.
        drop(counters.wait());
        assert_eq!(counters.done(0), done);
        let mut wait = counters.wait();
        wait.begins();
        std::thread::sleep(2 * STALL);
        wait.begins();
        drop(wait);
        assert_eq!(counters.done(0).stalls, 4);
    }

    #[test]
    fn what_was_done_before_is_added() {
        let first = Counters::default();
        first.flushed[0].fetch_add(5, Relaxed);
        first.merged[place(BOTTOM)].fetch_add(7, Relaxed);
        first.wait().ended(Duration::from_millis(9));
        let second = Counters::after(first.since_made());
        second.merged[place(BOTTOM)].fetch_add(1, Relaxed);
        second.wait().ended(Duration::from_millis(4));
        let all = second.since_made();
        assert_eq!((all.written.len(), all.written[0], all.written[LEVELS - 1]), (LEVELS, (5, 0), (0, 8)));
        assert_eq!((all.stalls, all.stalled.as_millis(), all.longest_stall.as_millis()), (2, 13, 9));
        assert_eq!(second.done(0).written, [(0, 1)]);
        assert_eq!(second.to_note(true), all);
        assert_eq!((second.to_note(false).stalls, second.to_note(false).written), (1, all.written));
    }

    #[test]
    fn the_bottom_is_behind_the_levels() {
        let counters = Counters::default();
        assert_eq!(counters.done(0).written, [(0, 0)]);
        counters.flushed[2].fetch_add(5, Relaxed);
        counters.merged[place(BOTTOM)].fetch_add(7, Relaxed);
        assert_eq!(counters.done(1).written, [(0, 0), (0, 0), (5, 0), (0, 7)]);
        assert_eq!(counters.done(4).written, [(0, 0), (0, 0), (5, 0), (0, 0), (0, 7)]);
        assert_eq!(place(Group { level: 3, part: 9 }), 3);
    }
}
