//! The table of a banded disk: pages of a good one are changed and sealed again, then it is opened in every way: no panic, and
//! what opens is a drive that keeps the contract's arithmetic, takes writes, and opens again.

#![no_main]

use imbrex_device::banded::{Banded, Layout, MemoryBase};
use imbrex_device::kernel::Access;
use imbrex_device::{AlignedBuf, Cause, Tag, ZoneId, ZoneOp, ZonedDevice, report_all};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};

const SIZE: usize = 1 << 20;
const PAGE: usize = 4096;
const TAG: Tag = Tag::new(Cause::Check);
const HEADER_LEN: usize = 72;
/// Bytes before a staged piece.
const ENTRY: usize = 32;
/// The table's when it was used: an open of a new one is as after a power loss.
const EPOCH: u64 = 2;

/// A used disk and where its data begins.
static USED: LazyLock<(Vec<u8>, usize)> = LazyLock::new(|| {
    let layout = Layout::plan(SIZE as u64, 4096, 64 << 10, Some(1)).expect("a plan");
    let base = Arc::new(MemoryBase::new(vec![0; SIZE], 4096));
    Banded::format(base.as_ref(), &layout).expect("a table");
    let drive = Banded::open(Box::new(base.clone()), Access::Write).expect("a drive");
    for zone in 1..4u64 {
        let mut bytes = AlignedBuf::zeroed(PAGE * zone as usize);
        bytes.fill(zone as u8);
        drive.write_at(&bytes, zone << 16, TAG).expect("a write");
        drive.flush(TAG).expect("a flush");
    }
    // What is in the staging area only.
    drive.write_at(&AlignedBuf::padded(&[9; PAGE], PAGE), (3 << 16) + 3 * PAGE as u64, TAG).expect("a write");
    drive.zone_op(ZoneOp::Reset, ZoneId(1), TAG).expect("a reset");
    drive.zone_op(ZoneOp::Finish, ZoneId(2), TAG).expect("a finish");
    // Opened again under the same boot, it has what was never flushed.
    let again =
        Banded::open(Box::new(Arc::new(MemoryBase::new(base.bytes(), 4096))), Access::ReadOnly).expect("a drive");
    let mut buf = AlignedBuf::zeroed(PAGE);
    again.read_at(&mut buf, (3 << 16) + 3 * PAGE as u64, TAG).expect("a read");
    assert_eq!(buf[..], [9; PAGE]);
    std::mem::forget(drive);
    (base.bytes(), layout.data_at as usize)
});

/// Puts the checksum of whatever the page at `at` claims to be into it; what claims nothing is taken for a staged piece.
fn seal(bytes: &mut [u8], at: usize, uuid: &[u8]) {
    let (place, len, seed) = match &bytes[at..at + 8] {
        b"IMBXBAND" => (16, HEADER_LEN, 0),
        b"IMBXBLIV" => (8, 40, crc32c::crc32c(uuid)),
        magic if magic.starts_with(b"IMBXB") => (8, PAGE, crc32c::crc32c(uuid)),
        _ => {
            let len = u32::from_le_bytes(bytes[at + 24..at + 28].try_into().expect("four bytes"));
            let len = (len as usize).min(bytes.len() - at - ENTRY);
            (28, ENTRY + len, crc32c::crc32c_append(crc32c::crc32c(uuid), &EPOCH.to_le_bytes()))
        }
    };
    bytes[at + place..at + place + 4].fill(0);
    let sum = crc32c::crc32c_append(seed, &bytes[at..at + len]);
    bytes[at + place..at + place + 4].copy_from_slice(&sum.to_le_bytes());
}

fn check(bytes: Vec<u8>, boot: u8) {
    let look = MemoryBase::new(bytes.clone(), 4096).rebooted(boot);
    let seen = Banded::open(Box::new(look), Access::ReadOnly);
    let base = Arc::new(MemoryBase::new(bytes, 4096).rebooted(boot));
    let drive = Banded::open(Box::new(base.clone()), Access::Write);
    assert_eq!(seen.is_ok(), drive.is_ok());
    let (Ok(seen), Ok(drive)) = (seen, drive) else { return };
    let zones = report_all(&drive).expect("a report");
    assert_eq!(zones, report_all(&seen).expect("a report"));
    let geometry = drive.geometry().clone();
    for zone in &zones {
        assert!(zone.wp.is_none_or(|wp| wp <= zone.capacity));
        for page in 0..4 {
            let (mut buf, mut same) = (AlignedBuf::zeroed(PAGE), AlignedBuf::zeroed(PAGE));
            drive.read_at(&mut buf, geometry.start(zone.id) + page * PAGE as u64, TAG).expect("a read");
            seen.read_at(&mut same, geometry.start(zone.id) + page * PAGE as u64, TAG).expect("a read");
            assert_eq!(buf[..], same[..], "page {page} of {}", zone.id);
        }
        let buf = AlignedBuf::zeroed(PAGE);
        if let Some(wp) = zone.wp.filter(|wp| *wp < zone.capacity) {
            drive.write_at(&buf, geometry.start(zone.id) + wp, TAG).expect("a write at the write pointer");
        }
    }
    drive.flush(TAG).expect("a flush");
    let zones = report_all(&drive).expect("a report");
    drop(drive);
    let again = Banded::open(Box::new(MemoryBase::new(base.bytes(), 4096).rebooted(99)), Access::Write).expect("again");
    let written = |zones: Vec<imbrex_device::Zone>| zones.iter().map(|zone| zone.wp).collect::<Vec<_>>();
    assert_eq!(written(report_all(&again).expect("a report")), written(zones));
}

fuzz_target!(|data: &[u8]| {
    let (used, data_at) = &*USED;
    let mut bytes = used.clone();
    let uuid = bytes[24..40].to_vec();
    let mut pages = Vec::new();
    // Each change: a page of the table that is in use, a place in it, a byte.
    let in_use: Vec<usize> =
        (0..data_at / PAGE).filter(|page| bytes[page * PAGE..][..PAGE].iter().any(|b| *b != 0)).collect();
    for change in data.chunks_exact(4) {
        let page = in_use[change[0] as usize % in_use.len()];
        let at = u16::from_le_bytes([change[1], change[2]]) as usize % PAGE;
        bytes[page * PAGE + at] = change[3];
        pages.push(page);
    }
    for page in pages {
        seal(&mut bytes, page * PAGE, &uuid);
    }
    check(bytes.clone(), 1);
    check(bytes, 2);
});
