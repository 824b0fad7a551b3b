// The operations: how each is split among threads. The arithmetic is the kernels'.
#include "backend/cpu/cpu.h"

#include <stdatomic.h>
#include <string.h>

typedef struct {
  st_queue *q;
  const st_linear_out *outs;
  int count;
  st_input input;
  const float *x; // [tokens][stride]
  size_t stride, tokens;
  const float *norm; // [input.columns]; NULL: none
  float eps;
} linear_job;

static void prepare_part(void *context, int index, int threads) {
  linear_job *j = context;
  size_t first, last;
  st_pool_share(j->tokens, j->q->kernels->prepare_unit(j->input.kind, j->tokens), index, threads, &first, &last);
  if (first < last) j->q->kernels->prepare(&j->input, j->x, j->stride, j->norm, j->eps, first, last);
}

static size_t groups_of(const st_dmatrix *m) {
  return (m->m.rows + ST_GROUP - 1) / ST_GROUP;
}

static void add_bias(const st_linear_out *out, size_t tokens, size_t first, size_t last) {
  for (size_t t = 0; t < tokens; t++) {
    float *y = out->dst->data + (out->row + t) * out->dst->width + out->column;
    for (size_t r = first; r < last; r++) y[r] += out->bias->values[out->column + r];
  }
}

// Groups [begin, end) of all outputs, concatenated, that take this kind of input.
static void multiply_groups(const linear_job *j, int thread, size_t begin, size_t end) {
  st_input input = j->input;
  size_t at = 0;
  if (j->q->product_scratch) input.scratch = j->q->product_scratch + (size_t)thread * j->q->kernels->scratch_bytes;
  for (int i = 0; i < j->count && at < end; i++) {
    const st_linear_out *out = &j->outs[i];
    const st_matrix *m = &out->matrix->m;
    if (out->matrix->activation != j->input.kind) continue;
    size_t groups = groups_of(out->matrix);
    size_t first = begin > at ? begin - at : 0, last = end - at < groups ? end - at : groups;
    at += groups;
    if (first >= last) continue;
    first *= ST_GROUP;
    last = last * ST_GROUP < m->rows ? last * ST_GROUP : m->rows;
    j->q->kernels->matmul[m->form][j->input.kind](
        m, &input, first, last, out->dst->data + (size_t)out->row * out->dst->width + out->column, out->dst->width);
    if (out->bias) add_bias(out, j->tokens, first, last);
  }
}

static void multiply_part(void *context, int index, int threads) {
  enum { FEW_TOKENS = 16, MANY_TOKENS_GROUPS = 8 }; // many are read again with each run of groups
  const linear_job *j = context;
  size_t grain = j->tokens <= FEW_TOKENS ? 1 : MANY_TOKENS_GROUPS, first, last;
  (void)threads;
  while (st_pool_take(j->q->pool, index, grain, &first, &last)) multiply_groups(j, index, first, last);
}

static void linear(st_queue *q, const st_array *x, uint32_t first, uint32_t n, const st_dvector *norm, float eps,
                   const st_linear_out *outs, int count) {
  for (int kind = 0; kind < ST_ACT_COUNT; kind++) {
    size_t columns = 0, groups = 0;
    for (int i = 0; i < count; i++) {
      if (outs[i].matrix->activation != (st_activation)kind) continue;
      columns = outs[i].matrix->m.columns;
      groups += groups_of(outs[i].matrix);
    }
    if (!columns) continue;
    linear_job j = {.q = q,
                    .outs = outs,
                    .count = count,
                    .input = {.kind = (st_activation)kind, .tokens = n, .columns = columns, .data = q->input},
                    .x = x->data + (size_t)first * x->width,
                    .stride = x->width,
                    .tokens = n,
                    .norm = norm ? norm->values : NULL,
                    .eps = eps};
    if (n <= q->kernels->prepare_unit(j.input.kind, n)) {
      prepare_part(&j, 0, 1);
    } else {
      st_pool_run(q->pool, prepare_part, &j);
    }
    st_pool_deal(q->pool, groups);
    st_pool_run(q->pool, multiply_part, &j);
  }
}

static void embed(st_queue *q, const st_dmatrix *m, const int32_t *ids, uint32_t n, float scale, st_array *dst,
                  uint32_t first) {
  for (uint32_t t = 0; t < n; t++) {
    float *row = dst->data + (size_t)(first + t) * dst->width;
    q->kernels->row[m->m.form](&m->m, (size_t)ids[t], row);
    if (scale != 1.0f) {
      for (size_t i = 0; i < m->m.columns; i++) row[i] *= scale;
    }
  }
}

