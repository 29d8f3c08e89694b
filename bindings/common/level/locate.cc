#include "locate.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>

#include "drive_path.h"
// Only the numbers of the version are used.
#include "leveldb/db.h"

namespace imbrex {

namespace {

constexpr const char* kMajorName = "leveldb_major_version";
constexpr const char* kMinorName = "leveldb_minor_version";

std::string FileOf(const void* address) {
  Dl_info info = {};
  return address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr ? std::string() : info.dli_fname;
}

// A name as the file around `address` sees it without us; nullptr if it does not.
void* Find(const void* address, const char* name, const void* own) {
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

}  // namespace

LevelDb Locate(const void* caller, const char* name, const void* own) {
  LevelDb found;
  found.function = Find(caller, name, own);
  found.file = FileOf(found.function);
  const auto number = [&](const char* which) {
    return reinterpret_cast<int (*)()>(found.function == nullptr ? nullptr : Find(found.function, which, own));
  };
  const auto major = number(kMajorName);
  const auto minor = number(kMinorName);
  if (major != nullptr && minor != nullptr && FileOf(reinterpret_cast<const void*>(major)) == found.file) {
    found.version = std::to_string(major()) + "." + std::to_string(minor());
  }
  return found;
}

void* PluginFile::Symbol(const char* name) const { return dlsym(handle, name); }

PluginFile LoadPlugin(const LevelDb& leveldb, const std::string& stem, const char* ask) {
  PluginFile plugin;
  const std::string built = std::to_string(leveldb::kMajorVersion) + "." + std::to_string(leveldb::kMinorVersion);
  const std::string advice = "; use a program with the shared library of LevelDB " + built + ", as Debian's python3-plyvel, or build Imbrex against "
                             "the LevelDB that this program uses";
  if (leveldb.function == nullptr) {
    plugin.mismatch = "this process has no LevelDB that the dynamic linker knows" + advice;
    return plugin;
  }
  if (leveldb.version.empty()) {
    plugin.mismatch = "this process uses a LevelDB that does not tell its version (inside " + leveldb.file + ")" + advice;
    return plugin;
  }
  const std::string self = FileOf(reinterpret_cast<const void*>(&LoadPlugin));
  const size_t slash = self.rfind('/');
  const std::string name = stem + "-" + leveldb.version + ".so";
  const std::string path = (slash == std::string::npos ? "." : self.substr(0, slash)) + "/" + name;
  if (leveldb.version != built && access(path.c_str(), R_OK) != 0) {
    plugin.mismatch = "this process uses LevelDB " + leveldb.version + " (" + leveldb.file + "), but Imbrex was built for LevelDB " + built + advice;
    return plugin;
  }
  plugin.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin.handle == nullptr) {
    const char* const why = dlerror();
    plugin.mismatch = std::string("the plug-in cannot be loaded (") + (why == nullptr ? "?" : why) + "); install " + stem + ".so, " + name +
                      " and libimbrex.so together";
    return plugin;
  }
  const auto mismatch = reinterpret_cast<void (*)(const void*, std::string*)>(plugin.Symbol(ask));
  if (mismatch == nullptr) {
    plugin.mismatch = path + " is no plug-in of this version; install both together";
    return plugin;
  }
  mismatch(leveldb.function, &plugin.mismatch);
  if (!plugin.mismatch.empty()) {
    plugin.mismatch += advice;
  }
  return plugin;
}

const char* DriveOfEnvironment() {
  const char* const drive = getenv(kDriveVariable);
  return drive == nullptr || *drive == '\0' ? nullptr : drive;
}

void Refuse(const std::string& why) {
  const std::string line = "imbrex: " + why + "; or unset " + kDriveVariable + "\n";
  // Standard error may be closed; there is nobody else to tell.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

}  // namespace imbrex
