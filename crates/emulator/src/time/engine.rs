//! The drive as a machine in time: commands go in with their arrival, completions come out.
//!
//! A controller takes commands one after the other and costs each its overhead. What it can answer by itself it does: a write
//! that fits in the write cache, a read of what is cached or was read ahead. The one head does everything else, one job at a
//! time and to its end: a command of the queue (the nearest in time among the first few, unless one waited too long), a piece
//! of the write cache (upwards from where the head is, of the next few the one that it reaches soonest), a zone operation, a band to clean. What follows in time, that is,
//! begins where the last job ended and was there before that end, costs neither seek nor rotation. Behind a read the head reads
//! on while nobody wants it.
//!
//! Nothing here reads a clock or locks: the same commands give the same times. [`super::clock`] drives it.

mod cache;
mod readahead;

use super::kept::Kept;
use super::mechanics::{Mechanics, Ns};
use super::params::Params;
use super::tally::{Kind, Tally};
use super::translation::{Route, Translation};
use std::collections::{BTreeMap, VecDeque};

/// A command that the engine knows; never used twice.
pub(crate) type Ticket = u64;

/// What a command asks of the drive's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    Read,
    Write,
    Flush,
    /// A zone operation; the zone's bytes that a reset drops from the cache.
    Zone {
        drops: bool,
    },
}

/// A command. Bytes and addresses in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) what: What,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) cause: u8,
    /// Zone operations that it is or brings along, in time.
    pub(crate) zone_time: Ns,
    pub(crate) arrival: Ns,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    ticket: Ticket,
    command: Command,
    /// When the controller has it.
    ready: Ns,
}

/// Unwritten bytes of the write cache.
#[derive(Clone, Copy, Debug)]
struct Extent {
    len: u64,
    seq: u64,
    ready: Ns,
    cause: u8,
    /// Where it begins on the stroke.
    stroke: f64,
}

/// The head reads on from `at` since `since`, `len` bytes at most.
#[derive(Clone, Copy, Debug)]
struct Prefetch {
    at: u64,
    since: Ns,
    len: u64,
}

pub(crate) struct Engine {
    mechanics: Mechanics,
    params: Params,
    capacity: u64,
    cache_bytes: u64,
    cache_on: bool,
    controller: Ns,
    /// Up to when bytes pass between host and drive.
    bus: Ns,
    /// When the head is free, where it is then, and the address that comes next under it.
    free: Ns,
    stroke: f64,
    next: Option<u64>,
    prefetch: Option<Prefetch>,
    segments: VecDeque<(u64, u64)>,
    dirty: BTreeMap<u64, Extent>,
    /// How many extents there are of each age.
    ages: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    seq: u64,
    /// When the last piece of the cache that was begun is written.
    written: Ns,
    /// Over the high-water mark, until half is written.
    draining: bool,
    /// The last job was a piece of the cache, so that a waiting command comes next.
    wrote: bool,
    queue: Vec<Pending>,
    blocked: VecDeque<Pending>,
    /// Flushes, with the last age that each covers.
    flushes: Vec<(u64, Pending)>,
    /// Decided and not yet told: as many as the host has at the drive.
    done: Vec<(Ticket, Ns)>,
    tickets: Ticket,
    translation: Option<Translation>,
    cleaning: bool,
    /// The head is at work for a read.
    reading: bool,
}

impl Engine {
    /// A drive of `capacity` bytes of which the first `conventional` are conventional, at rest at its outer edge.
    pub(crate) fn new(params: &Params, capacity: u64, conventional: u64, cache_bytes: u64, cache_on: bool) -> Engine {
        let translation = params.translates().then(|| Translation::new(params, capacity));
        let reserved = translation.as_ref().map_or(0, Translation::reserved);
        Engine {
            mechanics: Mechanics::new(params, capacity + reserved, conventional),
            params: *params,
            capacity,
            cache_bytes,
            cache_on,
            controller: 0.0,
            bus: 0.0,
            free: 0.0,
            stroke: 0.0,
            next: None,
            prefetch: None,
            segments: VecDeque::new(),
            dirty: BTreeMap::new(),
            ages: BTreeMap::new(),
            dirty_bytes: 0,
            seq: 0,
            written: 0.0,
            draining: false,
            wrote: false,
            queue: Vec::new(),
            blocked: VecDeque::new(),
            flushes: Vec::new(),
            done: Vec::new(),
            tickets: 0,
            translation,
            cleaning: false,
            reading: false,
        }
    }

