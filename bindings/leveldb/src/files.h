// Open files of LevelDB on the drive, its log for people, and locks.

#pragma once

#include <atomic>
#include <cstdarg>
#include <memory>
#include <mutex>
#include <string>

#include "handle.h"
#include "leveldb/env.h"

namespace imbrex {

// Reads a file from its beginning. A read is short only at the end of the file, and may be repeated there.
class SequentialFile final : public leveldb::SequentialFile {
 public:
  SequentialFile(std::string path, ReaderHandle reader) : path_(std::move(path)), reader_(std::move(reader)) {}

  leveldb::Status Read(size_t n, leveldb::Slice* result, char* scratch) override;
  leveldb::Status Skip(uint64_t n) override;

 private:
  const std::string path_;
  const ReaderHandle reader_;
  uint64_t position_ = 0;
};

// Reads a file anywhere, from any number of threads. Like LevelDB's own with mmap, it gives pointers to bytes that stay as long as the file
// is open, where the cache of the drive has them and a bounded part of it is not yet held so: LevelDB then neither copies a block nor keeps it in
// its own cache. What it got once it finds again by one look into a table of its own.
class RandomAccessFile final : public leveldb::RandomAccessFile {
 public:
  RandomAccessFile(std::string path, ReaderHandle reader);

  leveldb::Status Read(uint64_t offset, size_t n, leveldb::Slice* result, char* scratch) const override;

 private:
  const char* Find(uint64_t offset, size_t n) const;

  // Spans of tables of LevelDB's own size stand in this object, so that finding one waits for memory once.
  static constexpr size_t kFew = 12;
  using Span = std::atomic<const char*>;

  // Where each span of the file stands; null: nobody asked yet; `kNowhere`: it has to be read.
  const uint64_t size_;
  mutable Span few_[kFew] = {};
  const std::unique_ptr<Span[]> many_;
  const ReaderHandle reader_;
  const std::string path_;
};

// What Append took survives a kill of the process, what Sync confirmed survives a power loss, and the file's name with it: LevelDB never
// syncs a directory. Flush costs nothing and does nothing: LevelDB calls it after every put. Destroying it without Close closes it, as
// LevelDB does with its logs.
class WritableFile final : public leveldb::WritableFile {
 public:
  WritableFile(std::string path, WriterHandle writer) : path_(std::move(path)), writer_(std::move(writer)) {}

  leveldb::Status Append(const leveldb::Slice& data) override;
  leveldb::Status Close() override;
  leveldb::Status Flush() override;
  leveldb::Status Sync() override;

 private:
  const std::string path_;
  const WriterHandle writer_;
};

// The file LOG. Every line is appended at once: a killed process loses none of it.
class Logger final : public leveldb::Logger {
 public:
  Logger(std::string /*path*/, WriterHandle writer) : writer_(std::move(writer)) {}

  void Logv(const char* format, va_list arguments) override;

 private:
  const WriterHandle writer_;
  // Lines of several threads must not mix.
  std::mutex mutex_;
};

class FileLock final : public leveldb::FileLock {
 public:
  FileLock(std::string /*path*/, LockHandle handle) : handle_(std::move(handle)) {}

 private:
  const LockHandle handle_;
};

}  // namespace imbrex
