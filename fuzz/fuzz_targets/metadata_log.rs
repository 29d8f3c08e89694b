//! The metadata log: its root, zone headers, frames, and items over several frames. Nothing panics, what is accepted reads back, and no item is longer than
//! what was read.
//!
//! Input: one byte of choices, then the bytes. As a root they get all that no fuzzer guesses; as frames they are cut at each byte 255.

#![no_main]

use imbrex_zones::ZoneHeader;
use imbrex_zones::log::Root;
use imbrex_zones::log::chain::Chain;
use imbrex_zones::log::format::{LOG_KIND, LogFrame, LogHead};
use imbrex_zones::log::items::Assembler;
use libfuzzer_sys::fuzz_target;

/// A root of these runs of zones, and of what is left for the engine.
fn root(choices: u8, rest: &[u8]) -> Vec<u8> {
    let (runs, engine) = rest.split_at(rest.len() / 8 * 8);
    let mut bytes = b"IMBXmlog".to_vec();
    for field in [u32::from(choices & 3), 24 + rest.len() as u32, 0] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    bytes.extend_from_slice(&[choices >> 2 & 3, choices >> 4 & 3]);
    bytes.extend_from_slice(&((runs.len() / 8) as u16).to_le_bytes());
    bytes.extend_from_slice(runs);
    bytes.extend_from_slice(engine);
    let crc = crc32c::crc32c(&bytes);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fuzz_target!(|data: &[u8]| {
    let Some((choices, rest)) = data.split_first() else { return };
    for bytes in [rest.to_vec(), root(*choices, rest)] {
        if let Ok(root) = Root::decode(&bytes) {
            let again = root.encode().map(|bytes| Root::decode(&bytes));
            assert_eq!(again, Some(Ok(root)), "what is read is written and reads back");
        }
    }
    if let Some(head) = LogHead::decode(rest) {
        assert_eq!(LogHead::decode(&head.encode()), Some(head));
    }
    if let Some(mut header) = ZoneHeader::decode(rest) {
        header.kind = LOG_KIND;
        let mut block = [0; 4096];
        header.encode_into(&mut block);
        LogHead::decode(&block);
    }
    let (mut items, mut chain, mut read) = (Assembler::default(), Chain::default(), 0);
    for (n, payload) in rest.split(|byte| *byte == 255).enumerate() {
        read += payload.len();
        let Some((frame, bytes)) = LogFrame::decode(n as u64, n as u64, payload) else {
            items.gap();
            continue;
        };
        items.put(frame.first as usize, bytes, &mut |item| assert!(item.len() < read));
        chain.put(frame.number, frame.before, frame.first as usize, bytes);
    }
    for start in [0, 1] {
        chain.since(start, &mut |number, record| assert!(number > start && record.len() < read));
    }
});
