// Contract of names: directories, renaming, deleting, locks, and the errors that LevelDB tells apart.

#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "contract.h"
#include "imbrex_leveldb.h"

using namespace contract;
using leveldb::Env;

CONTRACT_TEST(WhatIsMissingIsNotFound) {
  std::unique_ptr<leveldb::SequentialFile> sequential;
  EXPECT_ERROR(OpenSequential(At("no"), &sequential), IsNotFound);
  std::unique_ptr<leveldb::RandomAccessFile> random;
  EXPECT_ERROR(OpenRandomAccess(At("no"), &random), IsNotFound);
  std::unique_ptr<leveldb::WritableFile> file;
  EXPECT_ERROR(Create(At("no/file"), &file), IsNotFound);
  EXPECT_ERROR(Reopen(At("no/file"), &file), IsNotFound);
  leveldb::Logger* logger = nullptr;
  EXPECT_ERROR(TestEnv()->NewLogger(At("no/LOG"), &logger), IsNotFound);
  EXPECT(logger == nullptr);
  EXPECT_ERROR(TestEnv()->RemoveFile(At("no")), IsNotFound);
  EXPECT_ERROR(TestEnv()->RemoveDir(At("no")), IsNotFound);
  EXPECT_ERROR(TestEnv()->RenameFile(At("no"), At("other")), IsNotFound);
  std::vector<std::string> names = {"left over"};
  EXPECT_ERROR(TestEnv()->GetChildren(At("no"), &names), IsNotFound);
  EXPECT_EQ(names.size(), 0u);
  uint64_t size = 1;
  EXPECT_ERROR(TestEnv()->GetFileSize(At("no"), &size), IsNotFound);
  EXPECT_EQ(size, 0u);
  EXPECT(!TestEnv()->FileExists(At("no")));
}

// LevelDB puts the path in front of the message itself.
CONTRACT_TEST(ErrorsNameThePathOnce) {
  uint64_t size = 0;
  EXPECT_ONCE(TestEnv()->GetFileSize(At("no"), &size).ToString(), At("no"));
  std::vector<std::string> names;
  EXPECT_ONCE(TestEnv()->GetChildren(At("no"), &names).ToString(), At("no"));
  EXPECT_OK(TestEnv()->CreateDir(At("d")));
  EXPECT_OK(Put(TestEnv(), At("d/f"), "x"));
  EXPECT_ONCE(TestEnv()->CreateDir(At("d")).ToString(), At("d"));
  EXPECT_ONCE(TestEnv()->RemoveDir(At("d")).ToString(), At("d"));
  leveldb::FileLock* first = nullptr;
  leveldb::FileLock* second = nullptr;
  NEED_OK(TestEnv()->LockFile(At("LOCK"), &first));
  EXPECT_ONCE(TestEnv()->LockFile(At("LOCK"), &second).ToString(), At("LOCK"));
  EXPECT_OK(TestEnv()->UnlockFile(first));
}

// LevelDB's own Env lists what readdir gives, and programs count on it (LevelDB's tests of its memory Env do).
CONTRACT_TEST(AListingHasTheDirectoryAndItsParent) {
  const std::vector<std::string> none = {".", ".."};
  std::vector<std::string> names = {"left over"};
  EXPECT_OK(TestEnv()->CreateDir(At("d")));
  EXPECT_OK(TestEnv()->GetChildren(At("d"), &names));
  std::sort(names.begin(), names.end());
  EXPECT(names == none);
  EXPECT_OK(Put(TestEnv(), At("d/f"), "x"));
  EXPECT_OK(TestEnv()->GetChildren(At("d/"), &names));
  std::sort(names.begin(), names.end());
  EXPECT(names == std::vector<std::string>({".", "..", "f"}));
  // Nobody can open or remove them by mistake.
  EXPECT(!TestEnv()->RemoveFile(At("d/.")).ok());
  EXPECT(!TestEnv()->RemoveDir(At("d/.")).ok());
  EXPECT(Sorted(At("d")) == std::vector<std::string>({"f"}));
}

CONTRACT_TEST(DirectoriesAreMadeListedAndRemoved) {
  EXPECT_OK(TestEnv()->CreateDir(At("d")));
  EXPECT_ERROR(TestEnv()->CreateDir(At("d")), IsIOError);
  EXPECT_OK(TestEnv()->CreateDir(At("d") + "/e"));
  EXPECT_OK(Put(TestEnv(), At("d/f"), "x"));
  EXPECT(Sorted(At("d")) == std::vector<std::string>({"e", "f"}));
  // The trailing and doubled slashes that databases build.
  EXPECT(Sorted(At("d/")) == std::vector<std::string>({"e", "f"}));
  EXPECT(TestEnv()->FileExists(At("d//f")));
  EXPECT(TestEnv()->FileExists(At("d/./f")));
  EXPECT(TestEnv()->FileExists(At("d/e")));
  EXPECT_ERROR(TestEnv()->RemoveDir(At("d")), IsIOError);
  EXPECT_ERROR(TestEnv()->RemoveDir(At("d/f")), IsIOError);
  EXPECT_OK(TestEnv()->RemoveFile(At("d/f")));
  EXPECT_OK(TestEnv()->RemoveDir(At("d/e")));
  EXPECT_OK(TestEnv()->RemoveDir(At("d")));
  EXPECT(!TestEnv()->FileExists(At("d")));
}

