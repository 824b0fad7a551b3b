// Loading: binds a family's table of names to the tensors of a directory and places their rows on the device.
#include "model/model.h"

#include "base/hash.h"
#include "base/memory.h"
#include "source/weight.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  const st_directory *d;
  const st_model_options *o;
  st_model *m;
  st_pool *pool;
  bool *used; // by tensor
  uint64_t bytes_done, bytes_total;
  setun_error *err;
} loader;

static bool is_matrix(st_role role) {
  switch (role) {
  case ST_TOKEN_EMBD:
  case ST_OUTPUT:
  case ST_ATTN_Q:
  case ST_ATTN_K:
  case ST_ATTN_V:
  case ST_ATTN_O:
  case ST_FFN_GATE:
  case ST_FFN_UP:
  case ST_FFN_DOWN: return true;
  default: return false;
  }
}

// The shape that the parameters demand. A q or k norm may also be as wide as all heads: see place_qk_norm.
static st_shape shape_of(const st_hparams *h, st_role role) {
  uint64_t q = (uint64_t)h->n_head * h->head_dim, kv = (uint64_t)h->n_head_kv * h->head_dim;
  switch (role) {
  case ST_TOKEN_EMBD:
  case ST_OUTPUT: return (st_shape){h->n_vocab, h->n_embd};
  case ST_ATTN_Q: return (st_shape){q, h->n_embd};
  case ST_ATTN_K:
  case ST_ATTN_V: return (st_shape){kv, h->n_embd};
  case ST_ATTN_O: return (st_shape){h->n_embd, q};
  case ST_FFN_GATE:
  case ST_FFN_UP: return (st_shape){h->n_ff, h->n_embd};
  case ST_FFN_DOWN: return (st_shape){h->n_embd, h->n_ff};
  case ST_ROPE_FREQS: return (st_shape){1, h->head_dim / 2};
  case ST_ATTN_SUB_NORM: return (st_shape){1, q};
  case ST_FFN_SUB_NORM: return (st_shape){1, h->n_ff};
  case ST_ATTN_Q_NORM:
  case ST_ATTN_K_NORM: return (st_shape){1, h->head_dim};
  default: return (st_shape){1, h->n_embd};
  }
}

static void mark_used(loader *l, const st_weight *w) {
  l->used[w->data - l->d->tensors] = true;
  if (w->scale) l->used[w->scale - l->d->tensors] = true;
}

static setun_status find(loader *l, const char *module, st_shape shape, bool *found, st_weight *w) {
  setun_status s = st_weight_find(l->d, module, shape, found, w, l->err);
  if (s == SETUN_OK && *found) mark_used(l, w);
  if (s == SETUN_OK && *found) s = st_weight_measure(l->d, w, l->err);
  return s;
}

// Reads a vector of `n` floats, adding one to each where the file stores norms that way.
static setun_status read_vector(loader *l, const st_weight *w, bool plus_one, float **out) {
  size_t n = (size_t)w->shape.columns;
  float *values = st_malloc(n, sizeof *values);
  if (!values) return st_fail_memory(l->err, w->name);
  st_row_reader r;
  setun_status s = st_row_reader_open(l->d, w, &r, l->err);
  if (s == SETUN_OK) {
    s = st_read_floats(&r, 0, 1, values, l->err);
    st_row_reader_close(&r);
  }
  for (size_t i = 0; i < n && plus_one; i++) values[i] += 1;
  if (s == SETUN_OK) {
    *out = values;
    l->m->n_params += n;
  } else {
    st_free(values);
  }
  return s;
}

static setun_status place_vector(loader *l, const st_weight *w, bool plus_one, st_dvector **out) {
  float *values = NULL;
  setun_status s = read_vector(l, w, plus_one, &values);
  if (s == SETUN_OK) s = l->m->backend->vector_new(l->m->device, values, (size_t)w->shape.columns, out, l->err);
  if (s == SETUN_OK) {
    l->m->weight_bytes += w->shape.columns * sizeof(float);
    l->m->bytes_per_token += w->shape.columns * sizeof(float);
  }
  st_free(values);
  return s;
}

// The copying of one matrix, shared by the threads: each takes runs of rows until none is left.
typedef struct {
  loader *l;
  const st_weight *w;
  const st_format *format;
  st_rows kind;
  st_dmatrix *matrix;
  uint64_t run; // rows taken at once, a multiple of 16
  atomic_ullong next;
  atomic_bool failed;
  setun_error error; // of the first thread that failed
} copy_job;

static size_t scales_a_row(const copy_job *j) {
  if (j->kind != ST_ROWS_TRITS) return 0;
  return j->format->scales == ST_SCALE_BLOCK ? (size_t)st_format_row_scales(j->format, j->w->shape.columns) : 1;
}

