// The forward pass: embedding, blocks, final norm and head, as calls on the backend.
#include "model/forward.h"

#include "base/memory.h"
#include "model/delta.h"
#include "model/embedding.h"
#include "model/moe.h"
#include "model/product.h"
#include "model/rope.h"
#include "model/run_arrays.h"
#include "model/states.h"

#include <math.h>

static setun_status new_table(st_run *r, const st_rope_params *p, st_dvector **out, setun_error *err) {
  const st_model *m = r->model;
  uint32_t reach = r->windows.period ? r->windows.window + r->windows.sinks : r->n_ctx;
  float *table = st_rope_table(p, m->h.n_rot, r->n_ctx, reach, m->h.n_ctx_train, m->rope_divisors);
  if (!table) return st_fail_memory(err, "the rotary position table");
  setun_status s = m->backend->vector_new(m->device, table, (size_t)r->n_ctx * m->h.n_rot, out, err);
  st_free(table);
  return s;
}

enum { RUN_ARRAYS = 19, LOGITS_AT_ONCE = 64 };

// Tokens whose logits are computed together, so that the head is read once for all of them.
static uint32_t logits_at_once(const st_run_options *o) {
  uint32_t n = o->n_logits < o->n_batch ? o->n_logits : o->n_batch;
  return n < LOGITS_AT_ONCE ? n : LOGITS_AT_ONCE;
}

// All arrays that a run of the model needs, and their members of `r`.
static void list_arrays(const st_hparams *h, st_run *r, const st_run_options *o, st_run_array list[RUN_ARRAYS]) {
  uint32_t n_batch = o->n_batch;
  size_t q = (size_t)h->n_head * h->head_dim, kv = (size_t)h->n_head_kv * h->head_dim, ff = h->n_ff, rows = n_batch;
  if (h->n_expert) { // one row for each expert of a token
    ff = ff > h->n_ff_expert ? ff : h->n_ff_expert;
    ff = ff > h->n_ff_shared ? ff : h->n_ff_shared;
    rows = rows > h->n_expert_used ? rows : h->n_expert_used;
  }
  st_delta_widths d = st_delta_widths_of(h);
  uint32_t pooled = o->pooling && h->embedding.n_dense;
  const st_run_array all[RUN_ARRAYS] = {{&r->x, n_batch, h->n_embd},
                                        {&r->q, n_batch, q},
                                        {&r->k, n_batch, kv},
                                        {&r->v, n_batch, kv},
                                        {&r->attn, n_batch, q},
                                        {&r->branch, n_batch, h->n_embd},
                                        {&r->gate, rows, ff},
                                        {&r->up, rows, ff},
                                        {&r->logits, logits_at_once(o), h->n_vocab},
                                        {&r->q_far, o->windows.period ? n_batch : 0, q},
                                        {&r->q_sink, o->windows.sinks ? n_batch : 0, q},
                                        {&r->mixed, d.mixed ? n_batch : 0, d.mixed},
                                        {&r->convolved, d.channels ? n_batch : 0, d.channels},
                                        {&r->z, d.z ? n_batch : 0, d.z},
                                        {&r->alpha, d.heads ? n_batch : 0, d.heads},
                                        {&r->beta, d.heads ? n_batch : 0, d.heads},
                                        {&r->switches, d.switches ? n_batch : 0, d.switches},
                                        {&r->dense[0], pooled, st_dense_width(h)},
                                        {&r->dense[1], pooled, st_dense_width(h)}};
  for (int i = 0; i < RUN_ARRAYS; i++) list[i] = all[i];
}

static setun_status new_arrays(st_run *r, const st_run_options *o, setun_error *err) {
  st_run_array list[RUN_ARRAYS];
  list_arrays(&r->model->h, r, o, list);
  return st_run_arrays_new(r, list, RUN_ARRAYS, err);
}

// ---- options and sizes --------------------------------------------------------------------------------------------

enum { DEFAULT_CONTEXT = 4096, DEFAULT_BATCH = 512, DEFAULT_SEQUENCES = 8 };
enum { MAX_CONTEXT = 1 << 24, MAX_THREADS = 1024, MAX_SEQUENCES = 4096, MAX_LOGITS = 1 << 20 };

