//! Scrubbing: all that lives is read, a little at a time, and compared with its checksums, so that damage is known while there are other copies.
//!
//! A round goes over the records of blobs in the order of their keys. A step reads a page of records and what lives of their blobs, in the order of the drive. It has no right to prepare
//! meanwhile, so nobody waits for it. What looks damaged is looked at again with the record as it is then: it may have moved, or be dead.

use crate::blob::{BLOCK, Blob, BlobId, Run};
use crate::codec::MAX_NUMBER;
use crate::core::{Core, is_of_bytes};
use crate::draft::{Counts, Draft};
use crate::id::ObjectId;
use crate::keyvalue::Family;
use crate::lock::lock;
use crate::onode::{Extent, Onode, SPAN, Span, of_span_key};
use crate::parts::Stand;
use crate::rounds::{Damaged, FIRST, Rounds, SCRUB};
use imbrex_device::{Cause, Result};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;

/// Records of a page: their bytes are in memory at once.
const PAGE: usize = 64;
/// So often what others move is looked for.
const TRIES: u32 = 8;

/// How far scrubbing is. Times are seconds since 1970; 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// When the last round began.
    pub began: u64,
    /// When the last one ended that went over all.
    pub ended: u64,
    /// Whether one is under way.
    pub is_under_way: bool,
    /// Bytes that the last one has read, or has so far.
    pub read: u64,
    /// Damaged places that are known.
    pub damaged: u64,
}

/// A place that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// An object that names it; `None`: no object that can be read does.
    pub object: Option<ObjectId>,
    /// Number of the object that wrote it.
    pub number: u64,
    /// Where it is in the object, in bytes.
    pub offset: u64,
    /// Bytes. 0: it is the record of a blob that cannot be read, and what is behind it.
    pub len: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { object, number, offset, len } = self;
        match (object, len) {
            (_, 0) => write!(f, "records of blobs of object number {number}, and of some behind it, cannot be read"),
            (Some(object), _) => write!(f, "{len} bytes of {object} from byte {offset} on cannot be read"),
            (None, _) => {
                write!(f, "{len} bytes that object number {number} wrote from byte {offset} on cannot be read")
            }
        }
    }
}

/// What a step looks at.
#[derive(Default)]
struct Page {
    blobs: HashMap<BlobId, Blob>,
    /// Living blocks.
    wanted: u64,
    /// Records that cannot be read.
    unread: Vec<Damaged>,
    /// Where the next one begins; `None`: this is the last.
    next: Option<BlobId>,
}

/// Does a step of about so many bytes. True: the round is over.
pub(crate) fn step(core: &Core, most: u64, now: u64) -> Result<bool> {
    let _one = core.scrubbing.take();
    let from = lock(&core.rounds).begin(now);
    let mut page = page(core, from, most)?;
    let mut found = std::mem::take(&mut page.unread);
    let read = read(core, &page, &mut found)?;
    let bad = !found.is_empty();
    let over = page.next.is_none();
    let saves = {
        let mut rounds = lock(&core.rounds);
        rounds.pass(from, page.next, (read, found), now);
        // The last round has perhaps read more.
        let saved = core.saved.load(Ordering::Relaxed).min(rounds.read);
        over || bad || from == FIRST || rounds.read - saved >= save_after(core)
    };
    if over {
        forget_what_is_gone(core)?;
    }
    if saves {
        save(core)?;
    }
    Ok(over)
}

/// How far a round is is written down after so many bytes: each time is a flush.
fn save_after(core: &Core) -> u64 {
    let volume = core.tenant.volume();
    (u64::from(volume.geometry().zones) * volume.least_capacity() / 64).min(256 << 20)
}

/// Writes down how far the round is, with what has gathered.
pub(crate) fn save(core: &Core) -> Result<()> {
    let record = {
        let mut rounds = lock(&core.rounds);
        rounds.again = core.again.counts();
        core.saved.store(rounds.read, Ordering::Relaxed);
        rounds.encode()
    };
    let _preparing = core.prepare();
    let mut draft = Draft::new(core, Counts::AtOnce);
    draft.layer.put(Family::Super, SCRUB.to_vec(), record);
    draft.publish(Vec::new()).map(drop).map_err(|(error, _)| error)
}

