//! The two copies of the label on a drive: where they stand, reading and writing them, and formatting.
//!
//! With two conventional zones in front, a copy stands at the beginning of each and is overwritten in place. Otherwise each
//! copy is a *ring* in a sequential zone: labels of one length one behind the other, of which the last whole one counts; a
//! zone that takes no more, or whose last write was torn, is reset first. Both copies are written one after the other, each
//! flushed and read back, and a mount makes both whole: so while one zone is being reset, the other holds the label in force.

use super::{FormatOptions, TenantSpec, Volume, name_of, read_all, unusable, write_all};
use crate::label::{self, Label, LabelError, LabelGeometry, TenantRecord};
use imbrex_device::{
    AlignedBuf, Cause, Drive, Error, Fault, Geometry, Priority, Result, Tag, Zone, ZoneId, ZoneOp, ZoneState,
    ZonedDevice, report_all,
};

/// The zones that hold the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LabelZones {
    zones: [ZoneId; 2],
    ring: bool,
}

impl LabelZones {
    /// Of a drive with this report; `None` where it has too few zones.
    pub(super) fn of(report: &[Zone]) -> Option<LabelZones> {
        let conventional = conventional_prefix(report);
        let (first, ring) = if conventional >= 2 { (0, false) } else { (conventional, true) };
        (report.len() as u64 > u64::from(first) + 2)
            .then_some(LabelZones { zones: [ZoneId(first), ZoneId(first + 1)], ring })
    }

    pub(super) fn zones(&self) -> [ZoneId; 2] {
        self.zones
    }

    /// Reads a copy. An inner error: there is no whole label there.
    pub(super) fn read(&self, device: &dyn ZonedDevice, copy: usize) -> Result<Result<Label, LabelError>> {
        let start = device.geometry().start(self.zones[copy]);
        if self.ring { read_ring(device, self.zones[copy]) } else { read_slot(device, start) }
    }

    /// Writes a copy; durable after a flush. With `anew`, nothing that stands in the zone is worth keeping.
    pub(super) fn write(&self, device: &dyn ZonedDevice, copy: usize, label: &Label, anew: bool) -> Result<()> {
        let geometry = device.geometry();
        let bytes = AlignedBuf::padded(&label.encode(), geometry.block as usize);
        let tag = Tag::new(Cause::Label).at(Priority::High);
        let (zone, start) = (self.zones[copy], geometry.start(self.zones[copy]));
        if !self.ring {
            return write_all(device, &bytes, start, tag);
        }
        let (now, stride) = (report_one(device, zone)?, bytes.len() as u64);
        let next = now.wp.filter(|wp| {
            now.state != ZoneState::Full && wp.is_multiple_of(stride) && wp + stride <= now.capacity && !anew
        });
        match next {
            Some(wp) => write_all(device, &bytes, start + wp, tag),
            None => {
                if now.state != ZoneState::Empty {
                    device.zone_op(ZoneOp::Reset, zone, tag)?;
                }
                write_all(device, &bytes, start, tag)
            }
        }
    }
}

fn report_one(device: &dyn ZonedDevice, zone: ZoneId) -> Result<Zone> {
    let mut out = [Zone::EMPTY];
    device.report(zone, &mut out)?;
    Ok(out[0])
}

/// Labels at the end of a ring that may be torn or damaged before its zone counts as holding none.
const BAD_LABELS: u64 = 8;

