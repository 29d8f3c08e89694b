//! Cleaning: what lives in a zone that is mostly dead moves elsewhere, so that the zone becomes free. [`imbrex_zones::clean`] has the worker; here is what it asks a store.
//!
//! Headers of runs say which blobs a zone had. Their records say what of them still stands there. That is read, compared with its checksums, and written with the next group, whose
//! records name the copies. What has changed meanwhile stays as it is, and its copy is dead.

use crate::blob::{BLOCK, Blob, BlobId, Run};
use crate::core::Core;
use crate::data::{Stream, Todo};
use crate::lock::lock;
use crate::read::is_of_bytes;
use crate::run::RunPiece;
use crate::table::Zone;
use imbrex_device::{AlignedBuf, Cause, Error, Result, ZoneId};
use imbrex_zones::clean::choose::cost_benefit;
use imbrex_zones::clean::{Candidate, Chosen, Cleaned, Failed, Goal, Residents, Search, Victim};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Whether enough is dead of a zone: headers of runs and rests at its end are no gain, since the copies have them, too.
fn is_worth_it(live: u64, capacity: u64) -> bool {
    live + capacity / 16 + 2 < capacity
}

/// Parts of a blob that live in the victim.
pub(crate) struct Resident {
    id: BlobId,
    blob: Blob,
    runs: Vec<Run>,
}

impl Core {
    /// Cleans, as long as there is something to gain, until about so many bytes have moved.
    ///
    /// # Errors
    /// Those of [`Core::keep`], and of a victim where no other gave anything.
    pub fn clean(&self, goal: Goal, most: u64) -> Result<Cleaned> {
        let cleaned = self.cleaner.clean(self, goal, most)?;
        self.collect();
        Ok(cleaned)
    }

    /// Whoever writes while few zones are free cleans ahead. `attended`: somebody cleans in the background.
    pub fn clean_ahead(&self, attended: bool) -> Result<()> {
        if !self.cleaner.is_due() {
            return Ok(());
        }
        self.cleaner.clean_ahead(self, attended)?;
        self.collect();
        Ok(())
    }

    /// Blobs that a zone has had, in its order, as its headers of runs say.
    fn blobs_of(&self, zone: u32, life: u64) -> Result<VecDeque<BlobId>> {
        let (mut all, mut known) = (VecDeque::new(), BTreeSet::new());
        self.each_run(zone, life, Cause::Cleaning, |_, header| {
            all.extend(header.pieces.iter().map(|piece| piece.blob).filter(|blob| known.insert(*blob)));
        })?;
        Ok(all)
    }

    /// What of a blob lives in a zone.
    fn resident(&self, id: BlobId, zone: u32, life: u64) -> Result<Option<Resident>> {
        let Some(blob) = self.blob(id)? else { return Ok(None) };
        let there = |run: &Run| run.place.is_some_and(|place| (place.zone, place.life) == (zone, life as u32));
        let runs: Vec<Run> = blob.living().filter(there).collect();
        Ok((!runs.is_empty()).then_some(Resident { id, blob, runs }))
    }
}

impl Residents for Core {
    type Piece = Resident;
    type Copy = Todo;
    type Error = Error;

    fn next_victim(&self, search: &Search<'_>) -> Option<Chosen> {
        let unread = lock(&self.cleaning).unread.clone();
        let volume = self.tenant.volume();
        let candidates: Vec<Candidate> = {
            let state = self.state();
            let closed = state.table.iter().filter(|(_, z)| !z.open && z.live > 0);
            let candidate = |(zone, z): (u32, &Zone)| {
                let capacity = volume.capacity(ZoneId(zone)) / BLOCK - 1;
                let may = is_worth_it(z.live, capacity) && !unread.contains(&(zone, z.life));
                let age = state.group - z.touched;
                may.then_some(Candidate { zone, life: z.life, live: z.live, capacity, age, ..Candidate::default() })
            };
            closed.filter_map(candidate).collect()
        };
        search.choose(cost_benefit, candidates.into_iter())
    }

    fn residents(&self, victim: &Victim) -> Vec<Resident> {
        let Victim { zone, life, most, .. } = *victim;
        let mut listed = match lock(&self.cleaning).listed.take() {
            Some((of, of_life, listed)) if (of, of_life) == (zone, life) => listed,
            _ => match self.blobs_of(zone, life) {
                Ok(listed) => listed,
                Err(error) => {
                    tracing::warn!(%error, zone, "what a zone has cannot be read; it is left as it is");
                    self.note_unread(zone, false);
                    return Vec::new();
                }
            },
        };
        let (mut all, mut bytes) = (Vec::new(), 0);
        while bytes < most {
            let Some(id) = listed.pop_front() else { break };
            match self.resident(id, zone, life) {
                Ok(Some(resident)) => {
                    bytes += resident.runs.iter().map(|run| u64::from(run.blocks) * BLOCK).sum::<u64>();
                    all.push(resident);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, %id, "a blob cannot be moved"),
            }
        }
        // Whoever asks again looks at the zone again: what had no room is there still.
        lock(&self.cleaning).listed = (!listed.is_empty()).then_some((zone, life, listed));
        all
    }

    fn is_empty(&self, victim: &Victim) -> bool {
        let state = self.state();
        state.table.get(victim.zone).is_none_or(|z| z.life != victim.life || z.live == 0)
    }

    fn copy(&self, piece: &Resident, copies: &mut Vec<Todo>) -> std::result::Result<(), Failed<Error>> {
        let Resident { id, blob, runs } = piece;
        let mut all = AlignedBuf::zeroed(blob.blocks as usize * BLOCK as usize);
        let mut read = Vec::new();
        for run in runs {
            // Bytes that are not those that were written are left where they are, as whoever reads them must be told.
            match self.fetch((blob, run.first, run.blocks), None, || Ok(None)) {
                Ok(Some(bytes)) => {
                    let at = run.first as usize * BLOCK as usize;
                    all[at..at + bytes.len()].copy_from_slice(&bytes);
                    read.push(*run);
                }
                Ok(None) => {}
                Err(error) if is_of_bytes(&error) => return Err(Failed::Unread(error)),
                Err(error) => return Err(Failed::Other(error)),
            }
        }
        let bytes = Arc::new(all);
        copies.extend(read.into_iter().map(|run| {
            let piece = RunPiece { blob: *id, offset: blob.offset, first: run.first, blocks: run.blocks };
            Todo { stream: Stream::Moved, piece, bytes: bytes.clone(), grain: blob.grain(), from: run.place }
        }));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        // The group that has the copies does.
        Ok(())
    }

    fn switch(&self, copies: Vec<Todo>) -> Result<u64> {
        // All of one victim.
        Ok(self.move_out(copies)? * BLOCK)
    }

    fn commit(&self) -> Result<()> {
        let kept = self.state().kept;
        Core::commit(self, kept)
    }

    fn settle(&self) {}

    fn note_unread(&self, zone: u32, _: bool) -> bool {
        let life = self.state().table.get(zone).map(|z| z.life);
        lock(&self.cleaning).unread.extend(life.map(|life| (zone, life)));
        true
    }
}
