//! What an image does alone, and goes on with after a crash: to become smaller, and to become what it was at a snapshot.

use crate::names::{ALL, HEAD};
use crate::objects::{Core, State, set_epochs};
use crate::records::{Epochs, Header, ParentLink, Work};
use imbrex_bluestore::{Survives, Transaction};
use imbrex_device::Result;

impl Core {
    /// Puts a header down durably, before or behind what it speaks of.
    fn commit_header(&self, state: &mut State, to: Header) -> Result<()> {
        let mut transaction = Transaction::new();
        self.put_header(&mut transaction, &to);
        let ticket = self.store.queue(transaction)?;
        self.wait(ticket, Survives::Power)?;
        state.header = to;
        self.forget_ready();
        self.quota.bound().forget();
        Ok(())
    }

    /// The image has this size.
    pub fn resize(&self, state: &mut State, size: u64) -> Result<()> {
        let before = state.header.size;
        let parent = state.header.parent.map(|parent| ParentLink { overlap: parent.overlap.min(size), ..parent });
        let work = if size < before { Work::Shrink(before) } else { Work::None };
        self.commit_header(state, Header { size, parent, work, ..state.header.clone() })?;
        self.finish_work(state)
    }

    /// The image is what it was at this snapshot.
    pub fn rollback(&self, state: &mut State, snap: u64) -> Result<()> {
        let (size, overlap) = state.snaps.get(&snap).map_or((0, 0), |snap| (snap.size, snap.overlap));
        let parent = state.header.parent.map(|parent| ParentLink { overlap, ..parent });
        self.commit_header(state, Header { size, parent, work: Work::Rollback(snap), ..state.header.clone() })?;
        self.finish_work(state)
    }

    /// Does what the header says that the image is in the middle of. To do it twice is to do it once.
    pub fn finish_work(&self, state: &mut State) -> Result<()> {
        match state.header.work {
            Work::None => return Ok(()),
            Work::Shrink(_) => self.shrink(state)?,
            Work::Rollback(snap) => {
                self.each(0, |number, snaps| self.roll_back(state, number, snaps, snap))?;
            }
        }
        self.commit_header(state, Header { work: Work::None, ..state.header.clone() })
    }

    fn shrink(&self, state: &State) -> Result<()> {
        let (size, object) = (state.header.size, state.header.object_size());
        if state.newest() > 0 {
            self.keep_from(state, size / object)?;
        }
        let (last, rest) = (size / object, size % object);
        let head = self.object(last, HEAD);
        if rest > 0 && self.epochs(&head)?.is_some() {
            let mut transaction = Transaction::new();
            transaction.truncate(ALL, &head, rest);
            self.step(transaction)?;
        }
        self.drop_objects(size.div_ceil(object), Some(HEAD))
    }

    fn roll_back(&self, state: &State, number: u64, snaps: &[u64], to: u64) -> Result<()> {
        let head = self.object(number, HEAD);
        let then = self.find(number, Some(to))?;
        if then.as_ref().is_some_and(|(id, _)| *id == head) {
            return Ok(());
        }
        if snaps.contains(&HEAD) {
            self.copy_before_change(state, number)?;
        }
        let mut transaction = Transaction::new();
        match then {
            Some((id, _)) => {
                // It is of no snapshot so far: each has what was kept for it, or nothing.
                let newest = state.newest();
                transaction.clone_object(ALL, &id, &head);
                set_epochs(&mut transaction, &head, Epochs { born: newest, copied: newest });
            }
            None if snaps.contains(&HEAD) => _ = transaction.remove(ALL, &head),
            None => return Ok(()),
        }
        self.step(transaction)
    }
}
