//! Clones of images, and how they become images of their own.

use crate::charge::BLOCK;
use crate::images::{DEEPEST, Images, created, no_snapshot};
use crate::limits::Limits;
use crate::names::{ALL, HEAD, header};
use crate::objects::{Core, State, Why, child_key, copy, set_epochs};
use crate::records::{Epochs, Header, ParentLink, Snap, Work};
use imbrex_bluestore::Transaction;
use imbrex_device::{Code, Error, Result};

impl Images {
    /// Makes an image that has what another had at a snapshot. It shares all bytes with it until either changes.
    ///
    /// # Errors
    /// `NotFound`; `Exists`; a name that cannot be; those of the store.
    pub fn clone_image(&self, name: &str, snapshot: &str, to: &str) -> Result<()> {
        let mut open = self.lock();
        let core = self.named(&mut open, name)?;
        let (snap, size, order) = {
            let state = core.state();
            let snap = state.snap(snapshot).ok_or_else(|| no_snapshot(name, snapshot))?;
            (snap, state.snaps[&snap].size, state.header.order)
        };
        if core.depth() + 1 >= DEEPEST {
            let sentence =
                format!("an image may be a clone of a clone {DEEPEST} times at most; flatten this one before");
            return Err(Error::refused(Code::InvalidArgument, name, sentence));
        }
        let parent = Some(ParentLink { image: core.id, snap, overlap: size });
        let new = Header {
            size,
            order,
            next_snap: 1,
            created: created(),
            parent,
            work: Work::None,
            limits: Limits::default(),
        };
        self.make(to, &new, |transaction, id| {
            transaction.omap_set(ALL, &header(core.id), &[(&child_key(snap, id), b"")]);
        })
    }

    /// A clone gets objects of its own for all that it has of its parent, and needs it no more. No byte is copied. It may be used meanwhile.
    ///
    /// # Errors
    /// `NotFound`; those of the store.
    pub fn flatten(&self, name: &str) -> Result<()> {
        let core = self.named(&mut self.lock(), name)?;
        let pieces = {
            let state = core.state();
            let overlap = state.snaps.keys().map(|snap| state.overlap(Some(*snap))).max().unwrap_or(0);
            overlap.max(state.overlap(None)).div_ceil(state.header.object_size())
        };
        for number in 0..pieces {
            let state = core.settled(name)?;
            core.flatten_piece(&state, number)?;
        }
        let mut state = core.settled(name)?;
        let Some(parent) = state.header.parent else { return Ok(()) };
        let new = Header { parent: None, ..state.header.clone() };
        let alone = |snap: &Snap| Snap { overlap: 0, ..snap.clone() };
        let snaps: Vec<(u64, Snap)> = state.snaps.iter().map(|(id, snap)| (*id, alone(snap))).collect();
        let mut transaction = Transaction::new();
        core.put_header(&mut transaction, &new);
        snaps.iter().for_each(|(id, snap)| core.put_snap(&mut transaction, *id, snap));
        transaction.omap_remove(ALL, &header(parent.image), &[&child_key(parent.snap, core.id)]);
        self.store().commit(transaction)?;
        state.header = new;
        state.snaps.extend(snaps);
        state.parent = None;
        Ok(())
    }
}

impl Core {
    /// How many ancestors there are.
    fn depth(&self) -> usize {
        let (mut depth, mut next) = (0, self.state().parent.clone());
        while let Some(core) = next {
            depth += 1;
            next = core.state().parent.clone();
        }
        depth
    }

    /// What the parent has of a piece gets objects here: one for each row of snapshots, or for the image, that have as many bytes of it.
    fn flatten_piece(&self, state: &State, number: u64) -> Result<()> {
        let begin = number.saturating_mul(state.header.object_size());
        // Of the moments in order, the last of each row, what counts, and the moment before the row.
        let mut rows: Vec<(u64, u64, u64)> = Vec::new();
        let (mut before, mut open) = (0, false);
        let alive = state.snaps.iter().filter(|(_, snap)| !snap.going).map(|(id, _)| *id);
        for moment in alive.chain([HEAD]) {
            let at = (moment != HEAD).then_some(moment);
            let counts = state.overlap(at).saturating_sub(begin).min(state.header.object_size());
            if counts == 0 || self.find(number, at)?.is_some() {
                open = false;
            } else {
                match rows.last_mut().filter(|row| open && row.1 == counts) {
                    Some(row) => row.0 = moment,
                    None => rows.push((moment, counts, before)),
                }
                open = true;
            }
            before = moment;
        }
        for (last, counts, born) in rows {
            let object = self.object(number, last);
            self.inherited(state, (number, begin + counts, Why::ToCopy), &mut |source| {
                let Some((source, counts)) = source else { return Ok(()) };
                // It is not refused, and then what the image may take is less.
                self.quota.bound().add(counts.next_multiple_of(BLOCK), 0);
                let mut transaction = Transaction::new();
                copy(&mut transaction, (source, counts), &object);
                set_epochs(&mut transaction, &object, Epochs { born, copied: born });
                self.step(transaction)
            })?;
        }
        Ok(())
    }
}
