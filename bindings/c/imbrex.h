/*
 * The C API of Imbrex: files, chunks, keys with values, objects, and block images, on zoned drives.
 *
 * Made by cbindgen of the sources in bindings/c/src; change those, not this file.
 *
 * Ownership. Handles are opaque and belong to the caller, who gives each back exactly once to its `_free` function
 * (`imbrex_fs_close` for a file system, `imbrex_chunk_close` for a chunk store, `imbrex_kv_close` for a space of a key-value
 * store, `imbrex_store_close` for an object store, `imbrex_images_close` and `imbrex_image_close` for images); all of these accept NULL and then do nothing. A handle keeps alive what it needs: a file system may be closed before
 * the files that were opened on it. Strings that are returned belong to the library and live as long as the handle that they
 * came from.
 *
 * Errors. A function that can fail returns NULL when it succeeded, and otherwise an error that belongs to the caller
 * (`imbrex_error_free`). Output parameters are written only on success. No panic leaves the library: it becomes an error with
 * the code IMBREX_PANIC. NULL where a handle, a string or an output parameter is wanted is IMBREX_INVALID_ARGUMENT.
 *
 * Threads. Every function may be called from any thread; what a handle allows at the same time stands with its type. After a
 * fork the child must not use the parent's handles nor open others: it gets IMBREX_FORKED_CHILD, and what it frees is left alone.
 *
 * Text is UTF-8 and ends with a zero byte. Paths are absolute, their separator is '/', a name has 1 to 255 bytes. Sizes and
 * offsets are bytes.
 */


#ifndef IMBREX_H
#define IMBREX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Version of this API; it changes when programs must be compiled anew. See imbrex_abi_version().
#define IMBREX_ABI_VERSION 1

// Bytes of a span; see imbrex_reader_span.
#define IMBREX_SPAN 262144

// Bytes of a chunk's id.
#define IMBREX_CHUNK_ID_BYTES 24

// Kind of stream: objects' data on its way in.
#define IMBREX_STREAM_DATA 0

// Kind of stream: metadata of the layer above.
#define IMBREX_STREAM_METADATA 1

// Kind of stream: what the layer above writes when it collects its own garbage.
#define IMBREX_STREAM_GC 2

// For imbrex_chunk_append(): wherever the chunk ends.
#define IMBREX_ANY_OFFSET UINT64_MAX

// Most bytes of a chunk's name, and its NUL.
#define IMBREX_CHUNK_NAME_BYTES 1024

// Most bytes of a key.
#define IMBREX_KV_KEY_BYTES 65536

// Most bytes of a value. A drive with small zones takes less.
#define IMBREX_KV_VALUE_BYTES 4294836224

// What kind of an error it is. Later versions may add codes.
typedef enum {
  // No error.
  IMBREX_OK = 0,
  // No such file or directory.
  IMBREX_NOT_FOUND = 1,
  // It exists already.
  IMBREX_EXISTS = 2,
  // A component of the path, or the thing itself, is no directory.
  IMBREX_NOT_A_DIRECTORY = 3,
  // It is a directory.
  IMBREX_IS_A_DIRECTORY = 4,
  // The directory has entries.
  IMBREX_NOT_EMPTY = 5,
  // A name of more than 255 bytes, or a path that is too long or too deep.
  IMBREX_NAME_TOO_LONG = 6,
  // The call makes no sense; the message says why.
  IMBREX_INVALID_ARGUMENT = 7,
  // The drive is full. Deleting still works.
  IMBREX_NO_SPACE = 8,
  // Bytes are not what they were.
  IMBREX_CORRUPTION = 9,
  // The drive or the system failed.
  IMBREX_IO = 10,
  // Another process has the drive.
  IMBREX_BUSY = 11,
  // Only reads are possible.
  IMBREX_READ_ONLY = 12,
  // Deliberately not supported.
  IMBREX_NOT_SUPPORTED = 13,
  // The name is locked.
  IMBREX_LOCKED = 14,
  // An earlier failure stopped all writes: close everything and open the drive again.
  IMBREX_POISONED = 15,
  // A child of fork used its parent's file system.
  IMBREX_FORKED_CHILD = 16,
  // A bug of the library. What the call was to do may have happened or not.
  IMBREX_PANIC = 17,
  // The chunk is sealed: it takes no more appends.
  IMBREX_SEALED = 18,
  // The chunk does not end at the offset that the append expects, and nothing was appended.
  IMBREX_WRONG_OFFSET = 19,
  // The chunk has no room for the append: go on in another one.
  IMBREX_CHUNK_FULL = 20,
  // There is nothing at this offset of the chunk.
  IMBREX_RANGE = 21,
  // The iterator was kept for too long: the store was full, and needed the old values. Begin another one.
  IMBREX_EXPIRED = 22,
} imbrex_code;

// Whether a name stands for a file or a directory.
typedef enum {
  // A file.
  IMBREX_FILE = 0,
  // A directory.
  IMBREX_DIRECTORY = 1,
} imbrex_kind;

// How long what is written will live, with the numbers of Linux's and RocksDB's hints.
typedef enum {
  // Not said.
  IMBREX_HINT_NOT_SET = 0,
  // No hint.
  IMBREX_HINT_NONE = 1,
  // A log.
  IMBREX_HINT_SHORT = 2,
  // A table of the first levels.
  IMBREX_HINT_MEDIUM = 3,
  // A table of the lower levels.
  IMBREX_HINT_LONG = 4,
  // A table of the last level.
  IMBREX_HINT_EXTREME = 5,
} imbrex_hint;

// How urgent writes are, with RocksDB's numbers.
typedef enum {
  // A compaction.
  IMBREX_PRIORITY_LOW = 0,
  // In between.
  IMBREX_PRIORITY_MID = 1,
  // A memtable that is flushed.
  IMBREX_PRIORITY_HIGH = 2,
  // Somebody waits for it.
  IMBREX_PRIORITY_USER = 3,
  // Not said.
  IMBREX_PRIORITY_NOT_SET = 4,
} imbrex_priority;

// How a file is going to be read.
typedef enum {
  // Not said.
  IMBREX_PATTERN_NORMAL = 0,
  // Here and there.
  IMBREX_PATTERN_RANDOM = 1,
  // From the beginning to the end.
  IMBREX_PATTERN_SEQUENTIAL = 2,
} imbrex_pattern;

// What becomes of a space that is not there.
typedef enum {
  // It is an error: IMBREX_NOT_FOUND.
  IMBREX_KV_OPEN = 0,
  // It is made.
  IMBREX_KV_CREATE = 1,
  // It is made. One that is there is an error: IMBREX_EXISTS.
  IMBREX_KV_CREATE_NEW = 2,
} imbrex_kv_mode;

// A chunk store on a drive. Any number of threads may use it at once.
typedef struct imbrex_chunk_store imbrex_chunk_store;

// An error: a code and a sentence. It does not change; any thread may look at it.
typedef struct imbrex_error imbrex_error;

// A file system on a drive. Any number of threads may use it at once.
typedef struct imbrex_fs imbrex_fs;

// An open image, or a snapshot of one. Any number of threads may use it at once.
typedef struct imbrex_image imbrex_image;

// Names of images. It does not change; any thread may look at it.
typedef struct imbrex_image_list imbrex_image_list;

// The images of an object store. Any number of threads may use them at once.
typedef struct imbrex_images imbrex_images;

// A space of a key-value store: keys with values, in an order. Any number of threads may use it at once.
typedef struct imbrex_kv imbrex_kv;

// Changes that are made together. One thread may change it at a time.
typedef struct imbrex_kv_batch imbrex_kv_batch;

// Sorted pairs on their way into a space. One thread may use it at a time.
typedef struct imbrex_kv_ingest imbrex_kv_ingest;

// A place among the keys of a space. One thread may use it at a time.
typedef struct imbrex_kv_iterator imbrex_kv_iterator;

// Names of spaces, or sentences. It does not change; any thread may look at it.
typedef struct imbrex_kv_list imbrex_kv_list;

// A moment of a store. It does not change; any thread may use it.
typedef struct imbrex_kv_snapshot imbrex_kv_snapshot;

// A value. It does not change; any thread may look at it.
typedef struct imbrex_kv_value imbrex_kv_value;

// The names in a directory, as they were when it was made. It does not change; any thread may look at it.
typedef struct imbrex_list imbrex_list;

