#include "rocks_works.h"

#include <chrono>
#include <thread>

#include "releases.h"
#include "rocksdb/sst_file_manager.h"
#include "rocksdb/sst_file_writer.h"
#include "rocksdb/utilities/backup_engine.h"
#include "rocksdb/utilities/checkpoint.h"

namespace faults {

namespace {

using rocksdb::Options;
using rocksdb::Status;

constexpr int kKeys = 120;
// Of the keys that the work itself writes.
constexpr int kMore = 100000;

void Plain(Options*) {}

// A lower level, and tables above it that overlap with all of it.
void Levels(Rocks* rocks) {
  rocks->Tables(2, 0, kKeys);
  Check(rocks->Db()->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr), "compacting");
  rocks->Tables(3, 0, kKeys);
}

void Unflushed(Rocks* rocks) {
  rocks->Tables(1, 0, kKeys);
  Check(rocks->Write(kKeys / 2, kKeys + 40, /*sync=*/true), "writing");
}

// Lets RocksDB compact by itself, and waits.
Status Automatic(Rocks* rocks) {
  Status status = rocks->Db()->SetOptions({{"disable_auto_compactions", "false"}});
  if (status.ok()) {
    // A flush has the levels looked at again.
    status = rocks->Write(kMore, kMore + 5, /*sync=*/true);
  }
  if (status.ok()) {
    status = rocks->FlushMemtable();
  }
  return status.ok() ? rocks->Settled() : status;
}

Status CompactAll(Rocks* rocks) { return rocks->Db()->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr); }

// Writes on into the memtable, unsynced, and makes it durable by `sync`.
Status Synced(Rocks* rocks, const std::function<Status(rocksdb::DB*)>& sync) {
  Status status = rocks->Write(kMore, kMore + 30, /*sync=*/false);
  if (status.ok()) {
    status = sync(rocks->Db());
  }
  if (status.ok()) {
    rocks->Data().Settle();
    status = rocks->Write(kMore + 30, kMore + 35, /*sync=*/true);
  }
  return status;
}

Status Ingest(Rocks* rocks) {
  rocksdb::IngestExternalFileOptions options;
  options.move_files = false;
  // The old way, which overwrites eight bytes of the table.
  options.write_global_seqno = true;
  const Status status = rocks->Db()->IngestExternalFile({"/ingest.sst"}, options);
  if (status.ok()) {
    for (int i = 10; i < kKeys; i += 3) {
      rocks->Data().Acknowledge(Key(i));
    }
    rocks->Data().Settle();
  }
  return status;
}

void MakeTable(Rocks* rocks) {
  rocks->Tables(1, 0, kKeys);
  rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), rocks->Options());
  Check(writer.Open("/ingest.sst"), "SstFileWriter::Open");
  for (int i = 10; i < kKeys; i += 3) {
    Check(writer.Put(Key(i), rocks->Data().Begin(Key(i))), "SstFileWriter::Put");
  }
  Check(writer.Finish(), "SstFileWriter::Finish");
}

Status CheckpointIt(Rocks* rocks) {
  rocksdb::Checkpoint* raw = nullptr;
  Status status = rocksdb::Checkpoint::Create(rocks->Db(), &raw);
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(raw);
  if (status.ok()) {
    status = checkpoint->CreateCheckpoint("/checkpoint");
  }
  if (status.ok()) {
    std::unique_ptr<rocksdb::DB> copy;
    Options options = rocks->Options();
    options.listeners.clear();
    status = rocksdb::DB::OpenForReadOnly(options, "/checkpoint", imbrex::Into(&copy));
  }
  return status;
}

Status BackUp(Rocks* rocks) {
  rocksdb::BackupEngine* raw = nullptr;
  Status status = rocksdb::BackupEngine::Open(rocksdb::BackupEngineOptions("/backup"), rocks->Env(), &raw);
  const std::unique_ptr<rocksdb::BackupEngine> engine(raw);
  rocksdb::BackupID id = 0;
  if (status.ok()) {
    status = engine->CreateNewBackup(rocksdb::CreateBackupOptions(), rocks->Db(), &id);
  }
  if (status.ok()) {
    status = engine->VerifyBackup(id, /*verify_with_checksum=*/true);
  }
  return status;
}

Status Chat(Rocks* rocks) {
  for (int i = 0; i < 400; ++i) {
    rocksdb::Info(rocks->Db()->GetDBOptions().info_log, "line %d of a log that is soon full, and begins another file then", i);
  }
  return rocks->Write(kMore, kMore + 3, /*sync=*/true);
}

