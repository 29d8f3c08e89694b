//! Looking up of decoded records: in the layers of the state, in the [cache](crate::cached), in the key-value store.

use crate::blob::BLOCK;
use crate::cached::Kept;
use crate::core::Core;
use crate::id::CollectionId;
use crate::keyvalue::Family;
use crate::onode::{Onode, SPAN, span_key};
use crate::transaction::{Act, Step};
use imbrex_device::Result;
use std::sync::Arc;

/// So many records that are wanted together are read in one pass. A pass begins with a way of a disk's head for each run of the key-value store; of a few records that are asked for one by one, each
/// finds its block in memory after the first.
const TOGETHER: usize = 32;
/// Spans of a write that are looked up ahead: what is longer takes the drive longer than looking them up.
const SPANS: usize = 16;
/// Records of a page of such a pass at most.
const PAGE: usize = 1024;

impl Core {
    fn decoded<T: Kept>(&self, key: &[u8], bytes: &[u8]) -> Result<T> {
        T::decode(key, bytes).ok_or_else(|| self.corrupt(T::name(key)))
    }

    /// What a layer of the state says of a key.
    fn in_layers(&self, family: Family, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let state = self.state();
        let value = state.current.get(family, key).or_else(|| state.committing.get(family, key));
        value.map(|value| value.cloned())
    }

    /// What is in memory of a key.
    fn in_memory<T: Kept>(&self, key: &[u8]) -> Result<Option<Option<T>>> {
        match self.in_layers(T::FAMILY, key) {
            Some(value) => value.map(|bytes| self.decoded(key, &bytes)).transpose().map(Some),
            None => Ok(self.cache.get(key)),
        }
    }

    /// A record, for who reads it; `None`: there is none.
    ///
    /// # Errors
    /// `Corrupt` where it makes no sense; those of the key-value store.
    pub fn look_up<T: Kept>(&self, key: &[u8]) -> Result<Option<T>> {
        let moment = self.cache.moment();
        if let Some(found) = self.in_memory(key)? {
            return Ok(found);
        }
        let found = self.in_kv(key)?;
        self.cache.put(moment, key, found.as_ref());
        Ok(found)
    }

    /// The same, for who is about to change it, or passes over many: the cache does not take it.
    ///
    /// # Errors
    /// As [`Core::look_up`].
    pub fn look_up_once<T: Kept>(&self, key: &[u8]) -> Result<Option<T>> {
        if let Some(found) = self.in_memory(key)? { Ok(found) } else { self.in_kv(key) }
    }

    fn in_kv<T: Kept>(&self, key: &[u8]) -> Result<Option<T>> {
        let found = self.kv.get(T::FAMILY, key)?;
        found.map(|bytes| self.decoded(key, &bytes)).transpose()
    }

    /// Has the cache of the key-value store read what a transaction is going to look up. Transactions are prepared one at a time: so they wait for the drive side by side, and do not queue for it.
    /// What cannot be read fails when it is looked up.
    pub fn read_ahead_of(&self, steps: &[(CollectionId, Step)]) {
        if !self.options.attended || self.options.cache == 0 {
            return;
        }
        for (object, act) in steps.iter().filter_map(|(_, step)| match step {
            Step::Object { object, act } => Some((object.key(), act)),
            _ => None,
        }) {
            let (offset, len) = match act {
                Act::Write { offset, bytes } => (*offset, bytes.len() as u64),
                Act::Zero { offset, len } => (*offset, *len),
                _ => (0, 0),
            };
            let end = offset.saturating_add(len).div_ceil(BLOCK).div_ceil(SPAN);
            // The object's own record has the first span.
            let spans = (offset / BLOCK / SPAN).max(1)..end;
            if !spans.is_empty()
                && let Ok(Some(onode)) = self.look_up_once::<Arc<Onode>>(&object)
            {
                spans.take(SPANS).for_each(|span| self.warm(Family::Extents, &span_key(onode.number, span)));
            } else {
                self.warm(Family::Onodes, &object);
            }
        }
    }

    fn warm(&self, family: Family, key: &[u8]) {
        if self.would_read(family, key) {
            _ = self.kv.get(family, key);
        }
    }

    /// [`Core::look_up`] of several, whose keys are in order. Where many have to be read and stand side by side, they are read in one pass.
    ///
    /// # Errors
    /// As [`Core::look_up`].
    pub fn look_up_all<T: Kept>(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<T>>> {
        if let [key] = keys {
            return Ok(vec![self.look_up(key)?]);
        }
        let moment = self.cache.moment();
        let (mut all, mut missing) = (vec![None; keys.len()], Vec::new());
        for (n, key) in keys.iter().enumerate() {
            match self.in_memory(key)? {
                Some(found) => all[n] = found,
                None => missing.push(n),
            }
        }
        let mut rest = &missing[..];
        let mut pays = true;
        while let Some((first, last)) = rest.first().zip(rest.last()) {
            if !pays || rest.len() < TOGETHER {
                for n in rest {
                    let found = self.in_kv(&keys[*n])?;
                    self.cache.put(moment, &keys[*n], found.as_ref());
                    all[*n] = found;
                }
                break;
            }
            let end = [&keys[*last][..], &[0]].concat();
            let most = (2 * rest.len()).min(PAGE);
            let Ok((pairs, next)) = self.pairs(T::FAMILY, &keys[*first], Some(&end), most, None) else {
                // One at a time, so that what cannot be read fails for nobody else.
                pays = false;
                continue;
            };
            let known = next.map_or(rest.len(), |next| rest.partition_point(|n| keys[*n] < next));
            let mut pairs = pairs.iter().peekable();
            let mut wanted = 0;
            for n in &rest[..known] {
                while pairs.next_if(|(key, _)| *key < keys[*n]).is_some() {}
                let value = pairs.next_if(|(key, _)| *key == keys[*n]);
                let found = value.map(|(key, bytes)| self.decoded::<T>(key, bytes)).transpose()?;
                self.cache.put(moment, &keys[*n], found.as_ref());
                wanted += usize::from(found.is_some());
                all[*n] = found;
            }
            rest = &rest[known..];
            // Most of what was read is of use.
            pays = 4 * wanted >= most;
        }
        Ok(all)
    }
}
