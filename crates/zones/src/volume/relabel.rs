//! A label for a drive that has lost its own: whether it has, where the new one would stand, and writing it.

#[cfg(doc)]
use super::Tenant;
use super::labels::{LabelZones, cannot_write, conventional_count, geometry_of};
use super::{Volume, name_of, unusable};
use crate::label::{self, Label, LabelError, TenantRecord};
use imbrex_device::{Drive, Error, Result, Zone, ZoneId, ZonedDevice, report_all};
use std::sync::atomic::Ordering;

/// What a drive is to say of itself that has lost its label, as far as others can tell what stood there.
#[derive(Clone, Debug)]
pub struct NewLabel {
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Above that of any label that may still stand somewhere and come back.
    pub generation: u64,
    /// Mounts that are known of.
    pub mount: u64,
    /// Its tenants.
    pub tenants: Vec<TenantRecord>,
    /// The owner of each zone; those that hold labels are marked as such when it is written.
    pub owners: Vec<u8>,
}

/// A drive without a label that it could be opened by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostLabel {
    /// What is wrong with the copies.
    pub why: LabelError,
    /// Where they stood, and a new one would.
    pub zones: [ZoneId; 2],
    /// How many zones in front are conventional.
    pub conventional: u32,
}

/// How many zones in front are conventional, dead ones among them.
pub(crate) fn conventional(report: &[Zone]) -> u32 {
    *conventional_count(report).start()
}

/// Where [`Volume::relabel`] would write; `None`: the drive has too few zones.
pub(crate) fn label_places(device: &dyn ZonedDevice, report: &[Zone]) -> Option<[ZoneId; 2]> {
    LabelZones::of(conventional(report), device.geometry().zones).map(|zones| zones.zones())
}

impl Volume {
    /// Whether both copies of a drive's label are lost; `None`: it has one.
    ///
    /// # Errors
    /// `Unusable` with a whole sentence where it has one of a newer version or a band table, and where zones at its beginning have
    /// died and nobody can tell where its label stood.
    pub fn lost_label(drive: &Drive) -> Result<Option<LostLabel>> {
        let device = drive.device.as_ref();
        let report = report_all(device)?;
        let found = LabelZones::find(device, &report)?.ok_or_else(|| unusable(device, LabelError::NotALabel))?;
        let [a, b] = found.copies;
        let why = match Label::choose(a, b) {
            Ok(_) => return Ok(None),
            Err(why @ (LabelError::NotALabel | LabelError::Corrupt(_))) => why,
            Err(other) => return Err(unusable(device, other)),
        };
        let count = conventional_count(&report);
        if count.start() != count.end() && *count.start() < 2 {
            let what = "has lost its label, and zones at its beginning have died, so that nobody can tell where the label stood; \
                        nothing was changed: restore it from a copy";
            return Err(unusable(device, what));
        }
        Ok(Some(LostLabel { why, zones: found.zones.zones(), conventional: *count.start() }))
    }

    /// Writes a label to a drive that has [lost its own](Volume::lost_label). Nothing else is changed.
    ///
    /// # Errors
    /// `Unusable` where the drive has fewer than three zones; `InvalidInput` where this is no label.
    pub fn relabel(drive: &Drive, new: NewLabel) -> Result<()> {
        let device = drive.device.as_ref();
        let conventional = *conventional_count(&report_all(device)?).start();
        let zones = LabelZones::of(conventional, device.geometry().zones)
            .ok_or_else(|| unusable(device, "has fewer than three zones"))?;
        let NewLabel { uuid, generation, mount, tenants, mut owners } = new;
        for zone in zones.zones() {
            if let Some(owner) = owners.get_mut(zone.0 as usize) {
                *owner = label::LABEL;
            }
        }
        let geometry = geometry_of(device.geometry(), conventional);
        let power = Label::power_of(device.power_epoch());
        let label = Label { uuid, geometry, generation, mount, power, tenants, owners };
        label.check().map_err(|what| Error::invalid(&name_of(device), what))?;
        match zones.write(device, &label, None, |tag| device.flush(tag))? {
            true => Ok(()),
            false => Err(cannot_write(device)),
        }
    }

    /// The zones that hold the label.
    pub fn label_zones(&self) -> [ZoneId; 2] {
        self.core().label_zones.zones()
    }

    /// There were this many mounts at least, though the label, which was made anew, does not know of them. To be said before
    /// [`Tenant::recovered`], which makes it durable; this mount comes after them.
    pub fn comes_after(&self, mount: u64) {
        self.core().mount.fetch_max(mount.saturating_add(1), Ordering::AcqRel);
    }
}
