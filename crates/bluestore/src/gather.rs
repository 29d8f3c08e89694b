//! Bytes of an object, gathered from where they are.
//!
//! All extents of a range are resolved first. What has no place is in memory or in the key-value store. The rest is read in the order of the drive, in few commands ([`parts`](crate::parts)),
//! and compared with its checksums. A command that reads one stretch of the object, and nothing else, reads straight to where the caller wants it. What was wrong, or failed with others, is
//! read again alone: so damage costs those only who want what is damaged.

use crate::blob::{BLOCK, Blob, BlobId, LOST, Run};
use crate::core::{Core, is_of_bytes};
use crate::fetch::Wanted;
use crate::keyvalue::Family;
use crate::onode::{Extent, Onode, SPAN, Span, span_key};
use crate::parts::{Ask, Command, Got, Stand};
use imbrex_device::{AlignedBuf, Cause, Fault, Result};
use imbrex_zones::write::PooledBuf;
use std::ops::Range;
use std::sync::Arc;

/// Blocks that are resolved at once, 16 MiB: their records are in memory.
const AT_ONCE: u64 = 64 * SPAN;
/// Bytes that are read at once by several commands. A command may read much that nobody wants.
const MOST: usize = 16 << 20;

/// A part of an extent.
struct Part {
    extent: Extent,
    /// The object's block where it begins.
    at: u64,
}

/// Whole grains that are to be read for a part, and that stand together.
struct Grains<'a> {
    part: &'a Part,
    blob: &'a Arc<Blob>,
    first: u32,
}

/// What a caller wants: from a byte of the object on, what goes there.
struct Out<'a> {
    offset: u64,
    bytes: &'a mut [u8],
}

/// Where a command reads to.
enum To {
    /// This part of what the caller wants.
    Straight(Range<usize>),
    Memory(PooledBuf),
}

fn bytes_of(blocks: u32) -> usize {
    blocks as usize * BLOCK as usize
}

impl Part {
    /// Whether these blocks of its blob are all its own.
    fn has(&self, first: u32, blocks: u32) -> bool {
        let Extent { first: own, blocks: len, .. } = self.extent;
        own <= first && first + blocks <= own + len
    }

    /// The object's byte where a block of its blob stands.
    fn byte(&self, block: u32) -> u64 {
        (self.at + u64::from(block - self.extent.first)) * BLOCK
    }
}

impl Out<'_> {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Bytes of the object between two offsets, as far as they are wanted.
    fn range(&mut self, from: u64, to: u64) -> &mut [u8] {
        let (from, to) = (from.max(self.offset), to.min(self.end()));
        let to = to.max(from) - self.offset;
        self.bytes.get_mut((from - self.offset) as usize..to as usize).unwrap_or_default()
    }

    /// What is between these parts is zeros.
    fn clear_holes(&mut self, parts: &[Part]) {
        let mut at = self.offset;
        for part in parts {
            let from = part.at * BLOCK;
            if at < from {
                self.range(at, from).fill(0);
            }
            at = from + u64::from(part.extent.blocks) * BLOCK;
        }
        if at < self.end() {
            self.range(at, u64::MAX).fill(0);
        }
    }

    /// These blocks of the part's blob, as extents name them, from `first` on.
    fn put(&mut self, part: &Part, first: u32, blocks: &[u8]) {
        let Extent { first: own, blocks: len, .. } = part.extent;
        let end = (first + (blocks.len() as u64 / BLOCK) as u32).min(own + len);
        let begin = first.max(own);
        if begin >= end {
            return;
        }
        let (from, to) = (part.byte(begin), part.byte(begin) + bytes_of(end - begin) as u64);
        let skip = bytes_of(begin - first) as u64 + self.offset.saturating_sub(from);
        let to = self.range(from, to);
        let len = to.len();
        to.copy_from_slice(&blocks[skip as usize..skip as usize + len]);
    }
}

impl Core {
    /// Bytes of an object from an offset on. False: something was not where it was.
    pub fn read_range(&self, onode: &Onode, offset: u64, out: &mut [u8]) -> Result<bool> {
        let (end, mut at) = (offset + out.len() as u64, offset);
        while at < end {
            let to = end.min((at / BLOCK / AT_ONCE + 1) * AT_ONCE * BLOCK);
            let bytes = &mut out[(at - offset) as usize..(to - offset) as usize];
            if !self.gather(onode, &mut Out { offset: at, bytes })? {
                return Ok(false);
            }
            at = to;
        }
        Ok(true)
    }

