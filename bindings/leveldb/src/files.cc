#include "files.h"

#include <algorithm>

#include "log_line.h"
#include "status.h"

namespace imbrex {

using leveldb::Slice;
using leveldb::Status;

namespace {

constexpr size_t kCacheLine = 64;

// Its address stands for bytes that have to be read.
const char kNowhere = 0;

Status ReadAt(const imbrex_reader* reader, const std::string& path, uint64_t offset, size_t n, Slice* result, char* scratch) {
  size_t got = 0;
  Status status = ToStatus(imbrex_reader_read(reader, offset, scratch, n, &got), path);
  *result = Slice(scratch, status.ok() ? got : 0);
  return status;
}

}  // namespace

Status SequentialFile::Read(size_t n, Slice* result, char* scratch) {
  Status status = ReadAt(reader_.get(), path_, position_, n, result, scratch);
  position_ += result->size();
  return status;
}

Status SequentialFile::Skip(uint64_t n) {
  const uint64_t size = imbrex_reader_size(reader_.get());
  position_ += std::min(n, size - std::min(size, position_));
  return Status::OK();
}

RandomAccessFile::RandomAccessFile(std::string path, ReaderHandle reader)
    : size_(imbrex_reader_size(reader.get())),
      many_(size_ / IMBREX_SPAN < kFew ? nullptr : new Span[size_ / IMBREX_SPAN + 1]()),
      reader_(std::move(reader)),
      path_(std::move(path)) {}

// The bytes where they stand in memory, if their span does; null: they have to be read.
const char* RandomAccessFile::Find(uint64_t offset, size_t n) const {
  if (offset > size_ || n > size_ - offset || n > IMBREX_SPAN - offset % IMBREX_SPAN) {
    return nullptr;
  }
  Span& kept = size_ / IMBREX_SPAN < kFew ? few_[offset / IMBREX_SPAN] : many_[offset / IMBREX_SPAN];
  const char* span = kept.load(std::memory_order_acquire);
  if (span == nullptr) {
    const void* data = nullptr;
    size_t got = 0;
    // No error but those of Read, which then tells it.
    imbrex_error_free(imbrex_reader_span(reader_.get(), offset / IMBREX_SPAN, &data, &got));
    const uint64_t rest = size_ - offset / IMBREX_SPAN * IMBREX_SPAN;
    span = got < std::min<uint64_t>(IMBREX_SPAN, rest) || data == nullptr ? &kNowhere : static_cast<const char*>(data);
    kept.store(span, std::memory_order_release);
  }
  return span == &kNowhere ? nullptr : span + offset % IMBREX_SPAN;
}

Status RandomAccessFile::Read(uint64_t offset, size_t n, Slice* result, char* scratch) const {
  const void* data = Find(offset, n);
  size_t got = n;
  if (data == nullptr) {
    Status status = ToStatus(imbrex_reader_view(reader_.get(), offset, scratch, n, &data, &got), path_);
    if (!status.ok()) {
      *result = Slice(scratch, 0);
      return status;
    }
  }
  *result = Slice(static_cast<const char*>(data), got);
  if (data != scratch && got > 2 * kCacheLine) {
    // LevelDB looks at the block's end (how it is compressed, where its keys are), then at its beginning, and would wait for the memory twice.
    __builtin_prefetch(result->data() + got - 1);
    __builtin_prefetch(result->data());
    __builtin_prefetch(result->data() + kCacheLine);
    __builtin_prefetch(result->data() + 2 * kCacheLine);
  }
  return Status::OK();
}

Status WritableFile::Append(const Slice& data) { return ToStatus(imbrex_writer_append(writer_.get(), data.data(), data.size()), path_); }
Status WritableFile::Close() { return ToStatus(imbrex_writer_close(writer_.get()), path_); }
Status WritableFile::Flush() { return Status::OK(); }
Status WritableFile::Sync() { return ToStatus(imbrex_writer_sync(writer_.get()), path_); }

void Logger::Logv(const char* format, va_list arguments) {
  const LogLine line(format, arguments);
  const std::lock_guard<std::mutex> lock(mutex_);
  // Nobody can be told that a line of the log was lost, and the database must go on without it.
  imbrex_error_free(imbrex_writer_append(writer_.get(), line.data(), line.size()));
}

}  // namespace imbrex
