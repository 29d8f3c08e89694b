//! Tiny engines, correct ones and ones with a known defect, to show that the explorer finds defects.

#![allow(dead_code, reason = "each test file uses its own share")]

pub mod batches;
pub mod pair;

use imbrex_crashkit::Config;
use imbrex_device::{AlignedBuf, Cause, Tag, ZonedDevice};

pub const TAG: Tag = Tag::new(Cause::Journal);
pub const BLOCK: usize = 4096;

/// Eight zones of 512 KiB, two of them conventional.
pub fn config() -> Config {
    Config { zone_size: 512 << 10, zone_capacity: 512 << 10, capacity: 4 << 20, conventional: 2, ..Config::tiny() }
}

pub fn text(error: imbrex_device::Error) -> String {
    error.to_string()
}

/// Reads whole blocks.
pub fn read(device: &dyn ZonedDevice, at: u64, blocks: usize) -> Result<AlignedBuf, String> {
    let mut buf = AlignedBuf::zeroed(blocks * BLOCK);
    device.read_at(&mut buf, at, TAG).map_err(text)?;
    Ok(buf)
}

/// A block of eight-byte words behind a checksum.
pub fn seal(block: &mut [u8], words: &[u64]) {
    for (slot, word) in block[8..].chunks_exact_mut(8).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    let crc = crc32c::crc32c(&block[8..]);
    block[..8].copy_from_slice(&(u64::from(crc) | 0x696d_6272 << 32).to_le_bytes());
}

/// Whether the bytes are as `seal` made them.
pub fn sealed(block: &[u8]) -> bool {
    word(block, 0) == u64::from(crc32c::crc32c(&block[8..])) | 0x696d_6272 << 32
}

/// The word at this index, the checksum being the first.
pub fn word(block: &[u8], index: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[index * 8..index * 8 + 8]);
    u64::from_le_bytes(bytes)
}
