use super::super::Batch;
use super::super::format::{FRONT, footprint};
use super::*;
use proptest::prelude::*;

const ZONE: u64 = 64 * BLOCK;

fn ring(zones: u32) -> Ring {
    Ring::new((0..zones).map(|zone| Slot { capacity: ZONE, ..Slot::empty(ZoneId(zone)) }).collect(), 0)
}

/// Begins the next zone as the log does, and writes its header.
fn begin(ring: &mut Ring) -> usize {
    ring.leave();
    let i = ring.next().unwrap();
    if ring.slots()[i].dirty {
        ring.was_reset(i);
    }
    let order = ring.begin(i);
    ring.begun(i, order << 8, order, BLOCK);
    i
}

/// Writes a frame of so many bytes; false: there is no room.
fn put(ring: &mut Ring, bytes: u64) -> bool {
    if ring.takes(bytes).is_none() {
        if ring.next().is_none() {
            return false;
        }
        begin(ring);
    }
    let i = ring.takes(bytes).unwrap();
    ring.wrote(i, ring.slots()[i].tail + bytes, true);
    true
}

fn states(ring: &Ring) -> Vec<LogZoneState> {
    ring.states().map(|(_, state)| state).collect()
}

#[test]
fn zones_go_round() {
    use LogZoneState::*;
    let mut ring = ring(3);
    assert_eq!(states(&ring), [Empty; 3]);
    assert!(put(&mut ring, BLOCK) && put(&mut ring, ZONE - 2 * BLOCK));
    assert_eq!(states(&ring), [Current, Empty, Empty]);
    assert!(put(&mut ring, BLOCK));
    assert_eq!(states(&ring), [Full, Current, Empty]);
    // A snapshot begins there: what is before it is of no use.
    let order = ring.slots()[1].order;
    assert_eq!(ring.release(order), [0]);
    assert_eq!(states(&ring), [Dirty, Current, Empty]);
    ring.was_reset(0);
    assert_eq!(states(&ring), [Empty, Current, Empty]);
    assert_eq!(ring.release(order), [] as [usize; 0], "once");
    // Where the reset failed the next write begins with one.
    begin(&mut ring);
    assert_eq!(ring.release(ring.slots()[0].order), [1]);
    assert_eq!(states(&ring), [Current, Dirty, Empty]);
    begin(&mut ring);
    assert_eq!(states(&ring), [Full, Current, Empty]);
}

#[test]
fn a_zone_that_could_not_be_begun_keeps_its_place_in_the_order() {
    let mut ring = ring(3);
    let first = ring.begin(0);
    ring.died(0);
    let i = begin(&mut ring);
    assert!(i == 1 && ring.slots()[1].order > first, "the drive may have the other header");
    // Also for whoever finds them.
    let mut found = ring.slots().to_vec();
    found[0].order = 0;
    let mut again = Ring::new(found, 7);
    again.leave();
    assert_eq!(again.begin(2), 8);
}

#[test]
fn a_ring_of_which_one_zone_is_left_is_lost_and_that_is_told_once() {
    let mut ring = ring(3);
    let i = begin(&mut ring);
    ring.died(i);
    assert!(!ring.is_lost() && !ring.tell_lost() && ring.takes(1).is_none());
    assert_eq!(ring.next(), Some(1), "a dead zone is not begun again");
    ring.died(2);
    assert!(ring.is_lost() && ring.tell_lost() && !ring.tell_lost());
    // A dead zone is no zone to reset, but nothing in it is of use any more.
    begin(&mut ring);
    assert_eq!(ring.release(9), [1]);
    assert!(ring.slots().iter().all(|slot| slot.order == 0));
}

#[test]
fn zones_of_a_dropped_snapshot_are_free_but_for_those_with_records() {
    let mut ring = ring(4);
    put(&mut ring, BLOCK);
    for records in [false, true, false] {
        let i = begin(&mut ring);
        ring.wrote(i, ZONE / 2, records);
    }
    ring.drop_useless();
    use LogZoneState::*;
    assert_eq!(states(&ring), [Full, Dirty, Full, Dirty]);
    assert!(begin(&mut ring) == 1 && ring.slots()[1].order == 5);
    // Once it is whole all of it is of use.
    assert_eq!(ring.release(5), [0, 2]);
    ring.drop_useless();
    assert_eq!(states(&ring), [Dirty, Current, Dirty, Dirty]);
}

