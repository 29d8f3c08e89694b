// Contract of names: directories, rename, links, deletion, locks, logs, and what is said when something is missing.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <thread>

#include "contract.h"
#include "imbrex_rocksdb.h"
#include "rocksdb/convenience.h"

using namespace contract;
using rocksdb::FileOptions;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

uint64_t Links(const std::string& path) {
  uint64_t count = 0;
  EXPECT_OK(Fs()->NumFileLinks(path, IOOptions(), &count, nullptr));
  return count;
}

bool Same(const std::string& first, const std::string& second) {
  bool same = false;
  EXPECT_OK(Fs()->AreFilesSame(first, second, IOOptions(), &same, nullptr));
  return same;
}

IOStatus Rename(const std::string& from, const std::string& to) { return Fs()->RenameFile(from, to, IOOptions(), nullptr); }
IOStatus Link(const std::string& from, const std::string& to) { return Fs()->LinkFile(from, to, IOOptions(), nullptr); }
IOStatus Delete(const std::string& path) { return Fs()->DeleteFile(path, IOOptions(), nullptr); }
IOStatus MakeDir(const std::string& path) { return Fs()->CreateDir(path, IOOptions(), nullptr); }

using Names = std::vector<std::string>;

}  // namespace

CONTRACT_TEST(WhatIsMissingIsSaidToBe) {
  const std::string path = At("missing");
  std::unique_ptr<rocksdb::FSSequentialFile> sequential;
  EXPECT_ERROR(OpenSequential(path, &sequential), IsPathNotFound);
  EXPECT(sequential == nullptr);
  std::unique_ptr<rocksdb::FSRandomAccessFile> random;
  EXPECT_ERROR(OpenRandomAccess(path, &random), IsPathNotFound);
  EXPECT(random == nullptr);
  EXPECT_ERROR(Fs()->FileExists(path, IOOptions(), nullptr), IsNotFound);
  EXPECT_ERROR(Delete(path), IsPathNotFound);
  uint64_t number = 1;
  EXPECT_ERROR(Fs()->GetFileSize(path, IOOptions(), &number, nullptr), IsPathNotFound);
  EXPECT_ERROR(Fs()->GetFileModificationTime(path, IOOptions(), &number, nullptr), IsPathNotFound);
  EXPECT_ERROR(Rename(path, At("b")), IsPathNotFound);
  EXPECT_ERROR(Link(path, At("b")), IsPathNotFound);
  bool answer = false;
  EXPECT_ERROR(Fs()->IsDirectory(path, IOOptions(), &answer, nullptr), IsPathNotFound);
  EXPECT_ERROR(Fs()->AreFilesSame(path, path, IOOptions(), &answer, nullptr), IsPathNotFound);
  std::vector<std::string> names;
  EXPECT_ERROR(Fs()->GetChildren(path, IOOptions(), &names, nullptr), IsNotFound);
  std::vector<rocksdb::FileAttributes> attributes;
  EXPECT_ERROR(Fs()->GetChildrenFileAttributes(path, IOOptions(), &attributes, nullptr), IsNotFound);
  std::unique_ptr<rocksdb::FSDirectory> directory;
  EXPECT_ERROR(Fs()->NewDirectory(path, IOOptions(), &directory, nullptr), IsIOError);
  EXPECT(directory == nullptr);
  // In a directory that is missing.
  std::unique_ptr<rocksdb::FSWritableFile> file;
  EXPECT_ERROR(Create(path + "/a", &file), IsPathNotFound);
  EXPECT(file == nullptr);
  EXPECT_ERROR(MakeDir(path + "/a"), IsIOError);
  NEED_OK(Put(At("a"), "x"));
  EXPECT_ERROR(Rename(At("a"), path + "/a"), IsPathNotFound);
  EXPECT(Exists(At("a")));
}

CONTRACT_TEST(ErrorsNameThePath) {
  uint64_t size = 0;
  const std::string text = Fs()->GetFileSize(At("missing"), IOOptions(), &size, nullptr).ToString();
  EXPECT(text.find(At("missing")) != std::string::npos);
}

