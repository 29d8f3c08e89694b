//! Arithmetic of a ring: which zone is next, how much room there is, what may be reset, when it is lost. Pure.

use super::{BLOCK, HEADS, LogZoneState};
use imbrex_device::ZoneId;

/// A zone of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) zone: ZoneId,
    /// Bytes that it takes.
    pub(super) capacity: u64,
    pub(super) life: u64,
    /// Place in the order of its ring; 0: nothing of use in it.
    pub(super) order: u64,
    /// Where the next frame goes, in bytes.
    pub(super) tail: u64,
    /// Record frames stand in it, or frames of a snapshot that is whole.
    pub(super) useful: bool,
    /// It takes no writes any more.
    pub(super) dead: bool,
    /// Must be reset before it is used.
    pub(super) dirty: bool,
    /// It is one of the drive's active zones, for all that is known.
    pub(super) active: bool,
}

impl Slot {
    /// One that is empty.
    pub(super) fn empty(zone: ZoneId) -> Slot {
        Slot { zone, capacity: 0, life: 0, order: 0, tail: 0, useful: false, dead: false, dirty: false, active: false }
    }

    fn rest(&self) -> u64 {
        self.capacity.saturating_sub(self.tail)
    }
}

/// One copy of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    slots: Vec<Slot>,
    current: Option<usize>,
    order: u64,
    /// It was said that it is lost.
    told: bool,
    /// No zone of it is free, and the other ring is to make room for it.
    stuck: bool,
    /// There is no other ring: it gets more zones, and is written as long as it has one.
    alone: bool,
}

impl Ring {
    /// Of zones as they are found; `order`: the last place in the order that any zone was given. Frames go on in the newest zone, if it takes any.
    pub(super) fn new(slots: Vec<Slot>, order: u64) -> Ring {
        let used = slots.iter().enumerate().filter(|(_, slot)| slot.order > 0);
        let newest = used.max_by_key(|(_, slot)| slot.order);
        let current = newest.filter(|(_, slot)| !slot.dead && slot.rest() > 0).map(|(i, _)| i);
        Ring { slots, current, order, told: false, stuck: false, alone: false }
    }

    /// The only one of its log.
    pub(super) fn alone(self) -> Ring {
        Ring { alone: true, ..self }
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Its zones, and what each is used for.
    pub(super) fn states(&self) -> impl Iterator<Item = (Slot, LogZoneState)> {
        let state = |i: usize, slot: &Slot| match (slot.order > 0, self.current == Some(i), slot.dirty) {
            (true, true, _) => LogZoneState::Current,
            (true, false, _) => LogZoneState::Full,
            (false, _, true) => LogZoneState::Dirty,
            (false, _, false) => LogZoneState::Empty,
        };
        self.slots.iter().enumerate().map(move |(i, slot)| (*slot, state(i, slot)))
    }

    /// Zones that take writes.
    pub(super) fn alive(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.dead).count()
    }

    /// See the [room](super).
    pub(super) fn is_lost(&self) -> bool {
        self.alive() < if self.alone { 1 } else { 2 }
    }

    /// Whether frames go there.
    pub(super) fn is_written(&self) -> bool {
        !self.is_lost() && !self.stuck
    }

    /// No zone of it is free, and there is another ring.
    pub(super) fn stick(&mut self) {
        (self.stuck, self.current) = (true, None);
    }

    /// A snapshot in the other ring is whole. Returns the zones to reset where it is stuck: it begins anew.
    pub(super) fn unstick(&mut self) -> Vec<usize> {
        if std::mem::take(&mut self.stuck) { self.release(u64::MAX) } else { Vec::new() }
    }

    /// Whether it is lost and nobody was told; from now on somebody is.
    pub(super) fn tell_lost(&mut self) -> bool {
        self.is_lost() && !std::mem::replace(&mut self.told, true)
    }

    /// One of its zones takes no writes any more.
    pub(super) fn died(&mut self, i: usize) {
        self.slots[i].dead = true;
        if self.current == Some(i) {
            self.current = None;
        }
    }

    /// The zone that takes a frame of so many bytes without another one being begun.
    pub(super) fn takes(&self, bytes: u64) -> Option<usize> {
        self.current.filter(|i| self.slots[*i].rest() >= bytes)
    }

    /// A zone has frames up to `tail`. `records`: the last one is of records.
    pub(super) fn wrote(&mut self, i: usize, tail: u64, records: bool) {
        self.slots[i].tail = tail;
        self.slots[i].useful |= records;
    }

    /// A snapshot was dropped: zones in which nothing else stands are of no use. So a snapshot can be interrupted any number of times.
    pub(super) fn drop_useless(&mut self) {
        for (i, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.order > 0 && !slot.useful) {
            (slot.order, slot.tail) = (0, 0);
            self.current = self.current.filter(|current| *current != i);
        }
    }

    /// Whether the zone that is begun next takes so many bytes of frames.
    pub(super) fn next_takes(&self, bytes: u64) -> bool {
        self.next().is_some_and(|i| self.slots[i].capacity.saturating_sub(HEADS * BLOCK) >= bytes)
    }

    /// No more frames go to the zone that is written.
    pub(super) fn leave(&mut self) {
        self.current = None;
    }

