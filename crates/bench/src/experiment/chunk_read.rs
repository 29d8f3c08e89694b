//! `chunk-read`: random reads of sealed chunks of a clean store, SMRSTORE's Figure 16: 16 under way, 4 KiB to 1 MiB each. Real mechanics, on
//! the [virtual clock](super::virtual_clock).
//!
//! One store serves all rows: its zones, as many as may be open for one kind of stream, are partly filled, and lie evenly spread
//! over the part of the drive that a row is about, so that the way from one read to the next is as long as on a full drive. What the
//! drive itself does with reads of the same places stands beside it: what the store's framing costs is the rest.

use super::chart::{Axis, Chart, Series, Shape};
use super::chunk_write::{DEPTH, DRIVE, JOBS, SIZES, Span, TURNAROUND, ZONES, at_part, size_name};
use super::kernel_chunks::{self, Kernel};
use super::result::{Ratio, Row};
use super::virtual_clock::{Host, Nanoseconds, Steps, why};
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_chunkstore::format::ZoneUse;
use imbrex_chunkstore::{Append, ChunkId, Durability, Options, StreamType};
use imbrex_emulator::{Op, Profile, TraceEntry};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "chunk-read",
    about: "Random reads of the chunks of a clean store: 16 under way, 4 KiB to 1 MiB each",
    paper: "SMRSTORE, section 6.1, Figure 16",
    speed: 1.0,
    rows: |_| cells().iter().map(Cell::name).collect(),
    extra: |options| {
        let extra =
            |cell: &&Cell| if options.short { matches!(cell.engine, Engine::F2fs | Engine::Xfs) } else { cell.extra() };
        cells().iter().filter(extra).map(Cell::name).collect()
    },
    // The directory for drives holds what is written to ext4.
    needs: |options| Needs { work: if options.short { 256 << 20 } else { 1 << 30 }, memory: 3 << 30 },
    run,
};

const MIB: u64 = 1 << 20;
/// Four for each zone that they stand in.
const CHUNKS: u64 = 160;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Ours,
    Drive,
    Ext4,
    F2fs,
    Xfs,
}

impl Engine {
    const ALL: [Engine; 5] = [Engine::Ours, Engine::Drive, Engine::Ext4, Engine::F2fs, Engine::Xfs];

    fn name(self) -> &'static str {
        ["this store", "the drive itself", "ext4 on CMR", "F2FS", "Zoned XFS"][self as usize]
    }
}

/// One combination. Nothing is written, so the write cache does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    engine: Engine,
    span: Span,
    size: u64,
}

impl Cell {
    fn name(&self) -> String {
        format!("{}, {}, {}", self.engine.name(), size_name(self.size), self.span.name())
    }

    /// Whether only the full form has it: on ext4 reads run by the world's clock, and the others have nothing of their own in them.
    fn extra(&self) -> bool {
        match self.engine {
            Engine::Ext4 => self.span == Span::Whole || ![SIZES[0], SIZES[2], MIB].contains(&self.size),
            Engine::F2fs | Engine::Xfs => true,
            _ => false,
        }
    }

    /// What is asked of a file system of the kernel.
    fn kernel(&self) -> Option<kernel_chunks::Asked> {
        let kernel = match self.engine {
            Engine::Ext4 => Kernel::Ext4,
            Engine::F2fs => Kernel::F2fs,
            Engine::Xfs => Kernel::Xfs,
            _ => return None,
        };
        Some(kernel_chunks::Asked { kernel, span: self.span, cache: true, size: self.size, scattered: true })
    }

    /// Sizes of which there are rows like this one, of any part of the drive: what is set up once serves all.
    fn wanted(&self, run: &Run) -> Vec<u64> {
        let any = |size: &u64| {
            cells().iter().any(|cell| cell.engine == self.engine && cell.size == *size && run.wants(&cell.name()))
        };
        SIZES.into_iter().filter(any).collect()
    }
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for span in Span::ALL {
        for engine in Engine::ALL {
            cells.extend(SIZES.map(|size| Cell { engine, span, size }));
        }
    }
    cells
}

/// A full store: how long its chunks are, and the zones that they stand in.
struct Filled {
    host: Host,
    chunk: u64,
    zones: Vec<u32>,
}

