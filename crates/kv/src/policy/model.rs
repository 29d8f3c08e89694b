//! A worker on model data: it carries out what a policy chooses, on keys without values, and counts what a drive would do.
//!
//! It is public, because the tests of the policies and the experiment `kv-simulated` must drive the very same worker.

use super::cleaning::{Cleaning, Log};
use super::view::headroom;
use super::{
    BOTTOM, Choice, Goal, Group, Job, Key, Kind, Open, Part, Policy, Pressure, Sizes, Snapshot, Step, Table, Window,
};
use crate::order::Bytewise;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What a model has.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Zones for tables.
    pub zones: u32,
    /// Bytes of a zone.
    pub zone: u64,
    /// Bytes of an entry, on the drive and in the log.
    pub entry: u64,
    /// Bytes of a tombstone.
    pub tombstone: u64,
    /// Bytes and times are divided by this, but for those of the head's moves.
    pub scale: u64,
    /// What the policy was made with.
    pub sizes: Sizes,
}

impl Shape {
    /// A drive with so many zones of 256 MiB and values of 4 KiB, at a `scale`-th.
    pub fn divided(zones: u32, scale: u64) -> Shape {
        Shape { zones, zone: (256 << 20) / scale, entry: 4126, tombstone: 30, scale, sizes: Sizes::DISK.divided(scale) }
    }
}

/// What was counted since the last [`Model::restart`].
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Puts and deletes.
    pub operations: u64,
    /// Bytes that the user wrote.
    pub user: u64,
    /// Bytes written by flushes.
    pub flushed: u64,
    /// Bytes written by merges of slices within a partition.
    pub sliced: u64,
    /// Bytes written by other merges.
    pub merged: u64,
    /// Bytes that cleaning moved: it reads and writes them.
    pub cleaned: u64,
    /// Bytes read.
    pub read: u64,
    /// Moves of the head.
    pub seeks: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// Most zones in use.
    pub peak: u32,
    /// Most slices that a key was in, the bottom not counted.
    pub slices: usize,
    /// Sum and number of the slices of keys that were looked at.
    pub looked: (u64, u64),
    /// Sum and number of the parts of the zones in use that had bytes of tables, in percent.
    pub valid: (f64, u64),
    /// Longest log.
    pub log: u64,
    /// Bytes that the largest job read and wrote.
    pub job: u64,
    /// Jobs.
    pub jobs: u64,
    /// Seconds of all merges, and of the longest job.
    pub merging: (f64, f64),
    /// Seconds of each job, in the order in which they ended.
    pub each: Vec<f64>,
    /// Seconds of cleaning.
    pub cleaning: f64,
    /// Seconds that a put waited at most.
    pub stall: f64,
    /// Steps in a row before which the policy let nobody put at all, at most.
    pub stopped: u64,
    /// Choices that were carried out.
    pub choices: u64,
}

impl Counts {
    /// Bytes written.
    pub fn written(&self) -> u64 {
        self.flushed + self.sliced + self.merged + self.cleaned
    }

    /// Bytes written over bytes of the user.
    pub fn amplification(&self) -> f64 {
        self.written() as f64 / self.user.max(1) as f64
    }

    /// Seconds of the drive: 180 MB/s, 9 ms a move of the head, 22 ms a reset.
    pub fn seconds(&self, scale: u64) -> f64 {
        ((self.written() + self.read) * scale) as f64 / 180e6 + self.seeks as f64 * 0.009 + self.resets as f64 * 0.022
    }
}

/// A version of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    key: u32,
    sequence: u32,
    dead: bool,
}

struct Zone {
    group: Group,
    written: u64,
    tables: usize,
    open: bool,
}

/// A job, bytes that it moved so far, and seconds that it took.
struct Running {
    job: Job,
    bytes: u64,
    seconds: f64,
}

