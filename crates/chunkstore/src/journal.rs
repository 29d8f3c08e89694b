//! Metazones: journal and checkpoints, in two copies (SMRSTORE §5.2, §5.6).
//!
//! The metazones are two *rings*. Each holds every journal record, and every other checkpoint: even ones stand in the first,
//! odd ones in the second. So each ring alone is enough to recover (from a checkpoint that may be one older), and whatever
//! happens to one metazone loses nothing. In a ring records follow each other from zone to zone; when a checkpoint is
//! complete and durable, the zones before the one where it begins are reset.
//!
//! A ring of which fewer than two zones take writes is *lost*: a checkpoint that begins where the one before ends could never give a
//! zone back. Nothing is written to it any more in this mount, and all checkpoints stand in the other one.
//!
//! Journal records are a chain: each names the one before it, as the mount knew it that wrote it. So one that could not be read at one mount,
//! and can be again, is not taken for what followed instead.
//!
//! Within a zone the drive keeps a front of what was not flushed; from one zone to the next a flush sees to that order. So what a power
//! loss takes of a ring is always its end.
//!
//! Only who has the [commit guard](crate::core::CommitGuard) writes here.

use crate::core::Core;
use crate::entry::{Entry, ZoneState};
use crate::error::Result;
use crate::format::{BLOCK, HEADER, Header, Kind, ZoneHead, ZoneUse, record};
use imbrex_device::{Cause, Error, Fault, Tag, ZoneId};
use imbrex_zones::{OpenZone, Tenant};

/// A metazone.
#[derive(Clone, Debug)]
pub(crate) struct MetaZone {
    pub(crate) zone: ZoneId,
    /// Bytes that it takes.
    pub(crate) capacity: u64,
    pub(crate) life: u64,
    /// Place in the order of its ring; 0: nothing of use in it.
    pub(crate) order: u64,
    /// Where the next record goes, in bytes.
    pub(crate) tail: u64,
    /// It takes no writes any more.
    pub(crate) dead: bool,
    /// Must be reset before it is used.
    pub(crate) dirty: bool,
    /// It is one of the drive's active zones, for all that is known.
    pub(crate) active: bool,
}

impl MetaZone {
    /// Where it is in [Figure 12](crate::zone), in which metazones go round, too, but without a pool: none is open before it is written. `current`:
    /// records go there now.
    pub(crate) fn state(&self, current: bool) -> ZoneState {
        match (self.order > 0, current, self.dirty) {
            (true, true, _) => ZoneState::Activated,
            (true, false, _) => ZoneState::Closed,
            (false, _, true) => ZoneState::Garbage,
            (false, _, false) => ZoneState::Free,
        }
    }
}

/// One copy of the metadata.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    pub(crate) zones: Vec<MetaZone>,
    pub(crate) current: Option<usize>,
    pub(crate) order: u64,
    /// It was said that it is lost.
    pub(crate) told: bool,
}

impl Ring {
    /// See the module.
    pub(crate) fn is_lost(&self) -> bool {
        self.zones.iter().filter(|zone| !zone.dead).count() < 2
    }

    /// One of its zones takes no writes any more. Says so, once, where it is lost with it.
    fn died(&mut self, i: usize) {
        self.zones[i].dead = true;
        if self.is_lost() && !std::mem::replace(&mut self.told, true) {
            tracing::error!("{ONE_COPY}");
        }
    }

    /// Finishes the zones that are active and that no record goes to any more, whether they are full but for what is too little or took a
    /// record no more: where active zones are limited, the label's share is lost with one too many. What fails is tried again the next time.
    pub(crate) fn finish_left(&mut self, tenant: &Tenant) {
        let current = self.current;
        let left = self.zones.iter_mut().enumerate().filter(|(i, zone)| zone.active && Some(*i) != current);
        for (_, zone) in left {
            match tenant.finish(zone.zone) {
                Ok(()) => zone.active = false,
                Err(error) => tracing::warn!(%error, "a metazone could not be finished"),
            }
        }
    }

