// A LevelDB that is killed at a random moment, and the check of what it left. crash_rounds runs it.
//
//   level_crash write  --log=FILE --seed=N --db=PATH [--uri=URI] [--operations=N] [--die-operation=N] [--die-microseconds=N]
//   level_crash verify --log=FILE --seed=N --db=PATH [--uri=URI] --after=kill|power
//
// As rocks_crash, with the same operations; where LevelDB has no such thing, the nearest that it has. Families are prefixes of keys, a
// range is deleted key by key, an ingestion is a synced batch, a checkpoint a copy into another database, a backup a snapshot that is
// held while others go on. After a kill, everything acknowledged must be there; after a power loss, everything synced; and in either case
// exactly what some prefix of the operations left, and copies exactly as they were taken. Without --uri the database is in the host's
// file system. Exit code 1: something was wrong, and stderr says what.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "crash_model.h"
#include "crash_run.h"
#include "imbrex_leveldb.h"
#include "leveldb/cache.h"
#include "leveldb/db.h"
#include "leveldb/filter_policy.h"
#include "leveldb/write_batch.h"

namespace crash {
namespace {

std::string FullKey(int family, const std::string& key) { return std::string(kFamilyNames[family]) + "/" + key; }

// An open database, and what its options point to.
class Database {
 public:
  // `number` of the opening picks options at random, small enough that a second of writing flushes and compacts dozens of times.
  // `closed`: the database was closed, not crashed, when it was used last. Only then may LevelDB go on in its old logs: behind a record
  // that a crash cut short, which it reads over, what it appends makes the log unreadable (google/leveldb issue 1287).
  static leveldb::Status Open(leveldb::Env* env, const std::string& path, uint64_t seed, uint64_t number, bool create, bool closed,
                              std::unique_ptr<Database>* result) {
    Random random(seed, 0x1e7e1, number);
    std::unique_ptr<Database> database(new Database);
    leveldb::Options& options = database->options_;
    options.env = env;
    options.create_if_missing = create;
    options.paranoid_checks = true;
    options.write_buffer_size = IsBulky(seed) ? 256u << (10 + random.Below(4)) : 64u << (10 + random.Below(2));
    // Where a snapshot keeps two versions of a key and a compaction puts them into two tables, LevelDB 1.23 may bring back what was
    // deleted (`--posix --mode kill --seed 482` without this line): rounds with many small tables hold no snapshot, and the other way.
    options.max_file_size = IsBulky(seed) ? 1 << 20 : 64 << 20;
    options.block_size = 512u << random.Below(5);
    options.max_open_files = random.OneIn(2) ? 74 : 1000;
    options.reuse_logs = random.OneIn(3) && closed;
    options.compression = random.OneIn(2) ? leveldb::kSnappyCompression : leveldb::kNoCompression;
    database->cache_.reset(leveldb::NewLRUCache(random.OneIn(2) ? 64 << 10 : 4 << 20));
    options.block_cache = database->cache_.get();
    database->filter_.reset(leveldb::NewBloomFilterPolicy(10));
    // A table without a filter may be read with one, and the other way.
    options.filter_policy = random.OneIn(2) ? database->filter_.get() : nullptr;
    leveldb::DB* raw = nullptr;
    leveldb::Status status = leveldb::DB::Open(options, path, &raw);
    database->db_.reset(raw);
    if (status.ok()) {
      *result = std::move(database);
    }
    return status;
  }

  leveldb::DB* Get() const { return db_.get(); }
  const leveldb::Options& Options() const { return options_; }

  // The value of the marker; empty in a new database.
  std::string Marker() const {
    std::string value;
    const leveldb::Status status = db_->Get(leveldb::ReadOptions(), FullKey(0, kMarker), &value);
    if (!status.IsNotFound()) {
      Check(status, "Get of the marker");
    }
    return value;
  }

  // Everything, as of a snapshot or now.
  State Contents(const leveldb::Snapshot* snapshot) const {
    State state;
    const std::unique_ptr<leveldb::Iterator> iterator(db_->NewIterator(ReadOptions(snapshot)));
    for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
      const std::string key = iterator->key().ToString();
      const size_t slash = key.find('/');
      int family = 0;
      while (family < kFamilies && key.compare(0, slash, kFamilyNames[family]) != 0) {
        ++family;
      }
      if (slash == std::string::npos || family == kFamilies) {
        Die("a key that was never written: " + key);
      }
      state[family][key.substr(slash + 1)] = iterator->value().ToString();
    }
    Check(iterator->status(), "iterator");
    return state;
  }

  // Dies unless the database holds `expected` exactly, by iterators in both directions and by single reads. `what` names it.
  void Compare(const State& expected, const std::string& what, const leveldb::Snapshot* snapshot = nullptr) const {
    CompareStates(expected, Contents(snapshot), kFamilies, what);
    size_t count = 0;
    for (int family = 0; family < kFamilies; ++family) {
      count += expected[family].size();
      for (const auto& [key, value] : expected[family]) {
        std::string single;
        Check(db_->Get(ReadOptions(snapshot), FullKey(family, key), &single), what + ", key " + key);
        if (single != value) {
          Die(what + ", key " + key + " reads as " + single.substr(0, 40) + ", not " + value.substr(0, 40));
        }
      }
    }
    const std::unique_ptr<leveldb::Iterator> iterator(db_->NewIterator(ReadOptions(snapshot)));
    for (iterator->SeekToLast(); iterator->Valid(); iterator->Prev()) {
      --count;
    }
    Check(iterator->status(), what + ", backwards");
    if (count != 0) {
      Die(what + ": backwards there is another number of keys");
    }
  }

