//! What of chunks is lost, as far as is known: what stood in zones that are offline, what could not be read when the store was opened, and
//! chunks of which nobody knows any more where they ended.

use crate::core::{Core, State};
use crate::format::entry::ChunkEnd;
use crate::format::id::ChunkId;
use crate::index::Chunk;
use crate::index::scrub::Lost;
use imbrex_device::words::counted;

impl State {
    /// A chunk's losses are known from now on, or it has none any more.
    pub(crate) fn note_losses(&mut self, slot: u32) {
        let has = |chunk: &Chunk| chunk.end != ChunkEnd::Known || chunk.has_lost();
        match self.index.chunk(slot).is_some_and(has) {
            true => drop(self.losses.insert(slot)),
            false => drop(self.losses.remove(&slot)),
        }
    }

    /// A zone is reset of which some could not be read: now nobody will ever know whose that was.
    pub(crate) fn give_up_unread(&mut self) {
        for slot in &self.losses {
            if let Some(chunk) = self.index.chunk_mut(*slot).filter(|chunk| chunk.end == ChunkEnd::Unread) {
                chunk.end = ChunkEnd::Lost;
            }
        }
    }

    /// What stood in zones that are offline.
    fn lost_with_zones(&self, lost: &mut Vec<Lost>) {
        for (zone, z) in self.zones.all().iter().filter(|(_, z)| z.unreadable) {
            for chunk in z.live.iter().filter_map(|slot| self.index.chunk(*slot)) {
                let groups = chunk.groups().iter().filter(|group| group.zone == *zone);
                let (id, open) = (chunk.id, false);
                lost.extend(groups.map(|g| Lost { zone: *zone, id, offset: g.start, len: g.end() - g.start, open }));
            }
        }
    }

    /// What the index knows to be lost, and ends that it does not know.
    fn lost_from_chunks(&self, lost: &mut Vec<Lost>) {
        for chunk in self.losses.iter().filter_map(|slot| self.index.chunk(*slot)) {
            let (id, open) = (chunk.id, false);
            let gone = |zone: u32| self.zones.get(zone).is_some_and(|z| z.unreadable);
            let runs = chunk.lost().into_iter().filter(|(zone, ..)| !gone(*zone));
            lost.extend(runs.map(|(zone, start, end)| Lost { zone, id, offset: start, len: end - start, open }));
            if chunk.end != ChunkEnd::Known {
                let zone = chunk.groups().last().map_or(Lost::NOWHERE, |group| group.zone);
                lost.push(Lost { zone, id, offset: chunk.len, len: 0, open: true });
            }
        }
    }
}

impl Core {
    /// See [`ChunkStore::lost`](crate::ChunkStore::lost).
    pub(crate) fn lost(&self) -> Vec<Lost> {
        let state = self.state();
        let mut lost = Vec::new();
        state.lost_with_zones(&mut lost);
        state.lost_from_chunks(&mut lost);
        lost.extend(state.scrub.lost());
        lost.sort_unstable_by_key(|one| (one.zone, one.id, one.offset));
        // A chunk with two groups in a zone is in its list twice.
        lost.dedup();
        lost
    }

    /// A sentence for each zone of which something is lost, and one for chunks whose ends are.
    pub(crate) fn lost_sentences(&self) -> Vec<String> {
        let (open, lost): (Vec<Lost>, Vec<Lost>) = self.lost().into_iter().partition(|one| one.open);
        let mut all = Vec::new();
        for of in lost.chunk_by(|a, b| a.zone == b.zone) {
            let bytes: u64 = of.iter().map(|one| u64::from(one.len)).sum();
            let mut chunks: Vec<ChunkId> = of.iter().map(|one| one.id).collect();
            chunks.dedup();
            let (zone, bytes, chunks) = (of[0].zone, counted(bytes, "byte"), counted(chunks.len() as u64, "chunk"));
            let offline = self.state().zones.get(zone).is_some_and(|z| z.unreadable);
            let why = if offline {
                "is offline"
            } else {
                "holds records that could not be read when the store was opened, or when they were moved"
            };
            all.push(format!(
                "Zone {zone} {why}, and {bytes} of {chunks} in it are lost; `imbrex chunk stat` lists what is lost: \
                 restore it from copies, and remove it here."
            ));
        }
        if !open.is_empty() {
            all.push(format!(
                "{} may have ended further on than now: what was appended last stood where nothing can be read. \
                 `imbrex chunk stat` lists them: compare them with copies, and seal or remove them.",
                counted(open.len() as u64, "chunk")
            ));
        }
        all
    }
}
