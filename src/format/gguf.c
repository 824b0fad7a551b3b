// GGUF, versions 2 and 3, little-endian, in one file or split over several. The layout follows ggml's published
// description: magic, version, counts, key-value pairs, tensor infos, padding to the alignment, tensor data.
#include "base/memory.h"
#include "base/suffix.h"
#include "format/builder.h"
#include "format/gguf_header.h"
#include "format/typeid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  INFO_LEAST = 8 + 4 + 8 + 4 + 8, // bytes of the smallest tensor info, with an empty name, which has its own error
  ALIGNMENT_DEFAULT = 32,
  ALIGNMENT_MOST = 1 << 20,
  PARTS_MOST = 65535 // split.count is a u16
};

// State while the parts' headers are read.
typedef struct gguf {
  st_builder *builder;
  st_gguf_tensor *tensors;
  size_t count, capacity;
  uint64_t data_start; // of the last part read
} gguf;

static void gguf_free(gguf *g) {
  for (size_t i = 0; i < g->count; i++) st_free(g->tensors[i].name);
  st_free(g->tensors);
}

static setun_status parse_start(st_gguf_header *h, uint64_t *n_tensors, uint64_t *n_pairs, setun_error *err) {
  uint32_t magic, version;
  setun_status s = st_gguf_u32(h, "the magic", &magic, err);
  if (s != SETUN_OK) return s;
  if (memcmp(h->data, "GGUF", 4)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "expected the magic \"GGUF\", found %02X %02X %02X %02X",
                   (unsigned char)h->data[0], (unsigned char)h->data[1], (unsigned char)h->data[2],
                   (unsigned char)h->data[3]);
  }
  if ((s = st_gguf_u32(h, "the version", &version, err)) != SETUN_OK) return s;
  if (version && !(version & 0xFFFF)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "a big-endian GGUF file: only little-endian ones are read");
  }
  if (version != 2 && version != 3) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "expected GGUF version 2 or 3, found %" PRIu32, version);
  }
  s = st_gguf_u64(h, "the tensor count", n_tensors, err);
  return s == SETUN_OK ? st_gguf_u64(h, "the count of key-value pairs", n_pairs, err) : s;
}

static setun_status alignment_of(const st_metadata *m, uint64_t *alignment, setun_error *err) {
  const st_meta *item = st_metadata_find(m, "general.alignment");
  *alignment = ALIGNMENT_DEFAULT;
  if (!item) return SETUN_OK;
  char kind[32];
  if (item->type != ST_META_U32) {
    return st_fail(err, SETUN_ERROR_FORMAT, "general.alignment: expected u32, found %s", st_meta_kind(item, kind));
  }
  uint64_t a = item->as.u;
  if (!a || a & (a - 1) || a > ALIGNMENT_MOST) {
    return st_fail(err, SETUN_ERROR_FORMAT, "general.alignment: expected a power of two from 1 to %d, found %" PRIu64,
                   ALIGNMENT_MOST, a);
  }
  *alignment = a;
  return SETUN_OK;
}

// One tensor info, up to its offset.
static setun_status parse_info(gguf *g, st_gguf_header *h, size_t index, st_gguf_tensor *t, setun_error *err) {
  char what[48];
  snprintf(what, sizeof what, "tensor %zu", index);
  size_t at, length;
  setun_status s = st_gguf_string(h, what, &at, &length, err);
  if (s == SETUN_OK) s = st_name_check(h->data + at, length, what, err);
  if (s != SETUN_OK) return s;
  if (!st_reserve(&g->tensors, &g->capacity, g->count + 1, sizeof *g->tensors) ||
      !(t->name = st_strndup(h->data + at, length))) {
    return st_fail_memory(err, "the tensor directory");
  }
  st_gguf_tensor *kept = &g->tensors[g->count++];
  *kept = *t; // now owns the name
  s = st_gguf_u32(h, t->name, &t->n_dims, err);
  if (s == SETUN_OK && t->n_dims > 4) return st_dims_check(t->name, t->n_dims, t->dims, err);
  for (uint32_t i = 0; s == SETUN_OK && i < t->n_dims; i++) s = st_gguf_u64(h, t->name, &t->dims[i], err);
  if (s == SETUN_OK) s = st_dims_check(t->name, t->n_dims, t->dims, err);
  if (s == SETUN_OK) s = st_gguf_u32(h, t->name, &t->type, err);
  if (s == SETUN_OK) s = st_gguf_u64(h, t->name, &t->offset, err);
  if (s == SETUN_OK && t->offset % t->alignment) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an offset that is a multiple of %" PRIu64 ", found %" PRIu64,
                   t->name, t->alignment, t->offset);
  }
  *kept = *t;
  return s;
}

