//! Drives that do not go together are refused, and stay as they are.

use super::*;

/// The opening fails with such a sentence, and has changed neither drive.
fn refused(two: &Two, db: bool, says: &[&str]) {
    let before = [two.bytes(0), two.bytes(1)];
    let opened = if db { two.open() } else { Store::open(two.drive(0), options()) };
    let why = opened.err().expect("it opens").to_string();
    says.iter().for_each(|part| assert!(why.contains(part), "{why:?} lacks {part:?}"));
    for (n, before) in before.iter().enumerate() {
        assert!(two.bytes(n) == *before, "{why}: drive {n} has changed");
    }
}

/// With an object that is this long, and opened so often.
fn used(two: &Two, times: u32) {
    for n in 0..times {
        put(&two.open().unwrap(), n, &content(150_000, n as u8)).unwrap();
    }
}

fn with(objects: &Two, metadata: &Two) -> Two {
    Two { drives: [objects.drives[0].clone(), metadata.drives[1].clone()], ..objects.clone() }
}

#[test]
fn a_store_is_not_opened_without_the_drive_of_its_metadata_or_with_another_one() {
    let two = Two::formatted();
    refused(&two, false, &["on another drive", "08080808", "--db /path", "db=/path"]);
    used(&two, 2);
    refused(&two, false, &["on another drive", "08080808", "--db /path", "db=/path"]);

    // A blank one, one of pairs, one of another store, and one with the metadata of another drive.
    let blank = Two::new(&config(), &config());
    refused(&with(&two, &blank), true, &["format"]);
    imbrex_kv::Kv::format(&blank.drive(1), None, false).unwrap();
    refused(&with(&two, &blank), true, &["named for metadata has none", "name the right one as db="]);
    Store::format(&blank.drive(1), None, true).unwrap();
    refused(&with(&two, &blank), true, &["named for metadata has none", "name the right one as db="]);
    let other = Two::new(&config(), &config());
    Store::format_apart(&other.drive(0), &other.drive(1), MetadataIn::Kv, None, false).unwrap();
    used(&other, 1);
    refused(&with(&two, &other), true, &["on volume 08080808", "name the right drive as db="]);
    // Of the drive's own UUID, but for another drive.
    Store::format_apart(&other.drive(0), &other.drive(1), MetadataIn::Kv, Some([[9; 16], UUIDS[1]]), true).unwrap();
    refused(&with(&two, &other), true, &["has the metadata of volume 09090909", "name the drives that go together"]);
    // Itself.
    let own = Two { drives: [two.drives[0].clone(), two.drives[0].clone()], ..two.clone() };
    refused(&own, true, &["named for its own metadata"]);
    // Its metadata are none of a user's.
    let alone = Two { drives: [two.drives[1].clone(), two.drives[1].clone()], ..two.clone() };
    refused(&alone, false, &["not for bluestore"]);
    assert!(imbrex_kv::Kv::open(two.drive(1), imbrex_kv::Options::default()).is_err());

    // One that has its metadata itself.
    let whole = Two::new(&config(), &config());
    Store::format(&whole.drive(0), None, false).unwrap();
    drop(Store::open(whole.drive(0), options()).unwrap());
    refused(&with(&whole, &two), true, &["are on this drive", "name no other"]);
    used(&two, 1);
}

/// A label of the wrong drive that would be repaired is not.
#[test]
fn a_damaged_label_of_a_wrong_drive_stays_as_it_is() {
    let (two, other) = (Two::formatted(), Two::new(&config(), &config()));
    Store::format_apart(&other.drive(0), &other.drive(1), MetadataIn::Kv, None, false).unwrap();
    for (drive, wrong) in [(&other.drives[1], with(&two, &other)), (&two.drives[0], with(&two, &other))] {
        // The first copy stands at the beginning of the drive.
        drive.faults().flip_bits(40, 1).unwrap();
        refused(&wrong, true, &["name the right drive"]);
    }
    used(&two, 1);
}

#[test]
fn an_older_copy_of_either_drive_is_refused_and_one_of_both_is_not() {
    let two = Two::formatted();
    let mut copies = vec![two.copy()];
    for n in 0..4 {
        // Also where nothing was written in between.
        used(&two, n % 2);
        drop(two.open().unwrap());
        copies.push(two.copy());
    }
    let now = copies.pop().unwrap();
    for old in copies {
        refused(&with(&old, &now), true, &["copy of an earlier moment than", "copies of one moment", "salvage"]);
        refused(&with(&now, &old), true, &["has its metadata, is a copy of an earlier moment", "copies of one moment"]);
        drop(old.open().unwrap());
        // Which is a way of its own from here on.
        let why = with(&old, &now).open().err().unwrap().to_string();
        assert!(why.contains("earlier moment") || why.contains("without the other"), "{why}");
    }
    // Two copies that were opened as often.
    let (one, another) = (now.copy(), now.copy());
    used(&one, 1);
    used(&another, 1);
    refused(&with(&one, &another), true, &["used without the other one", "salvage"]);
    refused(&with(&another, &one), true, &["used without the other one"]);
    let store = now.open().unwrap();
    assert!(store.read(ALL, &name(0), 0, 1 << 20).unwrap() == content(150_000, 0));
    assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
}

