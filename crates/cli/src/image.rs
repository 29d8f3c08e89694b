//! `imbrex image …`: block images on an object store. Where another process serves them, it does what a command asks for.

use crate::installed;
use crate::output::{Failure, Outcome, count, number_of, print, print_json, size, written};
use crate::store::named::{Named, uri_with};
use clap::Subcommand;
use imbrex_device::Error;
use imbrex_drives::{Locator, SCHEME, parse_size};
use imbrex_image::control::{Request, Server, socket_of};
use imbrex_image::{Images, Info, LimitChange, Limits, Optimized, Stat};
use imbrex_store::Store;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Requests of clients that the server handles at once.
const THREADS: &str = "64";

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  imbrex drive create drive.img --profile hgst-hsh721414al && imbrex store format drive.img\n  \
    imbrex image create drive.img disk 10G\n  imbrex image serve drive.img --socket nbd.sock &\n  \
    qemu-img info nbd+unix:///disk?socket=nbd.sock\n  imbrex image snap drive.img disk@monday\n\n\
    A drive is a path, or a URI with options, and has an object store. A snapshot is IMAGE@SNAPSHOT. While the images are served, other commands reach the server."
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an image. It has zeros, which take no room.
    #[command(after_help = "Example:\n  imbrex image create drive.img disk 10G")]
    Create(Sized),
    /// List images: their sizes, what they take, their snapshots and parents.
    #[command(after_help = "Example:\n  imbrex image ls drive.img")]
    Ls(Ls),
    /// Keep what an image has now, under a name: at once, and without a copy.
    #[command(after_help = "Example:\n  imbrex image snap drive.img disk@monday")]
    Snap(Snapshot),
    /// Make an image that has what another had at a snapshot. It shares all bytes until either changes.
    #[command(after_help = "Example:\n  imbrex image clone drive.img disk@monday copy")]
    Clone(Clone),
    /// Make a clone an image of its own, which needs its parent no more. No byte is copied.
    #[command(after_help = "Example:\n  imbrex image flatten drive.img copy")]
    Flatten(Image),
    /// Give an image another size. Nobody may use one that becomes smaller; who uses one that grows sees it when he connects again.
    #[command(after_help = "Example:\n  imbrex image resize drive.img disk 20G")]
    Resize(Sized),
    /// Limit what an image takes, and what its clients may ask for together.
    ///
    /// They count at once and stay with the image. Limits of requests hold back those of the process that has the images open.
    #[command(after_help = "Examples:\n  imbrex image limit drive.img disk --used 20G --iops 500 --bandwidth 100M\n  \
        imbrex image limit drive.img disk --iops none")]
    Limit(Limit),
    /// Make an image again what it was at a snapshot. What was written since is lost. Nobody may use it.
    #[command(after_help = "Example:\n  imbrex image rollback drive.img disk@monday")]
    Rollback(Snapshot),
    /// Give an image another name.
    #[command(after_help = "Example:\n  imbrex image mv drive.img disk root")]
    Mv(Mv),
    /// Remove images without snapshots, or snapshots without clones.
    #[command(after_help = "Example:\n  imbrex image rm drive.img copy disk@monday disk")]
    Rm(Rm),
    /// Print what an image has, or what has changed since a snapshot, as a stream in the format of `rbd export-diff`.
    #[command(after_help = "Example:\n  imbrex image export-diff drive.img disk@tuesday --from monday > changes")]
    ExportDiff(ExportDiff),
    /// Write what an image has in many places anew, one behind the other, so that it is read in order again. It may be used meanwhile. What snapshots and clones share stays where it is.
    #[command(after_help = "Example:\n  imbrex image optimize drive.img disk --memory 1G")]
    Optimize(Optimize),
    /// Make the changes of a stream that `imbrex image export-diff` or `rbd export-diff` has printed, and the snapshot that it is named for.
    ///
    /// The image has to be what it was at the snapshot since which the stream has changes, or new where it has all. Nobody may use it.
    #[command(after_help = "Example:\n  imbrex image import-diff other.img disk < changes")]
    ImportDiff(Image),
    /// Print what a server has counted for an image: requests, how long they took, what it takes.
    #[command(after_help = "Example:\n  imbrex image stat drive.img disk")]
    Stat(Image),
    /// Serve all images to virtual machines and to other clients of NBD, with nbdkit, until Ctrl-C.
    #[command(after_help = "Examples:\n  imbrex image serve drive.img --socket nbd.sock\n  \
        imbrex image serve drive.img --socket nbd.sock -- --filter=rate rate=100M")]
    Serve(Serve),
}

