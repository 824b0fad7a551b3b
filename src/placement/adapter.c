// LoRA adapters: reading PEFT directories and GGUF files, and joining the adapters of each matrix into one pair of
// factors. y = W x + sum over adapters of scale * alpha / r * B (A x): the A of all adapters are stacked vertically,
// the B horizontally, with the scales included.
#include "placement/adapter.h"

#include "base/hash.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ADAPTERS = 64, MAX_RANK = 65536, MAX_CONFIG = 1 << 20 };

typedef struct {
  st_directory *d;
  const char *path;
  bool gguf;
  float scale;          // the user's
  float alpha;          // GGUF: 0: no alpha
  uint32_t rank;        // from adapter_config.json; 0: absent, or per module
  bool rank_stabilized; // alpha / sqrt(r)
  bool *used;           // by tensor
} adapter;

struct st_adapters {
  st_container base; // the model's own files
  adapter *items;    // [n]
  size_t n;
};

// State while adapters are placed.
typedef struct {
  st_adapters *adapters;
  st_model *m;
  st_lora *lora;
  setun_error *err;
} placer;

// The pair of factors of one matrix while it is assembled.
typedef struct {
  float *a, *b; // [rank, columns]; [rank, rows], transposed at the end
  size_t a_capacity, b_capacity;
  uint32_t rank;
  st_shape shape; // of the matrix
} factors;

// ---- opening ------------------------------------------------------------------------------------------------------

static setun_status refuse(const st_json *c, const char *key, const char *why, setun_error *err) {
  const st_json *v = st_json_get(c, key);
  if (!v || st_json_is(v, ST_JSON_FALSE) || (st_json_is_object(v) && !st_json_members(v)) ||
      (st_json_is_array(v) && !st_json_size(v))) {
    return SETUN_OK;
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: %s", key, why);
}

static setun_status read_peft(const st_json *c, adapter *a, setun_error *err) {
  const char *type = "LORA", *bias = "none";
  setun_status s = st_json_text(c, "peft_type", &type, err);
  if (s == SETUN_OK && strcmp(type, "LORA")) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "peft_type: expected LORA, found \"%.40s\"", type);
  }
  if (s == SETUN_OK) s = st_json_text(c, "bias", &bias, err);
  if (s == SETUN_OK && strcmp(bias, "none")) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "bias: expected none, found \"%.40s\"", bias);
  }
  a->rank = 8; // PEFT's defaults
  a->alpha = 8;
  if (s == SETUN_OK) s = st_json_u32(c, "r", 1, MAX_RANK, &a->rank, err);
  if (s == SETUN_OK) s = st_json_f32(c, "lora_alpha", &a->alpha, err);
  if (s == SETUN_OK) s = st_json_bool(c, "use_rslora", &a->rank_stabilized, err);
  if (s == SETUN_OK) s = refuse(c, "use_dora", "expected false: magnitudes (DoRA) are not supported", err);
  if (s == SETUN_OK) s = refuse(c, "fan_in_fan_out", "expected false: transposed weights are not supported", err);
  if (s == SETUN_OK) s = refuse(c, "alpha_pattern", "expected none: only one alpha for all modules is supported", err);
  if (s == SETUN_OK) s = refuse(c, "modules_to_save", "expected none: replacing whole modules is not supported", err);
  if (s == SETUN_OK)
    s = refuse(c, "target_parameters", "expected none: adapters of bare parameters are not supported", err);
  const st_json *ranks = st_json_get(c, "rank_pattern");
  if (s == SETUN_OK && st_json_is_object(ranks) && st_json_members(ranks)) a->rank = 0;
  return s;
}

static setun_status open_peft(const st_open_options *options, adapter *a, setun_error *err) {
  char *config = st_path_join(a->path, "adapter_config.json"),
       *weights = st_path_join(a->path, "adapter_model.safetensors");
  char *text = NULL;
  size_t length;
  setun_status s =
      config && weights ? st_file_load(config, MAX_CONFIG, &text, &length, err) : st_fail_memory(err, a->path);
  st_json *root = NULL;
  if (s == SETUN_OK) s = st_json_parse(text, length, config, &root, err);
  if (s == SETUN_OK && (s = read_peft(root, a, err)) != SETUN_OK) st_fail_in(err, s, "adapter_config.json");
  if (s == SETUN_OK) s = st_directory_open(weights, options, &a->d, err);
  st_json_free(root);
  st_free(text);
  st_free(config);
  st_free(weights);
  return s;
}

