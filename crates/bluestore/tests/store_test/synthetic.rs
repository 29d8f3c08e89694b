//! Ceph's random workload: objects that are made, written, cloned, moved to another generation and removed, with lists and checks between, over several options.

use crate::support::options;
use crate::{Bed, HEAD, Kind, object, over, usual};
use imbrex_bluestore::{CollectionId, Compression, Hint, ObjectId, Options, Transaction};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

const C: CollectionId = CollectionId { pool: 555, seed: 0 };
/// So many transactions gather before they are queued, perhaps.
const GATHER: usize = 10;

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What it works with. A tenth of Ceph's objects and operations.
#[derive(Clone, Copy)]
struct Matrix {
    objects: usize,
    turns: u32,
    most: u64,
    write: u64,
    align: u64,
    /// Objects come and go as often.
    limited: bool,
}

const USUAL: Matrix = Matrix { objects: 60, turns: 800, most: 256 << 10, write: 40 << 10, align: 1, limited: false };

struct Synthetic {
    bed: Bed,
    matrix: Matrix,
    rng: ChaCha8Rng,
    all: BTreeMap<ObjectId, Content>,
    made: u32,
    waiting: Vec<Transaction>,
}

impl Synthetic {
    fn new(bed: Bed, matrix: Matrix, seed: u64) -> Synthetic {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let mut new = Synthetic { bed, matrix, rng, all: BTreeMap::new(), made: 0, waiting: Vec::new() };
        new.bed.does(|t| _ = t.create_collection(C, 0));
        (0..matrix.objects / 2).for_each(|_| new.touch());
        new
    }

    /// Long names and short ones, heads and clones, many of one hash.
    fn new_id(&mut self) -> ObjectId {
        let n = self.made;
        self.made += 1;
        let long = if n % 2 == 1 { "a".repeat(300) } else { String::new() };
        let snap = if self.rng.random() { HEAD } else { self.rng.random() };
        ObjectId { snap, ..object(C.pool, n / 64 % 2 * 0xf00 + (n & 0xff), format!("OBJ_{n}{long}")) }
    }

    fn any(&mut self) -> ObjectId {
        let n = self.rng.random_range(0..self.all.len());
        self.all.keys().nth(n).unwrap().clone()
    }

    /// One that has bytes, mostly.
    fn any_written(&mut self) -> ObjectId {
        let tries: Vec<ObjectId> = (0..20).map(|_| self.any()).collect();
        tries.iter().find(|id| !self.all[id].bytes.is_empty()).unwrap_or(&tries[0]).clone()
    }

    fn aligned(&mut self, below: u64) -> u64 {
        self.rng.random_range(0..=below).next_multiple_of(self.matrix.align)
    }

