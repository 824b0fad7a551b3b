// Loading: binds a family's table of names to the tensors of a directory and places their rows on the device.
#include "model/load.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/system_memory.h"
#include "model/copy.h"
#include "model/forward.h"
#include "model/streamer.h"

#include <stdio.h>
#include <string.h>

enum { SURVEYED_ROWS = 32 }; // of a matrix of floats, to tell whether they are trits

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
  case ST_FFN_DOWN:
  case ST_ROUTER:
  case ST_SHARED_ROUTER:
  case ST_SHARED_GATE:
  case ST_SHARED_UP:
  case ST_SHARED_DOWN: return true;
  default: return false;
  }
}

st_shape st_role_shape(const st_hparams *h, st_role role) {
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
  case ST_ROUTER: return (st_shape){h->n_expert, h->n_embd};
  case ST_EXPERT_GATE:
  case ST_EXPERT_UP: return (st_shape){h->n_ff_expert, h->n_embd};
  case ST_EXPERT_DOWN: return (st_shape){h->n_embd, h->n_ff_expert};
  case ST_SHARED_ROUTER: return (st_shape){1, h->n_embd};
  case ST_SHARED_GATE:
  case ST_SHARED_UP: return (st_shape){h->n_ff_shared, h->n_embd};
  case ST_SHARED_DOWN: return (st_shape){h->n_embd, h->n_ff_shared};
  case ST_ATTN_SINKS: return (st_shape){1, h->n_head};
  case ST_ROPE_SHORT:
  case ST_ROPE_LONG_FACTORS:
  case ST_ROPE_FREQS: return (st_shape){1, h->head_dim / 2};
  case ST_ATTN_SUB_NORM: return (st_shape){1, q};
  case ST_FFN_SUB_NORM: return (st_shape){1, h->n_ff};
  case ST_ATTN_Q_NORM:
  case ST_ATTN_K_NORM: return (st_shape){1, h->head_dim};
  default: return (st_shape){1, h->n_embd};
  }
}

// Whether a layer has the role at all: it has an MLP or experts.
static bool applies(const st_hparams *h, st_role role, uint32_t layer) {
  switch (role) {
  case ST_FFN_GATE:
  case ST_FFN_UP:
  case ST_FFN_SUB_NORM:
  case ST_FFN_DOWN: return !h->sparse[layer];
  case ST_ROUTER: return h->sparse[layer];
  case ST_EXPERT_GATE:
  case ST_EXPERT_UP:
  case ST_EXPERT_GATE_UP:
  case ST_EXPERT_DOWN: return false; // see load_experts.c
  case ST_SHARED_ROUTER:
  case ST_SHARED_GATE:
  case ST_SHARED_UP:
  case ST_SHARED_DOWN: return h->sparse[layer] && h->n_ff_shared;
  default: return true;
  }
}

void st_mark_used(st_loader *l, const st_weight *w) {
  l->used[w->data - l->d->tensors] = true;
  if (w->scale) l->used[w->scale - l->d->tensors] = true;
  if (w->block_scales) l->used[w->block_scales - l->d->tensors] = true;
}

static setun_status find(st_loader *l, const char *module, st_shape shape, bool *found, st_weight *w) {
  setun_status s = st_weight_find(l->d, module, shape, found, w, l->err);
  if (s == SETUN_OK && *found) st_mark_used(l, w);
  if (s == SETUN_OK && *found && !l->surveying) s = st_weight_measure(l->d, w, l->err);
  return s;
}

static void count_decode(st_model *m, uint64_t bytes, st_shape shape) {
  m->bytes_per_token += bytes;
  m->macs_per_token += shape.rows * shape.columns;
}

// The embedding, or a head of its own; whichever comes last does the head's work.
static setun_status place_embedding(st_loader *l, const char *module, const st_weight *w, st_linear *out) {
  l->is_embedding = out == &l->m->token_embd;
  l->is_head = !l->is_embedding || l->m->h.tied;
  setun_status s = st_place_linear(l, module, w, false, out);
  l->head_bytes = l->matrix_bytes;
  l->is_embedding = l->is_head = false;
  return s;
}

