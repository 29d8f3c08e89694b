// What RocksDB is told of drives that cannot be used or went bad: a status that it can act on, and a sentence for people.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>

#include "contract.h"
#include "releases.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/listener.h"
#include "rocksdb/sst_file_manager.h"
#include "rocksdb/table.h"

using namespace contract;
using imbrex::Into;
using rocksdb::DB;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Options;
using rocksdb::ReadOptions;
using rocksdb::Status;
using rocksdb::WriteOptions;

namespace {

// A directory of the host that goes away with its files.
class HostDirectory {
 public:
  HostDirectory() {
    const char* const parent = getenv("TMPDIR");
    path_ = std::string(parent == nullptr ? "/tmp" : parent) + "/imbrex-bad-input.XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) {
      Fail(__FILE__, __LINE__, "no directory for drives");
    }
  }
  ~HostDirectory() {
    for (const char* const name : {"/plain", "/drive.img"}) {
      unlink((path_ + name).c_str());
    }
    rmdir(path_.c_str());
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void Imbrex(const std::vector<std::string>& words) {
  std::vector<std::string> all = {BuildDirectory() + "/imbrex"};
  all.insert(all.end(), words.begin(), words.end());
  int code = 0;
  const std::string output = Run(all, {}, &code);
  if (code != 0) {
    Fail(__FILE__, __LINE__, output);
  }
}

Status OpenDrive(const std::string& uri, std::shared_ptr<rocksdb::FileSystem>* fs) {
  return rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), uri, fs);
}

std::string Key(int i) {
  char text[16];
  snprintf(text, sizeof(text), "key%08d", i);
  return text;
}
std::string Value(int i, int round) { return Bytes(4000, static_cast<uint64_t>(i) * 10 + static_cast<uint64_t>(round)); }

// Counts the recoveries from background errors that RocksDB itself began and ended well.
class Recoveries : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason, Status* error) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    in_compaction_ += reason == rocksdb::BackgroundErrorReason::kCompaction && error->IsNoSpace() ? 1 : 0;
  }
  void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo& info) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ += info.new_bg_error.ok() ? 1 : 0;
    info.old_bg_error.PermitUncheckedError();
  }
  int in_compaction() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return in_compaction_;
  }
  int ended() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ended_;
  }

 private:
  mutable std::mutex mutex_;
  int in_compaction_ = 0;
  int ended_ = 0;
};

}  // namespace

IMBREX_TEST(BadUrisAreRefusedWithASentence) {
  const std::vector<std::vector<std::string>> cases = {
      {"imbrex://mem:?profile=nonsense", "there is no profile", "imbrex drive profiles"},
      {"imbrex://mem:?size=x", "256M"},
      {"imbrex://mem:?survivor-sice=1", "there is no option", "survivor-size"},
      {"imbrex://mem:?cache=1M&cache=2M", "twice"},
      {"imbrex://mem:?wal=first", "there is no option", "wal"},
      {"imbrex://mem:?survivor-size=1", "between 1M and 4G"},
      {"imbrex://mem:?format=perhaps", "neither on nor off"},
      {"imbrex://", "names no drive"},
      {"imbrex:///dev/null", "not a block device"},
  };
  for (const std::vector<std::string>& words : cases) {
    std::shared_ptr<rocksdb::FileSystem> fs;
    const Status status = OpenDrive(words[0], &fs);
    EXPECT_ERROR(status, IsInvalidArgument);
    EXPECT(fs == nullptr);
    ExpectSays(__FILE__, __LINE__, status.ToString(), {words.begin() + 1, words.end()});
  }
}

