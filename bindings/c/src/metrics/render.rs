//! Figures as Prometheus's text: pure, and the only place where metrics have names.

mod chunks;
mod images;
mod objects;
mod pairs;

use super::Figures;
use imbrex_bluefs::Metrics;
use imbrex_chunkstore::Histogram as Distribution;
use imbrex_device::Cause;
use imbrex_drives::counted::{Command, Count, FAULTS};
use imbrex_zones::shell::Metrics as OfDrive;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Result, TextEncoder};

/// The content type of the text.
pub(super) const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

struct Page(Vec<MetricFamily>);

impl Page {
    /// A metric of all drives; `samples` gives for each the values of its further labels, and the figure.
    fn add<'a, F, S>(
        &mut self,
        drives: &'a [OfDrive<F>],
        about: (MetricType, &str, &str),
        labels: &[&str],
        samples: impl Fn(&'a OfDrive<F>) -> S,
    ) where
        S: IntoIterator<Item = (Vec<String>, f64)>,
    {
        let mut metrics = Vec::new();
        for drive in drives {
            for (values, figure) in samples(drive) {
                let mut metric = Metric::from_label(pairs(&drive.drive, labels, &values));
                match about.0 {
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
        self.join(about, metrics);
    }

    /// The same for histograms, whose figures are divided by `unit`.
    fn add_histograms<'a, F>(
        &mut self,
        drives: &'a [OfDrive<F>],
        (name, help, unit): (&str, &str, f64),
        labels: &[&str],
        samples: impl Fn(&'a OfDrive<F>) -> Vec<(Vec<String>, &'a Distribution)>,
    ) {
        let mut metrics = Vec::new();
        for drive in drives {
            for (values, figures) in samples(drive).into_iter().filter(|(_, figures)| figures.count > 0) {
                let mut histogram = Histogram::default();
                let bucket = |(end, count): &(u64, u64)| {
                    let mut bucket = Bucket::default();
                    bucket.set_upper_bound(*end as f64 / unit);
                    bucket.set_cumulative_count(*count);
                    bucket
                };
                histogram.set_bucket(figures.buckets.iter().map(bucket).collect());
                histogram.set_sample_count(figures.count);
                histogram.set_sample_sum(figures.sum as f64 / unit);
                let mut metric = Metric::from_label(pairs(&drive.drive, labels, &values));
                metric.set_histogram(histogram);
                metrics.push(metric);
            }
        }
        self.join((MetricType::HISTOGRAM, name, help), metrics);
    }

    /// Metrics of one name stand together, whatever is open on the drives.
    fn join(&mut self, (kind, name, help): (MetricType, &str, &str), metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        if let Some(family) = self.0.iter_mut().find(|family| family.name() == name) {
            family.mut_metric().extend(metrics);
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

fn pairs(drive: &str, labels: &[&str], values: &[String]) -> Vec<LabelPair> {
    let mut pairs = vec![label("drive", drive)];
    pairs.extend(labels.iter().zip(values).map(|(name, value)| label(name, value)));
    pairs
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

fn zones<F>(drive: &OfDrive<F>) -> Vec<(Vec<String>, f64)> {
    drive.zones.iter().map(|(state, count)| (vec![state.name().to_owned()], *count as f64)).collect()
}

fn seconds(seconds: &[(Cause, &'static str, f64)]) -> Vec<(Vec<String>, f64)> {
    let spent = seconds.iter().filter(|(.., seconds)| *seconds > 0.0);
    spent.map(|(cause, kind, seconds)| (vec![cause.name().to_owned(), (*kind).to_owned()], *seconds)).collect()
}

/// What every drive tells, whatever is open on it.
fn of_drive<F>(page: &mut Page, drives: &[OfDrive<F>]) {
    use MetricType::{COUNTER, GAUGE};
    let done = (COUNTER, "imbrex_commands_total", "Commands that the drive carried out.");
    page.add(drives, done, &["cause", "command"], |d| by_cause(&d.commands, operations));
    let moved = (COUNTER, "imbrex_bytes_total", "Bytes that were read and written.");
    page.add(drives, moved, &["cause", "command"], |d| by_cause(&d.commands, bytes));
    let failed = (COUNTER, "imbrex_failed_commands_total", "Commands that the drive refused or failed.");
    page.add(drives, failed, &["cause", "fault"], |d| by_cause(&d.commands, failures));
    let busy = (COUNTER, "imbrex_device_seconds_total", "Seconds that the drive was busy, where its time is modelled.");
    page.add(drives, busy, &["cause", "kind"], |d| seconds(&d.seconds));
    let flushes = (COUNTER, "imbrex_flushes_total", "Flushes of the drive.");
    page.add(drives, flushes, &[], |d| {
        only(d.commands.iter().map(|count| count.commands[Command::Flush as usize]).sum())
    });
    let about = (GAUGE, "imbrex_info", "Always 1; the label tells the version.");
    page.add(drives, about, &["version"], |_| [(vec![env!("CARGO_PKG_VERSION").to_owned()], 1.0)]);
    page.add(drives, (GAUGE, "imbrex_zones", "Zones by state."), &["state"], zones);
    page.add(drives, (GAUGE, "imbrex_mount", "Number of this mount."), &[], |d| only(d.mount));
    let damage = (
        GAUGE,
        "imbrex_mount_damage",
        "Damage that the mount found; see `imbrex fs check`, `imbrex chunk check` or `imbrex kv check`.",
    );
    page.add(drives, damage, &[], |d| only(d.damage));
    let poisoned = "1: a flush failed and nothing can be written until the next mount.";
    page.add(drives, (GAUGE, "imbrex_poisoned", poisoned), &[], |d| only(u64::from(d.poisoned)));
}

/// Each drive once, also where several engines have it: its commands are counted for all of them together.
fn drives(figures: &Figures) -> Vec<OfDrive<()>> {
    fn of<F>(metrics: &OfDrive<F>) -> OfDrive<()> {
        OfDrive {
            drive: metrics.drive.clone(),
            commands: metrics.commands.clone(),
            seconds: metrics.seconds.clone(),
            zones: metrics.zones.clone(),
            mount: metrics.mount,
            damage: metrics.damage,
            poisoned: metrics.poisoned,
            own: (),
        }
    }
    let mut drives: Vec<OfDrive<()>> = Vec::new();
    let all = figures.files.iter().map(of).chain(figures.chunks.iter().map(of)).chain(figures.pairs.iter().map(of));
    let all = all.chain(figures.objects.iter().map(of));
    for metrics in all {
        match drives.iter_mut().find(|known| known.drive == metrics.drive) {
            // Each engine has found what it has found.
            Some(known) => known.damage += metrics.damage,
            None => drives.push(metrics),
        }
    }
    drives
}

/// The text.
pub(super) fn render(figures: &Figures) -> Result<String> {
    let mut page = Page(Vec::new());
    of_drive(&mut page, &drives(figures));
    of_files(&mut page, &figures.files);
    chunks::add(&mut page, &figures.chunks);
    pairs::add(&mut page, &figures.pairs);
    objects::add(&mut page, &figures.objects);
    images::add(&mut page, &figures.images);
    TextEncoder::new().encode_to_string(&page.0)
}

fn of_files(page: &mut Page, drives: &[Metrics]) {
    use MetricType::{COUNTER, GAUGE};
    type Figure = fn(&Metrics) -> u64;
    let single: [(MetricType, &str, &str, Figure); 15] = [
        (GAUGE, "imbrex_space_bytes", "Bytes that files can ever take.", |d| d.space.total),
        (GAUGE, "imbrex_free_bytes", "Bytes that new files can take now.", |d| d.space.free),
        (GAUGE, "imbrex_small_space_bytes", "Bytes for small files.", |d| d.space.small_total),
        (GAUGE, "imbrex_small_free_bytes", "Of those, free ones.", |d| d.space.small_free),
        (COUNTER, "imbrex_cache_hits_total", "Pages found in the cache.", |d| d.cache_hits),
        (COUNTER, "imbrex_cache_misses_total", "Pages not found in the cache.", |d| d.cache_misses),
        (GAUGE, "imbrex_cache_bytes", "Bytes in the cache.", |d| d.cache_used),
        (GAUGE, "imbrex_cache_capacity_bytes", "Bytes that the cache may hold.", |d| d.cache_capacity),
        (GAUGE, "imbrex_journal_bytes", "Bytes of the metadata journal.", |d| d.journal),
        (GAUGE, "imbrex_survivor_bytes", "Bytes in memory that outlives the process, not yet written.", |d| {
            d.survivor_used
        }),
        (GAUGE, "imbrex_survivor_capacity_bytes", "Bytes of that memory.", |d| d.survivor_capacity),
        (GAUGE, "imbrex_used_zones", "Zones that hold bytes of files, or the journal.", |d| d.zones_used),
        (GAUGE, "imbrex_live_bytes", "Bytes of all files.", |d| d.live),
        (GAUGE, "imbrex_files", "Files.", |d| d.files),
        (GAUGE, "imbrex_directories", "Directories, the root included.", |d| d.directories),
    ];
    for (kind, name, help, figure) in single {
        page.add(drives, (kind, name, help), &[], |drive| only(figure(drive)));
    }
}
