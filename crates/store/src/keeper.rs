//! Who keeps the metadata of a store: the key-value store, or RocksDB. That is decided when the drive is formatted: each has a tenant of its own, and the label says which
//! of them is there. So nobody opens a drive with the other one, which would find nothing.

use crate::metadata::Metadata;
use crate::rocksdb::{DatabaseOptions, Rocks, provided};
use imbrex_bluefs::BlueFs;
use imbrex_bluestore::{KeyValue, NAME};
use imbrex_device::{Code, Error, Geometry, Result, ZoneState};
use imbrex_kv::Kv;
use imbrex_zones::{Budget, TenantSpec, Volume, VolumeOptions};
use std::sync::Arc;

/// What keeps the metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataIn {
    /// `imbrex-kv`.
    #[default]
    Kv,
    /// RocksDB, with its files in a bluefs.
    RocksDb,
}

/// Names of the tenants. They are not the usual ones of `imbrex-kv` and bluefs, so that nobody takes them for a user's pairs or files.
const NAMES: [(MetadataIn, &str, &str); 2] =
    [(MetadataIn::Kv, "metadata", "kv"), (MetadataIn::RocksDb, "metadata-files", "rocksdb")];

/// Bytes of the cache of files: RocksDB has a cache of its own, and only reading ahead needs this one.
const AHEAD: u64 = 16 << 20;

impl MetadataIn {
    /// Words for an option, and what they stand for.
    pub(crate) const WORDS: [(&str, MetadataIn); 2] = [(NAMES[0].2, NAMES[0].0), (NAMES[1].2, NAMES[1].0)];

    pub(crate) fn tenant(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Whether this is the name of a tenant with metadata.
    pub(crate) fn is_tenant(name: &str) -> bool {
        NAMES.iter().any(|(_, tenant, _)| *tenant == name)
    }

    /// The word for it in a URI.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].2
    }

    /// What the label says for it.
    pub(crate) fn spec(self, geometry: &Geometry) -> TenantSpec {
        let budget = match self {
            MetadataIn::Kv => imbrex_kv::budget(geometry),
            MetadataIn::RocksDb => files_budget(geometry.zones),
        };
        TenantSpec { name: self.tenant().into(), budget }
    }

    /// Whether it can be had, before anything is done to a drive.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            MetadataIn::Kv => Ok(()),
            MetadataIn::RocksDb => provided()?.load(),
        }
    }

    /// What this drive has, which is what was asked for, if anything was.
    fn of(volume: &Volume, asked: Option<MetadataIn>) -> Result<MetadataIn> {
        let tenants = volume.table().tenants;
        let is_there = |which: MetadataIn| tenants.iter().any(|tenant| tenant.name == which.tenant());
        let there: Vec<MetadataIn> = NAMES.into_iter().map(|name| name.0).filter(|which| is_there(*which)).collect();
        match (asked, &there[..]) {
            (Some(asked), [found]) if asked != *found => {
                let sentence = format!(
                    "its metadata are in {}, since it was formatted so; leave metadata={} out, or format the drive anew",
                    found.name(),
                    asked.name()
                );
                Err(Error::refused(Code::InvalidArgument, &volume.name(), sentence))
            }
            (None, [found, ..]) => Ok(*found),
            // Where there are none the volume says what it has.
            (asked, _) => Ok(asked.unwrap_or_default()),
        }
    }
}

/// Zones that RocksDB needs on a drive of so many. Its files' journal has two, and keeps four. What is in memory takes its room twice; it is a 32nd of the drive at most. A log and the
/// next one have one each. A compaction has the tables that it reads and those that it writes. On a larger drive RocksDB gets a 64th, so that metadata can grow on a full one. Of active
/// zones a log, tables of each lifetime, the journal and whatever begins next have one each.
fn files_budget(zones: u32) -> Budget {
    Budget { slots: 6, ..imbrex_bluefs::BUDGET.at_least((zones / 64).clamp(LEAST, MOST)) }
}

const LEAST: u32 = 20;
const MOST: u32 = 64;

/// So much of a drive is the most that stands in memory: a 32nd, as with `imbrex-kv`.
const PART: u64 = 32;

/// The open metadata.
pub(crate) enum Keeper {
    Kv(Metadata),
    RocksDb(Rocks),
}

