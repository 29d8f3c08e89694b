//! Small writes that are not in their bands yet: a flush puts them into its batch, so that a small write and its flush are one write of
//! the disk, at one place, and one sync.
//!
//! Until a flush they outlive the process in the *staging area* of the live part, which has two halves. A flush takes what is in one, and
//! what is written meanwhile goes into the other; the next flush begins only when this one has ended, and by then the first half is
//! free. From a flush on they are in the log. In memory they stay until they are brought home: before the log ends, before a long
//! write behind them, and when the drive is closed.

use super::base::Base;
use super::layout::Layout;
use super::table::{Proof, Record, Word};
use crate::Fault;
use std::collections::BTreeSet;
use std::sync::Arc;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A longer write goes to its band. A log has each block twice, and the band has it later: at 200 MB/s that takes half a turn of a
/// disk for so many bytes, with a share of the log's end. What it saves is a way of the head and most of a turn.
const MOST_STAGED: usize = 160 << 10;

/// Bytes of a band that are not in it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) band: u32,
    pub(super) life: u32,
    /// Its first block.
    pub(super) from: u64,
    pub(super) bytes: Arc<[u8]>,
}

impl Piece {
    /// The block behind it.
    pub(super) fn end(&self, layout: &Layout) -> u64 {
        self.from + self.bytes.len() as u64 / u64::from(layout.block)
    }

    /// Whether a band with this word has it.
    pub(super) fn is_of(&self, word: &Word, layout: &Layout) -> bool {
        self.life == word.life && self.end(layout) <= word.written
    }
}

/// What stands before a piece in the staging area.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    /// The turn of the half, so that what an earlier one left is nothing.
    turn: U64,
    band: U32,
    life: U32,
    from: U64,
    len: U32,
    /// CRC-32C of uuid, epoch, this with the field 0, and the bytes.
    crc: U32,
}

const ENTRY: usize = size_of::<RawEntry>();
const _: () = assert!(ENTRY == 32);

impl RawEntry {
    fn sum(&self, layout: &Layout, epoch: u64, bytes: &[u8]) -> u32 {
        let sum = crc32c::crc32c_append(crc32c::crc32c(&layout.uuid), &epoch.to_le_bytes());
        let sum = crc32c::crc32c_append(sum, RawEntry { crc: 0.into(), ..*self }.as_bytes());
        crc32c::crc32c_append(sum, bytes)
    }
}

/// The staging area as it is written.
#[derive(Default)]
pub(super) struct Staging {
    epoch: u64,
    /// Turns of the halves; 0: nothing in it counts. A turn is the number of a batch, so none comes twice.
    turns: [u64; 2],
    /// The half that is written, and how far.
    half: usize,
    used: usize,
    /// It could not be written once, and takes no more.
    broken: bool,
    /// Bands that have pieces.
    pub(super) bands: BTreeSet<u32>,
}

impl Staging {
    /// With nothing in it, for a table whose next batch has this number; called before the live part counts.
    pub(super) fn start(base: &dyn Base, layout: &Layout, epoch: u64, sequence: u64) -> Result<Staging, Fault> {
        let staging = Staging { epoch, turns: [sequence, 0], half: 0, used: 0, broken: false, bands: BTreeSet::new() };
        put_turns(base, layout, staging.turns)?;
        Ok(staging)
    }

    /// Whether a write of so many bytes has room.
    pub(super) fn takes(&self, layout: &Layout, len: usize) -> bool {
        !self.broken && len <= MOST_STAGED && self.used + ENTRY + len <= layout.half()
    }

