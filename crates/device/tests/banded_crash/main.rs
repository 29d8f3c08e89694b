//! Crashes of a banded disk: workloads are cut before and inside every command that reaches the disk under it, by the death
//! of the process and by the loss of the power, and recovery is cut again; what is left is compared with what was promised.

mod disk;
mod faults;
mod model;

use disk::{History, Recorder, fates};
use imbrex_device::banded::{Banded, Layout, MemoryBase};
use imbrex_device::kernel::Access;
use imbrex_device::{ZoneId, ZoneState, ZonedDevice, report_all};
use model::{BLOCK, Command, Done, Promise, TAG, pattern, perform};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

const BAND: u64 = 64 << 10;
const CAPACITY: u64 = BAND / BLOCK;
const SIZE: usize = 1 << 20;

fn open(base: &Arc<Recorder>) -> Banded {
    let mut drive = Banded::open(Box::new(base.clone()), Access::Write).unwrap();
    // Small enough for both ways of a flush.
    drive.set_checked_bytes(5 * BLOCK);
    drive
}

/// A command that the drive takes as it is now.
fn any(drive: &Banded, rng: &mut ChaCha8Rng) -> Command {
    let zones = report_all(drive).unwrap();
    let zone = zones[rng.random_range(0..zones.len())];
    let id = zone.id.0;
    match (rng.random_range(0..12), zone.state) {
        (0..3, _) => Command::Flush,
        (_, ZoneState::Conventional) => {
            let blocks = rng.random_range(1..=3);
            Command::Write { zone: id, at: rng.random_range(0..=4 - blocks), blocks }
        }
        (3, _) => Command::Reset(id),
        (4, _) => Command::Finish(id),
        (_, ZoneState::Full) => Command::Reset(id),
        (5, state) if state.is_open() => Command::Close(id),
        (5, _) => Command::Open(id),
        _ => {
            let at = zone.wp.unwrap() / BLOCK;
            Command::Write { zone: id, at, blocks: rng.random_range(1..=6).min(CAPACITY - at) }
        }
    }
}

/// A drive that was used and then dropped dead, without a close.
fn used(seed: u64, commands: usize) -> (History, usize, Vec<Done>) {
    let layout = Layout::plan(SIZE as u64, 4096, BAND, Some(1)).unwrap();
    let memory = MemoryBase::new(vec![0; SIZE], 512);
    Banded::format(&memory, &layout).unwrap();
    let mut bytes = memory.bytes();
    // What a new drive's conventional bands hold is anything; zeros are easiest to tell.
    bytes[layout.data_at as usize..].fill(0);
    let base = Arc::new(Recorder::holding(&bytes, 1));
    let drive = open(&base);
    let formatted = base.commands();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut done = Vec::new();
    for _ in 0..commands {
        let command = any(&drive, &mut rng);
        let began = base.commands();
        perform(&drive, command, began as u64).unwrap();
        done.push(Done { command, began, acknowledged: base.commands() });
    }
    let history = base.history();
    base.die();
    (history, formatted, done)
}

/// After a recovery the drive is used on, loses power with everything flushed, and has all of it.
fn goes_on(base: &Arc<Recorder>, drive: Banded) {
    let mut written = Vec::new();
    for zone in report_all(&drive).unwrap() {
        let Some(wp) = zone.wp.filter(|wp| *wp < zone.capacity) else { continue };
        let life = drive.resets(zone.id).unwrap();
        let bytes = pattern(zone.id.0, life, wp / BLOCK, 1);
        drive.write_at(&bytes, u64::from(zone.id.0) * BAND + wp, TAG).unwrap();
        written.push((zone.id, wp + BLOCK));
    }
    drive.flush(TAG).unwrap();
    let disk = base.history().bytes(SIZE);
    base.die();
    let drive = open(&Arc::new(Recorder::holding(&disk, 77)));
    for (zone, wp) in written {
        let mut seen = [imbrex_device::Zone::EMPTY];
        drive.report(zone, &mut seen).unwrap();
        assert_eq!(seen[0].wp, Some(wp), "zone {zone} after a flush and a power loss");
    }
}

