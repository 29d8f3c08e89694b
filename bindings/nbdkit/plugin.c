// nbdkit_imbrex.so: serves the images of an object store over NBD. nbdkit has the protocol; this calls the C API of Imbrex.
//
//   nbdkit ./nbdkit_imbrex.so drive=drive.img
//
// Each image is an export of its name; NAME@SNAPSHOT is a snapshot, for reading only. A write is acknowledged when it survives this process, and
// durable with the next flush, or at once with FUA.

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imbrex.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static const char scheme[] = "imbrex://";

static char *uri;
static imbrex_images *images;

static int errno_of(const imbrex_error *error)
{
  switch (imbrex_error_code(error)) {
  case IMBREX_NOT_FOUND: return ENOENT;
  case IMBREX_NO_SPACE: return ENOSPC;
  case IMBREX_READ_ONLY: return EROFS;
  case IMBREX_BUSY: return EBUSY;
  case IMBREX_INVALID_ARGUMENT:
  case IMBREX_RANGE: return EINVAL;
  default: return EIO;
  }
}

// Tells nbdkit of an error, which is given back. 0: there is none.
static int told(imbrex_error *error)
{
  if (error == NULL)
    return 0;
  int number = errno_of(error);
  nbdkit_error("%s", imbrex_error_message(error));
  nbdkit_set_error(number);
  imbrex_error_free(error);
  return -1;
}

static void plugin_unload(void)
{
  free(uri);
}

static int plugin_config(const char *key, const char *value)
{
  if (strcmp(key, "drive") != 0) {
    nbdkit_error("there is no parameter \"%s\"; say drive=PATH or drive=imbrex://PATH?OPTIONS", key);
    return -1;
  }
  free(uri);
  if (strncmp(value, scheme, sizeof scheme - 1) == 0) {
    uri = strdup(value);
  } else {
    char *path = nbdkit_absolute_path(value);
    if (path == NULL)
      return -1;
    size_t size = sizeof scheme + strlen(path);
    uri = malloc(size);
    if (uri != NULL)
      snprintf(uri, size, "%s%s", scheme, path);
    free(path);
  }
  if (uri == NULL) {
    nbdkit_error("there is no memory for the drive's name");
    return -1;
  }
  return 0;
}

static int plugin_config_complete(void)
{
  if (uri == NULL) {
    nbdkit_error("say which drive has the images: drive=PATH");
    return -1;
  }
  return 0;
}

// Behind the fork of nbdkit: a drive is one process's.
static int plugin_after_fork(void)
{
  return told(imbrex_images_open(uri, true, &images));
}

static void plugin_cleanup(void)
{
  imbrex_images_close(images);
  images = NULL;
}

static int plugin_list_exports(int readonly, int is_tls, struct nbdkit_exports *exports)
{
  (void) readonly;
  (void) is_tls;
  imbrex_image_list *list = NULL;
  if (told(imbrex_image_names(images, &list)) < 0)
    return -1;
  int added = 0;
  for (size_t i = 0; added == 0 && i < imbrex_image_list_len(list); i++)
    added = nbdkit_add_export(exports, imbrex_image_list_name(list, i), NULL);
  imbrex_image_list_free(list);
  return added;
}

// The only image, if there is one only.
static const char *plugin_default_export(int readonly, int is_tls)
{
  (void) readonly;
  (void) is_tls;
  imbrex_image_list *list = NULL;
  if (told(imbrex_image_names(images, &list)) < 0)
    return NULL;
  const char *name = imbrex_image_list_len(list) == 1 ? nbdkit_strdup_intern(imbrex_image_list_name(list, 0)) : "";
  imbrex_image_list_free(list);
  return name;
}

static void *plugin_open(int readonly)
{
  const char *name = nbdkit_export_name();
  if (name == NULL)
    return NULL;
  if (*name == '\0')
    name = plugin_default_export(readonly, 0);
  if (name == NULL)
    return NULL;
  if (*name == '\0') {
    nbdkit_error("say which image: the name of the export is that of an image");
    return NULL;
  }
  imbrex_image *image = NULL;
  if (told(imbrex_image_open(images, name, readonly || strchr(name, '@') != NULL, &image)) < 0)
    return NULL;
  return image;
}

static void plugin_close(void *handle)
{
  imbrex_image_close(handle);
}

static int64_t plugin_get_size(void *handle)
{
  uint64_t size = 0;
  if (told(imbrex_image_size(handle, &size)) < 0)
    return -1;
  return (int64_t) size;
}

static int plugin_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
  (void) handle;
  *minimum = 1;
  *preferred = 4096;
  *maximum = UINT32_MAX;
  return 0;
}

static int plugin_can_write(void *handle)
{
  return !imbrex_image_is_read_only(handle);
}

static int plugin_yes(void *handle)
{
  (void) handle;
  return 1;
}

static int plugin_can_fua(void *handle)
{
  (void) handle;
  return NBDKIT_FUA_NATIVE;
}

static int plugin_pread(void *handle, void *buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
  (void) flags;
  return told(imbrex_image_read(handle, offset, buffer, count));
}

static int plugin_pwrite(void *handle, const void *buffer, uint32_t count, uint64_t offset, uint32_t flags)
{
  return told(imbrex_image_write(handle, offset, buffer, count, (flags & NBDKIT_FLAG_FUA) != 0));
}

static int plugin_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  return told(imbrex_image_zero(handle, offset, count, (flags & NBDKIT_FLAG_FUA) != 0));
}

static int plugin_flush(void *handle, uint32_t flags)
{
  (void) flags;
  return told(imbrex_image_flush(handle));
}

static int plugin_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags, struct nbdkit_extents *extents)
{
  uint64_t end = offset + count;
  while (offset < end) {
    bool stored = false;
    uint64_t len = 0;
    if (told(imbrex_image_extent(handle, offset, end - offset, &stored, &len)) < 0)
      return -1;
    if (nbdkit_add_extent(extents, offset, len, stored ? 0 : NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO) < 0)
      return -1;
    offset += len;
    if (flags & NBDKIT_FLAG_REQ_ONE)
      break;
  }
  return 0;
}

static struct nbdkit_plugin plugin = {
  .name = "imbrex",
  .longname = "Imbrex images",
  .description = "Block images on the object store of a zoned drive",
  .config_help = "drive=PATH|URI   The drive whose object store has the images.",
  .magic_config_key = "drive",
  .unload = plugin_unload,
  .config = plugin_config,
  .config_complete = plugin_config_complete,
  .after_fork = plugin_after_fork,
  .cleanup = plugin_cleanup,
  .list_exports = plugin_list_exports,
  .default_export = plugin_default_export,
  .open = plugin_open,
  .close = plugin_close,
  .get_size = plugin_get_size,
  .block_size = plugin_block_size,
  .can_write = plugin_can_write,
  .can_flush = plugin_yes,
  .can_fua = plugin_can_fua,
  .can_trim = plugin_can_write,
  .can_zero = plugin_can_write,
  .can_fast_zero = plugin_can_write,
  .can_extents = plugin_yes,
  .can_multi_conn = plugin_yes,
  .pread = plugin_pread,
  .pwrite = plugin_pwrite,
  .flush = plugin_flush,
  .trim = plugin_zero,
  .zero = plugin_zero,
  .extents = plugin_extents,
};

NBDKIT_REGISTER_PLUGIN(plugin)
