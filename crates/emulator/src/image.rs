//! Drive images: a drive in a sparse file (and siblings where one file would be too large), used by one process at a
//! time. The file's front is mapped shared, so that what was acknowledged outlives the process; `docs/on-disk-format.md` draws it.
//!
//! Order of a write: bytes into the file, then one store to the zone's word. Order of a reset: the zone's word, then the
//! hole. Killed between the two, a write has not happened and a reset has.

mod header;
pub(crate) mod lock;
mod observe;
mod parts;
mod time_file;

pub use header::{Header, decode_header};
pub use observe::{Observed, Observer};
pub use parts::{copy_image, remove_image, rename_image};
pub(crate) use time_file::TimeFile;
pub use time_file::{TimeHeader, decode_time_header, time_path};

use crate::cache::AtRisk;
use crate::config::Config;
use crate::drive::{Emulator, Inner, Mode, Parts, hash16};
use crate::faults::FaultState;
use crate::power::seeded;
use crate::preimage::PreImages;
use crate::region::Region;
use crate::state::{Layout, PAGE, State, unsealed_hash};
use crate::store::{Store, file::Files};
use crate::time::{Mechanics, Model};
use crate::trace::Trace;
use imbrex_device::words::not_permitted;
use imbrex_device::{Error, Holder, Identity, Result};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Data of one file; the siblings of a larger drive stand beside it. ext4 ends at 16 TiB.
const DATA_PER_FILE: u64 = 8 << 40;
/// Data begins at a multiple of this.
const DATA_ALIGN: u64 = 1 << 20;

/// How to open an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// A flush reaches the host's disk. Without it an image survives the death of every process, not of the host.
    pub host_sync: bool,
    /// Nothing is written; several processes may have it so.
    pub read_only: bool,
}

