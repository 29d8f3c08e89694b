//! Random workloads under every crash: creates, appends, syncs, renames, links, deletions, truncations, overwriting and
//! files that are unlinked while open, on a few names in three directories, by one thread or by several that sync. `crash_support` says
//! what must be there after.
//!
//! `IMBREX_CRASH_ROUNDS=1000 cargo test -p imbrex-bluefs --test bluefs crash_random` explores that many workloads, `48..49` that one.

use crate::crash_support::{Model, Op, Path, Scripted, config, plan, zns};
use imbrex_crashkit::{Config, FaultKind, FaultPlan, explore, fault_sweep, seeds};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const DIRS: [Path; 2] = ["/d", "/e"];

/// Names in the root and in both directories; of the last of each file's, what a handle is called that outlives its name.
const NAMES: [(Path, Path); 18] = [
    ("/1.log", "held:/1.log"),
    ("/MANIFEST-2", "held:/MANIFEST-2"),
    ("/a.sst", "held:/a.sst"),
    ("/b.sst", "held:/b.sst"),
    ("/CURRENT", "held:/CURRENT"),
    ("/t", "held:/t"),
    ("/d/1.log", "held:/d/1.log"),
    ("/d/3.log", "held:/d/3.log"),
    ("/d/a.sst", "held:/d/a.sst"),
    ("/d/c.sst", "held:/d/c.sst"),
    ("/d/CURRENT", "held:/d/CURRENT"),
    ("/d/t", "held:/d/t"),
    ("/e/1.log", "held:/e/1.log"),
    ("/e/3.log", "held:/e/3.log"),
    ("/e/a.sst", "held:/e/a.sst"),
    ("/e/c.sst", "held:/e/c.sst"),
    ("/e/CURRENT", "held:/e/CURRENT"),
    ("/e/t", "held:/e/t"),
];

/// The few names of a workload of several threads, which meet at the same files.
const CROWDED: [Path; 5] = ["/a.sst", "/t", "/MANIFEST-2", "/d/1.log", "/d/3.log"];
/// Syncs that may be under way at once.
const SYNCS: u8 = 3;

/// Files that take zones of their own, dead ones included: so many fit on the drive.
const MOST_FILES: usize = 10;
const MOST_BYTES: usize = 280_000;
const MOST_SMALL: usize = 12_000;

fn is_log(path: &str) -> bool {
    path.ends_with(".log") || path.contains("MANIFEST")
}

fn is_small(path: &str) -> bool {
    !is_log(path) && !path.ends_with(".sst")
}

/// Makes up operations that are legal one after the other.
struct Author {
    rng: ChaCha8Rng,
    model: Model,
    /// Names of open handles, with their files.
    open: BTreeMap<Path, usize>,
    /// The name that each file was created with: it decides how the file is kept.
    born: Vec<Path>,
    /// Tables of which bytes were overwritten.
    overwritten: BTreeSet<usize>,
    /// Whether several threads are at work: syncs are cut into steps, between which everything else may come.
    crowd: bool,
    /// Syncs under way.
    syncs: BTreeSet<u8>,
    script: Vec<Op>,
}

impl Author {
    fn home(&self, path: &str) -> bool {
        DIRS.iter().all(|dir| !path.starts_with(dir) || self.model.dirs.contains(*dir))
    }

    fn file(&self, path: &str) -> Option<usize> {
        self.model.names.get(path).copied()
    }

    fn some_name(&mut self, fits: impl Fn(&Self, Path) -> bool) -> Option<(Path, Path)> {
        let here = |path: Path| !self.crowd || CROWDED.contains(&path);
        let all: Vec<(Path, Path)> = NAMES.into_iter().filter(|(path, _)| here(path) && fits(self, path)).collect();
        all.choose(&mut self.rng).copied()
    }

    fn some_handle(&mut self, fits: impl Fn(&Self, Path, usize) -> bool) -> Option<(Path, usize)> {
        let all: Vec<_> = self.open.iter().map(|(p, f)| (*p, *f)).filter(|(p, f)| fits(self, p, *f)).collect();
        all.choose(&mut self.rng).copied()
    }

    fn zones_taken(&self) -> usize {
        let model = &self.model;
        let alive = |file: &usize| {
            model.names.values().chain(model.held.values()).any(|f| f == file) && !is_small(self.born[*file])
        };
        (0..model.contents.len()).filter(alive).count()
    }

    fn write(&mut self, op: Op) {
        self.model.apply(&op);
        self.script.push(op);
    }

    fn bytes(&mut self) -> u32 {
        match self.rng.random_range(0..4) {
            0 => self.rng.random_range(1..200),
            1 => self.rng.random_range(4000..4200),
            2 => self.rng.random_range(1..20_000),
            _ => self.rng.random_range(1..90_000),
        }
    }

