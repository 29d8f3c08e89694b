//! Metadata in RocksDB, in files on a tenant of the same drive. RocksDB is a library of C++, which is loaded when a store wants it. Floors above have what loads it,
//! and [`provide`] it.

use crate::room::{Room, reserve};
use crate::spare::{self, Spare};
use imbrex_bluefs::BlueFs;
use imbrex_bluestore::{Change, Family, KeyValue, Pair};
use imbrex_device::{Code, Error, Result};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How a database is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseOptions {
    /// Bytes of changes that stand in memory and in write-ahead logs.
    pub memtable_bytes: u64,
    /// Bytes of the cache of blocks; 0: none.
    pub cache_bytes: u64,
    /// Bytes of one table; 0: what suits the drive.
    pub table_bytes: u64,
    /// It is only looked at, so nothing is done in the background.
    pub look: bool,
    /// It is made where there is none. Else that is damage: a second database would delete the files of the first.
    pub create: bool,
}

/// An open database. Its [`KeyValue::make_room`] waits for compactions, and begins some where enough was deleted. It closes when it is dropped, and lets go of its files then.
pub trait Database: KeyValue {
    /// Reads all tables and compares them with their checksums. A sentence for each problem.
    ///
    /// # Errors
    /// Those of the drive.
    fn check(&self) -> Result<Vec<String>>;
}

/// What loads RocksDB and opens databases.
pub trait RocksDb: fmt::Debug + Send + Sync {
    /// Loads it, if it is not loaded yet.
    ///
    /// # Errors
    /// A sentence where it is not there, or is of another version.
    fn load(&self) -> Result<()>;

    /// Opens the database that is in these files, or makes it if the options allow that.
    ///
    /// # Errors
    /// Those of [`RocksDb::load`], of the files and of RocksDB.
    fn open(&self, files: BlueFs, options: DatabaseOptions) -> Result<Box<dyn Database>>;
}

static PROVIDED: OnceLock<Arc<dyn RocksDb>> = OnceLock::new();

/// From now on stores of this process have it; the first one counts.
pub fn provide(rocksdb: Arc<dyn RocksDb>) {
    PROVIDED.get_or_init(|| rocksdb);
}

/// What was provided.
pub(crate) fn provided() -> Result<Arc<dyn RocksDb>> {
    let sentence = "this program cannot load RocksDB, in which the metadata are; use `imbrex` or libimbrex.so";
    PROVIDED.get().cloned().ok_or_else(|| Error::refused(Code::NotSupported, "", sentence))
}

/// A database that can be closed while others still have it. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Rocks(Arc<Mutex<Option<Open>>>);

#[derive(Clone)]
struct Open {
    database: Arc<dyn Database>,
    files: BlueFs,
    room: Arc<Room>,
    spare: Arc<[Spare; 2]>,
    /// How often somebody has found no room, and of how many of these somebody has made some since.
    refused: Arc<(AtomicU64, AtomicU64)>,
    reserve: u64,
    /// It has a drive of its own.
    apart: bool,
}

/// Who finds damage of the metadata is sent to the check of the object store, which looks at them, too.
fn ours(error: Error) -> Error {
    error.checked_by("imbrex store check")
}

impl Rocks {
    /// Opens the database in these files. `apart`: they are on another drive than the objects.
    pub(crate) fn open(rocksdb: &dyn RocksDb, files: BlueFs, options: DatabaseOptions, apart: bool) -> Result<Rocks> {
        let database = rocksdb.open(files.clone(), options)?.into();
        let reserve = reserve(options.memtable_bytes, files.volume().least_capacity(), files.space().total);
        let (room, spare, refused) = (Arc::new(Room::new(reserve)), Arc::default(), Arc::default());
        let open = Open { database, files, room, spare, refused, reserve, apart };
        Ok(Rocks(Arc::new(Mutex::new(Some(open)))))
    }

    fn get_open(&self) -> Result<Open> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.ok_or_else(|| Error::refused(Code::InvalidArgument, "", "the object store was closed; open it again"))
    }

    /// What is wrong with the tables, and with the files.
    pub(crate) fn check(&self) -> Result<Vec<String>> {
        let Open { database, files, .. } = self.get_open()?;
        let mut wrong = database.check().map_err(ours)?;
        wrong.extend(files.check(|_, _| ()).map_err(ours)?.problems);
        Ok(wrong)
    }

    /// Closes the database, and then its files.
    pub(crate) fn close(&self) {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(open);
    }
}