/// How they are opened.
pub(crate) struct KeeperOptions {
    pub(crate) asked: Option<MetadataIn>,
    /// RocksDB takes its sizes from here, too.
    pub(crate) kv: imbrex_kv::Options,
    pub(crate) look: bool,
    /// The store was open before, so it has metadata.
    pub(crate) made: bool,
    /// The volume of the objects, which may be on another drive.
    pub(crate) objects: Volume,
}

impl Keeper {
    /// Opens what a drive has. Sentences of damage that the opening found.
    pub(crate) fn open(volume: &Volume, options: KeeperOptions) -> Result<(Keeper, Vec<String>)> {
        let KeeperOptions { asked, kv, look, made, objects } = options;
        let apart = objects.uuid() != volume.uuid();
        let which = MetadataIn::of(volume, asked)?;
        which.check()?;
        let tenant = volume.tenant(which.tenant())?;
        match which {
            MetadataIn::Kv => {
                let kv = Kv::open_tenant(tenant, kv)?;
                let damage = kv.damage();
                Ok((Keeper::Kv(Metadata::new(kv, apart)), damage))
            }
            MetadataIn::RocksDb => {
                let files = BlueFs::mount_tenant(tenant, files_options(volume, &kv))?;
                let damage = files.mount_report().damage.clone();
                // A memory that is full must become tables of a part of the drive.
                let most = u64::from(volume.geometry().zones) * volume.least_capacity() / PART;
                let options = DatabaseOptions {
                    memtable_bytes: (kv.memtable_bytes as u64).min(most),
                    cache_bytes: kv.cache_bytes,
                    table_bytes: 0,
                    look,
                    create: is_new(made, &damage, zones_of_objects(&objects)),
                };
                Ok((Keeper::RocksDb(Rocks::open(provided()?.as_ref(), files, options, apart)?), damage))
            }
        }
    }

    pub(crate) fn key_value(&self) -> Arc<dyn KeyValue> {
        match self {
            Keeper::Kv(metadata) => Arc::new(metadata.clone()),
            Keeper::RocksDb(rocks) => Arc::new(rocks.clone()),
        }
    }

    pub(crate) fn which(&self) -> MetadataIn {
        match self {
            Keeper::Kv(_) => MetadataIn::Kv,
            Keeper::RocksDb(_) => MetadataIn::RocksDb,
        }
    }

    pub(crate) fn check(&self) -> Result<Vec<String>> {
        match self {
            Keeper::Kv(metadata) => metadata.kv()?.check(),
            Keeper::RocksDb(rocks) => rocks.check(),
        }
    }

    pub(crate) fn close(&self) {
        match self {
            Keeper::Kv(metadata) => metadata.close(),
            Keeper::RocksDb(rocks) => rocks.close(),
        }
    }
}

/// Whether there can be no database yet. A first opening that was cut off may have left files; the second one makes it then. But where something was lost, what looks new
/// may be the rest of a store.
fn is_new(made: bool, damage: &[String], zones: usize) -> bool {
    !made && damage.is_empty() && zones == 0
}

/// How many zones have objects. The first is leased when the database is there. Conventional ones are the first tenant's from the formatting on, which is the
/// objects' where the metadata are on another drive.
fn zones_of_objects(volume: &Volume) -> usize {
    let table = volume.table();
    let objects = table.tenants.iter().position(|tenant| tenant.name == NAME);
    let zones = table.zones.iter().zip(volume.report_at_open());
    let sequential = zones.filter(|(_, reported)| reported.state != ZoneState::Conventional);
    sequential.filter(|(zone, _)| zone.tenant.is_some() && zone.tenant == objects).count()
}

/// How the files of RocksDB are mounted: with a journal that a small drive has room for.
fn files_options(volume: &Volume, kv: &imbrex_kv::Options) -> imbrex_bluefs::Options {
    let usual = imbrex_bluefs::Options::default();
    let volume_options: VolumeOptions = kv.volume.clone();
    imbrex_bluefs::Options {
        cache_bytes: kv.cache_bytes.min(AHEAD),
        journal_bytes: usual.journal_bytes.min(volume.geometry().zone_size),
        volume: volume_options,
        ..usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_made_only_where_nothing_says_that_there_was_one() {
        assert!(is_new(false, &[], 0));
        assert!(!is_new(true, &[], 0) && !is_new(false, &["a record is lost".into()], 0) && !is_new(false, &[], 1));
    }
}
