//! How long a hit of the block cache takes: `cargo run --release -p imbrex-zones --example block_cache`.
//!
//! 4 KiB from random pages of 16 KiB, once from a working set that stays in the processor's cache and once from one that
//! does not (then most of it is the memory's latency: the same copies without a cache stand beside it).

use imbrex_zones::cache::{BlockCache, DEFAULT_PAGE};
use std::hint::black_box;
use std::time::Instant;

const READ: usize = 4096;
const PAGE: usize = DEFAULT_PAGE as usize;
const ROUNDS: u64 = 2_000_000;

/// Nanoseconds a read, of `threads` threads that each read at random from `pages` pages.
fn measure(threads: u64, pages: u64, read: impl Fn(u64, usize, &mut [u8]) + Sync) -> f64 {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let read = &read;
            scope.spawn(move || {
                let (mut out, mut random) = ([0; READ], 0x9e37_79b9_7f4a_7c15 ^ (thread << 32));
                for _ in 0..ROUNDS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    read(random % pages, (random >> 40) as usize % (PAGE / READ) * READ, &mut out);
                    black_box(&out);
                }
            });
        }
    });
    began.elapsed().as_secs_f64() * 1e9 / ROUNDS as f64
}

fn main() {
    println!("ns a hit of {READ} bytes            copy alone   cached");
    for (what, pages) in [("1 MiB working set", 64), ("512 MiB working set", 32 << 10)] {
        let plain: Vec<Box<[u8]>> = (0..pages).map(|i| vec![i as u8; PAGE].into()).collect();
        let cache = BlockCache::new(pages * PAGE as u64 * 11 / 10, DEFAULT_PAGE);
        (0..pages).for_each(|i| cache.insert(i / 1000, i % 1000, &plain[i as usize]));
        for threads in [1, 4] {
            let copy = measure(threads, pages, |page, at, out| {
                out.copy_from_slice(&plain[page as usize][at..at + READ]);
            });
            let cached = measure(threads, pages, |page, at, out| {
                assert!(cache.read(page / 1000, page % 1000, at, out), "all of it is cached");
            });
            println!("{what:20} {threads} thread(s) {copy:12.0} {cached:8.0}");
        }
    }
}