// Holds a lock until it is given back.
typedef struct imbrex_lock imbrex_lock;

// A file that is read and written at any offset. One thread may write or close at a time; others may read and sync meanwhile.
typedef struct imbrex_random imbrex_random;

// A file that is read. Any number of threads may use it at once. It sees what is appended while it is open.
typedef struct imbrex_reader imbrex_reader;

// An open object store. Any number of threads may use it at once.
typedef struct imbrex_store imbrex_store;

// Objects, or pairs of a key and a value, in order; or sentences. It does not change; any thread may look at it.
typedef struct imbrex_store_list imbrex_store_list;

// Steps that happen together or not at all, in the order in which they are added. One thread may change it at a time.
typedef struct imbrex_store_transaction imbrex_store_transaction;

// A file that is appended to. One thread may append, truncate or close at a time; others may sync and ask meanwhile.
typedef struct imbrex_writer imbrex_writer;

// What a name stands for.
typedef struct {
  // The number of the file, never given to a second one on the same drive.
  uint64_t serial;
  // Bytes, those not yet durable included.
  uint64_t size;
  // Bytes that it takes of the drive.
  uint64_t allocated;
  // When it was changed, in nanoseconds since 1970-01-01 UTC.
  uint64_t modified_ns;
  // How many names it has.
  uint32_t links;
  // What it is.
  imbrex_kind kind;
} imbrex_attributes;

// Space, in bytes.
typedef struct {
  // What files can ever take.
  uint64_t total;
  // What new files can take now.
  uint64_t free;
} imbrex_space;

// Settings for a log-structured database on the drive.
typedef struct {
  // Bytes of a memtable.
  uint64_t write_buffer_size;
  // Bytes of a table: a little less than a zone holds.
  uint64_t target_file_size;
  // Bytes that compactions read ahead.
  uint64_t compaction_readahead_size;
  // Threads for flushes and compactions.
  uint32_t background_jobs;
} imbrex_advice;

// What a salvage has found.
typedef struct {
  // Chunks that are there.
  uint64_t chunks;
  // Records that were found in zones that were read; 0 where journal and checkpoints were whole.
  uint64_t records;
  // Zones that were read.
  uint64_t zones;
  // Sentences about damage, each of which is logged as a warning.
  uint64_t damage;
  // Of a new label: written zones that are not this store's, which are kept as they are.
  uint32_t kept_zones;
  // The label was lost, and was made anew.
  bool relabelled;
} imbrex_chunk_salvaged;

// Id of a chunk; ids sort by their bytes.
typedef struct {
  // Any bytes.
  uint8_t bytes[IMBREX_CHUNK_ID_BYTES];
} imbrex_chunk_id;

// What a chunk is.
typedef struct {
  // Its id.
  imbrex_chunk_id id;
  // Bytes.
  uint64_t len;
  // In how many appends it came.
  uint32_t records;
  // In how many zones it stands.
  uint32_t zones;
  // Its kind of stream.
  uint8_t stream;
  // Whether it takes no more appends.
  bool sealed;
} imbrex_chunk_info;

// Room, in bytes.
typedef struct {
  // What the drive takes of chunks that are appended in pieces of 1 MiB.
  uint64_t total;
  // Of chunks.
  uint64_t live;
  // What surely can be appended so before anything is cleaned.
  uint64_t free;
  // What cleaning makes room of.
  uint64_t dead;
} imbrex_chunk_space;

// Bytes of a chunk that are not there as they were written.
typedef struct {
  // The chunk.
  imbrex_chunk_id id;
  // Offset in the chunk of the first byte.
  uint64_t offset;
  // Bytes; where they are damaged and not lost, some of them are. 0: the chunk is open and may have been longer, by how much is not known.
  uint64_t len;
  // The zone where they stood.
  uint32_t zone;
  // The zone is offline, and nothing of it can be read. Else the scrub has found them damaged.
  bool lost;
} imbrex_chunk_damage;

// A name and what it stands for.
typedef struct {
  // Ends with a NUL.
  char name[IMBREX_CHUNK_NAME_BYTES];
  // How many chunks it stands for.
  size_t chunks;
  // Their bytes.
  uint64_t len;
  // All of them take no more appends.
  bool sealed;
} imbrex_chunk_named_info;

// An order of keys. The name is copied. `compare` and `state` must stay valid as long as the process has any handle of a store, snapshot
// or iterator: the library compares keys in the background, too.
typedef struct {
  // The store keeps it, and opens the space only with an order of this name.
  const char *name;
  // Less than 0, 0, or more than 0: `a` is before, the same key as, or behind `b`. Any thread may call it, and several at once. It must be a total
  // order, and always the same. It must not call this library. An exception that leaves it ends the process.
  int (*compare)(void *state, const void *a, size_t a_len, const void *b, size_t b_len);
  // What `compare` is called with.
  void *state;
} imbrex_kv_order;

// Bytes that the library has.
typedef struct {
  const void *data;
  size_t len;
} imbrex_kv_bytes;

// How values of a space come of the one before and of operands. Functions and `state` must stay valid as long as the process has any handle of a store, snapshot
// or iterator. Any thread may call the functions, several at once, also in the background. What they make must depend on their arguments alone. They must not call
// this library, but for imbrex_kv_value_append(). An exception that leaves one ends the process.
typedef struct {
  // Appends the key's value to `result`, which is empty. `value`: the one before, NULL where there was none. `operands`: `count` of them, the oldest first.
  void (*merge)(void *state,
                const void *key,
                size_t key_len,
                const void *value,
                size_t value_len,
                const imbrex_kv_bytes *operands,
                size_t count,
                imbrex_kv_value *result);
  // Appends one operand to `result` that does what these do together, the oldest first, and returns true. NULL, or false: there is none; then all are kept until the value
  // before is known.
  bool (*combine)(void *state,
                  const void *key,
                  size_t key_len,
                  const imbrex_kv_bytes *operands,
                  size_t count,
                  imbrex_kv_value *result);
  // What the functions are called with.
  void *state;
} imbrex_kv_merge_operator;

// What a store has.
typedef struct {
  // Bytes of changes in memory.
  uint64_t memory;
  // Bytes of the write-ahead log that an opening would read.
  uint64_t log;
  // Tables.
  uint64_t tables;
  // Their bytes.
  uint64_t table_bytes;
  // Their entries; a key may have several.
  uint64_t entries;
  // Zones with tables or bytes of the log.
  uint32_t zones_used;
  // Zones that may still be taken.
  uint32_t zones_free;
  // Partitions of the keys.
  uint32_t partitions;
  // Sorted runs of tables that may have a key.
  uint32_t depth;
} imbrex_kv_figures;

// Limits of an image. 0: there is none.
typedef struct {
  // Bytes that it may take: `used` and `kept` of imbrex_image_info together. A write beyond them fails with IMBREX_NO_SPACE.
  uint64_t used;
  // Reads, writes and discards a second, of all clients together. Others wait.
  uint64_t iops;
  // Bytes that are read and written a second, of all clients together. Others wait.
  uint64_t bandwidth;
} imbrex_image_limits;

// What an image is.
typedef struct {
  // Its size in bytes.
  uint64_t size;
  // Bytes of blocks that stand for it now. Those that it shares with others count; those that it has of a parent do not.
  uint64_t used;
  // Bytes of blocks that were kept for its snapshots when it changed behind them.
  uint64_t kept;
  // What it may take, and what may be asked of it.
  imbrex_image_limits limits;
  // Seconds since 1970 when it was made.
  uint64_t created;
  // Its snapshots.
  uint32_t snapshots;
  // It is a clone, and has what it has not changed of its parent.
  bool clone;
} imbrex_image_info;

// A part of a pool. Its objects' hashes have the same lowest bits as `seed`.
typedef struct {
  // Which pool.
  int64_t pool;
  // The lowest bits of its objects' hashes.
  uint32_t seed;
} imbrex_store_collection;

// What an object is called. Any bytes will do for name and namespace, up to 4,096 each; they need not end with a zero byte.
typedef struct {
  // Which pool.
  int64_t pool;
  // Decides in which collection of the pool it is. imbrex_store_hash() gives one.
  uint32_t hash;
  // Names of one namespace stand together. NULL where it is empty.
  const void *namespace_;
  // Bytes of the namespace.
  size_t namespace_len;
  // Its name there. NULL where it is empty.
  const void *name;
  // Bytes of the name.
  size_t name_len;
  // Of which snapshot: the caller's number.
  uint64_t snap;
  // Which generation: the caller's number.
  uint64_t generation;
} imbrex_store_object;

