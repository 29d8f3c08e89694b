//! What the metadata log says of a store: which tables there are and where, where the write-ahead log stands, how the keys are divided, and what a policy
//! remembers.
//!
//! A record of the log is a list of *notes*, which count together or not at all. A snapshot is the list of notes that makes the whole state.

use crate::done::{Done, LEVELS};
use crate::order::Order;
use crate::policy::{BOTTOM, Group, HIGHEST, Job, Key, Kind, Table, Window};
use crate::ranges::RangeTombstone;
use crate::space::{MOST_SPACES, UNNAMED};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Numbers stay below this, so that counting on from one is never too much.
pub(crate) const MOST: u64 = 1 << 56;
/// A table has fewer entries.
const MOST_ENTRIES: u64 = 1 << 40;
/// Bytes that deletes hide are counted up to here.
pub(crate) const MOST_HIDDEN: u64 = 1 << 48;
/// A partition has no larger number.
const MOST_PARTS: u32 = 1 << 31;
/// Jobs at once; a policy has fewer.
const MOST_JOBS: usize = 64;

/// Checkpoints of a store at most.
pub(crate) const MOST_CHECKPOINTS: usize = 1024;

/// Deleted ranges of a store; it has far fewer.
pub(crate) const MOST_NOTED: usize = 1 << 14;

/// Version of the notes.
pub(crate) const VERSION: u8 = 6;

/// A table of sorted changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableInfo {
    pub id: u64,
    /// Of the tables that share zones.
    pub group: Group,
    pub zone: u32,
    pub life: u64,
    /// In bytes from the zone's start.
    pub at: u64,
    pub len: u64,
    /// Bytes of that, about, which still count.
    pub live: u64,
    pub entries: u64,
    pub deletes: u64,
    /// Entries that newer ones of the table supersede.
    pub stale: u64,
    pub seqs: (u64, u64),
    /// Its pairs were ingested: inside it they have another number, which does not count.
    pub ingested: bool,
    pub smallest: Key,
    pub largest: Key,
    /// Changes of keys before this one are elsewhere by now.
    pub from: Option<Key>,
    /// Keys that divide its bytes evenly; none where keys are long.
    pub marks: Arc<[Key]>,
}

impl TableInfo {
    /// The smallest key of which the table still has changes, at the least.
    pub fn first(&self) -> &[u8] {
        self.from.as_deref().unwrap_or(&self.smallest)
    }

    /// What a policy sees of it, where a change takes so many bytes.
    pub fn described(&self, entry: u64) -> Table {
        let live = |count: u64| (u128::from(count) * u128::from(self.live) / u128::from(self.len.max(1))) as u64;
        Table {
            id: self.id,
            group: self.group,
            smallest: self.from.clone().unwrap_or_else(|| self.smallest.clone()),
            largest: self.largest.clone(),
            oldest: self.seqs.0,
            newest: self.seqs.1,
            bytes: self.live,
            entries: live(self.entries),
            tombstones: live(self.deletes),
            hidden: live(self.deletes).saturating_mul(entry).min(MOST_HIDDEN),
            stale: live(self.stale),
            dead: 0,
            dead_at: u64::MAX,
            zone: self.zone,
            marks: self.marks.clone(),
        }
    }

    /// Whether it can be.
    fn check(&self, order: &dyn Order, places: &Places<'_>) -> Result<(), &'static str> {
        let place = self.zone < places.zones
            && self.at >= places.front
            && self.at.checked_add(self.len).is_some_and(|end| end <= (places.capacity)(self.zone));
        if !place {
            return Err("stands where no table can be");
        }
        let inside =
            |key: &Key| order.compare(&self.smallest, key).is_le() && order.compare(key, &self.largest).is_le();
        if !inside(&self.smallest) || self.from.as_ref().is_some_and(|from| !inside(from)) {
            return Err("has keys that are not in order");
        }
        if self.group != BOTTOM && self.group.level > HIGHEST {
            return Err("is of no level");
        }
        let counts =
            self.live <= self.len && self.deletes.max(self.stale) <= self.entries && self.entries < MOST_ENTRIES;
        let numbers = self.seqs.0 <= self.seqs.1 && self.seqs.1 < MOST && self.id < MOST;
        let one = self.seqs.0 == self.seqs.1 && self.stale == 0;
        if counts && numbers && (one || !self.ingested) { Ok(()) } else { Err("has numbers that cannot be") }
    }

    /// Whether a key may be in what counts of it.
    pub fn covers(&self, order: &dyn Order, key: &[u8]) -> bool {
        order.compare(self.first(), key).is_le() && order.compare(key, &self.largest).is_le()
    }
}

/// Where tables can be on a drive.
pub(crate) struct Places<'a> {
    pub zones: u32,
    /// Bytes of a zone's header.
    pub front: u64,
    /// Bytes of a zone.
    pub capacity: &'a dyn Fn(u32) -> u64,
}

