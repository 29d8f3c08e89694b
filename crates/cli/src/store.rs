//! `imbrex store …`: the object store on a drive.

mod files;
mod label;
pub(crate) mod named;
mod salvage;
mod transfer;

use crate::engine::Format;
use crate::output::{Failure, Outcome, bar_style, hexadecimal, number_of, print, print_json, size, table, written};
use clap::Subcommand;
use imbrex_device::{Code, Drive};
use imbrex_store::{CacheUse, CollectionId, Hint, ObjectId, Store, Transaction};
use imbrex_zones::Volume;
use indicatif::ProgressBar;
use named::{Named, uri_with};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  imbrex drive create drive.img --profile tiny   # an emulated drive, where there is no /dev/sdb\n  \
    imbrex store format drive.img && imbrex store put drive.img photo photo.jpg\n  \
    imbrex store clone drive.img photo copy && imbrex store ls drive.img\n\n\
    A drive is a path, or a URI with options, as 'imbrex:///data/drive.img?memtable=256M'. --db names the drive with the metadata, where a store was formatted with one; so does db= in a URI."
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an empty object store on a drive.
    #[command(after_help = "Examples:\n  imbrex store format drive.img\n  \
        imbrex store format disk.img --db ssd.img     # its metadata on a faster drive, which each command names then")]
    Format(FormatBoth),
    /// Store a file, or stdin, as an object. One of that name is replaced, all at once.
    #[command(
        after_help = "Examples:\n  imbrex store put drive.img photo photo.jpg\n  tar c . | imbrex store put drive.img backup -"
    )]
    Put(Put),
    /// Print the bytes of an object.
    #[command(after_help = "Example:\n  imbrex store get drive.img photo > copy.jpg")]
    Get(Get),
    /// Delete objects, all of them or none.
    #[command(after_help = "Example:\n  imbrex store rm drive.img photo backup")]
    Rm(Rm),
    /// Give an object another name, which no other has.
    #[command(after_help = "Example:\n  imbrex store mv drive.img photo picture")]
    Mv(Pair),
    /// Make an object that has what another has now. It shares all bytes, so it takes no time and no room.
    #[command(after_help = "Example:\n  imbrex store clone drive.img photo before-editing")]
    Clone(Pair),
    /// List objects, in the order of their hashes, and their sizes.
    #[command(after_help = "Example:\n  imbrex store ls drive.img")]
    Ls(Ls),
    /// Show how full the store is.
    #[command(after_help = "Example:\n  imbrex store stat drive.img --json")]
    Stat(Look),
    /// Read all bytes and compare them with their checksums. Exit code 3 where something is damaged.
    #[command(after_help = "Examples:\n  imbrex store scrub drive.img          # a whole round, now\n  \
        imbrex store stat drive.img           # when the last one ended, and what it found\n\n\
        A program that has the store open scrubs it once a week, when nobody uses it: scrub=30d in its URI is once in 30 days, scrub=off never.")]
    Scrub(Look),
    /// Compare all records; with --deep also all bytes with their checksums. Exit code 3 where something is wrong.
    #[command(after_help = "Examples:\n  imbrex store check drive.img --deep     # changes nothing\n  \
        imbrex store check drive.img --repair   # mends what other records tell, and says what is left\n\n\
        A repair deletes nothing that an object has. What is lost stays an error until it is overwritten or deleted.\n\
        Between a check that finds something and the repair, open the store for nothing else.")]
    Check(Check),
    /// Print what the store says of itself, or change what you have it say. Without --set and --unset it reads the drive's label only, also where the metadata are lost.
    #[command(
        after_help = "Examples:\n  imbrex store label drive.img --set rack=7 --set owner=ada\n  imbrex store label drive.img --json"
    )]
    Label(label::Args),
    /// Write objects to a stream, with their attributes and omaps.
    #[command(after_help = "Examples:\n  imbrex store export drive.img objects.imbrex\n  \
        imbrex store export drive.img - | ssh other imbrex store import drive.img -\n\n\
        What objects share is written with each of them. An object with damaged bytes is left out, and the exit code is 3.")]
    Export(transfer::Export),
    /// Make the objects of such a stream. Each is there when all of it came.
    #[command(after_help = "Example:\n  imbrex store import drive.img objects.imbrex\n\n\
        An import that was cut off is begun again with --replace.")]
    Import(transfer::Import),
    /// Copy the objects of a drive whose store does not open to a directory or to another store, as far as they are left. It changes nothing on the drive. Exit code 3 where something is doubtful.
    #[command(after_help = "Examples:\n  imbrex store salvage /dev/sdb --to ./salvaged\n  \
        imbrex store salvage /dev/sdb --to imbrex:///dev/sdc")]
    Salvage(salvage::Args),
}

