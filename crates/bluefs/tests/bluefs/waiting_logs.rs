//! Write-ahead logs that nobody syncs wait in memory, and most are deleted before they are written; but nothing that was promised may
//! depend on that.

use crate::support::{bytes, options, read_all};
use imbrex_bluefs::{BlueFs, CreateOptions, Options};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Machine {
    emulator: Emulator,
    survivor: Arc<HeapSurvivor>,
}

impl Machine {
    fn new() -> Machine {
        Machine::with(&Config::tiny())
    }

    fn with(config: &Config) -> Machine {
        let machine = Machine { emulator: Emulator::memory(config).unwrap(), survivor: Arc::new(HeapSurvivor::new()) };
        BlueFs::format(&machine.drive(), false).unwrap();
        machine
    }

    fn drive(&self) -> Drive {
        Drive { device: Arc::new(self.emulator.clone()), survivor: Some(self.survivor.clone()) }
    }

    /// As another process finds it if this one is killed now.
    fn killed(&self) -> BlueFs {
        let drive = Drive {
            device: Arc::new(self.emulator.fork().unwrap()),
            survivor: Some(Arc::new(self.survivor.snapshot())),
        };
        BlueFs::mount(drive, options()).unwrap()
    }

    /// As it is found if the power fails now.
    fn without_power(&self, seed: u64) -> BlueFs {
        let emulator = self.emulator.after_power_loss(seed).unwrap();
        BlueFs::mount(Drive { device: Arc::new(emulator), survivor: Some(Arc::new(HeapSurvivor::new())) }, options())
            .unwrap()
    }

    fn log_bytes(&self) -> u64 {
        self.emulator.stats().by_cause["wal"].bytes_written
    }
}

fn work(fs: &BlueFs) {
    while fs.step().unwrap() {}
}

/// A closed log of this many bytes, which differ by its number.
fn log(fs: &BlueFs, number: u8, len: usize) -> Vec<u8> {
    let data = bytes(len, number);
    let mut writer = fs.create(&format!("/{number:06}.log"), CreateOptions::default()).unwrap();
    data.chunks(10_000).for_each(|piece| writer.append(piece).unwrap());
    writer.close().unwrap();
    work(fs);
    data
}

/// Longer than a zone, which is 1 MiB.
const LONG: usize = 1_200_000;

#[test]
fn a_log_that_is_deleted_in_time_is_never_written_and_is_there_until_then() {
    let machine = Machine::new();
    let fs = BlueFs::mount(machine.drive(), options()).unwrap();
    let mut before: Option<(u8, Vec<u8>)> = None;
    for number in 1..=20 {
        let data = log(&fs, number, LONG);
        assert!(read_all(&fs, &format!("/{number:06}.log")) == data, "read from memory");
        assert_eq!(fs.stat(&format!("/{number:06}.log")).unwrap().size, LONG as u64);
        if number % 5 == 0 {
            let after = machine.killed();
            assert!(read_all(&after, &format!("/{number:06}.log")) == data, "after a kill");
            if let Some((number, data)) = &before {
                assert!(read_all(&after, &format!("/{number:06}.log")) == *data, "the one before, after a kill");
            }
        }
        if let Some((old, _)) = before.replace((number, data)) {
            fs.unlink(&format!("/{old:06}.log")).unwrap();
        }
    }
    assert_eq!(machine.log_bytes(), 0);
    let (used, _) = fs.volume().unwritten();
    assert!(used < 2 * LONG as u64, "memory of deleted logs comes back: {used}");

    // What is left at the end is written.
    let (number, data) = before.unwrap();
    drop(fs);
    assert!(machine.log_bytes() >= LONG as u64);
    let drive = Drive { device: Arc::new(machine.emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) };
    assert!(read_all(&BlueFs::mount(drive, options()).unwrap(), &format!("/{number:06}.log")) == data);
}

#[test]
fn a_sync_makes_the_logs_before_durable_too_and_no_later_one_waits() {
    let machine = Machine::new();
    let fs = BlueFs::mount(machine.drive(), options()).unwrap();
    let first = log(&fs, 1, LONG);
    let writer = fs.create("/000002.log", CreateOptions::default()).unwrap();
    writer.append(&first[..5000]).unwrap();
    assert_eq!(machine.log_bytes(), 0);
    writer.sync().unwrap();
    for seed in 0..20 {
        let after = machine.without_power(seed);
        assert!(read_all(&after, "/000001.log") == first, "seed {seed}");
        assert!(read_all(&after, "/000002.log") == first[..5000], "seed {seed}");
    }
    drop(writer);
    let written = machine.log_bytes();
    let writer = fs.create("/000003.log", CreateOptions::default()).unwrap();
    writer.append(&first[..500_000]).unwrap();
    work(&fs);
    assert!(machine.log_bytes() > written + 300_000, "a sync later would have had all of it to write");
}

