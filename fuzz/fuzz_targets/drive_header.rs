//! The first page of a drive image: no panic; what is accepted makes a drive.

#![no_main]

use imbrex_emulator::decode_header;
use libfuzzer_sys::fuzz_target;

const PAGE: usize = 4096;
const CRC_AT: usize = 16;

fn check(bytes: &[u8]) {
    if let Ok(header) = decode_header(bytes) {
        assert!(header.config.check().is_ok(), "a configuration that makes a drive");
        assert!(header.index < header.files);
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut sealed = data.to_vec();
    sealed.resize(PAGE, 0);
    sealed[..8].copy_from_slice(b"IMBRXDRV");
    sealed[8..12].copy_from_slice(&1u32.to_le_bytes());
    sealed[12..16].copy_from_slice(&(PAGE as u32).to_le_bytes());
    sealed[CRC_AT..CRC_AT + 4].fill(0);
    let crc = crc32c::crc32c(&sealed);
    sealed[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    check(&sealed);
});
