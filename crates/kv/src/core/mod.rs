//! The state of an open store, and how it changes: what is decided under one lock, logged, and made durable by a commit.
//!
//! A table counts when a list of notes names it, and its bytes are durable before that. What a list takes away goes free when the list is durable and
//! the last reader has let go.

pub(crate) mod cache;
pub(crate) mod counters;
pub(crate) mod file;
pub(crate) mod lease;
pub(crate) mod ranges;
pub(crate) mod run;
pub(crate) mod tree;
pub(crate) mod view;

use crate::manifest::{Manifest, Note, Space, TableInfo, WalZone, record};
use crate::options::Options;
use crate::order::Order;
use crate::policy::{Group, Open};
use crate::ranges::RangeTombstone;
use crate::space::Spaces;
use crate::sync::{Mutex, RwLock, lock};
use crate::wal::{Wal, ZoneNames};
use cache::Cache;
use counters::Counters;
use file::TableFile;
use imbrex_device::{Cause, Code, Error, Fault, Result, Tag, ZoneId};
use imbrex_zones::log::Batch;
use imbrex_zones::write::{Committer, Lead, RecordWriter, Written, ZoneGuard};
use imbrex_zones::{Exec, OpenZone, Tenant, Urgency, ZoneHeader};
use lease::Lease;
use ranges::Range;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use view::View;

/// Bytes of a zone that neither keys nor values of a table get: headers, blocks' ends, properties.
const AROUND: u64 = 16 << 10;

/// Bytes of the log around a record.
const AROUND_RECORD: u64 = 4;

/// What is noted adds to a snapshot at most its own bytes. Once they are so many, and a quarter of the snapshot, it is counted again.
const UNCOUNTED: u64 = 4096;

/// What the header of a zone with tables says.
pub(crate) const TABLES: u8 = 2;
pub(crate) const TABLES_NAME: &str = "tables";

/// Active zones beside those of groups: two of the metadata, the log's, and one that is about to begin.
const ACTIVE_BESIDE: u32 = 4;

static OPENINGS: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct State {
    manifest: Manifest,
    /// What is to be logged.
    records: Batch,
    /// Number of the last decision.
    seq: u64,
    /// Bytes of a snapshot at most, and when it was last counted.
    snapshot: (u64, u64),
    /// Tables that a list of notes has named, in each zone.
    in_zone: BTreeMap<u32, BTreeSet<u64>>,
    /// Zones that take tables.
    open: BTreeMap<Group, OpenZone>,
    /// Tables that are not named yet, with their zones before them.
    incoming: BTreeSet<(u32, u64)>,
}

/// See the module.
pub(crate) struct Core {
    pub tenant: Tenant,
    /// The order there is that of `spaces`.
    pub options: Options,
    pub spaces: Arc<Spaces>,
    /// Bytes of the smallest zone.
    capacity: u64,
    /// Bytes of each table's [histogram](crate::policy::Policy::histogram).
    pub histogram: usize,
    pub zones: Arc<RecordWriter>,
    cache: Arc<Cache>,
    commits: Committer,
    state: Mutex<State>,
    view: RwLock<Arc<View>>,
    wal: OnceLock<Wal>,
    /// Number of the last change that readers see.
    pub visible: AtomicU64,
    /// Number of the last change that made another view: a range that was deleted, or pairs that were ingested.
    last_in_view: AtomicU64,
    opening: u64,
    /// Numbers up to which somebody reads, and how many do; each checkpoint is one.
    pub readers: Mutex<BTreeMap<u64, usize>>,
    /// What iterators hold.
    leases: Mutex<Vec<Weak<dyn Lease>>>,
    /// Who changes the store: one at a time.
    pub writing: Mutex<()>,
    /// Who makes and drops spaces: one at a time.
    pub naming: Mutex<()>,
    pub counters: Counters,
    damage: Mutex<Vec<String>>,
}

/// What an opening found.
pub(crate) struct Parts {
    pub tenant: Tenant,
    pub options: Options,
    pub spaces: Arc<Spaces>,
    pub zones: Arc<RecordWriter>,
    pub cache: Arc<Cache>,
    pub commits: Committer,
    pub manifest: Manifest,
    pub view: View,
    pub visible: u64,
    pub damage: Vec<String>,
    /// Bytes.
    pub histogram: usize,
}