// The names of before LevelDB 1.23.
CONTRACT_TEST(TheOldNamesOfRemovingWork) {
  EXPECT_OK(TestEnv()->CreateDir(At("d")));
  EXPECT_OK(Put(TestEnv(), At("d/f"), "x"));
  EXPECT_OK(TestEnv()->DeleteFile(At("d/f")));
  EXPECT_OK(TestEnv()->DeleteDir(At("d")));
  EXPECT(!TestEnv()->FileExists(At("d")));
}

CONTRACT_TEST(RenamingReplaces) {
  EXPECT_OK(Put(TestEnv(), At("CURRENT"), "MANIFEST-000002\n"));
  EXPECT_OK(Put(TestEnv(), At("000005.dbtmp"), "MANIFEST-000005\n"));
  EXPECT_OK(TestEnv()->RenameFile(At("000005.dbtmp"), At("CURRENT")));
  EXPECT_EQ(Get(TestEnv(), At("CURRENT")), std::string("MANIFEST-000005\n"));
  EXPECT(Sorted(At("")) == std::vector<std::string>({"CURRENT"}));
}

CONTRACT_TEST(LocksExcludeEachOther) {
  leveldb::FileLock* first = nullptr;
  leveldb::FileLock* second = nullptr;
  NEED_OK(TestEnv()->LockFile(At("LOCK"), &first));
  EXPECT(TestEnv()->FileExists(At("LOCK")));
  const leveldb::Status refused = TestEnv()->LockFile(At("LOCK"), &second);
  EXPECT_ERROR(refused, IsIOError);
  EXPECT_CONTAINS(refused.ToString(), "lock ");
  EXPECT(second == nullptr);
  EXPECT_OK(TestEnv()->UnlockFile(first));
  EXPECT_OK(TestEnv()->LockFile(At("LOCK"), &second));
  if (second != nullptr) {
    EXPECT_OK(TestEnv()->UnlockFile(second));
  }
}

CONTRACT_TEST(ThreadsAndTimeAreLevelDbsOwn) {
  struct Count {
    std::mutex mutex;
    std::condition_variable changed;
    int calls = 0;
  } count;
  const auto call = [](void* argument) {
    Count* const its = static_cast<Count*>(argument);
    const std::lock_guard<std::mutex> lock(its->mutex);
    ++its->calls;
    its->changed.notify_all();
  };
  const uint64_t before = TestEnv()->NowMicros();
  TestEnv()->Schedule(call, &count);
  TestEnv()->StartThread(call, &count);
  {
    std::unique_lock<std::mutex> lock(count.mutex);
    count.changed.wait(lock, [&] { return count.calls == 2; });
  }
  TestEnv()->SleepForMicroseconds(1000);
  EXPECT(TestEnv()->NowMicros() >= before + 1000);
  std::string directory;
  EXPECT_OK(TestEnv()->GetTestDirectory(&directory));
  EXPECT_OK(TestEnv()->GetTestDirectory(&directory));
  EXPECT(TestEnv()->FileExists(directory));
}

IMBREX_TEST(BadNamesAreErrors) {
  std::unique_ptr<leveldb::WritableFile> file;
  EXPECT_ERROR(Create(At(std::string(256, 'n')), &file), IsIOError);
  EXPECT_OK(Create(At(std::string(255, 'n')), &file));
  EXPECT(!Create("", &file).ok());
  EXPECT(!Create(At("\xff\xfe"), &file).ok());
}

IMBREX_TEST(AnEnvOnAnOpenFileSystemAndItsAdvice) {
  std::string error;
  EXPECT(imbrex::NewLevelDbEnv(static_cast<const imbrex_fs*>(nullptr), &error) == nullptr);
  EXPECT_CONTAINS(error, "null");
  imbrex_fs* fs = nullptr;
  imbrex_error* const failure = imbrex_fs_open("imbrex://mem:?profile=tiny", &fs);
  EXPECT(failure == nullptr);
  const std::unique_ptr<Env> env(imbrex::NewLevelDbEnv(fs, &error));
  leveldb::Options options;
  options.block_size = 12345;
  EXPECT(imbrex::AdviseLevelDbOptions(fs, &options, &error));
  // A zone of the tiny profile holds 1 MiB.
  EXPECT(options.max_file_size > (900 << 10) && options.max_file_size < (1 << 20));
  EXPECT(options.write_buffer_size <= options.max_file_size);
  EXPECT_EQ(options.block_size, 12345u);
  EXPECT(!imbrex::AdviseLevelDbOptions(nullptr, &options, &error));
  imbrex_fs_close(fs);
  // The Env has a reference of its own.
  EXPECT(env != nullptr && Put(env.get(), "/f", "x").ok());
  EXPECT_EQ(env == nullptr ? error : Get(env.get(), "/f"), std::string("x"));
}
