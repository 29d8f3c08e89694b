//! Reading tables without a copy, and what a missed block costs.

use crate::support::bytes;
use imbrex_bluefs::{BlueFs, CreateOptions, Options, Reader, SPAN};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

const TABLE: &str = "/000007.ldb";
const LEN: usize = 600_000;
/// A block of LevelDB with a value of 4 KiB.
const BLOCK: usize = 4140;

/// A drive with a table on it, mounted with so large a cache; the table was written before that, or after.
fn mounted(cache_bytes: u64, written_before: bool) -> (BlueFs, Emulator) {
    mounted_on(&Config::tiny(), crate::support::options().volume.exec, cache_bytes, written_before)
}

fn mounted_on(config: &Config, exec: Exec, cache_bytes: u64, written_before: bool) -> (BlueFs, Emulator) {
    let emulator = Emulator::memory(config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) };
    BlueFs::format(&drive, false).unwrap();
    let volume = VolumeOptions { exec, ..crate::support::options().volume };
    let options = Options { cache_bytes, volume, idle_pack: None, ..crate::support::options() };
    let mount = || BlueFs::mount(drive.clone(), options.clone()).unwrap();
    let mut fs = mount();
    let mut file = fs.create(TABLE, CreateOptions::default()).unwrap();
    file.append(&bytes(LEN, 3)).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
    drop(file);
    if written_before {
        drop(fs);
        fs = mount();
    }
    emulator.reset_stats();
    (fs, emulator)
}

/// Reads as LevelDB's Env does: a view where there is one, a copy elsewhere. Whether it was a view.
fn read(reader: &Reader, at: usize, len: usize) -> bool {
    let all = bytes(LEN, 3);
    if let Some(view) = reader.view(at as u64, len) {
        assert!(view == &all[at..at + len], "{at}");
        return true;
    }
    let mut out = vec![0; len];
    assert_eq!(reader.read_at(at as u64, &mut out).unwrap(), len);
    assert!(out == all[at..at + len], "{at}");
    false
}

/// Blocks that do not follow each other.
fn blocks() -> Vec<usize> {
    let count = LEN / BLOCK;
    (0..count).map(|i| i * 37 % count * BLOCK).collect()
}

#[test]
fn a_missed_block_is_one_command_and_a_found_one_none() {
    let (fs, emulator) = mounted(32 << 20, true);
    let reader = fs.open_read(TABLE).unwrap();
    let mut missed = 0;
    for at in blocks() {
        let before = emulator.stats().total.reads;
        read(&reader, at, BLOCK);
        let commands = emulator.stats().total.reads - before;
        assert!(commands <= 1, "{commands} commands for the block at {at}");
        missed += commands;
    }
    // Fewer than pages: what is missed right behind the last run is a stream, and read ahead.
    let pages = (LEN / (16 << 10) + 1) as u64;
    assert!(missed > 0 && missed <= pages, "{missed} commands for {pages} pages");
    for round in 0..2 {
        for at in blocks() {
            read(&reader, at, BLOCK);
        }
        assert_eq!(emulator.stats().total.reads, missed, "round {round} reads nothing anew");
    }

    // Without a cache every block is missed: one command each.
    let (fs, emulator) = mounted(0, true);
    let reader = fs.open_read(TABLE).unwrap();
    for at in blocks() {
        assert!(!read(&reader, at, BLOCK));
    }
    assert_eq!(emulator.stats().total.reads, blocks().len() as u64);
}

