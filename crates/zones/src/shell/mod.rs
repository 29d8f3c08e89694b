//! The shell of every engine: what stands between an engine and those who open it.
//!
//! An engine is what becomes of a tenant's zones. Its author implements [`Engine`]: how it opens, what it does without being asked, what
//! figures it has, how it closes. A [`Shell`] is an open one. It brings what does not depend on the engine:
//!
//! - [opening](Shell::open_uri) by a URI, a drive or a tenant; looks that change nothing; one engine of a drive for the whole process, and
//!   one volume for several engines (`open`, `share`, `registry`);
//! - [options](UriOption) of a URI as a table of names and parsers (`options`);
//! - a [watch](Watch) with the figures of drive and engine, which keeps nothing open (`watch`);
//! - a [maintenance](Maintenance) thread, joined before the engine closes (`maintenance`);
//! - the [volume of another drive](Beside), for an engine that has something there (`beside`).
//!
//! `crates/zones/tests/shell.rs` has an engine of a hundred lines.

mod beside;
mod maintenance;
mod open;
mod options;
mod registry;
pub mod salvage;
mod share;
mod watch;

pub use beside::{Beside, BesideOptions};
pub use maintenance::{Maintenance, Rest};
pub use open::Opened;
pub use options::{Given, UriOption, names, options_of};
pub use watch::{Metrics, Watch};

use crate::volume::{Tenant, Volume, VolumeOptions};
use imbrex_device::{Drive, Error, ZonedDevice};
use imbrex_drives::counted::Counters;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// What an engine's author supplies. The shell holds no lock when it calls.
pub trait Engine: Send + Sync + Sized + 'static {
    /// The tenant's name in the label.
    const TENANT: &'static str;
    /// Options of a URI, beside the drive's and `format` and `survivor-size`. They are set in the order of this table.
    const OPTIONS: &'static [UriOption<Self::Options>];
    /// How it is opened.
    type Options: Default;
    /// What can go wrong with it: [`Error`], or a type around that where callers tell its errors apart.
    type Error: From<Error> + fmt::Display;
    /// Its own figures.
    type Figures: Clone + 'static;
    /// What its maintenance thread keeps in mind between two chores.
    type Chores: Default;

    /// What this process has open of it: a `static`.
    fn opened() -> &'static Opened<Self>;

    /// How the volume is opened.
    fn volume_options(options: &mut Self::Options) -> &mut VolumeOptions;

    /// The drive will only be looked at: what the engine changes is forgotten.
    fn look(_: &mut Self::Options) {}

    /// Whether the drive can do what was asked for. Else a whole sentence.
    fn check(_: &Self::Options, _: &dyn ZonedDevice) -> Result<(), String> {
        Ok(())
    }

    /// Formats a drive for this engine alone. Fails, and changes nothing, where the drive is formatted already.
    fn format(drive: &Drive) -> Result<(), Self::Error>;

    /// The same for whoever opens it with these options then.
    fn format_for(drive: &Drive, _: &Self::Options) -> Result<(), Self::Error> {
        Self::format(drive)
    }

    /// Opens it; makes it, where the tenant has no root yet.
    fn open(start: Start<Self>) -> Result<Self, Self::Error>;

    /// The volume that it is on.
    fn volume(&self) -> &Volume;

    /// Sentences of damage that the opening found.
    fn damage(&self) -> &[String];

    /// Its own figures, now.
    fn figures(&self) -> Self::Figures;

    /// Does one piece of background work of its own, for who has no threads. False: there was none.
    fn step(&self) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// Whether it has chores for a thread; asked when it has been opened on a volume with threads.
    fn wants_thread(&self) -> bool {
        false
    }

    /// Does one chore, on the maintenance thread. `None`: there will be no more.
    fn chore(&self, _: &mut Self::Chores) -> Option<Rest> {
        None
    }

    /// The last user has let go. Nothing may rely on this: a process may die instead. `Ok`: nothing of it is in the survivor any more.
    fn close(&self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// What an engine is opened with.
pub struct Start<E: Engine> {
    /// Its part of the volume.
    pub tenant: Tenant,
    /// How it is to be opened.
    pub options: E::Options,
    /// What is counted of the drive.
    pub counters: Arc<Counters>,
    /// Its thread, which begins when it is open.
    pub maintenance: Arc<Maintenance>,
}

/// What is special about one opening, as a salvage. `()` is the usual one.
pub trait Opener<E: Engine> {
    /// Nobody of this process may have the engine open.
    fn alone(&self) -> bool {
        false
    }

    /// Sets what a URI cannot ask for.
    fn tune(&mut self, _: &mut E::Options) {}

    /// Sees the drive before its label is read.
    fn prepare(&mut self, _: &Drive, _: &E::Options) -> Result<(), E::Error> {
        Ok(())
    }

    /// Opens the engine.
    fn open(&mut self, start: Start<E>) -> Result<E, E::Error> {
        E::open(start)
    }
}

impl<E: Engine> Opener<E> for () {}

/// An open engine. Clones are the same one; it is closed when the last clone is gone, and then its drive is given back.
pub struct Shell<E: Engine>(open::Share<E>);

impl<E: Engine> Clone for Shell<E> {
    fn clone(&self) -> Self {
        Shell(self.0.clone())
    }
}

impl<E: Engine> Deref for Shell<E> {
    type Target = E;
    fn deref(&self) -> &E {
        &self.0.engine
    }
}

impl<E: Engine> Shell<E> {
    /// Figures that do not keep it open.
    pub fn watch(&self) -> Watch<E::Figures> {
        self.0.watch.clone()
    }

    /// Does one piece of background work: the engine's, or the volume's. False: there was none.
    ///
    /// # Errors
    /// Those of the engine and of the volume.
    pub fn step(&self) -> Result<bool, E::Error> {
        Ok(E::step(self)? || self.volume().step()?)
    }
}
