/* The object store's API and that of images, as a C program uses them: tests/store.rs compiles and runs this with a URI, and with what is to be done there. */
#include "imbrex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static const imbrex_store_collection all = {7, 0};

static imbrex_store_object object(const char *name) {
  imbrex_store_object object = {7, imbrex_store_hash(NULL, 0, name, strlen(name)), NULL, 0, name, strlen(name), 0, 0};
  return object;
}

/* An object has these bytes. */
static void has(const imbrex_store *store, const char *name, const char *bytes) {
  imbrex_store_object id = object(name);
  char found[100];
  size_t len = 99;
  uint64_t size = 0;
  done(imbrex_store_read(store, all, &id, 0, found, sizeof found, &len));
  done(imbrex_store_size(store, all, &id, &size));
  CHECK(len == strlen(bytes) && size == len && memcmp(found, bytes, len) == 0);
}

/* An entry of a list. */
static void entry(const imbrex_store_list *list, size_t index, const char *key, const char *value) {
  size_t key_len = 0, value_len = 0;
  const void *found = imbrex_store_list_key(list, index, &key_len);
  CHECK(key_len == strlen(key) && memcmp(found, key, key_len) == 0);
  found = imbrex_store_list_value(list, index, &value_len);
  CHECK(value_len == strlen(value) && memcmp(found, value, value_len) == 0);
}

