//! The store as an engine of a volume: what the [shell](imbrex_zones::shell) needs of it.

use crate::core::Core;
use crate::options::Options;
use crate::{recover, work};
use imbrex_device::{Drive, Error, Result};
use imbrex_zones::shell::{Engine, Opened, Rest, Start, UriOption};
use imbrex_zones::{Exec, FormatOptions, TenantSpec, Volume, VolumeOptions};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// How long the maintenance thread rests where there is nothing to do, and after an error.
const IDLE: Duration = Duration::from_millis(100);
const FAILED: Duration = Duration::from_secs(1);

/// Figures of an open store, beside those that every engine has.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Of each level: tables, their bytes, and their entries.
    pub levels: Vec<(u64, u64, u64)>,
    /// Bytes of changes in memory.
    pub memory: u64,
    /// Bytes of the write-ahead log that an opening would read.
    pub log: u64,
}

/// An open store.
pub(crate) struct Store {
    pub core: Arc<Core>,
    damage: Vec<String>,
}

impl Store {
    fn new(core: Arc<Core>) -> Store {
        Store { damage: core.damage(), core }
    }

    pub fn figures_now(&self) -> Figures {
        let view = self.core.view();
        let sums = |tables: &[Arc<crate::core::file::TableFile>]| {
            tables
                .iter()
                .fold((0, 0, 0), |(n, bytes, entries), t| (n + 1, bytes + t.info.len, entries + t.info.entries))
        };
        let end = self.core.wal().map_or(0, |wal| wal.end());
        Figures {
            levels: view.levels.iter().map(|level| sums(&level.tables)).collect(),
            memory: view.memory().map(|memory| memory.bytes() as u64).sum(),
            log: end.saturating_sub(self.core.look(|manifest| manifest.front.0)),
        }
    }
}

impl Engine for Store {
    const TENANT: &'static str = recover::TENANT;
    const OPTIONS: &'static [UriOption<Options>] = &[
        ("memtable", |o, given| given.size(64 << 10..=64 << 30).map(|bytes| o.memtable_bytes = bytes as usize)),
        ("cache", |o, given| given.size(0..=1 << 50).map(|bytes| o.cache_bytes = bytes)),
        ("upper", |o, given| given.size(64 << 10..=1 << 50).map(|bytes| o.upper_bytes = bytes)),
    ];
    type Options = Options;
    type Error = Error;
    type Figures = Figures;
    type Chores = ();

    fn opened() -> &'static Opened<Store> {
        static OPENED: LazyLock<Opened<Store>> = LazyLock::new(Opened::default);
        &OPENED
    }

    fn volume_options(options: &mut Options) -> &mut VolumeOptions {
        &mut options.volume
    }

    fn look(options: &mut Options) {
        // Who only looks has nothing to gain from merges.
        options.volume.exec = Exec::Inline;
    }

    fn format(drive: &Drive) -> Result<()> {
        format(drive, None, false)
    }

    fn open(start: Start<Store>) -> Result<Store> {
        recover::open(&start.tenant, start.options).map(Store::new)
    }

    fn volume(&self) -> &Volume {
        self.core.tenant.volume()
    }

    fn damage(&self) -> &[String] {
        &self.damage
    }

    fn figures(&self) -> Figures {
        self.figures_now()
    }

    fn step(&self) -> Result<bool> {
        self.core.free();
        work::step(&self.core)
    }

    fn wants_thread(&self) -> bool {
        true
    }

    fn chore(&self, (): &mut ()) -> Option<Rest> {
        let time = match self.step() {
            Ok(true) => Duration::ZERO,
            Ok(false) => IDLE,
            Err(error) => {
                tracing::warn!(%error, "tables could not be made or merged");
                FAILED
            }
        };
        Some(Rest { time, until_rung: true })
    }

    fn close(&self) -> Result<()> {
        self.core.wal()?.sync()
    }
}

/// Formats a drive for a store alone.
pub(crate) fn format(drive: &Drive, uuid: Option<[u8; 16]>, force: bool) -> Result<()> {
    let tenants = vec![TenantSpec { name: recover::TENANT.into(), budget: recover::budget() }];
    Volume::format(drive, &FormatOptions { uuid, tenants, force })
}
