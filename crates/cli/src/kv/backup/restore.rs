//! From a backup back to a store. A pair is stored only when the checksum of its piece is right. Where that comes to no end, a store
//! that had no keys has none again. Until the end the store has a space whose name says that only a part is there.

use super::{FIELD, List, Piece, RestoreArgs, Space, called, interruption, path_of};
use crate::backup::{FILES, Take, list_of, of_another, of_the_drive, read_stream, stream_of};
use crate::chunk::bar;
use crate::kv::form::{Bad, Form, Pairs};
use crate::kv::load::Input;
use crate::kv::{MARK, plain_name};
use crate::output::{Failure, Outcome, number_of, print, print_json, size};
use imbrex_device::{Code, Error};
use imbrex_kv::{Bytewise, Ingest, Kv, MAX_KEY, MAX_VALUE, Make, Order};
use indicatif::ProgressBar;
use serde_json::json;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A space that pairs go to.
struct Target {
    /// With the pieces that were restored.
    space: Space,
    kv: Kv,
    /// This restore has made it.
    made: bool,
}

struct Restorer<'a> {
    store: &'a Kv,
    from: &'a str,
    over: bool,
    bar: &'a ProgressBar,
    interrupted: Arc<AtomicBool>,
    /// Those of the backup, in its order.
    targets: Vec<Target>,
    /// The mark is there, so spaces and pairs may be.
    marked: bool,
    /// Where pairs go now: the number of the space, and its ingest.
    ingest: Option<(usize, Ingest)>,
    /// Pairs that the store has, without those of the ingest.
    stored: u64,
    /// The list of a stream that has come to its end.
    list: Option<List>,
}

