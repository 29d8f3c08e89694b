//! The metadata against a simple model, under random operations, illegal ones included.

use crate::meta_support::{World, op};
use imbrex_bluefs::meta::{Meta, Record};
use proptest::prelude::*;
use proptest::test_runner::Config;

proptest! {
    #![proptest_config(Config { cases: 1500, failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_operation_does_what_the_model_says(ops in prop::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in &ops {
            world.step(op);
        }
        world.compare();
    }

    #[test]
    fn the_journal_and_the_snapshot_give_the_same_state(ops in prop::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in &ops {
            world.step(op);
        }
        let mut bytes = Vec::new();
        for record in &world.journal {
            record.encode(&mut bytes);
        }
        prop_assert!(replay(&bytes) == world.meta);

        bytes.clear();
        let mut names_began = false;
        for record in world.meta.snapshot() {
            names_began |= matches!(record, Record::Entry { .. });
            let is_late = names_began && matches!(record, Record::Inode { .. } | Record::Extent { .. });
            prop_assert!(!is_late, "inodes come before names");
            record.encode(&mut bytes);
        }
        prop_assert!(replay(&bytes) == world.meta);
    }
}

fn replay(mut bytes: &[u8]) -> Meta {
    let mut meta = Meta::new();
    while !bytes.is_empty() {
        let (record, len) = Record::decode(bytes).unwrap();
        let _ = meta.apply(&record).unwrap_or_else(|why| panic!("{record:?}: {why}"));
        bytes = &bytes[len..];
    }
    meta
}