// RocksDB puts the path in front of the message itself.
IMBREX_TEST(ErrorsNameThePathOnce) {
  const std::string missing = At("missing");
  uint64_t size = 0;
  EXPECT_ONCE(Fs()->GetFileSize(missing, IOOptions(), &size, nullptr).ToString(), missing);
  EXPECT_ONCE(Fs()->FileExists(missing, IOOptions(), nullptr).ToString(), missing);
  Names names;
  EXPECT_ONCE(Fs()->GetChildren(missing, IOOptions(), &names, nullptr).ToString(), missing);
  std::vector<rocksdb::FileAttributes> attributes;
  EXPECT_ONCE(Fs()->GetChildrenFileAttributes(missing, IOOptions(), &attributes, nullptr).ToString(), missing);
  EXPECT_ONCE(Delete(missing).ToString(), missing);
  EXPECT_OK(MakeDir(At("d")));
  EXPECT_ONCE(MakeDir(At("d")).ToString(), At("d"));
  EXPECT_OK(Put(At("f"), "x"));
  EXPECT_ONCE(Fs()->GetChildren(At("f"), IOOptions(), &names, nullptr).ToString(), At("f"));
  rocksdb::FileLock* first = nullptr;
  rocksdb::FileLock* second = nullptr;
  NEED_OK(Fs()->LockFile(At("LOCK"), IOOptions(), &first, nullptr));
  EXPECT_ONCE(Fs()->LockFile(At("LOCK"), IOOptions(), &second, nullptr).ToString(), At("LOCK"));
  EXPECT_OK(Fs()->UnlockFile(first, IOOptions(), nullptr));
}

CONTRACT_TEST(Directories) {
  EXPECT_OK(MakeDir(At("d")));
  EXPECT(!MakeDir(At("d")).ok());
  EXPECT_OK(Fs()->CreateDirIfMissing(At("d"), IOOptions(), nullptr));
  EXPECT_OK(Fs()->CreateDirIfMissing(At("e"), IOOptions(), nullptr));
  EXPECT_OK(MakeDir(At("d/deeper")));
  EXPECT_OK(Put(At("d/a"), "123"));
  bool is_directory = false;
  EXPECT_OK(Fs()->IsDirectory(At("d"), IOOptions(), &is_directory, nullptr));
  EXPECT(is_directory);
  EXPECT_OK(Fs()->IsDirectory(At("d/a"), IOOptions(), &is_directory, nullptr));
  EXPECT(!is_directory);
  EXPECT_OK(Fs()->FileExists(At("d"), IOOptions(), nullptr));
  EXPECT(Sorted(At("d")) == Names({"a", "deeper"}));
  EXPECT(Sorted(At("d/deeper")).empty());
  std::unique_ptr<rocksdb::FSDirectory> directory;
  NEED_OK(Fs()->NewDirectory(At("d"), IOOptions(), &directory, nullptr));
  EXPECT_OK(directory->Fsync(IOOptions(), nullptr));
  EXPECT_OK(directory->FsyncWithDirOptions(IOOptions(), nullptr, rocksdb::DirFsyncOptions(At("d/a"))));
  EXPECT_OK(directory->Close(IOOptions(), nullptr));
  EXPECT(!Fs()->DeleteDir(At("d"), IOOptions(), nullptr).ok());
  EXPECT_OK(Delete(At("d/a")));
  EXPECT_OK(Fs()->DeleteDir(At("d/deeper"), IOOptions(), nullptr));
  EXPECT_OK(Fs()->DeleteDir(At("d"), IOOptions(), nullptr));
  EXPECT(!Exists(At("d")));
  EXPECT(!Fs()->DeleteDir(At("d"), IOOptions(), nullptr).ok());
}

IMBREX_TEST(AFileIsNoDirectory) {
  NEED_OK(Put(At("f"), "x"));
  std::unique_ptr<rocksdb::FSDirectory> directory;
  EXPECT(!Fs()->NewDirectory(At("f"), IOOptions(), &directory, nullptr).ok());
  EXPECT(directory == nullptr);
  EXPECT(!MakeDir(At("f")).ok());
  EXPECT(!Fs()->CreateDirIfMissing(At("f"), IOOptions(), nullptr).ok());
  EXPECT(!Fs()->DeleteDir(At("f"), IOOptions(), nullptr).ok());
  EXPECT_ERROR(Fs()->FileExists(At("f/x"), IOOptions(), nullptr), IsNotFound);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  EXPECT(!Create(At("f/x"), &file).ok());
  std::vector<std::string> names;
  EXPECT_ERROR(Fs()->GetChildren(At("f"), IOOptions(), &names, nullptr), IsNotFound);
  EXPECT_EQ(Get(At("f")), std::string("x"));
}

