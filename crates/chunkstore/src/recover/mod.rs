//! Opening: from what is on the drive back to the index (SMRSTORE §5.6), in the paper's four steps.
//!
//! 1. The headers of the metazones say which of them are in use, and in which order ([`log`](imbrex_zones::log)).
//! 2. The newest checkpoint that is whole is loaded, from whichever ring has it.
//! 3. The journal records behind its start are replayed; each of the two rings has them.
//! 4. The zones that were open then, or taken since, are scanned from where the checkpoint knew of their records.
//!
//! Nothing is written before all that is done. A crash in the middle of it is simply repeated: what was read is still there.

pub(crate) mod scan;

mod holes;
mod losses;
mod naming;
mod relabel;
mod replay;
mod salvage;

pub use relabel::Relabel;
pub(crate) use relabel::relabel;

use crate::core::placing::Placing;
use crate::core::report::{OpenReport, Relabelled};
use crate::core::{Core, DerivedLimits, State};
use crate::error::{Error, Result};
use crate::format::BLOCK;
use crate::format::entry::Part;
use crate::format::id::StreamType;
use crate::index::cost;
use crate::index::scrub::Scrub;
use crate::options::Options;
use crate::zone::{DataZone, ZoneState};
use imbrex_device::{Error as DriveError, Geometry, Zone, ZoneId};
use imbrex_zones::log::{Keep, MetaLog, Root};
use imbrex_zones::shell::Start;
use imbrex_zones::write::{RecordOptions, RecordWriter};
use imbrex_zones::{Budget, OpenZone, Tenant, Volume, ZoneHeader};
use replay::Rebuilt;
use std::sync::Arc;
use std::time::Instant;

/// The tenant's name in the label.
pub const TENANT: &str = "chunkstore";
/// Of its free zones, those that a user's write leaves alone, so that a full drive can be cleaned.
pub const RESERVE: u32 = 2;
/// Copies of journal and checkpoints.
const COPIES: u8 = 2;
/// Zones for chunks at least: one for each of the usual kinds of streams.
const STREAMS: u32 = 3;

/// What the store of a drive with so many sequential zones may take.
pub fn budget(zones: u32) -> Budget {
    Budget::keeping(RESERVE / 2, RESERVE - RESERVE / 2).at_least(metazones(zones) + RESERVE + STREAMS)
}

/// How many metazones a drive of so many sequential zones gets: the paper's 400 of 74,508, both rings together, but three a ring.
fn metazones(zones: u32) -> u32 {
    ((u64::from(zones) * 400).div_ceil(74_508) as u32).next_multiple_of(2).max(6)
}

/// Fails where so many free sequential zones are too few: what its [budget] has at least.
pub(crate) fn check_free(name: &Arc<str>, free: u32, geometry: &Geometry) -> Result<()> {
    let want = metazones(free);
    let Budget { least, .. } = budget(free);
    if free >= least {
        return Ok(());
    }
    let size = geometry.zone_size;
    let bytes = (u64::from(geometry.zones) + u64::from(least - free)) * size;
    let sentence = format!(
        "has {free} free sequential zones of {size} bytes, and a chunk store needs {least}: {want} metazones, {RESERVE} for \
         cleaning, {STREAMS} for chunks; use a drive like it, with as many conventional zones, of {bytes} bytes at least, or one with smaller zones"
    );
    Err(DriveError::unusable(name, sentence).into())
}

/// What an opening is doing. In each step, so many of so many zones are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenStep {
    /// Of a salvage without a label: reads the beginnings of all zones.
    Heads,
    /// Reads metazones: journal and checkpoints.
    Metazones,
    /// Scans the datazones that were open, or taken since the checkpoint.
    Scan,
    /// Of a salvage: reads all datazones.
    Salvage,
}

/// Hears what is done, and how many of how many zones are.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(OpenStep, u64, u64);

/// Opens the store. With `salvage` its checkpoints are lost: the index is rebuilt from the records in all zones. `relabelled`: its label was
/// made anew before.
pub(crate) fn open(
    start: Start<Core>,
    salvage: Option<Relabel>,
    relabelled: Option<Relabelled>,
    progress: Progress,
) -> Result<Core> {
    let (mut core, report) = open_as(start.tenant, start.options.options, salvage.is_some(), progress)?;
    core.report = OpenReport { relabelled, ..report };
    core.maintenance = start.maintenance;
    Ok(core)
}

