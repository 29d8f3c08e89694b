//! `imbrex drive …`: emulated drives in images, plain disks cut into bands, and as far as it can be the zoned block devices
//! of the kernel.

use crate::output::{Failure, Outcome, count, print, print_json, size, table, terminal_width};
use crate::{banded, kernel, picture};
use clap::{ArgGroup, Subcommand};
use imbrex_device::kernel::{Access, KernelDevice};
use imbrex_device::{Cause, Tag, Zone, ZoneOp, ZoneState, ZonedDevice};
use imbrex_drives::{BANDED, BandedDisk, Locator, parse_bool, parse_size};
use imbrex_emulator::{Config, Emulator, Observer, OpenOptions, Overrides, Profile, Stats};
use serde::Serialize;
use serde_json::json;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = "Example:\n  imbrex drive create drive.img --profile tiny")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an emulated drive in an image, a sparse file that takes what is written, no more; or, with --banded, a drive of a
    /// plain disk or file, cut into bands.
    #[command(after_help = "Examples:\n  imbrex drive create drive.img --profile hgst-hsh721414al\n  \
                            imbrex drive create small.img --profile hgst-hsh721414al --capacity 64G --write-cache off\n  \
                            imbrex drive create --banded /dev/sdc --band 80M\n  \
                            imbrex drive create --banded disk.img --capacity 64G")]
    Create(Create),
    /// List the drive models that can be emulated, and what is known of them.
    #[command(after_help = "Example:\n  imbrex drive profiles")]
    Profiles(Json),
    /// Show what a drive is, and who uses it.
    #[command(after_help = "Examples:\n  imbrex drive info drive.img\n  imbrex drive info /dev/sdb")]
    Info(Image),
    /// Draw the zones of a drive.
    #[command(after_help = "Examples:\n  imbrex drive zones drive.img\n  imbrex drive zones drive.img --list\n  \
                            imbrex drive zones drive.img --picture zones.png")]
    Zones(Zones),
    /// Show what a drive counted: commands, bytes, resets, broken rules, by cause.
    #[command(after_help = "Examples:\n  imbrex drive stats drive.img\n  imbrex drive stats drive.img --reset")]
    Stats(StatsArgs),
    /// Reset zones: what is in them is gone.
    #[command(
        after_help = "Examples:\n  imbrex drive reset drive.img 530 --force\n  imbrex drive reset drive.img all --force"
    )]
    Reset(Reset),
    /// Finish zones: they are full, whatever is in them.
    #[command(after_help = "Example:\n  imbrex drive finish drive.img 530-533")]
    Finish(Range),
    /// Take the power away: of what was written and not flushed, the seed decides what is left.
    #[command(after_help = "Example:\n  imbrex drive power-loss drive.img --seed 7")]
    PowerLoss(PowerLoss),
    /// Show the last commands of a drive, or start to record them.
    #[command(after_help = "Examples:\n  imbrex drive trace drive.img --start\n  imbrex drive trace drive.img\n  \
                            imbrex drive trace drive.img --stop")]
    Trace(Trace),
}

