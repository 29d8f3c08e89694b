//! Salvage of a drive that has lost its label, as far as it is the same for every engine: whose each zone is, and a label that says so.
//!
//! A [`Search`] reads [zone headers](ZoneHeader). They name the volume and the number of the tenant; those of a metadata log name the tenant, too. An engine
//! chooses a volume, and gets a [label](Search::label) of all tenants of which that has zones, each with its number, its zones and a root that names the
//! rings of its log. So whichever engine makes the label, the others come back with it.
//!
//! A header counts only if it names the zone that it stands in. Of a zone with several headers the first says whose it is. Written zones of older volumes, and
//! those of which nobody can tell whose they are, become those of a tenant [`KEPT`]: they are never reset, and go to the engine whose metadata
//! refers to them.
//!
//! A zone of a log may be gone, with records that nothing else tells. So the roots are [unfinished](Root::unfinished): engines do not believe their logs alone.
//!
//! A tenant whose log is lost keeps its zones under a name that no engine has. Where too few zones are left for a log, its tenant gets a root that no engine opens.

use crate::header::ZoneHeader;
use crate::label::{KEPT, MAX_TENANTS, NOBODY, TenantRecord, budget::Budget};
use crate::log::Root;
use crate::log::format::{LOG_KIND, LogHead};
use crate::volume::{NewLabel, conventional, label_places, read_all};
use imbrex_device::{AlignedBuf, Cause, Error, Result, Tag, Written, Zone, ZoneId, ZoneState, ZonedDevice, report_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const TAG: Tag = Tag::new(Cause::Recovery);
/// Bytes that are searched at a time.
const PIECE: u64 = 1 << 20;

/// What follows one zone header, up to the next one or the end of what is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The header.
    pub header: ZoneHeader,
    /// Bytes from the zone's start to the first byte behind the header's block.
    pub from: u64,
    /// Bytes from the zone's start to its end.
    pub to: u64,
    /// The drive does not tell how far the zone is written.
    pub untold: bool,
}

/// What a sequential zone begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front {
    /// Nothing was written there.
    Empty,
    /// The zone's header.
    Header(ZoneHeader),
    /// Something that does not tell whose it is.
    Unknown,
    /// Nothing of it can be read any more.
    Gone,
}

/// A tenant of a volume, as the zones tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTenant {
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// Its number.
    pub owner: u8,
    /// Its name; `None`: no zone of its log is left.
    pub name: Option<String>,
    /// Zones of its log.
    pub log: Vec<LogHead>,
    /// How many others there are.
    pub zones: u32,
    /// When the last header of it was written: nanoseconds since 1970.
    pub newest: u64,
    /// Kinds of its headers, but for those of the log.
    kinds: BTreeSet<u8>,
}

/// What the engine that salvages says of itself.
pub struct Salvaged<'a> {
    /// The tenant's name.
    pub name: &'static str,
    /// Whether it writes zone headers of this kind: for a tenant whose log is lost.
    pub kind: fn(u8) -> bool,
    /// Whether a zone is its own although the header cannot be read.
    pub claims: &'a dyn Fn(&Zone) -> bool,
    /// What it may take.
    pub budget: Budget,
    /// Where its log is lost: how many copies and zones an empty one has. `None`: it needs what the log held.
    pub log: Option<(u8, u32)>,
    /// Generation of the label at least; it is above the time of the newest header in any case.
    pub generation: u64,
}

/// What zone headers say of a drive.
pub struct Search {
    drive: Arc<str>,
    zones: Vec<Zone>,
    fronts: BTreeMap<u32, Front>,
    stretches: Vec<Stretch>,
}

/// Whose zones are.
struct Owners {
    /// By zone.
    owners: Vec<u8>,
    /// Zones that a log may have.
    empty: Vec<u32>,
}

/// What a zone begins with.
pub fn front(device: &dyn ZonedDevice, zone: &Zone) -> Front {
    look(device, zone, false).0
}

/// What follows each header of a zone, all blocks of which are read.
pub fn stretches(device: &dyn ZonedDevice, zone: &Zone) -> Vec<Stretch> {
    look(device, zone, true).1
}

/// How many bytes of a zone may be written, and whether that is all that the drive tells.
fn written(zone: &Zone) -> (u64, bool) {
    match (zone.state, zone.written()) {
        (ZoneState::Conventional | ZoneState::Empty, _) | (_, Written::Gone) => (0, false),
        (_, Written::To(to)) => (to, false),
        (_, Written::Untold) => (zone.capacity, true),
    }
}

