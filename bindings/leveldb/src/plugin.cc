// How LevelDB finds the drive: through its default Env, or on a URI or a handle that the program names.

#include "plugin.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>

#include "drive_env.h"
#include "drive_path.h"
#include "mismatch.h"
#include "routing_env.h"
#include "status.h"

namespace {

// LevelDB takes no larger tables (db/db_impl.cc, SanitizeOptions).
constexpr uint64_t kLargestTable = 1 << 30;

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
  g_env = new imbrex::RoutingEnv(original, imbrex::DriveUri(drive));
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
  *mismatch = imbrex::Mismatch(original, "libleveldb_imbrex.so");
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
