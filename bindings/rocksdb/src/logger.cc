#include "logger.h"

#include "log_line.h"
#include "status.h"

namespace imbrex {

FileLogger::~FileLogger() { Close().PermitUncheckedError(); }

void FileLogger::Logv(const char* format, va_list arguments) {
  const LogLine line(format, arguments);
  const std::lock_guard<std::mutex> lock(mutex_);
  // Nobody can be told that a line of the log was lost, and the database must go on without it.
  imbrex_error_free(imbrex_writer_append(writer_.get(), line.data(), line.size()));
}

size_t FileLogger::GetLogFileSize() const { return imbrex_writer_size(writer_.get()); }

rocksdb::Status FileLogger::CloseImpl() { return ToStatus(imbrex_writer_close(writer_.get()), path_); }

}  // namespace imbrex
