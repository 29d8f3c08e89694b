//! Reading: any range of a chunk, slice by slice, each verified before a byte of it is given out (SMRSTORE §5.2).
//!
//! A mebibyte of a chunk is longer than one command of most drives, by its framing. On a rotating drive all commands of a read are
//! given to it at once, so that nobody else's has the head in between; without threads, one after the other. The threads for that are of
//! the store, not of the read: where many read at once, each has fewer, down to none.

use crate::core::{Core, lock};
use crate::error::{Error, Result};
use crate::format::entry::LOST;
use crate::format::id::ChunkId;
use crate::format::{BLOCK, FOOTER, SLICE, check_slice, slice_at};
use imbrex_device::{Cause, Error as DriveError, Fault, Tag, ZoneId};
use imbrex_zones::write::PooledBuf;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Most bytes of one piece.
const MOST: u32 = 1 << 20;
/// Most bytes that are read at once.
const AT_ONCE: usize = 16 << 20;

/// How to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// A slice that is damaged is an error.
    Verify,
    /// It is given out as it is, zeros where it cannot be read.
    Rescue,
}

/// Part of one record: where it stands, and what of it is wanted.
struct Piece {
    zone: u32,
    /// Byte in the zone where the first wanted slice begins, and how many bytes of slices and footers are wanted.
    from: u64,
    stored: usize,
    /// Offset in the chunk of the first wanted slice.
    slices: u32,
    /// Offset in the chunk of the first wanted byte, and how many of the record are wanted.
    at: u32,
    len: u32,
    found: Found,
    /// The wanted slices, from its `skip`th byte on.
    image: PooledBuf,
    skip: usize,
}

/// Where a piece is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It has been copied from memory.
    Memory,
    /// On the drive; the zone is pinned.
    Drive,
    Nowhere,
}

