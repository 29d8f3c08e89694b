//! The metadata log, as the smallest engine uses it: numbers that stand for bytes. What it finds is compared with what it was told.

use imbrex_crashkit::{Crash, FaultKind, FaultPlan, History, Log, Plan, Subject, explore, fault_sweep, seeds};
use imbrex_device::{
    AlignedBuf, Cause, Drive, Fault, HeapSurvivor, Priority, Result, Tag, ZoneId, ZoneState, ZonedDevice, report_all,
};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::log::format::{Kind, LogFrame, LogHead, read_zone};
use imbrex_zones::log::{Admitted, Batch, LogZoneState, MetaLog, ONE_COPY, Root};
use imbrex_zones::{Budget, Exec, FormatOptions, Tenant, TenantSpec, Urgency, Volume, VolumeOptions};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

const ZONE: u64 = 256 << 10;
type Model = BTreeMap<u32, Vec<u8>>;

fn config() -> Config {
    Config { zone_size: ZONE, zone_capacity: ZONE, capacity: 16 << 20, write_cache: true, ..Config::tiny() }
}

fn formatted(config: &Config) -> Emulator {
    let emulator = Emulator::memory(config).unwrap();
    format(&drive(&emulator)).unwrap();
    emulator
}

fn format(drive: &Drive) -> Result<()> {
    let tenants = vec![TenantSpec { name: "numbers".into(), budget: Budget::keeping(0, 1) }];
    Volume::format(drive, &FormatOptions { uuid: Some([5; 16]), tenants, force: false })
}

fn drive(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: None }
}

struct Engine {
    volume: Volume,
    tenant: Tenant,
    log: MetaLog,
    /// Records stay in memory until a sync.
    lazy: bool,
    model: Model,
    skipped: Vec<String>,
    restored: bool,
    whole: bool,
}

/// A value that follows from its number.
fn value(key: u32, version: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| (key as usize * 31 + version as usize * 7 + i * i) as u8).collect()
}

fn put(to: &mut Vec<u8>, key: u32, value: &[u8]) {
    to.extend(key.to_le_bytes());
    to.extend(value);
}

fn apply(model: &mut Model, record: &[u8]) {
    let (key, value) = record.split_at(4);
    model.insert(u32::from_le_bytes(key.try_into().unwrap()), value.to_vec());
}

impl Engine {
    /// Opens it, or makes it with three zones a copy.
    fn open(emulator: &Emulator, copies: u8) -> Result<Engine> {
        Engine::on(drive(emulator), copies)
    }

    fn on(drive: Drive, copies: u8) -> Result<Engine> {
        let options = VolumeOptions { exec: Exec::Inline, survivor_bytes: 1 << 20, ..Default::default() };
        let volume = Volume::open(drive, options)?;
        let tenant = volume.tenant("numbers")?;
        let (mut model, mut skipped, mut whole, mut restored) = (Model::new(), Vec::new(), true, false);
        let clock = Arc::new(|| 1_000);
        let opened = MetaLog::open(&tenant, clock.clone(), None, &mut |done, all| assert!(done < all))?;
        let log = if let Some((mut log, mut replay)) = opened {
            assert!(replay.snapshot.is_some(), "{:?}", replay.skipped);
            if copies == 1 {
                restored = log.take_left(&mut replay);
            }
            replay.pieces.iter().for_each(|piece| apply(&mut model, piece));
            let since = replay.records(&mut |_, record| apply(&mut model, record));
            (skipped, whole) = (replay.skipped, since.whole);
            tenant.begin()?;
            log.adopt()?;
            tenant.adoption_done();
            log.finish_all_left();
            log.write(Priority::Normal)?;
            tenant.recovered()?;
            log
        } else {
            tenant.begin()?;
            tenant.adoption_done();
            tenant.recovered()?;
            let mut log = MetaLog::create(&tenant, copies, 3 * u32::from(copies), Vec::new(), clock)?;
            for _ in 0..copies {
                assert!(tenant.root().is_empty(), "a snapshot is missing");
                log.begin_snapshot()?;
                assert!(log.finish_snapshot()?);
            }
            log
        };
        let mut engine = Engine { volume, tenant, log, lazy: false, model, skipped, restored, whole };
        if !engine.skipped.is_empty() {
            engine.log.forget_unread();
            for _ in 0..if engine.log.is_damaged() { 2 } else { 1 } {
                engine.snapshot()?;
            }
        }
        Ok(engine)
    }

    /// What a snapshot takes: each value is a piece, in frames of its own.
    fn size(&self) -> u64 {
        self.model.values().map(|value| (value.len() as u64 + 100).next_multiple_of(4096)).sum()
    }

    /// Not durable.
    fn set(&mut self, key: u32, value: Vec<u8>) -> Result<()> {
        let mut batch = Batch::default();
        batch.push(|to| put(to, key, &value));
        let mut keep = Some(self.size() + value.len() as u64);
        let room = loop {
            match self.log.appender().admit(batch.len() as u64, keep) {
                Admitted::Room(room) => break room,
                Admitted::Snapshot if keep.is_none() => panic!("{} bytes found no room", batch.len()),
                Admitted::Snapshot => {
                    // One in each copy, and then it takes what there is.
                    for _ in 0..2 {
                        if self.snapshot().is_err() {
                            self.volume.check_poison()?;
                        }
                    }
                    if !self.log.appender().has_room(batch.len() as u64, keep) {
                        keep = None;
                    }
                }
            }
        };
        match self.lazy {
            true => {
                if let Err((room, batch)) = self.log.appender().append_kept(room, batch) {
                    self.log.write(Priority::Normal)?;
                    self.log.appender().append_kept(room, batch).expect("all memory is free");
                }
            }
            false => {
                self.log.appender().append(room, batch);
                self.log.write(Priority::Normal)?;
            }
        }
        self.model.insert(key, value);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.log.write(Priority::Normal)?;
        self.volume.sync(Tag::new(Cause::Journal))
    }