// What a caller expects of an object.
typedef struct {
  // It will be this long, in bytes; 0: unknown.
  uint64_t object;
  // It is written in pieces of so many bytes; 0: unknown.
  uint64_t write;
  // It is written once, or only appended to, and read in long pieces.
  bool immutable;
  // It will be gone soon.
  bool short_lived;
} imbrex_store_hint;

// How full a store is, in bytes where nothing else is said.
typedef struct {
  // Objects.
  uint64_t objects;
  // Of all objects, holes with them.
  uint64_t bytes;
  // Of blocks that objects name on the drive, each once however many share it; and those of which changes wait (`uncounted`).
  uint64_t stored;
  // Of blocks that wait in the metadata.
  uint64_t deferred;
  // Of zones that are free for the store.
  uint64_t free;
  // That the cleaner has moved since the opening.
  uint64_t moved;
  // Changes of how many extents name a blob that wait until many are made together: not bytes.
  uint64_t uncounted;
  // That the store can have, if no other engine of the drive takes more zones.
  uint64_t capacity;
} imbrex_store_usage;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The error's code; IMBREX_OK for NULL.
imbrex_code imbrex_error_code(const imbrex_error *error);

// The error's sentence, which says what to do; valid as long as the error. Empty for NULL.
const char *imbrex_error_message(const imbrex_error *error);

// Gives an error back. NULL is fine.
void imbrex_error_free(imbrex_error *error);

// The IMBREX_ABI_VERSION of the library; a program must not go on where it is another than that of its header.
uint32_t imbrex_abi_version(void);

// Version of the library, as "0.1.0".
const char *imbrex_version(void);

// Opens the drive of a URI, as "imbrex:///dev/sdb?cache=2G", "imbrex:///data/drive.img" or "imbrex://mem:?profile=tiny". A
// process has one file system of a drive: opening it again gives another handle of the same. The drive is released when the
// last handle is closed and everything that was opened on it is given back.
//
// Warnings go to standard error; the environment variable IMBREX_LOG asks for more ("debug") or none ("off"). IMBREX_METRICS
// asks for metrics in Prometheus's format: "127.0.0.1:9899" serves them, "/path/imbrex.prom" keeps a file of them.
imbrex_error *imbrex_fs_open(const char *uri, imbrex_fs **out);

// One more handle of the same file system, to be closed like the first; NULL for NULL.
imbrex_fs *imbrex_fs_clone(const imbrex_fs *fs);

// Gives a handle of a file system back. NULL is fine.
void imbrex_fs_close(imbrex_fs *fs);

// What a path stands for.
imbrex_error *imbrex_fs_stat(const imbrex_fs *fs, const char *path, imbrex_attributes *out);

// The names in a directory, sorted, with what they stand for.
imbrex_error *imbrex_fs_list(const imbrex_fs *fs, const char *path, imbrex_list **out);

// How many names; 0 for NULL.
size_t imbrex_list_len(const imbrex_list *list);

// A name of the list, valid as long as the list; NULL beyond its end.
const char *imbrex_list_name(const imbrex_list *list, size_t index);

// What a name of the list stands for; nothing is stored beyond its end.
void imbrex_list_attributes(const imbrex_list *list, size_t index, imbrex_attributes *out);

// Gives a list back. NULL is fine.
void imbrex_list_free(imbrex_list *list);

// Makes a directory. Its parent must exist; it itself must not.
imbrex_error *imbrex_fs_mkdir(const imbrex_fs *fs, const char *path);

// Removes an empty directory.
imbrex_error *imbrex_fs_rmdir(const imbrex_fs *fs, const char *path);

// Removes a name of a file. The file lives on while it is open or has other names.
imbrex_error *imbrex_fs_unlink(const imbrex_fs *fs, const char *path);

// Makes every change of names in this directory so far durable.
imbrex_error *imbrex_fs_sync_directory(const imbrex_fs *fs, const char *path);

// Renames a file or directory in one step; what has the new name is replaced, if it is a file or an empty directory.
imbrex_error *imbrex_fs_rename(const imbrex_fs *fs, const char *from, const char *to);

// Gives a file one more name, which must not exist.
imbrex_error *imbrex_fs_link(const imbrex_fs *fs, const char *from, const char *to);

// Cuts a file to `size` bytes; it cannot be made longer this way.
imbrex_error *imbrex_fs_truncate(const imbrex_fs *fs, const char *path, uint64_t size);

// How much room there is on the drive.
imbrex_error *imbrex_fs_space(const imbrex_fs *fs, imbrex_space *out);

// Settings that suit the drive.
imbrex_error *imbrex_fs_advise(const imbrex_fs *fs, imbrex_advice *out);

// Takes the lock of this name, or says IMBREX_LOCKED at once. The file is made where there is none. Locks are between the users
// of one process: other processes cannot open the drive at all.
imbrex_error *imbrex_fs_lock(const imbrex_fs *fs, const char *path, imbrex_lock **out);

// Gives a lock back, releasing it. NULL is fine.
void imbrex_lock_free(imbrex_lock *lock);

// A new, empty file under this name. A file that had the name before is deleted, but lives on where it is open.
imbrex_error *imbrex_writer_create(const imbrex_fs *fs, const char *path, imbrex_writer **out);

// An existing file for appending at its end, or a new one.
imbrex_error *imbrex_writer_reopen(const imbrex_fs *fs, const char *path, imbrex_writer **out);

// Appends. From now on the bytes survive the death of the process, not yet a power loss. No I/O unless buffers are full.
imbrex_error *imbrex_writer_append(const imbrex_writer *writer, const void *data, size_t len);

// Makes all that was appended before the call durable, and the file's name with it. A write and a flush, for a log.
imbrex_error *imbrex_writer_sync(const imbrex_writer *writer);

// The file's size in bytes, those not yet durable included; 0 for NULL.
uint64_t imbrex_writer_size(const imbrex_writer *writer);

// The file's number, as in imbrex_attributes.
uint64_t imbrex_writer_serial(const imbrex_writer *writer);

// Cuts the file to `size` bytes; its own size is fine and costs nothing.
imbrex_error *imbrex_writer_truncate(const imbrex_writer *writer, uint64_t size);

// Says how large the file will be. A hint.
imbrex_error *imbrex_writer_preallocate(const imbrex_writer *writer, uint64_t size);

// Says how long the bytes will live: one of imbrex_hint. A hint.
imbrex_error *imbrex_writer_set_hint(const imbrex_writer *writer, uint32_t hint);

// Says how urgent the writes are: one of imbrex_priority. A hint.
imbrex_error *imbrex_writer_set_priority(const imbrex_writer *writer, uint32_t priority);

// Writes what is buffered and closes the file; not a sync. Closing again does nothing, appending is an error then.
imbrex_error *imbrex_writer_close(const imbrex_writer *writer);

// Gives a writer back, closing it without telling errors. NULL is fine.
void imbrex_writer_free(imbrex_writer *writer);

// Opens a file for reading.
imbrex_error *imbrex_reader_open(const imbrex_fs *fs, const char *path, imbrex_reader **out);

// Reads `len` bytes at `offset`; `got` is less only at the end of the file.
imbrex_error *imbrex_reader_read(const imbrex_reader *reader, uint64_t offset, void *buffer, size_t len, size_t *got);

// As imbrex_reader_read, without a copy where that can be: `data` is where the bytes are, either in `buffer`, or in memory that
// stays valid and as it is until the reader is freed, whatever becomes of the file. For the latter at most half of the cache is
// held at a time. NULL after an error.
imbrex_error *imbrex_reader_view(const imbrex_reader *reader,
                                 uint64_t offset,
                                 void *buffer,
                                 size_t len,
                                 const void **data,
                                 size_t *got);

// As imbrex_reader_view, of many bytes at once and without a copy, so that who keeps the answer need not ask again: the file in spans of
// IMBREX_SPAN bytes, the last one shorter. `data` stays valid, with the bytes as they were when a span was first asked for, until the
// reader is freed. NULL with `got` 0 where the span is not in the cache in one piece, or the cache is nearly full, or half of it is held.
imbrex_error *imbrex_reader_span(const imbrex_reader *reader,
                                 uint64_t span,
                                 const void **data,
                                 size_t *got);

