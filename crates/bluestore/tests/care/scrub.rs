//! Rounds of the scrub: they find what is damaged and nothing else, go on after a restart, and forget what is whole again.

use crate::support::{content, open_with};
use crate::{ALL, All, BLOCK, Harm, does, id, new, place_of, plain};
use imbrex_bluestore::{BlueStore, Checksum, Compression, Hint, Options};
use imbrex_zones::Exec;

const LEN: u64 = 256 << 10;

/// Objects of several kinds, and their bytes: long, immutable, short ones that are packed or still deferred, a clone.
fn worked_with() -> All {
    let all = new();
    let immutable = Hint { immutable: true, ..Hint::default() };
    does(&all.store, |t| _ = t.write(ALL, &id("long"), 0, &content(3 * LEN, 1)));
    does(&all.store, |t| {
        _ = t.hint(ALL, &id("immutable"), immutable).write(ALL, &id("immutable"), 0, &content(LEN, 2))
    });
    for n in 0..20 {
        does(&all.store, |t| _ = t.write(ALL, &id("short"), n * 12288, &content(BLOCK, 100 + n as u8)));
    }
    all.store.pack().unwrap();
    does(&all.store, |t| _ = t.clone_object(ALL, &id("long"), &id("clone")));
    does(&all.store, |t| _ = t.write(ALL, &id("deferred"), 0, &content(BLOCK, 3)));
    all
}

fn block(bytes: &[u8], n: u64) -> &[u8] {
    &bytes[(n * BLOCK) as usize..((n + 1) * BLOCK) as usize]
}

/// A whole round, a step of so many bytes after the other. Returns how many steps that took.
fn round(store: &BlueStore, most: u64, now: u64) -> u32 {
    let mut steps = 1;
    while !store.scrub_step(most, now).unwrap() {
        steps += 1;
    }
    steps
}

fn said(store: &BlueStore) -> Vec<String> {
    let mut said: Vec<String> = store.damaged().unwrap().iter().map(ToString::to_string).collect();
    said.sort();
    said
}

fn reopened(all: All) -> All {
    let All { fickle, store } = all;
    drop(store);
    let drive = imbrex_device::Drive { device: fickle.clone(), survivor: None };
    let store = open_with(&drive, Exec::Inline, plain()).unwrap();
    All { fickle, store }
}

#[test]
fn a_round_finds_what_is_damaged_and_forgets_what_is_whole_again() {
    let mut all = worked_with();
    let living = all.store.usage().stored + all.store.usage().deferred;
    for most in [1, 100_000, u64::MAX] {
        round(&all.store, most, 7);
        let scrub = all.store.scrubbed();
        assert_eq!((scrub.read, scrub.damaged, scrub.began, scrub.ended), (living, 0, 7, 7), "{most}");
    }
    let (long, immutable) = (content(3 * LEN, 1), content(LEN, 2));
    for (harm, bytes) in [
        (Harm::Flip, block(&long, 70)),
        (Harm::Medium, block(&long, 71)),
        (Harm::Flip, block(&immutable, 20)),
        (Harm::Medium, block(&content(BLOCK, 105), 0)),
    ] {
        let at = place_of(&all.fickle.drive, bytes);
        assert_eq!(at.len(), 1);
        all.fickle.set(at[0], harm, u32::MAX, 0);
    }
    round(&all.store, 300_000, 8);
    let lost = |name: &str, from: u64, blocks: u64| {
        format!("{} bytes of {} from byte {} on cannot be read", blocks * BLOCK, id(name), from * BLOCK)
    };
    let mut expected = vec![lost("immutable", 16, 16), lost("short", 15, 1)];
    for name in ["long", "clone"] {
        expected.extend([lost(name, 70, 1), lost(name, 71, 1)]);
    }
    expected.sort();
    assert_eq!(said(&all.store), expected);
    assert_eq!(all.store.scrubbed().damaged, 4);
    assert!(all.store.usage().read_in_vain >= 4);
    // It is known after a restart, with what was counted.
    let counted = all.store.usage().read_in_vain;
    all.store.sync().unwrap();
    all = reopened(all);
    assert_eq!((said(&all.store), all.store.usage().read_in_vain), (expected, counted));
    // What is overwritten is known no more; what a clone has still is.
    does(&all.store, |t| _ = t.write(ALL, &id("short"), 15 * BLOCK, &content(BLOCK, 1)));
    does(&all.store, |t| _ = t.remove(ALL, &id("immutable")).write(ALL, &id("long"), 70 * BLOCK, &content(BLOCK, 1)));
    let mut left = vec![lost("clone", 70, 1), lost("clone", 71, 1), lost("long", 71, 1)];
    left.sort();
    assert_eq!(said(&all.store), left);
    // The next round sees that it is whole again.
    all.fickle.heal();
    round(&all.store, 300_000, 9);
    assert_eq!((said(&all.store), all.store.scrubbed().damaged), (vec![], 0));
}

