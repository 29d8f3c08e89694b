/*
 * The C API of Imbrex: files on a zoned drive.
 *
 * Ownership. Handles are opaque and belong to the caller, who gives each back exactly once to its `_free` function (`imbrex_fs_close`
 * for a file system). All of them accept NULL and do nothing. A handle keeps alive what it needs: a file system may be closed
 * before the files that were opened on it.
 *
 * Errors. A function that can fail returns NULL when it succeeded, and otherwise an error that belongs to the caller
 * (`imbrex_error_free`). Output parameters are written only on success. No panic leaves the library: it becomes an error with the
 * code IMBREX_PANIC.
 *
 * Threads. Every function may be called from any thread; what a handle allows at the same time stands with its type. After a fork
 * the child must not use the parent's handles: they answer IMBREX_FORKED_CHILD.
 *
 * Text is UTF-8 and ends with a zero byte. Paths are absolute, their separator is '/'. Sizes and offsets are bytes, times are
 * nanoseconds since 1970-01-01 UTC.
 */
#ifndef IMBREX_H
#define IMBREX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMBREX_ABI_VERSION 1

typedef enum imbrex_code {
  IMBREX_OK = 0,
  IMBREX_NOT_FOUND = 1,
  IMBREX_EXISTS = 2,
  IMBREX_NOT_A_DIRECTORY = 3,
  IMBREX_IS_A_DIRECTORY = 4,
  IMBREX_NOT_EMPTY = 5,
  IMBREX_NAME_TOO_LONG = 6,
  IMBREX_INVALID_ARGUMENT = 7,
  IMBREX_NO_SPACE = 8,
  IMBREX_CORRUPTION = 9,
  IMBREX_IO = 10,
  IMBREX_BUSY = 11,
  IMBREX_READ_ONLY = 12,
  IMBREX_NOT_SUPPORTED = 13,
  IMBREX_LOCKED = 14,
  IMBREX_POISONED = 15,
  IMBREX_FORKED_CHILD = 16,
  IMBREX_PANIC = 17,
} imbrex_code;

typedef enum imbrex_kind { IMBREX_FILE = 0, IMBREX_DIRECTORY = 1 } imbrex_kind;

/* Numbers of Linux's and RocksDB's write life-time hints. */
enum { IMBREX_HINT_NOT_SET = 0, IMBREX_HINT_NONE, IMBREX_HINT_SHORT, IMBREX_HINT_MEDIUM, IMBREX_HINT_LONG, IMBREX_HINT_EXTREME };
enum { IMBREX_PATTERN_NORMAL = 0, IMBREX_PATTERN_RANDOM, IMBREX_PATTERN_SEQUENTIAL };
enum { IMBREX_PRIORITY_LOW = 0, IMBREX_PRIORITY_MID, IMBREX_PRIORITY_HIGH, IMBREX_PRIORITY_USER, IMBREX_PRIORITY_NOT_SET };

typedef struct imbrex_error imbrex_error;
typedef struct imbrex_fs imbrex_fs;
typedef struct imbrex_list imbrex_list;
typedef struct imbrex_lock imbrex_lock;
typedef struct imbrex_random imbrex_random;
typedef struct imbrex_reader imbrex_reader;
typedef struct imbrex_writer imbrex_writer;

typedef struct imbrex_attributes {
  uint64_t serial;
  uint64_t size;
  uint64_t allocated;
  uint64_t modified_ns;
  uint32_t links;
  imbrex_kind kind;
} imbrex_attributes;

typedef struct imbrex_space {
  uint64_t total;
  uint64_t free;
} imbrex_space;

typedef struct imbrex_advice {
  uint64_t write_buffer_size;
  uint64_t target_file_size;
  uint64_t compaction_readahead_size;
  uint32_t background_jobs;
} imbrex_advice;

