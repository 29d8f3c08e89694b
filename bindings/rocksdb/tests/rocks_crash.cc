// A RocksDB that is killed at a random moment, and the check of what it left. crash_rounds runs it.
//
//   rocks_crash write  --log=FILE --seed=N --db=PATH [--uri=URI] [--operations=N] [--die-operation=N] [--die-microseconds=N]
//   rocks_crash verify --log=FILE --seed=N --db=PATH [--uri=URI] --after=kill|power
//
// `write` goes on where the log says that the last verifier left the database, does --operations operations and ends with exit code 0,
// unless it kills itself before: --die-microseconds after it began operation --die-operation, or after its start when that is 0.
// `verify` opens what is there with paranoid checks and compares. After a kill, everything acknowledged must be there; after a power loss,
// everything synced; and in either case exactly what some prefix of the operations left, nothing of operations never issued, and
// checkpoints and backups exactly as they were taken. Without --uri the database is in the host's file system (a power loss cannot be
// simulated there). Exit code 1: something was wrong, and stderr says what.

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "crash_database.h"
#include "crash_model.h"
#include "crash_run.h"
#include "crash_tail.h"
#include "releases.h"
#include "rocksdb/convenience.h"
#include "rocksdb/sst_file_writer.h"
#include "rocksdb/utilities/backup_engine.h"
#include "rocksdb/utilities/checkpoint.h"

namespace crash {
namespace {

// Deletes a database or what is left of one.
void RemoveAll(rocksdb::Env* env, const std::string& path) {
  bool is_directory = false;
  if (!env->IsDirectory(path, &is_directory).ok()) {
    return;
  }
  if (!is_directory) {
    Check(env->DeleteFile(path), "deleting " + path);
    return;
  }
  std::vector<std::string> children;
  Check(env->GetChildren(path, &children), "listing " + path);
  for (const std::string& child : children) {
    if (child != "." && child != "..") {
      RemoveAll(env, path + "/" + child);
    }
  }
  Check(env->DeleteDir(path), "deleting " + path);
}

// RocksDB can lose track of a manual flush where min_write_buffer_number_to_merge is more than 1: a background flush takes the
// request with it, and Flush or CompactRange waits for ever with all threads idle, on any file system (facebook/rocksdb issues
// 12094 and 13280). Any other flush sets it going again: this thread asks for one when an operation takes suspiciously long, and
// says so, so that such rounds are counted.
class Nudge {
 public:
  explicit Nudge(const Database& database) : database_(database), thread_([this] { Run(); }) {}
  ~Nudge() {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::seconds(5), [this] { return stop_; })) {
      fputs("nudged a flush that RocksDB forgot\n", stdout);
      fflush(stdout);
      rocksdb::FlushOptions options;
      options.wait = false;
      options.allow_write_stall = true;
      for (rocksdb::ColumnFamilyHandle* const family : database_.Families()) {
        Check(database_.Get()->Flush(options, family), "Flush without waiting");
      }
    }
  }

  const Database& database_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

class Writer {
 public:
  Writer(const Arguments& arguments, rocksdb::Env* env, Journal* journal)
      : arguments_(arguments),
        env_(env),
        journal_(journal),
        epoch_(journal->Epochs()),
        variant_{arguments.seed, 2 * epoch_},
        checkpoints_(journal->Checkpoints()),
        backups_(journal->Backups()) {}

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
    tail_.reset();
    database_->Compare(state_, "at the end of a writer");
    database_.reset();
    printf("%llu operations, %llu batches followed in the WAL\n", static_cast<unsigned long long>(index),
           static_cast<unsigned long long>(Tail::BatchesRead()));
  }

 private:
  void Open(bool create) {
    Check(Database::Open(env_, arguments_.db, variant_, Database::Mode::kWrite, create, &database_), "opening for writing");
    if (KeepsWals(variant_)) {
      tail_ = std::make_unique<Tail>(database_->Get(), arguments_.seed, epoch_);
    }
  }

