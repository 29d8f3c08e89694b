//! Streams whose full segments wait in memory, because most of what they hold is deleted before anybody needs it on the drive: the
//! write-ahead logs of who does not sync them. Such a log outlives the death of the process in the survivor's memory as before; what a power
//! loss may cost is what was never synced, and what was appended [`LONGEST`] ago is written whether or not there is room.
//!
//! Whose bytes go when memory is short is [`next_to_write`]: the stream that was made first. Logs become durable in order, so to write
//! of a later one would bring the whole of those before along, and flush them.
//!
//! Invariant: no lock of this module is held while a stream is asked or written.

use crate::stream::StreamCore;
use crate::sync::{Mutex, lock};
use crate::volume::VolumeCore;
use imbrex_device::{Priority, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a full segment waits at most: what Linux has for pages that nobody syncs (`dirty_expire_centisecs`).
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// How often the writer looks for what waited so long.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

/// The patient streams of a volume, by the order in which they were made.
#[derive(Default)]
pub(crate) struct Patients {
    streams: Mutex<BTreeMap<u64, Weak<StreamCore>>>,
}

/// What a stream has that could be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Number of the stream: later ones have higher numbers.
    pub stream: u64,
    /// Whether it has a full segment.
    pub full: bool,
    /// Whether one of those has waited long enough.
    pub old: bool,
}

/// Policy: whose segments are written next; `short`: because of memory, else because they are old. By order of making.
pub fn next_to_write(waiting: &[Waiting], short: bool) -> Option<u64> {
    // Of the streams before an old one, everything: its own could not be durable without them.
    let last = waiting.iter().filter(|w| w.full && (short || w.old)).map(|w| w.stream).max()?;
    waiting.iter().filter(|w| w.full && w.stream <= last).map(|w| w.stream).min()
}

impl Patients {
    pub(crate) fn add(&self, id: u64, stream: &Weak<StreamCore>) {
        lock(&self.streams).insert(id, stream.clone());
    }

    pub(crate) fn remove(&self, id: u64) {
        lock(&self.streams).remove(&id);
    }

    #[cfg(not(feature = "shuttle"))]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.streams).is_empty()
    }

    fn next(&self, short: bool) -> Option<Arc<StreamCore>> {
        let streams: Vec<Arc<StreamCore>> = lock(&self.streams).values().filter_map(Weak::upgrade).collect();
        let now = (!short).then(Instant::now);
        let waiting: Vec<Waiting> = streams.iter().map(|stream| stream.waiting(now)).collect();
        let id = next_to_write(&waiting, short)?;
        streams.into_iter().find(|stream| stream.id() == id)
    }
}

impl VolumeCore {
    /// Writes a turn's worth of what waits, because somebody needs the memory. False: nothing waits.
    pub(crate) fn relieve(&self) -> Result<bool> {
        self.write_patient(true)
    }

    /// The same of what has waited long enough.
    pub(crate) fn write_old(&self) -> Result<bool> {
        self.write_patient(false)
    }

    fn write_patient(&self, short: bool) -> Result<bool> {
        let Some(stream) = self.patients.next(short) else { return Ok(false) };
        stream.write_full(self.options.turn_bytes, Priority::Background)?;
        Ok(true)
    }

    /// Whether so much waits that the writer should begin.
    pub(crate) fn is_nearly_short(&self) -> bool {
        let memory = self.memory();
        memory.patient() > memory.patience() / 16 * 15
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_log_goes_first_also_for_the_sake_of_an_old_one_behind_it() {
        let of = |stream, full, old| Waiting { stream, full, old };
        assert_eq!(next_to_write(&[], true), None);
        assert_eq!(next_to_write(&[of(1, false, false), of(2, true, false), of(3, true, false)], true), Some(2));
        assert_eq!(next_to_write(&[of(1, true, false), of(2, true, false)], false), None, "nobody waited long");
        assert_eq!(next_to_write(&[of(1, true, false), of(2, true, true), of(3, true, false)], false), Some(1));
        assert_eq!(next_to_write(&[of(2, true, true), of(3, true, false)], false), Some(2));
    }
}