    /// Parts of extents that have a range of bytes, in order.
    fn parts(&self, onode: &Onode, bytes: Range<u64>) -> Result<Vec<Part>> {
        let (first, end) = (bytes.start / BLOCK, bytes.end.div_ceil(BLOCK));
        let keys: Vec<_> =
            ((first / SPAN).max(1)..end.div_ceil(SPAN)).map(|span| span_key(onode.number, span)).collect();
        let others: Vec<Option<Arc<Span>>> = self.look_up_all(&keys)?;
        let mut parts = Vec::new();
        let mut add = |begin: u64, span: &Span| {
            let (from, to) = (first.max(begin) - begin, end.min(begin + SPAN) - begin);
            let extents = span.0.iter().filter_map(|extent| extent.part(from as u32, to as u32));
            parts.extend(extents.map(|extent| Part { extent, at: begin + u64::from(extent.at) }));
        };
        if first < SPAN {
            add(0, &onode.first);
        }
        for (n, span) in others.into_iter().enumerate() {
            if let Some(span) = span {
                add(((first / SPAN).max(1) + n as u64) * SPAN, &span);
            }
        }
        Ok(parts)
    }

    fn gather(&self, onode: &Onode, out: &mut Out<'_>) -> Result<bool> {
        let parts = self.parts(onode, out.offset..out.end())?;
        out.clear_holes(&parts);
        // Before the records: what has a place by then is right here, too.
        let memory: Vec<Option<Arc<AlignedBuf>>> = {
            let state = self.state();
            let of = |part: &Part| {
                let id = &part.extent.blob;
                state.bytes.get(id).or_else(|| state.deferred.get(*id)).cloned()
            };
            parts.iter().map(of).collect()
        };
        let mut ids: Vec<BlobId> = parts.iter().map(|part| part.extent.blob).collect();
        ids.sort_unstable();
        ids.dedup();
        let Some(blobs) = self.blobs_in_order(&ids)? else { return Ok(false) };
        let (mut grains, mut stands) = (Vec::new(), Vec::new());
        for (part, memory) in parts.iter().zip(memory) {
            let Some(blob) = ids.binary_search(&part.extent.blob).ok().and_then(|n| blobs.get(n)) else {
                return Ok(false);
            };
            let runs = if memory.is_none() { self.on_drive(part, blob) } else { None };
            let Some(runs) = runs else {
                let Extent { first, blocks, blob: id, .. } = part.extent;
                let deferred = || self.get(Family::Deferred, &id.key());
                let bytes = memory.as_ref().map(|bytes| &bytes[..]);
                let Some(found) = self.fetch((blob, first, blocks), bytes, deferred)? else { return Ok(false) };
                out.put(part, first, &found);
                continue;
            };
            for run in runs {
                let Some(place) = run.place else { return Ok(false) };
                grains.push(Grains { part, blob, first: run.first });
                stands.push(Stand { place, blocks: run.blocks });
            }
        }
        self.read_stands(&grains, &stands, out)
    }

    /// Records of blobs, in the order of their numbers. `None`: one is not there.
    fn blobs_in_order(&self, ids: &[BlobId]) -> Result<Option<Vec<Arc<Blob>>>> {
        let keys: Vec<_> = ids.iter().map(BlobId::key).collect();
        Ok(self.look_up_all(&keys)?.into_iter().collect())
    }

    /// Where the grains of a part stand. `None`: not all of them have a place.
    fn on_drive(&self, part: &Part, blob: &Blob) -> Option<Vec<Run>> {
        let Extent { first, blocks, .. } = part.extent;
        if !blob.has(first, blocks) {
            return None;
        }
        let (from, len) = blob.whole(first, blocks);
        let runs = blob.find(from, len)?;
        let whole = !blob.is_compressed() || runs.len() == 1;
        (whole && runs.iter().all(|run| run.place.is_some_and(|place| place.zone != LOST.zone))).then_some(runs)
    }

