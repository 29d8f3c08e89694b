#include "status.h"

#include "path.h"

namespace imbrex {

using rocksdb::IOStatus;

namespace {

IOStatus Convert(imbrex_code code, const std::string& about, const char* sentence) {
  // RocksDB shows two texts with a colon between them.
  const rocksdb::Slice path = about.empty() ? rocksdb::Slice(sentence) : rocksdb::Slice(about);
  const rocksdb::Slice message = about.empty() ? rocksdb::Slice() : rocksdb::Slice(WithoutPath(sentence, about));
  switch (code) {
    case IMBREX_OK:
      return IOStatus::OK();
    case IMBREX_NOT_FOUND:
      return IOStatus::PathNotFound(path, message);
    case IMBREX_NO_SPACE: {
      IOStatus status = IOStatus::NoSpace(path, message);
      status.SetRetryable(true);
      return status;
    }
    case IMBREX_CORRUPTION:
      return IOStatus::Corruption(path, message);
    case IMBREX_INVALID_ARGUMENT:
      return IOStatus::InvalidArgument(path, message);
    case IMBREX_BUSY:
      return IOStatus::Busy(path, message);
    case IMBREX_NOT_SUPPORTED:
      return IOStatus::NotSupported(path, message);
    case IMBREX_POISONED: {
      // A flush failed, so what was acknowledged before it may be gone: RocksDB must not go on by itself.
      IOStatus status = IOStatus::IOError(path, message);
      status.SetDataLoss(true);
      return status;
    }
    default:
      return IOStatus::IOError(path, message);
  }
}

}  // namespace

IOStatus ToStatus(imbrex_error* error, const std::string& path) noexcept {
  if (error == nullptr) {
    return IOStatus::OK();
  }
  const ErrorHandle owner(error);
  return Guarded([&] { return Convert(imbrex_error_code(error), path, imbrex_error_message(error)); });
}

IOStatus ToExistence(imbrex_error* error, const std::string& path) noexcept {
  if (error == nullptr) {
    return IOStatus::OK();
  }
  switch (imbrex_error_code(error)) {
    case IMBREX_NOT_FOUND:
    case IMBREX_NOT_A_DIRECTORY:
    case IMBREX_NAME_TOO_LONG:
    case IMBREX_INVALID_ARGUMENT: {
      const ErrorHandle owner(error);
      return Guarded([&] { return IOStatus::NotFound(path, WithoutPath(imbrex_error_message(error), path)); });
    }
    default:
      return ToStatus(error, path);
  }
}

}  // namespace imbrex
