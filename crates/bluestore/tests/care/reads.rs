//! Reads that go wrong, once or for good.

use crate::support::content;
use crate::{ALL, BLOCK, Harm, does, id, new, place_of};
use imbrex_bluestore::Hint;
use imbrex_device::Code;

const LEN: u64 = 256 << 10;

/// An object, and where the drive has its tenth block.
fn written(hint: Hint) -> (crate::All, Vec<u8>, u64) {
    let all = new();
    let bytes = content(LEN, 1);
    does(&all.store, |t| _ = t.hint(ALL, &id("a"), hint).write(ALL, &id("a"), 0, &bytes));
    let at = place_of(&all.fickle.drive, &bytes[10 * BLOCK as usize..11 * BLOCK as usize]);
    assert_eq!(at.len(), 1);
    (all, bytes, at[0])
}

#[test]
fn what_the_drive_gives_the_second_time_is_read() {
    for harm in [Harm::Medium, Harm::Flip] {
        // Once; or always, but not alone.
        for (times, above) in [(1, 0), (u32::MAX, BLOCK as usize)] {
            let (all, bytes, at) = written(Hint::default());
            all.fickle.set(at, harm, times, above);
            assert!(all.store.read(ALL, &id("a"), 0, LEN).unwrap() == bytes, "{harm:?}");
            let usage = all.store.usage();
            assert_eq!((usage.read_again, usage.read_in_vain), (1, 0), "{harm:?}, {times}");
        }
    }
}

#[test]
fn what_cannot_be_read_fails_and_nothing_else_of_its_object() {
    // Grains of a block, and of 16, the longest on such a drive.
    for (hint, grain) in [(Hint::default(), 1), (Hint { immutable: true, ..Hint::default() }, 16)] {
        for (harm, code) in [(Harm::Medium, Code::Io), (Harm::Flip, Code::Corruption)] {
            let (all, bytes, at) = written(hint);
            all.fickle.set(at, harm, u32::MAX, 0);
            let read = |first: u64, blocks: u64| all.store.read(ALL, &id("a"), first * BLOCK, blocks * BLOCK);
            assert_eq!(read(0, 64).map(drop).map_err(|error| error.code()), Err(code), "{harm:?}");
            assert_eq!(all.store.usage().read_in_vain, 1);
            if harm == Harm::Flip {
                // And not that of files.
                let said = read(10, 1).unwrap_err().to_string();
                assert!(said.ends_with("run `imbrex store check` on the drive"), "{said}");
            }
            let gone: Vec<u64> = (0..64).filter(|n| read(*n, 1).is_err()).collect();
            let hit = 10 / grain * grain;
            assert_eq!(gone, (hit..hit + grain).collect::<Vec<_>>(), "{harm:?}");
            let rest = read(hit + grain, 64).unwrap();
            assert!(rest[..] == bytes[((hit + grain) * BLOCK) as usize..], "{harm:?}");
            let usage = all.store.usage();
            assert_eq!(
                (usage.read_again, usage.read_in_vain),
                (0, 1 + grain + u64::from(harm == Harm::Flip)),
                "{harm:?}"
            );
            all.fickle.heal();
            assert!(read(0, 64).unwrap() == bytes);
        }
    }
}

/// What the cleaner and `defragment` read with others is read alone, once, where that was wrong.
#[test]
fn what_moves_is_read_once_more_too() {
    for defragment in [false, true] {
        let all = new();
        // Two zones that both have both.
        for n in 0..120u64 {
            does(&all.store, |t| _ = t.write(ALL, &id("a"), n * 8192, &content(4096, n as u8)));
            does(&all.store, |t| _ = t.write(ALL, &id("b"), n * 8192, &content(8192, n as u8 + 128)));
        }
        all.store.pack().unwrap();
        let at = place_of(&all.fickle.drive, &content(4096, 30));
        // The headers of runs are read in commands of 32 KiB.
        all.fickle.set(at[0], Harm::Flip, 1, 32 << 10);
        if defragment {
            all.store.defragment(ALL, &[id("a")], 1 << 20).unwrap();
        } else {
            does(&all.store, |t| _ = t.remove(ALL, &id("b")));
            all.store.clean(8 << 20).unwrap();
        }
        let usage = all.store.usage();
        for n in 0..120u64 {
            assert!(all.store.read(ALL, &id("a"), n * 8192, 4096).unwrap() == content(4096, n as u8));
        }
        assert_eq!((usage.read_again, usage.read_in_vain), (1, 0), "defragment: {defragment}");
    }
}
