//! What hangs on served drives (`imbrex drive serve`): loop devices on the served file, file systems mounted from those; and how
//! to take it all away again, in the order that loses nothing.
//!
//! Only what is provably a served drive's is touched: a FUSE mount whose source begins with [`SOURCE`], loop devices whose file is
//! [`FILE`] in it, mounts of those devices. All of it is read from the kernel (`/proc/self/mountinfo`, `/sys/block`) at the
//! moment it is asked for, so that it is right whoever attached it, and after whatever died.

use imbrex_device::words::not_permitted;
use imbrex_device::{holders_in_words, openers};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the source of a served drive's mount begins with; the image's path follows.
pub const SOURCE: &str = "imbrex-drive:";
/// The name of the one file in the directory of a served drive.
pub const FILE: &str = "drive";

/// How long something that is in use is given to become free: who looked at a new device is gone in a moment.
const PATIENCE: Duration = Duration::from_secs(5);
/// For users.
const AS_ROOT: &str = "run this as root";
const PAUSE: Duration = Duration::from_millis(20);

/// A served drive and what hangs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The directory it is served in.
    pub dir: PathBuf,
    /// The image, as the server named it.
    pub image: String,
    /// Loop devices on it.
    pub loops: Vec<Loop>,
}

/// A loop device on a served drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// As `/dev/loop3`.
    pub device: PathBuf,
    /// Where its file systems, and those of its partitions, are mounted, in the order of mounting.
    pub mounts: Vec<PathBuf>,
}

/// Why something that hangs on a served drive could not be taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Somebody uses it: later it may go.
    pub in_use: bool,
    /// What is in the way.
    pub what: String,
    /// What to do about it.
    pub next: String,
}

impl Stuck {
    fn in_use(what: String, next: &str) -> Stuck {
        Stuck { in_use: true, what, next: format!("{next}, then run this again") }
    }
    fn failed(what: String, next: &str) -> Stuck {
        Stuck { in_use: false, what, next: next.into() }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.next)
    }
}

struct Mount {
    /// As `7:3`.
    device: String,
    point: PathBuf,
    kind: String,
    source: String,
}

/// Undoes what the kernel does to blanks in the words of its tables.
fn unescape(word: &str) -> OsString {
    let bytes = word.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        let code =
            bytes.get(i + 1..i + 4).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                i += 4;
            }
            None => {
                out.push(byte);
                i += 1;
            }
        }
    }
    OsString::from_vec(out)
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ');
    let device = front.nth(2)?.to_owned();
    let point = unescape(front.nth(1)?).into();
    let mut back = back.split(' ');
    let kind = back.next()?.to_owned();
    let source = unescape(back.next()?).to_string_lossy().into_owned();
    Some(Mount { device, point, kind, source })
}

fn mounts() -> Vec<Mount> {
    fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines().filter_map(parse_mount).collect()
}

/// Every directory of this mount namespace that something is mounted at.
pub fn mount_points() -> io::Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(table.lines().filter_map(parse_mount).map(|mount| mount.point).collect())
}

/// The file under a loop device, by the device's name; `None` where it is free or gone.
pub(super) fn backing(name: &str) -> Option<PathBuf> {
    let file = fs::read(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    let end = file.iter().rposition(|byte| *byte != b'\n')? + 1;
    Some(OsString::from_vec(file.get(..end)?.to_vec()).into())
}

/// The partitions of a block device, by its name: the name of each, and its number.
fn partitions(name: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(format!("/sys/block/{name}")).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let number = fs::read_to_string(entry.path().join("partition")).ok()?;
        Some((entry.file_name().into_string().ok()?, number.trim().to_owned()))
    };
    entries.filter_map(of).collect()
}

fn loops_on(file: &Path, mounts: &[Mount]) -> Vec<Loop> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let ours = names.into_iter().filter(|name| backing(name).is_some_and(|backing| backing == file));
    let of = |name: String| {
        let parts = partitions(&name).into_iter().map(|(part, _)| format!("/sys/block/{name}/{part}/dev"));
        let all = std::iter::once(format!("/sys/block/{name}/dev")).chain(parts);
        let numbers: Vec<String> = all.filter_map(|path| fs::read_to_string(path).ok()).collect();
        let ours = |mount: &&Mount| numbers.iter().any(|number| number.trim() == mount.device);
        let here = mounts.iter().filter(ours).map(|mount| mount.point.clone());
        Loop { device: Path::new("/dev").join(&name), mounts: here.collect() }
    };
    ours.map(of).collect()
}

