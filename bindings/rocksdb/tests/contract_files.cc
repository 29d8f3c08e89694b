// Contract of the files: writing, reading, both at once.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "contract.h"

using namespace contract;
using rocksdb::FileOptions;
using rocksdb::FSReadRequest;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

uint64_t SizeOf(rocksdb::FSWritableFile* file) { return file->GetFileSize(IOOptions(), nullptr); }

std::string ReadAt(const rocksdb::FSRandomAccessFile& file, uint64_t offset, size_t n) {
  std::string scratch(n + 1, '\0');
  Slice result;
  const IOStatus status = file.Read(offset, n, IOOptions(), &result, scratch.data(), nullptr);
  return status.ok() ? result.ToString() : "error: " + status.ToString();
}

std::string ReadNext(rocksdb::FSSequentialFile* file, size_t n) {
  std::string scratch(n + 1, '\0');
  Slice result;
  const IOStatus status = file->Read(n, IOOptions(), &result, scratch.data(), nullptr);
  return status.ok() ? result.ToString() : "error: " + status.ToString();
}

}  // namespace

CONTRACT_TEST(SizeIsExactBeforeAnySync) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Create(At("a"), &file));
  EXPECT_EQ(contract::SizeOf(At("a")), 0u);
  uint64_t expected = 0;
  for (const size_t n : {1u, 443u, 4095u, 4096u, 4097u, 70000u, 0u, 1u}) {
    EXPECT_OK(Append(file.get(), Bytes(n, n)));
    EXPECT_OK(file->Flush(IOOptions(), nullptr));
    expected += n;
    EXPECT_EQ(SizeOf(file.get()), expected);
    EXPECT_EQ(contract::SizeOf(At("a")), expected);
  }
  EXPECT_OK(Sync(file.get()));
  EXPECT_EQ(contract::SizeOf(At("a")), expected);
  EXPECT_OK(Append(file.get(), "after a sync"));
  EXPECT_OK(file->Fsync(IOOptions(), nullptr));
  EXPECT_OK(Sync(file.get()));
  EXPECT_OK(Close(file.get()));
  EXPECT_EQ(contract::SizeOf(At("a")), expected + 12);
}

CONTRACT_TEST(ContentSurvivesOddSizesAndSyncs) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Create(At("a"), &file));
  std::string expected;
  for (uint64_t i = 0; i < 300; ++i) {
    const std::string piece = Bytes(1 + (i * 7919) % 9001, i);
    expected += piece;
    EXPECT_OK(Append(file.get(), piece));
    if (i % 17 == 0) {
      EXPECT_OK(Sync(file.get()));
    }
    if (i % 50 == 0) {
      EXPECT(Get(At("a")) == expected);
    }
  }
  EXPECT(Get(At("a")) == expected);
  EXPECT_OK(Close(file.get()));
  EXPECT(Get(At("a")) == expected);
  std::unique_ptr<rocksdb::FSRandomAccessFile> reader;
  NEED_OK(OpenRandomAccess(At("a"), &reader));
  for (uint64_t i = 0; i < 500; ++i) {
    const uint64_t offset = (i * 104729) % expected.size();
    const size_t n = 1 + (i * 31) % 20000;
    EXPECT(ReadAt(*reader, offset, n) == expected.substr(offset, n));
  }
}

