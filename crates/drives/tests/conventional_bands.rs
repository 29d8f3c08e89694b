//! The conventional zones of a zoned drive, cut into bands that serve as sequential zones: the device contract on them, the
//! death of the process, and the drive's own power losses.

use imbrex_device::banded::{Banded, Base, ConventionalZones, Layout};
use imbrex_device::kernel::Access;
use imbrex_device::{
    AlignedBuf, Cause, HeapSurvivor, Survivor, Tag, ZoneId, ZoneOp, ZonedDevice, contract, report_all,
};
use imbrex_emulator::{Config, Emulator};
use std::sync::Arc;

const TAG: Tag = Tag::new(Cause::Check);
const BAND: u64 = 256 << 10;

/// 16 conventional zones of 1 MiB each, so that bands cross them.
fn drive() -> Arc<Emulator> {
    let config = Config { conventional: 16, ..Config::tiny() };
    let drive = Arc::new(Emulator::memory(&config).unwrap());
    let base = ConventionalZones::new(drive.clone(), None).unwrap();
    let plan = Layout::plan(base.facts().size, 4096, BAND, Some(2)).unwrap();
    Banded::format(&base, &plan).unwrap();
    drive
}

fn open(drive: &Arc<Emulator>, survivor: &Arc<HeapSurvivor>) -> Banded {
    let survivor: Arc<dyn Survivor> = survivor.clone();
    let base = ConventionalZones::new(drive.clone(), Some(survivor)).unwrap();
    Banded::open(Box::new(base), Access::Write).unwrap()
}

fn write(drive: &Banded, zone: u64, block: u64, fill: u8) {
    let mut buf = AlignedBuf::zeroed(4096);
    buf.fill(fill);
    drive.write_at(&buf, zone * BAND + block * 4096, TAG).unwrap();
}

fn written(drive: &Banded) -> Vec<u64> {
    report_all(drive).unwrap()[2..6].iter().map(|zone| zone.wp.unwrap() / 4096).collect()
}

#[test]
fn conventional_zones_serve_as_sequential_ones() {
    contract::run(&|| Box::new(open(&drive(), &Arc::new(HeapSurvivor::new()))));
}

#[test]
fn the_death_of_the_process_loses_nothing_and_a_power_loss_only_what_was_not_flushed() {
    let (drive, survivor) = (drive(), Arc::new(HeapSurvivor::new()));
    let first = open(&drive, &survivor);
    write(&first, 2, 0, 1);
    first.flush(TAG).unwrap();
    write(&first, 2, 1, 2);
    write(&first, 3, 0, 3);
    first.zone_op(ZoneOp::Finish, ZoneId(4), TAG).unwrap();
    // Dead, without a close.
    let left = Arc::new(survivor.snapshot());
    let at_death = Arc::new(drive.fork().unwrap());
    std::mem::forget(first);
    let second = open(&drive, &left);
    assert_eq!(written(&second), [2, 1, BAND / 4096, 0]);
    let mut buf = AlignedBuf::zeroed(8192);
    second.read_at(&mut buf, 2 * BAND, TAG).unwrap();
    assert_eq!((buf[0], buf[4096]), (1, 2));
    drop(second);
    // The same drive without its power: whatever is left in memory is another epoch's.
    for seed in 0..20 {
        let after = Arc::new(at_death.after_power_loss(seed).unwrap());
        let third = open(&after, &Arc::new(survivor.snapshot()));
        let now = written(&third);
        assert_eq!(now, [1, 0, BAND / 4096, 0], "seed {seed}");
        third.read_at(&mut buf, 2 * BAND, TAG).unwrap();
        assert_eq!((buf[0], buf[4096]), (1, 0), "seed {seed}");
        write(&third, 2, 1, 9);
        third.flush(TAG).unwrap();
    }
}

#[test]
fn a_drive_without_conventional_zones_has_nothing_to_cut() {
    let drive = Arc::new(Emulator::memory(&Config { conventional: 0, ..Config::tiny() }).unwrap());
    let error = ConventionalZones::new(drive, None).err().unwrap().to_string();
    assert!(error.contains("nothing to cut"), "{error}");
}
