//! `imbrex fs …`: the file system on a drive.

mod backup;
mod copy;
mod dump;
mod look;
mod mount;
mod names;
mod salvage;

use crate::engine::Named;
use crate::output::{Failure, Outcome, print, print_json, size};
use clap::Subcommand;
use imbrex_bluefs::{Attributes, BlueFs, FileKind, uri_options};
use imbrex_drives::{SCHEME, parse_size, parse_uri};
use serde_json::json;
use std::ops::Deref;

pub(crate) use copy::progress;

#[doc(hidden)]
pub use backup::fuzz_restore;

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
    /// Make directories.
    #[command(after_help = "Examples:\n  imbrex fs mkdir drive.img /db\n  imbrex fs mkdir drive.img /a/b/c --parents")]
    Mkdir(Mkdir),
    /// Rename a file or directory, or move it to another directory. It is never copied.
    #[command(
        after_help = "Examples:\n  imbrex fs mv drive.img /db/OPTIONS-000007 /db/OPTIONS-old\n  imbrex fs mv drive.img /db /archive/"
    )]
    Mv(Mv),
    /// Give a file one more name, as ln does without -s.
    #[command(after_help = "Example:\n  imbrex fs ln drive.img /db/000005.sst /checkpoint/000005.sst")]
    Ln(Ln),
    /// Show how much room there is.
    #[command(after_help = "Example:\n  imbrex fs df drive.img")]
    Df(Mount),
    /// Show where a file stands on the drive, or what the file system is.
    #[command(after_help = "Examples:\n  imbrex fs stat drive.img\n  imbrex fs stat drive.img /db/000012.sst")]
    Stat(Stat),
    /// Print the metadata as JSON, a line for each file and zone: names, inodes, extents, zones, the journal's place. Changes nothing.
    #[command(after_help = "Examples:\n  imbrex fs dump drive.img > metadata.jsonl\n  \
                            imbrex fs dump drive.img | jq -r 'select(.zone == 17)'")]
    Dump(Mount),
    /// Verify every checksum and every invariant. Exit code 3 where something is wrong.
    #[command(after_help = "Examples:\n  imbrex fs check drive.img            # changes nothing\n  \
                      imbrex fs check drive.img --repair   # what a mount can repair is repaired first")]
    Check(Check),
    /// Copy all files to a directory or a tar stream of the host, with checksums.
    #[command(after_help = "Examples:\n  imbrex fs backup drive.img /backups/monday          # a directory\n  \
                            imbrex fs backup drive.img /backups/monday.tar\n  \
                            imbrex fs backup drive.img - | zstd | ssh host 'cat > monday.tar.zst'")]
    Backup(BackupArgs),
    /// Copy a backup to a formatted drive that is empty, or into a new directory, and compare it with its checksums.
    #[command(after_help = "Examples:\n  imbrex fs restore drive.img /backups/monday\n  \
                            zstd -dc monday.tar.zst | imbrex fs restore drive.img - --to /monday")]
    Restore(RestoreArgs),
    /// Show the files of a drive as a read-only directory of the host, until Ctrl-C.
    #[command(after_help = "Example:\n  mkdir /mnt/drive && imbrex fs mount drive.img /mnt/drive")]
    Mount(FuseArgs),
    /// Copy out what is left of a drive whose label or journal is gone. The drive stays as it is.
    #[command(after_help = "Examples:\n  imbrex fs salvage drive.img ./salvaged\n  \
                            imbrex fs salvage /dev/sdb ./salvaged --quick   # only the beginnings of zones")]
    Salvage(SalvageArgs),
    /// Print RocksDB options that suit the drive.
    #[command(
        after_help = "Examples:\n  imbrex fs advise drive.img\n  db_bench $(imbrex fs advise drive.img --flags) …"
    )]
    Advise(AdviseArgs),
}

