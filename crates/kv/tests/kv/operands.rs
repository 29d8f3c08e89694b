//! Operands that are merged into values.

use crate::support::{Append, appended, configs, formatted, options, value};
use imbrex_device::{Code, Drive};
use imbrex_emulator::Emulator;
use imbrex_kv::policy::ALL;
use imbrex_kv::{Batch, Bytewise, Expiry, Kv, Make, MergeOperator, Options, Order};
use std::sync::Arc;

/// Values are numbers, and operands are added.
struct Sum;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

impl MergeOperator for Sum {
    fn merge(&self, _: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
        (value.map_or(0, number) + operands.iter().map(|operand| number(operand)).sum::<u64>()).to_le_bytes().into()
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(self.merge(key, None, operands))
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:03}").into_bytes()
}

fn sums(store: &Kv, at: &imbrex_kv::Snapshot) -> Vec<(Vec<u8>, u64)> {
    let (mut iter, mut found) = (store.iter_at(at).unwrap(), Vec::new());
    iter.seek_to_first().unwrap();
    while let Some((key, value)) = iter.get() {
        assert_eq!(store.get_at(at, key).unwrap().unwrap(), value);
        found.push((key.to_vec(), number(value)));
        iter.advance().unwrap();
    }
    let mut back = Vec::new();
    iter.seek_to_last().unwrap();
    while let Some((key, value)) = iter.get() {
        back.push((key.to_vec(), number(value)));
        iter.retreat().unwrap();
    }
    assert!(back.into_iter().rev().eq(found.iter().cloned()));
    found
}

/// Puts what is no number beside the counters, so that there is something to merge.
fn fill(store: &Kv, round: u64) {
    let filler = store.space("filler", Bytewise.name(), Make::IfMissing).unwrap();
    (0..40).for_each(|n| filler.put(&key(n), &value(round * 40 + n, 1500), false).unwrap());
}

#[test]
fn counters_count_at_each_snapshot_however_they_are_merged() {
    for (policy, _) in ALL {
        let drive = formatted(&configs()[0]);
        let options = || Options { policy: Some((*policy).to_owned()), ..options() };
        let store = Kv::open(drive.clone(), options()).unwrap();
        store.merge_operator(Arc::new(Sum));
        let mut moments = Vec::new();
        let mut wanted: Vec<(Vec<u8>, u64)> = (0..20).map(|n| (key(n), 0)).collect();
        for round in 0..12u64 {
            let mut batch = Batch::new();
            for n in 0..20 {
                // Several of a key in one batch.
                for add in 1..3 + n % 3 {
                    batch.merge(&key(n), &add.to_le_bytes());
                    wanted[n as usize].1 += add;
                }
            }
            store.write(&batch, round % 3 == 0).unwrap();
            fill(&store, round);
            match round % 4 {
                0 => store.flush().unwrap(),
                1 => moments.push((store.snapshot(), wanted.clone())),
                2 => store.compact().unwrap(),
                _ => drop(store.step().unwrap()),
            }
            assert_eq!(sums(&store, &store.snapshot()), wanted, "{policy}");
            for (at, then) in &moments {
                assert_eq!(&sums(&store, at), then, "{policy}");
            }
        }
        drop(moments);
        store.compact().unwrap();
        assert_eq!(store.check().unwrap(), [""; 0]);
        drop(store);
        let store = Kv::open(drive, options()).unwrap();
        if *policy == "ring" {
            // Nothing needs the operator any more.
            let found: Vec<_> = (0..20).map(|n| (key(n), number(&store.get(&key(n)).unwrap().unwrap()))).collect();
            assert_eq!(found, wanted);
            let entries: u64 = store.figures().levels.iter().map(|level| level.2).sum();
            assert_eq!(entries, 60);
        }
        store.merge_operator(Arc::new(Sum));
        assert_eq!(sums(&store, &store.snapshot()), wanted, "{policy}");
    }
}

