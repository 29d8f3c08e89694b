//! An OSD of Ceph on a served drive: `scripts/ceph-side` starts it and its clients, and is told what to do next.

use super::super::hosts::{Disk, workplace};
use super::super::kernel_amplification::script;
use super::super::{Run, Stop};
use super::Host;
use super::load::{Job, Loaded, Moment};
use super::served::{ANSWERS, Script, serve};
use crate::baseline::{Baseline, FileSystem};
use crate::process::cpu_seconds;
use std::time::{Duration, Instant};

/// Ceph may have to be downloaded first.
const STARTS: Duration = Duration::from_secs(600);

/// What is dropped first goes first: the OSD, then what it stands on.
pub(super) struct Ceph {
    script: Script,
    baseline: Baseline,
    _dir: tempfile::TempDir,
    /// The OSD's number.
    osd: u32,
}

/// Operations that a line of `rbd bench` says were done: `5  9344  9376  37 MiB/s`.
fn progress(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    words.next()?.parse::<u64>().ok()?;
    words.next()?.parse().ok()
}

fn now(baseline: &Baseline, osd: u32) -> Result<Moment, Stop> {
    let (stats, time) = (baseline.drive_stats()?, baseline.drive_time()?);
    Ok(Moment::of(stats.total, time.as_ref(), cpu_seconds(osd).unwrap_or(0.0)))
}

impl Ceph {
    pub(super) fn start(run: &Run, disk: &Disk, raw: bool) -> Result<Ceph, Stop> {
        let program = script(run.options, "ceph-side")?;
        let dir = workplace(&run.options.work)?;
        let file_system = if raw { FileSystem::Raw } else { FileSystem::Xfs };
        let baseline = serve(run, disk, file_system, dir.path())?;
        let mut command = baseline.command(program);
        match raw {
            true => command.arg("bluestore").arg(baseline.device()),
            false => command.arg("filestore").arg(baseline.dir()),
        };
        let script = Script::start("scripts/ceph-side", &command, dir.path())?;
        let mut ceph = Ceph { script, baseline, _dir: dir, osd: 0 };
        ceph.serves(run, STARTS)?;
        Ok(ceph)
    }

    fn serves(&mut self, run: &Run, patience: Duration) -> Result<(), Stop> {
        let line = self.script.line(run, patience)?;
        let osd = line.strip_prefix("osd ").and_then(|number| number.parse().ok());
        self.osd = osd.ok_or_else(|| format!("scripts/ceph-side said {line:?}, and not that an OSD serves"))?;
        Ok(())
    }
}

impl Host for Ceph {
    fn load(&mut self, run: &Run, job: &Job) -> Result<Loaded, Stop> {
        let Job { writes, size, at_once, seconds, objects, prefix } = job;
        let what = if *writes { "write" } else { "read" };
        self.script.tell(&format!("{what} {size} {at_once} {seconds} {objects} {prefix}"))?;
        let (baseline, osd) = (&self.baseline, self.osd);
        self.script.loaded(run, *seconds, |_| now(baseline, osd))
    }

    fn reopen(&mut self, run: &Run) -> Result<(), Stop> {
        self.script.tell("stop")?;
        self.script.expect(run, "stopped")?;
        self.baseline.remount()?;
        self.script.tell("start")?;
        self.serves(run, ANSWERS)
    }

    fn image(&mut self, run: &Run, bytes: u64) -> Result<(), Stop> {
        self.script.tell(&format!("image {}", bytes >> 20))?;
        self.script.expect(run, "made")
    }

    fn overwrite(&mut self, run: &Run, seconds: f64, at_once: usize) -> Result<Loaded, Stop> {
        // It prints a line each second, and the last one may not come.
        self.script.tell(&format!("overwrite {} {at_once}", seconds.ceil() + 2.0))?;
        self.script.expect(run, "begin")?;
        let (mut first, mut last) = (None, None);
        loop {
            let line = self.script.line(run, ANSWERS)?;
            if line == "ended" {
                break;
            }
            let Some(operations) = line.strip_prefix("rbd ").and_then(progress) else { continue };
            last = Some((Instant::now(), operations, self.now()?));
            first = first.or_else(|| last.clone());
        }
        let ((begun, before, at_first), (ended, operations, at_last)) =
            first.zip(last).ok_or("`rbd bench` printed nothing")?;
        Ok(Loaded {
            seconds: (ended - begun).as_secs_f64(),
            operations: operations.saturating_sub(before),
            ended: Vec::new(),
            meanwhile: at_last.since(&at_first),
        })
    }

    fn settle(&mut self) -> Result<(), Stop> {
        Ok(self.baseline.settle()?)
    }

    fn now(&self) -> Result<Moment, Stop> {
        now(&self.baseline, self.osd)
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        // It ends the OSD, which has the drive.
        self.script.terminate();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rbd_prints_is_understood() {
        assert_eq!(progress("     5      9344      9376    37 MiB/s"), Some(9344));
        for other in ["  SEC       OPS   OPS/SEC   BYTES/SEC", "", "5", "elapsed: 0   ops: 8"] {
            assert_eq!(progress(other), None, "{other}");
        }
    }
}
