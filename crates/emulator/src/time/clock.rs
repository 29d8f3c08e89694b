//! Who lets the time pass: the threads of a host against the one [engine](super::engine).
//!
//! In `account` time exists only in the drive. A thread's next command arrives when its last one was complete: what the host
//! thinks in between counts as no time. With several threads the drive decides when each that was there lately has a
//! command at it (or stayed away for a moment of real time), so that the order is the drive's choice and not that of the
//! processor that issued first.
//!
//! In `pace` the drive's clock runs with the world's, `speed` times as fast, and who issued a command really waits. Sleeps are not as
//! exact as a drive: a thread may be a little ahead of the clock, and what it slept too long is not taken for thinking.

use super::engine::{Command, Engine, Ticket, What};
use super::kept::Kept;
use super::ledger::Ledger;
use super::mechanics::Ns;
use super::params::Params;
use super::tally::Kind;
use imbrex_device::Cause;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How a drive keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// Service times are added up, nobody waits.
    Account,
    /// Callers wait as long as the drive takes, divided by `speed`.
    Real {
        /// Drive seconds in one second.
        speed: f64,
    },
}

/// A thread that issued nothing for so long is not waited for.
const GRACE: Duration = Duration::from_millis(2);

/// In `pace` a host may be this much ahead of the drive's clock: a sleep is not much shorter than that.
const AHEAD: Duration = Duration::from_micros(60);
/// And this much behind, for a sleep that was too long; whoever is later thought so long.
const LATE: Duration = Duration::from_millis(2);
/// Threads that are remembered in `pace` before those that have gone are forgotten.
const MOST_HOSTS: usize = 256;

/// Sleeps with as little delay at the end as the system allows: by default that is as long as a turn of a scaled drive.
fn sleep_exactly(time: Duration) {
    thread_local!(static ASKED: Cell<bool> = const { Cell::new(false) });
    if !ASKED.replace(true) {
        // Where it is refused, sleeps are longer; that is made up for.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
    }
    std::thread::sleep(time);
}

/// Seconds that the drive was busy, by what it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Seconds {
    /// The arm moved.
    pub seek: f64,
    /// The place came round.
    pub rotation: f64,
    /// The head passed over what was asked for.
    pub transfer: f64,
    /// Zones opened, closed, were finished or reset.
    pub zone_ops: f64,
    /// A drive-managed drive cleaned bands.
    pub cleaning: f64,
}

impl Seconds {
    /// All of it.
    pub fn busy(&self) -> f64 {
        self.seek + self.rotation + self.transfer + self.zone_ops + self.cleaning
    }

    pub(crate) fn of(kinds: [u64; Kind::ALL.len()]) -> Seconds {
        let [seek, rotation, transfer, zone_ops, cleaning] = kinds.map(|ns| ns as f64 / 1e9);
        Seconds { seek, rotation, transfer, zone_ops, cleaning }
    }
}

/// Latencies of the commands of one cause, in seconds; each is right within 7 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub commands: u64,
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

/// What became of a drive's time since it keeps it. Everything in seconds of the drive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeStats {
    /// Device time: when the last command was complete and the head at rest.
    pub elapsed: f64,
    /// The head had nothing to do.
    pub idle: f64,
    /// All causes together.
    #[serde(flatten)]
    pub total: Seconds,
    /// By the name of the cause; those that took any.
    pub by_cause: BTreeMap<&'static str, Seconds>,
    /// Likewise; from arrival to completion.
    pub latency: BTreeMap<&'static str, Latency>,
    /// How often the head left its track for a command or a piece of the write cache; cleaning is not counted.
    pub seeks: u64,
    /// Those of reads.
    pub read_seeks: u64,
    /// Of a drive-managed drive.
    pub persistent_cache: Option<PersistentCache>,
    /// How whoever has the drive keeps time; nobody does where there is none.
    pub pace: Option<Pace>,
    /// Whether some of this time was added up ([`Pace::Account`]): what the host thought in between counts as none in it.
    pub added_up: bool,
}

/// What stands in the persistent cache of a drive-managed drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PersistentCache {
    /// Extents in its map.
    pub extents: usize,
    /// Bytes of its log that are in use.
    pub bytes: u64,
}

