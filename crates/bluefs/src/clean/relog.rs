//! Cleaning zones of logs. A frame names its place, so a log is not copied block by block as a table is: its bytes are read from their
//! frames, and written in new ones, as long as they may be. What many small syncs had padded takes a fraction of its room then.
//!
//! A crash before the record that moves them leaves copies that the journal never heard of, in a zone where other bytes of the same
//! log may stand. Whoever looks for an extent's frames passes over those that hold none of its bytes ([`crate::file::log::is_of`]); no copy is
//! written to a zone before it is durable where the logs end that stand there.

use crate::clean::{Moved, Moving, Piece, Step, TAG};
use crate::file::log::LogIndex;
use crate::kind::FileKind;
use crate::meta::{Extent, MOVED_FRAME, Meta, Place, Serial, framed_bytes};
use imbrex_device::{AlignedBuf, Result, ZoneId};
use imbrex_zones::frame::{FRAME_HEADER, Frame, FrameId};
use imbrex_zones::{OpenZone, ZoneHeader};
use std::collections::BTreeSet;

/// What is moved to empty a zone of logs: runs of bytes of those that stand there. Where bytes before or behind them stand in crumbs, here or
/// elsewhere, these move along: a log that gave up its zone with every few bytes is in one piece again.
pub(crate) fn runs(meta: &Meta, zone: u32) -> Vec<Piece> {
    let logs: BTreeSet<Serial> = meta.pieces(zone).map(|piece| piece.serial).collect();
    let mut runs = Vec::new();
    for inode in logs.into_iter().filter_map(|serial| meta.inode(serial)) {
        let is_there = |extent: &Extent| extent.place.zone().is_some_and(|(there, _)| there == zone);
        let moves = |extent: &Extent| {
            let framed = matches!(extent.place, Place::Framed { .. });
            framed && !extent.is_open() && (is_there(extent) || extent.len < MOVED_FRAME)
        };
        let follows = |a: &Extent, b: &Extent| moves(a) && moves(b) && a.end() == b.logical;
        let wanted = |run: &&[Extent]| run.iter().all(moves) && run.iter().any(is_there);
        let name = meta.name_of(inode.serial).map_or(String::new(), |(_, name)| name.to_string());
        runs.extend(inode.extents.chunk_by(follows).filter(wanted).map(|run| Piece {
            serial: inode.serial,
            extents: run.to_vec(),
            name: name.clone(),
            created: inode.created,
        }));
    }
    runs
}

impl Moving<'_> {
    /// Copies bytes of a log, in as many stretches as it takes.
    pub(super) fn copy_log(&self, step: &mut Step, piece: &Piece, moved: &mut Vec<Moved>) -> Result<()> {
        let (Some(first), Some(last)) = (piece.extents.first(), piece.extents.last()) else { return Ok(()) };
        let (mut at, end) = (first.logical, last.end());
        let created = self.created_there(first, piece);
        let mut index = LogIndex::default();
        while at < end {
            let block = u64::from(self.core.volume.geometry().block);
            let mut into = self.room(step, self.core.front + framed_bytes(end - at, block))?;
            let front = self.front(piece, FileKind::Log, &into, at, created);
            let copied = self.copy_frames(step, piece, &mut into, &front, &mut index, (at, end));
            let new = self.went_on(step, into, copied)?;
            at = new.end();
            moved.push(Moved { serial: piece.serial, old: piece.extents.clone(), new });
        }
        Ok(())
    }

    /// When the stretch began: a rescue of a damaged journal tells older bytes of a log from newer ones by that, and a copy is no newer than what
    /// it is a copy of.
    fn created_there(&self, first: &Extent, piece: &Piece) -> u64 {
        let Place::Framed { zone, offset, .. } = first.place else { return piece.created };
        let (volume, front) = (&self.core.volume, self.core.front);
        let mut block = AlignedBuf::zeroed(front as usize);
        let read = volume.read(&mut block, volume.geometry().start(ZoneId(zone)) + offset.saturating_sub(front), TAG);
        let header = read.ok().and_then(|()| ZoneHeader::decode(&block)).filter(|header| header.file == piece.serial);
        header.map_or(piece.created, |header| header.created)
    }

    /// Writes a header and frames of bytes `at..end` to a zone, as many as it takes; where they are.
    fn copy_frames(
        &self,
        step: &mut Step,
        piece: &Piece,
        into: &mut OpenZone,
        front: &[u8],
        index: &mut LogIndex,
        (from, end): (u64, u64),
    ) -> Result<Extent> {
        let (volume, tag) = (&self.core.volume, self.tag());
        volume.write_sequential(into, front, tag)?;
        let block = u64::from(volume.geometry().block);
        let place = Place::Framed { zone: into.zone.0, life: into.life, offset: into.at };
        let (mut at, mut back, mut sequence) = (from, 0, 0);
        while at < end {
            let room = (into.capacity - into.at) / block * block;
            let most = room.min(MOVED_FRAME).saturating_sub(FRAME_HEADER as u64);
            let n = most.min(end - at) as usize;
            if n == 0 {
                break;
            }
            let mut buf = AlignedBuf::zeroed((FRAME_HEADER + n).next_multiple_of(block as usize));
            let payload = &mut buf[FRAME_HEADER..FRAME_HEADER + n];
            let mut done = 0;
            while done < n {
                let here = at + done as u64;
                let read = index.read(volume, piece.serial, &piece.extents, here, &mut payload[done..], tag);
                done += read.inspect_err(|_| step.unread = true)?;
            }
            let payload_crc = crc32c::crc32c(payload);
            let frame = Frame { sequence, logical: at, at: into.at, len: n as u32, back, payload_crc };
            let id = FrameId { file: piece.serial, life: into.life };
            buf[..FRAME_HEADER].copy_from_slice(&frame.encode(id));
            volume.write_sequential(into, &buf, tag)?;
            (back, sequence) = (frame.footprint(block as u32) as u32, sequence + 1);
            at += n as u64;
        }
        Ok(Extent { logical: from, len: at - from, place })
    }
}
