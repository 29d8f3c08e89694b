//! The store as its user sees it, and how it opens.

use crate::apply;
use crate::blob::BLOCK;
use crate::cached::CacheUse;
use crate::check::{self, Report};
use crate::codec::MAX_NUMBER;
use crate::core::{ALL, CHECK, Core, Deferred, NEXT, Options, State, is_of_bytes};
use crate::counts;
use crate::derive;
use crate::draft::{Counts, Draft};
use crate::freelist;
use crate::fullness::{Fullness, fullness};
use crate::id::{CollectionId, ObjectId};
use crate::keyvalue::{Change, Family, KeyValue, Pair, each};
use crate::layout;
use crate::lock::lock;
use crate::read::{Page, Stat};
use crate::rounds::{Rounds, SCRUB};
use crate::space::Space;
use crate::super_block::SuperBlock;
use crate::table::{Sums, Table, Zone, of_zone_key};
use crate::transaction::{Asks, Callback, Step, Transaction, asks};
use imbrex_device::{Code, Error, Fault, Result, Written, Zone as DriveZone, ZoneId};
use imbrex_zones::clean::{Goal, Waits};
use imbrex_zones::shell::Maintenance;
use imbrex_zones::{Budget, Tenant};
use std::sync::Arc;
use std::time::Duration;

/// The tenant's name in the label.
pub const NAME: &str = "bluestore";
/// What a store on a drive needs: two zones to write to, and two that the cleaner moves what lives to. Deleting takes room of the key-value store only.
pub const BUDGET: Budget = Budget::keeping(0, 2).at_least(4);

/// An object store on a tenant's zones, with its metadata in a key-value store. Clones are the same one.
#[derive(Clone)]
pub struct BlueStore(Arc<Core>);

/// Steps of a transaction, and what they ask of the drive of the metadata.
type Of<'a> = (&'a [(CollectionId, Step)], Asks);

/// A transaction that everybody sees, and that becomes durable with its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

impl Ticket {
    /// Its number, for those who cannot keep it otherwise: [`BlueStore::ticket`] makes it a ticket again.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What transactions survive that somebody has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// The end of the process, where its memory for that (the survivor) is given: no flush.
    Process,
    /// A loss of power.
    Power,
}

/// How full a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Objects.
    pub objects: u64,
    /// Bytes of all objects, holes with them.
    pub bytes: u64,
    /// Bytes of blocks that objects name on the drive, each once however many share it; and those of which changes wait ([`Usage::uncounted`]).
    pub stored: u64,
    /// Changes of how many extents name a blob that wait until many are made together.
    pub uncounted: u64,
    /// Bytes of blocks that wait in the key-value store.
    pub deferred: u64,
    /// Bytes of zones that are free for the store, and of free units of its own.
    pub free: u64,
    /// Bytes that it can have, if no other engine of the drive takes more zones.
    pub capacity: u64,
    /// What it takes.
    pub fullness: Fullness,
    /// Bytes that the cleaner has moved since the opening.
    pub moved: u64,
    /// How often the drive did not give bytes, or gave others, and gave them when they were read once more. Since the store was made, but for what came last before a crash.
    pub read_again: u64,
    /// How often it did not do so then, either: whoever asked for them got an error.
    pub read_in_vain: u64,
    /// Damaged places that the scrub knows.
    pub damaged: u64,
    /// Decoded records in memory.
    pub cache: CacheUse,
}

