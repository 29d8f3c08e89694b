//! The streams of an object store as SMRSTORE measures with them (Table 3), at one drive's share: what each appends, when its chunks are
//! sealed, and which sealed chunk is deleted next. No I/O: [`super::object_workload`] plays it.

use imbrex_chunkstore::{ChunkId, StreamType};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
/// The paper's figures are those of a server with so many drives.
const DRIVES: f64 = 60.0;

/// One stream.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) name: &'static str,
    pub(super) stream: StreamType,
    /// Bytes a second at the paper's rate.
    pub(super) rate: f64,
    /// Chunks that are open for writing at once.
    pub(super) open: usize,
    /// Its chunks are sealed at so many bytes; `None`: where the store's limit is.
    pub(super) most: Option<u64>,
    /// Smallest and largest append, in steps of 4 KiB.
    pub(super) pieces: (u64, u64),
    /// Of its chunks, how often one is deleted in proportion to others: those of one class are deleted at random. A chunk's class is drawn when it is made.
    pub(super) classes: &'static [Class],
}

/// Chunks that live alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    /// How many of the source's chunks.
    pub(super) part: f64,
    /// How often one of them is deleted.
    pub(super) weight: f64,
}

/// All chunks of a source live alike.
pub(super) const ALIKE: &[Class] = &[Class { part: 1.0, weight: 1.0 }];

/// The four streams of Table 3, at one drive's share: jobs × rate, and jobs × files.
pub(super) fn table3() -> Vec<Source> {
    let of = |name, stream, (jobs, files, rate): (f64, f64, f64), most, pieces| Source {
        name,
        stream,
        rate: jobs * rate * 1e6 / DRIVES,
        open: (jobs * files / DRIVES).round() as usize,
        most,
        pieces,
        classes: ALIKE,
    };
    vec![
        of("OSS GC Wr 1", StreamType::GC, (8.0, 25.0, 400.0), None, (MIB, MIB)),
        of("OSS GC Wr 2", StreamType::GC, (8.0, 25.0, 20.0), Some(64 * MIB), (MIB, MIB)),
        of("OSS Data Wr", StreamType::DATA, (3.0, 300.0, 200.0), None, (MIB, MIB)),
        of("OSS Meta Wr", StreamType::METADATA, (1.0, 500.0, 80.0), Some(4 * MIB), (4 * KIB, 128 * KIB)),
    ]
}

/// Appends of Table 3 that are under way at once, at one drive's share: jobs × depth of each stream, 616 on 60 drives.
pub(super) fn in_flight() -> usize {
    const EACH: [(f64, f64); 4] = [(8.0, 32.0), (8.0, 32.0), (3.0, 32.0), (1.0, 8.0)];
    (EACH.iter().map(|(jobs, depth)| jobs * depth).sum::<f64>() / DRIVES).round() as usize
}

/// Whose turn it is to append, how many bytes, and when that is at the paper's rate, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    pub(super) source: usize,
    pub(super) len: u64,
    pub(super) due: f64,
}

/// The same with chunks a part as long, for zones a part as large. Appends shrink less, so that their framing stays small.
pub(super) fn shrunk(sources: Vec<Source>, part: u64) -> Vec<Source> {
    let piece = |len: u64| (len / part.isqrt()).next_multiple_of(4 * KIB);
    let shrink = |source: Source| Source {
        most: source.most.map(|most| most / part),
        pieces: (piece(source.pieces.0), piece(source.pieces.1)),
        ..source
    };
    sources.into_iter().map(shrink).collect()
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// A chunk that is full, to be sealed before.
    pub(super) seal: Option<ChunkId>,
    /// Where it is a new one, its kind.
    pub(super) create: Option<StreamType>,
    pub(super) id: ChunkId,
    /// Where in the chunk it goes, and how long it is.
    pub(super) at: u64,
    pub(super) len: u64,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    id: ChunkId,
    len: u64,
    class: usize,
}

/// All chunks that there are.
pub(super) struct Chunks {
    sources: Vec<Source>,
    /// Most bytes of a chunk, by source.
    limits: Vec<u64>,
    issued: Vec<u64>,
    open: Vec<Vec<Option<Chunk>>>,
    /// By class of all sources one after the other, with what a class weighs.
    sealed: Vec<(f64, Vec<(ChunkId, u64)>)>,
    /// The first class of each source.
    first: Vec<usize>,
    random: ChaCha8Rng,
    next: u64,
    pub(super) sealed_bytes: u64,
    pub(super) deleted: u64,
}

impl Chunks {
    /// None yet. `limit`: most bytes of a chunk that the store takes, by kind and length of an append.
    pub(super) fn new(sources: Vec<Source>, limit: impl Fn(StreamType, u64) -> u64, seed: u64) -> Chunks {
        let (mut sealed, mut first) = (Vec::new(), Vec::new());
        for source in &sources {
            first.push(sealed.len());
            sealed.extend(source.classes.iter().map(|class| (class.weight, Vec::new())));
        }
        Chunks {
            limits: sources.iter().map(|s| s.most.unwrap_or(u64::MAX).min(limit(s.stream, s.pieces.1))).collect(),
            issued: vec![0; sources.len()],
            open: sources.iter().map(|s| vec![None; s.open.max(1)]).collect(),
            sealed,
            first,
            random: ChaCha8Rng::seed_from_u64(seed),
            next: 0,
            sealed_bytes: 0,
            deleted: 0,
            sources,
        }
    }

