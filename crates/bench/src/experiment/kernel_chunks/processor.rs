//! What a chunk server on ext4 takes of the processor, for `chunk-cpu`: the work that the chunk store does for the same bytes. The user's bytes are copied into
//! segments, each gets its checksum, and they go past the page cache into files whose space was taken beforehand; to read is to verify and to copy out. All is
//! synced once, in the end.
//!
//! Counted is what the thread takes, in the server and in the kernel, and the thread of the file system's journal. What the loop device and the drive's
//! simulation take is not, as the drive's own copy is not on the other side.

use super::super::hosts::workplace;
use super::super::{Run, Stop};
use super::ext4;
use crate::baseline::Setup;
use crate::segments::{PAYLOAD, SEGMENT, seal, unseal};
use imbrex_device::AlignedBuf;
use imbrex_emulator::Profile;
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// An append: 1 MiB of the user, less 144 bytes.
const SEGMENTS: u64 = 259;
/// Appends to a chunk, as in the store's rows.
const A_CHUNK: u64 = 60;

/// Nanoseconds of the processor for so many appends and for reading them again, and the user's bytes in them.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Took {
    pub(in super::super) appended: u64,
    pub(in super::super) read: u64,
    pub(in super::super) bytes: u64,
}

/// Nanoseconds that the thread of the file system's journal has had a processor.
fn journal(device: &Path) -> Result<u64, Stop> {
    let missing =
        || Stop::Failed("the kernel does not tell how long the journal's thread ran (/proc/PID/schedstat)".into());
    let begins = format!("jbd2/{}-", device.file_name().unwrap_or_default().to_string_lossy());
    let named = |dir: &Path| std::fs::read_to_string(dir.join("comm")).is_ok_and(|name| name.starts_with(&begins));
    let all = std::fs::read_dir("/proc").map_err(|_| missing())?.flatten().map(|entry| entry.path());
    let thread = all.into_iter().find(|dir| named(dir)).ok_or_else(missing)?;
    let text = std::fs::read_to_string(thread.join("schedstat")).map_err(|_| missing())?;
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).ok_or_else(missing)
}

/// So many appends, and reading them again; `on_cpu`: nanoseconds of this thread.
pub(in super::super) fn processor(
    run: &Run,
    profile: &Profile,
    appends: u64,
    on_cpu: fn() -> u64,
) -> Result<Took, Stop> {
    let dir = workplace(&run.options.work)?;
    let setup = ext4::setup(run, profile, true, dir.path())?;
    let baseline = ext4::started(&Setup { part: Some((0, 4 << 30)), ..setup })?;
    let files = open(&baseline.dir(), appends.div_ceil(A_CHUNK))?;
    let len = SEGMENTS * SEGMENT;
    let mut buffer = AlignedBuf::zeroed(len as usize);
    let expected: Vec<u8> =
        (0..(SEGMENTS * PAYLOAD) as u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let failed = |error: std::io::Error| Stop::Failed(format!("{}: {error}", baseline.dir().display()));
    baseline.begin()?;
    let now = || Ok::<u64, Stop>(on_cpu() + journal(baseline.device())?);
    let began = now()?;
    for i in 0..appends {
        let (chunk, at) = (i / A_CHUNK, i % A_CHUNK * len);
        seal(&mut buffer, &expected, chunk, at);
        files.get(chunk as usize).ok_or("there are fewer files")?.write_all_at(&buffer, at).map_err(failed)?;
    }
    if let Some(file) = files.first() {
        rustix::fs::syncfs(file).map_err(|error| failed(error.into()))?;
    }
    let appended = now()? - began;
    let mut bytes = vec![0; expected.len()];
    let began = now()?;
    for i in 0..appends {
        let (chunk, at) = (i / A_CHUNK, i % A_CHUNK * len);
        files.get(chunk as usize).ok_or("there are fewer files")?.read_exact_at(&mut buffer, at).map_err(failed)?;
        unseal(&buffer, &mut bytes, chunk, at)?;
    }
    let read = now()? - began;
    drop(files);
    baseline.finish().map_err(|why| format!("the file system could not be taken down: {why}"))?;
    if bytes != expected {
        return Err("ext4 gave out other bytes than it was given; look into that first".into());
    }
    Ok(Took { appended, read, bytes: appends * SEGMENTS * PAYLOAD })
}

/// New files of a chunk each, their space taken.
fn open(dir: &Path, count: u64) -> Result<Vec<File>, Stop> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
    let one = |n: u64| {
        let path = dir.join(n.to_string());
        let file = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(direct).open(&path)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, A_CHUNK * SEGMENTS * SEGMENT)?;
        Ok(file)
    };
    let all: std::io::Result<Vec<File>> = (0..count).map(one).collect();
    all.map_err(|error| Stop::Failed(format!("{}: {error}; see that the file system has room", dir.display())))
}
