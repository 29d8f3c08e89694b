//! Baselines: the kernel's own file systems on simulated drives.
//!
//! A [`Baseline`] is such a file system, mounted: an image of a scaled drive, `imbrex drive serve` on it with the drive's clock running, a
//! loop device, the queue settings of a disk, `mkfs` and `mount`. A zoned drive needs no loop device: it is a block device of its own. A memory
//! group limits the page cache of the programs that are run on it, as the papers limited theirs. The server is outside of that group, and the
//! image is in memory (`/dev/shm`), so that only the drive's model decides how long things take.
//!
//! All of it needs root and Linux; where something is missing, [`Baseline::start`] says in a sentence what ([`NotRun`]).
//! Everything is undone when the value goes away, in whatever way; what a SIGKILL leaves, the next start undoes, or
//! `imbrex drive detach` ([`undo_left`]).

pub mod attached;
mod group;
mod record;

pub use group::PageCache;
pub use record::{owner, undo_left};

use crate::process::cpu_seconds;
use attached::{FILE, run};
use group::Group;
use imbrex_emulator::time::{Mechanics, TimeStats};
use imbrex_emulator::{Config, Emulator, Observer, Overrides, Stats, start_image_trace};
use record::{IMAGE, MOUNTED, Record, SERVED};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Why a baseline could not run: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun(pub String);

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for NotRun {
    fn from(sentence: String) -> NotRun {
        NotRun(sentence)
    }
}

/// A file system of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// As the papers had it.
    Xfs,
    /// Debian's default.
    Ext4,
    /// XFS on a zoned drive (Linux 6.15).
    ZonedXfs,
    /// On a zoned drive.
    F2fs,
    /// None: a program has the block device of a conventional drive itself.
    Raw,
}

impl FileSystem {
    /// Its name, for `mount`.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Xfs | FileSystem::ZonedXfs => "xfs",
            FileSystem::Ext4 => "ext4",
            FileSystem::F2fs => "f2fs",
            FileSystem::Raw => "block device",
        }
    }

    /// What makes it, and the package that has that.
    fn mkfs(self) -> Option<(&'static str, &'static str)> {
        match self {
            FileSystem::Xfs | FileSystem::ZonedXfs => Some(("mkfs.xfs", "xfsprogs")),
            FileSystem::Ext4 => Some(("mkfs.ext4", "e2fsprogs")),
            FileSystem::F2fs => Some(("mkfs.f2fs", "f2fs-tools")),
            FileSystem::Raw => None,
        }
    }

    /// Whether its drive has sequential zones.
    pub fn is_zoned(self) -> bool {
        matches!(self, FileSystem::ZonedXfs | FileSystem::F2fs)
    }
}

/// Where in the file system the database is. XFS puts what is in its root directory into its first allocation group, and each
/// other directory into one of its own: that is another place on the drive, so both are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// The root directory.
    Root,
    /// One of its own.
    Own,
}

/// What a baseline is made of. Sizes in bytes, of this drive, that is, scaled.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The command `imbrex`.
    pub imbrex: PathBuf,
    /// Where the image and the mount points go, in a new directory that is removed in the end.
    pub work: PathBuf,
    /// The drive's profile, by name or file; a zoned one for a file system that wants zones, else a conventional or drive-managed one.
    pub profile: String,
    /// The drive is 1/scale of the profile's.
    pub scale: u32,
    /// What shrinks with the scale.
    pub mechanics: Mechanics,
    /// Size of the drive where it is not the profile's share.
    pub capacity: Option<u64>,
    /// Its conventional zones, likewise.
    pub conventional: Option<u32>,
    /// Where on the drive the file system lies, and how long it is; `None`: all of it.
    pub part: Option<(u64, u64)>,
    /// More words for what makes the file system.
    pub mkfs_more: Vec<String>,
    /// Options of the mount; none, if it is empty.
    pub mount_options: String,
    /// Whether the drive's volatile write cache is on.
    pub write_cache: bool,
    /// The drive, a drive-managed one, is as after a long life: every band has data, and its persistent cache has so many extents, or as many as it can.
    /// After a pause it has none, because the drive cleans whenever it idles. `None`: it is new.
    pub preconditioned: Option<u32>,
    /// Which file system.
    pub file_system: FileSystem,
    /// Where the database is.
    pub directory: Directory,
    /// Drive seconds in a second.
    pub speed: f64,
    /// Page cache for the programs.
    pub cache_bytes: u64,
    /// How much of it may wait to be written out.
    pub dirty_bytes: u64,
    /// How many of its last commands the drive records; `None`: it records none.
    pub recorded: Option<u32>,
    /// Whether the kernel tells programs that the drive is a disk. Ceph's stores ask for that.
    pub rotational: bool,
}

