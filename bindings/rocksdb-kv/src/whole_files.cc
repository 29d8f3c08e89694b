#include "whole_files.h"

#include <utility>

#include "status.h"

namespace imbrex {

using rocksdb::FSSequentialFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;
using rocksdb::Status;

namespace {

class WholeFile final : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  WholeFile(std::unique_ptr<FSSequentialFile>&& below, std::shared_ptr<Damage> damage)
      : FSSequentialFileOwnerWrapper(std::move(below)), damage_(std::move(damage)) {}

  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch, IODebugContext* dbg) override {
    return AsFailure(FSSequentialFileOwnerWrapper::Read(n, options, result, scratch, dbg));
  }
  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                          IODebugContext* dbg) override {
    return AsFailure(FSSequentialFileOwnerWrapper::PositionedRead(offset, n, options, result, scratch, dbg));
  }

 private:
  IOStatus AsFailure(IOStatus status) const {
    if (!status.IsCorruption()) {
      return status;
    }
    return Guarded([&] {
      damage_->Note(status);
      return IOStatus::IOError(status.ToString());
    });
  }

  const std::shared_ptr<Damage> damage_;
};

}  // namespace

void Damage::Note(const IOStatus& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (found_.ok()) {
    found_ = status;
  }
}

Status Damage::Found() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return found_;
}

void Damage::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  found_ = Status::OK();
}

IOStatus WholeFiles::NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<FSSequentialFile>* result, IODebugContext* dbg) {
  std::unique_ptr<FSSequentialFile> below;
  result->reset();
  IOStatus status = target()->NewSequentialFile(path, options, &below, dbg);
  if (!status.ok()) {
    return status;
  }
  return Guarded([&] {
    result->reset(new WholeFile(std::move(below), damage_));
    return IOStatus::OK();
  });
}

}  // namespace imbrex
