//! A drive that fails alone, and bytes that are not what was written.

use crate::support::{config, formatted, options, value};
use imbrex_device::{Cause, Drive, HeapSurvivor, ZoneId};
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::Kv;
use std::sync::Arc;

fn key(n: u64) -> Vec<u8> {
    format!("k{n:03}").into_bytes()
}

/// A drive with memory that outlives processes, and the means to break it.
struct Bench {
    emulator: Emulator,
    drive: Drive,
}

impl Bench {
    fn new(config: &Config) -> Bench {
        let emulator = Emulator::memory(config).unwrap();
        let survivor = Some(Arc::new(HeapSurvivor::new()) as _);
        let drive = Drive { device: Arc::new(emulator.clone()), survivor };
        Kv::format(&drive, Some([9; 16]), false).unwrap();
        Bench { emulator, drive }
    }

    fn open(&self) -> Kv {
        Kv::open(self.drive.clone(), options()).unwrap()
    }

    /// The first byte of the payload of the first frame of the log, wherever it is.
    fn first_frame(&self) -> u64 {
        let size = config().zone_size;
        for zone in 2..48 {
            let (mut header, mut frame) = (vec![0; 4096], vec![0; 4096]);
            let at = zone * size;
            self.read(at, &mut header);
            self.read(at + 4096, &mut frame);
            if header.windows(3).any(|word| word == b"wal") && frame.iter().any(|byte| *byte != 0) {
                return at + 4096 + 64;
            }
        }
        panic!("there is no log");
    }

    fn read(&self, at: u64, out: &mut [u8]) {
        let mut buf = imbrex_device::AlignedBuf::zeroed(out.len());
        self.drive.device.read_at(&mut buf, at, imbrex_device::Cause::Other.into()).unwrap();
        out.copy_from_slice(&buf);
    }
}

/// So many keys, in four frames, and a part that only memory has when the process dies. Nothing is flushed to tables.
const KEYS: u64 = 50;

fn dead(bench: &Bench) {
    let store = bench.open();
    for n in 0..KEYS {
        store.put(&key(n), &value(n, 300), n < 40 && n % 10 == 9).unwrap();
    }
    // The process dies here.
    std::mem::forget(store);
}

#[test]
fn what_a_dead_process_had_in_memory_is_there() {
    let bench = Bench::new(&config());
    dead(&bench);
    let store = bench.open();
    assert_eq!(store.damage(), [""; 0]);
    assert!((0..KEYS).all(|n| store.get(&key(n)).unwrap() == Some(value(n, 300))));
}

#[test]
fn a_damaged_frame_costs_what_stood_in_it_and_nothing_behind() {
    let bench = Bench::new(&config());
    dead(&bench);
    bench.emulator.faults().flip_bits(bench.first_frame() + 40, 1).unwrap();
    let store = bench.open();
    assert!(store.damage().iter().any(|sentence| sentence.contains("changes before number")), "{:?}", store.damage());
    let kept: Vec<u64> = (0..KEYS).filter(|n| store.get(&key(*n)).unwrap() == Some(value(*n, 300))).collect();
    assert!(kept == (10..KEYS).collect::<Vec<_>>(), "{kept:?}");
    // Nothing is a value that nobody wrote.
    assert!((0..KEYS).all(|n| kept.contains(&n) || store.get(&key(n)).unwrap().is_none()));
    drop(store);
    let store = bench.open();
    assert!(kept.iter().all(|n| store.get(&key(*n)).unwrap() == Some(value(*n, 300))));
}

#[test]
fn a_damaged_frame_of_what_is_in_tables_is_no_damage() {
    let bench = Bench::new(&config());
    let store = bench.open();
    (0..10).for_each(|n| store.put(&key(n), &value(n, 300), true).unwrap());
    store.flush().unwrap();
    (10..20).for_each(|n| store.put(&key(n), &value(n, 300), true).unwrap());
    drop(store);
    bench.emulator.faults().flip_bits(bench.first_frame() + 40, 1).unwrap();
    let store = bench.open();
    assert_eq!(store.damage(), [""; 0]);
    assert!((0..20).all(|n| store.get(&key(n)).unwrap() == Some(value(n, 300))));
}

/// So many keys, each synced, that the log has several frames in its first zone, of which the last is not in tables.
fn flushed_and_one(bench: &Bench) {
    let store = bench.open();
    (0..100).for_each(|n| store.put(&key(n), &value(n, 300), n % 5 == 4).unwrap());
    store.flush().unwrap();
    store.put(b"last", b"1", true).unwrap();
    store.flush().unwrap();
    store.put(b"needed", b"2", true).unwrap();
    store.put(b"very last", b"3", true).unwrap();
    std::mem::forget(store);
}

