//! Each zone of the drive in turn goes offline or takes no more writes: at rest, and at any write of a workload that cleans, packs and makes changes of counts.

use crate::support::{Hook, Hooked, Model, Op, any_transaction};
use crate::{check, does, drive_of, found, id, ids, in_time, is_damage, object, open, owned, unread, worked_with};
use imbrex_device::{Class, Drive, Error, ZoneId};
use imbrex_emulator::Emulator;
use imbrex_store::{CollectionId, ObjectId, Store, Transaction};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    Offline,
    /// It can be read.
    ReadOnly,
}

impl Dies {
    fn done(self, emulator: &Emulator, zone: ZoneId) {
        match self {
            Dies::Offline => emulator.faults().make_offline(zone).unwrap(),
            Dies::ReadOnly => emulator.faults().make_read_only(zone).unwrap(),
        }
    }
}

const BOTH: [Dies; 2] = [Dies::Offline, Dies::ReadOnly];

fn text(error: Error) -> String {
    error.to_string()
}

/// Whose a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Metadata,
    Objects,
    /// The label's, or nobody's yet.
    Nobodys,
}

fn whose(zone: ZoneId, emulator: &Emulator) -> Whose {
    let [metadata, objects] = owned(emulator).map(|zones| zones.iter().any(|(id, _)| *id == zone));
    match (metadata, objects) {
        (true, _) => Whose::Metadata,
        (_, true) => Whose::Objects,
        _ => Whose::Nobodys,
    }
}

/// What came of it.
#[derive(Default, Debug)]
struct Came {
    /// Everything was there, and the store went on.
    whole: u32,
    /// Some of it was not.
    lost: u32,
    /// The store said that it does not go on.
    ended: u32,
    /// It did not open again, and said why.
    refused: u32,
}

