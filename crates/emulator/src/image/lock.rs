//! One process at a time: an advisory lock on the image that goes away with its holder, however that dies.

use imbrex_device::{Holder, lock_holders};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::time::Duration;

pub(crate) enum Refused {
    /// These have it; none where the system does not tell.
    Busy(Vec<Holder>),
    Io(io::Error),
}

/// The lock of an image, until it is dropped. Closing the file would not be enough: a child that another thread is just starting has the
/// file, too, until it runs its program.
pub(crate) struct Lock(File);

impl Lock {
    fn of(file: &File) -> io::Result<Lock> {
        Ok(Lock(file.try_clone()?))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// A lock without a holder is given this many times 10 ms to go away.
const PATIENCE: u32 = 20;

/// Locks for one writer, or shared for readers.
pub(crate) fn take(file: &File, meta: &Metadata, shared: bool) -> Result<Lock, Refused> {
    let how = if shared { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    // Made first, so that what fails keeps no lock.
    let lock = Lock::of(file).map_err(Refused::Io)?;
    let mut patience = PATIENCE;
    loop {
        match (flock(file, how), patience) {
            (Ok(()), _) => return Ok(lock),
            // The kernel takes a while to clean up behind a killed process: then the lock is there, and nobody has it.
            (Err(Errno::WOULDBLOCK), 1..) if lock_holders(meta).is_empty() => {
                patience -= 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            (Err(Errno::WOULDBLOCK), _) => return Err(Refused::Busy(lock_holders(meta))),
            (Err(error), _) => return Err(Refused::Io(error.into())),
        }
    }
}

/// Locks a file that this process has just made.
pub(crate) fn take_new(file: &File) -> io::Result<Lock> {
    let lock = Lock::of(file)?;
    flock(file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}
