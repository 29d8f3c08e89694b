//! The two copies of the label on a drive: where they stand, reading and writing them, and formatting.
//!
//! With two conventional zones in front, a copy stands at the beginning of each and is overwritten in place. Otherwise each
//! copy is a *ring* in a sequential zone: labels of one length one behind the other, of which the last whole one counts; a
//! zone that takes no more, or whose last write was torn, is reset first. Both copies are written one after the other, each
//! flushed and read back, and a mount makes both whole: so while one zone is being reset, the other holds the label in force.
//!
//! Where one of the two zones has died (read-only or offline), the other is alone, and what it holds must outlive every
//! write to it. In a conventional zone there is room for a second label behind the first: the two are written one after the
//! other as the two copies were. A ring that is alone gets each label twice, and is reset only while the dead zone still
//! shows the label in force; once it is full, labels can no longer be written, and the drive can only be looked at.

use super::{FormatOptions, TenantSpec, Volume, check_active, name_of, read_all, unusable, write_all};
use crate::label::budget;
use crate::label::{self, Label, LabelError, LabelGeometry, TenantRecord};
use imbrex_device::{
    AlignedBuf, Cause, Drive, Error, Fault, Geometry, Priority, Result, Tag, Zone, ZoneId, ZoneOp, ZoneState,
    ZonedDevice, report_all,
};
use std::ops::RangeInclusive;

/// The zones that hold the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LabelZones {
    zones: [ZoneId; 2],
    ring: bool,
}

/// What there is of a label in force on a drive.
pub(super) struct Found {
    pub(super) zones: LabelZones,
    /// What stands in the two zones. An inner error: there is no whole label there.
    pub(super) copies: [Result<Label, LabelError>; 2],
}

impl LabelZones {
    /// Of a drive that was formatted with so many conventional zones; `None` where it has too few zones.
    pub(super) fn of(conventional: u32, zones: u32) -> Option<LabelZones> {
        let (first, ring) = if conventional >= 2 { (0, false) } else { (conventional, true) };
        (u64::from(zones) > u64::from(first) + 2)
            .then_some(LabelZones { zones: [ZoneId(first), ZoneId(first + 1)], ring })
    }

    /// Finds the labels of a drive. A zone that died no longer says whether it was conventional, and so where labels stand:
    /// what is there does.
    pub(super) fn find(device: &dyn ZonedDevice, report: &[Zone]) -> Result<Option<Found>> {
        let count = conventional_count(report);
        let zones = report.len() as u32;
        let sure = count.start() == count.end() || *count.start() >= 2;
        let mut found: Option<Found> = None;
        for conventional in *count.start()..=(*count.end()).min((*count.start()).max(2)) {
            let Some(at) = LabelZones::of(conventional, zones) else { continue };
            if sure {
                return Ok(Some(Found { zones: at, copies: [at.read(device, 0)?, at.read(device, 1)?] }));
            }
            let read = |copy| at.read(device, copy).unwrap_or(Err(LabelError::Corrupt("it cannot be read")));
            let here = Found { zones: at, copies: [read(0), read(1)] };
            let fits = |copy: &Result<Label, LabelError>| match copy {
                Ok(label) => LabelZones::of(label.geometry.conventional, zones) == Some(at),
                Err(error) => matches!(error, LabelError::OfVersion { .. }),
            };
            if here.copies.iter().any(fits) {
                return Ok(Some(here));
            }
            found = found.or(Some(here));
        }
        Ok(found)
    }

    pub(super) fn zones(&self) -> [ZoneId; 2] {
        self.zones
    }

    /// How many zones of their own, which stay active, the labels need.
    pub(super) fn rings(&self) -> u32 {
        if self.ring { 2 } else { 0 }
    }

    /// Why a zone of the label cannot be written any more, a sentence each.
    pub(super) fn dead(&self, device: &dyn ZonedDevice) -> Result<[Option<String>; 2]> {
        let mut out = [None, None];
        for (copy, sentence) in out.iter_mut().enumerate() {
            let zone = report_one(device, self.zones[copy])?;
            if is_dead(&zone) {
                *sentence = Some(format!(
                    "Copy {copy} of the label: zone {} is {}, and the label stands in zone {} alone; plan to replace the drive.",
                    zone.id,
                    zone.state.name(),
                    self.zones[1 - copy]
                ));
            }
        }
        Ok(out)
    }