impl Came {
    fn count(&mut self, what: &What) {
        match what {
            What::Whole => self.whole += 1,
            What::Lost => self.lost += 1,
            What::Ended => self.ended += 1,
            What::Refused => self.refused += 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Whole,
    Lost,
    Ended,
    Refused,
}

/// Of a store that is at rest.
fn at_rest(emulator: &Emulator, model: &Model, zone: ZoneId, dies: Dies, restart: bool) -> Result<What, String> {
    let (drive, mut model, of) = (drive_of(emulator), model.clone(), whose(zone, emulator));
    let before = if restart { None } else { Some(open(&drive).map_err(text)?) };
    dies.done(emulator, zone);
    let store = match before.map_or_else(|| open(&drive), Ok) {
        Err(_) if dies == Dies::Offline && of == Whose::Metadata => return Ok(What::Refused),
        store => store.map_err(text)?,
    };
    let lost = match unread(&found(&store), &model) {
        // The log went with its zone, and the opening says so.
        Err(_) if dies == Dies::Offline && of == Whose::Metadata && !store.damage().is_empty() => {
            return Ok(What::Lost);
        }
        lost => lost?,
    };
    if !lost.is_empty() && (dies == Dies::ReadOnly || of == Whose::Nobodys) {
        return Err(format!("{lost:?} cannot be read"));
    }
    let told = !check(&store).is_empty() || !store.damage().is_empty();
    if !lost.is_empty() && !told {
        return Err(format!("{lost:?} are lost, and nobody says so"));
    }
    let went_on = goes_on(&store, &mut model, &lost);
    if let Err(error) = &went_on
        && of != Whose::Metadata
    {
        return Err(format!("it does not go on: {error}"));
    }
    let left = unread(&found(&store), &model)?;
    if left.iter().any(|id| !lost.contains(id)) {
        return Err(format!("{left:?} are lost behind that"));
    }
    drop(store);
    let store = match open(&drive) {
        Err(_) if dies == Dies::Offline && of == Whose::Metadata => return Ok(What::Refused),
        store => store.map_err(text)?,
    };
    // A transaction that was refused may have come through.
    let now = if went_on.is_ok() { unread(&found(&store), &model)? } else { Vec::new() };
    if now.iter().any(|id| !lost.contains(id)) {
        return Err(format!("{now:?} are lost after a restart"));
    }
    Ok(match went_on {
        Err(_) => What::Ended,
        Ok(()) if lost.is_empty() => What::Whole,
        Ok(()) => What::Lost,
    })
}

/// All objects that are there are written, what is half dead is cleaned, counts are made, and what is lost is deleted.
fn goes_on(store: &Store, model: &mut Model, lost: &[ObjectId]) -> imbrex_device::Result<()> {
    for id in ids().filter(|id| !lost.contains(id)) {
        does(store, model, &[Op::Write(id.clone(), 8192, 60_000, 80), Op::Write(id, 20_000, 300, 81)])?;
    }
    store.pack()?;
    store.clean(1 << 20)?;
    for id in lost {
        does(store, model, &[Op::Remove(id.clone())])?;
    }
    store.pack()?;
    does(store, model, &[Op::Write(id(b'f'), 0, 200_000, 82)])
}

#[test]
fn a_zone_that_dies_at_rest_costs_what_was_in_it_and_no_more() {
    let (emulator, model) = worked_with();
    for dies in BOTH {
        let mut came = Came::default();
        for zone in (0..crate::support::zones_of(&drive_of(&emulator)) as u32).map(ZoneId) {
            for restart in [false, true] {
                let (fork, model) = (emulator.fork().unwrap(), model.clone());
                let what = in_time(move || at_rest(&fork, &model, zone, dies, restart));
                let what = what.unwrap_or_else(|why| panic!("{zone:?} {dies:?}, restart {restart}: {why}"));
                came.count(&what);
            }
        }
        println!("{dies:?}: {came:?}");
        assert!(came.whole > 60, "{came:?}");
        assert_eq!(came.lost > 4, dies == Dies::Offline, "{came:?}");
    }
}

/// A workload, and what may be there after it.
struct Run {
    store: Store,
    /// After each transaction; the first of them that must be there.
    states: Vec<Model>,
    least: usize,
}

impl Run {
    fn step(&mut self, rng: &mut ChaCha8Rng) -> Result<(), Error> {
        match rng.random_range(0..8) {
            0 => self.store.pack().map(drop)?,
            1 => self.store.clean(rng.random_range(1..400_000)).map(drop)?,
            2 => self.store.sync()?,
            _ => {
                let (_, transaction, then) = any_transaction(rng, self.now(), 200_000);
                self.store.queue(transaction)?;
                self.states.push(then);
                return Ok(());
            }
        }
        self.store.sync()?;
        self.least = self.states.len() - 1;
        Ok(())
    }

    fn now(&self) -> &Model {
        self.states.last().unwrap()
    }
}

/// The zone dies before a write to the drive, so many writes on. Then all is read, with the store that is open and with the next one, which goes on.
fn amid(emulator: &Emulator, model: &Model, zone: ZoneId, dies: Dies, seed: u64) -> Result<What, String> {
    let (mut rng, hook) = (ChaCha8Rng::seed_from_u64(seed), Hook::default());
    let device = Arc::new(Hooked { drive: emulator.clone(), hook: hook.clone() });
    let drive = Drive { device, survivor: None };
    let mut run = Run { store: open(&drive).map_err(text)?, states: vec![model.clone()], least: 0 };
    let killed = emulator.clone();
    hook.set_behind(rng.random_range(0..40), move || dies.done(&killed, zone));
    let failed = (0..30).find_map(|_| run.step(&mut rng).err());
    let Run { store, states, least } = run;
    is_one_of(&store, &states[states.len() - 1..], dies).map_err(|why| format!("{why}, while it was open"))?;
    drop(store);
    let store = match open(&drive) {
        Err(error) if error.class() == Class::Damage && dies == Dies::Offline => return Ok(What::Refused),
        store => store.map_err(|error| format!("{error}, behind {failed:?}"))?,
    };
    let lost = is_one_of(&store, &states[least..], dies).map_err(|why| format!("{why}, behind {failed:?}"))?;
    if lost && check(&store).is_empty() {
        return Err("something is lost, and nobody says so".into());
    }
    let mut more = Transaction::new();
    more.create_collection(CollectionId { pool: 9, seed: 0 }, 0);
    match store.commit(more) {
        Err(error) if dies == Dies::ReadOnly => Err(format!("{error}, after a restart behind {failed:?}")),
        _ if failed.is_some() => Ok(What::Ended),
        _ if lost => Ok(What::Lost),
        _ => Ok(What::Whole),
    }
}

#[test]
fn a_zone_that_dies_under_way_costs_what_was_in_it_and_no_more() {
    let (emulator, model) = worked_with();
    for dies in BOTH {
        let mut came = Came::default();
        for zone in (0..crate::support::zones_of(&drive_of(&emulator)) as u32).map(ZoneId) {
            for seed in 0..3 {
                let (fork, model) = (emulator.fork().unwrap(), model.clone());
                let what = in_time(move || amid(&fork, &model, zone, dies, seed << 8 | u64::from(zone.0)));
                let what = what.unwrap_or_else(|why| panic!("{zone:?} {dies:?}, seed {seed}: {why}"));
                came.count(&what);
            }
        }
        println!("{dies:?}: {came:?}");
        assert!(came.whole > 60, "{came:?}");
    }
}

/// What can be read is what one of these has. True: something cannot be read.
fn is_one_of(store: &Store, states: &[Model], dies: Dies) -> Result<bool, String> {
    let read: Vec<_> = ids().map(|id| (object(store, &id), id)).collect();
    if let Some((Err(error), id)) =
        read.iter().find(|(object, _)| object.as_ref().is_err_and(|e| dies == Dies::ReadOnly || !is_damage(e)))
    {
        return Err(format!("{id}: {error}"));
    }
    let fits = |model: &Model| {
        read.iter().all(|(object, id)| {
            object.as_ref().map_or(true, |object| object.as_ref() == model.objects.get(id).map(AsRef::as_ref))
        })
    };
    // The log went with its zone, and the opening says so.
    let told = dies == Dies::Offline && !store.damage().is_empty();
    match states.iter().any(fits) || told {
        true => Ok(read.iter().any(|(object, _)| object.is_err())),
        false => Err(format!("the store is as after none of {} transactions", states.len())),
    }
}
