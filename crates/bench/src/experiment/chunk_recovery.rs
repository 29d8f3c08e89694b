//! `chunk-recovery`: what opening a chunk store after a crash takes of the drive, SMRSTORE's Figure 21: 20 TB, 60 % full, 55 open zones, and the
//! crash just before the next checkpoint would have been complete. Real mechanics, on the [virtual clock](super::virtual_clock).
//!
//! Nobody has 12 TB for an experiment, so costs are measured and the case is computed. What opening reads is of three kinds. Metazones: so
//! many bytes of checkpoints and journal, from front to end, whatever they say; measured on three sizes of index. Open zones: a way to each, and
//! so many bytes of it; measured on three numbers of zones, spread over the full stroke, and two amounts of bytes. A new checkpoint in the
//! end: so many bytes again. Each is a line through what was measured; what it is put together from stands in the report.

use super::chart::{Axis, Chart, Shape};
use super::chunk_write::{DRIVE, Span, ZONES};
use super::kernel_chunks::opening::{self, opening};
use super::result::{Figure, Ratio, Row};
use super::virtual_clock::{Host, Steps, why};
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_chunkstore::{Append, ChunkId, Durability, Options, StreamType};
use imbrex_device::Cause;
use imbrex_emulator::{Op, Profile, TraceEntry};
use std::collections::BTreeMap;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "chunk-recovery",
    about: "Opening a chunk store after a crash, part by part, and what that makes of SMRSTORE's case: 20 TB, 60 % full, 55 open zones",
    paper: "SMRSTORE, section 6.4, Figure 21",
    speed: 1.0,
    rows: |options| {
        let load = Load::of(options.short);
        let index = load.index.iter().map(|part| index_name(*part));
        let scans = load.scans.iter().map(|scan| scan.name());
        let cases = CASES.iter().map(|case| case.name.to_owned()).chain([HEADS, INIT, EXT4].map(str::to_owned));
        index.chain(scans).chain(cases).collect()
    },
    extra: super::NONE,
    // The directory for drives holds what is written to ext4.
    needs: |options| Needs { work: if options.short { 128 << 20 } else { 3 << 30 }, memory: 2 << 30 },
    run,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The paper's case.
const STORED: f64 = 0.6 * 20e12;
const OPEN: f64 = 55.0;
/// One append, and what a chunk takes of them: one less would not fill its zone.
const RECORD: u64 = 512 << 10;
const CHUNK: f64 = 253.0 * MIB as f64;
/// Bytes of a checkpoint for a chunk with its group, a record, and a zone (docs/on-disk-format.md).
const OF_CHUNK: f64 = 60.0;
const OF_RECORD: f64 = 8.0;
const OF_ZONE: f64 = 24.0;
/// A chunk without a byte: what the measured indexes are made of, since bytes are bytes to the drive.
const OF_EMPTY_CHUNK: f64 = 48.0;
/// Bytes of the journal for a chunk that is told of, and for its zone.
const OF_TOLD: f64 = 64.0 + 24.0;
/// Bytes that one commit may bring beside those that were not told: what may wait in memory.
const IN_MEMORY: u64 = 256 * MIB;

/// What is computed: bytes between two checkpoints, and between two times that the journal is told.
struct Case {
    name: &'static str,
    checkpoint: u64,
    tell: Option<u64>,
}

const CASES: [Case; 2] = [
    Case { name: "the paper's case, extrapolated", checkpoint: 32 * GIB, tell: Some(512 * MIB) },
    Case { name: "the same with appends told by zones alone, as in the paper", checkpoint: 4 * GIB, tell: None },
];

/// What a store does that does not know where its metazones are, as the paper's first version, CS-SMRSTORE-INIT.
const HEADS: &str = "the head of every zone, one after another";
const INIT: &str = "the paper's case where metazones may be anywhere, extrapolated";

/// What the kernel's ext4 takes in the same case, measured.
const EXT4: &str = "ext4 on CMR, measured";

