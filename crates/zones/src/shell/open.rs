//! Opening an engine: by a URI, on a drive, on a volume that is open.
//!
//! 1. A process has an engine of a drive once: whoever names the drive again gets the open one.
//! 2. The drive is opened, and its commands are counted from the first one on. Who only looks gets a cover over it: what would be
//!    repaired is repaired in memory and forgotten.
//! 3. A drive in memory is formatted; so is, where that is asked for, one that is not.
//! 4. The volume is opened, or shared with another engine of the process.
//! 5. The engine is opened. Where one of these steps fails, the drive is given back.

use super::options::{Asked, ask};
use super::registry::{Registry, Shared};
use super::share::{Counted, SharedVolume};
use super::watch::Watch;
use super::{Engine, Maintenance, Opener, Shell, Start};
use crate::label::LabelError;
use crate::volume::{Tenant, Volume};
use imbrex_device::{Drive, Error, Fault, Holder, ZonedDevice};
use imbrex_drives::counted::count;
use imbrex_drives::{Locator, overlay};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a process has open of one kind of engine, by drive.
pub struct Opened<E: Engine>(Registry<String, Running<E>>);

impl<E: Engine> Default for Opened<E> {
    fn default() -> Self {
        Opened(Registry::default())
    }
}

/// An open engine, which closes when its last [`Shell`] is gone.
pub(super) struct Running<E: Engine> {
    pub(super) engine: Arc<E>,
    pub(super) watch: Watch<E::Figures>,
    maintenance: Arc<Maintenance>,
    /// The volume ends with the engine, or with the last one that shares it.
    ends_volume: bool,
    /// Last, for when the engine is gone.
    _shared: Option<SharedVolume>,
}

impl<E: Engine> Running<E> {
    fn new(start: Start<E>, shared: Option<SharedVolume>, opener: &mut dyn Opener<E>) -> Result<Self, E::Error> {
        let (counters, maintenance) = (start.counters.clone(), start.maintenance.clone());
        let engine = Arc::new(opener.open(start)?);
        if engine.wants_thread() && engine.volume().is_threaded() {
            maintenance.start(&engine);
        }
        let watch = Watch::new(engine.clone(), counters);
        Ok(Running { engine, watch, maintenance, ends_volume: true, _shared: shared })
    }
}

impl<E: Engine> Drop for Running<E> {
    fn drop(&mut self) {
        let last_words = self.watch.close();
        self.maintenance.end();
        let closed = self.engine.close();
        if let Err(error) = &closed {
            tracing::warn!(%error, "not everything could be written at the end; the next opening repairs what it can");
        }
        if self.ends_volume
            && let Err(error) = self.engine.volume().shutdown(closed.is_ok())
        {
            tracing::warn!(%error, "the volume's shared memory could not be given up");
        }
        last_words();
    }
}

/// Whether a drive is to be formatted first.
enum Formatting {
    No,
    /// If it is not formatted; one that is stays as it is.
    IfBlank,
    /// It is new.
    Yes,
}

fn check<E: Engine>(options: &E::Options, device: &dyn ZonedDevice, name: &str) -> Result<(), E::Error> {
    E::check(options, device).map_err(|sentence| Error::misuse(&name.into(), sentence).into())
}

/// Opens the volume of a drive.
fn open_volume<E: Engine>(
    drive: Drive,
    options: &mut E::Options,
    formatting: Formatting,
    look: bool,
    opener: &mut dyn Opener<E>,
) -> Result<Counted, E::Error> {
    let (device, counters) = count(drive.device);
    let drive = Drive { device, survivor: drive.survivor };
    let drive = if look { overlay::cover(drive)? } else { drive };
    opener.prepare(&drive, options)?;
    let refused = match formatting {
        Formatting::No => None,
        Formatting::IfBlank => E::format_for(&drive, options).err(),
        Formatting::Yes => E::format_for(&drive, options).map(|()| None)?,
    };
    let open = if look { Volume::look } else { Volume::open };
    match (open(drive, E::volume_options(options).clone()), refused) {
        // What was formatted before is opened, and what cannot be opened says why; but of what is no volume it is of interest why it was
        // not made one.
        (Err(error), Some(why)) if is_blank(&error) => Err(why),
        (volume, _) => Ok((volume?, counters)),
    }
}

/// There is no label at all.
fn is_blank(error: &Error) -> bool {
    matches!(&error.fault, Fault::Unusable(sentence) if **sentence == *LabelError::NotALabel.to_string())
}