static bool is(st_text t, const char *text) {
  return t.length == strlen(text) && !memcmp(t.data, text, t.length);
}

// A GGUF adapter says what it is and for which architecture.
static setun_status check_gguf(const st_spec *spec, adapter *a, setun_error *err) {
  const st_metadata *m = &a->d->metadata;
  const char *const *names = spec->gguf_names;
  st_text type = {0}, kind = {0}, architecture = {0};
  if (a->d->container != ST_GGUF) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "expected a PEFT directory or a GGUF adapter, found only safetensors");
  }
  setun_status s = st_metadata_text(m, "general.type", &type, err);
  if (s == SETUN_OK) s = st_metadata_text(m, "adapter.type", &kind, err);
  if (s == SETUN_OK) s = st_metadata_text(m, "general.architecture", &architecture, err);
  if (s == SETUN_OK) s = st_metadata_f32(m, "adapter.lora.alpha", &a->alpha, err);
  if (s != SETUN_OK) return s;
  if (!is(type, "adapter") || !is(kind, "lora")) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "expected a LoRA adapter (general.type adapter, adapter.type lora)");
  }
  bool same = !*names; // a family without its own GGUF name is checked by shapes only
  for (; *names; names++) same = same || is(architecture, *names);
  if (same) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_FORMAT, "general.architecture: expected an adapter for %s, found one for \"%.*s\"",
                 spec->name, (int)(architecture.length < 64 ? architecture.length : 64), architecture.data);
}

static setun_status open_adapter(const setun_adapter *from, const st_spec *spec, const st_log *log, adapter *a,
                                 setun_error *err) {
  st_open_options options = {.log = log};
  *a = (adapter){.path = from->path, .scale = from->scale};
  if (!isfinite(from->scale)) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "expected a finite scale, found %g", (double)from->scale);
  }
  a->gguf = !st_path_is_directory(from->path);
  setun_status s = SETUN_OK;
  if (a->gguf) {
    s = st_directory_open(from->path, &options, &a->d, err);
    if (s == SETUN_OK) s = check_gguf(spec, a, err);
  } else {
    s = open_peft(&options, a, err);
  }
  if (s == SETUN_OK && !isfinite(a->alpha)) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "alpha: expected a finite number, found %g", (double)a->alpha);
  }
  if (s == SETUN_OK && !(a->used = st_calloc(a->d->n_tensors, sizeof *a->used))) s = st_fail_memory(err, a->path);
  return s;
}

setun_status st_adapters_open(const setun_adapter *list, size_t n, st_container base, const st_spec *spec,
                              const st_log *log, st_adapters **adapters, setun_error *err) {
  if (n > MAX_ADAPTERS) {
    return st_fail(err, SETUN_ERROR_LIMIT, "adapters: expected at most %d, found %zu", MAX_ADAPTERS, n);
  }
  st_adapters *all = st_calloc(1, sizeof *all);
  setun_status s = SETUN_OK;
  if (!all || !(all->items = st_calloc(n ? n : 1, sizeof *all->items))) s = st_fail_memory(err, "the adapters");
  for (size_t i = 0; i < n && s == SETUN_OK; i++) {
    s = open_adapter(&list[i], spec, log, &all->items[all->n++], err);
    if (s != SETUN_OK) st_fail_in(err, s, "%s", list[i].path);
  }
  if (s == SETUN_OK) {
    all->base = base;
    *adapters = all;
  } else {
    st_adapters_free(all);
  }
  return s;
}

void st_adapters_free(st_adapters *all) {
  if (!all) return;
  for (size_t i = 0; i < all->n; i++) {
    st_directory_free(all->items[i].d);
    st_free(all->items[i].used);
  }
  st_free(all->items);
  st_free(all);
}

// ---- tensors ------------------------------------------------------------------------------------------------------

