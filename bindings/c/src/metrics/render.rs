//! Figures as Prometheus's text: pure, and the only place where metrics have names.

use imbrex_bluefs::Metrics;
use imbrex_drives::counted::{Command, Count, FAULTS};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Result, TextEncoder};

/// The content type of the text.
pub(super) const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

struct Page(Vec<MetricFamily>);

impl Page {
    /// A metric of all drives; `samples` gives for each the values of its further labels, and the figure.
    fn add<'a, S>(
        &mut self,
        drives: &'a [Metrics],
        (kind, name, help): (MetricType, &str, &str),
        labels: &[&str],
        samples: impl Fn(&'a Metrics) -> S,
    ) where
        S: IntoIterator<Item = (Vec<String>, f64)>,
    {
        let mut metrics = Vec::new();
        for drive in drives {
            for (values, figure) in samples(drive) {
                let mut pairs = vec![label("drive", &drive.drive)];
                pairs.extend(labels.iter().zip(&values).map(|(name, value)| label(name, value)));
                let mut metric = Metric::from_label(pairs);
                match kind {
                    MetricType::COUNTER => {
                        let mut counter = Counter::default();
                        counter.set_value(figure);
                        metric.set_counter(counter);
                    }
                    _ => {
                        let mut gauge = Gauge::default();
                        gauge.set_value(figure);
                        metric.set_gauge(gauge);
                    }
                }
                metrics.push(metric);
            }
        }
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn only(figure: u64) -> [(Vec<String>, f64); 1] {
    [(Vec::new(), figure as f64)]
}

/// Samples of every cause that has any: a metric that never counted anything says nothing.
fn by_cause(counts: &[Count], figures: impl Fn(&Count) -> Vec<(&'static str, u64)>) -> Vec<(Vec<String>, f64)> {
    let mut samples = Vec::new();
    for count in counts {
        for (what, figure) in figures(count).into_iter().filter(|(_, figure)| *figure > 0) {
            samples.push((vec![count.cause.name().to_owned(), what.to_owned()], figure as f64));
        }
    }
    samples
}

fn operations(count: &Count) -> Vec<(&'static str, u64)> {
    Command::ALL.into_iter().map(Command::name).zip(count.commands).collect()
}

fn bytes(count: &Count) -> Vec<(&'static str, u64)> {
    vec![(Command::Read.name(), count.bytes_read), (Command::Write.name(), count.bytes_written)]
}

fn failures(count: &Count) -> Vec<(&'static str, u64)> {
    FAULTS.into_iter().zip(count.failed).collect()
}

fn zones(drive: &Metrics) -> Vec<(Vec<String>, f64)> {
    drive.zones.iter().map(|(state, count)| (vec![state.name().to_owned()], *count as f64)).collect()
}

fn seconds(drive: &Metrics) -> Vec<(Vec<String>, f64)> {
    let spent = drive.seconds.iter().filter(|(.., seconds)| *seconds > 0.0);
    spent.map(|(cause, kind, seconds)| (vec![cause.name().to_owned(), (*kind).to_owned()], *seconds)).collect()
}

/// The text.
pub(super) fn render(drives: &[Metrics]) -> Result<String> {
    use MetricType::{COUNTER, GAUGE};
    let mut page = Page(Vec::new());
    let commands = (COUNTER, "imbrex_commands_total", "Commands that the drive carried out.");
    page.add(drives, commands, &["cause", "command"], |d| by_cause(&d.commands, operations));
    let moved = (COUNTER, "imbrex_bytes_total", "Bytes that were read and written.");
    page.add(drives, moved, &["cause", "command"], |d| by_cause(&d.commands, bytes));
    let failed = (COUNTER, "imbrex_failed_commands_total", "Commands that the drive refused or failed.");
    page.add(drives, failed, &["cause", "fault"], |d| by_cause(&d.commands, failures));
    let busy = (COUNTER, "imbrex_device_seconds_total", "Seconds that the drive was busy, where its time is modelled.");
    page.add(drives, busy, &["cause", "kind"], seconds);
    page.add(drives, (GAUGE, "imbrex_zones", "Zones by state."), &["state"], zones);
    type Figure = fn(&Metrics) -> u64;
    let single: [(MetricType, &str, &str, Figure); 19] = [
        (GAUGE, "imbrex_space_bytes", "Bytes that files can ever take.", |d| d.space.total),
        (GAUGE, "imbrex_free_bytes", "Bytes that new files can take now.", |d| d.space.free),
        (GAUGE, "imbrex_small_space_bytes", "Bytes for small files.", |d| d.space.small_total),
        (GAUGE, "imbrex_small_free_bytes", "Of those, free ones.", |d| d.space.small_free),
        (COUNTER, "imbrex_cache_hits_total", "Pages found in the cache.", |d| d.cache_hits),
        (COUNTER, "imbrex_cache_misses_total", "Pages not found in the cache.", |d| d.cache_misses),
        (GAUGE, "imbrex_cache_bytes", "Bytes in the cache.", |d| d.cache_used),
        (GAUGE, "imbrex_cache_capacity_bytes", "Bytes that the cache may hold.", |d| d.cache_capacity),
        (GAUGE, "imbrex_journal_bytes", "Bytes of the metadata journal.", |d| d.journal),
        (COUNTER, "imbrex_flushes_total", "Flushes of the drive.", |d| {
            d.commands.iter().map(|count| count.commands[Command::Flush as usize]).sum()
        }),
        (GAUGE, "imbrex_survivor_bytes", "Bytes in memory that outlives the process, not yet written.", |d| {
            d.survivor_used
        }),
        (GAUGE, "imbrex_survivor_capacity_bytes", "Bytes of that memory.", |d| d.survivor_capacity),
        (GAUGE, "imbrex_used_zones", "Zones that hold bytes of files, or the journal.", |d| d.zones_used),
        (GAUGE, "imbrex_live_bytes", "Bytes of all files.", |d| d.live),
        (GAUGE, "imbrex_files", "Files.", |d| d.files),
        (GAUGE, "imbrex_directories", "Directories, the root included.", |d| d.directories),
        (GAUGE, "imbrex_mount", "Number of this mount.", |d| d.mount),
        (GAUGE, "imbrex_mount_damage", "Damage that the mount found; see `imbrex fs check`.", |d| d.damage),
        (GAUGE, "imbrex_poisoned", "1: a flush failed and nothing can be written until the next mount.", |d| {
            u64::from(d.poisoned)
        }),
    ];
    for (kind, name, help, figure) in single {
        page.add(drives, (kind, name, help), &[], |drive| only(figure(drive)));
    }
    let about = (GAUGE, "imbrex_info", "Always 1; the label tells the version.");
    page.add(drives, about, &["version"], |_| [(vec![env!("CARGO_PKG_VERSION").to_owned()], 1.0)]);
    TextEncoder::new().encode_to_string(&page.0)
}
