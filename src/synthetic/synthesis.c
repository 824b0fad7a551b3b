// Synthetic models: which tensors there are and where, and the file as a function of byte ranges.
#include "synthetic/synthesis.h"

#include "base/memory.h"
#include "base/output.h"
#include "base/pool.h"
#include "convert/gguf_keys.h"
#include "convert/gguf_writer.h"
#include "placement/binding.h"
#include "synthetic/presets.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

// ---- tensors ------------------------------------------------------------------------------------------------------

static bool is_expert(st_role role) {
  return role == ST_EXPERT_GATE || role == ST_EXPERT_UP || role == ST_EXPERT_DOWN;
}

// The family's name for a role that this model has: the first that its table requires. NULL: it has none.
static const char *name_of(const st_synthesis *y, st_role role) {
  bool experts = y->h.n_expert != 0;
  bool dense = role == ST_FFN_GATE || role == ST_FFN_UP || role == ST_FFN_DOWN || role == ST_FFN_SUB_NORM;
  if (experts ? dense : role == ST_ROUTER || is_expert(role)) return NULL;
  for (const st_binding *b = y->spec->bindings; b->role != ST_ROLE_COUNT; b++) {
    const char *name = st_binding_pattern(b, true);
    st_need need = st_binding_need(b);
    if (b->role != role || !name) continue;
    if (need == ST_REQUIRED || (need == ST_UNTIED && !y->h.tied)) return name;
  }
  return NULL;
}

static st_item *add_item(st_synthesis *y, const char *pattern, uint32_t layer, const char *suffix, setun_error *err) {
  char module[ST_NAME_SIZE], name[ST_NAME_SIZE + 16];
  if (!st_reserve(&y->items, &y->capacity, y->n_items + 1, sizeof *y->items)) {
    st_fail_memory(err, "the tensors");
    return NULL;
  }
  st_item *item = &y->items[y->n_items];
  *item = (st_item){.n_dims = 1, .dims = {1, 1, 1, 1}, .shape = {1, 1}, .format = st_format_get(ST_F32)};
  st_fill_name(pattern, layer, 0, module, sizeof module);
  snprintf(name, sizeof name, "%s.%s", module, suffix);
  if (!(item->name = st_strdup(name))) {
    st_fail_memory(err, name);
    return NULL;
  }
  y->n_items++;
  return item;
}

static bool is_embedding(st_role role) {
  return role == ST_TOKEN_EMBD || role == ST_OUTPUT;
}

// The tensor of a role, and the scale beside it where the format keeps that outside.
static setun_status add_role(st_synthesis *y, const st_synthesis_options *o, st_role role, uint32_t layer,
                             setun_error *err) {
  const char *pattern = name_of(y, role);
  if (!pattern) return SETUN_OK;
  st_item *item = add_item(y, pattern, layer, "weight", err);
  if (!item) return SETUN_ERROR_MEMORY;
  st_shape each = st_role_shape(&y->h, role);
  uint64_t copies = is_expert(role) ? y->h.n_expert : 1;
  if (y->spec == &st_spec_olmoe && (role == ST_ATTN_Q_NORM || role == ST_ATTN_K_NORM)) {
    each.columns *= role == ST_ATTN_Q_NORM ? y->h.n_head : y->h.n_head_kv; // over the full width
  }
  item->place =
      (st_tensor_use){.known = true, .role = role, .in_layer = st_role_get(role)->part != ST_OF_MODEL, .layer = layer};
  item->shape = (st_shape){each.rows * copies, each.columns};
  item->n_dims = copies > 1 ? 3 : each.rows > 1 ? 2 : 1;
  item->dims[0] = each.columns;
  item->dims[1] = each.rows;
  item->dims[2] = copies;
  item->how = ST_HOW_VALUES;
  if (st_role_is_linear(role)) item->how = ST_HOW_TRITS;
  if (item->how == ST_HOW_TRITS) item->format = o->format;
  if (is_embedding(role)) item->format = o->head;
  setun_status s = st_format_writable(item->format, item->shape, err);
  if (s != SETUN_OK) return st_fail_in(err, s, "%s", item->name);
  if (item->format->scales != ST_SCALE_OUTER) return SETUN_OK;
  size_t of = y->n_items - 1;
  st_item *scale = add_item(y, pattern, layer, "scale", err);
  if (!scale) return SETUN_ERROR_MEMORY;
  scale->how = ST_HOW_SCALES;
  scale->of = of;
  return SETUN_OK;
}

