//! Looking at an image without having it: its facts, zones and counters, also while another process uses it.

use super::{DATA_ALIGN, check_lengths, host_error, map_state, open_main, read_header, sibling};
use crate::cache::{AtRisk, at_risk};
use crate::config::Config;
use crate::drive::memory_identity;
use crate::state::State;
use crate::stats::Stats;
use crate::store::file::Files;
use crate::zones::report_zone;
use imbrex_device::{Error, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice, lock_holder};
use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A view of an image that changes as its user changes it. Each zone and counter is right for itself; together they are
/// of the same moment only while nobody uses the drive.
pub struct Observer {
    config: Config,
    state: State,
    files: Vec<PathBuf>,
    meta: Metadata,
    main: File,
    /// Where zone 0 begins in the first file, and how many zones that file has.
    data_at: u64,
    zones_per_file: u32,
}

impl Observer {
    /// Looks at the image at `path`; takes no lock and changes nothing.
    pub fn open(path: &Path) -> Result<Observer> {
        Self::view(path, false)
    }

    fn view(path: &Path, write: bool) -> Result<Observer> {
        let (file, meta) = open_main(path, write)?;
        let header = read_header(path, &file)?;
        check_lengths(path, &header, std::slice::from_ref(&file))?;
        let state = map_state(path, &header.config, &file, write)?;
        let config = Config { name: path.display().to_string(), write_cache: state.write_cache(), ..header.config };
        let files = (0..header.files).map(|index| sibling(path, index)).collect();
        let (data_at, zones_per_file) = (header.data_at, header.zones_per_file);
        Ok(Observer { config, state, files, meta, main: file, data_at, zones_per_file })
    }

    /// Sets the counters of the image at `path`, those of its time too, to 0, also while another process uses it.
    pub fn reset_stats(path: &Path) -> Result<()> {
        let seen = Self::view(path, true)?;
        seen.state.reset_counters();
        if let Some(ledger) = seen.ledger(true)? {
            ledger.reset();
        }
        Ok(())
    }

    /// What the drive is made of.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// All zones.
    pub fn zones(&self) -> Vec<Zone> {
        (0..self.config.zones()).map(|zone| report_zone(&self.config, &self.state, zone)).collect()
    }

    /// Everything counted so far.
    pub fn stats(&self) -> Stats {
        Stats::load(&self.state)
    }

    /// Sequential zones with blocks that a power loss may take.
    pub fn unflushed(&self) -> Vec<AtRisk> {
        let zones = self.config.conventional..self.config.zones();
        let at_risk = zones.map(|zone| AtRisk { zone: ZoneId(zone), blocks: at_risk(&self.state, zone) });
        at_risk.filter(|risk| risk.blocks > 0).collect()
    }

    /// Fills `buf` with what stands `at` a byte of the conventional zones in its first file, as it is at this moment. False: it is not
    /// there, or cannot be read.
    pub fn read_conventional(&self, buf: &mut [u8], at: u64) -> bool {
        let zones = u64::from(self.config.conventional.min(self.zones_per_file));
        let end = at.checked_add(buf.len() as u64);
        end.is_some_and(|end| end <= zones * self.config.zone_size)
            && self.main.read_exact_at(buf, self.data_at + at).is_ok()
    }

    /// Its files on the host.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The process that has it open, where the system tells.
    pub fn holder(&self) -> Option<u32> {
        lock_holder(&self.meta)
    }

    /// Who noted itself as its user; a killed one may still stand there.
    pub(crate) fn noted_holder(&self) -> Option<u32> {
        u32::try_from(self.state.holder()).ok().filter(|pid| *pid != 0)
    }
}

/// The drive of an image as it stands at each moment, to be read and not written, also while another process uses it. What that process keeps in its memory is not there.
pub struct Observed {
    seen: Observer,
    identity: Identity,
    geometry: Geometry,
    files: Files,
}

impl Observed {
    /// Looks at the image at `path`; takes no lock and changes nothing.
    ///
    /// # Errors
    /// Those of [`Observer::open`], and of the image's other files.
    pub fn open(path: &Path) -> Result<Observed> {
        let seen = Observer::open(path)?;
        let open = |path: &PathBuf| File::open(path).map_err(|error| host_error(path, "read", error));
        let files = Files {
            files: seen.files.iter().map(open).collect::<Result<_>>()?,
            _lock: None,
            zone_size: seen.config.zone_size,
            zones_per_file: seen.zones_per_file,
            data_at: [seen.data_at, DATA_ALIGN],
        };
        let (identity, geometry) = (memory_identity(&seen.config, &seen.state), seen.config.geometry());
        Ok(Observed { seen, identity, geometry, files })
    }

    fn refuse(&self) -> Error {
        Error::invalid(&self.identity.name, "the drive is only looked at")
    }
}

impl ZonedDevice for Observed {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        let zones = (from.0..self.geometry.zones).take(out.len());
        Ok(out
            .iter_mut()
            .zip(zones)
            .map(|(to, zone)| *to = report_zone(&self.seen.config, &self.seen.state, zone))
            .count())
    }

    fn read_at(&self, buf: &mut [u8], at: u64, _: Tag) -> Result<()> {
        let end = at.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.geometry.size()) {
            return Err(Error::invalid(&self.identity.name, "a read behind the end of the drive"));
        }
        let (mut at, mut rest) = (at, buf);
        while !rest.is_empty() {
            let (zone, offset) = (self.geometry.zone_of(at), at % self.geometry.zone_size);
            let len = (self.geometry.zone_size - offset).min(rest.len() as u64) as usize;
            let (part, behind) = rest.split_at_mut(len);
            self.files
                .read(zone.0, offset, part)
                .map_err(|error| Error::io(&self.identity.name, error).at(zone, at))?;
            (at, rest) = (at + len as u64, behind);
        }
        Ok(())
    }

    fn write_at(&self, _: &[u8], _: u64, _: Tag) -> Result<()> {
        Err(self.refuse())
    }

    fn flush(&self, _: Tag) -> Result<()> {
        Err(self.refuse())
    }

    fn zone_op(&self, _: ZoneOp, _: ZoneId, _: Tag) -> Result<()> {
        Err(self.refuse())
    }

    fn write_cache(&self) -> Result<bool> {
        Ok(self.seen.config.write_cache)
    }

    fn set_write_cache(&self, _: bool) -> Result<()> {
        Err(self.refuse())
    }
}
