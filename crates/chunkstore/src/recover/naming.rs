//! Names, when the store is opened.

use super::replay::Rebuilt;
use crate::core::report::OpenReport;
use crate::format::entry::{Entry, Part};
use crate::format::id::ChunkId;

impl Rebuilt {
    /// A name's chunks are durable before the name is, so all of them are there, unless metadata is lost: then the name is given up, and told.
    pub(super) fn check_names(&mut self, report: &mut OpenReport) {
        let chunks = &self.chunks;
        let gone = self.names.retain(|member| chunks.get(&member.id).is_some_and(|c| c.serial == member.serial));
        self.changed |= !gone.is_empty();
        for entry in gone {
            let ids = entry.members.iter().map(|member| member.id);
            let (there, lost): (Vec<ChunkId>, Vec<ChunkId>) = ids.partition(|id| self.chunks.contains_key(id));
            let list = |ids: Vec<ChunkId>| ids.iter().map(ToString::to_string).collect::<Vec<String>>().join(" ");
            let rest = if there.is_empty() { String::new() } else { format!(" Without a name now: {}.", list(there)) };
            let (name, lost) = (&entry.name, list(lost));
            report
                .damage
                .push(format!("The name {name:?} is given up, since of its chunks these are lost: {lost}.{rest}"));
        }
    }

    /// Of a salvage: namings that any piece of a checkpoint has, and what is left of the journal. One that had ended without a trace left of
    /// that may be back, as deleted chunks may.
    pub(super) fn salvage_names(&mut self, parts: &[Vec<u8>], journal: &[Entry]) {
        let named = parts.iter().filter_map(|payload| Part::decode_names(payload)).flatten();
        named.for_each(|entry| self.names.apply(entry));
        for entry in journal {
            match entry {
                Entry::Named(entry) => self.names.apply(entry.clone()),
                Entry::Unnamed { name, number } => self.names.end(name, *number),
                Entry::Delete { id, serial } => self.names.forget(*id, *serial),
                _ => {}
            }
        }
    }
}
