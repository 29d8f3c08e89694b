//! An object store's metadata in the key-value store. A family is a letter before the key.

use crate::spare::{self, Spare};
use imbrex_bluestore::{Change, Family, KeyValue, Pair};
use imbrex_device::{Code, Error, Result};
use imbrex_kv::{Batch, Kv};
use std::sync::{Arc, Mutex, PoisonError};

/// A range of so many keys is deleted key by key: the key-value store keeps each deleted range until merges have come by.
const SHORT: usize = 256;

/// Who asks for so many pairs at once passes over most of a family, which others do not want in the cache.
const FAR: usize = 4096;

/// See the module. Clones are the same one.
#[derive(Clone)]
pub struct Metadata {
    kv: Arc<Mutex<Option<Kv>>>,
    /// It has a drive of its own.
    apart: bool,
    spare: Arc<[Spare; 2]>,
}

fn key(family: Family, key: &[u8]) -> Vec<u8> {
    [family.name().as_bytes(), key].concat()
}

/// Who finds damage of the metadata is sent to the check of the object store, which looks at them, too.
fn ours(error: Error) -> Error {
    error.checked_by("imbrex store check")
}

impl Metadata {
    /// In this store, of which nobody else knows. `apart`: on another drive than the objects.
    pub fn new(kv: Kv, apart: bool) -> Metadata {
        Metadata { kv: Arc::new(Mutex::new(Some(kv))), apart, spare: Arc::default() }
    }

    /// The key-value store.
    pub(crate) fn kv(&self) -> Result<Kv> {
        let kv = self.kv.lock().unwrap_or_else(PoisonError::into_inner).clone();
        kv.ok_or_else(|| Error::refused(Code::InvalidArgument, "", "the object store was closed; open it again"))
    }

    /// What `one` makes of each pair of a range, the first `most`.
    fn each<T>(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        most: usize,
        one: impl Fn(&[u8], &[u8]) -> T,
    ) -> Result<Vec<T>> {
        let (kv, mut all) = (self.kv()?, Vec::new());
        let mut iter = if most >= FAR { kv.iter_far()? } else { kv.iter()? };
        iter.seek(&key(family, from))?;
        while let Some((key, value)) = iter.get().filter(|_| all.len() < most) {
            let Some(name) = key.strip_prefix(family.name().as_bytes()) else { break };
            if to.is_some_and(|to| name >= to) {
                break;
            }
            all.push(one(name, value));
            if all.len() < most {
                iter.advance()?;
            }
        }
        Ok(all)
    }

    /// Closes the key-value store.
    pub(crate) fn close(&self) {
        let kv = self.kv.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(kv);
    }
}

impl KeyValue for Metadata {
    fn get(&self, family: Family, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.kv()?.get(&key(family, name)).map_err(ours)
    }

    fn get_would_read(&self, family: Family, name: &[u8]) -> bool {
        self.kv().is_ok_and(|kv| kv.get_would_read(&key(family, name)))
    }

    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        self.each(family, from, to, most, |name, value| (name.to_vec(), value.to_vec())).map_err(ours)
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        let mut batch = Batch::new();
        for change in changes {
            match change {
                Change::Put(family, name, value) => batch.put(&key(*family, name), value),
                Change::Delete(family, name) => batch.delete(&key(*family, name)),
                Change::DeleteRange(family, from, to) => {
                    // Values may be long, and nobody needs them here.
                    let there =
                        self.each(*family, from, Some(to), SHORT, |name, _| key(*family, name)).map_err(ours)?;
                    if there.len() < SHORT {
                        there.iter().for_each(|key| batch.delete(key));
                    } else {
                        batch.delete_range(Some(&key(*family, from)), Some(&key(*family, to)));
                    }
                }
            }
        }
        self.kv()?.write_promised(&batch, false).map_err(ours)
    }

    fn has_room(&self, bytes: u64, waiting: u64, little: bool) -> bool {
        // A store that was closed says so by itself.
        let Ok(kv) = self.kv() else { return true };
        if !self.apart {
            // Whoever writes next meets the error.
            return kv.has_room(bytes + waiting, little).unwrap_or(true);
        }
        loop {
            if self.spare[usize::from(little)].takes(bytes, || spare::of_kv(&kv, little)) {
                return true;
            }
            // What was deleted is room when tables were merged.
            if !kv.step().unwrap_or(false) {
                return false;
            }
        }
    }

    fn sync(&self) -> Result<()> {
        self.kv()?.sync().map_err(ours)
    }
}
