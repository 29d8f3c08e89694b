//! A drive's time alone, for a host that keeps many logical clients on one virtual clock: it says when each command arrives and is
//! told when it is complete. No thread waits and no byte is kept, so commands of different clients queue at the drive as they
//! would, from one real thread.
//!
//! Invariant: the host submits in the order of arrivals, and lets the drive go on ([`Timeline::step`]) no further than to the next
//! arrival that it knows of. Then nothing that the drive decides would have been decided otherwise.

use super::clock::TimeStats;
use super::engine::Engine;
use super::ledger::Ledger;
use super::replay::Zones;
use crate::config::{Config, Overrides};
use crate::profile::Profile;
use crate::trace::TraceEntry;

/// A command at the drive; of one [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// See the module. Times are nanoseconds of the drive's clock, from 0.
pub struct Timeline {
    engine: Engine,
    ledger: Ledger,
    zones: Zones,
}

impl Timeline {
    /// A drive of `profile`, whole, at rest at its outer edge. The error is a sentence about the profile.
    pub fn new(profile: &Profile, write_cache: bool) -> Result<Timeline, String> {
        // What is wrong with its numbers is told here; a configuration leaves them out.
        profile.time()?;
        Self::of(&Config::new(profile, &Overrides { write_cache: Some(write_cache), ..Overrides::default() }))
    }

    /// A drive of this configuration, at rest at its outer edge. The error is a sentence about the configuration.
    pub fn of(config: &Config) -> Result<Timeline, String> {
        let Some(model) = config.model else {
            return Err(format!("the profile {:?} has no parameters of time; take one that has", config.profile));
        };
        let params = model.effective();
        let plain = config.conventional >= config.zones();
        let conventional = if plain { 0 } else { u64::from(config.conventional) * config.zone_size };
        let engine = Engine::new(&params, config.capacity, conventional, config.cache_bytes, config.write_cache);
        let sequential_from = if plain { u64::MAX } else { conventional };
        let zones = Zones::new(&params, (config.capacity, config.zone_size), sequential_from, config.max_open);
        Ok(Timeline { engine, ledger: Ledger::new(), zones })
    }

    /// The command arrives. What it is, where and how long is taken from `entry`; addresses behind the drive's end count modulo its size.
    pub fn submit(&mut self, entry: &TraceEntry, arrival: f64) -> Ticket {
        let (asked, _) = self.zones.asked(entry);
        Ticket(self.engine.submit(asked.arriving(arrival), &mut self.ledger))
    }

    /// Does the next job of the head, if it begins up to `until`; false: there is none. After each, commands may be
    /// [complete](Timeline::completion), and who waited for one of them may have a new command before the next job begins.
    pub fn step(&mut self, until: f64) -> bool {
        self.engine.step(until, &mut self.ledger)
    }

    /// When the command is complete, once that is decided; it may lie ahead of the last step. Told once.
    pub fn completion(&mut self, ticket: Ticket) -> Option<f64> {
        self.engine.completion(ticket.0)
    }

    /// What became of its time up to where it is.
    pub fn stats(&self) -> TimeStats {
        self.ledger.publish(&self.engine);
        self.ledger.stats()
    }

    /// Counts from here on.
    pub fn reset(&mut self) {
        self.ledger.publish(&self.engine);
        self.ledger.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    fn read(at: u64) -> TraceEntry {
        TraceEntry {
            sequence: 0,
            op: Op::Read,
            cause: "user_read",
            priority: "normal",
            zone: 0,
            offset: at,
            len: 4096,
            result: "ok",
        }
    }

    #[test]
    fn commands_that_are_there_together_are_served_in_the_order_of_the_head() {
        let profile = Profile::named("hitachi-hua72303").unwrap();
        let mut line = Timeline::new(&profile, false).unwrap();
        // There and back: the drive has a better order, once it has them all.
        let places: Vec<u64> = (0..16).map(|i| (i % 2 * 40 + i) << 35).collect();
        let tickets: Vec<Ticket> = places.iter().map(|place| line.submit(&read(*place), 0.0)).collect();
        while line.step(f64::INFINITY) {}
        let ends: Vec<f64> = tickets.iter().map(|ticket| line.completion(*ticket).unwrap()).collect();
        assert!(!ends.is_sorted() && ends.iter().all(|end| *end > 0.0), "{ends:?}");
        let last = ends.into_iter().fold(0.0, f64::max);
        let mut alone = Timeline::new(&profile, false).unwrap();
        let mut now = 0.0;
        for place in places {
            let ticket = alone.submit(&read(place), now);
            while alone.step(f64::INFINITY) {}
            now = alone.completion(ticket).unwrap();
        }
        assert!(last < 0.8 * now, "side by side {last}, one after the other {now}");
        assert_eq!(line.completion(tickets[0]), None, "told once");
        assert!((alone.stats().elapsed - now / 1e9).abs() < 1e-3);
    }

    #[test]
    fn a_drive_does_nothing_that_begins_behind_what_it_is_asked_for() {
        let mut line = Timeline::new(&Profile::named("hitachi-hua72303").unwrap(), false).unwrap();
        let ticket = line.submit(&read(1 << 35), 5e9);
        assert!(!line.step(1e9) && line.completion(ticket).is_none());
        assert!(line.step(f64::INFINITY) && line.completion(ticket).unwrap() > 5e9);
        assert!(Timeline::new(&Profile::named("tiny").unwrap(), false).is_err());
    }
}
