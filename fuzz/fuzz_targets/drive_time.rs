//! What a drive keeps of its time: header and state: no panic, and a state that is understood is written as it was read.

#![no_main]

use imbrex_emulator::decode_time_header;
use imbrex_emulator::time::decode_kept;
use libfuzzer_sys::fuzz_target;

/// The bytes with a right checksum at `at`, over all of them.
fn sealed(data: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.fill(0);
        let crc = crc32c::crc32c(&bytes);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    let header = &data[..data.len().min(64)];
    for bytes in [header, &sealed(header, 16)] {
        if let Ok(header) = decode_time_header(bytes) {
            assert!(header.room > 0);
        }
    }
    // The length is the whole input's, so that the checksum fits.
    let mut state = data.to_vec();
    if let Some(len) = state.get_mut(16..24) {
        len.copy_from_slice(&(data.len() as u64).to_le_bytes());
    }
    for bytes in [data, &sealed(&state, 12)] {
        if let Some(kept) = decode_kept(bytes) {
            assert!(kept.clock >= 0.0 && (0.0..=1.0).contains(&kept.stroke));
        }
    }
});
