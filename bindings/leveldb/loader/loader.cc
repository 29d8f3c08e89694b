// libleveldb_imbrex.so: takes the place of leveldb::Env::Default(), looks which LevelDB asks, and loads the plug-in built for it
// (common/level/locate.h says why so).

#include <unistd.h>

#include <exception>
#include <string>

// What is defined here of LevelDB must be seen by others.
#pragma GCC visibility push(default)
#include "leveldb/env.h"
#pragma GCC visibility pop

#include "imbrex_leveldb.h"
#include "locate.h"
#include "plugin.h"

namespace imbrex {

namespace {

// static Env* leveldb::Env::Default().
constexpr const char* kDefaultName = "_ZN7leveldb3Env7DefaultEv";

struct Plugin {
  // Why there is none, or empty.
  std::string mismatch;
  decltype(&imbrex_leveldb_default_env) default_env = nullptr;
  decltype(&imbrex_leveldb_open) open = nullptr;
  decltype(&imbrex_leveldb_new) new_env = nullptr;
  decltype(&imbrex_leveldb_advise) advise = nullptr;
};

LevelDb LevelDbOf(const void* caller) { return Locate(caller, kDefaultName, reinterpret_cast<const void*>(&leveldb::Env::Default)); }

// The Default() of that LevelDB, which must have one.
leveldb::Env* OriginalEnv(const LevelDb& leveldb) { return reinterpret_cast<decltype(&leveldb::Env::Default)>(leveldb.function)(); }

Plugin Load(const LevelDb& leveldb) {
  Plugin plugin;
  const PluginFile file = LoadPlugin(leveldb, "libleveldb_imbrex", "imbrex_leveldb_mismatch");
  plugin.mismatch = file.mismatch;
  if (plugin.mismatch.empty()) {
    file.Find("imbrex_leveldb_default_env", &plugin.default_env);
    file.Find("imbrex_leveldb_open", &plugin.open);
    file.Find("imbrex_leveldb_new", &plugin.new_env);
    file.Find("imbrex_leveldb_advise", &plugin.advise);
  }
  return plugin;
}

leveldb::Env* DefaultEnv(const void* caller) {
  const LevelDb leveldb = LevelDbOf(caller);
  const char* const drive = DriveOfEnvironment();
  if (drive == nullptr && leveldb.function != nullptr) {
    return OriginalEnv(leveldb);
  }
  const Plugin plugin = Load(leveldb);
  if (plugin.default_env == nullptr) {
    Refuse(plugin.mismatch);
  }
  leveldb::Env* const env = plugin.default_env(OriginalEnv(leveldb), drive);
  if (env == nullptr) {
    Refuse("there is no memory left");
  }
  return env;
}

// Runs `body(plugin, original)`; tells in `*error` why there is no plug-in.
template <typename Result, typename Body>
Result WithPlugin(const void* caller, std::string* error, Result failed, Body&& body) {
  const LevelDb leveldb = LevelDbOf(caller);
  const Plugin plugin = Load(leveldb);
  if (plugin.default_env == nullptr) {
    *error = plugin.mismatch;
    return failed;
  }
  return body(plugin, OriginalEnv(leveldb));
}

}  // namespace

__attribute__((noinline)) leveldb::Env* NewLevelDbEnv(const std::string& uri, std::string* error) {
  return WithPlugin<leveldb::Env*>(__builtin_return_address(0), error, nullptr, [&](const Plugin& plugin, leveldb::Env* original) {
    return plugin.open(original, uri.c_str(), error);
  });
}

__attribute__((noinline)) leveldb::Env* NewLevelDbEnv(const imbrex_fs* fs, std::string* error) {
  return WithPlugin<leveldb::Env*>(__builtin_return_address(0), error, nullptr, [&](const Plugin& plugin, leveldb::Env* original) {
    return plugin.new_env(original, fs, error);
  });
}

__attribute__((noinline)) bool AdviseLevelDbOptions(const imbrex_fs* fs, leveldb::Options* options, std::string* error) {
  return WithPlugin<bool>(__builtin_return_address(0), error, false,
                          [&](const Plugin& plugin, leveldb::Env*) { return plugin.advise(fs, options, error); });
}

}  // namespace imbrex

__attribute__((noinline)) leveldb::Env* leveldb::Env::Default() {
  const void* const caller = __builtin_return_address(0);
  try {
    return imbrex::DefaultEnv(caller);
  } catch (const std::exception&) {
    // No memory for a sentence about it.
    _exit(1);
  }
}
