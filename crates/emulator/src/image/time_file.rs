//! `PATH.time`, beside an image whose drive has kept time: what was counted of it, mapped and shared with whoever looks, and what
//! the time model remembers between two openings. `docs/on-disk-format.md` draws it.
//!
//! The counters change with every command, so what they say outlives the process. The state is written when the drive is closed, into
//! the older of two places; a process that is killed leaves the last one, and the clock. Nothing here says anything about data.

use super::{Observer, damaged, host_error, name_of, suffixed, unusable};
use crate::region::Region;
use crate::state::PAGE;
use crate::time::Kept;
use crate::time::clock::Clock;
use crate::time::engine::Engine;
use crate::time::kept::{decode_kept, kept_len, most_len};
use crate::time::ledger::{self, Ledger};
use crate::time::{Pace, Params, TimeStats};
use imbrex_device::{Error, Result};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"IMBRXTIM";
const VERSION: u32 = 1;
/// Counters follow the header.
const LEDGER: usize = PAGE;
/// Where the two states begin.
const STATES: u64 = (LEDGER + ledger::LEN).next_multiple_of(PAGE) as u64;
/// More than any state takes.
const MOST_ROOM: u64 = 1 << 34;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: u32,
    /// Bytes of this structure.
    len: u32,
    /// CRC-32C of the structure with this field 0.
    crc: u32,
    /// Bytes of the counters.
    counters: u32,
    /// UUID of the image.
    image: [u8; 16],
    /// Bytes that each of the two states has room for.
    room: u64,
    reserved: [u64; 2],
}

const HEADER: usize = size_of::<RawHeader>();
const _: () = assert!(HEADER == 64);

/// What the header of a time file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeHeader {
    /// UUID of the image that it belongs to.
    pub image: [u8; 16],
    /// Bytes that each of the two states has room for.
    pub room: u64,
}

impl TimeHeader {
    fn encode(&self) -> RawHeader {
        let mut raw = RawHeader {
            magic: MAGIC,
            version: VERSION,
            len: HEADER as u32,
            crc: 0,
            counters: ledger::LEN as u32,
            image: self.image,
            room: self.room,
            reserved: [0; 2],
        };
        raw.crc = crc32c::crc32c(raw.as_bytes());
        raw
    }
}

/// Decodes the header of a time file; the error is a sentence. Never panics.
pub fn decode_time_header(bytes: &[u8]) -> std::result::Result<TimeHeader, String> {
    let Ok((raw, _)) = RawHeader::read_from_prefix(bytes) else {
        return Err("it is truncated; remove it, and the drive begins at rest, with nothing counted".into());
    };
    if raw.magic != MAGIC {
        return Err("this is not what a drive keeps of its time; move it away".into());
    }
    if raw.version > VERSION {
        return Err(format!(
            "it was made by a newer version (format {}, this program knows {VERSION}); use that version, or remove it",
            raw.version
        ));
    }
    let crc = crc32c::crc32c(RawHeader { crc: 0, ..raw }.as_bytes());
    if raw.crc != crc || raw.counters as usize != ledger::LEN || raw.room == 0 || raw.room > MOST_ROOM {
        return Err("its header is damaged; remove it, and the drive begins at rest, with nothing counted".into());
    }
    Ok(TimeHeader { image: raw.image, room: raw.room })
}

/// Where what is kept of the time of the drive in the image at `path` stands.
pub fn time_path(path: &Path) -> PathBuf {
    suffixed(path, "time")
}

/// Removes the time file of an image that is gone.
pub(super) fn forget(image: &Path) {
    let path = time_path(image);
    let mut magic = [0; 8];
    let ours = File::open(&path).and_then(|file| file.read_exact_at(&mut magic, 0)).is_ok() && magic == MAGIC;
    if ours {
        let _ = fs::remove_file(path);
    }
}

/// The time file of a drive that is open for writing.
pub(crate) struct TimeFile {
    path: PathBuf,
    file: File,
    room: u64,
    generation: u64,
}