#[test]
fn without_the_operator_nothing_is_merged_and_nothing_is_lost() {
    let drive = formatted(&configs()[0]);
    let store = Kv::open(drive.clone(), options()).unwrap();
    let refused = store.merge(b"k", b"1", false).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.to_string().contains("no merge operator"), "{refused}");
    store.merge_operator(Arc::new(Append { combines: false }));
    for key in [b"ka", b"kb"] {
        store.put(key, b"0", false).unwrap();
        store.merge(key, b"1", false).unwrap();
    }
    store.put(b"kb", b"2", false).unwrap();
    store.merge(b"kc", b"3", false).unwrap();
    drop(store);
    let store = Kv::open(drive.clone(), options()).unwrap();
    for _ in 0..2 {
        assert_eq!(store.get(b"ka").unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(store.get(b"kb").unwrap().unwrap(), b"2");
        let mut iter = store.iter().unwrap();
        assert_eq!(iter.seek_to_first().unwrap_err().code(), Code::InvalidArgument);
        iter.seek(b"kb").unwrap();
        assert_eq!(iter.get().unwrap().1, b"2");
        // A move that fails leaves it where it was.
        for _ in 0..2 {
            assert_eq!(iter.advance().unwrap_err().code(), Code::InvalidArgument);
            assert_eq!(iter.retreat().unwrap_err().code(), Code::InvalidArgument);
            assert_eq!(iter.get().unwrap().0, b"kb");
        }
        store.compact().unwrap();
    }
    // Another space is none of its business.
    fill(&store, 0);
    drop(store);
    let store = Kv::open(drive, options()).unwrap();
    store.merge_operator(Arc::new(Append { combines: true }));
    let found = [b"ka", b"kb", b"kc"].map(|key| store.get(key).unwrap().unwrap());
    assert_eq!(found, [&b"0|1"[..], b"2", b"new|3"]);
}

#[test]
fn deletes_and_puts_between_operands_count_wherever_they_are() {
    // What comes between, and how tables are made of it: each of them in memory, in a table of its own, or merged with what is below.
    for between in 0..5 {
        for work in 0..27 {
            let drive = formatted(&configs()[work % 3]);
            let store = Kv::open(drive, options()).unwrap();
            store.merge_operator(Arc::new(Append { combines: work % 2 == 0 }));
            let after = |times: usize| match work / 3usize.pow(times as u32) % 3 {
                0 => {}
                1 => store.flush().unwrap(),
                _ => store.compact().unwrap(),
            };
            store.put(b"k", b"old", false).unwrap();
            store.merge(b"k", b"1", false).unwrap();
            let before = store.snapshot();
            after(0);
            let base = match between {
                0 => Some(&b"old|1"[..]),
                1 => store.delete(b"k", false).map(|()| None).unwrap(),
                2 => store.delete_range(Some(b"a"), None, false).map(|()| None).unwrap(),
                3 => store.put(b"k", b"put", false).map(|()| Some(&b"put"[..])).unwrap(),
                // All in one batch, and what the range deletes first.
                _ => {
                    let mut batch = Batch::new();
                    batch.merge(b"k", b"gone");
                    batch.delete_range(None, Some(b"l"));
                    store.write(&batch, true).map(|()| None).unwrap()
                }
            };
            after(1);
            store.merge(b"k", b"2", false).unwrap();
            store.merge(b"k", b"3", false).unwrap();
            after(2);
            let wanted = appended(base, [&b"2"[..], b"3"]);
            for done in 0..3 {
                let at =
                    |wanted: &[u8]| assert_eq!(store.get(b"k").unwrap().unwrap(), wanted, "{between} {work} {done}");
                at(&wanted);
                let mut iter = store.iter().unwrap();
                for back in [false, true] {
                    if back {
                        iter.seek_to_last().unwrap()
                    } else {
                        iter.seek_to_first().unwrap()
                    };
                    assert_eq!(iter.get(), Some((&b"k"[..], &wanted[..])), "{between} {work} {done}");
                }
                if done < 2 {
                    assert_eq!(store.get_at(&before, b"k").unwrap().unwrap(), b"old|1");
                }
                store.compact().unwrap();
            }
            assert_eq!(store.check().unwrap(), [""; 0]);
        }
    }
}