/// Bytes that a header takes of a zone.
fn header_bytes(device: &dyn ZonedDevice) -> u64 {
    u64::from(device.geometry().block.max(4096))
}

/// How many bytes of a zone are searched: at its beginning two headers, since that of a log stands there twice.
fn searched(device: &dyn ZonedDevice, zone: &Zone, every_block: bool) -> u64 {
    written(zone).0.min(if every_block { u64::MAX } else { 2 * header_bytes(device) })
}

fn look(device: &dyn ZonedDevice, zone: &Zone, every_block: bool) -> (Front, Vec<Stretch>) {
    let ((to, untold), front) = (written(zone), header_bytes(device));
    let (mut found, mut blank): (Vec<Stretch>, bool) = (Vec::new(), true);
    let all_read = read_blocks(device, zone.id, searched(device, zone, every_block), &mut |at, bytes| {
        blank = blank && bytes.iter().all(|byte| *byte == 0);
        let Some(header) = ZoneHeader::decode(bytes).filter(|header| header.zone == zone.id.0) else { return };
        let fits = |first: &ZoneHeader| {
            header.kind != LOG_KIND && (header.volume, header.owner) == (first.volume, first.owner)
        };
        if found.first().is_none_or(|first| fits(&first.header)) {
            // The one before ends here.
            if let Some(before) = found.last_mut() {
                (before.to, before.untold) = (at, false);
            }
            found.push(Stretch { header, from: (at + front).min(to), to, untold });
        }
    });
    // What a user wrote may look like a header further on.
    let is_front = |first: &&Stretch| {
        first.from == front.min(to) || first.header.kind == LOG_KIND && first.from == (2 * front).min(to)
    };
    let front = match found.first().filter(is_front) {
        Some(first) => Front::Header(first.header.clone()),
        None if zone.written() == Written::Gone => Front::Gone,
        // A read-only zone need not tell how far it is written.
        None if to == 0 && zone.wp.is_none_or(|wp| wp == 0) || untold && blank && all_read => Front::Empty,
        None => Front::Unknown,
    };
    (front, found)
}

/// Calls `each` for every block up to `to`, with its place in the zone. False: some could not be read, and were left out.
fn read_blocks(device: &dyn ZonedDevice, zone: ZoneId, to: u64, each: &mut dyn FnMut(u64, &[u8])) -> bool {
    let geometry = device.geometry();
    let (block, start) = (u64::from(geometry.block), geometry.start(zone));
    let mut buf = AlignedBuf::zeroed(PIECE.min(to) as usize);
    let (mut at, mut all) = (0, true);
    while at < to {
        let n = PIECE.min(to - at);
        let piece = &mut buf[..n as usize];
        let whole = read_all(device, piece, start + at, TAG).is_ok();
        for (i, bytes) in piece.chunks_mut(block as usize).enumerate() {
            let here = at + i as u64 * block;
            match whole || read_all(device, bytes, start + here, TAG).is_ok() {
                true => each(here, bytes),
                false => all = false,
            }
        }
        at += n;
    }
    all
}

/// The error where no zone of an engine's kind of store, as `what` names it, is on the drive; `instead`: what to do where others are.
pub fn nothing_found(drive: &Arc<str>, tenants: &[FoundTenant], what: &str, instead: &str) -> Error {
    let others: BTreeSet<&str> = tenants.iter().filter_map(|tenant| tenant.name.as_deref()).collect();
    if others.is_empty() {
        let sentence = "no zone of it was ever written by Imbrex, so there is nothing to salvage; check that it is the right drive";
        return Error::unusable(drive, sentence);
    }
    let others = others.into_iter().collect::<Vec<_>>().join(", ");
    Error::unusable(drive, format!("has zones of {others}, and none of {what}; {instead}"))
}

