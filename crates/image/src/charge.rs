//! What a change of an image adds to the bytes that it takes, where they are limited. `docs/image.md` has the rule.
//!
//! The usual write is charged for each block that it touches, as if none was there, and for copies of the pieces that have to be copied first. Only where this is beyond the limit,
//! the objects are looked at: those that it touches, and if that is not enough and something may have gone, all of the image.

use crate::lasting::{Look, Taken};
use crate::names::{ALL, HEAD};
use crate::objects::{Core, State, Why};
use imbrex_bluestore::ObjectId;
use imbrex_device::{Code, Error, Result};

/// What the store counts in.
pub(crate) const BLOCK: u64 = 4096;
/// Looks at all objects for one write: only where a failure has made the one before worthless there is a second.
const LOOKS: usize = 3;

/// A change that is charged and not queued yet. Dropped once it is, or has failed.
pub(crate) struct Charge<'a> {
    core: &'a Core,
    could: u64,
    /// `None`: there is no limit.
    limit: Option<u64>,
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.limit.is_some() {
            self.core.quota.bound().ended(self.could);
        }
    }
}

impl Charge<'_> {
    /// A discard copies a piece before, or fills two blocks of it with zeros. What it frees is found by the next look, since the bound may be too large from here on.
    pub fn piece(&mut self, state: &State, number: u64) {
        if self.limit.is_some() {
            let could = self.core.copied(state, number) + 2 * BLOCK;
            self.could += could;
            self.core.quota.bound().add(could, could);
        }
    }
}

/// Of a piece, the blocks that a part of it touches.
fn blocks(offset: u64, len: u64) -> (u64, u64) {
    let from = offset / BLOCK * BLOCK;
    (from, (offset + len).div_ceil(BLOCK) * BLOCK - from)
}

impl Core {
    /// Bytes that a copy of a piece may have, if it has to be copied before it changes.
    fn copied(&self, state: &State, number: u64) -> u64 {
        if self.is_ready(state, number) { 0 } else { state.header.object_size() }
    }

    /// Charges a write, whose parts are pieces with an offset and a length.
    ///
    /// # Errors
    /// `NoSpace`; those of the store.
    pub fn charge(&self, state: &State, name: &str, parts: impl Fn() -> Vec<(u64, u64, u64)>) -> Result<Charge<'_>> {
        let Some(limit) = state.header.limits.used else {
            return Ok(Charge { core: self, could: 0, limit: None });
        };
        let parts = parts();
        let could = parts.iter().map(|(number, at, len)| self.copied(state, *number) + blocks(*at, *len).1).sum();
        let charge = || Charge { core: self, could, limit: Some(limit) };
        if self.quota.bound().admit(could, could, limit) {
            return Ok(charge());
        }
        let _alone = self.quota.alone();
        let bytes = parts.iter().map(|part| self.added(state, *part)).sum::<Result<u64>>()?;
        for look in 0.. {
            let loose = {
                let mut bound = self.quota.bound();
                if bound.admit(bytes, could, limit) {
                    return Ok(charge());
                }
                bound.is_loose()
            };
            if !loose || look == LOOKS {
                break;
            }
            self.look_at_all(state)?;
        }
        let takes = self.quota.bound().most().unwrap_or(0);
        let sentence = format!(
            "this image may take {limit} bytes and takes {takes}, so {bytes} more do not fit; discard something, remove a snapshot, or raise the limit with `imbrex image limit`"
        );
        Err(Error::refused(Code::NoSpace, name, sentence))
    }

    /// Charges what is not refused, since it may free something: a discard.
    pub fn charge_freely(&self, state: &State) -> Charge<'_> {
        Charge { core: self, could: 0, limit: state.header.limits.used }
    }

    /// Bytes that a write to a part of a piece adds, if nobody else writes meanwhile.
    fn added(&self, state: &State, (number, offset, len): (u64, u64, u64)) -> Result<u64> {
        let head = self.object(number, HEAD);
        let copy = match self.epochs(&head)? {
            _ if self.is_ready(state, number) => 0,
            Some(epochs) if epochs.copied >= state.newest() => 0,
            Some(_) => self.stored(&head)?,
            None => self.inherited(state, (number, state.overlap(None), Why::ToRead), &mut |source| match source {
                Some((id, counts)) => Ok(self.stored(id)?.min(counts.next_multiple_of(BLOCK))),
                None => Ok(0),
            })?,
        };
        let (mut at, all) = blocks(offset, len);
        let (end, mut holes) = ((at + all).min(state.header.object_size()), 0);
        while at < end {
            let (stored, run) = self.stored_part(state, (number, None), at, end - at)?;
            holes += if stored { 0 } else { run };
            at += run.max(1);
        }
        Ok(copy + holes.next_multiple_of(BLOCK))
    }

    /// Bytes of blocks that an object names; none where it has gone.
    pub fn stored(&self, id: &ObjectId) -> Result<u64> {
        match self.store.stored(ALL, id) {
            Err(error) if error.code() == Code::NotFound => Ok(0),
            stored => stored,
        }
    }

    /// Looks at all objects. Who has the state keeps snapshots from being removed: that renames objects, and they could be missed.
    fn look_at_all(&self, _: &State) -> Result<()> {
        self.quota.bound().begin_look();
        let Taken { head, kept } = self.taken()?;
        self.quota.bound().end_look(head.saturating_add(kept));
        Ok(())
    }

    /// What all objects have, which is remembered for whoever wants figures.
    pub fn taken(&self) -> Result<Taken> {
        let (mut taken, began) = (Taken::default(), self.lasting.clock.now());
        self.each(0, |number, snaps| {
            for snap in snaps {
                let bytes = self.stored(&self.object(number, *snap))?;
                *(if *snap == HEAD { &mut taken.head } else { &mut taken.kept }) += bytes;
            }
            Ok(())
        })?;
        *self.lasting.look() = Look { last: Some((taken, began)), next: None };
        Ok(taken)
    }
}
