//! What the machine must do, told by times that can be worked out by hand.

use super::*;
use crate::Profile;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MIB: u64 = 1 << 20;
const MS: f64 = 1e6;

impl Engine {
    /// Works until the command's completion is decided, whatever comes later.
    fn finish(&mut self, ticket: Ticket, tally: &mut impl Tally) -> Ns {
        loop {
            match self.completion(ticket) {
                Some(end) => return end,
                None => assert!(self.step(f64::INFINITY, tally), "a command that nothing can complete"),
            }
        }
    }

    /// Whether nothing is left to do for the head.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.dirty.is_empty() && self.blocked.is_empty()
    }
}

/// Everything booked, to be added up.
#[derive(Default)]
struct Sums {
    kinds: [f64; 5],
    idle: f64,
    latencies: Vec<f64>,
    /// To write, and to read.
    seeks: [u64; 2],
}

impl Sums {
    fn all(&self) -> f64 {
        self.kinds.iter().sum::<f64>() + self.idle
    }
}

impl Tally for Sums {
    fn spent(&mut self, _: u8, kind: Kind, ns: f64) {
        assert!(ns >= 0.0 && ns.is_finite(), "{kind:?} {ns}");
        self.kinds[kind as usize] += ns;
    }
    fn sought(&mut self, _: u8, reads: bool) {
        self.seeks[usize::from(reads)] += 1;
    }
    fn idle(&mut self, ns: f64) {
        assert!(ns >= -1e-3, "idle {ns}");
        self.idle += ns;
    }
    fn took(&mut self, _: u8, ns: f64) {
        assert!(ns >= 0.0);
        self.latencies.push(ns);
    }
}

/// A drive and a host that always has `depth` commands at it.
struct Host {
    engine: Engine,
    sums: Sums,
    now: f64,
    size: u64,
    first: u64,
    cause: u8,
}

fn host(name: &str, cache_on: bool) -> Host {
    let profile = Profile::named(name).unwrap();
    host_with(&profile, profile.time().unwrap().unwrap(), cache_on)
}

fn host_with(profile: &Profile, params: Params, cache_on: bool) -> Host {
    let conventional =
        if profile.kind.is_plain() { 0 } else { u64::from(profile.conventional_zones) * profile.zone_size };
    let engine = Engine::new(&params, profile.capacity, conventional, profile.write_cache_bytes, cache_on);
    Host { engine, sums: Sums::default(), now: 0.0, size: profile.capacity, first: conventional, cause: 0 }
}

impl Host {
    fn submit(&mut self, what: What, at: u64, len: u64) -> Ticket {
        let command = Command { what, at, len, cause: self.cause, zone_time: 0.0, arrival: self.now };
        self.engine.submit(command, &mut self.sums)
    }

    /// One command after the other: without time between them.
    fn does(&mut self, what: What, at: u64, len: u64) -> f64 {
        let ticket = self.submit(what, at, len);
        let before = self.now;
        self.now = self.engine.finish(ticket, &mut self.sums);
        assert!(self.now >= before);
        self.now - before
    }

    fn thinks(&mut self, time: f64) {
        self.now += time;
    }

    /// MiB/s of commands of 1 MiB from `at`, the flush at the end contained.
    fn streams(&mut self, what: What, at: u64, commands: u64) -> f64 {
        let began = self.now;
        for i in 0..commands {
            self.does(what, at + i * MIB, MIB);
        }
        self.does(What::Flush, 0, 0);
        commands as f64 * 1e9 / (self.now - began)
    }

    fn random_reads(&mut self, span: u64, depth: usize, commands: usize) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let began = self.now;
        let mut flying: Vec<Ticket> = Vec::new();
        let mut ended = 0;
        while ended < commands {
            while flying.len() < depth {
                flying.push(self.submit(What::Read, rng.random_range(0..span / 4096) * 4096, 4096));
            }
            let done: Vec<(usize, f64)> = flying
                .iter()
                .enumerate()
                .filter_map(|(i, ticket)| Some((i, self.engine.completion(*ticket)?)))
                .collect();
            if done.is_empty() {
                self.engine.step(f64::INFINITY, &mut self.sums);
            }
            for (i, end) in done.into_iter().rev() {
                flying.remove(i);
                self.now = self.now.max(end);
                ended += 1;
            }
        }
        ended as f64 * 1e9 / (self.now - began)
    }
}

