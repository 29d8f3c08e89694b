//! Keeping data right: the full check, and the scrub, which is the same in steps.

pub(crate) mod losses;
pub(crate) mod scrub;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::entry::{ChunkEnd, LOST};
use crate::format::id::ChunkId;
use crate::format::{BLOCK, HEADER, Header, data_blocks};
use crate::zone::ZoneState;
use imbrex_device::{AlignedBuf, Cause, Fault, Priority, Tag, ZoneId};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Chunks that were looked at.
    pub chunks: u64,
    /// Their records.
    pub records: u64,
    /// Bytes of chunks that are what was written.
    pub bytes: u64,
    /// What is wrong, a sentence each.
    pub problems: Vec<String>,
}

/// One step of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStep {
    /// Where the next one goes on; `None`: all chunks have been looked at.
    pub next: Option<ChunkId>,
    /// Bytes that were verified.
    pub bytes: u64,
    /// What is wrong, a sentence each.
    pub problems: Vec<String>,
}

/// A record that is not what was written.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) id: ChunkId,
    pub(crate) serial: u64,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) zone: u32,
    what: &'static str,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Problem { id, start, zone, what, .. } = self;
        let len = self.end - self.start;
        write!(f, "Chunk {id}, offset {start}: {what} (zone {zone}, {len} bytes); restore it from a copy.")
    }
}

/// What was verified of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Bytes that are what was written, and all that were looked at.
    pub(crate) whole: u64,
    pub(crate) looked: u64,
    pub(crate) records: u64,
    /// Where it goes on; `None`: that is all of the chunk.
    pub(crate) next: Option<u32>,
}

/// A record as the index has it.
#[derive(Clone, Copy)]
struct Indexed {
    zone: u32,
    life: u64,
    start: u32,
    end: u32,
    at: u32,
}

impl Core {
    pub(crate) fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport> {
        let mut report = CheckReport { problems: self.check_zones(), ..CheckReport::default() };
        report.problems.extend(self.check_names());
        report.problems.extend(self.volume.check_labels()?);
        // Both copies of the metadata. Changes wait meanwhile.
        report.problems.extend(self.commits.lead().log().reread()?.skipped);
        let mut after = None;
        loop {
            let (page, all) = {
                let state = self.state();
                let page: Vec<ChunkId> = state.index.range(after.as_ref()).take(256).map(|chunk| chunk.id).collect();
                (page, state.index.len() as u64)
            };
            let Some(last) = page.last() else { break };
            after = Some(*last);
            for id in page {
                let mut problems = Vec::new();
                let seen = self.verify_chunk(id, 0, u64::MAX, Cause::Check, &mut problems)?;
                report.problems.extend(problems.iter().map(Problem::to_string));
                report.problems.extend(self.check_end(id));
                report.chunks += 1;
                report.records += seen.records;
                report.bytes += seen.whole;
                progress(report.chunks, all.max(report.chunks));
            }
        }
        Ok(report)
    }

    pub(crate) fn scrub(&self, after: Option<ChunkId>, most: u64) -> Result<ScrubStep> {
        let mut step = ScrubStep { next: after, ..ScrubStep::default() };
        loop {
            let id = self.state().index.range(step.next.as_ref()).next().map(|chunk| chunk.id);
            let Some(id) = id else {
                step.next = None;
                return Ok(step);
            };
            let mut problems = Vec::new();
            step.bytes += self.verify_chunk(id, 0, u64::MAX, Cause::Check, &mut problems)?.whole;
            step.problems.extend(problems.iter().map(Problem::to_string));
            step.problems.extend(self.check_end(id));
            self.counters.damaged.fetch_add(problems.len() as u64, Ordering::Relaxed);
            step.next = Some(id);
            if step.bytes >= most {
                return Ok(step);
            }
        }
    }

    /// A sentence, where it is not known whether that is all of the chunk.
    fn check_end(&self, id: ChunkId) -> Option<String> {
        let state = self.state();
        let chunk = state.index.find(&id).and_then(|slot| state.index.chunk(slot))?;
        let len = chunk.len;
        (chunk.end != ChunkEnd::Known)
            .then(|| format!("Chunk {id}, offset {len}: what was appended last may be lost; compare it with a copy."))
    }

    /// Verifies the records of a chunk from the one at offset `at` on, about `most` bytes. What has moved meanwhile is looked for again.
    pub(crate) fn verify_chunk(
        &self,
        id: ChunkId,
        mut at: u32,
        most: u64,
        cause: Cause,
        problems: &mut Vec<Problem>,
    ) -> Result<Seen> {
        let mut seen = Seen::default();
        loop {
            if seen.looked >= most {
                return Ok(Seen { next: Some(at), ..seen });
            }
            let (record, serial) = {
                let state = self.state();
                let Some(chunk) = state.index.find(&id).and_then(|slot| state.index.chunk(slot)) else { break };
                let (Some(found), serial) = (chunk.find(at), chunk.serial) else { break };
                let Some(life) = state.zones.get(found.zone).map(|z| z.life) else {
                    let what = "its zone is not one of the store's";
                    let (start, end, zone) = (found.start, found.end, found.zone);
                    problems.push(Problem { id, serial, start, end, zone, what });
                    at = found.end;
                    continue;
                };
                if found.at != LOST && found.at + data_blocks(found.end - found.start) > state.written(found.zone) {
                    // Still in memory, or on its way to the drive command by command.
                    at = found.end;
                    continue;
                }
                self.tenant.pin(ZoneId(found.zone));
                (Indexed { zone: found.zone, life, start: found.start, end: found.end, at: found.at }, serial)
            };
            let whole = self.verify_record(id, serial, record, cause);
            self.tenant.unpin(ZoneId(record.zone));
            let Indexed { zone, start, end, .. } = record;
            let len = u64::from(end - start);
            seen.records += 1;
            seen.looked += len;
            match whole? {
                None => seen.whole += len,
                Some(what) => problems.push(Problem { id, serial, start, end, zone, what }),
            }
            at = end;
        }
        Ok(seen)
    }