// The file's size in bytes, those not yet durable included; 0 for NULL.
uint64_t imbrex_reader_size(const imbrex_reader *reader);

// The file's number, as in imbrex_attributes.
uint64_t imbrex_reader_serial(const imbrex_reader *reader);

// Brings bytes into the cache. A hint: reads find out by themselves that they follow each other.
imbrex_error *imbrex_reader_readahead(const imbrex_reader *reader, uint64_t offset, uint64_t len);

// Says how it is going to be read: one of imbrex_pattern. A hint.
imbrex_error *imbrex_reader_set_pattern(const imbrex_reader *reader, uint32_t pattern);

// Gives a reader back. NULL is fine.
void imbrex_reader_free(imbrex_reader *reader);

// Opens a file for reading and writing; with `create`, a new one where there is none.
imbrex_error *imbrex_random_open(const imbrex_fs *fs, const char *path, bool create, imbrex_random **out);

// Reads `len` bytes at `offset`; `got` is less only at the end of the file.
imbrex_error *imbrex_random_read(const imbrex_random *file, uint64_t offset, void *buffer, size_t len, size_t *got);

// Writes at `offset`. A gap before it reads as zeros. In a table, written bytes can be overwritten, nothing appended.
imbrex_error *imbrex_random_write(const imbrex_random *file, uint64_t offset, const void *data, size_t len);

// Makes everything written durable.
imbrex_error *imbrex_random_sync(const imbrex_random *file);

// Closes the file; not a sync. Closing again does nothing.
imbrex_error *imbrex_random_close(const imbrex_random *file);

// Gives a file back, closing it without telling errors. NULL is fine.
void imbrex_random_free(imbrex_random *file);

// Opens the chunk store of a URI, as "imbrex:///dev/sdb", "imbrex:///data/drive.img?open-zones=8" or
// "imbrex://mem:?profile=tiny"; what a crash has left is recovered. A process has one store of a drive: opening it again gives
// another handle of the same. The drive is released when the last handle is closed. IMBREX_LOG and IMBREX_METRICS count as with
// imbrex_fs_open().
imbrex_error *imbrex_chunk_open(const char *uri, imbrex_chunk_store **out);

// Opens the chunk store of a URI that imbrex_chunk_open() refuses: its journal and checkpoints are lost, and the index is made anew from
// what stands in the zones, all of which are read. What was deleted may be back and what was sealed may be open, as far as the journal does
// not say so any more. With `relabel` also the store of a drive that has lost both copies of its label: a new one is written in their
// place; `volume` are the 16 bytes of the UUID where zones of several stores are there, else NULL. Written zones that are not this store's
// stay as they are; other engines get theirs back. With read-only=on in the URI nothing on the drive changes, and the handle shows what would be
// there. `what` may be NULL. The process must not have the store open; a salvage that did not return is to be repeated.
imbrex_error *imbrex_chunk_salvage(const char *uri,
                                   bool relabel,
                                   const uint8_t *volume,
                                   imbrex_chunk_store **out,
                                   imbrex_chunk_salvaged *what);

// Gives a handle of a chunk store back. What was not durable may be lost with the process' last handle: see imbrex_chunk_sync().
// NULL is fine.
void imbrex_chunk_close(imbrex_chunk_store *store);

// Stores an id that nobody has had before.
imbrex_error *imbrex_chunk_random_id(imbrex_chunk_id *out);

// Makes a chunk of a kind of stream (IMBREX_STREAM_DATA, …). `durable`: it is there after a crash when this returns; else after
// the next imbrex_chunk_sync(), durable create, seal or delete of anybody, or imbrex_chunk_sync_chunk() or durable append of the same chunk.
imbrex_error *imbrex_chunk_create(const imbrex_chunk_store *store,
                                  const imbrex_chunk_id *id,
                                  uint8_t stream,
                                  bool durable);

// Appends `len` bytes, at least one and at most imbrex_chunk_most_append(): all of them are there after a crash, or none. Where
// `expected` is not IMBREX_ANY_OFFSET the chunk must end there, so that repeating an append whose answer was lost is safe. Stores
// the offset of the first byte; `offset` may be NULL.
imbrex_error *imbrex_chunk_append(const imbrex_chunk_store *store,
                                  const imbrex_chunk_id *id,
                                  const uint8_t *bytes,
                                  size_t len,
                                  uint64_t expected,
                                  bool durable,
                                  uint64_t *offset);

// Reads from `offset` on, verified, and stores how many bytes there were: less than `len` only at the chunk's end.
imbrex_error *imbrex_chunk_read(const imbrex_chunk_store *store,
                                const imbrex_chunk_id *id,
                                uint64_t offset,
                                uint8_t *buf,
                                size_t len,
                                size_t *out);

// The same, but damaged bytes are given out as they are, and zeros for what cannot be read at all.
imbrex_error *imbrex_chunk_rescue_read(const imbrex_chunk_store *store,
                                       const imbrex_chunk_id *id,
                                       uint64_t offset,
                                       uint8_t *buf,
                                       size_t len,
                                       size_t *out);

// The chunk takes no more appends; sealing it again changes nothing. Stores its length; `len` may be NULL.
imbrex_error *imbrex_chunk_seal(const imbrex_chunk_store *store, const imbrex_chunk_id *id, bool durable, uint64_t *len);

// The chunk is gone; its id may be used again.
imbrex_error *imbrex_chunk_delete(const imbrex_chunk_store *store, const imbrex_chunk_id *id, bool durable);

// What a chunk is.
imbrex_error *imbrex_chunk_stat(const imbrex_chunk_store *store, const imbrex_chunk_id *id, imbrex_chunk_info *out);

// Stores the next chunks behind `after` by id, which need not be there, or the first ones where it is NULL: `most` at most, and
// in `count` how many. Fewer than `most` are the last.
imbrex_error *imbrex_chunk_list(const imbrex_chunk_store *store,
                                const imbrex_chunk_id *after,
                                imbrex_chunk_info *infos,
                                size_t most,
                                size_t *count);

// How much room there is.
imbrex_error *imbrex_chunk_room(const imbrex_chunk_store *store, imbrex_chunk_space *out);

// Stores the number of a kind of stream by its name: "data", "metadata", "gc", or one of the store's own (streams= in the URI, or
// `imbrex chunk format --stream`).
imbrex_error *imbrex_chunk_stream(const imbrex_chunk_store *store,
                                  const char *name,
                                  uint8_t *out);

// Moves about `most` bytes out of zones that are mostly dead, or that take no more writes, which is done in the background, too. Stores how
// many were moved, 0 where nothing is to be gained.
imbrex_error *imbrex_chunk_clean(const imbrex_chunk_store *store,
                                 uint64_t most,
                                 uint64_t *moved);

// Goes on with the scrub of the background: verifies about `most` bytes from where it is, and stores how many it were, and whether all
// chunks are verified now; the next call begins anew then. What is damaged is told by imbrex_chunk_damaged(), and is no error here.
imbrex_error *imbrex_chunk_scrub(const imbrex_chunk_store *store,
                                 uint64_t most,
                                 uint64_t *bytes,
                                 bool *over);

// Stores what is known to be lost, because its zone is offline, and behind that what the scrub has found damaged: `most` at most, without the first
// `skip`, and in `count` how many. Fewer than `most` are the last. To be restored from copies, or removed.
imbrex_error *imbrex_chunk_damaged(const imbrex_chunk_store *store,
                                   size_t skip,
                                   imbrex_chunk_damage *damaged,
                                   size_t most,
                                   size_t *count);

// Makes everything durable that has returned.
imbrex_error *imbrex_chunk_sync(const imbrex_chunk_store *store);

// Makes durable what has been appended to a chunk, and that it was created; other chunks' bytes may be, too. With the drive's write cache off
// only their zones are written, where imbrex_chunk_sync() writes all.
imbrex_error *imbrex_chunk_sync_chunk(const imbrex_chunk_store *store,
                                      const imbrex_chunk_id *id);

// Makes everything durable and writes a checkpoint, so that the next opening has nothing to recover: for the end of a program.
// The store may be used on.
imbrex_error *imbrex_chunk_checkpoint(const imbrex_chunk_store *store);

// Most bytes that a chunk of a kind of stream takes; 0: there is no such kind, or the store is NULL.
uint64_t imbrex_chunk_limit(const imbrex_chunk_store *store, uint8_t stream);

