//! What is asked of a store, and what came of it.

use super::super::Rule;
use super::super::result::Row;
use super::DRIVE;
use imbrex_emulator::Counts;
use imbrex_emulator::time::TimeStats;

pub(crate) const RATE: &str = "operations/s";

/// Objects that are written, or read again.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) writes: bool,
    pub(crate) size: u64,
    pub(crate) at_once: usize,
    /// Of the wall.
    pub(crate) seconds: f64,
    /// At most so many are written; read are those of these numbers, each once.
    pub(crate) objects: u64,
    /// What their names begin with.
    pub(crate) prefix: String,
}

/// Requests to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Reads from its front on.
    Reads,
    /// Writes from its front on.
    Writes,
    /// Writes anywhere.
    Random,
}

impl Pattern {
    pub(super) fn name(self) -> &'static str {
        match self {
            Pattern::Reads => "reads in order",
            Pattern::Writes => "writes in order",
            Pattern::Random => "random writes",
        }
    }
}

/// What is asked of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    pub(super) pattern: Pattern,
    /// Of each, in bytes; it begins at a multiple of that.
    pub(super) size: u64,
    pub(super) at_once: usize,
    /// Of the wall.
    pub(super) seconds: f64,
    /// At most so many bytes, those of the image.
    pub(super) bytes: u64,
}

/// What a drive, and the processes of a store, have done by a moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) counts: Counts,
    /// Seconds of the drive, busy.
    pub(crate) busy: f64,
    pub(crate) seeks: u64,
    /// Seconds of the processor.
    pub(crate) processor: f64,
    /// The same of the drive with the metadata, where that is another one; its processor's seconds are 0.
    pub(crate) db: Option<Box<Moment>>,
}

impl Moment {
    pub(crate) fn of(counts: Counts, time: Option<&TimeStats>, processor: f64) -> Moment {
        let (busy, seeks) = time.map_or((0.0, 0), |time| (time.total.busy(), time.seeks));
        Moment { counts, busy, seeks, processor, db: None }
    }

