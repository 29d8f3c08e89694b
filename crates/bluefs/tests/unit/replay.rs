//! A recorded trace of `db_bench` through the policy of sharing and cleaning: [`crate::policy::share`]'s parking and [`crate::policy::cleaning`]'s
//! choices as they are, over zones that are only counted. What the mechanism in [`crate::clean`] and [`crate::space`] does
//! around them is done here in a few lines, without a drive: the same questions are asked in the same order.
//!
//! The trace says what it is (`tests/traces/db_bench.txt`). Zones hold four tables, as 256 MiB hold tables of 64 MiB. Headers
//! are left out: at this scale one would take a thirtieth of its table.

use crate::meta::{Movable, Serial};
use crate::policy::cleaning::{ahead, least_dead};
use crate::policy::share::{Class, Parking, worth_parking};
use crate::policy::{BUDGET, RESERVE, WAL_SPARE};
use imbrex_device::ZoneId;
use imbrex_zones::OpenZone;
use std::collections::{BTreeMap, BTreeSet};

const TRACE: &str = include_str!("../traces/db_bench.txt");
const BLOCK: u64 = 4096;
const ZONE: u64 = 128 * BLOCK;
/// The cleaner's and the journal's numbers, which no file has.
const CLEANER: Serial = 0;
const FIRST: Serial = 10;
const MOVED: Class = Class::Table(6);

/// A line of the trace.
enum Event {
    Append(Serial, Class, u64),
    Close(Serial),
    Delete(Serial),
}

fn events() -> Vec<Event> {
    let mut events = Vec::new();
    let mut classes = Vec::new();
    let number = |text: &str| FIRST + text.parse::<Serial>().unwrap();
    let bytes = |text: &str| text.parse::<u64>().unwrap() * BLOCK;
    for line in TRACE.lines().filter(|line| !line.starts_with('#')) {
        let (what, rest) = line.split_once(' ').unwrap();
        match what {
            "x" => events.push(Event::Close(number(rest))),
            "d" => {
                for range in rest.split(' ') {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    events.extend((number(first)..=number(last)).map(Event::Delete));
                }
            }
            _ if what.starts_with('+') => {
                let file = number(&what[1..]);
                events.push(Event::Append(file, classes[(file - FIRST) as usize], bytes(rest)));
            }
            _ => {
                let class = if what == "w" { Class::Wal } else { Class::Table(what.parse().unwrap()) };
                let file = FIRST + classes.len() as Serial;
                classes.push(class);
                events.push(Event::Append(file, class, bytes(rest.trim_end_matches('+'))));
                if !rest.ends_with('+') {
                    events.push(Event::Close(file));
                }
            }
        }
    }
    events
}

/// The most bytes that are alive at one moment.
fn most_alive(events: &[Event]) -> u64 {
    let (mut alive, mut most) = (0, 0);
    let mut files: BTreeMap<Serial, u64> = BTreeMap::new();
    for event in events {
        match event {
            Event::Append(file, _, bytes) => {
                *files.entry(*file).or_default() += bytes;
                alive += bytes;
            }
            Event::Delete(file) => alive -= files.remove(file).unwrap(),
            Event::Close(_) => {}
        }
        most = most.max(alive);
    }
    most
}

/// A zone: whose bytes stand in it, and whether somebody writes to it.
#[derive(Default)]
struct Zone {
    pieces: Vec<(Serial, Class, u64)>,
    busy: bool,
}

/// Zones that are not for any file.
#[derive(Clone, Copy)]
struct Rules {
    /// The journal's, for good.
    journal: u32,
    /// Those that a file leaves for the journal's next zone and for cleaning, and those that cleaning leaves.
    reserve: u32,
    left_by_cleaning: u32,
    /// Those that a table leaves for write-ahead logs.
    logs: u32,
}