impl BlueStore {
    /// Opens the store of a tenant; makes it, where the key-value store is empty.
    ///
    /// # Errors
    /// `Corrupt` where the key-value store is another one's or damaged; those of the drive and of the key-value store.
    pub fn open(tenant: &Tenant, kv: Arc<dyn KeyValue>, options: Options) -> Result<BlueStore> {
        let volume = tenant.volume();
        let corrupt = |what: &str| Error::corrupt(&volume.name(), what).checked_by(CHECK);
        let mut super_block = SuperBlock { volume: volume.uuid(), tenant: tenant.owner(), unit: 0 };
        match kv.get(Family::Super, ALL)? {
            Some(found) => {
                super_block.unit = super_block.check(&found).map_err(|why| Error::unusable(&volume.name(), why))?;
                layout::agree(volume, super_block.unit, options.layout, options.min_alloc)?;
            }
            None => {
                let any = Family::ALL
                    .into_iter()
                    .try_fold(false, |any, f| Ok::<_, Error>(any || !kv.pairs(f, &[], None, 1)?.is_empty()))?;
                if any {
                    return Err(corrupt("the metadata of the object store: its first record is gone"));
                }
                // The first record is there before any zone is.
                let written = |zone: &ZoneId| volume.report_at_open().get(zone.0 as usize).is_some_and(has_bytes);
                if tenant.unadopted().iter().any(written) {
                    let sentence = "has zones of an object store whose metadata are not here; open it with those, copy what is left with `imbrex store salvage`, or format the drive anew";
                    return Err(Error::unusable(&volume.name(), sentence));
                }
                super_block.unit = layout::new_unit(volume, options.layout, options.min_alloc)?;
                kv.write(&[Change::Put(Family::Super, ALL.to_vec(), super_block.encode())])?;
                kv.sync()?;
            }
        }
        let number = |bytes: Vec<u8>| {
            bytes.try_into().map(u64::from_le_bytes).map_err(|_| corrupt("the number of the next object"))
        };
        let ceiling = kv.get(Family::Super, NEXT)?.map_or(Ok(1), number)?;
        if ceiling > MAX_NUMBER {
            return Err(corrupt("the number of the next object"));
        }
        let sums = kv.get(Family::Statistics, ALL)?.map_or(Some(Sums::default()), |bytes| Sums::decode(&bytes));
        // A repair makes them anew.
        let sums = sums.or(options.repair.then(Sums::default)).ok_or_else(|| corrupt("the sums over all objects"))?;
        let counts = counts::load(kv.as_ref(), options.repair)?.ok_or_else(|| corrupt("changes of blobs' counts"))?;
        tenant.begin()?;
        let (mut table, mut derived) = match options.repair {
            true => derive::zones(tenant, kv.as_ref())?,
            false => (zones(tenant, kv.as_ref())?, Vec::new()),
        };
        let space = match super_block.unit {
            0 => None,
            unit => Some(freelist::open(tenant, kv.as_ref(), (unit, &table), options.repair.then_some(&mut derived))?),
        };
        table.keeps = space.is_some();
        // Zones of which it knows no more are reset behind this.
        kv.sync()?;
        tenant.adoption_done();
        tenant.recovered()?;
        for (zone, _) in table.iter() {
            // Nothing is written behind what an earlier opening wrote.
            tenant.finish_unused(ZoneId(zone));
        }
        // A version of an earlier opening never comes again.
        let version = volume.mount() << 32;
        let deferred = Deferred::after(sums.deferred > 0);
        let state = State {
            group: 1,
            deferred,
            table,
            space,
            counts,
            sums,
            next: ceiling,
            ceiling,
            version,
            kept_version: version,
            ..State::default()
        };
        let rounds = rounds(kv.as_ref())?;
        let core = Core::new(tenant, kv, options, (state, rounds));
        *lock(&core.derived) = derived;
        core.measure();
        Ok(BlueStore(Arc::new(core)))
    }

    /// Whether this is the same open store.
    pub fn is(&self, other: &BlueStore) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Makes the changes of a transaction, all of them or none. From then on everybody sees them; they are durable with [`BlueStore::wait`]. Transactions are durable in
    /// the order of these calls.
    ///
    /// # Errors
    /// Those of a step that makes no sense, each with its own kind: `NotFound`, `Exists`, `NotEmpty`, `InvalidArgument`, `NameTooLong`, `Range`. `NoSpace`. Then nothing
    /// has changed. Callbacks are told as well.
    pub fn queue(&self, transaction: Transaction) -> Result<Ticket> {
        let Transaction { steps, callbacks, makes_room } = transaction;
        let asks = asks(&steps, makes_room);
        if self.0.gathered() > self.0.options.gather {
            let group = self.0.state().group;
            if let Err(error) = self.0.keep(group) {
                return Err(tell(callbacks, error));
            }
        }
        if let Err(error) = self.0.recount_if_due().and_then(|()| self.0.clean_ahead()) {
            return Err(tell(callbacks, error));
        }
        self.0.read_ahead_of(&steps);
        let mut prepared = self.prepare((&steps, asks), callbacks, Counts::MayWait);
        for counts in [Counts::MayWait, Counts::AtOnce] {
            let callbacks = match prepared {
                Ok(ticket) => return Ok(ticket),
                Err((error, callbacks)) if error.code() == Code::NoSpace => callbacks,
                Err((error, callbacks)) => return Err(tell(callbacks, error)),
            };
            if let Err(error) = self.make_all_durable(counts) {
                return Err(tell(callbacks, error));
            }
            prepared = self.prepare_again((&steps, asks), callbacks, counts);
        }
        prepared.map_err(|(error, callbacks)| tell(callbacks, error))
    }

