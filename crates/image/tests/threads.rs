//! Many threads at once. Some write, discard and read blocks of an image, each its own, and keep a log of what they do. Others take snapshots, clone, flatten and remove them.
//!
//! A snapshot must have what was acknowledged before it, and nothing that was begun behind it. It must have the same for ever. A clone must have what its snapshot had.
//!
//! `IMBREX_IMAGE_SECONDS` says how long each store is tried (4), `IMBREX_IMAGE_ROUNDS` how many stores there are (1).

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_bluestore::BlueStore;
use imbrex_device::{Code, Drive};
use imbrex_emulator::{Config, Emulator};
use imbrex_image::{DIFF_MAGIC, Image, Images, Survives};
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pieces of 16 KiB, blocks of 4 KiB.
const ORDER: u8 = 14;
const BLOCK: u64 = 4096;
const WRITERS: u64 = 3;
/// Blocks of a writer.
const OWN: u64 = 40;
const ALL: u64 = WRITERS * OWN;

/// Whether the nth operation of a block leaves zeros there.
fn is_zero(n: u64) -> bool {
    n == 0 || n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0
}

/// What the nth operation leaves in a block.
fn content(block: u64, n: u64, to: &mut [u8]) {
    if is_zero(n) {
        return to.fill(0);
    }
    for (k, word) in to.chunks_mut(16).enumerate() {
        word[..8].copy_from_slice(&n.to_le_bytes());
        word[8..].copy_from_slice(&(block << 16 | k as u64).to_le_bytes());
    }
}

/// Which operation has left this, one of these; `Err`: none.
fn operation(block: u64, bytes: &[u8], from: u64, to: u64) -> Result<u64, String> {
    let mut expected = vec![0; BLOCK as usize];
    if bytes.iter().all(|byte| *byte == 0) {
        return (from..=to)
            .find(|n| is_zero(*n))
            .ok_or_else(|| format!("block {block} has zeros, and not one of {from}..={to}"));
    }
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    content(block, n, &mut expected);
    if bytes != expected {
        return Err(format!("block {block} is torn, or another's: {:?}", &bytes[..16]));
    }
    if n < from || n > to {
        return Err(format!("block {block} has operation {n}, and not one of {from}..={to}"));
    }
    Ok(n)
}

struct Logs {
    begun: Vec<AtomicU64>,
    acked: Vec<AtomicU64>,
}

impl Logs {
    fn new() -> Logs {
        let zeros = || (0..ALL).map(|_| AtomicU64::new(0)).collect();
        Logs { begun: zeros(), acked: zeros() }
    }
    fn of(all: &[AtomicU64]) -> Vec<u64> {
        all.iter().map(|n| n.load(Ordering::SeqCst)).collect()
    }
}

fn all_of(image: &Image) -> Vec<u8> {
    let mut bytes = vec![7; (ALL * BLOCK) as usize];
    image.read(0, &mut bytes).unwrap();
    bytes
}

fn survives(rng: &mut impl Rng) -> Survives {
    if rng.random_bool(0.05) { Survives::Power } else { Survives::Process }
}

/// Writes its blocks, and reads them.
fn write(image: &Image, logs: &Logs, (me, seed): (u64, u64), over: &AtomicBool) {
    let mut rng = ChaCha8Rng::seed_from_u64(1000 * seed + me);
    let first = me * OWN;
    let mut n = 0;
    while !over.load(Ordering::Relaxed) {
        n += 1;
        let at = first + rng.random_range(0..OWN);
        let len = match rng.random_range(0..4) {
            0 => rng.random_range(1..=OWN),
            _ => rng.random_range(1..=5),
        };
        let blocks = at..(at + len).min(first + OWN);
        let bytes = (blocks.end - blocks.start) * BLOCK;
        blocks.clone().for_each(|block| logs.begun[block as usize].store(n, Ordering::SeqCst));
        let survives = survives(&mut rng);
        if is_zero(n) {
            image.zero(blocks.start * BLOCK, bytes, survives).unwrap();
        } else {
            let mut new = vec![0; bytes as usize];
            blocks.clone().zip(new.chunks_mut(BLOCK as usize)).for_each(|(block, to)| content(block, n, to));
            image.write(blocks.start * BLOCK, &new, survives).unwrap();
        }
        blocks.clone().for_each(|block| logs.acked[block as usize].store(n, Ordering::SeqCst));
        if rng.random_bool(0.3) {
            let mut found = vec![7; (OWN * BLOCK) as usize];
            image.read(first * BLOCK, &mut found).unwrap();
            for (block, bytes) in (first..).zip(found.chunks(BLOCK as usize)) {
                let n = logs.acked[block as usize].load(Ordering::SeqCst);
                operation(block, bytes, n, n).unwrap_or_else(|why| panic!("writer {me}: {why}"));
            }
        }
    }
}

