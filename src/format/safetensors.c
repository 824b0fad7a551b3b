// safetensors: a header length, a JSON header that gives each tensor's dtype, shape and place, and the data.
#include "base/memory.h"
#include "format/builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// JSON numbers are doubles here, exact up to 2^53.
static bool to_u64(const st_json *value, uint64_t *out) {
  if (!st_json_is_number(value)) return false;
  double x = st_json_number(value);
  if (!(x >= 0 && x <= 9007199254740992.0) || x != (double)(uint64_t)x) return false;
  *out = (uint64_t)x;
  return true;
}

static setun_status parse_dtype(const char *name, const st_json *info, st_tensor *t, setun_error *err) {
  const char *dtype = st_json_string(st_json_find(info, "dtype"));
  if (!dtype)
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: dtype: expected a string, found %s", name,
                   st_json_kind(st_json_find(info, "dtype")));
  uint32_t bytes;
  t->dtype = st_dtype_find(dtype, &bytes); // a constant, so that the tensor need not keep the header
  if (!t->dtype) return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: dtype: %.40s is not read", name, dtype);
  // Bytes may be packed weights or something else; readers of weights recognize them by the tensors that accompany
  // them.
  const st_format *f = st_format_by_dtype(dtype);
  if (f && !st_format_is_ternary(f)) t->format = f;
  return SETUN_OK;
}

enum { DIMS_MOST = 8 };

// Adds one dimension, `at` places before the fastest. Dimensions slower than the fourth are merged with it: such
// tensors are not used, but occur in checkpoints.
static setun_status take_dim(const char *name, uint64_t dim, size_t at, bool first, st_tensor *t, setun_error *err) {
  if (at < 3 || first) {
    t->dims[at < 3 ? at : 3] = dim;
  } else if (!st_mul_u64(t->dims[3], dim, &t->dims[3])) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: shape: expected dimensions that multiply to less than 2^63", name);
  }
  return SETUN_OK;
}

// The shape, slowest first in the file; no dimensions mean one element.
static setun_status parse_shape(const char *name, const st_json *info, st_tensor *t, setun_error *err) {
  const st_json *shape = st_json_find(info, "shape");
  if (!st_json_is_array(shape)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: shape: expected an array, found %s", name, st_json_kind(shape));
  }
  size_t n = st_json_size(shape);
  if (n > DIMS_MOST) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected at most %d dimensions, found %zu", name, DIMS_MOST, n);
  }
  for (size_t i = 0; i < n; i++) {
    const st_json *dim = st_json_at(shape, i);
    uint64_t value = 0;
    if (!to_u64(dim, &value)) {
      if (st_json_is_number(dim)) {
        return st_fail(err, SETUN_ERROR_FORMAT, "%s: shape: expected integers of at least 1, found %.17g", name,
                       st_json_number(dim));
      }
      return st_fail(err, SETUN_ERROR_FORMAT, "%s: shape: expected integers, found %s", name, st_json_kind(dim));
    }
    setun_status s = take_dim(name, value, n - 1 - i, !i, t, err);
    if (s != SETUN_OK) return s;
  }
  t->n_dims = n > 4 ? 4 : n ? (uint32_t)n : 1;
  if (!n) t->dims[0] = 1;
  return st_dims_check(name, t->n_dims, t->dims, err);
}

static setun_status parse_place(const char *name, const st_json *info, uint64_t data_bytes, st_tensor *t,
                                setun_error *err) {
  const st_json *offsets = st_json_find(info, "data_offsets");
  uint64_t begin, end, bytes;
  if (!st_json_is_array(offsets) || st_json_size(offsets) != 2 || !to_u64(st_json_at(offsets, 0), &begin) ||
      !to_u64(st_json_at(offsets, 1), &end)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: data_offsets: expected two integers of at least 0", name);
  }
  if (begin > end || end > data_bytes) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: data_offsets: expected a range within the file's %" PRIu64 " bytes of data, found %" PRIu64
                   " to %" PRIu64,
                   name, data_bytes, begin, end);
  }
  char dims[96];
  if (!st_mul_u64(st_tensor_elements(t), st_dtype_bytes(t->dtype), &bytes) || bytes != end - begin) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: data_offsets: %" PRIu64 " to %" PRIu64 " are %" PRIu64 " bytes, which is not the size of %s %s",
                   name, begin, end, end - begin, t->dtype, st_tensor_dims_text(t, dims));
  }
  t->offset = begin;
  t->bytes = bytes;
  return SETUN_OK;
}

// A tensor's range, for the check that tensors fill the data.
typedef struct range {
  uint64_t begin, end;
  const char *name;
} range;

