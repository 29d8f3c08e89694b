//! What a client asks an OSD for, at random: of a thin layer over our store that makes of it what an OSD makes, of a model, and of a real OSD (`librados.py`).
//!
//! The layer has what matters to a store. An object that is written after a snapshot is cloned first, and attributes say which snapshots the clone stands for. Where a removed object
//! has clones, another one is left as a mark. Each write adds an entry to a log in an omap.

use crate::{given, new_store};
use imbrex_bluestore::Compression;
use imbrex_store::{CollectionId, ObjectId, Store, Transaction};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const C: CollectionId = CollectionId { pool: 7, seed: 0 };
const HEAD: u64 = u64::MAX - 1;
const OBJECTS: u64 = 8;
const BLOB: usize = 1 << 20;

/// `what object first second third`; the last two are a part of the blob, where it has bytes.
#[derive(Clone, Debug)]
struct Ask {
    what: &'static str,
    object: u64,
    n: [u64; 3],
}

const ASKS: [(&str, u32); 15] = [
    ("write", 16),
    ("append", 6),
    ("full", 6),
    ("truncate", 5),
    ("zero", 5),
    ("remove", 6),
    ("set", 6),
    ("unset", 4),
    ("pairs", 6),
    ("unpair", 4),
    ("clear", 2),
    ("snapshot", 3),
    ("forget", 1),
    ("back", 4),
    ("look", 2),
];

fn asks(seed: u64, count: usize) -> Vec<Ask> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut all, mut live, mut made) = (Vec::new(), Vec::<u64>::new(), 0);
    while all.len() < count {
        let mut val = rng.random_range(0..ASKS.iter().map(|(_, weight)| weight).sum());
        let found = ASKS.iter().find(|(_, weight)| {
            val < *weight || {
                val -= weight;
                false
            }
        });
        let (what, object) = (found.unwrap().0, rng.random_range(0..OBJECTS));
        let most = match what {
            "full" => 200_000,
            "write" | "append" => 70_000,
            _ => 300,
        };
        let len = if rng.random_bool(0.3) { [1, 511, 4096][rng.random_range(0..3)] } else { rng.random_range(1..most) };
        let (at, from) = (rng.random_range(0..1u64 << 19), rng.random_range(0..(BLOB as u64 - 200_000)));
        let n = match what {
            "set" | "unset" => [at % 5, from, len.min(300)],
            "pairs" | "unpair" => [at % 40, from, len.min(300)],
            "zero" => [at, 0, rng.random_range(1..200_000)],
            "snapshot" if live.len() < 4 => {
                made += 1;
                live.push(made);
                [made, 0, 0]
            }
            "forget" if live.len() > 2 => [live.remove(rng.random_range(0..live.len())), 0, 0],
            "back" if !live.is_empty() => [live[rng.random_range(0..live.len())], 0, 0],
            "snapshot" | "forget" | "back" => continue,
            _ => [at, from, len],
        };
        all.push(Ask { what, object, n });
    }
    all.push(Ask { what: "look", object: 0, n: [0; 3] });
    all
}

/// What zlib calls crc32.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

/// An object, as a client sees it.
#[derive(Clone, Default)]
struct Seen {
    bytes: Vec<u8>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    omap: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Seen {
    fn line(&self) -> String {
        let sums = |map: &BTreeMap<Vec<u8>, Vec<u8>>| {
            let one = |(key, value): (&Vec<u8>, &Vec<u8>)| format!("{}={:08x}", key.escape_ascii(), crc(value));
            map.iter().map(one).collect::<Vec<_>>().join(",")
        };
        format!("{} {:08x} [{}] [{}]", self.bytes.len(), crc(&self.bytes), sums(&self.attributes), sums(&self.omap))
    }
}

/// Whoever is asked.
trait Asked {
    /// False: there is no such object.
    fn ask(&mut self, ask: &Ask, data: &[u8]) -> bool;
    fn see(&mut self, object: u64, snap: Option<u64>) -> Option<Seen>;
    fn snaps(&self) -> Vec<u64>;

    fn look(&mut self) -> String {
        let (mut out, snaps) = ("look\n".to_string(), self.snaps());
        for snap in [None].into_iter().chain(snaps.into_iter().map(Some)) {
            let name = snap.map_or("head".to_string(), |snap| snap.to_string());
            for object in 0..OBJECTS {
                let line = self.see(object, snap).map_or("none".into(), |seen| seen.line());
                writeln!(out, "  {name} {object} {line}").unwrap();
            }
        }
        out
    }

