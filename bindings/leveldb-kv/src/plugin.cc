#include "plugin.h"

#include "mismatch.h"
#include "status.h"
#include "store.h"

void imbrex_leveldb_kv_mismatch(const void* original, std::string* mismatch) {
  *mismatch = imbrex::Mismatch(original, "libleveldb_kv_imbrex.so");
}

void imbrex_leveldb_kv_open(const std::string& uri, const std::string& path, const leveldb::Options& options, leveldb::DB** database,
                            leveldb::Status* status) {
  *database = nullptr;
  *status = imbrex::Guarded([&] { return imbrex::Store::OfProcess().Open(uri, path, options, database); });
}

void imbrex_leveldb_kv_destroy(const std::string& uri, const std::string& path, const leveldb::Options& options, leveldb::Status* status) {
  *status = imbrex::Guarded([&] { return imbrex::Store::OfProcess().Destroy(uri, path, options); });
}

void imbrex_leveldb_kv_repair(const std::string& uri, const std::string& path, const leveldb::Options& options, leveldb::Status* status) {
  *status = imbrex::Guarded([&] { return imbrex::Store::OfProcess().Repair(uri, path, options); });
}
