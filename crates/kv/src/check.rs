//! Verifies what tables do not tell of themselves: the label, the metadata log, the write-ahead log, and that the store's metadata, the
//! drive's table of zones and the zones' own headers agree of each zone.

use crate::core::view::View;
use crate::core::{Core, TABLES};
use crate::recover::read_log_zone;
use crate::sync::lock;
use crate::wal;
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Result, Tag, Written, Zone, report_all};
use imbrex_zones::ZoneHeader;
use imbrex_zones::log::Root;
use std::cell::Cell;
use std::collections::BTreeMap;

const TAG: Tag = Tag::new(Cause::Check);

/// Sentences about what is wrong beside tables. Whoever calls is the worker. Nobody writes while zones are compared, which reads nothing but the drive's report; puts go
/// on while the log is read.
///
/// # Errors
/// Those of the drive that are not about bytes.
pub(crate) fn all(core: &Core) -> Result<Vec<String>> {
    let volume = core.tenant.volume();
    let mut found = volume.check_labels()?;
    let nobody_writes = lock(&core.writing);
    // What waits to be written would look like a difference between memory and drive.
    core.wal()?.sync()?;
    let report = report_all(volume.device().as_ref())?;
    zones(core, &mut found);
    drop(nobody_writes);
    log(core, &report, &mut found)?;
    metadata(core, &mut found)?;
    // An opening has told these.
    let known = core.damage();
    found.retain(|sentence| !known.contains(sentence));
    Ok(found)
}

/// Reads the frames of the write-ahead log that an opening would read, as far as its zones are written by this report.
fn log(core: &Core, report: &[Zone], found: &mut Vec<String>) -> Result<()> {
    let (log, front, frame) = core.look(|manifest| (manifest.wal.clone(), manifest.front.0, manifest.front_frame));
    for of in log {
        let Some(zone) = report.get(of.zone as usize) else { continue };
        let volume = core.tenant.volume();
        let damaged = read_log_zone(volume, (zone, &of), (front, frame), &Cell::default(), &mut |_, _| {})?;
        found.extend(wal::damage(of.zone, damaged));
        found.extend(header(core, zone, ("a part of the write-ahead log", wal::KIND, of.life))?);
    }
    Ok(())
}

/// Reads the headers of the zones that have tables of this view, which keeps them.
///
/// # Errors
/// Those of the drive that are not about bytes.
pub(crate) fn headers(core: &Core, view: &View) -> Result<Vec<String>> {
    let report = report_all(core.tenant.volume().device().as_ref())?;
    let lives: BTreeMap<u32, u64> = view.tables.iter().map(|table| (table.info.zone, table.info.life)).collect();
    let mut found = Vec::new();
    for (number, life) in lives {
        if let Some(zone) = report.get(number as usize) {
            found.extend(header(core, zone, ("tables", TABLES, life))?);
        }
    }
    Ok(found)
}

/// Reads both copies of the metadata.
fn metadata(core: &Core, found: &mut Vec<String>) -> Result<()> {
    let mut lead = core.lead();
    match Root::decode(&core.tenant.root()) {
        Ok(root) if root == *lead.log().root() => {}
        Ok(_) => found.push("the label names other zones for the key-value store's metadata than are in use".into()),
        Err(why) => found.push(format!("what the label says of the key-value store's metadata is damaged: {why}")),
    }
    let there = lead.log().reread()?;
    if there.snapshot.is_none() {
        found.push("no copy of the key-value store's metadata is whole".into());
    }
    found.extend(there.skipped);
    Ok(())
}

/// Compares what the metadata says of each zone with the drive's table of zones.
fn zones(core: &Core, found: &mut Vec<String>) {
    let mut lead = core.lead();
    let of_metadata: Vec<u32> = lead.log().zones().iter().map(|zone| zone.zone.0).collect();
    let table = core.tenant.volume().table();
    let own = table.tenants.iter().position(|tenant| tenant.name == core.tenant.name());
    let held: BTreeMap<u32, &str> = core.look(|manifest| {
        let tables = manifest.tables.values().map(|table| (table.zone, "tables"));
        tables.chain(manifest.wal.iter().map(|log| (log.zone, "a part of the write-ahead log"))).collect()
    });
    for (number, what) in &held {
        let is = table.zones.get(*number as usize);
        if !is.is_some_and(|zone| zone.tenant == own && ["leased", "parked", "dead"].contains(&zone.state)) {
            let state = is.map_or("none of the drive's", |zone| zone.state);
            found.push(format!("zone {number} has {what}, and the drive's table of zones says that it is {state}"));
        }
    }
    let (open, _) = core.zones_of_tables();
    let named = |zone: &u32| {
        held.contains_key(zone) || of_metadata.contains(zone) || open.iter().any(|open| open.zone == *zone)
    };
    for (number, zone) in (0..).zip(&table.zones) {
        if zone.tenant == own && ["leased", "parked"].contains(&zone.state) && !named(&number) {
            found.push(format!("zone {number} is taken for the key-value store, and nothing of it is there"));
        }
    }
}

/// A sentence, where the header of a zone, as far as it is written, is not that of this engine, kind and life.
fn header(core: &Core, zone: &Zone, (what, kind, life): (&str, u8, u64)) -> Result<Option<String>> {
    let volume = core.tenant.volume();
    let mut block = AlignedBuf::zeroed(volume.geometry().block.max(4096) as usize);
    match zone.written() {
        Written::Gone => return Ok(None),
        Written::To(wp) if wp < block.len() as u64 => return Ok(None),
        _ => {}
    }
    let number = zone.id.0;
    match volume.read(&mut block, volume.geometry().start(zone.id), TAG) {
        Ok(()) => {}
        Err(Error { fault: Fault::Media { .. } | Fault::Offline, .. }) => {
            return Ok(Some(format!("zone {number} has {what}, and its header cannot be read")));
        }
        Err(error) => return Err(error),
    }
    let own = core.tenant.header(zone.id, life);
    let is_own = |header: &ZoneHeader| {
        let same = (header.volume, header.owner, header.zone) == (own.volume, own.owner, own.zone);
        same && (header.kind, header.life) == (kind, life)
    };
    let whole = ZoneHeader::decode(&block).as_ref().is_some_and(is_own);
    Ok((!whole).then(|| format!("zone {number} has {what}, and its header is damaged or another one")))
}
