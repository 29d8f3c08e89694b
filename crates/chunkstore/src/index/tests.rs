use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn records(start: u32, lens: &[u32], at: u32) -> Vec<RecordIndex> {
    let mut end = start;
    let place = |(i, len): (usize, &u32)| {
        end += len;
        RecordIndex { end, at: at + i as u32 }
    };
    lens.iter().enumerate().map(place).collect()
}

fn group(zone: u32, start: u32, lens: &[u32], at: u32) -> GroupEntry {
    GroupEntry { zone, start, records: records(start, lens, at) }
}

fn chunk(n: u64) -> Chunk {
    Chunk::new(ChunkId::of_number(n), n, StreamType::DATA)
}

#[test]
fn bytes_are_found_where_they_stand() {
    let mut chunk = chunk(1);
    assert_eq!(chunk.find(0), None);
    assert!(chunk.push(5, 100, 1) && !chunk.push(5, 50, 2) && chunk.push(7, 25, 1));
    assert_eq!((chunk.len, chunk.records(), chunk.groups().len()), (175, 3, 2));
    let of = |offset| chunk.find(offset).map(|f| (f.zone, f.at, f.start, f.end));
    assert_eq!(of(0), Some((5, 1, 0, 100)));
    assert_eq!(of(99), Some((5, 1, 0, 100)));
    assert_eq!(of(100), Some((5, 2, 100, 150)));
    assert_eq!(of(150), Some((7, 1, 150, 175)));
    assert_eq!(of(175), None);
}

#[test]
fn what_is_moved_is_one_group_where_it_goes() {
    let mut chunk =
        chunk(1).with_groups(vec![group(1, 0, &[10, 10], 1), group(2, 20, &[10, 10], 1), group(3, 40, &[5], 1)]);
    let before = chunk.clone();
    for wrong in [group(9, 10, &[10], 1), group(9, 0, &[11], 1), group(9, 0, &[10, 10, 10], 1)] {
        assert_eq!(chunk.move_front(1, &wrong), None);
        assert_eq!(chunk, before);
    }
    // The middle first, then the front half by half, then the end: all in zone 9.
    assert_eq!(chunk.move_front(2, &group(9, 20, &[10, 10], 4)), Some((true, true)));
    assert_eq!(chunk.move_front(1, &group(9, 0, &[10], 8)), Some((true, false)));
    assert_eq!(chunk.move_front(1, &group(9, 10, &[10], 9)), Some((false, true)));
    assert_eq!(chunk.move_front(3, &group(9, 40, &[5], 2)), Some((false, true)));
    assert_eq!(chunk.groups().len(), 1);
    assert_eq!(chunk.groups()[0].records().iter().map(|r| r.at).collect::<Vec<_>>(), [8, 9, 4, 5, 2]);
    assert_eq!((chunk.groups()[0].start, chunk.groups()[0].end(), chunk.len), (0, 45, 45));
    assert_eq!(chunk.find(40).map(|f| f.at), Some(2));
}

#[test]
fn bytes_that_are_lost_keep_their_place_and_may_come_back() {
    let mut chunk = chunk(1);
    chunk.push(5, 100, 1);
    chunk.end = ChunkEnd::Unread;
    chunk.lose(5, 400);
    chunk.lose(5, 300);
    assert_eq!((chunk.len, chunk.groups().len(), chunk.end), (400, 1, ChunkEnd::Known), "it ends there now");
    chunk.go_on_with(&group(6, 500, &[50], 1));
    assert_eq!((chunk.len, chunk.lost()), (550, vec![(5, 100, 400), (6, 400, 500)]));
    let record = |end, at| RecordIndex { end, at };
    for (start, end) in [(0, 100), (90, 110), (390, 410), (500, 550)] {
        assert!(!chunk.restore(7, start, record(end, 3)), "{start} to {end} is not lost");
    }
    assert!(chunk.restore(5, 200, record(300, 8)));
    assert_eq!(chunk.lost(), [(5, 100, 200), (5, 300, 400), (6, 400, 500)]);
    assert!(chunk.restore(5, 100, record(200, 4)) && chunk.restore(5, 300, record(400, 20)));
    assert!(chunk.restore(7, 400, record(500, 2)) && !chunk.has_lost());
    let places: Vec<_> = chunk.groups().iter().map(|g| (g.zone, g.start, g.end())).collect();
    assert_eq!(places, [(5, 0, 400), (7, 400, 500), (6, 500, 550)]);
    assert_eq!(chunk.groups()[0].records().iter().map(|r| r.at).collect::<Vec<_>>(), [1, 4, 8, 20]);
}

#[test]
fn a_chunk_is_cut_at_a_record() {
    let mut chunk = chunk(1).with_groups(vec![group(1, 0, &[10, 10], 1), group(2, 20, &[10, 10], 1)]);
    chunk.cut(30);
    assert_eq!((chunk.len, chunk.records()), (30, 3));
    chunk.cut(20);
    assert_eq!((chunk.len, chunk.groups().len()), (20, 1));
    chunk.cut(0);
    assert_eq!(chunk, self::chunk(1));
}

proptest! {
    #[test]
    fn the_table_is_a_sorted_map(ops in proptest::collection::vec((0u64..3000, any::<bool>()), 0..3000), sequential in 0u64..2000) {
        let mut index = Index::default();
        let mut model: BTreeMap<ChunkId, u64> = BTreeMap::new();
        let all = (0..sequential).map(|n| (n * 2, true)).chain(ops);
        for (n, put) in all {
            let id = ChunkId::of_number(n);
            let found = index.find(&id);
            prop_assert_eq!(found.is_some(), model.contains_key(&id));
            match (put, found) {
                (true, None) => {
                    let slot = index.insert(chunk(n));
                    prop_assert_eq!(index.chunk(slot).map(|c| c.id), Some(id));
                    model.insert(id, n);
                }
                (false, Some(slot)) => {
                    prop_assert_eq!(index.remove(slot).map(|c| c.serial), model.remove(&id));
                }
                _ => {}
            }
        }
        prop_assert_eq!(index.len(), model.len());
        prop_assert!(index.range(None).map(|c| c.serial).eq(model.values().copied()));
        for after in [0, 77, 1500, 2999] {
            let id = ChunkId::of_number(after);
            let behind = model.range(id..).filter(|(k, _)| **k != id).map(|(_, n)| *n);
            prop_assert!(index.range(Some(&id)).map(|c| c.serial).eq(behind));
        }
        prop_assert!(index.sorted.iter().all(|page| !page.is_empty() && page.len() <= LIST_PAGE));
    }
}