// The tensor of one factor of a module, in any of the spellings; NULL: none.
static const st_tensor *find_factor(const adapter *a, const char *prefix, const char *module, char factor) {
  static const char *const peft[] = {"base_model.model.%s%s.lora_%c.weight",
                                     "base_model.model.%s%s.lora_%c.default.weight"};
  char name[2 * ST_NAME_SIZE];
  const st_tensor *t = NULL;
  if (a->gguf) {
    snprintf(name, sizeof name, "%s.weight.lora_%c", module, factor == 'A' ? 'a' : 'b');
    return st_directory_find(a->d, name);
  }
  for (int i = 0; i < 2 && !t; i++) {
    snprintf(name, sizeof name, peft[i], prefix, module, factor);
    t = st_directory_find(a->d, name);
  }
  return t;
}

// Both factors of a module; true if it has any.
static bool find_factors(const st_spec *spec, const adapter *a, const st_binding *row, uint32_t layer, uint32_t expert,
                         const st_tensor *t[2]) {
  const char *pattern = st_binding_pattern(row, a->gguf), *prefix = spec->hf_prefix;
  char module[ST_NAME_SIZE];
  t[0] = t[1] = NULL;
  bool stacked = st_role_get(row->role)->part == ST_OF_EXPERT && pattern && !strstr(pattern, "%e");
  if (!pattern || stacked) return false;
  st_fill_name(pattern, layer, expert, module, sizeof module);
  for (int i = 0; i < 2; i++) t[i] = find_factor(a, "", module, i ? 'B' : 'A');
  for (int i = 0; i < 2 && prefix && !a->gguf; i++) {
    if (!t[i]) t[i] = find_factor(a, prefix, module, i ? 'B' : 'A');
  }
  return t[0] || t[1];
}

static setun_status read_factor(adapter *a, const st_tensor *t, float *out, setun_error *err) {
  st_weight w;
  st_row_reader r;
  bool found = false;
  setun_status s = st_weight_find(a->d, t->name, (st_shape){0, 0}, &found, &w, err);
  if (s == SETUN_OK) s = st_row_reader_open(a->d, &w, &r, err);
  if (s != SETUN_OK) return s;
  s = st_read_floats(&r, 0, w.shape.rows, out, err);
  st_row_reader_close(&r);
  a->used[t - a->d->tensors] = true;
  return s;
}

static setun_status check_shapes(const adapter *a, const st_tensor *const t[2], st_shape shape, setun_error *err) {
  if (!t[0] || !t[1]) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected both factors of the module, found one",
                   t[t[0] ? 0 : 1]->name);
  }
  uint64_t rank = t[0]->dims[1];
  char dims[2][96];
  bool flat = t[0]->dims[2] == 1 && t[0]->dims[3] == 1 && t[1]->dims[2] == 1 && t[1]->dims[3] == 1;
  if (!flat || t[0]->dims[0] != shape.columns || t[1]->dims[1] != shape.rows || t[1]->dims[0] != rank) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected factors [r, %llu] and [%llu, r], found %s and %s", t[0]->name,
                   (unsigned long long)shape.columns, (unsigned long long)shape.rows,
                   st_tensor_dims_text(t[0], dims[0]), st_tensor_dims_text(t[1], dims[1]));
  }
  if (rank > MAX_RANK || (a->rank && rank != a->rank)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected rank %u, found %llu", t[0]->name,
                   a->rank ? a->rank : MAX_RANK, (unsigned long long)rank);
  }
  return SETUN_OK;
}

// The destination of a row of B: GGUF files of some families have the rows of q and k in the order of interleaved RoPE.
static uint64_t target_row(const placer *l, const adapter *a, st_role role, uint64_t row) {
  bool base_gguf = l->adapters->base == ST_GGUF;
  if (!st_role_is_rotated(role) || !l->m->spec->gguf_interleaved || base_gguf == a->gguf) return row;
  uint64_t d = l->m->h.head_dim, i = row % d, head = row - i;
  return head + (base_gguf ? i % (d / 2) * 2 + i / (d / 2) : i % 2 * (d / 2) + i / 2);
}

