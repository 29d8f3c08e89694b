//! Copy-on-write pages in memory: a copy of a drive costs one reference per written zone. Absent pages are zeros.

use crate::config::Config;
use std::sync::{Arc, PoisonError, RwLock};

/// Pages of small zones, in bytes.
const SMALL_PAGE: usize = 16 << 10;
/// Pages of zones of 16 MiB or more, where the page table would grow long.
const LARGE_PAGE: usize = 64 << 10;

type Pages = Vec<Option<Arc<[u8]>>>;

/// One lock a zone; the page table of a zone that was never written is absent.
pub(crate) struct Cow {
    zones: Vec<RwLock<Option<Arc<Pages>>>>,
    page: usize,
    pages_per_zone: usize,
}

impl Cow {
    pub(crate) fn new(config: &Config) -> Cow {
        let page = if config.zone_size < 16 << 20 { SMALL_PAGE } else { LARGE_PAGE };
        let zones = (0..config.zones()).map(|_| RwLock::new(None)).collect();
        Cow { zones, page, pages_per_zone: config.zone_size.div_ceil(page as u64) as usize }
    }

    /// An independent copy that shares every page.
    pub(crate) fn copy(&self) -> Cow {
        let zones =
            self.zones.iter().map(|zone| RwLock::new(zone.read().unwrap_or_else(PoisonError::into_inner).clone()));
        Cow { zones: zones.collect(), page: self.page, pages_per_zone: self.pages_per_zone }
    }

    pub(crate) fn read(&self, zone: u32, offset: u64, out: &mut [u8]) {
        let pages = self.zones[zone as usize].read().unwrap_or_else(PoisonError::into_inner);
        let Some(pages) = pages.as_ref() else { return out.fill(0) };
        let mut at = offset as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let within = at % self.page;
            let n = rest.len().min(self.page - within);
            let (part, tail) = rest.split_at_mut(n);
            match &pages[at / self.page] {
                Some(page) => part.copy_from_slice(&page[within..within + n]),
                None => part.fill(0),
            }
            at += n;
            rest = tail;
        }
    }

    pub(crate) fn write(&self, zone: u32, offset: u64, bytes: &[u8]) {
        let mut pages = self.zones[zone as usize].write().unwrap_or_else(PoisonError::into_inner);
        let pages = Arc::make_mut(pages.get_or_insert_with(|| Arc::new(vec![None; self.pages_per_zone])));
        let mut at = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % self.page;
            let (part, tail) = rest.split_at(rest.len().min(self.page - within));
            let slot = &mut pages[at / self.page];
            if part.len() == self.page {
                *slot = Some(Arc::from(part));
            } else {
                let page = slot.get_or_insert_with(|| Arc::from(vec![0; self.page]));
                Arc::make_mut(page)[within..within + part.len()].copy_from_slice(part);
            }
            at += part.len();
            rest = tail;
        }
    }

    pub(crate) fn discard(&self, zone: u32) {
        *self.zones[zone as usize].write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_independent() {
        let config = Config::tiny();
        let first = Cow::new(&config);
        first.write(3, 5000, &[7; 20_000]);
        let second = first.copy();
        second.write(3, 6000, &[9; 10]);
        first.discard(3);
        let mut out = [1; 30_000];
        second.read(3, 0, &mut out);
        assert!(out[..5000].iter().chain(&out[25_000..]).all(|b| *b == 0));
        assert!(out[5000..6000].iter().chain(&out[6010..25_000]).all(|b| *b == 7));
        assert!(out[6000..6010].iter().all(|b| *b == 9));
        first.read(3, 0, &mut out);
        assert!(out.iter().all(|b| *b == 0));
    }
}
