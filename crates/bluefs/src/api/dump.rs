//! A look at the metadata as it is: for `imbrex fs dump` and whoever wants to know where everything stands. Page by page, so that it needs
//! no memory for all files at once.

use crate::api::fs::{Attributes, BlueFs, attributes};
use crate::meta::{Inode, Meta, OPEN, Place, Serial};
use crate::sync::lock;
use imbrex_device::{Result, Zone, ZoneId, report_all};
use imbrex_zones::log::{LogZone, LogZoneState};

/// A file or directory: everything that the journal says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Serial, kind, size and times.
    pub attributes: Attributes,
    /// Its paths, by the serials of their directories; several where it has several names.
    pub paths: Vec<String>,
    /// Where its bytes stand, in the order of the file.
    pub extents: Vec<Stretch>,
}

/// A run of a file's bytes that is contiguous on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes; `None`: it is still growing.
    pub len: Option<u64>,
    /// The sequential zone and its life; `None`: conventional space, or the journal of a drive that has none.
    pub zone: Option<(u32, u64)>,
    /// Byte address on the drive. Of frames, where one at or before the first byte begins.
    pub address: u64,
    /// Frames with headers, as logs are written, and not bare bytes.
    pub framed: bool,
}

/// Where the journal stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalPlace {
    /// How often it was written anew.
    pub generation: u64,
    /// The zones of its ring that are in use and their lives, in order; records go to the last.
    pub zones: Vec<(u32, u64)>,
}

/// A zone of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonePlace {
    /// What the drive says of it.
    pub zone: Zone,
    /// What bluefs has in it; `None`: nothing.
    pub holds: Option<Holds>,
}

/// What bluefs has in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A part of the journal's ring.
    Journal {
        /// The zone's life; 0: it was not used yet.
        life: u64,
    },
    /// Bytes of files.
    Files {
        /// The zone's life.
        life: u64,
        /// Pieces of files.
        pieces: u64,
    },
}

impl BlueFs {
    /// At most `most` files and directories behind the serial `after`, by serial; none: there are no more.
    pub fn nodes(&self, after: Option<Serial>, most: usize) -> Vec<Node> {
        let core = self.core();
        let state = lock(&core.meta);
        let node = |inode: &Inode| {
            let stretch = |extent: &crate::meta::Extent| {
                let (address, framed) = match extent.place {
                    Place::Conventional { addr } => (addr, false),
                    Place::Raw { zone, offset, .. } => (core.volume.geometry().start(ZoneId(zone)) + offset, false),
                    Place::Framed { zone, offset, .. } => (core.volume.geometry().start(ZoneId(zone)) + offset, true),
                };
                let len = (extent.len != OPEN).then_some(extent.len);
                Stretch { logical: extent.logical, len, zone: extent.place.zone(), address, framed }
            };
            Some(Node {
                attributes: attributes(core, &state, inode.serial)?,
                paths: paths(&state.meta, inode.serial),
                extents: inode.extents.iter().map(stretch).collect(),
            })
        };
        state.meta.nodes_after(after.unwrap_or(0)).take(most).filter_map(node).collect()
    }

    /// Where the journal stands.
    pub fn journal_place(&self) -> JournalPlace {
        let journal = &self.core().journal;
        let used = |zone: &LogZone| matches!(zone.state, LogZoneState::Current | LogZoneState::Full);
        let mut zones: Vec<_> = journal.zones().into_iter().filter(used).map(|zone| (zone.zone.0, zone.life)).collect();
        zones.sort_by_key(|(_, life)| *life);
        JournalPlace { generation: journal.generation(), zones }
    }

    /// All zones of the drive, with what bluefs has in them.
    ///
    /// # Errors
    /// Where the drive does not report its zones.
    pub fn zone_places(&self) -> Result<Vec<ZonePlace>> {
        let core = self.core();
        let zones = report_all(core.volume.device().as_ref())?;
        let journal = core.journal.zones();
        let state = lock(&core.meta);
        let place = |zone: Zone| {
            let number = zone.id.0;
            let in_journal = journal.iter().find(|of| of.zone == zone.id);
            let holds = match (in_journal, state.meta.zone_life(number)) {
                (Some(of), _) => Some(Holds::Journal { life: of.life }),
                (None, Some(life)) => Some(Holds::Files { life, pieces: state.meta.pieces(number).count() as u64 }),
                (None, None) => None,
            };
            ZonePlace { zone, holds }
        };
        Ok(zones.into_iter().map(place).collect())
    }
}

/// Every path of a file or directory.
fn paths(meta: &Meta, serial: Serial) -> Vec<String> {
    if serial == crate::meta::ROOT {
        return vec!["/".into()];
    }
    let path = |(directory, name): (Serial, &crate::meta::Name)| {
        let above = meta.path_of(directory);
        format!("{}/{name}", above.trim_end_matches('/'))
    };
    meta.names_of(serial).map(path).collect()
}