impl Setup {
    /// The real thing at full size on XFS, in a directory of its own, at its own speed, with 2 GiB of page cache of which the
    /// kernel's usual fifth may wait to be written.
    pub fn new(imbrex: impl Into<PathBuf>, profile: &str) -> Setup {
        Setup {
            imbrex: imbrex.into(),
            work: crate::experiment::WORK.into(),
            profile: profile.into(),
            scale: 1,
            mechanics: Mechanics::Scaled,
            capacity: None,
            conventional: None,
            part: None,
            mkfs_more: Vec::new(),
            mount_options: String::new(),
            write_cache: true,
            preconditioned: None,
            file_system: FileSystem::Xfs,
            directory: Directory::Own,
            speed: 1.0,
            cache_bytes: 2 << 30,
            dirty_bytes: (2 << 30) / 5,
            recorded: None,
            rotational: false,
        }
    }

    /// At 1/scale: the drive, the page cache, and how much may wait.
    #[must_use]
    pub fn scaled(self, scale: u32, mechanics: Mechanics) -> Setup {
        let part = u64::from(scale.max(1));
        let (cache_bytes, dirty_bytes) = (self.cache_bytes / part, self.dirty_bytes / part);
        Setup { scale, mechanics, cache_bytes, dirty_bytes, ..self }
    }

    /// What the file system is made with: nothing is done in the background later, and nothing discarded.
    fn mkfs_arguments(&self) -> Vec<String> {
        let mut words = match self.file_system {
            FileSystem::Xfs => vec!["-q", "-K"],
            FileSystem::ZonedXfs => vec!["-q", "-f"],
            FileSystem::F2fs => vec!["-q", "-f", "-m"],
            // The drive is new: its log reads as zeros. The tables for inodes are written now, so there are as many as large files need.
            FileSystem::Ext4 => {
                vec!["-q", "-T", "largefile4", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=1"]
            }
            FileSystem::Raw => vec![],
        };
        // A drive of this size at full size has a journal of 1 GiB; 4 MiB is the least that there is.
        let journal = format!("size={}", (1024 / self.scale.max(1)).max(4));
        let scaled = self.scale > 1 && self.mechanics == Mechanics::Scaled && self.capacity.is_none();
        if self.file_system == FileSystem::Ext4 && scaled {
            words.extend(["-J", &journal]);
        }
        words.into_iter().map(String::from).chain(self.mkfs_more.iter().cloned()).collect()
    }

    /// What `mkfs.xfs` has to be told beside that: it wants 300 MiB of conventional zones, but of who runs its own tests.
    fn mkfs_environment(&self) -> &'static [(&'static str, &'static str)] {
        match self.file_system {
            FileSystem::ZonedXfs => &[("TEST_DIR", "/x"), ("TEST_DEV", "/y"), ("QA_CHECK_FS", "1")],
            _ => &[],
        }
    }

    fn config(&self) -> Result<Config, NotRun> {
        let overrides = Overrides {
            capacity: self.capacity,
            conventional: self.conventional,
            write_cache: Some(self.write_cache),
            scale: Some(self.scale),
            mechanics: self.mechanics,
            ..Overrides::default()
        };
        let config = Config::named(&self.profile, &overrides).map_err(|error| NotRun(error.to_string()))?;
        let zoned = config.conventional < config.zones();
        if zoned != self.file_system.is_zoned() {
            return Err(NotRun(format!(
                "{} is {} drive, so no {} fits on it",
                self.profile,
                if zoned { "no conventional" } else { "no zoned" },
                self.file_system.name()
            )));
        }
        Ok(config)
    }
}

