// What LevelDB's own db_bench does, which Debian does not ship: fills a database in random order, and reads it at random.
//
//   leveldb_bench [--uri=imbrex://DRIVE] --db=PATH [--num=N] [--reads=N] [--seed=N] [--write-buffer=BYTES] [--file-size=BYTES]
//                 [--cache=BYTES] [--in-order=1] [--scan=N] [--told=1] [--filter=BITS] [--parts=NAME,NAME,...] [--over=N] [--still=1]
//
// --in-order fills in the order of the keys ("fillseq"); --scan reads so many in their order afterwards ("readseq"). With --told it says
// "readrandom is next" before that part, as before readseq, and "end is next" behind the last, and goes on when it gets a line at its
// standard input: so whoever started it can tell what of the drive's work belongs to which.
//
// --parts does these instead, one after the other: fill; order, which puts all keys in their order; over, which puts --over random keys of those;
// idle, which waits until no compaction is left; compact, which merges everything; gets and scans of random keys, of which some are not there. A
// scan reads 100 pairs. Unless fill or order comes first the database must exist. A line is printed behind each part, and then nothing happens for
// a moment, so that whoever reads the line may look at the drive. With --still nothing is compacted: so a database can be read as it is.
//
// Keys of 16 and values of 4096 bytes, no compression. As many reads as puts, unless told otherwise. Without --uri the database is on the host's file system. A full compaction stands
// between filling and reading, so that both sides of a comparison read the same tables. Prints lines "fillrandom N ops/sec, …" and
// "readrandom N ops/sec, …"; a key that is not found, or not with its value's size, is an error.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "imbrex_leveldb.h"
#include "leveldb/cache.h"
#include "leveldb/db.h"
#include "leveldb/env.h"
#include "leveldb/filter_policy.h"

namespace {

constexpr size_t kValueSize = 4096;

int Fail(const std::string& what) {
  fprintf(stderr, "leveldb_bench: %s\n", what.c_str());
  return 1;
}

// splitmix64, of a counter.
uint64_t Mix(uint64_t z) {
  z *= 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string KeyOf(uint64_t number) {
  char buffer[24];
  snprintf(buffer, sizeof(buffer), "%016llu", static_cast<unsigned long long>(number));
  return buffer;
}

// Says what comes next, and waits to be told to go on. False: nobody will.
bool Told(const char* next) {
  printf("%s is next\n", next);
  fflush(stdout);
  for (int c = getchar(); c != '\n'; c = getchar()) {
    if (c == EOF) {
      return false;
    }
  }
  return true;
}

// Prints the rate since it was made, and the processor time that all threads took for it.
class Stopwatch {
 public:
  Stopwatch() : wall_(std::chrono::steady_clock::now()), processor_(Processor()) {}
  void Print(const char* name, uint64_t operations) const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_).count();
    const double count = static_cast<double>(operations);
    printf("%s %.0f ops/sec, %.2f us of processor time each\n", name, count / seconds, (Processor() - processor_) * 1e6 / count);
    fflush(stdout);
  }

 private:
  static double Processor() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  }

  const std::chrono::steady_clock::time_point wall_;
  const double processor_;
};

void Sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Returns once nothing was compacted for a while. LevelDB does not tell whether it still compacts.
void WaitUntilIdle(leveldb::DB* db) {
  constexpr int kQuiet = 60;
  std::string last;
  for (int quiet = 0; quiet < kQuiet; ++quiet) {
    std::string now;
    db->GetProperty("leveldb.stats", &now);
    if (now != last) {
      quiet = 0;
    }
    last = now;
    Sleep(100);
  }
}

// Pieces of one buffer, as db_bench does: making values must not be what is measured.
std::string Noise() {
  std::string noise(1 << 20, '\0');
  for (size_t i = 0; i < noise.size(); i += 8) {
    const uint64_t bits = Mix(i);
    for (size_t j = 0; j < 8; ++j) {
      noise[i + j] = static_cast<char>(bits >> (8 * j));
    }
  }
  return noise;
}

