//! What the store does in the background: it asks the [policy](crate::policy) what is to be done, and carries that out. One choice at a time.
//!
//! Each choice is one record of the metadata log, durable before the next choice is made; where tables only get another group, with the next. So a cut log never has
//! half of a choice, nor one without those before it.
//!
//! The maintenance thread works through choices. Whoever puts may have to: when the policy holds puts back, or when there is no such thread.

mod flush;
mod ingest;
mod keep;
mod merge;
mod output;
mod ranges;

use crate::core::Core;
use crate::core::file::InTable;
use crate::core::ranges::{MOST_RANGE_BYTES, MOST_RANGES};
use crate::core::tree::{self, Tree};
use crate::manifest::{Manifest, Note, TableInfo};
use crate::piece::Piece;
use crate::policy::{self, BOTTOM, Choice, Goal, Group, Job, Key, Policy, Pressure};
use crate::sync::{Mutex, MutexGuard, lock};
use imbrex_device::{Cause, Code, Result};
use imbrex_zones::shell::Maintenance;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// So many choices without a merge are made in one go at most.
const AT_ONCE: usize = 1000;
/// On a full store so many times its usual size is in memory at most, where somebody deletes. An opening may read twice as much from the log.
const DELETES: u64 = 4;
/// Zones that a merge may come to need, with some for the next one.
const MERGES: u64 = 16;
/// Puts are admitted in parts of the memory.
const PARTS: u64 = 16;

/// Carries choices out.
pub(crate) struct Worker {
    core: Arc<Core>,
    policy: Box<dyn Policy>,
    /// The thread that works beside those that put.
    thread: Arc<Maintenance>,
    /// One at a time.
    work: Mutex<Work>,
    /// Whoever works next: a lock that its last owner takes again at once is never free for those who wait.
    turn: Mutex<()>,
    /// Bytes that may be put before the policy is asked again.
    admitted: AtomicI64,
}

/// What whoever works knows from one choice to the next.
#[derive(Default)]
struct Work {
    /// Readers of tables in the middle of which a merge is, and from which key on.
    scans: BTreeMap<u64, (Option<Key>, InTable)>,
    /// What is decided, and not durable yet since a commit has failed.
    undone: Option<u64>,
    /// Choices so far.
    choices: u64,
    /// How many there were when something was admitted last.
    granted: Option<u64>,
}

/// What may be put.
struct Grant {
    /// Bytes more.
    bytes: u64,
    /// Bytes that may be admitted in all, with those that nobody has put so far.
    most: i64,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Nothing,
    /// A step of a merge.
    Merge,
    Other,
}

impl Work {
    /// Makes and carries out one choice. Where a zone lacks for it, iterators give back what they keep.
    fn one(&mut self, core: &Arc<Core>, policy: &dyn Policy, goal: Goal) -> Result<Done> {
        self.one_with(core, policy, goal, None)
    }

    /// The same, where the beginning of a piece may be what is flushed.
    fn one_with(
        &mut self,
        core: &Arc<Core>,
        policy: &dyn Policy,
        goal: Goal,
        mut piece: Option<&mut Piece>,
    ) -> Result<Done> {
        loop {
            match self.choice(core, policy, goal, piece.as_deref_mut()) {
                Err(error) if error.code() == Code::NoSpace && core.take_back() => {}
                done => return done,
            }
        }
    }

