//! Compaction policies: pure functions from a [`Snapshot`] of the tree to a [`Choice`]. One worker carries choices out.
//!
//! A policy has no state. What must be known later (bounds of partitions, merges under way, windows) is part of the snapshot, and the
//! worker stores it in the manifest. So a store that is opened again goes on where it was. A new policy is one file here and one line
//! in [`ALL`].
//!
//! # What the worker promises
//!
//! - It asks after every flush and after every step, carries one choice out, and asks again until it hears [`Choice::Nothing`].
//! - What a choice changes is one edit of the manifest: tables added, cut and deleted, bounds, jobs, windows.
//! - A zone has tables of one [`Group`] only, and a group writes one zone at a time. A table ends where its zone ends.
//! - Zones of partitions that are no more, and zones that a choice names, are written no more.
//! - A zone is released when no table is in it, its edit is durable, no reader pins it, and it is not written any more.
//! - Reads and merges go by sequence number, never by level. So any set of inputs is a correct merge as to values.
//! - All versions of a key that a merge keeps stay in one table. A tombstone is dropped if it is older than the oldest snapshot and no
//!   table outside the merge covers its key and holds something older.

mod band;
mod cleaning;
mod gear;
mod leveled;
mod ring;
mod view;

pub mod model;

pub use band::Band;
pub use cleaning::{Cleaning, Victim};
pub use gear::{Active, Gear};
pub use leveled::Leveled;
pub use ring::Ring;
pub(crate) use view::headroom;

use crate::order::Order;
use std::sync::Arc;

/// A key, or a bound between keys.
pub type Key = Arc<[u8]>;

/// Whose tables share zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// The level, as the policy counts; what is flushed has level 0.
    pub level: u8,
    /// The partition, or 0 where the level has none.
    pub part: u32,
}

/// The group of what lies in no partition's zones.
pub const BOTTOM: Group = Group { level: u8::MAX, part: 0 };

/// The highest level but the bottom. Merged slices of `ring` come so far; other policies have fewer levels.
pub const HIGHEST: u8 = 15;

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its number; newer tables have larger ones.
    pub id: u64,
    /// Whose it is.
    pub group: Group,
    /// No live key is before it: the first key, or the bound to which the table was trimmed.
    pub smallest: Key,
    /// The last key.
    pub largest: Key,
    /// Smallest sequence number.
    pub oldest: u64,
    /// Largest sequence number.
    pub newest: u64,
    /// Live bytes: of the part that was not trimmed.
    pub bytes: u64,
    /// Live entries.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Bytes that these hide, as far as can be told.
    pub hidden: u64,
    /// Entries that newer ones of the same table supersede, kept for snapshots.
    pub stale: u64,
    /// Bytes that deleted ranges of keys hide in it.
    pub dead: u64,
    /// The lowest number of such a range.
    pub dead_at: u64,
    /// Where it lies.
    pub zone: u32,
    /// Keys that divide its bytes evenly, from the first key on; what was trimmed may be among them.
    pub marks: Arc<[Key]>,
}

impl Table {
    /// Whether it has entries that nobody reads any more.
    pub fn has_old(&self, settled: u64) -> bool {
        self.stale > 0 && self.newest <= settled || self.dead > 0 && self.dead_at <= settled
    }

    /// Whether it has entries that are of no use in the lowest level.
    pub fn has_waste(&self, settled: u64) -> bool {
        self.tombstones > 0 && self.newest <= settled || self.has_old(settled)
    }
}

/// A partition of the keys, and what of the memtable is in it.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its number, never given again.
    pub id: u32,
    /// Its first key; nothing for the first partition. It ends where the next one begins.
    pub from: Option<Key>,
    /// Bytes in memory.
    pub bytes: u64,
    /// Bytes that tombstones in memory hide.
    pub hidden: u64,
    /// Bytes of the log from its oldest entry in memory to the log's end; 0 if it has none.
    pub log: u64,
}

/// A zone that a group writes.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Whose it is.
    pub group: Group,
    /// Which.
    pub zone: u32,
    /// Bytes that still go into it.
    pub room: u64,
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The slices of a partition go to the bottom.
    Sweep,
    /// Slices of a partition become one, up to this level.
    Slices(u8),
    /// A policy's own; the number is its business.
    Own(u8),
}

/// A merge under way: what is remembered of it between steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What it does.
    pub kind: Kind,
    /// The partition whose tables it merges.
    pub part: u32,
    /// Only tables with this number or a larger one are inputs.
    pub from: u64,
    /// Only tables with a smaller number are inputs.
    pub before: u64,
    /// Zones that are rewritten whole, since only a part of what they hold is merged.
    pub zones: Vec<u32>,
}

/// Zones of a level that are compacted until all are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The level.
    pub level: u8,
    /// The zones that still have tables, and those that had some.
    pub zones: Vec<u32>,
}

