//! A disk that remembers every command, and what may be left of it when a crash comes between or inside any two of them.

use imbrex_device::Fault;
use imbrex_device::banded::{Base, BaseFacts};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One command to the disk.
#[derive(Clone)]
pub enum Op {
    /// Past the cache of the kernel, into that of the disk.
    Write {
        at: usize,
        bytes: Arc<[u8]>,
    },
    /// Into the cache of the kernel.
    Put {
        at: usize,
        bytes: Arc<[u8]>,
    },
    Discard {
        at: usize,
        len: usize,
    },
    Sync,
}

/// Everything that was ever done to a disk of `size` zero bytes.
#[derive(Clone, Default)]
pub struct History {
    pub ops: Vec<Op>,
}

/// Commands of one disk at most: more than ten times what any of these workloads and recoveries takes. Something that writes
/// in an endless loop fails here and does not fill the memory of the machine.
const MOST_COMMANDS: usize = 10_000;

/// What a test's disk tears writes into.
const SECTOR: usize = 512;
/// What the death of a process leaves whole of what it puts into the kernel's cache.
const GRAIN: usize = 16;

impl History {
    /// The process dies before command number `cut`, or in the middle of it where `torn` says how many sectors of a write went, or how many
    /// times 16 bytes into the kernel's cache.
    pub fn process_crash(&self, size: usize, cut: usize, torn: Option<usize>) -> (Vec<u8>, History) {
        let mut kept = History { ops: self.ops[..cut].to_vec() };
        match (torn, self.ops.get(cut)) {
            (Some(sectors), Some(Op::Write { at, bytes })) => {
                let n = (sectors * SECTOR).min(bytes.len());
                kept.ops.push(Op::Write { at: *at, bytes: bytes[..n].into() });
            }
            (Some(grains), Some(Op::Put { at, bytes })) => {
                let n = (grains * GRAIN).min(bytes.len());
                kept.ops.push(Op::Put { at: *at, bytes: bytes[..n].into() });
            }
            _ => {}
        }
        (kept.bytes(size), kept)
    }

    /// All of it.
    pub fn bytes(&self, size: usize) -> Vec<u8> {
        let mut disk = vec![0; size];
        self.ops.iter().for_each(|op| apply(&mut disk, op, |_| true));
        disk
    }

    /// The power fails before command number `cut` has ended. Of everything since the last sync, and of all that was put into the
    /// kernel's cache, `keep` says for each sector of each command whether it is left; it is asked with the command's number.
    pub fn power_loss(&self, size: usize, cut: usize, mut keep: impl FnMut(usize) -> bool) -> Vec<u8> {
        let mut disk = vec![0; size];
        let synced = self.ops[..cut].iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |at| at + 1);
        for (i, op) in self.ops[..synced].iter().enumerate() {
            apply(&mut disk, op, |_| !matches!(op, Op::Put { .. }) || keep(i));
        }
        let end = (cut + 1).min(self.ops.len());
        for (i, op) in self.ops[synced..end].iter().enumerate() {
            apply(&mut disk, op, |_| keep(synced + i));
        }
        disk
    }

    /// Numbers of the commands that a power loss before the end of `cut` may lose.
    pub fn at_risk(&self, cut: usize) -> Vec<usize> {
        let synced = self.ops[..cut].iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |at| at + 1);
        let end = (cut + 1).min(self.ops.len());
        (synced..end).filter(|i| !matches!(self.ops[*i], Op::Sync)).collect()
    }
}

/// Applies those sectors of a command that `keep` keeps.
fn apply(disk: &mut [u8], op: &Op, mut keep: impl FnMut(usize) -> bool) {
    match op {
        Op::Sync => {}
        Op::Discard { at, len } => {
            if keep(0) {
                disk[*at..at + len].fill(0xdd);
            }
        }
        Op::Write { at, bytes } | Op::Put { at, bytes } => {
            for (i, part) in bytes.chunks(SECTOR).enumerate() {
                if keep(i) {
                    disk[at + i * SECTOR..][..part.len()].copy_from_slice(part);
                }
            }
        }
    }
}

/// A disk that records.
pub struct Recorder {
    facts: BaseFacts,
    inner: Mutex<(Vec<u8>, History)>,
    /// Syncs fail.
    pub failing: AtomicBool,
    dead: AtomicBool,
    /// What to do before the next write from an address on.
    before: Mutex<Option<(usize, Meanwhile)>>,
    /// Writes that are in flight.
    writing: Mutex<Vec<Range<usize>>>,
}

/// What somebody else does meanwhile.
pub type Meanwhile = Box<dyn FnOnce() + Send>;

impl Recorder {
    /// A disk with that past, under boot number `boot`.
    pub fn new(size: usize, past: History, boot: u8) -> Recorder {
        let facts = BaseFacts {
            name: "recorder".into(),
            size: size as u64,
            block: 512,
            max_io: 64 << 10,
            rotational: false,
            medium: [1; 16],
            boot: [boot; 16],
        };
        let bytes = past.bytes(size);
        Recorder {
            facts,
            inner: Mutex::new((bytes, past)),
            failing: false.into(),
            dead: false.into(),
            before: Mutex::new(None),
            writing: Mutex::default(),
        }
    }

