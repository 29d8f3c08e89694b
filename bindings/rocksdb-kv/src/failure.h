// What RocksDB says, as errors of the C API: the way back of bindings/rocksdb/src/status.h.

#pragma once

#include <exception>
#include <string>

#include "guest.h"
#include "rocksdb/status.h"

namespace imbrex {

// Set once, with `functions`.
extern imbrex_rocks_host host;

// NULL for OK.
imbrex_error* ToError(const rocksdb::Status& status) noexcept;

// An error of a sentence.
imbrex_error* Failure(imbrex_code code, const std::string& sentence) noexcept;

// Runs `body`, which returns a Status, and lets no exception out.
template <typename Body>
imbrex_error* Bounded(Body&& body) noexcept {
  try {
    return ToError(body());
  } catch (const std::exception& e) {
    return host.failure(IMBREX_IO, e.what(), std::char_traits<char>::length(e.what()));
  } catch (...) {
    constexpr char kSentence[] = "RocksDB failed and does not say why";
    return host.failure(IMBREX_IO, kSentence, sizeof(kSentence) - 1);
  }
}

}  // namespace imbrex
