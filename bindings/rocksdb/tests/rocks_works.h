// What RocksDB does in the background, one kind at a time, for rocks_faults.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fault_case.h"
#include "handle.h"
#include "rocksdb/db.h"
#include "rocksdb/file_system.h"
#include "rocksdb/options.h"

namespace faults {

class Rocks;

// When the fault is armed.
enum class Moment { kCall, kFlushBegin, kCompactionBegin };

struct Work {
  std::string name;
  Moment moment;
  // Sets what is special about the database.
  std::function<void(rocksdb::Options*)> configure;
  // Makes what the work needs, on a drive in order.
  std::function<void(Rocks*)> prepare;
  // Does the work and waits for its end.
  std::function<rocksdb::Status(Rocks*)> run;
  // It copies files without looking at what it copies.
  bool copies = false;
};

std::vector<Work> AllWorks();

// The drive and the database of a run.
class Rocks {
 public:
  explicit Rocks(const Case& one) : case_(one) {}

  void Mount();
  void Configure(const Work& work);
  rocksdb::Status Open();
  bool IsOpen() const { return db_ != nullptr; }
  // Closes the database, whatever it says, and unmounts.
  void Close();
  void CloseDatabase();

  rocksdb::DB* Db() const { return db_.get(); }
  rocksdb::Env* Env() const { return env_.get(); }
  rocksdb::FileSystem* Fs() const { return fs_.get(); }
  rocksdb::Options& Options() { return options_; }
  Model& Data() { return model_; }

  // Arms the fault now, or when the listener sees the work begin.
  void Aim(const Work& work);
  // No more faults, and none for what begins later. Returns how many commands were hit.
  uint64_t Disarm();
  int BackgroundErrors() const;
  // Whether RocksDB goes on without being opened again.
  bool Resume();

  // Writes keys `from` to `to` - 1. A synced write that is acknowledged settles everything.
  rocksdb::Status Write(int from, int to, bool sync);
  rocksdb::Status FlushMemtable() { return db_->Flush(rocksdb::FlushOptions()); }
  // Tables of keys `from` to `to` - 1, one above the other.
  void Tables(int count, int from, int to);
  // Until nothing is flushed or compacted any more, or an error stops that.
  rocksdb::Status Settled();

  // Every key, by itself and by an iterator, is what it may be.
  void ReadAll(const std::string& stage, bool errors_allowed, bool losses_allowed = false);
  // Writes, flushes, compacts and reads.
  void Exercise(const std::string& stage, bool must_work);

 private:
  class Listener;

  const Case case_;
  Model model_;
  rocksdb::Options options_;
  std::shared_ptr<Listener> listener_;
  imbrex::FsHandle handle_;
  std::shared_ptr<rocksdb::FileSystem> fs_;
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace faults
