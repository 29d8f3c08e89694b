//! How records and pieces stand in frames: each with its length before it, cut where one is longer than a frame. Pure.
//!
//! A frame says where the first item begins in it. So who misses a frame goes on with the next item, and an item that a crash cut off is
//! dropped when the next frame begins with a new one.

use std::ops::Range;

/// Bytes of an item's length.
pub(super) const LENGTH: usize = 4;

/// Items, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch(Vec<u8>);

impl Batch {
    /// Adds an item that `write` appends to the buffer.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.0.len();
        self.0.extend_from_slice(&[0; LENGTH]);
        write(&mut self.0);
        let len = (self.0.len() - at - LENGTH) as u32;
        self.0[at..at + LENGTH].copy_from_slice(&len.to_le_bytes());
    }

    /// Bytes of all items with their lengths.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn join(&mut self, mut other: Batch) {
        match self.0.is_empty() {
            true => *self = other,
            false => self.0.append(&mut other.0),
        }
    }

    /// Items as they stand in another one.
    pub(super) fn join_bytes(&mut self, items: &[u8]) {
        self.0.extend_from_slice(items);
    }

    /// Drops what stands before an item.
    pub(super) fn drop_front(&mut self, item: usize) {
        self.0.drain(..item);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Cuts it into frames of `most` bytes each. Only an item that is longer than that stands in two.
    pub(super) fn cut(&self, most: usize) -> Vec<Cut> {
        let mut starts = vec![0];
        while let Some(last) = starts.last().copied().filter(|at| *at < self.0.len()) {
            starts.push(last + whole(&self.0[last..]).unwrap_or(self.0.len() - last));
        }
        let (mut cuts, mut at) = (Vec::new(), 0);
        while at < self.0.len() {
            let end = (at + most.max(1)).min(self.0.len());
            let fits = starts.partition_point(|start| *start <= end);
            // The last item that ends within the frame, or else all of the frame for one that does not.
            let end = starts[..fits].last().copied().filter(|last| *last > at).unwrap_or(end);
            let first = starts[starts.partition_point(|start| *start < at)].min(end) - at;
            let item = starts[..starts.partition_point(|start| *start <= at)].last().copied().unwrap_or(0);
            cuts.push(Cut { bytes: at..end, first, item });
            at = end;
        }
        cuts
    }
}

/// What goes to one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) bytes: Range<usize>,
    /// Where the first item begins that begins in it, in bytes from its beginning; its end, where none does.
    pub(super) first: usize,
    /// Where the item begins that its first byte belongs to.
    pub(super) item: usize,
}

/// Bytes of the item that the bytes begin with, its length included; `None`: less than its length is there.
pub(super) fn whole(bytes: &[u8]) -> Option<usize> {
    let length: [u8; LENGTH] = bytes.get(..LENGTH)?.try_into().ok()?;
    (u32::from_le_bytes(length) as usize).checked_add(LENGTH)
}

/// Puts items together again, frame by frame.
#[derive(Default)]
pub struct Assembler {
    /// The front of an item that goes on in the next frame.
    front: Vec<u8>,
}

impl Assembler {
    /// A frame is missing before the next one.
    pub fn gap(&mut self) {
        self.front.clear();
    }

    /// The next frame, in which an item begins at byte `first`. False: what it says makes no sense.
    pub fn put(&mut self, first: usize, bytes: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
        let Some((rest, mut new)) = bytes.split_at_checked(first) else { return false };
        if first == 0 || self.front.is_empty() {
            // Whoever wrote the front never came to its end, or nobody knows the front.
            self.front.clear();
        } else {
            self.front.extend_from_slice(rest);
            match whole(&self.front) {
                Some(len) if len == self.front.len() => {
                    each(&self.front[LENGTH..]);
                    self.front.clear();
                }
                Some(len) if len < self.front.len() => {
                    self.front.clear();
                    return false;
                }
                // An item that is not at its end, and another one begins.
                _ if !new.is_empty() => self.front.clear(),
                _ => return true,
            }
        }
        while let Some(item) = whole(new).and_then(|len| new.get(..len)) {
            each(&item[LENGTH..]);
            new = &new[item.len()..];
        }
        self.front.extend_from_slice(new);
        true
    }
}

#[cfg(test)]
mod tests;
