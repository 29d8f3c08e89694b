//! What has gathered goes to the drive: the journal, then the zones, by the volume's [`RecordWriter`](imbrex_zones::write::RecordWriter).
//!
//! The journal is first, so that of a zone in which there is something it is known whose it is as soon as can be; nothing depends on it, because
//! nothing is acknowledged before both are there: after a crash any of these writes may be there or not. The zones of a commit do not
//! depend on each other either.

pub(crate) mod append;
pub(crate) mod relocate;
pub(crate) mod take;
pub(crate) mod write_through;

use crate::core::{CommitGuard, Core};
use crate::error::Result;
use crate::format::entry::Entry;
use crate::write::relocate::Relocated;
use imbrex_zones::log::Batch;

impl Core {
    /// Writes what has gathered: the journal first, then the zones. Returns the number up to which all is written, but for what waits for zones that
    /// take no writes while there is no other place for it ([stranded](crate::zone::DataZone::stranded)).
    pub(crate) fn write_out(&self, guard: &mut CommitGuard) -> Result<u64> {
        loop {
            let (taken, target, due) = {
                let mut state = self.state();
                self.log_index_if_due(&mut state);
                state.zones.settle(&self.writer);
                debug_assert!(state.decisions.entries().iter().all(|entry| match entry {
                    Entry::Told { group, .. } | Entry::Moved { to: group, .. } => state.is_durable(group),
                    _ => true,
                }));
                // A number of its own: what is written later is in another group.
                (state.decisions.take(), state.assign(), self.writer.due())
            };
            // There is room, since the leader has seen to it, but where the log could get none.
            let mut records = Batch::default();
            taken.0.iter().for_each(|entry| records.push(|to| entry.encode(to)));
            if let Err(error) = guard.log().appender().append_all(&mut records) {
                self.state().decisions.put_back(taken);
                return Err(error.into());
            }
            let refused = guard.write(target, &due)?;
            {
                let mut state = self.state();
                state.decisions.written(target);
                due.iter().for_each(|due| state.note_landed(due.zone));
            }
            let mut moved = false;
            for zone_guard in refused {
                let came = self.relocate(&zone_guard, guard)?;
                moved |= came == Relocated::Moved;
                if came != Relocated::StillStranded {
                    // What it tells of these bytes' places is not so any more, or never will be.
                    guard.log().abandon_snapshot();
                }
            }
            if !moved {
                return Ok(target);
            }
        }
    }
}
