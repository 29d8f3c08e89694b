//! An OSD of Ceph on a served drive: `scripts/ceph-side` starts it and its clients, and is told what to do next.

use super::super::hosts::{Disk, workplace};
use super::super::kernel_amplification::script;
use super::super::{Run, Stop};
use super::Host;
use super::load::{Job, Loaded, Moment, Pattern, Requests};
use super::served::{ANSWERS, Script, serve};
use crate::baseline::{Baseline, FileSystem};
use crate::process::cpu_seconds;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Ceph may have to be downloaded first.
const STARTS: Duration = Duration::from_secs(600);

/// What keeps an OSD's objects, in which release of Ceph.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Osd {
    /// Debian 12's Ceph is the last release that has it.
    FileStore,
    /// BlueStore, in the same Ceph.
    Pacific,
    /// BlueStore in Debian 13's, which has its own C library. No usual form has it, as it has to be downloaded.
    Reef,
}

impl Osd {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Osd::FileStore => "Ceph's FileStore",
            Osd::Pacific => "Ceph's BlueStore",
            Osd::Reef => "BlueStore of Ceph 18.2",
        }
    }

    /// What `scripts/ceph-side` is told: the release, and the store.
    fn arguments(self) -> [&'static str; 2] {
        match self {
            Osd::FileStore => ["16.2", "filestore"],
            Osd::Pacific => ["16.2", "bluestore"],
            Osd::Reef => ["18.2", "bluestore"],
        }
    }
}

/// What is dropped first goes first: the OSD, then what it stands on.
pub(crate) struct Ceph {
    script: Script,
    baseline: Baseline,
    /// The drive with the metadata, where that is another one.
    db: Option<Baseline>,
    _dir: tempfile::TempDir,
    /// The OSD's number.
    osd: u32,
}

/// What lines say of `rbd bench`, or are its own.
#[derive(Debug, PartialEq)]
enum Said {
    /// The number of its process.
    Client(i32),
    /// The head of its lines: the image is open.
    Begins,
    /// Operations that it has done, and seconds.
    Done(u64, f64),
    Ended,
    More,
}

fn said(line: &str) -> Said {
    let mut words = line.split_whitespace();
    let first: [&str; 6] = std::array::from_fn(|_| words.next().unwrap_or(""));
    match first {
        ["client", number, ..] => number.parse().map_or(Said::More, Said::Client),
        ["SEC", "OPS", ..] => Said::Begins,
        // The seconds of the line are whole ones.
        ["elapsed:", _, "ops:", operations, "ops/sec:", rate] => {
            match (operations.parse::<u64>(), rate.parse::<f64>()) {
                (Ok(operations), Ok(rate)) if rate > 0.0 => Said::Done(operations, operations as f64 / rate),
                _ => Said::More,
            }
        }
        ["ended", ..] => Said::Ended,
        _ => Said::More,
    }
}

fn now(baseline: &Baseline, osd: Option<u32>) -> Result<Moment, Stop> {
    let (stats, time) = (baseline.drive_stats()?, baseline.drive_time()?);
    Ok(Moment::of(stats.total, time.as_ref(), osd.and_then(cpu_seconds).unwrap_or(0.0)))
}

/// The same of both drives, where there are two.
fn of_both((baseline, db): (&Baseline, Option<&Baseline>), osd: u32) -> Result<Moment, Stop> {
    let db = db.map(|db| now(db, None).map(Box::new)).transpose()?;
    Ok(Moment { db, ..now(baseline, Some(osd))? })
}

impl Ceph {
    /// An OSD on a drive of so many bytes, or as large as it is. BlueStore may have its metadata on a second one.
    pub(crate) fn start(
        run: &Run,
        osd: Osd,
        (disk, db): (&Disk, Option<&Disk>),
        capacity: Option<u64>,
    ) -> Result<Ceph, Stop> {
        let program = script(run.options, "ceph-side")?;
        let dir = workplace(&run.options.work)?;
        let file_system = if osd == Osd::FileStore { FileSystem::Xfs } else { FileSystem::Raw };
        let serve = |disk: &Disk| serve(run, disk, file_system, capacity, dir.path());
        let baseline = serve(disk)?;
        let db = db.map(serve).transpose()?;
        let mut command = baseline.command(program);
        command.args(osd.arguments());
        match osd {
            Osd::FileStore => command.arg(baseline.dir()),
            _ => command.arg(baseline.device()).args(db.as_ref().map(Baseline::device)),
        };
        let script = Script::start("scripts/ceph-side", &command, dir.path())?;
        let mut ceph = Ceph { script, baseline, db, _dir: dir, osd: 0 };
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
        let (drives, osd) = ((&self.baseline, self.db.as_ref()), self.osd);
        self.script.loaded(run, *seconds, |_| of_both(drives, osd))
    }

