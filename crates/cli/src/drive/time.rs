//! `imbrex drive replay`: what a recorded workload would have taken on another drive.

use super::{Image, image_path};
use crate::known;
use crate::output::{Failure, Outcome, number_of, print, print_json};
use imbrex_drives::parse_bool;
use imbrex_emulator::time::{Latency, Pace, Replay, Seconds, TimeStats, fingerprint, replay};
use imbrex_emulator::{Emulator, OpenOptions, Profile, read_image_trace};
use serde_json::json;
use std::path::Path;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    image: Image,
    /// Drive model, one of `imbrex drive profiles`, or a file that describes one.
    #[arg(long, value_name = "NAME|FILE", value_parser = known::profile(), hide_possible_values = true)]
    profile: String,
    /// Commands at the drive at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Volatile write cache of the drive, on or off.
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = parse_bool, action = clap::ArgAction::Set)]
    write_cache: bool,
}

/// A profile of a drive-managed drive, to name one.
const DRIVE_MANAGED: &str = "seagate-st8000as0022";

#[derive(clap::Args)]
pub(super) struct Precondition {
    #[command(flatten)]
    image: Image,
    /// Extents in the persistent cache, single blocks spread over the drive; as many as it can hold without it.
    #[arg(long, value_name = "N", conflicts_with = "fill")]
    extents: Option<u32>,
    /// The same as a part of what the cache can hold, as 0.5.
    #[arg(long, value_name = "PART", value_parser = part)]
    fill: Option<f64>,
}

fn part(text: &str) -> Result<f64, String> {
    let part = text.parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| format!("{text:?} is no part; write a number from 0 to 1"))
}

pub(super) fn precondition(args: Precondition) -> Outcome {
    let path = image_path(&args.image.path)?;
    let drive = Emulator::open(&path, OpenOptions::default())?;
    if drive.config().model.is_none_or(|model| !model.params.translates()) {
        return Err(Failure::failed(format!(
            "{}: it is no drive-managed drive, so it has no persistent cache to fill; make one with `imbrex drive create PATH \
             --profile {DRIVE_MANAGED}`",
            path.display()
        )));
    }
    drive.keep_own_time(Pace::Account)?;
    let most = drive.config().model.map_or(0.0, |model| model.effective().persistent_cache_extents);
    let extents = args.extents.map(|n| n as usize).or(args.fill.map(|fill| (most * fill) as usize));
    drive.precondition(extents.unwrap_or(usize::MAX))?;
    let cache = drive.time().and_then(|time| time.persistent_cache);
    let (extents, bytes) = cache.map_or((0, 0), |cache| (cache.extents, cache.bytes));
    if args.image.json {
        return print_json(&json!({ "extents": extents, "bytes": bytes }));
    }
    print(format!(
        "{}: every band has something in it; the persistent cache holds {}, {} of its log",
        path.display(),
        number_of(extents as u64, "extent"),
        crate::output::size(bytes)
    ))
}

pub(super) fn run(args: Args) -> Outcome {
    let is_file = Path::new(&args.profile).is_file();
    let wrong = |sentence| if is_file { Failure::failed(sentence) } else { Failure::usage(sentence) };
    let profile = Profile::find(&args.profile).map_err(wrong)?;
    let path = image_path(&args.image.path)?;
    let Some(trace) = read_image_trace(&path)? else {
        let path = path.display();
        return Err(Failure::failed(format!(
            "{path}: its commands were not recorded; run `imbrex drive trace {path} --start`, then the workload"
        )));
    };
    let first = trace.first().map_or(0, |entry| entry.sequence);
    let how = Replay { depth: usize::from(args.depth), write_cache: args.write_cache };
    let stats = replay(&profile, &trace, how).map_err(Failure::usage)?;
    if args.image.json {
        return print_json(&json!({
            "profile": profile.name,
            "model": fingerprint(&profile),
            "commands": trace.len(),
            "commands_forgotten": first,
            "depth": how.depth,
            "write_cache": how.write_cache,
            "time": stats,
        }));
    }
    let mut text = describe(&stats);
    text.push_str(&format!(
        "\n{} on {} (model {}), {} at once, write cache {}; host think time counts as none",
        number_of(trace.len() as u64, "command"),
        profile.name,
        fingerprint(&profile),
        how.depth,
        if how.write_cache { "on" } else { "off" },
    ));
    if first > 0 {
        text.push_str(&format!(
            "\nof the first commands {first} are not in the trace any more; record with more --entries"
        ));
    }
    print(text)
}

/// A table of where the time went.
pub(super) fn describe(stats: &TimeStats) -> String {
    let mut lines = vec![format!(
        "{:<12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9} {:>9}",
        "cause",
        "seconds",
        "seek",
        "rotation",
        "transfer",
        "zone ops",
        "cleaning",
        "commands",
        "median",
        "99 %",
        "longest"
    )];
    let row = |name: &str, seconds: &Seconds, latency: Option<&Latency>| {
        let s = |seconds: f64| format!("{seconds:.3}");
        let ms = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
        let of = |part: fn(&Latency) -> f64| latency.map_or("".into(), |latency| ms(part(latency)));
        format!(
            "{name:<12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9} {:>9}",
            s(seconds.busy()),
            s(seconds.seek),
            s(seconds.rotation),
            s(seconds.transfer),
            s(seconds.zone_ops),
            s(seconds.cleaning),
            latency.map_or("".into(), |latency| latency.commands.to_string()),
            of(|latency| latency.p50),
            of(|latency| latency.p99),
            of(|latency| latency.max),
        )
        .trim_end()
        .to_owned()
    };
    lines.extend(stats.by_cause.iter().map(|(cause, seconds)| row(cause, seconds, stats.latency.get(cause))));
    lines.push(row("all", &stats.total, None));
    let part = if stats.elapsed > 0.0 { 100.0 * stats.total.busy() / stats.elapsed } else { 0.0 };
    lines.push(format!(
        "{:.3} s of device time, the head busy for {part:.1} % of it, idle for {:.3} s",
        stats.elapsed, stats.idle
    ));
    match stats.pace {
        Some(Pace::Account) => lines.push("service times are added up; host think time counts as none".into()),
        Some(Pace::Real { speed }) => lines.push(format!("callers wait, {speed} drive seconds in one")),
        None if stats.added_up => lines.push("service times were added up; host think time counts as none".into()),
        None => {}
    }
    if let Some(cache) = stats.persistent_cache {
        lines.push(format!(
            "persistent cache: {}, {}",
            number_of(cache.extents as u64, "extent"),
            crate::output::size(cache.bytes)
        ));
    }
    lines.join("\n")
}
