// The C API as this library has it: by a table of pointers that the caller hands over, and never by the dynamic linker. A program may have all of Imbrex in
// itself, without libimbrex.so; a library that asked the linker for that one would bring a second engine, which finds the drive taken.
//
// build.sh includes this before each source. A name below is a call by the table then, so the sources of bindings/rocksdb need not know of it.

#pragma once

#include <imbrex.h>

// Each function of the C API that this library calls. `each(name)`.
#define IMBREX_FUNCTIONS(each)      \
  each(imbrex_error_code)           \
  each(imbrex_error_free)           \
  each(imbrex_error_message)        \
  each(imbrex_fs_advise)            \
  each(imbrex_fs_clone)             \
  each(imbrex_fs_close)             \
  each(imbrex_fs_link)              \
  each(imbrex_fs_list)              \
  each(imbrex_fs_lock)              \
  each(imbrex_fs_mkdir)             \
  each(imbrex_fs_rename)            \
  each(imbrex_fs_rmdir)             \
  each(imbrex_fs_space)             \
  each(imbrex_fs_stat)              \
  each(imbrex_fs_sync_directory)    \
  each(imbrex_fs_truncate)          \
  each(imbrex_fs_unlink)            \
  each(imbrex_list_attributes)      \
  each(imbrex_list_free)            \
  each(imbrex_list_len)             \
  each(imbrex_list_name)            \
  each(imbrex_lock_free)            \
  each(imbrex_random_close)         \
  each(imbrex_random_free)          \
  each(imbrex_random_open)          \
  each(imbrex_random_read)          \
  each(imbrex_random_sync)          \
  each(imbrex_random_write)         \
  each(imbrex_reader_free)          \
  each(imbrex_reader_open)          \
  each(imbrex_reader_read)          \
  each(imbrex_reader_readahead)     \
  each(imbrex_reader_serial)        \
  each(imbrex_reader_set_pattern)   \
  each(imbrex_reader_size)          \
  each(imbrex_writer_append)        \
  each(imbrex_writer_close)         \
  each(imbrex_writer_create)        \
  each(imbrex_writer_free)          \
  each(imbrex_writer_preallocate)   \
  each(imbrex_writer_reopen)        \
  each(imbrex_writer_serial)        \
  each(imbrex_writer_set_hint)      \
  each(imbrex_writer_set_priority)  \
  each(imbrex_writer_size)          \
  each(imbrex_writer_sync)          \
  each(imbrex_writer_truncate)

namespace imbrex {

// The types are those of imbrex.h, so the compiler looks that each call fits.
struct Functions {
#define IMBREX_MEMBER(name) decltype(&::name) name = nullptr;
  IMBREX_FUNCTIONS(IMBREX_MEMBER)
#undef IMBREX_MEMBER

