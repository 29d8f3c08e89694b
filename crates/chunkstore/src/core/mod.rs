//! What all parts of the store share: the state behind one lock, and the commit that makes things durable.
//!
//! - Everything that is decided (which zone, which block, which order) is decided under the lock of [`State`], in memory; I/O is
//!   done without it.
//! - At most one thread has the [`CommitGuard`]. It writes what has gathered ([`write`](crate::write)): a group of the volume's group commit
//!   ([`Committer`]). While that is flushed the next group is written.
//! - What waits for a zone in memory, who writes it, and what of it is durable is known to the volume's [`RecordWriter`]. Only what is durable goes by name
//!   into the journal.
//! - At most one thread writes a zone: it has the zone's [`ZoneGuard`](imbrex_zones::write::ZoneGuard). With the drive's write cache off those who append
//!   write theirs without the commit guard ([`write_through`](crate::write::write_through)).
//!
//! Lock order: the commit guard, with the metadata log → the checkpoint's progress → a zone guard → the state → the locks of `zones`. Nobody waits for the commit
//! guard while holding a zone guard, but who writes for all: it holds those of zones that refuse their bytes.

mod decisions;
mod lifetime_model;
pub(crate) mod placing;
pub(crate) mod report;
mod work;

use crate::core::decisions::Decisions;
use crate::core::placing::Placing;
use crate::core::report::OpenReport;
use crate::core::work::Work;
use crate::error::Result;
use crate::format::entry::{GroupEntry, LOST};
use crate::format::id::StreamType;
use crate::format::{BLOCK, MAX_RECORD, data_blocks, most_data};
use crate::index::Index;
use crate::options::Options;
#[cfg(doc)]
use crate::zone::DataZone;
use crate::zone::{Event, ZoneState, ZoneTable};
use imbrex_device::{Cause, Error, Fault, Tag, ZoneId};
use imbrex_zones::clean::{Cleaner, Rules};
use imbrex_zones::helpers::Helpers;
use imbrex_zones::log::MetaLog;
use imbrex_zones::shell::Maintenance;
/// The right to write what has gathered, the metadata log first.
pub(crate) use imbrex_zones::write::Lead as CommitGuard;
use imbrex_zones::write::{Committer, RecordWriter, Written};
use imbrex_zones::{Tenant, Volume};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic of another holder: what is behind the locks here is valid between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whole blocks of so many bytes.
fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK as u64).unwrap_or(u32::MAX)
}

/// What makes a group durable.
pub(crate) const FLUSH: Tag = Tag::new(Cause::UserWrite);

/// Most bytes that the cleaner copies before they are made durable and the index is switched.
pub(crate) const CLEAN_STEP: u64 = 16 << 20;

