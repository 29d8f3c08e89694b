//! The shared-memory survivor: what it keeps through the death of a process, and what it refuses to believe.

use imbrex_device::{Identity, MEM_ALIGN, Region, Survivor, SurvivorKey};
use imbrex_drives::survivor::{HEADER_BYTES, Header, MAX_CAPACITY, NotKept, ShmSurvivor};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

const KEY: SurvivorKey = SurvivorKey { volume: [1; 16], medium: [2; 16], power_epoch: [3; 16], mount: 4 };
const CAPACITY: usize = 256 << 10;
const CHILD: &str = "IMBREX_SURVIVOR_CHILD";

/// A directory that goes away with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        // The real thing where the machine has it, else any file system.
        let name = format!("imbrex-test-{}", uuid::Uuid::new_v4().simple());
        let path = Path::new("/dev/shm").join(&name);
        if std::fs::create_dir(&path).is_ok() {
            return Dir(path);
        }
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Dir(path)
    }
    fn survivor(&self) -> ShmSurvivor {
        survivor_in(&self.0)
    }
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn survivor_in(dir: &Path) -> ShmSurvivor {
    let identity = Identity { name: "x.img".into(), medium: KEY.medium, power_epoch: KEY.power_epoch };
    ShmSurvivor::in_dir(&identity, dir)
}

/// The region as words that several processes may look at.
fn words(region: &dyn Region) -> &[AtomicU64] {
    assert_eq!(region.base().as_ptr() as usize % MEM_ALIGN, 0);
    // SAFETY: aligned, zeroed, `len` bytes long, and only ever used as atomics here.
    unsafe { std::slice::from_raw_parts(region.base().as_ptr().cast(), region.len() / 8) }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().unwrap())
}

/// What the child writes at step `n`: word `1 + n % LAST` holds a value made of `n`, word 0 holds how many are done.
fn value(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Not a test by itself: the process that the next test kills.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let region = survivor_in(Path::new(&dir)).create(&KEY, CAPACITY).unwrap();
    let words = words(region.as_ref());
    let start = std::time::Instant::now();
    for n in 0u64.. {
        words[1 + (n as usize) % (words.len() - 1)].store(value(n), Ordering::Relaxed);
        words[0].store(n + 1, Ordering::Release);
        if n == 1000 {
            println!("writing");
        }
        // Should the parent have failed, nobody kills us.
        if n % (1 << 20) == 0 && start.elapsed().as_secs() > 30 {
            return;
        }
    }
}

#[test]
fn what_a_killed_process_wrote_is_left_behind() {
    let dir = Dir::new();
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, &dir.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap().contains("writing")), "the child ended early");
        std::thread::sleep(std::time::Duration::from_millis(20));
        child.kill().unwrap();
        child.wait().unwrap();

        let bytes = dir.survivor().left_behind(&KEY).unwrap().expect("the killed process's region");
        assert_eq!(bytes.len(), CAPACITY);
        let (done, slots) = (word(&bytes, 0), CAPACITY as u64 / 8 - 1);
        assert!(done > 1000, "the child had said that it is writing");
        // Everything before the published count is there; the slot being overwritten may already hold the next value.
        for n in done.saturating_sub(slots)..done {
            let found = word(&bytes, 1 + (n % slots) as usize);
            assert!(found == value(n) || n + slots == done && found == value(done), "step {n} of {done}");
        }
    }
    assert_eq!(dir.names().len(), 1, "nothing but the region may stay: {:?}", dir.names());
}

#[test]
fn a_region_is_private_allocated_and_stays_until_discarded() {
    let dir = Dir::new();
    let survivor = dir.survivor();
    assert!(survivor.left_behind(&KEY).unwrap().is_none());
    let region = survivor.create(&KEY, CAPACITY).unwrap();
    assert_eq!(region.len(), CAPACITY);
    words(region.as_ref())[CAPACITY / 8 - 1].store(77, Ordering::Relaxed);
    drop(region);

    let facts = std::fs::metadata(survivor.path(&KEY.volume)).unwrap();
    assert_eq!(facts.permissions().mode() & 0o777, 0o600);
    assert_eq!(facts.len(), CAPACITY as u64 + HEADER_BYTES);
    assert!(facts.blocks() * 512 >= facts.len(), "every byte is backed");
    let bytes = survivor.left_behind(&KEY).unwrap().unwrap();
    assert_eq!(word(&bytes, CAPACITY / 8 - 1), 77);

    survivor.discard(&KEY.volume).unwrap();
    survivor.discard(&KEY.volume).unwrap();
    assert!(survivor.left_behind(&KEY).unwrap().is_none());
    assert!(dir.names().is_empty());
}

