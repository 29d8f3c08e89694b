//! The last commands of a drive, on request: a bounded ring in memory, or in a file beside an image, where other processes
//! can read it while the drive is in use.
//!
//! ```text
//! 0        64              128
//! ┌────────┬───────────────┬───────────────────────────────┐
//! │ header │ next sequence │ records of 48 bytes           │
//! └────────┴───────────────┴───────────────────────────────┘
//! ```

use crate::drive::lock;
use crate::region::Region;
use imbrex_device::{Cause, Error, Fault, Result, Tag, ZoneId, ZoneOp};
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"IMBRXTRC";
const VERSION: u32 = 2;
const NEXT: usize = 64;
const RECORDS: usize = 128;
const RECORD: usize = 48;
/// A time where none was kept.
const UNTIMED: u64 = u64::MAX;
/// Most records of a ring: 32 GiB would be nobody's wish.
const MOST_ENTRIES: u32 = 1 << 30;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: u32,
    /// Bytes of this structure.
    len: u32,
    /// CRC-32C of the structure with this field 0.
    crc: u32,
    entries: u32,
    reserved: [u64; 5],
}

const _: () = assert!(size_of::<RawHeader>() == NEXT);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawRecord {
    sequence: u64,
    at: u64,
    len: u32,
    zone: u32,
    op: u8,
    cause: u8,
    priority: u8,
    result: u8,
    /// CRC-32C of the record with this field 0.
    crc: u32,
    /// When the drive got the command, by its clock, in nanoseconds.
    began: u64,
    /// When it was complete.
    ended: u64,
}

const _: () = assert!(size_of::<RawRecord>() == RECORD);

/// What a traced command was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Op {
    Read,
    Write,
    Flush,
    Open,
    Close,
    Finish,
    Reset,
}

impl Op {
    const ALL: [Op; 7] = [Op::Read, Op::Write, Op::Flush, Op::Open, Op::Close, Op::Finish, Op::Reset];

    /// The name that traces print.
    pub fn name(self) -> &'static str {
        ["read", "write", "flush", "open", "close", "finish", "reset"][self as usize]
    }
}

impl From<ZoneOp> for Op {
    fn from(op: ZoneOp) -> Op {
        match op {
            ZoneOp::Open => Op::Open,
            ZoneOp::Close => Op::Close,
            ZoneOp::Finish => Op::Finish,
            ZoneOp::Reset => Op::Reset,
        }
    }
}

const RESULTS: [&str; 14] = [
    "ok",
    "invalid-input",
    "write-pointer",
    "zone-full",
    "too-many-open",
    "too-many-active",
    "read-only",
    "offline",
    "media",
    "no-space",
    "corrupt",
    "busy",
    "unusable",
    "io",
];

fn result_number(result: &Result<()>) -> u8 {
    match result.as_ref().map_err(|error| &error.fault) {
        Ok(()) => 0,
        Err(Fault::InvalidInput(_)) => 1,
        Err(Fault::WritePointer { .. }) => 2,
        Err(Fault::ZoneFull) => 3,
        Err(Fault::TooManyOpen) => 4,
        Err(Fault::TooManyActive) => 5,
        Err(Fault::ReadOnly) => 6,
        Err(Fault::Offline) => 7,
        Err(Fault::Media { .. }) => 8,
        Err(Fault::NoSpace) => 9,
        Err(Fault::Corrupt { .. }) => 10,
        Err(Fault::Busy { .. }) => 11,
        Err(Fault::Unusable(_) | Fault::Misuse(_) | Fault::Refused(..)) => 12,
        Err(Fault::Io(_)) => 13,
    }
}

/// One traced command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceEntry {
    /// Place in the order in which commands ended, from 0.
    pub sequence: u64,
    /// What it was.
    pub op: Op,
    /// Why it was issued.
    pub cause: &'static str,
    /// "background", "normal" or "high".
    pub priority: &'static str,
    /// Zone of its first byte; 0 for a flush.
    pub zone: u32,
    /// Byte address on the drive; 0 for a flush.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// "ok" or the name of the fault.
    pub result: &'static str,
}

/// A traced command with its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedEntry {
    /// The command.
    #[serde(flatten)]
    pub entry: TraceEntry,
    /// When the drive got it and when it was complete, in seconds of the drive's clock; `None` where it kept no time.
    pub began: Option<f64>,
    /// Likewise.
    pub ended: Option<f64>,
}

