//! `imbrex fs salvage`: what comes back of a drive whose metadata is gone, and what is said of a drive that never was ours.

mod support;

use imbrex_device::{AlignedBuf, Cause, ZoneId, ZoneOp, ZoneState, ZonedDevice, report_all};
use imbrex_emulator::{Emulator, OpenOptions};
use imbrex_zones::ZoneHeader;
use imbrex_zones::frame::{Frame, FrameId};
use imbrex_zones::log::format::LOG_KIND;
use std::path::{Path, PathBuf};
use support::*;

const TAG: Cause = Cause::Check;

fn filled() -> Place {
    let at = formatted();
    let source = at.host("source");
    std::fs::create_dir_all(Path::new(&source).join("db")).unwrap();
    let file = |name: &str, content: &[u8]| std::fs::write(Path::new(&source).join(name), content).unwrap();
    // A table's last byte is never zero.
    file("db/000007.sst", &[&bytes(2_500_000)[..], &[7]].concat());
    file("db/000008.log", &bytes(70_000));
    file("db/CURRENT", b"MANIFEST-000001\n");
    done(at.fs("cp", &[&source, ":/all"]));
    at
}

fn emulator(at: &Place) -> Emulator {
    Emulator::open(&at.path, OpenOptions::default()).unwrap()
}

fn destroy_labels(at: &Place) {
    let drive = emulator(at);
    let zeros = AlignedBuf::zeroed(64 << 10);
    for zone in [0, 1] {
        drive.write_at(&zeros, drive.geometry().start(ZoneId(zone)), TAG.into()).unwrap();
    }
    drive.flush(TAG.into()).unwrap();
}

/// Resets the journal's zones; returns how many.
fn destroy_journal(at: &Place) -> usize {
    let drive = emulator(at);
    let mut buf = AlignedBuf::zeroed(4096);
    let mut destroyed = 0;
    for zone in report_all(&drive).unwrap() {
        if zone.wp.is_none_or(|wp| wp < 4096) {
            continue;
        }
        drive.read_at(&mut buf, drive.geometry().start(zone.id), TAG.into()).unwrap();
        if ZoneHeader::decode(&buf).is_some_and(|header| header.kind == LOG_KIND) {
            drive.zone_op(ZoneOp::Reset, zone.id, TAG.into()).unwrap();
            destroyed += 1;
        }
    }
    destroyed
}

/// Files below a directory of the host, by their names.
fn found(dir: &str, name: &str) -> Vec<PathBuf> {
    let plain = |name: &str| match name.split_once('-') {
        Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => rest.to_owned(),
        _ => name.to_owned(),
    };
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::from(dir)];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => directories.push(path),
                // In lost+found a file's number stands before its name.
                path if plain(&path.file_name().unwrap().to_string_lossy()).starts_with(name) => found.push(path),
                _ => {}
            }
        }
    }
    found
}

fn tables_and_logs_are_back(to: &str) {
    let whole = |name: &str, wanted: &[u8]| {
        let files = found(to, name);
        // A table whose size is lost ends with its last block.
        let padded = |bytes: &[u8]| bytes.len() - wanted.len() < 4096 && bytes[wanted.len()..].iter().all(|b| *b == 0);
        let same = |bytes: Vec<u8>| bytes == wanted || (bytes.starts_with(wanted) && padded(&bytes));
        assert!(files.iter().any(|path| same(content(path))), "{name}: {files:?}");
    };
    whole("000007.sst", &[&bytes(2_500_000)[..], &[7]].concat());
    whole("000008.log", &bytes(70_000));
}

#[test]
fn without_labels_everything_is_back_where_it_was() {
    for quick in [false, true] {
        let at = filled();
        destroy_labels(&at);
        fails(at.fs("ls", &[]), 1);
        let before = content(&at.path);
        let to = at.host("salvaged");
        let said =
            done(at.fs("salvage", if quick { vec![to.as_str(), "--quick"] } else { vec![to.as_str()] }.as_slice()));
        says(&said, &["does not mount as it is", "3 files", "0 of them without a directory", "0 damaged"]);
        tables_and_logs_are_back(&to);
        assert_eq!(content(Path::new(&to).join("all/db/CURRENT")), b"MANIFEST-000001\n");
        assert!(content(&at.path) == before, "the drive stays as it was");
    }
}

#[test]
fn without_the_label_rings_of_a_drive_without_conventional_zones_everything_is_back() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny", "--conventional", "0"]));
    done(at.fs("format", &[]));
    done(at.fs("cp", &[&at.file("000001.sst", bytes(2_000_001)), ":/000001.sst"]));
    done(at.fs("cp", &[&at.file("CURRENT", "MANIFEST-000001\n"), ":/CURRENT"]));
    done(at.run(&["drive", "reset", at.drive(), "0-1", "--force"]));
    fails(at.fs("ls", &[]), 1);
    let to = at.host("salvaged");
    says(&done(at.fs("salvage", &[&to])), &["2 files", "0 damaged"]);
    assert!(content(Path::new(&to).join("000001.sst")) == bytes(2_000_001));
    assert_eq!(content(Path::new(&to).join("CURRENT")), b"MANIFEST-000001\n", "small files stand in the journal here");
}