// Most bytes of one append; 0 for NULL.
size_t imbrex_chunk_most_append(const imbrex_chunk_store *store);

// Names chunks durably: `count` of them in order, at least one, as for a file that is longer than a chunk may be. A name is a relative path, UTF-8, of
// at most IMBREX_CHUNK_NAME_BYTES bytes with its NUL. After a crash it is there or not, with all that the chunks held when this was called. A chunk
// has one name at most: one that these had before is gone. Where other chunks have this name that is an error (IMBREX_EXISTS), or, with `replace`,
// they are deleted with it.
imbrex_error *imbrex_chunk_name(const imbrex_chunk_store *store,
                                const char *name,
                                const imbrex_chunk_id *ids,
                                size_t count,
                                bool replace);

// The chunks of a name have none any more, durably. IMBREX_NOT_FOUND: there is no such name.
imbrex_error *imbrex_chunk_unname(const imbrex_chunk_store *store, const char *name);

// Stores the ids of the chunks that a name stands for, in order, `most` at most, and in `count` how many there are. `ids` may be NULL where `most` is 0.
// IMBREX_NOT_FOUND: there is no such name.
imbrex_error *imbrex_chunk_named(const imbrex_chunk_store *store,
                                 const char *name,
                                 imbrex_chunk_id *ids,
                                 size_t most,
                                 size_t *count);

// Stores the name of a chunk with its NUL, in a buffer of IMBREX_CHUNK_NAME_BYTES bytes; an empty one where the chunk has none. Stores its place among the
// chunks that the name stands for, from 0; `place` may be NULL.
imbrex_error *imbrex_chunk_name_of(const imbrex_chunk_store *store,
                                   const imbrex_chunk_id *id,
                                   char *name,
                                   size_t *place);

// Stores the next names behind `after`, which need not be there, or the first ones where it is NULL, of those that begin with `prefix`, or of all where
// that is NULL: `most` at most, and in `count` how many. Fewer than `most` are the last.
imbrex_error *imbrex_chunk_names(const imbrex_chunk_store *store,
                                 const char *after,
                                 const char *prefix,
                                 imbrex_chunk_named_info *names,
                                 size_t most,
                                 size_t *count);

// Opens a space of the key-value store of a URI, as "imbrex:///dev/sdb", "imbrex:///data/drive.img?memtable=256M" or
// "imbrex://mem:?profile=tiny"; what a crash has left is recovered. `space`: its name, NULL for the unnamed space, which every store has. `order`:
// the order of its keys, NULL for that of bytes. The unnamed space is in the order of bytes. `mode`: one of imbrex_kv_mode. A process has one store
// of a drive: opening it again gives another handle of the same. The drive is released when the last handle, snapshot and iterator are given
// back. With format=on in the URI a drive that is not formatted is formatted first. An opening needs the orders of all spaces of the store: see
// imbrex_kv_know(). IMBREX_LOG and IMBREX_METRICS count as with imbrex_fs_open().
imbrex_error *imbrex_kv_open(const char *uri,
                             const char *space,
                             const imbrex_kv_order *order,
                             uint32_t mode,
                             imbrex_kv **out);

// Makes an order known to stores that are opened from now on. It must stay valid until the process ends, unlike one that is only given to
// imbrex_kv_open(). Of two orders of one name, the later one counts for later openings. The order of bytes, "leveldb.BytewiseComparator", is always
// known, and another one of its name is never called.
imbrex_error *imbrex_kv_know(const imbrex_kv_order *order);

// Opens another space of the same store, as imbrex_kv_open() does.
imbrex_error *imbrex_kv_space(const imbrex_kv *kv,
                              const char *name,
                              const imbrex_kv_order *order,
                              uint32_t mode,
                              imbrex_kv **out);

// Gives a handle of a space back. The last one of a store makes durable what was written; an error of that is only logged, so call imbrex_kv_sync()
// before. NULL is fine.
void imbrex_kv_close(imbrex_kv *kv);

// Deletes a space with its keys, durably. Handles of it can write nothing more. Where it is not in the order of bytes, the whole store is merged before this
// returns; later openings need not know that order, unless a checkpoint keeps what it had. IMBREX_NOT_FOUND: there is none of this name.
imbrex_error *imbrex_kv_drop(const imbrex_kv *kv,
                             const char *space);

// The names of a store's spaces, sorted, and of their orders. The unnamed space is not among them.
imbrex_error *imbrex_kv_spaces(const imbrex_kv *kv, imbrex_kv_list **out);

// From now on pairs of the space are over when `is_over` says so, until the store is closed: that is when the last handle, snapshot and iterator of it are given
// back. Reads do not find such pairs then, at snapshots neither, and merges delete them for good. Whoever opens the store without the function sees those that are
// left. A later call replaces the function. Once a pair is over, it must stay so. Any thread may call the function, several at once, also in the background, and
// also the one that was replaced. Function and `state` must stay valid as long as the process has any handle of a store, snapshot or iterator. It must not call
// this library. An exception that leaves it ends the process.
imbrex_error *imbrex_kv_expire(const imbrex_kv *kv,
                               bool (*is_over)(void *state, const void *key, size_t key_len, const void *value, size_t value_len),
                               void *state);

// The same for values that begin with the time from which on they are over, as `imbrex kv put --ttl` writes them: eight bytes, little-endian, seconds since 1970,
// and 0 for never. A value that does not begin with 0 or a time from 2020 to 9999 is never over.
imbrex_error *imbrex_kv_expire_by_time(const imbrex_kv *kv);

// From now on, until the store is closed, values of the space come of operands in this way. Without it, keys that have operands cannot be read, and merges keep
// their operands as they are. Nothing stores which operator it is: give a space the same one after each opening.
imbrex_error *imbrex_kv_set_merge_operator(const imbrex_kv *kv,
                                           const imbrex_kv_merge_operator *operator_);

// How many entries; 0 for NULL.
size_t imbrex_kv_list_len(const imbrex_kv_list *list);

// An entry of the list: the name of a space, or a sentence. Valid as long as the list; NULL beyond its end.
const char *imbrex_kv_list_text(const imbrex_kv_list *list, size_t index);

// The name of the order of a space in the list, empty for a sentence. Valid as long as the list; NULL beyond its end.
const char *imbrex_kv_list_order(const imbrex_kv_list *list, size_t index);

// Gives a list back. NULL is fine.
void imbrex_kv_list_free(imbrex_kv_list *list);

// Gives a key a value. Key and value may be empty. `durable`: it survives a loss of power when this returns. Else it survives the end of the process
// now, and a loss of power after the next durable write or imbrex_kv_sync().
imbrex_error *imbrex_kv_put(const imbrex_kv *kv,
                            const void *key,
                            size_t key_len,
                            const void *value,
                            size_t value_len,
                            bool durable);

// Merges an operand into the value of a key, as the space's operator says, without a read. `durable`: as with imbrex_kv_put().
imbrex_error *imbrex_kv_merge(const imbrex_kv *kv,
                              const void *key,
                              size_t key_len,
                              const void *operand,
                              size_t operand_len,
                              bool durable);

// Deletes a key. One that is not there is no error.
imbrex_error *imbrex_kv_delete(const imbrex_kv *kv, const void *key, size_t key_len, bool durable);

// Deletes all keys from `from` on that are before `to`, at once, however many they are. NULL: from the first key on, and to the last one. A range that
// ends before it begins is IMBREX_INVALID_ARGUMENT.
imbrex_error *imbrex_kv_delete_range(const imbrex_kv *kv,
                                     const void *from,
                                     size_t from_len,
                                     const void *to,
                                     size_t to_len,
                                     bool durable);

// The value of a key, now or at a snapshot. `at`: NULL is now. Stores NULL where the key is not there.
imbrex_error *imbrex_kv_get(const imbrex_kv *kv,
                            const imbrex_kv_snapshot *at,
                            const void *key,
                            size_t key_len,
                            imbrex_kv_value **out);

// The values of `count` keys, all at one moment, which is now or a snapshot's. Stores `count` values, in the order of the keys, and NULL for each that is not
// there; after an error all are NULL. Up to reads-at-once=N of the URI reads of the drive are under way at once.
imbrex_error *imbrex_kv_multi_get(const imbrex_kv *kv,
                                  const imbrex_kv_snapshot *at,
                                  size_t count,
                                  const void *const *keys,
                                  const size_t *key_lens,
                                  imbrex_kv_value **out);