// Appends one adapter's pair of factors.
static setun_status append(placer *l, adapter *a, st_role role, const st_tensor *const t[2], factors *f) {
  setun_status s = check_shapes(a, t, f->shape, l->err);
  if (s != SETUN_OK) return s;
  uint32_t rank = (uint32_t)t[0]->dims[1];
  size_t columns = (size_t)f->shape.columns, rows = (size_t)f->shape.rows;
  // Both have the size of tensors in the file.
  float *b = st_malloc(rows * rank, sizeof *b);
  bool grown = b && f->rank + rank <= MAX_RANK &&
               st_reserve(&f->a, &f->a_capacity, (f->rank + rank) * columns, sizeof *f->a) &&
               st_reserve(&f->b, &f->b_capacity, (f->rank + rank) * rows, sizeof *f->b);
  s = grown ? read_factor(a, t[0], f->a + f->rank * columns, l->err) : st_fail_memory(l->err, t[0]->name);
  if (s == SETUN_OK) s = read_factor(a, t[1], b, l->err);
  float divisor = a->rank_stabilized ? sqrtf((float)rank) : (float)rank;
  float scale = a->scale * (a->gguf && a->alpha == 0 ? 1 : a->alpha / divisor);
  for (size_t row = 0; s == SETUN_OK && row < rows; row++) {
    size_t to = (size_t)target_row(l, a, role, row);
    for (uint32_t i = 0; i < rank; i++) f->b[(f->rank + i) * rows + to] = b[row * rank + i] * scale;
  }
  if (s == SETUN_OK) f->rank += rank;
  st_free(b);
  return s;
}

// ---- placing ------------------------------------------------------------------------------------------------------

static st_matrix_desc factor_desc(st_shape shape) {
  return (st_matrix_desc){.format = st_format_of_floats(),
                          .shape = shape,
                          .precision = ST_PRECISION_FLOAT,
                          .ownership = ST_BORROWED}; // so that they can be freed before the device
}

static setun_status take_room(placer *l, uint64_t bytes) {
  if (!l->lora->room) return SETUN_OK;
  unsigned long long left = atomic_load(l->lora->room);
  while (left >= bytes && !atomic_compare_exchange_weak(l->lora->room, &left, left - bytes)) {}
  if (left >= bytes) return SETUN_OK;
  return st_fail(l->err, SETUN_ERROR_MEMORY,
                 "adapters: expected at most the %llu bytes left for them, found %llu for the next factor "
                 "(adapter_bytes)",
                 left, (unsigned long long)bytes);
}

static setun_status place_factor(placer *l, st_shape shape, const float *rows, void **codes, st_dmatrix **out) {
  const st_backend *b = l->m->backend;
  const st_matrix_desc desc = factor_desc(shape);
  uint64_t bytes = b->matrix_info(l->m->device, &desc).codes;
  setun_status s = take_room(l, bytes);
  if (s != SETUN_OK) return s;
  l->lora->bytes += bytes;
  l->lora->macs += shape.rows * shape.columns;
  *codes = st_aligned_alloc((size_t)bytes + ST_PAGES_SLACK);
  if (!*codes) return st_fail_memory(l->err, "an adapter");
  s = b->matrix_new(l->m->device, &desc, out, l->err);
  if (s != SETUN_OK) return s;
  b->matrix_borrow(*out, *codes);
  return b->matrix_write(*out, &(st_matrix_rows){.count = shape.rows, .data = rows}, l->err);
}

static setun_status check_room(const placer *l, const factors *f, const st_linear *to) {
  const st_model *m = l->m;
  bool head = to->number == ST_LORA_HEAD;
  if (f->rank <= m->max_rank && (head ? m->lora_head : f->shape.rows <= m->max_lora_rows)) return SETUN_OK;
  return st_fail(l->err, SETUN_ERROR_LIMIT,
                 "adapters: expected ranks of at most %u together, which the model was loaded for, found %u "
                 "(adapter_rank)",
                 m->max_rank, f->rank);
}

