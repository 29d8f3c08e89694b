//! Logs whose places in zones only damaged blocks of the journal knew: headers and frames tell where their bytes are.

use crate::support::{bytes, sharing};
use imbrex_bluefs::{BlueFs, Code, CreateOptions};
use imbrex_device::{Drive, HeapSurvivor, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::log::format::LOG_KIND;
use std::sync::Arc;

fn drive_of(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: Some(Arc::new(HeapSurvivor::new())) }
}

fn new_drive(share: bool) -> (Emulator, BlueFs) {
    let emulator = Emulator::memory(&Config::tiny()).unwrap();
    let drive = drive_of(&emulator);
    BlueFs::format(&drive, false).unwrap();
    let fs = BlueFs::mount(drive, sharing(share)).unwrap();
    (emulator, fs)
}

fn write(fs: &BlueFs, path: &str, data: &[u8]) {
    let mut file = fs.create(path, CreateOptions::default()).unwrap();
    file.append(data).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
}

fn grow(fs: &BlueFs, path: &str, data: &[u8]) {
    let mut log = fs.reopen(path).unwrap();
    log.append(data).unwrap();
    log.sync().unwrap();
    log.close().unwrap();
}

/// In one piece, and from its end on by small ones, each of which is looked for by itself.
fn read(fs: &BlueFs, path: &str) -> Result<Vec<u8>, Code> {
    let reader = fs.open_read(path).map_err(|e| e.code())?;
    let mut out = vec![0; reader.size() as usize];
    for (i, piece) in out.chunks_mut(1000).enumerate().rev() {
        let n = reader.read_at(i as u64 * 1000, piece).map_err(|e| e.code())?;
        assert_eq!(n, piece.len(), "{path}");
    }
    let mut whole = vec![0; out.len()];
    let n = reader.read_at(0, &mut whole).map_err(|e| e.code())?;
    assert!(n == out.len() && whole == out, "{path} is read in two ways, {n} bytes");
    Ok(out)
}

/// Address of the journal's zone.
fn journal_of(emulator: &Emulator) -> u64 {
    let size = emulator.geometry().zone_size;
    let mut buf = imbrex_device::AlignedBuf::zeroed(4096);
    for zone in report_all(emulator).unwrap() {
        if zone.state == ZoneState::Conventional || zone.wp == Some(0) {
            continue;
        }
        let at = u64::from(zone.id.0) * size;
        emulator.read_at(&mut buf, at, imbrex_device::Cause::Check.into()).unwrap();
        if imbrex_zones::ZoneHeader::decode(&buf).is_some_and(|h| h.kind == LOG_KIND) {
            return at;
        }
    }
    panic!("no journal");
}

/// Flips a bit of each block of the journal in turn, of a drive that is made anew, and of all of them: the bytes of the log are
/// somewhere. Returns all that the mounts said.
fn whole_without_any_block(made: impl Fn() -> Emulator, share: bool, whole: &[u8]) -> Vec<String> {
    let journal = journal_of(&made());
    let blocks =
        (2..).take_while(|block| made().faults().flip_bits(journal + block * 4096 + 66, 1).is_ok()).count() as u64;
    assert!(blocks > 3, "{blocks} blocks of the journal");
    let mut said = Vec::new();
    for bad in (2..blocks + 2).map(|block| block..=block).chain([2..=blocks + 1]) {
        let emulator = made();
        bad.clone().for_each(|block| emulator.faults().flip_bits(journal + block * 4096 + 66, 1).unwrap());
        let fs = BlueFs::mount(drive_of(&emulator), sharing(share)).unwrap();
        let damage = fs.mount_report().damage.clone();
        assert!(!damage.is_empty(), "blocks {bad:?}: a loss is told");
        let found = ["/", "/lost+found"].iter().flat_map(|dir| {
            let entries = fs.list(dir).unwrap_or_default();
            entries.into_iter().map(move |entry| format!("{}/{}", dir.trim_end_matches('/'), entry.name))
        });
        let read: Vec<_> = found.map(|path| (read(&fs, &path), path)).collect();
        let is_whole = read.iter().any(|(data, _)| data.as_ref().is_ok_and(|data| data.starts_with(whole)));
        let all: Vec<_> = read.iter().map(|(data, path)| (path, data.as_ref().map(Vec::len))).collect();
        assert!(is_whole, "blocks {bad:?}: {all:?}, {damage:?}");
        said.extend(damage);
    }
    said
}

