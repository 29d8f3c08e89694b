//! An ext4 whose files lie all over the drive, as on one that has been in use for long.
//!
//! A new ext4 puts large files side by side, whatever directories they are in: its allocator goes on where the last large file ended. So a few files
//! take all space first, and give back holes, evenly over the stroke. What comes then has only those.

use super::super::Stop;
use crate::segments::random;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;
/// Files that take what nobody shall use.
const FILLERS: u64 = 160;

pub(super) fn failed(path: &Path, error: impl std::fmt::Display) -> Stop {
    Stop::Failed(format!("{}: {error}; see that the file system has room", path.display()))
}

/// What `mkfs.ext4` is told: space in clusters of 1 MiB, so that all of it is taken in a moment, and room for so many files; none is kept for root, who
/// runs this.
pub(super) fn one_of_clusters(files: u64) -> Vec<String> {
    ["-O", "bigalloc", "-C", "1048576", "-m", "0", "-N", &files.to_string()].map(String::from).to_vec()
}

/// Takes all space of a file system of this length, and gives back so many holes of so many bytes.
pub(super) fn holes(dir: &Path, length: u64, count: u64, hole: u64) -> Result<(), Stop> {
    let each = length / FILLERS / MIB * MIB;
    let path = |n: u64| dir.join(format!("filler-{n}"));
    let mut last = 0;
    // The last ones find less than they ask for, or nothing: then all is taken.
    for n in 0..2 * FILLERS {
        let file = File::create(path(n)).map_err(|error| failed(&path(n), error))?;
        last = n;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, each) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOSPC) => break,
            Err(error) => return Err(failed(&path(n), error)),
        }
    }
    let whole = (last.max(1) * each) as f64;
    for n in 0..count {
        let at = (whole * (n as f64 + 0.5) / count as f64) as u64;
        // Whole within its file.
        let (n, at) = (at / each, (at % each / MIB * MIB).min(each.saturating_sub(hole)));
        let file = OpenOptions::new().write(true).open(path(n)).map_err(|error| failed(&path(n), error))?;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, how, at, hole).map_err(|error| failed(&path(n), error))?;
    }
    Ok(())
}

/// These files in an order that has nothing to do with theirs, always the same: holes are taken from the front, and files that are
/// written together shall not be neighbours.
pub(super) fn shuffled(files: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut all: Vec<(u64, PathBuf)> = files.enumerate().map(|(n, path)| (random(n as u64), path)).collect();
    all.sort();
    all.into_iter().map(|(_, path)| path).collect()
}

/// Where files begin in their file system, in bytes, as `filefrag` of e2fsprogs says.
pub(super) fn begins(files: &[PathBuf]) -> Result<Vec<u64>, Stop> {
    let asked = Command::new("filefrag").args(["-e", "-b4096"]).args(files).output();
    let asked = asked.map_err(|error| format!("needs filefrag, of the package e2fsprogs ({error})"))?;
    let begins = first_extents(&String::from_utf8_lossy(&asked.stdout));
    if begins.len() == files.len() {
        return Ok(begins);
    }
    Err(Stop::Failed(format!("filefrag tells of {} of {} files where they begin", begins.len(), files.len())))
}

/// Of each file the first extent: `   0:        0..   65535:  619741184.. 619806719: …`.
fn first_extents(text: &str) -> Vec<u64> {
    let first = |line: &str| {
        let mut parts = line.split(':');
        let (number, _, physical) = (parts.next()?, parts.next()?, parts.next()?);
        let block: u64 = physical.split("..").next()?.trim().parse().ok()?;
        (number.trim() == "0").then_some(block * 4096)
    };
    text.lines().filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_files_begin_is_read_from_what_filefrag_says() {
        let text = "Filesystem type is: ef53\n\
            File size of /m/0.0 is 268435456 (65536 blocks of 4096 bytes)\n \
            ext:     logical_offset:        physical_offset: length:   expected: flags:\n   \
            0:        0..       7:         12..        19:      8:\n   \
            1:        8..   65535:  619741192.. 619806719:  65528:         20: last,unwritten,eof\n\
            /m/0.0: 2 extents found\n   \
            0:        0..   65535:        256..     65791:  65536:             last,unwritten,eof\n";
        assert_eq!(first_extents(text), [12 * 4096, 256 * 4096]);
        assert!(begins(&["/no/such/file".into()]).is_err());
    }

    #[test]
    fn files_are_made_in_another_order_than_theirs() {
        let files = || (0..100).map(|n| PathBuf::from(format!("{n:02}")));
        let mut order = shuffled(files());
        assert_eq!(order, shuffled(files()));
        let neighbours = order.windows(2).filter(|two| two.is_sorted()).count();
        assert!((30..70).contains(&neighbours), "{order:?}");
        order.sort();
        assert!(order.into_iter().eq(files()));
    }
}