    fn pieces(&mut self, most: usize) -> Result<()> {
        for (key, value) in self.model.iter().take(most) {
            let mut piece = Vec::new();
            put(&mut piece, *key, value);
            self.log.piece(&piece)?;
        }
        Ok(())
    }

    fn grow(&mut self) -> Result<()> {
        self.log.grow(Urgency::Metadata)
    }

    fn shrink(&mut self, least: usize) -> Result<usize> {
        self.log.shrink(least)
    }

    /// Of a log of one copy, which need not write what it tells.
    fn snapshot_of_all(&mut self) -> Result<()> {
        self.log.begin_snapshot_of_all(self.size())?;
        self.pieces(usize::MAX)?;
        assert!(self.log.finish_snapshot()?);
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        loop {
            self.log.begin_snapshot()?;
            self.pieces(usize::MAX)?;
            // The pieces speak of it.
            self.log.write(Priority::Normal)?;
            if self.log.finish_snapshot()? {
                return Ok(());
            }
        }
    }
}

/// The frames of a zone, with their addresses on the drive.
fn frames(emulator: &Emulator, zone: u32) -> Vec<(u64, LogFrame)> {
    let start = emulator.geometry().start(ZoneId(zone));
    let mut block = AlignedBuf::zeroed(4096);
    emulator.read_at(&mut block, start, Cause::Other.into()).unwrap();
    let Some(head) = LogHead::decode(&block) else { return Vec::new() };
    let mut found = Vec::new();
    let zone = report_all(emulator).unwrap()[zone as usize];
    read_zone(emulator, &zone, (head.copy, head.life), &mut |at, frame, _| found.push((start + at, *frame))).unwrap();
    found
}

fn zones(engine: &Engine) -> Vec<u32> {
    engine.log.zones().iter().map(|zone| zone.zone.0).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Set(u32, usize),
    Sync,
    Snapshot,
    /// Of a log of one copy.
    SnapshotOfAll,
    /// So many pieces, some records between them, and it is dropped.
    Dropped(usize),
    /// So many pieces of a snapshot, of all records or not, and the process dies.
    Died(usize, bool),
    Grow,
    Shrink(usize),
    Open,
    PowerLoss(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u32..12, 0usize..9_000).prop_map(|(key, len)| Step::Set(key, len)),
        1 => Just(Step::Set(3, 40_000)),
        4 => Just(Step::Sync),
        1 => Just(Step::Snapshot),
        1 => Just(Step::SnapshotOfAll),
        1 => (0usize..5).prop_map(Step::Dropped),
        2 => (0usize..12, any::<bool>()).prop_map(|(pieces, all)| Step::Died(pieces, all)),
        1 => Just(Step::Grow),
        1 => (0usize..6).prop_map(Step::Shrink),
        1 => Just(Step::Open),
        1 => any::<u64>().prop_map(Step::PowerLoss),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    /// Against a map: what was durable is there, nothing else ever was, and no loss of power is taken for damage.
    #[test]
    fn whatever_happens_the_log_is_what_was_written(copies in 1u8..=2, steps in proptest::collection::vec(step(), 1..120)) {
        let mut emulator = formatted(&config());
        let mut engine = Engine::open(&emulator, copies).unwrap();
        // What may be found after a loss of power: of the last flush, or of any record after it.
        let mut allowed = vec![engine.model.clone()];
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Set(key, len) => {
                    engine.set(key, value(key, n as u32, len)).unwrap();
                    allowed.push(engine.model.clone());
                }
                Step::Sync => {
                    engine.sync().unwrap();
                    allowed = vec![engine.model.clone()];
                }
                Step::Snapshot => {
                    engine.snapshot().unwrap();
                    allowed = vec![engine.model.clone()];
                }
                Step::Dropped(pieces) => {
                    engine.log.begin_snapshot().unwrap();
                    engine.pieces(pieces).unwrap();
                    engine.log.abandon_snapshot();
                    prop_assert!(!engine.log.in_snapshot());
                }
                Step::SnapshotOfAll => {
                    match copies {
                        1 => engine.snapshot_of_all().unwrap(),
                        _ => engine.snapshot().unwrap(),
                    }
                    allowed = vec![engine.model.clone()];
                }
                Step::Died(pieces, all) => {
                    match all && copies == 1 {
                        true => engine.log.begin_snapshot_of_all(engine.size()).unwrap(),
                        false => engine.log.begin_snapshot().unwrap(),
                    }
                    engine.pieces(pieces).unwrap();
                    let before = std::mem::take(&mut engine.model);
                    drop(engine);
                    engine = Engine::open(&emulator, copies).unwrap();
                    prop_assert_eq!((&engine.skipped, engine.whole), (&vec![], true));
                    prop_assert!(engine.model == before, "step {}", n);
                }
                // A short ring takes no snapshot of all keys beside the one before.
                Step::Shrink(least) if copies == 1 => drop(engine.shrink(least.max(3)).unwrap()),
                Step::Grow if copies == 1 && zones(&engine).len() < 9 => engine.grow().unwrap(),
                Step::Grow | Step::Shrink(_) => prop_assert!(copies == 1 || engine.grow().is_err()),
                Step::Open => {
                    let before = std::mem::take(&mut engine.model);
                    drop(engine);
                    engine = Engine::open(&emulator, copies).unwrap();
                    prop_assert_eq!((&engine.skipped, engine.whole), (&vec![], true));
                    prop_assert!(engine.model == before);
                }
                Step::PowerLoss(seed) => {
                    drop(engine);
                    emulator = emulator.after_power_loss(seed).unwrap();
                    engine = Engine::open(&emulator, copies).unwrap();
                    prop_assert_eq!((&engine.skipped, engine.whole), (&vec![], true));
                    prop_assert!(allowed.contains(&engine.model), "step {}", n);
                    // Whatever was not flushed is gone, or it is there for good.
                    engine.sync().unwrap();
                    allowed = vec![engine.model.clone()];
                }
            }
        }
        prop_assert_eq!(emulator.stats().total.rule_violations, 0);
    }
}

