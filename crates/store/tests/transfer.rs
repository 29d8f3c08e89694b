//! Objects on their way: exported and imported, salvaged of a drive with whole metadata, with a part of them, and with none; and the label, which outlives them.

#[path = "../../bluestore/tests/support/mod.rs"]
mod support;

use imbrex_crashkit::seeds;
use imbrex_device::{AlignedBuf, Cause, Code, Drive, Result, ZoneId, ZoneOp, ZoneState, report_all};
use imbrex_emulator::{Config, Emulator};
use imbrex_store::{
    CollectionId, Exported, Head, Import, Label, MAX_LABEL_BYTES, ObjectId, Of, Options, Pair, Salvage, Salvaged,
    Scratch, Store, StreamWriter, Taker, Transaction, export, read_stream,
};
use imbrex_zones::log::format::LOG_KIND;
use imbrex_zones::{Exec, VolumeOptions, ZoneHeader};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;
use support::{Model, Op, any_transaction, config, content, few_active, first};

const ALL: CollectionId = CollectionId { pool: 1, seed: 0 };
const TAG: Cause = Cause::Check;

fn options() -> Options {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let metadata =
        imbrex_kv::Options { memtable_bytes: 64 << 10, segment_bytes: 64 << 10, ..imbrex_kv::Options::default() };
    Options { store: support::packed(), metadata, volume, ..Options::default() }
}

fn drive_on(config: &Config) -> (Emulator, Drive) {
    let emulator = Emulator::memory(config).unwrap();
    let drive = Drive { device: Arc::new(emulator.clone()), survivor: None };
    Store::format(&drive, Some([7; 16]), false).unwrap();
    (emulator, drive)
}

fn open(drive: &Drive) -> Store {
    Store::open(drive.clone(), options()).unwrap()
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(1, b"", name.as_bytes())
}

fn commit(store: &Store, change: impl FnOnce(&mut Transaction)) {
    let mut transaction = Transaction::new();
    change(&mut transaction);
    store.commit(transaction).unwrap();
}

/// A store of random transactions.
fn random(drive: &Drive, seed: u64, most: u64) -> (Store, Model) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (store, mut model, (c, bits)) = (open(drive), Model::default(), first());
    let mut begin = Transaction::new();
    model.apply(&Op::Create(c, bits), &mut begin).unwrap();
    store.commit(begin).unwrap();
    for n in 0..60 {
        let (_, transaction, then) = any_transaction(&mut rng, &model, most);
        store.queue(transaction).unwrap();
        model = then;
        if n % 20 == 19 {
            store.pack().unwrap();
            store.clean(100_000).unwrap();
        }
    }
    store.sync().unwrap();
    (store, model)
}

fn exported(store: &Store, of: &Of<'_>) -> (Vec<u8>, Exported) {
    let mut writer = StreamWriter::new(Vec::new()).unwrap();
    let told = export(store, of, &mut writer).unwrap();
    (writer.finish().unwrap(), told)
}

fn import(store: &Store, stream: &[u8], replace: bool) -> Result<u64> {
    let mut import = Import::new(store, replace).unwrap();
    let read = read_stream(&mut &stream[..], &mut import);
    let objects = import.finish().unwrap();
    read.inspect(|read| assert_eq!(*read, objects))
}

fn checked(store: &Store) {
    let report = store.check_all(true).unwrap();
    assert!(report.wrong.is_empty(), "{:#?}", report.wrong);
}

#[test]
fn what_is_exported_and_imported_is_the_same_and_so_is_its_own_export() {
    for seed in seeds(4) {
        let (store, model) = random(&drive_on(&config()).1, seed, 300_000);
        let (stream, told) = exported(&store, &Of::All);
        assert_eq!((told.objects, told.damaged.len()), (model.objects.len() as u64, 0));
        let other = open(&drive_on(&few_active_enough()).1);
        assert_eq!(import(&other, &stream, false).unwrap(), told.objects);
        assert!(Model::of(&other).unwrap() == model, "seed {seed}");
        checked(&other);
        assert!(exported(&other, &Of::All).0 == stream, "seed {seed}: in the same order, with the same holes");
        // Again: refused, and with leave replaced by the same.
        if told.objects > 0 {
            assert_eq!(import(&other, &stream, false).unwrap_err().code(), Code::Exists);
            assert!(Model::of(&other).unwrap() == model);
        }
        import(&other, &stream, true).unwrap();
        assert!(Model::of(&other).unwrap() == model);
        checked(&other);
    }
}

