//! Space of small files: conventional zones, or what stands for them in the journal. It is taken in units, and given back when the journal has durably
//! forgotten it.

use crate::sync::lock;
use imbrex_zones::conventional::ConventionalSpace;
use std::sync::Mutex;

/// See the module.
pub(crate) struct SmallSpace {
    inline: bool,
    parts: Mutex<Parts>,
}

struct Parts {
    space: ConventionalSpace,
    /// What metadata has forgotten, and that is nobody's once the journal record that says so is durable.
    forgotten: Vec<Forgotten>,
}

struct Forgotten {
    /// With this record.
    lsn: u64,
    addr: u64,
    len: u64,
}

impl SmallSpace {
    /// `inline`: it stands in the journal.
    pub(crate) fn new(space: ConventionalSpace, inline: bool) -> SmallSpace {
        SmallSpace { inline, parts: Mutex::new(Parts { space, forgotten: Vec::new() }) }
    }

    /// Whether it stands in the journal.
    pub(crate) fn is_inline(&self) -> bool {
        self.inline
    }

    /// Bytes that are free, and all of them.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let parts = lock(&self.parts);
        (parts.space.free_bytes(), parts.space.total_bytes())
    }

    /// Space of up to `bytes`: address and length.
    pub(crate) fn take(&self, bytes: u64) -> Option<(u64, u64)> {
        lock(&self.parts).space.alloc(bytes)
    }

    /// Space of `need` bytes at least, in as many pieces as it takes; `want` where that is to be had in one. All of it or
    /// nothing: what is refused leaves to others what there is.
    pub(crate) fn take_all(&self, need: u64, want: u64) -> Option<Vec<(u64, u64)>> {
        let space = &mut lock(&self.parts).space;
        let (mut pieces, mut got) = (Vec::new(), 0);
        while got < need && space.free_bytes() >= need - got {
            let more = if got == 0 { want.max(need) } else { need - got };
            let Some((addr, len)) = space.alloc(more) else { break };
            pieces.push((addr, len));
            got += len;
        }
        if got < need {
            pieces.drain(..).for_each(|(addr, len)| space.free(addr, len));
        }
        (got >= need).then_some(pieces)
    }

    /// Nobody has used this, and no metadata knows of it.
    pub(crate) fn give_back(&self, addr: u64, len: u64) {
        lock(&self.parts).space.free(addr, len);
    }

    /// The same of what was taken (`got` bytes) beyond the units of the first `used` bytes.
    pub(crate) fn give_back_behind(&self, addr: u64, used: u64, got: u64) {
        let used = used.next_multiple_of(imbrex_zones::conventional::UNIT);
        if used < got {
            self.give_back(addr + used, got - used);
        }
    }

    /// Nothing new goes there.
    pub(crate) fn retire(&self, addr: u64, len: u64) {
        lock(&self.parts).space.retire(addr, len);
    }

    /// This space, as addresses and lengths in bytes, is nobody's once record `lsn` is durable.
    pub(crate) fn forget(&self, space: Vec<(u64, u64)>, lsn: u64) {
        lock(&self.parts).forgotten.extend(space.into_iter().map(|(addr, len)| Forgotten { lsn, addr, len }));
    }

    /// Pieces that wait for that.
    pub(crate) fn forgotten(&self) -> usize {
        lock(&self.parts).forgotten.len()
    }

    /// All records up to `durable` are.
    pub(crate) fn forgot(&self, durable: u64) {
        let parts = &mut *lock(&self.parts);
        // A unit of which the file keeps the front is not free yet.
        let free = parts.forgotten.extract_if(.., |forgotten| forgotten.lsn <= durable);
        free.for_each(|Forgotten { addr, len, .. }| parts.space.free_behind(addr, len));
    }
}
