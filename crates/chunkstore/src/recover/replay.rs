//! Steps 2 to 4: the checkpoint's parts, the journal behind it, and the records in zones that were open since.

use super::holes::{Hole, Holes};
use super::is_ours;
use super::losses::tell_unread;
use super::{FoundZone, OpenStep, Progress, no_checkpoint, takes_writes};
use crate::core::DerivedLimits;
use crate::core::report::OpenReport;
use crate::error::Result;
use crate::format::entry::{Entry, GroupEntry, LOST, Part, RecordIndex};
use crate::format::id::{ChunkId, StreamType};
use crate::format::{BLOCK, Header, ZoneUse, data_blocks};
use crate::index::Chunk;
use crate::index::names::Names;
use crate::recover::scan::scan;
use crate::zone::ZoneState;
use imbrex_device::words::counted;
use imbrex_device::{Cause, Written, ZoneState as DriveState};
use imbrex_zones::Tenant;
use imbrex_zones::log::Replay;
use imbrex_zones::shell::salvage::{Front, front};
use std::collections::{BTreeMap, BTreeSet};

/// Records that scanning has put behind chunks: where the chunk ended before, and the number of the append. Ascending.
pub(super) type Applied = BTreeMap<ChunkId, Vec<(u32, u64)>>;

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
    pub(crate) scrub: crate::format::entry::notes::ScrubEntry,
    /// Of a salvage: the highest number that a record has.
    pub(super) newest: u64,
    /// Seals, and the lengths that chunks had then.
    pub(super) seals: BTreeMap<ChunkId, u32>,
    /// What could not be read, and nothing says whose it was.
    pub(super) holes: Holes,
    /// What the journal tells of records, where it does not tell of those before them.
    pub(super) told_later: Vec<(ChunkId, u64, GroupEntry)>,
    /// See [`Applied`].
    pub(super) applied: Applied,
    /// Zones of the checkpoint that have places which could not be read then.
    pub(super) unread: Vec<(u32, u64)>,
    pub(crate) names: Names,
}

/// A data record that was found in a zone.
pub(super) struct FoundRecord {
    pub(super) zone: u32,
    pub(super) header: Header,
    /// Some of its bytes are not what was written.
    pub(super) damaged: bool,
}

impl Rebuilt {
    pub(crate) fn new(
        tenant: &Tenant,
        limits: &DerivedLimits,
        metazones: &[u32],
        found: &Replay,
        report: &mut OpenReport,
        progress: Progress,
    ) -> Result<Rebuilt> {
        let mut rebuilt = Rebuilt::default();
        rebuilt.holes.shared = !limits.separate;
        for payload in &found.pieces {
            rebuilt.load(tenant, payload, report);
        }
        if found.snapshot.is_none() {
            return Err(no_checkpoint(tenant.volume()));
        }
        let mut records = Vec::new();
        let since = found.records(&mut |number, record| records.push((number, Entry::decode(record))));
        // Where some of it is lost, what it told of records may have been in that: then the zones tell all that they know.
        rebuilt.distrust = !since.whole || records.iter().any(|(_, entry)| entry.is_none());
        let newest = rebuilt.zones.values().map(|zone| zone.life).max().unwrap_or(0);
        if !since.whole {
            report.damage.push("Records of the journal are lost in both copies.".into());
        }
        report.journal_records = since.frames;
        for (number, entry) in records {
            match entry {
                Some(entry) => rebuilt.replay(tenant, entry),
                None => {
                    report.damage.push(format!("Record {number} of the journal makes no sense and is passed over."))
                }
            }
        }
        if rebuilt.distrust {
            rebuilt.find_zones(tenant, metazones, newest);
        }
        rebuilt.scan(tenant, report, progress)?;
        for (id, serial, group) in std::mem::take(&mut rebuilt.told_later) {
            if let Some(chunk) = rebuilt.same(id, serial) {
                chunk.go_on_with(&group);
            }
        }
        rebuilt.forget_reset(tenant, metazones);
        rebuilt.know_referred(tenant);
        rebuilt.know_offline_tails(tenant);
        rebuilt.tell_lost_ends(tenant, report);
        rebuilt.end_chunks(report);
        rebuilt.check_names(report);
        Ok(rebuilt)
    }