const TODAY: Rules = Rules { journal: 2, reserve: RESERVE, left_by_cleaning: BUDGET.metadata, logs: WAL_SPARE };
struct Drive {
    rules: Rules,
    capacity: u64,
    zones: Vec<Zone>,
    free: BTreeSet<u32>,
    open: BTreeMap<Serial, OpenZone>,
    parking: Parking,
    victim: Option<u32>,
    last: Serial,
    /// Bytes written for files, moved, and written for tables since zones were last cleaned ahead.
    written: u64,
    moved: u64,
    unpaid: u64,
    /// Bytes that were moved while one append waited, at most.
    longest_wait: u64,
    alive: u64,
    /// Space efficiency when most bytes were alive.
    fullest: (u64, f64),
}

impl Drive {
    fn new(zones: u32, capacity: u64, rules: Rules) -> Drive {
        Drive {
            rules,
            capacity,
            zones: (0..zones).map(|_| Zone::default()).collect(),
            free: (rules.journal..zones).collect(),
            open: BTreeMap::new(),
            parking: Parking::new(capacity),
            victim: None,
            last: 0,
            written: 0,
            moved: 0,
            unpaid: 0,
            longest_wait: 0,
            alive: 0,
            fullest: (0, 0.0),
        }
    }

    fn free_beside(&self, kept: u32) -> u32 {
        (self.free.len() as u32).saturating_sub(kept)
    }

    fn take_zone(&mut self, reserve: u32) -> Option<OpenZone> {
        let zone = if self.free_beside(reserve) > 0 { self.free.pop_first() } else { None };
        zone.map(|zone| OpenZone { zone: ZoneId(zone), life: 1, at: 0, capacity: self.capacity })
    }

    fn zone(&mut self, zone: u32) -> &mut Zone {
        &mut self.zones[zone as usize]
    }

    fn give_up_if_dead(&mut self, zone: u32) {
        if self.zone(zone).pieces.is_empty() && !self.zone(zone).busy {
            self.parking.forget(zone);
            self.free.insert(zone);
        }
    }

    fn victim_now(&mut self, least: u64) -> Option<u32> {
        for (zone, id) in self.zones.iter().zip(0..) {
            let tables = zone.pieces.iter().all(|(_, class, _)| matches!(class, Class::Table(_)));
            let live = zone.pieces.iter().map(|(_, _, bytes)| bytes).sum();
            let movable = zone.pieces.last().filter(|_| tables && !zone.busy);
            self.parking.note(id, movable.map(|(last, _, _)| Movable { live, last: *last, framed: false }));
        }
        Some(self.parking.candidates().victim(self.last + 1, least, |_| true)?.zone)
    }

    /// See `Core::clean`.
    fn clean(&mut self, least: u64, budget: u64) -> Option<u64> {
        let before = self.victim.take().filter(|zone| !self.zones[*zone as usize].pieces.is_empty());
        let zone = before.or_else(|| self.victim_now(least))?;
        self.parking.forget(zone);
        let mut into: Option<OpenZone> = None;
        let mut moved = 0;
        while moved < budget && !self.zone(zone).pieces.is_empty() {
            let (file, class, mut bytes) = self.zone(zone).pieces.remove(0);
            moved += bytes;
            while bytes > 0 {
                let mut open = match into.filter(|open| open.capacity > open.at) {
                    Some(open) => open,
                    None => {
                        into.iter().for_each(|open| self.zones[open.zone.0 as usize].busy = false);
                        let parked = self.parking.take(CLEANER, MOVED, BLOCK, false);
                        parked
                            .or_else(|| self.take_zone(self.rules.left_by_cleaning))
                            .expect("the reserve has a zone to move to")
                    }
                };
                let n = bytes.min(open.capacity - open.at);
                open.at += n;
                bytes -= n;
                self.zone(open.zone.0).pieces.push((file, class, n));
                self.zone(open.zone.0).busy = true;
                into = Some(open);
            }
        }
        if let Some(open) = into {
            self.zone(open.zone.0).busy = false;
            self.parking.park(open, MOVED);
        }
        if self.zone(zone).pieces.is_empty() {
            self.give_up_if_dead(zone);
        } else {
            self.victim = Some(zone);
        }
        self.moved += moved;
        Some(moved)
    }

