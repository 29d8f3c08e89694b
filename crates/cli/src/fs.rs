//! `imbrex fs …`: the file system on a drive.

use crate::output::{Failure, Outcome, count, print, print_json, size, table};
use clap::Subcommand;
use imbrex_bluefs::{Attributes, BlueFs, Code, CreateOptions, FileKind};
use imbrex_drives::{SCHEME, parse_size};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  imbrex fs format drive.img && imbrex fs ls drive.img /\n\n\
    A drive is a path, or a URI with options, as imbrex:///data/drive.img?cache=2G."
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an empty file system on a drive.
    #[command(after_help = "Example:\n  imbrex fs format drive.img")]
    Format(Format),
    /// List a directory.
    #[command(after_help = "Examples:\n  imbrex fs ls drive.img\n  imbrex fs ls drive.img /db --long --recursive")]
    Ls(Ls),
    /// Print files.
    #[command(after_help = "Example:\n  imbrex fs cat drive.img /db/CURRENT")]
    Cat(Cat),
    /// Copy files or directories in or out. What begins with a colon is on the drive; - is stdin or stdout.
    #[command(after_help = "Examples:\n  imbrex fs cp drive.img ./data :/data          # in, directories too\n  \
                            imbrex fs cp drive.img :/db/LOG ./LOG.copy   # out\n  \
                            imbrex fs cp drive.img :/db :/copy           # on the drive\n  \
                            tar c . | imbrex fs cp drive.img - :/all.tar")]
    Cp(Cp),
    /// Remove files, or with --recursive directories.
    #[command(after_help = "Examples:\n  imbrex fs rm drive.img /db/LOG.old\n  imbrex fs rm drive.img /db --recursive")]
    Rm(Rm),
    /// Show how much room there is.
    #[command(after_help = "Example:\n  imbrex fs df drive.img")]
    Df(Mount),
    /// Show where a file stands on the drive, or what the file system is.
    #[command(after_help = "Examples:\n  imbrex fs stat drive.img\n  imbrex fs stat drive.img /db/000012.sst")]
    Stat(Stat),
    /// Verify every checksum and every invariant. Exit code 1 where something is wrong.
    #[command(after_help = "Example:\n  imbrex fs check drive.img")]
    Check(Mount),
    /// Print RocksDB options that suit the drive.
    #[command(
        after_help = "Examples:\n  imbrex fs advise drive.img\n  db_bench $(imbrex fs advise drive.img --flags) …"
    )]
    Advise(AdviseArgs),
}

#[derive(clap::Args)]
struct Mount {
    /// The drive: a path or a URI.
    drive: String,
    /// Flushes of an emulated drive reach the host's disk.
    #[arg(long)]
    host_sync: bool,
    /// Cache for file contents.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Format {
    /// The drive: a path.
    drive: String,
    /// Destroy what is on the drive.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Ls {
    #[command(flatten)]
    mount: Mount,
    /// The directory or file.
    #[arg(default_value = "/")]
    path: String,
    /// Kind, names, size, allocation and time of each.
    #[arg(short, long)]
    long: bool,
    /// Directories inside, too.
    #[arg(short = 'R', long)]
    recursive: bool,
}

#[derive(clap::Args)]
struct Cat {
    #[command(flatten)]
    mount: Mount,
    /// The files.
    #[arg(required = true)]
    paths: Vec<String>,
}

#[derive(clap::Args)]
struct Cp {
    #[command(flatten)]
    mount: Mount,
    /// From: :/path on the drive, a path on the host, or - for stdin.
    from: String,
    /// To: :/path on the drive, a path on the host, or - for stdout.
    to: String,
}

#[derive(clap::Args)]
struct Rm {
    #[command(flatten)]
    mount: Mount,
    /// What to remove.
    #[arg(required = true)]
    paths: Vec<String>,
    /// Directories and all that is in them.
    #[arg(short, long)]
    recursive: bool,
}

#[derive(clap::Args)]
struct Stat {
    #[command(flatten)]
    mount: Mount,
    /// A file or directory.
    path: Option<String>,
}

#[derive(clap::Args)]
struct AdviseArgs {
    #[command(flatten)]
    mount: Mount,
    /// As flags of db_bench.
    #[arg(long)]
    flags: bool,
}