#[test]
fn another_key_sees_nothing_and_create_replaces_what_is_stale() {
    let dir = Dir::new();
    let survivor = dir.survivor();
    let old = survivor.create(&KEY, CAPACITY).unwrap();
    words(old.as_ref())[0].store(1, Ordering::Relaxed);
    for other in [
        SurvivorKey { volume: [9; 16], ..KEY },
        SurvivorKey { medium: [9; 16], ..KEY },
        SurvivorKey { power_epoch: [9; 16], ..KEY },
        SurvivorKey { mount: 5, ..KEY },
    ] {
        assert!(survivor.left_behind(&other).unwrap().is_none(), "{other:?}");
    }
    let next = SurvivorKey { mount: 5, ..KEY };
    let new = survivor.create(&next, 2 * CAPACITY).unwrap();
    assert!(survivor.left_behind(&KEY).unwrap().is_none());
    let bytes = survivor.left_behind(&next).unwrap().unwrap();
    assert!(bytes.len() == 2 * CAPACITY && bytes.iter().all(|b| *b == 0));
    // The old region is still memory, it is only no longer anybody's file.
    words(old.as_ref())[1].store(2, Ordering::Relaxed);
    assert_eq!(words(old.as_ref())[0].load(Ordering::Relaxed), 1);
    drop(new);
}

#[test]
fn a_copied_image_does_not_replace_the_original_s_region() {
    let dir = Dir::new();
    let original = dir.survivor();
    let region = original.create(&KEY, CAPACITY).unwrap();
    words(region.as_ref())[0].store(5, Ordering::Relaxed);
    let identity = Identity { name: "copy.img".into(), medium: [8; 16], power_epoch: KEY.power_epoch };
    let copy = ShmSurvivor::in_dir(&identity, &dir.0);
    let key = SurvivorKey { medium: [8; 16], ..KEY };
    assert!(copy.left_behind(&key).unwrap().is_none());
    copy.create(&key, CAPACITY).unwrap();
    copy.discard(&KEY.volume).unwrap();
    assert_eq!(word(&original.left_behind(&KEY).unwrap().unwrap(), 0), 5);
    // The original's file under the copy's name is still the original's.
    std::fs::copy(original.path(&KEY.volume), copy.path(&KEY.volume)).unwrap();
    assert!(copy.left_behind(&key).unwrap().is_none());
}

#[test]
fn files_that_are_not_exactly_ours_count_as_nothing() {
    let dir = Dir::new();
    let survivor = dir.survivor();
    let path = survivor.path(&KEY.volume);
    let good = || {
        let _ = std::fs::remove_file(&path);
        drop(survivor.create(&KEY, CAPACITY).unwrap());
        assert!(survivor.left_behind(&KEY).unwrap().is_some(), "the good file is believed");
    };
    let none = |what: &str| assert!(survivor.left_behind(&KEY).unwrap().is_none(), "{what} was believed");
    let open = || std::fs::OpenOptions::new().write(true).open(&path).unwrap();

    for mode in [0o640, 0o604, 0o660, 0o666] {
        good();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        none(&format!("mode {mode:o}"));
    }
    for len in [0, 10, HEADER_BYTES, HEADER_BYTES + 1, HEADER_BYTES + CAPACITY as u64 - 1] {
        good();
        open().set_len(len).unwrap();
        none(&format!("a file of {len} bytes"));
    }
    good();
    open().set_len(HEADER_BYTES + CAPACITY as u64 + 1).unwrap();
    none("a file too long");
    for at in [0, 8, 12, 16, 40, 64, 72, 84] {
        good();
        open().write_all_at(&[0xa5], at).unwrap();
        none(&format!("a header changed at {at}"));
    }
    good();
    let longer = Header { key: KEY, capacity: 2 * CAPACITY as u64 }.encode();
    open().write_all_at(&longer, 0).unwrap();
    none("an intact header of another capacity");
    good();
    std::fs::hard_link(&path, dir.0.join("other-name")).unwrap();
    none("a file with two names");

    // Symbolic links are not followed, neither to read nor to write.
    let target = dir.0.join("target");
    good();
    std::fs::rename(&path, &target).unwrap();
    std::fs::remove_file(dir.0.join("other-name")).unwrap();
    symlink(&target, &path).unwrap();
    none("a symbolic link");
    let before = std::fs::read(&target).unwrap();
    let region = survivor.create(&KEY, CAPACITY).unwrap();
    words(region.as_ref())[0].store(u64::MAX, Ordering::Relaxed);
    assert_eq!(std::fs::read(&target).unwrap(), before, "the link's target was written");
    assert!(!std::fs::symlink_metadata(&path).unwrap().file_type().is_symlink());

    // Neither a directory nor a fifo stops or delays a mount.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    none("a directory");
    std::fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    none("a fifo");
}

/// The bytes of another user's killed process are neither believed nor thrown away.
#[test]
fn a_file_of_another_user_is_refused_where_it_is_this_drives_memory() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: only root can give a file away");
        return;
    }
    let dir = Dir::new();
    let survivor = dir.survivor();
    drop(survivor.create(&KEY, CAPACITY).unwrap());
    let path = survivor.path(&KEY.volume);
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    let not_kept = NotKept(dir.survivor());
    for refused in [survivor.left_behind(&KEY), not_kept.left_behind(&KEY)] {
        let text = refused.unwrap_err().to_string();
        for part in [
            "x.img",
            "user 65534 used it last",
            path.to_str().unwrap(),
            "sudo -u '#65534'",
            "read-only=on&survivor=off",
        ] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
    // Of a mount that is over: nobody needs it.
    let next = SurvivorKey { mount: 5, ..KEY };
    assert!(survivor.left_behind(&next).unwrap().is_none());
    std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    assert!(survivor.left_behind(&KEY).unwrap().is_some());
}

