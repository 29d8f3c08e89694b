//! What `imbrex drive reset|finish|power-loss|trace` do to drives.

use super::{PowerLoss, Range, Reset, Trace, image_path, open};
use crate::output::{Failure, Outcome, number_of, print, print_json, size};
use crate::picture;
use imbrex_device::{Cause, Tag, Zone, ZoneOp, ZoneState, ZonedDevice};
use imbrex_emulator::{Emulator, Observer};
use serde_json::json;
use std::io::IsTerminal;

/// Understands `5`, `5-9` and `all`; only sequential zones.
fn zone_range<'a>(text: &str, zones: &'a [Zone]) -> Result<Vec<&'a Zone>, Failure> {
    let conventional = |zone: &Zone| zone.state == ZoneState::Conventional;
    if text == "all" {
        let all: Vec<&Zone> = zones.iter().filter(|zone| !conventional(zone)).collect();
        if all.is_empty() {
            return Err(Failure::failed("the drive has no sequential zones, so there is nothing to do"));
        }
        return Ok(all);
    }
    let number = |text: &str| {
        text.parse::<usize>().map_err(|_| Failure::usage(format!("{text:?} is no zone; write a number, 5-9, or all")))
    };
    let (from, to) = match text.split_once('-') {
        None => (number(text)?, number(text)?),
        Some((from, to)) => (number(from)?, number(to)?),
    };
    let last = zones.len().saturating_sub(1);
    if from > to {
        return Err(Failure::usage(format!("{text} runs backwards; write {to}-{from}")));
    }
    let Some(wanted) = zones.get(from..to.saturating_add(1)).filter(|wanted| !wanted.is_empty()) else {
        return Err(Failure::usage(format!("zones {text} are not on the drive; its zones are 0 to {last}")));
    };
    if let Some(zone) = wanted.iter().find(|zone| conventional(zone)) {
        let sequential = zones.iter().find(|zone| !conventional(zone));
        let from = sequential.map_or("there is none".into(), |zone| format!("the first is {}", zone.id));
        let sentence =
            format!("zone {} is conventional and has no write pointer; name sequential zones, {from}", zone.id);
        return Err(Failure::usage(sentence));
    }
    Ok(wanted.iter().collect())
}

pub(super) fn reset(args: Reset) -> Outcome {
    let drive = open(&args.range.path)?;
    let zones = imbrex_device::report_all(drive.as_ref())?;
    let range = zone_range(&args.range.zones, &zones)?;
    let written: Vec<&&Zone> = range.iter().filter(|zone| zone.wp.is_some_and(|wp| wp > 0)).collect();
    if let (Some(first), false) = (written.first(), args.force) {
        return Err(Failure::failed(format!(
            "{}: {} of these {} data, the first is zone {}; nothing was reset; use --force to destroy it",
            args.range.path,
            number_of(written.len() as u64, "zone"),
            if written.len() == 1 { "holds" } else { "hold" },
            first.id
        )));
    }
    each_zone(drive.as_ref(), ZoneOp::Reset, &range, args.range.json)
}

/// Does this to zones, whatever is in them; none of it loses a byte.
pub(super) fn operate(args: Range, op: ZoneOp) -> Outcome {
    let drive = open(&args.path)?;
    let zones = imbrex_device::report_all(drive.as_ref())?;
    let mut range = zone_range(&args.zones, &zones)?;
    let cannot = |zone: &&&Zone| matches!(zone.state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline);
    match op {
        ZoneOp::Close => {
            range.retain(|zone| zone.state.is_open());
            if range.is_empty() {
                let sentence =
                    format!("{}: none of these zones is open; `imbrex drive zones --list` tells which are", args.path);
                return Err(Failure::failed(sentence));
            }
        }
        ZoneOp::Open => {
            if let Some(zone) = range.iter().find(cannot) {
                return Err(Failure::failed(format!(
                    "{}: zone {} is {} and cannot be opened; nothing was opened; name other zones",
                    args.path,
                    zone.id,
                    zone.state.name()
                )));
            }
        }
        ZoneOp::Finish | ZoneOp::Reset => {}
    }
    each_zone(drive.as_ref(), op, &range, args.json)
}

