//! The crash explorer on a drive of which some cannot be read any more when the store is opened again: any block, record or row of records, a whole zone,
//! a copy of the journal; for that opening only, or for good. What stood there may be lost, and nothing else; whatever of it had been
//! acknowledged is told, and goes on being told whatever is done then; no byte is ever another one; and what can be read again is there again.
//!
//! `IMBREX_CHUNK_STATES` says how many states it looks at (1,100: a fifteenth of that of each script on each drive), `IMBREX_CRASH_ROUNDS` of how many seeds.

use crate::crash_support::bad::Bad;
use crate::crash_support::{
    Content, Expected, Op, Scripted, cleaning, config, expected, open, random, short, through, turnover, zns,
};
use crate::support::{bytes, id};
use imbrex_chunkstore::format::{BLOCK, Header};
use imbrex_chunkstore::{Append, ChunkId, ChunkInfo, ChunkStore, Durability, Error, StreamType};
use imbrex_crashkit::{Config, Crash, History, Log, Plan, Subject, explore, seeds};
use imbrex_device::{AlignedBuf, Cause, Drive, ZoneId, ZonedDevice, report_all};
use imbrex_zones::ZoneHeader;
use imbrex_zones::log::format::{LogHead, read_zone};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The script, and damage when it is looked at.
struct Damaged(Scripted);

/// What stands on the drive: records of chunks and of the journal, with their addresses.
#[derive(Default)]
struct OnDrive {
    data: Vec<(u64, Header)>,
    /// By metazone.
    meta: BTreeMap<u32, Vec<u64>>,
}

fn look(device: &dyn ZonedDevice) -> OnDrive {
    let geometry = device.geometry().clone();
    let mut found = OnDrive::default();
    for zone in report_all(device).unwrap() {
        let wp = zone.wp.unwrap_or(0) as usize / BLOCK * BLOCK;
        if wp == 0 {
            continue;
        }
        let start = geometry.start(zone.id);
        let mut all = AlignedBuf::zeroed(wp);
        device.read_at(&mut all, start, Cause::Other.into()).unwrap();
        if let Some(head) = LogHead::decode(&all[..BLOCK]) {
            let places = found.meta.entry(zone.id.0).or_default();
            places.push(start);
            read_zone(device, &zone, (head.copy, head.life), &mut |at, _, _| places.push(start + at)).unwrap();
        }
        let Some(ZoneHeader { life, .. }) = ZoneHeader::decode(&all) else { continue };
        for at in (0..wp).step_by(BLOCK) {
            if let Ok(header) = Header::decode(&all[at..], life, (at / BLOCK) as u32) {
                found.data.push((start + at as u64, header));
            }
        }
    }
    found
}

/// What is done to the drive.
#[derive(Clone, Debug)]
enum Damage {
    /// These blocks of datazones, from one address up to another.
    Blocks(u64, u64),
    /// A block of one copy of the metadata: nothing may be lost by it.
    Journal(u64),
    Offline(u32),
}

fn draw(rng: &mut ChaCha8Rng, on: &OnDrive, device: &dyn ZonedDevice) -> Option<Damage> {
    let block = BLOCK as u64;
    let any = |rng: &mut ChaCha8Rng| {
        // What was written last is what is not known elsewhere.
        let newest = on.data.iter().max_by_key(|(_, header)| header.sequence)?;
        let i = rng.random_range(0..on.data.len());
        Some(if rng.random_bool(0.3) { *newest } else { on.data[i] })
    };
    match rng.random_range(0..10) {
        0 => {
            let zones: Vec<u32> = on.meta.keys().copied().collect();
            let places = &on.meta[zones.get(rng.random_range(0..zones.len().max(1)))?];
            Some(Damage::Journal(places[rng.random_range(0..places.len())]))
        }
        1 | 2 => Some(Damage::Offline(device.geometry().zone_of(any(rng)?.0).0)),
        kind => {
            let (at, header) = any(rng)?;
            let end = at + u64::from(header.blocks()) * block;
            let limit = device.geometry().start(ZoneId(device.geometry().zone_of(at).0 + 1));
            Some(match kind {
                3..6 => {
                    let bad = at + rng.random_range(0..u64::from(header.blocks())) * block;
                    Damage::Blocks(bad, bad + block)
                }
                6 | 7 => Damage::Blocks(at, end),
                _ => Damage::Blocks(at, (end + rng.random_range(0..20) * block).min(limit)),
            })
        }
    }
}