    /// The operation of this number, if there is something to do it to.
    #[expect(clippy::too_many_lines, reason = "an arm for each operation")]
    fn attempt(&mut self, what: u32) -> Option<()> {
        let seed = self.rng.random();
        match what {
            0..5 => {
                let roomy = self.zones_taken() < MOST_FILES;
                let (path, _) = self.some_name(|a, p| a.home(p) && (roomy || is_small(p)))?;
                self.write(Op::Create(path));
                self.born.push(path);
                self.open.insert(path, self.model.contents.len() - 1);
            }
            5..17 => {
                let n = self.bytes();
                let (path, _) = self.some_handle(|a, _, f| {
                    let most = if is_small(a.born[f]) { MOST_SMALL } else { MOST_BYTES };
                    a.model.contents[f].len() + n as usize <= most
                })?;
                self.write(Op::Append(path, n, seed));
            }
            17..23 => {
                let (path, _) = self.some_handle(|_, _, _| true)?;
                self.write(Op::Sync(path));
            }
            23..26 => {
                let (path, _) = self.some_handle(|_, _, _| true)?;
                self.write(Op::Close(path));
                self.open.remove(path);
            }
            26..29 => {
                let (path, _) = self.some_name(|a, p| a.file(p).is_some())?;
                self.write(Op::Reopen(path));
                let file = self.file(path)?;
                self.open.insert(path, file);
            }
            29..32 => {
                let (from, _) = self.some_name(|a, p| a.file(p).is_some())?;
                let (to, _) = self.some_name(|a, p| a.home(p) && a.file(p) != a.file(from))?;
                self.write(Op::Rename(from, to));
                self.open.remove(to);
                if let Some(file) = self.open.remove(from) {
                    self.open.insert(to, file);
                }
            }
            32..34 => {
                let (from, _) = self.some_name(|a, p| a.file(p).is_some())?;
                let (to, _) = self.some_name(|a, p| a.home(p) && a.file(p).is_none())?;
                self.write(Op::Link(from, to));
            }
            34..36 => {
                let (path, _) = self.some_name(|a, p| a.file(p).is_some())?;
                self.write(Op::Unlink(path));
                self.open.remove(path);
            }
            36..38 => {
                let (path, held) = self.some_name(|a, p| a.open.contains_key(p))?;
                if self.open.contains_key(held) {
                    return None;
                }
                self.write(Op::UnlinkHeld(path, held));
                let file = self.open.remove(path)?;
                self.open.insert(held, file);
            }
            38..40 => {
                let (held, _) = self.some_handle(|_, p, _| p.starts_with("held:"))?;
                self.write(Op::ReadHeld(held));
            }
            40..42 => {
                // Not tables of which bytes were overwritten: nothing can be appended to those any more.
                let (path, _) = self.some_name(|a, p| a.file(p).is_some_and(|f| !a.overwritten.contains(&f)))?;
                let size = self.model.contents[self.file(path)?].len() as u32;
                let to = self.rng.random_range(0..=size);
                self.write(Op::Truncate(path, to));
            }
            42..45 => {
                // In place, and where nobody is appending.
                let (path, _) = self.some_name(|a, p| {
                    let fits = |f: usize| {
                        !is_log(a.born[f]) && !a.open.values().any(|o| *o == f) && a.model.contents[f].len() > 8
                    };
                    a.file(p).is_some_and(fits)
                })?;
                let size = self.model.contents[self.file(path)?].len() as u32;
                let at = self.rng.random_range(0..size - 8);
                self.overwritten.extend(self.file(path).filter(|f| !is_small(self.born[*f])));
                self.write(Op::Overwrite(path, at, seed));
            }
            45 => {
                let (path, _) = self.some_name(|a, p| a.file(p).is_some())?;
                self.write(Op::SyncRandom(path));
            }
            46 => {
                let (path, _) = self.some_handle(|_, _, _| true)?;
                self.write(Op::Preallocate(path, 1 << 20));
            }
            47 => {
                let dir = DIRS.into_iter().find(|dir| !self.model.dirs.contains(*dir))?;
                self.write(Op::Mkdir(dir));
            }
            48 => self.attempt_on_directory()?,
            49..52 => self.write(Op::SyncDir),
            52..54 => self.write(Op::Step),
            54 => self.write(Op::Pack),
            55..57 => {
                self.write(Op::Remount);
                self.open.clear();
                self.syncs.clear();
            }
            _ => self.attempt_to_sync(what)?,
        }
        Some(())
    }

    /// A step of one of several syncs.
    fn attempt_to_sync(&mut self, what: u32) -> Option<()> {
        let sync = self.rng.random_range(0..SYNCS);
        match what {
            57..63 if !self.syncs.contains(&sync) => {
                let (path, _) = self.some_handle(|_, _, _| true)?;
                self.write(Op::SyncStart(path, sync));
                self.syncs.insert(sync);
            }
            63..70 if self.syncs.contains(&sync) => self.write(Op::SyncStep(sync)),
            70..75 if self.syncs.remove(&sync) => self.write(Op::SyncEnd(sync)),
            75 => self.write(Op::SyncAll),
            // More of what goes badly with them.
            76..78 => self.attempt(40)?,
            78..82 => self.attempt(17)?,
            82..88 => self.attempt(5)?,
            _ => {}
        }
        Some(())
    }