    /// The zone that is begun next.
    pub(super) fn next(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.order == 0 && !slot.dead)
    }

    /// The zone is about to be begun: its place in the order. No other zone gets that place, even where the write fails: the drive may have the
    /// header, and of two zones of one order nobody could tell which is the first.
    pub(super) fn begin(&mut self, i: usize) -> u64 {
        debug_assert!(self.slots[i].order == 0 && !self.slots[i].dead);
        self.order += 1;
        self.slots[i].active = true;
        self.order
    }

    /// It has its header, and frames go there from `tail` on.
    pub(super) fn begun(&mut self, i: usize, life: u64, order: u64, tail: u64) {
        let slot = &mut self.slots[i];
        (slot.life, slot.order, slot.tail, slot.dirty, slot.useful) = (life, order, tail, true, false);
        self.current = Some(i);
    }

    /// A zone was reset.
    pub(super) fn was_reset(&mut self, i: usize) {
        (self.slots[i].dirty, self.slots[i].active) = (false, false);
    }

    /// A zone was finished.
    pub(super) fn was_finished(&mut self, i: usize) {
        self.slots[i].active = false;
    }

    /// Zones that are active and that no frame goes to any more, whether they are full but for what is too little or took no more.
    pub(super) fn left(&self) -> Vec<usize> {
        (0..self.slots.len()).filter(|i| self.slots[*i].active && self.current != Some(*i)).collect()
    }

    /// A snapshot that begins in the zone of this order is whole: what is before it is of no use. Returns the zones to reset.
    pub(super) fn release(&mut self, order: u64) -> Vec<usize> {
        let old = |slot: &Slot| slot.order != 0 && slot.order < order;
        let old: Vec<usize> = (0..self.slots.len()).filter(|i| old(&self.slots[*i])).collect();
        for slot in &mut self.slots {
            match slot.order < order {
                true => (slot.order, slot.tail, slot.useful) = (0, 0, false),
                false => slot.useful = true,
            }
        }
        old.into_iter().filter(|i| !self.slots[*i].dead).collect()
    }

    /// One more zone, which is empty.
    pub(super) fn grow(&mut self, slot: Slot) {
        self.slots.push(slot);
    }

    /// Free zones that can go while `least` others still take writes, and all free ones that take none.
    pub(super) fn spare(&self, least: usize) -> Vec<ZoneId> {
        let free = |dead: bool| self.slots.iter().filter(move |slot| slot.order == 0 && slot.dead == dead);
        let live = free(false).rev().take(self.alive().saturating_sub(least));
        // A root names two zones at least.
        let dead = free(true).take(if self.alive() >= least { usize::MAX } else { 0 });
        live.chain(dead).map(|slot| slot.zone).collect()
    }

    /// Free zones that no frame goes to any more.
    pub(super) fn shrink(&mut self, zones: &[ZoneId]) {
        let current = self.current.map(|i| self.slots[i].zone);
        self.slots.retain(|slot| !zones.contains(&slot.zone));
        self.current = current.and_then(|zone| self.slots.iter().position(|slot| slot.zone == zone));
    }

    /// Bytes of frames that surely can be written before a snapshot has to make room. At the end of each zone a frame may not fit.
    pub(super) fn room(&self, frame: u64) -> Room {
        let wasted = frame.saturating_sub(BLOCK);
        let free = self.slots.iter().filter(|slot| slot.order == 0 && !slot.dead);
        Room {
            rest: self.current.map_or(0, |i| self.slots[i].rest()).saturating_sub(wasted),
            free: free.map(|slot| slot.capacity.saturating_sub(HEADS * BLOCK + wasted)).sum(),
        }
    }
}

/// See [`Ring::room`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// In the zone that is written.
    pub(super) rest: u64,
    /// In zones in which nothing of use stands.
    pub(super) free: u64,
}

impl Room {
    pub(super) fn all(&self) -> u64 {
        self.rest + self.free
    }
}

/// Bytes of a device write at most, in rings of zones that take so many bytes. A piece of half as many bytes surely is one write.
pub(super) fn run_of(zone: u64) -> u64 {
    (zone / 16).clamp(BLOCK, 2 << 20) / BLOCK * BLOCK
}

/// Bytes of frames that records of so many bytes take at most: no frame but the last is less than half full, and each is padded to blocks.
fn frames_for(bytes: u64, frame: u64) -> u64 {
    let frames = 2 * bytes / frame + 1;
    bytes + frames * BLOCK + bytes / 8
}

/// Whether records of so many bytes may come to rings that have so much room. With `snapshot` there is room behind them in each ring for a snapshot
/// in every copy, whatever records come between their pieces, and for one in zones of its own, however often it is interrupted. Without it one ring
/// that takes the records is enough.
pub(super) fn admits(rooms: &[Room], copies: u64, frame: u64, bytes: u64, snapshot: Option<u64>) -> bool {
    let need = if bytes > 0 { frames_for(bytes, frame) } else { 0 };
    match snapshot {
        Some(snapshot) => {
            let kept = copies * snapshot + 3 * frame + 16 * BLOCK;
            !rooms.is_empty() && rooms.iter().all(|room| room.all() >= need + kept && room.free >= snapshot + frame)
        }
        None => rooms.iter().any(|room| room.all() >= need),
    }
}

#[cfg(test)]
mod tests;
