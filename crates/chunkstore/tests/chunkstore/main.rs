//! The tests of the chunk store, in one program: programs of their own take longer to build. `memory.rs` is one, since it counts allocations.

mod background;
mod basic;
mod beside;
mod cleaner_steps;
mod cleaning;
mod crash;
mod crash_bands;
mod crash_damage;
mod crash_round;
mod crash_salvage;
mod crash_support;
mod damage;
mod drive_support;
mod faults;
mod limits;
mod lost_tails;
mod names;
mod opening;
mod profiles;
mod recovery;
mod relabel;
mod scrub;
mod stranded;
mod support;
mod threads;