impl From<imbrex_bluefs::Error> for Failure {
    fn from(error: imbrex_bluefs::Error) -> Failure {
        Failure::failed(error)
    }
}

pub fn run(args: Args) -> Outcome {
    match args.verb {
        Verb::Format(args) => format(args),
        Verb::Ls(args) => ls(args),
        Verb::Cat(args) => cat(args),
        Verb::Cp(args) => cp(args),
        Verb::Rm(args) => rm(args),
        Verb::Df(args) => df(args),
        Verb::Stat(args) => stat(args),
        Verb::Check(args) => check(args),
        Verb::Advise(args) => advise(args),
    }
}

/// The URI of a drive that may be given as a path.
fn uri_of(drive: &str, options: &[String]) -> Result<String, Failure> {
    let mut uri = if drive.starts_with(SCHEME) {
        drive.to_owned()
    } else {
        let path = std::path::absolute(drive).map_err(|e| Failure::failed(format!("{drive}: {e}; check the path")))?;
        format!("{SCHEME}{}", path.display())
    };
    for option in options {
        uri.push(if uri.contains('?') { '&' } else { '?' });
        uri.push_str(option);
    }
    Ok(uri)
}

impl Mount {
    fn open(&self) -> Result<BlueFs, Failure> {
        let mut options = Vec::new();
        if self.host_sync {
            options.push("host-sync=on".to_owned());
        }
        if let Some(bytes) = self.cache {
            options.push(format!("cache={bytes}"));
        } else if !self.drive.contains("cache=") {
            // A command that ends soon needs no more.
            options.push("cache=64M".to_owned());
        }
        Ok(BlueFs::open_uri(&uri_of(&self.drive, &options)?)?)
    }
}

fn progress(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn format(args: Format) -> Outcome {
    let open = imbrex_drives::OpenOptions { survivor: false, ..Default::default() };
    let locator = args.drive.strip_prefix(SCHEME).unwrap_or(&args.drive);
    let drive = imbrex_drives::open(locator, &open)?;
    BlueFs::format(&drive, args.force)?;
    drop(drive);
    let space = Mount { drive: args.drive.clone(), host_sync: false, cache: None, json: false }.open()?.space();
    if args.json {
        return print_json(&json!({ "drive": args.drive, "total": space.total, "free": space.free }));
    }
    print(format_args!("{}: formatted, {} for files", args.drive, size(space.total)))
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "dir",
        FileKind::Random => "small",
        FileKind::Table => "table",
        FileKind::Log => "log",
    }
}

