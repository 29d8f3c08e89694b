//! Drives that a volume must not touch: somebody else's, a newer version's, one of another shape, another engine's.

use imbrex_device::{AlignedBuf, Cause, Drive, Error, ZoneId, ZonedDevice};
use imbrex_emulator::{Config, Emulator, Overrides};
use imbrex_zones::{Budget, Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use std::sync::Arc;

fn tiny() -> Emulator {
    Emulator::memory(&Config::tiny()).unwrap()
}

fn drive(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: None }
}

fn options(force: bool) -> FormatOptions {
    FormatOptions { uuid: None, tenants: vec![TenantSpec { name: "toy".into(), budget: Budget::keeping(0, 1) }], force }
}

fn open(emulator: &Emulator) -> Result<Volume, Error> {
    Volume::open(drive(emulator), VolumeOptions { exec: Exec::Inline, ..Default::default() })
}

fn block(emulator: &Emulator, at: u64, change: impl FnOnce(&mut [u8])) {
    let mut buf = AlignedBuf::zeroed(4096);
    emulator.read_at(&mut buf, at, Cause::Other.into()).unwrap();
    change(&mut buf);
    emulator.write_at(&buf, at, Cause::Other.into()).unwrap();
}

/// That neither a mount nor a format without force goes on, or writes anything; what they say.
fn refused(emulator: &Emulator) -> [String; 2] {
    let before = emulator.stats().writes;
    let opened = open(emulator).err().expect("it was opened");
    let formatted = Volume::format(&drive(emulator), &options(false)).expect_err("it was formatted");
    assert_eq!(emulator.stats().writes, before, "something was written");
    Volume::format(&drive(emulator), &options(true)).unwrap();
    open(emulator).unwrap();
    [opened.to_string(), formatted.to_string()]
}

#[test]
fn what_somebody_else_wrote_is_never_overwritten_without_force() {
    // The superblocks of ext4 (1 KiB in), btrfs (64 KiB) and ZFS (128 KiB), in either zone of the label.
    for place in [0, 1 << 10, 64 << 10, 128 << 10, 1 << 20, (1 << 20) + (64 << 10)] {
        let emulator = tiny();
        block(&emulator, place / 4096 * 4096, |buf| buf[place as usize % 4096] = 0x53);
        let [opened, formatted] = refused(&emulator);
        assert!(opened.contains("has no Imbrex label") && opened.contains("imbrex fs format"), "{opened}");
        assert!(formatted.contains("somebody else at its beginning") && formatted.contains("--force"), "{formatted}");
    }
    let emulator = tiny();
    block(&emulator, emulator.geometry().start(ZoneId(9)), |buf| buf[0] = 1);
    let [_, formatted] = refused(&emulator);
    assert!(formatted.contains("somebody else in zone 9") && formatted.contains("--force"), "{formatted}");
}

#[test]
fn a_label_in_any_state_is_never_overwritten_without_force() {
    let size = tiny().geometry().zone_size;
    let formatted = || {
        let emulator = tiny();
        Volume::format(&drive(&emulator), &options(false)).unwrap();
        emulator
    };
    let why = Volume::format(&drive(&formatted()), &options(false)).unwrap_err().to_string();
    assert!(why.contains("already formatted") && why.contains("--force"), "{why}");

    // Longer than a zone, as only a later version may be, so that its checksum cannot be known.
    let newer = formatted();
    for copy in [0, size] {
        block(&newer, copy, |buf| {
            buf[8..12].copy_from_slice(&5u32.to_le_bytes());
            buf[12..16].copy_from_slice(&(size as u32 + 1).to_le_bytes());
        });
    }
    let [opened, again] = refused(&newer);
    assert!(opened.contains("another version of Imbrex") && opened.contains("use that one"), "{opened}");
    assert!(again.contains("another version of Imbrex (version 5)") && again.contains("--force"), "{again}");

    let damaged = formatted();
    for copy in [0, size] {
        block(&damaged, copy, |buf| buf[40] ^= 1);
    }
    let [opened, again] = refused(&damaged);
    assert!(opened.contains("damaged label") && opened.contains("restore"), "{opened}");
    assert!(again.contains("damaged label") && again.contains("--force"), "{again}");
}

#[test]
fn a_drive_of_another_shape_or_for_another_engine_is_told() {
    let small = tiny();
    Volume::format(&drive(&small), &options(false)).unwrap();
    let overrides = Overrides { zone_size: Some(2 << 20), ..Default::default() };
    let large = Emulator::memory(&Config::named("tiny", &overrides).unwrap()).unwrap();
    for (copy, to) in [(0, 0), (small.geometry().zone_size, large.geometry().zone_size)] {
        let mut buf = AlignedBuf::zeroed(64 << 10);
        small.read_at(&mut buf, copy, Cause::Other.into()).unwrap();
        large.write_at(&buf, to, Cause::Other.into()).unwrap();
    }
    let [opened, _] = refused(&large);
    assert!(opened.contains("was formatted as") && opened.contains("open it with the drive settings"), "{opened}");

    let why = open(&small).unwrap().tenant("bluefs").err().unwrap().to_string();
    assert!(why.contains("is formatted for toy, not for bluefs"), "{why}");
}
