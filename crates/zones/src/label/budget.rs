//! What a tenant may take of a drive.
//!
//! The label keeps a budget for each tenant, [`Volume::format`](crate::Volume::format) refuses budgets that do not fit the drive together, and the
//! [pool](crate::table::pool) enforces them. Everything here is pure.

/// Active zones that an engine needs at least: two for its log, one to clean into, one for what is written.
const SLOTS: u8 = 4;

/// Sequential zones of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Zones that no other tenant takes, also while this one does not use them.
    pub least: u32,
    /// Zones that it may own at most.
    pub most: u32,
    /// Of its free zones, those that only metadata may take: without a place for its log an engine cannot even delete.
    pub metadata: u32,
    /// Of its free zones, those that only cleaning, bytes that were acknowledged and metadata may take.
    pub cleaning: u32,
    /// Active zones that no other tenant takes, on a drive that limits them; 0: it writes nothing.
    pub slots: u8,
}

impl Default for Budget {
    /// Of a tenant that writes nothing.
    fn default() -> Budget {
        Budget { slots: 0, ..Budget::keeping(0, 0) }
    }
}

impl Budget {
    /// All of the drive, but for so many zones that a user's writes leave free. These are its least, too.
    pub const fn keeping(metadata: u32, cleaning: u32) -> Budget {
        Budget { least: metadata + cleaning, most: u32::MAX, metadata, cleaning, slots: SLOTS }
    }

    /// The same with so many zones that no other tenant takes.
    #[must_use]
    pub const fn at_least(self, least: u32) -> Budget {
        Budget { least, ..self }
    }

    /// The same with so many zones at most.
    #[must_use]
    pub const fn at_most(self, most: u32) -> Budget {
        Budget { most, ..self }
    }

    /// Free zones that a user's write leaves alone.
    pub const fn reserve(&self) -> u32 {
        self.metadata.saturating_add(self.cleaning)
    }

    /// Whether it can be kept; if not, a phrase that says why.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self.metadata.checked_add(self.cleaning) {
            Some(reserve) if reserve <= self.least && self.least <= self.most => Ok(()),
            _ => Err("a tenant's budget keeps more zones free than its least, or its least is above its most"),
        }
    }
}

/// Whether budgets fit a drive with so many sequential zones for tenants; if not, a sentence's end that says what they need.
pub(crate) fn fit<'a>(budgets: impl Iterator<Item = (&'a str, Budget)> + Clone, zones: u32) -> Result<(), String> {
    let need: u64 = budgets.clone().map(|(_, budget)| u64::from(budget.least)).sum();
    if need <= u64::from(zones) {
        return Ok(());
    }
    let each: Vec<String> = budgets.map(|(name, budget)| format!("{name} {}", budget.least)).collect();
    Err(format!(
        "has {zones} sequential zones for data, and {need} are needed ({}); use a larger drive, or one with smaller zones",
        each.join(", ")
    ))
}

/// Whether a drive that can have so many active zones, those of the label not among them, has enough for all; if not, a sentence's end that says what
/// they need.
pub(crate) fn fit_slots<'a>(
    budgets: impl Iterator<Item = (&'a str, Budget)> + Clone,
    limit: u32,
) -> Result<(), String> {
    let need: u32 = budgets.clone().map(|(_, budget)| u32::from(budget.slots)).sum();
    if need <= limit {
        return Ok(());
    }
    let each: Vec<String> = budgets.map(|(name, budget)| format!("{name} {}", budget.slots)).collect();
    Err(format!(
        "can have {limit} active zones beside those of the label, and {need} are needed ({}); use a drive or a namespace with a higher limit",
        each.join(", ")
    ))
}

/// Of so many open or active zones each tenant's share: its own slots, and as much of the rest as any other that writes; the first ones get what cannot
/// be divided.
pub(crate) fn shares(budgets: &[Budget], limit: u32) -> Vec<u32> {
    let own: u32 = budgets.iter().map(|budget| u32::from(budget.slots)).sum();
    let writers = budgets.iter().filter(|budget| budget.slots > 0).count() as u32;
    let mut left = limit.saturating_sub(own);
    let each = left.div_ceil(writers.max(1));
    let share = |budget: &Budget| {
        let more = if budget.slots > 0 { each.min(left) } else { 0 };
        left -= more;
        u32::from(budget.slots) + more
    };
    budgets.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_fit_where_the_least_of_all_does() {
        let all = [("bluefs", Budget::keeping(1, 2).at_least(8)), ("chunks", Budget::keeping(1, 1).at_least(11))];
        assert_eq!(fit(all.into_iter(), 19), Ok(()));
        let sentence = fit(all.into_iter(), 18).unwrap_err();
        assert!(sentence.contains("has 18 ") && sentence.contains("19 are needed (bluefs 8, chunks 11)"), "{sentence}");
        let huge = [("a", Budget::keeping(0, 0).at_least(u32::MAX)); 3];
        assert!(fit(huge.into_iter(), u32::MAX).is_err());
        assert_eq!(fit([].into_iter(), 0), Ok(()));
    }

    #[test]
    fn active_zones_are_divided_and_none_is_promised_twice() {
        let of = |slots| Budget { slots, ..Budget::keeping(0, 0) };
        assert_eq!(shares(&[of(4)], 12), [12]);
        assert_eq!(shares(&[of(4), of(4)], 12), [6, 6]);
        assert_eq!(shares(&[of(4), of(4), of(4)], 14), [5, 5, 4]);
        assert_eq!(shares(&[of(0), of(4)], 12), [0, 12], "who writes nothing needs none");
        assert_eq!((shares(&[of(0)], 12), shares(&[], 12)), (vec![0], vec![]));
        assert_eq!(shares(&[of(4), of(4)], 7), [4, 4], "no drive is formatted so");
        let two = [("bluefs", of(4)), ("chunks", of(4))];
        assert_eq!(fit_slots(two.into_iter(), 8), Ok(()));
        let sentence = fit_slots(two.into_iter(), 7).unwrap_err();
        assert!(sentence.contains("have 7 ") && sentence.contains("8 are needed (bluefs 4, chunks 4)"), "{sentence}");
    }

    proptest::proptest! {
        #[test]
        fn shares_are_fair_and_fit(slots in proptest::collection::vec(0..9u8, 1..6), limit in 0..64u32) {
            let budgets: Vec<Budget> = slots.iter().map(|&slots| Budget { slots, ..Budget::default() }).collect();
            let shares = shares(&budgets, limit);
            let own: u32 = slots.iter().map(|&n| u32::from(n)).sum();
            let more: Vec<u32> = shares.iter().zip(&slots).filter(|(_, n)| **n > 0).map(|(s, n)| s - u32::from(*n)).collect();
            proptest::prop_assert!(shares.iter().zip(&slots).all(|(share, n)| *share >= u32::from(*n) && (*n > 0 || *share == 0)));
            let expected = if more.is_empty() { own } else { limit.max(own) };
            proptest::prop_assert_eq!(shares.iter().sum::<u32>(), expected);
        }
    }

    #[test]
    fn a_budget_that_contradicts_itself_is_refused() {
        assert!(Budget::default().check().is_ok() && Budget::keeping(2, 3).check().is_ok());
        assert!(Budget::keeping(2, 3).at_least(4).check().is_err());
        assert!(Budget::keeping(2, 3).at_most(4).check().is_err());
        assert!(Budget { metadata: u32::MAX, ..Budget::keeping(0, 1) }.check().is_err());
    }
}