/// The case for a chunk server on it: as many chunks, open ones and bytes to scan. The short form has a handful.
fn on_ext4(short: bool) -> opening::Case {
    let scanned = CASES[0].tell.unwrap_or(CASES[0].checkpoint) + IN_MEMORY;
    match short {
        true => opening::Case { chunks: 45, chunk: 8 * MIB, open: 1, bytes: 10 * MIB },
        false => opening::Case {
            chunks: (STORED / CHUNK) as u64,
            chunk: CHUNK as u64,
            open: OPEN as u64 / 5,
            bytes: scanned,
        },
    }
}

/// Bytes of one checkpoint in the paper's case.
fn checkpoint_bytes() -> f64 {
    let chunks = STORED / CHUNK;
    chunks * (OF_CHUNK + OF_ZONE) + STORED / RECORD as f64 * OF_RECORD
}

/// Open zones with so many bytes in all that nothing knows of.
#[derive(Clone, Copy, Debug)]
struct Scan {
    zones: u64,
    bytes: u64,
}

impl Scan {
    fn name(self) -> String {
        format!("{} open zones, {} MiB to scan", self.zones, self.bytes / MIB)
    }
}

fn index_name(part: u64) -> String {
    format!("index of 1/{part} of the case's bytes")
}

struct Load {
    index: [u64; 3],
    scans: [Scan; 4],
}

impl Load {
    fn of(short: bool) -> Load {
        let scan = |zones, mib| Scan { zones, bytes: mib * MIB };
        match short {
            true => Load { index: [4096, 2048, 1024], scans: [scan(4, 8), scan(8, 16), scan(12, 24), scan(12, 48)] },
            false => Load { index: [16, 8, 4], scans: [scan(13, 128), scan(26, 256), scan(52, 512), scan(52, 1024)] },
        }
    }
}

/// What opening did with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Heads,
    Metazones,
    Scan,
    Checkpoint,
    Other,
}

impl Part {
    fn name(self) -> &'static str {
        ["metazones' heads", "checkpoints and journal", "scan", "new checkpoint", "label and zones"][self as usize]
    }
}

/// Seconds of the drive and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    seconds: f64,
    bytes: f64,
}

struct Opened {
    parts: BTreeMap<Part, Cost>,
    kinds: [f64; 4],
    zones: u64,
    records: u64,
}

impl Opened {
    fn cost(&self, part: Part) -> Cost {
        self.parts.get(&part).copied().unwrap_or_default()
    }

    fn seconds(&self) -> f64 {
        self.parts.values().map(|cost| cost.seconds).sum()
    }
}

/// A store that never writes a checkpoint by itself and tells its journal nothing.
fn quiet() -> Options {
    Options { checkpoint_bytes: u64::MAX / 2, tell_bytes: u64::MAX / 2, ..Options::default() }
}

/// The process dies, and the store is opened again: what that asks of the drive, played. Metazones lie at the drive's front, where they are
/// taken; datazones evenly over all of it.
fn opened(profile: &Profile, host: Host) -> Result<Opened, Stop> {
    let (host, trace) = host.crash(quiet())?;
    let zones = host.store.zones();
    let meta: Vec<u32> = zones.iter().filter(|z| z.usage.is_none()).map(|z| z.zone).collect();
    let data: Vec<u32> = zones.iter().filter(|z| z.usage.is_some()).map(|z| z.zone).collect();
    let (first, all) = Span::Whole.zones(profile);
    let step = all as f64 / data.len().max(1) as f64;
    let place = |zone: u32| match data.binary_search(&zone) {
        Ok(rank) => first + ((rank as f64 + 0.5) * step) as u64,
        Err(_) => first + u64::from(zone),
    };
    let places = (0..ZONES).map(|zone| place(zone) * profile.zone_size).collect();
    let part = |entry: &TraceEntry| match (meta.contains(&entry.zone), entry.op) {
        (true, Op::Read) if entry.offset.is_multiple_of(profile.zone_size) && entry.len == 4096 => Part::Heads,
        (true, Op::Read) => Part::Metazones,
        (true, Op::Write) => Part::Checkpoint,
        (false, Op::Read) if data.contains(&entry.zone) => Part::Scan,
        _ => Part::Other,
    };
    let mut parts: BTreeMap<Part, Cost> = BTreeMap::new();
    // Opening is one thread: each command comes when the one before is complete.
    let mut steps = Steps::new(profile, false, places)?;
    let mut now = 0.0;
    for run in trace.chunk_by(|a, b| part(a) == part(b)) {
        steps.begin(0, run.to_vec(), now);
        let end = std::iter::from_fn(|| steps.next()).last().map_or(now, |(_, end)| end);
        let cost = parts.entry(part(&run[0])).or_default();
        cost.seconds += (end - now) / 1e9;
        cost.bytes += run.iter().map(|entry| f64::from(entry.len)).sum::<f64>();
        now = end;
    }
    let total = steps.stats().total;
    let report = host.store.open_report();
    Ok(Opened {
        parts,
        kinds: [total.seek, total.rotation, total.transfer, total.zone_ops],
        zones: report.scanned_zones,
        records: report.records,
    })
}

