//! A new label for a drive that has lost both copies of its own, from the heads of its zones.
//!
//! What is written is the label and nothing else: to where the lost copies stood, and only if no zone there holds anything else. Whatever
//! else is on the drive stays as it is. Zones of the store become the tenant's; all others that are written, of bluefs, of an older volume
//! or of nobody that can be told, become those of a tenant [`KEPT`] that no engine opens, so they are never reset. Of a zone only
//! what was empty is free.
//!
//! The root that the label gets says that the index is not made yet: only a salvage opens such a store, and when its checkpoints are
//! durable the root says so no more. So a crash at any moment is repeated: before the label is whole it is lost as before, after that the
//! salvage begins again.

use super::heads::{Found, look_at_all, root_of, stores};
use super::{Progress, TENANT, budget};
use crate::core::report::{LostStore, Relabelled};
use crate::error::{Error, Result};
use crate::options::Clock;
use imbrex_device::{Drive, Error as DriveError, ZoneId, ZoneState, report_all};
use imbrex_zones::label::{NOBODY, TenantRecord};
use imbrex_zones::{Budget, LostLabel, NewLabel, Volume};
use uuid::Uuid;

/// The tenant that owns what is not the chunk store's on a drive whose label was made anew.
pub const KEPT: &str = "kept";

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
    let refuse = |sentence: String| -> Error { DriveError::unusable(&device.identity().name, sentence).into() };
    let report = report_all(device)?;
    check_places(drive, &lost)?;
    let found = look_at_all(device, &report, lost.zones, &mut |done, all| {
        progress(super::OpenStep::Heads, done, all);
    });
    let all = stores(found.values());
    let store = store_of(how, &all, lost.zones).map_err(refuse)?;
    // Without a head nobody can tell of which volume records are, but where there is one only.
    let is_ours = |found: &Found| match found {
        Found::Head(head, _) => head.volume == store.volume,
        Found::Log(head) => head.volume == store.volume,
        Found::Records(..) => all.len() == 1,
        Found::Gone => true,
        Found::Empty | Found::Other | Found::Unknown => false,
    };
    let mut used: Vec<(u32, u8)> = Vec::new();
    let mut last = 0;
    for (zone, found) in &found {
        match found {
            Found::Head(head, life) if head.volume == store.volume => last = last.max(*life),
            Found::Log(head) if head.volume == store.volume => {
                last = last.max(head.life);
                used.push((*zone, head.copy));
            }
            _ => {}
        }
    }
    let writable = |zone: &u32| report.get(*zone as usize).is_some_and(|zone| zone.state == ZoneState::Empty);
    let empty: Vec<u32> =
        found.iter().filter(|(_, f)| **f == Found::Empty).map(|(zone, _)| *zone).filter(writable).collect();
    let root = root_of(&used, &empty, found.len() as u32).ok_or_else(|| {
        refuse(
            "has lost its label, and no empty zones are left for the journal and checkpoints of its chunk store; nothing was changed: \
             `--dry-run` says what is on it"
                .into(),
        )
    })?;
    let bytes =
        root.encode().ok_or_else(|| refuse("has its metazones in too many places; nothing was changed".into()))?;
    let kept = found.values().filter(|found| !is_ours(found) && **found != Found::Empty).count() as u32;
    let record = |name: &str, root: Vec<u8>, budget: Budget| TenantRecord {
        name: name.into(),
        root,
        budget,
        ..TenantRecord::default()
    };
    let mut tenants = Vec::new();
    if kept > 0 {
        tenants.push(record(KEPT, Vec::new(), Budget::default()));
    }
    tenants.push(record(TENANT, bytes, budget(found.len() as u32)));
    let us = tenants.len() as u8;
    let owner = |zone: &imbrex_device::Zone| match found.get(&zone.id.0) {
        // Conventional zones are the first tenant's, as after formatting; the chunk store writes to none.
        None => 1,
        Some(Found::Empty) if root.zones.contains(&zone.id.0) => us,
        Some(Found::Empty) => NOBODY,
        Some(found) if is_ours(found) => us,
        Some(_) => 1,
    };
    let owners = report.iter().map(owner).collect();
    // By the clock: above that of any label that counted its changes.
    let (generation, mount) = (clock().max(1), last >> 40);
    Volume::relabel(drive, NewLabel { uuid: store.volume, generation, mount, tenants, owners })?;
    tracing::info!(drive = %device.identity().name, volume = %name(store.volume), kept, "the label was made anew");
    Ok(Some(Relabelled { store, kept }))
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

/// Where a label would be written, nothing else stands.
fn check_places(drive: &Drive, lost: &LostLabel) -> Result<()> {
    let device = drive.device.as_ref();
    let report = report_all(device)?;
    for id in lost.zones {
        let Some(zone) = report.get(id.0 as usize).filter(|zone| zone.state != ZoneState::Conventional) else {
            continue;
        };
        if matches!(
            super::heads::look(device, zone),
            Found::Head(..) | Found::Log(..) | Found::Records(..) | Found::Other
        ) {
            let sentence = format!(
                "has lost its label, and where it would stand, in zone {id}, something else does; nothing was changed: the drive was \
                 perhaps formatted with other settings, name it with those"
            );
            return Err(DriveError::unusable(&device.identity().name, sentence).into());
        }
    }
    Ok(())
}
