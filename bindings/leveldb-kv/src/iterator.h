// leveldb::Iterator on an iterator of the C API.

#pragma once

#include <string>

#include "handle.h"
#include "leveldb/iterator.h"

namespace imbrex {

class Iterator final : public leveldb::Iterator {
 public:
  Iterator(std::string path, KvIteratorHandle iterator) : path_(std::move(path)), iterator_(std::move(iterator)) {}

  bool Valid() const override { return valid_; }
  void SeekToFirst() override;
  void SeekToLast() override;
  void Seek(const leveldb::Slice& target) override;
  void Next() override;
  void Prev() override;
  leveldb::Slice key() const override { return key_; }
  leveldb::Slice value() const override { return value_; }
  leveldb::Status status() const override { return status_; }

 private:
  // After a move: an error ends the iteration, and stays.
  void Moved(imbrex_error* error) noexcept;

  const std::string path_;
  const KvIteratorHandle iterator_;
  bool valid_ = false;
  // Bytes that the library owns until the next move.
  leveldb::Slice key_;
  leveldb::Slice value_;
  leveldb::Status status_;
};

}  // namespace imbrex