impl Core {
    /// Reads from `offset` on; returns how many bytes there were: less than asked for only at the chunk's end.
    pub(crate) fn read(&self, id: ChunkId, offset: u64, out: &mut [u8], care: Care) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            let mut pieces = self.pieces(id, offset + done as u64, out.len() - done)?;
            if pieces.is_empty() {
                break;
            }
            let fetched = self.fetch(&mut pieces);
            let pinned = pieces.iter().filter(|piece| piece.found == Found::Drive);
            pinned.for_each(|piece| self.tenant.unpin(ZoneId(piece.zone)));
            for (piece, fetched) in pieces.iter_mut().zip(fetched) {
                let out = &mut out[done..done + piece.len as usize];
                self.give_out(id, piece, fetched, out, care)?;
                done += out.len();
            }
        }
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    /// The next pieces, of `most` bytes at most; none: the chunk ends here.
    fn pieces(&self, id: ChunkId, offset: u64, most: usize) -> Result<Vec<Piece>> {
        let state = self.state();
        let slot = state.index.find(&id).ok_or(Error::NotFound(id))?;
        let mut pieces = Vec::new();
        let mut planned = 0;
        while planned < most.min(AT_ONCE) {
            let chunk = state.index.chunk(slot).ok_or(Error::NotFound(id))?;
            let at = match u32::try_from(offset + planned as u64) {
                Ok(at) if at < chunk.len => at,
                _ if offset + planned as u64 == u64::from(chunk.len) => break,
                _ => return Err(Error::Range { id, offset, len: chunk.len }),
            };
            let Some(found) = chunk.find(at) else { break };
            let len = (found.end - at).min((most - planned).min(MOST as usize) as u32);
            let slice = SLICE as u32;
            let first = (at - found.start) / slice * slice;
            let last = (at - found.start + len).next_multiple_of(slice).min(found.end - found.start);
            let stored = (last - first) as usize + (last - first).div_ceil(slice) as usize * FOOTER;
            let mut piece = Piece {
                zone: found.zone,
                from: u64::from(found.at) * BLOCK as u64 + slice_at(first) as u64,
                stored,
                slices: found.start + first,
                at,
                len,
                found: Found::Nowhere,
                image: self.writer.memory((stored + 2 * BLOCK).next_multiple_of(BLOCK)),
                skip: 0,
            };
            planned += len as usize;
            if found.at != LOST && state.zones.get(piece.zone).is_some() {
                // What is not on the drive yet is in memory, whole records of it.
                if self.writer.read(piece.zone, piece.from, &mut piece.image[..stored]) {
                    piece.found = Found::Memory;
                } else {
                    self.tenant.pin(ZoneId(piece.zone));
                    piece.found = Found::Drive;
                }
            }
            let copied = piece.found == Found::Memory;
            pieces.push(piece);
            if copied {
                // Others wait for the state.
                break;
            }
        }
        Ok(pieces)
    }

    /// Reads the blocks that hold the pieces that are on the drive; of each, whether that went well.
    fn fetch(&self, pieces: &mut [Piece]) -> Vec<Result<(), DriveError>> {
        let geometry = self.volume.geometry();
        let block = u64::from(geometry.block);
        let mut fetched: Vec<_> = pieces.iter().map(|_| Ok(())).collect();
        let mut commands = Vec::new();
        for (i, piece) in pieces.iter_mut().enumerate().filter(|(_, piece)| piece.found == Found::Drive) {
            let (first, len) = piece.blocks(block);
            piece.skip = (piece.from - first) as usize;
            let address = self.address(piece.zone) + first;
            let most = (geometry.max_io as usize).max(BLOCK);
            let parts = piece.image[..len].chunks_mut(most).enumerate();
            commands.extend(parts.map(|(n, part)| (i, address + (n * most) as u64, part)));
        }
        let want = if self.volume.is_threaded() && geometry.rotational { commands.len().saturating_sub(1) } else { 0 };
        commands.reverse();
        let (commands, failed) = (Mutex::new(commands), Mutex::new(Vec::new()));
        let work = || {
            loop {
                let Some((i, address, part)) = lock(&commands).pop() else { break };
                if let Err(error) = self.volume.read(part, address, Tag::new(Cause::UserRead)) {
                    lock(&failed).push((i, error));
                }
            }
        };
        self.helpers.beside(want, work);
        for (i, error) in failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            fetched[i] = Err(error);
        }
        fetched
    }

    /// Gives out what is wanted of a piece, once it is verified.
    fn give_out(
        &self,
        id: ChunkId,
        piece: &mut Piece,
        fetched: Result<(), DriveError>,
        out: &mut [u8],
        care: Care,
    ) -> Result<()> {
        if piece.found == Found::Nowhere {
            return self.damaged(id, piece, out, care);
        }
        match fetched {
            Ok(()) => {}
            Err(error) if care == Care::Rescue => self.rescue(piece, error),
            Err(error) if matches!(error.fault, Fault::Media { .. } | Fault::Offline) => {
                tracing::warn!(%error, "a piece of a chunk cannot be read");
                return self.damaged(id, piece, out, care);
            }
            Err(error) => return Err(error.into()),
        }
        let (at, end) = (piece.at, piece.at + piece.len);
        let mut offset = piece.slices;
        for stored in piece.image[piece.skip..piece.skip + piece.stored].chunks(SLICE + FOOTER) {
            let checked = check_slice(stored, id, offset);
            let data = match checked {
                Some(data) => data,
                None if care == Care::Rescue => &stored[..stored.len().saturating_sub(FOOTER)],
                None => {
                    self.counters.damaged.fetch_add(1, Ordering::Relaxed);
                    return Err(Error::Damaged { id, offset, zone: piece.zone });
                }
            };
            let next = offset + data.len() as u32;
            let (from, to) = (offset.max(at), next.min(end));
            if from < to {
                let data = &data[(from - offset) as usize..(to - offset) as usize];
                out[(from - at) as usize..(to - at) as usize].copy_from_slice(data);
            }
            offset = next;
        }
        Ok(())
    }

    fn damaged(&self, id: ChunkId, piece: &Piece, out: &mut [u8], care: Care) -> Result<()> {
        self.counters.damaged.fetch_add(1, Ordering::Relaxed);
        if care == Care::Rescue {
            out.fill(0);
            return Ok(());
        }
        Err(Error::Damaged { id, offset: piece.at, zone: piece.zone })
    }

    /// Blocks that cannot be read are zeros.
    fn rescue(&self, piece: &mut Piece, error: DriveError) {
        tracing::warn!(%error, "reading block by block what can be read");
        let block = u64::from(self.volume.geometry().block);
        let (first, len) = piece.blocks(block);
        let address = self.address(piece.zone) + first;
        for (i, one) in piece.image[..len].chunks_mut(block as usize).enumerate() {
            if self.volume.read(one, address + i as u64 * block, Tag::new(Cause::UserRead)).is_err() {
                one.fill(0);
            }
        }
    }
}

impl Piece {
    /// The blocks that hold it: where they begin in the zone, and how many bytes they are.
    fn blocks(&self, block: u64) -> (u64, usize) {
        let first = self.from / block * block;
        (first, ((self.from + self.stored as u64).next_multiple_of(block) - first) as usize)
    }
}