    fn choice(&mut self, core: &Arc<Core>, policy: &dyn Policy, goal: Goal, piece: Option<&mut Piece>) -> Result<Done> {
        if let Some(seq) = self.undone {
            self.finish(core, seq, Cause::Compaction)?;
        }
        let mut blocked = None;
        if let Some(frozen) = core.view().frozen.first().cloned() {
            // An earlier attempt has failed.
            let settled = core.settled();
            let flushed = flush::flush_frozen(core, self, &frozen);
            ranges::kept(core, settled);
            match flushed {
                Err(error) if error.code() == Code::NoSpace => blocked = Some(error),
                flushed => return flushed.map(|()| Done::Other),
            }
        }
        if ranges::settle(core, self)? {
            return Ok(Done::Other);
        }
        let settled = core.settled();
        let mut tree = Tree::of(core, goal);
        let front = piece.map(|piece| (tree.begin(piece), piece));
        let choice = policy.choose(&tree.snapshot());
        if let Some(error) = blocked
            && !matches!(choice, Choice::Merge(_) | Choice::End | Choice::Relabel(..))
        {
            // What makes room goes on; nothing else, since the tables to come are known to belong to a partition of now.
            return Err(error);
        }
        self.choices += u64::from(!matches!(choice, Choice::Nothing));
        let jobs = || core.look(|manifest| manifest.jobs.clone());
        match choice {
            Choice::Nothing => return Ok(Done::Nothing),
            Choice::Flush { part, into, table } => {
                let flushed = match front {
                    Some((front, piece)) if front.part == part => {
                        ingest::ingest(core, self, (piece, front.end), (into, table))
                    }
                    _ => flush::flush(core, self, part, (into, table)),
                };
                // Also where the commit has failed: it is made up for.
                ranges::kept(core, settled);
                flushed?;
            }
            Choice::Merge(step) => {
                let merged = merge::merge(core, self, &step);
                ranges::kept(core, settled);
                merged?;
                return Ok(Done::Merge);
            }
            Choice::Begin { job, parts, closes } => {
                core.close_zones(|group, _| closes.contains(&group));
                self.divide(core, parts, jobs().into_iter().chain([job]).collect())?;
            }
            Choice::Bounds(parts) => self.divide(core, parts, jobs())?,
            Choice::End => {
                self.scans.clear();
                let mut left = jobs();
                left.pop();
                self.decide(core, &[Note::Jobs(left)], Cause::Compaction)?;
            }
            Choice::Relabel(tables, group) => Work::relabel(core, tables, group),
            Choice::Window(window) => {
                core.close_zones(|_, zone| window.zones.contains(&zone));
                self.decide(core, &[Note::Window(window)], Cause::Compaction)?;
            }
        }
        Ok(Done::Other)
    }

    /// Logs what is decided, and makes it durable. What was done goes along where there are new tables.
    fn decide(&mut self, core: &Core, notes: &[Note], cause: Cause) -> Result<()> {
        let makes = notes.iter().any(|note| matches!(note, Note::Table(_)));
        let done = makes.then(|| core.done_note());
        let seq = core.note(&notes.iter().cloned().chain(done).collect::<Vec<_>>());
        self.finish(core, seq, cause)
    }

    fn finish(&mut self, core: &Core, seq: u64, cause: Cause) -> Result<()> {
        self.undone = Some(seq);
        core.commit(seq, cause)?;
        self.undone = None;
        Ok(())
    }

    /// The keys are divided like this from now on, if at all; and these are the jobs.
    fn divide(&mut self, core: &Core, parts: Vec<(u32, Option<Key>)>, jobs: Vec<Job>) -> Result<()> {
        let mut notes = vec![Note::Jobs(jobs)];
        if !parts.is_empty() {
            let _nobody_writes = lock(&core.writing);
            core.set_view(core.view().divided(&core.options.order, &parts));
            let gone = |group: Group| group != BOTTOM && parts.iter().all(|(id, _)| *id != group.part);
            core.close_zones(|group, _| gone(group));
            notes.push(Note::Parts(parts));
        }
        self.decide(core, &notes, Cause::Compaction)
    }

    fn relabel(core: &Core, tables: Vec<u64>, group: Group) {
        let view = core.view();
        let files: Vec<_> = tables.iter().filter_map(|id| view.tables.get(*id)).collect();
        core.close_zones(|_, zone| files.iter().any(|file| file.info.zone == zone));
        let moved: Vec<_> = files.iter().map(|file| file.changed(|info| info.group = group)).collect();
        core.change_tables(&moved, &[]);
        // Nothing is written or freed for it: the next commit makes it durable, or it is chosen again.
        core.note(&[Note::Relabel(tables, group)]);
    }

