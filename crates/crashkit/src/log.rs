//! What the workload promised: the operations it began, got acknowledged and made durable, in order.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far an operation had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The call was made and had not returned, or returned an error: the operation may be there or not.
    Begun,
    /// The call returned success: it survives the death of the process.
    Acked,
    /// A later sync covered it: it survives power loss.
    Synced,
}

/// Number of an operation in its log, from 0, in the order of `begun`.
pub type OpId = u64;

/// One operation and how far it had come when the crash hit.
#[derive(Clone, Debug)]
pub struct Entry<Op> {
    /// What was done.
    pub op: Op,
    /// How far it came.
    pub status: Status,
}

type Hook = Arc<dyn Fn(u64) + Send + Sync>;

/// Where a workload writes down what it did. Every acknowledgement and sync is a crash point of its own, so a promise that
/// is given too early is found even where no command follows.
pub struct Log<Op> {
    entries: Mutex<Vec<Entry<Op>>>,
    hook: Option<Hook>,
}

impl<Op: Clone> Log<Op> {
    /// A log that nobody listens to.
    pub fn new() -> Self {
        Log { entries: Mutex::new(Vec::new()), hook: None }
    }

    pub(crate) fn with_hook(hook: Hook) -> Self {
        Log { entries: Mutex::new(Vec::new()), hook: Some(hook) }
    }

    /// The call is about to be made.
    pub fn begun(&self, op: Op) -> OpId {
        let mut entries = self.entries();
        entries.push(Entry { op, status: Status::Begun });
        entries.len() as OpId - 1
    }

    /// The call returned success.
    pub fn acked(&self, id: OpId) {
        if let Some(entry) = self.entries().get_mut(id as usize) {
            entry.status = entry.status.max(Status::Acked);
        }
        self.tell(id << 1);
    }

    /// A sync that was called after the operations up to and including `id` were acknowledged has returned success. What
    /// was begun before `id` but never acknowledged is not promised by it.
    pub fn synced_up_to(&self, id: OpId) {
        for entry in self.entries().iter_mut().take(id as usize + 1) {
            if entry.status == Status::Acked {
                entry.status = Status::Synced;
            }
        }
        self.tell(id << 1 | 1);
    }

    /// One operation was made durable by itself; others before it need not be.
    pub fn synced(&self, id: OpId) {
        if let Some(entry) = self.entries().get_mut(id as usize) {
            entry.status = Status::Synced;
        }
        self.tell(id << 1 | 1);
    }

    /// The operations so far, in order.
    pub fn snapshot(&self) -> Vec<Entry<Op>> {
        self.entries().clone()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries().len()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry<Op>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called without the lock: the listener takes a snapshot.
    fn tell(&self, event: u64) {
        if let Some(hook) = &self.hook {
            hook(event);
        }
    }
}

impl<Op: Clone> Default for Log<Op> {
    fn default() -> Self {
        Self::new()
    }
}

/// A fault that was injected into the run (see [`crate::fault_sweep`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// What happened.
    pub kind: crate::FaultKind,
    /// Byte address of the command it happened to; 0 for a flush.
    pub at: u64,
    /// Bytes of that command.
    pub len: u64,
    /// What that command was for.
    pub cause: imbrex_device::Cause,
}

/// What [`crate::Subject::check`] compares the drive with.
#[derive(Clone, Debug)]
pub struct History<Op> {
    entries: Vec<Entry<Op>>,
    floor: Status,
    fault: Option<Injected>,
}

impl<Op> History<Op> {
    /// `floor`: operations that came at least this far must be there.
    pub fn new(entries: Vec<Entry<Op>>, floor: Status) -> Self {
        History { entries, floor, fault: None }
    }

    pub(crate) fn with_fault(mut self, fault: Option<Injected>) -> Self {
        self.fault = fault;
        self
    }

    /// Every operation that was begun, in order. Nothing else may be there.
    pub fn entries(&self) -> &[Entry<Op>] {
        &self.entries
    }

    /// From which status on an operation must have survived this crash.
    pub fn floor(&self) -> Status {
        self.floor
    }

    /// Whether an entry must be there.
    pub fn is_must(&self, entry: &Entry<Op>) -> bool {
        entry.status >= self.floor
    }

    /// What must be there, in order.
    pub fn must(&self) -> impl Iterator<Item = &Op> {
        self.entries.iter().filter(|e| self.is_must(e)).map(|e| &e.op)
    }

    /// What may be there or not, in order.
    pub fn may(&self) -> impl Iterator<Item = &Op> {
        self.entries.iter().filter(|e| !self.is_must(e)).map(|e| &e.op)
    }

    /// How many leading operations an ordered log must hold at least: up to the last one that must be there.
    pub fn must_prefix(&self) -> usize {
        self.entries.iter().rposition(|e| self.is_must(e)).map_or(0, |last| last + 1)
    }

    /// The fault that was injected before, if any: bytes in a zone that went offline cannot be asked for.
    pub fn fault(&self) -> Option<Injected> {
        self.fault
    }
}

impl<Op: PartialEq + Debug> History<Op> {
    /// For ordered logs: `found` must be a prefix of the operations and hold everything that must be there.
    pub fn expect_prefix(&self, found: &[Op]) -> Result<(), String> {
        if let Some(wrong) = found.iter().zip(&self.entries).position(|(f, e)| *f != e.op) {
            return Err(format!("operation {wrong} is {:?}, not {:?}", found[wrong], self.entries[wrong].op));
        }
        if found.len() > self.entries.len() {
            return Err(format!("{} operations are there, {} were begun", found.len(), self.entries.len()));
        }
        if found.len() < self.must_prefix() {
            return Err(format!(
                "{} operations are there, {} must be (floor {:?}); the first lost one is {:?}",
                found.len(),
                self.must_prefix(),
                self.floor,
                self.entries[found.len()].op
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log<char> {
        let log = Log::new();
        let ids: Vec<OpId> = "abcd".chars().map(|c| log.begun(c)).collect();
        log.acked(ids[0]);
        log.acked(ids[2]);
        log.synced_up_to(ids[1]);
        log
    }

    #[test]
    fn a_sync_promises_only_what_was_acknowledged_before_it() {
        let status: Vec<Status> = log().snapshot().iter().map(|e| e.status).collect();
        assert_eq!(status, [Status::Synced, Status::Begun, Status::Acked, Status::Begun]);
    }

    #[test]
    fn the_floor_divides_must_from_may() {
        let power = History::new(log().snapshot(), Status::Synced);
        assert_eq!(power.must().collect::<String>(), "a");
        assert_eq!(power.may().collect::<String>(), "bcd");
        assert_eq!(power.must_prefix(), 1);
        let process = History::new(log().snapshot(), Status::Acked);
        assert_eq!(process.must().collect::<String>(), "ac");
        assert_eq!(process.must_prefix(), 3);
    }

    #[test]
    fn a_prefix_is_neither_too_short_nor_too_long_nor_wrong() {
        let history = History::new(log().snapshot(), Status::Acked);
        assert!(history.expect_prefix(&['a', 'b', 'c']).is_ok());
        assert!(history.expect_prefix(&['a', 'b', 'c', 'd']).is_ok());
        assert!(history.expect_prefix(&['a', 'b']).is_err());
        assert!(history.expect_prefix(&['a', 'b', 'x']).is_err());
        assert!(history.expect_prefix(&['a', 'b', 'c', 'd', 'e']).is_err());
    }
}
