// RocksDB's information log (the file LOG). Every line is appended at once: a killed process loses none of it.

#pragma once

#include <cstdarg>
#include <mutex>
#include <string>

#include "handle.h"
#include "rocksdb/env.h"

namespace imbrex {

class FileLogger final : public rocksdb::Logger {
 public:
  FileLogger(std::string path, WriterHandle writer) : path_(std::move(path)), writer_(std::move(writer)) {}
  ~FileLogger() override;

  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override;
  size_t GetLogFileSize() const override;

 protected:
  rocksdb::Status CloseImpl() override;

 private:
  const std::string path_;
  const WriterHandle writer_;
  // Lines of several threads must not mix.
  std::mutex mutex_;
};

}  // namespace imbrex
