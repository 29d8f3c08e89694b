//! Writing in place: files in conventional space, and blocks of tables that are overwritten (BlueFS §4, "Data placement").

use crate::file::core::Core;
use crate::file::extents::read_extents;
use crate::file::{File, FileState, Writing};
use crate::kind::FileKind;
use crate::meta::inline::MAX_INLINE;
use crate::meta::{Extent, Place, Record};
use crate::sync::lock;
use imbrex_device::{AlignedBuf, Cause, Code, Error, Fault, Priority, Result, Tag, Zone, ZoneId, ZoneState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// No file gets more conventional space at a time than it needs and this many bytes.
const MAX_PIECE: u64 = 16 << 20;

/// Bytes of conventional space that a file gets which has `reach` and needs `need` more, where `free` are free. It gets as much again as it has: a small
/// file wastes half of its space at most, and one that grows is in few pieces. Where little is left, it gets what it needs.
fn piece(reach: u64, need: u64, free: u64) -> u64 {
    need.max(reach.min(MAX_PIECE).min(free / 64))
}

/// Bytes of inline space that are logged at a time: what fits into a frame of the journal with a record before it.
const INLINE_BATCH: usize = 6 * MAX_INLINE;

fn inline_records(addr: u64, bytes: &[u8]) -> Vec<Record> {
    let record =
        |(i, bytes): (usize, &[u8])| Record::Inline { addr: addr + (i * MAX_INLINE) as u64, bytes: bytes.to_vec() };
    bytes.chunks(MAX_INLINE).enumerate().map(record).collect()
}

impl File {
    /// Writes at an offset of a file in conventional space, with the right to write it; a gap before it reads as zeros.
    pub(crate) fn write_in_place(&self, _: &Writing, at: u64, bytes: &[u8]) -> Result<()> {
        let state = &self.state;
        let core = &self.core;
        let end = at
            .checked_add(bytes.len() as u64)
            .filter(|end| *end < 1 << 56)
            .ok_or_else(|| Error::refused(Code::InvalidArgument, &state.name, format!("offset {at} is too large")))?;
        let size = state.size.load(Ordering::Acquire);
        core.grow(state, end)?;
        state.durable.writes_in_place();
        if at > size {
            let mut gap = size;
            let zeros = vec![0; (at - size).min(1 << 20) as usize];
            while gap < at {
                let n = (at - gap).min(zeros.len() as u64);
                core.overwrite(state, gap, &zeros[..n as usize])?;
                gap += n;
            }
        }
        core.overwrite(state, at, bytes)?;
        if end > size {
            let record = Record::Size { serial: state.serial, size: end, time: core.now(), volatile: true };
            core.log_about(state, &[record])?;
            state.size.store(end, Ordering::Release);
            state.placed.store(end, Ordering::Release);
        }
        Ok(())
    }

    /// Writes at an offset of any file: in place, or, in a table, by moving the blocks to conventional space first.
    pub(crate) fn write_at(self: &Arc<Self>, at: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (file, writing) = self.lock_current();
        let (core, state) = (&file.core, &file.state);
        match state.kind {
            FileKind::Random | FileKind::Directory => file.write_in_place(&writing, at, bytes),
            FileKind::Log => {
                let what = "a log can only be appended to; write it anew";
                Err(Error::refused(Code::NotSupported, &state.name, what))
            }
            FileKind::Table => {
                let end = at.checked_add(bytes.len() as u64);
                if end.is_none_or(|end| end > state.placed.load(Ordering::Acquire)) {
                    let what = "only written bytes of a table can be overwritten; append to it instead";
                    return Err(Error::refused(Code::NotSupported, &state.name, what));
                }
                core.move_blocks(state, at, bytes.len() as u64)?;
                state.durable.writes_in_place();
                core.overwrite(state, at, bytes)
            }
        }
    }
}

impl Core {
    /// Makes sure that extents reach `end`; where there is not so much space, the file keeps what it has.
    fn grow(&self, state: &FileState, end: u64) -> Result<()> {
        let mut reach = state.map().extents.last().map_or(0, Extent::end);
        if reach >= end {
            return Ok(());
        }
        let need = end - reach;
        let want = piece(reach, need, self.small.bytes().0);
        let mut pieces = self.take_conventional_all(need, want)?.into_iter();
        while let Some((addr, len)) = pieces.next() {
            let extent = Extent { logical: reach, len, place: Place::Conventional { addr } };
            let record = Record::Extend { serial: state.serial, extent };
            match self.log_unless_orphan(state, &[record]) {
                Ok(true) => self.refresh(state),
                Ok(false) => {
                    state.map_mut().extents.push(extent);
                    if let Some(places) = lock(&state.orphan).as_mut() {
                        places.push((addr, len));
                    }
                }
                Err(error) => {
                    self.small.give_back(addr, len);
                    pieces.for_each(|(addr, len)| self.small.give_back(addr, len));
                    return Err(error);
                }
            }
            reach += len;
        }
        Ok(())
    }

    /// Overwrites bytes that stand in inline extents: the journal first, then what readers see.
    fn overwrite_inline(&self, state: &FileState, at: u64, bytes: &[u8]) -> Result<()> {
        let extents = state.map().extents.clone();
        let end = at + bytes.len() as u64;
        for extent in extents {
            let (from, to) = (extent.logical.max(at), extent.end().min(end));
            let Place::Conventional { addr } = extent.place else { continue };
            if from < to {
                let piece = &bytes[(from - at) as usize..(to - at) as usize];
                self.write_inline(state, addr + (from - extent.logical), piece)?;
            }
        }
        Ok(())
    }

    fn write_inline(&self, state: &FileState, addr: u64, bytes: &[u8]) -> Result<()> {
        for (i, piece) in bytes.chunks(INLINE_BATCH).enumerate() {
            let addr = addr + (i * INLINE_BATCH) as u64;
            // Of a file without a name only this process has to know.
            self.log_unless_orphan(state, &inline_records(addr, piece))?;
            let mut map = state.map_mut();
            map.version += 1;
            lock(&state.inline).write(addr, piece);
        }
        Ok(())
    }

    /// Overwrites bytes that stand in conventional extents. Where a zone under them has died, what it held moves first.
    fn overwrite(&self, state: &FileState, at: u64, bytes: &[u8]) -> Result<()> {
        if self.has_inline() {
            self.overwrite_inline(state, at, bytes)?;
        } else {
            while let Some(zone) = self.overwrite_there(state, at, bytes)? {
                self.leave_zone(state, zone, (at, at + bytes.len() as u64))?;
            }
        }
        self.forget_pages(state, at, bytes.len() as u64);
        Ok(())
    }

    /// Overwrites bytes where they stand, block by block where they are not whole blocks. `Some`: that zone is dead.
    fn overwrite_there(&self, state: &FileState, at: u64, bytes: &[u8]) -> Result<Option<ZoneId>> {
        let block = u64::from(self.volume.geometry().block);
        let tag = Tag::new(Cause::Small).at(Priority::Normal);
        let mut map = state.map_mut();
        // Readers that are under way see another version and read again.
        map.version += 1;
        let end = at + bytes.len() as u64;
        let mut known = map.tail.take();
        for extent in &map.extents {
            let (from, to) = (extent.logical.max(at), extent.end().min(end));
            let Place::Conventional { addr } = extent.place else { continue };
            if from >= to {
                continue;
            }
            let (first, last) = (addr + (from - extent.logical), addr + (to - extent.logical));
            let (low, high) = (first / block * block, last.next_multiple_of(block));
            let mut buf = AlignedBuf::zeroed((high - low) as usize);
            let tail = (high - low - block) as usize;
            let head = (first != low).then_some((0, low));
            // Behind the file's end there is nothing to keep: a block that begins there is not read.
            let new = extent.logical + (high - block).saturating_sub(addr) >= state.size.load(Ordering::Acquire);
            let tail = (last != high && (tail > 0 || first == low) && !new).then_some((tail, high - block));
            for (from, here) in head.into_iter().chain(tail) {
                let out = &mut buf[from..from + block as usize];
                if let Some((_, bytes)) = known.as_ref().filter(|(at, bytes)| *at == here && bytes.len() == out.len()) {
                    out.copy_from_slice(bytes);
                } else if let Err(error) = self.volume.read(out, here, tag) {
                    return self.retire_dead(here, error).map(Some);
                }
            }
            let skip = (first - low) as usize;
            buf[skip..skip + (to - from) as usize].copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            if let Some(dead) = self.write_blocks(&buf, low, tag)? {
                return Ok(Some(dead));
            }
            let last_block = high - block;
            known = (last != high).then(|| (last_block, buf[(last_block - low) as usize..].to_vec()));
        }
        map.tail = known;
        Ok(None)
    }

    /// Writes whole blocks of conventional space. `Some`: the zone that is dead, and from now on is handed out no more.
    fn write_blocks(&self, blocks: &[u8], addr: u64, tag: Tag) -> Result<Option<ZoneId>> {
        let geometry = self.volume.geometry();
        let (mut from, end) = (addr, addr + blocks.len() as u64);
        while from < end {
            // An extent may reach over several conventional zones, a write may not.
            let id = geometry.zone_of(from);
            let to = end.min(geometry.start(id) + geometry.zone_size);
            let piece = &blocks[(from - addr) as usize..(to - addr) as usize];
            if let Err(error) = self.volume.write_conventional(piece, from, tag) {
                return self.retire_dead(from, error).map(Some);
            }
            from = to;
        }
        Ok(None)
    }

    /// A command at this address failed: where that is because its zone is dead, nothing new goes there any more. Any other
    /// error is returned; so is one of a whole drive that takes no writes.
    fn retire_dead(&self, at: u64, error: Error) -> Result<ZoneId> {
        let geometry = self.volume.geometry();
        let id = geometry.zone_of(at);
        let mut out = [Zone::EMPTY];
        if matches!(error.fault, Fault::ReadOnly | Fault::Offline) {
            self.volume.device().report(id, &mut out)?;
        }
        if !matches!(out[0].state, ZoneState::ReadOnly | ZoneState::Offline) {
            return Err(error);
        }
        tracing::warn!(%error, "a conventional zone takes no more writes: nothing new goes there");
        self.small.retire(geometry.start(id), geometry.zone_size);
        Ok(id)
    }

    /// Moves the extents that reach into a dead zone and are wanted to be overwritten in `from..to`, bytes and all. What
    /// cannot be read and is not all overwritten is an error: the file stays as it is.
    fn leave_zone(&self, state: &FileState, zone: ZoneId, (from, to): (u64, u64)) -> Result<()> {
        let geometry = self.volume.geometry();
        let (block, size) = (u64::from(geometry.block), state.size.load(Ordering::Acquire));
        let dead = geometry.start(zone)..geometry.start(zone) + geometry.zone_size;
        let extents = state.map().extents.clone();
        for extent in extents {
            let there = extent.conventional().is_some_and(|(addr, len)| addr < dead.end && addr + len > dead.start);
            if !there || extent.logical >= to || extent.end() <= from {
                continue;
            }
            let mut logical = extent.logical;
            while logical < extent.end() {
                let want = extent.end() - logical;
                let (addr, got) = self.take_conventional(want)?;
                let n = got.min(want);
                let known = n.min(size.saturating_sub(logical));
                let all_new = from <= logical && to >= logical + known;
                let fill = |buf: &mut [u8]| {
                    let buf = &mut buf[..known as usize];
                    match read_extents(self, state, &[extent], logical, buf, Tag::new(Cause::Small)) {
                        Err(_) if all_new => Ok(()),
                        read => read,
                    }
                };
                let blocks = known.next_multiple_of(block);
                let new = Extent { logical, len: n, place: Place::Conventional { addr } };
                if self.settle(state, new, (blocks, got), fill)? {
                    logical += n;
                }
            }
        }
        Ok(())
    }

    /// Fills conventional space that was taken (`got` bytes) with so many bytes of blocks, and makes it the file's. False: its
    /// zone is dead. What is not used is given back.
    fn settle(
        &self,
        state: &FileState,
        new: Extent,
        (blocks, got): (u64, u64),
        fill: impl Fn(&mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        let Place::Conventional { addr } = new.place else { return Ok(false) };
        let mut buf = AlignedBuf::zeroed(blocks as usize);
        let tag = Tag::new(Cause::Small);
        let settled = fill(&mut buf).and_then(|()| {
            if self.write_blocks(&buf, addr, tag)?.is_some() {
                return Ok(false);
            }
            // The copy must be there before the metadata says so.
            self.volume.sync(tag)?;
            self.remap(state, new, Vec::new()).map(|()| true)
        });
        self.small.give_back_behind(addr, if matches!(settled, Ok(true)) { new.len } else { 0 }, got);
        settled
    }

    fn forget_pages(&self, state: &FileState, at: u64, len: u64) {
        state.rewritten.store(true, Ordering::Release);
        *lock(&state.filling) = Default::default();
        let page = u64::from(self.cache.page_size());
        for page in at / page..(at + len).div_ceil(page) {
            self.cache.remove(state.serial, page);
        }
    }

    /// Bytes of a file stand elsewhere from now on, where `contents`, in one step with that, puts them. Of a file without a
    /// name only this process has to know.
    fn remap(&self, state: &FileState, new: Extent, contents: Vec<Record>) -> Result<()> {
        let Extent { logical, len, place } = new;
        let mut records = vec![Record::Remap { serial: state.serial, logical, len, place }];
        records.extend(contents);
        if self.log_unless_orphan(state, &records)? {
            self.refresh(state);
            return Ok(());
        }
        let mut map = state.map_mut();
        let extents = crate::meta::remapped(&map.extents, new).map_err(|e| e.at(&state.name))?;
        map.set_extents(extents);
        if let (Place::Conventional { addr }, Some(places)) = (place, lock(&state.orphan).as_mut()) {
            // The zone that it stood in goes with the last handle, as before.
            places.push((addr, len));
        }
        Ok(())
    }

    /// Moves the blocks of a table that hold `at..at + len` to conventional space.
    fn move_blocks(&self, state: &FileState, at: u64, len: u64) -> Result<()> {
        let block = u64::from(self.volume.geometry().block);
        let size = state.size.load(Ordering::Acquire);
        let extents = state.map().extents.clone();
        for extent in extents {
            let (from, to) = (extent.logical.max(at), extent.end().min(at + len));
            if from >= to || matches!(extent.place, Place::Conventional { .. }) {
                continue;
            }
            // Inline space is not cut into blocks: only what is overwritten goes there.
            let align = if self.has_inline() { 1 } else { block };
            let most = if self.has_inline() { INLINE_BATCH as u64 } else { u64::MAX };
            let low = extent.logical.max(from / align * align);
            let high = extent.end().min(to.next_multiple_of(align)).min(size);
            let mut logical = low;
            while logical < high {
                let want = (high - logical).min(most);
                let (addr, got) = self.take_conventional(want.next_multiple_of(block))?;
                let n = got.min(want);
                let read = |buf: &mut [u8]| {
                    read_extents(self, state, &[extent], logical, &mut buf[..n as usize], Tag::new(Cause::Small))
                };
                let new = Extent { logical, len: n, place: Place::Conventional { addr } };
                if !self.has_inline() {
                    if self.settle(state, new, (n.next_multiple_of(block), got), read)? {
                        logical += n;
                    }
                    continue;
                }
                let mut buf = vec![0; n as usize];
                let moved = read(&mut buf).and_then(|()| {
                    lock(&state.inline).write(addr, &buf);
                    self.remap(state, new, inline_records(addr, &buf))
                });
                self.small.give_back_behind(addr, if moved.is_ok() { n } else { 0 }, got);
                moved?;
                logical += n;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_as_much_conventional_space_again_as_it_has() {
        let free = 100 << 30;
        assert_eq!(piece(0, 1, free), 1);
        assert_eq!((piece(4096, 1, free), piece(1 << 20, 5, free)), (4096, 1 << 20));
        assert_eq!((piece(1 << 30, 1, free), piece(1 << 30, 17 << 20, free)), (16 << 20, 17 << 20));
        assert_eq!((piece(1 << 20, 1, 128 << 10), piece(1 << 20, 3000, 0)), (2048, 3000), "where little is left");
    }
}
