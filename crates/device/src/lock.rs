//! Who holds a lock: the kernel's list of `flock`s.

use rustix::fs::{major, minor};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

/// How often the list is read for a lock that it does not show.
const LOOKS: u32 = 10;

/// The process that has a `flock` on the file with `meta`; `None` where nobody has one, or the system does not tell (another
/// PID namespace).
///
/// The list (proc_pid(5), `/proc/locks`) is no snapshot: the kernel finds its place again by counting at each `read`, so that a
/// lock let go elsewhere in between makes it pass over another one. One look may thus miss a lock that is there all the time;
/// it asks for much at once, which makes that rare, and looks again.
pub fn lock_holder(meta: &Metadata) -> Option<u32> {
    (0..LOOKS).find_map(|_| find(&list().ok()?, meta.dev(), meta.ino()))
}

fn list() -> io::Result<String> {
    let mut file = File::open("/proc/locks")?;
    let (mut text, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(read) => text.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn find(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
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
    use rustix::fs::{FlockOperation, flock};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn finds_the_holder_in_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n";
        let dev = rustix::fs::makedev(0xfe, 0);
        assert_eq!((find(locks, dev, 77), find(locks, dev, 79)), (Some(44), None));
    }

    #[test]
    fn a_lock_is_found_while_others_come_and_go() {
        let held = tempfile::tempfile().unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let meta = held.metadata().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let others: Vec<File> = (0..30).map(|_| tempfile::tempfile().unwrap()).collect();
                        others.iter().for_each(|file| flock(file, FlockOperation::NonBlockingLockExclusive).unwrap());
                    }
                });
            }
            let missed = (0..500).filter(|_| lock_holder(&meta) != Some(std::process::id())).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }
}
