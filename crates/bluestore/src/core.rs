//! An open store: its state, and how what is known of objects is looked up in it.
//!
//! - **The right to prepare** ([`Preparing`]): who has it reads what it needs and decides what a transaction changes. One transaction is prepared at a time, and may
//!   wait for the drive meanwhile. No lock is held then.
//! - **The state** is behind one lock, under which nobody waits. It has the changes that the key-value store has not, as two [layers](Layer) over it: those of
//!   the group that gathers, and those of the group that is being committed.
//! - **The rights to commit and to sync** are `commit`'s.
//!
//! Order: sync → commit → prepare → state. Who waits for one has none of those behind it. Who commits takes the right to prepare for a moment, when blobs get their places.

use crate::again::Again;
use crate::blob::{BLOCK, Blob, BlobId};
use crate::cached::Cache;
use crate::checksum::Checksum;
use crate::cleaning::{self, Memory, Records};
use crate::compress::Compression;
use crate::counts::Waiting;
use crate::data::{Data, Stream};
use crate::delay::Delay;
use crate::home::Homes;
use crate::keyvalue::{Family, KeyValue, Pair};
use crate::layer::Layer;
use crate::layout::Layout;
use crate::lock::lock;
use crate::right::{Right, Taken};
use crate::rounds::Rounds;
use crate::space::Space;
use crate::table::{Sums, Table};
use crate::transaction::Callback;
use imbrex_device::{AlignedBuf, Code, Error, Fault, Result};
use imbrex_zones::clean::{Cleaner, Goal, Load, Waits};
use imbrex_zones::helpers::{Helpers, Turns};
use imbrex_zones::shell::Maintenance;
use imbrex_zones::{Reservation, Tenant};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// How a store works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Blobs of fewer bytes go to the key-value store first, and are packed later. A write has one for each span of 256 KiB that it touches, of whole blocks. On a disk that saves a way of its head for each (BlueStore §4.2).
    pub defer_below: u64,
    /// So many bytes of such writes gather before they are packed. With [`home`](Options::home), and units of one block, it is eight times as many: each goes back to a place of its own, and the more there are, the shorter are the ways between
    /// them.
    pub pack_from: u64,
    /// So many bytes gather in memory, of data and of metadata, before whoever adds more commits them.
    pub gather: u64,
    /// So many changes of how many extents name blobs wait, where the blobs' records would have to be read from the drive for each. Some hundred bytes of memory each.
    pub count_from: usize,
    /// What it does with bytes that no hint calls incompressible.
    pub compression: Compression,
    /// What makes checksums of the bytes that it writes.
    pub checksum: Checksum,
    /// From so many per cent of its capacity on the store says that it is nearly full.
    pub near_full: u8,
    /// From so many on it takes only what makes room. Close to 100 the cleaner moves many bytes for each that is written.
    pub full: u8,
    /// Cleaning in the background makes what users wait for so many times longer on average, and no more, as long as zones do not run short.
    pub max_slowdown: f64,
    /// Bytes of memory for decoded records of objects, extents and blobs.
    pub cache: u64,
    /// In place: deferred bytes go where the blocks stood that they overwrite, so that objects stay in order. Else they go where there is room, which takes more writes a second.
    pub home: bool,
    /// Somebody calls [`clean_a_step`](crate::BlueStore::clean_a_step) in the background. Else whoever writes cleans ahead.
    pub attended: bool,
    /// The opening derives records of zones and sums from others where they are missing or make no sense, which takes a pass over all blobs. [`repair`](crate::BlueStore::repair) does the rest.
    pub repair: bool,
    /// Where a new store puts data. One that is there has to be as this says, but for [`Layout::Usual`].
    pub layout: Layout,
    /// Bytes of an allocation unit of a new store in place, 4 KiB where nobody says; one that is there has to have the same. A blob takes whole units.
    pub min_alloc: Option<u32>,
    /// The key-value store is on another drive: it needs no zones of this one, and a flush of one drive makes nothing durable on the other.
    pub elsewhere: bool,
    /// Whoever calls [`scrub_step`](crate::BlueStore::scrub_step) in the background reads all that lives once in so long; `None`: nobody does.
    pub scrub: Option<Duration>,
}

