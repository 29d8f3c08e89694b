//! The two copies of the label on a drive: where they stand, reading and writing them, and formatting.

use super::{FormatOptions, TenantSpec, Volume, name_of, read_all, unusable, write_all};
use crate::label::{self, Label, LabelError, LabelGeometry, TenantRecord};
use imbrex_device::{
    AlignedBuf, Cause, Drive, Error, Fault, Geometry, Priority, Result, Tag, Zone, ZoneOp, ZoneState, ZonedDevice,
    report_all,
};

pub(super) fn label_slots(geometry: &Geometry) -> [u64; 2] {
    [0, geometry.zone_size]
}

pub(super) fn label_bytes(geometry: &Geometry) -> u64 {
    geometry.round_up(Label::encoded_len(geometry.zones) as u64)
}

pub(super) fn conventional_prefix(report: &[Zone]) -> u32 {
    report.iter().take_while(|z| z.state == ZoneState::Conventional).count() as u32
}

pub(super) fn geometry_of(geometry: &Geometry, report: &[Zone]) -> LabelGeometry {
    LabelGeometry {
        block: geometry.block,
        zones: geometry.zones,
        zone_size: geometry.zone_size,
        conventional: conventional_prefix(report),
    }
}

pub(super) fn read_slot(device: &dyn ZonedDevice, at: u64) -> Result<Result<Label, LabelError>> {
    let geometry = device.geometry();
    let mut buf = AlignedBuf::zeroed(label_bytes(geometry) as usize);
    let mut result = read_all(device, &mut buf, at, Cause::Label.into());
    // A label that was written for more zones is longer: read all of it, so that it can be told from a damaged one.
    let claimed = geometry.round_up(Label::claimed_len(&buf).unwrap_or(0) as u64);
    if result.is_ok() && claimed > buf.len() as u64 && claimed <= geometry.zone_size {
        buf = AlignedBuf::zeroed(claimed as usize);
        result = read_all(device, &mut buf, at, Cause::Label.into());
    }
    match result {
        Ok(()) => Ok(Label::decode(&buf)),
        Err(error) if matches!(error.fault, Fault::Media { .. } | Fault::Io(_) | Fault::Offline) => {
            tracing::warn!(%error, "a copy of the label cannot be read");
            Ok(Err(LabelError::Corrupt("it cannot be read")))
        }
        Err(error) => Err(error),
    }
}

/// Writes both copies, one after the other, so that at any time one is whole.
pub(super) fn write_label(device: &dyn ZonedDevice, label: &Label, flush: impl Fn(Tag) -> Result<()>) -> Result<()> {
    let bytes = AlignedBuf::padded(&label.encode(), device.geometry().block as usize);
    let tag = Tag::new(Cause::Label).at(Priority::High);
    for slot in label_slots(device.geometry()) {
        write_all(device, &bytes, slot, tag)?;
        flush(tag)?;
    }
    Ok(())
}

impl Volume {
    /// Makes an empty volume of a drive.
    ///
    /// # Errors
    /// `Unusable` where the drive holds a label, written zones or other data and `force` is not set, or where it has fewer
    /// than two conventional zones; `InvalidInput` where the options make no sense.
    pub fn format(drive: &Drive, options: &FormatOptions) -> Result<()> {
        let device = drive.device.as_ref();
        let geometry = device.geometry().clone();
        let report = report_all(device)?;
        let conventional = conventional_prefix(&report);
        if conventional < 2 {
            return Err(unusable(
                device,
                format!("has {conventional} conventional zones, but a volume needs two; use another drive"),
            ));
        }
        if label_bytes(&geometry) > geometry.zone_size / 2 {
            return Err(unusable(device, "has zones too small for a label; use a drive with larger zones"));
        }
        if !options.force {
            refuse_foreign(device, &report)?;
        }
        let mut owners = vec![label::NOBODY; geometry.zones as usize];
        owners[..conventional as usize].fill(1);
        owners[..2].fill(label::LABEL);
        let generation = [read_slot(device, 0)?, read_slot(device, geometry.zone_size)?]
            .iter()
            .filter_map(|l| l.as_ref().ok())
            .map(|l| l.generation)
            .max();
        let tenant = |t: &TenantSpec| TenantRecord {
            name: t.name.clone(),
            root: Vec::new(),
            min_zones: 0,
            reserve: t.reserve,
            min_open: 0,
            root_generation: 0,
        };
        let label = Label {
            uuid: options.uuid.unwrap_or_else(|| *uuid::Uuid::new_v4().as_bytes()),
            geometry: geometry_of(&geometry, &report),
            generation: generation.map_or(1, |g| g + 1),
            mount: 0,
            tenants: options.tenants.iter().map(tenant).collect(),
            owners,
        };
        label.check().map_err(|what| Error::invalid(&name_of(device), what))?;
        write_label(device, &label, |tag| device.flush(tag))?;
        // From here on the old data is unreachable; what is not reset now is reset before its next use.
        for zone in &report {
            let resettable = zone.state.writable() || zone.state == ZoneState::Full;
            if resettable && !matches!(zone.state, ZoneState::Conventional | ZoneState::Empty) {
                device.zone_op(ZoneOp::Reset, zone.id, Cause::Pool.into())?;
            }
        }
        Ok(())
    }
}

/// Bytes at the beginning of a label's zone in which others keep what tells them: btrfs has its superblock at 64 KiB.
const FOREIGN: u64 = 1 << 20;

/// Refuses to overwrite what is there.
fn refuse_foreign(device: &dyn ZonedDevice, report: &[Zone]) -> Result<()> {
    let geometry = device.geometry();
    let mut zero = true;
    for slot in label_slots(geometry) {
        match read_slot(device, slot)? {
            Err(LabelError::NotALabel) => {}
            Ok(_) => return Err(unusable(device, "is already formatted; `--force` destroys what is on it")),
            Err(LabelError::Newer { version }) => {
                return Err(unusable(
                    device,
                    format!("was formatted by a newer Imbrex (version {version}); `--force` destroys what is on it"),
                ));
            }
            Err(LabelError::Corrupt(_)) => {
                return Err(unusable(device, "holds a damaged label; `--force` destroys what is on it"));
            }
        }
        let mut buf = AlignedBuf::zeroed(FOREIGN.min(geometry.zone_size) as usize);
        read_all(device, &mut buf, slot, Cause::Label.into())?;
        zero &= buf.iter().all(|b| *b == 0);
    }
    let written = report.iter().find(|z| !matches!(z.state, ZoneState::Conventional | ZoneState::Empty));
    if let Some(zone) = written.filter(|z| z.state != ZoneState::Offline) {
        return Err(unusable(
            device,
            format!("has data of somebody else in zone {}; `--force` destroys what is on it", zone.id),
        ));
    }
    if !zero {
        return Err(unusable(device, "has data of somebody else at its beginning; `--force` destroys what is on it"));
    }
    Ok(())
}