/// Labels whose sums are right, and which make no sense.
#[test]
fn hostile_links_are_refused() {
    let two = Two::formatted();
    used(&two, 1);
    let roots = |n: usize, root: &[u8]| {
        let hostile = two.copy();
        let volume = imbrex_zones::Volume::open(hostile.drive(n), options().volume).unwrap();
        let tenant = volume.tenant(["bluestore", "metadata-of"][n]).unwrap();
        tenant.set_root(root).unwrap();
        drop((tenant, volume));
        hostile
    };
    for root in [&b""[..], b"x", &[0; 58], &[0xff; 58], &[7; 1024]] {
        let cut = if root.is_empty() { "cut off" } else { "makes no sense" };
        refused(&roots(0, root), true, &[cut]);
        refused(&roots(0, root), false, &[cut]);
        refused(&roots(1, root), true, &[cut]);
    }
    let volume = imbrex_zones::Volume::open(two.copy().drive(1), options().volume).unwrap();
    let root = volume.tenant("metadata-of").unwrap().root();
    for at in 0..root.len() {
        let mut bad = root.clone();
        bad[at] ^= 0x40;
        refused(&roots(1, &bad), true, &["makes no sense"]);
    }
    refused(&roots(1, &root[..root.len() - 1]), true, &["makes no sense"]);
    drop(roots(1, &root).open().unwrap());
}

#[test]
fn a_look_changes_neither_drive_and_a_uri_names_both() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["objects.img", "meta&data 50%.img"].map(|file| dir.path().join(file));
    for path in &paths {
        drop(Emulator::create(path, &Config { capacity: 64 << 20, ..config() }, false).unwrap());
    }
    let db = Db::option_of(paths[1].to_str().unwrap());
    let plain = format!("imbrex://{}?survivor=off&memtable=1M", paths[0].display());
    let uri = format!("{plain}&db={db}");
    let open = |more: &[(&str, &str)]| Store::open_uri(&uri, more);
    assert!(open(&[]).is_err());
    let store = open(&[("format", "on")]).unwrap();
    put(&store, 1, &content(3_000_000, 1)).unwrap();
    // The process has one store of it, and nobody has its metadata meanwhile.
    assert!(Store::open_uri(&uri, &[]).unwrap().is(&store));
    assert!(imbrex_kv::Kv::open_uri(&format!("imbrex://{}", paths[1].display()), &[]).is_err());
    drop(store);
    let before = paths.clone().map(|path| std::fs::read(path).unwrap());
    let look = open(&[("read-only", "on")]).unwrap();
    assert!(look.read(ALL, &name(1), 0, 4 << 20).unwrap() == content(3_000_000, 1));
    drop(look);
    assert!(paths.clone().map(|path| std::fs::read(path).unwrap()) == before);
    // Whoever opens an image to write counts that in its header, which is none of the drive.
    let standing = || {
        paths.clone().map(|path| {
            let open = imbrex_drives::OpenOptions { read_only: true, ..imbrex_drives::OpenOptions::default() };
            bytes_of(imbrex_drives::open(path.to_str().unwrap(), &open).unwrap().device.as_ref())
        })
    };
    let drives = standing();
    for (uri, says) in [
        (plain.clone(), "on another drive"),
        (format!("{plain}&db={}", paths[0].display()), "its own metadata"),
        (format!("{plain}&db=/nowhere/at.img"), "/nowhere/at.img"),
        (format!("{plain}&db=%"), "write %25"),
        (format!("{plain}&db"), "names no drive"),
    ] {
        let why = Store::open_uri(&uri, &[]).err().unwrap().to_string();
        assert!(why.contains(says), "{why}");
    }
    assert!(standing() == drives);
    // It opens after all that, and its drives are given back.
    drop(open(&[]).unwrap());
    drop(open(&[("format", "on")]).unwrap());
    drop(imbrex_drives::open(paths[1].to_str().unwrap(), &imbrex_drives::OpenOptions::default()).unwrap());
}

/// Another engine of the process beside the metadata.
#[test]
fn a_user_s_pairs_are_beside_the_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["objects.img", "metadata.img"].map(|file| dir.path().join(file));
    let drives = paths.clone().map(|path| {
        drop(Emulator::create(&path, &Config { capacity: 64 << 20, ..config() }, false).unwrap());
        imbrex_drives::open(path.to_str().unwrap(), &imbrex_drives::OpenOptions::default()).unwrap()
    });
    let geometry = drives[1].device.geometry().clone();
    let [own, mut others] = Store::tenants_apart(MetadataIn::Kv, &geometry);
    others.push(imbrex_zones::TenantSpec { name: "kv".into(), budget: imbrex_kv::budget(&geometry) });
    for (drive, tenants) in drives.iter().zip([own, others]) {
        let options = imbrex_zones::FormatOptions { uuid: None, tenants, force: false };
        imbrex_zones::Volume::format(drive, &options).unwrap();
    }
    Store::pair(&drives[0], &drives[1]).unwrap();
    drop(drives);
    let [uri, pairs] = paths.clone().map(|path| format!("imbrex://{}?survivor=off&memtable=1M", path.display()));
    let uri = format!("{uri}&db={}", paths[1].display());
    for round in 0..3u32 {
        let (store, kv);
        if round % 2 == 0 {
            (store, kv) = (Store::open_uri(&uri, &[]).unwrap(), imbrex_kv::Kv::open_uri(&pairs, &[]).unwrap());
        } else {
            kv = imbrex_kv::Kv::open_uri(&pairs, &[]).unwrap();
            store = Store::open_uri(&uri, &[]).unwrap();
        }
        put(&store, round, &content(100_000, round as u8)).unwrap();
        kv.put(&round.to_be_bytes(), b"value", true).unwrap();
        for n in 0..=round {
            assert!(store.read(ALL, &name(n), 0, 1 << 20).unwrap() == content(100_000, n as u8));
            assert_eq!(kv.get(&n.to_be_bytes()).unwrap().unwrap(), b"value");
        }
        assert_eq!(store.check_all(true).unwrap().wrong, Vec::<String>::new());
    }
}
