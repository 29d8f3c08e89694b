//! `imbrex drive …`: emulated drives in images, plain disks cut into bands, and as far as it can be the zoned block devices
//! of the kernel.

mod change;
mod files;
mod look;
mod serve;
mod time;

pub use look::{conventional, counted, look, pairs};

use crate::output::{Failure, Outcome, count, number_of, print, print_json, size};
use crate::{banded, known};
use clap::{ArgGroup, Subcommand};
use imbrex_device::ZoneOp;
use imbrex_device::ZonedDevice;
use imbrex_device::kernel::{Access, KernelDevice};
use imbrex_drives::{AS_SEQUENTIAL, BANDED, BandedDisk, Locator, parse_bool, parse_size};
use imbrex_emulator::time::{Mechanics, parse_scale};
use imbrex_emulator::{Config, Emulator, OpenOptions, Overrides};
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = "Example:\n  imbrex drive create drive.img --profile tiny")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an emulated drive in an image, a sparse file that grows as you write; or, with --banded, a drive of a
    /// plain disk or file, cut into bands.
    #[command(after_help = "Examples:\n  imbrex drive create drive.img --profile hgst-hsh721414al\n  \
                            imbrex drive create small.img --profile hgst-hsh721414al --capacity 64G --write-cache off\n  \
                            imbrex drive create scaled.img --profile hgst-hsh721414al --scale 64\n  \
                            imbrex drive create --banded /dev/sdc --band 80M\n  \
                            imbrex drive create --banded disk.img --capacity 64G\n  \
                            imbrex drive create --banded '/dev/sdb?conventional=as-sequential'")]
    Create(Create),
    /// Remove an emulated drive, with all its files. What is on it is gone.
    #[command(after_help = "Example:\n  imbrex drive rm drive.img")]
    Rm(files::Remove),
    /// Give an emulated drive another path on the same file system.
    #[command(after_help = "Example:\n  imbrex drive mv drive.img /data/drive.img")]
    Mv(files::Pair),
    /// Copy an emulated drive that nobody writes to; holes stay holes.
    #[command(after_help = "Example:\n  imbrex drive cp drive.img copy.img")]
    Cp(files::Pair),
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
    /// Show what a drive counted: commands, bytes, resets, broken rules, and where its time went, by cause.
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
    /// Open zones explicitly: the drive does not close them by itself. What is in them stays.
    #[command(after_help = "Example:\n  imbrex drive open drive.img 600-605")]
    Open(Range),
    /// Close zones: they count no more against the drive's limit of open zones. What is in them stays.
    #[command(after_help = "Example:\n  imbrex drive close drive.img 600-605")]
    Close(Range),
    /// Take the power away: of what was written and not flushed, the seed decides what is left.
    #[command(after_help = "Example:\n  imbrex drive power-loss drive.img --seed 7")]
    PowerLoss(PowerLoss),
    /// Show the last commands of a drive, or start to record them.
    #[command(after_help = "Examples:\n  imbrex drive trace drive.img --start\n  imbrex drive trace drive.img\n  \
                            imbrex drive trace drive.img --plot pictures\n  imbrex drive trace drive.img --stop")]
    Trace(Trace),
    /// Make a drive-managed drive as after a long life: every band has something in it, and the persistent cache is filled.
    #[command(
        after_help = "Examples:\n  imbrex drive precondition dm.img\n  imbrex drive precondition dm.img --fill 0.5"
    )]
    Precondition(time::Precondition),
    /// Replay the recorded commands of a drive on the time of a drive model.
    #[command(after_help = "Example:\n  imbrex drive replay drive.img --profile hitachi-hua72303 --depth 32")]
    Replay(time::Args),
    /// Serve a drive under the kernel's own file systems: a conventional or drive-managed one as a file, for a loop device, a zoned one as
    /// a zoned block device.
    #[command(after_help = "Example:\n  imbrex drive serve drive.img --at /mnt/served\n\nThen, as root:\n  \
                            losetup --find --show --direct-io=on --sector-size 4096 /mnt/served/drive\n  \
                            mkfs.xfs -K /dev/loop0 && mount /dev/loop0 /mnt/xfs\n\nA zoned drive, as root:\n  \
                            imbrex drive serve zoned.img --zoned\n  mkfs.f2fs -m /dev/ublkb0 && mount /dev/ublkb0 /mnt/f2fs")]
    Serve(serve::Serve),
    /// Take away what hangs on served drives: file systems, loop devices, the file; the device of a zoned one.
    #[command(
        after_help = "Examples:\n  imbrex drive detach /mnt/served\n  imbrex drive detach /dev/ublkb0\n  imbrex drive detach --all"
    )]
    Detach(serve::Detach),
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
    /// Drive model, one of `imbrex drive profiles`, or a file that describes one.
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "banded", value_parser = known::profile(), hide_possible_values = true)]
    profile: Option<String>,
    /// Make the drive so many times smaller, as 64 or 1/64: capacity, zones, caches, the largest command and all mechanical
    /// times. Sizes given beside it are as they are.
    #[arg(long, value_name = "N", value_parser = parse_scale)]
    scale: Option<u32>,
    /// With --scale: scaled, or real, which leaves operations as large and slow as they are and makes only fewer zones.
    #[arg(long, value_name = "scaled|real", value_parser = Mechanics::parse, requires = "scale")]
    mechanics: Option<Mechanics>,
    /// Cut a conventional disk, or a file, into bands that are written like sequential zones; then name it banded:PATH. With
    /// ?conventional=as-sequential behind PATH, do that to the conventional zones of a drive that has them.
    #[arg(long, conflicts_with_all = ["profile", "zone_size", "write_cache", "scale"])]
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
    /// Largest command, as 4M; the model's without it.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "banded")]
    max_io: Option<u64>,
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
    /// One line for each zone that is not empty, and one for conventional zones that stand together.
    #[arg(long)]
    list: bool,
    /// The table of zones: what each engine may take and has, and what a key-value store has in each zone. With --list or --json whose each zone is and what for. Opens
    /// the engines for a look.
    #[arg(long, conflicts_with = "width")]
    table: bool,
    /// Characters in a row; the terminal's width without it.
    #[arg(long)]
    width: Option<usize>,
    /// Draw the zones into a file instead, which is a .png or .svg.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "width", "json", "table"])]
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
    /// Draw the recorded commands into this directory: places and throughput over the drive's time, as SVG and PNG.
    #[arg(long, value_name = "DIR", group = "switch")]
    plot: Option<PathBuf>,
}

