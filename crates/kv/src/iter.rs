//! Keys in order, as they were at one moment.

use crate::core::Core;
use crate::core::lease::{KEPT, Lease};
use crate::core::run::Reach;
use crate::core::view::{Tables, View};
use crate::cursor::{At, Cursor, Merged};
use crate::read::{Reader, all, merged};
use crate::space::{MARK, begin, end, full, user};
use crate::sync::{Mutex, lock};
use crate::table::Kind;
use imbrex_device::{Code, Result};
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, TryLockError, Weak};
use std::time::{Duration, Instant};

/// What it keeps of the store.
struct Held {
    core: Arc<Core>,
    reach: Reach,
    began: Instant,
    /// It was moving when it was asked to rest.
    asked: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// Nothing: it has expired.
    reader: Option<Reader>,
    /// Nothing: it rests.
    open: Option<Open>,
}

struct Open {
    since: Instant,
    /// What keeps the tables.
    view: Arc<View>,
    merged: Merged,
}

impl State {
    /// Gives back other tables than these, if it has had them for so long. False: it has none.
    fn rest(&mut self, now: &Arc<Tables>, kept: Duration) -> bool {
        let due = |open: &mut Open| !Arc::ptr_eq(&open.view.tables, now) && open.since.elapsed() >= kept;
        self.open.take_if(due).is_some()
    }
}

impl Lease for Held {
    fn rest(&self, now: &Arc<Tables>) {
        match self.state.try_lock() {
            Ok(mut state) => drop(state.rest(now, KEPT)),
            Err(TryLockError::Poisoned(state)) => drop(state.into_inner().rest(now, KEPT)),
            Err(TryLockError::WouldBlock) => self.asked.store(true, Ordering::Relaxed),
        }
    }

    fn rest_at_once(&self, now: &Arc<Tables>) -> bool {
        lock(&self.state).rest(now, Duration::ZERO)
    }

    fn expire(&self, age: Duration) -> bool {
        if self.began.elapsed() < age {
            return false;
        }
        let mut state = lock(&self.state);
        state.open = None;
        state.reader.take().is_some()
    }
}

/// Keys and values in order, as they were when it was made, in both directions.
pub struct Iter {
    held: Arc<Held>,
    /// Going back, the cursor stands before the key, and this is what the key has.
    at: Option<(Vec<u8>, Vec<u8>)>,
    /// Of this space; keys in `at` are the tree's.
    space: u16,
    back: bool,
    /// What keeps the store open.
    _open: Arc<dyn Any + Send + Sync>,
}

impl Iter {
    /// At a reader's moment; `open` keeps the store open.
    pub(crate) fn new(
        core: &Arc<Core>,
        (reader, reach): (Reader, Reach),
        space: u16,
        open: Arc<dyn Any + Send + Sync>,
    ) -> Iter {
        let state = State { reader: Some(reader), open: None };
        let (core, began) = (core.clone(), Instant::now());
        let held = Arc::new(Held { core, reach, began, asked: AtomicBool::default(), state: Mutex::new(state) });
        let lease: Weak<Held> = Arc::downgrade(&held);
        held.core.lend(lease);
        Iter { held, at: None, space, back: false, _open: open }
    }

    /// The key and the value that it stands on; `None`: it stands on none.
    pub fn get(&self) -> Option<(&[u8], &[u8])> {
        self.at.as_ref().map(|(key, value)| (&key[MARK..], value.as_slice()))
    }

    /// Walks over changes, and stands where that ends; where it fails, it stays where it was. `back`: to lower keys. The walk is told whether the cursor stands where the last one has left it.
    fn walk(
        &mut self,
        back: bool,
        walk: impl FnOnce(&mut Walk<'_>, bool) -> Result<Option<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<()> {
        let goes_on = std::mem::replace(&mut self.back, back) == back;
        let core = &self.held.core;
        let mut state = lock(&self.held.state);
        if self.held.asked.load(Ordering::Relaxed) {
            self.held.asked.store(false, Ordering::Relaxed);
            state.rest(&core.view().tables, KEPT);
        }
        let State { reader, open } = &mut *state;
        let Some(seq) = reader.as_ref().map(|reader| reader.seq) else {
            let sentence = "the iterator has expired: the store was full, and needed the old values that it kept; begin another one, or give a longer lease";
            return Err(core.refused(Code::Expired, sentence));
        };
        let is_open = open.is_some();
        let now = match open {
            Some(now) => now,
            None => {
                let view = core.view();
                open.insert(Open {
                    since: Instant::now(),
                    merged: all(&core.options.order, &view, self.held.reach)?,
                    view,
                })
            }
        };
        let mut over = Walk { core, seq, space: self.space, view: &now.view, merged: &mut now.merged };
        match walk(&mut over, goes_on && is_open) {
            Ok(at) => self.at = at,
            Err(error) => {
                // The cursors may stand anywhere.
                *open = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Goes to the first key at or behind this one.
    ///
    /// # Errors
    /// Those of the reads; `Corrupt`; `InvalidArgument` at a key with operands, where the space has no [operator](crate::Kv::merge_operator); `Expired` where the store was full, and needed what this has kept for longer than the option `lease`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.at = None;
        let key = full(self.space, key);
        self.walk(false, |walk, _| {
            walk.seek(Some((&key, u64::MAX)))?;
            walk.settle_on()
        })
    }

    /// Goes to the first key.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.at = None;
        let first = begin(self.space);
        self.walk(false, |walk, _| {
            walk.seek(Some((&first, u64::MAX)))?;
            walk.settle_on()
        })
    }

    /// Goes to the last key.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.at = None;
        let last = end(self.space);
        self.walk(true, |walk, _| {
            walk.merged.seek_before(Some((&last, u64::MAX)))?;
            walk.settle_back()
        })
    }

    /// Goes to the last key at or before this one.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.seek(key)?;
        let key = full(self.space, key);
        match &self.at {
            Some((at, _)) if self.held.core.order().compare(at, &key).is_eq() => Ok(()),
            Some(_) => self.retreat(),
            None => self.seek_to_last(),
        }
    }

