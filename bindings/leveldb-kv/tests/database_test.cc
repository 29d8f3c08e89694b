// The contract of leveldb::DB, as a program sees it that knows nothing of Imbrex: it is linked with LevelDB alone.
//
//   database_test DIRECTORY [--only=WORD]
//
// With libleveldb_kv_imbrex.so preloaded and DIRECTORY under /imbrex/, this tests the plug-in. On the host's directories the same tests ask
// LevelDB itself: they ask for nothing that LevelDB does not promise, but for those of what only Imbrex does.

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "leveldb/c.h"
#include "leveldb/cache.h"
#include "leveldb/comparator.h"
#include "leveldb/db.h"
#include "leveldb/filter_policy.h"
#include "leveldb/write_batch.h"
#include "registry.h"

using namespace contract;
using leveldb::Comparator;
using leveldb::DB;
using leveldb::Iterator;
using leveldb::Options;
using leveldb::ReadOptions;
using leveldb::Slice;
using leveldb::Status;
using leveldb::WriteBatch;
using leveldb::WriteOptions;

namespace {

using Database = std::unique_ptr<DB>;
using Pairs = std::map<std::string, std::string>;

Options Creating(const Comparator* comparator = leveldb::BytewiseComparator()) {
  Options options;
  options.create_if_missing = true;
  options.comparator = comparator;
  return options;
}

Status Open(const std::string& name, const Options& options, Database* database) {
  DB* raw = nullptr;
  const Status status = DB::Open(options, At(name), &raw);
  database->reset(raw);
  return status;
}

std::string Get(DB* database, const std::string& key, const leveldb::Snapshot* snapshot = nullptr) {
  ReadOptions options;
  options.snapshot = snapshot;
  std::string value;
  const Status status = database->Get(options, key, &value);
  return status.ok() ? value : status.ToString();
}

// All pairs, and that they are the same from behind.
std::string All(DB* database, const leveldb::Snapshot* snapshot = nullptr) {
  ReadOptions options;
  options.snapshot = snapshot;
  const std::unique_ptr<Iterator> iterator(database->NewIterator(options));
  std::string forward;
  for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
    forward += iterator->key().ToString() + "=" + iterator->value().ToString() + " ";
  }
  std::string backward;
  for (iterator->SeekToLast(); iterator->Valid(); iterator->Prev()) {
    backward = iterator->key().ToString() + "=" + iterator->value().ToString() + " " + backward;
  }
  EXPECT_OK(iterator->status());
  EXPECT_EQ(forward, backward);
  return forward;
}

std::string Where(const Iterator* iterator) { return iterator->Valid() ? iterator->key().ToString() : "none"; }

// Upper and lower case are one key.
class Folded final : public Comparator {
 public:
  Folded(const char* name, bool backwards) : name_(name), backwards_(backwards) {}
  const char* Name() const override { return name_; }
  int Compare(const Slice& a, const Slice& b) const override {
    const int found = Lower(a).compare(Lower(b));
    return backwards_ ? -found : found;
  }
  void FindShortestSeparator(std::string*, const Slice&) const override {}
  void FindShortSuccessor(std::string*) const override {}

 private:
  static std::string Lower(const Slice& key) {
    std::string result = key.ToString();
    for (char& letter : result) {
      letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    }
    return result;
  }
  const char* const name_;
  const bool backwards_;
};

const Folded kFolded("test.Folded", false);
const Folded kBackwards("test.Backwards", true);

}  // namespace

CONTRACT_TEST(a_database_is_made_only_if_that_is_wanted) {
  Database database;
  Options options;
  Status status = Open("db", options, &database);
  EXPECT_ERROR(status, IsInvalidArgument);
  EXPECT_CONTAINS(status.ToString(), At("db") + ": does not exist (create_if_missing is false)");
  EXPECT(database == nullptr);
  NEED_OK(Open("db", Creating(), &database));
  NEED_OK(database->Put(WriteOptions(), "key", "value"));
  database.reset();
  options.error_if_exists = true;
  for (const bool create : {false, true}) {
    options.create_if_missing = create;
    status = Open("db", options, &database);
    EXPECT_ERROR(status, IsInvalidArgument);
    EXPECT_CONTAINS(status.ToString(), At("db") + ": exists (error_if_exists is true)");
  }
  NEED_OK(Open("db", Options(), &database));
  EXPECT_EQ(All(database.get()), "key=value ");
  NEED_OK(Open("new", options, &database));
  EXPECT_EQ(All(database.get()), "");
}