/// Longer than a frame, than what is left of a zone, and than half a zone.
#[test]
fn a_long_record_is_cut_and_comes_back() {
    for copies in [1, 2] {
        let emulator = formatted(&config());
        let mut engine = Engine::open(&emulator, copies).unwrap();
        for (n, len) in [16_295, 16_296, 16_297, 100_000, 150_000, 1].into_iter().enumerate() {
            engine.set(n as u32, value(n as u32, 1, len)).unwrap();
        }
        engine.sync().unwrap();
        let before = engine.model.clone();
        drop(engine);
        let engine = Engine::open(&emulator, copies).unwrap();
        assert!(engine.model == before && engine.whole && engine.skipped.is_empty());
    }
}

/// Many times what the rings take: whoever is admitted finds room, and what is dropped in between costs nothing for ever.
#[test]
fn a_ring_goes_round() {
    for copies in [1, 2] {
        let emulator = formatted(&config());
        let mut engine = Engine::open(&emulator, copies).unwrap();
        for n in 0..600 {
            engine.set(n % 5, value(n % 5, n, 7_000)).unwrap();
            if n % 50 == 0 {
                engine.log.begin_snapshot().unwrap();
                engine.pieces(2).unwrap();
            }
        }
        let number = engine.log.snapshot();
        assert!(number > 10, "{number}");
        let before = engine.model.clone();
        drop(engine);
        let engine = Engine::open(&emulator, copies).unwrap();
        assert!(engine.model == before && engine.skipped.is_empty());
        assert!(engine.log.zones().iter().any(|zone| zone.state == LogZoneState::Current && zone.written > 0));
    }
}

/// A copy of the drive, made while the engine was open, with the memory of its death: that goes on behind records that the copy does not have.
#[test]
fn a_restored_copy_is_not_given_what_came_later() {
    let emulator = formatted(&config());
    let survivor = Arc::new(HeapSurvivor::new());
    let on = |device: &Emulator| Drive { device: Arc::new(device.clone()), survivor: Some(survivor.clone()) };
    drop(Engine::on(on(&emulator), 1).unwrap());
    let mut engine = Engine::on(on(&emulator), 1).unwrap();
    engine.lazy = true;
    engine.set(1, value(1, 1, 100)).unwrap();
    engine.sync().unwrap();
    let copy = emulator.fork().unwrap();
    let before = engine.model.clone();
    engine.set(2, value(2, 1, 100)).unwrap();
    engine.sync().unwrap();
    engine.set(1, value(1, 2, 100)).unwrap();
    let after = engine.model.clone();
    std::mem::forget(engine);
    let left = survivor.snapshot();
    let engine = Engine::on(on(&emulator), 1).unwrap();
    assert!(engine.model == after && !engine.restored && engine.skipped.is_empty());
    drop(engine);
    let survivor = Some(Arc::new(left) as Arc<dyn imbrex_device::Survivor>);
    let engine = Engine::on(Drive { device: Arc::new(copy), survivor }, 1).unwrap();
    assert!(engine.model == before && engine.restored && engine.skipped.is_empty());
}

/// A snapshot that finds no room gets it, and zones go back to who needs them.
#[test]
fn a_ring_of_one_copy_grows_and_shrinks() {
    let emulator = formatted(&config());
    let mut engine = Engine::open(&emulator, 1).unwrap();
    let free = engine.tenant.counts().free;
    for n in 0..40 {
        engine.model.insert(n, value(n, 1, 24_000));
    }
    engine.snapshot().unwrap();
    let long = zones(&engine);
    assert!(long.len() > 3, "{long:?}");
    let before = engine.model.clone();
    drop(engine);
    let mut engine = Engine::open(&emulator, 1).unwrap();
    assert!(engine.model == before && engine.skipped.is_empty());
    assert_eq!(zones(&engine), engine.log.root().zones);
    assert_eq!(zones(&engine).len(), long.len());
    // What is in use stays.
    let in_use = |engine: &Engine| engine.log.zones().iter().filter(|zone| zone.written > 0).count();
    let used = in_use(&engine);
    assert_eq!(engine.shrink(0).unwrap(), long.len() - used.max(2));
    engine.model.retain(|key, _| *key < 2);
    engine.grow().unwrap();
    engine.snapshot().unwrap();
    assert!(engine.shrink(0).unwrap() > 0);
    assert_eq!((zones(&engine).len(), engine.shrink(0).unwrap()), (2, 0));
    let before = engine.model.clone();
    drop(engine);
    let engine = Engine::open(&emulator, 1).unwrap();
    assert!(engine.model == before && engine.skipped.is_empty());
    assert_eq!((zones(&engine).len(), zones(&engine)), (2, engine.log.root().zones.clone()));
    assert_eq!(engine.tenant.counts().free, free + 1, "of three zones two are left");
    // The zones behind a new one would change rings.
    let emulator = formatted(&config());
    let mut engine = Engine::open(&emulator, 2).unwrap();
    assert!(engine.grow().is_err() && engine.shrink(0).is_err());
}

