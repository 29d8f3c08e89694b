//! Which changes a table keeps: those that somebody may still read.

use crate::apply::entry_bytes;
use crate::core::Core;
use crate::core::file::TableFile;
use crate::core::view::View;
use crate::cursor::{At, Cursor};
use crate::ranges::RangeTombstones;
use crate::read::newest;
use crate::space::split;
use crate::table::Kind;
use imbrex_device::Result;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Which changes somebody may still read.
pub(super) struct Keep {
    /// Numbers that somebody reads at, ascending, and the newest.
    seqs: Vec<u64>,
    /// What there is, and the numbers of the tables that are merged: the rest may have what is older or newer. `None`: what is kept is newer than all of it.
    view: Option<Arc<View>>,
    inputs: BTreeSet<u64>,
    /// What is older is in tables only. Of changes in memory it may also be in memory.
    below: bool,
    /// Ranges that are deleted, durably.
    ranges: Option<RangeTombstones>,
}

impl Keep {
    /// Of changes in memory.
    pub fn of_memory(core: &Core) -> Keep {
        let mut seqs = core.reader_seqs();
        seqs.push(u64::MAX);
        let view = core.view();
        let ranges = view.ranges.noted(core.order());
        Keep { seqs, view: Some(view), inputs: BTreeSet::new(), below: false, ranges }
    }

    /// Of pairs that are newer than all else: each of them.
    pub fn all() -> Keep {
        Keep { seqs: vec![u64::MAX], view: None, inputs: BTreeSet::new(), below: false, ranges: None }
    }

    /// Of a merge of these `inputs`, which are among the tables of the view.
    pub fn of_merge(core: &Core, view: Arc<View>, inputs: BTreeSet<u64>) -> Keep {
        Keep { view: Some(view), inputs, below: true, ..Keep::of_memory(core) }
    }

    /// The first reader that sees a change with this number.
    fn reader(&self, seq: u64) -> usize {
        self.seqs.partition_point(|reader| *reader < seq)
    }

    /// Whether a deleted range hides a change from whoever would read it.
    fn is_deleted(&self, core: &Core, key: &[u8], seq: u64) -> bool {
        self.floor(core, key, self.reader(seq)) > seq
    }

    /// What has a lower number is deleted for the reader, durably.
    fn floor(&self, core: &Core, key: &[u8], reader: usize) -> u64 {
        let Some(ranges) = &self.ranges else { return 0 };
        let upto = self.seqs.get(reader).copied().unwrap_or(u64::MAX);
        ranges.cover(core.order(), key, upto).unwrap_or(0)
    }

    /// Whether there may be changes of a key that are not merged, with numbers between these two.
    fn others(&self, core: &Core, key: &[u8], (from, to): (u64, u64)) -> bool {
        let Some(view) = &self.view else { return true };
        let between = |table: &&Arc<TableFile>| {
            !self.inputs.contains(&table.info.id) && table.info.seqs.0 < to && table.info.seqs.1 > from
        };
        view.tables.with_key(core.order(), key).iter().any(between)
            || to <= view.ingested && view.memory_has(core.order(), key, to.saturating_sub(1))
    }

    /// Whether a delete hides nothing that is not merged, and no reader needs it.
    fn may_drop(&self, core: &Core, key: &[u8], seq: u64) -> bool {
        self.below && self.reader(seq) == self.reader(0) && !self.others(core, key, (0, seq))
    }
}

/// In place of a reader: no change was passed on that hides those behind it.
const NOBODY: usize = usize::MAX;

/// The changes of a cursor that somebody may still read.
pub(super) struct Kept<'a, C> {
    core: &'a Core,
    cursor: C,
    keep: Keep,
    /// The key that the cursor is in, and the first reader of the last change of it that was passed on or dropped, and that hides those behind it.
    last: Option<(Vec<u8>, usize)>,
    /// The pair that it stands on is over, and counts as a delete.
    over: bool,
    /// What was made of the operands of a key, which the cursor has passed.
    made: Made,
}

/// Changes of a key, the newest first.
#[derive(Default)]
struct Made {
    key: Vec<u8>,
    changes: VecDeque<(u64, Kind, Vec<u8>)>,
}

/// Where a cursor was, to go back to.
pub(super) struct Place {
    at: (Vec<u8>, u64),
    last: Option<(Vec<u8>, usize)>,
}