impl Restorer<'_> {
    fn no_backup(&self, why: impl std::fmt::Display) -> Failure {
        Failure::damage(format!("{} is not a whole backup ({why}); restore another one", self.from))
    }

    fn interrupted(&self) -> Outcome {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(Failure::failed("interrupted")),
            false => Ok(()),
        }
    }

    /// Why the store takes nothing more.
    fn full(&self, error: Error) -> Failure {
        match error.code() {
            Code::NoSpace => Failure::failed(format!(
                "the drive is full before all of {} is restored; use a larger drive",
                self.from
            )),
            _ => error.into(),
        }
    }

    fn parse(&self, text: &[u8]) -> Result<List, Failure> {
        List::parse(text).map_err(|why| of_another(self.from, text, FIELD).unwrap_or_else(|| self.no_backup(why)))
    }

    /// Reads the list at the end, whose totals are those of its spaces.
    fn parse_list(&self, text: &[u8]) -> Result<List, Failure> {
        let list = self.parse(text)?;
        let right = List::new(list.spaces);
        match (list.pairs, list.bytes, list.values) == (right.pairs, right.bytes, right.values) {
            true => Ok(right),
            false => Err(self.no_backup("the totals of its list are wrong")),
        }
    }

    /// Makes the spaces that are missing.
    fn make(&mut self, spaces: &[Space]) -> Outcome {
        let there = self.store.spaces();
        if let Some(twice) =
            spaces.iter().enumerate().find(|(n, space)| spaces[..*n].iter().any(|other| other.name == space.name))
        {
            return Err(self.no_backup(format_args!("{} stands in its list twice", called(&twice.1.name))));
        }
        self.store.space(MARK, Bytewise.name(), Make::IfMissing).map_err(|error| self.full(error))?;
        self.marked = true;
        for Space { name, order, .. } in spaces {
            let made = !name.is_empty() && there.iter().all(|(there, _)| there != name);
            let make = if made { Make::New } else { Make::Never };
            let kv = self.store.space(name, order, make).map_err(|error| match error.code() {
                Code::InvalidArgument => {
                    let why = error.to_string();
                    Failure::failed(format!("{} of {} cannot be restored here ({why})", called(name), self.from))
                }
                _ => self.full(error),
            })?;
            let space = Space { name: name.clone(), order: order.clone(), pieces: Vec::new() };
            self.targets.push(Target { space, kv, made });
        }
        Ok(())
    }

    /// The space that a piece of this name belongs to, if it is the next piece of it.
    fn space_of(&self, path: &str) -> Option<usize> {
        let directory = path.split('/').next()?;
        self.targets.iter().enumerate().position(|(n, target)| plain_name(n, Some(&target.space.name)) == directory)
    }

    /// Stores the pairs of a piece, if its bytes are those that its name promises.
    fn piece(&mut self, path: &str, bytes: &[u8]) -> Outcome {
        self.interrupted()?;
        let Some(number) = self.space_of(path) else {
            return Err(self.no_backup(format_args!("{path} in it is of no space")));
        };
        let crc = crc32c::crc32c(bytes);
        let Space { name, pieces, .. } = &self.targets[number].space;
        if path != path_of(number, name, pieces.len(), crc) {
            return Err(self.no_backup(format_args!("{path} in it is damaged, or what comes before it is missing")));
        }
        if self.ingest.as_ref().is_none_or(|(of, _)| *of != number) {
            self.finish()?;
            let ingest = self.targets[number].kv.ingest().map_err(|error| self.full(error))?;
            self.ingest = Some((number, ingest));
        }
        let (pairs, values) = self.pairs(path, bytes)?;
        let piece = Piece { path: path.to_owned(), size: bytes.len() as u64, pairs, values, crc32c: crc };
        self.bar.inc(piece.size);
        self.targets[number].space.pieces.push(piece);
        Ok(())
    }

    /// Stores them, and says how many there are, and how many bytes their values have.
    fn pairs(&mut self, path: &str, bytes: &[u8]) -> Result<(u64, u64), Failure> {
        let mut pairs = Pairs::new(bytes, Form::Binary, MAX_VALUE as u64);
        let (mut number, mut values) = (0, 0);
        loop {
            self.interrupted()?;
            let (key, value) = match pairs.next() {
                Ok(Some(pair)) => pair,
                Ok(None) => return Ok((number, values)),
                Err(Bad::Input(why)) => return Err(self.no_backup(format_args!("{path}: {why}"))),
                Err(Bad::Pair(why)) => return Err(self.no_backup(format_args!("{path}: {why}"))),
            };
            let Some((_, ingest)) = &mut self.ingest else { return Ok((number, values)) };
            if let Err(error) = ingest.put(key, value) {
                return Err(match ingest.may_follow(key) {
                    true => self.full(error),
                    false => self.no_backup(format_args!("a key in {path} is not behind the one before it")),
                });
            }
            (number, values) = (number + 1, values + value.len() as u64);
        }
    }

    /// All pairs so far are there, and durable.
    fn finish(&mut self) -> Outcome {
        let Some((_, mut ingest)) = self.ingest.take() else { return Ok(()) };
        let done = ingest.finish();
        self.stored += ingest.stored();
        done.map_err(|error| self.full(error))
    }

    /// Compares what was restored with the list.
    fn verify(&self, list: &List) -> Outcome {
        for (target, space) in self.targets.iter().zip(&list.spaces) {
            if target.space != *space {
                return Err(self.no_backup(format_args!("{} in it is not what its list says", called(&space.name))));
            }
        }
        match self.targets.len() == list.spaces.len() {
            true => Ok(()),
            false => Err(self.no_backup("its list has other spaces")),
        }
    }

    /// Refuses values of so many bytes where they cannot fit.
    fn room(&self, bytes: u64) -> Outcome {
        let free = u64::from(self.store.figures().zones.1) * self.store.volume().geometry().zone_size;
        if self.over || bytes <= free {
            return Ok(());
        }
        let sentence = "and the drive has room for";
        Err(Failure::failed(format!(
            "{} holds {} of values {sentence} {}; use a larger drive",
            self.from,
            size(bytes),
            size(free)
        )))
    }

    fn take_directory(&mut self) -> Result<List, Failure> {
        let from = Path::new(self.from);
        let text = list_of(from).map_err(|why| self.no_backup(why))?;
        let list = self.parse_list(&text)?;
        self.room(list.values)?;
        self.bar.set_length(list.bytes);
        let files = from.join(FILES);
        for (number, space) in list.spaces.iter().enumerate() {
            for (n, piece) in space.pieces.iter().enumerate() {
                // Only such names lead to nothing else on the host.
                if piece.path != path_of(number, &space.name, n, piece.crc32c) {
                    return Err(self.no_backup(format_args!("{} in its list is the name of no piece", piece.path)));
                }
                // What is missing or too short is told before anything is restored.
                match std::fs::metadata(files.join(&piece.path)) {
                    Ok(meta) if meta.len() == piece.size => {}
                    Ok(meta) => {
                        let (has, should) = (meta.len(), piece.size);
                        let why = format_args!("{} in it has {has} bytes and should have {should}", piece.path);
                        return Err(self.no_backup(why));
                    }
                    Err(error) => return Err(self.no_backup(format_args!("{}: {error}", piece.path))),
                }
            }
        }
        self.make(&list.spaces)?;
        for piece in list.spaces.iter().flat_map(|space| &space.pieces) {
            let mut bytes = Vec::new();
            let read =
                File::open(files.join(&piece.path)).and_then(|file| file.take(piece.size).read_to_end(&mut bytes));
            read.map_err(|error| self.no_backup(format_args!("{}: {error}", piece.path)))?;
            self.piece(&piece.path, &bytes)?;
        }
        Ok(list)
    }

    fn take_stream(&mut self, stream: Box<dyn Read + Send>) -> Result<List, Failure> {
        let input = Input::new(stream, self.interrupted.clone())
            .map_err(|error| Failure::failed(format!("reading {} failed ({error}); try it again", self.from)))?;
        read_stream(input, self)?;
        self.list.take().ok_or_else(|| self.no_backup("it has no list"))
    }

    fn take(&mut self, stream: Option<Box<dyn Read + Send>>) -> Result<List, Failure> {
        let list = match stream {
            Some(stream) => self.take_stream(stream),
            None => self.take_directory(),
        };
        // A read that fails because of it does not say so.
        self.interrupted()?;
        let list = list?;
        self.verify(&list)?;
        self.finish()?;
        self.store.drop_space(MARK).and_then(|()| self.store.sync()).map_err(|error| self.full(error))?;
        Ok(list)
    }

    /// Takes back what was restored, where the store had no keys before, and says what is there.
    fn give_up(&mut self, failure: Failure) -> Failure {
        if !self.marked {
            return failure.reword(|why| format!("{why}; nothing was restored"));
        }
        if let Some((_, ingest)) = self.ingest.take() {
            self.stored += ingest.stored();
        }
        if self.over {
            let stored = number_of(self.stored, "pair");
            return failure.reword(|why| {
                format!("{why}; {stored} of it are stored, and the space {MARK} says that more is missing")
            });
        }
        match self.take_back() {
            Ok(()) => failure.reword(|why| format!("{why}; nothing of it was kept")),
            Err(other) => failure.reword(|why| {
                format!("{why}; taking back what was restored failed, too ({other}): format the drive with `imbrex kv format --force`")
            }),
        }
    }

    fn take_back(&self) -> imbrex_device::Result<()> {
        for Target { space, kv, made } in &self.targets {
            match made {
                true => self.store.drop_space(&space.name)?,
                false => kv.delete_range(None, None, true)?,
            }
        }
        self.store.drop_space(MARK)?;
        // What is of no other space is free when the command ends.
        self.store.step()?;
        Ok(())
    }
}

