//! What others do between two steps of a call, records that are hostile or gone, and room that nobody needs any more.

mod support;

use imbrex_bluestore::*;
use imbrex_device::{Code, Drive, Result};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::{Exec, Tenant, Volume, VolumeOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use support::{content, format, options};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
type Hook = Box<dyn FnOnce() + Send>;
type Map = BTreeMap<(Family, Vec<u8>), Vec<u8>>;
#[derive(Default)]
struct Mem {
    map: Mutex<Map>,
    /// what, family: 0 get, 1 pairs, 2 write, 3 behind pairs, 4 `Super`: somebody makes room
    hook: Mutex<Option<(u8, Family, Hook)>>,
    /// Gets of extents, which would read from the drive; each waits until so many were there.
    meeting: Mutex<(usize, usize)>,
    met: Condvar,
    writes: Mutex<Vec<usize>>,
    /// How many syncs there were, how long one takes, and which one fails.
    syncs: Mutex<(usize, Duration, Option<usize>)>,
    /// Records of blobs are not in memory, and this record cannot be read.
    damaged: Mutex<Option<(Family, Vec<u8>)>>,
    /// There is room for what comes with a removal only, until somebody makes some.
    full: Mutex<bool>,
}

impl Mem {
    fn hook(&self, what: u8, family: Family, f: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((what, family, Box::new(f)));
    }
    fn check(&self, family: Family, key: &[u8]) -> Result<()> {
        let damaged = self.damaged.lock().unwrap();
        let hit = damaged.as_ref().is_some_and(|(of, damaged)| (*of, &damaged[..]) == (family, key));
        if hit { Err(imbrex_device::Error::corrupt(&"metadata".into(), "a block of a table")) } else { Ok(()) }
    }
    fn meet(&self, family: Family) {
        let mut meeting = self.meeting.lock().unwrap();
        if family != Family::Extents || meeting.1 == 0 {
            return;
        }
        meeting.0 += 1;
        self.met.notify_all();
        let patience = Duration::from_secs(60);
        let waited = self.met.wait_timeout_while(meeting, patience, |(there, wanted)| there < wanted).unwrap();
        assert!(!waited.1.timed_out(), "a look-up waits for one that does not come before it has ended");
    }
    fn call(&self, what: u8, family: Family) {
        let mut hook = self.hook.lock().unwrap();
        if hook.as_ref().is_some_and(|(w, f, _)| *w == what && (*f == family || what == 2)) {
            let (_, _, f) = hook.take().unwrap();
            drop(hook);
            f();
        }
    }
}

impl KeyValue for Mem {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.call(0, family);
        self.meet(family);
        self.check(family, key)?;
        Ok(self.map.lock().unwrap().get(&(family, key.to_vec())).cloned())
    }
    fn get_would_read(&self, family: Family, _: &[u8]) -> bool {
        match family {
            Family::Blobs => self.damaged.lock().unwrap().is_some(),
            Family::Extents => self.meeting.lock().unwrap().1 > 0,
            _ => false,
        }
    }
    fn pairs(&self, family: Family, from: &[u8], to: Option<&[u8]>, most: usize) -> Result<Vec<Pair>> {
        self.call(1, family);
        let map = self.map.lock().unwrap();
        let all = map
            .range((family, from.to_vec())..)
            .take_while(|((f, k), _)| *f == family && to.is_none_or(|to| &k[..] < to));
        let all = all.take(most).map(|((_, k), v)| self.check(family, k).map(|()| (k.clone(), v.clone()))).collect();
        drop(map);
        self.call(3, family);
        all
    }
    fn has_room(&self, _: u64, _: u64, little: bool) -> bool {
        little || !*self.full.lock().unwrap()
    }
    fn make_room(&self) -> Result<()> {
        self.call(4, Family::Super);
        *self.full.lock().unwrap() = false;
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        let (number, takes, fails) = {
            let mut syncs = self.syncs.lock().unwrap();
            syncs.0 += 1;
            *syncs
        };
        std::thread::sleep(takes);
        if fails == Some(number) { Err(imbrex_device::Error::corrupt(&"metadata".into(), "a log")) } else { Ok(()) }
    }
    fn write(&self, changes: &[Change]) -> Result<()> {
        self.call(2, Family::Super);
        self.writes.lock().unwrap().push(changes.len());
        let mut map = self.map.lock().unwrap();
        for change in changes {
            match change.clone() {
                Change::Put(f, k, v) => drop(map.insert((f, k), v)),
                Change::Delete(f, k) => drop(map.remove(&(f, k))),
                Change::DeleteRange(f, a, b) => map.retain(|(g, k), _| *g != f || *k < a || *k >= b),
            }
        }
        Ok(())
    }
}

