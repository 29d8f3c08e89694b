//! An object store beside other engines, with its metadata in a key-value store of the same drive: transactions at random, and what else is done to it.

#[path = "../../../../crates/bluestore/tests/support/mod.rs"]
mod support;

use super::Came;
use imbrex_device::{Code, Result};
use imbrex_store::{Options, Store, Survives, Ticket, Transaction};
use imbrex_zones::Volume;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
pub use support::Model;

/// What whoever writes waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Nothing,
    /// It outlives the process.
    Kept,
    Durable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A transaction, told by its seed and by what is there, of objects of about so many bytes. The digest of what is there then is known when it begins.
    Do {
        seed: u64,
        most: u32,
        wait: Wait,
        state: u64,
    },
    Keep,
    Sync,
    /// What is deferred gets places, and changes of counts are made.
    Pack,
    /// What lives in zones that are mostly dead moves, about so many bytes.
    Clean(u32),
}

impl Step {
    /// It changes what is there.
    pub fn changes(self) -> bool {
        matches!(self, Step::Do { .. })
    }

    /// All transactions up to it outlive the process.
    pub fn keeps(self) -> bool {
        self.syncs() || matches!(self, Step::Keep | Step::Do { wait: Wait::Kept, .. })
    }

    /// All transactions up to it are durable.
    pub fn syncs(self) -> bool {
        matches!(self, Step::Sync | Step::Pack | Step::Do { wait: Wait::Durable, .. })
    }
}

pub fn options() -> Options {
    let metadata = imbrex_kv::Options { volume: super::volume_options(), ..super::pairs::options() };
    Options { store: support::options(), metadata, volume: super::volume_options(), ..Options::default() }
}

fn begun() -> (Transaction, Model) {
    let (mut transaction, mut model, (collection, bits)) = (Transaction::new(), Model::default(), support::first());
    model.apply(&support::Op::Create(collection, bits), &mut transaction).unwrap();
    (transaction, model)
}

/// The digest of what is there at first.
pub fn first() -> u64 {
    begun().1.digest()
}

pub struct Objects {
    store: Store,
    /// What is there, once somebody has asked.
    model: Option<Model>,
    /// The last transaction of this process.
    last: Option<Ticket>,
}

impl Objects {
    pub fn open(volume: &Volume) -> Result<Objects> {
        Ok(Objects { store: Store::open_on(volume, options())?, model: None, last: None })
    }

    /// Makes the first collection.
    pub fn begin(&self) -> Result<()> {
        self.store.commit(begun().0)
    }

    pub fn damage(&self) -> Vec<String> {
        self.store.damage().to_vec()
    }

    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// What should be there.
    pub fn model(&mut self) -> std::result::Result<Model, String> {
        match &self.model {
            Some(model) => Ok(model.clone()),
            None => Ok(self.model.insert(self.found()?).clone()),
        }
    }

    fn transaction(&mut self, seed: u64, most: u32) -> std::result::Result<(Transaction, Model), String> {
        let model = self.model()?;
        let (_, transaction, then) =
            support::any_transaction(&mut ChaCha8Rng::seed_from_u64(seed), &model, most.into());
        Ok((transaction, then))
    }

    /// The same step, which says what it makes of what is there.
    pub fn planned(&mut self, step: Step) -> std::result::Result<Step, String> {
        let Step::Do { seed, most, wait, .. } = step else { return Ok(step) };
        let state = self.transaction(seed, most)?.1.digest();
        Ok(Step::Do { seed, most, wait, state })
    }

    pub fn perform(&mut self, step: Step) -> Came {
        let done = match step {
            Step::Do { seed, most, wait, .. } => {
                let (transaction, then) = match self.transaction(seed, most) {
                    Ok(both) => both,
                    Err(why) => return Came::Failed(why),
                };
                let ticket = match self.store.queue(transaction) {
                    Ok(ticket) => ticket,
                    Err(error) if error.code() == Code::NoSpace => return Came::Full,
                    Err(error) => return Came::Failed(error.to_string()),
                };
                (self.model, self.last) = (Some(then), Some(ticket));
                match wait {
                    Wait::Nothing => Ok(()),
                    Wait::Kept => self.store.wait_for(ticket, Survives::Process),
                    Wait::Durable => self.store.wait(ticket),
                }
            }
            Step::Keep => self.last.map_or(Ok(()), |last| self.store.wait_for(last, Survives::Process)),
            Step::Sync => self.store.sync(),
            Step::Pack => self.store.pack().map(drop),
            Step::Clean(most) => self.store.clean(most.into()).map(drop),
        };
        // Whatever fails behind the queue ends the store: it had promised that there is room.
        done.map_or_else(|error| Came::Failed(error.to_string()), |()| Came::Done)
    }

    pub fn found(&self) -> std::result::Result<Model, String> {
        Model::of(&self.store).map_err(|error| error.to_string())
    }

    pub fn check(&self) -> std::result::Result<(), String> {
        let wrong = self.store.check_all(true).map_err(|error| error.to_string())?.wrong;
        if wrong.is_empty() { Ok(()) } else { Err(format!("the objects' check finds {wrong:?}")) }
    }
}

/// What is done to the store, of objects of about so many bytes.
pub fn steps(seed: u64, most: u32) -> impl Iterator<Item = Step> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x6f62);
    std::iter::from_fn(move || {
        let step = match rng.random_range(0..16) {
            0 => Step::Sync,
            1 => Step::Pack,
            2 => Step::Keep,
            3..5 => Step::Clean(rng.random_range(1..most)),
            _ => {
                let wait = [Wait::Nothing, Wait::Nothing, Wait::Kept, Wait::Durable][rng.random_range(0..4)];
                Step::Do { seed: rng.random(), most, wait, state: 0 }
            }
        };
        Some(step)
    })
}
