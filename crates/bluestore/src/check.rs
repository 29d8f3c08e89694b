//! Whether all records agree. Invariants, by the numbers of `docs/bluestore.md`:
//!
//! 1. each extent names blocks of a blob that live; as many extents name each grain of a blob as the blob's record says;
//! 2. each zone has as many living blocks as its record says, and the life that blobs' records say;
//! 3. what has no place is deferred, and nothing else is;
//! 4. spans and omaps belong to an object, and an object to one collection;
//! 5. the sums over all objects are right;
//! 6. headers of runs say whose all living blocks are (looked at with `deep`);
//! 7. in a store in place no unit has blocks of two blobs, and the freelist says which have any.

use crate::blob::{BLOCK, Blob, BlobId, LOST, Place, Run};
use crate::codec::Reader;
use crate::core::{Core, Preparing, is_of_bytes};
use crate::counts;
use crate::freelist::{self, Found};
use crate::id::{CollectionId, ObjectId, bits_of};
use crate::keyvalue::Family;
use crate::onode::{Extent, Onode, SPAN, Span, of_span_key};
use crate::rounds::{Rounds, SCRUB};
use crate::run::RunPiece;
use crate::table::Sums;
use imbrex_device::{Cause, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sentences, one for each thing that is wrong.
    pub wrong: Vec<String>,
    /// Objects that were looked at.
    pub objects: u64,
    /// Blobs that were.
    pub blobs: u64,
    /// Bytes that were read and compared with their checksums.
    pub read: u64,
}

/// Pairs that are in memory at once. Deferred blobs have up to 256 KiB, and values of omaps more.
const PAGE: usize = 256;

struct Check<'a> {
    core: &'a Core,
    report: Report,
    /// Numbers of objects, and their sizes.
    numbers: HashMap<u64, u64>,
    omaps: HashMap<u64, ObjectId>,
    /// How often each block is named, of each blob.
    named: HashMap<BlobId, Vec<u32>>,
    live: BTreeMap<u32, u64>,
    sums: Sums,
    /// Blobs of which something has no place.
    waiting: BTreeSet<BlobId>,
    /// Blobs of which a repair has found blocks gone, and objects that name these.
    lost: BTreeMap<BlobId, BTreeSet<String>>,
    /// What headers of runs say, by zone and block.
    runs: BTreeMap<(u32, u32), RunPiece>,
    /// Units that blobs have, of a store in place.
    units: Found,
}

/// See the module. All is durable, and stays so while somebody has the right to prepare.
pub(crate) fn check(core: &Core, deep: bool, _: &Preparing<'_>) -> Result<Report> {
    let mut check = Check {
        core,
        report: Report::default(),
        numbers: HashMap::new(),
        omaps: HashMap::new(),
        named: HashMap::new(),
        live: BTreeMap::new(),
        sums: Sums::default(),
        waiting: BTreeSet::new(),
        lost: BTreeMap::new(),
        runs: BTreeMap::new(),
        units: Found::default(),
    };
    if deep && core.data.unit.is_none() {
        check.read_headers()?;
    }
    check.scrub()?;
    check.objects()?;
    check.spans()?;
    check.blobs(deep)?;
    check.lost()?;
    check.counts()?;
    check.deferred()?;
    check.omaps()?;
    check.zones();
    check.units()?;
    Ok(check.report)
}

