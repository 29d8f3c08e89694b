/* The key-value store's API as a C program uses it: tests/kv.rs compiles and runs this with a URI, and with what is to be done there. */
#include "imbrex.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* The error has this code, and its sentence these words. */
static void refused(imbrex_error *error, imbrex_code code, const char *words) {
  if (strstr(imbrex_error_message(error), words) == NULL) fprintf(stderr, "%s\n", imbrex_error_message(error));
  CHECK(imbrex_error_code(error) == code && strstr(imbrex_error_message(error), words) != NULL);
  imbrex_error_free(error);
}

static void put(const imbrex_kv *kv, const char *key, const char *value) {
  done(imbrex_kv_put(kv, key, strlen(key), value, strlen(value), false));
}

/* The key has this value, now or at a snapshot; NULL: none. */
static void has_at(const imbrex_kv *kv, const imbrex_kv_snapshot *at, const char *key, const char *value) {
  imbrex_kv_value *got = (imbrex_kv_value *)&got;
  size_t len = 99;
  done(imbrex_kv_get(kv, at, key, strlen(key), &got));
  const void *data = imbrex_kv_value_data(got, &len);
  CHECK((value == NULL) == (got == NULL) && (value == NULL) == (data == NULL));
  CHECK(len == (value == NULL ? 0 : strlen(value)) && (len == 0 || memcmp(data, value, len) == 0));
  imbrex_kv_value_free(got);
}

static void has(const imbrex_kv *kv, const char *key, const char *value) { has_at(kv, NULL, key, value); }

/* What an iterator stands on, as "key=value"; "-": on nothing. */
static void at(const imbrex_kv_iterator *iterator, const char *wanted) {
  char found[64] = "-";
  size_t key_len = 99, value_len = 99;
  const void *key = imbrex_kv_iterator_key(iterator, &key_len), *value = imbrex_kv_iterator_value(iterator, &value_len);
  CHECK(imbrex_kv_iterator_valid(iterator) == (key != NULL) && (key == NULL) == (value == NULL));
  if (key == NULL) CHECK(key_len == 0 && value_len == 0);
  else snprintf(found, sizeof found, "%.*s=%.*s", (int)key_len, (const char *)key, (int)value_len, (const char *)value);
  if (strcmp(found, wanted) != 0) fprintf(stderr, "%s, not %s\n", found, wanted);
  CHECK(strcmp(found, wanted) == 0);
}

/* The greatest number is the first. The state counts. */
static int downwards(void *state, const void *a, size_t a_len, const void *b, size_t b_len) {
  __atomic_fetch_add((unsigned long *)state, 1, __ATOMIC_RELAXED);
  char text[2][16] = {{0}, {0}};
  CHECK(a_len > 0 && a_len < 16 && b_len > 0 && b_len < 16);
  memcpy(text[0], a, a_len);
  memcpy(text[1], b, b_len);
  long x = atol(text[0]), y = atol(text[1]);
  return (x < y) - (x > y);
}

static unsigned long compared;
static const imbrex_kv_order numbers = {"numbers downwards", downwards, &compared};

/* Many keys at once, at one moment. */
static void many_keys(const char *uri) {
  imbrex_kv *kv = NULL;
  done(imbrex_kv_open(uri, "many", NULL, IMBREX_KV_CREATE, &kv));
  put(kv, "a", "1");
  put(kv, "b", "");
  imbrex_kv_snapshot *before = NULL;
  done(imbrex_kv_snapshot_new(kv, &before));
  put(kv, "a", "2");
  const void *keys[] = {"b", "never", "a", "a"};
  const size_t lens[] = {1, 5, 1, 1};
  for (int now = 0; now < 2; now++) {
    imbrex_kv_value *values[4];
    done(imbrex_kv_multi_get(kv, now ? NULL : before, 4, keys, lens, values));
    size_t len = 99;
    CHECK(imbrex_kv_value_data(values[0], &len) != NULL && len == 0);
    CHECK(values[1] == NULL);
    for (int i = 2; i < 4; i++) {
      CHECK(memcmp(imbrex_kv_value_data(values[i], &len), now ? "2" : "1", 1) == 0 && len == 1);
    }
    for (int i = 0; i < 4; i++) {
      imbrex_kv_value_free(values[i]);
    }
  }
  imbrex_kv_value *none[2] = {(imbrex_kv_value *)&kv, (imbrex_kv_value *)&kv};
  done(imbrex_kv_multi_get(kv, NULL, 0, NULL, NULL, none));
  refused(imbrex_kv_multi_get(kv, NULL, 2, NULL, lens, none), IMBREX_INVALID_ARGUMENT, "NULL");
  CHECK(none[0] == NULL && none[1] == NULL);
  refused(imbrex_kv_multi_get(kv, NULL, 2, keys, NULL, none), IMBREX_INVALID_ARGUMENT, "NULL");
  refused(imbrex_kv_multi_get(kv, NULL, 1, keys, lens, NULL), IMBREX_INVALID_ARGUMENT, "NULL");
  imbrex_kv_snapshot_free(before);
  imbrex_kv_close(kv);
}