    /// What was deleted becomes room when that is durable.
    fn make_all_durable(&self, counts: Counts) -> Result<()> {
        if counts == Counts::AtOnce {
            self.0.recount()?;
        }
        let group = {
            let mut state = self.0.state();
            state.starved = true;
            state.group
        };
        self.0.commit(group)?;
        self.0.kv.make_room()
    }

    /// After there was no room. Each time a part of a zone is won, or it ends. `AtOnce`: what it takes away makes room for what it brings.
    fn prepare_again(
        &self,
        of: Of<'_>,
        callbacks: Vec<Callback>,
        counts: Counts,
    ) -> Result<Ticket, (Error, Vec<Callback>)> {
        let mut prepared = self.prepare(of, callbacks, counts);
        loop {
            let (error, callbacks) = match prepared {
                Ok(ticket) => return Ok(ticket),
                Err(failed) => failed,
            };
            // Cleaning makes room for bytes, and none of them fewer.
            if !matches!(error.fault, Fault::NoSpace) {
                return Err((error, callbacks));
            }
            match self.0.clean(Goal::Room, self.0.tenant.volume().least_capacity()) {
                Ok(cleaned) if cleaned.gained() => prepared = self.prepare(of, callbacks, counts),
                Ok(_) => return Err((error, callbacks)),
                Err(error) => return Err((error, callbacks)),
            }
        }
    }

    fn prepare(
        &self,
        (steps, asks): Of<'_>,
        callbacks: Vec<Callback>,
        counts: Counts,
    ) -> Result<Ticket, (Error, Vec<Callback>)> {
        let _preparing = self.0.prepare();
        let mut draft = Draft::new(&self.0, counts);
        draft.asks(asks);
        for (collection, step) in steps {
            if let Err(error) = apply::step(&mut draft, *collection, step) {
                return Err((error, callbacks));
            }
        }
        draft.publish(callbacks).map(Ticket)
    }

    /// The ticket of this number; `None`: none of this opening has it.
    pub fn ticket(&self, number: u64) -> Option<Ticket> {
        (number <= self.0.state().group).then_some(Ticket(number))
    }