    /// Up to when controller and head are busy, in nanoseconds.
    pub(crate) fn now(&self) -> Ns {
        self.free.max(self.controller)
    }

    pub(crate) fn translation(&self) -> Option<&Translation> {
        self.translation.as_ref()
    }

    pub(crate) fn translation_mut(&mut self) -> Option<&mut Translation> {
        self.translation.as_mut()
    }

    /// What there is to remember of the drive at rest, that is, when [`Engine::run`] has nothing left.
    pub(crate) fn keep(&self, generation: u64) -> Kept {
        let translation = self.translation.as_ref().map(Translation::keep);
        Kept { generation, clock: self.now(), stroke: self.stroke, translation }
    }

    /// Goes on at rest where a drive stopped. A translation layer that is not this drive's begins anew.
    pub(crate) fn resume(&mut self, kept: Kept) {
        self.set_clock(kept.clock);
        self.stroke = kept.stroke;
        if let (Some(fresh), Some(kept)) = (self.translation.clone(), kept.translation)
            && let Some(translation) = fresh.resume(kept)
        {
            self.translation = Some(translation);
        }
    }

    /// The head and the controller are free from `now` on.
    pub(crate) fn set_clock(&mut self, now: Ns) {
        (self.free, self.controller, self.bus, self.written) = (now, now, now, now);
    }

    pub(crate) fn set_cache(&mut self, on: bool) {
        self.cache_on = on;
    }

    /// When bytes that are there at `ready` have passed between host and drive, one after the other's.
    fn interface(&mut self, ready: Ns, len: u64) -> Ns {
        self.bus = self.bus.max(ready) + len as f64 * 1e9 / (self.params.interface_mib_s * 1_048_576.0);
        self.bus
    }

    /// Takes a command. Arrivals do not go back behind what [`Engine::run`] was asked for.
    pub(crate) fn submit(&mut self, command: Command, tally: &mut impl Tally) -> Ticket {
        self.tickets += 1;
        let ticket = self.tickets;
        let ready = command.arrival.max(self.controller) + self.params.overhead_us * 1e3;
        self.controller = ready;
        self.run(ready, tally);
        let pending = Pending { ticket, command, ready };
        if command.zone_time > 0.0 {
            self.queue.push(pending);
        } else {
            self.take(pending, tally);
        }
        ticket
    }

    /// A command whose zone operations are behind it.
    fn take(&mut self, pending: Pending, tally: &mut impl Tally) {
        let Pending { command, ready, .. } = pending;
        match command.what {
            What::Read => match self.answered(command.at, command.len, ready, tally, command.cause) {
                Some(end) => self.complete(&pending, end, tally),
                None => self.queue.push(pending),
            },
            What::Write if self.cache_on => {
                self.forget_read(command.at, command.len);
                self.blocked.push_back(pending);
                self.admit(ready, tally);
            }
            What::Write => {
                self.forget_read(command.at, command.len);
                self.queue.push(pending);
            }
            What::Flush if self.dirty.is_empty() => self.complete(&pending, ready.max(self.written), tally),
            What::Flush => {
                let covers = self.seq;
                self.seq += 1;
                self.flushes.push((covers, pending));
            }
            What::Zone { drops } => {
                if drops {
                    self.cut(command.at, command.len);
                    self.forget_read(command.at, command.len);
                }
                self.complete(&pending, ready, tally);
                self.after_write(ready, tally);
            }
        }
    }

    fn complete(&mut self, pending: &Pending, end: Ns, tally: &mut impl Tally) {
        tally.took(pending.command.cause, end - pending.command.arrival);
        self.done.push((pending.ticket, end));
    }

    /// The completion of a command, once it is decided; it may lie ahead. Told once.
    pub(crate) fn completion(&mut self, ticket: Ticket) -> Option<Ns> {
        let place = self.done.iter().position(|(told, _)| *told == ticket)?;
        Some(self.done.swap_remove(place).1)
    }

    /// Begins everything that the drive begins up to `until`.
    pub(crate) fn run(&mut self, until: Ns, tally: &mut impl Tally) {
        while self.step(until, tally) {}
    }

