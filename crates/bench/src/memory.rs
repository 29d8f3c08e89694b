//! `chunk-memory`: what the chunk store's index takes of the heap, counted by the allocator; SMRSTORE, section 6.5. A program of its own,
//! because everything in it is counted and other measurements should not pay for that. Prints JSON.

use imbrex_chunkstore::index::{Chunk, Index};
use imbrex_chunkstore::{ChunkId, StreamType};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Heap bytes of an index of so many sealed chunks of so many records, one a zone, with what the zones list of them.
fn heap(chunks: u64, records: u32) -> f64 {
    let before = Region::new(HEAP);
    let mut index = Index::default();
    let mut lists: Vec<Vec<u32>> = Vec::new();
    for n in 0..chunks {
        // Names in no order, as those of users.
        let mut chunk = Chunk::new(ChunkId::of_number(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)), n, StreamType::DATA);
        for at in 0..records {
            chunk.push(n as u32, 512 << 10, at * 130);
        }
        chunk.sealed = true;
        chunk.shrink();
        lists.push(vec![index.insert(chunk)]);
    }
    let stats = before.change();
    // The list of lists is one of this program.
    (stats.bytes_allocated - stats.bytes_deallocated - lists.capacity() * size_of::<Vec<u32>>()) as f64
}

fn main() {
    const CHUNKS: u64 = 100_000;
    let (few, many) = (heap(CHUNKS, 1), heap(CHUNKS, 65));
    let record = (many - few) / (64 * CHUNKS) as f64;
    let chunk = few / CHUNKS as f64 - record;
    let (chunks, records) = (20e12 / (256u64 << 20) as f64, 20e12 / (512u64 << 10) as f64);
    let all = chunks * chunk + records * record;
    let result = json!({
        "experiment": "chunk-memory",
        "bytes a chunk": chunk, "at most": 100, "paper, a chunk": 200,
        "bytes a record": record, "at most, a record": 8, "paper, a record": 8,
        "MB for 20 TB of chunks of 256 MiB in records of 512 KiB": all / 1e6,
    });
    println!("{result:#}");
    if chunk > 100.0 || record > 8.0 {
        eprintln!("chunk-memory: the index takes more than it may; look at crates/chunkstore/src/index");
        std::process::exit(1);
    }
}