CONTRACT_TEST(ADirectoryIsNoFile) {
  NEED_OK(MakeDir(At("d")));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  EXPECT(!Create(At("d"), &file).ok());
  EXPECT(!Reopen(At("d"), &file).ok());
  EXPECT(!Delete(At("d")).ok());
  EXPECT(!Link(At("d"), At("e")).ok());
  std::unique_ptr<rocksdb::FSRandomRWFile> random;
  EXPECT(!Fs()->NewRandomRWFile(At("d"), FileOptions(), &random, nullptr).ok());
  EXPECT(Exists(At("d")));
}

// RocksDB's own file system lists neither "." nor "..", and neither does this one.
CONTRACT_TEST(AListingHasNothingButChildren) {
  NEED_OK(MakeDir(At("d")));
  Names names = {"left over"};
  EXPECT_OK(Fs()->GetChildren(At("d"), IOOptions(), &names, nullptr));
  EXPECT(names.empty());
  EXPECT_OK(Put(At("d/f"), "x"));
  EXPECT_OK(Fs()->GetChildren(At("d"), IOOptions(), &names, nullptr));
  EXPECT(names == Names({"f"}));
}

CONTRACT_TEST(ChildrenWithTheirSizes) {
  std::map<std::string, uint64_t> expected;
  for (uint64_t i = 0; i < 20; ++i) {
    const std::string name = "file" + std::to_string(i);
    EXPECT_OK(Put(At(name), std::string(i * 1000, 'x')));
    expected[name] = i * 1000;
  }
  std::vector<rocksdb::FileAttributes> children = {{"rubbish", 1}};
  EXPECT_OK(Fs()->GetChildrenFileAttributes(At(""), IOOptions(), &children, nullptr));
  std::map<std::string, uint64_t> got;
  for (const rocksdb::FileAttributes& child : children) {
    if (child.name != "." && child.name != "..") {
      got[child.name] = child.size_bytes;
    }
  }
  EXPECT(got == expected);
}

CONTRACT_TEST(RenameReplaces) {
  NEED_OK(Put(At("CURRENT"), "MANIFEST-000001\n"));
  NEED_OK(Put(At("000002.dbtmp"), "MANIFEST-000002\n"));
  EXPECT_OK(Rename(At("000002.dbtmp"), At("CURRENT")));
  EXPECT_EQ(Get(At("CURRENT")), std::string("MANIFEST-000002\n"));
  EXPECT(Sorted(At("")) == Names({"CURRENT"}));
  EXPECT_OK(Rename(At("CURRENT"), At("CURRENT")));
  EXPECT_EQ(Get(At("CURRENT")), std::string("MANIFEST-000002\n"));
}

CONTRACT_TEST(RenameKeepsOpenFiles) {
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  NEED_OK(Create(At("a"), &writer));
  EXPECT_OK(Append(writer.get(), "before "));
  std::unique_ptr<rocksdb::FSRandomAccessFile> reader;
  NEED_OK(OpenRandomAccess(At("a"), &reader));
  EXPECT_OK(Rename(At("a"), At("b")));
  EXPECT_OK(Append(writer.get(), "after"));
  EXPECT_OK(Sync(writer.get()));
  EXPECT_OK(Close(writer.get()));
  EXPECT(!Exists(At("a")));
  EXPECT_EQ(Get(At("b")), std::string("before after"));
  char scratch[20];
  Slice result;
  EXPECT_OK(reader->Read(0, 20, IOOptions(), &result, scratch, nullptr));
  EXPECT_EQ(result.ToString(), std::string("before after"));
}

