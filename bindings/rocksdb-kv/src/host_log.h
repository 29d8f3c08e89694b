// Where RocksDB's warnings go: the caller's log. A log file on the drive would take zones of it.

#pragma once

#include <memory>

#include "rocksdb/env.h"

namespace imbrex {

std::shared_ptr<rocksdb::Logger> NewHostLog();

}  // namespace imbrex
