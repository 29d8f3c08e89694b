//! The kernel's side of `chunk-write` and `chunk-read`: what a chunk server on ext4, F2FS or Zoned XFS reaches on drives of the same mechanics, with
//! [`segments`](crate::segments) as the server.
//!
//! [`ext4`] runs on a conventional drive whose clock runs with the world's; the others ([`zoned`]) in the kernel VM, and what the kernel asked of its device is
//! played on the model ([`blocktrace`](super::blocktrace)). Both lie where the store's zones lie.
//!
//! An append is measured with `fdatasync` and without. What counts is with: it promises what the store's appends do. Without it an append on ext4 whose drive has its
//! write cache off has reached the drive before it returns, but which extents are written is in the journal only later, and a power loss before that turns its bytes into zeros;
//! with the cache on, and on a zoned drive, there is one sync in the end. Those rates stand beside, and ratios to both.

mod ext4;
pub(super) mod opening;
pub(super) mod processor;
mod scattered;
pub(super) mod streams;
mod zoned;
mod zoned_streams;

use super::chunk_write::Span;
use super::result::{Figure, Row};
use super::sample::stayed;
use super::{Rule, Run, Stop, checks};
use imbrex_emulator::Profile;
use imbrex_emulator::time::TimeStats;
use std::collections::BTreeMap;

/// A file system of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kernel {
    Ext4,
    F2fs,
    Xfs,
}

impl Kernel {
    /// What the VM's scripts call it; ext4 needs none.
    fn in_the_vm(self) -> Option<&'static str> {
        match self {
            Kernel::Ext4 => None,
            Kernel::F2fs => Some("f2fs"),
            Kernel::Xfs => Some("xfs"),
        }
    }
}

/// What a row is about; `cache`: whether the drive's write cache is on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) kernel: Kernel,
    pub(super) span: Span,
    pub(super) cache: bool,
    pub(super) size: u64,
    /// Of ext4's appends: files lie all over the span, not side by side.
    pub(super) scattered: bool,
}

/// What was measured, at one place or, added up, at all. Times are the drive's, in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Ran {
    pub(super) seconds: f64,
    pub(super) operations: u64,
    pub(super) payload: u64,
    pub(super) busy: f64,
    pub(super) kinds: [f64; 4],
    pub(super) written: u64,
    pub(super) read: u64,
    pub(super) flushes: u64,
    /// What commands stayed at the drive, added up.
    pub(super) stayed: f64,
    /// Of each operation, where it is known.
    pub(super) took: Vec<f64>,
    /// When zones were written, in nanoseconds, at the first place.
    pub(super) zones: Vec<(f64, u32)>,
}

impl Ran {
    pub(super) fn of(time: &TimeStats) -> Ran {
        let total = &time.total;
        Ran {
            busy: total.busy(),
            kinds: [total.seek, total.rotation, total.transfer, total.zone_ops],
            stayed: stayed(time),
            ..Ran::default()
        }
    }

    fn add(&mut self, other: Ran) {
        self.seconds += other.seconds;
        self.operations += other.operations;
        self.payload += other.payload;
        self.busy += other.busy;
        self.kinds.iter_mut().zip(other.kinds).for_each(|(sum, part)| *sum += part);
        self.written += other.written;
        self.read += other.read;
        self.flushes += other.flushes;
        self.stayed += other.stayed;
        self.took.extend(other.took);
        self.took.sort_by(f64::total_cmp);
        if self.zones.is_empty() {
            self.zones = other.zones;
        }
    }

    /// MB of the user in a second.
    fn rate(&self) -> f64 {
        self.payload as f64 / 1e6 / self.seconds.max(1e-9)
    }

