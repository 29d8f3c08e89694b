//! `kernel-write-amplification`: the same `db_bench` on bluefs, Zoned XFS, F2FS and zoned Btrfs, each on a zoned device of the kernel in a VM
//! (`scripts/kernel-amplification`): what the kernel's own counters say was written, for each byte that the user put and for each that RocksDB
//! wrote. No time is modelled there.

use super::chart::{Axis, Chart, Shape};
use super::child::Running;
use super::hosts::workplace;
use super::result::{Figure, Ratio, Row};
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kernel-write-amplification",
    about: "RocksDB on bluefs, Zoned XFS, F2FS and zoned Btrfs, on the same zoned device of the kernel in a VM: bytes written per byte put",
    paper: "BlueFS, section 1, Figure 2: F2FS loses 15 to 20 % of capacity",
    speed: 1.0,
    rows: |options| plans(options).iter().map(Plan::name).collect(),
    extra: |options| plans(options).iter().filter(|plan| plan.extra(options)).map(Plan::name).collect(),
    needs: |options| Needs { work: 0, memory: (memory(options) + 3072) << 20 },
    run,
};

/// A file system with its settings: what the script calls it, and its name in rows.
pub(super) type System = (&'static str, &'static str);
pub(super) const BLUEFS: System = ("bluefs", "bluefs");
pub(super) const XFS: System = ("xfs", "Zoned XFS");
pub(super) const F2FS: System = ("f2fs", "F2FS");
const BTRFS: System = ("btrfs", "zoned Btrfs");
const BLUEFS_DEFAULT: System = ("bluefs-default", "bluefs, RocksDB's own options");
const XFS_AS_IT_COMES: System = ("xfs-as-it-comes", "Zoned XFS, as it comes");
/// The least that one of these offers is what all are filled with parts of.
const FAIR: [System; 4] = [BLUEFS, XFS, F2FS, BTRFS];
const ALL: [System; 6] = [XFS, BLUEFS, F2FS, BTRFS, XFS_AS_IT_COMES, BLUEFS_DEFAULT];

/// Of the device and of a zone, in MiB; the larger device is in the long form only.
const SIZES: [u64; 2] = [2048, 8192];
const ZONE: u64 = 4;
const FULL: [u64; 4] = [50, 70, 85, 90];
/// The same of the short form, which has two systems only, and does not ask what they offer.
const SHORT_SIZE: u64 = 512;
const SHORT_FULL: u64 = 20;
const SHORT_OF: u64 = 200 << 20;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    system: System,
    /// Of the device, in MiB.
    size: u64,
    /// Per cent.
    full: u64,
    /// Of what the system itself offers; else of the smallest offer.
    own: bool,
}

impl Plan {
    fn name(&self) -> String {
        let device = if self.size == SIZES[1] { format!("{} GiB, ", SIZES[1] >> 10) } else { String::new() };
        let of = if self.own { " of what it offers" } else { "" };
        format!("{}, {device}{} % full{of}", self.system.1, self.full)
    }

    /// What the usual form leaves out.
    fn extra(&self, options: &Options) -> bool {
        let compared = self.system == XFS || self.system == BLUEFS;
        !options.short && (self.own || self.size != SIZES[0] || self.full < 85 || (self.full > 85 && !compared))
    }
}

/// All rows, in the order in which they are best read.
fn plans(options: &Options) -> Vec<Plan> {
    let plan = |system, size, full, own| Plan { system, size, full, own };
    if options.short {
        return vec![plan(XFS, SHORT_SIZE, SHORT_FULL, false), plan(BLUEFS, SHORT_SIZE, SHORT_FULL, false)];
    }
    let smaller = FULL.iter().flat_map(|full| {
        let of = |own| ALL.iter().map(move |system| plan(*system, SIZES[0], *full, own));
        of(false).chain(of(true))
    });
    let larger = FULL[2..].iter().flat_map(|full| FAIR.iter().map(|system| plan(*system, SIZES[1], *full, false)));
    smaller.chain(larger).collect()
}

/// Rows that zoned-file-systems has, too: how many bytes are moved where the drive is nearly full.
pub(super) fn headline(options: &Options) -> Vec<String> {
    chosen(options).iter().map(Plan::name).collect()
}

fn chosen(options: &Options) -> Vec<Plan> {
    let compared = |plan: &Plan| plan.system == XFS || plan.system == BLUEFS;
    plans(options).into_iter().filter(|plan| !options.short && compared(plan) && !plan.extra(options)).collect()
}

/// The same, as another experiment of this command measured them, or measured now.
pub(super) fn headline_rows(run: &mut Run) -> Result<(), Stop> {
    let plans = chosen(run.options);
    let mut least = BTreeMap::new();
    for plan in &plans {
        run.row(&plan.name(), |run| match run.shared(EXPERIMENT.name, &plan.name()) {
            Some(row) => Ok(row),
            None => measured(run, plan, &mut least),
        })?;
    }
    ratios(run, &plans);
    Ok(())
}