    /// Returns when the transaction is durable, and all that were queued before it.
    ///
    /// # Errors
    /// Those of the drive and of the key-value store. After one nothing becomes durable any more, until the store is opened again.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.wait_for(ticket, Survives::Power)
    }

    /// Returns when the transaction, and all that were queued before it, survive this.
    ///
    /// # Errors
    /// Those of [`BlueStore::wait`].
    pub fn wait_for(&self, ticket: Ticket, what: Survives) -> Result<()> {
        self.0.measured(Waits::Append, || match what {
            Survives::Process => self.0.keep(ticket.0),
            Survives::Power => self.0.commit(ticket.0),
        })
    }

    /// Makes the changes, and returns when they are durable.
    ///
    /// # Errors
    /// Those of [`BlueStore::queue`] and [`BlueStore::wait`].
    pub fn commit(&self, transaction: Transaction) -> Result<()> {
        let ticket = self.queue(transaction)?;
        self.wait(ticket)
    }

    /// Bytes of an allocation unit, of a store in place; `None`: data are in runs on zones.
    pub fn allocation_unit(&self) -> Option<u64> {
        self.0.data.unit.map(|blocks| u64::from(blocks) * BLOCK)
    }

    /// All that was queued is durable when it returns.
    ///
    /// # Errors
    /// Those of [`BlueStore::wait`].
    pub fn sync(&self) -> Result<()> {
        let (group, some) = {
            let state = self.0.state();
            (state.group, !state.current.is_empty() || !state.callbacks.is_empty())
        };
        self.0.commit(if some { group } else { group - 1 })?;
        self.0.collect();
        Ok(())
    }

    /// Gives places on the drive to bytes that wait in the key-value store, and makes changes of blobs' counts that wait there. False: nothing waited.
    ///
    /// # Errors
    /// Those of [`BlueStore::wait`].
    pub fn pack(&self) -> Result<bool> {
        let waited = self.0.state().counts.len();
        if waited > 0 {
            self.0.recount()?;
        }
        if self.0.goes_home() && self.0.state().sums.deferred > 0 {
            // What was overwritten is free when that is durable, and what has overwritten it goes there.
            self.sync()?;
        }
        Ok(self.0.pack()? || self.0.state().counts.len() < waited)
    }

    /// Moves what lives in zones that are mostly dead, until about so many bytes have moved, or nothing is to be gained. Returns how many have moved.
    ///
    /// # Errors
    /// Those of [`BlueStore::wait`].
    pub fn clean(&self, most: u64) -> Result<u64> {
        Ok(self.0.clean(Goal::Ahead, most)?.moved)
    }

    /// Cleans a little where fewer zones are free than shall be, for somebody who has nothing else to do. Returns how long to rest then, so that users wait no longer than
    /// [`Options::max_slowdown`] says; `None`: there was nothing to do.
    ///
    /// # Errors
    /// Those of [`BlueStore::wait`].
    pub fn clean_a_step(&self) -> Result<Option<Duration>> {
        self.0.clean_a_step()
    }

    /// This thread calls [`BlueStore::clean_a_step`]. It is rung for where zones run short.
    pub fn attended_by(&self, maintenance: Arc<Maintenance>) {
        _ = self.0.maintenance.set(maintenance);
    }

    /// Whether so few zones are free that whoever cleans in the background is not to rest, whatever [`BlueStore::clean_a_step`] said.
    pub fn is_short_of_zones(&self) -> bool {
        self.0.is_short_of_zones()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0
    }

    /// Bytes of an object: `len` of them, or fewer where it ends.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` where bytes are not those that were written; `InvalidArgument` for more than a GiB at once; those of the drive.
    pub fn read(&self, collection: CollectionId, object: &ObjectId, offset: u64, len: u64) -> Result<Vec<u8>> {
        self.0.measured(Waits::Read, || self.0.read_object(collection, object, offset, len))
    }

    /// Bytes of an object from `offset` on, to where the caller wants them. Returns how many there were: fewer than asked for where the object ends. Memory that the drive accepts
    /// ([`AlignedBuf`](imbrex_device::AlignedBuf)) saves a copy. After an error it has any content.
    ///
    /// # Errors
    /// Those of [`BlueStore::read`].
    pub fn read_into(&self, collection: CollectionId, object: &ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.0.measured(Waits::Read, || self.0.read_into(collection, object, offset, out))
    }

    /// What is known of an object.
    ///
    /// # Errors
    /// `NotFound`; those of the key-value store.
    pub fn stat(&self, collection: CollectionId, object: &ObjectId) -> Result<Stat> {
        self.0.stat(collection, object)
    }

    /// Two numbers, of which one is another when anything of the object has changed: whoever reads it piece by piece knows by them whether the pieces are of one moment.
    ///
    /// # Errors
    /// `NotFound`; those of the key-value store.
    pub fn moment(&self, collection: CollectionId, object: &ObjectId) -> Result<(u64, u64)> {
        self.0.moment(collection, object)
    }

    /// Bytes of the blocks that an object names. Those that it shares with others count, and holes do not.
    ///
    /// # Errors
    /// `NotFound`; those of the key-value store.
    pub fn stored(&self, collection: CollectionId, object: &ObjectId) -> Result<u64> {
        self.0.stored(collection, object)
    }

    /// Whether anything is stored at `offset` of an object, and for how many bytes from there on, `len` at most, that is so. What is not stored is zeros, or behind its end.
    ///
    /// # Errors
    /// `NotFound`; those of the key-value store.
    pub fn stored_at(&self, collection: CollectionId, object: &ObjectId, offset: u64, len: u64) -> Result<(bool, u64)> {
        self.0.stored_at(collection, object, offset, len)
    }

    /// All collections, and the bits that each goes by.
    ///
    /// # Errors
    /// Those of the key-value store.
    pub fn collections(&self) -> Result<Vec<(CollectionId, u8)>> {
        self.0.collections()
    }

    /// The collection that an object of this name belongs to, whether or not there is such an object; `None`: there is no such collection.
    ///
    /// # Errors
    /// Those of the key-value store.
    pub fn home(&self, object: &ObjectId) -> Result<Option<CollectionId>> {
        let all = self.0.collections()?;
        Ok(all.into_iter().find(|(collection, bits)| collection.has(*bits, object)).map(|(collection, _)| collection))
    }

    /// Objects of a collection by hash, namespace, name, snapshot and generation, from one on, `most` at most.
    ///
    /// # Errors
    /// `NotFound`; those of the key-value store.
    pub fn list(
        &self,
        collection: CollectionId,
        from: Option<&ObjectId>,
        most: usize,
    ) -> Result<Page<ObjectId, ObjectId>> {
        self.0.list(collection, from, most)
    }

    /// The header of an object's omap.
    ///
    /// # Errors
    /// `NotFound`; those of the key-value store.
    pub fn omap_header(&self, collection: CollectionId, object: &ObjectId) -> Result<Option<Vec<u8>>> {
        self.0.omap_header(collection, object)
    }

    /// Values of an object's omap.
    ///
    /// # Errors
    /// `NotFound`; those of the key-value store.
    pub fn omap_get(
        &self,
        collection: CollectionId,
        object: &ObjectId,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        self.0.omap_get(collection, object, keys)
    }

    /// Pairs of an object's omap from a key on, `most` at most.
    ///
    /// # Errors
    /// `NotFound`; those of the key-value store.
    pub fn omap(
        &self,
        collection: CollectionId,
        object: &ObjectId,
        from: &[u8],
        most: usize,
    ) -> Result<Page<Pair, Vec<u8>>> {
        self.0.omap_page(collection, object, from, most)
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        let counts = self.0.tenant.counts();
        let (read_again, read_in_vain) = self.0.again.counts();
        let damaged = lock(&self.0.rounds).known();
        self.0.measure();
        let state = self.0.state();
        let Options { near_full, full, .. } = self.0.options;
        let positive = |n: i64| n.max(0) as u64;
        Usage {
            objects: positive(state.sums.objects),
            bytes: positive(state.sums.bytes),
            stored: state.stored() * BLOCK,
            uncounted: state.counts.len() as u64,
            deferred: positive(state.sums.deferred) * BLOCK,
            free: u64::from(counts.free.saturating_sub(counts.reserve)) * self.0.tenant.volume().least_capacity()
                + state.space.as_ref().map_or(0, Space::free) * BLOCK,
            capacity: state.room.capacity * BLOCK,
            fullness: fullness(state.used(), state.room.capacity, (near_full, full)),
            moved: self.0.cleaner.totals().moved,
            read_again,
            read_in_vain,
            damaged,
            cache: self.0.cache.usage(),
        }
    }

    /// Makes all durable, and looks whether all records agree: each extent has its blob, each blob its extents, each zone its blocks. `deep`: whether all bytes are those that were
    /// written, too. Transactions wait meanwhile.
    ///
    /// # Errors
    /// Those of the drive and of the key-value store, but for bytes that cannot be read: these are found.
    pub fn check(&self, deep: bool) -> Result<Report> {
        for _ in 0..CHECKS {
            self.0.recount()?;
            self.sync()?;
            let preparing = self.0.prepare();
            if self.0.is_settled() {
                return check::check(&self.0, deep, &preparing);
            }
        }
        Err(self.0.refuse(Code::Busy, "others change the store all the time; check it when they rest"))
    }
}

