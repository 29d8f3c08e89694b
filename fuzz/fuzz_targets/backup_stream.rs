//! Backups: arbitrary bytes as a tar stream, with the checksums of its headers made right, are restored whole or not at all.

#![no_main]

use imbrex_bluefs::{BlueFs, Options};
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, VolumeOptions};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const BLOCK: usize = 512;

fn tiny() -> BlueFs {
    let drive = Drive { device: Arc::new(Emulator::memory(&Config::tiny()).expect("a drive")), survivor: None };
    BlueFs::format(&drive, false).expect("a format");
    let volume =
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 1 << 20, unit_bytes: 16 << 10, turn_bytes: 256 << 10 };
    let options = Options { cache_bytes: 0, segment_bytes: 64 << 10, volume, ..Options::default() };
    BlueFs::mount(drive, options).expect("a mount")
}

/// Walks a tar stream as its readers do, and seals each header.
fn seal(stream: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = stream.get_mut(at..at + BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            at += BLOCK;
            continue;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = header[124..136].iter().take_while(|byte| (b'0'..b'8').contains(byte));
        let size = digits.fold(0usize, |size, digit| size << 3 | usize::from(digit - b'0'));
        at = at.saturating_add(BLOCK).saturating_add(size.next_multiple_of(BLOCK));
    }
}

fuzz_target!(|data: &[u8]| {
    let fs = tiny();
    imbrex_cli::fuzz_restore(&fs, data);
    let mut sealed = data.to_vec();
    seal(&mut sealed);
    if sealed != data {
        imbrex_cli::fuzz_restore(&tiny(), &sealed);
    }
});
