// What the tests of env_contract_test share: the Env under test.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "leveldb/env.h"
#include "registry.h"

namespace contract {

// The Env under test, and its drive's URI (empty: LevelDB's own).
leveldb::Env* TestEnv();
const std::string& Uri();

leveldb::Status Create(const std::string& path, std::unique_ptr<leveldb::WritableFile>* file);
leveldb::Status Reopen(const std::string& path, std::unique_ptr<leveldb::WritableFile>* file);
leveldb::Status OpenSequential(const std::string& path, std::unique_ptr<leveldb::SequentialFile>* file);
leveldb::Status OpenRandomAccess(const std::string& path, std::unique_ptr<leveldb::RandomAccessFile>* file);
// Writes, syncs and closes a new file.
leveldb::Status Put(leveldb::Env* env, const std::string& path, const std::string& content);
// The whole content, or a text that says why not.
std::string Get(leveldb::Env* env, const std::string& path);
uint64_t SizeOf(const std::string& path);
std::vector<std::string> Sorted(const std::string& directory);

}  // namespace contract