#[derive(clap::Args)]
struct Image {
    #[command(flatten)]
    named: Named,
    /// The image.
    image: String,
}

#[derive(clap::Args)]
struct Sized {
    #[command(flatten)]
    named: Named,
    /// The image.
    image: String,
    /// Its size: 10G.
    #[arg(value_parser = parse_size)]
    size: u64,
}

#[derive(clap::Args)]
struct Snapshot {
    #[command(flatten)]
    named: Named,
    /// The snapshot.
    #[arg(value_name = "IMAGE@SNAPSHOT", value_parser = snapshot)]
    snapshot: (String, String),
}

#[derive(clap::Args)]
struct Clone {
    #[command(flatten)]
    named: Named,
    /// The snapshot.
    #[arg(value_name = "IMAGE@SNAPSHOT", value_parser = snapshot)]
    snapshot: (String, String),
    /// The new image.
    new: String,
}

#[derive(clap::Args)]
#[group(id = "limits", required = true, multiple = true, args = ["used", "iops", "bandwidth"])]
struct Limit {
    #[command(flatten)]
    named: Named,
    /// The image.
    image: String,
    /// Bytes that it may take with its snapshots, as 20G: a write beyond them fails as on a full drive. "none": no limit.
    #[arg(long, value_name = "SIZE|none", value_parser = size_or_none)]
    used: Option<u64>,
    /// Reads, writes and discards a second; others wait. "none": no limit.
    #[arg(long, value_name = "N|none", value_parser = number_or_none)]
    iops: Option<u64>,
    /// Bytes that are read and written a second, as 100M; others wait. "none": no limit.
    #[arg(long, value_name = "SIZE|none", value_parser = size_or_none)]
    bandwidth: Option<u64>,
}

#[derive(clap::Args)]
struct Ls {
    #[command(flatten)]
    named: Named,
    /// This image only.
    image: Option<String>,
}

#[derive(clap::Args)]
struct Mv {
    #[command(flatten)]
    named: Named,
    /// The image.
    image: String,
    /// Its new name.
    to: String,
}

#[derive(clap::Args)]
struct Rm {
    #[command(flatten)]
    named: Named,
    /// Images and snapshots, one after the other.
    #[arg(required = true, value_name = "IMAGE[@SNAPSHOT]")]
    what: Vec<String>,
}

#[derive(clap::Args)]
struct ExportDiff {
    #[command(flatten)]
    named: Named,
    /// The image as it is now, or a snapshot of it.
    #[arg(value_name = "IMAGE[@SNAPSHOT]")]
    what: String,
    /// What has changed since this snapshot of it. Else all that is not zeros.
    #[arg(long, value_name = "SNAPSHOT")]
    from: Option<String>,
}

#[derive(clap::Args)]
struct Optimize {
    #[command(flatten)]
    named: Named,
    /// The image.
    image: String,
    /// So many bytes are in memory at once, 1M to 64G. The more, the fewer ways of the disk's head, and the sooner it ends.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    memory: u64,
}

#[derive(clap::Args)]
struct Serve {
    /// The drive: a path or a URI.
    drive: String,
    /// The drive with the metadata, where they are on another one.
    #[arg(long, value_name = "DRIVE")]
    db: Option<String>,
    /// The Unix socket that clients connect to.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// The nbdkit plug-in, where it is not beside this program or in ../lib.
    #[arg(long, value_name = "PATH")]
    plugin: Option<PathBuf>,
    /// More arguments of nbdkit, as filters and their parameters.
    #[arg(last = true, value_name = "NBDKIT ARGUMENTS")]
    more: Vec<OsString>,
}

fn snapshot(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('@').filter(|(image, snapshot)| !image.is_empty() && !snapshot.is_empty());
    let parts = parts.ok_or_else(|| "a snapshot is IMAGE@SNAPSHOT, as disk@monday".to_owned())?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

/// A limit, of which 0 says that there is none.
fn or_none(text: &str, parse: impl FnOnce(&str) -> Result<u64, String>) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        _ => parse(text).and_then(|n| if n > 0 { Ok(n) } else { Err("write a number above 0, or none".to_owned()) }),
    }
}

