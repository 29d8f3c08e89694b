#include "database.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>

#include "file_system.h"
#include "host_log.h"
#include "rocksdb/cache.h"
#include "rocksdb/convenience.h"
#include "rocksdb/experimental.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/listener.h"
#include "rocksdb/table.h"
#include "rocksdb/write_batch.h"
#include "status.h"
#include "whole_files.h"

namespace imbrex {

using rocksdb::ColumnFamilyOptions;
using rocksdb::DBOptions;
using rocksdb::ReadOptions;
using rocksdb::Slice;
using rocksdb::Status;

namespace {

constexpr const char* kPath = "/rocksdb";

// What somebody does whose metadata do not open.
constexpr const char* kSalvage = "the store was left as it is; copy what is left of it with `imbrex store salvage`";

// A range of so many keys is deleted key by key: RocksDB keeps each deleted range until compactions have come by, and asks all of them in each read.
constexpr size_t kShort = 256;

// Bits of the filters for a key: one look in a hundred is in vain.
constexpr double kFilterBits = 10;

// A compaction takes so many tables at most, since it needs as much room again.
constexpr uint64_t kTablesAtOnce = 4;

// A memtable is a few times as large as all logs should be, so a log is full first. But logs go on while a flush is under way, and then memory has a limit, too.
constexpr uint64_t kMoreThanLog = 4;
// Where an opening finds no room for tables it takes all that is in the logs to memory, so that something can be deleted.
constexpr uint64_t kAllLogs = 256;

// Hears of what fails in the background: without it writes would go on, and what is in memory would never become tables. And of compactions.
class Watch final : public rocksdb::EventListener {
 public:
  explicit Watch(Database* database) : database_(database) {}
  void OnCompactionBegin(rocksdb::DB* /*db*/, const rocksdb::CompactionJobInfo& /*info*/) override { database_->NoteCompaction(); }
  void OnBackgroundError(rocksdb::BackgroundErrorReason /*reason*/, Status* error) override { database_->NoteFailure(*error); }

 private:
  Database* const database_;
};

DBOptions OptionsOfDatabase(const imbrex_rocks_options& given, const imbrex_advice& advice, rocksdb::Env* env) {
  DBOptions options;
  options.env = env;
  options.info_log = NewHostLog();
  options.create_if_missing = given.create;
  options.create_missing_column_families = true;
  // When logs have so many bytes the families in the oldest are flushed, and it goes. So all memtables together have as many.
  options.max_total_wal_size = given.memtable;
  // The log ends where the drive lost power: a prefix of all writes, over all families. Bytes that are damaged are no such end (whole_files.h).
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  // An opening needs no room for tables, so that a full drive can be opened and deleted from.
  options.avoid_flush_during_recovery = true;
  // What failed stays so until the store is opened again, as with its own zones.
  options.max_bgerror_resume_count = 0;
  options.max_background_jobs = 2;
  options.compaction_readahead_size = advice.compaction_readahead_size;
  // Nobody reads these figures.
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

rocksdb::BlockBasedTableOptions OptionsOfTables(uint64_t cache) {
  rocksdb::BlockBasedTableOptions options;
  options.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kFilterBits));
  options.no_block_cache = cache == 0;
  if (cache > 0) {
    options.block_cache = rocksdb::NewLRUCache(cache);
    // Indexes and filters are in the cache, too, in parts: else their memory would grow with the metadata.
    options.cache_index_and_filter_blocks = true;
    options.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
    options.partition_filters = true;
  }
  return options;
}

ColumnFamilyOptions OptionsOfFamily(const imbrex_rocks_options& given, const imbrex_advice& advice,
                                    const rocksdb::BlockBasedTableOptions& tables) {
  ColumnFamilyOptions options;
  options.write_buffer_size = kMoreThanLog * given.memtable;
  options.target_file_size_base = given.table > 0 ? given.table : advice.target_file_size;
  options.max_bytes_for_level_base = std::max<uint64_t>(4 * options.target_file_size_base, given.memtable);
  options.max_compaction_bytes = kTablesAtOnce * options.target_file_size_base;
  options.ignore_max_compaction_bytes_for_input = false;
  options.level_compaction_dynamic_level_bytes = true;
  options.disable_auto_compactions = given.look;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(tables));
  // A RocksDB need not have been built with it.
  const std::vector<rocksdb::CompressionType> known = rocksdb::GetSupportedCompressions();
  const bool lz4 = std::find(known.begin(), known.end(), rocksdb::kLZ4Compression) != known.end();
  options.compression = lz4 ? rocksdb::kLZ4Compression : rocksdb::kNoCompression;
  return options;
}

