//! Compressed pieces in memory, for drives of experiments that are larger than the host's memory and hold bytes that somebody made up:
//! what repeats itself costs next to nothing (slices of one byte with their footers a hundredth). Absent pieces are zeros.
//!
//! Each zone keeps the piece that was written last as it is, so that a log of small writes is packed once a piece.

use crate::config::Config;
use lz4_flex::block::{compress, decompress_into};
use std::io;
use std::sync::{PoisonError, RwLock};

/// Bytes of a piece.
const PIECE: usize = 64 << 10;

#[derive(Default)]
struct Zone {
    /// As long as a piece: as it is, because packing gained nothing.
    pieces: Vec<Option<Box<[u8]>>>,
    /// The piece that was written last, and which it is.
    last: Option<(usize, Box<[u8]>)>,
}

/// One lock a zone.
pub(crate) struct Packed {
    zones: Vec<RwLock<Zone>>,
    pieces_per_zone: usize,
}

fn pack(piece: &[u8]) -> Box<[u8]> {
    let packed = compress(piece);
    if packed.len() < PIECE { packed.into() } else { piece.into() }
}

fn unpack(packed: Option<&[u8]>, out: &mut [u8]) -> io::Result<()> {
    match packed {
        None => out.fill(0),
        Some(piece) if piece.len() == PIECE => out.copy_from_slice(piece),
        Some(packed) => {
            let n = decompress_into(packed, out).map_err(io::Error::other)?;
            if n != out.len() {
                return Err(io::Error::other("a packed piece of the drive is too short"));
            }
        }
    }
    Ok(())
}

impl Zone {
    fn piece(&self, i: usize) -> Option<&[u8]> {
        self.pieces.get(i)?.as_deref()
    }

    /// The piece as it is, to be changed.
    fn open(&mut self, i: usize) -> io::Result<&mut [u8]> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != i) {
            let mut bytes = vec![0; PIECE].into_boxed_slice();
            unpack(self.piece(i), &mut bytes)?;
            self.put_away();
            self.last = Some((i, bytes));
        }
        self.last.as_mut().map(|(_, bytes)| &mut bytes[..]).ok_or_else(|| io::Error::other("no piece is open"))
    }

    fn put_away(&mut self) {
        if let Some((i, bytes)) = self.last.take() {
            self.pieces[i] = Some(pack(&bytes));
        }
    }
}

impl Packed {
    pub(crate) fn new(config: &Config) -> Packed {
        let zones = (0..config.zones()).map(|_| RwLock::default()).collect();
        Packed { zones, pieces_per_zone: config.zone_size.div_ceil(PIECE as u64) as usize }
    }

    pub(crate) fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let zone = self.zones[zone as usize].read().unwrap_or_else(PoisonError::into_inner);
        let mut at = offset as usize;
        let mut rest = out;
        let mut scratch = Vec::new();
        while !rest.is_empty() {
            let (i, within) = (at / PIECE, at % PIECE);
            let n = rest.len().min(PIECE - within);
            let (part, tail) = rest.split_at_mut(n);
            match (&zone.last, zone.piece(i)) {
                (Some((last, bytes)), _) if *last == i => part.copy_from_slice(&bytes[within..within + n]),
                (_, None) => part.fill(0),
                (_, packed) if n == PIECE => unpack(packed, part)?,
                (_, packed) => {
                    scratch.resize(PIECE, 0);
                    unpack(packed, &mut scratch)?;
                    part.copy_from_slice(&scratch[within..within + n]);
                }
            }
            at += n;
            rest = tail;
        }
        Ok(())
    }

    pub(crate) fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut zone = self.zones[zone as usize].write().unwrap_or_else(PoisonError::into_inner);
        zone.pieces.resize(self.pieces_per_zone, None);
        let mut at = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (i, within) = (at / PIECE, at % PIECE);
            let (part, tail) = rest.split_at(rest.len().min(PIECE - within));
            if part.len() == PIECE {
                zone.last.take_if(|(last, _)| *last == i);
                zone.pieces[i] = Some(pack(part));
            } else {
                zone.open(i)?[within..within + part.len()].copy_from_slice(part);
            }
            at += part.len();
            rest = tail;
        }
        Ok(())
    }

    pub(crate) fn discard(&self, zone: u32) {
        *self.zones[zone as usize].write().unwrap_or_else(PoisonError::into_inner) = Zone::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::cow::Cow;
    use rand::{Rng, RngCore, SeedableRng};

    #[test]
    fn it_holds_what_was_written_as_plain_memory_does() {
        let config = Config::tiny();
        let (packed, plain) = (Packed::new(&config), Cow::new(&config));
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let whole = config.zone_size as usize;
        for step in 0..300 {
            let zone = random.random_range(0..3);
            let at = random.random_range(0..whole);
            let len = random.random_range(1..=(whole - at).min(3 * PIECE));
            let mut bytes = vec![step as u8; len];
            if step % 3 == 0 {
                random.fill_bytes(&mut bytes);
            }
            if step % 50 == 49 {
                packed.discard(zone);
                plain.discard(zone);
            }
            packed.write(zone, at as u64, &bytes).unwrap();
            plain.write(zone, at as u64, &bytes);
            let from = random.random_range(0..whole);
            let (mut ours, mut theirs) = (vec![1; whole - from], vec![2; whole - from]);
            packed.read(zone, from as u64, &mut ours).unwrap();
            plain.read(zone, from as u64, &mut theirs);
            assert!(ours == theirs, "step {step}");
        }
    }

    #[test]
    fn what_repeats_itself_takes_next_to_nothing() {
        let packed = Packed::new(&Config::tiny());
        // Slices as a chunk store writes them.
        let mut bytes = vec![7; 8 * PIECE];
        for (i, slice) in bytes.chunks_mut(4096).enumerate() {
            slice[4064..].fill(3);
            slice[4092..].copy_from_slice(&crc32c::crc32c(&i.to_le_bytes()).to_le_bytes());
        }
        packed.write(0, 0, &bytes).unwrap();
        let zone = packed.zones[0].read().unwrap();
        let taken: usize = zone.pieces.iter().flatten().map(|piece| piece.len()).sum();
        assert!(taken * 64 < bytes.len(), "{taken}");
        assert!(zone.pieces.iter().flatten().count() == 8 && zone.last.is_none());
    }
}