impl Damage {
    fn inflict(&self, bad: &Bad) {
        match *self {
            Damage::Blocks(from, to) => bad.lose(from, to),
            Damage::Journal(at) => bad.lose(at, at + BLOCK as u64),
            Damage::Offline(zone) => bad.lose_zone(ZoneId(zone)),
        }
    }

    /// The bytes of chunks that records hold which it touches, by chunk.
    fn touches(&self, on: &OnDrive, device: &dyn ZonedDevice) -> BTreeMap<ChunkId, Vec<Range<u32>>> {
        let mut touched: BTreeMap<ChunkId, Vec<Range<u32>>> = BTreeMap::new();
        for (at, header) in &on.data {
            let end = at + u64::from(header.blocks()) * BLOCK as u64;
            let hit = match *self {
                Damage::Blocks(from, to) => *at < to && from < end,
                Damage::Journal(_) => false,
                Damage::Offline(zone) => device.geometry().zone_of(*at).0 == zone,
            };
            if hit {
                touched.entry(header.chunk).or_default().push(header.offset..header.offset + header.data);
            }
        }
        touched
    }
}

/// A chunk as it is found: what can be read of it, by place.
struct FoundChunk {
    info: ChunkInfo,
    bytes: Vec<Option<u8>>,
}

/// Where records begin and end, by chunk.
type Cuts = BTreeMap<ChunkId, BTreeSet<usize>>;

fn read(store: &ChunkStore, cuts: &Cuts) -> Result<BTreeMap<ChunkId, FoundChunk>, String> {
    let mut all = BTreeMap::new();
    for info in store.list(None, usize::MAX) {
        let mut out = vec![0; info.len as usize];
        let bytes = match store.read(info.id, 0, &mut out) {
            Ok(_) => out.into_iter().map(Some).collect(),
            Err(Error::Damaged { .. }) => {
                let mut bytes = vec![None; out.len()];
                // No piece belongs to two records, nor to more than two slices.
                let mut ends: BTreeSet<usize> = (0..out.len()).step_by(1024).chain([out.len()]).collect();
                ends.extend(cuts.get(&info.id).into_iter().flatten().filter(|at| **at < out.len()));
                for (at, to) in ends.iter().zip(ends.iter().skip(1)).map(|(at, to)| (*at, *to)) {
                    match store.read(info.id, at as u64, &mut out[at..to]) {
                        Ok(_) => (at..to).for_each(|i| bytes[i] = Some(out[i])),
                        Err(Error::Damaged { .. }) => {}
                        Err(error) => return Err(error.to_string()),
                    }
                }
                bytes
            }
            Err(error) => return Err(error.to_string()),
        };
        all.insert(info.id, FoundChunk { info, bytes });
    }
    Ok(all)
}

/// Whether that is this content, but for bytes that cannot be read, and for an end that is in doubt.
fn is(found: &FoundChunk, content: &Content, doubted: bool) -> bool {
    let Some((bytes, sealed, stream)) = content else { return false };
    let same = |(found, byte): (&Option<u8>, &u8)| found.is_none_or(|found| found == *byte);
    let shorter = found.bytes.len() < bytes.len() && doubted;
    (found.bytes.len() == bytes.len() || shorter)
        && found.info.sealed == *sealed
        && found.info.stream.number() == *stream
        && found.bytes.iter().zip(bytes).all(same)
}

/// What is lost by what the store says: chunks with bytes, and those whose ends are in doubt.
fn told(store: &ChunkStore) -> (BTreeMap<ChunkId, Vec<Range<u32>>>, BTreeSet<ChunkId>) {
    let (mut ranges, mut doubted) = (BTreeMap::<_, Vec<_>>::new(), BTreeSet::new());
    for one in store.lost() {
        match one.open {
            true => drop(doubted.insert(one.id)),
            false => ranges.entry(one.id).or_default().push(one.offset..one.offset + one.len),
        }
    }
    (ranges, doubted)
}

/// Bytes of these chunks that the scrub has marked.
fn marked(store: &ChunkStore) -> BTreeMap<ChunkId, Vec<Range<u32>>> {
    let mut marked = BTreeMap::<_, Vec<_>>::new();
    for one in store.scrubbed().damaged {
        marked.entry(one.id).or_default().push(one.offset..one.offset + one.len);
    }
    marked
}

