//! What an image may take, and how much its clients may ask for.

use serde::{Deserialize, Serialize};

/// Limits of an image. `None`: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of blocks that its head and its own snapshots may have: [`Info::used`](crate::Info::used) and [`Info::kept`](crate::Info::kept) together. A write beyond that fails.
    pub used: Option<u64>,
    /// Reads, writes and discards a second, of all clients together. Those beyond it wait.
    pub iops: Option<u64>,
    /// Bytes that are read and written a second, of all clients together. Requests beyond it wait.
    pub bandwidth: Option<u64>,
}

/// How limits change. `None`: that one stays. 0: there is none any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitChange {
    /// [`Limits::used`].
    pub used: Option<u64>,
    /// [`Limits::iops`].
    pub iops: Option<u64>,
    /// [`Limits::bandwidth`].
    pub bandwidth: Option<u64>,
}

impl LimitChange {
    pub(crate) fn of(self, before: Limits) -> Limits {
        let one = |change: Option<u64>, before| change.map_or(before, |to| (to > 0).then_some(to));
        Limits {
            used: one(self.used, before.used),
            iops: one(self.iops, before.iops),
            bandwidth: one(self.bandwidth, before.bandwidth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays_and_zero_is_no_limit() {
        let before = Limits { used: Some(7), iops: Some(8), bandwidth: None };
        let change = LimitChange { used: None, iops: Some(0), bandwidth: Some(9) };
        assert_eq!(change.of(before), Limits { used: Some(7), iops: None, bandwidth: Some(9) });
    }
}