fn few_active_enough() -> Config {
    Config { max_open: Some(16), max_active: Some(16), ..few_active() }
}

#[test]
fn one_object_or_one_collection_is_exported_alone() {
    let store = open(&drive_on(&config()).1);
    let other = CollectionId { pool: 2, seed: 0 };
    let far = ObjectId::new(2, b"n", b"far");
    commit(&store, |t| _ = t.create_collection(ALL, 0).create_collection(other, 0).write(other, &far, 5, b"there"));
    commit(&store, |t| _ = t.write(ALL, &id("a"), 0, b"a").write(ALL, &id("b"), 0, b"b"));
    let names = |of: &Of<'_>| {
        let into = open(&drive_on(&config()).1);
        import(&into, &exported(&store, of).0, false).unwrap();
        Model::of(&into).unwrap().objects.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(names(&Of::Object(&id("b"))), [id("b")]);
    assert_eq!(names(&Of::Object(&far)), std::slice::from_ref(&far));
    assert_eq!(names(&Of::Collection(other)), [far]);
    let missing = |of: &Of<'_>| export(&store, of, &mut StreamWriter::new(Vec::new()).unwrap()).unwrap_err().code();
    assert_eq!(missing(&Of::Object(&id("c"))), Code::NotFound);
    assert_eq!(missing(&Of::Collection(CollectionId { pool: 3, seed: 0 })), Code::NotFound);
}

#[test]
fn holes_and_long_omaps_pass_in_little() {
    let (store, other) = (open(&drive_on(&config()).1), open(&drive_on(&config()).1));
    commit(&store, |t| _ = t.create_collection(ALL, 0).truncate_new(&id("huge"), 1 << 40));
    commit(&store, |t| {
        _ = t.write(ALL, &id("huge"), (1 << 39) + 5, b"in the middle").zero(ALL, &id("huge"), 100, 9000)
    });
    commit(&store, |t| _ = t.write(ALL, &id("zeros"), 0, &[0; 50_000]));
    for n in 0..30u32 {
        let keys: Vec<_> = (0..100u32).map(|k| [n.to_be_bytes(), k.to_be_bytes()].concat()).collect();
        let pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"value"[..])).collect();
        commit(&store, |t| _ = t.omap_set(ALL, &id("map"), &pairs));
    }
    let (stream, told) = exported(&store, &Of::All);
    assert!(stream.len() < 200_000 && told.bytes < 10_000, "{} {told:?}", stream.len());
    import(&other, &stream, false).unwrap();
    assert_eq!(other.stat(ALL, &id("huge")).unwrap().size, 1 << 40);
    assert_eq!(other.read(ALL, &id("huge"), (1 << 39) + 5, 13).unwrap(), b"in the middle");
    assert!(other.stored(ALL, &id("huge")).unwrap() <= 8192 && other.stored(ALL, &id("zeros")).unwrap() == 0);
    assert_eq!(other.read(ALL, &id("zeros"), 0, 60_000).unwrap(), vec![0; 50_000]);
    assert_eq!(other.omap(ALL, &id("map"), b"", 10_000).unwrap().all.len(), 3000);
    checked(&other);
}

trait New {
    fn truncate_new(&mut self, id: &ObjectId, size: u64) -> &mut Self;
}

impl New for Transaction {
    fn truncate_new(&mut self, id: &ObjectId, size: u64) -> &mut Transaction {
        self.touch(ALL, id).truncate(ALL, id, size)
    }
}

