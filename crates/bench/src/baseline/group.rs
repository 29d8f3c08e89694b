//! A memory group whose page cache is limited, for the programs of a baseline: the kernel's file systems cache what they read and
//! write in memory, and a comparison gives both sides the same.
//!
//! The kernel limits all memory of a group together, so the limit follows what the programs themselves take: it is the group's
//! memory less its page cache, measured every few milliseconds, and the cache's share on top. Without an own group for
//! memory the page cache is not limited, and [`Group::new`] says why.
//!
//! cgroup v1 (`limit_in_bytes`): nothing is killed where a program's memory grows faster than it is measured; it waits for
//! the next measurement. cgroup v2: `memory.high`, which slows down and does not kill either.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MEASURE_EVERY: Duration = Duration::from_millis(10);
/// Least that a group may have: the kernel's own pages of a process that starts.
const LEAST: u64 = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// What the page cache of a group was, in bytes, as sampled while a program ran in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PageCache {
    /// What it should be at most.
    pub limit: u64,
    /// On average.
    pub mean: u64,
    /// Most.
    pub peak: u64,
    /// How often it was looked at.
    pub samples: u64,
}

/// Which version of cgroups, which is: how the files are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn limit(self) -> &'static str {
        match self {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.high",
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        }
    }

    /// The page cache in `memory.stat`.
    fn cache(self) -> &'static str {
        match self {
            Version::One => "cache",
            Version::Two => "file",
        }
    }
}

/// A group, limited as long as this value is there.
pub(super) struct Group {
    path: PathBuf,
    cache_bytes: u64,
    stop: Arc<AtomicBool>,
    seen: Arc<Seen>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Seen {
    sum: AtomicU64,
    peak: AtomicU64,
    samples: AtomicU64,
}

/// Where groups of memory are made: below the one that this process is in. `mountinfo` and `own` are what the kernel says in
/// `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn place(mountinfo: &str, own: &str) -> Result<(PathBuf, Version), String> {
    let mounts = || mountinfo.lines().filter_map(|line| line.split_once(" - "));
    let point = |front: &str| front.split(' ').nth(4).map(PathBuf::from);
    let below = |root: PathBuf, group: Option<&str>| match group.map(|group| root.join(group.trim_start_matches('/'))) {
        Some(path) if path.is_dir() => path,
        _ => root,
    };
    let one =
        mounts().find(|(_, back)| back.starts_with("cgroup ") && back.split([' ', ',']).any(|word| word == "memory"));
    if let Some(root) = one.and_then(|(front, _)| point(front)) {
        let group = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let group =
            group.filter(|(which, _)| which.split(',').any(|word| word == "memory")).map(|(_, path)| path).next();
        return Ok((below(root, group), Version::One));
    }
    let two = mounts().find(|(_, back)| back.starts_with("cgroup2 "));
    if let Some(root) = two.and_then(|(front, _)| point(front)) {
        // A group that has processes cannot have groups with limits below it, so it stands at the top.
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if controllers.split_whitespace().any(|word| word == "memory") {
            return Ok((root, Version::Two));
        }
    }
    Err("the kernel has no memory controller of cgroups mounted".into())
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// One line of `memory.stat`.
fn stat(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

impl Group {
    /// Where the group of this name would be.
    pub(super) fn path_of(name: &str) -> Result<PathBuf, String> {
        Self::find().map(|(parent, _)| parent.join(name))
    }

    fn find() -> Result<(PathBuf, Version), String> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        place(&mountinfo, &fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
    }

    /// Makes the group of this name and limits its page cache. The error says why it cannot be.
    pub(super) fn new(name: &str, cache_bytes: u64) -> Result<Group, String> {
        let (parent, version) = Self::find()?;
        let path = parent.join(name);
        if version == Version::Two {
            // As most systems have it already.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        let failed = |error: io::Error| format!("no memory group can be made in {} ({error})", parent.display());
        fs::create_dir(&path).map_err(failed)?;
        Self::watch(path.clone(), version, cache_bytes).inspect_err(|_| drop(fs::remove_dir(&path)))
    }

    fn watch(path: PathBuf, version: Version, cache_bytes: u64) -> Result<Group, String> {
        let failed = |error: io::Error| format!("{} cannot be limited ({error})", path.display());
        fs::write(path.join(version.limit()), (LEAST + cache_bytes).to_string()).map_err(failed)?;
        if version == Version::One {
            fs::write(path.join("memory.oom_control"), "1").map_err(failed)?;
        }
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Seen::default()));
        let watcher = std::thread::Builder::new().name("page-cache".into()).spawn({
            let (path, stop, seen) = (path.clone(), stop.clone(), seen.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    follow(&path, version, cache_bytes, &seen);
                    std::thread::sleep(MEASURE_EVERY);
                }
            }
        });
        let watcher = Mutex::new(Some(watcher.map_err(failed)?));
        Ok(Group { path, cache_bytes, stop, seen, watcher })
    }