fn size_or_none(text: &str) -> Result<u64, String> {
    or_none(text, parse_size)
}

fn number_or_none(text: &str) -> Result<u64, String> {
    or_none(text, |text| text.parse().map_err(|_| "write a number, or none".to_owned()))
}

/// An image, and a snapshot where one is named.
fn parts(text: &str) -> (String, Option<String>) {
    match text.split_once('@') {
        Some((image, snapshot)) => (image.to_owned(), Some(snapshot.to_owned())),
        None => (text.to_owned(), None),
    }
}

pub fn run(args: Args) -> Outcome {
    let (named, requests) = match args.verb {
        Verb::Create(Sized { named, image, size }) => (named, vec![Request::Create { name: image, size }]),
        Verb::Ls(args) => return ls(args),
        Verb::Snap(Snapshot { named, snapshot: (name, snapshot) }) => {
            (named, vec![Request::Snapshot { name, snapshot }])
        }
        Verb::Clone(Clone { named, snapshot: (name, snapshot), new }) => {
            (named, vec![Request::Clone { name, snapshot, to: new }])
        }
        Verb::Flatten(Image { named, image }) => (named, vec![Request::Flatten { name: image }]),
        Verb::Resize(Sized { named, image, size }) => (named, vec![Request::Resize { name: image, size }]),
        Verb::Limit(Limit { named, image, used, iops, bandwidth }) => {
            (named, vec![Request::Limit { name: image, change: LimitChange { used, iops, bandwidth } }])
        }
        Verb::Rollback(Snapshot { named, snapshot: (name, snapshot) }) => {
            (named, vec![Request::Rollback { name, snapshot }])
        }
        Verb::Mv(Mv { named, image, to }) => (named, vec![Request::Rename { name: image, to }]),
        Verb::Rm(Rm { named, what }) => {
            let one = |what: &String| match parts(what) {
                (name, Some(snapshot)) => Request::RemoveSnapshot { name, snapshot },
                (name, None) => Request::Remove { name },
            };
            (named, what.iter().map(one).collect())
        }
        Verb::ExportDiff(ExportDiff { named, what, from }) => {
            let (name, to) = parts(&what);
            let mut out = io::stdout().lock();
            let request = [Request::ExportDiff { name, from, to }];
            let done = ask(&named, true, &request, (&mut io::empty(), &mut out));
            return done.and_then(|()| written(out.flush()));
        }
        Verb::Optimize(args) => return optimize(args),
        Verb::ImportDiff(Image { named, image }) => {
            let request = [Request::ImportDiff { name: image }];
            return ask(&named, false, &request, (&mut io::stdin().lock(), &mut io::sink()));
        }
        Verb::Stat(args) => return stat(&args),
        Verb::Serve(args) => return serve(&args),
    };
    ask(&named, false, &requests, (&mut io::empty(), &mut io::sink()))
}

/// The path of a drive that is named so.
fn path_of(drive: &str) -> &Path {
    let rest = drive.strip_prefix(SCHEME).unwrap_or(drive);
    Path::new(rest.split('?').next().unwrap_or_default())
}

/// Has requests carried out: by whoever serves the images, or here.
fn ask(named: &Named, looks: bool, requests: &[Request], (input, out): (&mut dyn Read, &mut dyn Write)) -> Outcome {
    let failed = |error: Error| Failure::from(error);
    let socket = socket_of(path_of(&named.drive));
    let server = |socket: &PathBuf| Server::at(socket).map_err(failed);
    if let Some(mut server) = socket.as_ref().map(server).transpose()?.flatten() {
        for (n, request) in requests.iter().enumerate() {
            server.perform(request, input, out).map_err(failed)?;
            if n + 1 == requests.len() {
                return Ok(());
            }
            server = match socket.as_deref().map(Server::at).transpose().map_err(failed)?.flatten() {
                Some(server) => server,
                None => {
                    return Err(Failure::failed(
                        "the server of the images has ended; run the command again for the rest",
                    ));
                }
            };
        }
        return Ok(());
    }
    let options = if looks { named.as_a_look() } else { Vec::new() };
    let store = named.open_with(options, Store::open_uri)?;
    let images = Images::open((*store).clone(), store)?;
    requests.iter().try_for_each(|request| images.perform(request, input, out).map_err(failed))
}

