//! The time that a drive takes: `docs/drive-model.md` has the formulas and every number's source.
//!
//! [`mechanics`] is where things lie and how long the head takes, [`engine`] what the drive does next, [`translation`] what a
//! drive-managed drive does behind the host's back ([`extents`] is its map), [`params`] the numbers, [`tally`] what is counted, [`ledger`] where, [`kept`] what is
//! remembered from one opening to the next. All of it is a pure
//! function of the commands and their arrivals; only [`clock`] knows threads and the world's time; [`timeline`] is
//! for who has neither.

mod again;
mod calibrate;
pub(crate) mod clock;
pub(crate) mod engine;
mod extents;
mod frozen;
pub(crate) mod kept;
pub(crate) mod ledger;
mod mechanics;
mod model;
mod params;
mod replay;
mod tally;
mod timeline;
mod translation;

pub use again::Recording;
pub use calibrate::{answer, synchronous_log};
pub use clock::{Latency, Pace, PersistentCache, Seconds, TimeStats};
pub use frozen::{fingerprint, fingerprint_of, formulas};
pub use kept::{Kept, decode_kept};
pub use model::{MOST_SCALE, Mechanics, Model, parse_scale};
pub use params::{NAMES, Parameter, Params};
pub use replay::{Replay, replay};
pub use tally::Kind;
pub use timeline::{Ticket, Timeline};
