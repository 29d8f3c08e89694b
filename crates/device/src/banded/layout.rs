//! The first page of a banded disk: who it is, how it is cut, and where its table stands. Written once, twice (the second
//! copy at [`COPY_AT`]); everything else about the layout follows from it.

use super::table::{ENTRIES_PER_BLOCK, PAYLOAD, RECORDS_PER_BLOCK};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of every block of the table, and of the header: on disks of 512-byte blocks they are several, and the checksum
/// finds what is torn between them.
pub(super) const PAGE: usize = 4096;
/// Where the second copy of the header stands.
pub(super) const COPY_AT: u64 = 64 << 10;
/// Where the live part begins.
const LIVE_AT: u64 = 128 << 10;
/// Bytes of a band's live word.
pub(super) const LIVE_WORD: usize = 16;
/// Data begins at a multiple of this on disks that are large enough.
const DATA_ALIGN: u64 = 1 << 20;
/// The log of a large disk: so many slots.
const MOST_SLOTS: u64 = 1024;
const LEAST_SLOTS: u64 = 16;
/// Half of the staging area of a large disk, in bytes: small writes of all bands between two flushes.
const HALF: usize = 200 << 10;
/// Bands of a disk at most; more would make a table that takes long to read.
const MOST_BANDS: u64 = 1 << 24;

pub(super) const MAGIC: [u8; 8] = *b"IMBXBAND";
/// From version 2 on batches carry small writes. A table of version 1 is used as it is, so that the program that made it still can.
const VERSION: u32 = 2;
const LEN: u32 = size_of::<Raw>() as u32;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    /// Bytes of this structure.
    len: U32,
    /// CRC-32C of the structure with this field 0.
    crc: U32,
    block: U32,
    uuid: [u8; 16],
    band: U64,
    bands: U32,
    conventional: U32,
    slots: U32,
    reserved: U32,
    data_at: U64,
}

/// How a disk is cut into bands. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Version of the table, 1 or 2.
    pub version: u32,
    /// Identity of the table; new whenever one is made.
    pub uuid: [u8; 16],
    /// Logical block of the drive: 512 or 4096.
    pub block: u32,
    /// Size of a band, whole pages of 4096.
    pub band: u64,
    /// Number of bands, conventional ones included.
    pub bands: u32,
    /// How many from the first stay conventional.
    pub conventional: u32,
    /// Slots of each log; a slot is two blocks of 4096.
    pub slots: u32,
    /// Where band 0 begins.
    pub data_at: u64,
}

impl Layout {
    /// Cuts `size` bytes into bands. `conventional`: how many stay so; `None` for one in a hundred, four at least.
    /// Errors are sentences.
    pub fn plan(size: u64, block: u32, band: u64, conventional: Option<u32>) -> Result<Layout, String> {
        if block != 512 && block != 4096 {
            return Err(format!("a block of {block} bytes; blocks are of 512 or 4096 bytes"));
        }
        if band < 16 * PAGE as u64 || !band.is_multiple_of(PAGE as u64) || band > 1 << 40 {
            return Err(format!(
                "a band of {band} bytes; bands are whole multiples of 4096 bytes, from 64K to 1T, as 80M"
            ));
        }
        let most = size / band;
        if most > MOST_BANDS {
            return Err(format!("{most} bands of {band} bytes are too many; use larger bands, {MOST_BANDS} at most"));
        }
        let least_slots = most.div_ceil(RECORDS_PER_BLOCK as u64) + LEAST_SLOTS;
        let slots = (size / (512 * PAGE as u64)).clamp(LEAST_SLOTS, MOST_SLOTS).max(least_slots) as u32;
        // As many bands as are left when the table for that many has its place.
        let (version, uuid) = (VERSION, [0; 16]);
        let mut layout = Layout { version, uuid, block, band, bands: most as u32, conventional: 0, slots, data_at: 0 };
        loop {
            let align = DATA_ALIGN.min(band.next_power_of_two());
            layout.data_at = layout.table_end().next_multiple_of(align);
            let left = size.saturating_sub(layout.data_at) / band;
            if left >= u64::from(layout.bands) {
                break;
            }
            layout.bands = left as u32;
        }
        if layout.bands < 3 {
            return Err(format!(
                "{size} bytes make {} bands of {band} bytes beside the band table, and three at least are needed; use a \
                 larger disk or smaller bands",
                layout.bands
            ));
        }
        let usual = (layout.bands / 100).max(4).min(layout.bands / 2);
        layout.conventional = conventional.unwrap_or(usual);
        if layout.conventional >= layout.bands {
            return Err(format!(
                "{} conventional bands of {} in all leave no sequential one; use fewer",
                layout.conventional, layout.bands
            ));
        }
        Ok(layout)
    }

