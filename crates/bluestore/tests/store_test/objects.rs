//! Names, renaming and hints.

use crate::{META, NO_GENERATION, id, object, on_each};
use imbrex_bluestore::{CollectionId, Hint, ObjectId};
use imbrex_device::Code;

#[test]
fn unprintable_chars_name() {
    on_each(|bed| {
        let name: Vec<u8> = b"funnychars_".iter().copied().chain(0..=255).collect();
        let odd = object(-1, 0, name);
        bed.does(|t| _ = t.touch(META, &odd));
        bed.remount();
        assert_eq!(bed.ids(META, 10), std::slice::from_ref(&odd));
        bed.cleans(&[&odd]);
    });
}

#[test]
fn simple_object_longname_test() {
    on_each(|bed| {
        let long = id(&format!("{}Object{} 1", "a".repeat(180), "a".repeat(130)));
        bed.does(|t| _ = t.touch(META, &long));
        assert!(bed.is_there(META, &long));
        bed.cleans(&[&long]);
    });
}

#[test]
fn longname_split_test() {
    on_each(|bed| {
        let of = |n: u32| object(-1, n % 2, format!("object id {n} {}", "a".repeat(500)));
        (0..320).for_each(|n| bed.does(|t| _ = t.touch(META, &of(n))));
        let last = ObjectId { generation: 0, ..of(319) };
        bed.does(|t| _ = t.rename(META, &of(319), &last));
        (0..319).for_each(|n| bed.does(|t| _ = t.remove(META, &of(n))));
        assert_eq!(bed.ids(META, 10), std::slice::from_ref(&last));
        bed.cleans(&[&last]);
    });
}

#[test]
fn many_object_test() {
    on_each(|bed| {
        let mut all: Vec<ObjectId> = (0..1000u32)
            .map(|n| object(-1, n.wrapping_mul(0x9e37_79b9), format!("{n}{}", "aaaaa".repeat(100))))
            .collect();
        for some in all.chunks(10) {
            bed.does(|t| some.iter().for_each(|id| _ = t.touch(META, id)));
        }
        assert!(all.iter().all(|id| bed.is_there(META, id)));
        all.sort();
        assert!(bed.ids(META, 5000) == all && bed.ids(META, 50) == all);
        let end = object(i64::MAX, u32::MAX, "");
        assert!(bed.store().list(META, Some(&end), 50).unwrap().all.is_empty(), "behind the last");
        for some in all.chunks(10) {
            bed.does(|t| some.iter().for_each(|id| _ = t.remove(META, id)));
        }
        bed.cleans(&[]);
    });
}

#[test]
fn rename() {
    on_each(|bed| {
        let (from, to) = (id("src_oid"), id("dest_oid"));
        bed.does(|t| _ = t.write(META, &from, 0, b"foo"));
        bed.does(|t| {
            t.rename(META, &from, &to).write(META, &from, 0, b"bar");
            t.set_attributes(META, &from, &[(b"attr", b"bar")]);
        });
        assert_eq!((bed.read(&from, 0, 3), bed.read(&to, 0, 3)), (b"bar".to_vec(), b"foo".to_vec()));
        assert!(bed.store().stat(META, &to).unwrap().attributes.is_empty());
        bed.refuses(Code::Exists, |t| _ = t.rename(META, &from, &to));
        bed.does(|t| _ = t.remove(META, &to).rename(META, &from, &to));
        assert!(bed.is_there(META, &to) && !bed.is_there(META, &from));
        assert_eq!(bed.read(&to, 0, 3), b"bar");
        bed.remount();
        assert_eq!(bed.read(&to, 0, 3), b"bar");
        bed.cleans(&[&to]);
    });
}

/// How an OSD puts an object in the place of another, when it has made it under another name.
#[test]
fn move_rename() {
    on_each(|bed| {
        let (made, place) = (id("tmp_oid"), id("dest_oid"));
        bed.does(|t| _ = t.touch(META, &place));
        bed.does(|t| {
            t.touch(META, &made).write(META, &made, 0, b"data payload");
            t.set_attributes(META, &made, &[(b"attr", b"attr value")]);
            t.omap_set(META, &made, &[(b"omap_key", b"omap value")]);
        });
        bed.does(|t| _ = t.remove(META, &place).rename(META, &made, &place));
        assert!(bed.is_there(META, &place) && !bed.is_there(META, &made));
        for _ in 0..2 {
            assert_eq!(bed.read(&place, 0, 1000), b"data payload");
            assert_eq!(bed.store().stat(META, &place).unwrap().attributes[&b"attr"[..]], b"attr value");
            let found = bed.store().omap_get(META, &place, &[b"omap_key", b"none"]).unwrap();
            assert_eq!(found, [Some(b"omap value".to_vec()), None]);
            bed.remount();
        }
        bed.cleans(&[&place]);
    });
}

#[test]
fn try_move_rename() {
    on_each(|bed| {
        let (from, to) = (id("test_hint"), id("test_hint2"));
        bed.does(|t| _ = t.rename_if_there(META, &from, &to));
        assert!(bed.ids(META, 10).is_empty());
        bed.does(|t| _ = t.touch(META, &from));
        bed.does(|t| _ = t.rename_if_there(META, &from, &to));
        assert!(!bed.is_there(META, &from) && bed.is_there(META, &to));
        // What makes no sense is refused all the same, and so is what has no place.
        bed.does(|t| _ = t.touch(META, &from));
        bed.refuses(Code::Exists, |t| _ = t.rename_if_there(META, &from, &to));
        let nowhere = CollectionId { pool: 77, seed: 0 };
        bed.refuses(Code::NotFound, |t| _ = t.remove_if_there(nowhere, &object(77, 0, "a")));
        bed.refuses(Code::InvalidArgument, |t| _ = t.rename_if_there(META, &id("none"), &object(77, 0, "a")));
        bed.cleans(&[&from, &to]);
    });
}

/// Here a hint makes its object; there it does nothing where the object is not.
#[test]
fn set_alloc_hint() {
    on_each(|bed| {
        let hinted = id("test_hint");
        let hint = Hint { object: 4 << 20, write: 4 << 10, ..Hint::default() };
        bed.does(|t| _ = t.touch(META, &hinted));
        bed.does(|t| _ = t.hint(META, &hinted, hint));
        bed.remount();
        assert_eq!(bed.store().stat(META, &hinted).unwrap().hint, hint);
        bed.does(|t| _ = t.remove(META, &hinted));
        bed.does(|t| _ = t.hint(META, &hinted, hint));
        bed.refuses(Code::NotEmpty, |t| _ = t.remove_collection(META));
        bed.cleans(&[&hinted]);
    });
}

/// The names that an OSD gives to what is about to go: another generation of each.
#[test]
fn scrub_test_of_generations() {
    on_each(|bed| {
        let same = |generation| ObjectId { generation, ..id("same-object") };
        let all = [same(1), same(2), same(NO_GENERATION)];
        bed.does(|t| all.iter().for_each(|id| _ = t.touch(META, id)));
        assert_eq!(bed.ids(META, 1), all);
        bed.cleans(&all.iter().collect::<Vec<_>>());
    });
}
