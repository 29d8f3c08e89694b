// The store on the drive as LevelDB's static functions see it: which databases this process has open, and with which comparators.

#pragma once

#include <map>
#include <mutex>
#include <string>

#include "handle.h"
#include "leveldb/db.h"
#include "leveldb/options.h"
#include "leveldb/status.h"

namespace imbrex {

// A database is a space of the store. The store is open, and so the drive is held, while a database of it is.
//
// A store has one memory and merges the tables of all its databases together. So it needs every database's comparator while it is open,
// where LevelDB needs one only while that database is. A comparator in static storage is there as long as the process. Any other may be
// destroyed with its database: such a database has the store to itself.
class Store {
 public:
  static Store& OfProcess();

  leveldb::Status Open(const std::string& uri, const std::string& path, const leveldb::Options& options, leveldb::DB** database);
  leveldb::Status Destroy(const std::string& uri, const std::string& path, const leveldb::Options& options);
  leveldb::Status Repair(const std::string& uri, const std::string& path, const leveldb::Options& options);

  // A database of this path is closed; `handle` is what it had.
  void Close(const std::string& path, KvHandle handle) noexcept;

 private:
  // A path that nobody else has meanwhile.
  class Claim;


  std::mutex mutex_;
  // The open databases, and whether the comparator of each may be destroyed with it.
  std::map<std::string, bool> open_;
};

}  // namespace imbrex