fn open_as(tenant: Tenant, mut options: Options, salvaging: bool, progress: Progress) -> Result<(Core, OpenReport)> {
    let began = Instant::now();
    // Nothing of this engine is ever in the survivor.
    drop(tenant.left_behind());
    // A salvage wants all names that there are.
    let keep: Option<Keep> = if salvaging { Some(&Part::has_names) } else { None };
    let mut read = |done, all| progress(OpenStep::Metazones, done, all);
    let Some((mut log, mut found)) = MetaLog::open(&tenant, options.clock.clone(), keep, &mut read)? else {
        return begin(tenant, options).map(|core| (core, OpenReport { clean: true, ..OpenReport::default() }));
    };
    let root = log.root().clone();
    if root.unfinished && !salvaging {
        let sentence = "its label was made anew, and the salvage after that did not come to its end; run `imbrex chunk salvage` again";
        return Err(DriveError::unusable(&tenant.volume().name(), sentence).into());
    }
    let mut report = OpenReport::default();
    report.damage.append(&mut found.skipped);
    report.checkpoint = found.snapshot.unwrap_or(0);
    let new_streams = know_streams(&tenant, &mut options, &found.pieces)?;
    let limits = derive_limits(&tenant, &options, &log);
    let rebuilt = match salvaging {
        false => Rebuilt::new(&tenant, &limits, &root.zones, &found, &mut report, progress)?,
        true => {
            let journal = salvage::entries_of(&found);
            let known = match root.unfinished {
                true => salvage::by_metazones(&tenant, &limits, &root, &found, &mut report, progress)?,
                false => None,
            };
            let rebuilt = match known {
                Some(rebuilt) => rebuilt,
                None => salvage::salvage(&tenant, &limits, &root, &journal, &found.kept, &mut report, progress)?,
            };
            tenant.volume().comes_after(salvage::newest_number(&found, &journal, &rebuilt) >> 40);
            rebuilt
        }
    };
    let dirty = salvaging || report.records > 0 || report.journal_records > 0 || !found.whole || rebuilt.changed;
    report.clean = !dirty;
    // Their names are to be there for whoever opens it next.
    let dirty = dirty || new_streams;
    // From here on the drive is changed.
    tenant.begin()?;
    log.adopt()?;
    let state = state_of(&tenant, &options, rebuilt)?;
    tenant.adoption_done();
    let volume = tenant.volume().clone();
    if tenant.limits_active() {
        // What a crash left open must not count any more when the label is written.
        volume.quiesce()?;
        state.writer.due().iter().try_for_each(|due| tenant.finish(ZoneId(due.zone)))?;
        log.finish_all_left();
    }
    tenant.recovered()?;
    let core = Core::new(tenant, options, limits, state, log);
    report.damage.extend(core.lost_sentences());
    if dirty {
        let mut guard = core.commits.lead();
        guard.log().forget_unread();
        core.checkpoint_whole(&mut guard)?;
        if salvaging {
            // Neither ring has an older one that counts.
            core.checkpoint_whole(&mut guard)?;
        } else if guard.log().is_damaged()
            && let Err(error) = core.checkpoint_whole(&mut guard)
        {
            core.tenant.volume().check_poison()?;
            tracing::warn!(%error, "the damaged copy of the metadata could not be written anew");
        }
    }
    tracing::debug!(
        clean = report.clean,
        salvaging,
        checkpoint = report.checkpoint,
        journal_records = report.journal_records,
        scanned_zones = report.scanned_zones,
        scanned_bytes = report.scanned_bytes,
        records = report.records,
        seconds = began.elapsed().as_secs_f64(),
        "chunk store opened"
    );
    if root.unfinished {
        // Both checkpoints are durable: each has ended with a flush.
        let root = Root { unfinished: false, ..root };
        core.tenant.set_root(&root.encode().unwrap_or_default())?;
    }
    Ok((core, report))
}

/// Puts the user's own kinds of streams that the store knows among those of the options. Whether the options have new ones, or say something
/// new of one.
fn know_streams(tenant: &Tenant, options: &mut Options, parts: &[Vec<u8>]) -> Result<bool> {
    let stored = parts.iter().find_map(|payload| match Part::decode_notes(payload) {
        Some(Part::Streams(streams)) => Some(streams),
        _ => None,
    });
    let stored = stored.unwrap_or_default();
    options.merge_streams(&stored).ok_or_else(|| {
        let names: Vec<&str> = stored.iter().map(|stream| stream.name.as_str()).collect();
        let (most, names) = (StreamType::MOST, names.join(", "));
        let sentence = format!(
            "its chunk store has the streams {names}, and with the new ones that is more than {most}; use those"
        );
        DriveError::unusable(&tenant.volume().name(), sentence)
    })?;
    Ok(options.own_streams() != stored)
}

fn writer(tenant: &Tenant, options: &Options) -> Arc<RecordWriter> {
    let (gather, zones_at_once) = (options.segment_bytes, options.zones_at_once);
    Arc::new(RecordWriter::new(tenant, RecordOptions { gather, block: BLOCK, zones_at_once }))
}

