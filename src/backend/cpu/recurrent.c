// Recurrent layers: slots of states, the causal convolution, and the delta rule, each split among threads by
// independent units: channels, tokens, and columns of a head's state.
#include "backend/cpu/cpu.h"

#include "base/memory.h"
#include "kernel/recurrent.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

static const float normal_eps =
    1e-6f; // epsilon of the L2 norms of queries and keys (the official implementations' constant)

struct st_states {
  st_state_shape shape;
  size_t bytes, slot, layer, matrices; // floats of a slot, of a layer in it, and of a layer's matrices
  float *data;                         // [n_slots][n_layers]: matrices, then the convolution's [n_taps - 1][channels]
  float *q_norm, *k_norm; // [key_dim] factors that turn RMSNorm into the L2 norm, and divide queries by sqrt(key_dim)
};

// ---- slots --------------------------------------------------------------------------------------------------------

static size_t floats_of_matrices(const st_state_shape *s) {
  return (size_t)s->n_value_heads * s->key_dim * s->value_dim;
}
// A multiple of the lanes, so that matrices begin at cache lines.
static size_t floats_of_layer(const st_state_shape *s) {
  size_t n = floats_of_matrices(s) + (size_t)(s->n_taps - 1) * st_state_channels(s);
  return (n + 15) / 16 * 16;
}

uint64_t st_cpu_state_size(const st_state_shape *s) {
  return (uint64_t)s->n_layers * floats_of_layer(s) * sizeof(float);
}

uint64_t st_cpu_states_size(const st_state_shape *s) {
  uint64_t bytes = s->n_slots * st_cpu_state_size(s);
  return (bytes >= ST_HUGE_PAGE ? st_huge_pages(bytes) : bytes) + 2 * (uint64_t)s->key_dim * sizeof(float);
}

setun_status st_cpu_states_new(st_queue *q, const st_state_shape *shape, st_states **states, setun_error *err) {
  (void)q;
  size_t bytes, dim = shape->key_dim;
  st_states *s = st_calloc(1, sizeof *s);
  if (!s || !st_mul_size((size_t)st_cpu_state_size(shape), shape->n_slots, &bytes)) {
    st_free(s);
    return st_fail_memory(err, "the recurrent states");
  }
  *s = (st_states){.shape = *shape,
                   .bytes = bytes,
                   .layer = floats_of_layer(shape),
                   .slot = shape->n_layers * floats_of_layer(shape),
                   .matrices = floats_of_matrices(shape),
                   .data = st_pages_alloc(bytes, bytes >= ST_HUGE_PAGE),
                   .q_norm = st_malloc(2 * dim, sizeof(float))};
  if (!s->data || !s->q_norm) {
    st_cpu_states_free(s);
    return st_fail(err, SETUN_ERROR_MEMORY, "out of memory for %u recurrent states (%zu bytes)", shape->n_slots, bytes);
  }
  s->k_norm = s->q_norm + dim;
  for (size_t i = 0; i < dim; i++) {
    s->q_norm[i] = (float)(1 / (double)dim);
    s->k_norm[i] = (float)(1 / sqrt((double)dim));
  }
  *states = s;
  return SETUN_OK;
}

void st_cpu_states_free(st_states *s) {
  if (!s) return;
  st_pages_free(s->data, s->bytes);
  st_free(s->q_norm);
  st_free(s);
}

setun_status st_cpu_state_save(st_queue *q, const st_states *s, uint32_t slot, void *bytes, setun_error *err) {
  (void)q, (void)err;
  memcpy(bytes, s->data + slot * s->slot, s->slot * sizeof *s->data);
  return SETUN_OK;
}

setun_status st_cpu_state_restore(st_queue *q, st_states *s, uint32_t slot, const void *bytes, setun_error *err) {
  (void)q, (void)err;
  memcpy(s->data + slot * s->slot, bytes, s->slot * sizeof *s->data);
  return SETUN_OK;
}

// A layer's part of a slot; NULL: no state yet.
static float *part_of(const st_states *s, uint32_t slot, uint32_t layer) {
  return slot == ST_NO_STATE ? NULL : s->data + slot * s->slot + layer * s->layer;
}

// ---- the convolution ----------------------------------------------------------------------------------------------

typedef struct {
  st_queue *q;
  st_states *s;
  uint32_t layer;
  const st_batch *batch;
  const st_array *x;
  const float *taps;
  st_array *dst;
} convolve_job;

