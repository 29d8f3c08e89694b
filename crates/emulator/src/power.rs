//! Copies of a drive, and what a power loss leaves of it.

use crate::cache::at_risk;
use crate::drive::{Emulator, Inner, Mode, Parts, lock, memory_identity};
use crate::state::{State, cut};
use crate::store::Store;
use imbrex_device::{Error, Identity, Result, ZoneId, ZonedDevice};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::io;

impl Emulator {
    /// An independent copy in exactly the same state: data, zone states, what is unflushed, faults, counters. It lives in
    /// memory and shares pages with the original, so that it costs little; of an image or a flat drive it copies what is
    /// written. Commands in flight are not in it.
    pub fn fork(&self) -> Result<Emulator> {
        let inner = &self.inner;
        let fail = |error: io::Error| Error::io(&inner.identity.name, error);
        let _flushing = lock(&inner.flushing);
        let log = lock(&inner.pre_images);
        let open = lock(&inner.open);
        let sides: Vec<_> = inner.slots.iter().map(|slot| lock(&slot.side)).collect();
        let state = inner.state.copy();
        let store = inner.copy_store(&state).map_err(fail)?;
        let pre_images = log.copy(&inner.state);
        drop(sides);
        let copy = Self::assemble(Parts {
            config: inner.config.clone(),
            identity: Identity { power_epoch: self.power_epoch(), ..inner.identity.clone() },
            state,
            store,
            pre_images,
            faults: inner.faults.copy(),
            mode: Mode::default(),
            home: None,
        });
        // Which zone the drive would close or destage next belongs to the state too.
        lock(&copy.inner.dirty).clone_from(&lock(&inner.dirty));
        lock(&copy.inner.open).clone_from(&open);
        Ok(copy)
    }

    /// A fork after a power loss whose outcome follows from `seed` alone.
    pub fn after_power_loss(&self, seed: u64) -> Result<Emulator> {
        self.after_power_loss_choosing(&mut seeded(seed))
    }

    /// A fork after a power loss whose outcome the caller chooses. `choose(n)` returns 0 (all of it is lost) to `n` (all
    /// of it is kept); more counts as `n`. It is asked first for each sequential zone with blocks at risk, in the order
    /// of zones, how many of the `n` are kept; then for each unflushed conventional write, oldest first, with `n` = twice
    /// its blocks less one: 0 to `blocks - 1` keep that many blocks of its front, `blocks` to `n - 1` keep 1 to
    /// `blocks - 1` of its end, `n` keeps it whole.
    pub fn after_power_loss_choosing(&self, choose: &mut dyn FnMut(u64) -> u64) -> Result<Emulator> {
        let copy = self.fork()?;
        copy.inner.lose_power(choose, true).map_err(|error| Error::io(&copy.inner.identity.name, error))?;
        Ok(copy.with_new_epoch())
    }

    /// The power of this very drive goes and comes back, under whoever uses it. Commands under way come to their end before.
    pub(crate) fn lose_power_live(&self, told: bool, choose: &mut dyn FnMut(u64) -> u64) -> Result<()> {
        let _alone = self.inner.power.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.inner.lose_power(choose, told).map_err(|error| Error::io(&self.inner.identity.name, error))
    }

    fn with_new_epoch(self) -> Emulator {
        match std::sync::Arc::try_unwrap(self.inner) {
            Ok(mut inner) => {
                let identity = memory_identity(&inner.config, &inner.state);
                inner.identity.power_epoch = identity.power_epoch;
                inner.epoch = inner.state.epoch();
                Emulator { inner: inner.into() }
            }
            Err(inner) => Emulator { inner },
        }
    }
}

/// The outcome of a power loss by a seed: extremes are as likely as anything between.
pub(crate) fn seeded(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    move |n| match rng.random_range(0..4) {
        0 => 0,
        1 => n,
        _ => rng.random_range(0..=n),
    }
}

impl Inner {
    fn copy_store(&self, state: &State) -> io::Result<Store> {
        if let Store::Cow(cow) = &self.store {
            return Ok(Store::Cow(cow.copy()));
        }
        let copy = Store::cow(&self.config);
        let mut page = vec![0; 64 << 10];
        for zone in 0..self.geometry.zones {
            let end = if self.conventional(ZoneId(zone)) {
                self.config.zone_size
            } else {
                state.zone(zone).written * self.block()
            };
            for at in (0..end).step_by(page.len()) {
                let n = (end - at).min(page.len() as u64) as usize;
                self.store.read(zone, at, &mut page[..n])?;
                if page[..n].iter().any(|byte| *byte != 0) {
                    copy.write(zone, at, &page[..n])?;
                }
            }
        }
        Ok(copy)
    }

