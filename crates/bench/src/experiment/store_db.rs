//! `store-db`: an object store whose data are on a conventional disk and whose metadata are on the same disk, on another one, on a drive-managed drive or on a host-managed one (`block.db` of Ceph).
//! Objects of three sizes are written by 64 clients at once, in real time. A write counts when it survives a loss of power.
//!
//! Ours has the metadata in `imbrex-kv`, or in RocksDB as BlueStore does. Ceph's side is an OSD as in `store-ceph`, which says how the two differ. Stock BlueStore has no host-managed drive.
//! Each row has new drives and a new store, so none finds what another has left.

use super::chart::{Axis, Chart, Shape};
use super::hosts::Disk;
use super::result::{Ratio, Row};
use super::store_ceph::Host;
use super::store_ceph::ceph::{Ceph, Osd};
use super::store_ceph::load::{self, Job, Loaded};
use super::store_ceph::ours::{self, Medium, Ours};
use super::{Experiment, Needs, Rule, Run, Stop, checks};
use imbrex_emulator::Profile;
use imbrex_store::MetadataIn;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "store-db",
    about: "Objects on a conventional disk, with the metadata there, on another disk, on a drive-managed or a host-managed drive: our store, and an OSD of Ceph 16.2 or 18.2",
    paper: "BlueStore, figure 14; BlueFS, figure 17",
    speed: 1.0,
    rows: |_| names(|_| true),
    extra: |_| names(|side| !side.is_usual()),
    needs: |_| Needs { work: 5 << 29, memory: 3 << 30 },
    run,
};

/// The paper's drives (BlueStore, section 7): conventional, drive-managed, host-managed.
const CMR: &str = "hitachi-hua72303";
const DM_SMR: &str = "seagate-st8000as0022";
const HM_SMR: &str = "hgst-hsh721414al";
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes of an object, and how many times as much the paper's store wrote with the metadata on the host-managed drive as with them on the drive-managed one.
const SIZES: [(u64, f64); 3] = [(256 * KIB, 2.41), (2 * MIB, 1.38), (32 * MIB, 1.22)];
const CLIENTS: usize = 64;
/// Bytes of the writes that librados lets a client have under way (`objecter_inflight_op_bytes`).
const UNDER_WAY: u64 = 100 * MIB;
/// Seconds of the drives that a row takes, and bytes that it writes at most: all drives are in memory.
const SECONDS: f64 = 15.0;
const BYTES: u64 = 2 << 30;
/// Seconds of a window. `rados bench` has the same.
const WINDOW: f64 = 1.0;
const RATE: &str = "objects/s";
const MBS: &str = "MB/s";

/// Where the metadata are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Same,
    Cmr,
    /// Written all over, and idle since.
    DmSmr,
    /// Its persistent cache is full of blocks that are far from one another.
    DmSmrFull,
    HmSmr,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Same => "on the same disk",
            Place::Cmr => "on CMR",
            Place::DmSmr => "on DM-SMR",
            Place::DmSmrFull => "on DM-SMR with a full cache",
            Place::HmSmr => "on HM-SMR",
        }
    }

    fn disk(self) -> Result<Option<Disk>, String> {
        let aged =
            |extents| Disk::named(DM_SMR, Rule::Fewer).map(|disk| Disk { preconditioned: Some(extents), ..disk });
        Ok(match self {
            Place::Same => None,
            Place::Cmr => Some(Disk::named(CMR, Rule::Fewer)?),
            Place::DmSmr => Some(aged(0)?),
            Place::DmSmrFull => Some(aged(u32::MAX)?),
            Place::HmSmr => Some(Disk::named(HM_SMR, Rule::Fewer)?),
        })
    }
}

/// Whose store it is, and what has its metadata.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours(MetadataIn),
    Ceph(Osd),
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Side {
    whose: Whose,
    place: Place,
}

const KV: Whose = Whose::Ours(MetadataIn::Kv);
const ROCKSDB: Whose = Whose::Ours(MetadataIn::RocksDb);
const CEPH: Whose = Whose::Ceph(Osd::Pacific);
const NEWER_CEPH: Whose = Whose::Ceph(Osd::Reef);

const fn side(whose: Whose, place: Place) -> Side {
    Side { whose, place }
}

const SIDES: [Side; 12] = [
    side(KV, Place::Same),
    side(KV, Place::Cmr),
    side(KV, Place::DmSmr),
    side(KV, Place::DmSmrFull),
    side(KV, Place::HmSmr),
    side(ROCKSDB, Place::Cmr),
    side(ROCKSDB, Place::HmSmr),
    side(CEPH, Place::Same),
    side(CEPH, Place::Cmr),
    side(CEPH, Place::DmSmr),
    side(CEPH, Place::DmSmrFull),
    side(NEWER_CEPH, Place::Cmr),
];

