//! Defragmentation: bytes of an object that stand in many places are written anew, one behind the other.
//!
//! Bytes are read without any right, many objects' in the order of the drive, and compared with their checksums. A blob never changes, so what was read of it is right for as long as
//! an extent names it. Whoever writes it again is a transaction like any other, which looks what is still so.

use crate::blob::{BLOCK, Blob, BlobId, Place};
use crate::core::{Core, is_of_bytes};
use crate::fragments::Fragments;
use crate::id::{CollectionId, ObjectId};
use crate::onode::SPAN;
use crate::parts::Stand;
use crate::store::{BlueStore, Survives};
use crate::transaction::{Act, Transaction};
use imbrex_device::{AlignedBuf, Cause, Code, Result};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Blocks of an object that are judged, and written, together: 4 MiB.
const STRETCH: u64 = 16 * SPAN;
/// A disk reads on for so many blocks in about the time of a way of its head: 1 MiB.
const A_WAY: u64 = 256;
/// One record for so many blocks costs a read little. A blob of 256 KiB has 64.
const A_RECORD: u64 = 8;
/// Blocks between two that are read in order that cost no way: a header of a run.
const BETWEEN: u32 = crate::run::LONGEST as u32;

/// What [`BlueStore::defragment`] has done, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Stored bytes that it looked at.
    pub looked: u64,
    /// Stored bytes that it has read to write them anew. Fewer are written where others have changed them meanwhile.
    pub written: u64,
    /// Bytes in many places that were left there, since others share them or they cannot be read.
    pub left: u64,
}

/// Whole grains that stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    id: BlobId,
    first: u32,
    blocks: u32,
    place: Place,
}

/// Whether reading these in order takes a disk more ways than it should, or more records.
fn is_fragmented(pieces: &[Piece]) -> bool {
    let (mut ways, mut blocks, mut end) = (0, 0, None::<Place>);
    for piece in pieces {
        let follows = end.is_some_and(|end| {
            (end.zone, end.life) == (piece.place.zone, piece.place.life)
                && (end.block..=end.block + BETWEEN).contains(&piece.place.block)
        });
        ways += u64::from(!follows);
        blocks += u64::from(piece.blocks);
        end = Some(Place { block: piece.place.block + piece.blocks, ..piece.place });
    }
    ways > 1 + blocks / A_WAY || pieces.len() as u64 > 1 + blocks / A_RECORD
}

/// What is to be written together, when it was read.
#[derive(Default)]
struct Window {
    /// Stretches of objects.
    stretches: Vec<(ObjectId, Range<u64>)>,
    pieces: Vec<Piece>,
    blobs: HashMap<BlobId, Blob>,
    /// Blocks that are stored of them, and those that are in memory when they are read: what is compressed is not so there.
    blocks: u64,
    memory: u64,
}

impl BlueStore {
    /// Writes bytes of objects anew, one behind the other, where a disk has to look for them in many places: those that were written at random. So they are read in order again, and have few
    /// records. What others share stays where it is. About `memory` bytes are in memory at once: the more, the fewer ways of a disk's head. Others may use the objects meanwhile.
    ///
    /// # Errors
    /// `NoSpace`; those of [`BlueStore::wait`]. What was done before stays so.
    pub fn defragment(&self, collection: CollectionId, objects: &[ObjectId], memory: u64) -> Result<Defragmented> {
        defragment(self, collection, objects, memory)
    }
}

fn defragment(store: &BlueStore, collection: CollectionId, objects: &[ObjectId], memory: u64) -> Result<Defragmented> {
    let (mut done, mut window) = (Defragmented::default(), Window::default());
    // What waits has no place to be read from.
    store.pack()?;
    for object in objects {
        let mut next = Some(0);
        while let Some(first) = next {
            next = plan(store.core(), collection, object, first, (&mut window, &mut done))?;
            if window.memory * BLOCK >= memory {
                write(store, collection, std::mem::take(&mut window), &mut done)?;
            }
        }
    }
    write(store, collection, window, &mut done)?;
    store.sync()?;
    Ok(done)
}

/// The grains of these blocks, which begin and end with some.
fn grains(blob: &Blob, blocks: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let all = 1 << blob.grain();
    blocks.clone().step_by(all as usize).map(move |first| first..(first + all).min(blocks.end))
}

/// Adds a piece to others; where it goes on where the last one ends they are one.
fn add(pieces: &mut Vec<Piece>, new: Piece) {
    match pieces.last_mut() {
        Some(last)
            if (last.id, last.first + last.blocks) == (new.id, new.first)
                && Place { block: last.place.block + last.blocks, ..last.place } == new.place =>
        {
            last.blocks += new.blocks;
        }
        _ => pieces.push(new),
    }
}

/// Blocks of memory that a piece takes when it was read.
fn in_memory(blob: &Blob, piece: &Piece) -> u32 {
    if blob.blocks == blob.named { piece.blocks } else { blob.named }
}

