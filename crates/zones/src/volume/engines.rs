//! Engines of one volume: who uses it, and whether everything of them is on the drive when the last one lets go.

use std::collections::BTreeSet;

/// See the module.
#[derive(Default)]
pub(crate) struct Engines {
    /// How many use it now; 0, too, where it is not shared.
    now: u32,
    /// Those that have ever used it.
    ever: BTreeSet<String>,
    /// It is being shut down.
    over: bool,
    /// Tenants, by owner, whose engine has [begun](crate::Tenant::begin).
    begun: BTreeSet<u8>,
    /// How many have ended with everything on the drive.
    clean: usize,
    /// One that has ended has left something in memory.
    unclean: bool,
}

impl Engines {
    /// An engine takes a share. `None`: the last one is letting go of the volume. False: it had a share before; what the volume knows of its zones is
    /// of the moment when the volume was opened.
    pub(crate) fn join(&mut self, tenant: &str) -> Option<bool> {
        if self.over {
            return None;
        }
        let first = self.ever.insert(tenant.to_owned());
        self.now += u32::from(first);
        Some(first)
    }

    /// A tenant's engine begins; false: it has begun before.
    pub(crate) fn begin(&mut self, owner: u8) -> bool {
        self.begun.insert(owner)
    }

    /// An engine has ended, of which nothing is left in memory where it is `clean`. Whether the volume ends now, with what is told: `None`
    /// where it ends with the last share.
    pub(crate) fn ended(&mut self, clean: bool) -> Option<bool> {
        if self.now > 0 {
            self.clean += usize::from(clean);
            self.unclean |= !clean;
            return None;
        }
        self.over = true;
        Some(clean)
    }

    /// An engine gives up its share. `None`: others have one. Else the volume ends, and nothing is left in memory where this is true.
    pub(crate) fn leave(&mut self) -> Option<bool> {
        self.now = self.now.saturating_sub(1);
        self.over |= self.now == 0;
        (self.now == 0).then_some(!self.unclean && self.clean >= self.begun.len())
    }
}