impl Options {
    /// On a small drive less gathers: the key-value store has to keep it, beside what it has, and writes it more than once.
    fn on(self, capacity: u64, in_place: bool) -> Options {
        let most = (capacity / 64).max(256 << 10);
        // Blocks that are dead and that nobody knows of.
        let count_from = self.count_from.min((most / BLOCK) as usize);
        let times = if in_place { IN_PLACE } else { 1 };
        let pack_from = self.pack_from.saturating_mul(times).min(most);
        Options { pack_from, gather: self.gather.min(2 * most), count_from, ..self }
    }
}

impl Options {
    /// Bytes that are kept in memory of those that are deferred: all that gather before they are packed, and what comes meanwhile.
    pub(crate) fn kept(&self) -> u64 {
        (self.pack_from + self.pack_from.min(16 << 20)).max(1 << 20)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            defer_below: 64 << 10,
            pack_from: 8 << 20,
            gather: 64 << 20,
            count_from: 64 << 10,
            compression: Compression::Off,
            checksum: Checksum::Crc32c,
            near_full: 85,
            full: 95,
            max_slowdown: 1.5,
            cache: 16 << 20,
            home: false,
            attended: false,
            repair: false,
            layout: Layout::Usual,
            min_alloc: None,
            elsewhere: false,
            scrub: Some(Duration::from_secs(7 * 86_400)),
        }
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
    /// Blocks that the store can have, as it was when somebody looked last.
    pub capacity: u64,
    /// It was said that the store is nearly full.
    pub told: bool,
    /// In place: so many blocks had to stand together, and found no room. For as many or more what is free does not count until they would.
    pub cramped: Option<u32>,
}

/// Bytes of deferred blobs, so that packing reads none of them again: a key-value store passes over all that it had of others before.
#[derive(Default)]
pub(crate) struct Deferred {
    /// By blob, with the group that deferred it. Some may be dead or have a place by now: their records tell.
    bytes: BTreeMap<BlobId, (u64, Arc<AlignedBuf>)>,
    len: u64,
    /// The key-value store has others: the last group that deferred one.
    pub others: Option<u64>,
}

impl Deferred {
    /// Of a store that was just opened. `others`: whether an earlier opening has deferred any.
    pub fn after(others: bool) -> Deferred {
        Deferred { others: others.then_some(0), ..Deferred::default() }
    }

    /// Keeps those of a blob, where no more than `most` bytes are kept.
    pub fn keep(&mut self, id: BlobId, group: u64, bytes: Arc<AlignedBuf>, most: u64) {
        if self.len + bytes.len() as u64 > most {
            self.others = Some(group);
            return;
        }
        self.len += bytes.len() as u64;
        if let Some((_, old)) = self.bytes.insert(id, (group, bytes)) {
            self.len -= old.len() as u64;
        }
    }

    /// Those of a blob, if they are kept.
    pub fn get(&self, id: BlobId) -> Option<&Arc<AlignedBuf>> {
        self.bytes.get(&id).map(|(_, bytes)| bytes)
    }

    /// Nobody needs those of a blob any more.
    pub fn remove(&mut self, id: BlobId) {
        if let Some((_, bytes)) = self.bytes.remove(&id) {
            self.len -= bytes.len() as u64;
        }
    }

    /// All that groups before this one have deferred are being packed.
    pub fn forget(&mut self, group: u64) {
        self.take(group, u64::MAX);
        self.others.take_if(|of| *of < group);
    }

    /// Whether groups before this one have deferred any that have no place yet.
    pub fn has_before(&self, group: u64) -> bool {
        self.others.is_some() || self.bytes.values().any(|(of, _)| *of < group)
    }