    /// Bytes that can be written before a checkpoint has to make room.
    pub(crate) fn room(&self) -> u64 {
        let current = self.current.and_then(|i| self.zones.get(i));
        let rest = current.map_or(0, |zone| zone.capacity.saturating_sub(zone.tail));
        let usable = |zone: &&MetaZone| zone.order == 0 && !zone.dead;
        // The zone's head, and what does not fit at the end of the one before.
        let free: u64 = self.zones.iter().filter(usable).map(|zone| zone.capacity - BLOCK as u64).sum();
        rest + free
    }
}

/// What is said of a ring that is lost.
pub(crate) const ONE_COPY: &str = "One of the two copies of the chunk store's metadata has too few metazones left that take writes; the \
                                   other one is all there is. Move the chunks to another drive.";

/// Journal and checkpoints.
#[derive(Debug, Default)]
pub(crate) struct MetaLog {
    pub(crate) rings: [Ring; 2],
    /// Number of the last journal record, which the next one names.
    pub(crate) journal: u64,
    /// The last number that a journal record was given.
    given: u64,
    /// Number of the last checkpoint that is complete.
    pub(crate) checkpoint: u64,
    /// Bytes of journal since then.
    pub(crate) grown: u64,
    /// The checkpoint that is being written.
    pub(crate) progress: Option<crate::checkpoint::Progress>,
}

impl MetaLog {
    /// The rings that are written.
    fn alive(&self) -> impl Iterator<Item = usize> {
        (0..2).filter(|ring| !self.rings[*ring].is_lost())
    }

    /// Whether only one copy is written.
    pub(crate) fn has_one_copy(&self) -> bool {
        self.rings.iter().any(Ring::is_lost)
    }

    /// The ring that a checkpoint goes to.
    pub(crate) fn ring_of(&self, checkpoint: u64) -> usize {
        let ring = (checkpoint % 2) as usize;
        if self.rings[ring].is_lost() && !self.rings[1 - ring].is_lost() { 1 - ring } else { ring }
    }

    /// Bytes that can be written to each ring before a checkpoint has to make room.
    pub(crate) fn room(&self) -> u64 {
        self.alive().map(|ring| self.rings[ring].room()).min().unwrap_or(0)
    }
}