#[test]
fn of_a_stream_that_ends_early_or_is_damaged_only_whole_objects_come() {
    let (store, model) = random(&drive_on(&config()).1, 5, 60_000);
    assert!(model.objects.len() > 2);
    let (stream, _) = exported(&store, &Of::All);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let other = open(&drive_on(&config()).1);
    let mut some = 0;
    for round in 0..60 {
        let mut bad = stream.clone();
        match round % 3 {
            0 => bad.truncate(rng.random_range(0..stream.len())),
            1 => bad[rng.random_range(0..stream.len())] ^= 1 << rng.random_range(0..8),
            // A piece that is gone, or there twice.
            _ => {
                let (from, len) = (rng.random_range(0..stream.len()), rng.random_range(1..5000));
                let to = (from + len).min(stream.len());
                if rng.random() {
                    drop(bad.drain(from..to))
                } else {
                    drop(bad.splice(from..from, stream[from..to].to_vec()))
                }
            }
        }
        let failed = import(&other, &bad, true).unwrap_err();
        assert!(matches!(failed.code(), Code::Corruption | Code::InvalidArgument), "{failed}");
        let found = Model::of(&other).unwrap();
        assert!(found.objects.iter().all(|(id, object)| model.objects.get(id) == Some(object)), "round {round}");
        some += found.objects.len();
        for id in found.objects.keys() {
            commit(&other, |t| _ = t.remove(found.home(id), id));
        }
    }
    assert!(some > 20, "{some}");
    checked(&other);
    import(&other, &stream, false).unwrap();
    assert!(Model::of(&other).unwrap().objects == model.objects);
}

/// What an import that died has left goes with the next one.
#[test]
fn an_import_that_was_cut_off_leaves_no_object_and_is_begun_again() {
    let (_, drive) = drive_on(&config());
    let (store, model) = random(&drive_on(&config()).1, 9, 200_000);
    let (stream, _) = exported(&store, &Of::All);
    let into = open(&drive);
    let mut under_way = Import::new(&into, false).unwrap();
    let cut = stream.len() * 2 / 3;
    read_stream(&mut &stream[..cut], &mut under_way).unwrap_err();
    let left = Head { id: id("left"), size: 9 << 20, hint: Default::default(), attributes: Default::default() };
    if under_way.begin(&left).is_ok() {
        // The store gets what came before the last of it.
        under_way.bytes(0, &content(5 << 20, 1)).unwrap();
        under_way.bytes(5 << 20, &content(1 << 20, 1)).unwrap();
    }
    // The process ends here.
    std::mem::forget(under_way);
    into.sync().unwrap();
    drop(into);
    let into = open(&drive);
    let hidden = |model: &Model| model.objects.keys().filter(|id| id.namespace.starts_with(b"\0")).count();
    assert_eq!(hidden(&Model::of(&into).unwrap()), 1);
    assert!(!exported(&into, &Of::All).0.windows(13).any(|bytes| bytes == b"imbrex-import"));
    import(&into, &stream, true).unwrap();
    assert!(Model::of(&into).unwrap() == model);
    checked(&into);
}

/// Changes an object while it is exported.
struct Changing<'a> {
    store: &'a Store,
    to: StreamWriter<Vec<u8>>,
    times: u32,
    removes: bool,
}

impl Taker for Changing<'_> {
    fn collection(&mut self, c: CollectionId, bits: u8) -> Result<()> {
        self.to.collection(c, bits)
    }
    fn begin(&mut self, head: &Head) -> Result<()> {
        self.to.begin(head)
    }
    fn bytes(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        if at > 0 && self.times > 0 {
            self.times -= 1;
            let new = vec![self.times as u8 + 1; 3 << 20];
            match self.removes {
                true => commit(self.store, |t| _ = t.remove(ALL, &id("a"))),
                false => commit(self.store, |t| _ = t.write(ALL, &id("a"), 0, &new)),
            }
        }
        self.to.bytes(at, bytes)
    }
    fn omap_header(&mut self, header: &[u8]) -> Result<()> {
        self.to.omap_header(header)
    }
    fn omap(&mut self, pairs: Vec<Pair>) -> Result<()> {
        self.to.omap(pairs)
    }
    fn again(&mut self) -> Result<()> {
        self.to.again()
    }
    fn end(&mut self) -> Result<()> {
        self.to.end()
    }
}

