//! Salvage of an object store: what [`imbrex_kv::Salvage`] finds of its metadata, and what the headers of runs tell.

use crate::keeper::MetadataIn;
use crate::metadata::Metadata;
use crate::pair::{self, Told};
use imbrex_bluestore::salvage::{self, Choice, Salvaged, Walked};
use imbrex_bluestore::{Family, KeyValue, Taker};
use imbrex_device::{Drive, Error, Result};
use imbrex_emulator::{Config, Emulator, remove_image};
use imbrex_kv::{FoundSpace, Kv, Pairs};
use imbrex_zones::{Exec, VolumeOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Zones of the drive in a file that has the index.
const ZONE: u64 = 16 << 20;
/// It has as many bytes as this part of the drive: records of blocks of 4 KiB take about so many. The file has holes.
const PART: u64 = 16;

/// A key-value store for the index of a salvage, in a file that is gone when this is dropped, or in memory.
pub struct Scratch {
    kv: Metadata,
    path: Option<PathBuf>,
}

impl Scratch {
    fn of(emulator: Emulator, path: Option<PathBuf>) -> Result<Scratch> {
        let drive = Drive { device: Arc::new(emulator), survivor: None };
        Kv::format(&drive, None, false)?;
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let kv =
            Kv::open(drive, imbrex_kv::Options { volume, cache_bytes: 32 << 20, ..imbrex_kv::Options::default() })?;
        Ok(Scratch { kv: Metadata::new(kv, true), path })
    }

    fn config(drive: &Drive) -> Config {
        let geometry = drive.device.geometry();
        let all = u64::from(geometry.zones) * geometry.zone_size;
        let capacity = (all / PART).max(1 << 30).next_multiple_of(ZONE);
        Config { zone_size: ZONE, zone_capacity: ZONE, capacity, conventional: 2, model: None, ..Config::tiny() }
    }

    /// For the salvage of this drive, in a new file of this path, which need not have room for all of it.
    ///
    /// # Errors
    /// Those of the host.
    pub fn in_file(drive: &Drive, path: &Path) -> Result<Scratch> {
        Scratch::of(Emulator::create(path, &Scratch::config(drive), false)?, Some(path.to_owned()))
    }

    /// For the salvage of a small drive.
    ///
    /// # Errors
    /// There is no memory.
    pub fn in_memory(drive: &Drive) -> Result<Scratch> {
        Scratch::of(Emulator::memory(&Scratch::config(drive))?, None)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.kv.close();
        if let Some(path) = &self.path
            && let Err(error) = remove_image(path)
        {
            tracing::warn!(%error, path = %path.display(), "the index of a salvage is left behind");
        }
    }
}

/// What there is to salvage on a drive. The drive stays as it is.
pub struct Salvage {
    inner: salvage::Salvage,
    whole: bool,
    notes: Vec<String>,
    // Behind what uses it.
    _scratch: Scratch,
}

/// Pairs of the metadata on their way into the index.
struct Adding<'a> {
    to: &'a mut salvage::Salvage,
    failed: Option<Error>,
    /// Pairs of no family.
    strange: u64,
    /// They come again in another order, and all that came stays: each pair is what it was.
    again: bool,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Pairs for Adding<'_> {
    fn pair(&mut self, _: &FoundSpace, key: &[u8], value: &[u8]) -> io::Result<()> {
        let family = key.split_first().and_then(|(letter, rest)| {
            let all = Family::ALL.into_iter();
            all.into_iter().find(|family| family.name().as_bytes() == [*letter]).map(|family| (family, rest))
        });
        let Some((family, key)) = family else {
            self.strange += 1;
            return Ok(());
        };
        self.to.add(family, key, value).map_err(|error| {
            self.failed = Some(error);
            io::Error::other("the index")
        })
    }

    fn again(&mut self) -> io::Result<()> {
        self.again = true;
        Ok(())
    }

    fn progress(&mut self, done: u64, all: u64) -> io::Result<()> {
        (self.progress)(done, all);
        Ok(())
    }
}

/// Finds the first record of a store, and no other.
#[derive(Default)]
struct First(Option<[u8; 16]>);

impl Pairs for First {
    fn pair(&mut self, _: &FoundSpace, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key == [Family::Super.name().as_bytes(), b"all"].concat() {
            self.0 = salvage::volume_of(value);
            return Err(io::Error::other("found"));
        }
        Ok(())
    }