    /// Goes one key on. Where that fails, it stays where it is.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn advance(&mut self) -> Result<()> {
        let Some(key) = self.at.as_ref().map(|(key, _)| key.clone()) else { return Ok(()) };
        self.walk(false, |walk, goes_on| {
            if !goes_on {
                walk.seek(Some((&key, 0)))?;
            }
            walk.skip_key(&key)?;
            walk.settle_on()
        })
    }

    /// Goes one key back. Where that fails, it stays where it is.
    ///
    /// # Errors
    /// Those of [`Iter::seek`].
    pub fn retreat(&mut self) -> Result<()> {
        let Some(key) = self.at.as_ref().map(|(key, _)| key.clone()) else { return Ok(()) };
        self.walk(true, |walk, goes_on| {
            if !goes_on {
                walk.merged.seek_before(Some((&key, u64::MAX)))?;
            }
            walk.settle_back()
        })
    }
}

/// On the way over changes of a view.
struct Walk<'a> {
    core: &'a Core,
    seq: u64,
    space: u16,
    view: &'a View,
    merged: &'a mut Merged,
}

impl Walk<'_> {
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        // A head that moves is sooner there if it reads one long piece after the other.
        let rotates = self.core.tenant.volume().geometry().rotational;
        self.merged.seek_together(to, if rotates { 1 } else { self.core.options.reads() })
    }

    /// Whether a deleted range hides a change.
    fn is_deleted(&self, at: &At<'_>) -> bool {
        at.seq < self.view.ranges.floor(self.core.order(), at.key, self.seq)
    }

    /// Whether a change that the reader sees gives its key a value.
    fn has_value(&self, at: &At<'_>) -> bool {
        at.kind == Kind::Put && !self.is_deleted(at) && !self.core.spaces.is_over(at.key, at.value)
    }

    /// What a change that the reader sees gives its key, where it is no operand.
    fn value(&self, at: &At<'_>) -> Option<Vec<u8>> {
        self.has_value(at).then(|| at.value.to_vec())
    }

    /// Passes what is left of a key's changes.
    fn skip_key(&mut self, key: &[u8]) -> Result<()> {
        while self.merged.at().is_some_and(|at| self.core.order().compare(at.key, key).is_eq()) {
            self.merged.next()?;
        }
        Ok(())
    }

    /// From a change on to the first key that has a value. Stays on the change with it, or behind its operands.
    fn settle_on(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        while let Some(at) = self.merged.at().filter(|at| user(self.space, at.key).is_some()) {
            if at.seq > self.seq {
                self.merged.next()?;
            } else if self.has_value(&at) {
                return Ok(Some((at.key.to_vec(), at.value.to_vec())));
            } else {
                let key = at.key.to_vec();
                let operands = self.operands(&key)?;
                if !operands.is_empty() {
                    let base = self.merged.at().filter(|at| self.core.order().compare(at.key, &key).is_eq());
                    let base = base.and_then(|at| self.value(&at));
                    if let Some(value) = merged(self.core, &key, base.as_deref(), &operands)? {
                        return Ok(Some((key, value)));
                    }
                }
                self.skip_key(&key)?;
            }
        }
        Ok(None)
    }

    /// Passes the operands of a key, and returns them, the newest first. Stays behind the last that counts.
    fn operands(&mut self, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut operands = Vec::new();
        while let Some(at) = self.merged.at()
            && at.kind == Kind::Merge
            && self.core.order().compare(at.key, key).is_eq()
            && !self.is_deleted(&at)
        {
            operands.push(at.value.to_vec());
            self.merged.next()?;
        }
        Ok(operands)
    }

    /// From a change back to the last key that has a value. Stays before all changes of that key.
    fn settle_back(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        while let Some(at) = self.merged.at().filter(|at| user(self.space, at.key).is_some()) {
            let key = at.key.to_vec();
            let (mut value, mut operands) = (None, Vec::new());
            // From the oldest to the newest that the reader sees.
            while let Some(at) = self.merged.at().filter(|at| self.core.order().compare(at.key, &key).is_eq()) {
                if at.seq <= self.seq && at.kind == Kind::Merge && !self.is_deleted(&at) {
                    operands.push(at.value.to_vec());
                } else if at.seq <= self.seq {
                    operands.clear();
                    value = self.value(&at);
                }
                self.merged.prev()?;
            }
            if !operands.is_empty() {
                operands.reverse();
                value = merged(self.core, &key, value.as_deref(), &operands)?;
            }
            if let Some(value) = value {
                return Ok(Some((key, value)));
            }
        }
        Ok(None)
    }
}
