//! Verifies a whole table: every block, every order, every bound and every count.

use super::block::{Block, Cursor, Entry, compare};
use super::filter;
use super::footer::Properties;
use super::read::{Handle, Table};
use super::seal::What;
use super::{Kind, Malformed};
use std::cmp::Ordering;
use std::sync::Arc;

/// More sentences help nobody.
const MOST: usize = 100;

impl Table {
    /// Reads everything, past the cache, and tells in sentences what is not as it must be. Opening has verified the parts that are in memory.
    pub fn check(&self) -> Vec<String> {
        let mut check = Check {
            table: self,
            sentences: Vec::new(),
            last: None,
            counted: Properties { smallest_seq: u64::MAX, ..Properties::default() },
            whole: true,
        };
        check.index(self.top.as_ref());
        if check.whole {
            check.properties();
        }
        let more = check.sentences.len().saturating_sub(MOST);
        check.sentences.truncate(MOST);
        if more > 0 {
            check.sentences.push(format!("There are {more} more findings."));
        }
        check.sentences
    }
}

/// A key and a sequence number.
type LastKey = (Vec<u8>, u64);

struct Check<'a> {
    table: &'a Table,
    sentences: Vec<String>,
    /// The last entry that was read.
    last: Option<LastKey>,
    counted: Properties,
    /// Whether all entries could be read, so that what was counted can be compared.
    whole: bool,
}

