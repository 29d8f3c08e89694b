#include "database.h"

#include <cinttypes>
#include <cstdio>
#include <exception>
#include <new>

#include "iterator.h"
#include "leveldb/write_batch.h"
#include "status.h"
#include "store.h"

namespace imbrex {

using leveldb::ReadOptions;
using leveldb::Slice;
using leveldb::Status;
using leveldb::WriteBatch;
using leveldb::WriteOptions;

namespace {

// Levels that LevelDB has; programs ask for them by number.
constexpr uint64_t kLevels = 7;

// Copies a batch of LevelDB into one of the C API.
class Copier final : public WriteBatch::Handler {
 public:
  explicit Copier(imbrex_kv_batch* batch) : batch_(batch) {}
  void Put(const Slice& key, const Slice& value) override {
    Add([&] { return imbrex_kv_batch_put(batch_, key.data(), key.size(), value.data(), value.size()); });
  }
  void Delete(const Slice& key) override {
    Add([&] { return imbrex_kv_batch_delete(batch_, key.data(), key.size()); });
  }
  bool Empty() const { return empty_; }
  // The first error, which the caller owns.
  imbrex_error* Error() { return error_.release(); }

 private:
  template <typename Body>
  void Add(Body&& body) {
    empty_ = false;
    if (error_ == nullptr) {
      error_.reset(body());
    }
  }

  imbrex_kv_batch* const batch_;
  bool empty_ = true;
  ErrorHandle error_;
};

// Whether `text` is a number, and nothing else.
bool Number(const std::string& text, uint64_t* number) {
  char rest = 0;
  return !text.empty() && text[0] >= '0' && text[0] <= '9' && sscanf(text.c_str(), "%" SCNu64 "%c", number, &rest) == 1;
}

template <typename... Arguments>
std::string Text(const char* format, Arguments... arguments) {
  char buffer[400];
  snprintf(buffer, sizeof(buffer), format, arguments...);
  return buffer;
}

}  // namespace

class Database::Moment final : public leveldb::Snapshot {
 public:
  explicit Moment(KvSnapshotHandle snapshot) : snapshot_(std::move(snapshot)) {}
  ~Moment() override = default;
  static const imbrex_kv_snapshot* Of(const leveldb::Snapshot* snapshot) {
    return snapshot == nullptr ? nullptr : static_cast<const Moment*>(snapshot)->snapshot_.get();
  }

