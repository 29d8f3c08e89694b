#include "failure.h"

namespace imbrex {

using rocksdb::Status;

imbrex_rocks_host host = {};
Functions functions;

namespace {

imbrex_code CodeOf(const Status& status) {
  switch (status.code()) {
    case Status::kCorruption:
      return IMBREX_CORRUPTION;
    case Status::kNotSupported:
      return IMBREX_NOT_SUPPORTED;
    case Status::kInvalidArgument:
      return IMBREX_INVALID_ARGUMENT;
    case Status::kBusy:
      return IMBREX_BUSY;
    case Status::kIOError:
      if (status.subcode() == Status::kNoSpace) {
        return IMBREX_NO_SPACE;
      }
      // A table or a log is gone that the database names: that is damage, and not a key that is not there.
      if (status.subcode() == Status::kPathNotFound) {
        return IMBREX_CORRUPTION;
      }
      return IMBREX_IO;
    default:
      return IMBREX_IO;
  }
}

}  // namespace

imbrex_error* Failure(imbrex_code code, const std::string& sentence) noexcept {
  return host.failure(code, sentence.data(), sentence.size());
}

imbrex_error* ToError(const Status& status) noexcept {
  if (status.ok()) {
    return nullptr;
  }
  try {
    return Failure(CodeOf(status), "the metadata in RocksDB: " + status.ToString());
  } catch (...) {
    return host.failure(CodeOf(status), nullptr, 0);
  }
}

}  // namespace imbrex
