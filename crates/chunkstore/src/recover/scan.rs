//! Looking for records in a zone, from one block to another.
//!
//! A record that is torn or damaged is passed over block by block, never by its stated length, so what follows it is found.
//! Nothing that a user wrote is taken for a record: a header names the zone's life and its own block.
//!
//! What lies between whole records is explained as far as can be ([`gap`]): records whose header is known, in either of its two places, and
//! whose bytes are not all there; fronts of records that were never complete, and so not acknowledged; and holes.

mod gap;

use crate::error::Result;
use crate::format::{BLOCK, HEADER, Header, MOVED, NotARecord};
use gap::{Block, Gap};
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Tag, ZoneId};
use imbrex_zones::Volume;

const WINDOW: usize = 4 << 20;

/// Blocks of which nobody can tell any more what stood there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    /// The first of them, and the one behind the last.
    pub(crate) from: u32,
    /// See `from`.
    pub(crate) to: u32,
    /// Appends that stood there came after the one of this number, and before the one of that; as far as that is known.
    pub(crate) after: u64,
    /// See `after`.
    pub(crate) before: u64,
}

/// What a scan found beside the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// The block behind the last record that was complete.
    pub(crate) end: u32,
    /// Blocks that cannot be read.
    pub(crate) unreadable: u32,
    /// Bytes that were read.
    pub(crate) bytes: u64,
    /// Headers of records that were complete, and of which some bytes are not what was written or cannot be read.
    pub(crate) damaged: Vec<Header>,
    /// See [`Hole`].
    pub(crate) holes: Vec<Hole>,
    /// The last append whose record is known.
    last: u64,
}

impl Scanned {
    /// A record of an append is known. Copies that the cleaner made have older numbers than what stands around them.
    fn know(&mut self, header: &Header) {
        if header.flags & MOVED == 0 {
            self.last = header.sequence;
            for hole in self.holes.iter_mut().rev().take_while(|hole| hole.before == u64::MAX) {
                hole.before = header.sequence;
            }
        }
    }

    /// What is between whole records up to block `to` is explained.
    fn explain(&mut self, gap: Gap, to: u32) {
        for piece in gap.explain(to) {
            match piece {
                gap::Piece::Damaged(header) => {
                    self.know(&header);
                    self.end = header.at + header.blocks();
                    self.damaged.push(header);
                }
                gap::Piece::Hole(from, to) => self.holes.push(Hole { from, to, after: self.last, before: u64::MAX }),
            }
        }
    }
}

/// Reads as much as can be read; the rest is zeros. Tells which blocks cannot, by their number in `buf`.
fn read_what_can_be(volume: &Volume, buf: &mut [u8], at: u64, tag: Tag, mut bad: impl FnMut(u32)) -> Result<()> {
    match volume.read(buf, at, tag) {
        Ok(()) => Ok(()),
        Err(Error { fault: Fault::Media { .. } | Fault::Offline, .. }) => {
            for (i, block) in buf.chunks_mut(BLOCK).enumerate() {
                match volume.read(block, at + (i * BLOCK) as u64, tag) {
                    Ok(()) => {}
                    Err(Error { fault: Fault::Media { .. } | Fault::Offline, .. }) => {
                        block.fill(0);
                        bad(i as u32);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Hands every whole record of this life between the blocks `from` and `to`, with its payload, to `each`. In block 0 stands the zone's header.
///
/// # Errors
/// Those of the drive, but for blocks that cannot be read; a record of another version; and those of `each`.
pub(crate) fn scan(
    volume: &Volume,
    zone: u32,
    life: u64,
    (from, to): (u32, u32),
    cause: Cause,
    each: &mut dyn FnMut(&Header, &[u8]) -> Result<()>,
) -> Result<Scanned> {
    let start = volume.geometry().start(ZoneId(zone));
    let from = from.max(1);
    let mut found = Scanned { end: from, ..Scanned::default() };
    let mut window = AlignedBuf::zeroed(WINDOW.min((to.saturating_sub(from)) as usize * BLOCK));
    // What stands in the window, and what of it could not be read.
    let (mut first, mut held) = (from, 0u32);
    let mut unreadable = std::collections::BTreeSet::new();
    let mut at = from;
    let mut gap = Gap::new(from);
    while at < to {
        // A header at least; then all of its record.
        let mut need = 1;
        let mut head = None;
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
                unreadable = unreadable.split_off(&at);
                read_what_can_be(volume, bytes, address, Tag::new(cause), |i| {
                    unreadable.insert(at + kept + i);
                    found.unreadable += 1;
                })?;
                found.bytes += bytes.len() as u64;
                (first, held) = (at, blocks);
            }
            let bytes = &window[(at - first) as usize * BLOCK..held as usize * BLOCK];
            match Header::decode(bytes, life, at) {
                Ok(header) if header.blocks() > to - at => {
                    head = Some(header);
                    break None;
                }
                Ok(header) if header.blocks() > need => need = header.blocks(),
                Ok(header) => {
                    head = Some(header);
                    let payload = &bytes[HEADER..header.length as usize];
                    break header.verify(payload).then_some((header, payload));
                }
                Err(NotARecord::OfVersion(version)) => {
                    let sentence = format!(
                        "zone {zone} was written by another Imbrex (records of version {version}); open the drive with that one"
                    );
                    return Err(Error::unusable(&volume.name(), sentence).into());
                }
                Err(_) => break None,
            }
        };
        match record {
            Some((header, payload)) => {
                found.explain(std::mem::replace(&mut gap, Gap::new(at + header.blocks())), at);
                found.know(&header);
                each(&header, payload)?;
                at += header.blocks();
                found.end = at;
            }
            None => {
                let block = &window[(at - first) as usize * BLOCK..][..BLOCK];
                gap.pass(Block::new(block, life, at, head, unreadable.contains(&at)));
                at += 1;
            }
        }
    }
    found.explain(gap, to);
    Ok(found)
}
