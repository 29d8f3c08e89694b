// What LevelDB's db_test.cc uses of LevelDB's internals, by what every database has: a memtable becomes a table where it is flushed, and a
// level is compacted with all others. Tests that need more than that do not run (db_test.left-out).

#include <cstdlib>

#include "db/db_impl.h"
#include "leveldb/db.h"
#include "leveldb/env.h"

namespace leveldb {

// The test has made a DBImpl of its DB, which is none.
Status DBImpl::TEST_CompactMemTable() { return reinterpret_cast<DB*>(this)->Write(WriteOptions(), nullptr); }

void DBImpl::TEST_CompactRange(int, const Slice* begin, const Slice* end) { reinterpret_cast<DB*>(this)->CompactRange(begin, end); }

int64_t DBImpl::TEST_MaxNextLevelOverlappingBytes() { std::abort(); }

Iterator* DBImpl::TEST_NewInternalIterator() { std::abort(); }

Status WriteStringToFileSync(Env*, const Slice&, const std::string&) { std::abort(); }

}  // namespace leveldb
