//! Repair: what other records tell is mended. Nobody has the right to prepare or to commit meanwhile, and all is durable when it begins.
//!
//! Extents are believed: which objects there are, and which blocks of blobs they name. From these follow counts, from counts which blocks live, from these the records of zones and the sums. What belongs to no object is
//! deleted, unless an object cannot be read: it may be that one's. An extent that names what is gone stays. Its blob says then that the blocks are [lost](crate::blob::LOST): a read of them is an error, never zeros, and they can be
//! overwritten and deleted.
//!
//! Each batch has the records of zones and the sums that go with it, so a crash between two of them leaves a store that agrees with itself as far as it was mended. First of all zones get as many blocks as blobs
//! have there: with fewer a zone would be free too early. The next repair goes on.
//!
//! While anything is lost, zones in which nothing lives keep their records and are not free: the bytes are perhaps still there.

use crate::blob::{BLOCK, Blob, BlobId};
use crate::check::each;
use crate::codec::Reader;
use crate::core::{ALL, Core, NEXT, Preparing};
use crate::counts;
use crate::freelist;
use crate::id::ObjectId;
use crate::keyvalue::{Change, Family};
use crate::lock::lock;
use crate::onode::{Extent, Onode, SPAN, Span, of_span_key, span_key};
use crate::rounds::{Rounds, SCRUB};
use crate::space::Space;
use crate::table::{Sums, Table, Zone, zone_key};
use imbrex_device::{Result, ZoneId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// How much a repair mends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Records of zones, and the sums.
    Zones,
    /// All but what would have to be deleted: metadata may be gone that said whose it is.
    Keeping,
    /// All.
    All,
}

/// What a repair has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Sentences, one for each thing that was mended.
    pub mended: Vec<String>,
}

/// Changes of a batch, about.
const BATCH: usize = 256;

/// Who names a blob.
#[derive(Default)]
struct Named {
    /// Where the blob was written in its object, as an extent tells.
    offset: u64,
    /// First blocks and blocks of extents.
    extents: Vec<(u32, u32)>,
}

struct Repair<'a> {
    core: &'a Core,
    done: Repaired,
    numbers: HashSet<u64>,
    omaps: HashSet<u64>,
    named: HashMap<BlobId, Named>,
    /// Objects or extents make no sense: what seems to be nobody's may be theirs.
    doubt: bool,
    /// Zones that would be free are kept.
    keeps_zones: bool,
    /// Blobs that are as they were, with the changes of counts that wait for them.
    left_alone: HashSet<BlobId>,
    /// As they are with what was written, and with the batch.
    zones: BTreeMap<u32, Zone>,
    sums: Sums,
    /// Zones that the batch changes.
    touched: BTreeSet<u32>,
    batch: Vec<Change>,
    /// Blobs whose records have changed.
    changed: Vec<BlobId>,
}

/// See the module.
pub(crate) fn repair(core: &Core, mend: Mend, _: &Preparing<'_>) -> Result<Repaired> {
    let (zones, sums) = {
        let state = core.state();
        (state.table.iter().map(|(zone, z)| (zone, *z)).collect(), state.sums)
    };
    let mut repair = Repair {
        core,
        done: Repaired { mended: std::mem::take(&mut *lock(&core.derived)) },
        numbers: HashSet::new(),
        omaps: HashSet::new(),
        named: HashMap::new(),
        doubt: mend != Mend::All,
        keeps_zones: mend != Mend::All,
        left_alone: HashSet::new(),
        zones,
        sums,
        touched: BTreeSet::new(),
        batch: Vec::new(),
        changed: Vec::new(),
    };
    let done = repair.all(mend == Mend::Zones);
    if let Err(error) = done {
        // What is in memory does not agree with what was written.
        core.stop("a repair has failed; open the store again");
        return Err(error);
    }
    repair.end()
}

