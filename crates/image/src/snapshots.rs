//! Snapshots: how they come and go.

use crate::images::{Images, created, no_image, no_snapshot};
use crate::names::{ALL, HEAD, check, header};
use crate::objects::{Core, State, snap_key};
use crate::records::Snap;
use imbrex_bluestore::Transaction;
use imbrex_device::{Code, Error, Result};
use std::sync::RwLockWriteGuard;

/// Pieces that one transaction changes.
pub(crate) const BATCH: usize = 64;

impl Images {
    /// Keeps what an image has now, all writes that have returned, under a name. It is durable when it returns, and no byte is copied.
    ///
    /// # Errors
    /// `NotFound`; `Exists`; a name that cannot be; those of the store.
    pub fn snapshot(&self, name: &str, snapshot: &str) -> Result<()> {
        check(snapshot)?;
        let core = self.named(&mut self.lock(), name)?;
        let mut state = core.settled(name)?;
        if state.snap(snapshot).is_some() {
            return Err(Error::refused(Code::Exists, name, format!("this image has a snapshot {snapshot:?}")));
        }
        let id = state.header.next_snap;
        if id >= HEAD - 1 {
            return Err(Error::refused(Code::NoSpace, name, "this image has had as many snapshots as can be"));
        }
        let (size, overlap) = (state.header.size, state.overlap(None));
        let snap = Snap { name: snapshot.to_owned(), size, overlap, created: created(), going: false };
        let next = crate::records::Header { next_snap: id + 1, ..state.header.clone() };
        let mut transaction = Transaction::new();
        core.put_header(&mut transaction, &next);
        core.put_snap(&mut transaction, id, &snap);
        self.store().commit(transaction)?;
        state.header = next;
        state.snaps.insert(id, snap);
        core.forget_ready();
        Ok(())
    }

    /// Removes a snapshot that has no clones.
    ///
    /// # Errors
    /// `NotFound`; `Busy` where it has clones; those of the store.
    pub fn remove_snapshot(&self, name: &str, snapshot: &str) -> Result<()> {
        // Nobody makes a clone of it meanwhile.
        let mut open = self.lock();
        let core = self.named(&mut open, name)?;
        let mut state = core.settled(name)?;
        let mut going = state.snaps.iter().filter(|(_, snap)| snap.going && snap.name == snapshot).map(|(id, _)| *id);
        let Some(id) = state.snap(snapshot) else {
            // An earlier removal has failed in the middle.
            let id = going.next().ok_or_else(|| no_snapshot(name, snapshot))?;
            drop((open, state));
            return core.finish_snapshot(id);
        };
        let clones = self.clones_of(&core, id)?;
        if clones > 0 {
            let sentence = format!("the snapshot {snapshot:?} has {clones} clones; flatten or remove them before");
            return Err(Error::refused(Code::Busy, name, sentence));
        }
        drop(open);
        let snap = state.snaps.get(&id).cloned().map(|snap| Snap { going: true, ..snap });
        let snap = snap.ok_or_else(|| no_snapshot(name, snapshot))?;
        let mut transaction = Transaction::new();
        core.put_snap(&mut transaction, id, &snap);
        transaction.makes_room();
        self.store().commit(transaction)?;
        state.snaps.insert(id, snap);
        drop(state);
        core.finish_snapshot(id)
    }
}

impl Core {
    /// What was kept for a snapshot that is nobody's any more goes, or is kept for the one before it. The image may be used meanwhile.
    pub fn finish_snapshot(&self, going: u64) -> Result<()> {
        let mut batch = Vec::new();
        self.each(0, |number, snaps| {
            if snaps.contains(&going) {
                batch.push((number, snaps.to_vec()));
            }
            if batch.len() >= BATCH { self.pass_on(&mut batch, going) } else { Ok(()) }
        })?;
        self.pass_on(&mut batch, going)?;
        let mut state = self.alone();
        let mut transaction = Transaction::new();
        transaction.omap_remove(ALL, &header(self.id), &[&snap_key(going)]);
        self.store.commit(transaction)?;
        state.snaps.remove(&going);
        Ok(())
    }

    fn pass_on(&self, batch: &mut Vec<(u64, Vec<u64>)>, going: u64) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let state = self.alone();
        let mut transaction = Transaction::new();
        for (number, snaps) in batch.drain(..) {
            let object = self.object(number, going);
            let Some(epochs) = self.epochs(&object)? else { continue };
            let kept = snaps.iter().filter(|snap| **snap < going).max().copied().unwrap_or(0).max(epochs.born);
            match state.snaps.range(kept + 1..going).rfind(|(_, snap)| !snap.going) {
                Some((heir, _)) => transaction.rename(ALL, &object, &self.object(number, *heir)),
                None => transaction.remove(ALL, &object),
            };
        }
        self.step(transaction)?;
        self.quota.bound().freed();
        Ok(())
    }

    /// Goes on with what a process that ended has begun.
    pub fn resume(&self) -> Result<()> {
        self.finish_snapshots()?;
        self.finish_work(&mut self.alone())
    }

    /// Snapshots that are nobody's any more go.
    pub fn finish_snapshots(&self) -> Result<()> {
        let going: Vec<u64> = self.state().snaps.iter().filter(|(_, snap)| snap.going).map(|(id, _)| *id).collect();
        going.into_iter().try_for_each(|id| self.finish_snapshot(id))
    }

    /// The state alone, of an image that is there and in the middle of nothing.
    pub fn settled(&self, name: &str) -> Result<RwLockWriteGuard<'_, State>> {
        let mut state = self.alone();
        if state.gone {
            return Err(no_image(name));
        }
        self.finish_work(&mut state)?;
        Ok(state)
    }

    /// Objects of pieces from one on go, those of this snapshot or all.
    pub fn drop_objects(&self, from: u64, of: Option<u64>) -> Result<()> {
        let mut transaction = Transaction::new();
        let mut count = 0;
        self.each(from, |number, snaps| {
            for snap in snaps.iter().filter(|snap| of.is_none_or(|of| of == **snap)) {
                transaction.remove(ALL, &self.object(number, *snap));
                count += 1;
            }
            if count < BATCH {
                return Ok(());
            }
            count = 0;
            self.step(std::mem::take(&mut transaction))
        })?;
        self.step(transaction)
    }

    /// What the last snapshot needs of pieces from one on is kept.
    pub fn keep_from(&self, state: &State, from: u64) -> Result<()> {
        self.each(from, |number, snaps| match snaps.contains(&HEAD) {
            true => self.copy_before_change(state, number),
            false => Ok(()),
        })
    }
}
