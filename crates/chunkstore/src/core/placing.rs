//! What placement keeps in mind: which zones were chosen last, and how long chunks become.

use crate::policy::place::Sizes;

/// See the module.
pub(crate) struct Placing {
    /// The zone that was chosen last, by kind of stream.
    last: Vec<u32>,
    /// The zone that was taken last.
    taken: u32,
    /// How long the last chunks of each kind became; none where that is not remembered.
    sizes: Vec<Sizes>,
}

impl Placing {
    /// For so many kinds of streams.
    pub(crate) fn new(kinds: usize, remembers: bool) -> Placing {
        let sizes = if remembers { vec![Sizes::default(); kinds] } else { Vec::new() };
        Placing { last: vec![0; kinds.max(1)], taken: 0, sizes }
    }

    /// The zone that was chosen last for this kind.
    pub(crate) fn last(&mut self, kind: usize) -> &mut u32 {
        &mut self.last[kind]
    }

    /// The zone that was taken last.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// This zone was taken.
    pub(crate) fn took(&mut self, zone: u32) {
        self.taken = zone;
    }

    /// A chunk of this kind was sealed with so many bytes.
    pub(crate) fn sealed(&mut self, kind: usize, len: u32) {
        if let Some(sizes) = self.sizes.get_mut(kind) {
            sizes.sealed(len);
        }
    }

    /// How long a chunk of this kind is expected to become that has `least` bytes at least, if that is known.
    pub(crate) fn expected(&self, kind: usize, least: u32) -> Option<u32> {
        self.sizes.get(kind)?.expected(least)
    }
}
