//! One flat mapping of the whole address space, for benchmarks: an I/O is a `memcpy` and nothing else.

use crate::config::Config;
use crate::region::Region;
use std::io;

/// The mapping; zone after zone.
pub(crate) struct Flat {
    region: Region,
    zone_size: u64,
    prefaulted: bool,
}

impl Flat {
    /// Maps the drive; prefaulted, every page is there before the first command.
    pub(crate) fn new(config: &Config, prefault: bool) -> io::Result<Flat> {
        let len = usize::try_from(config.capacity).map_err(io::Error::other)?;
        Ok(Flat { region: Region::anonymous(len, prefault)?, zone_size: config.zone_size, prefaulted: prefault })
    }

    fn at(&self, zone: u32, offset: u64) -> usize {
        (u64::from(zone) * self.zone_size + offset) as usize
    }

    pub(crate) fn read(&self, zone: u32, offset: u64, out: &mut [u8]) {
        self.region.copy_out(self.at(zone, offset), out);
    }

    pub(crate) fn write(&self, zone: u32, offset: u64, bytes: &[u8]) {
        self.region.copy_in(self.at(zone, offset), bytes);
    }

    /// Prefaulted pages stay: that is what they are for.
    pub(crate) fn discard(&self, zone: u32, written: u64) {
        if !self.prefaulted {
            self.region.give_back(self.at(zone, 0), written as usize);
        }
    }
}
