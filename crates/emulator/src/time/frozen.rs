//! What the model is made of, in a few digits, so that results can say what they were measured on.
//!
//! The formulas are fingerprinted by what they do: three drives of made-up numbers work through seeded commands, and every
//! completion, to the nanosecond, goes into a hash. So the code may be written anew, but not answer anything else. Profiles are
//! fingerprinted by their numbers. `docs/drive-model.md` has the log that a test compares with.

use super::engine::{Command, Engine, Ticket, What};
use super::mechanics::Ns;
use super::params::Params;
use super::tally::{Kind, Tally};
use crate::profile::Profile;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::OnceLock;

const MIB: u64 = 1 << 20;
/// Of each reference drive.
const CAPACITY: u64 = 8 << 30;
const COMMANDS: u64 = 6000;

/// Numbers of a drive that has everything; those of no profile, so that formulas and profiles change apart.
const ALL: Params = Params {
    bandwidth_outer_mib_s: 200.0,
    bandwidth_average_mib_s: 150.0,
    rotation_rpm: 7000.0,
    seek_settle_ms: 0.5,
    seek_root_ms: 11.0,
    seek_linear_ms: 3.0,
    overhead_us: 40.0,
    interface_mib_s: 500.0,
    queue_depth: 5.0,
    queue_patience_ms: 30.0,
    readahead_kib: 1024.0,
    readahead_segments: 4.0,
    destage_kib: 1024.0,
    destage_choice: 3.0,
    destage_after_idle_ms: 1.0,
    conventional_bandwidth_mib_s: 0.0,
    zone_open_ms: 0.0,
    zone_close_ms: 0.0,
    zone_finish_ms: 0.0,
    zone_reset_ms: 0.0,
    band_mib: 0.0,
    persistent_cache_mib: 0.0,
    persistent_cache_extents: 0.0,
    stream_kib: 0.0,
    streams: 0.0,
    clean_after_idle_ms: 0.0,
};

/// The reference drives: conventional, host-managed, drive-managed.
const DRIVES: [(Params, u64); 3] = [
    (ALL, 0),
    (
        Params {
            conventional_bandwidth_mib_s: 140.0,
            zone_open_ms: 2.0,
            zone_close_ms: 3.0,
            zone_finish_ms: 4.0,
            zone_reset_ms: 5.0,
            ..ALL
        },
        64 * MIB,
    ),
    (
        Params {
            band_mib: 16.0,
            persistent_cache_mib: 64.0,
            persistent_cache_extents: 150.0,
            stream_kib: 512.0,
            streams: 3.0,
            clean_after_idle_ms: 20.0,
            ..ALL
        },
        0,
    ),
];

/// FNV-1a over words, mixed at the end by whoever uses it.
struct Hash(Vec<u8>);

