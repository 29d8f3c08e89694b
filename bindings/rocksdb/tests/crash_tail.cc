#include "crash_tail.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "crash_database.h"
#include "rocksdb/transaction_log.h"
#include "rocksdb/write_batch.h"

namespace crash {

namespace {

// Passes in a row that may fail: an iterator that was made while a WAL moved to the archive may miss that WAL, and the next one has it.
constexpr int kPatience = 2000;
constexpr useconds_t kPauseMicroseconds = 50;

class MarkerFinder : public rocksdb::WriteBatch::Handler {
 public:
  rocksdb::Status PutCF(uint32_t family, const rocksdb::Slice& key, const rocksdb::Slice& value) override {
    if (family == 0 && key == kMarker) {
      marker = value.ToString();
    }
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteCF(uint32_t, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
  rocksdb::Status DeleteRangeCF(uint32_t, const rocksdb::Slice&, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }

  std::string marker;
};

}  // namespace

std::atomic<uint64_t> Tail::batches_read_{0};

Tail::Tail(rocksdb::DB* db, uint64_t seed, uint64_t epoch)
    : db_(db), seed_(seed), epoch_(epoch), next_(db->GetLatestSequenceNumber() + 1), thread_([this] { Run(); }) {}

Tail::~Tail() {
  stop_ = true;
  thread_.join();
}

void Tail::Pause() {
  paused_ = true;
  const std::lock_guard<std::mutex> lock(mutex_);
}

void Tail::Resume() { paused_ = false; }

void Tail::Run() {
  int failures = 0;
  while (!stop_) {
    rocksdb::Status status;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!paused_ && db_->GetLatestSequenceNumber() >= next_) {
        status = Pass();
      }
    }
    failures = status.ok() ? 0 : failures + 1;
    if (failures > kPatience) {
      Die("the WAL cannot be read from sequence number " + std::to_string(next_) + " on: " + status.ToString());
    }
    usleep(kPauseMicroseconds);
  }
}

rocksdb::Status Tail::Pass() {
  std::unique_ptr<rocksdb::TransactionLogIterator> iterator;
  rocksdb::Status status = db_->GetUpdatesSince(next_, &iterator);
  if (!status.ok()) {
    return status;
  }
  for (; iterator->Valid() && !stop_ && !paused_; iterator->Next()) {
    const rocksdb::BatchResult batch = iterator->GetBatch();
    // RocksDB itself logs an empty batch when it opens a database whose last WAL was cut off.
    if (batch.sequence < next_ || batch.writeBatchPtr->Count() == 0) {
      continue;
    }
    status = Follow(*batch.writeBatchPtr);
    if (!status.ok()) {
      return status;
    }
    next_ = batch.sequence + batch.writeBatchPtr->Count();
  }
  status = iterator->status();
  // TryAgain: the end of what is there.
  return status.IsTryAgain() ? rocksdb::Status::OK() : status;
}

rocksdb::Status Tail::Follow(const rocksdb::WriteBatch& batch) {
  MarkerFinder finder;
  Check(batch.Iterate(&finder), "batch read from the WAL");
  const std::string prefix = std::to_string(epoch_) + ":";
  if (finder.marker.rfind(prefix, 0) != 0) {
    Die("a batch read from the WAL has the marker " + finder.marker + " in epoch " + std::to_string(epoch_));
  }
  const uint64_t index = std::strtoull(finder.marker.c_str() + prefix.size(), nullptr, 10);
  if (last_ != 0) {
    if (index <= last_) {
      Die("the WAL was read backwards, from " + std::to_string(last_) + " to " + std::to_string(index));
    }
    for (uint64_t i = last_ + 1; i < index; ++i) {
      if (MakeOperation(seed_, epoch_, i).kind == Kind::kBatch) {
        return rocksdb::Status::Corruption("batch " + std::to_string(i) + " is missing between " + std::to_string(last_) + " and " +
                                           std::to_string(index));
      }
    }
  }
  last_ = index;
  ++batches_read_;
  return rocksdb::Status::OK();
}

}  // namespace crash
