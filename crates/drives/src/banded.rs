//! What `banded:…` means: a file or a conventional disk cut into bands.

use crate::uri::parse_size;
use imbrex_device::banded::{Banded, FileBase, Layout};
use imbrex_device::kernel::Access;
use imbrex_device::words::the_nearest;
use imbrex_device::{Error, Result, ZonedDevice};
use std::path::PathBuf;

/// Options of a banded disk, behind the question mark of `banded:PATH?…`.
pub const BANDED_OPTIONS: &[&str] = &["band", "block", "conventional", "create"];

/// What banded locators begin with.
pub const BANDED: &str = "banded:";

/// Size of a band where none is asked for, in bytes.
pub const USUAL_BAND: u64 = 80 << 20;

/// A locator of a banded disk, understood. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandedDisk {
    /// The file or disk.
    pub path: PathBuf,
    /// Size of a band; [`USUAL_BAND`] for a new one.
    pub band: Option<u64>,
    /// Logical block; what suits the disk for a new one.
    pub block: Option<u32>,
    /// How many bands stay conventional; one in a hundred of a new one, four at least.
    pub conventional: Option<u32>,
    /// Makes a file of this size where there is none.
    pub create: Option<u64>,
}

impl BandedDisk {
    /// Understands a locator that begins with [`BANDED`].
    pub(crate) fn parse(text: &str) -> Result<BandedDisk> {
        let refuse = |sentence: String| Error::misuse(&text.into(), sentence);
        let place = text.strip_prefix(BANDED).unwrap_or(text);
        let (path, query) = place.split_once('?').unwrap_or((place, ""));
        if path.is_empty() {
            return Err(refuse("it names no disk; write banded:/data/disk.img or banded:/dev/sdb".into()));
        }
        let mut disk = BandedDisk { path: path.into(), band: None, block: None, conventional: None, create: None };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let bad = |sentence: String| refuse(format!("{name}={value}: {sentence}"));
            let small = || value.parse::<u32>().map_err(|_| bad(format!("{value:?} is not a number")));
            match name {
                "band" => disk.band = Some(parse_size(value).map_err(bad)?),
                "create" => disk.create = Some(parse_size(value).map_err(bad)?),
                "block" => disk.block = Some(small()?),
                "conventional" => disk.conventional = Some(small()?),
                _ => {
                    let nearest = the_nearest(name, BANDED_OPTIONS.iter().copied());
                    return Err(refuse(format!("a banded disk has no option {name:?}; {nearest}")));
                }
            }
        }
        Ok(disk)
    }

    fn name(&self) -> std::sync::Arc<str> {
        self.path.display().to_string().into()
    }

    /// How a disk of `size` bytes is cut for this locator; `good_block` where no block is asked for.
    pub fn plan(&self, size: u64, good_block: u32) -> Result<Layout> {
        let block = self.block.unwrap_or(good_block);
        Layout::plan(size, block, self.band.unwrap_or(USUAL_BAND), self.conventional)
            .map_err(|sentence| Error::misuse(&self.name(), sentence))
    }

    /// Opens it; makes it first where it shall be made and is not there.
    pub fn open(&self, access: Access) -> Result<Banded> {
        if access == Access::Write
            && let (Some(size), false) = (self.create, self.path.exists())
        {
            let plan = self.plan(size, 4096)?;
            let base = FileBase::create(&self.path, size)?;
            Banded::format(&base, &plan).inspect_err(|_| drop(std::fs::remove_file(&self.path)))?;
        }
        let drive = match access {
            Access::Observe => Banded::observe(&self.path)?,
            _ => Banded::open(Box::new(FileBase::open(&self.path, access)?), access)?,
        };
        self.check(&drive)?;
        Ok(drive)
    }

    /// The disk is cut as the locator says, where it says something.
    fn check(&self, drive: &Banded) -> Result<()> {
        let layout = drive.layout();
        let is = [
            ("band", self.band, layout.band),
            ("block", self.block.map(u64::from), layout.block.into()),
            ("conventional", self.conventional.map(u64::from), layout.conventional.into()),
        ];
        match is.iter().find(|(_, wanted, is)| wanted.is_some_and(|wanted| wanted != *is)) {
            None => Ok(()),
            Some((name, _, is)) => Err(Error::unusable(
                &drive.identity().name,
                format!("it was made with {name}={is}; leave that option out, or make it anew"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Locator, OpenOptions, open, parse_uri};
    use imbrex_device::report_all;

    #[test]
    fn locators_make_open_and_compare() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        let place = format!("banded:{}", path.display());
        let says = |locator: &str, text: &str| {
            let error = open(locator, &OpenOptions::default()).err().unwrap().to_string();
            assert!(error.contains(text), "{error} lacks {text:?}");
        };
        says(&place, "drive create --banded");
        says(&format!("{place}?create=lots"), "256M");
        says(&format!("{place}?create=1M"), "larger disk or smaller bands");
        assert!(!path.exists(), "a plan that fails makes nothing");
        let made = format!("{place}?band=1M&conventional=3&create=64M");
        let drive = open(&made, &OpenOptions::default()).unwrap();
        assert!(drive.survivor.is_some());
        let geometry = drive.device.geometry();
        assert_eq!((geometry.zone_size, geometry.block), (1 << 20, 4096));
        assert_eq!(report_all(drive.device.as_ref()).unwrap().iter().filter(|zone| zone.wp.is_none()).count(), 3);
        says(&made, "in use by process");
        let identity = drive.device.identity().clone();
        drop(drive);
        for locator in [place.clone(), made.clone(), format!("{place}?band=1M")] {
            let drive = open(&locator, &OpenOptions::default()).unwrap();
            assert_eq!(drive.device.identity().medium, identity.medium);
        }
        says(&format!("{place}?band=2M"), "band=1048576");
        says(&format!("{place}?conventional=4"), "conventional=3");
        says(path.to_str().unwrap(), &place);
        says("banded:/dev/null", "neither a file nor a disk");
        says("banded:?band=80M", "names no disk");
        says("banded:x?bands=80M", "the nearest are band and ");
        std::fs::write(&path, b"something else").unwrap();
        says(&made, "no band table");
    }

    #[test]
    fn uris_carry_the_options_of_the_disk() {
        let uri = parse_uri("imbrex://banded:/d/x.img?band=80M&cache=2G&create=1G", &["cache"]).unwrap();
        assert_eq!(uri.locator, "banded:/d/x.img?band=80M&create=1G");
        let Locator::Banded(disk) = Locator::parse(&uri.locator).unwrap() else { panic!("{uri:?}") };
        assert_eq!((disk.band, disk.create, disk.path.to_str()), (Some(80 << 20), Some(1 << 30), Some("/d/x.img")));
        assert!(parse_uri("imbrex://x.img?band=80M", &[]).is_err());
    }
}