impl<'a, C: Cursor> Kept<'a, C> {
    pub fn new(core: &'a Core, cursor: C, keep: Keep) -> Kept<'a, C> {
        Kept { core, cursor, keep, last: None, over: false, made: Made::default() }
    }

    /// Goes to the next change that is kept, from where the cursor is.
    pub fn settle(&mut self) -> Result<()> {
        if !self.made.changes.is_empty() {
            return Ok(());
        }
        while let Some(at) = self.cursor.at() {
            let reader = self.keep.reader(at.seq);
            let same = self.last.as_ref().filter(|(key, _)| self.core.order().compare(key, at.key).is_eq());
            let hidden = same.is_some_and(|(_, newer)| *newer == reader);
            let deleted = !hidden && self.keep.is_deleted(self.core, at.key, at.seq);
            let stays = !hidden && !deleted;
            let over = stays && at.kind == Kind::Put && self.core.spaces.is_over(at.key, at.value);
            // Not a pair that is over: where the cursor stands must be the same each time that this is asked, and time goes on. The next merge drops its delete.
            let dropped = stays && at.kind == Kind::Delete && self.keep.may_drop(self.core, at.key, at.seq);
            if stays && !dropped {
                self.over = over;
                return Ok(());
            }
            if dropped {
                self.last = Some((at.key.to_vec(), reader));
            }
            self.cursor.next()?;
        }
        Ok(())
    }

    /// The change, as it is kept.
    pub fn at(&self) -> Option<At<'_>> {
        if let Some((seq, kind, value)) = self.made.changes.front() {
            return Some(At { key: &self.made.key, seq: *seq, kind: *kind, value });
        }
        let at = self.cursor.at()?;
        Some(if self.over { At { kind: Kind::Delete, value: &[], ..at } } else { at })
    }

    /// Where it stands.
    pub fn place(&self) -> Option<Place> {
        let at = self.at()?;
        Some(Place { at: (at.key.to_vec(), at.seq), last: self.last.clone() })
    }

    /// Stands there again.
    pub fn go_back(&mut self, to: &Place) -> Result<()> {
        self.made.changes.clear();
        self.last = to.last.clone();
        self.cursor.seek(Some((&to.at.0, to.at.1)))
    }

    /// Stands there again, and passes all changes of the key there, if nobody needs them for a newer put or delete that is elsewhere. False: there is none.
    pub fn pass_superseded(&mut self, place: &Place) -> Result<bool> {
        let (key, seq) = (&place.at.0, place.at.1);
        let view = self.core.view();
        let mut newer = newest(self.core, &view, key, u64::MAX, 0)?;
        while let Some((at, Kind::Merge, _)) = newer
            && at > seq
        {
            newer = newest(self.core, &view, key, at - 1, 0)?;
        }
        let hides =
            |(at, ..): &(u64, Kind, Vec<u8>)| *at > seq && self.core.reader_seqs().iter().all(|reader| reader >= at);
        if !newer.as_ref().is_some_and(hides) {
            return Ok(false);
        }
        // What hides them must outlive them: the flush that makes the tables durable is for the log, too.
        self.core.wal()?.write()?;
        self.go_back(place)?;
        self.last = Some((key.clone(), self.keep.reader(seq)));
        Ok(true)
    }

    /// The cursor alone. The tables of before are let go, so that zones of those that are gone are free with the next commit.
    pub fn into_cursor(self) -> C {
        self.cursor
    }

    /// The change was taken.
    pub fn advance(&mut self) -> Result<()> {
        let Some(at) = self.at() else { return Ok(()) };
        let newer = match at.kind {
            Kind::Merge => self
                .last
                .as_ref()
                .filter(|(key, _)| self.core.order().compare(key, at.key).is_eq())
                .map(|(_, newer)| *newer),
            Kind::Put | Kind::Delete => Some(self.keep.reader(at.seq)),
        };
        self.last = Some((at.key.to_vec(), newer.unwrap_or(NOBODY)));
        if self.made.changes.pop_front().is_some() { Ok(()) } else { self.cursor.next() }
    }

