//! The file system as its users see it: [`BlueFs`] and the handles that it gives out.
//!
//! Paths are absolute, `/` separates, names are UTF-8 of 1 to 255 bytes. The table in `docs/durability.md` says what
//! survives what.

use crate::api::engine::{Mounted, Watch};
use crate::api::handles::{LockToken, RandomFile, Reader, Writer, truncate};
use crate::file::File;
use crate::file::core::{Core, MetaState};
use crate::file::durable::Syncing;
use crate::kind::FileKind;
use crate::meta::{MetaError, Place, Record, Serial};
use crate::mount::{MountReport, TENANT};
use crate::options::Options;
use crate::policy::{BUDGET, WAL_SPARE};
use crate::sync::lock;
use imbrex_device::{Code, Drive, Error, Result, ZoneId, ZoneState, report_all};
use imbrex_zones::conventional::UNIT;
use imbrex_zones::shell::{Opener, Shell};
use imbrex_zones::{FormatOptions, Tenant, TenantSpec, Volume};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// A mounted file system. Clones are the same one; it is unmounted when the last clone and the last handle are gone.
#[derive(Clone)]
pub struct BlueFs(Shell<Mounted>);

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Number of the file, never used twice on a volume.
    pub serial: u64,
    /// How its bytes are placed, or that it is a directory.
    pub kind: FileKind,
    /// Bytes, unwritten ones included.
    pub size: u64,
    /// Bytes that it takes of the drive.
    pub allocated: u64,
    /// Nanoseconds since 1970.
    pub modified: u64,
    /// Names that it has.
    pub links: u32,
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// What it stands for.
    pub attributes: Attributes,
}

/// Where a run of a file's bytes stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes; `u64::MAX`: still growing.
    pub len: u64,
    /// The sequential zone; `None`: conventional space.
    pub zone: Option<u32>,
    /// Byte address on the drive where it begins.
    pub address: u64,
}

/// Space, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All that files could ever take.
    pub total: u64,
    /// What new files may take now: one table of so many bytes is not refused while nothing else is written. Many files need more
    /// than their bytes: 4 KiB each for a header, up to a sixteenth of each zone that they fill, a zone each while they are written
    /// at the same time; and a log needs a block for each sync.
    pub free: u64,
    /// Of the conventional zones, for small files: all, and free.
    pub small_total: u64,
    /// See `small_total`.
    pub small_free: u64,
}

/// Settings for a database on this drive (BlueFS §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Bytes of a memtable.
    pub write_buffer_size: u64,
    /// Bytes of a table: 0.98 of a zone, because compactions overshoot by half a per cent.
    pub target_file_size: u64,
    /// Bytes that compactions read ahead.
    pub compaction_readahead_size: u64,
    /// Threads for flushes and compactions.
    pub background_jobs: u32,
}

/// How a new file is to be placed, where its name does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Bytes that it will have, if known: large files of unknown names go to zones of their own.
    pub expected_size: u64,
}

struct Tuned<F>(F);

impl<F: Fn(&mut Options)> Opener<Mounted> for Tuned<F> {
    fn tune(&mut self, options: &mut Options) {
        (self.0)(options);
    }
}

impl BlueFs {
    /// Formats a drive for this file system alone. See [`Volume::format`]. Fails for one that has only conventional zones.
    pub fn format(drive: &Drive, force: bool) -> Result<()> {
        let device = drive.device.as_ref();
        if report_all(device)?.iter().all(|zone| zone.state == ZoneState::Conventional) {
            let sentence = "all its zones are conventional, and files need sequential ones; have them serve as such: run `imbrex drive \
                            create --banded 'NAME?conventional=as-sequential'`, and name it so from then on";
            return Err(Error::unusable(&device.identity().name, sentence));
        }
        let tenants = vec![TenantSpec { name: TENANT.into(), budget: BUDGET }];
        Volume::format(drive, &FormatOptions { uuid: None, tenants, force })
    }

    /// Mounts a formatted drive.
    pub fn mount(drive: Drive, options: Options) -> Result<BlueFs> {
        let look = options.read_only;
        Shell::open_drive(drive, options, look, &mut ()).map(BlueFs)
    }

    /// Mounts what a URI names, as `imbrex:///data/drive.img?cache=2G`, or hands out the mount that this process has of it:
    /// see [`Shell::open_uri`].
    pub fn open_uri(uri: &str) -> Result<BlueFs> {
        Self::open_uri_with(uri, &[])
    }

    /// The same with options, as `("cache", "64M")`, that count where the URI does not give them.
    pub fn open_uri_with(uri: &str, more: &[(&str, &str)]) -> Result<BlueFs> {
        Shell::open_uri(uri, more, &mut ()).map(BlueFs)
    }

