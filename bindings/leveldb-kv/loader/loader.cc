// libleveldb_kv_imbrex.so: takes the place of leveldb::DB::Open, DestroyDB and RepairDB for paths under /imbrex/, looks which LevelDB is
// asked, and loads the plug-in built for it (common/level/locate.h says why so). LevelDB's own C functions call these three by the dynamic
// linker, so they come here, too.

#include <unistd.h>

#include <exception>
#include <string>

// What is defined here of LevelDB must be seen by others.
#pragma GCC visibility push(default)
#include "leveldb/db.h"
#pragma GCC visibility pop

#include "drive_path.h"
#include "locate.h"
#include "plugin.h"

namespace imbrex {

namespace {

using leveldb::DB;
using leveldb::Options;
using leveldb::Status;

constexpr const char* kOpenName =
    "_ZN7leveldb2DB4OpenERKNS_7OptionsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPPS0_";
constexpr const char* kDestroyName =
    "_ZN7leveldb9DestroyDBERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS_7OptionsE";
constexpr const char* kRepairName = "_ZN7leveldb8RepairDBERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS_7OptionsE";

// Calls `original(leveldb)` for the host's paths, and `plugin(function, drive)`, of the plug-in's function `name`, for those on the drive.
template <typename Function, typename Original, typename Plugin>
Status Route(const LevelDb& leveldb, const std::string& path, const char* name, Original&& original, Plugin&& plugin) {
  const char* const drive = DriveOfEnvironment();
  std::string inside;
  if ((drive == nullptr || !IsOnDrive(path, &inside)) && leveldb.function != nullptr) {
    return original(leveldb.function);
  }
  const PluginFile file = LoadPlugin(leveldb, "libleveldb_kv_imbrex", "imbrex_leveldb_kv_mismatch");
  Function* function = nullptr;
  if (file.mismatch.empty()) {
    file.Find(name, &function);
  }
  if (function == nullptr) {
    Refuse(file.mismatch);
  }
  Status status;
  plugin(function, DriveUri(drive), &status);
  return status;
}

// No memory for a sentence about it.
template <typename Body>
Status Ended(Body&& body) {
  try {
    return body();
  } catch (const std::exception&) {
    _exit(1);
  }
}

using PathFunction = Status(const std::string&, const Options&);

Status OnPath(const void* caller, const char* own_name, PathFunction* own, const char* name, const std::string& path, const Options& options) {
  return Ended([&] {
    return Route<decltype(imbrex_leveldb_kv_destroy)>(
        Locate(caller, own_name, reinterpret_cast<const void*>(own)), path, name,
        [&](void* original) { return reinterpret_cast<PathFunction*>(original)(path, options); },
        [&](auto* plugin, const std::string& uri, Status* status) { plugin(uri, path, options, status); });
  });
}

}  // namespace

}  // namespace imbrex

namespace leveldb {

__attribute__((noinline)) Status DB::Open(const Options& options, const std::string& path, DB** database) {
  const void* const caller = __builtin_return_address(0);
  return imbrex::Ended([&] {
    return imbrex::Route<decltype(imbrex_leveldb_kv_open)>(
        imbrex::Locate(caller, imbrex::kOpenName, reinterpret_cast<const void*>(&DB::Open)), path, "imbrex_leveldb_kv_open",
        [&](void* original) { return reinterpret_cast<decltype(&DB::Open)>(original)(options, path, database); },
        [&](auto* plugin, const std::string& uri, Status* status) { plugin(uri, path, options, database, status); });
  });
}

__attribute__((noinline)) Status DestroyDB(const std::string& path, const Options& options) {
  return imbrex::OnPath(__builtin_return_address(0), imbrex::kDestroyName, &DestroyDB, "imbrex_leveldb_kv_destroy", path, options);
}

__attribute__((noinline)) Status RepairDB(const std::string& path, const Options& options) {
  return imbrex::OnPath(__builtin_return_address(0), imbrex::kRepairName, &RepairDB, "imbrex_leveldb_kv_repair", path, options);
}

}  // namespace leveldb
