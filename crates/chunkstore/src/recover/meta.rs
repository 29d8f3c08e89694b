//! Steps 1 and 2: which metazones are in use, and the newest checkpoint that is whole.

use super::chain::Journal;
use super::{OpenReport, OpenStep, Progress, takes_writes};
use crate::entry::{CheckpointEnd, CheckpointStart, Part};
use crate::error::Result;
use crate::format::{BLOCK, Kind, ZoneUse, zone_head};
use crate::journal::{MetaLog, MetaZone};
use crate::root::Root;
use crate::scan::scan;
use imbrex_device::{AlignedBuf, Cause, Error as DriveError, Fault, Written, ZoneId};
use imbrex_zones::Tenant;

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

/// A checkpoint in the making.
#[derive(Default)]
struct Candidate {
    start: Option<CheckpointStart>,
    order: u64,
    parts: Vec<Vec<u8>>,
    broken: bool,
}

struct Complete {
    start: CheckpointStart,
    order: u64,
    parts: Vec<Vec<u8>>,
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
    let mut log = MetaLog::default();
    let mut journal = Journal::default();
    let mut names = Vec::new();
    let mut newest: [Option<Complete>; 2] = [None, None];
    let mut whole = true;
    for (i, number) in root.metazones.iter().enumerate() {
        let Some(zone) = volume.report_at_open().get(*number as usize) else { continue };
        let capacity = zone.capacity / BLOCK as u64 * BLOCK as u64;
        let wp = match zone.written() {
            Written::To(wp) => wp.min(capacity) / BLOCK as u64 * BLOCK as u64,
            Written::Untold => capacity,
            Written::Gone => {
                whole = false;
                report.damage.push(format!("Metazone {number} is offline; its other copy is used."));
                0
            }
        };
        let mut found = MetaZone {
            zone: ZoneId(*number),
            capacity,
            life: 0,
            order: 0,
            tail: wp,
            dead: !(zone.state.writable() || zone.state == imbrex_device::ZoneState::Full),
            dirty: zone.wp != Some(0),
            active: zone.state.is_open() || zone.state == imbrex_device::ZoneState::Closed,
        };
        if wp > 0 {
            let mut block = AlignedBuf::zeroed(BLOCK);
            let address = volume.geometry().start(found.zone);
            match volume.read(&mut block, address, Cause::Recovery.into()) {
                Ok(()) => {}
                Err(DriveError { fault: Fault::Media { .. } | Fault::Offline, .. }) => {
                    whole = false;
                    report.damage.push(format!("Metazone {number} cannot be read; its other copy is used."));
                }
                Err(error) => return Err(error.into()),
            }
            let head = zone_head(&block).filter(|(head, _)| head.volume == volume.uuid() && head.zone == *number);
            match head {
                Some((head, life)) if head.usage == ZoneUse::Meta((i % 2) as u8) => {
                    (found.order, found.life) = (head.order, life);
                }
                // Its head never came so far; or the zone is of an earlier volume.
                _ => found.tail = 0,
            }
        }
        log.rings[i % 2].zones.push(found);
    }
    let used = log.rings.iter().flat_map(|ring| &ring.zones).filter(|zone| zone.order > 0).count() as u64;
    let mut done = 0;
    for (ring, newest) in newest.iter_mut().enumerate() {
        let mut zones: Vec<MetaZone> = log.rings[ring].zones.iter().filter(|zone| zone.order > 0).cloned().collect();
        zones.sort_by_key(|zone| zone.order);
        let mut candidate = Candidate::default();
        for zone in zones {
            progress(OpenStep::Metazones, done, used);
            done += 1;
            let to = (zone.tail / BLOCK as u64) as u32;
            let mut each = |header: &crate::format::Header, payload: &[u8]| {
                if salvaging && header.kind == Kind::CheckpointPart && Part::has_names(payload) {
                    names.push(payload.to_vec());
                }
                match header.kind {
                    Kind::CheckpointStart => {
                        let start = CheckpointStart::decode(payload);
                        candidate = Candidate { start, order: zone.order, ..Candidate::default() };
                    }
                    Kind::CheckpointPart => match candidate.start {
                        Some(start)
                            if start.number == header.sequence && header.data as usize == candidate.parts.len() =>
                        {
                            candidate.parts.push(payload.to_vec());
                        }
                        _ => candidate.broken = true,
                    },
                    Kind::CheckpointEnd => {
                        let Candidate { start, order, parts, broken } = std::mem::take(&mut candidate);
                        if let (Some(start), Some(end)) = (start, CheckpointEnd::decode(payload))
                            && !broken
                            && end.number == start.number
                            && end.parts == parts.len() as u64
                        {
                            *newest = Some(Complete { start, order, parts });
                        }
                    }
                    Kind::Journal => journal.put(header, payload),
                    Kind::ZoneHead | Kind::Data => {}
                }
                Ok(())
            };
            let scanned = scan(volume, zone.zone.0, zone.life, (0, to), Cause::Recovery, &mut each)?;
            if scanned.unreadable > 0 {
                whole = false;
                let n = scanned.unreadable;
                report
                    .damage
                    .push(format!("{n} blocks of metazone {} cannot be read; its other copy is used.", zone.zone));
            }
        }
    }
    // What is before a ring's own newest checkpoint is of no use any more.
    for (ring, newest) in newest.iter().enumerate() {
        let oldest = newest.as_ref().map_or(0, |complete| complete.order);
        log.rings[ring].order = log.rings[ring].zones.iter().map(|zone| zone.order).max().unwrap_or(0);
        for zone in log.rings[ring].zones.iter_mut().filter(|zone| zone.order < oldest) {
            zone.order = 0;
        }
        for (zone, number) in log.rings[ring].zones.iter_mut().zip(root.metazones.iter().skip(ring).step_by(2)) {
            // A zone that nothing can be written to any more, or not in whole blocks, is left behind.
            if let Some(report) = volume.report_at_open().get(*number as usize)
                && zone.order > 0
                && !takes_writes(report)
            {
                zone.tail = zone.capacity;
            }
        }
        log.rings[ring].settle();
        if log.rings[ring].is_lost() {
            log.rings[ring].told = true;
            report.damage.push(crate::journal::ONE_COPY.into());
        }
    }
    let [even, odd] = newest;
    let number = |complete: &Option<Complete>| complete.as_ref().map_or(0, |c| c.start.number);
    let chosen = if number(&even) >= number(&odd) { even } else { odd };
    log.journal = journal.newest();
    let Some(chosen) = chosen else {
        return Ok(FoundMeta { log, start: None, parts: Vec::new(), journal, names, whole });
    };
    report.checkpoint = chosen.start.number;
    log.checkpoint = chosen.start.number;
    log.journal = log.journal.max(chosen.start.journal);
    Ok(FoundMeta { log, start: Some(chosen.start), parts: chosen.parts, journal, names, whole })
}
