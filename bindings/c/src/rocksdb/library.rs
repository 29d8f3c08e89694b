//! Which file is loaded: one beside this program or library, which is for a RocksDB that is here.

use super::guest::{ENTRY, Entry, Guest, Rocks, functions};
use imbrex_bluefs::BlueFs;
use imbrex_device::{Code, Error, Result};
use imbrex_store::rocksdb::{Database, DatabaseOptions, RocksDb};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What stands before and behind the version in the file's name.
const NAME: (&str, &str) = ("librocksdb_kv_imbrex-", ".so");

/// `const std::string rocksdb::GetRocksVersionAsString(bool)`: who has this has RocksDB.
const ROCKSDB: &CStr = c"_ZN7rocksdb23GetRocksVersionAsStringB5cxx11Eb";

const RTLD_NOW: c_int = 2;

#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

#[link(name = "dl")]
unsafe extern "C" {
    fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// The library with RocksDB, which is loaded when the first store wants it, and stays. What came of that counts for the whole process.
#[derive(Debug)]
pub struct Library {
    directories: Vec<PathBuf>,
    loaded: OnceLock<std::result::Result<Guest, String>>,
}

/// A version of RocksDB, as 7.8.
type Version = (u32, u32);

fn version_of(text: &str) -> Option<Version> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The version that the name of one of our libraries has.
fn version_of_ours(name: &OsStr) -> Option<Version> {
    version_of(name.to_str()?.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?)
}

/// The version that the name of RocksDB's library has, as librocksdb.so.7.8 and librocksdb.so.7.8.3.
fn version_of_rocksdb(file: &Path) -> Option<Version> {
    let (_, version) = file.file_name()?.to_str()?.rsplit_once("librocksdb.so.")?;
    let mut parts = version.splitn(3, '.');
    version_of(&format!("{}.{}", parts.next()?, parts.next()?))
}

/// Our libraries of these, the newest version first, of the first directory that has any.
fn ours_in(directories: &[PathBuf]) -> Vec<(Version, PathBuf)> {
    for directory in directories {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut found: Vec<(Version, PathBuf)> =
            entries.filter_map(|entry| Some((version_of_ours(&entry.file_name())?, entry.path()))).collect();
        if !found.is_empty() {
            found.sort_unstable_by(|a, b| b.cmp(a));
            return found;
        }
    }
    Vec::new()
}

/// The file that an address of this process is in.
fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = DlInfo {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    // SAFETY: it looks the address up and writes the struct.
    let found = unsafe { dladdr(address, &mut info) } != 0 && !info.file.is_null();
    // SAFETY: a string of the dynamic linker, of a file that stays loaded.
    found.then(|| PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(info.file) }.to_bytes())))
}

/// The file of a line of `/proc/self/maps`, if the address is in it: `from-to rights offset device inode path`.
fn mapped_by(line: &str, address: u64) -> Option<&Path> {
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
    // No field before the path has a slash.
    let path = &line[line.find('/')?..];
    (from..to).contains(&address).then(|| Path::new(path))
}

/// The same file, whose name begins at the root. The dynamic linker has the name that somebody gave it, which may be relative to a directory that this process has left:
/// another library may stand there by now. The kernel knows which file it is.
fn absolute(file: PathBuf, address: *const c_void) -> Option<PathBuf> {
    if file.is_absolute() {
        return Some(file);
    }
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    maps.lines().find_map(|line| mapped_by(line, address as u64)).map(Path::to_owned)
}

/// Whether a file is a library and no program, by its name: it ends with `.so`, or with `.so.` and a version.
fn is_library(file: &Path) -> bool {
    let Some(name) = file.file_name().and_then(OsStr::to_str) else { return false };
    let is_version = |rest: &str| rest.split('.').all(|part| part.parse::<u32>().is_ok());
    name.ends_with(".so") || name.rsplit_once(".so.").is_some_and(|(_, version)| is_version(version))
}

/// The file with the RocksDB that every library of this process sees, if there is one.
fn rocksdb_here() -> Option<PathBuf> {
    // SAFETY: NULL is RTLD_DEFAULT: all that is visible to all.
    let found = unsafe { dlsym(std::ptr::null_mut(), ROCKSDB.as_ptr()) };
    if found.is_null() { None } else { Some(file_of(found).unwrap_or_default()) }
}

/// Loads one of our libraries; or why not.
fn load(path: &Path) -> std::result::Result<Guest, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name has a zero byte".to_owned())?;
    // SAFETY: a file of ours, or one that somebody has put in its place beside this program. Its names are seen by nobody else (RTLD_LOCAL is 0).
    let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
    if library.is_null() {
        // SAFETY: the sentence of this thread's last failure.
        let why = unsafe { dlerror() };
        let why = if why.is_null() {
            "?".into()
        } else {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned()
        };
        return Err(format!("it cannot be loaded ({why})"));
    }
    // SAFETY: the library is loaded, and stays so.
    let entry = unsafe { dlsym(library, ENTRY.as_ptr()) };
    if entry.is_null() {
        return Err("it is another library; install it anew".to_owned());
    }
    // SAFETY: the symbol of our libraries has this type, and each checks the version before it does anything else.
    unsafe { functions(std::mem::transmute::<*mut c_void, Entry>(entry)) }
}

impl Library {
    /// One of these directories, the first that has any.
    pub fn of(directories: Vec<PathBuf>) -> Library {
        Library { directories, loaded: OnceLock::new() }
    }

