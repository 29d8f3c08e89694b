//! What a locator means, and opening it.

use crate::banded::{BANDED, BandedDisk};
use crate::limited::limit;
use crate::survivor::{NotKept, ShmSurvivor};
use crate::time::{Time, TimeOptions};
use crate::uri::{parse_bool, parse_size};
use imbrex_device::banded::SequentialOnly;
use imbrex_device::kernel::{Access, KernelDevice};
use imbrex_device::words::the_nearest;
use imbrex_device::{AlignedBuf, Cause, Drive, Error, Fault, Result, Survivor, ZoneId, ZonedDevice};
use imbrex_emulator::time::{Mechanics, parse_scale};
use imbrex_emulator::{Config, Emulator, OpenOptions as ImageOptions, Overrides};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Options of a drive in memory, behind the question mark of `mem:?…`.
pub const MEMORY_OPTIONS: &[&str] = &[
    "profile",
    "size",
    "zone-size",
    "zone-capacity",
    "conventional",
    "block",
    "max-io",
    "write-cache",
    "max-open",
    "prefault",
    "scale",
    "mechanics",
    "time",
    "speed",
];

/// How to open a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// A flush of an emulated drive reaches the host's disk.
    pub host_sync: bool,
    /// Nothing is written: the file need not be writable, and several processes may look at once. To mount such a drive,
    /// cover it ([`crate::overlay::cover`]).
    pub read_only: bool,
    /// Unwritten bytes are kept in shared memory against the death of the process. Without this, what a dead process left there is still
    /// written to the drive; but a [look](OpenOptions::read_only) leaves it out.
    pub survivor: bool,
    /// A drive with a [band table](AS_SEQUENTIAL) on its conventional zones is opened without looking for that: by whoever formats it.
    pub as_it_is: bool,
    /// Longest command in bytes, up to what the drive takes; `None`: that.
    pub max_io: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { host_sync: false, read_only: false, survivor: true, as_it_is: false, max_io: None }
    }
}

/// A locator, understood.
#[derive(Clone, Debug, PartialEq)]
pub enum Locator {
    /// An emulated drive in an image file, and how it keeps time.
    Image(PathBuf, Time),
    /// An emulated drive in memory.
    Memory(Box<Memory>),
    /// A zoned block device of the kernel.
    Device(PathBuf),
    /// A file or conventional disk cut into bands.
    Banded(BandedDisk),
    /// An emulated drive or a zoned block device whose conventional zones serve as sequential ones; how it keeps time.
    Sequential(PathBuf, Time),
}

/// Options of an emulated drive or a zoned block device, behind the question mark of `drive.img?…`; devices keep their own
/// time.
pub const ZONED_OPTIONS: &[&str] = &["conventional", "time", "speed"];

/// What is put behind the name of a drive whose conventional zones shall serve as sequential ones.
pub const AS_SEQUENTIAL: &str = "?conventional=as-sequential";

/// What `mem:?…` asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// The drive.
    pub config: Config,
    /// `None`: copy-on-write pages; `Some(false)`: flat memory; `Some(true)`: flat and all there from the beginning.
    pub prefault: Option<bool>,
    /// How it keeps time.
    pub time: Time,
}

impl Locator {
    /// Whether `text` names a drive in memory.
    pub fn is_memory(text: &str) -> bool {
        text == "mem:" || text.starts_with("mem:?")
    }

    /// Understands a locator; touches nothing but to see whether a path is a device.
    pub fn parse(text: &str) -> Result<Locator> {
        let refuse = |sentence: &str| Err(Error::misuse(&text.into(), sentence));
        if Self::is_memory(text) {
            return memory(text).map(|memory| Locator::Memory(Box::new(memory)));
        }
        if text.is_empty() {
            return refuse("the name of the drive is empty; name a drive image, or mem: for one in memory");
        }
        if text.starts_with("mem:") {
            return refuse("the options of a drive in memory follow a question mark, as mem:?profile=tiny");
        }
        if text.starts_with(BANDED) {
            return BandedDisk::parse(text).map(Locator::Banded);
        }
        let (path, query) = split_query(text);
        zoned(text, Path::new(path), query)
    }
}