fn large() -> Config {
    Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 120 << 20, conventional: 2, ..Config::tiny() }
}

struct All {
    emulator: Emulator,
    drive: Drive,
    kv: Arc<Mem>,
    /// Called when the drive is written.
    written: support::Hook,
    store: BlueStore,
    tenant: Tenant,
    _volume: Volume,
}

fn volume(drive: &Drive) -> Volume {
    Volume::open(
        drive.clone(),
        VolumeOptions { exec: Exec::Inline, survivor_bytes: 64 << 10, ..VolumeOptions::default() },
    )
    .unwrap()
}

fn new(config: &Config, options: Options) -> All {
    let emulator = Emulator::memory(config).unwrap();
    let written = support::Hook::default();
    let hooked = support::Hooked { drive: emulator.clone(), hook: written.clone() };
    let drive = Drive { device: Arc::new(hooked), survivor: None };
    format(&drive).unwrap();
    let v = volume(&drive);
    let kv = Arc::new(Mem::default());
    let tenant = v.tenant(NAME).unwrap();
    let store = BlueStore::open(&tenant, kv.clone(), options).unwrap();
    does(&store, |t| _ = t.create_collection(ALL, 0)).unwrap();
    All { emulator, drive, kv, written, store, tenant, _volume: v }
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(1, b"", name.as_bytes())
}

fn does(store: &BlueStore, what: impl FnOnce(&mut Transaction)) -> Result<(), Code> {
    let mut t = Transaction::new();
    what(&mut t);
    store.commit(t).map_err(|e| e.code())
}

fn fine(store: &BlueStore) {
    let r = store.check(true).unwrap();
    assert!(r.wrong.is_empty(), "{:#?}", r.wrong);
}

#[test]
fn an_object_that_was_cut_and_removed_leaves_nothing() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(1 << 20, 1))).unwrap();
    does(&a.store, |t| _ = t.truncate(ALL, &id("a"), 0).remove(ALL, &id("a"))).unwrap();
    fine(&a.store);
}

#[test]
fn so_does_one_that_was_cut_and_replaced() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(1 << 20, 1)).touch(ALL, &id("b"))).unwrap();
    does(&a.store, |t| _ = t.truncate(ALL, &id("a"), 0).clone_object(ALL, &id("b"), &id("a"))).unwrap();
    fine(&a.store);
}

/// Room of the metadata may take as long as writing all of them anew.
#[test]
fn others_go_on_while_somebody_makes_room() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.touch(ALL, &id("a"))).unwrap();
    *a.kv.full.lock().unwrap() = true;
    let (store, removes) = (a.store.clone(), "a removal waits for who makes room");
    a.kv.hook(4, Family::Super, move || {
        let (done, removed) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(does(&store, |t| _ = t.remove(ALL, &id("a")))));
        removed.recv_timeout(Duration::from_secs(60)).expect(removes).unwrap();
    });
    does(&a.store, |t| _ = t.touch(ALL, &id("b"))).unwrap();
    assert!(a.kv.hook.lock().unwrap().is_none() && a.store.stat(ALL, &id("a")).is_err());
    fine(&a.store);
}

#[test]
fn what_is_refused_keeps_no_zones() {
    let a = new(&large(), options());
    assert_eq!(does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(200 << 20, 1))), Err(Code::NoSpace));
    let c = a.tenant.counts();
    assert_eq!(c.reservations, 0);
}

#[test]
fn a_full_drive_accepts_only_what_has_a_zone() {
    let a = new(&large(), Options { pack_from: 100 << 20, ..options() });
    does(&a.store, |t| _ = t.write(ALL, &id("s"), 0, &content(5000, 1))).unwrap();
    a.store.pack().unwrap();
    let mut n = 0;
    while does(&a.store, |t| _ = t.write(ALL, &id(&format!("{n}")), 0, &content(200_000, n as u8))).is_ok() {
        n += 1;
    }
    assert_eq!(a.store.usage().deferred, 0);
}