fn holds(ranges: &BTreeMap<ChunkId, Vec<Range<u32>>>, chunk: &ChunkId, at: u32) -> bool {
    ranges.get(chunk).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&at)))
}

/// What a look goes on with.
struct Scene {
    bad: Arc<Bad>,
    drive: Drive,
    damage: Damage,
    /// It passes before the store is opened for the second time.
    passes: bool,
    touched: BTreeMap<ChunkId, Vec<Range<u32>>>,
    cuts: Cuts,
}

impl Scene {
    /// Every byte that cannot be read is told to be lost. What still stands where it was damaged, in a zone that can be read, nobody may have tried to
    /// read yet; a scrub marks it.
    fn is_told(&self, store: &ChunkStore, chunk: &FoundChunk, scrubbed: bool) -> Result<(), String> {
        let (lost, marked, id) = (told(store).0, marked(store), chunk.info.id);
        let zone = match self.damage {
            Damage::Blocks(from, _) => Some(self.bad.geometry().zone_of(from).0),
            Damage::Journal(_) | Damage::Offline(_) => None,
        };
        let places = store.places(id).map_err(|e| e.to_string())?;
        let is_there = |at: u32| {
            let here = places.iter().find(|place| (place.offset..place.offset + place.len).contains(&at));
            here.is_some_and(|place| Some(place.zone) == zone)
        };
        let untold = |at: &u32| {
            let known = holds(&lost, &id, *at) || is_there(*at) && (!scrubbed || holds(&marked, &id, *at));
            chunk.bytes[*at as usize].is_none() && !known
        };
        match (0..chunk.bytes.len() as u32).find(untold) {
            Some(at) => Err(format!(
                "byte {at} of chunk {id} cannot be read, lost are {:?}, marked {:?}; it stands at {places:?}",
                lost.get(&id),
                marked.get(&id)
            )),
            None => Ok(()),
        }
    }
}

/// Everything is what it may be, what is missing stood in the damaged place, and it is told.
fn compare(store: &ChunkStore, expected: &Expected, scene: &Scene) -> Result<BTreeMap<ChunkId, FoundChunk>, String> {
    let Scene { touched, cuts, .. } = scene;
    let all = read(store, cuts)?;
    let (_, doubted) = told(store);
    let problems = store.check(|_, _| {}).map_err(|e| e.to_string())?.problems;
    for (chunk, (states, must)) in expected {
        let allowed = &states[*must..];
        let brief = || allowed.iter().map(|s| s.as_ref().map(|(b, sealed, _)| (b.len(), *sealed))).collect::<Vec<_>>();
        let Some(found) = all.get(chunk) else {
            match allowed.contains(&None) {
                true => continue,
                false => return Err(format!("chunk {chunk} is gone, and may be {:?}", brief())),
            }
        };
        let doubt = doubted.contains(chunk);
        let of_it = touched.get(chunk).map_or(&[][..], |ranges| ranges);
        if !allowed.iter().any(|content| is(found, content, doubt && !of_it.is_empty())) {
            let unread = found.bytes.iter().filter(|byte| byte.is_none()).count();
            return Err(format!(
                "chunk {chunk} is {:?}, {unread} bytes unread, in doubt {doubt}; touched {of_it:?}, and may be {:?}",
                (found.info.len, found.info.sealed),
                brief()
            ));
        }
        let lost = |i: usize| found.bytes[i].is_none();
        if let Some(i) = (0..found.bytes.len()).find(|i| lost(*i) && !of_it.iter().any(|r| r.contains(&(*i as u32)))) {
            return Err(format!("byte {i} of chunk {chunk} cannot be read, and did not stand there: {of_it:?}"));
        }
        let named = problems.iter().any(|what| what.contains(&chunk.to_string()));
        if (doubt || (0..found.bytes.len()).any(lost)) && !named {
            return Err(format!("the check does not name chunk {chunk}: {problems:?}"));
        }
        scene.is_told(store, found, false)?;
    }
    match all.keys().find(|chunk| !expected.contains_key(*chunk)) {
        Some(strange) => Err(format!("chunk {strange} was never made")),
        None => Ok(all),
    }
}

impl Subject for Damaged {
    type Op = Op;

    fn format(&self, drive: &Drive) -> Result<(), String> {
        self.0.format(drive)
    }

