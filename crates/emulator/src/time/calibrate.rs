//! The model asked for the figures that others measured of real drives.

use super::Params;
use super::engine::{Command, Engine, What};
use super::mechanics::Ns;
use super::tally::{Kind, Tally};
use crate::profile::{Fact, Measure, Profile};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MIB: u64 = 1 << 20;
/// Stretches that stand for a pass over the whole drive, and their length in MiB.
const STRETCHES: u64 = 256;
const STRETCH: u64 = 128;
const RANDOM_READS: usize = 4000;

struct Nowhere;

impl Tally for Nowhere {
    fn spent(&mut self, _: u8, _: Kind, _: Ns) {}
    fn idle(&mut self, _: Ns) {}
    fn took(&mut self, _: u8, _: Ns) {}
}

struct Bench {
    engine: Engine,
    now: Ns,
}

impl Bench {
    fn does(&mut self, what: What, at: u64, len: u64, zone_ms: f64) -> Ns {
        let began = self.now;
        let command = Command { what, at, len, cause: 0, zone_time: zone_ms * 1e6, arrival: self.now };
        let ticket = self.engine.submit(command, &mut Nowhere);
        loop {
            if let Some(end) = self.engine.completion(ticket) {
                self.now = end;
                return end - began;
            }
            if !self.engine.step(f64::INFINITY, &mut Nowhere) {
                return 0.0;
            }
        }
    }

    /// Writes `mib` MiB from `at`, the way there not counted; time in nanoseconds.
    fn stretch(&mut self, at: u64, mib: u64) -> Ns {
        self.does(What::Read, at, 4096, 0.0);
        let began = self.now;
        (0..mib).for_each(|i| _ = self.does(What::Write, at + i * MIB, MIB, 0.0));
        self.does(What::Flush, 0, 0, 0.0);
        self.now - began
    }

    fn random_reads(&mut self, span: u64, depth: usize) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let began = self.now;
        let mut flying = Vec::new();
        let mut ended = 0;
        while ended < RANDOM_READS {
            while flying.len() < depth {
                let at = rng.random_range(0..(span / 4096).max(1)) * 4096;
                let command = Command { what: What::Read, at, len: 4096, cause: 0, zone_time: 0.0, arrival: self.now };
                flying.push(self.engine.submit(command, &mut Nowhere));
            }
            self.engine.step(f64::INFINITY, &mut Nowhere);
            flying.retain(|ticket| {
                let end = self.engine.completion(*ticket);
                ended += usize::from(end.is_some());
                self.now = self.now.max(end.unwrap_or(0.0));
                end.is_none()
            });
        }
        ended as f64 * 1e9 / (self.now - began)
    }
}

/// What the model says where `fact` was measured, in the fact's unit; `None` where place or span are not stated, or the
/// profile keeps no time. The error is a sentence about the profile.
pub fn answer(profile: &Profile, fact: &Fact) -> Result<Option<f64>, String> {
    let (Some(measure), Some(params)) = (fact.measure, profile.time()?) else { return Ok(None) };
    Ok(Some(answer_with(profile, &params, measure) * in_unit(&fact.unit)?))
}

/// MiB/s of a log that is written `len` bytes at a time, each write issued when the last one was acknowledged, at the drive's first
/// addresses; `None` where the profile keeps no time. The error is a sentence about the profile.
pub fn synchronous_log(profile: &Profile, len: u64, write_cache: bool) -> Result<Option<f64>, String> {
    const WRITES: u64 = 4000;
    let Some(params) = profile.time()? else { return Ok(None) };
    let plain = profile.kind.is_plain();
    let conventional = if plain { 0 } else { u64::from(profile.conventional_zones) * profile.zone_size };
    let engine = Engine::new(&params, profile.capacity, conventional, profile.write_cache_bytes, write_cache);
    let mut bench = Bench { engine, now: 0.0 };
    (0..WRITES).for_each(|i| _ = bench.does(What::Write, i * len, len, 0.0));
    Ok(Some((WRITES * len) as f64 / MIB as f64 * 1e9 / bench.now))
}

fn in_unit(unit: &str) -> Result<f64, String> {
    match unit {
        "MiB/s" | "1/s" | "ms" => Ok(1.0),
        "MB/s" => Ok(1.048_576),
        _ => Err(format!("the unit {unit:?} of a measured figure is not one of MiB/s, MB/s, 1/s, ms")),
    }
}

