//! What there is to salvage: the metadata as far as it is left, tables, zones of the log.

use super::place::{TAG, read_zone};
use crate::core::{TABLES, TABLES_NAME};
use crate::manifest::{self, Manifest, WalZone};
use crate::recover::budget;
use crate::table::left::{FOOTER_BYTES, footers};
use crate::wal;
use imbrex_device::{Drive, Result, Written, Zone, ZoneId, ZonedDevice, report_all};
use imbrex_drives::overlay::cover;
use imbrex_zones::log::MetaLog;
use imbrex_zones::shell::salvage::{FoundTenant, Salvaged, Search, Stretch, nothing_found};
use imbrex_zones::{Exec, LeftSegment, Volume, VolumeOptions, ZoneHeader};
use std::sync::Arc;

/// Bytes that are searched for footers at a time.
const PIECE: u64 = 1 << 20;

/// The store, as a search needs to know it.
const fn engine(name: &'static str) -> Salvaged<'static> {
    Salvaged {
        name,
        kind: |kind| [wal::KIND, TABLES].contains(&kind),
        claims: &|_| false,
        budget: budget(0, 0),
        log: None,
        generation: 0,
    }
}

/// A table on the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundTable {
    /// Its number; `None`: it has no whole footer, and nobody else knows it.
    pub id: Option<u64>,
    pub zone: u32,
    pub life: u64,
    /// In bytes from the zone's start.
    pub at: u64,
    /// Of a table without a number: as far as it may go.
    pub len: u64,
    /// Changes of keys before this one are elsewhere.
    pub from: Option<Vec<u8>>,
    /// All its changes have this number, whatever they say: they were ingested.
    pub number: Option<u64>,
}

/// See the module.
pub(super) struct Found {
    pub volume: [u8; 16],
    /// As far as it is known.
    pub manifest: Manifest,
    /// The metadata tells of spaces and tables.
    pub known: bool,
    /// It tells all of them.
    pub whole: bool,
    /// What a dead process left of the log in memory.
    pub left: Vec<LeftSegment>,
    pub tables: Vec<FoundTable>,
    pub wal: Vec<WalZone>,
    pub notes: Vec<String>,
}

/// Whose zones count.
struct Whose {
    volume: [u8; 16],
    owner: u8,
}

/// Finds what is on a drive. `progress` gets bytes searched, and of how many.
pub(super) fn find(drive: &Drive, name: &'static str, progress: &mut dyn FnMut(u64, u64)) -> Result<Found> {
    let device = drive.device.as_ref();
    let (mut notes, mut search) = (Vec::new(), None);
    let volume = match open(drive) {
        Ok(volume) => volume,
        Err(why) => {
            let found = Search::of(device, false, &mut |_, _| {})?;
            let whose = newest(device, &found, name)?;
            notes.push(format!(
                "The drive does not open as it is ({why}); its label was made anew, in memory, from its zones."
            ));
            let covered = cover(Drive { device: drive.device.clone(), survivor: None })?;
            let volume = found.label(device, whose.volume, &engine(name)).and_then(|(label, _)| {
                Volume::relabel(&covered, label)?;
                Volume::look(covered.clone(), options())
            });
            let volume = volume.inspect_err(|why| notes.push(format!("Nor does it then ({why}).")));
            search = Some((found, whose));
            match volume {
                Ok(volume) => volume,
                Err(_) => return searched(drive, search, Found::nothing(notes), progress),
            }
        }
    };
    let tenant = volume.tenant(name)?;
    let mut found = Found { volume: volume.uuid(), left: tenant.left_behind(), ..Found::nothing(notes) };
    found.left.retain(|segment| segment.key.file == wal::FILE);
    found.left.sort_by_key(|segment| segment.key.logical);
    match MetaLog::open(&tenant, Arc::new(|| 0), None, &mut |_, _| {}) {
        Ok(Some((_, replay))) => {
            found.known = replay.snapshot.is_some();
            found.whole = search.is_none() && found.known && replay.skipped.is_empty() && !replay.partial;
            found.notes.extend(replay.skipped.iter().cloned());
            let mut senseless = 0u64;
            let mut apply = |bytes: &[u8]| match manifest::notes(bytes) {
                Some(all) => all.into_iter().for_each(|note| found.manifest.apply(note)),
                None => senseless += 1,
            };
            if found.known {
                replay.pieces.iter().for_each(|piece| apply(piece));
                let mut missing = false;
                replay.records_and_gaps(&mut |record| match record {
                    Some((_, record)) => apply(record),
                    None => missing = true,
                });
                found.whole &= !missing && senseless == 0;
            }
        }
        Ok(None) => {}
        Err(why) => found.notes.push(format!("The metadata cannot be read ({why}).")),
    }
    if found.whole {
        found.take_known(device)?;
        return Ok(found);
    }
    let whose = Whose { volume: volume.uuid(), owner: tenant.owner() };
    drop((tenant, volume));
    let search = match search {
        Some(search) => search,
        None => (Search::of(device, false, &mut |_, _| {})?, whose),
    };
    searched(drive, Some(search), found, progress)
}