CONTRACT_TEST(DirectoriesAreRenamed) {
  NEED_OK(MakeDir(At("cp.tmp")));
  NEED_OK(MakeDir(At("cp.tmp/sub")));
  NEED_OK(Put(At("cp.tmp/a"), "1"));
  NEED_OK(Put(At("cp.tmp/sub/b"), "2"));
  EXPECT_OK(Rename(At("cp.tmp"), At("cp")));
  EXPECT(!Exists(At("cp.tmp")));
  EXPECT_EQ(Get(At("cp/a")), std::string("1"));
  EXPECT_EQ(Get(At("cp/sub/b")), std::string("2"));
  // Over an empty directory, but not over a full one, not over a file, and not into itself.
  NEED_OK(MakeDir(At("empty")));
  EXPECT_OK(Rename(At("cp"), At("empty")));
  EXPECT_EQ(Get(At("empty/sub/b")), std::string("2"));
  NEED_OK(MakeDir(At("other")));
  EXPECT(!Rename(At("other"), At("empty")).ok());
  NEED_OK(Put(At("file"), "3"));
  EXPECT(!Rename(At("other"), At("file")).ok());
  EXPECT(!Rename(At("file"), At("other")).ok());
  EXPECT(!Rename(At("empty"), At("empty/sub/inside")).ok());
  EXPECT_EQ(Get(At("empty/sub/b")), std::string("2"));
  EXPECT_EQ(Get(At("file")), std::string("3"));
}

CONTRACT_TEST(HardLinks) {
  const std::string content = Bytes(100000, 21);
  NEED_OK(Put(At("000010.sst"), content));
  NEED_OK(MakeDir(At("cp")));
  EXPECT_EQ(Links(At("000010.sst")), 1u);
  EXPECT_OK(Link(At("000010.sst"), At("cp/000010.sst")));
  EXPECT_EQ(Links(At("000010.sst")), 2u);
  EXPECT_EQ(Links(At("cp/000010.sst")), 2u);
  EXPECT(Same(At("000010.sst"), At("cp/000010.sst")));
  NEED_OK(Put(At("other"), content));
  EXPECT(!Same(At("000010.sst"), At("other")));
  EXPECT(!Link(At("000010.sst"), At("other")).ok());
  EXPECT_OK(Delete(At("000010.sst")));
  EXPECT_EQ(Links(At("cp/000010.sst")), 1u);
  EXPECT(Get(At("cp/000010.sst")) == content);
  // Renaming one name of a file to another of its names changes nothing (POSIX).
  EXPECT_OK(Link(At("cp/000010.sst"), At("again")));
  EXPECT_OK(Rename(At("again"), At("cp/000010.sst")));
  EXPECT(Get(At("cp/000010.sst")) == content);
}

CONTRACT_TEST(LinkOfALogThatIsStillWritten) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Create(At("000003.log"), &file));
  EXPECT_OK(Append(file.get(), "one "));
  NEED_OK(Link(At("000003.log"), At("linked.log")));
  EXPECT_OK(Append(file.get(), "two"));
  EXPECT_EQ(Get(At("linked.log")), std::string("one two"));
  EXPECT_EQ(SizeOf(At("linked.log")), 7u);
}

CONTRACT_TEST(DeletedFilesLiveWhileTheyAreOpen) {
  const std::string content = Bytes(50000, 22);
  NEED_OK(Put(At("000010.sst"), content));
  std::unique_ptr<rocksdb::FSRandomAccessFile> reader;
  NEED_OK(OpenRandomAccess(At("000010.sst"), &reader));
  EXPECT_OK(Delete(At("000010.sst")));
  EXPECT(!Exists(At("000010.sst")));
  std::string scratch(50000, '\0');
  Slice result;
  EXPECT_OK(reader->Read(0, 50000, IOOptions(), &result, scratch.data(), nullptr));
  EXPECT(result == content);
  // DestroyDB deletes LOG and goes on writing it.
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  NEED_OK(Create(At("LOG"), &writer));
  EXPECT_OK(Append(writer.get(), "first"));
  EXPECT_OK(Delete(At("LOG")));
  EXPECT_OK(Append(writer.get(), Bytes(300000, 23)));
  EXPECT_OK(Sync(writer.get()));
  EXPECT_OK(Close(writer.get()));
  EXPECT(!Exists(At("LOG")));
  // The name is free again at once.
  NEED_OK(Put(At("000010.sst"), "another"));
  EXPECT_EQ(Get(At("000010.sst")), std::string("another"));
  EXPECT_OK(reader->Read(0, 50000, IOOptions(), &result, scratch.data(), nullptr));
  EXPECT(result == content);
}

