//! The order of requests: what touches the same bytes goes one after the other, as it came; everything else goes at once.
//!
//! A drive takes one write or operation in flight per sequential zone, and the kernel sends several: appends always, and writes where its
//! scheduler does not hold them back. A real drive takes them in the order in which they come. Reads wait for nobody, as on a drive.

use std::ops::Range;

struct Turn {
    tag: u16,
    /// The bytes that nobody else may have meanwhile.
    claims: Range<u64>,
    runs: bool,
}

/// Requests that came and are not done, oldest first. No more than the queue is deep.
#[derive(Default)]
pub(crate) struct Turns {
    all: Vec<Turn>,
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    !one.is_empty() && !other.is_empty() && one.start < other.end && other.start < one.end
}

impl Turns {
    /// A request came; whether it may run at once. `claims` is empty where it may run beside anything.
    pub(crate) fn comes(&mut self, tag: u16, claims: Range<u64>) -> bool {
        let runs = !self.all.iter().any(|turn| overlap(&turn.claims, &claims));
        self.all.push(Turn { tag, claims, runs });
        runs
    }

    /// A request is done; those that may run now, oldest first.
    pub(crate) fn is_done(&mut self, tag: u16) -> Vec<u16> {
        self.all.retain(|turn| turn.tag != tag);
        let mut next = Vec::new();
        for at in 0..self.all.len() {
            let (before, rest) = self.all.split_at_mut(at);
            let Some(turn) = rest.first_mut().filter(|turn| !turn.runs) else { continue };
            if !before.iter().any(|other| overlap(&other.claims, &turn.claims)) {
                turn.runs = true;
                next.push(turn.tag);
            }
        }
        next
    }

    /// Whether a request with this tag came and is not done.
    pub(crate) fn has(&self, tag: u16) -> bool {
        self.all.iter().any(|turn| turn.tag == tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_zone_takes_one_at_a_time_in_the_order_of_coming() {
        let mut turns = Turns::default();
        assert!(turns.comes(0, 0..10) && turns.comes(1, 10..20));
        assert!(!turns.comes(2, 0..10) && !turns.comes(3, 0..10));
        assert!(turns.comes(4, 5..5), "a read waits for nobody");
        assert_eq!(turns.is_done(1), []);
        assert_eq!(turns.is_done(0), [2]);
        assert!(!turns.has(0) && turns.has(3));
        assert_eq!(turns.is_done(2), [3]);
        assert_eq!((turns.is_done(3), turns.is_done(4)), (vec![], vec![]));
        assert!(turns.all.is_empty());
    }

    #[test]
    fn what_needs_all_zones_waits_for_all_and_is_not_overtaken() {
        let mut turns = Turns::default();
        assert!(turns.comes(0, 0..10) && turns.comes(1, 10..20));
        assert!(!turns.comes(2, 0..100), "a reset of all zones");
        assert!(!turns.comes(3, 50..60), "it would overtake");
        assert_eq!(turns.is_done(1), []);
        assert_eq!(turns.is_done(0), [2]);
        assert_eq!(turns.is_done(2), [3]);
    }

    #[test]
    fn one_that_ends_lets_several_go() {
        let mut turns = Turns::default();
        assert!(turns.comes(7, 0..100));
        assert!(!turns.comes(1, 0..10) && !turns.comes(2, 10..20) && !turns.comes(3, 5..15));
        assert_eq!(turns.is_done(7), [1, 2]);
        assert_eq!(turns.is_done(2), []);
        assert_eq!(turns.is_done(1), [3]);
    }
}
