//! Many logical clients of a chunk store on one virtual clock, from one real thread.
//!
//! **How the store's commands get their arrivals.** The store runs inline on a drive in memory that keeps no time, behind a
//! [`Tap`] that notes every command. An operation is carried out the moment it comes: its bytes move and its decisions fall at once, and the tap has
//! what it asked of the drive, a chain of commands. [`Steps`] then plays that chain on the drive's [`Timeline`]: the first
//! command arrives when the operation came (or gets the right to write, below), each further one when those that it waits for are complete, and the operation ends with its
//! last. Chains of different clients are at the drive side by side, so they queue there, and the drive chooses among them, as if each had a thread; but
//! nobody waits, and the same clients give the same times.
//!
//! What that rests on, and what it costs:
//!
//! - What an operation asks of the drive must not depend on how long the drive takes. It does not in the store: its decisions are made in
//!   memory, and its one clock only dates zones.
//! - The store lets one thread write at a time (`core.rs`, the commit guard). So chains that write are played one after the other, in the order in
//!   which they began; reads do not wait for them, nor does what only flushes.
//! - What a threaded store gives the drive side by side (`write.rs` there) is played so: data of different zones, up to 32 commands, one a
//!   zone in its order, where the write cache is off or the drive does not rotate. All else of an operation (journal, flush, resets, reads of the cleaner) is played one after the other,
//!   and what is behind it waits for it. Inline, the store asks for the same commands, zone after zone.
//! - All commands of a user's read are at the drive at once (`read.rs` there), in chunks and as long as it is.
//! - With the write cache off an append is durable by itself (`write_through.rs` there): an operation that only writes data needs no right, and waits
//!   for older ones in its own zone alone. Of what waits there each command takes as much as fits. How many zones are written at once then, and which is next, the
//!   store's own policy says ([`turn`]).
//! - A group commit is what its clients make of it ([`Groups`]): they append buffered, and whoever finds no group being written writes one
//!   ([`ChunkStore::begin_sync`]) for all that have appended by then. A flush covers the groups that are written when it begins, and meanwhile the next ones are.
//! - State is ahead of time by the commands that are still being played: a read sees bytes whose write has not ended, and takes them from
//!   memory or from the drive as the store had them when it came.
//!
//! **Where zones lie.** The store has a drive of few zones; [`Steps`] is given where on the whole drive each of them lies, so sizes and
//! mechanics are real, and only how many zones there are is scaled.

use super::Stop;
use imbrex_chunkstore::{ChunkStore, FormatOptions, Options};
use imbrex_device::{Cause, Drive, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::time::{Ticket, TimeStats, Timeline};
use imbrex_emulator::{Config, Emulator, Op, Overrides, Profile, TraceEntry};
use imbrex_zones::write::turns::{self as turn, Backlog};
use imbrex_zones::{Exec, VolumeOptions};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of the drive's clock.
pub(super) type Nanoseconds = f64;

/// A drive that notes what is asked of it.
pub(super) struct Tap {
    drive: Emulator,
    noted: Mutex<Vec<TraceEntry>>,
}

impl Tap {
    fn noted(&self) -> MutexGuard<'_, Vec<TraceEntry>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, op: Op, at: u64, len: u64, tag: Tag, result: &Result<()>) {
        let mut noted = self.noted();
        let entry = TraceEntry {
            sequence: noted.len() as u64,
            op,
            cause: tag.cause.name(),
            priority: "normal",
            zone: self.drive.geometry().zone_of(at).0,
            offset: at,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            result: if result.is_ok() { "ok" } else { "failed" },
        };
        noted.push(entry);
    }
}

impl ZonedDevice for Tap {
    fn identity(&self) -> &Identity {
        self.drive.identity()
    }
    fn power_epoch(&self) -> [u8; 16] {
        self.drive.power_epoch()
    }
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.drive.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        let result = self.drive.read_at(buf, at, tag);
        self.note(Op::Read, at, buf.len() as u64, tag, &result);
        result
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let result = self.drive.write_at(buf, at, tag);
        self.note(Op::Write, at, buf.len() as u64, tag, &result);
        result
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        let result = self.drive.flush(tag);
        self.note(Op::Flush, 0, 0, tag, &result);
        result
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        let result = self.drive.zone_op(op, zone, tag);
        self.note(op.into(), self.geometry().start(zone), 0, tag, &result);
        result
    }
    fn overwrites(&self) -> bool {
        self.drive.overwrites()
    }
    fn set_in_place(&self, zone: ZoneId, tag: Tag) -> Result<()> {
        let result = self.drive.set_in_place(zone, tag);
        self.note(ZoneOp::Finish.into(), self.geometry().start(zone), 0, tag, &result);
        result
    }
    fn write_in_place(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        let result = self.drive.write_in_place(buf, at, tag);
        self.note(Op::Write, at, buf.len() as u64, tag, &result);
        result
    }
    fn write_cache(&self) -> Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.drive.set_write_cache(on)
    }
}

