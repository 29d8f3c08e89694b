//! `imbrex chunk …`: the chunk store on a drive.

use crate::output::{Failure, Outcome, count, print, print_json, size, table};
use clap::Subcommand;
use imbrex_chunkstore::{Append, ChunkId, ChunkInfo, ChunkStore, Durability, FormatOptions, Options, StreamType};
use imbrex_drives::{Locator, OpenOptions, SCHEME, parse_size, parse_uri};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  imbrex chunk format drive.img && imbrex chunk put drive.img photo.raw\n\n\
    A drive is a path, or a URI with options, as imbrex:///data/drive.img?conventional=as-sequential."
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an empty chunk store on a drive.
    #[command(after_help = "Example:\n  imbrex chunk format drive.img")]
    Format(Format),
    /// Put a file, or stdin, into new sealed chunks; prints their names.
    #[command(
        after_help = "Examples:\n  imbrex chunk put drive.img photo.raw\n  tar c . | imbrex chunk put drive.img - --stream gc"
    )]
    Put(Put),
    /// Append a file, or stdin, to a chunk; makes the chunk if there is none of this name.
    #[command(after_help = "Example:\n  echo more | imbrex chunk append drive.img $ID - --offset 100")]
    Append(AppendArgs),
    /// Print a chunk, or a range of it.
    #[command(after_help = "Examples:\n  imbrex chunk get drive.img $ID > photo.raw\n  \
                            imbrex chunk get drive.img $ID --offset 1M --length 4K")]
    Get(Get),
    /// Let a chunk take no more appends.
    #[command(after_help = "Example:\n  imbrex chunk seal drive.img $ID")]
    Seal(Ids),
    /// Remove chunks.
    #[command(after_help = "Example:\n  imbrex chunk rm drive.img $ID")]
    Rm(Ids),
    /// List chunks by name.
    #[command(
        after_help = "Examples:\n  imbrex chunk ls drive.img --long\n  imbrex chunk ls drive.img --after $ID --limit 1000"
    )]
    Ls(Ls),
    /// Show what a chunk is, or, without a name, the store.
    #[command(after_help = "Examples:\n  imbrex chunk stat drive.img\n  imbrex chunk stat drive.img $ID")]
    Stat(Stat),
    /// Verify every record and every checksum. Exit code 1 where something is wrong. The drive stays as it is.
    #[command(after_help = "Example:\n  imbrex chunk check drive.img")]
    Check(Drive),
    /// Verify so many bytes of chunks; prints where to go on.
    #[command(after_help = "Example:\n  imbrex chunk scrub drive.img --bytes 10G --after $ID")]
    Scrub(Scrub),
    /// Move what is live out of mostly dead zones.
    #[command(after_help = "Example:\n  imbrex chunk clean drive.img --bytes 1G")]
    Clean(Clean),
    /// Rebuild the index of a drive whose metazones are lost, by reading every zone.
    #[command(
        after_help = "Examples:\n  imbrex chunk salvage drive.img --dry-run   # what would be there; changes nothing\n  \
                            imbrex chunk salvage drive.img"
    )]
    Salvage(Salvage),
    /// Show how much room there is, and what the zones are.
    #[command(after_help = "Example:\n  imbrex chunk df drive.img")]
    Df(Drive),
}

