// Synthetic models: the list of tensors and their places, and the file as a function of byte ranges.
#include "synthetic/synthesis.h"

#include "base/memory.h"
#include "base/output.h"
#include "base/pool.h"
#include "format/gguf_writer.h"
#include "model/hparams_write.h"
#include "synthetic/presets.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

// ---- tensors ------------------------------------------------------------------------------------------------------

static bool is_expert(st_role role) {
  return st_role_get(role)->part == ST_OF_EXPERT;
}

// The family's name for a role of this model: the first in its table that is required. NULL: none.
static const char *name_of(const st_synthesis *y, st_role role, uint32_t layer) {
  if (!st_role_applies(&y->h, role, layer)) return NULL;
  for (const st_binding *b = y->spec->bindings; b->role != ST_ROLE_COUNT; b++) {
    const char *name = st_binding_pattern(b, true);
    st_need need = st_binding_need(b);
    if (b->role != role || !name) continue;
    if (need == ST_REQUIRED || (need == ST_UNTIED && !y->h.tied)) return name;
  }
  return NULL;
}

// Adds an empty vector; its index is the last. `suffix` NULL: only the name. False: out of memory.
static bool add_tensor(st_synthesis *y, const char *pattern, uint32_t layer, const char *suffix) {
  char module[ST_NAME_SIZE], name[ST_NAME_SIZE + 16];
  if (!st_reserve(&y->tensors, &y->capacity, y->n_tensors + 1, sizeof *y->tensors)) return false;
  if (!st_reserve(&y->made, &y->made_capacity, y->n_tensors + 1, sizeof *y->made)) return false;
  st_fill_name(pattern, layer, 0, module, sizeof module);
  snprintf(name, sizeof name, "%s%s%s", module, suffix ? "." : "", suffix ? suffix : "");
  char *owned = st_strdup(name);
  if (!owned) return false;
  y->tensors[y->n_tensors] =
      (st_output_tensor){.name = owned, .n_dims = 1, .dims = {1, 1, 1, 1}, .format = st_format_of_floats()};
  y->made[y->n_tensors++] = (st_synthetic_tensor){.fill = ST_FILL_ONES, .shape = {1, 1}};
  return true;
}

static st_synthetic_fill fill_of(st_role role, uint64_t rows) {
  if (rows == 1) return st_role_get(role)->kind == ST_KIND_RATE ? ST_FILL_MINUS_ONES : ST_FILL_ONES;
  return st_role_get(role)->kind == ST_KIND_LINEAR ? ST_FILL_TRITS : ST_FILL_RANDOM;
}

// The tensor of a role, and a separate scale where the format needs one.
static setun_status add_role(st_synthesis *y, const st_synthesis_options *o, st_role role, uint32_t layer,
                             setun_error *err) {
  const char *pattern = name_of(y, role, layer);
  if (!pattern) return SETUN_OK;
  if (!add_tensor(y, pattern, layer, st_role_is_bare(role) ? NULL : "weight")) {
    return st_fail_memory(err, "the tensors");
  }
  size_t index = y->n_tensors - 1;
  st_output_tensor *out = &y->tensors[index];
  st_synthetic_tensor *t = &y->made[index];
  st_role_kind kind = st_role_get(role)->kind;
  st_shape each = y->spec->wide_norms ? st_role_wide_shape(&y->h, role) : st_role_shape(&y->h, role);
  uint64_t copies = is_expert(role) ? y->h.n_expert : 1;
  *t = (st_synthetic_tensor){.role = role, .layer = layer, .shape = {each.rows * copies, each.columns}};
  t->fill = fill_of(role, t->shape.rows);
  out->n_dims = copies > 1 ? 3 : each.rows > 1 ? 2 : 1;
  memcpy(out->dims, (uint64_t[4]){each.columns, each.rows, copies, 1}, sizeof out->dims);
  if (kind == ST_KIND_LINEAR) out->format = o->format;
  if (kind == ST_KIND_EMBEDDING) out->format = o->head;
  setun_status s = st_format_writable(out->format, t->shape, err);
  if (s == SETUN_OK) s = st_format_size(out->format, t->shape, &out->bytes, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "%s", out->name);
  if (out->format->scales != ST_SCALE_OUTER) return SETUN_OK;
  if (!add_tensor(y, pattern, layer, "scale")) return st_fail_memory(err, "the tensors");
  y->tensors[index + 1].bytes = sizeof(float);
  y->made[index + 1].fill = ST_FILL_SCALE;
  y->made[index + 1].of = index;
  return SETUN_OK;
}

