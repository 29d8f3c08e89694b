//! A transaction that is being prepared: what it changes, over what is there. Nothing of it counts before it is published.

use crate::blob::{BLOCK, Blob, BlobId, Run};
use crate::compress::Compression;
use crate::core::{Core, Fresh, NEXT, State, is_of_bytes};
use crate::counts::{self, CountChange};
use crate::data::Stream;
use crate::gone::Gone;
use crate::id::{CollectionId, ObjectId, bits_of};
use crate::keyvalue::{Family, Pair};
use crate::layer::Layer;
use crate::lock::lock;
use crate::names::Name;
use crate::onode::{Extent, Onode, SPAN, Span, of_span_key, span_key};
use crate::table::Sums;
use crate::transaction::{Asks, Callback};
use imbrex_device::{AlignedBuf, Code, Error, Result, ZoneId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The key-value store knows of so many numbers beforehand.
const AHEAD: u64 = 4096;

/// An object that the transaction looks at.
pub(crate) struct Object {
    pub id: ObjectId,
    pub onode: Onode,
    /// Spans behind the first, and whether they have changed.
    spans: BTreeMap<u64, (Span, bool)>,
    changed: bool,
}

struct Held {
    blob: Blob,
    /// Blocks of it that were deferred when it was looked up.
    deferred: u32,
    changed: bool,
}

/// When changes of counts are made whose blobs' records have to be read from the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    AtOnce,
    /// With many others.
    MayWait,
}

/// Whether bytes may wait in the key-value store until they are packed, where they are few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    Wait,
    /// They are to stand with others in a zone.
    NotWait,
}

/// See the module.
pub(crate) struct Draft<'a> {
    pub core: &'a Core,
    pub layer: Layer,
    /// By key; `None`: it is not there.
    objects: BTreeMap<Vec<u8>, Option<Object>>,
    /// Collections that were looked up or changed, and their bits.
    collections: BTreeMap<CollectionId, Option<u8>>,
    blobs: BTreeMap<BlobId, Held>,
    when: Counts,
    /// Changes of counts of blobs whose records were not looked up.
    counts: BTreeMap<BlobId, Vec<CountChange>>,
    /// Blobs for which all that waited is made here.
    counted: Vec<BlobId>,
    bytes: BTreeMap<BlobId, Arc<AlignedBuf>>,
    /// Those of blobs that it defers.
    deferred: Vec<(BlobId, Arc<AlignedBuf>)>,
    /// Blobs of which nothing is deferred any more.
    undeferred: Vec<BlobId>,
    fresh: Vec<Fresh>,
    /// What objects that have changed are called.
    names: Vec<(u64, Name)>,
    gone: Gone,
    /// Blocks of objects that it defers: the object's number, the first, and how many.
    deferred_blocks: Vec<(u64, u64, u32)>,
    pub sums: Sums,
    /// So many blocks of its blobs stand together at most.
    together: u32,
    /// It has bytes that were not there. What is left of a block or a compressed blob, and is written anew, is none of them.
    brings: bool,
    asks: Asks,
    next: u64,
    version: u64,
}

/// Bytes that a block of data takes in the records of its blob and its extent, at most.
pub(crate) const BLOB_RECORD: u64 = 64;
/// What comes with a removal is no more than so many bytes: some hundred records of extents, as of pieces of an image that go.
const LITTLE: u64 = 256 << 10;

impl Object {
    /// The span has changed.
    pub fn change(&mut self, span: u64) {
        self.spans.entry(span).and_modify(|(_, changed)| *changed = true);
    }

    /// The span has these extents.
    pub fn set_span(&mut self, span: u64, extents: Span) {
        match span {
            0 => self.onode.first = extents,
            _ => drop(self.spans.insert(span, (extents, true))),
        }
    }
}

fn count(runs: impl Iterator<Item = Run>) -> u32 {
    runs.map(|run| run.blocks).sum()
}