impl Core {
    /// What the store has done, for the metadata log.
    pub fn done_note(&self) -> Note {
        Note::Done(self.counters.to_note(!matches!(self.options.volume.exec, Exec::Inline)))
    }

    pub fn new(parts: Parts) -> Arc<Core> {
        let mut state = State { manifest: parts.manifest, ..State::default() };
        for table in state.manifest.tables.values() {
            state.in_zone.entry(table.zone).or_default().insert(table.id);
        }
        state.count_snapshot();
        let counters = Counters::after(state.manifest.done.clone());
        let capacity = parts.tenant.volume().least_capacity();
        let mut readers = BTreeMap::new();
        state.manifest.checkpoints.values().for_each(|seq| *readers.entry(*seq).or_default() += 1);
        Arc::new(Core {
            capacity,
            histogram: parts.histogram,
            tenant: parts.tenant,
            options: parts.options,
            spaces: parts.spaces,
            naming: Mutex::default(),
            zones: parts.zones,
            cache: parts.cache,
            commits: parts.commits,
            state: Mutex::new(state),
            view: RwLock::new(Arc::new(parts.view)),
            wal: OnceLock::new(),
            visible: parts.visible.into(),
            last_in_view: AtomicU64::default(),
            opening: OPENINGS.fetch_add(1, Ordering::Relaxed),
            readers: Mutex::new(readers),
            leases: Mutex::default(),
            writing: Mutex::default(),
            counters,
            damage: Mutex::new(parts.damage),
        })
    }

    /// The log goes on: once.
    pub fn set_wal(&self, wal: Wal) {
        let _ = self.wal.set(wal);
    }

    pub fn wal(&self) -> Result<&Wal> {
        self.wal.get().ok_or_else(|| Error::invalid(&self.tenant.volume().name(), "the store is not open yet"))
    }

    /// A number of this opening, which no other one of this process has.
    pub fn opening(&self) -> u64 {
        self.opening
    }

    /// A number of this store, which records of its log are bound to.
    pub fn salt(&self) -> u32 {
        crc32c::crc32c(&self.tenant.volume().uuid())
    }

    /// Bytes that the entry of a table may take: a table is in one zone.
    pub fn largest_entry(&self) -> u64 {
        self.capacity.saturating_sub(AROUND)
    }

    pub fn order(&self) -> &dyn Order {
        self.options.order.as_ref()
    }

    /// Numbers, names and orders of the spaces that are there.
    pub fn named_spaces(&self) -> Vec<(u16, Space)> {
        let s = lock(&self.state);
        let there = s.manifest.spaces.iter().filter(|(number, _)| self.spaces.are_there([**number].into_iter()));
        there.map(|(number, space)| (*number, space.clone())).collect()
    }

    /// Sentences of damage that the opening found.
    pub fn damage(&self) -> Vec<String> {
        lock(&self.damage).clone()
    }

    pub fn add_damage(&self, more: Vec<String>) {
        lock(&self.damage).extend(more);
    }

    /// What there is now.
    pub fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Puts another view in place of the last. One caller at a time.
    pub fn set_view(&self, view: View) {
        let view = Arc::new(view);
        // The last one may be dropped here, which may end pins: not under the lock.
        let _last = std::mem::replace(&mut *self.view.write().unwrap_or_else(std::sync::PoisonError::into_inner), view);
    }

    /// All keys of a range are deleted; `record`: where the log has that, and the number of its record. Whoever calls is the only one that writes.
    pub fn delete_range(&self, deleted: RangeTombstone, record: (u64, u64)) {
        let view = self.view();
        if view.ranges.iter().any(|known| known.deleted.seq == deleted.seq) {
            // The log tells it again.
            return;
        }
        let seq = deleted.seq;
        let more = view.ranges.changed(self.order(), |all| all.push(Range { deleted, record, noted: None }));
        self.set_view(View { ranges: more.into(), ..View::clone(&view) });
        self.last_in_view.fetch_max(seq, Ordering::Release);
    }

