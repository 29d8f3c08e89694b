//! One byte of each block in turn is another, or the drive does not give the block.

use crate::support::{Model, Op, content};
use crate::{ALL, BLOCK, check, does, drive_of, found, id, ids, in_time, open, owned, unread, worked_with};
use imbrex_device::{AlignedBuf, Cause};
use imbrex_emulator::Emulator;
use imbrex_store::{ObjectId, Store};

/// Blocks, by what damage to them did.
#[derive(Default, Debug)]
struct Came {
    /// It cost objects, and a check says which blob's bytes.
    hit: u32,
    /// It cost none, and a check says that a header is not as it should be.
    header: u32,
    /// It cost none, and nobody says so: nothing lives there.
    dead: u32,
}

/// What happens to a block.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Flip,
    Medium,
}

impl Harm {
    /// False: the block was not written.
    fn done(self, emulator: &Emulator, start: u64) -> bool {
        // Somewhere in it.
        let at = start + start.wrapping_mul(0x9e37_79b9) % BLOCK;
        match self {
            Harm::Flip => emulator.faults().flip_bits(at, 0x10).is_ok(),
            Harm::Medium => {
                emulator.faults().media_error(start, BLOCK);
                true
            }
        }
    }

    fn undone(self, emulator: &Emulator, start: u64) {
        match self {
            Harm::Flip => _ = self.done(emulator, start),
            Harm::Medium => emulator.faults().clear(),
        }
    }
}

fn block(emulator: &Emulator, at: u64) -> Vec<u8> {
    let mut bytes = AlignedBuf::zeroed(BLOCK as usize);
    drive_of(emulator).device.read_at(&mut bytes, at, Cause::Check.into()).unwrap();
    bytes.to_vec()
}

/// Looks at all objects. The block had these bytes.
fn looked_at(store: &Store, model: &Model, was: &[u8]) -> Result<(Vec<ObjectId>, Vec<String>), String> {
    let lost = unread(&found(store), model)?;
    for id in &lost {
        let bytes = &model.objects[id].bytes;
        // Only what had the block is lost, and of it no more than a grain: 32 blocks of what is immutable, one of all else.
        let named = bytes.chunks(BLOCK as usize).any(|chunk| was.starts_with(chunk));
        let read = |n: u64| store.read(ALL, id, n * BLOCK, BLOCK).ok();
        let blocks = (bytes.len() as u64).div_ceil(BLOCK);
        let gone = (0..blocks).filter(|n| read(*n).is_none()).count();
        let right = (0..blocks).all(|n| {
            let chunk = bytes.chunks(BLOCK as usize).nth(n as usize);
            read(n).is_none_or(|read| Some(&read[..]) == chunk)
        });
        let most = if *id == crate::id(b'c') { 32 } else { 1 };
        if !named || !right || gone == 0 || gone > most {
            return Err(format!("{id} lacks {gone} blocks; it had this one: {named}"));
        }
    }
    Ok((lost, check(store)))
}

fn counted(came: &mut Came, first: bool, lost: &[ObjectId], wrong: &[String]) -> Result<(), String> {
    let all = |what: &str| wrong.iter().all(|sentence| sentence.contains(what));
    match (lost.is_empty(), wrong.is_empty()) {
        // Nobody needs the zone's own header while there are metadata.
        (true, true) => came.dead += u32::from(!first),
        (true, false) if all("is not in the header of its run") => came.header += 1,
        // A block is one blob's.
        (false, false) if wrong.len() == 1 && all("cannot be read") => came.hit += 1,
        _ => return Err(format!("{lost:?} are lost, and a check says {wrong:#?}")),
    }
    Ok(())
}

/// The store goes on: it takes writes, cleans, and takes what is deleted. What was not lost stays as it is.
fn goes_on(emulator: &Emulator, model: &Model, lost: &[ObjectId]) -> Result<(), String> {
    let text = |error: imbrex_device::Error| error.to_string();
    let (drive, mut model) = (drive_of(emulator), model.clone());
    let store = open(&drive).map_err(text)?;
    let same = |store: &Store, model: &Model, lost: &[ObjectId]| match unread(&found(store), model)? {
        now if now.iter().all(|id| lost.contains(id)) => Ok(()),
        now => Err(format!("{now:?} are lost now, and were {lost:?}")),
    };
    for id in ids().filter(|id| !lost.contains(id)) {
        does(&store, &mut model, &[Op::Write(id, 8192, 40_000, 90)]).map_err(text)?;
    }
    store.pack().map_err(text)?;
    store.clean(1 << 20).map_err(text)?;
    same(&store, &model, lost)?;
    for id in lost {
        does(&store, &mut model, &[Op::Remove(id.clone())]).map_err(text)?;
    }
    store.pack().map_err(text)?;
    same(&store, &model, &[])?;
    let wrong = check(&store);
    if !wrong.iter().all(|sentence| sentence.contains("is not in the header of its run")) {
        return Err(format!("after all: {wrong:#?}"));
    }
    drop(store);
    let store = open(&drive).map_err(text)?;
    same(&store, &model, &[])
}