Status Delete(Rocks* rocks) {
  Status status = CompactAll(rocks);
  if (status.ok()) {
    status = imbrex::EnableFileDeletions(rocks->Db());
  }
  // The trash is emptied by a thread of the SstFileManager.
  for (int i = 0; i < 400 && status.ok(); ++i) {
    std::vector<std::string> names;
    if (!rocks->Env()->GetChildren("/db", &names).ok()) {
      break;
    }
    bool trash = false;
    for (const std::string& name : names) {
      trash = trash || name.find(".trash") != std::string::npos;
    }
    if (!trash) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status;
}

Status Reopen(Rocks* rocks) {
  rocks->CloseDatabase();
  return rocks->Open();
}

// Options, for a kind of compaction.
void SubCompactions(Options* options) {
  options->max_subcompactions = 3;
  options->level0_file_num_compaction_trigger = 2;
  options->target_file_size_base = 20 << 10;
  options->max_bytes_for_level_base = 40 << 10;
}
void Universal(Options* options) {
  options->compaction_style = rocksdb::kCompactionStyleUniversal;
  options->level0_file_num_compaction_trigger = 2;
}
void Fifo(Options* options) {
  options->compaction_style = rocksdb::kCompactionStyleFIFO;
  options->compaction_options_fifo.max_table_files_size = 250 << 10;
  options->compaction_options_fifo.allow_compaction = true;
  options->level0_file_num_compaction_trigger = 2;
}
void Ttl(Options* options) {
  options->ttl = 1;
  options->level0_file_num_compaction_trigger = 100;
}
void Blobs(Options* options) {
  options->enable_blob_files = true;
  options->min_blob_size = 100;
  options->blob_file_size = 32 << 10;
  options->enable_blob_garbage_collection = true;
  options->blob_garbage_collection_age_cutoff = 1.0;
  options->blob_garbage_collection_force_threshold = 0.0;
}
void Trash(Options* options) {
  // Files of more than a quarter of what it deletes in a second are deleted in pieces.
  options->sst_file_manager.reset(
      rocksdb::NewSstFileManager(options->env, nullptr, "", 4 << 20, /*delete_existing_trash=*/true, nullptr, /*max_trash_db_ratio=*/10.0, 16 << 10));
}

}  // namespace

std::vector<Work> AllWorks() {
  using D = rocksdb::DB;
  return {
      {"flush", Moment::kFlushBegin, Plain, Unflushed, [](Rocks* r) { return r->FlushMemtable(); }},
      {"compaction", Moment::kCompactionBegin, SubCompactions, Levels, Automatic},
      {"compact-range", Moment::kCompactionBegin, Plain, Levels, CompactAll},
      {"universal", Moment::kCompactionBegin, Universal, [](Rocks* r) { r->Tables(4, 0, kKeys); }, Automatic},
      {"fifo", Moment::kCall, Fifo,
       [](Rocks* r) {
         r->Tables(5, 0, kKeys);
         r->Data().AllowAbsence();
       },
       [](Rocks* r) {
         const Status status = Automatic(r);
         r->Data().AllowAbsence();
         return status;
       }},
      {"ttl", Moment::kCompactionBegin, Ttl,
       [](Rocks* r) {
         Levels(r);
         std::this_thread::sleep_for(std::chrono::milliseconds(2100));
       },
       Automatic},
      {"blob-gc", Moment::kCompactionBegin, Blobs, Levels, CompactAll},
      {"wal-sync", Moment::kCall, Plain, Unflushed, [](Rocks* r) { return Synced(r, [](D* db) { return db->SyncWAL(); }); }},
      {"wal-manual-flush", Moment::kCall, [](Options* o) { o->manual_wal_flush = true; }, Unflushed,
       [](Rocks* r) { return Synced(r, [](D* db) { return db->FlushWAL(/*sync=*/true); }); }},
      {"wal-switch", Moment::kCall, [](Options* o) { o->write_buffer_size = 64 << 10; }, Unflushed,
       [](Rocks* r) {
         const Status status = r->Write(kMore, kMore + 150, /*sync=*/true);
         return status.ok() ? r->Settled() : status;
       }},
      {"manifest-roll", Moment::kCall, [](Options* o) { o->max_manifest_file_size = 1; }, Unflushed,
       [](Rocks* r) {
         Status status = r->FlushMemtable();
         return status.ok() ? CompactAll(r) : status;
       }},
      {"ingest", Moment::kCall, Plain, MakeTable, Ingest, /*copies=*/true},
      {"checkpoint", Moment::kCall, Plain, Unflushed, CheckpointIt, /*copies=*/true},
      {"backup", Moment::kCall, Plain, Unflushed, BackUp, /*copies=*/true},
      {"info-log-roll", Moment::kCall, [](Options* o) { o->max_log_file_size = 4 << 10; }, Unflushed, Chat},
      {"delete-obsolete", Moment::kCall, Trash,
       [](Rocks* r) {
         Levels(r);
         Check(r->Db()->DisableFileDeletions(), "DisableFileDeletions");
       },
       Delete},
      {"options-file", Moment::kCall, Plain, Unflushed, [](Rocks* r) { return r->Db()->SetOptions({{"max_write_buffer_number", "4"}}); }},
      {"recovery", Moment::kCall, Plain, Unflushed, Reopen},
  };
}

}  // namespace faults