 private:
  Database() = default;

  static leveldb::ReadOptions ReadOptions(const leveldb::Snapshot* snapshot) {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    options.snapshot = snapshot;
    return options;
  }

  leveldb::Options options_;
  std::unique_ptr<leveldb::Cache> cache_;
  std::unique_ptr<const leveldb::FilterPolicy> filter_;
  std::unique_ptr<leveldb::DB> db_;
};

class Writer {
 public:
  Writer(const Arguments& arguments, leveldb::Env* env, Journal* journal)
      : arguments_(arguments), env_(env), journal_(journal), epoch_(journal->Epochs()), copies_(journal->Checkpoints()) {}

  void Run() {
    uint64_t index = journal_->Recovered();
    if (epoch_ > 0) {
      state_ = journal_->StateAt(epoch_ - 1, index);
    }
    journal_->Write("E " + std::to_string(epoch_) + " " + std::to_string(index));
    Open(/*create=*/!journal_->WasOpen());
    journal_->Write("O");
    database_->Compare(state_, "at the start of a writer");
    const uint64_t end = index + arguments_.operations;
    while (index < end) {
      ++index;
      if (index - journal_->Recovered() == arguments_.die_operation) {
        DieIn(arguments_.die_microseconds);
      }
      const Operation operation = MakeOperation(arguments_.seed, epoch_, index);
      journal_->Write("W " + std::to_string(index));
      const bool synced = Do(operation, index);
      Apply(operation, epoch_, index, &state_);
      journal_->Write("A " + std::to_string(index));
      if (synced) {
        journal_->Write("S " + std::to_string(index));
      }
      if (index % 200 == 0) {
        database_->Compare(state_, "while writing, after operation " + std::to_string(index));
      }
    }
    database_->Compare(state_, "at the end of a writer");
    Snapshot(/*again=*/false);
    database_.reset();
    printf("%llu operations\n", static_cast<unsigned long long>(index));
  }

 private:
  void Open(bool create) {
    Check(Database::Open(env_, arguments_.db, arguments_.seed, openings_ + 100 * epoch_, create, /*closed=*/true, &database_), "opening for writing");
    ++openings_;
  }

  // Does an operation; returns whether everything up to it is durable now.
  bool Do(const Operation& operation, uint64_t index) {
    switch (operation.kind) {
      case Kind::kBatch:
        Batch(operation, index, operation.flag);
        return operation.flag;
      case Kind::kIngest:
        Batch(operation, index, /*sync=*/true);
        return true;
      case Kind::kFlushAll:
        // LevelDB flushes the whole memtable first, whatever the range, and waits for it.
        database_->Get()->CompactRange(nullptr, nullptr);
        return true;
      case Kind::kFlushOne:
      case Kind::kCompact: {
        const std::string begin = FullKey(operation.family, "");
        const std::string end = FullKey(operation.family, "~~");
        const leveldb::Slice from = begin;
        const leveldb::Slice to = end;
        database_->Get()->CompactRange(&from, &to);
        return true;
      }
      case Kind::kSyncWal: {
        leveldb::WriteBatch nothing;
        Write(&nothing, /*sync=*/true);
        return true;
      }
      case Kind::kCheckpoint:
        Copy(index);
        return false;
      case Kind::kBackup:
        Snapshot(/*again=*/!IsBulky(arguments_.seed));
        return false;
      case Kind::kReadOnly:
        database_->Compare(state_, "read in the middle");
        return false;
      case Kind::kSecondary:
        OpenTwice();
        return false;
      case Kind::kReopen:
        Snapshot(/*again=*/false);
        database_.reset();
        Open(/*create=*/false);
        return false;
    }
    return false;
  }

  void Write(leveldb::WriteBatch* batch, bool sync) {
    leveldb::WriteOptions options;
    options.sync = sync;
    Check(database_->Get()->Write(options, batch), "Write");
  }

  void Batch(const Operation& operation, uint64_t index, bool sync) {
    leveldb::WriteBatch batch;
    // What a range covers in the middle of the batch.
    State state = state_;
    for (const Update& update : operation.updates) {
      auto& family = state[update.family];
      switch (update.kind) {
        case Update::kPut:
          batch.Put(FullKey(update.family, update.key), update.value);
          family[update.key] = update.value;
          break;
        case Update::kDelete:
          batch.Delete(FullKey(update.family, update.key));
          family.erase(update.key);
          break;
        case Update::kDeleteRange: {
          const auto end = family.lower_bound(update.value);
          for (auto at = family.lower_bound(update.key); at != end; at = family.erase(at)) {
            batch.Delete(FullKey(update.family, at->first));
          }
          break;
        }
      }
    }
    batch.Put(FullKey(0, kMarker), MarkerValue(epoch_, index));
    Write(&batch, sync);
  }