fn parse_block(text: &str) -> Result<u32, String> {
    let block = parse_size(text)?;
    u32::try_from(block).ok().filter(|block| [512, 4096].contains(block)).ok_or_else(|| "use 512 or 4096".into())
}

/// Runs `imbrex drive`.
pub fn run(args: Args) -> Outcome {
    match args.verb {
        Verb::Create(args) => create(args),
        Verb::Rm(args) => files::remove(args),
        Verb::Mv(args) => files::rename(args),
        Verb::Cp(args) => files::copy(args),
        Verb::Profiles(args) => look::profiles(args.json),
        Verb::Info(args) => look::info(args),
        Verb::Zones(args) => look::zones(args),
        Verb::Stats(args) => look::stats(args),
        Verb::Reset(args) => change::reset(args),
        Verb::Finish(args) => change::operate(args, ZoneOp::Finish),
        Verb::Open(args) => change::operate(args, ZoneOp::Open),
        Verb::Close(args) => change::operate(args, ZoneOp::Close),
        Verb::PowerLoss(args) => change::power_loss(args),
        Verb::Trace(args) => change::trace(args),
        Verb::Precondition(args) => time::precondition(args),
        Verb::Replay(args) => time::run(args),
        Verb::Serve(args) => serve::serve(args),
        Verb::Detach(args) => serve::detach(args),
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
        Locator::Image(path, _) if imbrex_device::banded::is_banded(&path) => {
            Err(Failure::failed(format!("{locator}: this is a banded disk; name it {BANDED}{locator}")))
        }
        Locator::Image(path, _) => Ok(path),
        Locator::Sequential(path, _) => {
            let path = path.display();
            Err(Failure::usage(format!(
                "{path}: this asks for the drive as it is; name it {path}, without {AS_SEQUENTIAL}"
            )))
        }
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
        Locator::Image(..) | Locator::Memory(_) | Locator::Banded(_) | Locator::Sequential(..) => None,
    })
}

/// Opens the image or device at `locator` to change its zones.
fn open(locator: &str) -> Result<Arc<dyn ZonedDevice>, Failure> {
    if let Some(disk) = banded_disk(locator)? {
        return Ok(Arc::new(disk.open(Access::Write)?));
    }
    if matches!(Locator::parse(locator)?, Locator::Sequential(..)) {
        return Ok(imbrex_drives::open(locator, &imbrex_drives::OpenOptions::default())?.device);
    }
    Ok(match device_path(locator)? {
        Some(path) => Arc::new(KernelDevice::open(&path, Access::Write)?),
        None => Arc::new(Emulator::open(&image_path(locator)?, OpenOptions::default())?),
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
    if let Locator::Device(path) = Locator::parse(&args.path)? {
        let path = path.display();
        return Err(Failure::usage(format!(
            "{path}: emulated drives are files, and this names a device; name a file, or cut the disk into bands with --banded in \
             place of --profile; a host-managed drive needs no create, but `imbrex fs format {path}`"
        )));
    }
    let path = image_path(&args.path)?;
    let overrides = Overrides {
        capacity: args.capacity,
        zone_size: args.zone_size,
        conventional: args.conventional,
        block: args.block_size,
        max_io: args.max_io.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        write_cache: args.write_cache,
        scale: args.scale,
        mechanics: args.mechanics.unwrap_or_default(),
    };
    let config =
        Config::named(args.profile.as_deref().unwrap_or_default(), &overrides).map_err(|error| match error.fault {
            // The drive has no name yet.
            imbrex_device::Fault::Misuse(sentence) => Failure::usage(sentence),
            _ => Failure::from(error),
        })?;
    let drive = Emulator::create(&path, &config, args.force)?;
    drop(drive);
    if args.json {
        return print_json(&look::facts(&path)?);
    }
    let files = files::several(imbrex_emulator::Observer::open(&path)?.files());
    print(format!(
        "{}: {} of {}, {} of {}, {} of them conventional{}",
        path.display(),
        config.profile,
        size(config.capacity),
        number_of(u64::from(config.zones()), "zone"),
        size(config.zone_size),
        count(u64::from(config.conventional)),
        files.map(|all| format!("; in {all} (`imbrex drive rm|mv|cp` take them together)")).unwrap_or_default(),
    ))
}
