//! Writers in an order: what is on the drive, and durable, before a byte of a later one is.

mod logs;

use imbrex_device::{Cause, Code, Drive, HeapSurvivor, Priority, Tag, ZoneId};
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use imbrex_zones::write::{Rank, WriterSpec, Writers};
use imbrex_zones::{Budget, Exec, FormatOptions, Tenant, TenantSpec, Urgency, Volume, VolumeOptions};
use logs::{Log, LogWriter, log, ranked, spec};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An engine with logs.
struct Logs {
    emulator: Emulator,
    tenant: Tenant,
    writers: Arc<Writers<LogWriter>>,
}

impl Logs {
    fn new() -> Logs {
        let tiny = Profile::named("tiny").unwrap();
        let over = Overrides {
            capacity: Some(1 << 20),
            zone_size: Some(64 << 10),
            conventional: Some(3),
            ..Default::default()
        };
        let emulator = Emulator::memory(&Config::new(&tiny, &over)).unwrap();
        let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) };
        let tenants = vec![TenantSpec { name: "log".into(), budget: Budget::keeping(0, 1) }];
        Volume::format(&drive, &FormatOptions { uuid: Some([7; 16]), tenants, force: false }).unwrap();
        let options =
            VolumeOptions { exec: Exec::Inline, survivor_bytes: 256 << 10, unit_bytes: 4 << 10, turn_bytes: 16 << 10 };
        let tenant = Volume::open(drive, options).unwrap().tenant("log").unwrap();
        tenant.adoption_done();
        tenant.recovered().unwrap();
        // Its own from the beginning: each claim is a label, with flushes of its own.
        let zones: Vec<_> = std::iter::from_fn(|| tenant.take(Urgency::User).ok()).collect();
        zones.into_iter().for_each(|zone| tenant.release(zone));
        tenant.volume().quiesce().unwrap();
        Logs { emulator, writers: Writers::new(&tenant), tenant }
    }

    /// With so many bytes in memory.
    fn log(&self, spec: WriterSpec, bytes: usize) -> Log {
        let log = log(&self.writers, &self.tenant, spec, None);
        log.append(&vec![7; bytes]).unwrap();
        log
    }

    fn flushes(&self) -> u64 {
        self.emulator.stats().total.flushes
    }

    /// Drains the log, and says how many flushes that took.
    fn drained(&self, log: &Log) -> u64 {
        let before = self.flushes();
        log.drain(Priority::Normal).unwrap();
        assert_eq!(log.placed(), log.len());
        self.flushes() - before
    }
}

#[test]
fn earlier_ones_are_durable_before_a_later_one_is_written_and_no_others() {
    let logs = Logs::new();
    let [first, second, third] = [(1, 3), (2, 5), (3, 9)].map(|(file, number)| logs.log(ranked(file, 1, number), 500));
    let [other, later] = [ranked(4, 2, 1), ranked(5, 1, 10)].map(|spec| logs.log(spec, 500));
    assert_eq!(logs.drained(&second), 1, "for the first");
    assert_eq!((first.placed(), third.placed()), (500, 0));
    assert!(first.bytes().is_durable() && !second.bytes().is_durable());
    first.append(&[9; 500]).unwrap();
    second.append(&[8; 500]).unwrap();
    assert_eq!((logs.drained(&second), first.placed()), (0, 500), "once written it waits for nobody");
    assert_eq!(logs.drained(&later), 2, "for the second, and before that for the first; for the third with it");
    assert_eq!((first.placed(), third.placed(), other.placed()), (1000, 500, 0));
    assert!([&first, &second, &third].iter().all(|log| log.bytes().is_durable()));
}

