//! `imbrex chunk …`: the chunk store on a drive.

mod change;
mod look;
mod making;
mod range;
mod tarball;
mod transfer;
mod unfinished;
mod which;

use crate::engine::Named;
use crate::output::{Failure, Outcome, bar_style, count, number_of};
use crate::picture::{Content, Contents};
use clap::Subcommand;
use imbrex_chunkstore::{ChunkId, ChunkStore, OpenStep, Space, StreamType, ZoneInfo};
use imbrex_drives::parse_size;
use indicatif::ProgressBar;
use range::{Range, range};
use std::ops::Deref;
use std::time::{Duration, Instant};

pub(crate) use transfer::bar;

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  imbrex drive create drive.img --profile tiny   # an emulated drive, where there is no /dev/sdb\n  \
    imbrex chunk format drive.img && id=$(imbrex chunk put drive.img photo.jpg)\n  \
    imbrex chunk get drive.img $id > copy.jpg\n\n\
    A drive is a path, or a URI with options, as 'imbrex:///data/drive.img?open-zones=8'."
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an empty chunk store on a drive. Its conventional zones serve as sequential ones, unless a file system shares it.
    #[command(after_help = "Examples:\n  imbrex chunk format drive.img\n  \
                            imbrex chunk format drive.img --with-fs   # shared with imbrex fs\n  \
                            imbrex chunk format drive.img --stream logs:30:8 --stream cold:365:4:64M")]
    Format(Format),
    /// Store files, or what comes from stdin, and print the chunks' ids. A file's name is the chunk's. What is longer than one chunk becomes several.
    #[command(
        after_help = "Examples:\n  imbrex chunk put drive.img photo.jpg && imbrex chunk get drive.img photo.jpg > copy.jpg\n  \
                            imbrex chunk put drive.img ~/photos --recursive\n  \
                            pg_dump db | imbrex chunk put drive.img --name dumps/today --replace\n  \
                            imbrex chunk put drive.img log.0 --open --stream metadata"
    )]
    Put(Put),
    /// Append to a chunk that is not sealed; makes the chunk if there is none of this id. What fits one append is there as a whole
    /// after a crash, or not at all.
    #[command(after_help = "Examples:\n  echo line | imbrex chunk append drive.img $id\n  \
                            imbrex chunk append drive.img $id part --offset 4096   # safe to repeat")]
    Append(Append),
    /// Print chunks, by name or id, one behind the other, or a range of one.
    #[command(after_help = "Examples:\n  imbrex chunk get drive.img photo.jpg > copy.jpg\n  \
                            imbrex chunk get drive.img 5f3c > photo.jpg            # the beginning of an id\n  \
                            imbrex chunk get drive.img photo.jpg --range 0-1023    # the first KiB, as HTTP counts\n  \
                            imbrex chunk get drive.img photo.jpg --range 1M+4K --output part")]
    Get(Get),
    /// Seal chunks: they take no more appends.
    #[command(after_help = "Example:\n  imbrex chunk seal drive.img $id")]
    Seal(Ids),
    /// Remove chunks.
    #[command(after_help = "Examples:\n  imbrex chunk rm drive.img photo.jpg\n  \
                            imbrex chunk rm drive.img $(imbrex chunk ls drive.img --ids)")]
    Rm(Ids),
    /// Name chunks, or rename them.
    #[command(after_help = "Examples:\n  imbrex chunk name drive.img photos/new.jpg photo.jpg   # renames\n  \
                            imbrex chunk name drive.img backup.tar $id1 $id2      # one name for several, in order\n  \
                            imbrex chunk name drive.img photo.jpg --off")]
    Name(Name),
    /// Write chunks as a tar stream, each by its name, or by its id where it has none.
    #[command(after_help = "Examples:\n  imbrex chunk export drive.img > all.tar\n  \
                            imbrex chunk export drive.img photos/ | tar x      # what is named so, into this directory")]
    Export(Export),
    /// Store the files of a tar stream, each by its name: all of them, or none.
    #[command(after_help = "Examples:\n  imbrex chunk import drive.img all.tar\n  \
                            tar c photos | imbrex chunk import drive.img --replace")]
    Import(Import),
    /// List chunks by id, with their names; or by name.
    #[command(after_help = "Examples:\n  imbrex chunk ls drive.img --long\n  \
                            imbrex chunk ls drive.img photos/                      # by name, what begins so\n  \
                            imbrex chunk ls drive.img --limit 1000                 # a page\n  \
                            imbrex chunk ls drive.img --limit 1000 --after $last   # the next one")]
    Ls(Ls),
    /// Show what a chunk is and where it stands, or what the store is.
    #[command(after_help = "Examples:\n  imbrex chunk stat drive.img\n  imbrex chunk stat drive.img $id")]
    Stat(Stat),
    /// Show how much room there is.
    #[command(
        after_help = "Examples:\n  imbrex chunk df drive.img\n  imbrex chunk df drive.img --score --json | jq .fragmentation"
    )]
    Df(Df),
    /// Compare the index with every record, and verify every checksum. Exit code 3 where something is wrong.
    #[command(after_help = "Example:\n  imbrex chunk check drive.img   # changes nothing")]
    Check(Store),
    /// Verify chunk after chunk at a limited speed; can be resumed. Exit code 3 where something is wrong.
    #[command(after_help = "Examples:\n  imbrex chunk scrub drive.img --rate 20M\n  \
                            imbrex chunk scrub drive.img --bytes 10G --json        # says where it stopped\n  \
                            imbrex chunk scrub drive.img --bytes 10G --after $next")]
    Scrub(Scrub),
    /// Move what is live out of zones that are mostly dead, so that they become free.
    #[command(after_help = "Examples:\n  imbrex chunk clean drive.img\n  imbrex chunk clean drive.img --bytes 1G")]
    Clean(Clean),
    /// Rebuild the index of a drive whose metazones are lost, by reading every zone; with --relabel also of one that has lost its label.
    #[command(
        after_help = "Examples:\n  imbrex chunk salvage drive.img --dry-run            # what would be there; changes nothing\n  \
                            imbrex chunk salvage drive.img\n  \
                            imbrex chunk salvage drive.img --relabel --dry-run  # both copies of the label are lost\n  \
                            imbrex chunk salvage drive.img --relabel"
    )]
    Salvage(Salvage),
}