// An operation on each token's row, or each piece of it, independently.
typedef struct row_job row_job;
struct row_job {
  st_queue *q;
  void (*row)(const row_job *job, size_t token);
  uint32_t n, heads, width, n_rot;
  const st_batch *batch;
  float *x, *dst;              // [n][x_stride], [n][dst_stride]
  float *y;                    // [n][y_stride]; modified only by the operation that stores keys
  const float *norm;           // [width]
  const float *before, *after; // [width] signs; NULL: none
  uint32_t block;              // weights in a block of the Hadamard transform
  const float *table;          // [n_ctx][2][n_rot / 2] cosines and sines; NULL: none
  const uint32_t *tokens;      // [n], or [width] columns
  size_t x_stride, y_stride, dst_stride;
  float value;
  bool interleaved;
  uint32_t period, most; // of positions
  st_glu fn;
  st_cache *cache;
  uint32_t layer;
};

// The place of token t in a batch: its run, with the position and number of tokens from t on.
static st_token_run place_of_token(const st_batch *b, size_t t) {
  const st_token_run *r = b->runs;
  for (; t >= r->n; r++) t -= r->n;
  st_token_run place = *r;
  place.position += (uint32_t)t;
  place.n -= (uint32_t)t;
  return place;
}

static void row_part(void *context, int index, int threads) {
  const row_job *j = context;
  size_t first, last;
  st_pool_share(j->n, 1, index, threads, &first, &last);
  for (size_t t = first; t < last; t++) j->row(j, t);
}

static void run_rows(const row_job *j) {
  if (j->n == 1 || (size_t)j->n * j->heads * j->width < ST_CPU_SMALL) {
    row_part((void *)j, 0, 1);
  } else {
    st_pool_run(j->q->pool, row_part, (void *)j);
  }
}

static void rmsnorm_row(const row_job *j, size_t t) {
  for (uint32_t h = 0; h < j->heads; h++) {
    float *x = j->x + t * j->x_stride + (size_t)h * j->width;
    j->q->kernels->rmsnorm(x, j->norm, j->width, j->value, x);
  }
}

static void rmsnorm(st_queue *q, st_array *x, uint32_t n, uint32_t heads, uint32_t width, const st_dvector *norm,
                    float eps) {
  run_rows(&(row_job){.q = q,
                      .row = rmsnorm_row,
                      .n = n,
                      .heads = heads,
                      .width = width,
                      .x = x->data,
                      .x_stride = x->width,
                      .norm = norm->values,
                      .value = eps});
}

static void norm_into_row(const row_job *j, size_t t) {
  j->q->kernels->rmsnorm(j->x + t * j->x_stride, j->norm, j->width, j->value, j->dst + t * j->dst_stride);
}

static void norm_into(st_queue *q, const st_array *x, uint32_t n, uint32_t width, const st_dvector *norm, float eps,
                      st_array *dst) {
  run_rows(&(row_job){.q = q,
                      .row = norm_into_row,
                      .n = n,
                      .heads = 1,
                      .width = width,
                      .x = x->data,
                      .x_stride = x->width,
                      .norm = norm->values,
                      .value = eps,
                      .dst = dst->data,
                      .dst_stride = dst->width});
}

static void hadamard_row(const row_job *j, size_t t) {
  const float *x = j->x + t * j->x_stride;
  float *dst = j->dst + t * j->dst_stride;
  if (j->norm) j->q->kernels->rmsnorm(x, j->norm, j->width, j->value, dst);
  j->q->kernels->hadamard(j->norm ? dst : x, j->before, j->after, j->width, j->block, dst);
}

static void hadamard(st_queue *q, const st_array *x, uint32_t first, uint32_t n, const st_hadamard_args *args,
                     st_array *dst) {
  run_rows(&(row_job){.q = q,
                      .row = hadamard_row,
                      .n = n,
                      .heads = 1,
                      .width = args->width,
                      .block = args->block,
                      .x = x->data + (size_t)first * x->width,
                      .x_stride = x->width,
                      .norm = args->norm ? args->norm->values : NULL,
                      .value = args->eps,
                      .before = args->before ? args->before->values : NULL,
                      .after = args->after ? args->after->values : NULL,
                      .dst = dst->data,
                      .dst_stride = dst->width});
}

