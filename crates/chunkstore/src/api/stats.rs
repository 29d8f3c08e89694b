//! What the store has done since it was opened.

use crate::core::Core;
use crate::meter::Stats;
use crate::zone::ZoneState;
use std::sync::atomic::{AtomicU64, Ordering};

impl Core {
    pub(crate) fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        let cleaning = self.cleaner.totals();
        let free = self.tenant.counts().free;
        let lost_bytes = self.lost().iter().map(|one| u64::from(one.len)).sum();
        let scrubbed = self.scrubbed();
        let state = self.state();
        let count = |of| state.zones.count(of) as u32;
        let used = state.zones.all().values().filter(|z| z.state() != ZoneState::Opened);
        let mut utilisation: Vec<u16> =
            used.map(|z| (u64::from(z.live_blocks) * 1000 / u64::from(z.capacity.max(1))) as u16).collect();
        utilisation.sort_unstable();
        Stats {
            appends: get(&c.appends),
            appended_bytes: get(&c.appended),
            reads: get(&c.reads),
            read_bytes: get(&c.read),
            commits: self.commits.flushes(),
            damaged: get(&c.damaged),
            moved_bytes: cleaning.moved,
            cleaned_zones: cleaning.freed,
            background_bytes: get(&c.background),
            scrubbed_bytes: get(&c.scrubbed),
            scrub_passes: scrubbed.passes,
            damaged_records: scrubbed.damaged.len() as u64,
            lost_bytes,
            chunks: state.index.len() as u64,
            buffered_bytes: self.writer.buffered(),
            index_bytes: state.work.index(),
            opened_zones: count(ZoneState::Opened),
            activated_zones: count(ZoneState::Activated),
            closed_zones: count(ZoneState::Closed),
            garbage_zones: count(ZoneState::Garbage),
            free_zones: free,
            utilisation,
        }
    }
}
