//! A walk over the headers of all runs of a drive, without its label and without metadata.
//!
//! A zone is the store's where its header is of the store's kind and runs of the same volume stand in it. A zone whose header is damaged is searched for headers of runs,
//! which name the volume and their place. Where a header is damaged the walk goes on with the next one that it finds.

use crate::blob::BLOCK;
use crate::in_place;
use crate::run::{LONGEST, RunHeader};
use crate::write::KIND;
use imbrex_device::{AlignedBuf, Cause, Fault, Result, Tag, Written, Zone, ZoneId, ZoneState, ZonedDevice, report_all};
use imbrex_zones::ZoneHeader;
use imbrex_zones::volume::read_all;
use std::collections::BTreeSet;

pub(super) const TAG: Tag = Tag::new(Cause::Recovery);
/// Blocks that are searched for headers at a time.
const PIECE: u64 = 256;

/// What a zone begins with.
struct Front {
    zone: Zone,
    header: Option<ZoneHeader>,
    /// The volume of the run that follows.
    run: Option<[u8; 16]>,
}

/// What the walk has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// UUID of the volume whose runs count.
    pub volume: [u8; 16],
    /// UUIDs of others, whose runs are left out.
    pub others: Vec<[u8; 16]>,
    /// Zones of the store.
    pub zones: u64,
    /// Those whose own headers are damaged.
    pub damaged_zones: u64,
    /// Headers of runs.
    pub runs: u64,
    /// Places at which such a header is damaged, as far as others stand behind it.
    pub damaged_runs: u64,
    /// Zones of a store in place. They have no runs, and are none of those above.
    pub in_place: u64,
}