/// Sizes that follow from the drive.
#[derive(Clone, Debug)]
pub(crate) struct DerivedLimits {
    /// Most bytes of one append.
    pub(crate) most_append: u32,
    /// Most records of a chunk.
    pub(crate) most_records: usize,
    /// Most bytes of a chunk, by kind of stream.
    pub(crate) of_streams: Vec<u32>,
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

/// Bytes that fill a zone of `blocks` blocks when they are appended in pieces of `piece`: the zone header, the records, and in what
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
        let limit = |settings: &crate::options::StreamSettings| settings.limit.unwrap_or(fill).min(fill);
        let pool = open_limit.map_or(options.open_zones, |limit| limit.min(options.open_zones));
        let pool = (pool as usize).min(zones as usize / 4).max(1);
        let shares: Vec<u32> = options.streams.iter().map(|s| s.pool).collect();
        let pools = crate::options::share_out(pool, &shares);
        DerivedLimits {
            most_append: most_data(blocks.saturating_sub(1)).min(most_data((MAX_RECORD / BLOCK) as u32)).min(16 << 20),
            most_records: usize::try_from(meta / 64).unwrap_or(usize::MAX).clamp(64, 1 << 20),
            of_streams: options.streams.iter().map(limit).collect(),
            pool,
            // Where the drive has few, a metazone that took no write counts until it is reset, so all of them are not for chunks.
            shared: match open_limit {
                Some(limit) if limit < 16 => 0,
                _ => pools.iter().sum(),
            },
            pools,
            separate: options.placement.separates() && pool >= options.streams.len(),
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

/// See the module.
pub(crate) struct State {
    /// Called under the state's lock only where it works in memory.
    pub(crate) writer: Arc<RecordWriter>,
    pub(crate) index: Index,
    pub(crate) zones: ZoneTable,
    /// Zones where the cleaner puts records that the index does not know yet.
    pub(crate) incoming: BTreeSet<u32>,
    pub(crate) decisions: Decisions,
    pub(crate) work: Work,
    pub(crate) placing: Placing,
    /// What the journal was not told yet.
    pub(crate) fresh: crate::index::fresh::Fresh,
    /// Blocks that chunks that go on in a zone are expected to take there, by slot; in [`DataZone::promised`] their sum.
    pub(crate) promises: std::collections::BTreeMap<u32, u32>,
    pub(crate) lifetimes: lifetime_model::LifetimeModel,
    pub(crate) scrub: crate::index::scrub::Scrub,
    pub(crate) names: crate::index::names::Names,
    /// Slots of chunks with bytes that are known to be lost, or whose end is not known.
    pub(crate) losses: std::collections::BTreeSet<u32>,
}

impl State {
    pub(crate) fn new(writer: Arc<RecordWriter>, placing: Placing) -> State {
        State {
            writer,
            index: Index::default(),
            zones: ZoneTable::default(),
            incoming: BTreeSet::new(),
            decisions: Decisions::default(),
            work: Work::default(),
            placing,
            fresh: Default::default(),
            promises: Default::default(),
            lifetimes: Default::default(),
            scrub: Default::default(),
            names: Default::default(),
            losses: Default::default(),
        }
    }

    /// From the chunks that there are when the store is opened.
    pub(crate) fn learn_sizes(&mut self) {
        let sealed = self.index.range(None).filter(|chunk| chunk.sealed);
        let known: Vec<(usize, u32)> = sealed.take(4096).map(|c| (usize::from(c.stream.number()), c.len)).collect();
        known.into_iter().for_each(|(kind, len)| self.placing.sealed(kind, len));
    }

    /// Whether some bytes have no place on the drive.
    pub(crate) fn has_stranded(&self) -> bool {
        self.zones.active().any(|(_, z)| z.stranded)
    }

    /// Up to this block the zone is on the drive.
    pub(crate) fn written(&self, zone: u32) -> u32 {
        blocks(self.writer.written(zone))
    }

    /// Up to this block no power loss takes anything of the zone.
    pub(crate) fn durable(&self, zone: u32) -> u32 {
        self.zones.get(zone).map_or(0, |_| blocks(self.writer.durable(zone)))
    }

    /// A zone may have taken after all what had no place: then whoever waits for that needs one more commit.
    pub(crate) fn note_landed(&mut self, zone: u32) {
        if let Some(z) = self.zones.get_mut(zone).filter(|z| z.stranded && !self.writer.waits(zone)) {
            z.stranded = false;
            self.decisions.note_landed();
        }
    }

    /// Whether no power loss takes these records. Of others nothing goes into the journal: a power loss may leave the journal, and not them.
    pub(crate) fn is_durable(&self, group: &GroupEntry) -> bool {
        let durable = self.durable(group.zone);
        { group.spans() }.all(|(start, r)| r.at == LOST || r.at + data_blocks(r.end - start) <= durable)
    }

    /// A number for something that is decided now.
    pub(crate) fn assign(&mut self) -> u64 {
        self.decisions.assign()
    }

    /// One group of the chunk in `slot` is in the zone no more. A closed zone in which nothing is left is garbage.
    pub(crate) fn forget_group(&mut self, zone: u32, slot: u32, blocks: u32) {
        let assigned = self.decisions.last();
        if let Some(z) = self.zones.get_mut(zone) {
            z.forget(slot, blocks);
            z.touched = assigned;
        }
        self.collect(zone);
    }

    /// A closed zone without anything live becomes garbage.
    pub(crate) fn collect(&mut self, zone: u32) {
        let assigned = self.decisions.last();
        if let Some(z) = self.zones.get_mut(zone)
            && z.state() == ZoneState::Closed
            && z.live.is_empty()
            && !self.incoming.contains(&zone)
        {
            z.step(Event::Die);
            self.writer.tenant().forget(ZoneId(zone), assigned);
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

/// How far the checkpoint that is under way has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) next_slot: u32,
    /// The name that was written last.
    pub(crate) last_name: Option<Arc<str>>,
    /// What was appended when it began.
    pub(crate) appended: u64,
}

/// An open store.
pub(crate) struct Core {
    pub(crate) volume: Volume,
    pub(crate) tenant: Tenant,
    pub(crate) options: Options,
    pub(crate) limits: DerivedLimits,
    state: Mutex<State>,
    pub(crate) writer: Arc<RecordWriter>,
    pub(crate) commits: Committer,
    /// Whoever has the commit guard locks it.
    pub(crate) checkpoint: Mutex<Progress>,
    numbers: AtomicU64,
    pub(crate) counters: crate::meter::Counters,
    /// One thread at a time opens a zone.
    pub(crate) opening: Mutex<()>,
    pub(crate) cleaner: Cleaner,
    /// Threads that help those who read.
    pub(crate) helpers: Helpers,
    /// What opening found.
    pub(crate) report: OpenReport,
    pub(crate) maintenance: Arc<Maintenance>,
}

impl Core {
    pub(crate) fn new(tenant: Tenant, options: Options, limits: DerivedLimits, mut state: State, log: MetaLog) -> Core {
        state.learn_sizes();
        let volume = tenant.volume().clone();
        let (below, zone) = (limits.clean_below, limits.zone_bytes);
        let rules = Rules { below, leave: 0, zone, step: CLEAN_STEP };
        // Unlike any number of an earlier mount: those counted less.
        let first = volume.mount() << 40;
        let core = Core {
            commits: Committer::new(&state.writer, log),
            cleaner: Cleaner::new(&tenant, rules),
            writer: state.writer.clone(),
            volume,
            tenant,
            options,
            limits,
            state: Mutex::new(state),
            checkpoint: Mutex::default(),
            numbers: AtomicU64::new(first),
            counters: Default::default(),
            opening: Mutex::new(()),
            helpers: Helpers::default(),
            report: OpenReport::default(),
            maintenance: Arc::default(),
        };
        core.learn_lifetimes(first);
        core
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn error(&self, fault: Fault) -> Error {
        Error::new(&self.volume.name(), fault)
    }

    /// A number that no life, serial number or append of this volume had before; they ascend.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns when everything up to number `target` is durable: leads a commit, or waits for the one that covers it.
    pub(crate) fn commit(&self, target: u64) -> Result<()> {
        self.commits.commit(target, FLUSH, |guard| {
            if !self.options.group_commit_delay.is_zero() && self.volume.is_threaded() {
                std::thread::sleep(self.options.group_commit_delay);
            }
            self.write_group(guard)
        })
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
            if state.decisions.landed() <= self.commits.durable() {
                return Ok(());
            }
            target = state.decisions.landed();
        }
    }

    /// Writes everything that is there now, and a piece of the checkpoint that is under way or due. The next group may be written from then on.
    pub(crate) fn write_group<'a>(&self, mut guard: CommitGuard<'a>) -> Result<Written<'a>> {
        let needs = || {
            let state = self.state();
            (state.fresh.cost() + state.decisions.bytes(), state.work.index())
        };
        guard.make_room(needs, |guard| self.checkpoint_whole(guard))?;
        self.state().work.commits();
        let target = self.write_out(&mut guard)?;
        if let Err(error) = self.checkpoint_tick(&mut guard) {
            self.volume.check_poison()?;
            // The commit itself is as good without, and the last checkpoint still counts.
            tracing::error!(%error, "a checkpoint could not be written");
        }
        Ok(guard.done(target))
    }

    /// Gives zones back to the volume's pool that are durably garbage and that nobody pins: when free ones run short, or all of
    /// them. Returns how many.
    pub(crate) fn reset_garbage(&self, all: bool) -> usize {
        let short = all || self.tenant.counts().free <= self.limits.clean_below + self.limits.pool as u32;
        if !short {
            return 0;
        }
        let (gone, durable) = {
            let mut state = self.state();
            // No metadata refers to them, so nobody pins one after this.
            let (gone, durable) = self.commits.forgotten();
            for zone in &gone {
                // One that was released while the cleaner pinned it for a look never was in the table.
                let Some(mut z) = state.zones.remove(zone.0) else { continue };
                z.step(Event::Reset);
                if z.unread > 0 {
                    state.give_up_unread();
                }
            }
            (gone, durable)
        };
        self.tenant.free(&gone, durable);
        gone.len()
    }

    /// What a chunk of this kind may have at most, in bytes.
    pub(crate) fn limit(&self, stream: StreamType) -> u32 {
        self.limits.of_streams.get(usize::from(stream.number())).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