    pub(super) fn row(&self, drive: &str, writes: bool) -> Row {
        let mut row = Row::new("", drive);
        row.rule = Rule::Fewer.name().into();
        (row.device_seconds, row.wall_seconds) = (Some(self.busy), Some(self.seconds));
        row.operations = Some(self.operations);
        if writes {
            (row.bytes_user, row.bytes_drive) = (Some(self.payload), Some(self.written));
            row.flushes = Some(self.flushes);
        }
        row.bytes_read = Some(self.read);
        if self.seconds > 0.0 {
            row.drive_utilisation = Some((self.busy / self.seconds).min(1.0));
            row.queue_depth = Some(self.stayed / self.seconds);
        }
        let names = ["seek", "rotation", "transfer", "zone ops"].map(str::to_owned);
        row.seconds = names.into_iter().zip(self.kinds).collect();
        row.figures.insert("MB/s".into(), self.rate());
        let at = |part: f64| {
            self.took.get(((self.took.len() as f64 * part) as usize).min(self.took.len().saturating_sub(1)))
        };
        let what = if writes { "ms an append" } else { "ms a read" };
        for (name, part) in [("median", 0.5), ("99 %", 0.99)] {
            row.figures.extend(at(part).map(|seconds| (format!("{what}, {name}"), seconds * 1e3)));
        }
        row.amplified()
    }
}

/// With `fdatasync`, and without.
type Both = [Ran; 2];
pub(super) const HOW: [(&str, bool); 2] = [("with fdatasync", true), ("without", false)];

/// What was measured of each size, or why nothing was.
type BySize<T> = Result<BTreeMap<u64, T>, Stop>;

/// Appends on ext4, with where its files lie, by write cache, span, and whether files are scattered.
type Ext4 = BTreeMap<(bool, &'static str, bool), BySize<(Both, ext4::Lie)>>;

/// What rows have been measured together.
#[derive(Default)]
pub(super) struct Measured {
    ext4: Ext4,
    reads: BTreeMap<&'static str, BySize<Ran>>,
    traces: BTreeMap<Kernel, Result<zoned::Traces, Stop>>,
    /// When the last row's drive was written, in nanoseconds, and in which zones, at the first place.
    zones: Vec<(f64, u32)>,
}

fn nothing() -> Stop {
    Stop::Failed(
        "nothing was measured of it (the short form tries two sizes in the VM); run it again with this row alone"
            .into(),
    )
}

/// Sizes that the VM is run with: all that are wanted, or two where only the plumbing is tried, since its processor is slow.
fn tried<'a>(run: &Run, wanted: &'a [u64]) -> &'a [u64] {
    wanted.get(..2).filter(|_| run.options.short).unwrap_or(wanted)
}

impl Measured {
    /// A row of `chunk-write`. All sizes that are `wanted` are measured with the first that needs the same drive.
    pub(super) fn write(&mut self, run: &Run, profile: &Profile, asked: Asked, wanted: &[u64]) -> Result<Row, Stop> {
        let Asked { kernel, span, cache, size, scattered } = asked;
        let (both, lie) = match kernel {
            Kernel::Ext4 => {
                let all = self
                    .ext4
                    .entry((cache, span.name(), scattered))
                    .or_insert_with(|| ext4::writes(run, profile, asked, wanted));
                let (both, lie) = all.as_ref().map_err(Clone::clone)?.get(&size).cloned().ok_or_else(nothing)?;
                (both, Some(lie))
            }
            Kernel::F2fs | Kernel::Xfs => {
                let traces = self.traces(run, kernel, "write", wanted)?;
                (zoned::write(traces, run, profile, span, cache, size)?, None)
            }
        };
        // What has reached the medium when it returns.
        let reached = |sync: bool| sync || (kernel == Kernel::Ext4 && !cache);
        let (Some(ran), [(counts, _), _]) = (both.first(), HOW) else { return Err(nothing()) };
        self.zones.clone_from(&ran.zones);
        let mut row = ran.row(&drive_name(kernel, profile), true);
        row.settings.insert("what counts".into(), format!("{counts}, which promises what the store's appends do"));
        for ((how, sync), ran) in HOW.into_iter().zip(&both) {
            row.figures.insert(format!("MB/s {how}"), ran.rate());
            if !reached(sync) {
                row.settings.insert(how.into(), "a sync at the end".into());
            }
        }
        if let Some(lie) = lie {
            row.figures.insert("GB over which files lie".into(), lie.over as f64 / 1e9);
            row.figures.insert("GB from a file to the next of its job".into(), lie.apart as f64 / 1e9);
        }
        if kernel == Kernel::Ext4 && size == 1 << 20 && !cache && span == Span::SixTb {
            row.paper = Some(Figure::new(84.6, "MB/s: 110 MB/s are 30 % more", "SMRSTORE, section 6.1"));
        }
        Ok(self.described(run, kernel, "write", row))
    }

