//! Either drive is full.

use super::*;
use imbrex_device::Code;
use rand::Rng;

fn commit(store: &Store, add: impl FnOnce(&mut Transaction)) -> Result<()> {
    let mut transaction = Transaction::new();
    add(&mut transaction);
    store.commit(transaction)
}

/// Pairs, short writes and objects fill the drive of the metadata: what brings more is refused, and what was there is. What is deleted is room again.
#[test]
fn a_full_drive_of_metadata_refuses_what_brings_more_and_takes_deletions() {
    let small = Config { capacity: 9 << 20, ..config() };
    let objects = Config { capacity: 48 << 20, ..config() };
    for kind in 0..3 {
        let two = Two::new(&objects, &small);
        two.format(false).unwrap();
        let mut store = two.open().unwrap();
        commit(&store, |new| _ = new.create_collection(ALL, 0).touch(ALL, &name(0))).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(kind);
        let mut random = |len: usize| (0..len).map(|_| rng.random()).collect::<Vec<u8>>();
        for round in 0..3 {
            let mut added = 0u32;
            let why = loop {
                let key = added.to_be_bytes().to_vec();
                let done = match kind {
                    0 => commit(&store, |new| _ = new.omap_set(ALL, &name(0), &[(&key, &random(3000))])),
                    1 => commit(&store, |new| _ = new.set_attributes(ALL, &name(added + 1), &[(&key, &random(3000))])),
                    // Bytes that wait, and their records.
                    _ => commit(&store, |new| {
                        _ = new.write(ALL, &name(added + 1), 0, &random(4000)).set_attributes(
                            ALL,
                            &name(added + 1),
                            &[(&key, &random(2000))],
                        )
                    }),
                };
                match done {
                    Ok(()) => added += 1,
                    Err(why) => break why,
                }
                assert!(added < 10_000, "it is never full");
            };
            assert_eq!(why.code(), Code::NoSpace, "{why}");
            assert!(why.to_string().contains("for the metadata; delete something"), "{why}");
            println!("kind {kind}, round {round}: {added}");
            assert!(added > 100, "kind {kind}, round {round}: {added} is too few");
            // It goes on, also after an opening; reads, and all that takes something away.
            if round == 1 {
                drop(store);
                store = two.open().unwrap();
            }
            assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
            match kind {
                0 => (0..added).step_by(64).for_each(|from| {
                    let keys: Vec<_> = (from..added.min(from + 64)).map(u32::to_be_bytes).collect();
                    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                    commit(&store, |gone| _ = gone.omap_remove(ALL, &name(0), &keys)).unwrap();
                }),
                _ => (0..added).for_each(|n| commit(&store, |gone| _ = gone.remove(ALL, &name(n + 1))).unwrap()),
            }
            let usage = store.usage();
            assert_eq!((usage.objects, usage.stored, usage.deferred), (1, 0, 0));
        }
    }
}

/// The other drive has room; the objects' has none.
#[test]
fn a_full_drive_of_objects_refuses_bytes_and_takes_the_rest() {
    let two = Two::formatted();
    let store = two.open().unwrap();
    let mut all = 0;
    let why = loop {
        match put(&store, all, &content(500_000, all as u8)) {
            Ok(()) => all += 1,
            Err(why) => break why,
        }
        assert!(all < 1000);
    };
    assert_eq!(why.code(), Code::NoSpace, "{why}");
    assert!(!why.to_string().contains("metadata"), "{why}");
    // 56 zones, of which two are the cleaner's, and two have labels; it is full at 95 %.
    assert!(all >= 18, "{all} objects");
    commit(&store, |new| _ = new.set_attributes(ALL, &name(0), &[(b"a", &[1; 1000])])).unwrap();
    assert!(store.read(ALL, &name(all - 1), 0, 1 << 20).unwrap() == content(500_000, (all - 1) as u8));
    for n in 0..all {
        commit(&store, |gone| _ = gone.remove(ALL, &name(n))).unwrap();
    }
    put(&store, 1, &content(5_000_000, 9)).unwrap();
    assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
}

/// What belongs to a removal has room beyond that of others, as where an image or its snapshot goes. It has an end as well, and what only takes away goes on then.
#[test]
fn what_comes_with_a_removal_has_room_on_a_full_drive_of_metadata() {
    let small = Config { capacity: 9 << 20, ..config() };
    let two = Two::new(&Config { capacity: 48 << 20, ..config() }, &small);
    two.format(false).unwrap();
    let store = two.open().unwrap();
    commit(&store, |new| _ = new.create_collection(ALL, 0).touch(ALL, &name(0)).touch(ALL, &name(1))).unwrap();
    let value = vec![7; 3000];
    let pair = |n: u32, makes_room: bool| {
        commit(&store, |new| {
            new.omap_set(ALL, &name(0), &[(&n.to_be_bytes(), &value)]);
            if makes_room {
                new.makes_room();
            }
        })
    };
    let full = |from: u32, makes_room: bool| (from..10_000).find(|n| pair(*n, makes_room).is_err()).unwrap();
    let first = full(0, false);
    assert_eq!(pair(first, false).unwrap_err().code(), Code::NoSpace);
    let both = |new: &mut Transaction| _ = new.remove(ALL, &name(1)).omap_set(ALL, &name(0), &[(b"going", b"")]);
    commit(&store, both).unwrap();
    let last = full(first, true);
    assert!(last > first, "{first}, {last}");
    assert_eq!(pair(last, true).unwrap_err().code(), Code::NoSpace);
    // Objects that are made by zeros have an end, too.
    let zeros = |n: u32| commit(&store, |new| _ = new.zero(ALL, &name(n), 0, 4096));
    let refused = (2..10_000).find_map(|n| zeros(n).err()).unwrap();
    assert_eq!(refused.code(), Code::NoSpace);
    // Nothing has ended.
    let keys: Vec<_> = (0..last).map(u32::to_be_bytes).collect();
    for keys in keys.chunks(64) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        commit(&store, |new| _ = new.omap_remove(ALL, &name(0), &keys)).unwrap();
    }
    pair(0, false).unwrap();
    assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
}
