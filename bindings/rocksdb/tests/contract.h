// What the tests of fs_contract_test share: a tiny registry, checks that name what failed, and the file system under test.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/file_system.h"

namespace contract {

struct Test {
  const char* name;
  void (*body)();
  // Promises that RocksDB's own POSIX file system does not make.
  bool imbrex_only;
};

// In the order of definition.
std::vector<Test>& Tests();

struct Registration {
  Registration(const char* name, void (*body)(), bool imbrex_only) { Tests().push_back({name, body, imbrex_only}); }
};

#define CONTRACT_TEST_IMPL(name, imbrex_only)                                \
  static void name();                                                        \
  static const ::contract::Registration registration_##name(#name, name, imbrex_only); \
  static void name()
#define CONTRACT_TEST(name) CONTRACT_TEST_IMPL(name, false)
#define IMBREX_TEST(name) CONTRACT_TEST_IMPL(name, true)

// Records a failure of the running test; the test goes on.
void Fail(const char* file, int line, const std::string& what);

#define EXPECT(condition)                                   \
  do {                                                      \
    if (!(condition)) {                                     \
      ::contract::Fail(__FILE__, __LINE__, #condition);     \
    }                                                       \
  } while (0)
// `status` is evaluated once; gives whether it is OK.
#define EXPECT_OK(status) ::contract::ExpectOk(__FILE__, __LINE__, #status, (status))
// For a status without which the test cannot go on.
#define NEED_OK(status)     \
  do {                      \
    if (!EXPECT_OK(status)) \
      return;               \
  } while (0)
// A failure that says something.
#define EXPECT_ERROR(status, predicate)                                              \
  do {                                                                               \
    const rocksdb::Status checked_ = (status);                                       \
    if (!(checked_.predicate())) {                                                   \
      ::contract::Fail(__FILE__, __LINE__, #status " is not " #predicate ": " + checked_.ToString()); \
    }                                                                                \
  } while (0)
#define EXPECT_EQ(left, right) ::contract::ExpectEq(__FILE__, __LINE__, #left " == " #right, (left), (right))

bool ExpectOk(const char* file, int line, const char* expression, const rocksdb::Status& status);

std::string Show(const std::string& value);
std::string Show(unsigned long long value);
inline std::string Show(unsigned long value) { return Show(static_cast<unsigned long long>(value)); }
inline std::string Show(unsigned int value) { return Show(static_cast<unsigned long long>(value)); }
inline std::string Show(int value) { return std::to_string(value); }

template <typename A, typename B>
void ExpectEq(const char* file, int line, const char* expression, const A& left, const B& right) {
  if (!(left == static_cast<A>(right))) {
    Fail(file, line, std::string(expression) + ": " + Show(left) + " against " + Show(static_cast<A>(right)));
  }
}

// The file system under test, and its URI (empty: RocksDB's own).
rocksdb::FileSystem* Fs();
const std::string& Uri();
// A path in the running test's own, empty directory.
std::string At(const std::string& name);
// Pseudo-random bytes that a seed alone decides.
std::string Bytes(size_t n, uint64_t seed);

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

}  // namespace contract
