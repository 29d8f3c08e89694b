//! Records of zones from those of blobs, when a store is opened to be repaired. What they say is written before anything else: zones without a record are free to be reset once the opening is over.

use crate::blob::{BLOCK, Blob, LOST};
use crate::keyvalue::{Change, Family, KeyValue, each};
use crate::table::{Table, Zone, of_zone_key, zone_key};
use imbrex_device::{AlignedBuf, Cause, Result, Tag, ZoneId};
use imbrex_zones::{Tenant, ZoneHeader};
use std::collections::BTreeMap;

/// Living blocks, by zone and the lower half of a life.
type Live = BTreeMap<u32, BTreeMap<u32, u64>>;

/// Zones with data, and sentences about what was derived.
pub(crate) fn zones(tenant: &Tenant, kv: &dyn KeyValue) -> Result<(Table, Vec<String>)> {
    let (mut table, mut derived, mut changes) = (Table::default(), Vec::new(), Vec::new());
    let mut records = BTreeMap::new();
    each(kv, Family::Zones, |key, value| {
        match of_zone_key(key) {
            Some(zone) => drop(records.insert(zone, Zone::decode(value))),
            None => {
                derived.push("the key of the record of a zone made no sense".into());
                changes.push(Change::Delete(Family::Zones, key.to_vec()));
            }
        }
        Ok(())
    })?;
    let live = live(kv)?;
    live.keys().for_each(|zone| _ = records.entry(*zone).or_insert(None));
    for (zone, record) in records {
        let lives = live.get(&zone);
        let known = record.filter(|z| lives.is_none_or(|lives| lives.contains_key(&(z.life as u32))));
        let z = match known {
            // With fewer it would be free too early. One in which nothing seems to live is the repair's.
            Some(z) => match lives.and_then(|lives| lives.get(&(z.life as u32))) {
                Some(found) if *found != z.live => {
                    derived.push(format!("{found} blocks live in zone {zone}, and its record said {}", z.live));
                    let z = Zone { live: *found, ..z };
                    changes.push(Change::Put(Family::Zones, zone_key(zone), z.encode()));
                    z
                }
                _ => z,
            },
            None => {
                let found = lives.and_then(|lives| derive(tenant, zone, lives)).or(record);
                if found != record || found.is_none() {
                    derived.push(match found {
                        Some(z) => format!("{} blocks live in zone {zone}, whose record was gone or wrong", z.live),
                        None => format!("the record of zone {zone} made no sense, and nothing lives there"),
                    });
                    changes.push(match found {
                        Some(z) => Change::Put(Family::Zones, zone_key(zone), z.encode()),
                        None => Change::Delete(Family::Zones, zone_key(zone)),
                    });
                }
                let Some(found) = found else { continue };
                found
            }
        };
        match tenant.adopt(ZoneId(zone)) {
            Ok(()) => table.insert(zone, z),
            Err(error) => {
                // Another one's, or empty: reads of what blobs have there fail.
                tracing::error!(%error, zone, "a zone of the metadata has no data of the store");
                derived.push(format!("zone {zone} has no data of the store, and its record is gone"));
                changes.push(Change::Delete(Family::Zones, zone_key(zone)));
            }
        }
    }
    if !changes.is_empty() {
        kv.write(&changes)?;
    }
    Ok((table, derived))
}

fn live(kv: &dyn KeyValue) -> Result<Live> {
    let mut live = Live::new();
    each(kv, Family::Blobs, |_, value| {
        for run in Blob::decode(value).iter().flat_map(Blob::living) {
            if let Some(place) = run.place.filter(|place| place.zone != LOST.zone) {
                *live.entry(place.zone).or_default().entry(place.life).or_default() += u64::from(run.blocks);
            }
        }
        Ok(())
    })?;
    Ok(live)
}

/// A zone's record, by its header. Where that cannot be read, blobs tell half of the life, which is all that they need.
fn derive(tenant: &Tenant, zone: u32, lives: &BTreeMap<u32, u64>) -> Option<Zone> {
    let volume = tenant.volume();
    if zone >= volume.geometry().zones {
        return None;
    }
    let mut block = AlignedBuf::zeroed(BLOCK as usize);
    let read = volume.read(&mut block, volume.geometry().start(ZoneId(zone)), Tag::new(Cause::Recovery));
    let own = |header: &ZoneHeader| (header.volume, header.owner, header.zone) == (volume.uuid(), tenant.owner(), zone);
    let header = read.ok().and_then(|()| ZoneHeader::decode(&block)).filter(own);
    let life = match header {
        Some(header) => header.life,
        None => u64::from(*lives.iter().max_by_key(|(_, blocks)| **blocks)?.0),
    };
    let live = *lives.get(&(life as u32))?;
    Some(Zone { life, live, ..Zone::default() })
}