CONTRACT_TEST(LargeFile) {
  constexpr uint64_t kPiece = 1 << 20;
  constexpr uint64_t kPieces = 24;
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Create(At("000007.sst"), &file));
  file->SetPreallocationBlockSize(8 << 20);
  for (uint64_t i = 0; i < kPieces; ++i) {
    file->PrepareWrite(i * kPiece, kPiece, IOOptions(), nullptr);
    NEED_OK(Append(file.get(), Bytes(kPiece, i)));
  }
  EXPECT_EQ(contract::SizeOf(At("000007.sst")), kPiece * kPieces);
  EXPECT_OK(Sync(file.get()));
  EXPECT_OK(Close(file.get()));
  EXPECT_EQ(contract::SizeOf(At("000007.sst")), kPiece * kPieces);
  std::unique_ptr<rocksdb::FSRandomAccessFile> reader;
  NEED_OK(OpenRandomAccess(At("000007.sst"), &reader));
  for (uint64_t i = 0; i < kPieces; ++i) {
    EXPECT(ReadAt(*reader, i * kPiece, kPiece) == Bytes(kPiece, i));
  }
  const std::string edge = Bytes(kPiece, 3).substr(kPiece - 100) + Bytes(kPiece, 4).substr(0, 100);
  EXPECT(ReadAt(*reader, 4 * kPiece - 100, 200) == edge);
}

CONTRACT_TEST(CreateReplacesAnExistingFile) {
  NEED_OK(Put(At("a"), "the old content"));
  std::unique_ptr<rocksdb::FSRandomAccessFile> old;
  NEED_OK(OpenRandomAccess(At("a"), &old));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Create(At("a"), &file));
  EXPECT_EQ(contract::SizeOf(At("a")), 0u);
  EXPECT_EQ(Get(At("a")), std::string());
  EXPECT_OK(Append(file.get(), "new"));
  EXPECT_EQ(Get(At("a")), std::string("new"));
  EXPECT_OK(Close(file.get()));
  EXPECT_EQ(Get(At("a")), std::string("new"));
}

IMBREX_TEST(ReplacedFileStaysReadableWhereItIsOpen) {
  NEED_OK(Put(At("a"), "the old content"));
  std::unique_ptr<rocksdb::FSRandomAccessFile> old;
  NEED_OK(OpenRandomAccess(At("a"), &old));
  NEED_OK(Put(At("a"), "new"));
  EXPECT_EQ(ReadAt(*old, 0, 100), std::string("the old content"));
  EXPECT_EQ(Get(At("a")), std::string("new"));
}

CONTRACT_TEST(EmptyFile) {
  NEED_OK(Put(At("empty"), ""));
  EXPECT(Exists(At("empty")));
  EXPECT_EQ(contract::SizeOf(At("empty")), 0u);
  EXPECT_EQ(Get(At("empty")), std::string());
  std::unique_ptr<rocksdb::FSRandomAccessFile> reader;
  NEED_OK(OpenRandomAccess(At("empty"), &reader));
  EXPECT_EQ(ReadAt(*reader, 0, 10), std::string());
  EXPECT_EQ(ReadAt(*reader, 1000, 10), std::string());
}

CONTRACT_TEST(SequentialReadIsShortOnlyAtTheEnd) {
  const std::string content = Bytes(1000000, 5);
  NEED_OK(Put(At("a"), content));
  for (const size_t n : {1u, 100u, 4096u, 32768u, 262144u, 999999u, 1000000u, 1000001u, 5000000u}) {
    std::unique_ptr<rocksdb::FSSequentialFile> file;
    NEED_OK(OpenSequential(At("a"), &file));
    uint64_t position = 0;
    for (int reads = 0; reads < 50 && position < content.size(); ++reads) {
      const std::string got = ReadNext(file.get(), n);
      EXPECT(got == content.substr(position, n));
      position += n;
    }
  }
}

CONTRACT_TEST(SequentialSkip) {
  NEED_OK(Put(At("a"), "0123456789"));
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  NEED_OK(OpenSequential(At("a"), &file));
  EXPECT_OK(file->Skip(3));
  EXPECT_EQ(ReadNext(file.get(), 4), std::string("3456"));
  EXPECT_OK(file->Skip(1));
  EXPECT_EQ(ReadNext(file.get(), 100), std::string("89"));
  EXPECT_EQ(ReadNext(file.get(), 100), std::string());
  EXPECT_OK(file->Skip(0));
}

