//! Attributes and omaps.

use crate::{META, object, on_each};
use imbrex_bluestore::{MAX_ATTRIBUTE, ObjectId, Transaction};
use imbrex_device::Code;
use std::collections::BTreeMap;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn the_omap() -> ObjectId {
    object(-1, 123, "tesomap")
}

fn two() -> Map {
    [(b"foo".to_vec(), b"small".to_vec()), (b"bar".to_vec(), b"asdfjkasdkjdfsjkafskjsfdj".to_vec())].into()
}

fn set(t: &mut Transaction, id: &ObjectId, map: &Map) {
    let pairs: Vec<(&[u8], &[u8])> = map.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    t.omap_set(META, id, &pairs);
}

impl crate::Bed {
    /// All pairs, by pages of so many.
    fn omap(&self, id: &ObjectId, page: usize) -> Map {
        let (mut all, mut next) = (Vec::new(), Some(Vec::new()));
        while let Some(from) = next {
            let found = self.store().omap(META, id, &from, page).unwrap();
            assert!(found.all.iter().all(|(key, _)| *key >= from));
            all.extend(found.all);
            next = found.next;
        }
        assert!(all.is_sorted_by(|a, b| a.0 < b.0));
        all.into_iter().collect()
    }

    fn header(&self, id: &ObjectId) -> Vec<u8> {
        self.store().omap_header(META, id).unwrap().unwrap_or_default()
    }

    fn attributes(&self, id: &ObjectId) -> Map {
        self.store().stat(META, id).unwrap().attributes
    }
}

#[test]
fn simple_attr_test() {
    on_each(|bed| {
        let is = object(-1, 0, "attr object 1");
        assert!(bed.ids(META, 1).is_empty());
        assert!(!bed.is_there(META, &is));
        let all: [(&[u8], &[u8]); 2] = [(b"foo", b"value"), (b"bar", b"value2")];
        bed.does(|t| _ = t.touch(META, &is).set_attributes(META, &is, &all));
        assert_eq!(bed.ids(META, 1), std::slice::from_ref(&is));
        let found = bed.attributes(&is);
        assert!(!found.contains_key(&b"nofoo"[..]));
        assert_eq!((&found[&b"foo"[..]][..], &found[&b"bar"[..]][..], found.len()), (&b"value"[..], &b"value2"[..], 2));
        bed.cleans(&[&is]);
    });
}

#[test]
fn xattr_test() {
    on_each(|bed| {
        let (is, big, small) = (the_omap(), vec![0; 10_000], vec![0; 10]);
        bed.does(|t| _ = t.touch(META, &is));
        let (mut all, order) = (Map::new(), [(1, &small), (2, &big), (3, &small), (1, &small), (4, &big), (3, &big)]);
        bed.does(|t| {
            for (n, value) in order {
                let name = format!("attr{n}").into_bytes();
                t.set_attributes(META, &is, &[(&name, value)]);
                all.insert(name, value.clone());
            }
        });
        assert_eq!(bed.attributes(&is), all);
        bed.does(|t| _ = t.remove_attribute(META, &is, b"attr2"));
        all.remove(&b"attr2"[..]);
        bed.remount();
        assert_eq!(bed.attributes(&is), all);
        // There is no error for what is not there, and a limit for what is.
        bed.does(|t| _ = t.remove_attribute(META, &is, b"attr2"));
        let long = vec![7; MAX_ATTRIBUTE + 1];
        bed.refuses(Code::InvalidArgument, |t| _ = t.set_attributes(META, &is, &[(b"long", &long)]));
        bed.does(|t| _ = t.remove_attributes(META, &is));
        assert!(bed.attributes(&is).is_empty());
        bed.cleans(&[&is]);
    });
}

#[test]
fn omap_simple() {
    on_each(|bed| {
        let is = the_omap();
        bed.does(|t| {
            t.touch(META, &is);
            set(t, &is, &two());
            t.omap_header(META, &is, b"this is a header");
        });
        for page in [1, 2, 100] {
            assert_eq!((bed.omap(&is, page), bed.header(&is)), (two(), b"this is a header".to_vec()));
        }
        bed.cleans(&[&is]);
    });
}