#[derive(clap::Args)]
struct Drive {
    /// The drive: a path or a URI.
    drive: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Format {
    #[command(flatten)]
    drive: Drive,
    /// Destroy what is on the drive.
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
struct Put {
    #[command(flatten)]
    drive: Drive,
    /// A file of the host, or - for stdin.
    from: String,
    /// Kind of stream: data, metadata, gc.
    #[arg(long, default_value = "data", value_parser = stream)]
    stream: StreamType,
    /// Name of the chunk; only where one is enough.
    #[arg(long)]
    id: Option<ChunkId>,
}

#[derive(clap::Args)]
struct AppendArgs {
    #[command(flatten)]
    drive: Drive,
    /// The chunk.
    id: ChunkId,
    /// A file of the host, or - for stdin.
    from: String,
    /// Where the chunk must end, so that a repeated append does nothing twice.
    #[arg(long, value_parser = parse_size)]
    offset: Option<u64>,
    /// Kind of stream of a new chunk: data, metadata, gc.
    #[arg(long, default_value = "data", value_parser = stream)]
    stream: StreamType,
}

#[derive(clap::Args)]
struct Get {
    #[command(flatten)]
    drive: Drive,
    /// The chunk.
    id: ChunkId,
    /// Where to begin.
    #[arg(long, value_parser = parse_size, default_value = "0")]
    offset: u64,
    /// How many bytes; else to the end.
    #[arg(long, value_parser = parse_size)]
    length: Option<u64>,
    /// Print damaged bytes as they are, and zeros for what cannot be read.
    #[arg(long)]
    rescue: bool,
}

#[derive(clap::Args)]
struct Ids {
    #[command(flatten)]
    drive: Drive,
    /// The chunks.
    #[arg(required = true)]
    ids: Vec<ChunkId>,
}

#[derive(clap::Args)]
struct Ls {
    #[command(flatten)]
    drive: Drive,
    /// Length, kind, state and places of each.
    #[arg(short, long)]
    long: bool,
    /// Only those behind this one.
    #[arg(long)]
    after: Option<ChunkId>,
    /// At most so many.
    #[arg(long)]
    limit: Option<usize>,
}

#[derive(clap::Args)]
struct Stat {
    #[command(flatten)]
    drive: Drive,
    /// The chunk.
    id: Option<ChunkId>,
}

#[derive(clap::Args)]
struct Scrub {
    #[command(flatten)]
    drive: Drive,
    /// Go on behind this chunk.
    #[arg(long)]
    after: Option<ChunkId>,
    /// About as many bytes.
    #[arg(long, value_parser = parse_size, default_value = "1T")]
    bytes: u64,
}

#[derive(clap::Args)]
struct Clean {
    #[command(flatten)]
    drive: Drive,
    /// About as many bytes.
    #[arg(long, value_parser = parse_size, default_value = "1T")]
    bytes: u64,
}

#[derive(clap::Args)]
struct Salvage {
    #[command(flatten)]
    drive: Drive,
    /// Only say what would be found; the drive stays as it is.
    #[arg(long)]
    dry_run: bool,
}

const STREAMS: [(&str, StreamType); 3] =
    [("data", StreamType::DATA), ("metadata", StreamType::METADATA), ("gc", StreamType::GC)];

fn stream(text: &str) -> Result<StreamType, String> {
    let known = STREAMS.iter().find(|(name, _)| *name == text).map(|(_, stream)| *stream);
    known.ok_or_else(|| format!("{text} is not data, metadata or gc"))
}

fn stream_name(stream: StreamType) -> String {
    let known = STREAMS.iter().find(|(_, known)| *known == stream);
    known.map_or_else(|| stream.number().to_string(), |(name, _)| (*name).to_owned())
}

impl From<imbrex_chunkstore::Error> for Failure {
    fn from(error: imbrex_chunkstore::Error) -> Failure {
        Failure::failed(error)
    }
}

impl Drive {
    fn open_drive(&self, read_only: bool) -> Result<imbrex_device::Drive, Failure> {
        // With the survivor: another engine's process may have left something there that it still wants.
        let (locator, mut options) = match self.drive.starts_with(SCHEME) {
            true => {
                let uri = parse_uri(&self.drive, &[])?;
                let options = uri.open_options()?;
                (uri.locator, options)
            }
            false => (self.drive.clone(), OpenOptions::default()),
        };
        let memory = Locator::is_memory(&locator);
        options.read_only |= read_only && !memory;
        let drive = imbrex_drives::open(&locator, &options)?;
        if memory {
            ChunkStore::format(&drive, &FormatOptions::default())?;
        }
        Ok(if options.read_only { imbrex_drives::overlay::cover(drive)? } else { drive })
    }

    fn open(&self) -> Result<ChunkStore, Failure> {
        Ok(ChunkStore::open(self.open_drive(false)?, Options::default())?)
    }

    /// The store as it would be opened; the drive stays as it is.
    fn look(&self) -> Result<ChunkStore, Failure> {
        Ok(ChunkStore::open(self.open_drive(true)?, Options::default())?)
    }
}

pub fn run(args: Args) -> Outcome {
    match args.verb {
        Verb::Format(args) => format(args),
        Verb::Put(args) => put(args),
        Verb::Append(args) => append(args),
        Verb::Get(args) => get(args),
        Verb::Seal(args) => seal(args),
        Verb::Rm(args) => rm(args),
        Verb::Ls(args) => ls(args),
        Verb::Stat(args) => stat(args),
        Verb::Check(args) => check(args),
        Verb::Scrub(args) => scrub(args),
        Verb::Clean(args) => clean(args),
        Verb::Salvage(args) => salvage(args),
        Verb::Df(args) => df(args),
    }
}

fn format(args: Format) -> Outcome {
    let drive = args.drive.open_drive(false)?;
    if !Locator::is_memory(&args.drive.drive) {
        ChunkStore::format(&drive, &FormatOptions { uuid: None, force: args.force })?;
    }
    let store = ChunkStore::open(drive, Options::default())?;
    let stats = store.stats();
    let zones = stats.free_zones;
    let limit = store.chunk_limit(StreamType::DATA);
    if args.drive.json {
        return print_json(&json!({ "drive": args.drive.drive, "free_zones": zones, "chunk_limit": limit }));
    }
    let name = &args.drive.drive;
    print(format_args!(
        "{name}: formatted, {} zones for chunks of {} at most",
        count(u64::from(zones)),
        size(limit.into())
    ))
}

/// A file of the host or stdin, to read from.
fn source(from: &str) -> Result<Box<dyn Read>, Failure> {
    if from == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    match File::open(from) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(Failure::failed(format!("{from}: {error}; check the path"))),
    }
}

/// As much as fits, or all there is.
fn fill(from: &mut dyn Read, name: &str, buf: &mut [u8]) -> Result<usize, Failure> {
    let mut done = 0;
    while done < buf.len() {
        match from.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::failed(format!("{name}: reading failed ({error}); try again"))),
        }
    }
    Ok(done)
}

