//! Object stores whose metadata are in RocksDB: the library beside this crate is loaded, as the command and libimbrex.so do.

#[path = "../../../../crates/bluestore/tests/support/mod.rs"]
mod support;

mod apart;
mod choice;
mod damage;
mod faults;
mod faulty;
mod full;
mod lost;
mod model;
mod pairs;

use imbrex::rocksdb::Library;
use imbrex_device::{Drive, Result, ZonedDevice};
use imbrex_emulator::Config;
use imbrex_store::{MetadataIn, Options, Store};
use imbrex_zones::{Exec, VolumeOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Once, OnceLock};

/// Where the library with RocksDB is: what `make build` has built, or else what its script builds for these tests.
fn directory() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if std::env::var_os("IMBREX_TEST_BUILT").is_some() {
            return std::env::var_os("BUILD_DIR").map_or_else(|| root.join("build"), PathBuf::from);
        }
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rocksdb-kv");
        std::fs::create_dir_all(&out).unwrap();
        let (from, to) = (root.join("bindings/c/imbrex.h"), out.join("imbrex.h"));
        // What is newer is built anew.
        if std::fs::read(&from).unwrap() != std::fs::read(&to).unwrap_or_default() {
            std::fs::copy(from, to).unwrap();
        }
        let built = Command::new(root.join("bindings/rocksdb-kv/build.sh")).arg(&out).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        out
    })
}

/// Stores of this process find RocksDB from now on.
fn provide() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| imbrex_store::rocksdb::provide(Arc::new(Library::of(vec![directory().to_owned()]))));
}

/// 160 zones of 256 KiB, two of them conventional.
fn config() -> Config {
    Config { capacity: 40 << 20, ..support::config() }
}

fn options() -> Options {
    let volume = VolumeOptions { exec: Exec::Inline, survivor_bytes: 512 << 10, ..VolumeOptions::default() };
    let metadata =
        imbrex_kv::Options { memtable_bytes: 64 << 10, cache_bytes: 1 << 20, ..imbrex_kv::Options::default() };
    Options { store: support::packed(), metadata, metadata_in: Some(MetadataIn::RocksDb), volume, ..Options::default() }
}

fn format(drive: &Drive) -> Result<()> {
    provide();
    Store::format_with(drive, MetadataIn::RocksDb, Some([7; 16]), false)
}

fn drive_of(device: Arc<dyn ZonedDevice>) -> Drive {
    Drive { device, survivor: None }
}
