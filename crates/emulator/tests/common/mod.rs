//! Helpers that the tests of the emulator share.
#![allow(dead_code)]

use imbrex_device::{AlignedBuf, Cause, Result, Tag, Zone, ZoneId, ZonedDevice};
use imbrex_emulator::Emulator;

pub const TAG: Tag = Tag::new(Cause::Other);
pub const BLOCK: u64 = 4096;
/// First sequential zone of the profile `tiny`.
pub const FIRST: ZoneId = ZoneId(4);

/// `blocks` blocks full of `byte`.
pub fn full_of(byte: u8, blocks: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed((blocks * BLOCK) as usize);
    buf.fill(byte);
    buf
}

/// Writes `blocks` blocks of `byte` at a block of a zone.
pub fn write(drive: &Emulator, zone: ZoneId, block: u64, byte: u8, blocks: u64) -> Result<()> {
    drive.write_at(&full_of(byte, blocks), drive.geometry().start(zone) + block * BLOCK, TAG)
}

/// The first byte of each of `blocks` blocks; every block is full of its first byte.
pub fn bytes(drive: &Emulator, zone: ZoneId, block: u64, blocks: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for block in block..block + blocks {
        let mut buf = AlignedBuf::zeroed(BLOCK as usize);
        drive.read_at(&mut buf, drive.geometry().start(zone) + block * BLOCK, TAG).unwrap();
        assert!(buf.iter().all(|byte| *byte == buf[0]), "a torn block {block} of zone {zone}");
        out.push(buf[0]);
    }
    out
}

pub fn report(drive: &Emulator, zone: ZoneId) -> Zone {
    let mut out = [Zone::EMPTY];
    assert_eq!(drive.report(zone, &mut out).unwrap(), 1);
    out[0]
}

/// Blocks below the write pointer.
pub fn written(drive: &Emulator, zone: ZoneId) -> u64 {
    report(drive, zone).wp.unwrap() / BLOCK
}