fn verify(promise: &Promise, base: Arc<Recorder>, what: impl Fn() -> String) -> History {
    let drive = open(&base);
    promise.check(&drive).unwrap_or_else(|wrong| panic!("{}: {wrong}", what()));
    let recovered = base.history();
    goes_on(&base, drive);
    recovered
}

#[test]
fn the_death_of_the_process_loses_nothing() {
    let mut states = 0;
    for seed in 0..4 {
        let (history, formatted, done) = used(seed, 60);
        for cut in formatted..=history.ops.len() {
            let promise = Promise { done: &done, cut, power: false, capacity: CAPACITY };
            for torn in [None, Some(1), Some(9), Some(200)] {
                let (_, kept) = history.process_crash(SIZE, cut, torn);
                let base = Arc::new(Recorder::new(SIZE, kept, 1));
                verify(&promise, base, || format!("seed {seed}, cut {cut}, torn {torn:?}"));
                states += 1;
            }
        }
    }
    assert!(states > 1000, "{states}");
}

#[test]
fn a_power_loss_keeps_what_was_flushed_and_prefixes_of_the_rest() {
    let mut states = 0;
    for seed in 10..13 {
        let (history, formatted, done) = used(seed, 60);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for cut in formatted..=history.ops.len() {
            let promise = Promise { done: &done, cut, power: true, capacity: CAPACITY };
            for (i, fate) in fates(&history, cut, 4, &mut rng).into_iter().enumerate() {
                let base = Arc::new(Recorder::holding(&history.power_loss(SIZE, cut, fate), 2));
                verify(&promise, base, || format!("seed {seed}, cut {cut}, fate {i}"));
                states += 1;
            }
        }
    }
    assert!(states > 3000, "{states}");
}

/// First the process dies, then another opens the drive and the power fails while it does; and a recovery from a power loss
/// is cut by the next one.
#[test]
fn recovery_can_be_cut_anywhere() {
    let mut states = 0;
    for seed in 20..23 {
        let (history, formatted, done) = used(seed, 40);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for cut in (formatted..=history.ops.len()).step_by(3) {
            let promise = Promise { done: &done, cut, power: true, capacity: CAPACITY };
            let dead = history.process_crash(SIZE, cut, None).1;
            let lost = history.power_loss(SIZE, cut, |_| rng.random_bool(0.5));
            let starts = [Arc::new(Recorder::new(SIZE, dead, 1)), Arc::new(Recorder::holding(&lost, 2))];
            for (start, base) in starts.into_iter().enumerate() {
                let began = base.commands();
                let drive = open(&base);
                base.die();
                drop(drive);
                let recovery = base.history();
                for again in began..=recovery.ops.len() {
                    for (i, fate) in fates(&recovery, again, 1, &mut rng).into_iter().enumerate().skip(1).step_by(3) {
                        let base = Arc::new(Recorder::holding(&recovery.power_loss(SIZE, again, fate), 3));
                        verify(&promise, base, || {
                            format!("seed {seed}, cut {cut}, start {start}, again {again}, fate {i}")
                        });
                        states += 1;
                    }
                }
            }
        }
    }
    assert!(states > 3000, "{states}");
}