    /// Reads what stands in a zone of the label. An inner error: there is no whole label there.
    pub(super) fn read(&self, device: &dyn ZonedDevice, copy: usize) -> Result<Result<Label, LabelError>> {
        if self.ring {
            return Ok(read_ring(device, self.zones[copy])?.0);
        }
        let [a, b] = [self.read_place(device, copy, 0)?, self.read_place(device, copy, 1)?];
        Ok(match (&a, &b) {
            // Nothing stands in the second place of a zone that was never alone.
            (_, Err(LabelError::NotALabel | LabelError::Corrupt(_))) => a,
            (Ok(first), Ok(second)) if first.generation >= second.generation => a,
            (Err(LabelError::OfVersion { .. } | LabelError::Bands), _) => a,
            _ => b,
        })
    }

    /// Why what stands in a ring behind its last whole label is none.
    pub(super) fn passed_over(&self, device: &dyn ZonedDevice, copy: usize) -> Result<Option<LabelError>> {
        if self.ring { Ok(read_ring(device, self.zones[copy])?.1) } else { Ok(None) }
    }

    /// Reads one of the two places that a label has in a conventional zone.
    fn read_place(&self, device: &dyn ZonedDevice, copy: usize, place: u64) -> Result<Result<Label, LabelError>> {
        read_slot(device, self.place(device.geometry(), copy, place))
    }

    fn place(&self, geometry: &Geometry, copy: usize, place: u64) -> u64 {
        geometry.start(self.zones[copy]) + place * label_bytes(geometry)
    }

