//! Records of block images: their headers, snapshots, and when an object came; and streams of changes, as `import-diff` takes them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| imbrex_image::fuzz_records(data));