fn half_left() -> All {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(100_000, 1))).unwrap();
    let mut t = Transaction::new();
    t.write(ALL, &id("b"), 0, &content(1_500_000, 2));
    a.store.queue(t).unwrap();
    for z in imbrex_device::report_all(a.drive.device.as_ref())
        .unwrap()
        .iter()
        .filter(|z| z.id.0 >= 2 && format!("{:?}", z.state) == "Empty")
    {
        a.emulator.faults().make_read_only(z.id).unwrap();
    }
    a
}

#[test]
fn what_found_no_zone_may_be_overwritten_meanwhile() {
    let a = half_left();
    let store = a.store.clone();
    // All that has no place of any blob that is placed in part: try all sizes
    let hook = move || {
        let mut t = Transaction::new();
        t.zero(ALL, &id("b"), 228 << 12, 28 << 12);
        store.queue(t).unwrap();
    };
    a.written.set(hook);
    a.store.pack().unwrap();
    a.store.sync().unwrap();
    does(&a.store, |t| _ = t.remove(ALL, &id("b"))).unwrap();
    {
        let mut t = Transaction::new();
        t.touch(ALL, &id("x"));
        a.store.queue(t).unwrap();
    }
    fine(&a.store);
}

#[test]
fn check_while_others_write() {
    let a = new(&large(), options());
    let store = a.store.clone();
    let mut t = Transaction::new();
    t.touch(ALL, &id("a"));
    a.store.queue(t).unwrap();
    a.kv.hook(2, Family::Super, move || {
        let mut t = Transaction::new();
        t.write(ALL, &id("b"), 0, &content(100_000, 2));
        store.queue(t).unwrap();
    });
    fine(&a.store);
}

#[test]
fn values_of_an_omap_are_of_one_moment() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.omap_set(ALL, &id("a"), &[(b"k", b"1"), (b"l", b"1")])).unwrap();
    let store = a.store.clone();
    a.kv.hook(0, Family::Omap, move || {
        does(&store, |t| _ = t.omap_clear(ALL, &id("a")).omap_set(ALL, &id("a"), &[(b"k", b"2"), (b"l", b"2")]))
            .unwrap()
    });
    let got = a.store.omap_get(ALL, &id("a"), &[b"k", b"l"]).unwrap();
    assert!(
        got == [Some(b"1".to_vec()), Some(b"1".to_vec())] || got == [Some(b"2".to_vec()), Some(b"2".to_vec())],
        "{got:?}"
    );
}

#[test]
fn nobody_waits_for_a_scrub() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(100_000, 1))).unwrap();
    let store = a.store.clone();
    a.kv.hook(1, Family::Blobs, move || {
        does(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(100_000, 2))).unwrap();
    });
    assert!(a.store.scrub_step(1 << 20, 1).unwrap());
    assert!(a.kv.hook.lock().unwrap().is_none());
    assert_eq!(a.store.scrubbed().damaged, 0);
    fine(&a.store);
}

#[test]
fn records_that_cannot_be_read_are_told_and_the_round_goes_on() {
    let a = new(&large(), Options { defer_below: 0, ..options() });
    for n in 0..200 {
        does(&a.store, |t| _ = t.write(ALL, &id(&format!("{n}")), 0, &content(4096, n))).unwrap();
    }
    let keys = |family| a.kv.map.lock().unwrap().keys().filter(|(of, _)| *of == family).cloned().collect::<Vec<_>>();
    let damaged = keys(Family::Blobs)[100].clone();
    *a.kv.damaged.lock().unwrap() = Some(damaged);
    while !a.store.scrub_step(64 << 10, 1).unwrap() {}
    let scrub = a.store.scrubbed();
    assert_eq!((scrub.damaged, scrub.read), (1, 199 * 4096));
    assert!(a.store.damaged().unwrap()[0].to_string().contains("records of blobs"));
    *a.kv.damaged.lock().unwrap() = None;
    while !a.store.scrub_step(64 << 10, 2).unwrap() {}
    assert_eq!((a.store.scrubbed().damaged, a.store.damaged().unwrap()), (0, vec![]));
}

