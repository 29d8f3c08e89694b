//! Several spaces in one store.

use crate::support::{config, configs, formatted, options, value};
use imbrex_device::Code;
use imbrex_kv::{Batch, Bytewise, Kv, Make, Options, Order, register_order};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

const BYTES: &str = "leveldb.BytewiseComparator";

/// The longer the later, and then backwards. It trusts its keys, as some programs' orders do: none is empty.
struct ByLength;

impl Order for ByLength {
    fn name(&self) -> &str {
        "by length"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        assert!(a[0] == b'k' && b[0] == b'k', "keys that nobody has put");
        a.len().cmp(&b.len()).then_with(|| b.cmp(a))
    }
}

fn pairs(space: &Kv) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut iter, mut found, mut back) = (space.iter().unwrap(), Vec::new(), Vec::new());
    iter.seek_to_first().unwrap();
    while let Some((key, value)) = iter.get() {
        found.push((key.to_vec(), value.to_vec()));
        iter.advance().unwrap();
    }
    iter.seek_to_last().unwrap();
    while let Some((key, value)) = iter.get() {
        back.push((key.to_vec(), value.to_vec()));
        iter.retreat().unwrap();
    }
    back.reverse();
    assert_eq!(found, back);
    found
}

#[test]
fn each_has_its_own_keys_and_order_through_merges_and_restarts() {
    register_order(Arc::new(ByLength));
    for config in configs() {
        let drive = formatted(&config);
        let names = ["", "users", "by length", "z"];
        let order = |name: &str| if name == "by length" { "by length" } else { BYTES };
        let mut models = vec![BTreeMap::new(); names.len()];
        for round in 0..4u64 {
            let store = Kv::open(drive.clone(), options()).unwrap();
            assert_eq!(store.damage(), [""; 0]);
            let make = if round == 0 { Make::New } else { Make::Never };
            let of = |name: &str| {
                if name.is_empty() { store.clone() } else { store.space(name, order(name), make).unwrap() }
            };
            let spaces: Vec<Kv> = names.iter().map(|name| of(name)).collect();
            for n in 0..500u64 {
                let key = [vec![b'k'; 1 + (n % 3) as usize], ((n * 7919 + round * 31) % 150).to_string().into_bytes()]
                    .concat();
                let mut batch = Batch::new();
                // The first change goes where the batch is written to.
                let first = (n + round) as usize % spaces.len();
                for at in (0..spaces.len()).map(|at| (first + at) % spaces.len()) {
                    if at != first {
                        batch.space(&spaces[at]);
                    }
                    if (n + at as u64).is_multiple_of(7) {
                        batch.delete(&key);
                        models[at].remove(&key);
                    } else {
                        let value = value(n << 8 | round << 4 | at as u64, (n % 200) as usize);
                        batch.put(&key, &value);
                        models[at].insert(key.clone(), value);
                    }
                }
                spaces[first].write(&batch, n % 50 == 0).unwrap();
            }
            if round == 2 {
                store.compact().unwrap();
            }
            let all: Vec<_> = names[1..].iter().map(|name| (name.to_string(), order(name).to_owned())).collect();
            assert!(store.spaces().iter().eq(&{
                let mut all = all;
                all.sort();
                all
            }));
            for (space, model) in spaces.iter().zip(&models) {
                assert!(model.iter().all(|(key, value)| space.get(key).unwrap().as_ref() == Some(value)));
            }
            for (at, name) in names.iter().enumerate() {
                let mut want: Vec<_> = models[at].clone().into_iter().collect();
                if *name == "by length" {
                    want.sort_by(|(a, _), (b, _)| ByLength.compare(a, b));
                }
                assert_eq!(pairs(&spaces[at]), want, "{name} in round {round}");
            }
            assert_eq!(store.check().unwrap(), [""; 0]);
        }
    }
}

#[test]
fn a_snapshot_is_one_moment_of_all() {
    let store = Kv::open(formatted(&config()), options()).unwrap();
    let other = store.space("other", BYTES, Make::New).unwrap();
    store.put(b"", b"an empty key", false).unwrap();
    other.put(b"", b"another", false).unwrap();
    let before = other.snapshot();
    let mut batch = Batch::new();
    batch.put(b"", b"new");
    batch.space(&other);
    batch.delete(b"");
    store.write(&batch, true).unwrap();
    assert_eq!(store.get_at(&before, b"").unwrap().unwrap(), b"an empty key");
    assert_eq!(other.get_at(&before, b"").unwrap().unwrap(), b"another");
    assert_eq!((store.get(b"").unwrap().unwrap(), other.get(b"").unwrap()), (b"new".to_vec(), None));
    let mut iter = other.iter_at(&before).unwrap();
    iter.seek_for_prev(b"x").unwrap();
    assert_eq!(iter.get(), Some((&b""[..], &b"another"[..])));
    iter.retreat().unwrap();
    assert_eq!(iter.get(), None);
}