/// A thread that uses the drive.
struct Seat {
    /// The command that it waits for.
    waits: Option<Ticket>,
    /// When its last one was complete, by the drive's clock and by the world's.
    last: Ns,
    seen: Instant,
}

/// A thread in `pace`: when its last command was complete by the drive's clock, and when it went on by the world's.
struct Host {
    last: Ns,
    seen: Instant,
}

struct Desk {
    engine: Engine,
    ledger: Ledger,
    seats: HashMap<ThreadId, Seat>,
    /// By thread; strangers are one.
    hosts: HashMap<Option<ThreadId>, Host>,
    /// The latest completion that anybody was told in `pace`.
    told: Ns,
    completed: HashMap<Ticket, Ns>,
    /// Commands in `pace` that are not decided, each with what wakes its thread.
    waiting: Vec<(Ticket, Arc<Condvar>)>,
    /// One of those threads looks after the time.
    pacing: bool,
}

/// A drive's clock and everything that stands on it.
pub(crate) struct Clock {
    pace: Pace,
    grace: Duration,
    params: Params,
    /// The drive's clock when the world's was at `began`.
    base: Ns,
    began: Instant,
    /// Threads issue commands of others, now one's and now another's.
    strangers: AtomicBool,
    desk: Mutex<Desk>,
    moved: Condvar,
}

/// A command as the drive's front sees it, without its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) what: What,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) cause: Cause,
    pub(crate) zone_time: Ns,
}

impl Clock {
    /// A clock of `engine`, which goes on where it is; what is counted goes to `ledger`.
    pub(crate) fn new(params: &Params, pace: Pace, engine: Engine, ledger: Ledger) -> Clock {
        ledger.set_pace(Some(pace));
        ledger.publish(&engine);
        let base = engine.now();
        let told = base;
        let desk = Desk {
            engine,
            ledger,
            seats: HashMap::new(),
            hosts: HashMap::new(),
            told,
            completed: HashMap::new(),
            waiting: Vec::new(),
            pacing: false,
        };
        Clock {
            pace,
            grace: GRACE,
            params: *params,
            base,
            began: Instant::now(),
            strangers: AtomicBool::new(false),
            desk: Mutex::new(desk),
            moved: Condvar::new(),
        }
    }

    /// From now on who issues a command tells nothing of whose it is.
    pub(crate) fn serve_strangers(&self) {
        self.strangers.store(true, Ordering::Relaxed);
    }

    /// The drive's clock where it runs by itself, `speed` times as fast as the world's.
    fn now(&self, speed: f64) -> Ns {
        self.base + self.began.elapsed().as_nanos() as f64 * speed
    }

    /// Lets the drive come to rest, with everything of its write cache on its platters, and says what to remember of it. Nobody
    /// uses it any more.
    pub(crate) fn rest(&self, generation: u64) -> Kept {
        let mut guard = self.desk();
        let desk = &mut *guard;
        desk.engine.run(f64::INFINITY, &mut desk.ledger);
        desk.ledger.publish(&desk.engine);
        desk.ledger.set_pace(None);
        desk.engine.keep(generation)
    }

    /// Forgets what was counted.
    pub(crate) fn reset(&self) {
        self.desk().ledger.reset();
    }

