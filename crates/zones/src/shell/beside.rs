//! The volume of another drive, which an engine has beside its own: as the metadata of an object store.
//!
//! It is shared with other engines of the process as any volume is, and ends with the last of them. Who opens it has it looked at first, so that a drive which is not the
//! right one stays as it is: not even a damaged copy of its label is repaired.

use super::share::SharedVolume;
use crate::volume::{Exec, Volume, VolumeOptions};
use imbrex_device::{Drive, Result};
use imbrex_drives::counted::count;
use imbrex_drives::overlay::cover;

/// How a volume is opened beside an engine's own.
pub struct BesideOptions<'a> {
    /// The tenant that the engine will use there.
    pub tenant: &'a str,
    /// What the process knows the drive by ([`imbrex_drives::key`]); `None`: it is nobody else's.
    pub key: Option<&'a str>,
    /// The drive stays as it is.
    pub look: bool,
    /// How the volume is opened.
    pub volume: VolumeOptions,
}

/// See the module. To be dropped when whoever uses it has ended.
pub struct Beside {
    volume: Volume,
    /// Last, for when the volume is gone.
    _shared: Option<SharedVolume>,
}

impl Beside {
    /// Opens the volume of the drive that `drive` opens, unless this process has it open. `check` may refuse it; nothing has been written then.
    ///
    /// # Errors
    /// Those of the drive, of the volume and of `check`.
    pub fn open(
        options: BesideOptions<'_>,
        drive: impl FnOnce() -> Result<Drive>,
        check: &dyn Fn(&Volume) -> Result<()>,
    ) -> Result<Beside> {
        let BesideOptions { tenant, key, look, volume } = options;
        let open = || {
            let Drive { device, survivor } = drive()?;
            let (device, counters) = count(device);
            let drive = Drive { device, survivor };
            let drive = if look { cover(drive)? } else { drive };
            let looking = VolumeOptions { exec: Exec::Inline, ..volume.clone() };
            let alone = Drive { device: drive.device.clone(), survivor: None };
            check(&Volume::look(cover(alone)?, looking)?)?;
            let open = if look { Volume::look } else { Volume::open };
            Ok((open(drive, volume)?, counters))
        };
        let (volume, shared) = match key.filter(|_| !look) {
            None => (open()?.0, None),
            Some(key) => {
                let shared = SharedVolume::open(key, tenant, open)?;
                (shared.counted().0.clone(), Some(shared))
            }
        };
        check(&volume)?;
        Ok(Beside { volume, _shared: shared })
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The engine has ended; `clean`: all that it had there is on the drive.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn end(&self, clean: bool) -> Result<()> {
        self.volume.shutdown(clean)
    }
}