    /// What a kernel asked of its device; the VM runs with the first row that needs it.
    fn traces(&mut self, run: &Run, kernel: Kernel, what: &str, wanted: &[u64]) -> Result<&zoned::Traces, Stop> {
        let traces = self.traces.entry(kernel).or_insert_with(|| zoned::record(run, kernel, what, tried(run, wanted)));
        traces.as_ref().map_err(Clone::clone)
    }

    /// When the drive of the row that was measured last was written, in nanoseconds, and in which zones; nothing of ext4, whose drive has none.
    pub(super) fn written(&mut self) -> Vec<(f64, u32)> {
        std::mem::take(&mut self.zones)
    }

    /// A row of `chunk-read`.
    pub(super) fn read(&mut self, run: &Run, profile: &Profile, asked: Asked, wanted: &[u64]) -> Result<Row, Stop> {
        let Asked { kernel, span, size, .. } = asked;
        let ran = match kernel {
            Kernel::Ext4 => {
                let all = self.reads.entry(span.name()).or_insert_with(|| ext4::reads(run, profile, span, wanted));
                all.as_ref().map_err(Clone::clone)?.get(&size).cloned().ok_or_else(nothing)?
            }
            Kernel::F2fs | Kernel::Xfs => zoned::read(self.traces(run, kernel, "read", wanted)?, profile, span, size)?,
        };
        let mut row = ran.row(&drive_name(kernel, profile), false);
        let each = ran.operations as f64 / ran.seconds.max(1e-9);
        row.figures.insert("reads/s".into(), each);
        Ok(self.described(run, kernel, "read", row))
    }

    fn described(&self, run: &Run, kernel: Kernel, what: &str, mut row: Row) -> Row {
        match kernel {
            Kernel::Ext4 => {
                let speed = run.speed(Rule::Fewer);
                row.settings.insert("clock".into(), format!("with the world's, {speed} times as fast"));
                checks::cpu_bound(&mut row);
            }
            Kernel::F2fs | Kernel::Xfs => {
                row.settings
                    .insert("clock".into(), "virtual: what the kernel of the VM asked of its device, again".into());
                row.settings.insert("device in the VM".into(), zoned::device(what).into());
            }
        }
        row
    }
}

fn drive_name(kernel: Kernel, profile: &Profile) -> String {
    match kernel {
        Kernel::Ext4 => super::hosts::conventional_twin(profile).name,
        Kernel::F2fs | Kernel::Xfs => profile.name.clone(),
    }
}

/// How many operations of a size a row has, at a place.
fn count(run: &Run, size: u64, bytes: u64, most: u64) -> u64 {
    if run.options.short { 16 } else { (bytes / size).min(most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_added_up_and_a_row_has_their_rate() {
        let one = |seconds, took: &[f64]| Ran {
            seconds,
            operations: 10,
            payload: 10_000_000,
            busy: seconds,
            stayed: 16.0 * seconds,
            took: took.to_vec(),
            ..Ran::default()
        };
        let mut all = one(1.0, &[0.1, 0.3]);
        all.add(one(3.0, &[0.2]));
        let row = all.row("d", true);
        assert_eq!((row.figures["MB/s"], row.figures["ms an append, median"]), (5.0, 200.0));
        assert_eq!((row.queue_depth, row.drive_utilisation, row.operations), (Some(16.0), Some(1.0), Some(20)));
        assert!(!Ran::default().row("d", false).figures.contains_key("ms a read, median"));
    }
}
