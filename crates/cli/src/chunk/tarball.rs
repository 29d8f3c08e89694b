//! Chunks as a tar stream, and back. A stream from elsewhere is not believed: its names must be names that chunks can have, what it says of sizes is
//! compared with the room that there is and with what comes, and what is no plain file is refused; then nothing of it is stored.

use super::making::{How, store_all};
use super::transfer::{Input, bar, unwritten};
use super::unfinished::FOLDER;
use super::{Export, Import, stream, which};
use crate::output::{Failure, Outcome, number_of, print, print_json, size};
use imbrex_chunkstore::{ChunkId, ChunkStore, Named, StreamType};
use serde_json::json;
use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::rc::Rc;
use tar::{Archive, Builder, EntryType, Header};

/// Attributes of a file of the stream that say what its chunks were, where that is not the usual. Others skip what they do not know: POSIX has
/// names of this form for that (pax, "VENDOR.keyword").
const STREAM: &str = "IMBREX.stream";
const OPEN: &str = "IMBREX.open";
/// The kind of stream that is not mentioned.
const USUAL: &str = "data";
/// Names of which the engine is asked at a time.
const PAGE: usize = 4096;
/// Most bytes of headers before a file: long names, and attributes that nobody asked for.
const HEADERS: u64 = 1 << 20;

/// A file of the stream: its path, and its chunks.
struct Item {
    path: String,
    ids: Vec<ChunkId>,
    len: u64,
}

fn named(store: &ChunkStore, prefix: &str) -> Result<Vec<Item>, Failure> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.names(after.as_deref(), prefix, PAGE);
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.name.to_string());
        // What a killed put left is nothing that anybody stored.
        for Named { name, len, .. } in page.into_iter().filter(|named| !named.name.starts_with(FOLDER)) {
            all.push(Item { ids: store.named(&name)?, path: name.to_string(), len });
        }
    }
}

fn unnamed(store: &ChunkStore) -> Vec<Item> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(after, PAGE);
        let Some(last) = page.last() else { return all };
        after = Some(last.id);
        let without = page.iter().filter(|info| store.name_of(info.id).is_none());
        all.extend(without.map(|info| Item {
            path: info.id.to_string(),
            ids: vec![info.id],
            len: u64::from(info.len),
        }));
    }
}

/// What is not usual about an item: the kind of its first chunk, and that its last one is open.
fn attributes(store: &ChunkStore, item: &Item) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut attributes = Vec::new();
    if let (Some(first), Some(last)) = (item.ids.first(), item.ids.last()) {
        let kind = store.stream_name(store.stat(*first)?.stream);
        if kind != USUAL {
            attributes.push((STREAM, kind));
        }
        if !store.stat(*last)?.sealed {
            attributes.push((OPEN, "1".to_owned()));
        }
    }
    Ok(attributes)
}

/// The kind of stream, where that is not `given` for all, and the openness that a file of the stream asks for.
fn asked_for(
    store: &ChunkStore,
    entry: &mut tar::Entry<impl Read>,
    given: bool,
) -> Result<(Option<StreamType>, bool), Failure> {
    let broken = |error: io::Error| refused(format_args!("its attributes cannot be read ({error})"));
    let (mut kind, mut open) = (None, false);
    for attribute in entry.pax_extensions().map_err(broken)?.into_iter().flatten() {
        let attribute = attribute.map_err(broken)?;
        match attribute.key() {
            Ok(STREAM) if !given => {
                let name = attribute.value().map_err(|_| refused("the name of a kind of stream in it is not UTF-8"))?;
                let found = stream(store, name).map_err(|failure| {
                    failure.reword(|why| {
                        format!("{why}; or give all of it one kind with --stream; nothing of it was stored")
                    })
                });
                kind = Some(found?);
            }
            Ok(OPEN) => open = attribute.value_bytes() == b"1",
            _ => {}
        }
    }
    Ok((kind, open))
}

