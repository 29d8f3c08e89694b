//! Datazones: their states, and what the store knows of each (SMRSTORE §5.4, Fig. 12).
//!
//! ```text
//!          take            a chunk's first bytes         full, or given up
//!   Free ───────→ Opened ───────────────────→ Activated ──────────────────→ Closed
//!     ↑             └────────────────────────────────────────────────────────→┘ │
//!     └──────────────────────────── reset ←─────────────────────── Garbage ←────┘ nothing live in it
//! ```
//!
//! A closed zone is finished on the drive and never written again before it is reset. It is reset only when what made it
//! garbage is durable and its last reader is gone.

use crate::format::ZoneUse;
pub use crate::format::entry::ZoneState;
use imbrex_zones::write::RecordWriter;
use std::collections::{BTreeMap, BTreeSet};

/// What happens to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The store takes it from the volume's pool.
    Take,
    /// A chunk gets bytes in it.
    Activate,
    /// It is full, or given up.
    Close,
    /// Nothing in it is of use any more.
    Die,
    /// It goes back to the volume's pool, which resets it.
    Reset,
}

impl ZoneState {
    /// The state after an event; `None`: the event cannot happen in this state.
    pub fn after(self, event: Event) -> Option<ZoneState> {
        use ZoneState::*;
        match (self, event) {
            (Free, Event::Take) => Some(Opened),
            (Opened | Activated, Event::Activate) => Some(Activated),
            (Opened | Activated, Event::Close) => Some(Closed),
            (Closed, Event::Die) => Some(Garbage),
            (Garbage, Event::Reset) => Some(Free),
            _ => None,
        }
    }

    /// Whether new records may go there.
    pub fn is_open(self) -> bool {
        matches!(self, ZoneState::Opened | ZoneState::Activated)
    }
}

/// A datazone that is not free.
pub(crate) struct DataZone {
    state: ZoneState,
    pub(crate) life: u64,
    pub(crate) usage: ZoneUse,
    /// Blocks that it takes.
    pub(crate) capacity: u32,
    /// Where the next record goes, in blocks.
    pub(crate) tail: u32,
    /// Up to here a checkpoint or the journal knows of its records.
    pub(crate) told: u32,
    /// Blocks of records that chunks refer to.
    pub(crate) live_blocks: u32,
    /// Slots of chunks with a group in it, one for each group.
    pub(crate) live: Vec<u32>,
    /// Chunks whose next bytes go here.
    pub(crate) writers: u32,
    /// Blocks that these are expected to take from now on, as of the last append of each.
    pub(crate) promised: u64,
    /// The journal says whose it is with the commit of this number.
    pub(crate) taken: u64,
    /// It took no write; nothing is written there any more.
    pub(crate) dead: bool,
    /// It takes no writes, and there is no other zone for what waits for it in memory.
    pub(crate) stranded: bool,
    /// It is offline: nothing in it can be moved.
    pub(crate) unreadable: bool,
    /// From this block on some of it could not be read when the store was opened, and nobody knows whose it was; 0: all is known.
    pub(crate) unread: u32,
    /// The last append that went there, or that died there: the time by which ages are told.
    pub(crate) touched: u64,
    /// What is estimated to die of it, see [`Rates::of`](crate::policy::lifetime::Rates::of), when that was looked up last.
    pub(crate) rate: f64,
}

impl DataZone {
    /// A zone in this state, written up to block `tail`.
    pub(crate) fn new(state: ZoneState, life: u64, usage: ZoneUse, capacity: u32, tail: u32) -> DataZone {
        DataZone {
            state,
            life,
            usage,
            capacity,
            tail,
            told: tail,
            live_blocks: 0,
            live: Vec::new(),
            writers: 0,
            promised: 0,
            taken: 0,
            dead: false,
            stranded: false,
            unreadable: false,
            unread: 0,
            touched: 0,
            rate: 0.0,
        }
    }

    pub(crate) fn state(&self) -> ZoneState {
        self.state
    }

    /// Moves on to the next state.
    ///
    /// # Panics
    /// Where the event cannot happen: a bug of the store, and going on would lose data.
    pub(crate) fn step(&mut self, event: Event) {
        match self.state.after(event) {
            Some(state) => self.state = state,
            None => panic!("a zone that is {} cannot {event:?}", self.state.name()),
        }
    }

    /// Blocks that are left.
    pub(crate) fn room(&self) -> u32 {
        if self.state.is_open() && !self.dead && !self.stranded { self.capacity.saturating_sub(self.tail) } else { 0 }
    }

    /// Whether what is live in it can be moved, once all of it is on the drive: nothing comes there any more.
    pub(crate) fn can_be_cleaned(&self) -> bool {
        self.state == ZoneState::Closed && !self.live.is_empty() && !self.unreadable
    }