/// A record of the scrub that is damaged costs what it had found, and a check tells of it.
#[test]
fn a_damaged_record_of_scrubbing_costs_no_more() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(100_000, 1))).unwrap();
    assert!(a.store.scrub_step(1 << 20, 5).unwrap());
    a.store.sync().unwrap();
    let (_volume, store) = opened_after(a, |map| {
        let record = map.get_mut(&(Family::Super, b"scrub".to_vec())).unwrap();
        *record.last_mut().unwrap() ^= 1;
    });
    let store = store.unwrap();
    assert_eq!(store.scrubbed().ended, 0);
    assert_eq!(store.check(true).unwrap().wrong, ["the record of scrubbing makes no sense"]);
    assert!(store.scrub_step(1 << 20, 6).unwrap());
    fine(&store);
}

#[test]
fn a_list_is_of_one_moment() {
    let a = new(&large(), options());
    let [x, y, z] = ["x", "y", "z"].map(|n| ObjectId { hash: 0, ..id(n) });
    does(&a.store, |t| _ = t.touch(ALL, &x)).unwrap();
    let mut t = Transaction::new();
    t.rename(ALL, &x, &y);
    a.store.queue(t).unwrap();
    let store = a.store.clone();
    a.kv.hook(1, Family::Onodes, move || does(&store, |t| _ = t.rename(ALL, &y, &z)).unwrap());
    let got = a.store.list(ALL, None, 10).unwrap().all;
    assert_eq!(got.len(), 1, "{got:?}");
}

#[test]
fn an_extent_behind_its_blob_is_an_error() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(8192, 1))).unwrap();
    let All { store, drive, kv, tenant, _volume, .. } = a;
    drop((store, tenant, _volume));
    for ((f, _), v) in kv.map.lock().unwrap().iter_mut() {
        match f {
            Family::Blobs => *v = [&[0, 0, 1, 1, 1, 0], &v[6..10]].concat(),
            Family::Deferred => v.truncate(4096),
            Family::Statistics => *v.last_mut().unwrap() = 1,
            _ => {}
        }
    }
    let v = volume(&drive);
    let store = BlueStore::open(&v.tenant(NAME).unwrap(), kv, options()).unwrap();
    assert!(store.check(true).unwrap().wrong[0].contains("behind the end"));
    assert_eq!(store.read(ALL, &id("a"), 0, 10000).map_err(|e| e.code()), Err(Code::Corruption));
}

#[test]
fn a_check_misses_deferred_bytes() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(8192, 1))).unwrap();
    a.kv.map.lock().unwrap().retain(|(f, _), _| *f != Family::Deferred);
    assert!(!a.store.check(false).unwrap().wrong.is_empty());
}

/// A store whose metadata were changed by somebody else.
fn opened_after(a: All, change: impl FnOnce(&mut Map)) -> (Volume, Result<BlueStore>) {
    let All { store, drive, kv, tenant, _volume, .. } = a;
    drop((store, tenant, _volume));
    change(&mut kv.map.lock().unwrap());
    let v = volume(&drive);
    let store = BlueStore::open(&v.tenant(NAME).unwrap(), kv, options());
    (v, store)
}

#[test]
fn changes_of_counts_that_fit_no_record_are_told_and_cost_nothing_else() {
    // One extent less names the first block of blob 0 of an object that is not there; transaction 5 said so.
    let key = vec![2, 0x27, 0x0f, 0, 1, 5];
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(100_000, 1))).unwrap();
    let (_volume, store) = opened_after(a, |map| drop(map.insert((Family::Counts, key), vec![0, 1])));
    let store = store.unwrap();
    assert_eq!(store.usage().uncounted, 1);
    for n in 0..40 {
        does(&store, |t| _ = t.write(ALL, &id("a"), n * 4096, &content(4096, 2))).unwrap();
    }
    assert!(!store.pack().unwrap() || !store.pack().unwrap(), "packing has no end");
    let wrong = store.check(true).unwrap().wrong;
    assert!(wrong.len() == 1 && wrong[0].contains("changes of counts of blob 0 of object number 9999"), "{wrong:#?}");
    does(&store, |t| _ = t.remove(ALL, &id("a"))).unwrap();
    let bad: [(&[u8], &[u8]); 3] = [(&[0], &[0, 1]), (&[1, 1, 0, 1, 5], &[0]), (&[1, 1, 0, 1, 5], &[0, 65])];
    for (key, value) in bad {
        let a = new(&large(), options());
        let (_volume, store) = opened_after(a, |map| drop(map.insert((Family::Counts, key.into()), value.into())));
        assert_eq!(store.err().map(|error| error.code()), Some(Code::Corruption), "{key:?} {value:?}");
    }
}

