#include "status.h"

#include "path.h"

namespace imbrex {

using leveldb::Status;

leveldb::Status ToStatus(imbrex_error* error, const std::string& path) noexcept {
  if (error == nullptr) {
    return Status::OK();
  }
  const ErrorHandle owner(error);
  const char* const message = WithoutPath(imbrex_error_message(error), path);
  switch (imbrex_error_code(error)) {
    case IMBREX_NOT_FOUND:
      return Status::NotFound(path, message);
    case IMBREX_CORRUPTION:
      return Status::Corruption(path, message);
    case IMBREX_INVALID_ARGUMENT:
      return Status::InvalidArgument(path, message);
    case IMBREX_NOT_SUPPORTED:
      return Status::NotSupported(path, message);
    default:
      return Status::IOError(path, message);
  }
}

}  // namespace imbrex
