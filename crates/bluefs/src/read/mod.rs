//! Reading files: from memory, from the cache, from the drive.
//!
//! A missed page is read by one command, with its missed neighbours that are wanted too. A miss right behind the last run
//! of misses is a stream: the run then doubles, up to [`MAX_READAHEAD`], so that a compaction that reads 4 KiB at a time
//! seeks once for 2 MiB (BlueFS §5.1). A miss at random reads what stands around it, while the cache has room and the drive rotates.

use crate::ahead::{Source, Streams};
use crate::file::File;
use crate::file::extents::read_extents;
use crate::kind::FileKind;
use crate::sync::lock;
use imbrex_device::{AlignedBuf, Cause, Result, Tag};
use imbrex_zones::cache::Views;
use imbrex_zones::write::{Where, Writer as _};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Bytes of a [span](crate::Reader::span).
pub const SPAN: u64 = 256 << 10;

/// Longest run that is read ahead, in bytes.
pub const MAX_READAHEAD: u64 = 2 << 20;

/// Streams that one handle keeps apart.
const STREAMS: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    next_page: u64,
    pages: u64,
    age: u64,
}

/// Streams of misses of one handle.
#[derive(Debug, Default)]
pub(crate) struct Readahead {
    runs: [Run; STREAMS],
    clock: u64,
    streams: Streams,
    /// Pages that were read ahead and not used yet.
    brought: Vec<Range<u64>>,
    /// The last miss at random brought what stood around it, so the next read of a stream may be no miss.
    around: bool,
}

/// Pieces of a handle that are remembered until they are used.
const BROUGHT: usize = 256;

impl Readahead {
    /// A miss at `page`, of `wanted` pages: how many to read. Pure policy.
    fn run(&mut self, page: u64, wanted: u64, max: u64) -> u64 {
        self.clock += 1;
        let age = self.clock;
        if let Some(run) = self.runs.iter_mut().find(|r| r.pages > 0 && r.next_page == page) {
            let pages = (run.pages * 2).max(wanted).min(max.max(wanted));
            *run = Run { next_page: page + pages, pages, age };
            return pages;
        }
        if let Some(oldest) = self.runs.iter_mut().min_by_key(|r| r.age) {
            *oldest = Run { next_page: page + wanted, pages: wanted, age };
        }
        wanted
    }
}

impl File {
    /// Bytes of a table where they stand in memory, as long as the file is open; `None`: they have to be read.
    pub(crate) fn view(&self, at: u64, len: usize) -> Option<&[u8]> {
        self.core.cache.view(self.views()?, self.state.serial, at, len)
    }

    /// The same of a span.
    pub(crate) fn span(&self, span: u64) -> Option<&[u8]> {
        let cache = &self.core.cache;
        if cache.span_size() != SPAN {
            return None;
        }
        cache.span(self.views()?, self.state.serial, span)
    }

    fn views(&self) -> Option<&Views> {
        if self.state.kind != FileKind::Table || self.state.rewritten.load(Ordering::Acquire) {
            return None;
        }
        match self.views.get() {
            // It is still being written: no page below its size changes, but there would be no slots for the rest of it.
            None if self.writer().is_some() => None,
            None => Some(self.views.get_or_init(|| self.core.cache.views(self.state.size.load(Ordering::Acquire)))),
            views => views,
        }
    }

    /// What readers hold in memory, where it is still what the file is.
    fn held(&self) -> Option<&Views> {
        self.views.get().filter(|_| !self.state.rewritten.load(Ordering::Acquire))
    }

    /// Whether any part of a page is in memory: in the cache, or held by readers.
    pub(crate) fn in_memory(&self, page: u64) -> bool {
        let cache = &self.core.cache;
        cache.contains(self.state.serial, page) || self.held().is_some_and(|views| cache.is_pinned(views, page))
    }

