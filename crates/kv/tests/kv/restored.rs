//! A drive that is put back to an earlier state under what a later process left in memory, copies that are open beside the original, and logs that were cut. What is
//! there is what the drive had at some moment, or damage is told; nothing is mixed.

use crate::support::{config, few_active, options, value};
use imbrex_device::{AlignedBuf, Cause, Drive, HeapSurvivor, Tag, Written, ZoneId, ZoneOp, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::{Batch, Kv, Options};
use imbrex_zones::ZoneHeader;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

const TAG: Tag = Tag::new(Cause::Other);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A drive, and what it has in shared memory. A copy of one is what another process would find.
struct Machine {
    drive: Emulator,
    memory: Arc<HeapSurvivor>,
}

impl Machine {
    fn new(config: &Config) -> Machine {
        let machine = Machine { drive: Emulator::memory(config).unwrap(), memory: Arc::default() };
        Kv::format(&machine.hands(), Some([9; 16]), false).unwrap();
        machine
    }

    fn hands(&self) -> Drive {
        Drive { device: Arc::new(self.drive.clone()), survivor: Some(self.memory.clone()) }
    }

    fn open(&self) -> Kv {
        Kv::open(self.hands(), options()).unwrap()
    }

    /// With so much memory that a log of several openings is in no table.
    fn open_wide(&self) -> Kv {
        Kv::open(self.hands(), Options { memtable_bytes: 1 << 20, ..options() }).unwrap()
    }

    /// The drive of this moment, and the memory of another one.
    fn with_memory_of(&self, other: &Machine) -> Machine {
        Machine { drive: self.drive.fork().unwrap(), memory: Arc::new(other.memory.snapshot()) }
    }

    fn copy(&self) -> Machine {
        self.with_memory_of(self)
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("k{n:03}").into_bytes()
}

fn contents(store: &Kv) -> Model {
    let mut all = Model::new();
    let mut iter = store.iter().unwrap();
    iter.seek_to_first().unwrap();
    while let Some((key, value)) = iter.get() {
        all.insert(key.to_vec(), value.to_vec());
        iter.advance().unwrap();
    }
    all
}

/// What is there stays while the store goes on, and nothing else comes.
fn goes_on(machine: &Machine, store: Kv, mut found: Model, what: &str) {
    for n in 0..12 {
        store.put(&key(900 + n % 5), &value(n, 2000), true).unwrap();
        found.insert(key(900 + n % 5), value(n, 2000));
    }
    store.flush().unwrap();
    store.put(&key(907), b"last", true).unwrap();
    found.insert(key(907), b"last".to_vec());
    drop(store);
    let store = machine.open();
    assert!(contents(&store) == found, "{what}: after a restart something else is there");
    assert_eq!(store.damage(), [""; 0], "{what}: after a restart");
    assert_eq!(store.check().unwrap(), [""; 0], "{what}");
}

/// A moment of a life of a store: so many batches had returned, and so many were synced.
struct Moment {
    machine: Machine,
    opening: usize,
    acked: usize,
    synced: usize,
}

/// Some moments of openings of a store, and what is there after each number of batches.
fn life(config: &Config, seed: u64) -> (Vec<Moment>, Vec<Model>) {
    let machine = Machine::new(config);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut moments, mut models, mut synced) = (Vec::new(), vec![Model::new()], 0);
    for opening in 0..3 {
        let store = machine.open();
        for step in 0..40 {
            match rng.random_range(0..16) {
                0 => store.flush().unwrap(),
                1 => store.compact().unwrap(),
                2..4 => drop(store.step().unwrap()),
                _ => {
                    let (mut batch, mut model) = (Batch::new(), models.last().cloned().unwrap());
                    for change in 0..rng.random_range(1..4) {
                        let (n, len) = (rng.random_range(0..40), rng.random_range(0..2500));
                        let content = value((models.len() * 8 + change) as u64, len);
                        match rng.random_range(0..10) {
                            0 => {
                                batch.delete_range(Some(&key(n)), Some(&key(n + 6)));
                                model.retain(|at, _| *at < key(n) || *at >= key(n + 6));
                            }
                            1 => {
                                batch.delete(&key(n));
                                model.remove(&key(n));
                            }
                            _ => {
                                batch.put(&key(n), &content);
                                model.insert(key(n), content);
                            }
                        }
                    }
                    let sync = rng.random_range(0..4) == 0;
                    store.write(&batch, sync).unwrap();
                    models.push(model);
                    if sync {
                        synced = models.len() - 1;
                    }
                }
            }
            if step % 3 == 0 {
                moments.push(Moment { machine: machine.copy(), opening, acked: models.len() - 1, synced });
            }
        }
        // It ends in order, or is killed.
        if opening != 1 {
            drop(store);
        } else {
            std::mem::forget(store);
        }
    }
    (moments, models)
}

#[test]
fn no_memory_of_another_moment_is_mixed_into_a_copy() {
    for (config, seed) in [(config(), 1), (few_active(), 2)] {
        let (moments, models) = life(&config, seed);
        let mut dropped = 0;
        for (i, image) in moments.iter().enumerate() {
            for (j, memory) in moments.iter().enumerate() {
                let what = format!("seed {seed}, the drive of moment {i} with the memory of {j}");
                let machine = image.machine.with_memory_of(&memory.machine);
                let store = machine.open();
                let found = contents(&store);
                // In the same opening memory may go on where the drive ends.
                let least = if i == j { image.acked } else { image.synced };
                let most = if image.opening == memory.opening { image.acked.max(memory.acked) } else { image.acked };
                assert!(models[least..=most].contains(&found), "{what}: what is there was there at no such moment");
                let told = store.damage();
                dropped += told.len();
                assert!(told.iter().all(|sentence| i < j && sentence.contains("never synced")), "{what}: {told:?}");
                if (i + j) % 4 == 0 {
                    goes_on(&machine, store, found, &what);
                }
            }
        }
        assert!(dropped > 0, "no memory went on behind a gap");
    }
}

/// Bytes of a zone as far as it is written, where it has metadata.
fn metadata(drive: &Emulator, zone: u32) -> Option<Vec<u8>> {
    let Written::To(len @ 4096..) = report_all(drive).unwrap()[zone as usize].written() else { return None };
    let header = ZoneHeader::decode(&read(drive, zone, 4096)).filter(|header| header.name == "kv")?;
    assert_eq!(header.zone, zone);
    Some(read(drive, zone, len as usize))
}

/// The metadata's zones are put back from an older copy, and all others are of now: tables and the log that the metadata names may be gone, and newer ones have no name.
/// What is there was there at some moment, or it is told that something is wrong; and each key has a value that it had, or none, or an error.
#[test]
fn older_metadata_over_newer_zones_gives_a_moment_or_is_told() {
    let (mut moment, mut told, mut refused) = (0, 0, 0);
    for (config, seed) in [(config(), 3), (few_active(), 4)] {
        let (moments, models) = life(&config, seed);
        for (i, old) in moments.iter().enumerate() {
            for (j, new) in moments.iter().enumerate().skip(i + 1) {
                let what = format!("seed {seed}, the metadata of moment {i} and the zones of {j}");
                let mut machine = new.machine.copy();
                if (i + j) % 2 == 0 {
                    machine.memory = Arc::default();
                }
                let drive = &machine.drive;
                for zone in (0..48).filter(|zone| metadata(drive, *zone).is_some()).collect::<Vec<_>>() {
                    drive.zone_op(ZoneOp::Reset, ZoneId(zone), TAG).unwrap();
                    if let Some(content) = metadata(&old.machine.drive, zone) {
                        drive.write_at(&AlignedBuf::padded(&content, 4096), u64::from(zone) * SIZE, TAG).unwrap();
                    }
                }
                let store = match Kv::open(machine.hands(), options()) {
                    Ok(store) => store,
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        refused += 1;
                        continue;
                    }
                };
                let (mut found, mut wrong) = (Model::new(), !store.damage().is_empty());
                for n in 0..40 {
                    match store.get(&key(n)) {
                        Err(_) => wrong = true,
                        Ok(None) => {}
                        Ok(Some(value)) => {
                            let had = |model: &Model| model.get(&key(n)) == Some(&value);
                            assert!(models[..=new.acked].iter().any(had), "{what}: key {n} never had this value");
                            found.insert(key(n), value);
                        }
                    }
                }
                wrong |= store.check().map_or(true, |sentences| !sentences.is_empty());
                if wrong {
                    told += 1;
                } else {
                    assert!(models[..=new.acked].contains(&found), "{what}: what is there was there at no moment");
                    moment += 1;
                }
            }
        }
    }
    // Else this shows nothing.
    assert!(moment > 10 && told > 10, "{moment} moments, {told} told, {refused} refused");
}