#[test]
fn where_memory_is_short_the_oldest_goes_first_and_everybody_goes_on() {
    let machine = Machine::new();
    let fs = BlueFs::mount(machine.drive(), options()).unwrap();
    // Memory is 4 MiB, three quarters of it for what waits.
    let logs: Vec<Vec<u8>> = (1..=6).map(|number| log(&fs, number, LONG)).collect();
    let table = fs.create("/000007.sst", CreateOptions::default()).unwrap();
    table.append(&logs[0]).unwrap();
    let written = machine.log_bytes();
    assert!(written > 0 && written < 5 * LONG as u64, "{written}");
    // In order: a log is on the drive only as far as those before it are.
    for seed in 0..20 {
        let after = machine.without_power(seed);
        let sizes: Vec<u64> =
            (1..=6).map(|n| after.stat(&format!("/{n:06}.log")).map_or(0, |stat| stat.size)).collect();
        let partial = sizes.iter().position(|size| *size < LONG as u64).unwrap_or(6);
        assert!(sizes.iter().skip(partial + 1).all(|size| *size == 0), "{sizes:?}");
    }
    let after = machine.killed();
    for (i, data) in logs.iter().enumerate() {
        assert!(read_all(&after, &format!("/{:06}.log", i + 1)) == *data);
        assert!(read_all(&fs, &format!("/{:06}.log", i + 1)) == *data);
    }
}

#[test]
fn on_a_full_drive_logs_are_written_as_they_come() {
    let machine = Machine::new();
    let fs = BlueFs::mount(machine.drive(), options()).unwrap();
    let data = bytes(1 << 20, 3);
    let mut n = 0;
    // Until a log would have to take one of the last zones.
    while fs.space().free > 4 << 20 {
        n += 1;
        let table = fs.create(&format!("/{n:06}.sst"), CreateOptions::default()).unwrap();
        table.append(&data).unwrap();
    }
    let log = log(&fs, 200, LONG);
    assert!(machine.log_bytes() > LONG as u64 / 2, "{}", machine.log_bytes());
    assert!(read_all(&machine.killed(), "/000200.log") == log);
}

#[test]
fn nothing_waits_longer_than_half_a_minute() {
    let machine = Machine::new();
    let fs = BlueFs::mount(machine.drive(), options()).unwrap();
    let closed = log(&fs, 1, LONG);
    let mut open = fs.create("/000002.log", CreateOptions::default()).unwrap();
    open.append(b"not a segment").unwrap();
    fs.volume().pass(Duration::from_secs(20));
    // One of another age behind it.
    let young = log(&fs, 3, 300_000);
    fs.volume().pass(Duration::from_millis(9_999));
    work(&fs);
    assert_eq!(machine.log_bytes(), 0, "nothing is old enough");
    fs.volume().pass(Duration::from_millis(1));
    work(&fs);
    let written = machine.log_bytes();
    assert!(
        written > LONG as u64 && written < LONG as u64 + 100_000,
        "{written}: all of both, and none of the young one"
    );
    fs.sync_dir("/").unwrap();
    for seed in 0..10 {
        let after = machine.without_power(seed);
        assert!(read_all(&after, "/000001.log") == closed, "seed {seed}");
        assert!(read_all(&after, "/000002.log") == b"not a segment", "seed {seed}");
    }
    // What comes then waits again.
    open.append(b"more").unwrap();
    fs.volume().pass(Duration::from_millis(29_999));
    work(&fs);
    assert_eq!(read_all(&machine.killed(), "/000002.log"), b"not a segmentmore");
    fs.volume().pass(Duration::from_millis(1));
    work(&fs);
    assert!(machine.log_bytes() > written + 300_000);
    open.close().unwrap();
    assert!(read_all(&machine.killed(), "/000003.log") == young);
}

#[test]
fn a_long_log_gets_old_from_its_beginning() {
    let machine = Machine::new();
    let fs = BlueFs::mount(machine.drive(), options()).unwrap();
    let mut open = fs.create("/000001.log", CreateOptions::default()).unwrap();
    let piece = bytes(400_000, 1);
    for seconds in (0..60).step_by(20) {
        open.append(&piece).unwrap();
        work(&fs);
        let due = 400_000 * (seconds / 20_u64).saturating_sub(1);
        let written = machine.log_bytes();
        assert!(written.abs_diff(due) < 150_000, "{written} bytes after {seconds} s");
        fs.volume().pass(Duration::from_secs(20));
    }
    open.close().unwrap();
}