/// Whether this machine can run a baseline on this file system; the error says what is missing.
pub fn check(file_system: FileSystem) -> Result<(), NotRun> {
    let not = |sentence: String| Err(NotRun(sentence));
    if !rustix::process::geteuid().is_root() {
        return not("needs root, to attach a block device and mount a file system".into());
    }
    let (devices, from): (&[&str], _) = if file_system.is_zoned() {
        (&["/dev/ublk-control"], ", of Linux 6.6 or newer with the module ublk_drv")
    } else {
        (&["/dev/fuse", "/dev/loop-control"], "")
    };
    for device in devices {
        if let Err(error) = File::options().read(true).write(true).open(device) {
            return not(format!("needs {device}{from} ({error})"));
        }
    }
    let others = [("losetup", "mount"), ("mount", "mount"), ("setpriv", "util-linux")];
    for (program, package) in file_system.mkfs().into_iter().chain(others) {
        let there = Command::new(program).arg("-V").stdin(Stdio::null()).output();
        if let Err(error) = there {
            return not(format!("needs {program}, of the package {package} ({error})"));
        }
    }
    Ok(())
}

/// A file system on a simulated drive, mounted, and all that is below it.
pub struct Baseline {
    record: Record,
    image: PathBuf,
    server: Option<Child>,
    device: PathBuf,
    file_system: FileSystem,
    mount_options: String,
    directory: Directory,
    group: Result<Group, String>,
    /// It was taken down.
    over: bool,
}

/// What there is to say when all is over.
#[derive(Clone, Debug)]
pub struct Report {
    /// What reached the drive, from [`Baseline::begin`] on.
    pub stats: Stats,
    /// What became of its time, likewise.
    pub time: Option<TimeStats>,
    /// The page cache, or why it was not limited.
    pub page_cache: Result<PageCache, String>,
    /// Processor seconds of the server: what the drive's simulation cost.
    pub server_cpu: f64,
}

impl Baseline {
    /// Sets all of it up, and undoes before what dead processes left. The error says what is missing, or failed; then
    /// nothing is left of it.
    pub fn start(setup: &Setup) -> Result<Baseline, NotRun> {
        check(setup.file_system)?;
        let (_, left) = undo_left();
        if let Some(sentence) = left.first() {
            return Err(NotRun(format!("an earlier baseline cannot be cleaned up: {sentence}")));
        }
        let config = setup.config()?;
        let work = tempfile::Builder::new().prefix("imbrex-baseline-").tempdir_in(&setup.work);
        let work = work.map_err(|error| NotRun(format!("{} cannot be used ({error})", setup.work.display())))?;
        // From here on dropping undoes.
        let mut baseline = Baseline {
            record: Record::new(work.path()),
            image: work.path().join(IMAGE),
            server: None,
            device: PathBuf::new(),
            file_system: setup.file_system,
            mount_options: setup.mount_options.clone(),
            directory: setup.directory,
            group: Err("not limited".into()),
            over: false,
        };
        baseline.record.save()?;
        let _ = work.keep();
        baseline.set_up(setup, &config)?;
        Ok(baseline)
    }