#[track_caller]
fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a / b - 1.0).abs() < tolerance, "{a} is not {b} within {tolerance}");
}

const HGST: &str = "hgst-hsh721414al";
const CMR: &str = "hitachi-hua72303";
const SMRSTORE: &str = "seagate-st20000nm001j";

#[test]
fn streams_run_at_the_bandwidth_of_their_place() {
    for (name, outer) in [(HGST, 237.0), (CMR, 160.0), ("seagate-st8000as0022", 197.0)] {
        for (what, cache) in [(What::Read, true), (What::Write, true)] {
            let mut host = host(name, cache);
            let at = host.first;
            close(host.streams(what, at, 4096), outer, 0.02);
            close(host.sums.kinds[Kind::Transfer as usize], host.sums.all(), 0.02);
        }
    }
}

#[test]
fn a_synchronous_write_without_cache_waits_for_a_turn() {
    let mut host = host(HGST, false);
    let at = host.first;
    host.does(What::Write, at, 4096);
    for i in 1..100 {
        close(host.does(What::Write, at + i * 4096, 4096), 60e9 / 7200.0, 0.02);
    }
}

#[test]
fn a_flush_costs_what_it_drains() {
    let mut host = host(HGST, true);
    let at = host.first;
    close(host.does(What::Flush, 0, 0), 50e3, 0.01);
    host.does(What::Write, at, 4096);
    host.does(What::Flush, 0, 0);
    for i in 1..50 {
        assert!(host.does(What::Write, at + i * 4096, 4096) < 0.1 * MS, "the cache takes it");
        close(host.does(What::Flush, 0, 0), 60e9 / 7200.0, 0.03);
    }
}

#[test]
fn random_reads_are_those_measured() {
    close(host(SMRSTORE, true).random_reads(6_000_000_000_000, 1, 4000), 121.0, 0.05);
    close(host("seagate-st16000nm001g", true).random_reads(6_000_000_000_000, 1, 4000), 113.0, 0.05);
}

#[test]
fn seeks_are_commands_for_which_the_head_left_its_track() {
    let mut host = host(CMR, false);
    // There first; what follows is where the head is.
    (0..100).for_each(|i| _ = host.does(What::Write, (1 << 40) + i * 4096, 4096));
    assert_eq!(host.sums.seeks, [1, 0]);
    (0..50).for_each(|i| _ = host.does(What::Read, (i % 2) << 40 | i << 30, 4096));
    assert_eq!(host.sums.seeks, [1, 50]);
}

#[test]
fn a_deep_queue_finds_nearer_ones() {
    let (one, deep) = (
        host(CMR, true).random_reads(3_000_000_000_000, 1, 2000),
        host(CMR, true).random_reads(3_000_000_000_000, 32, 2000),
    );
    assert!(deep > 2.0 * one, "{deep} of {one}");
}

#[test]
fn the_cache_coalesces_and_reorders() {
    let writes: Vec<u64> = {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        (0..1000).map(|_| rng.random_range(0..700_000_000_u64) * 4096).collect()
    };
    let time = |cache| {
        let mut host = host(CMR, cache);
        writes.iter().for_each(|at| _ = host.does(What::Write, *at, 4096));
        host.does(What::Flush, 0, 0);
        host.now
    };
    assert!(time(false) > 1.8 * time(true), "{} and {}", time(false), time(true));
    // The same block a thousand times is written once.
    let mut host = host(CMR, true);
    (0..1000).for_each(|_| _ = host.does(What::Write, 1 << 40, 4096));
    host.does(What::Flush, 0, 0);
    assert!(host.now < 120.0 * MS, "{}", host.now);
}

