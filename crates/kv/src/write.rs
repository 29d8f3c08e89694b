//! Changing the store: what it cannot keep is refused, and the rest is admitted and [applied](crate::apply).

use crate::apply::{append, ends, entry_bytes, insert};
use crate::batch::{Act, Body, Change, MAX_KEY, MAX_VALUE};
use crate::core::Core;
use crate::core::ranges::{MOST_RANGE_BYTES, MOST_RANGES};
use crate::operator::MISSING;
use crate::sync::lock;
use crate::work::Worker;
use imbrex_device::{Code, Result};

/// Refuses what the store cannot keep. Returns how many ranges are deleted, and bytes of their keys in the tree.
fn check(core: &Core, (body, space): (Body<'_>, u16)) -> Result<(usize, u64)> {
    let refuse = |sentence: String| Err(core.refused(Code::InvalidArgument, sentence));
    if body.store().is_some_and(|store| store != core.opening()) {
        return refuse("the batch names spaces of another store, or of an earlier opening; make it anew".into());
    }
    let (mut ranges, mut bytes) = (0, 0);
    for change in body.changes_in(space) {
        if change.act == Act::DeleteRange {
            check_pair(core, change.key.len(), 0)?;
            check_pair(core, change.value.len(), 0)?;
            let (begin, end) = ends(&change);
            if core.order().compare(&begin, &end).is_gt() {
                return refuse("the range ends before it begins; give its first key first".into());
            }
            (ranges, bytes) = (ranges + 1, bytes + (begin.len() + end.len()) as u64);
        } else {
            check_pair(core, change.key.len(), change.value.len())?;
        }
        if change.act == Act::Merge && core.spaces.operator(change.space).is_none() {
            return refuse(MISSING.into());
        }
    }
    if ranges > MOST_RANGES || bytes > MOST_RANGE_BYTES {
        return refuse(format!(
            "a batch that deletes {ranges} ranges with {bytes} bytes of keys is too long; one has {MOST_RANGES} and {MOST_RANGE_BYTES} at most"
        ));
    }
    check_record(core, body.bytes())?;
    Ok((ranges, bytes))
}

/// Refuses a batch whose record is too long: its length stands in 32 bits.
fn check_record(core: &Core, bytes: usize) -> Result<()> {
    if bytes > u32::MAX as usize {
        let sentence = format!("a batch of {bytes} bytes is too long; write it in parts of less than 4 GiB");
        return Err(core.refused(Code::InvalidArgument, sentence));
    }
    Ok(())
}

/// Refuses a key and a value of lengths that the store cannot keep.
pub(crate) fn check_pair(core: &Core, key: usize, value: usize) -> Result<()> {
    let refuse = |sentence: String| Err(core.refused(Code::InvalidArgument, sentence));
    if key > MAX_KEY {
        return refuse(format!("a key of {key} bytes is too long; a key has {MAX_KEY} bytes at most"));
    }
    if value > MAX_VALUE {
        return refuse(format!("a value of {value} bytes is too long; a value has {MAX_VALUE} bytes at most"));
    }
    let most = core.largest_entry();
    if entry_bytes(key, value) > most {
        return refuse(format!(
            "a key of {key} bytes with a value of {value} is too long for a zone of this drive, which takes {most} bytes of both"
        ));
    }
    Ok(())
}

/// Writes a batch, or a single change, to a space. It outlives the process when this returns, and a loss of power when `sync` was asked for. `makes_room`: it may take what is
/// kept for deletions.
pub(crate) fn write(
    core: &Core,
    worker: &Worker,
    (body, space): (Body<'_>, u16),
    (makes_room, sync): (bool, bool),
) -> Result<()> {
    let (ranges, bytes) = check(core, (body, space))?;
    let nothing =
        |change: Change<'_>| change.is_range() && core.order().compare(&ends(&change).0, &ends(&change).1).is_ge();
    if !body.changes_in(space).all(nothing) {
        let deletes = makes_room || body.changes_in(space).all(|change| !change.adds());
        if ranges > 0 {
            worker.make_room_for_ranges(ranges, bytes)?;
        }
        worker.make_room(body.bytes() as u64, deletes)?;
        let one = lock(&core.writing);
        let record = append(core, (body, space), deletes)?;
        insert(core, body.changes_in(space), record, |_, _| false);
        drop(one);
        core.counters.wrote(body);
    }
    if sync { core.wal()?.sync() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Kv, Options};
    use imbrex_device::Drive;
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, VolumeOptions};
    use std::sync::Arc;

    /// Lengths alone are looked at: nobody has 4 GiB for this.
    #[test]
    fn the_longest_is_taken_and_one_byte_more_is_refused() {
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        Kv::format(&drive, None, false).unwrap();
        let volume =
            VolumeOptions { exec: Exec::Inline, survivor_bytes: 1 << 20, unit_bytes: 4 << 10, turn_bytes: 64 << 10 };
        let store = Kv::open(drive, Options { volume, segment_bytes: 16 << 10, ..Options::default() }).unwrap();
        let core = store.core();
        let sentence = |refused: Result<()>| refused.err().map(|error| error.to_string());
        let most = core.largest_entry() as usize - entry_bytes(1, 0) as usize;
        assert_eq!(sentence(check_pair(core, 1, most)), None);
        assert_eq!(
            sentence(check_pair(core, 1, most + 1)).unwrap(),
            format!(
                "mem:tiny: a key of 1 bytes with a value of {} is too long for a zone of this drive, which takes {} bytes of both",
                most + 1,
                core.largest_entry()
            )
        );
        assert_eq!(
            sentence(check_pair(core, MAX_KEY + 1, 0)).unwrap(),
            "mem:tiny: a key of 65537 bytes is too long; a key has 65536 bytes at most"
        );
        // A zone of this drive takes less. One that takes it still has its length in 32 bits.
        assert!(sentence(check_pair(core, 1, MAX_VALUE)).unwrap().contains("too long for a zone"));
        assert_eq!(
            sentence(check_pair(core, 1, MAX_VALUE + 1)).unwrap(),
            "mem:tiny: a value of 4294836225 bytes is too long; a value has 4294836224 bytes at most"
        );
        let mut of_one = Batch::new();
        of_one.put(&[7; MAX_KEY], b"");
        assert_eq!(sentence(check_record(core, of_one.bytes() + MAX_VALUE)), None);
        assert_eq!(sentence(check_record(core, u32::MAX as usize)), None);
        assert_eq!(
            sentence(check_record(core, u32::MAX as usize + 1)).unwrap(),
            "mem:tiny: a batch of 4294967296 bytes is too long; write it in parts of less than 4 GiB"
        );
    }
}
