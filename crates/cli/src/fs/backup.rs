//! Backups: all files of a drive, to a directory of the host or a tar stream, and back.
//!
//! A [backup](crate::backup) is a tree `files/…` and a list of it, `imbrex-backup.json`, which is written last: names, sizes, times in
//! nanoseconds, hard links, and the CRC-32C of every file and of the list itself. What has no list is no backup, so nothing that
//! was cut off looks whole: directories and tar files get their names only when they are complete, and a restored tree its
//! place on the drive only when everything in it was compared with the list.

mod restore;

use super::{BackupArgs, copy, walk};
use crate::backup::{Item, Sink, of_the_drive, sink};
use crate::output::{Failure, Outcome, number_of, print, print_json, size};
use imbrex_bluefs::{Attributes, BlueFs, FileKind, Reader};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, Read};

pub(super) use restore::restore;

/// The body of the fuzz target for backups: takes arbitrary bytes for a tar stream and restores it into `fs`, then takes them
/// for a list whose checksum is right. Panics where a stream that was refused leaves anything but an error behind.
#[doc(hidden)]
pub fn fuzz_restore(fs: &BlueFs, stream: &[u8]) {
    let before = fs.list("/").map(|names| names.len()).unwrap_or_default();
    let restored = restore::restore_stream(fs, stream);
    let names = fs.list("/").map(|names| names.len()).unwrap_or_default();
    assert_eq!(names, before + usize::from(restored), "all of a backup or nothing");
    if let Ok(mut list) = serde_json::from_slice::<List>(stream) {
        list.crc32c = sum_of(&list.entries);
        let text = serde_json::to_vec(&list).unwrap_or_default();
        assert_eq!(List::parse(&text).is_ok(), list.imbrex_backup <= VERSION, "a sealed list is read");
    }
}

/// Version of the form of a backup.
const VERSION: u32 = 1;
/// The field of lists that has it.
const FIELD: &str = "imbrex_backup";

/// What a name of the drive stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Is {
    Directory,
    File,
    /// One more name of a file that came before.
    Link,
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// From the root of the drive, without a slash in front.
    path: String,
    is: Is,
    size: u64,
    modified_ns: u64,
    /// CRC-32C of the contents.
    crc32c: u32,
    /// Of a link: the path of the file's first name.
    to: Option<String>,
}

impl Entry {
    fn item(&self) -> Item<'_> {
        Item { path: &self.path, size: self.size, modified_ns: self.modified_ns }
    }
}

/// The list.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    imbrex_backup: u32,
    files: u64,
    bytes: u64,
    entries: Vec<Entry>,
    /// CRC-32C of the entries, as JSON without white space.
    crc32c: u32,
}

/// What a stream begins with.
#[derive(Debug, Serialize, Deserialize)]
struct Begin {
    imbrex_backup: u32,
    files: u64,
    bytes: u64,
}

fn sum_of(entries: &[Entry]) -> u32 {
    crc32c::crc32c(&serde_json::to_vec(entries).unwrap_or_default())
}

impl List {
    fn new(entries: Vec<Entry>) -> List {
        let files = entries.iter().filter(|entry| entry.is == Is::File).count() as u64;
        let bytes = entries.iter().filter(|entry| entry.is == Is::File).map(|entry| entry.size).sum();
        List { imbrex_backup: VERSION, files, bytes, crc32c: sum_of(&entries), entries }
    }

    /// Reads and checks one; the error is a phrase.
    fn parse(text: &[u8]) -> Result<List, String> {
        let list: List = serde_json::from_slice(text).map_err(|e| format!("its list cannot be read ({e})"))?;
        if list.imbrex_backup > VERSION {
            return Err("a newer Imbrex made it".into());
        }
        if sum_of(&list.entries) != list.crc32c {
            return Err("the checksum of its list is wrong".into());
        }
        Ok(list)
    }
}

/// Reads a file of the drive, and sums up what it reads.
struct Summed<'a> {
    reader: &'a Reader,
    at: u64,
    crc: u32,
    bar: &'a indicatif::ProgressBar,
    failure: Option<imbrex_bluefs::Error>,
}

impl Read for Summed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.reader.read_at(self.at, buf) {
            Ok(n) => {
                self.crc = crc32c::crc32c_append(self.crc, &buf[..n]);
                self.at += n as u64;
                self.bar.inc(n as u64);
                Ok(n)
            }
            Err(error) => {
                let text = error.to_string();
                self.failure = Some(error);
                Err(io::Error::other(text))
            }
        }
    }
}