static void reorder_row(const row_job *j, size_t t) {
  const float *x = j->x + t * j->x_stride;
  float *dst = j->dst + t * j->dst_stride;
  for (uint32_t i = 0; i < j->width; i++) dst[i] = x[j->tokens[i]];
}

static void reorder(st_queue *q, const st_array *x, uint32_t first, uint32_t n, uint32_t width, const uint32_t *order,
                    st_array *dst) {
  run_rows(&(row_job){.q = q,
                      .row = reorder_row,
                      .n = n,
                      .heads = 1,
                      .width = width,
                      .tokens = order,
                      .x = x->data + (size_t)first * x->width,
                      .x_stride = x->width,
                      .dst = dst->data,
                      .dst_stride = dst->width});
}

static void rope_row(const row_job *j, size_t t) {
  size_t half = j->n_rot / 2;
  uint32_t position = place_of_token(j->batch, t).position;
  if (j->period) position %= j->period;
  if (position > j->most) position = j->most;
  const float *x = j->x + t * j->x_stride;
  float *dst = j->dst + t * j->dst_stride;
  if (dst != x) memcpy(dst, x, j->heads * j->width * sizeof *dst);
  if (!j->table) return;
  const float *cosine = j->table + (size_t)position * 2 * half;
  for (uint32_t h = 0; h < j->heads; h++) {
    j->q->kernels->rope(dst + (size_t)h * j->width, cosine, cosine + half, j->n_rot, j->interleaved);
  }
}

static void rope(st_queue *q, const st_array *x, const st_batch *batch, const st_rope_args *args, st_array *dst) {
  run_rows(&(row_job){.q = q,
                      .row = rope_row,
                      .n = batch->n_tokens,
                      .batch = batch,
                      .heads = args->heads,
                      .width = args->head_dim,
                      .x = x->data,
                      .x_stride = x->width,
                      .n_rot = args->n_rot,
                      .table = args->table ? args->table->values : NULL,
                      .interleaved = args->interleaved,
                      .period = args->period,
                      .most = args->most,
                      .dst = dst->data,
                      .dst_stride = dst->width});
}

static void clip_row(const row_job *j, size_t t) {
  float *x = j->x + t * j->x_stride;
  for (uint32_t i = 0; i < j->width; i++) x[i] = x[i] > j->value ? j->value : x[i] < -j->value ? -j->value : x[i];
}

static void clip(st_queue *q, st_array *x, uint32_t n, uint32_t width, float limit) {
  run_rows(&(row_job){
      .q = q, .row = clip_row, .n = n, .heads = 1, .width = width, .x = x->data, .x_stride = x->width, .value = limit});
}

// A key or a value in a page.
static st_kv_place cache_place(const st_cache *c, bool keys, uint32_t page, uint32_t head, uint32_t at) {
  size_t block = page * c->page_bytes + head * (c->keys_bytes + c->values_bytes) + (keys ? 0 : c->keys_bytes);
  return (st_kv_place){.type = keys ? c->shape.keys : c->shape.values,
                       .keys = keys,
                       .head_dim = c->shape.head_dim,
                       .at = at,
                       .block = c->data + block};
}

static void cache_row(const row_job *j, size_t t) {
  st_token_run place = place_of_token(j->batch, t);
  uint32_t page = place.pages[j->layer * place.stride + place.position / ST_KEYS], at = place.position % ST_KEYS;
  for (uint32_t h = 0; h < j->heads; h++) {
    st_kv_place key = cache_place(j->cache, true, page, h, at), value = cache_place(j->cache, false, page, h, at);
    st_kv_write(j->q->kernels, &key, j->x + t * j->x_stride + (size_t)h * j->width);
    st_kv_write(j->q->kernels, &value, j->y + t * j->y_stride + (size_t)h * j->width);
  }
}

static void cache_write(st_queue *q, st_cache *cache, uint32_t layer, const st_batch *batch, st_array *k, st_array *v) {
  run_rows(&(row_job){.q = q,
                      .row = cache_row,
                      .n = batch->n_tokens,
                      .batch = batch,
                      .heads = cache->shape.n_head_kv,
                      .width = cache->shape.head_dim,
                      .x = k->data,
                      .x_stride = k->width,
                      .y = v->data,
                      .y_stride = v->width,
                      .cache = cache,
                      .layer = layer});
}