/// `path`, `path.1`, `path.2`, …
fn sibling(path: &Path, index: u32) -> PathBuf {
    if index == 0 { path.to_owned() } else { suffixed(path, &index.to_string()) }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Where the trace of the image at `path` stands, if there is one.
pub fn trace_path(path: &Path) -> PathBuf {
    suffixed(path, "trace")
}

fn name_of(path: &Path) -> Arc<str> {
    path.display().to_string().into()
}

fn unusable<T>(path: &Path, sentence: impl Into<Arc<str>>) -> Result<T> {
    Err(Error::unusable(&name_of(path), sentence))
}

/// A failure of the host's kind `kind`, which callers turn into a code of theirs, told in a whole sentence.
fn refused(path: &Path, kind: ErrorKind, sentence: impl Into<String>) -> Error {
    Error::io(&name_of(path), io::Error::new(kind, sentence.into()))
}

/// Bytes of the image that are missing or not what they were.
fn damaged<T>(path: &Path, sentence: impl Into<String>) -> Result<T> {
    Err(Error::damaged(&name_of(path), sentence))
}

/// A sentence for an error of the host where there is one.
fn host_error(path: &Path, what: &str, error: io::Error) -> Error {
    let name = name_of(path);
    match error.kind() {
        kind @ ErrorKind::PermissionDenied => {
            let advice = not_permitted("run as its owner or change its mode");
            refused(path, kind, format!("no permission to {what} this file; {advice}"))
        }
        kind @ ErrorKind::ReadOnlyFilesystem => {
            refused(path, kind, "the file is on a read-only file system; open it read-only or copy it elsewhere")
        }
        kind @ ErrorKind::StorageFull => {
            refused(path, kind, "the host's disk is full; make room on it, or name a path on another one")
        }
        ErrorKind::FileTooLarge => Error::unusable(
            &name,
            "the host's file system or file size limit does not allow a sparse file this large; use a smaller \
             --capacity or another file system",
        ),
        kind @ ErrorKind::NotFound => refused(path, kind, "the directory does not exist; create it first"),
        _ => Error::io(&name, error),
    }
}

impl Emulator {
    /// Makes an image of a new drive at `path` and opens it. What exists there is only overwritten with `force`, and never
    /// while a process has it open.
    pub fn create(path: &Path, config: &Config, force: bool) -> Result<Emulator> {
        Self::create_split(path, config, force, DATA_PER_FILE)
    }

    pub(crate) fn create_split(path: &Path, config: &Config, force: bool, data_per_file: u64) -> Result<Emulator> {
        config.check()?;
        let config = Config { uuid: *uuid::Uuid::new_v4().as_bytes(), ..config.clone() };
        let layout = Layout::of(&config);
        let zones_per_file = u32::try_from((data_per_file / config.zone_size).max(1)).unwrap_or(u32::MAX);
        let header = Header {
            config: config.clone(),
            index: 0,
            files: config.zones().div_ceil(zones_per_file),
            zones_per_file,
            data_at: (layout.total() as u64).next_multiple_of(DATA_ALIGN),
            ring_len: layout.ring_len as u64,
        };
        match force {
            true => (1..header.files).try_for_each(|number| parts::foreign(path, number))?,
            // What is at the path itself is refused below.
            false if fs::symlink_metadata(path).is_err() => parts::check_room(path, header.files)?,
            false => {}
        }
        let (file, lock) = claim_path(path, force)?;
        // Left by an earlier drive, whose first file is gone or was just emptied. Without `force` what comes now is somebody else's.
        for part in parts::parts_beside(path).iter().filter(|_| force) {
            fs::remove_file(part).map_err(|error| host_error(part, "remove", error))?;
        }
        fill(path, &file, &header)?;
        drop((file, lock));
        Self::open(path, OpenOptions::default())
    }

    /// Opens the image at `path`. Fails with `Busy` while another process has it, with a sentence where it is no image, was
    /// truncated or damaged, or was made by a newer version.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Emulator> {
        let name = name_of(path);
        let (main, meta) = open_main(path, !options.read_only)?;
        let lock = lock::take(&main, &meta, options.read_only).map_err(|error| match error {
            lock::Refused::Busy(by) if by.is_empty() => Error::busy(&name, noted_holder(path)),
            lock::Refused::Busy(by) => Error::busy(&name, by),
            lock::Refused::Io(error) => Error::io(&name, error),
        })?;
        let header = read_header(path, &main)?;
        let mut files = vec![main];
        for index in 1..header.files {
            files.push(open_sibling(path, index, &header, !options.read_only)?);
        }
        check_lengths(path, &header, &files)?;
        let state = map_state(path, &header.config, &files[0], !options.read_only)?;
        let boot = boot_id();
        let pre_images = resume(path, &header.config, &state, options, &boot)?;
        let config = Config { name: name.to_string(), write_cache: state.write_cache(), ..header.config };
        let (dev, ino) = (meta.dev().to_le_bytes(), meta.ino().to_le_bytes());
        let identity = Identity {
            name,
            medium: hash16(&[&config.uuid, &dev, &ino]),
            power_epoch: hash16(&[&config.uuid, &dev, &ino, &state.epoch().to_le_bytes(), boot.as_bytes()]),
        };
        let store = Store::File(Files {
            files,
            _lock: Some(lock),
            zone_size: config.zone_size,
            zones_per_file: header.zones_per_file,
            data_at: [header.data_at, DATA_ALIGN],
        });
        let mode = Mode { read_only: options.read_only, host_sync: options.host_sync, image: true };
        let drive = Self::assemble(Parts {
            config,
            identity,
            state,
            store,
            pre_images,
            faults: FaultState::default(),
            mode,
            home: (!options.read_only).then(|| path.to_owned()),
        });
        if !options.read_only {
            drive.inner.trace.attach(Trace::open_existing(&trace_path(path))?);
        }
        Ok(drive)
    }

    /// From the next opening on, the times of the drive in the image at `path` shrink with its scale, or they do not. Fails with `Busy` while another process
    /// has it.
    pub fn change_mechanics(path: &Path, mechanics: Mechanics) -> Result<()> {
        // Whoever has it open keeps the others out.
        let drive = Self::open(path, OpenOptions::default())?;
        let (main, _) = open_main(path, true)?;
        let mut header = read_header(path, &main)?;
        header.config.model = header.config.model.map(|model| Model { mechanics, ..model });
        for index in 0..header.files {
            let at = sibling(path, index);
            let write = |file: File| file.write_all_at(&Header { index, ..header.clone() }.encode(), 0);
            let file = File::options().write(true).open(&at);
            file.and_then(write).map_err(|error| host_error(&at, "write", error))?;
        }
        drop(drive);
        Ok(())
    }

    /// Lets the image at `path` go through a power loss whose outcome follows from `seed`. Returns what was at risk.
    pub fn power_loss_image(path: &Path, seed: u64) -> Result<Vec<AtRisk>> {
        let drive = Self::open(path, OpenOptions::default())?;
        let at_risk = drive.unflushed();
        drive.inner.lose_power(&mut seeded(seed), true).map_err(|error| Error::io(&drive.name(), error))?;
        Ok(at_risk)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.keep_clock();
        if self.mode.image && !self.mode.read_only {
            self.state.set_holder(0);
        }
    }
}

