//! Metadata of object stores in RocksDB: loads `librocksdb_kv_imbrex-<version of RocksDB>.so`, which has RocksDB, and hands it what it calls of this API.
//!
//! That library is linked with RocksDB alone. It asks nobody for `imbrex_*`: a program that has Imbrex in itself, as the command, would get a second engine
//! from libimbrex.so, which finds the drive taken. So this works in both, from one table.
//!
//! - `host`: what that library is handed;
//! - `guest`: what it gives, as the store's [`Database`](imbrex_store::rocksdb::Database);
//! - `library`: which file is loaded, and what is said where none can be.

mod guest;
mod host;
mod library;

pub use library::Library;

/// Stores of this process may have their metadata in RocksDB from now on, by the library that stands beside this program or library.
pub fn provide() {
    crate::error::watch_forks();
    imbrex_store::rocksdb::provide(std::sync::Arc::new(Library::beside()));
}
