//! A process with several writers is killed at any moment, again and again on one drive: whatever was acknowledged to any of
//! its threads is there, and of what each was doing a part that makes sense.
//!
//! The test starts itself as the child. Each thread of the child writes one byte to a pipe behind every operation that has
//! returned, so the parent, which reads them and knows the seed, knows what was acknowledged; what follows is compared file
//! by file, byte by byte.

use imbrex_bluefs::{BlueFs, CreateOptions, FileKind, Options, Writer};
use imbrex_device::{Drive, ZonedDevice};
use imbrex_drives::survivor::ShmSurvivor;
use imbrex_emulator::{Config, Emulator, OpenOptions, Overrides};
use imbrex_zones::VolumeOptions;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const TEST: &str = "kill::a_process_of_many_writers_that_is_killed_loses_nothing_acknowledged";
const DIRECTORY: &str = "IMBREX_KILL_DIRECTORY";
const ROUND: &str = "IMBREX_KILL_ROUND";
const WRITERS: u8 = 4;
/// One of each kind of file, and a second log.
const NAMES: [&str; 5] = ["000001.log", "000002.log", "000003.sst", "CURRENT", "MANIFEST-000004"];
/// Bytes of one thread's files at most.
const MOST_BYTES: u64 = 1 << 20;

/// What a thread does next. Names are places in [`NAMES`].
#[derive(Clone, Copy, Debug)]
enum Op {
    Create(usize),
    /// Bytes to this file.
    Append(usize, u64),
    Sync(usize),
    Close(usize),
    Rename(usize, usize),
    Unlink(usize),
}

/// A thread's files: which file it is (the number of the operation that made it) and how long.
#[derive(Clone, Default, Debug)]
struct Model {
    files: BTreeMap<usize, (u64, u64)>,
    done: u64,
}

impl Model {
    fn next(&self, rng: &mut ChaCha8Rng) -> Op {
        let name = rng.random_range(0..NAMES.len());
        let chance = rng.random_range(0..100);
        let len = 1 << rng.random_range(0..15);
        let len = rng.random_range(1..=len);
        let total: u64 = self.files.values().map(|(_, len)| len).sum();
        let largest = self.files.iter().max_by_key(|(_, (_, len))| *len).map(|(name, _)| *name);
        match (self.files.contains_key(&name), chance) {
            _ if total > MOST_BYTES => Op::Unlink(largest.unwrap_or(name)),
            (false, _) => Op::Create(name),
            (_, 0..60) => Op::Append(name, len),
            (_, 60..78) => Op::Sync(name),
            (_, 78..84) => Op::Close(name),
            (_, 84..92) => Op::Rename(name, (name + 1) % NAMES.len()),
            (_, 92..97) => Op::Unlink(name),
            _ => Op::Create(name),
        }
    }

    fn apply(&mut self, op: Op) {
        self.done += 1;
        match op {
            Op::Create(name) => drop(self.files.insert(name, (self.done, 0))),
            Op::Append(name, n) => {
                if let Some((_, len)) = self.files.get_mut(&name) {
                    *len += n;
                }
            }
            Op::Sync(_) | Op::Close(_) => {}
            Op::Rename(from, to) => {
                if let Some(file) = self.files.remove(&from) {
                    self.files.insert(to, file);
                }
            }
            Op::Unlink(name) => drop(self.files.remove(&name)),
        }
    }
}