#[test]
fn a_round_goes_on_after_a_restart() {
    let mut all = worked_with();
    let living = all.store.usage().stored + all.store.usage().deferred;
    let at = place_of(&all.fickle.drive, block(&content(3 * LEN, 1), 3));
    all.fickle.set(at[0], Harm::Flip, u32::MAX, 0);
    let mut restarts = 0;
    while !all.store.scrub_step(50_000, 5 + restarts).unwrap() {
        all.store.save_scrub().unwrap();
        all.store.sync().unwrap();
        let before = all.store.scrubbed();
        all = reopened(all);
        assert_eq!(all.store.scrubbed(), before);
        restarts += 1;
    }
    assert!(restarts > 2, "{restarts}");
    let scrub = all.store.scrubbed();
    assert_eq!((scrub.began, scrub.ended, scrub.read, scrub.damaged), (5, 5 + restarts, living, 1));
    // Another round begins when it is asked to.
    assert!(!all.store.scrub_step(1, 100).unwrap());
    assert_eq!((all.store.scrubbed().began, all.store.scrubbed().ended), (100, 5 + restarts));
    all.store.scrub_anew();
    assert!(!all.store.scrub_step(1, 101).unwrap());
    assert_eq!(all.store.scrubbed().began, 101);
}

/// While a step reads, what it reads is deleted, moved or overwritten: none of that is damage.
#[test]
fn what_goes_while_it_is_read_is_not_damaged() {
    for what in 0..3 {
        let all = worked_with();
        let at = place_of(&all.fickle.drive, block(&content(3 * LEN, 1), 3))[0];
        let (store, fickle) = (all.store.clone(), all.fickle.clone());
        all.fickle.hook(move || {
            match what {
                0 => does(&store, |t| _ = t.remove(ALL, &id("long")).remove(ALL, &id("clone"))),
                1 => does(&store, |t| {
                    _ = t.write(ALL, &id("long"), 0, &content(LEN, 9)).write(ALL, &id("clone"), 0, &content(LEN, 9));
                }),
                _ => {
                    // It is written anew elsewhere.
                    does(&store, |t| _ = t.remove(ALL, &id("clone")).remove(ALL, &id("immutable")));
                    store.pack().unwrap();
                    store.clean(8 << 20).unwrap();
                    assert!(store.usage().moved > 0);
                }
            }
            fickle.set(at, Harm::Flip, u32::MAX, 0);
        });
        while !all.store.scrub_step(u64::MAX, 1).unwrap() {}
        assert!(all.fickle.hook.lock().unwrap().is_none());
        assert_eq!((said(&all.store), all.store.scrubbed().damaged), (vec![], 0), "{what}");
    }
}

#[test]
fn all_that_was_compressed_with_a_damaged_block_is_told() {
    let All { fickle, store } = new();
    drop(store);
    let drive = imbrex_device::Drive { device: fickle.clone(), survivor: None };
    let compressing = Options { compression: Compression::Lz4, ..plain() };
    let store = open_with(&drive, Exec::Inline, compressing).unwrap();
    // Each block is its first half twice.
    let bytes: Vec<u8> = (0..32).flat_map(|n| content(2048, n).repeat(2)).collect();
    does(&store, |t| _ = t.write(ALL, &id("a"), 0, &bytes));
    let stored = store.usage().stored + store.usage().deferred;
    assert!(stored < bytes.len() as u64, "{stored}");
    store.pack().unwrap();
    round(&store, u64::MAX, 1);
    assert_eq!((store.scrubbed().read, said(&store)), (stored, vec![]));
    // The first block of the first run that has bytes of it.
    let header = crate::blocks_that(&fickle.drive, |block| block.starts_with(b"IMBXruns"));
    fickle.set(header[0] + 2 * BLOCK, Harm::Flip, u32::MAX, 0);
    round(&store, u64::MAX, 2);
    let expected = format!("{} bytes of {} from byte 0 on cannot be read", bytes.len(), id("a"));
    assert_eq!(said(&store), [expected]);
    does(&store, |t| _ = t.remove(ALL, &id("a")));
    assert_eq!(said(&store), Vec::<String>::new());
}

#[test]
fn a_store_has_blobs_with_checksums_of_both_kinds_and_each_tells_of_damage() {
    let kinds = [Checksum::Xxh3, Checksum::Crc32c];
    let mut all = new();
    // Each is written by an opening of its own, and read by all later ones.
    for (n, checksum) in kinds.into_iter().enumerate() {
        let All { fickle, store } = all;
        drop(store);
        let drive = imbrex_device::Drive { device: fickle.clone(), survivor: None };
        let store = open_with(&drive, Exec::Inline, Options { checksum, ..plain() }).unwrap();
        let name = id(&format!("{checksum:?}"));
        does(&store, |t| _ = t.write(ALL, &name, 0, &content(LEN, n as u8)));
        all = All { fickle, store };
    }
    assert!(all.store.check(true).unwrap().wrong.is_empty());
    let sums = |checksum| all.store.read(ALL, &id(&format!("{checksum:?}")), 0, u64::MAX);
    for (n, checksum) in kinds.into_iter().enumerate() {
        let bytes = content(LEN, n as u8);
        assert!(sums(checksum).unwrap() == bytes);
        let at = place_of(&all.fickle.drive, block(&bytes, 9));
        all.fickle.set(at[0], Harm::Flip, u32::MAX, 0);
        assert_eq!(sums(checksum).unwrap_err().code(), imbrex_device::Code::Corruption, "{checksum:?}");
        round(&all.store, u64::MAX, n as u64);
        let expected = |checksum| {
            format!("{BLOCK} bytes of {} from byte {} on cannot be read", id(&format!("{checksum:?}")), 9 * BLOCK)
        };
        let mut expected: Vec<String> = kinds[..=n].iter().map(expected).collect();
        expected.sort();
        assert_eq!(said(&all.store), expected);
    }
}