/// Records from `from` on whose living bytes are about `most`.
fn page(core: &Core, from: BlobId, most: u64) -> Result<Page> {
    let (mut page, mut at, mut records) = (Page::default(), from, PAGE);
    let mut gap = 0;
    loop {
        let (pairs, more) = match core.pairs(Family::Blobs, &at.key(), None, records, None) {
            Err(error) if is_of_bytes(&error) && records > 1 => {
                records = 1;
                continue;
            }
            Err(error) if is_of_bytes(&error) => {
                // Nothing says which is the next one that can be read. The gap doubles, when the next object has failed as well.
                if gap == 0 {
                    page.unread.push(Damaged { blob: at, first: 0, blocks: 0, offset: 0 });
                }
                at = BlobId { onode: at.onode.saturating_add((1 << gap) >> 1.min(gap)), number: 0 };
                gap += 1;
                if at.onode > MAX_NUMBER {
                    return Ok(page);
                }
                continue;
            }
            pairs => pairs?,
        };
        gap = 0;
        for (key, record) in &pairs {
            // A check tells of keys that make no sense.
            let Some(id) = BlobId::of_key(key) else { continue };
            match Blob::decode(record) {
                Some(blob) => {
                    page.wanted += blob.living().map(|run| u64::from(run.blocks)).sum::<u64>();
                    page.blobs.insert(id, blob);
                }
                None => page.unread.push(Damaged { blob: id, first: 0, blocks: 0, offset: 0 }),
            }
            at = id.next();
            if page.wanted * BLOCK >= most {
                page.next = Some(at);
                return Ok(page);
            }
        }
        if more.is_none() {
            return Ok(page);
        }
    }
}

/// Reads what lives of these blobs, in the order of the drive. Returns how many bytes that were.
fn read(core: &Core, page: &Page, found: &mut Vec<Damaged>) -> Result<u64> {
    let (mut runs, mut stands, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (id, blob) in &page.blobs {
        for run in blob.living() {
            bytes += u64::from(run.blocks) * BLOCK;
            match run.place {
                Some(place) => {
                    runs.push((*id, blob, run));
                    stands.push(Stand { place, blocks: run.blocks });
                }
                // What is in memory only is no damage yet.
                None if core.state().bytes.contains_key(id) => {}
                None => look_again(core, *id, blob, run, found)?,
            }
        }
    }
    core.each_part(&stands, Cause::Check, |n, of| {
        let (id, blob, run) = runs[n];
        match of.is_none_or(|of| blob.verify(run.first, of).is_some()) {
            true => look_again(core, id, blob, run, found),
            false => Ok(()),
        }
    })?;
    Ok(bytes)
}

/// Reads each grain of a run alone, from where it is now.
fn look_again(core: &Core, id: BlobId, blob: &Blob, run: Run, found: &mut Vec<Damaged>) -> Result<()> {
    let mut at = run.first;
    while at < run.first + run.blocks {
        let (first, blocks) = blob.whole(at, 1);
        if is_damaged(core, id, blob, (first, blocks))? {
            let (first, blocks) = blob.named_in(first, blocks);
            found.push(Damaged { blob: id, first, blocks, offset: blob.offset });
        }
        at = first + blocks;
    }
    Ok(())
}

fn is_damaged(core: &Core, id: BlobId, blob: &Blob, (first, blocks): (u32, u32)) -> Result<bool> {
    let mut blob = blob.clone();
    for _ in 0..TRIES {
        let failed = match core.fetch_stored((&blob, first, blocks), None, || core.get(Family::Deferred, &id.key())) {
            Ok(Some(_)) => return Ok(false),
            Ok(None) => false,
            Err(error) if is_of_bytes(&error) => true,
            Err(error) => return Err(error),
        };
        // It has moved, nobody names it any more, or it is damaged.
        let Some(now) = core.blob_as_counted(id)? else { return Ok(false) };
        let Some(place) = now.find(first, blocks) else { return Ok(false) };
        // What a repair has found gone is an error, too, until somebody overwrites it.
        if failed && Some(place) == blob.find(first, blocks) {
            return Ok(true);
        }
        blob = now;
    }
    // Where it is changes all the time. The next round looks again.
    Ok(false)
}

/// Drops from the list what nobody names any more.
fn forget_what_is_gone(core: &Core) -> Result<()> {
    let found = lock(&core.rounds).found.clone();
    let mut gone = Vec::new();
    for damaged in found.into_iter().filter(|damaged| damaged.blocks > 0) {
        let blob = core.blob(damaged.blob);
        let there = match blob {
            // It says of itself that it cannot be read.
            Err(error) if is_of_bytes(&error) => true,
            Err(error) => return Err(error),
            Ok(_) => {
                let blob = core.blob_as_counted(damaged.blob)?;
                blob.is_some_and(|blob| blob.lives(damaged.first, damaged.blocks))
            }
        };
        if !there {
            gone.push(damaged);
        }
    }
    lock(&core.rounds).found.retain(|damaged| !gone.contains(damaged));
    Ok(())
}

/// What is known to be damaged and is still there, by the objects that name it.
pub(crate) fn damage(core: &Core) -> Result<Vec<Damage>> {
    forget_what_is_gone(core)?;
    let found = lock(&core.rounds).found.clone();
    let mut names = Names { found: &found, named: vec![false; found.len()], all: Vec::new() };
    if !found.is_empty() {
        names.search(core)?;
    }
    let Names { named, mut all, .. } = names;
    for (damaged, _) in found.iter().zip(named).filter(|(_, named)| !named) {
        let blocks = damaged.blocks_of_object();
        let (offset, len) = (blocks.start * BLOCK, (blocks.end - blocks.start) * BLOCK);
        all.push(Damage { object: None, number: damaged.blob.onode, offset, len });
    }
    Ok(all)
}

/// Looks for who names what is damaged.
struct Names<'a> {
    found: &'a [Damaged],
    named: Vec<bool>,
    all: Vec<Damage>,
}

