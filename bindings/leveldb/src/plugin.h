// What the loader calls in the plug-in. `original` is the Default() of the LevelDB that the program uses.

#pragma once

#include <imbrex.h>

#include <string>

#include "leveldb/env.h"
#include "leveldb/options.h"

#define IMBREX_PLUGIN_EXPORT __attribute__((visibility("default")))

extern "C" {

// Why the plug-in cannot be used in this process, of whose LevelDB `original` is a function; empty when it can.
IMBREX_PLUGIN_EXPORT void imbrex_leveldb_mismatch(const void* original, std::string* mismatch);

// The Env with paths under /imbrex/ on the drive `drive` (a URI, or the locator in one), for the whole life of the process. nullptr when
// memory is out.
IMBREX_PLUGIN_EXPORT leveldb::Env* imbrex_leveldb_default_env(leveldb::Env* original, const char* drive);

// See imbrex_leveldb.h.
IMBREX_PLUGIN_EXPORT leveldb::Env* imbrex_leveldb_open(leveldb::Env* original, const char* uri, std::string* error);
IMBREX_PLUGIN_EXPORT leveldb::Env* imbrex_leveldb_new(leveldb::Env* original, const imbrex_fs* fs, std::string* error);
IMBREX_PLUGIN_EXPORT bool imbrex_leveldb_advise(const imbrex_fs* fs, leveldb::Options* options, std::string* error);

}  // extern "C"