/// A path, and the options behind its last question mark where they are any; else the question mark is a part of the name.
fn split_query(text: &str) -> (&str, &str) {
    let known = |part: &str| ZONED_OPTIONS.iter().any(|name| part.split('=').next() == Some(name));
    match text.rsplit_once('?') {
        Some((path, query)) if !path.is_empty() && query.split('&').any(known) => (path, query),
        _ => (text, ""),
    }
}

/// An image or a device, with its options.
fn zoned(text: &str, path: &Path, query: &str) -> Result<Locator> {
    let refuse = |sentence: String| Err(Error::misuse(&text.into(), sentence));
    let (mut sequential, mut time) = (false, TimeOptions::default());
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, "on"));
        match (name, value) {
            ("conventional", "as-sequential") => sequential = true,
            ("conventional", _) => {
                return refuse(format!(
                    "conventional={value}: the one thing that can be asked for is conventional=as-sequential"
                ));
            }
            _ => match time.take(name, value) {
                Ok(true) => {}
                Ok(false) => {
                    let nearest = the_nearest(name, ZONED_OPTIONS.iter().copied());
                    return refuse(format!("a drive has no option {name:?}; {nearest}"));
                }
                Err(sentence) => return refuse(sentence),
            },
        }
    }
    let time = match time.understand() {
        Ok(time) => time,
        Err(sentence) => return refuse(sentence),
    };
    let device = is_device(path);
    if device && time.is_some() {
        return refuse("a device keeps its own time; leave time= out, or name the image of an emulated drive".into());
    }
    Ok(match (sequential, device) {
        (true, _) => Locator::Sequential(path.to_owned(), time),
        (false, true) => Locator::Device(path.to_owned()),
        (false, false) => Locator::Image(path.to_owned(), time),
    })
}

/// Devices, and names below `/dev` that stand for nothing: those are mistyped devices, not images that are missing.
fn is_device(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(meta) => meta.file_type().is_block_device() || meta.file_type().is_char_device(),
        Err(_) => path.starts_with("/dev") && !path.starts_with("/dev/shm"),
    }
}

fn memory(text: &str) -> Result<Memory> {
    let refuse = |sentence: String| Error::misuse(&text.into(), sentence);
    let mut overrides = Overrides::default();
    let (mut profile, mut prefault, mut zone_capacity, mut max_open) = ("tiny", None, None, None);
    let mut time = TimeOptions::default();
    let query = text.split_once('?').map_or("", |(_, query)| query);
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, "on"));
        let bad = |sentence: String| refuse(format!("{name}={value}: {sentence}"));
        let number = || parse_size(value).map_err(bad);
        let small = || value.parse::<u32>().map_err(|_| bad(format!("{value:?} is not a number")));
        match name {
            "profile" => profile = value,
            "size" => overrides.capacity = Some(number()?),
            "zone-size" => overrides.zone_size = Some(number()?),
            "zone-capacity" => zone_capacity = Some(number()?),
            "conventional" => overrides.conventional = Some(small()?),
            "block" => overrides.block = Some(small()?),
            "max-io" => overrides.max_io = Some(u32::try_from(number()?).map_err(|_| bad("that is too long".into()))?),
            "max-open" => max_open = Some(small()?),
            "write-cache" => overrides.write_cache = Some(parse_bool(value).map_err(bad)?),
            "prefault" => prefault = Some(parse_bool(value).map_err(bad)?),
            "scale" => overrides.scale = Some(parse_scale(value).map_err(bad)?),
            "mechanics" => overrides.mechanics = Mechanics::parse(value).map_err(bad)?,
            _ if time.take(name, value).map_err(refuse)? => {}
            _ => {
                let nearest = the_nearest(name, MEMORY_OPTIONS.iter().copied());
                return Err(refuse(format!("a drive in memory has no option {name:?}; {nearest}")));
            }
        }
    }
    let named = Config::named(profile, &overrides).map_err(|error| Error { drive: text.into(), ..error })?;
    // Two drives in memory are two media, whatever they are made of.
    let uuid = *uuid::Uuid::new_v4().as_bytes();
    let mut config = Config { name: text.to_owned(), uuid, ..named };
    config.zone_capacity = zone_capacity.unwrap_or(config.zone_capacity);
    config.max_open = max_open.or(config.max_open);
    config.check()?;
    Ok(Memory { config, prefault, time: time.understand().map_err(refuse)? })
}

