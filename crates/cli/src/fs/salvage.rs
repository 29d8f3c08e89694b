//! `imbrex fs salvage`: what is left of a drive whose metadata is gone, into a directory of the host.

use super::{SalvageArgs, copy, join, walk};
use crate::output::{Failure, Outcome, count, number_of, print, print_json, size};
use imbrex_bluefs::salvage::{LostFile, Salvage};
use imbrex_bluefs::{Attributes, BlueFs, Code, FileKind, Reader};
use imbrex_drives::{SCHEME, parse_uri};
use indicatif::ProgressBar;
use serde_json::json;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Where files go that no directory knows.
const LOST: &str = "lost+found";

#[derive(Default)]
struct Told {
    files: u64,
    bytes: u64,
    lost: u64,
    damaged: u64,
    notes: Vec<String>,
}

impl Told {
    fn note(&mut self, sentence: String) -> Outcome {
        self.notes.push(sentence);
        Ok(())
    }
}

fn host(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| {
        Failure::failed(format!(
            "{}: {error}; what was salvaged before is kept, give another directory",
            path.display()
        ))
    }
}

fn set_time(path: &Path, modified_ns: u64) -> io::Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(modified_ns);
    File::open(path)?.set_times(FileTimes::new().set_modified(time))
}

/// Copies a file as far as it can be read; zeros stand for the rest. Returns the bytes that are lost.
fn copy_what_is_left(reader: &Reader, size: u64, out: &File) -> Result<u64, io::Error> {
    let (mut at, mut lost) = (0, 0);
    let mut buf = vec![0; copy::PIECE];
    while at < size {
        let want = (size - at).min(copy::PIECE as u64) as usize;
        match reader.read_at(at, &mut buf[..want]) {
            Ok(0) => {
                lost += size - at;
                break;
            }
            Ok(n) => {
                out.write_all_at(&buf[..n], at)?;
                at += n as u64;
            }
            Err(_) => {
                // Somewhere in there: what stands before and behind it is read in small steps.
                let end = at + want as u64;
                while at < end {
                    let step = (4096 - at % 4096).min(end - at) as usize;
                    match reader.read_at(at, &mut buf[..step]) {
                        Ok(n) if n == step => out.write_all_at(&buf[..n], at)?,
                        _ => lost += step as u64,
                    }
                    at += step as u64;
                }
            }
        }
    }
    out.set_len(size)?;
    Ok(lost)
}

fn copy_tree(fs: &BlueFs, to: &Path, told: &mut Told) -> Outcome {
    let mut found: Vec<(String, Attributes)> = Vec::new();
    walk(fs, "/", true, &mut |path, attributes| {
        found.push((path.to_owned(), attributes.clone()));
        Ok(())
    })?;
    let bar = copy::progress(found.iter().map(|(_, a)| a.size).sum());
    for (path, a) in &found {
        let target = to.join(path.trim_start_matches('/'));
        if a.kind == FileKind::Directory {
            fs::create_dir_all(&target).map_err(host(&target))?;
            continue;
        }
        let reader = match fs.open_read(path) {
            Ok(reader) => reader,
            Err(why) => {
                told.damaged += 1;
                told.note(format!("{path}: {why}"))?;
                continue;
            }
        };
        let out = File::create(&target).map_err(host(&target))?;
        let lost = copy_what_is_left(&reader, a.size, &out).map_err(host(&target))?;
        if lost > 0 {
            told.damaged += 1;
            told.note(format!("{path}: {lost} of its {} bytes cannot be read, zeros stand for them", a.size))?;
        }
        (told.files, told.bytes) = (told.files + 1, told.bytes + a.size);
        bar.inc(a.size);
    }
    bar.finish_and_clear();
    for (path, a) in found.iter().rev() {
        let target = to.join(path.trim_start_matches('/'));
        // A time is not worth a failure.
        let _ = set_time(&target, a.modified);
    }
    Ok(())
}

/// The name for a lost file that nobody has yet.
fn free_name(directory: &Path, file: &LostFile) -> PathBuf {
    let name = match file.name.as_str() {
        "" | "." | ".." => "file".to_owned(),
        name => name.replace('/', "_"),
    };
    let plain = directory.join(&name);
    if plain.exists() { directory.join(format!("{name}.{}", file.serial)) } else { plain }
}

fn rebuild(salvage: &Salvage, file: &LostFile, to: &Path, told: &mut Told) -> Outcome {
    let directory = to.join(LOST);
    fs::create_dir_all(&directory).map_err(host(&directory))?;
    let target = free_name(&directory, file);
    let out = File::create(&target).map_err(host(&target))?;
    let mut end = 0;
    let mut put = |at: u64, bytes: &[u8]| {
        end = end.max(at + bytes.len() as u64);
        out.write_all_at(bytes, at)
            .map_err(|e| imbrex_bluefs::Error::refused(Code::Io, &target.to_string_lossy(), e.to_string()))
    };
    let problems = salvage.rebuild(file, &mut put)?;
    told.damaged += u64::from(!problems.is_empty());
    for problem in problems {
        told.note(format!("{}: {problem}", join(LOST, &file.name)))?;
    }
    (told.lost, told.bytes) = (told.lost + 1, told.bytes + end);
    let _ = set_time(&target, file.created);
    Ok(())
}

/// An empty directory, made where there is none.
fn prepare(to: &Path) -> Outcome {
    match fs::read_dir(to).map(|mut names| names.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Failure::failed(format!("{} is not empty; give a new directory", to.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(to).map_err(host(to)),
        Err(error) => Err(host(to)(error)),
    }
}

pub(super) fn salvage(args: SalvageArgs) -> Outcome {
    let locator = match args.drive.strip_prefix(SCHEME) {
        Some(_) => parse_uri(&args.drive, &[])?.locator,
        None => args.drive.clone(),
    };
    let options = imbrex_drives::OpenOptions { read_only: true, ..Default::default() };
    let drive = imbrex_drives::open(&locator, &options)?;
    let bar = ProgressBar::new(0);
    bar.enable_steady_tick(Duration::from_millis(200));
    let found = Salvage::search(&drive, !args.quick, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let to = Path::new(&args.to);
    prepare(to)?;
    let mut told = Told { notes: found.notes().to_vec(), ..Told::default() };
    told.damaged += found.gone().len() as u64;
    told.notes.extend(found.gone().iter().cloned());
    if let Some(fs) = found.fs() {
        copy_tree(fs, to, &mut told)?;
    }
    for file in found.lost_files() {
        rebuild(&found, file, to, &mut told)?;
    }
    if args.json {
        return print_json(&json!({ "drive": args.drive, "files": told.files, "lost_files": told.lost,
            "bytes": told.bytes, "damaged_files": told.damaged, "notes": told.notes }));
    }
    for note in &told.notes {
        print(format_args!("note: {note}"))?;
    }
    print(format_args!(
        "{}: {}, {} salvaged to {}; {} of them without a directory ({LOST}), {} damaged",
        args.drive,
        number_of(told.files + told.lost, "file"),
        size(told.bytes),
        args.to,
        count(told.lost),
        count(told.damaged)
    ))
}