static size_t row_bytes(const copy_job *j) {
  size_t columns = (size_t)j->w->shape.columns;
  if (j->kind == ST_ROWS_TRITS) return columns;
  if (j->kind == ST_ROWS_FLOAT) return columns * sizeof(float);
  return (size_t)st_format_row_bytes(j->format, j->w->shape.columns);
}

static setun_status copy_run(copy_job *j, st_row_reader *r, uint64_t row, uint64_t n, void *rows, float *scales,
                             setun_error *err) {
  setun_status s;
  if (j->kind == ST_ROWS_TRITS) {
    s = st_read_trits(r, row, n, rows, scales, err);
  } else if (j->kind == ST_ROWS_BYTES) {
    s = st_read_bytes(r, row, n, rows, err);
  } else {
    s = st_read_floats(r, row, n, rows, err);
  }
  if (s == SETUN_OK) j->l->m->backend->matrix_write(j->matrix, row, n, rows, scales);
  return s;
}

static void copy_part(void *context, int index, int threads) {
  copy_job *j = context;
  (void)index, (void)threads;
  setun_error error = {SETUN_OK, ""};
  size_t n_scales = scales_a_row(j);
  void *rows = st_malloc((size_t)j->run, row_bytes(j));
  float *scales = n_scales ? st_malloc((size_t)j->run * n_scales, sizeof *scales) : NULL;
  st_row_reader reader;
  setun_status s = rows && (scales || !n_scales) ? st_row_reader_open(j->l->d, j->w, &reader, &error)
                                                 : st_fail_memory(&error, j->w->name);
  if (s == SETUN_OK) {
    while (s == SETUN_OK && !atomic_load(&j->failed)) {
      uint64_t row = atomic_fetch_add(&j->next, j->run);
      if (row >= j->w->shape.rows) break;
      uint64_t left = j->w->shape.rows - row;
      s = copy_run(j, &reader, row, left < j->run ? left : j->run, rows, scales, &error);
    }
    st_row_reader_close(&reader);
  }
  if (s != SETUN_OK && !atomic_exchange(&j->failed, true)) j->error = error;
  st_free(rows);
  st_free(scales);
}

static setun_status report(loader *l, const st_weight *w) {
  l->bytes_done += w->data->bytes;
  double fraction = l->bytes_total ? (double)l->bytes_done / (double)l->bytes_total : 1;
  if (l->o->progress && !l->o->progress(fraction < 1 ? fraction : 1, l->o->user)) {
    return st_fail(l->err, SETUN_ERROR_CANCELED, "loading was canceled");
  }
  return SETUN_OK;
}

static setun_status place_matrix(loader *l, const st_weight *w, st_dmatrix **out) {
  const st_backend *b = l->m->backend;
  enum { RUN_BYTES = 1 << 20 };
  // Latent floats are ternary by the time they are read.
  copy_job j = {.l = l, .w = w, .format = w->latent ? st_format_get(ST_HF_U8) : w->format};
  st_precision precision = l->o->precise ? ST_PRECISION_FLOAT : ST_PRECISION_FAST;
  if (l->m->h.int8 && st_format_is_ternary(j.format)) precision = ST_PRECISION_INT8;
  setun_status s = b->matrix_new(l->m->device, j.format, w->shape, precision, &j.matrix, l->err);
  if (s != SETUN_OK) return st_fail_in(l->err, "%s", w->name);
  j.kind = b->rows_wanted(l->m->device, j.format);
  j.run = RUN_BYTES / (row_bytes(&j) + 1) / 16 * 16;
  if (j.run < 16) j.run = 16;
  atomic_init(&j.next, 0);
  atomic_init(&j.failed, false);
  st_pool_run(l->pool, copy_part, &j);
  if (atomic_load(&j.failed)) {
    if (l->err) *l->err = j.error;
    b->matrix_free(j.matrix);
    return j.error.code;
  }
  *out = j.matrix;
  l->m->n_params += w->shape.rows * w->shape.columns;
  l->m->weight_bytes += b->matrix_bytes(j.matrix);
  return report(l, w);
}

// A matrix and, where there is one, its bias.
static setun_status place_linear(loader *l, const char *module, const st_weight *w, st_linear *out) {
  setun_status s = place_matrix(l, w, &out->matrix);
  if (s != SETUN_OK) return s;
  char name[192];
  snprintf(name, sizeof name, "%s.bias", module);
  if (!st_directory_find(l->d, name)) return SETUN_OK;
  st_weight bias;
  bool found = false;
  s = find(l, name, (st_shape){1, w->shape.rows}, &found, &bias);
  return s == SETUN_OK && found ? place_vector(l, &bias, false, &out->bias) : s;
}

static void count_decode(st_model *m, const st_linear *linear, st_shape shape) {
  m->bytes_per_token += m->backend->matrix_bytes(linear->matrix);
  m->macs_per_token += shape.rows * shape.columns;
}

