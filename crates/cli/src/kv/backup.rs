//! Backups: all pairs of a store as they are at one moment, to a directory of the host or a tar stream, and back.
//!
//! A [backup](crate::backup) has a directory for each space, and in it *pieces*: files of some of its pairs, in the order of the space,
//! as `imbrex kv load --format binary` takes them. The name of a piece has its CRC-32C, so whoever restores a stream knows that a piece
//! is whole before a pair of it is stored. The list, which is written last, names all spaces, their orders and all pieces.

mod restore;

use super::form::{Form, write_pair};
use super::{MARK, Store, plain_name};
use crate::backup::{Item, Sink, of_the_drive, sink};
use crate::chunk::bar;
use crate::output::{Failure, Outcome, number_of, print, print_json, size};
use imbrex_device::{Class, Code, Error};
use imbrex_kv::{Bytewise, Kv, Make, Order, Snapshot};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

pub(super) use restore::restore;

/// Version of the form of a backup.
const VERSION: u32 = 1;
/// The field of lists that has it.
const FIELD: &str = "imbrex_kv_backup";
/// A piece ends behind the pair with which it has so many bytes: memory has one at a time.
const PIECE: usize = 32 << 20;

#[derive(clap::Args)]
pub(super) struct BackupArgs {
    #[command(flatten)]
    store: Store,
    /// A new directory of the host, a new file that ends in .tar, or - for a tar stream to stdout.
    to: String,
    /// The store as it was at this checkpoint.
    #[arg(long, value_name = "CHECKPOINT")]
    at: Option<String>,
}

#[derive(clap::Args)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    store: Store,
    /// The backup: a directory, a tar file, or - for a tar stream from stdin.
    from: String,
    /// Also onto a store that has keys: those of the backup get its values, and the others stay as they are.
    #[arg(long)]
    over: bool,
}

/// A file of pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    /// Below `files`.
    path: String,
    size: u64,
    pairs: u64,
    /// Bytes of their values, which no drive stores in less.
    values: u64,
    /// CRC-32C of the file.
    crc32c: u32,
}

/// A space, and what the backup has of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Space {
    name: String,
    /// The name of the order that its keys are in.
    order: String,
    /// In the order of their keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<Piece>,
}

/// The list.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    imbrex_kv_backup: u32,
    pairs: u64,
    /// Of all pieces: keys and values, and eight bytes for each pair.
    bytes: u64,
    values: u64,
    /// The first is the one without a name.
    spaces: Vec<Space>,
    /// CRC-32C of the spaces, as JSON without white space.
    crc32c: u32,
}

/// What a stream begins with is a list whose spaces have no pieces yet. `bytes` is then an estimate.
fn begin(spaces: &[Space], bytes: u64) -> List {
    List { bytes, ..List::new(spaces.to_vec()) }
}

fn sum_of(spaces: &[Space]) -> u32 {
    crc32c::crc32c(&serde_json::to_vec(spaces).unwrap_or_default())
}

impl List {
    fn new(spaces: Vec<Space>) -> List {
        let all = || spaces.iter().flat_map(|space| &space.pieces);
        // What was read may claim anything.
        let sum = |of: fn(&Piece) -> u64| all().map(of).fold(0, u64::saturating_add);
        let (pairs, bytes, values) = (sum(|piece| piece.pairs), sum(|piece| piece.size), sum(|piece| piece.values));
        List { imbrex_kv_backup: VERSION, pairs, bytes, values, crc32c: sum_of(&spaces), spaces }
    }

    /// Reads and checks one; the error is a phrase.
    fn parse(text: &[u8]) -> Result<List, String> {
        let list: List = serde_json::from_slice(text).map_err(|e| format!("its list cannot be read ({e})"))?;
        if list.imbrex_kv_backup > VERSION {
            return Err("a newer Imbrex made it".into());
        }
        if sum_of(&list.spaces) != list.crc32c {
            return Err("the checksum of its list is wrong".into());
        }
        match list.spaces.first() {
            Some(first) if first.name.is_empty() => Ok(list),
            _ => Err("its list lacks the space without a name".into()),
        }
    }
}

/// The name of a piece: the space's directory, the number of the piece there, and its checksum.
fn path_of(space: usize, name: &str, piece: usize, crc: u32) -> String {
    format!("{}/{piece:08}-{crc:08x}.pairs", plain_name(space, Some(name)))
}

/// How a sentence calls a space.
fn called(name: &str) -> String {
    if name.is_empty() { "the space without a name".into() } else { format!("the space {name:?}") }
}

