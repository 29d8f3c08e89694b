// A file open for reading and writing anywhere. RocksDB overwrites 8 bytes of a table with it (the global sequence number of an
// ingested file).

#pragma once

#include <string>

#include "handle.h"
#include "rocksdb/file_system.h"

namespace imbrex {

class RandomRWFile final : public rocksdb::FSRandomRWFile {
 public:
  RandomRWFile(std::string path, RandomHandle file) : path_(std::move(path)), file_(std::move(file)) {}

  rocksdb::IOStatus Write(uint64_t offset, const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Read(uint64_t offset, size_t n, const rocksdb::IOOptions& options, rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* dbg) const override;
  rocksdb::IOStatus Flush(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;

 private:
  const std::string path_;
  const RandomHandle file_;
};

}  // namespace imbrex
