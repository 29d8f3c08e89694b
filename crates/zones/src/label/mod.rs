//! The label: what a drive says about itself.
//!
//! A label names the volume, the geometry it was formatted with, its tenants (name, root blob, budgets) and the owner of
//! every zone. Two full copies stand on the drive; this module turns a label into bytes and back, and decides which of two
//! copies counts. It does no I/O. `docs/on-disk-format.md` draws the bytes.
//!
//! Invariants:
//! - The encoded size depends on the number of zones alone, so that a copy is always rewritten in place.
//! - Decoding trusts nothing before the checksum, never panics, and allocates no more than the input is long.
//! - Magic, version, length and checksum stay where they are in every later version, so that an old program can tell a
//!   newer label from a damaged one.
//!
//! Source: DESIGN §5 (Label) and §6.

pub(crate) mod budget;

use crate::label::budget::Budget;
use std::fmt;
use std::mem::{offset_of, size_of};
use thiserror::Error;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version that this program writes.
pub const VERSION: u32 = 4;
/// It reads this one, too, which does not have [`Label::power`].
const WITHOUT_POWER: u32 = 3;
/// Most tenants that a label has room for.
pub const MAX_TENANTS: usize = 14;
/// Longest name of a tenant, in bytes.
pub const MAX_NAME: usize = 32;
/// Longest root blob of a tenant, in bytes.
pub const MAX_ROOT: usize = 1024;
/// Owner byte of a zone that nobody owns.
pub const NOBODY: u8 = 0;
/// Owner byte of a zone that holds a label.
pub const LABEL: u8 = 0xff;
/// The tenant that owns what nobody can tell whose it is, on a drive whose label was made anew. No engine has this name.
pub const KEPT: &str = "kept";

const MAGIC: [u8; 8] = *b"IMBXLABL";
/// No label is longer, whatever its version: a claim beyond this is damage, not a newer format.
const MAX_LENGTH: usize = 1 << 30;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    length: U32,
    crc: U32,
    tenants: U32,
    uuid: [u8; 16],
    generation: U64,
    mount: U64,
    zone_size: U64,
    block: U32,
    zones: U32,
    conventional: U32,
    power: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTenant {
    name: [u8; MAX_NAME],
    name_len: u8,
    slots: u8,
    root_len: U16,
    least: U32,
    most: U32,
    metadata: U32,
    cleaning: U32,
    root_generation: U64,
    root: [u8; MAX_ROOT],
}

const HEADER: usize = size_of::<RawHeader>();
const TENANT: usize = size_of::<RawTenant>();
const OWNERS_AT: usize = HEADER + MAX_TENANTS * TENANT;
const CRC_AT: usize = offset_of!(RawHeader, crc);
const _: () = assert!(HEADER == 80 && TENANT == 1084 && OWNERS_AT == 15_256 && CRC_AT == 16);

/// Why bytes are not a label that this program can use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LabelError {
    /// There is no label.
    #[error("has no Imbrex label; check that this is the right drive, and format a new one with `imbrex fs format`")]
    NotALabel,
    /// A band table: the conventional zones serve as sequential ones, and the label is where they are.
    #[error("has a band table on its conventional zones; name it with ?conventional=as-sequential behind its name")]
    Bands,
    /// A label of another version.
    #[error(
        "was formatted by another version of Imbrex (label version {version}, this program reads {VERSION}); use that one"
    )]
    OfVersion {
        /// The version that the label states.
        version: u32,
    },
    /// A label that is damaged; the text says what is wrong with it.
    #[error(
        "has a damaged label ({0}); restore the drive from a copy, or take what `imbrex fs salvage` (files) and `imbrex chunk salvage` \
         (chunks) find without it; `imbrex fs format --force` makes it anew and empty"
    )]
    Corrupt(&'static str),
}

/// The geometry that a drive was formatted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelGeometry {
    /// Logical block in bytes.
    pub block: u32,
    /// Number of zones.
    pub zones: u32,
    /// Distance of zone starts in bytes.
    pub zone_size: u64,
    /// How many of the zones are conventional.
    pub conventional: u32,
}

