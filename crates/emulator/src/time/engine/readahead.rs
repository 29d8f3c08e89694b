//! What the drive reads ahead, and the reads that it answers without a job of the head.
//!
//! Behind a read the head reads on while nobody wants it. What it passed over stays known, a few pieces of the drive.

use super::{Engine, Kind, Ns, Prefetch, Tally};

impl Engine {
    /// When a read is answered without a job of the head, if it is.
    pub(super) fn answered(&mut self, at: u64, len: u64, ready: Ns, tally: &mut impl Tally, cause: u8) -> Option<Ns> {
        let end = at + len;
        if let Some((&start, extent)) = self.dirty.range(..=at).next_back()
            && start + extent.len >= end
        {
            return Some(self.interface(ready, len));
        }
        if self.segments.iter().any(|&(start, stop)| start <= at && end <= stop) {
            return Some(self.interface(ready, len));
        }
        let prefetch = self.prefetch?;
        let limit = prefetch.at + prefetch.len;
        if !(prefetch.at..=limit).contains(&at) || end > self.capacity || self.scattered(prefetch.at, end) {
            return None;
        }
        let place = self.physical(prefetch.at);
        let running = self.mechanics.bytes_in(place, ready - prefetch.since) < prefetch.len;
        if !running && end > limit {
            return None;
        }
        // The head passes over it, or has: so it was wanted. It goes on behind it, or stopped already.
        let passes = self.mechanics.transfer(place, end - prefetch.at);
        tally.spent(cause, Kind::Transfer, passes);
        self.free = prefetch.since + passes;
        self.stroke = self.mechanics.stroke(self.physical(end));
        self.next = Some(self.physical(end));
        self.remember(prefetch.at, end);
        if running {
            self.begin_prefetch(end, self.free);
        } else {
            self.prefetch = Some(Prefetch { at: end, since: self.free, len: limit - end });
        }
        Some(self.free.max(self.interface(ready, len)))
    }

    pub(super) fn begin_prefetch(&mut self, at: u64, since: Ns) {
        let len = ((self.params.readahead_kib * 1024.0) as u64).min(self.capacity.saturating_sub(at));
        self.prefetch = (len > 0 && !self.scattered(at, at + len)).then_some(Prefetch { at, since, len });
    }

    /// The head leaves what it was reading ahead; what it got by `now` stays known.
    pub(super) fn end_prefetch(&mut self, now: Ns) {
        if let Some(prefetch) = self.prefetch.take() {
            let place = self.physical(prefetch.at);
            let got = self.mechanics.bytes_in(place, now - prefetch.since).min(prefetch.len);
            self.remember(prefetch.at, prefetch.at + got);
            if got > 0 {
                self.stroke = self.mechanics.stroke(place + got);
                self.next = None;
            }
        }
    }

    pub(super) fn remember(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let most = (self.params.readahead_kib * 1024.0) as u64 * 2;
        match self.segments.back_mut() {
            Some(last) if last.1 == start => {
                last.1 = end;
                last.0 = last.0.max(end.saturating_sub(most.max(end - start)));
            }
            _ => self.segments.push_back((start, end)),
        }
        while self.segments.len() > self.params.readahead_segments as usize {
            self.segments.pop_front();
        }
    }

    /// What was read of these bytes is no longer what is there.
    pub(super) fn forget_read(&mut self, at: u64, len: u64) {
        self.segments.retain(|&(start, end)| end <= at || at + len <= start);
        if self.prefetch.is_some_and(|p| at < p.at + p.len && p.at < at + len) {
            self.prefetch = None;
            self.next = None;
        }
    }
}
