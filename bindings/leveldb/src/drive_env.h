// leveldb::Env on the C API of Imbrex: all paths are on the drive. Thin: it translates names and errors, and keeps no state of files.
// Threads, time and sleep are those of LevelDB's own Env.

#pragma once

#include <string>
#include <vector>

#include "handle.h"
#include "leveldb/env.h"

namespace imbrex {

class DriveEnv final : public leveldb::EnvWrapper {
 public:
  DriveEnv(leveldb::Env* original, FsHandle fs) : EnvWrapper(original), fs_(std::move(fs)) {}

  leveldb::Status NewSequentialFile(const std::string& path, leveldb::SequentialFile** result) override;
  leveldb::Status NewRandomAccessFile(const std::string& path, leveldb::RandomAccessFile** result) override;
  leveldb::Status NewWritableFile(const std::string& path, leveldb::WritableFile** result) override;
  leveldb::Status NewAppendableFile(const std::string& path, leveldb::WritableFile** result) override;
  leveldb::Status NewLogger(const std::string& path, leveldb::Logger** result) override;

  bool FileExists(const std::string& path) override;
  leveldb::Status GetChildren(const std::string& path, std::vector<std::string>* result) override;
  leveldb::Status GetFileSize(const std::string& path, uint64_t* size) override;
  leveldb::Status GetTestDirectory(std::string* path) override;

  // A deleted file's zones are reset once the deletion is durable, never before.
  leveldb::Status RemoveFile(const std::string& path) override;
  leveldb::Status CreateDir(const std::string& path) override;
  leveldb::Status RemoveDir(const std::string& path) override;
  leveldb::Status RenameFile(const std::string& from, const std::string& to) override;

  leveldb::Status LockFile(const std::string& path, leveldb::FileLock** lock) override;
  leveldb::Status UnlockFile(leveldb::FileLock* lock) override;

 private:
  const FsHandle fs_;
};

}  // namespace imbrex
