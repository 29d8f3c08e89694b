// Errors of the C API as LevelDB's Status.

#pragma once

#include <exception>
#include <string>

#include "handle.h"
#include "leveldb/status.h"

namespace imbrex {

// Consumes `error`; null is OK. `path` is what the operation was about. Like LevelDB's own Env: what is missing is NotFound.
leveldb::Status ToStatus(imbrex_error* error, const std::string& path) noexcept;

// Runs `body` and turns what it throws (in practice std::bad_alloc) into a Status: LevelDB is not safe against exceptions. A Status that is
// not OK needs memory; where there is none even for it, the process ends rather than hear a lie.
template <typename Body>
leveldb::Status Guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& e) {
    return leveldb::Status::IOError("imbrex", e.what());
  }
}

}  // namespace imbrex