/// A store on a drive that notes what is asked of it.
pub(super) struct Host {
    pub(super) store: ChunkStore,
    tap: Arc<Tap>,
}

/// Why a store could not do something.
pub(super) fn why(error: impl std::fmt::Display) -> Stop {
    Stop::Failed(error.to_string())
}

impl Host {
    /// An empty store on `zones` zones like those of the profile, all of them sequential.
    pub(super) fn new(
        profile: &Profile,
        zones: u32,
        write_cache: bool,
        options: Options,
    ) -> std::result::Result<Host, Stop> {
        Self::on(Emulator::memory(&Self::config(profile, zones, write_cache)).map_err(why)?, options)
    }

    fn config(profile: &Profile, zones: u32, write_cache: bool) -> Config {
        let over = Overrides {
            capacity: Some(u64::from(zones) * profile.zone_size),
            conventional: Some(0),
            write_cache: Some(write_cache),
            ..Overrides::default()
        };
        Config::new(profile, &over)
    }

    /// The same with the drive's bytes packed in memory: for stores that hold more than memory does.
    pub(super) fn packed(
        profile: &Profile,
        zones: u32,
        write_cache: bool,
        options: Options,
    ) -> std::result::Result<Host, Stop> {
        Self::on(Emulator::memory_packed(&Self::config(profile, zones, write_cache)).map_err(why)?, options)
    }

    fn on(drive: Emulator, options: Options) -> std::result::Result<Host, Stop> {
        let tap = Arc::new(Tap { drive, noted: Mutex::default() });
        let drive = Drive { device: tap.clone(), survivor: None };
        ChunkStore::format(&drive, &FormatOptions { uuid: Some([7; 16]), force: false }).map_err(why)?;
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let store = ChunkStore::open(drive, Options { volume, ..options }).map_err(why)?;
        tap.noted().clear();
        Ok(Host { store, tap })
    }

    /// The process dies, and the store is opened again: what that asked of the drive.
    pub(super) fn crash(self, options: Options) -> std::result::Result<(Host, Vec<TraceEntry>), Stop> {
        let Host { store, tap } = self;
        drop(store);
        tap.noted().clear();
        let drive = Drive { device: tap.clone(), survivor: None };
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let store = ChunkStore::open(drive, Options { volume, ..options }).map_err(why)?;
        let asked = std::mem::take(&mut *tap.noted());
        Ok((Host { store, tap }, asked))
    }

    /// What an operation returns, and what it asked of the drive.
    pub(super) fn took<T>(
        &self,
        operation: impl FnOnce(&ChunkStore) -> imbrex_chunkstore::Result<T>,
    ) -> std::result::Result<(T, Vec<TraceEntry>), Stop> {
        self.tap.noted().clear();
        let value = operation(&self.store).map_err(why)?;
        Ok((value, std::mem::take(&mut *self.tap.noted())))
    }
}

/// What a command waits for, of those of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Those before it in its zone.
    Zone,
    /// None of its kind.
    Nothing,
    /// All before it, as all behind it wait for it.
    Alone,
}

impl Order {
    fn of(command: &TraceEntry) -> Order {
        match command.op {
            Op::Write if command.cause == Cause::UserWrite.name() => Order::Zone,
            // Whoever has written a zone for good finishes it.
            Op::Finish => Order::Zone,
            Op::Read if command.cause == Cause::UserRead.name() => Order::Nothing,
            _ => Order::Alone,
        }
    }
}

/// One operation that is being played.
struct Chain {
    who: usize,
    rest: VecDeque<TraceEntry>,
    /// It has the right to write, or needs none.
    begun: bool,
    writes: bool,
    /// Zones of the commands that are at the drive, and what those wait for.
    busy: Vec<u32>,
    order: Order,
    /// Zones that it writes, or whose writes of older operations it waits for.
    zones: BTreeSet<u32>,
}