#[test]
fn a_power_loss_of_a_copy_brings_nothing_of_a_later_opening_back() {
    for seed in 0..6 {
        let (moments, models) = life(&config(), seed);
        let memory = moments.iter().rfind(|moment| moment.opening == 2).unwrap();
        for image in moments.iter().filter(|moment| moment.opening < 2).step_by(3) {
            // The later opening has lost power once, as the copy has: their power epochs have one number.
            let copy = image.machine.with_memory_of(&memory.machine);
            let machine = Machine { drive: copy.drive.after_power_loss(seed).unwrap(), memory: copy.memory };
            let store = machine.open();
            let found = contents(&store);
            assert!(models[image.synced..=image.acked].contains(&found), "seed {seed}");
            goes_on(&machine, store, found, &format!("seed {seed}"));
        }
    }
}

/// A copy of an image is a drive of its own, also in the process that has the original open.
#[test]
fn a_copy_that_is_open_beside_the_original_is_a_store_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let drive = Emulator::create(&path("a.img"), &config(), false).unwrap();
    Kv::format(&Drive { device: Arc::new(drive.clone()), survivor: None }, None, false).unwrap();
    drop(drive);
    let open =
        |name: &str| Kv::open_uri(&format!("imbrex://{}", path(name).display()), &[("memtable", "64K")]).unwrap();
    let original = open("a.img");
    (0..20).for_each(|n| original.put(&key(n), &value(n, 300), true).unwrap());
    std::fs::copy(path("a.img"), path("b.img")).unwrap();
    let mut both = [original, open("b.img")];
    for round in 1..4u64 {
        for (which, store) in (0..).zip(&both) {
            let mine = |n| value(n * 1000 + round * 10 + which, 700);
            (0..30).step_by(2).for_each(|n| store.put(&key(n), &mine(n), n % 5 == 0).unwrap());
            store.flush().unwrap();
            store.put(&key(round + 50), &mine(1), false).unwrap();
        }
        for (which, store) in (0..).zip(&both) {
            let mine = |n| value(n * 1000 + round * 10 + which, 700);
            assert!((0..30).step_by(2).all(|n| store.get(&key(n)).unwrap() == Some(mine(n))));
            assert!((1..20).step_by(2).all(|n| store.get(&key(n)).unwrap() == Some(value(n, 300))));
            assert_eq!(store.get(&key(round + 50)).unwrap(), Some(mine(1)));
            assert_eq!(contents(store).len(), 25 + round as usize);
        }
        // They end and begin in either order.
        drop(both);
        both = match round % 2 {
            0 => [open("a.img"), open("b.img")],
            _ => {
                let copy = open("b.img");
                [open("a.img"), copy]
            }
        };
        assert!(both.iter().all(|store| store.damage().is_empty()));
    }
}