/// Objects that the shell makes are in this collection, unless another one of the pool has them.
const ALL: CollectionId = CollectionId { pool: 0, seed: 0 };
/// Bytes that one transaction writes, and one read gives.
const PIECE: usize = 4 << 20;
/// While an object is being stored it is the generation of this number.
const UNFINISHED: u64 = u64::MAX;
/// Names of one page of a list.
const PAGE: usize = 1024;

#[derive(clap::Args)]
struct FormatBoth {
    #[command(flatten)]
    format: Format,
    /// Another drive for the metadata. It is formatted, too.
    #[arg(long, value_name = "DRIVE")]
    db: Option<String>,
}

#[derive(clap::Args)]
struct Look {
    #[command(flatten)]
    named: Named,
}

#[derive(clap::Args)]
struct Put {
    #[command(flatten)]
    named: Named,
    /// The object.
    name: OsString,
    /// The file; - is stdin.
    file: String,
}

#[derive(clap::Args)]
struct Get {
    #[command(flatten)]
    named: Named,
    /// The object.
    name: OsString,
    /// The first byte.
    #[arg(long, value_name = "BYTE", default_value_t = 0)]
    offset: u64,
    /// So many bytes at most.
    #[arg(long, value_name = "BYTES", default_value_t = u64::MAX, hide_default_value = true)]
    length: u64,
}

#[derive(clap::Args)]
struct Rm {
    #[command(flatten)]
    named: Named,
    /// The objects.
    #[arg(required = true)]
    names: Vec<OsString>,
}

#[derive(clap::Args)]
struct Pair {
    #[command(flatten)]
    named: Named,
    /// The object.
    name: OsString,
    /// The other name.
    other: OsString,
}

#[derive(clap::Args)]
struct Ls {
    #[command(flatten)]
    named: Named,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(clap::Args)]
struct Check {
    #[command(flatten)]
    named: Named,
    /// Also read all bytes.
    #[arg(long)]
    deep: bool,
    /// First mend what other records tell.
    #[arg(long)]
    repair: bool,
    /// With --repair: only records of zones and sums.
    #[arg(long, requires = "repair")]
    quick: bool,
}

pub fn run(args: Args) -> Outcome {
    let done = match args.verb {
        Verb::Format(args) => format(args),
        Verb::Put(args) => put(&args),
        Verb::Get(args) => get(&args),
        Verb::Rm(args) => rm(&args),
        Verb::Mv(args) => rename(&args),
        Verb::Clone(args) => clone(&args),
        Verb::Ls(args) => ls(&args),
        Verb::Stat(args) => stat(&args),
        Verb::Check(args) => check(&args),
        Verb::Scrub(args) => scrub(&args),
        Verb::Label(args) => label::run(&args),
        Verb::Export(args) => transfer::export(&args),
        Verb::Import(args) => transfer::import(&args),
        Verb::Salvage(args) => salvage::run(&args),
    };
    done.map_err(|failure| failure.reword(ours))
}

/// Drives and other engines name their own commands; here this store's are meant.
fn ours(sentence: String) -> String {
    let all = [
        ("`imbrex fs format", "`imbrex store format"),
        ("`imbrex fs check", "`imbrex store check"),
        ("`imbrex kv check", "`imbrex store check"),
        ("`imbrex kv salvage", "`imbrex store salvage"),
        ("`imbrex fs salvage", "`imbrex store salvage"),
        ("`imbrex fs cp", "`imbrex store get"),
    ];
    all.iter().fold(sentence, |sentence, (theirs, ours)| sentence.replace(theirs, ours))
}

fn open(named: &Named) -> Result<Store, Failure> {
    open_as(named, Vec::new())
}

/// Opens it so that nothing on the drive changes.
fn look(named: &Named) -> Result<Store, Failure> {
    open_as(named, named.as_a_look())
}

fn open_as(named: &Named, options: Vec<(&str, &str)>) -> Result<Store, Failure> {
    let store = named.open_with(options, Store::open_uri)?;
    store.damage().iter().for_each(|sentence| crate::output::warn(&ours(sentence.clone()), named.json));
    Ok(store)
}

fn object(name: &OsStr) -> ObjectId {
    ObjectId::new(ALL.pool, b"", name.as_bytes())
}

