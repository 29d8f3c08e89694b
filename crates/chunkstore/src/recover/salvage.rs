//! Salvage: the index again from nothing but the records, where no checkpoint is whole any more.
//!
//! Every zone of the store is read. A chunk is what its records say: those of its newest serial number, by their offsets. What is left
//! of the journal says which chunks were deleted and sealed; without it, chunks come back whose zones were not reset since, and all are
//! open. Bytes that no record has leave gaps, which are told.

use super::holes::Hole;
use super::losses::tell_unread;
use super::relabel::records_near;
use super::replay::{Rebuilt, found_zone};
use super::{FoundZone, OpenStep, Progress, is_ours};
use crate::core::DerivedLimits;
use crate::core::report::OpenReport;
use crate::error::Result;
use crate::format::entry::names::NameEntry;
use crate::format::entry::notes::Mark;
use crate::format::entry::{Entry, GroupEntry, LOST, RecordIndex};
use crate::format::id::{ChunkId, StreamType};
use crate::format::{BLOCK, Header, ZoneUse};
use crate::index::Chunk;
use crate::recover::scan::scan;
use crate::zone::ZoneState;
use imbrex_device::{Cause, Written, Zone, ZoneId, ZoneState as DriveState};
use imbrex_zones::log::format::LOG_KIND;
use imbrex_zones::log::{Replay, Root};
use imbrex_zones::shell::salvage::{Front, front};
use imbrex_zones::{Tenant, ZoneHeader};
use std::collections::{BTreeMap, BTreeSet};

/// A record that was found.
#[derive(Clone, Copy)]
struct Copy {
    /// The number of the append, and whether all bytes of the record are what was written.
    rank: (u64, bool),
    zone: u32,
    record: RecordIndex,
}

/// By offset in the chunk.
type Records = BTreeMap<u32, Copy>;

/// Of two records for the same place in the chunk the newer one counts: what stood behind a gap after a power loss had never been
/// acknowledged, and other bytes came after it. Of two copies, which cleaning leaves, one that is whole counts; else any is as good, and runs in
/// one zone stay runs.
fn keep(records: &mut Records, zone: u32, header: &Header, whole: bool) {
    let record = RecordIndex { end: header.offset + header.data, at: header.at };
    let copy = Copy { rank: (header.sequence, whole), zone, record };
    let known = records.entry(header.offset).or_insert(copy);
    if known.rank < copy.rank {
        *known = copy;
    }
}

/// Reads every zone that the tenant owns and that is no metazone of the root. `names`: pieces of checkpoints that have some, whole checkpoints or not.
pub(crate) fn salvage(
    tenant: &Tenant,
    limits: &DerivedLimits,
    root: &Root,
    journal: &[Entry],
    names: &[Vec<u8>],
    report: &mut OpenReport,
    progress: Progress,
) -> Result<Rebuilt> {
    let volume = tenant.volume();
    let mut rebuilt = Rebuilt { changed: true, ..Rebuilt::default() };
    rebuilt.holes.shared = !limits.separate;
    let mut chunks: BTreeMap<ChunkId, (u64, StreamType, Records)> = BTreeMap::new();
    let mut zones: Vec<ZoneId> = tenant.unadopted().into_iter().filter(|zone| !root.zones.contains(&zone.0)).collect();
    if root.unfinished {
        // Nobody can tell whose they were, but for those of labels and of conventional space.
        let conventional = |zone: &&Zone| zone.state == DriveState::Conventional;
        let first = volume.report_at_open().iter().rposition(|zone| conventional(&zone)).map_or(0, |last| last + 1);
        let gone = volume.report_at_open().iter().skip(first).filter(|zone| zone.written() == Written::Gone);
        let (labels, root) = (volume.label_zones(), &root.zones);
        zones.extend(gone.map(|zone| zone.id).filter(|id| !labels.contains(id) && !root.contains(&id.0)));
        zones.sort_unstable();
        zones.dedup();
    }
    let all = zones.len() as u64;
    let mut newest = 0;
    for (done, zone) in zones.into_iter().enumerate() {
        progress(OpenStep::Salvage, done as u64, all);
        let Some(state) = volume.report_at_open().get(zone.0 as usize) else { continue };
        let to = match state.written() {
            Written::To(wp) => (wp / BLOCK as u64) as u32,
            Written::Untold => (state.capacity / BLOCK as u64) as u32,
            Written::Gone => {
                report.damage.push(format!("Zone {zone} is offline, and what stood there is lost."));
                rebuilt.holes.push(Hole { zone: zone.0, stream: None, blocks: None, after: 0, before: u64::MAX });
                continue;
            }
        };
        if to == 0 {
            continue;
        }
        let Some(found) = head(tenant, state) else {
            report.damage.push(format!("Zone {zone} has no head that can be read, and is given up."));
            continue;
        };
        let mut put = |header: &Header, whole: bool| {
            if let Some(stream) = StreamType::new(header.stream) {
                newest = newest.max(header.sequence).max(header.serial);
                let chunk = chunks.entry(header.chunk).or_insert((header.serial, stream, Records::new()));
                if chunk.0 < header.serial {
                    *chunk = (header.serial, stream, Records::new());
                }
                if chunk.0 == header.serial {
                    keep(&mut chunk.2, zone.0, header, whole);
                }
            }
        };
        let mut each = |header: &Header, _: &[u8]| {
            put(header, true);
            Ok(())
        };
        let scanned = scan(volume, zone.0, found.life, (0, to), Cause::Recovery, &mut each)?;
        scanned.damaged.iter().for_each(|header| put(header, false));
        report.scanned_zones += 1;
        report.scanned_bytes += scanned.bytes;
        tell_unread(zone.0, &scanned, report);
        for hole in scanned.holes.iter().filter(|hole| hole.to > 1) {
            if let Some(of) = found.hole(zone.0, Some(hole.to - hole.from.max(1))) {
                rebuilt.holes.push(Hole { after: hole.after, before: hole.before, ..of });
            }
        }
        let unread = scanned.holes.first().map_or(0, |hole| hole.from.max(1));
        rebuilt.zones.insert(zone.0, FoundZone { tail: scanned.end, state: ZoneState::Closed, unread, ..found });
    }
    rebuilt.newest = newest;
    let (deleted, sealed) = told(journal, &mut chunks);
    rebuilt.salvage_names(names, journal);
    for (id, (serial, stream, records)) in chunks {
        if deleted.contains(&serial) {
            continue;
        }
        rebuilt.salvage_chunk(Chunk::new(id, serial, stream), &records, sealed.get(&serial).copied(), report);
    }
    rebuilt.end_chunks(report);
    rebuilt.know_referred(tenant);
    rebuilt.check_names(report);
    Ok(rebuilt)
}

