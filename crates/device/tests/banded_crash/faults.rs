//! A disk that refuses some of what is asked of it, and what small writes come to then.

use crate::model::TAG;
use imbrex_device::banded::{Banded, Base, BaseFacts, Layout, MemoryBase};
use imbrex_device::kernel::Access;
use imbrex_device::{AlignedBuf, Fault, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use std::ops::Range;
use std::sync::{Arc, Mutex};

const BAND: u64 = 64 << 10;
const SIZE: usize = 1 << 20;
const BLOCK: u64 = 4096;
const START: u64 = 2 * BAND;

type Meanwhile = Box<dyn FnOnce() + Send>;

/// What a disk refuses now: writes that touch bytes, the next put at an address, and all reads of the live part.
#[derive(Default)]
struct Refused {
    writes: Option<Range<u64>>,
    put: Option<u64>,
    live: Option<Fault>,
    /// The process dies, or the power goes, after so many writes and puts; what still comes does nothing.
    after: Option<usize>,
}

impl Refused {
    fn is_dead(&mut self) -> bool {
        let Some(left) = &mut self.after else { return false };
        let dead = *left == 0;
        *left = left.saturating_sub(1);
        dead
    }
}

struct Disk {
    below: Arc<MemoryBase>,
    refused: Mutex<Refused>,
    /// What somebody else does when the live part has been read.
    after_live: Mutex<Option<Meanwhile>>,
}

fn eio() -> Fault {
    Fault::Io(Arc::new(std::io::Error::other("injected")))
}

impl Base for Disk {
    fn facts(&self) -> &BaseFacts {
        self.below.facts()
    }
    fn read(&self, buf: &mut [u8], at: u64) -> Result<(), Fault> {
        self.below.read(buf, at)
    }
    fn write(&self, buf: &[u8], at: u64) -> Result<(), Fault> {
        let mut refused = self.refused.lock().unwrap();
        if refused.is_dead() {
            return Ok(());
        }
        match refused.writes.clone().filter(|bad| at < bad.end && bad.start < at + buf.len() as u64) {
            Some(_) => Err(eio()),
            None => self.below.write(buf, at),
        }
    }
    fn sync(&self) -> Result<(), Fault> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) {}
    fn live(&self, uuid: &[u8; 16], at: u64, len: usize) -> Result<Vec<u8>, Fault> {
        if let Some(fault) = &self.refused.lock().unwrap().live {
            return Err(fault.clone());
        }
        let live = self.below.live(uuid, at, len);
        let meanwhile = self.after_live.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        live
    }
    fn start_live(&self, uuid: &[u8; 16], at: u64, len: usize) -> Result<(), Fault> {
        self.below.start_live(uuid, at, len)
    }
    fn put(&self, bytes: &[u8], at: u64) -> Result<(), Fault> {
        let mut refused = self.refused.lock().unwrap();
        if refused.is_dead() {
            return Ok(());
        }
        if refused.put.take_if(|bad| *bad == at).is_some() { Err(eio()) } else { self.below.put(bytes, at) }
    }
}

/// A new disk, and where its bands begin.
fn disk() -> (Arc<Disk>, Layout) {
    let layout = Layout::plan(SIZE as u64, 4096, BAND, Some(1)).unwrap();
    let below = Arc::new(MemoryBase::new(vec![0; SIZE], 512));
    let layout = Banded::format(below.as_ref(), &layout).unwrap();
    (Arc::new(Disk { below, refused: Mutex::default(), after_live: Mutex::default() }), layout)
}

/// Where a band's word and where the staging area stand (docs/on-disk-format.md).
fn word_at(band: u64) -> u64 {
    (128 << 10) + 4096 + band * 16
}
fn staging_at(layout: &Layout) -> u64 {
    (128 << 10) + 4096 + (u64::from(layout.bands) * 16).next_multiple_of(4096)
}

fn open(disk: &Arc<Disk>) -> imbrex_device::Result<Banded> {
    Banded::open(Box::new(disk.clone()), Access::Write)
}

/// What the next process finds, after the power was away under boot 9.
fn left(disk: &Disk, boot: u8) -> Banded {
    let base = MemoryBase::new(disk.below.bytes(), 512).rebooted(boot);
    Banded::open(Box::new(base), Access::Write).unwrap()
}

fn bytes(mark: u8, blocks: u64) -> AlignedBuf {
    AlignedBuf::padded(&vec![mark; (blocks * BLOCK) as usize], 4096)
}

