//! An image that somebody looks at: its records in memory, and which object has a piece of it, at which moment.
//!
//! Who reads and writes has the state for reading; who changes records, or objects of snapshots, has it alone. An image's state is locked before that of its parent.

use crate::lasting::Lasting;
use crate::names::{ALL, HEAD, data, header, number_of};
use crate::quota::Quota;
use crate::records::{EPOCHS, Epochs, Header, Snap, Work};
use imbrex_bluestore::{BlueStore, ObjectId, Survives, Ticket, Transaction};
use imbrex_device::{Code, Error, Result};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Objects of which is known that they need no copy before a write; more than these are not kept in mind.
const MOST_READY: usize = 1 << 20;

/// An object of an ancestor, and how many bytes of it count.
pub(crate) type Source<'a> = (&'a ObjectId, u64);

/// Why somebody asks which object has a piece at a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    ToRead,
    /// It must stay so until the copy is queued.
    ToCopy,
}

pub(crate) struct State {
    pub header: Header,
    /// By number.
    pub snaps: BTreeMap<u64, Snap>,
    /// Whose it is a clone, with [`Header::parent`].
    pub parent: Option<Arc<Core>>,
    /// It was removed.
    pub gone: bool,
}

/// See the module.
pub(crate) struct Core {
    pub id: u64,
    pub store: BlueStore,
    state: RwLock<State>,
    /// Objects that need no copy before a write. Who makes one so has this meanwhile.
    ready: Mutex<HashSet<u64>>,
    /// Who has it open to write.
    pub users: AtomicUsize,
    pub quota: Quota,
    pub lasting: Arc<Lasting>,
}

impl State {
    /// The snapshot for which an object is kept before it changes; 0: none.
    pub fn newest(&self) -> u64 {
        self.snaps.iter().rev().find(|(_, snap)| !snap.going).map_or(0, |(id, _)| *id)
    }

    /// Bytes of the parent that count for the image, or for a snapshot of it.
    pub fn overlap(&self, at: Option<u64>) -> u64 {
        match at {
            None => self.header.parent.map_or(0, |parent| parent.overlap),
            Some(snap) => self.snaps.get(&snap).map_or(0, |snap| snap.overlap),
        }
    }

    /// Refuses what cannot be done while something has not ended that the header tells of.
    pub fn check_work(&self, name: &str) -> Result<()> {
        let what = match self.header.work {
            Work::None => return Ok(()),
            Work::Shrink(_) => "to become smaller",
            Work::Rollback(_) => "to become what a snapshot has",
        };
        let sentence = format!("this image has begun {what} and has not ended; do that again");
        Err(Error::refused(Code::Busy, name, sentence))
    }

    pub fn snap(&self, name: &str) -> Option<u64> {
        self.snaps.iter().find(|(_, snap)| snap.name == name && !snap.going).map(|(id, _)| *id)
    }

    /// No object has to be copied before a write.
    fn is_plain(&self) -> bool {
        self.parent.is_none() && self.newest() == 0
    }
}

