//! Records of the chunk store: arbitrary bytes as a zone; and its superzone, finished and not. Nothing panics, and what is taken for a record is one.
//!
//! Input: one byte of choices, then the zone. Wherever a block begins with a record's magic, the fields that no fuzzer guesses
//! (life, place, checksums) are made right, as the choices say; so decoders behind the checksums are reached.

#![no_main]

use imbrex_chunkstore::entry::{CheckpointEnd, CheckpointStart, Part, entries};
use imbrex_chunkstore::format::{BLOCK, HEADER, Header, Kind, check_slice, zone_head};
use imbrex_chunkstore::root::Root;
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

/// A superzone of these runs of zones, with all that no fuzzer guesses made right.
fn superzone(version: u8, runs: &[u8]) -> Vec<u8> {
    let runs = &runs[..runs.len() / 8 * 8];
    let mut bytes = b"IMBXCHNK".to_vec();
    for field in [u32::from(version), 24 + runs.len() as u32, 0, runs.len() as u32 / 8] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(runs);
    let crc = crc32c::crc32c(&bytes);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes
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
        match header.kind {
            Kind::ZoneHead => drop(zone_head(&zone[at..])),
            Kind::CheckpointStart => drop(CheckpointStart::decode(payload)),
            Kind::CheckpointPart => drop(Part::decode(payload)),
            Kind::CheckpointEnd => drop(CheckpointEnd::decode(payload)),
            Kind::Journal => {
                if let Some(all) = entries(payload) {
                    let mut again = Vec::new();
                    all.iter().for_each(|entry| entry.encode(&mut again));
                    assert_eq!(entries(&again), Some(all), "what is read is written and reads back");
                }
            }
            Kind::Data => assert!(check_slice(payload, header.chunk, header.offset).is_none() || header.data <= 4096),
        }
    }
    entries(rest);
    Part::decode(rest);
    for bytes in [rest.to_vec(), superzone(choices >> 2, rest)] {
        if let Ok(root) = Root::decode(&bytes) {
            let again = root.encode().map(|bytes| Root::decode(&bytes));
            assert_eq!(again, Some(Ok(root)), "what is read is written and reads back");
        }
    }
});
