// Stock LevelDB that another program drives: common/driven/driven.h has the operations.
//
//   leveldb_driven --uri=imbrex://DRIVE --db=PATH [--write-buffer=BYTES] [--file-size=BYTES] [--cache=BYTES] [--filter=BITS] [--beside=1]
//
// A new database, without compression. LevelDB's background work runs in a thread of its own, as always, but only while a key is put or deleted, and after that. With --beside puts do not wait for it.

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "driven/driven.h"
#include "imbrex_leveldb.h"
#include "leveldb/cache.h"
#include "leveldb/db.h"
#include "leveldb/env.h"
#include "leveldb/filter_policy.h"

namespace {

// Background work waits until it is let go on.
class HeldEnv : public leveldb::EnvWrapper {
 public:
  explicit HeldEnv(leveldb::Env* target) : EnvWrapper(target), worker_([this] { Work(); }) {}
  ~HeldEnv() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }
  void Schedule(void (*function)(void*), void* argument) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.emplace_back(function, argument);
    }
    changed_.notify_all();
  }
  void Go() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      goes_ = true;
    }
    changed_.notify_all();
  }
  // Lets it work until nothing is left, and then holds it. LevelDB asks for more before it returns from what it asked for.
  void Rest() {
    Go();
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.empty() && !works_; });
    goes_ = false;
  }
  bool Waits() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !waiting_.empty();
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || (goes_ && !waiting_.empty()); });
      if (over_) {
        return;
      }
      const auto work = waiting_.front();
      waiting_.pop_front();
      works_ = true;
      lock.unlock();
      work.first(work.second);
      lock.lock();
      works_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<void (*)(void*), void*>> waiting_;
  bool goes_ = true;
  bool works_ = false;
  bool over_ = false;
  std::thread worker_;
};

std::string Wrong(const leveldb::Status& status) { return status.ok() ? "" : status.ToString(); }

class LevelDb : public driven::Store {
 public:
  LevelDb(leveldb::DB* db, HeldEnv* env) : db_(db), env_(env) {}
  std::string Put(const std::string& key, const char* value, size_t bytes, bool sync) override {
    env_->Go();
    leveldb::WriteOptions options;
    options.sync = sync;
    return Wrong(db_->Put(options, key, leveldb::Slice(value, bytes)));
  }
  std::string Delete(const std::string& key, bool sync) override {
    env_->Go();
    leveldb::WriteOptions options;
    options.sync = sync;
    return Wrong(db_->Delete(options, key));
  }
  std::string Get(const std::string& key, int64_t* bytes) override {
    const leveldb::Status status = db_->Get(leveldb::ReadOptions(), key, &value_);
    *bytes = status.ok() ? static_cast<int64_t>(value_.size()) : -1;
    return status.IsNotFound() ? "" : Wrong(status);
  }
  std::string Scan(const std::string* from, uint64_t most, uint64_t* pairs) override {
    const std::unique_ptr<leveldb::Iterator> at(db_->NewIterator(leveldb::ReadOptions()));
    from == nullptr ? at->SeekToFirst() : at->Seek(*from);
    for (*pairs = 0; at->Valid() && *pairs < most; ++*pairs) {
      value_.assign(at->value().data(), at->value().size());
      if (*pairs + 1 < most) {
        at->Next();
      }
    }
    return Wrong(at->status());
  }
  std::string Rest() override {
    env_->Rest();
    return "";
  }
  bool Waits() override { return env_->Waits(); }

 private:
  leveldb::DB* const db_;
  HeldEnv* const env_;
  std::string value_;
};

int Fail(const std::string& what) {
  printf("error: %s\n", what.c_str());
  fprintf(stderr, "leveldb_driven: %s\n", what.c_str());
  return 1;
}

int Main(int argc, char** argv) {
  std::string uri;
  std::string path;
  uint64_t cache_bytes = 8 << 20;
  int filter_bits = 10;
  bool beside = false;
  leveldb::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = std::min(text.find('='), text.size() - 1);
    const std::string name = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    const uint64_t number = strtoull(value.c_str(), nullptr, 10);
    if (name == "--uri") {
      uri = value;
    } else if (name == "--db") {
      path = value;
    } else if (name == "--write-buffer" && number > 0) {
      options.write_buffer_size = number;
    } else if (name == "--file-size" && number > 0) {
      options.max_file_size = number;
    } else if (name == "--cache" && number > 0) {
      cache_bytes = number;
    } else if (name == "--filter" && number > 0) {
      filter_bits = static_cast<int>(number);
    } else if (name == "--beside") {
      beside = number > 0;
    } else {
      return Fail("unknown or empty " + text + "; the head of its source says what there is");
    }
  }
  const std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(cache_bytes));
  const std::unique_ptr<const leveldb::FilterPolicy> filter(leveldb::NewBloomFilterPolicy(filter_bits));
  std::string error;
  const std::unique_ptr<leveldb::Env> env(imbrex::NewLevelDbEnv(uri, &error));
  if (env == nullptr) {
    return Fail(error);
  }
  HeldEnv held(env.get());
  options.env = &held;
  options.block_cache = cache.get();
  options.filter_policy = filter.get();
  options.create_if_missing = true;
  options.error_if_exists = true;
  options.compression = leveldb::kNoCompression;
  leveldb::DB* raw = nullptr;
  const leveldb::Status status = leveldb::DB::Open(options, path, &raw);
  if (!status.ok()) {
    return Fail(status.ToString());
  }
  const std::unique_ptr<leveldb::DB> db(raw);
  LevelDb store(raw, &held);
  store.Rest();
  const int code = driven::Serve(&store, beside);
  // What it still wants to do it may.
  held.Go();
  return code;
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
