//! Cleaning of zones whose headers of runs are damaged.

use crate::support::content;
use crate::{ALL, BLOCK, Harm, blocks_that, does, id, new};
use imbrex_bluestore::BlueStore;

const OBJECTS: u64 = 120;

fn is_whole(store: &BlueStore) {
    for n in 0..OBJECTS {
        assert!(store.read(ALL, &id("a"), n * 8192, BLOCK).unwrap() == content(BLOCK, n as u8), "{n}");
    }
}

/// Headers of runs, all of them or all but the first of a zone: what stands there moves, as its records say whose it is.
#[test]
fn a_zone_is_emptied_whose_headers_are_damaged() {
    for (harm, all_headers) in [(Harm::Flip, true), (Harm::Flip, false), (Harm::Medium, true), (Harm::Medium, false)] {
        let all = new();
        for n in 0..OBJECTS {
            does(&all.store, |t| _ = t.write(ALL, &id("a"), n * 8192, &content(BLOCK, n as u8)));
            does(&all.store, |t| _ = t.write(ALL, &id("b"), n * 8192, &content(8192, n as u8 + 128)));
        }
        all.store.pack().unwrap();
        does(&all.store, |t| _ = t.remove(ALL, &id("b")));
        let headers = blocks_that(&all.fickle.drive, |block| block.starts_with(b"IMBXruns"));
        assert!(headers.len() > 6, "{headers:?}");
        let mut before = None;
        for at in headers {
            let first_of_zone = before.replace(at >> 20) != Some(at >> 20);
            if all_headers || !first_of_zone {
                all.fickle.set(at, harm, u32::MAX, 0);
            }
        }
        let free = all.store.usage().free;
        let moved = all.store.clean(8 << 20).unwrap();
        // The zone that is full has more than half of the object.
        assert!(moved >= OBJECTS / 2 * BLOCK, "{harm:?}, {all_headers}: {moved} bytes moved");
        all.store.sync().unwrap();
        assert!(all.store.usage().free >= free, "{} bytes are free, and were {free}", all.store.usage().free);
        is_whole(&all.store);
        // It is over: nothing is left to move.
        assert_eq!(all.store.clean(8 << 20).unwrap(), 0);
        let wrong = all.store.check(false).unwrap().wrong;
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
