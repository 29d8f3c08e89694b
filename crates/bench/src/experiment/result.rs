//! What an experiment leaves: `result.json` is these structures, and the report is drawn from them alone.

use super::agreement::Agreement;
use super::chart::Chart;
use super::sensitivity::{Replayed, Swing};
use imbrex_emulator::time::Latency;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run of one experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub experiment: String,
    /// What it asks, in a sentence or two.
    pub about: String,
    /// Whether it ran to its end; a stopped or failed one is not complete, and what it has is partial.
    pub complete: bool,
    /// Why it is not complete, where that is known.
    pub stopped: Option<String>,
    /// Why nothing follows from it, where an agreement check failed.
    pub invalid: Vec<String>,
    /// Everything that is needed to repeat it.
    pub config: Config,
    /// One for each thing that was measured, also for those that could not run.
    pub rows: Vec<Row>,
    /// Rows against one another.
    pub ratios: Vec<Ratio>,
    /// What a reader must know about the rows, in sentences.
    pub notes: Vec<String>,
    /// What the report draws.
    pub charts: Vec<Chart>,
    /// How far results at other scales and speeds agree, once they were compared.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agreement: Option<Agreement>,
}

/// Everything that is needed to repeat a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Config {
    /// The command line.
    pub command: String,
    /// Version of the program, and a checksum of its file.
    pub program: String,
    /// When it began, seconds since 1970.
    pub began: u64,
    /// Sizes are divided by this.
    pub scale: u32,
    /// Seconds of the drives' clocks in a second, where programs run on them; `None` in results of older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed: Option<f64>,
    /// Whether only the plumbing was tried, with next to no work.
    pub short: bool,
    /// Runs of each row.
    pub repeats: usize,
    /// Drive models by name: the fingerprint of formulas and numbers.
    pub models: BTreeMap<String, String>,
    /// What the experiment itself fixed: records, sizes, options, seeds.
    pub settings: BTreeMap<String, String>,
    /// Versions of the programs that it ran.
    pub programs: BTreeMap<String, String>,
    /// Where it ran.
    pub machine: Machine,
}

/// Where it ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that it could use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Kernel.
    pub kernel: String,
    /// Processes that wanted a processor in the minute before, on average: above 1, it was shared with others.
    pub load_before: f64,
}

/// A figure that others published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Paper and section.
    pub source: String,
}

impl Figure {
    /// A figure.
    pub fn new(value: f64, unit: &str, source: &str) -> Figure {
        Figure { value, unit: unit.into(), source: source.into() }
    }
}

/// One thing that was measured. What is `None` was not, or makes no sense there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// What.
    pub name: String,
    /// Why it could not run; everything else is empty then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// The drive model.
    pub drive: String,
    /// What was scaled, in a word: see [`super::Rule`].
    pub rule: String,
    /// Seconds that the drive was busy.
    pub device_seconds: Option<f64>,
    /// Seconds that the user waited, by the drive's clock where that runs faster or slower than the world's.
    pub wall_seconds: Option<f64>,
    /// What the user asked for.
    pub operations: Option<u64>,
    /// Bytes that the user wrote.
    pub bytes_user: Option<u64>,
    /// Bytes written to the drive, everything included.
    pub bytes_drive: Option<u64>,
    /// Bytes read from the drive.
    pub bytes_read: Option<u64>,
    /// Bytes written to the drive over bytes that the user wrote.
    pub write_amplification: Option<f64>,
    /// Live bytes over the capacity of all zones that are not empty, at the end.
    pub space_efficiency: Option<f64>,
    /// Flushes that the drive was asked for.
    pub flushes: Option<u64>,
    /// Zones that were reset.
    pub zone_resets: Option<u64>,
    /// Part of the time in which the drive was busy.
    pub drive_utilisation: Option<f64>,
    /// Part of the machine's processor time that was used while it ran, by everybody but what runs at a low priority and gives way.
    pub cpu_saturation: Option<f64>,
    /// Commands at the drive, on average over the time.
    pub queue_depth: Option<f64>,
    /// By cause.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub latency: BTreeMap<String, Latency>,
    /// Seconds of the drive by what it did with them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub seconds: BTreeMap<String, f64>,
    /// The same by cause: seek, rotation, transfer, zone ops and cleaning of each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub seconds_by_cause: BTreeMap<String, BTreeMap<String, f64>>,
    /// Further figures, with their unit in the name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub figures: BTreeMap<String, f64>,
    /// Options of this row alone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub settings: BTreeMap<String, String>,
    /// What the paper has here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<Figure>,
    /// What to keep in mind when reading the row.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub flags: Vec<String>,
    /// Why nothing follows from the row: results that should be the same are not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub invalid: Vec<String>,
    /// What its commands would have taken under other assumptions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replayed: Option<Replayed>,
}

