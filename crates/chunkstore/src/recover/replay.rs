//! Steps 2 to 4: the checkpoint's parts, the journal behind it, and the records in zones that were open since.

use super::{FoundZone, OpenReport, OpenStep, Progress, meta::FoundMeta, no_checkpoint, takes_writes};
use crate::entry::{Entry, GroupEntry, LOST, Part, RecordIndex, entries};
use crate::error::Result;
use crate::format::{BLOCK, Header, Kind, MOVED, ZoneUse, data_blocks};
use crate::id::{ChunkId, StreamType};
use crate::index::Chunk;
use crate::names::Names;
use crate::scan::scan;
use crate::zone::ZoneState;
use imbrex_device::words::counted;
use imbrex_device::{Cause, Written};
use imbrex_zones::Tenant;
use std::collections::BTreeMap;

/// The index, rebuilt.
#[derive(Default)]
pub(crate) struct Rebuilt {
    pub(crate) chunks: BTreeMap<ChunkId, Chunk>,
    pub(crate) zones: BTreeMap<u32, FoundZone>,
    /// Something is other than the checkpoint says.
    pub(crate) changed: bool,
    /// The journal has gaps.
    pub(super) distrust: bool,
    /// How far the scrub was.
    pub(crate) scrub: crate::entry::notes::ScrubEntry,
    /// Of a salvage: the highest number that a record has.
    pub(super) newest: u64,
    /// Seals, and the lengths that chunks had then.
    pub(super) seals: BTreeMap<ChunkId, u32>,
    pub(crate) names: Names,
}

/// A data record that was found in a zone.
struct FoundRecord {
    zone: u32,
    header: Header,
}

impl Rebuilt {
    pub(crate) fn new(
        tenant: &Tenant,
        found: &FoundMeta,
        report: &mut OpenReport,
        progress: Progress,
    ) -> Result<Rebuilt> {
        let mut rebuilt = Rebuilt::default();
        for payload in &found.parts {
            rebuilt.load(tenant, payload, report);
        }
        let start = found.start.ok_or_else(|| no_checkpoint(tenant.volume()))?;
        let mut expected = start.journal + 1;
        // Where some of it is lost, what it told of records may have been in that: then the zones tell all that they know.
        let numbers = found.journal.range(expected..).map(|(number, _)| *number);
        rebuilt.distrust = !numbers.eq(expected..=found.journal.keys().next_back().copied().unwrap_or(0))
            || found.journal.range(expected..).any(|(_, payload)| entries(payload).is_none());
        for (number, payload) in found.journal.range(expected..) {
            if *number != expected {
                let lost = number - expected;
                report.damage.push(format!("{lost} records of the journal are lost in both copies."));
            }
            expected = number + 1;
            report.journal_records += 1;
            match entries(payload) {
                Some(entries) => entries.into_iter().for_each(|entry| rebuilt.replay(tenant, entry)),
                None => {
                    report.damage.push(format!("Record {number} of the journal makes no sense and is passed over."))
                }
            }
        }
        rebuilt.scan(tenant, report, progress)?;
        rebuilt.tell_lost_ends(tenant, report);
        for (id, len) in std::mem::take(&mut rebuilt.seals) {
            // What was not durable had not been acknowledged, and so had not the seal.
            if let Some(chunk) = rebuilt.chunks.get_mut(&id).filter(|chunk| chunk.len == len) {
                chunk.sealed = true;
                chunk.shrink();
            }
        }
        rebuilt.check_names(report);
        Ok(rebuilt)
    }

    fn load(&mut self, tenant: &Tenant, payload: &[u8], report: &mut OpenReport) {
        match Part::decode(payload) {
            Some(Part::Zones(zones)) => {
                for zone in zones {
                    let mut found = found_zone(tenant, zone.zone, zone.life, zone.usage);
                    found.state = zone.state;
                    found.tail = zone.tail.min(found.capacity);
                    found.finished = !zone.state.is_open() && found.finished;
                    found.scan = zone.state.is_open().then_some(found.tail);
                    let report = tenant.volume().report_at_open().get(zone.zone as usize);
                    if zone.state == ZoneState::Garbage && report.is_some_and(|z| z.wp == Some(0)) {
                        // It was reset since.
                        continue;
                    }
                    self.zones.insert(zone.zone, found);
                }
            }
            Some(Part::Chunks(chunks)) => {
                for entry in chunks {
                    // One that was deleted while the checkpoint was written may have been made anew, further on.
                    if self.chunks.get(&entry.id).is_some_and(|other| other.serial > entry.serial) {
                        continue;
                    }
                    let mut chunk = Chunk::new(entry.id, entry.serial, entry.stream).with_groups(entry.groups);
                    chunk.sealed = entry.sealed;
                    self.chunks.insert(entry.id, chunk);
                }
            }
            Some(Part::Scrub(scrub)) => self.scrub = scrub,
            // Known before all else.
            Some(Part::Streams(_)) => {}
            Some(Part::Names(names)) => names.into_iter().for_each(|entry| self.names.apply(entry)),
            None => report.damage.push("A part of the checkpoint makes no sense and is passed over.".into()),
        }
    }

