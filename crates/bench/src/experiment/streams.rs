//! The streams of [`super::oss`] as files of a kernel's file system: a chunk is a file, its bytes segments with footers, past the page cache
//! into space that was taken beforehand, as [`crate::segments`] has it. Each of [`CLIENTS`] threads has one append under way; whoever
//! seals a chunk deletes others, any, while more are sealed than shall be.
//!
//! Filling and deleting are a run each, so that what the drive does meanwhile is told apart: the second finds sealed what the first left.
//! `imbrex bench streams` is both as a program, for the VM.

use super::Stop;
use super::object_workload::CLIENTS;
use super::oss::{Chunks, MIB, Piece, Source, table3};
use crate::segments::{PAYLOAD, SEGMENT, fill, take};
use imbrex_chunkstore::ChunkId;
use imbrex_device::AlignedBuf;
use rustix::fs::{Advice, OFlags};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Numbers of the second run's chunks are behind those of the first.
const SECOND: u64 = 1 << 32;
/// Chunks that are as large as a zone in the paper.
const OF_ZONE: u64 = 256 * MIB;

/// What is done.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) dir: PathBuf,
    /// Chunks are so many times shorter than the paper's.
    pub(super) part: u64,
    /// Of sealed chunks, footers included. The first run ends there, the second holds it.
    pub(super) target: u64,
    /// What the second run appends; `None`: it is the first.
    pub(super) over: Option<u64>,
    /// An append ends with fdatasync.
    pub(super) sync: bool,
    /// At the paper's rate, the world's clock so many times as fast; else as fast as it goes.
    pub(super) pace: Option<f64>,
}

/// What came of it, by the world's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// When it began, by the machine's monotonic clock.
    pub began: f64,
    /// From there to the last answer.
    pub seconds: f64,
    /// How many appends.
    pub appends: u64,
    /// Bytes with their footers.
    pub bytes: u64,
    /// Bytes of the user.
    pub payload: u64,
    /// Chunks that went.
    pub deleted: u64,
    /// Of each append, sorted, in seconds.
    pub took: Vec<f64>,
    /// When each was answered, and the user's bytes in it.
    pub over_time: Vec<(f64, u64)>,
}

/// `imbrex bench streams …`: for an experiment, which runs it.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Example:\n  imbrex bench streams /mnt/chunks --filled 80 --over 2 --part 16 --sync")]
pub struct Args {
    /// Where the files are; an empty directory of a file system that has nothing else.
    pub dir: PathBuf,
    /// So many per cent are filled of what the file system offers beside the open chunks.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=95))]
    pub filled: u32,
    /// So many times that is written then, while sealed chunks go.
    #[arg(long, default_value_t = 2.0)]
    pub over: f64,
    /// Chunks are so many times shorter than the paper's.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub part: u64,
    /// An append ends with fdatasync.
    #[arg(long)]
    pub sync: bool,
}

/// Filling, and deleting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Both {
    /// Bytes of what counts as capacity.
    pub capacity: u64,
    /// Until so much was sealed.
    pub clean: Answer,
    /// While chunks went.
    pub deleting: Answer,
}

/// The paper's streams with shorter chunks. Appends are as long as there.
pub(super) fn sources(part: u64) -> Vec<Source> {
    let shorter = |source: Source| {
        let limit = source.most.unwrap_or(OF_ZONE) / part;
        let pieces = (source.pieces.0.min(limit), source.pieces.1.min(limit));
        Source { most: Some(limit), pieces, ..source }
    };
    table3().into_iter().map(shorter).collect()
}

fn limit(source: &Source) -> u64 {
    source.most.unwrap_or(OF_ZONE)
}

/// What the chunks take that are open at once.
pub(super) fn open_bytes(part: u64) -> u64 {
    sources(part).iter().map(|source| source.open as u64 * limit(source)).sum()
}

/// A chunk's file. Whoever needs it first makes it.
struct Chunk {
    path: PathBuf,
    taken: u64,
    file: OnceLock<Result<File, String>>,
}

fn failed(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}; see that the file system has room and knows O_DIRECT", path.display())
}

impl Chunk {
    fn made(&self) -> Result<&File, String> {
        let make = || {
            let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
            let opened = OpenOptions::new().write(true).create_new(true).custom_flags(direct).open(&self.path);
            let file = opened.map_err(|error| failed(&self.path, error))?;
            take(&file, self.taken).map_err(|error| failed(&self.path, error))?;
            Ok(file)
        };
        self.file.get_or_init(make).as_ref().map_err(Clone::clone)
    }
}

/// What clients share.
struct State {
    chunks: Chunks,
    /// This run's.
    files: HashMap<ChunkId, Arc<Chunk>>,
    answer: Answer,
    asked: u64,
}