    /// Beside libimbrex.so, where this is that one; else beside the program, or where `make install` puts libraries of a program.
    pub fn beside() -> Library {
        let here = Library::beside as *const c_void;
        let own = file_of(here).and_then(|file| absolute(file, here));
        let directory = |file: &Path| file.parent().map(Path::to_owned).unwrap_or_default();
        if let Some(library) = own.filter(|file| is_library(file)) {
            return Library::of(vec![directory(&library)]);
        }
        let beside = std::env::current_exe().map(|program| directory(&program)).unwrap_or_default();
        let lib = beside.join("../lib");
        let multiarch = lib.join(format!("{}-linux-gnu", std::env::consts::ARCH));
        Library::of(vec![beside, lib, multiarch])
    }

    /// Loads what fits; or a sentence why nothing does.
    fn find(&self) -> std::result::Result<Guest, String> {
        let all = ours_in(&self.directories);
        let of_process = rocksdb_here();
        let wanted = of_process.as_deref().map(version_of_rocksdb);
        let fits = |version: Version| wanted.is_none_or(|wanted| wanted == Some(version));
        let mut why = match (&of_process, &all[..]) {
            (_, []) => {
                let first = self.directories.first().map(|directory| directory.display().to_string());
                let name = format!("{}*{}", NAME.0, NAME.1);
                return Err(format!("{name} is not in {}; `make build` makes it", first.unwrap_or_default()));
            }
            // Two in one process get mixed, since each name is found in whichever was there first.
            (Some(file), [.., (_, ours)]) => format!(
                "this process uses the RocksDB of {}, and {} is for another one; build Imbrex against that one",
                file.display(),
                ours.display()
            ),
            (None, _) => String::new(),
        };
        for (_, path) in all.iter().filter(|(version, _)| fits(*version)) {
            match load(path) {
                Ok(guest) => return Ok(guest),
                Err(reason) => why = format!("{}: {reason}", path.display()),
            }
        }
        Err(why)
    }

    fn guest(&self) -> Result<Guest> {
        let found = self.loaded.get_or_init(|| self.find());
        found.clone().map_err(|why| {
            let sentence = format!("the metadata are to be in RocksDB, and the library for that is missing: {why}");
            Error::refused(Code::NotSupported, "", sentence)
        })
    }
}

impl RocksDb for Library {
    fn load(&self) -> Result<()> {
        self.guest().map(drop)
    }

    fn open(&self, files: BlueFs, options: DatabaseOptions) -> Result<Box<dyn Database>> {
        Ok(Box::new(Rocks::open(self.guest()?, files, options)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_names() {
        assert_eq!(version_of_ours(OsStr::new("librocksdb_kv_imbrex-7.8.so")), Some((7, 8)));
        assert_eq!(version_of_ours(OsStr::new("librocksdb_kv_imbrex-10.4.so")), Some((10, 4)));
        for other in ["librocksdb_imbrex-7.8.so", "librocksdb_kv_imbrex-7.so", "librocksdb_kv_imbrex-7.8.so.new", ""] {
            assert_eq!(version_of_ours(OsStr::new(other)), None, "{other}");
        }
        for name in ["/usr/lib/librocksdb.so.7.8", "librocksdb.so.7.8.3"] {
            assert_eq!(version_of_rocksdb(Path::new(name)), Some((7, 8)), "{name}");
        }
        assert_eq!(version_of_rocksdb(Path::new("/usr/bin/ceph-osd")), None);
    }

    #[test]
    fn a_library_is_told_from_a_program_by_its_name() {
        for library in ["/usr/lib/libimbrex.so", "/usr/lib/libimbrex.so.1", "libimbrex.so.1.2"] {
            assert!(is_library(Path::new(library)), "{library}");
        }
        for program in ["/usr/bin/imbrex", "/usr/bin/imbrex.source", "/a.so/imbrex", "imbrex.so.bak", "imbrex.so.", ""]
        {
            assert!(!is_library(Path::new(program)), "{program}");
        }
    }

    #[test]
    fn a_relative_name_is_no_directory_to_load_from() {
        let here = is_library as *const c_void;
        let this = std::env::current_exe().unwrap();
        assert_eq!(absolute("./other/lib.so".into(), here), Some(this));
        assert_eq!(absolute("/a/lib.so".into(), here), Some("/a/lib.so".into()));
        assert_eq!(absolute("lib.so".into(), std::ptr::null()), None);
        let line = "7f00-7f10 r-xp 00002000 fe:01 12   /a b/lib.so";
        assert_eq!(mapped_by(line, 0x7f0f), Some(Path::new("/a b/lib.so")));
        for (line, address) in [(line, 0x7f10), ("7f00-7f10 rw-p 0 00:00 0", 0x7f00), ("", 0), ("x-y /z", 0)] {
            assert_eq!(mapped_by(line, address), None, "{line}");
        }
    }

    #[test]
    fn the_newest_of_the_first_directory_that_has_any_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, there) = (dir.path().join("empty"), dir.path().join("there"));
        std::fs::create_dir(&empty).unwrap();
        std::fs::create_dir(&there).unwrap();
        for name in
            ["librocksdb_kv_imbrex-7.8.so", "librocksdb_kv_imbrex-10.4.so", "librocksdb_kv_imbrex-9.11.so", "x.so"]
        {
            std::fs::write(there.join(name), "").unwrap();
        }
        let found = ours_in(&[dir.path().join("none"), empty.clone(), there]);
        let versions: Vec<Version> = found.iter().map(|(version, _)| *version).collect();
        assert_eq!(versions, [(10, 4), (9, 11), (7, 8)]);
        let missing = Library::of(vec![empty]).load().unwrap_err();
        assert_eq!(missing.code(), Code::NotSupported);
        assert!(missing.to_string().contains("librocksdb_kv_imbrex-*.so is not in"), "{missing}");
    }
}
