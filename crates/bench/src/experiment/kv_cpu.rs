//! `kv-cpu`: what puts and gets cost the processor: the key-value store on a drive in memory, whose pages are there already and which has no clock, beside
//! Debian's RocksDB on tmpfs. Each is called by its own API, with equal sizes, and `bindings/rocksdb/tests/rocksdb_bench.cc` puts and gets the same keys.
//! The sides take turns, so that whoever else is at work disturbs both.

use super::chart::{Axis, Chart, Shape};
use super::child::Running;
use super::hosts::workplace;
use super::result::{Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use imbrex_kv::table::TableOptions;
use imbrex_kv::{Kv, Options as KvOptions};
use imbrex_zones::VolumeOptions;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kv-cpu",
    about: "Puts and gets of the key-value store on a drive in memory beside Debian's RocksDB on tmpfs: rates, and processor time",
    paper: "none",
    speed: 1.0,
    rows: |_| PLANS.iter().flat_map(|plan| [name(plan, OURS), name(plan, THEIRS)]).collect(),
    extra: super::NONE,
    needs: |options| Needs { work: 4 * bytes(options) + (256 << 20), memory: DISK + (1 << 30) },
    run,
};

const MIB: u64 = 1 << 20;
/// The drive. A store on tmpfs has no limit of space, so this one is far from full.
const DISK: u64 = 3 << 30;
const ZONE: u64 = 32 * MIB;
const MEMTABLE: u64 = 32 * MIB;
const CACHE: u64 = 32 * MIB;
const BLOCK: u32 = 4096;
const KEY: usize = 16;
const GETS: u64 = 500_000;
/// Values are pieces of so many bytes.
const NOISE: u64 = 1 << 20;
const OURS: &str = "kv on memory";
const THEIRS: &str = "RocksDB on tmpfs";

struct Plan {
    value: u64,
    threads: u64,
}

const PLANS: &[Plan] = &[
    Plan { value: 100, threads: 1 },
    Plan { value: 1024, threads: 1 },
    Plan { value: 4096, threads: 1 },
    Plan { value: 100, threads: 2 },
    Plan { value: 1024, threads: 2 },
    Plan { value: 4096, threads: 2 },
];

/// Bytes of keys and values that are put.
fn bytes(options: &Options) -> u64 {
    if options.short { 4 * MIB } else { 384 * MIB }
}

fn gets(options: &Options) -> u64 {
    if options.short { 2000 } else { GETS }
}

impl Plan {
    fn puts(&self, options: &Options) -> u64 {
        bytes(options) / (KEY as u64 + self.value)
    }
}

fn name(plan: &Plan, side: &str) -> String {
    let s = if plan.threads == 1 { "" } else { "s" };
    format!("{} B, {} thread{s}: {side}", plan.value, plan.threads)
}

/// A part of what is measured, by its place: operations a second, and microseconds of the processor for each.
const PARTS: [&str; 5] = ["fill", "settle", "gets", "compact", "gets, compacted"];

/// Of each part: operations a second, and microseconds of the processor for each.
type Took = [(f64, f64); PARTS.len()];

/// splitmix64, of a counter.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of the put of this number, of so many.
fn key(put: u64, puts: u64) -> [u8; KEY] {
    let mut key = [b'0'; KEY];
    key[8..].copy_from_slice(&(mix(put) % puts).to_be_bytes());
    key
}

/// Nanoseconds that all threads of this process have had a processor.
fn on_cpu() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn timed(operations: u64, part: impl FnOnce() -> Result<(), Stop>) -> Result<(f64, f64), Stop> {
    let (wall, cpu) = (Instant::now(), on_cpu());
    part()?;
    let seconds = wall.elapsed().as_secs_f64().max(1e-9);
    Ok((operations as f64 / seconds, (on_cpu() - cpu) as f64 / 1e3 / operations as f64))
}

/// Each thread does every so manieth.
fn together(threads: u64, count: u64, one: impl Fn(u64) -> Result<(), Stop> + Sync) -> Result<(), Stop> {
    std::thread::scope(|scope| {
        let of = |thread: u64| (thread..count).step_by(threads as usize);
        let running: Vec<_> =
            (0..threads).map(|t| (t, &one)).map(|(t, one)| scope.spawn(move || of(t).try_for_each(one))).collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| Stop::from("a thread has panicked"))?)
    })
}

