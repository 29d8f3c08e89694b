//! Metadata on another drive: two volumes that name each other.
//!
//! The drive of the objects says in its store's [label](crate::Label) which volume has the metadata. That volume has a tenant without zones, [`TENANT`], whose root says whose they are:
//!
//! ```text
//!   0    4        5        6       22       30     38            46          54
//!   imSD version  pending  volume  opening  token  next opening  next token  CRC-32C
//! ```
//!
//! **Copies that were restored.** Both have the number of the last [opening](Opening), and a token of it. Each opening raises both before it writes anything else, in three steps:
//!
//! 1. the metadata's drive notes the next opening beside the last one;
//! 2. the objects' drive has the next one;
//! 3. the metadata's drive has it, too, and notes none.
//!
//! Nothing else is written between these, so a crash leaves two drives that fit: the objects' drive has the last opening or the noted one. Else one of the two is a copy of an earlier moment,
//! since each opening that got further has left both at a number that no earlier copy has. An opening that finds a note takes the number behind it, so the note fits once.
//!
//! **Formatting** makes both volumes, and then writes the link of the metadata's drive, and that of the objects' drive last. So the store is there with the last step, and drives that a formatting has left
//! [half done](is_half) are formatted again as blank ones are.

use crate::keeper::MetadataIn;
use crate::label::Label;
use imbrex_bluestore::{BUDGET, NAME};
use imbrex_device::{Code, Drive, Error, Geometry, Result};
use imbrex_drives::overlay::cover;
use imbrex_zones::{Budget, Exec, FormatOptions, Tenant, TenantSpec, Volume, VolumeOptions};
use std::time::SystemTime;

/// The tenant that says whose metadata a volume has.
pub(crate) const TENANT: &str = "metadata-of";

const MAGIC: [u8; 4] = *b"imSD";
const VERSION: u8 = 1;
const LEN: usize = 58;

/// An opening of a store, which both drives know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opening {
    pub number: u64,
    /// No other opening has it, also not one of this number of a copy of both drives.
    pub token: u64,
}

/// What the label of a store says of the drive with its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// UUID of the volume.
    pub volume: [u8; 16],
    pub(crate) opening: Opening,
}

/// What the drive with the metadata says of that of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    pub volume: [u8; 16],
    pub opening: Opening,
    /// An opening that has begun.
    pub next: Option<Opening>,
}

impl Opening {
    pub fn put(self, out: &mut Vec<u8>) {
        out.extend(self.number.to_le_bytes());
        out.extend(self.token.to_le_bytes());
    }

    pub fn take(bytes: &[u8]) -> Option<(Opening, &[u8])> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (token, rest) = rest.split_first_chunk()?;
        Some((Opening { number: u64::from_le_bytes(*number), token: u64::from_le_bytes(*token) }, rest))
    }
}

impl Back {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = [&MAGIC[..], &[VERSION, u8::from(self.next.is_some())], &self.volume].concat();
        self.opening.put(&mut out);
        self.next.unwrap_or_default().put(&mut out);
        let crc = crc32c::crc32c(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// `None`: it is damaged, or of another version.
    pub fn decode(bytes: &[u8]) -> Option<Back> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if bytes.len() != LEN || crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let rest = body.strip_prefix(&MAGIC)?;
        let ([version, pending], rest) = rest.split_first_chunk()?;
        let (volume, rest) = rest.split_first_chunk()?;
        let (opening, rest) = Opening::take(rest)?;
        let (next, _) = Opening::take(rest)?;
        if *version != VERSION || *pending > 1 || *pending == 0 && next != Opening::default() {
            return None;
        }
        Some(Back { volume: *volume, opening, next: (*pending == 1).then_some(next) })
    }
}

/// What two drives say of each other, and their UUIDs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Both {
    pub objects: ([u8; 16], Link),
    pub metadata: ([u8; 16], Back),
}

/// Why two drives do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Apart {
    /// The drive of the metadata is another one.
    OtherMetadata,
    /// It has metadata of another drive.
    OtherObjects,
    /// The drive of the metadata is an older copy.
    OldMetadata,
    /// The drive of the objects is one.
    OldObjects,
    /// One of them is a copy that has gone its own way.
    Forked,
}

/// Whether two drives go together as they are, and of which opening both are.
pub(crate) fn agree(both: &Both) -> std::result::Result<Opening, Apart> {
    let Both { objects: (uuid, link), metadata: (other, back) } = both;
    if link.volume != *other {
        return Err(Apart::OtherMetadata);
    }
    if back.volume != *uuid {
        return Err(Apart::OtherObjects);
    }
    let last = back.next.map_or(back.opening.number, |next| next.number.max(back.opening.number));
    match link.opening {
        own if own == back.opening || Some(own) == back.next => Ok(own),
        own if own.number > last => Err(Apart::OldMetadata),
        own if own.number < back.opening.number => Err(Apart::OldObjects),
        _ => Err(Apart::Forked),
    }
}

