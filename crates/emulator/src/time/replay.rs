//! A recorded trace against any drive's time: what would it have taken?

use super::clock::{Asked, TimeStats};
use super::engine::{Engine, Ticket, What};
use super::ledger::Ledger;
use super::mechanics::Ns;
use super::params::Params;
use crate::profile::Profile;
use crate::trace::{Op, TraceEntry};
use imbrex_device::{Cause, ZoneOp};
use std::collections::VecDeque;

/// How a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Commands that the host has at the drive at once; a zone never has two writes, and a flush waits for what is before it.
    pub depth: usize,
    /// Whether the drive's write cache is on.
    pub write_cache: bool,
}

/// The zones of a drive as far as they cost time: which ones it has open, and what a command of a trace asks of it.
pub(super) struct Zones {
    params: Params,
    capacity: u64,
    zone_size: u64,
    /// Up to here nothing is sequential; all of it on a drive without zones.
    conventional: u64,
    max_open: usize,
    /// Zones that the drive has open, oldest first.
    open: VecDeque<u64>,
}

impl Zones {
    pub(super) fn new(
        params: &Params,
        (capacity, zone_size): (u64, u64),
        conventional: u64,
        max_open: Option<u32>,
    ) -> Zones {
        let max_open = max_open.map_or(usize::MAX, |n| n as usize);
        Zones { params: *params, capacity, zone_size, conventional, max_open, open: VecDeque::new() }
    }

    /// The next command, and the zone that it writes to. An address behind the drive's end is taken modulo its size.
    pub(super) fn asked(&mut self, entry: &TraceEntry) -> (Asked, Option<u64>) {
        let len = u64::from(entry.len).min(self.capacity);
        let at = (entry.offset % self.capacity.max(1)).min(self.capacity - len);
        let cause = Cause::ALL.iter().copied().find(|cause| cause.name() == entry.cause).unwrap_or(Cause::Other);
        let zone = at / self.zone_size.max(1);
        let sequential = at >= self.conventional;
        let asked = |what, len, zone_ms: f64| Asked { what, at, len, cause, zone_time: zone_ms * 1e6 };
        let held = self.open.contains(&zone);
        match entry.op {
            Op::Read => (asked(What::Read, len, 0.0), None),
            Op::Flush => (asked(What::Flush, 0, 0.0), None),
            Op::Write => {
                let mut zone_ms = 0.0;
                if sequential && !held {
                    let closed = self.makes_room();
                    zone_ms = self.params.open_ms(closed);
                    self.open.push_back(zone);
                }
                if sequential && (at + len).is_multiple_of(self.zone_size) {
                    self.open.retain(|open| *open != zone);
                }
                (asked(What::Write, len, zone_ms), Some(zone))
            }
            op => {
                let (op, stays) = match op {
                    Op::Open => (ZoneOp::Open, true),
                    Op::Close => (ZoneOp::Close, false),
                    Op::Finish => (ZoneOp::Finish, false),
                    _ => (ZoneOp::Reset, false),
                };
                let closed = stays && !held && self.makes_room();
                if stays != held {
                    self.open.retain(|open| *open != zone);
                    self.open.extend(stays.then_some(zone));
                }
                // A drive without zones has nothing to do.
                let ms = if sequential { self.params.zone_op_ms(op, closed) } else { 0.0 };
                let what = What::Zone { drops: op == ZoneOp::Reset && sequential };
                (Asked { at: zone * self.zone_size, ..asked(what, self.zone_size, ms) }, Some(zone))
            }
        }
    }

    /// Whether the drive had to close a zone for another one.
    fn makes_room(&mut self) -> bool {
        self.open.len() >= self.max_open && self.open.pop_front().is_some()
    }
}

struct Run {
    engine: Engine,
    ledger: Ledger,
    now: Ns,
    /// The commands at the drive, and the zone of those that write.
    flying: Vec<(Ticket, Option<u64>)>,
}

impl Run {
    /// Until one more command is complete.
    fn wait(&mut self) {
        let Run { engine, ledger, now, flying } = self;
        loop {
            let before = flying.len();
            flying.retain(|(ticket, _)| {
                let end = engine.completion(*ticket);
                *now = now.max(end.unwrap_or(0.0));
                end.is_none()
            });
            if flying.len() < before || flying.is_empty() || !engine.step(f64::INFINITY, ledger) {
                return;
            }
        }
    }

    fn submit(&mut self, asked: Asked, writes: Option<u64>) {
        let ticket = self.engine.submit(asked.arriving(self.now), &mut self.ledger);
        self.flying.push((ticket, writes));
    }
}

