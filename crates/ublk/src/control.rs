//! `/dev/ublk-control`: devices are made, started, stopped and taken away by commands of an io_uring.

use crate::abi::{self, CtrlCmd, DevInfo, Params};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

const PATH: &str = "/dev/ublk-control";
/// What says in a device's information that Imbrex made it.
const MARK: u64 = u64::from_be_bytes(*b"imbrexZ1");
/// How long the last user of a device may take to let go of it.
const PATIENCE: Duration = Duration::from_secs(5);
/// What to do about a kernel that is too old.
const NO_ZONED: &str = "use Linux 6.6 or newer, built with CONFIG_BLK_DEV_UBLK and CONFIG_BLK_DEV_ZONED";

/// Why there is no device.
#[derive(Debug)]
pub enum Trouble {
    /// The driver is not there.
    NoDriver,
    /// The system does not let this user.
    Denied(io::Error),
    /// No io_uring can be had.
    NoRing(io::Error),
    /// The driver knows no zoned devices.
    TooOld,
    /// Something that should work does not.
    Failed(&'static str, io::Error),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoDriver => {
                write!(f, "the kernel's ublk driver is not there; run `modprobe ublk_drv`, or {NO_ZONED}")
            }
            Trouble::Denied(error) => {
                let next = imbrex_device::words::not_permitted("run it as root");
                write!(f, "{PATH} cannot be used ({error}); {next}")
            }
            Trouble::NoRing(error) => {
                write!(f, "the system gives no io_uring ({error}); see that /proc/sys/kernel/io_uring_disabled is 0")
            }
            Trouble::TooOld => write!(f, "this kernel's ublk driver knows no zoned devices; {NO_ZONED}"),
            Trouble::Failed(what, error) => write!(f, "{what} ({error}); the kernel's log (dmesg) may say why"),
        }
    }
}

impl std::error::Error for Trouble {}

/// A device of the driver, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The N of `/dev/ublkbN`.
    pub id: u32,
    /// Whether its disk is there.
    pub live: bool,
    /// Whether Imbrex made it.
    pub ours: bool,
}

impl Device {
    /// The block device.
    pub fn path(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.id).into()
    }

    /// What its server has open.
    pub fn server_path(&self) -> PathBuf {
        format!("/dev/ublkc{}", self.id).into()
    }
}

/// The numbers of all devices of the driver, whoever made them.
pub fn existing() -> Vec<u32> {
    let entries = fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten();
    let mut all: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok()).collect();
    all.sort_unstable();
    all
}

/// The driver's control device.
pub struct Control {
    file: File,
    ring: IoUring<Entry128>,
    /// Commands so far.
    given: u64,
}

fn succeeded(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(result.saturating_neg())) } else { Ok(result) }
}