/// So often a check tries to find a moment when all is durable.
pub(crate) const CHECKS: u32 = 1000;

/// Whether a zone has been written.
fn has_bytes(zone: &DriveZone) -> bool {
    !matches!(zone.written(), Written::To(0))
}

fn tell(callbacks: Vec<Callback>, error: Error) -> Error {
    callbacks.into_iter().for_each(|told| told(Err(error.clone())));
    error
}

/// How far the scrub was. A record that makes no sense costs no more than what it had found.
fn rounds(kv: &dyn KeyValue) -> Result<Rounds> {
    let found = match kv.get(Family::Super, SCRUB) {
        Err(error) if is_of_bytes(&error) => None,
        found => found?.map_or(Some(Rounds::default()), |record| Rounds::decode(&record)),
    };
    Ok(found.unwrap_or_else(|| {
        tracing::warn!("the record of scrubbing makes no sense; the next round begins anew");
        Rounds::default()
    }))
}

/// Zones with data, of which the key-value store knows.
fn zones(tenant: &Tenant, kv: &dyn KeyValue) -> Result<Table> {
    let mut table = Table::default();
    each(kv, Family::Zones, |key, value| {
        let one = of_zone_key(key).zip(Zone::decode(value));
        let (zone, z) =
            one.ok_or_else(|| Error::corrupt(&tenant.volume().name(), "the record of a zone").checked_by(CHECK))?;
        tenant.adopt(ZoneId(zone))?;
        table.insert(zone, z);
        Ok(())
    })?;
    Ok(table)
}