static setun_status place(placer *l, const factors *f, const st_linear *to) {
  st_lora_pair *pair = &l->lora->pairs[to->number];
  size_t rows = (size_t)f->shape.rows;
  setun_status s = check_room(l, f, to);
  if (s != SETUN_OK) return s;
  float *b = st_malloc(rows * f->rank, sizeof *b);
  if (!b) return st_fail_memory(l->err, "an adapter");
  for (size_t r = 0; r < rows; r++) {
    for (uint32_t i = 0; i < f->rank; i++) b[r * f->rank + i] = f->b[i * rows + r];
  }
  s = place_factor(l, (st_shape){f->rank, f->shape.columns}, f->a, &pair->codes[0], &pair->a);
  if (s == SETUN_OK) s = place_factor(l, (st_shape){f->shape.rows, f->rank}, b, &pair->codes[1], &pair->b);
  pair->rank = f->rank;
  pair->rows = (uint32_t)rows;
  st_free(b);
  return s;
}

// All adapters of one matrix.
static setun_status adapt(placer *l, st_role role, uint32_t layer, uint32_t expert, const st_linear *to) {
  factors f = {.shape = st_role_shape(&l->m->h, role)};
  setun_status s = SETUN_OK;
  if (!to->number) return SETUN_OK;
  for (size_t i = 0; i < l->adapters->n && s == SETUN_OK; i++) {
    adapter *a = &l->adapters->items[i];
    for (const st_binding *b = l->m->spec->bindings; b->role != ST_ROLE_COUNT && s == SETUN_OK; b++) {
      const st_tensor *t[2];
      if (b->role != role || !find_factors(l->m->spec, a, b, layer, expert, t)) continue;
      s = append(l, a, role, t, &f);
      if (s != SETUN_OK) st_fail_in(l->err, s, "%s", a->path);
      break;
    }
  }
  if (s == SETUN_OK && f.rank) s = place(l, &f, to);
  st_free(f.a);
  st_free(f.b);
  return s;
}

// The matrices of a layer, or of one of its experts; layer < 0: the head.
static setun_status adapt_part(placer *l, int32_t layer, int32_t expert) {
  setun_status s = SETUN_OK;
  for (int i = 0; i < ST_ROLE_COUNT && s == SETUN_OK; i++) {
    st_role role = (st_role)i;
    if (layer < 0 && st_role_get(role)->part != ST_OF_HEAD) continue;
    st_linear *to = st_model_linear(l->m, role, layer, expert);
    if (to) s = adapt(l, role, layer < 0 ? 0 : (uint32_t)layer, expert < 0 ? 0 : (uint32_t)expert, to);
  }
  return s;
}

static setun_status adapt_all(placer *l) {
  const st_hparams *h = &l->m->h;
  setun_status s = adapt_part(l, -1, -1);
  for (uint32_t i = 0; i < h->n_layer && s == SETUN_OK; i++) {
    s = adapt_part(l, (int32_t)i, -1);
    for (uint32_t e = 0; h->sparse[i] && e < h->n_expert && s == SETUN_OK; e++) {
      s = adapt_part(l, (int32_t)i, (int32_t)e);
    }
  }
  return s;
}

// Every tensor of an adapter must be used; otherwise it would not be the adapter that was trained.
static setun_status check_used(const placer *l, const adapter *a) {
  for (size_t i = 0; i < a->d->n_tensors; i++) {
    if (!a->used[i]) {
      return st_fail(l->err, SETUN_ERROR_FORMAT, "%s: %s: this model of the %s family has no matrix for it", a->path,
                     a->d->tensors[i].name, l->m->spec->name);
    }
  }
  return SETUN_OK;
}

setun_status st_adapters_place(st_adapters *adapters, st_model *m, atomic_ullong *room, st_lora **lora,
                               setun_error *err) {
  placer l = {.adapters = adapters, .m = m, .lora = st_calloc(1, sizeof *l.lora), .err = err};
  if (!l.lora) return st_fail_memory(err, "the adapters");
  l.lora->backend = m->backend;
  l.lora->identity = m->identity;
  l.lora->n = m->n_linear;
  l.lora->room = room;
  atomic_init(&l.lora->users, 1);
  l.lora->pairs = st_calloc(m->n_linear, sizeof *l.lora->pairs);
  setun_status s = l.lora->pairs ? adapt_all(&l) : st_fail_memory(err, "the adapters");
  for (size_t i = 0; i < adapters->n && s == SETUN_OK; i++) {
    adapter *a = &adapters->items[i];
    s = check_used(&l, a);
    if (s == SETUN_OK) s = st_identify(a->d, &l.lora->identity, err);
    l.lora->identity = st_hash(l.lora->identity, &a->scale, sizeof a->scale);
  }
  if (s == SETUN_OK) {
    *lora = l.lora;
  } else {
    st_lora_release(l.lora);
  }
  return s;
}

