// Contract of files: writing, reading, sizes, the log for people.

#include <atomic>
#include <cstdarg>
#include <cstring>
#include <thread>

#include "contract.h"
#include "imbrex_leveldb.h"

using namespace contract;
using leveldb::Slice;

namespace {

void LogTo(leveldb::Logger* logger, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  logger->Logv(format, arguments);
  va_end(arguments);
}

}  // namespace

CONTRACT_TEST(WhatIsWrittenIsRead) {
  std::unique_ptr<leveldb::WritableFile> file;
  NEED_OK(Create(At("000005.ldb"), &file));
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string piece = Bytes(1 + 37u * static_cast<size_t>(i), static_cast<uint64_t>(i));
    EXPECT_OK(file->Append(piece));
    expected += piece;
  }
  EXPECT_OK(file->Append(Slice()));
  EXPECT_OK(file->Flush());
  EXPECT_OK(file->Sync());
  EXPECT_OK(file->Close());
  EXPECT_EQ(SizeOf(At("000005.ldb")), expected.size());
  EXPECT(Get(TestEnv(), At("000005.ldb")) == expected);
}

CONTRACT_TEST(AFlushedLogIsReadWhileItIsWritten) {
  std::unique_ptr<leveldb::WritableFile> file;
  NEED_OK(Create(At("000003.log"), &file));
  std::unique_ptr<leveldb::SequentialFile> reader;
  NEED_OK(OpenSequential(At("000003.log"), &reader));
  std::string scratch(1 << 16, '\0');
  for (int i = 0; i < 50; ++i) {
    const std::string piece = Bytes(7 + 211u * static_cast<size_t>(i), static_cast<uint64_t>(i));
    EXPECT_OK(file->Append(piece.substr(0, 7)));
    EXPECT_OK(file->Append(piece.substr(7)));
    EXPECT_OK(file->Flush());
    Slice read;
    EXPECT_OK(reader->Read(scratch.size(), &read, scratch.data()));
    EXPECT(read == piece);
    // At the end: nothing, and it goes on from there.
    EXPECT_OK(reader->Read(scratch.size(), &read, scratch.data()));
    EXPECT_EQ(read.size(), 0u);
  }
}

CONTRACT_TEST(SequentialReadsAreShortOnlyAtTheEnd) {
  const std::string content = Bytes(3 << 20, 7);
  NEED_OK(Put(TestEnv(), At("000005.ldb"), content));
  std::unique_ptr<leveldb::SequentialFile> file;
  NEED_OK(OpenSequential(At("000005.ldb"), &file));
  std::string scratch(100003, '\0');
  size_t at = 0;
  while (at < content.size()) {
    Slice read;
    NEED_OK(file->Read(scratch.size(), &read, scratch.data()));
    const size_t want = std::min(scratch.size(), content.size() - at);
    if (read.size() != want || memcmp(read.data(), content.data() + at, want) != 0) {
      Fail(__FILE__, __LINE__, "at " + Show(at) + ": " + Show(read.size()) + " bytes, or the wrong ones");
      return;
    }
    at += want;
  }
}

CONTRACT_TEST(SkippingStopsAtTheEnd) {
  NEED_OK(Put(TestEnv(), At("f"), "0123456789"));
  std::unique_ptr<leveldb::SequentialFile> file;
  NEED_OK(OpenSequential(At("f"), &file));
  char scratch[10];
  Slice read;
  EXPECT_OK(file->Skip(4));
  EXPECT_OK(file->Read(3, &read, scratch));
  EXPECT_EQ(read.ToString(), std::string("456"));
  EXPECT_OK(file->Skip(0));
  EXPECT_OK(file->Read(1, &read, scratch));
  EXPECT_EQ(read.ToString(), std::string("7"));
  EXPECT_OK(file->Skip(1000));
  EXPECT_OK(file->Read(3, &read, scratch));
  EXPECT_EQ(read.ToString(), std::string());
}

CONTRACT_TEST(ReadsAnywhereFromManyThreads) {
  const std::string content = Bytes(1 << 20, 3);
  NEED_OK(Put(TestEnv(), At("000005.ldb"), content));
  std::unique_ptr<leveldb::RandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("000005.ldb"), &file));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::string scratch(9000, '\0');
      for (uint64_t i = 0; i < 500; ++i) {
        const uint64_t offset = (i * 7919 + t * 104729) % (content.size() - scratch.size());
        Slice read;
        const bool ok = file->Read(offset, scratch.size(), &read, scratch.data()).ok();
        wrong += !ok || read != Slice(content.data() + offset, scratch.size());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0);
}

// LevelDB's own fails such a read of a mapped file, and reads short in others.
IMBREX_TEST(ReadsBeyondTheEndAreShort) {
  NEED_OK(Put(TestEnv(), At("000005.ldb"), "0123456789"));
  std::unique_ptr<leveldb::RandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("000005.ldb"), &file));
  char scratch[100];
  Slice read;
  EXPECT_OK(file->Read(7, 100, &read, scratch));
  EXPECT_EQ(read.ToString(), std::string("789"));
  EXPECT_OK(file->Read(10, 100, &read, scratch));
  EXPECT_EQ(read.size(), 0u);
  EXPECT_OK(file->Read(uint64_t{1} << 62, 100, &read, scratch));
  EXPECT_EQ(read.size(), 0u);
}

CONTRACT_TEST(ANewFileReplacesTheOldOne) {
  NEED_OK(Put(TestEnv(), At("f"), "old and long"));
  std::unique_ptr<leveldb::WritableFile> file;
  NEED_OK(Create(At("f"), &file));
  EXPECT_EQ(SizeOf(At("f")), 0u);
  EXPECT_OK(file->Append("new"));
  EXPECT_OK(file->Close());
  EXPECT_EQ(Get(TestEnv(), At("f")), std::string("new"));
}