fn ours(plan: &Plan, options: &Options) -> Result<Took, Stop> {
    let profile = Profile::named("zns-made-up").ok_or("the profile zns-made-up is gone")?;
    let over = Overrides { capacity: Some(DISK), zone_size: Some(ZONE), ..Overrides::default() };
    let whole = Config { max_open: None, max_active: None, zone_capacity: ZONE, ..Config::new(&profile, &over) };
    let drive = Emulator::memory_prefaulted(&whole).map_err(why)?;
    let drive = Drive { device: Arc::new(drive), survivor: None };
    Kv::format(&drive, Some([7; 16]), false).map_err(why)?;
    let kv = KvOptions {
        memtable_bytes: MEMTABLE as usize,
        table_bytes: ZONE / 4,
        step_bytes: ZONE / 4,
        table: TableOptions { block: BLOCK, ..TableOptions::default() },
        cache_bytes: CACHE,
        volume: VolumeOptions { survivor_bytes: 3 * MEMTABLE as usize, ..VolumeOptions::default() },
        ..KvOptions::default()
    };
    let kv = Kv::open(drive, kv).map_err(why)?;
    let (puts, gets, value) = (plan.puts(options), gets(options), plan.value as usize);
    let noise: Vec<u8> = (0..NOISE / 8).flat_map(|i| mix(8 * i).to_le_bytes()).collect();
    let fill = timed(puts, || {
        together(plan.threads, puts, |i| {
            let from = (mix(i) % (NOISE - plan.value)) as usize;
            kv.put(&key(i, puts), &noise[from..from + value], false).map_err(why)
        })
    })?;
    let settle = timed(puts, || {
        while kv.step().map_err(why)? {}
        Ok(())
    })?;
    let get = || {
        together(plan.threads, gets, |i| match kv.get(&key(mix(i) % puts, puts)).map_err(why)? {
            Some(found) if found.len() == value => Ok(()),
            _ => Err("a key that was put is not there, or has another value; look into that first".into()),
        })
    };
    let settled = timed(gets, get)?;
    let compact = timed(puts, || kv.compact().map_err(why))?;
    Ok([fill, settle, settled, compact, timed(gets, get)?])
}

/// The same of RocksDB, by the program that prints it.
fn theirs(run: &Run, plan: &Plan, dir: &Path) -> Result<Took, Stop> {
    let options = run.options;
    let program = options.build.join("rocksdb_bench");
    if !program.exists() {
        let text = format!("{} is not there; `bindings/rocksdb/build.sh build tests` makes it", program.display());
        return Err(Stop::Failed(text));
    }
    let mut command = Command::new(program);
    command.args([
        format!("--db={}", dir.join("db").display()),
        format!("--num={}", plan.puts(options)),
        format!("--reads={}", gets(options)),
        format!("--value={}", plan.value),
        format!("--threads={}", plan.threads),
        format!("--write-buffer={MEMTABLE}"),
        format!("--cache={CACHE}"),
        format!("--block={BLOCK}"),
    ]);
    let mut running = Running::start(&command, dir)?;
    running.wait(|_| if run.stopped() { Err(Stop::Interrupted) } else { Ok(()) })?;
    let output = running.output();
    printed(&output).ok_or_else(|| Stop::Failed(format!("rocksdb_bench printed {output:?}, which makes no sense")))
}

/// What the program printed, a line a part: `fill 44708 ops/sec, 17.893 us of processor time each`.
fn printed(output: &str) -> Option<Took> {
    let line = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let rate = words.next()?.parse().ok()?;
        Some((rate, words.nth(1)?.parse().ok()?))
    };
    output.lines().map(line).collect::<Option<Vec<(f64, f64)>>>()?.try_into().ok()
}

/// The row of what was measured.
fn row(plan: &Plan, options: &Options, took: &Took, drive: &str) -> Row {
    let mut row = Row { rule: Rule::Whole.name().into(), ..Row::new("", drive) };
    row.operations = Some(plan.puts(options));
    row.bytes_user = Some(bytes(options));
    let figures: BTreeMap<String, f64> = PARTS
        .iter()
        .zip(took)
        .flat_map(|(part, (rate, cpu))| [(format!("{part}: ops/s"), *rate), (format!("{part}: CPU us each"), *cpu)])
        .filter(|(name, _)| !["settle: ops/s", "compact: ops/s"].contains(&name.as_str()))
        .collect();
    row.figures.extend(figures);
    row.figures.insert(FILLED.into(), took[0].1 + took[1].1);
    row
}