/// A zone of the write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalZone {
    pub zone: u32,
    pub life: u64,
    /// Position of the first byte.
    pub position: u64,
}

/// A frame of the write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalFrame {
    pub zone: u32,
    /// The zone's life.
    pub life: u64,
    /// Where its header stands, in bytes from the zone's start.
    pub at: u64,
}

/// What a store remembers of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub name: String,
    /// The name of the order of its keys.
    pub order: String,
    /// It is gone, but not all its keys are.
    pub dropped: bool,
}

/// Operands with numbers up to this one, of keys from `from` on and before `to`, are in tables: the log is not to bring them a second time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub from: Option<Key>,
    pub to: Option<Key>,
    pub seq: u64,
}

impl Flushed {
    /// Whether the operand with this number is in tables.
    pub fn has(&self, order: &dyn Order, key: &[u8], seq: u64) -> bool {
        seq <= self.seq
            && self.from.as_ref().is_none_or(|from| order.compare(from, key).is_le())
            && self.to.as_ref().is_none_or(|to| order.compare(key, to).is_lt())
    }
}

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Space(u16, Space),
    /// A space is gone, and nothing of it is left.
    NoSpace(u16),
    /// All keys of a range are deleted.
    Range(RangeTombstone),
    /// Nothing is left of what the range of that number deleted.
    NoRange(u64),
    /// What the store had when this change was its last stays readable, under a name.
    Checkpoint(String, u64),
    /// The checkpoint of that name is gone.
    NoCheckpoint(String),
    Table(TableInfo),
    /// A table is gone.
    Gone(u64),
    /// Changes of keys before this one are elsewhere; about so many bytes still count.
    From {
        id: u64,
        key: Key,
        live: u64,
    },
    WalZone(WalZone),
    /// Changes in records before this one are in tables: its position, the number of its first change, and a frame in which it stands, or which is before that.
    Front {
        position: u64,
        seq: u64,
        frame: Option<WalFrame>,
    },
    /// The partitions: number and first key.
    Parts(Vec<(u32, Option<Key>)>),
    /// The next table gets at least this number.
    Next(u64),
    /// Name of the policy.
    Policy(String),
    /// All jobs.
    Jobs(Vec<Job>),
    Window(Window),
    /// These tables belong to this group.
    Relabel(Vec<u64>, Group),
    Flushed(Flushed),
    /// What the store has done since it was made.
    Done(Done),
}