/// An index of this part of the case's bytes: two checkpoints of it, one in each ring, and a third that lacks nothing but its end.
fn index(profile: &Profile, part: u64) -> Result<Opened, Stop> {
    let host = Host::new(profile, ZONES, false, quiet())?;
    let chunks = (checkpoint_bytes() / OF_EMPTY_CHUNK / part as f64) as u64;
    for n in 0..chunks {
        host.store.create_with(ChunkId::of_number(n), StreamType::GC, Durability::Buffered).map_err(why)?;
    }
    for _ in 0..2 {
        host.store.checkpoint().map_err(why)?;
    }
    // There is something to recover.
    host.store.create(ChunkId::of_number(chunks), StreamType::GC).map_err(why)?;
    host.store.begin_checkpoint().map_err(why)?;
    for _ in 0..chunks * OF_EMPTY_CHUNK as u64 / MIB {
        host.store.step().map_err(why)?;
    }
    opened(profile, host)
}

/// Records of 512 KiB to so many open zones.
fn scan(profile: &Profile, scan: Scan) -> Result<Opened, Stop> {
    let host = Host::new(profile, ZONES, false, quiet())?;
    // Each kind has its share of the open zones.
    let kinds = [StreamType::DATA, StreamType::METADATA, StreamType::GC];
    let shares = [9, 4, 39].map(|share| scan.zones * share / 52);
    let kind = |n: u64| usize::from(n >= shares[0]) + usize::from(n >= shares[0] + shares[1]);
    for n in 0..scan.zones {
        host.store.create_with(ChunkId::of_number(n), kinds[kind(n)], Durability::Buffered).map_err(why)?;
    }
    let (bytes, how) = (vec![7; RECORD as usize], Append { offset: None, durability: Durability::Buffered });
    for i in 0..scan.bytes / RECORD {
        host.store.append_with(ChunkId::of_number(i % scan.zones), &bytes, how).map_err(why)?;
    }
    host.store.sync().map_err(why)?;
    let opened = opened(profile, host)?;
    if opened.records != scan.bytes / RECORD {
        return Err(Stop::Failed("opening did not find what was appended; look into that first".into()));
    }
    Ok(opened)
}

fn row(profile: &Profile, opened: &Opened) -> Row {
    let mut row = Row::new("", &profile.name);
    row.rule = Rule::Fewer.name().into();
    row.device_seconds = Some(opened.seconds());
    let bytes = |part| opened.cost(part).bytes;
    row.bytes_read = Some((bytes(Part::Heads) + bytes(Part::Metazones) + bytes(Part::Scan)) as u64);
    row.bytes_drive = Some(bytes(Part::Checkpoint) as u64);
    let names = ["seek", "rotation", "transfer", "zone ops"].map(str::to_owned);
    row.seconds = names.into_iter().zip(opened.kinds).collect();
    for (part, cost) in &opened.parts {
        row.figures.insert(format!("s, {}", part.name()), cost.seconds);
    }
    row.figures.insert("MiB read of metazones".into(), bytes(Part::Metazones) / MIB as f64);
    row.figures.insert("MiB scanned".into(), bytes(Part::Scan) / MIB as f64);
    row.figures.insert("zones scanned".into(), opened.zones as f64);
    row
}