/// The worker.
pub struct Model {
    policy: Box<dyn Policy>,
    /// What it has.
    pub shape: Shape,
    tables: Vec<Table>,
    data: HashMap<u64, Vec<Entry>>,
    /// Bytes that were read of tables that are not yet read whole.
    begun: HashMap<u64, u64>,
    memory: BTreeMap<u32, (Entry, u64)>,
    parts: Vec<Part>,
    bounds: Vec<u32>,
    jobs: Vec<Running>,
    windows: Vec<Window>,
    zones: HashMap<u32, Zone>,
    free: Vec<u32>,
    /// Where tables lie if they are placed as in a log. Groups have no zones then.
    appended: Option<Log>,
    next: u64,
    sequence: u32,
    log: u64,
    /// Bytes that may be put before the policy is asked again.
    credit: i64,
    /// Choices so far, and how many there were when something was admitted last.
    made: (u64, Option<u64>),
    newest: Vec<u32>,
    distinct: u64,
    /// What was counted.
    pub counts: Counts,
}

fn key(of: u32) -> Key {
    Arc::from(&u64::from(of).to_be_bytes()[..])
}

fn number(key: &Key) -> u32 {
    u64::from_be_bytes(key[..8].try_into().unwrap_or([0; 8])) as u32
}

/// Keys that divide a table at the least, and bytes that one takes of a policy's histogram.
const MARKS: usize = 16;
const MARK: usize = 16;

/// The bit of [`Model::newest`] that says that the key is deleted.
const DEAD: u32 = 1 << 31;

impl Model {
    /// An empty store.
    pub fn new(policy: Box<dyn Policy>, shape: Shape) -> Model {
        Model {
            policy,
            shape,
            tables: Vec::new(),
            data: HashMap::new(),
            begun: HashMap::new(),
            memory: BTreeMap::new(),
            parts: vec![Part { id: 0, from: None, bytes: 0, hidden: 0, log: 0 }],
            bounds: vec![0],
            jobs: Vec::new(),
            windows: Vec::new(),
            zones: HashMap::new(),
            free: (0..shape.zones).rev().collect(),
            appended: None,
            next: 1,
            sequence: 1,
            log: 0,
            credit: 0,
            made: (0, None),
            newest: Vec::new(),
            distinct: 0,
            counts: Counts::default(),
        }
    }

    /// An empty store whose tables are placed as in a log, which is cleaned. The policy must not ask for windows, and not relabel.
    pub fn cleaned(policy: Box<dyn Policy>, shape: Shape, cleaning: Cleaning) -> Model {
        Model { appended: Some(Log::new(cleaning, shape.zone)), ..Model::new(policy, shape) }
    }

    /// Counts from here.
    pub fn restart(&mut self) {
        self.counts = Counts { peak: self.used(), ..Counts::default() };
    }

    /// Zones in use.
    pub fn used(&self) -> u32 {
        self.shape.zones - self.free.len() as u32
    }

    /// Bytes of keys that exist.
    pub fn live(&self) -> u64 {
        self.distinct * self.shape.entry
    }

    /// Bytes in tables.
    pub fn valid(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }

    /// The parts of the zones in use that have tables, in percent, ascending.
    pub fn fills(&self) -> Vec<f64> {
        let mut bytes: BTreeMap<u32, u64> = self.zones.keys().map(|zone| (*zone, 0)).collect();
        let mut live: Vec<u64> = match &self.appended {
            Some(log) => log.live().collect(),
            None => {
                self.tables.iter().for_each(|table| *bytes.entry(table.zone).or_default() += table.bytes);
                bytes.into_values().collect()
            }
        };
        live.sort_unstable();
        live.into_iter().map(|live| live as f64 * 100.0 / self.shape.zone as f64).collect()
    }

    /// The tables.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// The windows.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// How many partitions there are.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Puts a key, and lets the worker work as the policy wants. The error says why not.
    pub fn put(&mut self, of: u32) -> Result<(), String> {
        self.write(of, false)
    }

    /// Deletes a key.
    pub fn delete(&mut self, of: u32) -> Result<(), String> {
        self.write(of, true)
    }

