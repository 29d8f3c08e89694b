//! The volume's locking under `shuttle`: random interleavings of appenders, syncers, background steps and abandoning.
//!
//! Runs with `cargo test -p imbrex-zones --features shuttle --test shuttle`; without the feature there is nothing here.
//! Shuttle itself fails a run that deadlocks.

#![cfg(feature = "shuttle")]

mod logs;

use imbrex_device::{
    AlignedBuf, Cause, Drive, Error, Fault, Geometry, HeapSurvivor, Identity, Priority, Result, Tag, Zone, ZoneId,
    ZoneOp, ZonedDevice,
};
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use imbrex_zones::frame::FRAME_HEADER;
use imbrex_zones::log::{Admitted, Batch, MetaLog};
use imbrex_zones::write::{Committer, Join, Lead, Placed, RecordOptions, RecordWriter, Writers, Written, Wrote};
use imbrex_zones::{Budget, Exec, FormatOptions, OpenZone, Tenant, TenantSpec, Urgency, Volume, VolumeOptions};
use logs::{Log, Shared, log, logs, ranked};
use shuttle::thread;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const TAG: Tag = Tag::new(Cause::Wal);

/// Schedules that each test tries: 300, or IMBREX_SHUTTLE times as many. `make test-long` asks for a hundred times as many.
fn rounds() -> usize {
    let times = std::env::var("IMBREX_SHUTTLE").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    300usize.saturating_mul(times)
}

#[derive(Default)]
struct Seen {
    in_flight: BTreeMap<u32, u32>,
    acknowledged: BTreeSet<u64>,
    durable: BTreeSet<u64>,
    writes: BTreeMap<u32, u64>,
}

/// A drive that other threads get between the beginning and the end of its commands, and that looks at its users.
struct Watched {
    drive: Emulator,
    seen: Mutex<Seen>,
    /// Flushes until the one that fails; those behind it succeed again.
    until_failure: AtomicU32,
    /// The same of writes.
    until_write_failure: AtomicU32,
    /// Writes until the one whose zone dies with it.
    until_dead: AtomicU32,
    /// What outlives its user.
    survivor: Arc<HeapSurvivor>,
}

impl Watched {
    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().unwrap())
    }
}

impl ZonedDevice for Watched {
    fn identity(&self) -> &Identity {
        self.drive.identity()
    }
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        thread::yield_now();
        self.drive.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        self.drive.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let zone = self.geometry().zone_of(at).0;
        let rotational = self.geometry().rotational;
        self.seen(|seen| {
            assert!(seen.in_flight.get(&zone).is_none_or(|n| *n == 0), "two writes to zone {zone} at once");
            // Labels (zones 0 and 1) are written outside of turns.
            let others = seen.in_flight.range(2..).map(|(_, n)| n).sum::<u32>();
            assert!(!rotational || others == 0 || tag.cause == Cause::Label, "it is somebody else's turn");
            *seen.in_flight.entry(zone).or_default() += 1;
        });
        thread::yield_now();
        if self.until_dead.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.drive.faults().make_read_only(ZoneId(zone)).unwrap();
        }
        let result = match self.until_write_failure.fetch_sub(1, Ordering::Relaxed) == 1 {
            true => Err(Error::io(&self.identity().name, std::io::Error::other("injected"))),
            false => self.drive.write_at(buf, at, tag),
        };
        self.seen(|seen| {
            *seen.in_flight.entry(zone).or_default() -= 1;
            *seen.writes.entry(zone).or_default() += 1;
            seen.acknowledged.extend(result.iter().flat_map(|()| (at..at + buf.len() as u64).step_by(4096)));
        });
        result
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        let covered = self.seen(|seen| seen.acknowledged.clone());
        thread::yield_now();
        if self.until_failure.fetch_sub(1, Ordering::Relaxed) == 1 {
            return Err(Error::io(&self.identity().name, std::io::Error::other("injected")));
        }
        let result = self.drive.flush(tag);
        self.seen(|seen| seen.durable.extend(covered));
        result
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        thread::yield_now();
        self.drive.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.drive.set_write_cache(on)
    }
}

fn volume(rotational: bool) -> (Arc<Watched>, Volume, Tenant) {
    volume_with(rotational, None)
}

fn volume_with(rotational: bool, active: Option<u32>) -> (Arc<Watched>, Volume, Tenant) {
    let (device, volume, [tenant]) = volume_for(rotational, active, [("log", 0)]);
    (device, volume, tenant)
}

