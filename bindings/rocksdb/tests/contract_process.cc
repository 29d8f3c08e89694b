// Other processes, for the tests of what they get.

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"

namespace contract {

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

void ExpectSays(const char* file, int line, const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) {
      Fail(file, line, "\"" + part + "\" is not in: " + text);
    }
  }
}

}  // namespace contract
