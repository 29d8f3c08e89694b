//! The metrics that only key-value stores have.

use super::{Page, only};
use imbrex_kv::Metrics;
use prometheus::proto::MetricType::{self, COUNTER, GAUGE};

/// A figure of each level, under its name: the bottom is the last.
fn by_level<T>(levels: &[T], figure: impl Fn(&T) -> f64) -> Vec<(Vec<String>, f64)> {
    let name = |at: usize| if at + 1 == levels.len() { "bottom".to_owned() } else { at.to_string() };
    levels.iter().enumerate().map(|(at, level)| (vec![name(at)], figure(level))).collect()
}

/// Bytes that were written to each level, by what wrote them.
fn written(drive: &Metrics) -> Vec<(Vec<String>, f64)> {
    let of = |by: &str, figure: fn(&(u64, u64)) -> f64| {
        let levels = by_level(&drive.done.written, figure).into_iter();
        let by = by.to_owned();
        levels.map(move |(level, bytes)| ([level, vec![by.clone()]].concat(), bytes)).collect::<Vec<_>>()
    };
    [of("flush", |(flushed, _)| *flushed as f64), of("merge", |(_, merged)| *merged as f64)].concat()
}

/// The same together, over the bytes that were put; nothing before anything was.
fn amplification(drive: &Metrics) -> Vec<(Vec<String>, f64)> {
    let over = |(flushed, merged): &(u64, u64)| drive.done.amplification(flushed + merged).unwrap_or(0.0);
    if drive.done.put_bytes == 0 { Vec::new() } else { by_level(&drive.done.written, over) }
}

pub(super) fn add(page: &mut Page, drives: &[Metrics]) {
    type Figure = fn(&Metrics) -> u64;
    let single: [(MetricType, &str, &str, Figure); 18] = [
        (COUNTER, "imbrex_kv_puts_total", "Keys that were given a value.", |d| d.done.puts),
        (COUNTER, "imbrex_kv_deletes_total", "Keys and ranges that were deleted.", |d| d.done.deletes),
        (COUNTER, "imbrex_kv_gets_total", "Reads of one key.", |d| d.done.gets),
        (COUNTER, "imbrex_kv_put_bytes_total", "Bytes of keys and values that were put.", |d| d.done.put_bytes),
        (COUNTER, "imbrex_kv_merge_steps_total", "Steps of merges.", |d| d.done.steps),
        (COUNTER, "imbrex_kv_stalls_total", "Writes that were held back for a millisecond or longer.", |d| {
            d.done.stalls
        }),
        (GAUGE, "imbrex_kv_merges", "Merges that have begun and go on.", |d| d.merges as u64),
        (GAUGE, "imbrex_kv_memory_bytes", "Bytes of changes in memory.", |d| d.memory),
        (GAUGE, "imbrex_kv_index_bytes", "Bytes in memory of filters and top indexes of tables that were read.", |d| {
            d.indexes
        }),
        (GAUGE, "imbrex_kv_log_bytes", "Bytes of the write-ahead log that an opening would read.", |d| d.log),
        (GAUGE, "imbrex_kv_slices", "Slices that a key is in at most; the bottom is one.", |d| d.depth as u64),
        (GAUGE, "imbrex_kv_partitions", "Partitions of the keys.", |d| d.partitions as u64),
        (GAUGE, "imbrex_kv_deleted_ranges", "Deleted ranges of which something may be left.", |d| d.ranges as u64),
        (GAUGE, "imbrex_kv_used_zones", "Zones with tables or bytes of the log.", |d| d.own.zones.0.into()),
        (GAUGE, "imbrex_kv_used_zones_bytes", "Bytes that these zones can hold.", |d| d.capacity_used),
        (GAUGE, "imbrex_kv_free_zones", "Zones that may still be taken.", |d| d.own.zones.1.into()),
        (GAUGE, "imbrex_kv_live_bytes", "Bytes of tables that count.", |d| d.levels.iter().map(|level| level.1).sum()),
        (GAUGE, "imbrex_kv_entries", "Changes in tables; a key may have several.", |d| {
            d.levels.iter().map(|level| level.2).sum()
        }),
    ];
    for (kind, name, help, figure) in single {
        page.add(drives, (kind, name, help), &[], |drive| only(figure(drive)));
    }
    let seconds = (COUNTER, "imbrex_kv_stall_seconds_total", "Seconds that those writes waited.");
    page.add(drives, seconds, &[], |d| [(Vec::new(), d.done.stalled.as_secs_f64())]);
    let longest = (GAUGE, "imbrex_kv_longest_stall_seconds", "The longest wait since the store was opened.");
    page.add(drives, longest, &[], |d| [(Vec::new(), d.done.longest_stall.as_secs_f64())]);
    type OfLevel = fn(&(u64, u64, u64)) -> f64;
    let levels: [(&str, &str, OfLevel); 3] = [
        ("imbrex_kv_level_tables", "Tables of a level.", |level| level.0 as f64),
        ("imbrex_kv_level_bytes", "Bytes of them that count.", |level| level.1 as f64),
        ("imbrex_kv_level_entries", "Changes in them.", |level| level.2 as f64),
    ];
    for (name, help, figure) in levels {
        page.add(drives, (GAUGE, name, help), &["level"], |d| by_level(&d.levels, figure));
    }
    let about = (COUNTER, "imbrex_kv_written_bytes_total", "Bytes of tables that were written to a level.");
    page.add(drives, about, &["level", "by"], written);
    let about = "Bytes of tables written to a level over bytes put, since the store was opened; without the log.";
    page.add(drives, (GAUGE, "imbrex_kv_write_amplification", about), &["level"], amplification);
}