impl<'a> Draft<'a> {
    /// Whoever calls has the right to prepare.
    pub fn new(core: &'a Core, when: Counts) -> Draft<'a> {
        let (next, version) = {
            let state = core.state();
            (state.next, state.version + 1)
        };
        Draft {
            core,
            layer: Layer::default(),
            objects: BTreeMap::new(),
            collections: BTreeMap::new(),
            blobs: BTreeMap::new(),
            when,
            counts: BTreeMap::new(),
            counted: Vec::new(),
            bytes: BTreeMap::new(),
            deferred: Vec::new(),
            undeferred: Vec::new(),
            fresh: Vec::new(),
            names: Vec::new(),
            gone: Gone::default(),
            deferred_blocks: Vec::new(),
            sums: Sums::default(),
            together: 1,
            brings: false,
            asks: Asks::Nothing,
            next,
            version,
        }
    }

    /// It was tried before, and had no room.
    pub fn is_tight(&self) -> bool {
        self.when == Counts::AtOnce
    }

    pub fn refuse(&self, code: Code, sentence: impl Into<Arc<str>>) -> Error {
        self.core.refuse(code, sentence)
    }

    /// It is refused where the store is full.
    pub fn brings_bytes(&mut self) {
        self.brings = true;
    }

    /// It is refused where the metadata have no room for that.
    pub fn asks(&mut self, asks: Asks) {
        self.asks = asks;
    }

    /// Whether the metadata have room for it.
    fn check_metadata(&self) -> Result<()> {
        if self.asks == Asks::Nothing {
            return Ok(());
        }
        let blobs: u64 = self.bytes.values().map(|bytes| bytes.len() as u64 / BLOCK * BLOB_RECORD).sum();
        let bytes = self.layer.bytes() + blobs;
        let little = self.asks == Asks::Little && bytes <= LITTLE;
        let waiting = {
            let state = self.core.state();
            state.current.bytes() + state.committing.bytes() + state.room.gathered * BLOB_RECORD
        };
        match self.core.kv.has_room(bytes, waiting, little) {
            true => Ok(()),
            false => {
                Err(self
                    .refuse(Code::NoSpace, "no space left for the metadata; delete something or use a larger drive"))
            }
        }
    }

    pub fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.layer.get(family, key) {
            Some(value) => Ok(value.cloned()),
            None => self.core.get(family, key),
        }
    }

    pub fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<(Vec<Pair>, Option<Vec<u8>>)> {
        self.core.pairs(family, from, to, 1024, Some(&self.layer))
    }

    /// A number that no object had.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The bits of a collection, if it is there.
    pub fn bits(&mut self, collection: CollectionId) -> Result<Option<u8>> {
        if let Some(bits) = self.collections.get(&collection) {
            return Ok(*bits);
        }
        let found = self.get(Family::Collections, &collection.key())?;
        let bits =
            found.map(|value| bits_of(&value).ok_or_else(|| self.core.corrupt("a collection's record"))).transpose()?;
        self.collections.insert(collection, bits);
        Ok(bits)
    }

    pub fn set_bits(&mut self, collection: CollectionId, bits: Option<u8>) {
        match bits {
            Some(bits) => self.layer.put(Family::Collections, collection.key(), vec![bits]),
            None => self.layer.delete(Family::Collections, collection.key()),
        }
        self.collections.insert(collection, bits);
    }

    /// Whether a collection has objects.
    pub fn has_objects(&self, collection: CollectionId, bits: u8) -> Result<bool> {
        if self.objects.values().flatten().any(|object| collection.has(bits, &object.id)) {
            return Ok(true);
        }
        let (from, to) = collection.range(bits);
        // What is deleted here is so in the layer.
        Ok(!self.core.pairs(Family::Onodes, &from, to.as_deref(), 1, Some(&self.layer))?.0.is_empty())
    }

    fn object(&mut self, id: &ObjectId) -> Result<&mut Option<Object>> {
        let key = id.key();
        if !self.objects.contains_key(&key) {
            let found: Option<Arc<Onode>> = self.core.look_up_once(&key)?;
            let object = found.map(|onode| Object {
                id: id.clone(),
                onode: Arc::unwrap_or_clone(onode),
                spans: BTreeMap::new(),
                changed: false,
            });
            self.objects.insert(key.clone(), object);
        }
        self.objects.get_mut(&key).ok_or_else(|| self.core.corrupt("a look at an object"))
    }

