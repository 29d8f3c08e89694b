//! Bytes in and out: put, append, get.

use super::{Append, Get, Put, stream};
use crate::fs::progress;
use crate::output::{Failure, Outcome, count, print, print_json, report};
use imbrex_chunkstore::{ChunkId, ChunkStore, Durability, Error};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// So often it is looked whether there was a signal.
const LOOK: Duration = Duration::from_millis(20);
/// A put makes durable what it has appended so far each time it was so many bytes.
const SYNC: u64 = 256 << 20;

/// Where bytes come from, and how many there are if anybody knows.
struct Input {
    from: Box<dyn Read>,
    name: String,
    len: Option<u64>,
}

impl Input {
    fn open(name: &str) -> Result<Input, Failure> {
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
                "{name} is a directory; name a file, or send a tar stream of it to stdin"
            )));
        }
        let len = meta.is_file().then_some(meta.len());
        Ok(Input { from: Box::new(file), name: name.into(), len })
    }

    /// Fills the buffer as far as there are bytes; returns how many.
    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, Failure> {
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

    fn bar(&self) -> ProgressBar {
        match self.len {
            Some(len) => progress(len),
            None => {
                let style = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec}");
                ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
            }
        }
    }
}

/// A chunk that a put has made.
struct Made {
    id: ChunkId,
    len: u64,
}

/// The chunks of a put. Whoever holds it is the only one who changes the store.
type AllMade = Arc<Mutex<Vec<Made>>>;

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Half of it helps nobody.
fn take_back(store: &ChunkStore, made: &[Made]) -> Result<(), Error> {
    for chunk in made {
        store.delete_with(chunk.id, Durability::Buffered)?;
    }
    store.close()
}

/// Ctrl-C and SIGTERM take back what was stored, also while the input says nothing, and end the process; until this is dropped.
struct Watch {
    interrupted: Arc<AtomicBool>,
    /// Whoever has the store keeps its volume from being shut down, and the survivor's memory with it.
    store: Arc<Mutex<Option<ChunkStore>>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.store).take();
    }
}

impl Watch {
    fn over(store: &ChunkStore, made: &AllMade, bar: &ProgressBar, as_json: bool) -> Watch {
        let mut watch = Watch { interrupted: Arc::default(), store: Arc::new(Mutex::new(Some(store.clone()))) };
        for signal in [SIGINT, SIGTERM] {
            if let Err(error) = signal_hook::flag::register(signal, watch.interrupted.clone()) {
                tracing::warn!(%error, "an interruption leaves chunks behind");
                watch.interrupted = Arc::default();
                return watch;
            }
        }
        let (interrupted, store) = (watch.interrupted.clone(), watch.store.clone());
        let (made, bar) = (made.clone(), bar.clone());
        std::thread::spawn(move || {
            while !interrupted.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
            // The lock is kept: whoever would be done now waits, since nobody goes on from here.
            let store = lock(&store);
            let Some(store) = store.as_ref() else { return };
            let made = lock(&made);
            bar.finish_and_clear();
            let sentence = match take_back(store, &made) {
                Ok(()) => "interrupted, and nothing of it is stored; put it again".to_owned(),
                Err(error) => {
                    let ids: Vec<String> = made.iter().map(|chunk| chunk.id.to_string()).collect();
                    format!("interrupted, and what was stored could not be removed ({error}); remove {}", ids.join(" "))
                }
            };
            std::process::exit(report(Err(Failure::failed(sentence)), as_json).into());
        });
        watch
    }
}

pub(super) fn put(args: Put) -> Outcome {
    let mut input = Input::open(&args.file)?;
    let store = args.store.open()?;
    let made = AllMade::default();
    let bar = input.bar();
    let watch = Watch::over(&store, &made, &bar, args.store.json);
    let done = fill_chunks(&store, &mut input, &args, &made, &bar);
    // Ctrl-C ends whoever writes to the pipe, too: the end of the input is then none of what was to be stored.
    while watch.interrupted.load(Ordering::Relaxed) {
        std::thread::park();
    }
    bar.finish_and_clear();
    // From here on it is done, or fails by itself; who is taking it back meanwhile is waited for, and ends the process.
    drop(watch);
    let made = lock(&made);
    if let Err(failure) = done {
        // The failure is what is told, not that of the removal.
        let _ = take_back(&store, &made);
        return Err(failure);
    }
    store.close()?;
    let bytes: u64 = made.iter().map(|chunk| chunk.len).sum();
    if args.store.json {
        let chunks: Vec<_> = made.iter().map(|c| json!({ "id": c.id.to_string(), "len": c.len })).collect();
        return print_json(&json!({ "chunks": chunks, "bytes": bytes }));
    }
    for chunk in made.iter() {
        print(chunk.id)?;
    }
    if made.len() > 1 {
        let limit = store.chunk_limit(stream(&store, &args.stream)?);
        let sentence = format!(
            "imbrex: {} chunks, because one takes {} bytes at most; `imbrex chunk get` with all ids in this order gives the bytes back",
            made.len(),
            count(u64::from(limit))
        );
        // Where even stderr is gone there is nobody left to tell.
        let _ = writeln!(io::stderr(), "{sentence}");
    }
    Ok(())
}

