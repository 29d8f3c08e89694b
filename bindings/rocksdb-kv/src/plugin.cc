// librocksdb_kv_imbrex-<version>.so: what an object store asks of its metadata, answered by RocksDB.

#include "guest.h"

#include <mutex>
#include <string>

#include "database.h"
#include "failure.h"
#include "rocksdb/utilities/object_registry.h"
#include "rocksdb/version.h"

struct imbrex_rocks_database {
  std::unique_ptr<imbrex::Database> database;
};

namespace imbrex {

namespace {

using rocksdb::Slice;
using rocksdb::Status;

Slice Key(const void* key, size_t length) { return Slice(static_cast<const char*>(key), length); }

imbrex_error* Open(const imbrex_fs* fs, const imbrex_rocks_options* options, imbrex_rocks_database** out) {
  return Bounded([&] {
    std::unique_ptr<Database> database;
    const Status status = Database::Open(FsHandle(imbrex_fs_clone(fs)), *options, &database);
    if (status.ok()) {
      *out = new imbrex_rocks_database{std::move(database)};
    }
    return status;
  });
}

void Close(imbrex_rocks_database* database) {
  imbrex_error* const error = Bounded([&] {
    delete database;
    return Status::OK();
  });
  imbrex_error_free(error);
}

imbrex_error* Get(const imbrex_rocks_database* database, uint32_t family, const void* key, size_t length, void* context,
                  imbrex_rocks_taker take) {
  return Bounded([&] { return database->database->Get(family, Key(key, length), context, take); });
}

bool GetWouldRead(const imbrex_rocks_database* database, uint32_t family, const void* key, size_t length) {
  bool would = false;
  imbrex_error_free(Bounded([&] {
    would = database->database->GetWouldRead(family, Key(key, length));
    return Status::OK();
  }));
  return would;
}

imbrex_error* Pairs(const imbrex_rocks_database* database, const imbrex_rocks_range* range, void* context, imbrex_rocks_taker take) {
  return Bounded([&] { return database->database->Pairs(*range, context, take); });
}

imbrex_error* Write(imbrex_rocks_database* database, const imbrex_rocks_change* changes, size_t count) {
  return Bounded([&] { return database->database->Write(changes, count); });
}

imbrex_error* Sync(imbrex_rocks_database* database) {
  return Bounded([&] { return database->database->Sync(); });
}

imbrex_error* MakeRoom(imbrex_rocks_database* database) {
  return Bounded([&] { return database->database->MakeRoom(); });
}

imbrex_error* Check(const imbrex_rocks_database* database, void* context, imbrex_rocks_taker take) {
  return Bounded([&] {
    const Status status = database->database->Check();
    if (!status.IsCorruption()) {
      return status;
    }
    const std::string sentence = "Tables of the metadata in RocksDB are damaged: " + status.ToString() + ".";
    take(context, sentence.data(), sentence.size(), nullptr, 0);
    return Status::OK();
  });
}

// Takes what it needs of the host; or returns why not.
std::string Bind(const imbrex_rocks_host& given) {
  if (given.version != IMBREX_ROCKS_VERSION || given.abi != IMBREX_ABI_VERSION) {
    return "it is of another version than this program; install both together";
  }
  const std::string built = std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR);
  const std::string found = rocksdb::GetRocksVersionAsString(/*with_patch=*/false);
  if (found != built) {
    return "it was built for RocksDB " + built + ", and this process has RocksDB " + found;
  }
  Functions filled;
  const char* const missing = filled.Fill(given.function);
  if (missing != nullptr) {
    return std::string("it calls ") + missing + ", which this program has not; install both together";
  }
  functions = filled;
  host = given;
  return std::string();
}

}  // namespace
}  // namespace imbrex

const char* imbrex_rocks(const imbrex_rocks_host* given, imbrex_rocks_guest* guest) {
  static std::once_flag once;
  static std::string refused;
  try {
    std::call_once(once, [&] { refused = imbrex::Bind(*given); });
  } catch (...) {
    return "memory is out";
  }
  if (!refused.empty()) {
    return refused.c_str();
  }
  *guest = {imbrex::Open,  imbrex::Close, imbrex::Get,      imbrex::GetWouldRead, imbrex::Pairs,
            imbrex::Write, imbrex::Sync,  imbrex::MakeRoom, imbrex::Check};
  return nullptr;
}