/// A snapshot of the image, or a clone, and what it had.
struct Kept {
    name: String,
    bytes: Vec<u8>,
}

fn differ(what: &str, found: &[u8], expected: &[u8]) {
    if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
        let block = at / BLOCK as usize;
        let head = |of: &[u8]| of[block * BLOCK as usize..][..16].to_vec();
        panic!("{what}: block {block} has changed: {:?}, and was {:?}", head(found), head(expected));
    }
}

/// Takes snapshots of the image, looks at them again and again, and removes them.
fn snapshots(images: &Images, logs: &Logs, (me, seed): (u64, u64), over: &AtomicBool) -> u32 {
    let mut rng = ChaCha8Rng::seed_from_u64(1000 * seed + 100 + me);
    let (mut kept, mut taken): (Vec<Kept>, u32) = (Vec::new(), 0);
    while !over.load(Ordering::Relaxed) {
        match rng.random_range(0..10) {
            0..3 if kept.len() < 4 => {
                taken += 1;
                let name = format!("s{me}-{taken}");
                let acked = Logs::of(&logs.acked);
                images.snapshot("disk", &name).unwrap();
                let begun = Logs::of(&logs.begun);
                let bytes = all_of(&images.image(&format!("disk@{name}"), true).unwrap());
                for (block, found) in (0..).zip(bytes.chunks(BLOCK as usize)) {
                    let (from, to) = (acked[block as usize], begun[block as usize]);
                    operation(block, found, from, to).unwrap_or_else(|why| panic!("disk@{name}: {why}"));
                }
                kept.push(Kept { name, bytes });
            }
            3..5 if !kept.is_empty() => {
                let gone = kept.swap_remove(rng.random_range(0..kept.len()));
                images.remove_snapshot("disk", &gone.name).unwrap();
            }
            5 if kept.len() > 1 => {
                let [a, b] = [0, 1].map(|n| &kept[n]);
                let mut diff = Vec::new();
                images.export_diff("disk", Some(&a.name), Some(&b.name), &mut diff).unwrap();
                differ("a diff", &applied(&diff, &a.bytes), &b.bytes);
            }
            _ => {
                for Kept { name, bytes } in &kept {
                    let name = format!("disk@{name}");
                    differ(&name, &all_of(&images.image(&name, true).unwrap()), bytes);
                }
            }
        }
    }
    for Kept { name, bytes } in kept {
        let at = format!("disk@{name}");
        differ(&at, &all_of(&images.image(&at, true).unwrap()), &bytes);
        images.remove_snapshot("disk", &name).unwrap();
    }
    taken
}