// The numbers of sequences, pages and logits; n_ctx is known.
static setun_status take_sequences(const st_model *m, const setun_context_params *p, st_run_options *o,
                                   setun_error *err) {
  o->n_seq = p->n_seq_max ? p->n_seq_max : DEFAULT_SEQUENCES;
  o->n_logits = p->n_logits ? p->n_logits : o->n_seq;
  if (o->n_seq > MAX_SEQUENCES) {
    return st_fail(err, SETUN_ERROR_LIMIT, "n_seq_max: expected at most %d sequences, found %u", MAX_SEQUENCES,
                   o->n_seq);
  }
  if (o->n_logits > MAX_LOGITS) {
    return st_fail(err, SETUN_ERROR_LIMIT, "n_logits: expected at most %d tokens, found %u", MAX_LOGITS, o->n_logits);
  }
  uint64_t blocks = (uint64_t)o->n_seq * st_blocks(o->n_ctx);
  if (p->n_cache) blocks = p->n_cache / ST_CACHE_POSITIONS + (p->n_cache % ST_CACHE_POSITIONS > 0);
  if (blocks > UINT32_MAX / m->h.n_layer) {
    return st_fail(err, SETUN_ERROR_LIMIT, "KV cache: expected at most %u pages of %d tokens, found %llu",
                   UINT32_MAX / m->h.n_layer, ST_CACHE_POSITIONS, (unsigned long long)blocks);
  }
  o->n_blocks = (uint32_t)blocks;
  return SETUN_OK;
}

static setun_status take_pooling(const st_model *m, setun_pooling pooling, st_run_options *o, setun_error *err) {
  o->pooling = pooling == SETUN_POOLING_MODEL ? st_embedding_pooling(&m->h) : pooling;
  if ((unsigned)pooling > SETUN_POOLING_NONE) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "pooling: expected one of setun_pooling, found %d", (int)pooling);
  }
  return SETUN_OK;
}

setun_status st_run_options_of(const st_model *m, const setun_context_params *params, st_run_options *o,
                               setun_error *err) {
  const setun_context_params session = {.n_seq_max = 1}, *p = params ? params : &session;
  uint32_t trained = m->h.n_ctx_train, most = m->h.n_ctx_most < MAX_CONTEXT ? m->h.n_ctx_most : MAX_CONTEXT;
  if (p->window && p->n_ctx) {
    return st_fail(err, SETUN_ERROR_ARGUMENT,
                   "n_ctx: expected 0 with a window, which does not limit the text's length, found %u", p->n_ctx);
  }
  o->n_ctx = p->n_ctx ? p->n_ctx : trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
  if (o->n_ctx > most) {
    return st_fail(err, SETUN_ERROR_LIMIT,
                   "context: expected at most the %u tokens that the model was trained for or its RoPE scaling extends "
                   "to, found %u",
                   most, o->n_ctx);
  }
  setun_status s = st_windows_of(&m->h, o->n_ctx, p->window, p->sinks, &o->windows, err);
  if (s != SETUN_OK) return s;
  o->limit = o->n_ctx;
  if (o->windows.period) o->n_ctx = 2 * o->windows.period, o->limit = UINT32_MAX;
  s = take_sequences(m, p, o, err);
  if (s != SETUN_OK) return s;
  o->n_states = st_delta_slots(&m->h, o->n_seq);
  o->n_batch = p->n_batch ? p->n_batch : m->h.bidirectional ? o->n_ctx : DEFAULT_BATCH; // a whole text in one pass
  if (o->n_batch > (uint64_t)o->n_ctx * o->n_seq) o->n_batch = o->n_ctx * o->n_seq;
  if (p->threads < 0 || p->threads > MAX_THREADS) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "threads: expected 0 to %d, found %d", MAX_THREADS, p->threads);
  }
  for (int i = 0; i < 2; i++) {
    setun_kv_type type = i ? p->kv_values : p->kv_keys;
    if (!m->backend->cache_format_name(type)) {
      return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected one of setun_kv_type, found %d",
                     i ? "kv_values" : "kv_keys", (int)type);
    }
  }
  if ((s = take_pooling(m, p->pooling, o, err)) != SETUN_OK) return s;
  o->threads = p->threads > 0 ? p->threads : st_default_threads();
  o->keys = p->kv_keys, o->values = p->kv_values;
  return SETUN_OK;
}