impl Core {
    pub fn new(store: &BlueStore, id: u64, state: State, lasting: Arc<Lasting>) -> Core {
        let (state, ready, users) = (RwLock::new(state), Mutex::default(), AtomicUsize::new(0));
        Core { id, store: store.clone(), state, ready, users, quota: Quota::default(), lasting }
    }

    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody reads and writes meanwhile.
    pub fn alone(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Objects may need copies again.
    pub fn forget_ready(&self) {
        self.ready().clear();
    }

    pub fn corrupt(&self, what: &str) -> Error {
        Error::corrupt(&format!("image {:x}", self.id).into(), what.to_owned()).checked_by("imbrex store check")
    }

    /// An object of this image.
    pub fn object(&self, number: u64, snap: u64) -> ObjectId {
        data(self.id, number, snap)
    }

    /// When an object came; `None`: it is not there.
    pub fn epochs(&self, id: &ObjectId) -> Result<Option<Epochs>> {
        match self.store.stat(ALL, id) {
            Ok(stat) => Epochs::of(&stat.attributes).map(Some).ok_or_else(|| self.corrupt("an object's epochs")),
            Err(error) if error.code() == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The object that has a piece of the image, now or at a snapshot; `None`: what its parent has counts.
    pub fn find(&self, number: u64, at: Option<u64>) -> Result<Option<(ObjectId, Epochs)>> {
        let Some(at) = at else {
            let head = self.object(number, HEAD);
            return Ok(self.epochs(&head)?.map(|epochs| (head, epochs)));
        };
        // What was kept for the next snapshot behind it is what it was.
        let page = self.store.list(ALL, Some(&self.object(number, at)), 1)?;
        let Some(id) = page.all.into_iter().find(|id| number_of(self.id, id).is_some_and(|(n, _)| n == number)) else {
            return Ok(None);
        };
        let epochs = self.epochs(&id)?.filter(|epochs| epochs.born < at);
        Ok(epochs.map(|epochs| (id, epochs)))
    }

    /// What an ancestor has of a piece that this image has not, as far as `overlap` goes: the object, and how many bytes of it count. It has this until `then` returns, for
    /// [`Why::ToCopy`]; else `then` is called again where it has not.
    pub fn inherited<T>(
        &self,
        state: &State,
        (number, overlap, why): (u64, u64, Why),
        then: &mut dyn FnMut(Option<Source<'_>>) -> Result<T>,
    ) -> Result<T> {
        let begin = number.saturating_mul(state.header.object_size());
        let (Some(parent), Some(link)) = (&state.parent, state.header.parent) else { return then(None) };
        if begin >= overlap {
            return then(None);
        }
        let above = parent.state();
        let found = parent.with(number, link.snap, why, &mut |id| {
            then(Some((id, (overlap - begin).min(state.header.object_size()))))
        })?;
        match found {
            Some(found) => Ok(found),
            None => {
                let overlap = overlap.min(above.overlap(Some(link.snap)));
                parent.inherited(&above, (number, overlap, why), then)
            }
        }
    }

    /// What `then` makes of the object that has a piece at a snapshot; `None`: there is none. The head may be it, which a write copies for the snapshot before it changes it.
    pub fn with<T>(
        &self,
        number: u64,
        snap: u64,
        why: Why,
        then: &mut dyn FnMut(&ObjectId) -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            // Whoever has this sees no head change that counts.
            let _ready = (why == Why::ToCopy).then(|| self.ready());
            let Some((id, _)) = self.find(number, Some(snap))? else { return Ok(None) };
            let found = then(&id);
            let same = why == Why::ToCopy
                || id.snap != HEAD
                || self.find(number, Some(snap))?.is_some_and(|(now, _)| now == id);
            if same {
                return found.map(Some);
            }
        }
    }

    /// No copy is needed before the piece changes, as far as is known in memory.
    pub fn is_ready(&self, state: &State, number: u64) -> bool {
        state.is_plain() || self.ready().contains(&number)
    }

    /// What the last snapshot needs of a piece is kept, and what a parent has of it is here: the piece may change.
    pub fn make_ready(&self, state: &State, number: u64) -> Result<()> {
        if self.is_ready(state, number) {
            return Ok(());
        }
        let mut ready = self.ready();
        if ready.contains(&number) {
            return Ok(());
        }
        self.copy_before_change(state, number)?;
        if ready.len() >= MOST_READY {
            ready.clear();
        }
        ready.insert(number);
        Ok(())
    }

    /// The same, by who has the state alone or the set of what is ready.
    pub fn copy_before_change(&self, state: &State, number: u64) -> Result<()> {
        let (head, newest) = (self.object(number, HEAD), state.newest());
        match self.epochs(&head)? {
            Some(Epochs { copied, .. }) if copied >= newest => Ok(()),
            Some(Epochs { born, .. }) => {
                let mut transaction = Transaction::new();
                transaction.clone_object(ALL, &head, &self.object(number, newest));
                set_epochs(&mut transaction, &head, Epochs { born, copied: newest });
                self.store.queue(transaction).map(drop)
            }
            None => self.inherited(state, (number, state.overlap(None), Why::ToCopy), &mut |source| {
                let mut transaction = Transaction::new();
                match source {
                    Some(source) => copy(&mut transaction, source, &head),
                    None => _ = transaction.touch(ALL, &head),
                }
                set_epochs(&mut transaction, &head, Epochs { born: newest, copied: newest });
                self.store.queue(transaction).map(drop)
            }),
        }
    }

    /// Numbers of pieces that have objects, from one on, with the snapshots of these. `one` may change objects of the pieces that it was told.
    pub fn each(&self, from: u64, mut one: impl FnMut(u64, &[u64]) -> Result<()>) -> Result<()> {
        let mut next = Some(self.object(from, 0));
        let mut piece: Option<(u64, Vec<u64>)> = None;
        while let Some(from) = next {
            let page = self.store.list(ALL, Some(&from), 256)?;
            next = page.next;
            for id in page.all {
                let Some((number, snap)) = number_of(self.id, &id) else {
                    next = None;
                    break;
                };
                match &mut piece {
                    Some((of, snaps)) if *of == number => snaps.push(snap),
                    _ => {
                        if let Some((number, snaps)) = piece.replace((number, vec![snap])) {
                            one(number, &snaps)?;
                        }
                    }
                }
            }
        }
        piece.map_or(Ok(()), |(number, snaps)| one(number, &snaps))
    }

    /// The header's record.
    pub fn put_header(&self, transaction: &mut Transaction, of: &Header) {
        transaction.omap_header(ALL, &header(self.id), &of.encode());
    }

    /// The record of a snapshot.
    pub fn put_snap(&self, transaction: &mut Transaction, id: u64, snap: &Snap) {
        transaction.omap_set(ALL, &header(self.id), &[(&snap_key(id), &snap.encode())]);
    }

    /// Queues a step of something long. Once it survives the process the next may follow.
    pub fn step(&self, transaction: Transaction) -> Result<()> {
        let ticket = self.store.queue(transaction)?;
        self.store.wait_for(ticket, Survives::Process)
    }

    pub fn wait(&self, ticket: Ticket, survives: Survives) -> Result<()> {
        self.store.wait_for(ticket, survives)
    }
}

/// `to` is what `source` has, of which so many bytes count.
pub(crate) fn copy(transaction: &mut Transaction, (source, counts): Source<'_>, to: &ObjectId) {
    transaction.clone_object(ALL, source, to);
    // No more than that, and no less: then the rest is zeros.
    transaction.truncate(ALL, to, counts);
}

pub(crate) fn set_epochs(transaction: &mut Transaction, id: &ObjectId, epochs: Epochs) {
    transaction.set_attributes(ALL, id, &[(EPOCHS, &epochs.encode())]);
}

/// Where a header's object has a snapshot.
pub(crate) fn snap_key(id: u64) -> Vec<u8> {
    [b"s", &id.to_be_bytes()[..]].concat()
}

/// Where the object of a parent's header has a clone of a snapshot.
pub(crate) fn child_key(snap: u64, child: u64) -> Vec<u8> {
    [b"c", &snap.to_be_bytes()[..], &child.to_be_bytes()].concat()
}
