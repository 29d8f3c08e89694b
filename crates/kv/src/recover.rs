//! Opening a store: the metadata log, then the write-ahead log behind its front, and what a dead process left of that in memory.

use crate::apply::insert;
use crate::batch::{Change, Record};
use crate::core::cache::Cache;
use crate::core::file::TableFile;
use crate::core::ranges::{Range, Ranges};
use crate::core::view::{Part, Tables, View};
use crate::core::{Core, Parts};
use crate::manifest::{
    Flushed, MOST, MOST_NOTED, Manifest, Note, Places, Space, VERSION, WalFrame, WalZone, notes, other_version, record,
};
use crate::memtable::MemTable;
use crate::options::Options;
use crate::order::Order;
use crate::policy::{self, Gear, Policy, Ring, Sizes};
use crate::ranges::RangeTombstone;
use crate::records::{FoundRecord, Records, frames};
use crate::space::{Spaces, UNNAMED, known};
use crate::wal::{self, Frames, Wal, WalOptions};
use imbrex_device::{Cause, Code, Error, Result, Written, Zone, ZoneId, report_all};
use imbrex_zones::frame::{EachFrame, Frame};
use imbrex_zones::log::{Batch, MetaLog, Root};
use imbrex_zones::write::{Committer, RecordOptions, RecordWriter};
use imbrex_zones::{Budget, LeftSegment, Tenant, Volume};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The engine's name in a label.
pub(crate) const TENANT: &str = "kv";
/// Copies of the metadata.
const COPIES: u8 = 2;
/// Bytes of a snapshot of the metadata for each zone of the drive. A table takes a few hundred bytes, with long keys more, and a zone may have twenty slices of a flush;
/// of the policy `band` a table takes 4 KiB.
const NOTES: u64 = 8 << 10;
/// Zones that a store needs beside those of its metadata.
const OTHERS: u32 = 14;
/// Behind a part of the log that cannot be read, changes are numbered from a multiple of this on: no zone has so many. The part may be readable the next time, and then no
/// number is there twice.
pub(crate) const ANEW: u64 = 1 << 32;

/// Zones of the metadata, both copies together, on a drive of so many zones of so many bytes: a tenth of them at most, but two in each copy. Behind the snapshot that counts,
/// and what came since, the log keeps room for two more.
const fn log_zones(zones: u32, bytes: u64) -> u32 {
    let copies = COPIES as u64;
    let snapshot = (zones as u64 * NOTES).div_ceil(if bytes == 0 { 1 } else { bytes });
    let wanted = if snapshot > 1 { 1 + 3 * snapshot } else { 2 };
    let most = zones as u64 / 10 / copies;
    let of_copy = if wanted < most { wanted } else { most };
    (copies * if of_copy < 2 { 2 } else { of_copy }) as u32
}

/// What a store needs on a drive of so many zones of so many bytes. Beside the metadata's zones four are the log's. The bottom and upper tables have one each, and a
/// merge needs four. Two are for deletes on a full store, and not much goes into the last two. Of active zones two are the metadata's. The write-ahead log,
/// upper tables, the bottom and whoever is about to begin the next zone have one each: with fewer the log would wait for tables that wait for it.
pub(crate) const fn budget(zones: u32, bytes: u64) -> Budget {
    Budget { slots: 6, ..Budget::keeping(0, 0).at_least(log_zones(zones, bytes) + OTHERS) }
}

/// A memory that is full must become tables of a part of the drive: a 32nd is its most.
const MEMORY: u64 = 32;

