//! IMBREX_METRICS: an address, a path, or a sentence; what was understood reads back.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        imbrex::fuzz_metrics_variable(text);
    }
});