#if ROCKSDB_MAJOR >= 11
IMBREX_TEST(AnOpenFileKnowsItsSize) {
  NEED_OK(Put(At("f"), Bytes(5000, 1)));
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("f"), &file));
  uint64_t size = 0;
  EXPECT_OK(file->GetFileSize(&size));
  EXPECT_EQ(size, uint64_t{5000});
}
#endif

IMBREX_TEST(SkipStopsAtTheEndOfTheFile) {
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  NEED_OK(Create(At("a"), &writer));
  EXPECT_OK(Append(writer.get(), "0123456789"));
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  NEED_OK(OpenSequential(At("a"), &file));
  EXPECT_OK(file->Skip(1000));
  EXPECT_OK(Append(writer.get(), "abc"));
  EXPECT_EQ(ReadNext(file.get(), 100), std::string("abc"));
}

CONTRACT_TEST(RandomReadPastTheEnd) {
  NEED_OK(Put(At("a"), "0123456789"));
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("a"), &file));
  EXPECT_EQ(ReadAt(*file, 0, 10), std::string("0123456789"));
  EXPECT_EQ(ReadAt(*file, 8, 10), std::string("89"));
  EXPECT_EQ(ReadAt(*file, 10, 10), std::string());
  EXPECT_EQ(ReadAt(*file, uint64_t{1} << 40, 10), std::string());
}

IMBREX_TEST(ReadOfNothing) {
  NEED_OK(Put(At("a"), "0123456789"));
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("a"), &file));
  EXPECT_EQ(ReadAt(*file, 5, 0), std::string());
  EXPECT_EQ(ReadAt(*file, 10, 0), std::string());
}

CONTRACT_TEST(LiveFileIsReadWhileItIsWritten) {
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  NEED_OK(Create(At("000003.log"), &writer));
  std::unique_ptr<rocksdb::FSSequentialFile> reader;
  NEED_OK(OpenSequential(At("000003.log"), &reader));
  EXPECT_EQ(ReadNext(reader.get(), 100), std::string());
  for (uint64_t i = 0; i < 200; ++i) {
    const std::string piece = Bytes(1 + (i * 911) % 6000, i);
    EXPECT_OK(Append(writer.get(), piece));
    EXPECT(ReadNext(reader.get(), 10000) == piece);
    EXPECT_EQ(ReadNext(reader.get(), 10), std::string());
    if (i % 13 == 0) {
      EXPECT_OK(Sync(writer.get()));
    }
  }
  EXPECT_OK(Close(writer.get()));
  EXPECT_EQ(ReadNext(reader.get(), 10), std::string());
}

CONTRACT_TEST(WriterSyncerAndReadersAtOnce) {
  const std::string content = Bytes(4 << 20, 11);
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  NEED_OK(Create(At("000003.log"), &writer));
  EXPECT(writer->IsSyncThreadSafe());
  std::atomic<bool> done{false};
  std::thread syncer([&] {
    while (!done) {
      EXPECT_OK(Sync(writer.get()));
    }
  });
  const auto follow = [&] {
    std::unique_ptr<rocksdb::FSSequentialFile> reader;
    NEED_OK(OpenSequential(At("000003.log"), &reader));
    std::string got;
    for (;;) {
      // Read before looking at `done`, or the last bytes could be missed.
      const bool last = done;
      const std::string piece = ReadNext(reader.get(), 10000);
      got += piece;
      if (last && piece.empty()) {
        break;
      }
    }
    EXPECT(got == content);
  };
  std::thread first(follow);
  std::thread second(follow);
  for (size_t at = 0; at < content.size(); at += 1777) {
    EXPECT_OK(Append(writer.get(), content.substr(at, 1777)));
  }
  done = true;
  syncer.join();
  first.join();
  second.join();
  EXPECT_OK(Close(writer.get()));
  EXPECT(Get(At("000003.log")) == content);
}

