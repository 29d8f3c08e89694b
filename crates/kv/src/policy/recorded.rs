//! The policies on distributions of keys that were recorded, not drawn from a formula (scripts/record-keys): which files the changes of this project's
//! repository were about, and the names of Debian's packages.

use super::model::{Model, Shape};
use super::{ALL, Policy, Ring, Sizes};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Numbers of so many hexadecimal digits.
fn numbers(text: &str, digits: usize) -> Vec<u32> {
    let all: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
    all.chunks(digits).map(|of| u32::from_str_radix(&of.iter().collect::<String>(), 16).unwrap()).collect()
}

/// Changes of files in their order, eight times over. A file has 16 keys, of which each change is about one.
fn paths() -> Vec<u32> {
    let files = numbers(include_str!("recorded/paths"), 3);
    assert_eq!(files.len(), 4000);
    (0..8 * files.len()).map(|at| files[at % files.len()] * 16 + (at % 16) as u32).collect()
}

/// New keys that stand as close to one another as names of packages do, in any order, and then puts of half of them.
fn packages() -> Vec<u32> {
    let bounds = numbers(include_str!("recorded/packages"), 8);
    assert!(bounds.len() == 512 && bounds.is_sorted());
    // Keys of the model have 20 bits here: letters stand in the upper ones.
    let bounds: Vec<u32> = bounds.iter().map(|bound| bound >> 11).collect();
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut keys: Vec<u32> = (0..20_000)
        .map(|at| {
            let (from, to) = (bounds[at % 511], bounds[at % 511 + 1]);
            if from < to { random.random_range(from..to) } else { from }
        })
        .collect();
    keys.shuffle(&mut random);
    let again = keys[..10_000].to_vec();
    keys.into_iter().chain(again).collect()
}

/// A model that has put all of these keys, once they are merged as far as the policy does.
fn played(policy: Box<dyn Policy>, shape: Shape, keys: &[u32]) -> Result<Model, String> {
    let mut model = Model::new(policy, shape);
    for (at, key) in keys.iter().enumerate() {
        if at % 11 == 5 { model.delete(*key) } else { model.put(*key) }?;
        if at % 6_000 == 0 {
            model.check()?;
        }
    }
    model.settle(false)?;
    model.check()?;
    Ok(model)
}

#[test]
fn all_policies_keep_the_newest_version_of_recorded_keys() {
    for (what, keys) in [("paths", paths()), ("packages", packages())] {
        for (name, make) in ALL {
            let shape = Shape::divided(300, 256);
            let model = played(make(shape.sizes), shape, &keys).unwrap_or_else(|e| panic!("{name}, {what}: {e}"));
            assert!(model.counts.jobs > 3, "{name} merges {what}: {:?}", model.counts);
        }
    }
}

#[test]
fn ring_keeps_its_shape_with_recorded_keys_and_little_room() {
    for (what, keys, most) in [("paths", paths(), 4.0), ("packages", packages(), 8.0)] {
        let distinct = keys.iter().collect::<std::collections::HashSet<_>>().len() as u64;
        let room = |shape: Shape| (distinct * shape.entry / shape.zone * 100 / 75) as u32 + 8;
        let shape = Shape::divided(room(Shape::divided(1, 256)), 256);
        let model = played(Box::new(Ring::new(shape.sizes)), shape, &keys).unwrap_or_else(|e| panic!("{what}: {e}"));
        let (counts, Sizes { memtable, .. }) = (&model.counts, shape.sizes);
        assert!(counts.slices <= 12, "{what}: {counts:?}");
        assert!(counts.log <= 2 * memtable + shape.entry, "{what}: {counts:?}");
        assert!(counts.job <= (16 << 30) / shape.scale, "{what}: {counts:?}");
        assert!(counts.amplification() < most, "{what}: {}", counts.amplification());
        // Where most keys stand close together, most partitions do.
        assert!(model.parts() > 1, "{what}: {} partitions of {} zones", model.parts(), shape.zones);
    }
}
