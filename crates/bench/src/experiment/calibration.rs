//! `calibration`: every profile against its published figures, and the sequential fill of a whole drive (BlueFS, Table 1 and
//! Figure 5). The model alone, on drives of their full size.

use super::chart::{Axis, Chart, Series, Shape};
use super::result::{Figure, Ratio, Row};
use super::sample::{kinds, stayed};
use super::sensitivity::{self, Replayed};
use super::{Experiment, Needs, Rule, Run, Stop};
use imbrex_emulator::time::{Replay, TimeStats, answer, replay};
use imbrex_emulator::{Op, Profile, TraceEntry};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "calibration",
    about: "What the model says where others measured real drives, and what filling a whole drive in order takes",
    paper: "BlueFS, Table 1, Figure 5; SMRSTORE, Table 2",
    speed: 1.0,
    rows: |_| rows(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 1 << 30 },
    run,
};

const MIB: u64 = 1 << 20;
/// Pieces of a fill; each is a point of the chart.
const PIECES: u64 = 64;
/// Where assumptions are varied, a fill writes a part of each piece.
const SAMPLE: u64 = 64;
const HGST: &str = "hgst-hsh721414al";
const HITACHI: &str = "hitachi-hua72303";

/// Profiles that keep time and are somebody's drive.
fn profiles() -> Vec<Profile> {
    Profile::all().into_iter().filter(|p| !p.facts.is_empty() && !p.parameters.is_empty()).collect()
}

fn fill_of(profile: &Profile) -> String {
    format!("{}: whole drive in order", profile.name)
}

fn rows() -> Vec<String> {
    let mut names = Vec::new();
    for profile in profiles() {
        names.extend(profile.facts.iter().map(|fact| format!("{}: {}", profile.name, fact.what)));
        names.push(fill_of(&profile));
    }
    names
}

/// A write of 1 MiB at each place of the piece that begins at `at`; what it takes.
fn fill_piece(profile: &Profile, at: u64, commands: u64) -> Result<TimeStats, String> {
    let trace: Vec<TraceEntry> = (0..commands)
        .map(|i| TraceEntry {
            sequence: i,
            op: Op::Write,
            cause: "table",
            priority: "normal",
            zone: ((at + i * MIB) / profile.zone_size) as u32,
            offset: at + i * MIB,
            len: MIB as u32,
            result: "ok",
        })
        .collect();
    replay(profile, &trace, Replay { depth: 2, write_cache: true })
}

/// Fills the drive, and what each piece of it gave: seconds since the beginning, and MiB/s.
///
/// Of each piece only a `part`-th is written.
fn fill(run: &Run, profile: &Profile, part: u64) -> Result<(Row, Vec<(f64, f64)>), Stop> {
    // A short one leaves out most of each piece.
    let part = if run.options.short { 512 } else { part };
    // Pieces begin with a zone, or a band.
    let unit = profile.zone_size.max(profile.time()?.map_or(0, |p| p.band_mib as u64 * MIB * 128));
    let piece = (profile.capacity / PIECES / unit).max(1) * unit;
    let mut row = Row::new("", &profile.name);
    let (mut seconds, mut busy, mut stay, mut bytes, mut commands) = (0.0, 0.0, 0.0, 0, 0);
    let mut curve = Vec::new();
    for i in 0..PIECES {
        if run.stopped() {
            return Err(Stop::Interrupted);
        }
        if part < SAMPLE {
            run.says(&format!("{}: {i} of {PIECES}", fill_of(profile)));
        }
        let at = i * piece;
        let len = if i == PIECES - 1 { profile.capacity - at } else { piece };
        let n = (len / MIB / part).max(1);
        let stats = fill_piece(profile, at, n)?;
        // What was left out takes as long as what was not.
        let took = stats.elapsed * (len as f64 / (n * MIB) as f64);
        curve.push((seconds + took / 2.0, (n * MIB) as f64 / MIB as f64 / stats.elapsed));
        seconds += took;
        let whole = took / stats.elapsed;
        busy += stats.total.busy() * whole;
        stay += stayed(&stats) * whole;
        bytes += n * MIB;
        commands += n;
        for (kind, spent) in kinds(&stats.total) {
            *row.seconds.entry(kind).or_default() += spent * whole;
        }
    }
    let average = profile.capacity as f64 / MIB as f64 / seconds;
    (row.device_seconds, row.wall_seconds) = (Some(busy), Some(seconds));
    row.operations = Some(commands);
    (row.bytes_user, row.bytes_drive) = (Some(bytes), Some(bytes));
    row.drive_utilisation = Some((busy / seconds).min(1.0));
    row.queue_depth = Some(stay / seconds);
    // One behind each piece.
    row.flushes = Some(PIECES);
    row.figures.insert("average, MiB/s".into(), average);
    row.rule = Rule::Whole.name().into();
    let published = profile.facts.iter().find(|fact| fact.what == "sequential bandwidth, average");
    row.paper = published.map(|fact| Figure::new(fact.value, &fact.unit, &fact.source));
    Ok((row.amplified(), curve))
}