#[test]
fn an_object_that_changes_meanwhile_is_of_one_moment_all_the_same() {
    let config = Config { capacity: 64 << 20, ..config() };
    for (times, removes) in [(1, false), (5, false), (8, false), (1, true)] {
        let (store, other) = (open(&drive_on(&config).1), open(&drive_on(&config).1));
        commit(&store, |t| {
            _ = t.create_collection(ALL, 0).write(ALL, &id("a"), 0, &vec![99; 3 << 20]).touch(ALL, &id("b"))
        });
        let mut to = Changing { store: &store, to: StreamWriter::new(Vec::new()).unwrap(), times, removes };
        let told = export(&store, &Of::All, &mut to);
        if times == 8 {
            assert_eq!(told.unwrap_err().code(), Code::Busy);
            continue;
        }
        told.unwrap();
        let stream = to.to.finish().unwrap();
        import(&other, &stream, false).unwrap();
        let model = Model::of(&other).unwrap();
        assert!(model.objects.contains_key(&id("b")));
        match removes {
            true => assert!(!model.objects.contains_key(&id("a"))),
            false => assert!(model.objects[&id("a")].bytes == vec![1; 3 << 20]),
        }
    }
}

fn data_zones(drive: &Drive) -> Vec<(ZoneId, u64)> {
    zones(drive, |header| header.kind == 1 && header.name.is_empty())
}

/// Zones whose headers are such, and how far they are written.
fn zones(drive: &Drive, is: impl Fn(&ZoneHeader) -> bool) -> Vec<(ZoneId, u64)> {
    let device = drive.device.as_ref();
    let mut found = Vec::new();
    for zone in report_all(device).unwrap() {
        let Some(wp) = zone.wp.filter(|wp| *wp >= 4096 && zone.state != ZoneState::Conventional) else { continue };
        let mut bytes = AlignedBuf::zeroed(4096);
        device.read_at(&mut bytes, device.geometry().start(zone.id), TAG.into()).unwrap();
        found.extend(ZoneHeader::decode(&bytes).filter(|header| is(header)).map(|_| (zone.id, wp)));
    }
    found
}

#[test]
fn an_object_that_cannot_be_read_is_left_out_and_told() {
    let (emulator, drive) = drive_on(&config());
    let store = open(&drive);
    commit(&store, |t| _ = t.create_collection(ALL, 0));
    commit(&store, |t| _ = t.write(ALL, &id("a"), 0, &content(100_000, 1)).write(ALL, &id("b"), 0, b"small"));
    drop(store);
    let (zone, _) = data_zones(&drive)[0];
    emulator.faults().flip_bits(drive.device.geometry().start(zone) + 8192 + 50, 1).unwrap();
    let store = open(&drive);
    let (stream, told) = exported(&store, &Of::All);
    assert!(told.objects == 1 && told.damaged.len() == 1 && told.damaged[0].contains(":a is left out"), "{told:?}");
    let other = open(&drive_on(&config()).1);
    import(&other, &stream, false).unwrap();
    assert_eq!(Model::of(&other).unwrap().objects.into_keys().collect::<Vec<_>>(), [id("b")]);
}

fn salvaged(drive: &Drive, into: &Store) -> (Salvaged, Vec<String>, bool) {
    let scratch = Scratch::in_memory(drive).unwrap();
    let found = Salvage::search(drive, scratch, None, &mut tempfile::tempfile, &mut |_, _| {}).unwrap();
    let (notes, whole) = (found.notes().to_vec(), found.is_whole());
    let mut import = Import::new(into, false).unwrap();
    let told = found.read(false, &mut import).unwrap();
    assert_eq!(import.finish().unwrap(), told.objects);
    (told, notes, whole)
}

fn lose_metadata(drive: &Drive) {
    let all = zones(drive, |header| header.kind == LOG_KIND || header.name == "wal" || header.name == "tables");
    assert!(!all.is_empty());
    all.into_iter().for_each(|(zone, _)| drive.device.zone_op(ZoneOp::Reset, zone, TAG.into()).unwrap());
}