/// The last whole label of a ring.
fn read_ring(device: &dyn ZonedDevice, zone: ZoneId) -> Result<Result<Label, LabelError>> {
    let geometry = device.geometry();
    let (now, start) = (report_one(device, zone)?, geometry.start(zone));
    if now.state == ZoneState::Offline {
        return Ok(Err(LabelError::Corrupt("its zone is offline")));
    }
    let first = if now.wp == Some(0) { None } else { claimed_at(device, start)? };
    let stride = geometry.round_up(first.unwrap_or_else(|| Label::encoded_len(geometry.zones)) as u64);
    let written = match now.wp {
        Some(wp) => wp.min(now.capacity),
        // A zone that has become read-only may not tell: its labels do.
        None => {
            let mut at = 0;
            while at + stride <= now.capacity && claimed_at(device, start + at)?.is_some() {
                at += stride;
            }
            at
        }
    };
    let mut why = LabelError::NotALabel;
    let count = written.div_ceil(stride);
    for slot in (count.saturating_sub(BAD_LABELS)..count).rev() {
        let at = slot * stride;
        if at + stride > written {
            why = LabelError::Corrupt("its last write was cut off");
            continue;
        }
        match read_slot(device, start + at)? {
            Err(LabelError::NotALabel) => {}
            Err(error @ LabelError::Corrupt(_)) => why = error,
            found => return Ok(found),
        }
    }
    Ok(Err(why))
}

