//! A span of an object from what is left of its blobs: of each block the newest bytes that are whole.

use super::index::{DEFERRED, Index, Stored, span_keys};
use super::walk::read;
use crate::blob::{BLOCK, Blob, BlobId, kind};
use crate::compress::{Compression, decompress};
use crate::keyvalue::Family;
use crate::onode::{Extent, SPAN};
use imbrex_device::{AlignedBuf, Result, ZonedDevice};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// So many bytes for one block are tried at most, the newest.
const TRIED: usize = 16;
const SPAN_BLOCKS: usize = SPAN as usize;

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Nobody has written it, as far as anything tells.
    Hole,
    Whole,
    /// Newer bytes of it are lost; these are older ones.
    Older,
    /// Its bytes are lost.
    Lost,
}

/// A span of an object.
pub(super) struct SpanBytes {
    pub bytes: AlignedBuf,
    pub blocks: [Block; SPAN_BLOCKS],
}

/// What was read of a piece: blocks that its object may name.
struct Loaded {
    bytes: AlignedBuf,
    /// The first of them, in the blob.
    first: u32,
    /// Which of them are as they were written.
    good: Vec<bool>,
}

impl Loaded {
    fn block(&self, n: u32) -> Option<&[u8]> {
        let at = n.checked_sub(self.first)? as usize;
        let good = self.good.get(at).is_some_and(|good| *good);
        good.then(|| self.bytes.get(at * BLOCK as usize..(at + 1) * BLOCK as usize)).flatten()
    }
}

/// A block of a span: which block of a blob it may be.
struct Candidate {
    stored: Rc<Stored>,
    /// Of the blob's blocks that objects name.
    n: u32,
}

/// Reads spans.
pub(super) struct Reader<'a> {
    pub device: &'a dyn ZonedDevice,
    pub index: &'a Index,
}

/// Pieces that were read for a span.
type Memo = HashMap<(u32, u32, BlobId, u32), Rc<Loaded>>;