IMBREX_TEST(TrashIsShrunkBeforeItIsDeleted) {
  NEED_OK(Put(At("000010.sst"), Bytes(1 << 20, 24)));
  EXPECT_OK(Rename(At("000010.sst"), At("000010.sst.trash")));
  EXPECT_EQ(Links(At("000010.sst.trash")), 1u);
  EXPECT_OK(Fs()->Truncate(At("000010.sst.trash"), 1 << 19, IOOptions(), nullptr));
  EXPECT_EQ(SizeOf(At("000010.sst.trash")), 1u << 19);
  EXPECT_OK(Delete(At("000010.sst.trash")));
  EXPECT(!Exists(At("000010.sst.trash")));
}

CONTRACT_TEST(Locks) {
  rocksdb::FileLock* lock = nullptr;
  NEED_OK(Fs()->LockFile(At("LOCK"), IOOptions(), &lock, nullptr));
  EXPECT(lock != nullptr);
  rocksdb::FileLock* second = lock;
  const IOStatus refused = Fs()->LockFile(At("LOCK"), IOOptions(), &second, nullptr);
  EXPECT_ERROR(refused, IsIOError);
  // What RocksDB's own tests look for.
  EXPECT_CONTAINS(refused.ToString(), "lock ");
  EXPECT(second == nullptr);
  EXPECT_OK(Fs()->UnlockFile(lock, IOOptions(), nullptr));
  EXPECT_OK(Fs()->LockFile(At("LOCK"), IOOptions(), &lock, nullptr));
  EXPECT_OK(Fs()->UnlockFile(lock, IOOptions(), nullptr));
  EXPECT(!Fs()->LockFile(At("missing/LOCK"), IOOptions(), &lock, nullptr).ok());
  EXPECT(lock == nullptr);
}

CONTRACT_TEST(LongNames) {
  const std::string longest(255, 'n');
  EXPECT_OK(Put(At(longest), "x"));
  EXPECT_EQ(Get(At(longest)), std::string("x"));
  EXPECT(Sorted(At("")) == Names({longest}));
  const std::string too_long(256, 'n');
  std::unique_ptr<rocksdb::FSWritableFile> file;
  EXPECT(!Create(At(too_long), &file).ok());
  EXPECT(!MakeDir(At(too_long)).ok());
  EXPECT(!Rename(At(longest), At(too_long)).ok());
  EXPECT_ERROR(Fs()->FileExists(At(too_long), IOOptions(), nullptr), IsNotFound);
  EXPECT_EQ(Get(At(longest)), std::string("x"));
}

CONTRACT_TEST(OddNames) {
  const Names names = {" leading space", "a=b&c?d", "caf\xc3\xa9", "new\nline", "%41", "-"};
  for (const std::string& name : names) {
    EXPECT_OK(Put(At(name), name));
  }
  for (const std::string& name : names) {
    EXPECT_EQ(Get(At(name)), name);
  }
  EXPECT_EQ(Sorted(At("")).size(), names.size());
}

CONTRACT_TEST(SlashesAndDots) {
  NEED_OK(MakeDir(At("d")));
  NEED_OK(Put(At("d/a"), "x"));
  EXPECT_EQ(Get(At("d//a")), std::string("x"));
  EXPECT_EQ(Get(At("/d///a")), std::string("x"));
  EXPECT_EQ(Get(At("./d/./a")), std::string("x"));
  EXPECT(Sorted(At("d/")) == Names({"a"}));
  EXPECT_OK(Fs()->CreateDirIfMissing(At("d/"), IOOptions(), nullptr));
}

IMBREX_TEST(DotDotIsNeverAName) {
  NEED_OK(MakeDir(At("d")));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  EXPECT(!Create(At("d/.."), &file).ok());
  EXPECT(!MakeDir(At("d/..")).ok());
  EXPECT(!Rename(At("d"), At("..")).ok());
  EXPECT(!Create("/", &file).ok());
  EXPECT(!Create("", &file).ok());
  EXPECT(!Delete("/").ok());
  EXPECT(Exists("/"));
}

CONTRACT_TEST(DeepPaths) {
  std::string path = At("");
  for (int depth = 0; depth < 60; ++depth) {
    path += "/d" + std::to_string(depth);
    NEED_OK(MakeDir(path));
  }
  EXPECT_OK(Put(path + "/leaf", "deep"));
  EXPECT_EQ(Get(path + "/leaf"), std::string("deep"));
}

