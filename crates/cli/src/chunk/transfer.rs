//! Bytes in and out: put, append, get.

use super::making::{How, Stored, store_all};
use super::{Append, Get, Put, no_room, stream, which};
use crate::fs::progress;
use crate::output::{Failure, Outcome, bar_style, count, number_of, print, print_json};
use imbrex_chunkstore::{ChunkId, ChunkStore, Durability, Error};
use indicatif::ProgressBar;
use serde_json::json;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Where bytes come from, and how many there are if anybody knows.
pub(super) struct Input {
    from: Box<dyn Read>,
    name: String,
    pub(super) len: Option<u64>,
}

impl Input {
    pub(super) fn open(name: &str) -> Result<Input, Failure> {
        if name == "-" {
            if io::stdin().is_terminal() {
                return Err(Failure::usage("stdin is a terminal; name a file, or send the bytes through a pipe"));
            }
            return Ok(Input { from: Box::new(io::stdin().lock()), name: "stdin".into(), len: None });
        }
        let failed = |e: io::Error| Failure::failed(format!("{name}: {e}; check the path on the host"));
        let file = File::open(name).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if meta.is_dir() {
            return Err(Failure::failed(format!(
                "{name} is a directory; store what is in it with --recursive, or name a file"
            )));
        }
        let len = meta.is_file().then_some(meta.len());
        Ok(Input { from: Box::new(file), name: name.into(), len })
    }

    /// Fills the buffer as far as there are bytes; returns how many.
    pub(super) fn fill(&mut self, buf: &mut [u8]) -> Result<usize, Failure> {
        let mut done = 0;
        while done < buf.len() {
            match self.from.read(&mut buf[done..]) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Failure::failed(format!("reading {} failed ({e})", self.name))),
            }
        }
        Ok(done)
    }
}

/// Shows how far so many bytes are, or only how many were, where nobody knows how many there will be.
pub(crate) fn bar(len: Option<u64>) -> ProgressBar {
    match len {
        Some(len) => progress(len),
        None => {
            ProgressBar::new_spinner().with_style(bar_style("{spinner} {bytes} {bytes_per_sec}", "{spinner} {bytes}"))
        }
    }
}

/// A file on the host, and the name that its chunk gets.
struct Source {
    path: String,
    name: Option<String>,
}

/// What a path's chunk is called: its last part.
fn name_of(path: &Path) -> Result<String, Failure> {
    let text = path
        .to_str()
        .ok_or_else(|| Failure::failed(format!("{}: its name is not UTF-8; give one with --name", path.display())))?;
    Ok(text.to_owned())
}

/// The files below a directory, by their paths in it. What is neither file nor directory is told, since it would be lost.
fn walk(directory: &Path, inside: &Path, found: &mut Vec<Source>) -> Outcome {
    let failed = |e: io::Error| Failure::failed(format!("{}: {e}; check the path on the host", directory.display()));
    let mut entries = std::fs::read_dir(directory).map_err(failed)?.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, inside) = (entry.path(), inside.join(entry.file_name()));
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            walk(&path, &inside, found)?;
        } else if kind.is_file() {
            found.push(Source { path: name_of(&path)?, name: Some(name_of(&inside)?) });
        } else {
            return Err(Failure::failed(format!(
                "{} is neither a file nor a directory, and chunks are made of files; move it elsewhere, or store the others by name",
                path.display()
            )));
        }
    }
    Ok(())
}

fn sources(args: &Put) -> Result<Vec<Source>, Failure> {
    let mut found = Vec::new();
    for file in &args.files {
        let path = Path::new(file);
        if file != "-" && args.recursive && path.is_dir() {
            let inside = path.file_name().map_or_else(PathBuf::new, PathBuf::from);
            walk(path, &inside, &mut found)?;
            continue;
        }
        let own = if file == "-" { None } else { path.file_name().map(|name| name_of(Path::new(name))).transpose()? };
        found.push(Source { path: file.clone(), name: own });
    }
    if found.len() > 1 && (args.name.is_some() || args.id.is_some()) {
        return Err(Failure::usage("--name and --id are for one file; store one after the other"));
    }
    for source in &mut found {
        source.name = match (&args.name, args.no_name) {
            (_, true) => None,
            (Some(name), _) => Some(name.clone()),
            // Who gives an id wants the chunk by that.
            (None, _) if args.id.is_some() => None,
            (None, _) => source.name.take(),
        };
        source.name = source.name.take().map(|name| format!("{}{name}", args.prefix));
    }
    Ok(found)
}

