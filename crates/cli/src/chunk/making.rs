//! Storing: chunks that are made from files and streams, all of them or none. Their names are given at the end, when everything is durable, so a
//! name never stands for half of a file; Ctrl-C, and whatever fails, takes back what was stored. What a kill leaves, the next one removes.

use super::unfinished::{self, Unfinished};
use super::{no_room, stream};
use crate::output::{Failure, Outcome, number_of, report, warn};
use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, Error, Space, StreamType};
use indicatif::ProgressBar;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of an append, where nobody says otherwise.
const PIECE: usize = 1 << 20;
/// So often it is looked whether there was a signal.
const LOOK: Duration = Duration::from_millis(20);
/// What was appended so far is made durable each time it was so many bytes.
const SYNC: u64 = 256 << 20;

/// A chunk that was made.
pub(super) struct Made {
    pub(super) id: ChunkId,
    pub(super) len: u64,
}

/// All of them. Whoever holds it is the only one who changes the store.
type AllMade = Arc<Mutex<Vec<Made>>>;

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Half of it helps nobody.
fn take_back(store: &ChunkStore, made: &[Made]) -> Result<(), Error> {
    for chunk in made {
        store.delete_with(chunk.id, Durability::Buffered)?;
    }
    store.close()
}

/// Ctrl-C and SIGTERM take back what was stored, also while the input says nothing, and end the process; until this is dropped.
struct Watch {
    interrupted: Arc<AtomicBool>,
    /// Whoever has the store keeps its volume from being shut down, and the survivor's memory with it.
    store: Arc<Mutex<Option<ChunkStore>>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.store).take();
    }
}

impl Watch {
    fn over(store: &ChunkStore, made: &AllMade, bar: &ProgressBar, as_json: bool) -> Watch {
        let mut watch = Watch { interrupted: Arc::default(), store: Arc::new(Mutex::new(Some(store.clone()))) };
        for signal in [SIGINT, SIGTERM] {
            if let Err(error) = signal_hook::flag::register(signal, watch.interrupted.clone()) {
                tracing::warn!(%error, "an interruption leaves chunks behind");
                watch.interrupted = Arc::default();
                return watch;
            }
        }
        let (interrupted, store) = (watch.interrupted.clone(), watch.store.clone());
        let (made, bar) = (made.clone(), bar.clone());
        std::thread::spawn(move || {
            while !interrupted.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
            // The lock is kept: whoever would be done now waits, since nobody goes on from here.
            let store = lock(&store);
            let Some(store) = store.as_ref() else { return };
            let made = lock(&made);
            bar.finish_and_clear();
            let sentence = match take_back(store, &made) {
                Ok(()) => "interrupted, and nothing of it is stored; put it again".to_owned(),
                Err(error) => {
                    let ids: Vec<String> = made.iter().map(|chunk| chunk.id.to_string()).collect();
                    format!("interrupted, and what was stored could not be removed ({error}); remove {}", ids.join(" "))
                }
            };
            std::process::exit(report(Err(Failure::failed(sentence)), as_json).into());
        });
        watch
    }
}

/// How chunks are made.
pub(super) struct How<'a> {
    /// Kind of stream.
    pub(super) stream: &'a str,
    /// Bytes of one append.
    pub(super) piece: Option<u64>,
    /// The last chunk of each source stays open.
    pub(super) open: bool,
    /// Id of the chunk, of which there is one then.
    pub(super) id: Option<ChunkId>,
    /// What has one of the names is deleted.
    pub(super) replace: bool,
    /// Failures are told in JSON.
    pub(super) as_json: bool,
}

/// Where bytes come from: fills a buffer as far as there are any.
pub(super) type Fill<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<usize, Failure>;

/// What a name stands for when all is stored.
pub(super) struct Stored {
    pub(super) name: Option<String>,
    pub(super) chunks: Vec<ChunkId>,
    pub(super) len: u64,
}

/// Makes chunks.
pub(super) struct Maker<'a> {
    store: &'a ChunkStore,
    how: How<'a>,
    made: AllMade,
    unfinished: Unfinished,
    bar: ProgressBar,
    kind: StreamType,
    limit: u64,
    buf: Vec<u8>,
    unsynced: u64,
    stored: Vec<Stored>,
    /// The room when it began.
    before: Space,
}

/// Stores what `body` gives to the maker, then names it. Fails with nothing stored.
pub(super) fn store_all(
    store: &ChunkStore,
    how: How,
    bar: &ProgressBar,
    body: impl FnOnce(&mut Maker) -> Outcome,
) -> Result<Vec<Stored>, Failure> {
    let mut maker = Maker::new(store, how, bar)?;
    let made = maker.made.clone();
    let watch = Watch::over(store, &made, bar, maker.how.as_json);
    let done = body(&mut maker).and_then(|()| Ok(store.sync()?));
    // Ctrl-C ends whoever writes to the pipe, too: the end of the input is then none of what was to be stored.
    while watch.interrupted.load(Ordering::Relaxed) {
        std::thread::park();
    }
    bar.finish_and_clear();
    // From here on it is done, or fails by itself; who is taking it back meanwhile is waited for, and ends the process.
    drop(watch);
    let named = |of: &Stored| of.name.clone().map(|name| (name, of.chunks.clone()));
    let names: Vec<(String, Vec<ChunkId>)> = maker.stored.iter().filter_map(named).collect();
    let names: Vec<(&str, &[ChunkId])> = names.iter().map(|(name, ids)| (name.as_str(), &ids[..])).collect();
    let done = done.and_then(|()| if names.is_empty() { Ok(()) } else { Ok(store.name(&names, maker.how.replace)?) });
    let done = done.and_then(|()| Ok(maker.unfinished.end(store)?));
    if let Err(failure) = done {
        // The failure is what is told, not that of the removal.
        let _ = take_back(store, &lock(&made));
        return Err(failure);
    }
    store.close()?;
    Ok(maker.stored)
}