    /// These tables count, whose changes all have this number. Whoever calls is the only one that writes.
    pub fn ingest(&self, tables: &[Arc<TableFile>], seq: u64) {
        let view = self.view();
        let tables = view.tables.with(self.order(), tables, &[]).into();
        self.set_view(View { tables, ingested: seq, ..View::clone(&view) });
        self.last_in_view.fetch_max(seq, Ordering::Release);
    }

    /// Whether a view has all that a reader must find in a view: memory has what is not there.
    pub fn is_whole(&self, view: &View) -> bool {
        self.last_in_view.load(Ordering::Acquire) <= view.ranges.newest().max(view.ingested)
    }

    /// The same tables but for some.
    pub fn change_tables(&self, more: &[Arc<TableFile>], less: &[u64]) {
        // Who deletes a range changes the view, too.
        let _nobody_writes = lock(&self.writing);
        let view = self.view();
        self.set_view(View { tables: Arc::new(view.tables.with(self.order(), more, less)), ..View::clone(&view) });
    }

    /// Bytes of a zone that tables can have.
    pub fn zone_bytes(&self) -> u64 {
        self.capacity - u64::from(self.tenant.volume().geometry().block.max(4096))
    }

    /// Groups that may each have a zone that is written.
    pub fn groups_at_once(&self) -> u32 {
        self.tenant.most_active().map_or(u32::MAX, |most| most.saturating_sub(ACTIVE_BESIDE).max(2))
    }

    /// Zones that groups write, and how many zones have tables or get some.
    pub fn zones_of_tables(&self) -> (Vec<Open>, u32) {
        let s = lock(&self.state);
        let of = |(group, open): (&Group, &OpenZone)| Open {
            group: *group,
            zone: open.zone.0,
            room: open.capacity.saturating_sub(open.at),
        };
        let open: Vec<Open> = s.open.iter().map(of).collect();
        let full = s.in_zone.iter().filter(|(_, tables)| !tables.is_empty()).map(|(zone, _)| *zone);
        let used: BTreeSet<u32> = full.chain(open.iter().map(|open| open.zone)).collect();
        (open, used.len() as u32)
    }

    /// The next table's number.
    pub fn next_table(&self) -> u64 {
        let mut s = lock(&self.state);
        s.manifest.next += 1;
        s.manifest.next - 1
    }

    /// What the state says of something.
    pub fn look<T>(&self, look: impl FnOnce(&Manifest) -> T) -> T {
        look(&lock(&self.state).manifest)
    }

    /// Notes what is decided, in memory. Returns the number that a commit has to reach. Of nothing the log has no record: the commit is for tables alone.
    pub fn note(&self, notes: &[Note]) -> u64 {
        let mut s = lock(&self.state);
        let before = s.records.len();
        if !notes.is_empty() {
            s.records.push(|out| record(notes, out));
        }
        // There each note is a record.
        s.snapshot.0 += (s.records.len() - before) as u64 + notes.len() as u64 * (AROUND_RECORD + 1);
        s.seq += 1;
        let seq = s.seq;
        let mut before = s.manifest.wal.clone();
        for note in notes {
            match note {
                Note::Table(table) => {
                    s.in_zone.entry(table.zone).or_default().insert(table.id);
                    s.incoming.remove(&(table.zone, table.id));
                }
                Note::Gone(id) => {
                    if let Some(zone) = s.manifest.tables.get(id).map(|table| table.zone) {
                        if let Some(tables) = s.in_zone.get_mut(&zone) {
                            tables.remove(id);
                        }
                        s.forget_if_empty(&self.tenant, zone);
                    }
                }
                _ => {}
            }
            s.manifest.apply(note.clone());
        }
        let log = s.manifest.wal.clone();
        before.retain(|zone| !log.contains(zone));
        before.iter().for_each(|gone| self.tenant.forget(ZoneId(gone.zone), seq));
        seq
    }

    /// Everything that was decided up to `seq` is durable when it returns, and zones that nobody needs any more are free.
    pub fn commit(&self, seq: u64, cause: Cause) -> Result<()> {
        self.commits.commit(seq, Tag::new(cause), |lead| self.write_group(lead))?;
        self.free();
        Ok(())
    }

