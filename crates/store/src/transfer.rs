//! Objects from one place to another: out of an open store, and into one.

use crate::engine::Store;
use imbrex_bluestore::salvage::UNNAMED;
use imbrex_bluestore::{CollectionId, Head, ObjectId, Pair, Taker, Transaction};
use imbrex_device::{Code, Error, Result};

/// Bytes of an object that are read at once.
const PIECE: u64 = 1 << 20;
/// Names of one page of a list.
const PAGE: usize = 256;
/// Pairs that are read at once. Each may have 16 MiB.
const PAIRS: usize = 16;
/// Bytes that one transaction brings.
const TOGETHER: usize = 4 << 20;
/// So often an object is read that others change all the time.
const TRIES: u32 = 4;
/// The namespace of an object that is being imported.
const UNDER_WAY: &[u8] = b"\0imbrex-import";

/// What is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of<'a> {
    /// All.
    All,
    /// A collection and its objects.
    Collection(CollectionId),
    /// An object.
    Object(&'a ObjectId),
}

/// What came of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Objects that are whole there.
    pub objects: u64,
    /// Bytes of theirs that are not zeros.
    pub bytes: u64,
    /// Sentences about objects that could not be read, which are left out.
    pub damaged: Vec<String>,
    /// How many more there are.
    pub more_damaged: u64,
}

/// Sentences about damaged objects at most.
const MOST_DAMAGED: usize = 100;

/// Hands over objects of a store. Each is of one moment: one that others change meanwhile is read again. All are of one moment where nobody changes anything. What objects share comes with each of them.
///
/// # Errors
/// `NotFound` where there is no such object or collection; `Busy` where an object changes all the time; those of `to` and of the drive. An object whose bytes are damaged is none.
pub fn export(store: &Store, of: &Of<'_>, to: &mut dyn Taker) -> Result<Exported> {
    let mut told = Exported::default();
    let all = store.collections()?;
    let is_meant = |collection: &CollectionId| match of {
        Of::All => true,
        Of::Collection(wanted) => wanted == collection,
        Of::Object(_) => false,
    };
    if let Of::Object(id) = of {
        let home = store.home(id)?.unwrap_or(CollectionId { pool: id.pool, seed: 0 });
        store.stat(home, id)?;
        let bits = all.iter().find(|(collection, _)| *collection == home).map_or(0, |(_, bits)| *bits);
        to.collection(home, bits)?;
        one(store, home, id, to, &mut told)?;
        return Ok(told);
    }
    let wanted: Vec<_> = all.into_iter().filter(|(collection, _)| is_meant(collection)).collect();
    if let (Of::Collection(collection), true) = (of, wanted.is_empty()) {
        return Err(Error::refused(Code::NotFound, "", format!("there is no {collection}")));
    }
    wanted.iter().try_for_each(|(collection, bits)| to.collection(*collection, *bits))?;
    for (collection, _) in wanted {
        let mut next = None;
        loop {
            let page = store.list(collection, next.as_ref(), PAGE)?;
            for id in page.all.iter().filter(|id| id.namespace != UNDER_WAY) {
                one(store, collection, id, to, &mut told)?;
            }
            next = page.next;
            if next.is_none() {
                break;
            }
        }
    }
    Ok(told)
}

fn one(store: &Store, c: CollectionId, id: &ObjectId, to: &mut dyn Taker, told: &mut Exported) -> Result<()> {
    for _ in 0..TRIES {
        let before = match store.moment(c, id) {
            // It was deleted since the list.
            Err(error) if error.code() == Code::NotFound => return Ok(()),
            moment => moment?,
        };
        let mut bytes = 0;
        let gone = |error: &Error| error.code() == Code::NotFound;
        let (began, read) = match store.stat(c, id) {
            Ok(stat) => {
                let head = Head { id: id.clone(), size: stat.size, hint: stat.hint, attributes: stat.attributes };
                to.begin(&head)?;
                (true, content(store, c, &head, to, &mut bytes)?)
            }
            Err(error) => (false, Err(error)),
        };
        let after = store.moment(c, id);
        if after.as_ref().is_ok_and(|after| *after == before) {
            match read {
                Ok(()) => {
                    told.objects += 1;
                    told.bytes += bytes;
                    return to.end();
                }
                Err(error) if error.code() == Code::Corruption || error.code() == Code::Io => {
                    if told.damaged.len() < MOST_DAMAGED {
                        told.damaged.push(format!("{id} is left out: {error}"));
                    } else {
                        told.more_damaged += 1;
                    }
                    return if began { to.again() } else { Ok(()) };
                }
                Err(error) => return Err(error),
            }
        }
        if began {
            to.again()?;
        }
        match after {
            Err(error) if gone(&error) => return Ok(()),
            after => drop(after?),
        }
    }
    Err(Error::refused(Code::Busy, "", format!("{id} changes all the time; export it when others rest")))
}

