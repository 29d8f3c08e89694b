//! Small drives, and stores that flush and merge every few changes.

use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::{Kv, MergeOperator, Options};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::Arc;

/// 48 zones of 128 KiB, two of them conventional.
pub fn config() -> Config {
    Config { zone_size: 128 << 10, zone_capacity: 128 << 10, capacity: 6 << 20, conventional: 2, ..Config::tiny() }
}

/// A ZNS drive that takes eight active zones, and whose zones are smaller than their places.
pub fn few_active() -> Config {
    Config {
        conventional: 0,
        max_open: Some(8),
        max_active: Some(8),
        rotational: false,
        reads_cross_zones: false,
        reads_above_wp: false,
        zone_capacity: 120 << 10,
        ..config()
    }
}

pub fn configs() -> [Config; 3] {
    [config(), Config { write_cache: false, ..config() }, few_active()]
}

pub fn options() -> Options {
    Options {
        memtable_bytes: 24 << 10,
        table_bytes: 48 << 10,
        step_bytes: 20 << 10,
        cache_bytes: 64 << 10,
        segment_bytes: 16 << 10,
        volume: VolumeOptions {
            exec: Exec::Inline,
            survivor_bytes: 128 << 10,
            unit_bytes: 4 << 10,
            turn_bytes: 64 << 10,
        },
        ..Options::default()
    }
}

pub fn drive(config: &Config) -> Drive {
    Drive { device: Arc::new(Emulator::memory(config).unwrap()), survivor: None }
}

pub fn value(seed: u64, len: usize) -> Vec<u8> {
    let (mut all, mut x, mut odd) = (vec![0; len], seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1u64);
    // The squares of all numbers are added to the seed's, without checks of overflow.
    for byte in &mut all {
        *byte = (x >> 11) as u8;
        (x, odd) = (x.wrapping_add(odd), odd.wrapping_add(2));
    }
    all
}

/// The same, but every second seed has bytes that become fewer when they are compressed.
pub fn mixed(seed: u64, len: usize) -> Vec<u8> {
    if seed.is_multiple_of(2) {
        let mut all = value(seed, len / 4 + 1).repeat(4);
        all.truncate(len);
        all
    } else {
        value(seed, len)
    }
}

pub fn formatted(config: &Config) -> Drive {
    let drive = drive(config);
    Kv::format(&drive, Some([9; 16]), false).unwrap();
    drive
}

/// Appends operands to a value, each behind a stroke; may combine them.
pub struct Append {
    pub combines: bool,
}

impl MergeOperator for Append {
    fn merge(&self, key: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
        assert!(key.starts_with(b"k") && !operands.is_empty());
        appended(value, operands.iter().copied())
    }

    fn combine(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        assert!(operands.len() > 1);
        self.combines.then(|| operands.join(&b'|'))
    }
}

/// What [`Append`] makes.
pub fn appended<'a>(value: Option<&[u8]>, operands: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut value = value.map_or_else(|| b"new".to_vec(), <[u8]>::to_vec);
    operands.into_iter().for_each(|operand| value = [&value, &b"|"[..], operand].concat());
    value
}
