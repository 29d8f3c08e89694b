//! Zones that files share, and their cleaning, against a model in memory: tables, logs and small files of random sizes, hints and
//! announced sizes on a small drive that is filled again and again; deletions, readers of deleted files, kills, remounts.
//!
//! Held: every byte that was accepted is there; a check finds nothing; no rule of the drive is broken; a drive that refused a table
//! takes it once enough was deleted; and it takes a table as large as it says.

use crate::support::{bytes, read_all};
use imbrex_bluefs::{BlueFs, Code, CreateOptions, Options, Reader};
use imbrex_device::{Cause, Drive, HeapSurvivor};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ZONE: u64 = 256 << 10;

/// A file to be written: what kind, how many bytes, which hint, and whether its size is announced.
#[derive(Clone, Copy, Debug)]
struct Spec {
    kind: Kind,
    len: usize,
    hint: u8,
    announced: bool,
    seed: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Table,
    Wal,
    Small,
}

#[derive(Clone, Debug)]
enum Op {
    Write(Spec),
    /// More of one of the files.
    Append(usize, usize, u8),
    /// 8 bytes of one of the tables.
    Overwrite(usize, usize, u8),
    Delete(usize),
    /// A reader of one of the files, which stays.
    Hold(usize),
    LetGo,
    /// Tables of about this size until the drive takes no more; then every second one goes, and the one that was refused is
    /// written again.
    Fill(usize, u8),
    /// One table, as large as the drive says that it takes.
    Believe(u8),
    Step,
    /// What is done at rest.
    Pack,
    Remount,
    Kill,
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let kind = prop_oneof![6 => Just(Kind::Table), 2 => Just(Kind::Wal), 1 => Just(Kind::Small)];
    let len = prop_oneof![1usize..200, 4000usize..4200, 1usize..70_000, 200_000usize..700_000];
    (kind, len, 0u8..6, any::<bool>(), any::<u8>()).prop_map(|(kind, len, hint, announced, seed)| {
        let len = if kind == Kind::Small { len.min(8000) } else { len };
        Spec { kind, len, hint, announced, seed }
    })
}

fn any_op() -> impl Strategy<Value = Op> {
    let file = any::<usize>();
    prop_oneof![
        10 => any_spec().prop_map(Op::Write),
        2 => (file, 1usize..50_000, any::<u8>()).prop_map(|(f, n, s)| Op::Append(f, n, s)),
        2 => (file, any::<usize>(), any::<u8>()).prop_map(|(f, at, s)| Op::Overwrite(f, at, s)),
        8 => file.prop_map(Op::Delete),
        2 => file.prop_map(Op::Hold),
        1 => Just(Op::LetGo),
        3 => (1000usize..200_000, any::<u8>()).prop_map(|(n, s)| Op::Fill(n, s)),
        3 => any::<u8>().prop_map(Op::Believe),
        2 => Just(Op::Step),
        2 => Just(Op::Pack),
        1 => Just(Op::Remount),
        2 => Just(Op::Kill),
    ]
}

struct World {
    emulator: Emulator,
    survivor: Arc<HeapSurvivor>,
    fs: Option<BlueFs>,
    exec: Exec,
    next: usize,
    files: BTreeMap<String, Vec<u8>>,
    held: Vec<(Reader, Vec<u8>)>,
    cleaned: u64,
    /// Zones that were emptied at rest.
    packed: u64,
    /// Tables that were written because the drive said that it had room for them.
    believed: u64,
}

fn options(exec: Exec) -> Options {
    let mut options = crate::support::options();
    options.volume.exec = exec;
    options
}

impl World {
    fn new(exec: Exec) -> World {
        let small = Config { zone_size: ZONE, zone_capacity: ZONE, capacity: 7 << 20, ..Config::tiny() };
        let emulator = Emulator::memory(&small).unwrap();
        let survivor = Arc::new(HeapSurvivor::new());
        let mut world = World {
            emulator,
            survivor,
            fs: None,
            exec,
            next: 0,
            files: BTreeMap::new(),
            held: Vec::new(),
            cleaned: 0,
            packed: 0,
            believed: 0,
        };
        BlueFs::format(&world.drive(), false).unwrap();
        world.mount();
        world
    }

    fn drive(&self) -> Drive {
        Drive { device: Arc::new(self.emulator.clone()), survivor: Some(self.survivor.clone()) }
    }

    fn mount(&mut self) {
        let fs = BlueFs::mount(self.drive(), options(self.exec)).unwrap();
        assert_eq!(fs.mount_report().damage, Vec::<String>::new());
        self.fs = Some(fs);
    }

    fn fs(&self) -> &BlueFs {
        self.fs.as_ref().unwrap()
    }

    fn nth(&self, n: usize) -> Option<String> {
        let some = self.files.len().checked_sub(1)?;
        self.files.keys().nth(n % (some + 1)).cloned()
    }

