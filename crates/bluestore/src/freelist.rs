//! Records of a store in place that say which units are taken: 128 units each, as a number of 128 bits in little endian, by zone and place. Where none is taken there is no record.
//!
//! BlueStore has its key-value store merge changes of such records with XOR, so that nobody need know what is there. Here whoever commits has all of it in memory, and puts the records as they are then:
//! a record may be written twice, and none depends on another.

use crate::blob::{BLOCK, Blob, LOST};
use crate::core::CHECK;
use crate::keyvalue::{Change, Family, KeyValue, each};
use crate::space::{Key, RECORD, Space};
use crate::table::Table;
use imbrex_device::{Error, Result};
use imbrex_zones::Tenant;
use std::collections::BTreeMap;

pub(crate) fn key((zone, n): Key) -> Vec<u8> {
    [zone.to_be_bytes(), n.to_be_bytes()].concat()
}

pub(crate) fn of_key(key: &[u8]) -> Option<Key> {
    let (zone, n) = key.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*zone), u32::from_be_bytes(n.try_into().ok()?)))
}

pub(crate) fn encode(taken: u128) -> Vec<u8> {
    taken.to_le_bytes().to_vec()
}

pub(crate) fn decode(bytes: &[u8]) -> Option<u128> {
    bytes.try_into().map(u128::from_le_bytes).ok().filter(|taken| *taken != 0)
}

/// The record is as it should be.
pub(crate) fn change(of: Key, taken: u128) -> Change {
    match taken {
        0 => Change::Delete(Family::Units, key(of)),
        _ => Change::Put(Family::Units, key(of), encode(taken)),
    }
}

/// Space with no zones, in units of so many bytes; `None`: zones have too few.
fn space(unit: u32, zone_bytes: u64) -> Option<Space> {
    let blocks = u32::try_from(zone_bytes / BLOCK).ok()?;
    let unit = u32::try_from(u64::from(unit) / BLOCK).ok().filter(|unit| *unit > 0 && blocks / unit >= 4)?;
    Some(Space::new(unit, blocks))
}

/// What the records say of the zones of a store. `None`: they make no sense, or a zone has more living blocks than units for them, some of which would be taken for free. To a zone of which they say nothing,
/// although blocks live there, nothing more goes.
fn load(kv: &dyn KeyValue, mut space: Space, table: &Table) -> Result<Option<Space>> {
    table.iter().for_each(|(zone, _)| space.add(zone));
    let mut sound = true;
    each(kv, Family::Units, |key, value| {
        sound &= of_key(key).zip(decode(value)).is_some_and(|(key, taken)| space.load(key, taken));
        Ok(())
    })?;
    for (zone, z) in table.iter() {
        space.loaded(zone, z.live);
        let taken = u64::from(space.taken_in(zone));
        sound &= taken == 0 || taken * u64::from(space.unit()) >= z.live;
    }
    Ok(sound.then_some(space))
}

/// Units that blobs have, and how often one has what another has, too.
#[derive(Default)]
pub(crate) struct Found {
    pub records: BTreeMap<Key, u128>,
    pub twice: u64,
}

impl Found {
    /// Another blob.
    pub fn count(&mut self, blob: &Blob, unit: u32) {
        let mut own: BTreeMap<Key, u128> = BTreeMap::new();
        for run in blob.living() {
            let Some(place) = run.place.filter(|place| place.zone != LOST.zone) else { continue };
            for unit in place.block / unit..=(place.block + run.blocks - 1) / unit {
                *own.entry((place.zone, unit / RECORD)).or_default() |= 1 << (unit % RECORD);
            }
        }
        for (key, taken) in own {
            let all = self.records.entry(key).or_default();
            self.twice += u64::from((*all & taken).count_ones());
            *all |= taken;
        }
    }
}

/// Space as the records of blobs have it; and changes that make the freelist so.
pub(crate) fn derive(kv: &dyn KeyValue, mut space: Space, table: &Table) -> Result<(Space, Vec<Change>)> {
    let mut found = Found::default();
    each(kv, Family::Blobs, |_, value| {
        Blob::decode(value).iter().for_each(|blob| found.count(blob, space.unit()));
        Ok(())
    })?;
    table.iter().for_each(|(zone, _)| space.add(zone));
    // What is no zone of the store, or behind its end, has no room that anybody could get.
    found.records.retain(|key, taken| space.load(*key, *taken));
    table.iter().for_each(|(zone, z)| space.loaded(zone, z.live));
    let mut changes = Vec::new();
    let mut rest = found.records;
    each(kv, Family::Units, |key, value| {
        match of_key(key) {
            Some(of) => {
                let taken = rest.remove(&of).unwrap_or(0);
                if decode(value) != Some(taken) {
                    changes.push(change(of, taken));
                }
            }
            None => changes.push(Change::Delete(Family::Units, key.to_vec())),
        }
        Ok(())
    })?;
    changes.extend(rest.into_iter().map(|(of, taken)| change(of, taken)));
    Ok((space, changes))
}

/// Which units are taken, of a store in place. `repair`: records of blobs tell, and what they tell otherwise than the freelist is written and put here.
pub(crate) fn open(
    tenant: &Tenant,
    kv: &dyn KeyValue,
    (unit, table): (u32, &Table),
    repair: Option<&mut Vec<String>>,
) -> Result<Space> {
    let volume = tenant.volume();
    let corrupt = |what: &str| Error::corrupt(&volume.name(), what).checked_by(CHECK);
    let space = space(unit, volume.least_capacity()).ok_or_else(|| corrupt("the size of allocation units"))?;
    let Some(derived) = repair else {
        return load(kv, space, table)?.ok_or_else(|| corrupt("records of which units are taken"));
    };
    let (space, changes) = derive(kv, space, table)?;
    if !changes.is_empty() {
        derived.push(format!("{} records of which units are taken were wrong", changes.len()));
        kv.write(&changes)?;
    }
    Ok(space)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Place;
    use crate::checksum::Checksum;

    #[test]
    fn records_come_back_and_nothing_else_is_taken_for_them() {
        assert_eq!(of_key(&key((7, u32::MAX))), Some((7, u32::MAX)));
        assert!(key((1, 300)) < key((2, 0)) && key((1, 255)) < key((1, 256)));
        assert_eq!((of_key(&[0; 7]), of_key(&[0; 9])), (None, None));
        assert_eq!(decode(&encode(1 << 127 | 5)), Some(1 << 127 | 5));
        assert_eq!((decode(&[0; 16]), decode(&[1; 15]), decode(&[1; 17])), (None, None, None));
    }

    #[test]
    fn units_of_blobs_are_those_of_their_living_blocks() {
        let mut blob = Blob::new(0, 0, Checksum::Crc32c, &[0; 9 * 4096]);
        blob.name(0, 9);
        blob.put(0, 9, Place { zone: 3, block: 4 * 127, life: 1 });
        blob.unname(4, 4);
        let mut found = Found::default();
        found.count(&blob, 4);
        // The first unit, and the third, which has one block.
        assert_eq!(found.records, BTreeMap::from([((3, 0), 1 << 127), ((3, 1), 1 << 1)]));
        assert_eq!(found.twice, 0);
        found.count(&blob, 4);
        assert_eq!(found.twice, 2);
    }
}