impl Side {
    fn is_usual(self) -> bool {
        match self.whose {
            KV => matches!(self.place, Place::Cmr | Place::DmSmr | Place::HmSmr),
            CEPH => self.place == Place::Cmr,
            Whose::Ours(_) | Whose::Ceph(_) => false,
        }
    }

    fn name(self) -> String {
        let whose = match self.whose {
            KV => "ours",
            Whose::Ours(_) => "ours with RocksDB",
            Whose::Ceph(osd) => osd.name(),
        };
        format!("{whose}, metadata {}", self.place.name())
    }

    fn of(self, size: u64) -> String {
        format!("{}: {}", objects_of(size), self.name())
    }

    fn start(self, run: &Run, size: u64) -> Result<Box<dyn Host>, Stop> {
        let (disk, db) = (Disk::named(CMR, Rule::Fewer)?, self.place.disk()?);
        Ok(match self.whose {
            Whose::Ceph(osd) => Box::new(Ceph::start(run, osd, (&disk, db.as_ref()), None)?),
            Whose::Ours(metadata) => {
                let medium = |disk: &Disk| Medium::new(run, disk, None);
                let db = db.as_ref().map(medium).transpose()?;
                Box::new(Ours::on(medium(&disk)?, db, metadata, size as usize)?)
            }
        })
    }
}

fn objects_of(size: u64) -> String {
    match size / KIB {
        kib if kib < 1024 => format!("objects of {kib} KiB"),
        kib => format!("objects of {} MiB", kib / 1024),
    }
}

fn names(which: impl Fn(Side) -> bool) -> Vec<String> {
    let sides = || SIDES.into_iter().filter(|side| which(*side));
    SIZES.into_iter().flat_map(|(size, _)| sides().map(move |side| side.of(size))).collect()
}

/// How many of the clients write at once: librados has the others wait, and ours are as many.
fn at_once(size: u64) -> usize {
    CLIENTS.min((UNDER_WAY / size) as usize).max(1)
}

/// Standard deviation over mean; 0 of nothing.
fn variation(counts: &[u64]) -> f64 {
    let n = counts.len().max(1) as f64;
    let mean = counts.iter().sum::<u64>() as f64 / n;
    let variance = counts.iter().map(|count| (*count as f64 - mean).powi(2)).sum::<f64>() / n;
    if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
}

/// The row of objects of so many bytes that were written to these drives, whose clock runs at that speed.
fn row(loaded: &Loaded, size: u64, speed: f64, drive: String) -> Row {
    let Loaded { operations, ended, meanwhile, .. } = loaded;
    let (seconds, count) = ((loaded.seconds * speed).max(1e-9), *operations as f64);
    let (rate, each) = (count / seconds, |sum: f64| sum / count.max(1.0));
    let busy = [Some(meanwhile), meanwhile.db.as_deref()].map(|of| of.map_or(0.0, |of| of.busy / seconds));
    let mut row = Row {
        rule: Rule::Fewer.name().into(),
        device_seconds: Some(meanwhile.busy),
        wall_seconds: Some(seconds),
        operations: Some(*operations),
        bytes_user: Some(operations * size),
        bytes_drive: Some(meanwhile.counts.bytes_written),
        bytes_read: Some(meanwhile.counts.bytes_read),
        flushes: Some(meanwhile.counts.flushes),
        drive_utilisation: Some(busy[0].min(1.0)),
        ..Row::new("", drive)
    };
    let mut figures = vec![
        (RATE, rate),
        (MBS, rate * size as f64 / 1e6),
        ("ms of the processor, each", each(meanwhile.processor * 1e3)),
        ("flushes of the data's drive, each", each(meanwhile.counts.flushes as f64)),
        ("ms of the data's drive, each", each(meanwhile.busy * 1e3)),
    ];
    if let Some(db) = &meanwhile.db {
        figures.extend([
            ("metadata's drive busy, part of the time", busy[1].min(1.0)),
            ("flushes of the metadata's drive, each", each(db.counts.flushes as f64)),
            ("ms of the metadata's drive, each", each(db.busy * 1e3)),
            ("bytes written to the metadata's drive, each", each(db.counts.bytes_written as f64)),
        ]);
    }
    let mut took: Vec<f64> = ended.iter().map(|(_, took)| took * speed * 1e3).collect();
    took.sort_by(f64::total_cmp);
    figures.extend([
        ("ms, mean", each(took.iter().sum())),
        ("ms, p50", load::at(&took, 0.5)),
        ("ms, p99", load::at(&took, 0.99)),
    ]);
    let windows = load::windows(ended, loaded.seconds, WINDOW / speed);
    if let Some((least, most)) = windows.iter().min().zip(windows.iter().max()) {
        figures.extend([
            ("variation of the windows", variation(&windows)),
            ("least window over the mean", *least as f64 / WINDOW / rate),
            ("greatest window over the mean", *most as f64 / WINDOW / rate),
        ]);
    }
    row.figures.extend(figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)));
    checks::cpu_bound_on_two(&mut row, busy);
    row.amplified()
}