CONTRACT_TEST(ManyThreadsReadOneFile) {
  const std::string content = Bytes(2 << 20, 12);
  NEED_OK(Put(At("000004.sst"), content));
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("000004.sst"), &file));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 500; ++i) {
        const uint64_t offset = ((i * 7 + t) * 15485863) % content.size();
        EXPECT(ReadAt(*file, offset, 4096) == content.substr(offset, 4096));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

CONTRACT_TEST(MultiReadAndReadAsync) {
  const std::string content = Bytes(100000, 13);
  NEED_OK(Put(At("a"), content));
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("a"), &file));
  const uint64_t offsets[] = {50000, 0, 99990, 200000};
  char scratch[4][100];
  FSReadRequest requests[4];
  for (int i = 0; i < 4; ++i) {
    requests[i].offset = offsets[i];
    requests[i].len = 100;
    requests[i].scratch = scratch[i];
  }
  EXPECT_OK(file->MultiRead(requests, 4, IOOptions(), nullptr));
  for (FSReadRequest& request : requests) {
    EXPECT_OK(request.status);
    EXPECT_EQ(request.result.ToString(), request.offset < content.size() ? content.substr(request.offset, 100) : std::string());
  }
}

IMBREX_TEST(ReadAsyncCallsBack) {
  const std::string content = Bytes(100000, 13);
  NEED_OK(Put(At("a"), content));
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("a"), &file));
  char scratch[100];
  FSReadRequest request;
  request.offset = 777;
  request.len = sizeof(scratch);
  request.scratch = scratch;
  int calls = 0;
  void* handle = nullptr;
  rocksdb::IOHandleDeleter deleter;
  EXPECT_OK(file->ReadAsync(
      request, IOOptions(),
      [&](const FSReadRequest& done, void* argument) {
        EXPECT(argument == &calls);
        EXPECT_OK(done.status);
        EXPECT_EQ(done.result.ToString(), content.substr(777, 100));
        ++calls;
      },
      &calls, &handle, &deleter, nullptr));
  std::vector<void*> handles;
  if (handle != nullptr) {
    handles.push_back(handle);
  }
  EXPECT_OK(Fs()->Poll(handles, handles.size()));
  EXPECT_EQ(calls, 1);
  EXPECT_OK(Fs()->AbortIO(handles));
  if (handle != nullptr) {
    deleter(handle);
  }
}

IMBREX_TEST(HintsAndReadaheadChangeNoBytes) {
  const std::string content = Bytes(1 << 20, 14);
  NEED_OK(Put(At("000005.sst"), content));
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("000005.sst"), &file));
  for (const auto hint : {rocksdb::FSRandomAccessFile::kRandom, rocksdb::FSRandomAccessFile::kSequential,
                          rocksdb::FSRandomAccessFile::kNormal, rocksdb::FSRandomAccessFile::kWillNeed,
                          rocksdb::FSRandomAccessFile::kWontNeed}) {
    file->Hint(hint);
    EXPECT_OK(file->Prefetch(100000, 200000, IOOptions(), nullptr));
    EXPECT_OK(file->Prefetch(content.size() - 10, 1 << 20, IOOptions(), nullptr));
    EXPECT_OK(file->Prefetch(content.size() + 10, 1 << 20, IOOptions(), nullptr));
    EXPECT_OK(file->InvalidateCache(0, 0));
    for (uint64_t at = 0; at + 4096 <= content.size(); at += 4096) {
      EXPECT(ReadAt(*file, at, 4096) == content.substr(at, 4096));
    }
  }
  EXPECT(!file->use_direct_io());
}