    fn write(&mut self, of: u32, dead: bool) -> Result<(), String> {
        let before = self.counts.seconds(self.shape.scale);
        self.admit()?;
        let bytes = if dead { self.shape.tombstone } else { self.shape.entry };
        if self.newest.len() <= of as usize {
            self.newest.resize(of as usize + 1, DEAD);
        }
        let existed = self.newest[of as usize] & DEAD == 0;
        self.newest[of as usize] = self.sequence | if dead { DEAD } else { 0 };
        self.distinct = self.distinct + u64::from(!dead) - u64::from(existed);
        let at = self.bounds.partition_point(|bound| *bound <= of) - 1;
        self.parts[at].bytes += bytes;
        self.parts[at].hidden += if dead && existed { self.shape.entry } else { 0 };
        self.memory.insert(of, (Entry { key: of, sequence: self.sequence, dead }, self.log));
        if self.parts[at].log == 0 {
            // The position until a snapshot is taken; counted from 1.
            self.parts[at].log = self.log + 1;
        }
        self.log += bytes;
        self.sequence += 1;
        self.counts.operations += 1;
        self.counts.user += bytes;
        self.credit -= bytes as i64;
        let first = self.parts.iter().map(|part| part.log).filter(|log| *log > 0).min();
        let log = first.map_or(0, |first| self.log + 1 - first);
        self.counts.log = self.counts.log.max(log);
        self.counts.stall = self.counts.stall.max(self.counts.seconds(self.shape.scale) - before);
        Ok(())
    }

    /// Waits until the policy lets a put go on, as the store does without a thread.
    fn admit(&mut self) -> Result<(), String> {
        if self.credit > 0 {
            return Ok(());
        }
        if self.made.1 == Some(self.made.0) {
            self.work()?;
        }
        let mut stopped = 0;
        let bytes = loop {
            match self.grant() {
                Ok(bytes) => break bytes,
                Err(Pressure::Full) => return Err("no space".into()),
                Err(pressure) => {
                    stopped += u64::from(pressure == Pressure::Stop);
                    self.work()?;
                }
            }
        };
        self.counts.stopped = self.counts.stopped.max(stopped);
        // What was put beyond what was admitted counts.
        self.credit = self.credit.saturating_add_unsigned(bytes);
        // A put that needs more than one grant waits for the next.
        if self.credit > 0 { Ok(()) } else { self.admit() }
    }

    /// Bytes that may be put without more work, or why there are none.
    fn grant(&mut self) -> Result<u64, Pressure> {
        let bytes = match self.with(Goal::Usual, |policy, tree| policy.pressure(tree)) {
            Pressure::None => self.shape.sizes.memtable / 16,
            Pressure::Slow(bytes) if self.made.1 != Some(self.made.0) => bytes,
            pressure => return Err(pressure),
        };
        self.made.1 = Some(self.made.0);
        Ok(bytes)
    }

