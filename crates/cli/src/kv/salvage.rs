//! `imbrex kv salvage`: the pairs of a drive whose store does not open, into a directory of the host.
//!
//! Each space has a file, in the form that `imbrex kv load --format binary` takes. A file is called `.part` until all pairs are there.

use super::form::{Form, write_pair};
use super::plain_name;
use crate::chunk::bar;
use crate::output::{Failure, Outcome, number_of, print, print_json};
use imbrex_drives::{OpenOptions, SCHEME, parse_uri};
use imbrex_kv::{FoundSpace, Pairs, Salvage};
use indicatif::ProgressBar;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The drive: a path or a URI.
    drive: String,
    /// The directory, which is made; one that is there must be empty.
    to: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A space that has pairs.
struct Space {
    found: FoundSpace,
    /// The file's name when it is whole.
    file: String,
    pairs: u64,
    bytes: u64,
}

struct Files<'a> {
    to: &'a Path,
    spaces: Vec<Space>,
    out: Option<BufWriter<File>>,
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
}

/// The name of a space's file.
fn name_of(space: &FoundSpace) -> String {
    format!("{}.pairs", plain_name(space.number.into(), space.name.as_deref()))
}

impl Files<'_> {
    fn part(&self, file: &str) -> PathBuf {
        self.to.join(format!("{file}.part"))
    }

    fn close(&mut self) -> io::Result<()> {
        self.out.take().map_or(Ok(()), |mut out| out.flush())
    }

    /// All pairs are there.
    fn finish(&mut self) -> io::Result<()> {
        self.close()?;
        self.spaces.iter().try_for_each(|space| fs::rename(self.part(&space.file), self.to.join(&space.file)))
    }
}

impl Pairs for Files<'_> {
    fn pair(&mut self, space: &FoundSpace, key: &[u8], value: &[u8]) -> io::Result<()> {
        if self.spaces.last().is_none_or(|last| last.found.number != space.number) {
            self.close()?;
            let file = name_of(space);
            self.out = Some(BufWriter::new(File::create_new(self.part(&file))?));
            self.spaces.push(Space { found: space.clone(), file, pairs: 0, bytes: 0 });
        }
        if let (Some(space), Some(out)) = (self.spaces.last_mut(), &mut self.out) {
            (space.pairs, space.bytes) = (space.pairs + 1, space.bytes + (key.len() + value.len()) as u64);
            write_pair(out, Form::Binary, key, value)?;
        }
        Ok(())
    }

    fn again(&mut self) -> io::Result<()> {
        self.close()?;
        for space in std::mem::take(&mut self.spaces) {
            fs::remove_file(self.part(&space.file))?;
        }
        Ok(())
    }

    fn progress(&mut self, done: u64, all: u64) -> io::Result<()> {
        self.bar.set_length(all);
        self.bar.set_position(done);
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(io::Error::other("interrupted")),
            false => Ok(()),
        }
    }
}