static void glu_row(const row_job *j, size_t t) {
  const float *gate = j->x + t * j->x_stride, *up = j->y + t * j->y_stride;
  j->q->kernels->glu(j->fn, gate, up, j->width, j->dst + t * j->dst_stride);
}

// SiLU of clamped gates times clamped factors, some columns at a time.
static void clamped_glu_row(const row_job *j, size_t t) {
  enum { PIECE = 256 };
  const float *gate = j->x + t * j->x_stride, *up = j->y + t * j->y_stride, limit = j->value;
  float gates[PIECE], factors[PIECE];
  for (size_t at = 0; at < j->width; at += PIECE) {
    size_t n = j->width - at < PIECE ? j->width - at : PIECE;
    for (size_t i = 0; i < n; i++) {
      float g = gate[at + i], u = up[at + i];
      gates[i] = limit < g ? limit : g;
      factors[i] = limit < u ? limit : u < -limit ? -limit : u;
    }
    j->q->kernels->glu(j->fn, gates, factors, n, j->dst + t * j->dst_stride + at);
  }
}

static void glu(st_queue *q, st_activation_fn fn, const st_array *gate, const st_array *up, uint32_t n, uint32_t width,
                st_array *dst) {
  static const st_glu kinds[] = {
      [ST_FN_SILU] = ST_GLU_SILU,       [ST_FN_RELU2] = ST_GLU_RELU2,     [ST_FN_GELU_TANH] = ST_GLU_GELU_TANH,
      [ST_FN_GPT_OSS] = ST_GLU_GPT_OSS, [ST_FN_SIGMOID] = ST_GLU_SIGMOID, [ST_FN_SILU_CLAMPED] = ST_GLU_SILU};
  const float limit = 7;
  run_rows(&(row_job){.q = q,
                      .row = fn == ST_FN_SILU_CLAMPED ? clamped_glu_row : glu_row,
                      .n = n,
                      .heads = 1,
                      .width = width,
                      .x = gate->data,
                      .x_stride = gate->width,
                      .y = up->data,
                      .y_stride = up->width,
                      .dst = dst->data,
                      .dst_stride = dst->width,
                      .value = limit,
                      .fn = kinds[fn]});
}

static void add_row(const row_job *j, size_t t) {
  j->q->kernels->add(j->x + t * j->x_stride, j->y + t * j->y_stride, j->value, j->width);
}

static void add(st_queue *q, st_array *x, const st_array *y, uint32_t n, uint32_t width, float scale) {
  run_rows(&(row_job){.q = q,
                      .row = add_row,
                      .n = n,
                      .heads = 1,
                      .width = width,
                      .x = x->data,
                      .x_stride = x->width,
                      .y = y->data,
                      .y_stride = y->width,
                      .value = scale});
}

static void gather_row(const row_job *j, size_t i) {
  memcpy(j->dst + i * j->dst_stride, j->x + j->tokens[i] * j->x_stride, j->width * sizeof *j->x);
}

static void gather(st_queue *q, const st_array *x, const uint32_t *tokens, uint32_t n, uint32_t width, st_array *dst) {
  run_rows(&(row_job){.q = q,
                      .row = gather_row,
                      .n = n,
                      .heads = 1,
                      .width = width,
                      .tokens = tokens,
                      .x = x->data,
                      .x_stride = x->width,
                      .dst = dst->data,
                      .dst_stride = dst->width});
}

static void clear_row(const row_job *j, size_t t) {
  memset(j->x + t * j->x_stride, 0, j->width * sizeof *j->x);
}

static void clear(st_queue *q, st_array *x, uint32_t n, uint32_t width) {
  run_rows(
      &(row_job){.q = q, .row = clear_row, .n = n, .heads = 1, .width = width, .x = x->data, .x_stride = x->width});
}

typedef struct {
  st_queue *q;
  const st_cache *cache;
  const st_batch *batch;
  const st_attend_args *args;
  uint32_t tokens, blocks; // maximum tokens in a block, all from one run, and the number of blocks
  st_key_range parts;      // parts of one token's keys
  uint32_t heads, band;    // query heads in a unit of one token's work, and units in a band
  atomic_size_t next;      // the block and KV head, or part, that the next free thread takes
} attend_job;

