//! Which changes a table keeps: those that somebody may still read.

use crate::core::Core;
use crate::core::file::TableFile;
use crate::core::view::View;
use crate::cursor::{At, Cursor};
use crate::ranges::RangeTombstones;
use crate::table::Kind;
use imbrex_device::Result;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which changes somebody may still read.
pub(super) struct Keep {
    /// Numbers that somebody reads at, ascending, and the newest.
    seqs: Vec<u64>,
    /// What there is, and the numbers of the tables that are merged; a delete may hide something in the rest. `None`: anything may be below.
    others: Option<(Arc<View>, BTreeSet<u64>)>,
    /// Ranges that are deleted, durably.
    ranges: Option<RangeTombstones>,
}

impl Keep {
    /// Of changes in memory.
    pub fn of_memory(core: &Core) -> Keep {
        let mut seqs = core.reader_seqs();
        seqs.push(u64::MAX);
        Keep { seqs, others: None, ranges: core.view().ranges.noted(core.order()) }
    }

    /// Of pairs that are newer than all else: each of them.
    pub fn all() -> Keep {
        Keep { seqs: vec![u64::MAX], others: None, ranges: None }
    }

    /// Of a merge of these `inputs`, which are among the tables of the view.
    pub fn of_merge(core: &Core, view: Arc<View>, inputs: BTreeSet<u64>) -> Keep {
        Keep { others: Some((view, inputs)), ..Keep::of_memory(core) }
    }

    /// The first reader that sees a change with this number.
    fn reader(&self, seq: u64) -> usize {
        self.seqs.partition_point(|reader| *reader < seq)
    }

    /// Whether a deleted range hides a change from whoever would read it.
    fn is_deleted(&self, core: &Core, key: &[u8], seq: u64) -> bool {
        let Some(ranges) = &self.ranges else { return false };
        let upto = self.seqs.get(self.reader(seq)).copied().unwrap_or(u64::MAX);
        ranges.cover(core.order(), key, upto).is_some_and(|deleted| deleted > seq)
    }

    /// Whether a delete hides nothing that is not merged, and no reader needs it.
    fn may_drop(&self, core: &Core, key: &[u8], seq: u64) -> bool {
        let Some((view, inputs)) = &self.others else { return false };
        let older = |table: &&Arc<TableFile>| !inputs.contains(&table.info.id) && table.info.seqs.0 < seq;
        self.reader(seq) == self.reader(0)
            && !view.tables.with_key(core.order(), key).iter().any(older)
            && !(seq <= view.ingested && view.memory_has(core.order(), key, seq.saturating_sub(1)))
    }
}

/// The changes of a cursor that somebody may still read.
pub(super) struct Kept<'a, C> {
    core: &'a Core,
    pub cursor: C,
    keep: Keep,
    /// The key that the cursor is in, and the first reader of the last change of it that was passed on or dropped.
    pub last: Option<(Vec<u8>, usize)>,
    /// The pair that it stands on is over, and counts as a delete.
    over: bool,
}

impl<'a, C: Cursor> Kept<'a, C> {
    pub fn new(core: &'a Core, cursor: C, keep: Keep) -> Kept<'a, C> {
        Kept { core, cursor, keep, last: None, over: false }
    }

    /// Goes to the next change that is kept, from where the cursor is.
    pub fn settle(&mut self) -> Result<()> {
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
        let at = self.cursor.at()?;
        Some(if self.over { At { kind: Kind::Delete, value: &[], ..at } } else { at })
    }

    /// The cursor alone. The tables of before are let go, so that zones of those that are gone are free with the next commit.
    pub fn into_cursor(self) -> C {
        self.cursor
    }

    /// The change was taken.
    pub fn advance(&mut self) -> Result<()> {
        if let Some(at) = self.cursor.at() {
            self.last = Some((at.key.to_vec(), self.keep.reader(at.seq)));
        }
        self.cursor.next()
    }
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
        let tenants = vec![TenantSpec { name: recover::TENANT.into(), budget: recover::budget() }];
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