  // Does an operation; returns whether everything up to it is durable now.
  bool Do(const Operation& operation, uint64_t index) {
    rocksdb::DB* const db = database_->Get();
    std::unique_ptr<Nudge> nudge;
    if (MergesMemtables(variant_) && operation.kind != Kind::kBatch && operation.kind != Kind::kReopen) {
      nudge = std::make_unique<Nudge>(*database_);
    }
    switch (operation.kind) {
      case Kind::kBatch:
        Batch(operation, index);
        if (tail_ != nullptr) {
          tail_->Resume();
        }
        return operation.flag;
      case Kind::kIngest:
        if (tail_ != nullptr) {
          tail_->Pause();
        }
        Ingest(operation, index);
        return true;
      case Kind::kFlushAll:
        Check(db->Flush(rocksdb::FlushOptions(), database_->Families()), "Flush");
        return true;
      case Kind::kFlushOne:
        Check(db->Flush(rocksdb::FlushOptions(), database_->Family(operation.family)), "Flush of one family");
        return false;
      case Kind::kCompact:
        Check(db->CompactRange(rocksdb::CompactRangeOptions(), database_->Family(operation.family), nullptr, nullptr), "CompactRange");
        return false;
      case Kind::kSyncWal:
        Check(db->FlushWAL(/*sync=*/true), "FlushWAL");
        return true;
      case Kind::kCheckpoint:
        Checkpoint(operation, index);
        return false;
      case Kind::kBackup:
        Backup(operation, index);
        return false;
      case Kind::kReadOnly:
        Other(Database::Mode::kReadOnly);
        return false;
      case Kind::kSecondary:
        Other(Database::Mode::kSecondary);
        return false;
      case Kind::kReopen:
        tail_.reset();
        database_.reset();
        Open(/*create=*/false);
        return false;
    }
    return false;
  }

  void Batch(const Operation& operation, uint64_t index) {
    rocksdb::WriteBatch batch;
    for (const Update& update : operation.updates) {
      rocksdb::ColumnFamilyHandle* const family = database_->Family(update.family);
      switch (update.kind) {
        case Update::kPut:
          Check(batch.Put(family, update.key, update.value), "Put");
          break;
        case Update::kDelete:
          Check(batch.Delete(family, update.key), "Delete");
          break;
        case Update::kDeleteRange:
          Check(batch.DeleteRange(family, update.key, update.value), "DeleteRange");
          break;
      }
    }
    Check(batch.Put(database_->Family(0), kMarker, MarkerValue(epoch_, index)), "Put");
    rocksdb::WriteOptions options;
    options.sync = operation.flag;
    Check(database_->Get()->Write(options, &batch), "Write");
  }

