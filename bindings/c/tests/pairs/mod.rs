//! A key-value store beside other engines: what is done to two of its spaces, and what may be there after a crash.

use imbrex_kv::{Batch, Bytewise, Kv, Make, MergeOperator, Options, Order};
use imbrex_zones::{Budget, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const NAME: &str = "kv";
/// As `Kv::format` has it for a store that is alone.
pub const BUDGET: Budget = Budget { slots: 6, ..Budget::keeping(0, 0).at_least(18) };
const KEYS: u16 = 150;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A batch, told by its seed, with values of fewer bytes than `most`.
    Write {
        seed: u32,
        most: u16,
        sync: bool,
    },
    /// All keys before this one go, in both spaces.
    Clear(u16),
    /// The other space goes.
    Drop,
    /// The mark comes as a table, past the log.
    Ingest(u32),
    Sync,
    Flush,
    Compact,
    Step,
}

enum To {
    Value(Vec<u8>),
    /// It is appended.
    Operand(Vec<u8>),
    Gone,
    /// It goes, and all before this one.
    Range(u16),
}

/// Values are lists.
struct Append;

impl MergeOperator for Append {
    fn merge(&self, _: &[u8], value: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
        [value.unwrap_or_default(), &operands.concat()].concat()
    }

    fn combine(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(operands.concat())
    }
}

/// Whether it is of the other space, and the key.
type Name = (bool, Vec<u8>);
pub type Model = BTreeMap<Name, Vec<u8>>;

/// It says which batch was the last.
const MARK: &[u8] = b"mark";

fn key(n: u16) -> Vec<u8> {
    format!("k{n:04}").into_bytes()
}

fn is_other(key: u16) -> bool {
    key.is_multiple_of(3)
}

fn changes(seed: u32, most: u16) -> Vec<(u16, To)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.into());
    let mut change = |_| {
        let key = rng.random_range(0..KEYS);
        let to = match rng.random_range(0..16) {
            0 => To::Range(key + rng.random_range(1..KEYS / 8)),
            1..3 => To::Gone,
            3..5 => To::Operand((0..rng.random_range(1..100)).map(|_| rng.random()).collect()),
            _ => To::Value((0..rng.random_range(0..most)).map(|_| rng.random()).collect()),
        };
        (key, to)
    };
    (0..1 + seed % 5).map(&mut change).collect()
}

impl Act {
    /// All acts before it are durable with it.
    pub fn syncs(self) -> bool {
        matches!(self, Act::Write { sync: true, .. } | Act::Drop | Act::Ingest(_) | Act::Sync)
    }

    /// It changes what is there.
    pub fn changes(self) -> bool {
        matches!(self, Act::Write { .. } | Act::Clear(_) | Act::Drop | Act::Ingest(_))
    }

    /// What the batch puts to [`MARK`].
    fn mark(self) -> Vec<u8> {
        format!("{self:?}").into_bytes()
    }

    pub fn apply(self, model: &mut Model) {
        if let Act::Write { .. } | Act::Clear(_) | Act::Ingest(_) = self {
            model.insert((false, MARK.to_vec()), self.mark());
        }
        match self {
            Act::Write { seed, most, .. } => {
                for (k, to) in changes(seed, most) {
                    let name = (is_other(k), key(k));
                    match to {
                        To::Value(value) => drop(model.insert(name, value)),
                        To::Operand(operand) => model.entry(name).or_default().extend(operand),
                        To::Gone => drop(model.remove(&name)),
                        To::Range(end) => {
                            let end = (is_other(k), key(end));
                            model.retain(|at, _| *at < name || *at >= end);
                        }
                    }
                }
            }
            Act::Clear(end) => model.retain(|(_, at), _| *at >= key(end)),
            Act::Drop => model.retain(|(is_other, _), _| !is_other),
            Act::Ingest(_) | Act::Sync | Act::Flush | Act::Compact | Act::Step => {}
        }
    }
}

pub fn options() -> Options {
    Options {
        memtable_bytes: 24 << 10,
        table_bytes: 48 << 10,
        step_bytes: 20 << 10,
        cache_bytes: 64 << 10,
        segment_bytes: 16 << 10,
        volume: super::volume_options(),
        ..Options::default()
    }
}

pub struct Pairs {
    unnamed: Kv,
    other: Kv,
}

impl Pairs {
    pub fn of(unnamed: Kv) -> imbrex_device::Result<Pairs> {
        unnamed.merge_operator(Arc::new(Append));
        let other = Pairs::other(&unnamed)?;
        Ok(Pairs { unnamed, other })
    }

    fn other(store: &Kv) -> imbrex_device::Result<Kv> {
        let other = store.space("other", Bytewise.name(), Make::IfMissing)?;
        other.merge_operator(Arc::new(Append));
        Ok(other)
    }

