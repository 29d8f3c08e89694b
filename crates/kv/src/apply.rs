//! Changes of a batch get their numbers, go to the log, and then to memory, where readers see them.

use crate::batch::{Act, Body, Change};
use crate::core::Core;
use crate::manifest::MOST;
use crate::ranges::RangeTombstone;
use crate::space::{self, MARK, full};
use crate::table::Kind;
use imbrex_device::{Code, Result};
use std::sync::atomic::Ordering;

/// The keys of the tree between which a range is.
pub(crate) fn ends(change: &Change<'_>) -> (Vec<u8>, Vec<u8>) {
    let (from, to) = change.range();
    let (begin, end) = space::ends(change.space, from, to);
    if change.act == Act::DropSpace { (space::dropped(change.space).to_vec(), end) } else { (begin, end) }
}

/// What an entry of a user's key takes of a table at the most: it stands in the entry, in two indexes, and in the table's description.
pub(crate) fn entry_bytes(key: usize, value: usize) -> u64 {
    6 * (MARK + key) as u64 + value as u64
}

/// Gives changes their numbers, and appends them to the log. Returns where their record stands, and the number of its first change. Whoever calls is the only one that
/// writes, and [inserts](insert) the changes next. `spare`: it makes room.
pub(crate) fn append(core: &Core, (body, space): (Body<'_>, u16), spare: bool) -> Result<(u64, u64)> {
    core.tenant.volume().check_poison()?;
    if !core.spaces.are_there(body.changes_in(space).map(|change| change.space)) {
        let sentence = "the space is gone; it was dropped";
        return Err(core.refused(Code::NotFound, sentence));
    }
    let seq = core.visible.load(Ordering::Acquire) + 1;
    if seq + body.len() as u64 > MOST {
        let sentence = "the numbers of changes are used up; copy what it has to a new store";
        return Err(core.refused(Code::NoSpace, sentence));
    }
    let (front, rest) = body.record(core.salt(), seq, space);
    Ok((core.wal()?.append(spare, &[&front, rest])?, seq))
}

/// What a change of a single key is in a table.
pub(crate) fn kind_of(act: Act) -> Kind {
    match act {
        Act::Put => Kind::Put,
        Act::Merge => Kind::Merge,
        Act::Delete | Act::DeleteRange | Act::DropSpace | Act::Ingest => Kind::Delete,
    }
}

/// Puts the changes of a record into memory, where readers see them; `record`: where it stands in the log, and the number of its first change. `is_known`: tables have the
/// operand of that number already.
pub(crate) fn insert<'a>(
    core: &Core,
    changes: impl Iterator<Item = Change<'a>>,
    record: (u64, u64),
    is_known: impl Fn(&[u8], u64) -> bool,
) {
    let (view, mut seq) = (core.view(), record.1);
    for change in changes {
        let kind = kind_of(change.act);
        if change.act == Act::DropSpace {
            core.spaces.remove(change.space);
        }
        if change.is_range() {
            let (begin, end) = ends(&change);
            if core.order().compare(&begin, &end).is_lt() {
                core.delete_range(RangeTombstone { begin, end, seq }, record);
            }
        } else if change.act != Act::Ingest {
            let key = full(change.space, change.key);
            if kind != Kind::Merge || !is_known(&key, seq) {
                view.part(core.order(), &key).memory.add(seq, kind, &key, change.value, record);
            }
        }
        seq += 1;
    }
    // Never back: behind a hole of the log tables may have newer changes.
    core.visible.fetch_max(seq - 1, Ordering::Release);
}
