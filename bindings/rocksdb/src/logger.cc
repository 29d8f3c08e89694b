#include "logger.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <new>

#include "status.h"

namespace imbrex {

namespace {

// As in RocksDB's own log: local time to the microsecond, then the thread.
size_t WritePrefix(char* buffer, size_t size) {
  timeval now;
  gettimeofday(&now, nullptr);
  tm local = {};
  localtime_r(&now.tv_sec, &local);
  const int n = snprintf(buffer, size, "%04d/%02d/%02d-%02d:%02d:%02d.%06d %ld ", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                         local.tm_hour, local.tm_min, local.tm_sec, static_cast<int>(now.tv_usec), syscall(SYS_gettid));
  return n < 0 ? 0 : std::min(static_cast<size_t>(n), size - 1);
}

}  // namespace

FileLogger::~FileLogger() { Close().PermitUncheckedError(); }

void FileLogger::Logv(const char* format, va_list arguments) {
  constexpr size_t kOnStack = 1024;
  constexpr size_t kLongest = 64 * 1024;
  char small[kOnStack];
  std::unique_ptr<char[]> large;
  char* buffer = small;
  size_t capacity = kOnStack;

  size_t length = WritePrefix(buffer, capacity);
  va_list copy;
  va_copy(copy, arguments);
  const int needed = vsnprintf(buffer + length, capacity - length, format, copy);
  va_end(copy);
  if (needed < 0) {
    return;
  }
  // One byte more than the text: the line break, in the place of the terminating zero.
  if (length + static_cast<size_t>(needed) + 1 > capacity) {
    const size_t wanted = std::min(length + static_cast<size_t>(needed) + 1, kLongest);
    large.reset(new (std::nothrow) char[wanted]);
    if (large != nullptr) {
      buffer = large.get();
      capacity = wanted;
      length = WritePrefix(buffer, capacity);
      va_copy(copy, arguments);
      vsnprintf(buffer + length, capacity - length, format, copy);
      va_end(copy);
    }
  }
  length = std::min(length + static_cast<size_t>(needed), capacity - 1);
  if (length == 0 || buffer[length - 1] != '\n') {
    buffer[length++] = '\n';
  }

  const std::lock_guard<std::mutex> lock(mutex_);
  // Nobody can be told that a line of the log was lost, and the database must go on without it.
  imbrex_error_free(imbrex_writer_append(writer_.get(), buffer, length));
}

size_t FileLogger::GetLogFileSize() const { return imbrex_writer_size(writer_.get()); }

rocksdb::Status FileLogger::CloseImpl() { return ToStatus(imbrex_writer_close(writer_.get()), path_); }

}  // namespace imbrex
