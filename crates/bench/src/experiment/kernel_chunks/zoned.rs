//! F2FS and Zoned XFS in the kernel VM (`scripts/kernel-segments`), on a zoned `null_blk` that answers as late as a disk: what the kernel asked of the
//! device is played on the model, its zones where the store's lie.

use super::super::blocktrace::{Command, Drive, Order, parse, play};
use super::super::child::Running;
use super::super::chunk_write::{DEPTH, JOBS, Span, ZONES};
use super::super::hosts::workplace;
use super::super::kernel_amplification::script;
use super::super::{Run, Stop};
use super::{Both, HOW, Kernel, Ran, count, nothing};
use crate::segments::Answer;
use imbrex_emulator::{Op, Profile};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Places over the span, as the store's rows have them.
const PLACES: u64 = 4;
/// Zones of the device for appends are as large as the drive's; those for reads are so small that the memory of the VM holds as many as
/// the store has when it is read from.
const WRITE_ZONE: u64 = 256 * MIB;
const READ_ZONE: u64 = 16 * MIB;
/// Of a row: at most so many bytes and appends, or reads.
const BYTES: u64 = 96 * MIB;
const APPENDS: u64 = 512;
const READS: u64 = 1500;
/// What is taken for each file beforehand, and how long those are that are read.
const TAKEN: u64 = 4 * MIB;

/// A run of the program in the VM: what it said, and what the kernel asked of the device.
pub(super) struct Trace {
    answer: Answer,
    commands: Vec<Command>,
}

/// All runs of the VM.
#[derive(Default)]
pub(super) struct Traces {
    /// By write cache, size, and whether appends ended with `fdatasync`.
    runs: BTreeMap<(bool, u64, bool), Trace>,
    /// Conventional zones of its device: as many as the file system's own tables take.
    conventional: u64,
}

/// What a row says of the device.
pub(super) fn device(what: &str) -> &'static str {
    if what == "write" {
        "null_blk, 64 zones of 256 MiB; it answers after 80 ms, since the VM's processor is slow as well"
    } else {
        "null_blk, 96 zones of 16 MiB; those in use lie evenly over the span"
    }
}

/// What a run in the VM left: what the program said, and the trace.
pub(super) fn load<A: DeserializeOwned>(dir: &Path, name: &str) -> Result<(A, Vec<Command>), String> {
    let text = |end: &str| {
        let path = dir.join(format!("{name}.{end}"));
        std::fs::read_to_string(&path).map_err(|error| format!("the VM left no {name}.{end} ({error})"))
    };
    let answer = serde_json::from_str(&text("json")?).map_err(|error| format!("{name}.json: {error}"))?;
    Ok((answer, parse(&text("trace")?)?))
}

/// Runs `scripts/kernel-segments` for a file system in the VM, with a directory for what it leaves; `late`: milliseconds after which the device answers. How many conventional
/// zones it has.
pub(super) fn in_the_vm(
    run: &Run,
    kernel: Kernel,
    dir: &Path,
    late: u32,
    args: impl IntoIterator<Item = String>,
) -> Result<u64, Stop> {
    let system = kernel.in_the_vm().ok_or("a file system for conventional drives runs on the host")?;
    let mut command = std::process::Command::new(script(run.options, "kernel-segments")?);
    command.arg(dir).arg(system).args(args);
    command.env("BUILD_DIR", &run.options.build).env("IMBREX_LATE_MS", late.to_string());
    let mut running = Running::start(&command, dir)?;
    run.says(&format!("{system} in the VM; some minutes"));
    let ended = running.wait(|_| if run.stopped() { Err(Stop::Interrupted) } else { Ok(()) });
    if let Err(why) = ended {
        running.terminate();
        return Err(why);
    }
    let zones = std::fs::read_to_string(dir.join("conventional")).ok().and_then(|text| text.trim().parse().ok());
    Ok(zones.ok_or("the VM did not say how many conventional zones its device has")?)
}

