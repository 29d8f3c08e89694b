#include "drive_env.h"

#include <utility>

#include "files.h"
#include "path.h"
#include "status.h"

namespace imbrex {

using leveldb::Status;

namespace {

// Opens with `open(fs, path, out)` and makes a `File` of the handle. LevelDB demands that `*result` is null after a failure.
template <typename File, typename Handle, typename Raw, typename Result>
Status OpenAs(imbrex_error* (*open)(const imbrex_fs*, const char*, Raw**), const imbrex_fs* fs, const std::string& path, Result** result) {
  *result = nullptr;
  return Guarded([&] {
    std::string absolute = Absolute(path);
    Raw* raw = nullptr;
    Status status = ToStatus(open(fs, absolute.c_str(), &raw), absolute);
    Handle handle(raw);
    if (status.ok()) {
      *result = new File(std::move(absolute), std::move(handle));
    }
    return status;
  });
}

// Runs an operation of the C API that takes nothing but a path.
Status OnPath(imbrex_error* (*operation)(const imbrex_fs*, const char*), const imbrex_fs* fs, const std::string& path) {
  return Guarded([&] {
    const std::string absolute = Absolute(path);
    return ToStatus(operation(fs, absolute.c_str()), absolute);
  });
}

Status Stat(const imbrex_fs* fs, const std::string& path, imbrex_attributes* attributes) {
  return Guarded([&] {
    const std::string absolute = Absolute(path);
    return ToStatus(imbrex_fs_stat(fs, absolute.c_str(), attributes), absolute);
  });
}

}  // namespace

Status DriveEnv::NewSequentialFile(const std::string& path, leveldb::SequentialFile** result) {
  return OpenAs<SequentialFile, ReaderHandle>(imbrex_reader_open, fs_.get(), path, result);
}

Status DriveEnv::NewRandomAccessFile(const std::string& path, leveldb::RandomAccessFile** result) {
  return OpenAs<RandomAccessFile, ReaderHandle>(imbrex_reader_open, fs_.get(), path, result);
}

Status DriveEnv::NewWritableFile(const std::string& path, leveldb::WritableFile** result) {
  return OpenAs<WritableFile, WriterHandle>(imbrex_writer_create, fs_.get(), path, result);
}

Status DriveEnv::NewAppendableFile(const std::string& path, leveldb::WritableFile** result) {
  return OpenAs<WritableFile, WriterHandle>(imbrex_writer_reopen, fs_.get(), path, result);
}

Status DriveEnv::NewLogger(const std::string& path, leveldb::Logger** result) {
  return OpenAs<Logger, WriterHandle>(imbrex_writer_create, fs_.get(), path, result);
}

bool DriveEnv::FileExists(const std::string& path) {
  imbrex_attributes attributes;
  return Stat(fs_.get(), path, &attributes).ok();
}

Status DriveEnv::GetChildren(const std::string& path, std::vector<std::string>* result) {
  return Guarded([&] {
    result->clear();
    const std::string absolute = Absolute(path);
    imbrex_list* raw = nullptr;
    Status status = ToStatus(imbrex_fs_list(fs_.get(), absolute.c_str(), &raw), absolute);
    const ListHandle list(raw);
    const size_t count = status.ok() ? imbrex_list_len(list.get()) : 0;
    result->reserve(count + 2);
    if (status.ok()) {
      // LevelDB's own Env lists these two, which readdir gives it, and programs count on them.
      result->insert(result->end(), {".", ".."});
    }
    for (size_t i = 0; i < count; ++i) {
      result->emplace_back(imbrex_list_name(list.get(), i));
    }
    return status;
  });
}

Status DriveEnv::GetFileSize(const std::string& path, uint64_t* size) {
  imbrex_attributes attributes;
  Status status = Stat(fs_.get(), path, &attributes);
  *size = status.ok() ? attributes.size : 0;
  return status;
}

Status DriveEnv::GetTestDirectory(std::string* path) {
  return Guarded([&] {
    *path = "/leveldbtest";
    imbrex_error* const error = imbrex_fs_mkdir(fs_.get(), path->c_str());
    if (imbrex_error_code(error) == IMBREX_EXISTS) {
      imbrex_error_free(error);
      return Status::OK();
    }
    return ToStatus(error, *path);
  });
}

Status DriveEnv::RemoveFile(const std::string& path) { return OnPath(imbrex_fs_unlink, fs_.get(), path); }
Status DriveEnv::CreateDir(const std::string& path) { return OnPath(imbrex_fs_mkdir, fs_.get(), path); }
Status DriveEnv::RemoveDir(const std::string& path) { return OnPath(imbrex_fs_rmdir, fs_.get(), path); }

Status DriveEnv::RenameFile(const std::string& from, const std::string& to) {
  return Guarded([&] {
    const std::string absolute = Absolute(from);
    return ToStatus(imbrex_fs_rename(fs_.get(), absolute.c_str(), Absolute(to).c_str()), absolute);
  });
}

Status DriveEnv::LockFile(const std::string& path, leveldb::FileLock** lock) {
  return OpenAs<FileLock, LockHandle>(imbrex_fs_lock, fs_.get(), path, lock);
}

Status DriveEnv::UnlockFile(leveldb::FileLock* lock) {
  delete static_cast<FileLock*>(lock);
  return Status::OK();
}

}  // namespace imbrex