#[test]
fn an_opening_reads_the_log_from_its_front_on() {
    let bench = Bench::new(&config());
    flushed_and_one(&bench);
    // What was flushed cannot be read any more, and nobody needs it.
    bench.emulator.faults().media_error(bench.first_frame() / 4096 * 4096, 4096);
    let read = || bench.emulator.stats().of(Cause::Wal).bytes_read;
    // A second opening goes on with what the first one found.
    for _ in 0..2 {
        let before = read();
        let store = bench.open();
        assert_eq!(store.damage(), [""; 0]);
        assert!((0..100).all(|n| store.get(&key(n)).unwrap() == Some(value(n, 300))));
        assert_eq!(store.get(b"needed").unwrap(), Some(b"2".to_vec()));
        assert_eq!(store.get(b"very last").unwrap(), Some(b"3".to_vec()));
        assert!(read() - before < 2 * options().segment_bytes as u64, "{} bytes of the log", read() - before);
        std::mem::forget(store);
    }
}

#[test]
fn what_cannot_be_read_from_the_front_on_is_told() {
    let bench = Bench::new(&config());
    flushed_and_one(&bench);
    let holds = |at: &u64| {
        let mut block = vec![0; 4096];
        bench.read(*at, &mut block);
        block.windows(6).any(|bytes| bytes == b"needed")
    };
    let all = (bench.first_frame() / 4096..6 << 8).map(|block| block * 4096);
    let frame = all.into_iter().find(holds).expect("a frame with the key");
    bench.emulator.faults().flip_bits(frame + 64 + 40, 1).unwrap();
    let store = bench.open();
    assert!(
        store.damage().iter().any(|sentence| sentence.contains("write-ahead log is damaged")),
        "{:?}",
        store.damage()
    );
    assert!((0..100).all(|n| store.get(&key(n)).unwrap() == Some(value(n, 300))));
    assert_eq!(store.get(b"needed").unwrap(), None);
    assert_eq!(store.get(b"very last").unwrap(), Some(b"3".to_vec()));
}

#[test]
fn a_flipped_bit_of_a_table_is_an_error_and_the_check_finds_it() {
    let bench = Bench::new(&config());
    let store = bench.open();
    (0..60).for_each(|n| store.put(&key(n), &value(n, 300), false).unwrap());
    store.compact().unwrap();
    drop(store);
    let size = config().zone_size;
    // One of them has the table that counts.
    for zone in 2..48 {
        let mut header = vec![0; 4096];
        bench.read(zone * size, &mut header);
        if header.windows(6).any(|word| word == b"tables") {
            bench.emulator.faults().flip_bits(zone * size + 4096 + 1000, 4).unwrap();
        }
    }
    let store = bench.open();
    assert_eq!(store.damage(), [""; 0]);
    let wrong = (0..60).filter(|n| store.get(&key(*n)).map_or(true, |found| found != Some(value(*n, 300)))).count();
    let told = (0..60).filter(|n| store.get(&key(*n)).is_err()).count();
    assert!(wrong > 0 && wrong == told, "{wrong} wrong, {told} told");
    assert_eq!(store.check().unwrap().len(), 1);
}

/// A zone that dies while it takes a table, or the log, costs nothing.
#[test]
fn zones_die_and_nothing_is_lost() {
    for dying in [2u64, 5, 9, 14, 23] {
        let bench = Bench::new(&config());
        let store = bench.open();
        for n in 0..900u64 {
            if n % 300 == dying {
                let zone = (4..48).map(ZoneId).find(|zone| {
                    let mut header = vec![0; 4096];
                    bench.read(u64::from(zone.0) * config().zone_size, &mut header);
                    header.windows(6).any(|word| word == b"tables") || header.windows(3).any(|word| word == b"wal")
                });
                if let Some(zone) = zone {
                    bench.emulator.faults().make_read_only(zone).unwrap();
                }
            }
            store.put(&key(n % 100), &value(n, 900), n % 50 == 0).unwrap();
        }
        for k in 0..100 {
            assert_eq!(store.get(&key(k)).unwrap(), Some(value(800 + k, 900)));
        }
        drop(store);
        let store = bench.open();
        assert!((0..100).all(|k| store.get(&key(k)).unwrap() == Some(value(800 + k, 900))));
    }
}

#[test]
fn another_order_is_refused_in_a_sentence() {
    struct Backwards;
    impl imbrex_kv::Order for Backwards {
        fn name(&self) -> &str {
            "backwards"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
            b.cmp(a)
        }
    }
    let drive = formatted(&config());
    Kv::open(drive.clone(), options()).unwrap().put(b"a", b"1", true).unwrap();
    let other = imbrex_kv::Options { order: Arc::new(Backwards), ..options() };
    let refused = Kv::open(drive, other).err().unwrap().to_string();
    assert!(refused.contains("leveldb.BytewiseComparator") && refused.contains("backwards"), "{refused}");
}
