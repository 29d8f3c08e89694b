//! Cleaning: a store of random overwrites does not become full, and nothing changes that was moved.

mod support;

use imbrex_bluestore::{CollectionId, Fullness, ObjectId, Options, Transaction};
use imbrex_device::{Code, Drive};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use support::{Hook, Hooked, config, content, few_active, format, open_with, options};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const BLOCK: u64 = 4096;

fn drive(zones: u64) -> Drive {
    let config =
        Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: zones << 20, conventional: 2, ..Config::tiny() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    format(&drive).unwrap();
    drive
}

fn object(n: u64) -> ObjectId {
    ObjectId::new(1, b"", &n.to_le_bytes())
}

/// What is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Anywhere,
    /// A fifth of the objects four times in five.
    Hot,
    /// Anywhere, and objects are cloned.
    Clones,
}

/// Overwrites at random a store whose objects take a part of the drive, several times as many bytes.
fn overwritten(part: u64, place: Where, options: Options, passes: u64, seed: u64) -> String {
    let clones = place == Where::Clones;
    let (drive, zones, size) = (drive(96), 96, 512u64 << 10);
    // Ten zones are the metadata's, two those of the label, and those that are kept free.
    let count = (zones - 16) * part / 100 * (1 << 20) / size;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut model: Vec<Vec<u8>> = (0..count).map(|n| content(size, n as u8)).collect();
    let mut store = open_with(&drive, Exec::Inline, options).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(ALL, 0))).unwrap();
    for (n, bytes) in model.iter().enumerate() {
        let mut write = Transaction::new();
        store.commit(std::mem::take(write.write(ALL, &object(n as u64), 0, bytes))).unwrap();
    }
    let (mut written, mut clone, mut moved) = (0, None, 0);
    while written < passes * count * size {
        let n = match place == Where::Hot && rng.random_bool(0.8) {
            true => rng.random_range(0..count / 5),
            false => rng.random_range(0..count),
        };
        let len = BLOCK * if rng.random_bool(0.5) { 1 } else { rng.random_range(1..17) };
        let at = rng.random_range(0..=(size - len) / BLOCK) * BLOCK;
        let new = content(len, rng.random());
        let mut write = Transaction::new();
        if clones && rng.random_bool(0.02) {
            // One at a time, which keeps what one object had.
            write.clone_object(ALL, &object(n), &object(1 << 32));
            clone = Some(model[n as usize].clone());
        }
        write.write(ALL, &object(n), at, &new);
        store.queue(write).unwrap_or_else(|error| panic!("seed {seed}, after {written} bytes: {error}"));
        model[n as usize][at as usize..(at + len) as usize].copy_from_slice(&new);
        written += len;
        if rng.random_bool(0.01) {
            store.sync().unwrap();
        }
        if rng.random_bool(0.0005) {
            store.sync().unwrap();
            moved += store.usage().moved;
            drop(store);
            store = open_with(&drive, Exec::Inline, options).unwrap();
        }
    }
    let usage = store.usage();
    moved += usage.moved;
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "seed {seed}: {:#?}", report.wrong);
    drop(store);
    let store = open_with(&drive, Exec::Inline, options).unwrap();
    for (n, bytes) in model.iter().enumerate() {
        assert!(store.read(ALL, &object(n as u64), 0, size).unwrap() == *bytes, "seed {seed}, object {n}");
    }
    if let Some(clone) = clone {
        assert!(store.read(ALL, &object(1 << 32), 0, size).unwrap() == clone, "seed {seed}, the clone");
    }
    assert!(moved > 0, "nothing was cleaned");
    let live = (usage.stored + usage.deferred) as f64 / ((zones - 12) << 20) as f64;
    format!(
        "{:.1} times overwritten, live bytes {:.0} % of the data zones, moved {:.2} bytes for each",
        written as f64 / (count * size) as f64,
        live * 100.0,
        moved as f64 / written as f64
    )
}

#[test]
fn random_overwrites_do_not_fill_a_store() {
    for (part, place, defer_below, seed) in [
        (60, Where::Anywhere, 64 << 10, 1),
        (60, Where::Clones, 0, 2),
        (80, Where::Clones, 16 << 10, 3),
        (85, Where::Anywhere, 64 << 10, 4),
        (85, Where::Hot, 64 << 10, 5),
    ] {
        let options = Options { defer_below, pack_from: 256 << 10, gather: 256 << 10, ..options() };
        let passes = overwritten(part, place, options, 4, seed);
        println!("{part} % full, {place:?}: {passes}");
    }
}

