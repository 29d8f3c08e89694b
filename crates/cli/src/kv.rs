//! `imbrex kv …`: the key-value store on a drive.

use crate::engine::Named;
use crate::output::{Failure, Outcome, bar_style, count, number_of, print, print_json, size, table};
use clap::Subcommand;
use imbrex_drives::OpenOptions;
use imbrex_kv::{Batch, Iter, Kv};
use indicatif::ProgressBar;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

/// Changes of one batch of a load, in bytes.
const TOGETHER: usize = 256 << 10;

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example:\n  imbrex drive create drive.img --profile tiny   # an emulated drive, where there is no /dev/sdb\n  \
    imbrex kv format drive.img && imbrex kv put drive.img user:1 Ada\n  \
    imbrex kv get drive.img user:1 && imbrex kv scan drive.img user:\n\n\
    A drive is a path, or a URI with options, as 'imbrex:///data/drive.img?memtable=256M'."
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an empty key-value store on a drive.
    #[command(after_help = "Example:\n  imbrex kv format drive.img")]
    Format(Format),
    /// Give a key a value, which is durable when the command ends.
    #[command(
        after_help = "Examples:\n  imbrex kv put drive.img user:1 Ada\n  imbrex kv put drive.img photo - < photo.jpg"
    )]
    Put(Put),
    /// Print the value of a key, as it is. Exit code 1 where there is no such key.
    #[command(after_help = "Example:\n  imbrex kv get drive.img photo > copy.jpg")]
    Get(Key),
    /// Delete keys.
    #[command(after_help = "Example:\n  imbrex kv rm drive.img user:1 user:2")]
    Rm(Rm),
    /// Print keys and values in order, a line each, with a tab between.
    #[command(
        after_help = "Examples:\n  imbrex kv scan drive.img\n  imbrex kv scan drive.img user: --keys --limit 10\n  \
                            imbrex kv scan drive.img --from m --reverse"
    )]
    Scan(Scan),
    /// Store lines of a key, a tab and a value.
    #[command(
        after_help = "Examples:\n  imbrex kv load drive.img pairs.tsv\n  imbrex kv scan old.img | imbrex kv load new.img"
    )]
    Load(Load),
    /// Show how many tables there are in each level, and what is in memory.
    #[command(after_help = "Example:\n  imbrex kv stat drive.img --json")]
    Stat(Store),
    /// Merge all tables, so that each key is in one.
    #[command(after_help = "Example:\n  imbrex kv compact drive.img")]
    Compact(Store),
    /// Read every block of every table. Exit code 3 where something is wrong.
    #[command(after_help = "Example:\n  imbrex kv check drive.img   # changes nothing")]
    Check(Store),
}

#[derive(clap::Args)]
struct Store {
    #[command(flatten)]
    named: Named,
}

#[derive(clap::Args)]
struct Format {
    /// The drive: a path or a URI.
    drive: String,
    /// Destroy what is on the drive.
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
struct Put {
    #[command(flatten)]
    store: Store,
    /// The key.
    key: String,
    /// The value; - is stdin.
    value: String,
}

#[derive(clap::Args)]
struct Key {
    #[command(flatten)]
    store: Store,
    /// The key.
    key: String,
}

#[derive(clap::Args)]
struct Rm {
    #[command(flatten)]
    store: Store,
    /// The keys.
    #[arg(required = true)]
    keys: Vec<String>,
}

#[derive(clap::Args)]
struct Scan {
    #[command(flatten)]
    store: Store,
    /// Only keys that begin so.
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Only keys at or behind this one; with --reverse at or before it.
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Nothing but keys.
    #[arg(long)]
    keys: bool,
    /// From the last to the first.
    #[arg(long)]
    reverse: bool,
}

#[derive(clap::Args)]
struct Load {
    #[command(flatten)]
    store: Store,
    /// The file; - is stdin.
    #[arg(default_value = "-")]
    file: String,
}

impl Store {
    fn open(&self) -> Result<Kv, Failure> {
        self.named.open_with(Vec::new(), Kv::open_uri).map(told)
    }

    /// Opens it so that nothing on the drive changes.
    fn look(&self) -> Result<Kv, Failure> {
        self.named.open_with(self.named.as_a_look(), Kv::open_uri).map(told)
    }
}

/// Says what the opening found damaged.
fn told(store: Kv) -> Kv {
    store.damage().iter().for_each(|sentence| crate::output::warn(sentence, false));
    store
}

pub fn run(args: Args) -> Outcome {
    match args.verb {
        Verb::Format(args) => format(&args),
        Verb::Put(args) => put(&args),
        Verb::Get(args) => get(&args),
        Verb::Rm(args) => rm(&args),
        Verb::Scan(args) => scan(&args),
        Verb::Load(args) => load(&args),
        Verb::Stat(args) => stat(&args),
        Verb::Compact(args) => args.open()?.compact().map_err(Failure::from),
        Verb::Check(args) => check(&args),
    }
}

fn format(args: &Format) -> Outcome {
    let drive = imbrex_drives::open(&args.drive, &OpenOptions::default())?;
    Kv::format(&drive, None, args.force)?;
    print(format_args!("{}: an empty key-value store", args.drive))
}

fn put(args: &Put) -> Outcome {
    let mut value = args.value.clone().into_bytes();
    if args.value == "-" {
        value.clear();
        io::stdin().lock().read_to_end(&mut value).map_err(|error| Failure::failed(format_args!("stdin: {error}")))?;
    }
    Ok(args.store.open()?.put(args.key.as_bytes(), &value, true)?)
}

fn get(args: &Key) -> Outcome {
    let Some(value) = args.store.look()?.get(args.key.as_bytes())? else {
        return Err(Failure::failed(format_args!("there is no key {:?}; imbrex kv scan lists keys", args.key)));
    };
    written(io::stdout().lock().write_all(&value))
}

/// Whoever reads may have enough.
fn written(result: io::Result<()>) -> Outcome {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| Failure::failed(format_args!("stdout: {error}"))),
    }
}

