//! Who has which space on the drive: an index over the extents of all files, so that two files never get the same.

use super::inode::{Extent, Place};
use super::{MetaError, Result, Serial};
use imbrex_zones::frame::FRAME_HEADER;
use std::collections::BTreeMap;

/// The part of an extent that says where in a zone it is: offset in the zone, file, offset in the file.
type PieceKey = (u64, Serial, u64);

/// What stands in one sequential zone.
#[derive(Clone, Debug)]
struct ZoneUse {
    life: u64,
    pieces: BTreeMap<PieceKey, Stand>,
    /// Bytes of the pieces that can be moved, with what [`Footprint`] adds; follows from the pieces.
    live: u64,
    /// Of each log, the bytes of its pieces that can be moved; follows from the pieces.
    logs: BTreeMap<Serial, u64>,
    /// How many pieces cannot be moved: what is being written; follows from the pieces.
    fixed: u32,
}

/// Bytes of a file that stand somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stand {
    /// Bytes of the file; `u64::MAX` for an open extent.
    len: u64,
    /// In frames: how much of the zone those take is not known here.
    framed: bool,
}

impl Stand {
    /// Bytes of the zone that it surely takes; `u64::MAX` for an open extent of bare bytes.
    fn known(self) -> u64 {
        if self.framed { 0 } else { self.len }
    }
}

impl PartialEq for ZoneUse {
    fn eq(&self, other: &ZoneUse) -> bool {
        self.life == other.life && self.pieces == other.pieces
    }
}
impl Eq for ZoneUse {}

/// What a piece of so many bytes takes where it is moved to. No part of the state: what the drive says.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    /// Bytes of the header in front.
    front: u64,
    /// Bytes of a block.
    block: u64,
}

impl Footprint {
    /// Of a table's piece at this offset.
    fn bare(self, offset: u64, len: u64) -> u64 {
        let bytes = (offset % self.block).saturating_add(len).checked_next_multiple_of(self.block);
        self.front.saturating_add(bytes.unwrap_or(u64::MAX))
    }

    /// Of so many bytes of a log, which move together.
    fn framed(self, len: u64) -> u64 {
        if len == 0 { 0 } else { self.front.saturating_add(framed_bytes(len, self.block)) }
    }
}

impl ZoneUse {
    fn new(life: u64) -> ZoneUse {
        ZoneUse { life, pieces: BTreeMap::new(), live: 0, logs: BTreeMap::new(), fixed: 0 }
    }

    /// A piece is there from now on, or no more.
    fn count(&mut self, key: PieceKey, stand: Stand, comes: bool, footprint: Footprint) {
        let change = |n: u64, by: u64| if comes { n.saturating_add(by) } else { n.saturating_sub(by) };
        match stand {
            Stand { len: u64::MAX, .. } if comes => self.fixed += 1,
            Stand { len: u64::MAX, .. } => self.fixed = self.fixed.saturating_sub(1),
            Stand { len, framed: false } => self.live = change(self.live, footprint.bare(key.0, len)),
            Stand { len, framed: true } => {
                let before = self.logs.get(&key.1).copied().unwrap_or(0);
                let now = change(before, len);
                self.live = self.live.saturating_sub(footprint.framed(before)).saturating_add(footprint.framed(now));
                match now {
                    0 => self.logs.remove(&key.1),
                    _ => self.logs.insert(key.1, now),
                };
            }
        }
    }
}

/// Bytes of a frame that moved bytes of a log stand in, header included.
pub const MOVED_FRAME: u64 = 64 << 10;

/// What so many bytes of a log take in frames of that size.
pub fn framed_bytes(len: u64, block: u64) -> u64 {
    let (frames, rest) = (len / (MOVED_FRAME - FRAME_HEADER as u64), len % (MOVED_FRAME - FRAME_HEADER as u64));
    let last = if rest > 0 { (rest + FRAME_HEADER as u64).next_multiple_of(block) } else { 0 };
    frames.saturating_mul(MOVED_FRAME).saturating_add(last)
}

/// What moving all of a zone would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movable {
    /// Bytes, headers included.
    pub live: u64,
    /// The file whose piece stands behind all others.
    pub last: Serial,
    /// Logs stand there, in frames, and not bare bytes.
    pub framed: bool,
}

/// A stretch of a sequential zone that holds an extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// Bytes from the zone's start.
    pub offset: u64,
    /// The file.
    pub serial: Serial,
    /// Offset in the file.
    pub logical: u64,
}

/// The index. It follows from the inodes; nothing else is in it.
#[derive(Clone, Debug)]
pub(super) struct Space {
    zones: BTreeMap<u32, ZoneUse>,
    /// Address → (bytes, file), one entry an extent; disjoint.
    conventional: BTreeMap<u64, (u64, Serial)>,
    footprint: Footprint,
}

impl Default for Space {
    fn default() -> Self {
        let footprint = Footprint { front: 4096, block: 4096 };
        Space { zones: BTreeMap::new(), conventional: BTreeMap::new(), footprint }
    }
}

impl PartialEq for Space {
    fn eq(&self, other: &Space) -> bool {
        self.zones == other.zones && self.conventional == other.conventional
    }
}
impl Eq for Space {}

/// Zone, life, key and bytes of an extent in a sequential zone.
fn piece_of(serial: Serial, extent: &Extent) -> Option<(u32, u64, PieceKey, Stand)> {
    let (zone, life, offset, framed) = match extent.place {
        Place::Conventional { .. } => return None,
        Place::Raw { zone, life, offset } => (zone, life, offset, false),
        Place::Framed { zone, life, offset } => (zone, life, offset, true),
    };
    Some((zone, life, (offset, serial, extent.logical), Stand { len: extent.len, framed }))
}

