//! Conventional space that metadata has forgotten, and that is nobody's once the journal record that says so is durable.

/// See the module.
#[derive(Default)]
pub(crate) struct Pending(Vec<Freed>);

struct Freed {
    /// With this record.
    lsn: u64,
    addr: u64,
    len: u64,
}

impl Pending {
    /// Record `lsn` forgets this space, as addresses and lengths in bytes.
    pub(crate) fn add(&mut self, space: Vec<(u64, u64)>, lsn: u64) {
        self.0.extend(space.into_iter().map(|(addr, len)| Freed { lsn, addr, len }));
    }

    /// Pieces that wait.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes what records up to `durable` have forgotten.
    pub(crate) fn take(&mut self, durable: u64) -> impl Iterator<Item = (u64, u64)> {
        self.0.extract_if(.., move |freed| freed.lsn <= durable).map(|freed| (freed.addr, freed.len))
    }
}