/// Reads of the first block of all sequential zones of the drive, each when the one before is answered.
fn heads(profile: &Profile) -> Result<Row, Stop> {
    let (first, all) = Span::Whole.zones(profile);
    let zones = u32::try_from(all).map_err(|_| "the drive has more zones than can be counted")?;
    let place = |zone: u32| (first + u64::from(zone)) * profile.zone_size;
    let mut steps = Steps::new(profile, false, (0..zones).map(place).collect())?;
    let read = |zone: u32| TraceEntry {
        sequence: zone.into(),
        op: Op::Read,
        cause: Cause::Recovery.name(),
        priority: "normal",
        zone,
        offset: 0,
        len: 4096,
        result: "ok",
    };
    steps.begin(0, (0..zones).map(read).collect(), 0.0);
    let end = std::iter::from_fn(|| steps.next()).last().map_or(0.0, |(_, end)| end);
    let total = steps.stats().total;
    let mut row = Row::new("", &profile.name);
    row.rule = Rule::Fewer.name().into();
    row.device_seconds = Some(end / 1e9);
    row.operations = Some(zones.into());
    row.bytes_read = Some(u64::from(zones) * 4096);
    let names = ["seek", "rotation", "transfer", "zone ops"].map(str::to_owned);
    let kinds = [total.seek, total.rotation, total.transfer, total.zone_ops];
    row.seconds = names.into_iter().zip(kinds).collect();
    Ok(row)
}

/// The case with the heads of all zones before it.
fn init(case: Row, heads: f64) -> Row {
    let mut row = case;
    row.figures.insert("s, heads of all zones".into(), heads);
    row.device_seconds = row.device_seconds.map(|seconds| seconds + heads);
    row.paper = Some(Figure::new(240.0, "s, or more", "SMRSTORE, section 6.4: more than 4 minutes"));
    row
}

