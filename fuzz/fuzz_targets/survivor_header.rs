//! The header page of the survivor's file: no panic, and one encoding.

#![no_main]

use imbrex_drives::survivor::Header;
use libfuzzer_sys::fuzz_target;

const LENGTH: usize = 88;
const CRC_AT: usize = 84;

fn check(bytes: &[u8]) {
    if let Some(header) = Header::decode(bytes) {
        assert_eq!(Header::decode(&header.encode()), Some(header), "a header reads back");
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut sealed = data.to_vec();
    sealed.resize(LENGTH, 0);
    sealed[CRC_AT..].fill(0);
    let crc = crc32c::crc32c(&sealed);
    sealed[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    check(&sealed);
});
