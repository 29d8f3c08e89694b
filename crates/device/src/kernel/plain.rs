//! Conventional disks of the kernel: opened as zoned ones are, for the banded backend.

use super::sysfs::{self, Sysfs};
use super::{Access, open};
use crate::{Error, Result};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// A conventional disk, opened for nobody else and past the page cache.
pub(crate) struct PlainDisk {
    pub(crate) file: File,
    /// In bytes.
    pub(crate) size: u64,
    /// Blocks of the disk in bytes, as it tells them.
    pub(crate) logical_block: u64,
    pub(crate) physical_block: u64,
    pub(crate) rotational: bool,
    /// Longest command that the kernel passes on, in bytes.
    pub(crate) max_io: u64,
    /// Everything that tells this disk from another.
    pub(crate) names: String,
    /// Its number among all disks that appeared since boot.
    pub(crate) sequence: String,
}

/// Opens the conventional disk at `path`, or a part of one. Errors are those of a zoned drive, with `Unusable` for a
/// host-managed one.
pub(crate) fn open_plain(path: &Path, name: &Arc<str>, access: Access) -> Result<PlainDisk> {
    let (file, sysfs) = open::open_as(path, name, access, check_plain)?;
    // A partition's queue is its disk's.
    let queue = |key: &str| sysfs.number(&format!("queue/{key}")).or_else(|| sysfs.number(&format!("../queue/{key}")));
    let logical_block = queue("logical_block_size").unwrap_or(512);
    let mut names = sysfs.identities().join("\n");
    if names.is_empty() {
        // A disk without a name is another one after every boot.
        names = format!("{}\n{}", sysfs.name(), sysfs::boot_id());
    }
    Ok(PlainDisk {
        size: sysfs.number("size").unwrap_or(0).saturating_mul(512),
        logical_block,
        physical_block: queue("physical_block_size").unwrap_or(logical_block),
        rotational: queue("rotational") == Some(1),
        max_io: queue("max_sectors_kb").unwrap_or(128).saturating_mul(1024),
        names,
        sequence: sysfs.text("diskseq").or_else(|| sysfs.text("../diskseq")).unwrap_or_default(),
        file,
    })
}

fn check_plain(name: &Arc<str>, sysfs: &Sysfs) -> Result<()> {
    open::check_unpartitioned(name, sysfs)?;
    match sysfs.text("queue/zoned").as_deref() {
        Some("host-managed") => Err(Error::unusable(
            name,
            format!("a zoned drive, which has zones of its own; name it without banded:, as {name}"),
        )),
        _ => Ok(()),
    }
}

/// The identity of this boot; `None` where the system has none.
pub(crate) fn boot() -> Option<String> {
    Some(sysfs::boot_id()).filter(|id| !id.is_empty())
}

/// Whether the disk with this number turns.
pub(crate) fn is_rotational(dev: u64) -> bool {
    let sysfs = Sysfs::of(dev);
    sysfs.number("queue/rotational").or_else(|| sysfs.number("../queue/rotational")) == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unpartitioned_conventional_disks_pass() {
        for (file, text, says) in [
            ("queue/zoned", "none\n", ""),
            ("queue/zoned", "host-managed\n", "without banded:"),
            ("sdz1/partition", "1\n", "the first partition is sdz1"),
            ("partition", "1\n", ""),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(file);
            path.parent().map(std::fs::create_dir_all).unwrap().unwrap();
            std::fs::write(path, text).unwrap();
            let refused = check_plain(&"/dev/sdz".into(), &Sysfs::at(dir.path())).err().map(|error| error.to_string());
            match refused {
                None => assert_eq!(says, "", "{file} {text}"),
                Some(sentence) => assert!(!says.is_empty() && sentence.contains(says), "{sentence}"),
            }
        }
    }
}
