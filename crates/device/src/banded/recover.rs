//! Reading a band table after whatever happened to it. Nothing here writes.
//!
//! The newest whole snapshot counts, then every batch of its log, in order. A batch was written only after the flush of
//! the one before had ended, so all batches but the last are confirmed by their successor; the last may stand there though
//! the bytes that it speaks of do not, which its checksums tell. A snapshot is written whole and flushed before its log
//! begins, and says nothing that the older snapshot and log do not say; so a snapshot that has rotted is replaced by those.

use super::base::Base;
use super::layout::{COPY_AT, Layout, NoHeader, PAGE, decode_header};
use super::staging::{self, Piece};
use super::table::{self, Proof, Record, Word};
use crate::{AlignedBuf, Fault};
use std::collections::HashMap;

/// What a table says, believing that no power was lost.
pub(super) struct Found {
    pub(super) generation: u64,
    /// Number of the next batch.
    pub(super) sequence: u64,
    pub(super) epoch: u64,
    pub(super) words: Vec<Word>,
    /// The records of the last batch: nothing confirms that their bytes are on the disk.
    last: Vec<Record>,
    /// Bytes that may be nowhere but in the log, in the order in which they were written.
    pub(super) pieces: Vec<Piece>,
    /// How many of these stood before the last record that says of a band that all before it is there.
    settled: HashMap<u32, usize>,
}

/// A batch of the log, and what it carries.
struct Batch {
    records: Vec<Record>,
    data: Vec<u8>,
}

/// No table comes so far as this.
const MOST: u64 = u64::MAX / 2;

fn damaged(what: &str) -> Fault {
    Fault::Corrupt { what: what.into(), check: None }
}

/// Reads `len` bytes; blocks that cannot be read are zeros, which no structure is.
fn read_table(base: &dyn Base, at: u64, len: usize) -> Result<AlignedBuf, Fault> {
    let mut bytes = AlignedBuf::zeroed(len);
    let step = (base.facts().max_io as usize).max(PAGE) / PAGE * PAGE;
    for (i, part) in bytes.chunks_mut(step).enumerate() {
        let at = at + (i * step) as u64;
        match base.read(part, at) {
            Ok(()) => {}
            Err(Fault::Media { .. }) => {
                for (i, page) in part.chunks_mut(PAGE).enumerate() {
                    match base.read(page, at + (i * PAGE) as u64) {
                        Ok(()) => {}
                        Err(Fault::Media { .. }) => page.fill(0),
                        Err(other) => return Err(other),
                    }
                }
            }
            Err(other) => return Err(other),
        }
    }
    Ok(bytes)
}

/// The header, and whether one of its copies is bad.
pub(super) fn read_header(base: &dyn Base) -> Result<Result<(Layout, bool), NoHeader>, Fault> {
    let size = base.facts().size;
    let mut copies = Vec::new();
    for at in [0, COPY_AT] {
        if size < at + PAGE as u64 {
            copies.push(Err(NoHeader::Foreign));
            continue;
        }
        copies.push(decode_header(&read_table(base, at, PAGE)?, size));
    }
    Ok(match (copies[0], copies[1]) {
        (Err(NoHeader::Newer), _) | (_, Err(NoHeader::Newer)) => Err(NoHeader::Newer),
        (Ok(first), second) => Ok((first, second != Ok(first))),
        // Without its first page a disk is somebody else's, unless that page is ours and damaged or cannot be read: a new
        // file system leaves our second copy standing.
        (Err(NoHeader::Damaged), Err(second @ NoHeader::Shrunk(_))) => Err(second),
        (Err(NoHeader::Damaged), Ok(second)) => Ok((second, true)),
        (Err(why), _) => Err(why),
    })
}

/// What the log of `generation` holds behind batch number `next`, batch by batch. None of its blocks is of a later generation than `last`:
/// a log that begins over such a one would end in it.
fn read_log(base: &dyn Base, layout: &Layout, generation: u64, last: u64, next: u64) -> Result<Vec<Batch>, Fault> {
    let bytes = read_table(base, layout.log_at(generation), layout.log_len() as usize)?;
    let (mut batches, mut part) = (Vec::new(), Batch { records: Vec::new(), data: Vec::new() });
    let (mut sequence, mut index, mut ended) = (next, 0, false);
    for slot in bytes.chunks(2 * PAGE) {
        let copies: Vec<_> = slot.chunks(PAGE).filter_map(|block| table::decode_log(layout, block)).collect();
        if copies.iter().any(|block| block.place.generation > last) {
            return Err(damaged("the log of the band table"));
        }
        let found = copies.into_iter().find(|block| block.place.generation == generation);
        let Some(table::LogBlock { place, records, rest }) = found else {
            ended = true;
            continue;
        };
        if place.sequence > sequence || (ended && place.sequence < sequence) {
            return Err(damaged("the log of the band table"));
        }
        if ended || place.sequence < sequence || place.index != index {
            // A later block of the batch that was cut off.
            ended = true;
            continue;
        }
        part.records.extend(records.ok_or_else(|| damaged("a record of the band table"))?);
        part.data.extend_from_slice(rest);
        index += 1;
        if index == place.count {
            let mut carried = part.records.iter().map(|record| record.carried(layout.block));
            let all = carried.try_fold(0, u64::checked_add);
            if all.is_none_or(|all| all > part.data.len() as u64) {
                return Err(damaged("a record of the band table"));
            }
            batches.push(std::mem::replace(&mut part, Batch { records: Vec::new(), data: Vec::new() }));
            (sequence, index) = (sequence + 1, 0);
        }
    }
    Ok(batches)
}

