//! Copies: in, out, on the drive, and to the terminal.

use super::{Cat, Cp, join, walk};
use crate::output::{Failure, Outcome, bar_style, count, number_of, print_json, written};
use imbrex_bluefs::{BlueFs, Code, CreateOptions, FileKind, Writer};
use indicatif::ProgressBar;
use serde_json::json;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

/// Bytes of a stream that says nothing of its length: many.
const UNKNOWN: u64 = 1 << 40;
/// Bytes that are copied at a time.
pub(super) const PIECE: usize = 1 << 20;

pub(crate) fn progress(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    bar.with_style(bar_style("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}", "{percent} % {eta}"))
}

/// Copies a file of the drive to a host's stream.
fn send(fs: &BlueFs, path: &str, out: &mut dyn Write, bar: &ProgressBar) -> Outcome {
    let reader = fs.open_read(path)?;
    let mut buf = vec![0; PIECE];
    let mut at = 0;
    loop {
        let n = reader.read_at(at, &mut buf)?;
        if n == 0 {
            return Ok(());
        }
        match out.write_all(&buf[..n]) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Err(Failure::Unread),
            Err(e) => {
                return Err(Failure::failed(format!("writing the copy of {path} failed ({e}); see where it goes")));
            }
        }
        at += n as u64;
        bar.inc(n as u64);
    }
}

/// Copies a stream to a file of the drive, durably. What fails half-way leaves nothing that looks like the whole file.
fn receive(fs: &BlueFs, input: &mut dyn Read, expected: u64, path: &str, bar: &ProgressBar) -> Outcome {
    let created = fs.create(path, CreateOptions { expected_size: expected });
    let writer = created.map_err(|error| no_room(fs, path, expected, error))?;
    let Err(stopped) = fill(writer, input, path, bar) else { return Ok(()) };
    // The failure is what is told, not that of the removal.
    let _ = fs.unlink(path);
    Err(match stopped {
        Stopped::Drive(error) => no_room(fs, path, expected, error),
        Stopped::Host(failure) => failure,
    })
}

/// Why a copy to the drive came to no end.
enum Stopped {
    Drive(imbrex_bluefs::Error),
    Host(Failure),
}

impl From<imbrex_bluefs::Error> for Stopped {
    fn from(error: imbrex_bluefs::Error) -> Stopped {
        Stopped::Drive(error)
    }
}

/// The error; of a drive that is full, with how much is needed and how much is free.
fn no_room(fs: &BlueFs, path: &str, expected: u64, error: imbrex_bluefs::Error) -> Failure {
    if error.code() != Code::NoSpace || error.is_host_full() {
        return error.into();
    }
    let space = fs.space();
    let needs = if expected == UNKNOWN { "more".into() } else { number_of(expected, "byte") };
    let free = (number_of(space.free, "byte"), count(space.small_free));
    Failure::from(error)
        .reword(|why| format!("{why}; {path} needs {needs}, and {} are free ({} for small files)", free.0, free.1))
}

fn fill(mut writer: Writer, input: &mut dyn Read, path: &str, bar: &ProgressBar) -> Result<(), Stopped> {
    let mut buf = vec![0; PIECE];
    loop {
        let n = match input.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => {
                return Err(Stopped::Host(Failure::failed(format!("reading the source of {path} failed ({e})"))));
            }
        };
        writer.append(&buf[..n])?;
        bar.inc(n as u64);
    }
    writer.sync()?;
    Ok(writer.close()?)
}

pub(super) fn cat(args: Cat) -> Outcome {
    let fs = args.mount.look()?;
    let mut out = io::stdout().lock();
    for path in &args.paths {
        send(&fs, path, &mut out, &ProgressBar::hidden())?;
    }
    written(out.flush())
}

fn host(path: &str) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| Failure::failed(format!("{path}: {error}; check the path on the host"))
}

fn host_size(path: &Path) -> u64 {
    match fs::metadata(path) {
        Ok(m) if m.is_dir() => fs::read_dir(path).map_or(0, |d| d.flatten().map(|e| host_size(&e.path())).sum()),
        Ok(m) => m.len(),
        Err(_) => 0,
    }
}

/// Where a copy goes: into a directory that exists, under the source's name, or else to that very path.
fn target(into_dir: bool, to: &str, from: &str) -> String {
    let name = from.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if into_dir && !name.is_empty() && name != "." { join(to, name) } else { to.to_owned() }
}