/// A bad block of the only copy costs what stands in it, and nothing else: also of the snapshot, and a zone's header stands there twice.
#[test]
fn a_bad_block_of_the_only_copy_costs_what_stands_in_it() {
    let made = |interrupted: u32| {
        let emulator = formatted(&config());
        let mut engine = Engine::open(&emulator, 1).unwrap();
        (0..8).for_each(|n| engine.set(n, value(n, 1, 3_000)).unwrap());
        engine.snapshot_of_all().unwrap();
        (8..12).for_each(|n| engine.set(n, value(n, 1, 3_000)).unwrap());
        engine.sync().unwrap();
        // Mounts that died in recovery leave as many beginnings of snapshots.
        for _ in 0..interrupted {
            engine.log.begin_snapshot().and_then(|()| engine.pieces(2)).unwrap();
        }
        let at = engine.log.zones().iter().find(|zone| zone.state == LogZoneState::Current).unwrap().zone;
        (emulator, at, engine.model)
    };
    for interrupted in [0, 1, 2] {
        let (emulator, zone, _) = made(interrupted);
        let start = emulator.geometry().start(zone);
        let all: Vec<(u64, Option<Kind>)> = [0, 4096]
            .into_iter()
            .map(|at| (start + at, None))
            .chain(frames(&emulator, zone.0).into_iter().map(|(at, frame)| (at, Some(frame.kind))))
            .collect();
        let records = all.iter().filter(|(_, kind)| *kind == Some(Kind::Records));
        let last = records.map(|(at, _)| *at).max();
        let mut snapshots = 0;
        for (at, kind) in all {
            for media in [false, true] {
                let (emulator, _, before) = made(interrupted);
                match media {
                    true => emulator.faults().media_error(at, 4096),
                    false => emulator.faults().flip_bits(at + 90, 1).unwrap(),
                }
                let engine = Engine::open(&emulator, 1).unwrap();
                let lost: Vec<u32> = before.keys().copied().filter(|key| !engine.model.contains_key(key)).collect();
                assert!(engine.model.iter().all(|(key, value)| before[key] == *value), "{at} {kind:?}");
                let told = !engine.skipped.is_empty() || !engine.whole;
                match kind {
                    // One of the two is enough.
                    None => assert!(lost.is_empty() && !told, "{at}: {lost:?}, {:?}", engine.skipped),
                    Some(Kind::Pieces) => {
                        snapshots += 1;
                        assert!(lost.len() <= 1 && (told || lost.is_empty()), "{at}: {lost:?}, {:?}", engine.skipped);
                    }
                    Some(Kind::Begin | Kind::Whole) => assert!(lost.is_empty(), "{at}: {lost:?}, {:?}", engine.skipped),
                    Some(Kind::Records) => {
                        assert!(lost.len() <= 1 && (told || lost.is_empty()), "{at}: {lost:?}, {:?}", engine.skipped);
                        assert!(Some(at) != last || interrupted > 0 || told, "the last record is missed");
                    }
                }
            }
        }
        assert!(snapshots >= 16, "{snapshots}");
    }
}

/// The ring of a log of one copy has two zones that take writes, as long as there are any.
#[test]
fn a_zone_that_dies_is_replaced_in_the_only_copy() {
    let emulator = formatted(&config());
    let mut engine = Engine::open(&emulator, 1).unwrap();
    engine.shrink(2).unwrap();
    for n in 0..6 {
        let current = engine.log.zones().iter().find(|zone| zone.state == LogZoneState::Current).unwrap().zone;
        emulator.faults().make_read_only(current).unwrap();
        engine.set(n, value(n, 1, 3_000)).unwrap();
        engine.sync().unwrap();
        engine.snapshot_of_all().unwrap();
        engine.shrink(2).unwrap();
    }
    assert_eq!(zones(&engine).len(), 2, "dead ones of which nothing is of use are given back");
    let before = engine.model.clone();
    drop(engine);
    let engine = Engine::open(&emulator, 1).unwrap();
    assert!(engine.model == before && engine.skipped.is_empty(), "{:?}", engine.skipped);
}

/// A zone of a ring dies before anything stands in it, on a drive that reads nothing above a write pointer and tells none of a dead zone.
#[test]
fn an_empty_zone_that_dies_does_not_keep_the_log_from_being_opened() {
    for copies in [1, 2] {
        let emulator = formatted(&Config { reads_above_wp: false, ..config() });
        let mut engine = Engine::open(&emulator, copies).unwrap();
        engine.set(1, value(1, 1, 100)).unwrap();
        engine.sync().unwrap();
        let empty = engine.log.zones().iter().find(|zone| zone.state == LogZoneState::Empty).unwrap().zone;
        let before = engine.model.clone();
        drop(engine);
        emulator.faults().make_read_only(empty).unwrap();
        let engine = Engine::open(&emulator, copies).unwrap();
        assert!(engine.model == before && engine.skipped.is_empty(), "{:?}", engine.skipped);
    }
}

/// A zone goes offline with pieces of a snapshot in it: the snapshot does not count, and the one before is there. Then the next one comes before any record.
#[test]
fn a_zone_that_is_gone_under_a_snapshot_ends_it() {
    let emulator = formatted(&config());
    let mut engine = Engine::open(&emulator, 1).unwrap();
    (0..8).for_each(|n| engine.set(n, value(n, 1, 3_000)).unwrap());
    engine.sync().unwrap();
    let before = engine.model.clone();
    engine.log.begin_snapshot_of_all(engine.size()).and_then(|()| engine.pieces(4)).unwrap();
    let current = engine.log.zones().iter().find(|zone| zone.state == LogZoneState::Current).unwrap().zone;
    emulator.faults().make_offline(current).unwrap();
    engine.pieces(4).unwrap_err();
    assert!(!engine.log.finish_snapshot().unwrap());
    assert!(!engine.log.appender().has_room(100, Some(4096)), "a snapshot comes first");
    let copy = emulator.fork().unwrap();
    engine.snapshot_of_all().unwrap();
    assert!(engine.log.appender().has_room(100, Some(4096)));
    drop(engine);
    for emulator in [&copy, &emulator] {
        let engine = Engine::open(emulator, 1).unwrap();
        assert!(engine.model == before, "{:?}", engine.skipped);
    }
}