impl Space {
    pub fn zone_life(&self, zone: u32) -> Option<u64> {
        self.zones.get(&zone).map(|user| user.life)
    }

    pub fn zones(&self) -> impl ExactSizeIterator<Item = (u32, u64)> + '_ {
        self.zones.iter().map(|(zone, user)| (*zone, user.life))
    }

    /// What the drive says of headers and blocks.
    pub fn set_footprint(&mut self, front: u64, block: u64) {
        self.footprint = Footprint { front, block };
        for user in self.zones.values_mut() {
            let mut anew = ZoneUse::new(user.life);
            user.pieces.iter().for_each(|(key, stand)| anew.count(*key, *stand, true, self.footprint));
            *user = ZoneUse { pieces: std::mem::take(&mut user.pieces), ..anew };
        }
    }

    /// What moving all of a zone would take; `None`: that cannot be moved, or nothing stands there.
    pub fn movable(&self, zone: u32) -> Option<Movable> {
        let user = self.zones.get(&zone).filter(|user| user.fixed == 0)?;
        let (key, stand) = user.pieces.last_key_value()?;
        Some(Movable { live: user.live, last: key.1, framed: stand.framed })
    }

    /// What stands in a zone, by offset.
    pub fn pieces(&self, zone: u32) -> impl DoubleEndedIterator<Item = Piece> + '_ {
        let pieces = self.zones.get(&zone).into_iter().flat_map(|user| user.pieces.keys());
        pieces.map(|&(offset, serial, logical)| Piece { offset, serial, logical })
    }

    /// Offset of the first piece of another file behind this one.
    pub fn next_in_zone(&self, zone: u32, offset: u64, serial: Serial) -> Option<u64> {
        let pieces = &self.zones.get(&zone)?.pieces;
        pieces
            .range((offset, 0, 0)..)
            .map(|(key, _)| key)
            .find(|key| key.1 != serial && key.0 > offset)
            .map(|key| key.0)
    }

    /// Offset in the file up to which an extent of bare bytes can hold them: where those of the next file in its zone begin. That
    /// is what an open extent has instead of a length; `u64::MAX` when nobody is behind it.
    pub fn room_end(&self, serial: Serial, extent: &Extent) -> u64 {
        let Place::Raw { zone, offset, .. } = extent.place else { return u64::MAX };
        let next = self.next_in_zone(zone, offset, serial);
        next.map_or(u64::MAX, |next| extent.logical.saturating_add(next - offset))
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
            Place::Raw { .. } | Place::Framed { .. } => self.zone_user(serial, extent).is_none(),
        };
        match free {
            true => Ok(()),
            false => Err(MetaError::Invalid("the space of the extent belongs to another extent; free it first")),
        }
    }

    /// Another file whose bytes are in the way of an extent in a sequential zone: of an earlier life, or known to stand where
    /// it wants to. Bytes of one file are never in each other's way: what is replaced has the same place.
    pub fn zone_user(&self, serial: Serial, extent: &Extent) -> Option<Serial> {
        let (zone, life, (offset, ..), stand) = piece_of(serial, extent)?;
        let len = stand.known();
        let user = self.zones.get(&zone)?;
        if user.life != life {
            return user.pieces.keys().map(|key| key.1).find(|other| *other != serial).or(Some(serial));
        }
        let end = if len == u64::MAX { offset + 1 } else { offset.saturating_add(len) };
        let others = |key: &PieceKey| key.1 != serial;
        let ahead =
            user.pieces.range((offset, 0, 0)..(end.max(offset + 1), 0, 0)).map(|(key, _)| key).find(|key| others(key));
        let behind = user.pieces.range(..(offset, 0, 0)).rev().find(|(key, _)| others(key));
        let reaches = |(key, stand): &(&PieceKey, &Stand)| {
            stand.known() != u64::MAX && key.0.saturating_add(stand.known()) > offset
        };
        ahead.or(behind.filter(reaches).map(|(key, _)| key)).map(|key| key.1)
    }

    pub fn insert(&mut self, serial: Serial, extent: &Extent) {
        if let Some((zone, life, key, stand)) = piece_of(serial, extent) {
            let user = self.zones.entry(zone).or_insert_with(|| ZoneUse::new(life));
            if user.pieces.insert(key, stand).is_some() {
                // Of damage only: what stood there is counted already.
                return;
            }
            user.count(key, stand, true, self.footprint);
        } else if let Place::Conventional { addr } = extent.place {
            self.conventional.insert(addr, (extent.len, serial));
        }
    }

    /// Takes out an extent. A zone stays until [`Self::remove_empty_zone`].
    pub fn remove(&mut self, serial: Serial, extent: &Extent) {
        if let Some((zone, _, key, stand)) = piece_of(serial, extent) {
            if let Some(user) = self.zones.get_mut(&zone)
                && user.pieces.remove(&key).is_some()
            {
                user.count(key, stand, false, self.footprint);
            }
        } else if let Some((addr, _)) = extent.conventional() {
            self.conventional.remove(&addr);
        }
    }

    /// Takes out a zone in which nothing stands any more; whether it was there.
    pub fn remove_empty_zone(&mut self, zone: u32) -> bool {
        let empty = self.zones.get(&zone).is_some_and(|user| user.pieces.is_empty());
        empty && self.zones.remove(&zone).is_some()
    }
}
