//! Drives whose bytes are not what a store has written, or not all of them: each gets a sentence, and nobody gets a value that was never put.

use crate::golden::{self, Has};
use crate::image::{BLOCK, ZoneBytes, drive_of, header_of, zones_of};
use crate::support::{Append, config, few_active, formatted, options, value};
use imbrex_device::{Cause, Code, Drive, ZoneId, ZoneOp, ZoneState};
use imbrex_emulator::{Config, Emulator};
use imbrex_kv::{Holds, Kv, Make, Order};
use imbrex_zones::frame::FRAME_HEADER;
use imbrex_zones::log::format::LOG_KIND;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

fn key(n: u64) -> Vec<u8> {
    format!("k{n:03}").into_bytes()
}

#[test]
fn a_zone_of_tables_that_was_reset_costs_its_keys_and_no_others() {
    for config in [config(), few_active()] {
        let drive = formatted(&config);
        let store = Kv::open(drive.clone(), options()).unwrap();
        (0..600).for_each(|n| store.put(&key(n), &value(n, 400), false).unwrap());
        store.compact().unwrap();
        store.put(b"in the log", b"1", true).unwrap();
        let tables: Vec<u32> = store
            .zones()
            .unwrap()
            .iter()
            .filter(|zone| matches!(zone.holds, Holds::Tables(_)) && zone.live > 0)
            .map(|zone| zone.zone)
            .collect();
        assert!(tables.len() > 2, "{tables:?}");
        let lost = tables[1];
        drop(store);
        drive.device.zone_op(ZoneOp::Reset, ZoneId(lost), Cause::Other.into()).unwrap();
        for _ in 0..2 {
            let store = Kv::open(drive.clone(), options()).unwrap();
            let damage = store.damage();
            assert!(damage.len() == 1 && damage[0].ends_with(" tables in it are lost"), "{damage:?}");
            assert!(damage[0].starts_with(&format!("zone {lost} is written up to byte 0 only, and ")), "{damage:?}");
            let mut told = 0;
            for n in 0..600 {
                match store.get(&key(n)) {
                    Ok(found) => assert!(found == Some(value(n, 400)), "{n}"),
                    Err(error) => {
                        told += 1;
                        assert_eq!(error.code(), Code::Corruption);
                        let (id, next) = (
                            "mem:tiny: table ",
                            " is lost: zone {} is written up to byte 0 only; restore its pairs from a copy, or take what is left with `imbrex kv salvage`",
                        );
                        let sentence = error.to_string();
                        assert!(
                            sentence.starts_with(id) && sentence.ends_with(&next.replace("{}", &lost.to_string())),
                            "{sentence}"
                        );
                    }
                }
            }
            assert!(told > 100 && told < 400, "{told} keys are lost");
            let check = store.check().unwrap();
            assert!(check.len() > 1 && check.iter().all(|found| found.contains(" is lost: ")), "{check:?}");
            assert_eq!(store.get(b"in the log").unwrap(), Some(b"1".to_vec()));
            store.put(b"in the log", b"1", true).unwrap();
        }
    }
}

