//! Zones that the store takes from the volume's pool: which one (SMRSTORE §5.4 leaves that open), and how its new life begins.

use crate::core::{Core, State};
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::{BLOCK, ZoneUse};
use crate::zone::{DataZone, Event, ZoneState};
use imbrex_device::{AlignedBuf, ZoneId};
use imbrex_zones::{OpenZone, Urgency, ZoneHeader};

/// Free zones that the store makes its own, if there are so many, to take the next of them.
const CHOICE: usize = 16;

/// A zone that the store takes, and the header that its new life begins with.
pub(crate) struct NewZone {
    pub(crate) zone: u32,
    life: u64,
    usage: ZoneUse,
    pub(crate) capacity: u32,
    head: AlignedBuf,
}

impl State {
    /// Its new life begins: from here on others may put records there.
    pub(crate) fn begin_zone(&mut self, new: NewZone) -> u32 {
        let NewZone { zone, life, usage, capacity, head } = new;
        let mut z = DataZone::new(ZoneState::Free, life, usage, capacity, 0);
        z.step(Event::Take);
        z.tail = 1;
        self.placing.took(zone);
        let bytes = u64::from(capacity) * BLOCK as u64;
        self.writer.open(OpenZone { zone: ZoneId(zone), life, at: 0, capacity: bytes });
        self.writer.push(zone, head.into());
        self.decisions.tell(Entry::ZoneTaken { zone, life, usage });
        z.taken = self.assign();
        self.zones.insert(zone, z);
        zone
    }
}

impl Core {
    /// Takes a zone of the volume's pool and begins a new life of it.
    pub(crate) fn take_zone(&self, usage: ZoneUse, urgency: Urgency) -> Result<u32> {
        let new = self.new_zone(usage, urgency)?;
        Ok(self.state().begin_zone(new))
    }

    /// A zone of the volume's pool, for a new life.
    pub(crate) fn new_zone(&self, usage: ZoneUse, urgency: Urgency) -> Result<NewZone> {
        // With the write cache on the drive puts in order what it has in its memory, so the head's ways are short anyway, and the first zones are the fastest.
        let zone = if self.options.placement.goes_round() && self.writer.writes_through() {
            let last = ZoneId(self.state().placing.taken());
            self.tenant.take_behind(last, CHOICE, urgency)?
        } else {
            self.tenant.take(urgency)?
        };
        let life = self.next_number();
        let (kind, created) = (usage.kind(), (self.options.clock)());
        let header = ZoneHeader { kind, created, ..self.tenant.header(zone, life) };
        let mut head = AlignedBuf::zeroed(BLOCK);
        header.encode_into(&mut head);
        let capacity = (self.volume.capacity(zone) / BLOCK as u64) as u32;
        Ok(NewZone { zone: zone.0, life, usage, capacity, head })
    }
}
