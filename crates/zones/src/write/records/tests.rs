//! Threads that write zones of a drive that counts, zones that die, and what is known of them when.

#[allow(dead_code, reason = "the chunk store's tests on such a drive use the rest")]
#[path = "../../../../chunkstore/tests/chunkstore/drive_support/mod.rs"]
mod drive_support;

use super::*;
use crate::Urgency;
use crate::log::MetaLog;
use crate::volume::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use crate::write::{Committer, Join};
use drive_support::Watched;
use imbrex_device::{AlignedBuf, Drive};
use imbrex_emulator::{Config, Emulator};

const BLOCK: usize = 4096;

struct Fixture {
    emulator: Emulator,
    drive: Arc<Watched>,
    writer: Arc<RecordWriter>,
    /// Three that are open and empty.
    zones: Vec<u32>,
}

/// On a disk that writes so many zones at once, where its write cache is off.
fn fixture(write_cache: bool, zones_at_once: u32) -> Fixture {
    let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
    let emulator = Emulator::memory(&Config { write_cache, rotational: true, ..config }).unwrap();
    let watched = Watched::new(emulator.clone());
    let drive = Drive { device: watched.clone(), survivor: None };
    let tenants = vec![TenantSpec { name: "one".into(), budget: Default::default() }];
    Volume::format(&drive, &FormatOptions { uuid: Some([7; 16]), tenants, force: false }).unwrap();
    let volume = Volume::open(drive, VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() }).unwrap();
    let tenant = volume.tenant("one").unwrap();
    tenant.adoption_done();
    let options = RecordOptions { gather: 4 * BLOCK, block: BLOCK, zones_at_once: Some(zones_at_once) };
    let writer = Arc::new(RecordWriter::new(&tenant, options));
    let mut fixture = Fixture { emulator, drive: watched, writer, zones: Vec::new() };
    fixture.zones = (1..4).map(|life| fixture.open(life)).collect();
    fixture
}

impl Fixture {
    fn open(&self, life: u64) -> u32 {
        let zone = self.writer.tenant().take(Urgency::User).unwrap();
        self.writer.open(OpenZone { zone, life, at: 0, capacity: 256 << 10 });
        zone.0
    }

    fn committer(&self) -> Committer {
        let log = MetaLog::create(self.writer.tenant(), 1, 2, Vec::new(), Arc::new(|| 0)).unwrap();
        Committer::new(&self.writer, log)
    }

    fn push(&self, zone: u32, blocks: usize) -> u64 {
        let record = AlignedBuf::padded(&vec![zone as u8; blocks * BLOCK], BLOCK);
        self.writer.push(zone, record.into()).unwrap()
    }

    fn write(&self, zone: u32) -> Wrote {
        self.writer.zone_guard(zone, u64::MAX).unwrap().write().unwrap()
    }

    fn state(&self, zone: u32) -> (u64, u64) {
        let blocks = |bytes: u64| if bytes == u64::MAX { bytes } else { bytes / BLOCK as u64 };
        (blocks(self.writer.written(zone)), blocks(self.writer.durable(zone)))
    }

    /// Threads that wait for a turn, and turns that are given.
    fn turns(&self) -> (usize, usize) {
        self.writer.zones().turns.counts()
    }
}

const ALL: u64 = u64::MAX;

#[test]
fn the_largest_backlog_goes_first_and_takes_along_what_came_while_it_waited() {
    let all = fixture(false, 1);
    let (drive, zones) = (&all.drive, &all.zones);
    drive.hold(zones[0]);
    std::thread::scope(|scope| {
        for (n, blocks) in [(0, 1), (1, 2), (2, 5)] {
            all.push(zones[n], blocks);
            let all = &all;
            scope.spawn(move || assert_eq!(all.write(all.zones[n]), Wrote::All));
            while all.turns() != (n, 1) {
                std::thread::yield_now();
            }
            if n == 0 {
                drive.wait_for(zones[0]);
            }
        }
        all.push(zones[2], 2);
        assert_eq!(drive.seen().user_writes.len(), 1, "nobody else has a turn");
        drive.let_go();
    });
    assert_eq!(drive.seen().user_writes, [(zones[0], BLOCK), (zones[2], 7 * BLOCK), (zones[1], 2 * BLOCK)]);
    assert_eq!((drive.seen().most, all.turns()), (1, (0, 0)));
}

