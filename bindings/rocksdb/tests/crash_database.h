// A small RocksDB with several column families, opened so that all of its machinery runs within seconds, and its comparison with a State.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "crash_model.h"
#include "crash_run.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"

namespace crash {

// How a database is opened: the seed decides what must stay the same for its whole life, and each opening has a number.
struct Variant {
  uint64_t seed;
  uint64_t number;
};
// Whether obsolete WALs are kept (RocksDB moves them to the directory `archive`), so that a reader who follows them misses none.
bool KeepsWals(const Variant& variant);
// Whether memtables wait for others to be flushed with them.
bool MergesMemtables(const Variant& variant);

class Database {
 public:
  enum class Mode { kWrite, kReadOnly, kSecondary };

  // `variant` picks options at random. With `create`, what is missing is created.
  static rocksdb::Status Open(rocksdb::Env* env, const std::string& path, const Variant& variant, Mode mode, bool create,
                              std::unique_ptr<Database>* result);
  ~Database();

  rocksdb::DB* Get() const { return db_.get(); }
  rocksdb::ColumnFamilyHandle* Family(int family) const { return handles_[family]; }
  const std::vector<rocksdb::ColumnFamilyHandle*>& Families() const { return handles_; }

  // The value of the marker; empty in a new database.
  std::string Marker() const;
  // Everything, read with iterators.
  State Contents() const;
  // Dies unless the database holds `expected` exactly, by iterators in both directions and by single reads. `what` names it.
  void Compare(const State& expected, const std::string& what) const;

 private:
  Database() = default;
  // A secondary instance leaves out the last family.
  int Count() const { return static_cast<int>(handles_.size()); }

  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

}  // namespace crash