// How often somebody who waits for compactions looks, and after how many looks without one he gives up: nobody has asked for what is due, or somebody has. Databases of a process share the
// threads that compact.
constexpr std::chrono::milliseconds kNap(5);
constexpr int kIdle = 400;
constexpr int kIdleAsked = 6000;
// Others go on writing, so compactions need not end: after so many times as many looks he gives up as well.
constexpr int kBusy = 20;

// Who finds no room has tables of a family compacted that lie above others, once one key in so many of it was deleted since the last time. More often it would cost more than it gives.
constexpr uint64_t kDeletedOf = 16;
// Nobody knows what was deleted before the opening, so that is enough. It leaves room to be added to.
constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max() / 2;

Slice SliceOf(const void* bytes, size_t length) { return Slice(static_cast<const char*>(bytes), length); }

}  // namespace

Status Database::Open(FsHandle fs, const imbrex_rocks_options& given, std::unique_ptr<Database>* out) {
  imbrex_advice advice = {};
  Status status = ToStatus(imbrex_fs_advise(fs.get(), &advice), std::string());
  if (!status.ok()) {
    return status;
  }
  std::unique_ptr<Database> made(new Database(given.family_count + 1));
  const auto damage = std::make_shared<Damage>();
  const auto files = std::make_shared<FileSystem>(FileSystem::kClassName(), std::move(fs));
  made->env_ = rocksdb::NewCompositeEnv(std::make_shared<WholeFiles>(files, damage));
  made->look_ = given.look;
  const std::string current = std::string(kPath) + "/CURRENT";
  if (!given.create && made->env_->FileExists(current).IsNotFound()) {
    return Status::Corruption(current, std::string("it is gone, and with it what tables there are; ") + kSalvage);
  }
  DBOptions options = OptionsOfDatabase(given, advice, made->env_.get());
  options.listeners.push_back(std::make_shared<Watch>(made.get()));
  ColumnFamilyOptions of_family = OptionsOfFamily(given, advice, OptionsOfTables(given.cache));
  status = made->OpenWith(options, of_family, given);
  if (status.IsNoSpace()) {
    of_family.write_buffer_size = kAllLogs * given.memtable;
    made->failure_ = Status::OK();
    damage->Forget();
    status = made->OpenWith(options, of_family, given);
  }
  if (!status.ok() && !damage->Found().ok()) {
    status = Status::Corruption(damage->Found().ToString(), kSalvage);
  }
  if (status.ok()) {
    *out = std::move(made);
  }
  return status;
}

Database::Database(size_t families) : deleted_(families) {
  for (std::atomic<uint64_t>& deleted : deleted_) {
    deleted = kUnknown;
  }
}

Status Database::OpenWith(const DBOptions& options, const ColumnFamilyOptions& of_family, const imbrex_rocks_options& given) {
  // RocksDB wants its own first one, in which nothing is.
  std::vector<rocksdb::ColumnFamilyDescriptor> families{{rocksdb::kDefaultColumnFamilyName, of_family}};
  for (size_t i = 0; i < given.family_count; ++i) {
    families.emplace_back(given.families[i], of_family);
  }
  rocksdb::DB* db = nullptr;
  families_.clear();
  const Status status = rocksdb::DB::Open(options, kPath, families, &families_, &db);
  db_.reset(db);
  return status;
}

Database::~Database() {
  if (db_ == nullptr) {
    return;
  }
  for (rocksdb::ColumnFamilyHandle* family : families_) {
    db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  }
  // All that was synced is on the drive, and all that was written in its files.
  db_->Close().PermitUncheckedError();
}

rocksdb::ColumnFamilyHandle* Database::Family(uint32_t family) const {
  return families_.at(size_t{family} + 1);
}

Status Database::Get(uint32_t family, const Slice& key, void* context, imbrex_rocks_taker take) const {
  rocksdb::PinnableSlice value;
  const Status status = db_->Get(ReadOptions(), Family(family), key, &value);
  if (status.ok()) {
    take(context, nullptr, 0, value.data(), value.size());
  }
  return status.IsNotFound() ? Status::OK() : status;
}

bool Database::GetWouldRead(uint32_t family, const Slice& key) const {
  ReadOptions options;
  options.read_tier = rocksdb::kBlockCacheTier;
  rocksdb::PinnableSlice value;
  return db_->Get(options, Family(family), key, &value).IsIncomplete();
}