impl fmt::Display for LabelGeometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LabelGeometry { block, zones, zone_size, conventional } = self;
        write!(f, "{zones} zones of {zone_size} bytes, {conventional} of them conventional, blocks of {block} bytes")
    }
}

/// What the label keeps of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantRecord {
    /// 1 to [`MAX_NAME`] bytes of `[a-z0-9-]`; no two tenants share one.
    pub name: String,
    /// The tenant's own bytes, at most [`MAX_ROOT`]: where its metadata begins.
    pub root: Vec<u8>,
    /// What it may take.
    pub budget: Budget,
    /// Goes up with every new root.
    pub root_generation: u64,
}

impl TenantRecord {
    /// Whether it may stand in a label; if not, a phrase that says why.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.name.is_empty() || self.name.len() > MAX_NAME {
            return Err("a tenant's name is empty or longer than 32 bytes");
        }
        if !self.name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
            return Err("a tenant's name has characters other than a-z, 0-9 and -");
        }
        if self.root.len() > MAX_ROOT {
            return Err("a tenant's root is longer than 1024 bytes");
        }
        self.budget.check()
    }
}

/// A volume's label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Geometry of the drive when it was formatted.
    pub geometry: LabelGeometry,
    /// Goes up with every label that is written.
    pub generation: u64,
    /// Mount generation: goes up with every mount.
    pub mount: u64,
    /// [Of the drive's power epoch](Label::power_of) when the label was written; 0: not known.
    pub power: u32,
    /// The tenants; owner byte `n` means `tenants[n - 1]`.
    pub tenants: Vec<TenantRecord>,
    /// One byte a zone: [`NOBODY`], [`LABEL`], or the number of a tenant from 1.
    pub owners: Vec<u8>,
}

/// Which of a drive's two labels counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The label to go on with.
    pub label: Label,
    /// Which copy it came from: 0 or 1.
    pub copy: usize,
    /// Whether the other copy is older or unusable and has to be written again.
    pub repair_other: bool,
}

impl Label {
    /// Bytes that a label takes on a drive of `zones` zones, whatever it says.
    pub const fn encoded_len(zones: u32) -> usize {
        OWNERS_AT + zones as usize
    }

    /// What a label keeps of a drive's power epoch: enough to tell another one.
    pub fn power_of(epoch: [u8; 16]) -> u32 {
        u32::from_le_bytes([epoch[0], epoch[1], epoch[2], epoch[3]])
    }

    /// Whether the drive has had power ever since the label was written. `false` where that is not known.
    pub fn had_power(&self, epoch: [u8; 16]) -> bool {
        self.power != 0 && self.power == Self::power_of(epoch)
    }

