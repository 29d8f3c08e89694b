//! Drives without conventional zones: labels in rings, small files in the journal.

use imbrex_bluefs::{BlueFs, Code, CreateOptions, FileKind, Options};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

fn options() -> Options {
    let volume =
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 2 << 20, unit_bytes: 16 << 10, turn_bytes: 256 << 10 };
    Options { cache_bytes: 0, journal_bytes: 64 << 10, segment_bytes: 64 << 10, volume, ..Options::default() }
}

fn machine(config: Config) -> (Emulator, Drive) {
    let emulator = Emulator::memory(&config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) };
    BlueFs::format(&drive, false).unwrap();
    (emulator, drive)
}

/// Every drive without conventional zones: of zones that take all of their size, and as ZNS SSDs are.
fn configs() -> Vec<Config> {
    let plain = Config { conventional: 0, ..Config::tiny() };
    let zns = Config {
        zone_capacity: 768 << 10,
        max_open: Some(8),
        max_active: Some(8),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        ..plain.clone()
    };
    vec![plain.clone(), Config { conventional: 1, ..plain }, zns]
}

fn bytes(n: usize, seed: u8) -> Vec<u8> {
    (0..n).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed).collect()
}

fn write(fs: &BlueFs, path: &str, data: &[u8]) {
    let mut file = fs.create(path, CreateOptions::default()).unwrap();
    file.append(data).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
}

fn read(fs: &BlueFs, path: &str) -> Vec<u8> {
    let reader = fs.open_read(path).unwrap();
    let mut out = vec![0; reader.size() as usize];
    let n = reader.read_at(0, &mut out).unwrap();
    out.truncate(n);
    out
}

