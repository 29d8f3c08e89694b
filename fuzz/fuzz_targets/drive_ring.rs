//! The ring of pre-images in a drive image: no panic, and no bytes but those of the ring.
//!
//! Input: where the ring's tail and head are (8 bytes), then the ring.

#![no_main]

use imbrex_emulator::decode_ring;
use libfuzzer_sys::fuzz_target;

const UNIT: usize = 64;

fn check(ring: &[u8], tail: u64, head: u64) {
    if let Ok(records) = decode_ring(ring, tail, head) {
        let mut bytes = 0;
        for record in &records {
            assert!(record.bytes.end <= ring.len(), "within the ring");
            bytes += UNIT + record.bytes.len();
        }
        assert!(bytes <= ring.len(), "no byte twice");
    }
}

/// Makes the records from `tail` on believe that they stand where they do, checksums included.
fn seal(ring: &mut [u8], tail: u64, head: u64) {
    let lap = ring.len() as u64;
    let mut position = tail;
    while position < head {
        let at = (position % lap) as usize;
        let len = u32::from_le_bytes([ring[at + 12], ring[at + 13], ring[at + 14], ring[at + 15]]) as usize;
        let len = len.min(ring.len() - at - UNIT);
        let header = &mut ring[at..at + UNIT];
        header[..4].copy_from_slice(b"IXPI");
        header[4..6].copy_from_slice(&1u16.to_le_bytes());
        header[8..12].fill(0);
        header[12..16].copy_from_slice(&(len as u32).to_le_bytes());
        header[24..32].copy_from_slice(&position.to_le_bytes());
        let crc = crc32c::crc32c(&ring[at..at + UNIT + len]);
        ring[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
        position += (UNIT + len.next_multiple_of(UNIT)) as u64;
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((place, rest)) = data.split_first_chunk::<8>() else { return };
    let word = |i: usize| u64::from(u32::from_le_bytes([place[i], place[i + 1], place[i + 2], place[i + 3]]));
    let (tail, head) = (word(0), word(4));
    check(rest, tail, head);
    let units = rest.len() / UNIT;
    if units == 0 {
        return;
    }
    let mut ring = rest[..units * UNIT].to_vec();
    let tail = tail * UNIT as u64;
    let head = tail + head % (units as u64 + 1) * UNIT as u64;
    seal(&mut ring, tail, head);
    check(&ring, tail, head);
});
