use super::model::{Model, Shape};
use super::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;

/// A small store: entries are as large as they are, and everything else is a 256th.
fn shape(zones: u32) -> Shape {
    Shape::divided(zones, 256)
}

fn ring(zones: u32) -> Model {
    let shape = shape(zones);
    Model::new(Box::new(Ring::new(shape.sizes)), shape)
}

fn keys(shape: Shape, percent: u64) -> u32 {
    (u64::from(shape.zones) * shape.zone / shape.entry * percent / 100) as u32
}

fn fill(model: &mut Model, percent: u64) -> u32 {
    let keys = keys(model.shape, percent);
    (0..keys).for_each(|key| model.put(key).unwrap());
    keys
}

fn random() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(7)
}

/// The promises on shape, of a store whose puts were never refused.
fn has_its_shape(model: &Model) {
    let (counts, sizes) = (&model.counts, model.shape.sizes);
    assert!(counts.slices <= 12, "{counts:?}");
    assert!(counts.log <= 2 * sizes.memtable + model.shape.entry, "{counts:?}");
    assert!(counts.job <= (16 << 30) / model.shape.scale, "{counts:?}");
    model.check().unwrap();
}

#[test]
fn all_policies_keep_the_newest_version_of_each_key() {
    for (name, make) in ALL {
        let shape = shape(400);
        let mut model = Model::new(make(shape.sizes), shape);
        let mut random = random();
        for at in 0..40_000u32 {
            let key = random.random_range(0..8_000);
            if at % 7 == 0 { model.delete(key) } else { model.put(key) }.unwrap_or_else(|e| panic!("{name}: {e}"));
            if at % 8_000 == 0 {
                model.check().unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
        assert!(model.counts.jobs > 3, "{name} merges");
        model.settle(false).unwrap_or_else(|e| panic!("{name}: {e}"));
        model.check().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(named(name, shape.sizes).is_some());
    }
    assert!(named("level", shape(1).sizes).is_none());
}

#[test]
fn a_log_that_is_cleaned_has_free_zones_and_loses_nothing() {
    for victim in [Victim::Greedy, Victim::CostBenefit] {
        let shape = shape(60);
        let cleaning = Cleaning { victim, low: 6 };
        let mut model = Model::cleaned(Box::new(Leveled::new(shape.sizes)), shape, cleaning);
        let (keys, mut random) = (keys(shape, 55), random());
        for at in 0..3 * keys {
            let key = random.random_range(0..keys);
            model.put(key).unwrap_or_else(|e| panic!("{victim:?} after {at} puts: {e}"));
            if at % 4_000 == 0 {
                model.check().unwrap();
            }
        }
        let counts = model.counts.clone();
        assert!(counts.cleaned > 0 && counts.cleaning > 0.0 && counts.merging.0 > counts.merging.1, "{counts:?}");
        assert!(counts.cleaning + counts.merging.0 < counts.seconds(shape.scale), "{counts:?}");
        assert_eq!(model.fills().len(), model.used() as usize);
        model.settle(true).unwrap();
        model.check().unwrap();
        // Each merge has ended, and they are all that took time.
        let (each, all) = (&model.counts.each, model.counts.merging.0);
        assert_eq!(each.len() as u64, model.counts.jobs);
        assert!((each.iter().sum::<f64>() - all).abs() < 1e-6 * all, "{all}: {each:?}");
    }
}

#[test]
fn ring_keeps_its_shape_when_it_fills_up_and_rests_in_few_zones() {
    let mut model = ring(280);
    let all = keys(model.shape, 75);
    let mut random = random();
    (0..all).for_each(|_| model.put(random.random_range(0..all)).unwrap());
    has_its_shape(&model);
    model.settle(true).unwrap();
    let part = model.live() as f64 / (f64::from(model.used()) * model.shape.zone as f64);
    assert!(part >= 0.95, "{part} of the zones are live at rest");
    model.check().unwrap();
}

#[test]
fn ring_overwrites_a_full_drive_without_a_deadlock() {
    for (percent, hot, most) in [(85, 1.0, 9.0), (92, 1.0, 30.0), (92, 0.05, 30.0)] {
        let mut model = ring(280);
        let all = fill(&mut model, percent);
        model.restart();
        let mut random = random();
        for at in 0..all / 4 {
            let moved = at / 1000 * 7919 % all;
            let key = if random.random_bool(0.9) { random.random_range(0..(f64::from(all) * hot) as u32) } else { 0 };
            model.put((moved + key) % all).unwrap_or_else(|e| panic!("{percent} % full, put {at}: {e}"));
        }
        has_its_shape(&model);
        let amplification = model.counts.amplification();
        assert!(amplification < most, "{percent} % full: {amplification}");
    }
}

/// There are hardly more free zones than partitions here, and each has a zone that is not full: no merge may take what the next sweep needs.
#[test]
fn ring_overwrites_a_large_drive_that_is_nearly_full() {
    let mut model = ring(1000);
    let all = fill(&mut model, 92);
    let mut random = random();
    for at in 0..all / 8 {
        model.put(random.random_range(0..all)).unwrap_or_else(|e| panic!("put {at}: {e}"));
    }
    has_its_shape(&model);
}

/// Puts, and counts the longest row of times that the policy lets nobody put at all.
fn stops(model: &mut Model, puts: impl Iterator<Item = u32>) -> u64 {
    model.restart();
    puts.for_each(|key| model.put(key).unwrap());
    model.counts.stopped
}

#[test]
fn ring_never_stops_puts_for_a_whole_merge() {
    // An empty store first: its few partitions grow alike, so that one is too large for its slices while another one is swept.
    let mut model = ring(280);
    let all = keys(model.shape, 110);
    let mut keys = random();
    let stopped = stops(&mut model, (0..all).map(|_| keys.random_range(0..all)));
    assert_eq!(stopped, 0, "steps in a row while it fills up");
    // From seven eighths on zones are kept for deletions that puts would have.
    for (percent, most) in [(70, 0), (85, 0), (92, 2)] {
        let mut model = ring(280);
        let all = fill(&mut model, percent);
        let stopped = stops(&mut model, (0..all / 3).map(|_| keys.random_range(0..all)));
        assert!(stopped <= most, "{stopped} steps in a row, {percent} % full");
    }
}

/// Puts half as many again random keys as there are, so many a second, each at its time, while the model's thread works. How many seconds each waited, ascending; the first quarter does not count.
fn paced(model: &mut Model, random: &mut ChaCha8Rng, keys: u32, rate: f64) -> Vec<f64> {
    let scale = model.shape.scale;
    // When the drive is done, and when the last put that waited went on.
    let (mut now, mut admitted, mut waits) = (0.0f64, 0.0f64, Vec::new());
    let puts = keys + keys / 2;
    for n in 0..puts {
        let arrives = f64::from(n) * scale as f64 / rate;
        while now <= arrives {
            let before = model.counts.seconds(scale);
            let works = model.tend().unwrap();
            now = if works { now + model.counts.seconds(scale) - before } else { arrives };
            if !works {
                break;
            }
        }
        let before = model.counts.seconds(scale);
        model.put(random.random_range(0..keys)).unwrap();
        let took = model.counts.seconds(scale) - before;
        if took > 0.0 {
            now += took;
            admitted = now;
        }
        if n > puts / 4 {
            waits.push((admitted - arrives).max(0.0));
        }
    }
    waits.sort_by(f64::total_cmp);
    waits
}

#[test]
fn ring_lets_nobody_wait_who_puts_less_than_a_nearly_full_drive_takes() {
    let mut model = ring(280);
    let (keys, mut random) = (fill(&mut model, 91), random());
    (0..keys).for_each(|_| model.put(random.random_range(0..keys)).unwrap());
    let waits = paced(&mut model, &mut random, keys, 780.0);
    assert!(waits[waits.len() * 999 / 1000] <= 0.1, "{:?}", &waits[waits.len() - 100..]);
    has_its_shape(&model);
}

/// At 80 % of what the drive takes nobody waits, either. A partition that follows a sweep counts the sweep's slices beside its own, so it has room for its own only if
/// they were few: without merges of the slices of what is swept next these seeds have waits of seconds.
#[test]
fn ring_lets_nobody_wait_who_puts_four_fifths_of_what_a_drive_takes() {
    for seed in [5, 8] {
        let mut model = ring(280);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let keys = fill(&mut model, 70);
        let quarter = |_| {
            let before = model.counts.seconds(model.shape.scale);
            (0..keys / 4).for_each(|_| model.put(random.random_range(0..keys)).unwrap());
            f64::from(keys / 4) * model.shape.scale as f64 / (model.counts.seconds(model.shape.scale) - before)
        };
        let slowest = (0..4).map(quarter).fold(f64::MAX, f64::min);
        let waits = paced(&mut model, &mut random, keys, slowest * 0.8);
        assert!(waits[waits.len() * 999 / 1000] <= 0.1, "seed {seed}: {:?}", &waits[waits.len() - 100..]);
        has_its_shape(&model);
    }
}

/// A sweep goes on although puts come as fast as they can: merges of slices of what is put meanwhile do not take its turn again and again.
#[test]
fn ring_takes_about_as_long_for_a_random_load_whatever_the_keys() {
    for seed in [5, 8, 11, 14, 3, 9, 13] {
        let mut model = ring(280);
        let all = keys(model.shape, 110);
        let mut keys = ChaCha8Rng::seed_from_u64(seed);
        (0..all).for_each(|_| model.put(keys.random_range(0..all)).unwrap());
        let amplification = model.counts.amplification();
        assert!(amplification < 3.4, "seed {seed}: {amplification}");
        // Puts that wait for a partition that is too large wait for its own sweep, and not for another one's before it: that took 80 to 100 s with the last three seeds.
        assert!(model.counts.stall < 15.0, "seed {seed}: a put waited for {} s", model.counts.stall);
        has_its_shape(&model);
    }
}

/// However many partitions there are, puts wait for the dial: with many of them, each flush makes room in memory.
#[test]
fn ring_keeps_to_its_dial_while_a_large_drive_fills_up() {
    let shape = shape(600);
    let mut model = Model::new(Box::new(Ring { bottom: 90, ..Ring::new(shape.sizes) }), shape);
    let (all, mut random) = (keys(shape, 100), random());
    (0..all).for_each(|_| model.put(random.random_range(0..all)).unwrap());
    let (live, peak) = (model.live() as f64 / shape.zone as f64, model.counts.peak);
    assert!(live / f64::from(peak) > 0.85, "{live} zones are live of {peak}");
    has_its_shape(&model);
}

#[test]
fn ring_frees_what_tombstones_hide_without_a_put() {
    let mut model = ring(280);
    let all = fill(&mut model, 92);
    let before = model.used();
    (0..all).step_by(2).for_each(|key| model.delete(key).unwrap());
    model.settle(true).unwrap();
    model.check().unwrap();
    let (freed, deleted) = (before - model.used(), before / 2);
    assert!(freed * 10 >= deleted * 9, "{freed} zones of {deleted} are free");
}

/// The dial holds puts back, and never what makes room: a drive that is full beyond the dial is overwritten, half of it deleted, and filled again.
#[test]
fn ring_deletes_and_overwrites_on_a_drive_that_is_fuller_than_its_dial_allows() {
    for (percent, bottom) in [(85, 90), (92, 90), (92, 97), (92, 100)] {
        let shape = shape(280);
        let mut model = Model::new(Box::new(Ring { bottom, ..Ring::new(shape.sizes) }), shape);
        let (all, mut random) = (fill(&mut model, percent), random());
        let what = |n: u32| format!("{percent} % full, {bottom}, operation {n}");
        (0..all / 20)
            .for_each(|n| model.put(random.random_range(0..all)).unwrap_or_else(|e| panic!("{}: {e}", what(n))));
        let before = model.used();
        (0..all).step_by(2).for_each(|key| model.delete(key).unwrap_or_else(|e| panic!("{}: {e}", what(key))));
        model.settle(true).unwrap();
        let freed = before - model.used();
        assert!(freed * 20 >= before * 9, "{freed} of {before} zones are free, {}", what(0));
        (0..all / 4).for_each(|n| model.put(2 * n).unwrap_or_else(|e| panic!("{}: {e}", what(n))));
        model.check().unwrap();
    }
}

#[test]
fn ring_relabels_what_overlaps_nothing() {
    let mut model = ring(280);
    fill(&mut model, 60);
    assert!(model.counts.amplification() <= 1.01, "{:?}", model.counts);
    assert!(model.parts() > 4, "bounds follow the keys");
    has_its_shape(&model);
    // Nor is anything merged where little room is left, and partitions are too large soon.
    (0..keys(model.shape, 97)).skip(keys(model.shape, 60) as usize).for_each(|key| model.put(key).unwrap());
    assert_eq!(model.counts.read, 0);
    has_its_shape(&model);
    // So it is with keys that come from the last to the first.
    let mut model = ring(280);
    (0..keys(model.shape, 97)).rev().for_each(|key| model.put(key).unwrap());
    assert_eq!(model.counts.read, 0);
    has_its_shape(&model);
}

#[test]
fn ring_flushes_the_oldest_before_the_log_is_too_long() {
    let mut model = ring(280);
    let all = fill(&mut model, 40);
    model.restart();
    // One put in a hundred goes elsewhere, and would pin the log.
    for at in 0..all {
        model.put(if at % 100 == 0 { at * 7919 % all } else { at % (all / 50) }).unwrap();
    }
    assert!(model.counts.log > model.shape.sizes.memtable);
    has_its_shape(&model);
}

#[test]
fn ring_says_that_there_is_no_space_when_there_is_none() {
    let mut model = ring(24);
    let all = keys(model.shape, 150);
    let refused = (0..all).find_map(|key| model.put(key).err());
    assert_eq!(refused.as_deref(), Some("no space"));
    model.check().unwrap();
}

/// What a ring says of ten zones of the bottom, each with one table of so many bytes and entries, and of so many bytes in memory.
fn ring_of_bottom(ring: Ring, (bytes, entries): (u64, u64), free: u32, memory: u64) -> (Choice, super::Pressure) {
    let key = |n: u32| -> Key { n.to_be_bytes()[..].into() };
    let table = |n: u32| Table {
        id: n.into(),
        group: BOTTOM,
        smallest: key(2 * n),
        largest: key(2 * n + 1),
        oldest: 1,
        newest: 1,
        bytes,
        entries,
        tombstones: 0,
        hidden: 0,
        stale: 0,
        dead: 0,
        dead_at: u64::MAX,
        zone: n,
        marks: [key(2 * n)].into(),
    };
    let tables: Vec<Table> = (0..10).map(table).collect();
    let parts = [Part { id: 7, from: None, bytes: memory, hidden: 0, log: memory }];
    let snapshot = Snapshot {
        order: &crate::order::Bytewise,
        tables: &tables,
        parts: &parts,
        jobs: &[],
        windows: &[],
        open: &[],
        zones: 10 + free,
        free,
        last: false,
        zone: ZONE,
        writes: 8,
        next: 10,
        settled: u64::MAX,
        goal: Goal::Usual,
    };
    (ring.choose(&snapshot), ring.pressure(&snapshot))
}

#[test]
fn ring_gathers_zones_that_are_hardly_full_when_nothing_else_makes_room() {
    let sizes = Sizes { memtable: ZONE, table: ZONE / 4, step: ZONE / 4 };
    let choice = |bytes, entries, free| ring_of_bottom(Ring::new(sizes), (bytes, entries), free, ZONE).0;
    let Choice::Begin { job, .. } = choice(ZONE / 2, 1000, 3) else { panic!("{:?}", choice(ZONE / 2, 1000, 3)) };
    // Three zones that are half full become two.
    assert_eq!((job.kind, job.zones.as_slice()), (Kind::Sweep, &[0, 1, 2][..]));
    assert!(matches!(choice(ZONE / 2, 1000, 4), Choice::Flush { .. }), "there is room for a flush");
    for (bytes, entries, why) in [
        (ZONE / 10 * 9, 1000, "zones that are nearly full give none back"),
        (ZONE / 2, 1, "a long entry leaves as much of the next zone"),
    ] {
        assert!(matches!(choice(bytes, entries, 3), Choice::Nothing), "{why}");
    }
    assert!(matches!(choice(ZONE / 2, 1000, 1), Choice::Nothing), "it needs a zone to write to");
    // The dial leaves nothing to an upper level then, but there is nothing to sweep: whoever puts must not wait for it.
    let dialled = Ring { bottom: 90, least: 0, ..Ring::new(sizes) };
    let of_dialled = ring_of_bottom(dialled, (ZONE / 2, 1000), 20, 0);
    assert!(matches!(of_dialled, (Choice::Nothing, Pressure::None)), "{of_dialled:?}");
}

/// Bytes of a zone of the snapshots below.
const ZONE: u64 = 1 << 20;

/// What `ring` chooses where two partitions have slices of so many bytes and levels, over a bottom, and so much in memory.
fn ring_with(slices: [&[(u64, u8)]; 2], memory: [u64; 2], jobs: &[Job], goal: Goal) -> (Choice, super::Pressure) {
    ring_in(300, slices, memory, jobs, goal)
}

/// The same where so many zones are free.
fn ring_in(
    free: u32,
    slices: [&[(u64, u8)]; 2],
    memory: [u64; 2],
    jobs: &[Job],
    goal: Goal,
) -> (Choice, super::Pressure) {
    const ZONE: u64 = 1 << 20;
    let key = |n: u32| -> Key { n.to_be_bytes()[..].into() };
    let (mut tables, mut zone) = (Vec::new(), 0);
    let mut table = |group: Group, bytes: u64, keys: (u32, u32)| {
        zone += 1;
        Table {
            id: zone.into(),
            group,
            smallest: key(keys.0),
            largest: key(keys.1),
            oldest: zone.into(),
            newest: zone.into(),
            bytes,
            entries: 1000,
            tombstones: 0,
            hidden: 0,
            stale: 0,
            dead: 0,
            dead_at: u64::MAX,
            zone,
            marks: [key(keys.0)].into(),
        }
    };
    for (part, slices) in slices.iter().enumerate() {
        let (from, to) = (part as u32 * 1000, part as u32 * 1000 + 999);
        for n in 0..8 {
            tables.push(table(BOTTOM, ZONE, (from + n * 100, from + n * 100 + 99)));
        }
        tables.extend(
            slices
                .iter()
                .map(|(bytes, level)| table(Group { level: *level, part: part as u32 + 1 }, *bytes, (from, to))),
        );
    }
    tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    let part = |n: usize| {
        let from = (n > 0).then(|| key(n as u32 * 1000));
        Part { id: n as u32 + 1, from, bytes: memory[n], hidden: 0, log: memory[n] }
    };
    let snapshot = Snapshot {
        order: &crate::order::Bytewise,
        tables: &tables,
        parts: &[part(0), part(1)],
        jobs,
        windows: &[],
        open: &[],
        zones: 400,
        free,
        last: false,
        zone: ZONE,
        writes: 8,
        next: 1000,
        settled: u64::MAX,
        goal,
    };
    let ring = Ring::new(Sizes { memtable: ZONE, table: ZONE / 4, step: ZONE / 4 });
    (ring.choose(&snapshot), ring.pressure(&snapshot))
}

#[test]
fn ring_merges_slices_early_while_the_drive_has_time() {
    const SLICE: (u64, u8) = (64 << 10, 0);
    let choice = |slices: usize, goal: Goal| ring_with([&[SLICE; 2], &vec![SLICE; slices]], [0, 0], &[], goal).0;
    let Choice::Begin { job, .. } = choice(8, Goal::Ahead) else { panic!("{:?}", choice(8, Goal::Ahead)) };
    assert_eq!((job.kind, job.part), (Kind::Slices(0), 2));
    assert!(matches!(choice(7, Goal::Ahead), Choice::Nothing), "seven are not many");
    assert!(matches!(choice(8, Goal::Usual), Choice::Nothing), "nobody said that the drive has time");
}

#[test]
fn ring_merges_the_slices_that_memory_will_wait_for_before_it_does() {
    let sweep = [Job { kind: Kind::Sweep, part: 1, from: 0, before: 1000, zones: Vec::new() }];
    let begins = |slices: usize, memory: u64, jobs: &[Job]| {
        let upper = vec![(ZONE / 8, 0); slices];
        match ring_with([&[(ZONE / 8, 0); 2], &upper], [0, memory], jobs, Goal::Usual).0 {
            Choice::Begin { job, .. } => Some((job.kind, job.part)),
            _ => None,
        }
    };
    let merged = Some((Kind::Slices(0), 2));
    assert_eq!(begins(11, ZONE / 8 * 5, &sweep), merged, "the sweep waits");
    assert_eq!(begins(11, ZONE / 8 * 4, &sweep), None, "there is time");
    assert_eq!(begins(10, ZONE / 8 * 5, &sweep), None, "one more slice may come");
    assert_eq!(begins(11, ZONE / 8 * 5, &[]), merged, "nothing is under way");
    let short = Job { kind: Kind::Slices(0), ..sweep[0].clone() };
    assert_eq!(begins(11, ZONE / 8 * 5, &[short]), None, "what is under way is shorter");
}

#[test]
fn ring_sweeps_before_several_partitions_are_too_large_while_the_drive_has_time() {
    let sweeps = |slices: [u64; 2], goal: Goal| {
        let slices = slices.map(|zones| [(zones * ZONE, 0); 2]);
        matches!(ring_with([&slices[0], &slices[1]], [0, 0], &[], goal).0, Choice::Begin { job, .. } if job.kind == Kind::Sweep)
    };
    assert!(sweeps([7, 7], Goal::Ahead), "the second would be too large while the first is swept");
    assert!(!sweeps([7, 7], Goal::Usual), "sweeps are larger, and so fewer, where puts do not leave the drive time");
    assert!(!sweeps([7, 3], Goal::Ahead));
    assert!(sweeps([8, 3], Goal::Usual), "it is large");
}

#[test]
fn ring_merges_small_slices_before_it_sweeps_their_partition() {
    let choice = |small: u64| {
        let mut slices = vec![(8 << 20, 1)];
        slices.extend([(small, 0); 7]);
        ring_with([&[], &slices], [0, 0], &[], Goal::All).0
    };
    // Up to a half of the partition's bytes.
    for (small, kind) in [(100 << 10, Kind::Slices(0)), (1 << 20, Kind::Slices(0)), (1200 << 10, Kind::Sweep)] {
        let Choice::Begin { job, .. } = choice(small) else { panic!("{:?}", choice(small)) };
        assert_eq!((job.kind, job.part), (kind, 2), "{small}");
    }
}

#[test]
fn ring_flushes_another_part_of_memory_while_one_waits() {
    const SLICE: (u64, u8) = (64 << 10, 0);
    let job = Job { kind: Kind::Slices(0), part: 2, from: 0, before: 900, zones: Vec::new() };
    let with = |first: u64, slices: usize, jobs: &[Job]| {
        ring_with([&[SLICE; 2], &vec![SLICE; slices]], [first, (1 << 20) - first], jobs, Goal::Usual)
    };
    // The second partition is the larger one, and has twelve slices.
    let (choice, pressure) = with(400 << 10, 12, std::slice::from_ref(&job));
    assert!(matches!(choice, Choice::Flush { part: 1, .. }), "{choice:?}");
    let (other, waiting) = with(100 << 10, 12, std::slice::from_ref(&job));
    assert!(matches!(other, Choice::Merge(_)), "a tenth of memory is not worth a slice: {other:?}");
    let admitted = |pressure: super::Pressure| match pressure {
        super::Pressure::Slow(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    assert!(admitted(pressure) > admitted(waiting));
    let (own, _) = with(400 << 10, 2, std::slice::from_ref(&job));
    assert!(matches!(own, Choice::Flush { part: 2, .. }), "it need not wait: {own:?}");
}

#[test]
fn ring_lets_puts_have_the_few_zones_that_a_sweep_leaves() {
    let job = [Job { kind: Kind::Sweep, part: 1, from: 0, before: 1000, zones: Vec::new() }];
    let admitted = |free: u32| match ring_in(free, [&[(ZONE, 0); 2], &[(ZONE, 0)]], [100, 100], &job, Goal::Usual).1 {
        super::Pressure::Slow(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    // The sweep may take five, and what is left goes to puts evenly: memory alone is less than a zone.
    let (none, two, four) = (admitted(5), admitted(7), admitted(9));
    assert!(none < two && two < four, "{none} {two} {four}");
}

#[test]
fn a_policy_without_state_goes_on_after_each_step() {
    // The same choice twice is the same: nothing but the snapshot decides.
    let mut model = ring(280);
    let all = fill(&mut model, 50);
    let mut random = random();
    for _ in 0..400 {
        (0..50).for_each(|_| model.put(random.random_range(0..all)).unwrap());
        let (one, two) = (model.choice(false), model.choice(false));
        assert_eq!(format!("{one:?}"), format!("{two:?}"));
    }
}

/// Loads at random, asks after each so many puts, and looks at a choice before it is carried out.
fn watched(policy: Box<dyn Policy>, (puts, each): (u32, u32), mut look: impl FnMut(&Model, &Choice)) -> Model {
    let shape = shape(600);
    let mut model = Model::new(policy, shape);
    let mut random = random();
    for at in 0..puts {
        model.put(random.random_range(0..puts)).unwrap();
        if at % each != 0 {
            continue;
        }
        let choice = model.choice(false);
        look(&model, &choice);
        if !matches!(choice, Choice::Nothing) {
            model.carry_out(choice).unwrap();
        }
    }
    model
}

#[test]
fn gear_invalidates_tables_in_windows_only_and_keeps_a_window_until_it_is_empty() {
    let sizes = shape(600).sizes;
    let mut rotated = 0;
    let mut window: Option<Window> = None;
    let model = watched(Box::new(Gear::new(sizes)), (60_000, 1), |model, choice| match choice {
        Choice::Window(next) => {
            let left = model.tables().iter().filter(|table| {
                table.group.level == next.level
                    && model.windows().iter().any(|old| old.level == next.level && old.zones.contains(&table.zone))
            });
            assert_eq!(left.count(), 0, "the window before is empty");
            rotated += 1;
            window = Some(next.clone());
        }
        Choice::Merge(step) => {
            for table in model.tables().iter().filter(|table| table.group.level >= 2 && step.inputs.contains(&table.id))
            {
                let inside =
                    model.windows().iter().any(|w| w.level == table.group.level && w.zones.contains(&table.zone));
                assert!(inside, "{table:?} is in no window");
            }
        }
        _ => {}
    });
    assert!(rotated > 2 && window.is_some(), "{rotated} windows");
    model.check().unwrap();
}

/// A level that waits until it is as large as its window never gets one: all that overlaps it stays above.
#[test]
fn gear_gives_windows_to_small_levels_whatever_k_is() {
    let sizes = shape(600).sizes;
    let played = |k| {
        let mut windows = 0;
        let gear = Gear { k, ..Gear::new(sizes) };
        let look = |_: &Model, choice: &Choice| windows += u32::from(matches!(choice, Choice::Window(_)));
        let model = watched(Box::new(gear), (30_000, 20), look);
        model.check().unwrap();
        (windows, model.counts.written())
    };
    let [none, whole, half] = [0, 1, 2].map(played);
    assert!(whole.0 > 1 && half.0 > 1, "{whole:?} {half:?}");
    assert_ne!(whole, half, "k counts");
    assert_eq!(none, whole, "as the nearest that there is");
}

#[test]
fn band_ends_on_uniform_keys_and_orders_everything_when_told_to() {
    let sizes = shape(600).sizes;
    let mut model = watched(Box::new(Band::new(sizes)), (40_000, 50), |_, _| ());
    model.settle(false).unwrap();
    let everything = Band { everything: true, ..Band::new(sizes) };
    let mut ordered = Model::new(Box::new(everything), shape(600));
    let mut random = random();
    (0..20_000).for_each(|_| ordered.put(random.random_range(0..20_000)).unwrap());
    ordered.settle(false).unwrap();
    assert_eq!(view::depth(&crate::order::Bytewise, ordered.tables().iter()), 1);
    ordered.check().unwrap();
}

#[test]
fn band_relabels_a_lone_band() {
    let sizes = shape(600).sizes;
    let mut model = Model::new(Box::new(Band::new(sizes)), shape(600));
    (0..40_000).for_each(|key| model.put(key).unwrap());
    assert!(model.counts.amplification() <= 1.01, "{:?}", model.counts);
    assert!(model.tables().iter().any(|table| table.group.level == 1));
}

#[test]
fn depth_and_cuts_of_tables() {
    let key = |of: u8| -> Key { std::sync::Arc::from(&[of][..]) };
    let table = |from: u8, to: u8| Table {
        id: 1,
        group: BOTTOM,
        smallest: key(from),
        largest: key(to),
        oldest: 1,
        newest: 1,
        bytes: 10,
        entries: 1,
        tombstones: 0,
        hidden: 0,
        stale: 0,
        dead: 0,
        dead_at: u64::MAX,
        zone: 0,
        marks: (0..5).map(|mark| key(from + (to - from) / 5 * mark)).collect(),
    };
    let tables = [table(0, 50), table(50, 100), table(40, 60), table(101, 200)];
    assert_eq!(view::depth(&crate::order::Bytewise, tables.iter()), 3);
    assert_eq!(view::depth(&crate::order::Bytewise, tables[3..].iter()), 1);
    let cuts = view::cuts(&crate::order::Bytewise, tables.iter(), (Some(&key(10)), None), 4);
    assert_eq!(cuts.len(), 3);
    assert!(cuts.is_sorted() && cuts.iter().collect::<HashSet<_>>().len() == 3);
}