// Keeps compactions waiting until the database is closed, which then leaves them out.
class StillEnv : public leveldb::EnvWrapper {
 public:
  explicit StillEnv(leveldb::Env* target) : EnvWrapper(target) {}
  ~StillEnv() override {
    if (late_.joinable()) {
      late_.join();
    }
  }
  void Schedule(void (*function)(void*), void* argument) override { waiting_.emplace_back(function, argument); }
  // What waits comes in a moment. By then the database, which waits for it, must be closing.
  void End() {
    late_ = std::thread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      for (const auto& work : waiting_) {
        work.first(work.second);
      }
    });
  }

 private:
  std::vector<std::pair<void (*)(void*), void*>> waiting_;
  std::thread late_;
};

// How much of what --parts does.
struct Sizes {
  uint64_t num;
  uint64_t reads;
  uint64_t over;
  uint64_t seed;
};

// One part of --parts. An error of puts says after how many.
leveldb::Status Part(leveldb::DB* db, const std::string& part, const Sizes& sizes, uint64_t number) {
  constexpr int kLong = 100;
  const uint64_t num = sizes.num;
  leveldb::Status status;
  if (part == "fill" || part == "order" || part == "over") {
    const std::string noise = Noise();
    const uint64_t puts = part == "over" ? sizes.over : num;
    for (uint64_t i = 0; i < puts; ++i) {
      const uint64_t random = Mix((sizes.seed + (part == "over" ? 1 : 0)) * num + i);
      const leveldb::Slice value(noise.data() + random % (noise.size() - kValueSize), kValueSize);
      status = db->Put(leveldb::WriteOptions(), KeyOf(part == "order" ? i : random % num), value);
      if (!status.ok()) {
        return leveldb::Status::IOError("after " + std::to_string(i) + " of " + std::to_string(puts) + " puts", status.ToString());
      }
    }
  } else if (part == "idle") {
    WaitUntilIdle(db);
  } else if (part == "compact") {
    db->CompactRange(nullptr, nullptr);
  } else if (part == "gets" || part == "scans") {
    std::string value;
    for (uint64_t i = 0; i < sizes.reads && status.ok(); ++i) {
      // Of each part other keys.
      const std::string key = KeyOf(Mix((number << 32) + i) % num);
      if (part == "gets") {
        status = db->Get(leveldb::ReadOptions(), key, &value);
        status = status.IsNotFound() ? leveldb::Status::OK() : status;
        continue;
      }
      const std::unique_ptr<leveldb::Iterator> at(db->NewIterator(leveldb::ReadOptions()));
      at->Seek(key);
      for (int n = 0; n < kLong && at->Valid(); ++n) {
        at->Next();
      }
      status = at->status();
    }
  } else {
    status = leveldb::Status::InvalidArgument("no such part", part);
  }
  return status;
}

// All of them. Returns what the program ends with.
int Parts(leveldb::DB* db, const std::string& parts, const Sizes& sizes) {
  uint64_t number = 1;
  for (size_t begin = 0; begin < parts.size(); ++number) {
    const size_t end = std::min(parts.find(',', begin), parts.size());
    const std::string part = parts.substr(begin, end - begin);
    begin = end + 1;
    const Stopwatch stopwatch;
    const leveldb::Status status = Part(db, part, sizes, number);
    if (!status.ok()) {
      return Fail(part + ": " + status.ToString());
    }
    const bool puts = part == "fill" || part == "order";
    stopwatch.Print(part.c_str(), puts ? sizes.num : part == "over" ? sizes.over : sizes.reads);
    if (part != "fill") {
      Sleep(50);
    }
  }
  return 0;
}

