//! The crash explorer where zones are taken round the drive: few zones, the write cache off, and chunks that come and go until the store has
//! gone round again and again, with cleaning, checkpoints and reopening on the way. Each run counts the rounds, so that it cannot come to look at
//! something else. The same with the write cache on, where it is the first free zone that is taken.
//!
//! `IMBREX_CHUNK_STATES` says how many states it looks at (1,100: half of that on each drive with the cache off, and a quarter with it on),
//! `IMBREX_CRASH_ROUNDS` of how many seeds.

use crate::crash_support::Op::*;
use crate::crash_support::{Op, Scripted, config};
use crate::support::Heard;
use imbrex_chunkstore::Durability::{Buffered, Durable};
use imbrex_chunkstore::format::ZoneUse;
use imbrex_crashkit::{Config, Crash, History, Log, Plan, Subject, explore, seeds};
use imbrex_device::Drive;
use imbrex_zones::ZoneHeader;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// So many bytes are alive, up to a chunk more: four zones' worth.
const ALIVE: u32 = 950_000;

/// A chunk that is alive.
struct Alive {
    n: u64,
    len: u32,
    sealed: bool,
}

/// Chunks of all kinds, some of them open for long, of which any may be the next to go.
fn script(seed: u64) -> Vec<Op> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut alive: Vec<Alive> = Vec::new();
    let mut ops = Vec::new();
    for turn in 0..64u64 {
        // In some turns nothing is made durable, and what has become free is reset meanwhile, as it is by the volume's thread.
        let quiet = rng.random_bool(0.4);
        let how = |rng: &mut ChaCha8Rng, often| if !quiet && rng.random_bool(often) { Durable } else { Buffered };
        while alive.iter().map(|chunk| chunk.len).sum::<u32>() > ALIVE {
            let dies = alive.swap_remove(rng.random_range(0..alive.len()));
            ops.push(Delete(dies.n, how(&mut rng, 0.3)));
            if quiet {
                ops.push(Step);
            }
        }
        // Names come again.
        let n = (0..).map(|i| (turn * 5 + i) % 60).find(|n| alive.iter().all(|chunk| chunk.n != *n)).unwrap_or(0);
        ops.push(Create(n, rng.random_range(0..3), how(&mut rng, 0.2)));
        let mut len = 0;
        // Some fill a zone, which dies with them.
        let long = rng.random_bool(0.4);
        for _ in 0..if long { 4 } else { rng.random_range(1..4) } {
            let more =
                if long { 60_000 } else { [4096, 20_000, 45_000][rng.random_range(0..3)] } + rng.random_range(0..50);
            ops.push(Append(n, more, rng.random(), how(&mut rng, 0.5)));
            len += more;
        }
        let sealed = rng.random_bool(0.7);
        if sealed {
            ops.push(Seal(n, how(&mut rng, 0.3)));
        }
        alive.push(Alive { n, len, sealed });
        // Those that stay open go on in zones of younger lives.
        if let Some(chunk) =
            alive.iter_mut().find(|chunk| !chunk.sealed && chunk.len < 200_000).filter(|_| turn % 4 == 1)
        {
            ops.push(Append(chunk.n, 9000, turn as u8, how(&mut rng, 0.7)));
            chunk.len += 9000;
        }
        match turn % 14 {
            3 => ops.push(BeginCheckpoint),
            4 | 5 => ops.push(Step),
            7 => ops.extend([Clean, Step]),
            11 => ops.extend([Step; 2]),
            9 if turn % 28 == 9 => ops.push(Remount),
            9 => ops.push(Checkpoint),
            12 => ops.push(Sync),
            _ => {}
        }
    }
    ops
}

/// The zones that were taken: by life, and lives ascend.
type Taken = BTreeMap<u64, (u32, ZoneUse)>;