CONTRACT_TEST(a_database_is_open_once_at_a_time) {
  Database one;
  Database two;
  NEED_OK(Open("db", Creating(), &one));
  const Status status = Open("db", Creating(), &two);
  EXPECT_ERROR(status, IsIOError);
  EXPECT_CONTAINS(status.ToString(), At("db") + "/LOCK: already held by process");
  EXPECT_ERROR(leveldb::DestroyDB(At("db"), Options()), IsIOError);
  NEED_OK(one->Put(WriteOptions(), "still", "there"));
  one.reset();
  NEED_OK(Open("db", Options(), &two));
  EXPECT_EQ(All(two.get()), "still=there ");
}

CONTRACT_TEST(keys_and_values_are_any_bytes) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  Pairs pairs = {{"", "of the empty key"}, {"empty", ""}, {std::string("a\0b", 3), std::string("\0", 1)}, {"\xff\xff", "\xff"}};
  pairs["large"] = Bytes(5 << 20, 1);
  pairs[std::string(10000, 'k')] = "of a long key";
  for (const auto& [key, value] : pairs) {
    EXPECT_OK(database->Put(WriteOptions(), key, value));
  }
  for (int opening = 0; opening < 2; ++opening) {
    for (const auto& [key, value] : pairs) {
      EXPECT(Get(database.get(), key) == value);
    }
    const std::unique_ptr<Iterator> iterator(database->NewIterator(ReadOptions()));
    iterator->SeekToFirst();
    for (const auto& [key, value] : pairs) {
      EXPECT(iterator->Valid() && iterator->key() == key && iterator->value() == value);
      iterator->Next();
    }
    EXPECT(!iterator->Valid());
    if (opening == 0) {
      database->CompactRange(nullptr, nullptr);
    }
  }
  std::string value = "untouched";
  const Status status = database->Get(ReadOptions(), "missing", &value);
  EXPECT_ERROR(status, IsNotFound);
  EXPECT_EQ(status.ToString(), "NotFound: ");
  EXPECT_EQ(value, "untouched");
  NEED_OK(database->Delete(WriteOptions(), "missing"));
  NEED_OK(database->Delete(WriteOptions(), ""));
  EXPECT_EQ(Get(database.get(), ""), "NotFound: ");
}

CONTRACT_TEST(a_batch_counts_in_its_order) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  WriteBatch batch;
  batch.Put("a", "1");
  batch.Put("b", "1");
  batch.Delete("a");
  batch.Put("b", "2");
  batch.Delete("c");
  batch.Put("c", "1");
  WriteOptions synced;
  synced.sync = true;
  for (const WriteOptions& options : {WriteOptions(), synced}) {
    NEED_OK(database->Write(options, &batch));
    EXPECT_EQ(All(database.get()), "b=2 c=1 ");
    WriteBatch more;
    more.Delete("b");
    more.Delete("c");
    more.Append(batch);
    more.Put("d", "1");
    NEED_OK(database->Write(options, &more));
    EXPECT_EQ(All(database.get()), "b=2 c=1 d=1 ");
    WriteBatch nothing;
    NEED_OK(database->Write(options, &nothing));
    NEED_OK(database->Put(options, "d", "2"));
    NEED_OK(database->Delete(options, "d"));
  }
  EXPECT_EQ(All(database.get()), "b=2 c=1 ");
}