#[test]
fn a_full_cache_makes_writers_wait_and_reads_pass() {
    let mut host = host(HGST, true);
    let at = host.first;
    (0..1000).for_each(|i| _ = host.does(What::Write, at + i * MIB, MIB));
    let (began, mut longest) = (host.now, 0.0);
    (1000..2000).for_each(|i| longest = host.does(What::Write, at + i * MIB, MIB).max(longest));
    close((host.now - began) / 1e9, 1000.0 / 237.0, 0.02);
    assert!(longest > 4.0 * MS, "{longest}");
    assert!(host.does(What::Read, host.size / 2, 4096) < 60.0 * MS);
}

#[test]
fn zone_operations_take_their_time_and_a_reset_drops_the_cache() {
    let mut host = host(SMRSTORE, true);
    let at = host.first;
    let zone = |host: &mut Host, drops, ms| {
        let command =
            Command { what: What::Zone { drops }, at, len: 256 * MIB, cause: 0, zone_time: ms * MS, arrival: host.now };
        let ticket = host.engine.submit(command, &mut host.sums);
        host.now = host.engine.finish(ticket, &mut host.sums);
    };
    zone(&mut host, false, 20.0);
    close(host.now, 20.05 * MS, 0.001);
    (0..10).for_each(|i| _ = host.does(What::Write, at + i * MIB, MIB));
    zone(&mut host, true, 22.0);
    assert!(host.engine.dirty.is_empty() && host.engine.dirty_bytes == 0);
    close(host.does(What::Flush, 0, 0), 50e3, 0.01);
    // A write that opens its zone brings the time along.
    let command = Command { what: What::Write, at, len: 4096, cause: 0, zone_time: 20.0 * MS, arrival: host.now };
    let ticket = host.engine.submit(command, &mut host.sums);
    assert!(host.engine.finish(ticket, &mut host.sums) - host.now > 20.0 * MS);
    close(host.sums.kinds[Kind::ZoneOps as usize], 62.0 * MS, 1e-6);
}

#[test]
fn reads_ahead_follow_a_stream_and_end_with_it() {
    let mut host = host(CMR, true);
    host.does(What::Read, 1 << 40, 64 << 10);
    // What comes next is on its way already, after a pause too.
    host.thinks(5.0 * MS);
    assert!(host.does(What::Read, (1 << 40) + (64 << 10), 64 << 10) < 0.3 * MS);
    host.thinks(100.0 * MS);
    assert!(host.does(What::Read, (1 << 40) + (128 << 10), MIB) < 3.0 * MS);
    // Far behind the readahead the head has to go there.
    assert!(host.does(What::Read, (1 << 40) + 64 * MIB, 4096) > 0.5 * MS);
    // Written over is not remembered.
    host.does(What::Write, (1 << 40) + (64 << 10), 4096);
    host.does(What::Flush, 0, 0);
    host.does(What::Write, 0, 4096);
    host.does(What::Flush, 0, 0);
    assert!(host.does(What::Read, (1 << 40) + (64 << 10), 8192) > 1.0 * MS);
}

#[test]
fn a_drive_managed_drive_cleans_when_it_is_full_and_when_it_idles() {
    let profile = Profile::named("seagate-st8000as0022").unwrap();
    let mut params = profile.time().unwrap().unwrap();
    params.persistent_cache_extents = 2000.0;
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut host = host_with(&profile, params, false);
    let mut places = (0..6000).map(|_| rng.random_range(0..1_900_000_000_u64) * 4096);
    let began = host.now;
    (0..1900).for_each(|_| _ = host.does(What::Write, places.next().unwrap(), 4096));
    let fast = (host.now - began) / 1900.0;
    assert_eq!(host.sums.kinds[Kind::Cleaning as usize], 0.0);
    let began = host.now;
    (0..500).for_each(|_| _ = host.does(What::Write, places.next().unwrap(), 4096));
    let slow = (host.now - began) / 500.0;
    // A band of 30 MiB read and written.
    assert!(fast < 12.0 * MS && slow > 300.0 * MS, "{fast} {slow}");
    let before = host.engine.translation().unwrap().load().0;
    host.thinks(60_000.0 * MS);
    host.does(What::Read, 0, 4096);
    let after = host.engine.translation().unwrap().load().0;
    assert!(after + 100 < before, "{after} of {before}");
}