fn fill(profile: &Profile, chunk: u64) -> Result<Filled, Stop> {
    let host = Host::new(profile, ZONES, true, Options::default())?;
    let how = Append { offset: None, durability: Durability::Buffered };
    let bytes = vec![7; MIB as usize];
    for id in 0..CHUNKS {
        host.store.create_with(ChunkId::of_number(id), StreamType::GC, Durability::Buffered).map_err(why)?;
    }
    for _ in 0..chunk / MIB {
        for id in 0..CHUNKS {
            host.store.append_with(ChunkId::of_number(id), &bytes, how).map_err(why)?;
        }
        host.store.sync().map_err(why)?;
    }
    let zones = host
        .store
        .zones()
        .into_iter()
        .filter(|zone| matches!(zone.usage, Some(ZoneUse::Data(_))))
        .map(|zone| zone.zone);
    let zones = zones.collect();
    Ok(Filled { host, chunk, zones })
}

impl Filled {
    /// Zones with data in their order evenly over the span, the others in its front, where nothing is read.
    fn layout(&self, profile: &Profile, span: Span) -> Vec<u64> {
        let (first, all) = span.zones(profile);
        let step = all as f64 / self.zones.len().max(1) as f64;
        let place = |zone: u32| match self.zones.binary_search(&zone) {
            Ok(rank) => first + ((rank as f64 + 0.5) * step) as u64,
            Err(_) => first + u64::from(zone),
        };
        (0..ZONES).map(|zone| place(zone) * profile.zone_size).collect()
    }
}

/// The next random number (splitmix), so that every row asks for the same places.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

struct Measured {
    seconds: f64,
    busy: f64,
    kinds: [f64; 4],
    read: u64,
    took: Vec<Nanoseconds>,
}

fn play(profile: &Profile, filled: &Filled, cell: &Cell, reads: u64) -> Result<Measured, Stop> {
    let mut steps = Steps::new(profile, true, filled.layout(profile, cell.span))?;
    let mut out = vec![0; cell.size as usize];
    let (mut seed, mut left, mut end) = (1, reads, 0.0);
    let mut came = [None; JOBS * DEPTH];
    let mut measured = Measured { seconds: 0.0, busy: 0.0, kinds: [0.0; 4], read: 0, took: Vec::new() };
    for client in 0..came.len() {
        steps.begin(client, Vec::new(), client as f64 * TURNAROUND);
    }
    while let Some((client, now)) = steps.next() {
        if let Some(came) = came[client].take() {
            measured.took.push(now - came);
            end = now;
            steps.begin(client, Vec::new(), now + TURNAROUND);
            continue;
        }
        if left == 0 {
            continue;
        }
        left -= 1;
        came[client] = Some(now);
        let id = ChunkId::of_number(random(&mut seed) % CHUNKS);
        let offset = random(&mut seed) % (filled.chunk / cell.size) * cell.size;
        let commands = match cell.engine {
            Engine::Ours => {
                let (n, commands) = filled.host.took(|store| store.read(id, offset, &mut out))?;
                if n as u64 != cell.size || out.iter().any(|byte| *byte != 7) {
                    return Err(Stop::Failed(
                        "the store gave out other bytes than it was given; look into that first".into(),
                    ));
                }
                commands
            }
            _ => {
                let places = filled.host.store.places(id).map_err(why)?;
                let group = places.iter().find(|p| u64::from(p.offset + p.len) > offset).copied();
                let group = group.ok_or_else(|| format!("nothing of the chunk stands at {offset}"))?;
                // Chunks of a zone are mixed there, so about where the byte is will do.
                let at = u64::from(group.zone) * profile.zone_size + group.at.unwrap_or(0) + offset * 4;
                let len = cell.size as u32;
                let (op, zone) = (Op::Read, group.zone);
                vec![TraceEntry {
                    sequence: 0,
                    op,
                    cause: "user_read",
                    priority: "normal",
                    zone,
                    offset: at,
                    len,
                    result: "ok",
                }]
            }
        };
        measured.read += commands.iter().map(|one| u64::from(one.len)).sum::<u64>();
        steps.begin(client, commands, now);
    }
    let stats = steps.stats();
    measured.seconds = end / 1e9;
    measured.busy = stats.total.busy();
    measured.kinds = [stats.total.seek, stats.total.rotation, stats.total.transfer, stats.total.zone_ops];
    measured.took.sort_by(f64::total_cmp);
    Ok(measured)
}