impl Rebuilt {
    /// A chunk of these records, which was sealed with so many bytes.
    fn salvage_chunk(&mut self, chunk: Chunk, records: &Records, sealed: Option<u32>, report: &mut OpenReport) {
        let (id, serial) = (chunk.id, chunk.serial);
        report.records += records.len() as u64;
        let mut chunk = put_together(chunk, records, report);
        if let Some(len) = sealed {
            self.seals.insert(id, len);
            // What is missing may have been lost before, and no hole be left.
            let last = chunk.groups().last().map(|group| group.zone).filter(|_| chunk.len < len);
            if let Some(zone) = last {
                report.damage.push(format!("Chunk {id} has lost its bytes from {} to {len}.", chunk.len));
                chunk.lose(zone, len);
            }
        }
        for (offset, Copy { zone, record, .. }) in records.iter().filter(|(_, copy)| !copy.rank.1) {
            let (offset, len) = (*offset, record.end - offset);
            report
                .damage
                .push(format!("Chunk {id} has lost its bytes from {offset} to {}, or some of them.", record.end));
            self.scrub.marks.push(Mark { id, serial, offset, len, zone: *zone, lost: true });
        }
        let newest = records.last_key_value().map(|(offset, copy)| (*offset, copy.rank.0));
        self.applied.insert(id, newest.into_iter().collect());
        self.chunks.insert(id, chunk);
    }
}

/// A zone of this volume that holds records, as its beginning says.
fn head(tenant: &Tenant, zone: &Zone) -> Option<FoundZone> {
    let volume = tenant.volume();
    let device = volume.device().as_ref();
    let (life, usage) = match front(device, zone) {
        Front::Header(header) if is_ours(tenant, &header) => (header.life, ZoneUse::of_kind(header.kind)?),
        Front::Unknown => records_near(device, zone).map(|(life, stream)| (life, ZoneUse::Data(stream)))?,
        _ => return None,
    };
    Some(found_zone(tenant, zone.id.0, life, usage))
}

/// After the label was made anew: the index as the metazones tell it, if they are whole and no zone of the drive speaks of anything
/// that they do not know of. A metazone whose head is lost, too, is none that the new label knows of, and what was in it would not
/// be missed; but its zone is written, and nobody can tell what it is.
pub(crate) fn by_metazones(
    tenant: &Tenant,
    limits: &DerivedLimits,
    root: &Root,
    found: &Replay,
    report: &mut OpenReport,
    progress: Progress,
) -> Result<Option<Rebuilt>> {
    if !found.whole || found.snapshot.is_none() {
        return Ok(None);
    }
    let mut told = OpenReport { checkpoint: report.checkpoint, ..OpenReport::default() };
    let rebuilt = Rebuilt::new(tenant, limits, &root.zones, found, &mut told, progress)?;
    let newest = newest_number(found, &entries_of(found), &rebuilt);
    let volume = tenant.volume();
    let label = volume.label_zones();
    let sequential = volume.report_at_open().iter().filter(|zone| zone.state != DriveState::Conventional);
    let is_known = |zone: &Zone| {
        let known = rebuilt.zones.get(&zone.id.0);
        match front(volume.device().as_ref(), zone) {
            Front::Empty => true,
            Front::Header(header) if !is_ours(tenant, &header) => true,
            Front::Header(header) if header.kind == LOG_KIND => root.zones.contains(&zone.id.0),
            // One that was given back, and not reset yet, has nothing of use; it was taken before something that is known of.
            Front::Header(ZoneHeader { life, .. }) => life < newest || known.is_some_and(|known| known.life == life),
            Front::Unknown | Front::Gone => known.is_some(),
        }
    };
    let whole = !rebuilt.distrust && told.damage.is_empty();
    if !whole || !sequential.filter(|zone| !label.contains(&zone.id)).all(is_known) {
        return Ok(None);
    }
    *report = OpenReport { damage: std::mem::take(&mut report.damage), relabelled: report.relabelled, ..told };
    Ok(Some(rebuilt))
}