    pub fn open(volume: &Volume) -> imbrex_device::Result<Pairs> {
        Pairs::of(Kv::open_tenant(volume.tenant(NAME)?, options())?)
    }

    pub fn damage(&self) -> Vec<String> {
        self.unnamed.damage()
    }

    pub fn perform(&mut self, act: Act) -> imbrex_device::Result<()> {
        let store = &self.unnamed;
        let mut batch = Batch::new();
        batch.space(store);
        batch.put(MARK, &act.mark());
        match act {
            Act::Write { seed, most, sync } => {
                for (k, to) in changes(seed, most) {
                    batch.space(if is_other(k) { &self.other } else { store });
                    match to {
                        To::Value(value) => batch.put(&key(k), &value),
                        To::Operand(operand) => batch.merge(&key(k), &operand),
                        To::Gone => batch.delete(&key(k)),
                        To::Range(end) => batch.delete_range(Some(&key(k)), Some(&key(end))),
                    }
                }
                store.write(&batch, sync)
            }
            Act::Clear(end) => {
                for space in [store, &self.other] {
                    batch.space(space);
                    batch.delete_range(None, Some(&key(end)));
                }
                store.write(&batch, false)
            }
            Act::Drop => {
                let done = store.drop_space("other");
                self.other = Pairs::other(store)?;
                done
            }
            Act::Ingest(_) => {
                let mut ingest = store.ingest()?;
                ingest.put(MARK, &act.mark())?;
                ingest.finish()
            }
            Act::Sync => store.sync(),
            Act::Flush => store.flush(),
            Act::Compact => store.compact(),
            Act::Step => store.step().map(drop),
        }
    }

    /// Whether an act was carried out that was refused: a batch may be there, and not be synced.
    pub fn has_done(&self, act: Act) -> imbrex_device::Result<bool> {
        if act != Act::Drop {
            return Ok(self.unnamed.get(MARK)? == Some(act.mark()));
        }
        let mut iter = self.other.iter()?;
        iter.seek_to_first()?;
        Ok(iter.get().is_none())
    }

    /// All that is there, in both directions and by key.
    pub fn found(&self) -> Result<Model, String> {
        let text = |error: imbrex_device::Error| error.to_string();
        let (mut all, mut back) = (Model::new(), Model::new());
        for (is_other, space) in [(false, &self.unnamed), (true, &self.other)] {
            let mut iter = space.iter().map_err(text)?;
            iter.seek_to_first().map_err(text)?;
            while let Some((key, value)) = iter.get() {
                all.insert((is_other, key.to_vec()), value.to_vec());
                iter.advance().map_err(text)?;
            }
            iter.seek_to_last().map_err(text)?;
            while let Some((key, value)) = iter.get() {
                back.insert((is_other, key.to_vec()), value.to_vec());
                iter.retreat().map_err(text)?;
            }
            for key in (0..KEYS).filter(|n| self::is_other(*n) == is_other).map(key) {
                let got = space.get(&key).map_err(text)?;
                if got.as_ref() != all.get(&(is_other, key.clone())) {
                    return Err(format!("a get and an iterator differ about {}", String::from_utf8_lossy(&key)));
                }
            }
        }
        match all == back {
            true => Ok(all),
            false => Err("an iterator that goes back finds something else".into()),
        }
    }

    pub fn check(&self) -> Result<(), String> {
        let problems = self.unnamed.check().map_err(|error| error.to_string())?;
        match problems.is_empty() {
            true => Ok(()),
            false => Err(format!("the pairs' check finds {problems:?}")),
        }
    }
}

/// Whether it is what the first so many acts make, `least` of them at the least.
pub fn may_be(found: &Model, acts: &[Act], least: usize) -> bool {
    let mut model = Model::new();
    let mut fits = least == 0 && *found == model;
    for (number, act) in acts.iter().enumerate() {
        act.apply(&mut model);
        fits |= number + 1 >= least && *found == model;
    }
    fits
}

/// As many as there are `ops` of others, put among these: what is written, merged and deleted, at the `size` of values.
pub fn acts(seed: u64, size: u16) -> impl Iterator<Item = Act> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x6b76);
    std::iter::from_fn(move || {
        Some(match rng.random_range(0..30) {
            0..2 => Act::Sync,
            2..4 => Act::Flush,
            4 => Act::Compact,
            5..8 => Act::Step,
            8 => Act::Clear(rng.random_range(1..KEYS / 2)),
            9 if rng.random_bool(0.3) => Act::Drop,
            10 => Act::Ingest(rng.random()),
            _ => Act::Write { seed: rng.random(), most: size, sync: rng.random_range(0..4) == 0 },
        })
    })
}