#[test]
fn transactions_go_on_while_counts_are_made() {
    for commits in [false, true] {
        let a = new(&large(), Options { count_from: 1000, ..options() });
        // As if no record of a blob were in memory.
        *a.kv.damaged.lock().unwrap() = Some((Family::Super, vec![]));
        let names = ["a", "b", "gone"];
        for name in names {
            does(&a.store, |t| _ = t.write(ALL, &id(name), 0, &content(200_000, 1))).unwrap();
        }
        let block = |n: u64, name: &str| does(&a.store, |t| _ = t.write(ALL, &id(name), n * 8192, &content(4096, 2)));
        names.iter().for_each(|name| (0..3).for_each(|n| block(n, name).unwrap()));
        assert!(a.store.usage().uncounted >= 9);
        let (store, kv) = (a.store.clone(), a.kv.clone());
        a.kv.hook(3, Family::Blobs, move || {
            // What these blobs count is otherwise by now than in the page that was read, or they are no more.
            let not_in_memory = kv.damaged.lock().unwrap().take();
            let mut now = Transaction::new();
            now.write(ALL, &id("a"), 0, &content(150_000, 3)).remove(ALL, &id("gone"));
            now.write(ALL, &id("b"), 100_000, &content(4096, 4));
            let ticket = store.queue(now).unwrap();
            if commits {
                store.wait(ticket).unwrap();
            }
            // And more waits for these.
            *kv.damaged.lock().unwrap() = not_in_memory;
            does(&store, |t| _ = t.write(ALL, &id("b"), 147_456, &content(20_480, 5))).unwrap();
        });
        a.store.pack().unwrap();
        assert!(a.kv.hook.lock().unwrap().is_none());
        let mut expected = content(200_000, 1);
        (0..3).for_each(|n| expected[n * 8192..n * 8192 + 4096].copy_from_slice(&content(4096, 2)));
        let mut other = expected.clone();
        expected[..150_000].copy_from_slice(&content(150_000, 3));
        other[100_000..104_096].copy_from_slice(&content(4096, 4));
        other[147_456..167_936].copy_from_slice(&content(20_480, 5));
        assert!(a.store.read(ALL, &id("a"), 0, 200_000).unwrap() == expected);
        assert!(a.store.read(ALL, &id("b"), 0, 200_000).unwrap() == other);
        fine(&a.store);
        a.store.pack().unwrap();
        assert_eq!(a.store.usage().uncounted, 0);
        fine(&a.store);
    }
}

#[test]
fn who_writes_waits_for_records_beside_others() {
    let a = new(&large(), Options { attended: true, ..options() });
    for name in ["a", "b"] {
        does(&a.store, |t| _ = t.write(ALL, &id(name), 0, &content(700 << 10, 1))).unwrap();
    }
    *a.kv.meeting.lock().unwrap() = (0, 2);
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let store = &a.store;
            scope.spawn(move || does(store, |t| _ = t.write(ALL, &id(name), 600 << 10, &content(4096, 2))).unwrap());
        }
    });
    *a.kv.meeting.lock().unwrap() = (0, 0);
    fine(&a.store);
}

#[test]
fn a_zone_of_which_no_record_tells_is_looked_at_once() {
    let a = new(&large(), options());
    for n in 0..40 {
        does(&a.store, |t| _ = t.write(ALL, &id(&format!("{n}")), 0, &content(50_000, n))).unwrap();
    }
    let kv = a.kv.clone();
    let gone = |family: Family| matches!(family, Family::Blobs | Family::Onodes | Family::Statistics);
    let (_volume, store) = opened_after(a, |map| map.retain(|(family, _), _| !gone(*family)));
    let (store, looked) = (store.unwrap(), Arc::new(Mutex::new(false)));
    for first in [true, false] {
        *looked.lock().unwrap() = false;
        let to = looked.clone();
        kv.hook(1, Family::Blobs, move || *to.lock().unwrap() = true);
        assert_eq!(store.clean(8 << 20).unwrap(), 0);
        assert_eq!(*looked.lock().unwrap(), first);
    }
}