impl Chain {
    /// The next command that may go to the drive now, where up to `depth` of it may be there at once. `first`: it is the oldest operation that writes
    /// that zone.
    fn ready(&mut self, depth: usize, first: impl Fn(u32) -> bool) -> Option<TraceEntry> {
        let order = Order::of(self.rest.front()?);
        let depth = if order == Order::Nothing { BESIDE } else { depth };
        if !self.busy.is_empty() && (order == Order::Alone || self.order != order || self.busy.len() >= depth) {
            return None;
        }
        let mut passed = self.busy.clone();
        let side_by_side = self.rest.iter().take_while(|command| order == Order::of(command));
        let may = |(_, command): &(usize, &TraceEntry)| {
            let free = order != Order::Zone || !passed.contains(&command.zone) && first(command.zone);
            passed.push(command.zone);
            free
        };
        let most = if order == Order::Zone { usize::MAX } else { 1 };
        let (i, _) = side_by_side.enumerate().take(most).find(may)?;
        self.order = order;
        self.rest.remove(i)
    }

    /// Whether it is done with a zone.
    fn has_left(&self, zone: u32) -> bool {
        !self.busy.contains(&zone)
            && !self.rest.iter().any(|command| command.zone == zone && Order::of(command) == Order::Zone)
    }
}

/// Of a chain that begins: it has no command at the drive.
const NO_ZONE: u32 = u32::MAX;
/// Commands of one operation that are at the drive at once, as the store does it: see `Core::beside` there.
const BESIDE: usize = 32;

/// Writes of which [`Steps`] knows zone and time: a few seconds of a disk.
pub(super) const WRITES_SEEN: usize = 1 << 12;

/// The virtual clock: what the clients' operations ask of the drive, played side by side.
pub(super) struct Steps {
    line: Timeline,
    zone_size: u64,
    depth: usize,
    /// Longest command that what stands behind each other in a zone is put into, whoever wrote it; 0: none is.
    joined: u32,
    /// Where each zone of the store's drive begins on the whole drive.
    places: Vec<u64>,
    chains: BTreeMap<u64, Chain>,
    begun: u64,
    /// Commands at the drive, whose they are, and their zones.
    flying: Vec<(Ticket, Vec<u64>, u32)>,
    /// When a command wrote users' bytes, and to which zone; the first [`WRITES_SEEN`].
    written: Vec<(Nanoseconds, u32)>,
    /// Chains that go on, by time (bits of a number that is not negative are in its order) and by age, because a command in this zone is complete.
    due: BinaryHeap<Reverse<(u64, u64, u32)>>,
    /// The chain that has the right to write, and those that want it.
    right: Option<u64>,
    wanting: VecDeque<u64>,
    /// Chains that write a zone, the oldest first.
    writers: BTreeMap<u32, VecDeque<u64>>,
    /// With the write cache off, so many zones are written at once; `None`: as many as somebody writes.
    at_once: Option<usize>,
    /// Writes that wait for their turn: whose, and how often others went first.
    waiting: Vec<(TraceEntry, u64, u32)>,
    /// Those that have it, and when they end, where that is known.
    writing: Vec<(Ticket, Option<Nanoseconds>)>,
    now: Nanoseconds,
}

impl Steps {
    /// At time 0, the drive at rest.
    pub(super) fn new(profile: &Profile, write_cache: bool, places: Vec<u64>) -> std::result::Result<Steps, Stop> {
        let few = Some(turn::at_once(u64::from(profile.max_io), profile.rotational, BESIDE)).filter(|n| *n < BESIDE);
        let alone = write_cache && profile.rotational || profile.max_active.is_some();
        Ok(Steps {
            line: Timeline::new(profile, write_cache)?,
            zone_size: profile.zone_size,
            depth: if alone { 1 } else { BESIDE },
            joined: if write_cache || profile.max_active.is_some() { 0 } else { profile.max_io },
            places,
            chains: BTreeMap::new(),
            begun: 0,
            flying: Vec::new(),
            written: Vec::new(),
            due: BinaryHeap::new(),
            right: None,
            wanting: VecDeque::new(),
            writers: BTreeMap::new(),
            at_once: if write_cache || profile.max_active.is_some() { None } else { few },
            waiting: Vec::new(),
            writing: Vec::new(),
            now: 0.0,
        })
    }

