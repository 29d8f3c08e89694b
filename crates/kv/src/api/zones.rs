//! What is in the zones of a store, for who draws them.

use super::store::Kv;
use crate::core::Core;
use crate::policy::{BOTTOM, Group, Window};
use imbrex_device::{Result, Zone, ZoneId, report_all};
use imbrex_zones::ZoneUse;
use std::collections::{BTreeMap, BTreeSet};

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

/// Zones with tables or bytes of the log: the live bytes of each, and of which group its tables are.
fn used(core: &Core) -> BTreeMap<u32, (Option<Group>, u64, u64)> {
    let mut used: BTreeMap<u32, (Option<Group>, u64, u64)> = BTreeMap::new();
    for table in core.view().tables.iter() {
        let (_, live, tables) = used.entry(table.info.zone).or_insert((Some(table.info.group), 0, 0));
        (*live, *tables) = (*live + table.info.live, *tables + 1);
    }
    let end = core.wal().map_or(0, |wal| wal.end());
    let (mut log, front) = core.look(|manifest| (manifest.wal.clone(), manifest.front.0));
    log.sort_by_key(|zone| zone.position);
    for (at, zone) in log.iter().enumerate() {
        let until = log.get(at + 1).map_or(end, |next| next.position);
        used.insert(zone.zone, (None, until.saturating_sub(zone.position.max(front)), 0));
    }
    used
}

/// Bytes that the zones with tables or bytes of the log can hold.
pub(crate) fn capacity_in_use(core: &Core) -> u64 {
    let capacity = |zone: &u32| core.tenant.volume().capacity(ZoneId(*zone));
    used(core).keys().map(capacity).sum()
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
        let (used, view) = (used(core), core.view());
        let windows: BTreeSet<(u8, u32)> = core.look(|manifest| {
            let of = |window: &Window| (window.level, window.zones.clone());
            let all = manifest.windows.values().map(of);
            all.flat_map(|(level, zones)| zones.into_iter().map(move |zone| (level, zone))).collect()
        });
        let divided = view.parts.len() > 1;
        let content = |zone: &Zone| {
            let written = |live: u64| zone.wp.unwrap_or(live);
            let is_taken = |of: &ZoneUse| of.tenant == own && ["leased", "parked"].contains(&of.state);
            Some(match used.get(&zone.id.0) {
                Some((None, live, _)) => ZoneContent::of(zone, Holds::Log, (*live, written(*live))),
                Some((Some(group), live, tables)) => ZoneContent {
                    part: view.parts.iter().position(|part| divided && *group != BOTTOM && part.id == group.part),
                    window: windows.contains(&(group.level, zone.id.0)),
                    tables: *tables,
                    ..ZoneContent::of(
                        zone,
                        Holds::Tables((*group != BOTTOM).then_some(group.level)),
                        (*live, written(*live)),
                    )
                },
                None if table.zones.get(zone.id.0 as usize).is_some_and(is_taken) => {
                    ZoneContent::of(zone, Holds::Metadata, (written(0), written(0)))
                }
                None => return None,
            })
        };
        Ok(report.iter().filter_map(content).collect())
    }
}

impl ZoneContent {
    fn of(zone: &Zone, holds: Holds, (live, written): (u64, u64)) -> ZoneContent {
        let capacity = zone.capacity;
        ZoneContent { zone: zone.id.0, holds, part: None, live, written, capacity, tables: 0, window: false }
    }
}