  // Asks for each by its name. Returns one that is not there; NULL where all are.
  const char* Fill(void (*(*function)(const char* name))()) {
    const char* missing = nullptr;
#define IMBREX_FILL(name)                                \
  name = reinterpret_cast<decltype(name)>(function(#name)); \
  missing = name == nullptr ? #name : missing;
    IMBREX_FUNCTIONS(IMBREX_FILL)
#undef IMBREX_FILL
    return missing;
  }
};

// Filled once, before anything else of this library is called.
extern Functions functions;

// A function that is known when this is compiled, as owners of handles need it, and calls what the table has.
template <typename Pointer, Pointer Functions::*Member>
struct Forward;
template <typename Result, typename... Arguments, Result (*Functions::*Member)(Arguments...)>
struct Forward<Result (*)(Arguments...), Member> {
  static Result Call(Arguments... arguments) { return (functions.*Member)(arguments...); }
};

}  // namespace imbrex

// The preprocessor does not look for a name in what it makes of it, so the last word is the member.
#define IMBREX_FORWARD(name) (::imbrex::Forward<decltype(::imbrex::Functions::name), &::imbrex::Functions::name>::Call)

#define imbrex_error_code IMBREX_FORWARD(imbrex_error_code)
#define imbrex_error_free IMBREX_FORWARD(imbrex_error_free)
#define imbrex_error_message IMBREX_FORWARD(imbrex_error_message)
#define imbrex_fs_advise IMBREX_FORWARD(imbrex_fs_advise)
#define imbrex_fs_clone IMBREX_FORWARD(imbrex_fs_clone)
#define imbrex_fs_close IMBREX_FORWARD(imbrex_fs_close)
#define imbrex_fs_link IMBREX_FORWARD(imbrex_fs_link)
#define imbrex_fs_list IMBREX_FORWARD(imbrex_fs_list)
#define imbrex_fs_lock IMBREX_FORWARD(imbrex_fs_lock)
#define imbrex_fs_mkdir IMBREX_FORWARD(imbrex_fs_mkdir)
#define imbrex_fs_rename IMBREX_FORWARD(imbrex_fs_rename)
#define imbrex_fs_rmdir IMBREX_FORWARD(imbrex_fs_rmdir)
#define imbrex_fs_space IMBREX_FORWARD(imbrex_fs_space)
#define imbrex_fs_stat IMBREX_FORWARD(imbrex_fs_stat)
#define imbrex_fs_sync_directory IMBREX_FORWARD(imbrex_fs_sync_directory)
#define imbrex_fs_truncate IMBREX_FORWARD(imbrex_fs_truncate)
#define imbrex_fs_unlink IMBREX_FORWARD(imbrex_fs_unlink)
#define imbrex_list_attributes IMBREX_FORWARD(imbrex_list_attributes)
#define imbrex_list_free IMBREX_FORWARD(imbrex_list_free)
#define imbrex_list_len IMBREX_FORWARD(imbrex_list_len)
#define imbrex_list_name IMBREX_FORWARD(imbrex_list_name)
#define imbrex_lock_free IMBREX_FORWARD(imbrex_lock_free)
#define imbrex_random_close IMBREX_FORWARD(imbrex_random_close)
#define imbrex_random_free IMBREX_FORWARD(imbrex_random_free)
#define imbrex_random_open IMBREX_FORWARD(imbrex_random_open)
#define imbrex_random_read IMBREX_FORWARD(imbrex_random_read)
#define imbrex_random_sync IMBREX_FORWARD(imbrex_random_sync)
#define imbrex_random_write IMBREX_FORWARD(imbrex_random_write)
#define imbrex_reader_free IMBREX_FORWARD(imbrex_reader_free)
#define imbrex_reader_open IMBREX_FORWARD(imbrex_reader_open)
#define imbrex_reader_read IMBREX_FORWARD(imbrex_reader_read)
#define imbrex_reader_readahead IMBREX_FORWARD(imbrex_reader_readahead)
#define imbrex_reader_serial IMBREX_FORWARD(imbrex_reader_serial)
#define imbrex_reader_set_pattern IMBREX_FORWARD(imbrex_reader_set_pattern)
#define imbrex_reader_size IMBREX_FORWARD(imbrex_reader_size)
#define imbrex_writer_append IMBREX_FORWARD(imbrex_writer_append)
#define imbrex_writer_close IMBREX_FORWARD(imbrex_writer_close)
#define imbrex_writer_create IMBREX_FORWARD(imbrex_writer_create)
#define imbrex_writer_free IMBREX_FORWARD(imbrex_writer_free)
#define imbrex_writer_preallocate IMBREX_FORWARD(imbrex_writer_preallocate)
#define imbrex_writer_reopen IMBREX_FORWARD(imbrex_writer_reopen)
#define imbrex_writer_serial IMBREX_FORWARD(imbrex_writer_serial)
#define imbrex_writer_set_hint IMBREX_FORWARD(imbrex_writer_set_hint)
#define imbrex_writer_set_priority IMBREX_FORWARD(imbrex_writer_set_priority)
#define imbrex_writer_size IMBREX_FORWARD(imbrex_writer_size)
#define imbrex_writer_sync IMBREX_FORWARD(imbrex_writer_sync)
#define imbrex_writer_truncate IMBREX_FORWARD(imbrex_writer_truncate)