    /// The source whose turn it is: each keeps its share.
    pub(super) fn turn(&mut self) -> Turn {
        let due = |i: usize| self.issued[i] as f64 / self.sources[i].rate * 1e9;
        let all = (0..self.sources.len()).map(|i| (i, due(i)));
        let (source, due) = all.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0));
        let (least, most) = self.sources[source].pieces;
        let steps = (most - least) / (4 * KIB);
        let len = least + self.random.random_range(0..=steps) * 4 * KIB;
        self.issued[source] += len;
        Turn { source, len, due }
    }

    /// The chunk that a turn goes to: any of the source's open ones.
    pub(super) fn piece(&mut self, Turn { source, len, .. }: Turn) -> Piece {
        let at = self.random.random_range(0..self.open[source].len());
        let full = self.open[source][at].take_if(|chunk| chunk.len + len > self.limits[source]);
        if let Some(chunk) = full {
            self.sealed[self.first[source] + chunk.class].1.push((chunk.id, chunk.len));
            self.sealed_bytes += chunk.len;
        }
        let mut create = None;
        if self.open[source][at].is_none() {
            create = Some(self.sources[source].stream);
            let mut left: f64 = self.random.random();
            let classes = self.sources[source].classes;
            let class = classes.iter().position(|class| {
                left -= class.part;
                left < 0.0
            });
            let id = ChunkId::of_number(self.next);
            self.next += 1;
            self.open[source][at] = Some(Chunk { id, len: 0, class: class.unwrap_or(classes.len() - 1) });
        }
        let none = Chunk { id: ChunkId::of_number(u64::MAX), len: 0, class: 0 };
        let chunk = self.open[source][at].get_or_insert(none);
        let at = chunk.len;
        chunk.len += len;
        Piece { seal: full.map(|chunk| chunk.id), create, id: chunk.id, at, len }
    }

    /// Begins with these sealed chunks, by source, its own from this number on.
    pub(super) fn resume(&mut self, next: u64, sealed: Vec<(usize, ChunkId, u64)>) {
        self.next = next;
        for (source, id, len) in sealed {
            self.sealed[self.first[source]].1.push((id, len));
            self.sealed_bytes += len;
        }
    }

    /// A sealed chunk that is deleted now: any, in proportion to what its class weighs.
    pub(super) fn dies(&mut self) -> Option<ChunkId> {
        let weight = |(weight, chunks): &(f64, Vec<_>)| weight * chunks.len() as f64;
        let all: f64 = self.sealed.iter().map(weight).sum();
        let mut left = self.random.random::<f64>() * all;
        let class = self.sealed.iter().position(|class| {
            left -= weight(class);
            left < 0.0 && !class.1.is_empty()
        });
        let class = class.or_else(|| self.sealed.iter().position(|class| !class.1.is_empty()))?;
        let chunks = &mut self.sealed[class].1;
        let at = self.random.random_range(0..chunks.len());
        let (id, len) = chunks.swap_remove(at);
        self.sealed_bytes -= len;
        self.deleted += 1;
        Some(id)
    }

    /// Every chunk that shall be there, its length, and whether it is sealed.
    pub(super) fn all(&self) -> impl Iterator<Item = (ChunkId, u64, bool)> {
        let open = self.open.iter().flatten().flatten().map(|chunk| (chunk.id, chunk.len, false));
        self.sealed.iter().flat_map(|class| &class.1).map(|(id, len)| (*id, *len, true)).chain(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_streams_are_a_sixtieth_of_the_papers() {
        let all = table3();
        let rate: f64 = all.iter().map(|source| source.rate).sum();
        assert!((rate / 1e6 - 4040.0 / 60.0).abs() < 1e-6, "{rate}");
        assert_eq!(all.iter().map(|source| source.open).collect::<Vec<_>>(), [3, 3, 15, 8]);
        assert_eq!(in_flight(), 10);
    }

    #[test]
    fn each_source_keeps_its_share_and_seals_what_is_full() {
        let mut chunks = Chunks::new(table3(), |_, _| 253 * MIB, 1);
        let mut sealed = 0;
        while chunks.issued.iter().sum::<u64>() < 4 << 30 {
            let turn = chunks.turn();
            let piece = chunks.piece(turn);
            let open = || chunks.open[turn.source].iter().flatten();
            assert_eq!(piece.create.is_some(), open().any(|c| c.len == piece.len && c.id == piece.id));
            assert!(open().any(|c| c.id == piece.id && c.len == piece.at + piece.len));
            sealed += u64::from(piece.seal.is_some());
        }
        let part = |i: usize| chunks.issued[i] as f64 / chunks.issued.iter().sum::<u64>() as f64;
        assert!((part(0) - 0.792).abs() < 0.01 && (part(3) - 0.02).abs() < 0.005, "{:?}", chunks.issued);
        assert_eq!(chunks.all().filter(|(.., sealed)| *sealed).count() as u64, sealed);
        let all: u64 = chunks.all().map(|(_, len, _)| len).sum();
        assert_eq!(all, chunks.issued.iter().sum::<u64>());
        let id = chunks.dies().unwrap();
        assert!(chunks.all().all(|(other, ..)| other != id) && chunks.deleted == 1);
    }

    #[test]
    fn classes_die_in_proportion_to_their_weight() {
        const TWO: &[Class] = &[Class { part: 0.5, weight: 9.0 }, Class { part: 0.5, weight: 1.0 }];
        let source = Source { classes: TWO, most: Some(MIB), ..table3().remove(1) };
        let mut chunks = Chunks::new(vec![source], |_, _| 253 * MIB, 1);
        for _ in 0..4000 {
            let turn = chunks.turn();
            chunks.piece(turn);
        }
        let before = (chunks.sealed[0].1.len(), chunks.sealed[1].1.len());
        (0..400).for_each(|_| assert!(chunks.dies().is_some()));
        let gone = (before.0 - chunks.sealed[0].1.len(), before.1 - chunks.sealed[1].1.len());
        assert!(gone.0 > 6 * gone.1 && gone.1 > 10, "{gone:?}");
    }
}