/// One append: which file, where, how much, when at the paper's rate; and files that go.
struct Turn {
    chunk: Arc<Chunk>,
    number: ChunkId,
    at: u64,
    len: u64,
    due: f64,
    gone: Vec<Gone>,
}

/// A chunk that goes: of this run, or of the one before.
enum Gone {
    Ours(Arc<Chunk>),
    Older(PathBuf),
}

struct Play<'a> {
    load: &'a Load,
    limits: Vec<u64>,
    state: Mutex<State>,
    stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Play<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a client does next; `None` at the end.
    fn turn(&self) -> Option<Turn> {
        let State { chunks, files, answer, asked } = &mut *self.state();
        let over = match self.load.over {
            Some(over) => *asked >= over,
            None => chunks.sealed_bytes > self.load.target,
        };
        if over || (self.stopped)() {
            return None;
        }
        let turn = chunks.turn();
        let Piece { id, at, len, .. } = chunks.piece(turn);
        *asked += len;
        let mut gone = Vec::new();
        while self.load.over.is_some() && chunks.sealed_bytes > self.load.target {
            let Some(id) = chunks.dies() else { break };
            answer.deleted += 1;
            gone.push(files.remove(&id).map_or_else(|| Gone::Older(self.load.dir.join(id.to_string())), Gone::Ours));
        }
        let chunk = files.entry(id).or_insert_with(|| {
            let (path, taken) = (self.load.dir.join(id.to_string()), self.limits[turn.source]);
            Arc::new(Chunk { path, taken, file: OnceLock::new() })
        });
        Some(Turn { chunk: chunk.clone(), number: id, at, len, due: turn.due, gone })
    }

    fn client(&self, began: Instant) -> Result<(), String> {
        let mut buffer = AlignedBuf::zeroed(MIB as usize);
        while let Some(turn) = self.turn() {
            let due = self.load.pace.map(|speed| Duration::from_secs_f64(turn.due / 1e9 / speed));
            if let Some(early) = due.and_then(|due| due.checked_sub(began.elapsed())) {
                std::thread::sleep(early);
            }
            for gone in &turn.gone {
                let path = match gone {
                    Gone::Ours(chunk) => {
                        chunk.made()?;
                        &chunk.path
                    }
                    Gone::Older(path) => path,
                };
                fs::remove_file(path).map_err(|error| failed(path, error))?;
            }
            let piece = &mut buffer[..turn.len as usize];
            fill(piece, number(turn.number), turn.at);
            let came = Instant::now();
            let file = turn.chunk.made()?;
            file.write_all_at(piece, turn.at)
                .and_then(|()| if self.load.sync { file.sync_data() } else { Ok(()) })
                .map_err(|error| failed(&turn.chunk.path, error))?;
            let payload = turn.len / SEGMENT * PAYLOAD;
            let answer = &mut self.state().answer;
            answer.took.push(came.elapsed().as_secs_f64());
            answer.over_time.push((began.elapsed().as_secs_f64(), payload));
            (answer.appends, answer.bytes, answer.payload) =
                (answer.appends + 1, answer.bytes + turn.len, answer.payload + payload);
        }
        Ok(())
    }
}

/// The number that a chunk was named by.
fn number(id: ChunkId) -> u64 {
    id.to_string().get(32..).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

/// What the run before left, as sealed chunks of a source with their limit; all of them die alike.
fn left(dir: &Path, limits: &[u64]) -> Result<Vec<(usize, ChunkId, u64)>, String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| failed(dir, error))? {
        let entry = entry.map_err(|error| failed(dir, error))?;
        let len = entry.metadata().map_err(|error| failed(&entry.path(), error))?.len();
        let id = entry.file_name().to_str().and_then(|name| name.parse::<ChunkId>().ok());
        let source = limits.iter().position(|limit| *limit == len);
        if let (Some(id), Some(source)) = (id, source) {
            all.push((source, id, len));
        }
    }
    // The directory's order is the file system's.
    all.sort_by_key(|(_, id, _)| *id);
    Ok(all)
}

/// Does what `load` says.
pub(super) fn run(load: &Load, stopped: &(dyn Fn() -> bool + Sync)) -> Result<Answer, Stop> {
    let sources = sources(load.part);
    let limits: Vec<u64> = sources.iter().map(limit).collect();
    let mut chunks = Chunks::new(sources, |_, _| OF_ZONE, if load.over.is_some() { 2 } else { 1 });
    if load.over.is_some() {
        chunks.resume(SECOND, left(&load.dir, &limits)?);
    }
    let state = State { chunks, files: HashMap::new(), answer: Answer::default(), asked: 0 };
    let play = Play { load, limits, state: Mutex::new(state), stopped };
    let clock = clock_gettime(ClockId::Monotonic);
    let began = Instant::now();
    let ended: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| play.client(began))).collect();
        let early = || Err("a client ended early; please report it".to_owned());
        clients.into_iter().map(|client| client.join().unwrap_or_else(|_| early())).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    ended.into_iter().collect::<Result<(), String>>()?;
    if stopped() {
        return Err(Stop::Interrupted);
    }
    let state = play.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut answer = Answer { began: clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9, seconds, ..state.answer };
    answer.took.sort_by(f64::total_cmp);
    answer.over_time.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(answer)
}

