//! A third engine for tests: blocks that follow one another in zones which the tenant's root names. It uses floor 3's calls of a tenant and nothing else.
//!
//! A block is durable once the volume has been synced after it, and it is there after the death of a process. Blocks before the last zone can be
//! given up: the root forgets them, and then their zones are free.

use imbrex_device::{AlignedBuf, Cause, Fault, Result, Tag, Written, ZoneId, report_all};
use imbrex_zones::{Budget, OpenZone, Tenant, Urgency, Volume};

pub const NAME: &str = "notes";
pub const BUDGET: Budget = Budget::keeping(0, 0).at_least(2);
const BLOCK: u64 = 4096;
const TAG: Tag = Tag::new(Cause::UserWrite);

/// A zone, and the number of its first block.
#[derive(Clone, Copy)]
struct Piece {
    zone: u32,
    life: u64,
    first: u64,
}

pub struct Notes {
    tenant: Tenant,
    pieces: Vec<Piece>,
    open: Option<OpenZone>,
    count: u64,
}

/// Tells the life of its zone and its number, in every word.
fn block(life: u64, number: u64) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(BLOCK as usize);
    for (i, word) in block.chunks_exact_mut(8).enumerate() {
        let word_of = life ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(i as u32 % 64);
        word.copy_from_slice(&word_of.to_le_bytes());
    }
    block
}

impl Notes {
    pub fn open(volume: &Volume) -> Result<Notes> {
        let tenant = volume.tenant(NAME)?;
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let piece = |bytes: &[u8]| Piece {
            zone: word(&bytes[..8]) as u32,
            life: word(&bytes[8..16]),
            first: word(&bytes[16..]),
        };
        let pieces: Vec<Piece> = tenant.root().chunks_exact(24).map(piece).collect();
        pieces.iter().try_for_each(|piece| tenant.adopt(ZoneId(piece.zone)))?;
        tenant.adoption_done();
        tenant.recovered()?;
        let mut notes = Notes { tenant, pieces, open: None, count: 0 };
        let zones = report_all(volume.device().as_ref())?;
        for piece in notes.pieces.clone() {
            let zone = zones[piece.zone as usize];
            let end = match zone.written() {
                Written::To(wp) => wp,
                Written::Untold => zone.capacity,
                Written::Gone => 0,
            };
            let (mut at, mut found) = (0, AlignedBuf::zeroed(BLOCK as usize));
            notes.count = piece.first;
            while at + BLOCK <= end {
                match volume.read(&mut found, volume.geometry().start(zone.id) + at, TAG) {
                    // Above a write pointer that the drive does not tell.
                    Err(error) if matches!(error.fault, Fault::InvalidInput(_)) => break,
                    other => other?,
                }
                if found[..] != block(piece.life, notes.count)[..] {
                    break;
                }
                notes.count += 1;
                at += BLOCK;
            }
            // A zone that has bytes of an earlier life, or of nobody, is written by its next life.
            let goes_on = zone.state.writable() && at == end && at > 0;
            let open = OpenZone { zone: zone.id, life: piece.life, at, capacity: zone.capacity };
            notes.open = goes_on.then_some(open);
        }
        Ok(notes)
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    fn set_root(&mut self, pieces: Vec<Piece>) -> Result<()> {
        let words = |piece: &Piece| [u64::from(piece.zone), piece.life, piece.first];
        let root: Vec<u8> = pieces.iter().flat_map(words).flat_map(u64::to_le_bytes).collect();
        self.tenant.set_root(&root)?;
        self.pieces = pieces;
        Ok(())
    }

    fn next_zone(&mut self) -> Result<OpenZone> {
        let zone = self.tenant.take(Urgency::User)?;
        let begun = |notes: &mut Notes| {
            notes.tenant.activate(zone, None)?;
            let piece = Piece { zone: zone.0, life: notes.tenant.new_life(), first: notes.count };
            // Of a zone before it that took nothing, only the root told.
            let (empty, mut pieces): (Vec<_>, Vec<_>) =
                notes.pieces.iter().partition(|other| other.first == piece.first);
            pieces.push(piece);
            notes.set_root(pieces)?;
            empty.into_iter().for_each(|other| notes.tenant.release(ZoneId(other.zone)));
            Ok(piece.life)
        };
        match begun(self) {
            Ok(life) => {
                let capacity = self.tenant.volume().report_at_open()[zone.0 as usize].capacity;
                Ok(OpenZone { zone, life, at: 0, capacity })
            }
            Err(error) => {
                self.tenant.release(zone);
                Err(error)
            }
        }
    }

    pub fn append(&mut self) -> Result<()> {
        let mut open = match self.open.take().filter(|open| open.at + BLOCK <= open.capacity) {
            Some(open) => open,
            None => self.next_zone()?,
        };
        // Without it a new zone is begun the next time.
        let block = block(open.life, self.count);
        self.tenant.volume().write_sequential(&mut open, &block, TAG)?;
        self.open = Some(open);
        self.count += 1;
        Ok(())
    }

    pub fn sync(&self) -> Result<()> {
        self.tenant.volume().sync(TAG)
    }

    /// Gives up all zones but the last.
    pub fn trim(&mut self) -> Result<()> {
        let Some((last, old)) = self.pieces.split_last().map(|(last, old)| (*last, old.to_vec())) else {
            return Ok(());
        };
        if old.is_empty() {
            return Ok(());
        }
        // What is gone counts as durable, so what follows it has to be.
        self.sync()?;
        self.set_root(vec![last])?;
        old.into_iter().for_each(|piece| self.tenant.release(ZoneId(piece.zone)));
        Ok(())
    }

    /// Every zone is named once.
    pub fn check(&self) -> std::result::Result<(), String> {
        let mut zones: Vec<u32> = self.pieces.iter().map(|piece| piece.zone).collect();
        zones.sort_unstable();
        zones.dedup();
        match zones.len() == self.pieces.len() && self.pieces.windows(2).all(|pair| pair[0].first < pair[1].first) {
            true => Ok(()),
            false => Err(format!("the notes' zones: {zones:?}")),
        }
    }
}