    /// Takes those that groups before this one have deferred, about so many bytes.
    pub fn take(&mut self, group: u64, most: u64) -> Vec<(BlobId, Arc<AlignedBuf>)> {
        let mut taken = 0;
        let before = self.bytes.extract_if(.., |_, (of, bytes)| {
            let take = *of < group && taken < most;
            taken += if take { bytes.len() as u64 } else { 0 };
            take
        });
        let all = before.map(|(id, (_, bytes))| (id, bytes)).collect();
        self.len -= taken;
        all
    }
}

impl State {
    /// Blocks that live, and those that were accepted and have no place. Those of which changes of counts wait are among them.
    pub fn used(&self) -> u64 {
        self.stored() + self.room.promised + self.deferred()
    }

    /// Blocks that living ones take on the drive.
    pub fn stored(&self) -> u64 {
        self.space.as_ref().map_or(self.table.live(), Space::used)
    }

    /// Blocks that those may take that wait for a place: each a unit, at worst.
    pub fn deferred(&self) -> u64 {
        let unit = self.space.as_ref().map_or(1, Space::unit);
        self.sums.deferred.max(0) as u64 * u64::from(unit)
    }
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
    pub deferred: Deferred,
    pub callbacks: Vec<Callback>,
    /// Those of groups that are not durable, by their numbers.
    pub waiting: VecDeque<(u64, Vec<Callback>)>,
    /// Number of the group that gathers.
    pub group: u64,
    /// All groups up to this one outlive the process.
    pub kept: u64,
    /// All groups up to this one are durable.
    pub durable: u64,
    /// The last transaction of the groups that are kept.
    pub kept_version: u64,
    pub table: Table,
    /// Of a store in place.
    pub space: Option<Space>,
    /// Where deferred blocks are to go, in a store in place.
    pub homes: Homes,
    /// Changes of counts that blobs' records do not know of.
    pub counts: Waiting,
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
    pub cache: Cache,
    pub options: Options,
    pub data: Data,
    state: Mutex<State>,
    preparing: Right,
    pub committing: Right,
    pub syncing: Right,
    pub delay: Delay,
    pub telling: Mutex<Telling>,
    pub cleaner: Cleaner,
    /// What users wait for, and which of it cleaning touched.
    load: Load,
    /// How many wait for something now.
    pub waiting: AtomicU64,
    pub cleaning: Mutex<Memory>,
    /// Threads that help those who read.
    pub helpers: Helpers,
    /// Turns of reads of several commands that go on where others end.
    pub turns: Turns,
    /// What was read once more.
    pub again: Again,
    /// Reads of objects since the opening.
    pub reads: AtomicU64,
    /// Rounds of the scrub.
    pub rounds: Mutex<Rounds>,
    /// Bytes that the round had read when that was written down.
    pub saved: AtomicU64,
    /// What the opening has derived from other records, in sentences.
    pub derived: Mutex<Vec<String>>,
    /// One step of the scrub at a time.
    pub scrubbing: Right,
    /// Who makes changes of counts that wait.
    pub recounting: Right,
    /// The thread that cleans in the background.
    pub maintenance: OnceLock<Arc<Maintenance>>,
}

/// Somebody waits; over when dropped.
struct WaitsNow<'a>(&'a AtomicU64);

impl WaitsNow<'_> {
    fn begin(waiting: &AtomicU64) -> WaitsNow<'_> {
        waiting.fetch_add(1, Ordering::Relaxed);
        WaitsNow(waiting)
    }
}

impl Drop for WaitsNow<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to prepare; given back when dropped.
#[must_use]
pub(crate) struct Preparing<'a>(#[expect(dead_code, reason = "it is held")] Taken<'a>);

/// In place so many times as many bytes gather before they are packed, where a block of them takes no more room than that.
const IN_PLACE: u64 = 8;

/// Whether the drive does not give bytes, or others than were written.
pub(crate) fn is_of_bytes(error: &Error) -> bool {
    matches!(error.fault, Fault::Corrupt { .. } | Fault::Media { .. } | Fault::Offline)
}

/// How long whoever cleans in the background rests while somebody else cleans.
const OTHERS: Duration = Duration::from_millis(50);

/// The command that looks for more damage.
pub(crate) const CHECK: &str = "imbrex store check";

