//! A zoned drive all of whose zones are sequential: where it has conventional ones, bands in them serve (SMRDB §4.1).
//!
//! Bands are as large as zones and stand where conventional zones stand, so that each band is one zone; the first conventional
//! zones hold the band table. The drive's own sequential zones follow, untouched, and obey the drive's own rules. Bands do
//! not count against the drive's limits of open and active zones: whoever keeps to them is safe, and the drive's own zones enforce them.
//!
//! One flush is the bands' batch and one flush of the drive, which covers its other zones, too. The death of the process
//! loses nothing where there is a survivor; without one it costs the bands what a power loss costs.

use super::base::Base;
use super::layout::{COPY_AT, NoHeader, PAGE, decode_header};
use super::{Banded, ConventionalZones, ERASED_BANDS, Layout, no_header, recover};
use crate::kernel::Access;
use crate::{
    AlignedBuf, Error, Fault, Geometry, Identity, Result, Survivor, Tag, Zone, ZoneId, ZoneOp, ZoneState, ZonedDevice,
    report_all,
};
use std::sync::Arc;

/// A drive whose conventional zones serve as sequential ones.
pub struct SequentialOnly {
    device: Arc<dyn ZonedDevice>,
    bands: Banded,
    geometry: Geometry,
    /// Zones of the drive that are not zones here: they hold the table.
    shift: u32,
    /// The drive's power epoch when it was opened.
    epoch: [u8; 16],
}

/// How the drive's conventional zones are cut.
fn plan(device: &dyn ZonedDevice) -> Result<Layout> {
    let (geometry, name) = (device.geometry(), &device.identity().name);
    let zones = report_all(device)?;
    let conventional = zones.iter().take_while(|zone| zone.state == ZoneState::Conventional).count() as u64;
    let size = conventional * geometry.zone_size;
    let too_few = || {
        let sentence = format!(
            "its {conventional} conventional zones of {} bytes leave fewer than three beside the band table; use the drive as \
             it is",
            geometry.zone_size
        );
        Error::unusable(name, sentence)
    };
    let plan = Layout::plan(size, geometry.block, geometry.zone_size, Some(0)).map_err(|_| too_few())?;
    // Every band is a zone: the table takes whole ones.
    let data_at = plan.data_at.next_multiple_of(geometry.zone_size);
    let bands = conventional.saturating_sub(data_at / geometry.zone_size);
    if bands < 3 {
        return Err(too_few());
    }
    Ok(Layout { data_at, bands: u32::try_from(bands).unwrap_or(u32::MAX), ..plan })
}

/// Whether each band is one zone of the drive, and none is conventional.
fn is_whole_zones(layout: &Layout, zone_size: u64) -> bool {
    layout.band == zone_size && layout.data_at.is_multiple_of(zone_size) && layout.conventional == 0
}