    /// The same with what a URI cannot ask for, which `tune` sets where the drive is not mounted yet.
    pub fn open_uri_tuned(uri: &str, tune: impl Fn(&mut Options)) -> Result<BlueFs> {
        Shell::open_uri(uri, &[], &mut Tuned(tune)).map(BlueFs)
    }

    /// Mounts the files of a tenant of a volume that is open already, whatever the tenant is called. Once: to mount them again the volume has to be opened anew.
    pub fn mount_tenant(tenant: Tenant, options: Options) -> Result<BlueFs> {
        Shell::open_tenant(tenant, options).map(BlueFs)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    /// What the mount found.
    pub fn mount_report(&self) -> &MountReport {
        &self.0.report
    }

    /// A look at its figures that does not keep it mounted.
    pub fn watch(&self) -> Watch {
        self.0.watch()
    }

    /// The volume below.
    pub fn volume(&self) -> &Volume {
        &self.core().volume
    }

    /// Does one piece of background work, where the volume has no threads. False: there was none.
    pub fn step(&self) -> Result<bool> {
        self.0.step()
    }

    // ---- files

    /// A new, empty file under this name for appending; what had the name before is deleted.
    pub fn create(&self, path: &str, options: CreateOptions) -> Result<Writer> {
        let core = self.core();
        let mut state = lock(&core.meta);
        let (parent, name) = core.parent(&state, path)?;
        let kind = self.kind_for(name.as_str(), options);
        let serial = state.meta.next_serial();
        let mut records = Vec::new();
        match state.meta.unlink_record(parent, &name) {
            Ok(record) => records.push(record),
            Err(MetaError::NotFound) => {}
            Err(why) => return Err(why.at(path)),
        }
        records.push(Record::Create { parent, name: name.clone(), serial, kind, time: core.now() });
        core.log(&mut state, path, &records)?;
        let file = core.file(&mut state, serial, parent, name.as_str())?;
        drop(state);
        lock(&file.writing).writers += 1;
        core.compact_if_large()?;
        Ok(Writer { file: Some(file), fs: self.clone() })
    }

    fn kind_for(&self, name: &str, options: CreateOptions) -> FileKind {
        let core = self.core();
        let kind = core.options.policy.kind(name, options.expected_size);
        // Small files go to frames when conventional space is used up.
        if kind == FileKind::Random && core.small.bytes().0 < 4 * UNIT { FileKind::Log } else { kind }
    }

    fn open_existing(&self, path: &str) -> Result<(Arc<File>, Serial)> {
        let core = self.core();
        let mut state = lock(&core.meta);
        let serial = state.meta.resolve(path).map_err(|e| e.at(path))?;
        if state.meta.inode(serial).is_some_and(|i| i.is_directory()) {
            return Err(MetaError::IsADirectory.at(path));
        }
        let (parent, name) = core.parent(&state, path)?;
        Ok((core.file(&mut state, serial, parent, name.as_str())?, serial))
    }

    /// An existing file for appending at its end; a new one where there is none.
    pub fn reopen(&self, path: &str) -> Result<Writer> {
        let (file, _) = match self.open_existing(path) {
            Err(why) if why.code() == Code::NotFound => return self.create(path, CreateOptions::default()),
            other => other?,
        };
        let (current, mut writing) = file.lock_current();
        if writing.writers == 0 {
            self.core().log_about(&current.state, &[Record::Reopen { serial: current.state.serial }])?;
        }
        writing.writers += 1;
        drop(writing);
        Ok(Writer { file: Some(file), fs: self.clone() })
    }

    /// A file for reading.
    pub fn open_read(&self, path: &str) -> Result<Reader> {
        let (file, _) = self.open_existing(path)?;
        Ok(Reader { file, ahead: Mutex::default(), pattern: AtomicU8::new(0), _fs: self.clone() })
    }

    /// A file for reading and writing at any offset; with `create`, a new one where there is none.
    pub fn open_random(&self, path: &str, create: bool) -> Result<RandomFile> {
        self.core().check_writable(path)?;
        let file = match self.open_existing(path) {
            Err(why) if why.code() == Code::NotFound && create => {
                let mut writer = self.create_random(path)?;
                writer
                    .file
                    .take()
                    .ok_or_else(|| Error::refused(Code::InvalidArgument, "", "a new file has no handle"))?
            }
            other => {
                let (file, _) = other?;
                let (current, mut writing) = file.lock_current();
                if !current.state.kind.is_sequential() && writing.writers == 0 {
                    self.core().log_about(&current.state, &[Record::Reopen { serial: current.state.serial }])?;
                }
                writing.writers += 1;
                drop(writing);
                file
            }
        };
        Ok(RandomFile { file: Some(file), ahead: Mutex::default(), _fs: self.clone() })
    }

    fn create_random(&self, path: &str) -> Result<Writer> {
        let core = self.core();
        let mut state = lock(&core.meta);
        let (parent, name) = core.parent(&state, path)?;
        let serial = state.meta.next_serial();
        let time = core.now();
        let create = Record::Create { parent, name: name.clone(), serial, kind: FileKind::Random, time };
        core.log(&mut state, path, &[create])?;
        let file = core.file(&mut state, serial, parent, name.as_str())?;
        drop(state);
        lock(&file.writing).writers += 1;
        Ok(Writer { file: Some(file), fs: self.clone() })
    }

    // ---- names

    /// Makes a directory; its parent must exist.
    pub fn mkdir(&self, path: &str) -> Result<()> {
        let core = self.core();
        core.log_named(path, |state, parent, name| {
            Ok(Record::Mkdir { parent, name, serial: state.meta.next_serial(), time: core.now() })
        })
        .map(drop)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, path: &str) -> Result<()> {
        let core = self.core();
        core.log_named(path, |state, parent, name| state.meta.rmdir_record(parent, &name).map_err(|e| e.at(path)))
            .map(drop)
    }

    /// Removes a name; the file goes with its last name and its last handle.
    pub fn unlink(&self, path: &str) -> Result<()> {
        self.core().unlink(path)
    }

    /// Renames a file or directory, atomically replacing a file, or an empty directory, of that name.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.core().rename(from, to)
    }

