//! From a backup back to a drive: into a directory of its own first, and to its place when all of it was compared.

use super::{Begin, Entry, FIELD, Is, List};
use crate::backup::{FILES, Take, list_of, of_another, of_the_drive, read_stream, stream_of};
use crate::fs::{RestoreArgs, copy, join, remove};
use crate::output::{Failure, Outcome, number_of, print, print_json, size};
use imbrex_bluefs::{BlueFs, Code, CreateOptions};
use indicatif::ProgressBar;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What is not complete stands here.
const STAGE: &str = "/.imbrex-restore";

fn no_backup(from: &str, why: impl std::fmt::Display) -> Failure {
    Failure::damage(format!("{from} is not a whole backup ({why}), and nothing of it was kept; restore another one"))
}

struct Restorer<'a> {
    fs: &'a BlueFs,
    from: &'a str,
    bar: &'a ProgressBar,
    /// What was restored: size and checksum by path.
    seen: BTreeMap<String, (Is, u64, u32)>,
    /// The list of a stream that has come to its end.
    list: Option<List>,
}

impl Restorer<'_> {
    fn on_drive(&self, path: &str) -> Result<String, Failure> {
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        match path.split('/').all(plain) {
            true => Ok(join(STAGE, path)),
            false => Err(no_backup(self.from, format_args!("the name {path:?} in it makes no sense"))),
        }
    }

    /// Says what a full drive means here.
    fn full(&self, error: imbrex_bluefs::Error) -> Failure {
        match error.code() {
            Code::NoSpace => Failure::failed(format!(
                "the drive is full before all of {} is restored, and nothing of it was kept; use a larger drive",
                self.from
            )),
            _ => error.into(),
        }
    }

    fn room(&self, bytes: u64) -> Outcome {
        let space = self.fs.space();
        let free = space.free + space.small_free;
        if bytes <= free {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "{} holds {} and the drive has room for {}; nothing was restored; use a larger drive",
            self.from,
            size(bytes),
            size(free)
        )))
    }

    /// Compares what was restored with the list, gives it its times, and makes it durable.
    fn verify(&mut self, list: &List) -> Outcome {
        for Entry { path, is, size, crc32c, .. } in &list.entries {
            match self.seen.remove(path) {
                Some(seen) if seen == (*is, *size, *crc32c) => {}
                Some(_) => return Err(no_backup(self.from, format_args!("{path} in it is not what its list says"))),
                None => return Err(no_backup(self.from, format_args!("{path} is missing"))),
            }
        }
        if let Some((path, _)) = self.seen.first_key_value() {
            return Err(no_backup(self.from, format_args!("{path} in it does not stand in its list")));
        }
        // Directories last, the deepest first: what happens in one changes its time.
        let (files, directories): (Vec<&Entry>, Vec<&Entry>) = list.entries.iter().partition(|e| e.is != Is::Directory);
        for entry in files.into_iter().chain(directories.into_iter().rev()) {
            self.fs.set_modified(&self.on_drive(&entry.path)?, entry.modified_ns)?;
        }
        Ok(self.fs.sync_all()?)
    }

    /// Reads a list that may be one of another engine.
    fn parse(&self, text: &[u8]) -> Result<List, Failure> {
        List::parse(text).map_err(|why| of_another(self.from, text, FIELD).unwrap_or_else(|| no_backup(self.from, why)))
    }

    fn take_directory(&mut self) -> Result<List, Failure> {
        let from = Path::new(self.from);
        let text = list_of(from).map_err(|why| no_backup(self.from, why))?;
        let list = self.parse(&text)?;
        self.room(list.bytes)?;
        self.bar.set_length(list.bytes);
        for entry in &list.entries {
            match entry.is {
                Is::Directory => self.directory(&entry.path)?,
                Is::Link => self.link(&entry.path, entry.to.as_deref().unwrap_or_default())?,
                Is::File => {
                    self.on_drive(&entry.path)?;
                    let file = File::open(from.join(FILES).join(&entry.path));
                    let mut file = file.map_err(|e| no_backup(self.from, format_args!("{}: {e}", entry.path)))?;
                    self.file(&entry.path, entry.size, true, &mut file)?;
                }
            }
        }
        Ok(list)
    }

    fn take_stream(&mut self, stream: impl Read) -> Result<List, Failure> {
        read_stream(stream, self)?;
        self.list.take().ok_or_else(|| no_backup(self.from, "it has no list"))
    }
}