/// The outer result is that of who takes it, the inner one that of the store.
fn content(store: &Store, c: CollectionId, head: &Head, to: &mut dyn Taker, bytes: &mut u64) -> Result<Result<()>> {
    macro_rules! or_stop {
        ($found:expr) => {
            match $found {
                Ok(found) => found,
                Err(error) => return Ok(Err(error)),
            }
        };
    }
    let (id, mut at) = (&head.id, 0);
    while at < head.size {
        let (stored, len) = or_stop!(store.stored_at(c, id, at, head.size - at));
        if len == 0 {
            break;
        }
        let end = at + len;
        while stored && at < end {
            let piece = or_stop!(store.read(c, id, at, (end - at).min(PIECE)));
            if piece.is_empty() {
                break;
            }
            if piece.iter().any(|byte| *byte != 0) {
                *bytes += piece.len() as u64;
                to.bytes(at, &piece)?;
            }
            at += piece.len() as u64;
        }
        at = end;
    }
    if let Some(header) = or_stop!(store.omap_header(c, id)) {
        to.omap_header(&header)?;
    }
    let mut next = Some(Vec::new());
    while let Some(from) = next.take() {
        let page = or_stop!(store.omap(c, id, &from, PAIRS));
        next = page.next;
        if !page.all.is_empty() {
            to.omap(page.all)?;
        }
    }
    Ok(Ok(()))
}

/// Takes objects into a store. An object is there when all of it came, and until then what had its name before is.
pub struct Import<'a> {
    store: &'a Store,
    replace: bool,
    under: Option<Under>,
    objects: u64,
}

struct Under {
    c: CollectionId,
    head: Head,
    /// What it is called until it is whole.
    temporary: ObjectId,
    next: Transaction,
    bytes: usize,
}

impl<'a> Import<'a> {
    /// Into this store. `replace`: objects that are there go; else one is an error. What an import that was cut off has left is removed.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn new(store: &'a Store, replace: bool) -> Result<Import<'a>> {
        for (c, _) in store.collections()? {
            let mut next = None;
            loop {
                let page = store.list(c, next.as_ref(), 4 * PAGE)?;
                for id in page.all.iter().filter(|id| id.namespace == UNDER_WAY) {
                    store.queue(std::mem::take(Transaction::new().remove(c, id)))?;
                }
                next = page.next;
                if next.is_none() {
                    break;
                }
            }
        }
        Ok(Import { store, replace, under: None, objects: 0 })
    }

    /// All that came is durable. Returns how many objects were whole.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn finish(mut self) -> Result<u64> {
        self.again()?;
        self.store.sync()?;
        Ok(self.objects)
    }

    fn under(&mut self) -> Result<&mut Under> {
        self.under.as_mut().ok_or_else(|| Error::refused(Code::InvalidArgument, "", "no object is being imported"))
    }

    /// So many more bytes come for the object. What came before goes to the store, if that becomes too much. But the last of it goes with the object's own name:
    /// so a header of a run has that name.
    fn under_for(&mut self, bytes: usize) -> Result<&mut Under> {
        let store = self.store;
        let under = self.under()?;
        if under.bytes > 0 && under.bytes + bytes > TOGETHER {
            under.bytes = 0;
            store.queue(std::mem::take(&mut under.next))?;
        }
        under.bytes += bytes;
        Ok(under)
    }

    /// What an object is called here. One of an import that was cut off has no name of its own, and a salvage may have found it.
    fn name(&self, id: &ObjectId) -> Result<ObjectId> {
        if id.namespace != UNDER_WAY {
            return Ok(id.clone());
        }
        let mut n = 0u64;
        loop {
            let name = format!("import-{:08x}-{n}", id.hash);
            let id = ObjectId::new(id.pool, UNNAMED, name.as_bytes());
            let Some(home) = self.store.home(&id)? else { return Ok(id) };
            match self.store.stat(home, &id) {
                Err(error) if error.code() == Code::NotFound => return Ok(id),
                taken => _ = taken?,
            }
            n += 1;
        }
    }

    /// The collection of an object, which is made where there is none.
    fn home(&self, id: &ObjectId) -> Result<CollectionId> {
        if let Some(home) = self.store.home(id)? {
            return Ok(home);
        }
        // Others of the pool may have a part of it.
        let bits = self
            .store
            .collections()?
            .iter()
            .filter(|(c, _)| c.pool == id.pool)
            .map(|(_, bits)| *bits)
            .max()
            .unwrap_or(0);
        let seed = if bits >= 32 { id.hash } else { id.hash & ((1 << bits) - 1) };
        let c = CollectionId { pool: id.pool, seed };
        self.store.queue(std::mem::take(Transaction::new().create_collection(c, bits)))?;
        Ok(c)
    }
}