/// An empty directory, made where there is none.
fn prepare(to: &Path) -> Outcome {
    let failed = |error: io::Error| {
        Failure::failed(format!("{}: {error}; give a directory of the host that can be written", to.display()))
    };
    match fs::read_dir(to).map(|mut names| names.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Failure::failed(format!("{} is not empty; give a new directory", to.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(to).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

/// A file in the directory that is gone when nobody has it open any more.
fn scratch(to: &Path) -> io::Result<File> {
    let path = to.join(".sorting");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

pub(super) fn salvage(args: &Args) -> Outcome {
    let locator = match args.drive.strip_prefix(SCHEME) {
        Some(_) => parse_uri(&args.drive, &[])?.locator,
        None => args.drive.clone(),
    };
    let drive = imbrex_drives::open(&locator, &OpenOptions { read_only: true, ..OpenOptions::default() })?;
    let interrupted: Arc<AtomicBool> = Arc::default();
    let searching = bar(Some(0));
    let found = Salvage::search(&drive, &mut |done, all| {
        searching.set_length(all);
        searching.set_position(done);
    })?;
    searching.finish_and_clear();
    let to = Path::new(&args.to);
    prepare(to)?;
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, interrupted.clone()) {
            tracing::warn!(%error, "an interruption does not say what is there");
        }
    }
    let mut files = Files { to, spaces: Vec::new(), out: None, bar: bar(Some(0)), interrupted };
    let read = found.read(&mut || scratch(to), &mut files);
    files.bar.finish_and_clear();
    let incomplete = |why: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "{}: {why}; files named .part have what came before, give another directory to begin again",
            to.display()
        ))
    };
    let told = match read {
        Ok(told) => told,
        Err(error) => {
            // What is in memory of them may find no room any more either.
            let _ = files.close();
            return Err(match files.interrupted.load(Ordering::Relaxed) {
                true => incomplete(&"interrupted"),
                false => incomplete(&error),
            });
        }
    };
    files.finish().map_err(|error| incomplete(&error))?;
    let notes: Vec<String> = found.notes().into_iter().chain(told.notes).collect();
    if args.json {
        let space = |space: &Space| {
            json!({ "number": space.found.number, "name": space.found.name, "order": space.found.order, "file": space.file,
                "pairs": space.pairs, "bytes": space.bytes })
        };
        return print_json(&json!({ "drive": args.drive, "whole_metadata": found.is_whole(), "pairs": told.pairs,
            "spaces": files.spaces.iter().map(space).collect::<Vec<_>>(), "tables": told.tables,
            "damaged_tables": told.damaged_tables, "log_records": told.records, "notes": notes }));
    }
    for note in &notes {
        print(format_args!("note: {note}"))?;
    }
    for Space { found, file, pairs, .. } in &files.spaces {
        let space = match found.name.as_deref() {
            Some("") => "the space without a name".into(),
            Some(name) => format!("the space {name:?}"),
            None => format!("the space number {}, whose name is lost", found.number),
        };
        print(format_args!("{file}: {} of {space}", number_of(*pairs, "pair")))?;
    }
    print(format_args!(
        "{}: {} salvaged to {}, from {}, {} of them damaged, and {} of the log",
        args.drive,
        number_of(told.pairs, "pair"),
        args.to,
        number_of(told.tables, "table"),
        told.damaged_tables,
        number_of(told.records, "record"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::NAME;

    #[test]
    fn an_interruption_ends_it_and_keeps_what_came() {
        let dir = tempfile::tempdir().unwrap();
        let interrupted: Arc<AtomicBool> = Arc::default();
        let (out, bar) = (None, ProgressBar::hidden());
        let mut files = Files { to: dir.path(), spaces: Vec::new(), out, bar, interrupted: interrupted.clone() };
        let space = FoundSpace { number: 0, name: Some(String::new()), order: None };
        files.pair(&space, b"k", b"v").unwrap();
        files.progress(1, 2).unwrap();
        interrupted.store(true, Ordering::Relaxed);
        assert_eq!(files.progress(1, 2).unwrap_err().to_string(), "interrupted");
        files.close().unwrap();
        assert_eq!(fs::read(dir.path().join("unnamed.pairs.part")).unwrap(), b"\x01\0\0\0\x01\0\0\0kv");
        // Pairs that come again are not written behind those that are void.
        files.again().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_name_of_a_file_is_harmless_and_its_own() {
        let named =
            |number, name: Option<&str>| name_of(&FoundSpace { number, name: name.map(str::to_owned), order: None });
        assert_eq!(named(0, Some("")), "unnamed.pairs");
        assert_eq!(named(3, Some("users")), "3-users.pairs");
        assert_eq!(named(4, None), "4.pairs");
        assert_eq!(named(5, Some("../a b\0/ä")), "5-.._a_b___.pairs");
        assert_eq!(named(6, Some(&"x".repeat(1000))).len(), NAME + 8);
    }
}
