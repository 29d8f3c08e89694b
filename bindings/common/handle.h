// Owners of the C API's handles: each gives its handle back exactly once.

#pragma once

#include <imbrex.h>

#include <memory>

namespace imbrex {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* handle) const {
    Free(handle);
  }
};

using ErrorHandle = std::unique_ptr<imbrex_error, Freer<imbrex_error_free>>;
using FsHandle = std::unique_ptr<imbrex_fs, Freer<imbrex_fs_close>>;
using KvHandle = std::unique_ptr<imbrex_kv, Freer<imbrex_kv_close>>;
using KvBatchHandle = std::unique_ptr<imbrex_kv_batch, Freer<imbrex_kv_batch_free>>;
using KvIteratorHandle = std::unique_ptr<imbrex_kv_iterator, Freer<imbrex_kv_iterator_free>>;
using KvListHandle = std::unique_ptr<imbrex_kv_list, Freer<imbrex_kv_list_free>>;
using KvSnapshotHandle = std::unique_ptr<imbrex_kv_snapshot, Freer<imbrex_kv_snapshot_free>>;
using KvValueHandle = std::unique_ptr<imbrex_kv_value, Freer<imbrex_kv_value_free>>;
using ListHandle = std::unique_ptr<imbrex_list, Freer<imbrex_list_free>>;
using LockHandle = std::unique_ptr<imbrex_lock, Freer<imbrex_lock_free>>;
using RandomHandle = std::unique_ptr<imbrex_random, Freer<imbrex_random_free>>;
using ReaderHandle = std::unique_ptr<imbrex_reader, Freer<imbrex_reader_free>>;
using WriterHandle = std::unique_ptr<imbrex_writer, Freer<imbrex_writer_free>>;

}  // namespace imbrex
