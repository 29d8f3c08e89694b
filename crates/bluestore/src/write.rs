//! How data come to zones: which zone takes what, and the runs that are written there.

use crate::blob::{BLOCK, Place};
use crate::core::{Core, State};
use crate::data::{Placed, STREAMS, Stream, Todo};
use crate::fullness::{Fullness, fullness};
use crate::lock::lock;
use crate::run::{At, Building, RunPiece, most_header_blocks};
use crate::table::Zone;
use imbrex_device::{Cause, Code, Fault, Result, Tag};
use imbrex_zones::{OpenZone, Ticket, Urgency, ZoneHeader};

/// What the header of the store's zones says of their content.
pub(crate) const KIND: u8 = 1;
/// A run is about as long as this at most, in bytes: it is copied once, into memory of its own.
const RUN: u64 = 8 << 20;

impl Core {
    /// Writes blobs to zones. Returns where they are now, and those for which there is no room. Durable with the next flush. One caller at a time.
    ///
    /// # Errors
    /// Those of the drive.
    pub fn write_data(&self, group: u64, mut todo: Vec<Todo>) -> Result<(Vec<Placed>, Vec<Todo>)> {
        if self.data.unit.is_some() {
            return self.write_in_place(group, todo);
        }
        let (mut placed, mut left): (Vec<Placed>, Vec<Todo>) = (Vec::new(), Vec::new());
        // What belongs together stands together.
        todo.sort_by_key(|todo| todo.stream);
        loop {
            self.lay_out(group, std::mem::take(&mut todo), &mut placed, &mut left)?;
            let refused = self.data.records.write(&self.data.records.due())?;
            if refused.is_empty() {
                break;
            }
            for guard in refused {
                let (zone, end) = (guard.zone(), self.data.records.written(guard.zone()));
                guard.discard();
                self.close(zone);
                let (gone, still) = placed.into_iter().partition(|p: &Placed| p.place.zone == zone && p.end() > end);
                placed = still;
                todo.extend(gone.into_iter().map(|placed: Placed| placed.todo));
            }
        }
        Ok((placed, left))
    }

    /// All that was written so far is this group's. Returns the flush that makes it durable.
    pub fn data_written(&self, group: u64) -> Ticket {
        self.data.records.group_written(group);
        self.tenant.volume().ticket()
    }

    /// What a group has written is durable.
    pub fn flush_data(&self, group: u64, flush: Ticket) -> Result<()> {
        self.tenant.volume().durable(flush, Tag::new(Cause::UserWrite))?;
        self.data.records.group_durable(group);
        Ok(())
    }

    fn lay_out(&self, group: u64, todo: Vec<Todo>, placed: &mut Vec<Placed>, left: &mut Vec<Todo>) -> Result<()> {
        let mut todo = todo.into_iter().rev().collect::<Vec<_>>();
        while let Some(first) = todo.last() {
            let stream = first.stream;
            let Some(open) = self.open_zone(stream, 1 << first.piece.grain)? else {
                // What goes with others may find room.
                while let Some(next) = todo.pop_if(|next| next.stream == stream) {
                    left.push(next);
                }
                continue;
            };
            let room = ((open.capacity - open.at) / BLOCK).min(RUN / BLOCK) as u32;
            let (mut run, mut blocks, mut header) = (Vec::new(), 0, Building::default());
            while let Some(next) =
                todo.pop_if(|next| next.stream == stream && header.blocks_with(&next.piece).is_some())
            {
                let piece = next.piece;
                let Some(of_header) = header.blocks_with(&piece) else { break };
                let left = room.saturating_sub(blocks + of_header);
                let fits = piece.blocks.min(left >> piece.grain << piece.grain);
                if fits < piece.blocks {
                    let rest = RunPiece { first: piece.first + fits, blocks: piece.blocks - fits, ..piece };
                    let from = next.from.map(|from| Place { block: from.block + fits, ..from });
                    todo.push(Todo { piece: rest, from, ..next.clone() });
                }
                if fits > 0 {
                    let fitting = RunPiece { blocks: fits, ..piece };
                    let from = (piece.first >> piece.grain) as usize;
                    let sums = next.sums.get(from..from + fitting.grains()).unwrap_or_default();
                    header.add(&fitting, sums, self.data.name(piece.blob.onode));
                    run.push((Todo { piece: fitting, ..next }, blocks));
                    blocks += fits;
                }
                if fits < piece.blocks {
                    break;
                }
            }
            if run.is_empty() {
                // The rest of the zone is too short for a grain.
                self.close(open.zone.0);
                continue;
            }
            let at = self.push((group, &header), open, &run, blocks)?;
            let Some(at) = at else {
                todo.extend(run.into_iter().rev().map(|(todo, _)| todo));
                self.close(open.zone.0);
                continue;
            };
            let base = (at / BLOCK) as u32 + header.blocks();
            let place = |first: u32| Place { zone: open.zone.0, block: base + first, life: open.life as u32 };
            placed.extend(run.into_iter().map(|(todo, first)| Placed { todo, place: place(first) }));
        }
        Ok(())
    }

