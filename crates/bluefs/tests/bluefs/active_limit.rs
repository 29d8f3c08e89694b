//! Drives that limit active zones, as ZNS SSDs do: the limit costs zones that are finished early, never an error.

use imbrex_bluefs::{BlueFs, CreateOptions, Options, Writer};
use imbrex_device::{Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

fn options(exec: Exec) -> Options {
    let volume = VolumeOptions { exec, survivor_bytes: 4 << 20, unit_bytes: 16 << 10, turn_bytes: 256 << 10 };
    Options { cache_bytes: 0, journal_bytes: 64 << 10, segment_bytes: 64 << 10, volume, ..Options::default() }
}

fn zns(limit: u32) -> Config {
    Config {
        conventional: 0,
        zone_capacity: 768 << 10,
        max_open: Some(limit),
        max_active: Some(limit),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        ..Config::tiny()
    }
}

struct Machine {
    emulator: Emulator,
    survivor: Arc<HeapSurvivor>,
}

impl Machine {
    fn new(config: &Config) -> Machine {
        let emulator = Emulator::memory(config).unwrap();
        let machine = Machine { emulator, survivor: Arc::new(HeapSurvivor::new()) };
        BlueFs::format(&machine.drive(), false).unwrap();
        machine
    }

    fn drive(&self) -> Drive {
        Drive { device: Arc::new(self.emulator.clone()), survivor: Some(self.survivor.clone()) }
    }

    /// What a kill at this moment leaves.
    fn killed(&self) -> Machine {
        Machine { emulator: self.emulator.fork().unwrap(), survivor: Arc::new(self.survivor.snapshot()) }
    }

    /// Rules that were broken, by name.
    fn violations(&self) -> Vec<(&'static str, u64)> {
        self.emulator.stats().by_rule.into_iter().filter(|(_, n)| *n > 0).collect()
    }
}

fn byte(file: usize, at: usize) -> u8 {
    ((at as u32).wrapping_mul(2_654_435_761).wrapping_add(file as u32 * 77) >> 13) as u8
}

struct Growing {
    file: usize,
    len: usize,
    writer: Option<Writer>,
}

impl Growing {
    fn path(&self) -> String {
        match self.file % 4 {
            0 => format!("/{:06}.log", self.file),
            1 => format!("/{:06}.sst", self.file),
            2 => format!("/MANIFEST-{:06}", self.file),
            _ => format!("/db{}.ldb", self.file),
        }
    }

    fn open(&mut self, fs: &BlueFs) {
        self.writer = Some(fs.reopen(&self.path()).unwrap());
    }

    fn grow(&mut self, n: usize) {
        let bytes: Vec<u8> = (self.len..self.len + n).map(|at| byte(self.file, at)).collect();
        self.writer.as_mut().unwrap().append(&bytes).unwrap();
        self.len += n;
    }

    fn check(&self, fs: &BlueFs) {
        let reader = fs.open_read(&self.path()).unwrap();
        assert_eq!(reader.size() as usize, self.len, "{}", self.path());
        let mut out = vec![0; self.len];
        assert_eq!(reader.read_at(0, &mut out).unwrap(), self.len);
        let wrong = (0..self.len).find(|at| out[*at] != byte(self.file, *at));
        assert_eq!(wrong, None, "{}", self.path());
    }
}

/// Far more files are written at once, by turns, than zones may be active; some are synced, some deleted while open.
#[test]
fn more_files_grow_at_once_than_zones_may_be_active() {
    for limit in [6, 8, 14] {
        let mut machine = Machine::new(&zns(limit));
        let mut files: Vec<Growing> = (0..12).map(|file| Growing { file, len: 0, writer: None }).collect();
        for mount in 0..3 {
            let fs = BlueFs::mount(machine.drive(), options(Exec::Inline)).unwrap();
            assert_eq!(fs.mount_report().damage, Vec::<String>::new(), "limit {limit}, mount {mount}");
            files.iter().filter(|f| f.len > 0).for_each(|f| f.check(&fs));
            files.iter_mut().for_each(|f| f.open(&fs));
            for round in 0..6usize {
                for f in &mut files {
                    f.grow(1 + (f.file * 7919 + round * 104_729 + mount) % 30_000);
                    if (f.file + round).is_multiple_of(5) {
                        f.writer.as_mut().unwrap().sync().unwrap();
                    }
                }
                let passing = format!("/9{round:05}.sst");
                let mut writer = fs.create(&passing, CreateOptions::default()).unwrap();
                writer.append(&[7; 50_000]).unwrap();
                fs.unlink(&passing).unwrap();
                writer.append(&[8; 50_000]).unwrap();
                writer.close().unwrap();
            }
            files.iter().for_each(|f| f.check(&fs));
            if mount == 1 {
                for f in &mut files {
                    f.writer.take().unwrap().close().unwrap();
                }
                assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
                drop(fs);
            } else {
                let killed = machine.killed();
                files.iter_mut().for_each(|f| drop(f.writer.take()));
                drop(fs);
                machine = killed;
            }
            assert_eq!(machine.violations(), [], "limit {limit}: the drive never saw a rule broken");
        }
        let fs = BlueFs::mount(machine.drive(), options(Exec::Inline)).unwrap();
        assert_eq!(fs.mount_report().damage, Vec::<String>::new());
        files.iter().for_each(|f| f.check(&fs));
        assert_eq!(machine.violations(), [], "limit {limit}");
    }
}

/// The same with threads, each of which waits for zones of the others.
#[test]
fn threads_wait_for_each_others_zones() {
    let machine = Machine::new(&zns(6));
    let fs = BlueFs::mount(machine.drive(), options(Exec::Threads(2))).unwrap();
    let files: Vec<Growing> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|file| {
                let fs = &fs;
                scope.spawn(move || {
                    let mut growing = Growing { file, len: 0, writer: None };
                    growing.open(fs);
                    for round in 0..40usize {
                        growing.grow(1 + (file * 7919 + round * 104_729) % 60_000);
                        if (file + round).is_multiple_of(7) {
                            growing.writer.as_mut().unwrap().sync().unwrap();
                        }
                    }
                    growing.writer.take().unwrap().close().unwrap();
                    growing
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    files.iter().for_each(|f| f.check(&fs));
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    assert_eq!(machine.violations(), []);
}

/// Write-ahead logs of one directory that are written in turn, where one zone may be active for all of them: each waits for the one before it once, and none
/// for itself.
#[test]
fn logs_that_are_written_in_turn_share_one_active_zone() {
    let machine = Machine::new(&zns(6));
    let fs = BlueFs::mount(machine.drive(), options(Exec::Inline)).unwrap();
    let mut logs: Vec<Growing> = [4, 8, 12].into_iter().map(|file| Growing { file, len: 0, writer: None }).collect();
    for round in 0..30 {
        for (i, log) in logs.iter_mut().enumerate() {
            if (round + i) % 7 == 0 {
                drop(log.writer.take());
            }
            if log.writer.is_none() {
                log.open(&fs);
            }
            log.grow(1 + (round * 7919 + i) % 9000);
            if (round + i) % 3 > 0 {
                log.writer.as_mut().unwrap().sync().unwrap();
            }
        }
    }
    logs.iter().for_each(|log| log.check(&fs));
    drop(logs);
    assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new());
    assert_eq!(machine.violations(), []);
}

#[test]
fn a_limit_that_is_too_small_is_refused_with_the_smallest_that_works() {
    let emulator = Emulator::memory(&zns(5)).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    let error = BlueFs::format(&drive, false).unwrap_err().to_string();
    for part in [
        "can have 3 active zones beside those of the label",
        "4 are needed (bluefs 4)",
        "namespace with a higher limit",
    ] {
        assert!(error.contains(part), "{error}");
    }
    // With conventional zones the label takes none of them.
    let machine = Machine::new(&Config { conventional: 4, ..zns(4) });
    let fs = BlueFs::mount(machine.drive(), options(Exec::Inline)).unwrap();
    let mut files: Vec<Growing> = (0..5).map(|file| Growing { file, len: 0, writer: None }).collect();
    files.iter_mut().for_each(|f| f.open(&fs));
    (0..5).for_each(|_| files.iter_mut().for_each(|f| f.grow(70_000)));
    files.iter().for_each(|f| f.check(&fs));
    assert_eq!(machine.violations(), []);
}
