//! Damaged tables of the key-value store, as a salvage finds and reads them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| imbrex_kv::fuzz_salvage(data));
