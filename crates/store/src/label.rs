//! What a store says of itself without its metadata: when it was made, and a few pairs of its user. They stand in the root of its tenant, in both copies of the drive's label.
//!
//! ```text
//!   0    4        5     13     14    of version 2                   last 4
//!   imSL version  made  pairs  volume, opening, token   of each: length of the key (1), of the value (2), key, value   CRC-32C
//! ```
//!
//! Version 2 is that of a store whose metadata are on [another drive](crate::pair): its volume (16 bytes), and the last opening of both (twice 8).

use crate::engine::Store;
use crate::pair::{Link, Opening};
use imbrex_bluestore::NAME;
use imbrex_device::{Code, Drive, Error, Result};
use imbrex_drives::overlay::cover;
use imbrex_zones::{Exec, Tenant, Volume, VolumeOptions};
use std::collections::BTreeMap;

const MAGIC: [u8; 4] = *b"imSL";
const VERSION: u8 = 1;
/// Of a store whose metadata are on another drive.
const WITH_LINK: u8 = 2;
const HEAD: usize = 14;
/// Pairs of a label at most.
pub const MAX_LABEL_PAIRS: usize = 64;
/// Bytes of their keys and values at most: a root has a KiB.
pub const MAX_LABEL_BYTES: usize = 800;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// When the store was made, in seconds since 1970; 0: nobody knows.
    pub made: u64,
    /// The drive with its metadata, where that is another one.
    pub db: Option<Link>,
    /// Pairs of the user.
    pub pairs: BTreeMap<String, String>,
}

impl Label {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let version = if self.db.is_some() { WITH_LINK } else { VERSION };
        let mut out = [&MAGIC[..], &[version], &self.made.to_le_bytes(), &[self.pairs.len() as u8]].concat();
        if let Some(Link { volume, opening }) = &self.db {
            out.extend(volume);
            opening.put(&mut out);
        }
        for (key, value) in &self.pairs {
            out.push(key.len() as u8);
            out.extend((value.len() as u16).to_le_bytes());
            out.extend(key.as_bytes());
            out.extend(value.as_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// `None`: it is damaged, or of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Label> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*crc)
            || body.len() < HEAD
            || body[..4] != MAGIC
            || ![VERSION, WITH_LINK].contains(&body[4])
        {
            return None;
        }
        let made = u64::from_le_bytes(*body.get(5..13)?.first_chunk()?);
        let (mut pairs, mut rest, mut db) = (BTreeMap::new(), &body[HEAD..], None);
        if body[4] == WITH_LINK {
            let (volume, behind) = rest.split_first_chunk()?;
            let (opening, behind) = Opening::take(behind)?;
            (db, rest) = (Some(Link { volume: *volume, opening }), behind);
        }
        for _ in 0..body[13] {
            let ([key, low, high], behind) = rest.split_first_chunk::<3>()?;
            let (key, behind) = behind.split_at_checked((*key).into())?;
            let (value, behind) = behind.split_at_checked(u16::from_le_bytes([*low, *high]).into())?;
            pairs.insert(std::str::from_utf8(key).ok()?.to_owned(), std::str::from_utf8(value).ok()?.to_owned());
            rest = behind;
        }
        let label = Label { volume: [0; 16], made, db, pairs };
        (rest.is_empty() && label.check().is_ok()).then_some(label)
    }

    fn check(&self) -> Result<()> {
        let refuse = |sentence: String| Err(Error::refused(Code::InvalidArgument, "", sentence));
        let bytes: usize = self.pairs.iter().map(|(key, value)| 3 + key.len() + value.len()).sum();
        if let Some(key) =
            self.pairs.keys().find(|key| key.is_empty() || key.len() > 255 || key.contains(char::is_control))
        {
            return refuse(format!(
                "{key:?} is no key of a label; it needs 1 to 255 bytes, none of them a control character"
            ));
        }
        if self.pairs.len() > MAX_LABEL_PAIRS || bytes > MAX_LABEL_BYTES {
            return refuse(format!(
                "a label has at most {MAX_LABEL_PAIRS} pairs and {MAX_LABEL_BYTES} bytes, three for each pair with them; these are {} and {bytes}",
                self.pairs.len()
            ));
        }
        Ok(())
    }

    fn of(tenant: &Tenant) -> Result<Label> {
        let (root, volume) = (tenant.root(), tenant.volume());
        let label = if root.is_empty() { Some(Label::default()) } else { Label::decode(&root) };
        let label = label.ok_or_else(|| {
            Error::corrupt(&volume.name(), "the label of the object store, which makes no sense")
                .checked_by("imbrex store check")
        })?;
        Ok(Label { volume: volume.uuid(), ..label })
    }

    /// Of a drive that nobody has open. It reads the drive's label and nothing else, and changes nothing.
    ///
    /// # Errors
    /// Those of the drive; `Corrupt` where the label makes no sense.
    pub fn read(drive: &Drive) -> Result<Label> {
        let options = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let drive = Drive { device: drive.device.clone(), survivor: None };
        Label::of(&Volume::look(cover(drive)?, options)?.tenant(NAME)?)
    }

    /// The store was made now, unless it was before.
    pub(crate) fn begin(tenant: &Tenant, now: u64) -> Result<()> {
        match Label::has_begun(tenant) {
            false => {
                let db = Label::decode(&tenant.root()).and_then(|label| label.db);
                tenant.set_root(&Label { made: now.max(1), db, ..Label::default() }.encode())
            }
            true => Ok(()),
        }
    }

    /// Whether the store was ever open. Formatting two drives for one store writes a label before that.
    pub(crate) fn has_begun(tenant: &Tenant) -> bool {
        let root = tenant.root();
        !root.is_empty() && Label::decode(&root).is_none_or(|label| label.db.is_none() || label.made > 0)
    }
}

impl Store {
    /// What it says of itself.
    ///
    /// # Errors
    /// `Corrupt` where that makes no sense.
    pub fn label(&self) -> Result<Label> {
        Label::of(&self.volume().tenant(NAME)?)
    }