/// MiB/s, 1/s or ms.
fn answer_with(profile: &Profile, params: &Params, measure: Measure) -> f64 {
    let plain = profile.kind.is_plain();
    let conventional = if plain { 0 } else { u64::from(profile.conventional_zones) * profile.zone_size };
    let engine = Engine::new(params, profile.capacity, conventional, profile.write_cache_bytes, true);
    let mut bench = Bench { engine, now: 0.0 };
    let mib_s = |time: Ns, mib: u64| mib as f64 * 1e9 / time;
    // Streams of a drive-managed drive begin with a band.
    let unit = ((params.band_mib as u64).max(1) * MIB).min(profile.capacity / 2);
    match measure {
        Measure::SequentialOuter => mib_s(bench.stretch(conventional.next_multiple_of(unit), 1024), 1024),
        Measure::SequentialConventional => mib_s(bench.stretch(0, 1024), 1024),
        Measure::SequentialAverage => {
            let span = profile.capacity.saturating_sub(conventional + (STRETCH + 1) * MIB);
            let places = (0..STRETCHES)
                .map(|i| conventional + (u128::from(span) * u128::from(i) / u128::from(STRETCHES - 1)) as u64);
            let time: Ns = places.map(|at| bench.stretch(at / unit * unit, STRETCH)).sum();
            mib_s(time, STRETCHES * STRETCH)
        }
        Measure::RandomRead { span, depth } => {
            bench.random_reads(span.min(profile.capacity), depth.clamp(1, 1024) as usize)
        }
        Measure::ZoneOpen => bench.does(What::Zone { drops: false }, conventional, 0, params.zone_open_ms) / 1e6,
        Measure::ZoneClose => bench.does(What::Zone { drops: false }, conventional, 0, params.zone_close_ms) / 1e6,
        Measure::ZoneReset => bench.does(What::Zone { drops: true }, conventional, 0, params.zone_reset_ms) / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_with_stated_place_and_span_is_kept_within_5_percent() {
        let doc = include_str!("../../../../docs/drive-model.md");
        let mut asked = 0;
        for profile in Profile::all() {
            for fact in &profile.facts {
                let Some(model) = answer(&profile, fact).unwrap() else { continue };
                asked += 1;
                println!("{:24} {:52} {:8.1} {:8.1} {}", profile.name, fact.what, fact.value, model, fact.unit);
                assert!(
                    (model / fact.value - 1.0).abs() < 0.05,
                    "{}: {}: {model} {}",
                    profile.name,
                    fact.what,
                    fact.unit
                );
                let Fact { what, value, unit, source, .. } = fact;
                let line = format!("| {} | {what} ({source}) | {value} {unit} | {model:.1} |", profile.name);
                assert!(doc.contains(&line), "docs/drive-model.md lacks the line\n{line}");
            }
        }
        assert_eq!(asked, 12);
    }

    /// The figures stand in `docs/drive-model.md`, under those that nothing was fitted to.
    #[test]
    fn the_synchronous_log_is_as_documented() {
        let hgst = Profile::named("hgst-hsh721414al").unwrap();
        let of = |len, cache| synchronous_log(&hgst, len, cache).unwrap().unwrap();
        for (len, cache, documented) in
            [(4096, true, 68.4), (4096, false, 0.467), (512 << 10, true, 172.5), (512 << 10, false, 42.9)]
        {
            assert!((of(len, cache) / documented - 1.0).abs() < 0.01, "{len} {cache}: {}", of(len, cache));
        }
    }

    /// `docs/drive-model.md` has every parameter of every profile with its source.
    #[test]
    fn every_parameter_stands_in_the_docs_with_its_source() {
        let timed: Vec<Profile> = Profile::all().into_iter().filter(|p| !p.parameters.is_empty()).collect();
        let mut lines = Vec::new();
        for (name, ..) in crate::time::NAMES {
            let mut groups: Vec<(f64, &str, Vec<&str>)> = Vec::new();
            for profile in &timed {
                let Some(parameter) = profile.parameters.iter().find(|p| p.name == *name) else { continue };
                let same = groups
                    .iter_mut()
                    .find(|(value, source, _)| (*value, *source) == (parameter.value, &parameter.source));
                match same {
                    Some((.., of)) => of.push(&profile.name),
                    None => groups.push((parameter.value, &parameter.source, vec![&profile.name])),
                }
            }
            for (value, source, of) in groups {
                let of = if of.len() == timed.len() { "all".into() } else { of.join(", ") };
                let value = format!("{value:.2}");
                lines.push(format!(
                    "| {name} | {} | {of} | {source} |",
                    value.trim_end_matches('0').trim_end_matches('.')
                ));
            }
        }
        let doc = include_str!("../../../../docs/drive-model.md");
        let missing: Vec<_> = lines.iter().filter(|line| !doc.contains(line.as_str())).collect();
        assert!(
            missing.is_empty(),
            "docs/drive-model.md lacks lines of the table of parameters; all of it:\n{}",
            lines.join("\n")
        );
    }
}