Status Database::Pairs(const imbrex_rocks_range& range, void* context, imbrex_rocks_taker take) const {
  ReadOptions options;
  const Slice end = SliceOf(range.to, range.to_length);
  options.iterate_upper_bound = range.to == nullptr ? nullptr : &end;
  options.fill_cache = !range.far;
  const std::unique_ptr<rocksdb::Iterator> iterator(db_->NewIterator(options, Family(range.family)));
  size_t taken = 0;
  if (range.most > 0) {
    iterator->Seek(SliceOf(range.from, range.from_length));
  }
  while (taken < range.most && iterator->Valid()) {
    const Slice key = iterator->key();
    const Slice value = iterator->value();
    take(context, key.data(), key.size(), value.data(), value.size());
    if (++taken < range.most) {
      iterator->Next();
    }
  }
  return iterator->status();
}

uint64_t Database::KeysOf(rocksdb::ColumnFamilyHandle* family, const rocksdb::Range& range) const {
  uint64_t keys = 0;
  uint64_t all = 0;
  uint64_t bytes = 0;
  rocksdb::SizeApproximationOptions options;
  options.include_memtables = true;
  if (!db_->GetIntProperty(family, rocksdb::DB::Properties::kEstimateNumKeys, &keys) ||
      !db_->GetIntProperty(family, rocksdb::DB::Properties::kLiveSstFilesSize, &all) || all == 0 ||
      !db_->GetApproximateSizes(options, family, &range, 1, &bytes).ok()) {
    return kShort;
  }
  const double part = std::min(1.0, static_cast<double>(bytes) / static_cast<double>(all));
  return std::max<uint64_t>(kShort, static_cast<uint64_t>(part * static_cast<double>(keys)));
}

Status Database::DeleteRange(rocksdb::WriteBatch* batch, const imbrex_rocks_change& change) {
  const Slice from = SliceOf(change.first, change.first_length);
  const Slice end = SliceOf(change.second, change.second_length);
  if (from.compare(end) >= 0) {
    return Status::OK();
  }
  rocksdb::ColumnFamilyHandle* const family = Family(change.family);
  ReadOptions options;
  options.iterate_upper_bound = &end;
  const std::unique_ptr<rocksdb::Iterator> iterator(db_->NewIterator(options, family));
  std::vector<std::string> keys;
  for (iterator->Seek(from); iterator->Valid() && keys.size() < kShort; iterator->Next()) {
    keys.push_back(iterator->key().ToString());
  }
  Status status = iterator->status();
  if (status.ok() && keys.size() == kShort) {
    NoteDeleted(change.family, KeysOf(family, rocksdb::Range(from, end)));
    status = batch->DeleteRange(family, from, end);
    // RocksDB 7.8 cuts tables at keys only: two ranges without one would be a table that lies above all that is between them, and be compacted with it at once.
    return status.ok() ? batch->Delete(family, keys.front()) : status;
  }
  NoteDeleted(change.family, keys.size());
  for (size_t i = 0; status.ok() && i < keys.size(); ++i) {
    status = batch->Delete(family, keys[i]);
  }
  return status;
}

Status Database::Write(const imbrex_rocks_change* changes, size_t count) {
  rocksdb::WriteBatch batch;
  Status status = Failure();
  for (size_t i = 0; status.ok() && i < count; ++i) {
    const imbrex_rocks_change& change = changes[i];
    const Slice key = SliceOf(change.first, change.first_length);
    switch (change.kind) {
      case IMBREX_ROCKS_PUT:
        status = batch.Put(Family(change.family), key, SliceOf(change.second, change.second_length));
        break;
      case IMBREX_ROCKS_DELETE:
        status = batch.Delete(Family(change.family), key);
        NoteDeleted(change.family, 1);
        break;
      case IMBREX_ROCKS_DELETE_RANGE:
        status = DeleteRange(&batch, change);
        break;
      default:
        status = Status::InvalidArgument("a change of an unknown kind");
    }
  }
  if (status.ok()) {
    // Not synced: the file system's memory outlives the process.
    status = db_->Write(rocksdb::WriteOptions(), &batch);
  }
  return NoteFailure(status);
}

Status Database::Sync() {
  const Status before = Failure();
  return before.ok() ? NoteFailure(db_->SyncWAL()) : before;
}

void Database::NoteDeleted(uint32_t family, uint64_t keys) { deleted_.at(size_t{family} + 1).fetch_add(keys, std::memory_order_relaxed); }

