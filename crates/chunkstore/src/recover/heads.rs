//! What the first blocks of a drive's zones say, and the superzone that follows from it where the label is lost.

use super::{COPIES, TENANT, metazones};
use crate::core::report::LostStore;
use crate::format::id::StreamType;
use crate::format::{BLOCK, Header, Kind, ZoneHead, zone_head};
use imbrex_device::{AlignedBuf, Cause, Written, Zone, ZoneId, ZoneState, ZonedDevice};
use imbrex_zones::ZoneHeader;
use imbrex_zones::log::Root;
use imbrex_zones::log::format::LogHead;
use std::collections::BTreeMap;

/// Blocks at the beginning of a zone in which a record is looked for where its head cannot be read.
const NEAR: u32 = 1024;

/// Whose a zone is, by what stands at its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing was written there.
    Empty,
    /// A chunk store's, and the zone's life.
    Head(ZoneHead, u64),
    /// A chunk store's, whose head cannot be read: the life, and the kind of stream of a record further on.
    Records(u64, StreamType),
    /// A chunk store's: journal and checkpoints.
    Log(LogHead),
    /// Another engine's.
    Other,
    /// Nobody can tell.
    Unknown,
    /// Nothing of it can be read any more.
    Gone,
}

/// Looks at the beginning of a sequential zone.
pub(crate) fn look(device: &dyn ZonedDevice, zone: &Zone) -> Found {
    let to = match zone.written() {
        _ if zone.state == ZoneState::Empty => 0,
        Written::To(wp) => (wp / BLOCK as u64) as u32,
        Written::Untold => (zone.capacity / BLOCK as u64) as u32,
        Written::Gone => return Found::Gone,
    };
    if to == 0 {
        return if zone.wp.is_some_and(|wp| wp > 0) { Found::Unknown } else { Found::Empty };
    }
    let mut block = AlignedBuf::zeroed(BLOCK);
    let mut blank = true;
    for at in 0..to.min(NEAR) {
        let address = device.geometry().start(zone.id) + u64::from(at) * BLOCK as u64;
        if device.read_at(&mut block, address, Cause::Recovery.into()).is_err() {
            blank = false;
            continue;
        }
        blank &= block.iter().all(|byte| *byte == 0);
        if at == 0 {
            if let Some((head, life)) = zone_head(&block) {
                return if head.zone == zone.id.0 { Found::Head(head, life) } else { Found::Unknown };
            }
            if let Some(head) = LogHead::decode(&block).filter(|head| head.tenant == TENANT && head.zone == zone.id.0) {
                return Found::Log(head);
            }
            if ZoneHeader::decode(&block).is_some_and(|header| header.zone == zone.id.0) {
                return Found::Other;
            }
        }
        if let Ok(header) = Header::decode_anywhere(&block)
            && header.at == at
            && header.kind == Kind::Data
        {
            return Found::Records(header.life, StreamType::new(header.stream).unwrap_or(StreamType::DATA));
        }
    }
    // A read-only zone need not tell how far it is written.
    if blank && zone.written() == Written::Untold { Found::Empty } else { Found::Unknown }
}

/// The chunk stores of which there are heads, the one that took a zone last first.
pub(crate) fn stores<'a>(found: impl Iterator<Item = &'a Found>) -> Vec<LostStore> {
    let mut all: BTreeMap<[u8; 16], LostStore> = BTreeMap::new();
    for found in found {
        let (volume, time, log) = match found {
            Found::Head(head, _) => (head.volume, head.time, false),
            Found::Log(head) => (head.volume, head.created, true),
            _ => continue,
        };
        let store = all.entry(volume).or_insert(LostStore { volume, ..LostStore::default() });
        let zones = if log { &mut store.metazones } else { &mut store.datazones };
        *zones += 1;
        store.newest = store.newest.max(time);
    }
    let mut all: Vec<LostStore> = all.into_values().collect();
    all.sort_by_key(|store| std::cmp::Reverse(store.newest));
    all
}

