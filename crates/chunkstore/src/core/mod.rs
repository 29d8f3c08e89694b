//! What all parts of the store share: the state behind one lock, and the commit that makes things durable.
//!
//! - Everything that is decided (which zone, which block, which order) is decided under the lock of [`State`], in memory; I/O is
//!   done without it.
//! - At most one thread has the [`CommitGuard`]. It writes what has gathered ([`write`](crate::write)): a group of the volume's group commit
//!   ([`Committer`]). While that is flushed the next group is written.
//! - What is written is not durable. [`DataZone::durable`] says up to where a zone is, and only that goes by name into the journal.
//! - At most one thread writes a zone: it has the zone's [guard](crate::write::ZoneGuard). With the drive's write cache off those who append
//!   write theirs without the commit guard ([`write_through`](crate::write::write_through)).
//!
//! Lock order: the commit guard → the metadata log → a zone guard → a [turn](crate::write::turns) → the state → the committer's own. Nobody waits for the commit guard or the log while holding a zone guard, nor
//! for one zone guard while holding another, nor for anything but the drive while holding a turn.

use crate::error::Result;
use crate::format::entry::{Entry, GroupEntry, LOST};
use crate::format::id::StreamType;
use crate::format::{BLOCK, MAX_RECORD, data_blocks, most_data};
use crate::index::Index;
use crate::metadata::checkpoint::Meta;
use crate::options::Options;
use crate::policy::place::Sizes;
use crate::recover::OpenReport;
use crate::write::turns::AtOnce;
#[cfg(doc)]
use crate::zone::DataZone;
use crate::zone::{Event, ZoneState, ZoneTable};
use imbrex_device::{Cause, Error, Fault, Tag, ZoneId};
use imbrex_zones::shell::Maintenance;
/// The right to write what has gathered, the journal first.
pub(crate) use imbrex_zones::write::Lead as CommitGuard;
use imbrex_zones::write::{Committer, Join, Written};
use imbrex_zones::{Tenant, Volume};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another holder: what is behind the locks here is valid between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`Core::together`].
const TOGETHER: usize = 16 << 20;
/// See [`Core::beside`]: what a drive's queue holds.
const BESIDE: usize = 32;

/// Sizes that follow from the drive.
#[derive(Clone, Debug)]
pub(crate) struct DerivedLimits {
    /// Most bytes of one append.
    pub(crate) most_append: u32,
    /// Most records of a chunk.
    pub(crate) most_records: usize,
    /// Most bytes of a chunk, by kind of stream.
    pub(crate) limits: Vec<u32>,
    /// Zones that may be open at once, by kind of stream; and for all together, where kinds share them.
    pub(crate) pools: Vec<usize>,
    pub(crate) pool: usize,
    /// Zones of all kinds up to which one lends to another: their shares together; 0: none.
    pub(crate) shared: usize,
    /// Kinds of streams have zones of their own; not where the drive's limit is too low for that.
    pub(crate) separate: bool,
    /// About as many bytes in one part of a checkpoint.
    pub(crate) part_bytes: usize,
    /// About as many bytes of entries in one journal record.
    pub(crate) journal_payload: usize,
    /// Most bytes that a checkpoint may take.
    pub(crate) most_index: u64,
    /// Cleaning begins below so many free zones.
    pub(crate) clean_below: u32,
    /// Zones of the cleaner that may be open.
    pub(crate) cleaner_zones: usize,
    /// Bytes of a datazone.
    pub(crate) zone_bytes: u64,
    /// Where appends are durable by themselves: a commit after so many bytes, where there is work that goes with commits.
    pub(crate) tick: u64,
}

/// Bytes that fill a zone of `blocks` blocks when they are appended in pieces of `piece`: the zone head, the records, and in what
/// is left one more record.
pub(crate) fn fill_of(blocks: u32, piece: u32) -> u64 {
    let each = data_blocks(piece);
    let blocks = blocks.saturating_sub(1);
    u64::from(blocks / each) * u64::from(piece) + u64::from(most_data(blocks % each))
}