#[test]
fn without_journal_tables_and_logs_are_back() {
    for labels in [true, false] {
        let at = filled();
        assert!(destroy_journal(&at) > 0);
        if !labels {
            destroy_labels(&at);
        }
        let to = at.host("salvaged");
        let facts = json(at.fs("salvage", &[&to, "--json"]));
        assert!(!facts["notes"].as_array().unwrap().is_empty(), "{facts}");
        tables_and_logs_are_back(&to);
        says(&fails(at.fs("salvage", &[&to]), 1), &["not empty"]);
    }
}

#[test]
fn a_zone_that_is_gone_costs_no_others() {
    let at = filled();
    destroy_labels(&at);
    let drive = emulator(&at);
    let mut buf = AlignedBuf::zeroed(4096);
    let zones = report_all(&drive).unwrap();
    let of = |name: &str, buf: &mut AlignedBuf| {
        let mut full = zones.iter().filter(|z| z.state != ZoneState::Conventional && z.wp > Some(0));
        full.find(|zone| {
            drive.read_at(buf, drive.geometry().start(zone.id), TAG.into()).unwrap();
            ZoneHeader::decode(buf).is_some_and(|h| h.name == name && h.logical == 0)
        })
    };
    let table = of("000007.sst", &mut buf).unwrap().id;
    drop(drive);
    emulator(&at).zone_op(ZoneOp::Reset, table, TAG.into()).unwrap();
    let to = at.host("salvaged");
    let facts = json(at.fs("salvage", &[&to, "--json"]));
    assert!(facts["damaged_files"].as_u64() >= Some(1), "{facts}");
    says(&facts["notes"].to_string(), &["/all/db/000007.sst: its bytes 0 to "]);
    assert!(found(&to, "000008.log").iter().any(|path| content(path) == bytes(70_000)));
}

#[test]
fn parts_that_share_a_zone_are_told_apart() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let drive = emulator(&at);
    let zone = report_all(&drive).unwrap().iter().find(|z| z.state == ZoneState::Empty).unwrap().id;
    let start = drive.geometry().start(zone);
    let header = |file, kind, life, name: &str, created| ZoneHeader {
        volume: [9; 16],
        owner: 1,
        kind,
        file,
        life,
        logical: 0,
        created,
        zone: zone.0,
        mount: 1,
        name: name.into(),
    };
    let mut at_byte = 0;
    let mut write = |bytes: &[u8]| {
        let buf = AlignedBuf::padded(bytes, 4096);
        drive.write_at(&buf, start + at_byte, TAG.into()).unwrap();
        at_byte += buf.len() as u64;
        at_byte
    };
    let mut block = vec![0; 4096];
    let table = [&bytes(20_000)[..], &[1]].concat();
    header(100, imbrex_bluefs::FileKind::Table as u8, 11, "000001.sst", 1).encode_into(&mut block);
    write(&block);
    write(&table);
    block.fill(0);
    header(101, imbrex_bluefs::FileKind::Log as u8, 12, "000002.log", 2).encode_into(&mut block);
    let mut place_of_frame = write(&block);
    let mut log = Vec::new();
    for sequence in 0..3 {
        let payload = bytes(5000 + sequence as usize);
        let frame = Frame {
            sequence,
            logical: log.len() as u64,
            at: place_of_frame,
            len: payload.len() as u32,
            back: 0,
            payload_crc: crc32c::crc32c(&payload),
        };
        place_of_frame = write(&[&frame.encode(FrameId { file: 101, life: 12 })[..], &payload].concat());
        log.extend_from_slice(&payload);
    }
    drop(drive);
    let to = at.host("salvaged");
    done(at.fs("salvage", &[&to]));
    assert!(found(&to, "000001.sst").iter().any(|path| content(path) == table), "the table ends where the log begins");
    assert!(found(&to, "000002.log").iter().any(|path| content(path) == log));
    // Only the beginning of the zone: the log behind it is not found.
    let quick = at.host("quick");
    done(at.fs("salvage", &[&quick, "--quick"]));
    assert!(found(&quick, "000002.log").is_empty());
}

#[test]
fn a_drive_that_never_was_ours_gets_one_sentence() {
    let at = place();
    done(at.run(&["drive", "create", at.drive(), "--profile", "tiny"]));
    let to = at.host("salvaged");
    says(&fails(at.fs("salvage", &[&to]), 1), &["no zone of it was ever written by Imbrex", "right drive"]);
    let drive = emulator(&at);
    let zone = report_all(&drive).unwrap().iter().find(|z| z.state == ZoneState::Empty).unwrap().id;
    drive.write_at(&AlignedBuf::padded(&bytes(100_000), 4096), drive.geometry().start(zone), TAG.into()).unwrap();
    drop(drive);
    says(&fails(at.fs("salvage", &[&to]), 1), &["no zone of it was ever written by Imbrex"]);
    assert!(!Path::new(&to).exists());
    says(&fails(at.run(&["fs", "salvage", &at.file("text", "hello"), &to]), 1), &["not"]);
    // Formatted and empty is ours.
    let empty = formatted();
    says(&done(empty.fs("salvage", &[&empty.host("salvaged")])), &["0 files"]);
}