impl Reader<'_> {
    /// What headers and metadata tell of a span of an object.
    fn stored(&self, onode: u64, span: u64, mut one: impl FnMut(Stored)) -> Result<()> {
        let (from, to) = span_keys(onode, span);
        self.index.each(Family::Zones, from, Some(to), |_, value| {
            Stored::decode(&value).into_iter().for_each(&mut one);
            Ok(true)
        })
    }

    /// A span as its extents say. `newer`: blobs from this number on are newer than the extents.
    pub fn of_extents(&self, onode: u64, span: u64, extents: &[Extent], newer: Option<u64>) -> Result<SpanBytes> {
        let mut all: Vec<VecDeque<Candidate>> = (0..SPAN).map(|_| VecDeque::new()).collect();
        let mut named = [false; SPAN_BLOCKS];
        for extent in extents {
            let add = |stored: Stored, all: &mut Vec<VecDeque<Candidate>>| {
                let stored = Rc::new(stored);
                for k in 0..extent.blocks {
                    let n = extent.first + k;
                    if covers(&stored, n) {
                        push(&mut all[(extent.at + k) as usize], Candidate { stored: stored.clone(), n });
                    }
                }
            };
            named[extent.at as usize..extent.end() as usize].fill(true);
            let home = self.home(extent.blob, onode, span)?;
            if let Some(home) = home {
                self.stored(extent.blob.onode, home, |stored| {
                    if stored.piece.blob == extent.blob {
                        add(stored, &mut all);
                    }
                })?;
            }
        }
        if let Some(newer) = newer {
            self.stored(onode, span, |stored| {
                if stored.piece.blob.number >= newer {
                    add_own(stored, &mut all, &mut named);
                }
            })?;
        }
        self.read(&all, &named)
    }

    /// The span in which a blob is: its own record says it. Else it is that of its extent, or one that its object has, if another object names it.
    fn home(&self, blob: BlobId, onode: u64, span: u64) -> Result<Option<u64>> {
        if let Some(record) = self.index.kv.get(Family::Blobs, &blob.key())?.and_then(|record| Blob::decode(&record)) {
            return Ok(Some(record.offset / SPAN));
        }
        if blob.onode == onode {
            return Ok(Some(span));
        }
        self.index.home_of(blob)
    }

    /// A span of an object of which no record tells: the newest blob counts.
    pub fn of_runs(&self, onode: u64, span: u64) -> Result<SpanBytes> {
        let mut all: Vec<VecDeque<Candidate>> = (0..SPAN).map(|_| VecDeque::new()).collect();
        let mut named = [false; SPAN_BLOCKS];
        self.stored(onode, span, |stored| add_own(stored, &mut all, &mut named))?;
        self.read(&all, &named)
    }

    fn read(&self, all: &[VecDeque<Candidate>], named: &[bool; SPAN_BLOCKS]) -> Result<SpanBytes> {
        let mut memo = Memo::new();
        let mut blocks = [Block::Hole; SPAN_BLOCKS];
        let mut bytes = AlignedBuf::zeroed(SPAN_BLOCKS * BLOCK as usize);
        for (at, candidates) in all.iter().enumerate().filter(|(at, _)| named[*at]) {
            blocks[at] = Block::Lost;
            let newest = candidates.back();
            for candidate in candidates.iter().rev() {
                let loaded = self.loaded(&candidate.stored, &mut memo)?;
                let Some(found) = loaded.block(candidate.n) else { continue };
                bytes[at * BLOCK as usize..(at + 1) * BLOCK as usize].copy_from_slice(found);
                let same = newest.is_some_and(|newest| is_same(newest, candidate));
                blocks[at] = if same { Block::Whole } else { Block::Older };
                break;
            }
        }
        Ok(SpanBytes { bytes, blocks })
    }

    fn loaded(&self, stored: &Stored, memo: &mut Memo) -> Result<Rc<Loaded>> {
        let key = (stored.zone, stored.block, stored.piece.blob, stored.piece.first);
        if let Some(loaded) = memo.get(&key) {
            return Ok(loaded.clone());
        }
        let loaded = Rc::new(self.load(stored)?);
        memo.insert(key, loaded.clone());
        Ok(loaded)
    }

    fn load(&self, stored: &Stored) -> Result<Loaded> {
        let piece = &stored.piece;
        let mut bytes = AlignedBuf::zeroed(piece.blocks as usize * BLOCK as usize);
        let grain = (BLOCK as usize) << piece.grain;
        let mut there = vec![true; piece.grains()];
        if stored.zone == DEFERRED {
            let found = self.index.kv.get(Family::Deferred, &piece.blob.key())?;
            let from = piece.first as usize * BLOCK as usize;
            match found.as_ref().and_then(|found| found.get(from..from + bytes.len())) {
                Some(found) => bytes.copy_from_slice(found),
                None => there.fill(false),
            }
        } else if stored.zone >= self.device.geometry().zones || !self.fits(stored) {
            there.fill(false);
        } else if let Some(all) = read(self.device, stored.zone, stored.block.into(), piece.blocks.into())? {
            bytes.copy_from_slice(&all);
        } else {
            // A command may fail for one block of many.
            for (n, part) in bytes.chunks_mut(grain).enumerate() {
                let (at, len) = (u64::from(stored.block) + ((n as u64) << piece.grain), part.len() as u64 / BLOCK);
                match read(self.device, stored.zone, at, len)? {
                    Some(found) => part.copy_from_slice(&found),
                    None => there[n] = false,
                }
            }
        }
        for ((part, sum), there) in bytes.chunks(grain).zip(&stored.sums).zip(&mut there) {
            *there &= piece.checksum.of(part) == *sum;
        }
        if piece.codec == Compression::Off {
            let good = (0..piece.blocks).map(|n| there[(n >> piece.grain) as usize]).collect();
            return Ok(Loaded { bytes, first: piece.first, good });
        }
        let unpacked = there.first().is_some_and(|good| *good).then(|| decompress(piece.codec, &bytes, piece.named));
        Ok(match unpacked.flatten() {
            Some(bytes) => Loaded { bytes, first: 0, good: vec![true; piece.named as usize] },
            None => Loaded { bytes: AlignedBuf::zeroed(0), first: 0, good: Vec::new() },
        })
    }

    fn fits(&self, stored: &Stored) -> bool {
        let end = u64::from(stored.block) + u64::from(stored.piece.blocks);
        end * BLOCK <= self.device.geometry().zone_size
    }
}

/// Whether the piece has this block of its blob.
fn covers(stored: &Stored, n: u32) -> bool {
    let piece = &stored.piece;
    match piece.codec {
        Compression::Off => (piece.first..piece.first + piece.blocks).contains(&n),
        _ => n < piece.named,
    }
}

fn sum_of(candidate: &Candidate) -> Option<(u8, u32)> {
    let Stored { piece, sums, .. } = &*candidate.stored;
    let grain = match piece.codec {
        Compression::Off => (candidate.n - piece.first) >> piece.grain,
        _ => 0,
    };
    sums.get(grain as usize).map(|sum| (kind(piece.grain, piece.codec, piece.checksum), *sum))
}

/// Whether two places have, or had, the same bytes: copies of a blob.
fn is_same(one: &Candidate, other: &Candidate) -> bool {
    one.stored.piece.blob == other.stored.piece.blob && one.n == other.n && sum_of(one) == sum_of(other)
}

fn push(all: &mut VecDeque<Candidate>, candidate: Candidate) {
    all.push_back(candidate);
    if all.len() > TRIED {
        all.pop_front();
    }
}

/// A blob of the object itself, where it was written.
fn add_own(stored: Stored, all: &mut [VecDeque<Candidate>], named: &mut [bool; SPAN_BLOCKS]) {
    let stored = Rc::new(stored);
    let begin = (stored.piece.offset % SPAN) as u32;
    for n in 0..stored.piece.named {
        let at = (begin + n) as usize;
        if at < SPAN_BLOCKS && covers(&stored, n) {
            named[at] = true;
            push(&mut all[at], Candidate { stored: stored.clone(), n });
        }
    }
}