    /// As many zones are written at once as somebody writes, whatever pays.
    pub(super) fn all_at_once(self) -> Steps {
        Steps { at_once: None, ..self }
    }

    /// An operation of `who` begins; without commands it ends then, too. `at` is not before what [`Steps::next`] said last.
    pub(super) fn begin(&mut self, who: usize, commands: Vec<TraceEntry>, at: Nanoseconds) {
        self.begin_in(who, commands, None, at);
    }

    /// The same of one that does not end before what older ones write in a zone is there, even if it has no commands of its own. What writes data and
    /// nothing else needs no right.
    pub(super) fn begin_in(&mut self, who: usize, commands: Vec<TraceEntry>, zone: Option<u32>, at: Nanoseconds) {
        let id = self.begun;
        self.begun += 1;
        let data = zone.is_some() && commands.iter().all(|command| Order::of(command) == Order::Zone);
        // Whoever only flushes has written before.
        let writes = !data && commands.iter().any(|command| !matches!(command.op, Op::Read | Op::Flush));
        let written = commands.iter().filter(|command| Order::of(command) == Order::Zone);
        let zones: BTreeSet<u32> = written.map(|command| command.zone).chain(zone).collect();
        for zone in &zones {
            self.writers.entry(*zone).or_default().push_back(id);
        }
        let (rest, busy, order) = (commands.into(), Vec::new(), Order::Alone);
        let begun = !writes || self.right.is_none();
        self.chains.insert(id, Chain { who, rest, begun, writes, busy, order, zones });
        if !begun {
            self.wanting.push_back(id);
            return;
        }
        if writes {
            self.right = Some(id);
        }
        self.due.push(Reverse((at.max(0.0).to_bits(), id, NO_ZONE)));
    }

    /// Lets time pass until an operation ends: whose, and when. `None`: nothing is under way.
    pub(super) fn next(&mut self) -> Option<(usize, Nanoseconds)> {
        loop {
            let Steps { line, flying, due, writing, .. } = self;
            flying.retain(|(ticket, chains, zone)| match line.completion(*ticket) {
                Some(end) => {
                    writing.iter_mut().filter(|one| one.0 == *ticket).for_each(|one| one.1 = Some(end));
                    due.extend(chains.iter().map(|chain| Reverse((end.to_bits(), *chain, *zone))));
                    false
                }
                None => true,
            });
            // The drive may begin nothing behind the next arrival: that could be a better choice.
            let next = due.peek().map_or(f64::INFINITY, |Reverse((at, ..))| f64::from_bits(*at));
            if next > self.now && self.give_turn() {
                continue;
            }
            let Steps { line, flying, due, .. } = self;
            if !flying.is_empty() && line.step(next) {
                continue;
            }
            let Reverse((at, id, zone)) = due.pop()?;
            let at = f64::from_bits(at);
            self.now = at;
            // What the drive does by itself up to then.
            while line.step(at) {}
            if let Some(ended) = self.go_on(id, zone, at) {
                return Some((ended, at));
            }
        }
    }

    /// A command of the chain in this zone is complete, or it may go on otherwise. Whose it is, if that was all of it.
    fn go_on(&mut self, id: u64, zone: u32, at: Nanoseconds) -> Option<usize> {
        let chain = self.chains.get_mut(&id).filter(|chain| chain.begun)?;
        if let Some(i) = chain.busy.iter().position(|busy| *busy == zone) {
            chain.busy.swap_remove(i);
        }
        loop {
            let writers = &self.writers;
            let first = |zone| writers.get(&zone).and_then(VecDeque::front).is_none_or(|first| *first == id);
            let Some(chain) = self.chains.get_mut(&id) else { break };
            let Some(command) = chain.ready(self.depth, first) else { break };
            chain.busy.push(command.zone);
            if self.at_once.is_some() && command.op == Op::Write && Order::of(&command) == Order::Zone {
                self.waiting.push((command, id, 0));
            } else {
                self.submit(command, id, at);
            }
        }
        let writers = &self.writers;
        let first = |zone| writers.get(&zone).and_then(VecDeque::front).is_none_or(|first| *first == id);
        let chain = self.chains.get_mut(&id)?;
        let left = |zone: &u32| chain.has_left(*zone) && (!chain.rest.is_empty() || first(*zone));
        let left: Vec<u32> = chain.zones.iter().copied().filter(left).collect();
        for zone in left {
            chain.zones.remove(&zone);
            let Some(writers) = self.writers.get_mut(&zone) else { continue };
            writers.retain(|writer| *writer != id);
            if let Some(next) = writers.front() {
                self.due.push(Reverse((at.to_bits(), *next, NO_ZONE)));
            }
        }
        if !(chain.busy.is_empty() && chain.rest.is_empty() && chain.zones.is_empty()) {
            return None;
        }
        let (who, wrote) = (chain.who, chain.writes);
        self.chains.remove(&id);
        if wrote {
            self.right = self.wanting.pop_front();
            if let Some(next) = self.right
                && let Some(chain) = self.chains.get_mut(&next)
            {
                chain.begun = true;
                self.due.push(Reverse((at.to_bits(), next, NO_ZONE)));
            }
        }
        Some(who)
    }