/// How many zones were taken in each round of the drive, and how many of them for the cleaner.
fn rounds(taken: &Taken) -> Vec<(usize, usize)> {
    let mut rounds: Vec<(usize, usize)> = Vec::new();
    let mut last = u32::MAX;
    for (zone, usage) in taken.values() {
        if *zone <= last {
            rounds.push((0, 0));
        }
        if let Some((all, cleaner)) = rounds.last_mut() {
            *all += 1;
            *cleaner += usize::from(matches!(usage, ZoneUse::Cleaner(_)));
        }
        last = *zone;
    }
    rounds
}

/// The script on a drive of so many datazones, and, with the write cache off, that it went round it as it should.
struct Round {
    zones: u32,
    write_cache: bool,
}

const SCRIPT: Scripted = Scripted(script);

impl Subject for Round {
    type Op = Op;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        SCRIPT.format(drive)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Op>) -> Result<(), String> {
        let taken: Arc<Mutex<Taken>> = Arc::default();
        let heard = taken.clone();
        let hears = move |buf: &[u8]| {
            let Some(header) = ZoneHeader::decode(buf) else { return };
            if let Some(usage) = ZoneUse::of_kind(header.kind) {
                heard.lock().unwrap().insert(header.life, (header.zone, usage));
            }
        };
        let device = Heard {
            drive: drive.device,
            reads: Box::new(|drive, buf, at, tag| drive.read_at(buf, at, tag)),
            writes: Box::new(hears),
        };
        SCRIPT.workload(Drive { device: Arc::new(device), survivor: drive.survivor }, seed, log)?;
        let rounds = rounds(&taken.lock().unwrap());
        // The last one is under way.
        let whole = &rounds[..rounds.len().saturating_sub(1)];
        let zones: usize = whole.iter().map(|(all, _)| all).sum();
        let cleaned = rounds.iter().filter(|(_, cleaner)| *cleaner > 0).count();
        // Where the first that is free is taken, as with the write cache on, a step back comes sooner.
        match self.write_cache || whole.len() >= 3 && zones * 2 >= whole.len() * self.zones as usize && cleaned > 1 {
            true => Ok(()),
            false => {
                Err(format!("not round the drive three times, with cleaning: zones, and of the cleaner {rounds:?}"))
            }
        }
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        SCRIPT.recover(drive)
    }

    fn check(&self, drive: Drive, crash: Crash, history: &History<Op>) -> Result<(), String> {
        SCRIPT.check(drive, crash, history)
    }
}

/// Six zones are metazones, and where there are no conventional ones two are the label's.
fn drive(zones: u32, write_cache: bool, conventional: u32, max_io: u32) -> Config {
    let label = if conventional == 0 { 2 } else { 0 };
    let capacity = u64::from(conventional + label + 6 + zones) * config().zone_size;
    Config { write_cache, conventional, capacity, max_io, ..config() }
}

#[test]
fn zones_that_are_taken_round_the_drive_survive() {
    let all: u64 = std::env::var("IMBREX_CHUNK_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_100);
    for seed in seeds(1) {
        // With three zones that are open for chunks; with two that kinds of streams share, where free ones are short, and commands that are
        // shorter than records; and zones that are used again at once, the first that is free.
        let drives = [(12, false, 4, config().max_io), (9, false, 0, 16 << 10), (12, true, 4, config().max_io)];
        for (zones, write_cache, conventional, max_io) in drives {
            let share = if write_cache { 4 } else { 2 };
            let plan = Plan { max_states: (all / share).max(1), cuts_per_write: 3, ..Plan::new(seed) };
            let config = drive(zones, write_cache, conventional, max_io);
            let drive = format!("{zones} datazones, write cache {}", if write_cache { "on" } else { "off" });
            match explore(&Arc::new(Round { zones, write_cache }), &config, &plan) {
                Ok(report) => println!("seed {seed}, {drive}: {} of {} states", report.states, report.possible),
                Err(failure) => panic!("seed {seed}, {drive}: {failure}"),
            }
        }
    }
}