IMBREX_TEST(UniqueIdsDiffer) {
  std::set<std::string> ids;
  for (int i = 0; i < 20; ++i) {
    const std::string path = At(std::to_string(i));
    NEED_OK(Put(path, "x"));
    std::string once(64, '\0');
    std::string again = once;
    std::unique_ptr<rocksdb::FSRandomAccessFile> file;
    NEED_OK(OpenRandomAccess(path, &file));
    once.resize(file->GetUniqueId(once.data(), once.size()));
    NEED_OK(OpenRandomAccess(path, &file));
    again.resize(file->GetUniqueId(again.data(), again.size()));
    EXPECT(!once.empty());
    EXPECT(once == again);
    EXPECT(ids.insert(once).second);
    char small[1];
    EXPECT_EQ(file->GetUniqueId(small, 0), 0u);
  }
}

IMBREX_TEST(UniqueIdsAreNoPrefixesAndNoVarints) {
  NEED_OK(Put(At("a"), "x"));
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  NEED_OK(OpenRandomAccess(At("a"), &file));
  char id[64];
  const size_t size = file->GetUniqueId(id, sizeof(id));
  // All have one length, and the first byte ends a varint.
  EXPECT_EQ(size, 9u);
  EXPECT_EQ(id[0] & 0x80, 0);
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  NEED_OK(Reopen(At("a"), &writer));
  char other[64];
  EXPECT_EQ(writer->GetUniqueId(other, sizeof(other)), size);
  EXPECT(memcmp(id, other, size) == 0);
}

CONTRACT_TEST(ReopenAppends) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  // As RocksDB does with the last WAL when it opens a database: a no-op.
  const std::string content = Bytes(5000, 15);
  NEED_OK(Put(At("000009.log"), content));
  NEED_OK(Reopen(At("000009.log"), &file));
  EXPECT_OK(file->Truncate(content.size(), IOOptions(), nullptr));
  EXPECT_OK(Close(file.get()));
  EXPECT(Get(At("000009.log")) == content);
  // And going on where it ended.
  NEED_OK(Reopen(At("000009.log"), &file));
  EXPECT_OK(Append(file.get(), "more"));
  EXPECT_OK(Sync(file.get()));
  EXPECT_OK(Close(file.get()));
  EXPECT(Get(At("000009.log")) == content + "more");
  // A missing file is created.
  NEED_OK(Reopen(At("missing"), &file));
  EXPECT_OK(Append(file.get(), "now here"));
  EXPECT_OK(Close(file.get()));
  EXPECT_EQ(Get(At("missing")), std::string("now here"));
}

IMBREX_TEST(ReopenedWriterKnowsTheSize) {
  NEED_OK(Put(At("a"), "12345"));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Reopen(At("a"), &file));
  EXPECT_EQ(SizeOf(file.get()), 5u);
  EXPECT_OK(Append(file.get(), "67"));
  EXPECT_EQ(SizeOf(file.get()), 7u);
}

CONTRACT_TEST(ReuseGivesAWritableFileUnderTheNewName) {
  NEED_OK(Put(At("000001.log"), "old records"));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Fs()->ReuseWritableFile(At("000002.log"), At("000001.log"), FileOptions(), &file, nullptr));
  EXPECT(!Exists(At("000001.log")));
  EXPECT(Exists(At("000002.log")));
  EXPECT_OK(Append(file.get(), "new"));
  EXPECT_OK(Close(file.get()));
  EXPECT_EQ(Get(At("000002.log")).substr(0, 3), std::string("new"));
  EXPECT(!Fs()->ReuseWritableFile(At("000004.log"), At("000003.log"), FileOptions(), &file, nullptr).ok());
  EXPECT(file == nullptr);
}