IMBREX_TEST(DrivesThatCannotBeUsedSayWhy) {
  const HostDirectory host;
  std::shared_ptr<rocksdb::FileSystem> fs;
  Status status = OpenDrive("imbrex://" + (host / "drive.img"), &fs);
  EXPECT_ERROR(status, IsPathNotFound);
  EXPECT_SAYS(status.ToString(), "there is no such file", "imbrex drive create");

  std::ofstream(host / "plain") << "precious";
  status = OpenDrive("imbrex://" + (host / "plain") + "?format=on", &fs);
  EXPECT_ERROR(status, IsInvalidArgument);
  EXPECT_SAYS(status.ToString(), "not a drive image");

  const std::string image = host / "drive.img";
  Imbrex({"drive", "create", image, "--profile", "tiny"});
  status = OpenDrive("imbrex://" + image, &fs);
  EXPECT_ERROR(status, IsInvalidArgument);
  EXPECT_SAYS(status.ToString(), "has no Imbrex label", "imbrex fs format");
  Imbrex({"fs", "format", image});

  // Root may open everything.
  if (geteuid() != 0) {
    chmod(image.c_str(), 0);
    status = OpenDrive("imbrex://" + image, &fs);
    EXPECT_ERROR(status, IsIOError);
    EXPECT_SAYS(status.ToString(), "no permission");
    chmod(image.c_str(), 0600);
  }
  // What was refused does nothing, and does not stand in the way of a second attempt.
  status = OpenDrive("imbrex:///nowhere/drive.img", &fs);
  EXPECT(!status.ok() && (fs == nullptr || !fs->CreateDir("/d", IOOptions(), nullptr).ok()));
  NEED_OK(OpenDrive("imbrex://" + image + "?survivor-size=1M", &fs));
  EXPECT_OK(fs->CreateDir("/d", IOOptions(), nullptr));
  EXPECT_EQ(fs->GetId(), "imbrex://" + image + "?survivor-size=1M");
  fs.reset();

  EXPECT(truncate(image.c_str(), 9 << 20) == 0);
  status = OpenDrive("imbrex://" + image, &fs);
  EXPECT_ERROR(status, IsCorruption);
  EXPECT_SAYS(status.ToString(), "truncated", "restore it from a copy");
}

