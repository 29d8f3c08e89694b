// What the tests of fs_contract_test share: the file system under test.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry.h"
#include "rocksdb/file_system.h"

namespace contract {

// The file system under test, and its URI (empty: RocksDB's own).
rocksdb::FileSystem* Fs();
const std::string& Uri();

// Shorthands with default options.
rocksdb::IOStatus Create(const std::string& path, std::unique_ptr<rocksdb::FSWritableFile>* file);
rocksdb::IOStatus Reopen(const std::string& path, std::unique_ptr<rocksdb::FSWritableFile>* file);
rocksdb::IOStatus OpenSequential(const std::string& path, std::unique_ptr<rocksdb::FSSequentialFile>* file);
rocksdb::IOStatus OpenRandomAccess(const std::string& path, std::unique_ptr<rocksdb::FSRandomAccessFile>* file);
rocksdb::IOStatus Append(rocksdb::FSWritableFile* file, const std::string& data);
rocksdb::IOStatus Sync(rocksdb::FSWritableFile* file);
rocksdb::IOStatus Close(rocksdb::FSWritableFile* file);
// Writes, syncs and closes a new file.
rocksdb::IOStatus Put(const std::string& path, const std::string& content);
// The whole content, or a text that says why not.
std::string Get(const std::string& path);
uint64_t SizeOf(const std::string& path);
bool Exists(const std::string& path);
std::vector<std::string> Sorted(const std::string& directory);

// Fails unless `text` has every part.
void ExpectSays(const char* file, int line, const std::string& text, const std::vector<std::string>& parts);
#define EXPECT_SAYS(text, ...) ::contract::ExpectSays(__FILE__, __LINE__, (text), {__VA_ARGS__})

}  // namespace contract
