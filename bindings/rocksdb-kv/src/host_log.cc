#include "host_log.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "failure.h"

namespace imbrex {

namespace {

class HostLog final : public rocksdb::Logger {
 public:
  HostLog() : Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  ~HostLog() override { Close().PermitUncheckedError(); }

  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override { Say(false, format, arguments); }
  void Logv(const rocksdb::InfoLogLevel level, const char* format, va_list arguments) override {
    if (level >= GetInfoLogLevel() && level != rocksdb::InfoLogLevel::HEADER_LEVEL) {
      Say(level >= rocksdb::InfoLogLevel::ERROR_LEVEL, format, arguments);
    }
  }

 protected:
  rocksdb::Status CloseImpl() override { return rocksdb::Status::OK(); }

 private:
  // Longer lines are cut.
  static void Say(bool severe, const char* format, va_list arguments) {
    char line[1024];
    const int length = vsnprintf(line, sizeof(line), format, arguments);
    if (length > 0) {
      host.log(severe, line, std::min(static_cast<size_t>(length), sizeof(line) - 1));
    }
  }
};

}  // namespace

std::shared_ptr<rocksdb::Logger> NewHostLog() { return std::make_shared<HostLog>(); }

}  // namespace imbrex
