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

/// A used disk and where its data begins.
static USED: LazyLock<(Vec<u8>, usize)> = LazyLock::new(|| {
    let layout = Layout::plan(SIZE as u64, 4096, 64 << 10, Some(1)).expect("a plan");
    let base = Arc::new(MemoryBase::new(vec![0; SIZE], 4096));
    Banded::format(base.as_ref(), &layout).expect("a table");
    let drive = Banded::open(Box::new(base.clone()), Access::Write).expect("a drive");
    for zone in 1..4u64 {
        drive.write_at(&AlignedBuf::zeroed(PAGE * zone as usize), zone << 16, TAG).expect("a write");
        drive.flush(TAG).expect("a flush");
    }
    drive.zone_op(ZoneOp::Reset, ZoneId(1), TAG).expect("a reset");
    drive.zone_op(ZoneOp::Finish, ZoneId(2), TAG).expect("a finish");
    std::mem::forget(drive);
    (base.bytes(), layout.data_at as usize)
});

/// Puts the checksum of whatever this page claims to be into it.
fn seal(page: &mut [u8], uuid: &[u8]) {
    if page.starts_with(b"IMBXBAND") {
        page[16..20].fill(0);
        let sum = crc32c::crc32c(&page[..HEADER_LEN]);
        page[16..20].copy_from_slice(&sum.to_le_bytes());
        return;
    }
    let len = if page.starts_with(b"IMBXBLIV") { 40 } else { PAGE };
    page[8..12].fill(0);
    let sum = crc32c::crc32c_append(crc32c::crc32c(uuid), &page[..len]);
    page[8..12].copy_from_slice(&sum.to_le_bytes());
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
        let mut buf = AlignedBuf::zeroed(PAGE);
        drive.read_at(&mut buf, geometry.start(zone.id), TAG).expect("a read");
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
        seal(&mut bytes[page * PAGE..][..PAGE], &uuid);
    }
    check(bytes.clone(), 1);
    check(bytes, 2);
});
