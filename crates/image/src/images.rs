//! All images of a store: which there are, and how they come and go.

use crate::image::Image;
use crate::info::{Info, Parent, Snapshot};
use crate::lasting::{Lasting, Taken};
use crate::limits::{LimitChange, Limits};
use crate::names::{ALL, MAX_IMAGE, check, directory, header};
use crate::objects::{Core, State, child_key};
use crate::records::{Header, ORDERS, Snap, Work};
use crate::throttle::{Clock, Real};
use imbrex_bluestore::{BlueStore, Transaction};
use imbrex_device::{Code, Error, Result};
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of an object, as a power of two.
const ORDER: u8 = 22;
/// So many clones of clones of clones are followed.
pub(crate) const DEEPEST: usize = 256;

/// The images of an object store. Clones are the same.
#[derive(Clone)]
pub struct Images(Arc<Inner>);

/// Images that it does not keep open, and what who looks at them has meanwhile.
#[derive(Clone)]
pub(crate) struct WeakImages(Weak<Inner>, pub Arc<Mutex<()>>);

impl WeakImages {
    pub fn upgrade(&self) -> Option<Images> {
        self.0.upgrade().map(Images)
    }

    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Those of this process: whoever opens a store's images again has the same.
static OPEN: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

struct Inner {
    store: BlueStore,
    /// Images that somebody looks at. Who changes the directory has it, too.
    open: Mutex<HashMap<u64, Weak<Core>>>,
    kept: Arc<dyn Any + Send + Sync>,
    clock: Arc<dyn Clock>,
    /// Of all images that anybody has looked at: who connects again finds buckets and counters as he has left them.
    lasting: Mutex<HashMap<u64, Arc<Lasting>>>,
    /// Somebody looks at figures, and keeps them open meanwhile.
    looking: Arc<Mutex<()>>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn refused(code: Code, name: &str, sentence: impl Into<String>) -> Error {
    Error::refused(code, name, sentence.into())
}

pub(crate) fn no_image(name: &str) -> Error {
    refused(Code::NotFound, name, "there is no image of this name")
}

pub(crate) fn no_snapshot(name: &str, snapshot: &str) -> Error {
    refused(Code::NotFound, name, format!("this image has no snapshot {snapshot:?}"))
}

fn check_size(name: &str, size: u64) -> Result<()> {
    if size > MAX_IMAGE {
        return Err(refused(
            Code::InvalidArgument,
            name,
            format!("{size} bytes are too many; an image has {MAX_IMAGE} at most"),
        ));
    }
    Ok(())
}

/// An image's name, in the directory.
fn name_key(name: &str) -> Vec<u8> {
    [b"n", name.as_bytes()].concat()
}

/// An image that is being removed.
fn going_key(image: u64) -> Vec<u8> {
    [b"g", &image.to_be_bytes()[..]].concat()
}

type Open<'a> = MutexGuard<'a, HashMap<u64, Weak<Core>>>;

impl Images {
    /// The images of a store, which `kept` keeps open. What a process that ended was removing goes on to be removed.
    ///
    /// # Errors
    /// Those of the store; `Corrupt`.
    pub fn open(store: BlueStore, kept: impl Any + Send + Sync) -> Result<Images> {
        Images::open_clocked(store, kept, Arc::new(Real::default()))
    }

    /// The same, with another clock for the limits of requests: for tests. Images that this process has open keep theirs.
    ///
    /// # Errors
    /// Those of [`Images::open`].
    pub fn open_clocked(store: BlueStore, kept: impl Any + Send + Sync, clock: Arc<dyn Clock>) -> Result<Images> {
        let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|inner| inner.strong_count() > 0);
        if let Some(inner) = all.iter().filter_map(Weak::upgrade).find(|inner| inner.store.is(&store)) {
            return Ok(Images(inner));
        }
        let images = Images(Arc::new(Inner {
            store,
            open: Mutex::default(),
            kept: Arc::new(kept),
            clock,
            lasting: Mutex::default(),
            looking: Arc::default(),
        }));
        for (key, _) in images.pairs(b"g")? {
            let image =
                key[1..].try_into().map(u64::from_be_bytes).map_err(|_| images.corrupt("the list of images"))?;
            // The others are there all the same.
            let core = images.load(&mut images.lock(), image, 0);
            if let Err(error) = core.and_then(|core| images.finish_removal(&core)) {
                tracing::warn!(%error, image, "an image cannot be removed now; the next opening tries again");
            }
        }
        all.push(Arc::downgrade(&images.0));
        Ok(images)
    }

    pub(crate) fn downgrade(&self) -> WeakImages {
        WeakImages(Arc::downgrade(&self.0), self.0.looking.clone())
    }

    pub(crate) fn store(&self) -> &BlueStore {
        &self.0.store
    }

