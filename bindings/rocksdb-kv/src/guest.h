// What the caller and this library give each other. `bindings/c/src/rocksdb/guest.rs` has the same in Rust; who changes one changes both, and the version.
//
// Pointers to bytes count for the time of the call. No exception leaves this library. Functions that can fail return NULL or an error, which belongs to the
// caller, as those of imbrex.h do.

#pragma once

#include <imbrex.h>

#define IMBREX_ROCKS_VERSION 2

extern "C" {

// What the caller has.
struct imbrex_rocks_host {
  // IMBREX_ROCKS_VERSION and IMBREX_ABI_VERSION, which have to be this library's.
  uint32_t version;
  uint32_t abi;
  // A function of the C API by its name; NULL where there is none.
  void (*(*function)(const char* name))();
  // An error of this code (an imbrex_code) and sentence.
  imbrex_error* (*failure)(uint32_t code, const char* sentence, size_t length);
  // A line for the log. `severe`: something has failed, and nobody else may hear of it.
  void (*log)(bool severe, const char* line, size_t length);
};

// How a database is opened.
struct imbrex_rocks_options {
  // Bytes of changes that stand in memory and in write-ahead logs.
  uint64_t memtable;
  // Bytes of the cache of blocks; 0: none.
  uint64_t cache;
  // Bytes of one table; 0: what suits the drive.
  uint64_t table;
  // Names of the families. Others are errors, and those that are not there yet are made.
  const char* const* families;
  size_t family_count;
  // It is only looked at: nothing is done in the background.
  bool look;
  // It is made where there is none. Else that is damage: a second one would delete the files of the first.
  bool create;
};

enum { IMBREX_ROCKS_PUT = 0, IMBREX_ROCKS_DELETE = 1, IMBREX_ROCKS_DELETE_RANGE = 2 };

// One change. The second bytes are the value, or the end of the range.
struct imbrex_rocks_change {
  uint32_t kind;
  // Its place among the names.
  uint32_t family;
  const void* first;
  size_t first_length;
  const void* second;
  size_t second_length;
};

// A range of keys of a family, from the first on and before the second, which is NULL where there is no end.
struct imbrex_rocks_range {
  uint32_t family;
  // They are more than others would want in the cache.
  bool far;
  const void* from;
  size_t from_length;
  const void* to;
  size_t to_length;
  // So many pairs at most.
  size_t most;
};

// Takes a pair, or a value without a key, or a sentence as a key.
typedef void (*imbrex_rocks_taker)(void* context, const void* key, size_t key_length, const void* value, size_t value_length);

struct imbrex_rocks_database;

// What this library has. Any number of threads may use a database at once.
struct imbrex_rocks_guest {
  imbrex_error* (*open)(const imbrex_fs* fs, const imbrex_rocks_options* options, imbrex_rocks_database** out);
  void (*close)(imbrex_rocks_database* database);
  // Gives `take` the value, or nothing.
  imbrex_error* (*get)(const imbrex_rocks_database* database, uint32_t family, const void* key, size_t length, void* context,
                       imbrex_rocks_taker take);
  bool (*get_would_read)(const imbrex_rocks_database* database, uint32_t family, const void* key, size_t length);
  // Gives `take` the pairs in order, all of one moment.
  imbrex_error* (*pairs)(const imbrex_rocks_database* database, const imbrex_rocks_range* range, void* context, imbrex_rocks_taker take);
  // All or none. They outlive the process as far as appends to files do.
  imbrex_error* (*write)(imbrex_rocks_database* database, const imbrex_rocks_change* changes, size_t count);
  // What was written so far is durable.
  imbrex_error* (*sync)(imbrex_rocks_database* database);
  // What was deleted becomes room, as far as RocksDB does that by itself: waits for what it has to do in the background.
  imbrex_error* (*make_room)(imbrex_rocks_database* database);
  // Reads all tables and compares them with their checksums. Gives `take` a sentence for each problem.
  imbrex_error* (*check)(const imbrex_rocks_database* database, void* context, imbrex_rocks_taker take);
};

// The one symbol that this library exports. Fills `*guest`; or returns why not, a sentence's end that lives as long as the library. The first host counts for
// the whole process.
__attribute__((visibility("default"))) const char* imbrex_rocks(const imbrex_rocks_host* host, imbrex_rocks_guest* guest);

}  // extern "C"