/// What the table of this layout says.
pub(super) fn read(base: &dyn Base, layout: &Layout) -> Result<Found, Fault> {
    let mut snapshots = Vec::new();
    for pair in [0, 1] {
        let bytes = read_table(base, layout.snapshot_at(pair), layout.snapshot_blocks() * PAGE)?;
        let whole = table::decode_snapshot(layout, &bytes);
        snapshots.extend(whole.filter(|(place, _)| place.generation % 2 == pair));
    }
    let newest = snapshots.into_iter().max_by_key(|(place, _)| place.generation);
    let (place, words) = newest.ok_or_else(|| damaged("the band table (both of its snapshots)"))?;
    let mut found = Found {
        generation: place.generation,
        sequence: place.sequence,
        epoch: place.epoch,
        words,
        last: Vec::new(),
        pieces: Vec::new(),
        settled: HashMap::new(),
    };
    // Each goes up by one at a time.
    if [place.generation, place.sequence, place.epoch].iter().any(|number| *number > MOST) {
        return Err(damaged("the numbers of the band table"));
    }
    let later = place.generation + 1;
    for generation in [place.generation, later] {
        let batches = read_log(base, layout, generation, later, found.sequence)?;
        if !batches.is_empty() {
            found.generation = generation;
        }
        for batch in batches {
            found.sequence += 1;
            found.take(layout, batch);
        }
    }
    Ok(found)
}

impl Found {
    /// What a batch changes.
    fn take(&mut self, layout: &Layout, batch: Batch) {
        let mut data = batch.data.as_slice();
        for record in &batch.records {
            if let Some(word) = self.words.get_mut(record.band as usize) {
                *word = record.word;
            }
            match record.proof {
                // It may be set in place from here on, and what stood there before is no longer what is to be there.
                Proof::Durable => drop(self.settled.insert(record.band, self.pieces.len())),
                Proof::Sum(_) => {}
                Proof::Carried => {
                    let (bytes, rest) = data.split_at(record.carried(layout.block) as usize);
                    data = rest;
                    if !bytes.is_empty() {
                        let (band, life, from) = (record.band, record.word.life, record.from);
                        self.pieces.push(Piece { band, life, from, bytes: bytes.into() });
                    }
                }
            }
        }
        self.last = batch.records;
    }

    /// Leaves those pieces, in the order of places, that are a part of what the bands are now. Those that overlap say the same.
    pub(super) fn keep_pieces_of_now(&mut self, layout: &Layout) {
        let (words, settled, mut number) = (&self.words, &self.settled, 0);
        self.pieces.retain(|piece| {
            number += 1;
            settled.get(&piece.band).is_none_or(|settled| number > *settled)
                && words.get(piece.band as usize).is_some_and(|word| piece.is_of(word, layout))
        });
        self.pieces.sort_by_key(|piece| (piece.band, piece.from));
    }

    /// Adds what a dead process had not flushed.
    pub(super) fn take_staged(&mut self, live: &[u8], layout: &Layout) {
        self.pieces.extend(staging::left_behind(live, layout, self.epoch));
    }

    /// Lets a power loss happen to what the table says: what was not confirmed is checked, and cut where it is not there.
    /// Returns how many bands lost something that the table spoke of.
    pub(super) fn lose_power(&mut self, base: &dyn Base, layout: &Layout) -> Result<usize, Fault> {
        let mut cut = 0;
        for record in &self.last {
            let is_there = match record.proof {
                Proof::Durable | Proof::Carried => true,
                Proof::Sum(sum) => sum_of(base, layout, record)? == Some(sum),
            };
            if let (false, Some(word)) = (is_there, self.words.get_mut(record.band as usize)) {
                *word = word.cut(record.from, layout.capacity());
                cut += 1;
            }
        }
        for word in &mut self.words {
            *word = word.cut(word.written, layout.capacity());
        }
        Ok(cut)
    }
}

/// The checksum of a record's bytes as they are now; `None` where they cannot be read, as where the power failed in the
/// middle of a sector.
fn sum_of(base: &dyn Base, layout: &Layout, record: &Record) -> Result<Option<u32>, Fault> {
    let mut sum = table::seed(layout, record.band, record.word.life, record.from);
    let block = u64::from(layout.block);
    let step = u64::from(base.facts().max_io).max(block) / block * block;
    let (mut at, end) = (record.from * block, record.word.written * block);
    let mut buf = AlignedBuf::zeroed(step.min(end - at) as usize);
    while at < end {
        let n = step.min(end - at) as usize;
        match base.read(&mut buf[..n], layout.start(record.band) + at) {
            Ok(()) => sum = crc32c::crc32c_append(sum, &buf[..n]),
            Err(Fault::Media { .. }) => return Ok(None),
            Err(other) => return Err(other),
        }
        at += n as u64;
    }
    Ok(Some(sum))
}

/// The live words in the live part, if they were written under this boot and epoch and are whole; `None` where the power may have been away. Nor are they
/// believed where the table has not come as far as they have: it was restored from a copy.
pub(super) fn live_words(bytes: &[u8], layout: &Layout, boot: &[u8; 16], found: &Found) -> Option<Vec<Word>> {
    let head = table::encode_live_head(layout, boot, found.epoch);
    if !bytes.starts_with(&head) {
        return None;
    }
    let mark = (layout.live_mark_at() - layout.live_at()) as usize;
    let come = bytes.get(mark..mark + table::LIVE_MARK).and_then(|mark| table::decode_live_mark(layout, mark));
    if come.is_none_or(|come| found.sequence < come) {
        return None;
    }
    let word = |band: u32| {
        let at = (layout.live_word_at(band) - layout.live_at()) as usize;
        table::decode_live(layout, band, bytes.get(at..at + super::layout::LIVE_WORD)?)
    };
    (0..layout.bands).map(word).collect()
}