fn lose_log(drive: &Drive) {
    let all = zones(drive, |header| header.kind == LOG_KIND);
    all.into_iter().for_each(|(zone, _)| drive.device.zone_op(ZoneOp::Reset, zone, TAG.into()).unwrap());
}

fn lose_labels(drive: &Drive) {
    let device = drive.device.as_ref();
    for zone in [0, 1] {
        match report_all(device).unwrap()[zone as usize].state {
            ZoneState::Conventional => {
                let zeros = AlignedBuf::zeroed(64 << 10);
                device.write_at(&zeros, device.geometry().start(ZoneId(zone)), TAG.into()).unwrap();
            }
            _ => device.zone_op(ZoneOp::Reset, ZoneId(zone), TAG.into()).unwrap(),
        }
    }
}

fn bytes_of(drive: &Drive) -> Vec<(u32, Option<u64>)> {
    report_all(drive.device.as_ref()).unwrap().into_iter().map(|zone| (zone.id.0, zone.wp)).collect()
}

#[test]
fn of_a_whole_drive_all_comes_and_nothing_else() {
    for config in [config(), few_active_enough()] {
        for seed in seeds(2) {
            let (_, drive) = drive_on(&config);
            let (store, model) = random(&drive, seed, 200_000);
            // The process dies.
            std::mem::forget(store);
            let before = bytes_of(&drive);
            let into = open(&drive_on(&config).1);
            let (told, notes, whole) = salvaged(&drive, &into);
            assert!(whole && notes.is_empty(), "{notes:?}");
            assert_eq!((told.doubtful, told.of_runs, told.lost, told.senseless), (0, 0, 0, 0));
            assert!(Model::of(&into).unwrap() == model, "seed {seed}");
            assert_eq!(bytes_of(&drive), before, "nothing was written");
        }
    }
}

/// A store of long and short objects, a clone, attributes and an omap, of which all but a few bytes have a place.
fn filled(drive: &Drive) -> Model {
    let store = open(drive);
    commit(&store, |t| _ = t.create_collection(ALL, 0));
    commit(&store, |t| {
        _ = t.write(ALL, &id("long"), 0, &content(300_000, 1)).write(ALL, &id("text"), 0, &[b'x'; 100_000])
    });
    for n in 0..20u8 {
        commit(&store, |t| _ = t.write(ALL, &id("short"), u64::from(n) * 9000, &content(4096, n)));
    }
    while store.pack().unwrap() {}
    commit(&store, |t| _ = t.write(ALL, &id("long"), 8192, &content(50_000, 8)).remove(ALL, &id("text")));
    commit(&store, |t| _ = t.write(ALL, &id("text"), 0, &[b'y'; 90_001]));
    while store.pack().unwrap() {}
    store.clean(1 << 20).unwrap();
    // The last header of a zone that is written is one of data, which does not name its engine.
    for n in 0..3u8 {
        commit(&store, |t| _ = t.write(ALL, &id("late"), u64::from(n) * 300_000, &content(300_000, n)));
    }
    let model = Model::of(&store).unwrap();
    commit(&store, |t| {
        _ = t.set_attributes(ALL, &id("text"), &[(b"a", b"v")]).omap_set(ALL, &id("text"), &[(b"k", b"v")])
    });
    commit(&store, |t| _ = t.clone_object(ALL, &id("text"), &id("clone")));
    store.sync().unwrap();
    model
}

#[test]
fn without_label_or_metadata_what_is_left_comes() {
    for config in [config(), few_active_enough()] {
        for (label, metadata) in [(true, 0), (false, 1), (false, 2), (true, 1), (true, 2)] {
            let (_, drive) = drive_on(&config);
            let model = filled(&drive);
            if label {
                lose_labels(&drive);
            }
            match metadata {
                0 => {}
                1 => lose_log(&drive),
                _ => lose_metadata(&drive),
            }
            assert!(Store::open(drive.clone(), options()).is_err());
            let into = open(&drive_on(&config).1);
            let (told, notes, whole) = salvaged(&drive, &into);
            assert!(!whole && !notes.is_empty());
            let found = Model::of(&into).unwrap();
            for (id, object) in &model.objects {
                assert!(
                    found.objects.get(id).is_some_and(|is| is.bytes == object.bytes),
                    "{label} {metadata}: {id} {notes:?}"
                );
            }
            let text = &found.objects[&id("text")];
            assert_eq!((text.attributes.len(), text.omap.len()), if metadata < 2 { (1, 1) } else { (0, 0) });
            assert_eq!(found.objects.contains_key(&id("clone")), metadata < 2);
            assert_eq!(told.of_runs > 2, metadata == 2, "{told:?}");
            assert_eq!(told.lost, 0);
        }
    }
}