/// Records that a snapshot tells, and that were never written, do not come a second time: not from the drive, and not from memory.
#[test]
fn what_a_snapshot_of_all_tells_is_not_replayed() {
    let emulator = formatted(&config());
    let survivor = Arc::new(HeapSurvivor::new());
    let drive = || Drive { device: Arc::new(emulator.clone()), survivor: Some(survivor.clone()) };
    drop(Engine::on(drive(), 1).unwrap());
    let mut engine = Engine::on(drive(), 1).unwrap();
    engine.lazy = true;
    engine.set(1, value(1, 1, 100)).unwrap();
    engine.set(2, value(2, 1, 100)).unwrap();
    // The snapshot tells another value of the first one than its record does.
    engine.model.insert(1, value(1, 2, 100));
    engine.snapshot_of_all().unwrap();
    engine.set(3, value(3, 1, 100)).unwrap();
    let before = engine.model.clone();
    std::mem::forget(engine);
    let engine = Engine::on(drive(), 1).unwrap();
    assert!(engine.model == before && engine.skipped.is_empty(), "{:?}", engine.skipped);
}

/// Zones die one by one, before it is opened and while it is open: with two copies nothing is lost.
#[test]
fn a_dead_zone_in_any_place_loses_nothing() {
    for which in 0..6 {
        for (kind, open) in [(0, false), (1, false), (2, false), (1, true), (3, true)] {
            let emulator = formatted(&config());
            let mut engine = Engine::open(&emulator, 2).unwrap();
            for n in 0..40 {
                engine.set(n % 7, value(n % 7, n, 5_000)).unwrap();
            }
            engine.sync().unwrap();
            let zone = ZoneId(zones(&engine)[which]);
            let kill = || match kind {
                0 => emulator.faults().make_offline(zone).unwrap(),
                1 => emulator.faults().make_read_only(zone).unwrap(),
                2 => emulator.faults().media_error(u64::from(zone.0) * ZONE, ZONE),
                _ => (0..9).for_each(|i| emulator.faults().fail_write_in(zone, i % 2)),
            };
            if open {
                kill();
                for n in 40..400 {
                    engine.set(n % 7, value(n % 7, n, 5_000)).unwrap();
                }
                engine.sync().unwrap();
            }
            let before = engine.model.clone();
            drop(engine);
            if !open {
                kill();
            }
            for round in 0..2 {
                let mut engine = Engine::open(&emulator, 2).unwrap();
                let what = format!("zone {which}, kind {kind}, open {open}, round {round}: {:?}", engine.skipped);
                assert!(engine.model == before && engine.whole, "{what}");
                assert!(open || kind != 0 || engine.skipped.iter().any(|told| told.contains("is offline")), "{what}");
                engine.snapshot().unwrap();
                engine.snapshot().unwrap();
            }
        }
    }
}

/// A ring of which one zone is left is given up, once; the other one has everything.
#[test]
fn a_lost_ring_is_told_and_the_other_goes_on() {
    for lost in [0, 1] {
        let emulator = formatted(&config());
        let mut engine = Engine::open(&emulator, 2).unwrap();
        let ring: Vec<u32> = zones(&engine)[lost * 3..][..3].to_vec();
        ring[..2].iter().for_each(|zone| emulator.faults().make_read_only(ZoneId(*zone)).unwrap());
        for n in 0..400 {
            engine.set(n % 7, value(n % 7, n, 5_000)).unwrap();
        }
        engine.sync().unwrap();
        let told = |skipped: &[String]| skipped.iter().filter(|told| *told == ONE_COPY).count();
        assert_eq!(told(&engine.log.reread().unwrap().skipped), 1);
        let before = engine.model.clone();
        drop(engine);
        let engine = Engine::open(&emulator, 2).unwrap();
        assert!(engine.model == before);
        assert_eq!(told(&engine.skipped), 1, "{:?}", engine.skipped);
    }
}

/// Each copy misses other frames: together they are whole. Where both miss one frame, its records are lost, that is told, and no others are.
#[test]
fn damage_of_both_copies_costs_only_what_no_copy_has() {
    for same in [false, true] {
        let emulator = formatted(&config());
        let mut engine = Engine::open(&emulator, 2).unwrap();
        for n in 0..12 {
            engine.set(n, value(n, 1, 3_000)).unwrap();
        }
        engine.sync().unwrap();
        let (before, zones) = (engine.model.clone(), zones(&engine));
        drop(engine);
        let of = |ring: usize| {
            let all = zones[ring * 3..][..3].iter().flat_map(|zone| frames(&emulator, *zone));
            all.filter(|(_, frame)| frame.kind == Kind::Records).map(|(at, _)| at).collect::<Vec<u64>>()
        };
        let (first, second) = (of(0), of(1));
        assert_eq!((first.len(), second.len()), (12, 12));
        for i in [2, 5, 8] {
            emulator.faults().media_error(first[i], 4096);
            // Unreadable, or not what was written.
            emulator.faults().flip_bits(second[if same { i } else { i + 1 }] + 90, 1).unwrap();
        }
        let engine = Engine::open(&emulator, 2).unwrap();
        assert_eq!(engine.skipped.len(), 2, "{:?}", engine.skipped);
        assert!(engine.skipped[0].contains("cannot be read; its other copy is used"), "{:?}", engine.skipped);
        assert!(engine.skipped[1].contains("are not what was written; its other copy"), "{:?}", engine.skipped);
        assert!(engine.skipped.iter().all(|told| told.contains("3 places of metazone")), "{:?}", engine.skipped);
        let lost: Vec<u32> = before.keys().copied().filter(|key| !engine.model.contains_key(key)).collect();
        assert_eq!(lost, if same { vec![2, 5, 8] } else { vec![] });
        assert_eq!(engine.whole, !same);
        assert!(engine.model.iter().all(|(key, value)| before[key] == *value));
    }
}