/// Records of blobs in a page at first, about a block of the key-value store; and at most.
const LEAST: usize = 64;
const LONGEST: usize = 128 << 10;
/// Pages become longer where at least each so manieth record is wanted.
const SPARSE: usize = 256;

/// Key of the number below which objects may have been numbered.
pub(crate) const NEXT: &[u8] = b"next";
/// Key of the only record of its family.
pub(crate) const ALL: &[u8] = b"all";

impl Core {
    pub fn new(tenant: &Tenant, kv: Arc<dyn KeyValue>, options: Options, (state, rounds): (State, Rounds)) -> Core {
        let volume = tenant.volume();
        let data = Data::new(tenant, state.space.as_ref().map(Space::unit), options.elsewhere);
        let (zones, zone, leave) = (volume.geometry().zones, volume.least_capacity(), data.left_to_metadata());
        let rules = cleaning::rules(zones, zone, leave, options.attended);
        let delay = Delay::after(state.version);
        Core {
            tenant: tenant.clone(),
            kv,
            cache: Cache::new(options.cache),
            options: options.on(u64::from(zones) * zone, data.unit == Some(1) && options.home),
            data,
            state: Mutex::new(state),
            preparing: Right::default(),
            committing: Right::default(),
            syncing: Right::default(),
            delay,
            telling: Mutex::default(),
            cleaner: Cleaner::new(tenant, rules),
            load: Load::default(),
            waiting: AtomicU64::new(0),
            cleaning: Mutex::default(),
            helpers: Helpers::default(),
            turns: Turns::default(),
            again: Again::after(rounds.again),
            reads: AtomicU64::new(0),
            saved: rounds.read.into(),
            rounds: Mutex::new(rounds),
            derived: Mutex::default(),
            scrubbing: Right::default(),
            recounting: Right::default(),
            maintenance: OnceLock::new(),
        }
    }