// A q or k norm covers one head, or all of them at once: the tensor's length tells.
static setun_status place_qk_norm(st_loader *l, const char *module, st_role role, bool *found, st_layer *layer) {
  const st_hparams *h = &l->m->h;
  bool q = role == ST_ATTN_Q_NORM;
  uint32_t width = h->head_dim, all = (q ? h->n_head : h->n_head_kv) * h->head_dim;
  char name[ST_NAME_SIZE + 8];
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
  return st_place_vector(l, &w, h->norm_plus_one, &layer->vector[role]);
}

static bool needs_bias(const st_hparams *h, st_role role) {
  switch (role) {
  case ST_ATTN_Q:
  case ST_ATTN_K:
  case ST_ATTN_V: return h->qkv_bias;
  case ST_ATTN_O: return h->o_bias;
  case ST_FFN_GATE:
  case ST_FFN_UP:
  case ST_FFN_DOWN: return h->mlp_bias;
  default: return false;
  }
}

static setun_status place_role(st_loader *l, st_role role, const char *module, bool *found, st_layer *layer) {
  st_model *m = l->m;
  st_weight w;
  if (role == ST_ATTN_Q_NORM || role == ST_ATTN_K_NORM) return place_qk_norm(l, module, role, found, layer);
  setun_status s = find(l, module, st_role_shape(&m->h, role), found, &w);
  if (s != SETUN_OK || !*found) return s;
  switch (role) {
  case ST_TOKEN_EMBD: return place_embedding(l, module, &w, &m->token_embd);
  case ST_OUTPUT:
    if (m->h.tied) return SETUN_OK; // a copy of the embedding: some checkpoints ship both
    return place_embedding(l, module, &w, &m->output);
  case ST_OUTPUT_NORM: return st_place_vector(l, &w, m->h.norm_plus_one, &m->output_norm);
  case ST_ROPE_SHORT: return st_read_vector(l, &w, false, &m->h.rope.short_factor);
  case ST_ROPE_LONG_FACTORS: return st_read_vector(l, &w, false, &m->h.rope.long_factor);
  case ST_ROPE_FREQS: return st_read_vector(l, &w, false, &m->rope_divisors);
  default: break;
  }
  bool norm = role != ST_ATTN_SINKS;
  if (!is_matrix(role)) return st_place_vector(l, &w, norm && m->h.norm_plus_one, &layer->vector[role]);
  // Which experts run is decided in floats.
  bool router = role == ST_ROUTER || role == ST_SHARED_ROUTER;
  // Models with int8 activations have them for ternary weights in any layout, floats among them.
  if (m->h.int8 && !router) s = st_weight_recognize(l->d, &w, l->surveying ? SURVEYED_ROWS : 0, l->err);
  l->attention = role < ST_FFN_NORM;
  if (s == SETUN_OK) s = st_place_linear(l, module, &w, router, &layer->linear[role]);
  if (s == SETUN_OK && !l->surveying && !layer->linear[role].bias && needs_bias(&m->h, role)) {
    s = st_fail(l->err, SETUN_ERROR_FORMAT, "%s.bias: expected a tensor of that name, found none", module);
  }
  if (s == SETUN_OK) count_decode(m, l->matrix_bytes, w.shape);
  return s;
}

void st_fill_name(const char *pattern, uint32_t layer, uint32_t expert, char *out, size_t size) {
  size_t n = 0;
  for (const char *p = pattern; *p && n + 1 < size; p++) {
    bool mark = p[0] == '%' && (p[1] == 'u' || p[1] == 'e');
    if (mark) {
      int digits = snprintf(out + n, size - n, "%u", p[1] == 'u' ? layer : expert);
      n += (size_t)digits < size - n ? (size_t)digits : size - n - 1;
      p++;
    } else {
      out[n++] = *p;
    }
  }
  out[n] = 0;
}

