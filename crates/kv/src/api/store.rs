//! A store as its user sees it.

use super::engine::{self, Figures, Store};
use crate::batch::Batch;
use crate::core::Core;
use crate::options::Options;
use crate::read::{self, Iter, Reader};
use crate::write;
use imbrex_device::{Drive, Result};
use imbrex_zones::shell::Shell;
use imbrex_zones::{Tenant, Volume};
use std::sync::Arc;

/// A key-value store on a drive. Clones are the same one.
#[derive(Clone)]
pub struct Kv(Shell<Store>);

/// A moment of a store, which stays readable, and the store open, as long as this is there.
#[derive(Clone)]
pub struct Snapshot(Reader);

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
        Shell::open_drive(drive, options, false, &mut ()).map(Kv)
    }

    /// Opens the store of a drive that a URI names, as `imbrex:///data/drive.img?memtable=256M`, or hands out the one that this process has open. `more`: options
    /// that count where the URI does not give them.
    ///
    /// # Errors
    /// Those of [`Kv::open`]; `Misuse` where the URI makes no sense.
    pub fn open_uri(uri: &str, more: &[(&str, &str)]) -> Result<Kv> {
        Shell::open_uri(uri, more, &mut ()).map(Kv)
    }

    /// Opens the store of a tenant of an open volume; makes one, where there is none.
    ///
    /// # Errors
    /// Those of [`Kv::open`].
    pub fn open_tenant(tenant: Tenant, options: Options) -> Result<Kv> {
        Shell::open_tenant(tenant, options).map(Kv)
    }

    fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    /// What the store has, and where.
    pub fn figures(&self) -> Figures {
        self.0.figures_now()
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
    /// Those of the reads; `Corrupt`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        read::get_now(self.core(), key)
    }

    /// The value that a key had at a moment.
    ///
    /// # Errors
    /// Those of [`Kv::get`].
    pub fn get_at(&self, at: &Snapshot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        read::get(self.core(), &self.core().view(), key, at.0.seq)
    }

    /// Gives a key a value. `sync`: it is durable when this returns; else it outlives the process.
    ///
    /// # Errors
    /// `NoSpace`; keys and values that are too long; those of the drive.
    pub fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(key, value);
        self.write(&batch, sync)
    }

    /// Deletes a key, if it is there.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(key);
        self.write(&batch, sync)
    }

    /// Makes all changes of a batch, or none.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn write(&self, batch: &Batch, sync: bool) -> Result<()> {
        write::write(self.core(), &self.0.worker, batch, sync)
    }

    /// Makes durable what was written so far.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn sync(&self) -> Result<()> {
        self.core().wal()?.sync()
    }

    /// What the store has now, for reads later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(Reader::new(self.core(), Arc::new(self.clone())))
    }

    /// Keys and values in order, as they are now.
    ///
    /// # Errors
    /// Those of [`Kv::get`].
    pub fn iter(&self) -> Result<Iter> {
        self.iter_at(&self.snapshot())
    }

    /// Keys and values in order, as they were at a moment.
    ///
    /// # Errors
    /// Those of [`Kv::get`].
    pub fn iter_at(&self, at: &Snapshot) -> Result<Iter> {
        Iter::new(self.core(), at.0.clone())
    }

    /// Makes tables of what is in memory.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn flush(&self) -> Result<()> {
        self.0.worker.flush_all()
    }

    /// Merges all tables, so that each key is in one.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn compact(&self) -> Result<()> {
        self.0.worker.merge_all()
    }

    /// Does one piece of background work: its own, or the volume's. False: there was none.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn step(&self) -> Result<bool> {
        self.0.step()
    }

    /// Makes one choice of the policy, as the maintenance thread does while puts go on. Who has no such thread may be it, between puts. False: there was nothing
    /// to do.
    ///
    /// # Errors
    /// Those of [`Kv::put`].
    pub fn tend(&self) -> Result<bool> {
        self.0.tend()
    }

    /// Reads everything, and returns sentences about what is wrong.
    ///
    /// # Errors
    /// Those of the reads that are not about bytes.
    pub fn check(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for table in self.core().view().tables.iter() {
            let of = |sentence| format!("table {} in zone {}: {sentence}", table.info.id, table.info.zone);
            match table.check() {
                Ok(sentences) => found.extend(sentences.into_iter().map(of)),
                Err(error) => found.push(of(error.to_string())),
            }
        }
        Ok(found)
    }
}