/// Decodes one record of a trace; `None` where it is empty, torn or damaged. Never panics.
pub fn decode_record(bytes: &[u8]) -> Option<TimedEntry> {
    let (raw, _) = RawRecord::read_from_prefix(bytes).ok()?;
    if checksum(&raw) != raw.crc {
        return None;
    }
    let seconds = |ns: u64| (ns != UNTIMED).then_some(ns as f64 / 1e9);
    Some(TimedEntry { entry: entry(&raw)?, began: seconds(raw.began), ended: seconds(raw.ended) })
}

fn checksum(raw: &RawRecord) -> u32 {
    crc32c::crc32c(RawRecord { crc: 0, ..*raw }.as_bytes())
}

fn entry(raw: &RawRecord) -> Option<TraceEntry> {
    Some(TraceEntry {
        sequence: raw.sequence,
        op: *Op::ALL.get(raw.op as usize)?,
        cause: Cause::ALL.get(raw.cause as usize)?.name(),
        priority: ["background", "normal", "high"].get(raw.priority as usize)?,
        zone: raw.zone,
        offset: raw.at,
        len: raw.len,
        result: RESULTS.get(raw.result as usize)?,
    })
}

/// Decodes the header of a trace file: how many records it holds. The error is a sentence. Never panics.
pub fn decode_trace_header(bytes: &[u8]) -> Result<u32, String> {
    let Ok((raw, _)) = RawHeader::read_from_prefix(bytes) else {
        return Err("the trace is truncated; remove it".into());
    };
    if raw.magic != MAGIC {
        return Err("this is not a trace of a drive; move it away".into());
    }
    if raw.version != VERSION {
        return Err(format!("the trace was made by another version (format {}); remove it", raw.version));
    }
    let crc = crc32c::crc32c(RawHeader { crc: 0, ..raw }.as_bytes());
    if raw.crc != crc || raw.entries == 0 || raw.entries > MOST_ENTRIES {
        return Err("the header of the trace is damaged; remove it".into());
    }
    Ok(raw.entries)
}

/// A ring of records.
pub(crate) struct Trace {
    region: Region,
    entries: u32,
}

impl Trace {
    pub(crate) fn in_memory(entries: u32) -> Trace {
        let entries = entries.clamp(1, MOST_ENTRIES);
        Trace { region: Region::heap(RECORDS + entries as usize * RECORD), entries }
    }

    /// Makes an empty trace file.
    pub(crate) fn create(path: &Path, entries: u32) -> io::Result<()> {
        let entries = entries.clamp(1, MOST_ENTRIES);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        let len = RECORDS as u64 + u64::from(entries) * RECORD as u64;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len)?;
        let mut raw = RawHeader { magic: MAGIC, version: VERSION, len: NEXT as u32, crc: 0, entries, reserved: [0; 5] };
        raw.crc = crc32c::crc32c(raw.as_bytes());
        file.write_all_at(raw.as_bytes(), 0)
    }

    /// Opens the trace file at `path` to write to it; `None` where there is none.
    pub(crate) fn open_existing(path: &Path) -> Result<Option<Trace>> {
        Self::open(path, true)
    }

    pub(crate) fn open(path: &Path, write: bool) -> Result<Option<Trace>> {
        let name: Arc<str> = path.display().to_string().into();
        let fail = |error| Error::io(&name, error);
        let file = match File::options().read(true).write(write).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        let mut bytes = [0; NEXT];
        let entries = file
            .read_exact_at(&mut bytes, 0)
            .map_err(|_| "the trace is truncated; remove it".to_owned())
            .and_then(|()| decode_trace_header(&bytes))
            .map_err(|sentence| Error::unusable(&name, sentence))?;
        let len = RECORDS + entries as usize * RECORD;
        if file.metadata().map_err(fail)?.len() < len as u64 {
            return Err(Error::unusable(&name, "the trace is truncated; remove it"));
        }
        Ok(Some(Trace { region: Region::map(&file, len, write).map_err(fail)?, entries }))
    }

    fn record(&self, op: Op, at: Place, tag: Tag, result: &Result<()>) {
        let Place { zone, at, len, time } = at;
        let sequence = self.region.add(NEXT, 1);
        let ns = |time: Option<f64>| time.map_or(UNTIMED, |ns| ns.max(0.0) as u64);
        let mut raw = RawRecord {
            sequence,
            at,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            zone: zone.0,
            op: op as u8,
            cause: tag.cause as u8,
            priority: tag.priority as u8,
            result: result_number(result),
            crc: 0,
            began: ns(time.map(|time| time.0)),
            ended: ns(time.map(|time| time.1)),
        };
        raw.crc = checksum(&raw);
        let place = RECORDS + (sequence % u64::from(self.entries)) as usize * RECORD;
        for (i, word) in raw.as_bytes().chunks_exact(8).enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            self.region.store(place + 8 * i, u64::from_le_bytes(bytes));
        }
    }

    /// The records that are still there, oldest first. One that is being written this moment is left out.
    pub(crate) fn entries(&self) -> Vec<TimedEntry> {
        let next = self.region.load(NEXT);
        let first = next.saturating_sub(u64::from(self.entries));
        let mut out = Vec::new();
        for sequence in first..next {
            let place = RECORDS + (sequence % u64::from(self.entries)) as usize * RECORD;
            let mut bytes = [0; RECORD];
            for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&self.region.load(place + 8 * i).to_le_bytes());
            }
            let record = decode_record(&bytes);
            out.extend(record.filter(|timed| timed.entry.sequence == sequence));
        }
        out
    }
}

