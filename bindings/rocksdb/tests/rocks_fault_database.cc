#include <unistd.h>

#include <chrono>
#include <thread>

#include "imbrex_rocksdb.h"
#include "releases.h"
#include "rocks_works.h"
#include "rocksdb/listener.h"
#include "rocksdb/table.h"

namespace faults {

using rocksdb::Status;

// Arms the fault when the work begins, and hears of errors.
class Rocks::Listener : public rocksdb::EventListener {
 public:
  explicit Listener(const Case& one) : case_(one) {}

  void Aim(Moment moment) { moment_ = moment; }
  void Arm(Moment moment) {
    // Only once: the next flush is another one.
    if (moment_ == moment && !armed_.exchange(true)) {
      imbrex_faults_arm(case_.fault, case_.skip, case_.times);
    }
  }
  void OnFlushBegin(rocksdb::DB*, const rocksdb::FlushJobInfo&) override { Arm(Moment::kFlushBegin); }
  void OnCompactionBegin(rocksdb::DB*, const rocksdb::CompactionJobInfo&) override { Arm(Moment::kCompactionBegin); }
  void OnBackgroundError(rocksdb::BackgroundErrorReason, Status*) override { ++errors_; }
  // Resume is what this is about; what RocksDB does by itself would come in between. It also leaves 7.8 waiting for ever in Close
  // where a log meets "no space" beside a recovery from a compaction's.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, Status, bool* auto_recovery) override { *auto_recovery = false; }
  int Errors() const { return errors_; }

 private:
  const Case case_;
  std::atomic<Moment> moment_{Moment::kCall};
  std::atomic<bool> armed_{true};
  std::atomic<int> errors_{0};

  friend class Rocks;
};

void Rocks::Mount() {
  handle_.reset(imbrex_faults_mount());
  if (handle_ == nullptr) {
    if (case_.fault == IMBREX_FAULT_OFFLINE) {
      // What it took may be needed for that, and it says so.
      Report(imbrex_faults_hits(), true, "lost: cannot be mounted");
      _exit(0);
    }
    Die("the drive cannot be mounted");
  }
  fs_ = imbrex::NewFileSystem(handle_.get());
  env_ = rocksdb::NewCompositeEnv(fs_);
  options_.env = env_.get();
}

void Rocks::Configure(const Work& work) {
  listener_ = std::make_shared<Listener>(case_);
  options_.create_if_missing = true;
  options_.paranoid_checks = true;
  options_.compression = rocksdb::kNoCompression;
  options_.disable_auto_compactions = true;
  options_.max_background_jobs = 4;
  options_.write_buffer_size = 8 << 20;
  options_.target_file_size_base = 64 << 10;
  options_.stats_dump_period_sec = 0;
  options_.stats_persist_period_sec = 0;
  // The listener stops recovery from "no space", this stops it from other errors.
  options_.max_bgerror_resume_count = 0;
  options_.listeners = {listener_};
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;
  options_.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  work.configure(&options_);
}

Status Rocks::Open() { return rocksdb::DB::Open(options_, "/db", imbrex::Into(&db_)); }

void Rocks::CloseDatabase() {
  if (db_ != nullptr) {
    db_->Close().PermitUncheckedError();
    db_.reset();
  }
}

void Rocks::Close() {
  CloseDatabase();
  // It keeps the Env that deletes files in the background.
  options_.sst_file_manager.reset();
  options_.info_log.reset();
  env_.reset();
  fs_.reset();
  handle_.reset();
}

void Rocks::Aim(const Work& work) {
  listener_->moment_ = work.moment;
  listener_->armed_ = false;
  listener_->Arm(Moment::kCall);
}

uint64_t Rocks::Disarm() {
  listener_->armed_ = true;
  return imbrex_faults_disarm();
}

int Rocks::BackgroundErrors() const { return listener_->Errors(); }

bool Rocks::Resume() { return db_->Resume().ok(); }

Status Rocks::Write(int from, int to, bool sync) {
  rocksdb::WriteOptions options;
  options.sync = sync;
  for (int i = from; i < to; ++i) {
    const std::string key = Key(i);
    const Status status = db_->Put(options, key, model_.Begin(key));
    if (!status.ok()) {
      return status;
    }
    model_.Acknowledge(key);
    if (sync) {
      model_.Settle();
    }
  }
  return Status::OK();
}

void Rocks::Tables(int count, int from, int to) {
  for (int i = 0; i < count; ++i) {
    Check(Write(from, to, /*sync=*/false), "writing");
    Check(FlushMemtable(), "flushing");
    model_.Settle();
  }
}

Status Rocks::Settled() {
  // "A compaction is pending" is no property to wait for: some are for ever.
  int idle = 0;
  for (int i = 0; i < 4000; ++i) {
    bool busy = false;
    for (const std::string& property : {rocksdb::DB::Properties::kNumRunningFlushes, rocksdb::DB::Properties::kMemTableFlushPending,
                                        rocksdb::DB::Properties::kNumRunningCompactions}) {
      uint64_t value = 0;
      busy = busy || !db_->GetIntProperty(property, &value) || value != 0;
    }
    idle = busy ? 0 : idle + 1;
    if (idle >= 6 || BackgroundErrors() > 0) {
      return Status::OK();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Die("background work does not end");
}

void Rocks::ReadAll(const std::string& stage, bool errors_allowed, bool losses_allowed) {
  if (db_ == nullptr) {
    return;
  }
  const auto bad = [&](const Status& status) {
    if (!errors_allowed) {
      Die(stage + ": " + status.ToString());
    }
  };
  const auto keys = model_.Keys();
  for (const std::string& key : keys) {
    std::string value;
    const Status status = db_->Get(rocksdb::ReadOptions(), key, &value);
    if (status.ok() || status.IsNotFound()) {
      model_.CheckValue(stage, key, status.ok(), value, losses_allowed);
    } else {
      bad(status);
    }
  }
  const std::unique_ptr<rocksdb::Iterator> iterator(db_->NewIterator(rocksdb::ReadOptions()));
  size_t next = 0;
  for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
    const std::string key = iterator->key().ToString();
    model_.CheckValue(stage + ", iterating", key, true, iterator->value().ToString(), losses_allowed);
    for (; next < keys.size() && keys[next] < key; ++next) {
      model_.CheckValue(stage + ", iterating", keys[next], false, "", losses_allowed);
    }
    ++next;
  }
  if (!iterator->status().ok()) {
    bad(iterator->status());
    return;
  }
  for (; next < keys.size(); ++next) {
    model_.CheckValue(stage + ", iterating", keys[next], false, "", losses_allowed);
  }
}

void Rocks::Exercise(const std::string& stage, bool must_work) {
  const auto step = [&](const Status& status, const char* what) {
    if (!status.ok() && must_work) {
      Die(stage + ": " + what + ": " + status.ToString());
    }
    return status.ok();
  };
  if (step(Write(0, 20, /*sync=*/true), "writing") && step(db_->FlushWAL(true), "FlushWAL") && step(FlushMemtable(), "flushing")) {
    model_.Settle();
    step(db_->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr), "compacting");
  }
  ReadAll(stage, /*errors_allowed=*/!must_work);
}

}  // namespace faults
