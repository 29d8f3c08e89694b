//! An object store in place on a plain disk, with its metadata in the key-value store of that disk.

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_crashkit::{FaultKind, FaultPlan, Plan, explore, fault_sweep, seeds};
use imbrex_device::{AlignedBuf, Cause, Drive, Result, ZoneId, ZoneOp};
use imbrex_drives::{OpenOptions, open as open_drive};
use imbrex_emulator::Emulator;
use imbrex_store::{CollectionId, Import, ObjectId, Options, Salvage, Salvaged, Scratch, Store, Transaction};
use imbrex_zones::log::format::LOG_KIND;
use imbrex_zones::{Exec, VolumeOptions, ZoneHeader};
use std::sync::Arc;
use support::random::{Kind, Opened, Random};
use support::{Hook, Model, bands, content, in_place, make_bands, plain};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };

/// Metadata are on the disk, mostly, so that changes of counts wait.
fn reading() -> Options {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let metadata = imbrex_kv::Options {
        memtable_bytes: 8 << 10,
        table_bytes: 32 << 10,
        cache_bytes: 0,
        segment_bytes: 16 << 10,
        ..imbrex_kv::Options::default()
    };
    Options {
        store: imbrex_bluestore::Options { count_from: 4, ..in_place(4 << 10) },
        metadata,
        volume,
        ..Options::default()
    }
}

struct OnPlain;

impl Kind for OnPlain {
    fn format(&self, drive: &Drive) -> Result<()> {
        make_bands(drive)?;
        Store::format(&bands(drive)?, Some([7; 16]), false)
    }

    fn open(&self, drive: &Drive) -> Result<Opened> {
        let store = Store::open(bands(drive)?, reading())?;
        Ok(Opened { store: (*store).clone(), hook: Hook::default(), kept: Box::new(store) })
    }
}

#[test]
fn a_crash_at_any_moment_leaves_the_first_transactions_and_those_that_were_durable() {
    for full in [false, true] {
        for seed in seeds(1) {
            let plan = Plan { threads: 2, max_states: 250, ..Plan::new(seed) };
            let subject = Arc::new(Random { kind: OnPlain, full });
            let report = explore(&subject, &plain(), &plan).unwrap_or_else(|failure| panic!("{failure}"));
            println!("seed {seed}: {} of {} states", report.states, report.possible);
            assert!(report.states >= 160, "{report:?}");
        }
    }
}

#[test]
fn a_disk_that_loses_power_costs_nothing_that_was_durable() {
    for seed in seeds(1) {
        let kinds = vec![FaultKind::PowerLoss];
        let plan = FaultPlan { threads: 2, max_runs: 60, recoveries: 2, kinds, ..FaultPlan::new(seed) };
        let report = fault_sweep(&Arc::new(Random { kind: OnPlain, full: false }), &plain(), &plan)
            .unwrap_or_else(|failure| panic!("{failure}"));
        assert!(report.runs >= 40, "{report:?}");
    }
}

/// A plain file gets a store in place, unless somebody wants zones. A look sees it, and changes nothing.
#[test]
fn a_plain_file_is_overwritten_in_place_unless_it_is_told_not_to() {
    let dir = tempfile::tempdir().unwrap();
    let id = ObjectId::new(1, b"", b"a");
    for (n, (layout, is_in_place)) in
        [("", true), ("&layout=zones", false), ("&min-alloc=16K", true)].iter().enumerate()
    {
        let path = dir.path().join(format!("disk{n}.img"));
        let place = format!("imbrex://banded:{}?survivor=off&memtable=1M&defer-below=0", path.display());
        let made = format!("{place}&band=1M&create=64M{layout}");
        {
            let store = Store::open_uri(&made, &[("format", "on")]).unwrap();
            let mut begin = Transaction::new();
            begin.create_collection(ALL, 0).write(ALL, &id, 0, &content(3 << 20, 1));
            store.commit(begin).unwrap();
            for n in 0..40 {
                let mut over = Transaction::new();
                over.write(ALL, &id, n * 65_536, &content(65_536, n as u8));
                store.commit(over).unwrap();
            }
            assert_eq!(store.usage().stored, 3 << 20);
        }
        let says = |more: &str| Store::open_uri(&format!("{place}{more}"), &[]).err().unwrap().to_string();
        let other = if *is_in_place {
            ("&layout=zones", "leave layout=zones out")
        } else {
            ("&layout=in-place", "leave layout=in-place out")
        };
        assert!(says(other.0).contains(other.1));
        assert!(says("&overwrites=off").contains("neither anywhere nor home"));
        assert!(says("&checksum=none").contains("neither crc32c nor xxh3"));
        assert!(says("&layout=flat").contains("neither zones nor in-place"));
        for look in [false, true] {
            let before = std::fs::read(&path).unwrap();
            let store = Store::open_uri(&format!("{place}{}", if look { "&read-only=on" } else { "" }), &[]).unwrap();
            for n in 0..40 {
                assert!(store.read(ALL, &id, n * 65_536, 65_536).unwrap() == content(65_536, n as u8));
            }
            assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
            drop(store);
            assert!(!look || std::fs::read(&path).unwrap() == before, "a look has changed the disk");
        }
        let drive = open_drive(&format!("banded:{}", path.display()), &OpenOptions::default()).unwrap();
        assert!(drive.device.overwrites());
    }
}