/// How often [`uncached`] goes over the files.
const SWEEP: Duration = Duration::from_millis(100);

/// Until `done`, keeps out of the page cache what is in files: a file system that takes no writes past it (F2FS on zones) must not find there what it
/// moves, since a drive holds so much more than memory does.
fn uncached(dir: &Path, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(SWEEP);
        // A file that is gone in between has nothing there.
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let file = File::open(entry.path());
            let _ = file.map(|file| rustix::fs::fadvise(file, 0, None, Advice::DontNeed));
        }
    }
}

/// Fills a file system, and holds it so while chunks go. The error is a sentence.
pub fn both(args: &Args) -> Result<Both, String> {
    let of = |stop| if let Stop::Failed(why) = stop { why } else { "it was interrupted".to_owned() };
    fs::create_dir_all(&args.dir).map_err(|error| failed(&args.dir, error))?;
    let offered = rustix::fs::statvfs(&args.dir).map_err(|error| failed(&args.dir, error))?;
    let (offered, open) = (offered.f_bavail.saturating_mul(offered.f_frsize), open_bytes(args.part));
    let capacity = offered.saturating_sub(open);
    if capacity < open || !args.part.is_power_of_two() || !(0.0..=100.0).contains(&args.over) {
        return Err(format!(
            "{offered} bytes are too little where chunks that are open take {open}; take a larger file system, or a larger --part, which is a power of two; --over is at most 100"
        ));
    }
    let load = Load {
        dir: args.dir.clone(),
        part: args.part,
        target: (f64::from(args.filled) / 100.0 * capacity as f64) as u64,
        over: None,
        sync: args.sync,
        pace: None,
    };
    let over = Some((args.over * capacity as f64) as u64);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| uncached(&args.dir, &done));
        let ran = run(&load, &|| false).and_then(|clean| Ok((clean, run(&Load { over, ..load }, &|| false)?)));
        done.store(true, Ordering::Relaxed);
        let (clean, deleting) = ran.map_err(of)?;
        Ok(Both { capacity, clean, deleting })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_fill_a_directory_and_others_go_for_those_that_come() {
        let dir = tempfile::tempdir().unwrap();
        let (part, target) = (64, 40 * MIB);
        let load = Load { dir: dir.path().into(), part, target, over: None, sync: false, pace: None };
        let sizes = || -> Vec<u64> {
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).collect()
        };
        let first = run(&load, &|| false).unwrap();
        let filled: u64 = sizes().iter().sum();
        assert!(first.deleted == 0 && first.bytes > target && filled >= first.bytes, "{filled} {}", first.bytes);
        assert_eq!(first.over_time.iter().map(|(_, bytes)| bytes).sum::<u64>(), first.payload);
        assert_eq!(first.payload, first.bytes / SEGMENT * PAYLOAD);
        let second = run(&Load { over: Some(60 * MIB), ..load.clone() }, &|| false).unwrap();
        assert!(second.bytes >= 60 * MIB && second.deleted > 0);
        // What was there before dies as well, and no more is there than what is held and open.
        let now: u64 = sizes().iter().sum();
        assert!(now <= target + open_bytes(part), "{now}");
        let older = fs::read_dir(dir.path()).unwrap().flatten();
        let older = older.filter(|entry| number(entry.file_name().to_str().unwrap().parse().unwrap()) < SECOND).count();
        assert!(older < sizes().len(), "{older}");
        assert_eq!(run(&load, &|| true).err(), Some(Stop::Interrupted));
    }

    #[test]
    fn a_program_that_plays_them_refuses_what_makes_no_sense() {
        let dir = tempfile::tempdir().unwrap();
        let args = Args { dir: dir.path().join("chunks"), filled: 80, over: 2.0, part: 16, sync: true };
        for wrong in [Args { part: 3, ..args.clone() }, Args { over: f64::NAN, ..args.clone() }] {
            assert!(both(&wrong).unwrap_err().contains("a power of two"));
        }
        let proc = Args { dir: "/proc/self".into(), ..args };
        assert!(both(&proc).unwrap_err().starts_with("0 bytes are too little"), "a file system that offers nothing");
    }
}