void st_run_count_pages(const st_hparams *h, const st_run_options *o, uint32_t pages[ST_LAYER_KINDS]) {
  for (int kind = 0; kind < ST_LAYER_KINDS; kind++) pages[kind] = 0;
  for (uint32_t i = 0; i < h->n_layer; i++) {
    uint64_t blocks = (uint64_t)o->n_seq * st_layer_blocks(h, &o->windows, i, o->n_ctx, o->n_batch);
    pages[st_layer_kind_of(h, &o->windows, i)] += blocks < o->n_blocks ? (uint32_t)blocks : o->n_blocks;
  }
}

static st_cache_shape cache_shape(const st_hparams *h, const st_run_options *o) {
  uint32_t pages[ST_LAYER_KINDS];
  st_run_count_pages(h, o, pages);
  return (st_cache_shape){.n_pages = pages[ST_LAYER_FULL] + pages[ST_LAYER_WINDOW],
                          .n_ctx = o->n_ctx,
                          .n_head = h->n_head,
                          .n_head_kv = h->n_head_kv,
                          .head_dim = h->head_dim,
                          .keys = o->keys,
                          .values = o->values};
}

st_run_size st_run_size_of(const st_model *m, const st_run_options *o, const st_workload *workload) {
  const st_hparams *h = &m->h;
  st_run places; // only lists them
  st_run_array list[RUN_ARRAYS];
  st_queue_options queue = {.threads = o->threads, .n_batch = o->n_batch};
  st_cache_shape cache = cache_shape(h, o);
  uint64_t floats = (uint64_t)o->n_ctx * h->n_rot * (h->has_rope_local ? 2 : 1); // tables
  list_arrays(h, &places, o, list);
  for (int i = 0; i < RUN_ARRAYS; i++) floats += (uint64_t)list[i].tokens * list[i].width;
  if (h->n_expert) floats += (uint64_t)o->n_batch * (4 * (uint64_t)h->n_embd + h->n_expert + 6 * h->n_expert_used + 3);
  if (h->n_expert && m->backend->own_memory(m->device, NULL)) { // a table of the experts' matrices, 32 bytes each
    floats += (uint64_t)h->n_layer * h->n_expert * ST_EXPERT_MATRICES * 8;
  }
  floats += (uint64_t)o->n_batch *
            (4 * (uint64_t)m->max_rank + m->max_lora_rows + m->max_normed_columns + m->max_rotated_columns);
  if (m->lora_head) floats += (uint64_t)logits_at_once(o) * h->n_vocab;
  st_state_shape states = st_state_shape_of(h, o->n_states);
  uint64_t slots = o->n_states ? m->backend->states_size(&states) : 0;
  return (st_run_size){.cache = m->backend->cache_size(m->device, &cache, o->threads) + slots,
                       .states = slots,
                       .pages = cache.n_pages * m->backend->cache_page_size(&cache),
                       .work = floats * sizeof(float) + m->backend->queue_size(m->device, &queue, workload)};
}

setun_status st_run_new(const st_model *m, const st_run_options *o, st_run **run, setun_error *err) {
  const st_backend *b = m->backend;
  st_run *r = st_calloc(1, sizeof *r);
  if (!r) return st_fail_memory(err, "the session");
  r->model = m;
  r->n_ctx = o->n_ctx;
  r->n_batch = o->n_batch;
  r->windows = o->windows;
  r->n_logits = logits_at_once(o);
  r->keys = o->keys, r->values = o->values;
  st_queue_options queue = {.threads = o->threads, .n_batch = o->n_batch};
  st_cache_shape cache = cache_shape(&m->h, o);
  setun_status s = b->queue_new(m->device, &queue, &r->queue, err);
  st_run_count_pages(&m->h, o, r->n_pages);
  if (s == SETUN_OK) s = b->cache_new(r->queue, &cache, &r->cache, err);
  if (s == SETUN_OK && o->n_states) {
    st_state_shape states = st_state_shape_of(&m->h, o->n_states);
    r->n_states = o->n_states;
    r->state_bytes = (size_t)b->state_size(&states);
    s = b->states_new(r->queue, &states, &r->states, err);
  }
  if (s == SETUN_OK) s = new_arrays(r, o, err);
  if (s == SETUN_OK && m->h.n_expert) s = st_moe_new(r, &r->moe, err);
  // q, k and v, or the matrices of a recurrent layer, or gate and up of experts
  uint32_t least = m->h.delta.n_taps ? 4 : 3, most = 2 * m->h.n_expert_used > least ? 2 * m->h.n_expert_used : least;
  if (s == SETUN_OK) s = st_products_new(r, most, &r->products, err);
  if (s == SETUN_OK) s = new_table(r, &m->h.rope, &r->rope, err);
  if (s == SETUN_OK && m->h.has_rope_local) s = new_table(r, &m->h.rope_local, &r->rope_local, err);
  if (s == SETUN_OK) {
    *run = r;
  } else {
    st_run_free(r);
  }
  return s;
}