impl Search {
    /// Reads a drive's zones. `every_block`: not only their beginnings, which takes as long as reading all that is written. `progress` gets bytes searched,
    /// and of how many, once for each zone.
    ///
    /// # Errors
    /// Those of a report of zones. What cannot be read is no error.
    pub fn of(device: &dyn ZonedDevice, every_block: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Search> {
        let zones = report_all(device)?;
        let all = zones.iter().map(|zone| searched(device, zone, every_block)).sum();
        let (mut fronts, mut stretches, mut done) = (BTreeMap::new(), Vec::new(), 0);
        for zone in &zones {
            if zone.id.0 >= conventional(&zones) {
                let (front, mut found) = look(device, zone, every_block);
                fronts.insert(zone.id.0, front);
                stretches.append(&mut found);
            }
            done += searched(device, zone, every_block);
            progress(done, all);
        }
        Ok(Search { drive: device.identity().name.clone(), zones, fronts, stretches })
    }

    /// What follows each header, by place on the drive.
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// All tenants of all volumes, those first that wrote a header last.
    pub fn tenants(&self, engine: &Salvaged<'_>) -> Vec<FoundTenant> {
        let mut all: BTreeMap<([u8; 16], u8), FoundTenant> = BTreeMap::new();
        let mut before = None;
        for Stretch { header, .. } in self.stretches.iter().filter(|stretch| is_owner(stretch.header.owner)) {
            let new = || FoundTenant {
                volume: header.volume,
                owner: header.owner,
                name: None,
                log: Vec::new(),
                zones: 0,
                newest: 0,
                kinds: BTreeSet::new(),
            };
            let tenant = all.entry((header.volume, header.owner)).or_insert_with(new);
            tenant.newest = tenant.newest.max(header.created);
            if let Some(head) = LogHead::of_header(header) {
                tenant.log.push(head);
            } else {
                tenant.zones += u32::from(before.replace(header.zone) != Some(header.zone));
                tenant.kinds.insert(header.kind);
            }
        }
        let mut all: Vec<FoundTenant> = all.into_values().collect();
        all.sort_by_key(|tenant| std::cmp::Reverse(tenant.newest));
        let mut names: BTreeSet<([u8; 16], String)> = BTreeSet::new();
        for tenant in &mut all {
            let newest = tenant.log.iter().max_by_key(|head| head.created);
            tenant.name = newest
                .map(|head| head.tenant.clone())
                .filter(|name| is_name(name) && names.insert((tenant.volume, name.clone())));
        }
        let ours = |tenant: &&mut FoundTenant| {
            let kinds = &tenant.kinds;
            tenant.log.is_empty() && !kinds.is_empty() && kinds.iter().copied().all(engine.kind)
        };
        for tenant in all.iter_mut().filter(ours) {
            let name = engine.name.to_owned();
            tenant.name = names.insert((tenant.volume, name.clone())).then_some(name);
        }
        all
    }

    /// A label for the volume, which has zones of the engine; and how many written zones are not the engine's.
    ///
    /// # Errors
    /// `Unusable` with a whole sentence: where something else stands where the label would, where the volume has no zone of the engine, or too few zones are left
    /// for its log.
    pub fn label(&self, device: &dyn ZonedDevice, volume: [u8; 16], engine: &Salvaged<'_>) -> Result<(NewLabel, u32)> {
        let places: Vec<ZoneId> = label_places(device, &self.zones).into_iter().flatten().collect();
        let is_used = |id: &&ZoneId| match self.fronts.get(&id.0) {
            Some(Front::Header(_)) => true,
            Some(Front::Unknown) => (engine.claims)(&self.zones[id.0 as usize]),
            _ => false,
        };
        if let Some(id) = places.iter().find(is_used) {
            return Err(self.unusable(format!(
                "has lost its label, and where it would stand, in zone {id}, something else does; nothing was changed: the drive was perhaps formatted \
                 with other settings, name it with those"
            )));
        }
        let mut tenants = self.tenants(engine);
        tenants.retain(|tenant| tenant.volume == volume);
        let us = tenants.iter().find(|tenant| tenant.name.as_deref() == Some(engine.name));
        let us = us.ok_or_else(|| self.unusable(format!("has no zone of {}", engine.name)))?.owner;
        let kept = tenants.iter().map(|tenant| tenant.owner).max().unwrap_or(us) + 1;
        let Owners { mut owners, mut empty } = self.owners(volume, (us, kept), &places, engine.claims);
        let sequential = || owners.iter().zip(&self.zones).filter(|(_, zone)| zone.state != ZoneState::Conventional);
        let others = sequential().filter(|(owner, _)| ![NOBODY, us].contains(owner)).count() as u32;
        let has_kept = sequential().any(|(owner, _)| *owner == kept);
        if has_kept && !is_owner(kept) {
            return Err(self.unusable("has lost its label, and zones of 14 engines and of others are on it".into()));
        }
        let mut records: Vec<TenantRecord> = (1..kept).map(|n| record(format!("unknown-{n}"))).collect();
        records.extend(has_kept.then(|| record(KEPT.into())));
        // The engine itself first: it is sure to get what it needs.
        tenants.sort_by_key(|tenant| tenant.owner != us);
        for tenant in &tenants {
            let Some(name) = &tenant.name else { continue };
            let root = self.root(tenant, engine, &empty)?;
            root.zones.iter().for_each(|zone| owners[*zone as usize] = tenant.owner);
            empty.retain(|zone| !root.zones.contains(zone));
            let budget = match tenant.owner == us {
                true => engine.budget,
                // Of others nobody knows more than what bluefs keeps.
                false => Budget::keeping(0, 1).at_least(root.zones.len() as u32 + 2),
            };
            let root = root.encode().ok_or_else(|| self.unusable("has its logs in too many places".into()))?;
            records[usize::from(tenant.owner) - 1] = TenantRecord { root, budget, ..record(name.clone()) };
        }
        let newest = tenants.iter().map(|tenant| tenant.newest).max().unwrap_or(0);
        // There is room for those that follow, whatever time a header says.
        let generation = engine.generation.max(newest.saturating_add(1)).min(u64::MAX >> 1);
        let of_volume = self.stretches.iter().filter(|stretch| stretch.header.volume == volume);
        let mount = of_volume.map(|stretch| u64::from(stretch.header.mount)).max().unwrap_or(0);
        Ok((NewLabel { uuid: volume, generation, mount, tenants: records, owners }, others))
    }

    /// Whose each zone is, by its header; `places`: where the label will stand.
    fn owners(
        &self,
        volume: [u8; 16],
        (us, kept): (u8, u8),
        places: &[ZoneId],
        claims: &dyn Fn(&Zone) -> bool,
    ) -> Owners {
        let mut found = Owners { owners: Vec::new(), empty: Vec::new() };
        for zone in &self.zones {
            let owner = match self.fronts.get(&zone.id.0) {
                // As after formatting.
                None => 1,
                _ if places.contains(&zone.id) => NOBODY,
                Some(Front::Empty) => NOBODY,
                Some(Front::Header(header)) if header.volume == volume && is_owner(header.owner) => header.owner,
                Some(Front::Header(_)) => kept,
                Some(Front::Unknown | Front::Gone) if claims(zone) => us,
                Some(Front::Unknown | Front::Gone) => kept,
            };
            if zone.state == ZoneState::Empty && !places.contains(&zone.id) {
                found.empty.push(zone.id.0);
            }
            found.owners.push(owner);
        }
        found
    }

    /// The root of a tenant's log.
    fn root(&self, tenant: &FoundTenant, engine: &Salvaged<'_>, empty: &[u32]) -> Result<Root> {
        let ours = tenant.name.as_deref() == Some(engine.name);
        let told = tenant.log.iter().max_by_key(|head| head.life).map(|head| (head.copies, head.zones));
        let used: Vec<(u32, u8)> = tenant.log.iter().map(|head| (head.zone, head.copy)).collect();
        let Some((copies, want)) = told.or(engine.log.filter(|_| ours)) else {
            return Err(self.unusable(format!("has lost its label, and no zone of the log of {} is left", engine.name)));
        };
        // A header may say anything.
        let want = (want as usize).min(used.len().max(self.zones.len() / 16).max(16));
        match Root::of_zones(copies, &used, empty, want) {
            Some(root) => Ok(Root { unfinished: true, ..root }),
            None if ours => Err(self.unusable(format!(
                "has lost its label, and no empty zones are left for the log of {}; nothing was changed",
                engine.name
            ))),
            None => Ok(Root { copies, unfinished: true, ..Root::default() }),
        }
    }

    fn unusable(&self, sentence: String) -> Error {
        Error::unusable(&self.drive, sentence)
    }
}

fn is_owner(number: u8) -> bool {
    (1..=MAX_TENANTS).contains(&usize::from(number))
}

fn record(name: String) -> TenantRecord {
    TenantRecord { name, ..TenantRecord::default() }
}

fn is_name(name: &str) -> bool {
    name != KEPT && !name.starts_with("unknown-") && record(name.to_owned()).check().is_ok()
}
