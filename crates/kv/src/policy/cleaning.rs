//! Placement like a log's, for [models](super::model): tables are appended to zones in the order in which they are written, whatever their groups are. When free
//! zones run low, a zone is cleaned: what lives in it is appended again. The store itself has nothing of it.

use std::collections::BTreeMap;

/// Which zone is cleaned next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The one with the fewest live bytes.
    Greedy,
    /// The one with the most free space for its cost, times the sum of the levels of its tables: GearDB's paper, equation 1. A table of a high level lives long.
    CostBenefit,
}

/// How zones are cleaned.
#[derive(Clone, Copy, Debug)]
pub struct Cleaning {
    /// Which zone.
    pub victim: Victim,
    /// Zones are cleaned while fewer than these are free.
    pub low: u32,
}

/// Zones that gain less are not cleaned, in percent of their bytes.
const LEAST: u64 = 3;

/// What cleaning did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cleaned {
    /// Bytes that were read, and written.
    pub bytes: u64,
    /// Moves of the head.
    pub seeks: u64,
    /// Zones that were reset.
    pub resets: u64,
}

/// Zones that are written one after the other. A table may lie in several.
pub(super) struct Log {
    cleaning: Cleaning,
    zone: u64,
    /// Live bytes of each zone that is not free.
    live: BTreeMap<u32, u64>,
    /// The zone that is written, and its room.
    open: Option<(u32, u64)>,
    /// Where each table lies: zones, and bytes there.
    tables: BTreeMap<u64, Vec<(u32, u64)>>,
}

impl Log {
    /// An empty one, with zones of so many bytes.
    pub fn new(cleaning: Cleaning, zone: u64) -> Log {
        Log { cleaning, zone, live: BTreeMap::new(), open: None, tables: BTreeMap::new() }
    }

    /// Appends bytes of a table.
    pub fn append(&mut self, free: &mut Vec<u32>, table: u64, mut bytes: u64) -> Result<(), String> {
        while bytes > 0 {
            let (zone, room) = match self.open {
                Some((zone, room)) if room > 0 => (zone, room),
                _ => (free.pop().ok_or("no free zone")?, self.zone),
            };
            let now = bytes.min(room);
            self.open = Some((zone, room - now));
            *self.live.entry(zone).or_default() += now;
            self.tables.entry(table).or_default().push((zone, now));
            bytes -= now;
        }
        Ok(())
    }

    /// A table is gone. Returns how many zones were reset.
    pub fn remove(&mut self, free: &mut Vec<u32>, table: u64) -> u64 {
        let pieces = self.tables.remove(&table).unwrap_or_default();
        for (zone, bytes) in &pieces {
            if let Some(live) = self.live.get_mut(zone) {
                *live -= bytes;
            }
        }
        pieces.into_iter().map(|(zone, _)| u64::from(self.release(free, zone))).sum()
    }

    fn is_written(&self, zone: u32) -> bool {
        self.open.is_some_and(|(open, room)| open == zone && room > 0)
    }

    fn release(&mut self, free: &mut Vec<u32>, zone: u32) -> bool {
        let empty = !self.is_written(zone) && self.live.get(&zone) == Some(&0);
        if empty {
            self.live.remove(&zone);
            free.push(zone);
        }
        empty
    }

    /// Cleans zones until enough are free, or none gains enough. `level` is that of a table.
    pub fn clean(&mut self, free: &mut Vec<u32>, level: impl Fn(u64) -> u64) -> Result<Cleaned, String> {
        let mut all = Cleaned::default();
        while free.len() < self.cleaning.low as usize {
            let Some(zone) = self.victim(&level) else { break };
            let mut pieces = Vec::new();
            for (table, of) in &mut self.tables {
                of.retain(|(at, bytes)| {
                    if *at == zone {
                        pieces.push((*table, *bytes));
                    }
                    *at != zone
                });
            }
            self.live.insert(zone, 0);
            // One move back to where is written.
            all.seeks += pieces.len() as u64 + 1;
            for (table, bytes) in pieces {
                all.bytes += bytes;
                self.append(free, table, bytes)?;
            }
            all.resets += u64::from(self.release(free, zone));
        }
        Ok(all)
    }

