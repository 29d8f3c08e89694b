//! Profile files: no panic; what parses makes a configuration that is either sound or refused with a sentence, and its time model serves
//! commands anywhere on the drive.

#![no_main]

use imbrex_emulator::time::{Replay, replay};
use imbrex_emulator::{Config, Op, Overrides, Profile, TraceEntry};
use libfuzzer_sys::fuzz_target;

fn trace() -> Vec<TraceEntry> {
    let entry = |op, offset, len| TraceEntry {
        sequence: 0,
        op,
        cause: "wal",
        priority: "normal",
        zone: 0,
        offset,
        len,
        result: "ok",
    };
    let places = [0, 4096, 1 << 20, 300 << 20, 1 << 40, u64::MAX];
    let ops = [
        (Op::Open, 0),
        (Op::Write, 65_536),
        (Op::Read, 65_536),
        (Op::Flush, 0),
        (Op::Finish, 0),
        (Op::Reset, 0),
        (Op::Read, u32::MAX),
    ];
    places.into_iter().flat_map(|at| ops.map(|(op, len)| entry(op, at, len))).collect()
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Profile::parse(text) {
        Ok(profile) => {
            if let Err(error) = Config::new(&profile, &Overrides::default()).check() {
                assert!(!error.to_string().is_empty());
            }
            if let Ok(stats) = replay(&profile, &trace(), Replay { depth: 3, write_cache: true }) {
                assert!(stats.elapsed.is_finite() && stats.elapsed >= 0.0);
            }
        }
        Err(sentence) => assert!(!sentence.is_empty()),
    }
});