    /// See `Core::make_room`.
    fn make_room(&mut self, leave: u32) {
        while self.free_beside(self.rules.reserve + leave) == 0
            && self.clean(least_dead(self.capacity), u64::MAX).is_some()
        {}
    }

    /// See `Core::clean_ahead`.
    fn clean_ahead(&mut self) {
        let (free, zones) = (self.free_beside(self.rules.reserve + self.rules.logs), self.zones.len() as u32);
        if let Some(ahead) = ahead(free, zones, self.capacity, std::mem::take(&mut self.unpaid)) {
            self.clean(ahead.least, ahead.budget);
        }
    }

    /// False: there is no space.
    fn append(&mut self, file: Serial, class: Class, mut bytes: u64) -> bool {
        let table = matches!(class, Class::Table(_));
        let moved = self.moved;
        if file > self.last {
            self.last = file;
            self.make_room(if table { self.rules.logs } else { 0 });
        }
        self.alive += bytes;
        self.written += bytes;
        while bytes > 0 {
            let open = self.open.remove(&file);
            let mut open = match open.filter(|open| open.at < open.capacity) {
                Some(open) => open,
                None => {
                    open.iter().for_each(|open| self.zones[open.zone.0 as usize].busy = false);
                    if table {
                        self.clean_ahead();
                    }
                    let mut taken = self.parking.take(file, class, BLOCK, false);
                    if taken.is_none() {
                        self.make_room(0);
                        taken =
                            self.take_zone(self.rules.reserve).or_else(|| self.parking.take(file, class, BLOCK, true));
                    }
                    let Some(open) = taken else { return false };
                    self.zone(open.zone.0).pieces.push((file, class, 0));
                    self.zone(open.zone.0).busy = true;
                    open
                }
            };
            let n = bytes.min(open.capacity - open.at);
            open.at += n;
            bytes -= n;
            self.zone(open.zone.0).pieces.last_mut().unwrap().2 += n;
            self.unpaid += if table { n } else { 0 };
            self.open.insert(file, open);
        }
        self.longest_wait = self.longest_wait.max(self.moved - moved);
        if self.alive > self.fullest.0 {
            let used = (self.zones.len() - self.free.len()) as u64 * self.capacity;
            self.fullest = (self.alive, self.alive as f64 / used as f64);
        }
        true
    }

    fn close(&mut self, file: Serial, class: Class) {
        let Some(open) = self.open.remove(&file) else { return };
        self.zone(open.zone.0).busy = false;
        if open.capacity - open.at >= worth_parking(open.capacity) {
            self.parking.park(open, class);
        }
    }

    fn delete(&mut self, file: Serial) {
        for zone in 0..self.zones.len() as u32 {
            let pieces = &mut self.zone(zone).pieces;
            let gone: u64 = pieces.extract_if(.., |piece| piece.0 == file).map(|piece| piece.2).sum();
            self.alive -= gone;
            if gone > 0 {
                self.give_up_if_dead(zone);
            }
        }
    }
}

/// The trace on a drive of so many zones of so many bytes; `None`: it became full.
fn replay(events: &[Event], zones: u32, capacity: u64, rules: Rules) -> Option<Drive> {
    let mut drive = Drive::new(zones, capacity, rules);
    let mut classes = BTreeMap::new();
    for event in events {
        match *event {
            Event::Append(file, class, bytes) => {
                classes.insert(file, class);
                drive.append(file, class, bytes).then_some(())?;
            }
            Event::Close(file) => drive.close(file, classes[&file]),
            Event::Delete(file) => {
                drive.close(file, classes[&file]);
                drive.delete(file);
            }
        }
    }
    Some(drive)
}

/// The trace on a drive that is so full when most bytes are alive; it must not become full.
fn on_a_drive(full: f64) -> Drive {
    let events = events();
    let zones = (most_alive(&events) as f64 / full / ZONE as f64).round() as u32;
    let drive = replay(&events, zones, ZONE, TODAY).expect("there is space");
    assert!(drive.moved > 0, "nothing was cleaned: the drive was too large");
    drive
}

impl Drive {
    fn moving(&self) -> f64 {
        1.0 + self.moved as f64 / self.written as f64
    }
}