static int by_begin(const void *a, const void *b) {
  const range *x = a, *y = b;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static setun_status check_ranges(range *ranges, size_t count, uint64_t data_bytes, setun_error *err) {
  qsort(ranges, count, sizeof *ranges, by_begin);
  uint64_t at = 0;
  for (size_t i = 0; i < count; i++) {
    const range *r = &ranges[i];
    if (r->begin < at) {
      return st_fail(err, SETUN_ERROR_FORMAT,
                     "%s: data_offsets: begins at %" PRIu64 " and so overlaps %s, which ends at %" PRIu64, r->name,
                     r->begin, ranges[i - 1].name, at);
    }
    if (r->begin > at) {
      return st_fail(err, SETUN_ERROR_FORMAT,
                     "%s: data_offsets: expected to begin at %" PRIu64 ", where the one before "
                     "ends, found a hole up to %" PRIu64,
                     r->name, at, r->begin);
    }
    at = r->end;
  }
  if (at != data_bytes) {
    return st_fail(err, SETUN_ERROR_FORMAT, "data: expected %" PRIu64 " bytes after the header, found %" PRIu64, at,
                   data_bytes);
  }
  return SETUN_OK;
}

typedef struct reading {
  st_builder *builder;
  uint32_t part;
  uint64_t data_start, data_bytes;
  const st_json *map;
  const char *file;
} reading;

static setun_status add_tensor(const reading *r, const char *name, size_t length, const st_json *info, range *place,
                               setun_error *err) {
  st_tensor t = {.part = r->part};
  setun_status s = st_name_check(name, length, "a tensor", err);
  if (s != SETUN_OK) return s;
  if (!st_json_is_object(info)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an object, found %s", name, st_json_kind(info));
  }
  s = parse_dtype(name, info, &t, err);
  if (s == SETUN_OK) s = parse_shape(name, info, &t, err);
  if (s == SETUN_OK) s = parse_place(name, info, r->data_bytes, &t, err);
  if (s != SETUN_OK) return s;
  *place = (range){t.offset, t.offset + t.bytes, name};
  const char *file = r->map ? st_json_string(st_json_find(r->map, name)) : NULL;
  if (r->map && (!file || strcmp(file, r->file))) return SETUN_OK; // the index names another file for it, or none
  t.offset += r->data_start;
  return st_builder_tensor(r->builder, &t, name, length, err);
}

static setun_status add_tensors(const reading *r, const st_json *header, setun_error *err) {
  range *ranges = st_malloc(st_json_members(header), sizeof *ranges);
  if (!ranges) return st_fail_memory(err, "the tensor directory");
  size_t count = 0;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < st_json_members(header) && s == SETUN_OK; i++) {
    const st_json_member *m = st_json_member_at(header, i);
    if (strcmp(m->key, "__metadata__") != 0) s = add_tensor(r, m->key, m->length, &m->value, &ranges[count++], err);
  }
  if (s == SETUN_OK) s = check_ranges(ranges, count, r->data_bytes, err);
  st_free(ranges);
  return s;
}

// Reads the header's text, with a length checked against the file's size.
static setun_status load_header(const st_file *file, char **text, size_t *length, setun_error *err) {
  unsigned char head[8];
  if (file->size < sizeof head) {
    return st_fail(err, SETUN_ERROR_FORMAT, "expected at least 8 bytes, found %" PRIu64, file->size);
  }
  setun_status s = st_file_read(file, 0, head, sizeof head, err);
  if (s != SETUN_OK) return s;
  uint64_t n = 0;
  for (int i = 7; i >= 0; i--) n = n << 8 | head[i];
  if (n > ST_SAFETENSORS_HEADER_MOST) {
    return st_fail(err, SETUN_ERROR_FORMAT, "header: expected a length of at most %d bytes, found %" PRIu64,
                   ST_SAFETENSORS_HEADER_MOST, n);
  }
  if (n > file->size - sizeof head) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "header: a length of %" PRIu64 " bytes, but the file has only %" PRIu64 " bytes more", n,
                   file->size - sizeof head);
  }
  char *bytes = st_malloc((size_t)n + 1, 1);
  if (!bytes) return st_fail_memory(err, "the header");
  if ((s = st_file_read(file, sizeof head, bytes, (size_t)n, err)) != SETUN_OK) {
    st_free(bytes);
    return s;
  }
  bytes[n] = '\0';
  *text = bytes;
  *length = (size_t)n;
  return SETUN_OK;
}

setun_status st_safetensors_read(st_builder *b, uint32_t part, const st_json *map, const char *file, setun_error *err) {
  const st_file *f = &b->directory->parts[part];
  char *text = NULL;
  size_t length = 0;
  st_json *header = NULL;
  setun_error own;
  if (!err) err = &own;
  setun_status s = load_header(f, &text, &length, err);
  if (s == SETUN_OK) s = st_json_parse(text, length, "header", &header, err);
  st_free(text);
  if (s == SETUN_OK) {
    reading r = {.builder = b,
                 .part = part,
                 .data_start = 8 + length,
                 .data_bytes = f->size - 8 - length,
                 .map = map,
                 .file = file};
    s = add_tensors(&r, header, err);
  }
  st_json_free(header);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s", f->path);
}

setun_status st_safetensors_open(st_builder *b, const char *path, setun_error *err) {
  uint32_t part;
  b->directory->container = ST_SAFETENSORS;
  setun_status s = st_builder_part(b, path, &part, err);
  return s == SETUN_OK ? st_safetensors_read(b, part, NULL, NULL, err) : s;
}
