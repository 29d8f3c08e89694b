//! What `imbrex drive profiles|info|zones|stats` say of drives, which they leave as they are.

use super::{Image, StatsArgs, Zones, banded_disk, device_path, image_path};
use crate::engine::Named;
use crate::kv::zones as kv;
use crate::output::{Failure, Outcome, count, number_of, print, print_json, size, table, terminal_width};
use crate::picture::Contents;
use crate::{banded, kernel, picture};
use imbrex_bluefs::BlueFs;
use imbrex_chunkstore::ChunkStore;
use imbrex_device::banded::SequentialOnly;
use imbrex_device::kernel::Access;
use imbrex_device::{Zone, ZoneState, ZonedDevice};
use imbrex_drives::{Locator, OpenOptions};
use imbrex_emulator::time::{TimeStats, answer, fingerprint, fingerprint_of, formulas};
use imbrex_emulator::{Config, Observed, Observer, Profile, Stats};
use imbrex_kv::{Kv, ZoneContent};
use imbrex_zones::{TenantZones, Volume, ZoneTable};
use serde::Serialize;
use serde_json::json;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

pub(super) fn profiles(json: bool) -> Outcome {
    let profiles = Profile::all();
    if json {
        let known: Vec<Known> = profiles.iter().map(Known::of).collect();
        return print_json(&known);
    }
    let blocks: Vec<String> = profiles.iter().map(describe_profile).collect();
    print(blocks.join("\n\n"))
}

/// A profile, and the fingerprints of its time model where it has one.
#[derive(Serialize)]
struct Known<'a> {
    #[serde(flatten)]
    profile: &'a Profile,
    model: Option<String>,
    formulas: Option<&'static str>,
}

impl Known<'_> {
    fn of(profile: &Profile) -> Known<'_> {
        let timed = !profile.parameters.is_empty();
        Known { profile, model: timed.then(|| fingerprint(profile)), formulas: timed.then(formulas) }
    }
}

fn describe_profile(profile: &Profile) -> String {
    let zones = profile.capacity / profile.zone_size;
    let conventional = profile.conventional_zones;
    let mut text = format!(
        "{}: {}\n  {}, {} of {}, {} of them conventional",
        profile.name,
        profile.description,
        size(profile.capacity),
        number_of(zones, "zone"),
        size(profile.zone_size),
        count(u64::from(conventional))
    );
    if let Some(max_open) = profile.max_open {
        text.push_str(&format!(", {max_open} may be open"));
    }
    if let Some(max_active) = profile.max_active {
        text.push_str(&format!(", {max_active} active"));
    }
    if let Some(capacity) = profile.zone_capacity {
        text.push_str(&format!(", {} of each can be written", size(capacity)));
    }
    for fact in &profile.facts {
        text.push_str(&format!("\n  {}: {} {} ({})", fact.what, fact.value, fact.unit, fact.source));
        if let Ok(Some(model)) = answer(profile, fact) {
            text.push_str(&format!("; the model says {model:.1}"));
        }
    }
    text
}

/// What `imbrex drive info` says.
#[derive(Serialize)]
pub(super) struct Facts {
    path: String,
    profile: String,
    capacity: u64,
    zones: u32,
    zone_size: u64,
    zone_capacity: u64,
    conventional: u32,
    /// Sequential zones that a band table makes of the conventional ones; none without such a table.
    bands: Option<u32>,
    block: u32,
    max_io: u32,
    max_open: Option<u32>,
    max_active: Option<u32>,
    rotational: bool,
    write_cache: bool,
    write_cache_bytes: u64,
    unflushed_bytes: u64,
    power_losses: u64,
    /// 1 of so many parts of its profile's drive, and what shrank; none where it has no time model.
    scale: Option<u32>,
    mechanics: Option<&'static str>,
    /// Bytes that the image's files take on the host.
    host_bytes: u64,
    in_use_by: Option<u32>,
}