IMBREX_TEST(AFlippedBitInATableIsCorruption) {
  const HostDirectory host;
  const std::string image = host / "drive.img";
  Imbrex({"drive", "create", image, "--profile", "tiny"});
  Imbrex({"fs", "format", image});
  Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  const auto open = [&](std::shared_ptr<rocksdb::FileSystem>* fs, std::unique_ptr<rocksdb::Env>* env, std::unique_ptr<DB>* db) {
    Status status = OpenDrive("imbrex://" + image + "?survivor-size=1M&cache=0", fs);
    if (status.ok()) {
      *env = rocksdb::NewCompositeEnv(*fs);
      options.env = env->get();
      status = DB::Open(options, "/db", Into(db));
    }
    return status;
  };
  {
    std::shared_ptr<rocksdb::FileSystem> fs;
    std::unique_ptr<rocksdb::Env> env;
    std::unique_ptr<DB> db;
    NEED_OK(open(&fs, &env, &db));
    for (int i = 0; i < 100; ++i) {
      EXPECT_OK(db->Put(WriteOptions(), Key(i), Value(i, 0)));
    }
    EXPECT_OK(db->Flush(rocksdb::FlushOptions()));
    EXPECT_OK(db->Close());
  }
  // The value is in the log and in the table; only the table is read.
  std::string bytes;
  {
    std::ifstream in(image, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const std::string needle = Value(50, 0).substr(1000, 64);
  int flipped = 0;
  for (size_t at = bytes.find(needle); at != std::string::npos; at = bytes.find(needle, at + 1)) {
    const char bad = static_cast<char>(bytes[at] ^ 8);
    const int file = ::open(image.c_str(), O_WRONLY | O_CLOEXEC);
    flipped += pwrite(file, &bad, 1, static_cast<off_t>(at)) == 1 ? 1 : 0;
    close(file);
  }
  EXPECT(flipped > 0);
  std::shared_ptr<rocksdb::FileSystem> fs;
  std::unique_ptr<rocksdb::Env> env;
  std::unique_ptr<DB> db;
  NEED_OK(open(&fs, &env, &db));
  std::string value;
  EXPECT_ERROR(db->Get(ReadOptions(), Key(50), &value), IsCorruption);
  for (const int i : {0, 30, 70, 99}) {
    EXPECT_OK(db->Get(ReadOptions(), Key(i), &value));
    EXPECT(value == Value(i, 0));
  }
  EXPECT_ERROR(db->VerifyChecksum(), IsCorruption);
}

// The drive is full in the middle of a compaction; the database has an SstFileManager, nobody calls Resume or opens it again.
IMBREX_TEST(ACompactionWithoutRoomHealsWhenFilesAreDeleted) {
  std::shared_ptr<rocksdb::FileSystem> fs;
  NEED_OK(OpenDrive("imbrex://mem:?profile=tiny&size=96M&cache=4M&survivor-size=4M", &fs));
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(fs);
  const auto recoveries = std::make_shared<Recoveries>();
  Options options;
  options.env = env.get();
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.disable_auto_compactions = true;
  options.write_buffer_size = 4 << 20;
  options.target_file_size_base = 900 << 10;
  options.listeners = {recoveries};
  options.sst_file_manager.reset(rocksdb::NewSstFileManager(env.get(), fs));
  std::unique_ptr<DB> db;
  NEED_OK(DB::Open(options, "/db", Into(&db)));
  // Without logs, whose zones would be given back at a time of their own.
  WriteOptions unlogged;
  unlogged.disableWAL = true;
  constexpr int kKeys = 2000;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kKeys; ++i) {
      NEED_OK(db->Put(unlogged, Key(i), Value(i, round)));
    }
    NEED_OK(db->Flush(rocksdb::FlushOptions()));
  }
  // Somebody else's file leaves room for a quarter of what the compaction writes. What is said to be free is what one surely gets, and
  // with luck there is half as much again in what cleaning gives back meanwhile.
  std::unique_ptr<rocksdb::FSWritableFile> ballast;
  NEED_OK(fs->NewWritableFile("/ballast.sst", rocksdb::FileOptions(), &ballast, nullptr));
  uint64_t free = ~uint64_t{0};
  for (uint64_t i = 0; free > (2u << 20); ++i) {
    NEED_OK(Append(ballast.get(), Bytes(256 << 10, i)));
    NEED_OK(fs->GetFreeSpace("/", IOOptions(), &free, nullptr));
  }
  NEED_OK(Close(ballast.get()));

  const Status full = db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr);
  EXPECT_ERROR(full, IsNoSpace);
  EXPECT_SAYS(full.ToString(), "No space left on device", "delete something");
  EXPECT(recoveries->in_compaction() > 0);
  std::string value;
  for (int i = 0; i < kKeys; i += 97) {
    EXPECT_OK(db->Get(ReadOptions(), Key(i), &value));
    EXPECT(value == Value(i, 2));
  }
  EXPECT_EQ(recoveries->ended(), 0);

  EXPECT_OK(fs->DeleteFile("/ballast.sst", IOOptions(), nullptr));
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(600);
  while (recoveries->ended() == 0 && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT(recoveries->ended() > 0);
  EXPECT_OK(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
  EXPECT_OK(db->Put(WriteOptions(), "one more", "x"));
  EXPECT_OK(db->Flush(rocksdb::FlushOptions()));
  EXPECT_OK(db->Close());
  db.reset();
  options.listeners.clear();
  NEED_OK(DB::Open(options, "/db", Into(&db)));
  for (int i = 0; i < kKeys; ++i) {
    EXPECT_OK(db->Get(ReadOptions(), Key(i), &value));
    EXPECT(value == Value(i, 2));
  }
  EXPECT_OK(db->VerifyChecksum());
}
