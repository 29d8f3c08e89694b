//! `cache-policy`: which part of requests a cache has, by what it lets go: `quick_cache`, which the object store has for decoded records, beside 2Q and LRU. BlueStore has 2Q for its onodes
//! and buffers (TOS 2020). No drive and no clock: keys alone, each of the same size.

use super::result::Row;
use super::{Experiment, Needs, Rule, Run, Stop};
use quick_cache::{OptionsBuilder, UnitWeighter};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cache-policy",
    about: "Which part of requests a cache of decoded records has: quick_cache beside 2Q and LRU",
    paper: "BlueStore (TOS 2020) has 2Q (Johnson and Shasha, VLDB 1994), and no figure of it",
    speed: 1.0,
    rows: |_| rows().map(|(name, ..)| name).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: 256 << 20 },
    run,
};

const KEYS: u64 = 100_000;
/// Requests that count, behind half as many that do not.
const REQUESTS: u64 = 1_000_000;
/// Per cent of the keys that a cache takes.
const BUDGETS: [u64; 4] = [1, 5, 10, 25];
/// What is asked for most is other keys after so many requests.
const MOVES: u64 = 100_000;
/// A scan of so many keys in order, of all keys in the end.
const SCAN: u64 = 5000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Zipf,
    Uniform,
    /// Each twice, as a read looks an object up before and behind.
    Twice,
    Moving,
    /// So many per cent of the requests are of scans.
    Scans(u64),
}

const LOADS: [(&str, Load); 6] = [
    ("zipf 0.99", Load::Zipf),
    ("uniform", Load::Uniform),
    ("zipf 0.99, each twice", Load::Twice),
    ("zipf 0.99, moving", Load::Moving),
    ("zipf 0.99, a quarter of scans", Load::Scans(25)),
    ("zipf 0.99, three quarters of scans", Load::Scans(75)),
];

fn rows() -> impl Iterator<Item = (String, Load, u64)> {
    LOADS.into_iter().flat_map(|(name, load)| {
        BUDGETS.into_iter().map(move |percent| (format!("{name}: {percent} % of the keys"), load, percent))
    })
}

/// Keys by how often they are asked for, where each is as frequent as its place to the power of 0.99 is small.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new() -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=KEYS).map(|place| {
            sum += (place as f64).powf(-0.99);
            sum
        });
        Zipf(sums.collect())
    }

    fn next(&self, random: &mut ChaCha8Rng) -> u64 {
        let all = self.0.last().copied().unwrap_or(1.0);
        let at = random.random::<f64>() * all;
        self.0.partition_point(|sum| *sum < at) as u64
    }
}

/// Has `ask` be asked for all keys of a load, in order; the number of the request is with each.
fn requests(load: Load, zipf: &Zipf, count: u64, mut ask: impl FnMut(u64, u64)) {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let (mut last, mut scan, mut left) = (0, 0, 0);
    for n in 0..count {
        let key = match load {
            Load::Uniform => random.random_range(0..KEYS),
            Load::Zipf => zipf.next(&mut random),
            Load::Twice if n % 2 == 1 => last,
            Load::Twice => zipf.next(&mut random),
            Load::Moving => (zipf.next(&mut random) + n / MOVES * 7919) % KEYS,
            Load::Scans(percent) => {
                // As many scans as make that part of all.
                if left == 0 && random.random_range(0..SCAN * (100 - percent)) < percent {
                    left = SCAN;
                }
                match left {
                    0 => zipf.next(&mut random),
                    _ => {
                        left -= 1;
                        scan = (scan + 1) % KEYS;
                        scan
                    }
                }
            }
        };
        last = key;
        ask(n, key);
    }
}

/// A cache of keys.
trait Cache {
    /// Whether it has the key; it takes it, where it does not.
    fn has(&mut self, key: u64) -> bool;
}

/// Keys in the order of their last use.
#[derive(Default)]
struct Order {
    by_key: HashMap<u64, u64>,
    by_time: BTreeMap<u64, u64>,
    time: u64,
}

impl Order {
    fn len(&self) -> usize {
        self.by_key.len()
    }

    fn has(&self, key: u64) -> bool {
        self.by_key.contains_key(&key)
    }

    /// It is the last one now.
    fn put(&mut self, key: u64) {
        self.remove(key);
        self.time += 1;
        self.by_key.insert(key, self.time);
        self.by_time.insert(self.time, key);
    }

