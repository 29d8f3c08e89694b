//! What a drive did over time: its image's counters, looked at while somebody else uses it.

use super::chart::Series;
use super::result::Row;
use imbrex_device::ZoneState;
use imbrex_emulator::time::{Seconds, TimeStats};
use imbrex_emulator::{Counts, Observer};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

const MIB: f64 = 1_048_576.0;
/// Points of a line, about; more say no more.
const POINTS: usize = 120;

/// The drive at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Seconds of the drive's clock since the first.
    pub(super) at: f64,
    /// All counters.
    pub(super) counts: Counts,
    /// Sequential zones that are not empty.
    pub(super) zones: u64,
}

/// Looks at an image.
pub(super) struct Sampler {
    observer: Observer,
    began: Instant,
    speed: f64,
    first: Counts,
    /// All samples, in order.
    pub(super) samples: Vec<Sample>,
}

impl Sampler {
    /// Begins to look at the image; its clock runs `speed` times as fast as the world's.
    pub(super) fn new(image: &Path, speed: f64) -> Result<Sampler, String> {
        let observer = Observer::open(image).map_err(|e| e.to_string())?;
        let first = observer.stats().total;
        Ok(Sampler { observer, began: Instant::now(), speed, first, samples: Vec::new() })
    }

    /// Seconds of the drive's clock since it began.
    pub(super) fn elapsed(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * self.speed
    }

    /// Seconds that the drive counts since it keeps time; `None` where it keeps none.
    pub(super) fn elapsed_by_drive(&self) -> Option<f64> {
        self.observer.time().ok().flatten().map(|time| time.elapsed)
    }

    /// Takes a sample.
    pub(super) fn look(&mut self) {
        let counts = self.observer.stats().total.since(&self.first);
        self.samples.push(Sample { at: self.elapsed(), counts, zones: self.zones().0 });
    }

    /// When the drive had been asked for all that it was asked for, by the samples: seconds of its clock since the first.
    pub(super) fn busy_until(&self) -> f64 {
        let moved = |sample: &Sample| (sample.counts.bytes_written, sample.counts.bytes_read, sample.counts.flushes);
        let last = self.samples.last().map(moved);
        self.samples.iter().find(|sample| Some(moved(sample)) == last).map_or(0.0, |sample| sample.at)
    }

    /// Sequential zones that are not empty, and their capacity.
    pub(super) fn zones(&self) -> (u64, u64) {
        let zones = self.observer.zones();
        let used = zones.iter().filter(|zone| !matches!(zone.state, ZoneState::Empty | ZoneState::Conventional));
        used.fold((0, 0), |(n, bytes), zone| (n + 1, bytes + zone.capacity))
    }

    /// Fills in what the drive counted.
    pub(super) fn fill(&self, row: &mut Row) {
        let Some(last) = self.samples.last() else { return };
        row.bytes_drive = Some(last.counts.bytes_written);
        row.bytes_read = Some(last.counts.bytes_read);
        row.flushes = Some(last.counts.flushes);
        row.zone_resets = Some(last.counts.zone_resets);
        let violations = last.counts.rule_violations;
        if violations > 0 {
            row.flags.push(format!("{violations} commands broke a rule of the drive; please report it"));
        }
        self.time(row);
    }

    /// Fills in what became of the drive's time.
    fn time(&self, row: &mut Row) {
        let Ok(Some(time)) = self.observer.time() else { return };
        timed(row, &time);
        if time.elapsed > 0.0 {
            // By the drive's own clock, which a scaled drive's mechanics run in.
            row.figures.insert("seeks/s of the drive".into(), time.seeks as f64 / time.elapsed);
            row.figures.insert("seeks/s of the drive, for reads".into(), time.read_seeks as f64 / time.elapsed);
        }
    }

    /// Bytes read and written a second, in MiB.
    pub(super) fn bandwidth(&self) -> Vec<Series> {
        let line = |name: &str, of: fn(&Counts) -> u64| Series { name: name.into(), points: rates(&self.samples, of) };
        vec![line("read", |c| c.bytes_read), line("written", |c| c.bytes_written)]
    }

    /// Sequential zones that are not empty.
    pub(super) fn zone_line(&self, name: &str) -> Series {
        let step = self.samples.len().div_ceil(POINTS).max(1);
        Series {
            name: name.into(),
            points: self.samples.iter().step_by(step).map(|s| (s.at, s.zones as f64)).collect(),
        }
    }
}

/// Fills in how long a drive was busy, with what, and how long commands stayed there.
pub(super) fn timed(row: &mut Row, time: &TimeStats) {
    row.device_seconds = Some(time.total.busy());
    row.seconds = kinds(&time.total);
    row.seconds.insert("idle".into(), time.idle);
    row.seconds_by_cause = time.by_cause.iter().map(|(cause, of)| ((*cause).to_owned(), kinds(of))).collect();
    if time.elapsed > 0.0 {
        row.drive_utilisation = Some((time.total.busy() / time.elapsed).min(1.0));
        row.queue_depth = Some(stayed(time) / time.elapsed);
    }
    row.latency = time.latency.iter().map(|(cause, latency)| ((*cause).to_owned(), *latency)).collect();
}

/// What commands stayed at the drive, added up: over the time it is how many were there (Little).
pub(super) fn stayed(time: &TimeStats) -> f64 {
    time.latency.values().map(|latency| latency.mean * latency.commands as f64).sum()
}

pub(super) fn kinds(of: &Seconds) -> BTreeMap<String, f64> {
    let Seconds { seek, rotation, transfer, zone_ops, cleaning } = *of;
    [("seek", seek), ("rotation", rotation), ("transfer", transfer), ("zone ops", zone_ops), ("cleaning", cleaning)]
        .map(|(name, seconds)| (name.to_owned(), seconds))
        .into()
}

fn rates(samples: &[Sample], of: fn(&Counts) -> u64) -> Vec<(f64, f64)> {
    let step = samples.len().div_ceil(POINTS).max(1);
    let few: Vec<&Sample> = samples.iter().step_by(step).collect();
    let pairs = few.windows(2).filter_map(|pair| match pair {
        [a, b] if b.at > a.at => {
            let bytes = of(&b.counts).saturating_sub(of(&a.counts)) as f64;
            Some(((a.at + b.at) / 2.0, bytes / MIB / (b.at - a.at)))
        }
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let sample = |at, bytes_written| Sample { at, counts: Counts { bytes_written, ..Counts::default() }, zones: 0 };
        let samples = [sample(0.0, 0), sample(2.0, 4 << 20), sample(2.0, 4 << 20), sample(3.0, 5 << 20)];
        assert_eq!(rates(&samples, |c| c.bytes_written), [(1.0, 2.0), (2.5, 1.0)]);
        assert!(rates(&[], |c| c.bytes_written).is_empty());
    }
}
