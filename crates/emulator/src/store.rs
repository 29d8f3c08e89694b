//! Where the bytes of the zones stand. A store knows nothing of rules: the drive above it keeps writers apart and never
//! reads what was not written.

pub(crate) mod cow;
pub(crate) mod file;
pub(crate) mod flat;
pub(crate) mod packed;

use crate::config::Config;
use cow::Cow;
use file::Files;
use flat::Flat;
use packed::Packed;
use std::io;

/// The four homes of data.
pub(crate) enum Store {
    Cow(Cow),
    Flat(Flat),
    File(Files),
    Packed(Packed),
}

impl Store {
    /// An empty copy-on-write store.
    pub(crate) fn cow(config: &Config) -> Store {
        Store::Cow(Cow::new(config))
    }

    /// Reads bytes that were written; the caller keeps overlapping writers out.
    pub(crate) fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Store::Cow(cow) => cow.read(zone, offset, out),
            Store::Flat(flat) => flat.read(zone, offset, out),
            Store::File(files) => return files.read(zone, offset, out),
            Store::Packed(packed) => return packed.read(zone, offset, out),
        }
        Ok(())
    }

    /// Writes; the caller keeps overlapping readers and writers out. After an error any part may have been written.
    pub(crate) fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Store::Cow(cow) => cow.write(zone, offset, bytes),
            Store::Flat(flat) => flat.write(zone, offset, bytes),
            Store::File(files) => return files.write(zone, offset, bytes),
            Store::Packed(packed) => return packed.write(zone, offset, bytes),
        }
        Ok(())
    }

    /// Nobody will read the zone's bytes again before they are written: give their space back.
    pub(crate) fn discard(&self, zone: u32, written: u64) {
        match self {
            Store::Cow(cow) => cow.discard(zone),
            Store::Flat(flat) => flat.discard(zone, written),
            Store::File(files) => files.discard(zone, written),
            Store::Packed(packed) => packed.discard(zone),
        }
    }

    /// Waits until the host's disk has everything.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self {
            Store::File(files) => files.sync(),
            _ => Ok(()),
        }
    }
}
