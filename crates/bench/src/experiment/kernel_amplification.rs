//! `kernel-write-amplification`: the same `db_bench` on bluefs, F2FS and zoned Btrfs, each on a zoned device of the kernel in a VM
//! (`scripts/kernel-amplification`): what the kernel's own counters say was written, for each byte that the user wrote. No time
//! is modelled there.

use super::chart::{Axis, Chart, Shape};
use super::child::Running;
use super::hosts::workplace;
use super::result::{Figure, Ratio, Row};
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use std::path::PathBuf;
use std::process::Command;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kernel-write-amplification",
    about: "RocksDB on bluefs, F2FS and zoned Btrfs, on the same zoned device of the kernel in a VM: bytes written per byte put",
    paper: "BlueFS, section 1, Figure 2: F2FS loses 15 to 20 % of capacity",
    speed: 1.0,
    rows: |options| rows(options).into_iter().map(|(name, ..)| name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 5 << 30 },
    run,
};

/// Of the device and of a zone, in MiB.
const SIZE: u64 = 2048;
const ZONE: u64 = 4;
const SYSTEMS: [(&str, &str); 3] = [("bluefs", "bluefs"), ("f2fs", "F2FS"), ("btrfs", "zoned Btrfs")];
/// What the script calls bluefs with that part of what it offers itself.
const OWN: &str = "bluefs-own";
const FULL: [u64; 2] = [50, 85];
/// The same of the short form, whose device is small.
const SHORT_FULL: [u64; 1] = [30];

fn percentages(options: &Options) -> &'static [u64] {
    if options.short { &SHORT_FULL } else { &FULL }
}

/// Name of the row, and what the script calls it.
fn rows(options: &Options) -> Vec<(String, &'static str, u64)> {
    let of = |full: &u64| {
        let full = *full;
        SYSTEMS.map(|(system, name)| (format!("{name}, {full} % full"), system, full))
    };
    let most =
        percentages(options).iter().max().map(|full| (format!("bluefs, {full} % of what it offers"), OWN, *full));
    percentages(options).iter().flat_map(of).chain(most).collect()
}

/// A script of this name, in the tree that `make build` built.
pub(super) fn script(options: &Options, name: &str) -> Result<PathBuf, Stop> {
    let tree =
        options.build.canonicalize().ok().and_then(|build| build.parent().map(PathBuf::from)).unwrap_or_default();
    let script = tree.join("scripts").join(name);
    if !script.exists() {
        return Err(Stop::Failed(format!(
            "it needs scripts/{name} of the source tree; run the command that `make build` leaves there"
        )));
    }
    Ok(script)
}

/// The row that a line of the script is about, as `amplification f2fs 50 1 2 3 4`.
fn understood(output: &str, system: &str, full: u64, size: u64) -> Option<Result<Row, String>> {
    let head = format!("amplification {system} {full} ");
    let rest = output.lines().find_map(|line| line.trim_end().strip_prefix(&head))?;
    if let Some(why) = rest.strip_prefix("not-run ") {
        return Some(Err(why.to_owned()));
    }
    let numbers: Vec<u64> = rest.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, drive, flushes, offered] = numbers.as_slice() else { return None };
    let mut row = Row::new("", "null_blk, zoned");
    row.rule = Rule::Fewer.name().into();
    (row.bytes_user, row.bytes_drive, row.flushes) = (Some(*user), Some(*drive), Some(*flushes));
    let part = *offered as f64 / (size << 20) as f64;
    row.figures.insert("part of the drive that files may take".into(), part);
    Some(Ok(row.amplified()))
}