/// What assumptions are worth: the same for a part of each piece, as the model alone is asked.
fn assumptions(run: &Run, profile: &Profile) -> Result<Replayed, Stop> {
    let took = |profile: &Profile| match fill(run, profile, SAMPLE) {
        Ok((row, _)) => Ok((row.device_seconds.unwrap_or(0.0), row.wall_seconds.unwrap_or(0.0), row.operations)),
        Err(Stop::Interrupted) => Err("it was interrupted".to_owned()),
        Err(Stop::Failed(why)) => Err(why),
    };
    let (busy, elapsed, commands) = took(profile)?;
    let changes =
        sensitivity::each(run, sensitivity::variants(profile), |changed| took(changed).map(|(b, e, _)| (b, e)))?;
    Ok(Replayed { commands: commands.unwrap_or(0), forgotten: 0, measured: busy, busy, elapsed, changes })
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("the model alone: every run is the same");
    run.setting("command of a fill", "1 MiB, 2 at once, write cache on");
    let (mut curves, mut bars) = (Vec::new(), Vec::new());
    for profile in profiles() {
        run.model(&profile);
        for fact in &profile.facts {
            let name = format!("{}: {}", profile.name, fact.what);
            run.row(&name, |_| {
                let mut row = Row::new("", &profile.name);
                row.rule = Rule::Whole.name().into();
                row.paper = Some(Figure::new(fact.value, &fact.unit, &fact.source));
                match answer(&profile, fact)? {
                    Some(model) => {
                        row.figures.insert(format!("model, {}", fact.unit), model);
                        row.figures.insert("model over published".into(), model / fact.value);
                    }
                    None => row.flags.push("place or span are not stated: nothing the model could answer".into()),
                }
                Ok(row)
            })?;
        }
        let mut curve = Vec::new();
        run.row(&fill_of(&profile), |run| {
            let (mut row, points) = fill(run, &profile, 1)?;
            curve = points;
            if run.options.sensitivity && [HGST, HITACHI].contains(&profile.name.as_str()) {
                row.replayed = Some(assumptions(run, &profile)?);
            }
            Ok(row)
        })?;
        if let Some(row) = run.measured(&fill_of(&profile))
            && let Some(average) = row.figures.get("average, MiB/s")
        {
            bars.push((profile.name.clone(), *average, row.paper.as_ref().map(|figure| figure.value)));
            curves.push(Series { name: profile.name.clone(), points: curve });
        }
    }
    compare(run);
    if !curves.is_empty() {
        charts(run, curves, bars);
    }
    Ok(())
}

/// HGST against Hitachi: the paper says two things.
fn compare(run: &mut Run) {
    let average = |name: &str| {
        let row = run.measured(&format!("{name}: whole drive in order"))?;
        row.figures.get("average, MiB/s").copied()
    };
    let (Some(hgst), Some(hitachi)) = (average(HGST), average(HITACHI)) else { return };
    if let Some(ratio) = Ratio::of("filling a whole drive: MiB/s of HGST over those of Hitachi", &[hgst / hitachi]) {
        let ratio = ratio.between(format!("{HITACHI}: whole drive in order"), format!("{HGST}: whole drive in order"));
        run.outcome.ratios.push(Ratio {
            bandwidth_alone: Some(170.0 / 120.0),
            ..ratio.paper(1.32, "x", "BlueFS, section 5.1, text of Figure 5; its Table 1 gives 1.42")
        });
    }
}

fn charts(run: &mut Run, curves: Vec<Series>, bars: Vec<(String, f64, Option<f64>)>) {
    let hours = curves
        .into_iter()
        .map(|one| Series { points: one.points.iter().map(|(seconds, y)| (seconds / 3600.0, *y)).collect(), ..one });
    run.outcome.charts.push(Chart {
        file: "fill".into(),
        title: "Filling a whole drive in order".into(),
        x: Axis::even("hours"),
        y: Axis::even("MiB/s"),
        shape: Shape::Lines(hours.collect()),
    });
    run.outcome.charts.push(Chart {
        file: "average".into(),
        title: "Average over a whole drive".into(),
        x: Axis::default(),
        y: Axis::even("MiB/s"),
        shape: Shape::Bars(bars),
    });
}