    /// The metadata log, which nobody else writes as long as this is there.
    pub fn lead(&self) -> Lead<'_> {
        self.commits.lead()
    }

    /// Frees the zones that nobody needs any more.
    pub fn free(&self) {
        let (gone, durable) = {
            let _opens_none = lock(&self.state);
            self.commits.forgotten()
        };
        self.tenant.free(&gone, durable);
    }

    /// What a snapshot of the metadata has.
    fn all_metadata(&self) -> Batch {
        let mut all = Batch::default();
        lock(&self.state).manifest.snapshot(&mut |notes| all.push(|out| record(notes, out)));
        all
    }

    /// Writes all metadata anew, to each of so many copies, where the opening has found one of them damaged.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn mend_metadata(&self, copies: u8) -> Result<()> {
        let mut lead = self.lead();
        let times = if lead.log().is_damaged() { copies } else { 0 };
        (0..times).try_for_each(|_| lead.log().write_snapshot(&self.all_metadata()))
    }

    fn write_group<'a>(&self, mut lead: Lead<'a>) -> Result<Written<'a>> {
        let needs = || {
            let mut s = lock(&self.state);
            let (most, counted) = s.snapshot;
            if most > counted + counted / 4 + UNCOUNTED {
                s.count_snapshot();
            }
            (s.records.len() as u64, s.snapshot.0)
        };
        lead.make_room(needs, |lead| lead.log().write_snapshot(&self.all_metadata()))?;
        let (seq, due) = {
            let mut s = lock(&self.state);
            lead.log().appender().append_all(&mut s.records)?;
            (s.seq, self.zones.due())
        };
        self.drop_refused(lead.write(seq, &due)?);
        Ok(lead.done(seq))
    }

    /// Zones that take no more. Whoever writes a table finds that it is not durable, and writes it again.
    fn drop_refused(&self, refused: Vec<ZoneGuard<'_>>) {
        for guard in refused {
            lock(&self.state).close(&self.zones, guard.zone());
            guard.discard();
        }
    }

    /// Writes what waits of tables, without a flush, so that memory comes back.
    pub fn write_tables(&self) -> Result<()> {
        self.drop_refused(self.zones.write(&self.zones.due())?);
        Ok(())
    }

    /// A zone for this table of the group, with at least `need` bytes of room. It stays until the table is named or [given up](Core::give_up).
    pub fn zone_for(&self, table: u64, group: Group, need: u64) -> Result<OpenZone> {
        {
            let mut s = lock(&self.state);
            if let Some(open) = s.open.get(&group).copied() {
                if open.at + need <= open.capacity {
                    s.incoming.insert((open.zone.0, table));
                    return Ok(open);
                }
                s.close(&self.zones, open.zone.0);
                s.forget_if_empty(&self.tenant, open.zone.0);
            }
        }
        self.close_fullest();
        let zone = match self.take() {
            Err(error) if matches!(error.fault, Fault::NoSpace) => {
                // Some may be forgotten, and nobody has committed since.
                let seq = lock(&self.state).seq;
                self.commit(seq, Cause::Compaction)?;
                self.take()
            }
            taken => taken,
        }?;
        let (life, capacity) = (self.tenant.new_life(), self.tenant.volume().capacity(zone));
        let front = u64::from(self.tenant.volume().geometry().block.max(4096));
        let mut header = self.zones.memory(front as usize);
        header.fill(0);
        self.header(zone, life, group).encode_into(&mut header);
        let mut open = OpenZone { zone, life, at: 0, capacity };
        let mut s = lock(&self.state);
        self.zones.open(open);
        self.zones.push(zone.0, header);
        open.at = front;
        s.open.insert(group, open);
        s.incoming.insert((zone.0, table));
        Ok(open)
    }

    /// Where as many groups write as may, one of them stops.
    fn close_fullest(&self) {
        let mut s = lock(&self.state);
        while s.open.len() >= self.groups_at_once() as usize {
            let room = |open: &OpenZone| open.capacity.saturating_sub(open.at);
            let Some(zone) = s.open.values().min_by_key(|open| room(open)).map(|open| open.zone.0) else { return };
            s.close(&self.zones, zone);
            s.forget_if_empty(&self.tenant, zone);
        }
    }

    /// An empty zone for tables. What is reserved for the log stays; how much is kept free for merges is the policy's business.
    fn take(&self) -> Result<ZoneId> {
        let counts = self.tenant.counts();
        if counts.free <= counts.reservations {
            return Err(self.no_space());
        }
        self.tenant.take(Urgency::Cleaning)
    }

    /// Nothing more goes to the open zones of these groups, or to these zones.
    pub fn close_zones(&self, which: impl Fn(Group, u32) -> bool) {
        let mut s = lock(&self.state);
        let all = s.open.iter().map(|(group, open)| (*group, open.zone.0));
        let due: Vec<u32> = all.filter(|(group, zone)| which(*group, *zone)).map(|(_, zone)| zone).collect();
        for zone in due {
            s.close(&self.zones, zone);
            s.forget_if_empty(&self.tenant, zone);
        }
    }

    /// What tells, in a zone itself, that it has tables, and of which group.
    fn header(&self, zone: ZoneId, life: u64, group: Group) -> ZoneHeader {
        let file = u64::from(group.level) << 32 | u64::from(group.part);
        ZoneHeader { kind: TABLES, file, name: TABLES_NAME.into(), ..self.tenant.header(zone, life) }
    }

    /// The group's zone is written up to here.
    pub fn advance(&self, group: Group, at: u64) {
        if let Some(open) = lock(&self.state).open.get_mut(&group) {
            open.at = at;
        }
    }

    /// This table does not come of what was written to the group's zone, and nothing more goes there.
    pub fn give_up(&self, table: u64, group: Group, zone: u32) {
        let mut s = lock(&self.state);
        if s.open.get(&group).is_some_and(|open| open.zone.0 == zone) {
            s.close(&self.zones, zone);
        }
        s.incoming.remove(&(zone, table));
        s.forget_if_empty(&self.tenant, zone);
    }

    /// All numbers that somebody reads at.
    pub fn reader_seqs(&self) -> Vec<u64> {
        lock(&self.readers).keys().copied().collect()
    }

    /// No reader needs what a change with this number or a smaller one supersedes.
    pub fn settled(&self) -> u64 {
        lock(&self.readers).keys().next().copied().unwrap_or(u64::MAX)
    }

    pub fn new_file(&self, info: TableInfo) -> Arc<TableFile> {
        TableFile::new(info, &self.zones, &self.cache, &self.options.order, None)
    }

    /// The error of a call that makes no sense, or cannot be done.
    pub fn refused(&self, code: Code, sentence: impl Into<Arc<str>>) -> Error {
        Error::refused(code, &self.tenant.volume().name(), sentence)
    }

    pub fn no_space(&self) -> Error {
        Error::new(&self.tenant.volume().name(), Fault::NoSpace)
    }
}

