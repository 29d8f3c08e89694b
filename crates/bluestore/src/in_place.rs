//! Writing of a store in place: which units blobs get, and the zones that these are of.
//!
//! Zones are leased from the pool as other stores lease theirs, and set in place. One of which no unit is taken goes back to it, so that other engines of the drive can have it.

use crate::blob::{BLOCK, Place};
use crate::core::{Core, is_of_bytes};
use crate::data::{Placed, Todo};
use crate::run::RunPiece;
use crate::table::Zone;
use crate::units::Units;
use imbrex_device::{AlignedBuf, Cause, Error, Fault, Result, Tag, ZoneId};
use imbrex_zones::ZoneHeader;
use std::collections::BTreeSet;

/// What the header of such a zone says of its content.
pub(crate) const KIND: u8 = 2;
/// What stands side by side is copied into commands of about so many bytes.
const COMMAND: u64 = 1 << 20;
/// So often a write that fails is tried.
const TRIES: u32 = 2;
/// So many zones may fail in one commit before that is the drive's fault.
const FAILING: usize = 8;
/// While more than such a part of all zones is free another one is leased before a blob is cut into pieces.
const RICH: u32 = 8;

impl Core {
    /// Writes blobs in place. Returns where they are now, and those for which there is no room. Durable with the next flush. One caller at a time.
    ///
    /// # Errors
    /// Those of the drive, where no other zone takes what one refuses.
    pub fn write_in_place(&self, group: u64, mut todo: Vec<Todo>) -> Result<(Vec<Placed>, Vec<Todo>)> {
        let (mut placed, mut left, mut bad) = (Vec::new(), Vec::new(), BTreeSet::new());
        while !todo.is_empty() {
            let mut new = Vec::new();
            // What wants a place gets it before others may.
            let (at_home, others): (Vec<_>, _) =
                std::mem::take(&mut todo).into_iter().partition(|one| self.take_home(group, one));
            new.extend(at_home.into_iter().filter_map(|todo| Some(Placed { place: todo.wanted?, todo })));
            for one in others {
                self.find_room(group, one, &mut new, &mut left)?;
            }
            for command in commands(new) {
                let Err(error) = self.write_command(&command) else {
                    placed.extend(command);
                    continue;
                };
                let Some(first) = command.first() else { continue };
                let zone = first.place.zone;
                self.data_refused(&error)?;
                bad.insert(zone);
                if bad.len() > FAILING {
                    return Err(error);
                }
                tracing::warn!(%error, zone, "a write in place failed; nothing more goes to the zone until the store is opened again");
                let mut state = self.state();
                let Some(space) = &mut state.space else { continue };
                space.close(zone);
                command
                    .iter()
                    .for_each(|placed| space.die(units(space.unit(), placed.place, placed.todo.piece.blocks), group));
                todo.extend(command.into_iter().map(|placed| placed.todo));
            }
        }
        Ok((placed, left))
    }

    /// An error if nobody should try elsewhere.
    fn data_refused(&self, error: &Error) -> Result<()> {
        self.tenant.volume().check_poison()?;
        let of_zone = is_of_bytes(error) || matches!(error.fault, Fault::ReadOnly | Fault::Io(_));
        if of_zone && !error.is_host_full() { Ok(()) } else { Err(error.clone()) }
    }

    /// Whether it has the place that it wants from here on: in the same life of a zone, and durably free.
    fn take_home(&self, group: u64, todo: &Todo) -> bool {
        let Some(Place { zone, block, life }) = todo.wanted else { return false };
        let mut state = self.state();
        let state = &mut *state;
        let there = state.table.get(zone).is_some_and(|z| z.life as u32 == life);
        let space = state.space.as_mut().filter(|_| there);
        space.is_some_and(|space| space.take_at((zone, block), todo.piece.blocks, group))
    }

    /// Finds units for what needs a place: together, or else in pieces.
    fn find_room(&self, group: u64, todo: Todo, new: &mut Vec<Placed>, left: &mut Vec<Todo>) -> Result<()> {
        let mut rest = todo;
        loop {
            let blocks = rest.piece.blocks;
            let mut found = self.take_units(|space| space.take(blocks, group));
            // No zone has more together than it has.
            if found.is_none() && u64::from(blocks) <= self.data.zone_takes() && self.lease(self.rich())? {
                found = self.take_units(|space| space.take(blocks, group));
            }
            let grain = 1 << rest.piece.grain;
            let mut part = || self.take_units(|space| space.take_part(blocks, grain, group));
            found = found.or_else(&mut part);
            // What is free may be too short for a grain.
            if found.is_none() && self.lease(self.data.left_to_metadata())? {
                found = part();
            }
            let Some(place) = found else {
                left.push(rest);
                return Ok(());
            };
            let fits = place.1.min(blocks);
            let after = (fits < blocks).then(|| Todo {
                piece: RunPiece { first: rest.piece.first + fits, blocks: blocks - fits, ..rest.piece },
                ..rest.clone()
            });
            let piece = RunPiece { blocks: fits, ..rest.piece };
            new.push(Placed { todo: Todo { piece, ..rest }, place: place.0 });
            let Some(after) = after else { return Ok(()) };
            rest = after;
        }
    }