static void keys_and_values(const char *uri) {
  imbrex_kv *kv = NULL, *again = NULL;
  done(imbrex_kv_open(uri, NULL, NULL, IMBREX_KV_OPEN, &kv));
  /* A process has one store of a drive. */
  done(imbrex_kv_open(uri, "", NULL, IMBREX_KV_CREATE, &again));
  has(kv, "a", NULL);
  put(kv, "a", "1");
  has(again, "a", "1");
  done(imbrex_kv_put(again, "a", 1, "\0\1", 2, true));
  imbrex_kv_value *value = NULL;
  done(imbrex_kv_get(kv, NULL, "a", 1, &value));
  size_t len = 0;
  CHECK(memcmp(imbrex_kv_value_data(value, &len), "\0\1", 2) == 0 && len == 2);
  CHECK(imbrex_kv_value_data(value, NULL) != NULL);
  done(imbrex_kv_delete(again, "a", 1, false));
  /* It stays as it is, also when the key is gone. */
  CHECK(memcmp(imbrex_kv_value_data(value, &len), "\0\1", 2) == 0);
  imbrex_kv_value_free(value);
  has(kv, "a", NULL);
  done(imbrex_kv_delete(kv, "a", 1, true));
  /* Nothing is a key, and a value. */
  done(imbrex_kv_put(kv, NULL, 0, NULL, 0, false));
  has(kv, "", "");
  done(imbrex_kv_delete(kv, NULL, 0, false));
  done(imbrex_kv_sync(kv));
  imbrex_kv_close(kv);
  put(again, "kept", "after the first handle");
  imbrex_kv_close(again);
  done(imbrex_kv_open(uri, NULL, NULL, IMBREX_KV_OPEN, &kv));
  has(kv, "kept", "after the first handle");
  done(imbrex_kv_delete(kv, "kept", 4, true));
  imbrex_kv_close(kv);
}

static void batches_and_spaces(const char *uri) {
  imbrex_kv *kv = NULL, *users = NULL, *logs = NULL, *same = NULL;
  done(imbrex_kv_open(uri, NULL, NULL, IMBREX_KV_OPEN, &kv));
  refused(imbrex_kv_space(kv, "users", NULL, IMBREX_KV_OPEN, &users), IMBREX_NOT_FOUND, "there is no space \"users\"");
  done(imbrex_kv_space(kv, "users", NULL, IMBREX_KV_CREATE_NEW, &users));
  refused(imbrex_kv_open(uri, "users", NULL, IMBREX_KV_CREATE_NEW, &same), IMBREX_EXISTS, "already");
  done(imbrex_kv_open(uri, "users", NULL, IMBREX_KV_OPEN, &same));
  done(imbrex_kv_open(uri, "logs", &numbers, IMBREX_KV_CREATE, &logs));

  imbrex_kv_list *list = NULL;
  done(imbrex_kv_spaces(kv, &list));
  CHECK(imbrex_kv_list_len(list) == 4 && strcmp(imbrex_kv_list_text(list, 0), "letters") == 0);
  CHECK(strcmp(imbrex_kv_list_text(list, 1), "logs") == 0 && strcmp(imbrex_kv_list_order(list, 1), "numbers downwards") == 0);
  CHECK(strcmp(imbrex_kv_list_text(list, 3), "users") == 0);
  CHECK(strcmp(imbrex_kv_list_order(list, 3), "leveldb.BytewiseComparator") == 0);
  CHECK(imbrex_kv_list_text(list, 4) == NULL && imbrex_kv_list_order(list, SIZE_MAX) == NULL);
  imbrex_kv_list_free(list);

  imbrex_kv_batch *batch = NULL;
  done(imbrex_kv_batch_new(&batch));
  CHECK(imbrex_kv_batch_len(batch) == 0);
  size_t least = imbrex_kv_batch_bytes(batch);
  done(imbrex_kv_write(users, batch, true));
  /* To the space that it is written to, until it names one. */
  done(imbrex_kv_batch_put(batch, "x", 1, "old", 3));
  done(imbrex_kv_batch_put(batch, "x", 1, "new", 3));
  done(imbrex_kv_batch_put(batch, "y", 1, "gone", 4));
  done(imbrex_kv_batch_space(batch, logs));
  done(imbrex_kv_batch_put(batch, "9", 1, "nine", 4));
  done(imbrex_kv_batch_put(batch, "10", 2, "ten", 3));
  done(imbrex_kv_batch_space(batch, same));
  done(imbrex_kv_batch_delete(batch, "y", 1));
  CHECK(imbrex_kv_batch_len(batch) == 6 && imbrex_kv_batch_bytes(batch) > least + 20);
  has(users, "x", NULL);
  done(imbrex_kv_write(users, batch, true));
  has(same, "x", "new");
  has(users, "y", NULL);
  has(logs, "9", "nine");
  has(kv, "x", NULL);
  /* It may be written again, and elsewhere. */
  done(imbrex_kv_write(kv, batch, false));
  has(kv, "x", "new");
  has(kv, "y", "gone");
  done(imbrex_kv_batch_clear(batch));
  CHECK(imbrex_kv_batch_len(batch) == 0 && imbrex_kv_batch_bytes(batch) == least);
  done(imbrex_kv_batch_put(batch, "z", 1, NULL, 0));
  done(imbrex_kv_write(kv, batch, false));
  has(kv, "z", "");
  /* All of another one. */
  imbrex_kv_batch *sum = NULL;
  done(imbrex_kv_batch_new(&sum));
  done(imbrex_kv_batch_space(sum, users));
  done(imbrex_kv_batch_put(sum, "w", 1, "w", 1));
  done(imbrex_kv_batch_append(sum, batch));
  done(imbrex_kv_batch_append(sum, sum));
  CHECK(imbrex_kv_batch_len(sum) == 4 && imbrex_kv_batch_len(batch) == 1);
  done(imbrex_kv_write(kv, sum, false));
  has(users, "z", "");
  imbrex_kv_batch_free(sum);
  /* Of another store. */
  imbrex_kv *other = NULL;
  done(imbrex_kv_open("imbrex://mem:?profile=tiny&survivor-size=1M", NULL, NULL, IMBREX_KV_OPEN, &other));
  done(imbrex_kv_batch_space(batch, other));
  done(imbrex_kv_batch_put(batch, "z", 1, NULL, 0));
  refused(imbrex_kv_write(kv, batch, false), IMBREX_INVALID_ARGUMENT, "another store");
  imbrex_kv_snapshot *snapshot = NULL;
  imbrex_kv_iterator *iterator = NULL;
  imbrex_kv_value *value = NULL;
  done(imbrex_kv_snapshot_new(other, &snapshot));
  refused(imbrex_kv_get(kv, snapshot, "x", 1, &value), IMBREX_INVALID_ARGUMENT, "another store");
  refused(imbrex_kv_iterator_new(kv, snapshot, &iterator), IMBREX_INVALID_ARGUMENT, "another store");
  CHECK(value == NULL && iterator == NULL);
  imbrex_kv_snapshot_free(snapshot);
  imbrex_kv_close(other);
  imbrex_kv_batch_free(batch);

  /* Another order, or none that is one. */
  imbrex_kv_order bad = numbers;
  bad.name = "numbers upwards";
  refused(imbrex_kv_space(kv, "logs", &bad, IMBREX_KV_CREATE, &same), IMBREX_INVALID_ARGUMENT, "numbers downwards");
  refused(imbrex_kv_open(uri, "logs", NULL, IMBREX_KV_OPEN, &same), IMBREX_INVALID_ARGUMENT, "numbers downwards");
  refused(imbrex_kv_open(uri, NULL, &numbers, IMBREX_KV_OPEN, &same), IMBREX_INVALID_ARGUMENT, "leveldb.BytewiseComparator");
  bad.compare = NULL;
  refused(imbrex_kv_space(kv, "more", &bad, IMBREX_KV_CREATE, &same), IMBREX_INVALID_ARGUMENT, "compares");
  bad = numbers;
  bad.name = "";
  refused(imbrex_kv_space(kv, "more", &bad, IMBREX_KV_CREATE, &same), IMBREX_INVALID_ARGUMENT, "no name");
  bad.name = NULL;
  CHECK(code(imbrex_kv_know(&bad)) == IMBREX_INVALID_ARGUMENT);
  imbrex_kv_close(same);
  imbrex_kv_close(logs);
  imbrex_kv_close(users);
  imbrex_kv_close(kv);
}

