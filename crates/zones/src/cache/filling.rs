//! Pages of a file that is being written, as its bytes come.
//!
//! Device writes end anywhere in a page, so the last one waits here for the rest of its bytes. What is lost on the way (a gap, a
//! file that is not ended) is a miss later.

use super::pages::{Page, RUN};
use super::{BlockCache, Store};
use std::sync::Arc;

/// The page that the file's end stands in, and places for the next ones.
#[derive(Default)]
pub struct Filling {
    /// Where the next bytes are expected, in the file.
    next: u64,
    page: Option<Page>,
    /// Blank pages behind it in memory, the next one last.
    places: Vec<Page>,
}

impl BlockCache {
    /// Keeps bytes that were just written, from `at` on in the file, as pages: a page when it is whole.
    pub fn append(&self, filling: &mut Filling, file: u64, at: u64, bytes: &[u8]) {
        if matches!(self.store, Store::Off) {
            return;
        }
        let size = self.page as u64;
        if filling.next != at {
            *filling = Filling::default();
        }
        filling.next = at + bytes.len() as u64;
        let skip = if filling.page.is_none() { at.next_multiple_of(size) - at } else { 0 };
        let mut here = at + skip;
        let mut rest = bytes.get(skip as usize..).unwrap_or_default();
        while !rest.is_empty() {
            let mut page = filling.page.take().unwrap_or_else(|| self.place(filling, here / size));
            let n = page.push(rest);
            if n == 0 {
                return;
            }
            let number = here / size;
            (here, rest) = (here + n as u64, &rest[n..]);
            match page.len() == self.page {
                true => self.keep(file, number, Arc::new(page)),
                false => filling.page = Some(page),
            }
        }
    }

    /// Keeps what there is of the last page: the file ends here.
    pub fn end(&self, filling: &mut Filling, file: u64) {
        let Filling { next, page, .. } = std::mem::take(filling);
        if let Some(page) = page.filter(|page| !page.is_empty()) {
            self.keep(file, next / self.page as u64, Arc::new(page));
        }
    }

    /// Memory for a page: those of a run side by side, where that can be.
    fn place(&self, filling: &mut Filling, number: u64) -> Page {
        if number.is_multiple_of(u64::from(RUN)) {
            filling.places = self.buffers.run();
            filling.places.reverse();
        }
        filling.places.pop().unwrap_or_else(|| self.buffers.blank())
    }
}