#[test]
fn one_flush_of_the_drive_is_one_flush_of_the_disk() {
    let (history, _, _) = used(1, 0);
    let base = Arc::new(Recorder::new(SIZE, history, 1));
    let drive = open(&base);
    let syncs = |base: &Recorder| base.history().ops.iter().filter(|op| matches!(op, disk::Op::Sync)).count();
    for at in 0..3 {
        let (before, commands) = (syncs(&base), base.commands());
        perform(&drive, Command::Write { zone: 2, at, blocks: 1 }, 0).unwrap();
        assert_eq!(
            (syncs(&base), base.commands()),
            (before, commands + 2),
            "a small write is bytes and a word in memory"
        );
        drive.flush(TAG).unwrap();
        assert_eq!(
            kinds(&base, commands),
            ["put", "put", "put", "write", "sync", "put"],
            "and one write with its flush"
        );
    }
    // Behind what a checksum vouches for, a small write is another such: one write, and the batch is the second.
    perform(&drive, Command::Write { zone: 3, at: 0, blocks: 6 }, 0).unwrap();
    let commands = base.commands();
    perform(&drive, Command::Write { zone: 3, at: 6, blocks: 1 }, 0).unwrap();
    drive.flush(TAG).unwrap();
    assert_eq!(kinds(&base, commands), ["write", "put", "sync", "write", "sync", "put"]);
    let before = syncs(&base);
    perform(&drive, Command::Write { zone: 4, at: 0, blocks: 8 }, 0).unwrap();
    drive.flush(TAG).unwrap();
    assert_eq!(syncs(&base), before + 2, "more than is checked is synced first");
}

/// What kind of commands they were, from number `from` on.
fn kinds(base: &Recorder, from: usize) -> Vec<&'static str> {
    let kind = |op: &disk::Op| match op {
        disk::Op::Write { .. } => "write",
        disk::Op::Put { .. } => "put",
        disk::Op::Discard { .. } => "discard",
        disk::Op::Sync => "sync",
    };
    base.history().ops[from..].iter().map(kind).collect()
}

/// Small writes of several bands share a batch, and are read before and after they are home, by others, too.
#[test]
fn small_writes_are_read_wherever_they_are() {
    let (history, _, _) = used(1, 0);
    let base = Arc::new(Recorder::new(SIZE, history, 1));
    let drive = open(&base);
    let look = || Banded::open(Box::new(Arc::new(Recorder::holding(&base.history().bytes(SIZE), 1))), Access::ReadOnly);
    let mut written = [0; 3];
    for round in 0..40 {
        let zone = 2 + round % 3;
        let at = &mut written[round % 3];
        // One in five goes to the band at once, and what waits for it before.
        let blocks = if round % 5 == 4 { 7 } else { 1 };
        if *at + blocks > CAPACITY {
            drive.zone_op(imbrex_device::ZoneOp::Reset, ZoneId(zone as u32), TAG).unwrap();
            *at = 0;
        }
        perform(&drive, Command::Write { zone: zone as u32, at: *at, blocks }, 0).unwrap();
        *at += blocks;
        if round % 4 == 3 {
            drive.flush(TAG).unwrap();
        }
        let seen = look().unwrap();
        assert_eq!(report_all(&seen).unwrap(), report_all(&drive).unwrap());
        for (band, written) in (2..).zip(written) {
            let life = drive.resets(ZoneId(band)).unwrap();
            for from in 0..written {
                for drive in [&drive, &seen] {
                    let mut buf = imbrex_device::AlignedBuf::zeroed(((written - from).min(3) * BLOCK) as usize);
                    drive.read_at(&mut buf, u64::from(band) * BAND + from * BLOCK, TAG).unwrap();
                    assert_eq!(
                        &buf[..],
                        &pattern(band, life, from, buf.len() as u64 / BLOCK)[..],
                        "block {from} of {band}"
                    );
                }
            }
        }
    }
    // Whoever opens it next finds all of it in the bands.
    let data = drive.layout().data_at as usize;
    let lives = [2, 3, 4].map(|band| drive.resets(ZoneId(band)).unwrap());
    drop(drive);
    let bytes = base.history().bytes(SIZE);
    for ((band, written), life) in (2..).zip(written).zip(lives) {
        let at = data + band as usize * BAND as usize;
        assert_eq!(&bytes[at..at + (written * BLOCK) as usize], &pattern(band, life, 0, written)[..]);
    }
}