    fn remove(&mut self, key: u64) {
        if let Some(time) = self.by_key.remove(&key) {
            self.by_time.remove(&time);
        }
    }

    fn pop_first(&mut self) -> Option<u64> {
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }
}

struct Lru {
    most: usize,
    keys: Order,
}

impl Cache for Lru {
    fn has(&mut self, key: u64) -> bool {
        let has = self.keys.has(key);
        self.keys.put(key);
        if self.keys.len() > self.most {
            self.keys.pop_first();
        }
        has
    }
}

/// The full version, with the parts that its authors recommend: a quarter of the cache for what came lately, and the names of half as many as it has of what has left that part.
struct TwoQueues {
    most: usize,
    /// What came lately, in the order in which it came.
    new: Order,
    /// What has left `new`, its names alone.
    left: Order,
    /// What was asked for again.
    kept: Order,
}

impl TwoQueues {
    fn new(most: usize) -> TwoQueues {
        TwoQueues { most, new: Order::default(), left: Order::default(), kept: Order::default() }
    }

    fn make_room(&mut self) {
        if self.new.len() + self.kept.len() < self.most {
            return;
        }
        if self.new.len() > self.most / 4 || self.kept.len() == 0 {
            if let Some(key) = self.new.pop_first() {
                self.left.put(key);
            }
            if self.left.len() > self.most / 2 {
                self.left.pop_first();
            }
        } else {
            self.kept.pop_first();
        }
    }
}

impl Cache for TwoQueues {
    fn has(&mut self, key: u64) -> bool {
        if self.kept.has(key) {
            self.kept.put(key);
            return true;
        }
        if self.new.has(key) {
            return true;
        }
        let again = self.left.has(key);
        self.make_room();
        if again {
            self.left.remove(key);
            self.kept.put(key);
        } else {
            self.new.put(key);
        }
        false
    }
}

type Fixed = BuildHasherDefault<DefaultHasher>;
struct Quick(quick_cache::sync::Cache<u64, (), UnitWeighter, Fixed>);

impl Quick {
    fn new(most: usize) -> Result<Quick, Stop> {
        let mut options = OptionsBuilder::new();
        options.shards(1).estimated_items_capacity(most).weight_capacity(most as u64);
        let options = options.build().map_err(|error| format!("quick_cache refuses its options: {error}"))?;
        Ok(Quick(quick_cache::sync::Cache::with_options(options, UnitWeighter, Fixed::default(), Default::default())))
    }
}

impl Cache for Quick {
    fn has(&mut self, key: u64) -> bool {
        let has = self.0.get(&key).is_some();
        if !has {
            self.0.insert(key, ());
        }
        has
    }
}

const QUICK: &str = "quick_cache, hits in %";
const TWO: &str = "2Q, hits in %";
const LRU: &str = "LRU, hits in %";

fn row(run: &Run, zipf: &Zipf, load: Load, percent: u64) -> Result<Row, Stop> {
    let most = (KEYS * percent / 100) as usize;
    let count = if run.options.short { REQUESTS / 100 } else { REQUESTS };
    let mut caches: [(&str, Box<dyn Cache>); 3] = [
        (QUICK, Box::new(Quick::new(most)?)),
        (TWO, Box::new(TwoQueues::new(most))),
        (LRU, Box::new(Lru { most, keys: Order::default() })),
    ];
    let mut hits = [0u64; 3];
    requests(load, zipf, count + count / 2, |n, key| {
        for ((_, cache), hits) in caches.iter_mut().zip(&mut hits) {
            *hits += u64::from(cache.has(key) && n >= count / 2);
        }
    });
    let mut row = Row { rule: Rule::Whole.name().into(), ..Row::new("", "no drive") };
    row.operations = Some(count);
    let figures =
        caches.iter().zip(hits).map(|((name, _), hits)| ((*name).to_owned(), hits as f64 * 100.0 / count as f64));
    row.figures.extend(figures);
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.once("keys alone: every run is the same");
    run.setting(
        "keys",
        format!("{KEYS}, each of the same size; {REQUESTS} requests behind half as many that do not count"),
    );
    run.setting(
        "2Q",
        "a quarter of the cache for what came lately; the names of half as many as it has are remembered",
    );
    run.setting("scans", format!("{SCAN} keys in order, on from where the last scan ended"));
    let zipf = Zipf::new();
    for (name, load, percent) in rows() {
        run.row(&name, |run| row(run, &zipf, load, percent))?;
    }
    Ok(())
}
