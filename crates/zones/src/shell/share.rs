//! A drive's volume for all engines of a process: each opens the drive by its name for itself, and a drive is exclusive.
//!
//! Who asks first opens the volume, with its options; an engine that asks while it is open gets the same one. Each has its own tenant, and
//! has it once: what the volume knows of a tenant's zones is of the moment when it was opened, so an engine that has ended can
//! begin again only when the volume has been let go of by all.
//!
//! Invariants: the volume's threads and its shared memory end when the last share is dropped, whoever that is ([`Volume::shutdown`] only notes
//! that an engine has ended); an engine that comes meanwhile waits, and opens it anew. The shared memory is given up only if every
//! engine that began has ended with all its bytes on the drive.
//!
//! Source: DESIGN §5 (one volume, one pool, one scheduler per drive).

use super::registry::{Registry, Shared};
use crate::sync::lock;
use crate::volume::Volume;
use imbrex_device::{Error, Result};
use imbrex_drives::counted::Counters;
use std::sync::{Arc, LazyLock};

/// An open volume, and what is counted of its drive.
pub(super) type Counted = (Volume, Arc<Counters>);

static OPEN: LazyLock<Registry<String, Counted>> = LazyLock::new(Registry::default);

/// An engine's share of a volume that others of the process may have, too. To be dropped when the engine has ended.
pub(super) struct SharedVolume(Shared<String, Counted>);

impl SharedVolume {
    /// The process' volume of the drive that `key` stands for, for the engine `tenant`. `open` opens it where nobody has it.
    ///
    /// # Errors
    /// Those of `open`; `Unusable` where this engine has used this volume before and another one still does.
    pub(super) fn open<E: From<Error>>(
        key: &str,
        tenant: &str,
        open: impl FnOnce() -> Result<Counted, E>,
    ) -> Result<SharedVolume, E> {
        let mut open = Some(open);
        loop {
            let shared = OPEN.get_or_open(key.to_owned(), || match open.take() {
                Some(open) => open(),
                None => Err(Error::busy(&key.into(), Vec::new()).into()),
            })?;
            let joined = lock(shared.0.engines()).join(tenant);
            match joined {
                Some(true) => return Ok(SharedVolume(shared)),
                Some(false) => {
                    let sentence = format!(
                        "its {tenant} has been closed, and another engine of this process still has the drive; close that \
                         one, too, and then open both"
                    );
                    return Err(Error::unusable(&shared.0.name(), sentence).into());
                }
                None => drop(shared),
            }
            std::thread::yield_now();
        }
    }

    /// The volume, and what is counted of its drive.
    pub(super) fn counted(&self) -> &Counted {
        &self.0
    }
}

impl Drop for SharedVolume {
    fn drop(&mut self) {
        let (volume, _) = self.counted();
        let ended = lock(volume.engines()).leave();
        if let Some(Err(error)) = ended.map(|clean| volume.end(clean)) {
            tracing::warn!(%error, "the volume's shared memory could not be given up");
        }
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;