    /// Does the next job of the head if it begins up to `until`.
    pub(crate) fn step(&mut self, until: Ns, tally: &mut impl Tally) -> bool {
        // The head begins nothing before it is free: no need to look for what that would be.
        if self.free > until {
            return false;
        }
        let earliest = self.queue.iter().map(|pending| pending.ready).fold(f64::INFINITY, f64::min);
        let pressed = self.draining || !self.flushes.is_empty() || !self.blocked.is_empty();
        let dirty = self.next_dirty();
        // Without need the cache waits whether somebody else wants the head.
        let patience = if pressed { 0.0 } else { self.params.destage_after_idle_ms * 1e6 };
        let writes_at = dirty
            .map_or(f64::INFINITY, |(_, extent)| extent.ready.max(self.free + if self.wrote { 0.0 } else { patience }));
        let serves_at = earliest.max(self.free);
        if serves_at.is_infinite() && writes_at.is_infinite() {
            return self.clean_idle(until, tally);
        }
        let first_write = if serves_at <= writes_at { pressed && !self.wrote && writes_at <= serves_at } else { true };
        let start = if first_write { writes_at } else { serves_at };
        if start > until {
            return false;
        }
        self.cleaning = false;
        if first_write {
            let Some(first) = dirty else { return false };
            self.destage(first, start, tally);
        } else {
            self.serve(start, tally);
        }
        true
    }

    fn destage(&mut self, first: (u64, Extent), start: Ns, tally: &mut impl Tally) {
        let (at, extent) = self.nearest_dirty(first, start);
        let mut piece = extent.len.min((self.params.destage_kib * 1024.0) as u64).max(1);
        let mut place = at;
        let mut begin = start;
        if let Some(translation) = self.translation.as_mut() {
            match translation.write(at, extent.len, piece) {
                Route::Place { physical, len } => (place, piece) = (physical, len),
                Route::Full => {
                    self.clean(extent.cause, start, tally);
                    return;
                }
                Route::Merge { physical, len, rest } => {
                    // A stream was left in the middle of its band: the rest is read and written again first.
                    begin = self.rewrite(rest, extent.cause, start, tally);
                    (place, piece) = (physical, len);
                }
            }
        }
        self.wrote = true;
        self.remove(at);
        if extent.len > piece {
            let rest = at + piece;
            self.insert(rest, Extent { len: extent.len - piece, stroke: self.stroke_of(rest), ..extent });
        }
        let end = self.pass(place, piece, begin, extent.cause, None, tally);
        self.written = end;
        self.after_write(end, tally);
    }

    fn serve(&mut self, start: Ns, tally: &mut impl Tally) {
        let Some(index) = self.choose(start) else { return };
        let pending = self.queue.remove(index);
        let Command { what, at, len, cause, zone_time, .. } = pending.command;
        self.wrote = false;
        if zone_time > 0.0 {
            self.end_prefetch(start);
            tally.idle((start - self.free).max(0.0));
            tally.spent(cause, Kind::ZoneOps, zone_time);
            self.free = start + zone_time;
            // The platters turned meanwhile.
            self.next = None;
            let rest = Command { zone_time: 0.0, ..pending.command };
            self.take(Pending { command: rest, ready: self.free, ..pending }, tally);
            return;
        }
        let end = match what {
            What::Read => {
                let mut end = start;
                self.reading = true;
                for (place, len) in self.pieces(at, len) {
                    end = self.pass(place, len, end, cause, None, tally);
                }
                self.reading = false;
                self.remember(at, at + len);
                self.begin_prefetch(at + len, end);
                end
            }
            _ => self.write_through(at, len, cause, start, tally),
        };
        self.complete(&pending, end, tally);
    }

    fn write_through(&mut self, at: u64, len: u64, cause: u8, start: Ns, tally: &mut impl Tally) -> Ns {
        let (mut done, mut end) = (0, start);
        while done < len {
            let route = match self.translation.as_mut() {
                None => Route::Place { physical: at, len },
                Some(translation) => translation.write(at + done, len - done, len - done),
            };
            match route {
                Route::Place { physical, len } => {
                    end = self.pass(physical, len, end, cause, None, tally);
                    done += len;
                }
                Route::Merge { physical, len, rest } => {
                    end = self.rewrite(rest, cause, end, tally);
                    end = self.pass(physical, len, end, cause, None, tally);
                    done += len;
                }
                Route::Full => end = self.clean(cause, end, tally),
            }
        }
        end
    }