    pub fn is_there(&mut self, id: &ObjectId) -> Result<bool> {
        Ok(self.object(id)?.is_some())
    }

    /// Takes an object out of the draft, to be given back by [`Draft::put`].
    pub fn take(&mut self, id: &ObjectId) -> Result<Object> {
        let there = self.object(id)?.take();
        there.ok_or_else(|| self.refuse(Code::NotFound, format!("{id} does not exist")))
    }

    /// The same; one that is not there is made.
    pub fn take_or_make(&mut self, id: &ObjectId) -> Result<Object> {
        if let Some(object) = self.object(id)?.take() {
            return Ok(object);
        }
        id.check()?;
        let onode = Onode::new(self.number());
        self.sums.objects += 1;
        Ok(Object { id: id.clone(), onode, spans: BTreeMap::new(), changed: true })
    }

    /// The object is as it is here.
    pub fn put(&mut self, mut object: Object) {
        object.changed = true;
        self.objects.insert(object.id.key(), Some(object));
    }

    /// As it was taken.
    pub fn put_back(&mut self, object: Object) {
        self.objects.insert(object.id.key(), Some(object));
    }

    /// The object has another name. Its key goes.
    pub fn rename(&mut self, mut object: Object, to: &ObjectId) {
        self.layer.delete(Family::Onodes, object.id.key());
        object.id = to.clone();
        self.put(object);
    }

    /// The object is gone, with its records of extents. All of its spans were looked up, and nobody names its blobs any more.
    pub fn strike(&mut self, object: Object) {
        self.layer.delete(Family::Onodes, object.id.key());
        for span in object.spans.keys() {
            self.layer.delete(Family::Extents, span_key(object.onode.number, *span));
        }
        self.sums.objects -= 1;
        self.sums.bytes -= object.onode.size as i64;
    }

    pub fn resize(&mut self, object: &mut Object, size: u64) {
        self.sums.bytes += size as i64 - object.onode.size as i64;
        object.onode.size = size;
    }

