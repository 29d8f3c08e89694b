//! The write cache: what gets in, what becomes one piece, and which piece is written next.
//!
//! Unwritten bytes are extents by address, which never overlap; each has the age of the last flush before it, so that a flush knows what it
//! covers. They are written upwards from where the head is; what follows something unwritten never before it.

use super::{Engine, Extent, Ns, Tally};

impl Engine {
    /// Lets waiting writes into the cache, as far as there is room at `now`.
    pub(super) fn admit(&mut self, now: Ns, tally: &mut impl Tally) {
        while let Some(first) = self.blocked.front() {
            let len = first.command.len;
            if self.dirty_bytes > 0 && self.dirty_bytes + len > self.cache_bytes {
                return;
            }
            let Some(pending) = self.blocked.pop_front() else { return };
            let end = self.interface(now.max(pending.ready), len);
            self.add(pending.command.at, len, end, pending.command.cause);
            self.complete(&pending, end, tally);
        }
    }

    /// Takes bytes out of the cache that were written over or dropped; returns the age of the oldest.
    pub(super) fn cut(&mut self, at: u64, len: u64) -> Option<u64> {
        let end = at + len;
        // Nothing there, mostly: one look tells.
        if self.dirty.range(..end).next_back().is_none_or(|(start, extent)| start + extent.len <= at) {
            return None;
        }
        let mut oldest = None;
        let before = self
            .dirty
            .range(..at)
            .next_back()
            .filter(|(start, extent)| *start + extent.len > at)
            .map(|(start, _)| *start);
        let inside = self.dirty.range(at..end).map(|(start, _)| *start);
        for start in before.into_iter().chain(inside).collect::<Vec<_>>() {
            let Some(extent) = self.remove(start) else { continue };
            let stop = start + extent.len;
            oldest = Some(oldest.map_or(extent.seq, |seq: u64| seq.min(extent.seq)));
            if start < at {
                self.insert(start, Extent { len: at - start, ..extent });
            }
            if stop > end {
                self.insert(end, Extent { len: stop - end, stroke: self.stroke_of(end), ..extent });
            }
        }
        oldest
    }

    pub(super) fn insert(&mut self, start: u64, extent: Extent) {
        self.dirty_bytes += extent.len;
        *self.ages.entry(extent.seq).or_insert(0) += 1;
        self.dirty.insert(start, extent);
    }

    pub(super) fn remove(&mut self, start: u64) -> Option<Extent> {
        let extent = self.dirty.remove(&start)?;
        if let Some(extents) = self.ages.get_mut(&extent.seq) {
            *extents -= 1;
            if *extents == 0 {
                self.ages.remove(&extent.seq);
            }
        }
        self.dirty_bytes -= extent.len;
        Some(extent)
    }

    pub(super) fn add(&mut self, at: u64, len: u64, ready: Ns, cause: u8) {
        let mut seq = self.seq;
        let mut before = self.dirty.range_mut(..at + len).next_back();
        if before.as_ref().is_some_and(|(start, extent)| *start + extent.len > at) {
            seq = self.cut(at, len).unwrap_or(seq);
            before = self.dirty.range_mut(..at).next_back();
        }
        match before {
            // Its front may be on its way out already; what is behind is there when the head gets to it.
            Some((start, extent)) if start + extent.len == at && (extent.seq, extent.cause) == (seq, cause) => {
                extent.len += len;
                self.dirty_bytes += len;
            }
            _ => self.insert(at, Extent { len, seq, ready, cause, stroke: self.stroke_of(at) }),
        }
        if self.dirty_bytes * 4 > self.cache_bytes * 3 {
            self.draining = true;
        }
    }

    /// The cache became smaller at `now`.
    pub(super) fn after_write(&mut self, now: Ns, tally: &mut impl Tally) {
        if self.dirty_bytes * 2 <= self.cache_bytes {
            self.draining = false;
        }
        self.admit(now, tally);
        let oldest = self.ages.keys().next().copied();
        let mut i = 0;
        while i < self.flushes.len() {
            if oldest.is_none_or(|oldest| oldest > self.flushes[i].0) {
                let (_, pending) = self.flushes.remove(i);
                self.complete(&pending, now.max(pending.ready).max(self.written), tally);
            } else {
                i += 1;
            }
        }
    }

    /// Where a byte lies on the stroke, were it at its own place.
    pub(super) fn stroke_of(&self, at: u64) -> f64 {
        self.mechanics.stroke(self.physical(at))
    }

    /// The next extent to write upwards from the head, then from the start; with a flush waiting one that it covers.
    pub(super) fn next_dirty(&self) -> Option<(u64, Extent)> {
        let from = self.next.map_or(0, |next| self.logical(next));
        let covers = self.flushes.first().map_or(u64::MAX, |(covers, _)| *covers);
        // A walk over newer extents is not repeated: the head goes where it ends.
        let covered = |(_, extent): &(&u64, &Extent)| extent.seq <= covers;
        let above = self.dirty.range(from..).find(covered);
        let (mut start, mut extent) = above.or_else(|| self.dirty.range(..from).find(covered))?;
        // What follows something unwritten is not written before it: in a sequential zone it could not be.
        while let Some((before, other)) = self.dirty.range(..*start).next_back().filter(|(at, e)| *at + e.len == *start)
        {
            (start, extent) = (before, other);
        }
        Some((*start, *extent))
    }

    /// Of the extents behind `first` that are as good, the one that the head reaches soonest from `start` on.
    pub(super) fn nearest_dirty(&self, first: (u64, Extent), begin: Ns) -> (u64, Extent) {
        let choice = self.params.destage_choice as usize;
        if choice < 2 || self.translation.is_some() || self.next == Some(first.0) {
            return first;
        }
        let covers = self.flushes.first().map_or(u64::MAX, |(covers, _)| *covers);
        let mut best = (self.reach_stroke(first.1.stroke, begin), first);
        let mut behind = first.0 + first.1.len;
        let others = self.dirty.range(first.0 + 1..).take(4 * choice).map(|(start, extent)| (*start, *extent));
        let free = others.filter(|(start, extent)| {
            let follows = std::mem::replace(&mut behind, start + extent.len) == *start;
            !follows && extent.seq <= covers && extent.ready <= begin
        });
        for (start, extent) in free.take(choice - 1) {
            let cost = self.reach_stroke(extent.stroke, begin);
            if cost < best.0 {
                best = (cost, (start, extent));
            }
        }
        best.1
    }
}
