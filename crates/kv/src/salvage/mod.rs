//! Salvage: the pairs of a store that does not open, or not whole, without changing a bit of its drive.
//!
//! 1. The metadata log is read, under a label that is made of zone headers where the drive has lost its own (`find`). Where it is whole, it tells which tables
//!    count, from which key on, and which ranges are deleted. So the pairs are those that the store has, but for what cannot be read.
//! 2. Where it is not, tables are found by their footers in zones that headers name, and the log by its own zones. Their records are bound to the volume's UUID and
//!    to lives of zones, both of which headers have.
//! 3. What verifies of each table (`crate::table::left`) and of the log is merged, and of each key the change with the highest number counts (`merge`). Memory is
//!    for a few blocks of the tables that have keys in one place. The log is sorted first, in files of the host where memory does not hold it (`sort`).
//!
//! No order of a user is needed. Keys come in the order of the store as far as this process knows it, and otherwise in that of their bytes: tables whose keys are
//! in an order that it does not know are found out, and all is sorted by bytes. Without metadata nobody knows of deletions that merges have carried out,
//! so what they deleted may come back from older tables that are not overwritten yet.

mod find;
mod merge;
mod place;
mod sort;

pub(crate) use find::ends as tables_within;

use crate::apply::{ends, kind_of};
use crate::batch::Act;
use crate::manifest::{MOST, MOST_NOTED, TableInfo, WalZone};
use crate::order::{Bytewise, Order};
use crate::piece::INGESTED;
use crate::ranges::{RangeTombstone, RangeTombstones};
use crate::records::{FoundRecord, Records, frames};
use crate::recover::{ANEW, TENANT};
use crate::space::{MARK, MOST_SPACES, Spaces, begin, full, known};
use crate::table::left::{Left, properties};
use find::{Found, FoundTable, find, read_log_zone};
use imbrex_device::{Code, Drive, Error, Result, ZoneId, ZonedDevice, report_all};
use imbrex_zones::frame::Frame;
use merge::{Change, Merge, Newest, Of, Stopped, space_of};
use place::Place;
use sort::{Scratch, Sorter};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a table that are read at once.
const AHEAD: u64 = 256 << 10;
/// The same where no more than single blocks are wanted.
const NOTHING_AHEAD: u64 = 0;
/// Bytes of the keys of deleted ranges at most.
const MOST_RANGE_BYTES: usize = 64 << 20;
/// A longer first key of a table is not remembered.
const LONGEST_FIRST: usize = 256;
/// More sentences help nobody.
const MOST_NOTES: usize = 100;
/// So many changes are between two reports of progress.
const OFTEN: u64 = 256;

/// A space whose pairs are salvaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSpace {
    /// Its number in the store; 0 is the space without a name.
    pub number: u16,
    /// Its name, which only the metadata tells.
    pub name: Option<String>,
    /// The name of the order of its keys, which only the metadata tells.
    pub order: Option<String>,
}

/// Who takes what is salvaged.
pub trait Pairs {
    /// A pair of this space. The pairs of a space come together, each key once.
    ///
    /// # Errors
    /// They end the salvage.
    fn pair(&mut self, space: &FoundSpace, key: &[u8], value: &[u8]) -> io::Result<()>;

    /// All pairs come again from the first on: what was handed over is void. It happens once at most.
    ///
    /// # Errors
    /// They end the salvage.
    fn again(&mut self) -> io::Result<()>;

    /// So many bytes of tables are read, of so many.
    ///
    /// # Errors
    /// They end the salvage.
    fn progress(&mut self, done: u64, all: u64) -> io::Result<()>;
}

/// What came of a salvage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Pairs that were handed over.
    pub pairs: u64,
    /// Tables of which something was read.
    pub tables: u64,
    /// Tables of which something could not be read.
    pub damaged_tables: u64,
    /// Records of the write-ahead log that were read.
    pub records: u64,
    /// Sentences about what was lost on the way.
    pub notes: Vec<String>,
}

/// What there is to salvage on a drive. The drive stays as it is.
pub struct Salvage {
    device: Arc<dyn ZonedDevice>,
    found: Found,
}

/// How pairs are brought together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Tables are sorted already.
    Merge,
    /// All of them are sorted by bytes first.
    Sort,
}