#ifdef __cplusplus
extern "C" {
#endif

uint32_t imbrex_abi_version(void);
const char *imbrex_version(void);

imbrex_code imbrex_error_code(const imbrex_error *error);
const char *imbrex_error_message(const imbrex_error *error);
void imbrex_error_free(imbrex_error *error);

imbrex_error *imbrex_fs_open(const char *uri, imbrex_fs **out);
imbrex_fs *imbrex_fs_clone(const imbrex_fs *fs);
void imbrex_fs_close(imbrex_fs *fs);

imbrex_error *imbrex_fs_stat(const imbrex_fs *fs, const char *path, imbrex_attributes *out);
imbrex_error *imbrex_fs_list(const imbrex_fs *fs, const char *path, imbrex_list **out);
size_t imbrex_list_len(const imbrex_list *list);
const char *imbrex_list_name(const imbrex_list *list, size_t index);
void imbrex_list_attributes(const imbrex_list *list, size_t index, imbrex_attributes *out);
void imbrex_list_free(imbrex_list *list);

imbrex_error *imbrex_fs_mkdir(const imbrex_fs *fs, const char *path);
imbrex_error *imbrex_fs_rmdir(const imbrex_fs *fs, const char *path);
imbrex_error *imbrex_fs_unlink(const imbrex_fs *fs, const char *path);
imbrex_error *imbrex_fs_rename(const imbrex_fs *fs, const char *from, const char *to);
imbrex_error *imbrex_fs_link(const imbrex_fs *fs, const char *from, const char *to);
imbrex_error *imbrex_fs_truncate(const imbrex_fs *fs, const char *path, uint64_t size);
imbrex_error *imbrex_fs_sync_directory(const imbrex_fs *fs, const char *path);
imbrex_error *imbrex_fs_space(const imbrex_fs *fs, imbrex_space *out);
imbrex_error *imbrex_fs_advise(const imbrex_fs *fs, imbrex_advice *out);

imbrex_error *imbrex_fs_lock(const imbrex_fs *fs, const char *path, imbrex_lock **out);
void imbrex_lock_free(imbrex_lock *lock);

imbrex_error *imbrex_writer_create(const imbrex_fs *fs, const char *path, imbrex_writer **out);
imbrex_error *imbrex_writer_reopen(const imbrex_fs *fs, const char *path, imbrex_writer **out);
imbrex_error *imbrex_writer_append(const imbrex_writer *writer, const void *data, size_t len);
imbrex_error *imbrex_writer_sync(const imbrex_writer *writer);
uint64_t imbrex_writer_size(const imbrex_writer *writer);
uint64_t imbrex_writer_serial(const imbrex_writer *writer);
imbrex_error *imbrex_writer_truncate(const imbrex_writer *writer, uint64_t size);
imbrex_error *imbrex_writer_preallocate(const imbrex_writer *writer, uint64_t size);
imbrex_error *imbrex_writer_set_hint(const imbrex_writer *writer, uint32_t hint);
imbrex_error *imbrex_writer_set_priority(const imbrex_writer *writer, uint32_t priority);
imbrex_error *imbrex_writer_close(const imbrex_writer *writer);
void imbrex_writer_free(imbrex_writer *writer);

imbrex_error *imbrex_reader_open(const imbrex_fs *fs, const char *path, imbrex_reader **out);
imbrex_error *imbrex_reader_read(const imbrex_reader *reader, uint64_t offset, void *buffer, size_t len, size_t *got);
uint64_t imbrex_reader_size(const imbrex_reader *reader);
uint64_t imbrex_reader_serial(const imbrex_reader *reader);
imbrex_error *imbrex_reader_readahead(const imbrex_reader *reader, uint64_t offset, uint64_t len);
imbrex_error *imbrex_reader_set_pattern(const imbrex_reader *reader, uint32_t pattern);
void imbrex_reader_free(imbrex_reader *reader);

imbrex_error *imbrex_random_open(const imbrex_fs *fs, const char *path, bool create, imbrex_random **out);
imbrex_error *imbrex_random_read(const imbrex_random *file, uint64_t offset, void *buffer, size_t len, size_t *got);
imbrex_error *imbrex_random_write(const imbrex_random *file, uint64_t offset, const void *data, size_t len);
imbrex_error *imbrex_random_sync(const imbrex_random *file);
imbrex_error *imbrex_random_close(const imbrex_random *file);
void imbrex_random_free(imbrex_random *file);

#ifdef __cplusplus
}
#endif

#endif
