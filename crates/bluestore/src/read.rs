//! Reading of objects. Nobody waits for a transaction: what is read is looked at again, and read anew where the object has changed meanwhile.

use crate::blob::BLOCK;
use crate::cached::Bits;
use crate::core::{Core, is_of_bytes};
use crate::id::{CollectionId, ObjectId, bits_of};
use crate::keyvalue::{Family, Pair};
use crate::omap;
use crate::onode::{Extent, Hint, Onode, SPAN, Span, span_key};
use crate::run::{LONGEST, RunHeader};
use imbrex_device::{AlignedBuf, Cause, Code, Fault, Result, Tag, Written, Zone, ZoneId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most bytes of one read.
const MAX_READ: u64 = 1 << 30;
/// So often an object is read that others change all the time, before they have to wait.
const TRIES: u32 = 4;

/// An object, or what is known of it without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its size in bytes.
    pub size: u64,
    /// Its attributes.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What was said of its next writes.
    pub hint: Hint,
}

/// A page of what is in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, N> {
    /// In order.
    pub all: Vec<T>,
    /// Where the next page begins; `None`: there is no more.
    pub next: Option<N>,
}

impl Core {
    /// The runs of a zone, with the blocks where their data begin, until something else stands there.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn each_run(&self, zone: u32, life: u64, cause: Cause, mut one: impl FnMut(u32, RunHeader)) -> Result<()> {
        let volume = self.tenant.volume();
        let (start, end) = (volume.geometry().start(ZoneId(zone)), self.readable(zone)?);
        // `None`: behind what was written.
        let read = |at: u64, blocks: u64| {
            let mut bytes = AlignedBuf::zeroed((blocks * BLOCK) as usize);
            match volume.read(&mut bytes, start + at * BLOCK, Tag::new(cause)) {
                Err(error) if matches!(error.fault, Fault::InvalidInput(_)) => Ok(None),
                read => read.map(|()| Some(bytes)),
            }
        };
        let mut at = 1;
        while at < end {
            // As long as headers become: a disk would have to come round for the rest of one. What is behind a header need not be readable.
            let most = (end - at).min(LONGEST as u64);
            let ahead = read(at, most).or_else(|error| if is_of_bytes(&error) { Ok(None) } else { Err(error) });
            let Some(bytes) = ahead?.map_or_else(|| read(at, 1), |bytes| Ok(Some(bytes)))? else { break };
            let Some(blocks) = RunHeader::blocks_of(&bytes).map(u64::from) else { break };
            let bytes = match blocks * BLOCK > bytes.len() as u64 && blocks <= most {
                true => read(at, blocks)?.unwrap_or(bytes),
                false => bytes,
            };
            let is_here =
                |header: &RunHeader| (header.life, header.at.zone, header.at.block) == (life, zone, at as u32);
            let Some(header) = RunHeader::decode(&bytes).filter(is_here) else { break };
            let data = at + blocks;
            let next = data + header.data();
            if next > end {
                break;
            }
            one(data as u32, header);
            at = next;
        }
        Ok(())
    }

    /// Blocks of a zone that were written, as far as the drive tells: not every drive takes a read of others.
    fn readable(&self, zone: u32) -> Result<u64> {
        let volume = self.tenant.volume();
        let (capacity, mut now) = (volume.capacity(ZoneId(zone)), [Zone::EMPTY]);
        volume.device().report(ZoneId(zone), &mut now)?;
        let end = if let Written::To(end) = now[0].written() { end.min(capacity) } else { capacity };
        Ok(end / BLOCK)
    }

    fn bits(&self, collection: CollectionId) -> Result<u8> {
        let Some(Bits(bits)) = self.look_up(&collection.key())? else {
            return Err(self.refuse(Code::NotFound, format!("{collection} does not exist")));
        };
        Ok(bits)
    }

    /// What `look` finds, of one moment: no transaction came between. In the end others wait.
    fn at_once<T>(&self, look: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            let before = self.state().version;
            let found = look();
            if self.state().version == before {
                return found;
            }
        }
        let _preparing = self.prepare();
        look()
    }

    fn find(&self, collection: CollectionId, id: &ObjectId) -> Result<Arc<Onode>> {
        let onode = match collection.has(self.bits(collection)?, id) {
            true => self.look_up::<Arc<Onode>>(&id.key())?,
            false => None,
        };
        onode.ok_or_else(|| self.refuse(Code::NotFound, format!("{id} does not exist in {collection}")))
    }

    pub fn stat(&self, collection: CollectionId, id: &ObjectId) -> Result<Stat> {
        let Onode { size, attributes, hint, .. } = Arc::unwrap_or_clone(self.find(collection, id)?);
        Ok(Stat { size, attributes, hint })
    }

    /// The number of an object and its version, which is another one when something of it has changed.
    pub fn moment(&self, collection: CollectionId, id: &ObjectId) -> Result<(u64, u64)> {
        let onode = self.find(collection, id)?;
        Ok((onode.number, onode.version))
    }

    /// Bytes of the blocks that an object names.
    pub fn stored(&self, collection: CollectionId, id: &ObjectId) -> Result<u64> {
        self.at_once(|| {
            let onode = self.find(collection, id)?;
            let blocks = |span: &Span| span.0.iter().map(|extent| u64::from(extent.blocks)).sum::<u64>();
            let (mut all, mut next) = (blocks(&onode.first), Some(span_key(onode.number, 1)));
            let end = span_key(onode.number, u64::MAX);
            while let Some(from) = next {
                let (pairs, more) = self.pairs(Family::Extents, &from, Some(&end), 1024, None)?;
                for (_, value) in pairs {
                    let span = Span::of_record(&value, onode.number);
                    all += blocks(&span.ok_or_else(|| self.corrupt("extents of an object"))?);
                }
                next = more;
            }
            Ok(all * BLOCK)
        })
    }

    /// Whether anything is stored at `offset` of an object, and for how many bytes from there on, `len` at most, that is so.
    pub fn stored_at(&self, collection: CollectionId, id: &ObjectId, offset: u64, len: u64) -> Result<(bool, u64)> {
        self.at_once(|| {
            let onode = self.find(collection, id)?;
            let end = offset.saturating_add(len);
            let (mut at, stop, mut is) = (offset / BLOCK, end.div_ceil(BLOCK), None);
            // What follows is the same as what is before it.
            let mut goes_on = |stored: bool| *is.get_or_insert(stored) == stored;
            'all: while at < stop {
                let begin = at / SPAN * SPAN;
                let to = stop.min(begin + SPAN);
                let others;
                let span = match at / SPAN {
                    0 => &onode.first,
                    n => {
                        others = self.look_up::<Arc<Span>>(&span_key(onode.number, n))?.unwrap_or_default();
                        &*others
                    }
                };
                for extent in &span.0 {
                    let (from, until) = (begin + u64::from(extent.at), begin + u64::from(extent.end()));
                    for (next, stored) in [(from, false), (until, true)] {
                        if at < next.min(to) {
                            if !goes_on(stored) {
                                break 'all;
                            }
                            at = next.min(to);
                        }
                    }
                }
                if at < to {
                    if !goes_on(false) {
                        break;
                    }
                    at = to;
                }
            }
            Ok((is.unwrap_or(false), (at * BLOCK).min(end).saturating_sub(offset)))
        })
    }

    /// Extents of an object between two blocks, in order, as far as whole spans go; and its size in bytes.
    pub fn extents(&self, collection: CollectionId, id: &ObjectId, blocks: Range<u64>) -> Result<(Vec<Extent>, u64)> {
        self.at_once(|| {
            let onode = self.find(collection, id)?;
            self.extents_of(&onode, blocks.clone())
        })
    }

    /// The same of an object whose record somebody has.
    pub fn extents_of(&self, onode: &Onode, blocks: Range<u64>) -> Result<(Vec<Extent>, u64)> {
        let mut all = if blocks.start == 0 { onode.first.0.clone() } else { Vec::new() };
        let key = |block: u64| span_key(onode.number, (block / SPAN).max(1));
        let (end, mut next) = (key(blocks.end), Some(key(blocks.start)));
        while let Some(from) = next {
            let (pairs, more) = self.pairs(Family::Extents, &from, Some(&end), 1024, None)?;
            for (_, value) in pairs {
                let span = Span::of_record(&value, onode.number);
                all.extend(span.ok_or_else(|| self.corrupt("extents of an object"))?.0);
            }
            next = more;
        }
        Ok((all, onode.size))
    }

    /// As many bytes as there are, at most `len`.
    pub fn read_object(&self, collection: CollectionId, id: &ObjectId, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.read_with(collection, id, (offset, len), |onode, len| {
            out = vec![0; len];
            self.read_range(onode, offset, &mut out)
        })?;
        Ok(out)
    }

    /// The same, to where the caller wants them. Returns how many there were.
    pub fn read_into(&self, collection: CollectionId, id: &ObjectId, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.read_with(collection, id, (offset, out.len() as u64), |onode, len| {
            self.read_range(onode, offset, &mut out[..len])
        })
    }

    /// Has `read` read so many bytes of an object, until it has not changed meanwhile. Returns how many these are. False: something was not where it was.
    fn read_with(
        &self,
        collection: CollectionId,
        id: &ObjectId,
        (offset, len): (u64, u64),
        mut read: impl FnMut(&Onode, usize) -> Result<bool>,
    ) -> Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        for tried in 0.. {
            // In the end the others wait.
            let _preparing = (tried >= TRIES).then(|| self.prepare());
            let before = self.state().version;
            let onode = self.find(collection, id)?;
            let len = offset.saturating_add(len).min(onode.size).saturating_sub(offset);
            if len > MAX_READ {
                let sentence = format!("{len} bytes are too many for one read; read {MAX_READ} at a time");
                return Err(self.refuse(Code::InvalidArgument, sentence));
            }
            let read = read(&onode, len as usize);
            let is_same = |now: Arc<Onode>| (now.number, now.version) == (onode.number, onode.version);
            let same = self.state().version == before || self.look_up(&id.key())?.is_some_and(is_same);
            match read {
                Ok(true) if same => return Ok(len as usize),
                Ok(false) if same && tried > TRIES => break,
                Err(error) if same => return Err(error),
                // It has changed, or a blob has moved.
                _ => {}
            }
        }
        Err(self.corrupt(format!("the place of bytes of {id}")))
    }

    /// Objects of a collection in their order, from one on.
    pub fn list(
        &self,
        collection: CollectionId,
        from: Option<&ObjectId>,
        most: usize,
    ) -> Result<Page<ObjectId, ObjectId>> {
        self.at_once(|| self.list_now(collection, from, most))
    }

    fn list_now(
        &self,
        collection: CollectionId,
        from: Option<&ObjectId>,
        most: usize,
    ) -> Result<Page<ObjectId, ObjectId>> {
        let (begin, end) = collection.range(self.bits(collection)?);
        let from = from.map_or(begin.clone(), |from| from.key().max(begin));
        let (pairs, next) = self.pairs(Family::Onodes, &from, end.as_deref(), most.max(1), None)?;
        let id = |key: &[u8]| ObjectId::of_key(key).ok_or_else(|| self.corrupt("an object's key"));
        let all: Vec<ObjectId> = pairs.iter().map(|(key, _)| id(key)).collect::<Result<_>>()?;
        // The next page may begin between two keys.
        let next = match next {
            Some(next) => self.pairs(Family::Onodes, &next, end.as_deref(), 1, None)?.0.first().map(|(key, _)| id(key)),
            None => None,
        };
        Ok(Page { all, next: next.transpose()? })
    }

    pub fn collections(&self) -> Result<Vec<(CollectionId, u8)>> {
        self.at_once(|| self.collections_now())
    }

    fn collections_now(&self) -> Result<Vec<(CollectionId, u8)>> {
        let (mut all, mut next) = (Vec::new(), Some(Vec::new()));
        while let Some(from) = next {
            let (pairs, more) = self.pairs(Family::Collections, &from, None, 1024, None)?;
            for (key, value) in pairs {
                let one = CollectionId::of_key(&key).zip(bits_of(&value));
                all.push(one.ok_or_else(|| self.corrupt("a collection's record"))?);
            }
            next = more;
        }
        Ok(all)
    }

    pub fn omap_header(&self, collection: CollectionId, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        self.at_once(|| match self.find(collection, id)?.omap {
            0 => Ok(None),
            omap => self.get(Family::Omap, &omap::header_key(omap)),
        })
    }

    pub fn omap_get(&self, collection: CollectionId, id: &ObjectId, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.at_once(|| {
            let omap = self.find(collection, id)?.omap;
            let get = |key: &&[u8]| match omap {
                0 => Ok(None),
                omap => self.get(Family::Omap, &omap::pair_key(omap, key)),
            };
            keys.iter().map(get).collect()
        })
    }

    pub fn omap_page(
        &self,
        collection: CollectionId,
        id: &ObjectId,
        from: &[u8],
        most: usize,
    ) -> Result<Page<Pair, Vec<u8>>> {
        self.at_once(|| {
            let omap = self.find(collection, id)?.omap;
            if omap == 0 {
                return Ok(Page { all: Vec::new(), next: None });
            }
            let (from, end) = (omap::pair_key(omap, from), omap::end_key(omap));
            let (pairs, next) = self.pairs(Family::Omap, &from, Some(&end), most.max(1), None)?;
            let user = |key: &[u8]| omap::user_key(omap, key).to_vec();
            let all = pairs.into_iter().map(|(key, value)| (user(&key), value)).collect();
            Ok(Page { all, next: next.map(|key| user(&key)) })
        })
    }
}