    /// Whether the label may be written; if not, a phrase that says why.
    pub fn check(&self) -> Result<(), &'static str> {
        let g = &self.geometry;
        if !matches!(g.block, 512 | 4096) {
            return Err("the block size is neither 512 nor 4096");
        }
        if g.zones == 0 || g.conventional > g.zones {
            return Err("the numbers of zones make no sense");
        }
        if g.zone_size == 0
            || !g.zone_size.is_multiple_of(u64::from(g.block))
            || g.zone_size.checked_mul(u64::from(g.zones)).is_none()
        {
            return Err("the zone size makes no sense");
        }
        if Self::encoded_len(g.zones) > MAX_LENGTH {
            return Err("the drive has too many zones");
        }
        if self.tenants.len() > MAX_TENANTS {
            return Err("there are more than 14 tenants");
        }
        for (i, tenant) in self.tenants.iter().enumerate() {
            tenant.check()?;
            if self.tenants[..i].iter().any(|other| other.name == tenant.name) {
                return Err("two tenants share a name");
            }
        }
        if self.owners.len() != g.zones as usize {
            return Err("there is not one owner a zone");
        }
        if self.owners.iter().any(|&o| o != NOBODY && o != LABEL && usize::from(o) > self.tenants.len()) {
            return Err("a zone belongs to a tenant that does not exist");
        }
        Ok(())
    }

    /// The label as [`Label::encoded_len`] bytes, not padded to blocks.
    ///
    /// # Panics
    /// When [`Label::check`] fails: whoever takes names and sizes from a user checks first.
    pub fn encode(&self) -> Vec<u8> {
        if let Err(why) = self.check() {
            panic!("a label must be checked before it is written: {why}");
        }
        let length = Self::encoded_len(self.geometry.zones);
        let header = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            length: (length as u32).into(),
            crc: 0.into(),
            tenants: (self.tenants.len() as u32).into(),
            uuid: self.uuid,
            generation: self.generation.into(),
            mount: self.mount.into(),
            zone_size: self.geometry.zone_size.into(),
            block: self.geometry.block.into(),
            zones: self.geometry.zones.into(),
            conventional: self.geometry.conventional.into(),
            power: self.power.into(),
        };
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(header.as_bytes());
        for tenant in &self.tenants {
            out.extend_from_slice(RawTenant::from(tenant).as_bytes());
        }
        out.resize(OWNERS_AT, 0);
        out.extend_from_slice(&self.owners);
        assert_eq!(out.len(), length, "a label has the one size of its drive");
        let crc = checksum(&out);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// How many bytes the label that begins here claims to take; `None` where none begins. A reader that has fetched less
    /// fetches the rest before it decodes: the drive may have been formatted with more zones, or by a newer version, than it
    /// looks. The claim is not checked yet: never fetch more than a zone for it.
    pub fn claimed_len(beginning: &[u8]) -> Option<usize> {
        let (header, _) = RawHeader::ref_from_prefix(beginning).ok()?;
        let length = header.length.get() as usize;
        (header.magic == MAGIC && (HEADER..=MAX_LENGTH).contains(&length)).then_some(length)
    }

    /// Reads a label from the beginning of `bytes`; what follows it is ignored.
    pub fn decode(bytes: &[u8]) -> Result<Label, LabelError> {
        let Ok((header, _)) = RawHeader::ref_from_prefix(bytes) else { return Err(LabelError::NotALabel) };
        if imbrex_device::banded::begins_banded(bytes) {
            return Err(LabelError::Bands);
        }
        if header.magic != MAGIC {
            return Err(LabelError::NotALabel);
        }
        let (version, length) = (header.version.get(), header.length.get() as usize);
        if !(HEADER..=MAX_LENGTH).contains(&length) {
            return Err(LabelError::Corrupt("its length makes no sense"));
        }
        let Some(whole) = bytes.get(..length) else {
            // A later format may be longer than what a reader of this one fetches.
            return Err(if version != VERSION {
                LabelError::OfVersion { version }
            } else {
                LabelError::Corrupt("it is cut short")
            });
        };
        if checksum(whole) != header.crc.get() {
            return Err(LabelError::Corrupt("its checksum is wrong"));
        }
        if ![VERSION, WITHOUT_POWER, 0].contains(&version) {
            return Err(LabelError::OfVersion { version });
        }
        let label = Self::decode_checked(header, whole)?;
        label.check().map_err(LabelError::Corrupt)?;
        Ok(label)
    }

    /// Decodes what is known to be the bytes that somebody wrote as a label.
    fn decode_checked(header: &RawHeader, whole: &[u8]) -> Result<Label, LabelError> {
        let (version, power) = (header.version.get(), header.power.get());
        if version != VERSION && (version != WITHOUT_POWER || power != 0) {
            return Err(LabelError::Corrupt("its version makes no sense"));
        }
        let count = header.tenants.get() as usize;
        if whole.len() != Self::encoded_len(header.zones.get()) || count > MAX_TENANTS {
            return Err(LabelError::Corrupt("its size does not fit its numbers of zones and tenants"));
        }
        let (records, unused) = whole[HEADER..OWNERS_AT].split_at(count * TENANT);
        if unused.iter().any(|b| *b != 0) {
            return Err(LabelError::Corrupt("there is something in unused room"));
        }
        let records = <[RawTenant]>::ref_from_bytes(records).map_err(|_| LabelError::Corrupt("its tenants are cut"))?;
        Ok(Label {
            uuid: header.uuid,
            geometry: LabelGeometry {
                block: header.block.get(),
                zones: header.zones.get(),
                zone_size: header.zone_size.get(),
                conventional: header.conventional.get(),
            },
            generation: header.generation.get(),
            mount: header.mount.get(),
            power,
            tenants: records.iter().map(TenantRecord::try_from).collect::<Result<_, _>>()?,
            owners: whole[OWNERS_AT..].to_vec(),
        })
    }

    /// Decides which of the two copies of a drive counts: the valid one of the higher generation (the first, if they are
    /// equal).
    ///
    /// A copy of another version makes the drive unusable even when the other copy is valid: another program has begun to
    /// write it, and this one must not undo that. So does a band table: what stands behind it is a band's. Without a valid
    /// copy the error that knows most is given: `OfVersion`, else `Corrupt`, else `NotALabel`.
    pub fn choose(a: Result<Label, LabelError>, b: Result<Label, LabelError>) -> Result<Chosen, LabelError> {
        use LabelError::{Bands, Corrupt, OfVersion};
        match (a, b) {
            (Err(OfVersion { version: x }), Err(OfVersion { version: y })) => Err(OfVersion { version: x.max(y) }),
            (Err(other @ OfVersion { .. }), _) | (_, Err(other @ OfVersion { .. })) => Err(other),
            (Err(Bands), _) => Err(Bands),
            (Ok(a), Ok(b)) if b.generation > a.generation => Ok(Chosen { label: b, copy: 1, repair_other: true }),
            (Ok(a), Ok(b)) => Ok(Chosen { repair_other: a != b, label: a, copy: 0 }),
            (Ok(a), Err(_)) => Ok(Chosen { label: a, copy: 0, repair_other: true }),
            (Err(_), Ok(b)) => Ok(Chosen { label: b, copy: 1, repair_other: true }),
            (Err(corrupt @ Corrupt(_)), Err(_)) => Err(corrupt),
            (Err(_), Err(other)) => Err(other),
        }
    }
}