  void Ingest(const Operation& operation, uint64_t index) {
    // The file becomes durable with the call, so what was written before it must be.
    Check(database_->Get()->FlushWAL(/*sync=*/true), "FlushWAL before an ingestion");
    journal_->Write("S " + std::to_string(index - 1));
    const std::string path = arguments_.db + ".ingest";
    rocksdb::Options options;
    options.env = env_;
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options);
    Check(writer.Open(path), "SstFileWriter::Open");
    for (const Update& update : operation.updates) {
      Check(writer.Put(update.key, update.value), "SstFileWriter::Put");
    }
    Check(writer.Put(kMarker, MarkerValue(epoch_, index)), "SstFileWriter::Put");
    Check(writer.Finish(), "SstFileWriter::Finish");
    rocksdb::IngestExternalFileOptions ingest;
    ingest.move_files = operation.flag;
    ingest.write_global_seqno = true;
    if (MergesMemtables(variant_)) {
      // An ingestion stops all writes while it waits for its own flush, so nobody could nudge that one: it shall need none.
      Check(database_->Get()->Flush(rocksdb::FlushOptions(), database_->Family(0)), "Flush before an ingestion");
    }
    // Debian's RocksDB has assertions on, and answers TryAgain where it looks at the memtables it had before the flush that it has
    // just waited for: two flush threads may leave them so for a moment.
    rocksdb::Status status;
    for (int attempt = 0; attempt < 100; ++attempt) {
      status = database_->Get()->IngestExternalFile(database_->Family(0), {path}, ingest);
      if (!status.IsTryAgain()) {
        break;
      }
      usleep(1000);
    }
    Check(status, "IngestExternalFile");
    if (env_->FileExists(path).ok()) {
      Check(env_->DeleteFile(path), "deleting the ingested file");
    }
  }

  void Checkpoint(const Operation& operation, uint64_t index) {
    if (checkpoints_.size() >= 2) {
      journal_->Write("X " + checkpoints_.front().path);
      RemoveAll(env_, checkpoints_.front().path);
      checkpoints_.erase(checkpoints_.begin());
    }
    const std::string path = arguments_.db + ".checkpoint." + std::to_string(epoch_) + "." + std::to_string(index);
    if (!operation.flag) {
      // Nothing is flushed, so the checkpoint links WALs: it can only be as durable as they are.
      Check(database_->Get()->FlushWAL(/*sync=*/true), "FlushWAL before a checkpoint");
      journal_->Write("S " + std::to_string(index - 1));
    }
    rocksdb::Checkpoint* raw = nullptr;
    Check(rocksdb::Checkpoint::Create(database_->Get(), &raw), "Checkpoint::Create");
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(raw);
    Check(checkpoint->CreateCheckpoint(path, operation.flag ? 0 : ~uint64_t{0}), "CreateCheckpoint");
    journal_->Write("C " + std::to_string(index) + " " + path);
    checkpoints_.push_back({epoch_, index, path, 0});
  }

  void Backup(const Operation& operation, uint64_t index) {
    rocksdb::BackupEngine* raw = nullptr;
    rocksdb::BackupEngineOptions options(arguments_.db + ".backups", env_);
    options.max_background_operations = 2;
    Check(rocksdb::BackupEngine::Open(options, env_, &raw), "BackupEngine::Open");
    const std::unique_ptr<rocksdb::BackupEngine> engine(raw);
    if (backups_.size() >= 3) {
      journal_->Write("P " + std::to_string(backups_[backups_.size() - 2].backup));
      backups_.erase(backups_.begin(), backups_.end() - 1);
      Check(engine->PurgeOldBackups(1), "PurgeOldBackups");
      Check(engine->GarbageCollect(), "GarbageCollect");
    }
    rocksdb::CreateBackupOptions create;
    create.flush_before_backup = operation.flag;
    rocksdb::BackupID id = 0;
    Check(engine->CreateNewBackup(create, database_->Get(), &id), "CreateNewBackup");
    journal_->Write("B " + std::to_string(index) + " " + std::to_string(id));
    backups_.push_back({epoch_, index, std::string(), id});
  }

  // A second instance on the same files, while this one has them open.
  void Other(Database::Mode mode) {
    Check(database_->Get()->DisableFileDeletions(), "DisableFileDeletions");
    {
      std::unique_ptr<Database> other;
      const char* const what = mode == Database::Mode::kReadOnly ? "read-only instance" : "secondary instance";
      Check(Database::Open(env_, arguments_.db, variant_, mode, /*create=*/false, &other), what);
      if (mode == Database::Mode::kSecondary) {
        Check(other->Get()->TryCatchUpWithPrimary(), what);
      }
      other->Compare(state_, what);
    }
    Check(imbrex::EnableFileDeletions(database_->Get()), "EnableFileDeletions");
  }

  const Arguments& arguments_;
  rocksdb::Env* const env_;
  Journal* const journal_;
  const uint64_t epoch_;
  const Variant variant_;
  std::vector<Journal::Copy> checkpoints_;
  std::vector<Journal::Copy> backups_;
  State state_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Tail> tail_;
};

// Which operation left what the database holds; dies when that breaks a promise.
uint64_t CheckPrefix(const Arguments& arguments, const Journal& journal, const Database& database) {
  const uint64_t index = FindOperation(arguments, journal, database.Marker());
  database.Compare(journal.StateAt(journal.Epochs() - 1, index), "after the crash, at operation " + std::to_string(index));
  return index;
}