static void objects(const char *uri) {
  imbrex_store *store = NULL;
  imbrex_store_transaction *todo = NULL;
  imbrex_store_list *list = NULL;
  imbrex_store_object a = object("a"), b = object("b"), c = object("c"), found;
  done(imbrex_store_open(uri, &store));
  done(imbrex_store_transaction_new(&todo));
  done(imbrex_store_create_collection(todo, all, 0));
  done(imbrex_store_write(todo, all, &a, 0, "hello", 5));
  done(imbrex_store_set_attribute(todo, all, &a, "color", 5, "red", 3));
  done(imbrex_store_set_attribute(todo, all, &a, "gone", 4, "x", 1));
  done(imbrex_store_remove_attribute(todo, all, &a, "gone", 4));
  done(imbrex_store_omap_set(todo, all, &a, "k1", 2, "v1", 2));
  done(imbrex_store_omap_set(todo, all, &a, "k2", 2, "v2", 2));
  done(imbrex_store_omap_set(todo, all, &a, "k3", 2, "v3", 2));
  done(imbrex_store_omap_remove(todo, all, &a, "k3", 2, NULL, 0));
  done(imbrex_store_omap_set_header(todo, all, &a, "head", 4));
  uint64_t ticket = 0;
  done(imbrex_store_queue(store, todo, &ticket));
  has(store, "a", "hello");
  done(imbrex_store_wait(store, ticket, false));
  done(imbrex_store_wait(store, ticket, true));
  CHECK(code(imbrex_store_wait(store, ticket + 1000, true)) == IMBREX_INVALID_ARGUMENT);

  /* It is empty, and takes new steps. */
  imbrex_store_hint hint = {0, 0, true, false};
  done(imbrex_store_clone(todo, all, &a, &b));
  done(imbrex_store_write(todo, all, &a, 0, "J", 1));
  done(imbrex_store_touch(todo, all, &c));
  done(imbrex_store_set_hint(todo, all, &c, hint));
  done(imbrex_store_clone_range(todo, all, &a, &c, 1, 4, 0));
  done(imbrex_store_truncate(todo, all, &c, 3));
  done(imbrex_store_zero(todo, all, &c, 3, 1));
  done(imbrex_store_commit(store, todo));
  has(store, "a", "Jello");
  has(store, "b", "hello");
  CHECK(code(imbrex_store_commit(store, todo)) == IMBREX_OK);

  done(imbrex_store_attributes(store, all, &b, &list));
  CHECK(imbrex_store_list_len(list) == 1);
  entry(list, 0, "color", "red");
  CHECK(imbrex_store_list_key(list, 1, NULL) == NULL && imbrex_store_list_text(list, 0) == NULL);
  imbrex_store_list_free(list);
  done(imbrex_store_omap(store, all, &b, NULL, 0, 10, &list));
  CHECK(imbrex_store_list_len(list) == 2);
  entry(list, 1, "k2", "v2");
  imbrex_store_list_free(list);
  done(imbrex_store_omap(store, all, &b, "k1", 3, 1, &list));
  CHECK(imbrex_store_list_len(list) == 1);
  entry(list, 0, "k2", "v2");
  imbrex_store_list_free(list);
  done(imbrex_store_omap_header(store, all, &b, &list));
  entry(list, 0, "", "head");
  imbrex_store_list_free(list);

  /* All or nothing. */
  done(imbrex_store_remove(todo, all, &c));
  done(imbrex_store_rename(todo, all, &b, &a));
  CHECK(code(imbrex_store_commit(store, todo)) == IMBREX_EXISTS);
  has(store, "b", "hello");
  done(imbrex_store_rename(todo, all, &b, &b));
  done(imbrex_store_omap_clear(todo, all, &b));
  done(imbrex_store_remove_attribute(todo, all, &b, NULL, 0));
  done(imbrex_store_omap_remove(todo, all, &a, "k", 1, "l", 1));
  done(imbrex_store_commit(store, todo));
  done(imbrex_store_attributes(store, all, &b, &list));
  CHECK(imbrex_store_list_len(list) == 0);
  imbrex_store_list_free(list);

  /* In pages, the next one behind the last object. */
  size_t known = 0;
  imbrex_store_object from;
  for (bool first = true;; first = false) {
    done(imbrex_store_objects(store, all, first ? NULL : &from, 2, &list));
    size_t len = imbrex_store_list_len(list);
    known += len;
    if (len < 2) break;
    CHECK(imbrex_store_list_object(list, 1, &found) && !imbrex_store_list_object(list, 2, &found));
    static char name[10];
    memcpy(name, found.name, found.name_len);
    from = found;
    from.name = name;
    from.namespace_ = NULL;
    from.generation++;
    imbrex_store_list_free(list);
  }
  imbrex_store_list_free(list);
  CHECK(known == 3);

  /* Halves of a collection. */
  imbrex_store_collection half = {7, 1};
  done(imbrex_store_split_collection(todo, all, half));
  done(imbrex_store_merge_collection(todo, half, all));
  done(imbrex_store_commit(store, todo));
  done(imbrex_store_remove_collection(todo, all));
  CHECK(code(imbrex_store_commit(store, todo)) == IMBREX_NOT_EMPTY);

  imbrex_store_object none = object("none");
  uint64_t size;
  char byte;
  size_t len;
  CHECK(code(imbrex_store_size(store, all, &none, &size)) == IMBREX_NOT_FOUND);
  CHECK(code(imbrex_store_read(store, all, &none, 0, &byte, 1, &len)) == IMBREX_NOT_FOUND);
  CHECK(code(imbrex_store_read(store, all, &a, 0, NULL, 1, &len)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_store_size(NULL, all, &a, &size)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_store_size(store, all, NULL, &size)) == IMBREX_INVALID_ARGUMENT);
  CHECK(code(imbrex_store_commit(store, NULL)) == IMBREX_INVALID_ARGUMENT);
  done(imbrex_store_check(store, true, &list));
  CHECK(imbrex_store_list_len(list) == 0);
  imbrex_store_list_free(list);
  imbrex_store_usage usage;
  done(imbrex_store_stat(store, &usage));
  CHECK(usage.objects == 3 && usage.free > 0);
  done(imbrex_store_sync(store));
  imbrex_store_transaction_free(todo);
  imbrex_store_close(store);
  imbrex_store_list_free(NULL);
  imbrex_store_transaction_free(NULL);
  imbrex_store_close(NULL);
}

