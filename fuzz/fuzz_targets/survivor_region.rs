//! The survivor's region: what a dead process left is read without a panic, and never more than there is.

#![no_main]

use imbrex_zones::memory::{VERSION, parse, power_losses};
use libfuzzer_sys::fuzz_target;

const PAGE: usize = 4096;
const DESCRIPTOR: usize = 64;

fn check(region: &[u8]) {
    let left = parse(region);
    let _ = power_losses(region);
    let bytes: usize = left.iter().map(|segment| segment.bytes.len()).sum();
    assert!(bytes <= region.len(), "segments do not overlap");
    assert!(left.iter().all(|s| s.lost <= region.len() && (s.lost == 0 || s.bytes.is_empty())), "lost or there");
    assert!(left.windows(2).all(|w| (w[0].key.owner, w[0].key.file) <= (w[1].key.owner, w[1].key.file)), "sorted");
}

fn put(region: &mut [u8], at: usize, bytes: &[u8]) {
    region[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A region of units of one page whose descriptors are taken from `data`, checksums made right.
fn sealed(data: &[u8]) -> Vec<u8> {
    let units = (data.len() / DESCRIPTOR).clamp(1, 64);
    let mut region = vec![0; 2 * PAGE + units * (PAGE + DESCRIPTOR)];
    put(&mut region, 0, b"IMBXsegm");
    put(&mut region, 8, &VERSION.to_le_bytes());
    put(&mut region, 12, &(PAGE as u32).to_le_bytes());
    put(&mut region, 16, &(units as u32).to_le_bytes());
    let both = (PAGE as u64) << 32 | units as u64;
    let crc = crc32c::crc32c(&[*b"IMBXsegm", both.to_le_bytes()].concat());
    put(&mut region, 20, &crc.to_le_bytes());
    for (i, chunk) in data.chunks_exact(DESCRIPTOR).take(units).enumerate() {
        let mut d = [0; DESCRIPTOR];
        d.copy_from_slice(chunk);
        if d[60] & 1 == 0 {
            d[..4].copy_from_slice(b"EVIL");
            d[16..20].fill(0);
            // What the checksum covers: units, owner, front, zeros, file, life, logical.
            let crc = crc32c::crc32c(&[&d[4..20], &d[24..48]].concat());
            d[20..24].copy_from_slice(&crc.to_le_bytes());
        }
        if d[60] & 2 == 0 {
            // Payload is zeros, as long as the descriptor says.
            let len = u32::from_le_bytes([d[48], d[49], d[50], d[51]]) as usize;
            let crc = crc32c::crc32c(&vec![0; len.min(units * PAGE)]);
            d[52..56].copy_from_slice(&crc.to_le_bytes());
        }
        put(&mut region, PAGE + i * DESCRIPTOR, &d);
    }
    region
}

fuzz_target!(|data: &[u8]| {
    check(data);
    check(&sealed(data));
});
