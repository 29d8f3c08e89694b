//! Log writes that fail when the drive has taken a part of them, or all: the next attempt writes the frame again, so that it may
//! stand there twice, in one zone or in two. Readers, mounts and rescue count it once.
//!
//! No single line does that: bytes are found by the logical offset in their frame, never by how many frames stand before it, and a log
//! ends where its last frame says. So the test makes sure that frames really stand there as often as they were written; with lengths
//! summed up instead (of frames in `log_end` of `mount/ends.rs`, or as offsets in `file/log.rs`) it fails.

use crate::support::{bytes, read_all};
use imbrex_bluefs::{BlueFs, CreateOptions, Options};
use imbrex_device::{Drive, HeapSurvivor, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::ZoneHeader;
use imbrex_zones::frame::{FrameId, scan};
use imbrex_zones::log::format::LOG_KIND;
use std::sync::Arc;

fn options() -> Options {
    crate::support::apart()
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
        if ZoneHeader::decode(&buf).is_some_and(|h| h.kind == LOG_KIND) {
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

/// Whole frames of the log that stand on the drive, in any zone, and the bytes in them, as often as they stand there.
fn on_the_medium(emulator: &Emulator) -> (usize, u64) {
    let size = emulator.geometry().zone_size;
    let mut buf = imbrex_device::AlignedBuf::zeroed(4096);
    let (mut frames, mut len) = (0, 0);
    for zone in report_all(emulator).unwrap() {
        let start = u64::from(zone.id.0) * size;
        let Some(wp) = zone.wp.filter(|wp| zone.state != ZoneState::Conventional && *wp > 0) else { continue };
        emulator.read_at(&mut buf, start, imbrex_device::Cause::Check.into()).unwrap();
        let Some(header) = ZoneHeader::decode(&buf).filter(|h| h.name == "1.log") else { continue };
        let mut read = |at: u64, buf: &mut [u8]| emulator.read_at(buf, start + at, imbrex_device::Cause::Check.into());
        let id = FrameId { file: header.file, life: header.life };
        let found = scan(&mut read, id, 4096, wp, emulator.geometry().block).unwrap();
        frames += found.frames.len();
        len += found.frames.iter().map(|frame| u64::from(frame.len)).sum::<u64>();
    }
    (frames, len)
}

#[test]
fn a_log_write_that_fails_after_the_drive_took_it_costs_nothing() {
    let whole = bytes(60_000, 7);
    let others = bytes(30_000, 99);
    let after_cut = [&whole[..20_000], &others[..]].concat();
    for hit in 0..4usize {
        // How often in a row, after the second time in another zone; blocks that are kept.
        for (times, keep) in [(1, 1), (1, 2), (1, u64::MAX), (2, 2), (2, u64::MAX), (3, u64::MAX)] {
            for end in ["open", "clean", "killed", "power", "no journal", "cut", "cut, no journal"] {
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
                // Only what was taken whole stands there more than once.
                let again = if keep == u64::MAX { times as usize } else { 0 };
                let doubled = (4 + again, (60_000 + 15_000 * again) as u64);
                assert_eq!(on_the_medium(&emulator), doubled, "{what}");
                let read = match end {
                    "open" => read_all(&fs, "/1.log"),
                    "cut" | "cut, no journal" => {
                        log.truncate(20_000).unwrap();
                        log.append(&others).unwrap();
                        log.sync().unwrap();
                        log.close().unwrap();
                        drop(log);
                        if end == "cut" {
                            read_all(&fs, "/1.log")
                        } else {
                            drop(fs);
                            without_journal(&emulator);
                            found(&BlueFs::mount(drive, options()).unwrap())
                        }
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
                let want = if end.starts_with("cut") { &after_cut } else { &whole };
                assert!(read == *want, "{what}: {} bytes", read.len());
            }
        }
    }
}
