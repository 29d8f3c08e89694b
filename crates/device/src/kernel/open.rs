//! Opening a block device for nobody else, and the sentences for what cannot be used.
//!
//! `O_EXCL` on a block device keeps out file systems, swap, device-mapper, md and every other opener that asks for it; who
//! only reads does without, so that several may look at once, and asks for what has the device instead. A
//! `flock` comes on top: like an OFD lock it belongs to the open file and goes away with it however the process dies, but
//! `/proc/locks` names its holder (it says -1 for OFD locks), and udev keeps its hands off a device that is locked so
//! (systemd, "Locking Block Device Access").

use super::Access;
use super::sysfs::{Sysfs, mount_point};
use crate::words::not_permitted;
use crate::{Error, Result, lock_holders};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long udev and the like may look at the device before it counts as in use.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Opens the zoned block device at `path`, with its directory in sysfs.
pub(super) fn open(path: &Path, name: &Arc<str>, access: Access) -> Result<(File, Sysfs)> {
    open_as(path, name, access, check_kind)
}

/// Opens the block device at `path`, if `check` finds that it is of the right kind.
pub(super) fn open_as(
    path: &Path,
    name: &Arc<str>,
    access: Access,
    check: fn(&Arc<str>, &Sysfs) -> Result<()>,
) -> Result<(File, Sysfs)> {
    let meta = std::fs::metadata(path).map_err(|error| denied(name, error))?;
    if !meta.file_type().is_block_device() {
        return Err(Error::unusable(name, "not a block device; name a zoned drive as /dev/sdb, or a drive image"));
    }
    let sysfs = Sysfs::of(meta.rdev());
    check(name, &sysfs)?;
    if access == Access::Write && sysfs.number("ro") == Some(1) {
        let sentence = format!(
            "the kernel has this device read-only; open it read-only, or make it writable (`blockdev --setrw {name}`)"
        );
        return Err(Error::unusable(name, sentence));
    }
    let how = match access {
        Access::Write => OFlags::RDWR | OFlags::EXCL,
        Access::ReadOnly | Access::Observe => OFlags::RDONLY,
    };
    let file = match rustix::fs::open(path, how | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::BUSY) => return Err(busy(name, &sysfs, &meta)),
        Err(error) => return Err(denied(name, error.into())),
    };
    match access {
        Access::Write => lock(&file, FlockOperation::NonBlockingLockExclusive, name, &meta)?,
        Access::ReadOnly => {
            if let Some(sentence) = kernels_use(&sysfs, &meta) {
                return Err(Error::taken(name, sentence));
            }
            lock(&file, FlockOperation::NonBlockingLockShared, name, &meta)?;
        }
        Access::Observe => {}
    }
    Ok((file, sysfs))
}

/// A whole, unpartitioned, host-managed drive, or a sentence.
fn check_kind(name: &Arc<str>, sysfs: &Sysfs) -> Result<()> {
    let refuse = |sentence: String| Err(Error::unusable(name, sentence));
    if sysfs.is_partition() {
        return refuse("a partition of a drive; name the whole drive, as /dev/sdb for /dev/sdb1".into());
    }
    check_unpartitioned(name, sysfs)?;
    match sysfs.text("queue/zoned").as_deref() {
        Some("host-managed") => Ok(()),
        Some("host-aware") => {
            refuse("a host-aware drive, which rewrites its zones by itself; use a host-managed one".into())
        }
        _ => refuse(format!(
            "not a zoned drive; use a host-managed one (`lsblk --zoned` lists them), a drive image, or this disk cut into \
             bands, as banded:{name}"
        )),
    }
}

/// Nobody has cut it into partitions, or a sentence.
pub(super) fn check_unpartitioned(name: &Arc<str>, sysfs: &Sysfs) -> Result<()> {
    match sysfs.partitions().first() {
        None => Ok(()),
        Some(first) => Err(Error::unusable(
            name,
            format!(
                "partitioned, the first partition is {first}; if nothing on it is needed, remove the partitions with \
                 `wipefs --all {name}` and try again"
            ),
        )),
    }
}

fn denied(name: &Arc<str>, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::unusable(name, "there is no such device; `lsblk --zoned` lists drives"),
        std::io::ErrorKind::PermissionDenied => {
            let advice = not_permitted("run it as root, or give your user the device (Debian: `adduser NAME disk`)");
            Error::unusable(name, format!("permission denied; {advice}"))
        }
        _ => Error::io(name, error),
    }
}

/// Why the kernel does not let us have it alone.
fn busy(name: &Arc<str>, sysfs: &Sysfs, meta: &Metadata) -> Error {
    match kernels_use(sysfs, meta) {
        Some(sentence) => Error::taken(name, sentence),
        None => Error::busy(name, lock_holders(meta)),
    }
}

/// What in the kernel has the device, and how to end that.
fn kernels_use(sysfs: &Sysfs, meta: &Metadata) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(at) = mount_point(&mounts, meta.rdev()) {
        return Some(format!("mounted at {at}; if Imbrex shall have the drive, run `umount {at}` first"));
    }
    let holders = sysfs.holders();
    holders.first().map(|holder| format!("in use by {holder} (device-mapper or md); remove that first"))
}

fn lock(file: &File, how: FlockOperation, name: &Arc<str>, meta: &Metadata) -> Result<()> {
    let step = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    loop {
        match flock(file, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if waited < LOCK_PATIENCE => {
                std::thread::sleep(step);
                waited += step;
            }
            Err(Errno::WOULDBLOCK) => return Err(Error::busy(name, lock_holders(meta))),
            Err(error) => return Err(Error::io(name, error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(files: &[(&str, &str)]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        check_kind(&"/dev/sdz".into(), &Sysfs::at(dir.path())).err().map(|error| error.to_string())
    }

    #[test]
    fn only_whole_host_managed_drives_pass() {
        let managed = ("queue/zoned", "host-managed\n");
        assert_eq!(refused(&[managed]), None);
        for (files, says) in [
            (vec![("queue/zoned", "none\n")], "not a zoned drive"),
            (vec![("queue/zoned", "none\n")], "banded:/dev/sdz"),
            (vec![], "not a zoned drive"),
            (vec![("queue/zoned", "host-aware\n")], "host-aware"),
            (vec![managed, ("sdz1/partition", "1")], "the first partition is sdz1"),
            (vec![managed, ("partition", "1")], "name the whole drive"),
        ] {
            let sentence = refused(&files).unwrap();
            assert!(sentence.contains(says) && sentence.contains("/dev/sdz"), "{sentence:?} lacks {says:?}");
        }
    }

    #[test]
    fn what_is_no_block_device_is_refused() {
        for (path, says) in [("/dev/null", "not a block device"), ("/dev/nowhere", "no such device")] {
            let error = open(Path::new(path), &path.into(), Access::Write).err().unwrap().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
