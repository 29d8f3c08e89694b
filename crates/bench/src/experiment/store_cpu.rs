//! `store-cpu`: what transactions of the object store and writes to a block image cost the processor, on a drive in memory whose pages are there already and which
//! has no clock. Everything runs in one thread, what happens in the background with it: packing, the metadata's flushes and merges, cleaning. RocksDB, where the metadata are
//! there, has threads of its own, and all are counted.

use super::result::{Ratio, Row};
use super::virtual_clock::why;
use super::{Experiment, Needs, Options, Rule, Run, Stop};
use MetadataIn::{Kv, RocksDb};
use imbrex_bluestore::{BlueStore, CollectionId, ObjectId, Survives, Transaction};
use imbrex_device::Drive;
use imbrex_emulator::{Config, Emulator, Overrides, Profile};
use imbrex_image::{Image, Images};
use imbrex_store::{MetadataIn, Options as StoreOptions, Store};
use imbrex_zones::{Exec, VolumeOptions};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "store-cpu",
    about: "Transactions of the object store, and reads and writes of a block image, on a drive in memory: processor time",
    paper: "none",
    speed: 1.0,
    rows: |_| ROWS.iter().map(|(name, ..)| (*name).to_owned()).collect(),
    extra: super::NONE,
    needs: |_| Needs { work: 0, memory: DISK + (1 << 30) },
    run,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const DISK: u64 = 4 << 30;
const ZONE: u64 = 32 * MIB;
/// What objects and the image have: a quarter of the drive.
const LIVE: u64 = 1 << 30;
const OBJECT: u64 = 4 * MIB;
const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Transactions that write to objects.
    Write,
    Read,
    /// Each survives the process when it returns.
    ImageWrite,
    ImageRead,
}

const SHORT: u64 = 4 * KIB;
const ROWS: &[(&str, MetadataIn, (What, u64))] = &[
    (TRANSACTIONS, Kv, (What::Write, SHORT)),
    (LONG, Kv, (What::Write, OBJECT)),
    ("reads of 4 KiB of objects", Kv, (What::Read, SHORT)),
    ("reads of 4 MiB of objects", Kv, (What::Read, OBJECT)),
    ("writes of 4 KiB to an image", Kv, (What::ImageWrite, SHORT)),
    ("writes of 64 KiB to an image", Kv, (What::ImageWrite, 64 * KIB)),
    ("reads of 4 KiB of an image", Kv, (What::ImageRead, SHORT)),
    (IN_ROCKSDB, RocksDb, (What::Write, SHORT)),
    ("transactions of 4 MiB, metadata in RocksDB", RocksDb, (What::Write, OBJECT)),
    ("reads of 4 KiB of objects, metadata in RocksDB", RocksDb, (What::Read, SHORT)),
    ("writes of 4 KiB to an image, metadata in RocksDB", RocksDb, (What::ImageWrite, SHORT)),
];
const TRANSACTIONS: &str = "transactions of 4 KiB";
const IN_ROCKSDB: &str = "transactions of 4 KiB, metadata in RocksDB";
const LONG: &str = "transactions of 4 MiB";

/// Transactions that are made durable together.
const TOGETHER: u64 = 64;

/// Nanoseconds that all threads of this process have had a processor.
fn on_cpu() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn object(number: u64) -> ObjectId {
    ObjectId::new(1, b"", format!("object {number:06}").as_bytes())
}

struct Side {
    store: Store,
    image: Image,
    emulator: Arc<Emulator>,
    random: ChaCha8Rng,
    noise: Vec<u8>,
    live: u64,
}

impl Side {
    /// A store with objects, and an image, that were written in order, each a half of what lives.
    fn new(options: &Options, metadata: MetadataIn) -> Result<Side, Stop> {
        let live = if options.short { 64 * MIB } else { LIVE };
        let profile = Profile::named("zns-made-up").ok_or("the profile zns-made-up is gone")?;
        let over = Overrides {
            capacity: Some(DISK.min(16 * live)),
            zone_size: Some(ZONE.min(live / 32)),
            ..Overrides::default()
        };
        let config = Config::new(&profile, &over);
        let config = Config { max_open: None, max_active: None, zone_capacity: config.zone_size, ..config };
        let emulator = Arc::new(Emulator::memory_prefaulted(&config).map_err(why)?);
        let drive = Drive { device: emulator.clone(), survivor: None };
        Store::format_with(&drive, metadata, Some([7; 16]), false).map_err(why)?;
        let volume = VolumeOptions { exec: Exec::Inline, ..VolumeOptions::default() };
        let store = Store::open(drive, StoreOptions { volume, ..StoreOptions::default() }).map_err(why)?;
        let images = Images::open(BlueStore::clone(&store), ()).map_err(why)?;
        let mut transaction = Transaction::new();
        transaction.create_collection(ALL, 0);
        store.commit(transaction).map_err(why)?;
        images.create("image", live / 2).map_err(why)?;
        let image = images.image("image", false).map_err(why)?;
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut noise = vec![0; 2 * OBJECT as usize];
        random.fill_bytes(&mut noise);
        let mut side = Side { store, image, emulator, random, noise, live: live / 2 };
        for number in 0..side.live / OBJECT {
            side.write(number, 0, OBJECT)?;
            let bytes = &side.noise[..OBJECT as usize];
            side.image.write(number * OBJECT, bytes, Survives::Process).map_err(why)?;
        }
        side.store.sync().map_err(why)?;
        Ok(side)
    }