    /// Copies bytes from `at` on into `out`; returns how many there were, which is less than asked only at the file's end.
    pub(crate) fn read_at(&self, at: u64, out: &mut [u8], ahead: &Mutex<Readahead>, cause: Cause) -> Result<usize> {
        let size = self.state.size.load(Ordering::Acquire);
        let want = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX).min(out.len());
        let mut done = 0;
        while done < want {
            let here = at + done as u64;
            let placed = match self.state.kind {
                FileKind::Random => size,
                _ => self.state.placed.load(Ordering::Acquire),
            };
            if here < placed {
                let n = usize::try_from(placed - here).unwrap_or(usize::MAX).min(want - done);
                let piece = &mut out[done..done + n];
                done += match self.state.kind {
                    FileKind::Log => self.read_log(here, piece, cause)?,
                    _ => self.read_pages(here, piece, placed, ahead, cause)?,
                };
                continue;
            }
            match self.writer().map(|writer| writer.bytes().read(here, &mut out[done..want])) {
                Some(Where::Memory(n)) if n > 0 => done += n,
                // It was written out meanwhile: look again.
                Some(Where::Drive(_) | Where::Memory(_)) => std::thread::yield_now(),
                Some(Where::End) => break,
                None if self.state.placed.load(Ordering::Acquire) > here => {}
                None => break,
            }
        }
        Ok(done)
    }

    fn read_log(&self, at: u64, out: &mut [u8], cause: Cause) -> Result<usize> {
        let mut log = lock(&self.state.log);
        loop {
            let (version, extents) = {
                let map = self.state.map();
                (map.version, map.extents.clone())
            };
            log.at_version(version);
            match log.read(&self.core.volume, self.state.serial, &extents, at, out, Tag::new(cause)) {
                // It was moved, and its old place reset, meanwhile.
                Err(_) if self.state.map().version != version => {}
                other => return other,
            }
        }
    }

    /// Reads bytes below `limit`, all of which are on the drive.
    fn read_pages(&self, at: u64, out: &mut [u8], limit: u64, ahead: &Mutex<Readahead>, cause: Cause) -> Result<usize> {
        let cache = &self.core.cache;
        let serial = self.state.serial;
        let page_size = u64::from(cache.page_size());
        let held = self.held();
        let (first, behind, end) =
            (at / page_size, (at + out.len() as u64).div_ceil(page_size), limit.div_ceil(page_size));
        let streams = self.core.ahead.is_on() && self.core.cache.keeps_reads() && self.state.kind == FileKind::Table;
        let (mut looked, mut steps) = (!streams, false);
        let mut done = 0;
        while done < out.len() {
            let here = at + done as u64;
            let (page, skip) = (here / page_size, (here % page_size) as usize);
            let n = (page_size as usize - skip).min(out.len() - done);
            let piece = &mut out[done..done + n];
            if held.is_some_and(|views| cache.read_pinned(views, serial, page, skip, piece))
                || cache.read(serial, page, skip, piece)
            {
                done += n;
                continue;
            }
            if !looked {
                looked = true;
                steps = self.read_ahead(&mut lock(ahead), first..behind, end);
            }
            if steps && self.core.ahead.waited_for(serial, page) {
                continue;
            }
            // Neighbours that are missed, too, at most so many.
            let missed = |pages: u64| (page..end.min(page + pages)).take_while(|p| *p == page || !self.in_memory(*p));
            let wanted = missed(behind - page).count() as u64;
            let run = match streams {
                true if !steps => {
                    let run = self.around(page, wanted, end);
                    lock(ahead).around = run.end - run.start > wanted;
                    run
                }
                true => page..page + wanted,
                false => {
                    let max = if self.core.cache.keeps_reads() {
                        self.core.options.readahead_bytes / page_size
                    } else {
                        wanted
                    };
                    page..page + missed(lock(ahead).run(page, wanted, max)).count().max(1) as u64
                }
            };
            let skip = skip + ((page - run.start) * page_size) as usize;
            done += self.read_run(run.start, run.end - run.start, limit, skip, &mut out[done..], cause)?;
        }
        if !looked {
            let mut ahead = lock(ahead);
            if ahead.streams.is_active() || ahead.around {
                self.read_ahead(&mut ahead, first..behind, end);
                self.let_go(&mut ahead, first..(at + out.len() as u64) / page_size);
            }
        }
        Ok(done)
    }

    /// Pages that a miss at random reads, `wanted` from `page` on among them, of a file of `end` pages: those around it, too, while the cache
    /// has room. Getting there takes a rotating drive eight times as long as reading a [window](crate::options::AROUND), and what nobody asked for pushes
    /// nothing out. A full cache holds what was asked for.
    fn around(&self, page: u64, wanted: u64, end: u64) -> Range<u64> {
        let core = &self.core;
        let window = core.options.around_bytes / u64::from(core.cache.page_size());
        if window <= wanted || !core.volume.geometry().rotational || core.cache.is_nearly_full() {
            return page..page + wanted;
        }
        let first = page / window * window;
        let from = (first..page).rev().take_while(|p| !self.in_memory(*p)).last().unwrap_or(page);
        let behind = (page + wanted..end.min(first + window)).take_while(|p| !self.in_memory(*p));
        from..page + wanted + behind.count() as u64
    }

    /// Pages were asked for: has the next ones of a stream read. Whether they are a step of one.
    fn read_ahead(&self, ahead: &mut Readahead, read: Range<u64>, end: u64) -> bool {
        let core = &self.core;
        let page_size = u64::from(core.cache.page_size());
        let max = core.ahead.window(core.options.readahead_bytes, core.cache.capacity()) / page_size;
        let command = u64::from(core.volume.geometry().max_io) / page_size;
        let (steps, next) = ahead.streams.reads(read, max, command);
        if let Some(next) = next
            && let Some(me) = self.me.upgrade()
        {
            let brought = core.ahead.request(&me, next.start.min(end)..next.end.min(end), command);
            let room = BROUGHT.saturating_sub(ahead.brought.len());
            ahead.brought.extend(brought.into_iter().take(room));
        }
        steps
    }

    /// What was read ahead and now is used, up to the page `read` ends with, makes room for others, unless there is room for all: who
    /// reads a table from one end to the other seldom reads it again soon, and a compaction never.
    fn let_go(&self, ahead: &mut Readahead, read: Range<u64>) {
        let cache = &self.core.cache;
        let used = |range: &Range<u64>| range.end <= read.end && range.end + (range.end - range.start) >= read.start;
        if !ahead.brought.iter().any(used) {
            return;
        }
        let full = cache.is_nearly_full();
        ahead.brought.retain(|range| {
            let used = used(range);
            if used && full {
                range.clone().for_each(|page| cache.remove(self.state.serial, page));
            }
            !used
        });
    }

    /// Reads a run of pages with as few commands as there are extents in it, keeps them in the cache, and copies from byte
    /// `skip` on to `out`.
    fn read_run(&self, page: u64, pages: u64, limit: u64, skip: usize, out: &mut [u8], cause: Cause) -> Result<usize> {
        let cache = &self.core.cache;
        let page_size = u64::from(cache.page_size());
        let from = page * page_size;
        let to = (from + pages * page_size).min(limit);
        loop {
            let (version, extents) = {
                let map = self.state.map();
                (map.version, map.extents.clone())
            };
            let mut buf = AlignedBuf::zeroed((to - from) as usize);
            if let Err(error) = read_extents(&self.core, &self.state, &extents, from, &mut buf, Tag::new(cause)) {
                if self.state.map().version != version {
                    // It was moved, and its old place reset, meanwhile.
                    continue;
                }
                // What was not asked for may be what is damaged: then it must not cost what was.
                tracing::warn!(%error, file = %self.state.name, "a run of pages cannot be read; only what was asked for is");
                let n = out.len().min(buf.len() - skip);
                read_extents(&self.core, &self.state, &extents, from + skip as u64, &mut out[..n], Tag::new(cause))?;
                if self.state.map().version != version {
                    continue;
                }
                return Ok(n);
            }
            let map = self.state.map();
            if map.version != version {
                // Somebody overwrote bytes of this file while they were read.
                continue;
            }
            if self.core.cache.keeps_reads() && self.state.reaches(to) {
                for (i, bytes) in buf.chunks(page_size as usize).enumerate() {
                    cache.insert(self.state.serial, page + i as u64, bytes);
                }
            }
            drop(map);
            let n = out.len().min(buf.len() - skip);
            out[..n].copy_from_slice(&buf[skip..skip + n]);
            return Ok(n);
        }
    }
}

