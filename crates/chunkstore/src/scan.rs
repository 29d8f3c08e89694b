//! Looking for records in a zone, from one block to another.
//!
//! A record that is torn or damaged is passed over block by block, never by its stated length, so what follows it is found.
//! Nothing that a user wrote is taken for a record: a header names the zone's life and its own block.

use crate::error::Result;
use crate::format::{BLOCK, HEADER, Header, NotARecord};
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Tag, ZoneId};
use imbrex_zones::Volume;

const WINDOW: usize = 4 << 20;

/// What a scan found beside the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// The block behind the last whole record.
    pub(crate) end: u32,
    /// Blocks before that which belong to no whole record.
    pub(crate) passed: u32,
    /// Blocks that cannot be read.
    pub(crate) unreadable: u32,
    /// Bytes that were read.
    pub(crate) bytes: u64,
}

/// Reads as much as can be read; the rest is zeros. Returns how many blocks cannot.
fn read_what_can_be(volume: &Volume, buf: &mut [u8], at: u64, tag: Tag) -> Result<u32> {
    match volume.read(buf, at, tag) {
        Ok(()) => Ok(0),
        Err(Error { fault: Fault::Media { .. } | Fault::Offline, .. }) => {
            let mut bad = 0;
            for (i, block) in buf.chunks_mut(BLOCK).enumerate() {
                match volume.read(block, at + (i * BLOCK) as u64, tag) {
                    Ok(()) => {}
                    Err(Error { fault: Fault::Media { .. } | Fault::Offline, .. }) => {
                        block.fill(0);
                        bad += 1;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(bad)
        }
        Err(error) => Err(error.into()),
    }
}

/// Hands every whole record of this life between the blocks `from` and `to`, with its payload, to `each`.
///
/// # Errors
/// Those of the drive, but for blocks that cannot be read; a record of a newer version; and those of `each`.
pub(crate) fn scan(
    volume: &Volume,
    zone: u32,
    life: u64,
    (from, to): (u32, u32),
    cause: Cause,
    each: &mut dyn FnMut(&Header, &[u8]) -> Result<()>,
) -> Result<Scanned> {
    let start = volume.geometry().start(ZoneId(zone));
    let mut found = Scanned { end: from, ..Scanned::default() };
    let mut window = AlignedBuf::zeroed(WINDOW.min((to.saturating_sub(from)) as usize * BLOCK));
    // What stands in the window.
    let (mut first, mut held) = (from, 0u32);
    let mut at = from;
    let mut passed = 0;
    while at < to {
        // A header at least; then all of its record.
        let mut need = 1;
        let record = loop {
            if at < first || at + need > first + held {
                let blocks = need.max((WINDOW / BLOCK) as u32).min(to - at);
                // The front of a record that the window cuts is kept, and nothing is read twice.
                let kept = if at < first { 0 } else { (first + held).saturating_sub(at) };
                let from = at.saturating_sub(first) as usize * BLOCK;
                let front = from..from + kept as usize * BLOCK;
                if (blocks as usize) * BLOCK > window.len() {
                    let mut larger = AlignedBuf::zeroed(blocks as usize * BLOCK);
                    larger[..front.len()].copy_from_slice(&window[front]);
                    window = larger;
                } else if kept > 0 {
                    window.copy_within(front, 0);
                }
                let bytes = &mut window[kept as usize * BLOCK..blocks as usize * BLOCK];
                let address = start + u64::from(at + kept) * BLOCK as u64;
                found.unreadable += read_what_can_be(volume, bytes, address, Tag::new(cause))?;
                found.bytes += bytes.len() as u64;
                (first, held) = (at, blocks);
            }
            let bytes = &window[(at - first) as usize * BLOCK..held as usize * BLOCK];
            match Header::decode(bytes, life, at) {
                Ok(header) if header.blocks() > to - at => break None,
                Ok(header) if header.blocks() > need => need = header.blocks(),
                Ok(header) => {
                    let payload = &bytes[HEADER..header.length as usize];
                    break header.verify(payload).then_some((header, payload));
                }
                Err(NotARecord::Newer(version)) => {
                    let sentence = format!(
                        "zone {zone} was written by a newer Imbrex (records of version {version}); open the drive with that one"
                    );
                    return Err(Error::unusable(&volume.name(), sentence).into());
                }
                Err(_) => break None,
            }
        };
        match record {
            Some((header, payload)) => {
                each(&header, payload)?;
                at += header.blocks();
                found.end = at;
                found.passed += passed;
                passed = 0;
            }
            None => {
                at += 1;
                passed += 1;
            }
        }
    }
    Ok(found)
}
