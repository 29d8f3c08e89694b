// RocksDB on a zoned drive: what a program that links librocksdb_imbrex.so may call.
//
// Most programs need nothing of this. Loading the library (LD_PRELOAD, or linking with -lrocksdb_imbrex) registers the URI scheme
// "imbrex://" with RocksDB, and then
//
//   rocksdb::Env* env;
//   std::shared_ptr<rocksdb::Env> guard;
//   rocksdb::Env::CreateFromUri(rocksdb::ConfigOptions(), "", "imbrex:///dev/sdb?cache=2G", &env, &guard);
//
// gives an Env on the drive, as do the options --fs_uri of db_bench and ldb. A program that refers to none of the functions below must
// link with -Wl,--no-as-needed, or the linker leaves the library out.
//
// librocksdb_imbrex.so loads the plug-in proper, librocksdb_imbrex-<version>.so, from beside itself. That is built for one minor version
// of RocksDB; in a process with any other nothing is registered, and one sentence on stderr says so.

#pragma once

#include <imbrex.h>

#include <memory>
#include <string>

#include "rocksdb/file_system.h"
#include "rocksdb/options.h"

#if defined(__GNUC__)
#define IMBREX_ROCKSDB_EXPORT __attribute__((visibility("default")))
#else
#define IMBREX_ROCKSDB_EXPORT
#endif

namespace imbrex {

// A FileSystem on a file system of Imbrex that is already open. Takes a reference of its own: the caller keeps `fs` and closes it
// whenever it likes. Returns nullptr when `fs` is null, memory is out, or the librocksdb in this process is of another version than
// the plug-in was built for (AbiMismatch() then says so).
IMBREX_ROCKSDB_EXPORT std::shared_ptr<rocksdb::FileSystem> NewFileSystem(const imbrex_fs* fs);

// Sets in `*options` what suits the drive, and leaves everything else alone: write_buffer_size (256 MiB), target_file_size_base (0.98
// of a zone's capacity, because a compaction's output exceeds its target by half a percent), compaction_readahead_size (2 MiB) and
// max_background_jobs (4).
IMBREX_ROCKSDB_EXPORT rocksdb::IOStatus AdviseOptions(const imbrex_fs* fs, rocksdb::Options* options);

// Why the librocksdb of this process cannot be used with the plug-in, in one sentence; empty when it can.
IMBREX_ROCKSDB_EXPORT const std::string& AbiMismatch();

}  // namespace imbrex