    /// Gives keys of the label values, or takes keys away. It is durable when this returns. A label that makes no sense is made anew.
    ///
    /// # Errors
    /// `InvalidArgument` where it would be too long; those of the drive.
    pub fn set_label(&self, changes: &[(String, Option<String>)]) -> Result<Label> {
        let tenant = self.volume().tenant(NAME)?;
        let mut label = Label::of(&tenant).unwrap_or_default();
        for (key, value) in changes {
            match value {
                Some(value) => drop(label.pairs.insert(key.clone(), value.clone())),
                None => drop(label.pairs.remove(key)),
            }
        }
        label.check()?;
        tenant.set_root(&label.encode())?;
        Label::of(&tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_comes_back_and_a_flipped_bit_does_not() {
        let pairs = [("osd", "3"), ("ä", ""), ("who", "a long value that says who")];
        let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let link = Link { volume: [9; 16], opening: Opening { number: 7, token: 8 } };
        let label = Label { volume: [0; 16], made: 1_700_000_000, db: None, pairs };
        for label in [Label { db: Some(link), ..label.clone() }, label] {
            let bytes = label.encode();
            assert_eq!(Label::decode(&bytes), Some(label));
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Label::decode(&bad), None, "bit {bit}");
            }
            assert!((0..bytes.len()).all(|len| Label::decode(&bytes[..len]).is_none()));
        }
        // The longest one has room in a root.
        let pairs: BTreeMap<_, _> =
            (0..MAX_LABEL_PAIRS).map(|n| (format!("{n:03}"), "1234567".chars().take(6).collect())).collect();
        let longest = Label { pairs, db: Some(link), ..Label::default() };
        assert!(longest.check().is_ok() && longest.encode().len() <= 1024);
        let one_more = Label {
            pairs: longest.pairs.into_iter().chain([("x".into(), String::new())]).collect(),
            ..Label::default()
        };
        assert!(one_more.check().is_err());
        let long = Label { pairs: [("k".to_owned(), "v".repeat(MAX_LABEL_BYTES - 3))].into(), ..Label::default() };
        assert!(long.check().is_err());
    }
}