/// What is to be exported, each once.
fn chosen(store: &ChunkStore, texts: &[String]) -> Result<Vec<Item>, Failure> {
    if texts.is_empty() {
        let mut all = named(store, "")?;
        all.extend(unnamed(store));
        return Ok(all);
    }
    let mut items = Vec::new();
    for text in texts {
        if text.ends_with('/') {
            let found = named(store, text)?;
            if found.is_empty() {
                return Err(Failure::failed(format!(
                    "no name begins with {text}; `imbrex chunk ls --names` lists them"
                )));
            }
            items.extend(found);
            continue;
        }
        let ids = which::which(store, text)?;
        let len = ids.iter().map(|id| Ok(u64::from(store.stat(*id)?.len))).sum::<Result<u64, Failure>>()?;
        let path = match ids[..] {
            [one] => store.name_of(one).filter(|of| of.chunks == 1).map_or(one.to_string(), |of| of.name.to_string()),
            _ => text.clone(),
        };
        items.push(Item { path, ids, len });
    }
    let mut seen = HashSet::new();
    items.retain(|item| seen.insert(item.path.clone()));
    Ok(items)
}

/// The bytes of an item; an error of the store is kept, since tar knows none but those of the host.
struct Bytes<'a> {
    store: &'a ChunkStore,
    ids: &'a [ChunkId],
    at: u64,
    bar: &'a indicatif::ProgressBar,
    failure: Option<imbrex_chunkstore::Error>,
}

impl Read for Bytes<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some((id, rest)) = self.ids.split_first() {
            let len = self.store.stat(*id).map_or(0, |info| u64::from(info.len));
            if self.at >= len {
                (self.ids, self.at) = (rest, 0);
                continue;
            }
            return match self.store.read(*id, self.at, buf) {
                Ok(n) => {
                    self.at += n as u64;
                    self.bar.inc(n as u64);
                    Ok(n)
                }
                Err(error) => {
                    let text = error.to_string();
                    self.failure = Some(error);
                    Err(io::Error::other(text))
                }
            };
        }
        Ok(0)
    }
}

pub(super) fn export(args: Export) -> Outcome {
    if args.output == "-" && args.store.json {
        return Err(Failure::usage("--json and the stream would both go to stdout; give the stream an --output"));
    }
    let store = args.store.look()?;
    let items = chosen(&store, &args.chunks)?;
    let bytes = items.iter().map(|item| item.len).sum();
    let bar = bar(Some(bytes));
    let part = format!("{}.part", args.output);
    let out: Box<dyn Write> = match args.output.as_str() {
        "-" => Box::new(io::stdout().lock()),
        path => Box::new(
            File::create(&part).map_err(|e| Failure::failed(format!("{path}: {e}; check the path on the host")))?,
        ),
    };
    let done = write(&store, &items, io::BufWriter::with_capacity(1 << 20, out), &bar);
    bar.finish_and_clear();
    if args.output != "-" {
        let named = done.and_then(|()| {
            std::fs::rename(&part, &args.output)
                .map_err(|e| Failure::failed(format!("{}: {e}; check the path on the host", args.output)))
        });
        if named.is_err() {
            // What is not whole has another name, and goes.
            let _ = std::fs::remove_file(&part);
        }
        named?;
        if args.store.json {
            return print_json(&json!({ "files": items.len(), "bytes": bytes }));
        }
        return print(format_args!("{}: {}, {}", args.output, number_of(items.len() as u64, "file"), size(bytes)));
    }
    done
}

fn write(store: &ChunkStore, items: &[Item], out: impl Write, bar: &indicatif::ProgressBar) -> Outcome {
    let mut tar = Builder::new(out);
    for item in items {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_size(item.len);
        let attributes = attributes(store, item)?;
        if !attributes.is_empty() {
            let all = attributes.iter().map(|(key, value)| (*key, value.as_bytes()));
            tar.append_pax_extensions(all).map_err(unwritten)?;
        }
        let mut bytes = Bytes { store, ids: &item.ids, at: 0, bar, failure: None };
        // Names are relative paths without "..", so whoever unpacks it stays in his directory.
        let sent = tar.append_data(&mut header, &item.path, &mut bytes);
        if let Some(error) = bytes.failure {
            return Err(error.into());
        }
        sent.map_err(unwritten)?;
    }
    tar.into_inner().and_then(|mut out| out.flush()).map_err(unwritten)
}

/// Reads so many bytes and no more: what stands between files must not fill the memory.
struct Bounded<R> {
    from: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 && !buf.is_empty() {
            return Err(io::Error::other("the headers of a file in it are longer than 1 MiB"));
        }
        let most = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let n = self.from.read(&mut buf[..most])?;
        self.left.set(left - n as u64);
        Ok(n)
    }
}