/// Replays the commands of `trace` that succeeded, each as soon as there is room for it, on a drive of `profile` at rest at its
/// outer edge, with a flush behind the last one. Addresses behind the drive's end are taken modulo its size.
///
/// The error is a sentence about the profile.
pub fn replay(profile: &Profile, trace: &[TraceEntry], how: Replay) -> Result<TimeStats, String> {
    let Some(params) = profile.time()? else {
        return Err(format!(
            "the profile {:?} has no parameters of time; take one that has, or write them",
            profile.name
        ));
    };
    let plain = profile.kind.is_plain();
    let conventional = if plain { 0 } else { u64::from(profile.conventional_zones) * profile.zone_size };
    let engine = Engine::new(&params, profile.capacity, conventional, profile.write_cache_bytes, how.write_cache);
    let mut run = Run { engine, ledger: Ledger::new(), now: 0.0, flying: Vec::new() };
    let sequential_from = if plain { u64::MAX } else { conventional };
    let mut zones = Zones::new(&params, (profile.capacity, profile.zone_size), sequential_from, profile.max_open);
    for entry in trace.iter().filter(|entry| entry.result == "ok") {
        let (asked, writes) = zones.asked(entry);
        let barrier = asked.what == What::Flush;
        while !run.flying.is_empty()
            && (barrier
                || run.flying.len() >= how.depth.max(1)
                || writes.is_some_and(|zone| run.flying.iter().any(|(_, other)| *other == Some(zone))))
        {
            run.wait();
        }
        run.submit(asked, writes);
    }
    while !run.flying.is_empty() {
        run.wait();
    }
    run.submit(Asked { what: What::Flush, at: 0, len: 0, cause: Cause::Other, zone_time: 0.0 }, None);
    run.wait();
    run.ledger.publish(&run.engine);
    Ok(run.ledger.stats())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(op: Op, offset: u64, len: u32) -> TraceEntry {
        TraceEntry { sequence: 0, op, cause: "compaction", priority: "normal", zone: 0, offset, len, result: "ok" }
    }

    const ONE: Replay = Replay { depth: 1, write_cache: true };

    #[test]
    fn a_stream_takes_the_time_of_its_bandwidth_and_of_its_zones() {
        let zones = 4;
        let trace: Vec<TraceEntry> =
            (0..zones * 256).map(|i| entry(Op::Write, (900 << 28) + (i << 20), 1 << 20)).collect();
        let of = |name| replay(&Profile::named(name).unwrap(), &trace, ONE).unwrap();
        let hgst = of("hgst-hsh721414al");
        assert!((hgst.elapsed / (zones as f64 * 256.0 / 236.0) - 1.0).abs() < 0.02, "{hgst:?}");
        let seagate = of("seagate-st20000nm001j");
        assert!((seagate.total.zone_ops - 0.02 * zones as f64).abs() < 1e-6, "{seagate:?}");
        assert_eq!(seagate.latency["compaction"].commands, zones * 256);
        // What failed on the recorded drive is left out.
        let failed: Vec<_> = trace.iter().map(|entry| TraceEntry { result: "io", ..entry.clone() }).collect();
        assert!(replay(&Profile::named("hitachi-hua72303").unwrap(), &failed, ONE).unwrap().elapsed < 1e-3);
    }

    #[test]
    fn deeper_is_faster_and_a_drive_without_time_is_refused() {
        let reads: Vec<_> = (0..500).map(|i| entry(Op::Read, (i * 7919 % 500) << 32, 4096)).collect();
        let cmr = Profile::named("hitachi-hua72303").unwrap();
        let at = |depth| replay(&cmr, &reads, Replay { depth, write_cache: true }).unwrap().elapsed;
        assert!(at(16) < 0.7 * at(1), "{} {}", at(16), at(1));
        assert!(replay(&Profile::named("tiny").unwrap(), &reads, ONE).unwrap_err().contains("no parameters"));
    }

    #[test]
    fn zone_operations_and_the_drives_own_closes_cost() {
        let mut profile = Profile::named("seagate-st20000nm001j").unwrap();
        profile.max_open = Some(2);
        let at = |zone: u64| (900 + zone) << 28;
        let writes = [1, 2, 3, 1].map(|zone| entry(Op::Write, at(zone), 4096));
        let all =
            writes.into_iter().chain([entry(Op::Reset, at(1), 0), entry(Op::Finish, at(9), 0), entry(Op::Reset, 0, 0)]);
        let stats = replay(&profile, &all.collect::<Vec<_>>(), ONE).unwrap();
        // Four opens, two closes by the drive, a reset, a finish; a conventional zone has none.
        let expected = 4.0 * 0.020 + 2.0 * 0.024 + 0.022 + 0.024;
        assert!((stats.total.zone_ops - expected).abs() < 1e-9, "{} {expected}", stats.total.zone_ops);
    }
}