/// The number of the next opening: behind all that either drive has seen.
pub(crate) fn next_number(both: &Both) -> u64 {
    let Both { objects: (_, link), metadata: (_, back) } = both;
    let noted = back.next.map_or(0, |next| next.number);
    link.opening.number.max(back.opening.number).max(noted).saturating_add(1)
}

fn uuid(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn refuse(volume: &Volume, sentence: impl Into<String>) -> Error {
    Error::unusable(&volume.name(), sentence.into())
}

impl Apart {
    /// In a sentence about both drives.
    fn sentence(self, both: &Both, names: (&str, &str)) -> String {
        let ((own, link), (other, back), (objects, metadata)) = (&both.objects, &both.metadata, names);
        let restore = "restore both drives from copies of one moment, or copy the objects with `imbrex store salvage`";
        match self {
            Apart::OtherMetadata => format!(
                "the metadata of the object store are on volume {}, and {metadata} is volume {}; name the right drive as db=",
                uuid(&link.volume),
                uuid(other)
            ),
            Apart::OtherObjects => format!(
                "{metadata} has the metadata of volume {}, and this is volume {}; name the drives that go together",
                uuid(&back.volume),
                uuid(own)
            ),
            Apart::OldMetadata => format!(
                "{metadata}, which has its metadata, is a copy of an earlier moment (opening {}, and {} here); {restore}",
                back.opening.number, link.opening.number
            ),
            Apart::OldObjects => format!(
                "{objects} is a copy of an earlier moment than {metadata}, which has its metadata (opening {}, and {} there); {restore}",
                link.opening.number, back.opening.number
            ),
            Apart::Forked => format!(
                "{objects} and {metadata}, which has its metadata, were both used without the other one since opening {}; {restore}",
                back.opening.number
            ),
        }
    }
}

/// What the label of the objects' drive says of metadata elsewhere. `named`: somebody has named a drive for them.
pub(crate) fn link_of(objects: &Tenant, named: bool) -> Result<Option<Link>> {
    let (volume, root) = (objects.volume(), objects.root());
    let keeps = volume.table().tenants.iter().any(|tenant| MetadataIn::is_tenant(&tenant.name));
    let link = Label::decode(&root).and_then(|label| label.db);
    match link {
        Some(link) if !named => Err(refuse(
            volume,
            format!(
                "the metadata of the object store are on another drive (volume {}); name it, as --db /path/to/drive or db=/path/to/drive in the URI",
                uuid(&link.volume)
            ),
        )),
        None if !named && !keeps && root.is_empty() => {
            Err(refuse(volume, "formatting it and the drive of its metadata was cut off; format both again"))
        }
        None if named && keeps => {
            Err(refuse(volume, "the metadata of the object store are on this drive; name no other one for them"))
        }
        None if named && root.is_empty() => {
            Err(refuse(volume, "formatting it and the drive of its metadata was cut off; format both again"))
        }
        None if named || !keeps => Err(refuse(
            volume,
            "the label of the object store, which names the drive of the metadata, makes no sense; copy the objects with `imbrex store salvage`",
        )),
        link => Ok(link),
    }
}

/// What the drive with the metadata says of the other one.
fn back_of(volume: &Volume) -> Result<Back> {
    let tenants = volume.table().tenants;
    let (links, keeps) = (
        tenants.iter().any(|tenant| tenant.name == TENANT),
        tenants.iter().any(|tenant| MetadataIn::is_tenant(&tenant.name)),
    );
    if !links || !keeps {
        return Err(refuse(
            volume,
            "the drive that was named for metadata has none of another drive's object store; name the right one as db=",
        ));
    }
    let root = volume.tenant(TENANT)?.root();
    let sentence = match root.is_empty() {
        true => "formatting it and the drive of the objects was cut off; format both again",
        false => "what says whose metadata these are makes no sense; copy the objects with `imbrex store salvage`",
    };
    Back::decode(&root).ok_or_else(|| refuse(volume, sentence))
}

/// Whether this drive has the metadata of the store whose drive has this volume and says this of them.
pub(crate) fn check(objects: &Volume, link: &Link, metadata: &Volume) -> Result<Both> {
    if metadata.uuid() == objects.uuid() {
        return Err(refuse(objects, "it was named for its own metadata; name another drive as db="));
    }
    let both = Both { objects: (objects.uuid(), *link), metadata: (metadata.uuid(), back_of(metadata)?) };
    match agree(&both) {
        Ok(_) => Ok(both),
        Err(apart) => Err(refuse(objects, apart.sentence(&both, (&objects.name(), &metadata.name())))),
    }
}

/// Both drives are of the next opening from here on. What they had is looked at once more.
pub(crate) fn raise(objects: &Tenant, metadata: &Volume) -> Result<()> {
    let link = link_of(objects, true)?.ok_or_else(|| refuse(objects.volume(), "it has its own metadata"))?;
    let both = check(objects.volume(), &link, metadata)?;
    let tenant = metadata.tenant(TENANT)?;
    // Copies of both drives that go their own ways have other times.
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let next = Opening { number: next_number(&both), token: tenant.new_life() ^ nanos };
    let back = Back { opening: link.opening, next: Some(next), ..both.metadata.1 };
    tenant.set_root(&back.encode())?;
    let label = Label::decode(&objects.root())
        .ok_or_else(|| refuse(objects.volume(), "the label of the object store makes no sense"))?;
    objects.set_root(&Label { db: Some(Link { opening: next, ..link }), ..label }.encode())?;
    tenant.set_root(&Back { opening: next, next: None, ..back }.encode())
}

/// Tenants of the two volumes: of the objects, and of the metadata, which may have others beside them.
pub(crate) fn tenants(which: MetadataIn, metadata: &Geometry) -> [Vec<TenantSpec>; 2] {
    let link = TenantSpec { name: TENANT.into(), budget: Budget::default() };
    [vec![TenantSpec { name: NAME.into(), budget: BUDGET }], vec![which.spec(metadata), link]]
}

fn looking() -> VolumeOptions {
    VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() }
}