    fn set_up(&mut self, setup: &Setup, config: &Config) -> Result<(), String> {
        for dir in [SERVED, MOUNTED] {
            let dir = self.record.work.join(dir);
            fs::create_dir(&dir).map_err(|error| format!("{} cannot be made ({error})", dir.display()))?;
        }
        drop(Emulator::create(&self.image, config, false).map_err(|error| error.to_string())?);
        if let Some(entries) = setup.recorded {
            start_image_trace(&self.image, entries).map_err(|error| error.to_string())?;
        }
        if let Some(extents) = setup.preconditioned {
            let extents = extents.to_string();
            run(Command::new(&setup.imbrex).args(["drive", "precondition", "--extents", &extents]).arg(&self.image))
                .map_err(|why| format!("the drive cannot be preconditioned ({why})"))?;
        }
        let said = self.serve(setup)?;
        let before = readahead();
        self.device = if setup.file_system.is_zoned() {
            said.get("device").and_then(serde_json::Value::as_str).ok_or("the server named no device")?.into()
        } else {
            self.attached(setup)?.into()
        };
        self.tune(setup, u64::from(config.max_io), &before)?;
        if let Some((mkfs, _)) = setup.file_system.mkfs() {
            // It has the device open, so it must not outlive this process: nobody could take the device away.
            run(Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "--", mkfs])
                .args(setup.mkfs_arguments())
                .arg(&self.device)
                .envs(setup.mkfs_environment().iter().copied()))
            .map_err(|why| format!("{mkfs} failed: {why}"))?;
        }
        self.mount()?;
        if setup.directory == Directory::Own {
            fs::create_dir(self.dir()).map_err(|error| format!("{} cannot be made ({error})", self.dir().display()))?;
        }
        if let Ok(path) = Group::path_of(&self.record.name()) {
            self.record.group = Some(path);
            self.record.save()?;
        }
        self.group = Group::new(&self.record.name(), setup.cache_bytes);
        self.begin()
    }

    /// The loop device on the served file.
    fn attached(&self, setup: &Setup) -> Result<String, String> {
        let mut args: Vec<String> =
            ["--find", "--show", "--direct-io=on", "--sector-size", "4096"].map(String::from).into();
        if let Some((at, length)) = setup.part {
            args.extend(["--offset".into(), at.to_string(), "--sizelimit".into(), length.to_string()]);
        }
        run(Command::new("losetup").args(args).arg(self.record.served().join(FILE)))
            .map_err(|why| format!("no loop device can be attached ({why})"))
    }

    /// Starts the server; returns what it says when it serves.
    fn serve(&mut self, setup: &Setup) -> Result<serde_json::Value, String> {
        let program = setup.imbrex.display();
        let log = self.record.work.join("server.log");
        let failed = |error: std::io::Error| format!("{program} cannot be run ({error})");
        // In a process group of its own: the terminal's Ctrl-C is for the runner, who takes things down in order.
        let mut command;
        let where_to = if setup.file_system.is_zoned() {
            // It takes its device away when this process is gone; what the other kind serves is found by its record.
            command = Command::new("setpriv");
            command.args(["--pdeathsig", "TERM", "--"]).arg(&setup.imbrex);
            vec!["--zoned".into()]
        } else {
            command = Command::new(&setup.imbrex);
            vec!["--at".into(), self.record.served()]
        };
        let mut server = command
            .args(["drive", "serve", "--json", "--time", "pace", "--speed", &setup.speed.to_string()])
            .args(where_to)
            .arg(&self.image)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).map_err(failed)?)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let out = server.stdout.take();
        self.server = Some(server);
        let mut said = String::new();
        for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
            said.push_str(&line);
            if let Ok(said) = serde_json::from_str(&said) {
                return Ok(said);
            }
        }
        let why = fs::read_to_string(&log).unwrap_or_default();
        Err(format!("{program} drive serve failed: {}", why.trim()))
    }

    /// The settings of the block device, as a disk has them, with what the host limits divided by the scale.
    fn tune(&mut self, setup: &Setup, max_io: u64, before: &[(PathBuf, String)]) -> Result<(), String> {
        let name = self.device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap_or_default();
        let (queue, bdi) = (format!("/sys/block/{name}/queue"), format!("/sys/class/bdi/{}", number.trim()));
        let shrinks = if setup.mechanics == Mechanics::Scaled { u64::from(setup.scale.max(1)) } else { 1 };
        let mut wanted = vec![
            (format!("{queue}/scheduler"), "mq-deadline".to_owned(), None),
            (format!("{queue}/nr_requests"), "256".into(), None),
            (format!("{queue}/max_sectors_kb"), (max_io >> 10).max(4).to_string(), None),
            (format!("{queue}/read_ahead_kb"), (128 / shrinks).max(4).to_string(), None),
            (format!("{bdi}/strict_limit"), "1".into(), None),
            // What is written is bytes; what is put back is the share of the kernel's own limit.
            (format!("{bdi}/max_bytes"), setup.dirty_bytes.to_string(), Some(format!("{bdi}/max_ratio"))),
        ];
        if setup.rotational {
            wanted.push((format!("{queue}/rotational"), "1".into(), None));
        }
        for (path, _, back) in &wanted {
            let path = back.as_ref().unwrap_or(path);
            let now = fs::read_to_string(path).map_err(|error| format!("{path} cannot be read ({error})"))?;
            // To attach it has changed some already.
            let now = before.iter().find(|(of, _)| of == Path::new(path)).map_or(now, |(_, was)| was.clone());
            self.record.settings.push((path.into(), chosen(&now).to_owned()));
        }
        // The other kind of device goes away with its settings.
        if !setup.file_system.is_zoned() {
            self.record.loop_device = Some(name);
            self.record.save()?;
        }
        for (path, value, _) in &wanted {
            fs::write(path, value).map_err(|error| format!("{path} cannot be set to {value} ({error})"))?;
        }
        Ok(())
    }

    fn mounted(&self) -> PathBuf {
        self.record.work.join(MOUNTED)
    }

    /// Mounts it again after [`Baseline::crash`]; nothing where there is no file system.
    pub fn mount(&self) -> Result<(), String> {
        if self.file_system == FileSystem::Raw {
            return Ok(());
        }
        let kind = self.file_system.name();
        let options = if self.mount_options.is_empty() { "defaults" } else { &self.mount_options };
        run(Command::new("mount").args(["-t", kind, "-o", options]).arg(&self.device).arg(self.mounted()))
            .map(drop)
            .map_err(|why| format!("{kind} cannot be mounted ({why})"))
    }

    /// The directory for the database.
    pub fn dir(&self) -> PathBuf {
        match self.directory {
            Directory::Root => self.mounted(),
            Directory::Own => self.mounted().join("db"),
        }
    }

    /// The block device under the file system.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The drive's image; [`Observer`] tells what is on it.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// A program to run with the page cache limited; give it arguments and run it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match &self.group {
            Ok(group) => {
                // Into the group first, so that it has all of what the program does.
                let mut command = Command::new("sh");
                command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(group.procs()).arg(program);
                command
            }
            Err(_) => Command::new(program),
        }
    }

    /// What reached the drive since [`Baseline::begin`].
    pub fn drive_stats(&self) -> Result<Stats, String> {
        Observer::open(&self.image).map(|seen| seen.stats()).map_err(|error| error.to_string())
    }

    /// What became of the drive's time since then.
    pub fn drive_time(&self) -> Result<Option<TimeStats>, String> {
        Observer::open(&self.image).and_then(|seen| seen.time()).map_err(|error| error.to_string())
    }

    /// The page cache of the programs so far, or why it is not limited.
    pub fn page_cache(&self) -> Result<PageCache, String> {
        self.group.as_ref().map(Group::page_cache).map_err(Clone::clone)
    }

    /// Processor seconds of the server so far.
    pub fn server_cpu(&self) -> f64 {
        self.server.as_ref().and_then(|server| cpu_seconds(server.id())).unwrap_or(0.0)
    }

    /// Writes out what the page cache holds, and flushes the drive.
    pub fn settle(&self) -> Result<(), String> {
        let mut sync = Command::new("sync");
        match self.file_system {
            FileSystem::Raw => sync.arg(&self.device),
            _ => sync.arg("-f").arg(self.mounted()),
        };
        run(&mut sync).map(drop).map_err(|why| format!("sync failed: {why}"))
    }

    /// From here on is counted: settles, and sets the drive's counters to 0.
    pub fn begin(&self) -> Result<(), String> {
        self.settle()?;
        Observer::reset_stats(&self.image).map_err(|error| error.to_string())
    }

    /// Unmounts and mounts again: nothing is in the page cache then.
    pub fn remount(&self) -> Result<(), String> {
        if self.file_system != FileSystem::Raw {
            run(Command::new("umount").arg(self.mounted()))?;
        }
        self.mount()
    }

    /// The file system stops at once, as where power fails: what its journal has not is lost. It is unmounted then, and from here on is counted.
    pub fn crash(&self) -> Result<(), String> {
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(self.mounted()))
            .map_err(|why| format!("needs xfs_io, of the package xfsprogs, to stop a file system ({why})"))?;
        run(Command::new("umount").arg(self.mounted()))?;
        Observer::reset_stats(&self.image).map_err(|error| error.to_string())
    }

    /// Takes all of it down. The error names what is left; the next start, or `imbrex drive detach`, tries again.
    pub fn finish(mut self) -> Result<Report, String> {
        self.settle()?;
        let page_cache = self.page_cache();
        let (stats, time) = (self.drive_stats()?, self.drive_time()?);
        let server_cpu = self.server_cpu();
        self.take_down()?;
        Ok(Report { stats, time, page_cache, server_cpu })
    }

    fn take_down(&mut self) -> Result<(), String> {
        self.over = true;
        if let Ok(group) = &self.group {
            group.stop();
        }
        if self.file_system.is_zoned() {
            // Nothing that is mounted ends this server.
            let pid = self.server.as_ref().and_then(|server| Pid::from_raw(i32::try_from(server.id()).ok()?));
            if let (Ok(()), Some(pid)) = (self.record.unmount(), pid) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        // The files go last: until its mount is gone, the server uses them.
        let undone = self.record.undo();
        if let Some(mut server) = self.server.take() {
            let end = Instant::now() + Duration::from_secs(10);
            while matches!(server.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            // It did not end by itself, so nothing of it was mounted any more or it cannot be.
            let _ = server.kill();
            let _ = server.wait();
        }
        undone?;
        match attached::find_in(&self.record.served()) {
            Some(left) => Err(format!("{} is still mounted; run `imbrex drive detach {0}`", left.dir.display())),
            None => Ok(()),
        }
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        if !self.over
            && let Err(sentence) = self.take_down()
        {
            eprintln!("imbrex: a baseline was not undone: {sentence}; run `imbrex drive detach --all`");
        }
    }
}

/// What loop devices read ahead: the kernel sets that anew when one is attached.
fn readahead() -> Vec<(PathBuf, String)> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = devices.filter(|device| device.file_name().to_string_lossy().starts_with("loop"));
    let files = loops.map(|device| device.path().join("queue/read_ahead_kb"));
    files.filter_map(|path| fs::read_to_string(&path).ok().map(|text| (path, text))).collect()
}

