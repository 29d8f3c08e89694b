//! What backups of all engines have in common: a tree `files/…`, and behind it a list of it.
//!
//! A backup is a directory of the host or a tar stream. The list is written last, and names a checksum of everything. What has no list
//! is no backup, so nothing that was cut off looks whole. What an engine has in its files and its list is its own.

mod sink;

use crate::output::{Failure, Outcome};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use tar::EntryType;

pub(crate) use sink::{Item, Sink, sink};

/// The list at the end.
pub(crate) const LIST: &str = "imbrex-backup.json";
/// At the beginning of a stream: what is to come.
pub(crate) const BEGIN: &str = "imbrex-backup-begin.json";
/// What the files stand under.
pub(crate) const FILES: &str = "files";
/// What is read of a stream at a time.
const BUFFER: usize = 1 << 20;

/// Engines that have backups: the field of their lists that has the version, what such a backup is of, and the command that restores it.
const KINDS: [(&str, &str, &str); 2] = [
    ("imbrex_backup", "of a file system", "`imbrex fs restore`"),
    ("imbrex_kv_backup", "of a key-value store", "`imbrex kv restore`"),
];

/// Says of a list, or of the beginning of a stream, that it is of another engine than the one with this field; `None`: it is of none.
pub(crate) fn of_another(from: &str, text: &[u8], field: &str) -> Option<Failure> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let (_, what, command) = KINDS.into_iter().find(|kind| kind.0 != field && value.get(kind.0).is_some())?;
    Some(Failure::failed(format!("{from} is a backup {what}; restore it with {command}")))
}

/// Names the command for backups, or for restores, of the engine that a drive is formatted for.
pub(crate) fn of_the_drive(verb: &str) -> impl Fn(Failure) -> Failure {
    move |failure| {
        failure.reword(|sentence| {
            let with = |sentence: String, engine| {
                sentence.replace(&format!("use `imbrex {engine}`"), &format!("use `imbrex {engine} {verb}`"))
            };
            ["fs", "kv"].into_iter().fold(sentence, with)
        })
    }
}

/// A stream that has a backup; `None`: it is a directory.
pub(crate) fn stream_of(from: &str) -> Result<Option<Box<dyn Read + Send>>, Failure> {
    match from {
        "-" => Ok(Some(Box::new(io::stdin()))),
        from if Path::new(from).is_dir() => Ok(None),
        from => match File::open(from) {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) => Err(Failure::failed(format!("{from}: {error}; check the path"))),
        },
    }
}

/// The list of a backup in a directory. The error is a phrase.
pub(crate) fn list_of(from: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(from.join(LIST)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("there is no {LIST} in it"),
        _ => error.to_string(),
    })
}

/// Takes the parts of a stream as they come.
pub(crate) trait Take {
    /// What the stream began with.
    fn begin(&mut self, text: &[u8]) -> Outcome;
    /// A directory below `files`.
    fn directory(&mut self, path: &str) -> Outcome;
    /// One more name of a file that came before.
    fn link(&mut self, path: &str, to: &str) -> Outcome;
    /// A file of so many bytes, if its header is right. `plain`: these stand in the stream, and no header makes others of them.
    fn file(&mut self, path: &str, size: u64, plain: bool, contents: &mut dyn Read) -> Outcome;
    /// The list, which is last.
    fn list(&mut self, text: &[u8]) -> Outcome;
    /// The stream is no backup; why is a phrase.
    fn broken(&self, why: String) -> Failure;
}

/// Reads a tar stream to its end.
pub(crate) fn read_stream(stream: impl Read, take: &mut dyn Take) -> Outcome {
    let mut archive = tar::Archive::new(io::BufReader::with_capacity(BUFFER, stream));
    let mut has_list = false;
    for entry in archive.entries().map_err(|error| take.broken(error.to_string()))? {
        let mut entry = entry.map_err(|error| take.broken(error.to_string()))?;
        let path = name(&entry.path_bytes()).map_err(|why| take.broken(why))?;
        let (kind, bytes) = (entry.header().entry_type(), entry.size());
        if path == BEGIN || path == LIST {
            // A sparse one may say that it is of any size, and be read into memory.
            if !kind.is_file() {
                return Err(take.broken(format!("{path} in it is no plain file")));
            }
            let mut text = Vec::new();
            entry.read_to_end(&mut text).map_err(|error| take.broken(error.to_string()))?;
            if path == LIST {
                take.list(&text)?;
                has_list = true;
            } else {
                take.begin(&text)?;
            }
            continue;
        }
        let path = inner(&path).map_err(|why| take.broken(why))?;
        match kind {
            EntryType::Directory => take.directory(&path)?,
            EntryType::Link => {
                let to = name(&entry.link_name_bytes().unwrap_or_default()).and_then(|to| inner(&to));
                take.link(&path, &to.map_err(|why| take.broken(why))?)?;
            }
            _ => take.file(&path, bytes, kind.is_file(), &mut entry)?,
        }
    }
    if has_list { Ok(()) } else { Err(take.broken("it ends before its list".into())) }
}

fn name(bytes: &[u8]) -> Result<String, String> {
    let name = std::str::from_utf8(bytes).map_err(|_| "a name in it is not UTF-8")?;
    Ok(name.trim_end_matches('/').to_owned())
}

/// The path below `files`.
fn inner(path: &str) -> Result<String, String> {
    match path.strip_prefix(FILES).and_then(|rest| rest.strip_prefix('/')) {
        Some(inner) => Ok(inner.to_owned()),
        None => Err(format!("{path} in it is none of ours")),
    }
}
