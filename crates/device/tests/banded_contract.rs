//! Plain disks cut into bands, through the device contract: in memory and on files; who may open them, and what is refused.

use imbrex_device::banded::{Banded, FileBase, Layout, MemoryBase};
use imbrex_device::kernel::Access;
use imbrex_device::{AlignedBuf, Cause, Fault, Tag, ZonedDevice, contract, report_all};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SIZE: u64 = 48 << 20;
const TAG: Tag = Tag::new(Cause::Check);

/// Disks that differ in everything that a rule may depend on: block, band, conventional bands.
fn plans() -> Vec<Layout> {
    [(4096, 1 << 20, Some(4)), (512, 1 << 20, Some(1)), (4096, 2 << 20, Some(0)), (4096, 300 << 10, None)]
        .into_iter()
        .map(|(block, band, conventional)| Layout::plan(SIZE, block, band, conventional).unwrap())
        .collect()
}

fn in_memory(plan: &Layout) -> Banded {
    let base = MemoryBase::new(vec![0xee; SIZE as usize], plan.block);
    Banded::format(&base, plan).unwrap();
    Banded::open(Box::new(base), Access::Write).unwrap()
}

fn on_a_file(dir: &Path, plan: &Layout) -> PathBuf {
    let path = dir.join("disk.img");
    let _ = std::fs::remove_file(&path);
    Banded::format(&FileBase::create(&path, SIZE).unwrap(), plan).unwrap();
    path
}

fn open(path: &Path, access: Access) -> Banded {
    Banded::open(Box::new(FileBase::open(path, access).unwrap()), access).unwrap()
}

#[test]
fn in_memory_disks_keep_the_contract() {
    for plan in plans() {
        contract::run(&|| Box::new(in_memory(&plan)));
    }
}

#[test]
fn files_keep_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    for plan in plans() {
        contract::run(&|| Box::new(open(&on_a_file(dir.path(), &plan), Access::Write)));
    }
}

#[test]
fn a_used_drive_keeps_the_contract_when_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = on_a_file(dir.path(), &plans()[0]);
    for (name, check) in contract::CHECKS {
        println!("{name}");
        check(&open(&path, Access::Write));
    }
}

/// Such tables are used as they are: they carry nothing, and the program that made them still can use them.
#[test]
fn tables_of_version_1_keep_the_contract() {
    for plan in plans() {
        let older = Layout { version: 1, ..plan };
        contract::run(&|| {
            let drive = in_memory(&older);
            assert_eq!(drive.layout().version, 1);
            Box::new(drive)
        });
    }
    let plan = Layout { version: 1, ..plans()[0] };
    let base = Arc::new(MemoryBase::new(vec![0; SIZE as usize], plan.block));
    Banded::format(base.as_ref(), &plan).unwrap();
    let drive = Banded::open(Box::new(base.clone()), Access::Write).unwrap();
    let mut bytes = AlignedBuf::zeroed(4096);
    bytes.fill(7);
    drive.write_at(&bytes, 4 << 20, TAG).unwrap();
    let at = (plan.data_at + (4 << 20)) as usize;
    assert_eq!(&base.bytes()[at..at + 4096], &bytes[..], "a small write is in its band at once");
}

#[test]
fn uncached_drives_keep_the_contract() {
    let plan = &plans()[0];
    contract::run(&|| {
        let drive = in_memory(plan);
        drive.set_write_cache(false).unwrap();
        Box::new(drive)
    });
}

#[test]
fn one_writer_or_many_readers_and_observers_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = on_a_file(dir.path(), &plans()[0]);
    let writer = open(&path, Access::Write);
    for access in [Access::Write, Access::ReadOnly] {
        let error = FileBase::open(&path, access).err().unwrap();
        assert!(error.to_string().contains(&format!("in use by process {} (", std::process::id())), "{error}");
    }
    writer.write_at(&AlignedBuf::zeroed(4096), 4 << 20, TAG).unwrap();
    let seen = open(&path, Access::Observe);
    assert_eq!(report_all(&seen).unwrap()[4].wp, Some(4096), "an observer sees what is not flushed");
    drop(writer);
    let first = open(&path, Access::ReadOnly);
    let second = open(&path, Access::ReadOnly);
    assert!(matches!(FileBase::open(&path, Access::Write).err().unwrap().fault, Fault::Busy { .. }));
    let buf = AlignedBuf::zeroed(4096);
    assert!(matches!(first.write_at(&buf, 4 << 20, TAG).unwrap_err().fault, Fault::ReadOnly));
    assert!(matches!(second.flush(TAG).unwrap_err().fault, Fault::ReadOnly));
}

