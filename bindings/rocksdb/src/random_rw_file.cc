#include "random_rw_file.h"

#include "status.h"

namespace imbrex {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

IOStatus RandomRWFile::Write(uint64_t offset, const Slice& data, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return ToStatus(imbrex_random_write(file_.get(), offset, data.data(), data.size()), path_);
}

IOStatus RandomRWFile::Read(uint64_t offset, size_t n, const IOOptions& /*options*/, Slice* result, char* scratch,
                            IODebugContext* /*dbg*/) const {
  size_t got = 0;
  IOStatus status = ToStatus(imbrex_random_read(file_.get(), offset, scratch, n, &got), path_);
  *result = Slice(scratch, status.ok() ? got : 0);
  return status;
}

IOStatus RandomRWFile::Flush(const IOOptions& /*options*/, IODebugContext* /*dbg*/) { return IOStatus::OK(); }

IOStatus RandomRWFile::Sync(const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return ToStatus(imbrex_random_sync(file_.get()), path_);
}

IOStatus RandomRWFile::Close(const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return ToStatus(imbrex_random_close(file_.get()), path_);
}

}  // namespace imbrex
