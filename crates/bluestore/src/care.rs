//! What a user calls against damage: scrubbing and repair. [`BlueStore::check`] finds what a repair mends.

use crate::lock::lock;
use crate::repair::{self, Mend, Repaired};
use crate::scrub::{self, Damage, Scrub};
use crate::store::{BlueStore, CHECKS};
use imbrex_device::{Code, Result};
use std::sync::atomic::Ordering;

impl BlueStore {
    /// Does a step of a round of the scrub, which reads all that lives and compares it with its checksums: about so many bytes. Nobody waits for it. `now`: seconds since 1970. Where the last
    /// round is over this begins another. True: the round is over.
    ///
    /// # Errors
    /// Those of the drive and of the key-value store, but for bytes that cannot be read: these are found.
    pub fn scrub_step(&self, most: u64, now: u64) -> Result<bool> {
        scrub::step(self.core(), most, now)
    }

    /// The next step of the scrub begins a round, whatever is under way.
    pub fn scrub_anew(&self) {
        let _one = self.core().scrubbing.take();
        lock(&self.core().rounds).next = None;
    }

    /// Writes down how far the scrub is. It does so itself now and then; a restart goes on there.
    ///
    /// # Errors
    /// Those of a store that takes no more.
    pub fn save_scrub(&self) -> Result<()> {
        scrub::save(self.core())
    }

    /// Grows with each transaction and each read: where it has not, nobody has used the store.
    pub fn activity(&self) -> u64 {
        self.core().state().version.wrapping_add(self.core().reads.load(Ordering::Relaxed))
    }

    /// Whether somebody waits for a read or a commit now. On a busy drive nothing may come of these for a while, and [`BlueStore::activity`] rests.
    pub fn is_waited_for(&self) -> bool {
        self.core().waiting.load(Ordering::Relaxed) > 0
    }

    /// How far scrubbing is.
    pub fn scrubbed(&self) -> Scrub {
        self.core().scrubbed()
    }

    /// What the scrub knows to be damaged, by the objects that have it. What was overwritten or deleted since is no more. Takes a pass over all objects, where anything is damaged.
    ///
    /// # Errors
    /// Those of the drive and of the key-value store.
    pub fn damaged(&self) -> Result<Vec<Damage>> {
        scrub::damage(self.core())
    }

    /// Makes all durable, and mends what other records tell: counts of blobs, records of zones, sums, and what belongs to nobody any more. Blocks that objects name and that are gone stay errors,
    /// and can be overwritten and deleted. Nothing that an object has is deleted. A crash in the middle does no harm. The store has to be
    /// opened with [`Options::repair`]: zones whose records are gone are free as soon as it is opened without. Transactions wait meanwhile.
    ///
    /// # Errors
    /// Those of the drive and of the key-value store. Where it has begun to write, the store takes no more then.
    pub fn repair(&self, mend: Mend) -> Result<Repaired> {
        if !self.core().options.repair {
            let sentence = "a repair needs a store that was opened for it; open it again with repair=on";
            return Err(self.core().refuse(Code::InvalidArgument, sentence));
        }
        for _ in 0..CHECKS {
            // Changes of counts that wait are not made: with a count that is too low they would cost others their blocks.
            self.sync()?;
            let _committing = self.core().committing.take();
            let preparing = self.core().prepare();
            if self.core().is_settled() {
                return repair::repair(self.core(), mend, &preparing);
            }
        }
        Err(self.core().refuse(Code::Busy, "others change the store all the time; repair it when they rest"))
    }
}