static int by_offset(const void *a, const void *b) {
  const st_gguf_tensor *x = *(const st_gguf_tensor *const *)a, *y = *(const st_gguf_tensor *const *)b;
  return x->offset < y->offset ? -1 : x->offset > y->offset;
}

// The room of each of the part's tensors: up to the next offset, or the end of the data.
static setun_status measure_room(st_gguf_tensor *tensors, size_t count, uint64_t data_bytes, setun_error *err) {
  st_gguf_tensor **order = st_malloc(count, sizeof(st_gguf_tensor *));
  if (!order) return st_fail_memory(err, "the tensor directory");
  for (size_t i = 0; i < count; i++) order[i] = &tensors[i];
  qsort(order, count, sizeof *order, by_offset);
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < count && s == SETUN_OK; i++) {
    st_gguf_tensor *t = order[i];
    t->last = i + 1 == count;
    if (t->offset >= data_bytes) {
      s = st_fail(err, SETUN_ERROR_FORMAT,
                  "%s: its data begins at offset %" PRIu64 ", but the file has %" PRIu64 " bytes of tensor data",
                  t->name, t->offset, data_bytes);
    } else if (!t->last && order[i + 1]->offset == t->offset) {
      s = st_fail(err, SETUN_ERROR_FORMAT, "%s and %s: both begin at offset %" PRIu64, t->name, order[i + 1]->name,
                  t->offset);
    } else {
      t->room = (t->last ? data_bytes : order[i + 1]->offset) - t->offset;
    }
  }
  st_free(order);
  return s;
}

// Reads the tensor infos of the part whose pairs were parsed, and where its data begins.
static setun_status parse_infos(gguf *g, st_gguf_header *h, const st_metadata *m, uint32_t part, uint64_t n_tensors,
                                setun_error *err) {
  uint64_t alignment, left = h->file->size - h->at;
  if (n_tensors > left / INFO_LEAST) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "tensors: %" PRIu64 " claimed, but the file has only %" PRIu64 " bytes more", n_tensors, left);
  }
  setun_status s = alignment_of(m, &alignment, err);
  size_t first = g->count;
  for (uint64_t i = 0; s == SETUN_OK && i < n_tensors; i++) {
    st_gguf_tensor t = {.part = part, .alignment = alignment};
    s = parse_info(g, h, (size_t)i, &t, err);
  }
  if (s != SETUN_OK || !n_tensors) return s;
  uint64_t size = h->file->size;
  g->data_start = (h->at + alignment - 1) & ~(alignment - 1); // no overflow: both are small
  return measure_room(g->tensors + first, g->count - first, size > g->data_start ? size - g->data_start : 0, err);
}

// Reads one part's header. `m` receives its metadata (zeroed before), to be freed by the caller also on failure.
static setun_status read_part(gguf *g, uint32_t part, st_metadata *m, setun_error *err) {
  st_gguf_header h = {.file = &g->builder->directory->parts[part]};
  uint64_t n_tensors, n_pairs;
  size_t first = g->count;
  setun_status s = parse_start(&h, &n_tensors, &n_pairs, err);
  if (s == SETUN_OK) s = st_gguf_pairs(&h, n_pairs, m, err);
  if (s == SETUN_OK) s = parse_infos(g, &h, m, part, n_tensors, err);
  if (s == SETUN_OK) s = st_gguf_adopt(&h, m, err);
  st_free(h.data);
  if (s != SETUN_OK) return st_fail_in(err, s, "%s", g->builder->directory->parts[part].path);
  // From here on offsets are relative to the file's start; data_start is below 2^29, and room was checked against the
  // size.
  for (size_t i = first; i < g->count; i++) g->tensors[i].offset += g->data_start;
  return SETUN_OK;
}