    /// The place of units that somebody takes, and how many blocks these are.
    fn take_units(&self, take: impl FnOnce(&mut crate::space::Space) -> Option<Units>) -> Option<(Place, u32)> {
        let mut state = self.state();
        let state = &mut *state;
        let space = state.space.as_mut()?;
        let Units { zone, first, units } = take(space)?;
        let life = state.table.get(zone)?.life as u32;
        Some((Place { zone, block: first * space.unit(), life }, units * space.unit()))
    }

    /// So many zones are free at least, while one is leased that others could do without.
    fn rich(&self) -> u32 {
        (self.tenant.volume().geometry().zones / RICH).max(self.data.left_to_metadata())
    }

    /// Leases another zone: one that was promised to what was accepted, or any while so many are left. False: there is none.
    fn lease(&self, left: u32) -> Result<bool> {
        for _ in 0..TRIES {
            let promised = self.state().room.reserved.pop();
            let promised = promised.or_else(|| self.tenant.reserve(left).ok());
            let mut reserved: Vec<_> = promised.into_iter().collect();
            let zone = match self.tenant.redeem(&mut reserved) {
                Ok(zone) => zone,
                Err(error) if matches!(error.fault, Fault::NoSpace) => return Ok(false),
                Err(error) => return Err(error),
            };
            match self.begin_zone(zone) {
                Ok(()) => return Ok(true),
                Err(error) => {
                    self.data_refused(&error)?;
                    tracing::warn!(%error, %zone, "a zone could not be set in place");
                    self.tenant.release(zone);
                }
            }
        }
        Ok(false)
    }

    fn begin_zone(&self, zone: ZoneId) -> Result<()> {
        let (volume, life) = (self.tenant.volume(), self.tenant.new_life());
        self.tenant.set_in_place(zone)?;
        let mut header = AlignedBuf::zeroed(BLOCK as usize);
        ZoneHeader { kind: KIND, ..self.tenant.header(zone, life) }.encode_into(&mut header);
        volume.write_in_place(&header, volume.geometry().start(zone), Tag::new(Cause::UserWrite))?;
        let mut state = self.state();
        state.table.insert(zone.0, Zone { life, ..Zone::default() });
        state.space.as_mut().into_iter().for_each(|space| space.add(zone.0));
        Ok(())
    }

    /// One command: what stands side by side.
    fn write_command(&self, command: &[Placed]) -> Result<()> {
        let Some(first) = command.first() else { return Ok(()) };
        let at = |block: u32| block as usize * BLOCK as usize;
        let own = |placed: &Placed| at(placed.todo.piece.first)..at(placed.todo.piece.first + placed.todo.piece.blocks);
        let joined = (command.len() > 1).then(|| {
            let mut all = AlignedBuf::zeroed(command.iter().map(|placed| at(placed.todo.piece.blocks)).sum());
            let mut rest = &mut all[..];
            for placed in command {
                let (to, behind) = std::mem::take(&mut rest).split_at_mut(own(placed).len());
                to.copy_from_slice(&placed.todo.bytes[own(placed)]);
                rest = behind;
            }
            all
        });
        let bytes = joined.as_deref().unwrap_or(&first.todo.bytes[own(first)]);
        let volume = self.tenant.volume();
        let to = volume.geometry().start(ZoneId(first.place.zone)) + u64::from(first.place.block) * BLOCK;
        let mut tried = 1;
        loop {
            match volume.write_in_place(bytes, to, Tag::new(Cause::UserWrite)) {
                Err(error) if tried < TRIES && self.data_refused(&error).is_ok() => tried += 1,
                done => return done,
            }
        }
    }

    /// Zones of which no unit is taken go back to the pool. `all`: with the one where the next write would go. By who has the right to commit.
    pub fn give_zones_back(&self, all: bool) {
        let mut state = self.state();
        let state = &mut *state;
        let mut spare = self.has(state, state.room.reserved.len(), u32::MAX).saturating_sub(self.needs(state, 0));
        let Some(space) = &mut state.space else { return };
        for zone in space.empty(all) {
            let Some(rest) = spare.checked_sub(self.data.zone_takes()) else {
                // What was accepted may have to go there.
                space.keep(zone);
                continue;
            };
            spare = rest;
            space.remove(zone);
            // That nothing lives there is durable.
            self.tenant.forget(ZoneId(zone), state.durable);
        }
    }
}

/// Units that these blocks of a zone are in.
pub(crate) fn units(unit: u32, place: Place, blocks: u32) -> Units {
    let (first, end) = (place.block, place.block.saturating_add(blocks));
    Units { zone: place.zone, first: first / unit, units: end.div_ceil(unit) - first / unit }
}

/// What is written together, in the order of the drive.
fn commands(mut new: Vec<Placed>) -> Vec<Vec<Placed>> {
    new.sort_by_key(|placed| (placed.place.zone, placed.place.block));
    let (mut all, mut bytes): (Vec<Vec<Placed>>, u64) = (Vec::new(), 0);
    for placed in new {
        let len = u64::from(placed.todo.piece.blocks) * BLOCK;
        let follows =
            |last: &Placed| last.place.zone == placed.place.zone && last.end() == u64::from(placed.place.block) * BLOCK;
        match all.last_mut() {
            Some(command) if bytes + len <= COMMAND && command.last().is_some_and(follows) => {
                bytes += len;
                command.push(placed);
            }
            _ => {
                bytes = len;
                all.push(vec![placed]);
            }
        }
    }
    all
}
