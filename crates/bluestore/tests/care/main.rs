//! What the store does about damage: it reads once more, and says what is lost and nothing else.

#[path = "../support/mod.rs"]
mod support;

mod clean;
mod reads;
mod repair;
mod scrub;

use imbrex_bluestore::{BlueStore, CollectionId, Compression, ObjectId, Options, Transaction};
use imbrex_device::{
    AlignedBuf, Cause, Drive, Error, Fault, Geometry, Identity, Result, Tag, Zone, ZoneId, ZoneOp, ZonedDevice,
};
use imbrex_emulator::{Config, Emulator};
use imbrex_zones::Exec;
use std::sync::{Arc, Mutex};
use support::{format, open_with, options};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const BLOCK: u64 = 4096;

/// How a read of a block goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// The drive does not give it.
    Medium,
    /// It gives other bytes.
    Flip,
}

/// A block that cannot be read, so many times.
struct Bad {
    at: u64,
    harm: Harm,
    times: u32,
    /// Only in commands of more bytes than this.
    above: usize,
}

/// A drive that does not read what it should.
struct Fickle {
    drive: Emulator,
    bad: Mutex<Vec<Bad>>,
    /// Is called before the next read of a check.
    hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Fickle {
    fn hook(&self, before: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(before));
    }

    fn set(&self, at: u64, harm: Harm, times: u32, above: usize) {
        self.bad.lock().unwrap().push(Bad { at, harm, times, above });
    }

    fn heal(&self) {
        self.bad.lock().unwrap().clear();
    }
}

impl ZonedDevice for Fickle {
    fn identity(&self) -> &Identity {
        self.drive.identity()
    }
    fn power_epoch(&self) -> [u8; 16] {
        self.drive.power_epoch()
    }
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }
    fn report(&self, from: ZoneId, out: &mut [Zone]) -> Result<usize> {
        self.drive.report(from, out)
    }
    fn read_at(&self, buf: &mut [u8], at: u64, tag: Tag) -> Result<()> {
        let due = self.hook.lock().unwrap().take_if(|_| tag.cause == Cause::Check);
        due.into_iter().for_each(|before| before());
        self.drive.read_at(buf, at, tag)?;
        for bad in self.bad.lock().unwrap().iter_mut() {
            let hit = (at..at + buf.len() as u64).contains(&bad.at) && buf.len() > bad.above && bad.times > 0;
            if !hit {
                continue;
            }
            bad.times -= 1;
            match bad.harm {
                Harm::Medium => {
                    buf.fill(0);
                    return Err(Error::new(&self.drive.name(), Fault::Media { len: 0 }));
                }
                Harm::Flip => buf[(bad.at - at) as usize] ^= 1,
            }
        }
        Ok(())
    }
    fn write_at(&self, buf: &[u8], at: u64, tag: Tag) -> Result<()> {
        self.drive.write_at(buf, at, tag)
    }
    fn flush(&self, tag: Tag) -> Result<()> {
        self.drive.flush(tag)
    }
    fn zone_op(&self, op: ZoneOp, zone: ZoneId, tag: Tag) -> Result<()> {
        self.drive.zone_op(op, zone, tag)
    }
    fn write_cache(&self) -> Result<bool> {
        self.drive.write_cache()
    }
    fn set_write_cache(&self, on: bool) -> Result<()> {
        self.drive.set_write_cache(on)
    }
}

struct All {
    fickle: Arc<Fickle>,
    store: BlueStore,
}

/// Zones of 1 MiB.
fn large() -> Config {
    Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 64 << 20, conventional: 2, ..Config::tiny() }
}

/// What is written stands on the drive as it is.
fn plain() -> Options {
    Options { compression: Compression::Off, ..options() }
}

fn new() -> All {
    let fickle =
        Arc::new(Fickle { drive: Emulator::memory(&large()).unwrap(), bad: Mutex::default(), hook: Mutex::default() });
    let drive = Drive { device: fickle.clone(), survivor: None };
    format(&drive).unwrap();
    let store = open_with(&drive, Exec::Inline, plain()).unwrap();
    does(&store, |t| _ = t.create_collection(ALL, 0));
    All { fickle, store }
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(1, b"", name.as_bytes())
}

fn does(store: &BlueStore, what: impl FnOnce(&mut Transaction)) {
    let mut t = Transaction::new();
    what(&mut t);
    store.commit(t).unwrap();
}

/// Where the drive has a block of these bytes.
fn place_of(emulator: &Emulator, block: &[u8]) -> Vec<u64> {
    blocks_that(emulator, |there| *there == *block)
}

/// Where the drive has such blocks.
fn blocks_that(emulator: &Emulator, are: impl Fn(&[u8]) -> bool) -> Vec<u64> {
    let (mut found, mut there) = (Vec::new(), AlignedBuf::zeroed(BLOCK as usize));
    for at in (0..u64::from(emulator.geometry().zones) << 20).step_by(BLOCK as usize) {
        if emulator.read_at(&mut there, at, Cause::Check.into()).is_ok() && are(&there) {
            found.push(at);
        }
    }
    found
}