 private:
  const KvSnapshotHandle snapshot_;
};

Database::~Database() {
  for (const Moment* moment : snapshots_) {
    delete moment;
  }
  Store::OfProcess().Close(path_, std::move(kv_));
}

Status Database::Put(const WriteOptions& options, const Slice& key, const Slice& value) {
  return ToStatus(imbrex_kv_put(kv_.get(), key.data(), key.size(), value.data(), value.size(), options.sync), path_);
}

Status Database::Delete(const WriteOptions& options, const Slice& key) {
  return ToStatus(imbrex_kv_delete(kv_.get(), key.data(), key.size(), options.sync), path_);
}

Status Database::Write(const WriteOptions& options, WriteBatch* updates) {
  if (updates == nullptr) {
    return ToStatus(imbrex_kv_flush(kv_.get()), path_);
  }
  return Guarded([&] {
    imbrex_kv_batch* raw = nullptr;
    Status status = ToStatus(imbrex_kv_batch_new(&raw), path_);
    const KvBatchHandle batch(raw);
    Copier copier(raw);
    if (status.ok()) {
      status = updates->Iterate(&copier);
    }
    if (status.ok()) {
      status = ToStatus(copier.Error(), path_);
    }
    if (!status.ok()) {
      return status;
    }
    // A synced batch makes durable what came before it, even if it is empty.
    if (copier.Empty()) {
      return options.sync ? ToStatus(imbrex_kv_sync(kv_.get()), path_) : Status::OK();
    }
    return ToStatus(imbrex_kv_write(kv_.get(), batch.get(), options.sync), path_);
  });
}

Status Database::Get(const ReadOptions& options, const Slice& key, std::string* value) {
  return Guarded([&] {
    imbrex_kv_value* raw = nullptr;
    Status status = ToStatus(imbrex_kv_get(kv_.get(), Moment::Of(options.snapshot), key.data(), key.size(), &raw), path_);
    const KvValueHandle found(raw);
    if (!status.ok()) {
      return status;
    }
    if (found == nullptr) {
      // As LevelDB itself says it.
      return Status::NotFound(Slice());
    }
    size_t len = 0;
    const void* const data = imbrex_kv_value_data(found.get(), &len);
    value->assign(static_cast<const char*>(data), len);
    return Status::OK();
  });
}

leveldb::Iterator* Database::NewIterator(const ReadOptions& options) noexcept {
  try {
    imbrex_kv_iterator* raw = nullptr;
    const Status made = ToStatus(imbrex_kv_iterator_new(kv_.get(), Moment::Of(options.snapshot), &raw), path_);
    KvIteratorHandle iterator(raw);
    return made.ok() ? new Iterator(path_, std::move(iterator)) : leveldb::NewErrorIterator(made);
  } catch (const std::exception& e) {
    return leveldb::NewErrorIterator(Status::IOError("imbrex", e.what()));
  }
}

const leveldb::Snapshot* Database::GetSnapshot() noexcept {
  imbrex_kv_snapshot* raw = nullptr;
  const ErrorHandle error(imbrex_kv_snapshot_new(kv_.get(), &raw));
  KvSnapshotHandle snapshot(raw);
  const std::lock_guard<std::mutex> lock(mutex_);
  return *snapshots_.insert(new Moment(std::move(snapshot))).first;
}

void Database::ReleaseSnapshot(const leveldb::Snapshot* snapshot) noexcept {
  const Moment* const moment = static_cast<const Moment*>(snapshot);
  const std::lock_guard<std::mutex> lock(mutex_);
  snapshots_.erase(moment);
  delete moment;
}

bool Database::GetProperty(const Slice& property, std::string* value) noexcept {
  value->clear();
  const std::string prefix = "leveldb.";
  if (!property.starts_with(prefix)) {
    return false;
  }
  const std::string name(property.data() + prefix.size(), property.size() - prefix.size());
  imbrex_kv_figures figures = {};
  const ErrorHandle error(imbrex_kv_figures_now(kv_.get(), &figures));
  if (error != nullptr) {
    return false;
  }
  const std::string level = "num-files-at-level";
  uint64_t number = 0;
  if (name.compare(0, level.size(), level) == 0 && Number(name.substr(level.size()), &number) && number < kLevels) {
    // Nothing is written as LevelDB's level 0, of which a program would wait until there is less.
    *value = std::to_string(number == 1 ? figures.tables : 0);
    return true;
  }
  const double megabytes = static_cast<double>(figures.table_bytes) / (1 << 20);
  if (name == "stats") {
    *value = Text("Imbrex key-value store, all databases of the drive\n"
                  "Level  Files Size(MB) Memory(MB) Log(MB) Zones-used Zones-free Partitions Depth\n"
                  "%5d %6" PRIu64 " %8.0f %10.0f %7.0f %10" PRIu32 " %10" PRIu32 " %10" PRIu32 " %5" PRIu32 "\n",
                  1, figures.tables, megabytes, static_cast<double>(figures.memory) / (1 << 20), static_cast<double>(figures.log) / (1 << 20),
                  figures.zones_used, figures.zones_free, figures.partitions, figures.depth);
    return true;
  }
  if (name == "sstables") {
    *value = Text("--- level 1 ---\n %" PRIu64 " tables of all databases of the drive: %" PRIu64 " bytes, %" PRIu64 " entries\n", figures.tables,
                  figures.table_bytes, figures.entries);
    return true;
  }
  if (name == "approximate-memory-usage") {
    *value = std::to_string(figures.memory);
    return true;
  }
  return false;
}

void Database::GetApproximateSizes(const leveldb::Range* ranges, int n, uint64_t* sizes) {
  for (int i = 0; i < n; ++i) {
    sizes[i] = 0;
    const Slice& from = ranges[i].start;
    const Slice& to = ranges[i].limit;
    const ErrorHandle error(imbrex_kv_approximate_bytes(kv_.get(), from.data(), from.size(), to.data(), to.size(), &sizes[i]));
  }
}

void Database::CompactRange(const Slice* begin, const Slice* end) {
  const auto data = [](const Slice* key) { return key == nullptr ? nullptr : key->data(); };
  const auto len = [](const Slice* key) { return key == nullptr ? 0 : key->size(); };
  // LevelDB's function tells no errors either; what is wrong with the drive, the next write says.
  const ErrorHandle merged(imbrex_kv_compact(kv_.get(), data(begin), len(begin), data(end), len(end)));
}

}  // namespace imbrex
