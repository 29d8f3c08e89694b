//! Floor 4: an object store with transactions, clones and checksums, on raw zones. Its metadata are in a key-value store, its data in zones (BlueStore, TOS 2020).
//!
//! `docs/bluestore.md` walks through it.

mod apply;
mod blob;
mod care;
mod check;
mod clean;
mod cleaning;
mod codec;
mod commit;
mod compress;
mod core;
mod counts;
mod data;
mod defragment;
mod derive;
mod draft;
mod fetch;
mod fullness;
mod fuzz;
mod id;
pub mod keyvalue;
mod layer;
mod lock;
mod omap;
mod onode;
mod pack;
mod parts;
mod read;
mod recount;
mod repair;
mod right;
mod rounds;
mod run;
mod scrub;
mod store;
mod super_block;
mod table;
mod transaction;
mod write;

pub use apply::{MAX_ATTRIBUTE, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTES};
pub use check::Report;
pub use compress::Compression;
pub use core::Options;
pub use defragment::Defragmented;
pub use fullness::Fullness;
pub use fuzz::fuzz_records;
pub use id::{CollectionId, MAX_NAME, ObjectId};
pub use keyvalue::{Change, Family, KeyValue, Pair};
pub use omap::{MAX_OMAP_KEY, MAX_OMAP_VALUE};
pub use onode::{Hint, MAX_OBJECT};
pub use read::{Page, Stat};
pub use repair::{Mend, Repaired};
pub use scrub::{Damage, Scrub};
pub use store::{BUDGET, BlueStore, NAME, Survives, Ticket, Usage};
pub use transaction::Transaction;