impl State {
    /// Keys may be long: only the notes themselves tell how long a snapshot is.
    fn count_snapshot(&mut self) {
        let (mut size, mut scratch) = (0, Vec::new());
        self.manifest.snapshot(&mut |notes| {
            scratch.clear();
            record(notes, &mut scratch);
            size += AROUND_RECORD + scratch.len() as u64;
        });
        self.snapshot = (size, size);
    }

    /// Nothing more goes to the zone.
    fn close(&mut self, zones: &RecordWriter, zone: u32) {
        self.open.retain(|_, open| open.zone.0 != zone);
        zones.close(zone);
    }

    fn forget_if_empty(&self, tenant: &Tenant, zone: u32) {
        let used = self.in_zone.get(&zone).is_some_and(|tables| !tables.is_empty());
        let open = self.open.values().any(|open| open.zone.0 == zone);
        if !used && !open && self.incoming.range((zone, 0)..=(zone, u64::MAX)).next().is_none() {
            tenant.forget(ZoneId(zone), self.seq);
        }
    }
}

impl Core {
    /// Changes in records before this one are in tables: its position, and the number of its first change.
    pub fn front(&self, (position, seq): (u64, u64)) -> Result<Note> {
        Ok(Note::Front { position, seq, frame: self.wal()?.frame_of(position) })
    }
}

impl ZoneNames for Core {
    fn name_zone(&self, zone: ZoneId, life: u64, position: u64) -> Result<()> {
        let seq = self.note(&[Note::WalZone(WalZone { zone: zone.0, life, position })]);
        self.commit(seq, Cause::Journal)
    }
}