// Query heads [first, last), which share one KV head, of `n` tokens of a run starting at `token`.
static st_attend heads_of(const attend_job *j, uint32_t token, uint32_t n, uint32_t first, uint32_t last) {
  const st_attend_args *a = j->args;
  const st_cache *c = j->cache;
  st_token_run place = place_of_token(j->batch, token);
  uint32_t kv = first / (a->n_head / c->shape.n_head_kv);
  bool all = a->n_sinks && place.position < a->n_sinks + a->window;
  return (st_attend){.q = a->q->data + token * a->q->width + (size_t)first * c->shape.head_dim,
                     .n_q = last - first,
                     .q_stride = c->shape.head_dim,
                     .n_tokens = n,
                     .token_stride = a->q->width,
                     .head_dim = c->shape.head_dim,
                     .k = cache_place(c, true, 0, kv, 0).block,
                     .v = cache_place(c, false, 0, kv, 0).block,
                     .page_bytes = c->page_bytes,
                     .pages = place.pages + a->layer * place.stride,
                     .keys = c->shape.keys,
                     .values = c->shape.values,
                     .n_keys = (size_t)place.position + 1,
                     .window = all ? 0 : a->window,
                     .scale = a->scale,
                     .sinks = a->sinks ? a->sinks->values + first : NULL};
}

static float *attended(const attend_job *j, uint32_t token, uint32_t head) {
  const st_array *dst = j->args->dst;
  return dst->data + token * dst->width + (size_t)head * j->cache->shape.head_dim;
}

static char *scratch_of(const attend_job *j, int thread) {
  return j->q->scratch + (size_t)thread * j->q->scratch_each;
}

// Whether the sinks that a run's tokens see are separate from their window, and whether keys are of the previous
// period.
static bool has_sinks(const attend_job *j, uint32_t position) {
  return j->args->n_sinks && position >= j->args->n_sinks + j->args->window;
}
static bool has_far(const attend_job *j, uint32_t position) {
  return j->args->period && position >= j->args->period;
}

// The queries in other rotations.
static const float *rotated(const attend_job *j, const st_array *q, uint32_t token, uint32_t first) {
  return q->data + token * q->width + (size_t)first * j->cache->shape.head_dim;
}

// The sinks, token by token, since all see the same keys: sums and states like those of a part.
static void attend_sinks(const attend_job *j, const st_attend *heads, uint32_t token, uint32_t first,
                         const st_attend_memory *m) {
  float *states = m->sums + st_attend_queries(heads) * heads->head_dim;
  for (uint32_t i = 0; i < heads->n_tokens; i++) {
    st_attend one = *heads;
    one.q = rotated(j, j->args->q_sink, token + i, first);
    one.n_tokens = 1;
    one.n_keys = j->args->n_sinks;
    one.window = 0;
    const st_attend_part part = {.queries = st_attend_prepare(j->q->kernels, &one, m),
                                 .scores = m->scores,
                                 .out = m->sums + i * heads->n_q * heads->head_dim,
                                 .state = states + 2 * i * heads->n_q};
    j->q->kernels->attend(&one, &part);
  }
}

// Like st_attend_run, where parts take queries in several rotations: sinks first, then the window's parts.
static void attend_rotated(const attend_job *j, int thread, st_attend *heads, uint32_t token, uint32_t first) {
  uint32_t position = (uint32_t)heads->n_keys - 1;
  size_t states = st_attend_queries(heads) * heads->head_dim, far_parts = j->args->period / ST_PART;
  st_attend_memory m = st_attend_memory_of(heads, scratch_of(j, thread));
  st_key_range parts = st_attend_parts(heads);
  const st_attend_codes *queries = NULL;
  const float *q = heads->q;
  heads->merged = has_sinks(j, position);
  if (heads->merged) attend_sinks(j, heads, token, first, &m);
  for (size_t index = parts.first; index < parts.last; index++) {
    bool far = has_far(j, position) && index < far_parts;
    heads->q = far ? rotated(j, j->args->q_far, token, first) : q;
    if (index == parts.first || index == far_parts) queries = st_attend_prepare(j->q->kernels, heads, &m);
    float *to = index == parts.first && !heads->merged ? m.sums : m.next;
    const st_attend_part part = {
        .index = index, .queries = queries, .scores = m.scores, .out = to, .state = to + states};
    j->q->kernels->attend(heads, &part);
    st_attend_merge(heads, index, to, to + states, m.sums, m.sums + states);
  }
  st_attend_finish(j->q->kernels, heads, m.sums, m.sums + states, attended(j, token, first));
}

