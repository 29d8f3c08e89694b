//! `imbrex drive …` on files and conventional disks cut into bands.

use crate::output::{Failure, Outcome, count, number_of, print, print_json, size, table};
use imbrex_device::banded::{Banded, Counter, FileBase};
use imbrex_device::kernel::Access;
use imbrex_device::{AlignedBuf, Cause, ZonedDevice};
use imbrex_drives::{BANDED, BandedDisk, Locator, USUAL_BAND};
use imbrex_emulator::{Counts, Rule, Stats};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What is looked at before a disk is believed to be empty, in bytes.
const FRONT: usize = 1 << 20;

/// What `imbrex drive info` says of a banded disk.
#[derive(Serialize)]
struct Facts {
    path: String,
    kind: &'static str,
    capacity: u64,
    zones: u32,
    zone_size: u64,
    zone_capacity: u64,
    conventional: u32,
    block: u32,
    max_io: u32,
    max_open: Option<u32>,
    max_active: Option<u32>,
    rotational: bool,
    /// Bytes before the first band.
    table_bytes: u64,
    /// How often a band was reset, in all, and the one that was reset most.
    resets: u64,
    most_resets: u32,
    /// Bytes that a file takes on the host.
    host_bytes: Option<u64>,
    in_use_by: Option<u32>,
}

fn facts(path: &Path) -> Result<Facts, Failure> {
    let drive = Banded::observe(path)?;
    let base = FileBase::open(path, Access::Observe)?;
    let (layout, geometry) = (drive.layout(), drive.geometry());
    let resets: Vec<u32> = (0..layout.bands).filter_map(|band| drive.resets(imbrex_device::ZoneId(band))).collect();
    Ok(Facts {
        path: path.display().to_string(),
        kind: if base.is_disk() { "disk cut into bands" } else { "file cut into bands" },
        capacity: geometry.size(),
        zones: geometry.zones,
        zone_size: geometry.zone_size,
        zone_capacity: geometry.zone_size,
        conventional: layout.conventional,
        block: geometry.block,
        max_io: geometry.max_io,
        max_open: None,
        max_active: None,
        rotational: geometry.rotational,
        table_bytes: layout.data_at,
        resets: resets.iter().map(|n| u64::from(*n)).sum(),
        most_resets: resets.iter().copied().max().unwrap_or(0),
        host_bytes: base.host_bytes(),
        in_use_by: base.in_use_by(),
    })
}

/// `imbrex drive info banded:…`.
pub fn info(disk: &BandedDisk, json: bool) -> Outcome {
    let facts = facts(&disk.path)?;
    if json {
        return print_json(&facts);
    }
    let mut rows = vec![
        ("drive", facts.path),
        ("kind", facts.kind.to_owned()),
        ("capacity", size(facts.capacity)),
        ("zones", format!("{} of {}", count(u64::from(facts.zones)), size(facts.zone_size))),
        ("conventional", count(u64::from(facts.conventional))),
        ("block", size(u64::from(facts.block))),
        ("largest command", size(u64::from(facts.max_io))),
        ("open limit", "no limit".to_owned()),
        ("rotational", if facts.rotational { "yes" } else { "no" }.into()),
        ("band table", size(facts.table_bytes)),
        ("resets", format!("{}, {} of one band at most", count(facts.resets), facts.most_resets)),
    ];
    rows.extend(facts.host_bytes.map(|bytes| ("takes on the host", size(bytes))));
    rows.push(("in use by", facts.in_use_by.map_or("nobody".into(), |pid| format!("process {pid}"))));
    print(table(&rows))
}

/// What `imbrex drive create --banded` is asked for.
pub struct Create {
    /// A path, or a locator.
    pub path: String,
    /// Bytes of a new file, or of as much of a disk as shall be used.
    pub capacity: Option<u64>,
    /// Bytes of a band.
    pub band: Option<u64>,
    /// Bands that stay conventional.
    pub conventional: Option<u32>,
    /// Logical block in bytes.
    pub block: Option<u32>,
    /// What is there may be destroyed.
    pub force: bool,
}

/// `imbrex drive create --banded`.
pub fn create(args: Create, json: bool) -> Outcome {
    if let Locator::Sequential(path, _) = Locator::parse(&args.path)? {
        return make_sequential(&args, &path, json);
    }
    let path = args.path.strip_prefix(BANDED).unwrap_or(&args.path);
    if path.contains('?') {
        return Err(Failure::usage("options of a new banded disk are --band, --conventional and --capacity"));
    }
    let disk = BandedDisk {
        path: path.into(),
        band: Some(args.band.unwrap_or(USUAL_BAND)),
        block: args.block,
        conventional: args.conventional,
        create: None,
    };
    let there = std::fs::symlink_metadata(&disk.path).is_ok();
    if !there && matches!(Locator::parse(path)?, Locator::Device(_)) {
        return Err(Failure::failed(format!("{path}: there is no such device; `lsblk` lists disks")));
    }
    let base = if there { replace(&disk, &args)? } else { make(&disk, args.capacity)? };
    let plan = disk.plan(base_size(&base, args.capacity)?, base.good_block()).map_err(usage)?;
    let made = Banded::format(&base, &plan).inspect_err(|_| {
        // Half of a new file is nobody's; what was there before is left as it is now.
        if !there {
            drop(std::fs::remove_file(&disk.path));
        }
    })?;
    drop(base);
    if json {
        return print_json(&facts(&disk.path)?);
    }
    print(format!(
        "{BANDED}{path}: {} of {}, {} of them conventional",
        number_of(u64::from(made.bands), "band"),
        size(made.band),
        count(u64::from(made.conventional)),
    ))
}