#[derive(clap::Args)]
struct Store {
    #[command(flatten)]
    named: Named,
}

impl Deref for Store {
    type Target = Named;
    fn deref(&self) -> &Named {
        &self.named
    }
}

#[derive(clap::Args)]
struct Format {
    /// The drive: a path or a URI.
    drive: String,
    /// Destroy what is on the drive.
    #[arg(long)]
    force: bool,
    /// Make an empty file system beside it, which shares the drive: see `imbrex fs`.
    #[arg(long)]
    with_fs: bool,
    /// One more kind of stream: how many days its chunks live, its share of the open zones, and perhaps the most bytes of a chunk.
    #[arg(long = "stream", value_name = "NAME:DAYS:POOL[:LIMIT]")]
    streams: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Put {
    #[command(flatten)]
    store: Store,
    /// The files; - is stdin.
    #[arg(default_value = "-")]
    files: Vec<String>,
    /// Store what is in directories, too, each file by the directory's name and its path in it.
    #[arg(short, long)]
    recursive: bool,
    /// Name of what is stored; of a file its own without this.
    #[arg(long, conflicts_with_all = ["recursive", "no_name"])]
    name: Option<String>,
    /// What all names begin with, as `photos/`.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Give no names.
    #[arg(long, conflicts_with = "prefix")]
    no_name: bool,
    /// Delete what has one of the names, when all is stored.
    #[arg(long)]
    replace: bool,
    /// Id of the chunk, 48 hexadecimal digits, where one chunk is enough; a random one without it.
    #[arg(long, value_parser = id)]
    id: Option<ChunkId>,
    /// Kind of stream: data, metadata, gc, or one of the user's own (see format --stream); a name or a number.
    #[arg(long, default_value = "data")]
    stream: String,
    /// Leave the last chunk open for appends, instead of sealing it.
    #[arg(long)]
    open: bool,
    /// Bytes of one append; without it 1M, or what fits a zone.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    piece: Option<u64>,
}

#[derive(clap::Args)]
struct Append {
    #[command(flatten)]
    store: Store,
    /// The chunk: its id, its name, or the beginning of its id.
    #[arg(value_name = "CHUNK")]
    id: String,
    /// What to append: a file; - is stdin.
    #[arg(default_value = "-")]
    file: String,
    /// Where the chunk must end, else nothing is appended: so an append whose answer was lost can be repeated.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    offset: Option<u64>,
    /// Kind of stream of a new chunk: as for put.
    #[arg(long, default_value = "data")]
    stream: String,
}

#[derive(clap::Args)]
struct Get {
    #[command(flatten)]
    store: Store,
    /// The chunks: ids, names, or beginnings of ids.
    #[arg(required = true, value_name = "CHUNK")]
    ids: Vec<String>,
    /// Only these bytes of one: FROM-TO as in HTTP (0-4 is five bytes), FROM-, -LAST, FROM+BYTES or FROM+.
    #[arg(long, value_name = "RANGE", value_parser = range, allow_hyphen_values = true)]
    range: Option<Range>,
    /// Where to; - is stdout.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: String,
    /// Damaged bytes as they are, and zeros for those that cannot be read.
    #[arg(long)]
    rescue: bool,
}

#[derive(clap::Args)]
struct Ids {
    #[command(flatten)]
    store: Store,
    /// The chunks: ids, names, or beginnings of ids.
    #[arg(required = true, value_name = "CHUNK")]
    ids: Vec<String>,
}

#[derive(clap::Args)]
struct Name {
    #[command(flatten)]
    store: Store,
    /// The name.
    name: String,
    /// What it is for: chunks, in order.
    #[arg(required_unless_present = "off", value_name = "CHUNK")]
    chunks: Vec<String>,
    /// Delete what has the name.
    #[arg(long)]
    replace: bool,
    /// Take the name off its chunks, which stay.
    #[arg(long, conflicts_with_all = ["chunks", "replace"])]
    off: bool,
}

#[derive(clap::Args)]
struct Export {
    #[command(flatten)]
    store: Store,
    /// The chunks: names, names that begin so (where it ends with a slash), ids; without any, all.
    #[arg(value_name = "CHUNK")]
    chunks: Vec<String>,
    /// Where to; - is stdout.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: String,
}

#[derive(clap::Args)]
struct Import {
    #[command(flatten)]
    store: Store,
    /// The tar file; - is stdin.
    #[arg(default_value = "-")]
    file: String,
    /// What all names begin with, as `photos/`.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Delete what has one of the names, when all is stored.
    #[arg(long)]
    replace: bool,
    /// Kind of stream of all of it: as for put. Without it, each chunk is of the kind that it was exported from, or of kind data.
    #[arg(long)]
    stream: Option<String>,
}

#[derive(clap::Args)]
struct Ls {
    #[command(flatten)]
    store: Store,
    /// Only what has a name that begins so, by name.
    prefix: Option<String>,
    /// By name: what has one.
    #[arg(long)]
    names: bool,
    /// Nothing but ids.
    #[arg(long, conflicts_with_all = ["names", "long", "prefix"])]
    ids: bool,
    /// Size, kind of stream, state, records and zones of each.
    #[arg(short, long)]
    long: bool,
    /// Only those behind this id, which need not be there.
    #[arg(long, value_name = "ID", value_parser = id)]
    after: Option<ChunkId>,
    /// At most so many.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    limit: Option<u64>,
}

#[derive(clap::Args)]
struct Df {
    #[command(flatten)]
    store: Store,
    /// Fragmentation, too: of the zone in which an average live byte stands, the part that is dead, 0 to 1.
    #[arg(long)]
    score: bool,
}

#[derive(clap::Args)]
struct Stat {
    #[command(flatten)]
    store: Store,
    /// A chunk: its id, its name, or the beginning of its id.
    #[arg(value_name = "CHUNK")]
    id: Option<String>,
}

#[derive(clap::Args)]
struct Scrub {
    #[command(flatten)]
    store: Store,
    /// Bytes a second at most.
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    rate: Option<u64>,
    /// Go on behind this id.
    #[arg(long, value_name = "ID", value_parser = id)]
    after: Option<ChunkId>,
    /// Stop after about so many bytes.
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    bytes: Option<u64>,
}

#[derive(clap::Args)]
struct Clean {
    #[command(flatten)]
    store: Store,
    /// Move about so many bytes at most.
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    bytes: Option<u64>,
}

#[derive(clap::Args)]
struct Salvage {
    #[command(flatten)]
    store: Store,
    /// Only say what would be found; the drive stays as it is.
    #[arg(long)]
    dry_run: bool,
    /// Where both copies of the label are lost, write a new one in their place, from what the zones say. Written zones that are not the
    /// store's stay as they are; other engines on the drive get theirs back.
    #[arg(long)]
    relabel: bool,
    /// Of several chunk stores that have zones on it, the one that the label shall be of.
    #[arg(long, value_name = "UUID", value_parser = volume, requires = "relabel")]
    volume: Option<[u8; 16]>,
}

fn id(text: &str) -> Result<ChunkId, String> {
    text.parse()
}

/// A size that is not 0: nothing would be done.
fn some_bytes(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("that is nothing; give one byte at least, or leave it out".into()),
        bytes => Ok(bytes),
    }
}

