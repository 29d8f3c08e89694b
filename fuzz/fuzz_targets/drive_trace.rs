//! The header and the records of a drive's trace: no panic, and only names that exist.

#![no_main]

use imbrex_emulator::{decode_record, decode_trace_header};
use libfuzzer_sys::fuzz_target;

fn sealed<const N: usize>(data: &[u8], crc_at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    let n = data.len().min(N);
    bytes[..n].copy_from_slice(&data[..n]);
    bytes[crc_at..crc_at + 4].fill(0);
    let crc = crc32c::crc32c(&bytes);
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fuzz_target!(|data: &[u8]| {
    for bytes in [data, &sealed::<64>(data, 16)] {
        if let Ok(entries) = decode_trace_header(bytes) {
            assert!(entries > 0);
        }
    }
    for bytes in [data, &sealed::<48>(data, 28)] {
        if let Some(timed) = decode_record(bytes) {
            assert!(!timed.entry.cause.is_empty() && !timed.entry.result.is_empty());
        }
    }
});