/// What the VM's device takes at most, in MiB.
pub(super) fn memory(options: &Options) -> u64 {
    let wanted = plans(options).into_iter().filter(|plan| options.full || !plan.extra(options));
    wanted.map(|plan| plan.size).max().unwrap_or(0)
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

/// What a line of the VM says of a file system: `offered xfs 2063597568`. One that could not be made offers nothing.
fn offers(output: &str) -> BTreeMap<&str, u64> {
    output
        .lines()
        .filter_map(|line| {
            let (system, bytes) = line.trim_end().strip_prefix("offered ")?.split_once(' ')?;
            Some((system, bytes.parse().ok()?))
        })
        .collect()
}

/// The row that a line of the script is about, as `amplification f2fs 50 1 2 3 4 5`.
fn understood(output: &str, plan: &Plan) -> Option<Result<Row, String>> {
    let head = format!("amplification {} {} ", plan.system.0, plan.full);
    let rest = output.lines().find_map(|line| line.trim_end().strip_prefix(&head))?;
    if let Some(why) = rest.strip_prefix("not-run ") {
        return Some(Err(why.to_owned()));
    }
    let numbers: Vec<u64> = rest.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, rocksdb, drive, flushes, offered] = numbers.as_slice() else { return None };
    let mut row = Row::new("", "null_blk, zoned");
    row.rule = Rule::Fewer.name().into();
    (row.bytes_user, row.bytes_drive, row.flushes) = (Some(*user), Some(*drive), Some(*flushes));
    let part = *offered as f64 / (plan.size << 20) as f64;
    row.figures.insert("part of the drive that files may take".into(), part);
    if *rocksdb > 0 {
        row.figures.insert(BY_ROCKSDB.into(), *drive as f64 / *rocksdb as f64);
        row.figures.insert("bytes that RocksDB wrote for each byte put".into(), *rocksdb as f64 / *user as f64);
    }
    Some(Ok(row.amplified()))
}

const BY_ROCKSDB: &str = "bytes written to the drive for each that RocksDB wrote";