/// The conventional zones of a drive that is there become bands.
fn make_sequential(args: &Create, path: &Path, json: bool) -> Outcome {
    if args.capacity.is_some() || args.band.is_some() || args.conventional.is_some() || args.block.is_some() {
        let sentence = "bands in conventional zones are as the zones are; leave out --capacity, --band, --conventional and --block-size";
        return Err(Failure::usage(sentence));
    }
    let bands = imbrex_drives::make_sequential(path, args.force)?;
    if json {
        return print_json(&serde_json::json!({ "drive": args.path, "bands": bands }));
    }
    let bands = number_of(u64::from(bands), "sequential zone");
    print(format!("{}: its conventional zones serve as {bands}", args.path))
}

/// A plan that does not work out is the command line's fault.
fn usage(error: imbrex_device::Error) -> Failure {
    Failure::usage(error)
}

fn make(disk: &BandedDisk, capacity: Option<u64>) -> Result<FileBase, Failure> {
    let Some(capacity) = capacity else {
        let path = disk.path.display();
        return Err(Failure::usage(format!(
            "{path}: there is no such file; say how large it shall be with --capacity"
        )));
    };
    disk.plan(capacity, 4096).map_err(usage)?;
    Ok(FileBase::create(&disk.path, capacity)?)
}

/// What is there already: a disk that is empty, or anything with `--force`.
fn replace(disk: &BandedDisk, args: &Create) -> Result<FileBase, Failure> {
    let path = disk.path.display();
    let base = FileBase::open(&disk.path, Access::Write)?;
    if base.is_disk() {
        if !args.force && !front_is_empty(&base)? {
            return Err(Failure::failed(format!(
                "{path}: there is something on this disk; nothing was changed; use --force to destroy it"
            )));
        }
        return Ok(base);
    }
    if !args.force {
        let sentence = "this file exists; use another path, or --force to destroy what is in it";
        return Err(Failure::failed(format!("{path}: {sentence}")));
    }
    let capacity = base_size(&base, args.capacity)?;
    disk.plan(capacity, 4096).map_err(usage)?;
    // A file of another size is another file. It is locked until it has no name any more.
    std::fs::remove_file(&disk.path)
        .map_err(|error| Failure::failed(format!("{path}: {error}; remove it yourself")))?;
    Ok(FileBase::create(&disk.path, capacity)?)
}

/// As much of it as shall be used.
fn base_size(base: &FileBase, capacity: Option<u64>) -> Result<u64, Failure> {
    use imbrex_device::banded::Base;
    let facts = base.facts();
    match capacity {
        Some(capacity) if base.is_disk() && capacity > facts.size => {
            Err(Failure::usage(format!("{}: this disk has {} only; ask for less", facts.name, size(facts.size))))
        }
        Some(capacity) => Ok(capacity),
        None => Ok(facts.size),
    }
}

fn front_is_empty(base: &FileBase) -> Result<bool, Failure> {
    use imbrex_device::banded::Base;
    let facts = base.facts();
    let mut front = AlignedBuf::zeroed(FRONT.min((facts.size / 4096 * 4096) as usize));
    base.read(&mut front, 0).map_err(|fault| imbrex_device::Error::new(&facts.name, fault))?;
    Ok(front.iter().all(|byte| *byte == 0))
}

/// The process that has the disk, where the system tells.
pub fn holder(disk: &BandedDisk) -> Result<Option<u32>, Failure> {
    Ok(FileBase::open(&disk.path, Access::Observe)?.in_use_by())
}

/// What a banded disk number_of, in the words of the emulator's statistics; broken rules are not told apart.
pub fn stats(disk: &BandedDisk, reset: bool) -> Result<Stats, Failure> {
    let drive = disk.open(if reset { Access::Write } else { Access::Observe })?;
    let of = |cause| {
        let n = |counter| drive.counters().get(cause, counter);
        Counts {
            writes: n(Counter::Writes),
            reads: n(Counter::Reads),
            flushes: n(Counter::Flushes),
            zone_resets: n(Counter::Resets),
            zone_finishes: n(Counter::Finishes),
            bytes_written: n(Counter::BytesWritten),
            bytes_read: n(Counter::BytesRead),
            writes_conventional: n(Counter::WritesConventional),
            bytes_written_conventional: n(Counter::BytesWrittenConventional),
            rule_violations: n(Counter::Violations),
            ..Counts::default()
        }
    };
    let by_cause: BTreeMap<_, _> = Cause::ALL.iter().map(|cause| (cause.name(), of(*cause))).collect();
    let mut total = Counts::default();
    by_cause.values().for_each(|counts| total.add(counts));
    if reset {
        drive.clear_counters();
    }
    let by_rule = Rule::ALL.iter().map(|rule| (rule.name(), 0)).collect();
    Ok(Stats { total, by_cause, by_rule, zones_closed_by_drive: 0, power_losses: 0 })
}