    /// Whether everything fits together, on a disk of `size` bytes.
    fn fits(&self, size: u64) -> bool {
        let end = u64::from(self.bands).checked_mul(self.band).and_then(|bytes| bytes.checked_add(self.data_at));
        (self.block == 512 || self.block == 4096)
            && self.band >= 16 * PAGE as u64
            && self.band.is_multiple_of(PAGE as u64)
            && self.band <= 1 << 40
            && self.bands >= 3
            && u64::from(self.bands) <= MOST_BANDS
            && self.conventional < self.bands
            && u64::from(self.slots) >= LEAST_SLOTS
            && self.slots as usize >= (self.bands as usize).div_ceil(RECORDS_PER_BLOCK)
            && u64::from(self.slots) <= MOST_BANDS
            && self.data_at.is_multiple_of(PAGE as u64)
            && self.data_at >= self.table_end()
            && end.is_some_and(|end| end <= size)
    }

    /// Blocks of `block` bytes that a band holds.
    pub(super) fn capacity(&self) -> u64 {
        self.band / u64::from(self.block)
    }

    /// The live part: a page for its header, then a word for each band, then the staging area.
    pub(super) fn live_at(&self) -> u64 {
        LIVE_AT
    }
    pub(super) fn live_len(&self) -> usize {
        (self.staging_at() - LIVE_AT) as usize + if self.half() > 0 { PAGE + 2 * self.half() } else { 0 }
    }
    /// The staging area: a page for its header, then two halves.
    pub(super) fn staging_at(&self) -> u64 {
        LIVE_AT + (PAGE + (self.bands as usize * LIVE_WORD).next_multiple_of(PAGE)) as u64
    }
    pub(super) fn half_at(&self, half: usize) -> u64 {
        self.staging_at() + (PAGE + half * self.half()) as u64
    }
    /// Bytes of half of the staging area; 0: there is none. A batch that carries both halves, beside a record of each band, fits into
    /// an empty log.
    pub(super) fn half(&self) -> usize {
        if self.version < 2 {
            return 0;
        }
        let slots = (self.slots as usize).saturating_sub((self.bands as usize).div_ceil(RECORDS_PER_BLOCK));
        ((slots / 2).saturating_sub(1) * PAYLOAD).min(HALF) / PAGE * PAGE
    }
    /// Behind the head, on a multiple of 16.
    pub(super) fn live_mark_at(&self) -> u64 {
        LIVE_AT + super::table::LIVE_HEAD.next_multiple_of(super::table::LIVE_MARK) as u64
    }
    pub(super) fn live_word_at(&self, band: u32) -> u64 {
        LIVE_AT + PAGE as u64 + u64::from(band) * LIVE_WORD as u64
    }
    /// The page of counters.
    pub(super) fn counters_at(&self) -> u64 {
        LIVE_AT + self.live_len() as u64
    }
    /// Blocks of a snapshot.
    pub(super) fn snapshot_blocks(&self) -> usize {
        (self.bands as usize).div_ceil(ENTRIES_PER_BLOCK)
    }
    /// Where the snapshot of this generation stands; its log is behind it.
    pub(super) fn snapshot_at(&self, generation: u64) -> u64 {
        self.counters_at() + PAGE as u64 + (generation % 2) * self.pair_len()
    }
    pub(super) fn log_at(&self, generation: u64) -> u64 {
        self.snapshot_at(generation) + (self.snapshot_blocks() * PAGE) as u64
    }
    pub(super) fn log_len(&self) -> u64 {
        u64::from(self.slots) * 2 * PAGE as u64
    }
    fn pair_len(&self) -> u64 {
        (self.snapshot_blocks() * PAGE) as u64 + self.log_len()
    }
    /// Where the table ends.
    pub(super) fn table_end(&self) -> u64 {
        self.snapshot_at(0) + 2 * self.pair_len()
    }
    /// Where a band begins.
    pub(super) fn start(&self, band: u32) -> u64 {
        self.data_at + u64::from(band) * self.band
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut raw = Raw {
            magic: MAGIC,
            version: self.version.into(),
            len: LEN.into(),
            crc: 0.into(),
            block: self.block.into(),
            uuid: self.uuid,
            band: self.band.into(),
            bands: self.bands.into(),
            conventional: self.conventional.into(),
            slots: self.slots.into(),
            reserved: 0.into(),
            data_at: self.data_at.into(),
        };
        raw.crc = crc32c::crc32c(raw.as_bytes()).into();
        let mut page = raw.as_bytes().to_vec();
        page.resize(PAGE, 0);
        page
    }
}