fn rm(args: &Rm) -> Outcome {
    let mut batch = Batch::new();
    args.keys.iter().for_each(|key| batch.delete(key.as_bytes()));
    Ok(args.store.open()?.write(&batch, true)?)
}

/// The first key that begins with none of what begins with the prefix and is not before it; `None`: there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

fn begin(iter: &mut Iter, args: &Scan) -> imbrex_device::Result<()> {
    let from = args.from.as_deref().map(str::as_bytes);
    let prefix = args.prefix.as_bytes();
    if !args.reverse {
        return iter.seek(from.unwrap_or_default().max(prefix));
    }
    let end = behind(prefix);
    match (from, end) {
        (Some(from), end) if end.as_deref().is_none_or(|end| from < end) => iter.seek_for_prev(from),
        (_, Some(end)) => {
            iter.seek_for_prev(&end)?;
            // The end itself does not begin so.
            if iter.get().is_some_and(|(key, _)| key == end) { iter.retreat() } else { Ok(()) }
        }
        (_, None) => iter.seek_to_last(),
    }
}

fn scan(args: &Scan) -> Outcome {
    let store = args.store.look()?;
    let mut iter = store.iter()?;
    begin(&mut iter, args)?;
    let (mut left, mut out) = (args.limit.unwrap_or(u64::MAX), io::BufWriter::new(io::stdout().lock()));
    let mut all = Vec::new();
    while let Some((key, value)) = iter.get().filter(|(key, _)| left > 0 && key.starts_with(args.prefix.as_bytes())) {
        let line = match args.store.named.json {
            true => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                all.push(if args.keys { json!(text(key)) } else { json!({ "key": text(key), "value": text(value) }) });
                Ok(())
            }
            false if args.keys => out.write_all(key).and_then(|()| out.write_all(b"\n")),
            false => [key, b"\t", value, b"\n"].iter().try_for_each(|part| out.write_all(part)),
        };
        if line.is_err() {
            return written(line);
        }
        left -= 1;
        if args.reverse { iter.retreat()? } else { iter.advance()? }
    }
    written(out.flush())?;
    drop(out);
    if args.store.named.json { print_json(&all) } else { Ok(()) }
}

fn load(args: &Load) -> Outcome {
    let (input, len): (Box<dyn Read>, Option<u64>) = match args.file.as_str() {
        "-" => (Box::new(io::stdin().lock()), None),
        path => {
            let open = |path| File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
            let (len, file) = open(path).map_err(|error| Failure::failed(format_args!("{path}: {error}")))?;
            (Box::new(file), Some(len))
        }
    };
    let store = args.store.open()?;
    let bar = len.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    bar.set_style(bar_style("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}", "{bytes}/{total_bytes}"));
    let (mut input, mut batch, mut line, mut lines) = (BufReader::new(input), Batch::new(), Vec::new(), 0u64);
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        let n = read.map_err(|error| Failure::failed(format_args!("{}: {error}", args.file)))?;
        bar.inc(n as u64);
        if n == 0 || batch.bytes() > TOGETHER {
            store.write(&batch, false)?;
            batch.clear();
        }
        if n == 0 {
            break;
        }
        lines += 1;
        let pair = line.strip_suffix(b"\n").unwrap_or(&line);
        let Some(tab) = pair.iter().position(|byte| *byte == b'\t') else {
            // What was read before is kept.
            store.write(&batch, true)?;
            return Err(Failure::failed(format_args!(
                "line {lines} has no tab between a key and a value; the lines before it are stored"
            )));
        };
        batch.put(&pair[..tab], &pair[tab + 1..]);
    }
    store.sync()?;
    bar.finish_and_clear();
    match args.store.named.json {
        true => print_json(&json!({ "loaded": lines })),
        false => print(format_args!("{} stored", number_of(lines, "pair"))),
    }
}

fn stat(args: &Store) -> Outcome {
    let figures = args.look()?.figures();
    if args.named.json {
        let level = |(tables, bytes, entries): &(u64, u64, u64)| json!({ "tables": tables, "bytes": bytes, "entries": entries });
        let levels: Vec<_> = figures.levels.iter().map(level).collect();
        return print_json(&json!({ "levels": levels, "memory": figures.memory, "log": figures.log }));
    }
    let names: Vec<String> = (0..figures.levels.len()).map(|n| format!("level {n}")).collect();
    let level = |(tables, bytes, entries): &(u64, u64, u64)| {
        format!("{}, {}, {} changes", number_of(*tables, "table"), size(*bytes), count(*entries))
    };
    let mut rows: Vec<(&str, String)> =
        names.iter().map(String::as_str).zip(figures.levels.iter().map(level)).collect();
    rows.push(("in memory", size(figures.memory)));
    rows.push(("log", size(figures.log)));
    print(table(&rows))
}

fn check(args: &Store) -> Outcome {
    let store = args.look()?;
    let mut found = store.damage();
    found.extend(store.check()?);
    if args.named.json {
        print_json(&json!({ "problems": found }))?;
    } else {
        found.iter().try_for_each(print)?;
    }
    match found.len() as u64 {
        0 if args.named.json => Ok(()),
        0 => print("nothing is wrong"),
        n => Err(Failure::damage(format_args!("{} found", number_of(n, "problem")))),
    }
}
