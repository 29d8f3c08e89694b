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

use crate::registry::{Registry, Shared};
use crate::sync::lock;
use crate::volume::Volume;
use imbrex_device::{Error, Result};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

/// Engines of one volume.
#[derive(Default)]
pub(crate) struct Engines {
    /// How many use it now; 0, too, where it is not shared.
    now: u32,
    /// Those that have ever used it.
    ever: BTreeSet<String>,
    /// It is being shut down.
    over: bool,
    /// Tenants, by owner, whose engine has [begun](crate::Tenant::begin).
    pub(crate) begun: BTreeSet<u8>,
    /// How many have ended with everything on the drive.
    clean: usize,
    /// One that has ended has left something in memory.
    unclean: bool,
}

impl Engines {
    /// An engine has ended, of which nothing is left in memory where it is `clean`. Whether the volume ends now, with what is told: `None`
    /// where it ends with the last share.
    pub(crate) fn ended(&mut self, clean: bool) -> Option<bool> {
        if self.now > 0 {
            self.clean += usize::from(clean);
            self.unclean |= !clean;
            return None;
        }
        self.over = true;
        Some(clean)
    }
}

struct Handle {
    volume: Volume,
    along: Arc<dyn Any + Send + Sync>,
}

static OPEN: LazyLock<Registry<String, Handle>> = LazyLock::new(Registry::default);

/// An engine's share of a volume that others of the process may have, too. To be dropped when the engine has ended.
pub struct SharedVolume(Shared<String, Handle>);

impl SharedVolume {
    /// The process' volume of the drive that `key` stands for, for the engine `tenant`. `open` opens it where nobody has it, and says what else belongs to
    /// it, which the others get with it.
    ///
    /// # Errors
    /// Those of `open`; `Unusable` where this engine has used this volume before and another one still does.
    pub fn open<E: From<Error>>(
        key: &str,
        tenant: &str,
        open: impl FnOnce() -> Result<(Volume, Arc<dyn Any + Send + Sync>), E>,
    ) -> Result<SharedVolume, E> {
        let mut open = Some(open);
        loop {
            let shared = OPEN.get_or_open(key.to_owned(), || {
                let (volume, along) = match open.take() {
                    Some(open) => open()?,
                    None => return Err(Error::busy(&key.into(), Vec::new()).into()),
                };
                Ok::<_, E>(Handle { volume, along })
            })?;
            {
                let mut engines = lock(shared.volume.engines());
                if !engines.over {
                    if !engines.ever.insert(tenant.to_owned()) {
                        let sentence = format!(
                            "its {tenant} has been closed, and another engine of this process still has the drive; close that \
                             one, too, and then open both"
                        );
                        return Err(Error::unusable(&shared.volume.name(), sentence).into());
                    }
                    engines.now += 1;
                    drop(engines);
                    return Ok(SharedVolume(shared));
                }
            }
            // Its last engine is just letting go of it.
            drop(shared);
            std::thread::yield_now();
        }
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.0.volume
    }

    /// What was opened with it, where it is of this type.
    pub fn along<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.along.clone().downcast().ok()
    }
}

impl Drop for SharedVolume {
    fn drop(&mut self) {
        let clean = {
            let mut engines = lock(self.0.volume.engines());
            engines.now = engines.now.saturating_sub(1);
            if engines.now > 0 {
                return;
            }
            engines.over = true;
            !engines.unclean && engines.clean >= engines.begun.len()
        };
        if let Err(error) = self.0.volume.end(clean) {
            tracing::warn!(%error, "the volume's shared memory could not be given up");
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