/// `found`: in a directory, not named by the user, who may well mean a pipe.
fn copy_in(fs: &BlueFs, from: &str, to: &str, found: bool, bar: &ProgressBar) -> Outcome {
    let meta = fs::metadata(from).map_err(host(from))?;
    if meta.is_dir() {
        match fs.mkdir(to) {
            Err(e) if e.code() != Code::Exists => return Err(e.into()),
            _ => {}
        }
        let mut names: Vec<_> = fs::read_dir(from).map_err(host(from))?.flatten().map(|e| e.file_name()).collect();
        names.sort();
        for name in names {
            let Some(name) = name.to_str() else {
                return Err(Failure::failed(format!("{from}: a name there is not UTF-8; rename the file")));
            };
            copy_in(fs, &join(from, name), &join(to, name), true, bar)?;
        }
        return Ok(());
    }
    if found && !meta.is_file() {
        return Err(Failure::failed(format!(
            "{from} is neither a file nor a directory; move it away, or copy around it"
        )));
    }
    let mut file = fs::File::open(from).map_err(host(from))?;
    receive(fs, &mut file, meta.len(), to, bar)
}

fn copy_out(fs: &BlueFs, from: &str, to: &str, bar: &ProgressBar) -> Outcome {
    if fs.stat(from)?.kind == FileKind::Directory {
        match fs::create_dir(to) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(host(to)(e)),
            _ => {}
        }
        for entry in fs.list(from)? {
            copy_out(fs, &join(from, &entry.name), &join(to, &entry.name), bar)?;
        }
        return Ok(());
    }
    let mut file = fs::File::create(to).map_err(host(to))?;
    send(fs, from, &mut file, bar)
}

fn copy_within(fs: &BlueFs, from: &str, to: &str, bar: &ProgressBar) -> Outcome {
    let attributes = fs.stat(from)?;
    if attributes.kind == FileKind::Directory {
        match fs.mkdir(to) {
            Err(e) if e.code() != Code::Exists => return Err(e.into()),
            _ => {}
        }
        for entry in fs.list(from)? {
            copy_within(fs, &join(from, &entry.name), &join(to, &entry.name), bar)?;
        }
        return Ok(());
    }
    if fs.stat(to).is_ok_and(|there| there.serial == attributes.serial) {
        return Err(Failure::failed(format!("{from} and {to} are the same file; name another target")));
    }
    let reader = fs.open_read(from)?;
    let mut input = Sequential { reader: &reader, at: 0 };
    receive(fs, &mut input, attributes.size, to, bar)
}

struct Sequential<'a> {
    reader: &'a imbrex_bluefs::Reader,
    at: u64,
}

impl Read for Sequential<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read_at(self.at, buf).map_err(io::Error::other)?;
        self.at += n as u64;
        Ok(n)
    }
}

pub(super) fn cp(args: Cp) -> Outcome {
    let (from, to) = (args.from.strip_prefix(':'), args.to.strip_prefix(':'));
    let usage = "one of the two paths must be on the drive: write it with a colon in front, as :/db/LOG";
    if from.is_none() && to.is_none() {
        return Err(Failure::usage(usage));
    }
    let fs = if to.is_some() { args.mount.open()? } else { args.mount.look()? };
    let is_dir = |path: &str| fs.stat(path).is_ok_and(|a| a.kind == FileKind::Directory);
    let mut bytes = 0;
    if let Some(from) = from {
        bytes = fs.stat(from)?.size;
        if is_dir(from) {
            walk(&fs, from, true, &mut |_, a| {
                bytes += a.size;
                Ok(())
            })?;
        }
    } else if args.from != "-" {
        bytes = host_size(Path::new(&args.from));
    }
    let bar = progress(bytes);
    let done = match (from, to) {
        (None, Some(to)) if args.from == "-" => receive(&fs, &mut io::stdin().lock(), UNKNOWN, to, &bar),
        (None, Some(to)) => copy_in(&fs, &args.from, &target(is_dir(to), to, &args.from), false, &bar),
        (Some(from), None) if args.to == "-" => send(&fs, from, &mut io::stdout().lock(), &bar),
        (Some(from), None) => copy_out(&fs, from, &target(Path::new(&args.to).is_dir(), &args.to, from), &bar),
        (Some(from), Some(to)) => {
            let to = target(is_dir(to), to, from);
            if to == from || to.starts_with(&join(from, "")) {
                return Err(Failure::failed(format!("{from} cannot be copied into itself; name another target")));
            }
            copy_within(&fs, from, &to, &bar)
        }
        (None, None) => Err(Failure::usage(usage)),
    };
    bar.finish_and_clear();
    done?;
    if to.is_some() {
        fs.sync_all()?;
    }
    if args.mount.json { print_json(&json!({ "bytes": bar.position() })) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_into_directories_that_exist() {
        assert_eq!(target(true, "/a", "x/y/"), "/a/y");
        assert_eq!(target(false, "/a", "x/y"), "/a");
        assert_eq!(target(true, "/", "f"), "/f");
        assert_eq!(target(true, "/a", "."), "/a");
    }
}