#[test]
fn small_files_stand_in_the_journal_and_outlive_mounts_and_compactions() {
    for config in configs() {
        let (_, drive) = machine(config);
        let fs = BlueFs::mount(drive.clone(), options()).unwrap();
        let free = fs.space().free;
        write(&fs, "/OPTIONS-000007", &bytes(5000, 7));
        for i in 0..200u32 {
            write(&fs, "/000001.dbtmp", format!("MANIFEST-{i:06}\n").as_bytes());
            fs.rename("/000001.dbtmp", "/CURRENT").unwrap();
        }
        // The journal may be in another zone, or two, by now.
        assert!(fs.space().free + (2 << 20) >= free, "small files took zones");
        let random = fs.open_random("/CURRENT", false).unwrap();
        random.write_at(0, b"manifest").unwrap();
        random.sync().unwrap();
        drop(random);
        for _ in 0..2 {
            assert_eq!(read(&fs, "/OPTIONS-000007"), bytes(5000, 7));
            assert_eq!(read(&fs, "/CURRENT"), b"manifest-000199\n");
            assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        }
        drop(fs);
        let fs = BlueFs::mount(drive, options()).unwrap();
        assert!(fs.mount_report().clean, "{:?}", fs.mount_report());
        assert_eq!(read(&fs, "/OPTIONS-000007"), bytes(5000, 7));
        assert_eq!(read(&fs, "/CURRENT"), b"manifest-000199\n");
        assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_deleted_small_file_stays_readable_while_it_is_open() {
    let (_, drive) = machine(configs().remove(0));
    let fs = BlueFs::mount(drive, options()).unwrap();
    write(&fs, "/CURRENT", b"first");
    let random = fs.open_random("/CURRENT", false).unwrap();
    write(&fs, "/CURRENT", b"other");
    random.write_at(5, b" and more").unwrap();
    let mut out = [0; 14];
    assert_eq!(random.read_at(0, &mut out).unwrap(), 14);
    assert_eq!(&out, b"first and more");
    assert_eq!(read(&fs, "/CURRENT"), b"other");
}

#[test]
fn a_table_can_be_overwritten_in_place() {
    for config in configs() {
        let (_, drive) = machine(config);
        let fs = BlueFs::mount(drive.clone(), options()).unwrap();
        let mut want = bytes(1_500_000, 3);
        write(&fs, "/000009.sst", &want);
        for (at, n) in [(4090usize, 8usize), (4094, 8), (0, 5000), (700_000, 100_000)] {
            let mut file = fs.open_random("/000009.sst", false).unwrap();
            file.write_at(at as u64, &bytes(n, 9)).unwrap();
            file.sync().unwrap();
            file.close().unwrap();
            want[at..at + n].copy_from_slice(&bytes(n, 9));
            assert!(read(&fs, "/000009.sst") == want, "after {n} bytes at {at}");
        }
        drop(fs);
        let fs = BlueFs::mount(drive, options()).unwrap();
        assert!(read(&fs, "/000009.sst") == want);
        assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_full_inline_space_sends_small_files_to_zones() {
    let (_, drive) = machine(configs().remove(0));
    let fs = BlueFs::mount(drive, options()).unwrap();
    let free = fs.space().free;
    for i in 0..30 {
        write(&fs, &format!("/OPTIONS-{i:06}"), &bytes(10_000, i));
    }
    assert!(fs.space().free < free, "some have zones of their own");
    for i in 0..30 {
        assert_eq!(read(&fs, &format!("/OPTIONS-{i:06}")), bytes(10_000, i));
    }
}

/// Appends pieces to a file of unknown name until it has `size` bytes.
fn grow(fs: &BlueFs, path: &str, size: usize) -> Vec<u8> {
    let data = bytes(size, 5);
    let mut file = fs.create(path, CreateOptions::default()).unwrap();
    let reader = fs.open_read(path).unwrap();
    for (i, piece) in data.chunks(30_000).enumerate() {
        file.append(piece).unwrap();
        if i % 16 == 0 {
            file.sync().unwrap();
        }
    }
    assert_eq!(file.len(), size as u64);
    let mut out = vec![0; size];
    assert_eq!(reader.read_at(0, &mut out).unwrap(), size, "a reader from the beginning on sees it grow");
    assert!(out == data);
    file.close().unwrap();
    data
}

#[test]
fn a_file_that_only_grows_goes_on_in_zones() {
    for config in configs().into_iter().chain([Config { conventional: 3, ..Config::tiny() }]) {
        let (_, drive) = machine(config);
        let fs = BlueFs::mount(drive.clone(), options()).unwrap();
        let small = fs.space().small_free;
        let free = fs.space().free;
        let size = 3_000_000 + small as usize;
        let data = grow(&fs, "/snapshot.bin", size);
        assert_eq!(fs.stat("/snapshot.bin").unwrap().kind, FileKind::Log);
        fs.sync_dir("/").unwrap();
        assert_eq!(fs.space().small_free, small, "what it had is free again");
        fs.link("/snapshot.bin", "/second").unwrap();
        let mut more = fs.reopen("/snapshot.bin").unwrap();
        more.append(b"end").unwrap();
        more.close().unwrap();
        assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        drop(fs);
        let fs = BlueFs::mount(drive, options()).unwrap();
        assert!(fs.mount_report().clean, "{:?}", fs.mount_report());
        assert!(read(&fs, "/second") == [&data[..], b"end"].concat());
        assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
        fs.unlink("/snapshot.bin").unwrap();
        fs.unlink("/second").unwrap();
        fs.sync_dir("/").unwrap();
        while fs.step().unwrap() {}
        assert!(fs.space().free + (2 << 20) >= free, "its zones are free again");
    }
}

#[test]
fn a_growing_file_keeps_all_of_its_names_and_open_handles() {
    let (_, drive) = machine(configs().remove(0));
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    fs.mkdir("/d").unwrap();
    let file = fs.create("/grows", CreateOptions::default()).unwrap();
    fs.link("/grows", "/d/other").unwrap();
    let (serial, data) = (file.serial(), bytes(2_000_000, 1));
    file.append(&data[..1000]).unwrap();
    let second = fs.reopen("/d/other").unwrap();
    let why = data[1000..].chunks(50_000).find_map(|piece| second.append(piece).err());
    assert!(why.is_some(), "two have it open for writing: one may want to overwrite it");
    drop(second);
    let from = file.len() as usize;
    file.append(&data[from..]).unwrap();
    assert_ne!(file.serial(), serial);
    let second = fs.reopen("/d/other").unwrap();
    second.append(b"by another").unwrap();
    drop(file);
    second.append(b" handle").unwrap();
    second.sync().unwrap();
    drop((second, fs));
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert_eq!(fs.stat("/grows").unwrap(), fs.stat("/d/other").unwrap());
    assert_eq!(fs.stat("/grows").unwrap().links, 2);
    assert!(read(&fs, "/grows") == [&data[..], b"by another handle"].concat());
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_growing_file_without_a_name_goes_on_too() {
    let (_, drive) = machine(configs().remove(0));
    let fs = BlueFs::mount(drive, options()).unwrap();
    let (file, data) = (fs.create("/gone", CreateOptions::default()).unwrap(), bytes(2_000_000, 2));
    let free = fs.space().free;
    let reader = fs.open_read("/gone").unwrap();
    file.append(&data[..5000]).unwrap();
    fs.unlink("/gone").unwrap();
    data[5000..].chunks(40_000).for_each(|piece| file.append(piece).unwrap());
    let mut out = vec![0; data.len()];
    assert_eq!(reader.read_at(0, &mut out).unwrap(), data.len());
    assert!(out == data);
    drop((file, reader));
    fs.sync_dir("/").unwrap();
    while fs.step().unwrap() {}
    assert!(fs.space().free + (2 << 20) >= free, "its zones are free again");
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_file_that_finds_no_zone_to_grow_into_stays_as_it_was() {
    let (_, drive) = machine(configs().remove(0));
    let fs = BlueFs::mount(drive.clone(), options()).unwrap();
    let file = fs.create("/grows", CreateOptions::default()).unwrap();
    file.append(&bytes(20_000, 1)).unwrap();
    let full = fs.create("/000001.sst", CreateOptions::default()).unwrap();
    while full.append(&bytes(60_000, 2)).is_ok() {}
    let why = (0..).find_map(|_| file.append(&bytes(20_000, 1)).err()).unwrap();
    assert_eq!(why.code(), Code::NoSpace);
    let size = file.len();
    drop(full);
    fs.unlink("/000001.sst").unwrap();
    fs.sync_dir("/").unwrap();
    file.append(&bytes(500_000, 3)).unwrap();
    file.sync().unwrap();
    let content = read(&fs, "/grows");
    assert!(content[..20_000] == bytes(20_000, 1));
    assert!(content[size as usize..] == bytes(500_000, 3));
    drop((file, fs));
    let fs = BlueFs::mount(drive, options()).unwrap();
    assert!(read(&fs, "/grows") == content);
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
}
