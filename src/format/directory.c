// The tensor directory: opening by content, lookup, and functions shared by the containers' readers.
#include "format/directory.h"

#include "base/memory.h"
#include "base/suffix.h"
#include "base/utf8.h"
#include "format/builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void st_directory_free(st_directory *d) {
  if (!d) return;
  for (uint32_t i = 0; i < d->n_parts; i++) st_file_close(&d->parts[i]);
  for (size_t i = 0; i < d->n_tensors; i++) st_free(d->tensors[i].name);
  for (size_t i = 0; i < d->n_ignored; i++) st_free(d->ignored[i]);
  st_metadata_free(&d->metadata);
  st_map_free(d->by_name);
  st_json_free(d->config);
  st_json_free(d->generation_config);
  st_sentence_free(d);
  st_free(d->parts);
  st_free(d->tensors);
  st_free(d->ignored);
  st_notices_free(d->notices);
  st_free(d->path);
  st_free(d);
}

const st_tensor *st_directory_find(const st_directory *directory, const char *name) {
  int64_t i = st_map_get(directory->by_name, name, strlen(name));
  return i < 0 ? NULL : &directory->tensors[i];
}

const char *st_tensor_dims_text(const st_tensor *tensor, char text[96]) {
  size_t n = 0;
  for (uint32_t i = tensor->n_dims; i-- > 0;) {
    n += (size_t)snprintf(text + n, 96 - n, "%s%" PRIu64, n ? ", " : "[", tensor->dims[i]); // at most 4 * 22 + 2
  }
  snprintf(text + n, 96 - n, "]");
  return text;
}

// ---- shared by readers -------------------------------------------------------------------------------------------

setun_status st_builder_part(st_builder *b, const char *path, uint32_t *part, setun_error *err) {
  st_directory *d = b->directory;
  size_t capacity = b->part_capacity;
  if (!st_reserve(&d->parts, &capacity, (size_t)d->n_parts + 1, sizeof *d->parts)) return st_fail_memory(err, path);
  b->part_capacity = (uint32_t)capacity;
  const st_file_source *source = b->options->source;
  setun_status s = source ? st_file_open_source(path, source, &d->parts[d->n_parts], err)
                          : st_file_open(path, &d->parts[d->n_parts], err);
  if (s == SETUN_OK) *part = d->n_parts++;
  return s;
}

setun_status st_builder_tensor(st_builder *b, const st_tensor *tensor, const char *name, size_t length,
                               setun_error *err) {
  st_directory *d = b->directory;
  char what[32];
  snprintf(what, sizeof what, "tensor %zu", d->n_tensors);
  setun_status s = st_name_check(name, length, what, err);
  if (s != SETUN_OK) return s;
  if (!st_reserve(&d->tensors, &b->tensor_capacity, d->n_tensors + 1, sizeof *d->tensors)) {
    return st_fail_memory(err, "the tensor directory");
  }
  st_tensor *t = &d->tensors[d->n_tensors];
  *t = *tensor;
  size_t before = b->prefix ? strlen(b->prefix) : 0;
  t->name = st_malloc(before + length + 1, 1);
  if (!t->name) return st_fail_memory(err, "the tensor directory");
  if (before) memcpy(t->name, b->prefix, before);
  memcpy(t->name + before, name, length);
  t->name[before + length] = '\0';
  d->n_tensors++;
  return SETUN_OK;
}

// Builds the index by name; a duplicate name is an error.
static setun_status index_names(st_builder *b, setun_error *err) {
  st_directory *d = b->directory;
  d->by_name = st_map_new(d->n_tensors);
  if (!d->by_name) return st_fail_memory(err, "the tensor directory");
  for (size_t i = 0; i < d->n_tensors; i++) {
    const char *name = d->tensors[i].name;
    int64_t previous;
    if (!st_map_add(d->by_name, name, strlen(name), (int64_t)i, &previous)) {
      return st_fail_memory(err, "the tensor directory");
    }
    if (previous >= 0) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: duplicate name, tensors %" PRId64 " and as tensor %zu", name,
                     previous, i);
    }
  }
  return SETUN_OK;
}

setun_status st_name_check(const char *name, size_t length, const char *what, setun_error *err) {
  if (!length || length > ST_NAME_MOST) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a name of 1 to %d bytes, found %zu", what, ST_NAME_MOST,
                   length);
  }
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)name[i];
    if (c < 0x20 || c == 0x7F) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected a printable name, found byte 0x%02X in it", what, c);
    }
  }
  if (!st_utf8_valid(name, length)) return st_fail(err, SETUN_ERROR_FORMAT, "%s: its name is not valid UTF-8", what);
  return SETUN_OK;
}

