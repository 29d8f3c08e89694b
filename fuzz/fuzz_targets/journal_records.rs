//! The journal: arbitrary bytes as records. Each that is accepted is encoded as it was; a repairing replay of them leaves
//! metadata that is sound, and whose snapshot gives it again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| imbrex_bluefs::meta::fuzz_journal_bytes(data));