/// A log that ends brings home what it carries. What is written meanwhile, behind what no flush has taken yet, is carried later.
#[test]
fn what_is_written_while_a_log_ends_is_not_lost() {
    let (history, _, _) = used(1, 0);
    let base = Arc::new(Recorder::new(SIZE, history, 1));
    let drive = Arc::new(open(&base));
    let write = |drive: &Banded, at| perform(drive, Command::Write { zone: 2, at, blocks: 1 }, 0).unwrap();
    write(&drive, 0);
    drive.flush(TAG).unwrap();
    write(&drive, 1);
    let (data, other) = (drive.layout().data_at as usize, drive.clone());
    base.before_a_write_from(data, Box::new(move || write(&other, 2)));
    let mut resets = 0;
    while base.is_waiting() {
        drive.zone_op(imbrex_device::ZoneOp::Reset, ZoneId(3), TAG).unwrap();
        resets += 1;
        assert!(resets < 100, "a log ends at last");
    }
    drive.flush(TAG).unwrap();
    let drive = open(&Arc::new(Recorder::holding(&base.history().power_loss(SIZE, base.commands(), |_| false), 2)));
    assert_eq!(report_all(&drive).unwrap()[2].wp, Some(3 * BLOCK));
    let mut buf = imbrex_device::AlignedBuf::zeroed(3 * BLOCK as usize);
    drive.read_at(&mut buf, 2 * BAND, TAG).unwrap();
    assert_eq!(&buf[..], &pattern(2, 0, 0, 3)[..]);
}

/// Threads that write bands of their own and flush; whatever is cut anywhere, each has what was promised to it.
#[test]
fn threads_lose_nothing_of_each_other() {
    let (mut states, mut carried) = (0, 0);
    for seed in 40..52 {
        let (history, formatted, _) = used(1, 0);
        let base = Arc::new(Recorder::new(SIZE, history, 1));
        let drive = open(&base);
        let done: Vec<Vec<Done>> = std::thread::scope(|scope| {
            let works = (2..5).map(|zone| {
                let (drive, base) = (&drive, &base);
                scope.spawn(move || {
                    let (mut rng, mut done, mut at) =
                        (ChaCha8Rng::seed_from_u64(seed * 8 + u64::from(zone)), Vec::new(), 0);
                    for _ in 0..40 {
                        let blocks = [1, 1, 1, 2, 6][rng.random_range(0..5)];
                        let command = match rng.random_range(0..6) {
                            0..2 => Command::Flush,
                            _ if at + blocks > CAPACITY => Command::Reset(zone),
                            _ => Command::Write { zone, at, blocks },
                        };
                        match command {
                            Command::Write { .. } => at += blocks,
                            Command::Reset(_) => at = 0,
                            _ => {}
                        }
                        let began = base.commands();
                        perform(drive, command, 0).unwrap();
                        let mut all = imbrex_device::AlignedBuf::zeroed(BAND as usize);
                        drive.read_at(&mut all, u64::from(zone) * BAND, TAG).unwrap();
                        let (life, n) = (drive.resets(ZoneId(zone)).unwrap(), (at * BLOCK) as usize);
                        assert!(all.starts_with(&pattern(zone, life, 0, at)) && all[n..].iter().all(|byte| *byte == 0));
                        done.push(Done { command, began, acknowledged: base.commands() });
                    }
                    done
                })
            });
            works.collect::<Vec<_>>().into_iter().map(|work| work.join().unwrap()).collect()
        });
        let history = base.history();
        base.die();
        // The flags of a batch's first record.
        let carries = |op: &&disk::Op| matches!(op, disk::Op::Write { bytes, .. } if bytes.starts_with(b"IMBXBLOG") && bytes[92] == 2);
        carried += history.ops[formatted..].iter().filter(carries).count();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for cut in (formatted..=history.ops.len()).filter(|cut| cut % 3 == 0) {
            let dead = Recorder::new(SIZE, history.process_crash(SIZE, cut, None).1, 1);
            let fates = fates(&history, cut, 2, &mut rng).into_iter().skip(1).step_by(4);
            let lost = fates.map(|fate| Recorder::holding(&history.power_loss(SIZE, cut, fate), 2));
            for (i, base) in std::iter::once(dead).chain(lost).enumerate() {
                let drive = open(&Arc::new(base));
                for done in &done {
                    let promise = Promise { done, cut, power: i > 0, capacity: CAPACITY };
                    let zone = match done.iter().find(|done| !matches!(done.command, Command::Flush)).unwrap().command {
                        Command::Write { zone, .. } | Command::Reset(zone) => zone,
                        _ => unreachable!(),
                    };
                    let checked = promise.check_zone(&drive, zone);
                    checked.unwrap_or_else(|wrong| panic!("seed {seed}, cut {cut}, {i}: {wrong}"));
                }
                states += 1;
            }
        }
    }
    assert!(states > 3000 && carried > 100, "{states} {carried}");
}