fn options() -> VolumeOptions {
    VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() }
}

/// Opens the volume, under a cover.
fn open(drive: &Drive) -> Result<Volume> {
    Volume::look(cover(drive.clone())?, options())
}

/// The store that was written to last.
fn newest(device: &dyn ZonedDevice, search: &Search, tenant: &'static str) -> Result<Whose> {
    let tenants = search.tenants(&engine(tenant));
    let ours = |found: &&FoundTenant| {
        let own = |header: &ZoneHeader| header.volume == found.volume && header.owner == found.owner;
        // Where its log is lost, only the kinds of its zones tell, and other engines have the same numbers of kinds.
        let named = || search.stretches().iter().any(|stretch| own(&stretch.header) && is_ours(&stretch.header));
        // Another engine without a log, whose kinds are the same, may have got the name.
        match found.log.is_empty() {
            true => found.name.as_deref().is_none_or(|name| name == tenant) && named(),
            false => found.name.as_deref() == Some(tenant),
        }
    };
    if let Some(FoundTenant { volume, owner, .. }) = tenants.iter().find(ours) {
        return Ok(Whose { volume: *volume, owner: *owner });
    }
    let name = &device.identity().name;
    Err(nothing_found(name, &tenants, "a key-value store", "use the salvage of those"))
}

/// Whether the header is of the log or of tables.
fn is_ours(header: &ZoneHeader) -> bool {
    [(wal::KIND, wal::NAME), (TABLES, TABLES_NAME)].contains(&(header.kind, header.name.as_str()))
}

impl Found {
    fn nothing(notes: Vec<String>) -> Found {
        let (manifest, left, tables, wal) = Default::default();
        Found { volume: [0; 16], manifest, known: false, whole: false, left, tables, wal, notes }
    }

    /// Takes the tables and the zones of the log that the metadata names. Its numbers are not believed.
    fn take_known(&mut self, device: &dyn ZonedDevice) -> Result<()> {
        let zones = report_all(device)?;
        let capacity = |zone: u32| zones.get(zone as usize).map_or(0, |zone| zone.capacity);
        for table in self.manifest.tables.values() {
            if table.at.checked_add(table.len).is_none_or(|end| end > capacity(table.zone)) {
                self.notes.push(format!("The metadata names a table {} where none can be.", table.id));
                continue;
            }
            self.tables.push(FoundTable {
                id: Some(table.id),
                zone: table.zone,
                life: table.life,
                at: table.at,
                len: table.len,
                from: table.from.as_ref().map(|from| from.to_vec()),
                number: table.ingested.then_some(table.seqs.0),
            });
        }
        self.wal = self.manifest.wal.iter().filter(|log| capacity(log.zone) > 0).copied().collect();
        Ok(())
    }
}