impl Take for Restorer<'_> {
    fn begin(&mut self, text: &[u8]) -> Outcome {
        let begin: Begin = serde_json::from_slice(text)
            .map_err(|why| of_another(self.from, text, FIELD).unwrap_or_else(|| no_backup(self.from, why)))?;
        self.room(begin.bytes)?;
        self.bar.set_length(begin.bytes);
        Ok(())
    }

    fn directory(&mut self, path: &str) -> Outcome {
        self.fs.mkdir(&self.on_drive(path)?).map_err(|e| self.full(e))?;
        self.seen.insert(path.to_owned(), (Is::Directory, 0, 0));
        Ok(())
    }

    fn file(&mut self, path: &str, expected_size: u64, _plain: bool, contents: &mut dyn Read) -> Outcome {
        let mut writer =
            self.fs.create(&self.on_drive(path)?, CreateOptions { expected_size }).map_err(|e| self.full(e))?;
        let (mut buf, mut crc, mut bytes) = (vec![0; copy::PIECE], 0, 0);
        loop {
            let n = match contents.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(no_backup(self.from, format_args!("{path} cannot be read: {error}"))),
            };
            crc = crc32c::crc32c_append(crc, &buf[..n]);
            bytes += n as u64;
            writer.append(&buf[..n]).map_err(|e| self.full(e))?;
            self.bar.inc(n as u64);
        }
        writer.sync().and_then(|()| writer.close()).map_err(|e| self.full(e))?;
        self.seen.insert(path.to_owned(), (Is::File, bytes, crc));
        Ok(())
    }

    fn link(&mut self, path: &str, to: &str) -> Outcome {
        self.fs.link(&self.on_drive(to)?, &self.on_drive(path)?).map_err(|e| self.full(e))?;
        let original = self.seen.get(to).copied().unwrap_or((Is::File, 0, 0));
        self.seen.insert(path.to_owned(), (Is::Link, original.1, original.2));
        Ok(())
    }

    fn list(&mut self, text: &[u8]) -> Outcome {
        self.list = Some(self.parse(text)?);
        Ok(())
    }

    fn broken(&self, why: String) -> Failure {
        no_backup(self.from, why)
    }
}

/// Restores a tar stream into a directory of its own, as [`restore`] does, without telling anybody; returns whether it was
/// whole.
pub(super) fn restore_stream(fs: &BlueFs, stream: &[u8]) -> bool {
    let (to, from, bar) = ("/restored", "the stream", ProgressBar::hidden());
    if prepare(fs, to, "the drive").is_err() {
        return false;
    }
    let mut restorer = Restorer { fs, from, bar: &bar, seen: BTreeMap::new(), list: None };
    let restored = restorer.take_stream(stream).and_then(|list| restorer.verify(&list)).and_then(|()| place(fs, to));
    if restored.is_err() {
        // As a person would see it: what cannot be removed has a name that says what it is.
        let _ = remove(fs, STAGE, true, &mut 0);
    }
    restored.is_ok()
}

/// Makes room for what is to come, or says why not.
fn prepare(fs: &BlueFs, to: &str, drive: &str) -> Outcome {
    if fs.stat(STAGE).is_ok() {
        remove(fs, STAGE, true, &mut 0)?;
    }
    let empty = match to {
        "/" => fs.list("/")?.is_empty(),
        _ => matches!(fs.stat(to), Err(why) if why.code() == Code::NotFound),
    };
    match (empty, to) {
        (true, _) => Ok(fs.mkdir(STAGE)?),
        (false, "/") => Err(Failure::failed(format!(
            "{drive} has files; restore into a directory with --to /NAME, or format it with `imbrex fs format --force`"
        ))),
        (false, _) => Err(Failure::failed(format!("{to} is there already; give another name, or remove it first"))),
    }
}

pub(in crate::fs) fn restore(args: RestoreArgs) -> Outcome {
    let stream = stream_of(&args.from)?;
    let fs = args.mount.open().map_err(of_the_drive("restore"))?;
    prepare(&fs, &args.to, &args.mount.drive)?;
    let bar = copy::progress(0);
    let mut restorer = Restorer { fs: &fs, from: &args.from, bar: &bar, seen: BTreeMap::new(), list: None };
    let restored = match stream {
        Some(stream) => restorer.take_stream(stream),
        None => restorer.take_directory(),
    };
    let restored = restored.and_then(|list| restorer.verify(&list).and_then(|()| place(&fs, &args.to)).map(|()| list));
    bar.finish_and_clear();
    let list = match restored {
        Ok(list) => list,
        Err(failure) => {
            // The failure is what is told; what could not be removed has a name that says what it is.
            let _ = remove(&fs, STAGE, true, &mut 0).and_then(|()| Ok(fs.sync_all()?));
            return Err(failure);
        }
    };
    if args.mount.json {
        return print_json(&json!({ "drive": args.mount.drive, "files": list.files, "bytes": list.bytes }));
    }
    print(format_args!("{}: {}, {} restored", args.mount.drive, number_of(list.files, "file"), size(list.bytes)))
}

/// Gives what is complete its place.
fn place(fs: &BlueFs, to: &str) -> Outcome {
    match to {
        "/" => {
            for entry in fs.list(STAGE)? {
                fs.rename(&join(STAGE, &entry.name), &join("/", &entry.name))?;
            }
            fs.rmdir(STAGE)?;
        }
        _ => fs.rename(STAGE, to)?,
    }
    Ok(fs.sync_all()?)
}
