// libleveldb_imbrex.so: takes the place of leveldb::Env::Default(), looks which LevelDB asks, and loads the plug-in built for it.
//
// LevelDB's classes are an interface of C++: a plug-in of another version would not fail, it would call the wrong functions; and merely
// loading a second libleveldb before the program's mixes the two, since each name is found in whichever comes first (PyPI's plyvel, which
// brings a LevelDB, crashes then). So this library defines that one function and refers to nothing of LevelDB. A LevelDB need not be
// there when it is loaded: a Python program loads it later, with names that only its own module sees. Therefore the one in question is
// found from the address of the caller, as the dynamic linker would have found it for that caller without us.

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <string>

// What is defined here of LevelDB must be seen by others.
#pragma GCC visibility push(default)
#include "leveldb/env.h"
#pragma GCC visibility pop

#include "imbrex_leveldb.h"
#include "leveldb/db.h"
#include "plugin.h"

namespace imbrex {

namespace {

// static Env* leveldb::Env::Default().
constexpr const char* kDefaultName = "_ZN7leveldb3Env7DefaultEv";
constexpr const char* kMajorName = "leveldb_major_version";
constexpr const char* kMinorName = "leveldb_minor_version";
constexpr const char* kVariable = "IMBREX_DRIVE";

// The LevelDB that some code uses.
struct LevelDb {
  decltype(&leveldb::Env::Default) default_env = nullptr;
  std::string file;
  // As "1.23"; empty where it does not tell.
  std::string version;
};

struct Plugin {
  // Why there is none, or empty.
  std::string mismatch;
  decltype(&imbrex_leveldb_default_env) default_env = nullptr;
  decltype(&imbrex_leveldb_open) open = nullptr;
  decltype(&imbrex_leveldb_new) new_env = nullptr;
  decltype(&imbrex_leveldb_advise) advise = nullptr;
};

std::string FileOf(const void* address) {
  Dl_info info = {};
  return address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr ? std::string() : info.dli_fname;
}

// A name as the file around `address` sees it without us; nullptr if it does not.
void* Find(const void* address, const char* name) {
  const void* const own = reinterpret_cast<const void*>(&leveldb::Env::Default);
  Dl_info info = {};
  link_map* map = nullptr;
  void* found = nullptr;
  // The program itself has no name there; it sees what the global order has behind us.
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 && map != nullptr && map->l_name[0] != '\0') {
    void* const handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr) {
      found = dlsym(handle, name);
      dlclose(handle);
    }
  }
  for (void* const where : {RTLD_NEXT, RTLD_DEFAULT}) {
    if (found == nullptr || found == own) {
      found = dlsym(where, name);
    }
  }
  return found == own ? nullptr : found;
}

LevelDb Locate(const void* caller) {
  LevelDb found;
  void* const function = Find(caller, kDefaultName);
  found.default_env = reinterpret_cast<decltype(found.default_env)>(function);
  found.file = FileOf(function);
  const auto major = reinterpret_cast<int (*)()>(function == nullptr ? nullptr : Find(function, kMajorName));
  const auto minor = reinterpret_cast<int (*)()>(function == nullptr ? nullptr : Find(function, kMinorName));
  if (major != nullptr && minor != nullptr && FileOf(reinterpret_cast<const void*>(major)) == found.file) {
    found.version = std::to_string(major()) + "." + std::to_string(minor());
  }
  return found;
}

Plugin Load(const LevelDb& leveldb) {
  Plugin plugin;
  const std::string built = std::to_string(leveldb::kMajorVersion) + "." + std::to_string(leveldb::kMinorVersion);
  const std::string advice = "; use a program with the shared library of LevelDB " + built + ", as Debian's python3-plyvel, or build Imbrex against "
                             "the LevelDB that this program uses";
  if (leveldb.default_env == nullptr) {
    plugin.mismatch = "this process has no LevelDB that the dynamic linker knows" + advice;
    return plugin;
  }
  if (leveldb.version.empty()) {
    plugin.mismatch = "this process uses a LevelDB that does not tell its version (inside " + leveldb.file + ")" + advice;
    return plugin;
  }
  const std::string self = FileOf(reinterpret_cast<const void*>(&Load));
  const size_t slash = self.rfind('/');
  const std::string path = (slash == std::string::npos ? "." : self.substr(0, slash)) + "/libleveldb_imbrex-" + leveldb.version + ".so";
  if (leveldb.version != built && access(path.c_str(), R_OK) != 0) {
    plugin.mismatch = "this process uses LevelDB " + leveldb.version + " (" + leveldb.file + "), but Imbrex was built for LevelDB " + built + advice;
    return plugin;
  }
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    plugin.mismatch = std::string("the plug-in cannot be loaded (") + (why == nullptr ? "?" : why) +
                      "); install libleveldb_imbrex.so, libleveldb_imbrex-" + leveldb.version + ".so and libimbrex.so together";
    return plugin;
  }
  const auto mismatch = reinterpret_cast<decltype(&imbrex_leveldb_mismatch)>(dlsym(handle, "imbrex_leveldb_mismatch"));
  if (mismatch == nullptr) {
    plugin.mismatch = path + " is no plug-in of this version; install both together";
    return plugin;
  }
  mismatch(reinterpret_cast<const void*>(leveldb.default_env), &plugin.mismatch);
  if (plugin.mismatch.empty()) {
    plugin.default_env = reinterpret_cast<decltype(plugin.default_env)>(dlsym(handle, "imbrex_leveldb_default_env"));
    plugin.open = reinterpret_cast<decltype(plugin.open)>(dlsym(handle, "imbrex_leveldb_open"));
    plugin.new_env = reinterpret_cast<decltype(plugin.new_env)>(dlsym(handle, "imbrex_leveldb_new"));
    plugin.advise = reinterpret_cast<decltype(plugin.advise)>(dlsym(handle, "imbrex_leveldb_advise"));
  } else {
    plugin.mismatch += advice;
  }
  return plugin;
}

// Whoever set the variable wants the drive: without it the database would go somewhere else, unnoticed.
[[noreturn]] void Refuse(const std::string& why) {
  const std::string line = "imbrex: " + why + "; or unset " + kVariable + "\n";
  // Standard error may be closed; there is nobody else to tell.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

leveldb::Env* DefaultEnv(const void* caller) {
  const LevelDb leveldb = Locate(caller);
  const char* const drive = getenv(kVariable);
  if ((drive == nullptr || *drive == '\0') && leveldb.default_env != nullptr) {
    return leveldb.default_env();
  }
  const Plugin plugin = Load(leveldb);
  if (plugin.default_env == nullptr) {
    Refuse(plugin.mismatch);
  }
  leveldb::Env* const env = plugin.default_env(leveldb.default_env(), drive);
  if (env == nullptr) {
    Refuse("there is no memory left");
  }
  return env;
}

// Runs `body(plugin, original)`; tells in `*error` why there is no plug-in.
template <typename Result, typename Body>
Result WithPlugin(const void* caller, std::string* error, Result failed, Body&& body) {
  const LevelDb leveldb = Locate(caller);
  const Plugin plugin = Load(leveldb);
  if (plugin.default_env == nullptr) {
    *error = plugin.mismatch;
    return failed;
  }
  return body(plugin, leveldb.default_env());
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
