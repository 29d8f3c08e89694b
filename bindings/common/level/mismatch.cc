#include "mismatch.h"

#include <dlfcn.h>
#include <imbrex.h>

#include "leveldb/c.h"
#include "leveldb/env.h"

namespace imbrex {

namespace {

const void* FileOf(const void* address, std::string* name) {
  Dl_info info = {};
  if (dladdr(address, &info) == 0) {
    return nullptr;
  }
  *name = info.dli_fname == nullptr ? "?" : info.dli_fname;
  return info.dli_fbase;
}

}  // namespace

std::string Mismatch(const void* original, const std::string& name) {
  if (imbrex_abi_version() != IMBREX_ABI_VERSION) {
    return "libimbrex.so is of another version than the plug-in; install " + name + " and libimbrex.so together";
  }
  std::string theirs;
  const void* const file = FileOf(original, &theirs);
  // Where this plug-in has its LevelDB from. Each name is found by itself, so a program that shows only some of its own makes a mixture.
  for (const void* const used : {reinterpret_cast<const void*>(&leveldb_major_version), reinterpret_cast<const void*>(&leveldb::WriteStringToFile),
                                 reinterpret_cast<const void*>(&leveldb::ReadFileToString)}) {
    std::string ours;
    if (FileOf(used, &ours) != file) {
      return "this process brings its own LevelDB (" + theirs + "), but Imbrex was built for the shared library (" + ours + ")";
    }
  }
  return std::string();
}

}  // namespace imbrex
