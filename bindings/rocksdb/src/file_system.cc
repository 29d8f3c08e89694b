#include "file_system.h"

#include <utility>

#include "directory.h"
#include "logger.h"
#include "path.h"
#include "random_rw_file.h"
#include "readers.h"
#include "status.h"
#include "writable_file.h"

namespace imbrex {

using rocksdb::FileAttributes;
using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

namespace {

constexpr uint64_t kNanosecondsPerSecond = 1000 * 1000 * 1000;

class Lock final : public rocksdb::FileLock {
 public:
  explicit Lock(LockHandle handle) : handle_(std::move(handle)) {}

 private:
  const LockHandle handle_;
};

// Opens with `open(fs, path, out)` and makes a `File` of the handle. RocksDB demands that `*result` is null after a failure.
template <typename File, typename Handle, typename Raw, typename Result, typename... Rest>
IOStatus OpenAs(imbrex_error* (*open)(const imbrex_fs*, const char*, Raw**), const imbrex_fs* fs, const std::string& path,
                Result* result, const Rest&... rest) {
  result->reset();
  return Guarded([&] {
    std::string absolute = Absolute(path);
    Raw* raw = nullptr;
    IOStatus status = ToStatus(open(fs, absolute.c_str(), &raw), absolute);
    Handle handle(raw);
    if (status.ok()) {
      result->reset(new File(std::move(absolute), rest..., std::move(handle)));
    }
    return status;
  });
}

imbrex_error* OpenRandom(const imbrex_fs* fs, const char* path, imbrex_random** out) {
  return imbrex_random_open(fs, path, /*create=*/true, out);
}

IOStatus Stat(const imbrex_fs* fs, const std::string& path, imbrex_attributes* attributes) {
  return Guarded([&] {
    const std::string absolute = Absolute(path);
    return ToStatus(imbrex_fs_stat(fs, absolute.c_str(), attributes), absolute);
  });
}

// Runs an operation of the C API that takes nothing but a path.
IOStatus OnPath(imbrex_error* (*operation)(const imbrex_fs*, const char*), const imbrex_fs* fs, const std::string& path) {
  return Guarded([&] {
    const std::string absolute = Absolute(path);
    return ToStatus(operation(fs, absolute.c_str()), absolute);
  });
}

IOStatus OnTwoPaths(imbrex_error* (*operation)(const imbrex_fs*, const char*, const char*), const imbrex_fs* fs,
                    const std::string& from, const std::string& to) {
  return Guarded([&] {
    const std::string absolute = Absolute(from);
    return ToStatus(operation(fs, absolute.c_str(), Absolute(to).c_str()), absolute);
  });
}

IOStatus List(const imbrex_fs* fs, const std::string& path, ListHandle* list) {
  const std::string absolute = Absolute(path);
  imbrex_list* raw = nullptr;
  IOStatus status = ToExistence(imbrex_fs_list(fs, absolute.c_str(), &raw), absolute);
  list->reset(raw);
  return status;
}

}  // namespace

rocksdb::Status FileSystem::PrepareOptions(const rocksdb::ConfigOptions& options) {
  return refusal_.ok() ? rocksdb::FileSystem::PrepareOptions(options) : static_cast<rocksdb::Status>(refusal_);
}

// ---- Opening

IOStatus FileSystem::NewSequentialFile(const std::string& path, const FileOptions& /*options*/,
                                       std::unique_ptr<rocksdb::FSSequentialFile>* result, IODebugContext* /*dbg*/) {
  return OpenAs<SequentialFile, ReaderHandle>(imbrex_reader_open, fs_.get(), path, result);
}

IOStatus FileSystem::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                         std::unique_ptr<rocksdb::FSRandomAccessFile>* result, IODebugContext* /*dbg*/) {
  if (options.use_mmap_reads) {
    result->reset();
    return Guarded([&] { return IOStatus::NotSupported(path, "Imbrex cannot map files into memory; set allow_mmap_reads to false"); });
  }
  return OpenAs<RandomAccessFile, ReaderHandle>(imbrex_reader_open, fs_.get(), path, result);
}

IOStatus FileSystem::NewWritableFile(const std::string& path, const FileOptions& options,
                                     std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* /*dbg*/) {
  return OpenAs<WritableFile, WriterHandle>(imbrex_writer_create, fs_.get(), path, result, options);
}

IOStatus FileSystem::ReopenWritableFile(const std::string& path, const FileOptions& options,
                                        std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* /*dbg*/) {
  return OpenAs<WritableFile, WriterHandle>(imbrex_writer_reopen, fs_.get(), path, result, options);
}