#[derive(clap::Args)]
struct Mount {
    #[command(flatten)]
    named: Named,
    /// Cache for file contents.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache: Option<u64>,
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
struct Mkdir {
    #[command(flatten)]
    mount: Mount,
    /// The new directories.
    #[arg(required = true)]
    paths: Vec<String>,
    /// The directories above them, too, and none of it is an error where it is there.
    #[arg(short, long)]
    parents: bool,
}

#[derive(clap::Args)]
struct Mv {
    #[command(flatten)]
    mount: Mount,
    /// The file or directory.
    from: String,
    /// Its new path, or a directory that it goes to.
    to: String,
    /// Replace a file of that name.
    #[arg(short, long)]
    force: bool,
}

#[derive(clap::Args)]
struct Ln {
    #[command(flatten)]
    mount: Mount,
    /// The file.
    from: String,
    /// One more name for it.
    to: String,
}

#[derive(clap::Args)]
struct BackupArgs {
    #[command(flatten)]
    mount: Mount,
    /// A new directory of the host, a new file that ends in .tar, or - for a tar stream to stdout.
    to: String,
    /// Only what is in this directory of the drive.
    #[arg(long, value_name = "PATH", default_value = "/")]
    from: String,
}

#[derive(clap::Args)]
struct RestoreArgs {
    #[command(flatten)]
    mount: Mount,
    /// The backup: a directory, a tar file, or - for a tar stream from stdin.
    from: String,
    /// A new directory of the drive for it.
    #[arg(long, value_name = "PATH", default_value = "/")]
    to: String,
}

#[derive(clap::Args)]
struct FuseArgs {
    #[command(flatten)]
    mount: Mount,
    /// An empty directory of the host, at which nothing is mounted.
    dir: String,
}

#[derive(clap::Args)]
struct SalvageArgs {
    /// The drive: a path or a URI.
    drive: String,
    /// A new or empty directory of the host.
    to: String,
    /// Look for parts of files only at the beginnings of zones, instead of reading all that is written.
    #[arg(long)]
    quick: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Stat {
    #[command(flatten)]
    mount: Mount,
    /// A file or directory.
    path: Option<String>,
}

#[derive(clap::Args)]
struct Check {
    #[command(flatten)]
    mount: Mount,
    /// Mount the drive for writing first, which repairs what can be repaired; then check what is left.
    #[arg(long)]
    repair: bool,
}

#[derive(clap::Args)]
struct AdviseArgs {
    #[command(flatten)]
    mount: Mount,
    /// As flags of db_bench.
    #[arg(long)]
    flags: bool,
}

pub fn run(args: Args) -> Outcome {
    match args.verb {
        Verb::Format(args) => format(args),
        Verb::Ls(args) => look::ls(args),
        Verb::Cat(args) => copy::cat(args),
        Verb::Cp(args) => copy::cp(args),
        Verb::Rm(args) => rm(args),
        Verb::Mkdir(args) => names::mkdir(args),
        Verb::Mv(args) => names::mv(args),
        Verb::Ln(args) => names::ln(args),
        Verb::Df(args) => look::df(args),
        Verb::Stat(args) => look::stat(args),
        Verb::Dump(args) => dump::dump(&args),
        Verb::Check(args) => look::check(args),
        Verb::Backup(args) => backup::backup(args),
        Verb::Restore(args) => backup::restore(args),
        Verb::Salvage(args) => salvage::salvage(args),
        Verb::Mount(args) => mount::mount(args),
        Verb::Advise(args) => look::advise(args),
    }
}

impl Mount {
    /// Mounts the drive, which repairs what a crash has left.
    fn open(&self) -> Result<BlueFs, Failure> {
        self.open_as(Vec::new())
    }

    /// Mounts the drive for a look: nothing on it changes, not even what a mount would repair.
    fn look(&self) -> Result<BlueFs, Failure> {
        self.open_as(self.named.as_a_look())
    }

    fn open_as(&self, options: Vec<(&'static str, &'static str)>) -> Result<BlueFs, Failure> {
        // A command that ends soon needs no more than 64M.
        let cache = self.cache.map_or("64M".to_owned(), |bytes| bytes.to_string());
        let mut with_cache: Vec<(&str, &str)> = options;
        with_cache.push(("cache", &cache));
        if self.cache.is_some() && self.drive.contains("cache=") {
            return Err(Failure::usage(format!(
                "{}: its cache= and --cache ask for two caches; leave one out",
                self.drive
            )));
        }
        self.named.open_with(with_cache, BlueFs::open_uri_with)
    }
}

impl Deref for Mount {
    type Target = Named;
    fn deref(&self) -> &Named {
        &self.named
    }
}

fn format(args: Format) -> Outcome {
    let open = imbrex_drives::OpenOptions { survivor: false, as_it_is: true, ..Default::default() };
    let locator = match args.drive.starts_with(SCHEME) {
        true => parse_uri(&args.drive, &uri_options())?.locator,
        false => args.drive.clone(),
    };
    let drive = imbrex_drives::open(&locator, &open)?;
    BlueFs::format(&drive, args.force)?;
    drop(drive);
    let space = Mount { named: Named::of(&args.drive), cache: None }.look()?.space();
    if args.json {
        return print_json(&json!({ "drive": args.drive, "total": space.total, "free": space.free }));
    }
    print(format_args!("{}: formatted, {} for files", args.drive, size(space.total)))
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