    /// The chunk of this name, if it is the one of this serial number.
    fn same(&mut self, id: ChunkId, serial: u64) -> Option<&mut Chunk> {
        self.chunks.get_mut(&id).filter(|chunk| chunk.serial == serial)
    }

    /// An entry that the parts may know already, or more than that.
    fn replay(&mut self, tenant: &Tenant, entry: Entry) {
        match entry {
            Entry::Create { id, serial, stream } => {
                if self.chunks.get(&id).is_none_or(|other| other.serial < serial) {
                    self.chunks.insert(id, Chunk::new(id, serial, stream));
                    self.seals.remove(&id);
                }
            }
            Entry::Seal { id, serial, len } => {
                if self.same(id, serial).is_some() {
                    self.seals.insert(id, len);
                }
            }
            Entry::Delete { id, serial } => {
                self.names.forget(id, serial);
                if self.same(id, serial).is_some() {
                    self.chunks.remove(&id);
                    self.seals.remove(&id);
                }
            }
            Entry::ZoneTaken { zone, life, usage } => {
                if self.zones.get(&zone).is_none_or(|found| found.life < life) {
                    let mut found = found_zone(tenant, zone, life, usage);
                    found.scan = Some(0);
                    self.zones.insert(zone, found);
                }
            }
            Entry::ZoneClosed { zone, life, tail } => {
                if let Some(found) = self.zones.get_mut(&zone).filter(|found| found.life == life) {
                    if found.state.is_open() {
                        found.state = ZoneState::Closed;
                    }
                    found.tail = tail.min(found.capacity);
                }
            }
            Entry::Moved { id, serial, from, to } => {
                if let Some(chunk) = self.same(id, serial) {
                    chunk.move_front(from, &to);
                }
            }
            Entry::Told { id, serial, group } => {
                if let Some(chunk) = self.same(id, serial) {
                    chunk.go_on_with(&group);
                }
            }
            Entry::ZoneTold { zone, life, tail } => {
                if let Some(found) = self.zones.get_mut(&zone).filter(|found| found.life == life && !self.distrust) {
                    found.scan = found.scan.map(|from| from.max(tail.min(found.capacity)));
                }
            }
            Entry::Named(entry) => self.names.apply(entry),
            Entry::Unnamed { name, number } => self.names.end(&name, number),
        }
    }

    fn scan(&mut self, tenant: &Tenant, report: &mut OpenReport, progress: Progress) -> Result<()> {
        let volume = tenant.volume();
        let mut records: Vec<FoundRecord> = Vec::new();
        let mut damaged = false;
        let mut unused = Vec::new();
        let all = self.zones.values().filter(|found| found.scan.is_some()).count() as u64;
        let mut done = 0;
        for (number, found) in &mut self.zones {
            let Some(from) = found.scan else { continue };
            progress(OpenStep::Scan, done, all);
            done += 1;
            let Some(zone) = volume.report_at_open().get(*number as usize) else { continue };
            let wp = match zone.written() {
                Written::To(wp) => (wp / BLOCK as u64) as u32,
                Written::Untold => found.capacity,
                Written::Gone => {
                    report.damage.push(format!("Zone {number} is offline, and what was written there last is lost."));
                    damaged = true;
                    0
                }
            };
            // Of a closed zone the journal says where it ends; a finished one does not say it any more.
            let to = if found.state.is_open() { wp } else { wp.min(found.tail) };
            let zone_number = *number;
            let mut each = |header: &Header, _: &[u8]| {
                if header.kind == Kind::Data {
                    records.push(FoundRecord { zone: zone_number, header: *header });
                }
                Ok(())
            };
            if from < to {
                let scanned = scan(volume, *number, found.life, (from, to), Cause::Recovery, &mut each)?;
                report.scanned_zones += 1;
                report.scanned_bytes += scanned.bytes;
                if scanned.unreadable > 0 {
                    damaged = true;
                    let n = scanned.unreadable;
                    report.damage.push(format!("{n} blocks of zone {number} cannot be read."));
                }
                self.changed |= wp != from;
            }
            if found.state.is_open() && (zone.written() == Written::Gone || wp < from) {
                // Nothing comes there any more, and what stood there is not to be had.
                found.state = ZoneState::Closed;
                self.changed |= zone.written() != Written::Gone;
            } else if found.state.is_open() {
                found.tail = wp;
                if wp == 0 {
                    // It was taken, and nothing came there.
                    unused.push(zone_number);
                } else if !takes_writes(zone) {
                    found.state = ZoneState::Closed;
                } else if wp > 1 {
                    found.state = ZoneState::Activated;
                }
            }
        }
        self.changed |= !unused.is_empty();
        // In the order in which they were appended.
        records.sort_by_key(|record| record.header.sequence);
        for record in records {
            self.apply(&record, damaged, report);
        }
        let referred: std::collections::BTreeSet<u32> =
            self.chunks.values().flat_map(|chunk| chunk.groups().iter().map(|g| g.zone)).collect();
        self.zones.retain(|zone, _| !unused.contains(zone) || referred.contains(zone));
        for zone in referred {
            // Not what the store ever leaves; but what chunks refer to must not be given to anybody else.
            self.zones.entry(zone).or_insert_with(|| {
                report.damage.push(format!("Zone {zone} holds chunks, but no zone table knows it."));
                let mut found = found_zone(tenant, zone, 0, ZoneUse::Data(StreamType::DATA));
                found.state = ZoneState::Closed;
                found
            });
        }
        Ok(())
    }