/// The state that the log tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub spaces: BTreeMap<u16, Space>,
    pub tables: BTreeMap<u64, TableInfo>,
    /// Ranges that are deleted, by their numbers.
    pub ranges: BTreeMap<u64, RangeTombstone>,
    /// Numbers of the last changes that checkpoints have, by the names of those.
    pub checkpoints: BTreeMap<String, u64>,
    pub parts: Vec<(u32, Option<Key>)>,
    /// The oldest first.
    pub wal: Vec<WalZone>,
    pub front: (u64, u64),
    /// What an opening needs of the frame's zone does not stand before it.
    pub front_frame: Option<WalFrame>,
    /// What is in tables, of what stands behind that.
    pub flushed: Vec<Flushed>,
    pub next: u64,
    pub policy: String,
    /// The last one goes on first.
    pub jobs: Vec<Job>,
    /// By level.
    pub windows: BTreeMap<u8, Window>,
    /// Since it was made. Only people read it.
    pub done: Done,
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self
    }

    fn group(&mut self, group: Group) -> &mut Self {
        self.u8(group.level).u32(group.part)
    }

    fn key_if_any(&mut self, key: Option<&Key>) -> &mut Self {
        self.u8(key.is_some().into()).bytes(key.map_or(&[], |key| key))
    }

    fn done(&mut self, done: &Done) -> &mut Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.u64(done.puts).u64(done.deletes).u64(done.put_bytes).u64(done.gets).u64(done.steps).u64(done.stalls);
        self.u64(nanos(done.stalled)).u64(nanos(done.longest_stall));
        let levels: Vec<_> = done.written.iter().enumerate().filter(|(_, written)| **written != (0, 0)).collect();
        self.each(&levels, |w, (level, (flushed, merged))| w.u8(*level as u8).u64(*flushed).u64(*merged))
    }

    fn job(&mut self, job: &Job) -> &mut Self {
        let (kind, number) = match job.kind {
            Kind::Sweep => (0, 0),
            Kind::Slices(level) => (1, level),
            Kind::Own(number) => (2, number),
        };
        self.u8(kind).u8(number).u32(job.part).u64(job.from).u64(job.before);
        self.each(&job.zones, |w, zone| w.u32(*zone))
    }

    /// How many there are, and each.
    fn each<T>(&mut self, all: &[T], write: impl for<'a> Fn(&'a mut Self, &T) -> &'a mut Self) -> &mut Self {
        self.u32(all.len() as u32);
        for one in all {
            write(self, one);
        }
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        self.u8().filter(|flag| *flag < 2).map(|flag| flag == 1)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn key(&mut self) -> Option<Key> {
        self.bytes().map(Key::from)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn group(&mut self) -> Option<Group> {
        Some(Group { level: self.u8()?, part: self.u32()? })
    }

    fn key_if_any(&mut self) -> Option<Option<Key>> {
        match (self.u8()?, self.key()?) {
            (1, key) => Some(Some(key)),
            (0, none) if none.is_empty() => Some(None),
            _ => None,
        }
    }

    /// Memory is for what is there, not for what the count says.
    fn each<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        (0..count).map(|_| read(self)).collect()
    }

    fn done(&mut self) -> Option<Done> {
        let mut done = Done {
            puts: self.u64()?,
            deletes: self.u64()?,
            put_bytes: self.u64()?,
            gets: self.u64()?,
            steps: self.u64()?,
            stalls: self.u64()?,
            stalled: Duration::from_nanos(self.u64()?),
            longest_stall: Duration::from_nanos(self.u64()?),
            written: Vec::new(),
        };
        for (level, flushed, merged) in self.each(|r| Some((r.u8()?, r.u64()?, r.u64()?)))? {
            done.written.resize(LEVELS, (0, 0));
            *done.written.get_mut(usize::from(level))? = (flushed, merged);
        }
        Some(done)
    }

    fn job(&mut self) -> Option<Job> {
        let (kind, number) = (self.u8()?, self.u8()?);
        let kind = match kind {
            0 if number == 0 => Kind::Sweep,
            1 => Kind::Slices(number),
            2 => Kind::Own(number),
            _ => return None,
        };
        Some(Job { kind, part: self.u32()?, from: self.u64()?, before: self.u64()?, zones: self.each(Reader::u32)? })
    }
}