#[test]
fn a_miss_at_random_brings_what_stands_around_it_while_there_is_room() {
    let rotating = Config { rotational: true, ..Config::tiny() };
    let page = 16 << 10;
    // Pages that it reads for a block in the middle, and for one at the end; a window is 256 KiB.
    let brought = |config: &Config, cache_bytes: u64| {
        let (fs, emulator) = mounted_on(config, Exec::Threads(1), cache_bytes, true);
        let reader = fs.open_read(TABLE).unwrap();
        [300_000, LEN - BLOCK].map(|at| {
            let before = emulator.stats().total;
            read(&reader, at, BLOCK);
            let after = emulator.stats().total;
            (after.reads - before.reads, (after.bytes_read - before.bytes_read).div_ceil(page))
        })
    };
    // The zone's header stands before the table's bytes, so a zone's end may cut the window in two commands.
    let [middle, end] = brought(&rotating, 32 << 20);
    assert!(middle.0 <= 2 && middle.1 >= 16 && end.1 >= 4, "{middle:?} {end:?}");
    for (config, cache_bytes) in [(&Config::tiny(), 32 << 20), (&rotating, 0)] {
        let [middle, end] = brought(config, cache_bytes);
        assert!(middle.1 <= 2 && end.1 <= 2, "{middle:?} {end:?}: only what was asked for");
    }

    // A full cache keeps what was asked for.
    let (fs, emulator) = mounted_on(&rotating, Exec::Threads(1), 1 << 20, true);
    let other = fs.create("/000009.ldb", CreateOptions::default()).unwrap();
    other.append(&bytes(2 << 20, 4)).unwrap();
    other.sync().unwrap();
    let before = emulator.stats().total.bytes_read;
    read(&fs.open_read(TABLE).unwrap(), 300_000, BLOCK);
    assert!(emulator.stats().total.bytes_read - before <= 2 * page);
}

#[test]
fn a_stream_in_pages_that_a_miss_brought_is_read_ahead() {
    let rotating = Config { rotational: true, ..Config::tiny() };
    let commands = |config: &Config| {
        let (fs, emulator) = mounted_on(config, Exec::Threads(1), 32 << 20, true);
        let reader = fs.open_read(TABLE).unwrap();
        let mut out = vec![0; 4096];
        for at in (20_000..LEN - 4096).step_by(4096) {
            assert_eq!(reader.read_at(at as u64, &mut out).unwrap(), 4096);
        }
        let causes = emulator.stats().by_cause;
        causes.get("readahead").map_or(0, |cause| cause.reads)
    };
    assert!(commands(&rotating) > 0, "a miss every 256 KiB is no stream");
    assert!(commands(&Config::tiny()) > 0);
}

#[test]
fn what_was_written_is_viewed_where_it_stands() {
    let (fs, _) = mounted(32 << 20, false);
    let reader = fs.open_read(TABLE).unwrap();
    // What begins close behind a block that was copied may be a stream; the next time it does not look like one.
    let views = (0..3).map(|_| blocks().into_iter().filter(|at| read(&reader, *at, BLOCK)).count()).max().unwrap();
    // All but those in pages that are not whole: the last one, and where a zone ends.
    assert!(views >= blocks().len() * 9 / 10, "{views} of {}", blocks().len());
    let second = fs.open_read(TABLE).unwrap();
    let at = |reader: &Reader| reader.view(50_000, 100).unwrap().as_ptr();
    assert_eq!(at(&reader), at(&second), "readers share it");
    assert!(reader.view(LEN as u64 - 10, 11).is_none() && reader.view(u64::MAX, 2).is_none());
    assert!(reader.view(0, usize::MAX).is_none());
}