/// Marks of so many blocks from `at` on.
fn marks(drive: &Banded, at: u64, blocks: u64) -> Vec<u8> {
    let mut buf = AlignedBuf::zeroed((blocks * BLOCK) as usize);
    drive.read_at(&mut buf, at, TAG).unwrap();
    let mark = |block: &[u8]| {
        assert!(block.iter().all(|byte| *byte == block[0]));
        block[0]
    };
    buf.chunks(BLOCK as usize).map(mark).collect()
}

/// Small writes of the bands 2 and 5 are durable in the log, and band 2 refuses its first block from then on.
fn with_a_home_that_refuses() -> (Arc<Disk>, Banded) {
    let (disk, layout) = disk();
    let drive = open(&disk).unwrap();
    for (mark, band) in [(1, 2), (5, 5)] {
        drive.write_at(&bytes(mark, 1), band * BAND, TAG).unwrap();
    }
    drive.flush(TAG).unwrap();
    drive.write_at(&bytes(2, 1), START + BLOCK, TAG).unwrap();
    drive.flush(TAG).unwrap();
    let home = layout.data_at + START;
    disk.refused.lock().unwrap().writes = Some(home..home + BLOCK);
    (disk, drive)
}

/// Its bytes stay in the log, however many logs end, and wherever they are cut; others are not concerned.
#[test]
fn a_band_that_does_not_take_its_bytes_loses_none_and_stops_nobody() {
    let (disk, drive) = with_a_home_that_refuses();
    for round in 0..60 {
        drive.zone_op(ZoneOp::Reset, ZoneId(3), TAG).unwrap();
        drive.write_at(&bytes(7, 1), 3 * BAND, TAG).unwrap();
        drive.flush(TAG).unwrap();
        for boot in [1, 9] {
            let after = left(&disk, boot);
            assert_eq!(marks(&after, START, 3), [1, 2, 0], "round {round}, boot {boot}");
            assert_eq!((marks(&after, 5 * BAND, 1), marks(&after, 3 * BAND, 1)), (vec![5], vec![7]));
        }
    }
    assert_eq!(marks(&drive, START, 3), [1, 2, 0]);
    assert!(drive.write_at(&bytes(3, 1), START + 2 * BLOCK, TAG).is_err(), "it takes no more");
    assert!(drive.zone_op(ZoneOp::Finish, ZoneId(2), TAG).is_err());
    // Whoever comes next has the same, again and again, and whoever only looks.
    drop(drive);
    for boot in [1, 1, 9] {
        let base = MemoryBase::new(disk.below.bytes(), 512).rebooted(boot);
        assert_eq!(marks(&Banded::open(Box::new(base), Access::ReadOnly).unwrap(), START, 3), [1, 2, 0]);
        let drive = open(&disk).unwrap();
        assert_eq!(marks(&drive, START, 3), [1, 2, 0]);
        drive.write_at(&bytes(9, 1), 4 * BAND, TAG).unwrap();
        drive.flush(TAG).unwrap();
        drive.zone_op(ZoneOp::Reset, ZoneId(4), TAG).unwrap();
    }
    // A band that takes them at last is like any other.
    let drive = open(&disk).unwrap();
    disk.refused.lock().unwrap().writes = None;
    drive.write_at(&bytes(3, 8), START + 2 * BLOCK, TAG).unwrap();
    drive.flush(TAG).unwrap();
    assert_eq!(marks(&left(&disk, 9), START, 4), [1, 2, 3, 3]);
}

#[test]
fn a_band_that_does_not_take_its_bytes_can_be_reset() {
    let (disk, drive) = with_a_home_that_refuses();
    for _ in 0..40 {
        drive.zone_op(ZoneOp::Reset, ZoneId(3), TAG).unwrap();
    }
    drive.zone_op(ZoneOp::Reset, ZoneId(2), TAG).unwrap();
    assert_eq!(marks(&drive, START, 2), [0, 0]);
    disk.refused.lock().unwrap().writes = None;
    drive.write_at(&bytes(4, 1), START, TAG).unwrap();
    drive.flush(TAG).unwrap();
    assert_eq!((marks(&left(&disk, 1), START, 2), marks(&left(&disk, 9), START, 2)), (vec![4, 0], vec![4, 0]));
}

