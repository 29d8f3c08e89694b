//! Streams of objects, as they are and with right checksums; and labels of stores.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| imbrex_store::fuzz_stream(data));
