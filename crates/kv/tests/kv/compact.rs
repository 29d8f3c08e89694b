//! What a user asks to be merged, with each policy and its options.

use crate::support::{config, few_active, formatted, options, value};
use imbrex_device::Code;
use imbrex_emulator::Config;
use imbrex_kv::policy::{ALL, Active};
use imbrex_kv::{Kv, Options};

const KEYS: u64 = 900;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

fn every_policy() -> Vec<Options> {
    let named = |name: &str| Options { policy: Some(name.to_owned()), ..options() };
    let mut all: Vec<Options> = ALL.iter().map(|(name, _)| named(name)).collect();
    for (gear_k, gear_active) in [(1, Active::Paper), (10, Active::Paper), (2, Active::Code), (0, Active::Code)] {
        all.push(Options { gear_k, gear_active, ..named("gear") });
    }
    all
}

#[test]
fn with_each_policy_each_key_comes_to_be_in_one_table() {
    for config in [config(), few_active()] {
        for options in every_policy() {
            let policy = options.policy.clone();
            let store = Kv::open(formatted(&config), options).unwrap();
            let mut has = vec![None; KEYS as usize];
            for round in 0..3 {
                for n in 0..KEYS * 2 {
                    let n = (n * 7919 + round * 31) % KEYS;
                    has[n as usize] = Some(round);
                    store.put(&key(n), &value(n * 3 + round, 300), false).unwrap();
                    if n.is_multiple_of(9) {
                        has[n as usize] = None;
                        store.delete(&key(n), false).unwrap();
                    }
                }
                // Of a range, and then of everything.
                if round == 1 {
                    store.compact_range(Some(&key(100)), Some(&key(200))).unwrap();
                }
                store.compact().unwrap();
                assert_eq!(store.figures().depth, 1, "{policy:?}, round {round}");
                let tables = store.figures().levels;
                store.compact().unwrap();
                assert_eq!(store.figures().levels, tables, "{policy:?}: nothing was left to do");
                for n in 0..KEYS {
                    let wanted = has[n as usize].map(|round| value(n * 3 + round, 300));
                    assert_eq!(store.get(&key(n)).unwrap(), wanted, "{policy:?}, {n}");
                }
            }
            assert_eq!(store.check().unwrap(), Vec::<String>::new());
        }
    }
}

/// Tables are usually longer than such zones. A zone that has one must not count as full for that: merges would gain nothing, and never end.
#[test]
fn a_drive_of_small_zones_is_filled_and_says_so() {
    let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 8 << 20, ..config() };
    let store = Kv::open(formatted(&config), Options { volume: options().volume, ..Options::default() }).unwrap();
    let mut stored = 0;
    let error = loop {
        match store.put(&key(stored), &value(stored, 1000), false) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Code::NoSpace, "{error}");
    assert!(stored > 2500, "{stored}");
    (0..stored).for_each(|n| assert_eq!(store.get(&key(n)).unwrap(), Some(value(n, 1000))));
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
}
