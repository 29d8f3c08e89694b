// What differs between the releases of RocksDB that the tests are compiled against, 7.8 to 11.8.

#pragma once

#include <memory>

#include "rocksdb/db.h"
#include "rocksdb/version.h"

namespace imbrex {

// Where DB::Open and its like put the database: a unique_ptr from 11 on, a plain pointer before. Filled at the end of the statement:
//
//   std::unique_ptr<rocksdb::DB> db;
//   status = rocksdb::DB::Open(options, path, Into(&db));
class Into {
 public:
  explicit Into(std::unique_ptr<rocksdb::DB>* db) : db_(db) { db_->reset(); }
  Into(const Into&) = delete;
  Into& operator=(const Into&) = delete;
#if ROCKSDB_MAJOR >= 11
  operator std::unique_ptr<rocksdb::DB>*() const { return db_; }
#else
  ~Into() { db_->reset(raw_); }
  operator rocksdb::DB**() { return &raw_; }
#endif

 private:
  std::unique_ptr<rocksdb::DB>* const db_;
#if ROCKSDB_MAJOR < 11
  rocksdb::DB* raw_ = nullptr;
#endif
};

// Ends one DisableFileDeletions.
inline rocksdb::Status EnableFileDeletions(rocksdb::DB* db) {
#if ROCKSDB_MAJOR >= 9
  return db->EnableFileDeletions();
#else
  return db->EnableFileDeletions(/*force=*/false);
#endif
}

}  // namespace imbrex