impl Repair<'_> {
    fn all(&mut self, quick: bool) -> Result<()> {
        self.objects()?;
        if !quick {
            self.spans()?;
            self.is_anything_lost()?;
        }
        self.zones_and_sums()?;
        if !quick {
            self.next_number()?;
            self.blobs()?;
            self.lost_blobs()?;
            self.counts()?;
            self.deferred()?;
            self.nobodys(Family::Omap, "pairs of omaps", |repair, key| {
                Reader(key).ordered().is_some_and(|omap| repair.omaps.contains(&omap))
            })?;
            self.nobodys(Family::Extents, "records of extents", |repair, key| {
                of_span_key(key).is_some_and(|(number, _)| repair.numbers.contains(&number))
            })?;
            self.scrub()?;
        }
        self.write()
    }

    fn mended(&mut self, sentence: impl Into<String>) {
        self.done.mended.push(sentence.into());
    }

    /// One atomic change, with the zones and the sums that go with it.
    fn write(&mut self) -> Result<()> {
        for zone in std::mem::take(&mut self.touched) {
            let Some(z) = self.zones.get(&zone) else { continue };
            self.batch.push(match z.live {
                0 => Change::Delete(Family::Zones, zone_key(zone)),
                _ => Change::Put(Family::Zones, zone_key(zone), z.encode()),
            });
        }
        if !self.batch.is_empty() {
            self.batch.push(Change::Put(Family::Statistics, ALL.to_vec(), self.sums.encode()));
            let batch = std::mem::take(&mut self.batch);
            self.core.kv.write(&batch)?;
            self.core.cache.forget(&batch);
        }
        Ok(())
    }

    fn write_if_full(&mut self) -> Result<()> {
        if self.batch.len() >= BATCH { self.write() } else { Ok(()) }
    }

    fn objects(&mut self) -> Result<()> {
        let mut sums = Sums::default();
        each(self.core, Family::Onodes, |key, value| {
            let Some((_, onode)) = ObjectId::of_key(key).zip(Onode::decode(value)) else {
                self.doubt = true;
                return Ok(());
            };
            sums.objects += 1;
            sums.bytes += onode.size as i64;
            self.numbers.insert(onode.number);
            if onode.omap > 0 {
                self.omaps.insert(onode.omap);
            }
            self.name(0, &onode.first.0);
            Ok(())
        })?;
        (self.sums.objects, self.sums.bytes) = (sums.objects, sums.bytes);
        Ok(())
    }

    fn name(&mut self, span: u64, extents: &[Extent]) {
        for extent in extents {
            let named = self.named.entry(extent.blob).or_default();
            named.offset = (span * SPAN + u64::from(extent.at)).saturating_sub(extent.first.into());
            named.extents.push((extent.first, extent.blocks));
        }
    }

    fn is_anything_lost(&mut self) -> Result<()> {
        let mut there = 0;
        each(self.core, Family::Blobs, |key, value| {
            let Some(id) = BlobId::of_key(key) else { return Ok(()) };
            let Some(named) = self.named.get(&id) else { return Ok(()) };
            there += 1;
            let lost = match Blob::decode(value) {
                Some(blob) => blob.recounted(&named.extents, true, true).lost() > 0,
                None => true,
            };
            self.keeps_zones |= lost;
            Ok(())
        })?;
        self.keeps_zones |= self.doubt || there < self.named.len();
        Ok(())
    }

    /// Zones have as many blocks as blobs have there, and the sums are right, before anything else changes.
    fn zones_and_sums(&mut self) -> Result<()> {
        let (mut live, mut deferred) = (BTreeMap::<u32, u64>::new(), 0);
        each(self.core, Family::Blobs, |_, value| {
            for run in Blob::decode(value).iter().flat_map(|blob| blob.living().collect::<Vec<_>>()) {
                match run.place {
                    Some(place) => *live.entry(place.zone).or_default() += u64::from(run.blocks),
                    None => deferred += i64::from(run.blocks),
                }
            }
            Ok(())
        })?;
        for (zone, z) in &mut self.zones {
            let found = live.get(zone).copied().unwrap_or(0);
            if z.live != found && (found > 0 || !self.keeps_zones) {
                self.done.mended.push(format!("{found} blocks live in zone {zone}, and its record said {}", z.live));
                z.live = found;
                self.touched.insert(*zone);
            }
        }
        self.sums.deferred = deferred;
        let was = self.core.state().sums;
        if was != self.sums {
            self.mended(format!("the sums over all objects are {:?}, and the record said {was:?}", self.sums));
            self.batch.push(Change::Put(Family::Statistics, ALL.to_vec(), self.sums.encode()));
        }
        self.write()
    }

    fn spans(&mut self) -> Result<()> {
        each(self.core, Family::Extents, |key, value| {
            let read = of_span_key(key).and_then(|(number, n)| Some((number, n, Span::of_record(value, number)?)));
            match read {
                Some((number, n, span)) if self.numbers.contains(&number) => self.name(n, &span.0),
                Some(_) => {}
                None => self.doubt = true,
            }
            Ok(())
        })
    }

    /// No object gets a number that another has or had.
    fn next_number(&mut self) -> Result<()> {
        let named = self.named.keys().map(|id| &id.onode);
        let highest = self.numbers.iter().chain(&self.omaps).chain(named).max().copied().unwrap_or(0);
        let mut state = self.core.state();
        if highest < state.next {
            return Ok(());
        }
        (state.next, state.ceiling) = (highest + 1, highest + 1);
        drop(state);
        self.mended(format!("an object has the number {highest}, and the record of the next one said less"));
        self.batch.push(Change::Put(Family::Super, NEXT.to_vec(), (highest + 1).to_le_bytes().to_vec()));
        Ok(())
    }

    /// Counts are those of the extents.
    fn blobs(&mut self) -> Result<()> {
        each(self.core, Family::Blobs, |key, value| {
            let Some((id, blob)) = BlobId::of_key(key).zip(Blob::decode(value)) else {
                // What it was is known to nobody. Extents that name it stay errors.
                BlobId::of_key(key).map(|id| self.named.remove(&id));
                return Ok(());
            };
            let extents = self.named.remove(&id).map_or(Vec::new(), |named| named.extents);
            if extents.iter().any(|(first, blocks)| first + blocks > blob.named) {
                return Ok(());
            }
            let has_bytes =
                blob.deferred().next().is_none() || self.core.kv.get(Family::Deferred, &id.key())?.is_some();
            let counted = self.core.counted(id, blob.clone());
            let mut now = blob.recounted(&extents, has_bytes, self.doubt);
            if live(&now) < live(&counted) && self.lacks_extents(id, &blob)? {
                if !self.core.state().counts.of(id).is_empty() {
                    self.left_alone.insert(id);
                    return Ok(());
                }
                now = blob.recounted(&extents, has_bytes, true);
            }
            // Changes that wait are no fault: they come to what the extents say.
            if now != counted {
                self.tell(id, &blob, &now);
            }
            if now != blob || !self.core.state().counts.of(id).is_empty() {
                self.change(id, &blob, &now);
            }
            self.write_if_full()
        })
    }

    /// Whether the object that wrote the blob is there, and the record of extents that would tell what it has of it is not: these may be lost, and not the blob dead.
    fn lacks_extents(&self, id: BlobId, blob: &Blob) -> Result<bool> {
        let span = blob.offset / SPAN;
        let is_there = span == 0 || self.core.kv.get(Family::Extents, &span_key(id.onode, span))?.is_some();
        Ok(self.numbers.contains(&id.onode) && !is_there)
    }

    fn tell(&mut self, id: BlobId, was: &Blob, now: &Blob) {
        let lost = now.lost().saturating_sub(was.lost());
        self.mended(match lost {
            _ if now.is_dead() => format!("no extent names {id}"),
            0 => format!("{id} was named by other extents than its record said"),
            n => format!("{n} blocks of {id} are gone, and reading them is an error"),
        });
    }

    fn change(&mut self, id: BlobId, was: &Blob, now: &Blob) {
        self.account(was, -1);
        self.account(now, 1);
        self.changed.push(id);
        let waiting: Vec<u64> = self.core.state().counts.of(id).iter().map(|(version, _)| *version).collect();
        // They are in the extents.
        let waiting = waiting.into_iter().map(|version| Change::Delete(Family::Counts, counts::key(id, version)));
        self.batch.extend(waiting);
        if now.deferred().next().is_none() {
            self.batch.push(Change::Delete(Family::Deferred, id.key()));
        }
        self.batch.push(match now.is_dead() {
            true => Change::Delete(Family::Blobs, id.key()),
            false => Change::Put(Family::Blobs, id.key(), now.encode()),
        });
    }

    /// What lives of a blob comes to its zones and to the sums, or goes.
    fn account(&mut self, blob: &Blob, sign: i64) {
        for run in blob.living() {
            let blocks = sign * i64::from(run.blocks);
            let Some(place) = run.place else {
                self.sums.deferred += blocks;
                continue;
            };
            if let Some(z) = self.zones.get_mut(&place.zone) {
                z.live = z.live.saturating_add_signed(blocks);
                self.touched.insert(place.zone);
            }
        }
    }

    /// Blobs that extents name and that are not there.
    fn lost_blobs(&mut self) -> Result<()> {
        let mut left: Vec<_> = std::mem::take(&mut self.named).into_iter().collect();
        left.sort_unstable_by_key(|(id, _)| *id);
        for (id, Named { offset, extents }) in left {
            let blob = Blob::all_lost(offset, &extents);
            let Some(blob) = blob else { continue };
            self.mended(format!("{id} is gone, which extents name, and reading them is an error"));
            self.changed.push(id);
            self.batch.push(Change::Put(Family::Blobs, id.key(), blob.encode()));
            self.write_if_full()?;
        }
        Ok(())
    }

    /// Counts are right now, whatever changes still wait.
    fn counts(&mut self) -> Result<()> {
        self.write()?;
        each(self.core, Family::Counts, |key, _| {
            let of = counts::of_key(key).map(|(id, _)| id);
            if self.doubt || of.is_some_and(|id| self.left_alone.contains(&id)) {
                return Ok(());
            }
            self.mended(match of {
                Some(id) => format!("changes of counts of {id} did not fit its record"),
                None => "the key of a change of counts made no sense".into(),
            });
            self.changed.extend(of);
            self.batch.push(Change::Delete(Family::Counts, key.to_vec()));
            self.write_if_full()
        })
    }

    fn deferred(&mut self) -> Result<()> {
        self.write()?;
        each(self.core, Family::Deferred, |key, _| {
            let id = BlobId::of_key(key);
            let blob = match id {
                Some(id) => self.core.kv.get(Family::Blobs, &id.key())?,
                None => None,
            };
            let waits = match blob {
                Some(record) => Blob::decode(&record).is_none_or(|blob| blob.deferred().next().is_some()),
                None => self.doubt,
            };
            if !waits {
                self.mended("deferred bytes belonged to no blob that waits for them");
                self.batch.push(Change::Delete(Family::Deferred, key.to_vec()));
                self.changed.extend(id);
            }
            self.write_if_full()
        })
    }

    /// Deletes what belongs to no object.
    fn nobodys(&mut self, family: Family, what: &str, is_ones: fn(&Self, &[u8]) -> bool) -> Result<()> {
        if self.doubt {
            return Ok(());
        }
        let mut gone = 0;
        each(self.core, family, |key, _| {
            if !is_ones(self, key) {
                gone += 1;
                self.batch.push(Change::Delete(family, key.to_vec()));
            }
            self.write_if_full()
        })?;
        if gone > 0 {
            self.mended(format!("{gone} {what} belonged to no object"));
        }
        Ok(())
    }

    fn scrub(&mut self) -> Result<()> {
        let record = self.core.kv.get(Family::Super, SCRUB)?;
        if record.is_some_and(|record| Rounds::decode(&record).is_none()) {
            self.mended("the record of scrubbing made no sense");
            self.batch.push(Change::Delete(Family::Super, SCRUB.to_vec()));
        }
        Ok(())
    }

    /// Which units are taken is what blobs say by now, in a store in place.
    fn units(&self) -> Result<()> {
        let core = self.core;
        let Some(unit) = core.data.unit else { return Ok(()) };
        let space = Space::new(unit, (core.tenant.volume().least_capacity() / BLOCK) as u32);
        let mut table = Table::default();
        self.zones.iter().for_each(|(zone, z)| table.insert(*zone, *z));
        let (space, changes) = freelist::derive(core.kv.as_ref(), space, &table)?;
        if !changes.is_empty() {
            core.kv.write(&changes)?;
        }
        core.state().space = Some(space);
        Ok(())
    }

    /// All of it is durable, and memory has it.
    fn end(self) -> Result<Repaired> {
        let core = self.core;
        if self.done.mended.is_empty() && self.changed.is_empty() {
            return Ok(self.done);
        }
        if let Err(error) = self.units().and_then(|()| core.kv.sync()) {
            core.stop("a repair has failed; open the store again");
            return Err(error);
        }
        {
            let mut state = core.state();
            let state = &mut *state;
            state.version += 1;
            state.sums = self.sums;
            let mut memory = lock(&core.cleaning);
            for id in self.changed {
                state.counts.remove(id);
                state.deferred.remove(id);
                memory.forget(id);
            }
            memory.listed.clear();
            drop(memory);
            for (zone, z) in self.zones {
                let lived = state.table.get(zone).is_some_and(|was| was.live > 0);
                state.table.insert(zone, z);
                if lived && z.live == 0 && !z.open && !state.table.keeps {
                    core.tenant.forget(ZoneId(zone), state.durable);
                }
            }
        }
        core.collect();
        Ok(self.done)
    }
}

fn live(blob: &Blob) -> u32 {
    blob.living().map(|run| run.blocks).sum()
}