/// Adds what zones tell that the metadata does not.
fn searched(
    drive: &Drive,
    search: Option<(Search, Whose)>,
    mut found: Found,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Found> {
    let device = drive.device.as_ref();
    found.take_known(device)?;
    let Some((search, whose)) = search else { return Ok(found) };
    found.volume = whose.volume;
    let (mut zones, mut older) = (Vec::new(), 0);
    for Stretch { header, .. } in search.stretches().iter().filter(|stretch| is_ours(&stretch.header)) {
        match (header.volume, header.owner) == (whose.volume, whose.owner) {
            true => zones.push(header),
            false => older += u32::from(header.volume != whose.volume),
        }
    }
    if older > 0 {
        found.notes.push(format!("{older} zones are of older volumes, and are left out."));
    }
    zones.dedup_by_key(|header| header.zone);
    for header in zones.iter().filter(|header| header.kind == wal::KIND) {
        let zone = WalZone { zone: header.zone, life: header.life, position: header.logical };
        if !found.wal.iter().any(|known| (known.zone, known.life) == (zone.zone, zone.life)) {
            found.wal.push(zone);
        }
    }
    found.wal.sort_by_key(|zone| zone.position);
    let report = report_all(device)?;
    let tables: Vec<(&ZoneHeader, &Zone)> = zones
        .iter()
        .filter(|header| header.kind == TABLES)
        .filter_map(|header| Some((*header, report.get(header.zone as usize)?)))
        .collect();
    let all = tables.iter().map(|(_, zone)| written(zone)).sum();
    let mut done = 0;
    for (header, zone) in tables {
        let more = tables_of(device, header.life, zone);
        done += written(zone);
        progress(done, all);
        // Of the tables that the metadata does not name, those that are older than it are gone, and only newer ones count.
        let counts = |table: &FoundTable| match table.id {
            Some(id) => !found.known || id >= found.manifest.next,
            None => !found.known,
        };
        let known = |table: &FoundTable| found.tables.iter().any(|of| (of.zone, of.at) == (table.zone, table.at));
        let more: Vec<FoundTable> = more.into_iter().filter(|table| counts(table) && !known(table)).collect();
        found.tables.extend(more);
    }
    Ok(found)
}

/// How many bytes of a zone may be written.
fn written(zone: &Zone) -> u64 {
    match zone.written() {
        Written::To(to) => to,
        Written::Untold => zone.capacity,
        Written::Gone => 0,
    }
}

/// The tables of a zone, by their footers; what stands between them may be one without a whole footer.
fn tables_of(device: &dyn ZonedDevice, life: u64, zone: &Zone) -> Vec<FoundTable> {
    let block = u64::from(device.geometry().block);
    let (front, end) = (block.max(4096), written(zone));
    let mut found = ends(&mut |at, len| read_blocks(device, zone.id, at, len, block), life, block, front..end);
    let mut gaps = Vec::new();
    let mut from = front;
    for (at, len, _) in &found {
        if *at > from {
            gaps.push((from, at - from, None));
        }
        from = from.max((at + len).next_multiple_of(block));
    }
    if from < end {
        gaps.push((from, end - from, None));
    }
    found.append(&mut gaps);
    let table = |(at, len, id)| FoundTable { id, zone: zone.id.0, life, at, len, from: None, number: None };
    found.into_iter().map(table).collect()
}

/// Where a table begins, its bytes, and its number.
pub(crate) type Place = (u64, u64, Option<u64>);

/// Tables of this life whose footers stand between these bytes of a zone, by their places.
pub(crate) fn ends(
    read: &mut dyn FnMut(u64, u64) -> Vec<u8>,
    life: u64,
    block: u64,
    within: std::ops::Range<u64>,
) -> Vec<Place> {
    let (mut found, mut tail, mut at) = (Vec::new(), Vec::new(), within.start);
    while at < within.end {
        let bytes = read(at, PIECE.min(within.end - at));
        let before = at - tail.len() as u64;
        at += PIECE.min(within.end - at);
        tail.extend_from_slice(&bytes);
        for (end, len, identity) in footers(&tail) {
            let start = (before + end as u64).checked_sub(len).filter(|start| *start >= within.start);
            if let Some(start) = start.filter(|start| identity.life == life && start.is_multiple_of(block)) {
                found.push((start, len, Some(identity.table)));
            }
        }
        let keep = tail.len().saturating_sub(FOOTER_BYTES - 1);
        tail.drain(..keep);
    }
    found.sort_unstable();
    found
}

/// Bytes of a zone; zeros where they cannot be read.
fn read_blocks(device: &dyn ZonedDevice, zone: ZoneId, at: u64, len: u64, block: u64) -> Vec<u8> {
    if let Ok(bytes) = read_zone(device, zone, at, len) {
        return bytes;
    }
    let mut all = Vec::new();
    for from in (at..at + len).step_by(block as usize) {
        let len = block.min(at + len - from);
        all.extend(read_zone(device, zone, from, len).unwrap_or_else(|_| vec![0; len as usize]));
    }
    all
}

/// Reads a zone of the log for a scan of its frames.
pub(super) fn read_log_zone(device: &dyn ZonedDevice, zone: ZoneId, at: u64, buf: &mut [u8]) -> Result<()> {
    imbrex_zones::volume::read_all(device, buf, device.geometry().start(zone) + at, TAG)
}