    /// `None`: the record is what was written; else what is wrong with it.
    fn verify_record(&self, id: ChunkId, serial: u64, record: Indexed, cause: Cause) -> Result<Option<&'static str>> {
        if record.at == LOST {
            return Ok(Some("its bytes are lost"));
        }
        let mut image = AlignedBuf::zeroed(data_blocks(record.end - record.start) as usize * BLOCK);
        let address = self.address(record.zone) + u64::from(record.at) * BLOCK as u64;
        match self.volume.read(&mut image, address, Tag::new(cause).at(Priority::Background)) {
            Ok(()) => {}
            Err(error) if matches!(error.fault, Fault::Media { .. }) => return Ok(Some("it cannot be read")),
            Err(error) if matches!(error.fault, Fault::Offline) => return Ok(Some("its zone is offline")),
            Err(error) => return Err(Error::Drive(error)),
        }
        let Ok(header) = Header::decode(&image, record.life, record.at) else {
            return Ok(Some("its record's header is damaged"));
        };
        let same = (header.chunk, header.serial, header.offset) == (id, serial, record.start)
            && header.data == record.end - record.start;
        Ok(match (same, header.verify(&image[HEADER..])) {
            (false, _) => Some("another record stands there"),
            (true, false) => Some("its bytes are damaged"),
            (true, true) => None,
        })
    }

    /// What is wrong with the zone table: it must say of each zone what the chunks do.
    fn check_zones(&self) -> Vec<String> {
        let state = self.state();
        let mut problems = Vec::new();
        let mut held: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        let mut groups: BTreeMap<u32, usize> = BTreeMap::new();
        for chunk in state.index.range(None) {
            for group in chunk.groups() {
                *groups.entry(group.zone).or_default() += 1;
                let records = group.spans().filter(|(_, r)| r.at != LOST);
                held.entry(group.zone)
                    .or_default()
                    .extend(records.map(|(start, r)| (r.at, data_blocks(r.end - start))));
            }
        }
        for (zone, mut records) in held {
            records.sort_unstable();
            let Some(z) = state.zones.get(zone) else {
                problems.push(format!("Zone {zone} holds chunks and is not one of the store's."));
                continue;
            };
            let live: u32 = records.iter().map(|(_, blocks)| blocks).sum();
            let listed = groups.get(&zone).copied().unwrap_or(0);
            if live != z.live_blocks || listed != z.live.len() {
                let (blocks, list) = (z.live_blocks, z.live.len());
                problems.push(format!(
                    "Zone {zone} has {live} live blocks in {listed} groups; {blocks} in {list} are known."
                ));
            }
            if records.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
                problems.push(format!("In zone {zone} records overlap."));
            }
            if !z.state().is_open() && z.state() != ZoneState::Closed {
                problems.push(format!("Zone {zone} holds chunks and is {}.", z.state().name()));
            }
            // After the zone's last record nothing can be; that of a closed zone from before is not known.
            if z.state().is_open() && records.last().is_some_and(|(at, blocks)| at + blocks > z.tail) {
                problems.push(format!("Zone {zone} holds records behind its end."));
            }
        }
        for (zone, z) in state.zones.all() {
            if z.live_blocks > 0 && !groups.contains_key(zone) {
                problems.push(format!("Zone {zone} has live blocks of no chunk."));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use crate::format::{BLOCK, data_blocks};
    use crate::{Append, ChunkId, ChunkStore, Durability, FormatOptions, Options, StreamType};
    use imbrex_device::{AlignedBuf, Drive, ZoneId};
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, OpenZone, VolumeOptions};
    use std::sync::Arc;

    /// What is longer than a command is on the drive in part for a while.
    #[test]
    fn a_record_that_is_on_its_way_is_not_damaged() {
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        ChunkStore::format(&drive, &FormatOptions::default()).unwrap();
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let store = ChunkStore::open(drive, Options { volume, buffer_bytes: 8 << 20, ..Options::default() }).unwrap();
        let id = ChunkId::of_number(1);
        store.create(id, StreamType::DATA).unwrap();
        let how = Append { offset: None, durability: Durability::Buffered };
        store.append_with(id, &[7; 40_000], how).unwrap();
        let place = store.places(id).unwrap()[0];
        let at = (place.at.unwrap() / BLOCK as u64) as u32;
        for block in [at, at + 1, at + 9] {
            let written = u64::from(block) * BLOCK as u64;
            let end = place.at.unwrap() + u64::from(data_blocks(40_000)) * BLOCK as u64;
            let zone = OpenZone { zone: ZoneId(place.zone), life: 1, at: written, capacity: end };
            store.core.writer.open(zone);
            store.core.writer.push(place.zone, AlignedBuf::zeroed((end - written) as usize).into()).unwrap();
            assert_eq!(store.check(|_, _| {}).unwrap().problems, Vec::<String>::new(), "up to block {block}");
            assert_eq!(store.scrub_on(u64::MAX).unwrap().problems, Vec::<String>::new(), "up to block {block}");
        }
    }
}