  // Everything into a database of its own, whose last batch is synced.
  void Copy(uint64_t index) {
    if (copies_.size() >= 2) {
      journal_->Write("X " + copies_.front().path);
      Check(leveldb::DestroyDB(copies_.front().path, database_->Options()), "DestroyDB");
      copies_.erase(copies_.begin());
    }
    const std::string path = arguments_.db + ".copy." + std::to_string(epoch_) + "." + std::to_string(index);
    std::unique_ptr<Database> copy;
    Check(Database::Open(env_, path, arguments_.seed, 1000 + index, /*create=*/true, /*closed=*/true, &copy), "opening " + path);
    for (int family = 0; family < kFamilies; ++family) {
      for (const auto& [key, value] : state_[family]) {
        Check(copy->Get()->Put(leveldb::WriteOptions(), FullKey(family, key), value), "Put into a copy");
      }
    }
    leveldb::WriteOptions sync;
    sync.sync = true;
    leveldb::WriteBatch nothing;
    Check(copy->Get()->Write(sync, &nothing), "Write into a copy");
    copy.reset();
    journal_->Write("C " + std::to_string(index) + " " + path);
    copies_.push_back({epoch_, index, path, 0});
  }

  // Compares the snapshot that is held with what was there when it was taken, gives it back and takes another one if wanted.
  void Snapshot(bool again) {
    leveldb::DB* const db = database_->Get();
    if (snapshot_ != nullptr) {
      database_->Compare(snapshot_state_, "snapshot", snapshot_);
      db->ReleaseSnapshot(snapshot_);
      snapshot_ = nullptr;
    }
    if (again) {
      snapshot_ = db->GetSnapshot();
      snapshot_state_ = state_;
    }
  }

  void OpenTwice() {
    std::unique_ptr<Database> second;
    const leveldb::Status status = Database::Open(env_, arguments_.db, arguments_.seed, 0, /*create=*/false, /*closed=*/true, &second);
    if (!status.IsIOError()) {
      Die("a second opening was not refused: " + status.ToString());
    }
  }

  const Arguments& arguments_;
  leveldb::Env* const env_;
  Journal* const journal_;
  const uint64_t epoch_;
  uint64_t openings_ = 0;
  std::vector<Journal::Copy> copies_;
  State state_;
  std::unique_ptr<Database> database_;
  const leveldb::Snapshot* snapshot_ = nullptr;
  State snapshot_state_;
};

void Verify(const Arguments& arguments, leveldb::Env* env, Journal* journal) {
  if (journal->Epochs() == 0) {
    // Killed before it began.
    return;
  }
  // LevelDB does not sync the renaming that makes a new database one: until something is synced, a power loss may take it back.
  const bool may_be_missing = !journal->WasOpen() || (arguments.after == "power" && journal->Epochs() == 1 && journal->Synced() == 0);
  std::unique_ptr<Database> database;
  const uint64_t opening = 10000 + journal->Epochs();
  Check(Database::Open(env, arguments.db, arguments.seed, opening, may_be_missing, /*closed=*/false, &database), "opening after the crash");
  const uint64_t index = FindOperation(arguments, *journal, database->Marker());
  database->Compare(journal->StateAt(journal->Epochs() - 1, index), "after the crash, at operation " + std::to_string(index));
  database.reset();
  for (const Journal::Copy& copy : journal->Checkpoints()) {
    Check(Database::Open(env, copy.path, arguments.seed, 20000 + copy.index, /*create=*/false, /*closed=*/false, &database), "copy " + copy.path);
    database->Compare(journal->StateAt(copy.epoch, copy.index - 1), "copy " + copy.path);
    database.reset();
  }
  journal->Write("R " + std::to_string(index));
  printf("at operation %llu of %llu issued, %llu acknowledged, %llu synced; %zu copies\n", static_cast<unsigned long long>(index),
         static_cast<unsigned long long>(journal->Issued()), static_cast<unsigned long long>(journal->Acknowledged()),
         static_cast<unsigned long long>(journal->Synced()), journal->Checkpoints().size());
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    return 2;
  }
  if (arguments.command == "write" && arguments.die_operation == 0 && arguments.die_microseconds > 0) {
    DieIn(arguments.die_microseconds);
  }
  std::unique_ptr<leveldb::Env> owner;
  leveldb::Env* env = leveldb::Env::Default();
  if (!arguments.uri.empty()) {
    std::string error;
    owner.reset(imbrex::NewLevelDbEnv(arguments.uri, &error));
    if (owner == nullptr) {
      Die(error);
    }
    env = owner.get();
  }
  Journal journal(arguments.log, arguments.seed);
  if (!journal.Load()) {
    return 1;
  }
  if (arguments.command == "write") {
    Writer(arguments, env, &journal).Run();
  } else {
    Verify(arguments, env, &journal);
  }
  return 0;
}

}  // namespace
}  // namespace crash

int main(int argc, char** argv) { return crash::Main(argc, argv); }