impl Note {
    fn write(&self, out: &mut Vec<u8>) {
        let mut w = Writer(out);
        match self {
            Note::Space(number, space) => {
                w.u8(1).u16(*number).bytes(space.name.as_bytes()).bytes(space.order.as_bytes()).u8(space.dropped.into())
            }
            Note::Table(t) => {
                w.u8(2).u64(t.id).group(t.group).u32(t.zone).u64(t.life).u64(t.at).u64(t.len).u64(t.live);
                w.u64(t.entries)
                    .u64(t.deletes)
                    .u64(t.stale)
                    .u64(t.seqs.0)
                    .u64(t.seqs.1)
                    .u8(t.ingested.into())
                    .bytes(&t.smallest)
                    .bytes(&t.largest);
                w.key_if_any(t.from.as_ref()).each(&t.marks, |w, mark| w.bytes(mark))
            }
            Note::Gone(id) => w.u8(3).u64(*id),
            Note::From { id, key, live } => w.u8(4).u64(*id).bytes(key).u64(*live),
            Note::WalZone(z) => w.u8(5).u32(z.zone).u64(z.life).u64(z.position),
            Note::Front { position, seq, frame } => {
                w.u8(6).u64(*position).u64(*seq);
                w.each(frame.as_slice(), |w, frame| w.u32(frame.zone).u64(frame.life).u64(frame.at))
            }
            Note::Parts(parts) => w.u8(7).each(parts, |w, (id, from)| w.u32(*id).key_if_any(from.as_ref())),
            Note::Next(id) => w.u8(8).u64(*id),
            Note::Policy(name) => w.u8(9).bytes(name.as_bytes()),
            Note::Jobs(jobs) => w.u8(10).each(jobs, Writer::job),
            Note::Window(window) => w.u8(11).u8(window.level).each(&window.zones, |w, zone| w.u32(*zone)),
            Note::NoSpace(number) => w.u8(13).u16(*number),
            Note::Range(range) => w.u8(14).u64(range.seq).bytes(&range.begin).bytes(&range.end),
            Note::NoRange(seq) => w.u8(15).u64(*seq),
            Note::Checkpoint(name, seq) => w.u8(16).bytes(name.as_bytes()).u64(*seq),
            Note::NoCheckpoint(name) => w.u8(17).bytes(name.as_bytes()),
            Note::Flushed(Flushed { from, to, seq }) => {
                w.u8(18).key_if_any(from.as_ref()).key_if_any(to.as_ref()).u64(*seq)
            }
            Note::Done(done) => w.u8(19).done(done),
            Note::Relabel(tables, group) => w.u8(12).group(*group).each(tables, |w, table| w.u64(*table)),
        };
    }

    fn read(r: &mut Reader<'_>) -> Option<Note> {
        Some(match r.u8()? {
            1 => Note::Space(r.u16()?, Space { name: r.text()?, order: r.text()?, dropped: r.flag()? }),
            2 => Note::Table(TableInfo {
                id: r.u64()?,
                group: r.group()?,
                zone: r.u32()?,
                life: r.u64()?,
                at: r.u64()?,
                len: r.u64()?,
                live: r.u64()?,
                entries: r.u64()?,
                deletes: r.u64()?,
                stale: r.u64()?,
                seqs: (r.u64()?, r.u64()?),
                ingested: r.flag()?,
                smallest: r.key()?,
                largest: r.key()?,
                from: r.key_if_any()?,
                marks: r.each(Reader::key)?.into(),
            }),
            3 => Note::Gone(r.u64()?),
            4 => Note::From { id: r.u64()?, key: r.key()?, live: r.u64()? },
            5 => Note::WalZone(WalZone { zone: r.u32()?, life: r.u64()?, position: r.u64()? }),
            6 => {
                let (position, seq) = (r.u64()?, r.u64()?);
                let frames = r.each(|r| Some(WalFrame { zone: r.u32()?, life: r.u64()?, at: r.u64()? }))?;
                Note::Front { position, seq, frame: frames.first().copied() }
            }
            7 => Note::Parts(r.each(|r| Some((r.u32()?, r.key_if_any()?)))?),
            8 => Note::Next(r.u64()?),
            9 => Note::Policy(r.text()?),
            10 => Note::Jobs(r.each(Reader::job)?),
            11 => Note::Window(Window { level: r.u8()?, zones: r.each(Reader::u32)? }),
            12 => {
                let group = r.group()?;
                Note::Relabel(r.each(Reader::u64)?, group)
            }
            13 => Note::NoSpace(r.u16()?),
            14 => {
                let (seq, begin, end) = (r.u64()?, r.bytes()?.to_vec(), r.bytes()?.to_vec());
                Note::Range(RangeTombstone { begin, end, seq })
            }
            15 => Note::NoRange(r.u64()?),
            16 => Note::Checkpoint(r.text()?, r.u64()?),
            17 => Note::NoCheckpoint(r.text()?),
            18 => Note::Flushed(Flushed { from: r.key_if_any()?, to: r.key_if_any()?, seq: r.u64()? }),
            19 => Note::Done(r.done()?),
            _ => return None,
        })
    }
}

