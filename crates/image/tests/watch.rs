//! Figures of images, for whoever watches them.

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_device::{Code, Drive};
use imbrex_emulator::{Config, Emulator};
use imbrex_image::{Clock, Figures, Images, Kind, LimitChange, Survives};
use imbrex_zones::Exec;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Hands(Mutex<Duration>);

impl Hands {
    fn forward(&self, seconds: u64) {
        *self.0.lock().unwrap() += Duration::from_secs(seconds);
    }
}

impl Clock for Hands {
    /// Who waits has a second of his own each time.
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
    fn nap(&self, left: Duration) -> Duration {
        *self.0.lock().unwrap() += left;
        Duration::ZERO
    }
}

fn images() -> (Images, Arc<Hands>) {
    let config = Config { capacity: 256 << 20, ..support::config() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    support::format(&drive).unwrap();
    let (store, hands) = (support::open(&drive, Exec::Inline).unwrap(), Arc::new(Hands::default()));
    (Images::open_clocked(store, (), hands.clone()).unwrap(), hands)
}

fn of(images: &Images, name: &str) -> Figures {
    images.figures().unwrap().into_iter().find(|image| image.name == name).unwrap()
}

#[test]
fn requests_are_counted_by_kind_and_stay_when_clients_go() {
    let (images, _) = images();
    images.create("a", 8 << 20).unwrap();
    images.create("b", 1 << 20).unwrap();
    {
        let a = images.image("a", false).unwrap();
        a.write(0, &[1; 10_000], Survives::Process).unwrap();
        a.write(5 << 20, &[1; 6_000], Survives::Process).unwrap();
        assert_eq!(a.write(8 << 20, &[1], Survives::Process).unwrap_err().code(), Code::Range);
        a.read(4096, &mut [0; 5000]).unwrap();
        a.zero(0, 4 << 20, Survives::Process).unwrap();
        a.flush().unwrap();
    }
    images.limit("a", LimitChange { bandwidth: Some(1000), ..LimitChange::default() }).unwrap();
    images.image("a", false).unwrap().read(0, &mut [0; 3000]).unwrap();
    let a = of(&images, "a");
    let counts = |kind: Kind| {
        let of = &a.requests[kind as usize];
        assert_eq!(of.kind, kind);
        let in_buckets = of.nanoseconds.buckets.last().map(|(_, within)| *within);
        assert_eq!(in_buckets, Some(of.nanoseconds.count));
        (of.nanoseconds.count, of.bytes, of.failed)
    };
    assert_eq!(counts(Kind::Write), (2, 16_000, 1));
    assert_eq!(counts(Kind::Read), (2, 8_000, 0));
    assert_eq!((counts(Kind::Discard), counts(Kind::Flush)), ((1, 4 << 20, 0), (1, 0, 0)));
    // The wait is no part of how long the read took.
    assert_eq!((a.waits, a.waited), (1, 2_000_000_000));
    assert!(a.requests[Kind::Read as usize].nanoseconds.sum < 1_000_000_000);
    assert_eq!(a.limits.bandwidth, Some(1000));
    assert!(of(&images, "b").requests.iter().all(|of| of.nanoseconds.count == 0));
    images.rename("a", "c").unwrap();
    assert_eq!(of(&images, "c").requests, a.requests);
    images.remove("c").unwrap();
    images.create("c", 1).unwrap();
    assert!(of(&images, "c").requests.iter().all(|of| of.nanoseconds.count == 0));
}

#[test]
fn what_an_image_takes_is_looked_up_now_and_then() {
    let (images, hands) = images();
    images.create("a", 64 << 20).unwrap();
    let a = images.image("a", false).unwrap();
    a.write(0, &[1; 8192], Survives::Process).unwrap();
    let taken = |images: &Images| of(images, "a").taken.map(|taken| (taken.used, taken.kept, taken.age));
    assert_eq!(taken(&images), Some((8192, 0, 0)));
    images.snapshot("a", "s").unwrap();
    a.write(0, &[1; 12_288], Survives::Process).unwrap();
    hands.forward(59);
    assert_eq!(taken(&images), Some((8192, 0, 59)));
    hands.forward(1);
    assert_eq!(taken(&images), Some((12_288, 8192, 0)));
    // Who asks what an image is looks, too.
    a.write(0, &[1; 16_384], Survives::Process).unwrap();
    hands.forward(7);
    images.info("a").unwrap();
    hands.forward(2);
    assert_eq!(taken(&images), Some((16_384, 8192, 2)));
    assert_eq!(images.stat("a").unwrap().image.taken.map(|taken| taken.age), Some(2));
}

#[test]
fn a_look_at_many_objects_is_done_by_parts() {
    use imbrex_store::{Options, Store};
    let config = Config { capacity: 512 << 20, ..support::config() };
    let drive = Drive { device: Arc::new(Emulator::memory(&config).unwrap()), survivor: None };
    Store::format(&drive, None, false).unwrap();
    let mut options = Options::default();
    options.metadata.memtable_bytes = 4 << 20;
    let store = Store::open(drive, options).unwrap();
    let images = Images::open((*store).clone(), store).unwrap();
    // More pieces than one answer looks at.
    let pieces = 40_000u64;
    images.create_of("a", pieces << 12, 12).unwrap();
    let a = images.image("a", false).unwrap();
    for first in (0..pieces).step_by(2000) {
        a.write(first << 12, &vec![1; 2000 << 12], Survives::Process).unwrap();
    }
    let taken = |images: &Images| of(images, "a").taken.map(|taken| taken.used);
    assert_eq!((taken(&images), taken(&images)), (None, None));
    assert_eq!(taken(&images), Some(pieces << 12));
    images.create_of("b", 1 << 20, 12).unwrap();
    assert_eq!(of(&images, "b").taken.map(|taken| taken.used), Some(0));
    // Whoever asks for this one alone waits for all of it.
    drop(a);
    images.rename("a", "c").unwrap();
    images.snapshot("c", "s").unwrap();
    images.clone_image("c", "s", "a").unwrap();
    images.flatten("a").unwrap();
    assert_eq!(images.stat("a").unwrap().image.taken.map(|taken| taken.used), Some(pieces << 12));
}

#[test]
fn a_watch_keeps_nothing_open() {
    let (images, _) = images();
    images.create("a", 1).unwrap();
    let watch = images.watch();
    assert_eq!(watch.figures().map(|all| all.len()), Some(1));
    drop(images);
    watch.wait_for_looks();
    assert!(!watch.is_open() && watch.figures().is_none());
}
