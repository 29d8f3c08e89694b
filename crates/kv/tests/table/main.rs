//! Tables against a sorted list of the same entries, and against damage.

mod damage;
mod support;

use imbrex_kv::table::{Compression, Kind, TableBuilder, TableOptions};
use imbrex_kv::{Bytewise, Order};
use proptest::prelude::*;
use std::sync::Arc;
use support::{Reverse, Written, compare, entry, identity, image, open, write};

/// Keys of a small alphabet, so that they share beginnings and come in versions; now and then a long one.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        30 => prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)], 0..6),
        10 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 300..70_000usize).prop_map(|(byte, len)| vec![byte; len.min(65_536)]),
    ]
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => prop::collection::vec(any::<u8>(), 0..50),
        10 => (any::<u8>(), 0..3000usize).prop_map(|(byte, len)| vec![byte; len]),
        1 => (any::<u32>(), 3000..200_000usize).prop_map(|(seed, len)| support::noise(u64::from(seed), len)),
        1 => Just(vec![7; 1 << 20]),
    ]
}

fn written() -> impl Strategy<Value = Written> {
    let kind = prop_oneof![Just(Kind::Delete), Just(Kind::Put), Just(Kind::Put), Just(Kind::Merge)];
    let entries = prop::collection::vec((keys(), 0..50u64, kind, values()), 0..150);
    let compression = prop_oneof![Just(Compression::Off), Just(Compression::Lz4), Just(Compression::Zstd)];
    let options = (prop_oneof![Just(4096u32), Just(16_384), Just(65_536)], compression, any::<bool>());
    (entries, options, any::<bool>()).prop_map(|(entries, (block, compression, filter), reverse)| {
        let order: Arc<dyn Order> = if reverse { Arc::new(Reverse) } else { Arc::new(Bytewise) };
        let mut written = Written {
            entries: entries.into_iter().map(|(key, seq, kind, value)| entry(&key, seq, kind, &value)).collect(),
            options: TableOptions { block, compression, filter },
            order,
        };
        written.sort();
        written
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_table_has_what_was_written(written in written(), probes in prop::collection::vec((keys(), 0..60u64), 0..20)) {
        prop_assume!(!written.is_empty());
        let (bytes, meta) = write(&written);
        let table = open(&bytes, &written.order).unwrap();
        prop_assert_eq!(table.properties(), &meta.properties);
        support::same_properties(&written, &meta.properties);
        support::same_forward_and_back(&written, &table);
        let stored = written.entries.iter().step_by(7).map(|entry| (entry.key.clone(), entry.seq));
        let around = stored.flat_map(|(key, seq)| [(key.clone(), seq), (key.clone(), seq.saturating_sub(1)), (key, u64::MAX)]);
        for (key, seq) in probes.into_iter().chain(around) {
            support::same_get(&written, &table, &key, seq);
            support::same_seek(&written, &table, &key, seq);
        }
        support::offsets_rise(&written, &table);
        prop_assert_eq!(table.check(), Vec::<String>::new());
    }
}

#[test]
fn keys_and_values_of_any_length() {
    for compression in [Compression::Off, Compression::Lz4, Compression::Zstd] {
        let long = |n: u8| [vec![b'k'; 65_535], vec![n]].concat();
        let mut written = Written {
            entries: vec![
                entry(b"", 9, Kind::Put, b""),
                entry(b"", 5, Kind::Put, &vec![1; 1 << 20]),
                entry(b"a", 7, Kind::Put, &support::noise(1, 1 << 20)),
                entry(b"a", 6, Kind::Delete, b""),
                entry(&long(0), 3, Kind::Put, b"x"),
                entry(&long(1), u64::MAX, Kind::Merge, b""),
                entry(&long(1), 0, Kind::Put, b"y"),
            ],
            options: TableOptions { compression, ..TableOptions::default() },
            order: Arc::new(Bytewise),
        };
        written.sort();
        let (bytes, meta) = write(&written);
        assert_eq!(meta.properties.largest, long(1));
        let table = open(&bytes, &written.order).unwrap();
        support::same_forward_and_back(&written, &table);
        for version in &written.entries {
            support::same_get(&written, &table, &version.key, version.seq);
        }
        assert_eq!(table.check(), Vec::<String>::new());
    }
}

#[test]
fn many_versions_of_a_key_go_over_several_blocks() {
    let value = support::noise(3, 1000);
    let mut written = Written::bytewise(vec![entry(b"a", 1, Kind::Put, b"first"), entry(b"z", 1, Kind::Put, b"last")]);
    written.entries.extend((0..200).map(|seq| entry(b"key", seq * 2, Kind::Merge, &value)));
    written.sort();
    let (bytes, meta) = write(&written);
    assert!(meta.properties.data_blocks > 10);
    let table = open(&bytes, &written.order).unwrap();
    for seq in 0..401 {
        support::same_get(&written, &table, b"key", seq);
        support::same_seek(&written, &table, b"key", seq);
    }
    assert_eq!(table.check(), Vec::<String>::new());
}

#[test]
fn what_is_out_of_order_is_refused_and_changes_nothing() {
    let builder = || TableBuilder::new(TableOptions::default(), Arc::new(Bytewise), identity()).unwrap();
    assert!(builder().finish().is_err());
    let (mut some, mut all) = (builder(), builder());
    for builder in [&mut some, &mut all] {
        builder.add(b"b", 5, Kind::Put, b"1").unwrap();
    }
    for (key, seq, kind, value) in [
        (&b"a"[..], 9, Kind::Put, &b""[..]),
        (b"b", 5, Kind::Merge, b""),
        (b"b", 6, Kind::Put, b""),
        (b"c", 6, Kind::Delete, b"a deletion has no value"),
        (&[b'c'; 65_539], 6, Kind::Put, b""),
    ] {
        assert!(all.add(key, seq, kind, value).is_err());
    }
    for builder in [&mut some, &mut all] {
        builder.add(b"b", 4, Kind::Delete, b"").unwrap();
    }
    assert_eq!(some.finish().unwrap(), all.finish().unwrap());
    for block in [0, 4095, 65_537] {
        let options = TableOptions { block, ..TableOptions::default() };
        assert!(TableBuilder::new(options, Arc::new(Bytewise), identity()).is_err());
    }
}

#[test]
fn an_order_that_lies_about_separators_loses_nothing() {
    struct Liar(&'static [u8]);
    impl Order for Liar {
        fn name(&self) -> &str {
            "liar"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            a.cmp(b)
        }
        fn separator(&self, _: &[u8], _: &[u8]) -> Vec<u8> {
            self.0.to_vec()
        }
    }
    for separator in [&b""[..], b"\xff", b"key 0500 and much longer"] {
        let mut written = Written::bytewise(Vec::new());
        written.order = Arc::new(Liar(separator));
        written.entries.extend((0..1000).map(|n| entry(format!("key {n:04}").as_bytes(), 1, Kind::Put, &[1; 100])));
        let (bytes, _) = write(&written);
        let table = open(&bytes, &written.order).unwrap();
        support::same_forward_and_back(&written, &table);
        assert_eq!(table.check(), Vec::<String>::new());
    }
}

#[test]
fn a_table_opens_only_with_its_own_order() {
    let written = Written::bytewise(vec![entry(b"a", 1, Kind::Put, b"b")]);
    let (bytes, _) = write(&written);
    let error = open(&bytes, &(Arc::new(Reverse) as Arc<dyn Order>)).err().unwrap().to_string();
    assert!(error.contains("leveldb.BytewiseComparator") && error.contains("reverse"), "{error}");
}

#[test]
fn the_filter_passes_few_keys_that_are_not_there() {
    let mut written = Written::bytewise(Vec::new());
    written.entries.extend((0..50_000).map(|n| entry(format!("user{n:08}").as_bytes(), 1, Kind::Put, b"")));
    let (bytes, _) = write(&written);
    let table = open(&bytes, &written.order).unwrap();
    assert!(written.entries.iter().all(|entry| table.may_contain(&entry.key)));
    let passed = (0..100_000).filter(|n| table.may_contain(format!("user{n:08}x").as_bytes())).count();
    assert!(passed < 600, "{passed} of 100,000 passed");
}

#[test]
fn the_estimate_is_near() {
    for compression in [Compression::Off, Compression::Lz4] {
        let mut written = Written::bytewise(Vec::new());
        written.options.compression = compression;
        written.entries.extend((0..100_000).map(|n| {
            let value = support::noise(n, 100);
            entry(format!("user{n:08}").as_bytes(), n, Kind::Put, &value)
        }));
        let mut builder = TableBuilder::new(written.options, written.order.clone(), identity()).unwrap();
        for entry in &written.entries {
            builder.add(&entry.key, entry.seq, entry.kind, &entry.value).unwrap();
        }
        let estimate = builder.estimated_len();
        let (_, meta) = builder.finish().unwrap();
        assert!(meta.len <= estimate && estimate < meta.len + meta.len / 400, "{} <= {estimate}", meta.len);
    }
}

/// Changing the format means changing this image: run with `IMBREX_WRITE_GOLDEN=1`, and raise the version once there was a release.
#[test]
fn the_golden_tables_are_still_written_and_read() {
    for (name, compression) in [("off", Compression::Off), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)] {
        let written = image(compression);
        let (bytes, _) = write(&written);
        let path = format!("{}/tests/golden/table-{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("IMBREX_WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        let golden = std::fs::read(&path).unwrap();
        // Another release of a compressor may find other bytes; the image must still be read.
        assert!(compression != Compression::Off || golden == bytes, "{name} is written in another way");
        let table = open(&golden, &written.order).unwrap();
        support::same_forward_and_back(&written, &table);
        assert_eq!(table.check(), Vec::<String>::new());
    }
}

#[test]
fn values_are_shared_and_outlive_the_iterator() {
    let written = Written::bytewise(vec![entry(b"a", 1, Kind::Put, &[5; 100_000]), entry(b"b", 1, Kind::Put, b"x")]);
    let (bytes, _) = write(&written);
    let table = open(&bytes, &written.order).unwrap();
    let mut iter = table.iter();
    iter.seek(b"a", 9).unwrap();
    let value = iter.shared_value().unwrap();
    iter.next().unwrap();
    assert_eq!(iter.value(), b"x");
    drop((iter, table));
    assert_eq!(&value[..], [5; 100_000]);
    assert_eq!(compare(&Bytewise, &written.entries[0], &written.entries[1]), std::cmp::Ordering::Less);
}