fn measured(run: &Run, side: Side, size: u64) -> Result<Row, Stop> {
    let (speed, short) = (run.speed(Rule::Fewer), run.options.short);
    let job = Job {
        writes: true,
        size,
        at_once: at_once(size),
        seconds: if short { 0.5 } else { SECONDS / speed },
        objects: (if short { BYTES / 48 } else { BYTES } / size).max(2),
        prefix: format!("bench-{size}-{}", run.repeat()),
    };
    let loaded = side.start(run, size)?.load(run, &job)?;
    let drive = match side.place.disk()? {
        Some(db) => format!("{CMR}, metadata on {}", db.row().drive),
        None => CMR.to_owned(),
    };
    let mut row = row(&loaded, size, speed, drive);
    row.settings.insert("at once".into(), job.at_once.to_string());
    Ok(row)
}

/// What is compared: the first's rate over the second's, what is wanted, and whether the paper has a figure.
const COMPARED: [(Side, Side, Option<f64>, bool); 8] = [
    (side(KV, Place::HmSmr), side(KV, Place::Cmr), Some(0.95), false),
    (side(ROCKSDB, Place::HmSmr), side(ROCKSDB, Place::Cmr), Some(0.95), false),
    (side(KV, Place::HmSmr), side(KV, Place::DmSmr), None, true),
    (side(KV, Place::HmSmr), side(KV, Place::DmSmrFull), None, true),
    // The data are in place on both sides.
    (side(KV, Place::HmSmr), side(CEPH, Place::Cmr), Some(1.0), false),
    (side(KV, Place::HmSmr), side(NEWER_CEPH, Place::Cmr), Some(1.0), false),
    (side(CEPH, Place::Cmr), side(CEPH, Place::DmSmr), None, true),
    (side(CEPH, Place::Cmr), side(CEPH, Place::DmSmrFull), None, true),
];

fn ratios(run: &mut Run) {
    let rate = |row: &Row| row.figures.get(RATE).copied();
    let mut ratios = Vec::new();
    for (size, paper) in SIZES {
        for (over, under, goal, published) in COMPARED {
            let pairs = run.pairs(&over.of(size), &under.of(size), rate);
            let name = format!("{}: {} over {}", objects_of(size), over.name(), under.name());
            let Some(mut ratio) = Ratio::of(name, &pairs) else { continue };
            ratio.goal = goal;
            for side in [over, under] {
                let flags = run.measured(&side.of(size)).map(|row| row.flags.clone()).unwrap_or_default();
                ratio.flags.extend(flags.into_iter().map(|flag| format!("{}: {flag}", side.name())));
            }
            ratios.push(if published { ratio.paper(paper, "times", "BlueStore, section 7, figure 14") } else { ratio });
        }
    }
    run.outcome.ratios.extend(ratios);
}

fn charts(run: &mut Run) {
    for (size, _) in SIZES {
        let bar = |side: Side| {
            let rate = run.measured(&side.of(size))?.figures.get(MBS).copied()?;
            Some((side.name(), rate, None))
        };
        let bars: Vec<_> = SIDES.into_iter().filter_map(bar).collect();
        if !bars.is_empty() {
            run.outcome.charts.push(Chart {
                file: objects_of(size).replace(' ', "-").to_lowercase(),
                title: format!("{}, {CLIENTS} clients", objects_of(size)),
                x: Axis::default(),
                y: Axis::even(MBS),
                shape: Shape::Bars(bars),
            });
        }
    }
}