    /// Bytes that may be put now, as the policy says; works for them where that is needed. `deletes`: what comes only deletes, so it makes room even where there is
    /// none.
    fn admit(&mut self, core: &Arc<Core>, policy: &dyn Policy, deletes: bool) -> Result<u64> {
        let memtable = core.options.memtable_bytes as u64;
        // Without a thread nobody else works, unless somebody has since.
        if !core.tenant.volume().is_threaded() && self.granted == Some(self.choices) {
            self.one(core, policy, Goal::Usual)?;
        }
        loop {
            match self.grant(core, policy) {
                Ok(grant) => return Ok(grant.bytes),
                Err(Pressure::Slow(_) | Pressure::Stop) if self.one(core, policy, Goal::Usual)? != Done::Nothing => {}
                // What is deleted at once makes room without a merge.
                _ if ranges::settle(core, self)? => {}
                _ if core.take_back() => {}
                // Once they are a part of what is in memory it becomes tables in zones that are kept for that.
                _ if deletes && core.view().in_memory() as u64 <= DELETES * memtable => return Ok(memtable / PARTS),
                // What was put before is in its way.
                _ if deletes && self.one(core, policy, Goal::Delete)? != Done::Nothing => {}
                _ => return Err(core.no_space()),
            }
        }
    }

    /// Bytes that may be put without more work, or why there are none.
    fn grant(&mut self, core: &Core, policy: &dyn Policy) -> std::result::Result<Grant, Pressure> {
        let memtable = core.options.memtable_bytes as u64;
        let tree = Tree::of(core, Goal::Usual);
        let bytes = match policy.pressure(&tree.snapshot()) {
            Pressure::None => memtable / PARTS,
            // Zones may be many memories long: what is admitted has to fit into memory, too.
            Pressure::Slow(bytes) if self.granted != Some(self.choices) => {
                bytes.min((memtable + memtable / 4).saturating_sub(core.view().in_memory() as u64))
            }
            pressure => return Err(pressure),
        };
        self.granted = Some(self.choices);
        let headroom = policy::headroom(&tree.snapshot(), memtable);
        // A little stays for those that put a bit more than was admitted.
        Ok(Grant { bytes, most: (headroom - headroom / 8).min(i64::MAX as u64) as i64 })
    }
}

impl Worker {
    pub fn new(core: Arc<Core>, policy: Box<dyn Policy>, thread: Arc<Maintenance>) -> Worker {
        Worker { core, policy, thread, work: Mutex::default(), turn: Mutex::default(), admitted: AtomicI64::default() }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        let _turn = lock(&self.turn);
        lock(&self.work)
    }