    /// Bytes that can be compressed, as text can.
    fn text(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| b'0' + self.rng.random_range(0..10u8)).collect()
    }

    fn adds(&mut self, what: impl FnOnce(&mut Transaction)) {
        let mut transaction = Transaction::new();
        what(&mut transaction);
        self.waiting.push(transaction);
        if self.waiting.len() > GATHER || self.rng.random_bool(1.0 / 7.0) {
            self.queue();
        }
    }

    fn queue(&mut self) {
        for transaction in std::mem::take(&mut self.waiting) {
            self.bed.does(|to| *to = transaction);
        }
    }

    fn touch(&mut self) {
        let id = self.new_id();
        let hint = Hint {
            object: 1 << self.rng.random_range(17..23),
            write: 1 << self.rng.random_range(12..18),
            immutable: self.rng.random_bool(0.2),
            short_lived: self.rng.random_bool(0.25),
            incompressible: self.rng.random_bool(0.25),
        };
        self.adds(|t| _ = t.touch(C, &id).hint(C, &id, hint));
        self.all.entry(id).or_default();
    }

    fn write(&mut self) {
        let (id, offset) = (self.any(), self.aligned(self.matrix.most - self.matrix.write));
        let len = self.aligned(self.matrix.write);
        let bytes = self.text(len);
        over(&mut self.all.get_mut(&id).unwrap().bytes, offset, &bytes);
        self.adds(|t| _ = t.write(C, &id, offset, &bytes));
    }

    fn zero(&mut self) {
        let (id, offset) = (self.any(), self.aligned(self.matrix.most - self.matrix.write));
        let len = self.aligned(self.matrix.write);
        over(&mut self.all.get_mut(&id).unwrap().bytes, offset, &vec![0; len as usize]);
        self.adds(|t| _ = t.zero(C, &id, offset, len));
    }

    fn truncate(&mut self) {
        let (id, size) = (self.any(), self.aligned(self.matrix.most));
        self.all.get_mut(&id).unwrap().bytes.resize(size as usize, 0);
        self.adds(|t| _ = t.truncate(C, &id, size));
    }

    fn unlink(&mut self) {
        if self.all.len() > self.matrix.objects / 4 {
            let id = self.any();
            self.all.remove(&id);
            self.adds(|t| _ = t.remove(C, &id));
        }
    }

    fn clone_object(&mut self) {
        if self.all.len() < self.matrix.objects {
            let (from, to) = (self.any_written(), self.new_id());
            self.adds(|t| _ = t.clone_object(C, &from, &to));
            let content = self.all[&from].clone();
            self.all.insert(to, content);
        }
    }

    /// From the same offset to the same, as an OSD does it.
    fn clone_range(&mut self) {
        let (from, to) = (self.any_written(), self.any());
        let size = self.all[&from].bytes.len() as u64;
        if size == 0 || from == to {
            return;
        }
        let at = self.aligned(self.matrix.most - self.matrix.write).min(size - 1);
        let len = self.aligned(self.matrix.write).min(size - at);
        let bytes = self.all[&from].bytes[at as usize..(at + len) as usize].to_vec();
        over(&mut self.all.get_mut(&to).unwrap().bytes, at, &bytes);
        self.adds(|t| _ = t.clone_range(C, &from, &to, (at, len, at)));
    }

    /// To the next generation, where the last one's is the first.
    fn stash(&mut self) {
        let from = self.any_written();
        let to = ObjectId { generation: from.generation.wrapping_add(1), ..from.clone() };
        if !self.all.contains_key(&to) {
            self.adds(|t| _ = t.rename(C, &from, &to));
            let content = self.all.remove(&from).unwrap();
            self.all.insert(to, content);
        }
    }

    fn read(&mut self) {
        self.queue();
        let (id, most) = (self.any(), self.matrix.most);
        let (at, len) = (self.rng.random_range(0..=most / 2), self.rng.random_range(0..=most));
        let bytes = &self.all[&id].bytes;
        let end = bytes.len().min((at + len) as usize);
        assert!(self.bed.store().read(C, &id, at, len).unwrap() == bytes[end.min(at as usize)..end], "{id} at {at}");
    }

    fn stat(&mut self) {
        self.queue();
        let id = self.any();
        assert_eq!(self.bed.store().stat(C, &id).unwrap().size, self.all[&id].bytes.len() as u64);
    }

    fn scan(&mut self) {
        self.queue();
        for page in [usize::MAX, 10] {
            assert!(self.bed.ids(C, page).iter().eq(self.all.keys()));
        }
    }

    fn checked(&mut self) {
        self.queue();
        self.bed.remount();
        self.bed.checked();
    }

    fn set_attributes(&mut self) {
        let id = self.any();
        let (old, mut new) = (self.all[&id].attributes.keys().next().cloned(), BTreeMap::new());
        for _ in 0..self.rng.random_range(1..=5) {
            let (name_len, len) = (self.rng.random_range(4..=100), self.rng.random_range(4..=8192));
            let name = old.clone().filter(|_| self.rng.random()).unwrap_or_else(|| self.text(name_len));
            new.insert(name, self.text(len));
        }
        let all: Vec<(&[u8], &[u8])> = new.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let mut transaction = Transaction::new();
        transaction.set_attributes(C, &id, &all);
        self.adds(|t| *t = transaction);
        self.all.get_mut(&id).unwrap().attributes.extend(new);
    }

    fn remove_attribute(&mut self) {
        let id = self.any();
        if let Some((name, _)) = self.all.get_mut(&id).unwrap().attributes.pop_last() {
            self.adds(|t| _ = t.remove_attribute(C, &id, &name));
        }
    }

    fn attributes(&mut self) {
        self.queue();
        let id = self.any();
        assert!(self.bed.store().stat(C, &id).unwrap().attributes == self.all[&id].attributes);
    }

    fn turn(&mut self) {
        let weights = if self.matrix.limited { LIMITED } else { SYNTHETIC };
        let mut val = self.rng.random_range(0..weights.iter().map(|(weight, _)| weight).sum());
        for (weight, what) in weights {
            if val < *weight {
                return what(self);
            }
            val -= weight;
        }
    }

    /// All of it is as it should be, and goes.
    fn end(mut self) {
        self.checked();
        self.scan();
        for (id, content) in &self.all {
            let stat = self.bed.store().stat(C, id).unwrap();
            assert!(stat.attributes == content.attributes);
            assert!(self.bed.store().read(C, id, 0, u64::MAX).unwrap() == content.bytes, "{id}");
        }
        while !self.all.is_empty() {
            let (bed, all) = (&mut self.bed, &mut self.all);
            bed.does(|t| (0..10).filter_map(|_| all.pop_first()).for_each(|(id, _)| _ = t.remove(C, &id)));
        }
        self.bed.does(|t| _ = t.remove_collection(C));
        self.bed.takes_nothing();
        self.bed.end();
    }
}

