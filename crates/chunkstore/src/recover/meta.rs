//! Steps 1 and 2: which metazones are in use, and the newest checkpoint that is whole.

use super::chain::Journal;
use super::{OpenReport, OpenStep, Progress, takes_writes};
use crate::entry::{CheckpointEnd, CheckpointStart, Part};
use crate::error::Result;
use crate::format::{BLOCK, Header, Kind, ZoneUse, zone_head};
use crate::journal::{MetaLog, MetaZone, ONE_COPY, Ring};
use crate::root::Root;
use crate::scan::scan;
use imbrex_device::{AlignedBuf, Cause, Error as DriveError, Fault, Written, ZoneId, ZoneState};
use imbrex_zones::{Tenant, Volume};

/// What the metazones say.
pub(crate) struct FoundMeta {
    pub(crate) log: MetaLog,
    /// `None`: no checkpoint is whole.
    pub(crate) start: Option<CheckpointStart>,
    /// Payloads of its parts.
    pub(crate) parts: Vec<Vec<u8>>,
    /// All journal records that are there.
    pub(crate) journal: Journal,
    /// Of a salvage: payloads of all parts that hold names, whether their checkpoint is whole or not.
    pub(crate) names: Vec<Vec<u8>>,
    /// Both rings were read whole.
    pub(crate) whole: bool,
}

/// A checkpoint that is being read.
#[derive(Default)]
struct Candidate {
    start: Option<CheckpointStart>,
    /// Of the metazone where it begins.
    order: u64,
    parts: Vec<Vec<u8>>,
    broken: bool,
}

/// A whole checkpoint.
struct Complete {
    start: CheckpointStart,
    order: u64,
    parts: Vec<Vec<u8>>,
}

impl Candidate {
    /// The next record of the ring, in the metazone of this order. Returns the checkpoint that is whole with it.
    fn put(&mut self, header: &Header, payload: &[u8], order: u64) -> Option<Complete> {
        match header.kind {
            Kind::CheckpointStart => {
                *self = Candidate { start: CheckpointStart::decode(payload), order, ..Candidate::default() };
                None
            }
            Kind::CheckpointPart => {
                let follows = |start: CheckpointStart| {
                    start.number == header.sequence && header.data as usize == self.parts.len()
                };
                match self.start.is_some_and(follows) {
                    true => self.parts.push(payload.to_vec()),
                    false => self.broken = true,
                }
                None
            }
            Kind::CheckpointEnd => {
                let Candidate { start, order, parts, broken } = std::mem::take(self);
                let (start, end) = (start?, CheckpointEnd::decode(payload)?);
                let whole = !broken && end.number == start.number && end.parts == parts.len() as u64;
                whole.then_some(Complete { start, order, parts })
            }
            Kind::Journal | Kind::ZoneHead | Kind::Data => None,
        }
    }
}

/// What has been read of both rings so far.
struct Reader<'a> {
    volume: &'a Volume,
    salvaging: bool,
    journal: Journal,
    names: Vec<Vec<u8>>,
    whole: bool,
    report: &'a mut OpenReport,
}

/// Reads all metazones that are in use.
pub(crate) fn read(
    tenant: &Tenant,
    root: &Root,
    salvaging: bool,
    report: &mut OpenReport,
    progress: Progress,
) -> Result<FoundMeta> {
    let volume = tenant.volume();
    let (journal, names) = (Journal::default(), Vec::new());
    let mut reader = Reader { volume, salvaging, journal, names, whole: true, report };
    let mut log = MetaLog::default();
    for (i, number) in root.metazones.iter().enumerate() {
        log.rings[i % 2].zones.extend(reader.metazone(*number, (i % 2) as u8)?);
    }
    let used = log.rings.iter().flat_map(|ring| &ring.zones).filter(|zone| zone.order > 0).count() as u64;
    let mut done = 0;
    let mut next = || {
        progress(OpenStep::Metazones, done, used);
        done += 1;
    };
    let mut newest: [Option<Complete>; 2] = [None, None];
    for (ring, newest) in log.rings.iter_mut().zip(&mut newest) {
        *newest = reader.ring(ring, &mut next)?;
        reader.forget_old(ring, newest.as_ref());
    }
    let [even, odd] = newest;
    let number = |complete: &Option<Complete>| complete.as_ref().map_or(0, |c| c.start.number);
    let chosen = if number(&even) >= number(&odd) { even } else { odd };
    let Reader { journal, names, whole, report, .. } = reader;
    log.journal = journal.newest();
    let Some(chosen) = chosen else {
        return Ok(FoundMeta { log, start: None, parts: Vec::new(), journal, names, whole });
    };
    report.checkpoint = chosen.start.number;
    log.checkpoint = chosen.start.number;
    log.journal = log.journal.max(chosen.start.journal);
    Ok(FoundMeta { log, start: Some(chosen.start), parts: chosen.parts, journal, names, whole })
}

