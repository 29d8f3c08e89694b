//! What is known of an image while nobody has it open, too: its limits of requests, what was asked of it, and what it took when somebody looked.

use crate::limits::Limits;
use crate::meter::Meter;
use crate::throttle::{Clock, Throttle};
use imbrex_bluestore::ObjectId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the objects of an image have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes of blocks of its head.
    pub head: u64,
    /// And of those that were kept for its snapshots.
    pub kept: u64,
}

/// A look at all objects, by parts.
#[derive(Default)]
pub(crate) struct Look {
    /// What the last one has found, and when it had begun.
    pub last: Option<(Taken, Duration)>,
    /// Where the one under way goes on, what it has found so far, and when it began.
    pub next: Option<(ObjectId, Taken, Duration)>,
}

/// See the module.
pub(crate) struct Lasting {
    pub throttle: Throttle,
    pub meter: Meter,
    pub clock: Arc<dyn Clock>,
    look: Mutex<Look>,
}

impl Lasting {
    pub fn new(clock: Arc<dyn Clock>, limits: Limits) -> Lasting {
        let (meter, look) = (Meter::default(), Mutex::default());
        Lasting { throttle: Throttle::new(clock.clone(), limits), meter, clock, look }
    }

    pub fn look(&self) -> MutexGuard<'_, Look> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