    /// Writes a file; false: it was refused, and is gone.
    fn write(&mut self, spec: Spec) -> Result<bool, TestCaseError> {
        let n = self.next;
        self.next += 1;
        let path = match spec.kind {
            Kind::Table => format!("/{n:06}.sst"),
            Kind::Wal => format!("/{n:06}.log"),
            Kind::Small => format!("/OPTIONS-{n:06}"),
        };
        let data = bytes(spec.len, spec.seed);
        let written = (|| {
            let mut file = self.fs().create(&path, CreateOptions::default())?;
            if spec.kind == Kind::Table {
                file.set_hint(spec.hint)?;
                if spec.announced {
                    file.preallocate(spec.len as u64)?;
                }
            }
            for piece in data.chunks(30_000) {
                file.append(piece)?;
            }
            file.sync()?;
            file.close()
        })();
        match written {
            Ok(()) => {
                self.files.insert(path, data);
                Ok(true)
            }
            Err(why) => {
                let why: imbrex_bluefs::Error = why;
                prop_assert_eq!(why.code(), Code::NoSpace, "{}", why);
                self.fs().unlink(&path).unwrap();
                Ok(false)
            }
        }
    }

    fn delete(&mut self, path: &str) {
        self.fs().unlink(path).unwrap();
        self.files.remove(path);
    }

    fn fill(&mut self, len: usize, seed: u8) -> Result<(), TestCaseError> {
        let mut refused = None;
        for n in 0..2000usize {
            let len = len / 2 + n * 7919 % len;
            let spec = Spec { kind: Kind::Table, len, hint: (n % 3) as u8, announced: false, seed: seed ^ n as u8 };
            if !self.write(spec)? {
                refused = Some(spec);
                break;
            }
        }
        let Some(spec) = refused else { return Ok(()) };
        self.compare()?;
        // What readers hold stays where it is.
        self.held.clear();
        let tables: Vec<String> = self.files.keys().filter(|path| path.ends_with(".sst")).cloned().collect();
        let gone: Vec<&String> = tables.iter().step_by(2).collect();
        let freed: usize = gone.iter().map(|path| self.files[*path].len()).sum();
        gone.iter().for_each(|path| self.delete(path));
        self.rest()?;
        let enough = spec.len as u64 + 3 * ZONE;
        if freed as u64 >= enough {
            prop_assert!(self.write(spec)?, "{:?} was refused although {} bytes were deleted", spec, freed);
        }
        Ok(())
    }

    /// What the drive says that it takes, it takes.
    fn believe(&mut self, seed: u8) -> Result<(), TestCaseError> {
        let free = self.fs().space().free;
        if free == 0 {
            return Ok(());
        }
        self.believed += 1;
        let spec = Spec { kind: Kind::Table, len: free as usize, hint: seed % 6, announced: seed & 8 > 0, seed };
        prop_assert!(self.write(spec)?, "{} bytes were to be had, and {:?} was refused", free, spec);
        let path = format!("/{:06}.sst", self.next - 1);
        if seed & 16 > 0 {
            self.delete(&path);
        }
        Ok(())
    }

    /// Background work is done, as threads do it.
    fn rest(&self) -> Result<(), TestCaseError> {
        self.fs().sync_all().unwrap();
        while self.fs().step().unwrap() {}
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let names: Vec<String> = self.fs().list("/").unwrap().into_iter().map(|e| format!("/{}", e.name)).collect();
        prop_assert_eq!(names, self.files.keys().cloned().collect::<Vec<_>>());
        for (path, want) in &self.files {
            let got = read_all(self.fs(), path);
            let wrong = want.iter().zip(&got).position(|(a, b)| a != b);
            prop_assert!(wrong.is_none() && want.len() == got.len(), "{} differs at {:?}", path, wrong);
        }
        for (reader, want) in &self.held {
            let mut got = vec![0; want.len()];
            prop_assert_eq!(reader.read_at(0, &mut got).unwrap(), want.len());
            prop_assert!(got == *want, "a file that is held open differs");
        }
        let problems = self.fs().check(|_, _| {}).unwrap().problems;
        prop_assert_eq!(problems, Vec::<String>::new());
        Ok(())
    }