static void checkpoints(const char *uri) {
  imbrex_kv *kv = NULL;
  imbrex_kv_snapshot *at = NULL;
  imbrex_kv_list *list = NULL;
  done(imbrex_kv_open(uri, "days", NULL, IMBREX_KV_CREATE_NEW, &kv));
  put(kv, "day", "monday");
  done(imbrex_kv_checkpoint_new(kv, "one"));
  refused(imbrex_kv_checkpoint_new(kv, "one"), IMBREX_EXISTS, "already");
  put(kv, "day", "tuesday");
  done(imbrex_kv_checkpoint_new(kv, "a second"));
  imbrex_kv_close(kv);
  done(imbrex_kv_open(uri, "days", NULL, IMBREX_KV_OPEN, &kv));
  done(imbrex_kv_checkpoints(kv, &list));
  CHECK(imbrex_kv_list_len(list) == 2 && strcmp(imbrex_kv_list_text(list, 1), "one") == 0);
  imbrex_kv_list_free(list);
  done(imbrex_kv_checkpoint_open(kv, "one", &at));
  done(imbrex_kv_checkpoint_drop(kv, "one"));
  refused(imbrex_kv_checkpoint_drop(kv, "one"), IMBREX_NOT_FOUND, "one");
  has_at(kv, at, "day", "monday");
  imbrex_kv_snapshot_free(at);
  refused(imbrex_kv_checkpoint_open(kv, "one", &at), IMBREX_NOT_FOUND, "one");
  done(imbrex_kv_checkpoint_drop(kv, "a second"));
  has(kv, "day", "tuesday");
  done(imbrex_kv_drop(kv, "days"));
  imbrex_kv_close(kv);
}

static void snapshots_and_iterators(const char *uri) {
  imbrex_kv *kv = NULL;
  imbrex_kv_snapshot *before = NULL;
  imbrex_kv_iterator *iterator = NULL;
  done(imbrex_kv_open(uri, "letters", NULL, IMBREX_KV_CREATE_NEW, &kv));
  done(imbrex_kv_iterator_new(kv, NULL, &iterator));
  at(iterator, "-");
  done(imbrex_kv_iterator_first(iterator));
  done(imbrex_kv_iterator_next(iterator));
  done(imbrex_kv_iterator_prev(iterator));
  at(iterator, "-");
  imbrex_kv_iterator_free(iterator);
  put(kv, "a", "1");
  put(kv, "c", "3");
  put(kv, "e", "5");
  done(imbrex_kv_snapshot_new(kv, &before));
  put(kv, "c", "new");
  put(kv, "d", "4");
  done(imbrex_kv_delete(kv, "e", 1, false));
  has_at(kv, before, "c", "3");
  has_at(kv, before, "d", NULL);
  has(kv, "c", "new");

  done(imbrex_kv_iterator_new(kv, before, &iterator));
  /* Handle and snapshot may go: the iterator keeps the store. */
  imbrex_kv_snapshot_free(before);
  imbrex_kv_close(kv);
  done(imbrex_kv_iterator_first(iterator));
  at(iterator, "a=1");
  done(imbrex_kv_iterator_next(iterator));
  at(iterator, "c=3");
  done(imbrex_kv_iterator_next(iterator));
  at(iterator, "e=5");
  done(imbrex_kv_iterator_prev(iterator));
  at(iterator, "c=3");
  done(imbrex_kv_iterator_next(iterator));
  done(imbrex_kv_iterator_next(iterator));
  at(iterator, "-");
  done(imbrex_kv_iterator_last(iterator));
  at(iterator, "e=5");
  done(imbrex_kv_iterator_seek(iterator, "b", 1));
  at(iterator, "c=3");
  done(imbrex_kv_iterator_seek_for_prev(iterator, "b", 1));
  at(iterator, "a=1");
  done(imbrex_kv_iterator_prev(iterator));
  at(iterator, "-");
  done(imbrex_kv_iterator_seek_for_prev(iterator, "c", 1));
  at(iterator, "c=3");
  done(imbrex_kv_iterator_seek(iterator, "f", 1));
  at(iterator, "-");
  done(imbrex_kv_iterator_seek(iterator, NULL, 0));
  at(iterator, "a=1");
  imbrex_kv_iterator_free(iterator);
}