/// Every served drive of this machine, with what hangs on it.
pub fn find() -> Vec<Attached> {
    let mounts = mounts();
    let fuse = mounts.iter().filter(|mount| mount.kind == "fuse" || mount.kind.starts_with("fuse."));
    let served = fuse.filter_map(|mount| Some((mount, mount.source.strip_prefix(SOURCE)?)));
    served
        .map(|(mount, image)| Attached {
            dir: mount.point.clone(),
            image: image.to_owned(),
            loops: loops_on(&mount.point.join(FILE), &mounts),
        })
        .collect()
}

/// Where file systems of a block device (`/dev/ublkb0`) are mounted, in the order of mounting; also of one that is gone.
pub fn mounted_from(device: &Path) -> Vec<PathBuf> {
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap_or_default();
    let is_its = |mount: &Mount| Path::new(&mount.source) == device || mount.device == number.trim();
    mounts().into_iter().filter(is_its).map(|mount| mount.point).collect()
}

/// Unmounts the file systems of a block device, and waits until nobody else has it.
pub fn free(device: &Path) -> Result<(), Stuck> {
    for point in mounted_from(device).iter().rev() {
        unmount_patiently(point)?;
    }
    let shown = device.display();
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let end = Instant::now() + PATIENCE;
    loop {
        let users: Vec<String> = holders(&name);
        let openers = openers(device);
        // The kernel's own: file systems of other mount namespaces, swap.
        let claimed = || rustix::fs::open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
        let (what, next) = match users.is_empty() {
            false => (format!("{shown} is a part of {} (device mapper or RAID)", users.join(", ")), "take that down"),
            true if !openers.is_empty() => {
                (format!("{shown} is held open by {}", holders_in_words(&openers)), "close what has it open")
            }
            true => match claimed() {
                Err(Errno::BUSY) => (format!("{shown} is in use by the kernel, as a file system or swap"), "end that"),
                _ => return Ok(()),
            },
        };
        if Instant::now() > end {
            return Err(Stuck::in_use(what, next));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Takes the names of a block device's file systems away, as when a disk is pulled out; what was written is made durable first.
/// Returns what did not work.
pub fn pull(device: &Path) -> Vec<String> {
    let mut failed = Vec::new();
    for point in mounted_from(device).iter().rev() {
        failed.extend(run(Command::new("sync").arg("--file-system").arg(point)).err());
        let _ = unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
    }
    failed
}

/// What is made of a block device, or of a partition, by its name.
fn holders(name: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("/sys/block/{name}/holders")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The drive that is served in `dir`.
pub fn find_in(dir: &Path) -> Option<Attached> {
    // What is dead cannot be looked into, but its parent can.
    let canonical = match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            parent.canonicalize().map(|parent| parent.join(name)).unwrap_or_else(|_| dir.to_owned())
        }
        _ => dir.to_owned(),
    };
    find().into_iter().rev().find(|attached| attached.dir == dir || attached.dir == canonical)
}

impl Attached {
    /// Whether its server is there. One that was killed leaves its mount behind, which answers nothing.
    pub fn is_served(&self) -> bool {
        !matches!(fs::read_dir(&self.dir), Err(error) if error.kind() == io::ErrorKind::NotConnected)
    }

    /// Unmounts the file systems, detaches the loop devices, and ends the serving. After an error what was undone by then stays
    /// so, and another call goes on.
    pub fn detach(&self) -> Result<(), Stuck> {
        for device in &self.loops {
            for point in device.mounts.iter().rev() {
                unmount_patiently(point)?;
            }
            device.release(&self.dir.join(FILE))?;
        }
        unmount_patiently(&self.dir)
    }

    /// What hangs on the drive stays, but without the drive, as when a disk is pulled out: what was written is made durable
    /// first, names are taken away at once, and the loop devices go when the last one lets go of them. For a server that ends although
    /// [`Attached::detach`] failed. Returns what did not work.
    pub fn cut_off(&self) -> Vec<String> {
        let mut failed = Vec::new();
        let mut try_run = |command: &mut Command| failed.extend(run(command).err());
        for device in &self.loops {
            for point in device.mounts.iter().rev() {
                try_run(Command::new("sync").arg("--file-system").arg(point));
                let _ = unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
            }
            if !device.is_on(&self.dir.join(FILE)) {
                continue;
            }
            // Of file systems in other mount namespaces, and of who writes to the device itself.
            try_run(Command::new("blockdev").arg("--flushbufs").arg(&device.device));
            try_run(Command::new("losetup").arg("--detach").arg(&device.device));
        }
        if unmount(&self.dir, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) == Err(Errno::PERM) {
            try_run(Command::new("fusermount3").args(["-u", "-z", "--"]).arg(&self.dir));
        }
        failed
    }
}

impl Loop {
    /// As `loop3`.
    fn name(&self) -> String {
        self.device.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Whether it still is on that file: one that detaches itself (`mount -o loop`) goes with its last file system, and then
    /// its number may be somebody else's.
    fn is_on(&self, file: &Path) -> bool {
        backing(&self.name()).is_some_and(|backing| backing == file)
    }

    fn release(&self, file: &Path) -> Result<(), Stuck> {
        if !self.is_on(file) {
            return Ok(());
        }
        let (name, short) = (self.device.display(), self.name());
        let parts = partitions(&short);
        let all = std::iter::once(short.clone()).chain(parts.iter().map(|(part, _)| format!("{short}/{part}")));
        let users: Vec<String> = all.flat_map(|of| holders(&of)).collect();
        if !users.is_empty() {
            let what = format!("{name} is a part of {} (device mapper, LVM or RAID)", users.join(", "));
            return Err(Stuck::in_use(what, "take that down"));
        }
        // The kernel keeps partitions that it was told of, also of a device that is gone.
        for (part, number) in &parts {
            run(Command::new("delpart").arg(&self.device).arg(number)).map_err(|why| {
                let what = format!("the partition {part} of {name} cannot be taken away ({why})");
                Stuck::in_use(what, "close what has it open")
            })?;
        }
        // It may be on its way already, and then this fails.
        let refused = run(Command::new("losetup").arg("--detach").arg(&self.device)).err();
        // The kernel detaches when the last one who has it open lets go.
        let end = Instant::now() + PATIENCE;
        while self.is_on(file) {
            if Instant::now() > end {
                let why = match refused {
                    Some(why) => format!("{name} cannot be detached ({why})"),
                    None => format!("{name} is held open by {}", holders_in_words(&openers(&self.device))),
                };
                return Err(Stuck::in_use(why, "close what has it open"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Runs a program of the system to its end; the error is what it said.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(if lines.is_empty() { format!("{program}: {}", output.status) } else { lines.join("; ") })
}

/// Unmounts what is mounted there, and waits a while for who uses it.
pub(super) fn unmount_patiently(point: &Path) -> Result<(), Stuck> {
    let end = Instant::now() + PATIENCE;
    loop {
        match unmount(point, UnmountFlags::NOFOLLOW) {
            // Not mounted any more: somebody was faster.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < end => std::thread::sleep(PAUSE),
            Err(Errno::BUSY) => {
                let point = point.display();
                let next = format!("leave it (`fuser -vm {point}` tells who has it)");
                return Err(Stuck::in_use(format!("{point} is in use"), &next));
            }
            // Users unmount what they mounted by a program with more rights.
            Err(Errno::PERM) => {
                let point_is = point.display();
                return run(Command::new("fusermount3").arg("-u").arg("--").arg(point))
                    .map(drop)
                    .map_err(|why| Stuck::failed(format!("{point_is} cannot be unmounted ({why})"), AS_ROOT));
            }
            Err(error) => {
                let error = io::Error::from(error);
                let what = format!("{} cannot be unmounted ({error})", point.display());
                return Err(Stuck::failed(what, not_permitted(AS_ROOT)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_of_mounts_is_understood() {
        let line = "36 35 0:98 / /mnt/a\\040b\\134c rw,noatime master:1 shared:2 - fuse imbrex-drive:/x/drive\\011one.img rw,size=4";
        let mount = parse_mount(line).unwrap();
        assert_eq!((mount.device.as_str(), mount.kind.as_str()), ("0:98", "fuse"));
        assert_eq!(
            (mount.point.to_str().unwrap(), mount.source.as_str()),
            ("/mnt/a b\\c", "imbrex-drive:/x/drive\tone.img")
        );
        // Without the optional words, and what is no line of it.
        assert_eq!(parse_mount("1 2 7:3 / /m rw - xfs /dev/loop3 rw").unwrap().device, "7:3");
        for none in ["", "1 2 7:3", "1 2 7:3 / /m rw", " - ", "1 2 7:3 / /m rw - xfs"] {
            assert!(parse_mount(none).is_none(), "{none:?}");
        }
        assert_eq!(unescape("a\\04"), "a\\04");
        assert_eq!(unescape("a\\999"), "a\\999");
    }

    #[test]
    fn what_is_no_served_drive_is_not_found() {
        assert!(find_in(Path::new("/")).is_none() && find_in(Path::new("/proc")).is_none());
        assert!(find_in(Path::new("/nowhere/at/all")).is_none() && find_in(Path::new("")).is_none());
        assert!(backing("no-such-device").is_none());
        let none = Path::new("/dev/no-such-device");
        assert!(mounted_from(none).is_empty() && free(none).is_ok() && pull(none).is_empty());
    }
}