    pub(crate) fn lock(&self) -> Open<'_> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lasting(&self) -> MutexGuard<'_, HashMap<u64, Arc<Lasting>>> {
        self.0.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn corrupt(&self, what: &str) -> Error {
        Error::corrupt(&"images".into(), what.to_owned()).checked_by("imbrex store check")
    }

    /// Pairs of the directory whose keys begin so.
    fn pairs(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        all_pairs(self.store(), &directory(), prefix)
    }

    fn id_of(&self, name: &str) -> Result<Option<u64>> {
        let found = match self.store().omap_get(ALL, &directory(), &[&name_key(name)]) {
            Ok(found) => found.into_iter().next().flatten(),
            Err(error) if error.code() == Code::NotFound => None,
            Err(error) => return Err(error),
        };
        found.map(|id| self.number(&id)).transpose()
    }

    fn number(&self, bytes: &[u8]) -> Result<u64> {
        bytes.try_into().map(u64::from_le_bytes).map_err(|_| self.corrupt("the list of images"))
    }

    /// The image of this name.
    pub(crate) fn named(&self, open: &mut Open<'_>, name: &str) -> Result<Arc<Core>> {
        let id = self.id_of(name)?.ok_or_else(|| no_image(name))?;
        self.load(open, id, 0)
    }

    fn load(&self, open: &mut Open<'_>, id: u64, depth: usize) -> Result<Arc<Core>> {
        if let Some(core) = open.get(&id).and_then(Weak::upgrade) {
            return Ok(core);
        }
        let (store, object) = (self.store(), header(id));
        let corrupt = |what: &str| {
            Error::corrupt(&format!("image {id:x}").into(), what.to_owned()).checked_by("imbrex store check")
        };
        if depth > DEEPEST {
            return Err(corrupt("more clones of clones than there can be"));
        }
        let record = store.omap_header(ALL, &object)?.ok_or_else(|| corrupt("the header"))?;
        let header = Header::decode(&record).ok_or_else(|| corrupt("the header"))?;
        let mut snaps = BTreeMap::new();
        for (key, value) in all_pairs(store, &object, b"s")? {
            let id = key[1..].try_into().map(u64::from_be_bytes).ok();
            let one = id.filter(|id| *id > 0 && *id < header.next_snap).zip(Snap::decode(&value));
            let (id, snap) = one.ok_or_else(|| corrupt("a snapshot's record"))?;
            snaps.insert(id, snap);
        }
        let parent = header.parent.map(|parent| self.load(open, parent.image, depth + 1)).transpose()?;
        let new = || Arc::new(Lasting::new(self.0.clock.clone(), header.limits));
        let lasting = self.lasting().entry(id).or_insert_with(new).clone();
        let core = Arc::new(Core::new(store, id, State { header, snaps, parent, gone: false }, lasting));
        // Whoever changes it tries again; what can be read without that is read.
        if let Err(error) = core.resume() {
            tracing::warn!(%error, image = id, "what was begun with an image cannot be ended now");
        }
        open.insert(id, Arc::downgrade(&core));
        Ok(core)
    }

    fn make_directory(&self) -> Result<()> {
        match self.store().stat(ALL, &directory()) {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Code::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut transaction = Transaction::new();
        if !self.store().collections()?.iter().any(|(collection, _)| *collection == ALL) {
            transaction.create_collection(ALL, 0);
        }
        transaction.omap_header(ALL, &directory(), &1u64.to_le_bytes());
        self.store().commit(transaction)
    }

    /// A new image of this header, and what else has to be there with it.
    pub(crate) fn make(&self, name: &str, header: &Header, also: impl FnOnce(&mut Transaction, u64)) -> Result<()> {
        check(name)?;
        check_size(name, header.size)?;
        self.make_directory()?;
        if self.id_of(name)?.is_some() {
            return Err(refused(Code::Exists, name, "an image of this name exists"));
        }
        let next = self.store().omap_header(ALL, &directory())?.unwrap_or_default();
        let id = self.number(&next)?;
        let mut transaction = Transaction::new();
        transaction.omap_header(ALL, &directory(), &(id + 1).to_le_bytes());
        transaction.omap_set(ALL, &directory(), &[(&name_key(name), &id.to_le_bytes())]);
        transaction.omap_header(ALL, &crate::names::header(id), &header.encode());
        also(&mut transaction, id);
        self.store().commit(transaction)
    }

    /// Makes an image of this size, in bytes. It has zeros, which take no room.
    ///
    /// # Errors
    /// `Exists`; `NameTooLong` and `InvalidArgument` for names and sizes that cannot be; those of the store.
    pub fn create(&self, name: &str, size: u64) -> Result<()> {
        self.create_of(name, size, ORDER)
    }

    /// The same, of pieces of 2^`order` bytes, 12 to 30. Others have 4 MiB.
    ///
    /// # Errors
    /// Those of [`Images::create`].
    pub fn create_of(&self, name: &str, size: u64, order: u8) -> Result<()> {
        if !ORDERS.contains(&order) {
            return Err(refused(
                Code::InvalidArgument,
                name,
                format!("pieces of 2^{order} bytes cannot be; say 12 to 30"),
            ));
        }
        let _open = self.lock();
        let limits = Limits::default();
        let header = Header { size, order, next_snap: 1, created: now(), parent: None, work: Work::None, limits };
        self.make(name, &header, |_, _| ())
    }

    /// Opens an image, or a snapshot of it as `NAME@SNAPSHOT`, which is open for reading only.
    ///
    /// # Errors
    /// `NotFound`; `ReadOnly` where a snapshot is to be written; those of the store.
    pub fn image(&self, name: &str, read_only: bool) -> Result<Image> {
        let (image, snapshot) = name.split_once('@').map_or((name, None), |(image, snapshot)| (image, Some(snapshot)));
        check(image)?;
        let mut open = self.lock();
        let core = self.named(&mut open, image)?;
        if !read_only && core.state().header.work != Work::None {
            drop(core.settled(image)?);
        }
        let at = {
            let state = core.state();
            snapshot.map(|snapshot| state.snap(snapshot).ok_or_else(|| no_snapshot(image, snapshot))).transpose()?
        };
        if at.is_some() && !read_only {
            return Err(refused(
                Code::ReadOnly,
                name,
                "a snapshot cannot be written; clone it, and write to the clone",
            ));
        }
        Ok(Image::new((core, at), name, read_only, self.0.kept.clone()))
    }

    /// Names of all images, in order.
    ///
    /// # Errors
    /// Those of the store; `Corrupt`.
    pub fn names(&self) -> Result<Vec<String>> {
        Ok(self.ids()?.into_keys().collect())
    }

    fn ids(&self) -> Result<BTreeMap<String, u64>> {
        let one = |(key, value): (Vec<u8>, Vec<u8>)| {
            let name = String::from_utf8(key[1..].to_vec()).map_err(|_| self.corrupt("the name of an image"))?;
            Ok((name, self.number(&value)?))
        };
        self.pairs(b"n")?.into_iter().map(one).collect()
    }

    /// What an image is.
    ///
    /// # Errors
    /// `NotFound`; those of the store.
    pub fn info(&self, name: &str) -> Result<Info> {
        let mut open = self.lock();
        let core = self.named(&mut open, name)?;
        let names: HashMap<u64, String> = self.ids()?.into_iter().map(|(name, id)| (id, name)).collect();
        drop(open);
        let Taken { head: used, kept } = core.taken()?;
        let state = core.state();
        let parent = state.header.parent.zip(state.parent.as_ref()).map(|(link, parent)| Parent {
            image: names.get(&link.image).cloned().unwrap_or_default(),
            snapshot: parent.state().snaps.get(&link.snap).map(|snap| snap.name.clone()).unwrap_or_default(),
        });
        let alive = state.snaps.iter().filter(|(_, snap)| !snap.going);
        let snapshot = |(id, snap): (&u64, &Snap)| {
            let clones = self.clones_of(&core, *id)?;
            Ok(Snapshot { name: snap.name.clone(), size: snap.size, created: snap.created, clones })
        };
        let snapshots = alive.map(snapshot).collect::<Result<_>>()?;
        let Header { size, created, limits, .. } = state.header;
        Ok(Info { name: name.to_owned(), size, used, kept, limits, created, parent, snapshots })
    }

    /// Images that are clones of a snapshot.
    pub(crate) fn clones_of(&self, core: &Core, snap: u64) -> Result<u64> {
        let key = child_key(snap, 0);
        Ok(all_pairs(self.store(), &header(core.id), &key[..key.len() - 8])?.len() as u64)
    }

    /// Gives an image another name.
    ///
    /// # Errors
    /// `NotFound`; `Exists`; a name that cannot be; those of the store.
    pub fn rename(&self, name: &str, to: &str) -> Result<()> {
        check(to)?;
        let _open = self.lock();
        let id = self.id_of(name)?.ok_or_else(|| no_image(name))?;
        if self.id_of(to)?.is_some() {
            return Err(refused(Code::Exists, to, "an image of this name exists"));
        }
        let mut transaction = Transaction::new();
        transaction.omap_remove(ALL, &directory(), &[&name_key(name)]);
        transaction.omap_set(ALL, &directory(), &[(&name_key(to), &id.to_le_bytes())]);
        self.store().commit(transaction)
    }

    /// Removes an image without snapshots that nobody has open to write.
    ///
    /// # Errors
    /// `NotFound`; `NotEmpty` where it has snapshots; `Busy`; those of the store.
    pub fn remove(&self, name: &str) -> Result<()> {
        let mut open = self.lock();
        let core = self.named(&mut open, name)?;
        core.finish_snapshots()?;
        let mut state = core.alone();
        if state.gone {
            return Err(no_image(name));
        }
        if !state.snaps.is_empty() {
            return Err(refused(Code::NotEmpty, name, "this image has snapshots; remove them before it"));
        }
        check_unused(&core, name)?;
        let mut transaction = Transaction::new();
        transaction.omap_remove(ALL, &directory(), &[&name_key(name)]);
        transaction.omap_set(ALL, &directory(), &[(&going_key(core.id), b"")]).makes_room();
        self.store().commit(transaction)?;
        state.gone = true;
        drop(state);
        open.remove(&core.id);
        // Nobody finds it any more, so others need not wait.
        drop(open);
        self.finish_removal(&core)
    }

    /// Objects of an image that is nobody's any more go, and in the end what is known of it.
    fn finish_removal(&self, core: &Core) -> Result<()> {
        let id = core.id;
        core.drop_objects(0, None)?;
        let mut transaction = Transaction::new();
        transaction.remove(ALL, &header(id));
        transaction.omap_remove(ALL, &directory(), &[&going_key(id)]);
        if let Some(parent) = core.state().header.parent {
            transaction.omap_remove(ALL, &header(parent.image), &[&child_key(parent.snap, id)]);
        }
        self.store().commit(transaction)?;
        self.lasting().remove(&id);
        Ok(())
    }

    /// Gives an image another size, in bytes. What is new is zeros, and what is behind a smaller size is gone. Nobody may have an image open to write that becomes smaller.
    ///
    /// # Errors
    /// `NotFound`; `Busy`; `InvalidArgument` for a size that cannot be; those of the store.
    pub fn resize(&self, name: &str, size: u64) -> Result<()> {
        check_size(name, size)?;
        let core = self.named(&mut self.lock(), name)?;
        let mut state = core.settled(name)?;
        if size < state.header.size {
            check_unused(&core, name)?;
        }
        core.resize(&mut state, size)
    }

    /// Changes the limits of an image, durably. They count at once, for requests that wait, too. An image that takes more than it may keeps what it has.
    ///
    /// # Errors
    /// `NotFound`; those of the store.
    pub fn limit(&self, name: &str, change: LimitChange) -> Result<()> {
        let core = self.named(&mut self.lock(), name)?;
        let mut state = core.settled(name)?;
        let limits = change.of(state.header.limits);
        let next = Header { limits, ..state.header.clone() };
        let mut transaction = Transaction::new();
        core.put_header(&mut transaction, &next);
        self.store().commit(transaction)?;
        if limits.used.is_none() {
            // Nobody keeps count from now on.
            core.quota.bound().forget();
        }
        state.header = next;
        core.lasting.throttle.set(limits);
        Ok(())
    }

    /// An image is again what it was at a snapshot. Nobody may have it open to write.
    ///
    /// # Errors
    /// `NotFound`; `Busy`; those of the store.
    pub fn rollback(&self, name: &str, snapshot: &str) -> Result<()> {
        let core = self.named(&mut self.lock(), name)?;
        let mut state = core.settled(name)?;
        let snap = state.snap(snapshot).ok_or_else(|| no_snapshot(name, snapshot))?;
        check_unused(&core, name)?;
        core.rollback(&mut state, snap)
    }
}

pub(crate) fn check_unused(core: &Core, name: &str) -> Result<()> {
    if core.users.load(Ordering::Acquire) > 0 {
        return Err(refused(Code::Busy, name, "somebody has this image open to write; disconnect them before"));
    }
    Ok(())
}

/// Pairs of an object's omap whose keys begin so. None where there is no such object.
fn all_pairs(store: &BlueStore, object: &imbrex_bluestore::ObjectId, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut all, mut next) = (Vec::new(), Some(prefix.to_vec()));
    while let Some(from) = next {
        let page = match store.omap(ALL, object, &from, 1024) {
            Ok(page) => page,
            Err(error) if error.code() == Code::NotFound => break,
            Err(error) => return Err(error),
        };
        let known = page.all.len();
        all.extend(page.all.into_iter().take_while(|(key, _)| key.starts_with(prefix)));
        next = page.next.filter(|_| known > 0 && all.last().is_some_and(|(key, _)| key.starts_with(prefix)));
        if next.as_ref().is_some_and(|next| !next.starts_with(prefix)) {
            break;
        }
    }
    Ok(all)
}

pub(crate) fn created() -> u64 {
    now()
}
