//! What a tenant may take of a drive.
//!
//! The label keeps a budget for each tenant, [`Volume::format`](crate::Volume::format) refuses budgets that do not fit the drive together, and the
//! [pool](crate::pool) enforces them. Everything here is pure.

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
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::keeping(0, 0)
    }
}

impl Budget {
    /// All of the drive, but for so many zones that a user's writes leave free. These are its least, too.
    pub const fn keeping(metadata: u32, cleaning: u32) -> Budget {
        Budget { least: metadata + cleaning, most: u32::MAX, metadata, cleaning }
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
    fn a_budget_that_contradicts_itself_is_refused() {
        assert!(Budget::default().check().is_ok() && Budget::keeping(2, 3).check().is_ok());
        assert!(Budget::keeping(2, 3).at_least(4).check().is_err());
        assert!(Budget::keeping(2, 3).at_most(4).check().is_err());
        assert!(Budget { metadata: u32::MAX, ..Budget::keeping(0, 1) }.check().is_err());
    }
}