static void ingests(const char *uri) {
  imbrex_kv *kv = NULL;
  done(imbrex_kv_open(uri, "sorted", NULL, IMBREX_KV_CREATE_NEW, &kv));
  put(kv, "b", "before");
  imbrex_kv_ingest *ingest = NULL;
  done(imbrex_kv_ingest_new(kv, &ingest));
  done(imbrex_kv_ingest_put(ingest, "a", 1, "1", 1));
  done(imbrex_kv_ingest_put(ingest, "b", 1, "2", 1));
  refused(imbrex_kv_ingest_put(ingest, "b", 1, "3", 1), IMBREX_INVALID_ARGUMENT, "not behind the one before");
  has(kv, "a", NULL);
  CHECK(imbrex_kv_ingest_stored(ingest) == 0);
  done(imbrex_kv_ingest_finish(ingest));
  CHECK(imbrex_kv_ingest_stored(ingest) == 2);
  has(kv, "a", "1");
  has(kv, "b", "2");
  /* It goes on, and what it does not finish is not there. */
  done(imbrex_kv_ingest_put(ingest, "c", 1, NULL, 0));
  done(imbrex_kv_ingest_finish(ingest));
  done(imbrex_kv_ingest_put(ingest, "d", 1, "4", 1));
  imbrex_kv_ingest_free(ingest);
  has(kv, "c", "");
  has(kv, "d", NULL);
  put(kv, "a", "after");
  has(kv, "a", "after");
  ingest = NULL;
  done(imbrex_kv_ingest_new(kv, &ingest));
  done(imbrex_kv_drop(kv, "sorted"));
  done(imbrex_kv_ingest_put(ingest, "e", 1, "5", 1));
  refused(imbrex_kv_ingest_finish(ingest), IMBREX_NOT_FOUND, "dropped");
  imbrex_kv_ingest_free(ingest);
  refused(imbrex_kv_ingest_new(kv, &ingest), IMBREX_NOT_FOUND, "dropped");
  imbrex_kv_close(kv);
}

static void ranges(const char *uri) {
  imbrex_kv *kv = NULL, *other = NULL;
  imbrex_kv_batch *batch = NULL;
  imbrex_kv_snapshot *before = NULL;
  char key[2] = "a";
  done(imbrex_kv_open(uri, "ranges", NULL, IMBREX_KV_CREATE_NEW, &kv));
  done(imbrex_kv_space(kv, "more ranges", NULL, IMBREX_KV_CREATE_NEW, &other));
  for (; key[0] <= 'z'; key[0]++) {
    put(kv, key, "v");
    put(other, key, "v");
  }
  done(imbrex_kv_snapshot_new(kv, &before));
  done(imbrex_kv_delete_range(kv, "c", 1, "f", 1, true));
  has(kv, "b", "v");
  has(kv, "c", NULL);
  has(kv, "e", NULL);
  has(kv, "f", "v");
  has_at(kv, before, "c", "v");
  imbrex_kv_snapshot_free(before);
  done(imbrex_kv_delete_range(kv, "x", 1, NULL, 0, false));
  has(kv, "w", "v");
  has(kv, "z", NULL);
  has(other, "z", "v");
  refused(imbrex_kv_delete_range(kv, "f", 1, "c", 1, false), IMBREX_INVALID_ARGUMENT, "ends before it begins");
  done(imbrex_kv_batch_new(&batch));
  done(imbrex_kv_batch_space(batch, other));
  done(imbrex_kv_batch_delete_range(batch, NULL, 0, "y", 1));
  done(imbrex_kv_batch_put(batch, "x", 1, "new", 3));
  done(imbrex_kv_write(kv, batch, true));
  has(other, "a", NULL);
  has(other, "x", "new");
  has(other, "y", "v");
  has(kv, "a", "v");

  refused(imbrex_kv_drop(kv, "no such"), IMBREX_NOT_FOUND, "there is no space");
  CHECK(code(imbrex_kv_drop(kv, "")) == IMBREX_INVALID_ARGUMENT);
  done(imbrex_kv_drop(kv, "more ranges"));
  CHECK(code(imbrex_kv_put(other, "a", 1, "v", 1, false)) == IMBREX_NOT_FOUND);
  CHECK(code(imbrex_kv_write(kv, batch, false)) == IMBREX_NOT_FOUND);
  imbrex_kv_close(other);
  done(imbrex_kv_space(kv, "more ranges", NULL, IMBREX_KV_CREATE_NEW, &other));
  has(other, "y", NULL);
  imbrex_kv_close(other);
  done(imbrex_kv_drop(kv, "more ranges"));
  imbrex_kv_batch_free(batch);
  imbrex_kv_close(kv);
}

/* Over is what the state names; it counts the calls. */
struct over {
  const char *value;
  unsigned long calls;
};

static bool is_over(void *state, const void *key, size_t key_len, const void *value, size_t value_len) {
  struct over *over = state;
  __atomic_fetch_add(&over->calls, 1, __ATOMIC_RELAXED);
  CHECK(key != NULL && key_len > 0 && value != NULL);
  return value_len == strlen(over->value) && memcmp(value, over->value, value_len) == 0;
}