/// Where an object is, if anything is.
fn home(store: &Store, object: &ObjectId) -> Result<CollectionId, Failure> {
    Ok(store.home(object)?.unwrap_or(ALL))
}

/// The same; the collection is made where there is none.
fn home_or_new(store: &Store, object: &ObjectId) -> Result<CollectionId, Failure> {
    if let Some(home) = store.home(object)? {
        return Ok(home);
    }
    let mut new = Transaction::new();
    new.create_collection(ALL, 0);
    store.queue(new)?;
    Ok(ALL)
}

/// There is no such object: says how to see those that are there.
fn missing(name: &OsStr, failed: imbrex_device::Error) -> Failure {
    match failed.code() {
        Code::NotFound => Failure::failed(format!("there is no object {name:?}; imbrex store ls lists objects")),
        _ => failed.into(),
    }
}

fn format(args: FormatBoth) -> Outcome {
    let FormatBoth { format, db } = args;
    let args = format.renamed(|drive| uri_with(drive, db.as_deref()))?;
    let format = |drive: &Drive, force| {
        let uri = args.uri()?;
        let metadata = Store::metadata_of(&uri)?;
        match Store::db_of(&uri)? {
            Some(db) => Store::format_apart(drive, &db, metadata, None, force),
            None => Store::format_with(drive, metadata, None, force),
        }
        .map_err(Failure::from)
    };
    args.run("an empty object store", Store::open_uri, format)
}

fn put(args: &Put) -> Outcome {
    let object = object(&args.name);
    let unfinished = ObjectId { generation: UNFINISHED, ..object.clone() };
    // What cannot be read is said before the drive is opened.
    let (mut from, len): (Box<dyn Read>, _) = match args.file.as_str() {
        "-" => (Box::new(io::stdin().lock()), 0),
        path => {
            let cannot = |error| Failure::failed(format!("{path}: {error}; check the path"));
            let file = File::open(Path::new(path)).map_err(cannot)?;
            let about = file.metadata().map_err(cannot)?;
            if about.is_dir() {
                return Err(Failure::failed(format!("{path} is a directory; put files, or a tar stream of it")));
            }
            (Box::new(file), about.len())
        }
    };
    let store = open(&args.named)?;
    let c = home_or_new(&store, &object)?;
    let mut begin = Transaction::new();
    if store.stat(c, &unfinished).is_ok() {
        // Of a put that was ended.
        begin.remove(c, &unfinished);
    }
    begin.hint(c, &unfinished, Hint { object: len, write: PIECE as u64, immutable: true, ..Hint::default() });
    store.queue(begin)?;
    let bar = ProgressBar::new(len)
        .with_style(bar_style("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}", "{bytes} of {total_bytes}"));
    let copied = copy(&mut from, &store, c, &unfinished, &bar);
    bar.finish_and_clear();
    let ended = copied.and_then(|mut end| {
        if store.stat(c, &object).is_ok() {
            end.remove(c, &object);
        }
        end.rename(c, &unfinished, &object);
        Ok(store.commit(end)?)
    });
    let Err(failure) = ended else { return Ok(()) };
    let mut undo = Transaction::new();
    undo.remove(c, &unfinished);
    Err(match store.commit(undo) {
        Ok(()) => failure,
        Err(other) => failure.and(other.into()),
    })
}

/// Returns the last piece, which goes with the object's own name: so a header of a run has that name, and a salvage without metadata knows it.
fn copy(
    from: &mut dyn Read,
    store: &Store,
    c: CollectionId,
    to: &ObjectId,
    bar: &ProgressBar,
) -> Result<Transaction, Failure> {
    let (mut bytes, mut at, mut piece) = (Vec::with_capacity(PIECE), 0, Transaction::new());
    loop {
        bytes.clear();
        let read = from.take(PIECE as u64).read_to_end(&mut bytes);
        read.map_err(|error| Failure::failed(format!("reading failed ({error}); put it again")))?;
        if bytes.is_empty() {
            return Ok(piece);
        }
        if at > 0 {
            store.queue(std::mem::take(&mut piece))?;
        }
        piece.write(c, to, at, &bytes);
        at += bytes.len() as u64;
        bar.inc(bytes.len() as u64);
    }
}

fn get(args: &Get) -> Outcome {
    let store = look(&args.named)?;
    let object = object(&args.name);
    let c = home(&store, &object)?;
    let about = store.stat(c, &object).map_err(|failed| missing(&args.name, failed))?;
    let end = args.offset.saturating_add(args.length).min(about.size);
    let (mut out, mut at) = (io::stdout().lock(), args.offset);
    while at < end {
        let bytes = store.read(c, &object, at, (end - at).min(PIECE as u64))?;
        written(out.write_all(&bytes))?;
        at += bytes.len() as u64;
    }
    written(out.flush())
}