impl Salvage {
    /// Looks at a drive, which may be opened for reading only. `progress` gets bytes searched, and of how many; nothing where the metadata is whole.
    ///
    /// # Errors
    /// `Unusable` where no zone is of a key-value store; those of a report of zones. What cannot be read is no error.
    pub fn search(drive: &Drive, progress: &mut dyn FnMut(u64, u64)) -> Result<Salvage> {
        Salvage::search_tenant(drive, TENANT, progress)
    }

    /// The same of a store that another engine has, under this name of its own.
    ///
    /// # Errors
    /// Those of [`Salvage::search`].
    pub fn search_tenant(drive: &Drive, tenant: &'static str, progress: &mut dyn FnMut(u64, u64)) -> Result<Salvage> {
        let mut salvage = Salvage { device: drive.device.clone(), found: find(drive, tenant, progress)? };
        salvage.number();
        Ok(salvage)
    }

    /// Numbers of ingested tables that the metadata does not tell: above those of the tables before them, since these were there.
    fn number(&mut self) {
        if self.found.tables.iter().all(|table| self.known(table).is_some()) {
            return;
        }
        let told = |table: &FoundTable| match self.known(table) {
            Some(known) => Some((known.seqs.1, false)),
            None => {
                let place = self.place(table, NOTHING_AHEAD, &Arc::default());
                let found = properties(place.as_ref(), table.len, table.life)?;
                Some((found.largest_seq, (found.smallest_seq, found.largest_seq) == (INGESTED, INGESTED)))
            }
        };
        let all = self.found.tables.iter().enumerate();
        let mut all: Vec<_> = all.filter_map(|(at, table)| Some((table.id?, at, told(table)?))).collect();
        all.sort_unstable();
        let (mut last, mut ingested) = (0, 0);
        for (_, at, (seq, is_ingested)) in all {
            last = if is_ingested { last + 1 } else { last.max(seq) };
            if is_ingested {
                self.found.tables[at].number = Some(last);
                ingested += 1;
            }
        }
        if ingested > 0 {
            self.found.notes.push(format!(
                "{ingested} tables have pairs that were ingested, and only the metadata knew when: values that were put at about that time may stand for them, or they for those."
            ));
        }
    }

