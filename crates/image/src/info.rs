//! What an image is, for whoever asks.

use crate::limits::Limits;
use serde::{Deserialize, Serialize};

/// What an image is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// Bytes that it has.
    pub size: u64,
    /// Bytes of blocks that stand for them now: those that it shares with others count, and those that it has of a parent do not.
    pub used: u64,
    /// Bytes of blocks that were kept for its snapshots when pieces of it changed. What these share with the image as it is now counts in both.
    pub kept: u64,
    /// What it may take, and what may be asked of it.
    pub limits: Limits,
    /// Seconds since 1970 when it was made.
    pub created: u64,
    /// Whose clone it is.
    pub parent: Option<Parent>,
    /// The oldest first.
    pub snapshots: Vec<Snapshot>,
}

/// The snapshot that an image is a clone of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Name of its image.
    pub image: String,
    /// Its own.
    pub snapshot: String,
}

/// A snapshot of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The image's size then, in bytes.
    pub size: u64,
    /// Seconds since 1970.
    pub created: u64,
    /// Images that are clones of it: while there are any it cannot be removed.
    pub clones: u64,
}