/// The state of a tree.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    /// The order of keys.
    pub order: &'a dyn Order,
    /// All tables, in the order of their smallest keys.
    pub tables: &'a [Table],
    /// Partitions in the order of keys; at least one.
    pub parts: &'a [Part],
    /// Jobs; the last one goes on first.
    pub jobs: &'a [Job],
    /// Windows, at most one a level.
    pub windows: &'a [Window],
    /// Zones that are written.
    pub open: &'a [Open],
    /// Zones that tables may take.
    pub zones: u32,
    /// Those of them that are empty.
    pub free: u32,
    /// Memory mostly deletes. So those that are empty are all that there are: none is kept for deletions any more.
    pub last: bool,
    /// Bytes of a zone that tables can have.
    pub zone: u64,
    /// Zones that may be written at the same time; a group that begins another has one of the others closed.
    pub writes: u32,
    /// The number of the next table.
    pub next: u64,
    /// No snapshot needs what a change with this sequence number or a smaller one supersedes.
    pub settled: u64,
    /// What for.
    pub goal: Goal,
}

/// What a choice is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// Puts go on.
    #[default]
    Usual,
    /// Puts go on, and the drive has time.
    Ahead,
    /// Nobody uses the store.
    Idle,
    /// Somebody deletes, and there is no room for it but that which is kept for deletions.
    Delete,
    /// All that is in memory becomes tables, the oldest first.
    Flush,
    /// Each key comes to be in one table; memory is the usual.
    All,
}

/// One step of a merge.
#[derive(Clone, Debug)]
pub struct Step {
    /// Tables that are merged, each from its smallest live key on.
    pub inputs: Vec<u64>,
    /// The step ends before this key.
    pub until: Option<Key>,
    /// Where keys go: each from its bound on, in the order of bounds, the first one from the beginning.
    pub routes: Vec<(Option<Key>, Group)>,
    /// The step ends between two keys once it has written about so much. Inputs are trimmed to there, or deleted.
    pub most: u64,
    /// Bytes of a table at most.
    pub table: u64,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Nothing.
    Nothing,
    /// The memtable's part of this partition becomes tables of the group: one sorted slice.
    Flush {
        /// The partition.
        part: u32,
        /// Whose the tables are.
        into: Group,
        /// Bytes of a table at most.
        table: u64,
    },
    /// Remember this job, with these partitions, where there are any. The open zones of these groups are written no more.
    Begin {
        /// What begins.
        job: Job,
        /// All partitions from now on: number and bound.
        parts: Vec<(u32, Option<Key>)>,
        /// Groups.
        closes: Vec<Group>,
    },
    /// A step of the last job, or of none.
    Merge(Step),
    /// Forget the last job.
    End,
    /// These tables belong to this group, and so do the zones that have them.
    Relabel(Vec<u64>, Group),
    /// All partitions from now on: number and bound. The worker divides the memtable again.
    Bounds(Vec<(u32, Option<Key>)>),
    /// The window of this level; open zones in it are written no more.
    Window(Window),
}

/// How much puts are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Not at all.
    None,
    /// So many bytes may be put until the worker has carried out its next choice.
    Slow(u64),
    /// None, until the worker has carried out its next choice.
    Stop,
    /// None, and no choice gives room: there is no space.
    Full,
}

/// A policy.
pub trait Policy: Send + Sync {
    /// What is to be done next.
    fn choose(&self, tree: &Snapshot) -> Choice;

    /// How much puts are to be held back.
    fn pressure(&self, tree: &Snapshot) -> Pressure;

    /// Bytes that the keys of [`Table::marks`] may take; 0: a table has a few. They say how well the policy knows where in its range a table has its bytes.
    fn histogram(&self) -> usize {
        0
    }
}

/// Sizes that all policies have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the memtable.
    pub memtable: u64,
    /// Bytes of a table at most.
    pub table: u64,
    /// Bytes that a step writes, about.
    pub step: u64,
}

impl Sizes {
    /// What disks like.
    pub const DISK: Sizes = Sizes { memtable: 256 << 20, table: 64 << 20, step: 64 << 20 };

    /// Everything a `scale`-th, for models.
    #[must_use]
    pub fn divided(self, scale: u64) -> Sizes {
        Sizes { memtable: self.memtable / scale, table: self.table / scale, step: self.step / scale }
    }
}

type Make = fn(Sizes) -> Box<dyn Policy>;

/// All policies by name; the first is the default.
pub const ALL: &[(&str, Make)] = &[
    ("ring", |sizes| Box::new(Ring::new(sizes))),
    ("gear", |sizes| Box::new(Gear::new(sizes))),
    ("band", |sizes| Box::new(Band::new(sizes))),
    ("leveled", |sizes| Box::new(Leveled::new(sizes))),
];

/// The policy of this name.
pub fn named(name: &str, sizes: Sizes) -> Option<Box<dyn Policy>> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, make)| make(sizes))
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
