//! The operations of YCSB's core workloads A to F, by the rules of its generators (`site.ycsb:core` 0.17.0); the paper on it is Cooper and others, *Benchmarking
//! cloud serving systems with YCSB*, SoCC 2010. The zipfian numbers are by Gray and others, *Quickly generating billion-record synthetic databases*, SIGMOD 1994.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The exponent of all its zipfian distributions.
const THETA: f64 = 0.99;
/// A scrambled distribution draws from so many items, whatever it has, and then hashes.
const SCRAMBLED: u64 = 10_000_000_000;
/// The sum of their weights, as YCSB has it.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;
/// Most pairs of a scan.
const LONGEST: u64 = 100;

/// FNV-1 with the exclusive or first, over the eight bytes of a number, the lowest first; without its sign.
pub(super) fn hash(mut number: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for _ in 0..8 {
        hash = (hash ^ (number & 0xff)).wrapping_mul(1_099_511_628_211);
        number >>= 8;
    }
    hash.cast_signed().unsigned_abs()
}

/// The sum of the weights of the items from `from` on and before `to`.
fn zeta(from: u64, to: u64) -> f64 {
    (from..to).map(|item| ((item + 1) as f64).powf(-THETA)).sum()
}

/// Numbers from 0 on, of which the first is the most likely.
struct Zipfian {
    /// How many there were at the start.
    first: u64,
    items: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    fn new(items: u64) -> Zipfian {
        Zipfian::with(items, zeta(0, items))
    }

    fn with(items: u64, zeta: f64) -> Zipfian {
        let mut zipfian = Zipfian { first: items, items, zeta, eta: 0.0 };
        zipfian.weigh();
        zipfian
    }

    fn weigh(&mut self) {
        self.eta = (1.0 - (2.0 / self.first as f64).powf(1.0 - THETA)) / (1.0 - zeta(0, 2) / self.zeta);
    }

    /// One of so many, which only become more.
    fn next(&mut self, items: u64, random: &mut impl Rng) -> u64 {
        if items > self.items {
            self.zeta += zeta(self.items, items);
            self.items = items;
            self.weigh();
        }
        let drawn: f64 = random.random();
        match drawn * self.zeta {
            weight if weight < 1.0 => 0,
            weight if weight < 1.0 + 0.5f64.powf(THETA) => 1,
            _ => (items as f64 * (self.eta * drawn - self.eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64,
        }
    }
}

/// Which records are asked for.
enum Chooser {
    /// Of so many, those that are likely scattered among them.
    Scrambled(Zipfian, u64),
    /// Those that were inserted last.
    Latest(Zipfian),
}

impl Chooser {
    fn next(&mut self, last: u64, random: &mut impl Rng) -> u64 {
        match self {
            Chooser::Scrambled(zipfian, records) => hash(zipfian.next(SCRAMBLED, random)) % *records,
            Chooser::Latest(zipfian) => last.saturating_sub(zipfian.next(last, random)),
        }
    }
}

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    A,
    B,
    C,
    D,
    E,
    F,
}

impl Workload {
    pub(super) const ALL: [(Workload, &str); 6] = [
        (Workload::A, "A"),
        (Workload::B, "B"),
        (Workload::C, "C"),
        (Workload::D, "D"),
        (Workload::E, "E"),
        (Workload::F, "F"),
    ];