// Channels [first, last) of one run, whose first token is `token`.
static void convolve_run(const convolve_job *j, const st_token_run *r, uint32_t token, size_t first, size_t last) {
  size_t channels = st_state_channels(&j->s->shape), before = j->s->shape.n_taps - 1, n = last - first;
  const float *x = j->x->data + token * j->x->width + first;
  float *to = part_of(j->s, r->state_to, j->layer) + j->s->matrices + first;
  const float *from = part_of(j->s, r->state_from, j->layer);
  if (from) {
    from += j->s->matrices + first;
  } else {
    for (size_t i = 0; i < before; i++) memset(to + i * channels, 0, n * sizeof *to);
    from = to;
  }
  st_convolution c = {.taps = j->taps + first, .n_taps = before + 1, .stride = channels};
  for (size_t t = 0; t < r->n; t++) {
    for (size_t i = 0; i <= before; i++) {
      c.rows[i] = t + i < before ? from + (t + i) * channels : x + (t + i - before) * j->x->width;
    }
    j->q->kernels->convolve(&c, n, j->dst->data + (token + t) * j->dst->width + first);
  }
  for (size_t i = 0; i < before; i++) { // moved in place, to an earlier row
    const float *row = r->n + i < before ? from + (r->n + i) * channels : x + (r->n + i - before) * j->x->width;
    if (row != to + i * channels) memcpy(to + i * channels, row, n * sizeof *to);
  }
}

static void convolve_part(void *context, int index, int threads) {
  const convolve_job *j = context;
  size_t first, last;
  st_pool_share(st_state_channels(&j->s->shape), 16, index, threads, &first, &last);
  for (uint32_t i = 0, token = 0; i < j->batch->n_runs && first < last; token += j->batch->runs[i++].n) {
    convolve_run(j, &j->batch->runs[i], token, first, last);
  }
}

void st_cpu_convolve(st_queue *q, st_states *s, uint32_t layer, const st_batch *batch, const st_array *x,
                     const st_dvector *taps, st_array *dst) {
  convolve_job j = {q, s, layer, batch, x, taps->values, dst};
  if ((size_t)batch->n_tokens * st_state_channels(&s->shape) < ST_CPU_SMALL) {
    convolve_part(&j, 0, 1);
  } else {
    st_pool_run(q->pool, convolve_part, &j);
  }
}

// ---- the delta rule -----------------------------------------------------------------------------------------------

typedef struct {
  st_queue *q;
  st_states *s;
  const st_batch *batch;
  const st_delta_args *args;
  size_t pieces; // of a head's columns
  atomic_size_t next;
} delta_job;

// ln(1 + e^x), which is x where e^x is too large for the 1 to matter.
static double softplus(double x) {
  return x > 40 ? x : log1p(exp(x));
}

// One token: queries and keys normalized, decay in alpha's place, and beta.
static void prepare_token(const delta_job *j, size_t t) {
  const st_state_shape *s = &j->s->shape;
  const st_delta_args *a = j->args;
  float *x = a->mixed->data + t * a->mixed->width, eps = normal_eps / (float)s->key_dim;
  for (uint32_t h = 0; h < 2 * s->n_key_heads; h++, x += s->key_dim) {
    j->q->kernels->rmsnorm(x, h < s->n_key_heads ? j->s->q_norm : j->s->k_norm, s->key_dim, eps, x);
  }
  float *alpha = a->alpha->data + t * a->alpha->width, *beta = a->beta->data + t * a->beta->width;
  for (uint32_t h = 0; h < s->n_value_heads; h++) {
    double step = softplus((double)alpha[h] + (double)a->bias->values[h]);
    alpha[h] = (float)exp(-(double)a->rate->values[h] * step);
    beta[h] = (float)(1 / (1 + exp(-(double)beta[h])));
  }
}

static void prepare_part(void *context, int index, int threads) {
  const delta_job *j = context;
  size_t first, last;
  st_pool_share(j->batch->n_tokens, 1, index, threads, &first, &last);
  for (size_t t = first; t < last; t++) prepare_token(j, t);
}