// The bytes of a value, valid as long as the value, and how many in `len`, which may be NULL. NULL and 0 for NULL; never NULL for a value.
const void *imbrex_kv_value_data(const imbrex_kv_value *value,
                                 size_t *len);

// Appends bytes to the value that a merge operator makes. Other values do not change: call it there only.
void imbrex_kv_value_append(imbrex_kv_value *result, const void *bytes, size_t len);

// Gives a value back. NULL is fine.
void imbrex_kv_value_free(imbrex_kv_value *value);

// A batch without changes.
imbrex_error *imbrex_kv_batch_new(imbrex_kv_batch **out);

// Gives a batch back. NULL is fine.
void imbrex_kv_batch_free(imbrex_kv_batch *batch);

// What is added from here on goes to this space. Until the first call it goes to the space that the batch is written to. All spaces of a batch are of
// one store.
imbrex_error *imbrex_kv_batch_space(imbrex_kv_batch *batch,
                                    const imbrex_kv *kv);

// The key gets this value. Of two changes of one key the later one counts.
imbrex_error *imbrex_kv_batch_put(imbrex_kv_batch *batch, const void *key, size_t key_len, const void *value, size_t value_len);

// The operand is merged into the key's value.
imbrex_error *imbrex_kv_batch_merge(imbrex_kv_batch *batch,
                                    const void *key,
                                    size_t key_len,
                                    const void *operand,
                                    size_t operand_len);

// The key goes.
imbrex_error *imbrex_kv_batch_delete(imbrex_kv_batch *batch, const void *key, size_t key_len);

// All keys from `from` on that are before `to` go. NULL: from the first key on, and to the last one.
imbrex_error *imbrex_kv_batch_delete_range(imbrex_kv_batch *batch,
                                           const void *from,
                                           size_t from_len,
                                           const void *to,
                                           size_t to_len);

// Adds the changes of another batch. Those that name no space go where this one's go at the moment.
imbrex_error *imbrex_kv_batch_append(imbrex_kv_batch *batch, const imbrex_kv_batch *other);

// Forgets all changes of a batch, and the space that they go to.
imbrex_error *imbrex_kv_batch_clear(imbrex_kv_batch *batch);

// How many changes a batch has; 0 for NULL.
size_t imbrex_kv_batch_len(const imbrex_kv_batch *batch);

// Bytes that a batch takes of the write-ahead log; 0 for NULL.
size_t imbrex_kv_batch_bytes(const imbrex_kv_batch *batch);

// Makes all changes of a batch, or none. `durable` is as with imbrex_kv_put(). The batch stays as it is.
imbrex_error *imbrex_kv_write(const imbrex_kv *kv, const imbrex_kv_batch *batch, bool durable);

// Begins to take pairs of a space in the order of their keys, which are written as tables at once: once, and at the drive's rate. It gathers as many bytes as
// memtable=SIZE of the URI, and makes one piece of them, or several where partitions of the store end. The larger that is, the less time it takes. A piece is there at once and durably, as if it
// were one batch. All pieces together are not. It keeps the store open. IMBREX_NOT_FOUND: the space was dropped.
imbrex_error *imbrex_kv_ingest_new(const imbrex_kv *kv,
                                   imbrex_kv_ingest **out);

// Takes a pair, whose key must be behind the one before: else it is IMBREX_INVALID_ARGUMENT. It is there after a later call, or imbrex_kv_ingest_finish().
// After an error the pair is not taken, and what was taken before stays: the call may be made again.
imbrex_error *imbrex_kv_ingest_put(imbrex_kv_ingest *ingest,
                                   const void *key,
                                   size_t key_len,
                                   const void *value,
                                   size_t value_len);

// All pairs that were taken are there, and survive a loss of power, when this returns. More may follow.
imbrex_error *imbrex_kv_ingest_finish(imbrex_kv_ingest *ingest);

// How many pairs are there, and durable: the first ones of those that were taken; 0 for NULL.
uint64_t imbrex_kv_ingest_stored(const imbrex_kv_ingest *ingest);

// Gives it back. What was taken since the last piece is not there. NULL is fine.
void imbrex_kv_ingest_free(imbrex_kv_ingest *ingest);

// Makes durable what has been written to any space of the store.
imbrex_error *imbrex_kv_sync(const imbrex_kv *kv);

// What all spaces of the store have now, for reads later. It keeps the store open, and what it shows takes room.
imbrex_error *imbrex_kv_snapshot_new(const imbrex_kv *kv, imbrex_kv_snapshot **out);

// Keeps what all spaces of the store have now, durably and under a name, until imbrex_kv_checkpoint_drop(). No byte is copied: what is replaced or deleted from
// now on keeps its room. A space that is dropped cannot be opened any more, not even at a checkpoint. IMBREX_EXISTS: there is one of this name.
// IMBREX_NO_SPACE: there are 1,024.
imbrex_error *imbrex_kv_checkpoint_new(const imbrex_kv *kv,
                                       const char *name);

// What the checkpoint of this name has, as a snapshot to read from. IMBREX_NOT_FOUND: there is none.
imbrex_error *imbrex_kv_checkpoint_open(const imbrex_kv *kv, const char *name, imbrex_kv_snapshot **out);

// Deletes a checkpoint. What only it had is free as tables are merged. IMBREX_NOT_FOUND: there is none of this name.
imbrex_error *imbrex_kv_checkpoint_drop(const imbrex_kv *kv, const char *name);

// The names of all checkpoints, sorted.
imbrex_error *imbrex_kv_checkpoints(const imbrex_kv *kv, imbrex_kv_list **out);

// Gives a snapshot back. NULL is fine.
void imbrex_kv_snapshot_free(imbrex_kv_snapshot *snapshot);

// An iterator over the keys of a space, as they are now or at a snapshot. `at`: NULL is now. It stands on no key until it is moved. It keeps the store
// open, and what it shows takes room. Where the store is full and needs that room, an iterator that is older than lease=SECONDS of the URI (600) fails its
// next move with IMBREX_EXPIRED.
imbrex_error *imbrex_kv_iterator_new(const imbrex_kv *kv,
                                     const imbrex_kv_snapshot *at,
                                     imbrex_kv_iterator **out);

// Gives an iterator back. NULL is fine.
void imbrex_kv_iterator_free(imbrex_kv_iterator *iterator);

// Goes to the first key. After an error the iterator stands on no key, as with all that move it.
imbrex_error *imbrex_kv_iterator_first(imbrex_kv_iterator *iterator);

// Goes to the last key.
imbrex_error *imbrex_kv_iterator_last(imbrex_kv_iterator *iterator);

// Goes to the first key that is not before this one.
imbrex_error *imbrex_kv_iterator_seek(imbrex_kv_iterator *iterator, const void *key, size_t key_len);

// Goes to the last key that is not behind this one.
imbrex_error *imbrex_kv_iterator_seek_for_prev(imbrex_kv_iterator *iterator, const void *key, size_t key_len);

// Goes one key on; behind the last it stands on none. One that stands on none stays there, and one whose move fails stays where it was.
imbrex_error *imbrex_kv_iterator_next(imbrex_kv_iterator *iterator);

// Goes one key back; before the first it stands on none. One that stands on none stays there, and one whose move fails stays where it was.
imbrex_error *imbrex_kv_iterator_prev(imbrex_kv_iterator *iterator);

// Whether it stands on a key; false for NULL.
bool imbrex_kv_iterator_valid(const imbrex_kv_iterator *iterator);

// The key that it stands on, valid until it is moved or given back, and its bytes in `len`, which may be NULL. NULL and 0 where it stands on none.
const void *imbrex_kv_iterator_key(const imbrex_kv_iterator *iterator,
                                   size_t *len);

// The value of the key that it stands on, in the same way.
const void *imbrex_kv_iterator_value(const imbrex_kv_iterator *iterator, size_t *len);

// Makes tables of what all spaces of the store have in memory.
imbrex_error *imbrex_kv_flush(const imbrex_kv *kv);

// Merges tables until each key of the space from `from` on that is before `to` is in one. NULL: from the first key on, and to the last one. Other keys
// may be merged before. What all spaces have in memory becomes tables first.
imbrex_error *imbrex_kv_compact(const imbrex_kv *kv,
                                const void *from,
                                size_t from_len,
                                const void *to,
                                size_t to_len);

