// Contract seen from a database: how it finds the plug-in, what it does on a full drive, and who is refused.

#include <unistd.h>

#include <chrono>
#include <thread>

#include "contract.h"
#include "imbrex_rocksdb.h"
#include "releases.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"

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

// A drive of its own, in memory.
constexpr const char* kSmallDrive = "imbrex://mem:?profile=tiny&size=96M&cache=4M&survivor-size=4M";

std::string Key(int i) { return "key" + std::to_string(i); }

}  // namespace

IMBREX_TEST(ADatabaseIsFoundByItsUri) {
  rocksdb::Env* env = nullptr;
  std::shared_ptr<rocksdb::Env> guard;
  NEED_OK(rocksdb::Env::CreateFromUri(rocksdb::ConfigOptions(), "", Uri(), &env, &guard));
  Options options;
  options.env = env;
  options.create_if_missing = true;
  std::unique_ptr<DB> db;
  NEED_OK(DB::Open(options, At("db"), Into(&db)));
  EXPECT_OK(db->Put(WriteOptions(), "a", "1"));
  // Twice at a time is refused, by the lock.
  std::unique_ptr<DB> second;
  EXPECT_ERROR(DB::Open(options, At("db"), Into(&second)), IsIOError);
  // Readers are not.
  EXPECT_OK(DB::OpenForReadOnly(options, At("db"), Into(&second)));
  std::string value;
  if (second != nullptr) {
    EXPECT_OK(second->Get(ReadOptions(), "a", &value));
    EXPECT_EQ(value, std::string("1"));
    second.reset();
  }
  EXPECT_OK(DB::OpenAsSecondary(options, At("db"), At("secondary"), Into(&second)));
  if (second != nullptr) {
    EXPECT_OK(db->Put(WriteOptions(), "a", "2"));
    EXPECT_OK(second->TryCatchUpWithPrimary());
    EXPECT_OK(second->Get(ReadOptions(), "a", &value));
    EXPECT_EQ(value, std::string("2"));
    second.reset();
  }
  db.reset();
  EXPECT_OK(rocksdb::DestroyDB(At("db"), options));
}

IMBREX_TEST(ADatabaseOnAFullDriveHealsByItself) {
  std::shared_ptr<rocksdb::FileSystem> fs;
  NEED_OK(rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), kSmallDrive, &fs));
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(fs);
  Options options;
  options.env = env.get();
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 512 << 10;
  options.target_file_size_base = 900 << 10;
  std::unique_ptr<DB> db;
  NEED_OK(DB::Open(options, "/db", Into(&db)));
  // Somebody else's file takes most of the drive.
  std::unique_ptr<rocksdb::FSWritableFile> ballast;
  NEED_OK(fs->NewWritableFile("/ballast.sst", rocksdb::FileOptions(), &ballast, nullptr));
  uint64_t free = ~uint64_t{0};
  while (free > (24u << 20)) {
    NEED_OK(Append(ballast.get(), Bytes(1 << 20, free)));
    NEED_OK(fs->GetFreeSpace("/", IOOptions(), &free, nullptr));
  }
  NEED_OK(Close(ballast.get()));

  int written = 0;
  Status status;
  WriteOptions filling;
#if ROCKSDB_MAJOR >= 9
  // RocksDB 11.8 can wait for ever: a write that is stalled holds the queue of writers (DBImpl::DelayWrite) which the recovery from "no
  // space" enters to flush (WriteThread::EnterUnbatched), on any file system. So stalls are waited for here.
  filling.no_slowdown = true;
