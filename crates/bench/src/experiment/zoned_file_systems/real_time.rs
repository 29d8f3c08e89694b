//! The runs of `zoned-file-systems` where programs wait for the drive, whose clock runs: the kernel's file systems on a zoned block device that
//! `imbrex drive serve --zoned` makes of it, where the kernel has ublk; bluefs on the drive itself, anywhere.
//!
//! The drive that is full is as large as the device of the VM is, and its stroke is the whole one.

use super::super::hosts::{Disk, kernel_setup, preload, workplace};
use super::super::result::{Ratio, Row};
use super::super::rocks::{On, Pace, Watched, timed, watch};
use super::super::{Rule, Run, Stop};
use super::{BLUEFS, CONVENTIONAL, DEVICE, System, What, XFS, arguments, flags, script, sequence, shrunk};
use crate::baseline::{Baseline, Directory, FileSystem, Setup};
use imbrex_emulator::Emulator;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the page cache has at full size, in bytes: as in the VM.
const CACHE: u64 = 2 << 30;
/// Zones that Zoned XFS may have open on the drive of few zones: as in the VM (`scripts/vm/newer.sh`).
const OPEN_ZONES: u32 = 8;

pub(super) fn name((_, system): System, what: What) -> String {
    format!("{system}, in real time: {}", what.name)
}

/// All rows.
pub(super) fn rows(run: &mut Run, disk: &Disk) -> Result<(), Stop> {
    let mut ran: BTreeMap<(&str, usize), Ran> = BTreeMap::new();
    for (system, what) in super::rows(run.options).collect::<Vec<_>>() {
        run.row(&name(system, what), |run| {
            if run.options.beside.is_some() {
                return Err(
                    "it would wait for the processors of the experiments beside it; run this experiment alone".into()
                );
            }
            let ran = match ran.entry((system.0, run.repeat())) {
                Entry::Occupied(ran) => ran.into_mut(),
                Entry::Vacant(none) => none.insert(all_of(run, system, disk)?),
            };
            ran.get(what.file).cloned().unwrap_or(Err("it was not run".into()))
        })?;
    }
    Ok(())
}

/// A system's runs, by their files.
type Ran = BTreeMap<&'static str, Result<Row, Stop>>;

/// Each run finds what those before it left, so all are run, in their order.
fn all_of(run: &Run, system: System, disk: &Disk) -> Result<Ran, Stop> {
    let sequence = sequence(run.options);
    let mut ran = Ran::new();
    for full in [false, true] {
        let runs: Vec<_> = sequence.iter().copied().filter(|(what, _)| what.is_full() == full).collect();
        if runs.is_empty() {
            continue;
        }
        match Host::new(run, system, disk, full) {
            Ok(mut host) => {
                for (what, records) in runs {
                    match host.row(run, disk, what, records) {
                        Err(Stop::Interrupted) => return Err(Stop::Interrupted),
                        row => _ = ran.insert(what.file, row),
                    }
                }
                if let Err(why) = host.finish() {
                    ran.values_mut().flatten().for_each(|row| row.flags.push(why.clone()));
                }
            }
            Err(Stop::Interrupted) => return Err(Stop::Interrupted),
            Err(why) => ran.extend(runs.into_iter().map(|(what, _)| (what.file, Err(why.clone())))),
        }
    }
    Ok(ran)
}

/// Where RocksDB runs.
enum Host {
    Bluefs { image: PathBuf, preload: String, formatted: bool, dir: tempfile::TempDir },
    Kernel { baseline: Box<Baseline>, hints: PathBuf, dir: tempfile::TempDir },
}

/// What passes write-lifetime hints on to the kernel.
fn hints(run: &Run, dir: &Path) -> Result<PathBuf, Stop> {
    let (source, made) = (script(run.options, "vm/hints.c")?, dir.join("hints.so"));
    let done = Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&made).arg(source).status();
    match done {
        Ok(status) if status.success() => Ok(made),
        _ => Err("cc cannot compile scripts/vm/hints.c, without which no write-lifetime hint arrives; install build-essential".into()),
    }
}