impl Source for File {
    fn serial(&self) -> u64 {
        self.state.serial
    }

    fn is_in_memory(&self, page: u64) -> bool {
        self.in_memory(page)
    }

    fn wait_for_flush(&self) {
        self.core.volume.wait_for_flush();
    }

    fn read_pages(&self, pages: Range<u64>) {
        let (core, state) = (&self.core, &self.state);
        let page_size = u64::from(core.cache.page_size());
        let limit = state.placed.load(Ordering::Acquire);
        let (from, to) = (pages.start * page_size, (pages.end * page_size).min(limit));
        if from >= to || state.kind != FileKind::Table || state.rewritten.load(Ordering::Acquire) || state.is_orphan() {
            return;
        }
        let (version, extents) = {
            let map = state.map();
            (map.version, map.extents.clone())
        };
        let mut buf = AlignedBuf::zeroed((to - from) as usize);
        if let Err(error) = read_extents(core, state, &extents, from, &mut buf, Tag::new(Cause::Readahead)) {
            tracing::debug!(%error, file = %state.name, "pages cannot be read ahead");
            return;
        }
        let map = state.map();
        if map.version == version && !state.rewritten.load(Ordering::Acquire) && state.reaches(to) {
            for (page, bytes) in pages.zip(buf.chunks(page_size as usize)) {
                core.cache.insert(state.serial, page, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_misses_reads_more_and_more() {
        let mut ahead = Readahead::default();
        assert_eq!(ahead.run(0, 1, 128), 1);
        assert_eq!(ahead.run(1, 1, 128), 2);
        assert_eq!(ahead.run(3, 1, 128), 4);
        assert_eq!(ahead.run(100, 2, 128), 2, "a random read beside it");
        assert_eq!(ahead.run(7, 1, 128), 8);
        assert_eq!(ahead.run(15, 1, 10), 10);
        assert_eq!(ahead.run(25, 20, 10), 20, "never less than wanted");
        assert_eq!(ahead.run(102, 1, 128), 4);
    }
}
