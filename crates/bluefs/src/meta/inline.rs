//! Inline space: on a drive without conventional zones, the bytes of small files stand in the journal.
//!
//! Files written at random need space that can be overwritten. Where the drive has none, bluefs keeps a small address space
//! of its own, handed out like conventional space, whose contents are records of the journal and, here, pages in memory.
//! A page is there from the first write to it until no extent covers it.

use super::space::Space;
use std::collections::BTreeMap;

/// Bytes of a page.
pub const INLINE_PAGE: u64 = 4096;

/// Most bytes that one record carries.
pub const MAX_INLINE: usize = 512;

/// Pages by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inline {
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Inline {
    /// Writes bytes at an address; what was never written of a page is zeros.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let here = addr + done as u64;
            let skip = (here % INLINE_PAGE) as usize;
            let n = (INLINE_PAGE as usize - skip).min(bytes.len() - done);
            let page = self.pages.entry(here - skip as u64).or_insert_with(|| vec![0; INLINE_PAGE as usize].into());
            page[skip..skip + n].copy_from_slice(&bytes[done..done + n]);
            done += n;
        }
    }

    /// Reads bytes from an address on; false where a page of them was never written.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> bool {
        let mut done = 0;
        while done < out.len() {
            let here = addr + done as u64;
            let skip = (here % INLINE_PAGE) as usize;
            let n = (INLINE_PAGE as usize - skip).min(out.len() - done);
            let Some(page) = self.pages.get(&(here - skip as u64)) else { return false };
            out[done..done + n].copy_from_slice(&page[skip..skip + n]);
            done += n;
        }
        true
    }

    /// The pages that touch a range.
    pub fn range(&self, addr: u64, len: u64) -> impl Iterator<Item = (u64, &[u8])> + '_ {
        let from = addr / INLINE_PAGE * INLINE_PAGE;
        self.pages.range(from..addr.saturating_add(len)).map(|(at, page)| (*at, &page[..]))
    }

    /// All pages.
    pub fn all(&self) -> impl Iterator<Item = (u64, &[u8])> + '_ {
        self.range(0, u64::MAX)
    }

    /// Drops the bytes of a range that is nobody's any more, and the pages that nobody uses.
    pub(super) fn forget(&mut self, addr: u64, len: u64, space: &Space) {
        let pages: Vec<u64> = self.range(addr, len).map(|(at, _)| at).collect();
        for at in pages {
            if space.conventional_user(at, INLINE_PAGE).is_none() {
                self.pages.remove(&at);
            } else if let Some(page) = self.pages.get_mut(&at) {
                let (from, to) = (addr.max(at) - at, (addr + len).min(at + INLINE_PAGE) - at);
                page[from as usize..to as usize].fill(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_was_written_last_and_zeros_between() {
        let mut inline = Inline::default();
        inline.write(4000, &[1; 200]);
        inline.write(4090, &[2; 3]);
        let mut out = [9; 210];
        assert!(inline.read(3995, &mut out));
        assert_eq!(
            (&out[..5], out[5], &out[95..98], out[98], out[204], out[205]),
            (&[0; 5][..], 1, &[2; 3][..], 1, 1, 0)
        );
        assert!(!inline.read(8190, &mut [0; 4]), "the third page was never written");
        assert_eq!(inline.all().map(|(at, _)| at).collect::<Vec<_>>(), [0, 4096]);
        inline.forget(0, 8192, &Space::default());
        assert_eq!(inline.all().count(), 0);
    }
}
