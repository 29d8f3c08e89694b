//! `imbrex kv …`: the key-value store on a drive.

mod backup;
mod form;
mod load;
mod salvage;
mod scan;
mod stat;
pub mod zones;

use crate::engine::{Format, Named};
use crate::output::{Failure, Outcome, count, number_of, print, print_json, written};
use clap::Subcommand;
use form::Form;
#[doc(hidden)]
pub use form::fuzz_pairs;
use imbrex_kv::{Batch, Bytewise, Expiry, Kv, MAX_VALUE, Make, Order, Snapshot, TimeInValue};
use serde_json::json;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

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
        after_help = "Examples:\n  imbrex kv put drive.img user:1 Ada\n  imbrex kv put drive.img photo - < photo.jpg\n  \
                            imbrex kv put drive.img --space logins ada yes --ttl 3600 && imbrex kv get drive.img --space logins ada --timed"
    )]
    Put(Put),
    /// Print the value of a key, as it is; with --json an object. Exit code 1 where there is no such key.
    #[command(after_help = "Example:\n  imbrex kv get drive.img photo > copy.jpg")]
    Get(Key),
    /// Delete keys.
    #[command(
        after_help = "Examples:\n  imbrex kv rm drive.img user:1 user:2\n  imbrex kv rm drive.img --from user: --to user;"
    )]
    Rm(Rm),
    /// Print keys and values in order, as load takes them. With --json each pair is an object in a line of its own.
    #[command(
        after_help = "Examples:\n  imbrex kv scan drive.img\n  imbrex kv scan drive.img user: --keys --limit 10\n  \
                            imbrex kv scan drive.img --from m --reverse\n  \
                            imbrex kv scan drive.img --format binary > pairs"
    )]
    Scan(Scan),
    /// Store pairs of a key and a value, as scan prints them. What comes before a bad line is stored.
    #[command(
        after_help = "Examples:\n  imbrex kv load drive.img pairs.tsv\n  imbrex kv scan old.img | imbrex kv load new.img --sorted\n  \
                            imbrex kv load drive.img pairs --format binary"
    )]
    Load(Load),
    /// List the spaces of a store by their names. Keys that are in none are in the space without a name, which is always there.
    #[command(after_help = "Example:\n  imbrex kv put drive.img --space users 1 Ada && imbrex kv ls drive.img")]
    Ls(Store),
    /// Delete a space with all its keys.
    #[command(after_help = "Example:\n  imbrex kv drop drive.img users")]
    Drop(DropSpace),
    /// Keep what the store has now, under a name, or list such checkpoints. get and scan read them with --at.
    #[command(
        after_help = "Examples:\n  imbrex kv checkpoint drive.img monday\n  imbrex kv scan drive.img --at monday > pairs\n  \
                            imbrex kv checkpoint drive.img monday --drop\n  imbrex kv checkpoint drive.img"
    )]
    Checkpoint(Checkpoint),
    /// Show how many tables there are in each level, what is in memory, and how full the zones in use are. What a program writes and how long its puts wait is in
    /// its metrics.
    #[command(after_help = "Examples:\n  imbrex kv stat drive.img --json\n  imbrex kv stat drive.img --count")]
    Stat(Stat),
    /// Merge all tables, so that each key is in one. With --timed pairs of the space that are over are deleted.
    #[command(
        after_help = "Examples:\n  imbrex kv compact drive.img\n  imbrex kv compact drive.img --space logins --timed"
    )]
    Compact(Compact),
    /// Read every block of every table. Exit code 3 where something is wrong.
    #[command(after_help = "Example:\n  imbrex kv check drive.img   # changes nothing")]
    Check(Store),
    /// Copy all spaces, as they are at one moment, to the host: into a new directory, or a tar stream.
    #[command(after_help = "Examples:\n  imbrex kv backup drive.img /backups/monday          # a directory\n  \
                            imbrex kv backup drive.img /backups/monday.tar --at monday\n  \
                            imbrex kv backup drive.img - | zstd | ssh host 'cat > monday.tar.zst'")]
    Backup(backup::BackupArgs),
    /// Copy a backup to a store that has no keys, and compare it with its checksums. What ends early leaves nothing.
    #[command(after_help = "Examples:\n  imbrex kv format new.img && imbrex kv restore new.img /backups/monday\n  \
                            zstd -dc monday.tar.zst | imbrex kv restore new.img -")]
    Restore(backup::RestoreArgs),
    /// Copy the pairs that can still be read from a drive whose store does not open, or not whole, into a directory of the host: a file for each space, as load
    /// --format binary takes it. Nothing on the drive changes.
    #[command(after_help = "Example:\n  imbrex kv salvage /dev/sdb ./salvaged\n  \
                            imbrex kv load new.img --format binary ./salvaged/unnamed.pairs\n  \
                            imbrex kv load new.img --format binary --space users ./salvaged/1-users.pairs")]
    Salvage(salvage::Args),
}