impl KeyValue for Rocks {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_open()?.database.get(family, key).map_err(ours)
    }

    fn get_would_read(&self, family: Family, key: &[u8]) -> bool {
        self.get_open().is_ok_and(|open| open.database.get_would_read(family, key))
    }

    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        self.get_open()?.database.pairs(family, from, to, most).map_err(ours)
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        let Open { database, files, room, .. } = self.get_open()?;
        let is_room = || room.is_there(changes, || files.space().free);
        if !is_room() {
            database.make_room().map_err(ours)?;
            if !is_room() {
                let sentence = "no space left for the metadata; delete something or use a larger drive";
                return Err(Error::refused(Code::NoSpace, &files.volume().name(), sentence));
            }
        }
        database.write(changes).map_err(ours)
    }

    fn has_room(&self, bytes: u64, _: u64, little: bool) -> bool {
        // A store that was closed says so by itself.
        let Ok(Open { files, spare, refused, reserve, apart, .. }) = self.get_open() else { return true };
        let space = || (files.space().free, files.space().total);
        let takes = || spare[usize::from(little)].takes(bytes, || spare::of_files(space(), reserve, (little, apart)));
        let takes = takes();
        refused.0.fetch_add(u64::from(!takes), Ordering::SeqCst);
        takes
    }

    fn make_room(&self) -> Result<()> {
        let Open { database, refused, .. } = self.get_open()?;
        let before = refused.0.load(Ordering::SeqCst);
        if refused.1.load(Ordering::SeqCst) < before {
            database.make_room().map_err(ours)?;
            refused.1.fetch_max(before, Ordering::SeqCst);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.get_open()?.database.sync().map_err(ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imbrex_bluefs::CreateOptions;
    use imbrex_device::Drive;
    use imbrex_emulator::{Config, Emulator};
    use std::sync::atomic::AtomicU32;

    /// Counts how often somebody waited for room.
    #[derive(Clone, Debug, Default)]
    struct Fake(Arc<AtomicU32>);

    struct Kept(Fake);

    impl RocksDb for Fake {
        fn load(&self) -> Result<()> {
            Ok(())
        }

        fn open(&self, _: BlueFs, _: DatabaseOptions) -> Result<Box<dyn Database>> {
            Ok(Box::new(Kept(self.clone())))
        }
    }

    impl Database for Kept {
        fn check(&self) -> Result<Vec<String>> {
            Ok(Vec::new())
        }
    }

    impl KeyValue for Kept {
        fn get(&self, _: Family, _: &[u8]) -> Result<Option<Vec<u8>>> {
            Ok(None)
        }

        fn pairs(&self, _: Family, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Pair>> {
            Ok(Vec::new())
        }

        fn write(&self, _: &[Change]) -> Result<()> {
            Ok(())
        }

        fn make_room(&self) -> Result<()> {
            self.0.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }
    }

    /// Each write counts once, also where something else has taken the room since somebody looked.
    #[test]
    fn nobody_is_refused_who_has_not_waited_for_room() {
        let zone = 256 << 10;
        let config =
            Config { capacity: 40 << 20, zone_size: zone, zone_capacity: zone, conventional: 2, ..Config::tiny() };
        for before in 0..12 {
            let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
            BlueFs::format(&drive, false).unwrap();
            let files = BlueFs::mount(drive, imbrex_bluefs::Options::default()).unwrap();
            let fake = Fake::default();
            let options =
                DatabaseOptions { memtable_bytes: 64 << 10, cache_bytes: 0, table_bytes: 0, look: false, create: true };
            let rocks = Rocks::open(&fake, files.clone(), options, false).unwrap();
            let write = [Change::Put(Family::Omap, vec![1; 8], vec![0; 1 << 20])];
            (0..before).for_each(|_| rocks.write(&write).unwrap());
            let other = files.create("/other", CreateOptions::default()).unwrap();
            while files.space().free > 3 << 19 {
                other.append(&[0; 4096]).unwrap();
            }
            for n in 1..4 {
                while rocks.write(&write).is_ok() {}
                assert_eq!(fake.0.load(Ordering::Relaxed), n, "refusals after {before} writes");
            }
            // Who only asks waits when he says so, and not where there was room.
            let waited = || {
                rocks.make_room().unwrap();
                fake.0.load(Ordering::Relaxed)
            };
            assert_eq!((waited(), rocks.has_room(8 << 20, 0, false), waited(), waited()), (3, false, 4, 4));
        }
    }
}