fn each_zone(drive: &dyn ZonedDevice, op: ZoneOp, range: &[&Zone], json: bool) -> Outcome {
    let zones = range.len() as u64;
    let bar = progress(zones);
    for zone in range {
        drive.zone_op(op, zone.id, Tag::new(Cause::Other))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    if json {
        let end = |zone: Option<&&Zone>| zone.map(|zone| zone.id.0);
        return print_json(
            &json!({ "operation": op.name(), "first": end(range.first()), "last": end(range.last()), "zones": zones }),
        );
    }
    print(format!("{}: {} of {}", drive.identity().name, op.name(), number_of(zones, "zone")))
}

/// A bar on a terminal, for what may take more than a second.
fn progress(steps: u64) -> indicatif::ProgressBar {
    if steps < 1000 || !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    indicatif::ProgressBar::new(steps)
}

pub(super) fn power_loss(args: PowerLoss) -> Outcome {
    let path = image_path(&args.image.path)?;
    let block = u64::from(Observer::open(&path)?.config().block);
    let at_risk = Emulator::power_loss_image(&path, args.seed)?;
    let bytes = at_risk.iter().map(|risk| risk.blocks).sum::<u64>() * block;
    if args.image.json {
        let zones: Vec<_> = at_risk.iter().map(|risk| json!({ "zone": risk.zone.0, "blocks": risk.blocks })).collect();
        return print_json(&json!({ "seed": args.seed, "unflushed_bytes": bytes, "unflushed": zones }));
    }
    print(format!(
        "{}: power lost; {} in {} were not flushed, and seed {} decided what is left of them",
        path.display(),
        size(bytes),
        number_of(at_risk.len() as u64, "zone"),
        args.seed
    ))
}

pub(super) fn trace(args: Trace) -> Outcome {
    let path = image_path(&args.image.path)?;
    // Nothing is recorded of what is no drive.
    drop(Observer::open(&path)?);
    let file = imbrex_emulator::trace_path(&path);
    if args.start {
        imbrex_emulator::start_image_trace(&path, args.entries)?;
        return said(args.image.json, json!({ "tracing": true, "entries": args.entries }), || {
            let commands = number_of(args.entries.into(), "command");
            format!("{}: records its last {commands} from when it is opened next", path.display())
        });
    }
    if args.stop {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::failed(format!("{}: {error}; remove it yourself", file.display())));
            }
            _ => {}
        }
        return said(args.image.json, json!({ "tracing": false }), || format!("{}: not traced", path.display()));
    }
    let Some(entries) = imbrex_emulator::read_timed_trace(&path)? else {
        return Err(Failure::failed(format!("{}: not traced; start with --start, then use the drive", path.display())));
    };
    if let Some(directory) = &args.plot {
        let seen = Observer::open(&path)?;
        let config = seen.config();
        let name = path.display().to_string();
        let zoned = config.conventional < config.zones();
        // Scales leave both as they are.
        let fastest = config.model.map(|model| picture::Fastest {
            written: model.params.bandwidth_outer_mib_s * 1_048_576.0,
            read: model.params.interface_mib_s * 1_048_576.0,
        });
        let trace = picture::Trace { drive: &name, entries: &entries, zone_size: config.zone_size, zoned, fastest };
        let files: Vec<String> = picture::plot(directory, &trace)?.iter().map(|f| f.display().to_string()).collect();
        return said(args.image.json, json!({ "commands": entries.len(), "pictures": files }), || files.join("\n"));
    }
    if args.image.json {
        return print_json(&entries);
    }
    let lines: Vec<String> = entries.iter().map(trace_line).collect();
    print(lines.join("\n"))
}

fn trace_line(timed: &imbrex_emulator::TimedEntry) -> String {
    let entry = &timed.entry;
    let time = match (timed.began, timed.ended) {
        (Some(began), Some(ended)) => format!("  at {began:.6} s, {:.3} ms", (ended - began) * 1e3),
        _ => String::new(),
    };
    format!(
        "{:>9}  {:<6} {:<11} zone {:>6}  offset {:>15}  len {:>8}  {}{time}",
        entry.sequence,
        entry.op.name(),
        entry.cause,
        entry.zone,
        entry.offset,
        entry.len,
        entry.result
    )
}

fn said(as_json: bool, json: serde_json::Value, text: impl FnOnce() -> String) -> Outcome {
    if as_json { print_json(&json) } else { print(text()) }
}