/// Seconds since 1970 as a date and time in UTC (civil calendar from days, after Hinnant's algorithm).
fn utc(ns: u64) -> String {
    let secs = ns / 1_000_000_000;
    let (days, rest) = ((secs / 86_400) as i64 + 719_468, secs % 86_400);
    let era = days / 146_097;
    let of_era = days - era * 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

fn facts(path: &str, a: &Attributes) -> Value {
    json!({ "path": path, "serial": a.serial, "kind": kind_name(a.kind), "size": a.size, "allocated": a.allocated,
            "modified_ns": a.modified, "links": a.links })
}

fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

/// Calls `each` for what is at `path`, or in it, directories before their contents.
fn walk(fs: &BlueFs, path: &str, deep: bool, each: &mut dyn FnMut(&str, &Attributes) -> Outcome) -> Outcome {
    for entry in fs.list(path)? {
        let path = join(path, &entry.name);
        each(&path, &entry.attributes)?;
        if deep && entry.attributes.kind == FileKind::Directory {
            walk(fs, &path, deep, each)?;
        }
    }
    Ok(())
}

fn ls(args: Ls) -> Outcome {
    let fs = args.mount.open()?;
    let mut found: Vec<(String, Attributes)> = Vec::new();
    let here = fs.stat(&args.path)?;
    if here.kind == FileKind::Directory {
        walk(&fs, &args.path, args.recursive, &mut |path, a| {
            found.push((path.to_owned(), a.clone()));
            Ok(())
        })?;
    } else {
        found.push((args.path.clone(), here));
    }
    if args.mount.json {
        return print_json(&found.iter().map(|(path, a)| facts(path, a)).collect::<Vec<_>>());
    }
    for (path, a) in &found {
        let name = if args.recursive { path.as_str() } else { path.rsplit('/').next().unwrap_or(path) };
        let slash = if a.kind == FileKind::Directory { "/" } else { "" };
        if args.long {
            let (kind, time) = (kind_name(a.kind), utc(a.modified));
            print(format_args!(
                "{kind:5} {:>2} {:>12} {:>7} {time} {name}{slash}",
                a.links,
                a.size,
                size(a.allocated)
            ))?;
        } else {
            print(format_args!("{name}{slash}"))?;
        }
    }
    Ok(())
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

/// Copies a stream to a file of the drive, durably.
fn receive(fs: &BlueFs, input: &mut dyn Read, expected: u64, path: &str, bar: &ProgressBar) -> Outcome {
    let mut writer = fs.create(path, CreateOptions { expected_size: expected })?;
    let mut buf = vec![0; PIECE];
    loop {
        let n = match input.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(Failure::failed(format!("reading the source of {path} failed ({e})"))),
        };
        writer.append(&buf[..n])?;
        bar.inc(n as u64);
    }
    writer.sync()?;
    Ok(writer.close()?)
}

fn cat(args: Cat) -> Outcome {
    let fs = args.mount.open()?;
    let mut out = io::stdout().lock();
    for path in &args.paths {
        send(&fs, path, &mut out, &ProgressBar::hidden())?;
    }
    match out.flush() {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Unread),
        Err(e) => Err(Failure::failed(format!("writing the output failed ({e}); see where it goes"))),
        Ok(()) => Ok(()),
    }
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

fn copy_in(fs: &BlueFs, from: &str, to: &str, bar: &ProgressBar) -> Outcome {
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
            copy_in(fs, &join(from, name), &join(to, name), bar)?;
        }
        return Ok(());
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

fn cp(args: Cp) -> Outcome {
    let (from, to) = (args.from.strip_prefix(':'), args.to.strip_prefix(':'));
    let usage = "one of the two paths must be on the drive: write it with a colon in front, as :/db/LOG";
    if from.is_none() && to.is_none() {
        return Err(Failure::usage(usage));
    }
    let fs = args.mount.open()?;
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
        (None, Some(to)) if args.from == "-" => receive(&fs, &mut io::stdin().lock(), 1 << 40, to, &bar),
        (None, Some(to)) => copy_in(&fs, &args.from, &target(is_dir(to), to, &args.from), &bar),
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
    fs.sync_all()?;
    if args.mount.json { print_json(&json!({ "bytes": bar.position() })) } else { Ok(()) }
}

fn remove(fs: &BlueFs, path: &str, recursive: bool, removed: &mut u64) -> Outcome {
    if fs.stat(path)?.kind != FileKind::Directory {
        fs.unlink(path)?;
    } else if recursive {
        for entry in fs.list(path)? {
            remove(fs, &join(path, &entry.name), true, removed)?;
        }
        if path.trim_matches('/').is_empty() {
            return Ok(());
        }
        fs.rmdir(path)?;
    } else {
        return Err(Failure::failed(format!("{path} is a directory; --recursive removes it with all that is in it")));
    }
    *removed += 1;
    Ok(())
}

fn rm(args: Rm) -> Outcome {
    let fs = args.mount.open()?;
    let mut removed = 0;
    for path in &args.paths {
        remove(&fs, path, args.recursive, &mut removed)?;
    }
    fs.sync_all()?;
    if args.mount.json { print_json(&json!({ "removed": removed })) } else { Ok(()) }
}

fn df(args: Mount) -> Outcome {
    let fs = args.open()?;
    let space = fs.space();
    if args.json {
        return print_json(&json!({ "total": space.total, "free": space.free, "used": space.total - space.free,
                                   "small_total": space.small_total, "small_free": space.small_free }));
    }
    let used = space.total - space.free;
    let percent = if space.total == 0 { 100.0 } else { used as f64 * 100.0 / space.total as f64 };
    print(table(&[
        ("size", size(space.total)),
        ("used", format!("{} ({percent:.1} %)", size(used))),
        ("free", size(space.free)),
        ("small files", format!("{} of {} free", size(space.small_free), size(space.small_total))),
    ]))
}

fn stat(args: Stat) -> Outcome {
    let fs = args.mount.open()?;
    let Some(path) = &args.path else {
        let (volume, report) = (fs.volume(), fs.mount_report());
        let uuid: String = volume.uuid().iter().map(|b| format!("{b:02x}")).collect();
        if args.mount.json {
            return print_json(&json!({ "uuid": uuid, "mount": volume.mount(), "clean": report.clean,
                "power_lost": report.power_lost, "replayed_bytes": report.replayed_bytes, "damage": report.damage }));
        }
        return print(table(&[
            ("volume", uuid),
            ("mount", count(volume.mount())),
            ("last mount ended", if report.clean { "cleanly" } else { "without being unmounted; repaired now" }.into()),
            ("damage", if report.damage.is_empty() { "none".into() } else { report.damage.join("; ") }),
        ]));
    };
    let attributes = fs.stat(path)?;
    let runs = fs.runs(path)?;
    if args.mount.json {
        let mut all = facts(path, &attributes);
        all["extents"] = runs
            .iter()
            .map(|r| {
                json!({ "logical": r.logical, "bytes": (r.len != u64::MAX).then_some(r.len), "zone": r.zone,
                        "address": r.address })
            })
            .collect();
        return print_json(&all);
    }
    print(table(&[
        ("path", path.clone()),
        ("kind", kind_name(attributes.kind).into()),
        ("serial", attributes.serial.to_string()),
        ("size", format!("{} bytes", attributes.size)),
        ("on the drive", size(attributes.allocated)),
        ("names", attributes.links.to_string()),
        ("modified", format!("{} UTC", utc(attributes.modified))),
    ]))?;
    for run in runs {
        let len = if run.len == u64::MAX { "growing".into() } else { format!("{} bytes", run.len) };
        let zone = run.zone.map_or("conventional".into(), |z| format!("zone {z}"));
        print(format_args!("at {:>12}  {len} in {zone}, address {}", run.logical, run.address))?;
    }
    Ok(())
}

fn check(args: Mount) -> Outcome {
    let fs = args.open()?;
    let bar = ProgressBar::new(0);
    bar.enable_steady_tick(Duration::from_millis(200));
    let report = fs.check(|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    if args.json {
        print_json(&json!({ "problems": report.problems, "notes": report.notes, "files": report.files,
                            "zones": report.zones, "bytes": report.bytes }))?;
    } else {
        for note in &report.notes {
            print(format_args!("note: {note}"))?;
        }
        for problem in &report.problems {
            print(problem)?;
        }
    }
    match report.problems.len() {
        0 if args.json => Ok(()),
        0 => print(format_args!(
            "{}: nothing is wrong ({} files, {} zones, {} verified)",
            args.drive,
            count(report.files),
            count(report.zones),
            size(report.bytes)
        )),
        n => Err(Failure::failed(format!(
            "{n} problems; copy out what is whole with `imbrex fs cp` before anything else"
        ))),
    }
}

fn advise(args: AdviseArgs) -> Outcome {
    let advice = args.mount.open()?.advise();
    let options: Vec<(&str, String)> = vec![
        ("write_buffer_size", advice.write_buffer_size.to_string()),
        ("target_file_size_base", advice.target_file_size.to_string()),
        ("level_compaction_dynamic_file_size", "false".into()),
        ("compaction_readahead_size", advice.compaction_readahead_size.to_string()),
        ("max_background_jobs", advice.background_jobs.to_string()),
        ("keep_log_file_num", "10".into()),
    ];
    if args.mount.json {
        let pairs: serde_json::Map<String, Value> =
            options.iter().map(|(k, v)| ((*k).into(), v.clone().into())).collect();
        return print_json(&pairs);
    }
    if args.flags {
        // Those that db_bench has flags for.
        let known = ["write_buffer_size", "target_file_size_base", "compaction_readahead_size", "max_background_jobs"];
        let flags = options.iter().filter(|(k, _)| known.contains(k)).map(|(k, v)| format!("--{k}={v}"));
        return print(flags.collect::<Vec<_>>().join(" "));
    }
    for (name, value) in options {
        print(format_args!("{name}={value}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00");
        assert_eq!(utc(1_767_225_599_000_000_000), "2025-12-31 23:59:59");
    }

    #[test]
    fn copies_go_into_directories_that_exist() {
        assert_eq!(target(true, "/a", "x/y/"), "/a/y");
        assert_eq!(target(false, "/a", "x/y"), "/a");
        assert_eq!(target(true, "/", "f"), "/f");
        assert_eq!(target(true, "/a", "."), "/a");
    }
}
