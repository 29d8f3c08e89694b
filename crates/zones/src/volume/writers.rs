//! The streams of a volume, by when they wrote last: who finds no zone for its bytes gets room from those that do not write.
//!
//! Such a stream writes what it has in memory, gives its zone back to the engine, to be shared, and lets go of what was promised to it. It
//! goes on elsewhere when more is appended. So a file that is open and rests holds no zone, as one that is closed does.
//!
//! Invariant: no lock of this module is held while a stream is asked or written.

use crate::volume::VolumeCore;
use crate::volume::stream::StreamCore;
use imbrex_device::Result;
use std::sync::Arc;

impl VolumeCore {
    /// The tenant's streams, the one that wrote last at the end.
    pub(crate) fn writers(&self, owner: u8) -> Vec<Arc<StreamCore>> {
        let all = self.deferred.all().into_iter().chain(self.others.all());
        let mut streams: Vec<_> = all.filter(|stream| stream.owner() == owner).collect();
        streams.sort_by_key(|stream| stream.last_write());
        streams
    }

    /// Has every framed stream of the tenant that can give up its zone, and what was promised to it: together their bytes need a zone or two.
    /// For who holds no stream's right to write.
    pub(crate) fn rest_logs(&self, owner: u8) -> Result<()> {
        let logs = self.writers(owner).into_iter().filter(|stream| stream.is_framed());
        for stream in logs {
            self.leave(&stream, 0, true)?;
        }
        Ok(())
    }

    /// Has the first of these streams that can give up its zone.
    pub(crate) fn first_to_leave(&self, streams: Vec<Arc<StreamCore>>, need: u64) -> Result<bool> {
        for stream in streams {
            if self.leave(&stream, need, false)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn leave(&self, stream: &StreamCore, need: u64, may_wait: bool) -> Result<bool> {
        let left = stream.leave_zone(need, may_wait);
        self.flusher.check()?;
        // Its own writer will meet that.
        Ok(left.unwrap_or_else(|error| {
            tracing::debug!(%error, "a stream cannot leave its zone");
            false
        }))
    }
}
