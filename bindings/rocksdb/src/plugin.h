// What the loader calls in the plug-in.

#pragma once

#include <imbrex.h>

#include <memory>

#include "rocksdb/file_system.h"
#include "rocksdb/options.h"

#define IMBREX_PLUGIN_EXPORT __attribute__((visibility("default")))

extern "C" {

// Why the libimbrex.so of this process cannot be used with the plug-in; empty when it can, and then "imbrex://" is registered.
IMBREX_PLUGIN_EXPORT const char* imbrex_plugin_mismatch();

// See imbrex_rocksdb.h. Nothing is stored when `fs` is null or memory is out.
IMBREX_PLUGIN_EXPORT void imbrex_plugin_new_file_system(const imbrex_fs* fs, std::shared_ptr<rocksdb::FileSystem>* result);
IMBREX_PLUGIN_EXPORT void imbrex_plugin_advise(const imbrex_fs* fs, rocksdb::Options* options, rocksdb::IOStatus* status);

}  // extern "C"
