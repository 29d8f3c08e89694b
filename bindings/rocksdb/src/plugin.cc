// How RocksDB finds the file system: by the scheme "imbrex://", registered when the library is loaded, or by the functions of
// imbrex_rocksdb.h.

#include <unistd.h>

#include <string>

#include "abi.h"
#include "file_system.h"
#include "imbrex_rocksdb.h"
#include "rocksdb/utilities/object_registry.h"
#include "status.h"

namespace imbrex {

namespace {

rocksdb::FileSystem* Create(const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard, std::string* message) {
  const rocksdb::IOStatus status = Guarded([&] {
    imbrex_fs* raw = nullptr;
    ErrorHandle error(imbrex_fs_open(uri.c_str(), &raw));
    if (error != nullptr) {
      *message = imbrex_error_message(error.get());
      return rocksdb::IOStatus::OK();
    }
    guard->reset(new FileSystem(uri, FsHandle(raw)));
    return rocksdb::IOStatus::OK();
  });
  if (!status.ok() && message->empty()) {
    Guarded([&] {
      *message = status.ToString();
      return rocksdb::IOStatus::OK();
    }).PermitUncheckedError();
  }
  return guard->get();
}

bool Register() noexcept {
  return Guarded([] {
           const std::string& mismatch = CheckedAbi();
           if (!mismatch.empty()) {
             const std::string line = "imbrex: " + mismatch + "\n";
             // Standard error may be closed; there is nobody else to tell.
             [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
             return rocksdb::IOStatus::NotSupported();
           }
           rocksdb::ObjectLibrary::Default()->AddFactory<rocksdb::FileSystem>(
               rocksdb::ObjectLibrary::PatternEntry("imbrex", /*optional=*/false).AddSeparator("://"), Create);
           return rocksdb::IOStatus::OK();
         })
      .ok();
}

[[maybe_unused]] const bool registered = Register();

}  // namespace

const std::string& AbiMismatch() { return CheckedAbi(); }

std::shared_ptr<rocksdb::FileSystem> NewFileSystem(const imbrex_fs* fs) {
  std::shared_ptr<rocksdb::FileSystem> result;
  Guarded([&] {
    if (fs != nullptr && CheckedAbi().empty()) {
      result.reset(new FileSystem(FileSystem::kClassName(), FsHandle(imbrex_fs_clone(fs))));
    }
    return rocksdb::IOStatus::OK();
  }).PermitUncheckedError();
  return result;
}

rocksdb::IOStatus AdviseOptions(const imbrex_fs* fs, rocksdb::Options* options) {
  imbrex_advice advice;
  rocksdb::IOStatus status = ToStatus(imbrex_fs_advise(fs, &advice), std::string());
  if (status.ok()) {
    options->write_buffer_size = advice.write_buffer_size;
    options->target_file_size_base = advice.target_file_size;
    options->compaction_readahead_size = advice.compaction_readahead_size;
    options->max_background_jobs = static_cast<int>(advice.background_jobs);
  }
  return status;
}

}  // namespace imbrex