impl DerivedLimits {
    /// Of a drive whose datazones take `zone` bytes, with so many metazones of `meta` bytes a ring, `zones` datazones, and so many
    /// zones that may be open for chunks.
    pub(crate) fn new(
        options: &Options,
        zone: u64,
        meta: (u64, u64),
        zones: u32,
        open_limit: Option<u32>,
    ) -> DerivedLimits {
        let (meta_count, meta) = meta;
        let blocks = u32::try_from(zone / BLOCK as u64).unwrap_or(u32::MAX);
        let fill = u32::try_from(fill_of(blocks, 1 << 20)).unwrap_or(u32::MAX);
        let limit = |settings: &crate::options::StreamSettings| {
            let own = settings.limit.unwrap_or(fill).min(fill);
            if options.placement.match_limit { own } else { own.min(64 << 20) }
        };
        let pool = open_limit.map_or(options.open_zones, |limit| limit.min(options.open_zones));
        let pool = (pool as usize).min(zones as usize / 4).max(1);
        let shares: Vec<u32> = options.streams.iter().map(|s| s.pool).collect();
        let pools = crate::options::share_out(pool, &shares);
        DerivedLimits {
            most_append: most_data(blocks.saturating_sub(1)).min(most_data((MAX_RECORD / BLOCK) as u32)).min(16 << 20),
            most_records: usize::try_from(meta / 64).unwrap_or(usize::MAX).clamp(64, 1 << 20),
            limits: options.streams.iter().map(limit).collect(),
            pool,
            // Where the drive has few, a metazone that took no write counts until it is reset, so all of them are not for chunks.
            shared: match open_limit {
                Some(limit) if limit < 16 => 0,
                _ => pools.iter().sum(),
            },
            pools,
            separate: options.placement.separate && pool >= options.streams.len(),
            part_bytes: (meta / 32).clamp(BLOCK as u64, 1 << 20) as usize,
            journal_payload: (meta / 32).clamp(BLOCK as u64, 256 << 10) as usize,
            most_index: meta_count.saturating_sub(1) * meta / 8,
            clean_below: options.clean_below.unwrap_or((zones / 64).max(4)),
            cleaner_zones: if open_limit.is_some_and(|limit| limit < 8) { 1 } else { 2 },
            zone_bytes: zone,
            tick: (zone / 16).min(16 << 20),
        }
    }
}

/// What one flush makes durable.
struct Group {
    /// Everything that was decided up to here.
    number: u64,
    /// Zones, their lives, and up to which block they are written.
    ends: Vec<(u32, u64, u32)>,
}

/// See the module.
pub(crate) struct State {
    tenant: Tenant,
    pub(crate) index: Index,
    pub(crate) zones: ZoneTable,
    /// Entries of the journal that are not written yet.
    pub(crate) journal: Vec<Entry>,
    /// Number of the last thing that was decided.
    pub(crate) assigned: u64,
    /// Number of the last time that bytes found another place, or theirs took them after all. Those may have missed the commits before.
    pub(crate) landed: u64,
    /// Chunks that the journal does not know yet, by slot, and the numbers up to which it is to be written for that.
    pub(crate) creates: std::collections::BTreeMap<u32, u64>,
    /// Zones that were written since the last group.
    pub(crate) unflushed: BTreeSet<u32>,
    /// Groups that are written and not noted as durable, the oldest first.
    groups: VecDeque<Group>,
    /// Bytes that ever became durable.
    pub(crate) flushed: u64,
    /// Bytes that are not written yet.
    pub(crate) buffered: u64,
    /// Bytes that were ever appended or moved, records included, and as many at the last checkpoint's start.
    pub(crate) appended: u64,
    pub(crate) checkpointed: u64,
    /// As many at the last commit.
    pub(crate) committed: u64,
    /// Bytes that a checkpoint of the index takes.
    pub(crate) index_bytes: u64,
    /// What the journal was not told yet.
    pub(crate) fresh: crate::metadata::log_index::Fresh,
    /// The zone that was chosen last, by kind of stream.
    pub(crate) last: Vec<u32>,
    /// The zone that was taken last.
    pub(crate) taken: u32,
    pub(crate) random: u64,
    /// How long the last chunks of each kind became.
    pub(crate) sizes: Vec<Sizes>,
    /// Blocks that chunks that go on in a zone are expected to take there, by slot; in [`DataZone::promised`] their sum.
    pub(crate) promises: std::collections::BTreeMap<u32, u32>,
    pub(crate) lifetimes: crate::clean::lifetime_model::LifetimeModel,
    pub(crate) scrub: crate::check::scrub::Scrub,
    pub(crate) names: crate::index::names::Names,
    /// Bytes of the names that are among `journal`.
    pub(crate) naming: usize,
    /// Slots of chunks with bytes that are known to be lost, or whose end is not known.
    pub(crate) losses: std::collections::BTreeSet<u32>,
    pub(crate) turns: crate::write::turns::Turns,
}