fn volume_for<const N: usize>(
    rotational: bool,
    active: Option<u32>,
    names: [(&str, u32); N],
) -> (Arc<Watched>, Volume, [Tenant; N]) {
    let tiny = Profile::named("tiny").unwrap();
    let over =
        Overrides { capacity: Some(1 << 20), zone_size: Some(64 << 10), conventional: Some(3), ..Overrides::default() };
    let config = Config { rotational, max_open: active, max_active: active, ..Config::new(&tiny, &over) };
    let device = Arc::new(Watched {
        drive: Emulator::memory(&config).unwrap(),
        seen: Mutex::default(),
        until_failure: AtomicU32::new(0),
        until_write_failure: AtomicU32::new(0),
        until_dead: AtomicU32::new(0),
        survivor: Arc::new(HeapSurvivor::new()),
    });
    let drive = Drive { device: device.clone(), survivor: Some(device.survivor.clone()) };
    let tenants = names
        .map(|(name, reserve)| TenantSpec {
            name: name.into(),
            budget: Budget::keeping(reserve / 2, reserve - reserve / 2),
        })
        .to_vec();
    Volume::format(&drive, &FormatOptions { uuid: Some([7; 16]), tenants, force: false }).unwrap();
    let options =
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 96 << 10, unit_bytes: 4 << 10, turn_bytes: 16 << 10 };
    let volume = Volume::open(drive, options).unwrap();
    let tenants = names.map(|(name, _)| volume.tenant(name).unwrap());
    tenants.iter().for_each(Tenant::adoption_done);
    tenants.iter().for_each(|tenant| tenant.recovered().unwrap());
    (device, volume, tenants)
}

fn piece(file: u64, at: u64, n: u64) -> Vec<u8> {
    (at..at + n).map(|i| (i * 31 + i / 256 + file * 7) as u8).collect()
}

/// Everything was placed once, in order, as it was appended.
fn all_placed(log: &Log, len: u64) {
    let mut end = 0;
    for (placed, bytes) in log.notes().placed.lock().unwrap().iter() {
        assert_eq!(placed.logical, end, "in order, without a gap");
        assert_eq!(*bytes, piece(log.writer.file, end, placed.len), "the bytes that were appended");
        end += placed.len;
    }
    assert_eq!(end, len, "nothing is lost");
}

#[test]
fn appenders_syncers_and_steppers_neither_deadlock_nor_lose_bytes() {
    for rotational in [false, true] {
        shuttle::check_random(
            move || {
                let (_, volume, tenant) = volume(rotational);
                let mut threads = Vec::new();
                let logs = logs(&tenant, 1..=2, None);
                for log in &logs {
                    let (log, file) = (log.clone(), log.writer.file);
                    threads.push(thread::spawn(move || {
                        for _ in 0..6 {
                            let at = log.len();
                            log.append(&piece(file, at, 5000)).unwrap();
                        }
                    }));
                }
                let (log, syncing) = (logs[0].clone(), volume.clone());
                threads.push(thread::spawn(move || {
                    for _ in 0..2 {
                        let end = log.len();
                        log.drain(Priority::High).unwrap();
                        assert!(log.placed() >= end, "a drain covers what was appended before it");
                        syncing.sync(TAG).unwrap();
                    }
                }));
                let stepping = volume.clone();
                threads.push(thread::spawn(move || {
                    for _ in 0..4 {
                        stepping.step().unwrap();
                        thread::yield_now();
                    }
                }));
                threads.into_iter().for_each(|t| t.join().unwrap());
                volume.quiesce().unwrap();
                for log in &logs {
                    log.drain(Priority::Normal).unwrap();
                    assert_eq!((log.len(), log.placed()), (30_000, 30_000));
                    all_placed(log, 30_000);
                }
            },
            rounds(),
        );
    }
}

/// Memory holds the bytes of nine logs, and there are eleven: whoever finds none has another one's written, and nobody is refused.
#[test]
fn logs_that_find_no_memory_get_that_of_others() {
    for rotational in [false, true] {
        shuttle::check_random(
            move || {
                let (_, volume, tenant) = volume(rotational);
                let logs = logs(&tenant, 1..=11, None);
                let threads: Vec<_> = (0..3)
                    .map(|n| {
                        let mine: Vec<_> =
                            logs.iter().skip(n).step_by(3).map(|log| (log.clone(), log.writer.file)).collect();
                        thread::spawn(move || {
                            for _ in 0..2 {
                                for (log, file) in &mine {
                                    log.append(&piece(*file, log.len(), 900)).unwrap();
                                }
                            }
                        })
                    })
                    .collect();
                let stepping = volume.clone();
                let steps = thread::spawn(move || {
                    for _ in 0..2 {
                        stepping.step().unwrap();
                        thread::yield_now();
                    }
                });
                threads.into_iter().chain([steps]).for_each(|t| t.join().unwrap());
                for log in &logs {
                    log.drain(Priority::Normal).unwrap();
                    all_placed(log, 1800);
                }
            },
            rounds(),
        );
    }
}

