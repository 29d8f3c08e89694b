//! Writers whose segments are as short as a block: what stands in front of the bytes is as long.

mod support;

use imbrex_device::{Cause, Drive, HeapSurvivor, Priority};
use imbrex_emulator::Emulator;
use imbrex_zones::Volume;
use imbrex_zones::write::{Framing, WriterSpec, WriterStart};
use std::sync::{Arc, Mutex};
use support::{Engine, FILE, Keeper, Root, Stream, bytes, config, format, options};

/// A log in segments of a block, of units of a block; and what a mount finds of it.
fn in_blocks(framing: Framing) {
    let emulator = Emulator::memory(&config()).unwrap();
    let drive = Drive { device: Arc::new(emulator), survivor: Some(Arc::new(HeapSurvivor::new())) };
    format(&drive).unwrap();
    assert_eq!(options().unit_bytes, 4096);
    let volume = Volume::open(drive.clone(), options()).unwrap();
    let tenant = volume.tenant("log").unwrap();
    tenant.adoption_done();
    // From here on memory survives the process.
    tenant.recovered().unwrap();
    let root = Root { size: u64::MAX, ..Root::default() };
    let keeper = Arc::new(Keeper { tenant: tenant.clone(), root: Mutex::new(root), recovering: false.into() });
    let spec = WriterSpec {
        file: FILE,
        life: 1,
        framing,
        segment_bytes: 4096,
        segments: 2,
        cause: Cause::Wal,
        ordered: true,
        rank: None,
        deferred: 0,
    };
    let stream = Stream::new(&keeper, spec, WriterStart::default());
    // One by one, many at a time, and with a drain in between.
    for n in [1, 30_000, 5] {
        stream.append(&bytes(stream.len(), n)).unwrap();
        stream.drain(Priority::Normal).unwrap();
    }
    stream.append(&bytes(stream.len(), 6000)).unwrap();
    assert_eq!(stream.len(), 36_006);
    // The process dies with the last of it in memory.
    std::mem::forget((volume, tenant, stream));
    let engine = Engine::open(drive, framing).unwrap();
    assert!(engine.replayed > 0, "nothing was in memory");
    assert_eq!(engine.contents().unwrap(), bytes(0, 36_006));
}

#[test]
fn a_framed_log_goes_on_in_segments_of_a_block() {
    in_blocks(Framing::Framed);
}

#[test]
fn a_raw_log_goes_on_in_segments_of_a_block() {
    in_blocks(Framing::Raw);
}