impl State {
    pub(crate) fn new(tenant: Tenant, streams: usize, seed: u64) -> State {
        State {
            tenant,
            index: Index::default(),
            zones: ZoneTable::default(),
            journal: Vec::new(),
            assigned: 0,
            landed: 0,
            creates: Default::default(),
            unflushed: Default::default(),
            groups: Default::default(),
            flushed: 0,
            buffered: 0,
            appended: 0,
            checkpointed: 0,
            committed: 0,
            index_bytes: 0,
            fresh: Default::default(),
            last: vec![0; streams.max(1)],
            taken: 0,
            random: seed | 1,
            sizes: vec![Sizes::default(); streams],
            promises: Default::default(),
            lifetimes: Default::default(),
            scrub: Default::default(),
            names: Default::default(),
            naming: 0,
            losses: Default::default(),
            turns: Default::default(),
        }
    }

    /// From the chunks that there are when the store is opened.
    pub(crate) fn learn_sizes(&mut self) {
        let sealed = self.index.range(None).filter(|chunk| chunk.sealed);
        let known: Vec<(usize, u32)> = sealed.take(4096).map(|c| (usize::from(c.stream.number()), c.len)).collect();
        for (kind, len) in known {
            if let Some(sizes) = self.sizes.get_mut(kind) {
                sizes.sealed(len);
            }
        }
    }

    /// Whether some bytes have no place on the drive.
    pub(crate) fn has_stranded(&self) -> bool {
        self.zones.active().any(|(_, z)| z.stranded)
    }

    /// A group is written up to this number.
    fn group_written(&mut self, number: u64) {
        let zones = std::mem::take(&mut self.unflushed).into_iter();
        let end = |zone| self.zones.get(zone).map(|z| (zone, z.life, z.buffer.written()));
        let ends = zones.filter_map(end).collect();
        self.groups.push_back(Group { number, ends });
    }

    /// Groups up to this number are durable. False: that was known.
    fn group_durable(&mut self, number: u64) -> bool {
        let due = self.groups.partition_point(|group| group.number <= number);
        let groups: Vec<Group> = self.groups.drain(..due).collect();
        groups.iter().flat_map(|group| &group.ends).for_each(|(zone, life, end)| self.durable_to(*zone, *life, *end));
        due > 0
    }

    /// What this life of the zone has up to block `end` is durable.
    pub(crate) fn durable_to(&mut self, zone: u32, life: u64, end: u32) {
        if let Some(z) = self.zones.get_mut(zone).filter(|z| z.life == life && z.durable < end) {
            self.flushed += u64::from(end - std::mem::replace(&mut z.durable, end)) * BLOCK as u64;
        }
    }

    /// Whether no power loss takes these records. Of others nothing goes into the journal: a power loss may leave the journal, and not them.
    pub(crate) fn is_durable(&self, group: &GroupEntry) -> bool {
        let durable = self.zones.get(group.zone).map_or(0, |z| z.durable);
        { group.spans() }.all(|(start, r)| r.at == LOST || r.at + data_blocks(r.end - start) <= durable)
    }

    /// A number for something that is decided now.
    pub(crate) fn assign(&mut self) -> u64 {
        self.assigned += 1;
        self.assigned
    }

    /// The next random number (xorshift).
    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// One group of the chunk in `slot` is in the zone no more. A closed zone in which nothing is left is garbage.
    pub(crate) fn forget_group(&mut self, zone: u32, slot: u32, blocks: u32) {
        let assigned = self.assigned;
        if let Some(z) = self.zones.get_mut(zone) {
            z.forget(slot, blocks);
            z.touched = assigned;
        }
        self.collect(zone);
    }

    /// A closed zone without anything live becomes garbage.
    pub(crate) fn collect(&mut self, zone: u32) {
        let assigned = self.assigned;
        if let Some(z) = self.zones.get_mut(zone)
            && z.state() == ZoneState::Closed
            && z.live.is_empty()
            && !z.incoming
        {
            z.step(Event::Die);
            self.tenant.forget(ZoneId(zone), assigned);
        }
    }