/// Writes a record of these notes.
pub(crate) fn record(notes: &[Note], out: &mut Vec<u8>) {
    out.push(VERSION);
    notes.iter().for_each(|note| note.write(out));
}

/// The version of a record that is of another one than this program's.
pub(crate) fn other_version(record: &[u8]) -> Option<u8> {
    record.first().copied().filter(|version| *version != VERSION)
}

/// The notes of a record; `None`: it is none.
pub(crate) fn notes(record: &[u8]) -> Option<Vec<Note>> {
    let (version, rest) = record.split_first()?;
    let mut reader = Reader(rest);
    let mut notes = Vec::new();
    while *version == VERSION && !reader.0.is_empty() {
        notes.push(Note::read(&mut reader)?);
    }
    (*version == VERSION).then_some(notes)
}

impl Manifest {
    /// What a note says.
    pub fn apply(&mut self, note: Note) {
        match note {
            Note::Space(number, space) => drop(self.spaces.insert(number, space)),
            Note::NoSpace(number) => drop(self.spaces.remove(&number)),
            Note::Range(range) => drop(self.ranges.insert(range.seq, range)),
            Note::NoRange(seq) => drop(self.ranges.remove(&seq)),
            Note::Checkpoint(name, seq) => drop(self.checkpoints.insert(name, seq)),
            Note::NoCheckpoint(name) => drop(self.checkpoints.remove(&name)),
            Note::Table(table) => {
                self.next = self.next.max(table.id.saturating_add(1));
                self.tables.insert(table.id, table);
            }
            Note::Gone(id) => drop(self.tables.remove(&id)),
            Note::From { id, key, live } => {
                if let Some(table) = self.tables.get_mut(&id) {
                    (table.from, table.live) = (Some(key), live);
                }
            }
            Note::WalZone(zone) if !self.wal.iter().any(|known| (known.zone, known.life) == (zone.zone, zone.life)) => {
                // A snapshot may know it already, and that its bytes are in tables: what is not logged yet is in the snapshot, too, and comes behind it.
                let at = self.wal.partition_point(|other| other.position <= zone.position);
                self.wal.insert(at, zone);
                self.drop_wal();
            }
            Note::WalZone(_) => {}
            Note::Front { position, seq, frame } => {
                if position >= self.front.0 {
                    self.front_frame = frame.or(self.front_frame);
                }
                self.front = (self.front.0.max(position), self.front.1.max(seq));
                self.flushed.retain(|flushed| flushed.seq >= self.front.1);
                self.drop_wal();
            }
            Note::Flushed(flushed) => {
                let same = |known: &&mut Flushed| (&known.from, &known.to) == (&flushed.from, &flushed.to);
                match self.flushed.iter_mut().find(same) {
                    Some(known) => known.seq = known.seq.max(flushed.seq),
                    None if flushed.seq < self.front.1 => {}
                    None => self.flushed.push(flushed),
                }
            }
            Note::Parts(parts) => self.parts = parts,
            Note::Next(id) => self.next = self.next.max(id),
            Note::Policy(name) => self.policy = name,
            Note::Done(done) => self.done = done,
            Note::Jobs(jobs) => {
                // What is written from here on is no input of them, also where some numbers were given and not used.
                self.next = jobs.iter().map(|job| job.before).fold(self.next, u64::max);
                self.jobs = jobs;
            }
            Note::Window(window) => drop(self.windows.insert(window.level, window)),
            Note::Relabel(tables, group) => {
                for id in tables {
                    if let Some(table) = self.tables.get_mut(&id) {
                        table.group = group;
                    }
                }
            }
        }
    }

    /// Strikes off the log's zones that end before its front.
    fn drop_wal(&mut self) {
        // Where a zone ends, the next one begins; of the last nobody knows.
        let gone = self.wal.windows(2).take_while(|pair| pair[1].position <= self.front.0).count();
        self.wal.drain(..gone);
    }

