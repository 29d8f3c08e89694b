//! What cleaning in the background remembers of an open store.

use crate::core::lock;
use crate::policy::throttle::Pace;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Of one open store.
#[derive(Default)]
pub(crate) struct Tending {
    /// When [stepping](crate::ChunkStore::step) without threads: run after users take this many zones. Who has stepped once need
    /// not do so ever again.
    stepped: AtomicU32,
    pace: Mutex<Pace>,
}

impl Tending {
    /// Somebody has stepped lately, for one more zone that users take.
    pub(crate) fn takes_one_more(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.stepped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Somebody has stepped, for so many zones that users take.
    pub(crate) fn steps_for(&self, zones: u32) {
        self.stepped.store(zones, Ordering::Relaxed);
    }

    pub(crate) fn pace(&self) -> Pace {
        *lock(&self.pace)
    }

    pub(crate) fn set_pace(&self, pace: Pace) {
        *lock(&self.pace) = pace;
    }
}