const BUFFERED: Append = Append { offset: None, durability: Durability::Buffered };

fn put(args: Put) -> Outcome {
    let mut from = source(&args.from)?;
    let store = args.drive.open()?;
    let limit = store.chunk_limit(args.stream) as usize;
    let mut piece = vec![0; (store.limits().append as usize).min(1 << 20)];
    let mut made: Vec<(ChunkId, usize)> = Vec::new();
    // Read before a chunk is made for it, so that none is left empty at the end.
    let mut held = fill(from.as_mut(), &args.from, &mut piece)?;
    while held > 0 || made.is_empty() {
        if !made.is_empty() && args.id.is_some() {
            let limit = size(limit as u64);
            abandon(&store, &made);
            return Err(Failure::failed(format!(
                "{} needs more than one chunk (at most {limit} each), and --id names one; leave --id out",
                args.from
            )));
        }
        let id = args.id.unwrap_or_else(ChunkId::random);
        store.create_with(id, args.stream, Durability::Buffered)?;
        made.push((id, 0));
        let mut len = 0;
        let mut failed = None;
        while held > 0 && len < limit {
            let n = held.min(limit - len);
            if let Err(error) = store.append_with(id, &piece[..n], BUFFERED) {
                failed = Some(error);
                break;
            }
            len += n;
            piece.copy_within(n..held, 0);
            held -= n;
            if held == 0 {
                held = fill(from.as_mut(), &args.from, &mut piece)?;
            }
        }
        if let Some(error) = failed {
            // Half of a file is of no use to anybody.
            abandon(&store, &made);
            return Err(error.into());
        }
        store.seal_with(id, Durability::Buffered)?;
        if let Some(last) = made.last_mut() {
            last.1 = len;
        }
    }
    store.close()?;
    if args.drive.json {
        let chunks: Vec<Value> = made.iter().map(|(id, len)| json!({ "id": id.to_string(), "len": len })).collect();
        return print_json(&json!({ "chunks": chunks }));
    }
    if made.len() > 1 {
        // Not on stdout, where only names are expected.
        let (n, limit) = (made.len(), size(limit as u64));
        let _ = writeln!(
            io::stderr(),
            "imbrex: made {n} chunks, since one takes {limit} at most; they are listed in order"
        );
    }
    made.iter().try_for_each(|(id, _)| print(id))
}

fn abandon(store: &ChunkStore, made: &[(ChunkId, usize)]) {
    for (id, _) in made {
        if let Err(error) = store.delete_with(*id, Durability::Buffered) {
            tracing::warn!(%error, "a chunk of a file that did not fit is left");
        }
    }
    if let Err(error) = store.close() {
        tracing::warn!(%error, "the store was not closed");
    }
}

