// leveldb::DB on a space of the key-value store, through the C API of Imbrex.

#pragma once

#include <mutex>
#include <set>
#include <string>

#include "handle.h"
#include "leveldb/db.h"

namespace imbrex {

class Database final : public leveldb::DB {
 public:
  Database(std::string path, KvHandle kv) : path_(std::move(path)), kv_(std::move(kv)) {}
  // Frees snapshots that were not released: the store would stay open with them.
  ~Database() override;

  leveldb::Status Put(const leveldb::WriteOptions& options, const leveldb::Slice& key, const leveldb::Slice& value) override;
  leveldb::Status Delete(const leveldb::WriteOptions& options, const leveldb::Slice& key) override;
  // All changes of the batch, or none. Without a batch, as LevelDB's own functions call it: makes tables of what is in memory.
  leveldb::Status Write(const leveldb::WriteOptions& options, leveldb::WriteBatch* updates) override;
  leveldb::Status Get(const leveldb::ReadOptions& options, const leveldb::Slice& key, std::string* value) override;
  leveldb::Iterator* NewIterator(const leveldb::ReadOptions& options) noexcept override;
  const leveldb::Snapshot* GetSnapshot() noexcept override;
  void ReleaseSnapshot(const leveldb::Snapshot* snapshot) noexcept override;
  bool GetProperty(const leveldb::Slice& property, std::string* value) noexcept override;
  void GetApproximateSizes(const leveldb::Range* ranges, int n, uint64_t* sizes) override;
  void CompactRange(const leveldb::Slice* begin, const leveldb::Slice* end) override;

 private:
  class Moment;

  const std::string path_;
  KvHandle kv_;
  std::mutex mutex_;
  std::set<const Moment*> snapshots_;
};

}  // namespace imbrex
