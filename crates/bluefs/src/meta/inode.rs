//! One file: its inode, its extents, and what an operation would do to them.
//!
//! The functions named `plan_…` are pure: they say which extents to replace by which, and which pieces of the drive
//! fall out, and change nothing. The tree carries a plan out once it knows that all of it is legal.
//!
//! Invariants of a file's extents: sorted by `logical`, none empty, none overlapping; only the last may be [`OPEN`], and
//! never a conventional one. Holes are allowed (they read as zeros).

use super::{MetaError, Result, Serial};
use crate::kind::FileKind;
use imbrex_zones::conventional::UNIT;
use std::ops::Range;

/// The length of an extent that is still growing; only a file's last one may have it.
pub const OPEN: u64 = u64::MAX;

/// No file is larger than this, in bytes.
pub const MAX_SIZE: u64 = 1 << 62;

/// Where on the drive bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In conventional space, from this byte address on.
    Conventional {
        /// Byte address on the drive.
        addr: u64,
    },
    /// Bare bytes in a sequential zone.
    Raw {
        /// The zone.
        zone: u32,
        /// The zone's life.
        life: u64,
        /// Bytes from the zone's start to the first byte of the extent.
        offset: u64,
    },
    /// Frames in a sequential zone.
    Framed {
        /// The zone.
        zone: u32,
        /// The zone's life.
        life: u64,
        /// Bytes from the zone's start to a frame at or before the extent's first byte: reading frames forward from
        /// here meets all of the extent. (An extent that is split keeps the offset in both parts.)
        offset: u64,
    },
}

impl Place {
    /// The sequential zone and its life; `None` in conventional space.
    pub fn zone(self) -> Option<(u32, u64)> {
        match self {
            Place::Conventional { .. } => None,
            Place::Raw { zone, life, .. } | Place::Framed { zone, life, .. } => Some((zone, life)),
        }
    }

    /// The place `delta` bytes further on.
    fn skip(self, delta: u64) -> Place {
        match self {
            Place::Conventional { addr } => Place::Conventional { addr: addr.saturating_add(delta) },
            Place::Raw { zone, life, offset } => Place::Raw { zone, life, offset: offset.saturating_add(delta) },
            framed @ Place::Framed { .. } => framed,
        }
    }
}

/// A run of a file's bytes that is contiguous on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Offset in the file of the first byte.
    pub logical: u64,
    /// Bytes, or [`OPEN`].
    pub len: u64,
    /// Where they are.
    pub place: Place,
}

impl Extent {
    /// Offset in the file behind the last byte; `u64::MAX` for an open extent.
    pub fn end(&self) -> u64 {
        self.logical.saturating_add(self.len)
    }

    /// Whether it is still growing.
    pub fn is_open(&self) -> bool {
        self.len == OPEN
    }

    /// The address range in conventional space, as (address, bytes).
    pub fn conventional(&self) -> Option<(u64, u64)> {
        match self.place {
            Place::Conventional { addr } => Some((addr, self.len)),
            _ => None,
        }
    }

    /// The part of it at `from..to` (offsets in the file); `None` when that is empty. An open extent's part is open only
    /// when `to` is `u64::MAX`.
    pub(crate) fn part(&self, from: u64, to: u64) -> Option<Extent> {
        let from = from.max(self.logical);
        let to = to.min(self.end());
        if from >= to {
            return None;
        }
        let len = if self.is_open() && to == u64::MAX { OPEN } else { to - from };
        Some(Extent { logical: from, len, place: self.place.skip(from - self.logical) })
    }

    /// What of a part of an extent lies before `room`, where the space of the extent ends. An open one stays open.
    pub(super) fn before(&self, room: u64) -> Option<Extent> {
        if self.is_open() { (self.logical < room).then_some(*self) } else { self.part(self.logical, room) }
    }

    /// Refuses what no extent may be, whatever stands around it.
    pub(super) fn validate(&self) -> Result<()> {
        if self.len == 0 {
            return Err(MetaError::Invalid("an extent cannot be empty; do not record it"));
        }
        if self.is_open() && self.conventional().is_some() {
            return Err(MetaError::Invalid("only extents in sequential zones can be open; give its length"));
        }
        let len = if self.is_open() { 0 } else { self.len };
        let start = match self.place {
            Place::Conventional { addr } => addr,
            Place::Raw { offset, .. } | Place::Framed { offset, .. } => offset,
        };
        // Both stay true for every part of an extent, so that no sum can overflow later.
        let in_file = self.logical.checked_add(len).is_some_and(|end| end <= MAX_SIZE);
        if in_file && start <= self.logical + MAX_SIZE {
            Ok(())
        } else {
            Err(MetaError::Invalid("the extent ends beyond what a file or a drive can hold; shorten it"))
        }
    }
}