impl Hash {
    fn add(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn digits(&self) -> String {
        crate::drive::hash16(&[&self.0])[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Everything that is booked goes into the hash at the end, to the nanosecond.
struct Booked([[f64; Kind::ALL.len()]; 4]);

impl Tally for Booked {
    fn spent(&mut self, cause: u8, kind: Kind, ns: Ns) {
        if let Some(sum) = self.0.get_mut(usize::from(cause % 4)) {
            sum[kind as usize] += ns;
        }
    }
    fn idle(&mut self, _: Ns) {}
    fn took(&mut self, _: u8, _: Ns) {}
}

fn reference(params: &Params, conventional: u64, cache: bool, hash: &mut Hash) {
    let mut engine = Engine::new(params, CAPACITY, conventional, 16 * MIB, cache);
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut booked = Booked(Default::default());
    let (mut now, mut streams) = (0.0, [0_u64, CAPACITY / 3, CAPACITY / 2]);
    let mut flying: Vec<Ticket> = Vec::new();
    for i in 0..COMMANDS {
        // Depths of 1 and 8 in turn, streams and random places, thinking now and then.
        let depth = if i / 500 % 2 == 0 { 1 } else { 8 };
        let stream = &mut streams[rng.random_range(0..3)];
        let (what, at, len, zone_ms) = match rng.random_range(0..20) {
            0..6 => {
                let len = rng.random_range(1..=256) * 4096;
                let at = *stream;
                *stream = (*stream + len) % (CAPACITY - 2 * MIB);
                (What::Write, at, len, if at % (256 * MIB) < len { params.open_ms(i % 2 == 0) } else { 0.0 })
            }
            6..9 => {
                (What::Write, rng.random_range(0..CAPACITY / 4096 - 64) * 4096, rng.random_range(1..32) * 4096, 0.0)
            }
            9..13 => {
                (What::Read, rng.random_range(0..CAPACITY / 4096 - 64) * 4096, rng.random_range(1..64) * 4096, 0.0)
            }
            13..17 => (What::Read, i % 700 * 65_536, 65_536, 0.0),
            17 => (What::Flush, 0, 0, 0.0),
            18 => (What::Zone { drops: true }, *stream / MIB * MIB, MIB, params.zone_reset_ms),
            _ => {
                now += rng.random_range(0.0..60e6);
                engine.run(now, &mut booked);
                (What::Zone { drops: false }, 0, 0, params.zone_finish_ms)
            }
        };
        let command = Command { what, at, len, cause: (i % 4) as u8, zone_time: zone_ms * 1e6, arrival: now };
        flying.push(engine.submit(command, &mut booked));
        while flying.len() >= depth {
            let before = flying.len();
            flying.retain(|ticket| match engine.completion(*ticket) {
                Some(end) => {
                    now = f64::max(now, end);
                    hash.add(*ticket);
                    hash.add(end.round() as u64);
                    false
                }
                None => true,
            });
            if flying.len() == before && !engine.step(f64::INFINITY, &mut booked) {
                break;
            }
        }
    }
    hash.add(engine.now().round() as u64);
    booked.0.iter().flatten().for_each(|sum| hash.add(sum.round() as u64));
}

/// What the formulas do, in 16 hexadecimal digits.
pub fn formulas() -> &'static str {
    static DIGITS: OnceLock<String> = OnceLock::new();
    DIGITS.get_or_init(|| {
        let mut hash = Hash(Vec::new());
        for (params, conventional) in DRIVES {
            for cache in [true, false] {
                reference(&params, conventional, cache, &mut hash);
            }
            for shrunk in [params.scaled(64.0), params.fewer(64.0)] {
                shrunk.values().iter().for_each(|(_, value)| hash.add(value.to_bits()));
            }
        }
        hash.digits()
    })
}

fn add_params(hash: &mut Hash, params: &Params) {
    hash.0.extend_from_slice(formulas().as_bytes());
    for (name, value) in params.values() {
        hash.0.extend_from_slice(name.as_bytes());
        hash.add(value.to_bits());
    }
}

/// What the model is made of, its formulas and the profile's numbers, in 16 hexadecimal digits: results with the same ones can be
/// compared.
pub fn fingerprint(profile: &Profile) -> String {
    let mut hash = Hash(Vec::new());
    if let Ok(Some(params)) = profile.time() {
        add_params(&mut hash, &params);
    }
    let Profile { capacity, zone_size, zone_capacity, conventional_zones, max_open, max_active, block, max_io, .. } =
        profile;
    let optional = |n: Option<u64>| n.unwrap_or(0);
    for number in [
        profile.kind as u64,
        *capacity,
        *zone_size,
        optional(*zone_capacity),
        u64::from(*conventional_zones),
        optional(max_open.map(u64::from)),
        optional(max_active.map(u64::from)),
        u64::from(*block),
        u64::from(*max_io),
        profile.write_cache_bytes,
        u64::from(profile.rotational),
    ] {
        hash.add(number);
    }
    hash.digits()
}

/// The same of a drive of which only the name of its profile and the numbers of its time are known: where that name and those
/// numbers are a built-in profile's, that one's.
pub fn fingerprint_of(profile: &str, params: &Params) -> String {
    let built_in = Profile::named(profile).filter(|known| known.time() == Ok(Some(*params)));
    built_in.as_ref().map_or_else(
        || {
            let mut hash = Hash(Vec::new());
            add_params(&mut hash, params);
            hash.digits()
        },
        fingerprint,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_number_changes_the_fingerprint_and_a_changed_word_does_not() {
        let mut profile = Profile::named("hgst-hsh721414al").unwrap();
        let before = fingerprint(&profile);
        assert_eq!((before.len(), &before), (16, &fingerprint(&profile)));
        profile.parameters[0].source = "a dream".into();
        assert_eq!(fingerprint(&profile), before);
        assert_eq!(fingerprint_of(&profile.name, &profile.time().unwrap().unwrap()), before);
        profile.parameters[0].value += 1.0;
        let changed = fingerprint(&profile);
        assert_ne!(changed, before);
        assert_ne!(fingerprint_of(&profile.name, &profile.time().unwrap().unwrap()), before);
        profile.max_io *= 2;
        assert_ne!(fingerprint(&profile), changed);
    }

    #[test]
    fn every_number_of_the_reference_drives_matters() {
        let of = |params: &Params, drive: usize| {
            let mut hash = Hash(Vec::new());
            [true, false].iter().for_each(|cache| reference(params, DRIVES[drive].1, *cache, &mut hash));
            hash.digits()
        };
        let before = [0, 1, 2].map(|drive| of(&DRIVES[drive].0, drive));
        for (name, ..) in crate::time::NAMES {
            let changed = (0..3).any(|drive| {
                let params = DRIVES[drive].0.with(name, 0.5).or_else(|_| DRIVES[drive].0.with(name, 1.3));
                params.is_ok_and(|params| of(&params, drive) != before[drive])
            });
            // The drive's own closes come with opens, so that a close is in that time.
            assert!(changed, "the reference commands do not depend on {name}");
        }
    }

    /// A change of formulas or profiles after the freeze needs a source and a line in the log.
    #[test]
    fn the_model_is_the_one_that_was_frozen() {
        let doc = include_str!("../../../../docs/drive-model.md");
        let (_, log) = doc.split_once("## Frozen").expect("docs/drive-model.md has a chapter \"Frozen\"");
        let rows: Vec<&str> = log.lines().filter(|line| line.starts_with("| 20")).collect();
        let missing = |name: &str, digits: &str| {
            format!(
                "docs/drive-model.md: the log under \"Frozen\" lacks a line with the date, \"{name} {digits}\", what changed and its source"
            )
        };
        let newest = rows.iter().rev().find(|row| row.contains("formulas ")).copied().unwrap_or_default();
        assert!(newest.contains(&format!("formulas {}", formulas())), "{}", missing("formulas", formulas()));
        for profile in Profile::all().into_iter().filter(|profile| !profile.parameters.is_empty()) {
            let digits = fingerprint(&profile);
            let newest =
                rows.iter().rev().find(|row| row.contains(&format!("{} ", profile.name))).copied().unwrap_or_default();
            assert!(newest.contains(&format!("{} {digits}", profile.name)), "{}", missing(&profile.name, &digits));
        }
    }
}
