//! What the tests on tiny drives have in common.

use imbrex_bluefs::{BlueFs, Options, Policy};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

/// For tiny drives: small buffers, no cache, a journal that is not compacted by the way, background work by steps.
pub fn options() -> Options {
    Options {
        cache_bytes: 0,
        journal_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        volume: VolumeOptions {
            exec: Exec::Inline,
            survivor_bytes: 4 << 20,
            unit_bytes: 16 << 10,
            turn_bytes: 256 << 10,
        },
        ..Options::default()
    }
}

/// Every file in zones of its own.
pub struct Apart;

impl Policy for Apart {
    fn shares(&self) -> bool {
        false
    }
}

/// The same where every file has zones of its own, so that it is known what stands where, and when there is none left.
pub fn apart() -> Options {
    Options { policy: Arc::new(Apart), ..options() }
}

/// Where files share zones, or do not.
pub fn sharing(share: bool) -> Options {
    if share { options() } else { apart() }
}

/// Bytes that differ by place and seed.
pub fn bytes(n: usize, seed: u8) -> Vec<u8> {
    bytes_from(0, n, seed)
}

/// The same from this byte on.
pub fn bytes_from(at: usize, n: usize, seed: u8) -> Vec<u8> {
    let (mut all, mut x) = (vec![0; n], (at as u32).wrapping_mul(2_654_435_761));
    for byte in &mut all {
        *byte = (x >> 16) as u8 ^ seed;
        x = x.wrapping_add(2_654_435_761);
    }
    all
}

/// All of a file.
pub fn read_all(fs: &BlueFs, path: &str) -> Vec<u8> {
    let reader = fs.open_read(path).unwrap();
    let mut out = vec![0; reader.size() as usize];
    assert_eq!(reader.read_at(0, &mut out).unwrap(), out.len(), "{path}");
    out
}
