//! Streams of changes from one store to another: chains of them, hostile ones, and those that end early.

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_device::{Code, Drive};
use imbrex_emulator::{Config, Emulator};
use imbrex_image::control::{Control, Request, Server};
use imbrex_image::{DIFF_MAGIC, Images, LimitChange, Survives};
use imbrex_zones::Exec;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pieces of 16 KiB.
const ORDER: u8 = 14;
const PIECE: u64 = 1 << ORDER;

fn images() -> Images {
    let config = Config { capacity: 64 << 20, ..support::config() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    support::format(&drive).unwrap();
    Images::open(support::open(&drive, Exec::Inline).unwrap(), ()).unwrap()
}

fn exported(images: &Images, from: Option<&str>, to: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    images.export_diff("a", from, to, &mut out).unwrap();
    out
}

fn import(images: &Images, mut stream: &[u8]) -> Result<(), Code> {
    images.import_diff("a", &mut stream).map_err(|error| error.code())
}

fn all_of(images: &Images, name: &str) -> Vec<u8> {
    let image = images.image(name, true).unwrap();
    let mut bytes = vec![1; image.size().unwrap() as usize];
    image.read(0, &mut bytes).unwrap();
    bytes
}

/// Some writes, discards and sizes.
fn change(images: &Images, rng: &mut impl Rng) {
    let size = rng.random_range(4..12) * PIECE + rng.random_range(0..2) * 1000;
    images.resize("a", size).unwrap();
    let a = images.image("a", false).unwrap();
    for _ in 0..rng.random_range(1..8) {
        let at = rng.random_range(0..size);
        let len = rng.random_range(1..=size - at).min(40_000);
        match rng.random_range(0..3) {
            0 => a.zero(at, len, Survives::Process).unwrap(),
            _ => a.write(at, &support::content(len, rng.random()), Survives::Process).unwrap(),
        }
    }
}

#[test]
fn a_chain_of_streams_makes_the_same_images_and_snapshots() {
    for seed in 0..6 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (one, two) = (images(), images());
        one.create_of("a", 8 * PIECE, ORDER).unwrap();
        // Pieces of another size.
        two.create_of("a", rng.random_range(0..9 * PIECE), ORDER - (seed % 2) as u8).unwrap();
        let mut before: Option<String> = None;
        for n in 0..5 {
            change(&one, &mut rng);
            let snap = format!("s{n}");
            one.snapshot("a", &snap).unwrap();
            let stream = exported(&one, before.as_deref(), Some(&snap));
            // One that ends early changes no snapshot, and the whole one makes up for it. All that an image has goes into a new one only.
            if before.is_some() {
                let cut = rng.random_range(0..stream.len());
                assert_eq!(import(&two, &stream[..cut]), Err(Code::Corruption), "seed {seed}");
                assert_eq!(two.info("a").unwrap().snapshots.len(), n);
            }
            assert_eq!(import(&two, &stream), Ok(()), "seed {seed}, {n}");
            assert_eq!(import(&two, &stream), Err(Code::Exists));
            before = Some(snap);
        }
        change(&one, &mut rng);
        assert_eq!(import(&two, &exported(&one, before.as_deref(), None)), Ok(()));
        for name in ["a", "a@s0", "a@s1", "a@s2", "a@s3", "a@s4"] {
            assert!(all_of(&one, name) == all_of(&two, name), "seed {seed}: {name}");
        }
        let sizes = |images: &Images| {
            let info = images.info("a").unwrap();
            info.snapshots
                .iter()
                .map(|snap| (snap.name.clone(), snap.size))
                .chain([(info.name.clone(), info.size)])
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(&one), sizes(&two));
    }
}

#[test]
fn what_cannot_be_imported_changes_nothing() {
    let (one, two) = (images(), images());
    one.create_of("a", 4 * PIECE, ORDER).unwrap();
    one.image("a", false).unwrap().write(0, &[1; 5000], Survives::Process).unwrap();
    one.snapshot("a", "s").unwrap();
    one.snapshot("a", "t").unwrap();
    let (all, changes) = (exported(&one, None, Some("s")), exported(&one, Some("s"), Some("t")));
    assert_eq!(import(&two, &all), Err(Code::NotFound), "no such image");
    two.create_of("a", 8 * PIECE, ORDER).unwrap();
    assert_eq!(import(&two, &changes), Err(Code::NotFound), "no such snapshot");
    let a = two.image("a", false).unwrap();
    assert_eq!(import(&two, &all), Err(Code::Busy), "somebody has it open");
    a.write(6 * PIECE, &[2; 100], Survives::Process).unwrap();
    drop(a);
    assert_eq!(import(&two, &all), Err(Code::NotEmpty), "it has bytes");
    assert_eq!(import(&two, b"rbd diff v2\n"), Err(Code::Corruption));
    assert_eq!(import(&two, &[&all[..12], b"s", &[0xff; 8], b"e"].concat()), Err(Code::Corruption), "its size");
    let info = two.info("a").unwrap();
    assert_eq!((info.size, info.snapshots.len()), (8 * PIECE, 0));
    // A clone has its parent's bytes.
    two.snapshot("a", "s").unwrap();
    two.rename("a", "b").unwrap();
    two.clone_image("b", "s", "a").unwrap();
    assert_eq!(import(&two, &all), Err(Code::NotEmpty));
    // What an image may take counts.
    two.rename("a", "c").unwrap();
    two.create_of("a", 1, ORDER).unwrap();
    two.limit("a", LimitChange { used: Some(4096), ..LimitChange::default() }).unwrap();
    assert_eq!(import(&two, &all), Err(Code::NoSpace));
    assert_eq!(two.info("a").unwrap().snapshots.len(), 0);
}