// Stores about how many bytes of tables the keys from `from` on have that are before `to`. NULL: from the first key on, and to the last one. Nothing is
// read for it but indexes of tables. What is in memory only does not count.
imbrex_error *imbrex_kv_approximate_bytes(const imbrex_kv *kv,
                                          const void *from,
                                          size_t from_len,
                                          const void *to,
                                          size_t to_len,
                                          uint64_t *out);

// What the store has, all spaces together.
imbrex_error *imbrex_kv_figures_now(const imbrex_kv *kv, imbrex_kv_figures *out);

// Reads everything, and stores sentences about what is wrong: first what the opening found damaged. An empty list: nothing is wrong.
imbrex_error *imbrex_kv_check(const imbrex_kv *kv,
                              imbrex_kv_list **out);

// Opens the images of the object store of a URI, as "imbrex:///dev/sdb" or "imbrex:///data/drive.img?cache=256M"; what a crash has left is recovered.
// With format=on in the URI a drive that is not formatted is formatted first. The drive is released when these and all images are given back.
// `control`: other processes of this user, as `imbrex image`, reach these images by a socket until they are given back. IMBREX_LOG and IMBREX_METRICS
// count as with imbrex_fs_open().
imbrex_error *imbrex_images_open(const char *uri,
                                 bool control,
                                 imbrex_images **out);

// Gives images back. When the last handle of a store is given back, all that was written is made durable; an error of that is only logged, so call
// imbrex_image_flush() before. NULL is fine.
void imbrex_images_close(imbrex_images *images);

// Makes an image of `size` bytes. It has zeros, which take no room. A name has 1 to 255 bytes, without '@' and control characters. IMBREX_EXISTS:
// there is one of this name.
imbrex_error *imbrex_image_create(const imbrex_images *images,
                                  const char *name,
                                  uint64_t size);

// Removes an image that has no snapshots and that nobody has open to write. IMBREX_NOT_EMPTY: it has snapshots. IMBREX_BUSY: somebody has it open.
imbrex_error *imbrex_image_remove(const imbrex_images *images,
                                  const char *name);

// Gives an image another name.
imbrex_error *imbrex_image_rename(const imbrex_images *images, const char *name, const char *to);

// Gives an image another size. What is new is zeros. IMBREX_BUSY: it becomes smaller, and somebody has it open to write.
imbrex_error *imbrex_image_resize(const imbrex_images *images, const char *name, uint64_t size);

// Gives an image these limits, all three, durably. They count at once, for requests that wait, too. What it takes already is left alone.
imbrex_error *imbrex_image_limit(const imbrex_images *images,
                                 const char *name,
                                 const imbrex_image_limits *limits);

// Keeps what an image has now, all writes that have returned, as a snapshot: durably, and without a copy.
imbrex_error *imbrex_image_snapshot(const imbrex_images *images, const char *name, const char *snapshot);

// Removes a snapshot. IMBREX_BUSY: it has clones.
imbrex_error *imbrex_image_snapshot_remove(const imbrex_images *images, const char *name, const char *snapshot);

// An image is again what it was at a snapshot. IMBREX_BUSY: somebody has it open to write.
imbrex_error *imbrex_image_rollback(const imbrex_images *images, const char *name, const char *snapshot);

// Makes an image `to` that has what another had at a snapshot. It shares all bytes with it until either changes.
imbrex_error *imbrex_image_clone(const imbrex_images *images, const char *name, const char *snapshot, const char *to);

// A clone needs its parent no more. No byte is copied.
imbrex_error *imbrex_image_flatten(const imbrex_images *images, const char *name);

// Says what an image is.
imbrex_error *imbrex_image_stat(const imbrex_images *images, const char *name, imbrex_image_info *out);

// Lists the names of all images, in order.
imbrex_error *imbrex_image_names(const imbrex_images *images, imbrex_image_list **out);

// How many names; 0 for NULL.
size_t imbrex_image_list_len(const imbrex_image_list *list);

// A name. Valid as long as the list; NULL beyond its end.
const char *imbrex_image_list_name(const imbrex_image_list *list, size_t index);

// Gives a list back. NULL is fine.
void imbrex_image_list_free(imbrex_image_list *list);

// Opens an image, or a snapshot of one as "NAME@SNAPSHOT", which is open for reading only.
imbrex_error *imbrex_image_open(const imbrex_images *images, const char *name, bool read_only, imbrex_image **out);

// Gives an open image back. NULL is fine.
void imbrex_image_close(imbrex_image *image);

// Whether nothing is written through this; true for NULL.
bool imbrex_image_is_read_only(const imbrex_image *image);

// The size of an open image in bytes. IMBREX_NOT_FOUND: it was removed.
imbrex_error *imbrex_image_size(const imbrex_image *image, uint64_t *out);

// Reads `len` bytes from `offset` on. What nobody wrote is zeros. IMBREX_RANGE: they are not in the image.
imbrex_error *imbrex_image_read(const imbrex_image *image, uint64_t offset, void *buffer, size_t len);

// Writes `len` bytes from `offset` on. `durable`: they survive a loss of power when this returns. Else they survive the end of the process now, and a loss
// of power after imbrex_image_flush() of any image of the store.
imbrex_error *imbrex_image_write(const imbrex_image *image,
                                 uint64_t offset,
                                 const void *buffer,
                                 size_t len,
                                 bool durable);

// `len` zeros stand from `offset` on, and take no room: a discard, too. `durable`: as for imbrex_image_write().
imbrex_error *imbrex_image_zero(const imbrex_image *image, uint64_t offset, uint64_t len, bool durable);

// All that was written to any image of the store is durable when it returns.
imbrex_error *imbrex_image_flush(const imbrex_image *image);

// Whether anything is stored at `offset`, and for how many bytes from there on that is so: `len` is how many are asked about at most. What is not stored is zeros.
imbrex_error *imbrex_image_extent(const imbrex_image *image,
                                  uint64_t offset,
                                  uint64_t len,
                                  bool *stored,
                                  uint64_t *out);

// Opens the object store of a URI, as "imbrex:///dev/sdb" or "imbrex:///data/drive.img?cache=256M"; what a crash has left is recovered. A process has one store of
// a drive: opening it again gives another handle of the same. The drive is released when the last is given back. With format=on in the URI a drive that is not
// formatted is formatted first. IMBREX_LOG counts as with imbrex_fs_open().
imbrex_error *imbrex_store_open(const char *uri,
                                imbrex_store **out);

// Gives a store back. The last handle makes durable what was queued; an error of that is only logged, so call imbrex_store_sync() before. NULL is fine.
void imbrex_store_close(imbrex_store *store);

// A hash of a namespace and a name, as `imbrex store` gives its objects: CRC-32C of both.
uint32_t imbrex_store_hash(const void *namespace_, size_t namespace_len, const void *name, size_t name_len);

// A transaction without steps.
imbrex_error *imbrex_store_transaction_new(imbrex_store_transaction **out);

// Gives a transaction back that was not queued. NULL is fine.
void imbrex_store_transaction_free(imbrex_store_transaction *transaction);

// Makes a collection of the objects of its pool whose hashes have the same lowest `bits` bits as its seed, 0 to 32.
imbrex_error *imbrex_store_create_collection(imbrex_store_transaction *transaction,
                                             imbrex_store_collection collection,
                                             uint8_t bits);

// The collection, which must be empty, is gone.
imbrex_error *imbrex_store_remove_collection(imbrex_store_transaction *transaction, imbrex_store_collection collection);

// The collection goes by one bit more, and `into` is made of the objects for which that bit is one: its seed is that of `collection` with the bit. Two records change,
// however many objects there are.
imbrex_error *imbrex_store_split_collection(imbrex_store_transaction *transaction,
                                            imbrex_store_collection collection,
                                            imbrex_store_collection into);

// The collection's objects are those of `into`, from which imbrex_store_split_collection() would have taken them.
imbrex_error *imbrex_store_merge_collection(imbrex_store_transaction *transaction,
                                            imbrex_store_collection collection,
                                            imbrex_store_collection into);

// The object is there.
imbrex_error *imbrex_store_touch(imbrex_store_transaction *transaction,
                                 imbrex_store_collection collection,
                                 const imbrex_store_object *object);