    /// Write pointers that stand before what chunks have in their zones: somebody has reset these, or the drive has. Nothing in the index
    /// changes, so who reads what stood there is told, too, and the other bytes of these chunks are there.
    fn tell_lost_ends(&self, tenant: &Tenant, report: &mut OpenReport) {
        // By zone: its write pointer in blocks, lost bytes, and of which chunks.
        let mut ends: BTreeMap<u32, (u32, u64, Vec<ChunkId>)> = BTreeMap::new();
        for (number, found) in &self.zones {
            let zone = tenant.volume().report_at_open().get(*number as usize);
            if let Some(Written::To(wp)) = zone.map(|zone| zone.written())
                && wp < u64::from(found.tail) * BLOCK as u64
            {
                ends.insert(*number, ((wp / BLOCK as u64) as u32, 0, Vec::new()));
            }
        }
        if ends.is_empty() {
            return;
        }
        for chunk in self.chunks.values() {
            for group in chunk.groups() {
                let Some((wp, bytes, chunks)) = ends.get_mut(&group.zone) else { continue };
                let gone = |(start, record): &(u32, RecordIndex)| {
                    record.at != LOST && record.at + data_blocks(record.end - start) > *wp
                };
                let lost: u64 = group.spans().filter(gone).map(|(start, record)| u64::from(record.end - start)).sum();
                *bytes += lost;
                if lost > 0 && chunks.last() != Some(&chunk.id) {
                    chunks.push(chunk.id);
                }
            }
        }
        for (zone, (wp, bytes, chunks)) in ends.into_iter().filter(|(_, (_, bytes, _))| *bytes > 0) {
            report.damage.push(format!(
                "Zone {zone} is written up to byte {} only, and {} of {} that stood behind that are lost; \
                 `imbrex chunk check` names what is lost: restore it from copies, and remove it here.",
                u64::from(wp) * BLOCK as u64,
                counted(bytes, "byte"),
                counted(chunks.len() as u64, "chunk")
            ));
        }
    }

    /// A record goes behind what the chunk has. After damage it may leave a gap, whose bytes are lost; without, what is missing
    /// before it was not durable, and so it had not been acknowledged either.
    fn apply(&mut self, record: &FoundRecord, damaged: bool, report: &mut OpenReport) {
        let header = &record.header;
        let FoundRecord { zone, .. } = *record;
        let Some(chunk) = self.chunks.get_mut(&header.chunk).filter(|chunk| chunk.serial == header.serial) else {
            return;
        };
        // What the cleaner wrote is where the journal says, or still where it was.
        if header.flags & MOVED != 0 || chunk.sealed || header.offset < chunk.len {
            return;
        }
        if header.offset > chunk.len {
            if !damaged {
                return;
            }
            let (id, len) = (chunk.id, chunk.len);
            report.damage.push(format!("Chunk {id} has lost its bytes from {len} to {}.", header.offset));
            let gap = RecordIndex { end: header.offset, at: LOST };
            let lost = GroupEntry { zone, start: len, records: vec![gap] };
            let mut groups: Vec<GroupEntry> = chunk.groups().iter().map(GroupEntry::from).collect();
            match groups.last_mut().filter(|last| last.zone == zone) {
                Some(last) => last.records.push(gap),
                None => groups.push(lost),
            }
            let sealed = chunk.sealed;
            *chunk = Chunk::new(chunk.id, chunk.serial, chunk.stream).with_groups(groups);
            chunk.sealed = sealed;
        }
        chunk.push(zone, header.data, header.at);
        report.records += 1;
    }
}

/// What the drive says of a zone that begins a life.
pub(crate) fn found_zone(tenant: &Tenant, zone: u32, life: u64, usage: ZoneUse) -> FoundZone {
    let report = tenant.volume().report_at_open().get(zone as usize).copied();
    let report = report.unwrap_or(imbrex_device::Zone::EMPTY);
    FoundZone {
        state: ZoneState::Opened,
        life,
        usage,
        capacity: (report.capacity / BLOCK as u64) as u32,
        tail: 0,
        finished: !report.state.writable(),
        dead: !report.state.writable() && report.state != imbrex_device::ZoneState::Full,
        scan: None,
    }
}