setun_status st_dims_check(const char *name, uint64_t n_dims, uint64_t dims[4], setun_error *err) {
  if (n_dims < 1 || n_dims > 4) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected 1 to 4 dimensions, found %" PRIu64, name, n_dims);
  }
  uint64_t elements = 1;
  for (uint64_t i = 0; i < 4; i++) {
    if (i >= n_dims) dims[i] = 1;
    if (!dims[i] || dims[i] > INT64_MAX) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected dimensions of at least 1 and below 2^63, found %" PRIu64,
                     name, dims[i]);
    }
    if (!st_mul_u64(elements, dims[i], &elements) || elements > INT64_MAX) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: its dimensions multiply to more than 2^63 elements", name);
    }
  }
  return SETUN_OK;
}

bool st_directory_has_int8_layouts(const st_directory *d) {
  for (size_t i = 0; i < d->n_tensors; i++) {
    if (d->tensors[i].format && d->tensors[i].format->ops->of_int8_models) return true;
  }
  return false;
}

const char *st_dtype_find(const char *name, uint32_t *bytes) {
  static const struct {
    const char *name;
    uint32_t bytes;
  } others[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E8M0", 1}, {"U16", 2}, {"I16", 2},
                {"U32", 4},  {"I32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (!strcmp(others[i].name, name)) return *bytes = others[i].bytes, others[i].name;
  }
  const st_format *f = st_format_by_dtype(name);
  *bytes = f ? f->block_bytes : 0;
  return f ? f->ops->dtype : NULL;
}

uint32_t st_dtype_bytes(const char *dtype) {
  uint32_t bytes;
  st_dtype_find(dtype, &bytes);
  return bytes;
}

setun_status st_fail_pickled(const char *path, setun_error *err) {
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "%s: weights in Python's pickle format are not read, because loading them runs code from the file; "
                 "save the model as safetensors (in transformers: save_pretrained with safe_serialization=True)",
                 path);
}

// ---- opening ------------------------------------------------------------------------------------------------------

// Determines a regular file's container by its first bytes.
static setun_status open_file(st_builder *b, const char *path, setun_error *err) {
  st_file file;
  setun_status s = st_file_open(path, &file, err);
  if (s != SETUN_OK) return s;
  unsigned char head[9] = {0};
  size_t n = file.size < sizeof head ? (size_t)file.size : sizeof head;
  uint64_t size = file.size;
  s = st_file_read(&file, 0, head, n, err);
  st_file_close(&file);
  if (s != SETUN_OK) return s;
  if (n >= 4 && !memcmp(head, "GGUF", 4)) return st_gguf_open(b, path, err);
  if (n >= 4 && !memcmp(head, "FUGG", 4)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: a big-endian GGUF file: only little-endian ones are read", path);
  }
  if (n >= 4 &&
      (!memcmp(head, "PK\3\4", 4) || (head[0] == 0x80 && head[1] <= 5 && (head[2] == 0x8A || head[2] == '}')))) {
    return st_fail_pickled(path, err);
  }
  if (n >= 4 && (!memcmp(head, "lmgg", 4) || !memcmp(head, "tjgg", 4) || !memcmp(head, "fmgg", 4))) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: a GGML file older than GGUF, which is not supported", path);
  }
  if (b->options->texts_only && n == 9 && head[0] == '{' && !memchr(head, '\0', n)) { // tokenizer.json itself
    b->directory->container = ST_HUGGINGFACE;
    return SETUN_OK;
  }
  // A safetensors header is JSON; other contents with such a name get that reader's error.
  if (n == 9 && head[8] == '{') return st_safetensors_open(b, path, err);
  if (st_has_suffix(path, ".safetensors")) return st_safetensors_open(b, path, err);
  if (!size) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: expected a GGUF or safetensors file or a model's directory, found an empty file", path);
  }
  return st_fail(err, SETUN_ERROR_FORMAT,
                 "%s: expected a GGUF or safetensors file or a model's directory, found a file of %" PRIu64
                 " bytes that begins with %02X %02X %02X %02X",
                 path, size, head[0], head[1], head[2], head[3]);
}

setun_status st_directory_open(const char *path, const st_open_options *options, st_directory **directory,
                               setun_error *err) {
  static const st_open_options none = {0};
  st_directory *d = st_calloc(1, sizeof *d);
  if (!d || !(d->path = st_strdup(path)) || !(d->notices = st_notices_new(options ? options->log : NULL))) {
    st_directory_free(d);
    return st_fail_memory(err, path);
  }
  st_builder b = {.directory = d, .options = options ? options : &none};
  setun_status s = b.options->source            ? st_gguf_open(&b, path, err)
                   : st_path_is_directory(path) ? st_huggingface_open(&b, path, err)
                                                : open_file(&b, path, err);
  if (s == SETUN_OK && (s = index_names(&b, err)) != SETUN_OK) st_fail_in(err, s, "%s", path);
  if (s == SETUN_OK) s = st_ignore_keys(&b, err);
  if (s != SETUN_OK) {
    st_directory_free(d);
    return s;
  }
  *directory = d;
  return SETUN_OK;
}