    /// Whether it can be true of a drive. What it says is not trusted before that.
    ///
    /// # Errors
    /// A sentence about what cannot be.
    pub fn check(&self, order: &dyn Order, places: &Places<'_>) -> Result<(), String> {
        let mut of_zone: BTreeMap<u32, Vec<&TableInfo>> = BTreeMap::new();
        for table in self.tables.values() {
            table.check(order, places).map_err(|why| format!("table {} {why}", table.id))?;
            of_zone.entry(table.zone).or_default().push(table);
        }
        for (zone, mut tables) in of_zone {
            tables.sort_by_key(|table| table.at);
            let apart = |pair: &[&TableInfo]| pair[0].life == pair[1].life && pair[0].at + pair[0].len <= pair[1].at;
            if !tables.windows(2).all(apart) || self.wal.iter().any(|log| log.zone == zone) {
                return Err(format!("zone {zone} has several things in one place"));
            }
        }
        let logs: BTreeSet<u32> = self.wal.iter().map(|log| log.zone).collect();
        if logs.len() < self.wal.len() || logs.last().is_some_and(|zone| *zone >= places.zones) {
            return Err("zones of the write-ahead log that cannot be".into());
        }
        let positions = self.wal.iter().map(|log| log.position).chain([self.front.0, self.front.1, self.next]);
        if positions.max().is_some_and(|most| most >= MOST) {
            return Err("numbers that no store comes to".into());
        }
        let parts = &self.parts;
        let ids: BTreeSet<u32> = parts.iter().map(|(id, _)| *id).collect();
        let ascends = |pair: &[(u32, Option<Key>)]| {
            pair[1]
                .1
                .as_ref()
                .is_some_and(|next| pair[0].1.as_ref().is_none_or(|from| order.compare(from, next).is_lt()))
        };
        let begins = parts.first().is_some_and(|(_, from)| from.is_none());
        if !begins || ids.len() < parts.len() || !parts.windows(2).all(ascends) {
            return Err("partitions that are not in order".into());
        }
        let sound = |job: &Job| {
            let level = match job.kind {
                Kind::Sweep => 0,
                Kind::Slices(level) | Kind::Own(level) => level,
            };
            level <= HIGHEST && job.zones.iter().all(|zone| *zone < places.zones)
        };
        if !self.jobs.iter().all(sound) {
            return Err("jobs that no policy has".into());
        }
        let mut bottom: Vec<&TableInfo> = self.tables.values().filter(|table| table.group == BOTTOM).collect();
        bottom.sort_by(|a, b| order.compare(a.first(), b.first()));
        if !bottom.windows(2).all(|pair| order.compare(&pair[0].largest, pair[1].first()).is_lt()) {
            return Err("tables of the lowest level over one another".into());
        }
        let of_tables = self.tables.values().map(|table| table.group.part);
        let numbers = ids.iter().copied().chain(self.jobs.iter().map(|job| job.part)).chain(of_tables);
        if numbers.max().is_some_and(|most| most > MOST_PARTS) {
            return Err("numbers of partitions that no store comes to".into());
        }
        if self.jobs.len() > MOST_JOBS {
            return Err("more jobs than a policy has".into());
        }
        let unnamed = |(number, space): (&u16, &Space)| {
            (*number == UNNAMED) == space.name.is_empty() && (*number != UNNAMED || !space.dropped)
        };
        let mut there = self.spaces.values().filter(|space| !space.dropped).map(|space| space.name.as_str());
        let (mut names, last) = (BTreeSet::new(), self.spaces.keys().next_back());
        if !there.all(|name| names.insert(name)) || !self.spaces.iter().all(unnamed) || last >= Some(&MOST_SPACES) {
            return Err("spaces that cannot be".into());
        }
        let sound = |range: &RangeTombstone| range.seq < MOST && order.compare(&range.begin, &range.end).is_lt();
        if !self.ranges.values().all(sound) || self.ranges.len() > MOST_NOTED {
            return Err("deleted ranges that cannot be".into());
        }
        if self.flushed.iter().any(|flushed| flushed.seq >= MOST) {
            return Err("operands that cannot be".into());
        }
        if self.checkpoints.values().any(|seq| *seq >= MOST) || self.checkpoints.len() > MOST_CHECKPOINTS {
            return Err("checkpoints that cannot be".into());
        }
        Ok(())
    }