    fn victim(&self, level: impl Fn(u64) -> u64) -> Option<u32> {
        let most = self.zone - self.zone * LEAST / 100;
        let gains = self.live.iter().filter(|(zone, live)| !self.is_written(**zone) && **live <= most);
        let least = gains.clone().min_by_key(|(_, live)| **live)?;
        // All of a zone may have died while it was written.
        if self.cleaning.victim == Victim::Greedy || *least.1 == 0 {
            return Some(*least.0);
        }
        let mut ages: BTreeMap<u32, u64> = BTreeMap::new();
        for (table, pieces) in &self.tables {
            pieces.iter().for_each(|(zone, _)| *ages.entry(*zone).or_default() += level(*table));
        }
        let benefit = |zone: &u32, live: u64| {
            let used = live as f64 / self.zone as f64;
            (1.0 - used) * ages.get(zone).copied().unwrap_or(0) as f64 / (1.0 + used)
        };
        // Of equal ones the one with the fewest live bytes.
        let better =
            |a: &(&u32, &u64), b: &(&u32, &u64)| benefit(a.0, *a.1).total_cmp(&benefit(b.0, *b.1)).then(b.1.cmp(a.1));
        gains.max_by(better).map(|(zone, _)| *zone)
    }

    /// Live bytes of each zone that is not free.
    pub fn live(&self) -> impl Iterator<Item = u64> {
        self.live.values().copied()
    }

    /// Whether tables and zones agree, and tables are as large as that; the error says where they do not.
    pub fn check(&self, free: &[u32]) -> Result<(), String> {
        let mut live: BTreeMap<u32, u64> = self.live.keys().map(|zone| (*zone, 0)).collect();
        for (zone, bytes) in self.tables.values().flatten() {
            *live.get_mut(zone).ok_or_else(|| format!("a table lies in zone {zone}, which is free"))? += bytes;
        }
        if live != self.live {
            return Err(format!("zones have {:?} live bytes, and tables {live:?}", self.live));
        }
        free.iter()
            .find(|zone| live.contains_key(zone))
            .map_or(Ok(()), |zone| Err(format!("zone {zone} is used twice")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three zones of 100 bytes that are full, with 90, 40 and 60 live bytes, the last of level 5; one more is written.
    fn log(victim: Victim) -> (Log, Vec<u32>) {
        let (mut log, mut free) = (Log::new(Cleaning { victim, low: 2 }, 100), vec![4, 3, 2, 1, 0]);
        for (table, bytes) in [(1, 90), (2, 10), (3, 40), (4, 60), (5, 60), (6, 40), (7, 10)] {
            log.append(&mut free, table, bytes).unwrap();
        }
        for gone in [2, 4, 6] {
            assert_eq!(log.remove(&mut free, gone), 0);
        }
        log.check(&free).unwrap();
        (log, free)
    }

    fn level(table: u64) -> u64 {
        if table == 5 { 5 } else { 1 }
    }

    #[test]
    fn what_is_cleaned_depends_on_levels_with_cost_benefit_only() {
        for (victim, moved) in [(Victim::Greedy, 40), (Victim::CostBenefit, 60)] {
            let (mut log, mut free) = log(victim);
            let cleaned = log.clean(&mut free, level).unwrap();
            log.check(&free).unwrap();
            assert_eq!((cleaned.bytes, cleaned.resets, free.len()), (moved, 1, 2), "{victim:?}");
            assert_eq!(log.live().sum::<u64>(), 200);
        }
    }

    #[test]
    fn a_table_may_lie_in_two_zones_and_zones_that_gain_nothing_stay() {
        let (mut log, mut free) = (Log::new(Cleaning { victim: Victim::Greedy, low: 3 }, 100), vec![2, 1, 0]);
        log.append(&mut free, 1, 98).unwrap();
        log.append(&mut free, 2, 100).unwrap();
        assert_eq!(log.remove(&mut free, 1), 0);
        // Two bytes of the other table are moved.
        let cleaned = log.clean(&mut free, |_| 0).unwrap();
        assert_eq!((cleaned.bytes, cleaned.resets), (2, 1));
        assert_eq!(free, [2, 0]);
        log.check(&free).unwrap();
        let full = log.append(&mut free, 3, 300).unwrap_err();
        assert!(full.contains("no free zone"), "{full}");
    }
}