// ---- split files --------------------------------------------------------------------------------------------------

// The name of part `index` of `count`, from the first part's: NAME-00001-of-00003.gguf. NULL with *err filled when the
// first part's name has another form.
static char *part_path(const char *first, uint32_t index, uint32_t count, setun_error *err) {
  char ending[40];
  snprintf(ending, sizeof ending, "-00001-of-%05" PRIu32 ".gguf", count);
  if (!st_has_suffix(first, ending)) {
    st_fail(err, SETUN_ERROR_FORMAT,
            "%s: the first of %" PRIu32 " parts (split.count), so its name should end in %s for the others to be found",
            first, count, ending);
    return NULL;
  }
  st_buffer b = {0};
  if (!st_buffer_append(&b, first, strlen(first) - strlen(ending)) ||
      !st_buffer_format(&b, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", index + 1, count)) {
    st_buffer_free(&b);
    st_fail_memory(err, first);
    return NULL;
  }
  return b.data;
}

static setun_status check_part(const st_metadata *m, uint32_t index, uint32_t count, const char *path,
                               setun_error *err) {
  uint32_t no = UINT32_MAX, parts = 0;
  setun_status s = st_metadata_u32(m, "split.no", 0, PARTS_MOST, &no, err);
  if (s == SETUN_OK) s = st_metadata_u32(m, "split.count", 0, PARTS_MOST, &parts, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "%s", path);
  if (no == index && parts == count) return SETUN_OK;
  if (no == UINT32_MAX)
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: split.no: expected %" PRIu32 ", found none", path, index);
  return st_fail(err, SETUN_ERROR_FORMAT,
                 "%s: expected part %" PRIu32 " of %" PRIu32 " (split.no, split.count), found part %" PRIu32
                 " of %" PRIu32,
                 path, index + 1, count, no + 1, parts);
}

static setun_status read_other_part(gguf *g, const char *first, uint32_t index, uint32_t count, setun_error *err) {
  char *path = part_path(first, index, count, err);
  if (!path) return err ? err->code : SETUN_ERROR_FORMAT;
  uint32_t part;
  bool exists = false;
  setun_status s = st_path_exists(path, &exists, err);
  if (s == SETUN_OK && !exists) {
    s = st_fail(err, SETUN_ERROR_IO, "%s: missing: the model has %" PRIu32 " parts, and this is part %" PRIu32, path,
                count, index + 1);
  }
  if (s == SETUN_OK) s = st_builder_part(g->builder, path, &part, err);
  st_metadata m = {0};
  if (s == SETUN_OK) s = read_part(g, part, &m, err);
  if (s == SETUN_OK) s = check_part(&m, index, count, path, err);
  st_metadata_free(&m);
  st_free(path);
  return s;
}

// Reads the other parts of a split file after the first one.
static setun_status read_other_parts(gguf *g, const char *path, setun_error *err) {
  const st_metadata *m = &g->builder->directory->metadata;
  uint32_t count = 1;
  uint64_t total = UINT64_MAX;
  setun_status s = st_metadata_u32(m, "split.count", 0, PARTS_MOST, &count, err);
  if (s == SETUN_OK) s = st_metadata_u64(m, "split.tensors.count", 0, INT32_MAX, &total, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "%s", path);
  uint32_t no = 0;
  s = st_metadata_u32(m, "split.no", 0, PARTS_MOST, &no, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "%s", path);
  if (count <= 1 && no) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: split.count: expected more than split.no, %" PRIu32 ", found %s", path,
                   no,
                   !st_metadata_find(m, "split.count") ? "none"
                   : count                             ? "1"
                                                       : "0");
  }
  if (count <= 1) return SETUN_OK; // both 0 and 1: not split
  if (no) {
    return st_fail(err, SETUN_ERROR_ARGUMENT,
                   "%s: part %" PRIu32 " of a model in %" PRIu32 " parts: give the first part, the others are found by "
                   "their names",
                   path, no + 1, count);
  }
  for (uint32_t i = 1; s == SETUN_OK && i < count; i++) s = read_other_part(g, path, i, count, err);
  if (s == SETUN_OK && total != UINT64_MAX && total != g->count) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: split.tensors.count: expected %" PRIu64 " tensors, found %zu in %" PRIu32 " parts", path, total,
                   g->count, count);
  }
  return s;
}

