//! Reads through extents, as reading, reading ahead and overwriting need it.

use crate::file::FileState;
use crate::file::core::Core;
use crate::meta::{Extent, Place};
use crate::sync::lock;
use imbrex_device::{AlignedBuf, Code, Error, Result, Tag, ZoneId};

/// Reads bytes from `from` on through raw and conventional extents; holes are zeros.
pub(crate) fn read_extents(
    core: &Core,
    state: &FileState,
    extents: &[Extent],
    from: u64,
    out: &mut [u8],
    tag: Tag,
) -> Result<()> {
    let volume = &core.volume;
    let block = u64::from(volume.geometry().block);
    let to = from + out.len() as u64;
    for extent in extents {
        let (start, end) = (extent.logical.max(from), extent.end().min(to));
        if start >= end {
            continue;
        }
        let base = match extent.place {
            Place::Conventional { addr } => addr,
            Place::Raw { zone, offset, .. } => volume.geometry().start(ZoneId(zone)) + offset,
            Place::Framed { .. } => continue,
        };
        let address = base + (start - extent.logical);
        let piece = &mut out[(start - from) as usize..(end - from) as usize];
        if core.has_inline() && extent.place.zone().is_none() {
            if !lock(&state.inline).read(address, piece) {
                let what =
                    "some of its bytes stood in a part of the journal that is lost; restore the file from a copy";
                return Err(Error::refused(Code::Corruption, &state.name, what));
            }
            continue;
        }
        let aligned = address.is_multiple_of(block)
            && (piece.len() as u64).is_multiple_of(block)
            && (piece.as_ptr() as usize).is_multiple_of(volume.geometry().mem_align.max(1) as usize);
        if aligned {
            volume.read(piece, address, tag)?;
            continue;
        }
        let low = address / block * block;
        let high = (address + piece.len() as u64).next_multiple_of(block);
        let mut buf = AlignedBuf::zeroed((high - low) as usize);
        volume.read(&mut buf, low, tag)?;
        let skip = (address - low) as usize;
        piece.copy_from_slice(&buf[skip..skip + piece.len()]);
    }
    Ok(())
}