#[test]
fn a_span_is_all_of_its_bytes_in_one_place_and_stays() {
    let all = bytes(LEN, 3);
    let span = SPAN as usize;
    // The table is written in pieces that end anywhere in a page.
    let (fs, emulator) = mounted(64 << 20, false);
    let reader = fs.open_read(TABLE).unwrap();
    let spans: Vec<_> = (0..3).map(|i| reader.span(i).unwrap()).collect();
    for (view, bytes) in spans.iter().zip(all.chunks(span)) {
        assert!(*view == bytes);
    }
    assert!(reader.span(3).is_none() && reader.span(u64::MAX).is_none());
    assert_eq!(reader.span(1).unwrap().as_ptr(), spans[1].as_ptr());
    assert_eq!(emulator.stats().total.reads, 0);
    // Views are the same bytes, and those across two pages no copies.
    let across = reader.view(16_000, 1000).unwrap();
    assert!(across.as_ptr() == spans[0][16_000..].as_ptr() && across == &all[16_000..17_000]);
    let mut out = vec![0; LEN];
    assert!(reader.read_at(0, &mut out).unwrap() == LEN && out == all);
    let mut file = fs.open_random(TABLE, false).unwrap();
    file.write_at(40_000, &[9; 8]).unwrap();
    file.close().unwrap();
    assert!(reader.span(0).is_none(), "what is held is not the file any more");
    assert!(reader.read_at(40_000, &mut out).unwrap() > 8 && out[..8] == [9; 8]);
    fs.unlink(TABLE).unwrap();
    assert!(spans[0] == &all[..span]);

    for (cache_bytes, written_before) in [(64 << 20, true), (0, false)] {
        let (fs, _) = mounted(cache_bytes, written_before);
        assert!(fs.open_read(TABLE).unwrap().span(0).is_none(), "it is not in the cache");
    }
}

#[test]
fn a_deleted_file_leaves_the_cache_at_once_or_with_its_last_reader() {
    let (fs, _) = mounted(64 << 20, false);
    // Two files that share a zone, which stays when one of them goes.
    let mut other = fs.create("/000008.ldb", CreateOptions::default()).unwrap();
    other.append(&bytes(LEN, 5)).unwrap();
    other.close().unwrap();
    drop(other);
    let watch = fs.watch();
    let used = || watch.figures().unwrap().cache_used;
    let both = used();
    assert!(both >= 2 * LEN as u64);
    fs.unlink("/000008.ldb").unwrap();
    assert!(used() < both - LEN as u64, "{} of {both}", used());
    let reader = fs.open_read(TABLE).unwrap();
    fs.unlink(TABLE).unwrap();
    assert!(read(&reader, 5 * BLOCK, BLOCK));
    drop(reader);
    assert_eq!(used(), 0);
}

#[test]
fn a_view_stays_as_it_was_whatever_becomes_of_the_file() {
    let all = bytes(LEN, 3);
    for cut in [false, true] {
        let (fs, _) = mounted(32 << 20, false);
        let reader = fs.open_read(TABLE).unwrap();
        let view = reader.view(40_000, 100).unwrap();
        if cut {
            fs.truncate(TABLE, 39_000).unwrap();
            let mut out = [0; 100];
            assert_eq!(reader.read_at(40_000, &mut out).unwrap(), 0, "behind the end");
        } else {
            let mut file = fs.open_random(TABLE, false).unwrap();
            file.write_at(40_000, &[9; 8]).unwrap();
            let mut out = [0; 100];
            assert_eq!(reader.read_at(40_000, &mut out).unwrap(), 100);
            assert!(out[..8] == [9; 8] && out[8..] == all[40_008..40_100], "the new bytes are read");
            file.close().unwrap();
        }
        assert!(reader.view(40_000, 100).is_none(), "what is held is not the file any more");
        fs.unlink(TABLE).unwrap();
        let mut other = fs.create("/000008.ldb", CreateOptions::default()).unwrap();
        other.append(&bytes(LEN, 5)).unwrap();
        other.close().unwrap();
        assert_eq!(view, &all[40_000..40_100]);
    }
}

#[test]
fn a_file_that_is_being_written_and_one_that_is_no_table_are_copied() {
    let (fs, _) = mounted(32 << 20, false);
    for (name, whole) in [("/000009.ldb", false), ("/000010.log", true), ("/CURRENT", true)] {
        let mut file = fs.create(name, CreateOptions::default()).unwrap();
        file.append(&bytes(200_000, 1)).unwrap();
        file.sync().unwrap();
        if whole {
            file.close().unwrap();
        }
        let reader = fs.open_read(name).unwrap();
        assert!(reader.view(0, 100).is_none(), "{name}");
    }
}