void CheckCopies(const Arguments& arguments, const Journal& journal, rocksdb::Env* env) {
  for (const Journal::Copy& copy : journal.Checkpoints()) {
    std::unique_ptr<Database> database;
    Check(Database::Open(env, copy.path, Variant{arguments.seed, 1000}, Database::Mode::kReadOnly, /*create=*/false, &database), "checkpoint " + copy.path);
    database->Compare(journal.StateAt(copy.epoch, copy.index - 1), "checkpoint " + copy.path);
  }
  if (!journal.Backups().empty()) {
    const Journal::Copy& copy = journal.Backups().back();
    const std::string path = arguments.db + ".restored";
    rocksdb::BackupEngineReadOnly* raw = nullptr;
    Check(rocksdb::BackupEngineReadOnly::Open(rocksdb::BackupEngineOptions(arguments.db + ".backups", env), env, &raw), "opening the backups");
    const std::unique_ptr<rocksdb::BackupEngineReadOnly> engine(raw);
    const auto id = static_cast<rocksdb::BackupID>(copy.backup);
    Check(engine->VerifyBackup(id, /*verify_with_checksum=*/true), "VerifyBackup");
    Check(engine->RestoreDBFromBackup(id, path, path), "RestoreDBFromBackup");
    {
      std::unique_ptr<Database> database;
      Check(Database::Open(env, path, Variant{arguments.seed, 1001}, Database::Mode::kWrite, /*create=*/false, &database), "restored backup");
      database->Compare(journal.StateAt(copy.epoch, copy.index - 1), "backup " + std::to_string(id));
    }
    RemoveAll(env, path);
  }
}

void Verify(const Arguments& arguments, rocksdb::Env* env, Journal* journal) {
  if (journal->Epochs() == 0) {
    // Killed before it began.
    return;
  }
  const Variant variant = {arguments.seed, 2 * journal->Epochs() + 1};
  std::unique_ptr<Database> database;
  std::string seen;
  bool was_seen = false;
  if (journal->WasOpen() && Random(arguments.seed, 0x0910, journal->Epochs()).OneIn(2)) {
    // What a reader sees, who must not change anything, and the writer after it must agree.
    Check(Database::Open(env, arguments.db, variant, Database::Mode::kReadOnly, /*create=*/false, &database), "opening read-only after the crash");
    CheckPrefix(arguments, *journal, *database);
    seen = database->Marker();
    was_seen = true;
    database.reset();
  }
  Check(Database::Open(env, arguments.db, variant, Database::Mode::kWrite, /*create=*/!journal->WasOpen(), &database), "opening after the crash");
  const uint64_t index = CheckPrefix(arguments, *journal, *database);
  if (was_seen && seen != database->Marker()) {
    Die("a read-only instance saw the database at " + seen + ", the writer at " + database->Marker());
  }
  Check(database->Get()->VerifyChecksum(), "VerifyChecksum");
  database.reset();
  CheckCopies(arguments, *journal, env);
  journal->Write("R " + std::to_string(index));
  printf("at operation %llu of %llu issued, %llu acknowledged, %llu synced; %zu checkpoints, %zu backups\n",
         static_cast<unsigned long long>(index), static_cast<unsigned long long>(journal->Issued()),
         static_cast<unsigned long long>(journal->Acknowledged()), static_cast<unsigned long long>(journal->Synced()),
         journal->Checkpoints().size(), journal->Backups().size());
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    return 2;
  }
  if (arguments.command == "write" && arguments.die_operation == 0 && arguments.die_microseconds > 0) {
    DieIn(arguments.die_microseconds);
  }
  rocksdb::Env* env = rocksdb::Env::Default();
  std::shared_ptr<rocksdb::Env> guard;
  if (!arguments.uri.empty()) {
    Check(rocksdb::Env::CreateFromUri(rocksdb::ConfigOptions(), "", arguments.uri, &env, &guard), "opening " + arguments.uri);
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