// Bidirectional attention: each token has its own range of keys.
static void attend_around(const attend_job *j, int thread, uint32_t token, uint32_t n, uint32_t first, uint32_t last) {
  size_t window = j->args->window;
  for (uint32_t i = 0; i < n; i++) {
    st_attend one = heads_of(j, token + i, 1, first, last);
    size_t position = one.n_keys - 1, end = position + place_of_token(j->batch, token + i).n;
    size_t begin = window && position >= window ? position - window + 1 : 0;
    one.n_keys = window && end - position > window ? position + window : end;
    one.window = one.n_keys - begin;
    st_attend_run(j->q->kernels, &one, scratch_of(j, thread), attended(j, token + i, first));
  }
}

static void attend_heads(const attend_job *j, int thread, uint32_t token, uint32_t n, uint32_t first, uint32_t last) {
  if (j->args->bidirectional) {
    attend_around(j, thread, token, n, first, last);
    return;
  }
  st_attend heads = heads_of(j, token, n, first, last);
  uint32_t position = (uint32_t)heads.n_keys - 1;
  if (has_sinks(j, position) || has_far(j, position))
    attend_rotated(j, thread, &heads, token, first);
  else
    st_attend_run(j->q->kernels, &heads, scratch_of(j, thread), attended(j, token, first));
}

// One token: each thread takes a run of query heads. Where two threads share a KV head, both process it at the same
// time, one as the first and one as the last of its run, so that its keys and values are read from memory once: even
// threads go through their runs backwards.
static void attend_token_part(void *context, int index, int threads) {
  const attend_job *j = context;
  uint32_t n_head = j->args->n_head, group = n_head / j->cache->shape.n_head_kv;
  size_t first, last;
  st_pool_share(n_head, 1, index, threads, &first, &last);
  if (first == last) return;
  uint32_t kv_first = (uint32_t)first / group, count = (uint32_t)(last - 1) / group - kv_first + 1;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t begin = (kv_first + (index % 2 == 0 ? count - 1 - i : i)) * group, end = begin + group;
    attend_heads(j, index, 0, 1, begin > first ? begin : (uint32_t)first, end < last ? end : (uint32_t)last);
  }
}

static uint32_t blocks_of(const attend_job *j, const st_token_run *r) {
  return (r->n + j->tokens - 1) / j->tokens;
}

// Many tokens: threads take blocks of tokens with the query heads of one KV head. Later blocks see more keys and are
// taken first, so that threads finish together.
static void attend_block_part(void *context, int index, int threads) {
  attend_job *j = context;
  uint32_t heads = j->cache->shape.n_head_kv, group = j->args->n_head / heads;
  (void)threads;
  for (size_t i; (i = atomic_fetch_add(&j->next, 1)) < (size_t)heads * j->blocks;) {
    uint32_t kv = (uint32_t)(i / j->blocks), block = j->blocks - 1 - (uint32_t)(i % j->blocks), first = 0;
    const st_token_run *r = j->batch->runs;
    for (; block >= blocks_of(j, r); first += r++->n) block -= blocks_of(j, r);
    uint32_t token = first + block * j->tokens, left = r->n - block * j->tokens;
    uint32_t n = left < j->tokens ? left : j->tokens;
    attend_heads(j, index, token, n, kv * group, (kv + 1) * group);
  }
}

// One token that sees several parts of keys: threads take a part with the query heads of one KV head, or with one of
// them if there are few. Each unit's sums and states go to the queue's `partial`.
static float *partial_of(const attend_job *j, size_t part, uint32_t head, float **state) {
  size_t heads = j->args->n_head, at = (part - j->parts.first) * heads + head;
  *state = j->q->partial + (j->parts.last - j->parts.first) * heads * j->cache->shape.head_dim + 2 * at;
  return j->q->partial + at * j->cache->shape.head_dim;
}

// Merges the parts of a unit's query heads, once all are computed.
static void merge_parts(const attend_job *j, const st_attend *heads, uint32_t first) {
  float *state, *sums = partial_of(j, j->parts.first, first, &state);
  for (size_t part = j->parts.first; part < j->parts.last; part++) {
    float *part_state, *part_sums = partial_of(j, part, first, &part_state);
    st_attend_merge(heads, part, part_sums, part_state, sums, state);
  }
  st_attend_finish(j->q->kernels, heads, sums, state, attended(j, 0, first));
}

typedef struct {
  size_t band, part;
  uint32_t first; // query head
} attend_unit;