    /// A chunk's next bytes do not go to its last zone any more.
    pub(crate) fn unbind(&mut self, slot: u32) {
        self.promise(slot, 0);
        let Some(chunk) = self.index.chunk_mut(slot).filter(|chunk| chunk.bound) else { return };
        chunk.bound = false;
        let zone = chunk.groups().last().map(|group| group.zone);
        if let Some(zone) = zone.and_then(|zone| self.zones.get_mut(zone)) {
            zone.writers = zone.writers.saturating_sub(1);
        }
    }

    /// A chunk that goes on in its last zone is expected to take so many blocks there, instead of what was expected before.
    pub(crate) fn promise(&mut self, slot: u32, blocks: u32) {
        let bound = self.index.chunk(slot).filter(|chunk| chunk.bound);
        let Some(zone) = bound.and_then(|chunk| chunk.groups().last()).map(|group| group.zone) else { return };
        let before = match blocks {
            0 => self.promises.remove(&slot),
            _ => self.promises.insert(slot, blocks),
        };
        if let Some(z) = self.zones.get_mut(zone) {
            z.promised = (z.promised + u64::from(blocks)).saturating_sub(u64::from(before.unwrap_or(0)));
        }
    }
}

/// An open store.
pub(crate) struct Core {
    pub(crate) volume: Volume,
    pub(crate) tenant: Tenant,
    pub(crate) options: Options,
    pub(crate) facts: DerivedLimits,
    state: Mutex<State>,
    pub(crate) commits: Committer,
    pub(crate) changed: Condvar,
    pub(crate) meta: Mutex<Meta>,
    numbers: AtomicU64,
    pub(crate) counters: crate::api::stats::Counters,
    /// One thread at a time opens a zone.
    pub(crate) opening: Mutex<()>,
    /// One thread at a time cleans.
    pub(crate) cleaning: Mutex<()>,
    pub(crate) gather: crate::write::append::Gather,
    pub(crate) tending: crate::clean::background::Tending,
    /// So many bytes of one zone are copied together for one write. With the drive's write cache off each command waits for its
    /// sector to come round, and a record of 1 MiB by itself would be two; with it on, copying gains nothing.
    pub(crate) together: usize,
    /// Threads that help those who read.
    pub(crate) helpers: AtomicUsize,
    /// So many zones are written at once.
    pub(crate) beside: usize,
    /// Appends are durable by themselves: what is written is there.
    pub(crate) write_through: bool,
    /// How many zones are written at once then; `None`: as many as somebody writes.
    pub(crate) at_once: Option<AtOnce>,
    /// What opening found.
    pub(crate) report: OpenReport,
    pub(crate) maintenance: Arc<Maintenance>,
}

impl Core {
    pub(crate) fn new(tenant: Tenant, options: Options, facts: DerivedLimits, mut state: State, meta: Meta) -> Core {
        state.learn_sizes();
        let volume = tenant.volume().clone();
        // Unlike any number of an earlier mount: those counted less.
        let first = volume.mount() << 40;
        let cached = volume.device().write_cache().unwrap_or(true);
        // With its cache on a rotating drive puts writes in order by itself, and long turns are better for it. Where active zones are limited, one
        // that is closed is finished before the next is begun.
        let alone = cached && volume.geometry().rotational || tenant.limits_active();
        let write_through = !cached && !tenant.limits_active();
        let command = u64::from(volume.geometry().max_io);
        let zones = options.zones_at_once.map_or_else(
            || crate::policy::turn::at_once(command, volume.geometry().rotational, BESIDE),
            |asked| asked.max(1) as usize,
        );
        let at_once = (write_through && zones < BESIDE).then_some(AtOnce { zones, command });
        let segment = options.segment_bytes.next_multiple_of(BLOCK).max(BLOCK);
        let core = Core {
            commits: Committer::new(&volume),
            volume,
            tenant,
            options,
            facts,
            state: Mutex::new(state),
            changed: Condvar::new(),
            meta: Mutex::new(meta),
            numbers: AtomicU64::new(first),
            counters: Default::default(),
            opening: Mutex::new(()),
            cleaning: Mutex::new(()),
            tending: Default::default(),
            together: if cached { 0 } else { TOGETHER },
            helpers: AtomicUsize::new(0),
            beside: if alone { 1 } else { BESIDE },
            write_through,
            at_once,
            gather: crate::write::append::Gather { bytes: segment, pool: Default::default() },
            report: OpenReport::default(),
            maintenance: Arc::default(),
        };
        core.learn_lifetimes(first);
        core
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until something has changed.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn error(&self, fault: Fault) -> Error {
        Error::new(&self.volume.name(), fault)
    }

    /// A number that no life, serial number or append of this volume had before; they ascend.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for the right to write.
    pub(crate) fn commit_guard(&self) -> CommitGuard<'_> {
        self.commits.lead()
    }

