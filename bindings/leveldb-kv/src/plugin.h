// What the loader calls in the plug-in. `uri`: the drive's, the same in all calls of a process.

#pragma once

#include <string>

#include "leveldb/db.h"
#include "leveldb/options.h"
#include "leveldb/status.h"

#define IMBREX_PLUGIN_EXPORT __attribute__((visibility("default")))

extern "C" {

// Why the plug-in cannot be used in this process, of whose LevelDB `original` is a function; empty when it can.
IMBREX_PLUGIN_EXPORT void imbrex_leveldb_kv_mismatch(const void* original, std::string* mismatch);

// leveldb::DB::Open, DestroyDB and RepairDB for a path under /imbrex/.
IMBREX_PLUGIN_EXPORT void imbrex_leveldb_kv_open(const std::string& uri, const std::string& path, const leveldb::Options& options,
                                                 leveldb::DB** database, leveldb::Status* status);
IMBREX_PLUGIN_EXPORT void imbrex_leveldb_kv_destroy(const std::string& uri, const std::string& path, const leveldb::Options& options,
                                                    leveldb::Status* status);
IMBREX_PLUGIN_EXPORT void imbrex_leveldb_kv_repair(const std::string& uri, const std::string& path, const leveldb::Options& options,
                                                   leveldb::Status* status);

}  // extern "C"