fn ls(args: Ls) -> Outcome {
    let mut found = Vec::new();
    let request = args.image.map_or(Request::List, |name| Request::Info { name });
    ask(&args.named, true, &[request], (&mut io::empty(), &mut found))?;
    let all: Vec<Info> = serde_json::from_slice(&found).map_err(another_version)?;
    if args.named.json {
        return print_json(&serde_json::json!({ "images": all }));
    }
    for info in all {
        let parent = info.parent.as_ref().map(|parent| format!(", a clone of {}@{}", parent.image, parent.snapshot));
        print(format_args!(
            "{:>8}  {:>8} used  {}{}{}",
            size(info.size),
            size(info.used),
            info.name,
            parent.unwrap_or_default(),
            limited(&info)
        ))?;
        for snapshot in &info.snapshots {
            let clones = match snapshot.clones {
                0 => String::new(),
                n => format!(", {}", number_of(n, "clone")),
            };
            print(format_args!("{:>8}  {:>13}  {}@{}{clones}", size(snapshot.size), "", info.name, snapshot.name))?;
        }
    }
    Ok(())
}

/// Lines of JSON that say how far something is: the last one counts, and a terminal is shown each.
#[derive(Default)]
struct Steps {
    line: Vec<u8>,
    last: Optimized,
    told: bool,
}

impl Write for Steps {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            self.last = serde_json::from_slice(&self.line)?;
            self.line.clear();
            if io::stderr().is_terminal() {
                eprint!("\r{} looked at, {} written   ", size(self.last.looked), size(self.last.written));
                self.told = true;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn optimize(args: Optimize) -> Outcome {
    if !(1 << 20..=64 << 30).contains(&args.memory) {
        return Err(Failure::usage("say 1M to 64G of --memory"));
    }
    let (mut steps, request) = (Steps::default(), Request::Optimize { name: args.image, memory: args.memory });
    let done = ask(&args.named, false, &[request], (&mut io::empty(), &mut steps));
    if steps.told {
        eprintln!();
    }
    done?;
    let Optimized { looked, written, left } = steps.last;
    if args.named.json {
        return print_json(&serde_json::json!({ "looked": looked, "written": written, "left": left }));
    }
    let left = match left {
        0 => String::new(),
        left => format!("; {} stay where they are, since snapshots or clones share them", size(left)),
    };
    print(format_args!("{} of {} written anew{left}", size(written), size(looked)))
}

/// What whoever has the images open has counted. Nobody else knows.
fn stat(args: &Image) -> Outcome {
    let drive = &args.named.drive;
    let server = socket_of(path_of(drive)).map(|socket| Server::at(&socket)).transpose()?.flatten();
    let server = server.ok_or_else(|| {
        Failure::failed(format!("nobody serves the images of {drive}; `imbrex image ls` shows what they are"))
    })?;
    let mut found = Vec::new();
    server.perform(&Request::Stat { name: args.image.clone() }, &mut io::empty(), &mut found)?;
    let stat: Stat = serde_json::from_slice(&found).map_err(another_version)?;
    if args.named.json {
        return print_json(&serde_json::json!(stat));
    }
    let Stat { image, store } = stat;
    let snapshots = number_of(image.snapshots, "snapshot");
    print(format_args!("{}: {} with {snapshots}, {}", image.name, size(image.size), limits(image.limits)))?;
    if let Some(taken) = image.taken {
        let age = number_of(taken.age, "second");
        print(format_args!("takes {}, and {} for snapshots, {age} ago", size(taken.used), size(taken.kept)))?;
    }
    print(format_args!(
        "{:<8} {:>10} {:>10} {:>8} {:>10} {:>10}",
        "", "requests", "bytes", "failed", "mean", "99 % in"
    ))?;
    for of in &image.requests {
        let took = &of.nanoseconds;
        let mean = took.sum.checked_div(took.count).map_or("-".into(), milliseconds);
        print(format_args!(
            "{:<8} {:>10} {:>10} {:>8} {:>10} {:>10}",
            of.kind.name(),
            count(took.count),
            size(of.bytes),
            count(of.failed),
            mean,
            most_within(&took.buckets, took.count)
        ))?;
    }
    print(format_args!("held back by limits: {}, {} together", count(image.waits), milliseconds(image.waited)))?;
    print(format_args!(
        "its store: {} in {}, {} free",
        size(store.stored.saturating_add(store.deferred)),
        number_of(store.objects, "object"),
        size(store.free)
    ))
}

fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.2} ms", nanoseconds as f64 / 1e6)
}