impl Reader<'_> {
    fn damaged(&mut self, what: String) {
        self.whole = false;
        self.report.damage.push(what);
    }

    /// What the drive says of a metazone of this ring, and its head.
    fn metazone(&mut self, number: u32, ring: u8) -> Result<Option<MetaZone>> {
        let Some(zone) = self.volume.report_at_open().get(number as usize).copied() else { return Ok(None) };
        let capacity = zone.capacity / BLOCK as u64 * BLOCK as u64;
        let wp = match zone.written() {
            Written::To(wp) => wp.min(capacity) / BLOCK as u64 * BLOCK as u64,
            Written::Untold => capacity,
            Written::Gone => {
                self.damaged(format!("Metazone {number} is offline; its other copy is used."));
                0
            }
        };
        let mut found = MetaZone {
            zone: ZoneId(number),
            capacity,
            life: 0,
            order: 0,
            tail: wp,
            dead: !(zone.state.writable() || zone.state == ZoneState::Full),
            dirty: zone.wp != Some(0),
            active: zone.state.is_open() || zone.state == ZoneState::Closed,
        };
        if wp > 0 {
            match self.head(number, ring)? {
                Some((order, life)) => (found.order, found.life) = (order, life),
                // Its head never came so far; or the zone is of an earlier volume.
                None => found.tail = 0,
            }
        }
        Ok(Some(found))
    }

    /// The place in the order of its ring, and the life, that a metazone's first block says.
    fn head(&mut self, number: u32, ring: u8) -> Result<Option<(u64, u64)>> {
        let mut block = AlignedBuf::zeroed(BLOCK);
        let address = self.volume.geometry().start(ZoneId(number));
        match self.volume.read(&mut block, address, Cause::Recovery.into()) {
            Ok(()) => {}
            Err(DriveError { fault: Fault::Media { .. } | Fault::Offline, .. }) => {
                self.damaged(format!("Metazone {number} cannot be read; its other copy is used."));
            }
            Err(error) => return Err(error.into()),
        }
        let ours = zone_head(&block).filter(|(head, _)| head.volume == self.volume.uuid() && head.zone == number);
        Ok(ours.filter(|(head, _)| head.usage == ZoneUse::Meta(ring)).map(|(head, life)| (head.order, life)))
    }

    /// Reads the zones of a ring that are in use, in their order. Returns the newest checkpoint that is whole.
    fn ring(&mut self, ring: &Ring, next: &mut dyn FnMut()) -> Result<Option<Complete>> {
        let mut zones: Vec<&MetaZone> = ring.zones.iter().filter(|zone| zone.order > 0).collect();
        zones.sort_by_key(|zone| zone.order);
        let (mut candidate, mut newest) = (Candidate::default(), None);
        for zone in zones {
            next();
            let to = (zone.tail / BLOCK as u64) as u32;
            let mut each = |header: &Header, payload: &[u8]| {
                if self.salvaging && header.kind == Kind::CheckpointPart && Part::has_names(payload) {
                    self.names.push(payload.to_vec());
                }
                if header.kind == Kind::Journal {
                    self.journal.put(header, payload);
                }
                if let Some(complete) = candidate.put(header, payload, zone.order) {
                    newest = Some(complete);
                }
                Ok(())
            };
            let scanned = scan(self.volume, zone.zone.0, zone.life, (0, to), Cause::Recovery, &mut each)?;
            if scanned.unreadable > 0 {
                let n = scanned.unreadable;
                self.damaged(format!("{n} blocks of metazone {} cannot be read; its other copy is used.", zone.zone));
            }
        }
        Ok(newest)
    }

    /// What is before a ring's own newest checkpoint is of no use any more, and a zone that takes no writes is left behind.
    fn forget_old(&mut self, ring: &mut Ring, newest: Option<&Complete>) {
        let oldest = newest.map_or(0, |complete| complete.order);
        ring.order = ring.zones.iter().map(|zone| zone.order).max().unwrap_or(0);
        for zone in &mut ring.zones {
            if zone.order < oldest {
                zone.order = 0;
            }
            // Not in whole blocks is not at all.
            let report = self.volume.report_at_open().get(zone.zone.0 as usize);
            if zone.order > 0 && report.is_some_and(|report| !takes_writes(report)) {
                zone.tail = zone.capacity;
            }
        }
        ring.settle();
        if ring.is_lost() {
            ring.told = true;
            self.report.damage.push(ONE_COPY.into());
        }
    }
}
