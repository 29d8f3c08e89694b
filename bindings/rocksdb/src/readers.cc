#include "readers.h"

#include <algorithm>

#include "status.h"
#include "unique_id.h"

namespace imbrex {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

IOStatus ReadAt(const imbrex_reader* reader, const std::string& path, uint64_t offset, size_t n, Slice* result, char* scratch) {
  *result = Slice();
  if (n == 0) {
    return IOStatus::OK();
  }
  if (scratch == nullptr) {
    return Guarded([&] {
      return IOStatus::NotSupported(path, "Imbrex cannot map files into memory; set allow_mmap_reads to false and use block-based tables");
    });
  }
  size_t got = 0;
  IOStatus status = ToStatus(imbrex_reader_read(reader, offset, scratch, n, &got), path);
  if (status.ok()) {
    *result = Slice(scratch, got);
  }
  return status;
}

}  // namespace

IOStatus SequentialFile::Read(size_t n, const IOOptions& /*options*/, Slice* result, char* scratch, IODebugContext* /*dbg*/) {
  IOStatus status = ReadAt(reader_.get(), path_, position_, n, result, scratch);
  position_ += result->size();
  return status;
}

IOStatus SequentialFile::PositionedRead(uint64_t offset, size_t n, const IOOptions& /*options*/, Slice* result, char* scratch,
                                        IODebugContext* /*dbg*/) {
  return ReadAt(reader_.get(), path_, offset, n, result, scratch);
}

IOStatus SequentialFile::Skip(uint64_t n) {
  const uint64_t size = imbrex_reader_size(reader_.get());
  position_ += std::min(n, size - std::min(size, position_));
  return IOStatus::OK();
}

// The drive's cache is bounded by its own size and holds nothing but what the drive holds: there is nothing to drop.
IOStatus SequentialFile::InvalidateCache(size_t /*offset*/, size_t /*length*/) { return IOStatus::OK(); }
IOStatus RandomAccessFile::InvalidateCache(size_t /*offset*/, size_t /*length*/) { return IOStatus::OK(); }

IOStatus RandomAccessFile::Read(uint64_t offset, size_t n, const IOOptions& /*options*/, Slice* result, char* scratch,
                                IODebugContext* /*dbg*/) const {
  return ReadAt(reader_.get(), path_, offset, n, result, scratch);
}

IOStatus RandomAccessFile::Prefetch(uint64_t offset, size_t n, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return ToStatus(imbrex_reader_readahead(reader_.get(), offset, n), path_);
}

size_t RandomAccessFile::GetUniqueId(char* id, size_t max_size) const {
  return UniqueId(imbrex_reader_serial(reader_.get()), id, max_size);
}

#if ROCKSDB_MAJOR >= 11
IOStatus RandomAccessFile::GetFileSize(uint64_t* result) {
  *result = imbrex_reader_size(reader_.get());
  return IOStatus::OK();
}
#endif

void RandomAccessFile::Hint(AccessPattern pattern) {
  uint32_t value = IMBREX_PATTERN_NORMAL;
  if (pattern == kRandom) {
    value = IMBREX_PATTERN_RANDOM;
  } else if (pattern == kSequential) {
    value = IMBREX_PATTERN_SEQUENTIAL;
  }
  imbrex_error_free(imbrex_reader_set_pattern(reader_.get(), value));
}

}  // namespace imbrex
