// A program that has a RocksDB of its own on a drive, by librocksdb_imbrex.so, and on another drive an object store whose metadata are in RocksDB.
//
//   rocksdb_beside DIR          with drives DIR/files.img (a file system) and DIR/store.img (such a store)
//   rocksdb_beside hosts LIB    the library LIB refuses hosts that are of another version, each in a process of its own
//
// The last line is "N passed, N failed".

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "guest.h"
#include "handle.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"

namespace {

int passed = 0;
int failed = 0;

void Is(bool good, const std::string& what) {
  (good ? passed : failed) += 1;
  if (!good) {
    fprintf(stderr, "FAILED: %s\n", what.c_str());
  }
}

void Is(imbrex_error* error, const std::string& what) {
  const imbrex::ErrorHandle owner(error);
  Is(error == nullptr, what + ": " + imbrex_error_message(error));
}

constexpr int kRounds = 300;

// Pairs in a database on a drive or on the host.
void Pairs(const std::string& uri, const std::string& path, bool there) {
  rocksdb::Options options;
  std::shared_ptr<rocksdb::Env> guard;
  if (!uri.empty()) {
    const rocksdb::Status made = rocksdb::Env::CreateFromUri(rocksdb::ConfigOptions(), "", uri, &options.env, &guard);
    Is(made.ok(), "an Env of the drive: " + made.ToString());
    if (!made.ok()) {
      return;
    }
  }
  options.create_if_missing = true;
  // So that tables are made.
  options.write_buffer_size = 64 << 10;
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(options, path, &raw);
  const std::unique_ptr<rocksdb::DB> db(raw);
  Is(opened.ok(), "a database of the program's own: " + opened.ToString());
  bool good = opened.ok();
  for (int i = 0; good && i < kRounds; ++i) {
    std::string found;
    good = !there || (db->Get(rocksdb::ReadOptions(), std::to_string(i), &found).ok() && found == std::string(1000, 'a' + i % 26));
    good = good && db->Put(rocksdb::WriteOptions(), std::to_string(i), std::string(1000, 'a' + i % 26)).ok();
  }
  Is(good, "its pairs");
}

// Objects in a store.
void Objects(const std::string& uri, bool there) {
  imbrex_store* store = nullptr;
  Is(imbrex_store_open(uri.c_str(), &store), "a store");
  if (store == nullptr) {
    return;
  }
  imbrex_store_collection all = {1, 0};
  bool good = true;
  for (int i = 0; good && i < kRounds; ++i) {
    const std::string name = std::to_string(i);
    imbrex_store_object object = {};
    object.pool = 1;
    object.hash = imbrex_store_hash(nullptr, 0, name.data(), name.size());
    object.name = name.data();
    object.name_len = name.size();
    const std::string bytes(5000, 'A' + i % 26);
    if (there) {
      std::string found(bytes.size(), '\0');
      size_t read = 0;
      const imbrex::ErrorHandle error(imbrex_store_read(store, all, &object, 0, &found[0], found.size(), &read));
      good = error == nullptr && found == bytes;
    }
    imbrex_store_transaction* transaction = nullptr;
    const imbrex::ErrorHandle made(imbrex_store_transaction_new(&transaction));
    if (!there && i == 0) {
      imbrex_error_free(imbrex_store_create_collection(transaction, all, 0));
    }
    imbrex_error_free(imbrex_store_write(transaction, all, &object, 0, bytes.data(), bytes.size()));
    const imbrex::ErrorHandle error(imbrex_store_commit(store, transaction));
    if (error != nullptr) {
      fprintf(stderr, "%s\n", imbrex_error_message(error.get()));
    }
    good = good && error == nullptr;
  }
  Is(good, "its objects");
  imbrex_store_close(store);
}

void Beside(const std::string& directory) {
  for (const bool there : {false, true}) {
    // The store is opened first in one round, and the databases in the other.
    std::thread objects([&] { Objects("imbrex://" + directory + "/store.img?memtable=256K", there); });
    std::thread host([&] { Pairs("", directory + "/host", there); });
    Pairs("imbrex://" + directory + "/files.img", "/db", there);
    objects.join();
    host.join();
  }
}

void (*All(const char* /*name*/))() { return reinterpret_cast<void (*)()>(imbrex_abi_version); }
void (*None(const char* /*name*/))() { return nullptr; }
imbrex_error* Fail(uint32_t, const char*, size_t) { return nullptr; }
void Log(bool, const char*, size_t) {}

void Hosts(const char* library) {
  const imbrex_rocks_host good = {IMBREX_ROCKS_VERSION, IMBREX_ABI_VERSION, All, Fail, Log};
  struct Case {
    std::function<void(imbrex_rocks_host*)> change;
    const char* says;
  };
  const Case cases[] = {
      {[](imbrex_rocks_host* host) { host->version += 1; }, "another version"},
      {[](imbrex_rocks_host* host) { host->abi += 1; }, "another version"},
      {[](imbrex_rocks_host* host) { host->function = None; }, "it calls imbrex_"},
      {[](imbrex_rocks_host*) {}, nullptr},
  };
  for (const Case& one : cases) {
    // The first host counts for a process.
    const pid_t child = fork();
    if (child == 0) {
      void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
      const auto entry = loaded == nullptr ? nullptr : reinterpret_cast<decltype(&imbrex_rocks)>(dlsym(loaded, "imbrex_rocks"));
      if (entry == nullptr) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(2);
      }
      imbrex_rocks_host host = good;
      one.change(&host);
      imbrex_rocks_guest guest = {};
      const char* const why = entry(&host, &guest);
      const bool right = one.says == nullptr ? why == nullptr && guest.open != nullptr
                                             : why != nullptr && strstr(why, one.says) != nullptr && guest.open == nullptr;
      if (!right) {
        fprintf(stderr, "it says: %s\n", why == nullptr ? "nothing" : why);
      }
      _exit(right ? 0 : 1);
    }
    int status = 0;
    Is(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
       std::string("a host: ") + (one.says == nullptr ? "as it should be" : one.says));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "hosts") == 0) {
    Hosts(argv[2]);
  } else if (argc == 2) {
    Beside(argv[1]);
  } else {
    fprintf(stderr, "usage: rocksdb_beside DIR | hosts LIB\n");
    return 2;
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