pub(super) fn facts(path: &Path) -> Result<Facts, Failure> {
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
        bands: SequentialOnly::seen(u64::from(config.conventional) * config.zone_size, config.zone_size, |buf, at| {
            seen.read_conventional(buf, at)
        }),
        block: config.block,
        max_io: config.max_io,
        max_open: config.max_open,
        max_active: config.max_active,
        rotational: config.rotational,
        write_cache: config.write_cache,
        write_cache_bytes: config.cache_bytes,
        unflushed_bytes: at_risk * u64::from(config.block),
        power_losses: seen.stats().power_losses,
        scale: config.model.map(|model| model.scale),
        mechanics: config.model.map(|model| model.mechanics.name()),
        host_bytes: seen.files().iter().filter_map(|file| file.metadata().ok()).map(|meta| meta.blocks() * 512).sum(),
        in_use_by: seen.holder(),
    })
}

pub(super) fn info(args: Image) -> Outcome {
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
    let model = match (facts.scale, facts.mechanics) {
        (Some(scale), Some(mechanics)) if scale > 1 => format!("1/{scale} of its profile, mechanics {mechanics}"),
        (Some(_), _) => "as its profile".into(),
        _ => "none: the drive keeps no time".into(),
    };
    let cache = if facts.write_cache { format!("on, {}", size(facts.write_cache_bytes)) } else { "off".into() };
    print(table(&[
        ("drive", facts.path),
        ("profile", facts.profile),
        ("capacity", size(facts.capacity)),
        ("zones", format!("{} of {}", count(u64::from(facts.zones)), size(facts.zone_size))),
        ("conventional", conventional(facts.conventional, facts.bands)),
        ("zone capacity", size(facts.zone_capacity)),
        ("block", size(u64::from(facts.block))),
        ("largest command", size(u64::from(facts.max_io))),
        ("open limit", limit(facts.max_open)),
        ("active limit", limit(facts.max_active)),
        ("rotational", if facts.rotational { "yes" } else { "no" }.into()),
        ("write cache", cache),
        ("time model", model),
        ("unflushed", size(facts.unflushed_bytes)),
        ("power losses", count(facts.power_losses)),
        ("takes on the host", size(facts.host_bytes)),
        ("in use by", facts.in_use_by.map_or("nobody".into(), |pid| format!("process {pid}"))),
    ]))
}

/// How many zones are conventional, and what became of them.
pub fn conventional(zones: u32, bands: Option<u32>) -> String {
    let bands = bands.map(|bands| format!("; they serve as {} (bands)", number_of(bands.into(), "sequential zone")));
    format!("{}{}", count(zones.into()), bands.unwrap_or_default())
}

/// The zones as they are now, and their size, whoever has the drive; while nobody has it, those that its band table makes of conventional ones.
pub fn look(locator: &str) -> Result<(Vec<Zone>, u64), Failure> {
    let seen = observed(locator)?;
    if seen.0.first().is_none_or(|zone| zone.state != ZoneState::Conventional) {
        return Ok(seen);
    }
    let options = OpenOptions { read_only: true, ..Default::default() };
    match imbrex_drives::open(locator, &options) {
        Ok(drive) => Ok((imbrex_device::report_all(drive.device.as_ref())?, seen.1)),
        Err(_) => Ok(seen),
    }
}

fn observed(locator: &str) -> Result<(Vec<Zone>, u64), Failure> {
    if let Some(path) = device_path(locator)? {
        let device = kernel::observe(&path)?;
        return Ok((imbrex_device::report_all(&device)?, device.geometry().zone_size));
    }
    if let Some(disk) = banded_disk(locator)? {
        let drive = disk.open(Access::Observe)?;
        return Ok((imbrex_device::report_all(&drive)?, drive.geometry().zone_size));
    }
    if matches!(Locator::parse(locator)?, Locator::Sequential(..)) {
        let options = OpenOptions { read_only: true, ..Default::default() };
        let drive = imbrex_drives::open(locator, &options)?.device;
        return Ok((imbrex_device::report_all(drive.as_ref())?, drive.geometry().zone_size));
    }
    let seen = Observer::open(&image_path(locator)?)?;
    Ok((seen.zones(), seen.config().zone_size))
}

/// What the key-value store of an emulated drive or a banded disk has in its zones at this moment, whoever has it. Nothing where there is none, and of kernel devices, whose
/// time it would cost.
pub fn pairs(locator: &str) -> Option<Vec<ZoneContent>> {
    let device: Arc<dyn ZonedDevice> = match banded_disk(locator).ok()? {
        Some(disk) => Arc::new(disk.open(Access::Observe).ok()?),
        None if device_path(locator).ok()?.is_some() => return None,
        None => Arc::new(Observed::open(&image_path(locator).ok()?).ok()?),
    };
    // It changes all the time: another look may see more.
    Kv::zones_beside(device).ok().filter(|zones| !zones.is_empty())
}