/// The byte at an offset of a file.
fn byte(writer: u8, file: u64, at: u64) -> u8 {
    ((at * 31 + file * 97 + u64::from(writer) * 13).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn seeded(round: u64, writer: u8) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(round * 100 + u64::from(writer))
}

fn home(round: u64, writer: u8) -> String {
    format!("/{round}-{writer}")
}

fn path(home: &str, name: usize) -> String {
    format!("{home}/{}", NAMES[name])
}

fn mount(directory: &Path) -> BlueFs {
    let emulator = Emulator::open(&directory.join("drive.img"), OpenOptions::default()).unwrap();
    let survivor = ShmSurvivor::in_dir(emulator.identity(), directory);
    let drive = Drive { device: Arc::new(emulator), survivor: Some(Arc::new(survivor)) };
    // Small, so that writers meet everything that happens when memory or the journal is full.
    let volume = VolumeOptions { survivor_bytes: 2 << 20, unit_bytes: 16 << 10, ..VolumeOptions::default() };
    let options = Options {
        cache_bytes: 1 << 20,
        journal_bytes: 128 << 10,
        segment_bytes: 64 << 10,
        volume,
        ..Options::default()
    };
    BlueFs::mount(drive, options).unwrap()
}

/// One thread of the child; never returns.
fn write(fs: &BlueFs, round: u64, writer: u8) {
    let (home, mut rng, mut model) = (home(round, writer), seeded(round, writer), Model::default());
    let mut writers: HashMap<usize, Writer> = HashMap::new();
    loop {
        let op = model.next(&mut rng);
        let is = |name: usize| path(&home, name);
        let open = |writers: &mut HashMap<usize, Writer>, name: usize| {
            writers.entry(name).or_insert_with(|| fs.reopen(&path(&home, name)).unwrap());
        };
        match op {
            Op::Create(name) => {
                drop(writers.remove(&name));
                writers.insert(name, fs.create(&is(name), CreateOptions::default()).unwrap());
            }
            Op::Append(name, n) => {
                open(&mut writers, name);
                let (file, len) = model.files[&name];
                let bytes: Vec<u8> = (len..len + n).map(|at| byte(writer, file, at)).collect();
                writers[&name].append(&bytes).unwrap();
            }
            Op::Sync(name) => {
                open(&mut writers, name);
                writers[&name].sync().unwrap();
            }
            Op::Close(name) => drop(writers.remove(&name)),
            Op::Rename(from, to) => {
                // What has the new name stays open until it is gone; what gets it is written on.
                let replaced = writers.remove(&to);
                fs.rename(&is(from), &is(to)).unwrap();
                drop(replaced);
                if let Some(moved) = writers.remove(&from) {
                    writers.insert(to, moved);
                }
            }
            Op::Unlink(name) => {
                fs.unlink(&is(name)).unwrap();
                drop(writers.remove(&name));
            }
        }
        model.apply(op);
        std::io::stderr().write_all(&[b'0' + writer]).unwrap();
    }
}

fn child(directory: &Path, round: u64) {
    let fs = mount(directory);
    (0..WRITERS).for_each(|writer| fs.mkdir(&home(round, writer)).unwrap());
    std::io::stderr().write_all(b"\n").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let fs = &fs;
            scope.spawn(move || {
                // A thread that fails ends the process, and with it the round.
                let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| write(fs, round, writer)));
                std::process::exit(if failed.is_err() { 101 } else { 102 });
            });
        }
    });
}

/// Starts a child, waits for so many acknowledgements and kills it. How many each thread got.
fn killed_after(directory: &Path, round: u64, acknowledgements: usize) -> [usize; WRITERS as usize] {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture"]).env(DIRECTORY, directory).env(ROUND, round.to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stderr.take().unwrap();
    let (mut seen, mut buf, mut counted) = (Vec::new(), [0; 4096], 0);
    let mut alive = true;
    loop {
        let n = pipe.read(&mut buf).unwrap();
        if n == 0 {
            break;
        }
        seen.extend_from_slice(&buf[..n]);
        counted += n;
        if alive && counted > acknowledgements {
            child.kill().unwrap();
            alive = false;
        }
    }
    let status = child.wait().unwrap();
    let text = String::from_utf8_lossy(&seen);
    assert!(!alive && status.code().is_none(), "round {round}: the child ended by itself ({status}): {text}");
    let (before, marks) = text.split_once('\n').unwrap_or_else(|| panic!("round {round}: {text}"));
    assert!(before.is_empty() && marks.bytes().all(|mark| (b'0'..b'0' + WRITERS).contains(&mark)), "{text}");
    std::array::from_fn(|writer| marks.bytes().filter(|mark| *mark == b'0' + writer as u8).count())
}