impl Row {
    /// A row of this name on a drive.
    pub fn new(name: impl Into<String>, drive: impl Into<String>) -> Row {
        Row { name: name.into(), drive: drive.into(), ..Row::default() }
    }

    /// A row that could not run, and why.
    pub fn not_run(name: impl Into<String>, why: impl Into<String>) -> Row {
        Row { name: name.into(), not_run: Some(why.into()), ..Row::default() }
    }

    /// Fills in the write amplification from what was written.
    #[must_use]
    pub fn amplified(mut self) -> Row {
        if let (Some(user), Some(drive)) = (self.bytes_user, self.bytes_drive)
            && user > 0
        {
            self.write_amplification = Some(drive as f64 / user as f64);
        }
        self
    }
}

/// One row against another: above 1, the first is better.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ratio {
    /// What against what.
    pub name: String,
    /// Median of all runs.
    pub median: f64,
    /// Smallest.
    pub smallest: f64,
    /// Largest.
    pub largest: f64,
    /// Of each pair of runs.
    pub all: Vec<f64>,
    /// What the drives' bandwidths alone would give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_alone: Option<f64>,
    /// What this project wants to reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<f64>,
    /// What the paper has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<Figure>,
    /// What to keep in mind.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub flags: Vec<String>,
    /// Why nothing follows from it: results that should be the same are not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub invalid: Vec<String>,
    /// The rows, where it is the time of the first over the time of the second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub between: Option<[String; 2]>,
    /// What assumptions about the drives do to it, those that do most first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub swings: Vec<Swing>,
}

impl Ratio {
    /// Of these pairs of runs; `None` where there is none.
    pub fn of(name: impl Into<String>, all: &[f64]) -> Option<Ratio> {
        let mut sorted: Vec<f64> = all.iter().copied().filter(|ratio| ratio.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (smallest, largest) = (*sorted.first()?, *sorted.last()?);
        // Of an even number the mean of the two in the middle.
        let median = (sorted.get((sorted.len() - 1) / 2)? + sorted.get(sorted.len() / 2)?) / 2.0;
        Some(Ratio { name: name.into(), median, smallest, largest, all: all.to_vec(), ..Ratio::default() })
    }

    /// The time of `slow` over that of `fast`, two rows: so it is known what an assumption about their drives does to it.
    #[must_use]
    pub fn between(mut self, slow: impl Into<String>, fast: impl Into<String>) -> Ratio {
        self.between = Some([slow.into(), fast.into()]);
        self
    }

    /// With what the paper has.
    #[must_use]
    pub fn paper(mut self, value: f64, unit: &str, source: &str) -> Ratio {
        self.paper = Some(Figure::new(value, unit, source));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_knows_its_spread_and_a_row_its_amplification() {
        let ratio = Ratio::of("a over b", &[1.2, 1.0, 1.1]).unwrap();
        assert_eq!((ratio.median, ratio.smallest, ratio.largest), (1.1, 1.0, 1.2));
        assert_eq!(Ratio::of("of two", &[1.5, 1.0]).map(|ratio| ratio.median), Some(1.25));
        assert!(Ratio::of("of nothing", &[]).is_none());
        assert!(Ratio::of("of nonsense", &[f64::NAN]).is_none());
        let row = Row { bytes_user: Some(10), bytes_drive: Some(25), ..Row::new("r", "d") }.amplified();
        assert_eq!(row.write_amplification, Some(2.5));
        let none = Row { bytes_user: Some(0), bytes_drive: Some(25), ..Row::new("r", "d") }.amplified();
        assert_eq!(none.write_amplification, None);
    }
}