fn measure(profile: &Profile, filled: &Filled, cell: &Cell, reads: u64) -> Result<Row, Stop> {
    let measured = play(profile, filled, cell, reads)?;
    let mut row = Row::new("", &profile.name);
    row.rule = Rule::Fewer.name().into();
    (row.device_seconds, row.wall_seconds) = (Some(measured.busy), Some(measured.seconds));
    row.operations = Some(measured.took.len() as u64);
    row.bytes_read = Some(measured.read);
    row.drive_utilisation = (measured.seconds > 0.0).then(|| (measured.busy / measured.seconds).min(1.0));
    let names = ["seek", "rotation", "transfer", "zone ops"].map(str::to_owned);
    row.seconds = names.into_iter().zip(measured.kinds).collect();
    let each = measured.took.len() as f64 / measured.seconds.max(1e-9);
    let figures = [
        ("reads/s", each),
        ("MB/s", each * cell.size as f64 / 1e6),
        ("ms a read, median", at_part(&measured.took, 0.5)),
        ("ms a read, 99 %", at_part(&measured.took, 0.99)),
    ];
    row.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let profile = Profile::named(DRIVE).ok_or_else(|| format!("the profile {DRIVE} is gone"))?;
    let (chunk, reads) = if run.options.short { (MIB, 64) } else { (8 * MIB, 3000) };
    run.model(&profile);
    run.once("logical clients on a virtual clock: every run is the same");
    run.setting("bytes of each chunk", chunk);
    run.setting("chunks", CHUNKS);
    run.setting("reads of a row", reads);
    run.setting("microseconds between an answer and the client's next read (assumed)", TURNAROUND / 1e3);
    let mut filled = None;
    let mut kernels = kernel_chunks::Measured::default();
    for cell in cells() {
        run.row(&cell.name(), |run| {
            if let Some(asked) = cell.kernel() {
                return kernels.read(run, &profile, asked, &cell.wanted(run));
            }
            if filled.is_none() {
                filled = Some(fill(&profile, chunk)?);
            }
            match &filled {
                Some(filled) => measure(&profile, filled, &cell, reads),
                None => Err(Stop::Failed("there is no store to read from".into())),
            }
        })?;
    }
    for span in Span::ALL {
        for size in SIZES {
            let at = |engine| Cell { engine, span, size };
            let (Some(ours), Some(drive)) = (rate(run, at(Engine::Ours)), rate(run, at(Engine::Drive))) else {
                continue;
            };
            let name = format!("{}: reads/s over those of the drive itself", at(Engine::Ours).name());
            // Only the smallest has a goal: within 3 %.
            let goal = (size == SIZES[0]).then_some(0.97);
            run.outcome.ratios.extend(Ratio::of(name, &[ours / drive]).map(|ratio| Ratio { goal, ..ratio }));
            for under in [Engine::Ext4, Engine::F2fs, Engine::Xfs] {
                let Some(theirs) = rate(run, at(under)) else { continue };
                let name = format!("{}: MB/s over those of {}", at(Engine::Ours).name(), under.name());
                run.outcome.ratios.extend(Ratio::of(name, &[ours / theirs]));
            }
        }
        chart(run, span);
    }
    Ok(())
}

fn rate(run: &Run, cell: Cell) -> Option<f64> {
    run.measured(&cell.name())?.figures.get("MB/s").copied()
}

fn chart(run: &mut Run, span: Span) {
    let line = |engine: Engine| {
        let point = |size: u64| Some((size as f64 / 1024.0, rate(run, Cell { engine, span, size })?));
        Series { name: engine.name().into(), points: SIZES.into_iter().filter_map(point).collect() }
    };
    let series: Vec<Series> = Engine::ALL.into_iter().map(line).filter(|line| line.points.len() > 1).collect();
    if series.is_empty() {
        return;
    }
    run.outcome.charts.push(Chart {
        file: format!("read-{}", span.name().replace(' ', "-")),
        title: format!("Random reads, 16 at once, {} ({DRIVE})", span.name()),
        x: Axis::log("KiB a read"),
        y: Axis::even("MB/s"),
        shape: Shape::Lines(series),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_store_take_as_long_as_the_drives_own() {
        let profile = Profile::named(DRIVE).unwrap();
        let filled = fill(&profile, MIB).unwrap();
        assert!(filled.zones.len() >= 30, "{:?}", filled.zones);
        let layout = filled.layout(&profile, Span::Whole);
        let places: Vec<u64> = filled.zones.iter().map(|zone| layout[*zone as usize]).collect();
        assert!(places.is_sorted() && places[places.len() - 1] > profile.capacity / 10 * 9, "over the whole stroke");
        let of = |engine| play(&profile, &filled, &Cell { engine, span: Span::Whole, size: 4096 }, 200).unwrap();
        let (ours, drive) = (of(Engine::Ours), of(Engine::Drive));
        assert_eq!((ours.took.len(), drive.took.len()), (200, 200));
        assert!(ours.read >= 200 * 8192 / 2 && drive.read == 200 * 4096);
        assert!((0.9..1.15).contains(&(ours.seconds / drive.seconds)), "{} {}", ours.seconds, drive.seconds);
    }
}