fn rm(args: &Rm) -> Outcome {
    let (store, mut all) = (open(&args.named)?, Transaction::new());
    for name in &args.names {
        let object = object(name);
        let c = home(&store, &object)?;
        store.stat(c, &object).map_err(|failed| missing(name, failed))?;
        all.remove(c, &object);
    }
    Ok(store.commit(all)?)
}

fn rename(args: &Pair) -> Outcome {
    let (store, from, to) = (open(&args.named)?, object(&args.name), object(&args.other));
    let (c, other) = (home(&store, &from)?, home(&store, &to)?);
    store.stat(c, &from).map_err(|failed| missing(&args.name, failed))?;
    if store.stat(other, &to).is_ok() {
        return Err(Failure::failed(format!("there is an object {:?} already; delete it first", args.other)));
    }
    same(c, other)?;
    let mut transaction = Transaction::new();
    transaction.rename(c, &from, &to);
    Ok(store.commit(transaction)?)
}

fn clone(args: &Pair) -> Outcome {
    let (store, from, to) = (open(&args.named)?, object(&args.name), object(&args.other));
    let (c, other) = (home(&store, &from)?, home(&store, &to)?);
    store.stat(c, &from).map_err(|failed| missing(&args.name, failed))?;
    same(c, other)?;
    let mut transaction = Transaction::new();
    transaction.clone_object(c, &from, &to);
    Ok(store.commit(transaction)?)
}

fn same(one: CollectionId, other: CollectionId) -> Outcome {
    let sentence = format!(
        "one of the names belongs to {one} and the other to {other}; copy it with `imbrex store get` and `put`"
    );
    if one == other { Ok(()) } else { Err(Failure::failed(sentence)) }
}