    /// Whoever is about to put so many bytes waits until the policy admits them, and works for it where nobody else does. `deletes`: it does nothing but
    /// delete.
    ///
    /// # Errors
    /// `NoSpace`, and those of the work.
    pub fn make_room(&self, bytes: u64, deletes: bool) -> Result<()> {
        let take = |left: i64| (left > 0).then(|| left.saturating_sub_unsigned(bytes));
        let mut wait = self.core.counters.wait();
        loop {
            if let Ok(left) = self.admitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
                // Much may be admitted at once, and memory may be due before it is used up: the thread looks after each part of it, not only once it has slept.
                let part = (self.core.options.memtable_bytes as i64 / PARTS as i64).max(1);
                if left / part != left.saturating_sub_unsigned(bytes).max(0) / part {
                    self.thread.ring();
                }
                return Ok(());
            }
            wait.begins();
            let mut work = self.work();
            // Somebody else may have come before.
            if self.admitted.load(Ordering::Acquire) <= 0 {
                // What was put beyond what was admitted counts.
                let admitted = work.admit(&self.core, self.policy.as_ref(), deletes)?;
                self.admitted.fetch_add(admitted.min(i64::MAX as u64 / 2) as i64, Ordering::AcqRel);
                drop(work);
                self.thread.ring();
            }
        }
    }

    /// Whether so many bytes have room, beside what is kept for deletions; works for them where zones run short. `little`: half of what memory keeps for deletions counts, too.
    ///
    /// # Errors
    /// Those of the work.
    pub fn has_room(&self, bytes: u64, little: bool) -> Result<bool> {
        let core = &self.core;
        let memtable = core.options.memtable_bytes as u64;
        loop {
            let all = core.view().in_memory() as u64 + bytes;
            // Tables that are written twice before they are merged, and the zones of a merge.
            let zones = 2 * all.div_ceil(core.zone_bytes().max(1)) + MERGES;
            if u64::from(tree::room(core)) >= zones
                || bytes <= policy::headroom(&Tree::of(core, Goal::Usual).snapshot(), memtable)
            {
                return Ok(true);
            }
            if self.one(Goal::Usual)? == Done::Nothing && !core.take_back() {
                return Ok(little && all <= memtable + memtable / 2);
            }
        }
    }

    /// Makes tables of a piece, and makes them count. What is not done when it fails is left in the piece.
    ///
    /// # Errors
    /// `NoSpace`; `NotFound` where the space was dropped; those of the work.
    pub fn ingest(&self, piece: &mut Piece) -> Result<()> {
        self.make_room(piece.bytes(), false)?;
        while !piece.is_empty() {
            let done = self.work().one_with(&self.core, self.policy.as_ref(), Goal::Usual, Some(piece))?;
            if done == Done::Nothing && !self.core.take_back() {
                return Err(self.core.no_space());
            }
        }
        self.thread.ring();
        Ok(())
    }

    /// Calls `look` while nobody carries out a choice.
    pub fn between_choices<T>(&self, look: impl FnOnce() -> T) -> T {
        let _work = self.work();
        look()
    }

    /// Carries out choices up to a step of a merge. False: there was nothing to do.
    pub fn step(&self, goal: Goal) -> Result<bool> {
        for at in 0..AT_ONCE {
            match self.one(goal)? {
                Done::Nothing => return Ok(at > 0),
                Done::Merge => break,
                Done::Other => {}
            }
        }
        Ok(true)
    }

    /// Carries out one choice.
    fn one(&self, goal: Goal) -> Result<Done> {
        let mut work = self.work();
        let done = work.one(&self.core, self.policy.as_ref(), goal)?;
        self.core.rest_iterators();
        // Puts need not wait for the end of the next choice, as long as this lasts.
        if done != Done::Nothing
            && let Ok(Grant { bytes, most }) = work.grant(&self.core, self.policy.as_ref())
        {
            // What was not put since the last choice is added: who puts evenly, and less than the drive could take, does not wait for a long step.
            let add = |left: i64| Some(left.max(left.saturating_add_unsigned(bytes).min(most)));
            // It always has a value.
            let _ = self.admitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        }
        Ok(done)
    }

    /// One choice, as the maintenance thread makes them while puts go on. False: there was nothing to do. `ahead`: nor is there a put that waits for the drive.
    pub fn tend(&self, ahead: bool) -> Result<bool> {
        let done = self.one(Goal::Usual)? != Done::Nothing;
        Ok(done || ahead && self.one(Goal::Ahead)? != Done::Nothing)
    }

    /// Sees to it that so many more ranges may be deleted, with so many bytes of keys.
    ///
    /// # Errors
    /// `NoSpace` where there are too many even when all tables are merged; those of the work.
    pub fn make_room_for_ranges(&self, ranges: usize, bytes: u64) -> Result<()> {
        let fits = || {
            let view = self.core.view();
            let all: u64 = view.ranges.iter().map(|range| range.bytes()).sum();
            view.ranges.iter().count() + ranges <= MOST_RANGES && all + bytes <= MOST_RANGE_BYTES
        };
        if !fits() {
            self.merge_all()?;
        }
        if fits() {
            return Ok(());
        }
        let sentence =
            "so many ranges are deleted that no more can be; let go of snapshots and iterators, or delete single keys";
        Err(self.core.refused(Code::NoSpace, sentence))
    }

    /// Notes in the metadata which ranges are deleted.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn note_ranges(&self) -> Result<()> {
        let mut work = self.work();
        while self.core.view().ranges.oldest_record().is_some() {
            ranges::settle(&self.core, &mut work)?;
        }
        Ok(())
    }

    /// Makes tables of all that readers see now.
    ///
    /// # Errors
    /// `NoSpace`, and those of the work.
    pub fn flush_all(&self) -> Result<()> {
        let core = &self.core;
        let upto = core.visible.load(Ordering::Acquire);
        let due = |record: (u64, u64)| record.1 <= upto;
        let left = || {
            core.view().memory().any(|memory| due(memory.oldest()))
                || core.view().ranges.oldest_record().is_some_and(due)
        };
        while left() {
            // Who puts may have flushed the last of it meanwhile: then there is nothing to do, and room.
            if self.one(Goal::Flush)? == Done::Nothing && left() && !core.take_back() {
                return Err(core.no_space());
            }
        }
        Ok(())
    }

    /// Merges all that readers see now, as far as the policy does.
    ///
    /// # Errors
    /// `NoSpace`, and those of the work.
    pub fn merge_all(&self) -> Result<()> {
        self.merge(|_, _| true)
    }

    /// The same of keys from `from` on and before `to`. The policy chooses, as if all were to be merged, until these are.
    ///
    /// # Errors
    /// `NoSpace`, and those of the work.
    pub fn merge_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let order = self.core.order();
        self.merge(|first, last| order.compare(first, to).is_lt() && order.compare(from, last).is_le())
    }

    /// Merges until no table is left to be merged whose first and last key are `wanted`.
    fn merge(&self, wanted: impl Fn(&[u8], &[u8]) -> bool) -> Result<()> {
        self.flush_all()?;
        let before = self.core.look(|manifest| manifest.next);
        let over = |manifest: &Manifest| {
            let waste = |table: &TableInfo| {
                table.stale + table.deletes > 0 && table.live > 0 && table.seqs.1 <= self.core.settled()
            };
            let merged = |table: &TableInfo| {
                table.group == BOTTOM && !waste(table) || table.id >= before || !wanted(table.first(), &table.largest)
            };
            manifest.jobs.is_empty() && manifest.tables.values().all(merged)
        };
        let dead = || {
            let (view, settled) = (self.core.view(), self.core.settled());
            let described = view.described(self.core.order());
            let mut tables =
                described.tables.iter().filter(|table| table.id < before && wanted(&table.smallest, &table.largest));
            tables.any(|table| table.dead > 0 && table.dead_at <= settled)
        };
        while (dead() || !self.core.look(over)) && self.one(Goal::All)? != Done::Nothing {}
        while ranges::settle(&self.core, &mut self.work())? {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kv, Options};
    use imbrex_device::Drive;
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, VolumeOptions};

    const MEMTABLE: u64 = 64 << 10;

    fn store() -> Kv {
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 32 << 20, ..Config::tiny() };
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        Kv::format(&drive, None, false).unwrap();
        let volume =
            VolumeOptions { exec: Exec::Inline, survivor_bytes: 1 << 20, unit_bytes: 4 << 10, turn_bytes: 64 << 10 };
        let options = Options {
            memtable_bytes: MEMTABLE as usize,
            table_bytes: 32 << 10,
            step_bytes: 16 << 10,
            segment_bytes: 16 << 10,
            volume,
            ..Options::default()
        };
        Kv::open(drive, options).unwrap()
    }

    /// Who puts evenly has more at hand before a long step than one choice admits, and never more than memory and the log have room for.
    #[test]
    fn what_was_admitted_and_not_put_is_kept() {
        let store = store();
        let (worker, core) = (store.worker(), store.core());
        let (mut most, mut n) = (0, 0u32);
        for _ in 0..3000 {
            // A little less than a choice admits.
            store.put(&n.wrapping_mul(2_654_435_761).to_be_bytes(), &[7; 500], false).unwrap();
            n += 1;
            worker.one(Goal::Usual).unwrap();
            let admitted = worker.admitted.load(Ordering::Acquire);
            let headroom = policy::headroom(&Tree::of(core, Goal::Usual).snapshot(), MEMTABLE) as i64;
            assert!(admitted <= headroom, "{admitted} of {headroom} bytes after {n} puts");
            most = most.max(admitted);
        }
        assert!(most >= 4 * (MEMTABLE / PARTS) as i64, "{most} bytes at most");
    }
}
