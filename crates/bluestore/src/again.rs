//! How often the drive was asked once more.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often something was read once more.
#[derive(Default)]
pub(crate) struct Again {
    mended: AtomicU64,
    in_vain: AtomicU64,
}

impl Again {
    /// It was so often before.
    pub fn after((mended, in_vain): (u64, u64)) -> Again {
        Again { mended: mended.into(), in_vain: in_vain.into() }
    }

    /// It was once more.
    pub fn count(&self, mended: bool) {
        let of = if mended { &self.mended } else { &self.in_vain };
        of.fetch_add(1, Ordering::Relaxed);
    }

    /// With success, and in vain.
    pub fn counts(&self) -> (u64, u64) {
        (self.mended.load(Ordering::Relaxed), self.in_vain.load(Ordering::Relaxed))
    }
}
