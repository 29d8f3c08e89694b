//! Floor 5: object stores on drives, by URI. [`imbrex_bluestore`] knows a trait for its metadata; here that is the key-value store of the same drive, or RocksDB with its files there.
//!
//! ```
//! use imbrex_store::{CollectionId, ObjectId, Store, Transaction};
//!
//! // A drive in memory; a path or a device elsewhere.
//! let store = Store::open_uri("imbrex://mem:?profile=tiny", &[])?;
//! let (all, name) = (CollectionId { pool: 1, seed: 0 }, ObjectId::new(1, b"", b"greeting"));
//! let mut transaction = Transaction::new();
//! transaction.create_collection(all, 0).write(all, &name, 0, b"hello");
//! store.commit(transaction)?;
//! assert_eq!(store.read(all, &name, 0, 100)?, b"hello");
//! # Ok::<(), imbrex_device::Error>(())
//! ```

mod db;
mod engine;
mod keeper;
mod label;
mod metadata;
mod pace;
mod pair;
pub mod rocksdb;
mod room;
mod salvage;
mod spare;
mod stream;
mod transfer;

pub use db::Db;
pub use engine::{Metrics, Options, Store, Watch};
pub use imbrex_bluestore::salvage::{Salvaged, Walked};
pub use imbrex_bluestore::{
    BlueStore, CacheUse, Change, CollectionId, Damage, Family, Head, Hint, KeyValue, ObjectId, Page, Pair, Repaired,
    Report, Scrub, Stat, Survives, Taker, Ticket, Transaction, Usage,
};
pub use keeper::MetadataIn;
pub use label::{Label, MAX_LABEL_BYTES, MAX_LABEL_PAIRS};
pub use metadata::Metadata;
pub use pair::Link;
pub use salvage::{Salvage, Scratch};
pub use stream::{StreamWriter, fuzz_stream, read_stream};
pub use transfer::{Exported, Import, Of, export};
