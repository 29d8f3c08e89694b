//! The metrics that only chunk stores have.

use super::{Page, only};
use imbrex_chunkstore::Metrics;
use imbrex_drives::counted::Count;
use prometheus::proto::MetricType::{COUNTER, GAUGE};

/// Upper ends of the steps of the utilisation's distribution, in thousandths.
const STEPS: [u16; 11] = [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000];

fn written(counts: &[Count]) -> u64 {
    counts.iter().map(|count| count.bytes_written).sum()
}

/// How many datazones are live to a part of no more than each step.
fn distribution(drive: &Metrics) -> Vec<(Vec<String>, f64)> {
    let all = &drive.stats.utilisation;
    let below = |step: &u16| all.partition_point(|thousandths| thousandths <= step) as f64;
    STEPS.iter().map(|step| (vec![format!("{}", f64::from(*step) / 1000.0)], below(step))).collect()
}

/// Something over what was appended; nothing before anything was.
fn over_appended(drive: &Metrics, bytes: u64) -> Vec<(Vec<String>, f64)> {
    let appended = drive.stats.appended_bytes;
    if appended == 0 { Vec::new() } else { vec![(Vec::new(), bytes as f64 / appended as f64)] }
}

pub(super) fn add(page: &mut Page, drives: &[Metrics]) {
    let took = ("imbrex_chunk_seconds", "Seconds that operations took, from call to return.", 1e9);
    page.add_histograms(drives, took, &["operation"], |d| {
        d.operations.iter().map(|m| (vec![m.operation.name().to_owned()], &m.nanoseconds)).collect()
    });
    let sizes = ("imbrex_chunk_operation_bytes", "Bytes of appends and reads.", 1.0);
    page.add_histograms(drives, sizes, &["operation"], |d| {
        let with = d.operations.iter().filter_map(|m| Some((vec![m.operation.name().to_owned()], m.bytes.as_ref()?)));
        with.collect()
    });
    let failed = (COUNTER, "imbrex_chunk_failed_operations_total", "Operations that ended in an error.");
    page.add(drives, failed, &["operation"], |d| {
        let failed = d.operations.iter().filter(|m| m.failed > 0);
        failed.map(|m| (vec![m.operation.name().to_owned()], m.failed as f64)).collect::<Vec<_>>()
    });
    let zones = (GAUGE, "imbrex_chunk_zones", "Datazones by kind of stream and state.");
    page.add(drives, zones, &["stream", "state"], |d| {
        let of =
            d.datazones.iter().map(|(stream, state, n)| (vec![stream.clone(), state.name().to_owned()], *n as f64));
        of.collect::<Vec<_>>()
    });
    let live = "Datazones of which at most this part is live.";
    page.add(drives, (GAUGE, "imbrex_chunk_zones_by_utilisation", live), &["le"], distribution);
    let wa = "Bytes written to the drive over bytes appended, since it was opened.";
    page.add(drives, (GAUGE, "imbrex_chunk_write_amplification", wa), &[], |d| over_appended(d, written(&d.commands)));
    let cleaning = "Bytes appended and moved over bytes appended, since it was opened.";
    page.add(drives, (GAUGE, "imbrex_chunk_cleaning_write_amplification", cleaning), &[], |d| {
        over_appended(d, d.stats.appended_bytes + d.stats.moved_bytes)
    });
    type Figure = fn(&Metrics) -> u64;
    let single: [(prometheus::proto::MetricType, &str, &str, Figure); 18] = [
        (GAUGE, "imbrex_chunks", "Chunks.", |d| d.stats.chunks),
        (GAUGE, "imbrex_chunk_space_bytes", "Bytes that chunks can ever take.", |d| d.space.total),
        (GAUGE, "imbrex_chunk_live_bytes", "Bytes of all chunks.", |d| d.space.live),
        (GAUGE, "imbrex_chunk_free_bytes", "Bytes that can be appended before anything is cleaned.", |d| d.space.free),
        (GAUGE, "imbrex_chunk_dead_bytes", "Bytes that cleaning makes room of.", |d| d.space.dead),
        (GAUGE, "imbrex_chunk_free_zones", "Zones that can be taken, the reserve included.", |d| {
            u64::from(d.stats.free_zones)
        }),
        (GAUGE, "imbrex_chunk_index_bytes", "Bytes that a checkpoint takes.", |d| d.stats.index_bytes),
        (GAUGE, "imbrex_chunk_buffered_bytes", "Bytes in memory, not yet written.", |d| d.stats.buffered_bytes),
        (COUNTER, "imbrex_chunk_appended_bytes_total", "Bytes appended.", |d| d.stats.appended_bytes),
        (COUNTER, "imbrex_chunk_commits_total", "Commits, each one flush for all who wait.", |d| d.stats.commits),
        (COUNTER, "imbrex_chunk_moved_bytes_total", "Bytes that cleaning moved.", |d| d.stats.moved_bytes),
        (COUNTER, "imbrex_chunk_cleaned_zones_total", "Zones that cleaning freed.", |d| d.stats.cleaned_zones),
        (COUNTER, "imbrex_chunk_background_bytes_total", "Of those, moved in the background.", |d| {
            d.stats.background_bytes
        }),
        (COUNTER, "imbrex_chunk_scrubbed_bytes_total", "Bytes that were verified in the background.", |d| {
            d.stats.scrubbed_bytes
        }),
        (GAUGE, "imbrex_chunk_scrub_passes", "How often all chunks were verified.", |d| d.stats.scrub_passes),
        (GAUGE, "imbrex_chunk_damaged_records", "Records that the scrub has found damaged.", |d| {
            d.stats.damaged_records
        }),
        (GAUGE, "imbrex_chunk_lost_bytes", "Bytes of chunks whose zone is offline.", |d| d.stats.lost_bytes),
        (COUNTER, "imbrex_chunk_damaged_reads_total", "Reads that met damage.", |d| d.stats.damaged),
    ];
    for (kind, name, help, figure) in single {
        page.add(drives, (kind, name, help), &[], |drive| only(figure(drive)));
    }
}