    /// A disk that holds `bytes`, all of them durable.
    pub fn holding(bytes: &[u8], boot: u8) -> Recorder {
        let past = vec![Op::Write { at: 0, bytes: bytes.into() }, Op::Sync];
        Recorder::new(bytes.len(), History { ops: past }, boot)
    }

    pub fn history(&self) -> History {
        self.inner.lock().unwrap().1.clone()
    }

    pub fn commands(&self) -> usize {
        self.inner.lock().unwrap().1.ops.len()
    }

    pub fn before_a_write_from(&self, at: usize, what: Meanwhile) {
        *self.before.lock().unwrap() = Some((at, what));
    }

    pub fn is_waiting(&self) -> bool {
        self.before.lock().unwrap().is_some()
    }

    /// The process that has it is dead: whatever its drops still do comes too late.
    pub fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    fn keeps_apart(&self, at: u64, len: usize) -> Range<usize> {
        let range = at as usize..at as usize + len;
        let writing = self.writing.lock().unwrap();
        let other = writing.iter().find(|other| other.start < range.end && range.start < other.end);
        assert!(other.is_none(), "{range:?} beside a write of {other:?} that is in flight");
        range
    }

    fn does(&self, op: Op) {
        if self.dead.load(Ordering::Relaxed) {
            return;
        }
        let mut inner = self.inner.lock().unwrap();
        apply(&mut inner.0, &op, |_| true);
        inner.1.ops.push(op);
        assert!(inner.1.ops.len() <= MOST_COMMANDS, "the disk is written without an end");
    }
}

impl Base for Recorder {
    fn facts(&self) -> &BaseFacts {
        &self.facts
    }
    fn read(&self, buf: &mut [u8], at: u64) -> Result<(), Fault> {
        self.keeps_apart(at, buf.len());
        buf.copy_from_slice(&self.inner.lock().unwrap().0[at as usize..][..buf.len()]);
        Ok(())
    }
    fn write(&self, buf: &[u8], at: u64) -> Result<(), Fault> {
        let meanwhile = self.before.lock().unwrap().take_if(|(from, _)| at as usize >= *from);
        if let Some((_, meanwhile)) = meanwhile {
            meanwhile();
        }
        let range = self.keeps_apart(at, buf.len());
        self.writing.lock().unwrap().push(range.clone());
        std::thread::yield_now();
        self.does(Op::Write { at: at as usize, bytes: buf.into() });
        self.writing.lock().unwrap().retain(|other| *other != range);
        Ok(())
    }
    fn sync(&self) -> Result<(), Fault> {
        if self.failing.load(Ordering::Relaxed) {
            return Err(Fault::Io(Arc::new(std::io::Error::other("injected"))));
        }
        self.does(Op::Sync);
        Ok(())
    }
    fn discard(&self, at: u64, len: u64) {
        self.does(Op::Discard { at: at as usize, len: len as usize });
    }
    fn live(&self, _: &[u8; 16], at: u64, len: usize) -> Result<Vec<u8>, Fault> {
        Ok(self.inner.lock().unwrap().0[at as usize..][..len].to_vec())
    }
    fn start_live(&self, _: &[u8; 16], _: u64, _: usize) -> Result<(), Fault> {
        Ok(())
    }
    fn put(&self, bytes: &[u8], at: u64) -> Result<(), Fault> {
        self.does(Op::Put { at: at as usize, bytes: bytes.into() });
        Ok(())
    }
}

/// Ways in which a power loss may treat what is at risk: everything or nothing of it, each command alone lost or kept, all
/// of the disk's without the kernel's cache and the other way round, and `random` ways sector by sector.
pub fn fates(history: &History, cut: usize, random: usize, rng: &mut ChaCha8Rng) -> Vec<Box<dyn FnMut(usize) -> bool>> {
    let at_risk = history.at_risk(cut);
    let mut fates: Vec<Box<dyn FnMut(usize) -> bool>> = vec![Box::new(|_| true), Box::new(|_| false)];
    let last: Vec<usize> = at_risk.iter().rev().take(8).copied().collect();
    for i in last {
        fates.push(Box::new(move |op| op == i));
        fates.push(Box::new(move |op| op != i));
    }
    let puts: Vec<bool> = history.ops.iter().map(|op| matches!(op, Op::Put { .. })).collect();
    let other = puts.clone();
    fates.push(Box::new(move |op| puts[op]));
    fates.push(Box::new(move |op| !other[op]));
    for _ in 0..random {
        let mut rng: ChaCha8Rng = rand::SeedableRng::seed_from_u64(rng.random());
        fates.push(Box::new(move |_| rng.random_bool(0.5)));
    }
    fates
}
