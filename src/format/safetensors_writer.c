// Writing safetensors files: the header's JSON, the tensors' order, their bytes.
#include "format/safetensors_writer.h"

#include "base/memory.h"
#include "format/builder.h"

#include <stdlib.h>
#include <string.h>

static const char *dtype_of(const st_output_tensor *t) {
  return t->format ? t->format->ops->dtype : t->dtype;
}

// The alignment of the tensor's offset.
static uint64_t width_of(const st_output_tensor *t) {
  uint64_t width = t->format ? t->format->block_bytes : st_dtype_bytes(t->dtype);
  return width ? width : 1;
}

typedef struct {
  st_output_tensor *tensor;
  size_t index;
} ordered;

static int by_width(const void *a, const void *b) {
  const ordered *x = a, *y = b;
  uint64_t v = width_of(x->tensor), w = width_of(y->tensor);
  return v > w ? -1 : v < w ? 1 : x->index < y->index ? -1 : x->index > y->index;
}

static setun_status place(ordered *order, size_t n, setun_error *err) {
  uint64_t at = 0;
  bool aligned = true;
  for (size_t i = 0; i < n; i++) {
    const st_output_tensor *t = order[i].tensor;
    aligned = aligned && at % width_of(t) == 0;
    if (!st_add_u64(at, t->bytes, &at) || at > INT64_MAX) {
      return st_fail(err, SETUN_ERROR_LIMIT, "%s: the tensors' sizes overflow", t->name);
    }
  }
  if (!aligned) qsort(order, n, sizeof *order, by_width);
  at = 0;
  for (size_t i = 0; i < n; i++) {
    order[i].tensor->offset = at;
    at += order[i].tensor->bytes;
  }
  return SETUN_OK;
}

static setun_status put_entry(const st_output_tensor *t, st_json *header, setun_error *err) {
  const char *dtype = dtype_of(t);
  if (!dtype) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: safetensors has no type for %s", t->name,
                   t->format ? t->format->name : t->dtype);
  }
  uint64_t parts = t->format ? t->format->ops->row_parts : 0;
  st_json entry = st_json_make_object(), shape = st_json_make_array(), offsets = st_json_make_array();
  for (uint32_t i = t->n_dims; i-- > 0;) {
    uint64_t dim = t->dims[i];
    if (parts && i == 1) dim = dim / parts + (dim % parts != 0);
    st_json_push(header, &shape, st_json_make_integer((int64_t)dim));
  }
  st_json_push(header, &offsets, st_json_make_integer((int64_t)t->offset));
  st_json_push(header, &offsets, st_json_make_integer((int64_t)(t->offset + t->bytes)));
  st_json_set(header, &entry, "dtype", st_json_make_text(header, dtype));
  st_json_set(header, &entry, "shape", shape);
  st_json_set(header, &entry, "data_offsets", offsets);
  st_json_add(header, header, t->name, strlen(t->name), entry); // the caller ensures unique names
  return SETUN_OK;
}

// The length and the JSON, with spaces so that the data begins at a multiple of 8.
static setun_status make_header(const ordered *order, size_t n, st_buffer *out, setun_error *err) {
  st_json *header = st_json_new(), metadata = st_json_make_object();
  st_buffer text = {0};
  if (!header) return st_fail_memory(err, "the header");
  setun_status s = SETUN_OK;
  st_json_set(header, &metadata, "format", st_json_make_text(header, "pt"));
  st_json_set(header, header, "__metadata__", metadata);
  for (size_t i = 0; i < n && s == SETUN_OK; i++) s = put_entry(order[i].tensor, header, err);
  bool ok = s != SETUN_OK || (!st_json_failed(header) && st_json_append(header, &text));
  while (ok && s == SETUN_OK && text.length % 8) ok = st_buffer_text(&text, " ");
  uint64_t length = text.length;
  if (s == SETUN_OK && (!ok || !st_buffer_append(out, &length, 8) || !st_buffer_append(out, text.data, text.length))) {
    s = st_fail_memory(err, "the header");
  }
  st_buffer_free(&text);
  st_json_free(header);
  return s;
}

static setun_status write_ordered(const char *path, const ordered *order, size_t n, const st_output_source *source,
                                  setun_error *err) {
  st_output out;
  st_buffer header = {0};
  setun_status s = make_header(order, n, &header, err);
  if (s == SETUN_OK) s = st_output_open(path, &out, err);
  if (s == SETUN_OK) {
    s = st_output_write(&out, header.data, header.length, err);
    for (size_t i = 0; i < n && s == SETUN_OK; i++) {
      s = st_output_tensor_write(source, order[i].index, order[i].tensor, &out, err);
    }
    if (s == SETUN_OK) {
      s = st_output_commit(&out, err);
    } else {
      st_output_discard(&out);
    }
  }
  st_buffer_free(&header);
  return s;
}

setun_status st_safetensors_write(const char *path, st_output_tensor *tensors, size_t n, const st_output_source *source,
                                  setun_error *err) {
  ordered *order = st_malloc(n, sizeof *order);
  if (!order) return st_fail_memory(err, path);
  for (size_t i = 0; i < n; i++) order[i] = (ordered){&tensors[i], i};
  setun_status s = place(order, n, err);
  if (s == SETUN_OK) s = write_ordered(path, order, n, source, err);
  st_free(order);
  return s;
}