/// What the VM said, and why it said no more.
fn in_the_vm(run: &Run, size: u64, zone: u64, full: &[u64]) -> Result<(String, String), Stop> {
    let nothing = |why: String| Ok((String::new(), why));
    let script = match script(run.options, "kernel-amplification") {
        Ok(script) => script,
        Err(Stop::Failed(why)) => return nothing(why),
        Err(stop) => return Err(stop),
    };
    let dir = workplace(&run.options.work)?;
    let mut command = Command::new(&script);
    command.args([size.to_string(), zone.to_string()]).args(full.iter().map(u64::to_string));
    command.env("BUILD_DIR", &run.options.build);
    let mut running = match Running::start(&command, dir.path()) {
        Ok(running) => running,
        Err(Stop::Failed(why)) => return nothing(why),
        Err(stop) => return Err(stop),
    };
    run.says("in the VM; some ten minutes");
    let ended = running.wait(|_| if run.stopped() { Err(Stop::Interrupted) } else { Ok(()) });
    let why = match ended {
        Err(Stop::Interrupted) => {
            running.terminate();
            return Err(Stop::Interrupted);
        }
        Err(Stop::Failed(why)) => why,
        Ok(()) => "the VM said nothing of it".into(),
    };
    Ok((running.output(), why))
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("a run of the VM takes minutes, and what is counted are bytes; run it again for the spread");
    let full = percentages(run.options);
    let (size, zone) = if run.options.short { (128, 1) } else { (SIZE, ZONE) };
    run.setting("device", format!("null_blk, {size} MiB in zones of {zone} MiB, 8 of them conventional"));
    run.setting("full", "part of what the smallest of the three offers to files, the same data on each");
    run.setting(
        "db_bench",
        "fillseq, then overwrite of an eighth, which is counted; 20 B keys, 4000 B values, not compressed",
    );
    let (output, why) = in_the_vm(run, size, zone, full)?;
    let mut bars = Vec::new();
    for (name, system, full) in rows(run.options) {
        run.row(&name, |_| {
            let row = understood(&output, system, full, size).unwrap_or_else(|| Err(why.clone()))?;
            Ok(Row {
                paper: (system == "f2fs")
                    .then(|| Figure::new(0.8, "to 0.85 of the drive may be used", "BlueFS, section 1")),
                ..row
            })
        })?;
        if let Some(amplification) = run.measured(&name).and_then(|row| row.write_amplification) {
            bars.push((name, amplification, None));
        }
    }
    ratios(run, full);
    if !bars.is_empty() {
        run.outcome.charts.push(Chart {
            file: "amplification".into(),
            title: "Bytes written to the device for each byte put".into(),
            x: Axis::default(),
            y: Axis::even("write amplification, by the kernel's counters"),
            shape: Shape::Bars(bars),
        });
    }
    Ok(())
}

/// What the kernel's file systems write for the same, over what bluefs does.
fn ratios(run: &mut Run, full: &[u64]) {
    let [ours, others @ ..] = &SYSTEMS;
    for full in full {
        for other in others {
            let of = |name: &str| format!("{name}, {full} % full");
            let pairs = run.pairs(&of(other.1), &of(ours.1), |row| row.write_amplification);
            let name = format!("{full} % full: bytes written on {} over those on {}", other.1, ours.1);
            run.outcome.ratios.extend(Ratio::of(name, &pairs));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Nobody, options};
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    #[test]
    fn what_the_vm_says_becomes_rows_and_each_system_is_compared() {
        let dir = tempfile::tempdir().unwrap();
        let (build, scripts) = (dir.path().join("build"), dir.path().join("scripts"));
        [&build, &scripts].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let script = scripts.join("kernel-amplification");
        let says = "#!/bin/sh\necho amplification bluefs $3 1000 2000 7 9\necho amplification f2fs $3 1000 3000 7 9\n\
                    echo amplification btrfs $3 not-run no room\n";
        std::fs::write(&script, says).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let options = Options { build, ..options(dir.path()) };
        // Without a VM it takes nothing.
        let experiment = Experiment { needs: |_| Needs::default(), ..EXPERIMENT };
        let outcome = super::super::run(&experiment, &options, &Nobody, &Arc::default()).unwrap();
        let rows: Vec<_> = outcome.rows.iter().map(|row| (row.write_amplification, row.not_run.as_deref())).collect();
        let nothing = (None, Some("the VM said nothing of it"));
        assert_eq!(rows, [(Some(2.0), None), (Some(3.0), None), (None, Some("no room")), nothing]);
        let ratios: Vec<_> = outcome.ratios.iter().map(|ratio| (ratio.name.as_str(), ratio.median)).collect();
        assert_eq!(ratios, [("30 % full: bytes written on F2FS over those on bluefs", 1.5)]);
    }

    #[test]
    fn lines_of_the_vm_are_understood() {
        let out = "vm: part x\namplification f2fs 50 1000 2500 7 900000000\r\namplification btrfs 50 not-run no room\namplification bluefs 85 1 2\n";
        let row = understood(out, "f2fs", 50, 1024).unwrap().unwrap();
        assert_eq!((row.write_amplification, row.flushes), (Some(2.5), Some(7)));
        assert_eq!(understood(out, "btrfs", 50, 1024).unwrap().unwrap_err(), "no room");
        assert!(understood(out, "bluefs", 85, 1024).is_none() && understood(out, "bluefs", 50, 1024).is_none());
    }
}
