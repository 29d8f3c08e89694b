#include "routing_env.h"

#include <utility>

#include "drive_env.h"
#include "drive_path.h"
#include "status.h"

namespace imbrex {

using leveldb::Env;
using leveldb::Status;

namespace {

// Says whose lock it is; LevelDB gives it back without the path.
class RoutedLock final : public leveldb::FileLock {
 public:
  RoutedLock(std::shared_ptr<Env> drive, Env* env, leveldb::FileLock* lock) : drive_(std::move(drive)), env_(env), lock_(lock) {}
  Status Unlock() { return env_->UnlockFile(lock_); }

 private:
  const std::shared_ptr<Env> drive_;
  Env* const env_;
  leveldb::FileLock* const lock_;
};

}  // namespace

Status RoutingEnv::Drive(std::shared_ptr<Env>* drive) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) {
    return Status::IOError(kDrivePrefix, "the process is exiting and has given the drive back; close databases before");
  }
  if (drive_ == nullptr) {
    imbrex_fs* raw = nullptr;
    Status status = ToStatus(imbrex_fs_open(uri_.c_str(), &raw), kDrivePrefix);
    FsHandle fs(raw);
    if (!status.ok()) {
      return status;
    }
    drive_ = std::make_shared<DriveEnv>(target(), std::move(fs));
  }
  *drive = drive_;
  return Status::OK();
}

void RoutingEnv::Close() noexcept {
  std::shared_ptr<Env> last;
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  last.swap(drive_);
}

Status RoutingEnv::Find(const std::string& path, Route* route) {
  if (!IsOnDrive(path, &route->path)) {
    route->path = path;
    route->env = target();
    return Status::OK();
  }
  Status status = Drive(&route->drive);
  route->env = route->drive.get();
  return status;
}

template <typename Method, typename... Rest>
Status RoutingEnv::Forward(Method method, const std::string& path, Rest... rest) {
  return Guarded([&] {
    Route route;
    Status status = Find(path, &route);
    return status.ok() ? (route.env->*method)(route.path, rest...) : status;
  });
}

Status RoutingEnv::NewSequentialFile(const std::string& path, leveldb::SequentialFile** result) {
  *result = nullptr;
  return Forward(&Env::NewSequentialFile, path, result);
}

Status RoutingEnv::NewRandomAccessFile(const std::string& path, leveldb::RandomAccessFile** result) {
  *result = nullptr;
  return Forward(&Env::NewRandomAccessFile, path, result);
}

Status RoutingEnv::NewWritableFile(const std::string& path, leveldb::WritableFile** result) {
  *result = nullptr;
  return Forward(&Env::NewWritableFile, path, result);
}

Status RoutingEnv::NewAppendableFile(const std::string& path, leveldb::WritableFile** result) {
  *result = nullptr;
  return Forward(&Env::NewAppendableFile, path, result);
}

Status RoutingEnv::NewLogger(const std::string& path, leveldb::Logger** result) {
  *result = nullptr;
  return Forward(&Env::NewLogger, path, result);
}

bool RoutingEnv::FileExists(const std::string& path) {
  return Guarded([&] {
           Route route;
           Status status = Find(path, &route);
           return status.ok() && !route.env->FileExists(route.path) ? Status::NotFound(path) : status;
         })
      .ok();
}

Status RoutingEnv::GetChildren(const std::string& path, std::vector<std::string>* result) {
  result->clear();
  return Forward(&Env::GetChildren, path, result);
}

Status RoutingEnv::GetFileSize(const std::string& path, uint64_t* size) {
  *size = 0;
  return Forward(&Env::GetFileSize, path, size);
}

Status RoutingEnv::RemoveFile(const std::string& path) { return Forward(&Env::RemoveFile, path); }
Status RoutingEnv::CreateDir(const std::string& path) { return Forward(&Env::CreateDir, path); }
Status RoutingEnv::RemoveDir(const std::string& path) { return Forward(&Env::RemoveDir, path); }

Status RoutingEnv::RenameFile(const std::string& from, const std::string& to) {
  return Guarded([&] {
    Route source;
    Route destination;
    Status status = Find(from, &source);
    if (status.ok()) {
      status = Find(to, &destination);
    }
    if (status.ok() && source.env != destination.env) {
      return Status::IOError(from, "cannot be renamed between the drive and the host's files; copy it with `imbrex fs cp`");
    }
    return status.ok() ? source.env->RenameFile(source.path, destination.path) : status;
  });
}

Status RoutingEnv::LockFile(const std::string& path, leveldb::FileLock** lock) {
  *lock = nullptr;
  return Guarded([&] {
    Route route;
    Status status = Find(path, &route);
    leveldb::FileLock* inner = nullptr;
    if (status.ok()) {
      status = route.env->LockFile(route.path, &inner);
    }
    if (status.ok()) {
      *lock = new RoutedLock(route.drive, route.env, inner);
    }
    return status;
  });
}

Status RoutingEnv::UnlockFile(leveldb::FileLock* lock) {
  const std::unique_ptr<RoutedLock> routed(static_cast<RoutedLock*>(lock));
  return routed->Unlock();
}

}  // namespace imbrex