/// What a crash cut, and what could not be brought home by who found it, are told apart by the next one, too.
#[test]
fn an_opening_that_cannot_bring_bytes_home_says_what_it_found_cut() {
    let (disk, drive) = with_a_home_that_refuses();
    // The last batch speaks of bytes that are not there.
    drive.write_at(&bytes(8, 3), 4 * BAND, TAG).unwrap();
    drive.write_at(&bytes(8, 7), 4 * BAND + 3 * BLOCK, TAG).unwrap();
    drive.flush(TAG).unwrap();
    let mut torn = disk.below.bytes();
    std::mem::forget(drive);
    let at = (drive_at(&disk) + 4 * BAND + 9 * BLOCK) as usize;
    torn[at..at + BLOCK as usize].fill(0xcc);
    let writes = disk.refused.lock().unwrap().writes.clone();
    let mut whole = 0;
    for after in 0..30 {
        let below = Arc::new(MemoryBase::new(torn.clone(), 512).rebooted(9));
        let refused = Mutex::new(Refused { writes: writes.clone(), after: Some(after), ..Refused::default() });
        let disk = Arc::new(Disk { below, refused, after_live: Mutex::default() });
        let drive = open(&disk).unwrap();
        assert_eq!(report_all(&drive).unwrap()[4].wp, Some(0));
        whole += usize::from(disk.refused.lock().unwrap().after > Some(0));
        disk.refused.lock().unwrap().after = Some(0);
        for boot in [9, 10] {
            let next = left(&disk, boot);
            let found = (report_all(&next).unwrap()[4].wp, marks(&next, START, 2), marks(&next, 5 * BAND, 1));
            assert_eq!(found, (Some(0), vec![1, 2], vec![5]), "cut after {after}, boot {boot}");
        }
    }
    assert!((1..20).contains(&whole), "{whole}");
}

fn drive_at(disk: &Arc<Disk>) -> u64 {
    Banded::layout_of(disk.as_ref()).unwrap().data_at
}

/// It is full by its last write, and as good as one that was set in place, by whatever it was filled.
#[test]
fn a_band_that_was_written_to_its_end_is_written_in_place() {
    for small in [1, 2, 16] {
        let (disk, _) = disk();
        let drive = open(&disk).unwrap();
        for from in (0..16).step_by(small) {
            drive.write_at(&bytes(1 + from as u8, small as u64), START + from * BLOCK, TAG).unwrap();
            drive.flush(TAG).unwrap();
        }
        assert_eq!(report_all(&drive).unwrap()[2].state, ZoneState::Full);
        let whole = marks(&drive, START, 15);
        drive.write_in_place(&bytes(99, 1), START + 15 * BLOCK, TAG).unwrap();
        drive.flush(TAG).unwrap();
        for after in [left(&disk, 1), left(&disk, 9), drive] {
            assert_eq!((marks(&after, START, 15), marks(&after, START + 15 * BLOCK, 1)), (whole.clone(), vec![99]));
        }
        assert_eq!(marks(&left(&disk, 1), START + 15 * BLOCK, 1), [99], "and closed");
    }
}

/// The first of them sets it in place, and the others wait for that.
#[test]
fn many_may_be_the_first_to_write_a_band_in_place() {
    for _ in 0..300 {
        let (disk, _) = disk();
        let drive = open(&disk).unwrap();
        for from in 0..16 {
            drive.write_at(&bytes(1, 1), START + from * BLOCK, TAG).unwrap();
        }
        let together = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (drive, together) = (&drive, &together);
                scope.spawn(move || {
                    together.wait();
                    drive.write_in_place(&bytes(50 + n, 1), START + u64::from(n) * 2 * BLOCK, TAG).unwrap();
                });
            }
        });
        drive.flush(TAG).unwrap();
        let all: Vec<u8> = (0..8).flat_map(|n| [50 + n, 1]).collect();
        for after in [left(&disk, 1), left(&disk, 9), drive] {
            assert_eq!(marks(&after, START, 16), all);
        }
    }
}

/// He is refused until it is full, and sets it in place then, however close behind the last block he comes.
#[test]
fn who_writes_in_place_while_another_one_fills_the_band_loses_nothing() {
    for _ in 0..300 {
        let (disk, _) = disk();
        let drive = open(&disk).unwrap();
        for from in 0..15 {
            drive.write_at(&bytes(1, 1), START + from * BLOCK, TAG).unwrap();
        }
        let together = std::sync::Barrier::new(5);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (drive, together) = (&drive, &together);
                scope.spawn(move || {
                    together.wait();
                    while drive.write_in_place(&bytes(50 + n, 1), START + u64::from(n) * BLOCK, TAG).is_err() {}
                });
            }
            together.wait();
            drive.write_at(&bytes(1, 1), START + 15 * BLOCK, TAG).unwrap();
        });
        drive.flush(TAG).unwrap();
        let all: Vec<u8> = (0..16).map(|n| if n < 4 { 50 + n } else { 1 }).collect();
        for after in [left(&disk, 1), left(&disk, 9), drive] {
            assert_eq!(marks(&after, START, 16), all);
        }
    }
}

