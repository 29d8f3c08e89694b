//! Bytes of blobs, from where they are, compared with their checksums.
//!
//! Where the drive does not give bytes, or gives others than were written, they are read once more before that is an error: a drive may correct itself. The second time each grain is read alone,
//! so that a command fails for no others.

use crate::blob::{BLOCK, Blob, LOST, Place};
use crate::core::{Core, is_of_bytes};
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Result, ZoneId};

/// Blocks of a blob: the first, and how many.
pub(crate) type Wanted<'a> = (&'a Blob, u32, u32);

/// Where bytes are that have no place: all of a blob's in memory, or who gets them.
type Elsewhere<'a> = (Option<&'a [u8]>, &'a dyn Fn() -> Result<Option<Vec<u8>>>);

fn bytes_of(blocks: u32) -> usize {
    blocks as usize * BLOCK as usize
}

impl Core {
    /// Blocks of a blob. `bytes`: all of it, where it has no place yet; `deferred` gets them, where it has none. `None`: it is not where it was.
    ///
    /// # Errors
    /// `Corrupt` where its bytes are not those that were written; those of the drive.
    pub fn fetch(
        &self,
        wanted: Wanted<'_>,
        bytes: Option<&[u8]>,
        deferred: impl Fn() -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<AlignedBuf>> {
        let (blob, first, blocks) = wanted;
        if !blob.has(first, blocks) {
            return Err(self.corrupt("an extent that ends behind its blob"));
        }
        let (from, len) = blob.whole(first, blocks);
        let Some(stored) = self.fetch_stored((blob, from, len), bytes, deferred)? else { return Ok(None) };
        let all = blob.unpack(stored).ok_or_else(|| self.corrupt("compressed bytes of an object"))?;
        if all.len() == bytes_of(blocks) {
            return Ok(Some(all));
        }
        let mut part = AlignedBuf::zeroed(bytes_of(blocks));
        part.copy_from_slice(&all[bytes_of(first - from)..bytes_of(first - from + blocks)]);
        Ok(Some(part))
    }

    /// The same of blocks as they are stored, which begin and end with grains.
    ///
    /// # Errors
    /// As [`Core::fetch`].
    pub fn fetch_stored(
        &self,
        wanted: Wanted<'_>,
        bytes: Option<&[u8]>,
        deferred: impl Fn() -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<AlignedBuf>> {
        let (blob, first, blocks) = wanted;
        let mut buf = AlignedBuf::zeroed(bytes_of(blocks));
        match self.fill(wanted, (bytes, &deferred), &mut buf) {
            Ok(true) if blob.verify(first, &buf).is_none() => {}
            Ok(false) => return Ok(None),
            Err(error) if !is_of_bytes(&error) || matches!(error.fault, Fault::Offline) => return Err(error),
            _ => {
                if !self.read_again(wanted, (bytes, &deferred), &mut buf)? {
                    return Ok(None);
                }
            }
        }
        Ok(Some(buf))
    }

    /// The same of blocks that have a place, for who has read them with others in vain.
    ///
    /// # Errors
    /// As [`Core::fetch`].
    pub fn fetch_again(&self, wanted: Wanted<'_>) -> Result<Option<AlignedBuf>> {
        let mut buf = AlignedBuf::zeroed(bytes_of(wanted.2));
        let read = self.read_again(wanted, (None, &|| Ok(None)), &mut buf)?;
        Ok(read.then_some(buf))
    }

    /// Reads what is not right in `buf`, a grain at a time. False: it is not where it was.
    fn read_again(&self, (blob, first, blocks): Wanted<'_>, from: Elsewhere<'_>, buf: &mut [u8]) -> Result<bool> {
        let mut at = first;
        while at < first + blocks {
            let (grain, len) = blob.whole(at, 1);
            let to = &mut buf[bytes_of(grain - first)..bytes_of(grain + len - first)];
            at = grain + len;
            if blob.verify(grain, to).is_some() {
                let read = match self.fill((blob, grain, len), from, to) {
                    Ok(true) if blob.verify(grain, to).is_some() => Err(self.other_bytes(blob, grain)),
                    read => read,
                };
                if !matches!(read, Ok(true)) {
                    if read.as_ref().is_err_and(is_of_bytes) {
                        self.again.count(false);
                    }
                    return read;
                }
            }
        }
        self.again.count(true);
        Ok(true)
    }

    fn other_bytes(&self, blob: &Blob, block: u32) -> Error {
        let error = self.corrupt("bytes of an object, which are not those that were written");
        match blob.find(block, 1).and_then(|runs| runs.first()?.place) {
            Some(place) => error.at(ZoneId(place.zone), u64::from(place.block) * BLOCK),
            None => error,
        }
    }

    /// Reads whole grains, once. False: they are not where they were.
    fn fill(
        &self,
        (blob, first, blocks): Wanted<'_>,
        (bytes, deferred): Elsewhere<'_>,
        buf: &mut [u8],
    ) -> Result<bool> {
        let Some(runs) = blob.find(first, blocks) else {
            return Err(self.corrupt("extents that name a part of a blob that is gone"));
        };
        for run in runs {
            let range = bytes_of(run.first)..bytes_of(run.first + run.blocks);
            let to = &mut buf[bytes_of(run.first - first)..bytes_of(run.first + run.blocks - first)];
            match (bytes, run.place) {
                (Some(bytes), _) => {
                    to.copy_from_slice(bytes.get(range).ok_or_else(|| self.corrupt("a blob's length"))?)
                }
                (None, None) => {
                    let Some(bytes) = deferred()? else { return Ok(false) };
                    to.copy_from_slice(bytes.get(range).ok_or_else(|| self.corrupt("the length of a deferred blob"))?);
                }
                (None, Some(place)) => {
                    if !self.read(place, to)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Keeps a zone from being freed, until somebody unpins it. False: it is in another life.
    pub fn pin(&self, zone: u32, life: u32) -> bool {
        let state = self.state();
        let there = state.table.get(zone).is_some_and(|z| z.life as u32 == life);
        if there {
            // Before anybody can free it.
            self.tenant.pin(ZoneId(zone));
        }
        there
    }

    /// Reads from a zone. False: it is in another life.
    fn read(&self, place: Place, out: &mut [u8]) -> Result<bool> {
        let zone = ZoneId(place.zone);
        if place.zone == LOST.zone {
            return Err(self.corrupt("bytes of an object, which a repair has found gone: what they were in"));
        }
        if !self.pin(place.zone, place.life) {
            return Ok(false);
        }
        let read = self.read_blocks(place.zone, place.block, out, Cause::UserRead);
        self.tenant.unpin(zone);
        read.map(|()| true)
    }
}
