//! A recorded workload once more, on a drive of other numbers: a *closed loop*. A trace has no threads, but it has the moment at
//! which the drive got each command and the one at which it was complete. What a host does next hangs on what it was told last, so a
//! command is taken to follow the latest completion before its arrival, after the same pause. A drive that is faster then
//! gets its commands sooner, as many at once as the recorded one had, and what the host thought in between stays as long as it was.
//!
//! On the recorded drive's own numbers this gives the recorded arrivals, and so the recorded times, but for what the drive had in its
//! cache before. What it cannot know is what the engine above would have done otherwise: it does the same in the same order.

use super::clock::TimeStats;
use super::engine::{Engine, Ticket};
use super::ledger::Ledger;
use super::mechanics::Ns;
use super::replay::Zones;
use crate::config::Config;
use crate::trace::{TimedEntry, TraceEntry};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// No command: nobody's predecessor, or the last of a list.
const NONE: usize = usize::MAX;

/// A command whose arrival is known.
#[derive(Clone, Copy, PartialEq)]
struct Due {
    arrival: Ns,
    index: usize,
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        self.arrival.total_cmp(&other.arrival).then(self.index.cmp(&other.index))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A recorded workload: what follows what, as lists of those that wait for a command, in two arrays.
pub struct Recording {
    /// In the order of arrival, with arrival and completion.
    commands: Vec<(TraceEntry, Ns, Ns)>,
    /// The pause behind the predecessor, or the arrival where there is none.
    pause: Vec<Ns>,
    /// The first that follows each, and the next that follows the same.
    first: Vec<usize>,
    next: Vec<usize>,
    roots: Vec<usize>,
    /// A drive-managed drive begins as after a long life, with so many extents in its persistent cache.
    preconditioned: Option<usize>,
}

impl Recording {
    /// The commands of a trace, but for those that failed or have no times.
    pub fn new(trace: &[TimedEntry]) -> Recording {
        let timed = trace.iter().filter(|timed| timed.entry.result == "ok");
        let timed = timed.filter_map(|timed| Some((timed.entry.clone(), timed.began? * 1e9, timed.ended? * 1e9)));
        let mut commands: Vec<_> = timed.collect();
        commands.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.sequence.cmp(&b.0.sequence)));
        let mut by_end: Vec<usize> = (0..commands.len()).collect();
        by_end.sort_by(|a, b| commands[*a].2.total_cmp(&commands[*b].2).then(a.cmp(b)));
        let begin = commands.first().map_or(0.0, |(_, began, _)| *began);
        let mut order = Recording {
            pause: Vec::with_capacity(commands.len()),
            first: vec![NONE; commands.len()],
            next: vec![NONE; commands.len()],
            roots: Vec::new(),
            preconditioned: None,
            commands,
        };
        let mut ended = 0;
        for index in 0..order.commands.len() {
            let began = order.commands[index].1;
            while by_end.get(ended).is_some_and(|other| order.commands[*other].2 <= began) {
                ended += 1;
            }
            // One that took no time at all may have ended when this one came, and still come later.
            let before = by_end[..ended].iter().rev().copied().find(|other| *other < index);
            match before {
                Some(before) => {
                    order.pause.push(began - order.commands[before].2);
                    order.next[index] = std::mem::replace(&mut order.first[before], index);
                }
                None => {
                    order.pause.push(began - begin);
                    order.roots.push(index);
                }
            }
        }
        order
    }

    /// On a drive-managed drive that begins as after a long life, with so many extents in its persistent cache
    /// ([`Emulator::precondition`](crate::Emulator::precondition)); `None`: it is new.
    #[must_use]
    pub fn preconditioned(self, preconditioned: Option<usize>) -> Recording {
        Recording { preconditioned, ..self }
    }

    /// How many commands there are from the sequence number `from` on.
    pub fn commands(&self, from: u64) -> usize {
        self.commands.iter().filter(|(entry, ..)| entry.sequence >= from).count()
    }

    /// The drive's time for the commands from the sequence number `from` on, on a drive of `config` at rest at its outer edge; those
    /// before it are replayed and not counted.
    ///
    /// The error is a sentence about the configuration.
    pub fn replay(&self, config: &Config, from: u64) -> Result<TimeStats, String> {
        let Some(model) = config.model else {
            return Err(format!("the profile {:?} has no parameters of time; take one that has", config.profile));
        };
        let params = model.effective();
        let plain = config.conventional >= config.zones();
        let conventional = if plain { 0 } else { u64::from(config.conventional) * config.zone_size };
        let mut engine = Engine::new(&params, config.capacity, conventional, config.cache_bytes, config.write_cache);
        if let (Some(extents), Some(translation)) = (self.preconditioned, engine.translation_mut()) {
            translation.precondition(extents);
        }
        let sequential_from = if plain { u64::MAX } else { conventional };
        let mut zones = Zones::new(&params, (config.capacity, config.zone_size), sequential_from, config.max_open);
        let mut ledger = Ledger::new();
        let due = |index: usize, after: Ns| Reverse(Due { arrival: after + self.pause[index], index });
        let mut heap: BinaryHeap<Reverse<Due>> = self.roots.iter().map(|index| due(*index, 0.0)).collect();
        let mut flying: Vec<(Ticket, usize)> = Vec::new();
        let mut counted = false;
        loop {
            // What is complete lets others come.
            flying.retain(|(ticket, index)| {
                let Some(end) = engine.completion(*ticket) else { return true };
                let mut follows = self.first[*index];
                while follows != NONE {
                    heap.push(due(follows, end));
                    follows = self.next[follows];
                }
                false
            });
            let next = heap.peek().map_or(f64::INFINITY, |Reverse(due)| due.arrival);
            // The drive does what it begins before the next one comes, which may let another come sooner.
            if !flying.is_empty() && engine.step(next, &mut ledger) {
                continue;
            }
            let Some(Reverse(Due { arrival, index })) = heap.pop() else { break };
            let entry = &self.commands[index].0;
            if !counted && entry.sequence >= from {
                counted = true;
                engine.run(arrival, &mut ledger);
                ledger.publish(&engine);
                ledger.reset();
            }
            let (asked, _) = zones.asked(entry);
            flying.push((engine.submit(asked.arriving(arrival), &mut ledger), index));
        }
        engine.run(f64::INFINITY, &mut ledger);
        ledger.publish(&engine);
        Ok(ledger.stats())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use crate::config::Overrides;
    use crate::time::Mechanics;
    use crate::time::clock::Asked;
    use crate::time::engine::What;
    use crate::trace::Op;
    use imbrex_device::Cause;

    fn config(name: &str) -> Config {
        let overrides = Overrides { scale: Some(64), mechanics: Mechanics::Scaled, ..Overrides::default() };
        Config::new(&Profile::named(name).unwrap(), &overrides)
    }

    struct Host {
        commands: u64,
        due: Option<Ns>,
        waits: Option<(Ticket, Asked, Ns)>,
    }

    /// Four hosts that read and write, each its next command 50 us after its last, twice with a rest between: what a drive would have
    /// recorded, and its time.
    fn recorded(config: &Config) -> (Vec<TimedEntry>, TimeStats) {
        let params = config.model.unwrap().effective();
        let mut engine = Engine::new(&params, config.capacity, 0, config.cache_bytes, true);
        let (mut ledger, mut trace, mut now) = (Ledger::new(), Vec::new(), 0.0_f64);
        for half in 0..2_u64 {
            let (first, last) = (half * 125, (half + 1) * 125);
            let mut hosts: Vec<Host> = (0..4).map(|_| Host { commands: first, due: Some(now), waits: None }).collect();
            let mut whole = Vec::new();
            while hosts.iter().any(|host| host.commands < last) {
                for host in &mut hosts {
                    let Some((ticket, asked, arrival)) = host.waits else { continue };
                    let Some(end) = engine.completion(ticket) else { continue };
                    whole.push((asked, arrival, end));
                    let commands = host.commands + 1;
                    *host = Host { commands, due: (commands < last).then_some(end + 50_000.0), waits: None };
                    now = now.max(end);
                }
                let next = hosts.iter().enumerate().filter_map(|(number, host)| Some((number, host.due?)));
                let next = next.min_by(|a, b| a.1.total_cmp(&b.1));
                if engine.step(next.map_or(f64::INFINITY, |(_, due)| due), &mut ledger) {
                    continue;
                }
                let Some((number, arrival)) = next else { continue };
                let i = hosts[number].commands;
                let place = (number as u64 * 7919 + i * 104_729) % 50_000 * (256 << 10);
                let (what, at, cause) = match (number, i % 50) {
                    (0, 49) => (What::Flush, 0, Cause::Flush),
                    (0, _) => (What::Write, i * (16 << 10), Cause::Flush),
                    _ => (What::Read, place, Cause::UserRead),
                };
                let len = if what == What::Flush { 0 } else { 16 << 10 };
                let asked = Asked { what, at, len, cause, zone_time: 0.0 };
                let ticket = engine.submit(asked.arriving(arrival), &mut ledger);
                hosts[number] = Host { commands: i, due: None, waits: Some((ticket, asked, arrival)) };
            }
            // They are recorded as they end.
            whole.sort_by(|a, b| a.2.total_cmp(&b.2));
            for (Asked { what, at, len, cause, .. }, arrival, end) in whole {
                let op = match what {
                    What::Read => Op::Read,
                    What::Write => Op::Write,
                    _ => Op::Flush,
                };
                let (sequence, cause) = (trace.len() as u64, cause.name());
                let entry = TraceEntry {
                    sequence,
                    op,
                    cause,
                    priority: "normal",
                    zone: 0,
                    offset: at,
                    len: len as u32,
                    result: "ok",
                };
                trace.push(TimedEntry { entry, began: Some(arrival / 1e9), ended: Some(end / 1e9) });
            }
            now += 1e6;
        }
        engine.run(f64::INFINITY, &mut ledger);
        ledger.publish(&engine);
        (trace, ledger.stats())
    }

    #[test]
    fn on_the_same_drive_it_takes_the_same_time_and_on_a_slower_one_longer() {
        let config = config("hitachi-hua72303");
        let (trace, time) = recorded(&config);
        assert_eq!(trace.len(), 1000);
        let again = Recording::new(&trace).replay(&config, 0).unwrap();
        let commands = |time: &TimeStats| time.latency.values().map(|latency| latency.commands).sum::<u64>();
        assert_eq!(commands(&again), commands(&time));
        assert!((again.total.busy() / time.total.busy() - 1.0).abs() < 0.01, "{again:?} {time:?}");
        let mut slow = config.clone();
        slow.model.as_mut().unwrap().params.rotation_rpm /= 2.0;
        let slow = Recording::new(&trace).replay(&slow, 0).unwrap();
        assert!(slow.total.rotation > 1.6 * again.total.rotation, "{slow:?}");
        // A drive-managed one that has a long life behind it has something to clean.
        let managed = self::config("seagate-st8000as0022");
        let [aged, fresh] =
            [Some(usize::MAX), None].map(|old| Recording::new(&trace).preconditioned(old).replay(&managed, 0).unwrap());
        assert!(aged.total.cleaning > 0.0 && fresh.total.cleaning == 0.0, "{aged:?} {fresh:?}");
        // A closed loop: who waits longer asks later.
        assert!(slow.elapsed > again.elapsed * 1.1, "{} {}", slow.elapsed, again.elapsed);
        // Half of them is about half of it.
        let half = Recording::new(&trace).replay(&config, 500).unwrap();
        assert_eq!(commands(&half), 500);
        assert!((0.4..0.6).contains(&(half.total.busy() / again.total.busy())), "{half:?}");
        assert!(Recording::new(&trace).replay(&Config::tiny(), 0).unwrap_err().contains("no parameters"));
        assert_eq!(Recording::new(&[]).replay(&config, 0).unwrap().elapsed, 0.0);
    }
}