static void expiry(const char *uri) {
  /* It must be there as long as there are handles. */
  static struct over old = {"old", 0}, stale = {"stale", 0};
  imbrex_kv *kv = NULL, *other = NULL;
  imbrex_kv_snapshot *before = NULL;
  imbrex_kv_iterator *iterator = NULL;
  done(imbrex_kv_open(uri, "over", NULL, IMBREX_KV_CREATE_NEW, &kv));
  done(imbrex_kv_space(kv, "not over", NULL, IMBREX_KV_CREATE_NEW, &other));
  put(kv, "a", "old");
  put(kv, "b", "young");
  put(kv, "c", "stale");
  put(other, "a", "old");
  done(imbrex_kv_snapshot_new(kv, &before));
  has(kv, "a", "old");
  done(imbrex_kv_expire(kv, is_over, &old));
  has(kv, "a", NULL);
  has_at(kv, before, "a", NULL);
  has(kv, "b", "young");
  has(other, "a", "old");
  CHECK(old.calls > 0);
  imbrex_kv_snapshot_free(before);
  done(imbrex_kv_iterator_new(kv, NULL, &iterator));
  done(imbrex_kv_iterator_first(iterator));
  at(iterator, "b=young");
  imbrex_kv_iterator_free(iterator);
  /* Another function takes its place. */
  done(imbrex_kv_expire(kv, is_over, &stale));
  has(kv, "c", NULL);
  has(kv, "a", "old");
  /* A merge deletes for good. */
  done(imbrex_kv_flush(kv));
  done(imbrex_kv_compact(kv, NULL, 0, NULL, 0));
  imbrex_kv_close(kv);
  imbrex_kv_close(other);
  done(imbrex_kv_open(uri, "over", NULL, IMBREX_KV_OPEN, &kv));
  has(kv, "a", "old");
  has(kv, "c", NULL);
  /* The time that the value begins with, little-endian: 2020 or so, never, and no time. */
  done(imbrex_kv_expire_by_time(kv));
  done(imbrex_kv_put(kv, "past", 4, "\0\0\0\x60\0\0\0\0past", 12, false));
  done(imbrex_kv_put(kv, "never", 5, "\0\0\0\0\0\0\0\0", 8, false));
  put(kv, "text", "text, not a time");
  has(kv, "past", NULL);
  has(kv, "text", "text, not a time");
  has(kv, "b", "young");
  imbrex_kv_value *value = NULL;
  size_t len = 0;
  done(imbrex_kv_get(kv, NULL, "never", 5, &value));
  CHECK(imbrex_kv_value_data(value, &len) != NULL && len == 8);
  imbrex_kv_value_free(value);
  done(imbrex_kv_drop(kv, "over"));
  done(imbrex_kv_drop(kv, "not over"));
  imbrex_kv_close(kv);
}

/* Values are texts; operands are appended, behind a stroke. */
static void append(void *state, const void *key, size_t key_len, const void *value, size_t value_len, const imbrex_kv_bytes *operands,
                   size_t count, imbrex_kv_value *result) {
  CHECK(key_len == 1 && *(const char *)key == 'm' && count > 0 && (value != NULL || value_len == 0));
  if (value == NULL) imbrex_kv_value_append(result, state, strlen(state));
  imbrex_kv_value_append(result, value, value_len);
  for (size_t i = 0; i < count; i++) {
    imbrex_kv_value_append(result, "|", 1);
    imbrex_kv_value_append(result, operands[i].data, operands[i].len);
  }
}

static bool join(void *state, const void *key, size_t key_len, const imbrex_kv_bytes *operands, size_t count,
                 imbrex_kv_value *result) {
  (void)state;
  CHECK(key_len == 1 && key != NULL && count > 1);
  for (size_t i = 0; i < count; i++) {
    if (i > 0) imbrex_kv_value_append(result, "|", 1);
    imbrex_kv_value_append(result, operands[i].data, operands[i].len);
  }
  return true;
}

static void operands(const char *uri) {
  imbrex_kv *kv = NULL;
  imbrex_kv_snapshot *before = NULL;
  imbrex_kv_batch *batch = NULL;
  imbrex_kv_iterator *iterator = NULL;
  imbrex_kv_value *value = NULL;
  imbrex_kv_merge_operator operator = {append, NULL, "new"}, none = {NULL, join, NULL};
  done(imbrex_kv_open(uri, "operands", NULL, IMBREX_KV_CREATE, &kv));
  CHECK(code(imbrex_kv_merge(kv, "m", 1, "1", 1, false)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_kv_set_merge_operator(kv, &none)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_kv_set_merge_operator(kv, NULL)) == IMBREX_INVALID_ARGUMENT);
  done(imbrex_kv_set_merge_operator(kv, &operator));
  done(imbrex_kv_merge(kv, "m", 1, "1", 1, true));
  done(imbrex_kv_snapshot_new(kv, &before));
  done(imbrex_kv_batch_new(&batch));
  done(imbrex_kv_batch_merge(batch, "m", 1, "2", 1));
  done(imbrex_kv_batch_merge(batch, "m", 1, NULL, 0));
  done(imbrex_kv_write(kv, batch, false));
  imbrex_kv_batch_free(batch);
  operator.combine = join;
  done(imbrex_kv_set_merge_operator(kv, &operator));
  for (int i = 0; i < 3; i++) {
    has(kv, "m", "new|1|2|");
    has_at(kv, before, "m", "new|1");
    done(imbrex_kv_iterator_new(kv, NULL, &iterator));
    done(imbrex_kv_iterator_first(iterator));
    at(iterator, "m=new|1|2|");
    imbrex_kv_iterator_free(iterator);
    if (i == 0) done(imbrex_kv_flush(kv));
    if (i == 1) done(imbrex_kv_compact(kv, NULL, 0, NULL, 0));
  }
  imbrex_kv_snapshot_free(before);
  imbrex_kv_close(kv);
  /* It is known as long as the store is open. */
  done(imbrex_kv_open(uri, "operands", NULL, IMBREX_KV_OPEN, &kv));
  CHECK(code(imbrex_kv_get(kv, NULL, "m", 1, &value)) == IMBREX_INVALID_ARGUMENT && value == NULL);
  done(imbrex_kv_set_merge_operator(kv, &operator));
  has(kv, "m", "new|1|2|");
  done(imbrex_kv_drop(kv, "operands"));
  imbrex_kv_close(kv);
}