#[test]
fn a_range_of_nothing_costs_nothing() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.touch(ALL, &id("a")).truncate(ALL, &id("a"), 4 << 30)).unwrap();
    let begin = std::time::Instant::now();
    does(&a.store, |t| _ = t.clone_range(ALL, &id("a"), &id("b"), (0, 4 << 30, 0))).unwrap();
    let n = *a.kv.writes.lock().unwrap().last().unwrap();
    assert!(n < 100, "{n} changes, {:?}", begin.elapsed());
}

#[test]
fn short_writes_do_not_gather_without_end() {
    let a = new(&large(), Options { gather: 1 << 20, pack_from: 1 << 20, ..Options::default() });
    let before = a.kv.writes.lock().unwrap().len();
    for n in 0..1500u64 {
        let mut t = Transaction::new();
        t.write(ALL, &id("a"), n << 15, &content(1 << 15, n as u8));
        a.store.queue(t).unwrap();
    }
    assert!(a.kv.writes.lock().unwrap().len() > before, "47 MiB are in memory, and none committed");
}

#[test]
fn a_panic_in_a_commit_ends_all() {
    let a = new(&large(), options());
    let mut t = Transaction::new();
    t.touch(ALL, &id("a"));
    let ticket = a.store.queue(t).unwrap();
    a.kv.hook(2, Family::Super, || panic!("kv"));
    let s = a.store.clone();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| s.sync())).is_err());
    let mut t = Transaction::new();
    t.touch(ALL, &id("b"));
    a.store.queue(t).ok();
    let durable = a.store.wait(ticket).is_ok();
    assert!(!durable || a.store.stat(ALL, &id("a")).is_ok(), "wait says that it is durable, and it is not there");
}

#[test]
fn an_open_zone_in_which_nothing_lives_is_room() {
    // Fill all but what the open zone has; then delete all.
    let a = new(&large(), options());
    let mut n = 0;
    while does(&a.store, |t| _ = t.write(ALL, &id(&format!("{n}")), 0, &content(200_000, n as u8))).is_ok() {
        n += 1;
    }
    let mut t = Transaction::new();
    (0..n).for_each(|n| _ = t.remove(ALL, &id(&format!("{n}"))));
    a.store.commit(t).unwrap();
    a.store.sync().unwrap();
    // Now nine tenths of it have room in one object, which needs every zone.
    let all = n as usize * 180_000;
    does(&a.store, |t| _ = t.write(ALL, &id("all"), 0, &vec![5; all])).unwrap();
}

#[test]
fn both_streams_fill_a_drive() {
    // gather in one group, hot and cold, on a drive with few zones left
    let a = new(&large(), Options { pack_from: 100 << 20, gather: 64 << 20, ..options() });
    let hot = Hint { short_lived: true, ..Hint::default() };
    let mut n = 0;
    loop {
        let mut t = Transaction::new();
        let h = id(&format!("h{n}"));
        t.write(ALL, &id(&format!("{n}")), 0, &content(200_000, n as u8));
        t.hint(ALL, &h, hot).write(ALL, &h, 0, &content(200_000, 3));
        if a.store.queue(t).is_err() {
            break;
        }
        n += 1;
    }
    a.store.sync().unwrap();
    assert_eq!(a.store.usage().deferred, 0);
}

#[test]
fn a_number_without_a_next_one_is_refused() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(8192, 1))).unwrap();
    let All { store, drive, kv, tenant, _volume, .. } = a;
    drop((store, tenant, _volume));
    for ((f, _), v) in kv.map.lock().unwrap().iter_mut() {
        if *f == Family::Onodes {
            *v = [&[1u8][..], &[0xff; 9], &[1], &v[2..]].concat();
        }
    }
    let v = volume(&drive);
    let store = BlueStore::open(&v.tenant(NAME).unwrap(), kv, options()).unwrap();
    assert_eq!(does(&store, |t| _ = t.remove(ALL, &id("a"))), Err(Code::Corruption));
}