/// Why a page is not the header of a banded disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHeader {
    /// Something else, or nothing, stands there.
    Foreign,
    /// A header of ours that is damaged.
    Damaged,
    /// A header of ours, for a disk that was larger: it had so many bytes at least.
    Shrunk(u64),
    /// A later version, which this program must not touch.
    Newer,
}

/// The header in `page`, for a disk of `size` bytes.
pub fn decode_header(page: &[u8], size: u64) -> Result<Layout, NoHeader> {
    let Ok((raw, rest)) = Raw::read_from_prefix(page) else {
        return Err(if page.starts_with(&MAGIC) { NoHeader::Damaged } else { NoHeader::Foreign });
    };
    let unsealed = Raw { magic: MAGIC, crc: 0.into(), ..raw };
    if raw.magic != MAGIC {
        // Ours but for the magic is ours.
        let ours = raw.crc.get() == crc32c::crc32c(unsealed.as_bytes());
        return Err(if ours { NoHeader::Damaged } else { NoHeader::Foreign });
    }
    // The checksum of a later version covers more: what it says of its version is believed as it stands.
    if raw.version.get() > VERSION {
        return Err(NoHeader::Newer);
    }
    let sound = (1..=VERSION).contains(&raw.version.get())
        && raw.len.get() == LEN
        && raw.crc.get() == crc32c::crc32c(unsealed.as_bytes())
        && raw.reserved.get() == 0
        && rest.iter().all(|byte| *byte == 0);
    let layout = Layout {
        version: raw.version.get(),
        uuid: raw.uuid,
        block: raw.block.get(),
        band: raw.band.get(),
        bands: raw.bands.get(),
        conventional: raw.conventional.get(),
        slots: raw.slots.get(),
        data_at: raw.data_at.get(),
    };
    match sound && layout.fits(u64::MAX) {
        true if layout.fits(size) => Ok(layout),
        true => Err(NoHeader::Shrunk(layout.start(layout.bands))),
        false => Err(NoHeader::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_any_bit_matters() {
        let size = 64 << 20;
        let layout = Layout { uuid: [7; 16], ..Layout::plan(size, 4096, 1 << 20, Some(3)).unwrap() };
        let page = layout.encode();
        assert_eq!(decode_header(&page, size), Ok(layout));
        for bit in 0..8 * (LEN as usize + 8) {
            let mut bad = page.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_header(&bad, size).is_err(), "bit {bit}");
        }
        let needs = layout.start(layout.bands);
        assert_eq!(decode_header(&page, needs), Ok(layout));
        assert_eq!(decode_header(&page, needs - 1), Err(NoHeader::Shrunk(needs)), "a disk that has shrunk");
        let mut flipped = page.clone();
        flipped[0] ^= 1;
        assert_eq!(decode_header(&flipped, size), Err(NoHeader::Damaged), "a flipped bit makes it nobody else's");
        assert_eq!(decode_header(&[], size), Err(NoHeader::Foreign));
        let mut newer = page.clone();
        newer[8] = 3;
        assert_eq!(decode_header(&newer, size), Err(NoHeader::Newer));
    }

    #[test]
    fn plans_leave_room_for_the_table() {
        for (size, band) in [(4 << 20, 64 << 10), (1 << 30, 80 << 20), (14 << 40, 80 << 20), (100 << 20, 256 << 10)] {
            let layout = Layout::plan(size, 4096, band, None).unwrap();
            assert!(layout.fits(size), "{layout:?}");
            assert!(layout.data_at - layout.table_end() < 1 << 20);
            // All that one flush may carry, beside a record of each band, fits into a log.
            let most = super::super::table::batch_blocks(layout.bands as usize, 2 * layout.half());
            assert!(most <= layout.slots as usize && layout.half() >= PAGE, "{layout:?}");
            assert!(size - layout.start(layout.bands) < 2 * band, "{layout:?} wastes bands");
        }
        for (size, block, band, conventional) in
            [(1 << 20, 4096, 1 << 20, None), (1 << 30, 1000, 1 << 20, None), (1 << 30, 4096, 5000, None)]
        {
            assert!(Layout::plan(size, block, band, conventional).is_err());
        }
        assert!(Layout::plan(1 << 30, 4096, 80 << 20, Some(12)).is_err(), "no sequential band is left");
    }
}
