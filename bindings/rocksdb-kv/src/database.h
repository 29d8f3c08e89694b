// The metadata of an object store in RocksDB: families are column families, one write-ahead log is for all.

#pragma once

#include <atomic>
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
  // What was deleted becomes room: waits for compactions, and begins some where enough was deleted.
  rocksdb::Status MakeRoom();
  // What is wrong with the tables is a Corruption.
  rocksdb::Status Check() const;
  // From now on writes and syncs fail, if this is a failure: what follows may not be kept. Returns the same.
  rocksdb::Status NoteFailure(const rocksdb::Status& status);
  // A compaction begins.
  void NoteCompaction();

 private:
  explicit Database(size_t families);
  rocksdb::Status OpenWith(const rocksdb::DBOptions& options, const rocksdb::ColumnFamilyOptions& of_family,
                           const imbrex_rocks_options& given);
  rocksdb::Status Failure() const;
  rocksdb::ColumnFamilyHandle* Family(uint32_t family) const;
  rocksdb::Status DeleteRange(rocksdb::WriteBatch* batch, const imbrex_rocks_change& change);
  // How many keys are in a long range, more or less.
  uint64_t KeysOf(rocksdb::ColumnFamilyHandle* family, const rocksdb::Range& range) const;
  void NoteDeleted(uint32_t family, uint64_t keys);
  // Whether so many deleted keys are worth that their family's tables are compacted. This family's number counts RocksDB's own, too.
  bool IsMuch(size_t family, uint64_t deleted) const;
  std::vector<uint64_t> TablesOfLevels(rocksdb::ColumnFamilyHandle* family) const;
  // Whether there are tables that may lie above others.
  bool HasTablesAbove(rocksdb::ColumnFamilyHandle* family) const;
  // Has RocksDB compact each of them with what is one level below.
  rocksdb::Status CompactTablesAbove(rocksdb::ColumnFamilyHandle* family);
  // Until none runs and none is due; or none has run for a while, or too many have, and then it is not quiet.
  rocksdb::Status WaitForCompactions(int most_idle, bool* quiet) const;

  // The database goes before the Env that it uses.
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
  bool look_ = false;
  // Keys of each of `families_` that were deleted since its tables were compacted for room; unknown, and many, after an opening.
  std::vector<std::atomic<uint64_t>> deleted_;
  std::mutex making_room_;
  // Compactions so far.
  std::atomic<uint64_t> begun_{0};
  mutable std::mutex mutex_;
  // The first that failed.
  rocksdb::Status failure_;
};

}  // namespace imbrex