    /// Gives a run to the record writer. `None`: the zone does not take it.
    fn push(
        &self,
        (group, building): (u64, &Building),
        open: OpenZone,
        run: &[(Todo, u32)],
        blocks: u32,
    ) -> Result<Option<u64>> {
        let header = building.blocks();
        let mut memory = self.data.records.memory((header + blocks) as usize * BLOCK as usize);
        // Nobody else writes to the zone: it stands where the last run ends.
        let volume = self.tenant.volume().uuid();
        let at = At { volume, zone: open.zone.0, block: (open.at / BLOCK) as u32 };
        building.encode_into((at, open.life, self.tenant.volume().mount() as u32, group), &mut memory);
        for (todo, first) in run {
            let at = |block: u32| block as usize * BLOCK as usize;
            let piece = &todo.piece;
            let from = &todo.bytes[at(piece.first)..at(piece.first + piece.blocks)];
            memory[at(header + first)..at(header + first + piece.blocks)].copy_from_slice(from);
        }
        let len = memory.len() as u64;
        let at = self.data.records.push(open.zone.0, memory);
        debug_assert!(at.is_none_or(|at| at == open.at), "a header that stands where it does not say");
        if at.is_some() {
            let mut streams = lock(&self.data.open);
            streams.iter_mut().flatten().filter(|other| other.zone == open.zone).for_each(|other| other.at += len);
            drop(streams);
            self.count_room();
        }
        Ok(at)
    }

    /// The stream's zone, with room for a header and a grain. `None`: there is no zone for it.
    fn open_zone(&self, stream: Stream, grain: u64) -> Result<Option<OpenZone>> {
        loop {
            let open = lock(&self.data.open)[stream as usize];
            if let Some(open) = open {
                if open.capacity - open.at >= (1 + grain) * BLOCK {
                    return Ok(Some(open));
                }
                self.close(open.zone.0);
                continue;
            }
            let zone = match stream {
                Stream::Moved => self.tenant.take(Urgency::Cleaning),
                _ => {
                    let mut reserved: Vec<_> = self.state().room.reserved.pop().into_iter().collect();
                    let zone = match reserved.is_empty() {
                        true => self.tenant.take(Urgency::User),
                        false => self.tenant.redeem(&mut reserved),
                    };
                    self.state().room.reserved.append(&mut reserved);
                    zone
                }
            };
            let zone = match zone {
                Ok(zone) => zone,
                // Where others go nothing was promised to what is moved.
                Err(error) if matches!(error.fault, Fault::NoSpace) && stream == Stream::Moved => return Ok(None),
                Err(error) if matches!(error.fault, Fault::NoSpace) => {
                    // The room of all open zones was promised.
                    let streams = self.promised();
                    let has_room = |open: &OpenZone| open.capacity - open.at >= (1 + grain) * BLOCK;
                    return Ok(streams.into_iter().flatten().find(has_room));
                }
                Err(error) => return Err(error),
            };
            let (life, capacity) = (self.tenant.new_life(), self.tenant.volume().capacity(zone));
            let mut header = self.data.records.memory(BLOCK as usize);
            header.fill(0);
            let content = ZoneHeader { kind: KIND, ..self.tenant.header(zone, life) };
            content.encode_into(&mut header);
            self.data.records.open(OpenZone { zone, life, at: 0, capacity });
            self.data.records.push(zone.0, header);
            let open = OpenZone { zone, life, at: BLOCK, capacity };
            lock(&self.data.open)[stream as usize] = Some(open);
            self.state().table.insert(zone.0, Zone { life, open: true, ..Zone::default() });
            self.count_room();
            self.ring();
        }
    }

    /// What the open zones still take.
    fn count_room(&self) {
        let spare = 2 + (1 << self.data.longest_grain());
        let left = |open: &OpenZone| ((open.capacity - open.at) / BLOCK).saturating_sub(spare);
        let open = self.promised().iter().flatten().map(left).sum();
        self.state().room.open = open;
    }