impl From<&TenantRecord> for RawTenant {
    fn from(t: &TenantRecord) -> Self {
        let mut raw = RawTenant {
            name: [0; MAX_NAME],
            name_len: t.name.len() as u8,
            slots: t.budget.slots,
            root_len: (t.root.len() as u16).into(),
            least: t.budget.least.into(),
            most: t.budget.most.into(),
            metadata: t.budget.metadata.into(),
            cleaning: t.budget.cleaning.into(),
            root_generation: t.root_generation.into(),
            root: [0; MAX_ROOT],
        };
        raw.name[..t.name.len()].copy_from_slice(t.name.as_bytes());
        raw.root[..t.root.len()].copy_from_slice(&t.root);
        raw
    }
}

impl TryFrom<&RawTenant> for TenantRecord {
    type Error = LabelError;
    fn try_from(raw: &RawTenant) -> Result<Self, LabelError> {
        const BAD: LabelError = LabelError::Corrupt("a tenant's record makes no sense");
        let (name_len, root_len) = (usize::from(raw.name_len), usize::from(raw.root_len.get()));
        if name_len > MAX_NAME || root_len > MAX_ROOT {
            return Err(BAD);
        }
        let (name, name_rest) = raw.name.split_at(name_len);
        let (root, root_rest) = raw.root.split_at(root_len);
        if name_rest.iter().chain(root_rest).any(|b| *b != 0) {
            return Err(BAD);
        }
        Ok(TenantRecord {
            name: std::str::from_utf8(name).map_err(|_| BAD)?.to_owned(),
            root: root.to_vec(),
            budget: Budget {
                least: raw.least.get(),
                most: raw.most.get(),
                metadata: raw.metadata.get(),
                cleaning: raw.cleaning.get(),
                slots: raw.slots,
            },
            root_generation: raw.root_generation.get(),
        })
    }
}

/// CRC-32C over a whole label, its checksum field taken as zeros.
fn checksum(whole: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&whole[..CRC_AT]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &whole[CRC_AT + 4..])
}

#[cfg(test)]
mod tests;