type Turns = &'static [(u32, fn(&mut Synthetic))];

/// How often each thing is done. Checks are more often than there, since there are fewer turns.
const SYNTHETIC: Turns = &[
    (5, Synthetic::checked),
    (10, Synthetic::scan),
    (40, Synthetic::stat),
    (100, Synthetic::zero),
    (50, Synthetic::unlink),
    (250, Synthetic::write),
    (50, Synthetic::clone_object),
    (50, Synthetic::clone_range),
    (150, Synthetic::stash),
    (200, Synthetic::read),
    (100, Synthetic::truncate),
    (20, Synthetic::touch_if_few),
];

const LIMITED: Turns = &[
    (5, Synthetic::checked),
    (10, Synthetic::scan),
    (49, Synthetic::stat),
    (100, Synthetic::zero),
    (150, Synthetic::read),
    (150, Synthetic::write),
    (50, Synthetic::truncate),
    (100, Synthetic::clone_range),
    (100, Synthetic::stash),
    (150, Synthetic::unlink),
    (150, Synthetic::clone_object),
];

const ATTRIBUTES: Turns = &[
    (2, Synthetic::scan),
    (4, Synthetic::stat),
    (18, Synthetic::remove_attribute),
    (28, Synthetic::set_attributes),
    (2, Synthetic::clone_object),
    (8, Synthetic::stash),
    (38, Synthetic::attributes),
];

impl Synthetic {
    fn touch_if_few(&mut self) {
        if self.all.len() < self.matrix.objects {
            self.touch();
        }
    }
}

fn works(kind: Kind, options: Options, matrix: Matrix, seed: u64) {
    let matrix = Matrix { objects: if kind == Kind::Full { 40 } else { matrix.objects }, ..matrix };
    let mut all = Synthetic::new(Bed::new(kind, &usual(), options), matrix, seed);
    (0..matrix.turns).for_each(|_| all.turn());
    all.end();
}

#[test]
fn synthetic() {
    for (kind, seed) in [(Kind::Plain, 1), (Kind::Packed, 2), (Kind::Full, 3)] {
        works(kind, options(), USUAL, seed);
    }
}

/// Objects of many records: each block of its own.
#[test]
fn synthetic_matrix_sharding() {
    works(Kind::Plain, options(), Matrix { write: 64 << 10, align: 4096, ..USUAL }, 4);
}

#[test]
fn synthetic_matrix_limited() {
    let matrix = Matrix { write: 64 << 10, align: 4096, limited: true, turns: 400, ..USUAL };
    for objects in [60, 24] {
        for compression in [Compression::Zstd, Compression::Off] {
            for defer_below in [32 << 10, 0] {
                let options = Options { compression, defer_below, ..options() };
                works(Kind::Plain, options, Matrix { objects, ..matrix }, objects as u64 + defer_below);
            }
        }
    }
}

#[test]
fn synthetic_matrix_sharding_limited() {
    let matrix = Matrix { write: 64 << 10, align: 4096, limited: true, ..USUAL };
    works(Kind::Full, options(), matrix, 5);
}

#[test]
fn synthetic_matrix_csum_vs_compression() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let options = Options { compression, ..options() };
        works(Kind::Plain, options, Matrix { write: 128 << 10, align: 512, ..USUAL }, 6);
    }
}

#[test]
fn synthetic_matrix_compression() {
    let matrix = Matrix { objects: 12, turns: 300, most: 2 << 20, write: 512 << 10, align: 64 << 10, limited: false };
    for compression in [Compression::Lz4, Compression::Zstd, Compression::Off] {
        works(Kind::Plain, Options { compression, ..options() }, matrix, 7);
    }
}

#[test]
fn synthetic_matrix_prefer_deferred() {
    for compression in [Compression::Lz4, Compression::Off] {
        for defer_below in [32 << 10, 0] {
            let options = Options { compression, defer_below, ..options() };
            works(Kind::Plain, options, Matrix { write: 64 << 10, align: 512, turns: 500, ..USUAL }, 8);
        }
    }
}

#[test]
fn attr_synthetic() {
    for (kind, seed) in [(Kind::Plain, 9), (Kind::Full, 10)] {
        let mut all = Synthetic::new(Bed::new(kind, &usual(), options()), Matrix { objects: 100, ..USUAL }, seed);
        for _ in 0..600 {
            let mut val = all.rng.random_range(0..100);
            let turn = ATTRIBUTES.iter().find(|(weight, _)| {
                val < *weight || {
                    val -= weight;
                    false
                }
            });
            turn.unwrap().1(&mut all);
        }
        all.end();
    }
}
