//! Damaged tables: whatever happened to the bytes, a look-up has the right answer or fails, and a check finds it.

use super::support::{Memory, Written, entry, identity, image, open, open_as, write};
use imbrex_kv::table::{Compression, Kind, Table, Uncached};
use std::sync::Arc;

/// Everything of a damaged table is right or fails, and something fails.
fn found_out(written: &Written, bytes: &[u8], what: &str) {
    let Ok(table) = open(bytes, &written.order) else { return };
    for entry in &written.entries {
        if let Ok(found) = table.get(&entry.key, entry.seq) {
            let version = found.unwrap_or_else(|| panic!("{what}: {entry:?} is gone"));
            assert_eq!(
                (version.seq, version.kind, &version.value[..]),
                (entry.seq, entry.kind, &entry.value[..]),
                "{what}"
            );
        }
    }
    let mut iter = table.iter();
    let mut next = iter.seek_to_first();
    for entry in &written.entries {
        if next.is_err() {
            break;
        }
        assert_eq!((iter.key(), iter.seq(), iter.value()), (&entry.key[..], entry.seq, &entry.value[..]), "{what}");
        next = iter.next();
    }
    assert_ne!(table.check(), Vec::<String>::new(), "{what}");
}

#[test]
fn every_flipped_bit_is_found() {
    for compression in [Compression::Off, Compression::Lz4, Compression::Zstd] {
        let written = image(compression);
        let (mut bytes, _) = write(&written);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            found_out(&written, &bytes, &format!("bit {bit}"));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn a_truncated_or_prolonged_table_does_not_open() {
    let written = image(Compression::Lz4);
    let (bytes, _) = write(&written);
    for len in 0..bytes.len() {
        assert!(open(&bytes[..len], &written.order).is_err(), "{len}");
        assert!(open(&bytes[len + 1..], &written.order).is_err(), "{len}");
    }
    assert!(open(&[&bytes[..], &[0]].concat(), &written.order).is_err());
    assert!(open(&[&[0], &bytes[..]].concat(), &written.order).is_err());
}

#[test]
fn another_table_and_another_life_do_not_pass() {
    let written = image(Compression::Off);
    let (bytes, _) = write(&written);
    for (table, life) in [(1, 0), (0, 1)] {
        let mut other = identity();
        (other.table, other.life) = (other.table + table, other.life + life);
        assert!(open_as(&bytes, &written.order, other).is_err());
    }
}

/// The footer is of this life, the block before it of another.
#[test]
fn a_block_of_another_life_or_place_does_not_pass() {
    let written = Written::bytewise((0..200u32).map(|n| entry(&n.to_be_bytes(), 1, Kind::Put, &[1; 100])).collect());
    let (good, _) = write(&written);
    // The first block, as a copy where the second one of the same length should be: only its place tells.
    let table = open(&good, &written.order).unwrap();
    let mut starts: Vec<_> =
        (0..200u32).map(|n| table.approximate_offset(&n.to_be_bytes()).unwrap() as usize).collect();
    starts.dedup();
    assert_eq!(starts[1] - starts[0], starts[2] - starts[1]);
    let mut moved = good.clone();
    moved.copy_within(0..starts[1], starts[1]);
    let check = open(&moved, &written.order).unwrap().check();
    assert!(check[0].contains(&format!("data block at {} (checksum)", starts[1])), "{check:?}");
    found_out(&written, &moved, "a block is where another should be");

    let mut life = identity();
    life.life += 1;
    let mut builder = imbrex_kv::table::TableBuilder::new(written.options, written.order.clone(), life).unwrap();
    for entry in &written.entries {
        builder.add(&entry.key, entry.seq, entry.kind, &[2; 100]).unwrap();
    }
    let (other, _) = builder.finish().unwrap();
    let mut mixed = good.clone();
    mixed[..8000].copy_from_slice(&other[..8000]);
    found_out(&written, &mixed, "blocks of another life");
    let table = open(&mixed, &written.order).unwrap();
    assert!(table.get(&0u32.to_be_bytes(), 1).is_err());
}

#[test]
fn errors_say_which_structure_and_where() {
    let written = image(Compression::Off);
    let (mut bytes, _) = write(&written);
    bytes[50] ^= 1;
    let table = open(&bytes, &written.order).unwrap();
    let error = table.get(&written.entries[0].key, u64::MAX).unwrap_err().to_string();
    assert!(error.contains("memory: table 7, data block at 0 (checksum) is damaged; run `imbrex kv check`"), "{error}");
    let check = table.check();
    assert!(check[0].contains("data block at 0 (checksum)"), "{check:?}");
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    let error = open(&bytes, &written.order).err().unwrap().to_string();
    assert!(error.contains("table 7, footer at") && error.contains("(checksum) is damaged"), "{error}");
}

#[test]
fn a_source_that_gives_too_little_is_an_error() {
    struct Short(Memory);
    impl imbrex_kv::table::Source for Short {
        fn read(&self, at: u64, len: usize) -> imbrex_device::Result<Vec<u8>> {
            self.0.read(at, len / 2)
        }
        fn drive(&self) -> Arc<str> {
            "short".into()
        }
    }
    let written = image(Compression::Off);
    let (bytes, meta) = write(&written);
    let source = Arc::new(Short(Memory(bytes)));
    assert!(Table::open(source, meta.len, written.order, identity(), Arc::new(Uncached)).is_err());
}
