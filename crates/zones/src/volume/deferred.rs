//! Streams whose full segments wait in memory, because most of what they hold is deleted before anybody needs it on the drive: the
//! write-ahead logs of who does not sync them. Such a log outlives the death of the process in the survivor's memory as before; what a power
//! loss may cost is what was never synced, and what was appended [`LONGEST`] ago is written whether or not there is room.
//!
//! Whose bytes go when memory is short is [`next_to_write`]: the stream that was made first. Logs become durable in order, so to write
//! of a later one would bring the whole of those before along, and flush them.
//!
//! There may be more streams with bytes in memory than it has units. Then the one whose oldest segment has been there longest is written to
//! its end ([`VolumeCore::relieve`]), and who appends never hears of it.
//!
//! Invariant: no lock of this module is held while a stream is asked or written.

use crate::sync::{Mutex, lock};
use crate::volume::VolumeCore;
use crate::volume::stream::StreamCore;
use imbrex_device::Result;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a byte waits at most (and [`LOOK`] more): what Linux has for pages that nobody syncs (`dirty_expire_centisecs`).
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// How often the writer looks for what waited so long.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

/// Streams of a volume, by the order in which they were made: the deferred ones, or the others.
#[derive(Default)]
pub(crate) struct Streams(Mutex<BTreeMap<u64, Weak<StreamCore>>>);

/// What a stream has that could be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Number of the stream: later ones have higher numbers.
    pub stream: u64,
    /// Whether it has a full segment.
    pub full: bool,
    /// Whether it has any, full or not.
    pub some: bool,
    /// Whether one of those has waited long enough.
    pub old: bool,
}

/// Why something is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Somebody needs the memory.
    Short,
    /// It has waited long enough.
    Old,
}

/// Policy: whose segments are written next. By order of making.
pub fn next_to_write(waiting: &[Waiting], why: Why) -> Option<u64> {
    let first = |may: &dyn Fn(&&Waiting) -> bool| waiting.iter().filter(may).map(|w| w.stream).min();
    match why {
        // One that is not full costs a padded block; but many of those may be all there is.
        Why::Short => first(&|w| w.full).or_else(|| first(&|w| w.some)),
        Why::Old => {
            // Of the streams before an old one, everything: its own could not be durable without them.
            let last = waiting.iter().filter(|w| w.some && w.old).map(|w| w.stream).max()?;
            first(&|w| w.some && w.stream <= last)
        }
    }
}

impl Streams {
    pub(crate) fn add(&self, id: u64, stream: &Weak<StreamCore>) {
        lock(&self.0).insert(id, stream.clone());
    }

    pub(crate) fn remove(&self, id: u64) {
        lock(&self.0).remove(&id);
    }

    #[cfg(not(feature = "shuttle"))]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    pub(crate) fn all(&self) -> Vec<Arc<StreamCore>> {
        lock(&self.0).values().filter_map(Weak::upgrade).collect()
    }

    fn next(&self, why: Why, now: Duration) -> Option<(Arc<StreamCore>, Waiting)> {
        let streams = self.all();
        let waiting: Vec<Waiting> = streams.iter().map(|stream| stream.waiting(now)).collect();
        let id = next_to_write(&waiting, why)?;
        streams.into_iter().zip(waiting).find(|(_, waiting)| waiting.stream == id)
    }
}

impl VolumeCore {
    /// Has somebody's bytes written, because another stream finds no memory: what waits before all, else those of the stream with the oldest
    /// segment. One that cannot be written is passed over. False: no stream has any memory.
    ///
    /// # Errors
    /// That of the last one, where none can be written.
    pub(crate) fn relieve(&self) -> Result<bool> {
        let mut result = self.relieve_deferred();
        if matches!(result, Ok(true)) {
            return result;
        }
        let mut others: Vec<_> =
            self.others.all().into_iter().filter_map(|stream| Some((stream.oldest()?, stream))).collect();
        others.sort_by_key(|(since, _)| *since);
        for (_, stream) in others {
            self.flusher.check()?;
            match stream.write_waiting(self.options.turn_bytes, true, None) {
                Ok(()) => return Ok(true),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Writes a turn's worth of what waits. False: nothing does.
    pub(crate) fn relieve_deferred(&self) -> Result<bool> {
        let Some((stream, waiting)) = self.deferred.next(Why::Short, self.now()) else { return Ok(false) };
        stream.write_waiting(self.options.turn_bytes, !waiting.full, None)?;
        Ok(true)
    }

    /// The same of what has waited long enough.
    pub(crate) fn write_old(&self) -> Result<bool> {
        let now = self.now();
        let Some((stream, waiting)) = self.deferred.next(Why::Old, now) else { return Ok(false) };
        let until = waiting.old.then(|| now.saturating_sub(LONGEST));
        stream.write_waiting(self.options.turn_bytes, true, until)?;
        Ok(true)
    }

    /// Whether so much waits that the writer should begin.
    pub(crate) fn is_nearly_short(&self) -> bool {
        let memory = self.memory();
        memory.deferred() > memory.most_deferred() / 16 * 15
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_log_goes_first_also_for_the_sake_of_an_old_one_behind_it() {
        let of = |stream, full, old| Waiting { stream, full, some: true, old };
        let none = |stream| Waiting { stream, full: false, some: false, old: true };
        let [short, old] = [Why::Short, Why::Old].map(|why| move |waiting: &[Waiting]| next_to_write(waiting, why));
        assert_eq!((short(&[]), short(&[none(1)]), old(&[none(1)])), (None, None, None));
        assert_eq!(short(&[of(1, false, false), of(2, true, false), of(3, true, false)]), Some(2));
        assert_eq!(short(&[none(1), of(2, false, false), of(3, false, false)]), Some(2), "none is full");
        assert_eq!(old(&[of(1, true, false), of(2, true, false)]), None, "nobody waited long");
        assert_eq!(old(&[of(1, true, false), of(2, true, true), of(3, true, false)]), Some(1));
        assert_eq!(old(&[none(1), of(2, false, true), of(3, true, false)]), Some(2), "also if it is not full");
    }
}