#[test]
fn time_is_booked_once_and_wholly() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for name in [HGST, CMR, "seagate-st8000as0022"] {
        let mut host = host(name, true);
        let mut flying = Vec::new();
        for _ in 0..20_000 {
            let at = rng.random_range(0..1000_u64) * 4 * MIB + rng.random_range(0..64) * 4096;
            let len = rng.random_range(1..=256) * 4096;
            let what = [What::Read, What::Write, What::Write, What::Flush][rng.random_range(0..4)];
            flying.push(host.submit(what, at, if what == What::Flush { 0 } else { len }));
            if rng.random_bool(0.3) {
                host.thinks(rng.random_range(0.0..30.0) * MS);
                host.engine.run(host.now, &mut host.sums);
            }
            if flying.len() > 16 {
                let ticket = flying.remove(0);
                host.now = host.now.max(host.engine.finish(ticket, &mut host.sums));
            }
        }
        for ticket in flying {
            host.engine.finish(ticket, &mut host.sums);
        }
        host.does(What::Flush, 0, 0);
        assert_eq!(host.sums.latencies.len(), 20_001);
        assert!(host.engine.is_idle());
        close(host.sums.all(), host.engine.free, 1e-6);
    }
}

#[test]
fn of_the_next_few_in_the_cache_the_one_that_comes_round_first_is_written() {
    let writes: Vec<u64> = {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        (0..4000).map(|_| rng.random_range(0..700_000_000_u64) * 4096).collect()
    };
    let a_second = |choice: f64| {
        let profile = Profile::named(CMR).unwrap();
        let params = Params { destage_choice: choice, ..profile.time().unwrap().unwrap() };
        let mut host = host_with(&profile, params, true);
        writes.iter().for_each(|at| _ = host.does(What::Write, *at, 4096));
        host.does(What::Flush, 0, 0);
        writes.len() as f64 * 1e9 / host.now
    };
    let rates = [1.0, 4.0, 16.0].map(a_second);
    println!("random 4 KiB writes a second with 1, 4 and 16 to choose from: {rates:?}");
    assert!(rates[1] > 1.5 * rates[0] && rates[2] > rates[1], "{rates:?}");
}

#[test]
fn what_follows_something_unwritten_is_not_written_before_it() {
    let profile = Profile::named(HGST).unwrap();
    let params = Params { destage_choice: 8.0, ..profile.time().unwrap().unwrap() };
    let mut host = host_with(&profile, params, true);
    // Pieces of one zone by two causes, so that the cache keeps them apart, in turn with pieces elsewhere.
    let zone = host.first + (1 << 40);
    for i in 0..64_u64 {
        host.cause = (i % 2) as u8;
        host.does(What::Write, zone + i * 4096, 4096);
        host.does(What::Write, host.first + (i << 33), 4096);
    }
    let mut written = zone;
    while host.engine.dirty_bytes > 0 {
        assert!(host.engine.step(f64::INFINITY, &mut host.sums));
        let in_zone = host.engine.dirty.range(zone..zone + 64 * 4096).next().map_or(zone + 64 * 4096, |(at, _)| *at);
        let left: u64 = host.engine.dirty.range(zone..zone + 64 * 4096).map(|(_, extent)| extent.len).sum();
        assert!(in_zone >= written && left == zone + 64 * 4096 - in_zone, "a hole behind {in_zone}");
        written = in_zone;
    }
}

#[test]
fn what_passes_between_host_and_drive_shares_one_way() {
    let mut host = host(HGST, true);
    let tickets: Vec<_> = (0..32).map(|i| host.submit(What::Write, host.first + (i << 28), MIB)).collect();
    let Host { engine, sums, .. } = &mut host;
    let ends: Vec<f64> = tickets.into_iter().map(|ticket| engine.finish(ticket, sums)).collect();
    close(ends[31] / 1e9, 32.0 / 550.0, 0.05);
}