/// Where a command went, and when: arrival and completion by the drive's clock, in nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) zone: ZoneId,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) time: Option<(f64, f64)>,
}

/// The trace of a drive, if there is one.
#[derive(Default)]
pub(crate) struct Tracing {
    on: AtomicBool,
    trace: Mutex<Option<Arc<Trace>>>,
}

impl Tracing {
    pub(crate) fn attach(&self, trace: Option<Trace>) {
        self.on.store(trace.is_some(), Ordering::Release);
        *lock(&self.trace) = trace.map(Arc::new);
    }

    pub(crate) fn record(&self, op: Op, at: Place, tag: Tag, result: &Result<()>) {
        if !self.on.load(Ordering::Acquire) {
            return;
        }
        let trace = lock(&self.trace).clone();
        if let Some(trace) = trace {
            trace.record(op, at, tag, result);
        }
    }

    pub(crate) fn entries(&self) -> Vec<TimedEntry> {
        let trace = lock(&self.trace).clone();
        trace.map(|trace| trace.entries()).unwrap_or_default()
    }
}

/// Starts (or empties) the trace of the image at `path`, kept in the file [`crate::trace_path`]. A process that has the
/// image open traces from its next open on.
pub fn start_image_trace(path: &Path, entries: u32) -> Result<()> {
    let trace = crate::trace_path(path);
    Trace::create(&trace, entries).map_err(|error| Error::io(&trace.display().to_string().into(), error))
}

/// What the trace of the image at `path` holds; `None` where it is not traced.
pub fn read_image_trace(path: &Path) -> Result<Option<Vec<TraceEntry>>> {
    Ok(read_timed_trace(path)?.map(|entries| entries.into_iter().map(|timed| timed.entry).collect()))
}

/// How many commands the trace of the image at `path` has seen, those that it forgot contained; `None` where it is not traced.
pub fn image_trace_length(path: &Path) -> Result<Option<u64>> {
    Ok(Trace::open(&crate::trace_path(path), false)?.map(|trace| trace.region.load(NEXT)))
}

/// The same with the time of each command.
pub fn read_timed_trace(path: &Path) -> Result<Option<Vec<TimedEntry>>> {
    Ok(Trace::open(&crate::trace_path(path), false)?.map(|trace| trace.entries()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_records_in_order() {
        let trace = Trace::in_memory(4);
        for i in 0..10 {
            let time = (i > 7).then_some((1e9, f64::from(i) * 1e9));
            let at = Place { zone: ZoneId(i), at: u64::from(i) << 12, len: 4096, time };
            trace.record(Op::Write, at, Cause::Label.into(), &Ok(()));
        }
        let entries = trace.entries();
        assert_eq!(entries.iter().map(|e| e.entry.sequence).collect::<Vec<_>>(), [6, 7, 8, 9]);
        assert_eq!((entries[1].began, entries[3].began, entries[3].ended), (None, Some(1.0), Some(9.0)));
        let last = &entries[3].entry;
        assert_eq!((last.op, last.zone, last.offset, last.len), (Op::Write, 9, 9 << 12, 4096));
        assert_eq!((last.cause, last.priority, last.result), ("label", "normal", "ok"));
    }

    #[test]
    fn damaged_records_are_left_out() {
        let trace = Trace::in_memory(4);
        let nowhere = Place { zone: ZoneId(0), at: 0, len: 0, time: None };
        for byte in (0..RECORD).step_by(8) {
            trace.region.store(NEXT, 0);
            trace.record(Op::Flush, nowhere, Cause::Label.into(), &Ok(()));
            assert_eq!(trace.entries().len(), 1);
            trace.region.store(RECORDS + byte, trace.region.load(RECORDS + byte) ^ 1);
            assert!(trace.entries().is_empty(), "byte {byte}");
        }
        assert!(decode_record(&[0; RECORD - 1]).is_none());
    }
}