/// Each record of where the log goes on may be lost; the bytes are the same whatever was cut off and written again.
#[test]
fn a_log_that_was_cut_and_grew_is_whole_without_any_block_of_the_journal() {
    let whole = bytes(40_000, 3);
    let made = || {
        let (emulator, fs) = new_drive(false);
        write(&fs, "/1.log", &whole[..20]);
        for (from, to) in [(17, 30_000), (2329, 35_000), (2329, 40_000)] {
            fs.truncate("/1.log", from as u64).unwrap();
            grow(&fs, "/1.log", &whole[from..to]);
        }
        emulator
    };
    let said = whole_without_any_block(made, false, &whole);
    assert!(said.iter().any(|what| what.contains("where bytes")), "of some block the loss left a hole");
}

/// What was cut off is not taken for what was written after it.
#[test]
fn a_log_that_was_cut_and_grew_by_other_bytes_has_these_without_any_block_of_the_journal() {
    let (old, new) = (bytes(40_000, 3), bytes(30_000, 9));
    let whole: Vec<u8> = old[..15_000].iter().chain(&new).copied().collect();
    let made = || {
        let (emulator, fs) = new_drive(false);
        write(&fs, "/1.log", &old[..10_000]);
        for (from, to) in [(10_000, 20_000), (20_000, 31_000), (31_000, 40_000)] {
            grow(&fs, "/1.log", &old[from..to]);
        }
        fs.truncate("/1.log", 15_000).unwrap();
        new.chunks(10_000).for_each(|piece| grow(&fs, "/1.log", piece));
        emulator
    };
    whole_without_any_block(made, false, &whole);
}

/// A log that is reopened goes on in its zone behind another one's bytes, without a header there where the other one was deleted, and
/// then in another zone, while blocks of the journal are lost that knew that.
#[test]
fn a_log_that_goes_on_behind_another_one_is_whole_without_any_block_of_the_journal() {
    let whole = bytes(1_500_000, 5);
    for deleted in [false, true] {
        for ends in [vec![20_000, 20_068], vec![20_000, 20_068, 31_000], vec![20_000, 20_068, 1_500_000]] {
            let made = || {
                let (emulator, fs) = new_drive(true);
                write(&fs, "/1.log", &whole[..ends[0]]);
                for part in ends.windows(2) {
                    let other = format!("/{}.log", part[1]);
                    write(&fs, &other, &bytes(9000, 8));
                    let of_other = fs.runs(&other).unwrap();
                    if deleted {
                        fs.unlink(&other).unwrap();
                    }
                    grow(&fs, "/1.log", &whole[part[0]..part[1]]);
                    let behind = fs.runs("/1.log").unwrap().into_iter().filter(|run| run.zone == of_other[0].zone);
                    assert!(behind.map(|run| run.address).max() > Some(of_other[0].address), "{:?}", fs.runs("/1.log"));
                }
                emulator
            };
            let said = whole_without_any_block(made, true, &whole[..ends[ends.len() - 1]]);
            if deleted {
                let words = if ends.len() > 2 { "where bytes" } else { "goes on for" };
                assert!(said.iter().any(|what| what.contains(words)), "{ends:?}: {said:?}");
            }
        }
    }
}

#[test]
fn a_log_that_was_cut_and_grew_in_another_zone_is_whole_without_the_journal() {
    let whole = bytes(20_000, 3);
    let (emulator, fs) = new_drive(false);
    let mut log = fs.create("/1.log", CreateOptions::default()).unwrap();
    log.append(&whole[..7279]).unwrap();
    log.append(&[9; 1529]).unwrap();
    log.sync().unwrap();
    log.truncate(7279).unwrap();
    log.append(&whole[7279..]).unwrap();
    log.sync().unwrap();
    log.close().unwrap();
    drop((log, fs));
    let journal = journal_of(&emulator);
    for block in 1.. {
        if emulator.faults().flip_bits(journal + block * 4096 + 66, 1).is_err() {
            break;
        }
    }
    let fs = BlueFs::mount(drive_of(&emulator), sharing(false)).unwrap();
    let entries = fs.list("/lost+found").unwrap();
    let path = format!("/lost+found/{}", entries[0].name);
    assert!(read(&fs, &path).unwrap() == whole, "{:?}", fs.mount_report().damage);
}
