// What the contract tests of the plug-ins share: a tiny registry, checks that name what failed, programs that are run.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace contract {

struct Test {
  const char* name;
  void (*body)();
  // Promises that the database's own POSIX file system does not make.
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
    const auto checked_ = (status);                                                  \
    if (!(checked_.predicate())) {                                                   \
      ::contract::Fail(__FILE__, __LINE__, #status " is not " #predicate ": " + checked_.ToString()); \
    }                                                                                \
  } while (0)
#define EXPECT_EQ(left, right) ::contract::ExpectEq(__FILE__, __LINE__, #left " == " #right, (left), (right))
#define EXPECT_CONTAINS(text, part) ::contract::ExpectContains(__FILE__, __LINE__, (text), (part))
// Fails unless `part` stands in `text` exactly once.
#define EXPECT_ONCE(text, part) ::contract::ExpectOnce(__FILE__, __LINE__, (text), (part))

template <typename Status>
bool ExpectOk(const char* file, int line, const char* expression, const Status& status) {
  if (!status.ok()) {
    Fail(file, line, std::string(expression) + ": " + status.ToString());
  }
  return status.ok();
}

void ExpectContains(const char* file, int line, const std::string& text, const std::string& part);
void ExpectOnce(const char* file, int line, const std::string& text, const std::string& part);

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

// A path in the running test's own, empty directory.
std::string At(const std::string& name);
// Pseudo-random bytes that a seed alone decides.
std::string Bytes(size_t n, uint64_t seed);

// Where the plug-in and this program are.
std::string BuildDirectory();
// Runs a program with `environment` and nothing else; gives what it wrote to both outputs, and its exit code (-1 when a signal ended it).
std::string Run(const std::vector<std::string>& words, const std::vector<std::string>& environment, int* exit_code);

struct Runner {
  // Each test gets a directory here.
  std::string base;
  // Only tests whose name contains it.
  std::string only;
  // Leaves out those that are imbrex_only.
  bool posix = false;
  // Makes a directory; whether that worked.
  std::function<bool(const std::string&)> make;
  // Removes a directory and what is in it; what is missing is fine.
  std::function<void(const std::string&)> remove;
};

// Runs the tests and prints their outcome; returns the exit code.
int RunTests(const Runner& runner);

}  // namespace contract