    /// Where it stands on an operand, it makes one change of that and of those behind it, as far as no reader needs them apart.
    pub fn combine(&mut self) -> Result<()> {
        let Some(first) = self.cursor.at().filter(|at| at.kind == Kind::Merge && self.made.changes.is_empty()) else {
            return Ok(());
        };
        let Some((operator, user)) =
            split(first.key).and_then(|(space, user)| Some((self.core.spaces.operator(space)?, user)))
        else {
            return Ok(());
        };
        let (key, user, newest) = (first.key.to_vec(), user.to_vec(), first.seq);
        let base = self.gather(&key, newest)?;
        let seqs: Vec<u64> = self.made.changes.iter().map(|(seq, ..)| *seq).collect();
        let operands: Vec<&[u8]> = self.made.changes.iter().rev().map(|(.., value)| value.as_slice()).collect();
        let fits = |value: &Vec<u8>| entry_bytes(user.len(), value.len()) <= self.core.largest_entry();
        let alone = |from: u64| !self.keep.others(self.core, &key, (from, newest));
        let value = base.as_ref().filter(|base| alone(base.seq));
        let value = value.map(|base| operator.merge(&user, base.value.as_deref(), &operands)).filter(fits);
        if let Some(value) = value {
            // Who reads the one before reads no operand.
            if base.is_some_and(|base| base.passed) {
                self.cursor.next()?;
            }
            self.made.changes = [(newest, Kind::Put, value)].into();
        } else if operands.len() > 1
            && seqs.last().is_some_and(|oldest| alone(*oldest))
            && let Some(operand) = operator.combine(&user, &operands).filter(fits)
        {
            self.made.changes = [(newest, Kind::Merge, operand)].into();
        }
        self.made.key = key;
        Ok(())
    }

    /// Passes operands of the key which the same readers need as the newest one. Returns what they change; `None`: nobody knows here.
    fn gather(&mut self, key: &[u8], newest: u64) -> Result<Option<Base>> {
        let reader = self.keep.reader(newest);
        let floor = self.keep.floor(self.core, key, reader);
        // A range that is not deleted durably does not count yet, but what is before it is not merged with what is behind.
        let barrier = self.keep.view.as_ref().map_or(0, |view| view.ranges.floor(self.core.order(), key, newest));
        let mut bytes = 0;
        loop {
            let at = self.cursor.at().filter(|at| self.core.order().compare(at.key, key).is_eq());
            let nothing = Base { seq: floor, value: None, passed: false };
            let Some(at) = at else { return Ok((self.keep.below && barrier <= floor).then_some(nothing)) };
            if at.seq < floor.max(barrier) {
                return Ok((barrier <= floor).then_some(nothing));
            }
            let same = self.keep.reader(at.seq) == reader;
            if at.kind != Kind::Merge {
                let there = at.kind == Kind::Put && !self.core.spaces.is_over(at.key, at.value);
                return Ok(Some(Base { seq: at.seq, value: there.then(|| at.value.to_vec()), passed: same }));
            }
            bytes += at.value.len() as u64;
            if !same || bytes > self.core.largest_entry() {
                return Ok(None);
            }
            self.made.changes.push_back((at.seq, Kind::Merge, at.value.to_vec()));
            self.cursor.next()?;
        }
    }
}

/// What operands change.
struct Base {
    /// What is older does not matter.
    seq: u64,
    value: Option<Vec<u8>>,
    /// Only those need it who read the operands.
    passed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::recover;
    use imbrex_device::Drive;
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};

    #[test]
    fn a_delete_stays_that_memory_needs() {
        let drive = Drive { device: Arc::new(Emulator::memory(&Config::tiny()).unwrap()), survivor: None };
        let tenants = vec![TenantSpec { name: recover::TENANT.into(), budget: recover::budget(0, 0) }];
        Volume::format(&drive, &FormatOptions { uuid: None, tenants, force: false }).unwrap();
        let options = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let volume = Volume::open(drive, options).unwrap();
        let (core, _) = recover::open(&volume.tenant(recover::TENANT).unwrap(), Options::default()).unwrap();
        let key = crate::space::full(0, b"key");
        core.view().parts[0].memory.add(5, Kind::Put, &key[..], b"old", (0, 5));
        let dropped = |seq: u64| Keep::of_merge(&core, core.view(), BTreeSet::new()).may_drop(&core, &key, seq);
        // What memory has is newer than all in tables.
        assert!(dropped(9));
        core.ingest(&[], 7);
        assert_eq!((dropped(5), dropped(6), dropped(8)), (true, false, true));
    }
}
