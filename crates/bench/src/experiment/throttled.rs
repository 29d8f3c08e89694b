//! Whether cleaning in the background keeps its promise (issue 5, part 5): what users do takes no longer, on average, than the configured factor.
//! The store's own bursts on the [virtual clock](super::virtual_clock), beside clients that append; their pace is the store's
//! [`throttle`](imbrex_zones::clean::throttle), told what the store's meter would tell it.

use super::chunk_write::{DRIVE, TURNAROUND, make_durable};
use super::virtual_clock::{Host, Nanoseconds, Steps};
use imbrex_chunkstore::{Append, ChunkId, ChunkStore, Durability, Options, StreamType};
use imbrex_emulator::{Profile, TraceEntry};
use imbrex_zones::clean::throttle::{Mean, Pace, Seen, pace};
use std::time::Duration;

const BUFFERED: Append = Append { offset: None, durability: Durability::Buffered };
const ZONES: u32 = 96;
const ZONE: u64 = 16 << 20;
/// Bytes of an append.
const SIZE: usize = 16 << 10;
/// Bursts until the throttle knows what they do, and those that are measured.
const FIRST: u32 = 4;
const BURSTS: u32 = 12;
/// Appends before anything is cleaned.
const QUIET: u64 = 100;

/// Chunks that half of each zone is left of when the odd ones are deleted.
const OLD: u64 = 35 * 14;

struct Play {
    host: Host,
    steps: Steps,
    clients: usize,
    through: bool,
    came: Vec<Nanoseconds>,
    /// Bursts that had begun or ended when it came: odd while one is under way.
    seen: Vec<u32>,
    edges: u32,
    gathered: Vec<usize>,
    asked: Vec<TraceEntry>,
    committing: Option<Vec<usize>>,
    calm: Mean,
    all: Mean,
    /// Of those that are measured, and the number of the first.
    measured: Mean,
    first: Option<u64>,
    answers: u64,
    appended: u64,
}

fn add(mean: &mut Mean, took: Nanoseconds) {
    *mean = Mean { count: mean.count + 1, nanoseconds: mean.nanoseconds + took as u64 };
}

fn mean(of: Mean) -> f64 {
    of.nanoseconds as f64 / of.count.max(1) as f64
}

impl Play {
    fn new(cache: bool, clients: usize) -> Play {
        let profile = Profile { zone_size: ZONE, ..Profile::named(DRIVE).unwrap() };
        // Nobody cleans but who is told to.
        let options = Options { max_slowdown: None, clean_below: Some(0), ..Options::default() };
        let host = Host::packed(&profile, ZONES, cache, options).unwrap();
        let store = &host.store;
        for n in 0..OLD {
            let id = ChunkId::of_number(n);
            store.create_with(id, StreamType::GC, Durability::Buffered).unwrap();
            (0..4).for_each(|_| assert!(store.append_with(id, &[7; 256 << 10], BUFFERED).is_ok()));
            store.seal_with(id, Durability::Buffered).unwrap();
        }
        (0..OLD)
            .filter(|n| n % 2 == 1)
            .for_each(|n| store.delete_with(ChunkId::of_number(n), Durability::Buffered).unwrap());
        (0..clients).for_each(|n| store.create_with(new(n, 0), StreamType::DATA, Durability::Buffered).unwrap());
        store.sync().unwrap();
        // Evenly over the whole drive.
        let apart = profile.capacity / u64::from(ZONES) / ZONE * ZONE;
        let steps = Steps::new(&profile, cache, (0..u64::from(ZONES)).map(|zone| zone * apart).collect()).unwrap();
        let (came, seen) = (vec![0.0; clients], vec![0; clients]);
        Play {
            host,
            steps,
            clients,
            through: !cache,
            came,
            seen,
            edges: 0,
            gathered: Vec::new(),
            asked: Vec::new(),
            committing: None,
            calm: Mean::default(),
            all: Mean::default(),
            measured: Mean::default(),
            first: None,
            answers: 0,
            appended: 0,
        }
    }

    fn append(&mut self, client: usize, now: Nanoseconds) {
        (self.came[client], self.seen[client]) = (now, self.edges);
        self.appended += 1;
        // As many as fit a chunk.
        let id = new(client, self.appended / 512);
        if self.host.store.stat(id).is_err() {
            let (_, asked) =
                self.host.took(|store| store.create_with(id, StreamType::DATA, Durability::Buffered)).unwrap();
            self.asked.extend(asked);
        }
        let (_, asked) = self.host.took(|store| store.append_with(id, &[7; SIZE], BUFFERED)).unwrap();
        self.asked.extend(asked);
        if !self.through {
            self.gathered.push(client);
            return self.commit(now);
        }
        let (written, zone) = make_durable(&self.host, id).unwrap();
        let commands = std::mem::take(&mut self.asked).into_iter().chain(written).collect();
        self.steps.begin_in(self.clients + 3 + client, commands, zone, now);
    }

