//! `imbrex drive serve` and `imbrex drive detach`: a drive under the kernel's file systems. A zoned one is a block device of its own
//! ([`zoned`]); a conventional one, here, a file.
//!
//! The drive is served as one file by FUSE, and a loop device on that file is a disk like any other. It ends with Ctrl-C or
//! SIGTERM, which take everything that hangs on it away first, or when somebody else unmounts it. What somebody does not let go of is
//! cut off after a while, as a disk that is pulled out: a signal ends the server in any case. Killed, it leaves a dead mount and a
//! dead loop device behind; `detach` takes those away.

mod file;
mod zoned;

use super::image_path;
use crate::mountpoint;
use crate::output::{Failure, Outcome, number_of, print, print_json, size};
use file::Served;
use fuser::{BackgroundSession, Config, MountOption};
use imbrex_bench::baseline::attached::{self, Attached, FILE, SOURCE, Stuck};
use imbrex_bench::baseline::{owner, undo_left};
use imbrex_bench::experiment::{WORK, remove_left};
use imbrex_device::words::not_permitted;
use imbrex_device::{Cause, Tag, ZonedDevice};
use imbrex_drives::{Locator, Time};
use imbrex_emulator::time::Pace;
use imbrex_emulator::{Emulator, OpenOptions};
use serde_json::{Value, json};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Commands at once where the drive's model does not say.
const DEPTH: u16 = 32;
/// Threads beside those for commands of the drive: looks at the file, syncs.
const MORE_THREADS: usize = 4;

#[derive(clap::Args)]
pub(super) struct Serve {
    /// The drive's image: with --at of a drive without sequential zones, with --zoned of one that has them.
    path: String,
    /// The directory, empty, in which its file appears.
    #[arg(long, value_name = "DIR", required_unless_present = "zoned")]
    at: Option<PathBuf>,
    /// Serve a zoned drive as a zoned block device, /dev/ublkb0 or the next that is free. Needs root, and Linux 6.6 or newer with the
    /// module ublk_drv.
    #[arg(long, conflicts_with = "at")]
    zoned: bool,
    /// Whether commands take the time that they would take on the drive: pace, callers wait; account, it is only added up;
    /// off.
    #[arg(long, value_name = "pace|account|off")]
    time: Option<String>,
    /// Drive seconds in a second, with --time pace.
    #[arg(long, value_name = "N")]
    speed: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct Detach {
    /// The directory in which a drive is served, or was; or the device, as /dev/ublkb0.
    #[arg(group = "what", value_name = "DIR|DEVICE")]
    dir: Option<PathBuf>,
    /// All of this machine whose server is gone, and what experiments that were killed left in /dev/shm.
    #[arg(long, group = "what")]
    all: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The image, and how it keeps time: as its name says (`drive.img?time=pace&speed=2`) or the options, which mean the same.
/// A drive is served to see how long things take, so without either it keeps its own.
fn understand(args: &Serve) -> Result<(PathBuf, Time), Failure> {
    let named = args.path.rsplit_once('?').is_some_and(|(_, options)| options.contains("time="));
    let asked: Vec<String> = [("time", &args.time), ("speed", &args.speed)]
        .into_iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={value}")))
        .collect();
    if named && !asked.is_empty() {
        return Err(Failure::usage(format!(
            "{}: this says already how it keeps time; leave out --time and --speed",
            args.path
        )));
    }
    let locator = match (named, args.time.is_some()) {
        (true, _) => args.path.clone(),
        (false, true) => format!("{}?{}", args.path, asked.join("&")),
        (false, false) => format!("{}?{}", args.path, [&["time=pace".to_owned()], &*asked].concat().join("&")),
    };
    // First what is wrong with the drive itself, in the words of all commands.
    let path = image_path(&args.path)?;
    match Locator::parse(&locator) {
        Ok(Locator::Image(_, time)) => Ok((path, time)),
        Ok(_) => Err(Failure::usage(format!("{locator}: only drive images can be served"))),
        Err(error) => Err(Failure::usage(error.to_string())),
    }
}

/// Opens the drive and starts its clock; returns it and the depth of its queue.
fn open(path: &Path, time: Time, zoned: bool) -> Result<(Emulator, u16), Failure> {
    let name = path.display();
    let drive = Emulator::open(path, OpenOptions::default())?;
    let config = drive.config();
    let has_sequential = config.conventional < config.zones();
    if has_sequential && !zoned {
        return Err(Failure::failed(format!(
            "{name}: {} of its {} zones are sequential, and file systems for conventional drives cannot write those; serve it with \
             --zoned, or an image of a CMR or DM-SMR model (`imbrex drive profiles`)",
            config.zones() - config.conventional,
            config.zones()
        )));
    }
    if zoned && !has_sequential {
        return Err(Failure::failed(format!(
            "{name}: none of its {} zones is sequential, so it is no zoned drive; serve it with --at DIRECTORY",
            config.zones()
        )));
    }
    let depth = config.model.map_or(DEPTH, |model| model.params.queue_depth.clamp(1.0, 1024.0) as u16);
    if let Some(pace) = time {
        drive.keep_own_time(pace)?;
        drive.serve_strangers();
    }
    Ok((drive, depth))
}

fn refused(args: &Serve, at: &Path, error: &std::io::Error) -> Failure {
    let next = match error.kind() {
        ErrorKind::NotFound => "load the kernel's fuse module (modprobe fuse), or as a user install fuse3",
        ErrorKind::PermissionDenied => not_permitted("run it as root, or install fuse3 so that users may mount"),
        _ => "see that /dev/fuse is there, and as a user install fuse3",
    };
    Failure::failed(format!("{} cannot be served at {} ({error}); {next}", args.path, at.display()))
}

pub(super) fn serve(args: Serve) -> Outcome {
    let Some(at) = &args.at else { return zoned::serve(&args) };
    let claim = mountpoint::claim(at)?;
    let (path, time) = understand(&args)?;
    let (drive, depth) = open(&path, time, false)?;
    let image = fs::canonicalize(&path).unwrap_or(path);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RW,
        MountOption::FSName(format!("{SOURCE}{}", image.display())),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    config.n_threads = Some(usize::from(depth) + MORE_THREADS);
    let stop = on_signals()?;
    act_as_a_device();
    let served = Served::new(Arc::new(drive.clone()), depth);
    let session = fuser::spawn_mount(served, &claim.dir, &config).map_err(|error| refused(&args, at, &error))?;
    let dir = &claim.dir;
    let said = say(&args, time, dir, &drive, depth);
    let ended = if said.is_ok() { until_stopped(session, dir, &stop) } else { end(session, dir) };
    drive.flush(Tag::new(Cause::Other))?;
    said.and(ended)
}

/// What a signal that ends the server sets.
fn on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|e| Failure::failed(format!("signals cannot be caught ({e}); nothing is served")))?;
    }
    Ok(stop)
}