impl Host {
    fn new(run: &Run, system: System, disk: &Disk, full: bool) -> Result<Host, Stop> {
        let options = run.options;
        let dir = workplace(&options.work)?;
        let few = u32::try_from(CONVENTIONAL).ok();
        let (capacity, conventional) = match (full, options.short) {
            (true, _) => (Some(DEVICE << 20), few),
            // In a VM, Zoned XFS takes minutes for as many zones as a real disk has.
            (false, true) => (Some(DEVICE << 23), few),
            (false, false) => (None, None),
        };
        if system == BLUEFS {
            let image = dir.path().join("drive.img");
            let config = disk.config_of(options.scale, capacity, conventional)?;
            drop(Emulator::create(&image, &config, false).map_err(|error| error.to_string())?);
            let preload = preload(&options.build, &["librocksdb_imbrex.so"])?;
            return Ok(Host::Bluefs { image, preload, formatted: false, dir });
        }
        let file_system = if system == XFS { FileSystem::ZonedXfs } else { FileSystem::F2fs };
        let setup = kernel_setup(run, disk, file_system, Directory::Own, CACHE, dir.path())?;
        // A drive of few zones: see kernel-write-amplification.
        let open = if full && system == XFS { format!("max_open_zones={OPEN_ZONES}") } else { String::new() };
        let setup = Setup { capacity, conventional, mount_options: open, ..setup };
        let baseline = Baseline::start(&setup).map_err(|why| Stop::Failed(why.to_string()))?;
        Ok(Host::Kernel { baseline: Box::new(baseline), hints: hints(run, dir.path())?, dir })
    }

    fn row(&mut self, run: &Run, disk: &Disk, what: What, records: u64) -> Result<Row, Stop> {
        let options = run.options;
        let pace = Pace::Real(run.speed(Rule::All));
        let switches = shrunk("wal=sequential", true, options.scale);
        let (mut command, image, dir) = match self {
            Host::Bluefs { image, preload, formatted, dir } => {
                let format = if std::mem::replace(formatted, true) { "" } else { "format=on&" };
                let mut command = Command::new("db_bench");
                command.arg(format!("--fs_uri=imbrex://{}?{format}{}&{switches}", image.display(), pace.options()));
                command.arg("--db=/bench").env("LD_PRELOAD", &*preload).env("IMBREX_SHM_DIR", dir.path());
                (command, image.clone(), dir.path())
            }
            Host::Kernel { baseline, hints, dir } => {
                // Nothing is in any cache.
                baseline.remount()?;
                let mut command = baseline.command("env");
                command.arg(format!("LD_PRELOAD={}", hints.display())).arg("db_bench");
                command.arg(format!("--db={}", baseline.dir().display()));
                (command, baseline.image().to_owned(), dir.path())
            }
        };
        let zone = disk.config(options.scale)?.zone_size;
        command.args(flags(options.scale, zone).split(' ')).args(arguments(options, what, records));
        let Watched { mut rows, sampler, output, .. } =
            watch(run, &On { command, image: &image, pace, disk }, dir, &disk.row(), &[])?;
        let mut row = rows.pop().ok_or("nothing was measured")?;
        let said = timed(&output.replace('\r', "\n"), what.benchmark)
            .ok_or(format!("db_bench printed no result of {}", what.benchmark))?;
        // Who inserts waits for what is left to be flushed and compacted, too, but not for db_bench, which then sleeps; of short runs the program's start would
        // be the larger part.
        let settles = what.kind() == "inserts";
        let seconds = if settles { sampler.busy_until() } else { said.seconds * pace.speed() };
        (row.wall_seconds, row.operations) = (Some(seconds), Some(said.operations));
        row.figures.insert("operations/s".into(), said.operations as f64 / seconds.max(1e-9));
        if what.writes {
            row.bytes_user = Some(said.operations * what.record());
        }
        if let Host::Kernel { baseline, .. } = self
            && let Err(why) = baseline.page_cache()
        {
            row.flags.push(format!("the page cache was not limited: {why}"));
        }
        Ok(row.amplified())
    }

    /// Takes it down; the error says what is left.
    fn finish(self) -> Result<(), String> {
        match self {
            Host::Bluefs { .. } => Ok(()),
            Host::Kernel { baseline, .. } => {
                baseline.finish().map(drop).map_err(|why| format!("the file system could not be taken down: {why}"))
            }
        }
    }
}

/// Each system against bluefs, and what a replay says against what programs waited for.
pub(super) fn ratios(run: &mut Run) {
    let time = |row: &Row| Some(row.wall_seconds? / row.operations?.max(1) as f64);
    for (system, what) in super::rows(run.options).collect::<Vec<_>>() {
        let (real, played) = (name(system, what), super::name(system, what));
        let ours = name(BLUEFS, what);
        let against =
            (system != BLUEFS).then(|| (format!("{real}: time, over that on bluefs"), run.pairs(&real, &ours, time)));
        // The others are played with other mechanics.
        let replay = (what.rule() == Rule::All).then(|| {
            (format!("{played}: time of the replay, over that in real time"), run.pairs(&played, &real, time))
        });
        for (name, pairs) in against.into_iter().chain(replay) {
            run.outcome.ratios.extend(Ratio::of(name, &pairs));
        }
    }
}