#[test]
fn a_callback_may_queue() {
    let a = new(&large(), Options { gather: 64 << 10, ..options() });
    let (s1, s2) = (a.store.clone(), a.store.clone());
    let (tell, hear) = std::sync::mpsc::channel();
    let mut t = Transaction::new();
    t.write(ALL, &id("a"), 0, &content(100_000, 1)).on_commit(move |_| {
        let mut t = Transaction::new();
        t.touch(ALL, &id("c"));
        s1.queue(t).unwrap();
    });
    a.store.queue(t).unwrap();
    a.kv.hook(2, Family::Super, move || {
        let mut t = Transaction::new();
        t.write(ALL, &id("b"), 0, &content(100_000, 1));
        s2.queue(t).unwrap();
    });
    let s = a.store.clone();
    std::thread::spawn(move || {
        s.sync().unwrap();
        tell.send(()).unwrap()
    });
    assert!(hear.recv_timeout(std::time::Duration::from_secs(3)).is_ok(), "it waits for itself");
}

#[test]
fn written_zones_without_metadata_are_left_alone() {
    let a = new(&large(), options());
    does(&a.store, |t| _ = t.write(ALL, &id("a"), 0, &content(8 << 20, 1))).unwrap();
    let All { store, drive, kv, tenant, _volume, .. } = a;
    drop((store, tenant, _volume));
    {
        let v = Volume::open(
            drive.clone(),
            VolumeOptions { exec: Exec::Threads(1), survivor_bytes: 64 << 10, ..VolumeOptions::default() },
        )
        .unwrap();
        let error = BlueStore::open(&v.tenant(NAME).unwrap(), Arc::new(Mem::default()), options()).err().unwrap();
        assert!(error.to_string().contains("metadata are not here"), "{error}");
    }
    let v = volume(&drive);
    let store = BlueStore::open(&v.tenant(NAME).unwrap(), kv, options()).unwrap();
    fine(&store);
    assert!(store.read(ALL, &id("a"), 0, 8 << 20).unwrap() == content(8 << 20, 1));
}

#[test]
fn a_zone_comes_back_when_its_reader_is_gone() {
    let a = new(&large(), options());
    for n in 0..6 {
        does(&a.store, |t| _ = t.write(ALL, &id(&n.to_string()), 0, &content(1 << 20, 1))).unwrap();
    }
    let leased: Vec<_> = (2..20).map(imbrex_device::ZoneId).collect();
    leased.iter().for_each(|z| a.tenant.pin(*z));
    does(&a.store, |t| (0..6).for_each(|n| _ = t.remove(ALL, &id(&n.to_string())))).unwrap();
    leased.iter().for_each(|z| a.tenant.unpin(*z));
    a.store.sync().unwrap();
    assert_eq!(a.tenant.counts().forgotten, 0);
}

/// One record of a blob that cannot be read costs its object, and neither others' writes, nor what waits for others, nor cleaning.
#[test]
fn a_record_that_cannot_be_read_holds_up_no_others() {
    let a = new(&large(), Options { defer_below: 0, count_from: 8, ..options() });
    for n in 0..40 {
        does(&a.store, |t| _ = t.write(ALL, &id(&format!("{n}")), 0, &content(100_000, n))).unwrap();
    }
    // Nothing more goes to their zones.
    let (damaged, records) = {
        let map = a.kv.map.lock().unwrap();
        let mut blobs = map.keys().filter(|(family, _)| *family == Family::Blobs);
        (blobs.clone().nth(20).unwrap().1.clone(), blobs.by_ref().count())
    };
    assert_eq!(records, 40);
    *a.kv.damaged.lock().unwrap() = Some((Family::Blobs, damaged));
    // All but every fourth, the damaged one with them, in several passes.
    for n in (0..40).filter(|n| n % 4 != 3) {
        does(&a.store, |t| _ = t.remove(ALL, &id(&format!("{n}")))).unwrap();
    }
    a.store.pack().unwrap();
    assert_eq!(a.store.usage().uncounted, 1);
    a.store.clean(64 << 20).unwrap();
    assert!(a.store.usage().moved > 0, "{:?}", a.store.usage());
    for n in (3..40).step_by(4) {
        assert!(a.store.read(ALL, &id(&n.to_string()), 0, u64::MAX).unwrap() == content(100_000, n));
    }
    // It can be read again: nothing was lost.
    *a.kv.damaged.lock().unwrap() = None;
    a.store.pack().unwrap();
    assert_eq!(a.store.usage().uncounted, 0);
    fine(&a.store);
}