/// The two costs that come nearest to all points (how many of the first, how many of the second, seconds); `None`: they do not say.
fn fit(points: &[(f64, f64, f64)]) -> Option<(f64, f64)> {
    let sum = |of: &dyn Fn(&(f64, f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let (aa, ab, bb) = (sum(&|p| p.0 * p.0), sum(&|p| p.0 * p.1), sum(&|p| p.1 * p.1));
    let (ay, by) = (sum(&|p| p.0 * p.2), sum(&|p| p.1 * p.2));
    let det = aa * bb - ab * ab;
    (points.len() > 1 && det.abs() > 1e-9 * aa * bb).then(|| ((ay * bb - by * ab) / det, (by * aa - ay * ab) / det))
}

/// What was measured, as lines: a constant and seconds a byte of metazones and of the new checkpoint; seconds a zone and a byte of scans.
struct Costs {
    rest: f64,
    metazones: (f64, f64),
    checkpoint: (f64, f64),
    scan: (f64, f64),
}

impl Costs {
    fn of(index: &[Opened], scans: &[Opened]) -> Option<Costs> {
        let line = |part: Part| {
            let points = index.iter().map(|one| (1.0, one.cost(part).bytes, one.cost(part).seconds));
            fit(&points.collect::<Vec<_>>())
        };
        let points =
            scans.iter().map(|one| (one.zones as f64, one.cost(Part::Scan).bytes, one.cost(Part::Scan).seconds));
        let all = || index.iter().chain(scans);
        let rest = |one: &Opened| one.cost(Part::Heads).seconds + one.cost(Part::Other).seconds;
        Some(Costs {
            rest: all().map(rest).fold(0.0, f64::max),
            metazones: line(Part::Metazones)?,
            checkpoint: line(Part::Checkpoint)?,
            scan: fit(&points.collect::<Vec<_>>())?,
        })
    }
}

/// A case, computed.
fn computed(profile: &Profile, costs: &Costs, case: &Case) -> Row {
    let checkpoint = checkpoint_bytes();
    // In each ring one whole checkpoint, in one of them the next but for its end, and before each as much as a zone of what is older.
    let metazones = 3.0 * checkpoint + 2.0 * profile.zone_size as f64;
    let records = case.checkpoint as f64 / RECORD as f64;
    let told =
        case.tell.map_or(0.0, |tell| (case.checkpoint / tell) as f64 * (OPEN * OF_TOLD + 4096.0) + records * OF_RECORD);
    let scanned = (case.tell.unwrap_or(case.checkpoint) + IN_MEMORY) as f64;
    let line = |(a, b): (f64, f64), n: f64, bytes: f64| a * n + b * bytes;
    let parts = [
        ("heads, label and zones", costs.rest, None),
        ("checkpoints and journal", line(costs.metazones, 1.0, metazones + 2.0 * told), Some(19.0)),
        ("scan", line(costs.scan, OPEN, scanned), Some(75.0)),
        ("new checkpoint", line(costs.checkpoint, 1.0, checkpoint), None),
    ];
    let mut row = Row::new("", &profile.name);
    row.rule = "extrapolated".into();
    let total: f64 = parts.iter().map(|(_, seconds, _)| seconds).sum();
    row.device_seconds = Some(total);
    row.paper = Some(Figure::new(
        94.4,
        "s",
        "SMRSTORE, section 6.4; 19 checkpoint, less than 1 journal, 75 scan; ext4 about 20",
    ));
    for (name, seconds, _) in parts {
        row.figures.insert(format!("s, {name}"), seconds);
    }
    row.figures.insert("MB of a checkpoint".into(), checkpoint / 1e6);
    row.figures.insert("GiB between checkpoints".into(), case.checkpoint as f64 / GIB as f64);
    row.figures.insert("MiB scanned".into(), scanned / MIB as f64);
    row.write_amplification = Some(1.0 + (checkpoint + 2.0 * told) / case.checkpoint as f64);
    row.flags.push("computed from the costs in the rows above, not measured".into());
    row
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    run.model(&profile);
    run.once("commands on a virtual clock: every run is the same");
    run.setting("the case", "12 TB in chunks of 253 MiB and records of 512 KiB, 55 open zones; the crash just before a checkpoint is complete");
    run.setting("MiB that one commit may bring beside what was not told", IN_MEMORY / MIB);
    run.setting(
        "measured indexes",
        "chunks without a byte, 48 bytes of a checkpoint each: to the drive a byte is a byte",
    );
    run.setting("write cache", "off");
    let load = Load::of(run.options.short);
    let (mut indexes, mut scans) = (Vec::new(), Vec::new());
    for part in load.index {
        run.row(&index_name(part), |_| {
            let one = index(&profile, part)?;
            let row = row(&profile, &one);
            indexes.push(one);
            Ok(row)
        })?;
    }
    for one in load.scans {
        run.row(&one.name(), |_| {
            let one = scan(&profile, one)?;
            let row = row(&profile, &one);
            scans.push(one);
            Ok(row)
        })?;
    }
    let costs = Costs::of(&indexes, &scans);
    for case in &CASES {
        run.row(case.name, |_| match &costs {
            Some(costs) => Ok(computed(&profile, costs, case)),
            None => Err("it is computed from all other rows; run them too".into()),
        })?;
    }
    run.row(HEADS, |_| heads(&profile))?;
    let all_heads = run.measured(HEADS).and_then(|row| row.device_seconds);
    run.row(INIT, |_| match (&costs, all_heads) {
        (Some(costs), Some(heads)) => Ok(init(computed(&profile, costs, &CASES[0]), heads)),
        _ => Err("it is computed from all other rows; run them too".into()),
    })?;
    run.row(EXT4, |run| opening(run, &profile, on_ext4(run.options.short)))?;
    if let Some(costs) = &costs {
        let notes = [
            format!(
                "Metazones: {:.3} s and {:.2} s a GB; a chunk is {OF_CHUNK} bytes of each checkpoint there ({:.2} µs), a record {OF_RECORD} ({:.3} µs).",
                costs.metazones.0,
                costs.metazones.1 * 1e9,
                costs.metazones.1 * OF_CHUNK * 1e6,
                costs.metazones.1 * OF_RECORD * 1e6
            ),
            format!(
                "Scan: {:.1} ms a zone and {:.2} s a GB ({:.2} ms a record of 512 KiB). A new checkpoint: {:.3} s and {:.2} s a GB.",
                costs.scan.0 * 1e3,
                costs.scan.1 * 1e9,
                costs.scan.1 * RECORD as f64 * 1e3,
                costs.checkpoint.0,
                costs.checkpoint.1 * 1e9
            ),
            "Time of the drive alone: what the processor does with what was read is not in it.".into(),
        ];
        run.outcome.notes.extend(notes);
    }
    charts(run);
    Ok(())
}

fn charts(run: &mut Run) {
    let Some(row) = run.measured(CASES[0].name).cloned() else { return };
    let Some(total) = row.device_seconds else { return };
    let part = |name: &str| row.figures.get(&format!("s, {name}")).copied().unwrap_or(0.0);
    let init = run.measured(INIT).and_then(|row| row.device_seconds);
    let bars = vec![
        ("metazones".to_owned(), part("checkpoints and journal"), Some(19.0)),
        ("scan".to_owned(), part("scan"), Some(75.0)),
        ("new checkpoint".to_owned(), part("new checkpoint"), None),
        ("all".to_owned(), total, Some(94.4)),
    ];
    let anywhere = init.map(|seconds| ("all, metazones anywhere".to_owned(), seconds, Some(240.0)));
    let ext4 = run.measured(EXT4).and_then(|row| row.device_seconds);
    let measured = ext4.map(|seconds| ("ext4, measured".to_owned(), seconds, Some(19.6)));
    let bars = bars.into_iter().chain(anywhere).chain(measured).collect();
    run.outcome.charts.push(Chart {
        file: "recovery".into(),
        title: "Opening after a crash: 20 TB, 60 % full, 55 open zones (extrapolated)".into(),
        x: Axis::even(""),
        y: Axis::even("seconds of the drive"),
        shape: Shape::Bars(bars),
    });
    let ratio = Ratio::of("the paper's seconds over ours, extrapolated (20 s are 4.7)", &[94.4 / total]);
    run.outcome.ratios.extend(ratio.map(|ratio| Ratio { goal: Some(94.4 / 20.0), ..ratio }));
    let over = |ext4: f64| Ratio::of("seconds of ext4, measured, over ours, extrapolated", &[ext4 / total]);
    run.outcome.ratios.extend(ext4.and_then(over));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_is_found_through_its_points() {
        let points: Vec<_> = [(1.0, 5.0), (2.0, 3.0), (4.0, 4.0)].map(|(a, b)| (a, b, 2.0 * a + 0.5 * b)).into();
        let (a, b) = fit(&points).unwrap();
        assert!((a - 2.0).abs() < 1e-9 && (b - 0.5).abs() < 1e-9, "{a} {b}");
        assert!(fit(&[(1.0, 2.0, 3.0), (2.0, 4.0, 6.0)]).is_none(), "one line says nothing of two costs");
    }

    #[test]
    fn more_index_takes_longer_in_metazones_and_more_zones_in_the_scan() {
        let profile = Profile::named(DRIVE).unwrap();
        let load = Load::of(true);
        let [few, .., many] = load.index.map(|part| index(&profile, part).unwrap());
        assert!(many.cost(Part::Metazones).bytes > 2.0 * few.cost(Part::Metazones).bytes);
        assert!(many.cost(Part::Checkpoint).bytes > checkpoint_bytes() / 1024.0);
        assert_eq!((few.zones, few.cost(Part::Scan)), (0, Cost::default()));
        let [one, .., two] = load.scans.map(|one| scan(&profile, one).unwrap());
        assert_eq!((one.zones, two.zones), (4, 12));
        assert!(two.cost(Part::Scan).seconds > one.cost(Part::Scan).seconds);
        assert!(two.cost(Part::Scan).bytes >= 48.0 * MIB as f64 && two.cost(Part::Scan).bytes < 52.0 * MIB as f64);
        let costs = Costs::of(&[few, many], &[one, two]).unwrap();
        let row = computed(&profile, &costs, &CASES[0]);
        let parts: f64 = row.figures.iter().filter(|(name, _)| name.starts_with("s, ")).map(|(_, s)| s).sum();
        assert!((parts - row.device_seconds.unwrap()).abs() < 1e-9);
        let heads = heads(&profile).unwrap();
        let seconds = heads.device_seconds.unwrap();
        // A way to the next zone and half a turn, 73,708 times.
        assert!(seconds > 120.0 && heads.operations.unwrap() > 70_000, "{heads:?}");
        let all = row.device_seconds.unwrap() + seconds;
        assert!((init(row, seconds).device_seconds.unwrap() - all).abs() < 1e-9);
    }
}