    /// A span of an object.
    pub fn span<'o>(&self, object: &'o mut Object, span: u64) -> Result<&'o mut Span> {
        if span == 0 {
            return Ok(&mut object.onode.first);
        }
        let number = object.onode.number;
        match object.spans.entry(span) {
            Entry::Occupied(there) => Ok(&mut there.into_mut().0),
            Entry::Vacant(entry) => {
                // No draft looks at a record that it has written.
                let extents: Option<Arc<Span>> = self.core.look_up_once(&span_key(number, span))?;
                let extents = extents.map(Arc::unwrap_or_clone).unwrap_or_default();
                Ok(&mut entry.insert((extents, false)).0)
            }
        }
    }

    /// Spans of an object from `from` on and before `to` that have extents, in order.
    pub fn spans(&self, object: &mut Object, from: u64, to: u64) -> Result<Vec<u64>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let number = object.onode.number;
        let end = span_key(number, to.max(1));
        let mut next = Some(span_key(number, from.max(1)));
        while let Some(from) = next {
            let (pairs, more) = self.pairs(Family::Extents, &from, Some(&end))?;
            for (key, value) in pairs {
                let span = of_span_key(&key).map(|(_, span)| span);
                let read = span
                    .zip(Span::of_record(&value, number))
                    .ok_or_else(|| self.core.corrupt("extents of an object"))?;
                object.spans.entry(read.0).or_insert((read.1, false));
            }
            next = more;
        }
        let first = (from == 0 && to > 0 && !object.onode.first.0.is_empty()).then_some(0);
        let others = object.spans.range(from.max(1)..to.max(1)).filter(|(_, (span, _))| !span.0.is_empty());
        Ok(first.into_iter().chain(others.map(|(span, _)| *span)).collect())
    }

    fn held(&mut self, id: BlobId) -> Result<&mut Held> {
        if !self.blobs.contains_key(&id) {
            let Some(blob) = self.core.blob(id)? else {
                return Err(self.core.corrupt(format!("extents that name {id}, which is not there")));
            };
            self.hold(id, Arc::unwrap_or_clone(blob))?;
        }
        self.blobs.get_mut(&id).ok_or_else(|| self.core.corrupt("a look at a blob"))
    }

    /// Looks at a blob of this record, and makes what waits for it.
    fn hold(&mut self, id: BlobId, mut blob: Blob) -> Result<()> {
        let (pending, mut waiting) = {
            let state = self.core.state();
            let waiting = state.counts.of(id).iter().flat_map(|(_, changes)| changes).copied();
            (state.bytes.contains_key(&id), waiting.collect::<Vec<_>>())
        };
        let deferred = if pending { 0 } else { count(blob.deferred()) };
        let waited = !waiting.is_empty();
        waiting.extend(self.counts.get(&id).into_iter().flatten());
        let mut gone = Gone::default();
        waiting.iter().try_for_each(|change| gone.count(self.core, (id, &mut blob), *change))?;
        self.gone.extend(gone);
        self.counts.remove(&id);
        if waited {
            self.counted.push(id);
        }
        self.blobs.insert(id, Held { blob, deferred, changed: !waiting.is_empty() });
        Ok(())
    }

    /// Makes what waits for a blob of this record. False: it makes no sense there, and still waits.
    pub fn recount(&mut self, id: BlobId, blob: Blob) -> bool {
        self.hold(id, blob).is_ok()
    }

    /// How bytes of an object are compressed.
    pub fn compression(&self, object: &Object) -> Compression {
        if object.onode.hint.incompressible { Compression::Off } else { self.core.options.compression }
    }

    /// Whether a zone takes so many bytes as one grain.
    pub fn is_a_grain(&self, len: usize) -> bool {
        len as u64 <= BLOCK << self.core.data.longest_grain()
    }

    /// A new blob of an object, of these bytes, at a block of it. `packed`: so many blocks, for which the bytes stand.
    pub fn new_blob(
        &mut self,
        object: &mut Object,
        offset: u64,
        (bytes, packed): (AlignedBuf, Option<(Compression, u32)>),
        may: May,
    ) -> BlobId {
        let id = BlobId { onode: object.onode.number, number: object.onode.next_blob };
        object.onode.next_blob += 1;
        let grain = object.onode.hint.grain().min(self.core.data.longest_grain());
        let checksum = self.core.options.checksum;
        let blob = match packed {
            None => Blob::new(offset, grain, checksum, &bytes),
            Some(packed) => Blob::compressed(offset, packed, checksum, &bytes),
        };
        self.together = self.together.max(1 << blob.grain());
        if may == May::Wait && (bytes.len() as u64) < self.core.options.defer_below {
            self.layer.put(Family::Deferred, id.key(), bytes.to_vec());
            self.deferred_blocks.push((id.onode, offset, blob.blocks));
            self.deferred.push((id, Arc::new(bytes)));
        } else {
            let stream = if object.onode.hint.short_lived { Stream::Hot } else { Stream::Cold };
            self.fresh.push(Fresh { blob: id, stream });
            self.bytes.insert(id, Arc::new(bytes));
        }
        self.blobs.insert(id, Held { blob, deferred: 0, changed: true });
        id
    }

    /// One more extent is there.
    pub fn name(&mut self, extent: &Extent) -> Result<()> {
        self.count(extent, true)
    }

    /// One is gone.
    pub fn unname(&mut self, extent: &Extent) -> Result<()> {
        self.count(extent, false)
    }

    /// Whether others than these extents of a span name grains of one of them.
    pub fn is_shared(&mut self, extent: &Extent, all: &[Extent]) -> Result<bool> {
        let own = all.iter().filter(|other| other.blob == extent.blob);
        let own: Vec<_> = own.map(|other| (other.first, other.blocks)).collect();
        Ok(self.held(extent.blob)?.blob.is_shared((extent.first, extent.blocks), &own))
    }

    /// Compressed blobs that extents between two blocks of a span name.
    pub fn packed(&self, object: &mut Object, span: u64, from: u32, to: u32) -> Result<BTreeSet<BlobId>> {
        let within = |extent: &&Extent| extent.packed && extent.part(from, to).is_some();
        Ok(self.span(object, span)?.0.iter().filter(within).map(|extent| extent.blob).collect())
    }

    /// Blocks that are stored of a blob.
    pub fn stored(&mut self, id: BlobId) -> Result<u32> {
        Ok(self.held(id)?.blob.blocks)
    }

    /// Whether a change of a blob's counts waits until its record is in memory, or can be read. What is stored of a compressed blob has to be known at once.
    fn waits(&mut self, extent: &Extent) -> bool {
        match extent.packed {
            true => self.held(extent.blob).is_err_and(|error| is_of_bytes(&error)),
            false => self.core.would_read(Family::Blobs, &extent.blob.key()),
        }
    }

    fn count(&mut self, extent: &Extent, more: bool) -> Result<()> {
        let (id, change) = (extent.blob, CountChange { first: extent.first, blocks: extent.blocks, more });
        if self.when == Counts::MayWait && !self.blobs.contains_key(&id) && self.waits(extent) {
            self.counts.entry(id).or_default().push(change);
            return Ok(());
        }
        let (core, mut gone) = (self.core, Gone::default());
        let held = self.held(id)?;
        held.changed = true;
        gone.count(core, (id, &mut held.blob), change)?;
        self.gone.extend(gone);
        Ok(())
    }

    /// What stands in a block of an object; `None`: zeros that take no room.
    pub fn block(&mut self, object: &mut Object, block: u64) -> Result<Option<AlignedBuf>> {
        let within = (block % SPAN) as u32;
        let span = self.span(object, block / SPAN)?;
        let part = span.0.iter().find_map(|extent| extent.part(within, within + 1));
        part.map(|part| self.bytes_of(&part)).transpose()
    }

    /// What stands in the blocks of an extent.
    pub fn bytes_of(&mut self, part: &Extent) -> Result<AlignedBuf> {
        let in_memory = || {
            let state = self.core.state();
            state.bytes.get(&part.blob).or_else(|| state.deferred.get(part.blob)).cloned()
        };
        let bytes = self.bytes.get(&part.blob).cloned().or_else(in_memory);
        let blob = self.held(part.blob)?.blob.clone();
        let deferred = || self.get(Family::Deferred, &part.blob.key());
        let found =
            self.core.fetch((&blob, part.first, part.blocks), bytes.as_ref().map(|bytes| &bytes[..]), deferred)?;
        // Whoever has the right to prepare has the newest records.
        found.ok_or_else(|| self.core.corrupt(format!("the place of {}", part.blob)))
    }

    /// Writes down what has become of objects and blobs.
    fn write_down(&mut self) {
        for (key, object) in std::mem::take(&mut self.objects) {
            let Some(mut object) = object.filter(|object| object.changed) else { continue };
            object.onode.version = self.version;
            let Onode { size, next_blob, .. } = object.onode;
            let name = Name { id: object.id.clone(), size, version: self.version, next_blob };
            self.names.push((object.onode.number, name));
            self.layer.put(Family::Onodes, key, object.onode.encode());
            let number = object.onode.number;
            for (n, (span, _)) in object.spans.iter().filter(|(_, (_, changed))| *changed) {
                let key = span_key(number, *n);
                if span.0.is_empty() {
                    self.layer.delete(Family::Extents, key);
                } else {
                    self.layer.put(Family::Extents, key, span.record(number));
                }
            }
        }
        for (id, held) in std::mem::take(&mut self.blobs) {
            if !held.changed {
                continue;
            }
            let now = if self.is_pending(id) { 0 } else { count(held.blob.deferred()) };
            self.sums.deferred += i64::from(now) - i64::from(held.deferred);
            let new = self.layer.get(Family::Deferred, &id.key()).is_some();
            if held.deferred > 0 && now == 0 || held.blob.is_dead() && new {
                self.layer.delete(Family::Deferred, id.key());
                self.undeferred.push(id);
            }
            match held.blob.is_dead() {
                true => self.layer.delete(Family::Blobs, id.key()),
                false => self.layer.put(Family::Blobs, id.key(), held.blob.encode()),
            }
        }
    }

    /// What waits is as it will be, in memory and in the records.
    fn write_counts(&mut self, state: &mut State) {
        for id in std::mem::take(&mut self.counted) {
            for (version, _) in state.counts.of(id) {
                self.layer.delete(Family::Counts, counts::key(id, *version));
            }
            state.counts.remove(id);
        }
        for (id, changes) in std::mem::take(&mut self.counts) {
            self.layer.put(Family::Counts, counts::key(id, self.version), counts::encode(&changes));
            state.counts.add(id, (self.version, changes));
        }
    }

    fn is_pending(&self, id: BlobId) -> bool {
        self.bytes.contains_key(&id) || self.core.state().bytes.contains_key(&id)
    }

    /// From here on everybody sees it. Returns the number of its group.
    ///
    /// # Errors
    /// `NoSpace` where its bytes have no room. Then nothing has happened.
    pub fn publish(mut self, callbacks: Vec<Callback>) -> Result<u64, (Error, Vec<Callback>)> {
        self.write_down();
        let blocks: u64 = self.bytes.values().map(|bytes| bytes.len() as u64 / BLOCK).sum();
        let deferred = self.sums.deferred.max(0) as u64 * u64::from(self.core.data.unit.unwrap_or(1));
        let more = blocks + deferred;
        let need = if blocks > 0 { blocks + self.core.overhead(self.fresh.len() as u64, blocks) } else { 0 };
        if let Err(error) = self.check_metadata() {
            return Err((error, callbacks));
        }
        if more > 0
            && let Err(error) = self.core.make_room(need + deferred, self.together, self.brings)
        {
            return Err((error, callbacks));
        }
        {
            // Before anybody can write its bytes.
            let mut names = lock(&self.core.data.names);
            std::mem::take(&mut self.names).into_iter().for_each(|(number, name)| names.set(number, name));
        }
        let mut state = self.core.state();
        if let Some(error) = &state.failed {
            return Err((error.clone(), callbacks));
        }
        let group = state.group;
        self.write_counts(&mut state);
        state.room.promised += need;
        state.room.gathered += need;
        if self.next > state.ceiling {
            state.ceiling = self.next + AHEAD;
            self.layer.put(Family::Super, NEXT.to_vec(), state.ceiling.to_le_bytes().to_vec());
        }
        (state.next, state.version) = (self.next, self.version);
        state.sums.add(self.sums);
        state.current.absorb(self.layer);
        state.bytes.extend(self.bytes);
        let most = self.core.options.kept();
        self.deferred.into_iter().for_each(|(id, bytes)| state.deferred.keep(id, group, bytes, most));
        self.undeferred.into_iter().for_each(|id| state.deferred.remove(id));
        state.fresh.extend(self.fresh);
        state.callbacks.extend(callbacks);
        let state = &mut *state;
        if self.core.goes_home() {
            let most = (2 * self.core.options.pack_from / BLOCK).max(64) as usize;
            for (onode, first, blocks) in self.deferred_blocks {
                state.homes.expect(onode, first..first + u64::from(blocks), group, most);
            }
            self.gone.stood.iter().for_each(|stood| state.homes.died(stood));
        }
        for (units, life) in self.gone.units {
            let there = state.table.get(units.zone).is_some_and(|z| z.life as u32 == life);
            state.space.as_mut().filter(|_| there).into_iter().for_each(|space| space.die(units, group));
        }
        for (place, blocks) in self.gone.blocks {
            if state.table.sub(place.zone, place.life, blocks.into()) {
                self.core.tenant.forget(ZoneId(place.zone), group);
            }
        }
        self.core.delay.queued();
        Ok(group)
    }
}