/// What a drive counted so far.
pub struct Look {
    /// Commands by cause, where it counts them.
    pub stats: Option<Stats>,
    /// What became of its time, where it keeps it.
    pub time: Option<TimeStats>,
    /// The process that has it, where the system tells.
    pub holder: Option<u32>,
}

/// What a drive counted so far.
pub fn counted(locator: &str) -> Result<Look, Failure> {
    if let Some(path) = device_path(locator)? {
        return Ok(Look { stats: None, time: None, holder: kernel::observe(&path)?.about().in_use_by });
    }
    if let Some(disk) = banded_disk(locator)? {
        return Ok(Look { stats: Some(banded::stats(&disk, false)?), time: None, holder: banded::holder(&disk)? });
    }
    let seen = Observer::open(&image_path(locator)?)?;
    Ok(Look { stats: Some(seen.stats()), time: seen.time()?, holder: seen.holder() })
}

/// The table of zones of a drive that nobody uses, and what its key-value store has in them: its engines are opened for a look, so that each zone's state is what
/// an opening would find.
fn zone_table(drive: &str) -> Result<(ZoneTable, Vec<ZoneContent>), Failure> {
    let named = Named::of(drive);
    let (fs, chunks, pairs) = (
        named.open_with(named.as_a_look(), BlueFs::open_uri_with),
        named.open_with(named.as_a_look(), ChunkStore::open_uri_with),
        named.open_with(named.as_a_look(), Kv::open_uri),
    );
    let volumes = [
        fs.as_ref().ok().map(BlueFs::volume),
        chunks.as_ref().ok().map(ChunkStore::volume),
        pairs.as_ref().ok().map(Kv::volume),
    ];
    let Some(table) = volumes.into_iter().flatten().next().map(Volume::table) else {
        return Err(fs.err().unwrap_or_else(|| Failure::failed("no engine of this drive can be opened")));
    };
    let held = pairs.as_ref().ok().map_or_else(|| Ok(Vec::new()), Kv::zones)?;
    Ok((table, held))
}

fn print_table(args: &Zones) -> Outcome {
    let (found, held) = zone_table(&args.image.path)?;
    let holds = |zone: usize| held.binary_search_by_key(&zone, |of| of.zone as usize).ok().map(|at| &held[at]);
    let name =
        |tenant: Option<usize>| tenant.and_then(|tenant| found.tenants.get(tenant)).map(|tenant| tenant.name.as_str());
    if args.image.json {
        let tenants = found.tenants.iter().map(|TenantZones { name, budget, counts }| {
            let most = (budget.most != u32::MAX).then_some(budget.most);
            json!({ "name": name, "least": budget.least, "most": most, "metadata": budget.metadata, "cleaning": budget.cleaning,
                    "slots": budget.slots, "leased": counts.leased, "parked": counts.parked, "forgotten": counts.forgotten,
                    "free": counts.free, "dirty": counts.dirty, "reservations": counts.reservations, "dead": counts.dead })
        });
        let zones = found.zones.iter().enumerate();
        let zones = zones.map(|(zone, of)| {
            let mut fields = json!({ "zone": zone, "tenant": name(of.tenant), "state": of.state });
            if let Some(held) = holds(zone) {
                fields["content"] = kv::fields(held);
            }
            fields
        });
        return print_json(&json!({ "tenants": tenants.collect::<Vec<_>>(), "zones": zones.collect::<Vec<_>>() }));
    }
    for TenantZones { name, budget, counts } in &found.tenants {
        let most = if budget.most == u32::MAX { "all".into() } else { count(budget.most.into()) };
        print(format_args!(
            "{name}: at least {} zones and at most {most}, {} kept free for metadata and {} for cleaning; {} leased ({} parked, {} forgotten), \
             {} free ({} dirty, {} reserved)",
            budget.least,
            budget.metadata,
            budget.cleaning,
            count(counts.leased.into()),
            counts.parked,
            counts.forgotten,
            count(counts.free.into()),
            counts.dirty,
            counts.reservations
        ))?;
    }
    if args.list {
        // Neighbours alike are one line.
        let zones: Vec<_> = found.zones.iter().enumerate().map(|(n, of)| (n, of, holds(n).map(kv::describe))).collect();
        for alike in zones.chunk_by(|(_, one, holds), (_, next, behind)| one == next && holds == behind) {
            let [(first, of, holds), ..] = alike else { continue };
            let last = first + alike.len() - 1;
            print(format_args!(
                "zones {first:>6} to {last:<6}  {:<12}  {}{}",
                of.state,
                name(of.tenant).unwrap_or("nobody's"),
                holds.as_ref().map_or_else(String::new, |holds| format!(": {holds}"))
            ))?;
        }
        return Ok(());
    }
    if held.is_empty() { Ok(()) } else { print(format_args!("\n{}", kv::draw(&held))) }
}

