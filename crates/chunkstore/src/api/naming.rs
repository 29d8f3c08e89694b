//! Names for chunks: what makes a naming durable, and how names are looked up.
//!
//! A name is as durable as what it stands for: the chunks' bytes are made durable before the naming is written, so after a crash whoever
//! finds the name finds all that the chunks held then. One entry of the journal says it all, so a naming, a renaming or a replacement is there or not.

use crate::api::store::ChunkStore;
use crate::core::{Core, State};
use crate::error::{Error, Result};
use crate::format::entry::Entry;
use crate::format::entry::names::{self, Member, NameEntry};
use crate::format::id::ChunkId;
use crate::index::names::Names;
use std::collections::HashSet;
use std::sync::Arc;

/// A name and its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: Arc<str>,
    /// How many chunks it stands for.
    pub chunks: u32,
    /// Their bytes.
    pub len: u64,
    /// All of them take no more appends.
    pub sealed: bool,
}

/// The name that a chunk has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameOf {
    /// The name.
    pub name: Arc<str>,
    /// The chunk's place among those that the name stands for, from 0.
    pub place: u32,
    /// How many these are.
    pub chunks: u32,
}

impl State {
    /// Changes names, and what a checkpoint of them takes.
    pub(crate) fn change_names(&mut self, change: impl FnOnce(&mut Names)) {
        let before = self.names.bytes();
        change(&mut self.names);
        self.work.index_changed(before, self.names.bytes());
    }

    /// The chunks of a naming, which are all there.
    fn members(&self, chunks: &[ChunkId]) -> Result<Vec<Member>> {
        let member = |id: &ChunkId| {
            let chunk = self.index.find(id).and_then(|slot| self.index.chunk(slot)).ok_or(Error::NotFound(*id))?;
            Ok(Member { id: *id, serial: chunk.serial })
        };
        chunks.iter().map(member).collect()
    }

    /// Chunks that lose their name to a naming, and are gone with it.
    fn replaced(&self, name: &str, members: &[Member]) -> Vec<ChunkId> {
        let old = self.names.get(name).unwrap_or_default().iter();
        let stay: HashSet<ChunkId> = members.iter().map(|member| member.id).collect();
        old.map(|member| member.id).filter(|id| !stay.contains(id)).collect()
    }
}

impl Core {
    /// The most chunks of a name: so that a naming, and the deletion of what it replaces, are a few journal records.
    fn most_members(&self, name: &str) -> usize {
        (self.limits.journal_payload.saturating_sub(NameEntry::bytes(name.len(), 0)) / NameEntry::bytes(0, 1)).max(1)
    }

    fn check_naming(&self, state: &State, name: &str, chunks: &[ChunkId], replace: bool) -> Result<Vec<Member>> {
        if let Some(why) = names::check(name) {
            return Err(Error::BadName { name: name.into(), why });
        }
        let distinct: HashSet<&ChunkId> = chunks.iter().collect();
        if chunks.is_empty() || distinct.len() < chunks.len() {
            return Err(Error::NameForNothing(name.into()));
        }
        let most = self.most_members(name);
        if chunks.len() > most {
            return Err(Error::NameForTooMany { name: name.into(), chunks: chunks.len(), most });
        }
        if !replace && state.names.get(name).is_some_and(|members| members.iter().any(|m| !distinct.contains(&m.id))) {
            return Err(Error::NameTaken(name.into()));
        }
        let had = chunks.iter().filter_map(|id| state.names.of(*id)).map(|(name, ..)| name);
        for other in had.filter(|other| ***other != *name) {
            let mut members = state.names.get(other).unwrap_or_default().iter();
            if let Some(left) = members.find(|member| !distinct.contains(&member.id)) {
                return Err(Error::NameSplit { id: left.id, name: other.to_string() });
            }
        }
        state.members(chunks)
    }

    /// Names chunks; where something is wrong with any of them, none.
    pub(crate) fn name(&self, wanted: &[(&str, &[ChunkId])], replace: bool) -> Result<()> {
        let durable = {
            let state = self.state();
            let mut all = HashSet::new();
            for (name, chunks) in wanted {
                self.check_naming(&state, name, chunks, replace)?;
                if !all.insert(*name) {
                    return Err(Error::NameTaken((*name).into()));
                }
            }
            let more = wanted.iter().map(|(name, chunks)| NameEntry::bytes(name.len(), chunks.len()) as u64);
            self.check_index_for(&state, more.sum())?;
            state.decisions.last()
        };
        let stranded = |state: &State, id: &ChunkId| {
            let slot = state.index.find(id);
            slot.and_then(|slot| Some((slot, state.index.chunk(slot)?)))
                .is_some_and(|(slot, chunk)| state.strands(slot, chunk.serial, chunk.len))
        };
        let chunks = || wanted.iter().flat_map(|(_, chunks)| chunks.iter());
        self.commit_bytes(durable, |state| chunks().any(|id| stranded(state, id)))?;
        let mut rest = wanted;
        while !rest.is_empty() {
            let (done, target) = self.name_some(rest, replace)?;
            self.commit(target)?;
            rest = &rest[done..];
        }
        Ok(())
    }