    /// The command to serve: the nearest in time of those that are there, or one that waited too long.
    fn choose(&self, start: Ns) -> Option<usize> {
        let there = || {
            self.queue
                .iter()
                .enumerate()
                .filter(|(_, pending)| pending.ready <= start)
                .take(self.params.queue_depth as usize)
        };
        let (first, oldest) = there().next()?;
        if start - oldest.ready > self.params.queue_patience_ms * 1e6 || there().nth(1).is_none() {
            return Some(first);
        }
        let costs = there().map(|(index, pending)| {
            let command = pending.command;
            let cost = if command.zone_time > 0.0 {
                0.0
            } else {
                let place = self.physical(command.at);
                self.reach(place, self.mechanics.stroke(place), start).iter().sum::<f64>()
            };
            (index, cost)
        });
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
    }

    /// Seek and rotation from where the head is to a physical address, which lies at `stroke`.
    fn reach(&self, place: u64, stroke: f64, start: Ns) -> [Ns; 2] {
        if self.next == Some(place) && start <= self.free {
            return [0.0, 0.0];
        }
        let seek = self.mechanics.seek(self.stroke, stroke);
        [seek, self.mechanics.rotation(stroke, start + seek)]
    }

    fn reach_stroke(&self, stroke: f64, start: Ns) -> Ns {
        let seek = self.mechanics.seek(self.stroke, stroke);
        seek + self.mechanics.rotation(stroke, start + seek)
    }

    /// Goes to a physical address and passes over it; returns when that is done. Booked as `kind` where that is given.
    fn pass(&mut self, place: u64, len: u64, start: Ns, cause: u8, kind: Option<Kind>, tally: &mut impl Tally) -> Ns {
        self.end_prefetch(start);
        tally.idle((start - self.free).max(0.0));
        let stroke = self.mechanics.stroke(place);
        let [seek, rotation] = self.reach(place, stroke, start);
        let transfer = self.mechanics.transfer_from(place, stroke, len);
        for (what, ns) in [(Kind::Seek, seek), (Kind::Rotation, rotation), (Kind::Transfer, transfer)] {
            tally.spent(cause, kind.unwrap_or(what), ns);
        }
        if seek > 0.0 && kind.is_none() {
            tally.sought(cause, self.reading);
        }
        self.free = start.max(self.free) + seek + rotation + transfer;
        self.stroke = self.mechanics.stroke(place + len);
        self.next = Some(place + len);
        self.free
    }

    // ---- drive-managed drives

    fn physical(&self, at: u64) -> u64 {
        self.translation.as_ref().map_or(at, |translation| translation.native(at))
    }

    fn logical(&self, place: u64) -> u64 {
        self.translation.as_ref().map_or(place, |translation| translation.logical(place))
    }

    /// Whether some of these bytes are not where their address says.
    fn scattered(&self, at: u64, end: u64) -> bool {
        self.translation.as_ref().is_some_and(|translation| translation.scattered(at, end))
    }

    fn pieces(&self, at: u64, len: u64) -> Vec<(u64, u64)> {
        match &self.translation {
            None => vec![(at, len)],
            Some(translation) => translation.read(at, len),
        }
    }

    /// Reads and writes again the rest of a band.
    fn rewrite(&mut self, (place, len): (u64, u64), cause: u8, start: Ns, tally: &mut impl Tally) -> Ns {
        let read = self.pass(place, len, start, cause, Some(Kind::Cleaning), tally);
        self.pass(place, len, read, cause, Some(Kind::Cleaning), tally)
    }

    /// Cleans one band: reads it and what the cache has of it, writes it as a whole.
    fn clean(&mut self, cause: u8, start: Ns, tally: &mut impl Tally) -> Ns {
        let Some(job) = self.translation.as_mut().and_then(Translation::clean) else { return start };
        let mut end = self.pass(job.band.0, job.band.1, start, cause, Some(Kind::Cleaning), tally);
        for (place, len) in job.cached {
            end = self.pass(place, len, end, cause, Some(Kind::Cleaning), tally);
        }
        self.pass(job.band.0, job.band.1, end, cause, Some(Kind::Cleaning), tally)
    }

    fn clean_idle(&mut self, until: Ns, tally: &mut impl Tally) -> bool {
        // Without an end of the time there is no idling: host think time counts as none.
        if until.is_infinite() || !self.translation.as_ref().is_some_and(Translation::has_work) {
            return false;
        }
        let start = self.free + if self.cleaning { 0.0 } else { self.params.clean_after_idle_ms * 1e6 };
        if start > until {
            return false;
        }
        self.cleaning = true;
        self.clean(imbrex_device::Cause::Cleaning as u8, start, tally);
        true
    }
}

#[cfg(test)]
mod tests;