void st_run_free(st_run *r) {
  if (!r) return;
  const st_backend *b = r->model->backend;
  st_moe_free(r, r->moe);
  st_products_free(r, r->products);
  st_run_array list[RUN_ARRAYS];
  list_arrays(&r->model->h, r, &(st_run_options){0}, list); // only for the members
  st_run_arrays_free(r, list, RUN_ARRAYS);
  if (r->rope) b->vector_free(r->rope);
  if (r->rope_local) b->vector_free(r->rope_local);
  if (r->states) b->states_free(r->states);
  if (r->cache) b->cache_free(r->cache);
  if (r->queue) b->queue_free(r->queue);
  st_free(r);
}

// Adds the branch, normalized in families with post-norms, to the residual stream.
static void add_branch(st_run *r, const st_dvector *post_norm, uint32_t n) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  if (post_norm) b->rmsnorm(r->queue, r->branch, n, 1, h->n_embd, post_norm, h->norm_eps);
  b->add(r->queue, r->x, r->branch, n, h->n_embd, h->residual_scale);
}

static void norm_heads(st_run *r, st_array *x, uint32_t n, uint32_t heads, const st_dvector *norm, uint32_t width) {
  const st_hparams *h = &r->model->h;
  if (norm) r->model->backend->rmsnorm(r->queue, x, n, heads * h->head_dim / width, width, norm, h->norm_eps);
}

// RoPE for queries and keys, see windows.h.
static void rotate(st_run *r, uint32_t index, const st_batch *batch) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  const st_windows *w = &r->windows;
  st_rope_args args = {.heads = h->n_head,
                       .head_dim = h->head_dim,
                       .n_rot = h->n_rot,
                       .table = h->sliding[index] && r->rope_local ? r->rope_local : r->rope,
                       .interleaved = h->interleaved,
                       .most = UINT32_MAX};
  if (h->no_rope[index]) args.table = NULL;
  if (r->q_far) b->rope(r->queue, r->q, batch, &args, r->q_far);
  args.most = w->sinks + w->window - 1;
  if (r->q_sink) b->rope(r->queue, r->q, batch, &args, r->q_sink);
  args.most = UINT32_MAX;
  args.period = w->period;
  b->rope(r->queue, r->q, batch, &args, r->q);
  args.heads = h->n_head_kv;
  b->rope(r->queue, r->k, batch, &args, r->k);
}

static void normalize_heads(st_run *r, const st_layer *l, uint32_t n) {
  const st_hparams *h = &r->model->h;
  norm_heads(r, r->q, n, h->n_head, l->vector[ST_ATTN_Q_NORM], l->width[ST_ATTN_Q_NORM]);
  norm_heads(r, r->k, n, h->n_head_kv, l->vector[ST_ATTN_K_NORM], l->width[ST_ATTN_K_NORM]);
}

// From products to the final queries and keys: each head normalized, clipped and rotated.
static void prepare_heads(st_run *r, uint32_t index, const st_batch *batch) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  const st_layer *l = &r->model->layers[index];
  uint32_t n = batch->n_tokens;
  if (!h->norm_after_rope) normalize_heads(r, l, n);
  if (h->clip_qkv > 0) {
    b->clip(r->queue, r->q, n, h->n_head * h->head_dim, h->clip_qkv);
    b->clip(r->queue, r->k, n, h->n_head_kv * h->head_dim, h->clip_qkv);
    b->clip(r->queue, r->v, n, h->n_head_kv * h->head_dim, h->clip_qkv);
  }
  rotate(r, index, batch);
  if (h->norm_after_rope) normalize_heads(r, l, n); // without windows, see st_windows_of
}