    /// The open zones whose room is promised to what was accepted.
    fn promised(&self) -> [Option<OpenZone>; STREAMS] {
        let mut open = *lock(&self.data.open);
        open[Stream::Moved as usize] = None;
        open
    }

    /// Nothing more goes to zones in which nothing lives.
    pub fn close_idle(&self) {
        let open = *lock(&self.data.open);
        for open in open.into_iter().flatten() {
            if self.state().table.get(open.zone.0).is_some_and(|z| z.live == 0) {
                self.close(open.zone.0);
            }
        }
    }

    /// Nothing more goes to the zone.
    fn close(&self, zone: u32) {
        lock(&self.data.open).iter_mut().for_each(|open| _ = open.take_if(|open| open.zone.0 == zone));
        self.data.records.close(zone);
        lock(&self.data.closed).push(zone);
        self.count_room();
    }

    /// Blocks that are taken by what is written, beside its own: of so many blocks in so many pieces. Those of runs and headers, or what is left of units.
    pub fn overhead(&self, pieces: u64, blocks: u64) -> u64 {
        match self.data.unit {
            Some(unit) => pieces * u64::from(unit - 1),
            None => most_header_blocks(pieces, blocks),
        }
    }

    /// Looks how many blocks the store can have. Other engines of the drive may have taken zones since the last time.
    pub fn measure(&self) {
        let counts = self.tenant.counts();
        let kept = counts.reserve + self.data.left_to_metadata();
        let zones = u64::from((counts.leased + counts.reach).saturating_sub(kept));
        let mut state = self.state();
        state.room.capacity = zones * self.data.zone_takes();
        let full = fullness(state.used(), state.room.capacity, (self.options.near_full, self.options.full));
        if full > Fullness::Room && !std::mem::replace(&mut state.room.told, true) {
            let (used, of) = (state.used() * BLOCK, state.room.capacity * BLOCK);
            tracing::warn!(used, of, "the object store is nearly full; delete something");
        }
        state.room.told &= full > Fullness::Room;
    }

    /// Refuses so many more blocks where the store would have more than its options say.
    fn check_full(&self, blocks: u64) -> Result<()> {
        let beyond = || {
            let state = self.state();
            fullness(state.used() + blocks, state.room.capacity, (100, self.options.full)) == Fullness::Full
        };
        if !beyond() {
            return Ok(());
        }
        self.measure();
        match beyond() {
            true => {
                Err(self
                    .refuse(Code::NoSpace, "no space left in the object store; delete something or use a larger drive"))
            }
            false => Ok(()),
        }
    }

    /// Whether so many more blocks have room, with what was accepted before. Reserves zones for them. `together`: so many of them have to stand side by side. `limited`: no more than the store's options say.
    ///
    /// # Errors
    /// `NoSpace`: [`Fault::NoSpace`] where cleaning may make room.
    pub fn make_room(&self, blocks: u64, together: u32, limited: bool) -> Result<()> {
        if limited {
            self.check_full(blocks)?;
        }
        let mut state = self.state();
        let before = state.room.reserved.len();
        while self.needs(&state, blocks) > self.has(&state, state.room.reserved.len(), together) {
            match self.tenant.reserve(self.data.left_to_metadata()) {
                Ok(one) => state.room.reserved.push(one),
                Err(error) => {
                    state.room.reserved.truncate(before);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Reservations that nothing needs are everybody's again.
    pub fn give_back(&self, state: &mut State) {
        let need = self.needs(state, 0);
        while state.room.reserved.len().checked_sub(1).is_some_and(|less| self.has(state, less, u32::MAX) >= need) {
            state.room.reserved.pop();
        }
    }

    /// Blocks that were accepted and have no place, and so many more.
    pub(crate) fn needs(&self, state: &State, more: u64) -> u64 {
        let deferred = state.deferred();
        if state.space.is_some() {
            return state.room.promised + more + deferred;
        }
        let all = state.room.promised + more + deferred + deferred / 16;
        if all == 0 { 0 } else { all + 1 }
    }

    /// Blocks for which there is room with so many reservations, if so many have to stand together.
    pub(crate) fn has(&self, state: &State, reserved: usize, together: u32) -> u64 {
        let open = match &state.space {
            // What is free there is too short for what comes.
            Some(_) if state.room.cramped.is_some_and(|blocks| blocks <= together) => 0,
            Some(space) => space.free(),
            None => state.room.open,
        };
        open + reserved as u64 * self.data.zone_takes()
    }
}