impl Core {
    /// Writes a record to one ring; where its zone takes no more, to the next one. Returns the order of the zone it is in.
    pub(crate) fn meta_write(
        &self,
        log: &mut MetaLog,
        ring: usize,
        header: Header,
        payload: &[u8],
        cause: Cause,
    ) -> Result<u64> {
        let need = (HEADER + payload.len()).next_multiple_of(BLOCK) as u64;
        let mut last = None;
        for _ in 0..=log.rings[ring].zones.len() {
            let i = match log.rings[ring].current {
                Some(i) if log.rings[ring].zones[i].capacity.saturating_sub(log.rings[ring].zones[i].tail) >= need => i,
                _ => self.next_metazone(log, ring)?,
            };
            let zone = &mut log.rings[ring].zones[i];
            let bytes = record(header, zone.life, (zone.tail / BLOCK as u64) as u32, payload);
            let mut open = OpenZone { zone: zone.zone, life: zone.life, at: zone.tail, capacity: zone.capacity };
            match self.volume.write_sequential(&mut open, &bytes, Tag::new(cause)) {
                Ok(()) => {
                    zone.tail = open.at;
                    return Ok(zone.order);
                }
                Err(error) => {
                    self.volume.check_poison()?;
                    tracing::warn!(%error, "a metazone took no record; the next one is used");
                    // What it took of the record is passed over by whoever reads it.
                    log.rings[ring].died(i);
                    log.rings[ring].current = None;
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| self.error(Fault::NoSpace)).into())
    }

    /// Begins the next free zone of a ring.
    fn next_metazone(&self, log: &mut MetaLog, ring: usize) -> Result<usize> {
        log.rings[ring].current = None;
        log.rings[ring].finish_left(&self.tenant);
        // What stands in the next zone never outlives what stands before it: else after a power loss the journal has a gap where only its
        // end was not flushed.
        self.volume.sync(Cause::Journal.into())?;
        loop {
            let free = |zone: &MetaZone| zone.order == 0 && !zone.dead;
            let Some(i) = log.rings[ring].zones.iter().position(free) else {
                return Err(self.error(Fault::NoSpace).into());
            };
            match self.begin_metazone(log, ring, i) {
                Ok(()) => return Ok(i),
                Err(error) => {
                    self.volume.check_poison()?;
                    tracing::warn!(%error, "a metazone could not be begun; the next one is used");
                    log.rings[ring].died(i);
                    log.rings[ring].finish_left(&self.tenant);
                }
            }
        }
    }

    fn begin_metazone(&self, log: &mut MetaLog, ring: usize, i: usize) -> Result<(), Error> {
        let order = log.rings[ring].order + 1;
        let life = self.next_number();
        let zone = &mut log.rings[ring].zones[i];
        debug_assert!(matches!(zone.state(false), ZoneState::Free | ZoneState::Garbage));
        if zone.dirty {
            self.tenant.reset(zone.zone)?;
            (zone.dirty, zone.active) = (false, false);
        }
        let head = ZoneHead {
            volume: self.volume.uuid(),
            zone: zone.zone.0,
            usage: ZoneUse::Meta(ring as u8),
            time: (self.options.clock)(),
            order,
        };
        let payload = head.encode();
        let bytes = record(Header::of_payload(Kind::ZoneHead, 0, 0, &payload), life, 0, &payload);
        zone.active = true;
        // Also where the write fails: the drive may have the head, and of two zones of one order nobody could tell which is the first.
        log.rings[ring].order = order;
        let zone = &mut log.rings[ring].zones[i];
        self.tenant.activate(zone.zone)?;
        let mut open = OpenZone { zone: zone.zone, life, at: 0, capacity: zone.capacity };
        self.volume.write_sequential(&mut open, &bytes, Cause::Journal.into())?;
        (zone.life, zone.order, zone.tail, zone.dirty) = (life, order, open.at, true);
        log.rings[ring].current = Some(i);
        Ok(())
    }

    /// Writes entries to both rings. Not a flush.
    ///
    /// # Errors
    /// Where neither ring takes them. Where only one does, that is told in the log and the other is tried again, unless it is lost.
    pub(crate) fn meta_journal(&self, log: &mut MetaLog, entries: &[Entry]) -> Result<()> {
        let mut payload = Vec::new();
        let mut rest = entries.iter().peekable();
        while let Some(entry) = rest.next() {
            entry.encode(&mut payload);
            let full = payload.len() >= self.facts.journal_payload;
            if full || rest.peek().is_none() {
                self.journal_record(log, &payload)?;
                payload.clear();
            }
        }
        Ok(())
    }

    /// Writes one record to both rings. Without entries it only says where this mount begins: whatever that could not read of the journal counts no
    /// more.
    pub(crate) fn journal_record(&self, log: &mut MetaLog, payload: &[u8]) -> Result<()> {
        // No mount gives out a number that an earlier one may have given: of what that has written last, not all need have been readable when this
        // one began, and some day it may be again. Nor one whose record could not be written, since the drive may have it all the same.
        let number = (log.given.max(log.journal) + 1).max(self.volume.mount() << 40 | 1);
        log.given = number;
        let header = Header { serial: log.journal, ..Header::of_payload(Kind::Journal, number, 0, payload) };
        let mut failed = None;
        let mut written = false;
        for ring in log.alive().collect::<Vec<_>>() {
            match self.meta_write(log, ring, header, payload, Cause::Journal) {
                Ok(_) => written = true,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            _ if !written => return Err(failed.unwrap_or_else(|| self.error(Fault::ReadOnly).into())),
            Some(error) => tracing::error!(%error, "only one copy of the journal could be written"),
            None => {}
        }
        log.journal = number;
        log.grown += payload.len().next_multiple_of(BLOCK) as u64;
        Ok(())
    }

    /// A checkpoint that begins in the zone of this order is complete and durable: what is before it in its ring is of no use.
    pub(crate) fn meta_release(&self, log: &mut MetaLog, ring: usize, order: u64) {
        for i in 0..log.rings[ring].zones.len() {
            let zone = &mut log.rings[ring].zones[i];
            if zone.order != 0 && zone.order < order {
                zone.order = 0;
                zone.tail = 0;
                if zone.dead {
                    continue;
                }
                match self.tenant.reset(zone.zone) {
                    Ok(()) => (zone.dirty, zone.active) = (false, false),
                    Err(error) => {
                        tracing::warn!(%error, "a metazone could not be reset and is given up");
                        log.rings[ring].died(i);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{ChunkStore, FormatOptions, Options};
    use imbrex_device::Drive;
    use imbrex_emulator::{Config, Emulator};
    use imbrex_zones::{Exec, VolumeOptions};
    use std::sync::Arc;

    /// Metazones go from state to state as datazones do, arrow by arrow.
    #[test]
    fn metazones_go_round_as_drawn() {
        use crate::zone::{Event, ZoneState};
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
        let emulator = Emulator::memory(&config).unwrap();
        let drive = || Drive { device: Arc::new(emulator.clone()), survivor: None };
        ChunkStore::format(&drive(), &FormatOptions::default()).unwrap();
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let store = ChunkStore::open(drive(), Options { volume, ..Options::default() }).unwrap();
        // Without a new life.
        fn goes(from: ZoneState, to: ZoneState) -> bool {
            let next = [Event::Close, Event::Die, Event::Reset].map(|event| from.after(event));
            from == to || next.into_iter().flatten().any(|next| goes(next, to))
        }
        let look = || {
            let log = crate::core::lock(&store.core.meta);
            let of = |ring: &super::Ring| {
                let state = |(i, zone): (usize, &super::MetaZone)| (zone.life, zone.state(ring.current == Some(i)));
                ring.zones.iter().enumerate().map(state).collect::<Vec<_>>()
            };
            log.rings.iter().flat_map(of).collect::<Vec<_>>()
        };
        let mut before = look();
        let mut seen = std::collections::BTreeMap::new();
        for n in 0..300u64 {
            let id = crate::ChunkId::of_number(n % 7);
            if n % 50 == 49 {
                store.checkpoint().unwrap();
            } else if store.create(id, crate::StreamType::DATA).is_err() {
                store.delete(id).unwrap();
            }
            let after = look();
            for ((old, from), (new, to)) in before.iter().zip(&after) {
                let drawn = match old == new {
                    true => goes(*from, *to),
                    false => goes(*from, ZoneState::Free) && goes(ZoneState::Activated, *to),
                };
                assert!(drawn, "after {n}: {from:?} of life {old} to {to:?} of life {new}");
                *seen.entry(to.name()).or_insert(0) += u32::from(from != to);
            }
            for ring in after.chunks(3) {
                assert!(ring.iter().filter(|(_, state)| *state == ZoneState::Activated).count() <= 1, "{after:?}");
            }
            before = after;
        }
        let states = [ZoneState::Free, ZoneState::Activated, ZoneState::Closed].map(ZoneState::name);
        assert!(states.iter().all(|state| seen.get(state) > Some(&1)), "{seen:?}");
    }

    /// A drive may have written a head and say that it has not.
    #[test]
    fn no_two_metazones_of_a_ring_have_one_order() {
        let config = Config { zone_size: 256 << 10, zone_capacity: 256 << 10, capacity: 16 << 20, ..Config::tiny() };
        let emulator = Emulator::memory(&config).unwrap();
        let open = || {
            let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
            let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
            ChunkStore::open(drive, Options { volume, ..Options::default() }).unwrap()
        };
        let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
        ChunkStore::format(&drive, &FormatOptions::default()).unwrap();
        let orders = |store: &ChunkStore| {
            let log = crate::core::lock(&store.core.meta);
            let mut orders: Vec<u64> = log.rings[0].zones.iter().map(|zone| zone.order).filter(|n| *n > 0).collect();
            orders.sort_unstable();
            orders
        };
        let store = open();
        {
            let mut log = crate::core::lock(&store.core.meta);
            let free: Vec<usize> = (0..3).filter(|i| log.rings[0].zones[*i].order == 0).collect();
            emulator.faults().fail_write_late(1);
            store.core.begin_metazone(&mut log, 0, free[0]).unwrap_err();
            store.core.begin_metazone(&mut log, 0, free[1]).unwrap();
        }
        let before = orders(&store);
        drop(store);
        let after = orders(&open());
        assert!(after.len() == before.len() + 1, "the head is there: {before:?} {after:?}");
        assert!(after.windows(2).all(|pair| pair[0] < pair[1]), "{after:?}");
    }
}