/* In the order of the program, which is called for it. */
static void an_order(const char *uri) {
  imbrex_kv *logs = NULL;
  imbrex_kv_iterator *iterator = NULL;
  unsigned long calls = compared;
  done(imbrex_kv_open(uri, "logs", &numbers, IMBREX_KV_OPEN, &logs));
  put(logs, "100", "hundred");
  put(logs, "09", "the same key as 9");
  done(imbrex_kv_iterator_new(logs, NULL, &iterator));
  done(imbrex_kv_iterator_first(iterator));
  at(iterator, "100=hundred");
  done(imbrex_kv_iterator_next(iterator));
  at(iterator, "10=ten");
  done(imbrex_kv_iterator_next(iterator));
  CHECK(imbrex_kv_iterator_valid(iterator));
  done(imbrex_kv_iterator_next(iterator));
  at(iterator, "-");
  done(imbrex_kv_iterator_seek(iterator, "11", 2));
  at(iterator, "10=ten");
  imbrex_kv_iterator_free(iterator);
  has(logs, "9", "the same key as 9");
  CHECK(compared > calls);
  imbrex_kv_close(logs);
}

static void orders_are_forgotten(const char *uri) {
  imbrex_kv *kv = NULL;
  /* No handle is left: the order that was lent may be gone. */
  refused(imbrex_kv_open(uri, NULL, NULL, IMBREX_KV_OPEN, &kv), IMBREX_INVALID_ARGUMENT, "does not know");
  done(imbrex_kv_open(uri, "logs", &numbers, IMBREX_KV_OPEN, &kv));
  imbrex_kv_close(kv);
  /* Kept, and lent, and kept on. */
  done(imbrex_kv_know(&numbers));
  done(imbrex_kv_open(uri, "logs", &numbers, IMBREX_KV_OPEN, &kv));
  imbrex_kv_close(kv);
  done(imbrex_kv_open(uri, NULL, NULL, IMBREX_KV_OPEN, &kv));
  imbrex_kv_close(kv);
}

static void care(const char *uri) {
  imbrex_kv *kv = NULL;
  imbrex_kv_figures figures;
  imbrex_kv_list *list = NULL;
  char key[16], value[1000];
  uint64_t all = 99, half = 99, none = 99;
  memset(value, 'v', sizeof value);
  done(imbrex_kv_open(uri, "many", NULL, IMBREX_KV_CREATE_NEW, &kv));
  for (int n = 0; n < 2000; n++) {
    snprintf(key, sizeof key, "key%06d", n);
    done(imbrex_kv_put(kv, key, strlen(key), value, sizeof value, false));
  }
  done(imbrex_kv_figures_now(kv, &figures));
  CHECK(figures.memory > 0 && figures.log > 0 && figures.zones_used > 0 && figures.zones_free > 0 && figures.partitions > 0);
  done(imbrex_kv_flush(kv));
  done(imbrex_kv_figures_now(kv, &figures));
  CHECK(figures.tables > 0 && figures.table_bytes > 2000000 && figures.entries >= 2000 && figures.depth > 0);
  done(imbrex_kv_approximate_bytes(kv, NULL, 0, NULL, 0, &all));
  done(imbrex_kv_approximate_bytes(kv, "key000500", 9, "key001500", 9, &half));
  done(imbrex_kv_approximate_bytes(kv, "x", 1, NULL, 0, &none));
  CHECK(all > 2000000 && all <= figures.table_bytes && half > all * 2 / 5 && half < all * 3 / 5 && none == 0);
  /* Half of them is deleted; a compaction of that half makes room. */
  for (int n = 0; n < 1000; n++) {
    snprintf(key, sizeof key, "key%06d", n);
    done(imbrex_kv_delete(kv, key, strlen(key), false));
  }
  done(imbrex_kv_compact(kv, NULL, 0, "key001000", 9));
  done(imbrex_kv_approximate_bytes(kv, NULL, 0, "key001000", 9, &half));
  CHECK(half < all / 20);
  done(imbrex_kv_compact(kv, "key001000", 9, NULL, 0));
  done(imbrex_kv_compact(kv, NULL, 0, NULL, 0));
  done(imbrex_kv_figures_now(kv, &figures));
  CHECK(figures.memory == 0 && figures.table_bytes > 1000000);
  has(kv, "key000999", NULL);
  done(imbrex_kv_check(kv, &list));
  CHECK(imbrex_kv_list_len(list) == 0);
  imbrex_kv_list_free(list);

  /* Too long. */
  imbrex_kv_batch *batch = NULL;
  char *large = calloc(1, 2 << 20);
  CHECK(large != NULL);
  done(imbrex_kv_batch_new(&batch));
  done(imbrex_kv_put(kv, large, IMBREX_KV_KEY_BYTES, "", 0, false));
  refused(imbrex_kv_put(kv, large, IMBREX_KV_KEY_BYTES + 1, "", 0, false), IMBREX_INVALID_ARGUMENT, "65536 bytes at most");
  refused(imbrex_kv_put(kv, "k", 1, large, 2 << 20, false), IMBREX_INVALID_ARGUMENT, "too long for a zone");
  CHECK(code(imbrex_kv_batch_put(batch, large, SIZE_MAX, "", 0)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_kv_batch_put(batch, "k", 1, large, SIZE_MAX)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_kv_batch_put(batch, "k", 1, large, IMBREX_KV_VALUE_BYTES + 1)) == IMBREX_INVALID_ARGUMENT);
  CHECK(imbrex_kv_batch_len(batch) == 0);
  free(large);
  imbrex_kv_batch_free(batch);
  imbrex_kv_close(kv);
}

#define THREADS 4
#define EACH 500

struct work {
  const imbrex_kv *kv;
  int number;
};

