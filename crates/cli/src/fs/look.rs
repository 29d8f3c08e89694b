//! Looks at a drive: what is on it, where it stands, and whether it is whole. They leave the drive as it is.

use super::{AdviseArgs, Check, Ls, Mount, Stat, walk};
use crate::output::{Failure, Outcome, count, number_of, print, print_json, size, table};
use imbrex_bluefs::{Attributes, FileKind};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::time::Duration;

pub(super) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "dir",
        FileKind::Random => "small",
        FileKind::Table => "table",
        FileKind::Log => "log",
    }
}

/// Seconds since 1970 as a date and time in UTC (civil calendar from days, after Hinnant's algorithm).
fn utc(ns: u64) -> String {
    let secs = ns / 1_000_000_000;
    let (days, rest) = ((secs / 86_400) as i64 + 719_468, secs % 86_400);
    let era = days / 146_097;
    let of_era = days - era * 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

fn facts(path: &str, a: &Attributes) -> Value {
    json!({ "path": path, "serial": a.serial, "kind": kind_name(a.kind), "size": a.size, "allocated": a.allocated,
            "modified_ns": a.modified, "links": a.links })
}

pub(super) fn ls(args: Ls) -> Outcome {
    let fs = args.mount.look()?;
    let mut found: Vec<(String, Attributes)> = Vec::new();
    let here = fs.stat(&args.path)?;
    if here.kind == FileKind::Directory {
        walk(&fs, &args.path, args.recursive, &mut |path, a| {
            found.push((path.to_owned(), a.clone()));
            Ok(())
        })?;
    } else {
        found.push((args.path.clone(), here));
    }
    if args.mount.json {
        return print_json(&found.iter().map(|(path, a)| facts(path, a)).collect::<Vec<_>>());
    }
    for (path, a) in &found {
        let name = if args.recursive { path.as_str() } else { path.rsplit('/').next().unwrap_or(path) };
        let slash = if a.kind == FileKind::Directory { "/" } else { "" };
        if args.long {
            let (kind, time) = (kind_name(a.kind), utc(a.modified));
            print(format_args!(
                "{kind:5} {:>2} {:>12} {:>7} {time} {name}{slash}",
                a.links,
                a.size,
                size(a.allocated)
            ))?;
        } else {
            print(format_args!("{name}{slash}"))?;
        }
    }
    Ok(())
}

pub(super) fn df(args: Mount) -> Outcome {
    let fs = args.look()?;
    let space = fs.space();
    if args.json {
        return print_json(&json!({ "total": space.total, "free": space.free, "used": space.total - space.free,
                                   "small_total": space.small_total, "small_free": space.small_free }));
    }
    let used = space.total - space.free;
    let percent = if space.total == 0 { 100.0 } else { used as f64 * 100.0 / space.total as f64 };
    print(table(&[
        ("size", size(space.total)),
        ("used", format!("{} ({percent:.1} %)", size(used))),
        ("free", size(space.free)),
        ("small files", format!("{} of {} free", size(space.small_free), size(space.small_total))),
    ]))
}

pub(super) fn stat(args: Stat) -> Outcome {
    let fs = args.mount.look()?;
    let Some(path) = &args.path else {
        let (volume, report) = (fs.volume(), fs.mount_report());
        let uuid: String = volume.uuid().iter().map(|b| format!("{b:02x}")).collect();
        if args.mount.json {
            return print_json(&json!({ "uuid": uuid, "mounts": volume.mount() - 1, "clean": report.clean,
                "power_lost": report.power_lost, "replayed_bytes": report.replayed_bytes, "damage": report.damage }));
        }
        return print(table(&[
            ("volume", uuid),
            ("mounts", count(volume.mount() - 1)),
            (
                "last mount ended",
                if report.clean { "cleanly" } else { "without being unmounted; the next mount repairs it" }.into(),
            ),
            ("damage", if report.damage.is_empty() { "none".into() } else { report.damage.join("; ") }),
        ]));
    };
    let attributes = fs.stat(path)?;
    let runs = fs.runs(path)?;
    if args.mount.json {
        let mut all = facts(path, &attributes);
        all["extents"] = runs
            .iter()
            .map(|r| {
                json!({ "logical": r.logical, "bytes": (r.len != u64::MAX).then_some(r.len), "zone": r.zone,
                        "address": r.address })
            })
            .collect();
        return print_json(&all);
    }
    print(table(&[
        ("path", path.clone()),
        ("kind", kind_name(attributes.kind).into()),
        ("serial", attributes.serial.to_string()),
        ("size", number_of(attributes.size, "byte")),
        ("on the drive", size(attributes.allocated)),
        ("names", attributes.links.to_string()),
        ("modified", format!("{} UTC", utc(attributes.modified))),
    ]))?;
    for run in runs {
        let len = if run.len == u64::MAX { "growing".into() } else { number_of(run.len, "byte") };
        let zone = run.zone.map_or("conventional".into(), |z| format!("zone {z}"));
        print(format_args!("at {:>12}  {len} in {zone}, address {}", run.logical, run.address))?;
    }
    Ok(())
}

pub(super) fn check(args: Check) -> Outcome {
    let fs = if args.repair { args.mount.open()? } else { args.mount.look()? };
    let (repair, args) = (args.repair, args.mount);
    let bar = ProgressBar::new(0);
    bar.enable_steady_tick(Duration::from_millis(200));
    let report = fs.check(|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    if args.json {
        print_json(&json!({ "problems": report.problems, "notes": report.notes, "files": report.files,
                            "zones": report.zones, "bytes": report.bytes }))?;
    } else {
        for note in &report.notes {
            print(format_args!("note: {note}"))?;
        }
        for problem in &report.problems {
            print(problem)?;
        }
    }
    let problems = |n: usize| number_of(n as u64, "problem");
    match report.problems.len() {
        0 if args.json => Ok(()),
        0 => print(format_args!(
            "{}: nothing is wrong ({}, {}, {} verified)",
            args.drive,
            number_of(report.files, "file"),
            number_of(report.zones, "zone"),
            size(report.bytes)
        )),
        n if repair => Err(Failure::damage(format!(
            "{}; a second check shows what is left of that; copy out what is whole with `imbrex fs cp`",
            problems(n)
        ))),
        n => Err(Failure::damage(format!(
            "{}; copy out what is whole with `imbrex fs cp` first, then `imbrex fs check --repair` mends what \
             a mount can",
            problems(n)
        ))),
    }
}

pub(super) fn advise(args: AdviseArgs) -> Outcome {
    let advice = args.mount.look()?.advise();
    let options: Vec<(&str, String)> = vec![
        ("write_buffer_size", advice.write_buffer_size.to_string()),
        ("target_file_size_base", advice.target_file_size.to_string()),
        ("level_compaction_dynamic_file_size", "false".into()),
        ("compaction_readahead_size", advice.compaction_readahead_size.to_string()),
        ("max_background_jobs", advice.background_jobs.to_string()),
        ("keep_log_file_num", "10".into()),
    ];
    if args.mount.json {
        let pairs: serde_json::Map<String, Value> =
            options.iter().map(|(k, v)| ((*k).into(), v.clone().into())).collect();
        return print_json(&pairs);
    }
    if args.flags {
        // Those that db_bench has flags for.
        let known = ["write_buffer_size", "target_file_size_base", "compaction_readahead_size", "max_background_jobs"];
        let flags = options.iter().filter(|(k, _)| known.contains(k)).map(|(k, v)| format!("--{k}={v}"));
        return print(flags.collect::<Vec<_>>().join(" "));
    }
    for (name, value) in options {
        print(format_args!("{name}={value}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00");
        assert_eq!(utc(1_767_225_599_000_000_000), "2025-12-31 23:59:59");
    }
}
