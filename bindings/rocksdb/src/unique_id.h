// A file's identity for RocksDB's caches: the serial number, which is never given to a second file of a drive.

#pragma once

#include <cstddef>
#include <cstdint>

namespace imbrex {

// The length is the same for every file, so no identity is a prefix of another, and the first byte ends a varint, so the whole is not
// one. Returns 0 where `max_size` is too small.
inline size_t UniqueId(uint64_t serial, char* id, size_t max_size) {
  constexpr size_t kSize = 1 + sizeof(serial);
  if (max_size < kSize) {
    return 0;
  }
  id[0] = 'I';
  for (size_t i = 1; i < kSize; ++i) {
    id[i] = static_cast<char>(serial & 0xff);
    serial >>= 8;
  }
  return kSize;
}

}  // namespace imbrex