impl Take for Restorer<'_> {
    fn begin(&mut self, text: &[u8]) -> Outcome {
        let begin = self.parse(text)?;
        if self.marked {
            return Err(self.no_backup("it begins twice"));
        }
        self.bar.set_length(begin.bytes);
        self.make(&begin.spaces)
    }

    fn directory(&mut self, _path: &str) -> Outcome {
        Ok(())
    }

    fn link(&mut self, path: &str, _to: &str) -> Outcome {
        Err(self.no_backup(format_args!("{path} in it is a link")))
    }

    fn file(&mut self, path: &str, size: u64, plain: bool, contents: &mut dyn Read) -> Outcome {
        if !plain || self.list.is_some() {
            return Err(self.no_backup(format_args!("{path} in it is none of ours")));
        }
        let most = (super::PIECE + 8 + MAX_KEY + MAX_VALUE) as u64;
        if size > most {
            return Err(self.no_backup(format_args!("{path} in it is larger than a piece may be")));
        }
        let mut bytes = Vec::new();
        let read = contents.take(most).read_to_end(&mut bytes);
        read.map_err(|error| self.no_backup(error))?;
        if bytes.len() as u64 != size {
            return Err(self.no_backup("it was cut off"));
        }
        self.piece(path, &bytes)
    }

    fn list(&mut self, text: &[u8]) -> Outcome {
        self.list = Some(self.parse_list(text)?);
        Ok(())
    }

    fn broken(&self, why: String) -> Failure {
        self.no_backup(why)
    }
}

/// Whether any space has a key.
fn has_keys(store: &Kv) -> Result<bool, Failure> {
    for (_, kv) in super::spaces_of(store)? {
        let mut iter = kv.iter()?;
        match iter.seek_to_first() {
            Ok(()) if iter.get().is_none() => {}
            Ok(()) => return Ok(true),
            // A key with operands is a key.
            Err(error) if error.code() == Code::InvalidArgument => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Refuses a store that has something.
fn refuse_keys(store: &Kv, drive: &str) -> Outcome {
    if !has_keys(store)? {
        return Ok(());
    }
    let marked = store.spaces().iter().any(|(name, _)| name == MARK);
    let what = if marked { "has a part of a backup, because a restore ended early" } else { "has keys" };
    Err(Failure::failed(format!(
        "{drive} {what}; restore over them with --over, or format it with `imbrex kv format --force`"
    )))
}

pub(in crate::kv) fn restore(args: &RestoreArgs) -> Outcome {
    let drive = &args.store.named.drive;
    if args.from == "-" && io::stdin().is_terminal() {
        return Err(Failure::usage("stdin is a terminal; name a backup, or send one through a pipe"));
    }
    let stream = stream_of(&args.from)?;
    let store = args.store.open().map_err(of_the_drive("restore"))?;
    if !args.over {
        refuse_keys(&store, drive)?;
    }
    let bar = bar(Some(0));
    let mut restorer = Restorer {
        store: &store,
        from: &args.from,
        over: args.over,
        bar: &bar,
        interrupted: interruption(),
        targets: Vec::new(),
        marked: false,
        ingest: None,
        stored: 0,
        list: None,
    };
    let restored = restorer.take(stream);
    let list = restored.map_err(|failure| restorer.give_up(failure));
    bar.finish_and_clear();
    let list = list?;
    let (spaces, pairs) = (list.spaces.len() as u64, list.pairs);
    if args.store.named.json {
        return print_json(&json!({ "drive": drive, "spaces": spaces, "pairs": pairs, "bytes": list.bytes }));
    }
    let (pairs, spaces) = (number_of(pairs, "pair"), number_of(spaces, "space"));
    print(format_args!("{drive}: {pairs} of {spaces}, {}, restored", size(list.bytes)))
}