fn at_least_one(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("{text:?} is no number from 1 on; write 1, 2, …"))
}

fn volume(text: &str) -> Result<[u8; 16], String> {
    let wrong = |_| "write the UUID as salvage without --volume lists it".to_owned();
    text.parse::<uuid::Uuid>().map(uuid::Uuid::into_bytes).map_err(wrong)
}

impl From<imbrex_chunkstore::Error> for Failure {
    fn from(error: imbrex_chunkstore::Error) -> Failure {
        Failure::of(error.class(), error)
    }
}

/// The failure; where the drive is full, with how much `what` needs and how much was free before.
fn no_room(error: imbrex_chunkstore::Error, what: &str, needs: Option<u64>, before: Space) -> Failure {
    if !error.is_no_space() {
        return error.into();
    }
    let needs = needs.map_or("more".into(), |bytes| number_of(bytes, "byte"));
    let free = (number_of(before.free, "byte"), count(before.dead));
    Failure::from(error).reword(|why| {
        format!("{what}: {why}; it needs {needs}, and {} are free ({} more when cleaned)", free.0, free.1)
    })
}

pub fn run(args: Args) -> Outcome {
    match args.verb {
        Verb::Format(args) => change::format(args),
        Verb::Put(args) => transfer::put(args),
        Verb::Append(args) => transfer::append(args),
        Verb::Get(args) => transfer::get(args),
        Verb::Seal(args) => change::seal(args),
        Verb::Rm(args) => change::rm(args),
        Verb::Name(args) => change::name(args),
        Verb::Export(args) => tarball::export(args),
        Verb::Import(args) => tarball::import(args),
        Verb::Ls(args) => look::ls(args),
        Verb::Stat(args) => look::stat(args),
        Verb::Df(args) => look::df(args),
        Verb::Check(args) => look::check(args),
        Verb::Scrub(args) => look::scrub(args),
        Verb::Clean(args) => change::clean(args),
        Verb::Salvage(args) => change::salvage(args),
    }
}