/// Each block of either copy is another one than was written, or both headers of a zone are: a check tells that, and so does an opening, but for the headers.
#[test]
fn damage_of_one_of_two_copies_is_told_although_the_other_has_all() {
    let emulator = formatted(&config());
    let mut engine = Engine::open(&emulator, 2).unwrap();
    let mut last = 0;
    while engine.log.zones().iter().filter(|zone| zone.state == LogZoneState::Full).count() < 2 {
        engine.set(last % 7, value(last % 7, last, 5_000)).unwrap();
        last += 1;
    }
    engine.set(last % 7, value(last % 7, last, 9_000)).unwrap();
    engine.sync().unwrap();
    assert_eq!(engine.log.reread().unwrap().skipped, Vec::<String>::new());
    let mut places = Vec::new();
    for zone in engine.log.zones() {
        let start = emulator.geometry().start(zone.zone);
        if zone.written > 0 {
            places.push(vec![start, start + 4096]);
            let ends = frames(&emulator, zone.zone.0).last().map_or(0, |(at, _)| at - start);
            let ends = ends + 4096..zone.written;
            assert!(zone.state == LogZoneState::Full || ends.end > 0);
            places.extend((start + 8192..start + ends.start).step_by(4096).map(|at| vec![at]));
        }
    }
    assert!(places.len() > 30);
    // Of the two headers of a zone one is enough, and a check tells of the other.
    for header in places.iter().filter(|places| places.len() > 1).flatten() {
        emulator.faults().flip_bits(*header, 1).unwrap();
        let told = engine.log.reread().unwrap().skipped;
        assert!(told.len() == 1 && told[0].starts_with("One of the two headers of metazone"), "{header}: {told:?}");
        emulator.faults().flip_bits(*header, 1).unwrap();
    }
    for (i, flipped) in places.iter().enumerate() {
        flipped.iter().for_each(|at| emulator.faults().flip_bits(*at, 1).unwrap());
        let told = engine.log.reread().unwrap().skipped;
        let other = told.iter().all(|sentence| sentence.contains("its other copy is used"));
        assert!(!told.is_empty() && other, "{flipped:?}: {told:?}");
        if i % 9 == 2 {
            // Its own drive, since it goes on.
            let emulator = emulator.after_power_loss(1).unwrap();
            let opened = Engine::open(&emulator, 2).unwrap();
            assert!(opened.model == engine.model && opened.whole, "{flipped:?}");
            assert!(flipped.len() > 1 || opened.skipped == told, "{flipped:?}: {:?}", opened.skipped);
            assert_eq!(opened.log.reread().unwrap().skipped, Vec::<String>::new(), "{flipped:?}");
        }
        flipped.iter().for_each(|at| emulator.faults().flip_bits(*at, 1).unwrap());
    }
}

/// A frame comes back that one mount could not read: that mount went on without it, and so does everybody after it.
#[test]
fn what_one_mount_could_not_read_does_not_come_back() {
    let emulator = formatted(&config());
    let mut engine = Engine::open(&emulator, 1).unwrap();
    (0..3).for_each(|n| engine.set(0, value(0, n, 100)).unwrap());
    let place = zones(&engine).iter().flat_map(|zone| frames(&emulator, *zone)).last().unwrap();
    drop(engine);
    emulator.faults().media_error(place.0, 4096);
    let mut engine = Engine::open(&emulator, 1).unwrap();
    assert_eq!(engine.model[&0], value(0, 1, 100));
    assert!(engine.skipped[0].contains("cannot be read") && !engine.skipped[0].contains("other copy"));
    engine.set(1, b"after".to_vec()).unwrap();
    // Also where a record comes before the next snapshot is whole.
    engine.log.forget_unread();
    engine.log.begin_snapshot().unwrap();
    engine.set(2, b"early".to_vec()).unwrap();
    drop(engine);
    emulator.faults().clear();
    let engine = Engine::open(&emulator, 1).unwrap();
    assert!(engine.model[&0] == value(0, 1, 100) && engine.model[&1] == b"after" && engine.whole);
    assert_eq!(engine.model[&2], b"early");
}

/// A mount dies in a snapshot that had begun in a new zone. The next mount goes on in the zone before, and its own snapshot goes on in yet another one: what is left
/// of the first snapshot stands between the pieces of the second.
#[test]
fn what_is_left_of_a_snapshot_does_not_come_between_the_pieces_of_the_next() {
    let mut between = 0;
    for sets in 30..44 {
        let emulator = formatted(&config());
        let mut engine = Engine::open(&emulator, 1).unwrap();
        // The third zone of the ring has a higher number than the fourth, and a mount takes them the other way round.
        (0..4).for_each(|_| engine.grow().unwrap());
        engine.shrink(2).unwrap();
        (0..2).for_each(|_| engine.grow().unwrap());
        assert!(zones(&engine)[2] > zones(&engine)[3]);
        (0..sets).for_each(|n| engine.set(n % 6, value(n % 6, n, 9_000)).unwrap());
        let current = |engine: &Engine| {
            let all = engine.log.zones();
            all.iter().find(|zone| zone.state == LogZoneState::Current).map(|zone| zone.zone)
        };
        let begun_in = current(&engine);
        engine.log.begin_snapshot_of_all(engine.size()).unwrap();
        engine.pieces(5).unwrap();
        let (before, left) = (engine.model.clone(), current(&engine));
        drop(engine);
        for round in 0..3 {
            let mut engine = Engine::open(&emulator, 1).unwrap();
            assert!(engine.model == before && engine.skipped.is_empty(), "{sets}, {round}: {:?}", engine.skipped);
            assert!(round > 0 || current(&engine) == begun_in && left != begun_in);
            engine.snapshot().unwrap();
            between += u32::from(round == 0 && ![left, begun_in].contains(&current(&engine)));
        }
    }
    assert!(between > 3, "{between}");
}

