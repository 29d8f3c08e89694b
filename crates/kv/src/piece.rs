//! Pairs in memory that are ingested next: those of a space, in the order of keys.

use crate::cursor::{At, Cursor};
use crate::order::Order;
use crate::space::MARK;
use crate::table::Kind;
use imbrex_device::Result;
use std::ops::Range;

/// The number that changes have inside a table of pairs that were ingested. The table's description has the one that counts.
pub(crate) const INGESTED: u64 = 1;

/// A pair's place: its value ends where the next pair begins.
struct Pair {
    key: usize,
    value: usize,
}

/// See the module.
pub(crate) struct Piece {
    pub space: u16,
    /// Keys of the tree, and values.
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
    /// So many of them have become tables.
    done: usize,
}

impl Piece {
    pub fn new(space: u16) -> Piece {
        Piece { space, bytes: Vec::new(), pairs: Vec::new(), done: 0 }
    }

    /// Adds a pair, whose key is the tree's, behind the last one.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.pairs.push(Pair { key: at, value: at + key.len() });
    }

    /// Pairs that are left.
    pub fn len(&self) -> usize {
        self.pairs.len() - self.done
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it takes, about.
    pub fn memory(&self) -> usize {
        self.bytes.len() + self.pairs.len() * size_of::<Pair>()
    }

    /// Bytes of the pairs that are left.
    pub fn bytes(&self) -> u64 {
        self.bytes_of(self.done..self.pairs.len())
    }

    /// The first key that is left; empty where there is none.
    pub fn first(&self) -> &[u8] {
        self.key(self.done)
    }

    /// Where the pairs before this key end, and bytes of those that are left.
    pub fn before(&self, order: &dyn Order, until: Option<&[u8]>) -> (usize, u64) {
        let left = self.done..self.pairs.len();
        let end =
            until.map_or(left.end, |until| self.partition_point(left.clone(), |key| order.compare(key, until).is_lt()));
        (end, self.bytes_of(left.start..end))
    }

    /// A cursor over the pairs that are left before `end`.
    pub fn cursor<'a>(&'a self, order: &'a dyn Order, end: usize) -> InPiece<'a> {
        InPiece { piece: self, order, range: self.done..end, at: None }
    }

    /// The pairs before `end` are in tables. Returns how many these are, and bytes of their keys and values.
    pub fn forget(&mut self, end: usize) -> (u64, u64) {
        let pairs = (end - self.done) as u64;
        let bytes = self.bytes_of(self.done..end) - pairs * MARK as u64;
        self.done = end;
        if self.is_empty() {
            self.bytes.clear();
            self.pairs.clear();
            self.done = 0;
        }
        (pairs, bytes)
    }

    fn key(&self, at: usize) -> &[u8] {
        self.pairs.get(at).map_or(&[], |pair| &self.bytes[pair.key..pair.value])
    }

    fn begins(&self, at: usize) -> usize {
        self.pairs.get(at).map_or(self.bytes.len(), |pair| pair.key)
    }

    fn bytes_of(&self, pairs: Range<usize>) -> u64 {
        (self.begins(pairs.end) - self.begins(pairs.start)) as u64
    }

    /// The first of these pairs whose key is not `before`.
    fn partition_point(&self, pairs: Range<usize>, before: impl Fn(&[u8]) -> bool) -> usize {
        pairs.start + self.pairs[pairs].partition_point(|pair| before(&self.bytes[pair.key..pair.value]))
    }
}

/// Of the front of a piece.
pub(crate) struct InPiece<'a> {
    piece: &'a Piece,
    order: &'a dyn Order,
    range: Range<usize>,
    at: Option<usize>,
}

impl InPiece<'_> {
    /// The first pair at or behind a place, or the end.
    fn find(&self, to: Option<(&[u8], u64)>) -> usize {
        let Some((key, seq)) = to else { return self.range.start };
        let before = |other: &[u8]| {
            let order = self.order.compare(other, key);
            order.is_lt() || order.is_eq() && seq < INGESTED
        };
        self.piece.partition_point(self.range.clone(), before)
    }

    fn stand(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at.filter(|at| self.range.contains(at));
        Ok(())
    }
}

impl Cursor for InPiece<'_> {
    fn seek(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        self.stand(Some(self.find(to)))
    }

    fn seek_before(&mut self, to: Option<(&[u8], u64)>) -> Result<()> {
        let at = if to.is_some() { self.find(to) } else { self.range.end };
        self.stand(at.checked_sub(1))
    }

    fn next(&mut self) -> Result<()> {
        self.stand(self.at.map(|at| at + 1))
    }

    fn prev(&mut self) -> Result<()> {
        self.stand(self.at.and_then(|at| at.checked_sub(1)))
    }

    fn at(&self) -> Option<At<'_>> {
        let at = self.at?;
        let value = &self.piece.bytes[self.piece.pairs[at].value..self.piece.begins(at + 1)];
        Some(At { key: self.piece.key(at), seq: INGESTED, kind: Kind::Put, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Bytewise;

    #[test]
    fn a_cursor_stands_on_what_is_left_before_an_end() {
        let mut piece = Piece::new(0);
        for key in ["..a", "..b", "..d", "..e", "..f"] {
            piece.push(key.as_bytes(), &key.as_bytes()[2..]);
        }
        assert_eq!((piece.len(), piece.bytes(), piece.first()), (5, 20, &b"..a"[..]));
        assert_eq!(piece.before(&Bytewise, Some(b"..d")), (2, 8));
        assert_eq!(piece.before(&Bytewise, None), (5, 20));
        // Bytes of users' keys and values.
        assert_eq!(piece.forget(1), (1, 2));
        let mut cursor = piece.cursor(&Bytewise, 4);
        let mut at = |go: &dyn Fn(&mut InPiece<'_>) -> Result<()>| {
            go(&mut cursor).unwrap();
            cursor.at().map(|at| (at.key.to_vec(), at.value.to_vec()))
        };
        let pair = |name: &str| Some((format!("..{name}").into_bytes(), name.as_bytes().to_vec()));
        assert_eq!(at(&|cursor| cursor.seek(None)), pair("b"));
        assert_eq!(at(&|cursor| cursor.prev()), None);
        assert_eq!(at(&|cursor| cursor.seek(Some((b"..c", 9)))), pair("d"));
        assert_eq!(at(&|cursor| cursor.next()), pair("e"));
        assert_eq!(at(&|cursor| cursor.next()), None);
        assert_eq!(at(&|cursor| cursor.seek(Some((b"..d", 1)))), pair("d"));
        assert_eq!(at(&|cursor| cursor.seek(Some((b"..d", 0)))), pair("e"));
        assert_eq!(at(&|cursor| cursor.seek_before(Some((b"..d", 0)))), pair("d"));
        assert_eq!(at(&|cursor| cursor.seek_before(Some((b"..d", 1)))), pair("b"));
        assert_eq!(at(&|cursor| cursor.seek_before(None)), pair("e"));
        assert_eq!(piece.forget(5), (4, 8));
        assert!(piece.is_empty() && piece.first().is_empty() && piece.memory() == 0);
    }
}