/// Characters of a space's name that the name of its file or directory has at most.
const NAME: usize = 60;
/// A store with a space of this name has only a part of a backup: a restore is under way, or ended early.
const MARK: &str = ".imbrex-restore";

/// What the host calls a space with this number, whose name may be any, or lost.
fn plain_name(number: usize, name: Option<&str>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    match name {
        Some("") => "unnamed".into(),
        Some(name) => format!("{number}-{}", name.chars().take(NAME).map(plain).collect::<String>()),
        None => number.to_string(),
    }
}

/// Changes of one batch, in bytes.
const TOGETHER: usize = 256 << 10;

#[derive(clap::Args)]
struct Store {
    #[command(flatten)]
    named: Named,
}

/// A space of the store.
#[derive(clap::Args)]
struct InSpace {
    #[command(flatten)]
    store: Store,
    /// The space whose keys are meant; without it those that are in none. `put` and `load` make it where it is missing.
    #[arg(long, value_name = "NAME")]
    space: Option<String>,
}

/// A time to live of what is stored.
#[derive(clap::Args)]
struct Ttl {
    /// The value is over after so many seconds, 0 is never. The time stands before it, in eight bytes: read it with --timed.
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u64>,
}

impl Ttl {
    /// What is stored of a value: itself, or with its time before it.
    fn value<'a>(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        match self.ttl {
            None => value.into(),
            Some(0) => TimeInValue::value(0, value).into(),
            Some(seconds) => TimeInValue::value(TimeInValue::now().saturating_add(seconds), value).into(),
        }
    }
}

#[derive(clap::Args)]
struct Compact {
    #[command(flatten)]
    space: InSpace,
    /// Values of the space begin with the time from which on they are over, as --ttl of put and load writes them. Delete those that are.
    #[arg(long)]
    timed: bool,
    /// Only until each key from this one on is in one table; without --to up to the last.
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Only until each key before this one is in one table; without --from from the first.
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
}

/// Whether values begin with a time.
#[derive(clap::Args)]
struct Timed {
    /// Values begin with the time from which on they are over, as --ttl of put and load writes them. It is not printed, and pairs that are over are left out.
    #[arg(long)]
    timed: bool,
}

impl Timed {
    /// The store leaves out what is over.
    fn expire(&self, kv: &Kv) {
        if self.timed {
            kv.expire(Arc::new(TimeInValue));
        }
    }

    /// What is printed of a value.
    fn value<'a>(&self, key: &[u8], value: &'a [u8]) -> Result<&'a [u8], Failure> {
        if !self.timed {
            return Ok(value);
        }
        let rest = TimeInValue::split(value).map(|(_, rest)| rest);
        rest.ok_or_else(|| {
            Failure::failed(format!(
                "the value of the key {:?} does not begin with a time; read it without --timed",
                OsStr::from_bytes(key)
            ))
        })
    }
}

/// A space, or what it had when a checkpoint was made.
#[derive(clap::Args)]
struct Moment {
    #[command(flatten)]
    space: InSpace,
    #[command(flatten)]
    timed: Timed,
    /// As it was at this checkpoint.
    #[arg(long, value_name = "CHECKPOINT")]
    at: Option<String>,
}

#[derive(clap::Args)]
struct Checkpoint {
    #[command(flatten)]
    store: Store,
    /// The checkpoint; without it all are listed.
    name: Option<String>,
    /// Let go of it: what only it has is free as tables are merged.
    #[arg(long, requires = "name")]
    drop: bool,
}

#[derive(clap::Args)]
struct Stat {
    #[command(flatten)]
    store: Store,
    /// Also read all pairs, and say how many there are and how full of them the zones are.
    #[arg(long)]
    count: bool,
}

#[derive(clap::Args)]
struct DropSpace {
    #[command(flatten)]
    store: Store,
    /// The space.
    name: String,
}

#[derive(clap::Args)]
struct Put {
    #[command(flatten)]
    store: InSpace,
    /// The key.
    key: OsString,
    /// The value; - is stdin.
    value: OsString,
    #[command(flatten)]
    ttl: Ttl,
}

#[derive(clap::Args)]
struct Key {
    #[command(flatten)]
    store: Moment,
    /// The key.
    key: OsString,
}

#[derive(clap::Args)]
struct Rm {
    #[command(flatten)]
    store: InSpace,
    /// The keys.
    #[arg(required_unless_present_any = ["from", "to"])]
    keys: Vec<OsString>,
    /// Also all keys from this one on; without --to up to the last.
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Also all keys before this one; without --from from the first.
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
}

