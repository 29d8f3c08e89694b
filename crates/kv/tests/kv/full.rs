//! A drive that is full, and what comes out of it.

use crate::support::{configs, drive, few_active, formatted, options, value};
use imbrex_device::Code;
use imbrex_emulator::Config;
use imbrex_kv::policy::ALL;
use imbrex_kv::{Kv, Options};
use imbrex_zones::{Budget, FormatOptions, TenantSpec, Volume};
use std::collections::BTreeSet;

fn key(n: u64) -> Vec<u8> {
    format!("k{n:05}").into_bytes()
}

/// Puts new keys until there is no room. Returns how many there are.
fn fill(store: &Kv, from: u64) -> u64 {
    for n in from.. {
        match store.put(&key(n), &value(n, 3000), false) {
            Err(error) if error.code() == Code::NoSpace => return n,
            put => put.unwrap(),
        }
    }
    unreachable!()
}

#[test]
fn a_full_store_takes_deletes_and_then_puts_again() {
    for config in configs() {
        let drive = formatted(&config);
        let mut store = Kv::open(drive.clone(), options()).unwrap();
        let mut keys = fill(&store, 0);
        // Most of the drive is in use: it has 5.5 MiB of zones, of which some are kept free.
        assert!(keys * 3000 > 3 << 20, "{keys}");
        for round in 0..4 {
            if round % 2 == 1 {
                drop(store);
                store = Kv::open(drive.clone(), options()).unwrap();
            }
            let gone: Vec<u64> = (0..keys).filter(|n| n % 2 == round % 2).collect();
            for n in &gone {
                store.delete(&key(*n), false).unwrap_or_else(|error| panic!("round {round}, key {n}: {error}"));
            }
            store.compact().unwrap();
            for n in 0..keys {
                let there = store.get(&key(n)).unwrap();
                assert!(there.is_none() || there == Some(value(n, 3000)));
                assert!(!gone.contains(&n) || there.is_none(), "round {round}, key {n}");
            }
            let more = fill(&store, keys);
            assert!(more - keys >= gone.len() as u64 / 4, "round {round}: {} deleted, {} put", gone.len(), more - keys);
            keys = more;
        }
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
}

/// Merges of keys in no order write each zone of the bottom again. With the usual options a step of one would be longer than these zones.
#[test]
fn a_full_store_takes_deletes_of_keys_in_any_order() {
    for (zones, memory, len) in [(50, 64, 100), (50, 256, 3000), (130, 64, 1000), (130, 1024, 100)] {
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, ..configs()[0].clone() };
        let config = Config { capacity: zones * config.zone_size, ..config };
        let options = Options { memtable_bytes: memory << 10, volume: options().volume, ..Options::default() };
        let store = Kv::open(formatted(&config), options).unwrap();
        // Each number comes once, in no order.
        let key = |n: u32| n.wrapping_mul(0x9e37_79b1).to_be_bytes();
        let mut keys = 0;
        let refused = loop {
            match store.put(&key(keys), &value(keys.into(), len), false) {
                Ok(()) => keys += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code(), Code::NoSpace);
        assert!(u64::from(keys) * (len as u64 + 4) > config.capacity / 2, "{keys} of {len} bytes in {zones} zones");
        for n in 0..keys {
            store
                .delete(&key(n), false)
                .unwrap_or_else(|error| panic!("{zones}, {memory}, {len}: {n} of {keys}: {error}"));
        }
        store.compact().unwrap();
        assert!((0..keys).all(|n| store.get(&key(n)).unwrap().is_none()));
        (0..keys / 2).for_each(|n| store.put(&key(n), &value(n.into(), len), false).unwrap());
    }
}

#[test]
fn deletes_that_make_no_room_end_no_full_store() {
    for config in configs() {
        let store = Kv::open(formatted(&config), options()).unwrap();
        let keys = fill(&store, 0);
        // All but the first of each key hide nothing.
        for n in 0..320u64 {
            let k = (n % 16) * keys / 16;
            store.delete(&key(k), false).unwrap_or_else(|error| panic!("delete {n}: {error}"));
        }
        (0..keys).for_each(|n| store.delete(&key(n), false).unwrap());
        store.compact().unwrap();
        let more = fill(&store, keys) - keys;
        assert!(more >= keys * 3 / 4, "{keys} deleted, {more} put");
    }
}

#[test]
fn a_full_store_of_each_policy_takes_deletes_of_all() {
    for (name, _) in ALL {
        let drive = formatted(&configs()[0]);
        let options = || Options { policy: Some((*name).to_owned()), ..options() };
        let store = Kv::open(drive.clone(), options()).unwrap();
        let keys = fill(&store, 0);
        for n in 0..keys {
            store.delete(&key(n), false).unwrap_or_else(|error| panic!("{name}, key {n}: {error}"));
        }
        drop(store);
        let store = Kv::open(drive, options()).unwrap();
        assert!((0..keys).all(|n| store.get(&key(n)).unwrap().is_none()), "{name}");
    }
}

/// Two stores of one drive, each of which is opened and filled by itself: what one has never costs the other anything but room.
#[test]
fn two_stores_of_a_full_drive_leave_each_other_alone() {
    for config in [
        Config { capacity: 12 << 20, ..configs()[0].clone() },
        Config { capacity: 12 << 20, max_open: Some(14), max_active: Some(14), ..configs()[2].clone() },
    ] {
        let drive = drive(&config);
        let spec = |name: &str| TenantSpec {
            name: name.into(),
            budget: Budget { slots: 6, ..Budget::keeping(0, 0).at_least(18) },
        };
        let format = FormatOptions { uuid: Some([5; 16]), tenants: vec![spec("kv"), spec("kv2")], force: false };
        Volume::format(&drive, &format).unwrap();
        let (mut has, mut next) = ([BTreeSet::new(), BTreeSet::new()], 0);
        for round in 0..3u64 {
            let volume = Volume::open(drive.clone(), options().volume).unwrap();
            let open = |name: &str| Kv::open_tenant(volume.tenant(name).unwrap(), options()).unwrap();
            let stores = [open("kv"), open("kv2")];
            let of = |at: usize, n: u64| value(n * 2 + at as u64, 3000);
            for (at, store) in stores.iter().enumerate() {
                assert_eq!(store.damage(), [""; 0], "round {round}");
                for n in 0..next {
                    let want = has[at].contains(&n).then(|| of(at, n));
                    assert!(store.get(&key(n)).unwrap() == want, "store {at}, round {round}, key {n}");
                }
            }
            // By turns, until both are full.
            let (mut full, before) = ([false; 2], [has[0].len(), has[1].len()]);
            while full != [true; 2] {
                for (at, store) in stores.iter().enumerate() {
                    match store.put(&key(next), &of(at, next), next % 5 == 0) {
                        Err(error) if error.code() == Code::NoSpace => full[at] = true,
                        put => {
                            put.unwrap();
                            has[at].insert(next);
                        }
                    }
                }
                next += 1;
            }
            for (at, store) in stores.iter().enumerate() {
                assert!(
                    has[at].len() > before[at] + 50,
                    "store {at}, round {round}: {} and {}",
                    before[at],
                    has[at].len()
                );
                for n in (0..next).filter(|n| n % 4 != round) {
                    store
                        .delete(&key(n), false)
                        .unwrap_or_else(|error| panic!("store {at}, round {round}, {n}: {error}"));
                    has[at].remove(&n);
                }
                if at == 0 && round == 1 {
                    store.delete_range(None, None, false).unwrap();
                    has[at].clear();
                }
                store.compact().unwrap();
                assert_eq!(store.check().unwrap(), [""; 0]);
            }
            drop(stores);
            volume.shutdown(true).unwrap();
        }
    }
}

#[test]
fn overwriting_what_a_full_store_has_goes_on() {
    for config in configs() {
        let store = Kv::open(formatted(&config), options()).unwrap();
        // Half of the whole drive: of its 42 zones for data some ten are kept free or are the log's.
        let keys = (config.capacity / 3000) / 2;
        for n in 0..keys * 4 {
            store.put(&key(n % keys), &value(n, 3000), false).unwrap_or_else(|error| panic!("{n} of {keys}: {error}"));
        }
        for k in 0..keys {
            assert_eq!(store.get(&key(k)).unwrap(), Some(value(keys * 3 + k, 3000)));
        }
    }
}

#[test]
fn a_drive_that_is_too_small_is_refused_before_anything_is_written() {
    let small = Config { capacity: 10 * (128 << 10), ..configs()[0].clone() };
    let few = Config { max_open: Some(7), max_active: Some(7), ..few_active() };
    for (config, word) in [(small, "zones"), (few, "active")] {
        let drive = drive(&config);
        let refused = Kv::format(&drive, None, false).err().unwrap_or_else(|| panic!("{word}")).to_string();
        assert!(refused.contains(word), "{refused}");
    }
}