#[test]
fn what_is_closed_has_nothing_left_to_check() {
    let (history, _, _) = used(1, 0);
    let base = Arc::new(Recorder::new(SIZE, history, 1));
    let drive = open(&base);
    perform(&drive, Command::Write { zone: 2, at: 0, blocks: 2 }, 0).unwrap();
    let data = drive.layout().data_at as usize + 2 * BAND as usize;
    drop(drive);
    // Damage of the medium is for whoever reads it, not for the table.
    let mut bytes = base.history().bytes(SIZE);
    bytes[data] ^= 1;
    let drive = open(&Arc::new(Recorder::holding(&bytes, 2)));
    assert_eq!(report_all(&drive).unwrap()[2].wp, Some(2 * BLOCK));
}

#[test]
fn after_a_failed_flush_nothing_is_believed_that_is_not_proved() {
    let (history, _, _) = used(1, 0);
    let base = Arc::new(Recorder::new(SIZE, history, 1));
    let drive = open(&base);
    let epoch = drive.identity().power_epoch;
    let write = |drive: &Banded, at| perform(drive, Command::Write { zone: 2, at, blocks: 1 }, 0);
    write(&drive, 0).unwrap();
    drive.flush(TAG).unwrap();
    write(&drive, 1).unwrap();
    base.failing.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(drive.flush(TAG).is_err());
    base.failing.store(false, std::sync::atomic::Ordering::Relaxed);
    write(&drive, 2).unwrap();
    let error = drive.flush(TAG).unwrap_err();
    assert!(error.to_string().contains("open the drive again"), "{error}");
    assert!(drive.zone_op(imbrex_device::ZoneOp::Reset, ZoneId(3), TAG).is_err());
    drop(drive);
    // The disk did lose what it could not flush.
    let history = base.history();
    let lost = history.power_loss(SIZE, history.ops.len(), |op| matches!(history.ops[op], disk::Op::Put { .. }));
    let drive = open(&Arc::new(Recorder::holding(&lost, 1)));
    assert_eq!(report_all(&drive).unwrap()[2].wp, Some(BLOCK));
    assert_ne!(drive.identity().power_epoch, epoch, "what survived the process may not be believed");
}

