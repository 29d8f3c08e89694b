//! Where the bytes of the zones stand. A store knows nothing of rules: the drive above it keeps writers apart and never
//! reads what was not written.

pub(crate) mod cow;
pub(crate) mod file;
pub(crate) mod flat;

use crate::config::Config;
use cow::Cow;
use file::Files;
use flat::Flat;
use std::io;

/// The three homes of data.
pub(crate) enum Store {
    Cow(Cow),
    Flat(Flat),
    File(Files),
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
        }
        Ok(())
    }

    /// Writes; the caller keeps overlapping readers and writers out. After an error any part may have been written.
    pub(crate) fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Store::Cow(cow) => cow.write(zone, offset, bytes),
            Store::Flat(flat) => flat.write(zone, offset, bytes),
            Store::File(files) => return files.write(zone, offset, bytes),
        }
        Ok(())
    }

    /// Nobody will read the zone's bytes again before they are written: give their space back.
    pub(crate) fn discard(&self, zone: u32, written: u64) {
        match self {
            Store::Cow(cow) => cow.discard(zone),
            Store::Flat(flat) => flat.discard(zone, written),
            Store::File(files) => files.discard(zone, written),
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