static void *work(void *given) {
  const struct work *mine = given;
  char key[16], value[400];
  memset(value, 'a' + mine->number, sizeof value);
  for (int n = 0; n < EACH; n++) {
    snprintf(key, sizeof key, "%d", n * THREADS + mine->number);
    done(imbrex_kv_put(mine->kv, key, strlen(key), value, sizeof value, n % 100 == 0));
    imbrex_kv_value *got = NULL;
    size_t len = 0;
    done(imbrex_kv_get(mine->kv, NULL, key, strlen(key), &got));
    CHECK(memcmp(imbrex_kv_value_data(got, &len), value, sizeof value) == 0 && len == sizeof value);
    imbrex_kv_value_free(got);
    if (n % 50 != 0) continue;
    /* Own keys are there, those before this one and no others, and in order. */
    imbrex_kv_iterator *iterator = NULL;
    int own = 0;
    long last = THREADS * EACH;
    done(imbrex_kv_iterator_new(mine->kv, NULL, &iterator));
    for (done(imbrex_kv_iterator_first(iterator)); imbrex_kv_iterator_valid(iterator); done(imbrex_kv_iterator_next(iterator))) {
      char text[16] = {0};
      const void *stands_on = imbrex_kv_iterator_key(iterator, &len);
      CHECK(len < sizeof text);
      memcpy(text, stands_on, len);
      long found = atol(text);
      CHECK(found < last);
      last = found;
      own += found % THREADS == mine->number;
    }
    imbrex_kv_iterator_free(iterator);
    CHECK(own == n + 1);
  }
  return NULL;
}