/// What is deferred is packed, but for a blob whose record or bytes cannot be read. That one waits until they can.
#[test]
fn what_is_deferred_and_cannot_be_read_holds_up_no_others() {
    let short = |n: u8| content(5000, n);
    let options = Options { defer_below: 64 << 10, pack_from: 1 << 20, ..options() };
    for (damaged, restart, left) in [
        (Family::Blobs, false, 1),
        (Family::Blobs, true, 1),
        // Its bytes are in memory as well.
        (Family::Deferred, false, 0),
        // All that would be read at once.
        (Family::Deferred, true, 40),
    ] {
        let mut a = new(&large(), options);
        for n in 0..40 {
            does(&a.store, |t| _ = t.write(ALL, &id(&n.to_string()), 0, &short(n))).unwrap();
        }
        if restart {
            let All { emulator, drive, kv, written, store, tenant, _volume } = a;
            drop((store, tenant, _volume));
            let v = volume(&drive);
            let tenant = v.tenant(NAME).unwrap();
            let store = BlueStore::open(&tenant, kv.clone(), options).unwrap();
            a = All { emulator, drive, kv, written, store, tenant, _volume: v };
        }
        let record = a.kv.map.lock().unwrap().keys().filter(|(family, _)| *family == damaged).nth(20).cloned();
        *a.kv.damaged.lock().unwrap() = record;
        a.store.pack().unwrap();
        assert_eq!(a.store.usage().deferred, left * 8192, "{damaged:?}, {restart}");
        // What comes behind it is packed, too.
        does(&a.store, |t| _ = t.write(ALL, &id("new"), 0, &short(90))).unwrap();
        a.store.pack().unwrap();
        assert_eq!(a.store.usage().deferred, left * 8192, "{damaged:?}, {restart}");
        *a.kv.damaged.lock().unwrap() = None;
        a.store.pack().unwrap();
        assert_eq!(a.store.usage().deferred, 0);
        assert!((0..40).all(|n| a.store.read(ALL, &id(&n.to_string()), 0, u64::MAX).unwrap() == short(n)));
        fine(&a.store);
    }
}

/// Clients each commit so many transactions with so many bytes, one behind the other, on a drive that takes 40 ms for a sync. How many syncs
/// that takes, and how many transactions were refused, one of each client at most: it commits no more then.
fn syncs(clients: u8, each: u8, bytes: u64, fails: Option<usize>) -> (usize, usize) {
    let a = new(&large(), options());
    *a.kv.syncs.lock().unwrap() = (0, Duration::from_millis(40), fails);
    let refused = Mutex::new(0);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (store, refused, content) = (&a.store, &refused, content(bytes, client));
            scope.spawn(move || {
                let one = |n| {
                    let id = id(&format!("{client} {n}"));
                    does(store, |t| _ = t.touch(ALL, &id).write(ALL, &id, 0, &content))
                };
                *refused.lock().unwrap() += usize::from((0..each).try_for_each(one).is_err());
            });
        }
    });
    let (syncs, ..) = *a.kv.syncs.lock().unwrap();
    (syncs, refused.into_inner().unwrap())
}

#[test]
fn clients_that_come_back_at_once_share_a_sync() {
    // Each would be in every second sync otherwise. Once is enough: another program may keep clients from coming back.
    for bytes in [0, 64 << 10] {
        let all: Vec<_> = (0..5).map(|_| syncs(8, 20, bytes, None)).collect();
        assert!(all.iter().any(|(syncs, _)| *syncs <= 28), "{bytes} bytes: {all:?}");
    }
}

#[test]
fn a_sync_that_fails_ends_all_who_wait_for_one_another() {
    for bytes in [0, 64 << 10] {
        for fails in 1..6 {
            assert_eq!(syncs(8, 20, bytes, Some(fails)), (fails, 8), "{bytes} bytes");
        }
    }
}
