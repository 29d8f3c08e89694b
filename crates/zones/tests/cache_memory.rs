//! What the block cache says it holds is what it holds, and a hit allocates nothing: weighed with a counting allocator.
//!
//! One test function, because everything that runs beside it would be counted too.

use imbrex_zones::cache::BlockCache;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MIB: u64 = 1 << 20;

/// Pages that cost memory to come by and to lose: files of odd lengths, so that each ends in a short page; some forgotten.
fn fill(cache: &BlockCache, bytes: u64) {
    let page = u64::from(cache.page_size());
    let (mut file, mut done) = (0, 0);
    while done < bytes {
        let len = (file * 7_919 + 1) % (40 * page) + page;
        for at in (0..len).step_by(page as usize) {
            cache.insert(file, at / page, &vec![1; page.min(len - at) as usize]);
        }
        if file % 5 == 4 {
            cache.forget_file(file - 2, 41);
        }
        done += len;
        file += 1;
    }
}

#[test]
fn held_bytes_is_what_the_heap_says_and_a_hit_allocates_nothing() {
    // The small pages are there because on them a wrong cost of an entry shows.
    for (page, capacity) in [(16 << 10, 64 * MIB), (16 << 10, 4 * MIB), (4096, 32 * MIB), (1024, 16 * MIB)] {
        // Nearly full; overflowing; overflowing for long, so that the memory of evicted pages counts too.
        for written in [capacity * 8 / 10, capacity * 2, capacity * 8] {
            let heap = Region::new(COUNTED);
            let cache = BlockCache::new(capacity, page);
            fill(&cache, written);
            let change = heap.change();
            let real = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
            let said = cache.held_bytes() as f64;
            let what = format!("pages of {page}, {written} bytes into {capacity}: {said} said, {real} real");
            assert!((0.95..1.05).contains(&(real / said)), "{what}");
            assert!(real <= 1.03 * capacity as f64, "{what}");
            assert!(said >= 0.5 * capacity as f64, "{what}");
        }
    }

    let cache = BlockCache::new(MIB, 4096);
    cache.insert(1, 0, &[7; 4096]);
    let (mut out, heap) = ([0; 4096], Region::new(COUNTED));
    for _ in 0..1000 {
        assert!(cache.read(1, 0, 0, &mut out));
    }
    let change = heap.change();
    assert_eq!((change.allocations, change.reallocations, change.deallocations), (0, 0, 0));
    assert_eq!(out, [7; 4096]);
}