fn fill_chunks(store: &ChunkStore, input: &mut Input, args: &Put, made: &AllMade, bar: &ProgressBar) -> Outcome {
    let kind = stream(store, &args.stream)?;
    let limit = u64::from(store.chunk_limit(kind));
    let most = u64::from(store.limits().append);
    let piece = args.piece.unwrap_or(most.min(PIECE as u64));
    if !(1..=most).contains(&piece) {
        return Err(Failure::usage(format!("an append has 1 to {most} bytes; choose another --piece")));
    }
    let mut buf = vec![0; piece as usize];
    let mut unsynced = 0;
    loop {
        // The end of the input, where it is that of a chunk, too, must not begin another one.
        let room = lock(made).last().map_or(limit, |chunk| limit - chunk.len);
        let want = if room == 0 { limit } else { room }.min(piece) as usize;
        let n = input.fill(&mut buf[..want])?;
        let mut made = lock(made);
        if n == 0 && !made.is_empty() {
            break;
        }
        if made.is_empty() || room == 0 {
            if let Some(full) = made.last() {
                if args.id.is_some() {
                    return Err(Failure::failed(format!(
                        "{} needs more than one chunk (at most {limit} bytes each), and --id names one; leave --id out",
                        input.name
                    )));
                }
                store.seal_with(full.id, Durability::Buffered)?;
            }
            let id = args.id.unwrap_or_else(ChunkId::random);
            store.create_with(id, kind, Durability::Buffered)?;
            made.push(Made { id, len: 0 });
        }
        let Some(chunk) = made.last_mut() else { break };
        if n == 0 {
            break;
        }
        let how = imbrex_chunkstore::Append { offset: Some(chunk.len), durability: Durability::Buffered };
        store.append_with(chunk.id, &buf[..n], how)?;
        chunk.len += n as u64;
        bar.inc(n as u64);
        unsynced += n as u64;
        if unsynced >= SYNC {
            store.sync()?;
            unsynced = 0;
        }
    }
    match lock(made).last() {
        Some(last) if !args.open => drop(store.seal(last.id)?),
        _ => store.sync()?,
    }
    Ok(())
}

pub(super) fn append(args: Append) -> Outcome {
    let mut input = Input::open(&args.file)?;
    let store = args.store.open()?;
    let (id, new) = (args.id, stream(&store, &args.stream)?);
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
    } else if n == 0 {
        return Err(Error::Empty.into());
    }
    let (mut first, mut bytes) = (None, 0);
    let mut offset = args.offset;
    let bar = input.bar();
    while n > 0 {
        let how = imbrex_chunkstore::Append { offset, durability: Durability::Durable };
        let at = match store.append_with(id, &buf[..n], how) {
            Ok(at) => at,
            Err(error) if bytes > 0 => {
                return Err(Failure::failed(format!("{bytes} bytes were appended, the rest was not: {error}")));
            }
            Err(error) => return Err(error.into()),
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
    print(format_args!("{} bytes at {at}", count(bytes)))
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
    for id in &args.ids {
        let len = u64::from(store.stat(*id)?.len);
        let (from, bytes) = args.range.map_or((0, None), |range| (range.from, range.bytes));
        let end = bytes.map_or(len, |bytes| from + bytes);
        if args.range.is_some() && from >= len {
            return Err(Error::Range { id: *id, offset: from, len: len as u32 }.into());
        }
        if end > len {
            let most = len - from;
            return Err(Failure::failed(format!(
                "chunk {id} has {len} bytes, and the range ends behind them; ask for {from}+{most} at most, or for {from}+"
            )));
        }
        runs.push((*id, from, end));
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

fn unwritten(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::failed(format!("writing the bytes failed ({error}); see where they go")),
    }
}

fn copy(
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