    fn answers(&mut self, asks: &[Ask], blob: &[u8]) -> Vec<String> {
        let answer = |ask: &Ask| match ask.what {
            "look" => self.look(),
            _ => {
                let (from, len) = (ask.n[1] as usize, ask.n[2] as usize);
                if self.ask(ask, &blob[from..from + len]) { "done\n".into() } else { "none\n".into() }
            }
        };
        asks.iter().map(answer).collect()
    }
}

/// What a client expects: all of each snapshot is kept.
#[derive(Default)]
struct Plain {
    now: BTreeMap<u64, Seen>,
    then: BTreeMap<u64, BTreeMap<u64, Seen>>,
}

fn over(bytes: &mut Vec<u8>, at: u64, data: &[u8]) {
    bytes.resize(bytes.len().max(at as usize + data.len()), 0);
    bytes[at as usize..at as usize + data.len()].copy_from_slice(data);
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:02}").into_bytes()
}

fn attribute(n: u64) -> Vec<u8> {
    format!("a{n}").into_bytes()
}

impl Asked for Plain {
    fn ask(&mut self, ask: &Ask, data: &[u8]) -> bool {
        let there = self.now.contains_key(&ask.object);
        let [n, _, len] = ask.n;
        match ask.what {
            "snapshot" => drop(self.then.insert(n, self.now.clone())),
            "forget" => drop(self.then.remove(&n)),
            "back" => match self.then[&n].get(&ask.object).cloned() {
                Some(seen) => drop(self.now.insert(ask.object, seen)),
                None => drop(self.now.remove(&ask.object)),
            },
            "remove" => return self.now.remove(&ask.object).is_some(),
            "unset" | "unpair" | "clear" if !there => return false,
            "truncate" | "zero" if !there => {}
            _ => {
                let seen = self.now.entry(ask.object).or_default();
                match ask.what {
                    "write" => over(&mut seen.bytes, n, data),
                    "append" => seen.bytes.extend(data),
                    "full" => seen.bytes = data.to_vec(),
                    "truncate" => seen.bytes.resize(n as usize, 0),
                    // An OSD cuts where only zeros would be left.
                    "zero" if n + len >= seen.bytes.len() as u64 => seen.bytes.truncate(n as usize),
                    "zero" => seen.bytes[n as usize..(n + len) as usize].fill(0),
                    "set" => drop(seen.attributes.insert(attribute(n), data.to_vec())),
                    "unset" => drop(seen.attributes.remove(&attribute(n))),
                    "pairs" => seen.omap.extend((n..n + 5).map(|n| (key(n), data.to_vec()))),
                    "unpair" => drop(seen.omap.remove(&key(n))),
                    _ => seen.omap.clear(),
                }
            }
        }
        true
    }

    fn see(&mut self, object: u64, snap: Option<u64>) -> Option<Seen> {
        snap.map_or(&self.now, |snap| &self.then[&snap]).get(&object).cloned()
    }

    fn snaps(&self) -> Vec<u64> {
        self.then.keys().copied().collect()
    }
}

/// What an OSD makes of it.
struct Osd {
    store: Store,
    live: Vec<u64>,
    /// The newest snapshot that there was.
    newest: u64,
    written: u64,
}

/// Snapshots of an object: the newest when it was written last, and its clones with the snapshots that each stands for.
#[derive(Default)]
struct SnapSet {
    seq: u64,
    clones: Vec<(u64, Vec<u64>)>,
}

impl SnapSet {
    fn encode(&self) -> Vec<u8> {
        let all = self.clones.iter().flat_map(|(id, snaps)| {
            [*id, snaps.len() as u64].into_iter().chain(snaps.iter().copied()).collect::<Vec<_>>()
        });
        [self.seq].into_iter().chain(all).flat_map(u64::to_le_bytes).collect()
    }

    fn decode(bytes: &[u8]) -> SnapSet {
        let mut from = bytes.chunks(8).map(|n| u64::from_le_bytes(n.try_into().unwrap()));
        let mut set = SnapSet { seq: from.next().unwrap(), clones: Vec::new() };
        while let Some(id) = from.next() {
            let count = from.next().unwrap();
            set.clones.push((id, (0..count).map(|_| from.next().unwrap()).collect()));
        }
        set
    }
}

fn id(object: u64, snap: u64) -> ObjectId {
    let base = ObjectId::new(C.pool, b"", format!("o{object}").as_bytes());
    ObjectId { snap, generation: u64::MAX, ..base }
}

fn log_key(n: u64) -> Vec<u8> {
    format!("0000000010.{n:020}").into_bytes()
}

impl Osd {
    fn new(compression: Compression) -> Osd {
        let store = new_store(compression).1;
        let mut begin = Transaction::new();
        begin.create_collection(C, 0).touch(C, &id(u64::MAX, HEAD));
        store.commit(begin).unwrap();
        Osd { store, live: Vec::new(), newest: 0, written: 0 }
    }

