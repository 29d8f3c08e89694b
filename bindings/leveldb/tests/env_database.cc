// Contract seen from a database and from other processes: how the default Env leads to the drive, what a power loss leaves, who is refused.

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "contract.h"
#include "imbrex_leveldb.h"
#include "leveldb/db.h"

using namespace contract;
using leveldb::DB;
using leveldb::Env;

namespace {

// A directory of the host with a drive in it, that goes away with it.
class Place {
 public:
  Place() {
    const char* const temporary = getenv("TMPDIR");
    std::string name = std::string(temporary == nullptr ? "/tmp" : temporary) + "/imbrex-env.XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
      Fail(__FILE__, __LINE__, "no temporary directory " + name);
      return;
    }
    directory_ = name;
    // For this process, which mounts the drive after another; none of its threads reads the environment then.
    setenv("IMBREX_SHM_DIR", name.c_str(), 1);
    Imbrex({"drive", "create", Drive(), "--profile", "tiny"});
    Imbrex({"fs", "format", Drive()});
  }
  ~Place() {
    unsetenv("IMBREX_SHM_DIR");
    int code = 0;
    Run({"/bin/rm", "-rf", directory_}, {}, &code);
  }
  std::string Drive() const { return directory_ + "/drive.img"; }

  void Imbrex(std::vector<std::string> words) {
    words.insert(words.begin(), BuildDirectory() + "/imbrex");
    int code = 0;
    const std::string output = Run(words, Environment(), &code);
    if (code != 0) {
      Fail(__FILE__, __LINE__, words[1] + " " + words[2] + ": " + output);
    }
  }
  // Whether a process left what it had not written yet, as a killed one does.
  bool HasMemory() const {
    std::vector<std::string> names;
    EXPECT_OK(Env::Default()->GetChildren(directory_, &names));
    return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.rfind("imbrex-", 0) == 0; });
  }
  // Runs this program as another process.
  std::string Act(const std::string& act, int* code) {
    std::vector<std::string> environment = Environment();
    environment.push_back("IMBREX_DRIVE=" + Drive());
    environment.push_back("WORK=" + directory_);
    return Run({BuildDirectory() + "/env_contract_test", "--act=" + act}, environment, code);
  }
  // The drive's own Env, opened in this process; nullptr after a failure.
  std::unique_ptr<Env> Open() {
    std::string error;
    std::unique_ptr<Env> env(imbrex::NewLevelDbEnv("imbrex://" + Drive(), &error));
    if (env == nullptr) {
      Fail(__FILE__, __LINE__, error);
    }
    return env;
  }

 private:
  // What a killed process leaves in memory lies here too, and is gone after a power loss.
  std::vector<std::string> Environment() const { return {"IMBREX_SHM_DIR=" + directory_}; }

  std::string directory_;
};

// What a process says that has the plug-in preloaded and then a library that asks for the default Env.
std::string Preloaded(const std::string& library, bool with_drive, int* code) {
  const std::string here = BuildDirectory();
  std::vector<std::string> environment = {"LD_PRELOAD=" + here + "/libleveldb_imbrex.so:" + here + "/obj/" + library};
  if (with_drive) {
    environment.push_back("IMBREX_DRIVE=mem:?profile=tiny");
  }
  return Run({"/bin/true"}, environment, code);
}

}  // namespace

CONTRACT_TEST(ADatabaseWorksOnIt) {
  leveldb::Options options;
  options.env = TestEnv();
  options.create_if_missing = true;
  options.write_buffer_size = 64 << 10;
  for (int round = 0; round < 3; ++round) {
    DB* raw = nullptr;
    NEED_OK(DB::Open(options, At("db"), &raw));
    const std::unique_ptr<DB> db(raw);
    DB* second = nullptr;
    EXPECT_ERROR(DB::Open(options, At("db"), &second), IsIOError);
    for (int i = 0; i < 2000; ++i) {
      leveldb::WriteOptions write;
      write.sync = i % 500 == 0;
      EXPECT_OK(db->Put(write, "key" + std::to_string(i), Bytes(200, static_cast<uint64_t>(i + round))));
    }
    db->CompactRange(nullptr, nullptr);
    for (int i = 0; i < 2000; ++i) {
      std::string value;
      EXPECT_OK(db->Get(leveldb::ReadOptions(), "key" + std::to_string(i), &value));
      EXPECT(value == Bytes(200, static_cast<uint64_t>(i + round)));
    }
  }
  EXPECT_OK(leveldb::RepairDB(At("db"), options));
  EXPECT_OK(leveldb::DestroyDB(At("db"), options));
}