// Splits queries from the gates of the attention's output; they alternate head by head.
static void split_gates(st_run *r, uint32_t n) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  uint32_t d = h->head_dim;
  st_columns c = {.from_step = 2 * d, .to_step = d, .n = d, .count = h->n_head};
  b->copy_columns(r->queue, r->mixed, n, &c, r->q);
  c.from = d;
  b->copy_columns(r->queue, r->mixed, n, &c, r->z);
}

static void attention(st_run *r, uint32_t index, const st_batch *batch) {
  uint32_t n = batch->n_tokens;
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  const st_layer *l = &r->model->layers[index];
  const st_product qkv[] = {{&l->linear[ST_ATTN_Q], h->gated_attention ? r->mixed : r->q, 0},
                            {&l->linear[ST_ATTN_K], r->k, 0},
                            {&l->linear[ST_ATTN_V], r->v, 0}};
  st_multiply(r, r->x, 0, n, l->vector[ST_ATTN_NORM], qkv, 3);
  if (h->gated_attention) split_gates(r, n);
  prepare_heads(r, index, batch);
  b->cache_write(r->queue, r->cache, index, batch, r->k, r->v);
  b->attend(r->queue, r->cache, batch,
            &(st_attend_args){.layer = index,
                              .n_head = h->n_head,
                              .window = st_layer_window(h, &r->windows, index),
                              .n_sinks = st_layer_sinks(h, &r->windows, index),
                              .period = r->windows.period,
                              .bidirectional = h->bidirectional,
                              .scale = h->attn_scale,
                              .sinks = l->vector[ST_ATTN_SINKS],
                              .q = r->q,
                              .q_far = r->q_far,
                              .q_sink = r->q_sink,
                              .dst = r->attn});
  if (h->gated_attention) b->glu(r->queue, ST_FN_SIGMOID, r->z, r->attn, n, h->n_head * h->head_dim, r->attn);
  const st_product o = {&l->linear[ST_ATTN_O], r->branch, 0};
  st_multiply(r, r->attn, 0, n, l->vector[ST_ATTN_SUB_NORM], &o, 1);
}

static void poll(const st_run *r) {
  const st_supply *supply = r->model->supply;
  if (supply) supply->poll(supply->context);
}

static setun_status feed_forward(st_run *r, uint32_t index, uint32_t n, setun_error *err) {
  const st_backend *b = r->model->backend;
  const st_hparams *h = &r->model->h;
  const st_layer *l = &r->model->layers[index];
  if (l->experts) {
    setun_status s = st_moe_forward(r, index, n, err);
    if (s == SETUN_OK) add_branch(r, l->vector[ST_FFN_POST_NORM], n);
    return s;
  }
  const st_product gate_up[] = {{&l->linear[ST_FFN_GATE], r->gate, 0}, {&l->linear[ST_FFN_UP], r->up, 0}};
  st_multiply(r, r->x, 0, n, l->vector[ST_FFN_NORM], gate_up, 2);
  b->glu(r->queue, h->fn, r->gate, r->up, n, h->n_ff, r->gate);
  poll(r);
  const st_product down = {&l->linear[ST_FFN_DOWN], r->branch, 0};
  st_multiply(r, r->gate, 0, n, l->vector[ST_FFN_SUB_NORM], &down, 1);
  add_branch(r, l->vector[ST_FFN_POST_NORM], n);
  return SETUN_OK;
}

static setun_status fail_stopped(setun_error *err) {
  return st_fail(err, SETUN_ERROR_CANCELED, "stopped");
}

static setun_status report_hidden(st_run *r, const st_pass *p, uint32_t layer, const st_batch *batch,
                                  setun_error *err) {
  if (!p->on_hidden) return SETUN_OK;
  size_t width = r->model->h.n_embd;
  setun_status s = r->model->backend->read(r->queue, r->x, 0, batch->n_tokens * width, p->hidden, err);
  const float *rows = p->hidden;
  for (uint32_t i = 0; i < batch->n_runs && s == SETUN_OK; i++) {
    const st_token_run *run = &batch->runs[i];
    if (!p->on_hidden(layer, run->forgotten + run->position, run->n, rows, p->user)) s = fail_stopped(err);
    rows += run->n * width;
  }
  return s;
}