    /// The part of operations that reads, and what the others are. In E they are scans, and not reads.
    fn parts(self) -> (f64, Other) {
        match self {
            Workload::A => (0.5, Other::Update),
            Workload::B => (0.95, Other::Update),
            Workload::C => (1.0, Other::Update),
            Workload::D | Workload::E => (0.95, Other::Insert),
            Workload::F => (0.5, Other::Change),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    Update,
    Insert,
    Change,
}

/// What is done with a record, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read(u64),
    Update(u64),
    Insert(u64),
    /// From this record on, so many pairs.
    Scan(u64, u64),
    /// Read, changed and written.
    Change(u64),
}

/// The operations of a workload, one after another.
pub(super) struct Operations {
    workload: Workload,
    chooser: Chooser,
    /// Records that are there.
    records: u64,
    random: ChaCha8Rng,
}

impl Operations {
    /// So many operations on so many records.
    pub(super) fn new(workload: Workload, records: u64, operations: u64, seed: u64) -> Operations {
        let (reads, other) = workload.parts();
        let chooser = match workload {
            // Where its generator begins it knows the number of the last record.
            Workload::D => Chooser::Latest(Zipfian::new((records - 1).max(1))),
            _ => {
                // Room for twice as many as are to be inserted; who draws one that is not there draws again.
                let more = if other == Other::Insert { operations as f64 * (1.0 - reads) * 2.0 } else { 0.0 };
                Chooser::Scrambled(Zipfian::with(SCRAMBLED, SCRAMBLED_ZETA), records + more as u64)
            }
        };
        Operations { workload, chooser, records, random: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// A record that is there.
    fn record(&mut self) -> u64 {
        loop {
            let record = self.chooser.next(self.records - 1, &mut self.random);
            if record < self.records {
                return record;
            }
        }
    }

    pub(super) fn next(&mut self) -> Operation {
        let (reads, other) = self.workload.parts();
        if self.random.random::<f64>() < reads {
            let record = self.record();
            return match self.workload {
                Workload::E => Operation::Scan(record, self.random.random_range(1..=LONGEST)),
                _ => Operation::Read(record),
            };
        }
        match other {
            Other::Update => Operation::Update(self.record()),
            Other::Change => Operation::Change(self.record()),
            Other::Insert => {
                self.records += 1;
                Operation::Insert(self.records - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 1_000_000;

    /// Fails unless the items come as often as those of YCSB's own generator, of 20 million draws.
    fn as_often(mut next: impl FnMut() -> u64, expected: &[(u64, f64)]) {
        let mut counts = vec![0u32; 2000];
        (0..DRAWS).for_each(|_| counts[next() as usize] += 1);
        for (item, often) in expected {
            let ours = f64::from(counts[*item as usize]) / DRAWS as f64;
            // Five deviations.
            assert!((ours - often).abs() < 5.0 * (often / DRAWS as f64).sqrt(), "{item}: {ours} {often}");
        }
    }

    #[test]
    fn sums_and_hashes_are_those_of_ycsb() {
        // Its core 0.17.0 printed these: zetastatic and Utils.hash.
        for (items, sum) in [(2, 1.5034777750283594), (1000, 7.728953217284729), (312_500, 14.064111946179716)] {
            assert!((zeta(0, items) - sum).abs() < 1e-9 * sum, "{items}");
        }
        for (number, hashed) in [
            (0, 6284781860667377211),
            (1, 8517097267634966620),
            (2, 1820151046732198393),
            (1000, 5952875239596136740),
            (312_499, 2359698842767445402),
            (9_999_999_999, 3605131173811637474),
        ] {
            assert_eq!(hash(number), hashed, "{number}");
        }
        // The sum of ten billion is not computed here: the integral on from a million is as near as that.
        let rest = |items: f64| items.powf(1.0 - THETA) / (1.0 - THETA);
        let all = zeta(0, 1_000_000) + rest(1e10) - rest(1e6);
        assert!((all - SCRAMBLED_ZETA).abs() < 1e-4, "{all}");
    }

    #[test]
    fn records_come_as_often_as_from_ycsb() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut zipfian = Zipfian::new(1000);
        let expected = [(0, 0.129504), (1, 0.065107), (2, 0.051077), (3, 0.036356), (4, 0.028287), (5, 0.023140)];
        as_often(|| zipfian.next(1000, &mut random), &expected);
        let mut scrambled = Chooser::Scrambled(Zipfian::with(SCRAMBLED, SCRAMBLED_ZETA), 1000);
        let expected =
            [(211, 0.038860), (620, 0.020191), (393, 0.016397), (802, 0.012077), (769, 0.009582), (360, 0.008053)];
        as_often(|| scrambled.next(999, &mut random), &expected);
        let mut latest = Chooser::Latest(Zipfian::new(999));
        let expected =
            [(999, 0.129397), (998, 0.065188), (997, 0.051061), (996, 0.036350), (995, 0.028313), (994, 0.023152)];
        as_often(|| latest.next(999, &mut random), &expected);
    }

    #[test]
    fn workloads_have_their_parts() {
        for (workload, name) in Workload::ALL {
            let mut all = Operations::new(workload, 1000, 20_000, 3);
            let (mut reads, mut others, mut scans, mut longest, mut there) = (0, 0, 0u64, 0, 1000);
            for _ in 0..20_000 {
                match all.next() {
                    Operation::Read(record) if workload != Workload::E => {
                        assert!(record < there);
                        reads += 1;
                    }
                    Operation::Scan(record, long) if workload == Workload::E => {
                        assert!(record < there && long >= 1);
                        (reads, scans, longest) = (reads + 1, scans + long, longest.max(long));
                    }
                    Operation::Update(_) if matches!(workload, Workload::A | Workload::B) => others += 1,
                    Operation::Change(_) if workload == Workload::F => others += 1,
                    Operation::Insert(record) if matches!(workload, Workload::D | Workload::E) => {
                        assert_eq!(record, there);
                        (others, there) = (others + 1, there + 1);
                    }
                    other => panic!("{name}: {other:?}"),
                }
            }
            let part = f64::from(reads) / 20_000.0;
            let wanted = match name {
                "A" | "F" => 0.5,
                "C" => 1.0,
                _ => 0.95,
            };
            assert!((part - wanted).abs() < 0.02 && reads + others == 20_000, "{name}: {part}");
            if workload == Workload::E {
                assert_eq!(longest, LONGEST);
                assert!((scans as f64 / f64::from(reads) - 50.5).abs() < 1.0);
            }
        }
    }
}