/// Clones snapshots, writes to the clones while another thread flattens them, and compares.
fn clones(images: &Images, (me, seed): (u64, u64), over: &AtomicBool) -> u32 {
    let mut rng = ChaCha8Rng::seed_from_u64(1000 * seed + 200 + me);
    let mut made = 0;
    while !over.load(Ordering::Relaxed) {
        made += 1;
        let (snap, clone) = (format!("c{me}-{made}"), format!("clone{me}-{made}"));
        images.snapshot("disk", &snap).unwrap();
        images.clone_image("disk", &snap, &clone).unwrap();
        let image = images.image(&clone, false).unwrap();
        let mut expected = vec![7; (ALL * BLOCK) as usize];
        // Before anybody reads all of it, the parent is written behind the snapshot for the first time.
        let mut known = vec![false; ALL as usize];
        let flatten = rng.random_bool(0.5);
        let second = rng.random_bool(0.5);
        std::thread::scope(|scope| {
            let flattener = flatten.then(|| scope.spawn(|| images.flatten(&clone).unwrap()));
            for n in 0..12 {
                let at = rng.random_range(0..ALL);
                let blocks = at..(at + rng.random_range(1..6)).min(ALL);
                let range = (blocks.start * BLOCK) as usize..(blocks.end * BLOCK) as usize;
                if rng.random_bool(0.25) {
                    image.zero(range.start as u64, range.len() as u64, Survives::Process).unwrap();
                    expected[range].fill(0);
                } else {
                    expected[range.clone()].fill(n | 0x40);
                    image.write(range.start as u64, &expected[range], Survives::Process).unwrap();
                }
                blocks.for_each(|block| known[block as usize] = true);
            }
            flattener.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let parent = all_of(&images.image(&format!("disk@{snap}"), true).unwrap());
        for block in (0..ALL as usize).filter(|block| !known[*block]) {
            let range = block * BLOCK as usize..(block + 1) * BLOCK as usize;
            expected[range.clone()].copy_from_slice(&parent[range]);
        }
        differ(&format!("{clone} of disk@{snap}, flattened: {flatten}"), &all_of(&image), &expected);
        if second {
            images.snapshot(&clone, "x").unwrap();
            let before = expected.clone();
            for n in 0..6 {
                let at = rng.random_range(0..ALL) * BLOCK;
                image.write(at, &[n; 512], Survives::Process).unwrap();
                expected[at as usize..][..512].fill(n);
            }
            images.flatten(&clone).unwrap();
            differ(&format!("{clone}@x"), &all_of(&images.image(&format!("{clone}@x"), true).unwrap()), &before);
            differ(&clone, &all_of(&image), &expected);
            if rng.random_bool(0.5) {
                drop(image);
                images.rollback(&clone, "x").unwrap();
                differ("a rollback", &all_of(&images.image(&clone, true).unwrap()), &before);
            } else {
                drop(image);
            }
            images.remove_snapshot(&clone, "x").unwrap();
        } else {
            drop(image);
        }
        let left = images.info(&clone).unwrap().parent.is_some();
        let busy = images.remove_snapshot("disk", &snap).map_err(|error| error.code());
        assert_eq!(busy, if left { Err(Code::Busy) } else { Ok(()) });
        images.remove(&clone).unwrap();
        if left {
            images.remove_snapshot("disk", &snap).unwrap();
        }
    }
    made
}

/// Makes and removes images, renames them, and lists all.
fn others(images: &Images, over: &AtomicBool) {
    let mut n = 0;
    while !over.load(Ordering::Relaxed) {
        n += 1;
        let (name, new) = (format!("other{n}"), format!("new{n}"));
        images.create_of(&name, 3 << ORDER, ORDER).unwrap();
        images.image(&name, false).unwrap().write(5000, &[1; 20000], Survives::Process).unwrap();
        images.rename(&name, &new).unwrap();
        images.resize(&new, 7000).unwrap();
        images.resize(&new, 3 << ORDER).unwrap();
        let mut found = vec![7; 3 << ORDER];
        images.image(&new, true).unwrap().read(0, &mut found).unwrap();
        assert!((0..3 << ORDER).all(|at| found[at] == u8::from((5000..7000).contains(&at))));
        for name in images.names().unwrap() {
            match images.info(&name) {
                Ok(info) => assert!(info.size <= ALL * BLOCK),
                Err(error) => assert_eq!(error.code(), Code::NotFound, "{error}"),
            }
        }
        images.remove(&new).unwrap();
        images.image("disk", true).unwrap().extent(0, ALL * BLOCK).unwrap();
        images.optimize("disk", 300_000, &mut std::io::sink()).unwrap();
    }
}

/// Applies a stream of `export_diff`.
fn applied(mut diff: &[u8], before: &[u8]) -> Vec<u8> {
    let mut take = |n: usize| {
        let (taken, rest) = diff.split_at(n);
        diff = rest;
        taken
    };
    assert_eq!(take(DIFF_MAGIC.len()), DIFF_MAGIC);
    let mut bytes = before.to_vec();
    loop {
        let tag = take(1)[0];
        let mut number = |n: usize| take(n).iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        match tag {
            b'f' | b't' => {
                let len = number(4) as usize;
                take(len);
            }
            b's' => bytes.resize(number(8) as usize, 0),
            b'w' | b'z' => {
                let (at, len) = (number(8) as usize, number(8) as usize);
                let new = if tag == b'w' { take(len).to_vec() } else { vec![0; len] };
                bytes[at..at + len].copy_from_slice(&new);
            }
            b'e' => return bytes,
            other => panic!("{other}"),
        }
    }
}

/// Sets `over` also where a thread panics, so that the others end.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn stress(store: &BlueStore, images: &Images, seed: u64) {
    let seconds = number("IMBREX_IMAGE_SECONDS", 4);
    images.create_of("disk", ALL * BLOCK, ORDER).unwrap();
    let disk = images.image("disk", false).unwrap();
    let (logs, over) = (Logs::new(), AtomicBool::new(false));
    let (disk_ref, logs_ref, over_ref) = (&disk, &logs, &over);
    let (mut taken, mut made) = (0, 0);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for me in 0..WRITERS {
            threads.push(scope.spawn(move || {
                let _over = Over(over_ref);
                write(disk_ref, logs_ref, (me, seed), over_ref);
                (0, 0)
            }));
        }
        for me in 0..2 {
            threads.push(scope.spawn(move || {
                let _over = Over(over_ref);
                (snapshots(images, logs_ref, (me, seed), over_ref), 0)
            }));
            threads.push(scope.spawn(move || {
                let _over = Over(over_ref);
                (0, clones(images, (me, seed), over_ref))
            }));
        }
        threads.push(scope.spawn(move || {
            let _over = Over(over_ref);
            others(images, over_ref);
            (0, 0)
        }));
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
            // What the maintenance does.
            store.pack().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            let (t, m) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (taken, made) = (taken + t, made + m);
        }
    });
    let ops: u64 = (0..WRITERS)
        .map(|me| (me * OWN..(me + 1) * OWN).map(|b| logs.acked[b as usize].load(Ordering::SeqCst)).max().unwrap())
        .sum();
    println!("{ops} writes, {taken} snapshots, {made} clones");
    let check = |image: &Image| {
        for (block, bytes) in (0..).zip(all_of(image).chunks(BLOCK as usize)) {
            let n = logs.acked[block as usize].load(Ordering::SeqCst);
            operation(block, bytes, n, n).unwrap();
        }
    };
    check(&disk);
    assert!(images.info("disk").unwrap().snapshots.is_empty());
    let report = store.check(true).unwrap();
    assert!(report.wrong.is_empty(), "{:?}", report.wrong);
    drop(disk);
    images.remove("disk").unwrap();
    // Blocks whose changes of counts wait live until these are made.
    store.pack().unwrap();
    assert_eq!((store.usage().objects, store.usage().stored + store.usage().deferred), (1, 0));
}