    /// The size of an object that is there, and its snapshots.
    fn head(&self, object: u64) -> (Option<u64>, SnapSet) {
        match self.store.stat(C, &id(object, HEAD)) {
            Ok(stat) => {
                let there = !stat.attributes.contains_key(&b"whiteout"[..]);
                (there.then_some(stat.size), SnapSet::decode(&stat.attributes[&b"snapset"[..]]))
            }
            Err(_) => (None, SnapSet::default()),
        }
    }

    /// The object that a snapshot has.
    fn at(&self, object: u64, snap: u64) -> Option<ObjectId> {
        let (there, set) = self.head(object);
        if snap > set.seq {
            return there.map(|_| id(object, HEAD));
        }
        set.clones.iter().find(|(_, snaps)| snaps.contains(&snap)).map(|(clone, _)| id(object, *clone))
    }

    /// A write with what goes with it: a clone first, where a snapshot was taken since; and a line of the log behind.
    fn writes(&mut self, object: u64, what: impl FnOnce(&mut Transaction, &ObjectId)) {
        let (head, (there, mut set)) = (id(object, HEAD), self.head(object));
        let mut t = Transaction::new();
        if self.newest > set.seq {
            let snaps: Vec<u64> = self.live.iter().copied().filter(|snap| *snap > set.seq).collect();
            if there.is_some() && !snaps.is_empty() {
                t.clone_object(C, &head, &id(object, self.newest));
                set.clones.push((self.newest, snaps));
            }
            set.seq = self.newest;
        }
        what(&mut t, &head);
        t.set_attributes(C, &head, &[(b"_", &self.written.to_le_bytes()), (b"snapset", &set.encode())]);
        self.logs(&mut t);
        self.store.queue(t).unwrap();
    }

    fn logs(&mut self, t: &mut Transaction) {
        self.written += 1;
        let (n, log) = (self.written, id(u64::MAX, HEAD));
        t.omap_set(C, &log, &[(&log_key(n), &[n as u8; 170]), (b"_info", &n.to_le_bytes())]);
        if n.is_multiple_of(64) {
            t.omap_remove_range(C, &log, b"0000000000", &log_key(n - 32));
        }
    }

    /// It is gone, or a mark where it has clones.
    fn removes(&mut self, object: u64) {
        self.writes(object, |t, head| {
            t.remove(C, head).touch(C, head).set_attributes(C, head, &[(b"whiteout", b"")]);
        });
        self.tidies(object);
    }

    fn tidies(&mut self, object: u64) {
        let (there, set) = self.head(object);
        if there.is_none() && set.clones.is_empty() {
            let mut t = Transaction::new();
            t.remove_if_there(C, &id(object, HEAD));
            self.store.queue(t).unwrap();
        }
    }

    /// What stood for this snapshot alone goes.
    fn forgets(&mut self, snap: u64) {
        self.live.retain(|live| *live != snap);
        for object in 0..OBJECTS {
            let (_, mut set) = self.head(object);
            let Some(n) = set.clones.iter().position(|(_, snaps)| snaps.contains(&snap)) else { continue };
            let mut t = Transaction::new();
            set.clones[n].1.retain(|other| *other != snap);
            if set.clones[n].1.is_empty() {
                t.remove(C, &id(object, set.clones.remove(n).0));
            }
            t.set_attributes(C, &id(object, HEAD), &[(b"snapset", &set.encode())]);
            self.logs(&mut t);
            self.store.queue(t).unwrap();
            self.tidies(object);
        }
    }

    fn goes_back(&mut self, object: u64, snap: u64) {
        let (there, _) = self.head(object);
        match self.at(object, snap) {
            Some(clone) if clone.snap == HEAD => {}
            Some(clone) => self.writes(object, |t, head| {
                t.remove_if_there(C, head).clone_object(C, &clone, head);
            }),
            None if there.is_some() => self.removes(object),
            None => {}
        }
    }

    fn acts(&mut self, ask: &Ask, data: &[u8], size: u64) {
        let [n, _, len] = ask.n;
        self.writes(ask.object, |t, head| {
            t.touch(C, head).remove_attribute(C, head, b"whiteout");
            match ask.what {
                "write" => _ = t.write(C, head, n, data),
                "append" => _ = t.write(C, head, size, data),
                "full" => _ = t.truncate(C, head, 0).write(C, head, 0, data),
                "truncate" => _ = t.truncate(C, head, n),
                "zero" if n + len >= size => _ = t.truncate(C, head, n.min(size)),
                "zero" => _ = t.zero(C, head, n, len),
                "set" => _ = t.set_attributes(C, head, &[(&[b"_", &attribute(n)[..]].concat(), data)]),
                "unset" => _ = t.remove_attribute(C, head, &[b"_", &attribute(n)[..]].concat()),
                "pairs" => (n..n + 5).for_each(|n| _ = t.omap_set(C, head, &[(&key(n), data)])),
                "unpair" => _ = t.omap_remove(C, head, &[&key(n)]),
                _ => _ = t.omap_clear(C, head),
            }
        });
    }
}