/// Raised by Ctrl-C and SIGTERM from now on.
fn interruption() -> Arc<AtomicBool> {
    let interrupted: Arc<AtomicBool> = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, interrupted.clone()) {
            tracing::warn!(%error, "an interruption leaves what is not complete");
        }
    }
    interrupted
}

/// All spaces, the one without a name first, and a handle of each.
fn spaces_of(store: &Kv) -> Result<Vec<(Space, Kv)>, Failure> {
    let mut all =
        vec![(Space { name: String::new(), order: Bytewise.name().into(), pieces: Vec::new() }, store.clone())];
    for (name, order) in store.spaces() {
        let handle = store.space(&name, &order, Make::Never)?;
        all.push((Space { name, order, pieces: Vec::new() }, handle));
    }
    Ok(all)
}

/// Why a space cannot be read to its end.
fn unreadable(name: &str, error: Error) -> Failure {
    let space = called(name);
    match error.class() {
        // Of nothing else that this reads.
        _ if error.code() == Code::InvalidArgument => Failure::failed(format!(
            "values of {space} come of merge operands, which only a program with the operator can read, so there is no backup; have that \
             program compact the store first"
        )),
        Class::Damage => Failure::damage(format!(
            "{space} cannot be read, so there is no backup ({error}); `imbrex kv check` says what is damaged, `imbrex kv salvage` copies \
             out what is left"
        )),
        _ => error.into(),
    }
}

pub(super) fn backup(args: &BackupArgs) -> Outcome {
    let drive = &args.store.named.drive;
    let store = args.store.look().map_err(of_the_drive("backup")).map_err(|failure| {
        failure.reword(|sentence| match sentence.contains("which this program does not know") {
            true => format!("{sentence}, or copy the pairs with `imbrex kv salvage`"),
            false => sentence,
        })
    })?;
    if store.spaces().iter().any(|(name, _)| name == MARK) {
        return Err(Failure::failed(format!(
            "{drive} has only a part of a backup, because a restore ended early; restore it again with --over, or `imbrex kv drop` the \
             space {MARK} if the part is what you want"
        )));
    }
    let at = match &args.at {
        Some(name) => store.at_checkpoint(name)?,
        None => store.snapshot(),
    };
    let spaces = spaces_of(&store)?;
    let figures = store.figures();
    let estimate = figures.memory + figures.levels.iter().map(|level| level.1).sum::<u64>();
    let mut sink = sink(&args.to)?;
    // Of a stream to somebody else nothing can be taken back, so there the signal ends the command.
    let interrupted = if sink.can_be_discarded() { interruption() } else { Arc::default() };
    let bar = bar(Some(estimate));
    let done = Filling { sink: sink.as_mut(), bar: &bar, interrupted }.fill(spaces, &at, estimate);
    bar.finish_and_clear();
    let list = match done {
        Ok(list) => list,
        Err(failure) => {
            sink.discard();
            return Err(failure);
        }
    };
    sink.complete()?;
    let (spaces, pairs, bytes) = (list.spaces.len() as u64, list.pairs, list.bytes);
    if args.to == "-" {
        return Ok(());
    }
    if args.store.named.json {
        return print_json(
            &json!({ "drive": drive, "backup": args.to, "spaces": spaces, "pairs": pairs, "bytes": bytes }),
        );
    }
    let (pairs, spaces) = (number_of(pairs, "pair"), number_of(spaces, "space"));
    print(format_args!("{drive}: {pairs} of {spaces}, {}, backed up to {}", size(bytes), args.to))
}

/// A backup that is being written.
struct Filling<'a> {
    sink: &'a mut dyn Sink,
    bar: &'a ProgressBar,
    interrupted: Arc<AtomicBool>,
}

