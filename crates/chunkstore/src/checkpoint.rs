//! Checkpoints: the whole index, written piece by piece between commits, without making anybody wait (SMRSTORE §5.6).
//!
//! A checkpoint is not of one moment. What makes it right all the same: first, the zones are noted with where their records
//! end; then come the chunks, each as it is when its turn comes; and whoever reads it replays the journal from its start on
//! and the records behind those ends. Whatever changed a chunk after it was written is in one of these two, and both can be
//! replayed over a newer state. The last piece is written only when everything that the parts speak of is durable.

use crate::core::{CommitGuard, Core, State};
use crate::entry::notes::StreamEntry;
use crate::entry::{CheckpointEnd, CheckpointStart, LOST, PartWriter, RecordIndex, ZoneEntry};
use crate::error::Result;
use crate::format::{BLOCK, Header, Kind, data_blocks};
use crate::index::Chunk;
use crate::journal::MetaLog;
#[cfg(doc)]
use crate::zone::DataZone;
use imbrex_device::Cause;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A checkpoint that is being written.
#[derive(Debug)]
pub(crate) struct Progress {
    number: u64,
    ring: usize,
    /// Order of the metazone where it begins.
    order: u64,
    parts: u32,
    next_slot: u32,
    /// The name that was written last.
    last_name: Option<Arc<str>>,
    /// What was appended when it began.
    appended: u64,
}