/// Reads whole blocks of a zone. `None`: they cannot be read.
pub(super) fn read(device: &dyn ZonedDevice, zone: u32, block: u64, blocks: u64) -> Result<Option<AlignedBuf>> {
    let mut bytes = AlignedBuf::zeroed((blocks * BLOCK) as usize);
    let at = device.geometry().start(ZoneId(zone)) + block * BLOCK;
    match read_all(device, &mut bytes, at, TAG) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if is_of_the_place(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The drive does not give these bytes, and may give others.
fn is_of_the_place(error: &imbrex_device::Error) -> bool {
    matches!(error.fault, Fault::Media { .. } | Fault::Corrupt { .. } | Fault::Offline | Fault::InvalidInput(_))
}

/// Blocks of a zone that may be written.
fn written(zone: &Zone) -> u64 {
    let end = match zone.written() {
        _ if zone.state == ZoneState::Empty => 0,
        Written::Gone => 0,
        Written::To(end) => end.min(zone.capacity),
        Written::Untold => zone.capacity,
    };
    end / BLOCK
}

fn front(device: &dyn ZonedDevice, zone: Zone) -> Result<Option<Front>> {
    let end = written(&zone);
    if zone.state == ZoneState::Conventional || end == 0 {
        return Ok(None);
    }
    let most = end.min(1 + LONGEST as u64);
    let mut bytes = read(device, zone.id.0, 0, most)?;
    if bytes.is_none() {
        // What is behind the header need not be readable.
        bytes = read(device, zone.id.0, 0, 1)?;
    }
    let header = bytes.as_ref().and_then(|bytes| ZoneHeader::decode(bytes)).filter(|header| header.zone == zone.id.0);
    let run = bytes.as_ref().and_then(|bytes| RunHeader::decode(bytes.get(BLOCK as usize..)?));
    let run = run.filter(|run| run.at.zone == zone.id.0 && run.at.block == 1).map(|run| run.at.volume);
    Ok(Some(Front { zone, header, run }))
}

/// Walks over the runs of a volume: the one that is asked for, or the one that was written to last. `each` gets each header with the block where its data begin, and
/// the block where the zone ends. `progress`: zones, and of how many.
///
/// # Errors
/// Those of `each`, and of a report of zones. What cannot be read is no error.
pub(super) fn walk(
    device: &dyn ZonedDevice,
    wanted: Option<[u8; 16]>,
    each: &mut dyn FnMut(&RunHeader, u64, u64) -> Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Walked> {
    let mut fronts = Vec::new();
    for zone in report_all(device)? {
        fronts.extend(front(device, zone)?);
    }
    let ours = |front: &&Front| front.header.as_ref().is_some_and(|header| header.kind == KIND);
    let is_sure =
        |front: &&Front| front.run.is_some() && front.run == front.header.as_ref().map(|header| header.volume);
    let in_place = |front: &&Front| front.header.as_ref().is_some_and(|header| header.kind == in_place::KIND);
    let newest = |all: &mut dyn Iterator<Item = &Front>| {
        let all = all.filter_map(|front| front.header.as_ref());
        all.max_by_key(|header| header.created).map(|header| header.volume)
    };
    let volume = wanted
        .or_else(|| newest(&mut fronts.iter().filter(|front| in_place(front) || ours(front) && is_sure(front))))
        .or_else(|| fronts.iter().find_map(|front| front.run))
        .or_else(|| newest(&mut fronts.iter().filter(ours)));
    let Some(volume) = volume else { return Ok(Walked::default()) };
    let of_volume = |front: &&Front| front.header.as_ref().is_some_and(|header| header.volume == volume);
    let sure = fronts.iter().filter(ours).filter(is_sure).filter(of_volume);
    let owners: BTreeSet<u8> = sure.filter_map(|front| Some(front.header.as_ref()?.owner)).collect();
    let others: BTreeSet<[u8; 16]> = fronts.iter().filter_map(|front| front.run).filter(|of| *of != volume).collect();
    let mut walked = Walked { volume, others: others.into_iter().collect(), ..Walked::default() };
    walked.in_place = fronts.iter().filter(in_place).filter(of_volume).count() as u64;
    let all = fronts.len() as u64;
    for (n, front) in fronts.iter().enumerate() {
        let owned = |header: &ZoneHeader| owners.is_empty() || owners.contains(&header.owner);
        let life = match &front.header {
            Some(header) if header.kind != KIND || header.volume != volume || !owned(header) => continue,
            Some(header) => Some(header.life),
            None => None,
        };
        let mut zone = ZoneWalk { device, volume, zone: front.zone, life, runs: 0, damaged: 0 };
        zone.walk(each)?;
        if life.is_some() || zone.runs > 0 {
            walked.zones += 1;
            walked.damaged_zones += u64::from(life.is_none());
            walked.damaged_runs += zone.damaged;
        }
        walked.runs += zone.runs;
        progress(n as u64 + 1, all);
    }
    Ok(walked)
}

struct ZoneWalk<'a> {
    device: &'a dyn ZonedDevice,
    volume: [u8; 16],
    zone: Zone,
    /// `None`: the zone's header is damaged. The first run says it then.
    life: Option<u64>,
    runs: u64,
    damaged: u64,
}

impl ZoneWalk<'_> {
    fn walk(&mut self, each: &mut dyn FnMut(&RunHeader, u64, u64) -> Result<()>) -> Result<()> {
        let (mut at, end) = (1, written(&self.zone));
        while at < end {
            if let Some(header) = self.header_at(at, end)? {
                let data = at + u64::from(header.blocks);
                self.runs += 1;
                each(&header, data, end)?;
                at = data + header.data();
                continue;
            }
            match self.next_header(at + 1, end)? {
                Some(next) => {
                    self.damaged += 1;
                    at = next;
                }
                None => break,
            }
        }
        Ok(())
    }

    /// The header that stands at a block of the zone.
    fn header_at(&mut self, at: u64, end: u64) -> Result<Option<RunHeader>> {
        let most = (end - at).min(LONGEST as u64);
        let mut bytes = read(self.device, self.zone.id.0, at, most)?;
        if bytes.is_none() {
            let first = read(self.device, self.zone.id.0, at, 1)?;
            let blocks = first.and_then(|first| RunHeader::blocks_of(&first)).map(u64::from);
            bytes = match blocks.filter(|blocks| *blocks <= most) {
                Some(blocks) => read(self.device, self.zone.id.0, at, blocks)?,
                None => None,
            };
        }
        let header = bytes.and_then(|bytes| RunHeader::decode(&bytes));
        let header = header.filter(|header| {
            let here = (header.at.volume, header.at.zone, u64::from(header.at.block));
            here == (self.volume, self.zone.id.0, at) && self.life.is_none_or(|life| life == header.life)
        });
        if let Some(header) = &header {
            self.life.get_or_insert(header.life);
        }
        Ok(header)
    }

    /// The next block from `at` on at which a header stands.
    fn next_header(&mut self, mut at: u64, end: u64) -> Result<Option<u64>> {
        while at < end {
            let blocks = (end - at).min(PIECE);
            let mut wanted = Vec::new();
            match read(self.device, self.zone.id.0, at, blocks)? {
                Some(bytes) => {
                    let heads = bytes.chunks_exact(BLOCK as usize).zip(at..);
                    wanted.extend(heads.filter(|(block, _)| RunHeader::blocks_of(block).is_some()).map(|(_, at)| at));
                }
                None => wanted.extend(at..at + blocks),
            }
            for at in wanted {
                if self.header_at(at, end)?.is_some() {
                    return Ok(Some(at));
                }
            }
            at += blocks;
        }
        Ok(None)
    }
}
