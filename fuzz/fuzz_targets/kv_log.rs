//! Records of the key-value store's write-ahead log.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| imbrex_kv::fuzz_log(data));
