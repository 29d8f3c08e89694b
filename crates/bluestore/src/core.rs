//! An open store: its state, and how what is known of objects is looked up in it.
//!
//! - **The right to prepare** ([`Preparing`]): who has it reads what it needs and decides what a transaction changes. One transaction is prepared at a time, and may
//!   wait for the drive meanwhile. No lock is held then.
//! - **The state** is behind one lock, under which nobody waits. It has the changes that the key-value store has not, as two [layers](Layer) over it: those of
//!   the group that gathers, and those of the group that is being committed.
//! - **The rights to commit and to sync** are `commit`'s.
//!
//! Order: sync → commit → prepare → state. Who waits for one has none of those behind it. Who commits takes the right to prepare for a moment, when blobs get their places.

use crate::blob::{BLOCK, Blob, BlobId, Place};
use crate::cleaning::{self, Memory};
use crate::data::{Data, Stream};
use crate::keyvalue::{Family, KeyValue, Pair};
use crate::layer::Layer;
use crate::lock::lock;
use crate::onode::Onode;
use crate::right::{Right, Taken};
use crate::table::{Sums, Table};
use crate::transaction::Callback;
use imbrex_device::{AlignedBuf, Cause, Code, Error, Result, Tag, ZoneId};
use imbrex_zones::clean::Cleaner;
use imbrex_zones::{Reservation, Tenant};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// How a store works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Blobs of fewer bytes go to the key-value store first, and are packed later. A write has one for each span of 256 KiB that it touches, of whole blocks. On a disk that saves a way of its head for each (BlueStore §4.2).
    pub defer_below: u64,
    /// So many bytes of such writes gather before they are packed.
    pub pack_from: u64,
    /// So many bytes gather in memory, of data and of metadata, before whoever adds more commits them.
    pub gather: u64,
    /// Somebody calls [`clean_a_step`](crate::BlueStore::clean_a_step) in the background. Else whoever writes cleans ahead.
    pub attended: bool,
}

impl Options {
    /// On a small drive less gathers: the key-value store has to keep it, beside what it has, and writes it more than once.
    fn on(self, capacity: u64) -> Options {
        let most = (capacity / 64).max(256 << 10);
        Options { pack_from: self.pack_from.min(most), gather: self.gather.min(2 * most), ..self }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { defer_below: 64 << 10, pack_from: 8 << 20, gather: 64 << 20, attended: false }
    }
}

/// A blob that is to be written with its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fresh {
    pub blob: BlobId,
    pub stream: Stream,
}

/// Zones that are promised to what was accepted.
#[derive(Default)]
pub(crate) struct Room {
    pub reserved: Vec<Reservation>,
    /// Blocks that the open zones of the streams still take.
    pub open: u64,
    /// Blocks that were accepted and have no place, those that are deferred aside.
    pub promised: u64,
    /// Those of the group that gathers.
    pub gathered: u64,
}

#[derive(Default)]
pub(crate) struct State {
    /// Changes of the group that gathers.
    pub current: Layer,
    /// Those of the group that is being committed.
    pub committing: Layer,
    /// Bytes of blobs that are in none of the zones yet.
    pub bytes: HashMap<BlobId, Arc<AlignedBuf>>,
    pub fresh: Vec<Fresh>,
    pub callbacks: Vec<Callback>,
    /// Those of groups that are not durable, by their numbers.
    pub waiting: VecDeque<(u64, Vec<Callback>)>,
    /// Number of the group that gathers.
    pub group: u64,
    /// All groups up to this one outlive the process.
    pub kept: u64,
    /// All groups up to this one are durable.
    pub durable: u64,
    pub table: Table,
    pub room: Room,
    pub sums: Sums,
    /// Number of the next object.
    pub next: u64,
    /// The key-value store knows that numbers below this may have been given.
    pub ceiling: u64,
    /// Number of the last transaction.
    pub version: u64,
    /// Blocks that were deferred when packing them had no room: commits pack no more before others have gathered.
    pub unpackable: u64,
    /// Somebody lacks room: the next commit gives back what it can.
    pub starved: bool,
    /// A commit has failed: there will be no other.
    pub failed: Option<Error>,
}

