//! Checkpoints: the whole index, written piece by piece between commits, without making anybody wait (SMRSTORE §5.6).
//!
//! A checkpoint is not of one moment. What makes it right all the same: first, the zones are noted with where their records
//! end; then come the chunks, each as it is when its turn comes; and whoever reads it replays the journal from its start on
//! and the records behind those ends. Whatever changed a chunk after it was written is in one of these two, and both can be
//! replayed over a newer state. The last piece is written only when everything that the parts speak of is durable.

use crate::core::{CommitGuard, Core, Progress, State, lock};
use crate::error::Result;
use crate::format::data_blocks;
use crate::format::entry::notes::StreamEntry;
use crate::format::entry::{LOST, PartWriter, RecordIndex, ZoneEntry};
use crate::index::Chunk;
#[cfg(doc)]
use crate::zone::DataZone;
use std::collections::BTreeMap;

impl State {
    /// Where the chunk's first record begins that [has no place](DataZone::stranded) on the drive. What is behind it is not acknowledged either.
    fn stranded_at(&self, chunk: &Chunk) -> Option<u32> {
        let spans = chunk.groups().iter().flat_map(|group| group.spans().map(move |span| (group.zone, span)));
        let waits = |(zone, (start, record)): &(u32, (u32, RecordIndex))| {
            let stranded = self.zones.get(*zone).is_some_and(|z| z.stranded && record.at != LOST);
            stranded && record.at + data_blocks(record.end - start) > self.written(*zone)
        };
        { spans }.find(waits).map(|(_, (start, _))| start)
    }

    /// A chunk as a checkpoint tells of it while some of its bytes have no place; `None`: as it is.
    fn without_stranded(&self, chunk: &Chunk) -> Option<Chunk> {
        let at = self.stranded_at(chunk)?;
        let mut told = chunk.clone();
        told.cut(at);
        told.sealed = false;
        Some(told)
    }

    /// Up to where a checkpoint knows the records of a zone, where it does not tell of all of them: the journal and the zones tell of these.
    fn stranded_tails(&self) -> BTreeMap<u32, u32> {
        let mut tails = BTreeMap::new();
        for (zone, z) in self.zones.active().filter(|(_, z)| z.stranded) {
            let mut known = |zone: u32, at: u32| {
                tails.entry(zone).and_modify(|tail| *tail = at.min(*tail)).or_insert(at);
            };
            known(zone, self.written(zone));
            for chunk in z.live.iter().filter_map(|slot| self.index.chunk(*slot)) {
                let Some(end) = self.stranded_at(chunk) else { continue };
                for group in chunk.groups() {
                    let untold = group.spans().filter(|(start, record)| *start >= end && record.at != LOST);
                    untold.for_each(|(_, record)| known(group.zone, record.at));
                }
            }
        }
        tails
    }
}

impl Core {
    /// Begins a checkpoint, unless one is under way.
    pub(crate) fn checkpoint_begin(&self, guard: &mut CommitGuard) -> Result<()> {
        let log = guard.log();
        if log.in_snapshot() {
            return Ok(());
        }
        log.begin_snapshot()?;
        let appended = self.state().work.appended();
        *lock(&self.checkpoint) = Progress { appended, ..Progress::default() };
        let zones: Vec<ZoneEntry> = {
            let state = self.state();
            let stranded = state.stranded_tails();
            let entry = |(zone, z): (&u32, &crate::zone::DataZone)| ZoneEntry {
                zone: *zone,
                tail: stranded.get(zone).map_or(z.tail, |tail| z.tail.min(*tail)),
                life: z.life,
                state: z.state(),
                usage: z.usage,
                unread: z.unread,
            };
            state.zones.all().iter().map(entry).collect()
        };
        let mut part = PartWriter::default();
        for zone in &zones {
            part.zone(zone);
            if part.len() >= self.limits.part_bytes {
                log.piece(&part.finish())?;
            }
        }
        if !part.is_empty() {
            log.piece(&part.finish())?;
        }
        // Marks take no more than a part, whatever is damaged.
        let scrub = self.state().scrub.entry(self.limits.part_bytes / 64);
        let streams = self.options.own_streams();
        let notes = [scrub.map(|scrub| scrub.encode()), (!streams.is_empty()).then(|| StreamEntry::encode(&streams))];
        Ok(notes.into_iter().flatten().try_for_each(|payload| log.piece(&payload))?)
    }

    /// Writes one more piece. False: there is no checkpoint under way any more.
    ///
    /// # Errors
    /// Then the checkpoint is given up; the one before still counts.
    pub(crate) fn checkpoint_step(&self, guard: &mut CommitGuard) -> Result<bool> {
        if !guard.log().in_snapshot() {
            return Ok(false);
        }
        let mut part = self.checkpoint_next(&mut lock(&self.checkpoint));
        if !part.is_empty() {
            guard.log().piece(&part.finish())?;
            return Ok(true);
        }
        // Where a zone takes no more of its bytes, they have another place than the parts say: then the checkpoint is abandoned.
        if let Err(error) = self.write_out(guard) {
            guard.log().abandon_snapshot();
            return Err(error);
        }
        if guard.log().finish_snapshot()? {
            let began = lock(&self.checkpoint).appended;
            self.state().work.checkpointed(began);
        }
        Ok(false)
    }

    /// The next chunks, or, when all have had their turn, the next names; nothing when these have, too.
    fn checkpoint_next(&self, progress: &mut Progress) -> PartWriter {
        let mut part = PartWriter::default();
        let state = self.state();
        let slots = state.index.slots();
        let stranded = state.zones.active().any(|(_, z)| z.stranded);
        while progress.next_slot < slots && part.len() < self.limits.part_bytes {
            if let Some(chunk) = state.index.chunk(progress.next_slot) {
                let told = if stranded { state.without_stranded(chunk) } else { None };
                let chunk = told.as_ref().unwrap_or(chunk);
                let fields = (chunk.id, chunk.serial, chunk.len, chunk.stream, chunk.sealed, chunk.end);
                part.chunk(fields, chunk.groups().iter().map(|g| (g.zone, g.start, g.records())));
            }
            progress.next_slot += 1;
        }
        if !part.is_empty() {
            return part;
        }
        let names = state.names.range(progress.last_name.as_deref());
        for entry in names.filter_map(|(name, _)| state.names.entry(name)) {
            part.name(&entry);
            progress.last_name = Some(entry.name);
            if part.len() >= self.limits.part_bytes {
                break;
            }
        }
        part
    }

    /// Writes a whole checkpoint, or what is missing of the one under way; one that is abandoned meanwhile is begun anew.
    pub(crate) fn checkpoint_whole(&self, guard: &mut CommitGuard) -> Result<()> {
        let before = guard.log().snapshot();
        while guard.log().snapshot() == before {
            self.checkpoint_begin(guard)?;
            while self.checkpoint_step(guard)? {}
        }
        Ok(())
    }

    /// After a commit: begins a checkpoint when it is time for one, and writes a piece of the one that is under way.
    pub(crate) fn checkpoint_tick(&self, guard: &mut CommitGuard) -> Result<()> {
        let due = {
            let state = self.state();
            state.work.since_checkpoint() >= self.options.checkpoint_bytes
        };
        if due {
            self.checkpoint_begin(guard)?;
        }
        self.checkpoint_step(guard).map(drop)
    }
}
