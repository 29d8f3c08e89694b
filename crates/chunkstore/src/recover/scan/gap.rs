//! What lies between two whole records of a zone, explained. Pure: it is told of each block what can be seen there.
//!
//! Records follow each other without gaps, so whatever lies between two whole ones is one of three things:
//!
//! - a record that was complete once. Its header is known, from its first block or from the end of its last one, and no other record begins inside it. Some
//!   of its bytes are not what was written; all others can be read;
//! - the front of a record whose write was cut, so that nobody was told that it is there. Whatever was written to the zone afterwards begins inside
//!   of what its header says it takes, or the zone ends there;
//! - a hole: what cannot be read, or makes no sense, and may have been any record.

use crate::format::{Header, second_header, second_header_at};

/// A block that no whole record begins with.
pub(super) struct Block {
    /// The header that it begins with.
    head: Option<Header>,
    /// The header that it ends with: it is the last one of that record.
    tail: Option<Header>,
    unreadable: bool,
    /// Nothing was written there.
    blank: bool,
}

impl Block {
    /// Block `at` of a zone in this life. `head`: the header that it begins with.
    pub(super) fn new(bytes: &[u8], life: u64, at: u32, head: Option<Header>, unreadable: bool) -> Block {
        let tail = second_header(bytes, life, at);
        Block { head, tail, unreadable, blank: !unreadable && bytes.iter().all(|byte| *byte == 0) }
    }
}

/// A part of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A record that was complete.
    Damaged(Header),
    /// From one block up to another.
    Hole(u32, u32),
}

/// See the module.
pub(super) struct Gap {
    from: u32,
    blocks: Vec<Block>,
}

impl Gap {
    pub(super) fn new(from: u32) -> Gap {
        Gap { from, blocks: Vec::new() }
    }

    /// The next block belongs to it.
    pub(super) fn pass(&mut self, block: Block) {
        self.blocks.push(block);
    }

    fn block(&self, at: u32) -> Option<&Block> {
        self.blocks.get(at.checked_sub(self.from)? as usize)
    }

    /// Where records of the gap begin, with their headers.
    fn headers(&self) -> Vec<Header> {
        let mut headers: Vec<Header> = Vec::new();
        for block in &self.blocks {
            headers.extend(block.head);
            headers.extend(block.tail.filter(|tail| tail.at >= self.from));
        }
        headers.sort_by_key(|header| header.at);
        headers.dedup_by_key(|header| header.at);
        headers
    }

    /// Whether all of the record was written. `next`: where the next one begins.
    fn was_complete(&self, header: &Header, next: u32) -> bool {
        let end = header.at + header.blocks();
        let last = end.checked_sub(1).and_then(|at| self.block(at));
        let closes = |block: &Block| {
            block.unreadable || block.tail == Some(*header) || second_header_at(header.length as usize).is_none()
        };
        end <= next && last.is_some_and(closes)
    }

    /// In order. The gap ends before block `to`, where the next whole record begins, or the zone's end is.
    pub(super) fn explain(self, to: u32) -> Vec<Piece> {
        let headers = self.headers();
        let mut pieces = Vec::new();
        let mut at = self.from;
        for (i, header) in headers.iter().enumerate() {
            // Inside of the one before: that had never been complete.
            let next = headers.get(i + 1).map_or(to, |next| next.at);
            self.hole(at, header.at, &mut pieces);
            at = next.min(header.at.saturating_add(header.blocks()));
            match self.was_complete(header, next) {
                true => pieces.push(Piece::Damaged(*header)),
                // Of its front, too, something may have been another record: one that followed and cannot be read.
                false => self.lost_in(header.at, at, &mut pieces),
            }
        }
        self.hole(at, to, &mut pieces);
        pieces
    }

    /// Blocks that no header speaks of are a hole, unless nothing was written there.
    fn hole(&self, from: u32, to: u32, pieces: &mut Vec<Piece>) {
        if (from..to).any(|at| self.block(at).is_some_and(|block| !block.blank)) {
            pieces.push(Piece::Hole(from, to));
        }
    }

