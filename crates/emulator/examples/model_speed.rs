//! How many modelled commands one core does a second in `account`: `cargo run --release -p imbrex-emulator --example model_speed`.
//!
//! *model*: the commands alone, as a trace that is replayed. *drive*: the same commands by one thread on a drive in memory that
//! keeps time, which includes what the emulator itself does for a command (checking it, copying its 4 KiB, counting it), and
//! beside it what it does without time.

use imbrex_device::{AlignedBuf, Cause, Tag, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::time::{Pace, Replay, replay};
use imbrex_emulator::{Config, Emulator, Op, Overrides, Profile, TraceEntry};
use rustix::time::{ClockId, clock_gettime};

const COMMANDS: u64 = 1_000_000;
const BLOCK: u64 = 4096;
/// Of which the drive in memory consists.
const SIZE: u64 = 1 << 30;

/// What a core spent on this thread, so that others on the machine do not matter.
fn core_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Where command `i` goes on a drive of `zones` (size, first sequential, all).
type Place = fn(i: u64, zones: (u64, u64, u64)) -> u64;

/// Round after round through the sequential zones.
fn next(i: u64, (size, first, all): (u64, u64, u64)) -> u64 {
    first * size + i * BLOCK % ((all - first).max(1) * size)
}

/// Anywhere, without a generator's cost.
fn anywhere(i: u64, (size, _, all): (u64, u64, u64)) -> u64 {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12) * BLOCK % (size * all)
}

fn model(profile: &str, op: Op, place: Place, write_cache: bool) -> f64 {
    let profile = Profile::named(profile).expect("a built-in profile");
    let first = if profile.kind.is_plain() { 0 } else { u64::from(profile.conventional_zones) };
    let zones = (profile.zone_size, first, profile.capacity / profile.zone_size);
    let entry = |i| TraceEntry {
        sequence: i,
        op,
        cause: Cause::Compaction.name(),
        priority: "normal",
        zone: 0,
        offset: place(i, zones),
        len: BLOCK as u32,
        result: "ok",
    };
    let trace: Vec<TraceEntry> = (0..COMMANDS).map(entry).collect();
    let began = core_seconds();
    replay(&profile, &trace, Replay { depth: 1, write_cache }).expect("it has a time model");
    COMMANDS as f64 / (core_seconds() - began)
}

fn drive(profile: &str, op: Op, place: Place, write_cache: bool, timed: bool) -> f64 {
    let over = Overrides { capacity: Some(SIZE), write_cache: Some(write_cache), ..Overrides::default() };
    let config = Config::named(profile, &over).expect("a built-in profile");
    // All there beforehand: the first touch of memory costs more than a command.
    let drive = Emulator::memory_prefaulted(&config).expect("enough memory");
    if timed {
        drive.keep_own_time(Pace::Account).expect("it has a time model");
    }
    let first = if config.conventional == config.zones() { 0 } else { u64::from(config.conventional) };
    let zones = (config.zone_size, first, u64::from(config.zones()));
    let tag: Tag = Cause::Compaction.into();
    let mut buf = AlignedBuf::zeroed(BLOCK as usize);
    let began = core_seconds();
    for i in 0..COMMANDS {
        let at = place(i, zones);
        if op == Op::Read {
            drive.read_at(&mut buf, at, tag).expect("a read");
            continue;
        }
        if at.is_multiple_of(zones.0) && at / zones.0 >= u64::from(config.conventional) {
            drive.zone_op(ZoneOp::Reset, ZoneId((at / zones.0) as u32), tag).expect("a reset");
        }
        drive.write_at(&buf, at, tag).expect("a write");
    }
    COMMANDS as f64 / (core_seconds() - began)
}

fn main() {
    println!("{:<44} {:>12} {:>12} {:>16}", "commands of 4 KiB, a second", "model", "drive", "drive, time=off");
    let rows: [(&str, &str, Op, Place, bool); 6] = [
        ("sequential writes, write cache on, HM-SMR", "hgst-hsh721414al", Op::Write, next, true),
        ("sequential writes, write cache off, HM-SMR", "hgst-hsh721414al", Op::Write, next, false),
        ("random reads, CMR", "hitachi-hua72303", Op::Read, anywhere, true),
        ("sequential reads, CMR", "hitachi-hua72303", Op::Read, next, true),
        ("random writes, write cache on, CMR", "hitachi-hua72303", Op::Write, anywhere, true),
        ("random writes, write cache on, DM-SMR", "seagate-st8000as0022", Op::Write, anywhere, true),
    ];
    for (name, profile, op, place, cache) in rows {
        let model = model(profile, op, place, cache);
        let [on, off] = [true, false].map(|timed| drive(profile, op, place, cache, timed));
        println!("{name:<44} {model:>12.0} {on:>12.0} {off:>16.0}");
    }
}