// `len` bytes stand at `offset`. The bytes are copied. An object that ends before that has zeros between. To write nothing changes no size.
imbrex_error *imbrex_store_write(imbrex_store_transaction *transaction,
                                 imbrex_store_collection collection,
                                 const imbrex_store_object *object,
                                 uint64_t offset,
                                 const void *buffer,
                                 size_t len);

// `len` zeros stand at `offset`, and take no room.
imbrex_error *imbrex_store_zero(imbrex_store_transaction *transaction,
                                imbrex_store_collection collection,
                                const imbrex_store_object *object,
                                uint64_t offset,
                                uint64_t len);

// The object has this size. What is new is zeros.
imbrex_error *imbrex_store_truncate(imbrex_store_transaction *transaction,
                                    imbrex_store_collection collection,
                                    const imbrex_store_object *object,
                                    uint64_t size);

// The object is gone.
imbrex_error *imbrex_store_remove(imbrex_store_transaction *transaction,
                                  imbrex_store_collection collection,
                                  const imbrex_store_object *object);

// The object is called `new_name`, which no object of the collection has.
imbrex_error *imbrex_store_rename(imbrex_store_transaction *transaction,
                                  imbrex_store_collection collection,
                                  const imbrex_store_object *object,
                                  const imbrex_store_object *new_name);

// `clone`, of the same collection, is what the object is: bytes, attributes, omap. It shares the bytes, which are not copied.
imbrex_error *imbrex_store_clone(imbrex_store_transaction *transaction,
                                 imbrex_store_collection collection,
                                 const imbrex_store_object *object,
                                 const imbrex_store_object *clone);

// `len` bytes of the object, from `from` on, stand in `other` at `at`. Whole blocks of 4 KiB are shared where `other` is another object and both offsets have the same
// distance from one.
imbrex_error *imbrex_store_clone_range(imbrex_store_transaction *transaction,
                                       imbrex_store_collection collection,
                                       const imbrex_store_object *object,
                                       const imbrex_store_object *other,
                                       uint64_t from,
                                       uint64_t len,
                                       uint64_t at);

// What is to be expected of the object's next writes.
imbrex_error *imbrex_store_set_hint(imbrex_store_transaction *transaction,
                                    imbrex_store_collection collection,
                                    const imbrex_store_object *object,
                                    imbrex_store_hint hint);

// The object has an attribute of this name and value beside its others: a name of 256 bytes at most, a value of 65,536, and 1 MiB of all together.
imbrex_error *imbrex_store_set_attribute(imbrex_store_transaction *transaction,
                                         imbrex_store_collection collection,
                                         const imbrex_store_object *object,
                                         const void *name,
                                         size_t name_len,
                                         const void *value,
                                         size_t value_len);

// The object has no attribute of this name; with NULL and 0 it has none at all.
imbrex_error *imbrex_store_remove_attribute(imbrex_store_transaction *transaction,
                                            imbrex_store_collection collection,
                                            const imbrex_store_object *object,
                                            const void *name,
                                            size_t name_len);

// The object's omap has a pair of this key and value beside its others: a key of 32 KiB at most, a value of 16 MiB.
imbrex_error *imbrex_store_omap_set(imbrex_store_transaction *transaction,
                                    imbrex_store_collection collection,
                                    const imbrex_store_object *object,
                                    const void *key,
                                    size_t key_len,
                                    const void *value,
                                    size_t value_len);

// The object's omap has no key from `from` on and before `to`. With NULL and 0 for `to` it has not the key `from`.
imbrex_error *imbrex_store_omap_remove(imbrex_store_transaction *transaction,
                                       imbrex_store_collection collection,
                                       const imbrex_store_object *object,
                                       const void *from,
                                       size_t from_len,
                                       const void *to,
                                       size_t to_len);

// The object's omap has no keys and no header.
imbrex_error *imbrex_store_omap_clear(imbrex_store_transaction *transaction,
                                      imbrex_store_collection collection,
                                      const imbrex_store_object *object);

// The object's omap has this header.
imbrex_error *imbrex_store_omap_set_header(imbrex_store_transaction *transaction,
                                           imbrex_store_collection collection,
                                           const imbrex_store_object *object,
                                           const void *header,
                                           size_t len);

// Makes the changes of a transaction, all of them or none; from then on everybody sees them. The transaction is empty then, whatever happens, and may take new steps.
// `ticket`, which may be NULL, is for imbrex_store_wait(). Transactions become durable in the order of these calls.
imbrex_error *imbrex_store_queue(const imbrex_store *store,
                                 imbrex_store_transaction *transaction,
                                 uint64_t *ticket);

// Returns when a transaction that was queued, and all before it, survive the end of the process, or with `durable` a loss of power.
imbrex_error *imbrex_store_wait(const imbrex_store *store,
                                uint64_t ticket,
                                bool durable);

// Makes the changes of a transaction, and returns when they are durable. The transaction is empty then, whatever happens.
imbrex_error *imbrex_store_commit(const imbrex_store *store, imbrex_store_transaction *transaction);

// All that was queued is durable when it returns.
imbrex_error *imbrex_store_sync(const imbrex_store *store);

// Reads bytes of an object from `offset` on: `len` of them, or fewer where it ends; how many is stored in `out`.
imbrex_error *imbrex_store_read(const imbrex_store *store,
                                imbrex_store_collection collection,
                                const imbrex_store_object *object,
                                uint64_t offset,
                                void *buffer,
                                size_t len,
                                size_t *out);

// The size of an object in bytes. IMBREX_NOT_FOUND: there is no such object.
imbrex_error *imbrex_store_size(const imbrex_store *store,
                                imbrex_store_collection collection,
                                const imbrex_store_object *object,
                                uint64_t *out);

// The attributes of an object, as a list of names and values.
imbrex_error *imbrex_store_attributes(const imbrex_store *store,
                                      imbrex_store_collection collection,
                                      const imbrex_store_object *object,
                                      imbrex_store_list **out);

// Pairs of an object's omap from the key `from` on, `most` at most. A list of fewer is the last. The next one begins with the key behind its last: that key and a zero byte.
imbrex_error *imbrex_store_omap(const imbrex_store *store,
                                imbrex_store_collection collection,
                                const imbrex_store_object *object,
                                const void *from,
                                size_t from_len,
                                size_t most,
                                imbrex_store_list **out);

// The header of an object's omap, as a list of one entry whose value it is; of none where there is no header.
imbrex_error *imbrex_store_omap_header(const imbrex_store *store,
                                       imbrex_store_collection collection,
                                       const imbrex_store_object *object,
                                       imbrex_store_list **out);

// Objects of a collection in the order of their hashes with the bits reversed, then of namespace, name, snapshot and generation: from `from` on, or from the first where that is NULL,
// `most` at most. A list of fewer is the last. The next one begins with the last object of this one, with a generation that is one higher.
imbrex_error *imbrex_store_objects(const imbrex_store *store,
                                   imbrex_store_collection collection,
                                   const imbrex_store_object *from,
                                   size_t most,
                                   imbrex_store_list **out);

// Makes all durable, and compares all records, with `deep` also all bytes with their checksums. `out`: a list of sentences about what is wrong.
imbrex_error *imbrex_store_check(const imbrex_store *store,
                                 bool deep,
                                 imbrex_store_list **out);

// Says how full a store is.
imbrex_error *imbrex_store_stat(const imbrex_store *store, imbrex_store_usage *out);

// How many entries; 0 for NULL.
size_t imbrex_store_list_len(const imbrex_store_list *list);

// The key of an entry, or the name of an attribute, and how many bytes it has in `len`, which may be NULL. Valid as long as the list; NULL beyond its end.
const void *imbrex_store_list_key(const imbrex_store_list *list,
                                  size_t index,
                                  size_t *len);

// The value of an entry, and how many bytes it has in `len`, which may be NULL. Valid as long as the list; NULL beyond its end.
const void *imbrex_store_list_value(const imbrex_store_list *list, size_t index, size_t *len);

// An object of the list. Its names are valid as long as the list. False beyond its end.
bool imbrex_store_list_object(const imbrex_store_list *list, size_t index, imbrex_store_object *out);

// A sentence of the list. Valid as long as the list; NULL beyond its end.
const char *imbrex_store_list_text(const imbrex_store_list *list, size_t index);

// Gives a list back. NULL is fine.
void imbrex_store_list_free(imbrex_store_list *list);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IMBREX_H */