#[test]
fn omap_clone_test() {
    on_each(|bed| {
        let (is, other) = (the_omap(), object(-1, 123, "Object 2"));
        bed.does(|t| {
            set(t, &is, &two());
            t.omap_header(META, &is, b"this is a header");
        });
        bed.does(|t| _ = t.clone_object(META, &is, &other));
        bed.does(|t| _ = t.omap_clear(META, &is));
        bed.remount();
        assert_eq!((bed.omap(&other, 10), bed.header(&other)), (two(), b"this is a header".to_vec()));
        assert_eq!((bed.omap(&is, 10), bed.header(&is)), (Map::new(), Vec::new()));
        bed.cleans(&[&is, &other]);
    });
}

/// What is set one after the other, and removed so.
#[test]
fn omap_test() {
    on_each(|bed| {
        let (is, mut all) = (the_omap(), Map::new());
        bed.does(|t| _ = t.touch(META, &is).omap_clear(META, &is).omap_set(META, &is, &[]));
        for n in 0..100 {
            assert_eq!(bed.omap(&is, 30), all);
            let (key, value) = (format!("key-{n}").into_bytes(), format!("{n}\0").into_bytes());
            bed.does(|t| _ = t.omap_set(META, &is, &[(&key, &value)]));
            all.insert(key, value);
        }
        while let Some((key, _)) = all.pop_first() {
            bed.does(|t| _ = t.omap_remove(META, &is, &[&key]));
            assert_eq!(bed.omap(&is, 30), all);
        }
        bed.does(|t| _ = t.omap_header(META, &is, b"omap_header"));
        bed.does(|t| _ = t.omap_set(META, &is, &[(b"key", b"value")]));
        assert_eq!((bed.omap(&is, 30).len(), bed.header(&is)), (1, b"omap_header".to_vec()));
        // A range goes, and then all.
        let digits: Map = (0..10).map(|n| (n.to_string().into_bytes(), b"foo".to_vec())).collect();
        bed.does(|t| {
            t.remove(META, &is).touch(META, &is).omap_header(META, &is, b"header");
            set(t, &is, &digits);
        });
        bed.does(|t| _ = t.omap_remove_range(META, &is, b"3", b"7"));
        assert!(bed.omap(&is, 4).keys().eq([b"0", b"1", b"2", b"7", b"8", b"9"]));
        assert_eq!(bed.header(&is), b"header");
        bed.does(|t| _ = t.omap_clear(META, &is));
        assert_eq!((bed.omap(&is, 4), bed.header(&is)), (Map::new(), Vec::new()));
        bed.cleans(&[&is]);
    });
}

/// There is no iterator: a page begins at a key, or behind it.
#[test]
fn omap_iterator() {
    on_each(|bed| {
        let (is, mut all) = (the_omap(), Map::new());
        bed.does(|t| _ = t.touch(META, &is));
        for n in 0..100 {
            assert_eq!(bed.omap(&is, 7), all);
            let (key, value) = (format!("key-{n}").into_bytes(), format!("{n}\0").into_bytes());
            bed.does(|t| _ = t.omap_set(META, &is, &[(&key, &value)]));
            all.insert(key, value);
        }
        let first = |from: &[u8]| bed.store().omap(META, &is, from, 1).unwrap().all.remove(0).0;
        assert_eq!(first(b"key-5"), b"key-5");
        assert_eq!(first(b"key-5\0"), b"key-50");
        assert!(bed.store().omap(META, &is, b"key-:", 1).unwrap().all.is_empty());
        bed.cleans(&[&is]);
    });
}

/// Omaps of many objects, some with headers and some without, are there after a restart, and go with their objects. There is no older layout to convert.
#[test]
fn large_legacy_to_pg() {
    on_each(|bed| {
        let of = |n: u32| object(-1, n.wrapping_mul(0x9e37_79b9), format!("name.{n}"));
        let map = |n: u32| -> Map {
            (0..n % 20 + 1).map(|k| (format!("{k}.{n}").into_bytes(), vec![n as u8; 100])).collect()
        };
        for n in 0..200 {
            bed.does(|t| {
                if n % 2 == 0 {
                    t.omap_header(META, &of(n), format!("header of {n}").as_bytes());
                }
                set(t, &of(n), &map(n));
            });
        }
        bed.remount();
        for n in 0..200 {
            assert_eq!(bed.omap(&of(n), 6), map(n));
            let header = if n % 2 == 0 { format!("header of {n}") } else { String::new() };
            assert_eq!(bed.header(&of(n)), header.into_bytes());
        }
        bed.cleans(&(0..200).map(of).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    });
}
