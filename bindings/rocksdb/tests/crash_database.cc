#include "crash_database.h"

#include "releases.h"
#include "rocksdb/sst_file_manager.h"

namespace crash {

namespace {

// Small enough that a second of writing flushes and compacts dozens of times.
rocksdb::Options OptionsFor(rocksdb::Env* env, const Variant& variant, bool create) {
  Random random(variant.seed, 0x0907, variant.number);
  rocksdb::Options options;
  options.env = env;
  options.create_if_missing = create;
  options.create_missing_column_families = create;
  options.paranoid_checks = true;
  options.force_consistency_checks = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 32u << (10 + random.Below(3));
  // Memtables that wait for others to be flushed with them leave several WALs that nobody has synced: their order matters then.
  options.min_write_buffer_number_to_merge = MergesMemtables(variant) ? 3 : 1;
  options.max_write_buffer_number = 6;
  options.level0_file_num_compaction_trigger = 2;
  options.target_file_size_base = 64 << 10;
  options.max_bytes_for_level_base = 256 << 10;
  options.max_background_jobs = 4;
  options.max_open_files = -1;
  options.keep_log_file_num = 3;
  options.stats_dump_period_sec = 0;
  options.max_manifest_file_size = random.OneIn(2) ? 4 << 10 : 1 << 30;
  options.avoid_flush_during_recovery = random.OneIn(3);
  // Not atomic_flush: Debian's RocksDB 7.8 has assertions, and one of them (GetFlushReason) does not hold in a race, on any file system.
  // Read-only instances of RocksDB 7.8 stop at an assertion when this was on before and is off now.
  options.track_and_verify_wals_in_manifest = Random(variant.seed, 0x0908, 0).OneIn(3);
#if ROCKSDB_MAJOR < 8
  // Where both are so, a new MANIFEST may name a WAL whose deletion stood in the one before, and then misses it (facebook/rocksdb pull request 10892).
  if (options.track_and_verify_wals_in_manifest) options.max_manifest_file_size = 1 << 30;
#endif
  if (KeepsWals(variant)) {
    options.WAL_ttl_seconds = 3600;
    options.write_buffer_size = 128 << 10;
  }
  if (IsBulky(variant.seed)) {
    options.write_buffer_size = 256u << (10 + random.Below(4));
    options.target_file_size_base = 900 << 10;
    options.max_bytes_for_level_base = 4 << 20;
  }
  options.wal_bytes_per_sync = random.OneIn(3) ? 16 << 10 : 0;
  options.bytes_per_sync = random.OneIn(3) ? 16 << 10 : 0;
  options.strict_bytes_per_sync = random.OneIn(4);
  options.use_direct_reads = random.OneIn(4);
  options.use_direct_io_for_flush_and_compaction = options.use_direct_reads;
  options.compaction_readahead_size = random.OneIn(2) ? 64 << 10 : 0;
  if (random.OneIn(3)) {
    // Deletes through renames to .trash and truncation.
    rocksdb::Status status;
    options.sst_file_manager.reset(
        rocksdb::NewSstFileManager(env, nullptr, "", 64 << 20, /*delete_existing_trash=*/true, &status, 0.9, 32 << 10));
    Check(status, "SstFileManager");
  }
  return options;
}

}  // namespace

bool MergesMemtables(const Variant& variant) { return Random(variant.seed, 0x0911, variant.number).OneIn(2); }

bool KeepsWals(const Variant& variant) { return Random(variant.seed, 0x0909, 0).OneIn(3); }

rocksdb::Status Database::Open(rocksdb::Env* env, const std::string& path, const Variant& variant, Mode mode, bool create,
                               std::unique_ptr<Database>* result) {
  const rocksdb::Options options = OptionsFor(env, variant, create);
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  // RocksDB 7.8's secondary instances crash when they read blobs (they have no session id), on any file system.
  const int count = mode == Mode::kSecondary ? kFamilies - 1 : kFamilies;
  for (int i = 0; i < count; ++i) {
    const char* const name = kFamilyNames[i];
    rocksdb::ColumnFamilyOptions family(options);
    if (std::string(name) == "blobs") {
      family.enable_blob_files = true;
      family.min_blob_size = 100;
      family.blob_file_size = 64 << 10;
      family.enable_blob_garbage_collection = true;
    }
    families.emplace_back(name, family);
  }
  std::unique_ptr<Database> database(new Database);
  rocksdb::Status status;
  switch (mode) {
    case Mode::kWrite:
      status = rocksdb::DB::Open(options, path, families, &database->handles_, imbrex::Into(&database->db_));
      break;
    case Mode::kReadOnly:
      status = rocksdb::DB::OpenForReadOnly(options, path, families, &database->handles_, imbrex::Into(&database->db_));
      break;
    case Mode::kSecondary:
      status = rocksdb::DB::OpenAsSecondary(options, path, path + ".secondary", families, &database->handles_, imbrex::Into(&database->db_));
      break;
  }
  if (status.ok()) {
    *result = std::move(database);
  }
  return status;
}

Database::~Database() {
  if (db_ == nullptr) {
    return;
  }
  for (rocksdb::ColumnFamilyHandle* handle : handles_) {
    Check(db_->DestroyColumnFamilyHandle(handle), "DestroyColumnFamilyHandle");
  }
  Check(db_->Close(), "Close");
}

std::string Database::Marker() const {
  std::string value;
  const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), Family(0), kMarker, &value);
  if (!status.IsNotFound()) {
    Check(status, "Get of the marker");
  }
  return value;
}

State Database::Contents() const {
  State state;
  for (int family = 0; family < Count(); ++family) {
    const std::unique_ptr<rocksdb::Iterator> iterator(db_->NewIterator(rocksdb::ReadOptions(), Family(family)));
    for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
      state[family][iterator->key().ToString()] = iterator->value().ToString();
    }
    Check(iterator->status(), std::string("iterator over ") + kFamilyNames[family]);
  }
  return state;
}

void Database::Compare(const State& expected, const std::string& what) const {
  CompareStates(expected, Contents(), Count(), what);
  for (int family = 0; family < Count(); ++family) {
    const std::string name = what + ", family " + kFamilyNames[family] + ", key ";
    for (const auto& [key, value] : expected[family]) {
      std::string single;
      Check(db_->Get(rocksdb::ReadOptions(), Family(family), key, &single), name + key);
      if (single != value) {
        Die(name + key + " reads as " + single.substr(0, 40) + ", not " + value.substr(0, 40));
      }
    }
    const std::unique_ptr<rocksdb::Iterator> iterator(db_->NewIterator(rocksdb::ReadOptions(), Family(family)));
    size_t count = 0;
    for (iterator->SeekToLast(); iterator->Valid(); iterator->Prev()) {
      ++count;
    }
    Check(iterator->status(), name + "backwards");
    if (count != expected[family].size()) {
      Die(name + "backwards: " + std::to_string(count) + " keys, not " + std::to_string(expected[family].size()));
    }
  }
}

}  // namespace crash