impl Memory {
    /// Makes the drive.
    pub fn open(&self) -> Result<Emulator> {
        let drive = match self.prefault {
            None => Emulator::memory(&self.config),
            Some(false) => Emulator::memory_flat(&self.config),
            Some(true) => Emulator::memory_prefaulted(&self.config),
        }?;
        timed(drive, self.time)
    }
}

fn timed(drive: Emulator, time: Time) -> Result<Emulator> {
    if let Some(pace) = time {
        drive.keep_own_time(pace).map_err(|error| match error.fault {
            Fault::Unusable(why) if drive.config().model.is_none() => {
                Error::unusable(&error.drive, format!("{why}; or leave time= out"))
            }
            _ => error,
        })?;
    }
    Ok(drive)
}

/// Opens the drive that `locator` names. A drive in memory is new at every call, has no survivor (nothing of it outlives
/// the process), and cannot be opened read-only.
pub fn open(locator: &str, options: &OpenOptions) -> Result<Drive> {
    let began = Instant::now();
    let drive = open_untold(locator, options)?;
    let geometry = drive.device.geometry();
    tracing::debug!(
        locator,
        read_only = options.read_only,
        bytes = geometry.size(),
        zone_bytes = geometry.zone_size,
        longest_command = geometry.max_io,
        survivor = drive.survivor.is_some(),
        seconds = began.elapsed().as_secs_f64(),
        "drive opened"
    );
    Ok(drive)
}

fn open_untold(locator: &str, options: &OpenOptions) -> Result<Drive> {
    match Locator::parse(locator)? {
        Locator::Memory(_) if options.read_only => {
            Err(Error::misuse(&locator.into(), "a drive in memory is empty, so it cannot be opened read-only"))
        }
        Locator::Memory(memory) => {
            Ok(Drive { device: limit(Arc::new(memory.open()?), options.max_io)?, survivor: None })
        }
        Locator::Image(path, time) => {
            let how = ImageOptions { host_sync: options.host_sync, read_only: options.read_only };
            let drive = Emulator::open(&path, how).map_err(|error| explain(error, &path))?;
            as_cut(Arc::new(timed(drive, time)?), options)
        }
        Locator::Device(path) => {
            let access = if options.read_only { Access::ReadOnly } else { Access::Write };
            as_cut(Arc::new(KernelDevice::open(&path, access)?), options)
        }
        Locator::Sequential(path, time) => {
            let device = open_as_it_is(&path, time, options)?;
            sequential(device, options).map_err(|error| no_table(error, &path))
        }
        Locator::Banded(disk) => {
            let access = if options.read_only { Access::ReadOnly } else { Access::Write };
            lasting(Arc::new(disk.open(access)?), options)
        }
    }
}

/// The drive, with its conventional zones as sequential ones where there is a band table on them.
fn as_cut(device: Arc<dyn ZonedDevice>, options: &OpenOptions) -> Result<Drive> {
    match !options.as_it_is && SequentialOnly::is_cut(&device)? {
        true => sequential(device, options),
        false => lasting(device, options),
    }
}

fn sequential(device: Arc<dyn ZonedDevice>, options: &OpenOptions) -> Result<Drive> {
    let below = survivor(device.as_ref(), options);
    let access = if options.read_only { Access::ReadOnly } else { Access::Write };
    lasting(Arc::new(SequentialOnly::open(device, below, access)?), options)
}