// A q or k norm covers one head, or all of them at once: the tensor's length tells.
static setun_status place_qk_norm(loader *l, const char *module, st_role role, bool *found, st_layer *layer) {
  const st_hparams *h = &l->m->h;
  bool q = role == ST_ATTN_Q_NORM;
  uint32_t width = h->head_dim, all = (q ? h->n_head : h->n_head_kv) * h->head_dim;
  char name[192];
  snprintf(name, sizeof name, "%s.weight", module);
  const st_tensor *t = st_directory_find(l->d, name);
  if (t && t->dims[0] == all) width = all;
  st_weight w;
  setun_status s = find(l, module, (st_shape){1, width}, found, &w);
  if (s != SETUN_OK || !*found) return s;
  if (q) {
    layer->q_norm_width = width;
  } else {
    layer->k_norm_width = width;
  }
  return place_vector(l, &w, h->norm_plus_one, &layer->vector[role]);
}

static setun_status place_role(loader *l, st_role role, const char *module, bool *found, st_layer *layer) {
  st_model *m = l->m;
  st_weight w;
  if (role == ST_ATTN_Q_NORM || role == ST_ATTN_K_NORM) return place_qk_norm(l, module, role, found, layer);
  setun_status s = find(l, module, shape_of(&m->h, role), found, &w);
  if (s != SETUN_OK || !*found) return s;
  switch (role) {
  case ST_TOKEN_EMBD: return place_linear(l, module, &w, &m->token_embd);
  case ST_OUTPUT:
    if (m->h.tied) return SETUN_OK; // a copy of the embedding: some checkpoints ship both
    return place_linear(l, module, &w, &m->output);
  case ST_OUTPUT_NORM: return place_vector(l, &w, m->h.norm_plus_one, &m->output_norm);
  case ST_ROPE_FREQS: return read_vector(l, &w, false, &m->rope_divisors);
  default: break;
  }
  if (!is_matrix(role)) return place_vector(l, &w, m->h.norm_plus_one, &layer->vector[role]);
  s = place_linear(l, module, &w, &layer->linear[role]);
  if (s == SETUN_OK) count_decode(m, &layer->linear[role], w.shape);
  return s;
}

// The module's name in this container, in `out`; NULL when the row does not apply to it.
static const char *module_name(const loader *l, const st_binding *b, uint32_t layer, char out[160]) {
  const char *pattern = l->d->container == ST_GGUF ? b->gguf : b->hf, *prefix = l->m->spec->hf_prefix;
  if (!pattern) return NULL;
  int n = 0;
  if (prefix && l->d->container != ST_GGUF) n = snprintf(out, 160, "%s", prefix);
  const char *mark = strstr(pattern, "%u");
  if (mark) {
    snprintf(out + n, 160 - (size_t)n, "%.*s%u%s", (int)(mark - pattern), pattern, layer, mark + 2);
  } else {
    snprintf(out + n, 160 - (size_t)n, "%s", pattern);
  }
  if (n) { // the prefix is there or not, for the whole checkpoint
    char first[192];
    snprintf(first, sizeof first, "%s%s.weight", prefix, "model.embed_tokens");
    if (!st_directory_find(l->d, first)) memmove(out, out + n, strlen(out + n) + 1);
  }
  return out;
}

// One role of the model or of one layer: the first of its names that is there.
static setun_status bind(loader *l, st_role role, uint32_t layer) {
  char name[160], wanted[160] = "";
  bool found = false, missing = false;
  for (const st_binding *b = l->m->spec->bindings; b->gguf || b->hf; b++) {
    if (b->role != role || found || !module_name(l, b, layer, name)) continue;
    setun_status s = place_role(l, role, name, &found, l->m->layers ? &l->m->layers[layer] : NULL);
    if (s != SETUN_OK) return s;
    if (b->need == ST_REQUIRED || (b->need == ST_UNTIED && !l->m->h.tied)) {
      missing = true;
      if (!wanted[0]) snprintf(wanted, sizeof wanted, "%s", name);
    }
  }
  if (found || !missing) return SETUN_OK;
  return st_fail(l->err, SETUN_ERROR_FORMAT, "%s.weight: expected a tensor of that name, found none", wanted);
}

static setun_status bind_all(loader *l) {
  setun_status s = SETUN_OK;
  for (int role = 0; role < ST_GLOBAL_ROLES && s == SETUN_OK; role++) s = bind(l, (st_role)role, 0);
  for (uint32_t i = 0; i < l->m->h.n_layer && s == SETUN_OK; i++) {
    for (int role = ST_GLOBAL_ROLES; role < ST_ROLE_COUNT && s == SETUN_OK; role++) s = bind(l, (st_role)role, i);
  }
  return s;
}