impl Taker for Import<'_> {
    fn collection(&mut self, collection: CollectionId, bits: u8) -> Result<()> {
        match self.store.queue(std::mem::take(Transaction::new().create_collection(collection, bits))) {
            // It is there, or others have its objects.
            Err(error) if error.code() == Code::Exists => Ok(()),
            made => made.map(drop),
        }
    }

    fn begin(&mut self, head: &Head) -> Result<()> {
        let head = &Head { id: self.name(&head.id)?, ..head.clone() };
        let c = self.home(&head.id)?;
        if !self.replace && self.store.stat(c, &head.id).is_ok() {
            let sentence = format!("{} exists; delete it, or let the import replace what is there", head.id);
            return Err(Error::refused(Code::Exists, "", sentence));
        }
        let temporary =
            ObjectId { namespace: UNDER_WAY.to_vec(), name: Vec::new(), snap: 0, generation: 0, ..head.id.clone() };
        let mut next = Transaction::new();
        if self.store.stat(c, &temporary).is_ok() {
            next.remove(c, &temporary);
        }
        next.touch(c, &temporary).hint(c, &temporary, head.hint);
        let attributes: Vec<(&[u8], &[u8])> =
            head.attributes.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        if !attributes.is_empty() {
            next.set_attributes(c, &temporary, &attributes);
        }
        self.under = Some(Under { c, head: head.clone(), temporary, next, bytes: 0 });
        Ok(())
    }

    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let under = self.under_for(bytes.len())?;
        under.next.write(under.c, &under.temporary, at, bytes);
        Ok(())
    }

    fn omap_header(&mut self, header: &[u8]) -> Result<()> {
        let under = self.under_for(header.len())?;
        under.next.omap_header(under.c, &under.temporary, header);
        Ok(())
    }

    fn omap(&mut self, pairs: Vec<Pair>) -> Result<()> {
        let under = self.under_for(pairs.iter().map(|(key, value)| key.len() + value.len() + 64).sum())?;
        let all: Vec<(&[u8], &[u8])> = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        under.next.omap_set(under.c, &under.temporary, &all);
        Ok(())
    }

    fn again(&mut self) -> Result<()> {
        let Some(Under { c, temporary, .. }) = self.under.take() else { return Ok(()) };
        if self.store.stat(c, &temporary).is_ok() {
            self.store.queue(std::mem::take(Transaction::new().remove(c, &temporary)))?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let Some(Under { c, head, temporary, mut next, .. }) = self.under.take() else { return Ok(()) };
        next.truncate(c, &temporary, head.size);
        if self.store.stat(c, &head.id).is_ok() {
            next.remove(c, &head.id);
        }
        next.rename(c, &temporary, &head.id);
        let queued = self.store.queue(next).map(drop);
        if queued.is_err() {
            // What came before it stays under the other name, if nobody removes it.
            let _ = self.store.queue(std::mem::take(Transaction::new().remove(c, &temporary)));
        }
        self.objects += u64::from(queued.is_ok());
        queued
    }
}
