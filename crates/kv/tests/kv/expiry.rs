//! Pairs that are over one day.

use crate::support::{configs, formatted, options, value};
use imbrex_kv::policy::ALL;
use imbrex_kv::{Bytewise, Expiry, Kv, Make, Options, Order};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// A pair is over when the clock has come to the first byte of its value.
#[derive(Default)]
struct Clock(AtomicU8);

impl Expiry for Clock {
    fn is_over(&self, key: &[u8], value: &[u8]) -> bool {
        assert!(key.starts_with(b"k"));
        value[0] <= self.0.load(Ordering::Relaxed)
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:05}").into_bytes()
}

fn until(time: u8, n: u64) -> Vec<u8> {
    [&[time][..], &value(n, 2000)].concat()
}

fn keys(space: &Kv, back: bool) -> Vec<Vec<u8>> {
    let (mut iter, mut keys) = (space.iter().unwrap(), Vec::new());
    if back {
        iter.seek_to_last().unwrap()
    } else {
        iter.seek_to_first().unwrap()
    };
    while let Some((key, _)) = iter.get() {
        keys.push(key.to_vec());
        if back {
            iter.retreat().unwrap()
        } else {
            iter.advance().unwrap()
        };
    }
    keys
}

/// Says of each pair that it is there when it is asked first, and that it is over from then on.
#[derive(Default)]
struct Once(Mutex<BTreeSet<Vec<u8>>>);

impl Expiry for Once {
    fn is_over(&self, key: &[u8], _: &[u8]) -> bool {
        !self.0.lock().unwrap().insert(key.to_vec())
    }
}

#[test]
fn pairs_that_are_over_in_the_middle_of_a_merge_leave_a_store_that_opens() {
    for (policy, _) in ALL {
        let drive = formatted(&configs()[0]);
        let options = || Options { policy: Some((*policy).to_owned()), ..options() };
        let store = Kv::open(drive.clone(), options()).unwrap();
        for round in 0..6 {
            (0..300).for_each(|n| store.put(&key(n * 7 % 300), &until(9, n + round), false).unwrap());
            store.expire(Arc::new(Once::default()));
            store.compact().unwrap();
            store.step().unwrap();
        }
        drop(store);
        let store = Kv::open(drive, options()).unwrap();
        assert_eq!(store.check().unwrap(), [""; 0], "{policy}");
    }
}

#[test]
fn what_is_over_is_seen_by_nobody_and_takes_no_room() {
    for (policy, _) in ALL {
        let drive = formatted(&configs()[0]);
        let options = || Options { policy: Some((*policy).to_owned()), ..options() };
        let store = Kv::open(drive.clone(), options()).unwrap();
        let clock = Arc::new(Clock::default());
        let timed = store.space("timed", Bytewise.name(), Make::New).unwrap();
        timed.expire(clock.clone());
        store.put(b"another", &[0], false).unwrap();
        for n in 0..300 {
            // What was there for longer does not come back when what replaced it is over.
            timed.put(&key(n), &until(9, n), false).unwrap();
            if n == 150 {
                store.compact().unwrap();
            }
            timed.put(&key(n), &until(1 + (n % 3) as u8, n), false).unwrap();
        }
        let before = store.snapshot();
        clock.0.store(2, Ordering::Relaxed);
        let left: Vec<_> = (0..300).filter(|n| n % 3 == 2).map(key).collect();
        let seen = |timed: &Kv| {
            assert_eq!(keys(timed, false), left, "{policy}");
            assert!(keys(timed, true).iter().rev().eq(&left), "{policy}");
            (0..300).for_each(|n| {
                let wanted = (n % 3 == 2).then(|| until(3, n));
                assert_eq!(timed.get(&key(n)).unwrap(), wanted, "{policy} {n}");
            });
        };
        seen(&timed);
        assert_eq!(timed.get_at(&before, &key(0)).unwrap(), None);
        drop(before);
        store.flush().unwrap();
        seen(&timed);
        // The first merge makes deletes of what is over, and the second drops those.
        (0..2).for_each(|_| store.compact().unwrap());
        seen(&timed);
        assert_eq!(store.get(b"another").unwrap(), Some(vec![0]));
        if *policy == "ring" {
            let entries: u64 = store.figures().levels.iter().map(|level| level.2).sum();
            // Tables of the bottom that no merge came by have what they had: some 84 of the first 150.
            assert!((101..200).contains(&entries), "{entries}");
        }
        drop((timed, store));
        // Nothing that a merge has dropped is there without the clock either.
        let store = Kv::open(drive, options()).unwrap();
        let timed = store.space("timed", Bytewise.name(), Make::Never).unwrap();
        if *policy == "ring" {
            (151..300).filter(|n| n % 3 < 2).for_each(|n| assert_eq!(timed.get(&key(n)).unwrap(), None));
        }
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
}