/// Who noted itself as the image's user, where the system names nobody (another PID namespace).
fn noted_holder(path: &Path) -> Vec<Holder> {
    let noted = Observer::open(path).ok().and_then(|seen| seen.noted_holder());
    noted.map(|pid| Holder { pid, name: String::new() }).into_iter().collect()
}

/// The first file of an image that is made.
enum First {
    /// It gets its name when all of the image is there.
    New(parts::Unnamed),
    /// One that was there, emptied and locked.
    Emptied(File),
}

impl First {
    fn file(&self) -> &File {
        match self {
            First::New(new) => new.file(),
            First::Emptied(file) => file,
        }
    }
}

/// Makes a file for `path`, or empties what is there if that is wanted and nobody uses it. Either is locked.
fn claim_path(path: &Path, force: bool) -> Result<(First, lock::Lock)> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Of an image that was removed without it.
            time_file::forget(path);
            let new = parts::Unnamed::beside(path)?;
            let lock = lock::take_new(new.file()).map_err(|error| Error::io(&name_of(path), error))?;
            return Ok((First::New(new), lock));
        }
        Err(error) => return Err(host_error(path, "look at", error)),
        Ok(meta) if !meta.is_file() => {
            return unusable(path, "this is not a regular file; a drive image can only replace a regular file");
        }
        Ok(_) if !force => {
            return unusable(path, "this file exists; use another path, or --force to destroy what is in it");
        }
        Ok(_) => {}
    }
    let mut options = File::options();
    options.read(true).write(true);
    let file = options.open(path).map_err(|e| host_error(path, "write", e))?;
    let meta = file.metadata().map_err(|e| Error::io(&name_of(path), e))?;
    let lock = lock::take(&file, &meta, false).map_err(|error| match error {
        lock::Refused::Busy(by) => Error::busy(&name_of(path), by),
        lock::Refused::Io(error) => Error::io(&name_of(path), error),
    })?;
    if read_header(path, &file).is_ok() {
        let _ = fs::remove_file(trace_path(path));
    }
    time_file::forget(path);
    file.set_len(0).map_err(|e| host_error(path, "write", e))?;
    Ok((First::Emptied(file), lock))
}