/// Bytes of the label that begins at this address, by its own claim.
fn claimed_at(device: &dyn ZonedDevice, at: u64) -> Result<Option<usize>> {
    let mut buf = AlignedBuf::zeroed(device.geometry().block.max(4096) as usize);
    match read_all(device, &mut buf, at, Cause::Label.into()) {
        Ok(()) => Ok(Label::claimed_len(&buf)),
        Err(error) if is_lost(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_lost(error: &Error) -> bool {
    matches!(error.fault, Fault::Media { .. } | Fault::Io(_) | Fault::Offline)
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

fn read_slot(device: &dyn ZonedDevice, at: u64) -> Result<Result<Label, LabelError>> {
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
        Err(error) if is_lost(&error) => {
            tracing::warn!(%error, "a copy of the label cannot be read");
            Ok(Err(LabelError::Corrupt("it cannot be read")))
        }
        Err(error) => Err(error),
    }
}

/// Writes a copy, makes it durable and reads it back; one that does not read as it was written is written once more. So the
/// other copy is not overwritten, and perhaps torn by a power loss, while this one is bad without anybody knowing.
pub(super) fn renew_copy(
    device: &dyn ZonedDevice,
    zones: LabelZones,
    copy: usize,
    label: &Label,
    anew: bool,
    flush: &impl Fn(Tag) -> Result<()>,
) -> Result<()> {
    for _ in 0..2 {
        zones.write(device, copy, label, anew)?;
        flush(Tag::new(Cause::Label).at(Priority::High))?;
        match zones.read(device, copy) {
            Ok(Ok(read)) if read == *label => return Ok(()),
            Ok(Ok(_)) => tracing::warn!(copy, "this copy of the label does not read as it was written"),
            Ok(Err(why)) => tracing::warn!(copy, "this copy of the label was just written, but the drive {why}"),
            Err(error) => tracing::warn!(copy, %error, "this copy of the label was just written and cannot be read"),
        }
    }
    // The other copy alone has to do.
    tracing::error!(copy, "this copy of the label cannot be written; copy the data to another drive");
    Ok(())
}

/// Writes both copies, one after the other, so that at any time one is whole.
pub(super) fn write_label(
    device: &dyn ZonedDevice,
    zones: LabelZones,
    label: &Label,
    anew: bool,
    flush: impl Fn(Tag) -> Result<()>,
) -> Result<()> {
    for copy in 0..2 {
        renew_copy(device, zones, copy, label, anew, &flush)?;
    }
    Ok(())
}

impl Volume {
    /// Makes an empty volume of a drive.
    ///
    /// # Errors
    /// `Unusable` where the drive holds a label, written zones or other data and `force` is not set, or where it has fewer
    /// than three zones; `InvalidInput` where the options make no sense.
    pub fn format(drive: &Drive, options: &FormatOptions) -> Result<()> {
        let device = drive.device.as_ref();
        let geometry = device.geometry().clone();
        let report = report_all(device)?;
        let zones = LabelZones::of(&report).ok_or_else(|| {
            unusable(device, "has fewer than three zones, and the label takes two; use a larger drive")
        })?;
        if label_bytes(&geometry) > geometry.zone_size / 2 {
            return Err(unusable(device, "has zones too small for a label; use a drive with larger zones"));
        }
        if !options.force {
            refuse_foreign(device, zones, &report)?;
        }
        let mut owners = vec![label::NOBODY; geometry.zones as usize];
        owners[..conventional_prefix(&report) as usize].fill(1);
        zones.zones().iter().for_each(|zone| owners[zone.0 as usize] = label::LABEL);
        let generation = [zones.read(device, 0)?, zones.read(device, 1)?]
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
        write_label(device, zones, &label, true, |tag| device.flush(tag))?;
        // From here on the old data is unreachable; what is not reset now is reset before its next use.
        for zone in &report {
            let resettable = zone.state.writable() || zone.state == ZoneState::Full;
            let holds_label = zones.ring && zones.zones().contains(&zone.id);
            if resettable && !holds_label && !matches!(zone.state, ZoneState::Conventional | ZoneState::Empty) {
                device.zone_op(ZoneOp::Reset, zone.id, Cause::Pool.into())?;
            }
        }
        Ok(())
    }
}

/// Bytes at the beginning of a label's zone in which others keep what tells them: btrfs has its superblock at 64 KiB.
const FOREIGN: u64 = 1 << 20;

/// Refuses to overwrite what is there.
fn refuse_foreign(device: &dyn ZonedDevice, zones: LabelZones, report: &[Zone]) -> Result<()> {
    let geometry = device.geometry();
    let mut zero = true;
    for copy in 0..2 {
        match zones.read(device, copy)? {
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
        if !zones.ring {
            let mut buf = AlignedBuf::zeroed(FOREIGN.min(geometry.zone_size) as usize);
            read_all(device, &mut buf, geometry.start(zones.zones[copy]), Cause::Label.into())?;
            zero &= buf.iter().all(|b| *b == 0);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_emulator::{Config, Emulator};
    use std::cell::Cell;

    /// A bit that is flipped, or a block that goes bad, while a copy is written does not stay until the other is overwritten.
    #[test]
    fn a_copy_that_was_written_badly_is_written_again_before_the_other() {
        for ring in [false, true] {
            let config = Config { conventional: if ring { 0 } else { 3 }, ..Config::tiny() };
            let emulator = Emulator::memory(&config).unwrap();
            let drive = Drive { device: std::sync::Arc::new(emulator.clone()), survivor: None };
            let tenants = vec![TenantSpec { name: "one".into(), reserve: 0 }];
            Volume::format(&drive, &FormatOptions { uuid: Some([1; 16]), tenants, force: false }).unwrap();
            let device = drive.device.as_ref();
            let zones = LabelZones::of(&report_all(device).unwrap()).unwrap();
            let old = zones.read(device, 0).unwrap().unwrap();
            for (generation, flip) in [(old.generation + 1, true), (old.generation + 2, false)] {
                let label = Label { generation, ..old.clone() };
                let flushes = Cell::new(0);
                let flush = |tag| {
                    device.flush(tag)?;
                    flushes.set(flushes.get() + 1);
                    let copy = zones.zones()[0];
                    let behind = report_one(device, copy)?.wp.filter(|_| ring);
                    let slot = behind.map_or(0, |wp| wp - label_bytes(device.geometry()));
                    let at = device.geometry().start(copy) + slot;
                    match (flushes.get(), flip) {
                        (1, true) => emulator.faults().flip_bits(at + 40, 1),
                        (1, false) => {
                            emulator.faults().media_error(at, 4096);
                            Ok(())
                        }
                        _ => Ok(()),
                    }
                };
                renew_copy(device, zones, 0, &label, false, &flush).unwrap();
                assert_eq!(flushes.get(), 2, "ring {ring}, flip {flip}: written twice");
                assert_eq!(zones.read(device, 0).unwrap(), Ok(label), "ring {ring}, flip {flip}");
            }
        }
    }
}