#[test]
fn who_finds_a_turn_free_waits_for_nobody() {
    let all = fixture(false, 2);
    all.drive.hold(all.zones[0]);
    all.push(all.zones[0], 1);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| all.write(all.zones[0]));
        all.drive.wait_for(all.zones[0]);
        for zone in [1, 2, 1, 2].map(|i| all.zones[i]) {
            all.push(zone, 1);
            assert_eq!(all.write(zone), Wrote::All);
        }
        assert!(!slow.is_finished());
        all.drive.let_go();
        assert_eq!(slow.join().unwrap(), Wrote::All);
    });
    assert_eq!(all.drive.seen().most, 2);
}

/// One waits for the zone guard of another, who writes what both need.
#[test]
fn who_waits_for_bytes_that_others_write_gets_no_pen() {
    let all = fixture(false, 4);
    let zone = all.zones[0];
    all.drive.hold(zone);
    let end = all.push(zone, 1) + BLOCK as u64;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| all.write(zone));
        all.drive.wait_for(zone);
        let second = scope.spawn(|| all.writer.zone_guard(zone, end).is_none());
        all.drive.let_go();
        assert_eq!(first.join().unwrap(), Wrote::All);
        assert!(second.join().unwrap());
    });
}

#[test]
fn a_zone_that_fails_gives_its_turn_back_and_keeps_its_bytes() {
    for write_cache in [false, true] {
        let all = fixture(write_cache, 1);
        let [zone, other, _] = all.zones[..] else { unreachable!() };
        all.push(zone, 1);
        assert_eq!(all.write(zone), Wrote::All);
        all.push(zone, 3);
        all.push(zone, 9);
        all.push(other, 1);
        all.emulator.faults().make_read_only(ZoneId(zone)).unwrap();
        let due = all.writer.due();
        assert_eq!(due.iter().map(|due| due.end / BLOCK as u64).collect::<Vec<_>>(), [13, 1]);
        let commands = all.drive.seen().writes;
        for again in [false, true] {
            // The other one is written all the same. Who refused is asked before it is tried again.
            let refused = all.writer.write(&due).unwrap();
            assert_eq!(refused.iter().map(ZoneGuard::zone).collect::<Vec<_>>(), [zone], "again: {again}");
            assert_eq!((all.turns(), all.drive.seen().writes - commands), ((0, 0), 2));
        }
        assert_eq!((all.state(zone).0, all.state(other).0, all.writer.buffered()), (1, ALL, 12 * BLOCK as u64));
        let zone_guard = all.writer.zone_guard(zone, u64::MAX).unwrap();
        let (from, segments) = zone_guard.waiting();
        assert_eq!((from, segments.len()), (BLOCK as u64, 2));
        assert!(!all.writer.forget(zone), "bytes of it wait");
        assert_eq!((zone_guard.discard(), all.writer.buffered()), (BLOCK as u64, 0));
        assert!(!all.writer.forget(zone), "somebody has its zone_guard");
        drop(zone_guard);
        all.writer.close(zone);
        assert!(all.writer.write(&all.writer.due()).unwrap().is_empty());
        let durable = if write_cache { 0 } else { 1 };
        assert_eq!(all.state(zone), (ALL, durable), "whose bytes were discarded stays known");
        assert!(all.writer.forget(zone) && !all.writer.knows(zone));
    }
}

/// Part of what one write brings is there before it fails; the rest is written behind it.
#[test]
fn a_write_that_fails_is_tried_again_from_where_it_stopped() {
    let all = fixture(true, 1);
    let zone = all.zones[0];
    all.push(zone, 6);
    all.emulator.faults().fail_write_in(ZoneId(zone), 2);
    assert_eq!(all.write(zone), Wrote::All);
    let blocks: Vec<usize> = all.drive.seen().user_writes.iter().map(|(_, len)| len / BLOCK).collect();
    assert_eq!((blocks, all.writer.buffered()), (vec![6, 4], 0));
}