/// Runs the VM for `what`, write or read, with these sizes.
pub(super) fn record(run: &Run, kernel: Kernel, what: &str, sizes: &[u64]) -> Result<Traces, Stop> {
    let dir = workplace(&run.options.work)?;
    let most = if what == "read" { READS } else { APPENDS };
    let bytes = if what == "read" { u64::MAX } else { BYTES };
    let runs = sizes.iter().map(|size| format!("{size}:{}", count(run, *size, bytes, most)));
    let taken = if run.options.short && what == "read" { MIB } else { TAKEN };
    let args = [what.to_owned(), taken.to_string()].into_iter().chain(runs);
    let conventional = in_the_vm(run, kernel, dir.path(), if run.options.short { 1 } else { 80 }, args)?;
    let mut all = Traces { conventional, ..Traces::default() };
    for size in sizes {
        for (cache, name) in [(false, "off"), (true, "on")] {
            for (_, sync) in HOW {
                if what == "read" && (sync || !cache) {
                    continue;
                }
                let name = format!("{what}-{name}-{size}-{}", if sync { "sync" } else { "nosync" });
                let (answer, commands) = load(dir.path(), &name)?;
                all.runs.insert((cache, *size, sync), Trace { answer, commands });
            }
        }
    }
    Ok(all)
}

fn finished(trace: &Trace, ran: Ran) -> Ran {
    Ran { operations: trace.answer.operations, payload: trace.answer.payload, ..ran }
}

/// Appends of a size, with `fdatasync` and without, at all places.
pub(super) fn write(
    traces: &Traces,
    run: &Run,
    profile: &Profile,
    span: Span,
    cache: bool,
    size: u64,
) -> Result<Both, Stop> {
    let mut both = Both::default();
    let (first, zones) = span.zones(profile);
    for (sum, (_, sync)) in both.iter_mut().zip(HOW) {
        let trace = traces.runs.get(&(cache, size, sync)).ok_or_else(nothing)?;
        for place in 0..if run.options.short { 1 } else { PLACES } {
            let part = (place as f64 + 0.5) / PLACES as f64;
            let from = first + (zones.saturating_sub(u64::from(ZONES)) as f64 * part) as u64;
            // The file system's own tables are in conventional zones, which are the drive's first.
            let at = |zone: u64| if zone < traces.conventional { zone } else { from + zone - traces.conventional };
            let drive = Drive::of(profile, cache, WRITE_ZONE, traces.conventional)?;
            let ran = play(drive, &trace.commands, Order::AsAnswered, |zone| at(zone) * profile.zone_size);
            sum.add(finished(trace, ran));
        }
    }
    Ok(both)
}

/// Random reads of a size.
pub(super) fn read(traces: &Traces, profile: &Profile, span: Span, size: u64) -> Result<Ran, Stop> {
    let trace = traces.runs.get(&(true, size, false)).ok_or_else(nothing)?;
    // Of all runs: which zones are in use does not depend on who reads.
    let reads = traces.runs.values().flat_map(|trace| &trace.commands).filter(|one| one.op == Op::Read);
    let used: BTreeSet<u64> =
        reads.map(|one| one.offset / READ_ZONE).filter(|zone| *zone >= traces.conventional).collect();
    let used: Vec<u64> = used.into_iter().collect();
    let (first, zones) = span.zones(profile);
    let step = zones as f64 / used.len().max(1) as f64;
    let at = |zone: u64| match used.binary_search(&zone) {
        Ok(rank) => first + ((rank as f64 + 0.5) * step) as u64,
        Err(_) => zone,
    };
    // A read is a request, or two: as many as the clients have under way are at the drive, whatever the VM's processor kept up with.
    let each = trace.commands.len() as f64 / trace.answer.operations.max(1) as f64;
    let order = Order::AtOnce(((JOBS * DEPTH) as f64 * each).round().max(1.0) as usize);
    let drive = Drive::of(profile, true, READ_ZONE, traces.conventional)?;
    let ran = play(drive, &trace.commands, order, |zone| at(zone) * profile.zone_size);
    Ok(finished(trace, ran))
}