/// A zone that is set in place and overwritten at random; each block has its newest flushed version after a power loss, or a later one.
#[test]
fn a_zone_in_place_keeps_what_was_flushed_and_any_of_the_rest() {
    let layout = Layout::plan(SIZE as u64, 4096, BAND, Some(1)).unwrap();
    let memory = MemoryBase::new(vec![0; SIZE], 512);
    Banded::format(&memory, &layout).unwrap();
    let start = 2 * BAND;
    let (mut states, mut kinds) = (0, std::collections::BTreeSet::new());
    for seed in 30..36 {
        let base = Arc::new(Recorder::holding(&memory.bytes(), 1));
        let (drive, mut rng, mut flushes) = (open(&base), ChaCha8Rng::seed_from_u64(seed), 0);
        drive.write_at(&pattern(2, 0, 0, 2), start, TAG).unwrap();
        // What the log carries, or the process has not flushed, may not come back over what is written in place.
        if seed % 2 == 0 {
            drive.flush(TAG).unwrap();
        }
        // First block and blocks, version, and the disk's commands before and behind; a flush has no blocks.
        let mut done: Vec<(u64, u64, u64, usize, usize)> = Vec::new();
        let began = base.commands();
        drive.set_in_place(ZoneId(2), TAG).unwrap();
        let set = base.commands();
        for version in 1..60 {
            if version % 4 == 0 {
                perform(&drive, Command::Write { zone: 3, at: version / 4 - 1, blocks: 1 }, 0).unwrap();
            }
            let before = base.commands();
            let blocks = rng.random_range(0..4);
            let at = rng.random_range(0..=CAPACITY - blocks);
            match blocks {
                0 => drive.flush(TAG).unwrap(),
                _ => {
                    drive.write_in_place(&pattern(2, 1 + version as u32, at, blocks), start + at * BLOCK, TAG).unwrap()
                }
            }
            let other = blocks == 0 && base.commands() > before + 1;
            assert!(base.commands() == before + 1 || other, "a write is one write, and a flush is one sync");
            flushes += usize::from(blocks == 0 && !other);
            done.push((at, blocks, version, before, base.commands()));
        }
        assert!(flushes > 0, "a flush with nothing else");
        let history = base.history();
        base.die();
        for cut in began..=history.ops.len() {
            let dead = Recorder::new(SIZE, history.process_crash(SIZE, cut, None).1, 1);
            let fates = fates(&history, cut, 3, &mut rng).into_iter();
            let lost = fates.map(|fate| Recorder::holding(&history.power_loss(SIZE, cut, fate), 2));
            for (i, base) in std::iter::once(dead).chain(lost).enumerate() {
                let drive = open(&Arc::new(base));
                let now = report_all(&drive).unwrap()[2];
                assert!(now.state == ZoneState::Full || cut < set, "seed {seed}, cut {cut}, fate {i}: {now:?}");
                kinds.insert(now.state);
                let mut buf = imbrex_device::AlignedBuf::zeroed(BAND as usize);
                drive.read_at(&mut buf, start, TAG).unwrap();
                for (block, bytes) in buf.chunks(BLOCK as usize).enumerate() {
                    let mut may: Vec<u64> = vec![0];
                    for (at, blocks, version, began, ended) in done.iter().filter(|done| done.3 <= cut) {
                        match blocks {
                            0 if *ended <= cut => may = may.split_off(may.len() - 1),
                            _ if (*at..at + blocks).contains(&(block as u64)) => may.push(*version),
                            _ => {}
                        }
                        // The death of the process leaves the newest that was acknowledged.
                        if i == 0 && *ended <= cut {
                            may = may.split_off(may.len() - 1);
                        }
                        assert!(began < ended);
                    }
                    // A block may be torn between sectors. Version 0 is what stood there before.
                    for (n, sector) in bytes.chunks(512).enumerate() {
                        let is = |version: u64| {
                            sector == &pattern(2, 1 + version as u32, block as u64, 1)[n * 512..(n + 1) * 512]
                        };
                        let before = sector == &pattern(2, 0, block as u64, 1)[n * 512..(n + 1) * 512];
                        let flushed = seed % 2 == 0 && block < 2;
                        let old = may.contains(&0) && (1..60).all(|version| !is(version)) && (before || !flushed);
                        let good = old || may.iter().any(|version| *version > 0 && is(*version));
                        assert!(good, "seed {seed}, cut {cut}, fate {i}: block {block} is none of versions {may:?}");
                    }
                }
                states += 1;
            }
        }
        // The death of the process loses nothing, and what was written before the zone was set in place is there.
        let drive = open(&Arc::new(Recorder::new(SIZE, history.process_crash(SIZE, set, None).1, 1)));
        let mut buf = imbrex_device::AlignedBuf::zeroed(2 * BLOCK as usize);
        drive.read_at(&mut buf, start, TAG).unwrap();
        assert_eq!(&buf[..], &pattern(2, 0, 0, 2)[..]);
    }
    assert!(states > 2000 && kinds.len() > 1, "{states} {kinds:?}");
}
