// How LevelDB finds the drive: through its default Env, or on a URI or a handle that the program names.

#include "plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>

#include "drive_env.h"
#include "leveldb/c.h"
#include "path.h"
#include "routing_env.h"
#include "status.h"

namespace {

constexpr const char* kScheme = "imbrex://";
// LevelDB takes no larger tables (db/db_impl.cc, SanitizeOptions).
constexpr uint64_t kLargestTable = 1 << 30;

const void* FileOf(const void* address, std::string* name) {
  Dl_info info = {};
  if (dladdr(address, &info) == 0) {
    return nullptr;
  }
  *name = info.dli_fname == nullptr ? "?" : info.dli_fname;
  return info.dli_fbase;
}

// Takes the sentence of an error; whether there was none.
bool Succeeded(imbrex_error* error, std::string* sentence) {
  const imbrex::ErrorHandle owner(error);
  if (error != nullptr) {
    *sentence = imbrex_error_message(error);
  }
  return error == nullptr;
}

// The one of this process; never destroyed, as LevelDB's own.
imbrex::RoutingEnv* g_env = nullptr;

imbrex::RoutingEnv* MakeEnv(leveldb::Env* original, const char* drive) {
  const std::string text = drive;
  g_env = new imbrex::RoutingEnv(original, text.rfind(kScheme, 0) == 0 ? text : kScheme + text);
  // Without it the drive is given back as if the process had been killed, and loses nothing either.
  [[maybe_unused]] const int registered = std::atexit([] { g_env->Close(); });
  return g_env;
}

// Runs `body`; what it throws becomes a sentence in `*error` and `failed`.
template <typename Result, typename Body>
Result Caught(std::string* error, Result failed, Body&& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    *error = std::string(e.what());
    return failed;
  }
}

}  // namespace

void imbrex_leveldb_mismatch(const void* original, std::string* mismatch) {
  if (imbrex_abi_version() != IMBREX_ABI_VERSION) {
    *mismatch = "libimbrex.so is of another version than the plug-in; install libleveldb_imbrex.so and libimbrex.so together";
    return;
  }
  std::string theirs;
  const void* const file = FileOf(original, &theirs);
  // Where this plug-in has its LevelDB from. Each name is found by itself, so a program that shows only some of its own makes a mixture.
  for (const void* const used : {reinterpret_cast<const void*>(&leveldb_major_version), reinterpret_cast<const void*>(&leveldb::WriteStringToFile),
                                 reinterpret_cast<const void*>(&leveldb::ReadFileToString)}) {
    std::string ours;
    if (FileOf(used, &ours) != file) {
      *mismatch = "this process brings its own LevelDB (" + theirs + "), but Imbrex was built for the shared library (" + ours + ")";
      return;
    }
  }
}

leveldb::Env* imbrex_leveldb_default_env(leveldb::Env* original, const char* drive) {
  std::string ignored;
  return Caught<leveldb::Env*>(&ignored, nullptr, [&] {
    static leveldb::Env* const env = MakeEnv(original, drive);
    return env;
  });
}

leveldb::Env* imbrex_leveldb_open(leveldb::Env* original, const char* uri, std::string* error) {
  return Caught<leveldb::Env*>(error, nullptr, [&]() -> leveldb::Env* {
    imbrex_fs* raw = nullptr;
    if (!Succeeded(imbrex_fs_open(uri, &raw), error)) {
      return nullptr;
    }
    return new imbrex::DriveEnv(original, imbrex::FsHandle(raw));
  });
}

leveldb::Env* imbrex_leveldb_new(leveldb::Env* original, const imbrex_fs* fs, std::string* error) {
  return Caught<leveldb::Env*>(error, nullptr, [&]() -> leveldb::Env* {
    if (fs == nullptr) {
      *error = "there is no file system: the handle is null; open one with imbrex_fs_open";
      return nullptr;
    }
    return new imbrex::DriveEnv(original, imbrex::FsHandle(imbrex_fs_clone(fs)));
  });
}

bool imbrex_leveldb_advise(const imbrex_fs* fs, leveldb::Options* options, std::string* error) {
  return Caught<bool>(error, false, [&] {
    imbrex_advice advice = {};
    if (!Succeeded(imbrex_fs_advise(fs, &advice), error)) {
      return false;
    }
    options->max_file_size = std::min(advice.target_file_size, kLargestTable);
    options->write_buffer_size = std::min<uint64_t>(advice.write_buffer_size, options->max_file_size);
    return true;
  });
}