    /// Of zones that were taken since the checkpoint, whose lives are newer than `newest`, a lost record of the journal may have told: they say so themselves.
    fn find_zones(&mut self, tenant: &Tenant, metazones: &[u32], newest: u64) {
        let volume = tenant.volume();
        for zone in tenant.unadopted().into_iter().filter(|zone| !metazones.contains(&zone.0)) {
            let Some(state) = volume.report_at_open().get(zone.0 as usize) else { continue };
            let Front::Header(header) = front(volume.device().as_ref(), state) else { continue };
            let known = self.zones.get(&zone.0).map_or(newest, |known| known.life.max(newest));
            let usage = ZoneUse::of_kind(header.kind).filter(|_| is_ours(tenant, &header) && header.life > known);
            if let Some(usage) = usage {
                self.replay(tenant, Entry::ZoneTaken { zone: zone.0, life: header.life, usage });
            }
        }
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
                    found.unread = zone.unread.min(found.capacity);
                    if zone.unread > 0 {
                        self.unread.push((zone.zone, zone.life));
                    }
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
                    chunk.end = entry.end;
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
                let distrust = self.distrust;
                match self.same(id, serial) {
                    // What is missing before it may have been in a record of the journal that is lost, and is found in the zones.
                    Some(chunk) if distrust && chunk.len < group.start => self.told_later.push((id, serial, group)),
                    Some(chunk) => chunk.go_on_with(&group),
                    None => {}
                }
            }
            Entry::ZoneTold { zone, life, tail } => {
                if let Some(found) = self.zones.get_mut(&zone).filter(|found| found.life == life && !self.distrust) {
                    found.scan = found.scan.map(|from| from.max(tail.min(found.capacity)));
                }
            }
            Entry::Lost(mark) => {
                if self.same(mark.id, mark.serial).is_some() {
                    self.mark_lost(mark);
                }
            }
            Entry::Named(entry) => self.names.apply(entry),
            Entry::Unnamed { name, number } => self.names.end(&name, number),
        }
    }

    fn scan(&mut self, tenant: &Tenant, report: &mut OpenReport, progress: Progress) -> Result<()> {
        let volume = tenant.volume();
        let mut records: Vec<FoundRecord> = Vec::new();
        let mut unused = Vec::new();
        let all = self.zones.values().filter(|found| found.from().is_some()).count() as u64;
        let mut done = 0;
        for (number, found) in &mut self.zones {
            let Some(from) = found.from() else { continue };
            progress(OpenStep::Scan, done, all);
            done += 1;
            let Some(zone) = volume.report_at_open().get(*number as usize) else { continue };
            let wp = match zone.written() {
                Written::To(wp) => (wp / BLOCK as u64) as u32,
                Written::Untold => found.capacity,
                Written::Gone => {
                    if let (Some(_), Some(hole)) = (found.scan, found.hole(*number, None)) {
                        report
                            .damage
                            .push(format!("Zone {number} is offline, and what was written there last is lost."));
                        self.holes.push(hole);
                    }
                    0
                }
            };
            // Of a closed zone the journal says where it ends; a finished one does not say it any more.
            let to = if found.state.is_open() { wp } else { wp.min(found.tail) };
            let zone_number = *number;
            let mut each = |header: &Header, _: &[u8]| {
                records.push(FoundRecord { zone: zone_number, header: *header, damaged: false });
                Ok(())
            };
            if from < to {
                let scanned = scan(volume, *number, found.life, (from, to), Cause::Recovery, &mut each)?;
                report.scanned_zones += 1;
                report.scanned_bytes += scanned.bytes;
                let damaged = scanned.damaged.iter();
                records.extend(damaged.map(|header| FoundRecord { zone: zone_number, header: *header, damaged: true }));
                tell_unread(zone_number, &scanned, report);
                // What was there the last time, too, is known of what it took.
                let new = |hole: &&crate::recover::scan::Hole| found.scan.is_some_and(|told| hole.to > told.max(1));
                for hole in scanned.holes.iter().filter(new) {
                    if let Some(of) = found.hole(zone_number, Some(hole.to - hole.from.max(1))) {
                        self.holes.push(Hole { after: hole.after, before: hole.before, ..of });
                    }
                }
                let unread = scanned.holes.first().map_or(0, |hole| hole.from.max(1));
                self.changed |= found.unread != unread;
                found.unread = unread;
            }
            let Some(told) = found.scan else { continue };
            self.changed |= wp != told;
            if found.state.is_open() && (zone.written() == Written::Gone || wp < told) {
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
        self.holes.shared |= records.iter().any(|record| {
            let usage = self.zones.get(&record.zone).map(|zone| zone.usage);
            matches!(usage, Some(ZoneUse::Data(stream)) if stream.number() != record.header.stream)
        });
        for record in records {
            self.apply(&record, report);
        }
        let referred = self.referred();
        self.zones.retain(|zone, _| !unused.contains(zone) || referred.contains(zone));
        // Not what the store ever leaves; but what chunks refer to must not be given to anybody else.
        for zone in self.know_referred(tenant) {
            report.damage.push(format!("Zone {zone} holds chunks, but no zone table knows it."));
        }
        Ok(())
    }

    /// Of a zone that is offline only its records tell how far it was written.
    fn know_offline_tails(&mut self, tenant: &Tenant) {
        let report = tenant.volume().report_at_open();
        let is_offline = |zone: &u32| report.get(*zone as usize).is_some_and(|zone| zone.written() == Written::Gone);
        if !self.zones.keys().any(is_offline) {
            return;
        }
        for group in self.chunks.values().flat_map(|chunk| chunk.groups()).filter(|group| is_offline(&group.zone)) {
            let Some(found) = self.zones.get_mut(&group.zone) else { continue };
            for (start, record) in group.spans().filter(|(_, record)| record.at != LOST) {
                let end = record.at.saturating_add(data_blocks(record.end - start));
                found.tail = found.tail.max(end).min(found.capacity);
            }
        }
    }

    /// Zones that chunks refer to.
    fn referred(&self) -> BTreeSet<u32> {
        self.chunks.values().flat_map(|chunk| chunk.groups().iter().map(|g| g.zone)).collect()
    }

    /// Makes zones known that chunks refer to and that were not; returns their numbers.
    pub(super) fn know_referred(&mut self, tenant: &Tenant) -> Vec<u32> {
        let mut unknown = self.referred();
        unknown.retain(|zone| !self.zones.contains_key(zone));
        for zone in &unknown {
            let found = found_zone(tenant, *zone, 0, ZoneUse::Data(StreamType::DATA));
            self.zones.insert(*zone, FoundZone { state: ZoneState::Closed, ..found });
        }
        unknown.into_iter().collect()
    }

    /// Closed zones that were reset since the checkpoint, when nothing in them was of use any more: they are free, and may be a metazone's by now.
    fn forget_reset(&mut self, tenant: &Tenant, metazones: &[u32]) {
        let referred = self.referred();
        let report = tenant.volume().report_at_open();
        let is_reset = |zone: u32| report.get(zone as usize).is_some_and(|zone| zone.state == DriveState::Empty);
        self.zones.retain(|zone, found| {
            let gone = !found.state.is_open() && is_reset(*zone) || metazones.contains(zone);
            !gone || referred.contains(zone)
        });
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
        unread: 0,
    }
}