#[test]
fn one_that_was_closed_or_cut_is_waited_for() {
    let logs = Logs::new();
    let rank = ranked(1, 1, 1);
    let closed = logs.log(rank, 500);
    assert_eq!(logs.drained(&closed), 0);
    drop(closed);
    // A cut: the file's bytes so far are on the drive, and it goes on with another writer.
    let cut = logs.log(WriterSpec { file: 2, ..rank }, 500);
    assert_eq!(logs.drained(&cut), 0);
    cut.abandon();
    let goes_on = logs.log(WriterSpec { file: 2, ..rank }, 500);
    let last = logs.log(ranked(3, 1, 2), 500);
    assert_eq!(logs.drained(&last), 1);
    assert!(cut.bytes().is_durable() && goes_on.bytes().is_durable());
    // Somebody else's flush will do.
    let next = logs.log(ranked(4, 1, 3), 500);
    logs.tenant.volume().sync(Tag::new(Cause::Wal)).unwrap();
    assert!(logs.writers.is_first(Rank { group: 1, number: 3 }));
    assert_eq!(logs.drained(&next), 0);
}

#[test]
fn one_that_is_deleted_is_not_waited_for() {
    let logs = Logs::new();
    let [deleted, last] = [ranked(1, 1, 1), ranked(2, 1, 2)].map(|spec| logs.log(spec, 500));
    let again = logs.log(WriterSpec { file: 3, ..ranked(1, 1, 1) }, 0);
    deleted.writers.leave_order(Rank { group: 1, number: 1 }, 1);
    // One that was made anew under its number is.
    again.append(&[7; 500]).unwrap();
    assert!(!logs.writers.is_first(Rank { group: 1, number: 2 }));
    again.drain(Priority::Normal).unwrap();
    logs.tenant.volume().sync(Tag::new(Cause::Wal)).unwrap();
    assert_eq!((logs.drained(&last), deleted.placed()), (0, 0));
    deleted.abandon();
    // And nobody holds it.
    let weak = Arc::downgrade(&deleted.writer);
    drop(deleted);
    assert_eq!(weak.strong_count(), 0);
}

/// An earlier one that finds no zone stops the later ones, until it is deleted.
#[test]
fn one_that_cannot_be_written_stops_those_behind_it() {
    let logs = Logs::new();
    let [full, last] = [ranked(1, 1, 1), ranked(2, 1, 2)].map(|spec| logs.log(spec, 500));
    full.writer.refused.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(last.drain(Priority::Normal).unwrap_err().code(), Code::NoSpace);
        assert_eq!((full.placed(), last.placed()), (0, 0));
    }
    full.writers.leave_order(Rank { group: 1, number: 1 }, 1);
    assert_eq!(logs.drained(&last), 0);
    // One that has found no zone loses nothing: its bytes wait.
    full.writer.refused.store(false, Ordering::Relaxed);
    assert_eq!((logs.drained(&full), full.placed()), (0, 500));
}

/// Of a zone that has died the room is gone, also where there is no other zone for the bytes that it did not take: nothing more is taken for it.
#[test]
fn the_room_of_a_zone_that_has_died_takes_nothing() {
    let logs = Logs::new();
    let log = logs.log(spec(1), 500);
    log.drain(Priority::Normal).unwrap();
    let zone = log.notes().zones.lock().unwrap()[0];
    logs.emulator.faults().make_read_only(ZoneId(zone)).unwrap();
    log.writer.refused.store(true, Ordering::Relaxed);
    log.append(&[8; 500]).unwrap();
    for _ in 0..2 {
        assert_eq!(log.drain(Priority::Normal).unwrap_err().code(), Code::NoSpace);
        assert_eq!(log.append(&[9; 500]).unwrap_err().code(), Code::NoSpace);
        assert_eq!((log.placed(), log.len()), (500, 1000));
    }
    log.writer.refused.store(false, Ordering::Relaxed);
    log.append(&[9; 500]).unwrap();
    assert_eq!((logs.drained(&log), log.len()), (1, 1500), "a flush, for the zone before is dead");
    let placed: Vec<u8> = log.notes().placed.lock().unwrap().iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    assert_eq!(placed, [[7; 500], [8; 500], [9; 500]].concat());
}