#[test]
fn threads_on_a_map() {
    let rounds = number("IMBREX_IMAGE_ROUNDS", 1);
    for (exec, seed) in
        [Exec::Inline, Exec::Threads(2)].into_iter().flat_map(|exec| (0..rounds).map(move |seed| (exec, seed)))
    {
        let config = Config { capacity: 192 << 20, ..support::config() };
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        support::format(&drive).unwrap();
        let store = support::open(&drive, exec).unwrap();
        let images = Images::open(store.clone(), ()).unwrap();
        stress(&store, &images, seed);
    }
}

#[test]
fn threads_on_the_key_value_store() {
    use imbrex_store::{Options, Store};
    for seed in 0..number("IMBREX_IMAGE_ROUNDS", 1) {
        let config = Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 512 << 20, ..support::config() };
        let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
        Store::format(&drive, None, false).unwrap();
        let options = Options { store: support::options(), ..Options::default() };
        let store = Store::open(drive, options).unwrap();
        let images = Images::open((*store).clone(), store.clone()).unwrap();
        stress(&store, &images, seed);
    }
}

/// What a writer has done, in order: blocks, by the number of the operation.
type Done = std::sync::Mutex<Vec<std::ops::Range<u64>>>;

/// Writes and discards a few of its blocks at a time, and keeps a log of it.
fn write_ranges(disk: &Image, (me, seed): (u64, u64), done: &Done, acked: &AtomicU64, over: &AtomicBool) {
    let _over = Over(over);
    let mut rng = ChaCha8Rng::seed_from_u64(1000 * seed + me);
    let mut n = 0;
    while !over.load(Ordering::Relaxed) {
        n += 1;
        let at = me * OWN + rng.random_range(0..OWN);
        let blocks = at..(at + rng.random_range(1..9)).min((me + 1) * OWN);
        done.lock().unwrap().push(blocks.clone());
        let bytes = (blocks.end - blocks.start) * BLOCK;
        if is_zero(n) {
            disk.zero(blocks.start * BLOCK, bytes, Survives::Process).unwrap();
        } else {
            let mut new = vec![0; bytes as usize];
            blocks.clone().zip(new.chunks_mut(BLOCK as usize)).for_each(|(block, to)| content(block, n, to));
            disk.write(blocks.start * BLOCK, &new, Survives::Process).unwrap();
        }
        acked.store(n, Ordering::SeqCst);
        if n % 16 == 0 {
            std::thread::sleep(Duration::from_millis(rng.random_range(0..8)));
        }
    }
}