CONTRACT_TEST(iterators_go_both_ways) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  std::unique_ptr<Iterator> iterator(database->NewIterator(ReadOptions()));
  iterator->SeekToFirst();
  EXPECT_EQ(Where(iterator.get()), "none");
  for (const std::string key : {"b", "d", "f"}) {
    NEED_OK(database->Put(WriteOptions(), key, "of " + key));
  }
  iterator->SeekToFirst();
  EXPECT_EQ(Where(iterator.get()), "none");
  iterator.reset(database->NewIterator(ReadOptions()));
  EXPECT(!iterator->Valid());
  // What comes later is not seen.
  NEED_OK(database->Put(WriteOptions(), "c", "later"));
  NEED_OK(database->Delete(WriteOptions(), "f"));
  for (const auto& [target, found] : Pairs{{"", "b"}, {"b", "b"}, {"bb", "d"}, {"c", "d"}, {"e", "f"}, {"g", "none"}}) {
    iterator->Seek(target);
    EXPECT_EQ(Where(iterator.get()), found);
  }
  iterator->Seek("d");
  EXPECT_EQ(iterator->value().ToString(), "of d");
  iterator->Next();
  EXPECT_EQ(Where(iterator.get()), "f");
  iterator->Prev();
  EXPECT_EQ(Where(iterator.get()), "d");
  iterator->Prev();
  EXPECT_EQ(Where(iterator.get()), "b");
  iterator->Prev();
  EXPECT_EQ(Where(iterator.get()), "none");
  iterator->SeekToLast();
  EXPECT_EQ(Where(iterator.get()), "f");
  iterator->Next();
  EXPECT_EQ(Where(iterator.get()), "none");
  EXPECT_OK(iterator->status());
  // Whoever registered for its end is told, in the order that LevelDB has.
  int told = 0;
  const auto tell = [](void* count, void* by) { *static_cast<int*>(count) += *static_cast<int*>(by); };
  int one = 1;
  int ten = 10;
  iterator->RegisterCleanup(tell, &told, &one);
  iterator->RegisterCleanup(tell, &told, &ten);
  iterator.reset();
  EXPECT_EQ(told, 11);
  EXPECT_EQ(All(database.get()), "b=of b c=later d=of d ");
}

CONTRACT_TEST(snapshots_stay_as_they_were) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  const leveldb::Snapshot* const empty = database->GetSnapshot();
  NEED_OK(database->Put(WriteOptions(), "key", "1"));
  const leveldb::Snapshot* const one = database->GetSnapshot();
  const leveldb::Snapshot* const same = database->GetSnapshot();
  NEED_OK(database->Put(WriteOptions(), "key", "2"));
  NEED_OK(database->Put(WriteOptions(), "new", "2"));
  const leveldb::Snapshot* const two = database->GetSnapshot();
  NEED_OK(database->Delete(WriteOptions(), "key"));
  for (int merged = 0; merged < 2; ++merged) {
    EXPECT_EQ(All(database.get(), empty), "");
    EXPECT_EQ(All(database.get(), one), "key=1 ");
    EXPECT_EQ(Get(database.get(), "key", same), "1");
    EXPECT_EQ(Get(database.get(), "new", same), "NotFound: ");
    EXPECT_EQ(All(database.get(), two), "key=2 new=2 ");
    EXPECT_EQ(All(database.get()), "new=2 ");
    database->CompactRange(nullptr, nullptr);
  }
  database->ReleaseSnapshot(one);
  database->ReleaseSnapshot(empty);
  EXPECT_EQ(Get(database.get(), "key", same), "1");
  database->ReleaseSnapshot(same);
  database->ReleaseSnapshot(two);
}

IMBREX_TEST(snapshots_that_nobody_released_keep_nothing_open) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  NEED_OK(database->Put(WriteOptions(), "key", "value"));
  database->GetSnapshot();
  database->GetSnapshot();
  database.reset();
  // A comparator of the heap shows that the store is closed.
  const std::unique_ptr<Folded> folded(new Folded("test.Passing", false));
  NEED_OK(Open("other", Creating(folded.get()), &database));
  database.reset();
  NEED_OK(leveldb::DestroyDB(At("other"), Creating(folded.get())));
}

CONTRACT_TEST(properties_are_those_that_programs_ask_for) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  NEED_OK(database->Put(WriteOptions(), "key", Bytes(10000, 1)));
  std::string value;
  EXPECT(database->GetProperty("leveldb.approximate-memory-usage", &value));
  EXPECT(std::stoull(value) >= 10000);
  database->CompactRange(nullptr, nullptr);
  int tables = 0;
  for (int level = 0; level < 7; ++level) {
    EXPECT(database->GetProperty("leveldb.num-files-at-level" + std::to_string(level), &value));
    tables += std::stoi(value);
  }
  EXPECT(tables > 0);
  EXPECT(database->GetProperty("leveldb.stats", &value));
  EXPECT_CONTAINS(value, "Level  Files Size(MB)");
  EXPECT(database->GetProperty("leveldb.sstables", &value));
  EXPECT_CONTAINS(value, "--- level 1 ---");
  for (const char* const unknown : {"", "leveldb", "leveldb.", "leveldb.nothing", "num-files-at-level0", "leveldb.num-files-at-level", "leveldb.num-files-at-level7",
                                    "leveldb.num-files-at-level1x", "leveldb.num-files-at-level-1", "leveldb.statss"}) {
    value = "old";
    EXPECT(!database->GetProperty(unknown, &value));
    EXPECT_EQ(value, "");
  }
}

