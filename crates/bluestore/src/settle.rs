//! When a store in place packs what is deferred: once it is known, and durable, that the blocks which were overwritten are dead. [`Phase`](crate::home::Phase) decides, and others do what it asks for: whoever
//! queues makes counts, whoever waits for a commit syncs it, and each commit packs a part.

use crate::blob::BLOCK;
use crate::core::{Core, State};
use crate::home::{Must, Now, Phase};
use crate::recount::FIRST;
use imbrex_device::Result;

/// One commit packs no less than this, in bytes, and no less than a part of what is deferred: so writers do not wait for all of it, and it becomes less however fast they are.
const STEP: u64 = 1 << 20;
const PART: u64 = 8;

impl Core {
    /// Goes on with packing as far as nothing has to be waited for. Counts are made from here on, if they have to be.
    pub fn advance(&self, state: &mut State) -> Must {
        let Some(space) = state.space.as_ref().filter(|_| self.goes_home()) else { return Must::Nothing };
        let more = (state.sums.deferred.max(0) as u64).saturating_sub(state.unpackable);
        let now = Now {
            due: more > 0 && more * BLOCK >= self.options.pack_from,
            waiting: state.counts.len() as u64,
            stored: space.used(),
            counting: state.counts.sweep.is_some(),
            group: state.group,
            durable: state.durable,
        };
        let (phase, must) = state.homes.phase.next(&now);
        state.homes.phase = phase;
        if must == Must::Count {
            state.counts.sweep = Some(FIRST);
        }
        must
    }

    /// Makes durable what packing waits for, if it does.
    ///
    /// # Errors
    /// As [`Core::keep`].
    pub fn settle(&self) -> Result<()> {
        // Each commit of any store asks.
        if !self.goes_home() {
            return Ok(());
        }
        let must = self.advance(&mut self.state());
        if let Must::Sync(group) = must { self.commit_quietly(group) } else { Ok(()) }
    }

    /// Bytes that a commit packs, and the last group whose they are, in a store in place; `None`: it packs none.
    pub fn packs_in_place(&self, state: &mut State) -> Option<(u64, u64)> {
        self.advance(state);
        let Phase::Packs { last } = state.homes.phase else { return None };
        Some((last, (state.sums.deferred.max(0) as u64 * BLOCK / PART).max(STEP)))
    }

    /// A commit has packed what it could.
    pub fn packed_in_place(&self, state: &mut State) {
        if let Phase::Packs { last } = state.homes.phase
            && (state.unpackable > 0 || !state.deferred.has_before(last + 1))
        {
            state.homes.phase = Phase::Gathers;
            // What they have deferred is packed, or was overwritten.
            if !state.deferred.has_before(last + 1) {
                state.homes.forget(last + 1);
            }
        }
    }
}
