//! What clients have asked of an image since the images were opened, and how long that took.

use imbrex_zones::histogram::{Counts, Histogram, TIMES};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// Bytes became zeros that take no room.
    Discard,
    /// What had been written was made durable.
    Flush,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Discard, Kind::Flush];

    /// The name that metrics have.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Discard => "discard",
            Kind::Flush => "flush",
        }
    }
}

/// Requests of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Which.
    pub kind: Kind,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that succeeded, by nanoseconds from when they began, behind a wait for the limits, until they had ended.
    #[serde(with = "Buckets")]
    pub nanoseconds: Histogram,
}

/// A histogram on its way.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Histogram")]
struct Buckets {
    buckets: Vec<(u64, u64)>,
    count: u64,
    sum: u64,
}

#[derive(Default)]
struct OfKind {
    times: Counts,
    bytes: AtomicU64,
    failed: AtomicU64,
}

/// Measures requests.
#[derive(Default)]
pub(crate) struct Meter {
    of: [OfKind; 4],
    waits: AtomicU64,
    waited: AtomicU64,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Meter {
    /// Does it, and takes note.
    pub fn measure<T, E>(&self, kind: Kind, bytes: u64, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let (began, of) = (Instant::now(), &self.of[kind as usize]);
        let result = work();
        if result.is_ok() {
            of.times.add(&TIMES, nanoseconds(began.elapsed()));
            of.bytes.fetch_add(bytes, Ordering::Relaxed);
        } else {
            of.failed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// The limits have held a request back.
    pub fn waited(&self, time: Duration) {
        if time > Duration::ZERO {
            self.waits.fetch_add(1, Ordering::Relaxed);
            self.waited.fetch_add(nanoseconds(time), Ordering::Relaxed);
        }
    }

    pub fn requests(&self) -> Vec<Requests> {
        let of = |kind: Kind| {
            let OfKind { times, bytes, failed } = &self.of[kind as usize];
            let (bytes, failed) = (bytes.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
            Requests { kind, bytes, failed, nanoseconds: times.read(&TIMES) }
        };
        Kind::ALL.into_iter().map(of).collect()
    }

    /// Requests that were held back, and for how many nanoseconds together.
    pub fn waits(&self) -> (u64, u64) {
        (self.waits.load(Ordering::Relaxed), self.waited.load(Ordering::Relaxed))
    }
}