    /// Returns when everything up to number `target` is durable: leads a commit, or waits for the one that covers it.
    pub(crate) fn commit(&self, target: u64) -> Result<()> {
        loop {
            match self.commits.join(target) {
                Join::Durable => return Ok(()),
                Join::Written(group) => self.flush_group(group)?,
                Join::Lead(guard) => {
                    if !self.options.group_commit_delay.is_zero() && self.is_threaded() {
                        std::thread::sleep(self.options.group_commit_delay);
                    }
                    self.flush_group(self.write_group(guard)?)?;
                }
            }
        }
    }

    /// The same, of bytes that a zone may not have taken that there is no other place for: a commit goes on without these.
    ///
    /// # Errors
    /// `NoSpace` where that is so: they stay in memory, and the next commit tries again.
    pub(crate) fn commit_bytes(&self, mut target: u64, stranded: impl Fn(&State) -> bool) -> Result<()> {
        let mut tried = false;
        loop {
            self.commit(target)?;
            let mut state = self.state();
            if stranded(&state) {
                if std::mem::replace(&mut tried, true) {
                    return Err(self.error(Fault::NoSpace).into());
                }
                // What became garbage with that commit may be their place in the next one.
                target = state.assign();
                continue;
            }
            if state.landed <= self.commits.durable() {
                return Ok(());
            }
            target = state.landed;
        }
    }

    pub(crate) fn is_threaded(&self) -> bool {
        matches!(self.options.volume.exec, imbrex_zones::Exec::Threads(_))
    }

    /// Writes everything that is there now, and a piece of the checkpoint that is under way or due. The next group may be written from then on.
    pub(crate) fn write_group<'a>(&self, guard: CommitGuard<'a>) -> Result<Written<'a>> {
        let mut meta = lock(&self.meta);
        self.admit_group(&mut meta, &guard)?;
        {
            let mut state = self.state();
            state.committed = state.appended;
        }
        let target = self.write_out(&mut meta, &guard)?;
        if let Err(error) = self.checkpoint_tick(&mut meta, &guard) {
            self.volume.check_poison()?;
            // The commit itself is as good without, and the last checkpoint still counts.
            tracing::error!(%error, "a checkpoint could not be written");
        }
        self.state().group_written(target);
        Ok(guard.done(target))
    }

    /// Makes a group durable, and all before it.
    pub(crate) fn flush_group(&self, group: Written<'_>) -> Result<()> {
        let flushed = group.flush(Tag::new(Cause::UserWrite))?;
        {
            let mut state = self.state();
            let new = state.group_durable(flushed.seq());
            self.counters.commits.fetch_add(u64::from(new), Ordering::Relaxed);
        }
        flushed.tell();
        Ok(())
    }

    /// Gives zones back to the volume's pool that are durably garbage and that nobody pins: when free ones run short, or all of
    /// them. Returns how many.
    pub(crate) fn reset_garbage(&self, all: bool) -> usize {
        let short = all || self.tenant.counts().free <= self.facts.clean_below + self.facts.pool as u32;
        if !short {
            return 0;
        }
        let (gone, durable) = {
            let mut state = self.state();
            let durable = self.commits.durable();
            let mut gone = self.tenant.forgotten(durable);
            // No metadata refers to them, so nobody pins one after this.
            gone.retain(|zone| {
                let due = state.zones.get(zone.0).is_some_and(|z| !z.writing && z.buffer.is_empty());
                let Some(mut z) = due.then(|| state.zones.remove(zone.0)).flatten() else { return false };
                z.step(Event::Reset);
                if z.unread > 0 {
                    state.give_up_unread();
                }
                true
            });
            (gone, durable)
        };
        self.tenant.free(&gone, durable);
        gone.len()
    }

    /// What a chunk of this kind may have at most, in bytes.
    pub(crate) fn limit(&self, stream: StreamType) -> u32 {
        self.facts.limits.get(usize::from(stream.number())).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