impl Names<'_> {
    fn search(&mut self, core: &Core) -> Result<()> {
        // Objects that have spans behind the first.
        let mut numbers = HashMap::new();
        each(core, Family::Extents, |key, value| {
            let Some((number, span)) = of_span_key(key) else { return };
            let extents = Span::of_record(value, number).unwrap_or_default();
            let hit: Vec<_> = extents.0.into_iter().filter(|extent| self.hits(extent)).collect();
            if !hit.is_empty() {
                numbers.entry(number).or_insert_with(Vec::new).push((span, hit));
            }
        })?;
        each(core, Family::Onodes, |key, value| {
            let Some((id, onode)) = ObjectId::of_key(key).zip(Onode::decode(value)) else { return };
            let more = numbers.remove(&onode.number).unwrap_or_default();
            for (span, extents) in [(0, onode.first.0)].into_iter().chain(more) {
                extents.iter().for_each(|extent| self.name(&id, (onode.number, onode.size), span, extent));
            }
        })
    }

    fn hits(&self, extent: &Extent) -> bool {
        let begin = self.found.partition_point(|damaged| damaged.blob < extent.blob);
        self.found[begin..].first().is_some_and(|damaged| damaged.blob == extent.blob)
    }

    fn name(&mut self, id: &ObjectId, (number, size): (u64, u64), span: u64, extent: &Extent) {
        let begin = self.found.partition_point(|damaged| damaged.blob < extent.blob);
        for (n, damaged) in self.found.iter().enumerate().skip(begin) {
            if damaged.blob != extent.blob {
                break;
            }
            let (first, end) = (damaged.first.max(extent.first), damaged.first + damaged.blocks);
            let end = end.min(extent.first + extent.blocks);
            if first >= end {
                continue;
            }
            self.named[n] = true;
            let offset = (span * SPAN + u64::from(extent.at + first - extent.first)) * BLOCK;
            let len = (u64::from(end - first) * BLOCK).min(size.saturating_sub(offset));
            self.all.push(Damage { object: Some(id.clone()), number, offset, len: len.max(1) });
        }
    }
}

/// All pairs of a family that can be read, of no one moment.
fn each(core: &Core, family: Family, mut one: impl FnMut(&[u8], &[u8])) -> Result<()> {
    let mut next = Some(Vec::new());
    while let Some(from) = next {
        let (pairs, more) = match core.pairs(family, &from, None, 1024, None) {
            // Who cannot be named is told by number.
            Err(error) if is_of_bytes(&error) => return Ok(()),
            pairs => pairs?,
        };
        pairs.iter().for_each(|(key, value)| one(key, value));
        next = more;
    }
    Ok(())
}

impl Core {
    /// A blob's record, if it can be read, with the changes of counts that wait.
    pub fn blob_as_counted(&self, id: BlobId) -> Result<Option<Blob>> {
        let blob = self.blob_of_many(id)?;
        Ok(blob.map(|blob| self.counted(id, blob)))
    }

    /// The same of a record that somebody has read.
    pub fn counted(&self, id: BlobId, mut blob: Blob) -> Blob {
        let changes: Vec<_> = self.state().counts.of(id).iter().flat_map(|(_, changes)| changes).copied().collect();
        for change in changes {
            match change.more {
                true => blob.name(change.first, change.blocks),
                false => drop(blob.unname(change.first, change.blocks)),
            }
        }
        blob
    }

    /// How far scrubbing is.
    pub fn scrubbed(&self) -> Scrub {
        let rounds = lock(&self.rounds);
        let Rounds { began, ended, read, .. } = *rounds;
        Scrub { began, ended, is_under_way: rounds.next.is_some(), read, damaged: rounds.known() }
    }
}
