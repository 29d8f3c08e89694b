//! The file system as an engine of a volume: what the [shell](imbrex_zones::shell) needs of it.

use crate::api::fs::{BlueFs, Space, space};
use crate::clean::idle_pack::IdleWatch;
use crate::file::core::Core;
use crate::meta::{Record, Serial};
use crate::mount::{MountReport, TENANT, mount};
use crate::options::{OF_URI, Options};
use crate::sync::lock;
use imbrex_device::{Cause, Drive, Error, Result, Tag};
use imbrex_zones::shell::{Engine, Opened, Rest, Start, UriOption, names};
use imbrex_zones::{Volume, VolumeOptions};
use std::sync::{Arc, LazyLock};

/// A mounted file system.
pub(crate) struct Mounted {
    pub(crate) core: Arc<Core>,
    pub(crate) report: MountReport,
}

/// Options of a URI that bluefs understands, beside the drive's.
pub fn uri_options() -> Vec<&'static str> {
    names::<Mounted>()
}

/// Figures of a mounted file system, beside those that every engine has. Bytes where not said otherwise.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Room.
    pub space: Space,
    /// Pages that were found in the cache, and those that were not.
    pub cache_hits: u64,
    /// See `cache_hits`.
    pub cache_misses: u64,
    /// Bytes in the cache.
    pub cache_used: u64,
    /// Bytes that it may hold.
    pub cache_capacity: u64,
    /// Bytes of the journal's records.
    pub journal: u64,
    /// Bytes of memory that outlives the process in which appended bytes stand that are not written yet.
    pub survivor_used: u64,
    /// All of that memory.
    pub survivor_capacity: u64,
    /// Zones that hold bytes of files, or the journal.
    pub zones_used: u64,
    /// Bytes of all files, as far as the journal knows: of an open one what was synced.
    pub live: u64,
    /// Files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
}

/// Figures of drive and file system.
pub type Metrics = imbrex_zones::shell::Metrics<Figures>;
/// Looks at a file system without keeping it mounted.
pub type Watch = imbrex_zones::shell::Watch<Figures>;

impl Engine for Mounted {
    const TENANT: &'static str = TENANT;
    const OPTIONS: &'static [UriOption<Options>] = OF_URI;
    type Options = Options;
    type Error = Error;
    type Figures = Figures;
    type Chores = IdleWatch;

    fn opened() -> &'static Opened<Mounted> {
        static OPENED: LazyLock<Opened<Mounted>> = LazyLock::new(Opened::default);
        &OPENED
    }

    fn volume_options(options: &mut Options) -> &mut VolumeOptions {
        &mut options.volume
    }

    fn look(options: &mut Options) {
        options.read_only = true;
    }

    fn format(drive: &Drive) -> Result<()> {
        BlueFs::format(drive, false)
    }

    fn open(start: Start<Mounted>) -> Result<Mounted> {
        let Start { tenant, options, counters, maintenance } = start;
        mount(tenant, options, counters, maintenance).map(|(core, report)| Mounted { core, report })
    }

    fn volume(&self) -> &Volume {
        &self.core.volume
    }

    fn damage(&self) -> &[String] {
        &self.report.damage
    }

    fn figures(&self) -> Figures {
        let core = &self.core;
        let (journal, inodes, live) = {
            let state = lock(&core.meta);
            // Of open files what the journal knows: a look takes no handle of a file.
            let live = state.meta.files().map(|inode| inode.known_size()).sum();
            (core.journal.len(), state.meta.counts(), live)
        };
        let (survivor_used, survivor_capacity) = core.volume.unwritten();
        Figures {
            space: space(core),
            cache_hits: core.cache.hits(),
            cache_misses: core.cache.misses(),
            cache_used: core.cache.used_bytes(),
            cache_capacity: core.cache.capacity(),
            journal,
            survivor_used,
            survivor_capacity,
            zones_used: u64::from(core.tenant.counts().leased),
            live,
            files: inodes.files as u64,
            directories: inodes.directories as u64,
        }
    }

    fn wants_thread(&self) -> bool {
        let options = &self.core.options;
        options.idle_pack.is_some() && !options.read_only
    }

    fn chore(&self, idle: &mut IdleWatch) -> Option<Rest> {
        self.core.idle_chore(idle)
    }

    /// Writes and seals everything; what fails is found again by the next mount.
    fn close(&self) -> Result<()> {
        let core = &self.core;
        core.ahead.stop();
        if core.options.read_only {
            return Ok(());
        }
        let mut failed = None;
        for file in core.open_files() {
            let mut writing = lock(&file.writing);
            if let Err(why) = file.finish(&mut writing) {
                failed.get_or_insert(why);
            }
        }
        core.unwritten.forget();
        if let Some(why) = failed {
            // All the rest is safe; what was not written stays in memory for the next mount, as after a crash.
            core.sync_journal()?;
            return Err(why);
        }
        core.volume.sync(Tag::new(Cause::Small))?;
        let mut state = lock(&core.meta);
        let open: Vec<(Serial, u64)> =
            state.meta.files().filter(|i| !i.closed).map(|i| (i.serial, i.known_size())).collect();
        for (serial, size) in open {
            let time = state.meta.inode(serial).map_or(0, |i| i.modified);
            core.log(&mut state, "unmount", &[Record::Seal { serial, size, time }])?;
        }
        if core.has_recorded() {
            // Flushed above: whoever mounts a copy need not look for the ends of files.
            core.log(&mut state, "unmount", &[Record::Settled])?;
        }
        drop(state);
        core.sync_journal()?;
        core.volume.quiesce()
    }
}
