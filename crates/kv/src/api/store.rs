//! A store as its user sees it.

use super::engine::{self, Figures, Store, Watch};
use super::ingest::Ingest;
use super::{checkpoint, size, space};
use crate::batch::{Act, Batch, Body, Change};
use crate::core::Core;
use crate::core::run::Reach;
use crate::iter::Iter;
use crate::operator::MergeOperator;
use crate::options::Options;
use crate::read::{self, Reader};
use crate::space::{Expiry, UNNAMED};
use crate::work::Worker;
use crate::{check, space as keys, write};
use imbrex_device::{Code, Drive, Result};
use imbrex_zones::shell::Shell;
use imbrex_zones::{Tenant, Volume};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use super::space::Make;

/// A space of a key-value store on a drive: keys in an order, with values. An opening hands out the space without a name, and [`Kv::space`] the others. Clones are
/// the same one.
#[derive(Clone)]
pub struct Kv {
    shell: Shell<Store>,
    space: u16,
}

/// A moment of a store, which stays readable, and the store open, as long as this is there.
#[derive(Clone)]
pub struct Snapshot {
    reader: Reader,
    /// What keeps the store open.
    open: Arc<dyn Any + Send + Sync>,
}

impl Kv {
    /// Formats a drive for a store alone.
    ///
    /// # Errors
    /// `Unusable` where the drive holds something and `force` is not set, or is too small.
    pub fn format(drive: &Drive, uuid: Option<[u8; 16]>, force: bool) -> Result<()> {
        engine::format(drive, uuid, force)
    }

    /// Opens the store on a drive.
    ///
    /// # Errors
    /// Those of the drive; a drive without a store; an order of another name.
    pub fn open(drive: Drive, options: Options) -> Result<Kv> {
        Ok(Kv::of(Shell::open_drive(drive, options, false, &mut ())?))
    }

    /// Opens the store of a drive that a URI names, as `imbrex:///data/drive.img?memtable=256M`, or hands out the one that this process has open. `more`: options
    /// that count where the URI does not give them.
    ///
    /// # Errors
    /// Those of [`Kv::open`]; `Misuse` where the URI makes no sense.
    pub fn open_uri(uri: &str, more: &[(&str, &str)]) -> Result<Kv> {
        Ok(Kv::of(Shell::open_uri(uri, more, &mut ())?))
    }

    /// Opens the store of a tenant of an open volume; makes one, where there is none.
    ///
    /// # Errors
    /// Those of [`Kv::open`].
    pub fn open_tenant(tenant: Tenant, options: Options) -> Result<Kv> {
        Ok(Kv::of(Shell::open_tenant(tenant, options)?))
    }

    fn of(shell: Shell<Store>) -> Kv {
        Kv { shell, space: UNNAMED }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.shell.core
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.shell.worker
    }

    /// Refuses a snapshot of another store.
    fn own(&self, at: &Snapshot) -> Result<()> {
        if at.reader.is_of(self.core()) {
            return Ok(());
        }
        let sentence = "the snapshot is of another store; read from that one";
        Err(self.core().refused(Code::InvalidArgument, sentence))
    }

    /// The space of this name, whose keys are in the order of that name. The unnamed space has the empty name.
    ///
    /// # Errors
    /// `NotFound` and `Exists`, as `make` says; `InvalidArgument` where the space is in another order, or this program knows no such order (see
    /// [`register_order`](crate::register_order)); those of the drive.
    pub fn space(&self, name: &str, order: &str, make: Make) -> Result<Kv> {
        Ok(Kv { shell: self.shell.clone(), space: space::open(self.core(), &self.shell.worker, name, order, make)? })
    }

    /// The space of this name goes, and all its keys. Who has it open can write nothing more to it. Tables of it alone are free at once; the rest is as merges come by.
    /// Where its order is not bytewise, all is merged before this returns, so that later openings need not know that order, unless a
    /// snapshot or checkpoint keeps what the space had.
    ///
    /// # Errors
    /// `NotFound`; those of [`Kv::put`].
    pub fn drop_space(&self, name: &str) -> Result<()> {
        space::drop_named(self.core(), &self.shell.worker, name)
    }

    /// The names of all spaces but the unnamed one, and of their orders.
    pub fn spaces(&self) -> Vec<(String, String)> {
        space::names(self.core())
    }

    /// From now on, until the store is closed, pairs of this space are over when `expiry` says so. Readers do not see them then, not at snapshots either; merges drop
    /// them. Whoever opens the store without it sees those that are left.
    pub fn expire(&self, expiry: Arc<dyn Expiry>) {
        self.core().spaces.set_expiry(self.space, expiry);
    }

    /// From now on, until the store is closed, values of this space come of operands in this way. Without it, keys that have operands cannot be read, and merges keep
    /// their operands as they are. Nothing stores which operator it is: give a space the same one after each opening.
    pub fn merge_operator(&self, operator: Arc<dyn MergeOperator>) {
        self.core().spaces.set_operator(self.space, operator);
    }

    /// What the store has, and where.
    pub fn figures(&self) -> Figures {
        self.shell.figures_now()
    }

