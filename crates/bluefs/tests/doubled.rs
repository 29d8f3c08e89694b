//! Log writes that fail when the drive has taken a part of them, or all: the next attempt writes the frame again, so that it may
//! stand there twice, in one zone or in two. Readers, mounts and rescue count it once.

mod support;

use imbrex_bluefs::{BlueFs, CreateOptions, Options};
use imbrex_device::{Drive, HeapSurvivor, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use std::sync::Arc;
use support::{bytes, read_all};

fn options() -> Options {
    Options { share: false, ..support::options() }
}

fn drive_of(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) }
}

/// Flips a bit of every block of the journals.
fn without_journal(emulator: &Emulator) {
    let size = emulator.geometry().zone_size;
    let mut buf = imbrex_device::AlignedBuf::zeroed(4096);
    for zone in report_all(emulator).unwrap() {
        let at = u64::from(zone.id.0) * size;
        let Some(wp) = zone.wp.filter(|wp| zone.state != ZoneState::Conventional && *wp > 0) else { continue };
        emulator.read_at(&mut buf, at, imbrex_device::Cause::Check.into()).unwrap();
        if imbrex_zones::ZoneHeader::decode(&buf).is_some_and(|h| h.name.starts_with("journal")) {
            (1..wp / 4096).for_each(|block| emulator.faults().flip_bits(at + block * 4096 + 66, 1).unwrap());
        }
    }
}

fn found(fs: &BlueFs) -> Vec<u8> {
    match fs.list("/lost+found") {
        Ok(entries) => read_all(fs, &format!("/lost+found/{}", entries[0].name)),
        Err(_) => read_all(fs, "/1.log"),
    }
}

#[test]
fn a_log_write_that_fails_after_the_drive_took_it_costs_nothing() {
    let whole = bytes(60_000, 7);
    for hit in 0..4usize {
        // How often in a row, after the second time in another zone; blocks that are kept.
        for (times, keep) in [(1, 1), (1, 2), (1, u64::MAX), (2, 2), (2, u64::MAX), (3, u64::MAX)] {
            for end in ["open", "clean", "killed", "power", "no journal", "cut"] {
                let emulator = Emulator::memory(&Config::tiny()).unwrap();
                let drive = drive_of(&emulator);
                BlueFs::format(&drive, false).unwrap();
                let fs = BlueFs::mount(drive.clone(), options()).unwrap();
                let mut log = fs.create("/1.log", CreateOptions::default()).unwrap();
                fs.sync_dir("/").unwrap();
                for (i, piece) in whole.chunks(15_000).enumerate() {
                    log.append(piece).unwrap();
                    for nth in 1..=if i == hit { times } else { 0 } {
                        match keep {
                            u64::MAX => emulator.faults().fail_write_late(nth),
                            keep => emulator.faults().fail_write(nth, keep),
                        }
                    }
                    log.sync().unwrap();
                    emulator.faults().clear();
                }
                let what = format!("write {hit}, {times} times, {keep} blocks kept, {end}");
                let read = match end {
                    "open" => read_all(&fs, "/1.log"),
                    "cut" => {
                        log.truncate(20_000).unwrap();
                        log.append(&whole[20_000..]).unwrap();
                        log.sync().unwrap();
                        log.close().unwrap();
                        read_all(&fs, "/1.log")
                    }
                    "killed" | "power" => {
                        std::mem::forget((fs, log));
                        let drive = match end {
                            "power" => drive_of(&emulator.after_power_loss(5).unwrap()),
                            _ => drive,
                        };
                        let fs = BlueFs::mount(drive, options()).unwrap();
                        assert_eq!(fs.mount_report().damage, Vec::<String>::new(), "{what}");
                        assert_eq!(fs.check(|_, _| ()).unwrap().problems, Vec::<String>::new(), "{what}");
                        read_all(&fs, "/1.log")
                    }
                    _ => {
                        log.close().unwrap();
                        drop((log, fs));
                        if end == "no journal" {
                            without_journal(&emulator);
                        }
                        found(&BlueFs::mount(drive, options()).unwrap())
                    }
                };
                assert!(read == whole, "{what}: {} bytes", read.len());
            }
        }
    }
}