#[test]
fn a_writer_that_sleeps_wakes_for_what_is_old() {
    let machine = Machine::new();
    let mut options = options();
    options.volume.exec = Exec::Threads(2);
    let fs = BlueFs::mount(machine.drive(), options).unwrap();
    // Nobody else has any work for it.
    std::thread::sleep(Duration::from_millis(20));
    let mut open = fs.create("/000001.log", CreateOptions::default()).unwrap();
    open.append(&bytes(10_000, 1)).unwrap();
    fs.volume().pass(Duration::from_secs(40));
    let begun = Instant::now();
    while machine.log_bytes() < 10_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody looks at the clock");
        std::thread::sleep(Duration::from_millis(10));
    }
    open.close().unwrap();
}

#[test]
fn without_a_survivor_no_log_waits() {
    let machine = Machine::new();
    let drive = Drive { device: Arc::new(machine.emulator.clone()), survivor: None };
    let fs = BlueFs::mount(drive, options()).unwrap();
    let data = log(&fs, 1, LONG);
    fs.sync_dir("/").unwrap();
    // The process dies: nothing of its memory is left.
    let drive = Drive { device: Arc::new(machine.emulator.fork().unwrap()), survivor: None };
    assert!(read_all(&BlueFs::mount(drive, options()).unwrap(), "/000001.log") == data);
}