    fn write(&mut self, number: u64, offset: u64, len: u64) -> Result<(), Stop> {
        let from = self.random.random_range(0..OBJECT) as usize;
        let mut transaction = Transaction::new();
        transaction.write(ALL, &object(number), offset, &self.noise[from..from + len as usize]);
        self.store.queue(transaction).map(drop).map_err(why)
    }

    fn one(&mut self, n: u64, (what, len): (What, u64)) -> Result<(), Stop> {
        let at = self.random.random_range(0..self.live / len) * len;
        let (number, offset) = (at / OBJECT, at % OBJECT);
        match what {
            What::Write => {
                self.write(number, offset, len)?;
                if ((n + 1) * len).is_multiple_of(TOGETHER * len.min(OBJECT / 8)) {
                    self.store.sync().map_err(why)?;
                }
                Ok(())
            }
            What::Read => {
                let found = self.store.read(ALL, &object(number), offset, len).map_err(why)?;
                whole(found.len() as u64 == len)
            }
            What::ImageWrite => {
                let from = self.random.random_range(0..OBJECT) as usize;
                self.image.write(at, &self.noise[from..from + len as usize], Survives::Process).map_err(why)
            }
            What::ImageRead => {
                let mut out = vec![0; len as usize];
                self.image.read(at, &mut out).map_err(why)?;
                whole(out.iter().any(|byte| *byte != 0))
            }
        }
    }
}

fn whole(it_is: bool) -> Result<(), Stop> {
    if it_is { Ok(()) } else { Err("bytes that were written are not there; look into that first".into()) }
}

const EACH: &str = "us of the processor each";
const RATE: &str = "each second of a core";
const GB: &str = "GB/s of a core";

fn row(side: &mut Side, what: (What, u64), run: &Run) -> Result<Row, Stop> {
    let bytes = if what.1 == OBJECT { 4 * LIVE } else { LIVE / 2 };
    let count = bytes / what.1 / if run.options.short { 256 } else { 1 };
    // What is behind is not this row's.
    while side.store.pack().map_err(why)? {}
    side.emulator.reset_stats();
    let began = on_cpu();
    for n in 0..count {
        if n % 1024 == 0 && run.stopped() {
            return Err(Stop::Interrupted);
        }
        side.one(n, what)?;
    }
    side.store.sync().map_err(why)?;
    let took = (on_cpu() - began).max(1) as f64;
    let counts = side.emulator.stats().total;
    let mut row = Row { rule: Rule::Whole.name().into(), ..Row::new("", "memory, no clock") };
    row.operations = Some(count);
    row.bytes_user = Some(count * what.1);
    row.bytes_drive = Some(counts.bytes_written);
    row.bytes_read = Some(counts.bytes_read);
    row.figures.extend([
        (EACH.to_owned(), took / 1e3 / count as f64),
        (RATE.to_owned(), count as f64 / (took / 1e9)),
        (GB.to_owned(), (count * what.1) as f64 / took),
    ]);
    Ok(row)
}

fn run(run: &mut Run) -> Result<(), Stop> {
    run.setting(
        "live bytes",
        "half a GiB of objects of 4 MiB and an image of as much, on a drive of 4 GiB with zones of 32 MiB",
    );
    run.setting(
        "made durable together",
        format!(
            "{TOGETHER} transactions of 4 KiB, 8 of 4 MiB; a write of an image survives the process when it returns"
        ),
    );
    run.setting(
        "in the time",
        "all threads: packing, flushes and merges of the metadata, cleaning, and the drive's own copies",
    );
    let mut side: Option<(MetadataIn, Side)> = None;
    for (name, metadata, what) in ROWS {
        run.row(name, |run| {
            if side.as_ref().is_none_or(|(of, _)| of != metadata) {
                // One drive is in memory at a time.
                side = None;
                side = Some((*metadata, Side::new(run.options, *metadata)?));
            }
            side.as_mut().map_or_else(|| Err("no store".into()), |(_, side)| row(side, *what, run))
        })?;
    }
    for (name, figure, wanted) in [(TRANSACTIONS, RATE, 25_000.0), (LONG, GB, 1.0), (IN_ROCKSDB, RATE, 10_000.0)] {
        let each = run.runs(name, |row| row.figures.get(figure).copied());
        let each: Vec<f64> = each.into_iter().flatten().map(|rate| rate / wanted).collect();
        let ratio = Ratio::of(format!("{name}, {figure}, over the {wanted} that are wanted"), &each);
        run.outcome.ratios.extend(ratio.map(|ratio| Ratio { goal: Some(1.0), ..ratio }));
    }
    Ok(())
}
