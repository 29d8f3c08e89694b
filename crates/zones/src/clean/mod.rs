//! The room of cleaning: live bytes of a zone that is mostly dead move elsewhere, so that the zone becomes free.
//!
//! - [`choose`]: which zone (pure); the engine names a policy;
//! - [`throttle`]: how much at a time, and how long a rest is then (pure); [`Load`] measures what users notice;
//! - [`Cleaner`]: the worker. It takes one step after the other, for whoever needs room, pays ahead, or has nothing else to do.
//!
//! The engine supplies [`Residents`]: what lives in a zone, how that is copied, and how the engine's metadata switches to the copies.
//! The cleaner calls it on its caller's thread and holds no lock then. So an engine may take its own locks and use the drive.
//!
//! Invariants of a step:
//! - At most one step is under way.
//! - The victim is pinned before the engine looks at it, and until the copies count. So its life cannot change between.
//! - Copies are durable before the engine's metadata names them.
//! - A zone in which copies are [expected](Incoming) is not forgotten, whoever closes it and whatever is deleted there.
//! - A victim that cannot be read, or that gives nothing, is put aside for the rest of the call. Other victims get their turn.

pub mod choose;
mod load;
pub mod throttle;
mod worker;

pub use choose::{Candidate, Choose};
use imbrex_device::Error;
pub use load::{Load, Waits};
pub use worker::{Cleaned, Cleaner, Goal, Incoming, Rules};

/// A zone that is to be cleaned, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Which zone.
    pub zone: u32,
    /// This life of it and no later one.
    pub life: u64,
    /// About so many bytes are moved in this step.
    pub most: u64,
    /// No zone has given anything. So room may be wasted where the copies go.
    pub pressed: bool,
}

/// Why copying ends.
#[derive(Debug)]
pub enum Failed<E> {
    /// The drive does not give the victim's bytes. The step goes on with what was copied before.
    Unread(Error),
    /// The call fails with this.
    Other(E),
}

impl<E> From<E> for Failed<E> {
    fn from(error: E) -> Failed<E> {
        Failed::Other(error)
    }
}

/// The engine's part of cleaning. See the [module](self) for who calls it, and when.
pub trait Residents {
    /// Something that lives in a zone and moves as one.
    type Piece;
    /// Where a piece was copied to.
    type Copy;
    /// The engine's error.
    type Error: From<Error>;

    /// Zones to which nothing more comes and in which something lives. `dying`: of these only zones that take no more writes.
    fn candidates(&self, dying: bool) -> Vec<Candidate>;

    /// What of the victim is to be moved now. Nothing, where the zone has another life by now or is not a candidate any more: then it counts as freed.
    fn residents(&self, victim: &Victim) -> Vec<Self::Piece>;

    /// Copies a piece, as far as there is room. Each zone that gets copies is [expected](Incoming::expect) to from the moment in which it is chosen.
    ///
    /// # Errors
    /// [`Failed`]. Too little room is no error.
    fn copy(&self, piece: &Self::Piece, copies: &mut Vec<Self::Copy>) -> Result<(), Failed<Self::Error>>;

    /// Makes durable what was decided so far: copies before they are named, then that they are. A zone may refuse its copies.
    ///
    /// # Errors
    /// Those of the drive.
    fn commit(&self) -> Result<(), Self::Error>;

    /// The metadata names the copies from here on. Copies that did not become durable, and those of what was changed or deleted meanwhile, are passed over.
    /// Works in memory. Returns how many bytes stand elsewhere now.
    fn switch(&self, copies: Vec<Self::Copy>) -> u64;

    /// No more copies are expected in the zone. The engine forgets it where nothing lives there.
    fn settle(&self, zone: u32);

    /// The drive says that the victim is offline. An engine that notes it is not asked for the zone again.
    fn went_offline(&self, _zone: u32) {}
}

#[cfg(test)]
mod tests;