    /// Sentences about what was found, and what may be wrong with it. None: the metadata is whole.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.found.notes.clone();
        if !self.found.whole && !self.found.known {
            notes.push(
                "The metadata is lost: names and orders of spaces are not known. Pairs that were deleted or replaced may come back, and so may spaces that were dropped.".into(),
            );
        } else if !self.found.whole {
            notes.push("The metadata may not be the last: pairs that were deleted or replaced may come back.".into());
        }
        notes
    }

    /// UUID of the volume that it is on.
    pub fn volume(&self) -> [u8; 16] {
        self.found.volume
    }

    /// Whether the metadata tells all of the store, so that nothing deleted comes back.
    pub fn is_whole(&self) -> bool {
        self.found.whole
    }

    /// Reads all that is left, and hands the newest pair of each key to `pairs`. `scratch` makes a file of the host for what memory does not hold: as a rule for nothing,
    /// with keys in an order that this process does not know for all pairs.
    ///
    /// # Errors
    /// `Io` for those of `pairs` and `scratch`. What the drive cannot read is no error.
    pub fn read(&self, scratch: &mut dyn FnMut() -> io::Result<File>, pairs: &mut dyn Pairs) -> Result<Salvaged> {
        let host = |error: io::Error| Error::refused(Code::Io, &self.device.identity().name, error.to_string());
        let (mut strange, order) = self.orders();
        let mut told = Salvaged::default();
        match self.attempt((Way::Merge, &order, &strange), scratch, pairs, &mut told) {
            Ok(()) => return Ok(told),
            Err(Stopped::Failed(error)) => return Err(error),
            Err(Stopped::Host(error)) => return Err(host(error)),
            Err(Stopped::Wide) => {}
            Err(Stopped::Disorder(space)) => {
                strange.insert(space);
                if !self.found.known {
                    // Any other space may be in an order of its own, too.
                    strange.extend(0..MOST_SPACES);
                }
            }
        }
        told = Salvaged::default();
        pairs.again().map_err(host)?;

        let order: Arc<dyn Order> = Arc::new(Bytewise);
        match self.attempt((Way::Sort, &order, &strange), scratch, pairs, &mut told) {
            Ok(()) => Ok(told),
            Err(Stopped::Host(error)) => Err(host(error)),
            Err(Stopped::Failed(error)) => Err(error),
            Err(Stopped::Wide | Stopped::Disorder(_)) => Err(host(io::Error::other("sorted pairs are not in order"))),
        }
    }

    /// Spaces whose order is not known here, and the order of all keys as far as it is.
    fn orders(&self) -> (BTreeSet<u16>, Arc<dyn Order>) {
        let (spaces, mut strange) = (Spaces::default(), BTreeSet::new());
        for (number, space) in &self.found.manifest.spaces {
            match known(&space.order) {
                Some(order) => spaces.set(*number, &order),
                None => drop(strange.insert(*number)),
            }
        }
        (strange, Arc::new(spaces))
    }

    fn attempt(
        &self,
        (way, order, strange): (Way, &Arc<dyn Order>, &BTreeSet<u16>),
        scratch: Scratch<'_>,
        pairs: &mut dyn Pairs,
        told: &mut Salvaged,
    ) -> std::result::Result<(), Stopped> {
        let mut sorter = Sorter::new(order);
        let mut ranges = Ranges::default();
        self.found.manifest.ranges.values().for_each(|range| ranges.add(range.clone(), strange));
        let notes =
            self.log(&mut |change| sorter.push(change, scratch), &mut |range| ranges.add(range, strange), told)?;
        told.notes.extend(notes);
        ranges.tell(&mut told.notes);
        let tombstones = RangeTombstones::new(ranges.all, order.as_ref());
        let read = Arc::new(AtomicU64::new(0));
        let all = self.found.tables.iter().map(|table| table.len).sum();
        let (mut damage, mut seen) = (Vec::new(), 0u64);
        let mut progress = |pairs: &mut dyn Pairs| {
            seen += 1;
            let done = read.load(Ordering::Relaxed).min(all);
            if seen.is_multiple_of(OFTEN) { pairs.progress(done, all).map_err(Stopped::Host) } else { Ok(()) }
        };
        let mut close = |of: Box<Of>| tell(&self.found.tables[of.table], &of.left, told, &mut damage);
        let mut open = |table: usize| self.open(table, strange, &read);
        let mut tables = Vec::new();
        match way {
            Way::Merge => {
                for (n, table) in self.found.tables.iter().enumerate() {
                    tables.push((n, self.first(table)));
                }
            }
            Way::Sort => {
                for n in 0..self.found.tables.len() {
                    let mut of = open(n);
                    while let Some(change) = of.next(order.as_ref()) {
                        sorter.push(change, scratch).map_err(Stopped::Host)?;
                        progress(pairs)?;
                    }
                    close(Box::new(of));
                }
            }
        }
        let sorted = sorter.finish(scratch).map_err(Stopped::Host)?;
        let mut newest = Newest::new(order, &tombstones);
        let (mut space, mut written): (Option<FoundSpace>, u64) = (None, 0);
        let mut merge = Merge::new(order, tables, sorted, &mut open, &mut close).map_err(Stopped::Host)?;
        while let Some(change) = merge.next()? {
            progress(pairs)?;
            if !newest.counts(&change) {
                continue;
            }
            let number = space_of(&change.key);
            if space.as_ref().is_none_or(|space| space.number != number) {
                space = Some(self.space(number));
            }
            // A space that was dropped has nothing, even where some of it is left.
            let dropped = self.found.manifest.spaces.get(&number).is_some_and(|space| space.dropped);
            if let Some(space) = space.as_ref().filter(|_| !dropped) {
                pairs.pair(space, &change.key[MARK..], &change.value).map_err(Stopped::Host)?;
                written += 1;
            }
        }
        drop(merge);
        let operands = newest.operands;
        told.pairs = written;
        told.notes.append(&mut damage);
        if operands > 0 {
            told.notes.push(format!(
                "{operands} keys have merge operands, which only their program can apply: they have the last value that was put, or are left out."
            ));
        }
        let more = told.notes.len().saturating_sub(MOST_NOTES);
        told.notes.truncate(MOST_NOTES);
        if more > 0 {
            told.notes.push(format!("There are {more} more sentences."));
        }
        Ok(())
    }

    fn space(&self, number: u16) -> FoundSpace {
        let known = self.found.manifest.spaces.get(&number);
        FoundSpace {
            number,
            name: known.map(|space| space.name.clone()).or((number == 0).then(String::new)),
            order: known.map(|space| space.order.clone()),
        }
    }

    /// What the metadata says of a table.
    fn known(&self, table: &FoundTable) -> Option<&TableInfo> {
        self.found.manifest.tables.get(&table.id?).filter(|known| known.life == table.life)
    }

    fn place(&self, table: &FoundTable, ahead: u64, read: &Arc<AtomicU64>) -> Arc<Place> {
        Arc::new(Place::new(&self.device, (table.zone, table.at, table.len), ahead, read))
    }

    /// The first key of a table that counts, or one before it; empty: it is not known. One that is wrong is found out.
    fn first(&self, table: &FoundTable) -> Vec<u8> {
        if let Some(known) = self.known(table) {
            return known.smallest.to_vec();
        }
        let place = self.place(table, NOTHING_AHEAD, &Arc::default());
        let first = properties(place.as_ref(), table.len, table.life).map(|properties| properties.smallest);
        first.filter(|first| first.len() <= LONGEST_FIRST).unwrap_or_default()
    }

    fn open(&self, table: usize, strange: &BTreeSet<u16>, read: &Arc<AtomicU64>) -> Of {
        let found = &self.found.tables[table];
        let data = self.place(found, AHEAD, read);
        let index = self.place(found, NOTHING_AHEAD, &Arc::default());
        let left = Left::new(data, index, found.len, found.life);
        // Where no order is known, nobody can tell what of its space is before the key.
        let from = found.from.clone().map(|from| match strange.contains(&space_of(&from)) {
            true => begin(space_of(&from)).to_vec(),
            false => from,
        });
        Of { left, from, table, number: found.number }
    }

    /// Hands the changes of the log to `each`, and its deleted ranges to `range`. Returns sentences about what is lost.
    fn log(
        &self,
        each: &mut dyn FnMut(Change) -> io::Result<()>,
        range: &mut dyn FnMut(RangeTombstone),
        told: &mut Salvaged,
    ) -> std::result::Result<Vec<String>, Stopped> {
        let (front, mut next) = self.found.manifest.front;
        let report = report_all(self.device.as_ref()).map_err(Stopped::Failed)?;
        let mut records = Records::new(crc32c::crc32c(&self.found.volume), front);
        let (mut notes, mut failed, mut missing, mut senseless) = (Vec::new(), None, 0u64, 0u64);
        let mut left = self.found.left.iter().peekable();
        let mut take = |found: &FoundRecord<'_>| {
            let (record, end) = (&found.record, found.record.seq.saturating_add(found.record.count()));
            if end > MOST || record.changes().any(|change| change.space >= MOST_SPACES) {
                senseless += 1;
                return;
            }
            // Only the whole metadata tells which number comes first. A multiple of this follows damage that an opening has told.
            if self.found.whole && record.seq > next.max(1) && !record.seq.is_multiple_of(ANEW) {
                // What memory has follows what the drive has, or the drive has lost power, and memory does not count.
                if found.memory {
                    return;
                }
                missing += record.seq - next;
            }
            told.records += 1;
            next = next.max(end);
            for (change, seq) in record.changes().zip(record.seq..) {
                if change.is_range() {
                    let (begin, end) = ends(&change);
                    range(RangeTombstone { begin, end, seq });
                } else if failed.is_none() && change.act != Act::Ingest {
                    let key = full(change.space, change.key);
                    failed = each(Change { key, seq, kind: kind_of(change.act), value: change.value.to_vec() }).err();
                }
            }
        };
        for log in &self.found.wal {
            let damaged = self.log_zone(&report, log, &mut |frame, payload| {
                while let Some(segment) = left.next_if(|segment| segment.key.logical < frame.logical) {
                    records.bytes(segment.key.logical, &segment.bytes, true, &mut take);
                }
                records.bytes(frame.logical, payload, false, &mut take);
            });
            notes.extend(damaged);
        }
        left.for_each(|segment| records.bytes(segment.key.logical, &segment.bytes, true, &mut take));
        let lost: usize = self.found.left.iter().map(|segment| segment.lost).sum();
        for (many, what) in [
            (
                missing,
                "changes of the write-ahead log are lost: it cannot be read there, and old values may stand for them",
            ),
            (senseless, "records of the write-ahead log make no sense, and are left out"),
            (lost as u64, "bytes of the write-ahead log were damaged in memory"),
        ] {
            if many > 0 {
                notes.push(format!("{many} {what}."));
            }
        }
        match failed {
            Some(error) => Err(Stopped::Host(error)),
            None => Ok(notes),
        }
    }

    /// Hands whole frames of a zone of the log to `each`. Returns a sentence where some are lost.
    fn log_zone(
        &self,
        report: &[imbrex_device::Zone],
        log: &WalZone,
        each: &mut dyn FnMut(&Frame, &[u8]),
    ) -> Option<String> {
        let (zone, block) = (report.get(log.zone as usize)?, self.device.geometry().block);
        let mut read = |at: u64, buf: &mut [u8]| read_log_zone(self.device.as_ref(), ZoneId(log.zone), at, buf);
        let damaged = match frames((zone, log.life, block), (self.found.manifest.front.0, 0), &mut read, each) {
            Ok(Some(damaged)) => damaged.len(),
            Ok(None) => {
                return Some(format!("Zone {} of the write-ahead log is gone: changes in it are lost.", log.zone));
            }
            Err(why) => {
                return Some(format!(
                    "Zone {} of the write-ahead log cannot be read ({why}): changes in it are lost.",
                    log.zone
                ));
            }
        };
        // A zone that was named and that nothing reached is no loss: a power loss leaves it so.
        (damaged > 0).then(|| {
            format!("Zone {} of the write-ahead log is damaged in {damaged} places: changes there are lost, and perhaps old values stand for them.", log.zone)
        })
    }
}