/// Looks at a stretch of an object. Returns where the next one begins, if there is one.
fn plan(
    core: &Core,
    collection: CollectionId,
    object: &ObjectId,
    first: u64,
    (window, done): (&mut Window, &mut Defragmented),
) -> Result<Option<u64>> {
    let blocks = first..first + STRETCH;
    let (extents, size) = match core.extents(collection, object, blocks.clone()) {
        // It has gone since somebody named it.
        Err(error) if error.code() == Code::NotFound => return Ok(None),
        found => found?,
    };
    let ids: BTreeSet<BlobId> = extents.iter().map(|extent| extent.blob).collect();
    let blobs = core.blobs(&ids)?;
    let mut own: HashMap<BlobId, Vec<(u32, u32)>> = HashMap::new();
    extents.iter().for_each(|extent| own.entry(extent.blob).or_default().push((extent.first, extent.blocks)));
    let (mut pieces, mut shared, mut seen) = (Vec::new(), 0, BTreeSet::new());
    for extent in &extents {
        done.looked += u64::from(extent.blocks) * BLOCK;
        let Some(blob) = blobs.get(&extent.blob) else { continue };
        let own = own.get(&extent.blob).map_or(&[][..], |own| own);
        if blob.is_shared((extent.first, extent.blocks), own) {
            shared += u64::from(extent.blocks) * BLOCK;
            continue;
        }
        let (from, len) = blob.whole(extent.first, extent.blocks);
        for run in blob.find(from, len).into_iter().flatten() {
            let Some(place) = run.place else { continue };
            for part in grains(blob, run.first..run.first + run.blocks) {
                // Another extent has a part of it.
                if !seen.insert((extent.blob, part.start)) {
                    continue;
                }
                let place = Place { block: place.block + part.start - run.first, ..place };
                add(&mut pieces, Piece { id: extent.blob, first: part.start, blocks: part.end - part.start, place });
            }
        }
    }
    if is_fragmented(&pieces) {
        done.left += shared;
        window.blocks += pieces.iter().map(|piece| u64::from(piece.blocks)).sum::<u64>();
        window.memory += pieces.iter().map(|piece| u64::from(in_memory(&blobs[&piece.id], piece))).sum::<u64>();
        window.pieces.append(&mut pieces);
        window.blobs.extend(blobs);
        window.stretches.push((object.clone(), blocks.clone()));
    }
    Ok(Some(blocks.end).filter(|next| next * BLOCK < size))
}

/// Whether the collection has no such object now.
fn is_gone(core: &Core, collection: CollectionId, object: &ObjectId) -> bool {
    core.moment(collection, object).is_err_and(|error| error.code() == Code::NotFound)
}

/// Reads what the window has, in the order of the drive, and writes it in the order of objects.
fn write(store: &BlueStore, collection: CollectionId, window: Window, done: &mut Defragmented) -> Result<()> {
    if window.stretches.is_empty() {
        return Ok(());
    }
    let read = Arc::new(read(store.core(), &window.pieces, &window.blobs)?);
    drop((window.pieces, window.blobs));
    done.written += read.blocks() * BLOCK;
    done.left += window.blocks.saturating_sub(read.blocks()) * BLOCK;
    let mut last = None;
    for (object, blocks) in window.stretches {
        let mut transaction = Transaction::new();
        transaction.act(collection, &object, Act::Rewrite { blocks, read: read.clone() });
        match store.queue(transaction) {
            // It was there: it is gone since, or in a collection that was divided off.
            Err(_) if is_gone(store.core(), collection, &object) => {}
            queued => last = Some(queued?),
        }
    }
    // What it held is free, and the drive has time for others between two windows.
    last.map_or(Ok(()), |last| store.wait_for(last, Survives::Power))
}

fn read(core: &Core, pieces: &[Piece], blobs: &HashMap<BlobId, Blob>) -> Result<Fragments> {
    let stands: Vec<_> = pieces.iter().map(|piece| Stand { place: piece.place, blocks: piece.blocks }).collect();
    let mut found = Fragments::default();
    core.each_part(&stands, Cause::Cleaning, |n, of| {
        let piece = &pieces[n];
        let Some(blob) = blobs.get(&piece.id) else { return Ok(()) };
        let wanted = (blob, piece.first, piece.blocks);
        // Alone, since what is damaged is perhaps another's. It stays where it is, where whoever reads it is told.
        let alone = match of {
            Some(of) if blob.verify(piece.first, of).is_none() => {
                let mut own = AlignedBuf::zeroed(of.len());
                own.copy_from_slice(of);
                Ok(Some(own))
            }
            Some(_) => core.fetch_again(wanted),
            None => core.fetch_stored(wanted, None, || Ok(None)),
        };
        match alone {
            Ok(Some(own)) => found.keep((piece.id, piece.first, piece.blocks), blob, own),
            Ok(None) => {}
            Err(error) if is_of_bytes(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    })?;
    Ok(found)
}