impl Check<'_> {
    fn wrong(&mut self, sentence: impl Into<String>) {
        self.report.wrong.push(sentence.into());
    }

    fn scrub(&mut self) -> Result<()> {
        let record = self.core.get(Family::Super, SCRUB)?;
        if record.is_some_and(|record| Rounds::decode(&record).is_none()) {
            self.wrong("the record of scrubbing makes no sense");
        }
        Ok(())
    }

    /// Reads the headers of all runs, zone by zone, until something else stands there.
    fn read_headers(&mut self) -> Result<()> {
        let core = self.core;
        let zones: Vec<_> = core.state().table.iter().map(|(zone, z)| (zone, z.life)).collect();
        for (zone, life) in zones {
            let read = core.each_run(zone, life, Cause::Recovery, |mut at, header| {
                for piece in header.pieces {
                    self.runs.insert((zone, at), piece);
                    at += piece.blocks;
                }
            });
            // What cannot be read is told with the blobs that stand there.
            read.or_else(|error| if is_of_bytes(&error) { Ok(()) } else { Err(error) })?;
        }
        Ok(())
    }

    /// Whether headers of runs say that these blocks are the blob's.
    fn is_in_runs(&self, id: BlobId, run: &Run, place: Place) -> bool {
        (0..run.blocks).all(|n| {
            let at = place.block + n;
            let before = self.runs.range((place.zone, 0)..=(place.zone, at)).next_back();
            before.is_some_and(|((_, first), piece)| {
                piece.blob == id
                    && at - first < piece.blocks
                    && piece.first.checked_add(at - first) == Some(run.first + n)
            })
        })
    }

    fn objects(&mut self) -> Result<()> {
        let (core, mut collections) = (self.core, Vec::new());
        each(core, Family::Collections, |key, value| {
            match CollectionId::of_key(key).zip(bits_of(value)) {
                Some(one) => collections.push(one),
                None => self.wrong("a collection's record makes no sense"),
            }
            Ok(())
        })?;
        each(core, Family::Onodes, |key, value| {
            let Some((id, onode)) = ObjectId::of_key(key).zip(Onode::decode(value)) else {
                self.wrong("an object's record makes no sense");
                return Ok(());
            };
            self.report.objects += 1;
            let homes = collections.iter().filter(|(collection, bits)| collection.has(*bits, &id)).count();
            if homes != 1 {
                self.wrong(format!("{id} is in {homes} collections"));
            }
            if self.numbers.insert(onode.number, onode.size).is_some() {
                self.wrong(format!("{id} has the number {} of another object", onode.number));
            }
            if onode.omap > 0 && self.omaps.insert(onode.omap, id.clone()).is_some() {
                self.wrong(format!("{id} has the omap of another object"));
            }
            self.sums.objects += 1;
            self.sums.bytes += onode.size as i64;
            self.name(&id.to_string(), 0, &onode.first.0, onode.size);
            Ok(())
        })
    }

    fn name(&mut self, whose: &str, span: u64, extents: &[Extent], size: u64) {
        for extent in extents {
            let counts = self.named.entry(extent.blob).or_default();
            let end = (extent.first + extent.blocks) as usize;
            counts.resize(counts.len().max(end), 0);
            counts[extent.first as usize..end].iter_mut().for_each(|count| *count += 1);
            if span * SPAN + u64::from(extent.end()) > size.div_ceil(BLOCK) {
                self.wrong(format!("{whose} has blocks behind its end"));
            }
        }
    }

    fn spans(&mut self) -> Result<()> {
        each(self.core, Family::Extents, |key, value| {
            let read = of_span_key(key).and_then(|(number, n)| Some((number, n, Span::of_record(value, number)?)));
            let Some((number, n, span)) = read else {
                self.wrong("extents of an object make no sense");
                return Ok(());
            };
            match self.numbers.get(&number) {
                Some(size) => self.name(&format!("object number {number}"), n, &span.0, *size),
                None => self.wrong(format!("extents belong to object number {number}, which does not exist")),
            }
            Ok(())
        })
    }

    fn blobs(&mut self, deep: bool) -> Result<()> {
        each(self.core, Family::Blobs, |key, value| {
            let Some((id, blob)) = BlobId::of_key(key).zip(Blob::decode(value)) else {
                self.wrong("a blob's record makes no sense");
                return Ok(());
            };
            self.report.blobs += 1;
            let name = id.to_string();
            let mut named = self.named.remove(&id).unwrap_or_default();
            if named.len() > blob.named as usize {
                self.wrong(format!("extents name blocks behind the end of {name}"));
            }
            named.resize(blob.named as usize, 0);
            if !agree(&blob, &named) {
                self.wrong(format!("{name} is named by other extents than its record says"));
            }
            if blob.lost() > 0 {
                self.lost.insert(id, BTreeSet::new());
            }
            for run in blob.living().filter(|run| run.place.is_none_or(|place| place.zone != LOST.zone)) {
                let Some(place) = run.place else {
                    self.sums.deferred += i64::from(run.blocks);
                    self.waiting.insert(id);
                    continue;
                };
                *self.live.entry(place.zone).or_default() += u64::from(run.blocks);
                let life = self.core.state().table.get(place.zone).map(|z| z.life as u32);
                if life != Some(place.life) {
                    self.wrong(format!("{name} is in another life of zone {}", place.zone));
                }
                if deep && self.core.data.unit.is_none() && !self.is_in_runs(id, &run, place) {
                    self.wrong(format!("{name} is not in the header of its run in zone {}", place.zone));
                }
            }
            if let Some(unit) = self.core.data.unit {
                self.units.count(&blob, unit);
            }
            if deep { self.bytes(id, &blob) } else { Ok(()) }
        })?;
        for id in std::mem::take(&mut self.named).into_keys() {
            self.wrong(format!("extents name {id}, which does not exist"));
        }
        Ok(())
    }

    fn bytes(&mut self, id: BlobId, blob: &Blob) -> Result<()> {
        // What is lost is told with the objects that name it.
        for run in blob.living().filter(|run| run.place.is_none_or(|place| place.zone != LOST.zone)) {
            let deferred = || self.core.get(Family::Deferred, &id.key());
            let wrong = match self.core.fetch_stored((blob, run.first, run.blocks), None, deferred) {
                Ok(Some(bytes)) => {
                    self.report.read += bytes.len() as u64;
                    continue;
                }
                Ok(None) => "is not where its record says".into(),
                Err(error) if is_of_bytes(&error) => format!("cannot be read: {error}"),
                Err(error) => return Err(error),
            };
            self.wrong(format!("{id}, written from byte {} on, {wrong}", blob.offset * BLOCK));
        }
        Ok(())
    }

    /// Which objects name blocks that are gone.
    fn lost(&mut self) -> Result<()> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let core = self.core;
        each(core, Family::Onodes, |key, value| {
            let Some((id, onode)) = ObjectId::of_key(key).zip(Onode::decode(value)) else { return Ok(()) };
            let (extents, _) = core.extents_of(&onode, 0..u64::MAX)?;
            for extent in extents {
                let Some(blob) = core.blob(extent.blob)?.filter(|_| self.lost.contains_key(&extent.blob)) else {
                    continue;
                };
                let (from, len) = blob.whole(extent.first, extent.blocks);
                let runs = blob.find(from, len).unwrap_or_default();
                if runs.iter().any(|run| run.place.is_some_and(|place| place.zone == LOST.zone)) {
                    self.lost.entry(extent.blob).or_default().insert(id.to_string());
                }
            }
            Ok(())
        })?;
        for (id, objects) in std::mem::take(&mut self.lost) {
            let objects: Vec<String> = objects.into_iter().collect();
            self.wrong(format!("bytes of {id} are lost, which {} has", objects.join(" and ")));
        }
        Ok(())
    }

    /// All that makes sense were made before.
    fn counts(&mut self) -> Result<()> {
        each(self.core, Family::Counts, |key, _| {
            match counts::of_key(key) {
                Some((id, _)) => self.wrong(format!("changes of counts of {id} do not fit its record")),
                None => self.wrong("the key of a change of counts makes no sense"),
            }
            Ok(())
        })
    }

    fn deferred(&mut self) -> Result<()> {
        let core = self.core;
        each(core, Family::Deferred, |key, value| {
            let Some(id) = BlobId::of_key(key) else {
                self.wrong("the key of a deferred blob makes no sense");
                return Ok(());
            };
            match core.blob(id)? {
                Some(blob) if blob.deferred().next().is_none() => {
                    self.wrong(format!("{id} has a place and is deferred"))
                }
                Some(blob) if value.len() as u64 == u64::from(blob.blocks) * BLOCK => {}
                Some(_) => self.wrong(format!("{id} is deferred with another length")),
                None => self.wrong(format!("{id} is deferred and does not exist")),
            }
            self.waiting.remove(&id);
            Ok(())
        })?;
        for id in std::mem::take(&mut self.waiting) {
            self.wrong(format!("the deferred bytes of {id} are gone"));
        }
        Ok(())
    }

    fn omaps(&mut self) -> Result<()> {
        each(self.core, Family::Omap, |key, _| {
            match Reader(key).ordered() {
                Some(omap) if self.omaps.contains_key(&omap) => {}
                _ => self.wrong("a pair of an omap belongs to no object"),
            }
            Ok(())
        })
    }

    /// The freelist says what blobs say, on the drive and in memory.
    fn units(&mut self) -> Result<()> {
        let Found { records, twice } = std::mem::take(&mut self.units);
        if twice > 0 {
            self.wrong(format!("{twice} units have blocks of two blobs"));
        }
        let mut rest = records.clone();
        each(self.core, Family::Units, |key, value| {
            let Some((of, taken)) = freelist::of_key(key).zip(freelist::decode(value)) else {
                self.wrong("a record of which units are taken makes no sense");
                return Ok(());
            };
            let found = rest.remove(&of).unwrap_or(0);
            if found != taken {
                let (lost, extra) = ((found & !taken).count_ones(), (taken & !found).count_ones());
                self.wrong(format!(
                    "of zone {} {lost} units are taken that are recorded as free, and {extra} the other way round",
                    of.0
                ));
            }
            Ok(())
        })?;
        rest.into_keys()
            .for_each(|(zone, _)| self.wrong(format!("units of zone {zone} are taken, and no record says so")));
        let state = self.core.state();
        // What dies with the group that gathers has nothing that lives.
        let agrees = state.space.as_ref().is_none_or(|space| space.records(state.group) == records);
        drop(state);
        if !agrees {
            self.wrong("memory has other units than records; open the store again");
        }
        Ok(())
    }

    fn zones(&mut self) {
        let (table, sums) = {
            let state = self.core.state();
            (state.table.iter().map(|(zone, z)| (zone, z.live)).collect::<BTreeMap<_, _>>(), state.sums)
        };
        for (zone, live) in &table {
            let found = self.live.remove(zone).unwrap_or(0);
            if found != *live {
                self.wrong(format!("{found} blocks live in zone {zone}, and its record says {live}"));
            }
        }
        if sums != self.sums {
            self.wrong(format!("the sums over all objects are {:?}, and the record says {sums:?}", self.sums));
        }
    }
}

/// Has `each` see all pairs of a family, a page at a time.
pub(crate) fn each(core: &Core, family: Family, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut next = Some(Vec::new());
    while let Some(from) = next {
        let (pairs, more) = core.pairs(family, &from, None, PAGE, None)?;
        pairs.iter().try_for_each(|(key, value)| each(key, value))?;
        next = more;
    }
    Ok(())
}

/// Whether the blob's counts are those of its extents. A grain counts extents that touch any of its blocks, so its count is at least that of each block.
fn agree(blob: &Blob, named: &[u32]) -> bool {
    let counts = blob.counts();
    let grain = blob.together() as usize;
    named.len() == counts.len()
        && named.chunks(grain).zip(counts.chunks(grain)).all(|(named, counts)| {
            let most = named.iter().copied().max().unwrap_or(0);
            let all: u64 = named.iter().map(|n| u64::from(*n)).sum();
            counts.iter().all(|count| *count >= most && u64::from(*count) <= all)
        })
}