    /// Figures that do not keep it open.
    pub fn watch(&self) -> Watch {
        self.shell.watch()
    }

    /// The volume that it is on.
    pub fn volume(&self) -> &Volume {
        self.core().tenant.volume()
    }

    /// Sentences of damage that the opening found.
    pub fn damage(&self) -> Vec<String> {
        self.core().damage()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of the reads; `Corrupt`; `InvalidArgument` where the key has operands, and the space no [operator](Kv::merge_operator).
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.core().counters.get();
        read::get_now(self.core(), &keys::full(self.space, key))
    }

    /// Whether a [`Kv::get`] of the key would have to ask the drive, as things stand: neither memory nor the cache has what it needs.
    pub fn get_would_read(&self, key: &[u8]) -> bool {
        let seq = self.core().visible.load(Ordering::Acquire);
        read::would_read(self.core(), &self.core().view(), &keys::full(self.space, key), seq)
    }

    /// The value that a key had at a moment.
    ///
    /// # Errors
    /// `InvalidArgument` where the snapshot is of another store; those of [`Kv::get`].
    pub fn get_at(&self, at: &Snapshot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.own(at)?;
        self.core().counters.get();
        read::get(self.core(), &self.core().view(), &keys::full(self.space, key), at.reader.seq)
    }

    /// The values of keys, all as they are at one moment, in the order of the keys. Up to `reads-at-once` reads of the drive are under way at once.
    ///
    /// # Errors
    /// Those of [`Kv::get`], of the first key that has one.
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.read_all(&Reader::now(self.core()), keys)
    }

    /// The same at a moment.
    ///
    /// # Errors
    /// Those of [`Kv::get_at`], of the first key that has one.
    pub fn multi_get_at(&self, at: &Snapshot, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.own(at)?;
        self.read_all(&at.reader, keys)
    }

    fn read_all(&self, reader: &Reader, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().for_each(|_| self.core().counters.get());
        let keys: Vec<_> = keys.iter().map(|key| keys::full(self.space, key)).collect();
        read::multi_get(self.core(), &self.core().view(), &keys, reader.seq)
    }

    /// Gives a key a value. `sync`: it is durable when this returns; else it outlives the process.
    ///
    /// # Errors
    /// `NoSpace`; keys and values that are too long; those of the drive.
    pub fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.write_one(Change::of_key(self.space, Act::Put, key, value), sync)
    }

    /// Merges an operand into a key's value, as the space's [operator](Kv::merge_operator) says, without a read. All operands of a key that are not
    /// combined yet must fit a zone of the drive together: else merges stop until that key is deleted or put anew.
    ///
    /// # Errors
    /// `InvalidArgument`: the space has no operator; those of [`Kv::put`].
    pub fn merge(&self, key: &[u8], operand: &[u8], sync: bool) -> Result<()> {
        self.write_one(Change::of_key(self.space, Act::Merge, key, operand), sync)
    }

    /// Deletes a key, if it is there.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.write_one(Change::of_key(self.space, Act::Delete, key, &[]), sync)
    }

    /// Deletes all keys from `from` on and before `to`; `None`: from the first, or to the last. Tables that have nothing else are free at once.
    ///
    /// # Errors
    /// Those of [`Kv::put`]; `NoSpace` also where a thousand ranges are deleted, and snapshots or iterators keep what was in them.
    pub fn delete_range(&self, from: Option<&[u8]>, to: Option<&[u8]>, sync: bool) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete_range(from, to);
        self.write(&batch, sync)
    }

    /// Makes all changes of a batch, or none.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn write(&self, batch: &Batch, sync: bool) -> Result<()> {
        write::write(self.core(), &self.shell.worker, (Body::Batch(batch), self.space), (false, sync))
    }

    /// Makes all changes of a batch, or none, also where only deletions have room. For who asks [`Kv::has_room`] before it promises somebody to make changes, and makes them later: then this does not
    /// fail for want of room.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn write_promised(&self, batch: &Batch, sync: bool) -> Result<()> {
        write::write(self.core(), &self.shell.worker, (Body::Batch(batch), self.space), (true, sync))
    }

    /// Whether so many bytes of changes have room, all those with them that were promised and not written yet. Merges where that makes room. `little`: a part of what is kept for deletions counts, too; so
    /// it is for what comes with deletions.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn has_room(&self, bytes: u64, little: bool) -> Result<bool> {
        self.shell.worker.has_room(bytes, little)
    }

    fn write_one(&self, change: Change<'_>, sync: bool) -> Result<()> {
        write::write(self.core(), &self.shell.worker, (Body::One(change), self.space), (false, sync))
    }

    /// Takes pairs in the order of their keys, and writes them as tables at once: once, and at the drive's rate. See [`Ingest`].
    ///
    /// # Errors
    /// `NotFound` where the space was dropped.
    pub fn ingest(&self) -> Result<Ingest> {
        Ingest::new(self.clone(), self.space)
    }

    /// Makes durable what was written so far, to any space.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn sync(&self) -> Result<()> {
        self.core().wal()?.sync()
    }

    /// What all spaces of the store have now, for reads later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { reader: Reader::now(self.core()), open: Arc::new(self.clone()) }
    }

    /// Keeps what all spaces of the store have now, durably and under a name, until [`Kv::drop_checkpoint`]. No byte is copied: values that are replaced or deleted
    /// from now on keep their room. A space that is dropped cannot be opened any more, not even at a checkpoint.
    ///
    /// # Errors
    /// `Exists`; `InvalidArgument` for a name of 0 or more than 1,024 bytes; `NoSpace` where there are 1,024 of them; those of the drive.
    pub fn checkpoint(&self, name: &str) -> Result<()> {
        checkpoint::make(self.core(), name)
    }

    /// What the checkpoint of this name has, to read from.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn at_checkpoint(&self, name: &str) -> Result<Snapshot> {
        Ok(Snapshot { reader: checkpoint::open(self.core(), name)?, open: Arc::new(self.clone()) })
    }

    /// The names of all checkpoints, sorted.
    pub fn checkpoints(&self) -> Vec<String> {
        checkpoint::names(self.core())
    }

    /// The checkpoint goes. What only it had is free as merges come by.
    ///
    /// # Errors
    /// `NotFound`; those of the drive.
    pub fn drop_checkpoint(&self, name: &str) -> Result<()> {
        checkpoint::forget(self.core(), name)
    }

    /// Keys and values in order, as they are now.
    ///
    /// # Errors
    /// None so far: what it reads it reads as it moves.
    pub fn iter(&self) -> Result<Iter> {
        self.iter_at(&self.snapshot())
    }

    /// Keys and values in order, as they were at a moment.
    ///
    /// # Errors
    /// `InvalidArgument` where the snapshot is of another store.
    pub fn iter_at(&self, at: &Snapshot) -> Result<Iter> {
        self.own(at)?;
        Ok(Iter::new(self.core(), (at.reader.clone(), Reach::Near), self.space, at.open.clone()))
    }

    /// The same as [`Kv::iter`], for who goes over very many keys once: it reads pieces of a MiB, and leaves the cache to others.
    ///
    /// # Errors
    /// Those of [`Kv::iter`].
    pub fn iter_far(&self) -> Result<Iter> {
        let at = self.snapshot();
        self.own(&at)?;
        Ok(Iter::new(self.core(), (at.reader.clone(), Reach::Far), self.space, at.open.clone()))
    }

    /// Bytes of tables that the keys from `from` on have which are before `to`, about: from the first key, and to the last one, where there is no such end.
    /// Indexes of tables are read, and no data. What is in memory only does not count.
    ///
    /// # Errors
    /// Those of [`Kv::get`].
    pub fn approximate_bytes(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<u64> {
        let (from, to) = keys::ends(self.space, from, to);
        size::approximate_bytes(self.core(), &from, &to)
    }

    /// Makes tables of what all spaces have in memory.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn flush(&self) -> Result<()> {
        self.shell.worker.flush_all()
    }

    /// Merges all tables of the store, so that each key is in one.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn compact(&self) -> Result<()> {
        self.shell.worker.merge_all()
    }

    /// Merges tables of this space until each key from `from` on and before `to` is in one: from the first key, and to the last one, where there is no such
    /// end. Other keys may be merged before. What all spaces have in memory becomes tables first.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn compact_range(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<()> {
        let (from, to) = keys::ends(self.space, from, to);
        self.shell.worker.merge_range(&from, &to)
    }

    /// Does one piece of background work: its own, or the volume's. False: there was none.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn step(&self) -> Result<bool> {
        self.shell.step()
    }

    /// Makes one choice of the policy, as the maintenance thread does while puts go on. Who has no such thread may be it, between puts. False: there was nothing
    /// to do.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn tend(&self) -> Result<bool> {
        self.shell.tend()
    }

    /// Reads everything, and returns sentences about what is wrong: labels, both copies of the metadata, the write-ahead log, tables, and whether the metadata, the
    /// drive's table of zones and the zones' headers agree of each zone. What [`Kv::damage`] tells is left out. Puts wait for one sync;
    /// tables are not merged until log and metadata are read.
    ///
    /// # Errors
    /// Those of the drive that are not about bytes, as where it has lost power since.
    pub fn check(&self) -> Result<Vec<String>> {
        let mut found = self.shell.worker.between_choices(|| check::all(self.core()))?;
        let view = self.core().view();
        found.extend(check::headers(self.core(), &view)?);
        for table in view.tables.iter() {
            let of = |sentence| format!("table {} in zone {}: {sentence}", table.info.id, table.info.zone);
            match table.check() {
                Ok(sentences) => found.extend(sentences.into_iter().map(of)),
                Err(error) => found.push(of(error.to_string())),
            }
        }
        Ok(found)
    }
}

impl Batch {
    /// What is added from here on goes to this space. All spaces of a batch are of one opening of one store.
    pub fn space(&mut self, kv: &Kv) {
        self.go_to(kv.space, kv.core().opening());
    }
}