// ---- from infos to tensors ----------------------------------------------------------------------------------------

static setun_status size_of(const st_gguf_tensor *info, const st_tensor *t, uint64_t *bytes, setun_error *err) {
  if (t->format) {
    setun_status s = st_format_size(t->format, st_tensor_shape(t), bytes, err);
    return s == SETUN_OK ? s : st_fail_in(err, s, "%s", info->name);
  }
  if (!st_mul_u64(st_tensor_elements(t), st_dtype_bytes(t->dtype), bytes)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: its size overflows", info->name);
  }
  return SETUN_OK;
}

static setun_status add_tensor(gguf *g, const st_gguf_tensor *info, const st_format *format, setun_error *err) {
  st_tensor t = {.format = format,
                 .dtype = format ? format->name : st_gguf_type_name(info->type),
                 .n_dims = info->n_dims,
                 .part = info->part,
                 .offset = info->offset};
  memcpy(t.dims, info->dims, sizeof t.dims);
  setun_status s = size_of(info, &t, &t.bytes, err);
  if (s != SETUN_OK) return s;
  if (t.bytes > info->room) {
    char dims[96];
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: %s of %s takes %" PRIu64 " bytes at offset %" PRIu64 ", found only %" PRIu64 " before %s",
                   info->name, t.dtype, st_tensor_dims_text(&t, dims), t.bytes, t.offset, info->room,
                   info->last ? "the end of the file" : "the next tensor, which it would overlap");
  }
  // A type that leaves much of the room unused is not the one that was written: every value would be misread. Room ends
  // at a multiple of the alignment, or at the file's end. A type that the caller demands is used anyway.
  const char *assume = g->builder->options->assume;
  bool asked = assume && format && !strcmp(assume, format->name);
  uint64_t padded = (t.bytes + info->alignment - 1) & ~(info->alignment - 1); // no overflow: at most the room's
  if (!asked && padded < info->room && info->room - padded >= info->alignment) {
    char dims[96];
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: %s of %s takes %" PRIu64 " bytes at offset %" PRIu64 ", found %" PRIu64 " before %s",
                   info->name, t.dtype, st_tensor_dims_text(&t, dims), t.bytes, t.offset, info->room,
                   info->last ? "the end of the file" : "the next tensor");
  }
  return st_builder_tensor(g->builder, &t, info->name, strlen(info->name), err);
}

// Each type is decided once, at its first tensor.
static setun_status add_tensors(gguf *g, setun_error *err) {
  struct {
    uint32_t type;
    const st_format *format;
  } known[64];
  size_t n_known = 0;
  for (size_t i = 0; i < g->count; i++) {
    const st_gguf_tensor *info = &g->tensors[i];
    size_t k = 0;
    while (k < n_known && known[k].type != info->type) k++;
    if (k == n_known) {
      // There are fewer readable types than entries.
      if (n_known == sizeof known / sizeof *known) return st_fail(err, SETUN_ERROR_LIMIT, "too many tensor types");
      setun_status s = st_typeid_resolve(g->builder, g->tensors, g->count, info->type, &known[k].format, err);
      if (s != SETUN_OK) return st_fail_in(err, s, "%s", info->name);
      known[k].type = info->type;
      n_known++;
    }
    setun_status s = add_tensor(g, info, known[k].format, err);
    if (s != SETUN_OK) return s;
  }
  return SETUN_OK;
}

setun_status st_gguf_open(st_builder *b, const char *path, setun_error *err) {
  gguf g = {.builder = b};
  uint32_t part;
  b->directory->container = ST_GGUF;
  setun_status s = st_builder_part(b, path, &part, err);
  if (s == SETUN_OK) s = read_part(&g, part, &b->directory->metadata, err);
  if (s == SETUN_OK) s = read_other_parts(&g, path, err);
  if (s == SETUN_OK && (s = add_tensors(&g, err)) != SETUN_OK) st_fail_in(err, s, "%s", path);
  gguf_free(&g);
  return s;
}
