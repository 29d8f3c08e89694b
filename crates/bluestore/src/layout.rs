//! Where a store puts data: in runs on zones, or in place. What it was made with stays.

use crate::codec::BLOCK;
use crate::super_block::{MAX_UNIT, is_unit};
use imbrex_device::{Error, Result};
use imbrex_zones::Volume;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// A new store is in place where the drive overwrites, and on zones where it does not. One that is there is as it was made.
    #[default]
    Usual,
    /// In runs, which are written to zones one behind the other. The cleaner frees zones.
    Zones,
    /// In place: blobs stand in allocation units, and what is overwritten is free at once.
    InPlace,
}

/// Bytes of an allocation unit where nobody says: a blob takes no more than its blocks then.
const USUAL_UNIT: u32 = BLOCK as u32;

impl Layout {
    /// By its name in a URI.
    pub fn of_name(name: &str) -> Option<Layout> {
        match name {
            "zones" => Some(Layout::Zones),
            "in-place" => Some(Layout::InPlace),
            _ => None,
        }
    }
}

/// Bytes of a unit of a store that is to be made; 0: it is on zones.
pub(crate) fn new_unit(volume: &Volume, layout: Layout, min_alloc: Option<u32>) -> Result<u32> {
    let refuse = |sentence: &str| Err(Error::unusable(&volume.name(), sentence.to_owned()));
    let unit = min_alloc.unwrap_or(USUAL_UNIT);
    if !is_unit(unit) || u64::from(unit) * 16 > volume.least_capacity() {
        let sentence = format!(
            "an allocation unit of {unit} bytes is none that it can have: it is a power of two from {BLOCK} to {MAX_UNIT}, and a sixteenth of a zone at most"
        );
        return refuse(&sentence);
    }
    match layout {
        Layout::InPlace if !volume.overwrites() => refuse(
            "a store in place needs a drive that can overwrite, as a plain disk cut into bands; leave layout=in-place out",
        ),
        Layout::Usual if !volume.overwrites() => Ok(0),
        Layout::InPlace | Layout::Usual => Ok(unit),
        Layout::Zones => Ok(0),
    }
}

/// Whether a store that is there is as somebody wants it, and can be used on its drive.
pub(crate) fn agree(volume: &Volume, unit: u32, layout: Layout, min_alloc: Option<u32>) -> Result<()> {
    let refuse = |sentence: String| Err(Error::unusable(&volume.name(), sentence));
    match (layout, min_alloc) {
        (Layout::Zones, _) if unit > 0 => {
            refuse("the object store is in place; leave layout=zones out, or make it anew".into())
        }
        (Layout::InPlace, _) if unit == 0 => {
            refuse("the object store writes runs to zones; leave layout=in-place out, or make it anew".into())
        }
        (_, Some(wanted)) if unit > 0 && wanted != unit => refuse(format!(
            "the object store has allocation units of {unit} bytes; leave min-alloc out, or make it anew"
        )),
        _ if unit > 0 && !volume.overwrites() => refuse(
            "the object store is in place, and this drive cannot overwrite; copy its objects, and not its blocks"
                .into(),
        ),
        _ => Ok(()),
    }
}
