// How RocksDB finds the file system: by the scheme "imbrex://", registered when the plug-in is loaded, or on a handle that is open.

#include "plugin.h"

#include <string>

#include "file_system.h"
#include "rocksdb/utilities/object_registry.h"
#include "status.h"

namespace imbrex {

namespace {

using rocksdb::IOStatus;

rocksdb::FileSystem* Create(const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard, std::string* message) {
  const IOStatus status = Guarded([&] {
    imbrex_fs* raw = nullptr;
    imbrex_error* const error = imbrex_fs_open(uri.c_str(), &raw);
    FsHandle fs(raw);
    if (error == nullptr) {
      guard->reset(new FileSystem(uri, std::move(fs)));
    } else if (imbrex_error_code(error) == IMBREX_INVALID_ARGUMENT) {
      const ErrorHandle owner(error);
      *message = imbrex_error_message(error);
    } else {
      // The sentence names the drive.
      guard->reset(new FileSystem(ToStatus(error, std::string())));
    }
    return IOStatus::OK();
  });
  if (!status.ok() && message->empty()) {
    Guarded([&] {
      *message = status.ToString();
      return IOStatus::OK();
    }).PermitUncheckedError();
  }
  return guard->get();
}

bool Register() noexcept {
  if (imbrex_abi_version() != IMBREX_ABI_VERSION) {
    return false;
  }
  return Guarded([] {
           rocksdb::ObjectLibrary::Default()->AddFactory<rocksdb::FileSystem>(
               rocksdb::ObjectLibrary::PatternEntry("imbrex", /*optional=*/false).AddSeparator("://", /*at_least_one=*/false), Create);
           return IOStatus::OK();
         })
      .ok();
}

const bool registered = Register();

}  // namespace
}  // namespace imbrex

const char* imbrex_plugin_mismatch() {
  return imbrex::registered ? "" : "libimbrex.so is of another version than the plug-in; install librocksdb_imbrex.so and libimbrex.so together";
}

void imbrex_plugin_new_file_system(const imbrex_fs* fs, std::shared_ptr<rocksdb::FileSystem>* result) {
  imbrex::Guarded([&] {
    if (fs != nullptr) {
      result->reset(new imbrex::FileSystem(imbrex::FileSystem::kClassName(), imbrex::FsHandle(imbrex_fs_clone(fs))));
    }
    return rocksdb::IOStatus::OK();
  }).PermitUncheckedError();
}

void imbrex_plugin_advise(const imbrex_fs* fs, rocksdb::Options* options, rocksdb::IOStatus* status) {
  imbrex_advice advice = {};
  *status = imbrex::ToStatus(imbrex_fs_advise(fs, &advice), std::string());
  if (status->ok()) {
    options->write_buffer_size = advice.write_buffer_size;
    options->target_file_size_base = advice.target_file_size;
    options->compaction_readahead_size = advice.compaction_readahead_size;
    options->max_background_jobs = static_cast<int>(advice.background_jobs);
  }
}
