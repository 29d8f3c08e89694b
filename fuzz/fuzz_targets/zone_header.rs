//! Zone headers: whatever the bytes, decoding does not panic, and what is accepted is what would be written.

#![no_main]

use imbrex_zones::ZoneHeader;
use libfuzzer_sys::fuzz_target;

const LENGTH: usize = 336;
const CRC_AT: usize = 16;

fn check(bytes: &[u8]) {
    if let Some(header) = ZoneHeader::decode(bytes) {
        let mut written = vec![0; 512];
        header.encode_into(&mut written);
        assert_eq!(ZoneHeader::decode(&written), Some(header), "a header reads back");
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    // No fuzzer guesses a checksum.
    let mut sealed = data.to_vec();
    sealed.resize(LENGTH, 0);
    sealed[CRC_AT..CRC_AT + 4].fill(0);
    let crc = crc32c::crc32c(&sealed);
    sealed[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    check(&sealed);
});