    /// Names as many as one journal record holds. How many these were, and the number of the last.
    fn name_some(&self, wanted: &[(&str, &[ChunkId])], replace: bool) -> Result<(usize, u64)> {
        let mut state = self.state();
        for (done, (name, chunks)) in wanted.iter().enumerate() {
            let members = self.check_naming(&state, name, chunks, replace)?;
            let replaced = state.replaced(name, &members);
            let bytes = NameEntry::bytes(name.len(), members.len()) + NameEntry::bytes(0, replaced.len());
            if !state.decisions.has_room_for_names(bytes, self.limits.journal_payload) {
                // What others have named waits for its turn, too: the journal never outgrows the room that is kept for it.
                return Ok((done, state.decisions.last()));
            }
            state.decisions.name(bytes);
            let entry = NameEntry { name: (*name).into(), number: self.next_number(), members };
            state.change_names(|names| names.apply(entry.clone()));
            state.decisions.tell(Entry::Named(entry));
            state.assign();
            for id in replaced {
                state.delete(id);
            }
        }
        Ok((wanted.len(), state.decisions.last()))
    }

    pub(crate) fn unname(&self, name: &str) -> Result<()> {
        let mut state = self.state();
        let entry = state.names.entry(name).ok_or_else(|| Error::NoSuchName(name.into()))?;
        state.change_names(|names| names.end(name, entry.number));
        state.decisions.tell(Entry::Unnamed { name: entry.name, number: entry.number });
        let target = state.assign();
        drop(state);
        self.commit(target)
    }

    /// What is wrong with names: what they stand for must be there.
    pub(crate) fn check_names(&self) -> Vec<String> {
        let state = self.state();
        let mut problems = state.names.problems();
        for (name, members) in state.names.range(None) {
            for Member { id, serial } in members {
                let chunk = state.index.find(id).and_then(|slot| state.index.chunk(slot));
                if chunk.is_none_or(|chunk| chunk.serial != *serial) {
                    problems.push(format!("The name {name:?} stands for chunk {id}, which is not there."));
                }
            }
        }
        problems
    }
}

fn named(state: &State, name: &Arc<str>, members: &[Member]) -> Named {
    let chunks = members.iter().filter_map(|m| state.index.find(&m.id).and_then(|slot| state.index.chunk(slot)));
    let (mut len, mut sealed) = (0, true);
    for chunk in chunks {
        len += u64::from(chunk.len);
        sealed &= chunk.sealed;
    }
    Named { name: name.clone(), chunks: members.len() as u32, len, sealed }
}

impl ChunkStore {
    /// Names chunks, durably: a name stands for one chunk or for several in order, as for a file that is longer than a chunk may be. It is there after a
    /// crash as a whole or not at all, with all that the chunks held when this was called. A name that a chunk had before is gone. Where others
    /// have one of these names that is an error, or, with `replace`, they are deleted with the naming, durably.
    ///
    /// Of several names each is there or not after a crash.
    ///
    /// ```
    /// # use imbrex_chunkstore::{ChunkId, ChunkStore, FormatOptions, Options, StreamType};
    /// # let emulator = imbrex_emulator::Emulator::memory(&imbrex_emulator::Config::tiny())?;
    /// # let drive = imbrex_device::Drive { device: std::sync::Arc::new(emulator), survivor: None };
    /// # ChunkStore::format(&drive, &FormatOptions::default())?;
    /// # let store = ChunkStore::open(drive, Options::default())?;
    /// let id = ChunkId::random();
    /// store.create(id, StreamType::DATA)?;
    /// store.append(id, b"bytes")?;
    /// store.name(&[("photos/1.jpg", &[id])], false)?;
    /// assert_eq!(store.named("photos/1.jpg")?, [id]);
    /// assert_eq!(store.name_of(id).map(|of| of.name), Some("photos/1.jpg".into()));
    /// store.delete(id)?;
    /// assert!(store.named("photos/1.jpg").is_err());
    /// # Ok::<(), imbrex_chunkstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::NameForNothing`], [`Error::NameForTooMany`], [`Error::NotFound`], [`Error::NameTaken`], [`Error::IndexFull`]: nothing is
    /// named; [`Error::Drive`].
    pub fn name(&self, names: &[(&str, &[ChunkId])], replace: bool) -> Result<()> {
        self.core.name(names, replace)
    }

    /// The chunks of a name have none any more, durably.
    ///
    /// # Errors
    /// [`Error::NoSuchName`], [`Error::Drive`].
    pub fn unname(&self, name: &str) -> Result<()> {
        self.core.unname(name)
    }

    /// The chunks that a name stands for, in order.
    ///
    /// # Errors
    /// [`Error::NoSuchName`].
    pub fn named(&self, name: &str) -> Result<Vec<ChunkId>> {
        let state = self.core.state();
        let members = state.names.get(name).ok_or_else(|| Error::NoSuchName(name.into()))?;
        Ok(members.iter().map(|member| member.id).collect())
    }

    /// The name of a chunk, if it has one.
    pub fn name_of(&self, id: ChunkId) -> Option<NameOf> {
        let state = self.core.state();
        state.names.of(id).map(|(name, place, chunks)| NameOf { name: name.clone(), place, chunks })
    }

    /// The next `most` names behind `after` that begin with `prefix`, by name, from the first where there is no `after`.
    pub fn names(&self, after: Option<&str>, prefix: &str, most: usize) -> Vec<Named> {
        let state = self.core.state();
        // Names that begin with it stand side by side, none before the prefix itself.
        let found = state.names.range_from(after.unwrap_or_default().max(prefix), after.is_some_and(|a| a >= prefix));
        let found = found.take_while(|(name, _)| name.starts_with(prefix)).take(most);
        found.map(|(name, members)| named(&state, name, members)).collect()
    }
}