#[test]
fn a_stream_of_somebody_else_may_have_any_order() {
    let images = images();
    images.create_of("a", PIECE, ORDER).unwrap();
    let record =
        |tag: &[u8], at: u64, len: u64, bytes: &[u8]| [tag, &at.to_le_bytes(), &len.to_le_bytes(), bytes].concat();
    // Zeros of a whole petabyte are nothing to do.
    let size = 1u64 << 50;
    let stream = [
        DIFF_MAGIC,
        &[b"s", &size.to_le_bytes()[..], b"t\x01\0\0\0x"].concat(),
        &record(b"w", PIECE - 2, 4, b"late"),
        &record(b"z", 100, size - 100, b""),
        &record(b"w", 3, 5, b"early"),
        b"e",
    ]
    .concat();
    assert_eq!(import(&images, &stream), Ok(()));
    let mut found = [9; 10];
    images.image("a@x", true).unwrap().read(0, &mut found).unwrap();
    assert_eq!(&found, b"\0\0\0early\0\0");
    images.image("a@x", true).unwrap().read(PIECE - 2, &mut found[..4]).unwrap();
    assert_eq!(found[..4], [0; 4]);
}

#[test]
fn a_server_takes_streams_and_clients_that_go_away_in_the_middle() {
    let dir = tempfile::tempdir().unwrap();
    let (path, one, two) = (dir.path().join("s"), images(), images());
    one.create("a", 6 << 20).unwrap();
    one.image("a", false).unwrap().write(12_345, &support::content(4 << 20, 3), Survives::Process).unwrap();
    one.snapshot("a", "s").unwrap();
    let stream = exported(&one, None, Some("s"));
    two.create("a", 1).unwrap();
    let control = Control::new(two.clone(), &path).unwrap();
    let request = || Request::ImportDiff { name: "a".into() };
    let give = |bytes: &[u8]| {
        let server = Server::at(&path).unwrap().unwrap();
        server.perform(&request(), &mut &bytes[..], &mut std::io::sink()).map_err(|error| error.code())
    };
    // The server says why, although the client has much more to give.
    let long = [b"rbd diff v9\n".to_vec(), vec![7; 8 << 20]].concat();
    assert_eq!(give(&long), Err(Code::Corruption));
    // Frames that cannot be, and a client that dies without an end: the stream was whole, but nobody has said so.
    let said = serde_json::to_vec(&request()).unwrap();
    let frame = |kind: u8, len: u32| [&[kind][..], &len.to_le_bytes()].concat();
    for frames in [frame(b'd', u32::MAX), frame(b'd', 0), frame(b'.', 1), frame(b'x', 1), frame(b'd', 5)] {
        let mut client = UnixStream::connect(&path).unwrap();
        let _ = client.write_all(&[&said[..], b"\n", &frames].concat());
        let _ = client.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        assert_eq!(answer.first(), Some(&b'e'), "{frames:?}");
    }
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(&[&said[..], b"\n", &frame(b'd', 30), &[&stream[..29], b"e"].concat()].concat()).unwrap();
    drop(client);
    assert_eq!(two.info("a").unwrap().snapshots.len(), 0);
    assert_eq!(give(&stream), Ok(()));
    assert!(all_of(&one, "a@s") == all_of(&two, "a@s"));
    // Nor one that gives its bytes late.
    let mut slow = UnixStream::connect(&path).unwrap();
    slow.write_all(&[&said[..], b"\n", &frame(b'd', 12)[..3]].concat()).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    slow.write_all(&[&frame(b'd', 12)[3..], b"rbd diff v3\n"].concat()).unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("version 1"));
    // A client that gives nothing does not keep a server from ending.
    let mut idle = UnixStream::connect(&path).unwrap();
    idle.write_all(&[&said[..], b"\n"].concat()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    drop(control);
    assert!(began.elapsed() < Duration::from_secs(5));
    let mut answer = Vec::new();
    idle.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.first(), Some(&b'e'));
}