/// Lays the image out. Its parts get their names when all of them are there, and the first file its header and its name behind them: half an
/// image is none. What is taken back when it fails was made here.
fn fill(path: &Path, first: &First, header: &Header) -> Result<()> {
    let fail = |error| host_error(path, "write", error);
    let (file, layout) = (first.file(), Layout::of(&header.config));
    // Real zeros: every page of the mapping has its block on the host before anyone stores to it.
    let zeros = vec![0; 1 << 20];
    for at in (0..layout.total()).step_by(zeros.len()) {
        let n = zeros.len().min(layout.total() - at);
        file.write_all_at(&zeros[..n], at as u64).map_err(fail)?;
    }
    file.set_len(header.file_len(0)).map_err(fail)?;
    let region = Region::map(file, layout.total(), true).map_err(fail)?;
    State { region, layout }.initialise(&header.config);
    let mut others = Vec::new();
    for index in 1..header.files {
        let path = sibling(path, index);
        let other = parts::Unnamed::beside(&path)?;
        other.file().set_len(header.file_len(index)).map_err(fail)?;
        other.file().write_all_at(&Header { index, ..header.clone() }.encode(), 0).map_err(fail)?;
        other.file().sync_all().map_err(fail)?;
        others.push((other, path));
    }
    let mut made = parts::Made::default();
    if let First::Emptied(_) = first {
        made.push(path);
    }
    for (other, path) in &others {
        other.name(path, &mut made)?;
    }
    file.write_all_at(&header.encode(), 0).map_err(fail)?;
    file.sync_all().map_err(fail)?;
    if let First::New(new) = first {
        new.name(path, &mut made)?;
    }
    made.keep();
    Ok(())
}

const DIRECTORY: &str = "this is a directory, not a drive image; name the image in it";

fn open_main(path: &Path, write: bool) -> Result<(File, fs::Metadata)> {
    let file = File::options().read(true).write(write).open(path).map_err(|error| match error.kind() {
        kind @ ErrorKind::NotFound => match parts::parts_beside(path).first() {
            Some(part) => refused(path, kind, parts::first_is_gone(path, part)),
            None => refused(
                path,
                kind,
                "there is no such file; make a drive with `imbrex drive create PATH --profile NAME`",
            ),
        },
        ErrorKind::IsADirectory => Error::unusable(&name_of(path), DIRECTORY),
        _ => host_error(path, if write { "write" } else { "read" }, error),
    })?;
    let meta = file.metadata().map_err(|error| Error::io(&name_of(path), error))?;
    if meta.is_dir() {
        return unusable(path, DIRECTORY);
    }
    if !meta.is_file() {
        return unusable(path, "this is not a regular file, so it is no drive image; name a regular file");
    }
    Ok((file, meta))
}

fn read_header(path: &Path, file: &File) -> Result<Header> {
    let mut bytes = Vec::with_capacity(PAGE);
    let mut page = [0; PAGE];
    let mut at = 0;
    while bytes.len() < PAGE {
        let n = file.read_at(&mut page[..PAGE - bytes.len()], at).map_err(|error| Error::io(&name_of(path), error))?;
        if n == 0 {
            break;
        }
        bytes.extend_from_slice(&page[..n]);
        at += n as u64;
    }
    decode_header(&bytes).or_else(|sentence| match header::was_ours(&bytes) {
        true => damaged(path, sentence),
        false => unusable(path, sentence),
    })
}

fn open_sibling(path: &Path, index: u32, first: &Header, write: bool) -> Result<File> {
    let part = sibling(path, index);
    let file = match File::options().read(true).write(write).open(&part) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let part = part.display();
            let sentence = format!(
                "{part} is missing, in which the drive goes on (one file holds at most 8T); put it back beside the others"
            );
            return damaged(path, sentence);
        }
        Err(error) => return Err(host_error(&part, "open", error)),
    };
    let header = read_header(&part, &file)?;
    if header != (Header { index, ..first.clone() }) {
        return unusable(&part, "this is a part of another drive image; put the right one back");
    }
    Ok(file)
}

fn check_lengths(path: &Path, header: &Header, files: &[File]) -> Result<()> {
    for (index, file) in files.iter().enumerate() {
        let part = sibling(path, index as u32);
        let len = file.metadata().map_err(|error| Error::io(&name_of(&part), error))?.len();
        let wanted = header.file_len(index as u32);
        if len < wanted {
            return damaged(
                &part,
                format!("the drive image is truncated: it has {len} of {wanted} bytes; restore it from a copy"),
            );
        }
    }
    Ok(())
}

fn map_state(path: &Path, config: &Config, file: &File, write: bool) -> Result<State> {
    let layout = Layout::of(config);
    let region = Region::map(file, layout.total(), write).map_err(|error| host_error(path, "map", error))?;
    let state = State { region, layout };
    match state.check(config) {
        Ok(()) => Ok(state),
        Err(what) => damaged(path, format!("{what} is damaged; restore the image from a copy or create it anew")),
    }
}

