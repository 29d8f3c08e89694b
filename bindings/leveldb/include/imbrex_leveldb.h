// LevelDB on a zoned drive: what a program that links libleveldb_imbrex.so may call.
//
// Most programs need nothing of this. With the library preloaded (LD_PRELOAD), or linked before LevelDB (-lleveldb_imbrex -lleveldb),
// and the environment variable IMBREX_DRIVE set to a drive ("/data/drive.img", "/dev/sdb?cache=2G", "imbrex://mem:?profile=tiny"),
// leveldb::Env::Default() is an Env for which every path under /imbrex/ is on that drive, and every other where it always was. Without
// the variable, leveldb::Env::Default() is LevelDB's own.
//
// libleveldb_imbrex.so loads the plug-in proper, libleveldb_imbrex-<version>.so, from beside itself. That is built for one minor version
// of LevelDB and for its shared library. A process with any other, or with one inside (as PyPI's plyvel has), ends with a sentence as
// soon as it asks for leveldb::Env::Default() with IMBREX_DRIVE set: to go on would leave its data somewhere else than on the drive.

#pragma once

#include <imbrex.h>

#include <string>

#include "leveldb/env.h"
#include "leveldb/options.h"

#if defined(__GNUC__)
#define IMBREX_LEVELDB_EXPORT __attribute__((visibility("default")))
#else
#define IMBREX_LEVELDB_EXPORT
#endif

namespace imbrex {

// An Env on the drive that a URI names, as "imbrex:///dev/sdb?cache=2G"; all paths are on the drive. It belongs to the caller and must
// outlive the databases that use it; the drive is released with the last of them. Returns nullptr, with a sentence in `*error`, when the
// drive cannot be opened or the LevelDB in this process is of another version than the plug-in was built for.
IMBREX_LEVELDB_EXPORT leveldb::Env* NewLevelDbEnv(const std::string& uri, std::string* error);

// The same on a file system of Imbrex that is already open. Takes a reference of its own: the caller keeps `fs` and closes it whenever
// it likes.
IMBREX_LEVELDB_EXPORT leveldb::Env* NewLevelDbEnv(const imbrex_fs* fs, std::string* error);

// Sets in `*options` what suits the drive, and leaves everything else alone: write_buffer_size and max_file_size (a little less than a
// zone, because a table that is much smaller wastes the rest of its zone). False, with a sentence in `*error`, when that fails.
IMBREX_LEVELDB_EXPORT bool AdviseLevelDbOptions(const imbrex_fs* fs, leveldb::Options* options, std::string* error);

}  // namespace imbrex
