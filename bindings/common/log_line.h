// A line of a database's information log (the file LOG), written as both RocksDB and LevelDB write theirs.

#pragma once

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <memory>
#include <new>

namespace imbrex {

class LogLine {
 public:
  // Longer texts are cut.
  static constexpr size_t kLongest = 64 * 1024;

  LogLine(const char* format, va_list arguments) noexcept {
    length_ = WritePrefix(buffer_, capacity_);
    va_list copy;
    va_copy(copy, arguments);
    const int needed = vsnprintf(buffer_ + length_, capacity_ - length_, format, copy);
    va_end(copy);
    if (needed < 0) {
      length_ = 0;
      return;
    }
    // One byte more than the text: the line break, in the place of the terminating zero.
    if (length_ + static_cast<size_t>(needed) + 1 > capacity_) {
      const size_t wanted = std::min(length_ + static_cast<size_t>(needed) + 1, kLongest);
      large_.reset(new (std::nothrow) char[wanted]);
      if (large_ != nullptr) {
        buffer_ = large_.get();
        capacity_ = wanted;
        length_ = WritePrefix(buffer_, capacity_);
        va_copy(copy, arguments);
        vsnprintf(buffer_ + length_, capacity_ - length_, format, copy);
        va_end(copy);
      }
    }
    length_ = std::min(length_ + static_cast<size_t>(needed), capacity_ - 1);
    if (length_ == 0 || buffer_[length_ - 1] != '\n') {
      buffer_[length_++] = '\n';
    }
  }
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;

  const char* data() const { return buffer_; }
  // 0 when the format made no sense.
  size_t size() const { return length_; }

 private:
  // Local time to the microsecond, then the thread.
  static size_t WritePrefix(char* buffer, size_t size) noexcept {
    timeval now;
    gettimeofday(&now, nullptr);
    tm local = {};
    localtime_r(&now.tv_sec, &local);
    const int n = snprintf(buffer, size, "%04d/%02d/%02d-%02d:%02d:%02d.%06d %ld ", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                           local.tm_hour, local.tm_min, local.tm_sec, static_cast<int>(now.tv_usec), syscall(SYS_gettid));
    return n < 0 ? 0 : std::min(static_cast<size_t>(n), size - 1);
  }

  char small_[1024];
  std::unique_ptr<char[]> large_;
  char* buffer_ = small_;
  size_t capacity_ = sizeof(small_);
  size_t length_ = 0;
};

}  // namespace imbrex