    /// Gives the drive a command, and with it what may go along.
    fn submit(&mut self, command: TraceEntry, id: u64, at: Nanoseconds) -> Ticket {
        let zone = command.zone;
        let (command, whose) = self.with_those_behind(command, id);
        if self.written.len() < WRITES_SEEN && command.op == Op::Write && Order::of(&command) == Order::Zone {
            self.written.push((at, zone));
        }
        let ticket = self.line.submit(&placed(&self.places, self.zone_size, command), at);
        self.flying.push((ticket, whose, zone));
        ticket
    }

    /// Gives the drive a write that waits, if one may go now.
    fn give_turn(&mut self) -> bool {
        let (now, Some(most)) = (self.now, self.at_once) else { return false };
        self.writing.retain(|(_, end)| end.is_none_or(|end| end > now));
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|(command, id, passed)| Backlog {
            zone: command.zone,
            bytes: self.behind(command, *id),
            passed: *passed,
        });
        let next = turn::next(waiting, u64::from(self.joined), self.writing.len(), most);
        let Some(i) = next.and_then(|zone| self.waiting.iter().position(|(command, ..)| command.zone == zone)) else {
            return false;
        };
        let (command, id, _) = self.waiting.remove(i);
        self.waiting.iter_mut().for_each(|(.., passed)| *passed += 1);
        let ticket = self.submit(command, id, now);
        self.writing.push((ticket, None));
        true
    }

    /// Bytes of a write, and of what waits behind it in its zone.
    fn behind(&self, command: &TraceEntry, id: u64) -> u64 {
        let writers = self.writers.get(&command.zone).into_iter().flatten();
        let chains = writers.filter_map(|other| Some((*other, self.chains.get(other)?)));
        let chains = chains.take_while(|(other, chain)| *other == id || !chain.writes && chain.begun);
        let here = |next: &&TraceEntry| next.zone == command.zone && next.op == Op::Write;
        let bytes = |chain: &Chain| {
            let run = chain.rest.iter().take_while(|next| Order::of(next) == Order::Zone);
            run.filter(here).map(|next| u64::from(next.len)).sum::<u64>()
        };
        u64::from(command.len) + chains.map(|(_, chain)| bytes(chain)).sum::<u64>()
    }

    /// A write, as long as a command may be, of what stands behind it in its zone and waits, too, of this chain and of others that need no right; and
    /// whose last of the zone it may be.
    fn with_those_behind(&mut self, mut command: TraceEntry, id: u64) -> (TraceEntry, Vec<u64>) {
        let mut whose = vec![id];
        if Order::of(&command) != Order::Zone || command.op != Op::Write {
            return (command, whose);
        }
        for other in self.writers.get(&command.zone).into_iter().flatten() {
            let Some(chain) = self.chains.get_mut(other) else { break };
            if *other != id && (chain.writes || !chain.begun) {
                break;
            }
            loop {
                let run = chain.rest.iter().take_while(|next| Order::of(next) == Order::Zone);
                let Some(i) = run.enumerate().find(|(_, next)| next.zone == command.zone).map(|(i, _)| i) else {
                    break;
                };
                let next = &mut chain.rest[i];
                let left = self.joined.saturating_sub(command.len);
                if next.op != Op::Write || next.offset != command.offset + u64::from(command.len) || left == 0 {
                    return (command, whose);
                }
                if next.len > left {
                    command.len += left;
                    next.offset += u64::from(left);
                    next.len -= left;
                    return (command, whose);
                }
                command.len += next.len;
                chain.rest.remove(i);
                if !whose.contains(other) {
                    whose.push(*other);
                    chain.order = Order::Zone;
                    chain.busy.push(command.zone);
                }
            }
        }
        (command, whose)
    }

    /// When a command that writes users' bytes went to the drive, and the zone in the store's own drive; the first few thousand.
    pub(super) fn written(&mut self) -> Vec<(Nanoseconds, u32)> {
        std::mem::take(&mut self.written)
    }

    /// What became of the drive's time.
    pub(super) fn stats(&self) -> TimeStats {
        self.line.stats()
    }
}