/// A flush that fails within a snapshot ends the volume; the snapshot before counts, with everything that was flushed.
#[test]
fn a_failed_flush_never_makes_a_snapshot_whole() {
    for nth in 0..2 {
        let emulator = formatted(&config());
        let mut engine = Engine::open(&emulator, 2).unwrap();
        engine.set(1, value(1, 1, 100)).unwrap();
        engine.sync().unwrap();
        let before = engine.model.clone();
        engine.log.begin_snapshot().unwrap();
        engine.pieces(9).unwrap();
        if nth == 1 {
            engine.sync().unwrap();
        }
        let snapshot = engine.log.snapshot();
        emulator.faults().fail_flushes(1);
        assert!(engine.log.finish_snapshot().is_err() && !engine.log.in_snapshot());
        assert_eq!(engine.log.snapshot(), snapshot);
        assert!(engine.volume.check_poison().is_err() && engine.set(2, vec![1]).is_err());
        drop(engine);
        for seed in 0..20 {
            let emulator = emulator.after_power_loss(seed).unwrap();
            assert!(Engine::open(&emulator, 2).unwrap().model == before);
        }
    }
}

/// A drive may have written what it says it has not: neither a number nor a place in the order is given twice.
#[test]
fn what_could_not_be_written_is_never_taken_for_what_followed() {
    for late in 1..12 {
        let emulator = formatted(&config());
        let mut engine = Engine::open(&emulator, 2).unwrap();
        engine.set(0, value(0, 0, 9_000)).unwrap();
        emulator.faults().fail_write_late(late);
        for n in 1..90 {
            engine.set(n % 4, value(n % 4, n, 9_000)).unwrap();
        }
        engine.sync().unwrap();
        let (before, zones) = (engine.model.clone(), zones(&engine));
        drop(engine);
        let engine = Engine::open(&emulator, 2).unwrap();
        assert!(engine.model == before && engine.whole, "write {late}");
        let mut heads = Vec::new();
        for zone in zones {
            let mut block = AlignedBuf::zeroed(4096);
            emulator.read_at(&mut block, u64::from(zone) * ZONE, Cause::Other.into()).unwrap();
            heads.extend(LogHead::decode(&block).map(|head| (head.copy, head.order)));
        }
        let all = heads.len();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), all, "write {late}: {heads:?}");
    }
}

/// Where active zones are few, the log has one a copy, whatever it leaves behind.
#[test]
fn zones_that_are_left_take_no_active_zone() {
    let few = Config { conventional: 0, max_open: Some(6), max_active: Some(6), rotational: false, ..config() };
    let emulator = formatted(&few);
    let mut engine = Engine::open(&emulator, 2).unwrap();
    for n in 0..300 {
        engine.set(n % 5, value(n % 5, n, 6_000)).unwrap();
        if n == 100 {
            emulator.faults().fail_write(1, 0);
        }
        let mine = zones(&engine);
        let active = |zone: &imbrex_device::Zone| zone.state.is_open() || zone.state == ZoneState::Closed;
        let all = report_all(&emulator).unwrap();
        let count = all.iter().filter(|zone| mine.contains(&zone.id.0) && active(zone)).count();
        assert!(count <= 2, "{count} after {n}");
    }
    assert!(engine.tenant.limits_active());
    let before = engine.model.clone();
    drop(engine);
    let engine = Engine::open(&emulator, 2).unwrap();
    assert!(engine.model == before);
    assert_eq!(emulator.stats().total.rule_violations, 0);
}

/// What a history of calls leaves: the number that each gives to a key, and the bytes of its value.
#[derive(Clone, Debug)]
struct Set(u32, u32, usize);

struct Numbers {
    copies: u8,
}

impl Numbers {
    /// As many of the calls as there must be, and perhaps more of them, in order.
    fn compare(&self, engine: &Engine, history: &History<Set>) -> std::result::Result<(), String> {
        let mut model = Model::new();
        let mut seen = history.must_prefix() == 0 && engine.model.is_empty();
        for (n, entry) in history.entries().iter().enumerate() {
            let Set(key, version, len) = entry.op;
            model.insert(key, value(key, version, len));
            seen |= n + 1 >= history.must_prefix() && engine.model == model;
        }
        if seen {
            Ok(())
        } else {
            Err(format!("what is found follows from no front of at least {} calls", history.must_prefix()))
        }
    }
}

impl Subject for Numbers {
    type Op = Set;