#[test]
fn a_mount_that_keeps_nothing_takes_over_what_was_kept() {
    let dir = Dir::new();
    words(dir.survivor().create(&KEY, CAPACITY).unwrap().as_ref())[3].store(7, Ordering::Relaxed);
    let not_kept = NotKept(dir.survivor());
    assert!(!not_kept.keeps() && dir.survivor().keeps());
    assert_eq!(word(&not_kept.left_behind(&KEY).unwrap().unwrap(), 3), 7);
    let next = SurvivorKey { mount: 5, ..KEY };
    let error =
        not_kept.create_filled(&next, CAPACITY, &mut |_| Err(imbrex_device::Error::unusable(&"x".into(), "no")));
    assert!(error.is_err() && dir.names().len() == 1, "it is needed until the next one has its bytes");
    let region = not_kept.create(&next, CAPACITY).unwrap();
    words(region.as_ref())[3].store(8, Ordering::Relaxed);
    assert!(dir.names().is_empty() && not_kept.left_behind(&next).unwrap().is_none());
    // Where there is no shared memory, there is nothing to take over.
    let nowhere = NotKept(survivor_in(&dir.0.join("missing")));
    assert!(nowhere.left_behind(&KEY).unwrap().is_none());
    nowhere.create(&KEY, CAPACITY).unwrap();
    nowhere.discard(&KEY.volume).unwrap();
}

#[test]
fn too_little_room_is_said_at_once_and_leaves_no_trace() {
    let dir = Dir::new();
    let fs = rustix::fs::statvfs(&dir.0).unwrap();
    let capacity = fs.f_bavail * fs.f_frsize + (1 << 30);
    assert!(capacity < MAX_CAPACITY, "this machine has more than a terabyte of shared memory");
    let survivor = dir.survivor();
    drop(survivor.create(&KEY, CAPACITY).unwrap());
    let Err(error) = survivor.create(&KEY, capacity as usize) else { panic!("more than the machine has") };
    let text = error.to_string();
    for part in ["x.img", "KiB free", "survivor=off", "IMBREX_SHM_DIR"] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    assert!(survivor.left_behind(&KEY).unwrap().is_some(), "the old region stays until a new one is complete");
    assert_eq!(dir.names().len(), 1, "a temporary file was left: {:?}", dir.names());
}

#[test]
fn a_directory_that_cannot_be_used_is_said_with_the_way_out() {
    let dir = Dir::new();
    let file = dir.0.join("file");
    std::fs::write(&file, b"x").unwrap();
    for bad in [dir.0.join("missing"), file] {
        let survivor = survivor_in(&bad);
        for error in [survivor.left_behind(&KEY).err(), survivor.create(&KEY, CAPACITY).err()] {
            let text = error.expect("an error").to_string();
            for part in [bad.to_str().unwrap(), "survivor=off", "IMBREX_SHM_DIR"] {
                assert!(text.contains(part), "{text:?} lacks {part:?}");
            }
        }
    }
}

#[test]
fn impossible_capacities_and_foreign_media_are_refused() {
    let dir = Dir::new();
    let survivor = dir.survivor();
    assert!(survivor.create(&KEY, 0).is_err());
    assert!(survivor.create(&KEY, usize::MAX).is_err());
    assert!(survivor.create(&SurvivorKey { medium: [9; 16], ..KEY }, CAPACITY).is_err());
    assert!(dir.names().is_empty());
}

#[test]
fn a_wiped_directory_under_a_running_process_crashes_nothing() {
    let dir = Dir::new();
    let survivor = dir.survivor();
    let region = survivor.create(&KEY, CAPACITY).unwrap();
    std::fs::remove_dir_all(&dir.0).unwrap();
    for word in words(region.as_ref()) {
        word.store(3, Ordering::Relaxed);
    }
    survivor.discard(&KEY.volume).unwrap();
    assert!(survivor.create(&KEY, CAPACITY).is_err());
    assert_eq!(words(region.as_ref())[0].load(Ordering::Relaxed), 3);
}

#[test]
fn what_a_half_done_create_left_is_swept_by_the_next() {
    let dir = Dir::new();
    let survivor = dir.survivor();
    let name = survivor.path(&KEY.volume).file_name().unwrap().to_str().unwrap().to_owned();
    std::fs::write(dir.0.join(format!(".{name}.dead")), b"half").unwrap();
    std::fs::write(dir.0.join("imbrex-of-somebody-else"), b"theirs").unwrap();
    drop(survivor.create(&KEY, CAPACITY).unwrap());
    let mut names = dir.names();
    names.sort();
    assert_eq!(names, [name, "imbrex-of-somebody-else".to_owned()]);
}
