// A file open for appending.

#pragma once

#include <string>

#include "handle.h"
#include "rocksdb/file_system.h"

namespace imbrex {

// What Append took survives a kill of the process, what Sync confirmed survives a power loss. Flush and RangeSync cost nothing and do
// nothing: RocksDB calls Flush after every put. Sync may run beside Append. GetFileSize is exact, bytes that are not yet synced included.
class WritableFile final : public rocksdb::FSWritableFile {
 public:
  WritableFile(std::string path, const rocksdb::FileOptions& options, WriterHandle writer)
      : FSWritableFile(options), path_(std::move(path)), allow_fallocate_(options.allow_fallocate), writer_(std::move(writer)) {}

  using FSWritableFile::Append;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Flush(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  bool IsSyncThreadSafe() const override { return true; }
  void SetWriteLifeTimeHint(rocksdb::Env::WriteLifeTimeHint hint) override;
  void SetIOPriority(rocksdb::Env::IOPriority priority) override;
  uint64_t GetFileSize(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  size_t GetUniqueId(char* id, size_t max_size) const override;
  rocksdb::IOStatus InvalidateCache(size_t offset, size_t length) override;
  rocksdb::IOStatus RangeSync(uint64_t offset, uint64_t nbytes, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Allocate(uint64_t offset, uint64_t len, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;

 private:
  const std::string path_;
  const bool allow_fallocate_;
  const WriterHandle writer_;
};

}  // namespace imbrex