CONTRACT_TEST(ManyFiles) {
  constexpr int kFiles = 2000;
  for (int i = 0; i < kFiles; ++i) {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    NEED_OK(Create(At(std::to_string(i)), &file));
    EXPECT_OK(Append(file.get(), std::to_string(i)));
    EXPECT_OK(Close(file.get()));
  }
  EXPECT_EQ(Sorted(At("")).size(), static_cast<size_t>(kFiles));
  for (int i = 0; i < kFiles; i += 97) {
    EXPECT_EQ(Get(At(std::to_string(i))), std::to_string(i));
  }
  for (int i = 0; i < kFiles; i += 2) {
    EXPECT_OK(Delete(At(std::to_string(i))));
  }
  EXPECT_EQ(Sorted(At("")).size(), static_cast<size_t>(kFiles / 2));
}

CONTRACT_TEST(ThreadsInOneDirectory) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const std::string mine = At("t" + std::to_string(t));
      for (int i = 0; i < 100; ++i) {
        EXPECT_OK(Put(mine + ".tmp", std::to_string(i)));
        EXPECT_OK(Rename(mine + ".tmp", mine));
        EXPECT_EQ(Get(mine), std::to_string(i));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(Sorted(At("")).size(), 4u);
}

CONTRACT_TEST(ModificationTime) {
  const auto now = static_cast<uint64_t>(time(nullptr));
  NEED_OK(Put(At("a"), "x"));
  uint64_t seconds = 0;
  EXPECT_OK(Fs()->GetFileModificationTime(At("a"), IOOptions(), &seconds, nullptr));
  EXPECT(seconds + 2 >= now && seconds <= now + 60);
}

CONTRACT_TEST(FreeSpaceIsKnown) {
  uint64_t free = 0;
  EXPECT_OK(Fs()->GetFreeSpace(At(""), IOOptions(), &free, nullptr));
  EXPECT(free > (16u << 20));
}

IMBREX_TEST(AbsolutePathsAndTheTestDirectory) {
  std::string path;
  EXPECT_OK(Fs()->GetAbsolutePath(At("x"), IOOptions(), &path, nullptr));
  EXPECT_EQ(path, At("x"));
  EXPECT_OK(Fs()->GetAbsolutePath("x", IOOptions(), &path, nullptr));
  EXPECT_EQ(path, std::string("/x"));
  std::string once;
  std::string again;
  EXPECT_OK(Fs()->GetTestDirectory(IOOptions(), &once, nullptr));
  EXPECT_OK(Fs()->GetTestDirectory(IOOptions(), &again, nullptr));
  EXPECT_EQ(once, again);
  EXPECT(Exists(once));
}

CONTRACT_TEST(LoggerWritesLines) {
  std::shared_ptr<rocksdb::Logger> logger;
  NEED_OK(Fs()->NewLogger(At("LOG"), IOOptions(), &logger, nullptr));
  logger->SetInfoLogLevel(rocksdb::INFO_LEVEL);
  for (int i = 0; i < 100; ++i) {
    rocksdb::Info(logger.get(), "line %d", i);
  }
  const std::string large(5000, 'L');
  rocksdb::Info(logger.get(), "%s|", large.c_str());
  rocksdb::Info(logger.get(), "ends itself\n");
  logger->Flush();
  const std::string text = Get(At("LOG"));
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), 102u);
  EXPECT(text.find(" line 0\n") != std::string::npos);
  EXPECT(text.find(" line 99\n") != std::string::npos);
  EXPECT(text.find(large + "|\n") != std::string::npos);
  EXPECT(text.find("ends itself\n") != std::string::npos);
  EXPECT_EQ(logger->GetLogFileSize(), text.size());
  EXPECT_OK(Delete(At("LOG")));
  rocksdb::Info(logger.get(), "nobody reads this");
  EXPECT_OK(logger->Close());
}

IMBREX_TEST(LinesOfTheLogAreThereAtOnce) {
  std::shared_ptr<rocksdb::Logger> logger;
  NEED_OK(Fs()->NewLogger(At("LOG"), IOOptions(), &logger, nullptr));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        rocksdb::Info(logger.get(), "%s", std::string(i, 'x').c_str());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::string text = Get(At("LOG"));
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), 800u);
}