#[test]
fn a_value_that_no_zone_takes_stays_in_parts() {
    for combines in [false, true] {
        let drive = formatted(&configs()[0]);
        let store = Kv::open(drive.clone(), options()).unwrap();
        store.merge_operator(Arc::new(Append { combines }));
        let zone = store.volume().geometry().zone_size as usize;
        // With all that is around them, two of them fit a zone, but one value of both does not fit any.
        let operands = [value(1, zone * 45 / 100), value(2, zone * 45 / 100), value(3, zone / 50)];
        store.put(b"k", b"", false).unwrap();
        for operand in &operands {
            store.merge(b"k", operand, false).unwrap();
            store.flush().unwrap();
        }
        store.compact().unwrap();
        let wanted = appended(Some(b""), operands.iter().map(Vec::as_slice));
        assert!(store.get(b"k").unwrap().unwrap() == wanted);
        drop(store);
        let store = Kv::open(drive, options()).unwrap();
        store.merge_operator(Arc::new(Append { combines }));
        assert!(store.get(b"k").unwrap().unwrap() == wanted);
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
}

#[test]
fn operands_that_no_zone_takes_together_stop_merges_until_their_key_is_deleted() {
    // What comes after them: a delete, a put, operands behind a delete; all of it unsynced, and in memory or in a table.
    for (after, flushed) in [(0, false), (1, false), (2, false), (0, true), (2, true)] {
        let emulator = Emulator::memory(&configs()[0]).unwrap();
        let drive = |emulator: &Emulator| Drive { device: Arc::new(emulator.clone()), survivor: None };
        Kv::format(&drive(&emulator), Some([9; 16]), false).unwrap();
        let open = |emulator: &Emulator| {
            let store = Kv::open(drive(emulator), options()).unwrap();
            store.merge_operator(Arc::new(Append { combines: false }));
            store
        };
        let store = open(&emulator);
        let zone = store.volume().geometry().zone_size as usize;
        store.put(b"before", b"there", true).unwrap();
        let operands: Vec<_> = (0..4).map(|n| value(n, zone * 2 / 5)).collect();
        for operand in &operands {
            store.merge(b"k", operand, true).unwrap();
            store.flush().unwrap();
        }
        let refused = store.compact().unwrap_err();
        assert_eq!(refused.code(), Code::NoSpace);
        assert!(refused.to_string().contains("operands of a key"), "{refused}");
        // Nothing is lost.
        let wanted = appended(None, operands.iter().map(Vec::as_slice));
        assert!(store.get(b"k").unwrap().unwrap() == wanted);
        drop(store);
        let store = open(&emulator);
        assert!(store.get(b"k").unwrap().unwrap() == wanted);
        let before = store.snapshot();
        if after == 1 {
            store.put(b"k", b"new", false).unwrap()
        } else {
            store.delete(b"k", false).unwrap()
        };
        if after == 2 {
            store.merge(b"k", b"more", false).unwrap();
        }
        if flushed {
            // Somebody reads them still.
            assert_eq!(store.compact().unwrap_err().code(), Code::NoSpace);
            assert!(store.get_at(&before, b"k").unwrap().unwrap() == wanted);
        }
        drop(before);
        let then = [None, Some(&b"new"[..]), Some(b"new|more")][after];
        // What hides them is durable before they are gone.
        let mut steps = 0;
        while store.step().unwrap() {
            steps += 1;
            for seed in 0..4 {
                let found = open(&emulator.after_power_loss(seed).unwrap()).get(b"k").unwrap();
                assert!(found.as_deref() == then || found.as_ref() == Some(&wanted), "{after} {flushed} {steps}");
            }
        }
        store.compact().unwrap();
        let seen = |store: &Kv| {
            assert_eq!(store.get(b"k").unwrap().as_deref(), then, "{after} {flushed}");
            assert_eq!(store.get(b"before").unwrap().unwrap(), b"there");
            assert_eq!(store.check().unwrap(), [""; 0]);
        };
        seen(&store);
        // What merges have passed over does not come back.
        std::mem::forget(store);
        (0..4).for_each(|seed| seen(&open(&emulator.after_power_loss(seed).unwrap())));
    }
}

/// What ends so is over.
struct EndsWith(&'static [u8]);

impl Expiry for EndsWith {
    fn is_over(&self, _: &[u8], value: &[u8]) -> bool {
        value.ends_with(self.0)
    }
}

#[test]
fn a_value_may_be_over_before_or_because_of_an_operand() {
    let store = Kv::open(formatted(&configs()[0]), options()).unwrap();
    store.merge_operator(Arc::new(Append { combines: true }));
    store.expire(Arc::new(EndsWith(b"!")));
    store.put(b"ka", b"over!", false).unwrap();
    store.merge(b"ka", b"1", false).unwrap();
    store.put(b"kb", b"there", false).unwrap();
    store.merge(b"kb", b"over!", false).unwrap();
    for _ in 0..3 {
        assert_eq!(store.get(b"ka").unwrap().unwrap(), b"new|1");
        assert_eq!(store.get(b"kb").unwrap(), None);
        let mut iter = store.iter().unwrap();
        iter.seek_to_first().unwrap();
        assert_eq!(iter.get().unwrap().0, b"ka");
        iter.advance().unwrap();
        assert_eq!(iter.get(), None);
        iter.seek_to_last().unwrap();
        assert_eq!(iter.get().unwrap().0, b"ka");
        store.compact().unwrap();
    }
}
