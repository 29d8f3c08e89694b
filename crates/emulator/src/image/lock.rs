//! One process at a time: an advisory lock on the image that goes away with its holder, however that dies.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

pub(crate) enum Refused {
    /// Somebody has it; the process id where the system tells.
    Busy(Option<u32>),
    Io(io::Error),
}

/// A lock without a holder is given this many times 10 ms to go away.
const PATIENCE: u32 = 20;

/// Locks for one writer, or shared for readers.
pub(crate) fn take(file: &File, meta: &Metadata, shared: bool) -> Result<(), Refused> {
    let how = if shared { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    let mut patience = PATIENCE;
    loop {
        match (flock(file, how), patience) {
            (Ok(()), _) => return Ok(()),
            // The kernel takes a while to clean up behind a killed process: then the lock is there, and nobody has it.
            (Err(Errno::WOULDBLOCK), 1..) if holder(meta).is_none() => {
                patience -= 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            (Err(Errno::WOULDBLOCK), _) => return Err(Refused::Busy(holder(meta))),
            (Err(error), _) => return Err(Refused::Io(error.into())),
        }
    }
}

/// Locks a file that this process has just made.
pub(crate) fn take_new(file: File) -> io::Result<File> {
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Lets go of it. Closing the file is not enough: a child that another thread is just starting has the file, too, until it runs
/// its program.
pub(crate) fn release(file: &File) {
    let _ = flock(file, FlockOperation::Unlock);
}

/// Who has the lock, by the kernel's list.
pub(crate) fn holder(meta: &Metadata) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    find_holder(&locks, meta.dev(), meta.ino())
}

fn find_holder(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{ino}", rustix::fs::major(dev), rustix::fs::minor(dev));
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // A waiter's line has "->" behind its number.
        let is_holder = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&file.as_str());
        fields.get(4).filter(|_| is_holder)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_holder_in_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n";
        let dev = rustix::fs::makedev(0xfe, 0);
        assert_eq!(find_holder(locks, dev, 77), Some(33));
        assert_eq!(find_holder(locks, dev, 79), None);
    }
}
