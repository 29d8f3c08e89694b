//! The directory that a drive is mounted in: empty, nobody's mount point, no part of the system, and one process's.

use crate::output::Failure;
use imbrex_bench::baseline::attached::mount_points;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What programs look for below these is theirs, whether or not it is there at the moment.
const SYSTEM: [&str; 12] =
    ["/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr"];
/// Directories below these are anybody's, but not these themselves.
const SHARED: [&str; 9] = ["/", "/dev/shm", "/home", "/media", "/opt", "/root", "/run", "/srv", "/tmp"];
/// The same, with what stands directly in them.
const VAR: &str = "/var";

/// A directory that this process alone mounts in, as long as it lives.
pub(crate) struct Claim {
    /// As the kernel names it.
    pub(crate) dir: PathBuf,
    /// The directory itself, also when something is mounted over it. Its lock is the claim.
    _lock: File,
}

/// Claims a directory, or says in a sentence why nothing is mounted there. Call it before anything else is done.
pub(crate) fn claim(dir: &Path) -> Result<Claim, Failure> {
    let name = dir.display();
    let found = dir.canonicalize().map_err(|error| unusable(dir, &error))?;
    if is_system(&found) {
        return Err(Failure::failed(format!("{name} belongs to the system; name an empty directory of your own")));
    }
    let lock = File::open(&found).map_err(|error| unusable(dir, &error))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(Failure::busy(format!("another process mounts something at {name}; name another directory")));
        }
        Err(error) => return Err(unusable(dir, &error.into())),
    }
    // Only now: whoever had the lock before may have mounted something.
    let points = mount_points().map_err(|error| {
        Failure::failed(format!(
            "/proc/self/mountinfo cannot be read ({error}), so {name} may be in use; mount /proc first"
        ))
    })?;
    let taken = || Failure::busy(format!("{name} is a mount point already; name another directory"));
    if points.contains(&found) {
        return Err(taken());
    }
    let (now, locked) = (fs::metadata(&found), lock.metadata());
    match (now.map_err(|error| unusable(dir, &error))?, locked.map_err(|error| unusable(dir, &error))?) {
        (now, locked) if (now.dev(), now.ino()) != (locked.dev(), locked.ino()) => return Err(taken()),
        _ => {}
    }
    if fs::read_dir(&found).map_err(|error| unusable(dir, &error))?.next().is_some() {
        return Err(Failure::failed(format!(
            "{name} is not empty; name an empty directory, so that nothing is hidden"
        )));
    }
    Ok(Claim { dir: found, _lock: lock })
}

fn unusable(dir: &Path, error: &Error) -> Failure {
    let name = dir.display();
    Failure::failed(match error.kind() {
        ErrorKind::NotConnected => {
            format!(
                "{name}: a drive was served there and its server is gone; run `imbrex drive detach {name}` or `umount {name}` first"
            )
        }
        ErrorKind::NotFound => format!("{name} is not there; make it with mkdir first"),
        ErrorKind::NotADirectory => format!("{name} is no directory; name an empty one"),
        _ => format!("{name} cannot be read ({error}); name an empty directory of your own"),
    })
}

/// Whether programs of the system look there, by the directory's path without links.
fn is_system(dir: &Path) -> bool {
    let is = |path: &&str| dir == Path::new(path);
    let is_or_below = |path: &&str| dir.starts_with(path);
    let in_var = dir == Path::new(VAR) || dir.parent() == Some(Path::new(VAR));
    let shared = SHARED.iter().any(is) || in_var;
    shared || (SYSTEM.iter().any(is_or_below) && !dir.starts_with("/dev/shm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_directories_are_not_taken() {
        for taken in [
            "/",
            "/proc",
            "/proc/1/task",
            "/sys/fs",
            "/dev",
            "/dev/pts",
            "/dev/shm",
            "/etc/x",
            "/usr/local/x",
            "/boot",
            "/home",
            "/root",
            "/tmp",
            "/var",
            "/var/lib",
            "/run",
        ] {
            assert!(is_system(Path::new(taken)), "{taken}");
        }
        for free in
            ["/mnt", "/mnt/x", "/media/x", "/home/me/x", "/dev/shm/x", "/tmp/x", "/var/lib/x", "/data", "/process"]
        {
            assert!(!is_system(Path::new(free)), "{free}");
        }
    }

    #[test]
    fn a_claim_excludes_others_and_ends_with_its_holder() {
        let why = |dir: &Path| format!("{:?}", claim(dir).err().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let first = claim(dir.path()).ok().unwrap();
        assert_eq!(first.dir, dir.path().canonicalize().unwrap());
        assert!(why(dir.path()).contains("another process"));
        drop(first);
        assert!(claim(dir.path()).is_ok());
        fs::write(dir.path().join("x"), "").unwrap();
        assert!(why(dir.path()).contains("not empty"));
        assert!(why(&dir.path().join("x")).contains("no directory"));
        assert!(why(&dir.path().join("y")).contains("mkdir"));
    }
}
