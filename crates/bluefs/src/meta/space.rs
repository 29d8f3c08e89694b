//! Who has which space on the drive: an index over the extents of all files, so that two files never get the same.

use super::inode::{Extent, Place};
use super::{MetaError, Result, Serial};
use std::collections::BTreeMap;

/// The index. It follows from the inodes; nothing else is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Space {
    /// Zone → (file, life).
    zones: BTreeMap<u32, (Serial, u64)>,
    /// Address → (bytes, file), one entry an extent; disjoint.
    conventional: BTreeMap<u64, (u64, Serial)>,
}

impl Space {
    pub fn zone_user(&self, zone: u32) -> Option<(Serial, u64)> {
        self.zones.get(&zone).copied()
    }

    pub fn zones(&self) -> impl ExactSizeIterator<Item = (u32, Serial, u64)> + '_ {
        self.zones.iter().map(|(zone, (serial, life))| (*zone, *serial, *life))
    }

    pub fn conventional(&self) -> impl ExactSizeIterator<Item = (u64, u64, Serial)> + '_ {
        self.conventional.iter().map(|(addr, (len, serial))| (*addr, *len, *serial))
    }

    /// A file with an extent in the way of one at `addr..addr + len`.
    pub fn conventional_user(&self, addr: u64, len: u64) -> Option<Serial> {
        let (at, (have, serial)) = self.conventional.range(..addr.saturating_add(len)).next_back()?;
        (at.saturating_add(*have) > addr).then_some(*serial)
    }

    /// Whether every byte of a range of conventional space belongs to some extent.
    pub fn covers(&self, addr: u64, len: u64) -> bool {
        let Some(end) = addr.checked_add(len) else { return false };
        let mut at = addr;
        while at < end {
            match self.conventional.range(..=at).next_back().map(|(from, (len, _))| from.saturating_add(*len)) {
                Some(to) if to > at => at = to,
                _ => return false,
            }
        }
        true
    }

    /// Refuses an extent of `serial` whose space is taken.
    pub fn admit(&self, serial: Serial, extent: &Extent) -> Result<()> {
        let free = match extent.place {
            Place::Conventional { addr } => self.conventional_user(addr, extent.len).is_none(),
            Place::Raw { zone, life, .. } | Place::Framed { zone, life, .. } => {
                self.zones.get(&zone).is_none_or(|user| *user == (serial, life))
            }
        };
        match free {
            true => Ok(()),
            false => Err(MetaError::Invalid("the space of the extent belongs to another extent; free it first")),
        }
    }

    pub fn insert(&mut self, serial: Serial, extent: &Extent) {
        match extent.place {
            Place::Conventional { addr } => {
                self.conventional.insert(addr, (extent.len, serial));
            }
            Place::Raw { zone, life, .. } | Place::Framed { zone, life, .. } => {
                self.zones.insert(zone, (serial, life));
            }
        }
    }

    /// Takes out an extent in conventional space; one in a sequential zone leaves the zone to [`Self::remove_zone`].
    pub fn remove_conventional(&mut self, extent: &Extent) {
        if let Some((addr, _)) = extent.conventional() {
            self.conventional.remove(&addr);
        }
    }

    /// Takes out a zone; whether it was there.
    pub fn remove_zone(&mut self, zone: u32) -> bool {
        self.zones.remove(&zone).is_some()
    }
}