    fn workload(&self, drive: Drive, seed: u64, log: &Log<Op>) -> Result<(), String> {
        self.0.workload(drive, seed, log)
    }

    fn recover(&self, drive: Drive) -> Result<(), String> {
        self.0.recover(drive)
    }

    fn check(&self, drive: Drive, crash: Crash, history: &History<Op>) -> Result<(), String> {
        let on = look(drive.device.as_ref());
        let seed = on.data.iter().map(|(at, h)| at ^ h.sequence).fold(crash as u64, |a, b| a.rotate_left(5) ^ b);
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ history.entries().len() as u64);
        let Some(damage) = draw(&mut rng, &on, drive.device.as_ref()) else { return Ok(()) };
        let passes = rng.random_bool(0.5);
        let touched = damage.touches(&on, drive.device.as_ref());
        let mut cuts = Cuts::new();
        for (_, header) in &on.data {
            let (start, end) = (header.offset as usize, (header.offset + header.data) as usize);
            cuts.entry(header.chunk).or_default().extend([start, end]);
        }
        let bad = Bad::new(drive.device.clone());
        let drive = Drive { device: bad.clone(), survivor: drive.survivor };
        damage.inflict(&bad);
        let mut scene = Scene { bad, drive, damage, passes, touched, cuts };
        look_at(&mut scene, &mut rng, &expected(history).0).map_err(|why| {
            format!("{why}\nwith {:?}, which passes: {passes}\nof {:?}", scene.damage, history.entries())
        })
    }
}

/// Opens the store, goes on with it, and opens it again.
fn look_at(scene: &mut Scene, rng: &mut ChaCha8Rng, first: &Expected) -> Result<(), String> {
    let mut store = open(&scene.drive)?;
    let mut expected = first.clone();
    let mut changed = BTreeSet::new();
    let all = compare(&store, &expected, scene)?;
    // What was found is what is there from now on.
    for (chunk, (states, must)) in &mut expected {
        let doubted = told(&store).1.contains(chunk);
        let found = all.get(chunk);
        let here = states[*must..].iter().position(|s| found.map_or(s.is_none(), |found| is(found, s, doubted)));
        let state = states[*must + here.unwrap_or(0)].clone();
        (*states, *must) = (vec![state], 0);
    }
    let before = told(&store);
    for step in 0..rng.random_range(1..5) {
        let chunks: Vec<ChunkId> = expected.iter().filter(|(_, (s, _))| s[0].is_some()).map(|(id, _)| *id).collect();
        let chosen = chunks.get(rng.random_range(0..chunks.len().max(1))).copied();
        let kind = rng.random_range(0..8);
        if (4..7).contains(&kind) {
            changed.extend(chosen);
        }
        match (kind, chosen) {
            (0, _) => store.checkpoint().map_err(|e| format!("step {step}: {e}"))?,
            (1, _) => drop(store.clean(200 << 10)),
            (2 | 3, _) => {
                drop(store);
                store = open(&scene.drive)?;
            }
            (7, _) => drop(store.scrub_on(u64::MAX).map_err(|e| format!("step {step}: {e}"))?),
            (4, Some(chunk)) => {
                store.delete(chunk).map_err(|e| format!("step {step}: {e}"))?;
                expected.insert(chunk, (vec![None], 0));
            }
            (5, Some(chunk)) => {
                let info = store.stat(chunk).map_err(|e| e.to_string())?;
                store.seal(chunk).map_err(|e| format!("step {step}: {e}"))?;
                if let Some((bytes, sealed, _)) = &mut expected.get_mut(&chunk).unwrap().0[0] {
                    bytes.truncate(info.len as usize);
                    *sealed = true;
                }
            }
            (_, Some(chunk)) => append(&store, chunk, &mut expected, scene)?,
            _ => {}
        }
        compare(&store, &expected, scene).map_err(|why| format!("step {step}: {why}"))?;
    }
    // What was told is told as long as its chunk is there, unless somebody knew better.
    let now = told(&store);
    for (chunk, ranges) in before.0.iter().filter(|(chunk, _)| store.stat(**chunk).is_ok()) {
        let here = now.0.get(chunk).map_or(&[][..], |ranges| ranges);
        let same = |r: &Range<u32>| here.iter().any(|h| h.start <= r.start && r.end <= h.end);
        if expected[chunk].0[0].is_some() && !ranges.iter().all(same) {
            return Err(format!("of chunk {chunk} {ranges:?} was told to be lost, and now {here:?}"));
        }
    }
    if scene.passes {
        scene.bad.heal();
        // What can be read again is there again, as it was when it could not be read.
        for (chunk, states) in first.iter().filter(|(chunk, _)| !changed.contains(chunk)) {
            expected.insert(*chunk, states.clone());
        }
    }
    drop(store);
    let store = open(&scene.drive)?;
    compare(&store, &expected, scene).map_err(|why| format!("opened again: {why}"))?;
    // It goes on working.
    let after = id(999);
    let more = store.create(after, StreamType::DATA).and_then(|()| store.append(after, &bytes(9000, 1)).map(drop));
    match more {
        Err(error) if error.is_no_space() => drop(store.delete(after)),
        other => other.map_err(|e| format!("writing after the crash: {e}"))?,
    }
    // A whole pass of the scrub, wherever it was, and all that cannot be read is known.
    for _ in 0..2 {
        store.scrub_on(u64::MAX).map_err(|e| format!("scrubbing: {e}"))?;
    }
    for found in read(&store, &scene.cuts)?.values() {
        scene.is_told(&store, found, true).map_err(|why| format!("scrubbed: {why}"))?;
    }
    store.close().map_err(|e| e.to_string())?;
    drop(store);
    let store = open(&scene.drive)?;
    if store.stat(after).is_ok() {
        expected.insert(after, (vec![Some((bytes(9000, 1), false, 0))], 0));
    }
    compare(&store, &expected, scene).map_err(|why| format!("closed and opened: {why}")).map(drop)
}