/// Takes over what the last process left.
fn resume(path: &Path, config: &Config, state: &State, options: OpenOptions, boot: &str) -> Result<PreImages> {
    let mark = unsealed_hash(boot);
    let rebooted = state.boot() != 0 && state.boot() != mark;
    if options.read_only {
        return Ok(if rebooted { PreImages::in_memory(state) } else { ring(path, state)? });
    }
    if rebooted {
        // The host went down under the drive. What it had flushed with `host_sync` is on the host's disk; of the rest any
        // part may be, so the drive lost it. Without `host_sync` nothing was promised, and nothing is taken.
        state.set_ring_tail(state.ring_head());
        if state.host_sync() {
            state.cut_to_flushed(config);
        }
    }
    state.set_boot(mark);
    state.set_host_sync(options.host_sync);
    state.set_holder(u64::from(std::process::id()));
    ring(path, state)
}

fn ring(path: &Path, state: &State) -> Result<PreImages> {
    PreImages::in_ring(state).or_else(|what| {
        damaged(path, format!("{what} in the drive image is damaged; restore the image from a copy or create it anew"))
    })
}

/// The kernel's id of this boot; empty where it is not told.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::{AlignedBuf, Cause, Tag, ZoneId, ZoneOp, ZonedDevice, report_all};

    const TAG: Tag = Tag::new(Cause::Other);

    fn block(byte: u8) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(4096);
        buf.fill(byte);
        buf
    }

    fn write(drive: &Emulator, zone: u32, at: u64, byte: u8) {
        drive.write_at(&block(byte), drive.geometry().start(ZoneId(zone)) + at * 4096, TAG).unwrap();
    }

    fn byte(drive: &Emulator, zone: u32, at: u64) -> u8 {
        let mut buf = AlignedBuf::zeroed(4096);
        drive.read_at(&mut buf, drive.geometry().start(ZoneId(zone)) + at * 4096, TAG).unwrap();
        buf[0]
    }

    #[test]
    fn mechanics_of_an_image_change_and_its_data_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = split(&dir);
        let profile = crate::Profile::named("seagate-st13125nm007").unwrap();
        let model = profile.time().unwrap().map(|params| Model { params, scale: 64, mechanics: Mechanics::Scaled });
        let timed = dir.path().join("timed.img");
        drop(Emulator::create_split(&timed, &Config { model, ..Config::tiny() }, false, 10 << 20).unwrap());
        for path in [&path, &timed] {
            Emulator::change_mechanics(path, Mechanics::Real).unwrap();
            let drive = Emulator::open(path, OpenOptions::default()).unwrap();
            assert!(Emulator::change_mechanics(path, Mechanics::Scaled).is_err());
            let model = drive.inner.config.model;
            assert_eq!(
                model.map(|model| (model.mechanics, model.scale)),
                (path == &timed).then_some((Mechanics::Real, 64))
            );
        }
        let drive = Emulator::open(&path, OpenOptions::default()).unwrap();
        assert_eq!((byte(&drive, 4, 1), byte(&drive, 63, 0)), (4, 63));
    }

    /// An image of ten zones a file.
    fn split(dir: &tempfile::TempDir) -> PathBuf {
        let path = dir.path().join("x.img");
        let drive = Emulator::create_split(&path, &Config::tiny(), true, 10 << 20).unwrap();
        for zone in 4..64 {
            write(&drive, zone, 0, zone as u8);
            write(&drive, zone, 1, zone as u8);
        }
        path
    }

    #[test]
    fn a_drive_is_spread_over_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = split(&dir);
        let files = (0..7).map(|index| sibling(&path, index)).collect::<Vec<_>>();
        assert!(files.iter().all(|file| file.is_file()) && !sibling(&path, 7).exists());
        let drive = Emulator::open(&path, OpenOptions::default()).unwrap();
        for zone in 4..64 {
            assert_eq!(
                (byte(&drive, zone, 0), byte(&drive, zone, 1), byte(&drive, zone, 2)),
                (zone as u8, zone as u8, 0)
            );
        }
        drive.zone_op(ZoneOp::Reset, ZoneId(33), TAG).unwrap();
        assert_eq!([32, 33, 34].map(|zone| byte(&drive, zone, 0)), [32, 0, 34]);
        drop(drive);
        assert_eq!(Observer::open(&path).unwrap().files(), files);
        // A smaller drive in its place leaves no orphans.
        drop(Emulator::create(&path, &Config::tiny(), true).unwrap());
        assert!(files[1..].iter().all(|file| !file.exists()));
    }

    #[test]
    fn a_missing_foreign_or_truncated_part_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (split(&dir), tempfile::tempdir().unwrap());
        let foreign = split(&other);
        let part = sibling(&path, 3);
        let kept = path.with_extension("kept");
        let says = || Emulator::open(&path, OpenOptions::default()).err().unwrap().to_string();
        fs::rename(&part, &kept).unwrap();
        assert!(says().contains("x.img.3") && says().contains("missing"), "{}", says());
        fs::copy(sibling(&foreign, 3), &part).unwrap();
        assert!(says().contains("x.img.3") && says().contains("another drive image"), "{}", says());
        fs::copy(sibling(&path, 2), &part).unwrap();
        assert!(says().contains("another drive image"), "{}", says());
        fs::remove_file(&part).unwrap();
        fs::rename(&kept, &part).unwrap();
        File::options().write(true).open(&part).unwrap().set_len(9 << 20).unwrap();
        assert!(says().contains("x.img.3") && says().contains("truncated"), "{}", says());
        // A part is no drive.
        assert!(Emulator::open(&sibling(&path, 2), OpenOptions::default()).is_err());
    }

    #[test]
    fn a_file_in_the_way_of_a_part_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.img");
        fs::write(sibling(&path, 2), "precious").unwrap();
        let error = Emulator::create_split(&path, &Config::tiny(), false, 10 << 20).err().unwrap();
        assert!(error.to_string().contains("in the way"), "{error}");
        assert_eq!(fs::read(sibling(&path, 2)).unwrap(), b"precious");
        assert!(!path.exists() && !sibling(&path, 1).exists());
    }

    /// Opens, writes, and pretends that the host went down.
    fn across_a_reboot(host_sync: bool) -> (Emulator, [u8; 16]) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.img");
        drop(Emulator::create(&path, &Config::tiny(), false).unwrap());
        let options = OpenOptions { host_sync, read_only: false };
        let drive = Emulator::open(&path, options).unwrap();
        write(&drive, 4, 0, 1);
        write(&drive, 0, 0, 1);
        drive.flush(TAG).unwrap();
        write(&drive, 4, 1, 2);
        write(&drive, 5, 0, 2);
        write(&drive, 0, 0, 2);
        drive.inner.state.set_boot(7);
        // What the kernel had not yet written of the mapping may be anything old.
        drive.inner.state.region.copy_in(drive.inner.state.layout.ring, &[0xaa; 64]);
        let epoch = drive.identity().power_epoch;
        drop(drive);
        (Emulator::open(&path, options).unwrap(), epoch)
    }

    #[test]
    fn a_host_that_went_down_takes_what_was_not_flushed() {
        let (drive, epoch) = across_a_reboot(true);
        assert_ne!(drive.identity().power_epoch, epoch);
        let zones = report_all(&drive).unwrap();
        assert_eq!((zones[4].wp, zones[5].wp), (Some(4096), Some(0)));
        assert_eq!((byte(&drive, 4, 0), byte(&drive, 4, 1)), (1, 0));
        assert!(drive.unflushed().is_empty());
    }

    #[test]
    fn without_host_sync_a_reboot_takes_nothing_by_itself() {
        let (drive, _) = across_a_reboot(false);
        assert_eq!((byte(&drive, 4, 1), byte(&drive, 5, 0), byte(&drive, 0, 0)), (2, 2, 2));
    }
}
