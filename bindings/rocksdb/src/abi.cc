// RocksDB's classes are an interface of C++: their layout and the order of their virtual functions change between minor versions. A
// plug-in of another version would not fail, it would call the wrong functions. So nothing of it is touched before the version is
// known.

#include "abi.h"

#include <dlfcn.h>
#include <imbrex.h>

#include "rocksdb/utilities/object_registry.h"
#include "rocksdb/version.h"

namespace imbrex {

namespace {

// The file that a function was found in. Where two versions of librocksdb are in a process (the program's, and the one that the
// plug-in links), each name is found in the first that has it: names from two files are a mixture.
const void* FileOf(const void* function, std::string* name) {
  Dl_info info = {};
  if (function == nullptr || dladdr(function, &info) == 0) {
    return nullptr;
  }
  *name = info.dli_fname == nullptr ? "?" : info.dli_fname;
  return info.dli_fbase;
}

std::string Check() {
  const std::string built = std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR);
  const std::string advice = "; build Imbrex against the RocksDB that this program uses, or run the program with RocksDB " + built;

  std::string version_file;
  std::string registry_file;
  const void* const version_base = FileOf(reinterpret_cast<const void*>(&rocksdb::GetRocksVersionAsString), &version_file);
  const void* const registry_base = FileOf(reinterpret_cast<const void*>(&rocksdb::ObjectLibrary::Default), &registry_file);
  if (version_base != registry_base) {
    return "this process mixes two versions of RocksDB (" + registry_file + " and " + version_file +
           "), and the Imbrex plug-in was built for " + built + advice;
  }
  const std::string found = rocksdb::GetRocksVersionAsString(false);
  if (found != built) {
    return "this process uses RocksDB " + found + " (" + version_file + "), but the Imbrex plug-in was built for RocksDB " + built + advice;
  }
  if (imbrex_abi_version() != IMBREX_ABI_VERSION) {
    return "the Imbrex plug-in was built for version " + std::to_string(IMBREX_ABI_VERSION) + " of libimbrex.so, but this process has version " +
           std::to_string(imbrex_abi_version()) + "; install librocksdb_imbrex.so and libimbrex.so together";
  }
  return std::string();
}

}  // namespace

const std::string& CheckedAbi() {
  static const std::string mismatch = Check();
  return mismatch;
}

}  // namespace imbrex
