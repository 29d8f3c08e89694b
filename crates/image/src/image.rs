//! An image that is open to be read and written.

use crate::objects::{Core, State};
use imbrex_device::{Code, Error, Result};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An open image, now or at a snapshot. Everything may be called from many threads at once. What two of them write to the same bytes at once is one or the other, in parts of an object.
pub struct Image {
    core: Arc<Core>,
    name: String,
    at: Option<u64>,
    read_only: bool,
    /// What keeps the store open.
    _kept: Arc<dyn Any + Send + Sync>,
}

impl Drop for Image {
    fn drop(&mut self) {
        if !self.read_only {
            self.core.users.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Image {
    /// Whoever calls has looked whether it is there.
    pub(crate) fn new(
        (core, at): (Arc<Core>, Option<u64>),
        name: &str,
        read_only: bool,
        kept: Arc<dyn Any + Send + Sync>,
    ) -> Image {
        if !read_only {
            core.users.fetch_add(1, Ordering::AcqRel);
        }
        Image { core, name: name.to_owned(), at, read_only, _kept: kept }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn at(&self) -> Option<u64> {
        self.at
    }

    /// Its name when it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Nothing is written through this.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// `NotFound` where it was removed.
    pub fn size(&self) -> Result<u64> {
        self.size_of(&self.core.state())
    }

    /// Bytes of the pieces in which it is kept: what lies within one is best written together.
    pub fn piece(&self) -> u64 {
        self.core.state().header.object_size()
    }

    pub(crate) fn size_of(&self, state: &State) -> Result<u64> {
        let gone = |what: &str| Error::refused(Code::NotFound, &self.name, format!("this {what} was removed"));
        match self.at {
            _ if state.gone => Err(gone("image")),
            None => Ok(state.header.size),
            Some(at) => {
                state.snaps.get(&at).filter(|snap| !snap.going).map(|snap| snap.size).ok_or_else(|| gone("snapshot"))
            }
        }
    }
}