    /// Gives tables of partitions that are gone, or have other keys now, to those that have their keys. There are some where the log was cut behind a snapshot.
    pub fn settle(&mut self, order: &dyn Order) {
        let parts = &self.parts;
        let part_of = |key: &[u8]| {
            let before =
                |(_, from): &(u32, Option<Key>)| from.as_ref().is_none_or(|from| order.compare(from, key).is_le());
            parts[..parts.partition_point(before)].last().map(|(id, _)| *id)
        };
        let of_job = |part: u32| self.jobs.iter().any(|job| job.part == part);
        for table in self.tables.values_mut().filter(|table| table.group != BOTTOM && !of_job(table.group.part)) {
            if let Some(part) = part_of(table.first()) {
                table.group.part = part;
            }
        }
    }

    /// Hands all of it to `each`, in lists of notes that are not long.
    pub fn snapshot(&self, each: &mut dyn FnMut(&[Note])) {
        self.spaces.iter().for_each(|(number, space)| each(&[Note::Space(*number, space.clone())]));
        each(&[Note::Parts(self.parts.clone())]);
        self.tables.values().for_each(|table| each(&[Note::Table(table.clone())]));
        self.ranges.values().for_each(|range| each(&[Note::Range(range.clone())]));
        self.checkpoints.iter().for_each(|(name, seq)| each(&[Note::Checkpoint(name.clone(), *seq)]));
        self.wal.iter().for_each(|zone| each(&[Note::WalZone(*zone)]));
        self.windows.values().for_each(|window| each(&[Note::Window(window.clone())]));
        each(&[
            Note::Policy(self.policy.clone()),
            Note::Jobs(self.jobs.clone()),
            Note::Front { position: self.front.0, seq: self.front.1, frame: self.front_frame },
            Note::Next(self.next),
            Note::Done(self.done.clone()),
        ]);
        self.flushed.iter().for_each(|flushed| each(&[Note::Flushed(flushed.clone())]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> Key {
        bytes.into()
    }

    fn table(id: u64) -> TableInfo {
        TableInfo {
            id,
            group: Group { level: 1, part: 3 },
            zone: 4,
            life: 5,
            at: 4096,
            len: 100,
            live: 90,
            entries: 7,
            deletes: 2,
            stale: 1,
            seqs: (1, 8),
            ingested: id == 2,
            smallest: key(b"a"),
            largest: key(b"z"),
            from: (id % 2 == 1).then(|| key(b"k")),
            marks: [key(b"a"), key(b"q")].into(),
        }
    }

    fn frame(at: u64) -> Option<WalFrame> {
        Some(WalFrame { zone: 10, life: 1, at })
    }

    fn done() -> Done {
        let mut written = vec![(0, 0); LEVELS];
        (written[2], written[LEVELS - 1]) = ((7, 0), (1, 9));
        Done {
            puts: 5,
            deletes: 3,
            put_bytes: 80,
            gets: 2,
            written,
            steps: 4,
            stalls: 1,
            stalled: Duration::from_nanos(17),
            longest_stall: Duration::from_nanos(16),
        }
    }

    fn flushed(seq: u64, to: u8) -> Note {
        Note::Flushed(Flushed { from: None, to: Some(key(&[to])), seq })
    }

    fn read(records: &[Vec<u8>]) -> Manifest {
        let mut manifest = Manifest::default();
        let all = records.iter().flat_map(|record| notes(record).expect("notes"));
        all.for_each(|note| manifest.apply(note));
        manifest
    }

    fn written(notes: &[Note]) -> Vec<u8> {
        let mut out = Vec::new();
        record(notes, &mut out);
        out
    }

    #[test]
    fn a_snapshot_makes_the_same_state() {
        let mut manifest = Manifest::default();
        let wal = |zone, position| WalZone { zone, life: 1, position };
        let all = [
            Note::Space(0, Space { name: "".into(), order: "bytes".into(), dropped: false }),
            Note::Space(1, Space { name: "one".into(), order: "numbers".into(), dropped: false }),
            Note::Space(2, Space { name: "two".into(), order: "bytes".into(), dropped: true }),
            Note::NoSpace(1),
            Note::Range(RangeTombstone { begin: b"a".into(), end: b"b".into(), seq: 7 }),
            Note::Range(RangeTombstone { begin: b"c".into(), end: b"d".into(), seq: 8 }),
            Note::NoRange(7),
            Note::Checkpoint("before".into(), 5),
            Note::Checkpoint("gone".into(), 6),
            Note::NoCheckpoint("gone".into()),
            Note::Parts(vec![(7, None), (2, Some(key(b"m"))), (3, Some(key(b"")))]),
            Note::Policy("ring".into()),
            Note::Jobs(vec![
                Job { kind: Kind::Sweep, part: 2, from: 0, before: 9, zones: vec![1, 5] },
                Job { kind: Kind::Slices(3), part: 4, from: 1, before: 2, zones: vec![] },
                Job { kind: Kind::Own(8), part: 4, from: 1, before: 2, zones: vec![] },
            ]),
            Note::Window(Window { level: 2, zones: vec![3, 4] }),
            Note::Table(table(1)),
            Note::Table(table(2)),
            Note::Table(table(3)),
            Note::Gone(3),
            Note::From { id: 2, key: key(b"c"), live: 50 },
            Note::Relabel(vec![2, 77], Group { level: 5, part: 6 }),
            Note::WalZone(wal(9, 0)),
            Note::WalZone(wal(10, 100)),
            Note::WalZone(wal(11, 200)),
            Note::Front { position: 150, seq: 12, frame: frame(8192) },
            Note::Front { position: 149, seq: 12, frame: frame(4096) },
            Note::Front { position: 150, seq: 12, frame: None },
            flushed(11, 3),
            flushed(12, 4),
            flushed(20, 5),
            flushed(21, 5),
            Note::Done(Done { puts: 1, ..done() }),
            Note::Done(done()),
        ];
        all.iter().cloned().for_each(|note| manifest.apply(note));
        assert_eq!((manifest.next, manifest.front, manifest.wal.len()), (9, (150, 12), 2));
        assert_eq!(manifest.front_frame, frame(8192));
        let table = &manifest.tables[&2];
        assert_eq!((table.first(), table.live, table.group), (&b"c"[..], 50, Group { level: 5, part: 6 }));
        assert_eq!((manifest.jobs.len(), manifest.windows.len(), manifest.parts.len()), (3, 1, 3));
        assert_eq!(manifest.flushed.iter().map(|flushed| flushed.seq).collect::<Vec<_>>(), [12, 21]);
        assert_eq!(read(&[written(&all)]), manifest);
        let mut snapshot = Vec::new();
        manifest.snapshot(&mut |notes| snapshot.push(written(notes)));
        assert_eq!(read(&snapshot), manifest);
    }

    #[test]
    fn notes_that_a_snapshot_knows_change_nothing() {
        let mut manifest = Manifest::default();
        let wal = |zone, position| Note::WalZone(WalZone { zone, life: 1, position });
        let all = [
            wal(9, 0),
            Note::Table(table(1)),
            Note::Table(table(2)),
            wal(10, 100),
            Note::From { id: 2, key: key(b"c"), live: 40 },
            Note::Gone(1),
            flushed(5, 1),
            flushed(6, 2),
            Note::Front { position: 110, seq: 7, frame: frame(4096) },
            Note::Front { position: 120, seq: 7, frame: frame(8192) },
            flushed(8, 2),
            flushed(9, 2),
        ];
        all.iter().cloned().for_each(|note| manifest.apply(note));
        let mut snapshot = Vec::new();
        manifest.snapshot(&mut |notes| snapshot.push(written(notes)));
        for from in 0..all.len() {
            let records: Vec<_> = snapshot.iter().cloned().chain([written(&all[from..])]).collect();
            assert_eq!(read(&records), manifest, "from note {from} on");
        }
    }

    #[test]
    fn a_cut_record_is_none() {
        let out = written(&[Note::Table(table(1))]);
        for n in 2..out.len() {
            assert_eq!(notes(&out[..n]), None, "{n}");
        }
        assert_eq!(notes(&[]), None);
        assert_eq!(notes(&[9, 9]), None);
        // Nothing is read that nobody writes.
        let job = Job { kind: Kind::Sweep, part: 2, from: 0, before: 9, zones: vec![1] };
        let mut odd = written(&[Note::Jobs(vec![job])]);
        assert!(notes(&odd).is_some());
        odd[7] = 200;
        assert_eq!(notes(&odd), None);
    }
}