static void many_threads(const char *uri) {
  imbrex_kv *kv = NULL;
  pthread_t threads[THREADS];
  struct work works[THREADS];
  done(imbrex_kv_open(uri, "shared", &numbers, IMBREX_KV_CREATE_NEW, &kv));
  for (int n = 0; n < THREADS; n++) {
    works[n] = (struct work){kv, n};
    CHECK(pthread_create(&threads[n], NULL, work, &works[n]) == 0);
  }
  for (int n = 0; n < THREADS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
  imbrex_kv_close(kv);
}

/* NULL is an error everywhere, and frees nothing. */
static void nothing(const char *uri) {
  imbrex_kv *kv = NULL, *out = NULL;
  imbrex_kv_batch *batch = NULL;
  imbrex_kv_snapshot *snapshot = NULL;
  imbrex_kv_iterator *iterator = NULL;
  imbrex_kv_value *value = NULL;
  imbrex_kv_ingest *ingest = NULL;
  imbrex_kv_list *list = NULL;
  imbrex_kv_figures figures;
  uint64_t bytes = 9;
  size_t len = 9;
  done(imbrex_kv_open(uri, "letters", NULL, IMBREX_KV_OPEN, &kv));
  done(imbrex_kv_batch_new(&batch));
  done(imbrex_kv_iterator_new(kv, NULL, &iterator));
  imbrex_error *errors[] = {
      imbrex_kv_open(NULL, NULL, NULL, IMBREX_KV_OPEN, &out),
      imbrex_kv_open(uri, NULL, NULL, IMBREX_KV_OPEN, NULL),
      imbrex_kv_open(uri, NULL, NULL, 3, &out),
      imbrex_kv_open(uri, "caf\xe9", NULL, IMBREX_KV_OPEN, &out),
      imbrex_kv_open("imbrex://mem:?profile=tiny&no-such=option", NULL, NULL, IMBREX_KV_OPEN, &out),
      imbrex_kv_know(NULL),
      imbrex_kv_space(NULL, "x", NULL, IMBREX_KV_CREATE, &out),
      imbrex_kv_space(kv, "x", NULL, UINT32_MAX, &out),
      imbrex_kv_space(kv, "x", NULL, IMBREX_KV_CREATE, NULL),
      imbrex_kv_drop(NULL, "letters"),
      imbrex_kv_drop(kv, NULL),
      imbrex_kv_spaces(NULL, &list),
      imbrex_kv_spaces(kv, NULL),
      imbrex_kv_put(NULL, "k", 1, "v", 1, false),
      imbrex_kv_put(kv, NULL, 1, "v", 1, false),
      imbrex_kv_put(kv, "k", 1, NULL, 1, false),
      imbrex_kv_delete(NULL, "k", 1, false),
      imbrex_kv_delete(kv, NULL, 1, false),
      imbrex_kv_delete_range(NULL, "k", 1, "l", 1, false),
      imbrex_kv_delete_range(kv, NULL, 1, "l", 1, false),
      imbrex_kv_delete_range(kv, "k", 1, NULL, 1, false),
      imbrex_kv_get(NULL, NULL, "k", 1, &value),
      imbrex_kv_get(kv, NULL, NULL, 1, &value),
      imbrex_kv_get(kv, NULL, "k", 1, NULL),
      imbrex_kv_batch_new(NULL),
      imbrex_kv_batch_space(NULL, kv),
      imbrex_kv_batch_space(batch, NULL),
      imbrex_kv_batch_put(NULL, "k", 1, "v", 1),
      imbrex_kv_batch_put(batch, NULL, 1, "v", 1),
      imbrex_kv_batch_put(batch, "k", 1, NULL, 1),
      imbrex_kv_batch_delete(NULL, "k", 1),
      imbrex_kv_batch_delete(batch, NULL, 1),
      imbrex_kv_batch_delete_range(NULL, "k", 1, "l", 1),
      imbrex_kv_batch_delete_range(batch, NULL, 1, "l", 1),
      imbrex_kv_batch_delete_range(batch, "k", 1, NULL, 1),
      imbrex_kv_batch_append(NULL, batch),
      imbrex_kv_batch_append(batch, NULL),
      imbrex_kv_batch_append(NULL, NULL),
      imbrex_kv_batch_clear(NULL),
      imbrex_kv_write(NULL, batch, false),
      imbrex_kv_write(kv, NULL, false),
      imbrex_kv_sync(NULL),
      imbrex_kv_snapshot_new(NULL, &snapshot),
      imbrex_kv_snapshot_new(kv, NULL),
      imbrex_kv_iterator_new(NULL, NULL, &iterator),
      imbrex_kv_iterator_new(kv, NULL, NULL),
      imbrex_kv_iterator_first(NULL),
      imbrex_kv_iterator_last(NULL),
      imbrex_kv_iterator_seek(NULL, "k", 1),
      imbrex_kv_iterator_seek(iterator, NULL, 1),
      imbrex_kv_iterator_seek_for_prev(NULL, "k", 1),
      imbrex_kv_iterator_seek_for_prev(iterator, NULL, 1),
      imbrex_kv_iterator_next(NULL),
      imbrex_kv_iterator_prev(NULL),
      imbrex_kv_expire(NULL, is_over, NULL),
      imbrex_kv_expire(kv, NULL, NULL),
      imbrex_kv_expire_by_time(NULL),
      imbrex_kv_set_merge_operator(NULL, NULL),
      imbrex_kv_merge(NULL, "k", 1, "v", 1, false),
      imbrex_kv_merge(kv, NULL, 1, "v", 1, false),
      imbrex_kv_merge(kv, "k", 1, NULL, 1, false),
      imbrex_kv_batch_merge(NULL, "k", 1, "v", 1),
      imbrex_kv_batch_merge(batch, "k", 1, NULL, 1),
      imbrex_kv_flush(NULL),
      imbrex_kv_compact(NULL, NULL, 0, NULL, 0),
      imbrex_kv_compact(kv, NULL, 1, NULL, 0),
      imbrex_kv_approximate_bytes(NULL, NULL, 0, NULL, 0, &bytes),
      imbrex_kv_approximate_bytes(kv, NULL, 0, NULL, 1, &bytes),
      imbrex_kv_approximate_bytes(kv, NULL, 0, NULL, 0, NULL),
      imbrex_kv_ingest_new(NULL, &ingest),
      imbrex_kv_ingest_new(kv, NULL),
      imbrex_kv_ingest_put(NULL, "k", 1, "v", 1),
      imbrex_kv_ingest_finish(NULL),
      imbrex_kv_figures_now(NULL, &figures),
      imbrex_kv_figures_now(kv, NULL),
      imbrex_kv_check(NULL, &list),
      imbrex_kv_check(kv, NULL),
  };
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    imbrex_code found = code(errors[i]);
    if (found != IMBREX_INVALID_ARGUMENT) fprintf(stderr, "call %zu: %d\n", i, (int)found);
    CHECK(found == IMBREX_INVALID_ARGUMENT);
  }
  CHECK(out == NULL && value == NULL && snapshot == NULL && list == NULL && bytes == 9 && imbrex_kv_batch_len(batch) == 0);
  CHECK(imbrex_kv_value_data(NULL, &len) == NULL && len == 0 && imbrex_kv_value_data(NULL, NULL) == NULL);
  CHECK(!imbrex_kv_iterator_valid(NULL) && imbrex_kv_iterator_key(NULL, NULL) == NULL);
  CHECK(imbrex_kv_iterator_value(NULL, &len) == NULL && imbrex_kv_batch_len(NULL) == 0 && imbrex_kv_batch_bytes(NULL) == 0);
  CHECK(imbrex_kv_list_len(NULL) == 0 && imbrex_kv_list_text(NULL, 0) == NULL && imbrex_kv_list_order(NULL, 0) == NULL);
  imbrex_kv_close(NULL);
  imbrex_kv_batch_free(NULL);
  imbrex_kv_snapshot_free(NULL);
  CHECK(ingest == NULL && imbrex_kv_ingest_stored(NULL) == 0);
  imbrex_kv_ingest_free(NULL);
  imbrex_kv_iterator_free(NULL);
  imbrex_kv_value_free(NULL);
  imbrex_kv_list_free(NULL);

  /* A child of fork has nothing, and frees nothing. */
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    bool none = code(imbrex_kv_put(kv, "k", 1, "v", 1, false)) == IMBREX_FORKED_CHILD &&
                code(imbrex_kv_iterator_first(iterator)) == IMBREX_FORKED_CHILD;
    imbrex_kv_iterator_free(iterator);
    imbrex_kv_close(kv);
    _exit(none ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  has(kv, "a", "1");
  imbrex_kv_iterator_free(iterator);
  imbrex_kv_batch_free(batch);
  imbrex_kv_close(kv);
}

int main(int count, char **arguments) {
  CHECK(count == 3);
  const char *uri = arguments[1], *what = arguments[2];
  imbrex_kv *kv = NULL;
  if (strcmp(what, "all") == 0) {
    keys_and_values(uri);
    snapshots_and_iterators(uri);
    checkpoints(uri);
    ingests(uri);
    ranges(uri);
    expiry(uri);
    operands(uri);
    batches_and_spaces(uri);
    an_order(uri);
    orders_are_forgotten(uri);
    care(uri);
    many_threads(uri);
    nothing(uri);
    many_keys(uri);
  } else if (strcmp(what, "die") == 0) {
    done(imbrex_kv_know(&numbers));
    done(imbrex_kv_open(uri, "dead", NULL, IMBREX_KV_CREATE_NEW, &kv));
    put(kv, "last", "words");
    _exit(0);
  } else if (strcmp(what, "dead") == 0) {
    done(imbrex_kv_know(&numbers));
    done(imbrex_kv_open(uri, "dead", NULL, IMBREX_KV_OPEN, &kv));
    has(kv, "last", "words");
    imbrex_kv_close(kv);
  } else {
    /* No store is there. The code and the sentence are said. */
    imbrex_error *error = imbrex_kv_open(uri, NULL, NULL, IMBREX_KV_CREATE, &kv);
    CHECK(error != NULL && kv == NULL);
    printf("%d %s", (int)imbrex_error_code(error), imbrex_error_message(error));
    imbrex_error_free(error);
  }
  return 0;
}
