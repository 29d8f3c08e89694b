// Stock RocksDB that another program drives: common/driven/driven.h has the operations.
//
//   rocksdb_driven --fs_uri=imbrex://DRIVE --db=PATH [--options=NAME=VALUE;…] [--cache_size=BYTES] [--bloom_bits=N] [--beside=1]
//
// A new database, without compression. --options are RocksDB's own, by their names. Nothing is flushed or compacted while keys are read: each put waits until
// nothing is left to do. With --beside puts do not wait for it.

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "driven/driven.h"

namespace {

std::string Wrong(const rocksdb::Status& status) { return status.ok() ? "" : status.ToString(); }

class RocksDb : public driven::Store {
 public:
  explicit RocksDb(rocksdb::DB* db) : db_(db) {}
  std::string Put(const std::string& key, const char* value, size_t bytes, bool sync) override {
    rocksdb::WriteOptions options;
    options.sync = sync;
    return Wrong(db_->Put(options, key, rocksdb::Slice(value, bytes)));
  }
  std::string Delete(const std::string& key, bool sync) override {
    rocksdb::WriteOptions options;
    options.sync = sync;
    return Wrong(db_->Delete(options, key));
  }
  std::string Get(const std::string& key, int64_t* bytes) override {
    value_.Reset();
    const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), db_->DefaultColumnFamily(), key, &value_);
    *bytes = status.ok() ? static_cast<int64_t>(value_.size()) : -1;
    return status.IsNotFound() ? "" : Wrong(status);
  }
  std::string Scan(const std::string* from, uint64_t most, uint64_t* pairs) override {
    const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(rocksdb::ReadOptions()));
    from == nullptr ? at->SeekToFirst() : at->Seek(*from);
    for (*pairs = 0; at->Valid() && *pairs < most; ++*pairs) {
      seen_.assign(at->value().data(), at->value().size());
      if (*pairs + 1 < most) {
        at->Next();
      }
    }
    return Wrong(at->status());
  }
  // It has nothing to do when two looks in a row found nothing: what one look sees ending asks for more before the next. A compaction that fails for lack of space is tried
  // again for ever.
  std::string Rest() override {
    uint64_t failed = 0;
    std::string wrong = Property("rocksdb.background-errors", &failed);
    for (int quiet = 0; quiet < 2 && wrong.empty();) {
      bool busy = false;
      for (const char* property : {"rocksdb.mem-table-flush-pending", "rocksdb.num-running-flushes", "rocksdb.compaction-pending",
                                   "rocksdb.num-running-compactions"}) {
        uint64_t value = 0;
        wrong = wrong.empty() ? Property(property, &value) : wrong;
        busy = busy || value > 0;
      }
      uint64_t now = 0;
      wrong = wrong.empty() ? Property("rocksdb.background-errors", &now) : wrong;
      if (now >= failed + 5) {
        return "flushes or compactions fail again and again";
      }
      quiet = busy ? 0 : quiet + 1;
      if (busy) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
    return wrong;
  }
  bool Waits() override { return false; }

 private:
  std::string Property(const char* name, uint64_t* value) {
    return db_->GetIntProperty(name, value) ? "" : std::string("RocksDB does not know ") + name;
  }

  rocksdb::DB* const db_;
  rocksdb::PinnableSlice value_;
  std::string seen_;
};

int Fail(const std::string& what) {
  printf("error: %s\n", what.c_str());
  fprintf(stderr, "rocksdb_driven: %s\n", what.c_str());
  return 1;
}

int Main(int argc, char** argv) {
  std::string uri;
  std::string path;
  std::string named;
  uint64_t cache = 8 << 20;
  int bits = 10;
  bool beside = false;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = std::min(text.find('='), text.size() - 1);
    const std::string name = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    const uint64_t number = strtoull(value.c_str(), nullptr, 10);
    if (name == "--fs_uri") {
      uri = value;
    } else if (name == "--db") {
      path = value;
    } else if (name == "--options") {
      named = value;
    } else if (name == "--cache_size" && number > 0) {
      cache = number;
    } else if (name == "--bloom_bits" && number > 0) {
      bits = static_cast<int>(number);
    } else if (name == "--beside") {
      beside = number > 0;
    } else {
      return Fail("unknown or empty " + text + "; the head of its source says what there is");
    }
  }
  rocksdb::ConfigOptions config;
  std::shared_ptr<rocksdb::FileSystem> fs;
  rocksdb::Options options;
  rocksdb::Status status = rocksdb::FileSystem::CreateFromString(config, uri, &fs);
  if (status.ok()) {
    status = rocksdb::GetOptionsFromString(config, rocksdb::Options(), named, &options);
  }
  if (!status.ok()) {
    return Fail(status.ToString());
  }
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(fs);
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(cache);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(bits));
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.env = env.get();
  options.create_if_missing = true;
  options.error_if_exists = true;
  options.compression = rocksdb::kNoCompression;
  rocksdb::DB* raw = nullptr;
  status = rocksdb::DB::Open(options, path, &raw);
  if (!status.ok()) {
    return Fail(status.ToString());
  }
  const std::unique_ptr<rocksdb::DB> db(raw);
  RocksDb store(raw);
  const std::string wrong = store.Rest();
  return wrong.empty() ? driven::Serve(&store, beside) : Fail(wrong);
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
