//! Reading and writing of an image's bytes.

use crate::charge::Charge;
use crate::image::Image;
use crate::names::{ALL, HEAD, number_of};
use crate::objects::{Core, State, Why};
use crate::records::Work;
use imbrex_bluestore::{ObjectId, Survives, Ticket, Transaction};
use imbrex_device::{Code, Error, Result};
use std::ops::Range;

/// Pieces that [`Image::extent`] looks at in one call.
const MOST_LOOKED_AT: u64 = 256;
/// Objects that one transaction drops.
const DROPPED: usize = 256;

/// A part of a piece.
struct Part {
    number: u64,
    /// In the object.
    offset: u64,
    /// In what is read or written.
    of: Range<usize>,
}

fn parts(object_size: u64, offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = offset + at as u64;
        let within = begin % object_size;
        let len = (object_size - within).min((len - at) as u64) as usize;
        at += len;
        (len > 0).then_some(Part { number: begin / object_size, offset: within, of: at - len..at })
    })
}

impl Core {
    /// Bytes of a piece, now or at a snapshot. What nobody wrote is zeros.
    pub fn read_part(
        &self,
        state: &State,
        (number, at): (u64, Option<u64>),
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let found = match at {
            None => self.fill(&self.object(number, HEAD), offset, out)?,
            Some(snap) => self.with(number, snap, Why::ToRead, &mut |id| self.fill(id, offset, out))? == Some(true),
        };
        if found {
            return Ok(());
        }
        self.inherited(state, (number, state.overlap(at), Why::ToRead), &mut |source| {
            out.fill(0);
            let Some((id, counts)) = source else { return Ok(()) };
            let len = counts.saturating_sub(offset).min(out.len() as u64) as usize;
            self.fill(id, offset, &mut out[..len]).map(drop)
        })
    }

    /// Whether anything is stored at `offset` of a piece, now or at a snapshot, and for how many bytes that is so.
    pub fn stored_part(
        &self,
        state: &State,
        (number, at): (u64, Option<u64>),
        offset: u64,
        most: u64,
    ) -> Result<(bool, u64)> {
        let of = |id: &ObjectId, most: u64| match self.store.stored_at(ALL, id, offset, most) {
            // It has just gone. Who is told of bytes reads them.
            Err(error) if error.code() == Code::NotFound => Ok((true, most)),
            found => found,
        };
        let found = match at {
            None => self.find(number, None)?.map(|(id, _)| of(&id, most)).transpose()?,
            Some(snap) => self.with(number, snap, Why::ToRead, &mut |id| of(id, most))?,
        };
        match found {
            Some(found) => Ok(found),
            None => self.inherited(state, (number, state.overlap(at), Why::ToRead), &mut |source| match source {
                Some((id, counts)) if counts > offset => of(id, most.min(counts - offset)),
                _ => Ok((false, most)),
            }),
        }
    }

    /// False: there is no such object.
    fn fill(&self, id: &ObjectId, offset: u64, out: &mut [u8]) -> Result<bool> {
        match self.store.read_into(ALL, id, offset, out) {
            Ok(len) => {
                out[len..].fill(0);
                Ok(true)
            }
            Err(error) if error.code() == Code::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Image {
    fn check(&self, state: &State, offset: u64, len: u64) -> Result<()> {
        let size = self.size_of(state)?;
        if offset.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let sentence = format!("{len} bytes from {offset} on are not in this image, which has {size}");
        Err(Error::refused(Code::Range, self.name(), sentence))
    }

    fn check_writable(&self, state: &State, offset: u64, len: u64) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::refused(Code::ReadOnly, self.name(), "this image is open for reading only"));
        }
        // Else what is written would go when it ends.
        state.check_work(self.name())?;
        self.check(state, offset, len)
    }

    /// See [`Image::read`].
    pub(crate) fn read_now(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let state = self.core().state();
        self.check(&state, offset, out.len() as u64)?;
        if self.at().is_none() && matches!(state.header.work, Work::Rollback(_)) {
            state.check_work(self.name())?;
        }
        parts(state.header.object_size(), offset, out.len()).try_for_each(|part| {
            self.core().read_part(&state, (part.number, self.at()), part.offset, &mut out[part.of])
        })
    }

