// LevelDB at work on a drive that fails. fault_runs runs it, once for each kind of work and fault; see rocks_faults.cc, which does the same
// with RocksDB. LevelDB has no Resume: after an error in the background it refuses to write until it is opened again.
//
//   level_faults --list
//   level_faults --work=W --fault=F [--skip=N] [--times=N] [--conventional=N]

#include <unistd.h>

#include <functional>
#include <memory>

#include "fault_case.h"
#include "handle.h"
#include "imbrex_leveldb.h"
#include "leveldb/db.h"
#include "leveldb/write_batch.h"

namespace faults {
namespace {

using leveldb::Status;

constexpr int kKeys = 120;
// Of the keys that the work itself writes.
constexpr int kMore = 100000;

class Level {
 public:
  explicit Level(const Case& one) : case_(one) {
    options_.create_if_missing = true;
    options_.paranoid_checks = true;
    options_.compression = leveldb::kNoCompression;
    options_.write_buffer_size = 64 << 10;
    options_.max_file_size = 1 << 20;
  }

  void Mount() {
    handle_.reset(imbrex_faults_mount());
    if (handle_ == nullptr) {
      if (case_.fault == IMBREX_FAULT_OFFLINE) {
        Report(imbrex_faults_hits(), true, "lost: cannot be mounted");
        _exit(0);
      }
      Die("the drive cannot be mounted");
    }
    std::string error;
    env_.reset(imbrex::NewLevelDbEnv(handle_.get(), &error));
    if (env_ == nullptr) {
      Die(error);
    }
    options_.env = env_.get();
  }

  Status Open() {
    leveldb::DB* raw = nullptr;
    const Status status = leveldb::DB::Open(options_, "/db", &raw);
    db_.reset(raw);
    return status;
  }

  void CloseDatabase() { db_.reset(); }
  void Close() {
    db_.reset();
    env_.reset();
    handle_.reset();
  }

  leveldb::DB* Db() const { return db_.get(); }
  leveldb::Options& Options() { return options_; }
  Model& Data() { return model_; }

  Status Write(int from, int to, bool sync) {
    leveldb::WriteOptions options;
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

  // Compacts everything, and asks by a write what came of it: CompactRange itself does not say.
  Status Compact() {
    db_->CompactRange(nullptr, nullptr);
    return Write(kMore + 900, kMore + 901, /*sync=*/true);
  }

  void ReadAll(const std::string& stage, bool errors_allowed, bool losses_allowed = false) {
    if (db_ == nullptr) {
      return;
    }
    const auto bad = [&](const Status& status) {
      if (!errors_allowed) {
        Die(stage + ": " + status.ToString());
      }
    };
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    for (const std::string& key : model_.Keys()) {
      std::string value;
      const Status status = db_->Get(options, key, &value);
      if (status.ok() || status.IsNotFound()) {
        model_.CheckValue(stage, key, status.ok(), value, losses_allowed);
      } else {
        bad(status);
      }
    }
    const std::unique_ptr<leveldb::Iterator> iterator(db_->NewIterator(options));
    size_t count = 0;
    bool told = false;
    for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
      const std::string key = iterator->key().ToString();
      // LevelDB's MergingIterator goes on without a table that it cannot read, and shows what older tables say of its keys: that this
      // is old, only status() says, from then on. Such a value must be one that was written, and Get, which stops at that table, must fail.
      told = told || !iterator->status().ok();
      std::string newest;
      const Status asked = db_->Get(options, key, &newest);
      const bool hidden = told && !asked.ok() && !asked.IsNotFound();
      model_.CheckValue(stage + ", iterating", key, true, iterator->value().ToString(), losses_allowed || hidden);
      ++count;
    }
    if (told && iterator->status().ok()) {
      Die(stage + ": an iterator forgot its error");
    }
    if (!iterator->status().ok()) {
      bad(iterator->status());
    } else if (!errors_allowed && count < model_.Certain()) {
      Die(stage + ": an iterator saw " + std::to_string(count) + " keys of at least " + std::to_string(model_.Certain()));
    }
  }

