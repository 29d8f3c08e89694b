//! The metrics that only object stores have.

use super::{Page, only};
use imbrex_store::Metrics;
use prometheus::proto::MetricType::{self, COUNTER, GAUGE};

pub(super) fn add(page: &mut Page, drives: &[Metrics]) {
    type Figure = fn(&Metrics) -> u64;
    let single: [(MetricType, &str, &str, Figure); 14] = [
        (GAUGE, "imbrex_store_objects", "Objects.", |d| d.objects),
        (GAUGE, "imbrex_store_bytes", "Bytes of all objects, holes with them.", |d| d.bytes),
        (GAUGE, "imbrex_store_stored_bytes", "Bytes of blocks that objects name on the drive, each once.", |d| {
            d.stored
        }),
        (GAUGE, "imbrex_store_deferred_bytes", "Bytes of blocks that wait among the metadata.", |d| d.deferred),
        (GAUGE, "imbrex_store_uncounted_changes", "Changes of counts that wait until many are made together.", |d| {
            d.uncounted
        }),
        (GAUGE, "imbrex_store_free_bytes", "Bytes of zones that are free for the store.", |d| d.free),
        (GAUGE, "imbrex_store_capacity_bytes", "Bytes that the store can have.", |d| d.capacity),
        (GAUGE, "imbrex_store_damaged_places", "Damaged places that the scrub knows.", |d| d.damaged),
        (COUNTER, "imbrex_store_reads_again_total", "Reads that went well when they were done once more.", |d| {
            d.read_again
        }),
        (COUNTER, "imbrex_store_reads_in_vain_total", "Reads that failed then, too.", |d| d.read_in_vain),
        (COUNTER, "imbrex_store_cache_hits_total", "Records that were in memory when they were asked for.", |d| {
            d.cache.hits
        }),
        (COUNTER, "imbrex_store_cache_misses_total", "Records that were not.", |d| d.cache.misses),
        (GAUGE, "imbrex_store_cache_bytes", "Bytes of memory of such records.", |d| d.cache.bytes),
        (COUNTER, "imbrex_store_moved_bytes_total", "Bytes that the cleaner has moved.", |d| d.moved),
    ];
    for (kind, name, help, figure) in single {
        page.add(drives, (kind, name, help), &[], |drive| only(figure(drive)));
    }
}