fn plain_drive() -> Drive {
    let drive = Drive { device: Arc::new(Emulator::memory(&plain()).unwrap()), survivor: None };
    OnPlain.format(&drive).unwrap();
    drive
}

/// What a salvage of the bands of a plain disk says, and what comes of it.
fn salvaged(drive: &Drive) -> Result<(Salvaged, Vec<String>, Model)> {
    let into = Store::open(bands(&plain_drive())?, reading())?;
    let from = bands(drive)?;
    let found = Salvage::search(&from, Scratch::in_memory(&from)?, None, &mut tempfile::tempfile, &mut |_, _| {})?;
    assert!(found.walked().in_place > 0 && found.walked().runs == 0, "{:?}", found.walked());
    let notes = found.notes().to_vec();
    assert_eq!(found.is_whole(), notes.is_empty());
    let mut import = Import::new(&into, false)?;
    let told = found.read(false, &mut import)?;
    import.finish()?;
    Ok((told, notes, Model::of(&into)?))
}

/// Takes the bands away whose headers are so.
fn lose(drive: &Drive, is: impl Fn(&ZoneHeader) -> bool) {
    let bands = bands(drive).unwrap();
    let geometry = bands.device.geometry();
    let mut lost = 0;
    for zone in (0..geometry.zones).map(ZoneId) {
        let mut block = AlignedBuf::zeroed(4096);
        let read = bands.device.read_at(&mut block, geometry.start(zone), Cause::Check.into());
        if read.is_ok() && ZoneHeader::decode(&block).is_some_and(|header| is(&header)) {
            bands.device.zone_op(ZoneOp::Reset, zone, Cause::Check.into()).unwrap();
            lost += 1;
        }
    }
    assert!(lost > 0);
}

#[test]
fn a_salvage_uses_what_of_the_metadata_can_be_read_and_says_that_nothing_else_helps() {
    let drive = plain_drive();
    let id = |n: u64| ObjectId::new(1, b"", format!("object {n}").as_bytes());
    let store = Store::open(bands(&drive).unwrap(), reading()).unwrap();
    store.commit(std::mem::take(Transaction::new().create_collection(ALL, 0))).unwrap();
    for n in 0..60 {
        let bytes = content(if n % 3 == 0 { 70_000 } else { 9_000 }, n as u8);
        let mut write = Transaction::new();
        write.write(ALL, &id(n), 0, &bytes).set_attributes(ALL, &id(n), &[(b"a", b"b")]);
        store.commit(write).unwrap();
    }
    store.sync().unwrap();
    let model = Model::of(&store).unwrap();
    drop(store);
    let (told, _, found) = salvaged(&drive).unwrap();
    assert!(found == model && told.doubtful == 0, "{told:?}");
    // The tables are left, without what says which of them count.
    lose(&drive, |header| header.kind == LOG_KIND);
    let (told, notes, found) = salvaged(&drive).unwrap();
    assert_eq!(notes.iter().filter(|note| note.contains("in place")).count(), 1, "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("deleted or overwritten")), "{notes:?}");
    assert!(told.objects > 0 && told.of_runs == 0, "{told:?}");
    for (id, object) in &found.objects {
        assert!(object.bytes == model.objects[id].bytes, "{id}");
    }
    lose(&drive, |header| header.name == "wal" || header.name == "tables");
    let says = salvaged(&drive).err().unwrap().to_string();
    assert!(says.contains("in place") && says.contains("nothing can be salvaged"), "{says}");
}