IMBREX_TEST(TruncateShrinks) {
  const std::string content = Bytes(100000, 16);
  NEED_OK(Put(At("a"), content));
  EXPECT_OK(Fs()->Truncate(At("a"), 100000, IOOptions(), nullptr));
  EXPECT(Get(At("a")) == content);
  EXPECT_OK(Fs()->Truncate(At("a"), 5001, IOOptions(), nullptr));
  EXPECT_EQ(contract::SizeOf(At("a")), 5001u);
  EXPECT(Get(At("a")) == content.substr(0, 5001));
  EXPECT_OK(Fs()->Truncate(At("a"), 0, IOOptions(), nullptr));
  EXPECT_EQ(Get(At("a")), std::string());
  EXPECT_ERROR(Fs()->Truncate(At("missing"), 0, IOOptions(), nullptr), IsIOError);
  // Through a writer, as WritableFileWriter does before it closes.
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Create(At("b"), &file));
  EXPECT_OK(Append(file.get(), "0123456789"));
  EXPECT_OK(file->Truncate(4, IOOptions(), nullptr));
  EXPECT_OK(Close(file.get()));
  EXPECT_EQ(Get(At("b")), std::string("0123"));
}

CONTRACT_TEST(EightBytesInsideATableAreOverwritten) {
  std::string content = Bytes(3 << 20, 17);
  NEED_OK(Put(At("000011.sst"), content));
  const uint64_t offsets[] = {0, 4092, 1234567, content.size() - 8};
  for (const uint64_t offset : offsets) {
    std::unique_ptr<rocksdb::FSRandomRWFile> file;
    NEED_OK(Fs()->NewRandomRWFile(At("000011.sst"), FileOptions(), &file, nullptr));
    EXPECT_OK(file->Write(offset, "GLOBALSQ", IOOptions(), nullptr));
    content.replace(offset, 8, "GLOBALSQ");
    char scratch[8];
    Slice result;
    EXPECT_OK(file->Read(offset, 8, IOOptions(), &result, scratch, nullptr));
    EXPECT_EQ(result.ToString(), std::string("GLOBALSQ"));
    EXPECT_OK(file->Flush(IOOptions(), nullptr));
    EXPECT_OK(file->Sync(IOOptions(), nullptr));
    EXPECT_OK(file->Fsync(IOOptions(), nullptr));
    EXPECT_OK(file->Close(IOOptions(), nullptr));
    EXPECT(Get(At("000011.sst")) == content);
  }
  EXPECT_EQ(contract::SizeOf(At("000011.sst")), content.size());
}

IMBREX_TEST(RandomFileIsCreatedAndGrows) {
  std::unique_ptr<rocksdb::FSRandomRWFile> file;
  NEED_OK(Fs()->NewRandomRWFile(At("r"), FileOptions(), &file, nullptr));
  EXPECT_OK(file->Write(0, "abcdef", IOOptions(), nullptr));
  EXPECT_OK(file->Write(2, "XY", IOOptions(), nullptr));
  EXPECT_OK(file->Write(6, "ghi", IOOptions(), nullptr));
  char scratch[20];
  Slice result;
  EXPECT_OK(file->Read(0, 20, IOOptions(), &result, scratch, nullptr));
  EXPECT_EQ(result.ToString(), std::string("abXYefghi"));
  EXPECT_OK(file->Read(100, 20, IOOptions(), &result, scratch, nullptr));
  EXPECT_EQ(result.size(), 0u);
  EXPECT_OK(file->Write(300000, "far", IOOptions(), nullptr));
  EXPECT_OK(file->Sync(IOOptions(), nullptr));
  EXPECT_OK(file->Close(IOOptions(), nullptr));
  EXPECT_EQ(contract::SizeOf(At("r")), 300003u);
  EXPECT(Get(At("r")) == "abXYefghi" + std::string(300000 - 9, '\0') + "far");
}

