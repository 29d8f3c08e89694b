#include "iterator.h"

#include "status.h"

namespace imbrex {

using leveldb::Slice;

void Iterator::Moved(imbrex_error* error) noexcept {
  if (error != nullptr) {
    status_ = ToStatus(error, path_);
  }
  valid_ = error == nullptr && imbrex_kv_iterator_valid(iterator_.get());
  const auto bytes = [&](const void* (*part)(const imbrex_kv_iterator*, size_t*)) {
    size_t len = 0;
    const void* const data = part(iterator_.get(), &len);
    // LevelDB's programs may look at an empty one.
    return len == 0 ? Slice() : Slice(static_cast<const char*>(data), len);
  };
  key_ = valid_ ? bytes(imbrex_kv_iterator_key) : Slice();
  value_ = valid_ ? bytes(imbrex_kv_iterator_value) : Slice();
}

void Iterator::SeekToFirst() { Moved(imbrex_kv_iterator_first(iterator_.get())); }
void Iterator::SeekToLast() { Moved(imbrex_kv_iterator_last(iterator_.get())); }
void Iterator::Seek(const Slice& target) { Moved(imbrex_kv_iterator_seek(iterator_.get(), target.data(), target.size())); }
void Iterator::Next() { Moved(imbrex_kv_iterator_next(iterator_.get())); }
void Iterator::Prev() { Moved(imbrex_kv_iterator_prev(iterator_.get())); }

}  // namespace imbrex