/// A file or directory, without its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number, never given out twice.
    pub serial: Serial,
    /// How its bytes are placed.
    pub kind: FileKind,
    /// Whether its size is final. A closed file has no open extent; it is reopened before it is appended to.
    pub closed: bool,
    /// How many directory entries name it. The root, which none names, has 1.
    pub nlink: u32,
    /// Nanoseconds since 1970.
    pub created: u64,
    /// Nanoseconds since 1970.
    pub modified: u64,
    /// Bytes, as journaled. An open log may hold more: its end is found by its last frame.
    pub size: u64,
    /// A size that counts only when the drive has not lost power since it was recorded; more than `size`.
    pub volatile_size: Option<u64>,
    /// Bytes that the application announced, 0 for none.
    pub allocated: u64,
    /// Sorted by `logical`.
    pub extents: Vec<Extent>,
}

/// Which extents to replace by which.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Indices of the extents that go.
    pub at: Range<usize>,
    /// What comes in their place.
    pub with: Vec<Extent>,
    /// The pieces of the drive that no longer hold bytes of the file.
    pub gone: Vec<Extent>,
}

impl Inode {
    pub(super) fn new(serial: Serial, kind: FileKind, time: u64) -> Inode {
        Inode {
            serial,
            kind,
            closed: false,
            nlink: 0,
            created: time,
            modified: time,
            size: 0,
            volatile_size: None,
            allocated: 0,
            extents: Vec::new(),
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Offset behind the last byte that an extent has room for; `u64::MAX` with an open extent, 0 without any.
    pub fn reach(&self) -> u64 {
        self.extents.last().map_or(0, Extent::end)
    }

    /// The largest size known: the volatile one where there is one.
    pub fn known_size(&self) -> u64 {
        self.volatile_size.map_or(self.size, |volatile| volatile.max(self.size))
    }

    /// The index of the extent that holds the byte at `offset`; `None` in a hole or beyond the end.
    pub fn extent_at(&self, offset: u64) -> Option<usize> {
        let behind = self.extents.partition_point(|e| e.logical <= offset);
        let index = behind.checked_sub(1)?;
        (offset < self.extents[index].end()).then_some(index)
    }

    /// The holes between 0 and the end of the last extent, as (offset, bytes). A sequential file has one only after
    /// damage.
    pub fn holes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut end = 0;
        self.extents.iter().filter_map(move |e| {
            let hole = (e.logical > end).then(|| (end, e.logical - end));
            end = e.end();
            hole
        })
    }

    /// Appends `extent`. An open predecessor ends where it begins, and goes when that leaves it empty.
    pub(super) fn plan_extend(&self, extent: Extent) -> Result<Plan> {
        extent.validate()?;
        let n = self.extents.len();
        let Some(last) = self.extents.last() else {
            return Ok(Plan { at: 0..0, with: vec![extent], gone: Vec::new() });
        };
        if !last.is_open() {
            return match extent.logical >= last.end() {
                true => Ok(Plan { at: n..n, with: vec![extent], gone: Vec::new() }),
                false => Err(MetaError::Invalid("the extent overlaps the file's last one; truncate the file first")),
            };
        }
        if extent.logical < last.logical {
            return Err(MetaError::Invalid("the extent begins before the open one; truncate the file first"));
        }
        match last.part(last.logical, extent.logical) {
            Some(closed) => Ok(Plan { at: n - 1..n, with: vec![closed, extent], gone: Vec::new() }),
            None => Ok(Plan { at: n - 1..n, with: vec![extent], gone: vec![*last] }),
        }
    }

    /// Cuts everything at and behind `size`. Conventional extents are cut at multiples of `unit` bytes of address, so
    /// they may reach past it.
    pub(super) fn plan_cut(&self, size: u64, unit: u64) -> Plan {
        let n = self.extents.len();
        let first = self.extents.partition_point(|e| e.end() <= size);
        let mut plan = Plan { at: first..n, ..Plan::default() };
        for e in &self.extents[first..] {
            let mut keep = size;
            if let (Place::Conventional { addr }, true) = (e.place, size > e.logical) {
                let cut = addr.saturating_add(size - e.logical);
                let cut = cut.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
                keep = e.logical.saturating_add(cut - addr);
            }
            plan.with.extend(e.part(e.logical, keep));
            // What an open extent loses has no length yet; its zone alone matters.
            plan.gone.extend(e.part(keep.max(e.logical), u64::MAX));
        }
        plan
    }

    /// What [`Self::reach`] will be after a plan that replaces the extents up to the last.
    pub(super) fn reach_after(&self, plan: &Plan) -> u64 {
        let last = plan.with.last().or_else(|| self.extents[..plan.at.start].last());
        last.map_or(0, Extent::end)
    }

    /// Fixes the size: a last extent in a sequential zone ends there.
    pub(super) fn plan_seal(&self, size: u64) -> Result<Plan> {
        let plan = match self.extents.last() {
            Some(last) if last.place.zone().is_some() => {
                if size < last.logical {
                    return Err(MetaError::Invalid(
                        "the final size lies before the last extent; truncate the file first",
                    ));
                }
                self.plan_cut(size, UNIT)
            }
            _ => Plan { at: self.extents.len()..self.extents.len(), ..Plan::default() },
        };
        if self.kind.is_sequential() && size > self.reach_after(&plan) {
            return Err(MetaError::Invalid("the final size lies beyond the last extent; record the extent first"));
        }
        Ok(plan)
    }

    /// Moves the bytes `new` covers to its place. With `strict` all of them must be in extents already.
    pub(super) fn plan_remap(&self, new: Extent, strict: bool) -> Result<Plan> {
        new.validate()?;
        if new.is_open() {
            return Err(MetaError::Invalid("bytes can only be moved to an extent with a length; give it"));
        }
        let (from, to) = (new.logical, new.end());
        let first = self.extents.partition_point(|e| e.end() <= from);
        let behind = first + self.extents[first..].partition_point(|e| e.logical < to);
        let old = &self.extents[first..behind];
        let mut plan = Plan { at: first..behind, ..Plan::default() };
        plan.with.extend(old.first().and_then(|e| e.part(0, from)));
        plan.with.push(new);
        plan.with.extend(old.last().and_then(|e| e.part(to, u64::MAX)));
        plan.gone.extend(old.iter().filter_map(|e| e.part(from, to)));
        let covered: u64 = plan.gone.iter().map(|e| e.len).sum();
        if strict && covered != new.len {
            return Err(MetaError::Invalid("only bytes that the file has can be moved; record the extent first"));
        }
        Ok(plan)
    }

    /// Takes out every extent that lies in `zone`, and every piece of one in the conventional range `from..to`.
    pub(super) fn plan_evict(&self, zone: Option<u32>, from: u64, to: u64) -> Plan {
        let mut plan = Plan { at: 0..self.extents.len(), ..Plan::default() };
        for e in &self.extents {
            match e.place {
                Place::Raw { zone: z, .. } | Place::Framed { zone: z, .. } if Some(z) == zone => plan.gone.push(*e),
                Place::Conventional { addr } if zone.is_none() && addr < to && from < addr.saturating_add(e.len) => {
                    let cut = |at: u64| e.logical + (at.clamp(addr, addr + e.len) - addr);
                    plan.with.extend(e.part(e.logical, cut(from)));
                    plan.gone.extend(e.part(cut(from), cut(to)));
                    plan.with.extend(e.part(cut(to), e.end()));
                }
                _ => plan.with.push(*e),
            }
        }
        plan
    }
}

/// Offset in its zone of the next stretch of the same file behind extent `i`; `None`: it is the file's last one there.
pub fn next_stretch(extents: &[Extent], i: usize) -> Option<u64> {
    let offset = |e: &Extent| match e.place {
        Place::Raw { offset, .. } | Place::Framed { offset, .. } => Some(offset),
        Place::Conventional { .. } => None,
    };
    let this = extents.get(i)?;
    let here = offset(this)?;
    let same = extents.iter().filter(|e| e.place.zone() == this.place.zone());
    same.filter_map(offset).filter(|at| *at > here).min()
}

/// The extents of a file after the bytes of `new` were moved to its place: what [`Record::Remap`](super::Record::Remap) does,
/// for a file that the metadata has forgotten. [`MetaError::Invalid`] where the file does not have these bytes.
pub fn remapped(extents: &[Extent], new: Extent) -> Result<Vec<Extent>> {
    let mut inode = Inode { extents: extents.to_vec(), ..Inode::new(0, FileKind::Table, 0) };
    let plan = inode.plan_remap(new, true)?;
    inode.extents.splice(plan.at, plan.with);
    Ok(inode.extents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(logical: u64, len: u64, zone: u32, offset: u64) -> Extent {
        Extent { logical, len, place: Place::Raw { zone, life: 1, offset } }
    }
    fn conventional(logical: u64, len: u64, addr: u64) -> Extent {
        Extent { logical, len, place: Place::Conventional { addr } }
    }
    fn file(kind: FileKind, extents: &[Extent]) -> Inode {
        Inode { extents: extents.to_vec(), ..Inode::new(9, kind, 0) }
    }

    #[test]
    fn an_open_extent_ends_where_the_next_begins() {
        let f = file(FileKind::Table, &[raw(0, OPEN, 1, 4096)]);
        let plan = f.plan_extend(raw(100, OPEN, 2, 4096)).unwrap();
        assert_eq!(plan, Plan { at: 0..1, with: vec![raw(0, 100, 1, 4096), raw(100, OPEN, 2, 4096)], gone: vec![] });
        // A zone that died before it took a byte.
        let plan = f.plan_extend(raw(0, OPEN, 2, 4096)).unwrap();
        assert_eq!(plan, Plan { at: 0..1, with: vec![raw(0, OPEN, 2, 4096)], gone: vec![raw(0, OPEN, 1, 4096)] });
    }

    #[test]
    fn a_remap_splits_what_it_lies_in() {
        let f = file(FileKind::Table, &[raw(0, 100, 1, 4096), raw(100, OPEN, 2, 4096)]);
        let plan = f.plan_remap(conventional(90, 20, 0), true).unwrap();
        assert_eq!(plan.at, 0..2);
        assert_eq!(plan.with, [raw(0, 90, 1, 4096), conventional(90, 20, 0), raw(110, OPEN, 2, 4106)]);
        assert_eq!(plan.gone, [raw(90, 10, 1, 4186), raw(100, 10, 2, 4096)]);
        let whole = f.plan_remap(conventional(0, 100, 0), true).unwrap();
        assert_eq!((whole.at, whole.with), (0..1, vec![conventional(0, 100, 0)]));
        let short = file(FileKind::Table, &[raw(0, 100, 1, 0)]);
        assert!(short.plan_remap(conventional(90, 20, 0), true).is_err());
        assert!(short.plan_remap(conventional(90, 20, 0), false).is_ok());
    }

    #[test]
    fn a_split_framed_extent_keeps_its_offset() {
        let place = Place::Framed { zone: 3, life: 1, offset: 4096 };
        let f = file(FileKind::Log, &[Extent { logical: 0, len: 100, place }]);
        let plan = f.plan_remap(conventional(10, 10, 0), true).unwrap();
        assert_eq!(plan.with[2], Extent { logical: 20, len: 80, place });
    }

    #[test]
    fn a_cut_keeps_whole_units_of_conventional_space() {
        let unit = UNIT;
        let f = file(FileKind::Random, &[conventional(0, 3 * unit, unit), conventional(3 * unit, unit, 9 * unit)]);
        let plan = f.plan_cut(unit + 1, unit);
        assert_eq!(plan.with, [conventional(0, 2 * unit, unit)]);
        assert_eq!(plan.gone, [conventional(2 * unit, unit, 3 * unit), conventional(3 * unit, unit, 9 * unit)]);
        assert_eq!(f.plan_cut(0, unit).with, []);
        assert_eq!(f.plan_cut(4 * unit, unit), Plan { at: 2..2, ..Plan::default() });
    }

    #[test]
    fn a_seal_gives_the_last_extent_its_length() {
        let f = file(FileKind::Table, &[raw(0, 100, 1, 0), raw(100, OPEN, 2, 0)]);
        assert_eq!(f.plan_seal(150).unwrap().with, [raw(100, 50, 2, 0)]);
        let empty = f.plan_seal(100).unwrap();
        assert_eq!((empty.with, empty.gone), (vec![], vec![raw(100, OPEN, 2, 0)]));
        assert!(f.plan_seal(99).is_err());
        assert!(file(FileKind::Table, &[raw(0, 100, 1, 0)]).plan_seal(101).is_err());
        assert!(file(FileKind::Random, &[]).plan_seal(101).is_ok(), "a random file may end in a hole");
    }

    #[test]
    fn extents_are_found_by_offset() {
        let f = file(FileKind::Random, &[conventional(10, 10, 0), conventional(30, 10, 100)]);
        assert_eq!([0, 9, 10, 19, 20, 30, 39, 40].map(|at| f.extent_at(at)), {
            [None, None, Some(0), Some(0), None, Some(1), Some(1), None]
        });
        assert_eq!(f.holes().collect::<Vec<_>>(), [(0, 10), (20, 10)]);
    }

    #[test]
    fn impossible_extents_are_refused() {
        for bad in [
            raw(0, 0, 1, 0),
            raw(u64::MAX, OPEN, 1, 0),
            raw(MAX_SIZE + 1, OPEN, 1, 0),
            raw(2, u64::MAX - 2, 1, 0),
            raw(2, MAX_SIZE - 1, 1, 0),
            raw(0, 2, 1, u64::MAX - 1),
            conventional(0, OPEN, 0),
            conventional(0, 10, MAX_SIZE + 1),
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
        assert!(raw(MAX_SIZE, OPEN, 1, MAX_SIZE).validate().is_ok());
        assert!(raw(0, MAX_SIZE, 1, 0).validate().is_ok());
    }
}
