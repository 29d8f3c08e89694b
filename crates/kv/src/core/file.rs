//! A table on the drive: its zone is pinned as long as somebody has it.

use super::cache::Cache;
use crate::cursor::{At, Cursor};
use crate::manifest::TableInfo;
use crate::order::Order;
use crate::piece::INGESTED;
use crate::sync::{Mutex, lock};
use crate::table::{Identity, Iter, Source, Table, Version};
use imbrex_device::{AlignedBuf, Cause, Error, Result, Tag, ZoneId};
use imbrex_zones::Tenant;
use imbrex_zones::write::RecordWriter;
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

/// Bytes that a merge reads in one command.
const STREAM: usize = 8 << 20;
/// The same of who may stop before a table's end, beside others: the rest is read in vain.
const FAR: usize = 1 << 20;

/// Where the bytes of a table are.
struct Place {
    tenant: Tenant,
    zones: Arc<RecordWriter>,
    zone: ZoneId,
    at: u64,
    cause: Cause,
}

impl Source for Place {
    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let volume = self.tenant.volume();
        let block = u64::from(volume.geometry().block);
        let (from, end) = (self.at + at, self.at + at + len as u64);
        let begin = from / block * block;
        let mut buf = AlignedBuf::zeroed((end.next_multiple_of(block) - begin) as usize);
        if !self.zones.read(self.zone.0, begin, &mut buf) {
            volume.read(&mut buf, volume.geometry().start(self.zone) + begin, Tag::new(self.cause))?;
        }
        let skip = (from - begin) as usize;
        Ok(buf[skip..skip + len].to_vec())
    }

    fn drive(&self) -> Arc<str> {
        self.tenant.volume().name()
    }

    fn rotates(&self) -> bool {
        self.tenant.volume().geometry().rotational
    }
}

/// What is the same of a table, whatever it was trimmed to.
struct Pinned {
    tenant: Tenant,
    zones: Arc<RecordWriter>,
    cache: Arc<Cache>,
    zone: ZoneId,
    order: Arc<dyn Order>,
    open: OnceLock<Arc<Table>>,
    /// Held by who opens it: others wait, and do not read the same from the drive.
    opening: Mutex<()>,
    /// The opening has found that its bytes are not there.
    lost: Option<Error>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.tenant.unpin(self.zone);
    }
}

/// See the module.
pub(crate) struct TableFile {
    pub info: TableInfo,
    pinned: Arc<Pinned>,
}

impl TableFile {
    /// One that stands in its zone. `lost`: the opening has found that it does not, and whoever reads it hears why.
    pub fn new(
        info: TableInfo,
        zones: &Arc<RecordWriter>,
        cache: &Arc<Cache>,
        order: &Arc<dyn Order>,
        lost: Option<Error>,
    ) -> Arc<TableFile> {
        let tenant = zones.tenant().clone();
        let zone = ZoneId(info.zone);
        tenant.pin(zone);
        let (zones, cache, order) = (zones.clone(), cache.clone(), order.clone());
        let pinned = Pinned { tenant, zones, cache, zone, order, open: OnceLock::new(), opening: Mutex::new(()), lost };
        Arc::new(TableFile { info, pinned: Arc::new(pinned) })
    }

    /// The same table with a changed description.
    pub fn changed(&self, change: impl FnOnce(&mut TableInfo)) -> Arc<TableFile> {
        let mut info = self.info.clone();
        change(&mut info);
        Arc::new(TableFile { info, pinned: self.pinned.clone() })
    }

    fn place(&self, cause: Cause) -> Arc<Place> {
        let (tenant, zones) = (self.pinned.tenant.clone(), self.pinned.zones.clone());
        Arc::new(Place { tenant, zones, zone: self.pinned.zone, at: self.info.at, cause })
    }

    fn table(&self) -> Result<&Arc<Table>> {
        if let Some(table) = self.pinned.open.get() {
            return Ok(table);
        }
        if let Some(lost) = &self.pinned.lost {
            return Err(lost.clone());
        }
        let _opening = lock(&self.pinned.opening);
        if let Some(table) = self.pinned.open.get() {
            return Ok(table);
        }
        let TableInfo { id, life, len, .. } = self.info;
        let identity = Identity { table: id, life };
        let (order, cache) = (self.pinned.order.clone(), self.pinned.cache.clone());
        let table = Table::open(self.place(Cause::UserRead), len, order, identity, cache)?;
        Ok(self.pinned.open.get_or_init(|| Arc::new(table)))
    }

    /// Bytes that index and filter take in memory, about: none before the table was opened.
    pub fn memory(&self) -> u64 {
        self.pinned.open.get().map_or(0, |table| table.memory() as u64)
    }

    /// The newest change of a key that is not newer than `seq`.
    pub fn get(&self, key: &[u8], seq: u64) -> Result<Option<Version>> {
        let found = self.table()?.get(key, self.stored(seq))?;
        Ok(found.map(|found| Version { seq: self.counted(found.seq), ..found }))
    }

    /// Whether a get of the key has to ask the drive.
    pub fn get_would_read(&self, key: &[u8], seq: u64) -> bool {
        let reads = |table: &Arc<Table>| table.may_contain(key) && table.would_read((key, self.stored(seq)));
        self.pinned.open.get().is_none_or(reads)
    }

    /// Whether a cursor that seeks has to ask the drive.
    pub fn seek_would_read(&self, to: Option<(&[u8], u64)>) -> bool {
        let first = (self.info.first(), u64::MAX);
        let to = to.filter(|(key, _)| self.pinned.order.compare(key, first.0).is_ge());
        let to = to.map_or(first, |(key, seq)| (key, self.stored(seq)));
        self.pinned.open.get().is_none_or(|table| table.would_read(to))
    }