// A layer's two halves, each after acquiring its weights that are not resident.
setun_status st_run_layer(st_run *r, uint32_t index, const st_batch *batch, setun_error *err) {
  const st_supply *supply = r->model->supply;
  setun_status s = supply ? supply->acquire(supply->context, index, true, err) : SETUN_OK;
  if (s != SETUN_OK) return s;
  if (r->model->h.recurrent[index]) {
    st_delta_forward(r, index, batch);
  } else {
    attention(r, index, batch);
  }
  add_branch(r, r->model->layers[index].vector[ST_ATTN_POST_NORM], batch->n_tokens);
  poll(r);
  if (supply) s = supply->acquire(supply->context, index, false, err);
  if (s == SETUN_OK) s = feed_forward(r, index, batch->n_tokens, err);
  if (s != SETUN_OK || !supply) return s;
  s = r->model->backend->finish(r->queue, err);
  if (s == SETUN_OK) supply->release(supply->context, index);
  return s;
}

static setun_status layers(st_run *r, const st_batch *batch, const st_pass *p, setun_error *err) {
  setun_status s = SETUN_OK;
  for (uint32_t i = 0; i < r->model->h.n_layer && s == SETUN_OK; i++) {
    if (p->stop && p->stop(p->stop_context)) return fail_stopped(err);
    s = st_run_layer(r, i, batch, err);
    if (s == SETUN_OK) s = report_hidden(r, p, i + 1, batch, err);
  }
  return s;
}

// The tokens' rows of the embedding, read one by one where it is not resident.
static setun_status gather_rows(st_run *r, const int32_t *ids, uint32_t n, setun_error *err) {
  const st_model *m = r->model;
  const st_dmatrix *rows = NULL;
  int32_t places[ST_SUPPLY_ROWS];
  if (m->token_embd.matrix) {
    m->backend->embed(r->queue, m->token_embd.matrix, ids, n, m->h.embed_scale, r->x, 0);
    return SETUN_OK;
  }
  for (int32_t i = 0; i < ST_SUPPLY_ROWS; i++) places[i] = i;
  for (uint32_t done = 0; done < n;) {
    uint32_t count = n - done < ST_SUPPLY_ROWS ? n - done : ST_SUPPLY_ROWS;
    setun_status s = m->supply->rows(m->supply->context, ids + done, count, &rows, err);
    if (s != SETUN_OK) return s;
    m->backend->embed(r->queue, rows, places, count, m->h.embed_scale, r->x, done);
    s = m->backend->finish(r->queue, err);
    if (s != SETUN_OK) return s;
    done += count;
  }
  return SETUN_OK;
}

setun_status st_run_embed(st_run *r, const int32_t *ids, uint32_t n, setun_error *err) {
  const st_basis *basis = r->model->token_embd.basis;
  setun_status s = gather_rows(r, ids, n, err);
  if (s != SETUN_OK || !basis) return s;
  const st_hadamard_args back = {.width = basis->width, .block = basis->block, .after = basis->signs};
  r->model->backend->hadamard(r->queue, r->x, 0, n, &back, r->x);
  return SETUN_OK;
}

// How many times the head is read for the logits of this many tokens.
static uint32_t heads_for(const st_run *r, uint32_t n) {
  return (n + r->n_logits - 1) / r->n_logits;
}

setun_status st_run_tokens(st_run *r, const int32_t *ids, const st_batch *batch, const st_pass *p, setun_error *err) {
  const st_supply *supply = r->model->supply;
  if (supply) supply->begin(supply->context, ST_SUPPLY_LAYERS, heads_for(r, p->n_logits));
  setun_status s = st_run_embed(r, ids, batch->n_tokens, err);
  if (s == SETUN_OK) s = report_hidden(r, p, 0, batch, err);
  if (s == SETUN_OK) s = layers(r, batch, p, err);
  if (s == SETUN_OK && !p->n_logits) s = r->model->backend->finish(r->queue, err); // otherwise reading them reports it
  if (s != SETUN_OK) r->model->backend->finish(r->queue, NULL); // streamed weights are no longer used
  if (supply) supply->end(supply->context);
  return s;
}

