//! What is in the zones of a store, for who draws them.

use super::store::Kv;
use crate::core::Core;
use crate::manifest::{TableInfo, WalZone};
use crate::policy::{BOTTOM, Group, Window};
use crate::recover;
use imbrex_device::{Drive, Result, Zone, ZoneId, ZonedDevice, report_all};
use imbrex_zones::{Exec, Volume, VolumeOptions, ZoneUse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a zone holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A piece of the write-ahead log.
    Log,
    /// Tables of a level; nothing but the bottom has no number.
    Tables(Option<u8>),
    /// What the store keeps beside these: its metadata log.
    Metadata,
}

/// A zone of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneContent {
    /// Which.
    pub zone: u32,
    /// What it holds.
    pub holds: Holds,
    /// The place of its partition in the order of keys, where its level has partitions and the partition is still one.
    pub part: Option<usize>,
    /// Bytes that count: of tables what no merge has taken, of the log what an opening would read. All, of metadata.
    pub live: u64,
    /// Bytes that are written.
    pub written: u64,
    /// Bytes that it can hold.
    pub capacity: u64,
    /// Tables in it that count.
    pub tables: u64,
    /// It is in the window of its level.
    pub window: bool,
}

/// The live bytes of a zone with tables or bytes of the log, of which group its tables are, and how many.
type Used = BTreeMap<u32, (Option<Group>, u64, u64)>;

/// Zones with tables, and with the log, whose last zone is live up to where `end` says.
fn used<'a>(tables: impl Iterator<Item = &'a TableInfo>, (log, front): (&[WalZone], u64), end: u64) -> Used {
    let mut used = Used::new();
    for table in tables {
        let (_, live, tables) = used.entry(table.zone).or_insert((Some(table.group), 0, 0));
        (*live, *tables) = (*live + table.live, *tables + 1);
    }
    let mut log = log.to_vec();
    log.sort_by_key(|zone| zone.position);
    for (at, zone) in log.iter().enumerate() {
        let until = log.get(at + 1).map_or(end, |next| next.position);
        used.insert(zone.zone, (None, until.saturating_sub(zone.position.max(front)), 0));
    }
    used
}

/// The same of an open store.
fn used_now(core: &Core) -> Used {
    let (log, front) = core.look(|manifest| (manifest.wal.clone(), manifest.front.0));
    let end = core.wal().map_or(0, |wal| wal.end());
    let view = core.view();
    used(view.tables.iter().map(|table| &table.info), (&log, front), end)
}

/// Bytes that the zones with tables or bytes of the log can hold.
pub(crate) fn capacity_in_use(core: &Core) -> u64 {
    let capacity = |zone: &u32| core.tenant.volume().capacity(ZoneId(*zone));
    used_now(core).keys().map(capacity).sum()
}

/// Zones in the windows of levels.
fn in_windows<'a>(windows: impl Iterator<Item = &'a Window>) -> BTreeSet<(u8, u32)> {
    windows.flat_map(|window| window.zones.iter().map(|zone| (window.level, *zone))).collect()
}

/// What is in the zones of a report. `parts`: numbers of the partitions in the order of keys.
fn contents(
    report: &[Zone],
    used: &Used,
    (parts, windows): (&[u32], &BTreeSet<(u8, u32)>),
    is_metadata: impl Fn(u32) -> bool,
) -> Vec<ZoneContent> {
    let content = |zone: &Zone| {
        let written = |live: u64| zone.wp.unwrap_or(live);
        Some(match used.get(&zone.id.0) {
            Some((None, live, _)) => ZoneContent::of(zone, Holds::Log, (*live, written(*live))),
            Some((Some(group), live, tables)) => ZoneContent {
                part: parts.iter().position(|part| parts.len() > 1 && *group != BOTTOM && *part == group.part),
                window: windows.contains(&(group.level, zone.id.0)),
                tables: *tables,
                ..ZoneContent::of(
                    zone,
                    Holds::Tables((*group != BOTTOM).then_some(group.level)),
                    (*live, written(*live)),
                )
            },
            None if is_metadata(zone.id.0) => ZoneContent::of(zone, Holds::Metadata, (written(0), written(0))),
            None => return None,
        })
    };
    report.iter().filter_map(content).collect()
}

impl Kv {
    /// What is in each of its zones, in their order.
    ///
    /// # Errors
    /// Those of the drive's report of its zones.
    pub fn zones(&self) -> Result<Vec<ZoneContent>> {
        let core = self.core();
        let table = self.volume().table();
        let own = table.tenants.iter().position(|tenant| tenant.name == core.tenant.name());
        let report = report_all(self.volume().device().as_ref())?;
        let is_taken = |of: &ZoneUse| of.tenant == own && ["leased", "parked"].contains(&of.state);
        let windows = core.look(|manifest| in_windows(manifest.windows.values()));
        let parts: Vec<u32> = core.view().parts.iter().map(|part| part.id).collect();
        let is_metadata = |zone: u32| table.zones.get(zone as usize).is_some_and(is_taken);
        Ok(contents(&report, &used_now(core), (&parts, &windows), is_metadata))
    }

    /// What the metadata on a drive says at this moment of the zones of its store, while another process may use that: for who draws them. Only metadata is read, and nothing is
    /// written. Empty where the drive has no store.
    ///
    /// # Errors
    /// Those of the reads; of a drive that is changed just now, too.
    pub fn zones_beside(device: Arc<dyn ZonedDevice>) -> Result<Vec<ZoneContent>> {
        let exec = VolumeOptions { exec: Exec::Inline, survivor_bytes: 1 << 20, ..VolumeOptions::default() };
        let volume = Volume::look(Drive { device, survivor: None }, exec)?;
        if !volume.table().tenants.iter().any(|tenant| tenant.name == recover::TENANT) {
            return Ok(Vec::new());
        }
        let report = report_all(volume.device().as_ref())?;
        let Some((root, manifest)) = recover::look(&volume.tenant(recover::TENANT)?, &report)? else {
            return Ok(Vec::new());
        };
        // How far the log goes on is not known: its zones count as far as they are written.
        let last = manifest.wal.iter().max_by_key(|zone| zone.position);
        let written =
            last.and_then(|last| report.get(last.zone as usize)?.wp.map(|wp| last.position.saturating_add(wp)));
        let used = used(manifest.tables.values(), (&manifest.wal, manifest.front.0), written.unwrap_or(0));
        let parts: Vec<u32> = manifest.parts.iter().map(|(id, _)| *id).collect();
        let windows = in_windows(manifest.windows.values());
        Ok(contents(&report, &used, (&parts, &windows), |zone| root.zones.contains(&zone)))
    }
}

impl ZoneContent {
    fn of(zone: &Zone, holds: Holds, (live, written): (u64, u64)) -> ZoneContent {
        let capacity = zone.capacity;
        ZoneContent { zone: zone.id.0, holds, part: None, live, written, capacity, tables: 0, window: false }
    }
}