/// Conventional zones that make fewer bands are left alone: the table's flushes would cost more than they are worth.
const LEAST_BANDS: u32 = 8;

/// A drive that was opened [as it is](OpenOptions::as_it_is), all of which shall be sequential zones: where it has conventional ones that make
/// 8 bands at least, they are cut, and what is on them is destroyed; `allowed` is asked before that. From then on every opening finds the band table.
///
/// # Errors
/// Those of `allowed`; of the drive.
pub fn all_sequential<E: From<Error>>(drive: Drive, allowed: impl FnOnce(&Drive) -> Result<(), E>) -> Result<Drive, E> {
    let options = OpenOptions { survivor: drive.keeps_unwritten(), ..OpenOptions::default() };
    if SequentialOnly::is_cut(&drive.device)? {
        return Ok(sequential(drive.device, &options)?);
    }
    if SequentialOnly::possible_bands(drive.device.as_ref())? < LEAST_BANDS {
        return Ok(drive);
    }
    allowed(&drive)?;
    SequentialOnly::format(&drive.device)?;
    Ok(sequential(drive.device, &options)?)
}

/// The emulated drive or zoned block device at `path`.
fn open_as_it_is(path: &Path, time: Time, options: &OpenOptions) -> Result<Arc<dyn ZonedDevice>> {
    let options = OpenOptions { survivor: false, as_it_is: true, max_io: None, ..*options };
    if is_device(path) {
        return open(&path.to_string_lossy(), &options).map(|drive| drive.device);
    }
    let how = ImageOptions { host_sync: options.host_sync, read_only: options.read_only };
    let drive = Emulator::open(path, how).map_err(|error| explain(error, path))?;
    Ok(Arc::new(timed(drive, time)?))
}

/// Makes the band table on the conventional zones of the drive at `path`, so that they serve as sequential ones; what is
/// on them is destroyed. Returns how many zones that makes.
///
/// Errors: `Unusable` where they hold something and not `force`, or where there are too few of them.
pub fn make_sequential(path: &Path, force: bool) -> Result<u32> {
    let device = open_as_it_is(path, None, &OpenOptions::default())?;
    if !force && !begins_with_zeros(device.as_ref())? {
        let sentence = "there is something on its conventional zones; nothing was changed; use --force to destroy it";
        return Err(Error::unusable(&device.identity().name, sentence));
    }
    SequentialOnly::format(&device).map(|layout| layout.bands)
}

