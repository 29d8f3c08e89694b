//! Salvage: the index again from nothing but the records, where no checkpoint is whole any more.
//!
//! Every zone of the store is read. A chunk is what its records say: those of its newest serial number, by their offsets. What is left
//! of the journal says which chunks were deleted and sealed; without it, chunks come back whose zones were not reset since, and all are
//! open. Bytes that no record has leave gaps, which are told.

use super::replay::{Rebuilt, found_zone};
use super::{FoundZone, OpenReport, OpenStep, Progress};
use crate::entry::{Entry, GroupEntry, LOST, RecordIndex, entries};
use crate::error::Result;
use crate::format::{BLOCK, Header, Kind, ZoneUse, zone_head};
use crate::id::{ChunkId, StreamType};
use crate::index::Chunk;
use crate::scan::scan;
use crate::zone::ZoneState;
use imbrex_device::{AlignedBuf, Cause, Written, ZoneId};
use imbrex_zones::Tenant;
use std::collections::{BTreeMap, BTreeSet};

/// A record that was found: offset in the chunk → where it stands.
type Records = BTreeMap<u32, (u32, RecordIndex)>;

/// Reads every zone that the tenant owns and that is no metazone.
pub(crate) fn salvage(
    tenant: &Tenant,
    metazones: &[u32],
    journal: &BTreeMap<u64, Vec<u8>>,
    report: &mut OpenReport,
    progress: Progress,
) -> Result<Rebuilt> {
    let volume = tenant.volume();
    let mut rebuilt = Rebuilt { changed: true, ..Rebuilt::default() };
    let mut chunks: BTreeMap<ChunkId, (u64, StreamType, Records)> = BTreeMap::new();
    let zones: Vec<ZoneId> = tenant.unadopted().into_iter().filter(|zone| !metazones.contains(&zone.0)).collect();
    let all = zones.len() as u64;
    for (done, zone) in zones.into_iter().enumerate() {
        progress(OpenStep::Salvage, done as u64, all);
        let Some(state) = volume.report_at_open().get(zone.0 as usize) else { continue };
        let to = match state.written() {
            Written::To(wp) => (wp / BLOCK as u64) as u32,
            Written::Untold => (state.capacity / BLOCK as u64) as u32,
            Written::Gone => {
                report.damage.push(format!("Zone {zone} is offline, and what stood there is lost."));
                continue;
            }
        };
        if to == 0 {
            continue;
        }
        let Some(found) = head(tenant, zone.0, to)? else {
            report.damage.push(format!("Zone {zone} has no head that can be read, and is given up."));
            continue;
        };
        let mut each = |header: &Header, _: &[u8]| {
            if let (Kind::Data, Some(stream)) = (header.kind, StreamType::new(header.stream)) {
                let chunk = chunks.entry(header.chunk).or_insert((header.serial, stream, Records::new()));
                if chunk.0 < header.serial {
                    *chunk = (header.serial, stream, Records::new());
                }
                if chunk.0 == header.serial {
                    // Of two copies, which cleaning leaves, any is as good; runs in one zone stay runs.
                    let record = RecordIndex { end: header.offset + header.data, at: header.at };
                    chunk.2.entry(header.offset).or_insert((zone.0, record));
                }
            }
            Ok(())
        };
        let scanned = scan(volume, zone.0, found.life, (0, to), Cause::Recovery, &mut each)?;
        report.scanned_zones += 1;
        report.scanned_bytes += scanned.bytes;
        if scanned.unreadable > 0 {
            report.damage.push(format!("{} blocks of zone {zone} cannot be read.", scanned.unreadable));
        }
        rebuilt.zones.insert(zone.0, FoundZone { tail: scanned.end, state: ZoneState::Closed, ..found });
    }
    let (deleted, sealed) = told(journal, &mut chunks);
    for (id, (serial, stream, records)) in chunks {
        if deleted.contains(&serial) {
            continue;
        }
        report.records += records.len() as u64;
        let mut chunk = put_together(Chunk::new(id, serial, stream), &records, report);
        chunk.sealed = sealed.get(&serial).is_some_and(|len| *len == chunk.len);
        rebuilt.chunks.insert(id, chunk);
    }
    Ok(rebuilt)
}

/// What a zone's first block says it is; where that cannot be read, the first record that can.
fn head(tenant: &Tenant, zone: u32, to: u32) -> Result<Option<FoundZone>> {
    let volume = tenant.volume();
    let mut block = AlignedBuf::zeroed(BLOCK);
    for at in 0..to.min(1024) {
        let address = volume.geometry().start(ZoneId(zone)) + u64::from(at) * BLOCK as u64;
        if volume.read(&mut block, address, Cause::Recovery.into()).is_err() {
            continue;
        }
        if at == 0 {
            match zone_head(&block) {
                Some((head, _)) if head.volume != volume.uuid() => return Ok(None),
                Some((head, life)) => return Ok(Some(found_zone(tenant, zone, life, head.usage))),
                None => {}
            }
        }
        if let Ok(header) = Header::decode_anywhere(&block)
            && header.at == at
            && header.kind == Kind::Data
        {
            let usage = ZoneUse::Data(StreamType::new(header.stream).unwrap_or(StreamType::DATA));
            return Ok(Some(found_zone(tenant, zone, header.life, usage)));
        }
    }
    Ok(None)
}

/// What is left of the journal: serial numbers that were deleted, and lengths of those that were sealed. Chunks without a byte
/// are made anew.
fn told(
    journal: &BTreeMap<u64, Vec<u8>>,
    chunks: &mut BTreeMap<ChunkId, (u64, StreamType, Records)>,
) -> (BTreeSet<u64>, BTreeMap<u64, u32>) {
    let (mut deleted, mut sealed) = (BTreeSet::new(), BTreeMap::new());
    for entry in journal.values().filter_map(|payload| entries(payload)).flatten() {
        match entry {
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
    for (offset, (zone, record)) in records {
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
