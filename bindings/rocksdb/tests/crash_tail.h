// A reader that follows the WAL while it is written.

#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "crash_model.h"
#include "rocksdb/db.h"

namespace crash {

// What it reads, in a thread of its own, must be the batches of the running epoch in their order, none missing; it dies otherwise. The
// database must keep its obsolete WALs.
class Tail {
 public:
  Tail(rocksdb::DB* db, uint64_t seed, uint64_t epoch);
  ~Tail();

  // Between Pause and Resume it reads nothing. An ingestion takes a sequence number that is in no WAL, and until a batch after it is
  // complete, RocksDB's iterator may read a batch that is not yet visible, and stops at an assertion.
  void Pause();
  void Resume();

  // By all of them in this process.
  static uint64_t BatchesRead() { return batches_read_; }

 private:
  void Run();
  // Reads all there is. Returns a status that is not OK when it could not.
  rocksdb::Status Pass();
  // Corruption when the batch is not the one that must come next.
  rocksdb::Status Follow(const rocksdb::WriteBatch& batch);

  static std::atomic<uint64_t> batches_read_;

  rocksdb::DB* const db_;
  const uint64_t seed_;
  const uint64_t epoch_;
  // The first sequence number not yet read, and the last operation that was; 0 before the first.
  rocksdb::SequenceNumber next_;
  uint64_t last_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<bool> paused_{false};
  // Held while it reads.
  std::mutex mutex_;
  std::thread thread_;
};

}  // namespace crash
