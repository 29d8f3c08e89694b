//! Whose every zone is: after whatever failed, none may stay leased, pinned or reserved for nobody until the next mount.

use crate::api::fs::{BlueFs, CreateOptions};
use crate::clean::{Moving, Piece, Wish};
use crate::file::core::Core;
use crate::options::Options;
use crate::sync::lock;
use imbrex_device::{Drive, Geometry, Identity, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::clean::{Chosen, Residents, Search, Victim};
use imbrex_zones::{Exec, Urgency, VolumeOptions};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

const WISH: Wish = Wish::Dead { least: 0, budget: u64::MAX, logs: false };

fn options() -> Options {
    let volume =
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 4 << 20, unit_bytes: 16 << 10, turn_bytes: 256 << 10 };
    Options { cache_bytes: 0, journal_bytes: 64 << 10, segment_bytes: 64 << 10, volume, ..Options::default() }
}

fn mounted(config: &Config) -> (Emulator, BlueFs) {
    let emulator = Emulator::memory(config).unwrap();
    let drive = || Drive { device: Arc::new(emulator.clone()), survivor: None };
    BlueFs::format(&drive(), false).unwrap();
    let fs = BlueFs::mount(drive(), options()).unwrap();
    (emulator, fs)
}

/// A drive that limits active zones, and has no conventional ones.
fn zns(limit: u32) -> Config {
    Config {
        conventional: 0,
        max_open: Some(limit),
        max_active: Some(limit),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        ..Config::tiny()
    }
}

/// Zones that are leased, beyond those that files and the journal have, and those that are reserved or pinned.
fn nobodys(core: &Core) -> (u32, u32, usize) {
    core.sync_journal().unwrap();
    let counts = core.tenant.counts();
    let (files, journal) = (lock(&core.meta).meta.counts().zones as u32, core.journal.zones().len() as u32);
    (counts.leased - files - journal, counts.reservations, core.busy_zones().len())
}

fn table(fs: &BlueFs, path: &str, bytes: usize, hint: u8) {
    let mut file = fs.create(path, CreateOptions::default()).unwrap();
    file.set_hint(hint).unwrap();
    file.append(&vec![7; bytes]).unwrap();
    file.close().unwrap();
}

#[test]
fn a_cleaner_that_gets_no_active_zone_gives_its_new_zone_back() {
    let limit = 8;
    let (emulator, fs) = mounted(&zns(limit));
    let core = fs.core();
    // Parked, of a class that the cleaner leaves alone: what it has to give up first.
    table(&fs, "/1.sst", 50_000, 3);
    core.sync_journal().unwrap();
    // All active zones but that one: two are the label's, two the journal's.
    let others: Vec<_> = (0..limit - 5).map(|_| core.take_zone(Urgency::User).unwrap()).collect();
    others.iter().for_each(|zone| core.tenant.activate(*zone, Some(&**core)).unwrap());
    fs.mkdir("/not-yet-durable").unwrap();
    emulator.faults().host_full(true);
    let moving = Moving::new(core, WISH);
    moving
        .room(&mut moving.step.borrow_mut(), 1)
        .expect_err("the journal cannot be written, and so no zone be finished");
    moving.settle();
    emulator.faults().clear();
    others.into_iter().for_each(|zone| core.tenant.release(zone));
    assert_eq!(nobodys(core), (0, 0, 0));
    moving.room(&mut moving.step.borrow_mut(), 1).unwrap();
    moving.settle();
    assert_eq!(nobodys(core), (0, 0, 0));
}

#[test]
fn files_that_were_refused_keep_no_reservation_although_nobody_does_background_work() {
    for name in ["sst", "log"] {
        let (_, fs) = mounted(&Config::tiny());
        let core = fs.core();
        for n in 0..1000 {
            let path = format!("/{n:06}.{name}");
            let file = fs.create(&path, CreateOptions::default()).unwrap();
            let refused = (0..20).any(|_| file.append(&vec![n as u8; 50_000]).is_err());
            fs.unlink(&path).unwrap();
            drop(file);
            assert_eq!(core.tenant.counts().reservations, 0, "{path}");
            if n < 30 {
                table(&fs, &format!("/kept-{n}.sst"), 1_000_000, 0);
            } else if refused {
                break;
            }
        }
        assert_eq!(nobodys(core), (0, 0, 0));
    }
}