// In bands of neighbours in each page, part by part: what is read in turn lies together, a thread needs few queries.
static attend_unit unit_of(const attend_job *j, size_t i) {
  size_t band = (j->parts.last - j->parts.first) * j->band, head = i / band * j->band + i % j->band;
  return (attend_unit){i / band, j->parts.first + i % band / j->band, (uint32_t)head * j->heads};
}

static void attend_parts_part(void *context, int index, int threads) {
  attend_job *j = context;
  size_t begin, end, own, own_end, next = SIZE_MAX, prepared = SIZE_MAX; // next: prefetched unit; prepared: band
  uint32_t wide = j->band * j->heads;                                    // query heads of a band
  st_attend_memory m;
  st_pool_share(j->args->n_head / j->heads * (j->parts.last - j->parts.first), 1, index, threads, &own, &own_end);
  while (st_pool_take(j->q->pool, index, 1, &begin, &end)) {
    for (size_t i = begin; i < end; i++) {
      const attend_unit unit = unit_of(j, i), then = unit_of(j, i + 1);
      const st_attend heads = heads_of(j, 0, 1, unit.first, unit.first + j->heads);
      const st_attend all = heads_of(j, 0, 1, (uint32_t)unit.band * wide, (uint32_t)(unit.band + 1) * wide);
      if (unit.band != prepared) {
        m = st_attend_memory_of(&all, scratch_of(j, index));
        st_attend_prepare(j->q->kernels, &all, &m);
        prepared = unit.band;
      }
      st_attend_codes codes = m.row ? st_attend_codes_from(&m.codes, unit.first % wide) : m.codes;
      st_attend_part part = {
          .index = unit.part, .fetched = i == next, .queries = m.row ? &codes : NULL, .scores = m.scores};
      if (i + 1 < end || (i >= own && i + 1 < own_end)) { // `then` was dealt to this thread
        const st_attend its = heads_of(j, 0, 1, then.first, then.first + j->heads);
        part.next_k = its.k, part.next_v = its.v, part.next_index = then.part;
      }
      part.out = partial_of(j, part.index, unit.first, &part.state);
      next = part.next_k ? i + 1 : SIZE_MAX;
      j->q->kernels->attend(&heads, &part);
      if (atomic_fetch_sub(&j->q->parts_left[unit.first], 1) == 1) merge_parts(j, &heads, unit.first);
    }
  }
}

// False where that is not worthwhile.
static bool attend_by_parts(attend_job *j) {
  uint32_t heads = j->args->n_head, group = heads / j->cache->shape.n_head_kv;
  size_t threads = (size_t)st_pool_threads(j->q->pool);
  uint32_t position = j->batch->runs->position;
  if (j->batch->n_tokens != 1 || threads == 1 || has_sinks(j, position) || has_far(j, position)) return false;
  const st_attend all = heads_of(j, 0, 1, 0, group);
  j->parts = st_attend_parts(&all);
  size_t parts = j->parts.last - j->parts.first;
  if (parts < 2 || parts > j->q->partial_parts) return false;
  j->heads = heads / group * parts >= 4 * threads ? group : 1;
  uint32_t units = heads / j->heads; // of a part
  for (j->band = 1; units % j->band || units / j->band > threads;) j->band++;
  st_pool_deal(j->q->pool, units * parts);
  for (uint32_t first = 0; first < heads; first += j->heads) atomic_init(&j->q->parts_left[first], parts);
  st_pool_run(j->q->pool, attend_parts_part, j);
  return true;
}

static void attend(st_queue *q, const st_cache *cache, const st_batch *batch, const st_attend_args *args) {
  attend_job j = {.q = q, .cache = cache, .batch = batch, .args = args, .tokens = st_cpu_attend_tokens(&cache->shape)};
  if (attend_by_parts(&j)) return;
  for (uint32_t i = 0; i < batch->n_runs; i++) j.blocks += blocks_of(&j, &batch->runs[i]);
  st_pool_run(q->pool, batch->n_tokens == 1 ? attend_token_part : attend_block_part, &j);
}

static void cache_copy_page(st_queue *q, st_cache *c, uint32_t from, uint32_t to) {
  (void)q;
  memcpy(c->data + to * c->page_bytes, c->data + from * c->page_bytes, c->page_bytes);
}

static size_t cache_row_size(setun_kv_type type, bool keys, uint32_t head_dim) {
  return st_kv_row_bytes(type, keys, head_dim);
}