fn append(args: AppendArgs) -> Outcome {
    let mut from = source(&args.from)?;
    let store = args.drive.open()?;
    if let Err(imbrex_chunkstore::Error::NotFound(_)) = store.stat(args.id) {
        store.create_with(args.id, args.stream, Durability::Buffered)?;
    }
    let mut piece = vec![0; (store.limits().append as usize).min(1 << 20)];
    let mut offset = args.offset;
    let mut first = None;
    let mut all = 0;
    loop {
        let n = fill(from.as_mut(), &args.from, &mut piece)?;
        if n == 0 && all > 0 {
            break;
        }
        let at = store.append_with(args.id, &piece[..n], Append { offset, durability: Durability::Buffered })?;
        first.get_or_insert(at);
        offset = Some(at + n as u64);
        all += n;
    }
    store.close()?;
    let at = first.unwrap_or(0);
    if args.drive.json {
        return print_json(&json!({ "id": args.id.to_string(), "offset": at, "appended": all }));
    }
    print(format_args!("{} bytes at {at}", count(all as u64)))
}

fn get(args: Get) -> Outcome {
    let store = args.drive.look()?;
    let len = u64::from(store.stat(args.id)?.len);
    let end = args.length.map_or(len, |n| args.offset.saturating_add(n).min(len));
    let mut buf = vec![0; 4 << 20];
    let mut at = args.offset;
    let mut out = io::stdout().lock();
    loop {
        let n = buf.len().min(end.saturating_sub(at) as usize);
        let read = if args.rescue { ChunkStore::rescue_read } else { ChunkStore::read };
        let n = read(&store, args.id, at, &mut buf[..n])?;
        if n == 0 {
            // Also where nothing was asked for: a range behind the end is told.
            if at > len {
                read(&store, args.id, at, &mut [0])?;
            }
            break;
        }
        match out.write_all(&buf[..n]) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(Failure::Unread),
            result => {
                result.map_err(|e| Failure::failed(format!("writing the output failed ({e}); see where it goes")))?
            }
        }
        at += n as u64;
    }
    out.flush().map_err(|e| Failure::failed(format!("writing the output failed ({e}); see where it goes")))
}

fn seal(args: Ids) -> Outcome {
    let store = args.drive.open()?;
    let mut sealed = Vec::new();
    for id in &args.ids {
        sealed.push(json!({ "id": id.to_string(), "len": store.seal_with(*id, Durability::Buffered)? }));
    }
    store.close()?;
    if args.drive.json { print_json(&json!({ "sealed": sealed })) } else { Ok(()) }
}

fn rm(args: Ids) -> Outcome {
    let store = args.drive.open()?;
    // All or none: a name that is wrong is found before anything is gone.
    args.ids.iter().try_for_each(|id| store.stat(*id).map(drop))?;
    args.ids.iter().try_for_each(|id| store.delete_with(*id, Durability::Buffered))?;
    store.close()?;
    if args.drive.json { print_json(&json!({ "removed": args.ids.len() })) } else { Ok(()) }
}

fn facts(info: &ChunkInfo) -> Value {
    json!({ "id": info.id.to_string(), "stream": stream_name(info.stream), "len": info.len, "sealed": info.sealed,
            "records": info.records, "zones": info.zones })
}

fn ls(args: Ls) -> Outcome {
    let store = args.drive.look()?;
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut after = args.after;
    let mut all = Vec::new();
    loop {
        let page = store.list(after, left.min(1000));
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        left -= page.len();
        for info in &page {
            if args.drive.json {
                all.push(facts(info));
            } else if args.long {
                let state = if info.sealed { "sealed" } else { "open" };
                let stream = stream_name(info.stream);
                print(format_args!(
                    "{} {:>11} {stream:8} {state:6} {:>6} records {:>3} zones",
                    info.id, info.len, info.records, info.zones
                ))?;
            } else {
                print(info.id)?;
            }
        }
    }
    if args.drive.json { print_json(&all) } else { Ok(()) }
}