/// The options, as far as the drive has room for them.
fn fitting(tenant: &Tenant, mut options: Options) -> Options {
    let volume = tenant.volume();
    let most = u64::from(volume.geometry().zones) * volume.least_capacity() / MEMORY;
    if options.memtable_bytes as u64 > most {
        let (wanted, sentence) =
            (options.memtable_bytes, "the drive is too small for so much in memory, so it has less");
        // Nobody asked for the usual size.
        if wanted > Options::default().memtable_bytes {
            tracing::warn!(wanted, taken = most, "{sentence}");
        } else {
            tracing::info!(wanted, taken = most, "{sentence}");
        }
        options.memtable_bytes = most as usize;
    }
    // No table is longer than a zone. How much room a zone must have for another table hangs on how long tables are.
    options.table_bytes = options.table_bytes.min(volume.least_capacity());
    // A merge gives zones back between its steps. A step of several zones would take as many before it gives back any, and on a full drive there are not so many.
    options.step_bytes = options.step_bytes.min(volume.least_capacity() / 2);
    // A write of the log goes into one zone, in whole blocks.
    let block = u64::from(volume.geometry().block.max(4096));
    options.segment_bytes =
        options.segment_bytes.min((volume.least_capacity() / 4 / block * block).max(block) as usize);
    options
}

/// The policy that the options name, or the store's own.
fn policy(tenant: &Tenant, options: &Options, stored: &str) -> Result<(&'static str, Box<dyn Policy>)> {
    let sizes = Sizes { memtable: options.memtable_bytes as u64, table: options.table_bytes, step: options.step_bytes };
    let refuse = |sentence: String| Err(Error::refused(Code::InvalidArgument, &tenant.volume().name(), sentence));
    let wanted = options.policy.as_deref().unwrap_or(if stored.is_empty() { policy::ALL[0].0 } else { stored });
    let Some((name, make)) = policy::ALL.iter().find(|(name, _)| *name == wanted) else {
        let names: Vec<_> = policy::ALL.iter().map(|(name, _)| *name).collect();
        return refuse(format!("{wanted:?} is no policy of compactions; there are {}", names.join(", ")));
    };
    if !stored.is_empty() && stored != wanted {
        return refuse(format!(
            "the store's tables are laid out by the policy {stored:?}; open it without another one"
        ));
    }
    if let Some(make) = &options.make_policy {
        return Ok((name, make(sizes)));
    }
    if *name == "ring" {
        return Ok((name, Box::new(Ring { bottom: options.bottom, ..Ring::new(sizes) })));
    }
    if *name == "gear" {
        let (active, k) = (options.gear_active, u64::from(options.gear_k.clamp(1, 10)));
        return Ok((name, Box::new(Gear { active, k, ..Gear::new(sizes) })));
    }
    Ok((name, make(sizes)))
}

/// Brings back what records say, as they are found.
struct Replay<'a> {
    core: &'a Core,
    records: Records,
    /// Number of the change that comes next.
    next: u64,
    /// Records that only memory has.
    in_memory: Vec<Vec<u8>>,
    /// What memory has does not follow what the drive has, of which nothing is damaged: the drive has lost power, and memory counts no more.
    apart: bool,
    /// Changes that were passed over for that.
    dropped: u64,
    /// What cannot be read may go on up to this position.
    unread: u64,
    /// Some of it could not be read so far.
    failed: bool,
    /// What the drive has, from the front on.
    frames: Frames,
    damage: Vec<String>,
}

