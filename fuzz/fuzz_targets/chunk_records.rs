//! Records of the chunk store: arbitrary bytes as a zone. Nothing panics, and what is taken for a record is one.
//!
//! Input: one byte of choices, then the zone. Wherever a block begins with a record's magic, the fields that no fuzzer guesses
//! (life, place, checksums) are made right, as the choices say; so decoders behind the checksums are reached.

#![no_main]

use imbrex_chunkstore::entry::{Entry, Part};
use imbrex_chunkstore::format::{BLOCK, HEADER, Header, check_slice};
use libfuzzer_sys::fuzz_target;

/// Makes the checksums of a record right whose header begins here.
fn seal(zone: &mut [u8], at: usize) {
    if zone.len() < at + HEADER || zone[at..at + 8] != *b"IMBXCrec" {
        return;
    }
    let length = u32::from_le_bytes([zone[at + 12], zone[at + 13], zone[at + 14], zone[at + 15]]) as usize;
    if let Some(payload) = zone.get(at + HEADER..at + length.max(HEADER)) {
        let crc = crc32c::crc32c(payload);
        zone[at + 20..at + 24].copy_from_slice(&crc.to_le_bytes());
    }
    zone[at + 16..at + 20].fill(0);
    let crc = crc32c::crc32c(&zone[at..at + HEADER]);
    zone[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
}

fuzz_target!(|data: &[u8]| {
    let Some((choices, rest)) = data.split_first() else { return };
    let mut zone = rest.to_vec();
    for at in (0..zone.len()).step_by(if choices & 2 == 0 { 64 } else { BLOCK }) {
        if choices & 1 == 1 {
            seal(&mut zone, at);
        }
        let Ok(header) = Header::decode_anywhere(&zone[at..]) else { continue };
        assert_eq!(Header::decode_anywhere(&header.encode()), Ok(header), "one encoding only");
        let payload = &zone[at + HEADER..];
        if !header.verify(payload) {
            continue;
        }
        let payload = &payload[..header.length as usize - HEADER];
        assert!(check_slice(payload, header.chunk, header.offset).is_none() || header.data <= 4096);
    }
    if let Some(entry) = Entry::decode(rest) {
        let mut again = Vec::new();
        entry.encode(&mut again);
        assert_eq!(Entry::decode(&again), Some(entry), "what is read is written and reads back");
    }
    Part::decode(rest);
});