// Checkpoints with more parts than the language model put a prefix before its names, or behind their "model.".
const char *st_binding_name(const st_loader *l, const st_binding *b, uint32_t layer, uint32_t expert,
                            char out[ST_NAME_SIZE]) {
  static const char root[] = "model.";
  bool gguf = l->d->container == ST_GGUF;
  const char *pattern = gguf ? b->gguf : b->hf, *prefix = gguf ? NULL : l->m->spec->hf_prefix;
  if (!pattern) return NULL;
  char first[ST_NAME_SIZE];
  size_t n = 0;
  out[0] = 0;
  if (prefix) {
    snprintf(first, sizeof first, "%s%s", prefix, "model.embed_tokens.weight");
    bool before = st_directory_find(l->d, first) != NULL;
    snprintf(first, sizeof first, "%s%s%s", root, prefix, "embed_tokens.weight");
    bool behind = !before && st_directory_find(l->d, first) && !strncmp(pattern, root, sizeof root - 1);
    if (behind) pattern += sizeof root - 1;
    n = (size_t)snprintf(out, ST_NAME_SIZE, "%s%s", behind ? root : "", before || behind ? prefix : "");
  }
  st_fill_name(pattern, layer, expert, out + n, ST_NAME_SIZE - n);
  return out;
}

