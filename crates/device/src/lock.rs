//! Who has a file open, and who holds the lock on it.

use rustix::fs::{major, minor};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How often the list is read for a lock that it does not show.
const LOOKS: u32 = 10;
/// As many processes are named in a message.
const NAMED: usize = 4;

/// A living process that has something open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// What the kernel calls it: the beginning of its program's name. Empty where it has ended since.
    pub name: String,
}

impl Holder {
    /// The process with this id.
    pub fn of(pid: u32) -> Holder {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        // A process names itself as it likes.
        let name =
            String::from_utf8_lossy(&name).trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        Holder { pid, name }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.is_empty() {
            true => write!(f, "{}", self.pid),
            false => write!(f, "{} ({})", self.pid, self.name),
        }
    }
}

/// The processes in words: `process 12 (db_bench)`, `processes 12 (db_bench) and 13 (worker)`, `another process` where nobody
/// is known.
pub fn holders_in_words(holders: &[Holder]) -> String {
    let names: Vec<String> = holders.iter().take(NAMED).map(Holder::to_string).collect();
    match (names.as_slice(), holders.len().saturating_sub(NAMED)) {
        ([], _) => "another process".into(),
        ([only], _) => format!("process {only}"),
        ([first @ .., last], 0) => format!("processes {} and {last}", first.join(", ")),
        (all, more) => format!("processes {} and {more} more", all.join(", ")),
    }
}

/// The processes that hold a `flock` on the file with `meta`; none where nobody has one, or the system does not tell (another PID
/// namespace, another user's process of another name).
///
/// A lock belongs to the open file. A child of fork has that, too, and goes on holding the lock when its parent has closed the file
/// or has ended. `/proc/locks` names only who took the lock, so `/proc/PID/fdinfo` of all processes comes first.
pub fn lock_holders(meta: &Metadata) -> Vec<Holder> {
    let file = lock_name(meta.dev(), meta.ino());
    let has =
        |pid: u32| entries(pid, "fdinfo").any(|info| fs::read_to_string(info).is_ok_and(|info| has_lock(&info, &file)));
    let found: Vec<Holder> = pids().filter(|pid| has(*pid)).map(Holder::of).collect();
    match found.is_empty() {
        // Other users' processes show their files to root only.
        true => listed(&file)
            .filter(|pid| Path::new(&format!("/proc/{pid}")).exists())
            .map(Holder::of)
            .into_iter()
            .collect(),
        false => found,
    }
}

/// The first of [`lock_holders`].
pub fn lock_holder(meta: &Metadata) -> Option<u32> {
    lock_holders(meta).first().map(|holder| holder.pid)
}

/// The processes that have the file of this path open, by the name that they opened it by. The file itself is not touched, which
/// may be one that answers nobody any more.
pub fn openers(path: &Path) -> Vec<Holder> {
    let has = |pid: u32| entries(pid, "fd").any(|fd| fs::read_link(fd).is_ok_and(|file| file == path));
    pids().filter(|pid| has(*pid)).map(Holder::of).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn entries(pid: u32, of: &str) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(format!("/proc/{pid}/{of}")).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// A file as the kernel's lists of locks name it.
fn lock_name(dev: u64, ino: u64) -> String {
    format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev))
}

/// Whether what `/proc/PID/fdinfo` says of an open file is that it has the `flock`.
fn has_lock(info: &str, file: &str) -> bool {
    info.lines().filter_map(|line| line.strip_prefix("lock:")).any(|line| holder_in(line, file).is_some())
}

/// The process that took the lock, by `/proc/locks` (proc_pid_locks(5)).
///
/// That list is no snapshot: the kernel finds its place again by counting at each `read`, so that a
/// lock let go elsewhere in between makes it pass over another one. One look may thus miss a lock that is there all the time;
/// it asks for much at once, which makes that rare, and looks again.
fn listed(file: &str) -> Option<u32> {
    (0..LOOKS).find_map(|_| list().ok()?.lines().find_map(|line| holder_in(line, file)))
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

/// Who took the lock, where the line is of a `flock` on that file.
fn holder_in(line: &str, file: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // A waiter's line has "->" behind its number.
    let is_holder = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&file);
    fields.get(4).filter(|_| is_holder)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn finds_the_holder_in_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n";
        let dev = rustix::fs::makedev(0xfe, 0);
        let find = |ino| locks.lines().find_map(|line| holder_in(line, &lock_name(dev, ino)));
        assert_eq!((find(77), find(79)), (Some(44), None));
        let info = "pos:\t0\nflags:\t02100002\nlock:\t1: FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n";
        assert!(has_lock(info, &lock_name(dev, 77)) && !has_lock(info, &lock_name(dev, 78)));
    }

    #[test]
    fn a_lock_is_found_while_others_come_and_go() {
        let held = tempfile::tempfile().unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let meta = held.metadata().unwrap();
        let file = lock_name(meta.dev(), meta.ino());
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
            let missed = (0..500).filter(|_| listed(&file) != Some(std::process::id())).count();
            let missed = missed + (0..20).filter(|_| lock_holder(&meta) != Some(std::process::id())).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(missed, 0);
        });
    }

    #[test]
    fn a_child_that_inherited_a_lock_is_its_holder() {
        let held = tempfile::NamedTempFile::new().unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let meta = held.as_file().metadata().unwrap();
        // A duplicate as stdin: the same open file, as a child of fork has it.
        let stdin = Stdio::from(held.as_file().try_clone().unwrap());
        let mut child = Command::new("sleep").arg("1000").stdin(stdin).spawn().unwrap();
        // The kernel lets `spawn` return a moment before it gives the child the name of its program.
        while Holder::of(child.id()).name != "sleep" {
            std::thread::yield_now();
        }
        let path = held.path().to_owned();
        let (both, openers) = (lock_holders(&meta), openers(&path));
        drop(held);
        let one = lock_holders(&meta);
        child.kill().unwrap();
        child.wait().unwrap();
        let is_child = |holder: &Holder| holder.pid == child.id() && holder.name == "sleep";
        // Whatever another test is just about to start holds it, too, until it becomes its program.
        let is_this = |holder: &Holder| holder.pid == std::process::id();
        assert!(both.iter().any(is_this) && both.iter().any(is_child), "{both:?}");
        assert!(openers.iter().any(is_this) && openers.iter().any(is_child), "{openers:?}");
        assert!(!one.iter().any(is_this) && one.iter().any(is_child), "{one:?}");
        assert!(!lock_holders(&meta).iter().any(is_child));
    }

    #[test]
    fn processes_are_named_in_words() {
        let holder = |pid| Holder { pid, name: if pid % 2 == 0 { "db".into() } else { String::new() } };
        let words = |n: u32| holders_in_words(&(1..=n).map(holder).collect::<Vec<_>>());
        assert_eq!((words(0).as_str(), words(1).as_str()), ("another process", "process 1"));
        assert_eq!((words(2).as_str(), words(3).as_str()), ("processes 1 and 2 (db)", "processes 1, 2 (db) and 3"));
        assert_eq!(words(6), "processes 1, 2 (db), 3, 4 (db) and 2 more");
    }
}