/// Changes the items of each frame of the metadata log, and makes its checksums right.
fn in_metadata(zones: &mut [ZoneBytes], change: &mut dyn FnMut(&mut [u8])) {
    for zone in zones {
        if header_of(zone).is_none_or(|header| header.kind != LOG_KIND) {
            continue;
        }
        for at in (0..zone.bytes.len()).step_by(BLOCK) {
            let frame = &mut zone.bytes[at..];
            let len = u32::from_le_bytes(frame[48..52].try_into().unwrap()) as usize;
            if !frame.starts_with(b"IMfr") || FRAME_HEADER + len > frame.len() {
                continue;
            }
            let (header, payload) = frame[..FRAME_HEADER + len].split_at_mut(FRAME_HEADER);
            change(&mut payload[16..]);
            header[56..60].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
            header[60..64].fill(0);
            let crc = crc32c::crc32c(header);
            header[60..64].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// Where the lengths of smallest keys stand in notes of tables.
fn smallest_keys(items: &[u8]) -> Vec<usize> {
    let is_table = |at: &usize| {
        let number = |from: usize| u64::from_le_bytes(items[from..from + 8].try_into().unwrap());
        items[*at..].starts_with(b"\x06\0\0\0\0\x01k")
            && items[at - 91] == 2
            && number(at - 65) % 4096 == 0
            && number(at - 90) < 1000
    };
    (91..items.len().saturating_sub(8)).filter(is_table).collect()
}

/// The sentence that an opening refuses with, without its numbers.
fn refused(config: &Config, zones: &[ZoneBytes]) -> String {
    let store = Kv::open(drive_of(config, zones).1, options());
    let sentence = store.err().expect("it is refused").to_string();
    sentence.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("N")
}

#[test]
fn metadata_that_verifies_and_cannot_be_true_is_refused_in_a_sentence() {
    let drive = formatted(&config());
    let store = Kv::open(drive.clone(), options()).unwrap();
    (0..300).for_each(|n| store.put(&key(n), &value(n, 400), false).unwrap());
    store.compact().unwrap();
    (0..30).for_each(|n| store.put(&key(n * 10), &value(n, 400), false).unwrap());
    store.flush().unwrap();
    drop(store);
    let zones = zones_of(drive.device.as_ref());
    let most = u64::MAX.to_le_bytes();
    // What is put where, in bytes before the smallest key.
    let cases: [(&str, usize, &[u8]); 9] = [
        ("table N stands where no table can be", 77, &1000u32.to_le_bytes()),
        ("table N stands where no table can be", 65, &most),
        ("table N stands where no table can be", 57, &most),
        ("table N is of no level", 82, &[200]),
        ("table N has numbers that cannot be", 49, &most),
        ("table N has numbers that cannot be", 41, &most),
        ("table N has numbers that cannot be", 9, &most),
        ("table N has numbers that cannot be", 1, &[1]),
        ("zone N has several things in one place", 65, &4096u64.to_le_bytes()),
    ];
    for (sentence, before, bytes) in cases {
        let (mut changed, mut tables) = (zones.clone(), 0);
        in_metadata(&mut changed, &mut |items| {
            for at in smallest_keys(items) {
                items[at - before..][..bytes.len()].copy_from_slice(bytes);
                tables += 1;
            }
        });
        assert!(tables > 5, "{tables}");
        assert_eq!(
            refused(&config(), &changed),
            format!(
                "mem:tiny: has key-value metadata that makes no sense: {sentence}; `imbrex kv salvage` copies its pairs"
            )
        );
    }
    let (mut changed, mut tables) = (zones.clone(), 0);
    in_metadata(&mut changed, &mut |items| {
        // Before a record's first note stands its version.
        for at in smallest_keys(items).into_iter().filter(|at| *at > 91) {
            if items[at - 92] == 6 {
                items[at - 92] = 7;
                tables += 1;
            }
        }
    });
    assert!(tables > 1, "both copies");
    assert_eq!(
        refused(&config(), &changed),
        "mem:tiny: holds a key-value store of another version of Imbrex, whose metadata is of version N and not N; use that one"
    );
    let replaced = |from: &[u8], to: &[u8]| {
        let (mut changed, mut places) = (zones.clone(), 0);
        in_metadata(&mut changed, &mut |items| {
            while let Some(at) = items.windows(from.len()).position(|bytes| bytes == from) {
                items[at..][..to.len()].copy_from_slice(to);
                places += 1;
            }
        });
        assert!(places > 1, "both copies");
        refused(&config(), &changed)
    };
    assert_eq!(
        replaced(b"\x04\0\0\0ring", b"\x04\0\0\0song"),
        "mem:tiny: \"song\" is no policy of compactions; there are ring, gear, band, leveled"
    );
    assert_eq!(
        replaced(b"leveldb.Byte", b"leveldb.Word"),
        "mem:tiny: the store's keys are in the order \"leveldb.WordwiseComparator\", and it was opened with \"leveldb.BytewiseComparator\"; open it with its own"
    );
}

#[test]
fn lost_metadata_is_told_in_a_sentence() {
    for config in [config(), few_active()] {
        let drive = formatted(&config);
        let store = Kv::open(drive.clone(), options()).unwrap();
        (0..300).for_each(|n| store.put(&key(n), &value(n, 400), false).unwrap());
        drop(store);
        let zones = zones_of(drive.device.as_ref());
        let is_log = |zone: &ZoneBytes| header_of(zone).filter(|header| header.kind == LOG_KIND);
        let copy = |zone: &ZoneBytes| is_log(zone).map(|header| header.file as u32 & 1);
        let sentence = "mem:tiny: has lost both copies of the key-value store's metadata; `imbrex kv salvage` copies what is left of its pairs";
        for damaged in [false, true] {
            for lost in [vec![0], vec![1], vec![0, 1]] {
                let mut changed = zones.clone();
                for zone in changed.iter_mut().filter(|zone| copy(zone).is_some_and(|copy| lost.contains(&copy))) {
                    match damaged {
                        // Each frame's header.
                        true => zone.bytes.chunks_mut(BLOCK).skip(1).for_each(|block| block[9] ^= 4),
                        false => *zone = ZoneBytes { bytes: Vec::new(), ..zone.clone() },
                    }
                    if !damaged {
                        zone.state = ZoneState::Closed;
                    }
                }
                if lost.len() == 2 {
                    assert_eq!(refused(&config, &changed), sentence);
                    continue;
                }
                // One copy is enough. That the other one is lost is told, and it is written anew.
                let drive = drive_of(&config, &changed).1;
                for told in [true, false] {
                    let store = Kv::open(drive.clone(), options()).unwrap();
                    assert!((0..300).all(|n| store.get(&key(n)).unwrap() == Some(value(n, 400))));
                    let one = "One copy of the metadata has no whole snapshot; its other copy is used.";
                    assert_eq!(store.damage().iter().any(|sentence| sentence == one), told, "{:?}", store.damage());
                    assert_eq!(store.damage().is_empty(), !told, "{:?}", store.damage());
                    assert_eq!(store.check().unwrap(), [""; 0]);
                }
            }
        }
    }
}

#[test]
fn check_tells_damage_beside_tables_while_the_store_is_open() {
    let emulator = Arc::new(Emulator::memory(&config()).unwrap());
    let drive = Drive { device: emulator.clone(), survivor: None };
    Kv::format(&drive, Some([9; 16]), false).unwrap();
    let store = Kv::open(drive, options()).unwrap();
    (0..300).for_each(|n| store.put(&key(n), &value(n, 400), false).unwrap());
    store.flush().unwrap();
    // Frames of the log, each of a put that was synced.
    (0..8).for_each(|n| store.put(&key(n), &value(n, 400), true).unwrap());
    assert_eq!(store.check().unwrap(), [""; 0]);
    let mut told = [0; 2];
    for zone in store.zones().unwrap().iter().filter(|zone| zone.written > 0 && zone.live > 0) {
        let (n, start) = (zone.zone, u64::from(zone.zone) * config().zone_size);
        // What a sentence has, and the byte that is another one.
        let (kind, at, wanted) = match zone.holds {
            Holds::Tables(_) => (0, 20, format!("zone {n} has tables, and its header is damaged")),
            Holds::Log => (1, zone.written - 4096 + 90, format!("zone {n} of the write-ahead log is damaged at byte ")),
            // The other copy makes up for it, and nobody tells.
            Holds::Metadata => continue,
        };
        emulator.faults().flip_bits(start + at, 4).unwrap();
        let found = store.check().unwrap();
        assert!(found.iter().any(|found| found.contains(&wanted)), "{zone:?}: {found:?}");
        told[kind] += 1;
        emulator.faults().flip_bits(start + at, 4).unwrap();
        assert_eq!(store.check().unwrap(), [""; 0]);
    }
    assert!(told.iter().all(|told| *told > 0), "{told:?}");
}

/// All that a store gives is used, whatever it says.
fn use_all(store: &Kv) {
    let spaces = store.spaces();
    let all = spaces.iter().filter_map(|(name, order)| store.space(name, order, Make::Never).ok());
    for space in all.chain([store.clone()]) {
        let mut iter = space.iter().unwrap();
        let mut moved = iter.seek_to_first();
        for _ in 0..1000 {
            let Some((key, _)) = iter.get().filter(|_| moved.is_ok()) else { break };
            space.get(key).ok();
            moved = iter.advance();
        }
    }
    store.checkpoints().iter().for_each(|name| drop(store.at_checkpoint(name)));
    store.check().ok();
    store.put(b"k", b"1", true).ok();
    store.step().ok();
    store.compact().ok();
}

#[test]
fn hostile_metadata_with_right_sums_makes_no_panic() {
    let (zones, _) = golden::golden();
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut opened = 0;
    for _ in 0..150 {
        let mut changed = zones.clone();
        // Both copies alike, so that neither saves the other.
        let (seed, rate) = (random.random(), [2, 20, 200][random.random_range(0..3)]);
        in_metadata(&mut changed, &mut |items| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            for byte in items {
                if random.random_range(0..4000) < rate {
                    *byte = [0, 1, 255, random.random()][random.random_range(0..4)];
                }
            }
        });
        let drive = drive_of(&config(), &changed).1;
        if let Ok(store) = Kv::open(drive, options()) {
            opened += 1;
            store.merge_operator(Arc::new(Append { combines: true }));
            use_all(&store);
        }
    }
    assert!(opened > 10 && opened < 140, "{opened}");
}

/// What came of a flipped bit.
#[derive(Debug, Default)]
struct Came {
    refused: u32,
    told: u32,
    harmless: u32,
}

/// Whether an answer may be given. `told`: something was said to be lost, so an earlier value may be back, or none be there; but never one that nobody put.
fn is_allowed(n: &[u8], found: Option<&[u8]>, wanted: Option<&Vec<u8>>, told: bool) -> bool {
    let number = String::from_utf8_lossy(&n[1..]).trim_start_matches('0').to_owned();
    let begins = [
        format!("{number} in round "),
        format!("{}0 in round ", number),
        " in round ".into(),
        "0 in round ".into(),
        "new|".into(),
        "of ".into(),
        "gone".into(),
    ];
    found == wanted.map(Vec::as_slice)
        || told && found.is_none_or(|found| begins.iter().any(|begin| found.starts_with(begin.as_bytes())))
}

/// Opens a drive with a flipped bit, and uses all of it.
fn flipped(emulator: &Emulator, has: &Has, at: u64, mask: u8) -> Came {
    let emulator = emulator.fork().unwrap();
    if emulator.faults().flip_bits(at, mask).is_err() {
        return Came::default();
    }
    let drive = Drive { device: Arc::new(emulator), survivor: None };
    let store = match Kv::open(drive, options()) {
        Ok(store) => store,
        Err(error) => {
            let sentence = error.to_string();
            assert!(!sentence.contains("report it") && sentence.len() > 30, "{at}: {sentence}");
            return Came { refused: 1, ..Came::default() };
        }
    };
    let operator = || Arc::new(Append { combines: true });
    store.merge_operator(operator());
    let users = store.space("users", golden::Backwards.name(), Make::Never).unwrap();
    users.merge_operator(operator());
    let found_bad = !store.check().unwrap().is_empty();
    let lost = !store.damage().is_empty();
    let (now, monday) = (store.snapshot(), store.at_checkpoint("monday").unwrap());
    let (mut errors, mut wrong) = (0, 0);
    for (kv, at_moment, map) in
        [(&store, &now, &has.unnamed), (&users, &now, &has.users), (&store, &monday, &has.monday)]
    {
        for n in 0..110u64 {
            let key = format!("k{n:05}").into_bytes();
            match kv.get_at(at_moment, &key) {
                Ok(found) => {
                    let (found, wanted) = (found.as_deref(), map.get(&key));
                    assert!(
                        is_allowed(&key, found, wanted, lost),
                        "{at}: {n} has {:?}; {:?}",
                        found.map(String::from_utf8_lossy),
                        store.damage()
                    );
                    wrong += u32::from(found != wanted.map(Vec::as_slice));
                }
                Err(_) => errors += 1,
            }
        }
        let mut iter = kv.iter_at(at_moment).unwrap();
        let (mut moved, mut count) = (iter.seek_to_first(), 0);
        while let (Ok(()), Some((key, value))) = (&moved, iter.get()) {
            assert!(is_allowed(key, Some(value), map.get(key), lost), "{at}: an iterator has {key:?}");
            count += 1;
            moved = iter.advance();
        }
        errors += u32::from(moved.is_err());
        assert!(moved.is_err() || count == map.len() || lost, "{at}: an iterator passes over keys");
    }
    assert!(errors == 0 || found_bad || lost, "{at}: the check does not find what cannot be read");
    assert!(wrong == 0 || lost);
    // It can be used, or says why not.
    store.put(b"k", b"1", true).ok();
    let told = u32::from(errors > 0 || found_bad || lost);
    Came { refused: 0, told, harmless: 1 - told }
}

/// One bit in each block of every zone that is written, and of the label.
#[test]
fn a_flipped_bit_anywhere_gives_no_wrong_value() {
    let (zones, has) = golden::golden();
    let emulator = drive_of(&config(), &zones).0;
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut bits = Vec::new();
    for (zone, n) in zones.iter().zip(0u64..) {
        for block in (0..zone.bytes.len()).step_by(BLOCK) {
            let used = zone.bytes[block..][..BLOCK].iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
            // One where bytes are, and one anywhere.
            for at in [random.random_range(0..=used), random.random_range(0..BLOCK as u64)] {
                bits.push((n * config().zone_size + block as u64 + at, 1 << random.random_range(0..8)));
            }
        }
    }
    let halves = bits.split_at(bits.len() / 2);
    let sweep = |bits: &[(u64, u8)]| {
        bits.iter().fold(Came::default(), |sum, (at, mask)| {
            let came = flipped(&emulator, &has, *at, *mask);
            Came {
                refused: sum.refused + came.refused,
                told: sum.told + came.told,
                harmless: sum.harmless + came.harmless,
            }
        })
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| sweep(halves.1));
        (sweep(halves.0), other.join().unwrap())
    });
    println!("{} bits: {one:?} {other:?}", bits.len());
    let told = one.told + other.told;
    assert!(told > 50 && one.harmless + other.harmless > 50, "{one:?} {other:?}");
}
