//! An OSD of Ceph on a served drive: `scripts/ceph-side` starts it and its clients, and is told what to do next.

use super::super::child::Running;
use super::super::hosts::{Disk, profile_of, workplace};
use super::super::kernel_amplification::script;
use super::super::{Rule, Run, Stop};
use super::Host;
use super::load::{Job, Loaded, Moment};
use crate::baseline::{Baseline, Directory, FileSystem, Setup};
use crate::process::cpu_seconds;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Page cache of FileStore.
const CACHE: u64 = 1 << 30;
/// Ceph may have to be downloaded first.
const STARTS: Duration = Duration::from_secs(600);
const ANSWERS: Duration = Duration::from_secs(330);

/// What is dropped first goes first: the OSD, then what it stands on.
pub(crate) struct Ceph {
    script: Running,
    input: ChildStdin,
    lines: Receiver<String>,
    baseline: Baseline,
    /// The drive with the metadata, where that is another one.
    db: Option<Baseline>,
    _dir: tempfile::TempDir,
    /// The OSD's number.
    osd: u32,
}

/// What `scripts/ceph-load.py` prints.
#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    ended: Vec<(f64, f64)>,
}

/// Operations that a line of `rbd bench` says were done: `5  9344  9376  37 MiB/s`.
fn progress(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    words.next()?.parse::<u64>().ok()?;
    words.next()?.parse().ok()
}

/// A drive that is served to the kernel, with this file system.
fn served(
    run: &Run,
    disk: &Disk,
    file_system: FileSystem,
    capacity: Option<u64>,
    dir: &Path,
) -> Result<Baseline, Stop> {
    let imbrex = std::env::current_exe().map_err(|e| format!("this program cannot be found ({e})"))?;
    let setup = Setup {
        work: run.options.work.clone(),
        file_system,
        directory: Directory::Root,
        speed: run.speed(Rule::Fewer),
        capacity,
        cache_bytes: CACHE,
        dirty_bytes: CACHE / 5,
        rotational: true,
        preconditioned: disk.preconditioned,
        ..Setup::new(imbrex, &profile_of(&disk.profile, dir)?)
    };
    Baseline::start(&setup).map_err(|why| Stop::Failed(why.to_string()))
}

impl Ceph {
    /// An OSD with BlueStore, or with FileStore, on a drive of so many bytes, or as large as it is. BlueStore may have its metadata on a second one.
    pub(crate) fn start(
        run: &Run,
        bluestore: bool,
        (disk, db): (&Disk, Option<&Disk>),
        capacity: Option<u64>,
    ) -> Result<Ceph, Stop> {
        let program = script(run.options, "ceph-side")?;
        let dir = workplace(&run.options.work)?;
        let file_system = if bluestore { FileSystem::Raw } else { FileSystem::Xfs };
        let serve = |disk: &Disk| served(run, disk, file_system, capacity, dir.path());
        let baseline = serve(disk)?;
        let db = db.map(serve).transpose()?;
        let mut command = baseline.command(program);
        match bluestore {
            true => command.arg("bluestore").arg(baseline.device()).args(db.as_ref().map(Baseline::device)),
            false => command.arg("filestore").arg(baseline.dir()),
        };
        let (script, input, output) = Running::start_asked(&command, dir.path())?;
        let (said, lines) = channel();
        // It ends with the script.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        let mut ceph = Ceph { script, input, lines, baseline, db, _dir: dir, osd: 0 };
        ceph.serves(run, STARTS)?;
        Ok(ceph)
    }

    fn tell(&mut self, words: &str) -> Result<(), Stop> {
        let told = writeln!(self.input, "{words}").and_then(|()| self.input.flush());
        told.map_err(|_| self.has_ended())
    }

    fn has_ended(&self) -> Stop {
        let complaints = self.script.complaints();
        let last = complaints.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Stop::Failed(format!("scripts/ceph-side has ended: {}", last.trim()))
    }

    fn line(&mut self, run: &Run, patience: Duration) -> Result<String, Stop> {
        let end = Instant::now() + patience;
        loop {
            let line = self.lines.recv_timeout(Duration::from_millis(100));
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            match line {
                Ok(line) => match line.strip_prefix("failed: ").or(line.strip_prefix("not run: ")) {
                    Some(why) => return Err(Stop::Failed(why.to_owned())),
                    None => return Ok(line),
                },
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("scripts/ceph-side said nothing for {} s", patience.as_secs()).into());
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.has_ended()),
            }
        }
    }

    fn expect(&mut self, run: &Run, word: &str) -> Result<(), Stop> {
        match self.line(run, ANSWERS)? {
            line if line == word => Ok(()),
            line => Err(format!("scripts/ceph-side said {line:?} and not {word:?}").into()),
        }
    }

    fn serves(&mut self, run: &Run, patience: Duration) -> Result<(), Stop> {
        let line = self.line(run, patience)?;
        let osd = line.strip_prefix("osd ").and_then(|number| number.parse().ok());
        self.osd = osd.ok_or_else(|| format!("scripts/ceph-side said {line:?}, and not that an OSD serves"))?;
        Ok(())
    }
}

impl Host for Ceph {
    fn load(&mut self, run: &Run, job: &Job) -> Result<Loaded, Stop> {
        let Job { writes, size, at_once, seconds, objects, prefix } = job;
        let what = if *writes { "write" } else { "read" };
        self.tell(&format!("{what} {size} {at_once} {seconds} {objects} {prefix}"))?;
        self.expect(run, "begin")?;
        let before = self.now()?;
        let answer = self.line(run, ANSWERS)?;
        let meanwhile = self.now()?.since(&before);
        let answer: Answer = serde_json::from_str(&answer).map_err(|e| format!("scripts/ceph-load.py: {e}"))?;
        let ended: Vec<_> = answer.ended.into_iter().map(|(at, ms)| (at, ms / 1e3)).collect();
        Ok(Loaded { seconds: answer.seconds, operations: ended.len() as u64, ended, meanwhile })
    }

    fn reopen(&mut self, run: &Run) -> Result<(), Stop> {
        self.tell("stop")?;
        self.expect(run, "stopped")?;
        self.baseline.remount()?;
        self.tell("start")?;
        self.serves(run, ANSWERS)
    }

    fn image(&mut self, run: &Run, bytes: u64) -> Result<(), Stop> {
        self.tell(&format!("image {}", bytes >> 20))?;
        self.expect(run, "made")
    }

    fn overwrite(&mut self, run: &Run, seconds: f64, at_once: usize) -> Result<Loaded, Stop> {
        // It prints a line each second, and the last one may not come.
        self.tell(&format!("overwrite {} {at_once}", seconds.ceil() + 2.0))?;
        self.expect(run, "begin")?;
        let (mut first, mut last) = (None, None);
        loop {
            let line = self.line(run, ANSWERS)?;
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
        self.baseline.settle()?;
        Ok(self.db.as_ref().map_or(Ok(()), Baseline::settle)?)
    }

    fn now(&self) -> Result<Moment, Stop> {
        let of = |drive: &Baseline, processor| -> Result<Moment, Stop> {
            Ok(Moment::of(drive.drive_stats()?.total, drive.drive_time()?.as_ref(), processor))
        };
        let db = self.db.as_ref().map(|db| of(db, 0.0).map(Box::new)).transpose()?;
        Ok(Moment { db, ..of(&self.baseline, cpu_seconds(self.osd).unwrap_or(0.0))? })
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