#[test]
fn a_drive_that_is_85_percent_full_is_used_well_and_nobody_waits_for_a_whole_zone() {
    let drive = on_a_drive(0.85);
    assert!(drive.fullest.1 >= 0.85, "space efficiency {:.3}", drive.fullest.1);
    assert!(drive.moving() <= 1.15, "WA of moving {:.3}", drive.moving());
    // Without cleaning ahead it is 0.94 of a zone.
    assert!(drive.longest_wait <= ZONE / 2, "one append waited for {} bytes to be moved", drive.longest_wait);
}

#[test]
fn the_victims_are_well_chosen() {
    let moving = on_a_drive(0.92).moving();
    // 1.053; of the worst zones that are worth it at all 1.068.
    assert!(moving <= 1.06, "WA of moving {moving:.4}");
}

#[test]
fn nothing_is_moved_while_there_are_empty_zones() {
    let events = events();
    let zones = (most_alive(&events) / ZONE * 3) as u32;
    assert_eq!(replay(&events, zones, ZONE, TODAY).expect("there is space").moved, 0);
}

/// The trace as several threads write it: a table is closed only when so many tables behind it have begun.
fn of_writers(events: &[Event], writers: usize) -> Vec<Event> {
    let mut out = Vec::new();
    let mut waiting = std::collections::VecDeque::new();
    let mut tables = BTreeSet::new();
    for event in events {
        match *event {
            Event::Close(file) if tables.contains(&file) => {
                waiting.push_back(file);
                if waiting.len() >= writers {
                    out.extend(waiting.pop_front().map(Event::Close));
                }
            }
            Event::Close(file) => out.push(Event::Close(file)),
            Event::Delete(file) => {
                waiting.retain(|other| *other != file);
                out.push(Event::Delete(file));
            }
            Event::Append(file, class, bytes) => {
                if matches!(class, Class::Table(_)) {
                    tables.insert(file);
                }
                out.push(Event::Append(file, class, bytes));
            }
        }
    }
    out
}

/// What comes before more than so many bytes are alive.
fn before(events: &[Event], limit: u64) -> &[Event] {
    let mut alive = 0;
    let mut files: BTreeMap<Serial, u64> = BTreeMap::new();
    let over = events.iter().position(|event| {
        match event {
            Event::Append(file, _, bytes) => {
                *files.entry(*file).or_default() += bytes;
                alive += bytes;
            }
            Event::Delete(file) => alive -= files.remove(file).unwrap(),
            Event::Close(_) => {}
        }
        alive > limit
    });
    &events[..over.unwrap_or(events.len())]
}

/// Drives of 70 to 78 zones, of which 88 % are alive at the most, take the trace of three writers of tables; MANIFEST and info logs have a zone. All of the trace stands
/// in smaller zones, and what comes before that peak in zones of four tables. With one zone more in reserve the smallest drive becomes full.
#[test]
fn where_the_journal_has_a_ring_nine_tenths_of_a_small_drive_can_be_alive() {
    let all = of_writers(&events(), 3);
    let most = most_alive(&all);
    let fits = |rules: Rules, zones: u32| {
        let rules = Rules { journal: rules.journal + 1, ..rules };
        let small = (most * 100 / 88 / u64::from(zones)).next_multiple_of(BLOCK);
        let growing = before(&all, u64::from(zones) * ZONE * 88 / 100);
        assert!(most_alive(growing) > u64::from(zones) * ZONE * 87 / 100, "the drive is filled");
        [replay(&all, zones, small, rules), replay(growing, zones, ZONE, rules)]
    };
    for zones in [70, 72, 74, 76, 78] {
        for drive in fits(TODAY, zones) {
            let moving = drive.expect("there is space").moving();
            // 1.13 to 1.17.
            assert!(moving <= 1.2, "{zones} zones: WA of moving {moving:.3}");
        }
    }
    let more = Rules { reserve: TODAY.reserve + 1, left_by_cleaning: 1, ..TODAY };
    assert!(fits(more, 70)[1].is_none(), "the reserve is not what refuses room: this test says nothing");
}
