//! Frames: arbitrary bytes as a zone. A scan ends without a panic, every frame it reports is whole and in its place, they
//! do not overlap, and the backward search agrees with it.
//!
//! Input: one byte of choices, then the zone. Wherever a block begins with the frame's magic, the fields that no fuzzer
//! guesses (file, life, place, checksums) are made right, as often as the choices say.

#![no_main]

use imbrex_zones::frame::{FRAME_HEADER, Frame, FrameId, last_frame, scan, scan_payloads};
use libfuzzer_sys::fuzz_target;

const BLOCK: u32 = 512;
const ID: FrameId = FrameId { file: 5, life: 0x77 };

/// Seals the blocks that look like frames.
fn seal(zone: &mut [u8]) {
    for at in (0..zone.len()).step_by(BLOCK as usize) {
        let header = &zone[at..at + FRAME_HEADER];
        if header[..4] != *b"IMfr" {
            continue;
        }
        let word =
            |from: usize| u32::from_le_bytes([header[from], header[from + 1], header[from + 2], header[from + 3]]);
        let long = |from: usize| u64::from(word(from)) | u64::from(word(from + 4)) << 32;
        let (flags, len) = (word(4) >> 16, word(48));
        let end = at + FRAME_HEADER + len as usize;
        // An odd flag leaves the payload's checksum as it is: a torn frame.
        let crc = zone.get(at + FRAME_HEADER..end).filter(|_| flags & 1 == 0).map_or(word(56), crc32c::crc32c);
        let frame =
            Frame { sequence: long(24), logical: long(32), at: at as u64, len, back: word(52), payload_crc: crc };
        zone[at..at + FRAME_HEADER].copy_from_slice(&frame.encode(ID));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((choices, rest)) = data.split_first() else { return };
    let mut zone = rest.to_vec();
    zone.resize(zone.len().next_multiple_of(BLOCK as usize), 0);
    if choices & 1 == 1 {
        seal(&mut zone);
    }
    let to = zone.len() as u64;
    let mut read = |at: u64, buf: &mut [u8]| {
        buf.copy_from_slice(&zone[at as usize..at as usize + buf.len()]);
        Ok(())
    };
    let found = scan(&mut read, ID, 0, to, BLOCK).expect("nothing that is read fails");
    let mut end = 0;
    for frame in &found.frames {
        assert!(frame.at >= end && frame.at % u64::from(BLOCK) == 0, "frames in order");
        end = frame.at + frame.footprint(BLOCK);
        assert!(end <= to, "a frame ends in the zone");
        let from = frame.at as usize + FRAME_HEADER;
        let payload = &zone[from..from + frame.len as usize];
        assert_eq!(crc32c::crc32c(payload), frame.payload_crc, "a whole payload");
        assert_eq!(Frame::decode(&zone[frame.at as usize..], ID, frame.at), Some(*frame));
    }
    let mut payloads = 0;
    let mut each = |frame: &Frame, payload: &[u8]| {
        payloads += 1;
        assert_eq!((payload.len(), crc32c::crc32c(payload)), (frame.len as usize, frame.payload_crc), "its payload");
    };
    let again = scan_payloads(&mut read, ID, (0, to), BLOCK, None, &mut each).expect("nothing that is read fails");
    assert_eq!((&again, payloads), (&found, found.frames.len()), "the same frames, each with its payload");
    // The backward search may take a frame inside another one's payload for the last, but never finds less.
    let last = last_frame(&mut read, ID, (0, to), BLOCK, to, |_| true).expect("nothing that is read fails");
    assert!(last.frame.map(|f| f.at) >= found.frames.last().map(|f| f.at), "the last frame is found from behind");
});