    fn format(&self, drive: &Drive) -> std::result::Result<(), String> {
        format(drive).map_err(|e| e.to_string())?;
        Engine::on(drive.clone(), self.copies).map(drop).map_err(|e| e.to_string())
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Set>) -> std::result::Result<(), String> {
        let text = |e: imbrex_device::Error| e.to_string();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut engine = Engine::on(drive, self.copies).map_err(text)?;
        engine.lazy = self.copies == 1;
        let mut last = None;
        for n in 0..90 {
            let (key, len) =
                (rng.random_range(0..4), *[0, 50, 3_000, 9_000].get(rng.random_range(0..4usize)).unwrap_or(&1));
            let id = log.begun(Set(key, n, len));
            engine.set(key, value(key, n, len)).map_err(text)?;
            log.acked(id);
            last = Some(id);
            match (self.copies, n % 16) {
                (1, 3 | 5) => engine.grow().map_err(text)?,
                (1, 11) => drop(engine.shrink(3).map_err(text)?),
                _ => {}
            }
            match rng.random_range(0..8) {
                0..4 => engine.sync().map_err(text)?,
                4 if self.copies == 1 && n % 2 == 0 => engine.snapshot_of_all().map_err(text)?,
                4 => engine.snapshot().map_err(text)?,
                5 => {
                    engine.log.begin_snapshot().and_then(|()| engine.pieces(2)).map_err(text)?;
                    continue;
                }
                _ => continue,
            }
            log.synced_up_to(id);
        }
        engine.sync().map_err(text)?;
        last.into_iter().for_each(|id| log.synced_up_to(id));
        Ok(())
    }

    fn recover(&self, drive: Drive) -> std::result::Result<(), String> {
        let mut engine = Engine::on(drive, self.copies).map_err(|e| e.to_string())?;
        engine.snapshot().map_err(|e| e.to_string())
    }

    fn check(&self, drive: Drive, _: Crash, history: &History<Set>) -> std::result::Result<(), String> {
        let text = |e: imbrex_device::Error| e.to_string();
        let mut engine = Engine::on(drive.clone(), self.copies).map_err(text)?;
        if history.fault().is_none() && (!engine.whole || !engine.skipped.is_empty()) {
            return Err(format!("a crash is taken for damage: {:?}", engine.skipped));
        }
        self.compare(&engine, history)?;
        let unsound = |told: &[String]| told.iter().any(|told| told.contains("not what was written"));
        if unsound(&engine.skipped) {
            return Err(format!("a cut or failed write is taken for damage: {:?}", engine.skipped));
        }
        // It goes on.
        engine.set(9, value(9, 1, 5_000)).and_then(|()| engine.snapshot()).map_err(text)?;
        let told = engine.log.reread().map_err(text)?.skipped;
        if unsound(&told) || history.fault().is_none() && !told.is_empty() {
            return Err(format!("a check takes a crash for damage: {told:?}"));
        }
        let before = std::mem::take(&mut engine.model);
        drop(engine);
        let engine = Engine::on(drive, self.copies).map_err(text)?;
        if engine.model == before { Ok(()) } else { Err("what was written after the crash is not there".into()) }
    }
}

fn small() -> Config {
    Config {
        zone_size: 128 << 10,
        zone_capacity: 128 << 10,
        capacity: 2 << 20,
        conventional: 3,
        write_cache: true,
        ..Config::tiny()
    }
}

#[test]
fn every_crash_leaves_a_front_of_what_was_written() {
    for copies in [1, 2] {
        for seed in seeds(2) {
            let plan = Plan { threads: 2, max_states: 1_000, ..Plan::new(seed) };
            // A cut write may end within 4,096 bytes.
            let config = if seed % 2 == 1 { Config { block: 512, ..small() } } else { small() };
            let report = explore(&Arc::new(Numbers { copies }), &config, &plan).unwrap();
            assert!(report.states >= 700, "{report:?}");
        }
    }
}

#[test]
fn a_command_that_fails_or_a_zone_that_dies_loses_nothing() {
    for seed in seeds(1) {
        let kinds = [
            FaultKind::WriteError,
            FaultKind::TornWrite,
            FaultKind::FlushError,
            FaultKind::ZoneOpError,
            FaultKind::ZoneReadOnly,
        ];
        for (copies, block) in [(1, 4096), (2, 4096), (2, 512)] {
            let plan = FaultPlan { threads: 2, max_runs: 600, kinds: kinds.to_vec(), ..FaultPlan::new(seed) };
            let config = Config { block, ..small() };
            let report = fault_sweep(&Arc::new(Numbers { copies }), &config, &plan).unwrap();
            assert!(report.runs > 200 && report.refused < report.runs, "{copies}: {report:?}");
        }
    }
}

#[test]
fn records_that_find_no_room_stay_with_their_caller() {
    let engine = Engine::open(&formatted(&config()), 2).unwrap();
    let (appender, mut batch) = (engine.log.appender(), Batch::default());
    batch.push(|to| to.resize(4 * ZONE as usize, 1));
    let len = batch.len();
    let error = appender.append_all(&mut batch).unwrap_err();
    assert!(matches!(error.fault, Fault::NoSpace) && batch.len() == len, "{error}");
    assert!(!engine.log.has_unwritten());
    batch = Batch::default();
    batch.push(|to| to.push(1));
    appender.append_all(&mut batch).unwrap();
    assert!(batch.is_empty() && engine.log.has_unwritten());
}

#[test]
fn a_root_that_is_damaged_or_names_no_zones_for_a_log_is_refused_in_a_sentence() {
    let emulator = formatted(&config());
    drop(Engine::open(&emulator, 2).unwrap());
    let whole = {
        let volume =
            Volume::open(drive(&emulator), VolumeOptions { exec: Exec::Inline, ..Default::default() }).unwrap();
        volume.tenant("numbers").unwrap().root()
    };
    let mut far = Root::decode(&whole).unwrap();
    far.zones.push(1000);
    for (root, told) in [(whole[1..].to_vec(), "of numbers is damaged"), (far.encode().unwrap(), "names zone 1000")] {
        let volume =
            Volume::open(drive(&emulator), VolumeOptions { exec: Exec::Inline, ..Default::default() }).unwrap();
        volume.tenant("numbers").unwrap().set_root(&root).unwrap();
        drop(volume);
        let error = Engine::open(&emulator, 2).map(drop).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}
