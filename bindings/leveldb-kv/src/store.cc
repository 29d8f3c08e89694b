#include "store.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "database.h"
#include "drive_path.h"
#include "leveldb/comparator.h"
#include "status.h"

namespace imbrex {

using leveldb::Comparator;
using leveldb::Options;
using leveldb::Slice;
using leveldb::Status;

namespace {

int Compare(void* state, const void* a, size_t a_len, const void* b, size_t b_len) {
  const auto slice = [](const void* data, size_t len) { return len == 0 ? Slice() : Slice(static_cast<const char*>(data), len); };
  return static_cast<const Comparator*>(state)->Compare(slice(a, a_len), slice(b, b_len));
}

// The order of bytes is the store's own.
bool IsBytewise(const Comparator* comparator) { return comparator->Name() == std::string(leveldb::BytewiseComparator()->Name()); }

// Whether an object is part of the program or of a library, and so there until the process ends.
bool IsLasting(const void* object) {
  Dl_info info = {};
  return dladdr(object, &info) != 0;
}

imbrex_kv_order OrderOf(const Comparator* comparator) { return {comparator->Name(), Compare, const_cast<Comparator*>(comparator)}; }

// A space is named by its path behind /imbrex/; the directory itself is the space without a name.
std::string SpaceOf(const std::string& path) {
  std::string inside;
  IsOnDrive(path, &inside);
  return inside.substr(1);
}

// The URI with the options that LevelDB's become, where it does not say them itself. They count if the store is not open yet.
std::string WithOptions(const std::string& uri, const Options& options) {
  // LevelDB's own limits (db/db_impl.cc, SanitizeOptions), and its default, which is nobody's wish.
  const size_t wanted = std::min<size_t>(std::max<size_t>(options.write_buffer_size, 64 << 10), 1 << 30);
  if (options.write_buffer_size == Options().write_buffer_size || uri.find("memtable=") != std::string::npos) {
    return uri;
  }
  return uri + (uri.find('?') == std::string::npos ? "?" : "&") + "memtable=" + std::to_string(wanted);
}

// Opens a space; the URI's store with it, if this process has it not open.
imbrex_error* OpenSpace(const std::string& uri, const std::string& space, const Options& options, imbrex_kv_mode mode, KvHandle* kv) {
  const bool bytewise = IsBytewise(options.comparator);
  const imbrex_kv_order order = OrderOf(options.comparator);
  if (!bytewise && IsLasting(options.comparator)) {
    imbrex_error* const error = imbrex_kv_know(&order);
    if (error != nullptr) {
      return error;
    }
  }
  imbrex_kv* raw = nullptr;
  imbrex_error* const error =
      imbrex_kv_open(WithOptions(uri, options).c_str(), space.c_str(), bytewise ? nullptr : &order, space.empty() ? IMBREX_KV_OPEN : mode, &raw);
  kv->reset(raw);
  return error;
}

// The space without a name, which each store has.
imbrex_error* OpenUnnamed(const std::string& uri, KvHandle* kv) {
  imbrex_kv* raw = nullptr;
  imbrex_error* const error = imbrex_kv_open(uri.c_str(), nullptr, nullptr, IMBREX_KV_OPEN, &raw);
  kv->reset(raw);
  return error;
}

// An error of the drive or the store. What is missing is not a key.
Status OfStore(imbrex_error* error, const std::string& path) {
  const Status status = ToStatus(error, path);
  return status.IsNotFound() ? Status::IOError(status.ToString()) : status;
}

// The name of the order of a space; empty where there is no such space.
std::string StoredOrder(const imbrex_kv* kv, const std::string& space) {
  imbrex_kv_list* raw = nullptr;
  const ErrorHandle error(imbrex_kv_spaces(kv, &raw));
  const KvListHandle spaces(raw);
  for (size_t i = 0; i < imbrex_kv_list_len(raw); ++i) {
    if (space == imbrex_kv_list_text(raw, i)) {
      return imbrex_kv_list_order(raw, i);
    }
  }
  return space.empty() ? leveldb::BytewiseComparator()->Name() : "";
}

Status Exists(const std::string& path) { return Status::InvalidArgument(path, "exists (error_if_exists is true)"); }

}  // namespace

// Registers a path as open; gives it back unless it is kept.
class Store::Claim {
 public:
  Claim(Store* store, std::string path) : store_(store), path_(std::move(path)) {}
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() {
    if (taken_) {
      store_->Close(path_, KvHandle());
    }
  }
  Status Take(const Comparator* comparator) {
    const std::lock_guard<std::mutex> lock(store_->mutex_);
    if (store_->open_.count(path_) != 0) {
      return Status::IOError("lock " + path_ + "/LOCK", "already held by process");
    }
    const bool passing = !IsBytewise(comparator) && !IsLasting(comparator);
    for (const auto& [other, its] : store_->open_) {
      if (passing || its) {
        return Status::InvalidArgument(
            path_, "a comparator that is not in static storage may be destroyed with its database, but the store would need it as long as "
                   "any database is open; close " + other + ", or put the database on a drive of its own, or make the comparator static");
      }
    }
    store_->open_.emplace(path_, passing);
    taken_ = true;
    return Status::OK();
  }
  void Keep() { taken_ = false; }

