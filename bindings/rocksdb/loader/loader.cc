// librocksdb_imbrex.so: looks which RocksDB the process has, and loads the plug-in that was built for it.
//
// RocksDB's classes are an interface of C++: their layout and the order of their virtual functions change between minor versions. A
// plug-in of another version would not fail, it would call the wrong functions; and merely loading a second librocksdb beside the
// program's mixes the two, since each name is found in whichever comes first. So this library refers to nothing of RocksDB, asks the
// dynamic linker, and then loads librocksdb_imbrex-<version>.so from beside itself, or says why not. In a process without RocksDB (a
// shell that is to start db_bench) it does nothing.

#include <dlfcn.h>
#include <unistd.h>

#include <exception>
#include <string>

#include "imbrex_rocksdb.h"
#include "plugin.h"
#include "rocksdb/version.h"

namespace imbrex {

namespace {

// const std::string rocksdb::GetRocksVersionAsString(bool with_patch), and static ObjectLibrary::Default().
constexpr const char* kVersionName = "_ZN7rocksdb23GetRocksVersionAsStringB5cxx11Eb";
constexpr const char* kRegistryName = "_ZN7rocksdb13ObjectLibrary7DefaultEv";

struct Plugin {
  // Why there is none, or empty.
  std::string mismatch;
  decltype(&imbrex_plugin_new_file_system) new_file_system = nullptr;
  decltype(&imbrex_plugin_advise) advise = nullptr;
};

// The file that an address is in, and that file's name.
const void* FileOf(const void* address, std::string* name) {
  Dl_info info = {};
  if (address == nullptr || dladdr(address, &info) == 0) {
    return nullptr;
  }
  *name = info.dli_fname == nullptr ? "?" : info.dli_fname;
  return info.dli_fbase;
}

std::string OwnDirectory() {
  std::string name;
  FileOf(reinterpret_cast<const void*>(&OwnDirectory), &name);
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? "." : name.substr(0, slash);
}

Plugin Load() {
  Plugin plugin;
  void* const version = dlsym(RTLD_DEFAULT, kVersionName);
  void* const registry = dlsym(RTLD_DEFAULT, kRegistryName);
  const std::string built = std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR);
  const std::string advice = "; build Imbrex against the RocksDB that this program uses, or use a program with RocksDB " + built;
  if (version == nullptr && registry == nullptr) {
    plugin.mismatch = "this process has no RocksDB that the dynamic linker knows" + advice;
    return plugin;
  }
  std::string version_file;
  std::string registry_file;
  if (FileOf(version, &version_file) != FileOf(registry, &registry_file)) {
    plugin.mismatch = "this process has a RocksDB that is too old or a mixture of two (" + registry_file + ", " + version_file +
                      "), and Imbrex was built for RocksDB " + built + advice;
    return plugin;
  }
  const auto get_version = reinterpret_cast<std::string (*)(bool)>(version);
  const std::string found = get_version(/*with_patch=*/false);
  const std::string path = OwnDirectory() + "/librocksdb_imbrex-" + found + ".so";
  if (found != built && access(path.c_str(), R_OK) != 0) {
    plugin.mismatch = "this process uses RocksDB " + found + " (" + version_file + "), but Imbrex was built for RocksDB " + built + advice;
    return plugin;
  }
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    plugin.mismatch = std::string("the plug-in cannot be loaded (") + (why == nullptr ? "?" : why) +
                      "); install librocksdb_imbrex.so, librocksdb_imbrex-" + found + ".so and libimbrex.so together";
    return plugin;
  }
  const auto abi = reinterpret_cast<decltype(&imbrex_plugin_mismatch)>(dlsym(handle, "imbrex_plugin_mismatch"));
  plugin.mismatch = abi == nullptr ? path + " is no plug-in of this version; install both together" : abi();
  if (plugin.mismatch.empty()) {
    plugin.new_file_system =
        reinterpret_cast<decltype(plugin.new_file_system)>(dlsym(handle, "imbrex_plugin_new_file_system"));
    plugin.advise = reinterpret_cast<decltype(plugin.advise)>(dlsym(handle, "imbrex_plugin_advise"));
  }
  return plugin;
}

const Plugin& Loaded() {
  static const Plugin plugin = Load();
  return plugin;
}

// Runs when the library is loaded.
bool Start() noexcept {
  try {
    const bool has_rocksdb = dlsym(RTLD_DEFAULT, kVersionName) != nullptr || dlsym(RTLD_DEFAULT, kRegistryName) != nullptr;
    if (has_rocksdb && !Loaded().mismatch.empty()) {
      const std::string line = "imbrex: " + Loaded().mismatch + "\n";
      // Standard error may be closed; there is nobody else to tell.
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    }
    return has_rocksdb;
  } catch (const std::exception&) {
    return false;
  }
}

[[maybe_unused]] const bool started = Start();

}  // namespace

const std::string& AbiMismatch() { return Loaded().mismatch; }

std::shared_ptr<rocksdb::FileSystem> NewFileSystem(const imbrex_fs* fs) {
  std::shared_ptr<rocksdb::FileSystem> result;
  if (Loaded().new_file_system != nullptr) {
    Loaded().new_file_system(fs, &result);
  }
  return result;
}

rocksdb::IOStatus AdviseOptions(const imbrex_fs* fs, rocksdb::Options* options) {
  rocksdb::IOStatus status;
  if (Loaded().advise == nullptr) {
    return rocksdb::IOStatus::NotSupported(AbiMismatch());
  }
  Loaded().advise(fs, options, &status);
  return status;
}

}  // namespace imbrex