CONTRACT_TEST(sizes_are_about_right) {
  Database database;
  Options options = Creating();
  options.compression = leveldb::kNoCompression;
  NEED_OK(Open("db", options, &database));
  for (int i = 0; i < 1000; ++i) {
    NEED_OK(database->Put(WriteOptions(), std::to_string(1000 + i), Bytes(1000, i)));
  }
  database->CompactRange(nullptr, nullptr);
  const leveldb::Range ranges[] = {{"1000", "1500"}, {"1500", "2"}, {"0", "3"}, {"3", "4"}};
  uint64_t sizes[] = {7, 7, 7, 7};
  database->GetApproximateSizes(ranges, 4, sizes);
  for (const int half : {0, 1}) {
    EXPECT(sizes[half] > 450000 && sizes[half] < 560000);
  }
  EXPECT(sizes[2] > 950000 && sizes[2] < 1100000);
  EXPECT(sizes[3] < 10000);
}

CONTRACT_TEST(ranges_can_be_compacted) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  Pairs pairs;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 300; ++i) {
      const std::string key = std::to_string(1000 + (i * 7 + round) % 400);
      pairs[key] = Bytes(200, i + round);
      NEED_OK(database->Put(WriteOptions(), key, pairs[key]));
    }
    const Slice from = "1100";
    const Slice to = "1300";
    database->CompactRange(&from, &to);
    database->CompactRange(&from, nullptr);
    database->CompactRange(nullptr, &to);
    database->CompactRange(&to, &from);
  }
  std::string wanted;
  for (const auto& [key, value] : pairs) {
    wanted += key + "=" + value + " ";
  }
  EXPECT(All(database.get()) == wanted);
}

CONTRACT_TEST(a_database_keeps_its_comparator) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  database.reset();
  Status status = Open("db", Creating(&kFolded), &database);
  EXPECT_ERROR(status, IsInvalidArgument);
  EXPECT_EQ(status.ToString(), "Invalid argument: leveldb.BytewiseComparator does not match existing comparator : test.Folded");
  NEED_OK(Open("folded", Creating(&kFolded), &database));
  database.reset();
  status = Open("folded", Creating(), &database);
  EXPECT_EQ(status.ToString(), "Invalid argument: test.Folded does not match existing comparator : leveldb.BytewiseComparator");
  NEED_OK(leveldb::DestroyDB(At("folded"), Options()));
}

CONTRACT_TEST(comparators_in_static_storage_share_a_drive) {
  Database folded;
  Database backwards;
  Database bytes;
  for (int opening = 0; opening < 3; ++opening) {
    NEED_OK(Open("folded", Creating(&kFolded), &folded));
    NEED_OK(Open("backwards", Creating(&kBackwards), &backwards));
    NEED_OK(Open("bytes", Creating(), &bytes));
    if (opening == 0) {
      for (DB* const database : {folded.get(), backwards.get(), bytes.get()}) {
        for (const char* const key : {"B", "a", "C", "A", "b"}) {
          NEED_OK(database->Put(WriteOptions(), key, key));
        }
      }
    }
    EXPECT_EQ(Get(folded.get(), "a"), "A");
    EXPECT_EQ(Get(folded.get(), "A"), "A");
    EXPECT_EQ(Get(backwards.get(), "B"), "b");
    EXPECT_EQ(Get(bytes.get(), "a"), "a");
    EXPECT_EQ(Get(bytes.get(), "c"), "NotFound: ");
    const std::unique_ptr<Iterator> iterator(backwards->NewIterator(ReadOptions()));
    std::string order;
    for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next()) {
      order += iterator->value().ToString();
    }
    EXPECT_EQ(order, "CbA");
    iterator->Seek("BB");
    EXPECT_EQ(iterator->value().ToString(), "b");
    if (opening == 1) {
      for (DB* const database : {folded.get(), backwards.get(), bytes.get()}) {
        database->CompactRange(nullptr, nullptr);
      }
    }
    EXPECT_EQ(All(bytes.get()), "A=A B=B C=C a=a b=b ");
    // Iterators go before their databases.
    const_cast<std::unique_ptr<Iterator>&>(iterator).reset();
    folded.reset();
    backwards.reset();
    bytes.reset();
  }
  // Nobody need know a comparator to destroy a database.
  NEED_OK(leveldb::DestroyDB(At("folded"), Options()));
  NEED_OK(leveldb::DestroyDB(At("backwards"), Options()));
}