    /// Gives a file one more name.
    pub fn link(&self, from: &str, to: &str) -> Result<()> {
        let core = self.core();
        let mut state = lock(&core.meta);
        let serial = state.meta.resolve(from).map_err(|e| e.at(from))?;
        let (parent, name) = core.parent(&state, to)?;
        let lsn = core.log(&mut state, to, &[Record::Link { serial, parent, name }])?;
        if let Some(file) = core.open_file(&state, serial) {
            file.state.lsn.fetch_max(lsn, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Makes every change of names so far durable.
    pub fn sync_dir(&self, path: &str) -> Result<()> {
        let core = self.core();
        let state = lock(&core.meta);
        let serial = state.meta.resolve(path).map_err(|e| e.at(path))?;
        if !state.meta.inode(serial).is_some_and(|i| i.is_directory()) {
            return Err(MetaError::NotADirectory.at(path));
        }
        drop(state);
        core.unwritten.finish_kept()?;
        core.sync_journal()
    }

    /// What a path stands for.
    pub fn stat(&self, path: &str) -> Result<Attributes> {
        let core = self.core();
        let state = lock(&core.meta);
        let serial = state.meta.resolve(path).map_err(|e| e.at(path))?;
        attributes(core, &state, serial).ok_or_else(|| MetaError::NotFound.at(path))
    }

    /// Sets when a file or directory was changed, in nanoseconds since 1970. A later change counts again.
    pub fn set_modified(&self, path: &str, modified: u64) -> Result<()> {
        let core = self.core();
        let mut state = lock(&core.meta);
        let serial = state.meta.resolve(path).map_err(|e| e.at(path))?;
        if let Some(file) = core.open_file(&state, serial) {
            file.state.modified.store(modified, Ordering::Release);
        }
        core.log(&mut state, path, &[Record::Times { serial, modified }]).map(drop)
    }

    /// Where a file's bytes stand, in the order of the file.
    pub fn runs(&self, path: &str) -> Result<Vec<Run>> {
        let core = self.core();
        let state = lock(&core.meta);
        let serial = state.meta.resolve(path).map_err(|e| e.at(path))?;
        let inode = state.meta.inode(serial).ok_or_else(|| MetaError::NotFound.at(path))?;
        let geometry = core.volume.geometry();
        let run = |e: &crate::meta::Extent| {
            let (zone, address) = match e.place {
                Place::Conventional { addr } => (None, addr),
                Place::Raw { zone, offset, .. } | Place::Framed { zone, offset, .. } => {
                    (Some(zone), geometry.start(ZoneId(zone)) + offset)
                }
            };
            Run { logical: e.logical, len: e.len, zone, address }
        };
        Ok(inode.extents.iter().map(run).collect())
    }

    /// The names in a directory, sorted.
    pub fn list(&self, path: &str) -> Result<Vec<Entry>> {
        let core = self.core();
        let state = lock(&core.meta);
        let serial = state.meta.resolve(path).map_err(|e| e.at(path))?;
        let entries = state.meta.entries(serial).map_err(|e| e.at(path))?;
        let entry = |(name, serial): (&crate::meta::Name, Serial)| {
            Some(Entry { name: name.as_str().to_owned(), attributes: attributes(core, &state, serial)? })
        };
        Ok(entries.filter_map(entry).collect())
    }

    /// Cuts a file; it cannot be made longer this way.
    pub fn truncate(&self, path: &str, size: u64) -> Result<()> {
        self.core().check_writable(path)?;
        let (file, _) = self.open_existing(path)?;
        truncate(&file, size)
    }

    /// Makes the files of a directory the caller's alone, by the name of its lock file, within this process (other
    /// processes cannot mount the drive at all). The file is made where there is none.
    pub fn lock(&self, path: &str) -> Result<LockToken> {
        if let Err(why) = self.stat(path) {
            if why.code() != Code::NotFound {
                return Err(why);
            }
            self.create(path, CreateOptions::default())?.close()?;
        }
        let serial = self.stat(path)?.serial;
        if !lock(&self.core().locks).insert(serial) {
            // RocksDB's own tests look for "lock ".
            let what = "lock held by another user of this process; close the database that has it open";
            return Err(Error::refused(Code::Locked, path, what));
        }
        Ok(LockToken { fs: self.clone(), serial })
    }

    /// How much room there is.
    pub fn space(&self) -> Space {
        space(self.core())
    }

    /// Settings that suit the drive.
    pub fn advise(&self) -> Advice {
        let core = self.core();
        Advice {
            write_buffer_size: core.zone_capacity.min(256 << 20),
            target_file_size: (core.zone_capacity - core.front) / 100 * 98,
            compaction_readahead_size: 2 << 20,
            background_jobs: 4,
        }
    }

    /// Makes everything that was written so far durable.
    pub fn sync_all(&self) -> Result<()> {
        let core = self.core();
        let mut files: Vec<Arc<File>> = core.open_files().into_iter().chain(core.open_unsynced()?).collect();
        // In the same order in every run.
        files.sort_by_key(|file| file.state.serial);
        let mut syncing: Vec<Syncing> = files.iter().map(Syncing::begin).collect();
        // Side by side, so that one flush is for all of them.
        while !syncing.is_empty() {
            let mut next = Vec::new();
            for mut one in syncing {
                if one.step()? {
                    next.push(one);
                }
            }
            syncing = next;
        }
        core.unwritten.finish_kept()?;
        core.sync_journal()
    }
}

pub(crate) fn space(core: &Core) -> Space {
    let counts = core.tenant.counts();
    let usable = core.zone_capacity - core.front;
    let cleanable = core.cleanable();
    let (small_free, small_total) = core.small.bytes();
    let kept = u64::from(counts.reserve + WAL_SPARE);
    let zones = u64::from(counts.leased) + u64::from(counts.free);
    let total = zones.saturating_sub(kept + core.journal.zone_count()) * usable;
    // One zone for what is left over: where buffers do not fit at the end of the last one, and what is moved fills one in part. And what
    // is missing of the zones that are kept is filled up first.
    let not = (kept + u64::from(counts.reservations) + 1) * usable;
    Space {
        total,
        free: (u64::from(counts.free) * usable + cleanable).saturating_sub(not).min(total),
        small_total,
        small_free,
    }
}

pub(crate) fn attributes(core: &Core, state: &MetaState, serial: Serial) -> Option<Attributes> {
    let inode = state.meta.inode(serial)?;
    let open = core.open_file(state, serial);
    let size = match &open {
        Some(file) => file.state.size.load(Ordering::Acquire),
        None => inode.known_size(),
    };
    let capacity = core.zone_capacity;
    let mut zones = std::collections::BTreeSet::new();
    let mut conventional = 0;
    for extent in &inode.extents {
        match extent.place.zone() {
            Some((zone, _)) => drop(zones.insert(zone)),
            None => conventional += extent.len,
        }
    }
    Some(Attributes {
        serial,
        kind: inode.kind,
        size,
        allocated: zones.len() as u64 * capacity + conventional,
        modified: open.map_or(inode.modified, |f| f.state.modified.load(Ordering::Acquire).max(inode.modified)),
        links: inode.nlink,
    })
}

impl BlueFs {
    /// Does at once what is done otherwise while nobody uses the drive: empties zones into the room behind the tables in others,
    /// within the same bounds. Whoever writes meanwhile is not disturbed.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn pack(&self) -> Result<crate::clean::idle_pack::Packed> {
        self.core().pack(|| true)
    }
}
