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
using ListHandle = std::unique_ptr<imbrex_list, Freer<imbrex_list_free>>;
using LockHandle = std::unique_ptr<imbrex_lock, Freer<imbrex_lock_free>>;
using RandomHandle = std::unique_ptr<imbrex_random, Freer<imbrex_random_free>>;
using ReaderHandle = std::unique_ptr<imbrex_reader, Freer<imbrex_reader_free>>;
using WriterHandle = std::unique_ptr<imbrex_writer, Freer<imbrex_writer_free>>;

}  // namespace imbrex