/// Appends to a chunk, as who knows its end, where it is in doubt.
fn append(store: &ChunkStore, chunk: ChunkId, expected: &mut Expected, scene: &mut Scene) -> Result<(), String> {
    let info = store.stat(chunk).map_err(|e| e.to_string())?;
    let doubted = told(store).1.contains(&chunk);
    let piece = bytes(3000, u64::from(info.len));
    let how = |offset| Append { offset, durability: Durability::Durable };
    match (store.append_with(chunk, &piece, how(None)), info.sealed, doubted) {
        (Err(Error::Sealed { .. }), true, _) => return Ok(()),
        (Err(Error::EndLost { .. }), false, true) => {
            store.append_with(chunk, &piece, how(Some(info.len.into()))).map_err(|e| e.to_string())?;
        }
        (Ok(at), false, false) if at == u64::from(info.len) => {}
        (Err(error), false, _) if error.is_no_space() => return Ok(()),
        (other, ..) => return Err(format!("an append to {info:?}, in doubt {doubted}: {other:?}")),
    }
    if let Some((bytes, ..)) = &mut expected.get_mut(&chunk).unwrap().0[0] {
        bytes.truncate(info.len as usize);
        bytes.extend(piece);
    }
    scene.cuts.entry(chunk).or_default().extend([info.len as usize, info.len as usize + 3000]);
    Ok(())
}

fn run(script: fn(u64) -> Vec<Op>) {
    let all: u64 = std::env::var("IMBREX_CHUNK_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_100);
    for seed in seeds(1) {
        let off = Config { write_cache: false, ..config() };
        let drives = [("write cache on", config()), ("off", off), ("eight active zones", zns())];
        for (drive, config) in drives {
            let plan =
                Plan { max_states: (all / 15).max(1), cuts_per_write: 3, forbid_violations: false, ..Plan::new(seed) };
            match explore(&Arc::new(Damaged(Scripted(script))), &config, &plan) {
                Ok(report) => println!("seed {seed}, {drive}: {} of {} states", report.states, report.possible),
                Err(failure) => panic!("{drive}: {failure}"),
            }
        }
    }
}

#[test]
fn damage_to_short_lives_costs_what_stood_there_and_is_told() {
    run(short);
}

#[test]
fn damage_to_zones_that_are_used_again_costs_what_stood_there_and_is_told() {
    run(turnover);
}

#[test]
fn damage_to_what_is_cleaned_costs_what_stood_there_and_is_told() {
    run(cleaning);
}

#[test]
fn damage_to_appends_that_are_durable_by_themselves_costs_what_stood_there_and_is_told() {
    run(through);
}

#[test]
fn damage_to_random_workloads_costs_what_stood_there_and_is_told() {
    run(random);
}
