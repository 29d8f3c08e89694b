// A directory that is open so that its names can be made durable.

#pragma once

#include <string>

#include "handle.h"
#include "rocksdb/file_system.h"
#include "status.h"
#include "unique_id.h"

namespace imbrex {

class Directory final : public rocksdb::FSDirectory {
 public:
  Directory(std::string path, uint64_t serial, FsHandle fs) : path_(std::move(path)), serial_(serial), fs_(std::move(fs)) {}

  // Also serves FsyncWithDirOptions, whose reasons make no difference here: one journal holds all names.
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& /*options*/, rocksdb::IODebugContext* /*dbg*/) override {
    return ToStatus(imbrex_fs_sync_directory(fs_.get(), path_.c_str()), path_);
  }
  rocksdb::IOStatus Close(const rocksdb::IOOptions& /*options*/, rocksdb::IODebugContext* /*dbg*/) override {
    return rocksdb::IOStatus::OK();
  }
  size_t GetUniqueId(char* id, size_t max_size) const override { return UniqueId(serial_, id, max_size); }

 private:
  const std::string path_;
  const uint64_t serial_;
  // A reference of its own: RocksDB may keep a directory longer than the FileSystem object.
  const FsHandle fs_;
};

}  // namespace imbrex