impl Asked for Osd {
    fn ask(&mut self, ask: &Ask, data: &[u8]) -> bool {
        let (there, n) = (self.head(ask.object).0, ask.n[0]);
        match ask.what {
            "snapshot" => {
                self.live.push(n);
                self.newest = n;
            }
            "forget" => self.forgets(n),
            "back" => self.goes_back(ask.object, n),
            "remove" | "unset" | "unpair" | "clear" if there.is_none() => return false,
            "truncate" | "zero" if there.is_none() => {}
            "remove" => self.removes(ask.object),
            _ => self.acts(ask, data, there.unwrap_or(0)),
        }
        true
    }

    fn see(&mut self, object: u64, snap: Option<u64>) -> Option<Seen> {
        let id = match snap {
            Some(snap) => self.at(object, snap)?,
            None => self.head(object).0.map(|_| id(object, HEAD))?,
        };
        let users = |(name, value): (Vec<u8>, Vec<u8>)| match &name[..] {
            [b'_', rest @ ..] if !rest.is_empty() => Some((rest.to_vec(), value)),
            _ => None,
        };
        let attributes = self.store.stat(C, &id).unwrap().attributes.into_iter().filter_map(users).collect();
        let omap = self.store.omap(C, &id, b"", 1000).unwrap().all.into_iter().collect();
        Some(Seen { bytes: self.store.read(C, &id, 0, u64::MAX).unwrap(), attributes, omap })
    }

    fn snaps(&self) -> Vec<u64> {
        self.live.clone()
    }
}

fn blob(seed: u64) -> Vec<u8> {
    let mut blob = vec![0; BLOB];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut blob);
    // A part of it can be compressed.
    blob[BLOB / 2..].iter_mut().for_each(|byte| *byte &= 3);
    blob
}

fn same(found: &[String], should: &[String], asks: &[Ask], who: &str) {
    assert_eq!(found.len(), should.len(), "{who}");
    for (n, (found, should)) in found.iter().zip(should).enumerate() {
        let odd = found.lines().zip(should.lines()).find(|(a, b)| a != b);
        assert!(found == should, "{who}, {n}: {:?}: {odd:?}", asks[n]);
    }
}

#[test]
fn a_client_sees_what_it_expects() {
    for (seed, compression) in [(1, Compression::Off), (2, Compression::Lz4), (3, Compression::Zstd)] {
        let (asks, blob) = (asks(seed, 500), blob(seed));
        let should = Plain::default().answers(&asks, &blob);
        let mut osd = Osd::new(compression);
        same(&osd.answers(&asks, &blob), &should, &asks, "our store");
        crate::checked(&osd.store);
    }
}

/// Writes down what an OSD is to be asked for; and compares, when it has answered.
#[test]
fn librados_differential() {
    let Some(path) = given("IMBREX_CEPH_LIBRADOS") else { return };
    let number = |name: &str, usual| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    let (seed, count) = (number("SEED", 1), number("OPERATIONS", 400));
    let (asks, blob) = (asks(seed, count as usize), blob(seed));
    let Ok(answers) = std::fs::read_to_string(path.join("answers")) else {
        let line = |ask: &Ask| format!("{} {} {} {} {}\n", ask.what, ask.object, ask.n[0], ask.n[1], ask.n[2]);
        std::fs::write(path.join("asks"), asks.iter().map(line).collect::<String>()).unwrap();
        return std::fs::write(path.join("blob"), blob).unwrap();
    };
    let mut answered: Vec<String> = Vec::new();
    for line in answers.lines() {
        match line.starts_with(' ') {
            true => answered.last_mut().unwrap().push_str(&format!("{line}\n")),
            false => answered.push(format!("{line}\n")),
        }
    }
    let mut osd = Osd::new(Compression::Lz4);
    same(&osd.answers(&asks, &blob), &answered, &asks, "our store, and Ceph's");
    same(&Plain::default().answers(&asks, &blob), &answered, &asks, "the model, and Ceph's");
    crate::checked(&osd.store);
    let looks = asks.iter().filter(|ask| ask.what == "look").count();
    println!("recording: {} operations, compared at {looks} moments", asks.len() - looks);
}