CONTRACT_TEST(HintsOfWritersAreAccepted) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Create(At("000012.sst"), &file));
  file->SetWriteLifeTimeHint(rocksdb::Env::WLTH_LONG);
  if (!Uri().empty()) {
    // RocksDB's own hands the kernel 8 bytes where it has 4, so there it depends on what lies behind them on the stack.
    EXPECT_EQ(static_cast<int>(file->GetWriteLifeTimeHint()), static_cast<int>(rocksdb::Env::WLTH_LONG));
  }
  file->SetIOPriority(rocksdb::Env::IO_LOW);
  EXPECT_EQ(static_cast<int>(file->GetIOPriority()), static_cast<int>(rocksdb::Env::IO_LOW));
  file->SetPreallocationBlockSize(1 << 20);
  file->PrepareWrite(0, 10, IOOptions(), nullptr);
  EXPECT_OK(file->Allocate(0, 1 << 20, IOOptions(), nullptr));
  EXPECT_OK(Append(file.get(), "0123456789"));
  EXPECT_EQ(SizeOf(file.get()), 10u);
  EXPECT_OK(file->RangeSync(0, 10, IOOptions(), nullptr));
  EXPECT_OK(file->InvalidateCache(0, 0));
  EXPECT_OK(file->Truncate(10, IOOptions(), nullptr));
  EXPECT_OK(Close(file.get()));
  EXPECT_EQ(contract::SizeOf(At("000012.sst")), 10u);
}

IMBREX_TEST(DirectIoIsAcceptedAndServedBuffered) {
  FileOptions options;
  options.use_direct_reads = true;
  options.use_direct_writes = true;
  std::unique_ptr<rocksdb::FSWritableFile> writer;
  NEED_OK(Fs()->NewWritableFile(At("a"), options, &writer, nullptr));
  EXPECT(!writer->use_direct_io());
  EXPECT_OK(Append(writer.get(), "not aligned"));
  EXPECT_OK(Close(writer.get()));
  std::unique_ptr<rocksdb::FSRandomAccessFile> reader;
  NEED_OK(Fs()->NewRandomAccessFile(At("a"), options, &reader, nullptr));
  EXPECT(!reader->use_direct_io());
  EXPECT_EQ(ReadAt(*reader, 4, 100), std::string("aligned"));
  std::unique_ptr<rocksdb::FSSequentialFile> sequential;
  NEED_OK(Fs()->NewSequentialFile(At("a"), options, &sequential, nullptr));
  EXPECT(!sequential->use_direct_io());
  char scratch[100];
  Slice result;
  EXPECT_OK(sequential->PositionedRead(4, 7, IOOptions(), &result, scratch, nullptr));
  EXPECT_EQ(result.ToString(), std::string("aligned"));
}

IMBREX_TEST(MemoryMappingIsRefused) {
  NEED_OK(Put(At("a"), "content"));
  FileOptions options;
  options.use_mmap_reads = true;
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  EXPECT_ERROR(Fs()->NewRandomAccessFile(At("a"), options, &file, nullptr), IsNotSupported);
  EXPECT(file == nullptr);
  NEED_OK(OpenRandomAccess(At("a"), &file));
  Slice result("untouched");
  EXPECT_ERROR(file->Read(0, 7, IOOptions(), &result, nullptr, nullptr), IsNotSupported);
  EXPECT_EQ(result.size(), 0u);
  std::unique_ptr<rocksdb::MemoryMappedFileBuffer> buffer;
  EXPECT_ERROR(Fs()->NewMemoryMappedFileBuffer(At("a"), &buffer), IsNotSupported);
}

IMBREX_TEST(AWriterIsClosedOnceAndForAll) {
  std::unique_ptr<rocksdb::FSWritableFile> file;
  NEED_OK(Create(At("a"), &file));
  EXPECT_OK(Append(file.get(), "content"));
  EXPECT_OK(Close(file.get()));
  EXPECT_OK(Close(file.get()));
  EXPECT(!Append(file.get(), "more").ok());
  file.reset();
  EXPECT_EQ(Get(At("a")), std::string("content"));
  // LevelDB destroys writers without closing them, and so does RocksDB after an error.
  NEED_OK(Create(At("b"), &file));
  EXPECT_OK(Append(file.get(), "content"));
  file.reset();
  EXPECT_EQ(Get(At("b")), std::string("content"));
}