impl Check<'_> {
    fn say(&mut self, sentence: impl std::fmt::Display) {
        self.sentences.push(format!("Table {}: {sentence}.", self.table.properties.identity.table));
    }

    fn lost(&mut self, error: imbrex_device::Error) {
        self.whole = false;
        self.sentences.push(format!("{error}."));
    }

    fn malformed(&mut self, what: What, at: u64, why: Malformed) {
        let error = self.table.damaged(what, at, why);
        self.lost(error);
    }

    /// Calls `each` for all entries of a block. Every restart point must be one of them, with a whole key.
    fn entries(&mut self, what: What, at: u64, block: &Arc<Block>, each: &mut dyn FnMut(&mut Self, &Cursor, &Entry)) {
        let (mut cursor, mut restarts) = (Cursor::new(block.clone()), 0);
        let mut moved = cursor.first();
        while let (Ok(()), Some(entry)) = (moved, cursor.entry()) {
            if restarts < block.restarts() && block.restart(restarts) == entry.at() {
                if block.entry_at_restart(restarts).is_err() {
                    break;
                }
                restarts += 1;
            }
            each(self, &cursor, entry);
            moved = cursor.next();
        }
        match moved {
            Ok(()) if restarts == block.restarts() => {}
            Ok(()) => self.malformed(what, at, Malformed("restart points")),
            Err(why) => self.malformed(what, at, why),
        }
    }

    /// Calls `each` for all blocks that an index of this kind leads to: without gaps, the last key of each before that of the next. Returns the
    /// last key.
    fn blocks(
        &mut self,
        what: What,
        at: u64,
        index: &Arc<Block>,
        end: &mut u64,
        each: &mut dyn FnMut(&mut Self, Handle, &LastKey),
    ) -> Option<LastKey> {
        let region = self.table.region(what);
        let mut last: Option<LastKey> = None;
        self.entries(what, at, index, &mut |check, cursor, entry| {
            let handle = match Handle::decode(cursor.value(), region.clone()) {
                Ok(handle) if entry.kind == Kind::Put => handle,
                Ok(_) => return check.malformed(what, at, Malformed("kind of an entry")),
                Err(why) => return check.malformed(what, at, why),
            };
            // No block is read twice, whatever a damaged index says.
            if handle.at != *end {
                return check.malformed(what, at, Malformed("order of blocks"));
            }
            let key = (cursor.key().to_vec(), entry.seq);
            if last.as_ref().is_some_and(|before| !check.before(before, &key)) {
                check.malformed(what, at, Malformed("order of entries"));
            }
            *end = handle.end();
            each(check, handle, &key);
            last = Some(key);
        });
        last
    }

    fn before(&self, a: &LastKey, b: &LastKey) -> bool {
        compare(&*self.table.order, (&a.0, a.1), (&b.0, b.1)) == Ordering::Less
    }

    fn index(&mut self, top: Option<&Arc<Block>>) {
        let (mut index_end, mut data_end) = (self.table.parts.data, 0);
        if let Some(top) = top {
            let at = self.table.parts.top_at();
            self.blocks(What::Top, at, top, &mut index_end, &mut |check, handle, last| {
                check.index_block(handle, last, &mut data_end);
            });
        }
        if self.whole && (index_end, data_end) != (self.table.parts.filter_at(), self.table.parts.data) {
            self.say("the index leads to fewer blocks than the footer says");
        }
    }

    /// An index block, and the key that the top index has for it.
    fn index_block(&mut self, handle: Handle, last: &LastKey, data_end: &mut u64) {
        let index = match self.table.load(What::Index, handle, &*self.table.source) {
            Ok(index) => index,
            Err(error) => return self.lost(error),
        };
        if !self.whole {
            // What was lost before makes a gap, which is no other finding.
            *data_end = self.first(&index).map_or(*data_end, |first| first.max(*data_end));
        }
        let end =
            self.blocks(What::Index, handle.at, &index, data_end, &mut |check, handle, last| check.data(handle, last));
        if end.as_ref() != Some(last) {
            self.say(format_args!("the index block at {} does not end with the key that the top index has", handle.at));
        }
    }

    /// Where the first block begins that this index leads to.
    fn first(&self, index: &Arc<Block>) -> Option<u64> {
        let mut cursor = Cursor::new(index.clone());
        cursor.first().ok()?;
        Some(Handle::decode(cursor.value(), self.table.region(What::Index)).ok()?.at)
    }

    /// A data block, and the key that the index has for it.
    fn data(&mut self, handle: Handle, separator: &LastKey) {
        self.counted.data_blocks += 1;
        let block = match self.table.load(What::Data, handle, &*self.table.source) {
            Ok(block) => block,
            Err(error) => return self.lost(error),
        };
        self.entries(What::Data, handle.at, &block, &mut |check, cursor, entry| {
            check.entry(handle.at, cursor.key(), entry);
        });
        if let Some(last) = self.last.take() {
            if self.before(separator, &last) {
                self.say(format_args!(
                    "the data block at {} has keys behind the one that the index has for it",
                    handle.at
                ));
            }
            self.counted.largest = last.0;
        }
        // The next key must be behind this one, which is not before the last key of the block.
        self.last = Some(separator.clone());
    }

    fn entry(&mut self, at: u64, key: &[u8], entry: &Entry) {
        let order = &*self.table.order;
        if self.counted.entries == 0 {
            self.counted.smallest = key.to_vec();
        }
        self.counted.count(key.len(), entry.seq, entry.kind, entry.value.len());
        let ordering = self.last.as_ref().map_or(Ordering::Less, |last| order.compare(&last.0, key));
        let newer = self.last.as_ref().is_some_and(|last| last.1 <= entry.seq);
        let last = self.last.get_or_insert_default();
        last.0.clear();
        last.0.extend_from_slice(key);
        last.1 = entry.seq;
        if ordering == Ordering::Greater || ordering == Ordering::Equal && newer {
            self.say(format_args!("the entry at {} in the data block at {at} is not in order", entry.at()));
        }
        if ordering != Ordering::Equal
            && !self.table.filter.as_ref().is_none_or(|all| all.may_contain(filter::hash(key)))
        {
            self.say(format_args!("the filter does not know a key in the data block at {at}"));
        }
    }

    fn properties(&mut self) {
        let (counted, said) = (&self.counted, &self.table.properties);
        let mut wrong = Vec::new();
        for (what, counted, said) in [
            ("entries", counted.entries, said.entries),
            ("deletions", counted.deletions, said.deletions),
            ("merge operands", counted.merges, said.merges),
            ("bytes of keys", counted.key_bytes, said.key_bytes),
            ("bytes of values", counted.value_bytes, said.value_bytes),
            ("data blocks", counted.data_blocks, said.data_blocks),
            ("as the lowest sequence number", counted.smallest_seq, said.smallest_seq),
            ("as the highest sequence number", counted.largest_seq, said.largest_seq),
        ] {
            if counted != said {
                wrong.push(format!("it has {counted} {what}, and its properties say {said}"));
            }
        }
        for (what, same) in [("first", counted.smallest == said.smallest), ("last", counted.largest == said.largest)] {
            if !same {
                wrong.push(format!("its {what} key is not the one in its properties"));
            }
        }
        for sentence in wrong {
            self.say(sentence);
        }
    }
}