// The tensors outside the layers: before or after them.
static setun_status add_part(st_synthesis *y, const st_synthesis_options *o, st_role_part part, setun_error *err) {
  setun_status s = SETUN_OK;
  for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
    if (st_role_get((st_role)role)->part == part) s = add_role(y, o, (st_role)role, 0, err);
  }
  return s;
}

// All tensors in the order of use, and their places after the header.
static setun_status add_tensors(st_synthesis *y, const st_synthesis_options *o, setun_error *err) {
  setun_status s = add_part(y, o, ST_OF_MODEL, err);
  for (uint32_t layer = 0; layer < y->h.n_layer; layer++) {
    for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
      if (st_role_in_layer((st_role)role)) s = add_role(y, o, (st_role)role, layer, err);
    }
  }
  if (s == SETUN_OK) s = add_part(y, o, ST_OF_HEAD, err);
  return s == SETUN_OK ? st_gguf_place(y->tensors, y->n_tensors, y->alignment, &y->size, err) : s;
}

// Models trained for int8 activations say so; ternary weights come from such training.
static setun_status make_header(st_synthesis *y, const st_synthesis_options *o, setun_error *err) {
  st_keys keys = {0};
  char name[64], layouts[64];
  bool int8 = st_format_is_ternary(o->format) || y->spec->gguf_int8;
  snprintf(name, sizeof name, "synthetic %s", o->shape);
  st_hparams_write_gguf(y->spec, &y->h, &keys);
  st_keys_text(&keys, "general.name", name);
  // The embedding's layout defines its type's meaning where the matrices' does not.
  bool both = o->head != o->format && st_format_is_ternary(o->head);
  snprintf(layouts, sizeof layouts, "%s%s%s", o->format->name, both ? "," : "", both ? o->head->name : "");
  st_gguf_layout_keys(&keys, y->alignment, layouts, int8, y->tensors, y->n_tensors);
  setun_status s = st_synthetic_vocabulary(y->h.n_vocab, &keys, err);
  if (s == SETUN_OK) s = st_gguf_header(&keys, y->tensors, y->n_tensors, y->alignment, &y->header, err);
  st_keys_free(&keys);
  y->size += y->header.length;
  return s;
}

static setun_status check_format(const char *what, const st_format *f, setun_error *err) {
  if (f && st_format_is_written(f)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a format that is written to GGUF files, found %s", what,
                 f ? f->name : "none");
}

setun_status st_synthesis_new(const st_synthesis_options *o, st_synthesis **synthesis, setun_error *err) {
  setun_status s = check_format("format", o->format, err);
  if (s == SETUN_OK) s = check_format("head", o->head, err);
  if (s == SETUN_OK && o->format != o->head && o->format->gguf_type == o->head->gguf_type) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT,
                "format %s and head %s have the same type number, so a file cannot hold both", o->format->name,
                o->head->name);
  }
  if (s != SETUN_OK) return s;
  st_synthesis *y = st_calloc(1, sizeof *y);
  if (!y) return st_fail_memory(err, "a synthetic model");
  y->seed = o->seed;
  // Float files are quantized by other programs, some of which copy a different alignment key but ignore it.
  y->alignment = st_format_is_number(o->format) ? ST_GGUF_USUAL : ST_GGUF_BLOCKS;
  s = st_preset_find(o->shape, &y->spec, &y->h, err);
  if (s == SETUN_OK) s = st_synthetic_routers_make(&y->h, y->seed, &y->routers, err);
  if (s == SETUN_OK) s = add_tensors(y, o, err);
  if (s == SETUN_OK) s = make_header(y, o, err);
  if (s == SETUN_OK) {
    *synthesis = y;
  } else {
    st_synthesis_free(y);
  }
  return s;
}