#[derive(clap::Args)]
struct Scan {
    #[command(flatten)]
    store: Moment,
    /// Only keys that begin so.
    #[arg(default_value = "", hide_default_value = true)]
    prefix: OsString,
    /// Only keys at or behind this one; with --reverse at or before it.
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Only keys before this one; with --reverse behind it.
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// At most so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Nothing but keys, a line each.
    #[arg(long)]
    keys: bool,
    /// How pairs stand in the output.
    #[arg(long, value_enum, default_value_t, conflicts_with = "json")]
    format: Form,
    /// From the last to the first.
    #[arg(long)]
    reverse: bool,
}

#[derive(clap::Args)]
struct Load {
    #[command(flatten)]
    store: InSpace,
    /// The file; - is stdin.
    #[arg(default_value = "-")]
    file: String,
    /// How pairs stand in it.
    #[arg(long, value_enum, default_value_t)]
    format: Form,
    /// The pairs come in the order of their keys, and each key once: they are written once, at the drive's rate, past the write-ahead log.
    #[arg(long)]
    sorted: bool,
    #[command(flatten)]
    ttl: Ttl,
}

impl InSpace {
    /// Opens the space, and makes it where it is missing.
    fn make(&self) -> Result<Kv, Failure> {
        self.of(self.store.open()?, Make::IfMissing)
    }

    fn open(&self) -> Result<Kv, Failure> {
        self.of(self.store.open()?, Make::Never)
    }

    fn look(&self) -> Result<Kv, Failure> {
        self.of(self.store.look()?, Make::Never)
    }

    fn of(&self, store: Kv, make: Make) -> Result<Kv, Failure> {
        match &self.space {
            Some(name) => Ok(store.space(name, Bytewise.name(), make)?),
            None => Ok(store),
        }
    }

    fn json(&self) -> bool {
        self.store.named.json
    }
}

impl Moment {
    fn look(&self) -> Result<(Kv, Snapshot), Failure> {
        let kv = self.space.look()?;
        self.timed.expire(&kv);
        let at = match &self.at {
            Some(name) => kv.at_checkpoint(name)?,
            None => kv.snapshot(),
        };
        Ok((kv, at))
    }

    fn json(&self) -> bool {
        self.space.json()
    }
}

impl Store {
    fn open(&self) -> Result<Kv, Failure> {
        self.open_as(Vec::new())
    }

    /// Opens it so that nothing on the drive changes.
    fn look(&self) -> Result<Kv, Failure> {
        self.open_as(self.named.as_a_look())
    }

    /// Opens it, and says what the opening found damaged.
    fn open_as(&self, options: Vec<(&str, &str)>) -> Result<Kv, Failure> {
        let store = self.named.open_with(options, Kv::open_uri)?;
        store.damage().into_iter().for_each(|sentence| crate::output::warn(&ours(sentence), self.named.json));
        Ok(store)
    }
}

pub fn run(args: Args) -> Outcome {
    let done = match args.verb {
        Verb::Format(args) => format(&args),
        Verb::Put(args) => put(&args),
        Verb::Get(args) => get(&args),
        Verb::Rm(args) => rm(&args),
        Verb::Scan(args) => scan::scan(&args),
        Verb::Load(args) => load::load(&args),
        Verb::Ls(args) => ls(&args),
        Verb::Drop(args) => drop_space(&args),
        Verb::Checkpoint(args) => checkpoint(&args),
        Verb::Stat(args) => stat::stat(&args),
        Verb::Compact(args) => compact(&args),
        Verb::Check(args) => check(&args),
        Verb::Backup(args) => backup::backup(&args),
        Verb::Restore(args) => backup::restore(&args),
        Verb::Salvage(args) => salvage::salvage(&args),
    };
    done.map_err(|failure| failure.reword(ours))
}

/// Drives and volumes serve several engines, and their sentences name the commands of the first, `imbrex fs`; here this store's are
/// meant.
fn ours(sentence: String) -> String {
    let all = [
        ("`imbrex fs format", "`imbrex kv format"),
        ("`imbrex fs check", "`imbrex kv check"),
        ("`imbrex fs cp", "`imbrex kv scan"),
    ];
    all.iter().fold(sentence, |sentence, (theirs, ours)| sentence.replace(theirs, ours))
}

fn format(args: &Format) -> Outcome {
    args.run("an empty key-value store", Kv::open_uri, |drive, force| Kv::format(drive, None, force))
}