/// A thread's files as they are: names, and what is in them.
fn contents(fs: &BlueFs, home: &str) -> BTreeMap<usize, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs.list(home).unwrap() {
        let name = NAMES.iter().position(|name| *name == entry.name).unwrap_or_else(|| panic!("{}", entry.name));
        assert_ne!(entry.attributes.kind, FileKind::Directory);
        let reader = fs.open_read(&path(home, name)).unwrap();
        let mut bytes = vec![0; reader.size() as usize];
        assert_eq!(reader.read_at(0, &mut bytes).unwrap(), bytes.len());
        files.insert(name, bytes);
    }
    files
}

fn is(writer: u8, left: &BTreeMap<usize, Vec<u8>>, model: &Model) -> bool {
    let whole = |name: &usize, (file, len): &(u64, u64)| {
        let same = |bytes: &Vec<u8>| (0..).zip(bytes).all(|(at, is)| *is == byte(writer, *file, at));
        left.get(name).is_some_and(|bytes| bytes.len() as u64 == *len && same(bytes))
    };
    left.len() == model.files.len() && model.files.iter().all(|(name, file)| whole(name, file))
}

/// What is left is what stood there before the operation that was cut, or behind it, or, of an append, a part.
fn check(fs: &BlueFs, round: u64, writer: u8, acknowledged: usize) {
    let (mut rng, mut model) = (seeded(round, writer), Model::default());
    for _ in 0..acknowledged {
        let op = model.next(&mut rng);
        model.apply(op);
    }
    let left = contents(fs, &home(round, writer));
    let cut = model.next(&mut rng);
    let mut behind = model.clone();
    behind.apply(cut);
    let mut possible = vec![model.clone(), behind];
    if let Op::Append(name, _) = cut {
        let file = model.files[&name];
        let mut part = model.clone();
        let len = left.get(&name).map_or(0, |bytes| bytes.len() as u64);
        let most = possible[1].files[&name].1;
        part.files.insert(name, (file.0, len.clamp(file.1, most)));
        possible.push(part);
    }
    let lengths: Vec<_> = left.iter().map(|(name, bytes)| (NAMES[*name], bytes.len())).collect();
    assert!(
        possible.iter().any(|model| is(writer, &left, model)),
        "round {round}, thread {writer}: after {acknowledged} acknowledged operations and a part of {cut:?} there is \
         {lengths:?}, and there was {model:?}"
    );
}

#[test]
fn a_process_of_many_writers_that_is_killed_loses_nothing_acknowledged() {
    if let (Ok(directory), Ok(round)) = (std::env::var(DIRECTORY), std::env::var(ROUND)) {
        return child(Path::new(&directory), round.parse().unwrap());
    }
    let rounds = std::env::var("ROUNDS").ok().and_then(|n| n.trim().parse().ok()).unwrap_or(30);
    let directory = tempfile::tempdir().unwrap();
    let overrides = Overrides { capacity: Some(256 << 20), ..Overrides::default() };
    let config = Config::named("tiny", &overrides).unwrap();
    let emulator = Emulator::create(&directory.path().join("drive.img"), &config, false).unwrap();
    BlueFs::format(&Drive { device: Arc::new(emulator), survivor: None }, false).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut replayed = 0;
    for round in 0..rounds {
        let acknowledged = killed_after(directory.path(), round, rng.random_range(10..2000));
        let fs = mount(directory.path());
        assert_eq!(fs.mount_report().damage, Vec::<String>::new(), "round {round}");
        replayed += fs.mount_report().replayed_bytes;
        (0..WRITERS).for_each(|writer| check(&fs, round, writer, acknowledged[usize::from(writer)]));
        assert_eq!(fs.check(|_, _| {}).unwrap().problems, Vec::<String>::new(), "round {round}");
        for writer in 0..WRITERS {
            let home = home(round, writer);
            contents(&fs, &home).keys().for_each(|name| fs.unlink(&path(&home, *name)).unwrap());
            fs.rmdir(&home).unwrap();
        }
    }
    assert!(replayed > 0, "nothing was ever left in memory: the kills tested nothing");
}