CONTRACT_TEST(AppendableFilesGoOnAtTheEnd) {
  for (const char* const name : {"000003.log", "MANIFEST-000002", "CURRENT", "000004.ldb"}) {
    std::unique_ptr<leveldb::WritableFile> file;
    NEED_OK(Reopen(At(name), &file));
    EXPECT_OK(file->Append("one,"));
    EXPECT_OK(file->Close());
    if (std::string(name) == "000004.ldb") {
      continue;
    }
    NEED_OK(Reopen(At(name), &file));
    EXPECT_OK(file->Append("two,"));
    EXPECT_OK(file->Sync());
    EXPECT_OK(file->Append("three"));
    EXPECT_OK(file->Close());
    EXPECT_EQ(Get(TestEnv(), At(name)), std::string("one,two,three"));
  }
}

// LevelDB destroys its logs without closing them.
CONTRACT_TEST(DestroyingAFileClosesIt) {
  const std::string content = Bytes(200000, 5);
  {
    std::unique_ptr<leveldb::WritableFile> file;
    NEED_OK(Create(At("000003.log"), &file));
    EXPECT_OK(file->Append(content));
  }
  EXPECT(Get(TestEnv(), At("000003.log")) == content);
}

CONTRACT_TEST(AFileLivesOnWhileItIsOpen) {
  const std::string content = Bytes(300000, 6);
  NEED_OK(Put(TestEnv(), At("000005.ldb"), content));
  std::unique_ptr<leveldb::RandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("000005.ldb"), &file));
  EXPECT_OK(TestEnv()->RemoveFile(At("000005.ldb")));
  EXPECT(!TestEnv()->FileExists(At("000005.ldb")));
  std::string scratch(content.size(), '\0');
  Slice read;
  EXPECT_OK(file->Read(0, scratch.size(), &read, scratch.data()));
  EXPECT(read == content);
}

// A block may come as a pointer instead of in the buffer; LevelDB uses it as long as the file is open.
CONTRACT_TEST(BlocksStayAsLongAsTheirFile) {
  const std::string content = Bytes(3000000, 7);
  NEED_OK(Put(TestEnv(), At("000005.ldb"), content));
  std::unique_ptr<leveldb::RandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("000005.ldb"), &file));
  std::vector<std::pair<uint64_t, Slice>> blocks;
  std::vector<std::string> buffers(400, std::string(4140, '\0'));
  size_t pointers = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const uint64_t offset = i * 7919u * 4140u % (content.size() - 4140);
    Slice read;
    NEED_OK(file->Read(offset, 4140, &read, buffers[i].data()));
    pointers += read.data() != buffers[i].data();
    blocks.emplace_back(offset, read);
  }
  // The drive's cache has what was just written; LevelDB's own maps its first thousand files.
  EXPECT(pointers > buffers.size() * 9 / 10);
  EXPECT_OK(TestEnv()->RemoveFile(At("000005.ldb")));
  // What would take the memory, were it free.
  NEED_OK(Put(TestEnv(), At("000006.ldb"), Bytes(3000000, 8)));
  EXPECT(Get(TestEnv(), At("000006.ldb")) == Bytes(3000000, 8));
  for (const auto& [offset, block] : blocks) {
    EXPECT(block == Slice(content.data() + offset, 4140));
  }
}

IMBREX_TEST(WritingToAClosedFileIsAnError) {
  std::unique_ptr<leveldb::WritableFile> file;
  NEED_OK(Create(At("000003.log"), &file));
  EXPECT_OK(file->Close());
  EXPECT_OK(file->Close());
  EXPECT_ERROR(file->Append("x"), IsInvalidArgument);
}

IMBREX_TEST(AFullDriveIsAnErrorAndDeletingHelps) {
  std::string error;
  const std::unique_ptr<leveldb::Env> env(imbrex::NewLevelDbEnv("imbrex://mem:?profile=tiny&size=32M&cache=4M&survivor-size=4M", &error));
  if (env == nullptr) {
    Fail(__FILE__, __LINE__, error);
    return;
  }
  const std::string content = Bytes(900000, 8);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> names;
    leveldb::Status status;
    while (status.ok() && names.size() < 100) {
      names.push_back("/" + std::to_string(names.size()) + ".ldb");
      status = Put(env.get(), names.back(), content);
    }
    EXPECT_ERROR(status, IsIOError);
    EXPECT_CONTAINS(status.ToString(), "no space");
    EXPECT(names.size() > 10 && names.size() < 100);
    for (const std::string& name : names) {
      EXPECT(env->RemoveFile(name).ok() || !env->FileExists(name));
    }
  }
}

CONTRACT_TEST(LoggerWritesLines) {
  leveldb::Logger* raw = nullptr;
  NEED_OK(TestEnv()->NewLogger(At("LOG"), &raw));
  {
    const std::unique_ptr<leveldb::Logger> logger(raw);
    LogTo(logger.get(), "the number %d", 42);
    LogTo(logger.get(), "with a line break\n");
    LogTo(logger.get(), "%s", std::string(5000, 'x').c_str());
  }
  const std::string text = Get(TestEnv(), At("LOG"));
  EXPECT_CONTAINS(text, "the number 42\n");
  EXPECT_CONTAINS(text, "with a line break\n2");
  EXPECT_CONTAINS(text, std::string(5000, 'x') + "\n");
}