static const char *cache_format_name(setun_kv_type type) {
  const st_kv_format *f = st_kv_format_of(type);
  return f ? f->name : NULL;
}

static setun_status cache_save(st_queue *q, const st_cache *c, uint32_t page, uint32_t head, uint32_t n, void *keys,
                               void *values, setun_error *err) {
  (void)q, (void)err;
  for (uint32_t i = 0; i < n; i++) {
    st_kv_place key = cache_place(c, true, page, head, i), value = cache_place(c, false, page, head, i);
    st_kv_load(&key, (uint8_t *)keys + i * st_kv_row_bytes(key.type, true, key.head_dim));
    st_kv_load(&value, (uint8_t *)values + i * st_kv_row_bytes(value.type, false, value.head_dim));
  }
  return SETUN_OK;
}

static setun_status cache_restore(st_queue *q, st_cache *c, uint32_t page, uint32_t head, uint32_t n, const void *keys,
                                  const void *values, setun_error *err) {
  (void)q, (void)err;
  for (uint32_t i = 0; i < n; i++) {
    st_kv_place key = cache_place(c, true, page, head, i), value = cache_place(c, false, page, head, i);
    st_kv_store(&key, (const uint8_t *)keys + i * st_kv_row_bytes(key.type, true, key.head_dim));
    st_kv_store(&value, (const uint8_t *)values + i * st_kv_row_bytes(value.type, false, value.head_dim));
  }
  return SETUN_OK;
}

// Only the constructors can fail here.
static setun_status finish(st_queue *q, setun_error *err) {
  (void)q, (void)err;
  return SETUN_OK;
}

extern const st_backend st_backend_cpu; // listed in backends.def
const st_backend st_backend_cpu = {
    .name = "cpu",
    .available = st_kernels_available,
    .isa_name = st_isa_name,
    .measure = st_cpu_measure,
    .device_at = st_cpu_device_at,
    .device_new = st_cpu_device_new,
    .device_free = st_cpu_device_free,
    .device_isa = st_cpu_device_isa,
    .pool_new = st_cpu_pool_new,
    .supports = st_cpu_supports,
    .matrix_info = st_cpu_matrix_info,
    .matrix_new = st_cpu_matrix_new,
    .matrix_write = st_cpu_matrix_write,
    .matrix_borrow = st_cpu_matrix_borrow,
    .matrix_finalize = st_cpu_matrix_finalize,
    .matrix_free = st_cpu_matrix_free,
    .matrix_bytes = st_cpu_matrix_bytes,
    .vector_new = st_cpu_vector_new,
    .vector_free = st_cpu_vector_free,
    .queue_new = st_cpu_queue_new,
    .queue_free = st_cpu_queue_free,
    .workload_add = st_cpu_workload_add,
    .queue_size = st_cpu_queue_size,
    .cache_size = st_cpu_cache_size,
    .cache_page_size = st_cpu_cache_page_size,
    .cache_row_size = cache_row_size,
    .cache_format_name = cache_format_name,
    .array_new = st_cpu_array_new,
    .array_free = st_cpu_array_free,
    .cache_new = st_cpu_cache_new,
    .cache_free = st_cpu_cache_free,
    .embed = embed,
    .linear = linear,
    .rmsnorm = rmsnorm,
    .norm_into = norm_into,
    .hadamard = hadamard,
    .reorder = reorder,
    .rope = rope,
    .clip = clip,
    .cache_write = cache_write,
    .attend = attend,
    .cache_copy_page = cache_copy_page,
    .cache_save = cache_save,
    .cache_restore = cache_restore,
    .state_size = st_cpu_state_size,
    .states_size = st_cpu_states_size,
    .states_new = st_cpu_states_new,
    .states_free = st_cpu_states_free,
    .convolve = st_cpu_convolve,
    .delta = st_cpu_delta,
    .state_save = st_cpu_state_save,
    .state_restore = st_cpu_state_restore,
    .copy_columns = st_cpu_copy_columns,
    .glu = glu,
    .gather = gather,
    .scatter_add = st_cpu_scatter_add,
    .route = st_cpu_route,
    .add_chosen = st_cpu_add_chosen,
    .clear = clear,
    .add = add,
    .finish = finish,
    .read = st_cpu_read,
    .argmax = st_cpu_argmax,
    .top = st_cpu_top,
    .write = st_cpu_write,
};
