//! A new label for a drive that has lost both copies of its own.
//!
//! What is written is the [label](imbrex_zones::shell::salvage) and nothing else: to where the lost copies stood, and only if no zone there holds anything else.
//! Whatever else is on the drive stays as it is: other engines have their zones again.
//!
//! The root that the label gets says that the index is not made yet: only a salvage opens such a store, and when its checkpoints are
//! durable the root says so no more. So a crash at any moment is repeated: before the label is whole it is lost as before, after that the
//! salvage begins again.

use super::{COPIES, OpenStep, Progress, TENANT, budget, metazones};
use crate::core::report::{LostStore, Relabelled};
use crate::error::{Error, Result};
use crate::format::id::StreamType;
use crate::format::{BLOCK, Header, ZoneUse};
use crate::options::Clock;
use imbrex_device::{
    AlignedBuf, Cause, Drive, Error as DriveError, Written, Zone, ZoneId, ZoneState, ZonedDevice, report_all,
};
use imbrex_zones::Volume;
use imbrex_zones::shell::salvage::{FoundTenant, Salvaged, Search};
use uuid::Uuid;

/// Blocks at the beginning of a zone in which a record is looked for where its header cannot be read.
const NEAR: u32 = 1024;

/// Whether a salvage may write a label to a drive that has lost its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relabel {
    /// No.
    #[default]
    No,
    /// Where the zones of one chunk store only are on it.
    Only,
    /// For the store of the volume with this UUID.
    Volume([u8; 16]),
}

fn name(volume: [u8; 16]) -> Uuid {
    Uuid::from_bytes(volume)
}

/// A sentence about the stores of which there are zones.
fn listed(stores: &[LostStore]) -> String {
    let one = |store: &LostStore| {
        let (data, meta) = (store.datazones, store.metazones);
        format!("{} ({data} zones of chunks, {meta} of journal and checkpoints)", name(store.volume))
    };
    stores.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Writes the label, if it is lost. `None`: it was not.
pub(crate) fn relabel(drive: &Drive, how: Relabel, clock: &Clock, progress: Progress) -> Result<Option<Relabelled>> {
    let Some(lost) = Volume::lost_label(drive)? else { return Ok(None) };
    let device = drive.device.as_ref();
    let report = report_all(device)?;
    let (all, mut done) = (report.len() as u64, 0);
    let search = Search::of(device, false, &mut |_, _| {
        progress(OpenStep::Heads, done, all);
        done += 1;
    })?;
    let sequential = report.iter().filter(|zone| zone.state != ZoneState::Conventional);
    let zones = sequential.filter(|zone| !lost.zones.contains(&zone.id)).count() as u32;
    let mut engine = Salvaged {
        name: TENANT,
        kind: |kind| ZoneUse::of_kind(kind).is_some(),
        claims: &|_| false,
        budget: budget(zones),
        log: Some((COPIES, metazones(zones))),
        generation: clock(),
    };
    let tenants = search.tenants(&engine);
    let ours = tenants.iter().filter(|tenant| tenant.name.as_deref() == Some(TENANT));
    let all: Vec<LostStore> = ours.map(LostStore::of).collect();
    let store = store_of(how, &all, lost.zones)
        .map_err(|sentence| -> Error { DriveError::unusable(&device.identity().name, sentence).into() })?;
    // Without a header nobody can tell of which volume records are, but where there is one only.
    let claims = |zone: &Zone| all.len() == 1 && records_near(device, zone).is_some();
    engine.claims = &claims;
    let (label, kept) = search.label(device, store.volume, &engine)?;
    Volume::relabel(drive, label)?;
    tracing::info!(drive = %device.identity().name, volume = %name(store.volume), kept, "the label was made anew");
    Ok(Some(Relabelled { store, kept }))
}

impl LostStore {
    fn of(tenant: &FoundTenant) -> LostStore {
        let &FoundTenant { volume, zones, newest, .. } = tenant;
        LostStore { volume, metazones: tenant.log.len() as u32, datazones: zones, newest }
    }
}

/// A record at the beginning of a zone whose header cannot be read: the zone's life, and the kind of stream.
pub(super) fn records_near(device: &dyn ZonedDevice, zone: &Zone) -> Option<(u64, StreamType)> {
    let to = match zone.written() {
        Written::To(wp) => (wp / BLOCK as u64) as u32,
        Written::Untold => (zone.capacity / BLOCK as u64) as u32,
        Written::Gone => 0,
    };
    let mut block = AlignedBuf::zeroed(BLOCK);
    (1..to.min(NEAR)).find_map(|at| {
        let address = device.geometry().start(zone.id) + u64::from(at) * BLOCK as u64;
        device.read_at(&mut block, address, Cause::Recovery.into()).ok()?;
        let header = Header::decode_anywhere(&block).ok().filter(|header| header.at == at)?;
        Some((header.life, StreamType::new(header.stream)?))
    })
}

/// Whose label it shall be; `label`: where it would be written.
fn store_of(how: Relabel, all: &[LostStore], label: [ZoneId; 2]) -> Result<LostStore, String> {
    match (how, all) {
        (_, []) => {
            let what = "has lost its label, and no zone of it was ever written by a chunk store; check that it is the right drive, \
                        and look for files with `imbrex fs salvage`";
            Err(what.into())
        }
        (Relabel::No, stores) => {
            let [a, b] = label;
            Err(format!(
                "has lost both copies of its label, and zones of a chunk store are on it: {}; `imbrex chunk salvage --dry-run \
                 --relabel` says what could be found, and with `--relabel` alone a new label is written to zones {a} and {b}, where the \
                 lost one stood",
                listed(stores)
            ))
        }
        (Relabel::Only, [one]) => Ok(*one),
        (Relabel::Only, stores) => Err(format!(
            "has lost its label, and zones of {} chunk stores are on it: {}; say whose label it shall be with `--volume UUID`; \
                 what is of the others is kept as it is",
            stores.len(),
            listed(stores)
        )),
        (Relabel::Volume(volume), stores) => match stores.iter().find(|store| store.volume == volume) {
            Some(store) => Ok(*store),
            None => {
                Err(format!("has no zone of a chunk store of volume {}; there are: {}", name(volume), listed(stores)))
            }
        },
    }
}
