//! A drive that is served to the kernel, and a script that uses it and is told what to do next.

use super::super::child::Running;
use super::super::hosts::{Disk, profile_of};
use super::super::{Rule, Run, Stop};
use super::load::{Loaded, Moment};
use crate::baseline::{Baseline, Directory, FileSystem, Setup};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Page cache of a file system.
const CACHE: u64 = 1 << 30;
/// How long a script may take for what has no time of its own.
pub(super) const ANSWERS: Duration = Duration::from_secs(330);

/// A disk of so many bytes, or as large as it is, with the file system on it or without any.
pub(super) fn serve(
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

/// What a script prints when it has done its work.
#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    ended: Vec<(f64, f64)>,
}

/// A script that runs. Dropped, it is killed.
pub(super) struct Script {
    running: Running,
    name: &'static str,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Script {
    /// Its complaints go to a file in `dir`.
    pub(super) fn start(name: &'static str, command: &Command, dir: &Path) -> Result<Script, Stop> {
        let (running, input, output) = Running::start_asked(command, dir)?;
        let (said, lines) = channel();
        // It ends with the script.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Ok(Script { running, name, input, lines })
    }

    pub(super) fn id(&self) -> u32 {
        self.running.id()
    }

    /// Asks it to end what it started, and itself.
    pub(super) fn terminate(&mut self) {
        self.running.terminate();
    }

    pub(super) fn tell(&mut self, words: &str) -> Result<(), Stop> {
        let told = writeln!(self.input, "{words}").and_then(|()| self.input.flush());
        told.map_err(|_| self.has_ended())
    }

    fn has_ended(&self) -> Stop {
        let complaints = self.running.complaints();
        let last = complaints.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Stop::Failed(format!("{} has ended: {}", self.name, last.trim()))
    }

    /// The next line, or nothing where there is none by that moment.
    pub(super) fn heard(&mut self, run: &Run, until: Instant) -> Result<Option<String>, Stop> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left.min(Duration::from_millis(100)));
            if run.stopped() {
                return Err(Stop::Interrupted);
            }
            match line {
                Ok(line) => match line.strip_prefix("failed: ").or(line.strip_prefix("not run: ")) {
                    Some(why) => return Err(Stop::Failed(why.to_owned())),
                    None => return Ok(Some(line)),
                },
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.has_ended()),
            }
        }
    }

    /// The next line, which may take so long.
    pub(super) fn line(&mut self, run: &Run, patience: Duration) -> Result<String, Stop> {
        let line = self.heard(run, Instant::now() + patience)?;
        line.ok_or_else(|| format!("{} said nothing for {} s", self.name, patience.as_secs()).into())
    }

    pub(super) fn expect(&mut self, run: &Run, word: &str) -> Result<(), Stop> {
        match self.line(run, ANSWERS)? {
            line if line == word => Ok(()),
            line => Err(format!("{} said {line:?} and not {word:?}", self.name).into()),
        }
    }

    /// Of work that it was told to do, and that takes so many seconds: what came of it, and what was done meanwhile.
    pub(super) fn loaded(
        &mut self,
        run: &Run,
        seconds: f64,
        now: impl Fn(&Script) -> Result<Moment, Stop>,
    ) -> Result<Loaded, Stop> {
        self.expect(run, "begin")?;
        let before = now(self)?;
        // Nothing is written before this line, so all that is written is counted.
        self.tell("go")?;
        let answer = self.line(run, ANSWERS + Duration::from_secs_f64(seconds))?;
        let meanwhile = now(self)?.since(&before);
        let answer: Answer = serde_json::from_str(&answer).map_err(|e| format!("{}: {e}", self.name))?;
        let ended: Vec<_> = answer.ended.into_iter().map(|(at, ms)| (at, ms / 1e3)).collect();
        Ok(Loaded { seconds: answer.seconds, operations: ended.len() as u64, ended, meanwhile })
    }
}