/// The superzone of a store whose metazones in use are known, with the ring of each, ascending: in a root the rings take turns,
/// so empty zones between and around them fill the gaps, as unused metazones did. A metazone that cannot be fitted in is left out,
/// and its copy counts. `None`: there are too few empty zones for two rings.
pub(crate) fn root_of(used: &[(u32, u8)], empty: &[u32], zones: u32) -> Option<Root> {
    let want = metazones(zones) as usize;
    let root = |zones| Root { copies: COPIES, zones, unfinished: true, ..Root::default() };
    let fits = |all: &[u32]| root(all.to_vec()).encode().is_some();
    let mut all: Vec<u32> = Vec::new();
    for (n, (zone, ring)) in used.iter().enumerate() {
        // Before the first one only what is needed, and what stands next to it.
        let before: Vec<u32> = match all.last() {
            None => empty.iter().copied().filter(|e| e < zone).rev().take(usize::from(*ring)).collect(),
            Some(last) => empty.iter().copied().filter(|e| e > last && e < zone).collect(),
        };
        let room = want.saturating_sub(all.len() + used.len() - n);
        let odd = (all.len() + usize::from(*ring)) % 2;
        // As many as there is room for, but one at least where the ring has to change.
        let take = before.len().min(room.max(odd));
        let take = if take % 2 == odd { take } else { take.saturating_sub(1) };
        if take % 2 == odd {
            let kept = all.len();
            all.extend(before.into_iter().take(take));
            all.push(*zone);
            if !fits(&all) {
                all.truncate(kept);
            }
        }
    }
    let last = all.last().copied();
    for zone in empty.iter().filter(|zone| last.is_none_or(|last| **zone > last)) {
        if all.len() >= want {
            break;
        }
        all.push(*zone);
        if !fits(&all) {
            all.pop();
            break;
        }
    }
    // In front two at a time: who comes behind them keeps its ring.
    while all.len() + 2 <= want.max(4) {
        let first = all.first().copied().unwrap_or(0);
        let mut two: Vec<u32> = empty.iter().copied().filter(|zone| *zone < first).rev().take(2).collect();
        two.reverse();
        two.extend(&all);
        if two.len() < all.len() + 2 || !fits(&two) {
            break;
        }
        all = two;
    }
    let is_used = |zone: &u32| used.iter().any(|(used, _)| used == zone);
    // Each ring needs two, and one of them that a checkpoint can be written to.
    let free = |ring: usize| all.iter().skip(ring).step_by(2).any(|zone| !is_used(zone));
    (all.len() >= 4 && free(0) && free(1)).then_some(root(all))
}

/// What the beginnings of all sequential zones say, by number, but for those of the label.
pub(crate) fn look_at_all(
    device: &dyn ZonedDevice,
    report: &[Zone],
    label: [ZoneId; 2],
    progress: &mut dyn FnMut(u64, u64),
) -> BTreeMap<u32, Found> {
    let all = report.len() as u64;
    let mut found = BTreeMap::new();
    for (done, zone) in report.iter().enumerate() {
        progress(done as u64, all);
        if zone.state != ZoneState::Conventional && !label.contains(&zone.id) {
            found.insert(zone.id.0, look(device, zone));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 60 zones: six metazones.
    fn made(used: &[(u32, u8)], empty: impl IntoIterator<Item = u32>) -> Option<Vec<u32>> {
        let root = root_of(used, &empty.into_iter().collect::<Vec<_>>(), 60)?;
        for (i, zone) in root.zones.iter().enumerate() {
            if let Some((_, ring)) = used.iter().find(|(used, _)| used == zone) {
                assert_eq!(usize::from(*ring), i % 2, "{root:?}");
            }
        }
        assert!(root.zones.windows(2).all(|two| two[0] < two[1]), "{root:?}");
        Some(root.zones)
    }

    #[test]
    fn unused_metazones_are_found_again_around_the_used_ones() {
        // As they were taken: 4 to 9.
        for used in [&[(4, 0), (5, 1)][..], &[(5, 1), (6, 0)], &[(8, 0), (9, 1)], &[(4, 0), (9, 1)], &[(6, 0), (7, 1)]]
        {
            let empty = (4..10).filter(|zone| !used.iter().any(|(used, _)| used == zone));
            assert_eq!(made(used, empty).unwrap(), [4, 5, 6, 7, 8, 9], "{used:?}");
        }
        // Zones behind them are as good as those before.
        assert_eq!(made(&[(8, 0), (9, 1)], 10..60).unwrap(), [8, 9, 10, 11, 12, 13]);
        assert_eq!(made(&[], 20..60).unwrap(), [20, 21, 22, 23, 24, 25]);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_nothing_is_made_without_room() {
        // Two of one ring with nothing between them: one is left out.
        assert_eq!(made(&[(4, 0), (5, 0)], 10..60).unwrap(), [4, 10, 11, 12, 13, 14]);
        assert_eq!(made(&[(4, 0), (6, 0)], [5, 10, 11, 12]).unwrap(), [4, 5, 6, 10, 11, 12]);
        // The first one in the second ring, and nothing before it.
        assert_eq!(made(&[(4, 1)], 10..14).unwrap(), [10, 11, 12, 13]);
        assert_eq!(made(&[(4, 0), (5, 1)], [6]), None, "one ring has nothing to write to");
        assert_eq!(made(&[(4, 0), (5, 1)], [6, 7]).unwrap(), [4, 5, 6, 7]);
        assert_eq!(made(&[], []), None);
        assert_eq!(made(&[], [6, 7]), None, "a ring of one zone cannot go round");
    }
}