impl TimeFile {
    /// A clock for the drive in the image at `path`, which goes on where it stopped.
    pub(crate) fn clock(
        path: &Path,
        image: [u8; 16],
        params: &Params,
        pace: Pace,
        mut engine: Engine,
    ) -> Result<(TimeFile, Clock)> {
        let time = time_path(path);
        let room = most_len(engine.translation()).next_multiple_of(PAGE as u64);
        let file = open_or_make(&time, TimeHeader { image, room })?;
        let region = Region::map(&file, STATES as usize, true).map_err(|error| host_error(&time, "map", error))?;
        let ledger = Ledger::of(region, LEDGER);
        let states = [0, 1].map(|slot| read_state(&file, STATES + slot * room, room));
        let newest = states.into_iter().flatten().max_by_key(|kept| kept.generation);
        let generation = newest.as_ref().map_or(0, |kept| kept.generation);
        if let Some(kept) = newest {
            engine.resume(kept);
        }
        // A process that was killed left a clock that is ahead of the state.
        let now = engine.now().max(ledger.clock());
        engine.set_clock(now);
        Ok((TimeFile { path: time, file, room, generation }, Clock::new(params, pace, engine, ledger)))
    }

    /// Number of the state that is written next.
    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.wrapping_add(1)
    }

    /// Writes what is to be remembered. What cannot be written is told in the log: it costs time, not data.
    pub(crate) fn keep(&self, kept: &Kept) {
        let bytes = kept.encode();
        let at = STATES + kept.generation % 2 * self.room;
        if bytes.len() as u64 > self.room {
            tracing::error!(path = %self.path.display(), "the state of the drive's time is larger than its place");
        } else if let Err(error) = self.file.write_all_at(&bytes, at) {
            tracing::warn!(path = %self.path.display(), %error, "the state of the drive's time could not be kept");
        }
    }
}

fn read_state(file: &File, at: u64, room: u64) -> Option<Kept> {
    let mut head = [0; 80];
    file.read_exact_at(&mut head, at).ok()?;
    let mut bytes = vec![0; usize::try_from(kept_len(&head, room)?).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    decode_kept(&bytes)
}

fn read_header(path: &Path, file: &File) -> Result<TimeHeader> {
    let mut bytes = [0; HEADER];
    let read = file.read_exact_at(&mut bytes, 0);
    let header = match read {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(Error::io(&name_of(path), error)),
        Err(_) => decode_time_header(&[]),
        Ok(()) => decode_time_header(&bytes),
    };
    let header = header.or_else(|sentence| unusable(path, sentence))?;
    let len = file.metadata().map_err(|error| Error::io(&name_of(path), error))?.len();
    if len < STATES + 2 * header.room {
        return damaged(path, "it is truncated; remove it, and the drive begins at rest, with nothing counted");
    }
    Ok(header)
}

fn open_or_make(path: &Path, wanted: TimeHeader) -> Result<File> {
    let file = match File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return make(path, wanted),
        Err(error) => return Err(host_error(path, "write", error)),
    };
    let header = read_header(path, &file)?;
    if header.image != wanted.image {
        return unusable(path, "this is what another drive image keeps of its time; move it away");
    }
    if header.room != wanted.room {
        return unusable(
            path,
            "this is of a drive with other numbers of time; move it away, and the drive begins at rest",
        );
    }
    Ok(file)
}

/// Half a file is none: it gets its name when it is whole.
fn make(path: &Path, header: TimeHeader) -> Result<File> {
    let fail = |error: io::Error| host_error(path, "write", error);
    let new = suffixed(path, "new");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&new).map_err(fail)?;
    let filled = (|| {
        // Real zeros, so that every page of the mapping has its block on the host.
        file.write_all_at(&vec![0; STATES as usize], 0)?;
        file.set_len(STATES + 2 * header.room)?;
        file.write_all_at(header.encode().as_bytes(), 0)?;
        fs::rename(&new, path)
    })();
    if let Err(error) = filled {
        let _ = fs::remove_file(&new);
        return Err(fail(error));
    }
    Ok(file)
}

impl Observer {
    /// What became of the drive's time; `None` where it never kept any.
    pub fn time(&self) -> Result<Option<TimeStats>> {
        Ok(self.ledger(false)?.map(|ledger| ledger.stats()))
    }

    pub(super) fn ledger(&self, write: bool) -> Result<Option<Ledger>> {
        let Some(image) = self.files().first() else { return Ok(None) };
        let path = time_path(image);
        let file = match File::options().read(true).write(write).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(host_error(&path, "read", error)),
        };
        if read_header(&path, &file)?.image != self.config().uuid {
            return unusable(&path, "this is what another drive image keeps of its time; move it away");
        }
        let region = Region::map(&file, STATES as usize, write).map_err(|error| host_error(&path, "map", error))?;
        Ok(Some(Ledger::of(region, LEDGER)))
    }
}