/// The state that the index and the zones make.
fn state_of(tenant: &Tenant, options: &Options, rebuilt: Rebuilt) -> Result<State> {
    let mut state =
        State::new(writer(tenant, options), Placing::new(options.streams.len(), options.placement.remembers()));
    let same = |id, serial| rebuilt.chunks.get(&id).is_some_and(|chunk| chunk.serial == serial);
    state.scrub = Scrub::of_entry(rebuilt.scrub, same);
    state.work.index_changed(0, rebuilt.names.bytes());
    state.names = rebuilt.names;
    for (zone, found) in rebuilt.zones {
        tenant.adopt(ZoneId(zone))?;
        if found.state == ZoneState::Garbage {
            tenant.forget(ZoneId(zone), 0);
        }
        let mut z = DataZone::new(found.state, found.life, found.usage, found.capacity, found.tail);
        // The drive is asked again when it is closed for good.
        if found.state.is_open() || !found.finished {
            let [at, capacity] = [found.tail, found.capacity].map(|blocks| u64::from(blocks) * BLOCK as u64);
            state.writer.open(OpenZone { zone: ZoneId(zone), life: found.life, at, capacity });
        }
        if !found.state.is_open() {
            state.writer.close(zone);
        }
        z.dead = found.dead;
        z.unread = found.unread;
        let report = tenant.volume().report_at_open().get(zone as usize);
        z.unreadable = report.is_some_and(|report| report.state == imbrex_device::ZoneState::Offline);
        state.zones.insert(zone, z);
    }
    for chunk in rebuilt.chunks.into_values() {
        let groups: Vec<(u32, u32)> = chunk.groups().iter().map(|g| (g.zone, g.blocks())).collect();
        state.work.index_changed(0, cost(&chunk));
        let slot = state.index.insert(chunk);
        for (zone, blocks) in groups {
            if let Some(z) = state.zones.get_mut(zone) {
                z.live.push(slot);
                z.live_blocks += blocks;
            }
        }
        state.note_losses(slot);
    }
    state.placing.took(state.zones.all().iter().max_by_key(|(_, z)| z.life).map_or(0, |(zone, _)| *zone));
    let zones: Vec<u32> = state.zones.all().keys().copied().collect();
    zones.into_iter().for_each(|zone| state.collect(zone));
    state.zones.settle(&state.writer);
    Ok(state)
}

fn derive_limits(tenant: &Tenant, options: &Options, log: &MetaLog) -> DerivedLimits {
    let volume = tenant.volume();
    let ring = log.ring_size();
    let sequential = |zone: &&Zone| zone.state != imbrex_device::ZoneState::Conventional && zone.capacity > 0;
    let count = volume.report_at_open().iter().filter(sequential).count() as u32;
    let least = volume.least_capacity() / BLOCK as u64 * BLOCK as u64;
    // Beside chunks: the zones of both rings and one for the cleaner.
    let open = tenant.most_open().map(|n| n.saturating_sub(3));
    let active = tenant.most_active().map(|n| n.saturating_sub(3));
    let limit = [open, active].into_iter().flatten().min();
    // Metazones that have died may have no capacity any more.
    let datazones = count.saturating_sub(log.zones().len() as u32);
    DerivedLimits::new(options, least, ring, datazones, limit)
}

/// Makes a store of a tenant that has nothing yet. Repeated from the beginning, if it does not come to its end.
fn begin(tenant: Tenant, options: Options) -> Result<Core> {
    tenant.begin()?;
    tenant.adoption_done();
    tenant.recovered()?;
    let free = tenant.counts().free;
    check_free(&tenant.volume().name(), free, tenant.volume().geometry())?;
    let log = MetaLog::create(&tenant, COPIES, metazones(free), Vec::new(), options.clock.clone())?;
    let limits = derive_limits(&tenant, &options, &log);
    let state =
        State::new(writer(&tenant, &options), Placing::new(options.streams.len(), options.placement.remembers()));
    let core = Core::new(tenant, options, limits, state, log);
    // One in each ring: then the label names them.
    (0..COPIES).try_for_each(|_| core.checkpoint_whole(&mut core.commits.lead()))?;
    Ok(core)
}

/// Whether the header of a zone says that it is the store's.
fn is_ours(tenant: &Tenant, header: &ZoneHeader) -> bool {
    (header.volume, header.owner) == (tenant.volume().uuid(), tenant.owner())
}

/// Whether new records may go to a zone in this state of the drive.
pub(crate) fn takes_writes(zone: &Zone) -> bool {
    zone.state.writable() && zone.wp.is_some_and(|wp| wp % BLOCK as u64 == 0)
}

/// A datazone as it was found.
#[derive(Clone, Debug)]
pub(crate) struct FoundZone {
    pub(crate) state: ZoneState,
    pub(crate) life: u64,
    pub(crate) usage: crate::format::ZoneUse,
    pub(crate) capacity: u32,
    pub(crate) tail: u32,
    pub(crate) finished: bool,
    pub(crate) dead: bool,
    /// Is to be scanned from this block on.
    pub(crate) scan: Option<u32>,
    /// See [`DataZone::unread`].
    pub(crate) unread: u32,
}

/// Damage that costs the whole store: no checkpoint is whole.
pub(crate) fn no_checkpoint(volume: &Volume) -> Error {
    let sentence = "has no whole checkpoint in its metazones; `imbrex chunk salvage` finds chunks by their records";
    DriveError::damaged(&volume.name(), sentence).into()
}
