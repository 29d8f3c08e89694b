//! The table of names, in memory: a name stands for chunks, in order; a chunk has one name at most.
//!
//! Invariants: what stands in one of the two maps stands in the other; of two namings of one name or of one chunk the one with the higher number
//! counts, in whatever order they come, so a journal may be replayed over what a checkpoint knows already.

use crate::format::entry::names::{Member, NameEntry};
use crate::format::id::ChunkId;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

#[derive(Debug)]
struct Naming {
    number: u64,
    members: Box<[Member]>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Names {
    names: BTreeMap<Arc<str>, Naming>,
    /// The name of each chunk that has one, and its place among those that the name stands for.
    chunks: HashMap<ChunkId, (Arc<str>, u32)>,
    bytes: u64,
}

impl Names {
    /// How many names there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Bytes that they take in a checkpoint.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A naming. What the name stood for, and names that its chunks had, are gone; where a later naming is known, it has only that effect.
    pub fn apply(&mut self, entry: NameEntry) {
        let number = |naming: Option<&Naming>| naming.map_or(0, |naming| naming.number);
        let names = entry.members.iter().filter_map(|member| self.chunks.get(&member.id)).map(|(name, _)| name);
        let before: Vec<Arc<str>> = names.chain([&entry.name]).cloned().collect();
        let (older, newer): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|name| number(self.names.get(name)) < entry.number);
        older.iter().for_each(|name| self.remove(name));
        if !newer.is_empty() {
            // Which had taken the name, or a chunk, away since.
            return;
        }
        for (place, member) in entry.members.iter().enumerate() {
            self.chunks.insert(member.id, (entry.name.clone(), place as u32));
        }
        self.bytes += NameEntry::bytes(entry.name.len(), entry.members.len()) as u64;
        self.names.insert(entry.name, Naming { number: entry.number, members: entry.members.into() });
    }

    /// The highest number of a naming.
    pub fn newest(&self) -> u64 {
        self.names.values().map(|naming| naming.number).max().unwrap_or(0)
    }

    /// The naming of this number ends, if the name has not got another one.
    pub fn end(&mut self, name: &str, number: u64) {
        if self.names.get(name).is_some_and(|naming| naming.number == number) {
            self.remove(name);
        }
    }

    /// The chunk is gone, and with it the name that stood for it.
    pub fn forget(&mut self, id: ChunkId, serial: u64) {
        let Some((name, place)) = self.chunks.get(&id) else { return };
        let member = self.names.get(name).and_then(|naming| naming.members.get(*place as usize));
        if member.is_some_and(|member| member.serial == serial) {
            let name = name.clone();
            self.remove(&name);
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(naming) = self.names.remove(name) else { return };
        for member in &naming.members {
            self.chunks.remove(&member.id);
        }
        self.bytes -= NameEntry::bytes(name.len(), naming.members.len()) as u64;
    }

    /// What a name stands for.
    pub fn get(&self, name: &str) -> Option<&[Member]> {
        self.names.get(name).map(|naming| &*naming.members)
    }

    /// A name as it stands in the journal.
    pub fn entry(&self, name: &str) -> Option<NameEntry> {
        let (name, naming) = self.names.get_key_value(name)?;
        Some(NameEntry { name: name.clone(), number: naming.number, members: naming.members.to_vec() })
    }

    /// The name of a chunk, its place among those that the name stands for, and how many these are.
    pub fn of(&self, id: ChunkId) -> Option<(&Arc<str>, u32, u32)> {
        let (name, place) = self.chunks.get(&id)?;
        Some((name, *place, self.get(name)?.len() as u32))
    }

    /// Names behind `after`, by name, from the first where that is none.
    pub fn range<'a>(&'a self, after: Option<&str>) -> impl Iterator<Item = (&'a Arc<str>, &'a [Member])> + use<'a> {
        self.range_from(after.unwrap_or_default(), after.is_some())
    }

    /// Names from this one on, or, `behind` it, those after it.
    pub fn range_from<'a>(
        &'a self,
        from: &str,
        behind: bool,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a [Member])> + use<'a> {
        let from = if behind { Bound::Excluded(from) } else { Bound::Included(from) };
        self.names.range::<str, _>((from, Bound::Unbounded)).map(|(name, naming)| (name, &*naming.members))
    }

    /// Removes the names of which this chunk is one that is not there; returns them.
    pub fn retain(&mut self, is_there: impl Fn(&Member) -> bool) -> Vec<NameEntry> {
        let broken = |(_, naming): &(&Arc<str>, &Naming)| !naming.members.iter().all(&is_there);
        let names: Vec<Arc<str>> = self.names.iter().filter(broken).map(|(name, _)| name.clone()).collect();
        let gone = names.iter().filter_map(|name| self.entry(name)).collect();
        names.iter().for_each(|name| self.remove(name));
        gone
    }

    /// What is wrong with the table itself, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let listed: usize = self.names.values().map(|naming| naming.members.len()).sum();
        if listed != self.chunks.len() {
            problems.push(format!("Names stand for {listed} chunks, and {} have one.", self.chunks.len()));
        }
        for (name, naming) in &self.names {
            let has = |(place, member): (usize, &Member)| {
                self.chunks.get(&member.id).is_some_and(|(other, at)| other == name && *at as usize == place)
            };
            if !naming.members.iter().enumerate().all(has) {
                problems.push(format!("The chunks of the name {name:?} do not have it."));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests;
