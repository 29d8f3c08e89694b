//! `imbrex drive serve --zoned`: a zoned drive as a zoned block device of the kernel (`crates/ublk`).
//!
//! The device is there until a signal or `imbrex drive detach` ends it, or the server dies. A server that was killed leaves nothing but a
//! dead entry of the driver, and mounts whose disk is gone; `detach` takes those away. What the drive had acknowledged is in its image.

use super::{Hanging, Serve, act_as_a_device, clock, on_signals, open, understand, unmounted};
use crate::output::{Failure, Outcome, number_of, print, print_json, size};
use imbrex_bench::baseline::attached::{self, Stuck};
use imbrex_device::{Cause, Tag, ZonedDevice, openers};
use imbrex_drives::Time;
use imbrex_emulator::Emulator;
use imbrex_ublk::{Control, Device, Served, Server, Trouble, Unfit, existing};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a server may take to end, and the kernel to take a device away.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

fn cannot(path: &str, trouble: &Trouble) -> Failure {
    Failure::failed(format!("{path} cannot be served as a zoned block device: {trouble}"))
}

/// Why Linux cannot have this drive, and what to do.
fn unfit(path: &str, drive: &Emulator, unfit: Unfit) -> Failure {
    let config = drive.config();
    Failure::failed(match unfit {
        Unfit::NotZoned => format!("{path}: none of its zones is sequential; serve it with --at DIRECTORY"),
        Unfit::ZoneSize => format!(
            "{path}: its zones have {} bytes, and Linux knows only zones whose size is a power of two; make a drive with such a \
             --zone-size, or use this one through `imbrex fs`",
            config.zone_size
        ),
        Unfit::ManyZones(most) => format!(
            "{path}: it has {} zones, and Linux can report {most} of them; make a drive with a larger --zone-size, or a smaller --capacity",
            config.zones()
        ),
        Unfit::SmallCommands => format!(
            "{path}: its largest command has {} bytes, and Linux needs {} at least; make a drive with a larger --max-io, or a smaller \
             --scale",
            config.max_io,
            rustix::param::page_size()
        ),
    })
}

pub(super) fn serve(args: &Serve) -> Outcome {
    let (path, time) = understand(args)?;
    let (drive, depth) = open(&path, time, true)?;
    let conventional = drive.config().conventional;
    let served = Served::new(Arc::new(drive.clone()), conventional).map_err(|why| unfit(&args.path, &drive, why))?;
    let mut control = Control::open().map_err(|trouble| cannot(&args.path, &trouble))?;
    let stop = on_signals()?;
    act_as_a_device();
    let server = Server::start(&mut control, served, depth).map_err(|trouble| cannot(&args.path, &trouble))?;
    let said = say(args, time, &server.path(), &drive, depth);
    while said.is_ok() && !stop.load(Ordering::Relaxed) && !server.is_over() {
        std::thread::sleep(PAUSE);
    }
    let ended = end(server, &mut control, &args.path);
    drive.flush(Tag::new(Cause::Other))?;
    said.and(ended)
}

fn say(args: &Serve, time: Time, device: &Path, drive: &Emulator, depth: u16) -> Outcome {
    let geometry = drive.geometry();
    let (name, speed, clock) = clock(time);
    if args.json {
        return print_json(&json!({
            "drive": args.path, "device": device, "bytes": geometry.size(), "block": geometry.block, "zones": geometry.zones,
            "zone_size": geometry.zone_size, "conventional": drive.config().conventional, "commands_at_once": depth, "time": name,
            "speed": speed, "pid": std::process::id(),
        }));
    }
    print(format_args!(
        "{}: {} in {} at {}, {} at once, {clock}; Ctrl-C ends it",
        args.path,
        size(geometry.size()),
        number_of(geometry.zones.into(), "zone"),
        device.display(),
        number_of(depth.into(), "command")
    ))
}