    fn run(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Write(spec) => drop(self.write(spec)?),
            Op::Append(n, len, seed) => {
                let Some(path) = self.nth(n) else { return Ok(()) };
                let more = bytes(len, seed);
                let mut file = self.fs().reopen(&path).unwrap();
                let refused = file.append(&more).and_then(|()| file.sync()).and_then(|()| file.close());
                let len = file.len() as usize;
                drop(file);
                let content = self.files.get_mut(&path).unwrap();
                match refused {
                    Ok(()) => content.extend(more),
                    Err(why) => {
                        prop_assert_eq!(why.code(), Code::NoSpace, "{}", why);
                        content.extend(&more[..len - content.len()]);
                    }
                }
            }
            Op::Overwrite(n, at, seed) => {
                let Some(path) = self.nth(n).filter(|path| path.ends_with(".sst")) else { return Ok(()) };
                let room = self.files[&path].len().saturating_sub(8);
                if room == 0 || !self.held.is_empty() {
                    return Ok(());
                }
                let at = at % room;
                let mut file = self.fs().open_random(&path, false).unwrap();
                match file.write_at(at as u64, &[seed; 8]) {
                    Ok(()) => self.files.get_mut(&path).unwrap()[at..at + 8].copy_from_slice(&[seed; 8]),
                    Err(why) => prop_assert_eq!(why.code(), Code::NoSpace, "{}", why),
                }
                file.close().unwrap();
            }
            Op::Delete(n) => {
                if let Some(path) = self.nth(n) {
                    self.delete(&path);
                }
            }
            Op::Hold(n) => {
                if let Some(path) = self.nth(n).filter(|_| self.held.len() < 4) {
                    self.held.push((self.fs().open_read(&path).unwrap(), self.files[&path].clone()));
                }
            }
            Op::LetGo => self.held.clear(),
            Op::Fill(len, seed) => self.fill(len, seed)?,
            Op::Believe(seed) => self.believe(seed)?,
            Op::Step => drop(self.fs().step().unwrap()),
            Op::Pack => {
                self.packed += u64::from(self.fs().pack().unwrap().zones);
                prop_assert_eq!(self.fs().pack().unwrap().zones, 0, "it was not done");
                self.compare()?;
            }
            Op::Remount => {
                self.held.clear();
                self.fs = None;
                self.mount();
                prop_assert!(self.fs().mount_report().clean);
                self.compare()?;
            }
            Op::Kill if self.exec == Exec::Inline => {
                let (emulator, survivor) = (self.emulator.fork().unwrap(), Arc::new(self.survivor.snapshot()));
                self.cleaned += self.emulator.stats().of(Cause::Cleaning).bytes_written;
                prop_assert_eq!(self.emulator.stats().total.rule_violations, 0);
                self.held.clear();
                self.fs = None;
                (self.emulator, self.survivor) = (emulator, survivor);
                self.mount();
                self.compare()?;
            }
            Op::Kill => {}
        }
        Ok(())
    }
}

/// Bytes that were moved, zones that were emptied at rest, and tables that were written on the drive's word.
fn run(ops: Vec<Op>, exec: Exec) -> Result<[u64; 3], TestCaseError> {
    let mut world = World::new(exec);
    for op in ops {
        world.run(op)?;
    }
    world.compare()?;
    // After all was deleted there is room for a table of half the drive.
    world.held.clear();
    for path in world.files.keys().cloned().collect::<Vec<_>>() {
        world.delete(&path);
    }
    world.rest()?;
    let half = Spec { kind: Kind::Table, len: 3 << 20, hint: 0, announced: false, seed: 9 };
    prop_assert!(world.write(half)?, "an empty drive refuses a table");
    world.compare()?;
    world.fs = None;
    let stats = world.emulator.stats();
    prop_assert_eq!(stats.total.rule_violations, 0);
    Ok([world.cleaned + stats.of(Cause::Cleaning).bytes_written, world.packed, world.believed])
}

/// The same cases in every run; `PROPTEST_RNG_SEED` gives others, `PROPTEST_CASES` more.
fn config(cases: u32) -> ProptestConfig {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let rng_seed = proptest::test_runner::RngSeed::Fixed(number("PROPTEST_RNG_SEED").unwrap_or(11));
    let cases = number("PROPTEST_CASES").map_or(cases, |n| n as u32);
    ProptestConfig { cases, failure_persistence: None, rng_seed, ..ProptestConfig::default() }
}

/// Runs the cases; at least some of them must have moved something.
fn all(cases: u32, exec: Exec) {
    let mut runner = proptest::test_runner::TestRunner::new(config(cases));
    let sums = [const { AtomicU64::new(0) }; 3];
    let cases = prop::collection::vec(any_op(), 1..40);
    let result = runner.run(&cases, |ops| {
        for (sum, n) in sums.iter().zip(run(ops, exec)?) {
            sum.fetch_add(n, Ordering::Relaxed);
        }
        Ok(())
    });
    if let Err(why) = result {
        panic!("{why}");
    }
    let [moved, packed, believed] = sums;
    assert!(moved.into_inner() > 0, "no case cleaned anything");
    assert!(packed.into_inner() > 0, "no case packed anything");
    assert!(believed.into_inner() > 0, "no drive had room for anything");
}

#[test]
fn shared_and_cleaned_zones_behave_like_the_model() {
    all(48, Exec::Inline);
}

#[test]
fn shared_and_cleaned_zones_behave_like_the_model_with_threads() {
    all(24, Exec::Threads(2));
}