// A tensor that nothing uses would mean a model that computes something else than this one.
static setun_status check_unexpected(loader *l) {
  for (size_t i = 0; i < l->d->n_tensors; i++) {
    const char *name = l->d->tensors[i].name;
    size_t n = strlen(name);
    bool expected = l->used[i] || (n > 20 && !strcmp(name + n - 20, ".rotary_emb.inv_freq"));
    for (const char *const *p = l->m->spec->ignored; p && *p && !expected; p++) {
      expected = !strncmp(name, *p, strlen(*p));
    }
    if (!expected) {
      return st_fail(l->err, SETUN_ERROR_UNSUPPORTED, "%s: a tensor that a model of the %s family does not have", name,
                     l->m->spec->name);
    }
  }
  return SETUN_OK;
}

// Tells models apart whose tensors have the same names and shapes: some bytes from the middle of each go in too.
static setun_status identify(loader *l) {
  uint64_t h = ST_HASH_START;
  for (size_t i = 0; i < l->d->n_tensors; i++) {
    const st_tensor *t = &l->d->tensors[i];
    unsigned char sample[64];
    size_t n = t->bytes < sizeof sample ? (size_t)t->bytes : sizeof sample;
    setun_status s = st_file_read(&l->d->parts[t->part], t->offset + (t->bytes - n) / 2, sample, n, l->err);
    if (s != SETUN_OK) return s;
    h = st_hash(h, t->name, strlen(t->name));
    h = st_hash(h, t->dtype, strlen(t->dtype));
    for (int k = 0; k < 4; k++) h = h * 31 + t->dims[k];
    h = st_hash(h, sample, n);
  }
  l->m->identity = h;
  return SETUN_OK;
}

static setun_status load(loader *l) {
  st_model *m = l->m;
  st_device_options device = {.isa = l->o->isa, .log = l->o->log};
  setun_status s = st_hparams_read(l->d, l->o->activation, &m->spec, &m->h, l->err);
  if (s == SETUN_OK) s = m->backend->device_new(&device, &m->device, l->err);
  if (s == SETUN_OK) s = st_pool_new(l->o->threads > 0 ? l->o->threads : st_default_threads(), &l->pool, l->err);
  if (s != SETUN_OK) return s;
  // A file cannot hold more layers than tensors, whatever it claims.
  if (m->h.n_layer > l->d->n_tensors) {
    return st_fail(l->err, SETUN_ERROR_FORMAT, "number of layers: expected at most the %zu tensors there are, found %u",
                   l->d->n_tensors, m->h.n_layer);
  }
  m->layers = st_calloc(m->h.n_layer, sizeof *m->layers);
  l->used = st_calloc(l->d->n_tensors, sizeof *l->used);
  if (!m->layers || !l->used) return st_fail_memory(l->err, "the model's layers");
  for (size_t i = 0; i < l->d->n_tensors; i++) l->bytes_total += l->d->tensors[i].bytes;
  s = bind_all(l);
  if (s == SETUN_OK) s = check_unexpected(l);
  if (s == SETUN_OK) s = identify(l);
  if (s != SETUN_OK) return s;
  if (m->h.tied) m->output = m->token_embd;
  count_decode(m, &m->output, shape_of(&m->h, ST_OUTPUT));
  m->head_macs = (uint64_t)m->h.n_vocab * m->h.n_embd;
  return SETUN_OK;
}

setun_status st_model_load(const st_directory *d, const st_model_options *options, st_model **model, setun_error *err) {
  st_model *m = st_calloc(1, sizeof *m);
  if (!m) return st_fail_memory(err, "the model");
  m->backend = options->backend;
  loader l = {.d = d, .o = options, .m = m, .err = err};
  setun_status s = load(&l);
  st_pool_free(l.pool);
  st_free(l.used);
  if (s == SETUN_OK) {
    *model = m;
  } else {
    st_model_free(m);
  }
  return s;
}

static void free_linear(const st_backend *b, st_linear *l) {
  if (l->matrix) b->matrix_free(l->matrix);
  if (l->bias) b->vector_free(l->bias);
}

void st_model_free(st_model *m) {
  if (!m) return;
  const st_backend *b = m->backend;
  for (uint32_t i = 0; m->layers && i < m->h.n_layer; i++) {
    for (int role = 0; role < ST_ROLE_COUNT; role++) {
      free_linear(b, &m->layers[i].linear[role]);
      if (m->layers[i].vector[role]) b->vector_free(m->layers[i].vector[role]);
    }
  }
  if (m->output.matrix != m->token_embd.matrix) free_linear(b, &m->output);
  free_linear(b, &m->token_embd);
  if (m->output_norm) b->vector_free(m->output_norm);
  if (m->device) b->device_free(m->device);
  st_free(m->rope_divisors);
  st_hparams_free(&m->h);
  st_free(m->layers);
  st_free(m);
}