IMBREX_TEST(TheDefaultEnvLeadsToTheDrive) {
  Place place;
  int code = 0;
  EXPECT_EQ(place.Act("route", &code), std::string("done\n"));
  EXPECT_EQ(code, 0);
  // The process gave the drive back when it exited: no memory waits for the next one, and all is durable. What it wrote is there under the names without /imbrex.
  EXPECT(!place.HasMemory());
  place.Imbrex({"drive", "power-loss", place.Drive(), "--seed", "1"});
  const std::unique_ptr<Env> env = place.Open();
  if (env == nullptr) {
    return;
  }
  EXPECT_EQ(Get(env.get(), "/moved"), std::string("//imbrex/./file"));
  leveldb::Options options;
  options.env = env.get();
  DB* raw = nullptr;
  NEED_OK(DB::Open(options, "/db", &raw));
  const std::unique_ptr<DB> db(raw);
  std::string value;
  EXPECT_OK(db->Get(leveldb::ReadOptions(), "where", &value));
  EXPECT_EQ(value, std::string("/imbrex/db"));
}

IMBREX_TEST(WhatIsSyncedSurvivesAPowerLossWithItsName) {
  Place place;
  int code = 0;
  EXPECT_EQ(place.Act("sync", &code), std::string());
  EXPECT_EQ(code, -1);
  EXPECT(place.HasMemory());
  place.Imbrex({"drive", "power-loss", place.Drive(), "--seed", "1"});
  const std::unique_ptr<Env> env = place.Open();
  if (env != nullptr) {
    EXPECT_EQ(Get(env.get(), "/d/000003.log"), std::string("synced"));
  }
}

IMBREX_TEST(ADeletedFileIsWholeUntilItsDeletionIsDurable) {
  int there = 0;
  for (int seed = 1; seed <= 8; ++seed) {
    Place place;
    int code = 0;
    // Every other time the rest of the drive is written too, so that its zones are wanted.
    EXPECT_EQ(place.Act(seed % 2 == 0 ? "delete" : "delete-and-fill", &code), std::string());
    EXPECT_EQ(code, -1);
    place.Imbrex({"drive", "power-loss", place.Drive(), "--seed", std::to_string(seed)});
    const std::unique_ptr<Env> env = place.Open();
    if (env != nullptr && env->FileExists("/000005.ldb")) {
      ++there;
      EXPECT(Get(env.get(), "/000005.ldb") == Bytes(6 << 20, 1));
    }
  }
  // Without that, the test would not look at anything.
  EXPECT(there > 0);
}

IMBREX_TEST(AnotherProcessGetsOneSentence) {
  if (Uri().rfind("imbrex://mem:", 0) == 0) {
    return;
  }
  int code = 0;
  const std::string output = Run({BuildDirectory() + "/env_contract_test", Uri(), "--only=nothing"}, {}, &code);
  EXPECT_EQ(code, 1);
  EXPECT_CONTAINS(output, "in use");
  EXPECT_CONTAINS(output, std::to_string(getpid()));
}

IMBREX_TEST(AnotherLevelDbIsRefused) {
  int code = 0;
  for (const char* const library : {"libleveldb_other.so", "libleveldb_old.so", "libleveldb_inside.so"}) {
    // Nobody asked for a drive: the library gets what is its own, and nobody hears anything.
    EXPECT_EQ(Preloaded(library, /*with_drive=*/false, &code), std::string());
    EXPECT_EQ(code, 0);
  }
  EXPECT_CONTAINS(Preloaded("libleveldb_other.so", /*with_drive=*/true, &code), "uses LevelDB 99.1");
  EXPECT_EQ(code, 1);
  EXPECT_CONTAINS(Preloaded("libleveldb_old.so", /*with_drive=*/true, &code), "does not tell its version");
  EXPECT_EQ(code, 1);
  // As PyPI's plyvel, were its LevelDB of the same version.
  const std::string output = Preloaded("libleveldb_inside.so", /*with_drive=*/true, &code);
  EXPECT_CONTAINS(output, "brings its own LevelDB");
  EXPECT_CONTAINS(output, "python3-plyvel");
  EXPECT_EQ(code, 1);
}

IMBREX_TEST(AProcessWithoutLevelDbIsLeftAlone) {
  int code = 0;
  EXPECT_EQ(Run({"/bin/true"}, {"LD_PRELOAD=" + BuildDirectory() + "/libleveldb_imbrex.so", "IMBREX_DRIVE=/no/drive"}, &code), std::string());
  EXPECT_EQ(code, 0);
}