#[test]
fn names_and_orders_that_do_not_fit_are_refused_in_a_sentence() {
    let store = Kv::open(formatted(&config()), options()).unwrap();
    let refused = |name: &str, order: &str, make, code, words: &str| {
        let error = store.space(name, order, make).err().unwrap();
        assert!(error.code() == code && error.to_string().contains(words), "{error}");
    };
    store.space("a", BYTES, Make::IfMissing).unwrap().put(b"k", b"v", true).unwrap();
    refused("b", BYTES, Make::Never, Code::NotFound, "there is no space \"b\"");
    refused("a", BYTES, Make::New, Code::Exists, "already");
    refused("", BYTES, Make::New, Code::Exists, "already");
    refused("a", "other", Make::IfMissing, Code::InvalidArgument, "are in the order");
    refused("c", "nobody knows this", Make::New, Code::InvalidArgument, "knows no order");
    refused(&"n".repeat(2000), BYTES, Make::New, Code::InvalidArgument, "too long");
    assert_eq!(store.spaces(), [("a".to_owned(), BYTES.to_owned())]);
    let drive = crate::support::drive(&config());
    Kv::format(&drive, Some([8; 16]), false).unwrap();
    let other = Kv::open(drive, options()).unwrap();
    let mut batch = Batch::new();
    batch.space(&other);
    batch.put(b"k", b"v");
    assert!(store.write(&batch, false).unwrap_err().to_string().contains("another store"));
    let elsewhere = other.snapshot();
    assert!(store.get_at(&elsewhere, b"k").unwrap_err().to_string().contains("another store"));
    assert!(store.iter_at(&elsewhere).err().unwrap().to_string().contains("another store"));
}

#[test]
fn a_program_that_does_not_know_a_space_s_order_cannot_open_the_store() {
    struct Once;
    impl Order for Once {
        fn name(&self) -> &str {
            "known once"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            b.cmp(a)
        }
    }
    struct Never;
    impl Order for Never {
        fn name(&self) -> &str {
            Once.name()
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            Once.compare(a, b)
        }
    }
    let drive = formatted(&config());
    // The unnamed space's order is an option; no name of it is registered.
    let of = |order: Arc<dyn Order>| Options { order, ..options() };
    Kv::open(drive.clone(), of(Arc::new(Never))).unwrap().put(b"a", b"1", true).unwrap();
    let refused = Kv::open(drive.clone(), of(Arc::new(Bytewise))).err().unwrap().to_string();
    assert!(refused.contains("known once") && refused.contains(BYTES), "{refused}");
    register_order(Arc::new(Once));
    let store = Kv::open(drive, of(Arc::new(Never))).unwrap();
    store.space("second", "known once", Make::New).unwrap().put(b"b", b"2", true).unwrap();
    assert_eq!(store.get(b"b").unwrap(), None);
}

/// Upper and lower case are one key.
struct Folded;

impl Order for Folded {
    fn name(&self) -> &str {
        "folded"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
    }
}

#[test]
fn other_bytes_of_the_same_key_find_it_also_in_tables() {
    register_order(Arc::new(Folded));
    let store = Kv::open(formatted(&config()), options()).unwrap();
    let folded = store.space("folded", "folded", Make::New).unwrap();
    folded.put(b"Key", b"1", false).unwrap();
    for n in 0..200 {
        folded.put(format!("n{n}").as_bytes(), b"", false).unwrap();
    }
    store.flush().unwrap();
    assert_eq!(folded.get(b"kEY").unwrap().as_deref(), Some(&b"1"[..]));
    folded.put(b"KEY", b"2", false).unwrap();
    assert_eq!(folded.get(b"key").unwrap().as_deref(), Some(&b"2"[..]));
    store.flush().unwrap();
    store.compact().unwrap();
    assert_eq!(folded.get(b"key").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(pairs(&folded).len(), 201);
}