#[test]
fn a_write_that_fails_while_tables_are_packed_leaves_no_zone_to_nobody() {
    for nth in 0..24 {
        let (emulator, fs) = mounted(&Config::tiny());
        let core = fs.core();
        for n in 0..4 {
            let path = format!("/{n}.sst");
            let mut file = fs.create(&path, CreateOptions::default()).unwrap();
            file.preallocate(1_000_000).unwrap();
            file.append(&vec![n as u8; 100_000 * (n + 1)]).unwrap();
            file.close().unwrap();
        }
        core.sync_journal().unwrap();
        emulator.faults().fail_write(nth, 1);
        // Whoever packs goes on with the next zone, or gives up until the next time.
        let _ = fs.pack();
        emulator.faults().clear();
        assert_eq!(nobodys(core), (0, 0, 0), "write {nth}");
        // What cannot be read or written is another zone's business.
        fs.pack().unwrap();
        assert_eq!(nobodys(core), (0, 0, 0), "write {nth}");
        assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn moved_bytes_keep_their_zone_although_all_that_stood_there_is_deleted_meanwhile() {
    let (_, fs) = mounted(&Config::tiny());
    let core = fs.core();
    // What the cleaner goes on behind, and what it moves there.
    table(&fs, "/goes.sst", 50_000, 6);
    table(&fs, "/moved.sst", 50_000, 1);
    let serial = fs.stat("/moved.sst").unwrap().serial;
    let extents = lock(&core.meta).meta.inode(serial).unwrap().extents.clone();
    let piece = Piece { serial, extents, name: "moved.sst".into(), created: 0 };
    let moving = Moving::new(core, WISH);
    let into = moving.room(&mut moving.step.borrow_mut(), 1).unwrap().zone;
    assert_eq!(lock(&core.meta).meta.pieces(into.0).count(), 1, "it goes on behind the first one");
    let mut moved = Vec::new();
    moving.copy(&piece, &mut moved).unwrap();
    moving.flush().unwrap();
    fs.unlink("/goes.sst").unwrap();
    core.sync_journal().unwrap();
    assert_eq!(moving.switch(moved).unwrap(), 50_000);
    moving.settle();
    assert_eq!(nobodys(core), (0, 0, 0));
    while fs.step().unwrap() {}
    let reader = fs.open_read("/moved.sst").unwrap();
    let place = lock(&core.meta).meta.inode(serial).unwrap().extents[0].place;
    assert_eq!(place.zone().map(|(zone, _)| zone), Some(into.0));
    let mut bytes = vec![0; 50_000];
    assert_eq!(reader.read_at(0, &mut bytes).unwrap(), bytes.len());
    assert!(bytes.iter().all(|b| *b == 7));
}

/// A drive on which somebody looks at the file system whenever it is asked about one zone.
struct Watched {
    below: Emulator,
    core: OnceLock<Weak<Core>>,
    /// For each look at a zone that is being given back: how many were to be seen on their way.
    seen: std::sync::Mutex<Vec<(ZoneId, u32)>>,
    /// Writes until the one that finds the host's disk full.
    until_full: AtomicU32,
}

impl ZonedDevice for Watched {
    fn identity(&self) -> &Identity {
        self.below.identity()
    }
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> imbrex_device::Result<usize> {
        if let ([_], Some(core)) = (&out, self.core.get().and_then(Weak::upgrade)) {
            lock(&self.seen).push((from, core.tenant.counts().forgotten));
        }
        self.below.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> imbrex_device::Result<()> {
        self.below.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> imbrex_device::Result<()> {
        if self.until_full.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.below.faults().host_full(true);
        }
        self.below.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> imbrex_device::Result<()> {
        self.below.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> imbrex_device::Result<()> {
        self.below.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> imbrex_device::Result<bool> {
        self.below.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> imbrex_device::Result<()> {
        self.below.set_write_cache(on)
    }
}

fn watched(below: Emulator) -> Arc<Watched> {
    Arc::new(Watched { below, core: OnceLock::new(), seen: Default::default(), until_full: AtomicU32::new(0) })
}

/// A write of several commands, of which the host's disk takes some: what is written when there is room again is read where it stands.
#[test]
fn a_file_goes_on_behind_what_a_full_host_disk_took_of_a_write() {
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i / 7 + i / 4096 * 31) as u8).collect();
    let mut failed = 0;
    for (name, full) in ["/1.sst", "/1.log", "/info"].into_iter().flat_map(|name| (1..30).map(move |full| (name, full)))
    {
        let config = Config { max_io: 8 << 10, ..Config::tiny() };
        let device = watched(Emulator::memory(&config).unwrap());
        let drive = || Drive { device: device.clone(), survivor: None };
        BlueFs::format(&drive(), false).unwrap();
        let fs = BlueFs::mount(drive(), options()).unwrap();
        let mut file = fs.create(name, CreateOptions::default()).unwrap();
        file.append(&bytes[..90_000]).unwrap();
        file.sync().unwrap();
        device.until_full.store(full, Ordering::Relaxed);
        let mut at = 90_000;
        for end in [150_000, 151_000, 300_000] {
            for attempt in 0.. {
                assert!(attempt < 3, "{name}, command {full}");
                let appended = file.append(&bytes[at..end]);
                at = file.len() as usize;
                if appended.and_then(|()| file.sync()).is_ok() && at == end {
                    break;
                }
                failed += 1;
                device.below.faults().host_full(false);
            }
        }
        file.close().unwrap();
        let whole = |fs: &BlueFs| {
            let mut found = vec![0; bytes.len()];
            let reader = fs.open_read(name).unwrap();
            assert_eq!(reader.read_at(0, &mut found).unwrap(), bytes.len(), "{name}, command {full}");
            let wrong = found.iter().zip(&bytes).position(|(found, byte)| found != byte);
            assert_eq!(wrong, None, "{name}, command {full}");
            assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        };
        whole(&fs);
        drop(fs);
        whole(&BlueFs::mount(drive(), options()).unwrap());
    }
    assert!(failed > 40, "{failed} failed");
}

/// Somebody who had a closed file's lock has panicked: whoever closes the file for good takes the lock all the same.
#[test]
fn a_file_whose_lock_is_poisoned_is_closed() {
    let (_, fs) = mounted(&Config::tiny());
    let core = fs.core();
    for waits in [false, true] {
        let path = format!("/{waits}.sst");
        table(&fs, &path, 50_000, 0);
        let serial = lock(&core.meta).meta.resolve(&path).unwrap();
        let file = {
            let mut state = lock(&core.meta);
            core.file(&mut state, serial, 1, "x.sst").unwrap()
        };
        let poisoned = file.clone();
        let panicked = std::thread::spawn(move || {
            let _writing = poisoned.writing.lock();
            panic!("as a bug would");
        });
        panicked.join().unwrap_err();
        if waits {
            core.unwritten.keep(file);
            core.unwritten.finish_kept().unwrap();
        } else {
            core.unwritten.keep_waiting(file);
            core.unwritten.write_waiting();
        }
    }
    core.unwritten.forget();
}

#[test]
fn a_zone_that_is_given_back_is_seen_all_the_way() {
    let below = Emulator::memory(&Config::tiny()).unwrap();
    let device = watched(below);
    let drive = || Drive { device: device.clone(), survivor: None };
    BlueFs::format(&drive(), false).unwrap();
    let fs = BlueFs::mount(drive(), options()).unwrap();
    let core = fs.core();
    (0..3u8).for_each(|n| table(&fs, &format!("/{n}.sst"), 1_000_000, n));
    fs.sync_all().unwrap();
    let free = core.tenant.counts().free;
    (0..3).for_each(|n| fs.unlink(&format!("/{n}.sst")).unwrap());
    device.core.set(Arc::downgrade(core)).unwrap();
    core.sync_journal().unwrap();
    let seen = lock(&device.seen).clone();
    assert_eq!(seen.iter().map(|(_, seen)| *seen).collect::<Vec<_>>(), [3, 2, 1], "{seen:?}");
    assert_eq!((core.tenant.counts().free, core.waiting_for_journal()), (free + 3, 0));
}

/// Carries out a step by hand: what stands in the zone moves, and the metadata says so durably.
fn empty(core: &Core, chosen: Chosen) {
    let moving = Moving::new(core, Wish::Dead { least: 0, budget: u64::MAX, logs: true });
    let victim = Victim { zone: chosen.zone, life: chosen.life, most: u64::MAX, pressed: false };
    core.tenant.pin(ZoneId(victim.zone));
    let mut copies = Vec::new();
    moving.residents(&victim).iter().for_each(|piece| moving.copy(piece, &mut copies).unwrap());
    moving.flush().unwrap();
    assert!(moving.switch(copies).unwrap() > 0);
    moving.settle();
    assert!(moving.is_empty(&victim));
    moving.commit().unwrap();
    core.tenant.unpin(ZoneId(victim.zone));
    core.release_pending();
}

fn zones_of(core: &Core, serial: u64) -> Vec<(u32, u64)> {
    lock(&core.meta).meta.inode(serial).unwrap().extents.iter().filter_map(|extent| extent.place.zone()).collect()
}

/// Reads a file of sevens and nines again, when all that is free was reset.
fn expect(fs: &BlueFs, path: &str, sevens: usize, nines: usize) {
    while fs.step().unwrap() {}
    let mut bytes = vec![0; sevens + nines + 1];
    assert_eq!(fs.open_read(path).unwrap().read_at(0, &mut bytes).unwrap(), sevens + nines, "{path}");
    assert!(bytes[..sevens].iter().all(|b| *b == 7) && bytes[sevens..sevens + nines].iter().all(|b| *b == 9), "{path}");
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_file_that_goes_on_while_its_crumbs_are_moved_keeps_its_zone() {
    let (emulator, fs) = mounted(&Config::tiny());
    let core = fs.core();
    let append = |path: &str, bytes: usize| {
        let log = if fs.stat(path).is_ok() {
            fs.reopen(path).unwrap()
        } else {
            fs.create(path, CreateOptions::default()).unwrap()
        };
        log.append(&vec![7; bytes]).unwrap();
        log.sync().unwrap();
        log
    };
    // A stretch of the log in one zone, and its end in another, since somebody else writes behind the first.
    append("/MANIFEST-1", 200_000).close().unwrap();
    let mut other = append("/MANIFEST-2", 100_000);
    append("/MANIFEST-1", 1000).close().unwrap();
    other.close().unwrap();
    let serial = fs.stat("/MANIFEST-1").unwrap().serial;
    let zones = zones_of(core, serial);
    assert!(zones.len() == 2 && zones[0] != zones[1], "{zones:?}");
    // What it gets now is in memory when all before it moves.
    let mut log = fs.reopen("/MANIFEST-1").unwrap();
    log.append(&[9; 1000]).unwrap();
    let (zone, life) = zones[0];
    core.parked.claim(|_| Some(zone));
    empty(core, Chosen { zone, life, dying: false });
    assert!(zones_of(core, serial).iter().all(|there| !zones.contains(there)), "the crumbs have moved as well");
    log.sync().unwrap();
    // Also after a kill and after a power loss at this moment, when the log ends behind crumbs that are not its own any more.
    for lost_power in [false, true] {
        let killed = emulator.fork().unwrap();
        if lost_power {
            killed.faults().lose_power_by(true, 1).unwrap();
        }
        let drive = Drive { device: Arc::new(killed), survivor: None };
        let again = BlueFs::mount(drive, options()).unwrap();
        assert_eq!(again.mount_report().damage, Vec::<String>::new(), "lost power: {lost_power}");
        expect(&again, "/MANIFEST-1", 201_000, 1000);
    }
    core.sync_journal().unwrap();
    expect(&fs, "/MANIFEST-1", 201_000, 1000);
    log.close().unwrap();
    expect(&fs, "/MANIFEST-1", 201_000, 1000);
    assert_eq!(nobodys(core), (0, 0, 0));
}

#[test]
fn nobody_goes_on_in_a_zone_that_is_chosen_to_be_emptied() {
    let (_, fs) = mounted(&Config::tiny());
    let core = fs.core();
    table(&fs, "/dead.sst", 400_000, 1);
    table(&fs, "/lives.sst", 100_000, 1);
    fs.unlink("/dead.sst").unwrap();
    let serial = fs.stat("/lives.sst").unwrap().serial;
    let was = zones_of(core, serial);
    let chosen = Moving::new(core, WISH).next_victim(&Search::new(false, &|_| false)).unwrap();
    assert_eq!(was, [(chosen.zone, chosen.life)]);
    // Between the choice and the first copy.
    let mut file = fs.reopen("/lives.sst").unwrap();
    file.append(&[9; 1000]).unwrap();
    empty(core, chosen);
    file.sync().unwrap();
    core.sync_journal().unwrap();
    assert!(zones_of(core, serial).iter().all(|there| !was.contains(there)));
    expect(&fs, "/lives.sst", 100_000, 1000);
    file.close().unwrap();
    assert_eq!(nobodys(core), (0, 0, 0));
    // One in which somebody goes on is not chosen.
    table(&fs, "/dead.sst", 400_000, 2);
    table(&fs, "/lives-on.sst", 100_000, 2);
    fs.unlink("/dead.sst").unwrap();
    let file = fs.reopen("/lives-on.sst").unwrap();
    file.append(&[9; 1000]).unwrap();
    let (zone, _) = zones_of(core, fs.stat("/lives-on.sst").unwrap().serial)[0];
    let chosen = Moving::new(core, WISH).next_victim(&Search::new(false, &|_| false));
    assert!(chosen.is_none_or(|chosen| chosen.zone != zone), "{chosen:?}");
}