    fn again(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// The metadata that a salvage has found, and whose they are.
struct FoundMetadata {
    found: imbrex_kv::Salvage,
    of: Option<[u8; 16]>,
}

/// Looks for metadata where they are to be: on the drive of the objects, or on the other one.
fn metadata_of(
    (drive, told): (&Drive, Option<&Told>),
    sorting: &mut dyn FnMut() -> io::Result<std::fs::File>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FoundMetadata> {
    let found = imbrex_kv::Salvage::search_tenant(drive, MetadataIn::Kv.tenant(), progress)?;
    let of = match told {
        None => Some(found.volume()),
        Some(told) if told.of.is_some() => told.of,
        // The label is lost: the first record of the store says it, too.
        Some(_) => {
            let mut first = First::default();
            _ = found.read(sorting, &mut first);
            first.0
        }
    };
    Ok(FoundMetadata { found, of })
}

impl Salvage {
    /// Looks at a drive, which may be opened for reading only: first at its metadata, then at the headers of all runs. `volume`: UUID of a volume that is meant, instead of the one that was written to last. `progress` gets
    /// a number, and of how many.
    ///
    /// # Errors
    /// `Unusable` where nothing of an object store is on the drive; those of the host. What cannot be read is no error.
    pub fn search(
        drive: &Drive,
        scratch: Scratch,
        volume: Option<[u8; 16]>,
        sorting: &mut dyn FnMut() -> io::Result<std::fs::File>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Salvage> {
        Salvage::search_apart((drive, None), scratch, volume, sorting, progress)
    }

    /// The same where `db` is the drive with its metadata.
    ///
    /// # Errors
    /// Those of [`Salvage::search`].
    pub fn search_apart(
        (drive, db): (&Drive, Option<&Drive>),
        scratch: Scratch,
        volume: Option<[u8; 16]>,
        sorting: &mut dyn FnMut() -> io::Result<std::fs::File>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Salvage> {
        let kv: Arc<dyn KeyValue> = Arc::new(scratch.kv.clone());
        let mut inner = salvage::Salvage::walk(drive.device.clone(), kv, volume, progress)?;
        let (mut notes, mut whole, mut pairs) = (Vec::new(), false, 0);
        let told = db.map(|db| pair::told(drive, db));
        let of_label = told.as_ref().and_then(|told| told.objects);
        let wanted = volume.or((inner.walked().runs > 0).then_some(inner.walked().volume)).or(of_label);
        match metadata_of((db.unwrap_or(drive), told.as_ref()), sorting, progress) {
            Ok(FoundMetadata { of: None, .. }) => {
                notes.push("Nothing tells whose metadata are on the other drive, and they are left out.".into());
            }
            Ok(FoundMetadata { of, .. }) if wanted.is_some() && wanted != of => {
                notes.push("The metadata are of another volume, and are left out.".into());
            }
            Ok(FoundMetadata { found, .. }) => {
                notes.extend(found.notes());
                let mut adding = Adding { to: &mut inner, failed: None, strange: 0, again: false, progress };
                let read = found.read(sorting, &mut adding);
                let Adding { failed, strange, again, .. } = adding;
                if let Some(error) = failed {
                    return Err(error);
                }
                let all = read?;
                let is_all = all.notes.is_empty() && all.damaged_tables == 0;
                let apart = told.and_then(|told| told.apart);
                whole = found.is_whole() && is_all && strange == 0 && !again && apart.is_none();
                notes.extend(all.notes);
                notes.extend(apart.map(|apart| format!("The drives do not go together: {apart}.")));
                pairs = all.pairs;
            }
            Err(error) => notes.push(match pair::elsewhere(drive).filter(|_| db.is_none()) {
                Some(volume) => format!("The metadata are on another drive (volume {volume}); name it with --db."),
                None => format!("The metadata cannot be read ({error})."),
            }),
        }
        if !inner.is_sensible() {
            whole = false;
            notes.push("The metadata have records of objects that make no sense.".into());
        }
        let is_in_place = inner.walked().in_place > 0 && inner.walked().runs == 0;
        if inner.walked().runs == 0 && pairs == 0 && !whole {
            let why = notes.join(" ");
            let sentence = match is_in_place {
                true => format!(
                    "has an object store in place, and only its metadata tell where the bytes are ({why}); nothing can be salvaged"
                ),
                false => {
                    format!("has no object store, as far as anything tells ({why}); check that it is the right drive")
                }
            };
            return Err(Error::unusable(&drive.device.identity().name, sentence));
        }
        let walked = inner.walked();
        for (many, what) in [
            (walked.damaged_zones, "headers of zones are damaged; their runs were found without them"),
            (walked.damaged_runs, "headers of runs are damaged; what only they told is lost"),
            (walked.others.len() as u64, "older volumes have runs on the drive, which are left out"),
        ] {
            if many > 0 {
                notes.push(format!("{many} {what}."));
            }
        }
        if !whole && is_in_place {
            notes.push(
                "The store is in place, and only its metadata tell where the bytes are: what they have lost is lost."
                    .into(),
            );
        } else if !whole {
            notes.push(
                "The metadata are not whole: what was deleted or overwritten may come back, and so may the last writes before a crash.".into(),
            );
        }
        Ok(Salvage { inner, whole, notes, _scratch: scratch })
    }

    /// Whether the metadata are whole, so that nothing deleted comes back.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Sentences about what was found.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the walk over the runs has seen.
    pub fn walked(&self) -> &Walked {
        self.inner.walked()
    }

    /// Hands over all objects, once. `deleted`: also those that whole metadata do not know any more, as far as they are there.
    ///
    /// # Errors
    /// Those of `to` and of the host. What the drive cannot read is none.
    pub fn read(mut self, deleted: bool, to: &mut dyn Taker) -> Result<Salvaged> {
        self.inner.read(Choice { whole: self.whole, deleted }, to)
    }
}
