//! What the index takes of the heap, counted by the allocator.

use imbrex_chunkstore::entry::names::{Member, NameEntry};
use imbrex_chunkstore::index::{Chunk, Index};
use imbrex_chunkstore::names::Names;
use imbrex_chunkstore::{ChunkId, StreamType};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Heap bytes of an index of so many sealed chunks of so many records, with what their zones list of them.
fn heap(chunks: u64, records: u32, shuffled: bool) -> usize {
    let before = Region::new(HEAP);
    let mut index = Index::default();
    let mut lists: Vec<Vec<u32>> = Vec::new();
    for n in 0..chunks {
        let id = if shuffled { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { n };
        let mut chunk = Chunk::new(ChunkId::of_number(id), n, StreamType::DATA);
        for at in 0..records {
            chunk.push(n as u32, 512 << 10, at * 130);
        }
        chunk.sealed = true;
        chunk.shrink();
        let slot = index.insert(chunk);
        lists.push(vec![slot]);
    }
    let stats = before.change();
    let held = stats.bytes_allocated - stats.bytes_deallocated;
    assert_eq!(index.len() as u64, chunks);
    // The list of lists itself is one of this test.
    held - lists.capacity() * size_of::<Vec<u32>>()
}

/// A chunk without a name costs nothing more. Not a test of its own: the heap is counted as a whole.
fn a_name_takes_its_bytes_and_not_much_more() {
    let (count, text) = (100_000u64, "photos/2026/11/".len() + 8);
    let before = Region::new(HEAP);
    let mut names = Names::default();
    assert_eq!(before.change().bytes_allocated, 0);
    for n in 0..count {
        let members = vec![Member { id: ChunkId::of_number(n), serial: n }];
        names.apply(NameEntry { name: format!("photos/2026/11/{n:08}").into(), number: n + 1, members });
    }
    let stats = before.change();
    let each = (stats.bytes_allocated - stats.bytes_deallocated) as f64 / count as f64 - text as f64;
    println!("{each:.1} bytes a name of one chunk, beside the name's own");
    assert!(names.len() as u64 == count && each <= 200.0, "{each} bytes a name");
}

/// Issue 5: 100 bytes a chunk at most, and 8 a record. The two are told apart by two numbers of records.
#[test]
fn a_chunk_takes_a_hundred_bytes_and_a_record_eight() {
    a_name_takes_its_bytes_and_not_much_more();
    for shuffled in [false, true] {
        let chunks = 100_000;
        let (few, many) = (heap(chunks, 1, shuffled), heap(chunks, 65, shuffled));
        let record = (many - few) as f64 / (64 * chunks) as f64;
        let chunk = (few as f64 - record * chunks as f64) / chunks as f64;
        println!("shuffled {shuffled}: {chunk:.1} bytes a chunk, {record:.2} a record");
        assert!(chunk <= 100.0, "{chunk} bytes a chunk");
        assert!(record <= 8.0, "{record} bytes a record");
    }
}