/// Whether the beginnings of the first two zones are empty, where labels and superblocks are.
fn begins_with_zeros(device: &dyn ZonedDevice) -> Result<bool> {
    let geometry = device.geometry();
    let mut buf = AlignedBuf::zeroed((1 << 20).min(geometry.zone_size as usize).min(geometry.max_io as usize));
    for zone in 0..geometry.zones.min(2) {
        device.read_at(&mut buf, geometry.start(ZoneId(zone)), Cause::Check.into())?;
        if buf.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where there is no table yet, the way to it.
fn no_table(error: Error, path: &Path) -> Error {
    match &error.fault {
        Fault::Unusable(sentence) if sentence.starts_with("it has no band table") => {
            let path = path.display();
            let sentence = format!(
                "its conventional zones have no band table; make one with `imbrex drive create --banded \
                 '{path}{AS_SEQUENTIAL}'`, which destroys what is there"
            );
            Error::unusable(&error.drive, sentence)
        }
        _ => error,
    }
}

/// Says of a file that is no image what it is, where it is a banded disk.
fn explain(error: Error, path: &Path) -> Error {
    if !imbrex_device::banded::is_banded(path) {
        return error;
    }
    Error::unusable(&error.drive, format!("this is a banded disk; name it {BANDED}{}", path.display()))
}

/// A name for the drive that `locator` leads to, the same for all ways to write it.
pub fn key(locator: &str) -> String {
    let whole = |path: &Path| std::fs::canonicalize(path).map(|path| path.to_string_lossy().into_owned());
    match Locator::parse(locator) {
        Ok(Locator::Image(path, _) | Locator::Device(path)) => whole(&path).unwrap_or_else(|_| locator.to_owned()),
        Ok(Locator::Sequential(path, _)) => {
            format!("{}{AS_SEQUENTIAL}", whole(&path).unwrap_or_else(|_| path.to_string_lossy().into_owned()))
        }
        // A file that is not made yet is found by the directory that it will be in.
        Ok(Locator::Banded(disk)) => {
            let parent = disk.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let in_parent = || Some(format!("{}/{}", whole(parent).ok()?, disk.path.file_name()?.to_string_lossy()));
            let path = whole(&disk.path).ok().or_else(in_parent);
            format!("{BANDED}{}", path.unwrap_or_else(|| disk.path.to_string_lossy().into_owned()))
        }
        Ok(Locator::Memory(_)) | Err(_) => locator.to_owned(),
    }
}

/// A drive that is still there when the process is gone: with what is in shared memory.
fn lasting(device: Arc<dyn ZonedDevice>, options: &OpenOptions) -> Result<Drive> {
    let survivor = survivor(device.as_ref(), options);
    Ok(Drive { device: limit(device, options.max_io)?, survivor })
}

fn survivor(device: &dyn ZonedDevice, options: &OpenOptions) -> Option<Arc<dyn Survivor>> {
    let memory = ShmSurvivor::new(device.identity());
    match (options.survivor, options.read_only) {
        (true, _) => Some(Arc::new(memory)),
        (false, false) => Some(Arc::new(NotKept(memory))),
        (false, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_device::{Class, report_all};
    use imbrex_emulator::time::Pace;

    fn says(locator: &str, text: &str) {
        let error = open(locator, &OpenOptions::default()).err().unwrap();
        // A drive that cannot do it is no mistake in the name.
        let drive = ["no time model", "seagate-st8000as0022", "block device", "lsblk"].contains(&text);
        assert_eq!(error.class(), if drive { Class::Failed } else { Class::Usage }, "{error:?}");
        assert!(error.to_string().contains(text), "{error} lacks {text:?}");
    }

    #[test]
    fn memory_drives_are_what_was_asked_for() {
        let locator =
            "mem:?profile=hgst-hsh721414al&size=64M&zone-size=2M&conventional=3&block=512&write-cache=off&max-open=5";
        let drive = open(locator, &OpenOptions::default()).unwrap();
        let geometry = drive.device.geometry();
        assert_eq!((geometry.zones, geometry.zone_size, geometry.block), (32, 2 << 20, 512));
        assert_eq!(geometry.max_open.map(|n| n.get()), Some(5));
        assert!(!drive.device.write_cache().unwrap() && drive.survivor.is_none());
        assert_eq!(report_all(drive.device.as_ref()).unwrap().iter().filter(|zone| zone.wp.is_none()).count(), 3);
        for locator in ["mem:", "mem:?prefault=1", "mem:?prefault=off"] {
            let drive = open(locator, &OpenOptions::default()).unwrap();
            assert_eq!((drive.device.geometry().zones, &*drive.device.identity().name), (64, locator));
        }
    }

    #[test]
    fn a_drive_keeps_time_as_its_locator_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x?y.img");
        let over = Overrides { capacity: Some(1 << 30), scale: Some(64), ..Default::default() };
        let config = Config::named("hgst-hsh721414al", &over).unwrap();
        drop(Emulator::create(&path, &config, false).unwrap());
        let name = path.to_str().unwrap();
        let image = |time| Locator::Image(path.clone(), time);
        assert_eq!(Locator::parse(name).unwrap(), image(None));
        assert_eq!(Locator::parse(&format!("{name}?time=account")).unwrap(), image(Some(Pace::Account)));
        let paced = Locator::parse(&format!("{name}?speed=8&time=pace")).unwrap();
        assert_eq!(paced, image(Some(Pace::Real { speed: 8.0 })));
        let both = Locator::parse(&format!("{name}?time=account&conventional=as-sequential")).unwrap();
        assert_eq!(both, Locator::Sequential(path.clone(), Some(Pace::Account)));
        assert_eq!(key(&format!("{name}?time=account")), key(name));
        let device = open(&format!("{name}?time=account"), &OpenOptions::default()).unwrap().device;
        assert_eq!(device.geometry().zone_size, 4 << 20);
        drop(device);
        let memory = "mem:?profile=hgst-hsh721414al&size=1G&scale=1/64&time=account";
        let Locator::Memory(memory) = Locator::parse(memory).unwrap() else { panic!("{memory}") };
        let drive = memory.open().unwrap();
        let mut buf = AlignedBuf::zeroed(4096);
        drive.read_at(&mut buf, 512 << 20, Cause::UserRead.into()).unwrap();
        let time = drive.time().unwrap();
        assert!(time.elapsed > 0.0 && time.elapsed < 0.030 / 64.0, "{time:?}");
    }

    #[test]
    fn two_memory_drives_are_two_media() {
        let medium = || open("mem:", &OpenOptions::default()).unwrap().device.identity().medium;
        assert_ne!(medium(), medium());
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        says("", "empty");
        says("mem:tiny", "question mark");
        says("mem:?zone-capacty=1M", "the nearest are zone-capacity and ");
        says("mem:?speed=3", "goes with time=pace");
        says("mem:?scale=0", "no scale");
        says("mem:?scale=1.5", "no scale");
        says("mem:?mechanics=wooden", "neither scaled nor real");
        says("mem:?time=fast", "account");
        says("mem:?time=pace", "seagate-st8000as0022");
        says("mem:?profile=zns-made-up&size=1G&time=account", "no time model");
        says("x.img?time=fast", "account");
        says("x.img?time=pace&speed=0", "between");
        says("x.img?time=pace&conventionl=1", "the nearest are conventional and ");
        says("x.img?conventional=yes&time=off", "as-sequential");
        says("/dev/null?time=account", "its own time");
        says("mem:?profile=hgst", "hgst-hsh721414al");
        says("mem:?size=100", "a capacity of 100 bytes is less than two zones of 1048576");
        says("mem:?size=lots", "256M");
        says("mem:?block=1000", "512 or 4096");
        says("/dev/null", "block device");
        says("/dev/sdnone", "lsblk");
        for missing in ["/dev/shm/none.img", "/nowhere/drive.img"] {
            let error = open(missing, &OpenOptions::default()).err().unwrap();
            assert!(matches!(&error.fault, Fault::Io(e) if e.kind() == std::io::ErrorKind::NotFound), "{error:?}");
            assert!(error.to_string().contains("imbrex drive create"), "{error}");
        }
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        assert!(open("mem:", &read_only).err().unwrap().to_string().contains("read-only"));
    }

    #[test]
    fn images_come_with_a_survivor_unless_it_is_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.img");
        drop(Emulator::create(&path, &Config::tiny(), false).unwrap());
        let locator = path.to_str().unwrap();
        let open = |options| open(locator, &options);
        let first = open(OpenOptions::default()).unwrap();
        assert!(first.survivor.is_some());
        let busy = open(OpenOptions::default()).err().unwrap();
        assert!(busy.to_string().contains(&format!("in use by process {} (", std::process::id())), "{busy}");
        drop(first);
        assert!(!open(OpenOptions { survivor: false, ..OpenOptions::default() }).unwrap().keeps_unwritten());
        let looks = [0, 1].map(|_| open(OpenOptions { read_only: true, ..OpenOptions::default() }).unwrap());
        assert!(looks.iter().all(|drive| drive.survivor.is_some()), "two may look at once");
        assert!(matches!(open(OpenOptions::default()).err().unwrap().fault, Fault::Busy { .. }));
    }
}