    /// Carries one choice out, as the store's thread does while puts go on: one that is ahead of them where there is no other. False: there was nothing to do.
    pub fn tend(&mut self) -> Result<bool, String> {
        for goal in [Goal::Usual, Goal::Ahead] {
            let choice = self.with(goal, |policy, tree| policy.choose(tree));
            if matches!(choice, Choice::Nothing) {
                continue;
            }
            self.made.0 += 1;
            self.carry_out(choice)?;
            // What was not put since the last choice is kept, as far as memory and the log have room.
            if let Ok(bytes) = self.grant() {
                let memtable = self.shape.sizes.memtable;
                let headroom = self.with(Goal::Usual, |_, tree| headroom(tree, memtable));
                let most = (headroom - headroom / 8) as i64;
                self.credit = self.credit.max(self.credit.saturating_add_unsigned(bytes).min(most));
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Carries one choice out.
    fn work(&mut self) -> Result<(), String> {
        let choice = self.choice(false);
        self.made.0 += u64::from(!matches!(choice, Choice::Nothing));
        self.carry_out(choice)
    }

    /// Lets the worker work until the policy wants nothing more.
    pub fn settle(&mut self, idle: bool) -> Result<(), String> {
        for _ in 0..1_000_000 {
            let choice = self.choice(idle);
            if matches!(choice, Choice::Nothing) {
                return Ok(());
            }
            self.carry_out(choice)?;
        }
        Err("it does not end".into())
    }

    /// What the policy wants.
    pub fn choice(&mut self, idle: bool) -> Choice {
        self.with(if idle { Goal::Idle } else { Goal::Usual }, |policy, tree| policy.choose(tree))
    }

    fn with<T>(&mut self, goal: Goal, what: impl FnOnce(&dyn Policy, &Snapshot) -> T) -> T {
        self.tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        let log = |part: &Part| if part.log == 0 { 0 } else { self.log + 1 - part.log };
        let parts: Vec<Part> = self.parts.iter().map(|part| Part { log: log(part), ..part.clone() }).collect();
        let jobs: Vec<Job> = self.jobs.iter().map(|running| running.job.clone()).collect();
        let open: Vec<Open> = self
            .zones
            .iter()
            .filter(|(_, zone)| zone.open)
            .map(|(id, zone)| Open { group: zone.group, zone: *id, room: self.shape.zone - zone.written })
            .collect();
        let tree = Snapshot {
            order: &Bytewise,
            tables: &self.tables,
            parts: &parts,
            jobs: &jobs,
            windows: &self.windows,
            open: &open,
            zones: self.shape.zones,
            free: self.free.len() as u32,
            last: false,
            zone: self.shape.zone,
            writes: self.shape.zones,
            next: self.next,
            settled: u64::MAX,
            goal,
        };
        what(&*self.policy, &tree)
    }

    /// Carries a choice out.
    pub fn carry_out(&mut self, choice: Choice) -> Result<(), String> {
        self.counts.choices += 1;
        match choice {
            Choice::Nothing => {}
            Choice::Flush { part, into, table } => self.flush(part, into, table)?,
            Choice::Begin { job, parts, closes } => {
                if !parts.is_empty() {
                    self.divide(parts);
                }
                closes.into_iter().for_each(|group| self.close(group));
                self.jobs.push(Running { job, bytes: 0, seconds: 0.0 });
                self.counts.jobs += 1;
            }
            Choice::Merge(step) => {
                let before = self.counts.seconds(self.shape.scale);
                self.merge(&step)?;
                let took = self.counts.seconds(self.shape.scale) - before;
                self.counts.merging.0 += took;
                if let Some(running) = self.jobs.last_mut() {
                    running.seconds += took;
                    self.counts.merging.1 = self.counts.merging.1.max(running.seconds);
                }
            }
            Choice::End => self.counts.each.extend(self.jobs.pop().map(|running| running.seconds)),
            Choice::Relabel(tables, group) => self.relabel(&tables, group),
            Choice::Bounds(parts) => self.divide(parts),
            Choice::Window(window) => self.window(window),
        }
        self.clean()
    }

    fn clean(&mut self) -> Result<(), String> {
        let Some(log) = &mut self.appended else { return Ok(()) };
        let levels: HashMap<u64, u64> = self.tables.iter().map(|table| (table.id, table.group.level.into())).collect();
        let before = self.counts.seconds(self.shape.scale);
        let cleaned = log.clean(&mut self.free, |table| levels.get(&table).copied().unwrap_or(0))?;
        self.counts.cleaned += cleaned.bytes;
        self.counts.read += cleaned.bytes;
        self.counts.seeks += cleaned.seeks;
        self.counts.resets += cleaned.resets;
        self.counts.cleaning += self.counts.seconds(self.shape.scale) - before;
        Ok(())
    }

    fn divide(&mut self, parts: Vec<(u32, Option<Key>)>) {
        self.bounds = parts.iter().map(|(_, from)| from.as_ref().map_or(0, number)).collect();
        self.parts = parts.into_iter().map(|(id, from)| Part { id, from, bytes: 0, hidden: 0, log: 0 }).collect();
        let gone = |zone: &Zone| zone.group != BOTTOM && self.parts.iter().all(|part| part.id != zone.group.part);
        let gone: Vec<u32> = self.zones.iter().filter(|zone| gone(zone.1)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.close_zone(id));
        assert!(self.bounds.is_sorted() && self.parts[0].from.is_none(), "bounds are in order");
        for (entry, at) in self.memory.values() {
            let part = &mut self.parts[self.bounds.partition_point(|bound| *bound <= entry.key) - 1];
            part.bytes += if entry.dead { self.shape.tombstone } else { self.shape.entry };
            part.hidden += if entry.dead { self.shape.entry } else { 0 };
            part.log = if part.log == 0 { at + 1 } else { part.log.min(at + 1) };
        }
    }

    fn flush(&mut self, part: u32, into: Group, table: u64) -> Result<(), String> {
        let at = self.parts.iter().position(|of| of.id == part).ok_or("no such partition")?;
        let from = self.bounds[at];
        let mut taken = self.memory.split_off(&from);
        if let Some(until) = self.bounds.get(at + 1) {
            self.memory.append(&mut taken.split_off(until));
        }
        (self.parts[at].bytes, self.parts[at].hidden, self.parts[at].log) = (0, 0, 0);
        let entries: Vec<Entry> = taken.into_values().map(|(entry, _)| entry).collect();
        self.counts.flushed += self.bytes(&entries);
        self.counts.seeks += 1;
        self.write_tables(into, &entries, table)?;
        self.look();
        Ok(())
    }

    fn bytes(&self, entries: &[Entry]) -> u64 {
        let dead = entries.iter().filter(|entry| entry.dead).count() as u64;
        dead * self.shape.tombstone + (entries.len() as u64 - dead) * self.shape.entry
    }

    /// Writes entries into a group's zone, as tables that end where zones end.
    fn write_tables(&mut self, group: Group, mut entries: &[Entry], most: u64) -> Result<(), String> {
        while !entries.is_empty() {
            let zone = if self.appended.is_some() { None } else { Some(self.open(group)?) };
            let room = zone.map_or(u64::MAX, |zone| self.shape.zone - self.zones[&zone].written);
            let room = room.min(most.max(self.shape.entry));
            let (mut bytes, mut count) = (0, 0);
            for entry in entries {
                let more = if entry.dead { self.shape.tombstone } else { self.shape.entry };
                if bytes + more > room {
                    break;
                }
                bytes += more;
                count += 1;
            }
            if count == 0 {
                self.close(group);
                continue;
            }
            let (now, rest) = entries.split_at(count);
            entries = rest;
            let id = self.next;
            self.next += 1;
            if let Some(state) = zone.and_then(|zone| self.zones.get_mut(&zone)) {
                state.written += bytes;
                state.tables += 1;
            }
            if let Some(log) = &mut self.appended {
                log.append(&mut self.free, id, bytes)?;
                self.counts.peak = self.counts.peak.max(self.used());
            }
            let marks = (self.policy.histogram() / MARK).max(MARKS);
            let mut table = Table {
                id,
                group,
                smallest: key(now[0].key),
                largest: key(now[count - 1].key),
                oldest: 0,
                newest: 0,
                bytes: 0,
                entries: 0,
                tombstones: 0,
                hidden: 0,
                stale: 0,
                dead: 0,
                dead_at: u64::MAX,
                zone: zone.unwrap_or(0),
                marks: (0..marks).map(|mark| key(now[mark * count / marks].key)).collect(),
            };
            self.measure(&mut table, now);
            self.data.insert(id, now.to_vec());
            self.tables.push(table);
        }
        Ok(())
    }

    fn measure(&self, table: &mut Table, entries: &[Entry]) {
        table.bytes = self.bytes(entries);
        table.entries = entries.len() as u64;
        table.tombstones = entries.iter().filter(|entry| entry.dead).count() as u64;
        table.hidden = table.tombstones * self.shape.entry;
        table.oldest = entries.iter().map(|entry| entry.sequence).min().unwrap_or(0).into();
        table.newest = entries.iter().map(|entry| entry.sequence).max().unwrap_or(0).into();
    }

    fn open(&mut self, group: Group) -> Result<u32, String> {
        if let Some((id, _)) = self.zones.iter().find(|(_, zone)| zone.open && zone.group == group) {
            return Ok(*id);
        }
        let id = self.free.pop().ok_or_else(|| format!("no free zone for {group:?}"))?;
        self.zones.insert(id, Zone { group, written: 0, tables: 0, open: true });
        self.counts.peak = self.counts.peak.max(self.used());
        Ok(id)
    }

    fn close(&mut self, group: Group) {
        let open = self.zones.iter().find(|(_, zone)| zone.open && zone.group == group).map(|(id, _)| *id);
        if let Some(id) = open {
            self.close_zone(id);
        }
    }

    fn close_zone(&mut self, id: u32) {
        if let Some(zone) = self.zones.get_mut(&id) {
            zone.open = false;
            self.release(id);
        }
    }

    fn release(&mut self, id: u32) {
        if self.zones.get(&id).is_some_and(|zone| !zone.open && zone.tables == 0) {
            self.zones.remove(&id);
            self.free.push(id);
            self.counts.resets += 1;
        }
    }

    fn merge(&mut self, step: &Step) -> Result<(), String> {
        let until = step.until.as_ref().map(number);
        let most = (step.most / self.shape.entry.min(self.shape.tombstone)) as usize;
        // No input gives more than the step writes; who has more ends the step.
        let mut end = until;
        for id in &step.inputs {
            let entries = self.data.get(id).ok_or("no such input")?;
            let mut bytes = 0;
            let over = entries.iter().take(most).position(|entry| {
                bytes += if entry.dead { self.shape.tombstone } else { self.shape.entry };
                bytes > step.most
            });
            if let Some(at) = over.filter(|at| *at > 0) {
                let key = entries[at].key;
                end = Some(end.map_or(key, |end| end.min(key)));
            }
        }
        let mut all: Vec<Entry> = Vec::new();
        for id in &step.inputs {
            let entries = &self.data[id];
            let count = end.map_or(entries.len(), |end| entries.partition_point(|entry| entry.key < end));
            all.extend(&entries[..count]);
        }
        all.sort_unstable_by(|a, b| a.key.cmp(&b.key).then(b.sequence.cmp(&a.sequence)));
        all.dedup_by_key(|entry| entry.key);
        let mut bytes = 0;
        let full = all.iter().position(|entry| {
            bytes += if entry.dead { self.shape.tombstone } else { self.shape.entry };
            bytes > step.most
        });
        if let Some(at) = full.filter(|at| *at > 0) {
            end = Some(all[at].key);
            all.truncate(at);
        }
        let written = self.write_merged(step, all)?;
        let read = self.trim(step, end);
        if self.jobs.last().is_some_and(|running| matches!(running.job.kind, Kind::Slices(_))) {
            self.counts.sliced += written;
        } else {
            self.counts.merged += written;
        }
        self.counts.read += read;
        if let Some(running) = self.jobs.last_mut() {
            running.bytes += written + read;
            self.counts.job = self.counts.job.max(running.bytes);
        }
        self.look();
        Ok(())
    }

    fn write_merged(&mut self, step: &Step, mut all: Vec<Entry>) -> Result<u64, String> {
        let others: Vec<Table> = if all.iter().any(|entry| entry.dead) {
            self.tables.iter().filter(|table| !step.inputs.contains(&table.id)).cloned().collect()
        } else {
            Vec::new()
        };
        all.retain(|entry| {
            let of = key(entry.key);
            let hides =
                |table: &Table| table.smallest <= of && of <= table.largest && table.oldest < entry.sequence.into();
            !entry.dead || others.iter().any(hides)
        });
        let mut written = 0;
        let bounds: Vec<u32> = step.routes.iter().map(|(from, _)| from.as_ref().map_or(0, number)).collect();
        for (at, (_, group)) in step.routes.iter().enumerate() {
            let from = if at == 0 { 0 } else { all.partition_point(|entry| entry.key < bounds[at]) };
            let to = bounds.get(at + 1).map_or(all.len(), |to| all.partition_point(|entry| entry.key < *to));
            let entries = &all[from..to.max(from)];
            if !entries.is_empty() {
                written += self.bytes(entries);
                self.counts.seeks += 1;
                self.write_tables(*group, entries, step.table)?;
            }
        }
        Ok(written)
    }

    /// Trims or deletes the inputs, and tells how much was read of them.
    fn trim(&mut self, step: &Step, end: Option<u32>) -> u64 {
        // The head moves for 8 MiB of an input.
        let (mut all, window) = (0, (8 << 20) / self.shape.scale);
        for id in &step.inputs {
            let Some(entries) = self.data.get_mut(id) else { continue };
            let count = end.map_or(entries.len(), |end| entries.partition_point(|entry| entry.key < end));
            let gone: Vec<Entry> = entries.drain(..count).collect();
            let rest = entries.clone();
            let read = self.bytes(&gone);
            all += read;
            // Readers stay open between steps, and read ahead.
            let before = self.begun.remove(id).unwrap_or(0);
            self.counts.seeks += (before + read).div_ceil(window) - before.div_ceil(window);
            if !rest.is_empty() {
                self.begun.insert(*id, before + read);
            }
            let Some(at) = self.tables.iter().position(|table| table.id == *id) else { continue };
            if rest.is_empty() {
                let table = self.tables.swap_remove(at);
                self.data.remove(id);
                if let Some(log) = &mut self.appended {
                    self.counts.resets += log.remove(&mut self.free, table.id);
                    continue;
                }
                if let Some(zone) = self.zones.get_mut(&table.zone) {
                    zone.tables -= 1;
                }
                self.release(table.zone);
            } else if count > 0 {
                let mut table = self.tables[at].clone();
                self.measure(&mut table, &rest);
                table.smallest = key(rest[0].key);
                self.tables[at] = table;
            }
        }
        all
    }

    fn relabel(&mut self, tables: &[u64], group: Group) {
        for table in self.tables.iter_mut().filter(|table| tables.contains(&table.id)) {
            table.group = group;
            if let Some(zone) = self.zones.get_mut(&table.zone) {
                zone.group = group;
                zone.open = false;
            }
        }
    }

    fn window(&mut self, window: Window) {
        window.zones.iter().for_each(|zone| self.close_zone(*zone));
        self.windows.retain(|other| other.level != window.level);
        self.windows.push(window);
    }

    /// Counts the slices of some keys.
    fn look(&mut self) {
        if self.newest.is_empty() {
            return;
        }
        self.counts.valid.0 += self.valid() as f64 * 100.0 / (f64::from(self.used()) * self.shape.zone as f64);
        self.counts.valid.1 += 1;
        let mut seed = self.counts.choices.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for _ in 0..4 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let of = key(((seed >> 33) % self.newest.len() as u64) as u32);
            let covers = |table: &&Table| table.group.level != u8::MAX && table.smallest <= of && of <= table.largest;
            let slices = self.tables.iter().filter(covers).count();
            self.counts.slices = self.counts.slices.max(slices);
            self.counts.looked.0 += slices as u64;
            self.counts.looked.1 += 1;
        }
    }

    /// Whether each key has its newest version in the tables and the memtable; the error names a key that has not.
    pub fn check(&self) -> Result<(), String> {
        let mut found: HashMap<u32, Entry> = self.memory.iter().map(|(key, value)| (*key, value.0)).collect();
        for entries in self.data.values() {
            for entry in entries {
                let newest = found.entry(entry.key).or_insert(*entry);
                if newest.sequence < entry.sequence {
                    *newest = *entry;
                }
            }
        }
        for (of, want) in self.newest.iter().enumerate() {
            let have = found.get(&(of as u32)).filter(|entry| !entry.dead).map(|entry| entry.sequence);
            if have != Some(*want).filter(|want| want & DEAD == 0) {
                return Err(format!("key {of}: {have:?} instead of {want}"));
            }
        }
        if let Some(log) = &self.appended {
            log.check(&self.free)?;
        }
        for (id, zone) in &self.zones {
            let here = self.tables.iter().filter(|table| table.zone == *id);
            if here.clone().count() != zone.tables || here.clone().any(|table| table.group != zone.group) {
                return Err(format!("zone {id} has tables of others"));
            }
        }
        Ok(())
    }
}