impl Control {
    /// Opens it.
    pub fn open() -> Result<Control, Trouble> {
        let file = File::options().read(true).write(true).open(PATH).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Trouble::NoDriver,
            _ => Trouble::Denied(error),
        })?;
        let ring = IoUring::builder().build(4).map_err(Trouble::NoRing)?;
        Ok(Control { file, ring, given: 0 })
    }

    /// Gives one command and waits for its answer, a number that is negative where it failed. An error: nobody knows what became of it.
    fn command(&mut self, op: Opcode, cmd: CtrlCmd) -> io::Result<i32> {
        let mut bytes = [0; 80];
        bytes[..size_of::<CtrlCmd>()].copy_from_slice(cmd.as_bytes());
        self.given += 1;
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(file, op).cmd(bytes).build().user_data(self.given);
        // SAFETY: the entry names a file that is open as long as the ring, and memory of `with`, which keeps it until there is an answer, and
        // for ever where none comes.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::Error::from(Errno::BUSY))?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // Another one's is of a command that was given up.
            if let Some(answer) = self.ring.completion().find(|answer| answer.user_data() == self.given) {
                return Ok(answer.result());
            }
        }
    }

    /// A command with a buffer, which the kernel reads or writes.
    fn with<T: IntoBytes>(&mut self, op: Opcode, id: u32, buffer: T) -> io::Result<T> {
        let mut buffer = Box::new(buffer);
        let (len, addr) = (size_of::<T>() as u16, (&raw mut *buffer) as u64);
        let cmd = CtrlCmd { dev_id: id, queue_id: u16::MAX, len, addr, ..CtrlCmd::default() };
        match self.command(op, cmd) {
            Ok(result) => succeeded(result).map(|_| *buffer),
            Err(error) => {
                Box::leak(buffer);
                Err(error)
            }
        }
    }

    fn plain(&mut self, op: Opcode, id: u32, data: u64) -> io::Result<i32> {
        succeeded(self.command(op, CtrlCmd { dev_id: id, queue_id: u16::MAX, data, ..CtrlCmd::default() })?)
    }

    /// Makes a zoned device; its number. `depth`: requests at once; `most`: bytes of the largest.
    pub(crate) fn add(&mut self, depth: u16, most: u32) -> Result<u32, Trouble> {
        let wanted = abi::F_ZONED | abi::F_USER_COPY | abi::F_CMD_IOCTL_ENCODE;
        let known = match self.with(abi::CMD_GET_FEATURES, u32::MAX, 0u64) {
            Ok(features) => features,
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::ACCESS)) => {
                return Err(Trouble::Denied(error));
            }
            Err(_) => return Err(Trouble::TooOld),
        };
        if known & wanted != wanted {
            return Err(Trouble::TooOld);
        }
        let info = DevInfo {
            nr_hw_queues: 1,
            queue_depth: depth,
            max_io_buf_bytes: most,
            dev_id: u32::MAX,
            flags: wanted,
            ublksrv_flags: MARK,
            ..DevInfo::new_zeroed()
        };
        let made = self.with(abi::CMD_ADD_DEV, u32::MAX, info).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::PERM | Errno::ACCESS) => Trouble::Denied(error),
                // The driver is built without zones.
                Some(Errno::INVAL | Errno::OPNOTSUPP) => Trouble::TooOld,
                _ => Trouble::Failed("the kernel makes no device", error),
            }
        })?;
        if made.flags & wanted != wanted || made.queue_depth != depth || made.max_io_buf_bytes < most {
            let _ = self.plain(abi::CMD_DEL_DEV, made.dev_id, 0);
            return Err(Trouble::TooOld);
        }
        Ok(made.dev_id)
    }

    pub(crate) fn set_params(&mut self, id: u32, params: Params) -> Result<(), Trouble> {
        let set = self.with(abi::CMD_SET_PARAMS, id, params).map(drop);
        set.map_err(|error| Trouble::Failed("the kernel does not take the drive's geometry", error))
    }

    pub(crate) fn start(&mut self, id: u32) -> Result<(), Trouble> {
        let started = self.plain(abi::CMD_START_DEV, id, std::process::id().into());
        started.map(drop).map_err(|error| Trouble::Failed("the kernel does not start the device", error))
    }

    /// Takes the disk away, whoever uses it; what its users wrote and the kernel still has goes to the drive before.
    pub fn stop(&mut self, id: u32) -> Result<(), Trouble> {
        absent_is_fine(self.plain(abi::CMD_STOP_DEV, id, 0), "the kernel does not stop the device")
    }

    /// Takes the device away; whether it is gone. It goes with whoever has its disk open, who is given a moment. `in_use`: somebody has it, so
    /// nothing waits for that.
    pub fn remove(&mut self, id: u32, in_use: bool) -> Result<bool, Trouble> {
        let what = "the kernel does not take the device away";
        match absent_is_fine(self.plain(abi::CMD_DEL_DEV_ASYNC, id, 0), what) {
            Ok(()) => {}
            Err(Trouble::Denied(error)) => return Err(Trouble::Denied(error)),
            // Before Linux 6.9 it stays until `detach` finds it.
            Err(_) if in_use => return Ok(false),
            Err(_) => absent_is_fine(self.plain(abi::CMD_DEL_DEV, id, 0), what)?,
        }
        let end = Instant::now() + PATIENCE;
        while !in_use && existing().contains(&id) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(!existing().contains(&id))
    }

    /// What a device is; `None` where there is none of this number.
    pub fn look(&mut self, id: u32) -> Result<Option<Device>, Trouble> {
        match self.with(abi::CMD_GET_DEV_INFO, id, DevInfo::new_zeroed()) {
            Ok(info) => Ok(Some(Device { id, live: info.state == abi::S_DEV_LIVE, ours: info.ublksrv_flags == MARK })),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NODEV | Errno::INVAL | Errno::NOENT) => Ok(None),
                Some(Errno::PERM | Errno::ACCESS) => Err(Trouble::Denied(error)),
                _ => Err(Trouble::Failed("the kernel does not say what the device is", error)),
            },
        }
    }
}

fn absent_is_fine(done: io::Result<i32>, what: &'static str) -> Result<(), Trouble> {
    match done {
        Ok(_) => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            // Somebody was faster.
            Some(Errno::NODEV | Errno::NOENT) => Ok(()),
            Some(Errno::PERM | Errno::ACCESS) => Err(Trouble::Denied(error)),
            _ => Err(Trouble::Failed(what, error)),
        },
    }
}
