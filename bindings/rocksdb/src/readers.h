// Files open for reading.

#pragma once

#include <string>

#include "handle.h"
#include "rocksdb/file_system.h"
#include "rocksdb/version.h"

namespace imbrex {

// Reads a file from its beginning. A read is short only at the end of the file, and may be repeated there: it then goes on with what
// was appended meanwhile, which is how RocksDB follows a WAL that is still being written.
class SequentialFile final : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(std::string path, ReaderHandle reader) : path_(std::move(path)), reader_(std::move(reader)) {}

  rocksdb::IOStatus Read(size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus PositionedRead(uint64_t offset, size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result,
                                   char* scratch, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Skip(uint64_t n) override;
  rocksdb::IOStatus InvalidateCache(size_t offset, size_t length) override;

 private:
  const std::string path_;
  const ReaderHandle reader_;
  uint64_t position_ = 0;
};

// Reads a file anywhere, from any number of threads. Reads without a buffer of the caller (memory-mapped files, as plain and cuckoo
// tables want them) are refused.
class RandomAccessFile final : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(std::string path, ReaderHandle reader) : path_(std::move(path)), reader_(std::move(reader)) {}

  rocksdb::IOStatus Read(uint64_t offset, size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* dbg) const override;
  rocksdb::IOStatus Prefetch(uint64_t offset, size_t n, const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  size_t GetUniqueId(char* id, size_t max_size) const override;
#if ROCKSDB_MAJOR >= 11
  rocksdb::IOStatus GetFileSize(uint64_t* result) override;
#endif
  void Hint(AccessPattern pattern) override;
  rocksdb::IOStatus InvalidateCache(size_t offset, size_t length) override;

 private:
  const std::string path_;
  const ReaderHandle reader_;
};

}  // namespace imbrex