fn ls(args: &Ls) -> Outcome {
    let (store, mut left) = (look(&args.named)?, args.limit.unwrap_or(usize::MAX));
    for (c, _) in store.collections()?.into_iter().filter(|(c, _)| c.pool == ALL.pool) {
        let mut next = None;
        loop {
            let page = store.list(c, next.as_ref(), PAGE)?;
            for id in page.all.into_iter().filter(|id| id.generation != UNFINISHED) {
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                let size = store.stat(c, &id)?.size;
                let name = OsStr::from_bytes(&id.name);
                match (args.named.json, std::str::from_utf8(&id.name)) {
                    (true, Ok(name)) => print(json!({ "name": name, "bytes": size }))?,
                    (true, Err(_)) => print(json!({ "name_hex": hexadecimal(&id.name), "bytes": size }))?,
                    (false, Ok(name)) if !name.contains(char::is_control) => print(format_args!("{size:>14}  {name}"))?,
                    (false, _) => print(format_args!("{size:>14}  {name:?}"))?,
                }
            }
            next = page.next;
            if next.is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn stat(args: &Look) -> Outcome {
    let store = look(&args.named)?;
    let (usage, collections) = (store.usage(), store.collections()?);
    if store.scrubbed().damaged > 0 {
        // What was overwritten since is none any more.
        store.damaged()?;
    }
    let scrub = store.scrubbed();
    let (keeper, db) = (store.metadata_in().name(), store.db());
    if args.named.json {
        let collection = |(c, bits): &(CollectionId, u8)| json!({ "pool": c.pool, "seed": c.seed, "bits": bits });
        return print_json(&json!({
            "objects": usage.objects,
            "bytes": usage.bytes,
            "stored_bytes": usage.stored,
            "deferred_bytes": usage.deferred,
            "uncounted_changes": usage.uncounted,
            "free_bytes": usage.free,
            "capacity_bytes": usage.capacity,
            "fullness": usage.fullness.name(),
            "layout": if store.allocation_unit().is_some() { "in-place" } else { "zones" },
            "allocation_unit": store.allocation_unit(),
            "metadata": {
                "in": keeper,
                "drive": db.map(|db| db.name().to_string()),
                "volume": db.map(|db| hexadecimal(&db.uuid())),
            },
            "read_again": usage.read_again,
            "read_in_vain": usage.read_in_vain,
            "cache_hits": usage.cache.hits,
            "cache_misses": usage.cache.misses,
            "cache_bytes": usage.cache.bytes,
            "scrub": {
                "began": scrub.began,
                "ended": scrub.ended,
                "under_way": scrub.is_under_way,
                "bytes_read": scrub.read,
                "damaged_places": scrub.damaged,
            },
            "collections": collections.iter().map(collection).collect::<Vec<_>>(),
        }));
    }
    print(table(&[
        ("objects", number_of(usage.objects, "object")),
        ("their bytes", size(usage.bytes)),
        ("stored", size(usage.stored)),
        ("layout", layout(store.allocation_unit())),
        ("waiting in the metadata", size(usage.deferred)),
        ("metadata", metadata(keeper, db)),
        ("free", size(usage.free)),
        ("can have", format!("{} ({})", size(usage.capacity), usage.fullness.name())),
        ("read again", format!("{} with success, {} in vain", usage.read_again, usage.read_in_vain)),
        ("records in memory", records(&usage.cache)),
        ("last scrub ended", ago(scrub.ended)),
        ("known to be damaged", number_of(scrub.damaged, "place")),
        ("collections", collections.len().to_string()),
    ]))
}

/// Where data are put.
fn layout(unit: Option<u64>) -> String {
    unit.map_or("in runs on zones".into(), |unit| format!("in place, in units of {}", size(unit)))
}

/// Where the metadata are, and in what.
fn metadata(keeper: &str, db: Option<&Volume>) -> String {
    match db {
        None => format!("on the same drive, in {keeper}"),
        Some(db) => format!("on {}, volume {}, in {keeper}", db.name(), hexadecimal(&db.uuid())),
    }
}

/// What a cache of records has, and how many of those that were asked for it had.
fn records(cache: &CacheUse) -> String {
    format!("{}, {} found and {} read", size(cache.bytes), cache.hits, cache.misses)
}

fn scrub(args: &Look) -> Outcome {
    let store = open(&args.named)?;
    let usage = store.usage();
    let bar = ProgressBar::new(usage.stored + usage.deferred)
        .with_style(bar_style("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}", "{bytes} of {total_bytes}"));
    let damaged = store.scrub(|read| bar.set_position(read));
    bar.finish_and_clear();
    let (damaged, scrub) = (damaged?, store.scrubbed());
    let found: Vec<String> = damaged.iter().map(ToString::to_string).collect();
    if args.named.json {
        print_json(&json!({ "problems": found, "damaged_places": scrub.damaged, "bytes_read": scrub.read }))?;
    } else {
        found.iter().try_for_each(print)?;
    }
    match scrub.damaged {
        0 if args.named.json => Ok(()),
        0 => print(format_args!("nothing is wrong with {}", size(scrub.read))),
        n => Err(Failure::damage(format_args!(
            "{} found; write those objects again from a copy, or delete them",
            number_of(n, "damaged place")
        ))),
    }
}

/// How long ago that was; in seconds since 1970.
fn ago(then: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match now.saturating_sub(then) {
        _ if then == 0 => "never".into(),
        seconds @ 0..120 => format!("{} ago", number_of(seconds, "second")),
        seconds @ 120..7200 => format!("{} ago", number_of(seconds / 60, "minute")),
        seconds @ 7200..172_800 => format!("{} ago", number_of(seconds / 3600, "hour")),
        seconds => format!("{} ago", number_of(seconds / 86_400, "day")),
    }
}

fn check(args: &Check) -> Outcome {
    let store = match args.repair {
        true => open_as(&args.named, vec![("repair", "on"), ("scrub", "off")])?,
        false => look(&args.named)?,
    };
    let mended = if args.repair { store.repair(args.quick)?.mended } else { Vec::new() };
    let report = store.check_all(args.deep)?;
    let found: Vec<String> = store.damage().iter().cloned().chain(report.wrong).map(ours).collect();
    if args.named.json {
        print_json(
            &json!({ "mended": mended, "problems": found, "objects": report.objects, "blobs": report.blobs, "bytes_read": report.read }),
        )?;
    } else {
        mended.iter().try_for_each(|sentence| print(format_args!("mended: {sentence}")))?;
        found.iter().try_for_each(print)?;
    }
    match found.len() as u64 {
        0 if args.named.json => Ok(()),
        0 => print(format_args!("nothing is wrong with {}", number_of(report.objects, "object"))),
        n => Err(Failure::damage(format_args!(
            "{} found; copy what can be read with `imbrex store get`, {}",
            number_of(n, "problem"),
            if args.repair {
                "and delete or overwrite the rest, or format the drive again"
            } else {
                "then run `imbrex store check --repair`"
            }
        ))),
    }
}