/// The end of the bucket that 99 % of all are within.
fn most_within(buckets: &[(u64, u64)], count: u64) -> String {
    let enough = count - count / 100;
    match buckets.iter().find(|(_, within)| *within >= enough) {
        _ if count == 0 => "-".to_owned(),
        Some((end, _)) => milliseconds(*end),
        None => "longer".to_owned(),
    }
}

fn another_version(error: serde_json::Error) -> Failure {
    Failure::failed(format!("the server answers in another way ({error}); use its version of imbrex"))
}

fn limits(limits: Limits) -> String {
    let Limits { used, iops, bandwidth } = limits;
    let used = used.map(|used| format!("{} taken", size(used)));
    let iops = iops.map(|iops| format!("{}/s", number_of(iops, "request")));
    let bandwidth = bandwidth.map(|bytes| format!("{}/s", size(bytes)));
    let all: Vec<String> = [used, iops, bandwidth].into_iter().flatten().collect();
    if all.is_empty() { "no limits".to_owned() } else { format!("limited to {}", all.join(", ")) }
}

/// What `ls` says of limits, behind the rest.
fn limited(info: &Info) -> String {
    let Limits { used, iops, bandwidth } = info.limits;
    let taken = size(info.used.saturating_add(info.kept));
    let used = used.map(|used| format!(", takes {taken} of {} with its snapshots", size(used)));
    let iops = iops.map(|iops| format!(", {}/s", number_of(iops, "request")));
    let bandwidth = bandwidth.map(|bytes| format!(", {}/s", size(bytes)));
    [used, iops, bandwidth].into_iter().flatten().collect()
}

/// Where the plug-in is.
fn plugin() -> Result<PathBuf, Failure> {
    const NAME: &str = "nbdkit_imbrex.so";
    let sentence = "it is neither beside this program nor in ../lib; `make build` makes it, or name it with --plugin";
    let found = installed::with(NAME).map(|dir| dir.join(NAME));
    found.ok_or_else(|| Failure::failed(format!("{NAME}: {sentence}")))
}

/// KEY=VALUE, which stands behind the plug-in. What else there is are options, and their values.
fn is_parameter(word: &OsString) -> bool {
    let bytes = word.as_encoded_bytes();
    !bytes.starts_with(b"-") && bytes.contains(&b'=')
}

fn serve(args: &Serve) -> Outcome {
    if Locator::is_memory(args.drive.strip_prefix(SCHEME).unwrap_or(&args.drive)) {
        return Err(Failure::usage("a drive in memory is gone with this command; serve an image file or a device"));
    }
    let both = uri_with(&args.drive, args.db.as_deref())?;
    let uri = crate::engine::uri_of(&both)?;
    let plugin = args.plugin.clone().map_or_else(plugin, Ok)?;
    // Of a server that was killed: nobody listens.
    let is_socket = std::fs::symlink_metadata(&args.socket).is_ok_and(|about| about.file_type().is_socket());
    if is_socket && UnixStream::connect(&args.socket).is_err() {
        std::fs::remove_file(&args.socket)
            .map_err(|error| Failure::failed(format!("{}: {error}; remove it", args.socket.display())))?;
    }
    // Says what is wrong with the drive in the words of this command.
    let named = Named::of(&both);
    let store = named.open_in_front(named.as_a_look(), Store::open_uri)?;
    let images = Images::open((*store).clone(), store)?;
    let names = images.names()?;
    drop(images);
    let names = number_of(names.len() as u64, "image");
    print(format_args!("serving {names} of {} at {}", args.drive, args.socket.display()))?;
    let error = Command::new("nbdkit")
        .args(["--foreground", "--threads", THREADS, "--unix"])
        .arg(&args.socket)
        .args(args.more.iter().filter(|word| !is_parameter(word)))
        .arg(&plugin)
        .arg(format!("drive={uri}"))
        .args(args.more.iter().filter(|word| is_parameter(word)))
        .exec();
    Err(Failure::failed(match error.kind() {
        io::ErrorKind::NotFound => {
            "nbdkit is not installed; install it (Debian's package is nbdkit) and serve again".to_owned()
        }
        _ => format!("nbdkit cannot be started: {error}"),
    }))
}