    pub(crate) fn since(&self, earlier: &Moment) -> Moment {
        Moment {
            counts: self.counts.since(&earlier.counts),
            busy: self.busy - earlier.busy,
            seeks: self.seeks.saturating_sub(earlier.seeks),
            processor: self.processor - earlier.processor,
            db: self.db.as_ref().zip(earlier.db.as_ref()).map(|(db, earlier)| Box::new(db.since(earlier))),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// Of the wall, until the last one had ended.
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    /// Of each: the second it ended in, and the seconds it took; nothing where a program does not tell.
    pub(crate) ended: Vec<(f64, f64)>,
    /// What was done meanwhile.
    pub(crate) meanwhile: Moment,
}

pub(crate) fn at(sorted: &[f64], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Operations that ended in each whole window of so many seconds.
pub(crate) fn windows(ended: &[(f64, f64)], seconds: f64, window: f64) -> Vec<u64> {
    let mut windows = vec![0; (seconds / window) as usize];
    for (at, _) in ended {
        if let Some(count) = windows.get_mut((at / window) as usize) {
            *count += 1;
        }
    }
    windows
}

/// Operations a second over time: the end of each window of so many seconds of the drive, whose clock runs at that speed, and how many there were in it.
pub(super) fn over_time(loaded: &Loaded, speed: f64, window: f64) -> Vec<(f64, f64)> {
    let counts = windows(&loaded.ended, loaded.seconds, window / speed);
    counts.into_iter().zip(1..).map(|(count, n)| (f64::from(n) * window, count as f64 / window)).collect()
}

/// The row of operations on so many bytes, which are writes or not; the drive rested after so many seconds more, and its clock runs at that speed.
pub(super) fn row(
    loaded: &Loaded,
    (size, writes): (u64, bool),
    (settling, speed): (f64, f64),
    window: Option<f64>,
) -> Row {
    let Loaded { operations, ended, meanwhile, .. } = loaded;
    let (seconds, count) = (loaded.seconds * speed, *operations as f64);
    let each = |sum: f64| sum / count.max(1.0);
    let rate = count / seconds.max(1e-9);
    let mut row = Row {
        rule: Rule::Fewer.name().into(),
        device_seconds: Some(meanwhile.busy),
        wall_seconds: Some(seconds),
        operations: Some(*operations),
        bytes_user: writes.then_some(operations * size),
        bytes_drive: Some(meanwhile.counts.bytes_written),
        bytes_read: Some(meanwhile.counts.bytes_read),
        flushes: Some(meanwhile.counts.flushes),
        drive_utilisation: Some((meanwhile.busy / seconds.max(1e-9)).min(1.0)),
        ..Row::new("", DRIVE)
    };
    let mut figures = vec![
        (RATE, rate),
        ("MB/s", rate * size as f64 / 1e6),
        ("ms of the processor, each", each(meanwhile.processor * 1e3)),
        ("ms of the drive, each", each(meanwhile.busy * 1e3)),
        ("seeks, each", each(meanwhile.seeks as f64)),
        ("flushes, each", each(meanwhile.counts.flushes as f64)),
        ("reads of the drive, each", each(meanwhile.counts.reads as f64)),
        ("writes of the drive, each", each(meanwhile.counts.writes as f64)),
    ];
    if writes {
        figures.push(("s until the drive rested", settling * speed));
        figures.push(("operations/s until it rested", count / ((loaded.seconds + settling) * speed).max(1e-9)));
    }
    let mut took: Vec<f64> = ended.iter().map(|(_, took)| took * speed * 1e3).collect();
    took.sort_by(f64::total_cmp);
    if !took.is_empty() {
        figures.push(("ms, mean", took.iter().sum::<f64>() / took.len() as f64));
        figures.extend([("ms, p50", at(&took, 0.5)), ("ms, p99", at(&took, 0.99))]);
    }
    if let Some(window) = window {
        let least = windows(ended, loaded.seconds, window / speed).into_iter().min();
        let least = least.map(|least| least as f64 / window);
        figures.extend(least.map(|least| ("operations/s of the least window", least)));
        figures.extend(least.map(|least| ("least window over the mean", least / rate)));
    }
    row.figures.extend(figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)));
    row.amplified()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded() -> Loaded {
        let counts = Counts { bytes_written: 800_000, flushes: 50, writes: 100, ..Counts::default() };
        // Ten a second, and none in the third; the n-th takes n ms.
        let ended = (0..100).map(|n| (f64::from(n) / 10.0 + f64::from(u8::from(n >= 20)), f64::from(n + 1) / 1e3));
        Loaded {
            seconds: 11.0,
            operations: 100,
            ended: ended.collect(),
            meanwhile: Moment { counts, busy: 5.5, seeks: 200, processor: 0.2, db: None },
        }
    }

    #[test]
    fn a_row_has_rates_waits_and_what_the_drive_did() {
        let row = row(&loaded(), (4096, true), (9.0, 1.0), Some(1.0));
        let is = |name: &str, value: f64| (row.figures[name] - value).abs() < 1e-9;
        assert!(is(RATE, 100.0 / 11.0) && is("operations/s until it rested", 5.0), "{:?}", row.figures);
        assert!(is("ms, mean", 50.5) && is("ms, p50", 50.0) && is("ms, p99", 99.0), "{:?}", row.figures);
        assert!(is("operations/s of the least window", 0.0) && is("flushes, each", 0.5) && is("seeks, each", 2.0));
        assert!(is("ms of the processor, each", 2.0) && is("ms of the drive, each", 55.0));
        assert_eq!((row.drive_utilisation, row.write_amplification), (Some(0.5), Some(800_000.0 / 409_600.0)));
    }

    #[test]
    fn all_times_are_the_drives() {
        // Its clock is twice as fast as the world's.
        let row = row(&loaded(), (4096, false), (0.0, 2.0), Some(2.0));
        let is = |name: &str, value: f64| (row.figures[name] - value).abs() < 1e-9;
        assert!(is(RATE, 100.0 / 22.0) && is("ms, p50", 100.0), "{:?}", row.figures);
        assert_eq!((row.wall_seconds, row.drive_utilisation, row.bytes_user), (Some(22.0), Some(0.25), None));
        assert!(!row.figures.contains_key("operations/s until it rested"));
        // Ten a second of the world, and none in its third.
        assert_eq!(over_time(&loaded(), 2.0, 10.0), [(10.0, 4.0), (20.0, 5.0)]);
    }

    #[test]
    fn a_window_that_is_not_over_does_not_count() {
        let ended = [(0.5, 0.1), (1.5, 0.1), (1.7, 0.1), (2.1, 0.1)];
        assert_eq!(windows(&ended, 2.2, 1.0), [1, 2]);
        assert_eq!((at(&[], 0.5), at(&[3.0], 0.99)), (0.0, 3.0));
    }
}