/// The blocks of a writer, from the first on, are what the first so many of its operations made of them, at least these.
fn first_of(first: u64, found: &[u8], done: &[std::ops::Range<u64>], least: u64) -> Result<(), String> {
    let mut state = vec![0; OWN as usize];
    let is = |state: &[u64]| {
        let mut expected = vec![0; BLOCK as usize];
        (first..).zip(state).all(|(block, n)| {
            content(block, *n, &mut expected);
            found[(block * BLOCK) as usize..][..BLOCK as usize] == expected
        })
    };
    let (mut right, mut earlier) = (least == 0 && is(&state), None);
    for (n, blocks) in (1..).zip(done) {
        state[(blocks.start - first) as usize..(blocks.end - first) as usize].fill(n);
        if is(&state) {
            right |= n >= least;
            earlier = Some(n);
        }
    }
    if right { Ok(()) } else { Err(format!("it is as after {earlier:?} of {}, at least {least}", done.len())) }
}

/// The drive loses its power while threads write: each thread's first so many writes are there, those that were flushed among them, and all records agree.
#[test]
fn a_loss_of_power_leaves_the_first_writes_of_each_thread() {
    use imbrex_store::{Options, Store};
    use imbrex_zones::VolumeOptions;
    let options = || {
        let volume = VolumeOptions { survivor_bytes: 2 << 20, ..VolumeOptions::default() };
        let mut options = Options { store: support::options(), volume, ..Options::default() };
        (options.metadata.memtable_bytes, options.metadata.segment_bytes) = (128 << 10, 64 << 10);
        options
    };
    for seed in 0..number("IMBREX_IMAGE_ROUNDS", 1) {
        let config = Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 512 << 20, ..support::config() };
        let emulator = Arc::new(Emulator::memory(&config).unwrap());
        let drive = Drive { device: emulator.clone(), survivor: None };
        Store::format(&drive, None, false).unwrap();
        let store = Store::open(drive, options()).unwrap();
        let images = Images::open((*store).clone(), store.clone()).unwrap();
        images.create_of("disk", ALL * BLOCK, ORDER).unwrap();
        images.snapshot("disk", "empty").unwrap();
        images.clone_image("disk", "empty", "clone").unwrap();
        let disk = images.image("clone", false).unwrap();
        let over = AtomicBool::new(false);
        let done: Vec<Done> = (0..WRITERS).map(|_| Done::default()).collect();
        let acked: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let durable: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let all = |of: &[AtomicU64]| of.iter().map(|n| n.load(Ordering::SeqCst)).collect::<Vec<_>>();
        let (disk, over, done, acked, durable) = (&disk, &over, &done, &acked, &durable);
        std::thread::scope(|scope| {
            for me in 0..WRITERS {
                let (done, acked) = (&done[me as usize], &acked[me as usize]);
                scope.spawn(move || write_ranges(disk, (me, seed), done, acked, over));
            }
            // Flushes now and then.
            scope.spawn(move || {
                let _over = Over(over);
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                while !over.load(Ordering::Relaxed) {
                    let before = all(acked);
                    disk.flush().unwrap();
                    durable.iter().zip(before).for_each(|(durable, n)| durable.store(n, Ordering::SeqCst));
                    std::thread::sleep(Duration::from_millis(rng.random_range(0..200)));
                }
            });
            let _over = Over(over);
            let end = Instant::now() + Duration::from_secs(number("IMBREX_IMAGE_SECONDS", 4));
            let mut times = 0;
            while Instant::now() < end && !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(30));
                times += 1;
                let least = all(durable);
                let after = emulator.after_power_loss(1000 * seed + times).unwrap();
                let done: Vec<Vec<_>> = done.iter().map(|done| done.lock().unwrap().clone()).collect();
                let drive = Drive { device: Arc::new(after), survivor: None };
                let store = Store::open(drive, options()).unwrap();
                let images = Images::open((*store).clone(), store.clone()).unwrap();
                let found = all_of(&images.image("clone", true).unwrap());
                for me in 0..WRITERS as usize {
                    first_of(me as u64 * OWN, &found, &done[me], least[me])
                        .unwrap_or_else(|why| panic!("seed {seed}, loss {times}: writer {me}: {why}"));
                }
                let report = store.check(true).unwrap();
                assert!(report.wrong.is_empty(), "seed {seed}, loss {times}: {:?}", report.wrong);
            }
            println!("{times} losses of power; {:?} writes, {:?} durable", all(acked), all(durable));
        });
    }
}
