//! What sysfs says of a block device: `/sys/dev/block/<major>:<minor>`, the files of its `queue` above all.
//!
//! Every reader takes the directory as a value, so that tests can lay one out.

use std::path::{Path, PathBuf};

/// A block device's directory in sysfs.
#[derive(Clone, Debug)]
pub(super) struct Sysfs {
    dir: PathBuf,
}

impl Sysfs {
    /// The directory of the device with this number (`st_rdev`).
    pub(super) fn of(rdev: u64) -> Sysfs {
        let number = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let link = Path::new("/sys/dev/block").join(number);
        Sysfs { dir: std::fs::canonicalize(&link).unwrap_or(link) }
    }

    #[cfg(test)]
    pub(super) fn at(dir: &Path) -> Sysfs {
        Sysfs { dir: dir.to_owned() }
    }

    /// The kernel's name of it, as `sdb`.
    pub(super) fn name(&self) -> String {
        self.dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// A file's text without white space round it; `None` where it is missing, unreadable or empty.
    pub(super) fn text(&self, file: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.dir.join(file)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// A file's number.
    pub(super) fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.parse().ok()
    }

    /// A limit: `None` where it is missing or 0, which means none.
    pub(super) fn limit(&self, file: &str) -> Option<std::num::NonZeroU32> {
        std::num::NonZeroU32::new(u32::try_from(self.number(file)?).ok()?)
    }

    /// It is a part of a drive, not one.
    pub(super) fn is_partition(&self) -> bool {
        self.dir.join("partition").exists()
    }

    /// The names of its partitions.
    pub(super) fn partitions(&self) -> Vec<String> {
        self.children(&self.dir, |path| path.join("partition").exists())
    }

    /// Device-mapper and md devices that stand on it.
    pub(super) fn holders(&self) -> Vec<String> {
        self.children(&self.dir.join("holders"), |_| true)
    }

    fn children(&self, dir: &Path, wanted: impl Fn(&Path) -> bool) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| wanted(&entry.path()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The scheduler in use and all that there are, from a line like `none [mq-deadline]`.
    pub(super) fn schedulers(&self) -> Option<(String, Vec<String>)> {
        let line = self.text("queue/scheduler")?;
        let bare = |word: &str| word.trim_matches(['[', ']']).to_owned();
        let now = line.split_whitespace().find(|word| word.starts_with('['))?;
        Some((bare(now), line.split_whitespace().map(bare).collect()))
    }

    /// What the drive itself says about its cache, where it can be asked (SCSI): `write back`, `write through`, …
    pub(super) fn drives_own_cache(&self) -> Option<String> {
        let disks = self.dir.join("device/scsi_disk");
        let disk = self.children(&disks, |_| true).into_iter().next()?;
        self.text(&format!("device/scsi_disk/{disk}/cache_type"))
    }

    /// Everything that tells this medium from another, in a fixed order; the first is its best name.
    pub(super) fn identities(&self) -> Vec<String> {
        ["wwid", "device/wwid", "serial", "device/serial", "device/vpd_pg80"]
            .into_iter()
            .filter_map(|file| self.text(file))
            .collect()
    }

    /// Vendor and model, where there are any.
    pub(super) fn model(&self) -> Option<String> {
        let parts: Vec<String> =
            ["device/vendor", "device/model"].into_iter().filter_map(|file| self.text(file)).collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }
}

/// The identity of this boot; empty where the system has none.
pub(super) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Where the device of this number is mounted, by a text like `/proc/self/mountinfo`.
pub(super) fn mount_point(mountinfo: &str, rdev: u64) -> Option<String> {
    let number = format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2) == Some(&number)).then(|| fields.nth(1).map(unescape))?
    })
}

/// The kernel writes white space in names as `\040`.
fn unescape(name: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(name.to_owned(), |name, (code, what)| name.replace(code, what))
}

/// Major and minor number of a kernel release as `6.1.0-56-amd64`.
pub(super) fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("queue/scheduler", "none [mq-deadline] kyber\n"),
            ("queue/max_open_zones", "0\n"),
            ("queue/max_active_zones", "14\n"),
            ("queue/physical_block_size", "many\n"),
            ("device/wwid", "t10.X  \n"),
            ("device/vendor", "ATA     \n"),
            ("device/model", "HSH721414AL\n"),
            ("device/scsi_disk/1:0:0:0/cache_type", "write back\n"),
            ("sdb1/partition", "1\n"),
            ("holders/dm-3", ""),
        ] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let sysfs = Sysfs::at(dir.path());
        let all = ["none", "mq-deadline", "kyber"].map(String::from).to_vec();
        assert_eq!(sysfs.schedulers(), Some(("mq-deadline".into(), all)));
        assert_eq!(sysfs.limit("queue/max_open_zones"), None);
        assert_eq!(sysfs.limit("queue/max_active_zones").map(|n| n.get()), Some(14));
        assert_eq!(sysfs.number("queue/physical_block_size"), None);
        assert_eq!(sysfs.identities(), ["t10.X"]);
        assert_eq!(sysfs.model().as_deref(), Some("ATA HSH721414AL"));
        assert_eq!(sysfs.drives_own_cache().as_deref(), Some("write back"));
        assert_eq!((sysfs.partitions(), sysfs.holders()), (vec!["sdb1".to_owned()], vec!["dm-3".to_owned()]));
        assert!(!sysfs.is_partition());
    }

    #[test]
    fn finds_mount_points() {
        let info = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                    36 22 8:16 / /mnt/big\\040disk rw,noatime - f2fs /dev/sdb rw\n";
        let dev = |minor| rustix::fs::makedev(8, minor);
        assert_eq!(mount_point(info, dev(16)).as_deref(), Some("/mnt/big disk"));
        assert_eq!(mount_point(info, dev(32)), None);
        assert_eq!(mount_point("junk", dev(1)), None);
    }

    #[test]
    fn understands_releases() {
        assert_eq!(release("6.1.0-56-amd64"), Some((6, 1)));
        assert_eq!(release("6.12+x"), Some((6, 12)));
        assert_eq!(release("five"), None);
    }
}