static void disks(const char *uri) {
  imbrex_images *images = NULL;
  imbrex_image *disk = NULL, *other = NULL;
  imbrex_image_list *list = NULL;
  imbrex_image_info info;
  imbrex_image_limits limits = { 0, 0, 0 };
  char bytes[8192], found[8192];
  uint64_t size = 0, run = 0;
  bool stored = false;
  memset(bytes, 7, sizeof bytes);
  done(imbrex_images_open(uri, false, &images));
  done(imbrex_image_create(images, "disk", 10 << 20));
  CHECK(code(imbrex_image_create(images, "disk", 1)) == IMBREX_EXISTS);
  done(imbrex_image_open(images, "disk", false, &disk));
  done(imbrex_image_size(disk, &size));
  CHECK(size == 10 << 20 && !imbrex_image_is_read_only(disk) && imbrex_image_is_read_only(NULL));
  done(imbrex_image_write(disk, 4090, bytes, sizeof bytes, false));
  done(imbrex_image_flush(disk));
  limits.used = 8192;
  limits.bandwidth = 1u << 30;
  done(imbrex_image_limit(images, "disk", &limits));
  CHECK(code(imbrex_image_write(disk, 1 << 20, bytes, 1, false)) == IMBREX_NO_SPACE);
  done(imbrex_image_stat(images, "disk", &info));
  CHECK(info.limits.used == 8192 && info.limits.iops == 0 && info.limits.bandwidth == 1u << 30 && info.kept == 0);
  CHECK(code(imbrex_image_limit(images, "disk", NULL)) == IMBREX_INVALID_ARGUMENT);
  limits.used = limits.bandwidth = 0;
  done(imbrex_image_limit(images, "disk", &limits));
  done(imbrex_image_snapshot(images, "disk", "one"));
  done(imbrex_image_zero(disk, 0, 5000, true));
  done(imbrex_image_read(disk, 4090, found, sizeof found));
  CHECK(found[0] == 0 && found[5000 - 4090] == 7);
  done(imbrex_image_extent(disk, 0, size, &stored, &run));
  CHECK(!stored && run == 4096);
  done(imbrex_image_extent(disk, run, size - run, &stored, &run));
  CHECK(stored && run == (4090 + sizeof bytes + 4095) / 4096 * 4096 - 4096);
  CHECK(code(imbrex_image_read(disk, size, found, 1)) == IMBREX_RANGE);
  CHECK(code(imbrex_image_write(disk, 0, NULL, 1, false)) == IMBREX_INVALID_ARGUMENT);

  done(imbrex_image_clone(images, "disk", "one", "copy"));
  CHECK(code(imbrex_image_snapshot_remove(images, "disk", "one")) == IMBREX_BUSY);
  done(imbrex_image_open(images, "copy", true, &other));
  done(imbrex_image_read(other, 4090, found, sizeof found));
  CHECK(memcmp(found, bytes, sizeof bytes) == 0);
  CHECK(code(imbrex_image_write(other, 0, bytes, 1, false)) == IMBREX_READ_ONLY);
  done(imbrex_image_stat(images, "copy", &info));
  CHECK(info.size == size && info.clone && info.snapshots == 0);
  done(imbrex_image_flatten(images, "copy"));
  done(imbrex_image_snapshot_remove(images, "disk", "one"));
  done(imbrex_image_resize(images, "copy", 1 << 20));
  done(imbrex_image_names(images, &list));
  CHECK(imbrex_image_list_len(list) == 2 && strcmp(imbrex_image_list_name(list, 1), "disk") == 0);
  CHECK(imbrex_image_list_name(list, 2) == NULL);
  imbrex_image_list_free(list);
  CHECK(code(imbrex_image_remove(images, "disk")) == IMBREX_BUSY);
  imbrex_image_close(disk);
  done(imbrex_image_snapshot(images, "disk", "two"));
  done(imbrex_image_rollback(images, "disk", "two"));
  done(imbrex_image_snapshot_remove(images, "disk", "two"));
  done(imbrex_image_rename(images, "disk", "root"));
  done(imbrex_image_remove(images, "root"));
  CHECK(code(imbrex_image_open(images, "root", true, &disk)) == IMBREX_NOT_FOUND);
  imbrex_image_close(other);
  imbrex_images_close(images);
}

/* Is killed behind a write that outlives it. */
static void die(const char *uri) {
  imbrex_images *images = NULL;
  imbrex_image *disk = NULL;
  done(imbrex_images_open(uri, false, &images));
  done(imbrex_image_create(images, "kept", 1 << 20));
  done(imbrex_image_open(images, "kept", false, &disk));
  done(imbrex_image_write(disk, 100, "kept", 4, false));
  _exit(0);
}

static void dead(const char *uri) {
  imbrex_images *images = NULL;
  imbrex_image *disk = NULL;
  char found[4];
  done(imbrex_images_open(uri, false, &images));
  done(imbrex_image_open(images, "kept", true, &disk));
  done(imbrex_image_read(disk, 100, found, 4));
  CHECK(memcmp(found, "kept", 4) == 0);
  imbrex_image_close(disk);
  imbrex_images_close(images);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  if (strcmp(argv[2], "objects") == 0) objects(argv[1]);
  else if (strcmp(argv[2], "disks") == 0) disks(argv[1]);
  else if (strcmp(argv[2], "die") == 0) die(argv[1]);
  else if (strcmp(argv[2], "dead") == 0) dead(argv[1]);
  else CHECK(!"what is to be done");
  return 0;
}