Status Database::MakeRoom() {
  if (look_) {
    return Status::OK();
  }
  // One after the other: for whoever waits here it may be done.
  const std::lock_guard<std::mutex> lock(making_room_);
  std::vector<uint64_t> deleted(deleted_.size());
  std::copy(deleted_.begin(), deleted_.end(), deleted.begin());
  // Deletions that are in memory have no effect on tables.
  Status status = db_->Flush(rocksdb::FlushOptions(), families_);
  bool quiet = false;
  if (status.ok()) {
    status = WaitForCompactions(kIdle, &quiet);
  }
  // RocksDB by itself leaves a deletion above what it deletes until more has come. Each time tables go one level down.
  bool room = true;
  bool again = true;
  for (int level = 0; status.ok() && again && level < db_->NumberLevels(); ++level) {
    again = false;
    for (size_t family = 0; status.ok() && room && family < deleted.size(); ++family) {
      if (!IsMuch(family, deleted[family]) || !HasTablesAbove(families_[family])) {
        continue;
      }
      // A compaction without room would end the database, and deletions go on without it.
      uint64_t free = 0;
      status = env_->GetFreeSpace(kPath, &free);
      room = free >= (kTablesAtOnce + 1) * db_->GetOptions().target_file_size_base;
      if (status.ok() && room) {
        status = CompactTablesAbove(families_[family]);
        again = true;
      }
    }
    if (status.ok() && again) {
      status = WaitForCompactions(kIdleAsked, &quiet);
      again = room && quiet;
    }
  }
  // What was not done counts for the next time.
  for (size_t family = 0; status.ok() && room && quiet && family < deleted.size(); ++family) {
    if (IsMuch(family, deleted[family])) {
      deleted_[family].fetch_sub(deleted[family], std::memory_order_relaxed);
    }
  }
  return status;
}

bool Database::IsMuch(size_t family, uint64_t deleted) const {
  uint64_t keys = 0;
  db_->GetIntProperty(families_[family], rocksdb::DB::Properties::kEstimateNumKeys, &keys);
  return deleted > 0 && deleted >= keys / kDeletedOf;
}

std::vector<uint64_t> Database::TablesOfLevels(rocksdb::ColumnFamilyHandle* family) const {
  std::vector<uint64_t> tables;
  for (int level = 0; level < db_->NumberLevels(family); ++level) {
    std::string count;
    db_->GetProperty(family, rocksdb::DB::Properties::kNumFilesAtLevelPrefix + std::to_string(level), &count);
    tables.push_back(std::strtoull(count.c_str(), nullptr, 10));
  }
  return tables;
}

bool Database::HasTablesAbove(rocksdb::ColumnFamilyHandle* family) const {
  const std::vector<uint64_t> tables = TablesOfLevels(family);
  return tables.front() > 1 || std::count(tables.begin(), tables.end(), 0) + 1 < static_cast<std::ptrdiff_t>(tables.size());
}

Status Database::CompactTablesAbove(rocksdb::ColumnFamilyHandle* family) {
  const std::vector<uint64_t> tables = TablesOfLevels(family);
  if (std::all_of(tables.begin() + 1, tables.end(), [](uint64_t count) { return count == 0; })) {
    // Each of them was in memory, and RocksDB compacts them together when there are a few more.
    rocksdb::CompactRangeOptions options;
    options.exclusive_manual_compaction = false;
    return db_->CompactRange(options, family, nullptr, nullptr);
  }
  // Not CompactRange: it takes tables of a level together with all that is below and between them, for which a full drive has no room. What is suggested RocksDB takes table by table,
  // but for those of the first level.
  return rocksdb::experimental::SuggestCompactRange(db_.get(), family, nullptr, nullptr);
}

Status Database::WaitForCompactions(int most_idle, bool* quiet) const {
  const auto figure = [this](const std::string& property) {
    uint64_t value = 0;
    db_->GetAggregatedIntProperty(property, &value);
    return value;
  };
  *quiet = false;
  Status status = Failure();
  for (int look = 0, idle = 0; status.ok() && idle < most_idle && look < kBusy * most_idle; ++look, status = Failure()) {
    const uint64_t begun = begun_.load();
    const bool running = figure(rocksdb::DB::Properties::kNumRunningCompactions) > 0;
    const bool due = figure(rocksdb::DB::Properties::kCompactionPending) > 0;
    // One that runs hides what is due, so none may have run between these looks.
    if (!running && !due && figure(rocksdb::DB::Properties::kNumRunningCompactions) == 0 && begun == begun_.load()) {
      *quiet = true;
      break;
    }
    // What is due and never begins is not waited for.
    idle = running ? 0 : idle + 1;
    std::this_thread::sleep_for(kNap);
  }
  return status;
}

void Database::NoteCompaction() { begun_.fetch_add(1); }

Status Database::NoteFailure(const Status& status) {
  if (!status.ok()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.ok()) {
      failure_ = status;
    }
  }
  return status;
}

Status Database::Failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

Status Database::Check() const { return db_->VerifyChecksum(ReadOptions()); }

}  // namespace imbrex