 private:
  Store* const store_;
  const std::string path_;
  bool taken_ = false;
};

Store& Store::OfProcess() {
  // Never destroyed: databases may be closed by destructors of static objects.
  static Store* const store = new Store;
  return *store;
}

Status Store::Open(const std::string& uri, const std::string& path, const Options& options, leveldb::DB** database) {
  const std::string absolute = Absolute(path);
  const std::string space = SpaceOf(absolute);
  Claim claim(this, absolute);
  Status status = claim.Take(options.comparator);
  if (!status.ok()) {
    return status;
  }
  const imbrex_kv_mode mode = !options.create_if_missing ? IMBREX_KV_OPEN : options.error_if_exists ? IMBREX_KV_CREATE_NEW : IMBREX_KV_CREATE;
  KvHandle kv;
  ErrorHandle error(OpenSpace(uri, space, options, mode, &kv));
  if (error == nullptr) {
    if (options.error_if_exists && (mode == IMBREX_KV_OPEN || space.empty())) {
      return Exists(absolute);
    }
    *database = new Database(absolute, std::move(kv));
    claim.Keep();
    return status;
  }
  // Sentences of LevelDB, where it is about the database. The store itself has the same codes for other reasons.
  KvHandle unnamed;
  const ErrorHandle broken(OpenUnnamed(uri, &unnamed));
  if (broken == nullptr) {
    switch (imbrex_error_code(error.get())) {
      case IMBREX_NOT_FOUND:
        return Status::InvalidArgument(absolute, "does not exist (create_if_missing is false)");
      case IMBREX_EXISTS:
        return Exists(absolute);
      case IMBREX_INVALID_ARGUMENT: {
        const std::string stored = StoredOrder(unnamed.get(), space);
        if (!stored.empty() && stored != options.comparator->Name()) {
          return Status::InvalidArgument(stored + " does not match existing comparator ", options.comparator->Name());
        }
        break;
      }
      default:
        break;
    }
  }
  return OfStore(error.release(), absolute);
}

Status Store::Destroy(const std::string& uri, const std::string& path, const Options& options) {
  const std::string absolute = Absolute(path);
  const std::string space = SpaceOf(absolute);
  if (space.empty()) {
    return Status::NotSupported(absolute, "the space without a name is part of the store; `imbrex kv format --force` empties the drive");
  }
  Claim claim(this, absolute);
  Status status = claim.Take(options.comparator);
  if (!status.ok()) {
    return status;
  }
  // The store must know the comparator, if it is another one. Whether the database has it does not matter.
  KvHandle kv;
  const ErrorHandle ignored(OpenSpace(uri, space, options, IMBREX_KV_OPEN, &kv));
  KvHandle unnamed;
  status = OfStore(OpenUnnamed(uri, &unnamed), absolute);
  if (!status.ok()) {
    return status;
  }
  kv.reset();
  imbrex_error* const error = imbrex_kv_drop(unnamed.get(), space.c_str());
  status = ToStatus(error, absolute);
  // As with LevelDB, nothing is not an error.
  return status.IsNotFound() ? Status::OK() : status;
}

Status Store::Repair(const std::string& uri, const std::string& path, const Options& options) {
  const std::string absolute = Absolute(path);
  Claim claim(this, absolute);
  Status status = claim.Take(options.comparator);
  KvHandle kv;
  if (status.ok()) {
    status = OfStore(OpenSpace(uri, SpaceOf(absolute), options, IMBREX_KV_OPEN, &kv), absolute);
  }
  imbrex_kv_list* raw = nullptr;
  if (status.ok()) {
    status = OfStore(imbrex_kv_check(kv.get(), &raw), absolute);
  }
  const KvListHandle damage(raw);
  const size_t found = imbrex_kv_list_len(raw);
  if (found != 0) {
    return Status::Corruption(absolute, std::string(imbrex_kv_list_text(raw, 0)) + (found == 1 ? "" : ", and " + std::to_string(found - 1) + " more") +
                                            "; `imbrex kv check` names all damage");
  }
  return status;
}

void Store::Close(const std::string& path, KvHandle handle) noexcept {
  handle.reset();
  const std::lock_guard<std::mutex> lock(mutex_);
  open_.erase(path);
}

}  // namespace imbrex