#[test]
fn a_zone_is_known_until_it_is_finished_and_durable() {
    for write_cache in [false, true] {
        let all = fixture(write_cache, 4);
        let [a, b, _] = all.zones[..] else { unreachable!() };
        let commits = all.committer();
        all.push(a, 1);
        all.push(b, 2);
        all.writer.close(b);
        assert_eq!(all.writer.push(b, AlignedBuf::zeroed(BLOCK).into()), None);
        let Join::Lead(lead) = commits.join(1) else { panic!("nothing is written") };
        let due = all.writer.due();
        assert_eq!(due.iter().map(|due| due.zone).collect::<Vec<_>>(), [b, a], "the closed one is first");
        assert!(all.writer.write(&due).unwrap().is_empty());
        let group = lead.done(1);
        assert_eq!((all.state(a), all.writer.knows(b)), if write_cache { ((ALL, 0), true) } else { ((ALL, 1), false) });
        assert!(all.writer.due().is_empty());
        // What is written behind it is in another group.
        all.push(a, 1);
        assert_eq!(all.write(a), Wrote::All);
        assert_eq!(commits.durable(), 0);
        assert!(group.flush(Cause::Journal.into()).unwrap().tell());
        assert_eq!(
            (all.state(a).1, all.writer.knows(b), commits.durable()),
            (if write_cache { 1 } else { 2 }, false, 1)
        );
        assert_eq!(all.writer.flushed(), BLOCK as u64 * if write_cache { 3 } else { 4 });
    }
}

#[test]
fn a_forgotten_zone_is_handed_out_once_nothing_waits_for_it_and_that_is_durable() {
    let all = fixture(true, 4);
    let (commits, tenant) = (all.committer(), all.writer.tenant());
    let [a, b, _] = all.zones[..] else { unreachable!() };
    all.push(a, 1);
    tenant.forget(ZoneId(a), 1);
    tenant.forget(ZoneId(b), 2);
    commits.lead().done(1).flush(Cause::Journal.into()).unwrap().tell();
    assert_eq!(commits.forgotten(), (vec![], 1), "bytes of the one wait, and the other is not forgotten durably");
    assert_eq!(all.write(a), Wrote::All);
    assert_eq!(commits.forgotten(), (vec![ZoneId(a)], 1));
    assert!(!all.writer.knows(a) && all.writer.knows(b));
}

/// A group tells of the life that it wrote, whatever the zone is now.
#[test]
fn a_flush_says_nothing_of_a_later_life() {
    let all = fixture(true, 4);
    let zone = all.zones[0];
    all.push(zone, 3);
    assert_eq!(all.write(zone), Wrote::All);
    let commits = all.committer();
    let group = commits.lead().done(1);
    assert!(all.writer.forget(zone));
    all.writer.tenant().reset(ZoneId(zone)).unwrap();
    all.writer.open(OpenZone { zone: ZoneId(zone), life: 9, at: 0, capacity: 256 << 10 });
    all.push(zone, 4);
    assert_eq!(all.write(zone), Wrote::All);
    group.flush(Cause::Journal.into()).unwrap().tell();
    assert_eq!(all.state(zone), (ALL, 0));
}

#[test]
fn what_does_not_fit_is_not_taken_and_what_waits_is_read() {
    let all = fixture(true, 4);
    let zone = all.zones[0];
    assert_eq!((all.push(zone, 60), all.push(zone, 3)), (0, 60 * BLOCK as u64));
    assert_eq!(all.writer.push(zone, AlignedBuf::zeroed(2 * BLOCK).into()), None, "one block is left");
    let mut out = [0; 9];
    assert!(all.writer.read(zone, 60 * BLOCK as u64 - 4, &mut out) && out == [zone as u8; 9]);
    assert!(!all.writer.read(zone, 63 * BLOCK as u64 - 4, &mut out), "behind the end");
    assert_eq!(all.write(zone), Wrote::All);
    assert!(!all.writer.read(zone, 0, &mut out), "the drive has it");
}