static setun_status multiply_pieces(st_run *r, uint32_t n, setun_error *err) {
  const st_model *m = r->model;
  setun_status s = SETUN_OK;
  for (uint32_t i = 0; i < m->n_head && s == SETUN_OK; i++) {
    uint32_t unit = m->h.n_layer + i;
    const st_product piece = {&m->head[i], r->logits, 0};
    s = m->supply->acquire(m->supply->context, unit, false, err);
    if (s != SETUN_OK) return s;
    st_multiply(r, r->branch, 0, n, m->output_norm, &piece, 1);
    s = m->backend->finish(r->queue, err);
    if (s == SETUN_OK) m->supply->release(m->supply->context, unit);
  }
  return s;
}

// The logits of these tokens, in r->logits; `left` more follow.
static setun_status make_logits(st_run *r, const uint32_t *rows, uint32_t n, uint32_t left, setun_error *err) {
  const st_model *m = r->model;
  m->backend->gather(r->queue, r->x, rows, n, m->h.n_embd, r->branch); // `branch` is unused between passes
  if (m->n_head) {
    m->supply->begin(m->supply->context, ST_SUPPLY_HEAD, heads_for(r, n + left));
    setun_status s = multiply_pieces(r, n, err);
    m->supply->end(m->supply->context);
    if (s != SETUN_OK) return s;
  } else {
    const st_product head = {&m->output, r->logits, 0};
    st_multiply(r, r->branch, 0, n, m->output_norm, &head, 1);
  }
  return SETUN_OK;
}

static bool changes_logits(const st_model *m) {
  return m->h.logit_scale != 1.0f || m->h.logit_softcap > 0;
}

static void change_logits(const st_model *m, float *logits, size_t n) {
  if (m->h.logit_scale != 1.0f) {
    for (size_t i = 0; i < n; i++) logits[i] *= m->h.logit_scale;
  }
  float cap = m->h.logit_softcap;
  for (size_t i = 0; i < n && cap > 0; i++) logits[i] = cap * tanhf(logits[i] / cap);
}

bool st_run_finds_few(const st_run *r) {
  return r->model->backend->own_memory(r->model->device, NULL);
}

// Scaling and capping keep the order of logits, but different ones may become equal: the largest that is left out must
// still be smaller then.
static setun_status find_top(st_run *r, st_few_logits *few, setun_error *err) {
  const st_model *m = r->model;
  uint32_t n = few->k + 1;
  if (few->k > ST_FEW_LOGITS || n > m->h.n_vocab) return SETUN_OK;
  setun_status s = m->backend->top(r->queue, r->logits, m->h.n_vocab, n, few->ids, few->logits, err);
  if (s != SETUN_OK || few->ids[0] < 0) return s;
  change_logits(m, few->logits, n);
  if (!changes_logits(m) || few->logits[few->k] < few->logits[few->k - 1]) few->count = n;
  return SETUN_OK;
}

setun_status st_run_few(st_run *r, uint32_t row, st_few_logits *few, setun_error *err) {
  const st_model *m = r->model;
  few->count = 0;
  setun_status s = make_logits(r, &row, 1, 0, err);
  if (s != SETUN_OK) return s;
  if (few->k != 1 || changes_logits(m)) return find_top(r, few, err);
  s = m->backend->argmax(r->queue, r->logits, 1, m->h.n_vocab, few->ids, err);
  few->logits[0] = 0;
  few->count = s == SETUN_OK && few->ids[0] >= 0;
  return s;
}

setun_status st_run_read_logits(st_run *r, uint32_t n, float *out, setun_error *err) {
  const st_model *m = r->model;
  size_t all = (size_t)n * m->h.n_vocab;
  setun_status s = m->backend->read(r->queue, r->logits, 0, all, out, err);
  if (s == SETUN_OK) change_logits(m, out, all);
  return s;
}

setun_status st_run_logits(st_run *r, const uint32_t *rows, uint32_t n, uint32_t left, float *out, setun_error *err) {
  setun_status s = make_logits(r, rows, n, left, err);
  return s == SETUN_OK ? st_run_read_logits(r, n, out, err) : s;
}