IMBREX_TEST(a_comparator_of_the_heap_has_the_store_alone) {
  Database database;
  Database other;
  std::unique_ptr<Folded> folded(new Folded("test.Passing", false));
  NEED_OK(Open("other", Creating(), &other));
  Status status = Open("db", Creating(folded.get()), &database);
  EXPECT_ERROR(status, IsInvalidArgument);
  EXPECT_CONTAINS(status.ToString(), "static storage");
  other.reset();
  NEED_OK(Open("db", Creating(folded.get()), &database));
  NEED_OK(database->Put(WriteOptions(), "Key", "value"));
  status = Open("other", Creating(), &other);
  EXPECT_ERROR(status, IsInvalidArgument);
  EXPECT_CONTAINS(status.ToString(), At("db"));
  EXPECT_EQ(Get(database.get(), "kEY"), "value");
  database.reset();
  folded.reset();
  // The store must know the comparators of all its databases.
  status = Open("other", Creating(), &other);
  EXPECT(!status.ok());
  EXPECT_CONTAINS(status.ToString(), "test.Passing");
  folded.reset(new Folded("test.Passing", false));
  NEED_OK(Open("db", Creating(folded.get()), &database));
  EXPECT_EQ(Get(database.get(), "KEY"), "value");
  database.reset();
  NEED_OK(leveldb::DestroyDB(At("db"), Creating(folded.get())));
  NEED_OK(Open("other", Creating(), &other));
}

CONTRACT_TEST(what_is_destroyed_is_gone) {
  Database kept;
  Database database;
  NEED_OK(Open("kept", Creating(), &kept));
  NEED_OK(kept->Put(WriteOptions(), "key", "kept"));
  for (int round = 0; round < 3; ++round) {
    NEED_OK(Open("db", Creating(), &database));
    EXPECT_EQ(All(database.get()), "");
    NEED_OK(database->Put(WriteOptions(), "key", "value"));
    if (round == 1) {
      database->CompactRange(nullptr, nullptr);
    }
    database.reset();
    NEED_OK(leveldb::DestroyDB(At("db"), Options()));
    EXPECT_ERROR(Open("db", Options(), &database), IsInvalidArgument);
  }
  EXPECT_OK(leveldb::DestroyDB(At("never"), Options()));
  EXPECT_EQ(All(kept.get()), "key=kept ");
}

CONTRACT_TEST(a_database_can_be_repaired) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  NEED_OK(database->Put(WriteOptions(), "key", "value"));
  database->CompactRange(nullptr, nullptr);
  NEED_OK(database->Put(WriteOptions(), "other", "value"));
  database.reset();
  NEED_OK(leveldb::RepairDB(At("db"), Options()));
  NEED_OK(Open("db", Options(), &database));
  EXPECT_EQ(All(database.get()), "key=value other=value ");
}

IMBREX_TEST(only_a_closed_database_that_is_there_is_repaired) {
  EXPECT_ERROR(leveldb::RepairDB(At("never"), Options()), IsIOError);
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  EXPECT_ERROR(leveldb::RepairDB(At("db"), Options()), IsIOError);
}

CONTRACT_TEST(options_of_leveldb_are_taken) {
  const std::unique_ptr<const leveldb::FilterPolicy> filter(leveldb::NewBloomFilterPolicy(10));
  const std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(1 << 20));
  for (const size_t buffer : {1, 100000, 1 << 20}) {
    Options options = Creating();
    options.filter_policy = filter.get();
    options.block_cache = cache.get();
    options.write_buffer_size = buffer;
    options.block_size = 512;
    options.max_file_size = 1 << 20;
    options.max_open_files = 20;
    options.reuse_logs = true;
    options.paranoid_checks = true;
    options.compression = leveldb::kSnappyCompression;
    Database database;
    NEED_OK(Open("db", options, &database));
    ReadOptions reading;
    reading.verify_checksums = true;
    reading.fill_cache = false;
    for (int i = 0; i < 3000; ++i) {
      NEED_OK(database->Put(WriteOptions(), std::to_string(i), Bytes(100, i + buffer)));
    }
    std::string value;
    for (int i = 0; i < 3000; ++i) {
      NEED_OK(database->Get(reading, std::to_string(i), &value));
      EXPECT(value == Bytes(100, i + buffer));
    }
  }
}