int Main(int argc, char** argv) {
  std::string uri;
  std::string path;
  uint64_t num = 100000;
  uint64_t reads = 0;
  uint64_t seed = 1;
  uint64_t scan = 0;
  bool in_order = false;
  bool told = false;
  bool still = false;
  uint64_t over = 0;
  uint64_t cache_bytes = 0;
  int filter_bits = 0;
  std::string parts;
  leveldb::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
    const uint64_t number = strtoull(value.c_str(), nullptr, 10);
    if (name == "--uri") {
      uri = value;
    } else if (name == "--db") {
      path = value;
    } else if (name == "--num" && number > 0) {
      num = number;
    } else if (name == "--reads") {
      reads = number;
    } else if (name == "--seed") {
      seed = number;
    } else if (name == "--write-buffer") {
      options.write_buffer_size = number;
    } else if (name == "--file-size") {
      options.max_file_size = number;
    } else if (name == "--scan") {
      scan = number;
    } else if (name == "--in-order") {
      in_order = number > 0;
    } else if (name == "--over") {
      over = number;
    } else if (name == "--still") {
      still = number > 0;
    } else if (name == "--told") {
      told = number > 0;
    } else if (name == "--cache" && number > 0) {
      cache_bytes = number;
    } else if (name == "--filter" && number > 0) {
      filter_bits = static_cast<int>(number);
    } else if (name == "--parts" && !value.empty()) {
      parts = value;
    } else {
      return Fail("unknown or empty " + text + "; the head of its source says what there is");
    }
  }
  // It outlives the database.
  const std::unique_ptr<leveldb::Cache> cache(cache_bytes > 0 ? leveldb::NewLRUCache(cache_bytes) : nullptr);
  options.block_cache = cache.get();
  const std::unique_ptr<const leveldb::FilterPolicy> filter(filter_bits > 0 ? leveldb::NewBloomFilterPolicy(filter_bits) : nullptr);
  options.filter_policy = filter.get();
  std::unique_ptr<leveldb::Env> env;
  if (!uri.empty()) {
    std::string error;
    env.reset(imbrex::NewLevelDbEnv(uri, &error));
    if (env == nullptr) {
      return Fail(error);
    }
    options.env = env.get();
  }
  reads = reads == 0 ? num : reads;
  StillEnv waits(options.env);
  if (still) {
    options.env = &waits;
  }
  const bool fills = parts.empty() || parts.rfind("fill", 0) == 0 || parts.rfind("order", 0) == 0;
  options.create_if_missing = fills;
  options.error_if_exists = fills;
  options.compression = leveldb::kNoCompression;
  leveldb::DB* raw = nullptr;
  leveldb::Status status = leveldb::DB::Open(options, path, &raw);
  if (!status.ok()) {
    return Fail(status.ToString());
  }
  const std::unique_ptr<leveldb::DB> db(raw);

  if (!parts.empty()) {
    const int code = Parts(db.get(), parts, Sizes{num, reads, over, seed});
    waits.End();
    return code;
  }
  const std::string noise = Noise();
  const Stopwatch filling;
  for (uint64_t i = 0; i < num; ++i) {
    const uint64_t random = Mix(seed * num + i);
    const leveldb::Slice value(noise.data() + random % (noise.size() - kValueSize), kValueSize);
    status = db->Put(leveldb::WriteOptions(), KeyOf(in_order ? i : random % num), value);
    if (!status.ok()) {
      return Fail(status.ToString());
    }
  }
  filling.Print(in_order ? "fillseq" : "fillrandom", num);

  db->CompactRange(nullptr, nullptr);
  if (told && !Told("readrandom")) {
    return Fail("nobody told it to read");
  }
  std::string value;
  const Stopwatch reading;
  for (uint64_t i = 0; i < reads; ++i) {
    // Keys that were written, in another order.
    const uint64_t written = Mix(i) % num;
    status = db->Get(leveldb::ReadOptions(), KeyOf(in_order ? written : Mix(seed * num + written) % num), &value);
    if (!status.ok() || value.size() != kValueSize) {
      return Fail("reading: " + status.ToString());
    }
  }
  reading.Print("readrandom", reads);
  if (scan > 0) {
    if (told && !Told("readseq")) {
      return Fail("nobody told it to scan");
    }
    const Stopwatch scanning;
    const std::unique_ptr<leveldb::Iterator> at(db->NewIterator(leveldb::ReadOptions()));
    uint64_t seen = 0;
    for (at->SeekToFirst(); at->Valid() && seen < scan; at->Next()) {
      if (at->value().size() != kValueSize) {
        return Fail("scanning: a value of another size");
      }
      ++seen;
    }
    if (!at->status().ok()) {
      return Fail("scanning: " + at->status().ToString());
    }
    scanning.Print("readseq", seen);
  }
  if (told && !Told("end")) {
    return Fail("nobody told it to end");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