/// All entries of the journal that are left.
pub(crate) fn entries_of(found: &Replay) -> Vec<Entry> {
    let mut entries = Vec::new();
    found.all_records(&mut |_, record| entries.extend(Entry::decode(record)));
    entries
}

/// The highest number that anything of the store has, from which the mounts before this one are known.
pub(crate) fn newest_number(found: &Replay, journal: &[Entry], rebuilt: &Rebuilt) -> u64 {
    let zones = rebuilt.zones.values().map(|zone| zone.life);
    let chunks = rebuilt.chunks.values().map(|chunk| chunk.serial);
    let journal = journal.iter().map(|entry| *match entry {
        Entry::Create { serial, .. }
        | Entry::Seal { serial, .. }
        | Entry::Delete { serial, .. }
        | Entry::Moved { serial, .. }
        | Entry::Told { serial, .. } => serial,
        Entry::ZoneTaken { life, .. } | Entry::ZoneClosed { life, .. } | Entry::ZoneTold { life, .. } => life,
        Entry::Lost(mark) => &mark.serial,
        Entry::Named(NameEntry { number, .. }) | Entry::Unnamed { number, .. } => number,
    });
    let names = rebuilt.names.newest();
    let others = [rebuilt.newest, names, found.newest];
    zones.chain(chunks).chain(journal).chain(others).max().unwrap_or(0)
}

/// What is left of the journal: serial numbers that were deleted, and lengths of those that were sealed. Chunks without a byte
/// are made anew.
fn told(
    journal: &[Entry],
    chunks: &mut BTreeMap<ChunkId, (u64, StreamType, Records)>,
) -> (BTreeSet<u64>, BTreeMap<u64, u32>) {
    let (mut deleted, mut sealed) = (BTreeSet::new(), BTreeMap::new());
    for entry in journal {
        match *entry {
            Entry::Create { id, serial, stream } => {
                let chunk = chunks.entry(id).or_insert((serial, stream, Records::new()));
                if chunk.0 < serial {
                    *chunk = (serial, stream, Records::new());
                }
            }
            Entry::Delete { serial, .. } => drop(deleted.insert(serial)),
            Entry::Seal { serial, len, .. } => drop(sealed.insert(serial, len)),
            _ => {}
        }
    }
    (deleted, sealed)
}

fn put_together(chunk: Chunk, records: &Records, report: &mut OpenReport) -> Chunk {
    let mut groups: Vec<GroupEntry> = Vec::new();
    let mut end = 0;
    for (offset, Copy { zone, record, .. }) in records {
        if *offset < end {
            // Another one has these bytes.
            continue;
        }
        let mut add = |zone: u32, start: u32, record: RecordIndex| match groups.last_mut().filter(|g| g.zone == zone) {
            Some(group) => group.records.push(record),
            None => groups.push(GroupEntry { zone, start, records: vec![record] }),
        };
        if *offset > end {
            report.damage.push(format!("Chunk {} has lost its bytes from {end} to {offset}.", chunk.id));
            add(*zone, end, RecordIndex { end: *offset, at: LOST });
        }
        add(*zone, *offset, *record);
        end = record.end;
    }
    chunk.with_groups(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a power loss left behind a gap is older than what was appended after it.
    #[test]
    fn the_newer_of_two_records_for_one_place_counts() {
        let found = [(5, 300, 100, 4), (5, 100, 100, 5), (6, 100, 100, 9), (6, 0, 100, 3), (7, 100, 100, 9)];
        let mut records = Records::new();
        for (zone, offset, data, sequence) in found {
            let of = Header::of_append(sequence);
            keep(&mut records, zone, &Header { offset, data, at: zone * 10, ..of }, true);
        }
        let chunk = Chunk::new(ChunkId::of_number(1), 1, StreamType::DATA);
        let chunk = put_together(chunk, &records, &mut OpenReport::default());
        let places: Vec<_> = chunk.groups().iter().map(|group| (group.zone, group.start, group.end())).collect();
        assert_eq!(places, [(6, 0, 200), (5, 200, 400)]);
        // Of copies of one number the whole one counts, whichever is found first.
        for order in [[false, true], [true, false]] {
            let mut records = Records::new();
            for (zone, whole) in [5, 6].into_iter().zip(order) {
                let of = Header::of_append(7);
                keep(&mut records, zone, &Header { data: 100, ..of }, whole);
            }
            assert_eq!((records[&0].rank.1, records[&0].zone), (true, if order[0] { 5 } else { 6 }));
        }
    }
}
