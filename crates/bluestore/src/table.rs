//! The store's zones: how many blocks live in each; and sums over all objects.

use crate::codec::{Reader, put_varint};
use std::collections::{BTreeMap, BTreeSet};

/// A zone with data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Zone {
    pub life: u64,
    /// Blocks that blobs' records name.
    pub live: u64,
    /// More may come.
    pub open: bool,
    /// How many blocks of all zones had died when it was opened to be written, since the opening of the store.
    pub born: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Table {
    zones: BTreeMap<u32, Zone>,
    /// Blocks that live in all of them.
    live: u64,
    /// Blocks that have died since the opening: the time of the cleaner.
    died: u64,
    /// Those that have changed since somebody asked, and by how many blocks.
    changed: BTreeMap<u32, i64>,
    /// Zones in which nothing lives are kept, until somebody gives them back.
    pub keeps: bool,
}

impl Table {
    pub fn get(&self, zone: u32) -> Option<&Zone> {
        self.zones.get(&zone)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Zone)> {
        self.zones.iter().map(|(zone, z)| (*zone, z))
    }

    /// Blocks that live in all of them.
    pub fn live(&self) -> u64 {
        self.live
    }

    pub fn insert(&mut self, zone: u32, z: Zone) {
        let z = Zone { born: self.died, ..z };
        self.live += z.live;
        if let Some(old) = self.zones.insert(zone, z) {
            self.live -= old.live;
        }
    }

    pub fn remove(&mut self, zone: u32) {
        self.live -= self.zones.remove(&zone).map_or(0, |z| z.live);
        self.changed.remove(&zone);
    }

    /// More blocks live in the zone.
    pub fn add(&mut self, zone: u32, blocks: u64) {
        if let Some(z) = self.zones.get_mut(&zone) {
            z.live += blocks;
            self.live += blocks;
            *self.changed.entry(zone).or_default() += blocks as i64;
        }
    }

    /// Fewer do. True: none does any more, and no more will come.
    pub fn sub(&mut self, zone: u32, life: u32, blocks: u64) -> bool {
        let Some(z) = self.zones.get_mut(&zone).filter(|z| z.life as u32 == life) else { return false };
        let was = z.live;
        z.live = was.saturating_sub(blocks);
        self.live -= was - z.live;
        self.died += was - z.live;
        *self.changed.entry(zone).or_default() -= (was - z.live) as i64;
        was > 0 && z.live == 0 && !z.open && !self.keeps
    }

    /// The zone as it was at the last [`Table::take_changed`].
    pub fn before(&self, zone: u32) -> Option<Zone> {
        let since = self.changed.get(&zone).copied().unwrap_or(0);
        self.get(zone).map(|z| Zone { live: z.live.saturating_add_signed(-since), ..*z })
    }

    /// The part of what lives in a zone of so many blocks that dies with each other block, by what has died there so far.
    pub fn rate(&self, z: &Zone, capacity: u64) -> f64 {
        let left = z.live as f64 / capacity.max(1) as f64;
        let time = self.died - z.born.min(self.died);
        -left.clamp(1e-9, 1.0).ln() / (time + 1) as f64
    }

    /// No more will come to the zone. True: nothing lives there.
    pub fn close(&mut self, zone: u32) -> bool {
        self.zones.get_mut(&zone).is_some_and(|z| std::mem::replace(&mut z.open, false) && z.live == 0)
    }

    /// Those that have changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed).into_keys().collect()
    }
}

pub(crate) fn zone_key(zone: u32) -> Vec<u8> {
    zone.to_be_bytes().to_vec()
}

pub(crate) fn of_zone_key(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.try_into().ok()?))
}

impl Zone {
    /// As the key-value store has it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.life.to_le_bytes().to_vec();
        put_varint(&mut out, self.live);
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Zone> {
        let mut from = Reader(bytes);
        let zone = Zone { life: from.u64()?, live: from.small::<u32>()?.into(), ..Zone::default() };
        from.is_empty().then_some(zone)
    }
}

/// Sums over all objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub objects: i64,
    /// Of their sizes, in bytes.
    pub bytes: i64,
    /// Blocks that live and have no place on the drive.
    pub deferred: i64,
}

impl Sums {
    pub fn add(&mut self, other: Sums) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.deferred += other.deferred;
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        [self.objects, self.bytes, self.deferred].into_iter().for_each(|n| put_varint(&mut out, n.max(0) as u64));
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Sums> {
        let mut from = Reader(bytes);
        let sums = Sums { objects: from.small()?, bytes: from.small()?, deferred: from.small()? };
        let sane = sums.objects <= 1 << 48 && sums.bytes <= 1 << 60 && sums.deferred <= 1 << 40;
        (from.is_empty() && sane).then_some(sums)
    }
}