/// What is dead comes back, as far as it is worth it; where nothing is dead there is no room, and no end of trying.
#[test]
fn a_full_store_says_so_and_deleting_makes_room() {
    let drive = drive(48);
    let store = open_with(&drive, Exec::Inline, Options { defer_below: 0, ..options() }).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(ALL, 0))).unwrap();
    let mut n = 0;
    let full = loop {
        let mut write = Transaction::new();
        write.write(ALL, &object(n), 0, &content(200_000, n as u8));
        match store.commit(write) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full.code(), Code::NoSpace);
    assert!(n > 100, "{n}");
    // Two of three, so that no zone is free by itself.
    let mut delete = Transaction::new();
    (0..n).filter(|n| n % 3 > 0).for_each(|n| _ = delete.remove(ALL, &object(n)));
    store.commit(delete).unwrap();
    for k in 0..n / 2 {
        let mut write = Transaction::new();
        write.write(ALL, &object(n + k), 0, &content(200_000, (n + k) as u8));
        store.commit(write).unwrap_or_else(|error| panic!("{k} of {}: {error}", n / 2));
    }
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
    for n in (0..n).filter(|n| n % 3 == 0) {
        assert!(store.read(ALL, &object(n), 0, 200_000).unwrap() == content(200_000, n as u8));
    }
}

/// A store takes no more than its limit, and does not clean in vain for it. What makes room goes on.
#[test]
fn beyond_its_limit_a_store_takes_what_makes_room() {
    let drive = drive(48);
    let limits = Options { near_full: 30, full: 50, defer_below: 16 << 10, ..options() };
    let store = open_with(&drive, Exec::Inline, limits).unwrap();
    assert_eq!(store.usage().fullness, Fullness::Room);
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(ALL, 0))).unwrap();
    let put = |n: u64, len: u64| {
        let mut write = Transaction::new();
        store.commit(std::mem::take(write.write(ALL, &object(n), 0, &content(len, n as u8))))
    };
    let (mut n, mut seen) = (0, Vec::new());
    let full = loop {
        match put(n, 200_000) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
        let usage = store.usage();
        assert!((usage.stored + usage.deferred) * 2 <= usage.capacity, "{usage:?}");
        seen.push(usage.fullness);
    };
    seen.dedup();
    assert_eq!(seen, [Fullness::Room, Fullness::Near]);
    assert_eq!(full.code(), Code::NoSpace);
    assert!(full.to_string().contains("no space left in the object store; delete something"), "{full}");
    let usage = store.usage();
    assert!(usage.stored * 100 > usage.capacity * 46 && usage.moved == 0 && usage.free > 0, "{usage:?}");
    // Overwrites take room before they give any, short ones too; the rest goes on.
    assert_eq!(put(0, 200_000).unwrap_err().code(), Code::NoSpace);
    (0..64).map(|n| put(1000 + n, 4096)).find_map(Result::err).expect("short writes have the same limit");
    let mut also = Transaction::new();
    also.clone_object(ALL, &object(1), &object(900)).set_attributes(ALL, &object(2), &[(b"a", b"b")]);
    also.truncate(ALL, &object(3), 4096).zero(ALL, &object(4), 0, 200_704).remove(ALL, &object(5));
    store.commit(also).unwrap();
    assert!(store.read(ALL, &object(1), 0, 200_000).unwrap() == content(200_000, 1));
    put(1, 200_000).unwrap();
    // So does what cuts a block, which is written anew.
    for len in [100_000, 4096] {
        (0..200).map(|n| put(len * 1000 + n, len)).find_map(Result::err).expect("it is full again");
    }
    let mut cut = Transaction::new();
    cut.truncate(ALL, &object(6), 100_001).zero(ALL, &object(7), 5000, 100_000);
    store.commit(cut).unwrap();
    assert!(store.read(ALL, &object(6), 0, u64::MAX).unwrap() == content(200_000, 6)[..100_001]);
    drop(store);
    // Who opens it with another limit has more room.
    let store = open_with(&drive, Exec::Inline, Options { full: 80, ..limits }).unwrap();
    let mut more = Transaction::new();
    store.commit(std::mem::take(more.write(ALL, &object(2000), 0, &content(2_000_000, 7)))).unwrap();
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