#[test]
fn a_byte_of_the_objects_is_an_error_of_what_it_hit_and_of_nothing_else() {
    let (emulator, model) = worked_with();
    let [_, zones] = owned(&emulator);
    let at_rest = emulator.fork().unwrap();
    let store = open(&drive_of(&emulator)).unwrap();
    let (mut live, mut later) = (Came::default(), Came::default());
    for (zone, end) in zones {
        for n in 0..end / BLOCK {
            let start = drive_of(&emulator).device.geometry().start(zone) + n * BLOCK;
            let (was, harms) = (block(&emulator, start), [Harm::Flip, Harm::Medium]);
            let told = |why: String| format!("{zone:?}, block {n}: {why}");
            for harm in harms {
                // A zone that was finished ends before its capacity.
                if !harm.done(&emulator, start) {
                    break;
                }
                let (lost, wrong) = looked_at(&store, &model, &was).map_err(told).unwrap();
                counted(&mut live, n == 0, &lost, &wrong).map_err(told).unwrap();
                harm.undone(&emulator, start);
            }
            // With restarts one or the other.
            let (fork, model) = (at_rest.fork().unwrap(), model.clone());
            if !harms[n as usize % 2].done(&fork, start) {
                continue;
            }
            let done = in_time(move || {
                let store = open(&drive_of(&fork)).map_err(|error| error.to_string())?;
                let (lost, wrong) = looked_at(&store, &model, &was)?;
                drop(store);
                goes_on(&fork, &model, &lost).map(|()| (lost, wrong))
            });
            let (lost, wrong) = done.map_err(told).unwrap();
            counted(&mut later, n == 0, &lost, &wrong).map_err(told).unwrap();
        }
    }
    println!("{live:?}, after restarts {later:?}");
    for came in [live, later] {
        assert!(came.hit > 100 && came.header > 5 && came.dead > 10, "{came:?}");
    }
}

/// Of the metadata nobody gives anything that was not there without saying so.
#[test]
fn a_byte_of_the_metadata_is_told_or_does_no_harm() {
    let (emulator, model) = worked_with();
    let [zones, _] = owned(&emulator);
    let mut came = [0u32; 3];
    for (zone, end) in zones {
        for n in 0..end / BLOCK {
            let start = drive_of(&emulator).device.geometry().start(zone) + n * BLOCK;
            for harm in [Harm::Flip, Harm::Medium] {
                let (fork, model) = (emulator.fork().unwrap(), model.clone());
                if !harm.done(&fork, start) {
                    break;
                }
                let what = in_time(move || of_metadata(&fork, &model, &format!("{zone:?}, block {n}, {harm:?}")));
                came[what as usize] += 1;
            }
        }
    }
    println!("whole, told, refused: {came:?}");
    assert!(came[0] > 20 && came[1] > 20, "{came:?}");
}

#[derive(Clone, Copy)]
enum What {
    Whole,
    Told,
    Refused,
}

fn of_metadata(emulator: &Emulator, model: &Model, at: &str) -> What {
    let Ok(store) = open(&drive_of(emulator)) else { return What::Refused };
    let told = !store.damage().is_empty();
    let read = unread(&found(&store), model);
    let wrong = check(&store);
    let what = match (&read, told || !wrong.is_empty()) {
        (Ok(lost), false) if lost.is_empty() => What::Whole,
        (_, true) => What::Told,
        (read, false) => panic!("{at}: {read:?}, and nobody says so"),
    };
    // It goes on, or says why not.
    let (mut then, before) = (model.clone(), read.is_ok_and(|lost| lost.is_empty()));
    let goes_on = does(&store, &mut then, &[Op::Write(id(b'f'), 0, 50_000, 91)]).is_ok();
    drop(store);
    if goes_on && before {
        let store = open(&drive_of(emulator)).unwrap_or_else(|error| panic!("{at}: {error}"));
        let bytes = store.read(ALL, &id(b'f'), 0, 50_000);
        assert!(bytes.is_ok_and(|bytes| bytes == content(50_000, 91)), "{at}");
    }
    what
}