    pub(crate) fn params(&self) -> &Params {
        &self.params
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_cache(&self, on: bool) {
        self.desk().engine.set_cache(on);
    }

    /// As after a long life, with so many extents in the persistent cache; `false` where the drive has none.
    pub(crate) fn precondition(&self, extents: usize) -> bool {
        let mut desk = self.desk();
        let desk = &mut *desk;
        let done = desk.engine.translation_mut().map(|translation| translation.precondition(extents)).is_some();
        desk.ledger.publish(&desk.engine);
        done
    }

    /// Lets the time pass that a command takes; returns its arrival and completion by the drive's clock.
    pub(crate) fn serve(&self, asked: Asked) -> (Ns, Ns) {
        match self.pace {
            Pace::Account => self.account(asked),
            Pace::Real { speed } => self.pace(asked, speed),
        }
    }

    /// This thread's command is over. What it did since the drive was done, such as copying the bytes to where they are kept, is the drive's part: a drive transfers by itself.
    pub(crate) fn over(&self) {
        if let Pace::Real { .. } = self.pace {
            let me = (!self.strangers.load(Ordering::Relaxed)).then(|| std::thread::current().id());
            self.desk().hosts.get_mut(&me).into_iter().for_each(|host| host.seen = Instant::now());
        }
    }

    fn account(&self, asked: Asked) -> (Ns, Ns) {
        let me = std::thread::current().id();
        let mut guard = self.desk();
        let desk = &mut *guard;
        let present = desk.seats.values().map(|seat| seat.last).fold(f64::INFINITY, f64::min);
        let present = if present.is_finite() { present } else { desk.engine.now() };
        let seat = desk.seats.entry(me).or_insert_with(|| Seat { waits: None, last: present, seen: Instant::now() });
        let arrival = seat.last.max(present);
        let ticket = desk.engine.submit(asked.arriving(arrival), &mut desk.ledger);
        seat.waits = Some(ticket);
        if desk.seats.len() > 1 {
            // The others may have waited for this one.
            self.moved.notify_all();
        }
        loop {
            let desk = &mut *guard;
            if let Some(end) = desk.completed.remove(&ticket).or_else(|| desk.engine.completion(ticket)) {
                if let Some(seat) = desk.seats.get_mut(&me) {
                    *seat = Seat { waits: None, last: end, seen: Instant::now() };
                }
                desk.ledger.publish(&desk.engine);
                desk.ledger.adds_up();
                return (arrival, end);
            }
            match desk.waits_for_host(me, self.grace) {
                Some(moment) => {
                    guard = self.moved.wait_timeout(guard, moment).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    desk.engine.step(f64::INFINITY, &mut desk.ledger);
                    if desk.seats.len() > 1 {
                        self.moved.notify_all();
                    }
                }
            }
        }
    }

    fn pace(&self, asked: Asked, speed: f64) -> (Ns, Ns) {
        let me = (!self.strangers.load(Ordering::Relaxed)).then(|| std::thread::current().id());
        let drive = |time: Duration| time.as_nanos() as f64 * speed;
        let thought = Instant::now();
        let mut guard = self.desk();
        let now = self.now(speed);
        let desk = &mut *guard;
        let since = |host: &Host| host.last + drive(thought.saturating_duration_since(host.seen));
        let own = desk.hosts.get(&me).map(since);
        let arrival = arrival(now, own, me.is_none().then_some(desk.told), drive(LATE));
        let ticket = desk.engine.submit(asked.arriving(arrival), &mut desk.ledger);
        let ready = arrival + self.params.overhead_us * 1e3;
        let end = self.decided(guard, ticket, ready, speed);
        let left = Duration::from_nanos(((end - self.now(speed)) / speed).max(0.0) as u64);
        if left > AHEAD {
            sleep_exactly(left);
        }
        let mut guard = self.desk();
        guard.told = guard.told.max(end);
        let hosts = &mut guard.hosts;
        if hosts.len() >= MOST_HOSTS && !hosts.contains_key(&me) {
            hosts.retain(|_, host| host.seen.elapsed() < LATE);
        }
        hosts.insert(me, Host { last: end, seen: Instant::now() });
        (arrival, end)
    }

    /// Lets the drive go on as time does until it is decided when the command is complete. One of the threads that wait, the
    /// pacer, looks whenever the head may be free, and wakes whose commands are decided; the others sleep.
    fn decided(&self, mut guard: MutexGuard<'_, Desk>, ticket: Ticket, ready: Ns, speed: f64) -> Ns {
        thread_local!(static TURN: Arc<Condvar> = Arc::default());
        let turn = TURN.with(Arc::clone);
        let mut pacer = false;
        loop {
            let desk = &mut *guard;
            let time = self.now(speed).max(ready);
            desk.engine.run(time, &mut desk.ledger);
            desk.wake_decided();
            if let Some(end) = desk.completed.remove(&ticket).or_else(|| desk.engine.completion(ticket)) {
                desk.waiting.retain(|(other, _)| *other != ticket);
                desk.pacing &= !pacer;
                // Whoever was asked to be the next pacer may have left at once; so whoever leaves asks.
                if let (false, Some((_, next))) = (desk.pacing, desk.waiting.first()) {
                    next.notify_one();
                }
                desk.ledger.publish(&desk.engine);
                return end;
            }
            if !desk.waiting.iter().any(|(other, _)| *other == ticket) {
                desk.waiting.push((ticket, turn.clone()));
            }
            if pacer || !desk.pacing {
                (pacer, desk.pacing) = (true, true);
                // Nothing new is decided before the controller has the command and the head is free.
                let wait = Duration::from_nanos(((desk.engine.now() - time).max(0.0) / speed) as u64 + 1000);
                guard = turn.wait_timeout(guard, wait).unwrap_or_else(PoisonError::into_inner).0;
            } else {
                guard = turn.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    pub(crate) fn stats(&self) -> TimeStats {
        let mut guard = self.desk();
        let desk = &mut *guard;
        if let Pace::Real { speed } = self.pace {
            desk.engine.run(self.now(speed), &mut desk.ledger);
            desk.ledger.publish(&desk.engine);
        }
        desk.ledger.stats()
    }
}

/// When a command arrives by the drive's clock that is issued at `now` in `pace`. `own`: when its host's last one was complete, and
/// what it did by itself since; a host that woke late, or not at all yet, is not taken for one that thinks, up to `late`. Strangers may have
/// waited for any of those that are complete, so theirs arrives after all that was `told`.
fn arrival(now: Ns, own: Option<Ns>, told: Option<Ns>, late: Ns) -> Ns {
    let own = own.map(|own| told.map_or(own, |told| own.max(told)));
    own.filter(|own| now - own < late).unwrap_or(now)
}

impl Asked {
    pub(crate) fn arriving(self, arrival: Ns) -> Command {
        let Asked { what, at, len, cause, zone_time } = self;
        Command { what, at, len, cause: cause as u8, zone_time, arrival }
    }
}

impl Desk {
    /// Wakes those in `pace` whose commands are decided.
    fn wake_decided(&mut self) {
        let Desk { engine, completed, waiting, .. } = self;
        waiting.retain(|(ticket, turn)| match engine.completion(*ticket) {
            Some(end) => {
                completed.insert(*ticket, end);
                turn.notify_one();
                false
            }
            None => true,
        });
    }

    /// How long to wait for other threads' commands before the drive decides; `None`: everybody who is there has one.
    fn waits_for_host(&mut self, me: ThreadId, grace: Duration) -> Option<Duration> {
        if self.seats.len() == 1 {
            return None;
        }
        let mut longest = None;
        let Desk { seats, engine, completed, .. } = self;
        seats.retain(|thread, seat| {
            if let Some(ticket) = seat.waits {
                // Decided, but its thread has not seen it yet: it comes back.
                if *thread != me
                    && let Some(end) = engine.completion(ticket)
                {
                    completed.insert(ticket, end);
                }
                if completed.contains_key(&ticket) {
                    longest = longest.max(Some(grace));
                }
                return true;
            }
            let away = seat.seen.elapsed();
            if away < grace {
                longest = longest.max(Some(grace - away));
            }
            away < grace
        });
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use std::sync::Barrier;

    fn clock(name: &str, pace: Pace) -> Clock {
        let profile = Profile::named(name).unwrap();
        let params = profile.time().unwrap().unwrap();
        Clock::new(
            &params,
            pace,
            Engine::new(&params, profile.capacity, 0, profile.write_cache_bytes, false),
            Ledger::new(),
        )
    }

    fn read(at: u64) -> Asked {
        Asked { what: What::Read, at, len: 4096, cause: Cause::UserRead, zone_time: 0.0 }
    }

    #[test]
    fn one_thread_after_itself() {
        let clock = clock("hitachi-hua72303", Pace::Account);
        (0..100).for_each(|i| _ = clock.serve(read((i * 7919 % 100) << 34)));
        let stats = clock.stats();
        assert!((0.8..3.0).contains(&stats.elapsed), "{stats:?}");
        assert!((stats.total.busy() + stats.idle - stats.elapsed).abs() < 1e-6);
        let latency = stats.latency["user_read"];
        assert_eq!(latency.commands, 100);
        assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max && latency.max < 0.04);
        assert!((latency.mean * 100.0 / stats.elapsed - 1.0).abs() < 0.01);
    }

    #[test]
    fn the_drive_chooses_among_the_commands_of_all_threads() {
        let seconds = |threads: usize| {
            // However slow this machine is, nobody is late.
            let clock = Clock { grace: Duration::from_millis(200), ..clock("hitachi-hua72303", Pace::Account) };
            let start = Barrier::new(threads);
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (clock, start) = (&clock, &start);
                    scope.spawn(move || {
                        start.wait();
                        for i in 0..320 / threads {
                            let place = (i * threads + thread) as u64 * 7919 % 320;
                            clock.serve(read(place << 33));
                        }
                    });
                }
            });
            clock.stats().elapsed
        };
        let (one, many) = (seconds(1), seconds(16));
        assert!(many < 0.8 * one, "{many} and {one}");
    }

    #[test]
    fn in_pace_what_a_thread_does_before_its_command_is_over_is_the_drives() {
        let clock = clock("hitachi-hua72303", Pace::Real { speed: 1.0 });
        let thought = |over: bool| {
            let (_, end) = clock.serve(read(0));
            std::thread::sleep(Duration::from_millis(1));
            if over {
                clock.over();
            }
            clock.serve(read(0)).0 - end
        };
        // Whoever shares the machine may hold a thread up, but hardly so often.
        let least = |over: bool| (0..20).map(|_| thought(over)).fold(f64::INFINITY, f64::min);
        assert!(least(false) >= 1e6 && least(true) < 0.5e6, "{} and {}", least(false), least(true));
    }

    #[test]
    fn in_pace_many_wait_side_by_side_and_each_as_long_as_its_command() {
        let clock = clock("hitachi-hua72303", Pace::Real { speed: 200.0 });
        std::thread::scope(|scope| {
            for thread in 0..24u64 {
                let clock = &clock;
                scope.spawn(move || {
                    for i in 0..20 {
                        let (arrival, end) = clock.serve(read(((i * 24 + thread) * 7919 % 480) << 32));
                        assert!(end > arrival && clock.now(200.0) + 200.0 * AHEAD.as_nanos() as f64 >= end);
                    }
                });
            }
        });
        let desk = clock.desk();
        assert!(desk.waiting.is_empty() && desk.completed.is_empty() && !desk.pacing);
        drop(desk);
        assert_eq!(clock.stats().latency["user_read"].commands, 480);
    }

    #[test]
    fn a_host_that_woke_late_has_credit_and_strangers_none_for_what_they_may_have_waited_for() {
        assert_eq!(arrival(1000.0, None, None, 200.0), 1000.0);
        assert_eq!(arrival(1000.0, Some(900.0), None, 200.0), 900.0);
        assert_eq!(arrival(1000.0, Some(700.0), None, 200.0), 1000.0);
        assert_eq!(arrival(1000.0, Some(1005.0), None, 200.0), 1005.0);
        assert_eq!(arrival(1000.0, Some(900.0), Some(950.0), 200.0), 950.0);
        assert_eq!(arrival(1000.0, Some(900.0), Some(850.0), 200.0), 900.0);
        assert_eq!(arrival(1000.0, None, Some(950.0), 200.0), 1000.0);
    }

    #[test]
    fn paced_commands_take_real_time() {
        let clock = clock("hitachi-hua72303", Pace::Real { speed: 50.0 });
        let began = Instant::now();
        (0..50).for_each(|i| _ = clock.serve(read((i * 7919 % 50) << 35)));
        let wall = began.elapsed().as_secs_f64() * 50.0;
        let stats = clock.stats();
        // Never faster than the drive; how much slower is the host's business.
        let ahead = 50.0 * AHEAD.as_secs_f64();
        assert!(wall + ahead >= stats.total.busy(), "{wall} {stats:?}");
        assert!(stats.latency["user_read"].commands == 50);
    }
}