fn stat(args: Stat) -> Outcome {
    let Some(id) = args.id else { return df(args.drive) };
    let info = args.drive.look()?.stat(id)?;
    if args.drive.json {
        return print_json(&facts(&info));
    }
    print(table(&[
        ("chunk", info.id.to_string()),
        ("length", count(info.len.into())),
        ("stream", stream_name(info.stream)),
        ("state", if info.sealed { "sealed" } else { "open" }.into()),
        ("records", count(info.records.into())),
        ("zones", count(info.zones.into())),
    ]))
}

/// A progress bar that shows up where there is a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn verdict(problems: &[String], good: String, json: bool, facts: &Value) -> Outcome {
    if json {
        print_json(facts)?;
    } else if problems.is_empty() {
        print(good)?;
    } else {
        problems.iter().try_for_each(print)?;
    }
    match problems.len() {
        0 => Ok(()),
        n => Err(Failure::failed(format!("{n} things are wrong; restore those chunks from a copy"))),
    }
}

fn check(args: Drive) -> Outcome {
    let store = args.look()?;
    let bar = bar();
    let mut report = store.check(|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    report.problems.splice(0..0, store.open_report().damage.iter().cloned());
    let facts = json!({ "chunks": report.chunks, "records": report.records, "bytes": report.bytes, "problems": report.problems });
    let good = format!(
        "nothing is wrong ({} chunks, {} records, {})",
        count(report.chunks),
        count(report.records),
        size(report.bytes)
    );
    verdict(&report.problems, good, args.json, &facts)
}

fn scrub(args: Scrub) -> Outcome {
    let store = args.drive.look()?;
    let step = store.scrub(args.after, args.bytes)?;
    let next = step.next.map(|id| id.to_string());
    let facts = json!({ "bytes": step.bytes, "next": next, "problems": step.problems });
    let goes_on = next.map_or("all chunks have been looked at".to_owned(), |id| format!("go on with --after {id}"));
    verdict(&step.problems, format!("{} verified; {goes_on}", size(step.bytes)), args.drive.json, &facts)
}

fn clean(args: Clean) -> Outcome {
    let store = args.drive.open()?;
    let before = store.stats();
    let mut moved = 0;
    while moved < args.bytes {
        let n = store.clean(args.bytes - moved)?;
        if n == 0 {
            break;
        }
        moved += n;
    }
    store.close()?;
    let cleaned = store.stats().cleaned_zones - before.cleaned_zones;
    if args.drive.json {
        return print_json(&json!({ "moved_bytes": moved, "cleaned_zones": cleaned }));
    }
    print(format_args!("{} moved, {} zones cleaned", size(moved), count(cleaned)))
}

fn salvage(args: Salvage) -> Outcome {
    let drive = args.drive.open_drive(args.dry_run)?;
    let bar = bar();
    let store = ChunkStore::salvage(drive, Options::default(), |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let (report, chunks) = (store.open_report().clone(), store.stats().chunks);
    if !args.dry_run {
        store.close()?;
    }
    if args.drive.json {
        return print_json(&json!({
            "chunks": chunks, "records": report.records, "zones": report.scanned_zones, "damage": report.damage,
        }));
    }
    let (records, zones) = (count(report.records), count(report.scanned_zones));
    print(format_args!("{} chunks of {records} records in {zones} zones", count(chunks)))?;
    report.damage.iter().try_for_each(print)?;
    let missing =
        "what was deleted may be back, and chunks are open that were sealed, where the journal did not say so any more";
    print(missing)
}

fn df(args: Drive) -> Outcome {
    let store = args.look()?;
    let stats = store.stats();
    let zone = store.volume().geometry().zone_size;
    if args.json {
        return print_json(&json!({
            "chunks": stats.chunks, "zone_size": zone, "free_zones": stats.free_zones, "opened_zones": stats.opened_zones,
            "activated_zones": stats.activated_zones, "closed_zones": stats.closed_zones, "garbage_zones": stats.garbage_zones,
            "index_bytes": stats.index_bytes, "utilisation": stats.utilisation,
        }));
    }
    let zones = |n: u32| format!("{} ({})", count(n.into()), size(u64::from(n) * zone));
    print(table(&[
        ("chunks", count(stats.chunks)),
        ("free zones", zones(stats.free_zones)),
        ("being written", zones(stats.activated_zones + stats.opened_zones)),
        ("closed", zones(stats.closed_zones)),
        ("garbage", zones(stats.garbage_zones)),
    ]))
}