/// What the VM said of these systems, and why it said no more; so full, of so many bytes (0: of what each offers).
fn in_the_vm(run: &Run, systems: &str, full: u64, of: u64, size: u64) -> Result<(String, String), Stop> {
    let nothing = |why: String| Ok((String::new(), why));
    let script = match script(run.options, "kernel-amplification") {
        Ok(script) => script,
        Err(Stop::Failed(why)) => return nothing(why),
        Err(stop) => return Err(stop),
    };
    let dir = workplace(&run.options.work)?;
    let mut command = Command::new(&script);
    command.arg(systems).args([full, of, size, ZONE].map(|number| number.to_string()));
    command.env("BUILD_DIR", &run.options.build);
    let mut running = match Running::start(&command, dir.path()) {
        Ok(running) => running,
        Err(Stop::Failed(why)) => return nothing(why),
        Err(stop) => return Err(stop),
    };
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

/// The least that one of the systems offers on a device of this size; one that cannot be made there has no part in it.
fn smallest(run: &Run, size: u64) -> Result<u64, Stop> {
    run.says("in the VM: what each offers");
    let (output, why) = in_the_vm(run, &FAIR.map(|(system, _)| system).join(" "), 0, 0, size)?;
    let least = offers(&output).into_values().filter(|bytes| *bytes > 0).min();
    least.ok_or(Stop::Failed(why))
}

/// A row; `least` is what the smallest system offers of a device, by its size.
fn measured(run: &Run, plan: &Plan, least: &mut BTreeMap<u64, Result<u64, Stop>>) -> Result<Row, Stop> {
    let of = match plan.own {
        _ if run.options.short => SHORT_OF,
        true => 0,
        false => least.entry(plan.size).or_insert_with(|| smallest(run, plan.size)).clone()?,
    };
    run.says(&format!("{}: in the VM; some minutes", run.doing()));
    let (output, why) = in_the_vm(run, plan.system.0, plan.full, of, plan.size)?;
    let row = understood(&output, plan).unwrap_or(Err(why))?;
    let paper = Figure::new(0.8, "to 0.85 of the drive may be used", "BlueFS, section 1");
    Ok(Row { paper: (plan.system == F2FS).then_some(paper), ..row })
}

fn run(run: &mut Run) -> Result<(), Stop> {
    let plans = plans(run.options);
    run.setting(
        "device",
        format!("null_blk in zones of {ZONE} MiB, 16 of them conventional, without native zone append, as an SMR disk"),
    );
    run.setting("full", "part of what the smallest of bluefs, Zoned XFS, F2FS and zoned Btrfs offers to files, the same data on each; or of what it offers itself");
    run.setting(
        "db_bench",
        "fillseq, then overwrite of an eighth, which is counted; 20 B keys, 4000 B values, not compressed; memtables and tables of a zone, \
         where nothing else is said",
    );
    run.setting(
        "write-lifetime hints",
        "repaired, where nothing else is said: RocksDB 7.8 passes 32 bits where Linux reads 64 and refuses",
    );
    run.setting(
        "Zoned XFS",
        "8 open zones, where nothing else is said, since its cleaner keeps room to fill that many again",
    );
    let mut least = BTreeMap::new();
    for plan in &plans {
        run.row(&plan.name(), |run| measured(run, plan, &mut least))?;
    }
    ratios(run, &plans);
    let bars: Vec<_> = plans
        .iter()
        .filter_map(|plan| Some((plan.name(), run.measured(&plan.name())?.write_amplification?, None)))
        .collect();
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
fn ratios(run: &mut Run, plans: &[Plan]) {
    for plan in plans.iter().filter(|plan| FAIR.contains(&plan.system) && plan.system != BLUEFS) {
        let ours = Plan { system: BLUEFS, ..*plan };
        let of = [
            ("put", run.pairs(&plan.name(), &ours.name(), |row| row.write_amplification)),
            ("that RocksDB wrote", run.pairs(&plan.name(), &ours.name(), |row| row.figures.get(BY_ROCKSDB).copied())),
        ];
        for (what, pairs) in of {
            let name = format!("{}: bytes written for each {what}, over those on bluefs", plan.name());
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
        // The smallest offer, 700, comes back as what the rows are full of.
        let says = "#!/bin/sh\n\
            case $1 in\n\
            *' '*) echo offered bluefs 900; echo offered xfs 800; echo offered f2fs 700; echo offered btrfs 0;;\n\
            bluefs) echo amplification bluefs $2 1000 2000 2000 $3 9;;\n\
            xfs) echo amplification xfs $2 1000 1500 3000 7 9;;\n\
            f2fs) echo amplification f2fs $2 not-run no room;;\n\
            esac\n";
        std::fs::write(&script, says).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let options = Options { build, short: false, ..options(dir.path()) };
        // Without a VM it takes nothing.
        let experiment = Experiment { needs: |_| Needs::default(), ..EXPERIMENT };
        let outcome = super::super::run(&experiment, &options, &Nobody, &Arc::default()).unwrap();
        let row = |name: &str| outcome.rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!(
            (row("bluefs, 85 % full").write_amplification, row("bluefs, 85 % full").flushes),
            (Some(2.0), Some(700))
        );
        assert_eq!(row("Zoned XFS, 90 % full").write_amplification, Some(3.0));
        assert_eq!(row("F2FS, 85 % full").not_run.as_deref(), Some("no room"));
        assert_eq!(row("zoned Btrfs, 85 % full").not_run.as_deref(), Some("the VM said nothing of it"));
        let ratios: Vec<_> = outcome.ratios.iter().map(|ratio| (ratio.name.as_str(), ratio.median)).collect();
        let of = [
            ("Zoned XFS, 85 % full: bytes written for each put, over those on bluefs", 1.5),
            ("Zoned XFS, 85 % full: bytes written for each that RocksDB wrote, over those on bluefs", 2.0),
        ];
        assert_eq!(ratios[..2], of);
    }

    #[test]
    fn lines_of_the_vm_are_understood() {
        let plan = |system, full| Plan { system, size: 1024, full, own: false };
        let out = "vm: part x\noffered f2fs 900000000\r\noffered btrfs none\namplification f2fs 50 1000 2000 2500 7 900000000\r\n\
                   amplification btrfs 50 not-run no room\namplification bluefs 85 1 2\n";
        let row = understood(out, &plan(F2FS, 50)).unwrap().unwrap();
        assert_eq!((row.write_amplification, row.flushes), (Some(2.5), Some(7)));
        assert_eq!(row.figures[BY_ROCKSDB], 1.25);
        assert_eq!(understood(out, &plan(BTRFS, 50)).unwrap().unwrap_err(), "no room");
        assert!(understood(out, &plan(BLUEFS, 85)).is_none() && understood(out, &plan(BLUEFS, 50)).is_none());
        assert_eq!(offers(out), BTreeMap::from([("f2fs", 900_000_000)]));
    }

    #[test]
    fn rows_have_names_of_their_own_and_the_usual_form_compares_with_zoned_xfs() {
        let dir = tempfile::tempdir().unwrap();
        let usual = Options { short: false, ..options(dir.path()) };
        let names: Vec<_> = plans(&usual).iter().map(Plan::name).collect();
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
        let extra = (EXPERIMENT.extra)(&usual);
        let left: Vec<_> = names.iter().filter(|name| !extra.contains(name)).collect();
        assert_eq!(left.len(), 8, "{left:?}");
        for name in ["Zoned XFS, 85 % full", "bluefs, 85 % full", "Zoned XFS, 90 % full", "bluefs, 90 % full"] {
            assert!(left.iter().any(|one| *one == name), "{name}");
        }
        assert!(memory(&usual) == SIZES[0] && memory(&Options { full: true, ..usual }) == SIZES[1]);
    }
}