    /// Puts a piece, for which there is room, where it outlives the process, once `counted` has made the band's word say so.
    /// `false`: it cannot be put there, and goes to its band.
    pub(super) fn put(
        &mut self,
        base: &dyn Base,
        layout: &Layout,
        piece: &Piece,
        counted: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<bool, Fault> {
        let mut raw = RawEntry {
            turn: self.turns[self.half].into(),
            band: piece.band.into(),
            life: piece.life.into(),
            from: piece.from.into(),
            len: (piece.bytes.len() as u32).into(),
            crc: 0.into(),
        };
        raw.crc = raw.sum(layout, self.epoch, &piece.bytes).into();
        let at = layout.half_at(self.half) + self.used as u64;
        if let Err(fault) = base.put(&[raw.as_bytes(), &piece.bytes].concat(), at) {
            tracing::warn!("{}: {fault:?}: small writes go to their bands at once from here on", base.facts().name);
            self.broken = true;
            return Ok(false);
        }
        if let Err(fault) = counted() {
            // Nor may it count later, behind other bytes that the caller writes there.
            self.broken = true;
            base.put(&[0; ENTRY], at)?;
            return Err(fault);
        }
        self.used += ENTRY + piece.bytes.len();
        self.bands.insert(piece.band);
        Ok(true)
    }

    /// Whether something is in it that no flush has begun to take.
    pub(super) fn is_used(&self) -> bool {
        self.used > 0
    }

    /// Begins the other half for what comes behind a flush, whose batch has the number `sequence`. What is in this half counts until the
    /// next call, and what was in the other one is durable. `false`: nothing is in this half, so it goes on.
    pub(super) fn turn(&mut self, base: &dyn Base, layout: &Layout, sequence: u64) -> Result<bool, Fault> {
        if self.used == 0 {
            return Ok(false);
        }
        let (half, mut turns) = (1 - self.half, self.turns);
        turns[half] = sequence;
        put_turns(base, layout, turns)?;
        (self.half, self.turns, self.used) = (half, turns, 0);
        Ok(true)
    }

    /// After a flush, nothing in the half counts that is not written now.
    pub(super) fn forget_flushed(&mut self, base: &dyn Base, layout: &Layout) -> Result<(), Fault> {
        let mut turns = self.turns;
        turns[1 - self.half] = 0;
        if turns != self.turns {
            put_turns(base, layout, turns)?;
            self.turns = turns;
        }
        Ok(())
    }
}

fn put_turns(base: &dyn Base, layout: &Layout, turns: [u64; 2]) -> Result<(), Fault> {
    if layout.half() == 0 {
        return Ok(());
    }
    let mut bytes = [0; 16];
    for (bytes, turn) in bytes.chunks_mut(8).zip(turns) {
        bytes.copy_from_slice(&turn.to_le_bytes());
    }
    base.put(&bytes, layout.staging_at())
}

/// Records and bytes for a log that carries these pieces of a band on, which has this word.
pub(super) fn carry_on(layout: &Layout, word: Word, pieces: &[Piece], (records, carried): &mut (Vec<Record>, Vec<u8>)) {
    let Some(band) = pieces.first().map(|piece| piece.band) else { return };
    for piece in pieces {
        let word = word.cut(piece.end(layout), layout.capacity());
        records.push(Record { band, word, from: piece.from, proof: Proof::Carried });
        carried.extend_from_slice(&piece.bytes);
    }
    records.push(Record { band, word, from: word.written, proof: Proof::Carried });
}

/// What stands in the staging area of the live part under `epoch`: pieces of bands, or of what bands would have been, in order.
pub(super) fn left_behind(live: &[u8], layout: &Layout, epoch: u64) -> Vec<Piece> {
    if layout.half() == 0 {
        return Vec::new();
    }
    let mut halves = [const { (0, Vec::new()) }; 2];
    let at = |place: u64| (place - layout.live_at()) as usize;
    let turns = live.get(at(layout.staging_at())..).unwrap_or_default();
    for (half, (found, pieces)) in halves.iter_mut().enumerate() {
        let turn = turns.get(half * 8..).and_then(<[u8]>::first_chunk).map_or(0, |turn| u64::from_le_bytes(*turn));
        *found = turn;
        let mut rest = live.get(at(layout.half_at(half))..).unwrap_or_default();
        rest = rest.get(..layout.half()).unwrap_or_default();
        while let Ok((raw, behind)) = RawEntry::read_from_prefix(rest) {
            let Some((bytes, next)) = behind.split_at_checked(raw.len.get() as usize) else { break };
            if turn == 0 || raw.turn.get() != turn || raw.crc.get() != raw.sum(layout, epoch, bytes) {
                break;
            }
            let (band, life, from) = (raw.band.get(), raw.life.get(), raw.from.get());
            let whole = !bytes.is_empty() && bytes.len().is_multiple_of(layout.block as usize);
            if whole && band < layout.bands && from <= layout.capacity() {
                pieces.push(Piece { band, life, from, bytes: bytes.into() });
            }
            rest = next;
        }
    }
    halves.sort_by_key(|(turn, _)| *turn);
    halves.into_iter().flat_map(|(_, pieces)| pieces).collect()
}

/// Writes pieces, sorted by place, into their bands; neighbours as one.
pub(super) fn bring_home(base: &dyn Base, layout: &Layout, pieces: &[Piece]) -> Result<(), Fault> {
    let block = layout.block as usize;
    let step = (base.facts().max_io as usize).max(block) / block * block;
    let follows = |a: &Piece, b: &Piece| a.band == b.band && a.end(layout) == b.from;
    for run in pieces.chunk_by(follows) {
        let Some(first) = run.first() else { continue };
        let bytes: Vec<&[u8]> = run.iter().map(|piece| piece.bytes.as_ref()).collect();
        let bytes = crate::AlignedBuf::padded(&bytes.concat(), block);
        let at = layout.start(first.band) + first.from * block as u64;
        for (i, part) in bytes.chunks(step).enumerate() {
            base.write(part, at + (i * step) as u64)?;
        }
    }
    Ok(())
}