/// One zone may be active for logs, of which there are three: who waits for it is woken, or shuttle says that all wait.
#[test]
fn logs_that_wait_for_an_active_zone_all_get_one() {
    for active in [4, 5] {
        shuttle::check_random(
            move || {
                let (device, volume, tenant) = volume_with(false, Some(active));
                let logs = logs(&tenant, 1..=3, None);
                let threads: Vec<_> = logs
                    .iter()
                    .map(|log| {
                        let (log, file) = (log.clone(), log.writer.file);
                        thread::spawn(move || {
                            for _ in 0..2 {
                                let at = log.len();
                                log.append(&piece(file, at, 5000)).unwrap();
                                log.drain(Priority::Normal).unwrap();
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|t| t.join().unwrap());
                logs.iter().for_each(|log| all_placed(log, 10_000));
                assert_eq!(device.drive.stats().total.rule_violations, 0);
                drop(volume);
            },
            rounds(),
        );
    }
}

/// As many zones become free as are asked for: each is reset in the background, or by who takes it, and none is ever missing.
#[test]
fn whoever_reserves_a_zone_that_was_given_back_gets_it() {
    shuttle::check_random(
        || {
            let (_, volume, tenant) = volume(false);
            let all: Vec<ZoneId> = std::iter::from_fn(|| tenant.take(Urgency::User).ok()).collect();
            all[..2].iter().for_each(|zone| tenant.release(*zone));
            let mut threads: Vec<_> = (0..2)
                .map(|_| {
                    let tenant = tenant.clone();
                    thread::spawn(move || {
                        let mut reserved = vec![tenant.reserve(0).unwrap()];
                        tenant.redeem(&mut reserved).unwrap();
                    })
                })
                .collect();
            let stepping = volume.clone();
            threads.push(thread::spawn(move || while stepping.step().unwrap() {}));
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!((tenant.counts().free, tenant.counts().reservations), (0, 0));
        },
        rounds(),
    );
}

/// Two tenants' zones are forgotten, read, and used again at the same time: no byte that a reader has pinned changes, what metadata refers to
/// stays, and in the end all else is free.
#[test]
fn a_zone_that_is_pinned_or_used_again_is_not_reset() {
    shuttle::check_random(
        || {
            let (_, volume, tenants) = volume_for(false, None, [("log", 0), ("other", 0)]);
            let block = |zone: ZoneId| {
                let mut block = AlignedBuf::zeroed(4096);
                block.fill(zone.0 as u8 + 1);
                block
            };
            let holds = {
                let volume = volume.clone();
                move |zone: ZoneId| {
                    let mut bytes = AlignedBuf::zeroed(4096);
                    volume.read(&mut bytes, volume.geometry().start(zone), TAG).unwrap();
                    assert!(*bytes == *block(zone), "zone {zone} is somebody's");
                }
            };
            let mut threads = Vec::new();
            let metadata = tenants.clone().map(|tenant| {
                let zones = (0..3).map(|_| {
                    let zone = tenant.take(Urgency::User).unwrap();
                    let mut open = OpenZone { zone, life: tenant.new_life(), at: 0, capacity: 64 << 10 };
                    volume.write_sequential(&mut open, &block(zone), TAG).unwrap();
                    zone
                });
                // What metadata refers to, and its last record.
                let metadata = Arc::new(shuttle::sync::Mutex::new((zones.collect::<BTreeSet<_>>(), 0)));
                let (forgetting, of) = (tenant.clone(), metadata.clone());
                threads.push(thread::spawn(move || {
                    for _ in 0..2 {
                        let at = {
                            let mut of = of.lock().unwrap();
                            let Some(zone) = of.0.pop_first() else { break };
                            of.1 += 1;
                            forgetting.forget(zone, of.1);
                            of.1
                        };
                        thread::yield_now();
                        forgetting.forgot(at);
                    }
                }));
                for uses_again in [false, true] {
                    let (reading, of, holds) = (tenant.clone(), metadata.clone(), holds.clone());
                    threads.push(thread::spawn(move || {
                        for _ in 0..2 {
                            let zone = {
                                let of = of.lock().unwrap();
                                let Some(zone) = of.0.first() else { break };
                                reading.pin(*zone);
                                *zone
                            };
                            thread::yield_now();
                            holds(zone);
                            let mut of = of.lock().unwrap();
                            if uses_again && of.0.insert(zone) {
                                reading.recall(zone);
                            }
                            reading.unpin(zone);
                        }
                    }));
                }
                metadata
            });
            let (taking, stepping) = (tenants[1].clone(), volume.clone());
            threads.push(thread::spawn(move || {
                while stepping.step().unwrap() {}
                let zone = taking.take(Urgency::User).unwrap();
                let mut open = OpenZone { zone, life: taking.new_life(), at: 0, capacity: 64 << 10 };
                stepping.write_sequential(&mut open, &AlignedBuf::zeroed(4096), TAG).unwrap();
                taking.release(zone);
            }));
            threads.into_iter().for_each(|t| t.join().unwrap());
            for (tenant, metadata) in tenants.iter().zip(metadata) {
                tenant.forgot(u64::MAX);
                let (zones, _) = &*metadata.lock().unwrap();
                zones.iter().for_each(|zone| holds(*zone));
                let counts = tenant.counts();
                assert_eq!((counts.leased, counts.forgotten, tenant.pinned().len()), (zones.len() as u32, 0, 0));
            }
        },
        rounds(),
    );
}

/// Two tenants take zones that nobody owns, two threads each; a label may not be written. Each zone is its taker's in the label, and
/// what one has reserved is had, however many the other takes.
#[test]
fn tenants_that_claim_at_once_get_zones_of_their_own() {
    for failing in 0..6 {
        shuttle::check_random(
            move || {
                let (device, volume, tenants) = volume_for(false, None, [("one", 1), ("two", 1)]);
                let _held = Arc::new(Mutex::new(vec![tenants[0].reserve(0).unwrap()]));
                device.until_write_failure.store(failing, Ordering::Relaxed);
                let jobs = [
                    (0, Urgency::Reserved, 1),
                    (0, Urgency::User, 2),
                    (1, Urgency::User, 2),
                    (1, Urgency::Metadata, 20),
                ];
                let threads: Vec<_> = jobs
                    .into_iter()
                    .map(|(who, urgency, most)| {
                        let tenant = tenants[who].clone();
                        let take = move |_| {
                            let result = tenant.take(urgency);
                            // One label may have failed.
                            let again = result.as_ref().is_err_and(|error| !matches!(error.fault, Fault::NoSpace));
                            let result = if again { tenant.take(urgency) } else { result };
                            assert!(urgency != Urgency::Reserved || result.is_ok(), "reserved: {result:?}");
                            result.ok()
                        };
                        (who, thread::spawn(move || (0..most).map_while(take).collect::<Vec<ZoneId>>()))
                    })
                    .collect();
                let taken: Vec<_> = threads.into_iter().map(|(who, thread)| (who, thread.join().unwrap())).collect();
                let all: Vec<ZoneId> = taken.iter().flat_map(|(_, zones)| zones.clone()).collect();
                let different: BTreeSet<ZoneId> = all.iter().copied().collect();
                assert_eq!(different.len(), all.len(), "{taken:?}");
                assert_eq!(tenants[0].counts().free + tenants[1].counts().free + all.len() as u32, 13);
                drop((tenants, volume));
                let drive = Drive { device, survivor: None };
                let options = VolumeOptions { exec: Exec::Inline, survivor_bytes: 96 << 10, ..Default::default() };
                let volume = Volume::open(drive, options).unwrap();
                let again = ["one", "two"].map(|name| volume.tenant(name).unwrap());
                for (who, zones) in taken {
                    zones.into_iter().for_each(|zone| again[who].adopt(zone).unwrap());
                }
            },
            rounds(),
        );
    }
}

#[test]
fn a_flush_covers_everybody_who_wrote_before_it() {
    shuttle::check_random(
        || {
            let (device, volume, _) = volume(false);
            let threads: Vec<_> = (0..4u64)
                .map(|i| {
                    let (device, volume) = (device.clone(), volume.clone());
                    // In conventional zone 2, of which nobody else knows.
                    let base = (128 << 10) + i * 16_384;
                    // One write a zone at a time is this test's own business, so each thread writes before it starts.
                    device.drive.write_at(&AlignedBuf::zeroed(4096), base, TAG).unwrap();
                    thread::spawn(move || {
                        device.seen(|seen| seen.acknowledged.insert(base));
                        volume.sync(TAG).unwrap();
                        assert!(device.seen(|seen| seen.durable.contains(&base)), "a flush began too early");
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
        },
        rounds(),
    );
}

/// What an engine has decided, under its lock: its numbers are those of the items.
#[derive(Default)]
struct Decided {
    last: u64,
    /// The zone that takes the next item.
    zone: u32,
    /// Zone and offset of each item, a block.
    places: BTreeMap<u64, (u32, u64)>,
}

fn new_log(tenant: &Tenant, zones: u32) -> MetaLog {
    MetaLog::create(tenant, 1, zones, Vec::new(), Arc::new(|| 0)).unwrap()
}

/// An engine that only commits: each item is a block of a zone of its [`RecordWriter`]. With the write cache off it commits only what a zone refuses.
struct Commits {
    device: Arc<Watched>,
    records: Arc<RecordWriter>,
    commits: Committer,
    /// The writer's locks are taken under it.
    decided: shuttle::sync::Mutex<Decided>,
    /// Groups that were written while others were written and not durable, and zones that refused items.
    overlapped: Arc<AtomicU32>,
    refused: Arc<AtomicU32>,
}

impl Commits {
    fn volume(&self) -> &Volume {
        self.records.tenant().volume()
    }

    fn open_zone(&self) {
        let zone = self.records.tenant().take(Urgency::User).unwrap();
        let capacity = self.volume().geometry().zone_size;
        let mut decided = self.decided.lock().unwrap();
        self.records.open(OpenZone { zone, life: decided.last + 1, at: 0, capacity });
        self.records.close(std::mem::replace(&mut decided.zone, zone.0));
    }

    fn put(&self, decided: &mut Decided, item: u64) {
        let at = self.records.push(decided.zone, AlignedBuf::zeroed(4096).into()).unwrap();
        let zone = decided.zone;
        decided.places.insert(item, (zone, at));
    }

    fn decide(&self) -> u64 {
        let mut decided = self.decided.lock().unwrap();
        decided.last += 1;
        let number = decided.last;
        self.put(&mut decided, number);
        number
    }

    fn write<'a>(&self, lead: Lead<'a>) -> Result<Written<'a>> {
        let upto = loop {
            let (upto, due) = {
                let decided = self.decided.lock().unwrap();
                (decided.last, self.records.due())
            };
            lead.logged(upto);
            let refused = self.records.write(&due)?;
            if refused.is_empty() {
                break upto;
            }
            for zone_guard in refused {
                self.open_zone();
                let (from, _) = zone_guard.waiting();
                let mut decided = self.decided.lock().unwrap();
                let waits = |(_, place): &(&u64, &(u32, u64))| place.0 == zone_guard.zone() && place.1 >= from;
                let items: Vec<u64> = decided.places.iter().filter(waits).map(|(item, _)| *item).collect();
                items.into_iter().for_each(|item| self.put(&mut decided, item));
                zone_guard.discard();
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        };
        let before = self.commits.durable();
        let group = lead.done(upto);
        self.overlapped.fetch_add(u32::from(before + 1 < upto), Ordering::Relaxed);
        Ok(group)
    }

    fn flush(&self, group: Written<'_>) -> Result<()> {
        let flushed = group.flush(TAG)?;
        self.are_durable(1..=flushed.seq());
        thread::yield_now();
        flushed.tell();
        Ok(())
    }

    fn commit(&self, number: u64) -> Result<()> {
        loop {
            match self.commits.join(number) {
                Join::Durable => {
                    self.are_durable(1..=number);
                    return Ok(());
                }
                Join::Written(group) => self.flush(group)?,
                Join::Lead(lead) => self.flush(self.write(lead)?)?,
            }
        }
    }

    /// Returns when the item is durable: where a written byte is, by its zone's guard.
    fn make_durable(&self, number: u64) -> Result<()> {
        while self.records.writes_through() {
            let (zone, at, written) = {
                // Else its zone may die between the two, and the item gets another place.
                let decided = self.decided.lock().unwrap();
                let (zone, at) = decided.places[&number];
                (zone, at, self.records.written(zone) > at)
            };
            if written {
                self.are_durable(number..=number);
                return Ok(());
            }
            let Some(zone_guard) = self.records.zone_guard(zone, at + 4096) else { continue };
            if zone_guard.write()? == Wrote::Refused {
                drop(zone_guard);
                self.commit(number)?;
            }
        }
        self.commit(number)
    }

    fn are_durable(&self, mut items: std::ops::RangeInclusive<u64>) {
        let decided = self.decided.lock().unwrap();
        let start = |item| {
            let (zone, at) = decided.places[&item];
            self.volume().geometry().start(ZoneId(zone)) + at
        };
        let through = self.records.writes_through();
        let lost = self.device.seen(|seen| {
            let there = if through { &seen.acknowledged } else { &seen.durable };
            items.find(|item| !there.contains(&start(*item)))
        });
        assert_eq!(lost, None, "told before it is durable");
    }
}

/// Threads that make durable what they have decided, and one that writes groups and leaves their end to others. A zone may die with a write, and a flush may
/// fail, once.
#[test]
fn committers_overlap_and_are_told_of_nothing_that_is_not_durable() {
    let (overlapped, refused) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let cached = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (3, 0), (2, 2)].map(|fails| (true, fails));
    for (cached, (dying_write, failing_flush)) in cached.into_iter().chain([0, 1, 2, 4].map(|n| (false, (n, 0)))) {
        let (overlapped, refused) = (overlapped.clone(), refused.clone());
        shuttle::check_random(
            move || {
                let (device, volume, tenant) = volume(false);
                device.set_write_cache(cached).unwrap();
                let options = RecordOptions { gather: 4096, block: 4096, zones_at_once: Some(1) };
                let records = Arc::new(RecordWriter::new(&tenant, options));
                let engine = Arc::new(Commits {
                    device: device.clone(),
                    // Nobody writes it. With zones of its own a later one could cost a write of the label, which may be the flush that fails.
                    commits: Committer::new(&records, new_log(&tenant, 0)),
                    records,
                    decided: Default::default(),
                    overlapped: overlapped.clone(),
                    refused: refused.clone(),
                });
                engine.open_zone();
                device.until_failure.store(failing_flush, Ordering::Relaxed);
                device.until_dead.store(dying_write, Ordering::Relaxed);
                let mut threads: Vec<_> = (0..3)
                    .map(|_| {
                        let engine = engine.clone();
                        thread::spawn(move || {
                            let mut lost = false;
                            for _ in 0..2 {
                                let number = engine.decide();
                                let committed = engine.make_durable(number);
                                assert!(!lost || committed.is_err(), "a commit hides the flush that failed");
                                lost |= committed.is_err();
                            }
                            lost
                        })
                    })
                    .collect();
                let leaver = engine.clone();
                threads.push(thread::spawn(move || {
                    for _ in 0..2 {
                        leaver.decide();
                        drop(leaver.write(leaver.commits.lead()));
                    }
                    false
                }));
                let lost = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|lost| *lost).count();
                let failed = volume.check_poison().is_err();
                assert_eq!(lost > 0, failed, "whose flush fails is told, and nobody else");
                let last = engine.decided.lock().unwrap().last;
                let ended = engine.commit(last);
                assert_eq!(ended.is_err(), failed || volume.check_poison().is_err());
                assert!(ended.is_err() || engine.records.buffered() == 0);
            },
            rounds(),
        );
    }
    assert!(overlapped.load(Ordering::Relaxed) > 100, "nothing is written before the last group is durable");
    assert!(refused.load(Ordering::Relaxed) > 100, "no zone dies");
}

/// Two threads append records while two others write the log; a write fails, once. Each record is there once, in its thread's order, whether the last
/// ones were written or died with the process in memory.
#[test]
fn records_are_appended_while_the_log_is_written() {
    const EACH: u64 = 12;
    for failing_write in 0..4 {
        shuttle::check_random(
            move || {
                let (device, volume, tenant) = volume(false);
                let mut log = new_log(&tenant, 3);
                log.write_snapshot(&Batch::default()).unwrap();
                let appender = log.appender().clone();
                let log = Arc::new(shuttle::sync::Mutex::new(log));
                device.until_write_failure.store(failing_write, Ordering::Relaxed);
                let mut threads: Vec<_> = (0..2u64)
                    .map(|who| {
                        let appender = appender.clone();
                        thread::spawn(move || {
                            for n in 0..EACH {
                                let mut batch = Batch::default();
                                batch.push(|to| to.extend([who.to_le_bytes(), n.to_le_bytes()].concat()));
                                let Admitted::Room(room) = appender.admit(batch.len() as u64, None) else {
                                    panic!("the ring is nearly empty");
                                };
                                assert!(appender.append_kept(room, batch).is_ok(), "no memory is left");
                                thread::yield_now();
                            }
                        })
                    })
                    .collect();
                threads.extend((0..2).map(|_| {
                    let log = log.clone();
                    thread::spawn(move || {
                        for _ in 0..4 {
                            let _ = log.lock().unwrap().write(Priority::Normal);
                            thread::yield_now();
                        }
                    })
                }));
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                // The process dies here.
                let drive = Drive { device: device.clone(), survivor: Some(device.survivor.clone()) };
                std::mem::forget((log, appender, tenant, volume));
                let volume =
                    Volume::open(drive, VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() }).unwrap();
                let tenant = volume.tenant("log").unwrap();
                let opened = MetaLog::open(&tenant, Arc::new(|| 0), None, &mut |_, _| {}).unwrap();
                let (mut log, mut replay) = opened.expect("the label names it");
                assert!(!log.take_left(&mut replay) && replay.skipped.is_empty(), "{:?}", replay.skipped);
                let mut next = [0; 2];
                let since = replay.records(&mut |_, record| {
                    let [who, n] = [0, 8].map(|at| u64::from_le_bytes(record[at..at + 8].try_into().unwrap()));
                    assert_eq!(n, next[who as usize], "of thread {who}");
                    next[who as usize] += 1;
                });
                assert!(since.whole && next == [EACH; 2], "{next:?}");
            },
            rounds(),
        );
    }
}

/// A log gets its first byte when the one before it has all of its own. Whoever writes the later log, and whenever: then the earlier ones are durable.
#[test]
fn a_later_log_is_not_written_before_the_earlier_ones_are_durable() {
    shuttle::check_random(
        || {
            let (device, volume, tenant) = volume(false);
            let writers = Writers::new(&tenant);
            let logs: Vec<Log> = (1..=3).map(|n| log(&writers, &tenant, ranked(n, 1, n), None)).collect();
            for (i, later) in logs.iter().enumerate() {
                let notes: Vec<_> = logs[..i].iter().map(|log| Arc::downgrade(&log.writer)).collect();
                let (device, durable) = (device.clone(), Mutex::default());
                let look = move |placed: Option<&Placed>| {
                    if placed.is_none() {
                        *durable.lock().unwrap() = device.seen(|seen| seen.durable.clone());
                        return;
                    }
                    let durable: std::sync::MutexGuard<'_, BTreeSet<u64>> = durable.lock().unwrap();
                    for earlier in notes.iter().filter_map(std::sync::Weak::upgrade) {
                        let mut end = 0;
                        for (of, _) in earlier.notes.placed.lock().unwrap().iter() {
                            let from = device.geometry().start(of.zone) + of.at;
                            let frame = (FRAME_HEADER as u64 + of.len).next_multiple_of(4096);
                            let is_durable = (from..from + frame).step_by(4096).all(|block| durable.contains(&block));
                            end = if is_durable { of.logical + of.len } else { break };
                        }
                        assert_eq!(end, 13_000, "log {} is behind", earlier.file);
                    }
                };
                assert!(later.writer.look.set(Box::new(look)).is_ok());
            }
            let appending = logs.clone();
            let mut threads = vec![thread::spawn(move || {
                for (log, file) in appending.iter().zip(1..) {
                    for n in [900, 5000, 100, 7000] {
                        log.append(&piece(file, log.len(), n)).unwrap();
                        thread::yield_now();
                    }
                }
            })];
            for who in [1, 2] {
                let (log, volume) = (logs[who].clone(), volume.clone());
                threads.push(thread::spawn(move || {
                    for _ in 0..2 {
                        log.drain(Priority::High).unwrap();
                        volume.sync(TAG).unwrap();
                    }
                }));
            }
            let (resting, stepping) = (writers.clone(), volume.clone());
            threads.push(thread::spawn(move || {
                resting.rest_logs().unwrap();
                stepping.step().unwrap();
                resting.rest_logs().unwrap();
            }));
            threads.into_iter().for_each(|t| t.join().unwrap());
            logs.iter().rev().for_each(|log| log.drain(Priority::Normal).unwrap());
            logs.iter().for_each(|log| all_placed(log, 13_000));
        },
        rounds(),
    );
}

#[test]
fn nothing_is_written_after_an_abandon_has_returned() {
    shuttle::check_random(
        || {
            let (device, volume, tenant) = volume(true);
            let log = logs(&tenant, 1..=1, None).remove(0);
            let appending = log.clone();
            let appender = thread::spawn(move || {
                for _ in 0..6 {
                    let at = appending.len();
                    if appending.append(&piece(1, at, 5000)).is_err() {
                        assert!(appending.is_abandoned());
                        return;
                    }
                }
            });
            let draining = log.clone();
            let drainer = thread::spawn(move || {
                if draining.drain(Priority::Normal).is_err() {
                    assert!(draining.is_abandoned());
                }
            });
            let stepping = volume.clone();
            let stepper = thread::spawn(move || {
                for _ in 0..3 {
                    stepping.step().unwrap();
                }
            });
            thread::yield_now();
            log.abandon();
            let count =
                |zones: &[u32]| device.seen(|seen| zones.iter().filter_map(|z| seen.writes.get(z)).sum::<u64>());
            let zones = log.notes().zones.lock().unwrap().clone();
            let writes = count(&zones);
            [appender, drainer, stepper].into_iter().for_each(|t| t.join().unwrap());
            volume.quiesce().unwrap();
            assert_eq!(*log.notes().zones.lock().unwrap(), zones, "a zone was taken after the end");
            assert_eq!(count(&zones), writes, "a zone was written after the end");
        },
        rounds(),
    );
}

/// Somebody who needs a zone has all logs give up theirs, and somebody else empties what they left, while they are appended to.
#[test]
fn logs_that_rest_and_are_moved_lose_nothing_that_is_appended() {
    shuttle::check_random(
        || {
            let (_, volume, tenant) = volume(false);
            let shared = Arc::new(Shared::default());
            let logs = logs(&tenant, 1..=3, Some(&shared));
            let mut threads: Vec<_> = logs
                .iter()
                .zip(1..)
                .map(|(log, file)| {
                    let log = log.clone();
                    thread::spawn(move || {
                        for n in [3000, 9000, 100, 5000] {
                            log.append(&piece(file, log.len(), n)).unwrap();
                        }
                    })
                })
                .collect();
            // Each waits for what the other one is writing.
            for _ in 0..2 {
                let resting = logs[0].writers.clone();
                threads.push(thread::spawn(move || {
                    for _ in 0..3 {
                        resting.rest_logs().unwrap();
                    }
                }));
            }
            // Where frames of a zone are that was emptied: the zone, its new place.
            let moved = Arc::new(Mutex::new(BTreeMap::new()));
            let (cleaning, from, to) = (tenant.clone(), shared.clone(), moved.clone());
            threads.push(thread::spawn(move || {
                for _ in 0..3 {
                    thread::yield_now();
                    let Some(old) = from.parked.lock().unwrap().pop() else { continue };
                    let volume = cleaning.volume();
                    let start = |zone: ZoneId| volume.geometry().start(zone);
                    let mut bytes = AlignedBuf::zeroed(old.at as usize);
                    volume.read(&mut bytes, start(old.zone), TAG).unwrap();
                    let mut new = OpenZone { zone: cleaning.take(Urgency::User).unwrap(), at: 0, ..old };
                    volume.write_sequential(&mut new, &bytes, TAG).unwrap();
                    // Zones have several lives here: the copy is of what has been placed up to now.
                    let mut to = to.lock().unwrap();
                    for (i, (_, placed)) in from.placed.lock().unwrap().iter().enumerate() {
                        if placed.zone == old.zone && placed.life == old.life {
                            to.insert(i, new.zone);
                        }
                    }
                    drop(to);
                    cleaning.release(old.zone);
                }
            }));
            threads.into_iter().for_each(|t| t.join().unwrap());
            logs.iter().for_each(|log| log.drain(Priority::Normal).unwrap());
            logs[0].writers.rest_logs().unwrap();
            assert_eq!(tenant.counts().reservations, 0, "who rests has nothing reserved");
            let mut ends = BTreeMap::new();
            for (i, (file, placed)) in shared.placed.lock().unwrap().iter().enumerate() {
                let end: &mut u64 = ends.entry(*file).or_default();
                assert_eq!(placed.logical, *end, "in order, without a gap");
                *end += placed.len;
                let zone = moved.lock().unwrap().get(&i).copied().unwrap_or(placed.zone);
                let mut frame = AlignedBuf::zeroed((FRAME_HEADER + placed.len as usize).next_multiple_of(4096));
                volume.read(&mut frame, volume.geometry().start(zone) + placed.at, TAG).unwrap();
                let payload = &frame[FRAME_HEADER..FRAME_HEADER + placed.len as usize];
                assert!(*payload == *piece(*file, placed.logical, placed.len), "what was appended stands there");
            }
            assert_eq!(ends, (1..=3).map(|file| (file, 17_100)).collect());
        },
        rounds(),
    );
}

/// One flush fails and all later ones succeed, as a drive does that has dropped what it could not write.
#[test]
fn after_a_failed_flush_nobody_is_told_that_anything_is_durable() {
    for failing in 1..=3 {
        shuttle::check_random(
            move || {
                let (device, volume, tenant) = volume(false);
                device.until_failure.store(failing, Ordering::Relaxed);
                let threads: Vec<_> = (1..=3)
                    .map(|file| {
                        let (device, volume) = (device.clone(), volume.clone());
                        let log = logs(&tenant, file..=file, None).remove(0);
                        thread::spawn(move || {
                            let mut failed = false;
                            for _ in 0..3 {
                                let at = log.len();
                                let appended = log.append(&piece(file, at, 3000));
                                let end = log.len();
                                let synced = log.drain(Priority::High).and_then(|()| volume.sync(TAG));
                                assert!(!failed || synced.is_err(), "a sync hides the flush that failed");
                                failed |= synced.is_err();
                                if synced.is_err() {
                                    continue;
                                }
                                appended.unwrap();
                                // Each placed byte was written before a flush that succeeded.
                                let placed = log.notes().placed.lock().unwrap().clone();
                                assert_eq!(placed.iter().map(|(p, _)| p.len).sum::<u64>(), end);
                                let size = device.geometry().zone_size;
                                let starts = |p: &Placed| u64::from(p.zone.0) * size..(u64::from(p.zone.0) + 1) * size;
                                device.seen(|seen| {
                                    for (p, _) in &placed {
                                        let mut written = seen.acknowledged.range(starts(p));
                                        assert!(written.all(|at| seen.durable.contains(at)), "not durable");
                                    }
                                });
                            }
                            failed
                        })
                    })
                    .collect();
                let failed = threads.into_iter().map(|t| t.join().unwrap()).filter(|failed| *failed).count();
                let happened = !(1..=failing).contains(&device.until_failure.load(Ordering::Relaxed));
                assert_eq!(failed > 0, happened, "a flush that failed fails the sync that it was for");
                if happened {
                    let writes = device.seen(|seen| seen.acknowledged.len());
                    assert!(volume.sync(TAG).is_err() && volume.check_poison().is_err());
                    let log = logs(&tenant, 9..=9, None).remove(0);
                    assert!(log.append(&piece(9, 0, 3000)).and_then(|_| log.drain(Priority::High)).is_err());
                    assert_eq!(device.seen(|seen| seen.acknowledged.len()), writes, "a write after the failed flush");
                }
            },
            rounds(),
        );
    }
}
