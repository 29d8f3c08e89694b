//! What a drive's time model remembers from one opening to the next: its clock, where its head is, and what a drive-managed
//! drive has where.
//!
//! ```text
//! 0        80        8 each             24 each                     8 each
//! ┌────────┬─────────┬──────────────────┬───────────────────────────┐
//! │ header │ streams │ extents          │ bands with something, bits│
//! └────────┴─────────┴──────────────────┴───────────────────────────┘
//! ```
//!
//! It says nothing about data: whatever is wrong with it costs no more than that the drive begins at rest.

use super::translation::Translation;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const MAGIC: [u8; 8] = *b"IMBRXTST";
const VERSION: u32 = 1;
const HEADER: usize = 80;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: u32,
    /// CRC-32C of all of it with this field 0.
    crc: u32,
    /// Bytes of all of it.
    len: u64,
    /// The newer of two has the larger one.
    generation: u64,
    /// The drive's clock in nanoseconds, a double.
    clock: u64,
    /// Where the head is, 0 outside to 1 inside, a double.
    stroke: u64,
    /// Position at which the persistent cache's log goes on.
    log_head: u64,
    streams: u64,
    extents: u64,
    /// Words of the bits of bands.
    bands: u64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER);

/// The state in rest: nothing is waiting, nothing is in the write cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Which of two is newer.
    pub generation: u64,
    /// The drive's clock, in nanoseconds.
    pub clock: f64,
    /// Where the head is on the stroke, 0 outside to 1 inside.
    pub stroke: f64,
    /// Of a drive-managed drive.
    pub(crate) translation: Option<KeptTranslation>,
}

/// A translation layer's state. Everything in bytes but the bits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KeptTranslation {
    pub(crate) log_head: u64,
    pub(crate) streams: Vec<u64>,
    /// Address, length, position in the log; by address.
    pub(crate) extents: Vec<(u64, u64, u64)>,
    pub(crate) bands: Vec<u64>,
}

/// Most bytes of a kept state of a drive with this translation layer.
pub(crate) fn most_len(translation: Option<&Translation>) -> u64 {
    let parts = translation.map_or(0, |translation| {
        let (streams, extents, bands) = translation.limits();
        8 * streams + 24 * extents + 8 * bands
    });
    (HEADER + parts) as u64
}

impl Kept {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let none = KeptTranslation::default();
        let translation = self.translation.as_ref().unwrap_or(&none);
        let mut header = RawHeader {
            magic: MAGIC,
            version: VERSION,
            crc: 0,
            len: 0,
            generation: self.generation,
            clock: self.clock.to_bits(),
            stroke: self.stroke.to_bits(),
            log_head: translation.log_head,
            streams: translation.streams.len() as u64,
            extents: translation.extents.len() as u64,
            bands: translation.bands.len() as u64,
        };
        let extents = translation.extents.iter().flat_map(|(at, len, position)| [at, len, position]);
        let words = translation.streams.iter().chain(extents).chain(&translation.bands);
        let payload: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        header.len = (HEADER + payload.len()) as u64;
        header.crc = crc32c::crc32c_append(crc32c::crc32c(header.as_bytes()), &payload);
        [header.as_bytes(), &payload].concat()
    }
}

/// Bytes of the kept state whose first bytes these are; `None` where they are none, or one of more than `most` bytes.
pub(crate) fn kept_len(bytes: &[u8], most: u64) -> Option<u64> {
    let (raw, _) = RawHeader::read_from_prefix(bytes).ok()?;
    (raw.magic == MAGIC && (HEADER as u64..=most).contains(&raw.len)).then_some(raw.len)
}

/// Decodes a kept state; `None` where there is none, or it is damaged, torn or newer. Whether it fits the drive is seen when it is
/// put in place. Never panics.
pub fn decode_kept(bytes: &[u8]) -> Option<Kept> {
    let (raw, rest) = RawHeader::read_from_prefix(bytes).ok()?;
    let len = usize::try_from(raw.len).ok()?;
    if raw.magic != MAGIC || raw.version != VERSION {
        return None;
    }
    let payload = rest.get(..len.checked_sub(HEADER)?)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(RawHeader { crc: 0, ..raw }.as_bytes()), payload);
    let parts = raw.streams.checked_add(raw.extents.checked_mul(3)?)?.checked_add(raw.bands)?;
    if crc != raw.crc || parts.checked_mul(8)? != payload.len() as u64 {
        return None;
    }
    let (clock, stroke) = (f64::from_bits(raw.clock), f64::from_bits(raw.stroke));
    if !(0.0..1e18).contains(&clock) || !(0.0..=1.0).contains(&stroke) {
        return None;
    }
    let mut words = payload.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    let streams: Vec<u64> = words.by_ref().take(raw.streams as usize).collect();
    let mut extents = Vec::with_capacity(raw.extents as usize);
    for _ in 0..raw.extents {
        extents.push((words.next()?, words.next()?, words.next()?));
    }
    let bands: Vec<u64> = words.collect();
    let translation =
        (!bands.is_empty()).then_some(KeptTranslation { log_head: raw.log_head, streams, extents, bands });
    Some(Kept { generation: raw.generation, clock, stroke, translation })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let translation = KeptTranslation {
            log_head: 77 << 12,
            streams: vec![4096, 1 << 30],
            extents: vec![(0, 4096, 76 << 12), (1 << 20, 8192, 74 << 12)],
            bands: vec![3, 0, u64::MAX],
        };
        Kept { generation: 5, clock: 1.5e9, stroke: 0.25, translation: Some(translation) }
    }

    #[test]
    fn round_trips() {
        let plain = Kept { translation: None, ..kept() };
        for kept in [kept(), plain] {
            let mut bytes = kept.encode();
            assert_eq!(kept_len(&bytes, 4096), Some(bytes.len() as u64));
            assert_eq!(kept_len(&bytes, 79), None);
            // What an older, longer one left behind it does not matter.
            bytes.extend([9; 100]);
            assert_eq!(decode_kept(&bytes), Some(kept));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = kept().encode();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_kept(&bytes), None, "bit {bit}");
        }
        (0..good.len()).for_each(|len| assert_eq!(decode_kept(&good[..len]), None));
    }
}
