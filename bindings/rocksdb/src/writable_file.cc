#include "writable_file.h"

#include "status.h"
#include "unique_id.h"

namespace imbrex {

using rocksdb::Env;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// RocksDB's numbers of hints and priorities are the C API's: no table in between can go wrong.
static_assert(Env::WLTH_NOT_SET == static_cast<int>(IMBREX_HINT_NOT_SET));
static_assert(Env::WLTH_NONE == static_cast<int>(IMBREX_HINT_NONE));
static_assert(Env::WLTH_SHORT == static_cast<int>(IMBREX_HINT_SHORT));
static_assert(Env::WLTH_MEDIUM == static_cast<int>(IMBREX_HINT_MEDIUM));
static_assert(Env::WLTH_LONG == static_cast<int>(IMBREX_HINT_LONG));
static_assert(Env::WLTH_EXTREME == static_cast<int>(IMBREX_HINT_EXTREME));
static_assert(Env::IO_LOW == static_cast<int>(IMBREX_PRIORITY_LOW));
static_assert(Env::IO_MID == static_cast<int>(IMBREX_PRIORITY_MID));
static_assert(Env::IO_HIGH == static_cast<int>(IMBREX_PRIORITY_HIGH));
static_assert(Env::IO_USER == static_cast<int>(IMBREX_PRIORITY_USER));
static_assert(Env::IO_TOTAL == static_cast<int>(IMBREX_PRIORITY_NOT_SET));

IOStatus WritableFile::Append(const Slice& data, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return ToStatus(imbrex_writer_append(writer_.get(), data.data(), data.size()), path_);
}

IOStatus WritableFile::Truncate(uint64_t size, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return ToStatus(imbrex_writer_truncate(writer_.get(), size), path_);
}

IOStatus WritableFile::Close(const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return ToStatus(imbrex_writer_close(writer_.get()), path_);
}

IOStatus WritableFile::Flush(const IOOptions& /*options*/, IODebugContext* /*dbg*/) { return IOStatus::OK(); }

IOStatus WritableFile::Sync(const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return ToStatus(imbrex_writer_sync(writer_.get()), path_);
}

void WritableFile::SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) {
  write_hint_ = hint;
  imbrex_error_free(imbrex_writer_set_hint(writer_.get(), static_cast<uint32_t>(hint)));
}

void WritableFile::SetIOPriority(Env::IOPriority priority) {
  io_priority_ = priority;
  imbrex_error_free(imbrex_writer_set_priority(writer_.get(), static_cast<uint32_t>(priority)));
}

uint64_t WritableFile::GetFileSize(const IOOptions& /*options*/, IODebugContext* /*dbg*/) { return imbrex_writer_size(writer_.get()); }

size_t WritableFile::GetUniqueId(char* id, size_t max_size) const {
  return UniqueId(imbrex_writer_serial(writer_.get()), id, max_size);
}

IOStatus WritableFile::InvalidateCache(size_t /*offset*/, size_t /*length*/) { return IOStatus::OK(); }

// RocksDB asks for this to spread writeback over time (bytes_per_sync). Large appends go to the drive as they fill a segment anyway.
IOStatus WritableFile::RangeSync(uint64_t offset, uint64_t nbytes, const IOOptions& options, IODebugContext* dbg) {
  return FSWritableFile::RangeSync(offset, nbytes, options, dbg);
}

IOStatus WritableFile::Allocate(uint64_t offset, uint64_t len, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  if (!allow_fallocate_) {
    return IOStatus::OK();
  }
  return ToStatus(imbrex_writer_preallocate(writer_.get(), offset + len), path_);
}

}  // namespace imbrex