#[test]
fn logs_that_were_deleted_before_they_were_written_are_forgotten() {
    let machine = Machine::new();
    let work = move || {
        let fs = BlueFs::mount(machine.drive(), options()).unwrap();
        let name = |n: u32| format!("/{n:06}.log");
        for n in 0..20_000 {
            let mut writer = fs.create(&name(n), CreateOptions::default()).unwrap();
            writer.append(b"a record").unwrap();
            writer.close().unwrap();
            if n > 0 {
                fs.unlink(&name(n - 1)).unwrap();
            }
        }
        let writer = fs.create(&name(20_000), CreateOptions::default()).unwrap();
        writer.append(b"the last one").unwrap();
        // Each of them once waited for the one before.
        writer.sync().unwrap();
        assert_eq!(read_all(&machine.without_power(1), &name(19_999)), b"a record");
        assert_eq!(read_all(&machine.without_power(1), &name(20_000)), b"the last one");
        drop((writer, fs));
    };
    // A stack that is not deep enough for all of them.
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn logs_that_wait_keep_no_zones_from_who_needs_them() {
    let machine = Machine::new();
    let fs = BlueFs::mount(machine.drive(), options()).unwrap();
    let free = fs.space().free;
    for n in 1..=12 {
        fs.mkdir(&format!("/{n}")).unwrap();
        let mut writer = fs.create(&format!("/{n}/000001.log"), CreateOptions::default()).unwrap();
        writer.append(&bytes(1000, n)).unwrap();
        writer.close().unwrap();
    }
    assert_eq!(machine.log_bytes(), 0);
    let mut table = fs.create("/1.sst", CreateOptions::default()).unwrap();
    let piece = bytes(100_000, 1);
    let mut written = 0;
    while table.append(&piece).is_ok() {
        written += piece.len() as u64;
    }
    assert!(written + (4 << 20) > free, "{written} of {free} bytes");
    drop(table.close());
    let after = machine.killed();
    for n in 1..=12 {
        assert!(read_all(&after, &format!("/{n}/000001.log")) == bytes(1000, n));
    }
}

#[test]
fn many_logs_and_tables_at_once_and_the_journal_find_memory() {
    // Each file that is being written is promised a zone, or two.
    let machine = Machine::with(&Config { capacity: 400 << 20, ..Config::tiny() });
    let fs = BlueFs::mount(machine.drive(), options()).unwrap();
    let (_, all) = fs.volume().unwritten();
    let mut writers = Vec::new();
    let mut make = |path: String, len: usize| {
        let writer = fs.create(&path, CreateOptions::default()).unwrap();
        writer.append(&bytes(len, 1)).unwrap_or_else(|error| panic!("{path}: {error}"));
        writers.push((path, len, writer));
    };
    (0..30).for_each(|n| {
        fs.mkdir(&format!("/d{n}")).unwrap();
        make(format!("/d{n}/000001.log"), 130_000);
    });
    // To the brim, until what waits has to go, while the journal has nothing in memory.
    let used = || fs.volume().unwritten().0;
    let spare: Vec<_> =
        (0..60).map(|n| fs.create(&format!("/spare{n}.sst"), CreateOptions::default()).unwrap()).collect();
    fs.sync_dir("/").unwrap();
    let (mut before, mut n) = (0, 0);
    while used() > before && used() < all {
        before = used();
        spare[n].append(b"x").unwrap();
        n += 1;
    }
    assert!(before >= all - (48 << 10), "{before} of {all}");
    // Whoever makes room for the journal would have to write to it.
    for n in 0..3000 {
        fs.mkdir(&format!("/e{n}")).unwrap();
        if n % 100 == 0 {
            fs.sync_dir("/").unwrap();
        }
    }
    // One of each that only those get memory for who wait with very little.
    (0..30).for_each(|n| make(format!("/{n}.sst"), 10));
    (30..60).for_each(|n| {
        fs.mkdir(&format!("/d{n}")).unwrap();
        make(format!("/d{n}/000001.log"), 10);
    });
    for (path, len, writer) in &mut writers {
        assert!(read_all(&fs, path) == bytes(*len, 1), "{path}");
        writer.close().unwrap();
    }
}

/// A table on a drive with threads and a cache, and its bytes.
fn table(cache_bytes: u64) -> (Machine, BlueFs, Vec<u8>) {
    let machine = Machine::new();
    let mut options = Options { cache_bytes, readahead_bytes: 256 << 10, ..options() };
    options.volume.exec = Exec::Threads(1);
    let data = bytes(3 << 20, 5);
    {
        let fs = BlueFs::mount(machine.drive(), options.clone()).unwrap();
        fs.create("/000001.sst", CreateOptions::default()).unwrap().append(&data).unwrap();
    }
    let fs = BlueFs::mount(machine.drive(), options).unwrap();
    machine.emulator.reset_stats();
    (machine, fs, data)
}

#[test]
fn a_stream_is_read_ahead_and_nothing_of_it_twice() {
    let (machine, fs, data) = table(2 << 20);
    let reader = fs.open_read("/000001.sst").unwrap();
    let mut out = vec![0; 4096];
    for (i, piece) in data.chunks(4096).enumerate() {
        assert_eq!(reader.read_at(i as u64 * 4096, &mut out).unwrap(), piece.len());
        assert!(out == piece, "page {i}");
    }
    let stats = machine.emulator.stats();
    let ahead = stats.by_cause["readahead"].bytes_read;
    assert!(ahead > data.len() as u64 / 10 * 9, "{ahead} bytes were read ahead");
    assert!(stats.total.bytes_read < data.len() as u64 + (64 << 10), "{} bytes were read", stats.total.bytes_read);
    assert!(stats.total.reads < 100, "{} commands", stats.total.reads);

    // Here and there nothing is. No page of the cache that is read stands behind another: only some hits are told to the streams, so two
    // such reads are a step of one whenever all that came between them was in memory.
    let apart = 2 * options().page_bytes as usize;
    machine.emulator.reset_stats();
    for i in (0..700).map(|i| i * 37 % (data.len() / apart)) {
        let n = reader.read_at((i * apart) as u64, &mut out).unwrap();
        assert!(out[..n] == data[i * apart..][..n]);
    }
    assert_eq!(machine.emulator.stats().by_cause["readahead"].bytes_read, 0);
}

#[test]
fn a_file_that_is_deleted_overwritten_or_left_while_it_is_read_ahead_gives_right_bytes_and_the_drive_back() {
    for round in 0..30 {
        let (machine, fs, data) = table(2 << 20);
        let reader = fs.open_read("/000001.sst").unwrap();
        let mut out = vec![0; 64 << 10];
        for at in [0, 64 << 10, 128 << 10] {
            reader.read_at(at, &mut out).unwrap();
            assert!(out == data[at as usize..][..out.len()]);
        }
        match round % 3 {
            0 => {
                fs.unlink("/000001.sst").unwrap();
                reader.read_at(192 << 10, &mut out).unwrap();
                assert!(out == data[192 << 10..][..out.len()], "it is open");
            }
            1 => {
                let mut file = fs.open_random("/000001.sst", false).unwrap();
                file.write_at(300_000, &[7; 5000]).unwrap();
                file.close().unwrap();
                let mut at = vec![0; 5000];
                reader.read_at(300_000, &mut at).unwrap();
                assert!(at == [7; 5000]);
            }
            _ => {}
        }
        drop((reader, fs));
        assert_eq!(Arc::strong_count(&machine.survivor), 1, "round {round}: somebody still has the drive");
    }
}

#[test]
fn what_cannot_be_read_ahead_is_an_error_only_for_who_asks_for_it() {
    for bad in [300_000, 1_000_000, 1_000_000 + 128 * 1024, 2_500_000] {
        let (machine, fs, data) = table(2 << 20);
        let run =
            fs.runs("/000001.sst").unwrap().into_iter().find(|run| (run.logical..run.logical + run.len).contains(&bad));
        let run = run.unwrap();
        let block = (run.address + bad - run.logical) / 4096 * 4096;
        machine.emulator.faults().media_error(block, 4096);
        let hurt = block + run.logical - run.address..block + run.logical - run.address + 4096;
        let reader = fs.open_read("/000001.sst").unwrap();
        let mut out = vec![0; 4096];
        for (i, piece) in data.chunks(4096).enumerate() {
            let at = i as u64 * 4096;
            match reader.read_at(at, &mut out) {
                Ok(n) => {
                    assert!(n == piece.len() && out == piece && (hurt.end <= at || at + 4096 <= hurt.start), "{at}")
                }
                Err(error) => assert!(hurt.start < at + 4096 && at < hurt.end, "{at}: {error}"),
            }
        }
        assert!(
            machine.emulator.stats().by_cause["readahead"].bytes_read > 2 << 20,
            "the rest is read ahead as before"
        );
        // Nobody remembers the error.
        machine.emulator.faults().clear();
        assert!(read_all(&fs, "/000001.sst") == data);
    }
}

#[test]
fn where_the_cache_is_not_there_or_too_small_nothing_is_read_ahead() {
    for cache_bytes in [0, 64 << 10] {
        let (machine, fs, data) = table(2 << 20);
        drop(fs);
        let mut options = Options { cache_bytes, ..options() };
        options.volume.exec = Exec::Threads(1);
        let fs = BlueFs::mount(machine.drive(), options).unwrap();
        machine.emulator.reset_stats();
        let reader = fs.open_read("/000001.sst").unwrap();
        let mut out = vec![0; 4096];
        for (i, piece) in data.chunks(4096).enumerate() {
            reader.read_at(i as u64 * 4096, &mut out).unwrap();
            assert!(out == piece);
        }
        let ahead = machine.emulator.stats().by_cause["readahead"].bytes_read;
        assert_eq!(ahead, 0, "{cache_bytes} bytes");
    }
}

#[test]
fn readers_of_many_tables_get_their_own_bytes_and_the_unmount_waits_for_nobody() {
    let (machine, fs, data) = table(2 << 20);
    for n in 2..6 {
        let file = fs.create(&format!("/{n:06}.sst"), CreateOptions::default()).unwrap();
        file.append(&bytes(3 << 20, n)).unwrap();
    }
    std::thread::scope(|scope| {
        for n in 1..6_u8 {
            let (fs, data) = (&fs, if n == 1 { data.clone() } else { bytes(3 << 20, n) });
            scope.spawn(move || {
                let reader = fs.open_read(&format!("/{n:06}.sst")).unwrap();
                let mut out = vec![0; 20_000];
                for at in (0..data.len()).step_by(out.len()) {
                    let n = reader.read_at(at as u64, &mut out).unwrap();
                    assert!(n > 0 && out[..n] == data[at..at + n]);
                }
            });
        }
        scope.spawn(|| {
            // Whoever flushes meanwhile holds up windows, not readers.
            for n in 0..20 {
                fs.mkdir(&format!("/{n}")).unwrap();
                fs.sync_dir("/").unwrap();
            }
        });
    });
    let reader = fs.open_read("/000003.sst").unwrap();
    let mut out = vec![0; 64 << 10];
    (0..4).for_each(|i| assert_eq!(reader.read_at(i * (64 << 10), &mut out).unwrap(), out.len()));
    drop(fs);
    drop(reader);
    assert_eq!(Arc::strong_count(&machine.survivor), 1);
}

/// Bytes in place can be overwritten once a table is closed, whatever it is called by then.
#[test]
fn a_table_that_bears_a_logs_name_is_written_when_it_is_closed() {
    let machine = Machine::new();
    let fs = BlueFs::mount(machine.drive(), options()).unwrap();
    fs.create("/000001.sst", CreateOptions::default()).unwrap().close().unwrap();
    fs.rename("/000001.sst", "/000001.log").unwrap();
    let mut data = bytes(100_001, 3);
    let mut table = fs.reopen("/000001.log").unwrap();
    table.append(&data).unwrap();
    table.close().unwrap();
    fs.open_random("/000001.log", false).unwrap().write_at(8190, b"sequence").unwrap();
    data[8190..8198].copy_from_slice(b"sequence");
    assert!(read_all(&fs, "/000001.log") == data);
}
