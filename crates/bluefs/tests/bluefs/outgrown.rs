//! Small files at the end of their space: whatever they have (names, extents) they go on as logs or are refused as they were, and what is
//! refused takes nothing from others.

use crate::support::{bytes, options, read_all};
use imbrex_bluefs::{BlueFs, Code, CreateOptions, FileKind, Options, TENANT};
use imbrex_device::{Cause, Drive, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use imbrex_zones::Volume;
use imbrex_zones::log::Root;
use imbrex_zones::log::format::LogHead;
use std::sync::Arc;

fn drive(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: None }
}

fn mount(emulator: &Emulator) -> BlueFs {
    BlueFs::mount(drive(emulator), options()).unwrap()
}

fn formatted(config: &Config) -> Emulator {
    let emulator = Emulator::memory(config).unwrap();
    BlueFs::format(&drive(&emulator), false).unwrap();
    emulator
}

/// Conventional zones but for one: all that small files have, with the journal's quarter of a zone where there is none.
fn few(conventional: u32) -> Config {
    Config { conventional, ..Config::tiny() }
}

#[test]
fn a_small_file_of_many_names_outgrows_its_space_under_all_of_them() {
    for conventional in [4, 0] {
        let emulator = formatted(&few(conventional));
        let names: Vec<String> = (0..40).map(|i| format!("/{}{i}", "n".repeat(250))).collect();
        let piece = bytes(64 << 10, 7);
        let want = piece.repeat(70);
        {
            let fs = mount(&emulator);
            let file = fs.create("/data", CreateOptions::default()).unwrap();
            file.append(&want[..10]).unwrap();
            names.iter().for_each(|name| fs.link("/data", name).unwrap());
            fs.sync_all().unwrap();
            want[10..].chunks(64 << 10).for_each(|piece| file.append(piece).unwrap());
            assert_eq!(fs.stat("/data").unwrap().kind, FileKind::Log);
            assert_eq!(fs.stat("/data").unwrap().links, 41);
            file.sync().unwrap();
            fs.mkdir("/more").unwrap();
            // The process dies here, and its memory with it.
            std::mem::forget((file, fs));
        }
        let fs = mount(&emulator);
        assert_eq!(fs.mount_report().damage, Vec::<String>::new());
        for name in names.iter().map(String::as_str).chain(["/data"]) {
            assert_eq!(fs.stat(name).unwrap().links, 41);
        }
        assert!(read_all(&fs, &names[39]) == want);
        assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_small_file_over_many_zones_outgrows_its_space() {
    let over = Overrides { capacity: Some(400 << 20), conventional: Some(120), ..Overrides::default() };
    let emulator = formatted(&Config::new(&Profile::named("tiny").unwrap(), &over));
    let fs = mount(&emulator);
    let file = fs.create("/data", CreateOptions::default()).unwrap();
    let piece = bytes(1 << 20, 3);
    (0..130).for_each(|_| file.append(&piece).unwrap());
    assert_eq!(fs.stat("/data").unwrap().kind, FileKind::Log);
    assert!(fs.runs("/data").unwrap().len() > 100, "more than a frame of the journal tells");
    file.sync().unwrap();
    std::mem::forget((file, fs));
    let fs = mount(&emulator);
    assert_eq!(fs.mount_report().damage, Vec::<String>::new());
    assert_eq!(fs.stat("/data").unwrap().size, 130 << 20);
    let reader = fs.open_read("/data").unwrap();
    let mut out = vec![0; 1 << 20];
    for n in [0, 1, 64, 118, 129] {
        assert_eq!(reader.read_at(n << 20, &mut out).unwrap(), 1 << 20);
        assert!(out == piece, "at {n} MiB");
    }
}

#[test]
fn a_small_file_that_finds_no_zone_either_is_refused_and_all_is_as_it_was() {
    let emulator = formatted(&few(4));
    let fs = mount(&emulator);
    let file = fs.create("/data", CreateOptions::default()).unwrap();
    file.append(&bytes(300_000, 1)).unwrap();
    (0..20).for_each(|i| fs.link("/data", &format!("/{}{i}", "n".repeat(250))).unwrap());
    file.sync().unwrap();
    let big = fs.create("/big.sst", CreateOptions::default()).unwrap();
    let piece = bytes(200_000, 2);
    while big.append(&piece).is_ok() {}
    let before = (fs.stat("/data").unwrap(), read_all(&fs, "/data"));
    let mut refused = Ok(());
    while refused.is_ok() && file.len() < 64 << 20 {
        refused = file.append(&vec![9; 500_000]);
    }
    assert_eq!(refused.unwrap_err().code(), Code::NoSpace);
    assert_eq!(fs.stat("/data").unwrap().serial, before.0.serial, "it is as it was");
    assert!(read_all(&fs, "/data").starts_with(&before.1));
    fs.mkdir("/x").unwrap();
    fs.sync_dir("/").unwrap();
    file.sync().unwrap();
    drop(big);
    fs.unlink("/big.sst").unwrap();
    file.append(&vec![9; 3 << 20]).unwrap();
    assert_eq!(fs.stat("/data").unwrap().links, 21);
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_write_that_is_refused_leaves_the_space_to_others() {
    for conventional in [4, 0] {
        let emulator = formatted(&few(conventional));
        let fs = mount(&emulator);
        let free = fs.space().small_free;
        let far = fs.open_random("/far", true).unwrap();
        for at in [1 << 40, free, 1 << 55] {
            assert_eq!(far.write_at(at, b"x").unwrap_err().code(), Code::NoSpace);
            assert_eq!((fs.space().small_free, far.size()), (free, 0), "after a write at {at}");
        }
        for at in [u64::MAX, u64::MAX - 3, 1 << 60] {
            assert_eq!(far.write_at(at, &[9; 10]).unwrap_err().code(), Code::InvalidArgument);
        }
        let near = fs.open_random("/near", true).unwrap();
        near.write_at(free / 2, b"x").unwrap();
        assert_eq!(near.size(), free / 2 + 1);
    }
}

#[test]
fn a_write_to_a_table_does_not_wrap() {
    let fs = mount(&formatted(&few(4)));
    let mut table = fs.create("/1.sst", CreateOptions::default()).unwrap();
    table.append(&bytes(70_000, 1)).unwrap();
    table.close().unwrap();
    let random = fs.open_random("/1.sst", false).unwrap();
    for at in [u64::MAX - 3, u64::MAX, 69_991] {
        assert_eq!(random.write_at(at, &[9; 10]).unwrap_err().code(), Code::NotSupported);
    }
    random.sync().unwrap();
    assert!(read_all(&fs, "/1.sst") == bytes(70_000, 1));
    let mut out = [0; 10];
    assert_eq!(fs.open_read("/1.sst").unwrap().read_at(u64::MAX - 3, &mut out).unwrap(), 0);
}

#[test]
fn a_root_that_names_a_zone_twice_is_refused() {
    let emulator = formatted(&few(4));
    {
        let fs = mount(&emulator);
        fs.mkdir("/a").unwrap();
        fs.sync_all().unwrap();
    }
    {
        let volume = Volume::open(drive(&emulator), options().volume).unwrap();
        let tenant = volume.tenant(TENANT).unwrap();
        let mut root = Root::decode(&tenant.root()).unwrap();
        root.zones.push(root.zones[0]);
        tenant.set_root(&root.encode().unwrap()).unwrap();
    }
    let why = BlueFs::mount(drive(&emulator), Options { read_only: false, ..options() }).err().unwrap();
    assert_eq!(why.code(), Code::Corruption);
    assert!(why.to_string().contains("its zones make no sense"), "{why}");
    // What stands on the drive is found all the same, also where another engine's log has the newest zone.
    let zone = report_all(&emulator).unwrap().into_iter().rfind(|zone| zone.state == ZoneState::Empty).unwrap();
    let volume = Volume::open(drive(&emulator), options().volume).unwrap().uuid();
    let head = LogHead {
        volume,
        zone: zone.id.0,
        tenant: "chunkstore".into(),
        owner: 2,
        copy: 0,
        copies: 2,
        zones: 6,
        life: 9,
        order: 1,
        created: u64::MAX,
    };
    emulator.write_at(&head.encode(), emulator.geometry().start(zone.id), Cause::Other.into()).unwrap();
    let found = imbrex_bluefs::salvage::Salvage::search(&drive(&emulator), false, &mut |_, _| {}).unwrap();
    assert_eq!(found.fs().unwrap().stat("/a").unwrap().kind, FileKind::Directory);
}
