//! Reading: any range of a chunk, slice by slice, each verified before a byte of it is given out (SMRSTORE §5.2).

use crate::core::Core;
use crate::entry::LOST;
use crate::error::{Error, Result};
use crate::format::{BLOCK, FOOTER, SLICE, check_slice, slice_at};
use crate::id::ChunkId;
use imbrex_device::{Cause, Fault, Tag};
use std::sync::atomic::Ordering;

/// Most bytes of one device read.
const MOST: u32 = 1 << 20;

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
    /// Bytes of the chunk in the record that are wanted, from the read's offset on.
    len: u32,
    lost: bool,
}

impl Core {
    /// Reads from `offset` on; returns how many bytes there were: less than asked for only at the chunk's end.
    pub(crate) fn read(&self, id: ChunkId, offset: u64, out: &mut [u8], care: Care) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            let n = self.read_piece(id, offset + done as u64, &mut out[done..], care)?;
            if n == 0 {
                break;
            }
            done += n;
        }
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    /// Reads at most what stands in one record; 0: the chunk ends here.
    fn read_piece(&self, id: ChunkId, offset: u64, out: &mut [u8], care: Care) -> Result<usize> {
        let mut state = self.state();
        let slot = state.index.find(&id).ok_or(Error::NotFound(id))?;
        let chunk = state.index.chunk(slot).ok_or(Error::NotFound(id))?;
        let at = match u32::try_from(offset) {
            Ok(at) if at < chunk.len => at,
            _ if offset == u64::from(chunk.len) => return Ok(0),
            _ => return Err(Error::Range { id, offset, len: chunk.len }),
        };
        let Some(found) = chunk.find(at) else { return Ok(0) };
        let len = (found.end - at).min(out.len().min(MOST as usize) as u32);
        let slice = SLICE as u32;
        let first = (at - found.start) / slice * slice;
        let last = (at - found.start + len).next_multiple_of(slice).min(found.end - found.start);
        let footers = (last - first).div_ceil(slice) as usize * FOOTER;
        let piece = Piece {
            zone: found.zone,
            from: u64::from(found.at) * BLOCK as u64 + slice_at(first) as u64,
            stored: (last - first) as usize + footers,
            slices: found.start + first,
            len,
            lost: found.at == LOST,
        };
        let mut stored = self.gather.pool.take((piece.stored + 2 * BLOCK).next_multiple_of(BLOCK));
        let out = &mut out[..len as usize];
        if piece.lost {
            drop(state);
            return self.damaged(id, at, &piece, out, care);
        }
        let Some(zone) = state.zones.get_mut(piece.zone) else { return self.damaged(id, at, &piece, out, care) };
        // What is not on the drive yet is in memory, whole records of it.
        let skip = if zone.buffer.read(piece.from, &mut stored[..piece.stored]) {
            drop(state);
            0
        } else {
            zone.readers += 1;
            drop(state);
            let result = self.read_stored(&piece, &mut stored, care);
            if let Some(zone) = self.state().zones.get_mut(piece.zone) {
                zone.readers = zone.readers.saturating_sub(1);
            }
            match result {
                Ok(skip) => skip,
                Err(Error::Drive(error)) if matches!(error.fault, Fault::Media { .. } | Fault::Offline) => {
                    tracing::warn!(%error, "a piece of a chunk cannot be read");
                    return self.damaged(id, at, &piece, out, care);
                }
                Err(error) => return Err(error),
            }
        };
        let mut offset = piece.slices;
        for stored in stored[skip..skip + piece.stored].chunks(SLICE + FOOTER) {
            let checked = check_slice(stored, id, offset);
            let data = match checked {
                Some(data) => data,
                None if care == Care::Rescue => &stored[..stored.len().saturating_sub(FOOTER)],
                None => {
                    self.counters.damaged.fetch_add(1, Ordering::Relaxed);
                    return Err(Error::Damaged { id, offset, zone: piece.zone });
                }
            };
            let end = offset + data.len() as u32;
            let (from, to) = (offset.max(at), end.min(at + len));
            if from < to {
                let data = &data[(from - offset) as usize..(to - offset) as usize];
                out[(from - at) as usize..(to - at) as usize].copy_from_slice(data);
            }
            offset = end;
        }
        Ok(len as usize)
    }

    fn damaged(&self, id: ChunkId, offset: u32, piece: &Piece, out: &mut [u8], care: Care) -> Result<usize> {
        self.counters.damaged.fetch_add(1, Ordering::Relaxed);
        if care == Care::Rescue {
            out.fill(0);
            return Ok(piece.len as usize);
        }
        Err(Error::Damaged { id, offset, zone: piece.zone })
    }

    /// Reads the blocks that hold the piece; says where in them it begins. In a rescue, blocks that cannot be read are zeros.
    fn read_stored(&self, piece: &Piece, stored: &mut [u8], care: Care) -> Result<usize> {
        let block = u64::from(self.volume.geometry().block);
        let first = piece.from / block * block;
        let end = (piece.from + piece.stored as u64).next_multiple_of(block);
        let blocks = &mut stored[..(end - first) as usize];
        let tag = Tag::new(Cause::UserRead);
        let address = self.address(piece.zone) + first;
        match self.volume.read(blocks, address, tag) {
            Err(error) if care == Care::Rescue => {
                tracing::warn!(%error, "reading block by block what can be read");
                for (i, one) in blocks.chunks_mut(block as usize).enumerate() {
                    if self.volume.read(one, address + i as u64 * block, tag).is_err() {
                        one.fill(0);
                    }
                }
            }
            result => result?,
        }
        Ok((piece.from - first) as usize)
    }
}
