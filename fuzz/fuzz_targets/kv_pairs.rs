//! Streams of pairs, as `imbrex kv load` and a restore read them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| imbrex_cli::fuzz_pairs(data));