impl<'a> Replay<'a> {
    /// From the log's front on: its position, and the number of the change there.
    fn new(core: &'a Core, (end, next): (u64, u64)) -> Replay<'a> {
        let (in_memory, damage) = Default::default();
        let (dropped, unread, apart, failed) = (0, 0, false, false);
        Replay {
            core,
            records: Records::new(core.salt(), end),
            next,
            in_memory,
            apart,
            dropped,
            unread,
            failed,
            frames: Frames::new(log_options(core)),
            damage,
        }
    }

    /// Bytes of the log that stand at `position`, on the drive or in the memory of a dead process.
    fn bytes(&mut self, position: u64, bytes: &[u8], memory: bool) {
        let mut records = std::mem::take(&mut self.records);
        records.bytes(position, bytes, memory, &mut |found| self.record(found));
        self.records = records;
    }

    /// Whether a store could have written it. Spaces that were dropped may have older records.
    fn makes_sense(&self, record: &Record<'_>) -> bool {
        let known = |manifest: &Manifest| record.changes().all(|change| manifest.spaces.contains_key(&change.space));
        let ranges = record.changes().filter(Change::is_range).count();
        self.core.look(known) && (ranges == 0 || self.core.view().ranges.iter().count() + ranges <= MOST_NOTED)
    }

    fn record(&mut self, found: &FoundRecord<'_>) {
        let FoundRecord { record, at, bytes, memory } = found;
        let (seq, end, at, memory) = (record.seq, record.seq.saturating_add(record.count()), *at, *memory);
        if end > MOST || !self.makes_sense(record) {
            self.damage.push(format!("a record of the write-ahead log at position {at} makes no sense"));
            return;
        }
        let anew = seq.is_multiple_of(ANEW);
        self.apart |= memory && seq > self.next && !anew && !self.failed && self.damage.is_empty();
        if memory && self.apart {
            self.dropped += record.count();
            return;
        }
        if seq > self.next && anew {
            self.damage.push(format!(
                "changes before number {seq} may be lost: an earlier opening could not read the write-ahead log there"
            ));
        } else if seq > self.next {
            let lost = seq - self.next;
            self.damage
                .push(format!("{lost} changes before number {seq} are lost: the write-ahead log cannot be read there"));
        }
        if end > self.next {
            // Once more would be once too often.
            let is_known = |key: &[u8], seq: u64| {
                let has = |flushed: &Flushed| flushed.has(self.core.order(), key, seq);
                self.core.look(|manifest| manifest.flushed.iter().any(has))
            };
            insert(self.core, record.changes(), (at, seq), is_known);
            self.next = end;
            if memory {
                self.in_memory.push(bytes.to_vec());
            }
        }
    }
}

fn refused(tenant: &Tenant, sentence: String) -> Error {
    Error::refused(Code::InvalidArgument, &tenant.volume().name(), sentence)
}

/// The orders of all spaces; `unnamed`: that of the unnamed one.
fn orders(manifest: &Manifest, unnamed: &Arc<dyn Order>) -> std::result::Result<Arc<Spaces>, String> {
    let spaces = Spaces::default();
    for (number, Space { name, order, dropped }) in &manifest.spaces {
        if !dropped {
            spaces.add(*number);
        }
        let known = if *number == UNNAMED { Some(unnamed.clone()) } else { known(order) };
        match known.filter(|known| known.name() == order) {
            Some(known) => spaces.set(*number, &known),
            None if *number == UNNAMED => {
                return Err(format!(
                    "the store's keys are in the order {order:?}, and it was opened with {:?}; open it with its own",
                    unnamed.name()
                ));
            }
            None => {
                return Err(format!(
                    "the keys of the space {name:?} are in the order {order:?}, which this program does not know; use one that does"
                ));
            }
        }
    }
    Ok(Arc::new(spaces))
}

/// What the metadata says at this moment, while somebody may write it, and where it stands; `None`: there is none. Records that make no sense are passed over.
pub(crate) fn look(tenant: &Tenant, report: &[Zone]) -> Result<Option<(Root, Manifest)>> {
    let Some(root) = Root::of(tenant)? else { return Ok(None) };
    let (replay, mut manifest) = (MetaLog::look(tenant, &root, report)?, Manifest::default());
    let mut apply = |bytes: &[u8]| notes(bytes).into_iter().flatten().for_each(|note| manifest.apply(note));
    replay.pieces.iter().for_each(|piece| apply(piece));
    replay.records(&mut |_, record| apply(record));
    Ok(Some((root, manifest)))
}

/// What the metadata log holds, or a new one.
fn manifest(tenant: &Tenant, options: &Options) -> Result<(MetaLog, Manifest, Arc<Spaces>, Vec<String>)> {
    let volume = tenant.volume();
    let clock = Arc::new(|| 0);
    let mut manifest = Manifest::default();
    let Some((mut log, replay)) = MetaLog::open(tenant, clock.clone(), None, &mut |_, _| {})? else {
        tenant.adoption_done();
        tenant.recovered()?;
        manifest.apply(Note::Space(
            UNNAMED,
            Space { name: String::new(), order: options.order.name().into(), dropped: false },
        ));
        manifest.apply(Note::Parts(vec![(0, None)]));
        let name = policy(tenant, options, "")?.0;
        manifest.apply(Note::Policy(name.into()));
        // Of a drive that was formatted for less, less is taken.
        let zones = log_zones(volume.geometry().zones, volume.least_capacity());
        let most = tenant.budget().least.saturating_sub(OTHERS) / u32::from(COPIES) * u32::from(COPIES);
        let mut log = MetaLog::create(tenant, COPIES, zones.min(most).max(log_zones(0, 0)), Vec::new(), clock)?;
        let mut all = Batch::default();
        manifest.snapshot(&mut |notes| all.push(|out| record(notes, out)));
        (0..COPIES).try_for_each(|_| log.write_snapshot(&all))?;
        let spaces = orders(&manifest, &options.order).map_err(|sentence| refused(tenant, sentence))?;
        return Ok((log, manifest, spaces, Vec::new()));
    };
    if replay.snapshot.is_none() {
        return Err(Error::unusable(
            &volume.name(),
            "has lost both copies of the key-value store's metadata; `imbrex kv salvage` copies what is left of its pairs",
        ));
    }
    let (mut damage, mut other) = (replay.skipped.clone(), None);
    let mut apply = |bytes: &[u8]| match notes(bytes) {
        None if other_version(bytes).is_some() => other = other_version(bytes),
        Some(notes) => notes.into_iter().for_each(|note| manifest.apply(note)),
        None => damage.push("a record of the key-value store's metadata makes no sense".into()),
    };
    replay.pieces.iter().for_each(|piece| apply(piece));
    replay.records(&mut |_, record| apply(record));
    if let Some(version) = other {
        let sentence = format!(
            "holds a key-value store of another version of Imbrex, whose metadata is of version {version} and not {VERSION}; use that one"
        );
        return Err(Error::unusable(&volume.name(), sentence.as_str()));
    }
    let spaces = orders(&manifest, &options.order).map_err(|sentence| refused(tenant, sentence))?;
    let places = Places {
        zones: volume.geometry().zones,
        front: u64::from(volume.geometry().block.max(4096)),
        capacity: &|zone| volume.capacity(ZoneId(zone)),
    };
    if let Err(sentence) = manifest.check(spaces.as_ref(), &places) {
        let sentence =
            format!("has key-value metadata that makes no sense: {sentence}; `imbrex kv salvage` copies its pairs");
        return Err(Error::unusable(&volume.name(), sentence.as_str()));
    }
    manifest.settle(spaces.as_ref());
    log.adopt()?;
    let zones: BTreeSet<u32> =
        manifest.tables.values().map(|table| table.zone).chain(manifest.wal.iter().map(|wal| wal.zone)).collect();
    for zone in zones {
        tenant.adopt(ZoneId(zone))?;
    }
    tenant.adoption_done();
    log.finish_all_left();
    log.forget_unread();
    Ok((log, manifest, spaces, damage))
}

/// Hands the frames of a zone of the log to `each`, from that of the log's front on, where it is in this zone. `failed` becomes true where a read fails. Returns where
/// the zone is damaged, in bytes from its start; `None`: it is gone.
///
/// # Errors
/// Those of the drive that are not about single blocks.
pub(crate) fn read_log_zone(
    volume: &Volume,
    (zone, found): (&Zone, &WalZone),
    (front, front_frame): (u64, Option<WalFrame>),
    failed: &Cell<bool>,
    each: &mut EachFrame<'_>,
) -> Result<Option<Vec<u64>>> {
    let (start, block) = (volume.geometry().start(zone.id), volume.geometry().block);
    let mut read =
        |at: u64, buf: &mut [u8]| volume.read(buf, start + at, Cause::Wal.into()).inspect_err(|_| failed.set(true));
    let is_of = |frame: &WalFrame| {
        (frame.zone, frame.life) == (found.zone, found.life) && frame.at.is_multiple_of(u64::from(block))
    };
    let from = front_frame.filter(is_of).map_or(0, |frame| frame.at);
    frames((zone, found.life, block), (front, from), &mut read, each)
}

/// Hands the log's bytes to the replay: those that the drive has, from the frame of the `front` on, and those `left` in memory, where they come in the order of
/// positions.
fn read_log(
    tenant: &Tenant,
    (wal, front_frame): (&[WalZone], Option<WalFrame>),
    left: Vec<LeftSegment>,
    replay: &mut Replay<'_>,
) -> Result<()> {
    let volume = tenant.volume();
    let report = report_all(volume.device().as_ref())?;
    let (mut left, front) = (left.into_iter().peekable(), replay.records.end());
    for found in wal {
        let Some(zone) = report.get(found.zone as usize) else { continue };
        let failed = Cell::new(false);
        let mut each = |frame: &Frame, payload: &[u8]| {
            replay.failed |= failed.get();
            while let Some(segment) = left.next_if(|segment| segment.key.logical < frame.logical) {
                replay.bytes(segment.key.logical, &segment.bytes, true);
            }
            replay.bytes(frame.logical, payload, false);
            replay.frames.add(frame.logical, WalFrame { zone: found.zone, life: found.life, at: frame.at });
        };
        let damaged = read_log_zone(volume, (zone, found), (front, front_frame), &failed, &mut each)?;
        if damaged.as_ref().is_none_or(|damaged| !damaged.is_empty()) {
            replay.unread = replay.unread.max(found.position.saturating_add(zone.capacity));
        }
        replay.damage.extend(wal::damage(found.zone, damaged));
    }
    left.for_each(|segment| replay.bytes(segment.key.logical, &segment.bytes, true));
    Ok(())
}

/// The tables of zones that are not written as far as they were, with what a reader hears of each. Says so of each zone.
fn lost_tables(tenant: &Tenant, manifest: &Manifest, damage: &mut Vec<String>) -> Result<BTreeMap<u64, Error>> {
    let volume = tenant.volume();
    let report = report_all(volume.device().as_ref())?;
    let (mut lost, mut zones) = (BTreeMap::new(), BTreeMap::new());
    for table in manifest.tables.values() {
        let Some(zone) = report.get(table.zone as usize) else { continue };
        let why = match zone.written() {
            Written::To(wp) if wp < table.at + table.len => {
                format!("zone {} is written up to byte {wp} only", table.zone)
            }
            Written::Gone => format!("zone {} is offline", table.zone),
            _ => continue,
        };
        let next = "restore its pairs from a copy, or take what is left with `imbrex kv salvage`";
        let sentence = format!("table {} is lost: {why}; {next}", table.id);
        lost.insert(table.id, Error::refused(Code::Corruption, &volume.name(), sentence));
        *zones.entry(why).or_insert(0) += 1;
    }
    let sentence = |(why, tables): (String, u32)| match tables {
        1 => format!("{why}, and a table in it is lost"),
        tables => format!("{why}, and {tables} tables in it are lost"),
    };
    damage.extend(zones.into_iter().map(sentence));
    Ok(lost)
}

/// Opens the store of a tenant, and finds its policy; makes a store, where there is none.
pub(crate) fn open(tenant: &Tenant, options: Options) -> Result<(Arc<Core>, Box<dyn Policy>)> {
    tenant.begin()?;
    let mut options = fitting(tenant, options);
    let (log, manifest, spaces, mut damage) = manifest(tenant, &options)?;
    let order: Arc<dyn Order> = spaces.clone();
    options.order = order.clone();
    let block = tenant.volume().geometry().block.max(4096) as usize;
    let records = RecordOptions { gather: 256 << 10, block, zones_at_once: Some(1) };
    let zones = Arc::new(RecordWriter::new(tenant, records));
    let policy = policy(tenant, &options, &manifest.policy)?.1;
    let cache = Arc::new(Cache::new(options.cache_bytes, options.table.block));
    let mut lost = lost_tables(tenant, &manifest, &mut damage)?;
    let files = manifest
        .tables
        .values()
        .map(|info| TableFile::new(info.clone(), &zones, &cache, &order, lost.remove(&info.id)));
    let tables = Arc::new(Tables::of(order.as_ref(), files));
    let part = |(id, from): &(u32, Option<policy::Key>)| Part {
        id: *id,
        from: from.clone(),
        memory: Arc::new(MemTable::new(&order)),
    };
    let parts = manifest.parts.iter().map(part).collect();
    let next = manifest.next;
    // What is older may have something of them.
    let noted = |deleted: &RangeTombstone| Range { deleted: deleted.clone(), record: (0, 0), noted: Some(next) };
    let ranges = Ranges::of(order.as_ref(), manifest.ranges.values().map(noted).collect()).into();
    let of_tables = manifest.tables.values().map(|table| table.seqs.1).max().unwrap_or(0);
    // What the log brings back may be older: pairs may have been ingested since, or the log has a hole.
    let view = View { parts, frozen: Vec::new(), tables, ranges, ingested: of_tables };
    let (front, next) = manifest.front;
    let of_ranges = manifest.ranges.keys().next_back().copied().unwrap_or(0);
    let of_checkpoints = manifest.checkpoints.values().max().copied().unwrap_or(0);
    let (wal, front_frame) = (manifest.wal.clone(), manifest.front_frame);
    let commits = Committer::new(&zones, log);
    let core = Core::new(Parts {
        tenant: tenant.clone(),
        zones,
        cache,
        commits,
        manifest,
        view,
        // No new change is of the time of a checkpoint, even if the log has lost some.
        visible: next.saturating_sub(1).max(of_tables).max(of_ranges).max(of_checkpoints),
        damage,
        options,
        spaces,
        histogram: policy.histogram(),
    });
    recover(&core, (&wal, front_frame), (front, next.max(1)))?;
    if let Err(error) = core.mend_metadata(COPIES) {
        tenant.volume().check_poison()?;
        tracing::warn!(%error, "the damaged copy of the key-value store's metadata could not be written anew");
    }
    Ok((core, policy))
}

fn log_options(core: &Core) -> WalOptions {
    WalOptions { segment_bytes: core.options.segment_bytes }
}

/// Brings back what was written to the log and is in no table.
fn recover(core: &Arc<Core>, (before, front_frame): (&[WalZone], Option<WalFrame>), front: (u64, u64)) -> Result<()> {
    let tenant = &core.tenant;
    let mut replay = Replay::new(core, front);
    let mut left = tenant.left_behind();
    left.retain(|segment| segment.key.file == wal::FILE);
    left.sort_by_key(|segment| segment.key.logical);
    for segment in left.iter().filter(|segment| segment.lost > 0) {
        let (lost, position) = (segment.lost, segment.key.logical);
        let sentence = format!("{lost} bytes at position {position} of the write-ahead log were damaged in memory");
        replay.damage.push(sentence);
    }
    // What is read from here on no loss of power takes any more.
    tenant.volume().sync(Cause::Recovery.into())?;
    read_log(tenant, (before, front_frame), left, &mut replay)?;
    let Replay { records, frames, in_memory, mut damage, dropped, unread, .. } = replay;
    if dropped > 0 {
        damage.push(format!(
            "{dropped} changes that were never synced are lost: the drive has lost power, or was restored from a copy"
        ));
    }
    core.add_damage(damage);
    // Behind a gap: what comes now is not taken for the rest of a record that was cut. And behind every zone that was named: one in which a power loss left
    // nothing is named for a later position than the log has, and the zone that is written now must stay the last.
    let end = before.iter().map(|zone| zone.position).fold(records.end().max(unread), u64::max);
    if unread > 0 {
        let last = core.visible.load(Ordering::Acquire);
        core.visible.store((last / ANEW + 1) * ANEW - 1, Ordering::Release);
    }
    let names: Weak<Core> = Arc::downgrade(core);
    core.set_wal(Wal::new(tenant, log_options(core), names, (end + 1, frames)));
    let wal = core.wal()?;
    for record in &in_memory {
        wal.append(true, &[record])?;
    }
    wal.sync()?;
    // What a dead process had in memory is given up with the next call, so the drive must have all of it.
    tenant.volume().check_power()?;
    tenant.recovered()?;
    wal.recovered();
    // Nobody goes on in zones of an earlier opening. Of one that is finished the write pointer does not tell any more where its bytes end; tables say so, and
    // the log is looked at.
    let tables = core.look(|manifest| manifest.tables.values().map(|table| table.zone).collect::<BTreeSet<_>>());
    tables.into_iter().chain(before.iter().map(|zone| zone.zone)).for_each(|zone| tenant.finish_unused(ZoneId(zone)));
    Ok(())
}