    fn commit(&mut self, now: Nanoseconds) {
        if self.committing.is_some() || self.gathered.is_empty() {
            return;
        }
        let ((), asked) = self.host.took(ChunkStore::sync).unwrap();
        let mut commands = std::mem::take(&mut self.asked);
        commands.extend(asked);
        self.committing = Some(std::mem::take(&mut self.gathered));
        self.steps.begin(self.clients, commands, now);
    }

    fn answered(&mut self, client: usize, now: Nanoseconds, measured: bool) {
        let took = now - self.came[client];
        self.answers += 1;
        add(&mut self.all, took);
        if self.edges.is_multiple_of(2) && self.seen[client] == self.edges {
            add(&mut self.calm, took);
        }
        if measured {
            self.first = self.first.or(Some(self.answers));
            add(&mut self.measured, took);
        }
    }

    /// Appends beside cleaning at this pace: their mean in nanoseconds, and the numbers of the first and the last of them.
    fn cleaned(mut self, slowdown: f64) -> (f64, u64, u64) {
        let (burst, rested) = (self.clients + 1, self.clients + 2);
        let (mut bursts, mut now_pace, mut began, mut moved) = (0, Pace::default(), 0.0, 0);
        let mut cleans = false;
        self.begin();
        while let Some((who, now)) = self.steps.next() {
            if who == burst {
                (bursts, self.edges) = (bursts + 1, self.edges + 1);
                let of = |mean: &mut Mean| [std::mem::take(mean), Mean::default()];
                let (calm, all) = (of(&mut self.calm), of(&mut self.all));
                let took = Duration::from_nanos((now - began) as u64);
                now_pace = pace(now_pace, slowdown, &Seen { free: 9, below: 10, took, moved, calm, all });
                if bursts == FIRST + BURSTS {
                    return (mean(self.measured), self.first.unwrap_or(0), self.answers);
                }
                self.steps.begin(rested, Vec::new(), now + now_pace.rest.as_nanos() as f64);
            } else if who == rested {
                (began, self.edges) = (now, self.edges + 1);
                let (bytes, asked) = self.host.took(|store| store.clean(now_pace.bytes)).unwrap();
                assert!(bytes > 0, "there is more to clean than is cleaned here");
                moved = bytes;
                self.steps.begin(burst, asked, now);
            } else {
                self.go_on(who, now, bursts >= FIRST);
            }
            if !cleans && self.answers >= QUIET {
                cleans = true;
                self.steps.begin(rested, Vec::new(), now);
            }
        }
        panic!("clients go on for ever");
    }

    /// The mean of the same appends where nobody cleans.
    fn alone(mut self, first: u64, last: u64) -> f64 {
        self.begin();
        while let Some((who, now)) = self.steps.next().filter(|_| self.answers < last) {
            let measured = self.answers + 1 >= first;
            self.go_on(who, now, measured);
        }
        mean(self.measured)
    }

    fn begin(&mut self) {
        for client in 0..self.clients {
            self.steps.begin(client, Vec::new(), client as f64 * TURNAROUND);
        }
    }

    /// What is no cleaning.
    fn go_on(&mut self, who: usize, now: Nanoseconds, measured: bool) {
        let done = match who {
            _ if who < self.clients => {
                self.append(who, now);
                return;
            }
            _ if who == self.clients => self.committing.take().unwrap_or_default(),
            _ => vec![who - self.clients - 3],
        };
        for (rank, client) in done.into_iter().enumerate() {
            self.answered(client, now, measured);
            self.steps.begin(client, Vec::new(), now + (rank + 1) as f64 * TURNAROUND);
        }
        self.commit(now);
    }
}

fn new(client: usize, n: u64) -> ChunkId {
    ChunkId::of_number(1 << 40 | (client as u64) << 20 | n)
}

#[test]
fn appends_beside_cleaning_take_no_longer_than_the_factor() {
    for (cache, clients, slowdown) in
        [(false, 1, 1.5), (true, 1, 1.5), (false, 16, 1.5), (true, 16, 1.5), (true, 16, 3.0)]
    {
        let (with, first, last) = Play::new(cache, clients).cleaned(slowdown);
        let alone = Play::new(cache, clients).alone(first, last);
        let factor = with / alone;
        let what = format!(
            "write cache {cache}, {clients} clients: {:.1} ms and {:.1} alone, {factor:.2} times as long ({} appends)",
            with / 1e6,
            alone / 1e6,
            last - first
        );
        println!("{what}");
        assert!(factor < slowdown * 1.05, "{what}");
    }
}