// All tensors in the order of use, and their places behind the header.
static setun_status add_items(st_synthesis *y, const st_synthesis_options *o, setun_error *err) {
  setun_status s = add_role(y, o, ST_TOKEN_EMBD, 0, err);
  for (uint32_t layer = 0; layer < y->h.n_layer; layer++) {
    for (int role = 0; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
      if (st_role_get((st_role)role)->part != ST_OF_MODEL) s = add_role(y, o, (st_role)role, layer, err);
    }
  }
  if (s == SETUN_OK) s = add_role(y, o, ST_OUTPUT_NORM, 0, err);
  if (s == SETUN_OK) s = add_role(y, o, ST_OUTPUT, 0, err);
  for (size_t i = 0; i < y->n_items && s == SETUN_OK; i++) {
    st_item *item = &y->items[i];
    s = st_format_size(item->format, item->shape, &item->bytes, err);
    item->offset = y->size;
    y->size += (item->bytes + y->alignment - 1) / y->alignment * y->alignment;
  }
  return s;
}

// Models that were trained for int8 activations say so, and ternary weights come of such training.
static setun_status make_header(st_synthesis *y, const st_synthesis_options *o, setun_error *err) {
  st_keys keys = {0};
  char name[64], layouts[64];
  bool int8 = st_format_is_ternary(o->format) || y->spec->gguf_int8;
  snprintf(name, sizeof name, "synthetic %s", o->shape);
  st_gguf_hparams_keys(y->spec, &y->h, &keys);
  st_keys_text(&keys, "general.name", name);
  if (y->alignment != ST_GGUF_USUAL) st_keys_u32(&keys, "general.alignment", (uint32_t)y->alignment);
  // The embedding's layout tells its type's meaning where the matrices' does not.
  bool both = o->head != o->format && st_format_is_ternary(o->head);
  snprintf(layouts, sizeof layouts, "%s%s%s", o->format->name, both ? "," : "", both ? o->head->name : "");
  st_keys_text(&keys, "setun.layout", layouts);
  st_keys_text(&keys, "setun.activation", int8 ? "int8" : "float");
  if (o->format->id == ST_T5 || o->head->id == ST_T5) st_keys_text(&keys, "setun.t5.digits", "minus-zero-plus");
  setun_status s = st_synthetic_vocabulary(y->h.n_vocab, &keys, err);
  if (s == SETUN_OK) s = st_gguf_header(&keys, y->items, y->n_items, y->alignment, &y->header, err);
  st_keys_free(&keys);
  y->size += y->header.length;
  return s;
}

static setun_status check_format(const char *what, const st_format *f, setun_error *err) {
  if (f && st_format_is_written(f)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected a format that GGUF files are written in, found %s", what,
                 f ? f->name : "none");
}

setun_status st_synthesis_new(const st_synthesis_options *o, st_synthesis **synthesis, setun_error *err) {
  setun_status s = check_format("format", o->format, err);
  if (s == SETUN_OK) s = check_format("head", o->head, err);
  if (s == SETUN_OK && o->format != o->head && o->format->gguf_type == o->head->gguf_type) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT, "format %s and head %s have one type number, so no file can hold both",
                o->format->name, o->head->name);
  }
  if (s != SETUN_OK) return s;
  st_synthesis *y = st_calloc(1, sizeof *y);
  if (!y) return st_fail_memory(err, "a synthetic model");
  y->seed = o->seed;
  // Floats are what other programs quantize, and those take over the key of another alignment without heeding it.
  y->alignment = st_format_is_number(o->format) ? ST_GGUF_USUAL : ST_GGUF_BLOCKS;
  s = st_preset_find(o->shape, &y->spec, &y->h, err);
  if (s == SETUN_OK) s = add_items(y, o, err);
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
  for (size_t i = 0; i < y->n_items; i++) st_item_free(&y->items[i]);
  st_free(y->items);
  st_buffer_free(&y->header);
  st_free(y);
}

// ---- bytes --------------------------------------------------------------------------------------------------------

// The item whose bytes or padding hold the byte at `offset` of the data.
static const st_item *item_at(const st_synthesis *y, uint64_t offset) {
  size_t low = 0, high = y->n_items;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (y->items[middle].offset <= offset) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return &y->items[low];
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
    const st_item *item = item_at(y, offset - header);
    uint64_t from = offset - header - item->offset;
    uint64_t next = item + 1 < y->items + y->n_items ? item[1].offset : y->size - header;
    size_t part = next - item->offset - from < n ? (size_t)(next - item->offset - from) : n;
    size_t data = from >= item->bytes ? 0 : item->bytes - from < part ? (size_t)(item->bytes - from) : part;
    setun_status s = data ? st_synthesis_fill(y, item, from, data, out, err) : SETUN_OK;
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
    // The caller's own thread, which is the first, reports.
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