CONTRACT_TEST(many_databases_are_open_at_once) {
  std::vector<Database> databases(20);
  for (int i = 0; i < 20; ++i) {
    NEED_OK(Open(std::to_string(i), Creating(), &databases[i]));
    NEED_OK(databases[i]->Put(WriteOptions(), "key", std::to_string(i)));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(All(databases[i].get()), "key=" + std::to_string(i) + " ");
  }
}

CONTRACT_TEST(threads_share_a_database) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&database, thread] {
      for (int i = 0; i < 500; ++i) {
        const std::string key = std::to_string(thread) + "." + std::to_string(i);
        WriteBatch batch;
        batch.Put("a" + key, key);
        batch.Put("b" + key, key);
        EXPECT_OK(database->Write(WriteOptions(), &batch));
        const leveldb::Snapshot* const snapshot = database->GetSnapshot();
        EXPECT_EQ(Get(database.get(), "b" + key, snapshot), key);
        database->ReleaseSnapshot(snapshot);
        const std::unique_ptr<Iterator> iterator(database->NewIterator(ReadOptions()));
        iterator->Seek("b" + key);
        EXPECT_EQ(Where(iterator.get()), "b" + key);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

CONTRACT_TEST(the_c_functions_lead_there_too) {
  char* error = nullptr;
  const std::string path = At("db");
  leveldb_options_t* const options = leveldb_options_create();
  EXPECT(leveldb_open(options, path.c_str(), &error) == nullptr);
  EXPECT_CONTAINS(error == nullptr ? "" : error, "does not exist");
  leveldb_free(error);
  error = nullptr;
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_t* const database = leveldb_open(options, path.c_str(), &error);
  if (database == nullptr) {
    Fail(__FILE__, __LINE__, error);
    return;
  }
  leveldb_writeoptions_t* const writing = leveldb_writeoptions_create();
  leveldb_readoptions_t* const reading = leveldb_readoptions_create();
  leveldb_put(database, writing, "key", 3, "value", 5, &error);
  EXPECT(error == nullptr);
  size_t len = 0;
  char* const value = leveldb_get(database, reading, "key", 3, &len, &error);
  EXPECT_EQ(std::string(value, len), "value");
  leveldb_free(value);
  leveldb_close(database);
  Database same;
  NEED_OK(Open("db", Options(), &same));
  EXPECT_EQ(All(same.get()), "key=value ");
  same.reset();
  leveldb_destroy_db(options, path.c_str(), &error);
  EXPECT(error == nullptr);
  EXPECT_ERROR(Open("db", Options(), &same), IsInvalidArgument);
  leveldb_readoptions_destroy(reading);
  leveldb_writeoptions_destroy(writing);
  leveldb_options_destroy(options);
}

IMBREX_TEST(a_path_is_one_however_it_is_written) {
  Database database;
  NEED_OK(Open("a/b", Creating(), &database));
  Database same;
  EXPECT_ERROR(Open("/a//./x/../b/", Creating(), &same), IsIOError);
}

IMBREX_TEST(a_key_that_is_too_long_is_refused_and_nothing_else) {
  Database database;
  NEED_OK(Open("db", Creating(), &database));
  const std::string key(70000, 'k');
  EXPECT_ERROR(database->Put(WriteOptions(), key, "value"), IsInvalidArgument);
  EXPECT_ERROR(database->Delete(WriteOptions(), key), IsInvalidArgument);
  WriteBatch batch;
  batch.Put("first", "value");
  batch.Put(key, "value");
  EXPECT_ERROR(database->Write(WriteOptions(), &batch), IsInvalidArgument);
  EXPECT_EQ(All(database.get()), "");
  NEED_OK(database->Put(WriteOptions(), "first", "value"));
  EXPECT_EQ(All(database.get()), "first=value ");
}

int main(int argc, char** argv) {
  Runner runner;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--only=", 0) == 0) {
      runner.only = argument.substr(7);
    } else {
      runner.base = argument;
    }
  }
  if (runner.base.empty()) {
    fputs("usage: database_test DIRECTORY [--only=WORD]\n", stderr);
    return 2;
  }
  runner.posix = runner.base.rfind("/imbrex", 0) != 0;
  if (runner.posix) {
    runner.make = [](const std::string& path) { return mkdir(path.c_str(), 0755) == 0; };
    runner.remove = [](const std::string& path) {
      int code = 0;
      Run({"/bin/rm", "-rf", path}, {}, &code);
    };
  } else {
    // A path needs no directories, and what a test leaves is of no other's names.
    runner.make = [](const std::string&) { return true; };
    runner.remove = [](const std::string&) {};
  }
  return RunTests(runner);
}
