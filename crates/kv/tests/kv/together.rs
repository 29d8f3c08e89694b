//! Several reads of the drive at once: of many keys, and of an iterator that seeks in several runs.

use crate::support::{Append, config, few_active, options, value};
use imbrex_device::{Cause, Code, Drive, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice};
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::{Kv, Options};
use imbrex_zones::{Exec, VolumeOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A drive whose users' reads wait for one another.
struct Meeting {
    below: Emulator,
    /// Reads of users wait until so many are there.
    wanted: AtomicUsize,
    /// How many are there, and how many there were at most.
    there: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Meeting {
    /// How many reads of users there were at once at most while `run` ran. They wait for `wanted`, though not for ever.
    fn most(&self, wanted: usize, run: impl FnOnce()) -> usize {
        self.wanted.store(wanted, Ordering::Relaxed);
        *self.there.lock().unwrap() = (0, 0);
        run();
        self.wanted.store(0, Ordering::Relaxed);
        self.there.lock().unwrap().1
    }
}

impl ZonedDevice for Meeting {
    fn identity(&self) -> &Identity {
        self.below.identity()
    }
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.below.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted > 0 && tag.cause == Cause::UserRead {
            let mut there = self.there.lock().unwrap();
            there.0 += 1;
            there.1 = there.1.max(there.0);
            self.changed.notify_all();
            // Once they have met, they go on as they come.
            let wait = |there: &mut (usize, usize)| there.1 < wanted;
            there = self.changed.wait_timeout_while(there, Duration::from_secs(20), wait).unwrap().0;
            there.0 -= 1;
        }
        self.below.read_at(buf, at, tag)
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.below.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.below.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.below.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.below.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.below.set_write_cache(on)
    }
}

const KEYS: u64 = 300;

fn key(n: u64) -> Vec<u8> {
    format!("k{n:04}").into_bytes()
}

/// With tables in several runs, and memory: what each key has. It is closed again.
fn filled(config: &Config) -> (Arc<Meeting>, Drive, Vec<Option<Vec<u8>>>) {
    let below = Emulator::memory(config).unwrap();
    let (wanted, there, changed) = Default::default();
    let device = Arc::new(Meeting { below, wanted, there, changed });
    let drive = Drive { device: device.clone(), survivor: None };
    Kv::format(&drive, Some([9; 16]), false).unwrap();
    let store = Kv::open(drive.clone(), options()).unwrap();
    store.merge_operator(Arc::new(Append { combines: false }));
    let mut has = vec![None; KEYS as usize];
    for n in 0..KEYS {
        has[n as usize] = Some(value(n, 300));
        store.put(&key(n), &value(n, 300), false).unwrap();
    }
    store.compact().unwrap();
    // Slices over it, one for each flush.
    for round in 1..4u64 {
        for n in (round..KEYS).step_by(11) {
            has[n as usize] = Some(value(n * round, 200));
            store.put(&key(n), &value(n * round, 200), false).unwrap();
        }
        store.flush().unwrap();
    }
    store.delete(&key(17), false).unwrap();
    has[17] = None;
    store.merge(&key(40), b"+", false).unwrap();
    has[40].as_mut().unwrap().extend_from_slice(b"|+");
    store.flush().unwrap();
    store.delete_range(Some(&key(100)), Some(&key(110)), false).unwrap();
    has[100..110].fill(None);
    store.put(&key(105), b"new", true).unwrap();
    has[105] = Some(b"new".to_vec());
    drop(store);
    (device, drive, has)
}

fn open(drive: &Drive, exec: Exec, reads_at_once: usize) -> Kv {
    let inline = options();
    let options = Options { reads_at_once, volume: VolumeOptions { exec, ..inline.volume }, ..inline };
    let store = Kv::open(drive.clone(), options).unwrap();
    store.merge_operator(Arc::new(Append { combines: false }));
    store
}

#[test]
fn many_keys_have_what_each_has() {
    let (_, drive, has) = filled(&config());
    for (exec, reads) in [(Exec::Inline, 16), (Exec::Threads(1), 1), (Exec::Threads(1), 3), (Exec::Threads(1), 64)] {
        let store = open(&drive, exec, reads);
        assert_eq!(store.multi_get(&[]).unwrap(), Vec::<Option<Vec<u8>>>::new());
        // Out of order, some twice, and some that are not there.
        let wanted: Vec<u64> = (0..2 * KEYS).map(|n| n * 7 % (KEYS + 20)).collect();
        let keys: Vec<_> = wanted.iter().map(|n| key(*n)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let expected: Vec<_> = wanted.iter().map(|n| has.get(*n as usize).cloned().flatten()).collect();
        assert_eq!(store.multi_get(&keys).unwrap(), expected);
        let before = store.snapshot();
        store.put(&key(3), b"later", false).unwrap();
        store.delete(&key(4), false).unwrap();
        assert_eq!(store.multi_get_at(&before, &keys).unwrap(), expected);
        assert_eq!(
            store.multi_get(&[&key(4), &key(3), &key(5)]).unwrap(),
            [None, Some(b"later".to_vec()), has[5].clone()]
        );
        let other = open(&filled(&config()).1, Exec::Inline, 1);
        assert_eq!(other.multi_get_at(&before, &keys).unwrap_err().code(), Code::InvalidArgument);
        drop(before);
        store.put(&key(3), has[3].as_deref().unwrap(), false).unwrap();
        store.put(&key(4), has[4].as_deref().unwrap(), true).unwrap();
    }
}

#[test]
fn reads_of_keys_and_of_runs_are_under_way_at_once() {
    // A head that moves reads one run after the other.
    for (config, seeks) in [(config(), 1), (few_active(), 2)] {
        let (device, drive, has) = filled(&config);
        let keys: Vec<_> = (0..KEYS).step_by(30).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let seek = |store: &Kv, n: u64| {
            let mut iter = store.iter().unwrap();
            iter.seek(&key(n)).unwrap();
            for n in (n..KEYS).filter(|n| has[*n as usize].is_some()).take(20) {
                assert_eq!(iter.get(), Some((&key(n)[..], has[n as usize].as_deref().unwrap())));
                iter.advance().unwrap();
            }
        };
        let get = |store: &Kv| drop(store.multi_get(&keys).unwrap());
        // An opening has nothing in its cache.
        let several = |wanted, run: &dyn Fn(&Kv)| {
            let store = open(&drive, Exec::Threads(1), 16);
            device.most(wanted, || run(&store))
        };
        assert!(several(2, &get) >= 2);
        let at_once = several(seeks, &|store| seek(store, 150));
        assert!(at_once >= seeks && (seeks > 1 || at_once == 1), "{at_once}");
        for (exec, reads) in [(Exec::Threads(1), 1), (Exec::Inline, 16)] {
            let one = |run: &dyn Fn(&Kv)| {
                let store = open(&drive, exec, reads);
                device.most(1, || run(&store))
            };
            assert_eq!((one(&get), one(&|store| seek(store, 150))), (1, 1));
        }
    }
}

#[test]
fn what_cannot_be_read_is_an_error_of_all_and_passes() {
    let (device, drive, has) = filled(&config());
    let store = open(&drive, Exec::Threads(1), 8);
    // All but the labels.
    device.below.faults().media_error(2 * (128 << 10), 46 * (128 << 10));
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    assert!(store.multi_get(&keys).is_err());
    let mut iter = store.iter().unwrap();
    assert!(iter.seek(&key(0)).is_err());
    device.below.faults().clear();
    assert_eq!(store.multi_get(&keys).unwrap(), has);
    iter.seek(&key(0)).unwrap();
    assert_eq!(iter.get(), Some((&key(0)[..], has[0].as_deref().unwrap())));
}

/// What says that a get would read agrees with what the drive is asked for then.
#[test]
fn whether_a_get_would_read_is_known_before() {
    let emulator = Emulator::memory(&config()).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    Kv::format(&drive, None, false).unwrap();
    let small = Options { cache_bytes: 64 << 10, ..options() };
    let key = |n: u32| n.to_be_bytes();
    {
        let store = Kv::open(drive.clone(), small.clone()).unwrap();
        for n in 0..600 {
            store.put(&key(n), &value(n.into(), 300), false).unwrap();
        }
        store.flush().unwrap();
        store.put(&key(1), b"in memory", false).unwrap();
        assert!(!store.get_would_read(&key(1)));
    }
    let store = Kv::open(drive, small).unwrap();
    let mut told = [0; 2];
    for n in (0..700).chain([0, 1, 699]) {
        let would = store.get_would_read(&key(n));
        let before = emulator.stats().total.reads;
        assert_eq!(store.get(&key(n)).unwrap().is_some(), n < 600);
        let reads = emulator.stats().total.reads - before;
        assert_eq!(would, reads > 0, "{n}: {reads} reads");
        told[usize::from(would)] += 1;
    }
    assert!(told.iter().all(|n| *n > 10), "{told:?}");
}