    /// Of the front of a record that was never complete, what cannot be read.
    fn lost_in(&self, from: u32, to: u32, pieces: &mut Vec<Piece>) {
        if let Some(first) = (from..to).find(|at| self.block(*at).is_some_and(|block| block.unreadable)) {
            pieces.push(Piece::Hole(first, to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::id::ChunkId;
    use crate::format::{BLOCK, HEADER, data_length, put_data, seal_data};

    const LIFE: u64 = 5;

    /// A data record at this block.
    fn record(at: u32, data: u32) -> (Header, Vec<u8>) {
        let blocks = data_length(data as usize).unwrap().div_ceil(BLOCK);
        let mut image = vec![0; blocks * BLOCK];
        let id = ChunkId::of_number(u64::from(at));
        put_data(&mut image, id, &vec![7; data as usize]);
        let of = Header::of_append(u64::from(at));
        let header = seal_data(&mut image, Header { life: LIFE, at, data, chunk: id, ..of });
        (header, image)
    }

    /// What is said of these bytes from block 10 on, of which some cannot be read.
    fn explained(bytes: &[u8], bad: &[u32]) -> Vec<Piece> {
        let mut gap = Gap::new(10);
        for (i, block) in bytes.chunks(BLOCK).enumerate() {
            let at = 10 + i as u32;
            let block = if bad.contains(&at) { vec![0; BLOCK] } else { block.to_vec() };
            let head = Header::decode(&block, LIFE, at).ok();
            gap.pass(Block::new(&block, LIFE, at, head, bad.contains(&at)));
        }
        gap.explain(10 + (bytes.len() / BLOCK) as u32)
    }

    #[test]
    fn a_record_with_a_bad_block_is_known_whichever_it_is() {
        for data in [1, 3900, 5000, 40_000] {
            let (header, image) = record(10, data);
            for bad in 10..10 + header.blocks() {
                let want = if header.blocks() == 1 { Piece::Hole(10, 11) } else { Piece::Damaged(header) };
                assert_eq!(explained(&image, &[bad]), [want], "{data} bytes, block {bad}");
            }
            let all: Vec<u32> = (10..10 + header.blocks()).collect();
            assert_eq!(explained(&image, &all), [Piece::Hole(10, 10 + header.blocks())], "all of {data} bytes");
        }
    }

    #[test]
    fn a_flipped_bit_of_the_header_hides_nothing() {
        for data in [100, 40_000] {
            let (header, mut image) = record(10, data);
            image[30] ^= 1;
            assert_eq!(explained(&image, &[]), [Piece::Damaged(header)]);
            let len = image.len();
            image[len - HEADER + 3] ^= 1;
            assert_eq!(explained(&image, &[]), [Piece::Hole(10, 10 + header.blocks())], "of both");
        }
    }

    #[test]
    fn a_record_without_room_for_a_second_header_is_known_by_its_first() {
        let data = (8000..9000).find(|data| second_header_at(data_length(*data as usize).unwrap()).is_none()).unwrap();
        let (header, image) = record(10, data);
        assert_eq!(explained(&image, &[11]), [Piece::Damaged(header)]);
        assert_eq!(explained(&image, &[10]), [Piece::Hole(10, 10 + header.blocks())]);
    }

    #[test]
    fn the_front_of_a_record_that_was_cut_is_nothing() {
        let (_, cut) = record(10, 40_000);
        assert_eq!(explained(&cut[..3 * BLOCK], &[]), [], "the zone ends there");
        // The zone went on with another one, which is damaged.
        let (next, image) = record(13, 9000);
        let both = [&cut[..3 * BLOCK], &image].concat();
        assert_eq!(explained(&both, &[14]), [Piece::Damaged(next)]);
        assert_eq!(explained(&both, &[13]), [Piece::Damaged(next)]);
        assert_eq!(explained(&both, &[13, 14, 15]), [Piece::Hole(13, 16)], "nobody knows what followed");
        assert_eq!(explained(&both, &[10, 14]), [Piece::Hole(10, 13), Piece::Damaged(next)]);
    }

    #[test]
    fn records_side_by_side_are_told_apart_and_blank_blocks_are_nothing() {
        let (a, one) = record(10, 9000);
        let (b, two) = record(13, 100);
        let (c, three) = record(14, 5000);
        let all = [one, two, three, vec![0; 2 * BLOCK]].concat();
        assert_eq!(explained(&all, &[11, 15]), [a, b, c].map(Piece::Damaged));
        assert_eq!(explained(&all, &[10, 13, 14]), [Piece::Damaged(a), Piece::Hole(13, 14), Piece::Damaged(c)]);
        assert_eq!(explained(&all, &[12, 13, 14]), [Piece::Damaged(a), Piece::Hole(13, 14), Piece::Damaged(c)]);
        assert_eq!(explained(&all, &[10, 11, 12]), [Piece::Hole(10, 13), Piece::Damaged(b), Piece::Damaged(c)]);
        assert_eq!(explained(&vec![0; 3 * BLOCK], &[]), []);
        assert_eq!(explained(&vec![0; 3 * BLOCK], &[11]), [Piece::Hole(10, 13)]);
    }
}