impl<'a> Maker<'a> {
    fn new(store: &'a ChunkStore, how: How<'a>, bar: &ProgressBar) -> Result<Maker<'a>, Failure> {
        let left = unfinished::remove(store)?;
        if left > 0 {
            let were = if left == 1 { "was" } else { "were" };
            let sentence = format!(
                "an earlier put or import was killed; {} that it left {were} removed",
                number_of(left, "chunk")
            );
            warn(&sentence, how.as_json);
        }
        let kind = stream(store, how.stream)?;
        let most = u64::from(store.limits().append);
        let piece = how.piece.unwrap_or(most.min(PIECE as u64));
        if !(1..=most).contains(&piece) {
            return Err(Failure::usage(format!("an append has 1 to {most} bytes; choose another --piece")));
        }
        let (limit, buf) = (u64::from(store.chunk_limit(kind)), vec![0; piece as usize]);
        let before = store.space();
        let unfinished =
            Unfinished::begin(store, kind).map_err(|error| no_room(error, "storing", bar.length(), before))?;
        // What is taken back is this, too.
        let made = AllMade::new(Mutex::new(vec![Made { id: unfinished.chunk, len: 0 }]));
        let bar = bar.clone();
        Ok(Maker { store, how, made, unfinished, bar, kind, limit, buf, unsynced: 0, stored: Vec::new(), before })
    }

    /// Stores all that comes, as one chunk or several; one without a byte where nothing does. `what` is what people call the source.
    pub(super) fn add(&mut self, what: &str, name: Option<String>, fill: Fill) -> Outcome {
        let made = self.made.clone();
        let first = lock(&made).len();
        loop {
            // The end of the input, where it is that of a chunk, too, must not begin another one.
            let last = lock(&made)[first..].last().map(|chunk| chunk.len);
            let room = last.map_or(self.limit, |len| self.limit - len);
            let want = if room == 0 { self.limit } else { room }.min(self.buf.len() as u64) as usize;
            let n = fill(&mut self.buf[..want])?;
            let mut made = lock(&made);
            if n == 0 && last.is_some() {
                break;
            }
            if last.is_none() || room == 0 {
                self.begin(what, &mut made, first)?;
            }
            let Some(chunk) = made.last_mut().filter(|_| n > 0) else { break };
            let how = Append { offset: Some(chunk.len), durability: Durability::Buffered };
            let appended = self.store.append_with(chunk.id, &self.buf[..n], how);
            appended.map_err(|error| self.no_room(what, error))?;
            chunk.len += n as u64;
            self.bar.inc(n as u64);
            self.unsynced += n as u64;
            if self.unsynced >= SYNC {
                self.store.sync()?;
                self.unsynced = 0;
            }
        }
        let made = lock(&made);
        if let Some(last) = made[first..].last().filter(|_| !self.how.open) {
            self.store.seal_with(last.id, Durability::Buffered)?;
        }
        let here = &made[first..];
        let (chunks, len) = (here.iter().map(|chunk| chunk.id).collect(), here.iter().map(|chunk| chunk.len).sum());
        self.stored.push(Stored { name, chunks, len });
        Ok(())
    }

    /// Begins the next chunk of a source, and seals the one before.
    fn begin(&self, what: &str, made: &mut Vec<Made>, first: usize) -> Outcome {
        if let Some(full) = made[first..].last() {
            if self.how.id.is_some() {
                return Err(Failure::failed(format!(
                    "{what} needs more than one chunk (at most {} bytes each), and --id names one; leave --id out",
                    self.limit
                )));
            }
            self.store.seal_with(full.id, Durability::Buffered)?;
        }
        let id = self.how.id.unwrap_or_else(|| self.unfinished.id());
        let created = self.store.create_with(id, self.kind, Durability::Buffered);
        created.map_err(|error| self.no_room(what, error))?;
        made.push(Made { id, len: 0 });
        Ok(())
    }

    fn no_room(&self, what: &str, error: Error) -> Failure {
        no_room(error, what, self.bar.length(), self.before)
    }

    /// The next source is one chunk of this id; without one, as many as it needs.
    pub(super) fn use_id(&mut self, id: Option<ChunkId>) {
        self.how.id = id;
    }

    /// The chunks of the next source are of this kind, and its last one stays open or does not.
    pub(super) fn use_kind(&mut self, kind: StreamType, open: bool) {
        self.kind = kind;
        self.limit = u64::from(self.store.chunk_limit(kind));
        self.how.open = open;
    }
}