/// The value of a setting; of several, the one in brackets.
fn chosen(text: &str) -> &str {
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((chosen, _)) => chosen,
        None => text.trim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_setup_asks_for_is_a_conventional_drive_of_that_scale() {
        let setup = Setup::new("imbrex", "hitachi-hua72303").scaled(64, Mechanics::Scaled);
        assert_eq!((setup.cache_bytes, setup.dirty_bytes), (32 << 20, (2 << 30) / 5 / 64));
        let config = setup.config().unwrap();
        assert_eq!((config.max_io, config.zone_size, config.conventional), (20 << 10, 4 << 20, config.zones()));
        let ext4 = Setup { file_system: FileSystem::Ext4, ..setup };
        assert!(ext4.mkfs_arguments().ends_with(&["-J".into(), "size=16".into()]), "{:?}", ext4.mkfs_arguments());
        let zoned = Setup::new("imbrex", "hgst-hsh721414al").config().unwrap_err();
        assert!(zoned.0.contains("no conventional drive"), "{zoned}");
        let zoned_xfs = Setup { file_system: FileSystem::ZonedXfs, ..Setup::new("imbrex", "hgst-hsh721414al") };
        assert_eq!(zoned_xfs.config().unwrap().conventional, 524);
        let conventional = Setup { profile: "hitachi-hua72303".into(), ..zoned_xfs }.config().unwrap_err();
        assert!(conventional.0.contains("no zoned drive"), "{conventional}");
        let unknown = Setup::new("imbrex", "floppy").config().unwrap_err();
        assert!(unknown.0.contains("floppy") && unknown.0.contains("imbrex drive profiles"), "{unknown}");
        assert_eq!(["[none] mq-deadline", "none [mq-deadline]\n", "128\n"].map(chosen), ["none", "mq-deadline", "128"]);
    }
}
