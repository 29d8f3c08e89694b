// RocksDB by its own API on the host's file system: fills a database in random order, and reads it at random. The experiment kv-cpu does the same with
// the key-value store; keys, values and their order are those of crates/bench/src/experiment/kv_cpu.rs.
//
//   rocksdb_bench --db=PATH [--num=N] [--reads=N] [--value=BYTES] [--threads=N] [--write-buffer=BYTES] [--cache=BYTES] [--block=BYTES]
//
// Its parts are "fill", "idle" (until no flush or compaction is left), "gets" of keys that are there, "compact" and "gets" again. After each
// it prints "NAME N ops/sec, X us of processor time each": of all threads of the process, and divided by the puts or gets.
//
// Filters of 10 bits a key, no compression, no sync; the rest is RocksDB's default, with sizes in the proportions that it has there.

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Load {
  uint64_t num = 100000;
  uint64_t reads = 100000;
  uint64_t value = 100;
  uint64_t threads = 1;
};

int Fail(const std::string& what) {
  fprintf(stderr, "rocksdb_bench: %s\n", what.c_str());
  return 1;
}

// splitmix64, of a counter.
uint64_t Mix(uint64_t z) {
  z *= 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::array<char, 16> KeyOf(uint64_t number) {
  std::array<char, 16> key;
  key.fill('0');
  for (size_t i = 0; i < 8; ++i) {
    key[8 + i] = static_cast<char>(number >> (8 * (7 - i)));
  }
  return key;
}

rocksdb::Slice SliceOf(const std::array<char, 16>& key) { return rocksdb::Slice(key.data(), key.size()); }

// The key of the put of this number, and where its value begins in the noise.
uint64_t Put(uint64_t i, uint64_t num) { return Mix(i) % num; }

// Values are pieces of one buffer: making them must not be what is measured.
constexpr uint64_t kNoise = 1 << 20;

std::string Noise() {
  std::string noise(kNoise, '\0');
  for (size_t i = 0; i < noise.size(); i += 8) {
    const uint64_t bits = Mix(i);
    for (size_t j = 0; j < 8; ++j) {
      noise[i + j] = static_cast<char>(bits >> (8 * j));
    }
  }
  return noise;
}

double Processor() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

// Does something, and says how fast it was.
rocksdb::Status Timed(const char* name, uint64_t operations, const std::function<rocksdb::Status()>& part) {
  const auto wall = std::chrono::steady_clock::now();
  const double processor = Processor();
  const rocksdb::Status status = part();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
  const double count = static_cast<double>(operations);
  printf("%s %.0f ops/sec, %.3f us of processor time each\n", name, count / seconds, (Processor() - processor) * 1e6 / count);
  fflush(stdout);
  return status;
}

// Each thread does every so manieth.
rocksdb::Status Together(uint64_t threads, uint64_t count, const std::function<rocksdb::Status(uint64_t)>& one) {
  std::vector<rocksdb::Status> ended(threads);
  std::vector<std::thread> running;
  for (uint64_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      for (uint64_t i = t; i < count && ended[t].ok(); i += threads) {
        ended[t] = one(i);
      }
    });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  for (const rocksdb::Status& status : ended) {
    if (!status.ok()) {
      return status;
    }
  }
  return rocksdb::Status::OK();
}

rocksdb::Status UntilIdle(rocksdb::DB* db) {
  const std::vector<std::string> properties = {"rocksdb.mem-table-flush-pending", "rocksdb.num-running-flushes", "rocksdb.compaction-pending",
                                               "rocksdb.num-running-compactions"};
  for (int quiet = 0; quiet < 10; ++quiet) {
    for (const std::string& property : properties) {
      uint64_t value = 0;
      if (!db->GetIntProperty(property, &value)) {
        return rocksdb::Status::NotSupported(property);
      }
      if (value > 0) {
        quiet = 0;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return rocksdb::Status::OK();
}

rocksdb::Status Parts(rocksdb::DB* db, const Load& load) {
  const std::string noise = Noise();
  rocksdb::Status status = Timed("fill", load.num, [&] {
    return Together(load.threads, load.num, [&](uint64_t i) {
      const auto key = KeyOf(Put(i, load.num));
      return db->Put(rocksdb::WriteOptions(), SliceOf(key), rocksdb::Slice(noise.data() + Mix(i) % (kNoise - load.value), load.value));
    });
  });
  if (status.ok()) {
    status = Timed("idle", load.num, [&] { return UntilIdle(db); });
  }
  const auto gets = [&] {
    return Together(load.threads, load.reads, [&](uint64_t i) {
      thread_local rocksdb::PinnableSlice value;
      value.Reset();
      const auto key = KeyOf(Put(Mix(i) % load.num, load.num));
      const rocksdb::Status got = db->Get(rocksdb::ReadOptions(), db->DefaultColumnFamily(), SliceOf(key), &value);
      return got.ok() && value.size() != load.value ? rocksdb::Status::Corruption("a value of another size") : got;
    });
  };
  if (status.ok()) {
    status = Timed("gets", load.reads, gets);
  }
  if (status.ok()) {
    status = Timed("compact", load.num, [&] { return db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr); });
  }
  return status.ok() ? Timed("gets", load.reads, gets) : status;
}

int Main(int argc, char** argv) {
  std::string path;
  Load load;
  uint64_t write_buffer = 64 << 20;
  uint64_t cache = 64 << 20;
  uint64_t block = 4096;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = std::min(text.find('='), text.size() - 1);
    const std::string name = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    const uint64_t number = strtoull(value.c_str(), nullptr, 10);
    if (name == "--db" && !value.empty()) {
      path = value;
    } else if (name == "--num" && number > 0) {
      load.num = number;
    } else if (name == "--reads" && number > 0) {
      load.reads = number;
    } else if (name == "--value" && number > 0 && number < kNoise) {
      load.value = number;
    } else if (name == "--threads" && number > 0) {
      load.threads = number;
    } else if (name == "--write-buffer" && number > 0) {
      write_buffer = number;
    } else if (name == "--cache" && number > 0) {
      cache = number;
    } else if (name == "--block" && number > 0) {
      block = number;
    } else {
      return Fail("unknown or empty " + text + "; the head of its source says what there is");
    }
  }
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(cache);
  table.block_size = block;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  rocksdb::Options options;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.create_if_missing = true;
  options.error_if_exists = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = write_buffer;
  options.target_file_size_base = write_buffer;
  options.max_bytes_for_level_base = 4 * write_buffer;
  rocksdb::DB* raw = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(options, path, &raw);
  if (!status.ok()) {
    return Fail(status.ToString());
  }
  const std::unique_ptr<rocksdb::DB> db(raw);
  status = Parts(db.get(), load);
  return status.ok() ? 0 : Fail(status.ToString());
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