 private:
  const Case case_;
  Model model_;
  leveldb::Options options_;
  imbrex::FsHandle handle_;
  std::unique_ptr<leveldb::Env> env_;
  std::unique_ptr<leveldb::DB> db_;
};

struct Work {
  std::string name;
  std::function<Status(Level*)> run;
};

Status Reopen(Level* level) {
  level->CloseDatabase();
  return level->Open();
}

std::vector<Work> AllWorks() {
  return {
      // A full memtable: a new log, a table, the MANIFEST, and the old log's deletion.
      {"flush", [](Level* l) { return l->Write(kMore, kMore + 200, /*sync=*/false); }},
      {"log-roll", [](Level* l) { return l->Write(kMore, kMore + 200, /*sync=*/true); }},
      {"compaction", [](Level* l) { return l->Compact(); }},
      {"recovery", Reopen},
      {"manifest-reuse",
       [](Level* l) {
         l->Options().reuse_logs = true;
         Status status = Reopen(l);
         if (status.ok()) {
           status = l->Write(kMore, kMore + 120, /*sync=*/true);
         }
         l->Options().reuse_logs = false;
         return status;
       }},
      {"repair",
       [](Level* l) {
         l->CloseDatabase();
         return leveldb::RepairDB("/db", l->Options());
       }},
  };
}

void Run(const Case& one, const Work& work) {
  Level level(one);
  imbrex_faults_make(one.conventional);
  level.Mount();
  Check(level.Open(), "opening a new database");
  Check(level.Write(0, kKeys, /*sync=*/true), "writing");
  Check(level.Compact(), "compacting");
  Check(level.Write(0, kKeys, /*sync=*/true), "writing");
  level.ReadAll("before the fault", /*errors_allowed=*/false);

  imbrex_faults_arm(one.fault, one.skip, one.times);
  Status status = work.run(&level);
  const uint64_t hits = imbrex_faults_disarm();
  if (status.ok() && level.Db() != nullptr) {
    // An error in the background shows with the next write.
    status = level.Write(kMore + 901, kMore + 902, /*sync=*/true);
  }
  if (hits == 0 && !status.ok()) {
    Die("without a fault the work failed: " + status.ToString());
  }
  if (one.fault == IMBREX_FAULT_FLUSH && hits > 0 && status.ok() && level.Db() != nullptr) {
    Die("a flush of the drive failed, and a synced write after it did not");
  }
  level.ReadAll("after the fault", /*errors_allowed=*/hits > 0);
  level.Close();
  const bool damaged = !one.Passing();
  const bool in_order = DriveIsInOrder("after the fault", damaged);

  level.Mount();
  Status opened = level.Open();
  std::string story = status.ok() ? "work=ok" : "work=" + status.ToString().substr(0, 60);
  if (!opened.ok() && work.name == "repair" && hits > 0) {
    // Repair moves the old MANIFEST away before it is done: where it was interrupted, it has to be done again.
    Check(leveldb::RepairDB("/db", level.Options()), "repairing again");
    opened = level.Open();
    story += " repaired again";
  }
  if (!opened.ok()) {
    if (one.Passing()) {
      Die("opening again: " + opened.ToString());
    }
    story += " lost: " + opened.ToString().substr(0, 60);
  } else {
    const bool copied = work.name == "repair" && hits > 0;
    // What it cannot read or write again, it moves to the directory `lost`, and says so in its LOG only.
    const bool damage = copied || (damaged && (!in_order || one.fault == IMBREX_FAULT_OFFLINE));
    level.ReadAll("after opening again", damage, /*losses_allowed=*/damage);
    if (!damage) {
      Check(level.Write(0, 20, /*sync=*/true), "writing after opening again");
      Check(level.Compact(), "compacting after opening again");
      level.ReadAll("in the end", /*errors_allowed=*/false);
    }
  }
  level.Close();
  DriveIsInOrder("in the end", damaged);
  Report(hits, !status.ok(), story);
}

int Main(int argc, char** argv) {
  const std::vector<Work> works = AllWorks();
  std::vector<std::string> names;
  for (const Work& work : works) {
    names.push_back(work.name);
  }
  const Case one = Parse(argc, argv, names);
  for (const Work& work : works) {
    if (work.name == one.work) {
      Run(one, work);
    }
  }
  return 0;
}

}  // namespace
}  // namespace faults

int main(int argc, char** argv) { return faults::Main(argc, argv); }