fn collect(fs: &BlueFs, from: &str) -> Result<Vec<(String, Attributes)>, Failure> {
    if fs.stat(from)?.kind != FileKind::Directory {
        return Err(Failure::failed(format!(
            "{from} is a file; copy it with `imbrex fs cp`, or back up its directory"
        )));
    }
    let mut found = Vec::new();
    walk(fs, from, true, &mut |path, attributes| {
        found.push((path.to_owned(), attributes.clone()));
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn backup(args: BackupArgs) -> Outcome {
    let fs = args.mount.look().map_err(of_the_drive("backup"))?;
    let found = collect(&fs, &args.from)?;
    let mut first = HashMap::new();
    let all = found.iter().filter(|(path, a)| {
        a.kind != FileKind::Directory && *first.entry(a.serial).or_insert(path.as_str()) == path.as_str()
    });
    let (files, bytes) = all.fold((0, 0), |(files, bytes), (_, a)| (files + 1, bytes + a.size));
    let mut sink = sink(&args.to)?;
    let bar = copy::progress(bytes);
    let done = fill(&fs, &args.from, &found, Begin { imbrex_backup: VERSION, files, bytes }, sink.as_mut(), &bar);
    bar.finish_and_clear();
    match done {
        Ok(()) => sink.complete()?,
        Err(failure) => {
            sink.discard();
            return Err(failure);
        }
    }
    if args.to == "-" {
        return Ok(());
    }
    if args.mount.json {
        return print_json(&json!({ "drive": args.mount.drive, "backup": args.to, "files": files, "bytes": bytes }));
    }
    let files = number_of(files, "file");
    print(format_args!("{}: {files}, {} backed up to {}", args.mount.drive, size(bytes), args.to))
}

fn fill(
    fs: &BlueFs,
    from: &str,
    found: &[(String, Attributes)],
    begin: Begin,
    sink: &mut dyn Sink,
    bar: &indicatif::ProgressBar,
) -> Outcome {
    sink.begin(&serde_json::to_vec(&begin).map_err(Failure::failed)?)?;
    let mut entries: Vec<Entry> = Vec::new();
    let mut first: HashMap<u64, usize> = HashMap::new();
    for (path, a) in found {
        let short = path[from.trim_end_matches('/').len()..].trim_start_matches('/').to_owned();
        let entry = |is| Entry { path: short.clone(), is, size: a.size, modified_ns: a.modified, crc32c: 0, to: None };
        if a.kind == FileKind::Directory {
            let entry = Entry { size: 0, ..entry(Is::Directory) };
            sink.directory(entry.item())?;
            entries.push(entry);
            continue;
        }
        if let Some(original) = first.get(&a.serial).and_then(|n| entries.get(*n)) {
            let entry = Entry { to: Some(original.path.clone()), crc32c: original.crc32c, ..entry(Is::Link) };
            sink.link(entry.item(), &original.path)?;
            entries.push(entry);
            continue;
        }
        let reader = fs.open_read(path)?;
        let mut summed = Summed { reader: &reader, at: 0, crc: 0, bar, failure: None };
        let sent = sink.file(entry(Is::File).item(), &mut summed);
        if let Some(error) = summed.failure {
            let next = "`imbrex fs check` says what is damaged, `imbrex fs salvage` copies out what is left";
            return Err(Failure::damage(format!("{path} cannot be read, so there is no backup ({error}); {next}")));
        }
        sent?;
        if summed.at != a.size {
            return Err(Failure::damage(format!(
                "{path} has {} bytes and should have {}, so there is no backup; run `imbrex fs check`",
                summed.at, a.size
            )));
        }
        first.insert(a.serial, entries.len());
        entries.push(Entry { crc32c: summed.crc, ..entry(Is::File) });
    }
    sink.list(&serde_json::to_vec_pretty(&List::new(entries)).map_err(Failure::failed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_changed_is_no_list() {
        let entry = Entry { path: "a".into(), is: Is::File, size: 3, modified_ns: 5, crc32c: 7, to: None };
        let text = serde_json::to_string(&List::new(vec![entry.clone()])).unwrap();
        assert_eq!(List::parse(text.as_bytes()).unwrap().entries, [entry]);
        for (from, to) in [("\"size\":3", "\"size\":4"), ("\"imbrex_backup\":1", "\"imbrex_backup\":2"), ("}", "")] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text);
            List::parse(other.as_bytes()).unwrap_err();
        }
    }
}
