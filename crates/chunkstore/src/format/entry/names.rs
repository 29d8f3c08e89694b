//! How names of chunks stand in the journal and in checkpoints.
//!
//! A naming says which chunks a name stands for from then on, all of them, so replaying one is enough to replace, or to rename. It carries a
//! number; of two namings of a name, or of a chunk, the one with the higher number counts.

use super::Input;
use crate::format::id::ChunkId;
use std::sync::Arc;

/// Most bytes of a name.
pub const MOST_BYTES: usize = 1023;
/// Bytes of an entry without its name and its chunks.
const HEAD: usize = 16;
const MEMBER: usize = 32;

/// A chunk that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: ChunkId,
    /// Its serial number: a later chunk of this id is another one.
    pub serial: u64,
}

/// A name, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEntry {
    /// The name, which [`check`] takes.
    pub name: Arc<str>,
    /// Number of the naming; they ascend.
    pub number: u64,
    /// The chunks, in order, at least one.
    pub members: Vec<Member>,
}

/// Why a name cannot be one; `None`: it can. Names are relative paths, so that whoever writes them to a directory stays in it.
pub fn check(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.len() > MOST_BYTES {
        return Some("it has more than 1023 bytes");
    }
    if name.chars().any(char::is_control) {
        return Some("it has a control character");
    }
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Some("it is not a plain relative path: parts between slashes are neither empty nor \".\" nor \"..\"");
    }
    if name.parse::<ChunkId>().is_ok() {
        return Some("48 hexadecimal digits are an id");
    }
    None
}

/// Bytes of a text that is padded to a multiple of 8.
fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.resize(out.len() + padded(text.len()) - text.len(), 0);
}

impl<'a> Input<'a> {
    /// A name of so many bytes, which must be one, and the zeros behind it.
    pub(super) fn name(&mut self, len: u16) -> Option<Arc<str>> {
        let len = usize::from(len);
        let (text, zeros) = self.take(padded(len))?.split_at_checked(len)?;
        let name = std::str::from_utf8(text).ok()?;
        (check(name).is_none() && zeros.iter().all(|byte| *byte == 0)).then(|| name.into())
    }
}

impl NameEntry {
    /// Bytes in a checkpoint of a name of so many bytes that stands for so many chunks.
    pub fn bytes(name: usize, members: usize) -> usize {
        HEAD + MEMBER * members + padded(name)
    }

    /// Appends it to a payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&(self.members.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        for member in &self.members {
            out.extend_from_slice(&member.serial.to_le_bytes());
            out.extend_from_slice(&member.id.0);
        }
        put_text(out, &self.name);
    }

    pub(super) fn decode(input: &mut Input) -> Option<NameEntry> {
        let (number, count) = (input.long()?, input.word()? as usize);
        let (len, zero) = (input.half()?, input.half()?);
        if zero != 0 || count == 0 || count > input.0.len() / MEMBER {
            return None;
        }
        let member = |input: &mut Input| Some(Member { serial: input.long()?, id: input.id()? });
        let members = (0..count).map(|_| member(input)).collect::<Option<_>>()?;
        Some(NameEntry { name: input.name(len)?, number, members })
    }

    pub(super) fn decode_all(input: &mut Input, count: usize) -> Option<Vec<NameEntry>> {
        let count = (count <= input.0.len() / (HEAD + MEMBER)).then_some(count)?;
        (0..count).map(|_| NameEntry::decode(input)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_paths() {
        for good in ["a", "photos/2026/märz 1.jpg", "..a", "a..", "...", "-rf", "ab12", &"x".repeat(1023)] {
            assert_eq!(check(good), None, "{good}");
        }
        let id = ChunkId::of_number(7).to_string();
        let long = "x".repeat(1024);
        for bad in ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\nb", "\u{1b}[2J", "a\0", &id, &long] {
            assert!(check(bad).is_some(), "{bad:?}");
        }
    }
}