#[test]
fn a_stuck_ring_begins_anew() {
    let mut ring = ring(3);
    for _ in 0..3 {
        begin(&mut ring);
    }
    ring.died(2);
    assert!(ring.next().is_none() && !ring.is_lost());
    assert_eq!(ring.unstick(), [] as [usize; 0]);
    ring.stick();
    assert!(!ring.is_written() && ring.takes(1).is_none());
    assert_eq!(ring.unstick(), [0, 1], "not the dead one");
    assert!(ring.is_written() && ring.next() == Some(0));
    assert!(ring.begin(0) == 4);
}

#[test]
fn zones_that_are_active_and_not_written_are_to_be_finished() {
    let mut ring = ring(4);
    begin(&mut ring);
    assert!(ring.left().is_empty());
    begin(&mut ring);
    assert_eq!(ring.left(), [0]);
    ring.was_finished(0);
    ring.died(1);
    assert_eq!(ring.left(), [1]);
    ring.begin(2);
    assert_eq!(ring.left(), [1, 2], "its header was never written");
    ring.release(2);
    ring.was_reset(2);
    assert_eq!(ring.left(), [1]);
}

#[test]
fn frames_go_on_in_the_newest_zone_that_takes_any() {
    let slot = |zone, order, tail| Slot { capacity: ZONE, order, tail, ..Slot::empty(ZoneId(zone)) };
    let of = |slots: &[Slot]| Ring::new(slots.to_vec(), 0).takes(BLOCK);
    assert_eq!(of(&[slot(0, 3, BLOCK), slot(1, 2, BLOCK), slot(2, 0, 0)]), Some(0));
    assert_eq!(of(&[slot(0, 3, ZONE), slot(1, 2, BLOCK)]), None, "never in an older one");
    assert_eq!(of(&[Slot { dead: true, ..slot(0, 3, BLOCK) }, slot(1, 2, BLOCK)]), None);
    assert_eq!(of(&[slot(0, 0, 0)]), None);
}

proptest! {
    /// Whoever is admitted finds room, whatever frames the records are cut into.
    #[test]
    fn what_is_admitted_finds_room(
        zones in 2u32..5, before in 0u64..150, sizes in proptest::collection::vec(0usize..20_000, 1..30), frame in 1u64..9,
    ) {
        let frame = frame * BLOCK;
        let mut batch = Batch::default();
        sizes.iter().for_each(|size| batch.push(|to| to.resize(to.len() + size, 7)));
        let mut ring = ring(zones);
        for _ in 0..before {
            put(&mut ring, BLOCK);
        }
        let bytes = batch.len() as u64;
        let frames: Vec<u64> = batch.cut(frame as usize - FRONT).into_iter().map(|cut| footprint(cut.bytes.len())).collect();
        prop_assert!(frames.iter().sum::<u64>() <= frames_for(bytes, frame), "{bytes} bytes in {frames:?}");
        if admits(&[ring.room(frame)], 1, frame, bytes, None) {
            for bytes in frames {
                prop_assert!(put(&mut ring, bytes), "no room");
            }
        }
    }
}

#[test]
fn room_for_snapshots_is_kept_in_each_ring_and_records_need_one() {
    let frame = 2 * BLOCK;
    let kept = 2 * 50_000 + 3 * frame + 16 * BLOCK;
    let need = frames_for(1000, frame);
    let room = |all: u64| Room { rest: all.saturating_sub(60_000), free: all.min(60_000) };
    assert!(admits(&[room(kept + need), room(kept + need)], 2, frame, 1000, Some(50_000)));
    assert!(!admits(&[room(kept + need), room(kept + need - 1)], 2, frame, 1000, Some(50_000)));
    assert!(admits(&[room(kept + need - 50_000)], 1, frame, 1000, Some(50_000)), "one copy, one snapshot");
    assert!(!admits(&[Room { rest: kept + need, free: 58_000 }], 2, frame, 1000, Some(50_000)), "in zones of its own");
    assert!(
        admits(&[room(0), room(need)], 2, frame, 1000, None)
            && !admits(&[room(0), room(need - 1)], 2, frame, 1000, None)
    );
    assert!(!admits(&[], 2, frame, 0, None), "both rings are lost");
    assert_eq!([1 << 10, 256 << 10, 256 << 20].map(run_of), [BLOCK, 4 * BLOCK, 2 << 20]);
}