impl Store {
    /// A drive of this name.
    fn of(drive: &str) -> Store {
        Store { named: Named::of(drive) }
    }

    /// Opens the store, which recovers what a crash has left.
    fn open(&self) -> Result<ChunkStore, Failure> {
        self.open_as(Vec::new())
    }

    /// Opens it for a look: nothing on the drive changes, not even what an opening would recover.
    fn look(&self) -> Result<ChunkStore, Failure> {
        self.open_as(self.named.as_a_look())
    }

    /// With a progress bar, where recovery takes longer than a moment.
    fn open_as(&self, options: Vec<(&str, &str)>) -> Result<ChunkStore, Failure> {
        let began = Instant::now();
        let mut bar = None;
        let store = self.named.open_with(options, |uri, options| {
            ChunkStore::open_uri_watched(uri, options, |step, done, all| {
                if bar.is_none() && began.elapsed() > MOMENT {
                    bar = Some(recovery_bar());
                }
                if let Some(bar) = &bar {
                    bar.set_message(what(step));
                    bar.set_length(all);
                    bar.set_position(done);
                }
            })
        });
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        store
    }
}

/// No progress bar before that.
const MOMENT: Duration = Duration::from_millis(500);

fn recovery_bar() -> ProgressBar {
    ProgressBar::no_length().with_style(bar_style("{msg} {wide_bar} {pos}/{len} zones {eta}", "{percent} % {eta}"))
}

fn what(step: OpenStep) -> &'static str {
    match step {
        OpenStep::Heads => "looking for zones of a chunk store",
        OpenStep::Metazones => "reading journal and checkpoints",
        OpenStep::Scan => "scanning what was written last",
        OpenStep::Salvage => "salvaging",
    }
}

/// What the chunk store on a drive has in its zones; `None`: there is none, or somebody uses it now.
pub fn contents(drive: &str) -> Option<Contents> {
    if imbrex_drives::Locator::is_memory(drive) {
        return None;
    }
    let store = Store::of(drive).look().ok()?;
    let mut contents = Contents { kinds: vec!["journal and checkpoints".into()], ..Contents::default() };
    contents.kinds.extend((0..StreamType::MOST as u8).filter_map(StreamType::new).map(|s| store.stream_name(s)));
    let content = |zone: &ZoneInfo| {
        let kind = zone.usage.map_or(0, |usage| 1 + usize::from(usage.stream().number()));
        (zone.zone, Content { kind, live: zone.live, written: zone.written, letter: None, framed: false })
    };
    contents.zones = store.zones().iter().map(content).collect();
    Some(contents)
}

/// The kind of stream that the user names.
fn stream(store: &ChunkStore, name: &str) -> Result<StreamType, Failure> {
    store.stream_of(name).ok_or_else(|| {
        let known = store.stream_names().join(", ");
        Failure::failed(format!(
            "there is no stream {name:?}; there are {known}; ?streams=NAME:DAYS:POOL behind the drive's name, as ?streams=logs:30:8, makes one"
        ))
    })
}