    /// Writes a label to all zones that take it, and flushes each before the next is touched; `floor` is the generation of the
    /// label in force, `None`: nothing that stands there is worth keeping. False: no zone takes it, and nothing was risked.
    pub(super) fn write(
        &self,
        device: &dyn ZonedDevice,
        label: &Label,
        floor: Option<u64>,
        flush: impl Fn(Tag) -> Result<()>,
    ) -> Result<bool> {
        let mut done = [false; 2];
        let mut given_up = [false; 2];
        loop {
            // Again for each: what was written to the first must be there while the second is overwritten.
            let dead = [report_one(device, self.zones[0])?, report_one(device, self.zones[1])?].map(|z| is_dead(&z));
            let Some(copy) = (0..2).find(|&copy| !dead[copy] && !done[copy] && !given_up[copy]) else {
                return Ok((0..2).any(|copy| done[copy] && !dead[copy]));
            };
            match self.write_copy(device, copy, label, (floor, dead[1 - copy]), &flush) {
                Ok(true) => done[copy] = true,
                Ok(false) => given_up[copy] = true,
                Err(error) if self.died(device, copy, &error)? => {
                    tracing::warn!(%error, "a zone of the label takes no more writes; the other goes on alone");
                    given_up[copy] = true;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a copy could not be written because its zone is dead now.
    pub(super) fn died(&self, device: &dyn ZonedDevice, copy: usize, error: &Error) -> Result<bool> {
        let told = matches!(error.fault, Fault::ReadOnly | Fault::Offline);
        Ok(told && is_dead(&report_one(device, self.zones[copy])?))
    }

    /// Writes this copy, which is damaged or old, from the other, unless its zone dies just now. `alone`: the other zone is dead.
    pub(super) fn repair(&self, device: &dyn ZonedDevice, copy: usize, label: &Label, alone: bool) -> Result<()> {
        tracing::warn!(drive = %device.identity().name, "one copy of the label is damaged or old: repairing it");
        // Never both at once: the good copy, which the last mount may not have flushed any more, is durable before the
        // bad one is touched.
        device.flush(Cause::Label.into())?;
        match self.write_copy(device, copy, label, (Some(label.generation), alone), &|tag| device.flush(tag)) {
            Err(error) if self.died(device, copy, &error)? => {
                tracing::warn!(%error, "a zone of the label takes no more writes");
            }
            other => drop(other?),
        }
        Ok(())
    }

    /// Writes one copy, flushes it and reads it back; one that does not read as it was written is written once more. So the
    /// other copy is not overwritten, and perhaps torn by a power loss, while this one is bad without anybody knowing.
    /// `alone`: the other zone is dead. False: it cannot be read back, or there is no room that does not hold what is worth
    /// keeping.
    pub(super) fn write_copy(
        &self,
        device: &dyn ZonedDevice,
        copy: usize,
        label: &Label,
        (floor, alone): (Option<u64>, bool),
        flush: &impl Fn(Tag) -> Result<()>,
    ) -> Result<bool> {
        let geometry = device.geometry();
        let bytes = AlignedBuf::padded(&label.encode(), geometry.block as usize);
        let tag = Tag::new(Cause::Label).at(Priority::High);
        let put = |write: &dyn Fn() -> Result<bool>, read: &dyn Fn() -> Result<Result<Label, LabelError>>| {
            for _ in 0..2 {
                if !write()? {
                    return Ok(false);
                }
                flush(tag)?;
                match read() {
                    Ok(Ok(found)) if found == *label => return Ok(true),
                    Ok(Ok(_)) => tracing::warn!(copy, "this copy of the label does not read as it was written"),
                    Ok(Err(why)) => {
                        tracing::warn!(copy, "this copy of the label was just written, but the drive {why}")
                    }
                    Err(error) => {
                        tracing::warn!(copy, %error, "this copy of the label was just written and cannot be read")
                    }
                }
            }
            tracing::error!(copy, "this copy of the label cannot be written; copy the data to another drive");
            Ok(false)
        };
        if self.ring {
            let read = || self.read(device, copy);
            if !put(&|| self.append(device, copy, &bytes, floor, tag), &read)? {
                return Ok(false);
            }
            if alone {
                put(&|| self.append(device, copy, &bytes, Some(label.generation), tag), &read)?;
            }
            return Ok(true);
        }
        let mut places = vec![0];
        if alone {
            // The place that does not hold the label in force comes first.
            let keeps = |found: Result<Label, _>| found.is_ok_and(|l| floor.is_some_and(|floor| l.generation >= floor));
            places.insert(usize::from(!keeps(self.read_place(device, copy, 0)?)), 1);
        }
        for place in places {
            let write = || write_all(device, &bytes, self.place(geometry, copy, place), tag).map(|()| true);
            if !put(&write, &|| self.read_place(device, copy, place))? {
                // The other place is not touched while this one is bad.
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Appends a label to a ring; where that has no room for it, resets the ring, unless what it holds is worth keeping.
    fn append(
        &self,
        device: &dyn ZonedDevice,
        copy: usize,
        bytes: &[u8],
        floor: Option<u64>,
        tag: Tag,
    ) -> Result<bool> {
        let (zone, stride) = (self.zones[copy], bytes.len() as u64);
        let (now, start) = (report_one(device, zone)?, device.geometry().start(zone));
        let wp = now.wp.filter(|_| now.state != ZoneState::Full && floor.is_some());
        let room = |wp: &u64| wp.next_multiple_of(stride) + stride <= now.capacity;
        if let Some(wp) = wp.filter(|wp| wp.is_multiple_of(stride)).filter(room) {
            write_all(device, bytes, start + wp, tag)?;
            return Ok(true);
        }
        let elsewhere = || match (floor, self.read(device, 1 - copy)?) {
            (Some(floor), Ok(other)) => Ok(other.generation >= floor),
            (Some(_), Err(_)) => Ok(false),
            (None, _) => Ok(true),
        };
        if elsewhere()? {
            if now.state != ZoneState::Empty {
                device.zone_op(ZoneOp::Reset, zone, tag)?;
            }
            write_all(device, bytes, start, tag)?;
            return Ok(true);
        }
        let Some(wp) = wp.filter(room) else { return Ok(false) };
        // The rest of a write that was torn: labels stand at multiples of their length.
        let rest = AlignedBuf::zeroed((wp.next_multiple_of(stride) - wp) as usize);
        write_all(device, &rest, start + wp, tag)?;
        write_all(device, bytes, start + wp.next_multiple_of(stride), tag)?;
        Ok(true)
    }
}

fn is_dead(zone: &Zone) -> bool {
    matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline)
}

/// What to say where no copy of the label can be written any more.
pub(super) fn cannot_write(device: &dyn ZonedDevice) -> Error {
    let what = "the label can no longer be written, because the zones that it stands in are dead or, alone, full; back up \
                what is on the drive (`?read-only=on` and `imbrex fs cp` still read it) and replace it";
    Error::io(&name_of(device), std::io::Error::other(what))
}

fn report_one(device: &dyn ZonedDevice, zone: ZoneId) -> Result<Zone> {
    let mut out = [Zone::EMPTY];
    device.report(zone, &mut out)?;
    Ok(out[0])
}

/// Labels at the end of a ring that may be torn or damaged before its zone counts as holding none.
const BAD_LABELS: u64 = 8;

/// A ring's last whole label, and why what stands behind it is none.
fn read_ring(device: &dyn ZonedDevice, zone: ZoneId) -> Result<(Result<Label, LabelError>, Option<LabelError>)> {
    let geometry = device.geometry();
    let (now, start) = (report_one(device, zone)?, geometry.start(zone));
    if now.state == ZoneState::Offline {
        return Ok((Err(LabelError::Corrupt("its zone is offline")), None));
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
    let mut passed = None;
    let count = written.div_ceil(stride);
    for slot in (count.saturating_sub(BAD_LABELS)..count).rev() {
        let at = slot * stride;
        if at + stride > written {
            passed = Some(LabelError::Corrupt("its last write was cut off"));
            continue;
        }
        match read_slot(device, start + at)? {
            Err(error @ LabelError::NotALabel) => passed = passed.or(Some(error)),
            Err(error @ LabelError::Corrupt(_)) => passed = Some(error),
            found => return Ok((found, passed)),
        }
    }
    Ok((Err(passed.unwrap_or(LabelError::NotALabel)), None))
}

/// Bytes of the label that begins at this address, by its own claim.
fn claimed_at(device: &dyn ZonedDevice, at: u64) -> Result<Option<usize>> {
    let mut buf = AlignedBuf::zeroed(device.geometry().block.max(4096) as usize);
    match read_all(device, &mut buf, at, Cause::Label.into()) {
        Ok(()) => Ok(Label::claimed_len(&buf)),
        Err(error) if is_lost(&error) => Ok(None),
        // A read-only zone does not tell how far it is written, and the drive may refuse reads behind that.
        Err(error) if matches!(error.fault, Fault::InvalidInput(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_lost(error: &Error) -> bool {
    matches!(error.fault, Fault::Media { .. } | Fault::Io(_) | Fault::Offline)
}

pub(super) fn label_bytes(geometry: &Geometry) -> u64 {
    geometry.round_up(Label::encoded_len(geometry.zones) as u64)
}

/// How many zones at the beginning are conventional: one number, or, where zones have died, which no longer tell, a range.
pub(super) fn conventional_count(report: &[Zone]) -> RangeInclusive<u32> {
    let run = report.iter().take_while(|z| z.state == ZoneState::Conventional || is_dead(z));
    let (mut least, mut most) = (0, 0);
    for zone in run {
        most += 1;
        if zone.state == ZoneState::Conventional {
            least = most;
        }
    }
    least..=most
}

pub(super) fn geometry_of(geometry: &Geometry, conventional: u32) -> LabelGeometry {
    LabelGeometry { block: geometry.block, zones: geometry.zones, zone_size: geometry.zone_size, conventional }
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

impl Volume {
    /// Whether [`Volume::format`] without `force` would find a drive that holds nothing.
    ///
    /// # Errors
    /// `Unusable` with a whole sentence where it holds something.
    pub fn check_unused(drive: &Drive) -> Result<()> {
        let device = drive.device.as_ref();
        let report = report_all(device)?;
        match LabelZones::of(*conventional_count(&report).start(), device.geometry().zones) {
            Some(zones) => refuse_foreign(device, zones, &report),
            None => Ok(()),
        }
    }

    /// Makes an empty volume of a drive.
    ///
    /// # Errors
    /// `Unusable` where the drive holds a label, written zones or other data and `force` is not set, or where it has fewer
    /// than three zones; `InvalidInput` where the options make no sense.
    pub fn format(drive: &Drive, options: &FormatOptions) -> Result<()> {
        let device = drive.device.as_ref();
        let geometry = device.geometry().clone();
        let report = report_all(device)?;
        // Dead zones behind the last conventional one may be what they like: they are never written.
        let conventional = *conventional_count(&report).start();
        let zones = LabelZones::of(conventional, geometry.zones).ok_or_else(|| {
            unusable(device, "has fewer than three zones, and the label takes two; use a larger drive")
        })?;
        if let Some(zone) = zones.zones.iter().find_map(|id| report.get(id.0 as usize).filter(|z| is_dead(z))) {
            let what = format!(
                "cannot be formatted: zone {}, where the label stands, is {}; replace it",
                zone.id,
                zone.state.name()
            );
            return Err(unusable(device, what));
        }
        let budgets = options.tenants.iter().map(|t| (&*t.name, t.budget));
        check_active(device, zones.rings(), budgets.clone())?;
        if label_bytes(&geometry) > geometry.zone_size / 2 {
            return Err(unusable(device, "has zones too small for a label; use a drive with larger zones"));
        }
        if !options.force {
            refuse_foreign(device, zones, &report)?;
        }
        let mut owners = vec![label::NOBODY; geometry.zones as usize];
        owners[..conventional as usize].fill(1);
        zones.zones().iter().for_each(|zone| owners[zone.0 as usize] = label::LABEL);
        let free =
            report.iter().zip(&owners).filter(|(zone, owner)| **owner == label::NOBODY && !is_dead(zone)).count();
        budget::fit(budgets, free as u32).map_err(|sentence| unusable(device, sentence))?;
        let generation = [zones.read(device, 0)?, zones.read(device, 1)?]
            .iter()
            .filter_map(|l| l.as_ref().ok())
            .map(|l| l.generation)
            .max();
        let tenant = |t: &TenantSpec| TenantRecord {
            name: t.name.clone(),
            root: Vec::new(),
            budget: t.budget,
            root_generation: 0,
        };
        let label = Label {
            uuid: options.uuid.unwrap_or_else(|| *uuid::Uuid::new_v4().as_bytes()),
            geometry: geometry_of(&geometry, conventional),
            generation: generation.map_or(1, |g| g + 1),
            mount: 0,
            power: Label::power_of(device.power_epoch()),
            tenants: options.tenants.iter().map(tenant).collect(),
            owners,
        };
        label.check().map_err(|what| Error::invalid(&name_of(device), what))?;
        if !zones.write(device, &label, None, |tag| device.flush(tag))? {
            return Err(cannot_write(device));
        }
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
            Ok(_) => {
                return Err(unusable(
                    device,
                    "is already formatted, and nothing was changed; `imbrex fs format --force` destroys what is on it",
                ));
            }
            Err(LabelError::OfVersion { version }) => {
                return Err(unusable(
                    device,
                    format!(
                        "was formatted by another version of Imbrex (version {version}); `imbrex fs format --force` destroys what is on it"
                    ),
                ));
            }
            Err(LabelError::Bands) => {
                let what = "has a band table on its conventional zones; name it with ?conventional=as-sequential behind its \
                            name, or use `--force` to destroy what is on it";
                return Err(unusable(device, what));
            }
            Err(LabelError::Corrupt(_)) => {
                return Err(unusable(
                    device,
                    "holds a damaged label; `imbrex fs format --force` destroys what is on it",
                ));
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
            format!("has data of somebody else in zone {}; `imbrex fs format --force` destroys what is on it", zone.id),
        ));
    }
    if !zero {
        return Err(unusable(
            device,
            "has data of somebody else at its beginning; `imbrex fs format --force` destroys what is on it",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Budget;
    use imbrex_emulator::{Config, Emulator};
    use std::cell::Cell;

    /// A bit that is flipped, or a block that goes bad, while a copy is written does not stay until the other is overwritten.
    #[test]
    fn a_copy_that_was_written_badly_is_written_again_before_the_other() {
        for ring in [false, true] {
            let config = Config { conventional: if ring { 0 } else { 3 }, ..Config::tiny() };
            let emulator = Emulator::memory(&config).unwrap();
            let drive = Drive { device: std::sync::Arc::new(emulator.clone()), survivor: None };
            let tenants = vec![TenantSpec { name: "one".into(), budget: Budget::default() }];
            Volume::format(&drive, &FormatOptions { uuid: Some([1; 16]), tenants, force: false }).unwrap();
            let device = drive.device.as_ref();
            let zones = LabelZones::of(config.conventional, config.zones()).unwrap();
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
                assert!(zones.write_copy(device, 0, &label, (Some(old.generation), false), &flush).unwrap());
                assert_eq!(flushes.get(), 2, "ring {ring}, flip {flip}: written twice");
                assert_eq!(zones.read(device, 0).unwrap(), Ok(label), "ring {ring}, flip {flip}");
            }
        }
    }
}