    fn reopen(&mut self, run: &Run) -> Result<(), Stop> {
        self.script.tell("stop")?;
        self.script.expect(run, "stopped")?;
        self.baseline.remount()?;
        self.script.tell("start")?;
        self.serves(run, ANSWERS)
    }

    fn image(&mut self, run: &Run, name: &str, bytes: u64, written: bool) -> Result<(), Stop> {
        let how = if written { "written" } else { "empty" };
        self.script.tell(&format!("image {name} {how} {}", bytes >> 20))?;
        self.script.expect(run, "made")
    }

    fn requests(&mut self, run: &Run, image: &str, requests: &Requests) -> Result<Loaded, Stop> {
        let Requests { pattern, size, at_once, seconds, bytes } = requests;
        let pattern = match pattern {
            Pattern::Reads => "read full-seq",
            Pattern::Writes => "write full-seq",
            Pattern::Random => "write rand",
        };
        // Not when it begins: until that is read here, much may have been done.
        let before = self.now()?;
        self.script.tell(&format!("requests {image} {pattern} {}K {at_once} {}K", size >> 10, bytes >> 10))?;
        let (mut client, mut begun, mut done) = (None, false, None);
        let mut until = Instant::now() + ANSWERS;
        loop {
            match self.script.heard(run, until)?.as_deref().map(said) {
                Some(Said::Client(number)) => client = Pid::from_raw(number),
                Some(Said::Begins) => (begun, until) = (true, Instant::now() + Duration::from_secs_f64(*seconds)),
                Some(Said::Done(operations, seconds)) => {
                    done = Some((operations, seconds, self.now()?));
                    (client, until) = (None, Instant::now() + ANSWERS);
                }
                Some(Said::Ended) => break,
                Some(Said::More) => {}
                // Its time is over: it waits for what is under way. Told so before it begins, or twice, it would end without a word.
                None => {
                    let client = client.take().filter(|_| begun).ok_or("`rbd bench` neither begins nor ends")?;
                    kill_process(client, Signal::INT).map_err(|e| format!("`rbd bench` cannot be stopped ({e})"))?;
                    until = Instant::now() + ANSWERS;
                }
            }
        }
        let (operations, seconds, after) = done.ok_or("`rbd bench` did not say what it has done")?;
        Ok(Loaded { seconds, operations, ended: Vec::new(), meanwhile: after.since(&before) })
    }

    fn settle(&mut self) -> Result<(), Stop> {
        self.baseline.settle()?;
        Ok(self.db.as_ref().map_or(Ok(()), Baseline::settle)?)
    }

    fn now(&self) -> Result<Moment, Stop> {
        of_both((&self.baseline, self.db.as_ref()), self.osd)
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
        let done = said("elapsed: 3   ops: 14939   ops/sec: 3749.75   bytes/sec: 15 MiB/s");
        assert!(matches!(done, Said::Done(14939, seconds) if (seconds - 3.984).abs() < 1e-3), "{done:?}");
        assert_eq!(said("  SEC       OPS   OPS/SEC   BYTES/SEC"), Said::Begins);
        assert_eq!((said("client 77"), said("ended")), (Said::Client(77), Said::Ended));
        // Of one that did nothing, and that was told to end before it began.
        let nothing = ["elapsed: 0   ops: 0   ops/sec: -nan   bytes/sec: 8 EiB/s", "elapsed: 0   ops: 8"];
        for other in nothing.into_iter().chain(["     5      9344      9376    37 MiB/s", "", "client"]) {
            assert_eq!(said(other), Said::More, "{other}");
        }
    }
}