/// Ends the serving, whoever uses the device.
fn end(server: Server, control: &mut Control, path: &str) -> Outcome {
    let device = server.path();
    let stuck = if server.is_over() { None } else { attached::free(&device).err() };
    if stuck.is_some() {
        for why in attached::pull(&device) {
            tracing::debug!(%why, "cutting off");
        }
    }
    let ended = server.end(control, stuck.is_some());
    match stuck {
        Some(stuck) => {
            let next = "it was cut off: what was written by then is on the drive, and what comes later fails".into();
            Err(Stuck { next, ..stuck }.into())
        }
        None => ended.map(drop).map_err(|trouble| Failure::failed(format!("{path}: {trouble}"))),
    }
}

/// A device of ours, and where its file systems are mounted.
pub(super) struct Found {
    device: Device,
    path: PathBuf,
    mounts: Vec<PathBuf>,
}

/// The N of `/dev/ublkbN`.
pub(super) fn number(path: &Path) -> Option<u32> {
    path.to_str()?.strip_prefix("/dev/ublkb")?.parse().ok()
}

impl From<Device> for Found {
    fn from(device: Device) -> Found {
        let path = device.path();
        Found { mounts: attached::mounted_from(&path), device, path }
    }
}

/// All devices that Imbrex made. None where this user may not ask, who made none then.
pub(super) fn find() -> Vec<Found> {
    let all = existing();
    if all.is_empty() {
        return Vec::new();
    }
    match Control::open() {
        Ok(mut control) => {
            let found = all.into_iter().filter_map(|id| control.look(id).ok()?);
            found.filter(|device| device.ours).map(Found::from).collect()
        }
        Err(trouble) => {
            tracing::debug!(%trouble, "devices of ublk are not looked at");
            Vec::new()
        }
    }
}

/// The device of this name.
pub(super) fn found(path: &Path, id: u32) -> Result<Found, Failure> {
    let shown = path.display();
    let none = || {
        Failure::failed(format!(
            "{shown}: no drive is served there; `imbrex drive detach --all` takes away what dead servers left"
        ))
    };
    if !existing().contains(&id) {
        return Err(none());
    }
    let looked = Control::open().and_then(|mut control| control.look(id));
    match looked.map_err(|trouble| Failure::failed(format!("{shown}: {trouble}")))? {
        Some(device) if device.ours => Ok(device.into()),
        Some(_) => Err(Failure::failed(format!("{shown}: another program made this device; end it there"))),
        None => Err(none()),
    }
}

impl Found {
    fn take_away(&self) -> Result<bool, Trouble> {
        let (mut control, id) = (Control::open()?, self.device.id);
        let end = Instant::now() + PATIENCE;
        if self.device.live {
            control.stop(id)?;
            // Its server takes the rest away.
            while existing().contains(&id) && Instant::now() < end && self.has_server() {
                std::thread::sleep(PAUSE);
            }
        }
        if !existing().contains(&id) {
            return Ok(true);
        }
        control.remove(id, false)
    }

    fn has_server(&self) -> bool {
        !openers(&self.device.server_path()).is_empty()
    }
}

impl Hanging for Found {
    fn place(&self) -> &Path {
        &self.path
    }

    fn is_served(&self) -> bool {
        self.device.live || self.has_server()
    }

    fn detach(&self) -> Result<(), Failure> {
        attached::free(&self.path)?;
        let shown = self.path.display();
        match self.take_away() {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::busy(format!(
                "{shown} is gone, but somebody still has it open; close that, then run this again"
            ))),
            Err(trouble) => Err(Failure::failed(format!("{shown}: {trouble}"))),
        }
    }

    fn facts(&self) -> Value {
        json!({ "device": self.path, "mounts": self.mounts })
    }

    fn words(&self) -> String {
        format!("{}: taken away{}", self.path.display(), unmounted(&self.mounts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_their_names() {
        assert_eq!((number(Path::new("/dev/ublkb0")), number(Path::new("/dev/ublkb31"))), (Some(0), Some(31)));
        for other in ["/dev/ublkc0", "/dev/ublkb", "/dev/ublkbx", "/mnt/ublkb0", "ublkb0", "/dev/ublkb-1"] {
            assert_eq!(number(Path::new(other)), None);
        }
    }
}