    /// The file to which a process writes its number to be in the group.
    pub(super) fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    pub(super) fn page_cache(&self) -> PageCache {
        let samples = self.seen.samples.load(Ordering::Relaxed);
        let mean = self.seen.sum.load(Ordering::Relaxed) / samples.max(1);
        PageCache { limit: self.cache_bytes, mean, peak: self.seen.peak.load(Ordering::Relaxed), samples }
    }

    /// Measures and limits no more.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watcher) = watcher {
            let _ = watcher.join();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Moves the limit to where the programs' own memory is now.
fn follow(path: &Path, version: Version, cache_bytes: u64, seen: &Seen) {
    let usage = number(&path.join(version.usage()));
    let cache = fs::read_to_string(path.join("memory.stat")).ok().and_then(|text| stat(&text, version.cache()));
    let (Some(usage), Some(cache)) = (usage, cache) else { return };
    let limit = usage.saturating_sub(cache).max(LEAST) + cache_bytes;
    // A lower one fails while there is more than that to be written out; the next time it goes.
    let _ = fs::write(path.join(version.limit()), limit.to_string());
    let empty = fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|text| text.trim().is_empty());
    if !empty {
        seen.sum.fetch_add(cache, Ordering::Relaxed);
        seen.peak.fetch_max(cache, Ordering::Relaxed);
        seen.samples.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends all programs in the group at `path` and removes it; nothing where it is gone already. The error is a sentence.
pub(super) fn remove(path: &Path) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let Ok(procs) = fs::read_to_string(path.join("cgroup.procs")) else { return Ok(()) };
        let ids = procs.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?));
        ids.for_each(|id| {
            let _ = kill_process(id, Signal::KILL);
        });
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if Instant::now() < end => std::thread::sleep(MEASURE_EVERY),
            Err(error) => {
                return Err(format!(
                    "the memory group {} cannot be removed ({error}); end what is in it",
                    path.display()
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_below_our_own_group_or_at_the_top() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let one = format!("35 31 0:32 / {root} rw,relatime - cgroup cgroup rw,memory");
        let of = |mounts: &str, own| place(mounts, own);
        assert_eq!(of(&one, "4:memory:/a/b\n0::/c").unwrap(), (dir.path().join("a/b"), Version::One));
        assert_eq!(of(&one, "4:memory:/gone").unwrap(), (dir.path().to_owned(), Version::One));
        assert_eq!(of(&one, "").unwrap(), (dir.path().to_owned(), Version::One));
        let two = format!("41 31 0:38 / {root} rw,relatime - cgroup2 cgroup2 rw");
        assert!(of(&two, "0::/a").unwrap_err().contains("no memory controller"));
        fs::write(dir.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        assert_eq!(of(&two, "0::/a").unwrap(), (dir.path().to_owned(), Version::Two));
        let cpu = format!("35 31 0:32 / {root} rw,relatime - cgroup cgroup rw,cpu\nnonsense");
        assert!(of(&cpu, "1:cpu:/a").is_err());
    }

    #[test]
    fn the_limit_follows_what_is_no_page_cache() {
        for (version, files) in [
            (Version::One, ["memory.limit_in_bytes", "memory.usage_in_bytes", "cache"]),
            (Version::Two, ["memory.high", "memory.current", "file"]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let [limit, usage, cache] = files;
            let seen = Seen::default();
            let look = |used: u64, cached: u64| {
                fs::write(dir.path().join(usage), format!("{used}\n")).unwrap();
                fs::write(dir.path().join("memory.stat"), format!("{cache}_x 1\n{cache} {cached}\nrss 5\n")).unwrap();
                fs::write(dir.path().join("cgroup.procs"), "1\n").unwrap();
                follow(dir.path(), version, 1000, &seen);
                number(&dir.path().join(limit)).unwrap()
            };
            assert_eq!(look(0, 0), LEAST + 1000);
            assert_eq!(look(100 << 20, 30 << 20), (70 << 20) + 1000);
            assert_eq!(look(90 << 20, 10 << 20), (80 << 20) + 1000);
            assert_eq!(
                (seen.peak.into_inner(), seen.sum.into_inner(), seen.samples.into_inner()),
                (30 << 20, 40 << 20, 3)
            );
        }
    }

    #[test]
    fn what_is_gone_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(remove(&dir.path().join("never-there")).is_ok());
    }
}
