//! Damage of every kind to every place of an object store: what it hit is an error, everything else is as it was, and the store goes on or says why not.

#[path = "../../../bluestore/tests/support/mod.rs"]
mod support;

mod counts;
mod flips;
mod zones;

use imbrex_device::{AlignedBuf, Cause, Class, Code, Drive, Error, Result, ZoneId, report_all};
use imbrex_emulator::Emulator;
use imbrex_store::{CollectionId, Hint, ObjectId, Options, Store, Transaction};
use imbrex_zones::{Exec, VolumeOptions, ZoneHeader};
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use support::{Model, Object, Op};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const BLOCK: u64 = 4096;

/// Metadata are on the drive, mostly, and read from there, so that changes of counts wait.
fn options() -> Options {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let metadata = imbrex_kv::Options {
        memtable_bytes: 16 << 10,
        table_bytes: 32 << 10,
        step_bytes: 20 << 10,
        cache_bytes: 0,
        segment_bytes: 16 << 10,
        ..imbrex_kv::Options::default()
    };
    // A block is one block of an object, so that its damage costs no others.
    let store = imbrex_bluestore::Options { compression: imbrex_bluestore::Compression::Off, ..support::options() };
    Options { store, metadata, volume, ..Options::default() }
}

fn drive_of(emulator: &Emulator) -> Drive {
    Drive { device: Arc::new(emulator.clone()), survivor: None }
}

fn open(drive: &Drive) -> Result<Store> {
    Store::open(drive.clone(), options())
}

fn id(name: u8) -> ObjectId {
    let hash = if name < b'e' { 0b10 } else { u32::from(name - b'a') };
    ObjectId { hash, ..ObjectId::new(1, b"", &[name]) }
}

fn ids() -> impl Iterator<Item = ObjectId> {
    (b'a'..=b'f').map(id)
}

/// Does it to the store and to the model.
fn does(store: &Store, model: &mut Model, ops: &[Op]) -> Result<()> {
    let (mut transaction, mut then) = (Transaction::new(), model.clone());
    ops.iter().for_each(|op| then.apply(op, &mut transaction).unwrap());
    store.commit(transaction)?;
    *model = then;
    Ok(())
}

/// A store that has been worked with: blobs of several objects, clones, what was packed and what is still deferred, dead blocks, what the cleaner has moved, and metadata in tables.
fn worked_with() -> (Emulator, Model) {
    let emulator = Emulator::memory(&support::config()).unwrap();
    let drive = drive_of(&emulator);
    Store::format(&drive, Some([7; 16]), false).unwrap();
    let mut model = Model::default();
    let [a, b, c, d, e, f] = [b'a', b'b', b'c', b'd', b'e', b'f'].map(id);
    {
        let store = open(&drive).unwrap();
        let immutable = Hint { immutable: true, ..Hint::default() };
        let first = [Op::Create(ALL, 0), Op::Write(a.clone(), 0, 300_000, 1), Op::Write(b.clone(), 0, 300_000, 2)];
        does(&store, &mut model, &first).unwrap();
        let more = [Op::Hint(c.clone(), immutable), Op::Write(c, 0, 150_000, 3), Op::Write(f.clone(), 0, 200_000, 4)];
        does(&store, &mut model, &more).unwrap();
        let shared = [Op::Clone(a.clone(), d), Op::Write(a.clone(), 50_000, 20_000, 5)];
        does(&store, &mut model, &shared).unwrap();
        for n in 0..20 {
            does(&store, &mut model, &[Op::Write(e.clone(), n * 8192, 4096, 6 + n as u8)]).unwrap();
        }
        store.pack().unwrap();
        does(&store, &mut model, &[Op::Zero(b, 100_000, 150_000), Op::Remove(f.clone())]).unwrap();
        store.pack().unwrap();
    }
    let store = open(&drive).unwrap();
    assert!(store.clean(200_000).unwrap() > 0);
    let last = [
        Op::Write(f, 0, 100_000, 30),
        Op::Write(e.clone(), 200_000, 3000, 31),
        Op::Attribute(a.clone(), b"name".to_vec(), b"value".to_vec()),
        Op::Set(e.clone(), b"key".to_vec(), vec![7; 300]),
        Op::Header(e, b"header".to_vec()),
    ];
    does(&store, &mut model, &last).unwrap();
    assert!(store.usage().deferred > 0 && check(&store).is_empty());
    drop(store);
    (emulator, model)
}

fn check(store: &Store) -> Vec<String> {
    store.check_all(true).map_or_else(|error| vec![format!("the check fails: {error}")], |report| report.wrong)
}

/// All of an object; `None`: it is not there.
fn object(store: &Store, id: &ObjectId) -> Result<Option<Object>> {
    let home = match store.home(id)? {
        Some(home) => home,
        None => return Ok(None),
    };
    let stat = match store.stat(home, id) {
        Err(error) if error.code() == Code::NotFound => return Ok(None),
        stat => stat?,
    };
    let bytes = store.read(home, id, 0, u64::MAX)?;
    let omap = store.omap(home, id, b"", 1000)?.all.into_iter().collect();
    Ok(Some(Object { bytes, attributes: stat.attributes, omap, header: store.omap_header(home, id)? }))
}

/// What the store says of each object that there may be.
fn found(store: &Store) -> BTreeMap<ObjectId, Result<Option<Object>>> {
    ids().map(|id| (id.clone(), object(store, &id))).collect()
}

/// Whether the drive does not give it, or something else.
fn is_damage(error: &Error) -> bool {
    error.class() == Class::Damage
}

/// Objects that cannot be read. All others are as the model has them.
fn unread(
    found: &BTreeMap<ObjectId, Result<Option<Object>>>,
    model: &Model,
) -> std::result::Result<Vec<ObjectId>, String> {
    let mut all = Vec::new();
    for (id, object) in found {
        match object {
            Err(error) if is_damage(error) => {
                let said = error.to_string();
                if ["imbrex fs ", "imbrex kv "].iter().any(|other| said.contains(other)) {
                    return Err(format!("{id}: {said}, which is another engine's"));
                }
                all.push(id.clone());
            }
            Err(error) => return Err(format!("{id}: {error}")),
            Ok(object) if object.as_ref() == model.objects.get(id).map(AsRef::as_ref) => {}
            Ok(object) => {
                return Err(format!("{id} is another ({} bytes)", object.as_ref().map_or(0, |o| o.bytes.len())));
            }
        }
    }
    Ok(all)
}

/// Zones that were written, with how far: those of the metadata, and those of the objects.
fn owned(emulator: &Emulator) -> [Vec<(ZoneId, u64)>; 2] {
    let drive = drive_of(emulator);
    let mut owned: BTreeMap<u8, Vec<(ZoneId, u64)>> = BTreeMap::new();
    for zone in report_all(drive.device.as_ref()).unwrap() {
        let (mut header, start) = (AlignedBuf::zeroed(BLOCK as usize), drive.device.geometry().start(zone.id));
        let Some(end) = zone.wp.filter(|wp| *wp >= BLOCK) else { continue };
        drive.device.read_at(&mut header, start, Cause::Check.into()).unwrap();
        if let Some(header) = ZoneHeader::decode(&header) {
            owned.entry(header.owner).or_default().push((zone.id, end));
        }
    }
    let owned: Vec<_> = owned.into_values().collect();
    owned.try_into().unwrap()
}

/// A test that hangs fails.
fn in_time<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, hear) = mpsc::channel();
    let thread = std::thread::spawn(move || _ = tell.send(what()));
    match hear.recv_timeout(Duration::from_secs(60)) {
        Ok(done) => done,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
    }
}