fn settings(run: &mut Run) -> Result<(), Stop> {
    for name in [CMR, DM_SMR, HM_SMR] {
        run.model(&Profile::named(name).ok_or("a built-in profile is gone")?);
    }
    run.setting("drives", format!("whole ones, write cache on: data on {CMR} in place; metadata there, on another {CMR}, on {DM_SMR}, or on {HM_SMR}; what has no zones is cut into bands for ours"));
    run.setting("on DM-SMR", "every band of the drive has data, and its persistent cache is empty; with a full cache it has as many single blocks as its map takes, each far from the next");
    run.setting("Ceph", "one OSD with BlueStore, one monitor, a client in Python over the loopback, 8 placement groups, no replicas, no authentication; osd_memory_target 1 GiB; metadata on another drive: block.db; 18.2 with osd_op_queue wpq, as 16.2 has it");
    run.setting("ours", ours::memory());
    run.setting(
        "an object",
        "bytes; ours with attributes of 250 and 35 bytes, and a record of 180 bytes in one of 8 logs of 3,000 in all, in one transaction",
    );
    let each: Vec<_> = SIZES.iter().map(|(size, _)| format!("{} {}", at_once(*size), objects_of(*size))).collect();
    run.setting(
        "at once",
        format!(
            "{CLIENTS} clients, of which so many write as have {} MiB in all, as librados has it: {}",
            UNDER_WAY / MIB,
            each.join(", ")
        ),
    );
    run.setting("a row", format!("{SECONDS} s of the drives, or {} GiB; new drives and a new store", BYTES >> 30));
    run.setting(
        "windows",
        format!("{WINDOW} s of the drives, by objects that ended; variation: standard deviation over mean"),
    );
    run.setting("a write", "counts when it survives a loss of power");
    Ok(())
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.real_mechanics_at(run.options.speed.unwrap_or(1.0));
    settings(run)?;
    for (size, _) in SIZES {
        for side in SIDES {
            run.row(&side.of(size), |run| measured(run, side, size))?;
        }
    }
    ratios(run);
    charts(run);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::store_ceph::load::Moment;
    use super::*;
    use imbrex_emulator::Counts;

    #[test]
    fn as_many_write_at_once_as_librados_lets() {
        assert_eq!(SIZES.map(|(size, _)| at_once(size)), [64, 50, 3]);
        assert_eq!(at_once(u64::MAX), 1);
    }

    #[test]
    fn windows_that_are_alike_have_no_variation() {
        assert_eq!((variation(&[]), variation(&[0, 0]), variation(&[7, 7, 7])), (0.0, 0.0, 0.0));
        assert!((variation(&[1, 3]) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_row_says_what_both_drives_did() {
        let moment = |busy, bytes_written| Moment {
            counts: Counts { bytes_written, flushes: 20, ..Counts::default() },
            busy,
            seeks: 0,
            processor: 0.4,
            db: None,
        };
        // Two clocks' seconds in one: 40 objects in 10 s of the drives, four a second but for one second, in which there are none.
        let ended = (0..40).map(|n| (f64::from(n) / 8.0 + if n < 20 { 0.0 } else { 0.5 }, f64::from(n + 1) / 1e3));
        let meanwhile = Moment { db: Some(Box::new(moment(1.0, 4000))), ..moment(6.0, 20 << 20) };
        let loaded = Loaded { seconds: 5.5, operations: 40, ended: ended.collect(), meanwhile };
        let row = row(&loaded, 256 * KIB, 2.0, "two".into());
        let is = |name: &str, value: f64| (row.figures[name] - value).abs() < 1e-9;
        assert!(is(RATE, 40.0 / 11.0) && is(MBS, 40.0 / 11.0 * 0.262_144), "{:?}", row.figures);
        assert!(is("metadata's drive busy, part of the time", 1.0 / 11.0) && is("ms of the data's drive, each", 150.0));
        assert!(is("bytes written to the metadata's drive, each", 100.0) && is("ms of the processor, each", 10.0));
        assert!(is("ms, p50", 40.0) && is("ms, p99", 80.0) && is("least window over the mean", 0.0));
        assert!(is("greatest window over the mean", 1.1) && row.figures["variation of the windows"] > 0.3);
        assert_eq!((row.drive_utilisation, row.write_amplification), (Some(6.0 / 11.0), Some(2.0)));
        assert!(row.flags[0].contains("at most 64 %"), "{:?}", row.flags);
    }

    #[test]
    fn the_usual_form_has_what_the_goals_are_about() {
        let usual = names(Side::is_usual);
        assert_eq!((usual.len(), names(|_| true).len()), (12, 36));
        for (over, under, goal, _) in COMPARED {
            let has = |side: Side| usual.contains(&side.of(SIZES[0].0));
            let about_it = goal.is_some() && over.whose == KV && under.whose != NEWER_CEPH;
            assert_eq!(has(over) && has(under), about_it || under == side(KV, Place::DmSmr));
        }
    }
}