impl<E: Engine> Shell<E> {
    /// Opens the engine of a drive that a URI names, as `imbrex:///data/drive.img?survivor-size=16M`, or hands out the one that this process has
    /// open, with the options of the first. The options `more`, as `("read-only", "on")`, count where the URI does not give them; errors show
    /// the URI without. `&mut ()` is the usual opener.
    ///
    /// Another engine of this process may have the drive by its name, too. The drive is given back when the last clone of all is gone. A
    /// drive in memory formats itself, and so does with `format=on` one that is not formatted. With `read-only=on` drive and survivor stay
    /// as they are; who only looks gets what this process has open, if it has.
    ///
    /// # Errors
    /// `Misuse` where the URI makes no sense for this drive; `Busy` where the opener wants to be [alone](Opener::alone) and this process has it
    /// open; those of the drive, of the volume and of the engine.
    pub fn open_uri(uri: &str, more: &[(&str, &str)], opener: &mut dyn Opener<E>) -> Result<Self, E::Error> {
        let Asked { locator, open, mut options, format } = ask::<E>(uri, more)?;
        opener.tune(&mut options);
        let (look, memory) = (open.read_only, Locator::is_memory(&locator));
        let busy = || E::Error::from(Error::busy(&uri.into(), vec![Holder::of(std::process::id())]));
        let mut key = imbrex_drives::key(&locator);
        if look {
            // Who only looks sees what this process is doing.
            match E::opened().0.get(&key) {
                Some(_) if opener.alone() => return Err(busy()),
                Some(running) => return Ok(Shell(running)),
                None => key.push_str(" read-only"),
            }
            E::look(&mut options);
        }
        let mut here = false;
        let alone = opener.alone();
        let running = E::opened().0.get_or_open(key.clone(), || {
            here = true;
            let mut volume = || {
                let drive = imbrex_drives::open(&locator, &open)?;
                // What makes no sense is said before anything is done to the drive.
                check::<E>(&options, drive.device.as_ref(), uri)?;
                let formatting = match (memory, format && !look) {
                    (true, _) => Formatting::Yes,
                    (false, true) => Formatting::IfBlank,
                    (false, false) => Formatting::No,
                };
                open_volume(drive, &mut options, formatting, look, opener)
            };
            // A drive in memory is nobody else's, and a look is at what is under a cover of its own.
            let ((volume, counters), shared) = match memory || look {
                true => (volume()?, None),
                false => {
                    let shared = SharedVolume::open(&key, E::TENANT, volume)?;
                    (shared.counted().clone(), Some(shared))
                }
            };
            check::<E>(&options, volume.device().as_ref(), uri)?;
            let tenant = volume.tenant(E::TENANT)?;
            let start = Start { tenant, options, counters, maintenance: Arc::default() };
            Running::new(start, shared, opener)
        })?;
        if alone && !here { Err(busy()) } else { Ok(Shell(running)) }
    }

    /// Opens the engine of a formatted drive, which nobody else gets. `look`: drive and survivor stay as they are.
    ///
    /// # Errors
    /// Those of the drive, of the volume and of the engine.
    pub fn open_drive(
        drive: Drive,
        mut options: E::Options,
        look: bool,
        opener: &mut dyn Opener<E>,
    ) -> Result<Self, E::Error> {
        if look {
            E::look(&mut options);
        }
        let (volume, counters) = open_volume(drive, &mut options, Formatting::No, look, opener)?;
        let tenant = volume.tenant(E::TENANT)?;
        let start = Start { tenant, options, counters, maintenance: Arc::default() };
        Self::unnamed(Running::new(start, None, opener)?)
    }

    /// Opens the engine of a tenant of a volume that is open already, which may have other tenants, and goes on without this one. Once: to open
    /// it again the volume has to be opened anew.
    ///
    /// # Errors
    /// Those of the engine; `Unusable` where the tenant has been opened on this volume before.
    pub fn open_tenant(tenant: Tenant, options: E::Options) -> Result<Self, E::Error> {
        let start = Start { tenant, options, counters: Arc::default(), maintenance: Arc::default() };
        let mut running = Running::<E>::new(start, None, &mut ())?;
        running.ends_volume = false;
        Self::unnamed(running)
    }

    /// An engine that no URI leads to.
    fn unnamed(running: Running<E>) -> Result<Self, E::Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let key = format!("unnamed {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        E::opened().0.get_or_open(key, || Ok(running)).map(Shell)
    }

    /// Whether a URI and options make sense for its drive, before anything is done to that.
    ///
    /// # Errors
    /// `Misuse` with a whole sentence.
    pub fn check_uri(uri: &str, more: &[(&str, &str)], drive: &Drive) -> Result<(), E::Error> {
        check::<E>(&ask::<E>(uri, more)?.options, drive.device.as_ref(), uri)
    }
}

/// A share in an open engine.
pub(super) type Share<E> = Shared<String, Running<E>>;