    /// Whether deferred bytes go where the blocks stood that they overwrite.
    pub fn goes_home(&self) -> bool {
        self.data.unit.is_some() && self.options.home
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Does what a user waits for. The throttle of the cleaner is told how long it took.
    pub fn measured<T>(&self, what: Waits, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (begun, began) = (self.load.begun(), Instant::now());
        let waits = WaitsNow::begin(&self.waiting);
        let done = work()?;
        drop(waits);
        self.load.ended(begun, what, u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Ok(done)
    }

    /// Cleans as much as the throttle allows. Returns how long to rest then; `None`: nothing is to be done, or to be gained.
    ///
    /// # Errors
    /// As [`Core::clean`].
    pub fn clean_a_step(&self) -> Result<Option<Duration>> {
        if !self.cleaner.is_due() {
            return Ok(None);
        }
        let (most, mut others) = (self.tenant.volume().least_capacity(), false);
        let rest = self.cleaner.pace(self.options.max_slowdown, &self.load, |bytes| {
            let cleaned = self.clean(Goal::Rest, bytes.min(most))?;
            others = cleaned.waited && cleaned.moved == 0 && cleaned.freed == 0;
            Ok((cleaned.gained() && !others).then_some(cleaned.moved))
        });
        // Somebody else cleans: nothing was learnt of how long that takes.
        rest.map(|rest| rest.or(others.then_some(OTHERS)))
    }

    /// A zone was taken. Whoever cleans in the background begins where few are free, or goes on.
    pub fn ring(&self) {
        if self.data.unit.is_none() && self.cleaner.is_due() {
            self.maintenance.get().into_iter().for_each(|maintenance| maintenance.ring());
        }
    }

    /// Whether so few zones are free that whoever cleans in the background does not rest.
    pub fn is_short_of_zones(&self) -> bool {
        self.data.unit.is_none() && self.cleaner.is_short()
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
        Error::corrupt(&self.tenant.volume().name(), what).checked_by(CHECK)
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

    /// Whether a record would have to be read from the drive.
    pub fn would_read(&self, family: Family, key: &[u8]) -> bool {
        {
            let state = self.state();
            if state.current.get(family, key).or_else(|| state.committing.get(family, key)).is_some() {
                return false;
            }
        }
        !self.cache.has(family, key) && self.kv.get_would_read(family, key)
    }

    pub fn blob(&self, id: BlobId) -> Result<Option<Arc<Blob>>> {
        self.look_up_once(&id.key())
    }

    /// A blob's record, if it is there and can be read.
    pub fn blob_of_many(&self, id: BlobId) -> Result<Option<Blob>> {
        match self.blob(id) {
            Err(error) if is_of_bytes(&error) => {
                tracing::error!(%error, %id, "the record of a blob cannot be read");
                Ok(None)
            }
            blob => Ok(blob?.map(Arc::unwrap_or_clone)),
        }
    }

    /// Those of these blobs that are there and can be read.
    pub fn blobs(&self, ids: &BTreeSet<BlobId>) -> Result<BTreeMap<BlobId, Blob>> {
        let records = self.records(ids)?.into_iter();
        Ok(records.filter_map(|(id, record)| Some((id, Blob::decode(&record)?))).collect())
    }

    /// Their records, which make sense. Where many stand side by side they are read in one pass.
    pub fn records(&self, ids: &BTreeSet<BlobId>) -> Result<Records> {
        let (mut found, mut rest, mut page) = (Records::new(), ids.iter().peekable(), LEAST);
        while let Some(first) = rest.peek() {
            let (pairs, next) = match self.pairs(Family::Blobs, &first.key(), None, page, None) {
                Err(error) if is_of_bytes(&error) => {
                    // One at a time, so that what is damaged costs no others.
                    if let Some(id) = rest.next()
                        && let Some(blob) = self.blob_of_many(*id)?
                    {
                        found.insert(*id, blob.encode().into());
                    }
                    page = LEAST;
                    continue;
                }
                pairs => pairs?,
            };
            let mut wanted = 0;
            for (key, record) in pairs {
                let Some(id) = BlobId::of_key(&key) else { return Err(self.corrupt("the key of a blob")) };
                // Those that are passed over are not there.
                while rest.next_if(|wanted| **wanted < id).is_some() {}
                if rest.next_if_eq(&&id).is_some() {
                    wanted += 1;
                    match Blob::decode(&record) {
                        Some(_) => drop(found.insert(id, record.into())),
                        None => tracing::error!(%id, "the record of a blob makes no sense"),
                    }
                }
            }
            match next {
                None => break,
                Some(next) => while rest.next_if(|id| id.key() < next).is_some() {},
            }
            // Reading on pays where at least each so manieth is wanted.
            page = if wanted * SPARSE >= page { (2 * page).min(LONGEST) } else { LEAST };
        }
        Ok(found)
    }
}

impl Core {
    /// Bytes that have gathered, for zones and of metadata.
    pub fn gathered(&self) -> u64 {
        let state = self.state();
        state.room.gathered * BLOCK + state.current.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept_up_to_a_limit_and_given_to_later_groups() {
        let bytes = || Arc::new(AlignedBuf::zeroed(4096));
        let id = |number| BlobId { onode: 1, number };
        let mut deferred = Deferred::after(false);
        // What is overwritten again and again takes no more than once.
        for number in 0..100 {
            deferred.keep(id(number), 5, bytes(), 8192);
            deferred.remove(id(number));
        }
        assert_eq!((deferred.len, deferred.others), (0, None));
        for (number, group) in [(0, 5), (1, 6), (2, 7)] {
            deferred.keep(id(number), group, bytes(), 8192);
        }
        assert_eq!((deferred.len, deferred.others), (8192, Some(7)));
        assert_eq!(deferred.take(5, u64::MAX).len(), 0);
        let taken: Vec<_> = deferred.take(7, 1).into_iter().map(|(id, _)| id.number).collect();
        assert_eq!((taken, deferred.len), (vec![0], 4096));
        // The group that deferred what was not kept is not before itself.
        deferred.forget(7);
        assert_eq!((deferred.len, deferred.others), (0, Some(7)));
        deferred.forget(8);
        assert_eq!(deferred.others, None);
        assert_eq!(Deferred::after(true).others, Some(0));
    }
}
