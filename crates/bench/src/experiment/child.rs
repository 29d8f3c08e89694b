//! A program that an experiment runs: its output goes to files, and it does not outlive the experiment.

use super::Stop;
use crate::process::cpu_seconds;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

/// How often it is looked at.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// A running program. Dropped, it is killed.
pub(super) struct Running {
    child: Child,
    name: String,
    stdout: PathBuf,
    stderr: PathBuf,
    cpu_seconds: f64,
}

impl Running {
    /// Starts `command`; its output goes to files in `dir`.
    ///
    /// It runs under `setpriv` (of util-linux), by which it is killed should this process be.
    pub(super) fn start(command: &Command, dir: &Path) -> Result<Running, Stop> {
        Self::begin(command, dir, Stdio::null(), None)
    }

    /// The same of a program that waits for words at its standard input.
    pub(super) fn start_told(command: &Command, dir: &Path) -> Result<(Running, ChildStdin), Stop> {
        let mut running = Self::begin(command, dir, Stdio::piped(), None)?;
        let input = running.child.stdin.take().ok_or("the program has no standard input")?;
        Ok((running, input))
    }

    /// The same of a program that also answers at its standard output, which does not go to a file then.
    pub(super) fn start_asked(command: &Command, dir: &Path) -> Result<(Running, ChildStdin, ChildStdout), Stop> {
        let mut running = Self::begin(command, dir, Stdio::piped(), Some(Stdio::piped()))?;
        let input = running.child.stdin.take().ok_or("the program has no standard input")?;
        let output = running.child.stdout.take().ok_or("the program has no standard output")?;
        Ok((running, input, output))
    }

    fn begin(command: &Command, dir: &Path, input: Stdio, output: Option<Stdio>) -> Result<Running, Stop> {
        let name = command.get_program().to_string_lossy().into_owned();
        let (stdout, stderr) = (dir.join("stdout"), dir.join("stderr"));
        let file = |path: &Path| File::create(path).map_err(|e| Stop::Failed(format!("{}: {e}", path.display())));
        let mut guarded = Command::new("setpriv");
        guarded.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => guarded.env(key, value),
                None => guarded.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            guarded.current_dir(dir);
        }
        let output = output.map_or_else(|| file(&stdout).map(Stdio::from), Ok)?;
        guarded.stdin(input).stdout(output).stderr(file(&stderr)?);
        let child = guarded
            .spawn()
            .map_err(|e| Stop::Failed(format!("setpriv: {e}; install util-linux, which has it, to run {name}")))?;
        Ok(Running { child, name, stdout, stderr, cpu_seconds: 0.0 })
    }

    /// Waits for its end, and calls `look` every tenth of a second with what it printed so far; `look` says whether to go on.
    pub(super) fn wait(&mut self, look: impl FnMut(&str) -> Result<(), Stop>) -> Result<(), Stop> {
        self.wait_each(POLL, look)
    }

    /// The same, another time.
    pub(super) fn wait_each(
        &mut self,
        pause: Duration,
        mut look: impl FnMut(&str) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        loop {
            let ended = self.child.try_wait().map_err(|e| Stop::Failed(format!("{}: {e}", self.name)))?;
            look(&self.output())?;
            match ended {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure(status)),
                None => {
                    self.cpu_seconds = cpu_seconds(self.child.id()).unwrap_or(self.cpu_seconds);
                    std::thread::sleep(pause);
                }
            }
        }
    }

    /// Asks it to end, and waits a moment for it: a script ends what it started.
    pub(super) fn terminate(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        for _ in 0..50 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Its number; with a program that it runs under, that one's, which becomes it.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it printed so far.
    pub(super) fn output(&self) -> String {
        text(&self.stdout)
    }

    /// What it complained of so far, and printed beside its results.
    pub(super) fn complaints(&self) -> String {
        text(&self.stderr)
    }

    /// Processor seconds that it used, to a tenth of a second.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu_seconds
    }

    fn failure(&self, status: ExitStatus) -> Stop {
        let (out, complaints) = (self.output(), self.complaints());
        // db_bench reports its failures on either.
        let words = [complaints.as_str(), out.as_str()];
        let last = words.iter().flat_map(|text| text.lines().rev().find(|line| !line.trim().is_empty())).next();
        Stop::Failed(format!("{} ended with {status} ({})", self.name, last.unwrap_or("no message").trim()))
    }
}

fn text(path: &Path) -> String {
    std::fs::read(path).map_or(String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of the whole machine since it started: busy and all, in ticks. What runs at a low priority gives way, and does not count as busy.
pub(super) fn machine_ticks() -> Option<(f64, f64)> {
    ticks(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn ticks(stat: &str) -> Option<(f64, f64)> {
    let numbers: Vec<f64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // User, of low priority, system, idle, waiting for a disk, interrupts, the same later, taken by the host.
    let all: f64 = numbers.iter().take(8).sum();
    let not_busy: f64 = [1, 3, 4].iter().filter_map(|at| numbers.get(*at)).sum();
    Some((all - not_busy, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("GREETING", "hello");
        command
    }

    #[test]
    fn output_is_seen_while_it_runs_and_failures_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = Running::start(&shell("echo $GREETING; sleep 0.4; echo bye"), dir.path()).unwrap();
        let mut seen = Vec::new();
        running
            .wait(|text| {
                seen.push(text.to_owned());
                Ok(())
            })
            .unwrap();
        assert!(seen.iter().any(|text| text == "hello\n"), "{seen:?}");
        assert_eq!(seen.last().unwrap(), "hello\nbye\n");
        let mut broken = Running::start(&shell("echo one; echo it broke >&2; exit 3"), dir.path()).unwrap();
        let Err(Stop::Failed(why)) = broken.wait(|_| Ok(())) else { panic!() };
        assert!(why.contains("it broke") && why.contains('3'), "{why}");
        let missing = Running::start(&Command::new("/no/such/program"), dir.path());
        assert!(missing.is_err() || missing.unwrap().wait(|_| Ok(())).is_err());
    }

    #[test]
    fn a_program_that_waits_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let script = "echo a is next; read word; echo $word done; read word; echo $word too";
        let (mut running, mut input) = Running::start_told(&shell(script), dir.path()).unwrap();
        let mut told = 0;
        running
            .wait_each(POLL / 20, |text| {
                if told == 0 && text == "a is next\n" || told == 1 && text.contains("one done\n") {
                    input.write_all([b"one\n", b"two\n"][told]).unwrap();
                    told += 1;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(running.output(), "a is next\none done\ntwo too\n");
        // Others find an end there.
        let mut other = Running::start(&shell("read word || echo nothing"), dir.path()).unwrap();
        other.wait(|_| Ok(())).unwrap();
        assert_eq!(other.output(), "nothing\n");
    }

    #[test]
    fn what_gives_way_is_not_counted_as_busy() {
        assert_eq!(ticks("cpu  100 20 30 400 5 1 2 3 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\n"), Some((136.0, 561.0)));
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn what_is_left_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = Running::start(&shell("exec sleep 1000"), dir.path()).unwrap();
        let pid = running.child.id();
        assert_eq!(running.wait(|_| Err(Stop::Interrupted)), Err(Stop::Interrupted));
        drop(running);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
