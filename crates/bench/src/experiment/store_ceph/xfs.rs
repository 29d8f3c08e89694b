//! Objects as Ceph's NewStore made them, on XFS: a file for the bytes, and metadata in a database beside the files. `scripts/xfs-load.py` makes them.

use super::super::hosts::{Disk, workplace};
use super::super::kernel_amplification::script;
use super::super::{Run, Stop};
use super::load::{Job, Loaded, Moment};
use super::served::{Script, serve};
use super::{CAPACITY, Host, METADATA};
use crate::baseline::{Baseline, FileSystem};
use crate::process::cpu_seconds;

/// What is dropped first goes first: the program, then what it stands on.
pub(super) struct Xfs {
    script: Script,
    baseline: Baseline,
    _dir: tempfile::TempDir,
}

fn now(baseline: &Baseline, script: &Script) -> Result<Moment, Stop> {
    let (stats, time) = (baseline.drive_stats()?, baseline.drive_time()?);
    Ok(Moment::of(stats.total, time.as_ref(), cpu_seconds(script.id()).unwrap_or(0.0)))
}

impl Xfs {
    pub(super) fn start(run: &Run, disk: &Disk) -> Result<Xfs, Stop> {
        let program = script(run.options, "xfs-load.py")?;
        let dir = workplace(&run.options.work)?;
        let baseline = serve(run, disk, FileSystem::Xfs, Some(CAPACITY), dir.path())?;
        // The distribution's own Python: another one in the path has no plyvel.
        let mut command = baseline.command("/usr/bin/python3");
        command.arg(program).arg(baseline.dir()).arg(METADATA.to_string());
        let script = Script::start("scripts/xfs-load.py", &command, dir.path())?;
        let mut xfs = Xfs { script, baseline, _dir: dir };
        xfs.script.expect(run, "ready")?;
        Ok(xfs)
    }
}

impl Host for Xfs {
    fn create(&mut self, run: &Run, job: &Job) -> Result<Loaded, Stop> {
        let Job { size, at_once, seconds, objects, prefix, .. } = job;
        self.script.tell(&format!("{size} {at_once} {seconds} {objects} {prefix}"))?;
        let baseline = &self.baseline;
        self.script.loaded(run, *seconds, |script| now(baseline, script))
    }

    fn settle(&mut self) -> Result<(), Stop> {
        Ok(self.baseline.settle()?)
    }

    fn now(&self) -> Result<Moment, Stop> {
        now(&self.baseline, &self.script)
    }
}