/// Ranges that are deleted.
#[derive(Default)]
struct Ranges {
    all: Vec<RangeTombstone>,
    bytes: usize,
    /// Those that nobody can tell the keys of.
    unknown: u64,
    too_many: u64,
}

impl Ranges {
    fn add(&mut self, range: RangeTombstone, strange: &BTreeSet<u16>) {
        let inside = |key: &[u8]| key.get(MARK - 1).is_some_and(|mark| mark % 2 == 1);
        let open = [&range.begin, &range.end].into_iter().all(|key| !inside(key) || !strange.contains(&space_of(key)));
        let bytes = range.begin.len() + range.end.len();
        if !open {
            self.unknown += 1;
        } else if self.all.len() >= MOST_NOTED || self.bytes + bytes > MOST_RANGE_BYTES {
            self.too_many += 1;
        } else {
            self.bytes += bytes;
            self.all.push(range);
        }
    }

    fn tell(&self, notes: &mut Vec<String>) {
        if self.unknown > 0 {
            notes.push(format!(
                "{} deleted ranges are of spaces whose order is not known here, so what they deleted comes back.",
                self.unknown
            ));
        }
        if self.too_many > 0 {
            notes.push(format!(
                "{} more ranges are deleted than a store has; what these deleted comes back.",
                self.too_many
            ));
        }
    }
}

/// Tells what is lost of a table that was read.
fn tell(table: &FoundTable, left: &Left, told: &mut Salvaged, damage: &mut Vec<String>) {
    let (places, bytes) = left.lost();
    // Without a footer, perhaps nothing ever was a table.
    if table.id.is_none() && !left.has_some() {
        return;
    }
    told.tables += 1;
    let zone = table.zone;
    match table.id {
        None => {
            told.damaged_tables += 1;
            damage.push(format!("A table in zone {zone} has no end: it was not finished, or its end is lost."));
        }
        Some(id) if places > 0 => {
            told.damaged_tables += 1;
            damage.push(format!(
                "Table {id} in zone {zone} cannot be read in {places} places, {bytes} bytes: pairs there are lost, or have older values."
            ));
        }
        Some(id) if !left.has_footer() => {
            told.damaged_tables += 1;
            damage.push(format!("Table {id} in zone {zone} has a damaged end; all its pairs before that are there."));
        }
        Some(_) => {}
    }
}
