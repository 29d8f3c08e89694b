// What leveldb::Env::Default() is in a process with IMBREX_DRIVE: paths under /imbrex/ are on the drive, all others where they always were.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "leveldb/env.h"

namespace imbrex {

// The drive is opened by the first path that leads there, and tried again by the next one when that failed. LevelDB never destroys its
// default Env, so this one gives the drive back when the process exits; a process that dies otherwise leaves it as a kill does.
class RoutingEnv final : public leveldb::EnvWrapper {
 public:
  RoutingEnv(leveldb::Env* original, std::string uri) : EnvWrapper(original), uri_(std::move(uri)) {}

  leveldb::Status NewSequentialFile(const std::string& path, leveldb::SequentialFile** result) override;
  leveldb::Status NewRandomAccessFile(const std::string& path, leveldb::RandomAccessFile** result) override;
  leveldb::Status NewWritableFile(const std::string& path, leveldb::WritableFile** result) override;
  leveldb::Status NewAppendableFile(const std::string& path, leveldb::WritableFile** result) override;
  leveldb::Status NewLogger(const std::string& path, leveldb::Logger** result) override;
  bool FileExists(const std::string& path) override;
  leveldb::Status GetChildren(const std::string& path, std::vector<std::string>* result) override;
  leveldb::Status GetFileSize(const std::string& path, uint64_t* size) override;
  leveldb::Status RemoveFile(const std::string& path) override;
  leveldb::Status CreateDir(const std::string& path) override;
  leveldb::Status RemoveDir(const std::string& path) override;
  leveldb::Status RenameFile(const std::string& from, const std::string& to) override;
  leveldb::Status LockFile(const std::string& path, leveldb::FileLock** lock) override;
  leveldb::Status UnlockFile(leveldb::FileLock* lock) override;

  // The process exits: from now on nothing can be opened on the drive. What is open stays so.
  void Close() noexcept;

 private:
  // Where `path` leads, and what it is called there.
  struct Route {
    // Holds the drive while it is used; empty for the host's files.
    std::shared_ptr<leveldb::Env> drive;
    leveldb::Env* env = nullptr;
    std::string path;
  };
  leveldb::Status Find(const std::string& path, Route* route);
  leveldb::Status Drive(std::shared_ptr<leveldb::Env>* drive);
  // Calls `method` of the right Env with the right path.
  template <typename Method, typename... Rest>
  leveldb::Status Forward(Method method, const std::string& path, Rest... rest);

  const std::string uri_;
  std::mutex mutex_;
  bool closed_ = false;
  std::shared_ptr<leveldb::Env> drive_;
};

}  // namespace imbrex