fn put(args: &Put) -> Outcome {
    if args.key.is_empty() {
        return Err(Failure::failed("an empty key; a key needs at least one byte here"));
    }
    let mut value = args.value.clone().into_vec();
    if value == b"-" {
        value.clear();
        let read = io::stdin().lock().take(MAX_VALUE as u64 + 1).read_to_end(&mut value);
        read.map_err(|error| Failure::failed(format!("reading stdin failed ({error}); put it again")))?;
        if value.len() > MAX_VALUE {
            let most = count(MAX_VALUE as u64);
            return Err(Failure::failed(format!(
                "stdin has more than {most} bytes, which is more than a value takes; store it as several values"
            )));
        }
    }
    Ok(args.store.make()?.put(args.key.as_bytes(), &args.ttl.value(&value), true)?)
}

fn get(args: &Key) -> Outcome {
    let (kv, at) = args.store.look()?;
    let Some(value) = kv.get_at(&at, args.key.as_bytes())? else {
        return Err(Failure::failed(format!("there is no key {:?}; imbrex kv scan lists keys", args.key)));
    };
    let value = args.store.timed.value(args.key.as_bytes(), &value)?;
    if args.store.json() {
        return print(scan::object(args.key.as_bytes(), Some(value)));
    }
    let mut out = io::stdout().lock();
    written(out.write_all(value).and_then(|()| out.flush()))
}

fn rm(args: &Rm) -> Outcome {
    let mut batch = Batch::new();
    args.keys.iter().for_each(|key| batch.delete(key.as_bytes()));
    if args.from.is_some() || args.to.is_some() {
        let (from, to) = (args.from.as_ref().map(|key| key.as_bytes()), args.to.as_ref().map(|key| key.as_bytes()));
        batch.delete_range(from, to);
    }
    Ok(args.store.open()?.write(&batch, true)?)
}

fn ls(args: &Store) -> Outcome {
    let spaces = args.look()?.spaces();
    if args.named.json {
        let space = |(name, order): &(String, String)| json!({ "name": name, "order": order });
        return print_json(&json!({ "spaces": spaces.iter().map(space).collect::<Vec<_>>() }));
    }
    spaces.iter().try_for_each(|(name, _)| print(name))
}

fn checkpoint(args: &Checkpoint) -> Outcome {
    let Some(name) = &args.name else {
        let names = args.store.look()?.checkpoints();
        return match args.store.named.json {
            true => print_json(&json!({ "checkpoints": names })),
            false => names.iter().try_for_each(print),
        };
    };
    let store = args.store.open()?;
    let done = if args.drop { store.drop_checkpoint(name) } else { store.checkpoint(name) };
    done.map_err(Failure::from)
}

fn drop_space(args: &DropSpace) -> Outcome {
    let store = args.store.open()?;
    store.drop_space(&args.name)?;
    // What is of no other space is free when the command ends.
    store.step()?;
    Ok(())
}

fn compact(args: &Compact) -> Outcome {
    let store = args.space.open()?;
    if args.timed {
        delete_over(&store)?;
    }
    let (from, to) = (args.from.as_ref().map(|key| key.as_bytes()), args.to.as_ref().map(|key| key.as_bytes()));
    if from.is_some() || to.is_some() {
        store.compact_range(from, to)?
    } else {
        store.compact()?
    }
    Ok(())
}

/// Deletes all pairs of a space whose time is over. Merges alone would not do: they leave tables alone that nothing overlaps.
fn delete_over(store: &Kv) -> Outcome {
    let (mut iter, mut batch) = (store.iter()?, Batch::new());
    iter.seek_to_first()?;
    while let Some((key, value)) = iter.get() {
        if TimeInValue.is_over(key, value) {
            batch.delete(key);
        }
        if batch.bytes() > TOGETHER {
            store.write(&batch, false)?;
            batch.clear();
        }
        iter.advance()?;
    }
    Ok(store.write(&batch, true)?)
}

fn check(args: &Store) -> Outcome {
    let store = args.look()?;
    let found: Vec<String> = store.damage().into_iter().chain(store.check()?).map(ours).collect();
    if args.named.json {
        print_json(&json!({ "problems": found }))?;
    } else {
        found.iter().try_for_each(print)?;
    }
    match found.len() as u64 {
        0 if args.named.json => Ok(()),
        0 => print("nothing is wrong"),
        n => Err(Failure::damage(format_args!(
            "{} found; where another copy is used, the next program that writes to the store mends it; else copy what can be read with \
             `imbrex kv salvage`, and format the drive again",
            number_of(n, "problem")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_of_drives_and_volumes_name_this_engine_s_commands() {
        let said = |sentence: &str| ours(sentence.to_owned());
        assert_eq!(said("use `imbrex fs format --force`"), "use `imbrex kv format --force`");
        assert_eq!(
            said("block 3 is damaged; run `imbrex fs check` on the drive"),
            "block 3 is damaged; run `imbrex kv check` on the drive"
        );
        assert_eq!(said("`imbrex fs cp` still reads it"), "`imbrex kv scan` still reads it");
        assert_eq!(said("use `imbrex fs …`"), "use `imbrex fs …`");
    }
}
