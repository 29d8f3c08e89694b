//! `imbrex kv load`: pairs from a file or a pipe. What was read before a failure or Ctrl-C is stored, and the sentence says how much that is.

use super::form::{Bad, Pairs};
use super::{Load, TOGETHER, Ttl};
use crate::chunk::bar;
use crate::output::{Failure, Outcome, count, number_of, print, print_json};
use imbrex_device::{Code, Error, Fault};
use imbrex_kv::{Batch, Ingest, Kv};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;
/// So often it is looked whether there was a signal.
const LOOK: Duration = Duration::from_millis(20);

/// What is read by a thread of its own, so that a signal is seen while nothing comes.
pub(super) struct Input {
    /// An empty piece is the end.
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
    ended: bool,
    interrupted: Arc<AtomicBool>,
}

impl Input {
    pub(super) fn new(mut from: Box<dyn Read + Send>, interrupted: Arc<AtomicBool>) -> io::Result<Input> {
        let (sender, pieces) = sync_channel(2);
        let mut read = move || {
            let mut piece = vec![0; PIECE];
            let n = from.read(&mut piece)?;
            piece.truncate(n);
            Ok(piece)
        };
        let all = move || {
            loop {
                let piece = read();
                if piece.as_ref().is_err_and(|error: &io::Error| error.kind() == io::ErrorKind::Interrupted) {
                    continue;
                }
                let ends = piece.as_ref().map_or(true, Vec::is_empty);
                if sender.send(piece).is_err() || ends {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("imbrex-input".into()).spawn(all)?;
        Ok(Input { pieces, piece: Vec::new(), at: 0, ended: false, interrupted })
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.piece.len() && !self.ended {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(io::Error::other("it was interrupted"));
            }
            match self.pieces.recv_timeout(LOOK) {
                Ok(piece) => (self.piece, self.at) = (piece?, 0),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("its reader ended")),
            }
            self.ended = self.piece.is_empty();
        }
        Ok(&self.piece[self.at..])
    }

    fn consume(&mut self, n: usize) {
        self.at = (self.at + n).min(self.piece.len());
    }
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let n = from.len().min(buf.len());
        buf[..n].copy_from_slice(&from[..n]);
        self.consume(n);
        Ok(n)
    }
}

/// A load that is under way.
struct Loading<'a> {
    store: &'a Kv,
    ttl: &'a Ttl,
    pairs: Pairs<Input>,
    batch: Batch,
    /// Where pairs go that are sorted, and how many it has taken.
    ingest: Option<Ingest>,
    taken: u64,
    /// Pairs that the store has.
    stored: u64,
    interrupted: Arc<AtomicBool>,
}

