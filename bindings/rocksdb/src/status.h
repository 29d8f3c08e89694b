// Errors of the C API as RocksDB's IOStatus, with the codes and subcodes that RocksDB's own POSIX file system uses: RocksDB acts on
// them (NoSpace starts its recovery, PathNotFound means that a file is gone already).

#pragma once

#include <exception>
#include <string>

#include "handle.h"
#include "rocksdb/io_status.h"

namespace imbrex {

// Consumes `error`; null is OK. `path` is what the operation was about, or empty.
rocksdb::IOStatus ToStatus(imbrex_error* error, const std::string& path) noexcept;

// The same for questions whether something exists, where "no" is Status::NotFound rather than an IOError: a path that can lead
// nowhere (a component is a file, a name is too long) is not found either.
rocksdb::IOStatus ToExistence(imbrex_error* error, const std::string& path) noexcept;

// Runs `body` and turns what it throws (in practice std::bad_alloc) into an IOStatus: RocksDB is not safe against exceptions.
template <typename Body>
rocksdb::IOStatus Guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& e) {
    try {
      return rocksdb::IOStatus::IOError("imbrex", e.what());
    } catch (...) {
      return rocksdb::IOStatus::IOError();
    }
  } catch (...) {
    return rocksdb::IOStatus::IOError();
  }
}

}  // namespace imbrex