impl SequentialOnly {
    /// How many bands the drive's conventional zones would make; 0: none, or too few.
    ///
    /// Errors: those of a report of zones.
    pub fn possible_bands(device: &dyn ZonedDevice) -> Result<u32> {
        match plan(device) {
            Ok(plan) => Ok(plan.bands),
            Err(Error { fault: Fault::Unusable(_), .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a band table on the drive's conventional zones whose bands are zones.
    ///
    /// Errors: as [`Banded::open`] where there is one that cannot be used.
    pub fn is_cut(device: &Arc<dyn ZonedDevice>) -> Result<bool> {
        let base = match ConventionalZones::new(device.clone(), None) {
            Ok(base) => base,
            Err(Error { fault: Fault::Unusable(_), .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let name = &device.identity().name;
        let header = recover::read_header(&base).map_err(|fault| Error::new(name, fault))?;
        match header {
            Ok((layout, _)) => Ok(is_whole_zones(&layout, device.geometry().zone_size)),
            Err(NoHeader::Foreign) => Ok(false),
            Err(why) => Err(no_header(name, why)),
        }
    }

    /// How many bands a table makes of a drive's conventional zones, `size` bytes in zones of `zone_size`, for who only looks: `read`
    /// fills a buffer from a place on the drive. `None` where there is no whole table.
    pub fn seen(size: u64, zone_size: u64, mut read: impl FnMut(&mut [u8], u64) -> bool) -> Option<u32> {
        [0, COPY_AT].into_iter().find_map(|at| {
            let mut page = AlignedBuf::zeroed(PAGE);
            let layout = read(&mut page, at).then(|| decode_header(&page, size).ok()).flatten()?;
            is_whole_zones(&layout, zone_size).then_some(layout.bands)
        })
    }

    /// Makes a band table on the drive's conventional zones, which destroys what is in them.
    ///
    /// Errors: `Unusable` where there are none, or too few.
    pub fn format(device: &Arc<dyn ZonedDevice>) -> Result<Layout> {
        Self::format_as(device, [0; 16])
    }

    /// The same with this UUID for the table, for tests that do everything twice.
    ///
    /// Errors: those of [`SequentialOnly::format`].
    pub fn format_as(device: &Arc<dyn ZonedDevice>, uuid: [u8; 16]) -> Result<Layout> {
        let base = ConventionalZones::new(device.clone(), None)?;
        let plan = Layout { uuid, ..plan(device.as_ref())? };
        // Bands are not read before they are written; but who opens the drive as it is shall find no old label in one.
        let zeros = AlignedBuf::zeroed(PAGE);
        for band in 0..plan.bands.min(ERASED_BANDS) {
            base.write(&zeros, plan.start(band)).map_err(|fault| Error::new(&device.identity().name, fault))?;
        }
        Banded::format(&base, &plan)
    }

    /// Opens the drive, on whose conventional zones there is a band table.
    ///
    /// Errors: `Unusable` where there are no conventional zones, no table, or the table of something else; those of
    /// [`Banded::open`].
    pub fn open(
        device: Arc<dyn ZonedDevice>,
        survivor: Option<Arc<dyn Survivor>>,
        access: Access,
    ) -> Result<SequentialOnly> {
        let base = ConventionalZones::new(device.clone(), survivor)?;
        let bands = Banded::open(Box::new(base), access)?;
        let (own, layout) = (device.geometry().clone(), *bands.layout());
        let fits = is_whole_zones(&layout, own.zone_size);
        let shift = u32::try_from(layout.data_at / own.zone_size).ok().filter(|shift| fits && own.zones > *shift);
        let Some(shift) = shift else {
            let sentence = "the band table on its conventional zones was made for another use; make it anew";
            return Err(Error::unusable(&device.identity().name, sentence));
        };
        let geometry = Geometry { zones: own.zones - shift, ..own };
        let epoch = device.power_epoch();
        Ok(SequentialOnly { device, bands, geometry, shift, epoch })
    }

    /// Zones that are bands: the first ones.
    pub fn bands(&self) -> u32 {
        self.bands.layout().bands
    }

    /// Where the drive's own zones begin, here.
    fn border(&self) -> u64 {
        u64::from(self.bands()) * self.geometry.zone_size
    }

    /// The drive's own address of what is `at` here.
    fn own(&self, at: u64) -> Option<u64> {
        at.checked_add(u64::from(self.shift) * self.geometry.zone_size)
    }

    /// The drive's error in the words of its zones here.
    fn here(&self, error: Error) -> Error {
        let zone = error.zone.map(|zone| ZoneId(zone.0.saturating_sub(self.shift)));
        let offset = error.offset.saturating_sub(u64::from(self.shift) * self.geometry.zone_size);
        Error { zone, offset, ..error }
    }

    /// An address so far behind the end that adding to it fails.
    fn behind(&self, at: u64) -> Error {
        let what = format!("{at} is behind the drive's {} bytes", self.geometry.size());
        Error::invalid(&self.identity().name, what).at(self.geometry.zone_of(at), at)
    }
}

impl ZonedDevice for SequentialOnly {
    fn identity(&self) -> &Identity {
        self.bands.identity()
    }

    fn power_epoch(&self) -> [u8; 16] {
        let below = self.device.power_epoch();
        if below == self.epoch { self.bands.power_epoch() } else { below }
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        let all = self.geometry.zones.saturating_sub(from.0) as usize;
        let n = all.min(out.len());
        let out = out.get_mut(..n).unwrap_or_default();
        let mut done = 0;
        while done < n {
            let first = ZoneId(from.0 + self.shift + done as u32);
            let got = self.device.report(first, &mut out[done..]).map_err(|error| self.here(error))?;
            if got == 0 {
                break;
            }
            done += got;
        }
        for zone in out[..done].iter_mut() {
            zone.id = ZoneId(zone.id.0.saturating_sub(self.shift));
            // A band in a zone that died is as dead as the zone.
            if zone.state == ZoneState::Conventional {
                let id = zone.id;
                self.bands.report(id, std::slice::from_mut(zone))?;
            }
        }
        Ok(done)
    }

    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        let border = self.border();
        if at >= border {
            let own = self.own(at).ok_or_else(|| self.behind(at))?;
            return self.device.read_at(buf, own, tag).map_err(|error| self.here(error));
        }
        let in_bands = (border - at).min(buf.len() as u64) as usize;
        let (first, rest) = buf.split_at_mut(in_bands);
        if rest.is_empty() || !self.geometry.reads_cross_zones {
            return self.bands.read_at(buf, at, tag);
        }
        self.bands.read_at(first, at, tag)?;
        self.read_at(rest, border, tag).map_err(|error| match error.fault {
            Fault::Media { len } => Error { fault: Fault::Media { len: len + in_bands as u64 }, ..error },
            _ => error,
        })
    }

    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        if at < self.border() {
            return self.bands.write_at(buf, at, tag);
        }
        let own = self.own(at).ok_or_else(|| self.behind(at))?;
        self.device.write_at(buf, own, tag).map_err(|error| self.here(error))
    }

    fn flush(&self, tag: Tag) -> Result<()> {
        self.bands.flush(tag)
    }

    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        if zone.0 < self.bands() {
            return self.bands.zone_op(op, zone, tag);
        }
        let Some(own) = zone.0.checked_add(self.shift) else {
            let what = format!("there is no zone {zone}");
            return Err(Error::invalid(&self.identity().name, what).at(zone, 0));
        };
        self.device.zone_op(op, ZoneId(own), tag).map_err(|error| self.here(error))
    }

    /// On where either part needs a flush: how far a band is written is durable with one only, whatever the drive does with the bytes.
    fn write_cache(&self) -> Result<bool> {
        Ok(self.bands.write_cache()? || self.device.write_cache()?)
    }

    /// With `off` the bands flush after every write, and the drive does what it does.
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.bands.set_write_cache(on)?;
        self.device.set_write_cache(on)
    }
}

impl std::fmt::Debug for SequentialOnly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "SequentialOnly({}, {} of {} zones are bands)",
            self.identity().name,
            self.bands(),
            self.geometry.zones
        )
    }
}