impl Loading<'_> {
    /// Stores all pairs.
    fn run(&mut self, name: &str, bar: &indicatif::ProgressBar) -> Outcome {
        loop {
            let next = self.pairs.next();
            // Ctrl-C ends whoever writes to the pipe, too: what comes last is then perhaps the half of a line.
            if self.interrupted.load(Ordering::Relaxed) {
                self.write()?;
                return Err(Failure::failed("interrupted; load the rest, or all of it again"));
            }
            match next {
                Ok(Some((key, value))) => {
                    let value = self.ttl.value(value);
                    let taken = match &mut self.ingest {
                        Some(ingest) => take(ingest, key, &value),
                        None => {
                            self.batch.put(key, &value);
                            Ok(())
                        }
                    };
                    if let Err(why) = taken {
                        let (unit, number) = (self.pairs.unit(), self.taken + 1);
                        self.write()?;
                        return Err(match why {
                            None => Failure::failed(format!(
                                "{unit} {} has a key that is not behind the one before it; sort the pairs, or leave --sorted out",
                                count(number)
                            )),
                            Some(error) => refused(unit, number, error),
                        });
                    }
                    self.taken += 1;
                }
                Ok(None) => return self.write(),
                Err(bad) => {
                    self.write()?;
                    return Err(Failure::failed(match bad {
                        Bad::Pair(sentence) => format!("{sentence}; correct it and load the rest"),
                        Bad::Input(error) => {
                            format!("reading {name} failed ({error}); load the rest, or all of it again")
                        }
                    }));
                }
            }
            if self.batch.bytes() > TOGETHER {
                self.write()?;
                bar.set_position(self.pairs.bytes);
            }
            if let Some(stored) = self.ingest.as_ref().map(Ingest::stored).filter(|stored| *stored > self.stored) {
                self.stored = stored;
                bar.set_position(self.pairs.bytes);
            }
        }
    }

    /// Stores what was collected: all of it, or what stands before a pair that the store refuses.
    fn write(&mut self) -> Outcome {
        if let Some(ingest) = &mut self.ingest {
            let done = ingest.finish();
            self.stored = ingest.stored();
            return done.map_err(Failure::from);
        }
        match self.store.write(&self.batch, false) {
            Ok(()) => self.stored += self.batch.len() as u64,
            Err(error) if error.code() == Code::InvalidArgument => {
                let mut alone = Batch::new();
                for pair in self.batch.changes() {
                    alone.clear();
                    alone.put(pair.key, pair.value);
                    self.store
                        .write(&alone, false)
                        .map_err(|error| refused(self.pairs.unit(), self.stored + 1, error))?;
                    self.stored += 1;
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.batch.clear();
        Ok(())
    }
}

/// `None`: the key does not follow.
fn take(ingest: &mut Ingest, key: &[u8], value: &[u8]) -> Result<(), Option<Error>> {
    ingest.put(key, value).map_err(|error| ingest.may_follow(key).then_some(error))
}

fn refused(unit: &str, number: u64, error: Error) -> Failure {
    match &error.fault {
        Fault::Refused(Code::InvalidArgument, sentence) => {
            Failure::failed(format!("{unit} {}: {sentence}; correct it and load the rest", count(number)))
        }
        _ => error.into(),
    }
}

/// The file or stdin, and how many bytes there are if anybody knows.
fn open(name: &str) -> Result<(Box<dyn Read + Send>, Option<u64>), Failure> {
    if name == "-" {
        if io::stdin().is_terminal() {
            return Err(Failure::usage("stdin is a terminal; name a file, or send the pairs through a pipe"));
        }
        return Ok((Box::new(io::stdin()), None));
    }
    let open = || File::open(name).and_then(|file| Ok((file.metadata()?, file)));
    let (meta, file) = open().map_err(|e| Failure::failed(format!("{name}: {e}; check the path on the host")))?;
    if meta.is_dir() {
        return Err(Failure::failed(format!("{name} is a directory; name a file of pairs")));
    }
    Ok((Box::new(file), meta.is_file().then_some(meta.len())))
}

pub(super) fn load(args: &Load) -> Outcome {
    let (from, len) = open(&args.file)?;
    let name = if args.file == "-" { "stdin" } else { &args.file };
    let store = args.store.make()?;
    let interrupted: Arc<AtomicBool> = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        // A put may wait for a merge on a full drive: the second signal ends the process at once, and what was put stays.
        let second = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, interrupted.clone());
        if let Err(error) = second.and_then(|_| signal_hook::flag::register(signal, interrupted.clone())) {
            tracing::warn!(%error, "an interruption does not say how much is stored");
        }
    }
    let input = Input::new(from, interrupted.clone())
        .map_err(|error| Failure::failed(format!("reading {name} failed ({error}); try it again")))?;
    // No longer value fits a zone.
    let pairs = Pairs::new(input, args.format, store.volume().least_capacity());
    let ingest = if args.sorted { Some(store.ingest()?) } else { None };
    let batch = Batch::new();
    let mut loading = Loading { store: &store, ttl: &args.ttl, pairs, batch, ingest, taken: 0, stored: 0, interrupted };
    let bar = bar(len);
    let done = loading.run(name, &bar);
    let synced = store.sync().map_err(Failure::from);
    bar.finish_and_clear();
    let stored = loading.stored;
    match (done, synced) {
        (Ok(()), Ok(())) if args.store.json() => print_json(&json!({ "loaded": stored })),
        (Ok(()), Ok(())) => print(format_args!("{} stored", number_of(stored, "pair"))),
        (Err(failure), Ok(())) => Err(failure.reword(|why| format!("{why}; {}", so_far(stored)))),
        (Err(failure), Err(_)) | (Ok(()), Err(failure)) => {
            Err(failure.reword(|why| format!("{why}; {}", unsure(stored))))
        }
    }
}

/// What was put could not be made durable.
fn unsure(stored: u64) -> String {
    match stored {
        0 => "nothing is stored".into(),
        n => format!("{} put, and making that durable failed, too: look what is there", number_of(n, "pair")),
    }
}

fn so_far(stored: u64) -> String {
    match stored {
        0 => "nothing is stored".into(),
        1 => "the first pair is stored".into(),
        n => format!("the first {} are stored", number_of(n, "pair")),
    }
}