/// What a drive does not care for must not matter to this process either. Only root may say all of that; without it, it is served
/// as well as it goes.
fn act_as_a_device() {
    // The kernel waits for this process where it is short of memory; it must not wait for the kernel then.
    let flusher = rustix::process::configure_io_flusher_behavior(true);
    // A drive is not late because the host's processors are busy. Threads have what their maker has.
    let first = rustix::process::setpriority_process(None, -20);
    // Nor is it late by the 50 us by which the kernel likes to gather timers.
    let punctual = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    for (what, done) in [("memory", flusher), ("priority", first), ("timers", punctual)] {
        if let Err(error) = done {
            tracing::debug!(%error, "{what}: not treated as a device");
        }
    }
}

/// How it keeps time: the option's word, drive seconds in a second, and in words.
fn clock(time: Time) -> (&'static str, Option<f64>, String) {
    match time {
        None => ("off", None, "its clock is off".into()),
        Some(Pace::Account) => ("account", None, "its time is added up".into()),
        Some(Pace::Real { speed: 1.0 }) => ("pace", Some(1.0), "at its own speed".into()),
        Some(Pace::Real { speed }) => ("pace", Some(speed), format!("{speed} times as fast as it is")),
    }
}

fn say(args: &Serve, time: Time, dir: &Path, drive: &Emulator, depth: u16) -> Outcome {
    let (bytes, file) = (drive.geometry().size(), dir.join(FILE));
    let (name, speed, clock) = clock(time);
    if args.json {
        return print_json(&json!({
            "drive": args.path, "file": file, "bytes": bytes, "block": drive.geometry().block, "commands_at_once": depth,
            "time": name, "speed": speed, "pid": std::process::id(),
        }));
    }
    print(format_args!(
        "{}: {} at {}, {} at once, {clock}; Ctrl-C ends it",
        args.path,
        size(bytes),
        file.display(),
        number_of(depth.into(), "command")
    ))
}