    /// See [`Image::write`].
    pub(crate) fn write_now(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<()> {
        let (core, state) = (self.core(), self.core().state());
        self.check_writable(&state, offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let object = state.header.object_size();
        let charged = || {
            parts(object, offset, bytes.len()).map(|part| (part.number, part.offset, part.of.len() as u64)).collect()
        };
        let charge = core.charge(&state, self.name(), charged)?;
        let mut transaction = Transaction::new();
        for part in parts(object, offset, bytes.len()) {
            core.make_ready(&state, part.number)?;
            transaction.write(ALL, &core.object(part.number, HEAD), part.offset, &bytes[part.of]);
        }
        let ticket = core.store.queue(transaction)?;
        drop((charge, state));
        core.wait(ticket, survives)
    }

    /// See [`Image::zero`].
    pub(crate) fn zero_now(&self, offset: u64, len: u64, survives: Survives) -> Result<()> {
        let (core, state) = (self.core(), self.core().state());
        self.check_writable(&state, offset, len)?;
        let object = state.header.object_size();
        let (end, size) = (offset + len, state.header.size);
        // The last object is whole where the image ends.
        let whole = offset.div_ceil(object)..if end == size { end.div_ceil(object) } else { end / object };
        let sides = match whole.start <= whole.end {
            true => [(offset, (whole.start * object).min(end)), ((whole.end * object).max(offset).min(end), end)],
            false => [(offset, end), (end, end)],
        };
        let mut charge = core.charge_freely(&state);
        let mut transaction = Transaction::new();
        for (from, to) in sides.into_iter().filter(|(from, to)| from < to) {
            let number = from / object;
            let head = core.object(number, HEAD);
            let inherits = number * object < state.overlap(None);
            if !inherits && core.epochs(&head)?.is_none() {
                continue;
            }
            charge.piece(&state, number);
            core.make_ready(&state, number)?;
            transaction.zero(ALL, &head, from % object, to - from);
        }
        let ticket = self.drop_pieces((&state, &mut charge), whole, transaction)?;
        drop((charge, state));
        core.wait(ticket, survives)
    }

    /// Pieces are zeros, with what else the transaction does. All of it is one transaction, unless there are many pieces.
    fn drop_pieces(
        &self,
        (state, charge): (&State, &mut Charge<'_>),
        pieces: Range<u64>,
        mut transaction: Transaction,
    ) -> Result<Ticket> {
        let core = self.core();
        let inherited = state.overlap(None).div_ceil(state.header.object_size());
        let plain = state.newest() == 0;
        let mut certain = pieces.start..pieces.end.min(inherited);
        let mut next = (pieces.end > pieces.start.max(inherited)).then(|| core.object(pieces.start.max(inherited), 0));
        loop {
            let mut gone: Vec<u64> = certain.by_ref().take(DROPPED).collect();
            while let Some(from) = next.take_if(|_| gone.len() < DROPPED) {
                let page = core.store.list(ALL, Some(&from), DROPPED - gone.len())?;
                next = page.next;
                for id in page.all {
                    match number_of(core.id, &id).filter(|(number, _)| *number < pieces.end) {
                        Some((number, HEAD)) => gone.push(number),
                        Some(_) => {}
                        None => {
                            next = None;
                            break;
                        }
                    }
                }
            }
            let more = gone.len() == DROPPED;
            for number in gone {
                let head = core.object(number, HEAD);
                let nothing = number < inherited
                    && core.epochs(&head)?.is_none()
                    && core.inherited(state, (number, state.overlap(None), Why::ToRead), &mut |source| {
                        Ok(source.is_none())
                    })?;
                if nothing {
                    continue;
                }
                charge.piece(state, number);
                core.make_ready(state, number)?;
                // An empty object hides what a parent has, and keeps when it came. It may have gone since the list was made.
                transaction.touch(ALL, &head);
                match plain && number >= inherited {
                    true => transaction.remove(ALL, &head),
                    false => transaction.truncate(ALL, &head, 0),
                };
            }
            transaction.makes_room();
            let ticket = core.store.queue(std::mem::take(&mut transaction))?;
            if !more {
                return Ok(ticket);
            }
        }
    }

    /// Whether anything is stored at `offset`, of the image or of a parent, and for how many bytes from there on, `len` at most, that is so. What is not stored is zeros. More of the
    /// same may follow. What is written meanwhile may count or not.
    ///
    /// # Errors
    /// Those of [`Image::read`].
    pub fn extent(&self, offset: u64, len: u64) -> Result<(bool, u64)> {
        let (core, state) = (self.core(), self.core().state());
        self.check(&state, offset, len)?;
        let (object, end) = (state.header.object_size(), offset + len);
        let (mut at, mut is) = (offset, None);
        for _ in 0..MOST_LOOKED_AT {
            let most = (object - at % object).min(end - at);
            if most == 0 {
                break;
            }
            let (stored, len) = core.stored_part(&state, (at / object, self.at()), at % object, most)?;
            if *is.get_or_insert(stored) != stored {
                break;
            }
            at += len;
        }
        Ok((is.unwrap_or(false), at - offset))
    }
}