pub(super) fn put(args: Put) -> Outcome {
    let sources = sources(&args)?;
    let mut inputs = Vec::new();
    // One that cannot be opened is told before anything is stored; many are not kept open.
    for source in &sources {
        // Who writes to a pipe must not find that nobody reads it any more.
        let is_pipe = std::fs::metadata(&source.path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        inputs.push(if is_pipe { None } else { Input::open(&source.path)?.len });
    }
    let store = args.store.open()?;
    which::free(&store, sources.iter().filter_map(|source| source.name.as_deref()), args.replace)?;
    let all: Option<u64> = inputs.into_iter().sum();
    let bar = bar(all);
    let how = How {
        stream: &args.stream,
        piece: args.piece,
        open: args.open,
        id: args.id,
        replace: args.replace,
        as_json: args.store.json,
    };
    let stored = store_all(&store, how, &bar, |maker| {
        sources.iter().try_for_each(|source| {
            let mut input = Input::open(&source.path)?;
            let what = input.name.clone();
            maker.add(&what, source.name.clone(), &mut |buf| input.fill(buf))
        })
    })?;
    told(&args, &store, &stored)
}

/// Says what was stored.
fn told(args: &Put, store: &ChunkStore, stored: &[Stored]) -> Outcome {
    let chunks = stored.iter().flat_map(|of| of.chunks.iter().map(move |id| (of, id)));
    if args.store.json {
        let chunk = |(of, id): (&Stored, &ChunkId)| {
            let len = store.stat(*id).map_or(0, |info| info.len);
            json!({ "id": id.to_string(), "len": len, "name": of.name })
        };
        let bytes: u64 = stored.iter().map(|of| of.len).sum();
        return print_json(&json!({ "chunks": chunks.map(chunk).collect::<Vec<_>>(), "bytes": bytes }));
    }
    let several = stored.len() > 1;
    for (of, id) in chunks {
        match &of.name {
            Some(name) if several => print(format_args!("{id}  {name}"))?,
            _ => print(id)?,
        }
    }
    if let [Stored { name, chunks, .. }] = stored
        && chunks.len() > 1
    {
        let limit = count(u64::from(store.chunk_limit(stream(store, &args.stream)?)));
        let back = match name {
            Some(name) => format!("{name:?}"),
            None => "all ids in this order".into(),
        };
        let sentence = format!(
            "imbrex: {} chunks, because one takes {limit} bytes at most; `imbrex chunk get` with {back} gives the bytes back",
            chunks.len()
        );
        // Where even stderr is gone there is nobody left to tell.
        let _ = writeln!(io::stderr(), "{sentence}");
    }
    Ok(())
}

/// The chunk that is appended to; where there is none, the id of a new one, and the name that it gets.
fn target<'a>(store: &ChunkStore, text: &'a str) -> Result<(ChunkId, Option<&'a str>), Failure> {
    match text.parse() {
        Ok(id) => Ok((id, None)),
        Err(_) => match which::one(store, text) {
            Ok(id) => Ok((id, None)),
            Err(_) if store.named(text).is_err() && imbrex_chunkstore::entry::names::check(text).is_none() => {
                Ok((ChunkId::random(), Some(text)))
            }
            Err(failure) => Err(failure),
        },
    }
}

