//! What the drive counts: commands, bytes, zone operations and broken rules, in all and by cause.

use crate::state::State;
use imbrex_device::Cause;
use serde::Serialize;
use std::collections::BTreeMap;

macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Counters of one cause, or of all together.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counts { $($(#[$doc])* pub $field: u64,)* }

        #[allow(non_camel_case_types)]
        #[repr(usize)]
        enum Number { $($field,)* }

        /// Numbers of the counters in the image.
        #[allow(missing_docs)]
        pub(crate) mod counter { $(#[allow(non_upper_case_globals)] pub(crate) const $field: usize = super::Number::$field as usize;)* }

        impl Counts {
            fn load(state: &State, cause: Cause) -> Counts {
                Counts { $($field: state.counted(cause, counter::$field),)* }
            }
            /// Adds what another cause counted.
            pub fn add(&mut self, other: &Counts) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }
            /// What was counted since `earlier`.
            pub fn since(&self, earlier: &Counts) -> Counts {
                Counts { $($field: self.$field.saturating_sub(earlier.$field),)* }
            }
            /// Names and values, in the order of the fields.
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}

counts! {
    /// Write commands that succeeded.
    writes,
    /// Read commands that succeeded.
    reads,
    /// Flush commands that succeeded.
    flushes,
    /// Resets that succeeded.
    zone_resets,
    /// Bytes written.
    bytes_written,
    /// Bytes read.
    bytes_read,
    /// Commands that broke a rule of the contract; each failed.
    rule_violations,
    /// Commands that failed for another reason (medium errors, dead zones, the host's disk).
    errors,
    /// Write commands to conventional zones, contained in `writes`.
    writes_conventional,
    /// Bytes written to conventional zones, contained in `bytes_written`.
    bytes_written_conventional,
    /// Explicit opens.
    zone_opens,
    /// Closes asked for by the host.
    zone_closes,
    /// Finishes.
    zone_finishes,
    /// Resets of full zones, contained in `zone_resets`.
    zone_resets_full,
    /// Resets of partly written zones, contained in `zone_resets`.
    zone_resets_partial,
    /// Resets of empty zones, contained in `zone_resets`.
    zone_resets_empty,
}

const _: () = assert!((Number::zone_resets_empty as usize) < crate::state::COUNTERS_PER_CAUSE);

/// A rule of the contract that a host can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Rule {
    /// Buffer, offset or length not aligned, or of length 0.
    Alignment,
    /// Longer than the largest command.
    TooLong,
    /// Beyond the end of the drive.
    Range,
    /// A write, or on some drives a read, across a zone's end.
    CrossesZones,
    /// A write not at the write pointer.
    WritePointer,
    /// A write beyond the capacity, or to a full zone.
    Capacity,
    /// A second command on a zone with a write in flight.
    InFlight,
    /// Past the open limit.
    OpenLimit,
    /// Past the active limit.
    ActiveLimit,
    /// A zone operation on a conventional zone.
    ConventionalOp,
    /// A zone operation that the zone's state does not allow.
    Transition,
    /// A read above the write pointer where the drive does not allow it.
    ReadAboveWp,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 12] = [
        Rule::Alignment,
        Rule::TooLong,
        Rule::Range,
        Rule::CrossesZones,
        Rule::WritePointer,
        Rule::Capacity,
        Rule::InFlight,
        Rule::OpenLimit,
        Rule::ActiveLimit,
        Rule::ConventionalOp,
        Rule::Transition,
        Rule::ReadAboveWp,
    ];

    /// The name that statistics print.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Alignment => "alignment",
            Rule::TooLong => "too_long",
            Rule::Range => "range",
            Rule::CrossesZones => "crosses_zones",
            Rule::WritePointer => "write_pointer",
            Rule::Capacity => "capacity",
            Rule::InFlight => "in_flight",
            Rule::OpenLimit => "open_limit",
            Rule::ActiveLimit => "active_limit",
            Rule::ConventionalOp => "conventional_op",
            Rule::Transition => "transition",
            Rule::ReadAboveWp => "read_above_wp",
        }
    }
}

/// Everything a drive counted since it was made or its counters were reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// All causes together.
    #[serde(flatten)]
    pub total: Counts,
    /// By the name of the cause; every cause is there.
    pub by_cause: BTreeMap<&'static str, Counts>,
    /// Violations by the name of the rule; every rule is there.
    pub by_rule: BTreeMap<&'static str, u64>,
    /// Zones that the drive closed by itself to stay within its open limit.
    pub zones_closed_by_drive: u64,
    /// Power losses that the drive went through; not cleared by a reset of the counters.
    pub power_losses: u64,
}

/// Global counter after those of the rules.
pub(crate) const CLOSED_BY_DRIVE: usize = 32;
const _: () = assert!(Rule::ALL.len() <= CLOSED_BY_DRIVE && CLOSED_BY_DRIVE < crate::state::GLOBAL_COUNTERS);

impl Stats {
    pub(crate) fn load(state: &State) -> Stats {
        let mut total = Counts::default();
        let mut by_cause = BTreeMap::new();
        for &cause in Cause::ALL {
            let counts = Counts::load(state, cause);
            total.add(&counts);
            by_cause.insert(cause.name(), counts);
        }
        let by_rule = Rule::ALL.iter().map(|rule| (rule.name(), state.counted_global(*rule as usize))).collect();
        let zones_closed_by_drive = state.counted_global(CLOSED_BY_DRIVE);
        Stats { total, by_cause, by_rule, zones_closed_by_drive, power_losses: state.epoch() }
    }

    /// The counters of one cause.
    pub fn of(&self, cause: Cause) -> Counts {
        self.by_cause.get(cause.name()).copied().unwrap_or_default()
    }
}

impl std::ops::Deref for Stats {
    type Target = Counts;
    fn deref(&self) -> &Counts {
        &self.total
    }
}
