#include "registry.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace contract {

namespace {

std::string g_directory;
std::mutex g_mutex;
int g_failures = 0;

}  // namespace

std::vector<Test>& Tests() {
  static std::vector<Test> tests;
  return tests;
}

void Fail(const char* file, int line, const std::string& what) {
  const char* const slash = strrchr(file, '/');
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_failures;
  printf("  FAILED %s:%d: %s\n", slash == nullptr ? file : slash + 1, line, what.c_str());
}

void ExpectContains(const char* file, int line, const std::string& text, const std::string& part) {
  if (text.find(part) == std::string::npos) {
    Fail(file, line, "\"" + part + "\" is not in: " + text);
  }
}

void ExpectOnce(const char* file, int line, const std::string& text, const std::string& part) {
  const size_t first = text.find(part);
  if (first == std::string::npos || text.find(part, first + part.size()) != std::string::npos) {
    Fail(file, line, "\"" + part + "\" is not once in: " + text);
  }
}

std::string Show(const std::string& value) {
  return value.size() <= 64 ? "\"" + value + "\"" : std::to_string(value.size()) + " bytes \"" + value.substr(0, 48) + "...\"";
}
std::string Show(unsigned long long value) { return std::to_string(value); }

std::string At(const std::string& name) { return g_directory + "/" + name; }

std::string Bytes(size_t n, uint64_t seed) {
  std::string result(n, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (size_t i = 0; i < n; ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    result[i] = static_cast<char>(state >> 32);
  }
  return result;
}

std::string BuildDirectory() {
  std::string path(4096, '\0');
  const ssize_t n = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return path.substr(0, path.rfind('/'));
}

std::string Run(const std::vector<std::string>& words, const std::vector<std::string>& environment, int* exit_code) {
  int ends[2];
  if (pipe(ends) != 0) {
    return "no pipe";
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::vector<char*> argv;
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& variable : environment) {
    envp.push_back(const_cast<char*>(variable.c_str()));
  }
  envp.push_back(nullptr);
  pid_t child = 0;
  const int spawned = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t n = 0; spawned == 0 && (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    output.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = -1;
  if (spawned == 0) {
    waitpid(child, &status, 0);
  }
  *exit_code = spawned == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

int RunTests(const Runner& runner) {
  runner.remove(runner.base);
  if (!runner.make(runner.base)) {
    return 1;
  }
  int passed = 0;
  int failed = 0;
  for (const Test& test : Tests()) {
    if ((runner.posix && test.imbrex_only) || std::string(test.name).find(runner.only) == std::string::npos) {
      continue;
    }
    g_directory = runner.base + "/" + test.name;
    const int before = g_failures;
    if (runner.make(g_directory)) {
      test.body();
      runner.remove(g_directory);
    }
    (g_failures == before ? passed : failed) += 1;
    printf("%s %s\n", g_failures == before ? "ok    " : "FAILED", test.name);
    fflush(stdout);
  }
  runner.remove(runner.base);
  printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 && g_failures == 0 ? 0 : 1;
}

}  // namespace contract