/// The command where its zone lies on the whole drive.
fn placed(places: &[u64], zone_size: u64, command: TraceEntry) -> TraceEntry {
    if command.op == Op::Flush {
        return command;
    }
    let place = places.get(command.zone as usize).copied().unwrap_or(command.offset / zone_size * zone_size);
    TraceEntry { offset: place + command.offset % zone_size, ..command }
}

/// The group commit of the clients of one store: at most one group is being written and one flush is under way, beside each other.
pub(super) struct Groups<T> {
    /// What [`Steps`] knows the writing of a group by; a flush by the number behind it.
    who: usize,
    /// What has gathered, and what gathering asked of the drive.
    gathered: Vec<T>,
    asked: Vec<TraceEntry>,
    writing: Option<Vec<T>>,
    written: Vec<T>,
    flushing: Option<Vec<T>>,
}

impl<T> Groups<T> {
    pub(super) fn new(who: usize) -> Self {
        Groups { who, gathered: Vec::new(), asked: Vec::new(), writing: None, written: Vec::new(), flushing: None }
    }

    pub(super) fn gather(&mut self, one: T, asked: Vec<TraceEntry>) {
        self.gathered.push(one);
        self.asked.extend(asked);
    }

    /// Whether a group could be written now.
    pub(super) fn is_due(&self) -> bool {
        self.writing.is_none() && !self.gathered.is_empty()
    }

    /// Writes what has gathered, unless a group is being written. What that asked of the drive, with all that gathering did.
    pub(super) fn write(
        &mut self,
        host: &Host,
        steps: &mut Steps,
        now: Nanoseconds,
    ) -> std::result::Result<Option<Vec<TraceEntry>>, Stop> {
        if !self.is_due() {
            return Ok(None);
        }
        host.tap.noted().clear();
        let group = host.store.begin_sync().map_err(why)?;
        self.asked.append(&mut host.tap.noted());
        // Its flush is played when it is due, with those of other groups.
        group.finish().map_err(why)?;
        let asked = std::mem::take(&mut self.asked);
        self.writing = Some(std::mem::take(&mut self.gathered));
        steps.begin(self.who, asked.clone(), now);
        Ok(Some(asked))
    }

    /// What ended by the number `who` is a group's: those who are durable with it.
    pub(super) fn ended(&mut self, who: usize, steps: &mut Steps, now: Nanoseconds) -> Vec<T> {
        let mut durable = Vec::new();
        if who == self.who {
            self.written.extend(self.writing.take().into_iter().flatten());
        } else {
            durable = self.flushing.take().unwrap_or_default();
        }
        if self.flushing.is_none() && !self.written.is_empty() {
            self.flushing = Some(std::mem::take(&mut self.written));
            steps.begin(self.who + 1, vec![flush()], now);
        }
        durable
    }
}

/// As a store asks for it.
fn flush() -> TraceEntry {
    let cause = Cause::UserWrite.name();
    TraceEntry { sequence: 0, op: Op::Flush, cause, priority: "normal", zone: 0, offset: 0, len: 0, result: "ok" }
}

/// Bytes of writes, and how many turns they were: a turn ends where another zone is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    pub(super) bytes: u64,
    pub(super) turns: u64,
    zone: Option<u32>,
}

