// Calls every method of leveldb::Env and its files on a drive and compares with what LevelDB's headers promise and LevelDB relies on
// (DESIGN §9).
//
//   env_contract_test imbrex://LOCATOR     the drive must be formatted and may be in use by nobody else; the test works in /contract
//   env_contract_test posix:DIRECTORY      LevelDB's own Env, to show that the tests ask for nothing else
//   env_contract_test URI --only=WORD      tests whose name contains WORD
//   env_contract_test --act=NAME           what some tests have another process do (env_other_process.cc)
//
// Exit code 0 when every test passed.

#include "contract.h"

#include <algorithm>
#include <cstdio>

#include "imbrex_leveldb.h"
#include "other_process.h"

namespace contract {

using leveldb::Env;
using leveldb::Slice;
using leveldb::Status;

namespace {

Env* g_env = nullptr;
std::string g_uri;

// Whether it is a directory: LevelDB's Env has no question for that.
bool IsDirectory(const std::string& path) {
  std::vector<std::string> names;
  return g_env->GetChildren(path, &names).ok();
}

void Remove(const std::string& path) {
  if (!g_env->FileExists(path)) {
    return;
  }
  if (!IsDirectory(path)) {
    EXPECT_OK(g_env->RemoveFile(path));
    return;
  }
  for (const std::string& name : Sorted(path)) {
    Remove(path + "/" + name);
  }
  EXPECT_OK(g_env->RemoveDir(path));
}

// Makes a File of what `status` says was opened.
template <typename File>
Status Own(Status status, File* raw, std::unique_ptr<File>* file) {
  // The header demands that nothing is stored after a failure.
  EXPECT(status.ok() == (raw != nullptr));
  file->reset(raw);
  return status;
}

}  // namespace

Env* TestEnv() { return g_env; }
const std::string& Uri() { return g_uri; }

Status Create(const std::string& path, std::unique_ptr<leveldb::WritableFile>* file) {
  leveldb::WritableFile* raw = nullptr;
  Status status = g_env->NewWritableFile(path, &raw);
  return Own(status, raw, file);
}

Status Reopen(const std::string& path, std::unique_ptr<leveldb::WritableFile>* file) {
  leveldb::WritableFile* raw = nullptr;
  Status status = g_env->NewAppendableFile(path, &raw);
  return Own(status, raw, file);
}

Status OpenSequential(const std::string& path, std::unique_ptr<leveldb::SequentialFile>* file) {
  leveldb::SequentialFile* raw = nullptr;
  Status status = g_env->NewSequentialFile(path, &raw);
  return Own(status, raw, file);
}

Status OpenRandomAccess(const std::string& path, std::unique_ptr<leveldb::RandomAccessFile>* file) {
  leveldb::RandomAccessFile* raw = nullptr;
  Status status = g_env->NewRandomAccessFile(path, &raw);
  return Own(status, raw, file);
}

Status Put(Env* env, const std::string& path, const std::string& content) {
  leveldb::WritableFile* raw = nullptr;
  Status status = env->NewWritableFile(path, &raw);
  const std::unique_ptr<leveldb::WritableFile> file(raw);
  if (status.ok()) {
    status = file->Append(content);
  }
  if (status.ok()) {
    status = file->Sync();
  }
  return status.ok() ? file->Close() : status;
}

std::string Get(Env* env, const std::string& path) {
  std::string content;
  const Status status = leveldb::ReadFileToString(env, path, &content);
  return status.ok() ? content : "cannot read: " + status.ToString();
}

uint64_t SizeOf(const std::string& path) {
  uint64_t size = ~uint64_t{0};
  EXPECT_OK(g_env->GetFileSize(path, &size));
  return size;
}

std::vector<std::string> Sorted(const std::string& directory) {
  std::vector<std::string> names;
  EXPECT_OK(g_env->GetChildren(directory, &names));
  names.erase(std::remove_if(names.begin(), names.end(), [](const std::string& n) { return n == "." || n == ".."; }), names.end());
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

int Main(int argc, char** argv) {
  const std::string usage = "usage: env_contract_test imbrex://LOCATOR|posix:DIRECTORY [--only=WORD]\n";
  Runner runner;
  std::string argument;
  for (int i = 1; i < argc; ++i) {
    argument = argv[i];
    if (argument.rfind("--only=", 0) == 0) {
      runner.only = argument.substr(7);
    } else if (argument.rfind("--act=", 0) == 0) {
      return Act(argument.substr(6));
    } else if (g_uri.empty() && argument.rfind("--", 0) != 0) {
      g_uri = argument;
    } else {
      fputs(usage.c_str(), stderr);
      return 2;
    }
  }
  if (g_uri.empty()) {
    fputs(usage.c_str(), stderr);
    return 2;
  }
  std::unique_ptr<Env> owner;
  runner.posix = g_uri.rfind("posix:", 0) == 0;
  if (runner.posix) {
    g_env = Env::Default();
    runner.base = g_uri.substr(6) + "/contract";
    g_uri.clear();
  } else {
    std::string error;
    owner.reset(imbrex::NewLevelDbEnv(g_uri, &error));
    if (owner == nullptr) {
      fprintf(stderr, "env_contract_test: %s\n", error.c_str());
      return 1;
    }
    g_env = owner.get();
    runner.base = "/contract";
  }
  runner.make = [](const std::string& path) { return EXPECT_OK(g_env->CreateDir(path)); };
  runner.remove = Remove;
  return RunTests(runner);
}

}  // namespace
}  // namespace contract

int main(int argc, char** argv) { return contract::Main(argc, argv); }
