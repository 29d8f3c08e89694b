//! The root blob: no panic, and what is accepted reads back as what it was.

#![no_main]

use imbrex_bluefs::journal::Root;
use libfuzzer_sys::fuzz_target;

const HEAD: usize = 40;
const ZONE: usize = 16;

fn check(bytes: &[u8]) {
    if let Ok(root) = Root::decode(bytes) {
        let written = root.encode();
        assert!(written.len() <= 1024, "it fits into a label");
        assert_eq!(Root::decode(&written), Ok(root), "a root reads back");
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    if data.len() < HEAD {
        return;
    }
    let zones = (data.len() - HEAD) / ZONE;
    let mut sealed = data[..HEAD + zones * ZONE].to_vec();
    sealed[..4].copy_from_slice(b"IMjr");
    sealed[4..8].fill(0);
    sealed[8..10].copy_from_slice(&1u16.to_le_bytes());
    sealed[10..12].copy_from_slice(&(zones as u16).to_le_bytes());
    let crc = crc32c::crc32c(&sealed);
    sealed[4..8].copy_from_slice(&crc.to_le_bytes());
    check(&sealed);
});