    /// Reads what stands on the drive.
    fn read_stands(&self, grains: &[Grains<'_>], stands: &[Stand], out: &mut Out<'_>) -> Result<bool> {
        let (order, commands) = self.commands(stands);
        let at_once = if self.helpers_for(commands.len()) > 0 { MOST } else { 0 };
        let mut rest = &commands[..];
        while let Some(first) = rest.first() {
            let mut bytes = first.len();
            let more = rest[1..].iter().take_while(|command| {
                bytes += command.len();
                bytes <= at_once
            });
            let (commands, behind) = rest.split_at(1 + more.count());
            rest = behind;
            let mut tos: Vec<To> = commands
                .iter()
                .map(|command| {
                    let of = order[command.wanted.clone()].iter().map(|n| (&grains[*n], &stands[*n]));
                    let straight = self.straight(of, command, out);
                    straight.map_or_else(|| To::Memory(self.data.records.memory(command.len())), To::Straight)
                })
                .collect();
            let gots = self.ask_for(commands, &mut tos, out);
            for ((command, to), got) in commands.iter().zip(&tos).zip(gots) {
                let of = order[command.wanted.clone()].iter().map(|n| (&grains[*n], &stands[*n]));
                if !self.take(command, of, (to, got), out)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The part of what is wanted that a command reads, if it reads that and nothing else.
    fn straight<'a>(
        &self,
        wanted: impl Iterator<Item = (&'a Grains<'a>, &'a Stand)>,
        command: &Command,
        out: &Out<'_>,
    ) -> Option<Range<usize>> {
        let (mut begin, mut block) = (None, command.blocks.start);
        for (grains, stand) in wanted {
            if grains.blob.is_compressed() || !grains.part.has(grains.first, stand.blocks) || stand.place.block != block
            {
                return None;
            }
            let byte = grains.part.byte(grains.first).checked_sub(out.offset)?;
            let begin = *begin.get_or_insert(byte);
            if byte != begin + u64::from(block - command.blocks.start) * BLOCK {
                return None;
            }
            block += stand.blocks;
        }
        let begin = begin? as usize;
        let to = out.bytes.get(begin..begin.checked_add(command.len())?)?;
        let align = self.tenant.volume().geometry().mem_align as usize;
        (block == command.blocks.end && (to.as_ptr() as usize).is_multiple_of(align.max(1)))
            .then_some(begin..begin + command.len())
    }

    /// Carries commands out. Parts that are read straight to are apart from one another, since extents are.
    fn ask_for(&self, commands: &[Command], tos: &mut [To], out: &mut Out<'_>) -> Vec<Got> {
        let mut order: Vec<usize> = (0..commands.len()).collect();
        order.sort_by_key(|n| if let To::Straight(range) = &tos[*n] { range.start } else { 0 });
        let mut into: Vec<Option<&mut [u8]>> = commands.iter().map(|_| None).collect();
        let (mut rest, mut at) = (&mut *out.bytes, 0);
        for n in order {
            if let To::Straight(range) = &tos[n] {
                let Some((_, from)) = rest.split_at_mut_checked(range.start.wrapping_sub(at)) else { break };
                let Some((to, behind)) = from.split_at_mut_checked(range.len()) else { break };
                into[n] = Some(to);
                (rest, at) = (behind, range.end);
            }
        }
        let gone = |command| Ask { command, into: &mut [], got: Got::Gone };
        let mut asks: Vec<Ask<'_>> = Vec::with_capacity(commands.len());
        for ((command, to), into) in commands.iter().zip(tos).zip(into) {
            asks.push(match (to, into) {
                (To::Memory(memory), _) => Ask { into: &mut memory[..], ..gone(command) },
                (To::Straight(_), Some(into)) => Ask { into, ..gone(command) },
                (To::Straight(_), None) => gone(command),
            });
        }
        self.ask(&mut asks, Cause::UserRead);
        asks.into_iter().map(|ask| ask.got).collect()
    }

    /// Compares what a command has read with its checksums, and puts it where it is wanted. What was wrong is read alone.
    fn take<'a>(
        &self,
        command: &Command,
        wanted: impl Iterator<Item = (&'a Grains<'a>, &'a Stand)>,
        (to, got): (&To, Got),
        out: &mut Out<'_>,
    ) -> Result<bool> {
        let alone = command.wanted.len() == 1;
        let failed = match got {
            Got::Gone => return Ok(false),
            Got::Bytes => false,
            Got::Failed(error) if alone && (!is_of_bytes(&error) || matches!(error.fault, Fault::Offline)) => {
                return Err(error);
            }
            Got::Failed(_) => true,
        };
        let (mut others, mut again) = (!alone && failed, false);
        for (grains, stand) in wanted {
            let (blob, of) = (&**grains.blob, (&**grains.blob, grains.first, stand.blocks));
            if !failed {
                let read = match to {
                    To::Memory(memory) => command.part(stand, memory),
                    To::Straight(range) => out.bytes.get(range.clone()).and_then(|read| command.part(stand, read)),
                };
                let Some(read) = read else { return Ok(false) };
                if blob.verify(grains.first, read).is_none() {
                    if let To::Memory(memory) = to
                        && let Some(read) = command.part(stand, memory)
                    {
                        self.put(grains, read, out)?;
                    }
                    continue;
                }
            }
            let found = if failed && !alone { self.fetch_apart(of, &mut again)? } else { self.fetch_again(of)? };
            let Some(found) = found else { return Ok(false) };
            self.put(grains, &found, out)?;
            others &= !again;
        }
        if others {
            // The command failed, and each of its parts did not.
            self.again.count(true);
        }
        Ok(true)
    }

    /// Puts stored grains, which are right, where they are wanted.
    fn put(&self, grains: &Grains<'_>, stored: &[u8], out: &mut Out<'_>) -> Result<()> {
        if !grains.blob.is_compressed() {
            out.put(grains.part, grains.first, stored);
            return Ok(());
        }
        let all = grains.blob.decompressed(stored);
        out.put(grains.part, 0, &all.ok_or_else(|| self.corrupt("compressed bytes of an object"))?);
        Ok(())
    }

    /// The same as [`Core::fetch_stored`] of blocks that have a place and that a command for others, too, did not give. `again` is set where it was read more often than this once.
    fn fetch_apart(&self, wanted: Wanted<'_>, again: &mut bool) -> Result<Option<AlignedBuf>> {
        let before = self.again.counts();
        let found = self.fetch_stored(wanted, None, || Ok(None));
        *again |= self.again.counts() != before;
        found
    }
}