#endif
  const auto full = std::chrono::steady_clock::now() + std::chrono::seconds(600);
  while (status.ok() && written < 100000) {
    status = db->Put(filling, Key(written), Bytes(1000, static_cast<uint64_t>(written)));
    written += status.ok() ? 1 : 0;
    if (filling.no_slowdown && status.IsIncomplete() && std::chrono::steady_clock::now() < full) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      status = Status::OK();
    }
  }
  // A write that waits for a flush when that flush fails gets the reason as the text of an Incomplete (DBImpl::DelayWrite).
  if (!status.IsIncomplete() || status.ToString().find("No space left") == std::string::npos) {
    EXPECT_ERROR(status, IsNoSpace);
  }
  EXPECT(written > 5000);
  // What is there can be read, and deleting works.
  std::string value;
  for (int i = 0; i < written; i += 501) {
    EXPECT_OK(db->Get(ReadOptions(), Key(i), &value));
    EXPECT(value == Bytes(1000, static_cast<uint64_t>(i)));
  }
  EXPECT_OK(fs->DeleteFile("/ballast.sst", IOOptions(), nullptr));
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(600);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    status = db->Put(WriteOptions(), Key(written), Bytes(1000, static_cast<uint64_t>(written)));
  } while (!status.ok() && std::chrono::steady_clock::now() < patience);
  EXPECT_OK(status);
  written += status.ok() ? 1 : 0;
  EXPECT_OK(db->Flush(rocksdb::FlushOptions()));
  EXPECT_OK(db->Close());
  db.reset();
  NEED_OK(DB::Open(options, "/db", Into(&db)));
  for (int i = 0; i < written; ++i) {
    EXPECT_OK(db->Get(ReadOptions(), Key(i), &value));
    EXPECT(value == Bytes(1000, static_cast<uint64_t>(i)));
  }
  EXPECT_OK(db->VerifyChecksum());
}

IMBREX_TEST(AFullDriveSaysNoSpaceAndCanAlwaysBeDeletedFrom) {
  std::shared_ptr<rocksdb::FileSystem> fs;
  NEED_OK(rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(),
                                                "imbrex://mem:?profile=tiny&size=48M&cache=4M&survivor-size=4M", &fs));
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> names;
    IOStatus status;
    while (status.ok() && names.size() < 1000) {
      const std::string name = "/" + std::to_string(names.size()) + ".sst";
      std::unique_ptr<rocksdb::FSWritableFile> file;
      status = fs->NewWritableFile(name, rocksdb::FileOptions(), &file, nullptr);
      if (status.ok()) {
        names.push_back(name);
        status = Append(file.get(), Bytes(700000, names.size()));
      }
      if (status.ok()) {
        status = Sync(file.get());
      }
      if (status.ok()) {
        status = Close(file.get());
      }
    }
    EXPECT_ERROR(status, IsNoSpace);
    EXPECT(status.GetRetryable());
    EXPECT(names.size() > 20 && names.size() < 1000);
    uint64_t free = 0;
    EXPECT_OK(fs->GetFreeSpace("/", IOOptions(), &free, nullptr));
    EXPECT(free < (2u << 20));
    for (const std::string& name : names) {
      EXPECT_OK(fs->DeleteFile(name, IOOptions(), nullptr));
    }
  }
}

IMBREX_TEST(AnotherProcessGetsOneSentence) {
  if (Uri().rfind("imbrex://mem:", 0) == 0) {
    return;
  }
  int code = 0;
  const std::string output = Run({BuildDirectory() + "/fs_contract_test", Uri(), "--only=nothing"}, {}, &code);
  EXPECT_EQ(code, 1);
  EXPECT_SAYS(output, "Resource busy", "in use by process " + std::to_string(getpid()), "stop it first");
}

IMBREX_TEST(AnotherRocksDbIsRefused) {
  const std::string here = BuildDirectory();
  const std::string plugin = here + "/librocksdb_imbrex.so";
  int code = 0;
  // Without RocksDB, nothing happens, so that shells may pass it on.
  EXPECT_EQ(Run({"/bin/true"}, {"LD_PRELOAD=" + plugin}, &code), std::string());
  EXPECT_EQ(code, 0);
  // As a program with RocksDB 99.1 would load it.
  std::string output = Run({"/bin/true"}, {"LD_PRELOAD=" + here + "/obj/librocksdb_other.so:" + plugin}, &code);
  EXPECT_EQ(code, 0);
  const std::string own = "built for RocksDB " + std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR);
  if (output.find("uses RocksDB 99.1") == std::string::npos || output.find(own) == std::string::npos) {
    Fail(__FILE__, __LINE__, "not the sentence that it should be: " + output);
  }
  // As one with a RocksDB so old that it does not tell its version.
  output = Run({"/bin/true"}, {"LD_PRELOAD=" + here + "/obj/librocksdb_old.so:" + plugin}, &code);
  EXPECT_EQ(code, 0);
  if (output.find("too old or a mixture of two") == std::string::npos) {
    Fail(__FILE__, __LINE__, "not the sentence that it should be: " + output);
  }
}