/// It reads the live part, and then the table: in between its owner flushes twice, and another piece stands in the staging area.
#[test]
fn who_looks_while_a_half_is_used_again_reads_no_older_bytes() {
    let (disk, layout) = disk();
    let drive = Arc::new(open(&disk).unwrap());
    disk.below.write(&[77; BLOCK as usize], layout.data_at + START).unwrap();
    drive.write_at(&bytes(1, 1), START, TAG).unwrap();
    let owner = drive.clone();
    *disk.after_live.lock().unwrap() = Some(Box::new(move || {
        owner.flush(TAG).unwrap();
        owner.write_at(&bytes(3, 1), 4 * BAND, TAG).unwrap();
        owner.flush(TAG).unwrap();
    }));
    let seen = Banded::open(Box::new(disk.clone()), Access::Observe).unwrap();
    assert_eq!(report_all(&seen).unwrap()[2].wp, Some(BLOCK));
    assert_eq!((marks(&seen, START, 1), marks(&drive, START, 1)), (vec![1], vec![1]));
}

#[test]
fn the_staging_area_may_refuse_anything_at_any_time() {
    // The turn of a flush.
    let (disk, layout) = disk();
    let drive = open(&disk).unwrap();
    drive.write_at(&bytes(1, 1), START, TAG).unwrap();
    disk.refused.lock().unwrap().put = Some(staging_at(&layout));
    assert!(drive.flush(TAG).is_err());
    drive.write_at(&bytes(2, 1), START + BLOCK, TAG).unwrap();
    assert_eq!(marks(&left(&disk, 1), START, 3), [1, 2, 0]);
    drive.flush(TAG).unwrap();
    assert_eq!(marks(&left(&disk, 9), START, 3), [1, 2, 0]);

    // The piece: it goes to its band, as all later ones.
    let (disk, layout) = self::disk();
    let drive = open(&disk).unwrap();
    disk.refused.lock().unwrap().put = Some(staging_at(&layout) + 4096);
    drive.write_at(&bytes(1, 1), START, TAG).unwrap();
    drive.write_at(&bytes(2, 1), START + BLOCK, TAG).unwrap();
    assert_eq!(marks(&left(&disk, 1), START, 3), [1, 2, 0]);
    let home = (layout.data_at + START) as usize;
    assert_eq!(disk.below.bytes()[home..home + BLOCK as usize], [1; BLOCK as usize]);

    // The band's word behind a piece: the write has not been, and other bytes may come there.
    for retried in [1, 8] {
        let (disk, _) = self::disk();
        let drive = open(&disk).unwrap();
        disk.refused.lock().unwrap().put = Some(word_at(2));
        assert!(drive.write_at(&bytes(1, 1), START, TAG).is_err());
        drive.write_at(&bytes(2, retried), START, TAG).unwrap();
        assert_eq!(marks(&left(&disk, 1), START, 1), [2]);
    }

    // That nothing of it counts any more for a band in place.
    let (disk, layout) = self::disk();
    let drive = open(&disk).unwrap();
    drive.write_at(&bytes(1, 1), START, TAG).unwrap();
    drive.flush(TAG).unwrap();
    disk.refused.lock().unwrap().put = Some(staging_at(&layout));
    assert!(drive.set_in_place(ZoneId(2), TAG).is_err());
    drive.set_in_place(ZoneId(2), TAG).unwrap();
    drive.write_in_place(&bytes(9, 1), START, TAG).unwrap();
    assert_eq!(marks(&left(&disk, 1), START, 1), [9]);

    // After a power loss it is not needed, and may be torn. Any other error may hide what a killed process has left.
    let (disk, _) = self::disk();
    let drive = open(&disk).unwrap();
    drive.write_at(&bytes(1, 1), START, TAG).unwrap();
    std::mem::forget(drive);
    disk.refused.lock().unwrap().live = Some(eio());
    assert!(open(&disk).is_err());
    disk.refused.lock().unwrap().live = None;
    assert_eq!(marks(&left(&disk, 1), START, 1), [1], "a refused opening has changed nothing");
    disk.refused.lock().unwrap().live = Some(Fault::Media { len: 0 });
    for access in [Access::ReadOnly, Access::Write] {
        Banded::open(Box::new(disk.clone()), access).unwrap();
    }
}