setun_status st_identify(const st_directory *d, uint64_t *identity, setun_error *err) {
  uint64_t h = *identity ? *identity : ST_HASH_START;
  for (size_t i = 0; i < d->n_tensors; i++) {
    const st_tensor *t = &d->tensors[i];
    unsigned char sample[64];
    size_t n = t->bytes < sizeof sample ? (size_t)t->bytes : sizeof sample;
    setun_status s = st_file_read(&d->parts[t->part], t->offset + (t->bytes - n) / 2, sample, n, err);
    if (s != SETUN_OK) return s;
    h = st_hash(h, t->name, strlen(t->name));
    h = st_hash(h, t->dtype, strlen(t->dtype));
    for (int k = 0; k < 4; k++) h = h * 31 + t->dims[k];
    h = st_hash(h, sample, n);
  }
  *identity = h;
  return SETUN_OK;
}

// ---- measuring ----------------------------------------------------------------------------------------------------

// The ranks of all adapters of a matrix add up; this assumes that all adapt the same matrices.
static void measure(const adapter *a, st_model *m, st_memory_plan *plan, st_workload *workload) {
  uint64_t rank = 0, rows = 0;
  for (size_t k = 0; k < a->d->n_tensors; k++) {
    st_shape shape = st_tensor_shape(&a->d->tensors[k]);
    uint64_t low = shape.rows < shape.columns ? shape.rows : shape.columns;
    plan->vectors += st_tensor_elements(&a->d->tensors[k]) * sizeof(float);
    if (low > rank) rank = low;
    const st_matrix_desc desc = factor_desc(shape);
    m->backend->workload_add(m->device, &desc, workload);
    if (shape.rows == m->h.n_vocab) m->lora_head = true;
    if (shape.rows > rows && shape.rows != m->h.n_vocab) rows = shape.rows;
  }
  if (rank <= MAX_RANK) m->max_rank += (uint32_t)rank; // others are refused
  if (rows <= UINT32_MAX && rows > m->max_lora_rows) m->max_lora_rows = (uint32_t)rows;
}

void st_adapters_measure(const st_adapters *adapters, st_model *m, st_memory_plan *plan, st_workload *workload) {
  for (size_t i = 0; i < adapters->n; i++) measure(&adapters->items[i], m, plan, workload);
}

// Whether adapters may apply to it.
static bool is_adaptable(const st_bound_list *list, size_t i) {
  st_role role = list->items[i].role;
  return st_role_is_matrix(role) && (st_role_get(role)->kind != ST_KIND_EMBEDDING || i == list->head);
}

void st_adapters_measure_rank(const st_bound_list *list, uint32_t rank, st_model *m, st_workload *workload) {
  if (rank > m->max_rank) m->max_rank = rank;
  m->lora_head = true;
  for (size_t i = 0; i < list->n; i++) {
    st_shape shape = list->items[i].weight.shape;
    const st_matrix_desc a = factor_desc((st_shape){rank, shape.columns}),
                         b = factor_desc((st_shape){shape.rows, rank});
    if (!is_adaptable(list, i)) continue;
    m->backend->workload_add(m->device, &a, workload);
    m->backend->workload_add(m->device, &b, workload);
    if (i != list->head && shape.rows > m->max_lora_rows) m->max_lora_rows = (uint32_t)shape.rows;
  }
}

setun_status st_adapters_reserve(const st_bound_list *list, uint32_t rank, const st_model *m, setun_error *err) {
  st_shape widest = {1, rank};
  for (size_t i = 0; i < list->n; i++) {
    uint64_t columns = list->items[i].weight.shape.columns;
    if (is_adaptable(list, i) && columns > widest.columns) widest.columns = columns;
  }
  st_dmatrix *matrix = NULL; // a device has room for the inputs of its matrices
  const st_matrix_desc desc = factor_desc(widest);
  setun_status s = m->backend->matrix_new(m->device, &desc, &matrix, err);
  if (s == SETUN_OK) m->backend->matrix_free(matrix);
  return s;
}