// The old file's zones cannot be written again without a reset, so reuse is a new file in its place.
IOStatus FileSystem::ReuseWritableFile(const std::string& path, const std::string& old_path, const FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* dbg) {
  result->reset();
  IOStatus status = RenameFile(old_path, path, options.io_options, dbg);
  return status.ok() ? NewWritableFile(path, options, result, dbg) : status;
}

IOStatus FileSystem::NewRandomRWFile(const std::string& path, const FileOptions& /*options*/,
                                     std::unique_ptr<rocksdb::FSRandomRWFile>* result, IODebugContext* /*dbg*/) {
  return OpenAs<RandomRWFile, RandomHandle>(OpenRandom, fs_.get(), path, result);
}

IOStatus FileSystem::NewDirectory(const std::string& path, const IOOptions& /*options*/,
                                  std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext* /*dbg*/) {
  result->reset();
  return Guarded([&] {
    std::string absolute = Absolute(path);
    imbrex_attributes attributes;
    IOStatus status = Stat(fs_.get(), absolute, &attributes);
    if (status.ok() && attributes.kind != IMBREX_DIRECTORY) {
      status = IOStatus::IOError(absolute, "is a file, not a directory");
    }
    if (status.ok()) {
      result->reset(new Directory(std::move(absolute), attributes.serial, FsHandle(imbrex_fs_clone(fs_.get()))));
    }
    return status;
  });
}

IOStatus FileSystem::NewLogger(const std::string& path, const IOOptions& /*options*/, std::shared_ptr<rocksdb::Logger>* result,
                               IODebugContext* /*dbg*/) {
  return OpenAs<FileLogger, WriterHandle>(imbrex_writer_create, fs_.get(), path, result);
}

// ---- Looking

IOStatus FileSystem::FileExists(const std::string& path, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return Guarded([&] {
    const std::string absolute = Absolute(path);
    imbrex_attributes attributes;
    return ToExistence(imbrex_fs_stat(fs_.get(), absolute.c_str(), &attributes), absolute);
  });
}

IOStatus FileSystem::IsDirectory(const std::string& path, const IOOptions& /*options*/, bool* is_dir, IODebugContext* /*dbg*/) {
  imbrex_attributes attributes;
  IOStatus status = Stat(fs_.get(), path, &attributes);
  if (status.ok()) {
    *is_dir = attributes.kind == IMBREX_DIRECTORY;
  }
  return status;
}

IOStatus FileSystem::GetChildren(const std::string& path, const IOOptions& /*options*/, std::vector<std::string>* result,
                                 IODebugContext* /*dbg*/) {
  return Guarded([&] {
    result->clear();
    ListHandle list;
    IOStatus status = List(fs_.get(), path, &list);
    const size_t count = status.ok() ? imbrex_list_len(list.get()) : 0;
    result->reserve(count);
    for (size_t i = 0; i < count; ++i) {
      result->emplace_back(imbrex_list_name(list.get(), i));
    }
    return status;
  });
}

IOStatus FileSystem::GetChildrenFileAttributes(const std::string& path, const IOOptions& /*options*/,
                                               std::vector<FileAttributes>* result, IODebugContext* /*dbg*/) {
  return Guarded([&] {
    result->clear();
    ListHandle list;
    IOStatus status = List(fs_.get(), path, &list);
    const size_t count = status.ok() ? imbrex_list_len(list.get()) : 0;
    result->reserve(count);
    for (size_t i = 0; i < count; ++i) {
      imbrex_attributes attributes;
      imbrex_list_attributes(list.get(), i, &attributes);
      result->push_back({imbrex_list_name(list.get(), i), attributes.size});
    }
    return status;
  });
}

IOStatus FileSystem::GetFileSize(const std::string& path, const IOOptions& /*options*/, uint64_t* size, IODebugContext* /*dbg*/) {
  imbrex_attributes attributes;
  IOStatus status = Stat(fs_.get(), path, &attributes);
  *size = status.ok() ? attributes.size : 0;
  return status;
}

IOStatus FileSystem::GetFileModificationTime(const std::string& path, const IOOptions& /*options*/, uint64_t* seconds,
                                             IODebugContext* /*dbg*/) {
  imbrex_attributes attributes;
  IOStatus status = Stat(fs_.get(), path, &attributes);
  *seconds = status.ok() ? attributes.modified_ns / kNanosecondsPerSecond : 0;
  return status;
}