#[test]
fn what_was_imported_has_its_name_without_metadata() {
    let large =
        Config { zone_size: 1 << 20, zone_capacity: 1 << 20, capacity: 96 << 20, conventional: 2, ..Config::tiny() };
    let sizes = [("short", 100_000), ("long", 4 << 20), ("longer", 9 << 20), ("odd", 8_000_001)];
    let store = open(&drive_on(&large).1);
    commit(&store, |t| _ = t.create_collection(ALL, 0));
    for (name, size) in sizes {
        commit(&store, |t| _ = t.write(ALL, &id(name), 0, &content(size, size as u8)));
    }
    let (stream, _) = exported(&store, &Of::All);
    let (_, drive) = drive_on(&large);
    let other = open(&drive);
    assert_eq!(import(&other, &stream, false).unwrap(), 4);
    // And one that was cut off.
    let mut cut = Import::new(&other, false).unwrap();
    cut.begin(&Head { id: id("cut"), size: 9 << 20, hint: Default::default(), attributes: Default::default() })
        .unwrap();
    (0..6).for_each(|n| cut.bytes(n << 20, &content(1 << 20, n as u8)).unwrap());
    std::mem::forget(cut);
    // What waits in the metadata is lost with them.
    while other.pack().unwrap() {}
    drop(other);
    lose_metadata(&drive);
    let into = open(&drive_on(&large).1);
    let (told, ..) = salvaged(&drive, &into);
    assert_eq!((told.objects, told.lost), (5, 0));
    let found = Model::of(&into).unwrap().objects.into_keys();
    assert_eq!(found.filter(|id| id.namespace == b"salvaged" && id.name.starts_with(b"import-")).count(), 1);
    for (name, size) in sizes {
        assert!(into.read(ALL, &id(name), 0, 1 << 30).unwrap() == content(size, size as u8), "{name}");
    }
}

#[test]
fn a_drive_without_a_store_is_refused() {
    let drive = Drive { device: Arc::new(Emulator::memory(&config()).unwrap()), survivor: None };
    let scratch = Scratch::in_memory(&drive).unwrap();
    let told = Salvage::search(&drive, scratch, None, &mut tempfile::tempfile, &mut |_, _| {}).err().unwrap();
    assert!(told.to_string().contains("no object store"), "{told}");
}

#[test]
fn the_label_outlives_the_metadata() {
    let (_, drive) = drive_on(&config());
    let store = open(&drive);
    let made = store.label().unwrap().made;
    assert!(made > 1_600_000_000);
    let pair = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
    store.set_label(&[pair("osd", "3"), pair("rack", "7"), pair("gone", "x")]).unwrap();
    store.set_label(&[("gone".into(), None), pair("osd", "4")]).unwrap();
    let long = store.set_label(&[pair("long", &"v".repeat(MAX_LABEL_BYTES))]).unwrap_err();
    assert_eq!(long.code(), Code::InvalidArgument);
    assert_eq!(store.set_label(&[pair("", "v")]).unwrap_err().code(), Code::InvalidArgument);
    drop(store);
    let wanted = Label {
        volume: [7; 16],
        db: None,
        made,
        pairs: [("osd", "4"), ("rack", "7")].map(|(key, value)| (key.into(), value.into())).into(),
    };
    assert_eq!(Label::read(&drive).unwrap(), wanted);
    assert_eq!(open(&drive).label().unwrap(), wanted);
    lose_metadata(&drive);
    assert!(Store::open(drive.clone(), options()).is_err());
    assert_eq!(Label::read(&drive).unwrap(), wanted);
}