impl Turns {
    pub(super) fn add(&mut self, commands: &[TraceEntry]) {
        for write in commands.iter().filter(|command| command.op == Op::Write) {
            self.turns += u64::from(self.zone != Some(write.zone));
            self.bytes += u64::from(write.len);
            self.zone = Some(write.zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(op: Op, zone: u32, offset: u64) -> TraceEntry {
        let len = if op == Op::Flush { 0 } else { 4096 };
        TraceEntry { sequence: 0, op, cause: "user_read", priority: "normal", zone, offset, len, result: "ok" }
    }

    fn steps() -> (Steps, u64) {
        let profile = Profile::named("seagate-st20000nm001j").unwrap();
        let zone = profile.zone_size;
        (Steps::new(&profile, false, vec![1000 * zone, 70_000 * zone]).unwrap(), zone)
    }

    fn ends(mut steps: Steps) -> Vec<(usize, f64)> {
        std::iter::from_fn(|| steps.next()).map(|(who, at)| (who, at / 1e6)).collect()
    }

    #[test]
    fn reads_are_at_the_drive_together_and_those_of_the_cleaner_follow_each_other() {
        // There and back across the whole stroke, eight times.
        let reads: Vec<_> = (0..16).map(|i| command(Op::Read, i % 2, (i as u64 % 2 * 256 + i as u64) << 20)).collect();
        let (mut many, _) = steps();
        reads.iter().enumerate().for_each(|(who, read)| many.begin(who, vec![read.clone()], 0.0));
        let many = ends(many);
        let (mut long, _) = steps();
        long.begin(0, reads.clone(), 0.0);
        assert_eq!(ends(long), [(0, many[15].1)]);
        let reads = reads.into_iter().map(|read| TraceEntry { cause: Cause::Cleaning.name(), ..read }).collect();
        assert_eq!(many.len(), 16);
        assert!(many.windows(2).all(|pair| pair[0].1 <= pair[1].1), "in the order of time");
        let (mut one, _) = steps();
        one.begin(0, reads, 0.0);
        let one = ends(one);
        assert_eq!(one.len(), 1);
        assert!(many[15].1 < 0.7 * one[0].1, "{many:?} {one:?}");
    }

    #[test]
    fn who_writes_waits_for_who_writes_and_reads_do_not() {
        let (mut steps, zone) = steps();
        let writes = |zone: u32, at: u64| (0..8).map(|i| command(Op::Write, zone, at + i * 4096)).collect::<Vec<_>>();
        steps.begin(0, writes(0, 0), 0.0);
        steps.begin(1, writes(1, zone), 0.0);
        steps.begin(2, vec![command(Op::Read, 0, 1 << 20)], 0.0);
        steps.begin(3, Vec::new(), 1e6);
        let ends = ends(steps);
        let of = |who| ends.iter().find(|(one, _)| *one == who).unwrap().1;
        assert_eq!(ends.len(), 4);
        assert_eq!(of(3), 1.0);
        // With the cache off each write behind another waits for a turn of 8.3 ms, and a zone is opened for 20.
        assert!(of(2) < 60.0 && of(0) > 20.0 + 7.0 * 8.0 && of(1) > of(0) + 20.0 + 7.0 * 8.0, "{ends:?}");
    }

    fn written(zone: u32, offset: u64, cause: Cause) -> TraceEntry {
        TraceEntry { cause: cause.name(), len: 1 << 20, ..command(Op::Write, zone, offset) }
    }

    #[test]
    fn zones_side_by_side_are_written_in_order_each_and_sooner() {
        let profile = Profile::named("seagate-st20000nm001j").unwrap();
        let zone = |n: u32| (0..4).map(move |i| written(n, (u64::from(n) << 28) + (i << 20), Cause::UserWrite));
        let mut commands: Vec<_> = (0..12).flat_map(zone).collect();
        commands.push(command(Op::Flush, 0, 0));
        let took = |depth| {
            let places = (1000..1012).map(|zone| zone * profile.zone_size).collect();
            let mut steps = Steps { depth, ..Steps::new(&profile, false, places).unwrap() };
            steps.begin(0, commands.clone(), 0.0);
            let ends = ends(steps);
            assert_eq!(ends.len(), 1);
            ends[0].1
        };
        assert!(took(12) < 0.8 * took(1), "{} {}", took(12), took(1));
        assert_eq!(Steps::new(&profile, true, Vec::new()).unwrap().depth, 1, "the cache puts them in order");
    }

    #[test]
    fn what_only_writes_data_waits_for_older_writes_of_its_zone_alone() {
        let (mut steps, zone) = steps();
        let data = |zone: u32, at: u64| written(zone, at, Cause::UserWrite);
        // A commit: the journal first, then zone 0.
        let journal = (0..8).map(|i| written(1, zone + (i << 20), Cause::Journal));
        steps.begin(0, journal.chain([data(0, 0)]).collect(), 0.0);
        steps.begin_in(1, vec![data(0, 1 << 20)], Some(0), 0.0);
        steps.begin_in(2, Vec::new(), Some(0), 0.0);
        steps.begin_in(3, vec![data(1, zone + (100 << 20))], Some(1), 0.0);
        let ends = ends(steps);
        let order: Vec<_> = ends.iter().map(|(who, _)| *who).collect();
        assert_eq!(order, [3, 0, 1, 2], "{ends:?}");
    }

    #[test]
    fn what_waits_in_a_zone_goes_in_commands_as_long_as_can_be() {
        let (mut steps, _) = steps();
        let record = |i: u64, who: &mut Steps| {
            let at = i * (1 << 20 | 1 << 14);
            let tail = TraceEntry { len: 1 << 14, ..written(0, at + (1 << 20), Cause::UserWrite) };
            who.begin_in(i as usize, vec![written(0, at, Cause::UserWrite), tail], Some(0), 0.0);
        };
        (0..4).for_each(|i| record(i, &mut steps));
        let ends: Vec<_> = std::iter::from_fn(|| steps.next()).map(|(who, _)| who).collect();
        assert_eq!(ends, [0, 1, 2, 3]);
        // Eight if each were written for itself: 4 MiB and 64 KiB in commands of 1,280 KiB.
        assert_eq!(steps.stats().latency["user_write"].commands, 4);
    }

    fn chain(commands: Vec<TraceEntry>) -> Chain {
        let (busy, order, zones) = (Vec::new(), Order::Alone, BTreeSet::new());
        Chain { who: 0, rest: commands.into(), begun: true, writes: true, busy, order, zones }
    }

    fn next(chain: &mut Chain, depth: usize) -> Option<(Op, u64)> {
        let next = chain.ready(depth, |_| true)?;
        chain.busy.push(next.zone);
        Some((next.op, next.offset))
    }

    #[test]
    fn one_command_a_zone_is_at_the_drive_and_the_journal_goes_alone() {
        let data = |zone: u32, at: u64| written(zone, at, Cause::UserWrite);
        let mut chain = chain(vec![
            written(9, 1, Cause::Journal),
            data(0, 2),
            data(0, 3),
            data(1, 4),
            data(2, 5),
            command(Op::Flush, 0, 6),
        ]);
        assert_eq!((next(&mut chain, 2), next(&mut chain, 2)), (Some((Op::Write, 1)), None));
        chain.busy.clear();
        let all: Vec<_> = std::iter::from_fn(|| next(&mut chain, 2)).map(|(_, at)| at).collect();
        assert_eq!(all, [2, 4], "one a zone, as many as it may have");
        chain.busy = vec![1];
        assert_eq!(next(&mut chain, 2), Some((Op::Write, 3)));
        chain.busy = vec![0];
        assert_eq!((next(&mut chain, 2), next(&mut chain, 2)), (Some((Op::Write, 5)), None), "a flush waits for all");
        chain.busy.clear();
        assert_eq!(next(&mut chain, 2), Some((Op::Flush, 6)));
    }

    #[test]
    fn what_a_store_asks_of_its_drive_is_noted_and_turns_are_counted() {
        use imbrex_chunkstore::{Append, ChunkId, Durability, StreamType};
        let profile = Profile::named("seagate-st20000nm001j").unwrap();
        let host = Host::new(&profile, 64, true, Options::default()).unwrap();
        let how = Append { offset: None, durability: Durability::Buffered };
        let (_, asked) = host
            .took(|store| {
                store.create_with(ChunkId::of_number(1), StreamType::DATA, Durability::Buffered)?;
                store.append_with(ChunkId::of_number(1), &[1; 1 << 20], how)
            })
            .unwrap();
        assert!(asked.is_empty(), "buffered: {asked:?}");
        let ((), asked) = host.took(ChunkStore::sync).unwrap();
        let mut turns = Turns::default();
        turns.add(&asked);
        assert!(turns.bytes > 1 << 20 && turns.bytes < 3 << 20 && turns.turns >= 2, "{turns:?}");
        assert_eq!(asked.last().map(|last| last.op), Some(Op::Flush));
        // Written bytes are in the drive and come from it.
        let mut out = vec![0; 4096];
        let (n, asked) = host.took(|store| store.read(ChunkId::of_number(1), 5000, &mut out)).unwrap();
        assert!(n == 4096 && out == [1; 4096] && asked.iter().all(|one| one.op == Op::Read) && !asked.is_empty());
    }
}
