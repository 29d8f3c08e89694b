//! Data in sparse files: the image itself and, where one file would be too large for the host, its siblings `path.1`,
//! `path.2`, … A zone lies in one file. Holes read as zeros; a reset zone becomes a hole.

use crate::image::lock::Lock;
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The files and how zones are spread over them.
pub(crate) struct Files {
    pub(crate) files: Vec<File>,
    /// None for who only looks.
    pub(crate) _lock: Option<Lock>,
    pub(crate) zone_size: u64,
    pub(crate) zones_per_file: u32,
    /// Where the data begins in the first file, and in the others.
    pub(crate) data_at: [u64; 2],
}

impl Files {
    fn place(&self, zone: u32, offset: u64) -> io::Result<(&File, u64)> {
        let index = zone / self.zones_per_file;
        let within = u64::from(zone % self.zones_per_file) * self.zone_size + offset;
        let file =
            self.files.get(index as usize).ok_or_else(|| io::Error::other("a file of the drive image is missing"))?;
        Ok((file, self.data_at[index.min(1) as usize] + within))
    }

    pub(crate) fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (file, at) = self.place(zone, offset)?;
        file.read_exact_at(out, at)
    }

    pub(crate) fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (file, at) = self.place(zone, offset)?;
        file.write_all_at(bytes, at)
    }

    /// Punches a hole. Where the host's file system cannot, the space stays taken until it is written again: the bytes
    /// lie above a write pointer and are never read.
    pub(crate) fn discard(&self, zone: u32, written: u64) {
        if written == 0 {
            return;
        }
        if let Ok((file, at)) = self.place(zone, 0)
            && let Err(error) = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, written)
        {
            tracing::debug!(zone, %error, "the host cannot punch holes; the zone's space stays taken");
        }
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| fdatasync(file).map_err(io::Error::from))
    }
}
