/* The chunk store's API as a C program uses it: tests/chunk.rs compiles and runs this with the URI of an empty drive. */
#include "imbrex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                \
  do {                                                                  \
    if (!(condition)) {                                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);   \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

/* The code of an error, which is freed; every error has a sentence. */
static imbrex_code code(imbrex_error *error) {
  imbrex_code code = imbrex_error_code(error);
  CHECK((error == NULL) == (strlen(imbrex_error_message(error)) == 0));
  imbrex_error_free(error);
  return code;
}

static void done(imbrex_error *error) {
  if (error != NULL) fprintf(stderr, "%s\n", imbrex_error_message(error));
  CHECK(error == NULL);
}

/* The label of the drive is lost. */
static int salvage(const char *uri, const char *look) {
  imbrex_chunk_store *store = NULL;
  imbrex_chunk_salvaged what = {0};
  uint8_t volume[16] = {1, 2, 3};
  CHECK(code(imbrex_chunk_open(uri, &store)) != IMBREX_OK);
  CHECK(code(imbrex_chunk_salvage(uri, false, NULL, &store, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_salvage(uri, false, volume, &store, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_salvage(uri, true, volume, &store, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_salvage(NULL, true, NULL, &store, &what)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_salvage(uri, true, NULL, NULL, &what)) == IMBREX_INVALID_ARGUMENT);
  CHECK(store == NULL && what.chunks == 0);
  /* A look changes nothing. */
  done(imbrex_chunk_salvage(look, true, NULL, &store, &what));
  CHECK(what.relabelled && what.chunks == 1);
  imbrex_chunk_close(store);
  CHECK(code(imbrex_chunk_open(uri, &store)) != IMBREX_OK);
  done(imbrex_chunk_salvage(uri, true, NULL, &store, NULL));
  CHECK(code(imbrex_chunk_salvage(uri, true, NULL, &store, &what)) == IMBREX_BUSY);
  imbrex_chunk_id a = {{0}};
  a.bytes[23] = 1;
  uint8_t buf[64];
  size_t got = 0;
  done(imbrex_chunk_read(store, &a, 0, buf, sizeof buf, &got));
  CHECK(got == 11 && memcmp(buf, "hello world", 11) == 0);
  imbrex_chunk_close(store);
  done(imbrex_chunk_salvage(uri, false, NULL, &store, &what));
  CHECK(!what.relabelled && what.kept_zones == 0 && what.zones > 0 && what.records == 2 && what.damage == 0);
  imbrex_chunk_close(store);
  done(imbrex_chunk_open(uri, &store));
  imbrex_chunk_close(store);
  return 0;
}

/* One chunk is damaged, or the other one's zone is offline. */
static int damaged(const char *uri, bool offline) {
  imbrex_chunk_store *store = NULL;
  imbrex_chunk_damage list[2];
  imbrex_chunk_id a = {{0}}, b = {{0}};
  a.bytes[23] = 1;
  b.bytes[23] = 2;
  size_t got = 9;
  uint64_t bytes = 0;
  bool over = false;
  done(imbrex_chunk_open(uri, &store));
  done(imbrex_chunk_damaged(store, 0, list, 2, &got));
  CHECK(got == (offline ? 2 : 0));
  if (offline) {
    CHECK(list[0].lost && list[0].offset == 0 && list[0].len == 5 && memcmp(&list[0].id, &b, sizeof b) == 0);
    /* It is open, so it may have been longer. */
    CHECK(list[1].lost && list[1].offset == 5 && list[1].len == 0 && memcmp(&list[1].id, &b, sizeof b) == 0);
    done(imbrex_chunk_damaged(store, 2, list, 2, &got));
    CHECK(got == 0);
    done(imbrex_chunk_delete(store, &b, true));
  } else {
    done(imbrex_chunk_scrub(store, 1 << 20, &bytes, &over));
    CHECK(over && bytes == 11);
    done(imbrex_chunk_damaged(store, 0, list, 2, &got));
    CHECK(got == 1 && !list[0].lost && list[0].offset == 0 && list[0].len == 5 && memcmp(&list[0].id, &a, sizeof a) == 0);
    done(imbrex_chunk_delete(store, &a, true));
    done(imbrex_chunk_create(store, &b, IMBREX_STREAM_METADATA, false));
    done(imbrex_chunk_append(store, &b, (const uint8_t *)"hello", 5, IMBREX_ANY_OFFSET, false, NULL));
  }
  done(imbrex_chunk_damaged(store, 0, list, 2, &got));
  CHECK(got == 0);
  done(imbrex_chunk_clean(store, UINT64_MAX, &bytes));
  CHECK(bytes == 0);
  done(imbrex_chunk_checkpoint(store));
  imbrex_chunk_close(store);
  return 0;
}

/* Two chunks that have no names, nor have they afterwards, but for "greeting/en". */
static void names(imbrex_chunk_store *store, const imbrex_chunk_id *a, const imbrex_chunk_id *b) {
  imbrex_chunk_id both[2] = {*b, *a}, ids[2];
  imbrex_chunk_named_info page[3];
  char name[IMBREX_CHUNK_NAME_BYTES];
  size_t got = 9, place = 9;
  done(imbrex_chunk_name_of(store, a, name, &place));
  CHECK(name[0] == 0 && place == 0);
  done(imbrex_chunk_name(store, "both", both, 2, false));
  done(imbrex_chunk_name_of(store, a, name, &place));
  CHECK(strcmp(name, "both") == 0 && place == 1);
  done(imbrex_chunk_named(store, "both", ids, 1, &got));
  CHECK(got == 2 && memcmp(&ids[0], b, sizeof *b) == 0);
  CHECK(code(imbrex_chunk_name(store, "a", a, 1, false)) == IMBREX_INVALID_ARGUMENT);
  done(imbrex_chunk_unname(store, "both"));
  CHECK(code(imbrex_chunk_unname(store, "both")) == IMBREX_NOT_FOUND);
  CHECK(code(imbrex_chunk_named(store, "both", ids, 2, &got)) == IMBREX_NOT_FOUND);
  done(imbrex_chunk_name(store, "greeting/en", a, 1, false));
  CHECK(code(imbrex_chunk_name(store, "greeting/en", b, 1, false)) == IMBREX_EXISTS);
  done(imbrex_chunk_name(store, "other", b, 1, false));
  done(imbrex_chunk_names(store, NULL, NULL, page, 3, &got));
  CHECK(got == 2 && strcmp(page[0].name, "greeting/en") == 0 && page[0].len == 11 && page[0].chunks == 1 && page[0].sealed);
  done(imbrex_chunk_names(store, "greeting/en", NULL, page, 3, &got));
  CHECK(got == 1 && strcmp(page[0].name, "other") == 0 && !page[0].sealed);
  done(imbrex_chunk_names(store, NULL, "g", page, 3, &got));
  CHECK(got == 1);
  CHECK(code(imbrex_chunk_name(store, "../up", a, 1, false)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_name(store, NULL, a, 1, false)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_name(store, "x", NULL, 1, false)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_name(store, "x", a, 0, false)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_unname(store, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_named(store, "other", NULL, 1, &got)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_named(store, "other", ids, 1, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_name_of(store, a, NULL, &place)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_names(store, NULL, NULL, NULL, 1, &got)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_names(store, NULL, NULL, page, 1, NULL)) == IMBREX_INVALID_ARGUMENT);
  done(imbrex_chunk_named(store, "other", NULL, 0, &got));
  CHECK(got == 1);
}

int main(int count, char **arguments) {
  if (count == 4) return damaged(arguments[1], strcmp(arguments[3], "offline") == 0);
  if (count == 3) return salvage(arguments[1], arguments[2]);
  CHECK(count == 2);
  imbrex_chunk_store *store = NULL, *again = NULL;
  done(imbrex_chunk_open(arguments[1], &store));
  /* A process has one store of a drive. */
  done(imbrex_chunk_open(arguments[1], &again));

  imbrex_chunk_id a = {{0}}, b = {{0}}, other;
  a.bytes[23] = 1;
  b.bytes[23] = 2;
  done(imbrex_chunk_random_id(&other));
  CHECK(memcmp(&other, &a, sizeof a) != 0);
  done(imbrex_chunk_create(store, &a, IMBREX_STREAM_DATA, true));
  CHECK(code(imbrex_chunk_create(again, &a, IMBREX_STREAM_DATA, true)) == IMBREX_EXISTS);
  done(imbrex_chunk_create(store, &b, IMBREX_STREAM_GC, false));
  CHECK(code(imbrex_chunk_create(store, &other, 200, true)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_create(store, &other, 9, true)) == IMBREX_INVALID_ARGUMENT);

  const uint8_t hello[] = "hello", world[] = " world";
  uint64_t at = 99, len = 0;
  size_t got = 0;
  done(imbrex_chunk_append(store, &a, hello, 5, IMBREX_ANY_OFFSET, false, &at));
  CHECK(at == 0);
  done(imbrex_chunk_append(again, &a, world, 6, 5, true, NULL));
  CHECK(code(imbrex_chunk_append(store, &a, world, 6, 5, true, &at)) == IMBREX_WRONG_OFFSET);
  CHECK(code(imbrex_chunk_append(store, &a, world, 0, IMBREX_ANY_OFFSET, true, &at)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_append(store, &other, world, 1, IMBREX_ANY_OFFSET, true, &at)) == IMBREX_NOT_FOUND);
  CHECK(at == 0);

  uint8_t buf[64];
  done(imbrex_chunk_read(store, &a, 0, buf, sizeof buf, &got));
  CHECK(got == 11 && memcmp(buf, "hello world", 11) == 0);
  done(imbrex_chunk_rescue_read(store, &a, 6, buf, 3, &got));
  CHECK(got == 3 && memcmp(buf, "wor", 3) == 0);
  CHECK(code(imbrex_chunk_read(store, &a, 12, buf, 1, &got)) == IMBREX_RANGE);
  CHECK(got == 3);

  /* As much as a chunk takes, and one byte. */
  uint64_t limit = imbrex_chunk_limit(store, IMBREX_STREAM_GC);
  size_t most = imbrex_chunk_most_append(store);
  CHECK(limit > 100000 && most > 100000 && imbrex_chunk_limit(store, 9) == 0);
  uint8_t *large = calloc(1, most + 1);
  CHECK(large != NULL);
  for (uint64_t left = limit; left > 0;) {
    size_t n = left < most ? (size_t)left : most;
    done(imbrex_chunk_append(store, &b, large, n, limit - left, false, &at));
    left -= n;
  }
  CHECK(code(imbrex_chunk_append(store, &b, large, 1, IMBREX_ANY_OFFSET, true, &at)) == IMBREX_CHUNK_FULL);
  CHECK(code(imbrex_chunk_append(store, &a, large, most + 1, IMBREX_ANY_OFFSET, true, &at)) == IMBREX_INVALID_ARGUMENT);
  free(large);
  done(imbrex_chunk_sync(store));

  done(imbrex_chunk_seal(store, &a, true, &len));
  CHECK(len == 11);
  done(imbrex_chunk_seal(store, &a, false, NULL));
  CHECK(code(imbrex_chunk_append(store, &a, hello, 5, IMBREX_ANY_OFFSET, true, &at)) == IMBREX_SEALED);

  imbrex_chunk_info info, page[3];
  done(imbrex_chunk_stat(store, &a, &info));
  CHECK(info.len == 11 && info.records == 2 && info.sealed && info.stream == IMBREX_STREAM_DATA && info.zones >= 1);
  done(imbrex_chunk_list(store, NULL, page, 1, &got));
  CHECK(got == 1 && memcmp(&page[0].id, &a, sizeof a) == 0);
  done(imbrex_chunk_list(store, &page[0].id, page, 3, &got));
  CHECK(got == 1 && memcmp(&page[0].id, &b, sizeof b) == 0 && page[0].len == limit && !page[0].sealed);

  imbrex_chunk_space space;
  done(imbrex_chunk_room(store, &space));
  CHECK(space.live == 11 + limit && space.free > 0 && space.total > space.free);
  names(store, &a, &b);
  done(imbrex_chunk_delete(store, &b, true));
  CHECK(code(imbrex_chunk_stat(store, &b, &info)) == IMBREX_NOT_FOUND);

  /* NULL is an error everywhere, and frees nothing. */
  CHECK(code(imbrex_chunk_open(NULL, &store)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_open(arguments[1], NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_random_id(NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_create(NULL, &a, 0, true)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_create(store, NULL, 0, true)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_append(store, &a, NULL, 1, 0, true, &at)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_read(store, &a, 0, NULL, 1, &got)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_read(store, &a, 0, buf, 1, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_seal(NULL, &a, true, &len)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_delete(store, NULL, true)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_stat(store, &a, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_list(store, NULL, NULL, 1, &got)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_list(store, NULL, page, 1, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_room(store, NULL)) == IMBREX_INVALID_ARGUMENT);
  bool over = false;
  uint8_t stream = 9;
  imbrex_chunk_damage damage;
  CHECK(code(imbrex_chunk_stream(store, "logs", &stream)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_stream(store, NULL, &stream)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_stream(store, "gc", NULL)) == IMBREX_INVALID_ARGUMENT && stream == 9);
  done(imbrex_chunk_stream(store, "gc", &stream));
  CHECK(stream == IMBREX_STREAM_GC);
  CHECK(code(imbrex_chunk_clean(NULL, 1, &at)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_clean(store, 1, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_scrub(NULL, 1, &at, &over)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_scrub(store, 1, NULL, &over)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_scrub(store, 1, &at, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_damaged(NULL, 0, &damage, 1, &got)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_damaged(store, 0, NULL, 1, &got)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_damaged(store, 0, &damage, 1, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_sync(NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_sync_chunk(NULL, &a)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_sync_chunk(store, NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_chunk_sync_chunk(store, &b)) == IMBREX_NOT_FOUND);
  CHECK(code(imbrex_chunk_checkpoint(NULL)) == IMBREX_INVALID_ARGUMENT);
  CHECK(imbrex_chunk_limit(NULL, 0) == 0 && imbrex_chunk_most_append(NULL) == 0);
  imbrex_chunk_close(NULL);

  /* What was durable is there when the drive is opened again. */
  done(imbrex_chunk_checkpoint(store));
  imbrex_chunk_close(store);
  imbrex_chunk_close(again);

  /* Nothing but the sync of one chunk makes this one durable. */
  done(imbrex_chunk_open(arguments[1], &store));
  done(imbrex_chunk_create(store, &b, IMBREX_STREAM_DATA, false));
  done(imbrex_chunk_append(store, &b, hello, 5, IMBREX_ANY_OFFSET, false, NULL));
  done(imbrex_chunk_sync_chunk(store, &b));
  imbrex_chunk_close(store);
  done(imbrex_chunk_open(arguments[1], &store));
  done(imbrex_chunk_read(store, &b, 0, buf, sizeof buf, &got));
  CHECK(got == 5 && memcmp(buf, "hello", 5) == 0);
  done(imbrex_chunk_delete(store, &b, true));
  imbrex_chunk_close(store);

  done(imbrex_chunk_open(arguments[1], &store));
  done(imbrex_chunk_read(store, &a, 0, buf, sizeof buf, &got));
  CHECK(got == 11 && memcmp(buf, "hello world", 11) == 0);
  imbrex_chunk_id named;
  done(imbrex_chunk_named(store, "greeting/en", &named, 1, &got));
  CHECK(got == 1 && memcmp(&named, &a, sizeof a) == 0);
  imbrex_chunk_close(store);
  return 0;
}