const SIZE: u64 = 128 << 10;
/// Keys of one opening.
const EACH: u64 = 10;
const OPENINGS: u64 = 4;

fn read(drive: &Emulator, zone: u32, len: usize) -> Vec<u8> {
    let mut buf = AlignedBuf::zeroed(len);
    drive.read_at(&mut buf, u64::from(zone) * SIZE, TAG).unwrap();
    buf.to_vec()
}

/// A log of as many zones as openings, and nothing in tables. Also the drives as they were in the middle of each opening.
fn log_of_openings() -> (Machine, Vec<u32>, Vec<Emulator>) {
    let machine = Machine::new(&config());
    let (mut zones, mut halves) = (Vec::new(), Vec::new());
    for opening in 0..OPENINGS {
        let store = machine.open_wide();
        for n in 0..EACH {
            store.put(&key(opening * EACH + n), &value(opening * EACH + n, 300), true).unwrap();
            if n + 1 == EACH / 2 {
                halves.push(machine.drive.fork().unwrap());
            }
        }
        drop(store);
        let is_log = |zone: &u32| read(&machine.drive, *zone, 4096).windows(3).any(|word| word == b"wal");
        zones.extend((2..48).find(|zone| is_log(zone) && !zones.contains(zone)));
    }
    assert_eq!(zones.len() as u64, OPENINGS);
    (machine, zones, halves)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    Reset,
    Offline,
    Unreadable,
    /// The second half of what it had is not there.
    Half,
}

fn cut(drive: &Emulator, zone: u32, half: &Emulator, how: Cut) {
    match how {
        Cut::Reset => drive.zone_op(ZoneOp::Reset, ZoneId(zone), TAG).unwrap(),
        Cut::Offline => drive.faults().make_offline(ZoneId(zone)).unwrap(),
        Cut::Unreadable => drive.faults().media_error(u64::from(zone) * SIZE, SIZE),
        Cut::Half => {
            let Written::To(len) = report_all(half).unwrap()[zone as usize].written() else { panic!() };
            let content = read(half, zone, len as usize);
            drive.zone_op(ZoneOp::Reset, ZoneId(zone), TAG).unwrap();
            drive.write_at(&AlignedBuf::padded(&content, 4096), u64::from(zone) * SIZE, TAG).unwrap();
        }
    }
}