const FILLED: &str = "fill and settle: CPU us each";

/// What is compared: a figure, whether more of it is better, and what is wanted.
const COMPARED: [(&str, bool, Option<f64>); 7] = [
    ("fill: ops/s", true, Some(1.0)),
    ("gets: ops/s", true, Some(1.0)),
    ("gets, compacted: ops/s", true, Some(1.0)),
    ("fill: CPU us each", false, None),
    (FILLED, false, None),
    ("gets: CPU us each", false, None),
    ("gets, compacted: CPU us each", false, None),
];

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting(
        "keys and values",
        "keys of 16 bytes; values are pieces of a MiB of noise; puts are uniform over as many keys as there are",
    );
    run.setting("bytes of keys and values that are put", bytes(run.options));
    run.setting("gets, of keys that are there", gets(run.options));
    run.setting("memory", "memtable 32 MiB, cache 32 MiB. RocksDB may have a second memtable, its default, and has its index beside its cache");
    run.setting("blocks", "4 KiB, not compressed; filters of 10 bits a key, and about nine of kv");
    run.setting("log", "written, and never synced: kv's to memory of the process, RocksDB's to a file on tmpfs");
    run.setting("settled", "nothing is left to do in the background; its processor time counts in \"fill and settle\"");
    let mut bars = Vec::new();
    for plan in PLANS {
        let names = [name(plan, OURS), name(plan, THEIRS)];
        if !names.iter().any(|name| run.wants(name)) {
            continue;
        }
        let mut pairs = Vec::new();
        for pair in 0..run.options.repeats.max(1) {
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            run.says(&format!("{}, pair {}", names[0], pair + 1));
            let dir = workplace(&run.options.work)?;
            let us = || if run.wants(&names[0]) { ours(plan, run.options) } else { Err("it was not wanted".into()) };
            let them =
                || if run.wants(&names[1]) { theirs(run, plan, dir.path()) } else { Err("it was not wanted".into()) };
            // Who is first changes.
            pairs.push(if pair % 2 == 0 {
                let second = them();
                [us(), second]
            } else {
                [us(), them()]
            });
        }
        for (side, drive) in ["memory, no clock", "tmpfs"].into_iter().enumerate() {
            run.row(&names[side], |run| {
                let took = pairs[run.repeat()][side].clone()?;
                Ok(row(plan, run.options, &took, drive))
            })?;
        }
        for (what, more, goal) in COMPARED {
            let of = |row: &Row| row.figures.get(what).copied();
            let (over, under) = if more { (&names[0], &names[1]) } else { (&names[1], &names[0]) };
            let each = run.pairs(over, under, of);
            let text = format!("{what}, {} against {}: above 1 it is better", names[0], names[1]);
            let ratio = Ratio::of(text, &each);
            run.outcome.ratios.extend(ratio.map(|ratio| Ratio { goal, ..ratio }));
        }
        for name in names {
            let rate = run.measured(&name).and_then(|row| row.figures.get("fill: ops/s").copied());
            bars.extend(rate.map(|rate| (name, rate, None)));
        }
    }
    run.outcome.charts.push(Chart {
        file: "fill".into(),
        title: "Random puts, unsynced".into(),
        x: Axis::even(""),
        y: Axis::even("puts/s"),
        shape: Shape::Bars(bars),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_program_and_what_it_prints_is_understood() {
        // splitmix64's first number of the seed 0 is that of its counter at 1.
        assert_eq!(mix(1), 0xe220_a839_7b1d_cdaf);
        assert_eq!(key(1, u64::MAX), *b"00000000\xe2\x20\xa8\x39\x7b\x1d\xcd\xaf");
        let text = "fill 44708 ops/sec, 17.893 us of processor time each\n";
        let printed_all = printed(&text.repeat(5)).unwrap();
        assert_eq!(printed_all, [(44708.0, 17.893); 5]);
        assert!(printed(text).is_none() && printed("fill 3\n").is_none());
    }
}