#[test]
fn what_has_no_table_is_refused_with_a_sentence() {
    let says = |base: MemoryBase, text: &str| {
        let error = Banded::open(Box::new(base), Access::Write).err().unwrap().to_string();
        assert!(error.contains(text), "{error}");
    };
    says(MemoryBase::new(Vec::new(), 4096), "drive create --banded");
    says(MemoryBase::new(vec![0; 1 << 20], 4096), "drive create --banded");
    let whole = MemoryBase::new(vec![0; SIZE as usize], 4096);
    Banded::format(&whole, &plans()[0]).unwrap();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.bytes();
        change(&mut bytes);
        MemoryBase::new(bytes, 4096)
    };
    says(with(&|bytes| bytes[8] = 3), "newer version");
    says(with(&|bytes| bytes.truncate(20 << 20)), "it is smaller now; restore it from a copy");
    says(with(&|bytes| bytes[..80].fill(0)), "drive create --banded");
    // Everything behind the headers: two snapshots, two logs.
    says(with(&|bytes| bytes[72 << 10..3 << 20].fill(9)), "both of its snapshots");
}

#[test]
fn one_damaged_page_of_the_table_costs_nothing() {
    let plan = &plans()[0];
    let base = Arc::new(MemoryBase::new(vec![0; SIZE as usize], 4096));
    Banded::format(base.as_ref(), plan).unwrap();
    let drive = Banded::open(Box::new(base.clone()), Access::Write).unwrap();
    for zone in 4..9u64 {
        drive.write_at(&AlignedBuf::zeroed(8192), zone << 20, TAG).unwrap();
        drive.flush(TAG).unwrap();
    }
    drop(drive);
    let bytes = base.bytes();
    let used = |at: &usize| bytes[*at..*at + 4096].iter().any(|byte| *byte != 0);
    let mut damaged = 0;
    for at in (0..plan.data_at as usize).step_by(4096).filter(used) {
        let mut bytes = bytes.clone();
        bytes[at + if at == 0 { 3 } else { 24 }] ^= 4;
        let open = |base| Banded::open(Box::new(base), Access::Write).unwrap();
        let drive = open(MemoryBase::new(bytes, 4096).rebooted(2));
        let zones = report_all(&drive).unwrap();
        let written: Vec<_> = zones[4..10].iter().map(|zone| zone.wp.unwrap()).collect();
        assert_eq!(written, [8192, 8192, 8192, 8192, 8192, 0], "page {} damaged", at / 4096);
        damaged += 1;
    }
    assert!(damaged > 12, "only {damaged} pages of the table are in use");
}

#[test]
fn a_file_takes_what_is_written_and_gives_it_back_when_it_is_reset() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = on_a_file(dir.path(), &plans()[0]);
    let blocks = || std::fs::metadata(&path).unwrap().blocks();
    let drive = open(&path, Access::Write);
    let empty = blocks();
    assert!(empty * 512 < 4 << 20, "the table alone is there");
    drive.write_at(&AlignedBuf::zeroed(1 << 20), 4 << 20, TAG).unwrap();
    drive.flush(TAG).unwrap();
    assert!(blocks() >= empty + 2048);
    drive.zone_op(imbrex_device::ZoneOp::Reset, imbrex_device::ZoneId(4), TAG).unwrap();
    drive.flush(TAG).unwrap();
    assert!(blocks() < empty + 100, "{} {empty}", blocks());
}

#[test]
fn a_new_table_leaves_no_label_of_what_was_there_before() {
    let drive = in_memory(&plans()[0]);
    for zone in report_all(&drive).unwrap() {
        let mut buf = AlignedBuf::zeroed(64 << 10);
        buf.fill(1);
        drive.read_at(&mut buf, drive.geometry().start(zone.id), TAG).unwrap();
        assert!(buf.iter().all(|byte| *byte == 0), "zone {}", zone.id);
    }
}