/// A zone of the log is not there any more, or a part of it: what stood there is lost and told, and all else is there. Where the end of the log was cut off, a store that
/// never wrote it would look the same: then it is as it was before.
#[test]
fn a_log_that_was_cut_has_no_wrong_values_and_tells_what_is_lost() {
    let (whole, zones, halves) = log_of_openings();
    for (at, zone) in (0..OPENINGS).zip(&zones) {
        for how in [Cut::Reset, Cut::Offline, Cut::Unreadable, Cut::Half] {
            for memory in [true, false] {
                let what = format!("{how:?} of opening {at}, memory {memory}");
                let mut machine = whole.copy();
                if !memory {
                    machine.memory = Arc::default();
                }
                cut(&machine.drive, *zone, &halves[at as usize], how);
                let store = machine.open_wide();
                let from = at * EACH + if how == Cut::Half { EACH / 2 } else { 0 };
                let lost = from..(at + 1) * EACH;
                let wanted: Model =
                    (0..OPENINGS * EACH).filter(|n| !lost.contains(n)).map(|n| (key(n), value(n, 300))).collect();
                let found = contents(&store);
                assert!(found == wanted, "{what}: {} keys; {:?}", found.len(), store.damage());
                let told = store.damage();
                let all = told.iter().any(|sentence| sentence.contains("changes before number"));
                let tail = at + 1 == OPENINGS;
                assert!(all != tail, "{what}: {told:?}");
                assert!(!told.is_empty() || tail && matches!(how, Cut::Reset | Cut::Half), "{what}: nothing is told");
                drop(store);
                let store = machine.open_wide();
                assert!(contents(&store) == wanted, "{what}: the next opening finds something else");
            }
        }
    }
}

/// A checkpoint has nothing that is put later, also where the end of the log was lost behind it.
#[test]
fn a_checkpoint_takes_nothing_in_for_what_is_lost() {
    let (whole, zones, halves) = log_of_openings();
    whole.open_wide().checkpoint("all").unwrap();
    for how in [Cut::Reset, Cut::Offline, Cut::Unreadable, Cut::Half] {
        let machine = whole.copy();
        let last = OPENINGS as usize - 1;
        cut(&machine.drive, zones[last], &halves[last], how);
        let store = machine.open_wide();
        let before = contents(&store);
        for n in 0..OPENINGS * EACH {
            store.put(&key(n), b"later", n % 3 == 0).unwrap();
        }
        store.compact().unwrap();
        drop(store);
        let store = machine.open_wide();
        let at = store.at_checkpoint("all").unwrap();
        for n in 0..OPENINGS * EACH {
            assert_eq!(store.get_at(&at, &key(n)).unwrap().as_ref(), before.get(&key(n)), "{how:?}, key {n}");
            assert_eq!(store.get(&key(n)).unwrap().as_deref(), Some(&b"later"[..]), "{how:?}, key {n}");
        }
    }
}

/// Zones of the log cannot be read at one opening, and can be at the next. What stands there may be found again, but nothing that was put since is lost for it,
/// whichever way the store had ended.
#[test]
fn a_part_of_the_log_that_comes_back_is_not_taken_for_what_followed() {
    let (whole, zones, _) = log_of_openings();
    for (at, zone) in (0..OPENINGS).zip(&zones) {
        for end in ["closed", "flushed", "killed"] {
            let what = format!("opening {at}, {end}");
            let machine = whole.copy();
            cut(&machine.drive, *zone, &machine.drive, Cut::Unreadable);
            let store = machine.open_wide();
            assert!(!store.damage().is_empty(), "{what}");
            let mut wanted = contents(&store);
            for n in at * EACH..(at + 1) * EACH {
                assert_eq!(store.get(&key(n)).unwrap(), None, "{what}");
                if n % 2 == 0 {
                    store.put(&key(n), &value(n + 500, 200), end != "killed").unwrap();
                    wanted.insert(key(n), value(n + 500, 200));
                }
            }
            if end == "flushed" {
                store.flush().unwrap();
            }
            match end {
                "killed" => std::mem::forget(store),
                _ => drop(store),
            }
            machine.drive.faults().clear();
            for opening in 0..2 {
                let store = machine.open_wide();
                let mut found = contents(&store);
                // At most the old value is there again, where no new one is.
                found.retain(|key, value| wanted.contains_key(key) || *value != old_value(key));
                assert!(found == wanted, "{what}, {opening}: {} of {} keys", found.len(), wanted.len());
                let told = store.damage();
                let only =
                    |sentence: &String| end != "flushed" && sentence.contains("an earlier opening could not read");
                assert!(told.iter().all(only), "{what}, {opening}: {told:?}");
                assert_eq!(store.check().unwrap(), [""; 0]);
            }
        }
    }
}

/// What [`log_of_openings`] puts.
fn old_value(key: &[u8]) -> Vec<u8> {
    let number = std::str::from_utf8(&key[1..]).unwrap().parse().unwrap();
    value(number, 300)
}