IMBREX_TEST(OneDriveIsOneFileSystem) {
  std::shared_ptr<rocksdb::FileSystem> other;
  NEED_OK(rocksdb::FileSystem::CreateFromString(rocksdb::ConfigOptions(), Uri(), &other));
  EXPECT_EQ(other->GetId(), Uri());
  NEED_OK(Put(At("a"), "shared"));
  uint64_t size = 0;
  EXPECT_OK(other->GetFileSize(At("a"), IOOptions(), &size, nullptr));
  EXPECT_EQ(size, 6u);
  rocksdb::FileLock* lock = nullptr;
  rocksdb::FileLock* second = nullptr;
  EXPECT_OK(Fs()->LockFile(At("LOCK"), IOOptions(), &lock, nullptr));
  EXPECT(!other->LockFile(At("LOCK"), IOOptions(), &second, nullptr).ok());
  EXPECT_OK(Fs()->UnlockFile(lock, IOOptions(), nullptr));
  // The RocksDB object goes, its files stay usable.
  std::unique_ptr<rocksdb::FSWritableFile> file;
  EXPECT_OK(other->NewWritableFile(At("b"), FileOptions(), &file, nullptr));
  other.reset();
  EXPECT_OK(Append(file.get(), "still here"));
  EXPECT_OK(Close(file.get()));
  EXPECT_EQ(Get(At("b")), std::string("still here"));
}

IMBREX_TEST(AnOpenHandleBecomesAFileSystem) {
  EXPECT_EQ(imbrex::AbiMismatch(), std::string());
  imbrex_fs* handle = nullptr;
  imbrex_error* const error = imbrex_fs_open(Uri().c_str(), &handle);
  EXPECT(error == nullptr);
  imbrex_error_free(error);
  if (handle == nullptr) {
    return;
  }
  std::shared_ptr<rocksdb::FileSystem> fs = imbrex::NewFileSystem(handle);
  rocksdb::Options options;
  EXPECT_OK(imbrex::AdviseOptions(handle, &options));
  imbrex_fs_close(handle);
  EXPECT(fs != nullptr);
  NEED_OK(Put(At("a"), "shared"));
  EXPECT_OK(fs->FileExists(At("a"), IOOptions(), nullptr));
  EXPECT(options.write_buffer_size >= (1u << 20));
  EXPECT(options.target_file_size_base >= (1u << 20));
  EXPECT_EQ(options.compaction_readahead_size, 2u << 20);
  EXPECT_EQ(options.max_background_jobs, 4);
  EXPECT(imbrex::NewFileSystem(nullptr) == nullptr);
}

IMBREX_TEST(AForkedChildIsRefused) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Create(At("a"), &file));
  EXPECT_OK(Append(file.get(), "parent "));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    // Every bit names an operation that was not refused.
    int wrong = 0;
    wrong |= Append(file.get(), "child").ok() ? 1 : 0;
    wrong |= Sync(file.get()).ok() ? 2 : 0;
    std::unique_ptr<rocksdb::FSWritableFile> other;
    wrong |= Create(At("b"), &other).ok() ? 4 : 0;
    uint64_t size = 0;
    wrong |= Fs()->GetFileSize(At("a"), IOOptions(), &size, nullptr).ok() ? 8 : 0;
    // Destroying a handle must not touch the drive either.
    file.reset();
    _exit(wrong);
  }
  int status = 0;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_OK(Append(file.get(), "goes on"));
  EXPECT_OK(Sync(file.get()));
  EXPECT_OK(Close(file.get()));
  EXPECT_EQ(Get(At("a")), std::string("parent goes on"));
  EXPECT(!Exists(At("b")));
}

IMBREX_TEST(NothingIsFreedTwice) {
  imbrex_error_free(nullptr);
  imbrex_fs_close(nullptr);
  imbrex_list_free(nullptr);
  imbrex_lock_free(nullptr);
  imbrex_writer_free(nullptr);
  imbrex_reader_free(nullptr);
  imbrex_random_free(nullptr);
  EXPECT_EQ(static_cast<int>(imbrex_error_code(nullptr)), static_cast<int>(IMBREX_OK));
  EXPECT_EQ(std::string(imbrex_error_message(nullptr)), std::string());
  EXPECT_EQ(imbrex_abi_version(), static_cast<uint32_t>(IMBREX_ABI_VERSION));
}