    /// What to look for in the table for what is not newer than `seq`.
    fn stored(&self, seq: u64) -> u64 {
        if self.info.ingested && seq < self.info.seqs.0 { INGESTED - 1 } else { seq }
    }

    /// The number that a change of the table has.
    fn counted(&self, stored: u64) -> u64 {
        if self.info.ingested { self.info.seqs.0 } else { stored }
    }

    /// Bytes that count of it from this key on, about. Only its indexes are read.
    pub fn bytes_from(&self, key: &[u8]) -> Result<u64> {
        let order = &self.pinned.order;
        if order.compare(key, self.info.first()).is_le() {
            return Ok(self.info.live);
        }
        if order.compare(key, &self.info.largest).is_gt() {
            return Ok(0);
        }
        let before = self.table()?.approximate_offset(key)?;
        Ok(self.info.len.saturating_sub(before).min(self.info.live))
    }

    /// A cursor over what counts of it.
    pub fn cursor(self: &Arc<Self>) -> Result<Box<dyn Cursor + Send>> {
        Ok(Box::new(InTable { file: self.clone(), iter: self.table()?.iter() }))
    }

    /// The same for who reads all of it once.
    pub fn scan(self: &Arc<Self>) -> Result<InTable> {
        self.scan_by(Cause::Compaction, STREAM)
    }

    /// The same for who reads much of it once.
    pub fn scan_far(self: &Arc<Self>) -> Result<InTable> {
        self.scan_by(Cause::UserRead, FAR)
    }

    fn scan_by(self: &Arc<Self>, cause: Cause, stream: usize) -> Result<InTable> {
        let ahead = Ahead { place: self.place(cause), stream, len: self.info.len, piece: Default::default() };
        Ok(InTable { file: self.clone(), iter: self.table()?.scan(Arc::new(ahead)) })
    }

    /// Sentences about what is wrong with it.
    pub fn check(&self) -> Result<Vec<String>> {
        let table = self.table()?;
        let (mut found, is, info) = (table.check(), table.properties(), &self.info);
        let seqs = if info.ingested { (INGESTED, INGESTED) } else { info.seqs };
        let same = (is.entries, is.deletions, is.smallest_seq, is.largest_seq)
            == (info.entries, info.deletes, seqs.0, seqs.1)
            && (&is.smallest[..], &is.largest[..]) == (&info.smallest[..], &info.largest[..]);
        if !same {
            found.push("it is another one than the metadata says".into());
        }
        Ok(found)
    }
}

/// Reads long pieces, of which short ones are asked for in order. What is asked for in between, from elsewhere, is read by itself.
struct Ahead {
    place: Arc<Place>,
    len: u64,
    /// Bytes of a piece.
    stream: usize,
    piece: Mutex<Piece>,
}

#[derive(Default)]
struct Piece {
    from: u64,
    bytes: Vec<u8>,
    /// Where the last one that was read by itself ended; nowhere at first, so that what is only opened is not read ahead.
    alone: Option<u64>,
}

impl Source for Ahead {
    fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut piece = crate::sync::lock(&self.piece);
        let (end, behind) = (at + len as u64, piece.from + piece.bytes.len() as u64);
        // A block may begin in the piece and end behind it.
        let goes_on = at >= piece.from && at <= behind && behind > 0 || Some(at) == piece.alone;
        if end > behind || at < piece.from {
            if !goes_on {
                piece.alone = Some(end);
                return self.place.read(at, len);
            }
            let most = self.len.saturating_sub(at).min(self.stream as u64) as usize;
            (piece.from, piece.bytes) = (at, self.place.read(at, most.max(len))?);
        }
        let skip = (at - piece.from) as usize;
        Ok(piece.bytes[skip..skip + len].to_vec())
    }

    fn drive(&self) -> Arc<str> {
        self.place.drive()
    }
}

/// Of a table, from the key on to which it was trimmed.
pub(crate) struct InTable {
    file: Arc<TableFile>,
    iter: Iter,
}

impl InTable {
    /// The same of the table as it is described now: from another key on.
    pub fn of(self, file: &Arc<TableFile>) -> InTable {
        InTable { file: file.clone(), ..self }
    }

    /// Bytes of the table from the block on in which it stands.
    pub fn left(&self) -> u64 {
        self.iter.offset().map_or(0, |offset| self.file.info.len.saturating_sub(offset))
    }

    fn before_front(&self, key: &[u8]) -> bool {
        self.file.pinned.order.compare(key, self.file.info.first()) == Ordering::Less
    }
}

impl Cursor for InTable {
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        match to.filter(|(key, _)| !self.before_front(key)) {
            Some((key, seq)) => self.iter.seek(key, self.file.stored(seq)),
            None => self.iter.seek(self.file.info.first(), u64::MAX),
        }
    }

    fn seek_before(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        let Some((key, seq)) = to else { return self.iter.seek_to_last() };
        self.iter.seek(key, self.file.stored(seq))?;
        if self.iter.valid() { self.iter.prev() } else { self.iter.seek_to_last() }
    }

    fn next(&mut self) -> Result<()> {
        self.iter.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.iter.prev()
    }

    fn at(&self) -> Option<At<'_>> {
        let there = self.iter.valid() && !self.before_front(self.iter.key());
        there.then(|| At {
            key: self.iter.key(),
            seq: self.file.counted(self.iter.seq()),
            kind: self.iter.kind(),
            value: self.iter.value(),
        })
    }
}