void st_synthesis_free(st_synthesis *y) {
  if (!y) return;
  for (size_t i = 0; i < y->n_tensors; i++) st_free((char *)y->tensors[i].name);
  st_free(y->tensors);
  st_free(y->made);
  st_buffer_free(&y->header);
  st_synthetic_routers_free(&y->routers);
  st_free(y);
}

// ---- bytes --------------------------------------------------------------------------------------------------------

// The tensor whose bytes or padding hold the byte at `offset` of the data.
static size_t tensor_at(const st_synthesis *y, uint64_t offset) {
  size_t low = 0, high = y->n_tensors;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (y->tensors[middle].offset <= offset) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

setun_status st_synthesis_read(const st_synthesis *y, uint64_t offset, void *to, size_t n, setun_error *err) {
  uint8_t *out = to;
  if (offset > y->size || n > y->size - offset) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "bytes %llu to %llu of a synthetic model of %llu",
                   (unsigned long long)offset, (unsigned long long)(offset + n), (unsigned long long)y->size);
  }
  uint64_t header = y->header.length;
  if (offset < header && n) {
    size_t part = header - offset < n ? (size_t)(header - offset) : n;
    memcpy(out, y->header.data + offset, part);
    out += part, n -= part, offset += part;
  }
  while (n) {
    size_t index = tensor_at(y, offset - header);
    const st_output_tensor *t = &y->tensors[index];
    uint64_t from = offset - header - t->offset;
    uint64_t next = index + 1 < y->n_tensors ? t[1].offset : y->size - header;
    size_t part = next - t->offset - from < n ? (size_t)(next - t->offset - from) : n;
    size_t data = from >= t->bytes ? 0 : t->bytes - from < part ? (size_t)(t->bytes - from) : part;
    setun_status s = data ? st_synthesis_fill(y, index, from, data, out, err) : SETUN_OK;
    if (s != SETUN_OK) return s;
    memset(out + data, 0, part - data);
    out += part, n -= part, offset += part;
  }
  return SETUN_OK;
}

// ---- writing ------------------------------------------------------------------------------------------------------

enum { CHUNK_BYTES = 4 << 20 };

typedef struct {
  const st_synthesis *y;
  st_output *out;
  setun_progress_fn progress;
  void *user;
  atomic_ullong next;
  atomic_bool failed;
  setun_error error; // of the first thread that failed
} save_job;

static void save_part(void *context, int index, int threads) {
  save_job *j = context;
  (void)threads;
  setun_error error = {SETUN_OK, ""};
  void *bytes = st_malloc(CHUNK_BYTES, 1);
  setun_status s = bytes ? SETUN_OK : st_fail_memory(&error, "a synthetic model");
  while (s == SETUN_OK && !atomic_load(&j->failed)) {
    uint64_t at = atomic_fetch_add(&j->next, CHUNK_BYTES), left = at < j->y->size ? j->y->size - at : 0;
    if (!left) break;
    size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    s = st_synthesis_read(j->y, at, bytes, n, &error);
    if (s == SETUN_OK) s = st_output_write_at(j->out, at, bytes, n, &error);
    // The caller's thread, which is the first, reports progress.
    if (s == SETUN_OK && !index && j->progress && !j->progress((double)at / (double)j->y->size, j->user)) {
      s = st_fail(&error, SETUN_ERROR_CANCELED, "writing was canceled");
    }
  }
  if (s != SETUN_OK && !atomic_exchange(&j->failed, true)) j->error = error;
  st_free(bytes);
}

setun_status st_synthesis_save(const st_synthesis *y, const char *path, int threads, setun_progress_fn progress,
                               void *user, setun_error *err) {
  st_output out;
  st_pool *pool = NULL;
  setun_status s = st_output_open(path, &out, err);
  if (s != SETUN_OK) return s;
  save_job j = {.y = y, .out = &out, .progress = progress, .user = user};
  atomic_init(&j.next, 0);
  atomic_init(&j.failed, false);
  s = st_pool_new(NULL, threads, &pool, err);
  if (s == SETUN_OK) {
    st_pool_run(pool, save_part, &j);
    st_pool_free(pool);
    if (atomic_load(&j.failed)) {
      s = j.error.code;
      if (err) *err = j.error;
    }
  }
  if (s == SETUN_OK) return st_output_commit(&out, err);
  st_output_discard(&out);
  return s;
}