impl State {
    /// Where the chunk's first record begins that [has no place](DataZone::stranded) on the drive. What is behind it is not acknowledged either.
    fn stranded_at(&self, chunk: &Chunk) -> Option<u32> {
        let spans = chunk.groups().iter().flat_map(|group| group.spans().map(move |span| (group.zone, span)));
        let waits = |(zone, (start, record)): &(u32, (u32, RecordIndex))| {
            let zone = self.zones.get(*zone).filter(|z| z.stranded && record.at != LOST);
            zone.is_some_and(|z| record.at + data_blocks(record.end - start) > z.buffer.written())
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
            known(zone, z.buffer.written());
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
    pub(crate) fn checkpoint_begin(&self, log: &mut MetaLog, _guard: &CommitGuard) -> Result<()> {
        if log.progress.is_some() {
            return Ok(());
        }
        let number = log.checkpoint + 1;
        let ring = log.ring_of(number);
        let payload = CheckpointStart { number, journal: log.journal }.encode();
        let header = Header::of_payload(Kind::CheckpointStart, number, 0, &payload);
        let order = self.meta_write(log, ring, header, &payload, Cause::Checkpoint)?;
        let mut progress = Progress { number, ring, order, parts: 0, next_slot: 0, last_name: None, appended: 0 };
        let zones: Vec<ZoneEntry> = {
            let state = self.state();
            progress.appended = state.appended;
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
            if part.len() >= self.facts.part_bytes {
                self.checkpoint_part(log, &mut progress, &mut part)?;
            }
        }
        self.checkpoint_part(log, &mut progress, &mut part)?;
        // Marks take no more than a part, whatever is damaged.
        let scrub = self.state().scrub.entry(self.facts.part_bytes / 64);
        let streams = self.options.own_streams();
        let notes = [scrub.map(|scrub| scrub.encode()), (!streams.is_empty()).then(|| StreamEntry::encode(&streams))];
        for payload in notes.into_iter().flatten() {
            self.checkpoint_piece(log, &mut progress, &payload)?;
        }
        log.progress = Some(progress);
        Ok(())
    }

    fn checkpoint_part(&self, log: &mut MetaLog, progress: &mut Progress, part: &mut PartWriter) -> Result<()> {
        if part.is_empty() { Ok(()) } else { self.checkpoint_piece(log, progress, &part.finish()) }
    }

    fn checkpoint_piece(&self, log: &mut MetaLog, progress: &mut Progress, payload: &[u8]) -> Result<()> {
        let header = Header::of_payload(Kind::CheckpointPart, progress.number, progress.parts, payload);
        self.meta_write(log, progress.ring, header, payload, Cause::Checkpoint)?;
        progress.parts += 1;
        Ok(())
    }

    /// Writes one more piece. False: there is no checkpoint under way any more.
    ///
    /// # Errors
    /// Then the checkpoint is given up; the one before still counts.
    pub(crate) fn checkpoint_step(&self, log: &mut MetaLog, guard: &CommitGuard) -> Result<bool> {
        let Some(mut progress) = log.progress.take() else { return Ok(false) };
        let mut part = self.checkpoint_next(&mut progress);
        if !part.is_empty() {
            self.checkpoint_part(log, &mut progress, &mut part)?;
            log.progress = Some(progress);
            return Ok(true);
        }
        // Where a zone takes no more of its bytes, they have another place than the parts say: then it is abandoned.
        log.progress = Some(progress);
        let wrote = self.write_out(log, guard);
        let Some(progress) = log.progress.take() else { return wrote.map(|_| false) };
        wrote?;
        self.volume.sync(Cause::Checkpoint.into())?;
        let payload = CheckpointEnd { number: progress.number, parts: u64::from(progress.parts) }.encode();
        let header = Header::of_payload(Kind::CheckpointEnd, progress.number, 0, &payload);
        self.meta_write(log, progress.ring, header, &payload, Cause::Checkpoint)?;
        self.volume.sync(Cause::Checkpoint.into())?;
        self.meta_release(log, progress.ring, progress.order);
        log.checkpoint = progress.number;
        log.grown = 0;
        self.state().checkpointed = progress.appended;
        tracing::debug!(number = progress.number, parts = progress.parts, ring = progress.ring, "checkpoint written");
        Ok(false)
    }

    /// The next chunks, or, when all have had their turn, the next names; nothing when these have, too.
    fn checkpoint_next(&self, progress: &mut Progress) -> PartWriter {
        let mut part = PartWriter::default();
        let state = self.state();
        let slots = state.index.slots();
        let stranded = state.zones.active().any(|(_, z)| z.stranded);
        while progress.next_slot < slots && part.len() < self.facts.part_bytes {
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
            if part.len() >= self.facts.part_bytes {
                break;
            }
        }
        part
    }

    /// Places of records have changed that the checkpoint under way may have written already: it is not to be believed.
    pub(crate) fn checkpoint_abandon(log: &mut MetaLog) {
        log.progress = None;
    }

    /// Writes a whole checkpoint, or what is missing of the one under way; one that is abandoned meanwhile is begun anew.
    pub(crate) fn checkpoint_whole(&self, log: &mut MetaLog, guard: &CommitGuard) -> Result<()> {
        let before = log.checkpoint;
        while log.checkpoint == before {
            self.checkpoint_begin(log, guard)?;
            while self.checkpoint_step(log, guard)? {}
        }
        Ok(())
    }

    /// After a commit: begins a checkpoint when it is time for one, and writes a piece of the one that is under way; all of it,
    /// where a ring has little room left.
    pub(crate) fn checkpoint_tick(&self, log: &mut MetaLog, guard: &CommitGuard) -> Result<()> {
        let (due, size, untold) = {
            let state = self.state();
            let due = state.appended - state.checkpointed >= self.options.checkpoint_bytes;
            (due, state.index_bytes, state.fresh.cost)
        };
        let room = log.room();
        // Two checkpoints (one in each ring) and some journal have to fit whatever happens.
        let tight = room < size * 2 + untold + 6 * self.facts.part_bytes as u64 + 16 * BLOCK as u64;
        if due || tight && log.grown > 0 {
            self.checkpoint_begin(log, guard)?;
        }
        if tight && log.progress.is_some() {
            self.checkpoint_whole(log, guard)?;
            // The other ring still keeps what is older.
            let room = log.room();
            if room < size * 2 + 6 * self.facts.part_bytes as u64 + 16 * BLOCK as u64 {
                self.checkpoint_whole(log, guard)?;
            }
            return Ok(());
        }
        self.checkpoint_step(log, guard).map(drop)
    }
}
