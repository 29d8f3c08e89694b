// Files of the database that are read whole, of which nothing may be left out.

#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "rocksdb/file_system.h"

namespace imbrex {

// The first damage that a reader of such a file has met. Any number of threads may use it.
class Damage {
 public:
  void Note(const rocksdb::IOStatus& status);
  // OK where there was none.
  rocksdb::Status Found() const;
  void Forget();

 private:
  mutable std::mutex mutex_;
  rocksdb::Status found_;
};

// The file system below, whose damaged bytes are failed reads where a file is read from its beginning. RocksDB takes a Corruption in its log for the place where the
// power was lost, and opens without what stands behind it. But bluefs has cut what a loss of power tears when it was mounted: what it calls damaged then was synced.
// Of a failed read RocksDB makes an error.
class WholeFiles final : public rocksdb::FileSystemWrapper {
 public:
  WholeFiles(const std::shared_ptr<rocksdb::FileSystem>& below, std::shared_ptr<Damage> damage)
      : FileSystemWrapper(below), damage_(std::move(damage)) {}

  const char* Name() const override { return "ImbrexWholeFiles"; }
  rocksdb::IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* result, rocksdb::IODebugContext* dbg) override;

 private:
  const std::shared_ptr<Damage> damage_;
};

}  // namespace imbrex