    fn attempt_on_directory(&mut self) -> Option<()> {
        let here: Vec<Path> = DIRS.into_iter().filter(|dir| self.model.dirs.contains(*dir)).collect();
        let from = *here.choose(&mut self.rng)?;
        let to = *DIRS.iter().find(|dir| **dir != from)?;
        if !self.model.names.keys().any(|path| path.starts_with(from)) {
            self.write(Op::Rmdir(from));
        } else if !self.model.dirs.contains(to) {
            self.write(Op::Rename(from, to));
            let moved = |path: Path| {
                let there = path.replacen(from, to, 1);
                NAMES.iter().find(|(p, _)| *p == there).map_or(path, |(p, _)| *p)
            };
            self.open = std::mem::take(&mut self.open).into_iter().map(|(p, f)| (moved(p), f)).collect();
        }
        Some(())
    }
}

fn write(seed: u64, kinds: u32, crowd: bool) -> Vec<Op> {
    let mut author = Author {
        rng: ChaCha8Rng::seed_from_u64(seed),
        model: Model::default(),
        open: BTreeMap::new(),
        born: Vec::new(),
        overwritten: BTreeSet::new(),
        crowd,
        syncs: BTreeSet::new(),
        script: Vec::new(),
    };
    while author.script.len() < if crowd { 80 } else { 50 } {
        let what = author.rng.random_range(0..kinds);
        let _ = author.attempt(what);
    }
    author.script
}

fn script(seed: u64) -> Vec<Op> {
    write(seed, 57, false)
}

/// For damage that comes in the middle: a mount would give lost files other names than the script goes on with, and looks
/// would see flipped bits that only the application can tell.
fn script_without_remounts(seed: u64) -> Vec<Op> {
    write(seed, 55, false).into_iter().filter(|op| !matches!(op, Op::ReadHeld(_))).collect()
}

fn script_of_several_threads(seed: u64) -> Vec<Op> {
    write(seed, 88, true)
}

fn subject(seed: u64, script: fn(u64) -> Vec<Op>) -> Arc<Scripted> {
    // Some journals are rewritten all the time, some never.
    Arc::new(Scripted { script, journal_bytes: [4 << 10, 64 << 10][seed as usize % 2], chain: &[] })
}

/// Every seed is tried; those that fail are told together.
fn each_seed(default: u64, look: impl Fn(u64) -> Result<(), imbrex_crashkit::Failure>) {
    let failed: Vec<String> =
        seeds(default).filter_map(|seed| look(seed).err().map(|failure| format!("seed {seed}: {failure}"))).collect();
    assert!(failed.is_empty(), "{} seeds fail:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn random_workloads_survive() {
    each_seed(24, |seed| {
        // Every other drive is one with few active zones.
        let drive = if seed % 2 == 1 { zns() } else { config() };
        let config = Config { write_cache: seed % 8 != 6, ..drive };
        explore(&subject(seed, script), &config, &plan(seed, 200)).map(|report| {
            // scripts/crash-states counts them.
            println!("seed {seed}: {} of {} states", report.states, report.possible);
        })
    });
}

#[test]
fn random_workloads_of_several_threads_survive() {
    each_seed(16, |seed| {
        let drive = if seed % 4 == 1 { zns() } else { config() };
        let config = Config { write_cache: seed % 8 != 6, ..drive };
        explore(&subject(seed, script_of_several_threads), &config, &plan(seed, 300)).map(drop)
    });
}

#[test]
fn random_workloads_of_several_threads_lose_nothing_by_a_fault() {
    each_seed(4, |seed| {
        let plan = FaultPlan { kinds: FaultKind::PASSING.to_vec(), max_runs: 60, ..FaultPlan::new(seed) };
        fault_sweep(&subject(seed, script_of_several_threads), &config(), &plan).map(drop)
    });
}

#[test]
fn random_workloads_lose_nothing_by_a_fault() {
    each_seed(6, |seed| {
        let plan = FaultPlan { kinds: FaultKind::PASSING.to_vec(), max_runs: 60, ..FaultPlan::new(seed) };
        // Larger zones than where only crashes are looked for: a ring of labels that is alone, because the other's zone has died, is
        // full some day.
        let zns = Config { zone_size: 1 << 20, zone_capacity: 768 << 10, capacity: 32 << 20, ..zns() };
        let drive = if seed % 2 == 1 { zns } else { config() };
        fault_sweep(&subject(seed, script), &drive, &plan).map(drop)
    });
}

#[test]
fn random_workloads_lose_by_damage_only_what_stood_there() {
    // Some that found something once.
    const FOUND: [u64; 10] = [62, 181, 343, 393, 426, 469, 549, 782, 306, 272];
    let look = |seed| {
        let plan = FaultPlan { kinds: FaultKind::DAMAGING.to_vec(), max_runs: 60, ..FaultPlan::new(seed) };
        fault_sweep(&subject(seed, script_without_remounts), &config(), &plan).map(drop)
    };
    each_seed(10, |seed| look(seed).and_then(|()| FOUND.get(seed as usize).map_or(Ok(()), |found| look(*found))));
}