/// Serves until somebody unmounts it or wants it to stop.
fn until_stopped(session: BackgroundSession, dir: &Path, stop: &AtomicBool) -> Outcome {
    while !session.guard.is_finished() {
        if stop.load(Ordering::Relaxed) {
            return end(session, dir);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    joined(session, dir)
}

/// Ends the serving, whoever uses what hangs on it.
fn end(session: BackgroundSession, dir: &Path) -> Outcome {
    match (detach_here(dir), attached::find_in(dir)) {
        (Err(stuck), Some(attached)) => {
            for why in attached.cut_off() {
                tracing::debug!(%why, "cutting off");
            }
            let next = "it was cut off: what was written by then is on the drive, and what comes later fails".into();
            // The session cannot be joined: its last requests end with this process.
            Err(Stuck { next, ..stuck }.into())
        }
        _ => joined(session, dir),
    }
}

fn detach_here(dir: &Path) -> Result<(), Stuck> {
    attached::find_in(dir).map_or(Ok(()), |attached| attached.detach())
}

impl From<Stuck> for Failure {
    fn from(stuck: Stuck) -> Failure {
        if stuck.in_use { Failure::busy(stuck.to_string()) } else { Failure::failed(stuck.to_string()) }
    }
}

fn joined(session: BackgroundSession, dir: &Path) -> Outcome {
    session.join().map_err(|error| Failure::failed(format!("serving at {} ended ({error})", dir.display())))
}

/// A drive that is served, or was, and what hangs on it.
trait Hanging {
    /// Where it is served.
    fn place(&self) -> &Path;
    fn is_served(&self) -> bool;
    /// Takes it away, with all that hangs on it.
    fn detach(&self) -> Result<(), Failure>;
    fn facts(&self) -> Value;
    /// What was taken away.
    fn words(&self) -> String;
}

fn unmounted(mounts: &[PathBuf]) -> String {
    let mounts: Vec<String> = mounts.iter().map(|point| point.display().to_string()).collect();
    if mounts.is_empty() { String::new() } else { format!(" (unmounted {})", mounts.join(", ")) }
}

impl Hanging for Attached {
    fn place(&self) -> &Path {
        &self.dir
    }

    fn is_served(&self) -> bool {
        Attached::is_served(self)
    }

    fn detach(&self) -> Result<(), Failure> {
        Ok(Attached::detach(self)?)
    }

    fn facts(&self) -> Value {
        let of = |device: &attached::Loop| json!({ "device": device.device, "mounts": device.mounts });
        let loops: Vec<Value> = self.loops.iter().map(of).collect();
        json!({ "dir": self.dir, "image": self.image, "loops": loops })
    }

    fn words(&self) -> String {
        let mut text = format!("{}: detached from {}", self.dir.display(), self.image);
        for device in &self.loops {
            text.push_str(&format!(", with {}{}", device.device.display(), unmounted(&device.mounts)));
        }
        text
    }
}

pub(super) fn detach(args: Detach) -> Outcome {
    // Experiments leave more than drives: what killed ones left goes in any case.
    let (mut undone, failed) = undo_left();
    let mut failed: Vec<Failure> = failed.into_iter().map(Failure::failed).collect();
    let (wanted, left): (Vec<Box<dyn Hanging>>, Vec<_>) = match &args.dir {
        Some(place) => match named(place, &undone) {
            Ok(found) => (Vec::from_iter(found), Vec::new()),
            // What could not be undone is the reason, and what could be is said nevertheless.
            Err(why) => {
                failed.extend(failed.is_empty().then_some(why));
                Default::default()
            }
        },
        None => {
            let files = attached::find().into_iter().map(|attached| Box::new(attached) as Box<dyn Hanging>);
            let devices = zoned::find().into_iter().map(|device| Box::new(device) as Box<dyn Hanging>);
            files.chain(devices).partition(|hanging| !hanging.is_served())
        }
    };
    if args.all {
        undone.extend(remove_left(Path::new(WORK)));
    }
    let mut done = Vec::new();
    for hanging in &wanted {
        // One that fails does not keep the others.
        match hanging.detach() {
            Ok(()) => done.push(hanging),
            Err(why) => failed.push(why),
        }
    }
    if args.json {
        print_json(&json!({
            "detached": done.iter().map(|hanging| hanging.facts()).collect::<Vec<_>>(),
            "experiments_undone": undone,
            "still_served": left.iter().map(|hanging| hanging.facts()).collect::<Vec<_>>(),
        }))?;
    } else {
        for work in &undone {
            print(format_args!("{}: what a dead experiment left is undone", work.display()))?;
        }
        for hanging in &done {
            print(hanging.words())?;
        }
        for hanging in &left {
            print(format_args!("{}: still served; name it to end that", hanging.place().display()))?;
        }
        if undone.is_empty() && wanted.is_empty() && left.is_empty() && failed.is_empty() {
            print("nothing is left of served drives")?;
        }
    }
    failed.into_iter().reduce(Failure::and).map_or(Ok(()), Err)
}

/// What is served at a directory or device; `None` where it was a dead experiment's and is undone already.
fn named(place: &Path, undone: &[PathBuf]) -> Result<Option<Box<dyn Hanging>>, Failure> {
    if let Some(id) = zoned::number(place) {
        return Ok(Some(Box::new(zoned::found(place, id)?)));
    }
    Ok(served_in(place, undone)?.map(|attached| Box::new(attached) as Box<dyn Hanging>))
}

/// The drive served in `dir`; `None` where it was a dead experiment's and is undone already.
fn served_in(dir: &Path, undone: &[PathBuf]) -> Result<Option<Attached>, Failure> {
    if undone.iter().any(|work| dir.starts_with(work)) {
        return Ok(None);
    }
    let name = dir.display();
    let Some(found) = attached::find_in(dir) else {
        return Err(Failure::failed(format!(
            "{name}: no drive is served there; `imbrex drive detach --all` takes away what dead servers left"
        )));
    };
    match owner(&found.dir) {
        Some(pid) => Err(Failure::busy(format!(
            "{name}: this belongs to the experiment of process {pid}; end that, and it takes all of it away"
        ))),
        None => Ok(Some(found)),
    }
}
