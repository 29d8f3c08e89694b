//! Labels: whatever the bytes, decoding does not panic, and what is accepted is what would be written.

#![no_main]

use imbrex_zones::label::{Label, VERSION};
use libfuzzer_sys::fuzz_target;

/// Where length, checksum and number of zones stand, as docs/on-disk-format.md draws them.
const LENGTH_AT: usize = 12;
const CRC_AT: usize = 16;
const ZONES_AT: usize = 68;

fn check(bytes: &[u8]) {
    if let Ok(label) = Label::decode(bytes) {
        let written = label.encode();
        // The version before is read, too, and written as the one of today.
        if bytes[8..12] == VERSION.to_le_bytes() {
            assert_eq!(written, bytes[..written.len()], "a label has one encoding");
        }
        assert_eq!(Label::decode(&written), Ok(label));
    }
}

fn put(bytes: &mut [u8], at: usize, n: usize) {
    bytes[at..at + 4].copy_from_slice(&(n as u32).to_le_bytes());
}

fuzz_target!(|data: &[u8]| {
    check(data);
    // No fuzzer guesses a checksum: give it the right one, and the sizes that fit.
    let mut sealed = data.to_vec();
    let Some(zones) = sealed.len().checked_sub(Label::encoded_len(0)) else { return };
    put(&mut sealed, LENGTH_AT, data.len());
    put(&mut sealed, ZONES_AT, zones);
    put(&mut sealed, CRC_AT, 0);
    let crc = crc32c::crc32c(&sealed);
    put(&mut sealed, CRC_AT, crc as usize);
    check(&sealed);
});