pub(super) fn append(args: Append) -> Outcome {
    let mut input = Input::open(&args.file)?;
    let store = args.store.open()?;
    let new = stream(&store, &args.stream)?;
    let (id, name) = target(&store, &args.id)?;
    let (len, kind) = match store.stat(id) {
        Ok(info) => (info.len, info.stream),
        Err(_) => (0, new),
    };
    let limit = store.chunk_limit(kind);
    if let Some(more) = input.len
        && u64::from(len) + more > u64::from(limit)
    {
        return Err(Error::Limit { id, len, more, limit }.into());
    }
    // What fits one append is one.
    let mut buf = vec![0; store.limits().append as usize];
    let mut n = input.fill(&mut buf)?;
    // Of a chunk that is not there an append of nothing makes none.
    if n > 0 && args.offset.is_none_or(|offset| offset == 0) && store.stat(id).is_err() {
        store.create_with(id, kind, Durability::Buffered)?;
        if let Some(name) = name {
            store.name(&[(name, &[id])], false)?;
        }
    } else if n == 0 {
        return Err(Error::Empty.into());
    }
    let space = store.space();
    let (mut first, mut bytes) = (None, 0);
    let mut offset = args.offset;
    let bar = bar(input.len);
    while n > 0 {
        let how = imbrex_chunkstore::Append { offset, durability: Durability::Durable };
        let at = match store.append_with(id, &buf[..n], how) {
            Ok(at) => at,
            Err(error) if bytes > 0 => {
                return Err(Failure::failed(format!("{bytes} bytes are appended, the rest is not: {error}")));
            }
            Err(error) => return Err(no_room(error, &input.name, input.len, space)),
        };
        first = first.or(Some(at));
        bytes += n as u64;
        offset = Some(at + n as u64);
        bar.inc(n as u64);
        n = input.fill(&mut buf)?;
    }
    bar.finish_and_clear();
    store.close()?;
    let at = first.unwrap_or_default();
    if args.store.json {
        return print_json(&json!({ "id": id.to_string(), "offset": at, "bytes": bytes, "len": offset }));
    }
    print(format_args!("{} at {at}", number_of(bytes, "byte")))
}

pub(super) fn get(args: Get) -> Outcome {
    if args.range.is_some() && args.ids.len() > 1 {
        return Err(Failure::usage("--range is for one chunk; ask for one after the other"));
    }
    if args.store.json && args.output == "-" {
        return Err(Failure::usage("--json and the chunk's bytes would both go to stdout; give the bytes an --output"));
    }
    let store = args.store.look()?;
    let mut runs = Vec::new();
    for text in &args.ids {
        let ids = which::which(&store, text)?;
        let lens = ids.iter().map(|id| Ok(u64::from(store.stat(*id)?.len))).collect::<Result<Vec<u64>, Failure>>()?;
        let all = lens.iter().sum();
        let range = args.range.map_or(Ok((0, all)), |range| range.of(all));
        let (from, end) = range.map_err(|why| Failure::failed(format!("chunk {text} {why}")))?;
        let mut start = 0;
        for (id, len) in ids.into_iter().zip(lens) {
            let within = |at: u64| at.clamp(start, start + len) - start;
            runs.push((id, within(from), within(end)));
            start += len;
        }
    }
    let bar = progress(runs.iter().map(|(_, from, end)| end - from).sum());
    let mut out: Box<dyn Write> = match args.output.as_str() {
        "-" => Box::new(io::stdout().lock()),
        path => {
            let file = File::create(path);
            Box::new(file.map_err(|e| Failure::failed(format!("{path}: {e}; check the path on the host")))?)
        }
    };
    for (id, from, end) in runs {
        copy(&store, id, (from, end), args.rescue, &mut out, &bar)?;
    }
    out.flush().map_err(unwritten)?;
    bar.finish_and_clear();
    if args.store.json { print_json(&json!({ "bytes": bar.position() })) } else { Ok(()) }
}

pub(super) fn unwritten(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::failed(format!("writing the bytes failed ({error}); see where they go")),
    }
}

pub(super) fn copy(
    store: &ChunkStore,
    id: ChunkId,
    (mut at, end): (u64, u64),
    rescue: bool,
    out: &mut dyn Write,
    bar: &ProgressBar,
) -> Outcome {
    let mut buf = vec![0; PIECE];
    while at < end {
        let want = (end - at).min(PIECE as u64) as usize;
        let n = match rescue {
            true => store.rescue_read(id, at, &mut buf[..want])?,
            false => store.read(id, at, &mut buf[..want])?,
        };
        if n == 0 {
            return Err(Failure::failed(format!("chunk {id} ends at {at}; somebody else has changed it")));
        }
        out.write_all(&buf[..n]).map_err(unwritten)?;
        at += n as u64;
        bar.inc(n as u64);
    }
    Ok(())
}
