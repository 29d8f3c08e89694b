#include "other_process.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>

#include "contract.h"
#include "leveldb/db.h"

namespace contract {

namespace {

using leveldb::Env;
using leveldb::Status;

[[noreturn]] void Bad(const std::string& what) {
  printf("not as it should be: %s\n", what.c_str());
  fflush(stdout);
  _exit(1);
}

void Need(const Status& status, const std::string& what) {
  if (!status.ok()) {
    Bad(what + ": " + status.ToString());
  }
}

void Need(bool condition, const std::string& what) {
  if (!condition) {
    Bad(what);
  }
}

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  _exit(1);
}

// Paths under /imbrex lead to the drive, all others do not, and nothing goes from one to the other.
void Route() {
  Env* const env = Env::Default();
  const std::string host = getenv("WORK");
  Need(env == Env::Default(), "one default Env");
  for (const std::string& root : {std::string("/imbrex"), std::string("//imbrex/."), host}) {
    const std::string file = root + "/file";
    Need(Put(env, file, file), file);
    Need(Get(env, file) == file, file);
    std::vector<std::string> names;
    Need(env->GetChildren(root, &names), root);
    uint64_t size = 0;
    Need(env->GetFileSize(file, &size), file);
    Need(size == file.size(), "size of " + file);
    Need(env->CreateDir(root + "/d"), root);
    Need(env->FileExists(root + "/d"), root);
    Need(env->RemoveDir(root + "/d"), root);
    leveldb::FileLock* lock = nullptr;
    leveldb::FileLock* again = nullptr;
    Need(env->LockFile(root + "/LOCK", &lock), root);
    Need(!env->LockFile(root + "/LOCK", &again).ok() && again == nullptr, "locked");
    Need(env->UnlockFile(lock), root);
  }
  // The drive's file has not landed on the host, nor the host's on the drive.
  Need(access("/imbrex/file", F_OK) != 0, "/imbrex is not on the host");
  Need(access((host + "/file").c_str(), F_OK) == 0, host + " is on the host");
  // The last one that was written through a path with this name.
  Need(Get(env, "/imbrex/file") == "//imbrex/./file", "two names of one file");
  Need(Get(env, "/tmp/../imbrex/d/../file") == "//imbrex/./file", "a name with dots");
  Need(!env->FileExists("/imbrex/../file"), "dots lead out again");
  Need(!env->FileExists("/imbrexfile") && !env->FileExists("imbrex/file"), "no other prefix leads there");
  Need(!env->RenameFile("/imbrex/file", host + "/moved").ok(), "renaming off the drive");
  Need(!env->RenameFile(host + "/file", "/imbrex/moved").ok(), "renaming onto the drive");
  Need(env->RenameFile("/imbrex/file", "/imbrex/moved"), "renaming on the drive");
  Need(env->RenameFile(host + "/file", host + "/moved"), "renaming on the host");

  for (const std::string& path : {std::string("/imbrex/db"), host + "/db"}) {
    leveldb::Options options;
    Need(options.env == env, "the default of databases");
    options.create_if_missing = true;
    leveldb::DB* raw = nullptr;
    Need(leveldb::DB::Open(options, path, &raw), path);
    const std::unique_ptr<leveldb::DB> db(raw);
    Need(db->Put(leveldb::WriteOptions(), "where", path), path);
  }
  Need(access((host + "/db/CURRENT").c_str(), F_OK) == 0, "the host's database is there");
}

void SyncAndDie() {
  Env* const env = Env::Default();
  Need(env->CreateDir("/imbrex/d"), "directory");
  leveldb::WritableFile* file = nullptr;
  Need(env->NewWritableFile("/imbrex/d/000003.log", &file), "creating");
  Need(file->Append("synced"), "appending");
  Need(file->Sync(), "syncing");
  Die();
}

// Deletes a file, and then writes so many MiB to another one, without syncing anything.
void DeleteAndDie(int pieces) {
  Env* const env = Env::Default();
  Need(Put(env, "/imbrex/000005.ldb", Bytes(6 << 20, 1)), "writing");
  Need(env->RemoveFile("/imbrex/000005.ldb"), "deleting");
  leveldb::WritableFile* file = nullptr;
  Need(env->NewWritableFile("/imbrex/000006.ldb", &file), "creating");
  const std::string piece = Bytes(1 << 20, 2);
  for (int i = 0; i < pieces; ++i) {
    Need(file->Append(piece), "appending piece " + std::to_string(i));
  }
  Die();
}


}  // namespace

int Act(const std::string& name) {
  const std::map<std::string, std::function<void()>> acts = {
      {"route", Route}, {"sync", SyncAndDie}, {"delete", [] { DeleteAndDie(0); }}, {"delete-and-fill", [] { DeleteAndDie(52); }}};
  const auto act = acts.find(name);
  if (act == acts.end() || getenv("WORK") == nullptr) {
    fprintf(stderr, "env_contract_test: no act %s, or no WORK\n", name.c_str());
    return 2;
  }
  act->second();
  printf("done\n");
  return 0;
}

}  // namespace contract