// Columns [first, first + n) of a value head, for all tokens of a run.
static void update(const delta_job *j, const st_token_run *r, uint32_t token, uint32_t head, size_t first, size_t n) {
  const st_state_shape *s = &j->s->shape;
  const st_delta_args *a = j->args;
  uint32_t key = s->tiled ? head % s->n_key_heads : head / (s->n_value_heads / s->n_key_heads);
  size_t at = (size_t)head * s->key_dim * s->value_dim + first, queries = (size_t)s->n_key_heads * s->key_dim;
  const float *from = part_of(j->s, r->state_from, a->layer);
  float *to = part_of(j->s, r->state_to, a->layer) + at;
  for (size_t i = 0; i < s->key_dim && !from; i++) memset(to + i * s->value_dim, 0, n * sizeof *to);
  st_delta d = {.from = from ? from + at : to, .to = to, .rows = s->key_dim, .columns = n, .stride = s->value_dim};
  for (uint32_t t = token; t < token + r->n; t++, d.from = to) {
    const float *x = a->mixed->data + t * a->mixed->width;
    d.q = x + (size_t)key * s->key_dim;
    d.k = d.q + queries;
    d.v = x + 2 * queries + (size_t)head * s->value_dim + first;
    d.decay = a->alpha->data[t * a->alpha->width + head];
    d.beta = a->beta->data[t * a->beta->width + head];
    d.out = a->dst->data + t * a->dst->width + (size_t)head * s->value_dim + first;
    j->q->kernels->delta(&d);
  }
}

static void update_part(void *context, int index, int threads) {
  delta_job *j = context;
  const st_state_shape *s = &j->s->shape;
  size_t each = (s->value_dim / j->pieces + 15) / 16 * 16, heads = s->n_value_heads;
  (void)index, (void)threads;
  for (size_t i; (i = atomic_fetch_add(&j->next, 1)) < j->batch->n_runs * heads * j->pieces;) {
    size_t piece = i % j->pieces, head = i / j->pieces % heads, run = i / j->pieces / heads, first = piece * each;
    uint32_t token = 0;
    for (size_t k = 0; k < run; k++) token += j->batch->runs[k].n;
    if (first >= s->value_dim) continue;
    size_t n = s->value_dim - first < each ? s->value_dim - first : each;
    update(j, &j->batch->runs[run], token, (uint32_t)head, first, n);
  }
}

void st_cpu_delta(st_queue *q, st_states *s, const st_batch *batch, const st_delta_args *args) {
  enum { LEAST_COLUMNS = 64, UNITS = 4 }; // columns of a worthwhile piece, units of work per thread
  delta_job j = {.q = q, .s = s, .batch = batch, .args = args, .pieces = 1};
  size_t threads = (size_t)st_pool_threads(q->pool), heads = (size_t)batch->n_runs * s->shape.n_value_heads;
  while (heads * j.pieces < UNITS * threads && s->shape.value_dim / (2 * j.pieces) >= LEAST_COLUMNS) j.pieces *= 2;
  if (batch->n_tokens == 1) {
    prepare_part(&j, 0, 1);
  } else {
    st_pool_run(q->pool, prepare_part, &j);
  }
  if (batch->n_tokens * s->matrices < ST_CPU_SMALL) {
    update_part(&j, 0, 1);
  } else {
    st_pool_run(q->pool, update_part, &j);
  }
}

// ---- columns ------------------------------------------------------------------------------------------------------

typedef struct {
  const st_array *x;
  uint32_t n;
  const st_columns *columns;
  st_array *dst;
} columns_job;

static void columns_part(void *context, int index, int threads) {
  const columns_job *j = context;
  const st_columns *c = j->columns;
  size_t first, last;
  st_pool_share(j->n, 1, index, threads, &first, &last);
  for (size_t t = first; t < last; t++) {
    const float *x = j->x->data + t * j->x->width + c->from;
    float *y = j->dst->data + t * j->dst->width + c->to;
    for (size_t i = 0; i < c->count; i++) {
      memcpy(y + i * c->to_step, x + i * c->from_step, c->n * sizeof *y);
    }
  }
}

void st_cpu_copy_columns(st_queue *q, const st_array *x, uint32_t n, const st_columns *columns, st_array *dst) {
  columns_job j = {x, n, columns, dst};
  if ((size_t)n * columns->n * columns->count < ST_CPU_SMALL) {
    columns_part(&j, 0, 1);
  } else {
    st_pool_run(q->pool, columns_part, &j);
  }
}