/// The cleaner empties a zone of which a later transaction, that is not durable, has deleted the rest. The zone is that transaction's to free.
#[test]
fn a_zone_is_not_free_before_all_that_was_deleted_there_is_durable() {
    let emulator = Emulator::memory(&config()).unwrap();
    let hook = Hook::default();
    let drive = Drive { device: Arc::new(Hooked { drive: emulator.clone(), hook: hook.clone() }), survivor: None };
    format(&drive).unwrap();
    let options = Options { defer_below: 0, ..options() };
    let bytes = |n: u64| content(24 << 10, n as u8);
    {
        let store = open_with(&drive, Exec::Inline, options).unwrap();
        let mut all = Transaction::new();
        all.create_collection(ALL, 0);
        (0..8).for_each(|n| _ = all.write(ALL, &object(n), 0, &bytes(n)));
        store.commit(all).unwrap();
    }
    // Nothing more goes to its zone now.
    let store = open_with(&drive, Exec::Inline, options).unwrap();
    let mut half = Transaction::new();
    (0..4).for_each(|n| _ = half.remove(ALL, &object(n)));
    store.commit(half).unwrap();
    // What nobody names any more is counted.
    store.pack().unwrap();
    let (other, told) = (store.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let called = told.clone();
    // In the middle of the commit that moves two of them: their copies are being written.
    hook.set_behind(0, move || {
        let mut rest = Transaction::new();
        (6..8).for_each(|n| _ = rest.remove(ALL, &object(n)));
        other.queue(rest).unwrap();
        called.store(true, std::sync::atomic::Ordering::Release);
    });
    let free = store.usage().free;
    assert_eq!(store.clean(30_000).unwrap(), 48 << 10);
    // One was taken for what has moved.
    assert_eq!(store.usage().free, free - (256 << 10));
    assert!(told.load(std::sync::atomic::Ordering::Acquire));
    assert_eq!(store.usage().stored, 48 << 10);
    // Nothing that was not flushed is left.
    let lost = Drive { device: Arc::new(emulator.after_power_loss_choosing(&mut |_| 0).unwrap()), survivor: None };
    let lost_store = open_with(&lost, Exec::Inline, options).unwrap();
    // The second transaction was not durable.
    for n in 4..8 {
        assert!(lost_store.read(ALL, &object(n), 0, 24 << 10).unwrap() == bytes(n), "object {n}");
    }
    for (store, free) in [(lost_store, free - (256 << 10)), (store, free)] {
        store.sync().unwrap();
        let report = store.check(true).unwrap();
        assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
        assert_eq!(store.usage().free, free);
    }
}

/// Where headers of a zone cannot be read, records say what it has.
#[test]
fn a_zone_whose_headers_cannot_be_read_is_cleaned() {
    let emulator = Emulator::memory(&config()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    format(&drive).unwrap();
    let options = Options { defer_below: 0, ..options() };
    let before = imbrex_device::report_all(drive.device.as_ref()).unwrap();
    {
        let store = open_with(&drive, Exec::Inline, options).unwrap();
        let mut all = Transaction::new();
        all.create_collection(ALL, 0);
        (0..24).for_each(|n| _ = all.write(ALL, &object(n), 0, &content(24 << 10, n as u8)));
        store.commit(all).unwrap();
    }
    let store = open_with(&drive, Exec::Inline, options).unwrap();
    let mut half = Transaction::new();
    (0..24).filter(|n| n % 2 > 0).for_each(|n| _ = half.remove(ALL, &object(n)));
    store.commit(half).unwrap();
    store.pack().unwrap();
    // The first zone with its bytes: its header's block is fine, that of the first run is not.
    let now = imbrex_device::report_all(drive.device.as_ref()).unwrap();
    let written = |zone: &&imbrex_device::Zone| {
        format!("{:?}", before[zone.id.0 as usize].state) == "Empty" && format!("{:?}", zone.state) == "Full"
    };
    let zone = now.iter().find(written).unwrap();
    emulator.faults().media_error(drive.device.geometry().start(zone.id) + BLOCK, BLOCK);
    assert!(store.clean(1 << 20).unwrap() > 0);
    emulator.faults().clear();
    assert!((0..24).step_by(2).all(|n| store.read(ALL, &object(n), 0, 1 << 20).unwrap() == content(24 << 10, n as u8)));
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

/// Headers of runs are read with what is behind them. Of that nothing need be readable: not where the zone was not written, which not every drive takes, and not what the drive has lost.
#[test]
fn headers_are_read_whatever_is_behind_them() {
    let emulator = Emulator::memory(&few_active()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    format(&drive).unwrap();
    let store = open_with(&drive, Exec::Inline, Options { defer_below: 0, ..options() }).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(ALL, 0))).unwrap();
    let written = || {
        let zones = imbrex_device::report_all(drive.device.as_ref()).unwrap();
        zones.into_iter().filter_map(|zone| zone.wp.map(|wp| drive.device.geometry().start(zone.id) + wp))
    };
    let before: Vec<u64> = written().collect();
    for n in 0..3 {
        let mut write = Transaction::new();
        store.commit(std::mem::take(write.write(ALL, &object(n), 0, &content(8192, n as u8)))).unwrap();
    }
    assert!(store.check(true).unwrap().wrong.is_empty());
    assert_eq!(emulator.stats().total.rule_violations, 0);
    // Each run is a header and two blocks, and the first one is behind the header of the zone. The log's zones have grown less.
    let end = written().zip(before).find(|(now, before)| now - before == 10 * BLOCK).unwrap().0;
    emulator.faults().media_error(end - 5 * BLOCK, BLOCK);
    let wrong = store.check(true).unwrap().wrong;
    assert!(wrong.len() == 1 && wrong[0].contains("cannot be read"), "{wrong:#?}");
    for n in [0, 2] {
        assert!(store.read(ALL, &object(n), 0, BLOCK * 2).unwrap() == content(8192, n as u8));
    }
}

/// A callback may queue, and whoever queues may have to clean. So nobody is told in the middle of a step.
#[test]
fn a_callback_that_queues_while_somebody_cleans_does_not_wait_for_itself() {
    let drive = drive(24);
    let store = open_with(&drive, Exec::Inline, Options { defer_below: 0, full: 100, ..options() }).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(ALL, 0))).unwrap();
    let mut n = 0;
    while store.usage().free > 2 << 20 {
        let mut write = Transaction::new();
        store.commit(std::mem::take(write.write(ALL, &object(n), 0, &content(64 << 10, 1)))).unwrap();
        n += 1;
    }
    let mut remove = Transaction::new();
    (0..n).filter(|n| n % 8 > 2).for_each(|n| _ = remove.remove(ALL, &object(n)));
    store.commit(remove).unwrap();
    store.pack().unwrap();
    let (told, tells) = std::sync::mpsc::channel();
    let (other, ended) = (store.clone(), told.clone());
    let mut touch = Transaction::new();
    touch.touch(ALL, &object(1 << 32)).on_commit(move |_| {
        let mut write = Transaction::new();
        write.write(ALL, &object(2 << 32), 0, &content(64 << 10, 2));
        // In the middle of a step the copies have taken one of the last zones.
        told.send(other.queue(write).is_ok()).unwrap();
    });
    store.queue(touch).unwrap();
    let cleans = store.clone();
    std::thread::spawn(move || ended.send(cleans.clean(4 << 20).is_ok()).unwrap());
    let waits = std::time::Duration::from_secs(60);
    // The callback, and whoever cleaned.
    assert_eq!([tells.recv_timeout(waits), tells.recv_timeout(waits)], [Ok(true); 2]);
    store.sync().unwrap();
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

#[test]
fn whoever_cleans_in_the_background_rests_for_users_and_for_nobody_else() {
    let drive = drive(96);
    let store = open_with(&drive, Exec::Inline, Options { attended: true, ..options() }).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(ALL, 0))).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    // Half of each object dies at once, so that there is something to gain in each zone.
    let mut until_due = |commits: bool| {
        for _ in 0..10_000 {
            let (mut write, object) = (Transaction::new(), object(rng.random_range(0..220)));
            write.write(ALL, &object, 0, &content(512 << 10, rng.random()));
            let ticket = store.queue(std::mem::take(write.zero(ALL, &object, 0, 256 << 10))).unwrap();
            if commits {
                store.wait(ticket).unwrap();
            }
            if let Some(rest) = store.clean_a_step().unwrap() {
                return rest;
            }
        }
        panic!("nothing was to be cleaned: {:?}", store.usage());
    };
    assert!(!until_due(true).is_zero(), "users have committed");
    assert!(until_due(false).is_zero(), "nobody has waited for anything");
    assert!(!until_due(true).is_zero(), "users are there again");
}

#[test]
fn nobody_who_writes_cleans_where_somebody_else_does_in_time() {
    let drive = drive(96);
    let store = open_with(&drive, Exec::Inline, Options { attended: true, ..options() }).unwrap();
    let mut begin = Transaction::new();
    store.commit(std::mem::take(begin.create_collection(ALL, 0))).unwrap();
    let (mut rng, mut steps) = (ChaCha8Rng::seed_from_u64(5), 0);
    for _ in 0..1500 {
        let (mut write, before) = (Transaction::new(), store.usage().moved);
        write.write(ALL, &object(rng.random_range(0..240)), 0, &content(256 << 10, rng.random()));
        store.commit(write).unwrap();
        assert_eq!(store.usage().moved, before, "whoever wrote has cleaned, after {steps} steps of another");
        while store.clean_a_step().unwrap().is_some() {
            steps += 1;
        }
    }
    assert!(steps > 100, "{steps}");
}