IOStatus FileSystem::NumFileLinks(const std::string& path, const IOOptions& /*options*/, uint64_t* count, IODebugContext* /*dbg*/) {
  imbrex_attributes attributes;
  IOStatus status = Stat(fs_.get(), path, &attributes);
  *count = status.ok() ? attributes.links : 0;
  return status;
}

IOStatus FileSystem::AreFilesSame(const std::string& first, const std::string& second, const IOOptions& /*options*/, bool* same,
                                  IODebugContext* /*dbg*/) {
  imbrex_attributes a;
  imbrex_attributes b;
  IOStatus status = Stat(fs_.get(), first, &a);
  if (status.ok()) {
    status = Stat(fs_.get(), second, &b);
  }
  *same = status.ok() && a.serial == b.serial;
  return status;
}

IOStatus FileSystem::GetFreeSpace(const std::string& path, const IOOptions& /*options*/, uint64_t* free, IODebugContext* /*dbg*/) {
  imbrex_space space;
  IOStatus status = ToStatus(imbrex_fs_space(fs_.get(), &space), path);
  *free = status.ok() ? space.free : 0;
  return status;
}

IOStatus FileSystem::GetAbsolutePath(const std::string& path, const IOOptions& /*options*/, std::string* result,
                                     IODebugContext* /*dbg*/) {
  return Guarded([&] {
    *result = Absolute(path);
    return IOStatus::OK();
  });
}

IOStatus FileSystem::GetTestDirectory(const IOOptions& options, std::string* result, IODebugContext* dbg) {
  return Guarded([&] {
    *result = "/rocksdbtest";
    return CreateDirIfMissing(*result, options, dbg);
  });
}

#if ROCKSDB_MAJOR > 8 || (ROCKSDB_MAJOR == 8 && ROCKSDB_MINOR >= 10)
void FileSystem::SupportedOps(int64_t& supported_ops) {
  rocksdb::FileSystem::SupportedOps(supported_ops);
  supported_ops &= ~(int64_t{1} << rocksdb::FSSupportedOps::kAsyncIO);
}
#endif

// ---- Changing

IOStatus FileSystem::DeleteFile(const std::string& path, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return OnPath(imbrex_fs_unlink, fs_.get(), path);
}

IOStatus FileSystem::Truncate(const std::string& path, size_t size, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return Guarded([&] {
    const std::string absolute = Absolute(path);
    return ToStatus(imbrex_fs_truncate(fs_.get(), absolute.c_str(), size), absolute);
  });
}

IOStatus FileSystem::CreateDir(const std::string& path, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return OnPath(imbrex_fs_mkdir, fs_.get(), path);
}

IOStatus FileSystem::CreateDirIfMissing(const std::string& path, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return Guarded([&] {
    const std::string absolute = Absolute(path);
    imbrex_error* const error = imbrex_fs_mkdir(fs_.get(), absolute.c_str());
    if (error == nullptr || imbrex_error_code(error) != IMBREX_EXISTS) {
      return ToStatus(error, absolute);
    }
    const ErrorHandle exists(error);
    imbrex_attributes attributes;
    IOStatus status = Stat(fs_.get(), absolute, &attributes);
    if (status.ok() && attributes.kind != IMBREX_DIRECTORY) {
      status = IOStatus::IOError(absolute, "exists, and is a file, not a directory");
    }
    return status;
  });
}

IOStatus FileSystem::DeleteDir(const std::string& path, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return OnPath(imbrex_fs_rmdir, fs_.get(), path);
}

IOStatus FileSystem::RenameFile(const std::string& from, const std::string& to, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return OnTwoPaths(imbrex_fs_rename, fs_.get(), from, to);
}

IOStatus FileSystem::LinkFile(const std::string& from, const std::string& to, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  return OnTwoPaths(imbrex_fs_link, fs_.get(), from, to);
}

// ---- Locks

IOStatus FileSystem::LockFile(const std::string& path, const IOOptions& /*options*/, rocksdb::FileLock** lock, IODebugContext* /*dbg*/) {
  *lock = nullptr;
  return Guarded([&] {
    const std::string absolute = Absolute(path);
    imbrex_lock* raw = nullptr;
    IOStatus status = ToStatus(imbrex_fs_lock(fs_.get(), absolute.c_str(), &raw), absolute);
    LockHandle handle(raw);
    if (status.ok()) {
      *lock = new Lock(std::move(handle));
    }
    return status;
  });
}

IOStatus FileSystem::UnlockFile(rocksdb::FileLock* lock, const IOOptions& /*options*/, IODebugContext* /*dbg*/) {
  delete static_cast<Lock*>(lock);
  return IOStatus::OK();
}

}  // namespace imbrex
