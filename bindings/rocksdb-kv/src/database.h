// The metadata of an object store in RocksDB: families are column families, one write-ahead log is for all.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "handle.h"
#include "guest.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"

namespace imbrex {

class Database {
 public:
  // Opens the database in the files of `fs`, or makes it if `options.create` allows that.
  static rocksdb::Status Open(FsHandle fs, const imbrex_rocks_options& options, std::unique_ptr<Database>* out);
  ~Database();

  rocksdb::Status Get(uint32_t family, const rocksdb::Slice& key, void* context, imbrex_rocks_taker take) const;
  bool GetWouldRead(uint32_t family, const rocksdb::Slice& key) const;
  rocksdb::Status Pairs(const imbrex_rocks_range& range, void* context, imbrex_rocks_taker take) const;
  rocksdb::Status Write(const imbrex_rocks_change* changes, size_t count);
  rocksdb::Status Sync();
  rocksdb::Status MakeRoom();
  // What is wrong with the tables is a Corruption.
  rocksdb::Status Check() const;
  // From now on writes and syncs fail, if this is a failure: what follows may not be kept. Returns the same.
  rocksdb::Status NoteFailure(const rocksdb::Status& status);

 private:
  Database() = default;
  rocksdb::Status OpenWith(const rocksdb::DBOptions& options, const rocksdb::ColumnFamilyOptions& of_family,
                           const imbrex_rocks_options& given);
  rocksdb::Status Failure() const;
  rocksdb::ColumnFamilyHandle* Family(uint32_t family) const;
  rocksdb::Status DeleteRange(rocksdb::WriteBatch* batch, const imbrex_rocks_change& change) const;

  // The database goes before the Env that it uses.
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
  bool look_ = false;
  mutable std::mutex mutex_;
  // The first that failed.
  rocksdb::Status failure_;
};

}  // namespace imbrex
