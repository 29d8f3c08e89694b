//! `imbrex drive replay`: what a recorded workload would have taken on another drive.

use super::{Image, image_path};
use crate::output::{Failure, Outcome, print, print_json};
use imbrex_drives::parse_bool;
use imbrex_emulator::time::{Latency, Replay, Seconds, TimeStats, fingerprint, replay};
use imbrex_emulator::{Profile, read_image_trace};
use serde_json::json;
use std::path::Path;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    image: Image,
    /// Drive model, one of `imbrex drive profiles`, or a file that describes one.
    #[arg(long, value_name = "NAME|FILE")]
    profile: String,
    /// Commands at the drive at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Volatile write cache of the drive, on or off.
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = parse_bool, action = clap::ArgAction::Set)]
    write_cache: bool,
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
        "\n{} commands on {} (model {}), {} at once, write cache {}; host think time counts as none",
        trace.len(),
        profile.name,
        fingerprint(&profile),
        how.depth,
        if how.write_cache { "on" } else { "off" },
    ));
    if first > 0 {
        text.push_str(&format!(
            "\nthe first {first} commands are not in the trace any more; record with more --entries"
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
    if let Some(cache) = stats.persistent_cache {
        lines.push(format!("persistent cache: {} extents, {}", cache.extents, crate::output::size(cache.bytes)));
    }
    lines.join("\n")
}