struct Source(Input);

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.fill(buf).map_err(|failure| match failure {
            Failure::Told(_, text) => io::Error::other(text),
            Failure::Unread => io::Error::other("nobody reads any more"),
        })
    }
}

fn refused(why: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("{why}; nothing of the stream was stored"))
}

/// The name that a path of the stream gives, and the id, where it is one.
fn name_of(path: &[u8], prefix: &str) -> Result<(Option<String>, Option<ChunkId>), Failure> {
    let text = std::str::from_utf8(path).map_err(|_| refused("a name in it is not UTF-8"))?;
    let plain = text.strip_prefix("./").unwrap_or(text);
    if let (Ok(id), "") = (plain.parse(), prefix) {
        return Ok((None, Some(id)));
    }
    let name = format!("{prefix}{plain}");
    match imbrex_chunkstore::entry::names::check(&name) {
        None => Ok((Some(name), None)),
        Some(why) => Err(refused(format_args!("{text:?} in it cannot be a chunk's name: {why}"))),
    }
}

pub(super) fn import(args: Import) -> Outcome {
    let input = Input::open(&args.file)?;
    let store = args.store.open()?;
    let space = store.space();
    let room = space.free + space.dead;
    let usual = stream(&store, args.stream.as_deref().unwrap_or(USUAL))?;
    let bar = bar(input.len);
    let how = How {
        stream: args.stream.as_deref().unwrap_or(USUAL),
        piece: None,
        open: false,
        id: None,
        replace: args.replace,
        as_json: args.store.json,
    };
    let stored = store_all(&store, how, &bar, |maker| {
        let left = Rc::new(Cell::new(HEADERS));
        let broken = |error: io::Error| refused(format_args!("{}: it is no whole tar stream ({error})", args.file));
        let mut archive = Archive::new(Bounded { from: Source(input), left: left.clone() });
        let mut seen = HashSet::new();
        let mut all = 0u64;
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let path = entry.path_bytes().into_owned();
            let kind = entry.header().entry_type();
            if kind.is_dir() {
                left.set(HEADERS);
                continue;
            }
            if !matches!(kind, EntryType::Regular | EntryType::Continuous) {
                let path = String::from_utf8_lossy(&path).into_owned();
                return Err(refused(format_args!(
                    "{path:?} in it is a link or a special file, and chunks are made of plain files: leave it out (tar --exclude)"
                )));
            }
            let (name, id) = name_of(&path, &args.prefix)?;
            let label = name.clone().or(id.map(|id| id.to_string())).unwrap_or_default();
            if !seen.insert(label.clone()) {
                return Err(refused(format_args!("{label:?} is in it twice")));
            }
            which::free(&store, name.as_deref().into_iter(), args.replace)?;
            let len = entry.size();
            all = all.saturating_add(len);
            if all > room {
                return Err(refused(format_args!(
                    "its files have {} and more, and {} are free; remove chunks, or use a larger drive",
                    size(all),
                    size(room)
                )));
            }
            // The file, what pads it, and the headers of the next one.
            left.set(len.saturating_add(512 + HEADERS));
            maker.use_id(id);
            let (kind, open) = asked_for(&store, &mut entry, args.stream.is_some())?;
            maker.use_kind(kind.unwrap_or(usual), open);
            let mut came = 0;
            maker.add(&label, name, &mut |buf| {
                let mut done = 0;
                while done < buf.len() {
                    match entry.read(&mut buf[done..]) {
                        Ok(0) => break,
                        Ok(n) => done += n,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(broken(error)),
                    }
                }
                came += done as u64;
                Ok(done)
            })?;
            if came != len {
                return Err(refused(format_args!("{}: it ends in the middle of {label:?}", args.file)));
            }
        }
        Ok(())
    })?;
    let bytes: u64 = stored.iter().map(|of| of.len).sum();
    if args.store.json {
        let of = |of: &super::making::Stored| {
            let ids: Vec<String> = of.chunks.iter().map(ToString::to_string).collect();
            json!({ "name": of.name, "len": of.len, "chunks": ids })
        };
        return print_json(&json!({ "files": stored.iter().map(of).collect::<Vec<_>>(), "bytes": bytes }));
    }
    print(format_args!("{}: {}, {} stored", args.store.drive, number_of(stored.len() as u64, "file"), size(bytes)))
}
