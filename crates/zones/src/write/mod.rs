//! The room of writing: how what an engine has decided becomes durable. Group commit is here ([`commit`]); the zone writers and their layouts follow.
//!
//! Nothing here calls an engine. An engine writes its log and its zones itself, and says when it has done so.

mod commit;

pub use commit::{Committer, Flushed, Join, Lead, Seq, Written};