    /// Blocks of a closed zone that cleaning it can win, those of live records included: all that were written there, and what is left at its end
    /// where that is more than `crumbs`, the blocks of the largest append, and more than an eighth of the zone. Less may have been left because no
    /// record fitted: to move the others would win it in no other zone either, and go on for ever.
    pub(crate) fn worth(&self, crumbs: u32) -> u32 {
        let end = self.capacity.saturating_sub(self.tail);
        let all = if end > crumbs.max(self.capacity / 8) { self.capacity } else { self.tail };
        all.saturating_sub(1)
    }

    /// Of its last `blocks` blocks so much is estimated to die.
    pub(crate) fn expects(&mut self, blocks: u32, rate: f64) {
        let before = f64::from(self.tail.saturating_sub(1 + blocks));
        self.rate = (self.rate * before + rate * f64::from(blocks)) / (before + f64::from(blocks)).max(1.0);
    }

    /// Which kind of stream it is for, by number.
    pub(crate) fn kind(&self) -> usize {
        usize::from(self.usage.stream().number())
    }

    /// One group of the chunk in this slot is not here any more.
    pub(crate) fn forget(&mut self, slot: u32, blocks: u32) {
        if let Some(i) = self.live.iter().position(|s| *s == slot) {
            self.live.swap_remove(i);
        }
        self.live_blocks = self.live_blocks.saturating_sub(blocks);
        if self.live.is_empty() {
            self.live = Vec::new();
        }
    }
}

/// Every datazone that is not free, by number.
///
/// Invariant: those that are open, or that the [writer](imbrex_zones::write::RecordWriter) knows, are in the list of the active ones. These are some dozens, of
/// tens of thousands, and whoever places a chunk or commits looks at no others.
#[derive(Default)]
pub(crate) struct ZoneTable {
    all: BTreeMap<u32, DataZone>,
    active: BTreeSet<u32>,
}

impl ZoneTable {
    /// All of them.
    pub(crate) fn all(&self) -> &BTreeMap<u32, DataZone> {
        &self.all
    }

    pub(crate) fn get(&self, zone: u32) -> Option<&DataZone> {
        self.all.get(&zone)
    }

    pub(crate) fn get_mut(&mut self, zone: u32) -> Option<&mut DataZone> {
        self.all.get_mut(&zone)
    }

    /// A zone is not free any more.
    pub(crate) fn insert(&mut self, zone: u32, z: DataZone) {
        self.active.insert(zone);
        self.all.insert(zone, z);
    }

    /// It is free.
    pub(crate) fn remove(&mut self, zone: u32) -> Option<DataZone> {
        self.active.remove(&zone);
        self.all.remove(&zone)
    }

    /// The active ones, and some that have settled since the last [`settle`](ZoneTable::settle); ascending.
    pub(crate) fn active(&self) -> impl Iterator<Item = (u32, &DataZone)> {
        self.active.iter().filter_map(|zone| Some((*zone, self.all.get(zone)?)))
    }

    /// Those of them that new records may go to.
    pub(crate) fn open(&self) -> impl Iterator<Item = (u32, &DataZone)> {
        self.active().filter(|(_, z)| z.state.is_open())
    }

    /// Strikes those off the list that are closed and that the writer does not know any more.
    pub(crate) fn settle(&mut self, writer: &RecordWriter) {
        let (all, known) = (&self.all, writer.known());
        self.active.retain(|zone| known.contains_key(zone) || all.get(zone).is_some_and(|z| z.state.is_open()));
    }

    pub(crate) fn count(&self, state: ZoneState) -> usize {
        self.all.values().filter(|zone| zone.state == state).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::id::StreamType;

    #[test]
    fn an_end_that_no_record_fits_is_not_worth_cleaning_for() {
        let worth = |tail, crumbs| {
            DataZone::new(ZoneState::Closed, 1, ZoneUse::Data(StreamType::DATA), 800, tail).worth(crumbs)
        };
        assert_eq!(
            [worth(800, 10), worth(700, 10), worth(699, 10), worth(500, 300), worth(499, 300)],
            [799, 699, 799, 499, 799]
        );
        assert_eq!((worth(0, 10), worth(1, 800)), (799, 0));
    }

    /// Figure 12, arrow by arrow, and no other.
    #[test]
    fn zones_go_from_state_to_state_as_drawn() {
        use Event::*;
        use ZoneState::*;
        let arrows = [
            (Free, Take, Opened),
            (Opened, Activate, Activated),
            (Activated, Activate, Activated),
            (Opened, Close, Closed),
            (Activated, Close, Closed),
            (Closed, Die, Garbage),
            (Garbage, Reset, Free),
        ];
        for state in ZoneState::ALL {
            for event in [Take, Activate, Close, Die, Reset] {
                let arrow = arrows.iter().find(|(from, by, _)| (*from, *by) == (state, event));
                assert_eq!(state.after(event), arrow.map(|(.., to)| *to), "{state:?} {event:?}");
            }
        }
    }
}