/// Callbacks of groups that have ended.
#[derive(Default)]
pub(crate) struct Telling {
    pub next: VecDeque<(Callback, Result<()>)>,
    /// Somebody calls one.
    pub busy: bool,
}

pub(crate) struct Core {
    pub tenant: Tenant,
    pub kv: Arc<dyn KeyValue>,
    pub options: Options,
    pub data: Data,
    state: Mutex<State>,
    preparing: Right,
    pub committing: Right,
    pub syncing: Right,
    pub telling: Mutex<Telling>,
    pub cleaner: Cleaner,
    pub cleaning: Mutex<Memory>,
}

/// The right to prepare; given back when dropped.
#[must_use]
pub(crate) struct Preparing<'a>(#[expect(dead_code, reason = "it is held")] Taken<'a>);

/// Key of the number below which objects may have been numbered.
pub(crate) const NEXT: &[u8] = b"next";
/// Key of the only record of its family.
pub(crate) const ALL: &[u8] = b"all";

impl Core {
    pub fn new(tenant: &Tenant, kv: Arc<dyn KeyValue>, options: Options, state: State) -> Core {
        let volume = tenant.volume();
        Core {
            tenant: tenant.clone(),
            kv,
            options: options.on(u64::from(volume.geometry().zones) * volume.least_capacity()),
            data: Data::new(tenant),
            state: Mutex::new(state),
            preparing: Right::default(),
            committing: Right::default(),
            syncing: Right::default(),
            telling: Mutex::default(),
            cleaner: Cleaner::new(tenant, cleaning::rules(volume.geometry().zones, volume.least_capacity())),
            cleaning: Mutex::default(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether all is durable. To be asked by who has the right to prepare: then it stays so.
    pub fn is_settled(&self) -> bool {
        let state = self.state();
        let kept = state.current.is_empty() && state.committing.is_empty() && state.bytes.is_empty();
        kept && state.durable == state.kept
    }

    /// Waits for the right to prepare.
    pub fn prepare(&self) -> Preparing<'_> {
        Preparing(self.preparing.take())
    }

    /// An engine says no.
    pub fn refuse(&self, code: Code, sentence: impl Into<Arc<str>>) -> Error {
        Error::refused(code, &self.tenant.volume().name(), sentence)
    }

    /// A record that makes no sense.
    pub fn corrupt(&self, what: impl Into<Arc<str>>) -> Error {
        Error::corrupt(&self.tenant.volume().name(), what)
    }

    pub fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        {
            let state = self.state();
            if let Some(value) = state.current.get(family, key).or_else(|| state.committing.get(family, key)) {
                return Ok(value.cloned());
            }
        }
        self.kv.get(family, key)
    }

    /// Pairs in order, `most` at most; and from where on there may be more. `above` lies over the state's layers.
    pub fn pairs(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        most: usize,
        above: Option<&Layer>,
    ) -> Result<(Vec<Pair>, Option<Vec<u8>>)> {
        let mut from = from.to_vec();
        loop {
            let above = above.map(|above| above.overlay(family, &from, to, most));
            let [current, committing] = {
                let state = self.state();
                [&state.current, &state.committing].map(|layer| layer.overlay(family, &from, to, most))
            };
            let layers: Vec<_> = [Some(committing), Some(current), above].into_iter().flatten().collect();
            // Up to here all is known.
            let mut end = layers.iter().filter_map(|layer| layer.end.clone()).min();
            let below = self.kv.pairs(family, &from, end.as_deref().or(to), most)?;
            if below.len() >= most {
                let behind = below.last().map(|(key, _)| [&key[..], &[0]].concat());
                end = end.into_iter().chain(behind).min();
            }
            let mut all: BTreeMap<_, _> = below.into_iter().collect();
            layers.iter().for_each(|layer| layer.over(&mut all));
            if let Some(end) = &end {
                all.split_off(end);
            }
            let more = all.keys().nth(most).cloned();
            if let Some(more) = &more {
                all.split_off(more);
            }
            match more.or(end) {
                Some(next) if all.is_empty() => from = next,
                next => return Ok((all.into_iter().collect(), next)),
            }
        }
    }

    pub fn onode(&self, key: &[u8]) -> Result<Option<Onode>> {
        let Some(bytes) = self.get(Family::Onodes, key)? else { return Ok(None) };
        Onode::decode(&bytes).map(Some).ok_or_else(|| self.corrupt("an object's record"))
    }

    pub fn blob(&self, id: BlobId) -> Result<Option<Blob>> {
        let Some(bytes) = self.get(Family::Blobs, &id.key())? else { return Ok(None) };
        Blob::decode(&bytes).map(Some).ok_or_else(|| self.corrupt(format!("the record of {id}")))
    }

    /// Blocks of a blob. `bytes`: all of it, where it has no place yet; `deferred` gets them, where it has none. `None`: it is not where it was.
    ///
    /// # Errors
    /// `Corrupt` where its bytes are not those that were written.
    pub fn fetch(
        &self,
        (blob, first, blocks): (&Blob, u32, u32),
        bytes: Option<&[u8]>,
        deferred: impl Fn() -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<AlignedBuf>> {
        if u64::from(first) + u64::from(blocks) > u64::from(blob.blocks) || blocks == 0 {
            return Err(self.corrupt("an extent that ends behind its blob"));
        }
        let (from, len) = blob.whole(first, blocks);
        let Some(runs) = blob.find(from, len) else {
            return Err(self.corrupt("extents that name a part of a blob that is gone"));
        };
        let mut buf = AlignedBuf::zeroed(len as usize * BLOCK as usize);
        for run in runs {
            let at = |block: u32| block as usize * BLOCK as usize;
            let range = at(run.first)..at(run.first + run.blocks);
            let to = &mut buf[at(run.first - from)..at(run.first + run.blocks - from)];
            match (bytes, run.place) {
                (Some(bytes), _) => {
                    to.copy_from_slice(bytes.get(range).ok_or_else(|| self.corrupt("a blob's length"))?)
                }
                (None, None) => {
                    let Some(bytes) = deferred()? else { return Ok(None) };
                    to.copy_from_slice(bytes.get(range).ok_or_else(|| self.corrupt("the length of a deferred blob"))?);
                }
                (None, Some(place)) => {
                    if !self.read(place, to)? {
                        return Ok(None);
                    }
                }
            }
        }
        if let Some(block) = blob.verify(from, &buf) {
            let name = self.tenant.volume().name();
            let error = Error::corrupt(&name, "bytes of an object, which are not those that were written");
            let place = blob.find(block, 1).and_then(|runs| runs[0].place);
            return Err(match place {
                Some(place) => error.at(ZoneId(place.zone), u64::from(place.block) * BLOCK),
                None => error,
            });
        }
        if (from, len) == (first, blocks) {
            return Ok(Some(buf));
        }
        let mut part = AlignedBuf::zeroed(blocks as usize * BLOCK as usize);
        let skip = (first - from) as usize * BLOCK as usize;
        let len = part.len();
        part.copy_from_slice(&buf[skip..skip + len]);
        Ok(Some(part))
    }

    /// Reads from a zone. False: it is in another life.
    fn read(&self, place: Place, out: &mut [u8]) -> Result<bool> {
        let zone = ZoneId(place.zone);
        {
            let state = self.state();
            if state.table.get(place.zone).is_none_or(|z| z.life as u32 != place.life) {
                return Ok(false);
            }
            // Before anybody can free it.
            self.tenant.pin(zone);
        }
        let at = u64::from(place.block) * BLOCK;
        let volume = self.tenant.volume();
        let read = match self.data.in_memory(place.zone, at, out) {
            true => Ok(()),
            false => volume.read(out, volume.geometry().start(zone) + at, Tag::new(Cause::UserRead)),
        };
        self.tenant.unpin(zone);
        read.map(|()| true)
    }
}

impl Core {
    /// Bytes that have gathered, for zones and of metadata.
    pub fn gathered(&self) -> u64 {
        let state = self.state();
        state.room.gathered * BLOCK + state.current.bytes()
    }
}