#[derive(clap::Args)]
struct Json {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Image {
    /// The drive's image; where it can be a banded disk as banded:disk.img, or (info and zones) a zoned one as /dev/sdb.
    path: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Create {
    /// Where the image goes.
    path: String,
    /// Drive model, one of `imbrex drive profiles`.
    #[arg(long, value_name = "NAME", required_unless_present = "banded")]
    profile: Option<String>,
    /// Cut a conventional disk, or a file, into bands that are written like sequential zones; then name it banded:PATH.
    #[arg(long, conflicts_with_all = ["profile", "zone_size", "write_cache"])]
    banded: bool,
    /// Size of a band, as 80M.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "banded")]
    band: Option<u64>,
    /// Size of the drive, as 64G or 1T; the model's without it.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    capacity: Option<u64>,
    /// Size of a zone, as 256M.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    zone_size: Option<u64>,
    /// Number of conventional zones; without it the model's, or its share of a smaller drive.
    #[arg(long, value_name = "N")]
    conventional: Option<u32>,
    /// Logical block: 4096 or 512.
    #[arg(long, value_name = "BYTES", value_parser = parse_block)]
    block_size: Option<u32>,
    /// Volatile write cache, on or off.
    #[arg(long, value_name = "on|off", value_parser = parse_bool, action = clap::ArgAction::Set)]
    write_cache: Option<bool>,
    /// Destroy what is at PATH.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Zones {
    #[command(flatten)]
    image: Image,
    /// One line for each zone that is not empty.
    #[arg(long)]
    list: bool,
    /// Characters in a row; the terminal's width without it.
    #[arg(long)]
    width: Option<usize>,
    /// Draw every zone into a file instead, which is a .png or .svg.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "width", "json"])]
    picture: Option<PathBuf>,
}

#[derive(clap::Args)]
struct StatsArgs {
    #[command(flatten)]
    image: Image,
    /// Set all counters to 0 after printing them.
    #[arg(long)]
    reset: bool,
}

#[derive(clap::Args)]
struct Range {
    /// The drive's image, a banded disk as banded:disk.img, or a zoned block device as /dev/sdb.
    path: String,
    /// Which zones: a number, a range as 5-9, or all (sequential ones).
    zones: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Reset {
    #[command(flatten)]
    range: Range,
    /// Reset zones that hold data, too.
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
struct PowerLoss {
    #[command(flatten)]
    image: Image,
    /// Decides what is left; the same seed on the same image leaves the same.
    #[arg(long)]
    seed: u64,
}

#[derive(clap::Args)]
#[command(group = ArgGroup::new("switch"))]
struct Trace {
    #[command(flatten)]
    image: Image,
    /// Record commands from the next time the drive is opened; what was recorded is forgotten.
    #[arg(long, group = "switch")]
    start: bool,
    /// How many commands are kept.
    #[arg(long, default_value_t = 65_536, requires = "start", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    entries: u32,
    /// Record no more and forget what was recorded.
    #[arg(long, group = "switch")]
    stop: bool,
}

fn parse_block(text: &str) -> Result<u32, String> {
    let block = parse_size(text)?;
    u32::try_from(block).ok().filter(|block| [512, 4096].contains(block)).ok_or_else(|| "use 512 or 4096".into())
}

/// Runs `imbrex drive`.
pub fn run(args: Args) -> Outcome {
    match args.verb {
        Verb::Create(args) => create(args),
        Verb::Profiles(args) => profiles(args.json),
        Verb::Info(args) => info(args),
        Verb::Zones(args) => zones(args),
        Verb::Stats(args) => stats(args),
        Verb::Reset(args) => reset(args),
        Verb::Finish(args) => finish(args),
        Verb::PowerLoss(args) => power_loss(args),
        Verb::Trace(args) => trace(args),
    }
}

/// What `locator` asks for, where it is a banded disk.
fn banded_disk(locator: &str) -> Result<Option<BandedDisk>, Failure> {
    let disk = match Locator::parse(locator)? {
        Locator::Banded(disk) => Some(disk),
        _ => None,
    };
    Ok(disk)
}

/// The path of an image, or why it is none.
fn image_path(locator: &str) -> Result<PathBuf, Failure> {
    match Locator::parse(locator)? {
        Locator::Image(path) if imbrex_device::banded::is_banded(&path) => {
            Err(Failure::failed(format!("{locator}: this is a banded disk; name it {BANDED}{locator}")))
        }
        Locator::Image(path) => Ok(path),
        Locator::Banded(disk) => Err(Failure::usage(format!(
            "{}: only emulated drives can do this; name a drive image (for banded disks there are info, zones, stats, reset, \
             finish)",
            disk.path.display()
        ))),
        Locator::Memory(_) => Err(Failure::usage("a drive in memory is gone with its process; name a drive image")),
        Locator::Device(path) => Err(Failure::usage(format!(
            "{}: only emulated drives can do this; name a drive image (for devices there are info, zones, reset, finish)",
            path.display()
        ))),
    }
}

/// The path of a device, where `locator` names one.
fn device_path(locator: &str) -> Result<Option<PathBuf>, Failure> {
    Ok(match Locator::parse(locator)? {
        Locator::Device(path) => Some(path),
        Locator::Image(_) | Locator::Memory(_) | Locator::Banded(_) => None,
    })
}

/// Opens the image or device at `locator` to change its zones.
fn open(locator: &str) -> Result<Box<dyn ZonedDevice>, Failure> {
    if let Some(disk) = banded_disk(locator)? {
        return Ok(Box::new(disk.open(Access::Write)?));
    }
    Ok(match device_path(locator)? {
        Some(path) => Box::new(KernelDevice::open(&path, Access::Write)?),
        None => Box::new(Emulator::open(&image_path(locator)?, OpenOptions::default())?),
    })
}

fn create(args: Create) -> Outcome {
    if args.banded {
        let create = banded::Create {
            path: args.path,
            capacity: args.capacity,
            band: args.band,
            conventional: args.conventional,
            block: args.block_size,
            force: args.force,
        };
        return banded::create(create, args.json);
    }
    if args.path.starts_with(BANDED) {
        return Err(Failure::usage("a plain disk is cut into bands by --banded, in place of --profile"));
    }
    let path = image_path(&args.path)?;
    let overrides = Overrides {
        capacity: args.capacity,
        zone_size: args.zone_size,
        conventional: args.conventional,
        block: args.block_size,
        write_cache: args.write_cache,
    };
    let config =
        Config::named(args.profile.as_deref().unwrap_or_default(), &overrides).map_err(|error| match error.fault {
            imbrex_device::Fault::Unusable(sentence) => Failure::usage(sentence),
            _ => Failure::from(error),
        })?;
    let drive = Emulator::create(&path, &config, args.force)?;
    drop(drive);
    if args.json {
        return print_json(&facts(&path)?);
    }
    print(format!(
        "{}: {} of {}, {} zones of {}, {} of them conventional",
        path.display(),
        config.profile,
        size(config.capacity),
        count(u64::from(config.zones())),
        size(config.zone_size),
        count(u64::from(config.conventional)),
    ))
}

fn profiles(json: bool) -> Outcome {
    let profiles = Profile::all();
    if json {
        return print_json(&profiles);
    }
    let blocks: Vec<String> = profiles.iter().map(describe_profile).collect();
    print(blocks.join("\n\n"))
}

fn describe_profile(profile: &Profile) -> String {
    let zones = profile.capacity / profile.zone_size;
    let conventional = profile.conventional_zones;
    let mut text = format!(
        "{}: {}\n  {}, {} zones of {}, {} of them conventional",
        profile.name,
        profile.description,
        size(profile.capacity),
        count(zones),
        size(profile.zone_size),
        count(u64::from(conventional))
    );
    if let Some(max_open) = profile.max_open {
        text.push_str(&format!(", {max_open} may be open"));
    }
    for fact in &profile.facts {
        text.push_str(&format!("\n  {}: {} {} ({})", fact.what, fact.value, fact.unit, fact.source));
    }
    text
}

/// What `imbrex drive info` says.
#[derive(Serialize)]
struct Facts {
    path: String,
    profile: String,
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
    write_cache: bool,
    write_cache_bytes: u64,
    unflushed_bytes: u64,
    power_losses: u64,
    /// Bytes that the image's files take on the host.
    host_bytes: u64,
    in_use_by: Option<u32>,
}

fn facts(path: &Path) -> Result<Facts, Failure> {
    let seen = Observer::open(path)?;
    let config = seen.config();
    let at_risk: u64 = seen.unflushed().iter().map(|risk| risk.blocks).sum();
    Ok(Facts {
        path: path.display().to_string(),
        profile: config.profile.clone(),
        capacity: config.capacity,
        zones: config.zones(),
        zone_size: config.zone_size,
        zone_capacity: config.zone_capacity,
        conventional: config.conventional,
        block: config.block,
        max_io: config.max_io,
        max_open: config.max_open,
        max_active: config.max_active,
        rotational: config.rotational,
        write_cache: config.write_cache,
        write_cache_bytes: config.cache_bytes,
        unflushed_bytes: at_risk * u64::from(config.block),
        power_losses: seen.stats().power_losses,
        host_bytes: seen.files().iter().filter_map(|file| file.metadata().ok()).map(|meta| meta.blocks() * 512).sum(),
        in_use_by: seen.holder(),
    })
}

fn info(args: Image) -> Outcome {
    if let Some(path) = device_path(&args.path)? {
        return kernel::info(&path, args.json);
    }
    if let Some(disk) = banded_disk(&args.path)? {
        return banded::info(&disk, args.json);
    }
    let facts = facts(&image_path(&args.path)?)?;
    if args.json {
        return print_json(&facts);
    }
    let limit = |limit: Option<u32>| limit.map_or("no limit".into(), |n| n.to_string());
    let cache = if facts.write_cache { format!("on, {}", size(facts.write_cache_bytes)) } else { "off".into() };
    print(table(&[
        ("drive", facts.path),
        ("profile", facts.profile),
        ("capacity", size(facts.capacity)),
        ("zones", format!("{} of {}", count(u64::from(facts.zones)), size(facts.zone_size))),
        ("conventional", count(u64::from(facts.conventional))),
        ("zone capacity", size(facts.zone_capacity)),
        ("block", size(u64::from(facts.block))),
        ("largest command", size(u64::from(facts.max_io))),
        ("open limit", limit(facts.max_open)),
        ("active limit", limit(facts.max_active)),
        ("rotational", if facts.rotational { "yes" } else { "no" }.into()),
        ("write cache", cache),
        ("unflushed", size(facts.unflushed_bytes)),
        ("power losses", count(facts.power_losses)),
        ("takes on the host", size(facts.host_bytes)),
        ("in use by", facts.in_use_by.map_or("nobody".into(), |pid| format!("process {pid}"))),
    ]))
}

/// The zones as they are now, and their size, whoever has the drive.
pub fn look(locator: &str) -> Result<(Vec<Zone>, u64), Failure> {
    if let Some(path) = device_path(locator)? {
        let device = kernel::observe(&path)?;
        return Ok((imbrex_device::report_all(&device)?, device.geometry().zone_size));
    }
    if let Some(disk) = banded_disk(locator)? {
        let drive = disk.open(Access::Observe)?;
        return Ok((imbrex_device::report_all(&drive)?, drive.geometry().zone_size));
    }
    let seen = Observer::open(&image_path(locator)?)?;
    Ok((seen.zones(), seen.config().zone_size))
}

/// What a drive counted so far, where it counts, and the process that has it, where the system tells.
pub fn counted(locator: &str) -> Result<(Option<Stats>, Option<u32>), Failure> {
    if let Some(path) = device_path(locator)? {
        return Ok((None, kernel::observe(&path)?.about().in_use_by));
    }
    if let Some(disk) = banded_disk(locator)? {
        return Ok((Some(banded::stats(&disk, false)?), banded::holder(&disk)?));
    }
    let seen = Observer::open(&image_path(locator)?)?;
    Ok((Some(seen.stats()), seen.holder()))
}

fn zones(args: Zones) -> Outcome {
    let (zones, zone_size) = look(&args.image.path)?;
    if let Some(path) = &args.picture {
        return picture::save(path, &args.image.path, &zones, zone_size);
    }
    if args.image.json {
        let all: Vec<_> = zones.iter().map(|zone| zone_json(zone, zone_size)).collect();
        return print_json(&all);
    }
    if args.list {
        let in_use = zones.iter().filter(|zone| zone.state != ZoneState::Empty);
        let lines: Vec<String> = in_use.map(zone_line).collect();
        return print(lines.join("\n"));
    }
    let width = args.width.or_else(terminal_width).unwrap_or(80);
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    print(picture::draw(&zones, zone_size, width, colour))
}

fn zone_json(zone: &Zone, zone_size: u64) -> serde_json::Value {
    json!({
        "zone": zone.id.0,
        "state": zone.state.name(),
        "start": u64::from(zone.id.0) * zone_size,
        "capacity": zone.capacity,
        "write_pointer": zone.wp,
    })
}

fn zone_line(zone: &Zone) -> String {
    let wp = zone.wp.map_or("-".into(), |wp| wp.to_string());
    format!("zone {:>6}  {:<15}  written {wp} of {}", zone.id.0, zone.state.name(), zone.capacity)
}

fn stats(args: StatsArgs) -> Outcome {
    if let Some(disk) = banded_disk(&args.image.path)? {
        let stats = banded::stats(&disk, args.reset)?;
        return if args.image.json { print_json(&stats) } else { print(describe_stats(&stats)) };
    }
    let path = image_path(&args.image.path)?;
    let stats = Observer::open(&path)?.stats();
    if args.reset {
        Observer::reset_stats(&path)?;
    }
    if args.image.json { print_json(&stats) } else { print(describe_stats(&stats)) }
}

fn describe_stats(stats: &Stats) -> String {
    let row = |name: &str, c: &imbrex_emulator::Counts| {
        format!(
            "{name:<12} {:>10} {:>9} {:>10} {:>9} {:>9} {:>8} {:>6} {:>10}",
            count(c.writes),
            size(c.bytes_written),
            count(c.reads),
            size(c.bytes_read),
            count(c.flushes),
            count(c.zone_resets),
            count(c.errors),
            count(c.rule_violations)
        )
    };
    let mut lines = vec![format!(
        "{:<12} {:>10} {:>9} {:>10} {:>9} {:>9} {:>8} {:>6} {:>10}",
        "cause", "writes", "written", "reads", "read", "flushes", "resets", "errors", "violations"
    )];
    let used = stats.by_cause.iter().filter(|(_, counts)| counts.fields().iter().any(|(_, n)| *n > 0));
    lines.extend(used.map(|(name, counts)| row(name, counts)));
    lines.push(row("all", &stats.total));
    for (rule, n) in stats.by_rule.iter().filter(|(_, n)| **n > 0) {
        lines.push(format!("broken rule {rule}: {}", count(*n)));
    }
    lines.join("\n")
}

/// Understands `5`, `5-9` and `all`; only sequential zones.
fn zone_range<'a>(text: &str, zones: &'a [Zone]) -> Result<Vec<&'a Zone>, Failure> {
    let conventional = |zone: &Zone| zone.state == ZoneState::Conventional;
    if text == "all" {
        let all: Vec<&Zone> = zones.iter().filter(|zone| !conventional(zone)).collect();
        if all.is_empty() {
            return Err(Failure::failed("the drive has no sequential zones, so there is nothing to do"));
        }
        return Ok(all);
    }
    let number = |text: &str| {
        text.parse::<usize>().map_err(|_| Failure::usage(format!("{text:?} is no zone; write a number, 5-9, or all")))
    };
    let (from, to) = match text.split_once('-') {
        None => (number(text)?, number(text)?),
        Some((from, to)) => (number(from)?, number(to)?),
    };
    let last = zones.len().saturating_sub(1);
    let Some(wanted) = zones.get(from..to.saturating_add(1)).filter(|wanted| !wanted.is_empty()) else {
        return Err(Failure::usage(format!("zones {text} are not on the drive; its zones are 0 to {last}")));
    };
    if let Some(zone) = wanted.iter().find(|zone| conventional(zone)) {
        let sequential = zones.iter().find(|zone| !conventional(zone));
        let from = sequential.map_or("there is none".into(), |zone| format!("the first is {}", zone.id));
        let sentence =
            format!("zone {} is conventional and has no write pointer; name sequential zones, {from}", zone.id);
        return Err(Failure::usage(sentence));
    }
    Ok(wanted.iter().collect())
}

fn reset(args: Reset) -> Outcome {
    let drive = open(&args.range.path)?;
    let zones = imbrex_device::report_all(drive.as_ref())?;
    let range = zone_range(&args.range.zones, &zones)?;
    let written: Vec<&&Zone> = range.iter().filter(|zone| zone.wp.is_some_and(|wp| wp > 0)).collect();
    if let (Some(first), false) = (written.first(), args.force) {
        return Err(Failure::failed(format!(
            "{}: {} of these zones hold data, the first is zone {}; nothing was reset; use --force to destroy it",
            args.range.path,
            count(written.len() as u64),
            first.id
        )));
    }
    each_zone(drive.as_ref(), ZoneOp::Reset, &range, args.range.json)
}

fn finish(args: Range) -> Outcome {
    let drive = open(&args.path)?;
    let zones = imbrex_device::report_all(drive.as_ref())?;
    let range = zone_range(&args.zones, &zones)?;
    each_zone(drive.as_ref(), ZoneOp::Finish, &range, args.json)
}

fn each_zone(drive: &dyn ZonedDevice, op: ZoneOp, range: &[&Zone], json: bool) -> Outcome {
    let zones = range.len() as u64;
    let bar = progress(zones);
    for zone in range {
        drive.zone_op(op, zone.id, Tag::new(Cause::Other))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    if json {
        let end = |zone: Option<&&Zone>| zone.map(|zone| zone.id.0);
        return print_json(
            &json!({ "operation": op.name(), "first": end(range.first()), "last": end(range.last()), "zones": zones }),
        );
    }
    print(format!("{}: {} of {} zones", drive.identity().name, op.name(), count(zones)))
}

/// A bar on a terminal, for what may take more than a second.
fn progress(steps: u64) -> indicatif::ProgressBar {
    if steps < 1000 || !std::io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    indicatif::ProgressBar::new(steps)
}

fn power_loss(args: PowerLoss) -> Outcome {
    let path = image_path(&args.image.path)?;
    let block = u64::from(Observer::open(&path)?.config().block);
    let at_risk = Emulator::power_loss_image(&path, args.seed)?;
    let bytes = at_risk.iter().map(|risk| risk.blocks).sum::<u64>() * block;
    if args.image.json {
        let zones: Vec<_> = at_risk.iter().map(|risk| json!({ "zone": risk.zone.0, "blocks": risk.blocks })).collect();
        return print_json(&json!({ "seed": args.seed, "unflushed_bytes": bytes, "unflushed": zones }));
    }
    print(format!(
        "{}: power lost; {} in {} zones were not flushed, and seed {} decided what is left of them",
        path.display(),
        size(bytes),
        count(at_risk.len() as u64),
        args.seed
    ))
}

fn trace(args: Trace) -> Outcome {
    let path = image_path(&args.image.path)?;
    // Nothing is recorded of what is no drive.
    drop(Observer::open(&path)?);
    let file = imbrex_emulator::trace_path(&path);
    if args.start {
        imbrex_emulator::start_image_trace(&path, args.entries)?;
        return said(args.image.json, json!({ "tracing": true, "entries": args.entries }), || {
            format!("{}: records its last {} commands from when it is opened next", path.display(), args.entries)
        });
    }
    if args.stop {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::failed(format!("{}: {error}; remove it yourself", file.display())));
            }
            _ => {}
        }
        return said(args.image.json, json!({ "tracing": false }), || format!("{}: not traced", path.display()));
    }
    let Some(entries) = imbrex_emulator::read_image_trace(&path)? else {
        return Err(Failure::failed(format!("{}: not traced; start with --start, then use the drive", path.display())));
    };
    if args.image.json {
        return print_json(&entries);
    }
    let lines: Vec<String> = entries.iter().map(trace_line).collect();
    print(lines.join("\n"))
}

fn trace_line(entry: &imbrex_emulator::TraceEntry) -> String {
    format!(
        "{:>9}  {:<6} {:<11} zone {:>6}  offset {:>15}  len {:>8}  {}",
        entry.sequence,
        entry.op.name(),
        entry.cause,
        entry.zone,
        entry.offset,
        entry.len,
        entry.result
    )
}

fn said(as_json: bool, json: serde_json::Value, text: impl FnOnce() -> String) -> Outcome {
    if as_json { print_json(&json) } else { print(text()) }
}