// One role of the model or of one layer: the first of its names that is there.
static setun_status bind(st_loader *l, st_role role, uint32_t layer) {
  char name[ST_NAME_SIZE], wanted[ST_NAME_SIZE] = "";
  bool found = false, missing = false;
  for (const st_binding *b = l->m->spec->bindings; b->gguf || b->hf; b++) {
    if (b->role != role || found || !st_binding_name(l, b, layer, 0, name)) continue;
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

static setun_status bind_all(st_loader *l) {
  setun_status s = SETUN_OK;
  l->layer = -1;
  for (int role = 0; role < ST_GLOBAL_ROLES && s == SETUN_OK; role++) s = bind(l, (st_role)role, 0);
  for (uint32_t i = 0; i < l->m->h.n_layer && s == SETUN_OK; i++) {
    l->layer = (int32_t)i;
    for (int role = ST_GLOBAL_ROLES; role < ST_ROLE_COUNT && s == SETUN_OK; role++) {
      if (applies(&l->m->h, (st_role)role, i)) s = bind(l, (st_role)role, i);
    }
    if (s == SETUN_OK && l->m->h.sparse[i]) s = st_load_experts(l, i);
  }
  return s;
}

// The scale of activations that belongs to a weight in NVFP4: for processors that take both in four bits.
static bool is_input_scale(const st_directory *d, const char *name) {
  static const char suffix[] = ".input_scale";
  char weight[ST_NAME_SIZE + 8];
  size_t n = strlen(name), end = sizeof suffix - 1;
  if (d->container != ST_GGUF || n <= end || n > ST_NAME_SIZE || strcmp(name + n - end, suffix)) return false;
  snprintf(weight, sizeof weight, "%.*s.weight", (int)(n - end), name);
  const st_tensor *t = st_directory_find(d, weight);
  return t && t->format && t->format->id == ST_NVFP4;
}

// A tensor that nothing uses would mean a model that computes something else than this one.
static setun_status check_unexpected(st_loader *l) {
  for (size_t i = 0; i < l->d->n_tensors; i++) {
    const char *name = l->d->tensors[i].name;
    size_t n = strlen(name);
    bool expected = l->used[i] || (n > 20 && !strcmp(name + n - 20, ".rotary_emb.inv_freq"));
    expected = expected || is_input_scale(l->d, name);
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
setun_status st_identify(st_loader *l, const st_directory *d) {
  uint64_t h = l->m->identity ? l->m->identity : ST_HASH_START;
  for (size_t i = 0; i < d->n_tensors; i++) {
    const st_tensor *t = &d->tensors[i];
    unsigned char sample[64];
    size_t n = t->bytes < sizeof sample ? (size_t)t->bytes : sizeof sample;
    setun_status s = st_file_read(&d->parts[t->part], t->offset + (t->bytes - n) / 2, sample, n, l->err);
    if (s != SETUN_OK) return s;
    h = st_hash(h, t->name, strlen(t->name));
    h = st_hash(h, t->dtype, strlen(t->dtype));
    for (int k = 0; k < 4; k++) h = h * 31 + t->dims[k];
    h = st_hash(h, sample, n);
  }
  l->m->identity = h;
  return SETUN_OK;
}

// What both walks over the tables begin with.
static setun_status begin(st_loader *l) {
  st_model *m = l->m;
  st_device_options device = {.isa = l->o->isa, .log = l->o->log};
  l->threads = l->o->threads > 0 ? l->o->threads : st_default_threads();
  setun_status s = st_hparams_read(l->d, l->o->activation, &m->spec, &m->h, l->err);
  if (s == SETUN_OK) s = st_hparams_check_layers(l->d, &m->h, l->err);
  if (s == SETUN_OK) s = m->backend->device_new(&device, &m->device, l->err);
  if (s != SETUN_OK) return s;
  m->layers = st_calloc(m->h.n_layer, sizeof *m->layers);
  l->used = st_calloc(l->d->n_tensors, sizeof *l->used);
  if (!m->layers || !l->used) return st_fail_memory(l->err, "the model's layers");
  for (size_t i = 0; i < l->d->n_tensors; i++) l->bytes_total += l->d->tensors[i].bytes;
  return SETUN_OK;
}

static setun_status finish(st_loader *l) {
  st_model *m = l->m;
  setun_status s = SETUN_OK;
  if (m->h.rope.scaling == ST_ROPE_LONG && !(m->h.rope.short_factor && m->h.rope.long_factor)) {
    s = st_fail(l->err, SETUN_ERROR_FORMAT, "longrope: expected its short and long factors, found none");
  }
  if (s == SETUN_OK) s = check_unexpected(l);
  count_decode(m, l->head_bytes, st_role_shape(&m->h, ST_OUTPUT));
  m->head_macs = (uint64_t)m->h.n_vocab * m->h.n_embd;
  return s;
}

// ---- the plan -----------------------------------------------------------------------------------------------------

// The batches to choose from: where none was asked for, smaller ones than the usual too. The size is that of the first.
static st_run_size list_batches(st_loader *l, const st_run_options *run, bool smaller) {
  enum { LEAST_BATCH = 32 };
  st_memory_plan *p = l->plan;
  st_run_options o = *run;
  st_run_size size = st_run_size_of(l->m, &o, l->columns);
  p->batches[p->n_batches++] = (st_batch_choice){o.n_batch, size.work};
  while (smaller && p->n_batches < ST_BATCHES && o.n_batch / 2 >= LEAST_BATCH) {
    o.n_batch /= 2;
    p->batches[p->n_batches++] = (st_batch_choice){o.n_batch, st_run_size_of(l->m, &o, l->columns).work};
  }
  return size;
}

// The walk that only looks; then the decisions.
static setun_status survey(st_loader *l) {
  st_model *m = l->m;
  st_memory_plan *p = l->plan;
  st_run_options run;
  l->surveying = true;
  setun_status s = begin(l);
  if (s == SETUN_OK) s = bind_all(l);
  p->n_layer = m->h.n_layer;
  if (s == SETUN_OK) s = finish(l);
  if (s == SETUN_OK) s = st_plan_head(l);
  if (s == SETUN_OK) s = st_survey_adapters(l);
  setun_session_params session = l->o->session ? *l->o->session : (setun_session_params){0};
  if (session.n_ctx > m->h.n_ctx_most) session.n_ctx = 0; // whoever makes such a session is told so
  if (s == SETUN_OK) s = st_run_options_of(&m->h, &session, &run, l->err);
  if (s != SETUN_OK) return s;
  st_run_size size = list_batches(l, &run, !session.n_batch);
  uint64_t available = st_memory_available();
  p->n_ctx = run.n_ctx;
  p->mapped = l->o->mapped;
  p->process = st_memory_resident();
  p->cache = size.cache;
  p->logits = size.more_logits;
  p->held_parts = l->o->held_parts;
  p->token_bytes = m->bytes_per_token;
  p->token_macs = m->macs_per_token;
  p->budget = l->o->memory;
  if (!p->budget && available != UINT64_MAX) p->budget = st_default_budget(p->process, available);
  return st_memory_plan_decide(p, l->d, l->err);
}

setun_status st_model_plan(const st_directory *d, const st_model_options *options, st_memory_plan *plan,
                           setun_error *err) {
  st_model *m = st_calloc(1, sizeof *m);
  if (!m) return st_fail_memory(err, "the model");
  m->backend = options->backend;
  *plan = (st_memory_plan){0};
  st_loader l = {.d = d, .o = options, .m = m, .plan = plan, .err = err};
  setun_status s = survey(&l);
  st_free(l.used);
  st_model_free(m);
  return s;
}

// ---- loading ------------------------------------------------------------------------------------------------------

static setun_status load(st_loader *l) {
  st_model *m = l->m;
  setun_status s = begin(l);
  if (s == SETUN_OK) s = st_pool_new(l->threads, &l->pool, l->err);
  if (s == SETUN_OK) s = st_streamer_new(m, l->d, l->pool, l->o->log, &m->streamer, l->err);
  if (s == SETUN_OK) s = bind_all(l);
  if (s == SETUN_OK) s = finish(l);
  if (s == SETUN_OK) s = st_identify(l, l->d);
  if (s != SETUN_OK) return s;
  if (m->h.tied) m->output = m->token_embd;
  s = st_load_adapters(l);
  for (uint32_t i = 0; i < l->d->n_parts && s == SETUN_OK; i++) s = st_file_check(&l->d->parts[i], l->err);
  st_finish_head(m);
  if (s == SETUN_OK && m->streamer) s = st_streamer_open(m->streamer, l->err);
  if (s == SETUN_OK && m->streamer) l->pool = NULL; // the streamer's now
  return s;
}

setun_status st_model_load(const st_directory *d, const st_model_options *options, st_model **model, setun_error *err) {
  st_model *m = st_calloc(1, sizeof *m);
  if (!m) return st_fail_memory(err, "the model");
  m->backend = options->backend;
  st_loader l = {.d = d, .o = options, .m = m, .plan = &m->plan, .err = err};
  setun_status s = st_model_plan(d, options, &m->plan, err);
  if (s == SETUN_OK) s = load(&l);
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
  if (l->norm) b->vector_free(l->norm);
  if (l->lora_a) b->matrix_free(l->lora_a);
  if (l->lora_b) b->matrix_free(l->lora_b);
}

void st_model_free(st_model *m) {
  if (!m) return;
  const st_backend *b = m->backend;
  st_streamer_free(m->streamer);
  st_memory_plan_free(&m->plan);
  for (uint32_t i = 0; m->layers && i < m->h.n_layer; i++) {
    for (int role = 0; role < ST_ROLE_COUNT; role++) {
      free_linear(b, &m->layers[i].linear[role]);
      if (m->layers[i].vector[role]) b->vector_free(m->layers[i].vector[role]);
    }
    for (uint32_t e = 0; m->layers[i].experts && e < m->h.n_expert; e++) {
      free_linear(b, &m->layers[i].experts[e].gate);
      free_linear(b, &m->layers[i].experts[e].up);
      free_linear(b, &m->layers[i].experts[e].down);
    }
    st_free(m->layers[i].experts);
  }
  if (m->h.tied) { // an adapter of the head is the head's alone
    m->output.matrix = NULL;
    m->output.bias = m->output.norm = NULL;
  }
  for (uint32_t i = 0; i < m->n_head; i++) {
    if (m->head[i].matrix) b->matrix_free(m->head[i].matrix);
  }
  st_free(m->head);
  st_row_copy_free(m->rows);
  free_linear(b, &m->output);
  free_linear(b, &m->token_embd);
  if (m->output_norm) b->vector_free(m->output_norm);
  if (m->device) b->device_free(m->device);
  st_free(m->rope_divisors);
  st_hparams_free(&m->h);
  st_free(m->layers);
  st_free(m);
}
