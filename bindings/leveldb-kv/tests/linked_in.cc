// leveldb::DB::Open and its like where the plug-in is compiled into the program, as for the sanitizers: no loader in between, and all paths
// are on the drive.

#include <cstdlib>

// LevelDB's C functions call them, too.
#pragma GCC visibility push(default)
#include "leveldb/db.h"
#pragma GCC visibility pop

#include "drive_path.h"
#include "plugin.h"

namespace leveldb {

namespace {

std::string Uri() { return imbrex::DriveUri(getenv(imbrex::kDriveVariable)); }

}  // namespace

Status DB::Open(const Options& options, const std::string& path, DB** database) {
  Status status;
  imbrex_leveldb_kv_open(Uri(), path, options, database, &status);
  return status;
}

Status DestroyDB(const std::string& path, const Options& options) {
  Status status;
  imbrex_leveldb_kv_destroy(Uri(), path, options, &status);
  return status;
}

Status RepairDB(const std::string& path, const Options& options) {
  Status status;
  imbrex_leveldb_kv_repair(Uri(), path, options, &status);
  return status;
}

}  // namespace leveldb