    /// Power goes and comes back. Nobody else uses the drive meanwhile. `told`: with a new epoch.
    ///
    /// The epoch changes first: should this process be killed half way, what happened so far is a power loss in which the
    /// rest was kept.
    pub(crate) fn lose_power(&self, choose: &mut dyn FnMut(u64) -> u64, told: bool) -> io::Result<()> {
        if told {
            self.state.bump_epoch();
        }
        for zone in self.config.conventional..self.geometry.zones {
            let word = self.state.zone(zone);
            let risk = at_risk(&self.state, zone);
            let kept = if risk > 0 { choose(risk).min(risk) } else { 0 };
            let written = self.state.flushed(zone) + kept;
            let new = cut(&self.config, word, written);
            if new != word {
                self.state.set_zone(zone, new);
            }
            self.state.set_flushed(zone, written);
        }
        self.cut_conventional(choose)?;
        for slot in &self.slots {
            lock(&slot.side).dirty = false;
        }
        lock(&self.dirty).clear();
        self.rebuild();
        Ok(())
    }

    /// Puts together what stands in conventional zones from what stood there before each unflushed write and from what
    /// is chosen to be kept of it.
    fn cut_conventional(&self, choose: &mut dyn FnMut(u64) -> u64) -> io::Result<()> {
        let mut log = lock(&self.pre_images);
        let block = self.config.block as usize;
        let mut overlay: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        // Newest first: what stands at a block now is what this write put there; before it stood the pre-image.
        let mut written = Vec::with_capacity(log.len());
        for i in (0..log.len()).rev() {
            let (at, _) = log.range(i);
            let mut data = Vec::new();
            for (b, before) in log.before(&self.state, i).chunks_exact(block).enumerate() {
                let at = at + (b * block) as u64;
                let now = match overlay.insert(at, before.to_vec()) {
                    Some(now) => now,
                    None => self.read_block(at)?,
                };
                data.push(now);
            }
            written.push((at, data));
        }
        // Oldest first: apply what is kept of each.
        for (at, data) in written.into_iter().rev() {
            let blocks = data.len();
            let kept = kept_blocks(blocks as u64, choose);
            for (b, data) in data.into_iter().enumerate().filter(|(b, _)| kept.contains(&(*b as u64))) {
                overlay.insert(at + (b * block) as u64, data);
            }
        }
        for (at, data) in overlay {
            self.store.write(self.geometry.zone_of(at).0, at % self.geometry.zone_size, &data)?;
        }
        log.clear(&self.state);
        Ok(())
    }

    fn read_block(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut now = vec![0; self.config.block as usize];
        self.store.read(self.geometry.zone_of(at).0, at % self.geometry.zone_size, &mut now)?;
        Ok(now)
    }
}

/// Which blocks of a conventional write are kept.
fn kept_blocks(blocks: u64, choose: &mut dyn FnMut(u64) -> u64) -> std::ops::Range<u64> {
    let all = 2 * blocks - 1;
    match choose(all).min(all) {
        n if n == all => 0..blocks,
        n if n < blocks => 0..n,
        n => blocks - (n - blocks + 1)..blocks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_write_keeps_its_front_or_its_end() {
        let all: Vec<_> = (0..=5).map(|n| kept_blocks(3, &mut |most| if most == 5 { n } else { 99 })).collect();
        assert_eq!(all, [0..0, 0..1, 0..2, 2..3, 1..3, 0..3]);
        assert_eq!([0, 1].map(|n| kept_blocks(1, &mut |_| n)), [0..0, 0..1]);
    }

    #[test]
    fn a_seed_gives_one_sequence_with_both_extremes() {
        let of = |seed| std::iter::repeat_n(9, 100).map(seeded(seed)).collect::<Vec<_>>();
        assert_eq!(of(5), of(5));
        assert_ne!(of(5), of(6));
        assert!(of(5).contains(&0) && of(5).contains(&9) && of(5).contains(&4));
    }
}