pub(super) fn zones(args: Zones) -> Outcome {
    if args.table {
        return print_table(&args);
    }
    let (zones, zone_size) = look(&args.image.path)?;
    if let Some(path) = &args.picture {
        let (chunks, pairs) = (crate::chunk::contents(&args.image.path), kv::contents(&args.image.path));
        let contents = chunks.into_iter().chain(pairs).reduce(Contents::and);
        return picture::save(path, &args.image.path, &zones, zone_size, contents.as_ref());
    }
    if args.image.json {
        let all: Vec<_> = zones.iter().map(|zone| zone_json(zone, zone_size)).collect();
        return print_json(&all);
    }
    if args.list {
        return print(zone_lines(&zones).join("\n"));
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

/// A line for each zone that is not empty; of conventional ones, which nobody knows to be empty, one for all that stand together.
fn zone_lines(zones: &[Zone]) -> Vec<String> {
    let conventional = |zone: &Zone| zone.state == ZoneState::Conventional;
    let together = zones.chunk_by(|one, next| conventional(one) && conventional(next));
    let lines = together.filter_map(|zones| match zones {
        [zone] if zone.state == ZoneState::Empty => None,
        [first, .., last] => Some(format!("zones {:>5} to {}  {}", first.id.0, last.id.0, first.state.name())),
        [zone] => Some(zone_line(zone)),
        [] => None,
    });
    lines.collect()
}

fn zone_line(zone: &Zone) -> String {
    let wp = zone.wp.map_or("-".into(), |wp| wp.to_string());
    format!("zone {:>6}  {:<15}  written {wp} of {}", zone.id.0, zone.state.name(), zone.capacity)
}

pub(super) fn stats(args: StatsArgs) -> Outcome {
    if let Some(disk) = banded_disk(&args.image.path)? {
        let stats = banded::stats(&disk, args.reset)?;
        return if args.image.json { print_json(&stats) } else { print(describe_stats(&stats)) };
    }
    let path = image_path(&args.image.path)?;
    let seen = Observer::open(&path)?;
    let (stats, time) = (seen.stats(), seen.time()?);
    if args.reset {
        Observer::reset_stats(&path)?;
    }
    if args.image.json {
        let time = time.as_ref().map(|time| Timed::of(seen.config(), time));
        return print_json(&Counted { stats: &stats, time });
    }
    let mut text = describe_stats(&stats);
    if let Some(time) = &time {
        text.push_str(&format!("\n\n{}", super::time::describe(time)));
    }
    print(text)
}

/// What `imbrex drive stats` says in JSON.
#[derive(Serialize)]
struct Counted<'a> {
    #[serde(flatten)]
    stats: &'a Stats,
    /// None where the drive never kept time.
    time: Option<Timed<'a>>,
}

/// What became of a drive's time, and on which model.
#[derive(Serialize)]
struct Timed<'a> {
    #[serde(flatten)]
    time: &'a TimeStats,
    profile: &'a str,
    model: Option<String>,
    formulas: &'static str,
    scale: Option<u32>,
    mechanics: Option<&'static str>,
}

impl Timed<'_> {
    fn of<'a>(config: &'a Config, time: &'a TimeStats) -> Timed<'a> {
        let model = config.model.as_ref();
        Timed {
            time,
            profile: &config.profile,
            model: model.map(|model| fingerprint_of(&config.profile, &model.params)),
            formulas: formulas(),
            scale: model.map(|model| model.scale),
            mechanics: model.map(|model| model.mechanics.name()),
        }
    }
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