impl Filling<'_> {
    fn fill(&mut self, spaces: Vec<(Space, Kv)>, at: &Snapshot, estimate: u64) -> Result<List, Failure> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let modified_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let (mut spaces, handles): (Vec<Space>, Vec<Kv>) = spaces.into_iter().unzip();
        self.sink.begin(&serde_json::to_vec(&begin(&spaces, estimate)).map_err(Failure::failed)?)?;
        for (number, (space, kv)) in spaces.iter_mut().zip(&handles).enumerate() {
            let path = plain_name(number, Some(&space.name));
            self.sink.directory(Item { path: &path, size: 0, modified_ns })?;
            self.space(number, space, (kv, at), modified_ns)?;
        }
        let list = List::new(spaces);
        self.sink.list(&serde_json::to_vec_pretty(&list).map_err(Failure::failed)?)?;
        Ok(list)
    }

    /// Writes all pieces of a space.
    fn space(&mut self, number: usize, space: &mut Space, (kv, at): (&Kv, &Snapshot), modified_ns: u64) -> Outcome {
        let mut iter = kv.iter_at(at)?;
        let (mut buf, mut pairs, mut values) = (Vec::new(), 0, 0);
        iter.seek_to_first().map_err(|error| unreadable(&space.name, error))?;
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Failure::failed(
                    "interrupted, and what was there of the backup is not kept; make it again",
                ));
            }
            let pair = iter.get();
            if let Some((key, value)) = pair {
                // Of memory, which has room for what a store takes.
                write_pair(&mut buf, Form::Binary, key, value).map_err(Failure::failed)?;
                (pairs, values) = (pairs + 1, values + value.len() as u64);
            }
            let is_last = pair.is_none();
            if !buf.is_empty() && (is_last || buf.len() >= PIECE) {
                let crc = crc32c::crc32c(&buf);
                let path = path_of(number, &space.name, space.pieces.len(), crc);
                let piece = Piece { path, size: buf.len() as u64, pairs, values, crc32c: crc };
                self.sink.file(Item { path: &piece.path, size: piece.size, modified_ns }, &mut &buf[..])?;
                self.bar.inc(piece.size);
                space.pieces.push(piece);
                buf.clear();
                (pairs, values) = (0, 0);
            }
            if is_last {
                return Ok(());
            }
            iter.advance().map_err(|error| unreadable(&space.name, error))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Named;
    use imbrex_emulator::{Config, Emulator};
    use imbrex_kv::{forget_order, register_order};
    use std::path::Path;

    /// Shorter keys first.
    struct Short;

    impl Order for Short {
        fn name(&self) -> &str {
            "short-first"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            a.len().cmp(&b.len()).then(a.cmp(b))
        }
    }

    fn store(drive: &str) -> Store {
        Store { named: Named::of(drive) }
    }

    /// A new store, and what names it.
    fn new(dir: &Path, name: &str) -> String {
        let path = dir.join(name);
        drop(Emulator::create(&path, &Config::tiny(), false).unwrap());
        let drive = format!("imbrex://{}?survivor=off", path.display());
        crate::kv::format(&crate::engine::Format::of(&drive)).unwrap();
        drive
    }

    #[test]
    fn a_space_in_an_order_of_a_program_s_own_comes_back_in_it_where_the_order_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let (old, other) = (new(dir.path(), "old.img"), new(dir.path(), "new.img"));
        let keys = [&b"9"[..], b"10", b"100"];
        let open = |drive: &str, make| store(drive).open().unwrap().space("short", "short-first", make).unwrap();
        let to = dir.path().join("backup").display().to_string();
        let restored = || {
            restore(&RestoreArgs { store: store(&other), from: to.clone(), over: false }).map_err(|failure| {
                match failure {
                    Failure::Told(_, sentence) => sentence,
                    Failure::Unread => String::new(),
                }
            })
        };
        register_order(Arc::new(Short));
        let space = open(&old, Make::New);
        keys.iter().for_each(|key| space.put(key, b"value", true).unwrap());
        drop(space);
        backup(&BackupArgs { store: store(&old), to: to.clone(), at: None }).unwrap();
        forget_order("short-first");
        let sentence = restored().unwrap_err();
        assert!(sentence.contains("knows no order \"short-first\"") && sentence.contains("; nothing"), "{sentence}");
        assert!(store(&other).look().unwrap().spaces().is_empty());
        register_order(Arc::new(Short));
        restored().unwrap();
        let mut iter = open(&other, Make::Never).iter().unwrap();
        iter.seek_to_first().unwrap();
        for key in keys {
            assert_eq!(iter.get(), Some((key, &b"value"[..])));
            iter.advance().unwrap();
        }
        assert_eq!(iter.get(), None);
    }

    #[test]
    fn a_list_that_was_changed_is_no_list() {
        let piece = Piece { path: path_of(0, "", 0, 7), size: 30, pairs: 2, values: 9, crc32c: 7 };
        assert_eq!(piece.path, "unnamed/00000000-00000007.pairs");
        let space = Space { name: String::new(), order: Bytewise.name().into(), pieces: vec![piece] };
        let list = List::new(vec![space.clone()]);
        assert_eq!((list.pairs, list.bytes, list.values), (2, 30, 9));
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(List::parse(text.as_bytes()).unwrap().spaces, std::slice::from_ref(&space));
        for (from, to) in [("\"size\":30", "\"size\":31"), ("_backup\":1", "_backup\":2"), ("}", "")] {
            List::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err();
        }
        let other = List::new(vec![Space { name: "other".into(), ..space }]);
        List::parse(&serde_json::to_vec(&other).unwrap()).unwrap_err();
    }
}
