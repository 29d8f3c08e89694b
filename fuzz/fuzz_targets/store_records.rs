//! Records of the object store: onodes, extents, blobs, headers of runs, keys.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| imbrex_bluestore::fuzz_records(data));