/// The volume of a drive that is only looked at.
pub(crate) fn look(drive: &Drive) -> Result<Volume> {
    Volume::look(cover(Drive { device: drive.device.clone(), survivor: None })?, looking())
}

/// Whether a formatting of two drives that was cut off has left a volume so, and nothing was ever done with it.
fn is_half(volume: &Volume) -> bool {
    let tenants = volume.table().tenants;
    let root = |name: &str| volume.tenant(name).map_or(Vec::new(), |tenant| tenant.root());
    match &tenants.iter().map(|tenant| &*tenant.name).collect::<Vec<_>>()[..] {
        [NAME] => root(NAME).is_empty(),
        [metadata, TENANT] if MetadataIn::is_tenant(metadata) => {
            let link = root(TENANT);
            let unopened = Back::decode(&link).is_some_and(|back| back.opening.number == 0 && back.next.is_none());
            root(metadata).is_empty() && (link.is_empty() || unopened)
        }
        _ => false,
    }
}

/// Formats two drives for one object store. Where one of them holds something neither is changed, unless `force` is set.
pub(crate) fn format(
    [objects, metadata]: [&Drive; 2],
    which: MetadataIn,
    uuids: Option<[[u8; 16]; 2]>,
    force: bool,
) -> Result<()> {
    which.check()?;
    let halves = [objects, metadata].map(|drive| look(drive).is_ok_and(|volume| is_half(&volume)));
    for (drive, half) in [objects, metadata].into_iter().zip(halves) {
        if !force && !half {
            Volume::check_unused(drive)?;
        }
    }
    let [own, others] = tenants(which, metadata.device.geometry());
    for (n, drive, tenants) in [(1, metadata, others), (0, objects, own)] {
        let options = FormatOptions { uuid: uuids.map(|uuids| uuids[n]), tenants, force: force || halves[n] };
        Volume::format(drive, &options)?;
    }
    link(objects, metadata)
}

/// Two formatted volumes name each other: that of the objects last.
pub(crate) fn link(objects: &Drive, metadata: &Drive) -> Result<()> {
    let open = |drive: &Drive| Volume::open(drive.clone(), looking());
    let (objects, metadata) = (open(objects)?, open(metadata)?);
    if objects.uuid() == metadata.uuid() {
        let sentence = "it was named for its own metadata; name another drive as db=";
        return Err(Error::refused(Code::InvalidArgument, &objects.name(), sentence));
    }
    let (tenant, back) = (objects.tenant(NAME)?, metadata.tenant(TENANT)?);
    let opening = Opening { number: 0, token: back.new_life() };
    back.set_root(&Back { volume: objects.uuid(), opening, next: None }.encode())?;
    let link = Link { volume: metadata.uuid(), opening };
    tenant.set_root(&Label { db: Some(link), ..Label::default() }.encode())
}

/// What the labels tell a salvage, as far as they can be read.
pub(crate) struct Told {
    /// UUID of the objects' volume, by its own label.
    pub objects: Option<[u8; 16]>,
    /// The same, by that of the metadata.
    pub of: Option<[u8; 16]>,
    /// Why the two do not go together, if they do not.
    pub apart: Option<String>,
}

fn link_on(objects: &Volume) -> Option<Link> {
    Label::decode(&objects.tenant(NAME).ok()?.root())?.db
}

/// See [`Told`].
pub(crate) fn told(objects: &Drive, metadata: &Drive) -> Told {
    let volumes = [objects, metadata].map(|drive| look(drive).ok());
    let [own, other] = &volumes;
    let back = other.as_ref().and_then(|volume| back_of(volume).ok());
    let both = own.as_ref().zip(other.as_ref()).zip(back);
    let apart = both.and_then(|((own, other), back)| {
        let both = Both { objects: (own.uuid(), link_on(own)?), metadata: (other.uuid(), back) };
        Some(agree(&both).err()?.sentence(&both, (&own.name(), &other.name())))
    });
    Told { objects: own.as_ref().map(Volume::uuid), of: back.map(|back| back.volume), apart }
}

/// The volume with the metadata of a drive that has them elsewhere, as its label says it.
pub(crate) fn elsewhere(objects: &Drive) -> Option<String> {
    link_on(&look(objects).ok()?).map(|link| uuid(&link.volume))
}

#[cfg(test)]
mod tests;
