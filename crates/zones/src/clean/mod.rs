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
//! - A zone in which copies are expected is not forgotten, whoever closes it and whatever is deleted there.
//! - A victim that cannot be read, or that gives nothing, is put aside for the rest of the call. Other victims get their turn.

pub mod choose;
mod load;
pub mod throttle;
mod worker;

pub use choose::{Candidate, Choose, Chosen, Search};
use imbrex_device::Error;
pub use load::{Load, Waits};
pub use worker::{Cleaned, Cleaner, Goal, Rules};

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

    /// The zone to empty next: one to which nothing more comes, and in which something lives. An engine with a list of candidates
    /// [chooses](Search::choose) by a policy.
    fn next_victim(&self, search: &Search<'_>) -> Option<Chosen>;

    /// What of the victim is to be moved now. Nothing, where the zone has another life by now or is not a candidate any more.
    fn residents(&self, victim: &Victim) -> Vec<Self::Piece>;

    /// Whether nothing lives in the victim any more.
    fn is_empty(&self, victim: &Victim) -> bool {
        self.residents(&Victim { most: 1, ..*victim }).is_empty()
    }

    /// Copies a piece, as far as there is room. The engine does not forget a zone that gets copies, from the moment in which it chooses the zone until it
    /// [settles](Residents::settle).
    ///
    /// # Errors
    /// [`Failed`]. Too little room is no error.
    fn copy(&self, piece: &Self::Piece, copies: &mut Vec<Self::Copy>) -> Result<(), Failed<Self::Error>>;

    /// Makes the copies durable. A zone may refuse its copies.
    ///
    /// # Errors
    /// Those of the drive.
    fn flush(&self) -> Result<(), Self::Error> {
        self.commit()
    }

    /// The metadata names the copies from here on. Copies that did not become durable, and those of what was changed or deleted meanwhile, are passed over.
    /// Returns how many bytes stand elsewhere now.
    ///
    /// # Errors
    /// Those of metadata that takes no more changes.
    fn switch(&self, copies: Vec<Self::Copy>) -> Result<u64, Self::Error>;

    /// Makes durable what the metadata says. It is called when a victim is empty, since nobody needs less than a whole zone, and whenever something was
    /// moved out of a dying one.
    ///
    /// # Errors
    /// Those of the drive.
    fn commit(&self) -> Result<(), Self::Error>;

    /// The step is over, and no more copies come. The engine forgets those zones of copies where nothing lives.
    fn settle(&self);

    /// The victim cannot be read; `offline`: the drive says that all of it is lost. True: the engine has noted that, and does not choose the zone again.
    /// Then it is no error of the call.
    fn note_unread(&self, zone: u32, offline: bool) -> bool;
}

#[cfg(test)]
mod tests;
