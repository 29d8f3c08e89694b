//! Nothing: see scripts/test-rocksdb-release.
