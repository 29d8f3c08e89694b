//! Notes of the key-value store's metadata.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| imbrex_kv::fuzz_metadata(data));
